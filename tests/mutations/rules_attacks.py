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
_WEDGE: Final = "pipeline/test_wedge.py::"

_K22: Final[tuple[Mutation, ...]] = (
    Mutation(
        "K22",
        "a name that is too long for a folder is shortened",
        "sink/lake.py",
        "    if escaped and len(escaped) <= _FOLDER_NAME_BYTES_MAX:\n",
        "    if escaped:\n",
        "sink/test_lake.py::test_k22_every_name_has_a_plain_folder_that_fits",
    ),
    Mutation(
        "K22",
        "a shortened name carries a hash of the whole",
        "sink/lake.py",
        "hashlib.sha256(name.encode())",
        "hashlib.sha256(name[:8].encode())",
        "sink/test_lake.py::test_k22_two_names_never_share_a_folder",
    ),
    Mutation(
        "K22",
        "a log with a commit is no remains of a CREATE",
        "sink/half_made.py",
        "    return all(name == _FIRST_COMMIT and not (log / name).stat().st_size for name in others)\n",
        "    return True\n",
        "sink/test_half_made.py::test_k22_whatever_else_lies_there_stays",
    ),
    Mutation(
        "K22",
        "a batch that is taken up again suspends what fails again",
        "sink/delta.py",
        "            if is_of_the_machine(failure) or (failure.retryable and not recovered):\n",
        "            if is_of_the_machine(failure) or failure.retryable:\n",
        _WEDGE + "test_k22_a_step_that_fails_suspends_its_target",
    ),
    Mutation(
        "K22",
        "a full disk suspends nobody",
        "sink/delta.py",
        "            if is_of_the_machine(failure) or (failure.retryable and not recovered):\n",
        "            if failure.retryable and not recovered:\n",
        _WEDGE + "test_k22_what_the_machine_fails_suspends_nobody",
    ),
    Mutation(
        "K22",
        "what is caught up and fails again keeps nobody else from it",
        "sink/delta.py",
        'again = recovered or record.kind == "catch_up"',
        "again = recovered",
        _WEDGE + "test_k22_a_table_that_fails_for_good_does_not_keep_others_from_catching_up",
    ),
    Mutation(
        "K22",
        "a load's damaged file stops no capture",
        "pipeline/load_state.py",
        "            found.append(_damaged(folder, error))\n            continue\n",
        "            raise\n",
        "cli/test_ways_out.py::test_k22_a_table_that_others_changed_is_rebuilt_from_the_archive",
    ),
)

# -- K23: what decides a value is followed --------------------------------------------------------------------------
_K23: Final[tuple[Mutation, ...]] = ()

# -- K24: the same log ----------------------------------------------------------------------------------------------
_K24: Final[tuple[Mutation, ...]] = ()

# -- K25: bounded ---------------------------------------------------------------------------------------------------
_K25: Final[tuple[Mutation, ...]] = ()

# -- K26: secrets stay out of text ----------------------------------------------------------------------------------
_K26: Final[tuple[Mutation, ...]] = ()

# -- K27: same input, same output -----------------------------------------------------------------------------------
_K27: Final[tuple[Mutation, ...]] = ()

# -- K28: a name shows its table ------------------------------------------------------------------------------------
_K28: Final[tuple[Mutation, ...]] = ()

ATTACKS: Final = (*_K20, *_K21, *_K22, *_K23, *_K24, *_K25, *_K26, *_K27, *_K28)
