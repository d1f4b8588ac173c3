"""The table of mutants is that of the mutants, and some of them are killed here."""

from __future__ import annotations

import pytest

from tests.simulation.__main__ import differing, main
from tests.simulation.mutants import MUTANTS
from tests.simulation.mutants.running import DOCUMENT, Verdict, brief, document, listed, merged, run_mutant
from tests.simulation.running import Result, run_seeds, seeds_of

TEXT = DOCUMENT.read_text()
QUICK = ("duplicates count", "attempt numbers are not counted")
SOME = (*QUICK, *(pytest.param(name, marks=pytest.mark.long) for name in [*MUTANTS][::7] if name not in QUICK))  # all: `make mutants`


def test_the_table_lists_the_mutants_that_there_are() -> None:
    assert sorted(each.mutant.name for each in listed(TEXT)) == sorted(MUTANTS), "`make mutants` writes it"
    assert merged(TEXT, ()) == TEXT, "`make mutants` writes it"


@pytest.mark.parametrize("name", SOME)
def test_a_mutant_is_killed(name: str) -> None:
    assert not run_mutant(MUTANTS[name]).survives


def test_a_table_says_what_came_of_each() -> None:
    first, second, *_ = MUTANTS.values()
    verdicts = [Verdict(first, 3, "I9"), Verdict(second, 200)]
    assert sorted(listed(document(verdicts)), key=lambda each: each.seeds) == verdicts
    assert merged(document(verdicts), [Verdict(second, 8, "I2")]) == document([verdicts[0], Verdict(second, 8, "I2")])


def test_what_killed_it_is_told_in_a_word() -> None:
    assert brief("seed 3, faults 8: AssertionError: I7: one starts twice\n1 ms: ...") == "I7"
    assert brief("seed 3, faults 8: Stuck: I10: ['job-1'] do not go on: ...") == "I10"
    assert brief("seed 3, faults 8: AssertionError: [R8]: dispatcher is reborn, and its log is whole") == "rule 8"
    assert brief("seed 3, faults 8: KeyError: 'job-1'") == "a process ends: KeyError"


def test_seeds_are_numbers_and_ranges() -> None:
    assert seeds_of("17") == [17]
    assert seeds_of("3, 10-12,11") == [3, 10, 11, 12]
    for wrong in ("", "a", "5-3", "1-"):
        with pytest.raises(ValueError):
            seeds_of(wrong)


@pytest.mark.parametrize("seeds", [range(300, 303), pytest.param(range(303, 308), marks=pytest.mark.long)], ids=str)
def test_seeds_draw_faults_and_jobs_and_nothing_is_broken(seeds: range) -> None:
    results = list(run_seeds(seeds, 1))
    assert [result.failure for result in results] == [None] * len(seeds)
    assert min(sum(result.faults.values()) for result in results) >= 3
    assert min(result.jobs for result in results) >= 5


def test_the_command_runs_its_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["308,309", "--workers", "1"]) == 0
    assert "failures: 0" in capsys.readouterr().out


def test_a_seed_that_is_not_the_same_again_is_told() -> None:
    once = [Result(1, "a", 10, 5, {}), Result(2, "b", 10, 5, {})]
    assert differing(once, [once[1], Result(1, "c", 10, 5, {})]) == [1]
