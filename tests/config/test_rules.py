"""The rules of `targets` by themselves: what a file may say, and what it is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from cdc_pipeline.config.expressions import read_expression
from cdc_pipeline.config.pipeline_config import ConfigMistakes, load_config
from cdc_pipeline.config.schema_policy import SchemaChangePolicy
from cdc_pipeline.config.target_config import TargetRule

SALT = "0123456789abcdef-secret"


def rule(**settings: Any) -> TargetRule:
    return TargetRule.model_validate(settings)


@pytest.mark.parametrize(
    "text",
    [
        "rand() > 0.5", "RANDN() > 0", "random() > 0", "uuid() = a", "now() > a",
        "current_timestamp > a",
        "a < curdate()", "current_date() > a", "unix_timestamp() > a",
        "monotonically_increasing_id() = 1",
        "input_file_name() = a",
        "shuffle(a) = b", "current_user() = a", "version() = a",
        "reflect('java.util.UUID', 'randomUUID') = a",
        "a IN (SELECT b FROM c)", "EXISTS (SELECT 1)", "(SELECT 1) = a", "sum(a) > 1",
        "count(*) > 1",
        "row_number() OVER (ORDER BY a) = 1", "a, b", "a AS b", "a FROM c", "a; b", "", "a) OR (b",
        "t.*", ":x = a",
    ],
)  # fmt: skip
def test_k14_expressions_that_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"subquery|row|expression|deterministic|column"):
        read_expression(text)


@pytest.mark.parametrize(
    "text",
    [
        "timestamp'now'", "cast('now' as timestamp)", "date'today'", "'now'::timestamp",
        "to_timestamp(' NOW ')",
        "a > 'tomorrow'", "a > r'now'", 'a > "yesterday"', r"a > '\u006eow'", r"a > '\156ow'",
        "date('now')",
        "a > 'no' 'w'", "a > 'no' || 'w'", "a > lower('NOW')", "a > coalesce('now', b)",
        "a > char(110) || 'ow'",
        "cast(cast(x'6e6f77' as string) as timestamp)", "if(true, concat('no', 'w'), a)",
        "timestamp_ntz'now'",
        "aes_encrypt(a, 'k')", "window(a, '1 s')", "session_window(a, '1 s')", "sum(a) OVER ()",
        "`rand`() > a",
        "db.upper(a) = b", "my_udf(a)", "randstr(3) = a", "explode(a)", "current_timezone() = a",
        "session_user() = a",
    ],
)  # fmt: skip
def test_k27_what_can_give_something_else_the_next_time_is_refused(text: str) -> None:
    """K27: constants that Spark reads as the time of evaluation, however they are written, and
    functions that are not known to depend on their arguments alone."""
    with pytest.raises(ValueError, match=r"deterministic|constant|codes|row"):
        read_expression(text)


@pytest.mark.parametrize(
    "text",
    [
        "a > date'2024-01-01'", "a = 'now or never'", "date_add(date'2024-01-01', 1) < a",
        "cast(-1 as bigint) = a",
        "CASE a WHEN 1 THEN 'x' ELSE 'y' END", "a IN ('x', 'y') AND (b OR NOT (c))",
        "transform(a, (x, i) -> upper(x))",
        "cast(a as decimal(10, 2)) > 1.5bd", "trim(both ' ' from a)", "make_date(2024, 1, 1) = a",
        "pi() * a > 3",
        "a LIKE ANY ('x%', 'y%')", "try_cast(a as timestamp) IS NULL", "concat(a, 'b') <> 'c'",
        "split(a, ',')[0]",
    ],
)  # fmt: skip
def test_k27_what_depends_on_the_row_alone_may_be_used(text: str) -> None:
    """K27 refuses no more than it must."""
    assert read_expression(text).text == text


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("status <> 'now()'", ("status",)),
        ("upper(Name) LIKE 'A%' AND `my col` IS NOT NULL", ("my col", "name")),
        ("year(born) = 1990 -- a remark", ("born",)),
        ("CASE WHEN a > 0 THEN b ELSE date_format(c, 'yyyy') END", ("a", "b", "c")),
        ("geo.srid = 4326", ("geo",)),
        ("exists(xs, x -> x > 1)", ("xs",)),
    ],
)
def test_expressions_that_may_be_used(text: str, reads: tuple[str, ...]) -> None:
    assert read_expression(text).reads == reads


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"filter": "email IS NULL", "masks": {"EMAIL": "drop"}}, "filter: 'email' is masked"),
        (
            {
                "computed": {"x": {"expression": "upper(Email)", "type": "string"}},
                "masks": {"email": {"truncate": 2}},
            },
            "computed.x.expression: 'email' is masked",
        ),
        (
            {"filter": "secret = 1", "columns": {"exclude": ["sec*"]}},
            "filter: 'secret' is excluded",
        ),
        ({"computed": {"_CDC_x": {"expression": "a", "type": "int"}}}, "reserved for the pipeline"),
        ({"shard_column": "_cdc_shard"}, "reserved for the pipeline"),
        (
            {"shard_column": "s", "computed": {"S": {"expression": "a", "type": "int"}}},
            "two new columns",
        ),
        ({"shard_column": "s", "shard_value": "all"}, "does not distinguish tables"),
        ({"partition_by": ["a"], "cluster_by": ["b"]}, "exclude each other"),
        ({"cluster_by": ["a", "b", "c", "d", "e"]}, "at most four"),
        ({"properties": {"delta.appendonly": True}}, "cannot be set: rows are changed"),
        ({"properties": {"delta.logRetentionDuration": "x"}}, "sink.cut_retention sets it"),
        ({"properties": {"delta.setTransactionRetentionDuration": "x"}}, "repeated batch"),
        ({"properties": {"team": "x", "Team": "y"}}, "is set twice"),
        ({"properties": {"delta.feature.columnMapping": "x"}}, "sink.reader_features decides"),
        ({"properties": {"Owner": "x"}}, "Spark keeps it itself"),
        ({"properties": {"cdc.app_id": "x"}}, "which tables are the pipeline's"),
        ({"partition_by": ["a"], "columns": {"include": ["b"]}}, "not a column of the target"),
        ({"types": {"a": "varchar(3)"}}, "not a type"),
        ({"types": {"a": "string"}, "masks": {"A": "drop"}}, "is masked"),
        ({"masks": {"a": "drop", "A": {"truncate": 1}}}, "named twice"),
    ],
)
def test_k14_mistakes_of_a_rule(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as found:
        rule(**settings)
    assert message in str(found.value)


_MASKS = "expected drop, {hash: {salt: ${SALT}}}, {truncate: 3} or {fixed: 'x'}"


@pytest.mark.parametrize(
    ("mask", "said"),
    [
        ("hash", f"masks.a: got a text; {_MASKS}"),
        ("{}", f"masks.a: got a section; {_MASKS}"),
        ("{truncate: 1, fixed: x}", f"masks.a: got a section; {_MASKS}"),
        ("{truncate: -1}", "masks.a.truncate: got a number; expected the number of characters to"),
        ("{fixed: [1]}", "masks.a.fixed: got a list; expected a single value"),
        (
            "{hash: {salt: 1234567890123456}}",
            "salt: got a number; expected a text: put it in quotes",
        ),
        ("{hash: {salt: 2026-01-01}}", "masks.a.hash.salt: got another value; expected a text"),
        ("{hash: {salt: short}}", "masks.a.hash.salt: the salt is shorter than 16"),
        (f"{{hash: {SALT}}}", "masks.a.hash: got a text; expected {salt: ${SALT}}"),
        (f"{{hash: {{salz: {SALT}}}}}", "masks.a.hash.salz: no such setting; did you mean 'salt'?"),
    ],
)
def test_k14_mistakes_of_a_mask(tmp_path: Path, mask: str, said: str) -> None:
    file = tmp_path / "shop.yaml"
    head = "source: {kind: archive, directory: j}\nsink: {lake_path: lake}\n"
    file.write_text(f"{head}targets: [{{masks: {{a: {mask}}}}}]\n")
    with pytest.raises(ConfigMistakes) as found:
        load_config(file)
    assert said in str(found.value)
    assert SALT not in str(found.value)


def test_k14_a_salt_is_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = rule(masks={"a": {"hash": {"salt": SALT}}})
    assert SALT not in repr(made) + str(made.model_dump()) + made.model_dump_json()
    monkeypatch.setenv("SALT_OF_TEST", "tiny")
    file = tmp_path / "bank.yaml"
    file.write_text(
        "source: {kind: archive, directory: logs}\nsink: {lake_path: lake}\n"
        "targets:\n"
        "  - {masks: {email: {hash: {salt: '${SALT_OF_TEST}'}}, b: {hash: {salt: "
        + SALT
        + (
            ", x: 1}}}}\n  - {filter: 'rand() < 1', types: {a: money}}\n  - {filter: \"a > "
            "timestamp'now'\", computed: {d: {expression: \"date'today'\", type: date}}}\n"
        )
    )
    with pytest.raises(ConfigMistakes) as found:
        load_config(file)
    paths = {mistake.path for mistake in found.value.mistakes}
    assert paths == {
        "targets.0.masks.b.hash.x",
        "targets.0.masks.email.hash.salt",
        "targets.1.filter",
        "targets.1.types.a",
    } | {
        "targets.2.filter",
        "targets.2.computed.d.expression",
    }
    assert SALT not in str(found.value)
    assert "tiny" not in str(found.value)


def test_names_mean_columns_in_any_case() -> None:
    made = rule(masks={"EMail": {"truncate": 1}, "gone": "drop"}, columns={"exclude": ["Int*"]})
    assert made.mask_of("email") is not None
    assert not made.takes("INTERNAL")
    assert not made.takes("Gone")
    assert made.takes("eMAIL")
    assert rule().is_plain
    assert not made.is_plain


def test_k13_a_policy_is_a_word_or_a_section_with_switches(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    head = "source: {kind: archive, directory: j}\nsink: {lake_path: lake}\n"
    file.write_text(head + "schema_changes: careful\ntargets: [{schema_changes: {truncate: keep}}]")
    config = load_config(file)
    assert config.schema_changes == SchemaChangePolicy(policy="careful")
    assert config.targets[0].schema_changes == SchemaChangePolicy(policy="evolve", truncate="keep")
    policy = SchemaChangePolicy(policy="stop", change_key="apply")
    assert (policy.change_key, policy.drop_table) == ("apply", "stop")
    file.write_text(head + "schema_changes: {rename_column: apply, swap: follow}\n")
    with pytest.raises(
        ConfigMistakes, match=r"policy decides about other changes: evolve, careful"
    ):
        load_config(file)
    file.write_text(head + "targets: [{columns: {mask: [email]}}]\n")
    with pytest.raises(ConfigMistakes, match=r"masks are beside columns: masks: \{email"):
        load_config(file)
