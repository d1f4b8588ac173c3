"""Clients of a simulated cluster: they write client.commands and read what is public."""

from __future__ import annotations

import json
from typing import Any

from millrace.core.messages import base, client
from millrace.core.messages.base import Body
from millrace.core.messages.contracts import EVENTS as EVENT_BODIES
from millrace.core.messages.requests import REPLIES
from tests.simulation.bus import MemoryBus
from tests.simulation.world import World

REPLIES: dict[str, type[Body]] = {body.model_fields["type"].default: body for body in REPLIES}
EVENTS: dict[str, type[Body]] = {body.model_fields["type"].default: body for body in EVENT_BODIES}


class Client:
    """One client, named by its `reply_to`. What it sends reaches the broker at once."""

    def __init__(self, world: World, name: str = "client") -> None:
        self._world, self.name = world, name
        self._bus = MemoryBus(world.broker, client_id=name, on_fatal=_refused, stranger=True)
        self.asked = self.junk = 0
        self.requests: list[type[base.Request]] = []

    def send(self, value: bytes) -> None:
        """Bytes that are no request, as a stranger may."""
        self.junk += 1
        self._append(value)

    def answered_below(self) -> int:
        """The offset of the oldest request without an answer."""
        log, answered = self._world.broker.log("client.commands", 0), self.replies()
        for record in log.records:
            if not record.value.startswith(b'{"') or json.loads(record.value)["correlation"] not in answered:
                return record.offset
        return log.end

    def delete_below(self, offset: int) -> None:
        """Old requests go."""
        self._bus.delete_below("client.commands", 0, offset)

    def _append(self, value: bytes) -> None:
        self._bus.append("client.commands", 0, value)
        self._bus.serve()

    def ask(self, request: type[base.Request], **fields: Any) -> str:
        """Sends a request; its correlation."""
        self.asked += 1
        self.requests.append(request)
        correlation = f"{self.name}-{self.asked}"
        body = request(reply_to=self.name, correlation=correlation, **fields)
        self._append(body.model_dump_json().encode())
        return correlation

    def tell(self, request: type[base.Request], **fields: Any) -> None:
        """Sends a request that wants no answer."""
        self._append(request(**fields).model_dump_json().encode())

    def submit(self, job: str, graph: dict[str, Any], **fields: Any) -> str:
        if "speculative" in graph:
            self._world.book.speculative[job] = None
        return self.ask(client.SubmitJob, job=job, graph=graph, **fields)

    def cancel(self, job: str) -> str:
        return self.ask(client.CancelJob, job=job)

    def replies(self) -> dict[str, list[base.Reply]]:
        """Correlation -> what was answered; an answer said again by a new leader has the same id, and counts once."""
        partition = self._world.topology.partition("client.replies", self.name)
        found: dict[str, dict[bytes, base.Reply]] = {}
        for record in self._world.broker.log("client.replies", partition).records:
            if record.key == self.name.encode():
                reply: Any = REPLIES[json.loads(record.value)["type"]].model_validate_json(record.value)
                found.setdefault(reply.correlation, {})[dict(record.headers)["ce_id"]] = reply
        return {correlation: list(replies.values()) for correlation, replies in found.items()}

    def events(self, job: str) -> list[Any]:
        """The public events of a job, each once."""
        partition = self._world.topology.events_partition(job)
        found: dict[bytes, Any] = {}
        for record in self._world.broker.log("job.events", partition).records:
            if record.key == job.encode():
                found[dict(record.headers)["ce_id"]] = EVENTS[json.loads(record.value)["type"]].model_validate_json(
                    record.value
                )
        return list(found.values())


def _refused(reason: str) -> None:
    raise AssertionError(reason)
