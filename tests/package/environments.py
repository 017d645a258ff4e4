"""Environments outside of the checkout, and the wheel that is installed into them.

Rules:
- pip takes packages from where this machine's settings say, and from its own cache.
- Commands see neither the checkout nor this project's environment: no PYTHONPATH, no DAGSTER_HOME,
  none of this package's variables but the cache of jars.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from cdc_pipeline.sink.spark.java import cache_folder
from tests.servers import Server
from tests.support.project import ROOT

_HIDDEN: Final = re.compile(r"PYTHON.*|DAGSTER_.*|CDC_PIPELINE_.*|VIRTUAL_ENV|NUMBA_.*|COVERAGE.*")
_PINNED: Final = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?(==[^ \\]+)( ;[^\\]*)?", re.MULTILINE)


def build_wheel(folder: Path) -> Path:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("*.whl")
    return wheel


def locked_versions(file: Path) -> Path:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    lines = [name + version + (marker or "") for name, version, marker in _PINNED.findall(lock)]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


@dataclass(frozen=True)
class Environment:
    """A Python environment in `folder`, with `working` as the folder that commands start in."""

    folder: Path
    working: Path

    @classmethod
    def make(cls, folder: Path, working: Path) -> Environment:
        base = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
        subprocess.run([str(base), "-m", "venv", str(folder)], check=True)
        working.mkdir(exist_ok=True)
        return cls(folder, working)

    def install(self, *arguments: str) -> None:
        done = self.run("python", "-m", "pip", "install", "--quiet", *arguments, exit_code=None)
        assert done.returncode == 0, done.stdout + done.stderr

    def run(
        self,
        program: str,
        *arguments: str,
        cwd: Path | None = None,
        exit_code: int | None = 0,
        variables: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment. `cwd`: by default `working`; `exit_code`: that must
        come; None for any. `variables`: added to the environment's.
        """
        kept = {name: value for name, value in os.environ.items() if not _HIDDEN.fullmatch(name)}
        path = f"{self.folder / 'bin'}:/usr/local/bin:/usr/bin:/bin"
        done = subprocess.run(
            [str(self.folder / "bin" / program), *arguments],
            cwd=cwd or self.working,
            env=kept
            | {"PATH": path, "CDC_PIPELINE_CACHE": str(cache_folder()), "COLUMNS": "200"}
            | dict(variables or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert exit_code is None or done.returncode == exit_code, (
            f"{program} {' '.join(arguments)}: exit code {done.returncode}\n"
            f"{done.stdout}\n{done.stderr}"
        )
        return done

    def python(self, script: str, *, cwd: Path | None = None) -> str:
        return self.run("python", "-c", script, cwd=cwd).stdout.strip()

    def packages(self) -> set[str]:
        listed = self.run("python", "-m", "pip", "list", "--format=freeze").stdout
        return {line.partition("==")[0].lower() for line in listed.splitlines()}


def follow_a_server(
    environment: Environment,
    project: Path,
    server: Server,
    database: str,
    *,
    cursor: Literal["dagster", "lake"] = "dagster",
) -> None:
    """Do with a new project what its README says, against a real server, and compare the tables.
    `project`: as ``cdc-pipeline init`` made it, with the source ``sales``; `database`: an empty
    one.
    """
    server.create_replication_user("cdc_package", "secret")
    server.execute(f"CREATE TABLE `{database}`.orders (id INT PRIMARY KEY, note VARCHAR(40))")
    server.execute(f"INSERT INTO `{database}`.orders VALUES (1, 'a'), (2, 'ü'), (3, NULL)")
    file = project / "jobs" / "sales.yaml"
    text = file.read_text(encoding="utf-8")
    for written, meant in (
        ("host: db.example", "host: 127.0.0.1"),
        ("port: 3306", f"port: {server.port}"),
        ("user: cdc", "user: cdc_package"),
        ('["sales.*"]', f'["{database}.*"]'),
    ):
        assert text.count(written) == 1
        text = text.replace(written, meant)
    file.write_text(text, encoding="utf-8")

    def cdc(*arguments: str, exit_code: int | None = 0) -> str:
        return environment.run(
            "cdc-pipeline",
            *arguments,
            cwd=project,
            exit_code=exit_code,
            variables={"SALES_PASSWORD": "secret", "CDC_PIPELINE_CURSOR": cursor},
        ).stdout

    cdc("validate", "sales")
    cdc("doctor", "sales", exit_code=None)
    cdc("snapshot", "sales")
    server.execute(f"UPDATE `{database}`.orders SET note = 'b' WHERE id = 1")
    server.execute(f"DELETE FROM `{database}`.orders WHERE id = 2")
    assert "applied" in cdc("run", "sales")
    cdc("verify", "sales")
    assert f"{database}.orders" in cdc("status", "sales")
