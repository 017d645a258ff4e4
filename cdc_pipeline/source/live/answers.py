"""Take answers of a server within bounds, and read values out of them.

Rules:
- What a server says is data until it is checked: an answer that breaks the protocol, does not end,
  or has something else in the place of a number or a text is a ServerAnswerError.
- Every connection is a `BoundedConnection`. An answer has at most `source.packet_bytes_max` bytes,
  and takes at most `TIMEOUTS_MAX` times as long as one wait may take: a server that sends a row
  now and then would otherwise be listened to for ever.
- After such an answer the connection is closed: what follows in it cannot be understood.
- Bytes that are not UTF-8 are kept as Python's surrogates, which become the same bytes when they
  are sent: one value that is no text costs what needs that value, not the whole answer. `text_of`
  refuses them. (MariaDB's SHOW CREATE TABLE has the default of a BINARY column as it is.)

Source: pymysql 1.2 `connections.py` and `protocol.py`, which raise what a wrong packet makes of
their calls (struct, index, assertion and Unicode errors).
"""

from __future__ import annotations

import codecs
import contextlib
import ssl
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pymysql
from pymysql.connections import Connection

from cdc_pipeline.errors import CdcError, ServerAnswerError
from cdc_pipeline.source.live.login import unverified_context
from cdc_pipeline.source.live.managed import ManagedService
from cdc_pipeline.source.live.server_errors import OTHER_PROGRAM_STEP
from cdc_pipeline.text.server_messages import said_by

TIMEOUTS_MAX: Final = 10
_SHOWN_CHARACTERS: Final = 80
_NUMBER_MAX: Final = (1 << 64) - 1
_ENCODING: Final = "utf-8-or-bytes"
_ESCAPED: Final = "surrogateescape"
# What a packet costs in memory besides its bytes: objects of Python.
_PACKET_OVERHEAD_BYTES: Final = 100


def _codec(name: str) -> codecs.CodecInfo | None:
    if name != _ENCODING.replace("-", "_"):
        return None
    return codecs.CodecInfo(
        lambda text, _errors="": codecs.utf_8_encode(text, _ESCAPED),
        lambda data, _errors="": codecs.utf_8_decode(data, _ESCAPED, True),
        name=_ENCODING,
    )


codecs.register(_codec)

if TYPE_CHECKING:
    _Connection = Connection[Any]
else:
    _Connection = Connection  # generic in its stubs only


class BoundedConnection(_Connection):
    """pymysql's connection, for servers that are not to be trusted: no answer, the login being
    one, has more than `answer_bytes_max`.

    Every method that reads an answer raises ServerAnswerError.
    """

    _auth_plugin_name: str
    service: ManagedService | None = None  # `session.prepare` knows it

    def __init__(self, *, answer_bytes_max: int, **arguments: Any) -> None:
        self._answer_bytes_max = answer_bytes_max
        self._begin_answer()
        super().__init__(**arguments)

    def _create_ssl_ctx(self, tls: Any) -> ssl.SSLContext:
        """`tls`: a context, or {} for TLS that checks nothing."""
        return tls or unverified_context()

    def connect(self, sock: Any = None) -> None:
        self._begin_answer()
        with self._understood():
            super().connect(sock)
        self.encoding = _ENCODING

    def _get_server_information(self) -> None:
        super()._get_server_information()  # type: ignore[misc]
        if self._auth_plugin_name == "sha256_password":  # see `login`
            self._auth_plugin_name = "caching_sha2_password"

    def _begin_answer(self) -> None:
        self._answer_bytes = 0
        self._answer_began_s = time.monotonic()

    def _execute_command(self, command: int, sql: str | bytes) -> None:
        self._begin_answer()
        super()._execute_command(command, sql)  # type: ignore[misc]

    def _read_query_result(self, unbuffered: bool = False) -> int:
        with self._understood():
            return super()._read_query_result(unbuffered)  # type: ignore[misc,no-any-return]

    def _read_packet(self, *arguments: Any) -> Any:
        with self._understood():
            return super()._read_packet(*arguments)  # type: ignore[no-untyped-call]

    def _read_bytes(self, num_bytes: int) -> bytes:
        """Piece by piece, so that one that trickles is noticed too."""
        self._answer_bytes += num_bytes + _PACKET_OVERHEAD_BYTES
        if self._answer_bytes > self._answer_bytes_max:
            raise self._refusal(
                "an answer that is too large",
                expected=f"at most {self._answer_bytes_max} bytes (source.packet_bytes_max)",
                got="more",
            )
        timeout_s = TIMEOUTS_MAX * float(self._read_timeout)  # type: ignore[attr-defined]
        pieces, missing_bytes = [], num_bytes
        while missing_bytes:
            if time.monotonic() - self._answer_began_s > timeout_s:
                raise self._refusal(
                    "an answer that does not end",
                    expected=f"its end within {timeout_s:g} s",
                    got=f"{self._answer_bytes} bytes so far",
                )
            piece = self._piece(missing_bytes)
            pieces.append(piece)
            missing_bytes -= len(piece)
        return b"".join(pieces)

    def _piece(self, bytes_max: int) -> bytes:
        try:
            piece: bytes = self._rfile.read1(bytes_max)  # type: ignore[attr-defined]
        except OSError as error:
            reason = f" ({error})"
        else:
            if piece:
                return piece
            reason = ""
        self._force_close()  # type: ignore[attr-defined]
        raise pymysql.err.OperationalError(
            2013, f"Lost connection to MySQL server during query{reason}"
        )

    @contextlib.contextmanager
    def _understood(self) -> Iterator[None]:
        try:
            yield
        except (pymysql.Error, OSError, RuntimeError, MemoryError, CdcError):
            raise  # known to `server_errors`; RuntimeError is how pymysql refuses LOAD DATA LOCAL
        except Exception as error:
            raise self._refusal(
                "something that is not the client/server protocol",
                expected="packets of the protocol",
                got=said_by(error)[:_SHOWN_CHARACTERS],
            ) from None

    def _refusal(self, what: str, *, expected: str, got: str) -> ServerAnswerError:
        self._force_close()  # type: ignore[attr-defined]
        return ServerAnswerError(
            f"{self.host}:{self.port} sent {what}",
            expected=expected,
            got=got,
            next_step=OTHER_PROGRAM_STEP,
        )


