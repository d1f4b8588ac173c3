"""Scenarios as text: commands, `----`, and what came of them.

A file holds blocks; each has commands, one a line (# begins a comment), a line `----`, the output, an empty line. A block's
output is what its commands print: `run` prints the records that flowed meanwhile, `show` prints a state. See COMMANDS.
"""

from __future__ import annotations

import json
import random
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import fsspec

from millrace.core.messages import base, requirements, schedules
from millrace.core.messages.requests import REQUESTS
from millrace.core.topics import RESOURCE_MANAGER, Topology
from millrace.runtime import shut_down
from tests.simulation import workload
from tests.simulation.audit import audit
from tests.simulation.behaviour import Behaviour, Timing
from tests.simulation.cluster import Cluster
from tests.simulation.control import ControlProcess
from tests.simulation.provider import MemoryProvider
from tests.simulation.slots import ANALYSIS_ERROR, read_by
from tests.simulation.store import MemoryStore
from tests.simulation.world import PREFIX
from tests.transcripts.flow import Flow

SEPARATOR = "----"
CALM = Timing(
    start=(300, 300),
    launch=(20, 20),
    run=(100, 100),
    kill=(20, 20),
    asked=(20, 20),
    reset=(30, 30),
    repair=(1_000, 1_000),
    replaced=0.0,
)
GRAPHS: dict[str, Callable[..., dict[str, Any]]] = {
    "single": workload.single,
    "wide": workload.wide,
    "joined": workload.joined,
    "diamond": workload.diamond,
    "sink": workload.sink,
}
BEHAVIOURS = {
    "finish": Behaviour(),
    "fail": Behaviour("fail"),
    "fail-analysis": Behaviour("fail", error=ANALYSIS_ERROR),
    "hang": Behaviour("hang"),
    "break": Behaviour("break"),
    "stuck": Behaviour("stuck"),
}


class Calm(random.Random):
    """Chance that never surprises: everything happens in its turn, so that a transcript changes only where its words do."""

    def random(self) -> float:
        return 0.999

    def choice(self, seq: Sequence[Any]) -> Any:
        return seq[-1]

    def randint(self, a: int, b: int) -> int:
        return a

    def shuffle(self, x: Any) -> None: ...


@dataclass
class Block:
    """Commands with the output that is written below them."""

    commands: list[str]
    output: str


def parse(text: str) -> list[Block]:
    """The blocks of a file."""
    blocks = []
    for part in re.split(r"\n\n+", text.strip()):
        commands, separator, output = f"{part}\n".partition(f"{SEPARATOR}\n")
        assert separator, f"a block without {SEPARATOR}:\n{part}"
        blocks.append(Block(commands.splitlines(), output))
    return blocks


def rewritten(text: str) -> str:
    """The file with the output that its commands have now."""
    scenario = Scenario()
    parts = []
    for block in parse(text):
        output = "".join(f"{line}\n" for command in block.commands for line in scenario.run(command))
        parts.append("".join(f"{command}\n" for command in block.commands) + f"{SEPARATOR}\n{output}")
    return "\n".join(parts)


