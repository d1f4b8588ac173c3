"""The records that flowed through Kafka, as short lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from millrace.core.messages.records import Client, Elected, Message, Outcome, decode
from millrace.io.interfaces import Received
from tests.simulation.world import World

LEFT_OUT = ("Hello", "TaskManagerHeartbeat", "JobMasterHeartbeat")
FIELDS = (
    "job",
    "kind",
    "status",
    "state",
    "task",
    "subtask",
    "slot",
    "slots",
    "reason",
    "within_ms",
    "problem",
    "position",
    "cause",
    "error",
)
WIDTH = 34


class Flow:
    """Tells each record once, in the order of all partitions together; ticks, probes, hellos and heartbeats are left out."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._next = len(world.broker.journal)
        self._seen: dict[tuple[Any, ...], None] = {}

    def lines(self) -> Iterator[str]:
        """What flowed since this was last called."""
        return (line for _, line in self.stamped())

    def stamped(self) -> Iterator[tuple[int, str]]:
        """(when, line) of what flowed since. When: by the clock of the world, whatever the broker's is set to."""
        journal = self._world.broker.journal
        while self._next < len(journal):
            line, at_ms = self._line(journal[self._next]), self._world.broker.times_ms[self._next]
            self._next += 1
            if line is not None:
                yield at_ms, line

    def _line(self, received: Received) -> str | None:
        if not received.topic.endswith(".commands") or received.topic == "client.commands":
            return self._public(received)
        record = decode(received.value)
        scope = (received.key or b"").decode()
        if isinstance(record, Message):
            if record.body.type in LEFT_OUT:
                return None
            what = f"{record.body.type} {_fields(record.body.model_dump())}"
            return self._told(
                f"{record.sender} -> {record.to}", what, (record.sender, record.life, record.key, record.to)
            )
        if isinstance(record, Outcome):
            name = f"{record.result.type} {_fields(record.result.model_dump())}"
            return self._told(f"outside -> {scope}", name, ("outcome", scope, record.effect))
        if isinstance(record, Elected):
            return f"{record.who} leads {scope}"
        if isinstance(record, Client):
            what = (
                "a refusal"
                if record.request is None
                else f"{record.request.type} {_fields(record.request.model_dump())}"
            )
            return self._told(f"client port -> {scope}", what, ("client", record.log, record.offset))
        return None

    def _public(self, received: Received) -> str:
        try:
            value = json.loads(received.value)
            what = f"{value['type']} {_fields(value)}"
        except (ValueError, KeyError, TypeError):
            return f"{'client -> client.commands':{WIDTH}} {received.value[:60]!r}"
        if received.topic == "client.commands":
            return f"{'client -> client.commands':{WIDTH}} {what}".rstrip()
        source = next((v.decode() for k, v in received.headers if k == "ce_source"), "").removeprefix("/millrace/")
        ce_id = next((v.decode() for k, v in received.headers if k == "ce_id"), "")
        return self._told(f"{source} -> {received.topic}", what, ("public", ce_id))

    def _told(self, way: str, what: str, identity: tuple[Any, ...]) -> str:
        again = " (again)" if identity in self._seen else ""
        self._seen[identity] = None
        return f"{way:{WIDTH}} {what}".rstrip() + again


def _fields(body: dict[str, Any]) -> str:
    told = [str(body["job"])] if body.get("job") else []
    for name in FIELDS[1:]:
        value = body.get(name)
        if value is None or value == "" or isinstance(value, (list, bool)) or (name == "within_ms" and not value):
            continue
        if isinstance(value, dict):
            if not {"message", "progress"} & value.keys():
                continue
            value = repr(value["message"]) if "message" in value else _progress(value["progress"])
        told.append(f"{name}={value}")
    if body.get("tasks") and body["type"] == "DeployTasks":
        told += [task["attempt"] for task in body["tasks"]]
    if body.get("attempts"):
        told += [each if isinstance(each, str) else _attempt(each) for each in body["attempts"]]
    if isinstance(body.get("attempt"), str):
        told.append(body["attempt"])
    if isinstance(body.get("attempt"), int):
        told.append(f"attempt={body['attempt']}")
    told += [f"slot {offer['slot']} for {offer['job']}" for offer in body.get("offers", ())]
    if isinstance(body.get("states"), list):
        told += [each if isinstance(each, str) else f"{each['slot']}:{each['state']}" for each in body["states"]]
    if isinstance(body.get("task_manager"), str) and body["type"] != "AttemptStateChanged":
        told.append(body["task_manager"])
    if isinstance(body.get("worker"), str):
        told.append(body["worker"])
    if isinstance(body.get("stands"), dict):
        stands = body["stands"]
        told.append(f"({' '.join(str(each) for each in (stands['state'], stands['status']) if each)})")
    return " ".join(told)


def _attempt(each: dict[str, Any]) -> str:
    if "state" in each:
        return f"{each['attempt']} {each['state']}"
    progress = each.get("progress") or (each.get("status") or {}).get("progress")
    how = _progress(progress) if progress else f"silent={each['silent']!r}"
    return f"{each['attempt']} {how}"


def _progress(progress: dict[str, int]) -> str:
    return f"tasks {progress['tasks_done']}/{progress['tasks_total']}"
