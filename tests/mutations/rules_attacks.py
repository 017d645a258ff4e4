"""What is taken out of the rules that attacks on the first version taught (K20 to K28), and the test that must fail then."""

# ruff: noqa: E501 - texts of the sources stand here as they do there

from __future__ import annotations

from typing import Final

from tests.mutations.runner import Mutation

# -- K20: text is data ----------------------------------------------------------------------------------------------
_K20: Final[tuple[Mutation, ...]] = ()

# -- K21: durable before named --------------------------------------------------------------------------------------
_DURABILITY: Final = "sink/test_durability.py::"
_K21: Final[tuple[Mutation, ...]] = (
    Mutation(
        "K21",
        "the disk is waited for before the cut",
        "sink/delta.py",
        "        failures |= self._make_durable(record, previous, logs)\n",
        "",
        _DURABILITY + "test_k21_the_disk_has_all_that_a_cut_names_before_it_has_the_cut",
    ),
    Mutation(
        "K21",
        "folders are waited for, too",
        "sink/durability.py",
        "for folder, name in folders.items()], failures)",
        "for folder, name in ()], failures)",
        _DURABILITY + "test_k21_the_disk_has_all_that_a_cut_names_before_it_has_the_cut",
    ),
    Mutation(
        "K21",
        "a torn checksum file makes a whole file unreadable",
        "sink/durability.py",
        '        _sync(file.path.parent / f".{file.path.name}.crc", os.O_RDONLY)\n',
        "        pass\n",
        _DURABILITY + "test_k21_the_disk_has_all_that_a_cut_names_before_it_has_the_cut",
    ),
    Mutation(
        "K21",
        "a wait that failed is not believed the second time",
        "sink/delta.py",
        "            distrust(self.paths)\n",
        "            pass\n",
        _DURABILITY + "test_k21_a_file_that_the_disk_refuses_is_not_named_and_is_made_again",
    ),
    Mutation(
        "K21",
        "after a power cut a log that looks whole proves nothing",
        "sink/power_cut.py",
        "        if any(is_of_batch(commit,",
        "        if False and any(is_of_batch(commit,",
        _DURABILITY + "test_k21_a_batch_that_a_power_cut_tore_is_applied_again",
    ),
    Mutation(
        "K21",
        "what a vacuum relies on stays",
        "sink/power_cut.py",
        "(first == 0 or _is_whole(table, first - 1))",
        "True",
        _DURABILITY + "test_k21_what_a_vacuum_relies_on_is_not_undone",
    ),
    Mutation(
        "K21",
        "a cut takes over what the disk has",
        "sink/retention.py",
        "if version == named or make_durable({name: Commits(path, named, version)}, lake=paths.lake):",
        "if version == named:",
        _DURABILITY + "test_k21_a_cut_takes_over_a_maintenance_that_the_disk_has",
    ),
    Mutation(
        "K16",
        "a file is replaced as this process has read it",
        "sink/object_storage.py",
        "seen = self._seen[key] if key in self._seen else self._present_tag(key)",
        "seen = self._present_tag(key)",
        "object_store/test_state.py::test_k16_a_paused_writer_sets_no_file_back",
    ),
    Mutation(
        "K16",
        "the lock is looked at once it is known what to remove",
        "sink/storage.py",
        "        sizes = at.store.sizes(at.key)\n        check()\n",
        "        check()\n        sizes = at.store.sizes(at.key)\n",
        "object_store/test_state.py::test_k16_who_has_lost_the_lock_removes_nothing_of_its_new_holder",
    ),
)

# -- K22: nobody wedges the source ----------------------------------------------------------------------------------
_K22: Final[tuple[Mutation, ...]] = ()

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
