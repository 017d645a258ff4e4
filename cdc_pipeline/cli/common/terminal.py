"""The only way to the terminal: external strings are printed as text, never interpreted (K20: text
is data).

Rules:
- A string is never markup: styles are given as `Text`. A table called ``[/x]`` is printed as that.
- Before a text is laid out, `printable_lines` escapes what the terminal would interpret or hide.
- A table whose words and numbers do not fit beside each other is shown as a list.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Span, Text

from cdc_pipeline.cli.common.activity import cleared
from cdc_pipeline.text.printable import printable, printable_lines


class PlainConsole(Console):
    """Without markup, emoji codes and highlighting; control characters are shown, not sent."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **settings)

    def print(self, *objects: Any, **settings: Any) -> None:
        """A text stays on its line, which the terminal folds; tables are folded here."""
        cleared()
        is_text = all(isinstance(one, str | Text) for one in objects)
        super().print(*objects, **{"soft_wrap": is_text, **settings})

    def render_str(self, text: str, **settings: Any) -> Text:
        # Before `Text` drops some of it.
        return super().render_str(printable_lines(text), **settings)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        if isinstance(renderable, str):
            renderable = self.render_str(renderable)
        # Tables, panels and bars call this for each text they contain, before it is folded to its
        # width.
        return super().render(
            _escaped(renderable) if isinstance(renderable, Text) else renderable, options
        )


class Rows(Table):
    """Where the words of its columns do not fit beside each other, a row is its first cell, and
    below that the others, each with its label.
    """

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        needed = Measurement.get(console, options.update_width(10_000), self).minimum
        if not self.show_header or needed <= options.max_width:
            for column in self.columns:  # others are folded between words
                shown = map(str, (column.header, *column.cells))
                column.no_wrap |= self.show_header and not any(" " in one for one in shown)
            yield from super().__rich_console__(console, options)
            return
        if self.title:
            yield Text(str(self.title), style="bold")
        labels = [str(column.header) for column in self.columns]
        for first, *cells in zip(*(column.cells for column in self.columns), strict=True):
            yield first
            pairs = zip(labels[1:], cells, strict=True)
            texts = [
                Text.assemble(label, " " if label else "", cell) for label, cell in pairs if cell
            ]
            yield Padding(Text(", ").join(texts), (0, 0, 0, 2))


def _escaped(text: Text) -> Text:
    plain = text.plain
    if printable_lines(plain) == plain:
        return text
    pieces = [one if one == "\n" else printable(one) for one in plain]
    at = [0, *accumulate(map(len, pieces))]
    shown = text.blank_copy("".join(pieces))
    shown.spans = [
        Span(at[span.start], at[min(span.end, len(plain))], span.style) for span in text.spans
    ]
    return shown
