"""``cdc-pipeline journals``: what is kept, holes, and damage. Asks no server."""

from __future__ import annotations

import json

import yaml
from click.testing import CliRunner, Result

from cdc_pipeline.cli.app import cli
from cdc_pipeline.source.kept_journals import KeptJournal, KeptJournals
from tests.support.memory_shop import GOLDEN
from tests.support.project import Project


def _run(project: Project, *options: str) -> Result:
    return CliRunner().invoke(cli, ["--jobs", str(project.jobs), "journals", "shop", *options])


def test_journals_are_listed_and_verified(project: Project) -> None:
    source = {"kind": "live", "host": "nowhere.example", "user": "cdc", "password": "secret-word"}
    document = {"source": source, "sink": {"lake_path": str(project.lake)}}
    file = project.jobs / "shop.yaml"
    file.write_text(yaml.safe_dump(document))
    nothing = _run(project)
    assert nothing.exit_code == 2
    assert "source.keep_journals" in nothing.output
    document["source"] = source | {"keep_journals": {"path": str(project.root / "kept")}}
    file.write_text(yaml.safe_dump(document))
    assert json.loads(_run(project, "--json").stdout)["journals"] == []

    place = project.root / "kept" / "shop"
    place.parent.mkdir()
    place.write_text("not a folder")
    refused = _run(project, "--json")
    assert refused.exit_code == 1
    assert json.loads(refused.stdout)["setting"] == "source.keep_journals"
    place.unlink()
    place.mkdir()
    (place / "NOTES").write_text("of a person")

    content = (GOLDEN / "mysql-common.000001").read_bytes()
    folder = place / "mysql-1"
    for number, compress in ((1, False), (2, True)):
        kept = KeptJournals(folder, compress=compress)
        journal = KeptJournal(f"binlog.{number:06d}", 0, False, (), 7)
        for part in (content[:4000], content[4000:]):
            journal = kept.append(journal, part)
        kept.seal(journal)
    whole = _run(project, "--verify")
    assert whole.exit_code == 0, whole.output
    assert whole.output.count("sealed, verified") == 2
    assert "secret-word" not in whole.output

    KeptJournals(folder).append(KeptJournal("binlog.000004", 0, False, (), 7), content[:4000])
    damaged = bytearray(content)
    damaged[5000] ^= 1
    (folder / "binlog.000001").write_bytes(damaged)
    result = _run(project, "--verify", "--json")
    assert result.exit_code == 1
    journals = json.loads(result.stdout)["journals"]
    assert [journal["journal"][-1] for journal in journals] == ["1", "2", "3", "4"]
    assert [journal["is_hole"] for journal in journals] == [False, False, True, False]
    assert "at offset" in journals[0]["damage"]
