"""Every kind of a fault that anything makes is in the one table, and the table has no other."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from millrace.core.faults import FAULTS, THEN, fault, then
from millrace.core.messages.attempts import Fault, FaultKind

SLOT = Path(__file__).parents[2] / "services" / "task_manager" / "slot"
KINDS = set(get_args(FaultKind))


def kinds_of(file: Path) -> Iterator[str]:
    """The kinds that a slot's file names where it makes a fault."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            given = [word.value for word in node.keywords if word.arg == "kind"] if name == "AttemptError" else []
            for each in [*given, *(node.args[:1] if name == "fault" else [])]:
                yield from (part.value for part in ast.walk(each) if isinstance(part, ast.Constant) and isinstance(part.value, str))


def test_the_table_has_every_kind_and_no_other() -> None:
    assert {kind for kind, _ in FAULTS} == KINDS
    assert all(row.then in THEN and row.what and row.help for row in FAULTS.values())


def test_every_kind_that_a_slot_makes_is_in_the_table() -> None:
    found = {kind for file in SLOT.rglob("*.py") for kind in kinds_of(file)}
    assert {"user", "analysis", "jvm", "killed", "exit", "infrastructure"} <= found <= KINDS


def test_no_core_makes_a_fault_that_is_not_in_the_table() -> None:
    with pytest.raises(AssertionError, match="no such fault"):
        fault("lost", "gone")


@pytest.mark.parametrize(("retryable", "follows"), [(True, "restarts"), (False, "fails")])
def test_a_kind_of_another_build_goes_by_whether_it_may_heal(retryable: bool, follows: str) -> None:
    assert then(Fault(kind="of another build", retryable=retryable, message="m")) == follows


def test_a_fault_keeps_what_it_does_not_know_and_writes_what_it_was_given() -> None:
    given = {"kind": "user", "message": "m", "line": None, "of_later": [1]}
    assert Fault.model_validate(given).json_value() == given
