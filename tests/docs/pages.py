"""The marked commands of pages: extracted, and run in order in a project of their own.

A comment before a code block says what becomes of it:

- ``<!-- run -->``: it is run; ``<!-- run: mysql -->`` and ``<!-- run: mariadb -->`` on one flavor
  only, ``<!-- run: exit 1 -->`` must end with that exit code.
- ``<!-- run: restart -->``: the server is restarted instead.
- ``<!-- run: file jobs/shop.yaml -->``: the block becomes that file.
- ``<!-- output -->``: the block is what the one before it prints. Its lines must come in this
  order, with any others between; ``...`` stands for anything, and blanks count as one.

`python -m tests.docs.pages mysql docs/tutorial/first-tables.md ...` runs pages and prints all that
their commands print.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.servers import Server
from tests.support.project import ROOT, write_settings

DOCS = ROOT / "docs"
_BLOCK = re.compile(
    r"^(?P<indent> *)<!-- (?P<verb>run|output)(?:: (?P<options>[^>]*?))? -->\n+"
    r"^(?P=indent)```(?P<language>\w+)[^\n]*\n(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
# Ports and the server that pages name; the server of the test is on this machine, at another port.
_PORT = re.compile(r"\b3306\b")
_HOST = re.compile(r"--host db\.example\b")
# A step begins with the variables and in the folder that the one before it left.
_STEP = """\
[ -f {kept} ] && . {kept} && cd "$PWD"
set -euo pipefail
{code}
export -p > {kept}
"""


@dataclass(frozen=True)
class Step:
    page: Path
    line: int
    language: str
    code: str
    options: tuple[str, ...]
    output: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"

    def is_for(self, flavor: str) -> bool:
        return not {"mysql", "mariadb"} & set(self.options) or flavor in self.options

    @property
    def exit_code(self) -> int:
        return int(self.options[1]) if self.options[:1] == ("exit",) else 0


def steps(page: Path) -> list[Step]:
    text = page.read_text(encoding="utf-8")
    found: list[Step] = []
    for block in _BLOCK.finditer(text):
        line = text.count("\n", 0, block.start("code")) + 1
        options = tuple((block["options"] or "").split())
        code = textwrap.dedent(block["code"])
        if block["verb"] == "run":
            found.append(Step(page, line, block["language"], code, options))
        else:
            *found, last = found
            lines = tuple(one for one in code.splitlines() if one.strip())
            found.append(Step(**{**vars(last), "output": (*last.output, *lines)}))
    return found


def missing_line(shown: tuple[str, ...], printed: str) -> str:
    """Return the first line that a page shows and that was not printed in its place; else ""."""
    lines: Iterator[str] = iter([" ".join(line.split()) for line in printed.splitlines()])
    for line in shown:
        words = " ".join(line.split())
        pattern = ".*".join(re.escape(part) for part in re.split(r" ?\.\.\. ?", words))
        if not any(re.fullmatch(pattern, one) for one in lines):
            return line
    return ""


class PageProject:
    """A project's folder, with the commands that pages use in front of the PATH."""

    def __init__(self, root: Path, server: Server) -> None:
        self.root = root
        self._server = server
        self._bin = root.parent / f"{root.name}-bin"
        self._variables = root.parent / f"{root.name}-env"
        for name in ("jobs/definitions.py", "workspace.yaml"):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, root / name)
        write_settings(root / "dagster_home")
        demo = root / "cdc_pipeline" / "demo"
        demo.mkdir(parents=True)
        (demo / "shop").symlink_to(ROOT / "cdc_pipeline" / "demo" / "shop")
        python = shlex.quote(sys.executable)
        client = shlex.join(
            [
                *server.installation.tool("mysql"),
                "--no-defaults",
                f"--socket={server.socket}",
                "--user=root",
            ]
        )
        self._command("cdc-pipeline", f'exec {python} -m cdc_pipeline.cli "$@"')
        self._command("python", f'exec {python} "$@"')
        self._command("dg", f'exec {python} -m dagster_dg_cli.cli "$@"')
        # The account and its password are the test's own: -u root -p are left out.
        self._command(
            "mysql",
            'arguments=(); while (($#)); do case $1 in -p) ;; -u) shift ;; *) arguments+=("$1") ;;'
            f' esac; shift; done; exec {client} "${{arguments[@]}}"',
        )

    def run(self, step: Step) -> str:
        code = _PORT.sub(str(self._server.port), step.code)
        code = _HOST.sub(f"--host 127.0.0.1 --port {self._server.port}", code)
        if step.options == ("restart",):
            self._server.restart()
            return ""
        if step.options[:1] == ("file",):
            target = self.root / step.options[1]
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(code, encoding="utf-8")
            return ""
        done = subprocess.run(
            self._argv(step.language, code),
            cwd=self.root,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        said = f"{step}\n{step.code}\n{done.stdout}"
        assert done.returncode == step.exit_code, f"exit code {done.returncode} of {said}"
        missing = missing_line(step.output, done.stdout)
        assert not missing, f"{missing!r} is not printed by {said}"
        return done.stdout

    def _argv(self, language: str, code: str) -> list[str]:
        if language == "python":
            return [sys.executable, "-c", code]
        if language == "sql":
            code = f"mysql <<'SQL'\n{code}\nSQL"
        kept = shlex.quote(str(self._variables))
        return ["bash", "-c", _STEP.format(kept=kept, code=code)]

    def _environment(self) -> dict[str, str]:
        environment = {k: v for k, v in os.environ.items() if k != "DAGSTER_HOME"}
        return environment | {
            "PATH": f"{self._bin}:{environment['PATH']}",
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "200",
        }

    def _command(self, name: str, script: str) -> None:
        self._bin.mkdir(exist_ok=True)
        file = self._bin / name
        file.write_text(f"#!/bin/bash\n{script}\n", encoding="utf-8")
        file.chmod(0o755)


def run_pages(
    pages: list[Path],
    root: Path,
    server: Server,
    *,
    report: Callable[[Step, str], None] = lambda _step, _printed: None,
) -> int:
    """Run all marked blocks of pages in order and return how many were run."""
    project = PageProject(root, server)
    chosen = [step for page in pages for step in steps(page) if step.is_for(server.flavor)]
    for step in chosen:
        report(step, project.run(step))
    return len(chosen)


if __name__ == "__main__":
    flavor, *names = sys.argv[1:]
    assert flavor in ("mysql", "mariadb")
    with tempfile.TemporaryDirectory() as made, Server(flavor) as own:
        (folder := Path(made) / "project").mkdir()
        run_pages(
            [Path(name).resolve() for name in names],
            folder,
            own,
            report=lambda step, printed: print(f"--- {step}\n{step.code}\n{printed}", flush=True),
        )
