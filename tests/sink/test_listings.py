"""A run lists the cuts once, however many there are, and still sees what others wrote."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from cdc_pipeline.lake import state
from cdc_pipeline.lake.paths import list_numbers
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.lake.storage.storage import Storage
from cdc_pipeline.sink import lake_sink
from tests.support.memory_shop import MemoryShop, memory_shop
from tests.support.memory_sink import memory_sink


@pytest.fixture
def shop(tmp_path: Path) -> MemoryShop:
    return memory_shop(tmp_path, include=["shop.pair", "shop.plain", "shop.isam", "shop.copied"])


def test_a_run_of_several_batches_lists_the_cuts_once(
    shop: MemoryShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: Counter[str] = Counter()

    def counted(folder: Path) -> list[str]:
        listed[folder.name] += 1
        return names(Storage(), folder)

    names = Storage.names
    monkeypatch.setattr(Storage, "names", lambda _storage, folder: counted(folder))
    shop.run()
    assert listed["cuts"] == 1
    assert len(list_numbers(shop.paths.cuts)) > 2, "the run had several batches"


def test_what_another_run_wrote_is_seen_once_the_lock_is_held_again(shop: MemoryShop) -> None:
    mine = memory_sink(shop.lake, source=shop.config.name, config=shop.config.sink)
    with mine.lock():
        assert mine.last_cut() is None
    shop.run()
    with mine.lock():
        assert mine.last_cut() == shop.last_cut()


def test_records_and_cuts_are_removed_by_a_run_that_listed_them_before(
    shop: MemoryShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_sink, "_RECORDS_KEPT", 1)
    shop.run()
    last = shop.last_cut().batch_number
    cuts = {number: state.read_cut(shop.paths, number) for number in range(1, last + 1)}
    for number, cut in cuts.items():
        if number < last - 1:
            _publish_before_retention(shop, cut)
    shop.run()
    assert list_numbers(shop.paths.batches) == [last]
    # the newest old one was the state of the lake until a young one was published
    assert list_numbers(shop.paths.cuts) == [last - 2, last - 1, last]


def _publish_before_retention(shop: MemoryShop, cut: Cut) -> None:
    at_us = cut.published_at_us - round(shop.config.sink.cut_retention.total_seconds() * 1e6)
    path = shop.paths.cut(cut.batch_number)
    text = path.read_text()
    changed = text.replace(f'"published_at_us":{cut.published_at_us}', f'"published_at_us":{at_us}')
    assert changed != text
    path.write_text(changed)
