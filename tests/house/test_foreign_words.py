"""K26: what servers and libraries say of their errors comes without the values that they quote."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pydantic import BaseModel, ValidationError

import cdc_pipeline
from cdc_pipeline.text.server_messages import said_by, said_by_server
from tests.house.sources import trees

CANARY = "Canary3e8d"
SERVER = [
    (1062, f"Duplicate entry '{CANARY}' for key 'users.email'", "Duplicate entry ?"),
    (1064, f"You have an error; see the server's manual to use near '{CANARY}' AND' at line 1",
     "You have an error; see the server's manual to use near ? at line 1"),
    (1292, f"Truncated incorrect DOUBLE value: '{CANARY} it''s'",
        "Truncated incorrect DOUBLE value: ?"),
    (1366, f"Incorrect string value: '\\xF0{CANARY}' for column `a`",
        "Incorrect string value: ? for column `a`"),
    (3141, f'Invalid JSON text: "{CANARY}', "Invalid JSON text: ?"),
    (None, f"can't read N'{CANARY}'", "can't read N?"),
    (1146, "Table 'shop.orders' doesn't exist", "Table 'shop.orders' doesn't exist"),
    (2003, "Can't connect to MySQL server on 'db' (timed out)",
        "Can't connect to MySQL server on 'db' (timed out)"),
    (1236, "Could not open log file 'binlog.000001'", "Could not open log file 'binlog.000001'"),
]  # fmt: skip


@pytest.mark.parametrize(("number", "text", "told"), SERVER)
def test_k26_a_server_error_tells_no_value(number: int | None, text: str, told: str) -> None:
    assert said_by_server(number, text) == told


class AnalysisException(Exception):
    pass


class SparkRuntimeException(Exception):
    pass


class Py4JJavaError(Exception):
    pass


SPARK = [
    (SparkRuntimeException(f"[CAST_INVALID_INPUT] The value '{CANARY}' of the type \"STRING\" cannot be cast."),  # noqa: E501
     "SparkRuntimeException: [CAST_INVALID_INPUT]"),
    (SparkRuntimeException("[CAST_OVERFLOW] The value 7788 of the type SMALLINT cannot be cast."),
     "SparkRuntimeException: [CAST_OVERFLOW]"),
    (AnalysisException(f"[PARSE_SYNTAX_ERROR] Syntax error near '{CANARY}'. SQLSTATE: 42601\n== SQL ==\n{CANARY}"),  # noqa: E501
     "AnalysisException: [PARSE_SYNTAX_ERROR]: Syntax error near ?. SQLSTATE: ?"),
    (Exception("[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES] CHECK constraint c (a > 7788) "
        f"violated:\n - a : {CANARY}"),
     "Exception: [DELTA_VIOLATE_CONSTRAINT_WITH_VALUES]: CHECK constraint c (a > ?) violated"),
    (Py4JJavaError("An error occurred while calling o1.sql.\n: java.io.IOException: No space left "
        "on device\n\tat x"),
     "Py4JJavaError: IOException: No space left on device"),
    (Py4JJavaError("An error occurred while calling o1.sql.\n: org.apache.spark.SparkException: Job aborted: "  # noqa: E501
        "java.lang.IllegalStateException: [DUPLICATED_MAP_KEY] Duplicate map key "
        f"{CANARY} was found"),
     "Py4JJavaError: SparkException: IllegalStateException: [DUPLICATED_MAP_KEY]"),
]  # fmt: skip


@pytest.mark.parametrize(("error", "told"), SPARK)
def test_k26_an_error_of_spark_tells_no_value(error: Exception, told: str) -> None:
    assert said_by(error) == told


class _Record(BaseModel):
    number: int


def test_k26_an_error_of_arrow_or_pydantic_tells_no_value() -> None:
    with pytest.raises(pa.ArrowInvalid) as arrow:
        pa.array([CANARY]).cast(pa.int32())
    with pytest.raises(pa.ArrowInvalid) as number:
        pa.array([7788]).cast(pa.int8())
    with pytest.raises(ValidationError) as model:
        _Record.model_validate({"number": CANARY})
    for caught in (arrow, number, model):
        assert CANARY not in said_by(caught.value)
        assert "7788" not in said_by(caught.value)
    missing = FileNotFoundError(2, "No such file or directory", "/lake/shop/t/part=7788/a.parquet")
    assert said_by(missing) == "FileNotFoundError: No such file or directory: /lake/shop/t/..."


def _handlers() -> Iterator[tuple[str, ast.ExceptHandler]]:
    root = Path(cdc_pipeline.__file__).parent
    for folder in ("sink", "source", "targets", "run", "operations", "orchestration"):
        for file, tree in trees(root / folder, r"except Exception\b"):
            for node in ast.walk(tree):
                if isinstance(node, ast.ExceptHandler) and node.name is not None:
                    yield f"{file.relative_to(root)}:{node.lineno}", node


def test_k26_no_error_of_a_library_is_kept_as_a_cause_or_in_words_of_its_own() -> None:
    """Dagster records causes as they are; `said_by` is the only way of an `except Exception` into a
    text."""
    found = []
    for at, handler in _handlers():
        is_any = isinstance(handler.type, ast.Name) and handler.type.id == "Exception"
        if not is_any:
            continue
        for node in ast.walk(handler):
            if isinstance(node, ast.Raise) and isinstance(node.cause, ast.Name):
                found.append(f"{at}: raised from {node.cause.id}")
            shown = node.value if isinstance(node, ast.FormattedValue) else None
            if isinstance(shown, ast.Name) and shown.id == handler.name:
                found.append(f"{at}: its words in a text")
    assert not found
