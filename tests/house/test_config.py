"""The YAML of a pipeline: defaults, and every mistake at once with its path."""

from pathlib import Path

import pytest

from cdc_pipeline.config.pipeline_config import ConfigMistakes, LiveSourceConfig, load_config


def _write(folder: Path, text: str, name: str = "shop") -> Path:
    file = folder / f"{name}.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_source_and_a_lake_are_enough(tmp_path: Path) -> None:
    config = load_config(
        _write(tmp_path, "source: {kind: archive, directory: journals}\nsink: {lake_path: lake}\n")
    )
    assert config.name == "shop"
    assert config.sink.lake_path == tmp_path / "lake"
    assert config.start == "earliest"
    assert config.bound == "end_of_log"


def test_secrets_come_from_the_environment_and_are_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "s3cret")
    config = load_config(
        _write(
            tmp_path,
            "source: {kind: live, host: db, user: cdc, password: '${SHOP_PASSWORD}'}\nsink: "
            "{lake_path: lake}\n",
        )
    )
    assert isinstance(config.source, LiveSourceConfig)
    assert config.source.password.get_secret_value() == "s3cret"
    assert "s3cret" not in repr(config)
    assert "s3cret" not in config.model_dump_json()


def test_every_mistake_is_reported_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_THERE", raising=False)
    file = _write(
        tmp_path,
        """
source: {kind: live, host: db, port: 99999, user: cdc, password: "${NOT_THERE}"}
tables: {include: [orders]}
start: someday
bound: {transactions: 0}
store: {ring_events: 1000}
sink: {mode: mirror}
colour: blue
""",
    )
    with pytest.raises(ConfigMistakes) as caught:
        load_config(file)
    paths = {mistake.path for mistake in caught.value.mistakes}
    assert paths == {
        "source.port",
        "source.password",
        "tables.include",
        "start",
        "bound.transactions",
        "store.ring_events",
        "sink.lake_path",
        "colour",
    }
    assert "NOT_THERE" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("source: [", "line 1, column 10: a bracket is not closed"),
        ("- a\n- b\n", "expected a mapping"),
        ("source: {kind: stream}\nsink: {lake_path: x}\n", "source"),
    ],
)
def test_a_file_that_is_no_configuration(tmp_path: Path, text: str, part: str) -> None:
    with pytest.raises(ConfigMistakes, match=part):
        load_config(_write(tmp_path, text))


def test_a_section_that_is_written_twice_is_a_mistake_with_its_lines(tmp_path: Path) -> None:
    """YAML itself would take the last one without a word."""
    file = _write(
        tmp_path,
        "source: {kind: archive, directory: j}\nsink: {lake_path: a}\nsink: {lake_path: b}\n",
    )
    with pytest.raises(
        ConfigMistakes, match=r"line 3, column 1: .*'sink' is given twice, first in line 2"
    ):
        load_config(file)


def test_a_misspelt_setting_or_value_is_named_with_what_was_meant(tmp_path: Path) -> None:
    text = """
source: {kind: archive, directory: journals}
tabels: {include: ["shop.*"]}
sink: {lake_path: lake, mode: miror, merge_thread: 2, snapshot: 1}
targets: [{tables: ["shop.a"], shard_colum: x}]
"""
    with pytest.raises(ConfigMistakes) as caught:
        load_config(_write(tmp_path, text))
    told = {mistake.path: mistake.message for mistake in caught.value.mistakes}
    assert told["tabels"] == "no such setting; did you mean 'tables'?"
    assert told["sink.merge_thread"] == "no such setting; did you mean 'merge_threads'?"
    assert told["targets.0.shard_colum"] == "no such setting; did you mean 'shard_column'?"
    assert told["sink.snapshot"] == (
        "no such setting here; it belongs in the first column: check the indentation"
    )
    assert told["sink.mode"].endswith("did you mean 'mirror'?")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigMistakes, match="cannot be read"):
        load_config(tmp_path / "nowhere.yaml")


def test_secret_is_not_in_the_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "s3cret")
    file = _write(
        tmp_path,
        "source: {kind: live, host: 1, user: cdc, password: '${SHOP_PASSWORD}', port: x}\nsink: "
        "{lake_path: lake}\n",
    )
    with pytest.raises(ConfigMistakes) as caught:
        load_config(file)
    assert "s3cret" not in str(caught.value)


_ARCHIVE = "source: {kind: archive, directory: x}\nsink: {lake_path: y}\n"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("source: {kind: '${CANARY}', directory: x}\nsink: {lake_path: y}\n", "source"),
        (_ARCHIVE + "targets:\n- tables: [a.b]\n  mode: ${CANARY}\n", "targets.0.mode"),
        (
            _ARCHIVE
            + (
                "targets:\n- tables: [a.b]\n  computed: {c: {expression: \"'${CANARY}'\", "
                "type: string}}\n"
            ),
            "targets.0.computed.c.expression",
        ),
        (
            _ARCHIVE + "targets:\n- tables: [a.b]\n  filter: \"b <> '${CANARY}'\"\n",
            "targets.0.filter",
        ),
        (_ARCHIVE + "store: {kind: '${CANARY}'}\n", "store.kind"),
        (_ARCHIVE + "tables: {include: ['${CANARY}']}\n", "tables.include"),
    ],
)
def test_k26_no_value_of_a_variable_is_in_a_mistake_or_recorded(
    text: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY", "Canary'51\\c")
    file = tmp_path / "shop.yaml"
    file.write_text(text)
    with pytest.raises(ConfigMistakes) as caught:
        load_config(file)
    assert "Canary" not in str(caught.value)
    assert "51\\c" not in str(caught.value)
    assert any(mistake.path.startswith(path) for mistake in caught.value.mistakes)
