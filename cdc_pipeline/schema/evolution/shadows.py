"""Shadow tables of gh-ost and pt-online-schema-change, from their CREATE to the RENAME that swaps
them in.

Rules:
- A shadow's rows are never captured: they are those of its table, copied. What is kept of it is the statements that
  made it differ from its table.
- At the swap these statements are decided as if they had been run on the table itself. What could have been lost in the
  copy (a renamed column, rows that a new unique key refuses) is not certain then.
- Plain values that outlive a run: they lie in the cursor.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from cdc_pipeline.schema.ddl.tokens import SqlModes

_STATEMENTS_MAX = 100


class ShadowStatement(BaseModel):
    """A statement that changed a shadow, with what its meaning depends on, and its place in the log."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sql: str
    database: str
    modes: SqlModes
    place: str = ""


class Shadow(BaseModel):
    """A shadow table.

    Attributes:
        of: the table that it began as a copy of, ``schema.table``.
        statements: what changed it since, in order.
        doubt: why its columns are not known with certainty; "" where they are.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    of: str
    statements: tuple[ShadowStatement, ...] = ()
    doubt: str = ""

    def then(self, statement: ShadowStatement) -> Shadow:
        """The shadow after another statement."""
        if any(statement.place == known.place for known in self.statements if known.place):
            return self  # read again
        if len(self.statements) >= _STATEMENTS_MAX:
            return self.model_copy(update={"doubt": f"it was altered more than {_STATEMENTS_MAX} times"})
        return self.model_copy(update={"statements": (*self.statements, statement)})
