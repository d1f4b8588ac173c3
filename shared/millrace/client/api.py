"""`Millrace`: submits jobs, waits for them, follows and cancels them. What else can be asked, it has from `Results` and `Queries`."""

from __future__ import annotations

import getpass
import itertools
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millrace.core.messages import base, blocklist, client, requirements, schedules
from millrace.core.messages.attempts import Fault, ResultRows
from millrace.core.origins import again
from millrace.core.states import ENDED_BY, ENDED_JOB, INITIALIZING, JobStatus

from . import errors
from .events import Buffer, Event, Feed, follow_buffer, follow_log, rows_in
from .link import PendingReply, wall_ms
from .replacing import replaced
from .results import Result, Results
from .schedules import Schedules, name_rule
from .session import SILENT_S, about, checked, expected
from .tracing import Headers, headers

if TYPE_CHECKING:
    from .audit import Audit
    from .dead_letters import DeadLetters

LATE_S = 2.0  # before a client gives up, its submission's time is up: the answer that it is too late may still come
LATE_SHARE = 5  # ... a fifth of a short time-out
LIVES_S = 1.0  # for the Dispatcher's sign of life, when a submission was not answered
SHUT_DOWN_S = 60.0  # more than each part is waited for
ASK_AGAIN_S = 20.0  # a waiting request dies with a Dispatcher that loses its log; then another one is answered
PUBLISHED_MS = 60_000
"""An end is stored before its event is published; with this between them, the log has the event if it is kept at all."""
REJECTED = {"invalid": errors.Invalid, "conflict": errors.Conflict, "late": errors.TooLate, "busy": errors.Busy}


@dataclass(frozen=True)
class Ending:
    """How a job ended; `cause` says why it FAILED."""

    job: str
    status: str
    ended_ms: int | None
    archive: str | None
    cause: Fault | None = None


class Job:
    """An accepted job. `status` is what it was when it was accepted; `warnings` are about its graph."""

    def __init__(
        self, millrace: Millrace, job: str, status: str, warnings: list[client.Problem], buffer: Buffer | None
    ) -> None:
        self.id, self.status, self.warnings = job, status, warnings
        self._millrace, self._buffer = millrace, buffer
        self._rows: ResultRows | None = None  # of its end's event, which carries them if they are few

    def events(self) -> Iterator[Event]:
        """Its events from the first on, as they come; ends with its end, or as `Millrace.follow` does."""
        for event in self._events():
            if event["type"] in ENDED_BY:
                self._rows = rows_in(event)
            yield event

    def _events(self) -> Iterator[Event]:
        given = 0
        if self._buffer is not None:
            buffer, self._buffer = self._buffer, None
            for event in follow_buffer(buffer):
                given += 1
                yield event
            if not buffer.lost:
                return
        yield from itertools.islice(self._millrace.follow(self.id), given, None)

    def wait(self, timeout_s: float | None = None) -> Ending:
        """Waits for its end."""
        return self._millrace.wait(self.id, timeout_s)

    def cancel(self) -> None:
        """Asks for its end. Raises Refused if it FINISHED or FAILED."""
        self._millrace.cancel(self.id)

    def result(self) -> Result:
        """Waits for its end; its rows. Raises NotFinished. Events that nobody has taken are taken."""
        if self._buffer is not None:  # they come in any case; nothing needs to be asked then
            for _ in self.events():
                pass
        if self._rows is not None:
            return self._millrace.rows(self._rows)
        self.wait()
        return self._millrace.result(self.id)


@dataclass
class Submitting:
    """A submission on its way; `result()` waits for the answer."""

    job: str
    _ask: Callable[[], Job] = field(repr=False)

    def result(self) -> Job:
        """The accepted job. Raises Rejected (Invalid, Conflict, TooLate, Busy), OutcomeUnknown, Unavailable."""
        return self._ask()


