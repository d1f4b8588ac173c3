"""The Dispatcher's intake: what strangers write to client.commands, decoded strictly and checked once.

What comes out is a Client record: either a request that the machine can take at its word, or a refusal for dead-letters.
"""

from __future__ import annotations

import base64
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import structlog

from millrace.core import trace_context
from millrace.core.bounded import fitting
from millrace.core.jobgraph.model import JobGraph, Limits
from millrace.core.jobgraph.parse import Refused
from millrace.core.jobgraph.problems import Problem
from millrace.core.messages import client, schedules
from millrace.core.messages.base import canonical
from millrace.core.messages.records import Client, Excerpt, Refusal
from millrace.core.origins import repairs_of
from millrace.core.trace_context import HEADER, STATE, fields_of, without
from millrace.edge.files import check_files
from millrace.edge.requests import GRAPH_BYTES_MOST, Checked, check_graph, decode
from millrace.edge.sql import look
from millrace.io.interfaces import Received
from millrace.io.storage.disk_space import DiskSpace
from millrace.io.storage.store import Storage, upload_path

from .schedules import times

PROBLEMS_BYTES_MOST = 200_000
HEAD_BYTES = 4096
WAITING_HEAD_BYTES = 512  # of a submission that may be refused later: up to 50,000 of them wait in the machine's state
CACHED_MOST, CACHED_BYTES_MOST = 256, 32 * 1024

log = structlog.get_logger("intake")


@dataclass(frozen=True)
class Found:
    """A graph of somebody else, as it is to be stored, with its digest; or what is wrong with it. `lack`: why it cannot be taken now."""

    graph: dict[str, Any] | None = None
    digest: str = ""
    problems: list[client.Problem] = field(default_factory=list)
    lack: str = ""


class Intake:
    """Decodes and checks. Not for several threads at once.

    check_local_files: also refuse a graph whose local source files are not on this machine; for clusters on one machine.
    disk_space: without room there, submissions are to be refused.
    """

    def __init__(
        self, storage: Storage, limits: Limits, check_local_files: bool = False, disk_space: DiskSpace | None = None
    ) -> None:
        self._storage, self._limits, self._check_local_files = storage, limits, check_local_files
        self._disk_space = disk_space or DiskSpace(storage)
        self._cache: OrderedDict[str, Checked] = OrderedDict()  # digest of a submission -> what it is found to be
        look("SELECT 1")  # loads the parser now, and not for the first submission

    def record(self, received: Received, log: str, prev: int) -> Client:  # [R26]
        """The record for the Dispatcher's inbox. Raises nothing for any bytes; StorageError when storage is away."""
        record = partial(
            Client, log=log, prev=prev, offset=received.offset, partition=received.partition, stamp_ms=received.stamp_ms
        )
        try:
            request = decode(received.value, self._limits)
        except Refused as refused:
            return record(refusal=_refusal(received.value, str(refused)))
        if isinstance(request, schedules.SetSchedule):
            return self._schedule(record, request, received)
        if not isinstance(request, client.SubmitJob):
            return record(request=request)
        request, trace = _parted(request, received)
        text = canonical({"graph": request.graph, "parameters": request.parameters})
        digest = hashlib.sha256(text).hexdigest()
        checked = self._checked(request.graph, request.parameters, digest, len(text))
        if "sources" in request.graph:  # a comment above a query makes no other job of it
            graph = {name: part for name, part in request.graph.items() if name != "sources"}
            digest = hashlib.sha256(canonical({"graph": graph, "parameters": request.parameters})).hexdigest()
        problems = [*checked.problems, *(self._elsewhere(checked.graph) if checked.graph else ())]
        good = checked.stored is not None and not problems
        if not good and not request.reply_to:  # nobody would ever hear of it
            return record(refusal=_refusal(received.value, _reason_of(request.job, problems)))
        return record(
            request=request.model_copy(update={"graph": {}, "parameters": {}}),
            problems=_listed(problems),
            warnings=_listed(checked.warnings),
            graph={**(checked.stored or {}), **trace} if good else None,
            digest=digest if good else None,
            excerpt=None if request.reply_to else _excerpt(received.value, WAITING_HEAD_BYTES),
            lack=self._disk_space.shortage() if good else "",
        )

    def graph(self, raw: Mapping[str, Any]) -> Found:  # [R30]
        """What somebody else has put into etcd as a graph, its parameters put in. Raises StorageError when storage is away."""
        graph = without(raw)
        try:
            text = canonical({"graph": graph, "parameters": {}})
        except (TypeError, ValueError):
            return Found(problems=[client.Problem(place=[], message="the graph is no JSON")])
        if len(text) > 2 * GRAPH_BYTES_MOST:
            return Found(problems=[client.Problem(place=[], message=f"the graph has more than the {GRAPH_BYTES_MOST} bytes allowed")])
        bare = {name: part for name, part in graph.items() if name != "sources"}
        digest = hashlib.sha256(canonical({"graph": bare, "parameters": {}})).hexdigest()
        checked = self._checked(graph, {}, hashlib.sha256(text).hexdigest(), len(text))
        problems = [*checked.problems, *(self._elsewhere(checked.graph) if checked.graph else ())]
        if repairs_of(graph) is not None:
            problems.append(Problem((), "it begins with data of a job that it repairs", "submit it: only that is given them"))
        if checked.stored is None or problems:
            return Found(problems=_listed(problems))
        return Found({**checked.stored, **fields_of(trace_context.given(raw))}, digest, lack=self._disk_space.shortage())

    def _schedule(self, record: Callable[..., Client], request: schedules.SetSchedule, received: Received) -> Client:
        """What is wrong with it now. The graph is checked with the parameters of its next run; files need not be there yet."""
        graph = without(request.graph)
        problems = times.problems(request.cron, request.time_zone, received.stamp_ms)
        parameters = request.parameters
        if not problems:
            due_ms = next(times.after(request.cron, request.time_zone, received.stamp_ms), received.stamp_ms)
            parameters = times.parameters(graph, parameters, request.cron, request.time_zone, due_ms)
        size = len(canonical([graph, request.parameters]))
        if size > GRAPH_BYTES_MOST:
            hint = "keep data out of it: put it into files, or upload it as a module"
            problems.append(Problem((), f"the graph has {size} bytes, more than the {GRAPH_BYTES_MOST} allowed", hint))
        else:
            text = canonical({"graph": graph, "parameters": parameters})
            checked = self._checked(graph, parameters, hashlib.sha256(text).hexdigest(), len(text))
            problems += [*checked.problems, *(self._not_uploaded(checked.graph) if checked.graph else ())]
        if problems and not request.reply_to:  # nobody would ever hear of it
            return record(refusal=_refusal(received.value, f"no SetSchedule of {request.schedule}: {_texts(problems)}"))
        kept = {} if problems else graph
        return record(request=request.model_copy(update={"graph": kept}), problems=_listed(problems))

    def _checked(self, raw: Mapping[str, Any], parameters: Mapping[str, str], digest: str, size: int) -> Checked:
        checked = self._cache.get(digest)
        if checked is None:
            try:
                checked = check_graph(raw, parameters, self._limits)
            except Exception as failure:  # a bug of ours must not end every Dispatcher that reads this
                log.exception("a graph cannot be checked", digest=digest)
                message = f"the graph cannot be checked ({type(failure).__name__})"
                hint = "a mistake of Millrace, which the Dispatcher's log has; change the graph, or ask who runs the cluster"
                return Checked(None, None, (Problem((), message, hint),), ())
            if size <= CACHED_BYTES_MOST:
                self._cache[digest] = checked
                if len(self._cache) > CACHED_MOST:
                    self._cache.popitem(last=False)
        else:
            self._cache.move_to_end(digest)
        return checked

    def _elsewhere(self, graph: JobGraph) -> Iterable[Problem]:
        """What is wrong outside the graph, now: uploads that are not there, files that are not there."""
        yield from self._not_uploaded(graph)
        if self._check_local_files:
            yield from (each for each in check_files(graph) if not each.warning)


    def _not_uploaded(self, graph: JobGraph) -> Iterable[Problem]:
        for index, module in enumerate(graph.modules):
            if not self._storage.exists(upload_path(module.sha256)):
                yield Problem(("modules", index), f"{module.name} was not uploaded, or too long ago", "submit it again")