class AnswerRow(dict[str, Any]):
    """One row of an answer, by column name in lower case; `asked` is for errors.

    An access to a column that the answer does not have raises ServerAnswerError.
    """

    def __init__(self, values: Iterable[tuple[str, Any]], *, address: str, asked: str) -> None:
        super().__init__(values)
        self._address = address
        self._asked = asked

    def __missing__(self, column: str) -> Any:
        raise unexpected(
            self._address, self._asked, expected=f"a column {column}", got=", ".join(self) or "none"
        )

    def text(self, column: str) -> str:
        return text_of(self[column], address=self._address, asked=f"{self._asked}, {column}")

    def optional_text(self, column: str) -> str:
        """ "" for NULL."""
        return "" if self[column] is None else self.text(column)

    def number(self, column: str) -> int:
        return number_of(self[column], address=self._address, asked=f"{self._asked}, {column}")

    def optional_number(self, column: str, otherwise: int) -> int:
        """`otherwise` for NULL."""
        return otherwise if self[column] is None else self.number(column)


def named(
    names: Sequence[str], rows: Sequence[Sequence[Any]], *, address: str, asked: str
) -> list[AnswerRow]:
    """By column name in lower case (servers differ in case). Raises ServerAnswerError: a row has
    another number of values than there are names.
    """
    lowered = [name.lower() for name in names]
    for row in rows:
        if len(row) != len(lowered):
            raise unexpected(
                address, asked, expected=f"{len(lowered)} values a row", got=f"{len(row)}"
            )
    return [AnswerRow(zip(lowered, row, strict=True), address=address, asked=asked) for row in rows]


def loose_text(value: object) -> str:
    """For what is only looked at: also of bytes that are no UTF-8."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def text_of(value: object, *, address: str, asked: str) -> str:
    """Raises ServerAnswerError: no text."""
    if value is not None:
        data = value if isinstance(value, bytes) else str(value).encode(errors=_ESCAPED)
        with contextlib.suppress(UnicodeDecodeError):
            return data.decode()
        value = data
    raise unexpected(address, asked, expected="a text in UTF-8", got=value)


def number_of(value: object, *, address: str, asked: str) -> int:
    """A whole number from 0 on, of at most 64 bits. Raises ServerAnswerError: it is none."""
    text = value.decode("latin1") if isinstance(value, bytes) else str(value)
    if text.isascii() and text.isdigit() and len(text) <= 20 and int(text) <= _NUMBER_MAX:
        return int(text)
    raise unexpected(address, asked, expected="a whole number, 0 or more", got=value)


def unexpected(address: str, asked: str, *, expected: str, got: object) -> ServerAnswerError:
    shown = "NULL" if got is None else str(got)
    if len(shown) > _SHOWN_CHARACTERS:
        shown = shown[:_SHOWN_CHARACTERS] + "..."
    return ServerAnswerError(
        f"{address} gave an answer that cannot be used to: {asked}",
        expected=expected,
        got=shown,
        next_step=OTHER_PROGRAM_STEP,
    )
