"""K26: the folder that rows are spilled to, and those of the lake's own files, are this user's
alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from cdc_pipeline import private_folder
from cdc_pipeline.errors import StoreError
from cdc_pipeline.lake.storage.lock import writer_lock
from cdc_pipeline.private_folder import make_private
from cdc_pipeline.store.segments.folder import SegmentsFolder


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _refused(path: Path) -> StoreError:
    with pytest.raises(StoreError, match="another user could read or replace") as caught:
        SegmentsFolder(path).take()
    assert caught.value.setting == "store.directory"
    return caught.value


def test_k26_the_spill_folder_and_its_parent_are_private(tmp_path: Path) -> None:
    folder = SegmentsFolder(tmp_path / "cdc_pipeline-7" / "shop")
    folder.take()
    folder.give_back()
    assert (_mode(folder.path), _mode(folder.path.parent)) == (0o700, 0o700)


@pytest.mark.parametrize("at", ["parent", "folder"])
def test_k26_a_spill_folder_of_another_user_is_refused(
    at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F15: the predictable parent was taken whoever owned it."""
    path = tmp_path / "cdc_pipeline-7" / "shop"
    (path if at == "folder" else path.parent).mkdir(parents=True)
    true = os.geteuid()
    theirs = true + 1 if at == "parent" else true
    if at == "parent":
        # Another user is who asks: 0 may own a parent, so the question is put for one who is not.
        monkeypatch.setattr(private_folder.os, "geteuid", lambda: theirs)
        monkeypatch.setattr(private_folder, "_SYSTEM_USER", -1)
    else:
        os.chmod(path.parent, 0o700)
        monkeypatch.setattr(private_folder, "_check_parent", lambda _parent: None)
        monkeypatch.setattr(private_folder.os, "geteuid", lambda: true + 1)
    refused = path if at == "folder" else path.parent
    assert _refused(path).got == f"{refused} belongs to user {true}"


@pytest.mark.parametrize("at", ["parent", "folder"])
def test_k26_a_link_in_the_place_of_the_spill_folder_is_not_followed(
    at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F15: a link that another user had laid was followed."""
    target, path = tmp_path / "elsewhere", tmp_path / "cdc_pipeline-7" / "shop"
    target.mkdir()
    if at == "folder":
        path.parent.mkdir()
        path.symlink_to(target)
        assert "is a link" in str(_refused(path).got)
    else:
        path.parent.symlink_to(target)
        found = os.lstat(path.parent)
        theirs = os.stat_result((*found[:4], found.st_uid + 1, *found[5:]))
        monkeypatch.setattr(Path, "lstat", lambda self: theirs)
        assert f"belongs to user {theirs.st_uid}" in str(_refused(path).got)
    assert list(target.iterdir()) == []


def test_k26_a_parent_that_everybody_may_change_is_refused(tmp_path: Path) -> None:
    parent = tmp_path / "open"
    parent.mkdir()
    os.chmod(parent, 0o777)
    assert "other users can change" in str(_refused(parent / "shop").got)
    os.chmod(parent, 0o1777)  # as the system's own: nobody removes what is another's
    SegmentsFolder(parent / "shop").take()


def test_k26_a_lakes_own_folder_is_closed_at_the_next_run(tmp_path: Path) -> None:
    """F16: staged rows, quarantine and prepared transactions could be read by everybody."""
    state = tmp_path / "lake" / "_cdc" / "shop"
    (state / "staging").mkdir(parents=True)
    os.chmod(state, 0o755)
    with writer_lock(state / "writer.lock"):
        assert _mode(state) == 0o700
    os.chmod(state, 0o750)  # for a group that reads as of a cut
    with writer_lock(state / "writer.lock"):
        assert _mode(state) == 0o750
    with writer_lock(tmp_path / "lake" / "_cdc" / "other" / "writer.lock"):
        assert _mode(tmp_path / "lake" / "_cdc" / "other") == 0o700


def test_a_link_to_a_folder_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    os.chmod(tmp_path / "real", 0o755)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    make_private(tmp_path / "link")
    assert _mode(tmp_path / "real") == 0o755
