"""The section `dagster` of a pipeline: what Dagster is told of each asset, who decides, and what is
refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from cdc_pipeline import CdcTranslator, build_definitions
from cdc_pipeline.cli.app import cli
from cdc_pipeline.config.dagster_config import AssetSettings, DagsterConfig
from cdc_pipeline.config.pipeline_config import ConfigMistakes, PipelineConfig, read_document
from cdc_pipeline.orchestration.definitions import accepts
from tests.support.fake_capture import write_config
from tests.support.project import Project

SECTION = """\
dagster:
  description: Orders and their items.
  owners: [sales@example.com, team:data]
  tags: {domain: sales, tier: gold}
  freshness: {fail_window: 2 h, warn_window: 90 min}
  automation: {on_cron: '0 6 * * *', timezone: Europe/Berlin}
  rules:
    - tables: [shop.*]
      except: [shop.items]
      tags: {tier: silver, team/pii: 'no'}
      automation: eager
    - tables: [shop.orders]
      owners: []
      description: Orders alone.
  cursor:
    owners: [team:platform]
    freshness: {deadline_cron: '0 8 * * *', lower_bound_delta: 1 h, timezone: Europe/Berlin}
"""


def _specs(project: Project, section: str, translator: CdcTranslator) -> dict[str, dg.AssetSpec]:
    write_config(
        project.jobs, "shop", include=("shop.orders", "shop.items", "shop.notes"), extra=section
    )
    definitions = build_definitions(project.jobs, translator=translator)
    dg.Definitions.validate_loadable(definitions)
    specs = definitions.resolve_all_asset_specs()
    return {spec.key.path[-1]: spec for spec in specs if spec.key.path[1] != "source"}


def _tags(spec: dg.AssetSpec) -> dict[str, str]:
    return {
        name: text
        for name, text in spec.tags.items()
        if not name.startswith(("cdc/", "dagster/kind/"))
    }


def test_a_section_is_for_all_assets_and_rules_are_for_some(project: Project) -> None:
    specs = _specs(project, SECTION, CdcTranslator())
    orders, items, notes = specs["orders"], specs["items"], specs["notes"]
    cursor = specs["cursor"]
    assert (orders.description, items.description) == ("Orders alone.", "Orders and their items.")
    assert cursor.description == "Orders and their items."
    assert list(orders.owners) == [], "an empty list replaces the section's"
    assert list(items.owners) == ["sales@example.com", "team:data"]
    assert list(cursor.owners) == ["team:platform"]
    assert _tags(items) == _tags(cursor) == {"domain": "sales", "tier": "gold"}
    assert _tags(orders) == _tags(notes) == {"domain": "sales", "tier": "silver", "team/pii": "no"}
    window = dg.FreshnessPolicy.time_window(timedelta(hours=2), timedelta(minutes=90))
    assert orders.freshness_policy == items.freshness_policy == window
    assert cursor.freshness_policy == dg.FreshnessPolicy.cron(
        "0 8 * * *", timedelta(hours=1), "Europe/Berlin"
    )
    assert orders.automation_condition is not None
    assert orders.automation_condition.get_label() == "eager"
    for spec in (items, cursor):
        assert spec.automation_condition is not None
        assert "on_cron(0 6 * * *, Europe/Berlin)" in str(spec.automation_condition.get_label())


def test_a_source_without_the_section_has_no_such_thing(project: Project) -> None:
    for spec in _specs(project, "", CdcTranslator()).values():
        assert not spec.owners
        assert not _tags(spec)
        assert spec.freshness_policy is None
        assert spec.automation_condition is None


def test_a_translators_methods_win_over_the_section(project: Project) -> None:
    class Ours(CdcTranslator):
        def owners(self, config: PipelineConfig, table: str | None) -> list[str]:
            return ["team:us"]

        def tags(self, config: PipelineConfig, table: str | None) -> dict[str, str]:
            return {**super().tags(config, table), "by": table or "cursor"}

        def kinds(self, config: PipelineConfig, table: str | None) -> set[str]:
            return {"delta"}

        def metadata(self, config: PipelineConfig, table: str | None) -> dict[str, Any]:
            return {"wiki": "https://wiki.example", "mode": "ours"}

        def code_version(self, config: PipelineConfig, table: str | None) -> str:
            return "7"

        def freshness_policy(self, config: PipelineConfig, table: str | None) -> None:
            return None

        def automation_condition(self, config: PipelineConfig, table: str | None) -> None:
            return None

        def description(self, config: PipelineConfig, table: str | None, **given: Any) -> str:
            return f"{table}: {super().description(config, table, **given)}"

    specs = _specs(project, SECTION, Ours())
    for name, table in (("orders", "shop.orders"), ("cursor", None)):
        spec = specs[name]
        assert list(spec.owners) == ["team:us"]
        assert _tags(spec)["by"] == table or "cursor"
        assert _tags(spec)["domain"] == "sales"
        assert (spec.kinds, spec.code_version) == ({"delta"}, "7")
        assert spec.metadata["wiki"] == "https://wiki.example"
        assert spec.freshness_policy is spec.automation_condition is None
        assert str(spec.description).startswith(f"{table}: Orders")
    assert specs["orders"].metadata["mode"] == "mirror", "the pipeline's own entries stay"


@pytest.mark.parametrize(
    ("section", "mistakes"),
    [
        (
            "owners: [sales]",
            ["owners.0: got 'sales'; expected an email address or team:name"],
        ),
        ("owners: team:data", ["owners: got 'team:data'; expected a list: write ['team:data']"]),
        ("owners: ['team:']", ["owners.0: got 'team:'; expected an email"]),
        ("tags: {tier: 1}", ["tags.tier: got 1; expected a text: put it in quotes, as in '1'"]),
        ("tags: {the tier: x}", ["tags: 'the tier' is not a tag's name: expected at most 63"]),
        ("tags: {tier: a b}", ["tags.tier: 'a b' is not a tag's value: expected at most 63"]),
        ("tags: {cdc/role: x}", ["tags.cdc/role: tags that begin with cdc/ are the pipeline's"]),
        ("tags: {dagster/kind/x: ''}", ["tags.dagster/kind/x: tags that begin with dagster/kind/"]),
        (
            "freshness: {fail_window: 1 h, deadline_cron: '0 8 * * *'}",
            ["freshness: expected fail_window with or without warn_window, or deadline_cron"],
        ),
        ("freshness: {}", ["freshness: expected fail_window with or without"]),
        ("freshness: {fail_window: 30 s}", ["freshness.fail_window: expected at least 1 minute"]),
        (
            "freshness: {fail_window: 1 h, warn_window: 2 h}",
            ["freshness.warn_window: expected less than fail_window"],
        ),
        (
            "freshness: {deadline_cron: 8 h, lower_bound_delta: 1 h, timezone: Mars}",
            [
                "freshness.deadline_cron: '8 h' is not a cron expression",
                "freshness.timezone: 'Mars' is not a time zone",
            ],
        ),
        (
            "freshness: {deadline_cron: '@hourly', lower_bound_delta: 2 h}",
            ["freshness.lower_bound_delta: is longer than the shortest time between two ticks"],
        ),
        ("automation: lazy", ["automation: got 'lazy'; expected eager, or {on_cron: '0 * * * *'}"]),
        ("automation: {cron: '0 * * * *'}", ["automation: got a section; expected eager, or"]),
        (
            "automation: {on_cron: now, timezone: Mars}",
            [
                "automation.on_cron: 'now' is not a cron expression",
                "automation.timezone: 'Mars' is not a time zone",
            ],
        ),
        ("automation: {on_cron: '@daily', zone: UTC}", ["automation.zone: no such setting"]),
        (  # no reference: those have a name alone
            "automation: {on_cron: '${CRON:-@daily}'}",
            ["automation.on_cron: '${CRON:-@daily}' is not a cron expression"],
        ),
        (
            "rules: [{tables: ['*.*'], owners: [x], automation: {on_cron: now}}]",
            [
                "rules.0.owners.0: got 'x'; expected an email",
                "rules.0.automation.on_cron: 'now' is not",
            ],
        ),
        (
            "cursor: {freshness: {deadline_cron: '@hourly', lower_bound_delta: 2 h}}",
            ["cursor.freshness.lower_bound_delta: is longer than"],
        ),
        ("rules: [{owners: [team:x]}]", ["rules.0.tables: is missing; expected a list"]),
        ("rules: [{tables: [shop]}]", ["rules.0.tables: "]),
        ("owner: [team:x]", ["owner: no such setting; did you mean 'owners'?"]),
    ],
)
def test_what_dagster_refuses_is_a_mistake_with_its_line(
    project: Project, section: str, mistakes: list[str]
) -> None:
    file = write_config(project.jobs, "shop", extra=f"dagster:\n  {section}\n")
    with pytest.raises(ConfigMistakes) as caught:
        read_document(file).resolve(accepts=accepts)
    found = [str(one).partition(": dagster.") for one in caught.value.mistakes]
    assert [at.split(",")[0] for at, _, _ in found] == ["line 10"] * len(mistakes)
    for (_, _, said), expected in zip(found, mistakes, strict=True):
        assert said.startswith(expected)
    definitions = build_definitions(project.jobs)
    dg.Definitions.validate_loadable(definitions)


def test_a_cron_from_the_environment_is_shown_as_it_is_written(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHEN", "not-to-be-shown")
    file = write_config(project.jobs, "shop", extra="dagster: {automation: {on_cron: '${WHEN}'}}\n")
    with pytest.raises(ConfigMistakes) as caught:
        read_document(file).resolve(accepts=accepts)
    assert "'${WHEN}' is not a cron expression" in str(caught.value)
    assert "not-to-be-shown" not in str(caught.value)


@pytest.mark.parametrize("delta", ["30 min", "2 h"])
def test_the_command_line_has_dagster_check_a_deadline(
    project: Project, monkeypatch: pytest.MonkeyPatch, delta: str
) -> None:
    freshness = f"{{deadline_cron: '0 * * * *', lower_bound_delta: {delta}}}"
    write_config(project.jobs, "shop", extra=f"dagster: {{freshness: {freshness}}}\n")
    monkeypatch.chdir(project.root)
    done = CliRunner().invoke(cli, ["validate", "shop"])
    assert ("lower_bound_delta: is longer than" in done.output) is (delta == "2 h")
    assert done.exit_code == (2 if delta == "2 h" else 0)


_WORDS = st.text("aZ9_.-/ :@+%~\n\u00e9", max_size=8)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    owner=st.one_of(
        _WORDS,
        _WORDS.map("team:{}".format),
        st.builds("{}@{}.{}".format, _WORDS, _WORDS, st.sampled_from(["com", "c", "museums1"])),
    ),
    name=st.one_of(_WORDS, st.builds("{}/{}".format, _WORDS, _WORDS)),
    text=_WORDS,
)
def test_what_is_accepted_is_accepted_by_dagster(owner: str, name: str, text: str) -> None:
    """Dagster refuses with a traceback, so nothing that it refuses may come so far."""
    try:
        found = AssetSettings(owners=(owner,))
    except ValidationError:
        found = AssetSettings()
    try:
        tagged = AssetSettings(tags={name: text})
    except ValidationError:
        tagged = AssetSettings()
    dg.AssetSpec("a", owners=found.owners, tags=tagged.tags)


def test_what_dagster_accepts_is_accepted() -> None:
    owners = ("a.b+c@example.org", "team:Data & AI")
    tags = {"a": "", "Team.x/the_key-1": "v" * 63, "dagster/priority": "3"}
    dg.AssetSpec("a", owners=owners, tags=tags)
    given = DagsterConfig(owners=owners, tags=tags)
    assert (given.owners, given.tags) == (owners, tags)
