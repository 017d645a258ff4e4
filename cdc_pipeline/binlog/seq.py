"""`seq`: the rank of every change in one total order (K1: merges compare only seqs).

A seq is one non-negative integer below 2**126, so that it fits DECIMAL(38,0). From the most
significant bit:

    epoch 12 | journal number 31 | transaction offset 40 | event ordinal 24 | row ordinal 18 | after
    image 1

- The transaction offset is that of the GTID or BEGIN event of the transaction that makes the change
  effective.
- The event ordinal counts events in the transaction, the row ordinal rows in the event. Payload
  events count, as do the events inside them: the same changes have different seqs with and without
  compression, in the same order.
- It depends only on the journal, not on filters, batches or chunk borders.
- Columns of seqs are in `seq_columns.py`. This module needs neither numpy nor Arrow, because
  positions and cursors, which every command reads, need it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from cdc_pipeline.errors import BinlogError

_EPOCH_BITS: Final = 12
JOURNAL_BITS: Final = 31
OFFSET_BITS: Final = 40
EVENT_BITS: Final = 24
ROW_BITS: Final = 18

# Bits of the offset that share the low word.
LOW_OFFSET_BITS: Final = 64 - 1 - ROW_BITS - EVENT_BITS
_JOURNAL_NUMBER = re.compile(r"\.(\d+)$")


@lru_cache(maxsize=64)
def journal_number(journal: str) -> int:
    """The number at the end of a journal's name: 3 for ``binlog.000003``. Raises BinlogError: the
    name has no number, or one above 2**31 - 1.
    """
    match = _JOURNAL_NUMBER.search(journal)
    if match is None or int(match[1]) >= 1 << JOURNAL_BITS:
        raise BinlogError(
            "the journal's name has no usable number",
            at=(journal, None),
            expected="a name such as binlog.000003",
            next_step="rename the file to its name on the server",
        )
    return int(match[1])


def may_follow(journal: str, other: str) -> bool:
    """Whether both are of one numbering, and `journal` is not before `other`."""
    is_alike = journal.rpartition(".")[0] == other.rpartition(".")[0]
    return is_alike and journal_number(journal) >= journal_number(other)


def pack_seq(
    epoch: int,
    journal: int,
    tx_offset: int,
    event_ordinal: int = 0,
    row_ordinal: int = 0,
    image: int = 0,
) -> int:
    """One seq as a Python integer. `image` is 0 for before, 1 for after."""
    _check("epoch", epoch, _EPOCH_BITS)
    _check("journal number", journal, JOURNAL_BITS)
    _check("transaction offset", tx_offset, OFFSET_BITS)
    _check("event ordinal", event_ordinal, EVENT_BITS)
    _check("row ordinal", row_ordinal, ROW_BITS)
    value = epoch
    for part, bits in (
        (journal, JOURNAL_BITS),
        (tx_offset, OFFSET_BITS),
        (event_ordinal, EVENT_BITS),
        (row_ordinal, ROW_BITS),
        (image, 1),
    ):
        value = value << bits | part
    return value


def seq_of_place(epoch: int, journal: str, offset: int, event_ordinal: int = 0) -> int:
    """The first seq of a transaction, or of an event in it, by its journal's name. Raises
    BinlogError: the name has no number, or a part does not fit its field.
    """
    return pack_seq(epoch, journal_number(journal), offset, event_ordinal)


def epoch_of(seq: int) -> int:
    return seq >> 126 - _EPOCH_BITS


def journal_of(seq: int) -> int:
    return (seq >> OFFSET_BITS + EVENT_BITS + ROW_BITS + 1) % (1 << JOURNAL_BITS)


def with_epoch(seq: int, epoch: int) -> int:
    """The same place in another epoch's numbering."""
    return epoch << 126 - _EPOCH_BITS | seq % (1 << 126 - _EPOCH_BITS)


def epoch_and_journal(epoch: int, journal: int) -> int:
    """The bits of a seq's high word that all changes of one journal share. Raises BinlogError: one
    of them is too large for its field.
    """
    _check("epoch", epoch, _EPOCH_BITS)
    _check("journal number", journal, JOURNAL_BITS)
    return (epoch << JOURNAL_BITS | journal) << OFFSET_BITS - LOW_OFFSET_BITS


def check_ranges(tx_offset_max: int, event_ordinal_max: int, row_ordinal_max: int) -> None:
    """Raise BinlogError if a maximum does not fit its field."""
    _check("transaction offset", tx_offset_max, OFFSET_BITS)
    _check("event ordinal", event_ordinal_max, EVENT_BITS)
    _check("row ordinal", row_ordinal_max, ROW_BITS)


def _check(name: str, value: int, bits: int) -> None:
    if not 0 <= value < 1 << bits:
        raise BinlogError(
            f"the {name} does not fit the sequence number",
            expected=f"0 to {(1 << bits) - 1}",
            got=value,
            next_step="split the transaction at the source, or lower binlog_row_event_max_size",
        )
