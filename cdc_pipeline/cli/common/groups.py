"""Groups of commands that suggest the command which a misspelt one means."""

from __future__ import annotations

from difflib import get_close_matches

import click


class CommandGroup(click.Group):
    """A group that names its commands where a word is none of them."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, names = args[0] if args else "", self.list_commands(ctx)
        if name and not name.startswith("-") and name not in names:
            close = get_close_matches(name, names, n=1)
            meant = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(names)}"
            ctx.fail(f"no such command {name!r}; {meant}")
        return super().resolve_command(ctx, args)
