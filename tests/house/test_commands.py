"""Every command that an error, a hint or a page tells a person to type is one of the command line
(F23)."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

import click
import pytest

from cdc_pipeline.cli.app import COMMANDS, cli
from tests.house.sources import trees

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "cdc_pipeline" / "cli" / "examples.txt"
_COMMAND = re.compile(r"cdc-pipeline +(?P<rest>[^`\n]*)")
# What ends a command in a sentence or a shell.
_END = re.compile(
    r"[;)#|>]|\.\.\.|, | (?:or|and|then|from|shows|with|in|lists|goes|of|is|says|tells) "
)
PLACEHOLDER = "X"


def texts(tree: ast.AST) -> Iterator[str]:
    """Whole strings of a module, docstrings too; what is filled in later as `PLACEHOLDER`."""
    inside: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            inside.update(node.values)
            yield "".join(
                str(one.value) if isinstance(one, ast.Constant) else PLACEHOLDER
                for one in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in inside:
            yield node.value


def commands(text: str) -> Iterator[str]:
    """What stands behind `cdc-pipeline` wherever it is typed and not only named."""
    for match in _COMMAND.finditer(text):
        rest = _END.split(match["rest"])[0].strip().rstrip(".,:\"'")
        if rest and re.match(r"[-a-zX\[|]", rest):
            yield rest


def mistakes(rest: str) -> Iterator[str]:
    """What of a command is not there."""
    try:
        words = shlex.split(rest)
    except ValueError:
        words = rest.split()
    command: click.Command = cli
    context = click.Context(cli)
    while words:
        word = words.pop(0)
        options = {
            name: one
            for one in command.params
            if isinstance(one, click.Option)
            for name in (*one.opts, *one.secondary_opts)
        }
        options |= {"--help": click.Option(["--help"], is_flag=True)}
        name, _, value = word.partition("=")
        if word.startswith("-") and word != "-":
            option = options.get(name)
            if option is None:
                yield f"no option {name}"
                return
            if not option.is_flag and not value and words:
                words.pop(0)
        elif isinstance(command, click.Group):
            found = [command.get_command(context, one) for one in word.split("|")]
            if None in found:
                yield f"no command {word}"
                return
            command = found[0] or command


def _cited() -> list[tuple[str, str]]:
    found = []
    for file, tree in trees(ROOT / "cdc_pipeline", "cdc-pipeline"):
        for text in texts(tree):
            found += [(str(file.relative_to(ROOT)), rest) for rest in commands(text)]
    for page in [
        ROOT / "README.md",
        ROOT / "ARCHITECTURE.md",
        *sorted((ROOT / "docs").rglob("*.md")),
    ]:
        found += [(page.name, rest) for rest in commands(page.read_text(encoding="utf-8"))]
    return found


def test_k22_every_command_that_is_named_can_be_typed() -> None:
    """K22: a way out that does not exist is none."""
    cited = _cited()
    assert len({rest.split()[0] for _, rest in cited} & COMMANDS.keys()) >= len(COMMANDS) - 1, (
        "the search finds them"
    )
    wrong = [
        f"{where}: cdc-pipeline {rest}: {said}" for where, rest in cited for said in mistakes(rest)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        ("cursor load", "no command load"),
        ("snapshot shop --anew", "no option --anew"),
        ("cursor X shop", "no command X"),
        ("cuts list|show|sql", ""),
        ("run shop --table shop.orders", ""),
    ],
)
def test_a_command_that_is_none_is_found(rest: str, said: str) -> None:
    assert list(mistakes(rest)) == ([said] if said else [])


def _leaves(command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _leaves(below, click.Context(below, info_name=name, parent=context))
    else:
        yield context.command_path, command


def test_each_help_text_ends_with_two_examples_that_can_be_typed() -> None:
    shown = []
    for path, command in _leaves(cli, click.Context(cli, info_name="cdc-pipeline")):
        examples = (command.epilog or "").splitlines()[2:]
        assert len(examples) == 2, path
        for one in examples:
            assert f"{one.strip()} ".startswith(f"{path} "), one
            assert not list(mistakes(one.strip().removeprefix("cdc-pipeline "))), one
        shown += [one.strip() for one in examples]
    assert sorted(shown) == sorted(EXAMPLES.read_text(encoding="utf-8").splitlines())


_RULE_CODE = re.compile(r"(?<![\w`.:/-])[KP]\d{1,2}(?![\w`.-])")


def _texts(constant: object) -> Iterator[str]:
    """Those of compiled code."""
    if isinstance(constant, str):
        yield constant
    within = constant.co_consts if isinstance(constant, CodeType) else constant
    for one in within if isinstance(within, tuple | frozenset) else ():
        yield from _texts(one)


def test_no_text_for_people_names_a_rule_by_its_code() -> None:
    """Such a code says nothing to them. Docstrings are for those who read the code, unless they are
    help texts; a string that is a code alone (`start.Row.clause`) is data."""
    wrong = []
    for file in sorted((ROOT / "cdc_pipeline").rglob("*.py")):
        source = file.read_text(encoding="utf-8")
        if file.name == "fault_points.py" or not _RULE_CODE.search(source):
            continue
        for text in _texts(compile(source, str(file), "exec", optimize=2)):  # no docstrings
            code = _RULE_CODE.search(text)
            if code and code[0] != text:
                wrong.append(f"{file.relative_to(ROOT)} {code[0]}: {text}")
    helps = [command.help or "" for _, command in _leaves(cli, click.Context(cli))]
    wrong += [text for text in helps if _RULE_CODE.search(text)]
    assert not wrong, "\n".join(wrong)
