"""The only way to the terminal: external strings are printed as text, never interpreted (K20: text
is data).

Rules:
- A string is never markup: styles are given as `Text`. A table called ``[/x]`` is printed as that.
- Before a text is laid out, `printable_lines` escapes what the terminal would interpret or hide.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
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
