"""A script's statements, and the settings of the session that runs it.

Rules:
- It is divided as the servers' clients do, with DELIMITER.
- A session begins with the server's global settings; USE and SET of the text change them. What an
  expression sets is not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Final

from cdc_pipeline.binlog.events.query import Query
from cdc_pipeline.config.pipeline_config import ArchiveSourceConfig, PipelineConfig
from cdc_pipeline.position.position import ServerIdentity
from cdc_pipeline.schema.ddl.sql_modes import bits_of
from cdc_pipeline.schema.ddl.tokens import UNKNOWN_MODES, SqlModes, Token, TokenKind, TokenReader

# Longest first: what a text's delimiter cannot end.
_PART: Final = re.compile(
    r"""(?P<blank>\s+|\#[^\n]*|--(?=[\x00-\x20]|$)[^\n]*|/\*(?!M?!).*?\*/)
    |(?P<quoted>'(?:[^'\\]|\\.|'')*+'|"(?:[^"\\]|\\.|"")*+"|`(?:[^`]|``)*+`|/\*.*?\*/|(?:['"`]|/\*).*)""",
    re.VERBOSE | re.DOTALL,
)
_DELIMITER: Final = re.compile(r"DELIMITER[ \t]+(\S+)[^\n]*", re.IGNORECASE)


def statements_of(script: str) -> Iterator[tuple[int, str]]:
    """Each with the number of its first line, from 1, and without comments before it."""
    delimiter, start, at = ";", -1, 0
    while at < len(script):
        blank_or_quoted = _PART.match(script, at)
        if start < 0:
            if blank_or_quoted is not None and blank_or_quoted.lastgroup == "blank":
                at = blank_or_quoted.end()
                continue
            if (changed := _DELIMITER.match(script, at)) is not None:
                delimiter, at = changed[1], changed.end()
                continue
        if script.startswith(delimiter, at):
            if start >= 0:
                yield script.count("\n", 0, start) + 1, script[start:at].rstrip()
            start, at = -1, at + len(delimiter)
            continue
        start = at if start < 0 else start
        at = at + 1 if blank_or_quoted is None else blank_or_quoted.end()
    if start >= 0:
        yield script.count("\n", 0, start) + 1, script[start:].rstrip()


@dataclass(frozen=True, slots=True)
class Session:
    """Settings that the meaning of the next statement depends on; None: not known."""

    database: str
    sql_mode: int | None = None
    explicit_defaults_for_timestamp: bool | None = None
    time_zone: str = ""
    server_charset: str = ""
    is_logged: bool | None = True

    def query(self, sql: str) -> Query:
        raw = sql.encode()
        return Query(
            sql,
            self.database,
            thread_id=0,
            error_code=0,
            sql_mode=self.sql_mode,
            time_zone=self.time_zone,
            explicit_defaults_for_timestamp=self.explicit_defaults_for_timestamp,
            charset="utf8mb4",
            raw=raw,
            is_exact=True,
            server_charset=self.server_charset,
        )

    def after(self, sql: str, *, is_mariadb: bool) -> Session:
        modes = SqlModes.from_bits(self.sql_mode or 0, is_mariadb=is_mariadb)
        if self.sql_mode is None:
            modes = UNKNOWN_MODES
        tokens = TokenReader(sql, modes=modes, is_mariadb=is_mariadb)
        if tokens.take("USE"):
            token = tokens.peek()  # a client's own command: its name ends at a blank
            name = sql[token.start :].split()[0] if token.kind is TokenKind.WORD else token.text
            return replace(self, database=name.rstrip(";"))
        session, is_own = self, True
        tokens.take("SET")
        while not tokens.at_end():
            start = tokens.index
            tokens.skip_to_comma()
            part = tokens.read[start : tokens.index]
            if not tokens.take(",") and not part:
                break
            keys = [token.key or token.text.upper() for token in part]
            equals = keys.index("=") if "=" in keys else 0
            left = [key for key in keys[:equals] if key not in "@.:"]
            is_system = "@" not in keys[:1] or keys[1:2] == ["@"]
            is_meant = is_own if len(left) < 2 else left[0] in ("SESSION", "LOCAL")
            if "@" not in keys[:equals]:
                is_own = is_meant  # a word counts for those after it, too
            if is_system and is_meant and left:
                session = session._setting(left[-1], part[equals + 1 :], is_mariadb)
        return session

    def _setting(self, name: str, value: list[Token], is_mariadb: bool) -> Session:
        while value and value[0].key == "(" and value[-1].key == ")":
            value = value[1:-1]
        text = value[0].text if len(value) == 1 else None  # None: an expression
        word = (text or "").upper()
        match name:
            case "SQL_LOG_BIN":
                is_on = word in (*_ON, "DEFAULT")
                return replace(self, is_logged=is_on if is_on or word in _OFF else None)
            case "SQL_MODE":
                is_plain = text is not None and not _COMBINED & {*word.split(",")}
                bits = bits_of(word, is_mariadb=is_mariadb) if is_plain else None
                return replace(self, sql_mode=int(word) if word.isdecimal() else bits)
            case "EXPLICIT_DEFAULTS_FOR_TIMESTAMP":
                is_explicit = word in _ON if word in (*_ON, *_OFF) else None
                return replace(self, explicit_defaults_for_timestamp=is_explicit)
            case "TIME_ZONE":
                return replace(self, time_zone="" if word == "DEFAULT" else text or "")
        return self


_ON: Final = ("1", "ON", "TRUE")
_OFF: Final = ("0", "OFF", "FALSE")
# A server adds the modes that they stand for.
_COMBINED: Final = frozenset(
    [
        "ANSI",
        "DB2",
        "MAXDB",
        "MSSQL",
        "MYSQL323",
        "MYSQL40",
        "ORACLE",
        "POSTGRESQL",
        "TRADITIONAL",
        "DEFAULT",
    ]
)


def global_settings(config: PipelineConfig, identity: ServerIdentity) -> dict[str, Any]:
    """Those of a session that sets none; none of an archive's server."""
    if isinstance(config.source, ArchiveSourceConfig):
        return {}
    # late: an archive never needs pymysql
    from cdc_pipeline.source.live.connection import ServerConnection

    names = ("sql_mode", "explicit_defaults_for_timestamp", "time_zone", "character_set_server")
    with closing(ServerConnection(config.source)) as server:
        values = server.variables(names)
    is_mariadb = identity.flavor == "mariadb"
    explicit = values.get("explicit_defaults_for_timestamp")
    return {
        "sql_mode": bits_of(values["sql_mode"], is_mariadb=is_mariadb),
        "explicit_defaults_for_timestamp": None if explicit is None else explicit == "ON",
        "time_zone": values["time_zone"],
        "server_charset": values["character_set_server"],
    }
