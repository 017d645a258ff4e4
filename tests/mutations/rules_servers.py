"""What is taken out of the rules about a server as it is set up (K31, K32), and the test that must
fail then."""

from __future__ import annotations

from typing import Final

from tests.mutations.runner import Mutation

_SESSION: Final = "source/live/test_session.py::"
SERVERS: Final[tuple[Mutation, ...]] = (
    Mutation(
        "K31",
        "what a server's init_connect did is undone",
        "source/live/session.py",
        "_RESET_CONNECTION: Final = 0x1F",
        "_RESET_CONNECTION: Final = 0x0E",
        _SESSION + "test_k31_f83_hostile_settings_change_no_answer",
    ),
    Mutation(
        "K31",
        "every connection has the same session",
        "source/live/connection.py",
        "        session.prepare(connection)\n",
        "        pass\n",
        _SESSION + "test_k31_f83_hostile_settings_change_no_answer",
    ),
    Mutation(
        "K32",
        "a value that is not UTF-8 does not cost the whole answer",
        "source/live/answers.py",
        "        self.encoding = _ENCODING\n",
        "",
        _SESSION + "test_k32_f78_a_default_that_is_no_text_hides_no_foreign_key",
    ),
)
