"""Check a directory of journals: whether they can be read, and reach from the cursor to the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cdc_pipeline.binlog.seq import journal_number
from cdc_pipeline.errors import CdcError
from cdc_pipeline.operations.doctor.context import Check, Context
from cdc_pipeline.operations.doctor.diagnosis import Verdict, error, note, ok, warning
from cdc_pipeline.position.failback import consumers_of
from cdc_pipeline.text.wording import listed, size


def _journals(context: Context) -> Iterator[Verdict]:
    from cdc_pipeline.source.archive.files import journal_files

    directory = context.archive_config.directory
    source = context.open(context.config)
    try:
        source.check()
    except CdcError:
        context.forget_source()
        raise
    files = journal_files(directory)
    total = sum(file.stat().st_size for file in files)
    yield ok(f"{len(files)} journals of {size(total)} in {directory}, of {source.identity}")
    numbers = [journal_number(file.name) for file in files]
    missing = sorted(set(range(min(numbers), max(numbers))) - set(numbers))
    if missing:
        yield warning(
            "the archive has a gap; a run that reaches it will stop there",
            expected=f"all journals from {min(numbers):06d} to {max(numbers):06d}",
            got="missing: " + listed([f"{number:06d}" for number in missing]),
            next_step=f"copy them into {directory} from the server or a backup",
        )


def _end(context: Context) -> Iterator[Verdict]:
    from cdc_pipeline.source.archive.archive import scan
    from cdc_pipeline.source.archive.files import journal_files, read_head

    context.source  # noqa: B018  (its check has passed)
    last = journal_files(context.archive_config.directory)[-1]
    scanned = scan(
        last, read_head(last), unpacked_bytes_max=context.archive_config.unpacked_bytes_max
    )
    if scanned.failure is not None:
        yield Verdict.from_error(scanned.failure)
    elif scanned.end.offset < last.stat().st_size:
        yield note(
            "the last journal ends inside a transaction; a run waits there until the "
            "journal is copied again",
            got=f"{scanned.end}, of {last.stat().st_size} bytes",
        )
    else:
        yield ok(f"the archive ends at {scanned.end}")


def _gtids(context: Context) -> Iterator[Verdict]:
    if context.source.uses_gtids:
        yield ok("its transactions have GTIDs, which prove where journals end")
    else:
        yield note(
            "its transactions have no GTIDs: after a crash of the server, the end of a journal "
            "cannot be proved",
            next_step="accept: {unproved_journal_ends: [...]} for a journal that a run names",
        )


def _cursor(context: Context) -> Iterator[Verdict]:
    cursor = context.cursor
    for consumer in consumers_of(cursor) if cursor is not None else ():
        try:
            context.source.validate_position(consumer.position)
        except CdcError as failure:
            yield error(
                f"the archive lacks what {consumer.name} needs: {failure.what}",
                expected=str(failure.expected or consumer.position),
                got=str(failure.got or ""),
                next_step=failure.next_step or "",
            )
        else:
            yield ok(f"{consumer.name} is at {consumer.position}, which the archive has")


CHECKS: Final = (
    Check("server", "journals", _journals, opens=True),
    Check("server", "end", _end),
    Check("server", "GTIDs", _gtids),
    Check("retention", "needed", _cursor),
)
