"""Dagster asset checks of the lake: equal to the source, keys unique, versions continuous, no gap.

Rules:
- Checks of a table: `count` and `checksum` read the source and the lake at an exact position
  (`operations/verify/verify.py`), so they exist only for live servers. `key_uniqueness` and
  `interval_continuity` look at the lake.
- They run only when a person or schedule selects checks. In a run that materializes assets they do
  nothing, because the capture would then read every table in full: only `follows` is evaluated
  there, too (`table_checks.py`).
- Checks of the cursor: `intervals_join`, `lag`, `retention`; they start no Spark.
- A check that cannot decide does not pass: it returns a warning with the reason.
- Verification captures like any run; what it publishes is logged in the check's run.
"""

# No postponed annotations in this module: Dagster looks at the step's own annotations, and refuses
# them as text.
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import dagster as dg

from cdc_pipeline.config.modes import MODES
from cdc_pipeline.config.pipeline_config import LiveSourceConfig, PipelineConfig
from cdc_pipeline.lake.records import Cut
from cdc_pipeline.orchestration.cursor_store import cursors_of
from cdc_pipeline.orchestration.dead_runs import tag_run
from cdc_pipeline.orchestration.events.failures import failing_step, resolved
from cdc_pipeline.orchestration.events.recorder import MaterializationRecorder
from cdc_pipeline.orchestration.events.table_checks import (
    FOLLOWS,
    PROVED,
    as_result,
    follows_evaluation,
    proved_result,
)
from cdc_pipeline.orchestration.names import port_name
from cdc_pipeline.orchestration.translator import SOURCE_TAG, CdcTranslator
from cdc_pipeline.position.cursor import CursorState
from cdc_pipeline.targets.known_tables import Known, newest_cut

if TYPE_CHECKING:
    from cdc_pipeline.operations.verify.checks import CheckResult

_VERIFIED: Final = ("count", "checksum")
_DESCRIPTIONS: Final = {
    FOLLOWS: "The table follows its source. It fails while the table is suspended: then the table "
    "stays at its last whole transaction, and all others go on.",
    PROVED: "The rolling proof has compared the whole table with the source, not too long ago.",
    "count": "The table has as many rows as the source, at one position of the log.",
    "checksum": "The table's rows have the source's values, at one position of the log.",
    "key_uniqueness": "No key occurs twice among the rows that stand for rows of the source.",
    "interval_continuity": "The versions of each key follow each other: none overlap, and "
    "only the last one is current.",
    "intervals_join": "The intervals that the runs have read join without a gap.",
    "lag": "How far the lake is behind the source.",
    "retention": "How soon the source may purge what the pipeline still needs.",
}


def build_checks(
    pipeline: PipelineConfig, known: Known, *, translator: CdcTranslator
) -> list[dg.AssetChecksDefinition]:
    cut = known.cut
    table_of = {translator.table_key(pipeline.name, table): table for table in known.targets}
    is_live = isinstance(pipeline.source, LiveSourceConfig)
    specs = [
        _spec(pipeline, name, key)
        for key, table in table_of.items()
        for name in _names(
            cut, table, is_live=is_live, is_proved=is_live and pipeline.verify is not None
        )
    ]
    checks = [_cursor_checks(pipeline, translator=translator, is_live=is_live)]
    if specs:
        checks.append(_table_checks(pipeline, specs, table_of, translator=translator))
    return checks


def _names(cut: Cut | None, table: str, *, is_live: bool, is_proved: bool) -> Iterator[str]:
    yield FOLLOWS
    if is_proved:
        yield PROVED
    of_table = cut.tables.get(table) if cut is not None else None
    if is_live:
        yield from _VERIFIED
    if of_table is not None and of_table.spec.key and MODES[of_table.spec.mode].has_key:
        yield "key_uniqueness"
    if of_table is not None and MODES[of_table.spec.mode].keeps_versions:
        yield "interval_continuity"


