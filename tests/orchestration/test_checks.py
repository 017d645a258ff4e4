"""Asset checks: which there are, that captures do not run them, and what those of the cursor
tell."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest

from cdc_pipeline.clock import now_us
from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.proofs import ProofReport, Proofs, TablePass, TableProof, proof_file
from cdc_pipeline.orchestration.definitions import build_definitions
from cdc_pipeline.orchestration.translator import CdcTranslator
from cdc_pipeline.position.position import Position
from cdc_pipeline.run.observer import RunObserver
from cdc_pipeline.run.report import CaptureReport
from tests.support import fake_capture as fakes
from tests.support.fake_capture import write_config
from tests.support.project import Project

LIVE = "kind: live\n  host: localhost\n  user: cdc\n  password: secret"
CURSOR = dg.AssetKey(["shop", "cursor"])


def results(found: dg.ExecuteInProcessResult) -> dict[str, dg.AssetCheckEvaluation]:
    return {one.check_name: one for one in found.get_asset_check_evaluations()}


def checked(
    definitions: dg.Definitions, instance: dg.DagsterInstance, key: dg.AssetKey
) -> dg.ExecuteInProcessResult:
    job = dg.define_asset_job(
        "checks", selection=dg.AssetSelection.checks(dg.AssetCheckKey(key, "intervals_join"))
    )
    resolved = dg.Definitions(
        assets=definitions.assets,
        asset_checks=definitions.asset_checks,
        jobs=[job],
        executor=dg.in_process_executor,
    ).resolve_job_def("checks")
    return resolved.execute_in_process(instance=instance, raise_on_error=True)


@pytest.mark.parametrize("gap_bytes", [0, 100])
def test_a_capture_compares_nothing_and_a_gap_between_intervals_is_seen(
    project: Project, instance: dg.DagsterInstance, gap_bytes: int
) -> None:
    fakes.write_config(project.jobs, "shop")
    cuts = []
    for batch in (1, 2, 3):
        cut = fakes.cut(batch=batch, tables={"shop.orders": batch})
        start = {"start": Position("binlog.000003", 1000 * (batch - 1) + gap_bytes)}
        cuts.append(cut.model_copy(update={"interval": cut.interval.model_copy(update=start)}))
    definitions = build_definitions(project.jobs, capture=fakes.FakeCapture(cuts))
    captured = definitions.resolve_job_def("shop_capture").execute_in_process(instance=instance)
    assert {one.check_name for one in captured.get_asset_check_evaluations()} == {"follows"}

    joined = results(checked(definitions, instance, CURSOR))["intervals_join"]
    assert joined.passed is (gap_bytes == 0)
    assert joined.metadata["gaps"].value == (2 if gap_bytes else 0)
    assert joined.metadata["events"].value == 3


def test_tables_of_a_live_server_have_checks_against_the_source(project: Project) -> None:
    file = fakes.write_config(project.jobs, "shop")
    assert "count" not in _names(project), "journals of an archive are nothing to compare with"
    text = file.read_text(encoding="utf-8").replace("kind: archive\n  directory: journals", LIVE)
    file.write_text(text, encoding="utf-8")
    assert _names(project) >= {"count", "checksum", "lag", "retention", "intervals_join"}


def test_k17_a_run_tells_of_each_table_how_far_it_is_proved(
    project: Project, instance: dg.DagsterInstance
) -> None:
    file = fakes.write_config(project.jobs, "shop")
    assert "proved" not in _names(project)
    text = file.read_text(encoding="utf-8").replace("kind: archive\n  directory: journals", LIVE)
    file.write_text(f"{text}\nverify: {{each_run: {{rows: 1000}}}}\n", encoding="utf-8")
    place, now = Position("binlog.000003", 1000), now_us()
    whole = TablePass(place=place, began_at_us=now, rows=9)
    proofs = [
        TableProof(identity="", known_since_us=now, current=whole, last=whole),
        TableProof(identity="", known_since_us=now, last=whole.model_copy(
            update={"counts": {"extra": 1}, "keys": ("extra: id=5",)}
        )),
        TableProof(identity="", known_since_us=now, reason="partial", last=whole),
        TableProof(identity="", known_since_us=now - 8 * 86_400_000_000),
    ]  # fmt: skip
    key = CdcTranslator().table_key("shop", "shop.orders")
    for batch, proof in enumerate(proofs, 1):

        def capture(
            config: PipelineConfig,
            *,
            observer: RunObserver,
            batch: int = batch,
            proof: TableProof = proof,
            **how: Any,
        ) -> CaptureReport:
            cut = fakes.cut(batch=batch, tables={"shop.orders": batch})
            report = fakes.FakeCapture([cut])(config, observer=observer, **how)
            observer.proved(ProofReport(tables={"shop.orders": proof}))
            paths = LakePaths(config.sink.lake_path, config.name)
            proof_file(paths).write(Proofs(tables={"shop.orders": proof}))
            return report

        definitions = build_definitions(project.jobs, capture=capture)
        run = definitions.resolve_job_def("shop_capture").execute_in_process(instance=instance)
        proved = results(run)["proved"]
        assert proved.passed is (batch == 1)
        expected = dg.AssetCheckSeverity.ERROR if batch == 2 else dg.AssetCheckSeverity.WARN
        assert proved.severity is expected
        observed = instance.fetch_observations(key, limit=20).records
        (metadata,) = (
            found.metadata
            for record in observed
            if (found := record.asset_observation) is not None
            and record.run_id == run.run_id
            and found.description == proof.summary
        )
        assert ("proved_through" in metadata) is (batch in (1, 3))
        assert ("pass_rows" in metadata) is (batch == 1)
        job = dg.define_asset_job(
            "checks", selection=dg.AssetSelection.checks(dg.AssetCheckKey(key, "proved"))
        )
        alone = dg.Definitions(
            assets=definitions.assets, asset_checks=definitions.asset_checks, jobs=[job],
            executor=dg.in_process_executor,
        ).resolve_job_def("checks").execute_in_process(instance=instance)  # fmt: skip
        again = results(alone)["proved"]
        assert (again.passed, again.description) == (proved.passed, proof.summary)
    assert "1 extra" in proofs[1].summary
    assert "id=5" not in proofs[1].summary, "no value of a row stands in an event"


def test_f93_a_check_says_what_runs_it(project: Project) -> None:
    file = write_config(project.jobs, "shop")
    written = file.read_text()
    told = {}
    for cron in ("", "cron: 0 6 * * *", "cron: 0 6 * * *, enabled: true"):
        file.write_text(
            f"{written}dagster: {{checks: {{names: [follows, intervals_join], {cron}}}}}"
        )
        graph = build_definitions(project.jobs).resolve_asset_graph()
        told[cron] = {
            key.name: str(graph.get_check_spec(key).description).partition(". ")[2]
            for key in graph.asset_check_keys
        }
    texts = [of["intervals_join"] for of in told.values()]
    assert texts[0].startswith(
        "The job `shop_checks` runs it, and has no schedule: execute it here"
    )
    assert texts[1].endswith("by its schedule `0 6 * * *`, once this is switched on.")
    assert texts[2].endswith("by its schedule `0 6 * * *`.")
    assert "Each capture that concerns the table evaluates it." in told[""]["follows"]
    file.write_text(written + "dagster: {checks: {names: [lag]}}")
    graph = build_definitions(project.jobs).resolve_asset_graph()
    (joins,) = [key for key in graph.asset_check_keys if key.name == "intervals_join"]
    assert "add intervals_join to" in str(graph.get_check_spec(joins).description)


def _names(project: Project) -> set[str]:
    definitions = build_definitions(project.jobs)
    return {key.name for check in definitions.asset_checks or () for key in check.check_keys}
