"""All that is looked at, in the order in which one thing stands on another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from millrace import __version__
from millrace.core.messages.client import ClusterOverview
from millrace.io.etcd.store import EtcdStore
from millrace.io.interfaces import Unavailable
from millrace.runtime.service import TopologyMissing, read_topology

from . import etcd, here, kafka, scopes
from .findings import Finding, Unreachable, note, ok, problem

T = TypeVar("T")
RECOVER = (
    "Kafka has its topics, so etcd has lost its data, or that is another cluster's name: end all control services, restore etcd from a "
    "backup, run `millrace recover`, start them again; only if there is no backup, or it never was provisioned, before that: "
)


@dataclass(frozen=True)
class Where:
    """The cluster to look at; `stack`: the local stack that it is, if it is one."""

    kafka: str
    etcd: str
    cluster: str = "default"
    stack: Any = None


@dataclass
class Report:
    """What was found. `unreachable`: why no more could be looked at."""

    findings: list[Finding] = field(default_factory=list)
    unreachable: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    """What Kafka and etcd say, for a bundle."""

    @property
    def problems(self) -> int:
        return sum(finding.level == "problem" for finding in self.findings)

    def shown(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "version": __version__, "unreachable": self.unreachable or None, "problems": self.problems,
            "findings": [finding.shown() for finding in self.findings],
        }  # fmt: skip


def examine(where: Where) -> Report:
    """Looks at everything that can be reached. Raises nothing for what cannot."""
    report = Report()
    try:
        for finding in _look(where, report.facts):
            report.findings.append(finding)
    except (Unreachable, Unavailable) as failure:
        report.unreachable = str(failure)
    return report


def _look(where: Where, facts: dict[str, Any]) -> Iterator[Finding]:
    status = where.stack.status() if where.stack is not None else None
    if status is not None:
        yield here.java()
        yield here.disk(status)
        if status["state"] == "stopped":
            yield from here.ports(where.stack.facts())
            raise Unreachable(f"stack {where.stack.name} does not run: start it with `millrace up --detach{where.stack.option}`")
        yield from here.processes(status)
    away: list[str] = []
    cluster, members = _asked(kafka.read, where.kafka, away), _asked(etcd.read, where.etcd, away)
    if cluster is not None:
        facts["kafka"] = kafka.facts(cluster)
        yield from kafka.versions(cluster)
        yield from kafka.settings(cluster)
    if members is not None:
        facts["etcd"] = [member.__dict__ for member in members]
        yield from etcd.findings(members, brought=where.stack is not None)
        for member in members:
            if member.clock_ms is not None:
                yield from scopes.clock(f"etcd at {member.endpoint}", member.clock_ms)
    if cluster is None or members is None:
        raise Unreachable(f"{'; '.join(away)}: start what does not run, or name its right address, and ask again for the rest")
    yield from _machines(where, cluster, status, facts)
    yield from _answers(where)


def _asked(read: Callable[[str], T], address: str, away: list[str]) -> T | None:
    """What it says; None: it does not answer, which `away` is told. Kafka and etcd are both asked before either is told to be missing."""
    try:
        return read(address)
    except Unreachable as failure:
        away.append(str(failure))
        return None


def _machines(
    where: Where, cluster: kafka.Cluster, status: dict[str, Any] | None, facts: dict[str, Any]
) -> Iterator[Finding]:
    store = EtcdStore(where.etcd, f"/millrace/{where.cluster}/")
    try:
        topology = read_topology(store)
    except TopologyMissing:
        lost = RECOVER if kafka.INBOX in cluster.topics else ""
        yield problem("topology", f"etcd knows no cluster {where.cluster!r}", lost + kafka.PROVISION)
        return
    try:
        yield from kafka.topics(cluster, topology)
        yield from etcd.jobs(store)
        found = scopes.read(where.kafka, store, topology)
        facts["scopes"] = [scope.__dict__ for scope in found]
        yield from scopes.findings(found)
        if status is not None:
            yield from here.lag(where.stack.status(), {scope.scope: scope.end for scope in found})
        yield from scopes.dead_letters(where.kafka)
    finally:
        store.close()


def none_registered(overview: ClusterOverview) -> Finding:
    """That is as it should be where a provider starts TaskManagers when jobs wait, and stops them afterwards."""
    its = overview.provided
    if its is not None and its.most and (its.starting or not overview.waiting_jobs):
        started = f"{its.starting} of at most {its.most} are being started"
        return ok("TaskManagers", f"none is registered, {started}; {overview.waiting_jobs} jobs wait")
    by_hand = "start one (`python -m services.task_manager`), or see the log of the one that runs"
    hint = "`millrace queue` says why none is started" if its is not None and its.most else by_hand
    return problem("TaskManagers", f"none is registered; {overview.waiting_jobs} jobs wait", hint)


def _answers(where: Where) -> Iterator[Finding]:
    """One question on the whole way: client, Dispatcher, ResourceManager, and back."""
    from millrace.client import Millrace, MillraceError

    try:
        with Millrace(where.kafka, timeout_s=5.0) as millrace:
            overview = millrace.overview()
    except MillraceError as failure:
        yield problem("answers", f"the cluster does not answer a client: {failure}", "mend what is said above of its machines first")
        return
    if overview.silent is not None:
        yield problem("answers", f"{overview.silent} has not answered a client's question", "see the log of the process that hosts it")
    elif overview.task_managers == 0:
        yield none_registered(overview)
    elif overview.slots == 0 or (overview.free_slots == 0 and overview.waiting_jobs):
        yield note(
            "TaskManagers", f"{overview.waiting_jobs} jobs wait: no slot of {overview.slots} is free", "`millrace slots` shows what runs"
        )
    else:
        yield ok("TaskManagers", f"{overview.task_managers} with {overview.slots} slots, {overview.free_slots} free")