class Millrace(Results, Schedules):
    """A connected client, for any number of threads. Raises Unavailable if Kafka does not answer within 5 s.

    bootstrap: Kafka's host:port. token: of the blob server; needed for uploads, results and logs. timeout_s: how long a
    request may take. `close()` it, or use it in a `with`.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        token: str = "",
        timeout_s: float = 10.0,
        kafka_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(bootstrap, token=token, timeout_s=timeout_s, kafka_options=kafka_options)
        self._feed: Feed | None = None
        self._lock = threading.Lock()

    def close(self) -> None:
        """Ends the connection; whoever waits for something goes on."""
        self._closed.set()
        if self._feed is not None:
            self._feed.close()
        super().close()

    # submitting

    def submit(
        self,
        graph: Mapping[str, Any],
        job: str | None = None,
        parameters: Mapping[str, str] | None = None,
        uploads: Mapping[str, Path | bytes] | None = None,
        watch: bool = True,
        env: Mapping[str, str] | None = None,
        traceparent: str | None = None,
        tracestate: str | None = None,
    ) -> Job:
        """Submits a graph and returns once it is stored: it will run, whatever dies.

        - job: its id. The same id and graph again is the same job.
        - uploads: SHA-256 -> local file or its content, for the graph's modules.
        - env: environment variables of the job's Python. They are uploaded, and are in no message.
        - watch: be ready to follow its events at once.
        - traceparent: the span that the job's spans belong below (W3C); None: OpenTelemetry's current one, if there is one.
        - tracestate: what goes beside it, as it is.

        A submission is not accepted any more when the time-out is nearly over, even if this process is gone.
        """
        return self.begin_submit(graph, job, parameters, uploads, watch, env, traceparent, tracestate).result()

    def repair(
        self,
        job: str,
        new: str | None = None,
        *,
        graph: Mapping[str, Any] | None = None,
        parameters: Mapping[str, str] | None = None,
        uploads: Mapping[str, Path | bytes] | None = None,
        env: Mapping[str, str] | None = None,
        files: Mapping[str, Path | bytes] | None = None,
        keep_changed: bool = False,
        watch: bool = True,
    ) -> Job:
        """Goes on with a job that FAILED or was CANCELED, as a new job: what had finished is kept, as far as it is the same.

        - new: the new job's id; a repeat with it is the same job.
        - graph, parameters, uploads, env: as of `submit`, in place of the graph that is stored.
        - files: name -> what takes the place of the module of that name.
        - keep_changed: what was made with other files is kept, too, where the vertices themselves are the same.

        Raises NotFound; Refused where it has not ended; Conflict with the reason where nothing of it is kept; Invalid."""
        wanted = again(self.graph_of(job, repair=True) if graph is None else graph, job, repair=True, keep_changed=keep_changed)
        wanted, more = replaced(wanted, files or {})
        return self.submit(wanted, new, parameters, {**(uploads or {}), **more}, watch, env)

    def begin_submit(
        self,
        graph: Mapping[str, Any],
        job: str | None = None,
        parameters: Mapping[str, str] | None = None,
        uploads: Mapping[str, Path | bytes] | None = None,
        watch: bool = True,
        env: Mapping[str, str] | None = None,
        traceparent: str | None = None,
        tracestate: str | None = None,
    ) -> Submitting:
        """As `submit`, without waiting for the answer: many can be on their way."""
        graph = self._uploaded(graph, uploads, env)
        job = job or new_id(str(graph.get("name", "")))
        fields = {"job": job, "graph": graph, "parameters": dict(parameters or {})}
        return self._begin(client.SubmitJob, job, fields, watch, headers(traceparent, tracestate))

    def run_schedule(self, schedule: str, job: str | None = None, watch: bool = True) -> Job:
        """Runs a schedule's graph now, beside its times, and returns as `submit` does. Raises NotFound."""
        job = job or new_id(schedule)
        return self._begin(schedules.RunSchedule, job, {"schedule": schedule, "job": job}, watch, []).result()

    def _begin(
        self, kind: type[client.SubmitJob] | type[schedules.RunSchedule], job: str, fields: dict[str, Any], watch: bool, trace: Headers
    ) -> Submitting:
        buffer = self.feed().subscribe(job) if watch else None
        late_s = min(LATE_S, self._timeout_s / LATE_SHARE)
        deadline = time.monotonic() + self._timeout_s - late_s
        try:
            request = kind(**fields, accept_before_ms=wall_ms() + int((self._timeout_s - late_s) * 1000))
            pending = self._link.ask(request, trace)
        except ValueError as error:
            self._unwatch(job, buffer)
            raise errors.Invalid(_first_sentence(error)) from None
        except errors.Unavailable:
            self._unwatch(job, buffer)
            raise
        return Submitting(job, lambda: self._answered(request, pending, trace, buffer, deadline, late_s))

    def _answered(
        self, request: client.SubmitJob | schedules.RunSchedule, pending: PendingReply, trace: Headers, buffer: Buffer | None,
        deadline: float, late_s: float,
    ) -> Job:  # fmt: skip
        """Waits for the answer; a Dispatcher that has no room is asked again until the deadline."""
        job = request.job
        try:
            reply: base.Reply = pending.result(max(0.0, deadline - time.monotonic()) + late_s)
            while isinstance(reply, client.JobRejected) and reply.kind == "busy" and time.monotonic() < deadline:
                self._closed.wait(min((reply.retry_after_ms or 0) / 1000, deadline - time.monotonic()))
                reply = self._link.ask(request, trace).result(max(0.0, deadline - time.monotonic()) + late_s)
            if isinstance(reply, client.RequestRefused) and reply.silent and (request.type == "SubmitJob" or time.monotonic() >= deadline):
                raise errors.OutcomeUnknown(reply.reason)  # before its time is up a schedule's run was not submitted
            return self._accepted(reply, job, buffer)
        except errors.MillraceError as failure:
            self._unwatch(job, buffer)
            if isinstance(failure, errors.OutcomeUnknown):
                late = "the Dispatcher lives, and has not stored it in time; are etcd and storage there?"
                why = late if self._dispatcher_lives() else failure
                message = f"it is not known whether job {job} was accepted ({why}); ask: millrace show {job}"
                raise errors.OutcomeUnknown(message, job) from None
            raise

    def _accepted(self, reply: base.Reply, job: str, buffer: Buffer | None) -> Job:
        if isinstance(reply, client.JobRejected):
            raise REJECTED.get(reply.kind, errors.Rejected)(reply.reason, reply.problems)
        accepted = expected(reply, client.JobAcceptedReply)
        if accepted.status != INITIALIZING:  # some of its events are older than this client's reader
            self._unwatch(job, buffer)
            buffer = None
        return Job(self, job, accepted.status, accepted.warnings, buffer)

    def _dispatcher_lives(self) -> bool:
        """Whether it answers a question for which it needs nobody."""
        try:
            self._link.ask(client.DescribeBlobServer()).result(LIVES_S)
        except errors.MillraceError:
            return False
        return True

    # ending

    def cancel(self, job: str) -> str:
        """Asks for the job's end; returns its status now. Raises Refused for a FINISHED or FAILED job, NotFound."""
        return self._ask(about(client.CancelJob, job), client.CancelAccepted).status

    def rescale(
        self, job: str, parallelism: int | None = None, vertices: Mapping[str, int] | None = None
    ) -> requirements.RequirementsUpdated:
        """Gives a job that has not ended another parallelism: `parallelism` to each vertex that may have several subtasks, `vertices` to
        these whatever the other says. What `forward` joins with a vertex goes with it. What runs begins again; no restart is spent.
        Numbers that it has already change nothing, so a repeat is harmless. `changed` of the answer has what gets another number.

        Raises Invalid with all that is wrong; Refused for a job that has ended, fails or is being canceled; NotFound. Raises Unavailable
        where its JobMaster is silent: it is done when that is back, unless the job has ended there."""
        about(requirements.DescribeRequirements, job)
        request = checked(requirements.UpdateRequirements, job=job, parallelism=parallelism, vertices=dict(vertices or {}))
        done = self._ask(request, requirements.RequirementsUpdated)
        if done.silent is not None:
            reason = f"{done.silent} does not answer: it is noted, and is done when that is back, unless the job has ended there"
            raise errors.Unavailable(reason, done.silent)
        return done

    def wait(self, job: str, timeout_s: float | None = None) -> Ending:
        """Waits for the job's end, however long that takes; a Dispatcher that is replaced meanwhile is asked again.

        Raises NotFound; TimeoutError after `timeout_s`."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._closed.is_set():
            left = ASK_AGAIN_S if deadline is None else min(ASK_AGAIN_S, max(0.0, deadline - time.monotonic()))
            try:
                ended = expected(self._link.ask(about(client.AwaitJobResult, job)).result(left), client.JobResult)
            except errors.OutcomeUnknown:
                if deadline is not None and time.monotonic() >= deadline:
                    raise TimeoutError(f"job {job} has not ended within {timeout_s:.0f} s") from None
                continue
            except errors.Unavailable as away:
                if away.silent is None:
                    raise
                self._closed.wait(SILENT_S)  # the job is none that the Dispatcher knows, and etcd may have it
                continue
            cause = ended.cause
            if cause is None and ended.status == JobStatus.FAILED and ended.archive is not None and self._token:
                cause = self.archive(ended.archive).cause
            return Ending(job, ended.status, ended.ended_ms, ended.archive, cause)
        raise errors.Unavailable("this client was closed")

    # the cluster

    def deregister(self, undo: bool = False) -> int:
        """Has all TaskManagers stopped that a provider has started, until `undo`; returns how many there are. What ran on them runs again
        once there are others. Raises Unavailable where the ResourceManager is silent."""
        done = self._ask(client.DeregisterCluster(undo=undo), client.ClusterDeregistered)
        if done.silent is not None:
            raise errors.Unavailable(f"{done.silent} was asked and does not answer: it does so when it is back", done.silent)
        return done.workers

    def block(
        self, host: str, for_ms: int | None = None, reason: str = "", *, evacuate: bool = False, by: str | None = None
    ) -> blocklist.BlockedHostInfo:
        """Has no slot of a host granted any more, for so long or until `unblock`; what runs there goes on. `evacuate`: it is moved, which
        counts as no failure. `by`: who asks for it; without it this user and this machine. A host that is blocked already is blocked as
        this says. Returns it with what is registered there, once etcd has it. Raises Malformed for what is no host; Refused where too
        many are blocked; Unavailable where the ResourceManager or etcd is silent: then it may be done or not."""
        who = f"{getpass.getuser()}@{socket.gethostname()}" if by is None else by
        request = checked(blocklist.BlockHost, host=host, for_ms=for_ms, reason=reason, by=who[:100], evacuate=evacuate)
        return self._ask(request, blocklist.HostBlocked).blocked

    def unblock(self, host: str) -> bool:
        """Has slots of the host granted again; whether it was blocked. A repeat is harmless. Raises what `block` does."""
        return self._ask(checked(blocklist.UnblockHost, host=host), blocklist.HostUnblocked).was_blocked

    def shut_down(self, wait: bool = False, timeout_s: float = SHUT_DOWN_S) -> client.ShutDown:
        """Ends the cluster in order: its jobs are suspended and kept, and go on when it is started again. Returns how far that is; with
        `wait` when all is done, right before the services end. A repeat changes nothing."""
        request = client.ShutDownCluster(wait=wait, accept_before_ms=wall_ms() + int(self._timeout_s * 1000))
        limit_s = self._timeout_s if not wait else max(self._timeout_s, timeout_s)
        return self._ask(request, client.ClusterShutDown, limit_s).shut_down

    # events

    def feed(self) -> Feed:
        """Connects to the events of all jobs, so that those of a job submitted from now on are seen as they come."""
        with self._lock:
            if self._feed is None:
                self._feed = Feed(self._link)
            return self._feed

    def follow(self, job: str) -> Iterator[Event]:
        """The job's events from the first on, then as they come; ends with its end. Of a job whose end is not kept any more: those that
        are. Raises NotFound."""
        standing = self.status(job)
        comes = standing.status not in ENDED_JOB or wall_ms() - (standing.ended_ms or 0) < PUBLISHED_MS
        return follow_log(self._link, job, standing.accepted_ms, self._closed, go_on=comes)

    def events(
        self, job: str | None = None, *, history: bool = False, go_on: bool = True, since_ms: int | None = None
    ) -> Iterator[Event]:
        """The events of all jobs (or of one) from now on, or from the oldest kept on; never ends, unless `go_on` is False:
        then with the last that was written. Ordered within a job; without `go_on` those of all jobs by their times. `since_ms`: of a
        `history`, those since then are enough."""
        return follow_log(self._link, job, since_ms, self._closed, history, go_on)

    def _unwatch(self, job: str, buffer: Buffer | None) -> None:
        if self._feed is not None and buffer is not None:
            self._feed.forget(job, buffer)

    # dead letters

    def dead_letters(self) -> DeadLetters:
        """What the Dispatcher could not use: to read, send again, delete."""
        from .dead_letters import DeadLetters

        return DeadLetters(self._link)

    def audit(self) -> Audit:
        """Who gave which command over HTTP, and what came of it."""
        from .audit import Audit

        return Audit(self._link)


def new_id(name: str) -> str:
    """A new job id that begins like the job's name."""
    head = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-").lower()[:40].strip("-")
    return f"{head or 'job'}-{secrets.token_hex(4)}"


def _first_sentence(error: ValueError) -> str:
    found = getattr(error, "errors", None)
    first = found(include_url=False)[0] if found is not None else None
    if first and first["loc"] == ("job",):
        return f"{first['input']!r} is no job's id: {base.JOB_ID_RULE}"
    if first and first["loc"] == ("schedule",):
        return name_rule(first["input"])
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}" if first else str(error)
