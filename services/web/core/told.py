"""What a record of `job.events` or `cluster.events` must be before a table takes it in.

Whoever may write to these topics may write anything. A time that is a text, kept as it stands, would stop each list that is sorted by it,
and the next start of this service.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from millrace.core.clocks import TIME_MOST_MS
from millrace.core.messages import events
from millrace.core.messages.base import JOB_ID_PATTERN, Body, OneOf
from millrace.core.messages.contracts import FACTS
from millrace.core.messages.execution import TaskOutline

from .archived import BETWEEN, STATES, SUBTASKS_MOST
from .cluster import TOPIC as CLUSTER_EVENTS
from .jobs import TOPIC as JOB_EVENTS

NUMBER_MOST = (1 << 53) - 1  # whoever reads JSON in a browser cannot tell larger ones apart
BOUNDS = {
    **dict.fromkeys(("at_ms", "created_ms", "scheduled_ms", "expected_ms"), TIME_MOST_MS),
    **dict.fromkeys(("subtask", "slot", "slots"), SUBTASKS_MOST),
    **dict.fromkeys(("count", "attempt", "beside", "position", "incarnation", "epoch", "generation", "least", "most"), NUMBER_MOST),
}
"""Field -> the largest number that it may have; the least is 0."""
DOUBLE_BITS = 1023  # of a whole number that is a double
HUGE = re.compile(rb"[0-9]{200}|[0-9][eE]\+?[0-9]{3}")
"""As a number looks that may be too large for a float."""
JOB_ID = re.compile(JOB_ID_PATTERN)
BODIES = {
    body.model_fields["type"].default: body
    for (topic, _), bodies in FACTS.items() if topic in (JOB_EVENTS, CLUSTER_EVENTS) for body in bodies
}  # fmt: skip
NUMBERS = {kind: [(name, most) for name, most in BOUNDS.items() if name in body.model_fields] for kind, body in BODIES.items()}
annotated: Any = Annotated  # of a value, which a type checker does not take for a type
_validate: Callable[..., Any] = TypeAdapter(annotated[Body, OneOf(BODIES.values())]).validator.validate_json


def told(value: bytes) -> dict[str, Any]:
    """The body of a fact. One of a kind that this build knows is as its contract has it, within bounds that the contract leaves open; what
    a later build has added to it stays. Raises ValueError for what is none."""
    body = from_json(value, allow_inf_nan=False)
    if not isinstance(body, dict) or not isinstance(body.get("type"), str):
        raise ValueError("it is no JSON object with a type")
    if HUGE.search(value) and _is_huge(body):
        raise ValueError("it has a number that is too large")
    if body["type"] in BODIES:
        try:
            fact = _validate(value, extra="ignore")
        except ValidationError as failure:
            first = failure.errors(include_url=False, include_input=False)[0]
            raise ValueError(f"its {'.'.join(map(str, first['loc'][1:]))}: {first['msg']}") from None
        for wrong in _wrong(fact):
            raise ValueError(wrong)
    return body


def _wrong(fact: Any) -> Iterator[str]:
    """What its contract allows, and no table can hold."""
    for name, most in NUMBERS[fact.type]:
        if (number := getattr(fact, name)) is not None and not 0 <= number <= most:
            yield f"its {name} is not between 0 and {most}"
    job = getattr(fact, "job", None)
    if job is not None and not JOB_ID.fullmatch(job):
        yield "no job has this name"
    match fact:
        case events.JobStateChanged() if fact.status not in BETWEEN:
            yield "its status is that of no live job"
        case events.AttemptStateChanged() if fact.state not in STATES:
            yield "its state is that of no attempt"
        case events.JobAccepted() | events.JobRescaled():
            yield from _wrong_tasks(fact.tasks)
        case events.SubtasksKept() if not all(0 <= number < SUBTASKS_MOST for number in fact.subtasks):
            yield "it names a subtask that no task has"
        case events.TaskManagerJoined() if len(fact.states) > SUBTASKS_MOST:
            yield "it has more slots than a TaskManager can have"
        case events.EdgeSkewed():
            numbers = [number for part in (fact.edge, *fact.edge.heaviest) for _, number in part if isinstance(number, int)]
            if not all(0 <= number <= NUMBER_MOST for number in numbers):
                yield "its edge has a number that none can have"
            if not fact.edge.keys or any(len(each.key) != len(fact.edge.keys) for each in fact.edge.heaviest):
                yield "its edge has a key without its columns"
        case events.BlocklistChanged():
            if not all(0 <= ms <= TIME_MOST_MS for host in fact.hosts for ms in (host.since_ms, host.until_ms or 0)):
                yield "a host is blocked at a time that is none"


def _wrong_tasks(tasks: Sequence[TaskOutline]) -> Iterator[str]:
    """Who draws them goes from a task to those that it reads, which must come to an end."""
    numbers = [task.parallelism for task in tasks]
    if min(numbers, default=1) < 1 or sum(numbers) > SUBTASKS_MOST:
        yield "a task has a parallelism that none can have"
    before: set[str] = set()
    for task in tasks:
        if task.task in before or not before.issuperset(each.task for each in task.inputs):
            yield "a task is there twice, or reads one that is not before it"
        before.add(task.task)


def _is_huge(value: Any) -> bool:
    """Whether a number is in it that no float can be."""
    if isinstance(value, dict | list):
        return any(map(_is_huge, value.values() if isinstance(value, dict) else value))
    return value.bit_length() > DOUBLE_BITS if isinstance(value, int) else isinstance(value, float) and value * 0 != 0