class Scenario:
    """Carries out commands; each yields its lines."""

    def __init__(self) -> None:
        self._cluster: Cluster | None = None
        self._behaviours: dict[tuple[str, str], list[str]] = {}  # (job, task) -> of its next attempts
        self._flow: Flow | None = None
        self._provider: MemoryProvider | None = None

    @property
    def cluster(self) -> Cluster:
        assert self._cluster is not None, "a scenario begins with the command cluster"
        return self._cluster

    def run(self, line: str) -> Iterator[str]:
        if not line.startswith("#"):
            words = shlex.split(line)
            yield from COMMANDS[words[0]](self, words[1:])

    # the cluster

    def make(self, words: list[str]) -> Iterator[str]:
        """cluster [task-managers=N] [slots=N] [shards=N] [replicas=N]: a new one, that has come to be ready. With [least=N] most=N a
        provider starts its TaskManagers, and stops them after [idle=MS]. With late=1 its ResourceManager is started by `start`."""
        given = {name: int(value) for name, _, value in (word.partition("=") for word in words)}
        late = "late" in given
        services = ("dispatcher", *(() if late else (RESOURCE_MANAGER,)), "job-master")
        replicas = range(1, given.get("replicas", 1) + 1)
        most, slots = given.get("most"), given.get("slots", 1)
        control = tuple(f"{service}#{number}" for service in services for number in replicas)
        provided = {
            "provider": "memory", "task_managers_min": given.get("least", 0), "task_managers_max": most, "worker_slots": slots,
            "worker_memory_mb": 1024, "worker_idle_ms": given.get("idle", 60_000), "worker_start_ms": 5_000,
        }  # fmt: skip
        self._cluster = cluster = Cluster(
            Topology(shards=given.get("shards", 1)),
            task_managers=given.get("task-managers", 1 if most is None else 0),
            slots=slots,
            script=self._behave,
            timing=CALM,
            control=control if most is None else (),
            deciding={} if most is None else {RESOURCE_MANAGER: provided},
        )
        cluster.world.random = Calm()
        if most is not None:
            self._provider = MemoryProvider(cluster, most)
            for name in control:
                cluster.start(name)
        workload.upload_module(cluster.world)
        cluster.run(None if late else cluster.at_rest, most_ms=3_000 if late else 20_000)
        self._flow = Flow(cluster.world)
        yield from ()

    def _behave(self, spec: dict[str, Any]) -> Behaviour:
        following = self._behaviours.get((spec["job"], spec["task"]))
        if following and following[0] == "lost":
            following.pop(0)
            return Behaviour("fail", error=workload.lost_rows(read_by(spec)))
        return BEHAVIOURS[following.pop(0) if len(following) > 1 else following[0]] if following else Behaviour()

    def attempts(self, words: list[str]) -> Iterator[str]:
        """attempts JOB TASK BEHAVIOUR...: of this task's attempts in their order; the last one stays."""
        job, task, *behaviours = words
        self._behaviours[job, task] = behaviours
        yield from ()

    def process(self, words: list[str], what: str) -> Iterator[str]:
        """kill | stop | start NAME..."""
        for name in words:
            getattr(self.cluster, what)(name)
        yield from ()

    def open_again(self, words: list[str]) -> Iterator[str]:
        """open: a cluster that is shut down is provisioned again; `start` its services then."""
        assert shut_down.reopen(MemoryStore(self.cluster.world.etcd, PREFIX)) is not None, "it is not shut down"
        yield from ()

    def provide(self, words: list[str]) -> Iterator[str]:
        """provider away | refuses | loses-answers | mute | doubles | heals | loses ID: what is wrong with it from now on."""
        assert self._provider is not None, "a scenario with a provider begins with most=N"
        if words[0] == "heals":
            self._provider.heal()
        elif words[0] == "loses":
            self._provider.lose(words[1])
        else:
            setattr(self._provider, words[0].replace("-", "_"), True)
        yield from ()

    # clients

    def submit(self, words: list[str]) -> Iterator[str]:
        """submit JOB GRAPH [JSON]: with these fields of the graph; it is named as the job, or by the field `name`."""
        job, graph, *rest = words
        fields = json.loads(rest[0] if rest else "{}")
        self.cluster.client.submit(job, GRAPHS[graph](fields.pop("name", job), **fields))
        yield from ()

    def ask(self, words: list[str]) -> Iterator[str]:
        """ask REQUEST [JOB | FIELD=VALUE...]: CancelJob one, GetClusterOverview, DescribeTaskManager task_manager=1, ..."""
        request: type[base.Request] = next(each for each in REQUESTS if each.__name__ == words[0])
        given = dict(word.partition("=")[::2] if "=" in word else ("job", word) for word in words[1:])
        fields = {name: True if value == "true" else value for name, value in given.items()}
        self.cluster.client.ask(request, **fields)
        yield from ()

    def rescale(self, words: list[str]) -> Iterator[str]:
        """rescale JOB N | VERTEX=N...: another parallelism."""
        job, *given = words
        vertices = {vertex: int(number) for vertex, equals, number in (word.partition("=") for word in given) if equals}
        every = next((int(word) for word in given if "=" not in word), None)
        self.cluster.client.ask(requirements.UpdateRequirements, job=job, parallelism=every, vertices=vertices)
        yield from ()

    def schedule(self, words: list[str]) -> Iterator[str]:
        """schedule NAME GRAPH [FIELD=VALUE...]: sets a schedule with this graph."""
        fields = dict(word.partition("=")[::2] for word in words[2:])
        graph = GRAPHS[words[1]](words[1])
        self.cluster.client.ask(schedules.SetSchedule, schedule=words[0], graph=graph, **{"cron": "* * * * *", **fields})
        yield from ()

    def send(self, words: list[str]) -> Iterator[str]:
        """send TEXT: these bytes to client.commands."""
        self.cluster.client.send(words[0].encode())
        yield from ()

    # time

    def go(self, words: list[str]) -> Iterator[str]:
        """run N ms | until CONDITION...: prints what flowed. quietly: does not.

        Conditions: ready; rest (all jobs have ended, all slots are free); over (no control service runs); ended JOB...; status JOB STATUS;
        attempt JOB TASK STATE; stored JOB (in etcd); said TYPE [WORD] (a record of this type, with this word in it)."""
        quietly = words[0] == "quietly"
        words = words[quietly:]
        cluster = self.cluster
        assert self._flow is not None
        if words[-1] == "ms":
            cluster.run(most_ms=int(words[0]))
        else:
            assert words[0] == "until", words
            cluster.run(self._condition(words[1:]), most_ms=60_000)
        lines = list(self._flow.lines())
        if not quietly:
            yield from lines

    def _condition(self, words: list[str]) -> Callable[[], bool]:
        cluster, (kind, *rest) = self.cluster, words
        if kind == "ready":
            return cluster.ready
        if kind == "rest":
            return cluster.at_rest
        if kind == "over":
            control = [each for each in cluster.processes.values() if isinstance(each, ControlProcess)]
            return lambda: not any(each.alive for each in control)
        if kind == "ended":
            return lambda: cluster.ended(*rest)
        if kind == "stored":
            return lambda: cluster.stored(rest[0]) is not None
        if kind == "status":
            return lambda: any(getattr(each, "status", "") == rest[1] for each in cluster.client.events(rest[0]))
        if kind == "attempt":
            return lambda: any(
                (getattr(each, "task", ""), getattr(each, "state", "")) == (rest[1], rest[2])
                for each in cluster.client.events(rest[0])
            )
        assert kind == "said", kind
        first = len(cluster.world.broker.journal)
        word = f'"type":"{rest[0]}"'.encode()
        also = rest[1].encode() if len(rest) > 1 else b""
        return lambda: any(word in each.value and also in each.value for each in cluster.world.broker.journal[first:])

    # states

    def show(self, words: list[str]) -> Iterator[str]:
        """show jobs | slots | events JOB | sink NAME | dead-letters | replies | attempts"""
        yield from getattr(self, f"_show_{words[0].replace('-', '_')}")(*words[1:])

    def _show_jobs(self) -> Iterator[str]:
        for job, status in sorted(self.cluster.statuses().items()):
            yield f"{job}: {status or 'live'}"

    def _show_slots(self) -> Iterator[str]:
        folded = self.cluster.leader(RESOURCE_MANAGER)
        assert folded is not None
        for name, each in sorted(folded.state.task_managers.items()):
            for number, slot in each.slots.items():
                yield f"{name}/{number}: {slot.state.value}{f' by {slot.job}' if slot.job else ''}"

    def _show_events(self, job: str) -> Iterator[str]:
        for event in self.cluster.client.events(job):
            fields = event.model_dump(
                exclude={"type", "version", "job", "at_ms", "count", "tasks", "archive", "result", "name"}
            )
            yield f"{event.type} {' '.join(f'{k}={_short(v)}' for k, v in fields.items() if v is not None)}".rstrip()

    def _show_attempts(self) -> Iterator[str]:
        """What was launched, in order, in all of the cluster's time."""
        yield from self.cluster.world.book.launched

    def _show_sink(self, name: str) -> Iterator[str]:
        """The files at its path, with the attempts that wrote them."""
        fs = fsspec.filesystem("memory")
        for path in sorted(fs.find("/out")):
            if path.startswith((f"/out/{name}/", f"/out/.{name}.staging/")):
                # Names hold acceptance and life, which say nothing here.
                yield f"{re.sub(r'[^/]+(?=-[0-9]{5}-)', '<unique>', path)}: {fs.cat_file(path).decode()}"

    def _show_dead_letters(self) -> Iterator[str]:
        for record in self.cluster.world.broker.log("dead-letters", 0).records:
            letter = json.loads(record.value)
            yield f"{letter['topic']} {letter['offset']}, {letter['size_bytes']} bytes: {letter['reason']}"

    def _show_replies(self) -> Iterator[str]:
        for correlation, replies in self.cluster.client.replies().items():
            for reply in replies:
                fields = reply.model_dump(exclude={"type", "version", "correlation"}, exclude_defaults=True)
                fields = {k: v for k, v in fields.items() if k not in ("archive", "ended_ms", "events_partition")}
                yield f"{correlation}: {reply.type} {' '.join(f'{k}={_short(v)}' for k, v in fields.items())}"

    def check(self, words: list[str]) -> Iterator[str]:
        """audit: nothing is lost, doubled or left over."""
        self.cluster.run(self.cluster.ready, most_ms=20_000)
        self.cluster.run(most_ms=3_000)
        audit(self.cluster)
        yield "all is well"


def _short(value: Any) -> str:
    if isinstance(value, dict) and "message" in value:
        return repr(value["message"])
    return json.dumps(value) if isinstance(value, (dict, list)) else str(value)


COMMANDS: dict[str, Callable[[Scenario, list[str]], Iterator[str]]] = {
    "cluster": Scenario.make,
    "attempts": Scenario.attempts,
    "kill": lambda scenario, words: scenario.process(words, "kill"),
    "stop": lambda scenario, words: scenario.process(words, "stop"),
    "start": lambda scenario, words: scenario.process(words, "start"),
    "open": Scenario.open_again,
    "provider": Scenario.provide,
    "submit": Scenario.submit,
    "ask": Scenario.ask,
    "rescale": Scenario.rescale,
    "schedule": Scenario.schedule,
    "send": Scenario.send,
    "run": Scenario.go,
    "show": Scenario.show,
    "audit": Scenario.check,
}
