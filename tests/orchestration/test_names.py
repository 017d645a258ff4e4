"""K20 in Dagster: any legal name has definitions of its own, and a broken source takes no other
with it (F9)."""

from __future__ import annotations

import string

import dagster as dg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_pipeline.errors import ConfigError
from cdc_pipeline.orchestration.definitions import build_definitions
from cdc_pipeline.orchestration.names import dagster_name, identifier, markdown, plain_name
from cdc_pipeline.orchestration.runs.execute import load_source
from tests.support import fake_capture as fakes
from tests.support.project import Project

LIVE = "kind: live\n  host: localhost\n  user: cdc\n  password: secret"
ODD_NAMES = (
    "größe",
    "order$items",
    "订单" * 32,
    "a-b",
    "a_b",  # by default Dagster makes one identifier of the two
    "A_B",
    "two words",
    " begins with a blank",
    "[/x]",
    "${env:HOME}",
    "...",
    "..",
    "\u202egnp.exe",
    "line\nbreak\tand\x1b[31mred",
    "e\u0301",
    "é",
    *(f"x{mark}y" for mark in string.punctuation),
    *string.punctuation,
)


def test_k20_definitions_load_for_any_legal_name(project: Project) -> None:
    """K20: keys, checks, partitions and steps of tables with every kind of character, each with its
    own."""
    file = fakes.write_config(project.jobs, "shop", include=("*.*",))
    file.write_text(file.read_text().replace("kind: archive\n  directory: journals", LIVE))
    fakes.write_config(project.jobs, "crm")
    tables = {f"shop.{name}": 1 for name in ODD_NAMES} | {"größe [/x].größe": 1}
    fakes.write_cut(project.lake, fakes.cut(batch=1, tables=tables))
    definitions = build_definitions(project.jobs)
    dg.Definitions.validate_loadable(definitions)
    specs = {
        spec.metadata["dagster/table_name"]: spec.key
        for spec in definitions.resolve_all_asset_specs()
        if "dagster/table_name" in spec.metadata and spec.key.path[0] == "shop"
    }
    assert specs.keys() == tables.keys()
    assert len(set(specs.values())) == len(tables)
    for table, key in specs.items():
        assert ".".join(map(plain_name, key.path[1:])) == table
    checked = {
        key.asset_key for check in definitions.asset_checks or () for key in check.check_keys
    }
    assert checked >= set(specs.values()), "each table has its checks"
    partitions = (
        definitions.resolve_asset_graph().get(dg.AssetKey(["shop", "snapshot"])).partitions_def
    )
    assert partitions is not None
    assert set(map(plain_name, partitions.get_partition_keys())) == tables.keys()
    load_source(project.jobs, "shop").require_tables(list(specs))


def test_k20_a_capture_and_its_checks_run_with_odd_names(
    project: Project, instance: dg.DagsterInstance
) -> None:
    """K20: events of such tables are written and found under their keys."""
    fakes.write_config(project.jobs, "shop", include=("*.*",))
    cuts = [
        fakes.cut(batch=batch, tables=dict.fromkeys(("shop.größe", "shop.a/b [c]"), batch))
        for batch in (1, 2)
    ]
    definitions = build_definitions(
        project.jobs, capture=fakes.FakeCapture(cuts), row_counter=lambda *_: 7
    )
    assert definitions.resolve_job_def("shop_capture").execute_in_process(instance=instance).success
    for part in ("größe", "a~2fb~20~5bc~5d"):
        assert (
            instance.get_latest_materialization_event(dg.AssetKey(["shop", "shop", part]))
            is not None
        )


@given(st.text(max_size=70))
def test_k20_a_name_has_one_form_in_dagster_and_comes_back(name: str) -> None:
    """K20: the encoding is one-to-one, and what Dagster and browsers take for syntax is never in
    it."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return  # no server has such a name
    part = dagster_name(name)
    assert plain_name(part) == name
    assert ".." not in part
    assert not part.startswith(".")
    assert not set(part) & set("/\\,*\"'[]{}()<>|&?#%:;=+ \n\t\x1b\u202e")
    assert identifier(name).replace("_", "a").isalnum()
    assert identifier(name).isascii()


@pytest.mark.parametrize(
    "name", ["orders", "order_items", "Orders-2024", "order$items", "a.b", "_x", "größe", "订单"]
)
def test_names_that_need_no_escape_stay_as_they_are(name: str) -> None:
    assert dagster_name(name) == name


@pytest.mark.parametrize("broken", ["colour: blue\n", "start: {gtid_set: ''}\n", "sink: ["])
def test_k20_a_broken_source_names_its_error_and_the_others_load(
    project: Project, instance: dg.DagsterInstance, broken: str
) -> None:
    """K20: a wrong file or damaged YAML is an asset and a job that fail with the mistake."""
    fakes.write_config(project.jobs, "crm", extra=broken)
    fakes.write_config(project.jobs, "my shop", extra=broken)  # not even a name of a source
    fakes.write_config(project.jobs, "shop")
    definitions = build_definitions(project.jobs)
    dg.Definitions.validate_loadable(definitions)
    assert definitions.resolve_job_def("shop_capture")
    graph = definitions.resolve_asset_graph()
    assert "crm" in str(graph.get(dg.AssetKey(["crm", "cursor"])).description)
    for job in ("crm_capture", f"{identifier('my shop')}_capture"):
        result = definitions.resolve_job_def(job).execute_in_process(
            instance=instance, raise_on_error=False
        )
        assert not result.success
        (failed,) = [event for event in result.all_events if event.is_step_failure]
        assert "mistake" in str(failed.step_failure_data.user_failure_data)
    with pytest.raises(ConfigError):
        load_source(project.jobs, "crm")
    assert load_source(project.jobs, "shop").cursor_key == dg.AssetKey(["shop", "cursor"])


def test_k20_damaged_state_of_one_lake_leaves_the_others_their_definitions(
    project: Project,
) -> None:
    """K20: a file in place of a lake's folder of cuts."""
    fakes.write_config(project.jobs, "shop")
    fakes.write_config(project.jobs, "crm")
    cuts = project.lake / "_cdc" / "crm" / "cuts"
    cuts.parent.mkdir(parents=True)
    cuts.write_text("no folder")
    definitions = build_definitions(project.jobs)
    dg.Definitions.validate_loadable(definitions)
    assert {"shop_capture", "crm_capture"} <= {
        job.name for job in definitions.resolve_all_job_defs()
    }


def test_k20_markdown_shows_what_a_name_holds() -> None:
    """K20: nothing in a description is markup, HTML or a link."""
    assert markdown("shop.order_items") == "shop.order_items"
    assert markdown("[x](http://h) <b> `c` _d_ a|b") == (
        r"\[x\]\(http\://h\) \<b\> \`c\` \_d\_ a\|b"
    )
    assert markdown("a\x1b[1m\u202eb") == r"a\\x1b\[1m\\u202eb"
