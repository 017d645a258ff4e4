"""What is taken out of the rules that attacks on the first version taught (K20 to K28), and the test that must fail then."""

# ruff: noqa: E501 - texts of the sources stand here as they do there

from __future__ import annotations

from typing import Final

from tests.mutations.runner import Mutation

# -- K20: text is data ----------------------------------------------------------------------------------------------
_K20: Final[tuple[Mutation, ...]] = ()

# -- K21: durable before named --------------------------------------------------------------------------------------
_K21: Final[tuple[Mutation, ...]] = ()

# -- K22: nobody wedges the source ----------------------------------------------------------------------------------
_K22: Final[tuple[Mutation, ...]] = ()

# -- K23: what decides a value is followed --------------------------------------------------------------------------
_K23: Final[tuple[Mutation, ...]] = ()

# -- K24: the same log ----------------------------------------------------------------------------------------------
_K24: Final[tuple[Mutation, ...]] = ()

# -- K25: bounded ---------------------------------------------------------------------------------------------------
_K25: Final[tuple[Mutation, ...]] = ()

# -- K26: secrets stay out of text ----------------------------------------------------------------------------------
_K26: Final[tuple[Mutation, ...]] = (
    Mutation(
        "K26",
        "clear text is sent over checked TLS alone",
        "source/login.py",
        "(name in _CLEAR_TEXT and _is_verified(connection))",
        "name in _CLEAR_TEXT",
        "source_live/test_login.py::test_k26_clear_text_is_never_sent_to_an_unchecked_server",
    ),
    Mutation(
        "K26",
        "every connection asks what a server may see of the password",
        "source/server.py",
        '        "auth_plugin_map": LoginPlugins(),\n',
        "",
        "source_live/test_login.py::test_k26_clear_text_is_never_sent_to_an_unchecked_server",
    ),
    Mutation(
        "K26",
        "no key is taken from another machine without TLS",
        "source/login.py",
        "takes_key = connection._secure or",
        "takes_key = True or",
        "source_live/test_login.py::test_k26_no_key_is_taken_from_another_machine_without_tls",
    ),
    Mutation(
        "K26",
        "a literal is replaced in what is published of a statement",
        "schema/published.py",
        'return "?" if is_literal else None',
        "return None",
        "schema/test_published.py::test_k26_no_literal_is_in_what_is_published",
    ),
    Mutation(
        "K26",
        "what cannot be read with certainty is published without its text",
        "schema/published.py",
        "        if breaks_off:\n            return None\n",
        "",
        "schema/test_published.py::test_k26_broken_and_random_texts_give_nothing_away",
    ),
    Mutation(
        "K26",
        "what a server quotes goes",
        "foreign_words.py",
        'return _QUOTED.sub("?", text)',
        "return text",
        "house/test_foreign_words.py::test_k26_a_server_error_tells_no_value",
    ),
    Mutation(
        "K26",
        "a spill folder's parent belongs to this user",
        "private_folder.py",
        "if found.st_uid not in ours:",
        "if False:",
        "store/test_private_folder.py::test_k26_a_spill_folder_of_another_user_is_refused",
    ),
    Mutation(
        "K26",
        "a link in the place of the spill folder is not followed",
        "private_folder.py",
        "os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC",
        "os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC",
        "store/test_private_folder.py::test_k26_a_link_in_the_place_of_the_spill_folder_is_not_followed",
    ),
    Mutation(
        "K26",
        "a jar that is served has the checksum of the package",
        "sink/jars.py",
        "if pinned.get(jar.name) != sha256:",
        "if jar.name not in pinned:",
        "sink/test_java_and_jars.py::test_k26_a_jar_that_another_source_serves_is_refused",
    ),
    Mutation(
        "K26",
        "the lake's own folder is closed",
        "sink/lock.py",
        "make_private(path.parent)",
        "path.parent.mkdir(parents=True, exist_ok=True)",
        "store/test_private_folder.py::test_k26_a_lakes_own_folder_is_closed_at_the_next_run",
    ),
)

# -- K27: same input, same output -----------------------------------------------------------------------------------
_K27: Final[tuple[Mutation, ...]] = ()

# -- K28: a name shows its table ------------------------------------------------------------------------------------
_K28: Final[tuple[Mutation, ...]] = ()

ATTACKS: Final = (*_K20, *_K21, *_K22, *_K23, *_K24, *_K25, *_K26, *_K27, *_K28)
