"""States have one home: no other module lists their words, and every table says what follows each of its states."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from millrace.core import states

TOP = Path(__file__).resolve().parents[2]
HOME = TOP / "shared/millrace/core/states.py"
ENUMS = (states.JobStatus, states.ExecutionState, states.SlotState, states.AttemptState, states.StoredState, states.ClosingStep)
WORDS = {each.value for enum in ENUMS for each in enum} | set(get_args(states.JobState))


def words_of(nodes: list[ast.expr]) -> set[str]:
    return {node.value for node in nodes if isinstance(node, ast.Constant) and node.value in WORDS}


def lists(tree: ast.Module) -> Iterator[tuple[int, set[str]]]:
    """(line, words) of every display, `Literal` and class body that has several of the words."""
    for node in ast.walk(tree):
        groups: list[list[ast.expr]] = []
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            groups = [node.elts]
        elif isinstance(node, ast.Dict):
            groups = [[key for key in node.keys if key is not None], node.values]
        elif isinstance(node, ast.ClassDef):
            groups = [[each.value for each in node.body if isinstance(each, ast.Assign)]]
        for group in groups:
            if len(words_of(group)) > 1:
                yield node.lineno, words_of(group)


def test_no_other_module_lists_the_words_of_states() -> None:
    found = [
        f"{path.relative_to(TOP)}:{line} {sorted(words)}"
        for folder in ("shared", "services", "deploy")
        for path in sorted((TOP / folder).rglob("*.py"))
        if path != HOME
        for line, words in lists(ast.parse(path.read_text()))
    ]
    assert found == [], "take them from core/states.py"
    assert len(list(lists(ast.parse(HOME.read_text())))) > 5, "the search finds what it looks for"


@pytest.mark.parametrize(
    ("transitions", "enum", "elsewhere"),
    [
        (states.JOB_TRANSITIONS, states.JobStatus, set()),
        (states.EXECUTION_TRANSITIONS, states.ExecutionState, set()),
        (states.SLOT_TRANSITIONS, states.SlotState, {states.SlotState.PENDING}),
        (states.ATTEMPT_TRANSITIONS, states.AttemptState, set()),
        (states.STORED_TRANSITIONS, states.StoredState, set()),
        (states.CLOSING_TRANSITIONS, states.ClosingStep, set()),
    ],
)
def test_a_table_has_every_state_and_the_ends_are_where_nothing_follows(transitions, enum, elsewhere) -> None:
    assert set(transitions) == set(enum) - elsewhere
    assert {each for following in transitions.values() for each in following} <= set(transitions)


def test_the_types_of_messages_have_the_same_words_as_the_enums() -> None:
    assert set(get_args(states.Ending)) == set(states.ENDED_JOB) == set(states.ENDED_ATTEMPT) == set(states.ENDED_EXECUTION)
    assert set(states.ENDED_BY.values()) == set(states.ENDED_JOB)
    assert set(get_args(states.StatusShown)) == {states.INITIALIZING, *states.JobStatus}
    assert set(get_args(states.JobState)) == {"QUEUED", *get_args(states.StatusShown)}
    assert set(get_args(states.SlotStateReported)) == set(states.SLOT_TRANSITIONS)
    assert set(get_args(states.SlotStateFreed)) == set(states.SLOT_TRANSITIONS) - set(states.WITH_ALLOCATION)
    assert set(get_args(states.SlotStateShown)) < set(states.SLOT_TRANSITIONS)
    assert set(get_args(states.AttemptStateReported)) < set(states.ExecutionState)
    assert get_args(states.StoredStateWritten) == (*(each.value for each in states.StoredState),)
    assert get_args(states.ClosingStepShown) == (*(each.value for each in states.ClosingStep),)
    for check, (old, new) in (
        (states.check_job, (states.JobStatus.FINISHED, states.JobStatus.RUNNING)),
        (states.check_execution, (states.ExecutionState.CREATED, states.ExecutionState.RUNNING)),
        (states.check_slot, (states.SlotState.FREE, states.SlotState.ACTIVE)),
        (states.check_attempt, (states.AttemptState.FINISHED, states.AttemptState.RUNNING)),
        (states.check_stored, (states.StoredState.CLEAN, states.StoredState.DIRTY)),
        (states.check_closing, (states.ClosingStep.ENDING, states.ClosingStep.SUSPENDING)),
    ):
        with pytest.raises(AssertionError, match=f"{old.value} .* {new.value}"):
            check(old, new)
