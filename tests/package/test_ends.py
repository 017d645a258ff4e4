"""Both ends of the ranges of pyproject.toml: the lowest versions that it accepts, and the highest
that there are (`make nightly`).

The lowest versions are those that the ranges name, exactly, so a bound that nobody has tried is
found here. What is needed by other packages only is as new as they accept. `make test` compares
the lock with the ranges; two more environments take minutes.
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from tests.conftest import temporary_database
from tests.package.environments import Environment, build_wheel, follow_a_server
from tests.servers import Server
from tests.support.project import ROOT

# What a project of the Dagster family uses of the package.
_FAMILY = """
from pathlib import Path
import dagster as dg
from cdc_pipeline import CdcComponent, CdcResource, CdcTranslator, build_definitions, cdc_assets

for name in ("shop", "crm"):
    Path("family").mkdir(exist_ok=True)
    Path(f"family/{name}.yaml").write_text(
        "source: {kind: live, host: db.invalid, user: cdc, password: '${PASSWORD}'}\\n"
        f"tables: {{include: [{name}.a]}}\\n"
        "sink: {lake_path: lake}\\n"
        "schedule: {cron: '@daily'}\\n"
        "dagster:\\n"
        "  owners: [team:data]\\n"
        "  freshness: {deadline_cron: '0 8 * * *', lower_bound_delta: 1 h}\\n"
        "  automation: {on_cron: '0 6 * * *'}\\n"
        "  cursor: {freshness: {fail_window: 2 h}, automation: eager}\\n"
    )
cdc = CdcResource(environment={"PASSWORD": dg.EnvVar("OTHER")})


@cdc_assets(config="family/crm.yaml", translator=CdcTranslator())
def crm(context: dg.AssetExecutionContext, cdc: CdcResource):
    yield from cdc.run(context)


Path("family/crm.yaml").rename("family/crm.txt")
definitions = dg.Definitions.merge(
    build_definitions("family", resource=cdc),
    dg.Definitions(assets=[crm], resources={"cdc": cdc}),
)
dg.Definitions.validate_loadable(definitions)
assert issubclass(CdcComponent, dg.Component)
print(sorted(spec.key.to_user_string() for spec in definitions.resolve_all_asset_specs()))
"""
_RANGE = re.compile(r"^(?P<name>[a-z0-9-]+)>=(?P<lowest>[0-9.]+)(?:,<[0-9.]+)?$")
_LOCKED = re.compile(r"^([a-z0-9._-]+)(?:\[[^]]*\])?==([0-9.]+)", re.MULTILINE)


def _ranges() -> dict[str, str]:
    """Return the lowest version of each direct dependency, those of Dagster and S3 too."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    lines = project["dependencies"] + extras["dagster"] + extras["s3"]
    found = [_RANGE.match(line) for line in lines]
    assert None not in found, lines
    return {match["name"]: match["lowest"] for match in found if match}


def _as_numbers(version: str) -> list[int]:
    numbers = [int(part) for part in version.split(".")]
    while numbers[-1:] == [0]:
        numbers.pop()
    return numbers


def test_the_lock_is_within_the_ranges() -> None:
    lock = dict(_LOCKED.findall((ROOT / "requirements.lock").read_text(encoding="utf-8")))
    below = [
        f"{name} {lock[name]} is below {lowest}"
        for name, lowest in _ranges().items()
        if _as_numbers(lock[name]) < _as_numbers(lowest)
    ]
    assert not below


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.parametrize("end", ["lowest", "highest"])
def test_the_package_works_at_both_ends(end: str, tmp_path: Path, mysql_server: Server) -> None:
    """The recorded shop as runs of Dagster, definitions, a server, and the cursor in the lake."""
    wheel = build_wheel(tmp_path / "dist")
    environment = Environment.make(tmp_path / "environment", tmp_path / "work")
    constraints = tmp_path / "constraints.txt"
    ranges = _ranges() if end == "lowest" else {}
    constraints.write_text("".join(f"{name}=={lowest}\n" for name, lowest in ranges.items()))
    environment.install("--constraint", str(constraints), f"{wheel}[dagster,s3]")
    for name, lowest in ranges.items():
        version = environment.python(f"import importlib.metadata as m; print(m.version({name!r}))")
        assert _as_numbers(version) == _as_numbers(lowest), name

    assert json.loads(environment.run("cdc-pipeline", "demo", "--json").stdout)["verified"]
    project = environment.working / "cdc_demo"
    validate = ("definitions", "validate", "-w", "workspace.yaml")
    environment.run("dagster", *validate, cwd=project)
    keys = environment.python(_FAMILY)
    assert all(f"'{key}'" in keys for key in ("shop/shop/a", "shop/cursor", "crm/crm/a")), keys
    moved = environment.run(
        "cdc-pipeline", "run", "shop", "--cursor", "lake", "--json", cwd=project
    )
    assert json.loads(moved.stdout)["outcome"] == "nothing_new"
    environment.run("cdc-pipeline", "--cursor", "lake", "cursor", "history", "shop", cwd=project)

    environment.run("cdc-pipeline", "init", "my_project")
    with temporary_database(mysql_server) as database:
        follow_a_server(environment, environment.working / "my_project", mysql_server, database)
