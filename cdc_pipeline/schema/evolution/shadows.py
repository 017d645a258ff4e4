"""Shadow tables of gh-ost and pt-online-schema-change, from their CREATE to the RENAME that swaps
them in.

Rules:
- A shadow's rows are never captured: they are copies of its table's rows. Only the statements that
  made it differ from its table are kept.
- At the swap these statements are decided as if they had run on the table itself. Whatever the copy
  could have lost (a renamed column, rows that a new unique key refuses) counts as uncertain.
- These are plain values that outlive a run: the cursor stores them.
"""

from __future__ import annotations

from cdc_pipeline.frozen_model import FrozenModel
from cdc_pipeline.schema.ddl.tokens import SqlModes

_STATEMENTS_MAX = 100


class ShadowStatement(FrozenModel):
    """A statement that changed a shadow, with the context its meaning depends on."""

    sql: str
    database: str
    modes: SqlModes
    place: str = ""


class Shadow(FrozenModel):
    """A shadow of the table `of`, ``schema.table``; `doubt` says why its columns are uncertain."""

    of: str
    statements: tuple[ShadowStatement, ...] = ()
    doubt: str = ""

    def then(self, statement: ShadowStatement) -> Shadow:
        if any(statement.place == known.place for known in self.statements if known.place):
            return self  # read again
        if len(self.statements) >= _STATEMENTS_MAX:
            return self.model_copy(
                update={"doubt": f"it was altered more than {_STATEMENTS_MAX} times"}
            )
        return self.model_copy(update={"statements": (*self.statements, statement)})
