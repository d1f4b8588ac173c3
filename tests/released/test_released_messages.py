"""TaskManagers of 0.1.0 are replaced last: until then they and the new control services understand each other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from millrace.core.messages.links import LINKS
from millrace.core.messages.records import Forked, Hello
from millrace.core.messages.slots import AllocateSlots, AnswerClient, DrainTaskManager, FreeUnused, OrderAttempts
from millrace.core.topics import TASK_MANAGER
from tests.docs.compatibility import Comparison

OLD = json.loads((Path(__file__).parent / "task-manager-0.1.0.json").read_text())
NEVER_SENT = (OrderAttempts, DrainTaskManager, AnswerClient, FreeUnused, AllocateSlots)
"""To a TaskManager that has reported no progress, as those of 0.1.0 do not: test_job_master_inspection.py. To one that no provider has
started: test_resource_manager_draining.py. To one that registered without its build: test_resource_manager_asking.py,
test_resource_manager_silent.py, test_resource_manager_machine.py."""
UNSENT = {"CancelTasks": "within_ms"}
"""Fields that it is not sent: test_job_master_canceling.py."""
NEW = {
    body.__name__: body
    for (_, receiver), bodies in LINKS.items() if receiver == TASK_MANAGER
    for body in (*bodies, Hello, Forked) if body not in NEVER_SENT
}  # fmt: skip
NOW = {body.__name__: body for (sender, _), bodies in LINKS.items() if sender == TASK_MANAGER for body in (*bodies, Hello, Forked)}


@pytest.mark.parametrize("name", NEW)
def test_a_task_manager_of_0_1_0_takes_all_that_it_is_told(name: str) -> None:
    """It refuses fields that it does not know, and ends."""
    schema = NEW[name].model_json_schema()
    if name in UNSENT:
        del schema["properties"][UNSENT[name]]
    assert Comparison(OLD["heard"][name], schema).reasons() == []


@pytest.mark.parametrize("name", OLD["said"])
def test_what_a_task_manager_of_0_1_0_says_is_understood(name: str) -> None:
    assert Comparison(NOW[name].model_json_schema(), OLD["said"][name]).reasons() == []


def test_a_field_that_is_new_to_it_would_be_found() -> None:
    schema = NEW["AllocateSlot"].model_json_schema()
    schema["properties"]["more"] = {"type": "integer"}
    assert Comparison(OLD["heard"]["AllocateSlot"], schema).reasons() != []
