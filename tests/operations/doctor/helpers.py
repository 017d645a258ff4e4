"""What the tests of the doctor share: a pipeline on a test server, and its findings by check."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cdc_pipeline.config.pipeline_config import PipelineConfig
from cdc_pipeline.operations.doctor import Diagnosis, Finding, examine
from cdc_pipeline.position.cursor import CursorState, MemoryCursorStore
from tests.servers import Server

SECRET = "s3cret-Never-Shown"


def live(server: Server, **changes: Any) -> dict[str, Any]:
    """The section `source`, with an account that may capture unless one is given."""
    found: dict[str, Any] = {
        "kind": "live",
        "host": server.host,
        "port": server.port,
        "read_timeout_s": 20,
    }
    if "user" not in changes:
        found["user"], found["password"] = "cdc", "cdc-Secret-1"
        if not server.query("SELECT 1 FROM mysql.user WHERE User = 'cdc'"):
            server.create_replication_user()
    return found | changes


def pipeline(
    source: dict[str, Any], folder: Path, *, include: Iterable[str] = ("*.*",), **sections: Any
) -> PipelineConfig:
    """A pipeline whose lake is in `folder`; what is not told is harmless on any machine."""
    return PipelineConfig.model_validate(
        {
            "name": "shop",
            "source": source,
            "tables": {"include": tuple(include)},
            "sink": {"lake_path": folder / "lake", "spark": {"driver_memory": "1m"}},
            "store": {"disk_bytes_max": 64 << 20},
            "batch": {"merge_staged_bytes": 1 << 20},
            **sections,
        }
    )


def diagnosis(
    config: PipelineConfig, *, cursor: CursorState | None = None, **arguments: Any
) -> Diagnosis:
    return examine(config, cursors=MemoryCursorStore(cursor, source=config.name), **arguments)


def troubles(found: Diagnosis, check: str) -> list[Finding]:
    """What a check found that is not fine."""
    return [
        finding for finding in found.findings if finding.check == check and finding.severity != "ok"
    ]


def only(found: Diagnosis, check: str) -> Finding:
    """The one trouble that a check found."""
    (finding,) = troubles(found, check)
    return finding


def is_fine(found: Diagnosis, check: str) -> bool:
    """Whether a check was made and found nothing else than ok."""
    of_check = [finding.severity for finding in found.findings if finding.check == check]
    return bool(of_check) and set(of_check) == {"ok"}


def carry_out(server: Server, findings: Iterable[Finding]) -> int:
    """Run the statements that findings give, as root; how many."""
    done = 0
    for finding in findings:
        # "; and ..." is what stays to be done in a file.
        for statement in finding.next_step.partition("; and ")[0].split(";"):
            if statement.strip().startswith(("SET ", "GRANT ", "REVOKE ", "ALTER ")):
                server.execute(statement)
                done += 1
    return done


def cursor_at(server: Server, journal: str, offset: int = 4, **changes: Any) -> CursorState:
    """A cursor of a pipeline that has applied nothing yet."""
    uuid = server.variable("server_uuid") if server.flavor == "mysql" else ""
    return CursorState(
        source="shop",
        batch_number=0,
        flavor=server.flavor,
        server_id=server.server_id,
        server_uuid=uuid,
        journal=journal,
        offset=offset,
        **changes,
    )