def _parted(request: client.SubmitJob, received: Received) -> tuple[client.SubmitJob, dict[str, str]]:
    """The request without its publisher's place in a trace, and that place: the record's header has it, or else the graph."""
    given = [value for name, value in received.headers if name == HEADER]
    if len(given) == 1:
        states = [value for name, value in received.headers if name == STATE and value]
        context = trace_context.parse(given[0], b",".join(states))  # several mean one, says W3C
    else:
        context = trace_context.given(request.graph)
    if HEADER in request.graph or STATE in request.graph:
        request = request.model_copy(update={"graph": without(request.graph)})
    return request, fields_of(context)


def not_understood(received: Received, log: str, prev: int, reason: str) -> Client:
    """The record of what is parked for this reason."""
    refusal = _refusal(received.value, reason)
    return Client(
        log=log, prev=prev, offset=received.offset, partition=received.partition, stamp_ms=received.stamp_ms, refusal=refusal
    )


def _reason_of(job: str, problems: Iterable[Problem]) -> str:
    return f"no SubmitJob of job {job}: {_texts(problems)}"


def _texts(problems: Iterable[Problem]) -> str:
    return "; ".join(f"{'.'.join(map(str, each.place))}: {each.message}" if each.place else each.message for each in problems)


def _listed(problems: Iterable[Problem]) -> list[client.Problem]:
    """As they are answered; no more than a record can take."""
    every = [client.Problem(place=list(each.place), message=each.message, hint=each.hint) for each in problems]
    some = fitting(every, PROBLEMS_BYTES_MOST)
    more = client.Problem(place=[], message="there are more problems than fit into one answer")
    return every if len(some) == len(every) else [*some, more]


def _refusal(value: bytes, reason: str) -> Refusal:
    short = reason if len(reason) <= 500 else f"{reason[:500]}..."
    return Refusal(reason=short, **_excerpt(value, HEAD_BYTES).model_dump())


def _excerpt(value: bytes, head_bytes: int) -> Excerpt:
    return Excerpt(
        size_bytes=len(value),
        sha256=hashlib.sha256(value).hexdigest(),
        head_base64=base64.b64encode(value[:head_bytes]).decode(),
    )
