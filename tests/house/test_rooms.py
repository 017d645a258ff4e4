"""Tests stand where the code stands that they test."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Folders of the tests' own: whole campaigns, recorded data, helpers, and what concerns the whole
# repository.
OWN = {
    "browser",
    "campaigns",
    "cluster",
    "docs",
    "golden",
    "house",
    "model",
    "mutations",
    "package",
    "servers",
    "support",
}


def test_every_folder_of_tests_is_one_of_the_package() -> None:
    tests = ROOT / "tests"
    folders = {file.parent.relative_to(tests) for file in tests.rglob("*.py")}
    assert {path.parts[0] for path in folders if path.parts} >= OWN
    strangers = [
        str(path)
        for path in sorted(folders)
        if path.parts
        and path.parts[0] not in OWN
        and not (ROOT / "cdc_pipeline" / path / "__init__.py").is_file()
    ]
    assert not strangers
