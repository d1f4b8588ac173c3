"""The services' real machines in one process, each answering the others at once: inboxes as long as one likes."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from millrace.core.fold import TICK_MS, Fold, FoldResult, ScopeState
from millrace.core.jobgraph.model import DEFAULT_LIMITS
from millrace.core.messages import client, effects, jobs, slots
from millrace.core.messages.base import Body
from millrace.core.messages.records import Client, Elected, Fact, Hello, Message, Outcome, Part, Tick, decode, encode
from millrace.core.topics import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, TASK_MANAGER, Topology
from millrace.edge.requests import check_graph
from services.replay.machines import fold_of

START_MS = 1_700_000_000_000
TASK_MANAGERS, SLOTS = 2, 4
JOBS_A_TICK = 20  # no flood, in which they would wait


class Said(NamedTuple):
    """A record for Kafka."""

    topic: str
    partition: int
    key: str
    value: bytes
    stamp_ms: int
    id: str


class Party:
    """One scope: its fold, and the offset that the next record of its inbox gets."""

    def __init__(self, scope: str, topology: Topology, life: int) -> None:
        self.scope, self.life = scope, life
        self.fold: Fold = fold_of(scope, topology)
        self.folded: ScopeState = self.fold.blank(life, 0)
        self.log = topology.inbox(scope)
        self.public = not scope.startswith(TASK_MANAGER)  # its inbox is its journal


class Conversation:
    """Gives each record to `out` as it is written. `jobs`: how many have been submitted; all of them have ended."""

    def __init__(self, graph: dict[str, Any], out: Callable[[Said], None], build: str, alone: bool = False) -> None:
        """`alone`: only the Dispatcher is real; a JobMaster that says what one says of a small job answers it, which is faster."""
        self.topology, self._out, self.jobs, self.now_ms = Topology(), out, 0, START_MS
        checked = check_graph(graph, {}, DEFAULT_LIMITS)
        assert checked.stored is not None, checked.problems
        self._graph, self._stored = graph, checked.stored
        self._waiting: deque[tuple[Party, Part, bytes]] = deque()
        self._last: tuple[int, int] | None = None  # the key of what the scripted JobMaster said last
        names = [DISPATCHER] if alone else [*self.topology.scopes(), *(f"{TASK_MANAGER}/tm-{n}" for n in range(TASK_MANAGERS))]
        self.parties = {name: Party(name, self.topology, 1 if n < 3 else 100 + n) for n, name in enumerate(names)}
        for party in self.parties.values():
            settings = {} if party.public else {
                "incarnation": party.life, "host": "h", "allocation_timeout_ms": 10_000, "slots_memory_mb": [512] * SLOTS,
            }  # fmt: skip
            self._tell(party, Elected(generation=party.life, epoch=party.life, build=build, who=party.scope, settings=settings))
        if alone:
            self._say(Hello())
        self._drain()
        for party in self.parties.values():
            if not party.public:
                for slot in range(SLOTS):
                    self._tell(party, Fact(body=slots.SlotReady(slot=slot)))
        self._tick()

    def submit(self) -> str:
        """One job from its submission to its end; its id."""
        job, offset = f"job-{self.jobs:06d}", self.jobs
        request = client.SubmitJob(job=job, graph=self._graph, reply_to="client", correlation=str(offset))
        self._out(Said("client.commands", 0, "", request.model_dump_json().encode(), self.now_ms, ""))
        copied = request.model_copy(update={"graph": {}})
        record = Client(log="clients", prev=offset - 1, offset=offset, request=copied, graph=self._stored, digest=f"{offset:064x}")
        self._tell(self.parties[DISPATCHER], record)
        self._drain()
        self.jobs, self.now_ms = self.jobs + 1, self.now_ms + TICK_MS // JOBS_A_TICK
        if self.now_ms % TICK_MS == 0:
            self._tick()
        return job

    def _tick(self) -> None:
        for party in self.parties.values():
            folded = party.folded
            self._tell(party, Tick(
                epoch=folded.epoch, n=folded.tick + 1, published_through=folded.said, digest=folded.ticked_digest,
            ))  # fmt: skip
        self._drain()

    def _tell(self, party: Party, record: Part) -> None:
        value = encode(record)
        self._put(party, value, "")
        self._waiting.append((party, record, value))

    def _put(self, party: Party, value: bytes, id: str) -> None:
        if party.public or id:
            self._out(Said(*party.log, party.scope, value, self.now_ms, id))

    def _drain(self) -> None:
        while self._waiting:
            party, record, _ = self._waiting.popleft()
            folded = party.folded
            told = party.fold.fold(folded, folded.next_offset, self.now_ms, record)
            assert told.damage is None, told.damage
            self._carry_out(party, told)

    def _carry_out(self, party: Party, told: FoldResult) -> None:
        for said in told.said:
            id = f"{party.scope}/{party.life}/{said.seq}"
            receiver = self.parties.get(said.key) if said.topic.endswith(".commands") else None
            if said.type == "StartJob" and receiver is None:
                self._answer(json.loads(said.value)["body"])
            value = said.value.encode()
            if receiver is None:
                self._out(Said(said.topic, said.partition, said.key, value, self.now_ms, id))
                continue
            self._put(receiver, value, id)
            record = decode(value)
            assert isinstance(record, Message)
            self._waiting.append((receiver, record, value))
        for name in told.done:
            self._perform(party, name, json.loads(party.folded.effects[name].effect))

    def _answer(self, start: dict[str, Any]) -> None:
        """What the Dispatcher hears of a job of one attempt."""
        job = start["job"]
        self._say(jobs.JobMasterStarted(job=job, status="RUNNING"))
        self._say(jobs.JobEnded(
            job=job, acceptance=start["acceptance"], status="FINISHED", cause=None, ended_ms=self.now_ms, archive=None,
        ))  # fmt: skip

    def _say(self, body: Body) -> None:
        key = ((self._last or (0, 0))[0] + 1, 0)
        self._tell(self.parties[DISPATCHER], Message(
            to=DISPATCHER, to_life=1 if self._last else 0, sender=f"{JOB_MASTER}/0", life=1, key=key, prev=self._last, body=body,
        ))  # fmt: skip
        self._last = key

    def _perform(self, party: Party, name: str, effect: dict[str, Any]) -> None:
        kind = effect["type"]
        if kind == "LaunchAttempt":
            attempt, slot = effect["attempt"], effect["slot"]
            self._tell(party, Outcome(effect=name, result=effects.AttemptLaunched(attempt=attempt)))
            report = {"outputs": {each["id"]: {"schema": "{}"} for each in effect["spec"].get("vertices", ())}, "result": None}
            for fact in (
                slots.AttemptRunning(slot=slot, attempt=attempt),
                slots.AttemptEnded(slot=slot, attempt=attempt, status="finished", report=report),
                slots.SlotReady(slot=slot),
            ):
                self._tell(party, Fact(body=fact))
            return
        outcomes: dict[str, Callable[[], Any]] = {
            "PutJobGraph": lambda: effects.JobGraphStored(
                job=effect["job"], stands=effects.StoredJob(**{**effect["stored"], "graph": None})
            ),
            "EndJob": lambda: effects.JobResultStored(job=effect["job"], stands=effects.StoredJob(**effect["ending"])),
            "CleanJob": lambda: effects.JobCleaned(job=effect["job"]),
            "RecoverJobs": lambda: effects.JobsRecovered(jobs={}),
        }
        self._tell(party, Outcome(effect=name, result=outcomes[kind]()))


SCOPES = (DISPATCHER, RESOURCE_MANAGER, f"{JOB_MASTER}/0")
