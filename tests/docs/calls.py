"""Every call of the original runtime, and what carries it here: docs/calls.md is made of these rows.

A row names what no program can find: the tests, the command, the route. Messages lead to their handlers and to transcripts by themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from millrace.core.messages import slots
from millrace.core.messages.base import Body
from millrace.core.messages.jobs import (
    DeclareAgain,
    JobMasterDeclared,
    JobMasterHeartbeat,
    NotEnoughResources,
    ReconcileSlots,
    TaskManagersParted,
)
from millrace.core.messages.processes import AskProcess, ProcessDescribed
from millrace.core.messages.records import Forked, Hello
from services.dispatcher.core import questions
from services.dispatcher.core.machine import HANDLERS as OF_DISPATCHER
from services.job_master.core.machine import HANDLERS as OF_JOB_MASTER
from services.resource_manager.core.machine import HANDLERS as OF_RESOURCE_MANAGER
from services.task_manager.core.machine import HANDLERS as OF_TASK_MANAGER

TRANSCRIPTS = Path(__file__).parents[1] / "transcripts"
MACHINES = (OF_DISPATCHER, OF_RESOURCE_MANAGER, OF_JOB_MASTER, OF_TASK_MANAGER)
ELSEWHERE: dict[type[Body], str] = {
    Hello: "core/fold.py:Fold", Forked: "core/fold.py:Fold", AskProcess: "runtime/asked.py:Questions",
}  # fmt: skip
"""What takes a message that is no machine's: of the chains themselves, and of a process that leads nothing."""

_RARE = "test_rare_messages.py:"
FORK, PARTED, UNUSED, TOO_LARGE = (
    f"{_RARE}test_a_log_that_was_cut_while_nobody_had_read_it_is_found_by_a_peer",
    f"{_RARE}test_a_reborn_resource_manager_learns_from_shards_who_is_lost",
    f"{_RARE}test_a_slot_that_a_dead_shard_does_not_use_is_taken_back",
    f"{_RARE}test_a_job_that_no_slot_is_large_enough_for_fails_after_a_while",
)
GIVEN_UP, PASSED = (
    f"{_RARE}test_what_a_shard_holds_unused_that_stays_away_is_freed", f"{_RARE}test_what_nobody_was_notified_of_is_reconciled",
)  # fmt: skip
ASKED = "test_io_inspection.py:test_a_process_answers_what_it_is_asked_and_what_all_are_asked"
SIMULATED: dict[type[Body], str] = {
    Hello: FORK, Forked: FORK, TaskManagersParted: PARTED, JobMasterDeclared: PARTED, slots.TaskManagerHeartbeat: PARTED,
    JobMasterHeartbeat: PASSED, ReconcileSlots: PASSED, slots.FreeUnused: GIVEN_UP,
    slots.FailSlot: UNUSED, slots.SlotUnused: UNUSED, DeclareAgain: UNUSED, NotEnoughResources: TOO_LARGE,
    AskProcess: ASKED, ProcessDescribed: ASKED,
}  # fmt: skip
"""Messages that no transcript shows: the test that sees them sent."""


@dataclass(frozen=True)
class Call:
    """A call of the original, and what does the same here. `cli`: commands; `rest`: routes. Of a client's request they send it; of a
    message between services they show what came of it. "none: " begins a reason why there is none."""

    name: str
    messages: tuple[type[Body], ...] = ()
    """The call, then its answers."""
    tests: tuple[str, ...] = ()
    """`test_x.py:test_y`."""
    cli: str = ""
    rest: str = ""
    done_by: tuple[str, ...] = ()
    """Of a call within a process, which is no message."""
    scenario: str = ""
    """The same: a transcript where it happens."""

    @property
    def handlers(self) -> tuple[str, ...]:
        return self.done_by or tuple(dict.fromkeys(place for body in self.messages for place in handlers_of(body)))

    @property
    def scenarios(self) -> tuple[str, ...]:
        return (self.scenario,) if self.scenario else tuple(dict.fromkeys(scenario_of(each) for each in self.messages))


@dataclass(frozen=True)
class Absent:
    """A call of the original that is not here. `name`: the message that would carry it."""

    call: str
    name: str
    why: str


def handlers_of(body: type[Body]) -> Iterator[str]:
    """Where a message is handled. A reply has none: its client has."""
    if body in ELSEWHERE:
        yield ELSEWHERE[body]
    if body in questions.JOB_REQUESTS:
        row = questions.JOB_REQUESTS[body]
        yield from (_place(each) for each in (row.live, row.ended, row.unknown))
    if body in questions.OTHER_REQUESTS:
        yield _place(questions.OTHER_REQUESTS[body].answer)
    yield from (_place(handlers[body]) for handlers in MACHINES if body in handlers)


def _place(function: Callable[..., object]) -> str:
    path = function.__module__.replace(".", "/").removeprefix("services/").removeprefix("millrace/")
    return f"{path}.py:{function.__qualname__.partition('.<locals>')[0]}"


def scenario_of(body: type[Body]) -> str:
    """The first transcript in which the message flows, else the test of the simulator that sees it; "": there is none."""
    found = [name for name, text in _transcripts().items() if re.search(rf"^\S.* -> \S+ +{body.__name__}\b", text, re.MULTILINE)]
    return f"tests/transcripts/{found[0]}" if found else SIMULATED.get(body, "")


@cache
def _transcripts() -> dict[str, str]:
    """The scene of one job comes first, the others by name."""
    files = sorted(TRANSCRIPTS.glob("*.txt"), key=lambda file: (file.name != "submission.txt", file.name))
    return {file.name: file.read_text() for file in files}


def rows_of(calls: tuple[Call, ...]) -> Iterator[tuple[str, ...]]:
    for call in calls:
        names = [f"`{each.__name__}`" for each in call.messages]
        carried = names[0] + (f" → {', '.join(names[1:])}" if names[1:] else "") if names else "(within the process)"
        shown = _shown(call.cli, "millrace "), _shown(call.rest)
        yield call.name, carried, _code(call.handlers), _code(call.tests), _code(call.scenarios), *shown


HEAD = ("call", "message", "handled by", "unit tests", "scenario", "CLI", "REST")


def _code(places: tuple[str, ...]) -> str:
    return " ".join(f"`{each}`" for each in places)


def _shown(text: str, prefix: str = "") -> str:
    return text if text.startswith("none: ") else ", ".join(f"`{prefix}{each}`" for each in text.split(", "))
