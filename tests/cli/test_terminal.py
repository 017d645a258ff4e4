"""K20 on the terminal: names and values are shown, and are never markup, links or controls
(F22)."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.panel import Panel
from rich.text import Text

from cdc_pipeline.cli.common.output import json_escaped, styled, table
from cdc_pipeline.cli.common.progress import Bars
from cdc_pipeline.cli.common.terminal import PlainConsole
from cdc_pipeline.errors import CdcError
from cdc_pipeline.text.printable import printable

HOSTILE = "[/x] [link=http://h]a[/link] :smile: " + (
    "\x1b[31mred\x1b]8;;http://h\x07 \x9b2J \u202egnp.exe \u2066 \u200b \u2028 \r \x00"
)
SHOWN = "[/x] [link=http://h]a[/link] :smile: " + (
    r"\x1b[31mred\x1b]8;;http://h\x07 \x9b2J \u202egnp.exe \u2066 \u200b \u2028 \x0d \x00"
)


def printed(*renderables: object, width: int = 300, colors: bool = False) -> str:
    stream = io.StringIO()
    console = PlainConsole(file=stream, width=width, force_terminal=colors)
    for renderable in renderables:
        console.print(renderable)
    return stream.getvalue()


def test_k20_hostile_text_is_shown_wherever_it_stands() -> None:
    """K20: as a string, a styled text, a cell, a column's name, a title, and in a panel."""
    rows = table(HOSTILE, HOSTILE)
    rows.add_row(HOSTILE)
    for renderable in (
        HOSTILE,
        styled(HOSTILE),
        styled((HOSTILE, "bold")),
        rows,
        Panel(styled(HOSTILE)),
    ):
        text = printed(renderable)
        assert SHOWN in text
        assert printable(text.replace("\n", "")) == text.replace("\n", "")


def test_k20_styles_stay_and_nothing_else_is_sent() -> None:
    """K20: what the console sends of its own accord is its colours alone."""
    text = printed(Text.assemble(("a\x1b[5m", "bold"), "b"), colors=True)
    assert text == "\x1b[1ma\\x1b[5m\x1b[0mb\n"


def test_k20_an_escaped_cell_is_folded_and_not_cut() -> None:
    """K20: escapes are made before the layout."""
    rows = table("", "name")
    rows.add_row("\x1b" * 30)
    assert "".join(printed(rows, width=40).split()).count("\\x1b") == 30


def test_f252_names_stay_whole_where_a_terminal_is_narrow() -> None:
    numbers = ("Delta version", "last batch")
    rows = table("Tables", "table", *numbers, "mode", "", numbers=numbers)
    rows.add_row("warehouse.order_line_items", "12", "1", "mirror", "")
    rows.add_row(HOSTILE, "7", "", "history", styled(("suspended", "red")))
    shown = [line.rstrip() for line in printed(rows, width=60).splitlines()]
    assert shown[:3] == [
        "Tables",
        "warehouse.order_line_items",
        "  Delta version 12, last batch 1, mode mirror",
    ]
    assert shown[-1] == "  Delta version 7, mode history, suspended"
    assert "warehouse.order_line_items" in printed(rows, width=300)


def test_k20_progress_takes_names_as_they_are() -> None:
    """K20: a table called [/x] ended the command by a MarkupError."""
    stream = io.StringIO()
    bars = Bars(stream)
    bars._progress.add_task("[/x]", total=None, counts="[/y]")
    assert "[/x]" in printed(bars._progress.get_renderable())


def test_k20_an_error_is_shown_in_every_log_and_stays_exact_as_values() -> None:
    """K20: Dagster's logs and pages take its text, programs its values."""
    error = CdcError("refused", table="a.\x1b[2J")
    assert r"a.\x1b[2J" in str(error)
    assert error.as_dict()["table"] == "a.\x1b[2J"


@given(st.text())
def test_k20_json_is_exact_and_holds_nothing_to_obey(text: str) -> None:
    """K20: escapes of JSON's own, so that a program reads the same document."""
    line = json_escaped(json.dumps({"name": text}, ensure_ascii=False))
    assert json.loads(line) == {"name": text}
    assert printable(line) == line


@given(st.text())
def test_k20_what_is_shown_is_printable_and_letters_stay(text: str) -> None:
    """K20: escapes once, and letters of all scripts stay."""
    assert printable(printable(text)) == printable(text)
    assert printable(text).isprintable()
    assert printable("größe 订单 заказы e\u0301") == "größe 订单 заказы e\u0301"


@pytest.mark.parametrize(
    "hidden",
    ["\u200d", "\ufeff", "\u3164", "\ufe0f", "\u00ad", "\u00a0", "\x7f", "\x85", "\U000e0041"],
)
def test_k20_what_has_no_width_is_shown(hidden: str) -> None:
    """K20: two names that look alike are told apart."""
    assert printable(f"a{hidden}b") == f"a{hidden.encode('unicode_escape').decode()}b"