def _spec(pipeline: PipelineConfig, name: str, key: dg.AssetKey) -> dg.AssetCheckSpec:
    text = f"{_DESCRIPTIONS[name]} {_what_runs(pipeline, name)}"
    return dg.AssetCheckSpec(name, asset=key, description=text)


def _what_runs(pipeline: PipelineConfig, name: str) -> str:
    settings, job = pipeline.dagster.checks, f"{pipeline.name}_checks"
    if name == FOLLOWS:
        return "Each capture that concerns the table evaluates it."
    if name == PROVED:
        return "Each capture that compares some of the table evaluates it."
    if name not in settings.names:
        return (
            f"Nothing runs it by itself: execute it here, or add {name} to "
            "`dagster: {checks: {names: [...]}}` in the pipeline's file."
        )
    if settings.cron is None:
        return (
            f"The job `{job}` runs it, and has no schedule: execute it here, or set "
            "`dagster: {checks: {cron: ...}}` in the pipeline's file."
        )
    state = "" if settings.enabled else ", once this is switched on"
    return f"The job `{job}` runs it by its schedule `{settings.cron}`{state}."


def _table_checks(
    pipeline: PipelineConfig,
    specs: Sequence[dg.AssetCheckSpec],
    table_of: dict[dg.AssetKey, str],
    *,
    translator: CdcTranslator,
) -> dg.AssetChecksDefinition:
    @dg.op(
        name=f"verify_{pipeline.name}",
        description=f"Compares tables of {pipeline.name} with the source and "
        "checks their contents.",
        tags={SOURCE_TAG: pipeline.name},
        **_ports(specs),
    )
    def verify_step(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        tag_run(context.op_execution_context, pipeline.name, "verify")
        wanted: dict[str, list[str]] = {}
        for check in sorted(context.selected_asset_check_keys):
            wanted.setdefault(check.name, []).append(table_of[check.asset_key])
        keys = {table: key for key, table in table_of.items()}
        config = resolved(pipeline)
        yield from _follow_results(config, wanted.pop(FOLLOWS, []), translator=translator)
        for table in wanted.pop(PROVED, []):
            yield proved_result(config, translator, table)
        if not wanted:
            return
        if context.run.asset_selection:
            context.log.info(
                "a run that materializes assets does not compare tables: execute the checks in a "
                "run of their own"
            )
            return
        with failing_step(config.sink.lake_path):
            for result in _table_results(context, config, wanted, translator=translator):
                yield _result(result, keys[result.table])

    return _checks(verify_step, specs)


def _follow_results(
    config: PipelineConfig, tables: Sequence[str], *, translator: CdcTranslator
) -> Iterator[dg.AssetCheckResult]:
    cut = newest_cut(config) if tables else None
    targets = {} if cut is None else cut.cursor.targets
    for table in tables:
        if table in targets:
            held = targets[table].suspended
            yield as_result(follows_evaluation(config, translator, table, held))


def _ports(specs: Sequence[dg.AssetCheckSpec]) -> dict[str, Any]:
    """Dagster's own names come from those of tables, which fails for most characters and maps `a-b`
    and `a_b` to the same name.
    """
    return {
        "ins": dict.fromkeys(_inputs(specs), dg.In(dg.Nothing)),
        "out": dict.fromkeys(_outputs(specs), dg.Out(None, is_required=False)),
    }


def _checks(step: dg.OpDefinition, specs: Sequence[dg.AssetCheckSpec]) -> dg.AssetChecksDefinition:
    definition: dg.AssetChecksDefinition = dg.AssetChecksDefinition.create(
        node_def=step,
        keys_by_input_name=_inputs(specs),
        check_specs_by_output_name=_outputs(specs),
        can_subset=True,
    )
    return definition


def _inputs(specs: Sequence[dg.AssetCheckSpec]) -> dict[str, dg.AssetKey]:
    return {port_name("asset", *spec.asset_key.path): spec.asset_key for spec in specs}


def _outputs(specs: Sequence[dg.AssetCheckSpec]) -> dict[str, dg.AssetCheckSpec]:
    return {port_name("check", spec.name, *spec.asset_key.path): spec for spec in specs}


def _table_results(
    context: dg.AssetCheckExecutionContext,
    pipeline: PipelineConfig,
    wanted: dict[str, list[str]],
    *,
    translator: CdcTranslator,
) -> "Iterator[CheckResult]":
    # Imported late: definitions are loaded often and need none of this.
    from cdc_pipeline.operations.verify.checks import (
        check_intervals,
        check_key_uniqueness,
        checks_of,
    )
    from cdc_pipeline.operations.verify.read import VerifyOptions
    from cdc_pipeline.operations.verify.verify import verify
    from cdc_pipeline.run.wiring import build_sink

    compared = sorted({table for name in _VERIFIED for table in wanted.get(name, ())})
    results: list[CheckResult] = []
    if compared:
        recorder = MaterializationRecorder(
            context.op_execution_context, pipeline, translator=translator
        )
        report = verify(
            pipeline,
            cursors=recorder.cursors(),
            options=VerifyOptions(tables=tuple(compared), who="Dagster's asset check"),
            run_id=context.run.run_id,
            observer=recorder,
            on_step=lambda step: context.log.info(
                f"{step.target}: {step.what}, {step.rows:,} rows read"
            ),
        )
        results += [result for verified in report.tables.values() for result in checks_of(verified)]
    sink = build_sink(pipeline)
    for name, check in (
        ("key_uniqueness", check_key_uniqueness),
        ("interval_continuity", check_intervals),
    ):
        results += [check(sink, table) for table in wanted.get(name, ())]
    for result in results:
        if result.table in wanted.get(result.check, ()):
            yield result


def _cursor_checks(
    pipeline: PipelineConfig, *, translator: CdcTranslator, is_live: bool
) -> dg.AssetChecksDefinition:
    key = translator.cursor_key(pipeline.name)
    names = ("intervals_join", "lag", "retention") if is_live else ("intervals_join",)

    specs = [_spec(pipeline, name, key) for name in names]

    @dg.op(
        name=f"check_cursor_of_{pipeline.name}",
        description=f"Checks how {pipeline.name} follows its source: gaps, lag, and what the "
        "source may purge.",
        tags={SOURCE_TAG: pipeline.name},
        **_ports(specs),
    )
    def cursor_step(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        from cdc_pipeline.operations.verify.checks import (
            check_intervals_join,
            check_lag,
            check_retention,
        )
        from cdc_pipeline.run.plan.reconcile import reconcile
        from cdc_pipeline.run.wiring import build_sink

        tag_run(context.op_execution_context, pipeline.name, "verify")
        config = resolved(pipeline)
        sink, cursors = build_sink(config), cursors_of(context.instance, config, translator)

        def cursor() -> CursorState | None:
            return reconcile(cursors.read(), sink.last_cut()).cursor

        checks: dict[str, Callable[[], CheckResult]] = {
            "intervals_join": lambda: check_intervals_join(cursors),
            "lag": lambda: check_lag(config, sink, cursor()),
            "retention": lambda: check_retention(config, cursor()),
        }
        with failing_step(config.sink.lake_path):
            for name in sorted(check.name for check in context.selected_asset_check_keys):
                yield _result(checks[name](), key)

    return _checks(cursor_step, specs)


def _result(result: "CheckResult", key: dg.AssetKey) -> dg.AssetCheckResult:
    is_undecided = result.passed is None
    return dg.AssetCheckResult(
        check_name=result.check,
        asset_key=key,
        passed=bool(result.passed),
        severity=dg.AssetCheckSeverity.WARN if is_undecided else dg.AssetCheckSeverity.ERROR,
        description=result.text,
        metadata=result.values,
    )
