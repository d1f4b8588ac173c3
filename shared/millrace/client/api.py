"""`Millrace`: submit, follow, cancel, list, results, logs."""

from __future__ import annotations

import itertools
import json
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from millrace.core.messages import client
from millrace.core.messages.client import (
    ClusterOverview,
    JobDescribed,
    JobsListed,
    JobSummary,
    Problem,
    TaskManagerInfo,
)

from . import errors, files
from .events import ENDS, Buffer, Event, Feed, follow_buffer, follow_log
from .files import Files
from .link import Link, now_ms
from .logs import LogPiece, LogReader

if TYPE_CHECKING:
    from .dead_letters import DeadLetters

BUSY_S = 0.1
LATE_S = 2.0  # before a client gives up, its submission's time is up: the answer that it is too late may still come
LATE_SHARE = 5  # ... a fifth of a short time-out
LIVES_S = 1.0  # for the Dispatcher's sign of life, when a submission was not answered
ASK_AGAIN_S = 20.0  # a waiting request dies with a Dispatcher that loses its log; then another one is answered
ENDED = ("FINISHED", "FAILED", "CANCELED")
WRONG_TOKEN = "the blob server does not take the token: is it this cluster's? A local stack's is in the file that `millrace status` names"
LOG_TURN_S = 0.5  # between two looks at logs that are followed

R = TypeVar("R", bound=client.Reply)
A = TypeVar("A", bound=client.Request)


@dataclass(frozen=True)
class Result:
    """The first rows of a FINISHED job. `truncated`: there are more. Values are JSON's."""

    columns: list[str]
    types: list[str]
    rows: list[list[Any]]
    truncated: bool


@dataclass(frozen=True)
class Ending:
    """How a job ended; `cause` says why it FAILED: kind, message, and where known vertex, line, column, file."""

    job: str
    status: str
    ended_ms: int | None
    archive: str | None
    cause: dict[str, Any] | None = None


class Shown(tuple[JobSummary, "dict[str, Any] | None", "dict[str, Any] | None"]):
    """(summary, ExecutionGraph, cause). `silent`: the JobMaster that would know more and has not answered in time."""

    silent: str | None = None


class Job:
    """An accepted job. `status` is what it was when it was accepted; `warnings` are about its graph."""

    def __init__(
        self, millrace: Millrace, job: str, status: str, warnings: list[Problem], buffer: Buffer | None
    ) -> None:
        self.id, self.status, self.warnings = job, status, warnings
        self._millrace, self._buffer = millrace, buffer
        self._rows: dict[str, Any] | None = None  # of its end's event, which carries them if they are few

    def events(self) -> Iterator[Event]:
        """Its events from the first on, as they come; ends with its end."""
        for event in self._events():
            if event["type"] in ENDS:
                self._rows = event.get("result")
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


class Millrace:
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
        self._timeout_s, self._token = timeout_s, token
        self._link = Link(bootstrap, kafka_options, connect_s=min(5.0, timeout_s), delivery_s=timeout_s)
        self._feed: Feed | None = None
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._blobs: Any = None

    def __enter__(self) -> Millrace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._closed.set()
        if self._feed is not None:
            self._feed.close()
        if self._blobs is not None:
            self._blobs.close()
        self._link.close()

    # submitting

    def submit(
        self,
        graph: Mapping[str, Any],
        job: str | None = None,
        parameters: Mapping[str, str] | None = None,
        uploads: Mapping[str, Path | bytes] | None = None,
        watch: bool = True,
        env: Mapping[str, str] | None = None,
    ) -> Job:
        """Submits a graph and returns once it is stored: it will run, whatever dies.

        job: its id; the same id and graph again is the same job. uploads: SHA-256 -> local file or its content, for the graph's modules.
        env: environment variables of the job's Python; they are uploaded, and stand in no message.
        watch: be ready to follow its events at once. Not accepted any more when the time-out is nearly over, even if this process is
        gone.
        """
        return self.begin_submit(graph, job, parameters, uploads, watch, env).result()

    def begin_submit(
        self,
        graph: Mapping[str, Any],
        job: str | None = None,
        parameters: Mapping[str, str] | None = None,
        uploads: Mapping[str, Path | bytes] | None = None,
        watch: bool = True,
        env: Mapping[str, str] | None = None,
    ) -> Submitting:
        """As `submit`, without waiting for the answer: many can be on their way."""
        uploads = dict(uploads or {})
        if env:
            from .environment import environment_module  # with the graph's model, which takes a while to build

            module, content = environment_module(env, self._token)
            uploads[module["sha256"]] = content
            graph = {**graph, "modules": [*graph.get("modules", ()), module]}
        for content in uploads.values():
            self._call_blobs(lambda blobs, content=content: (blobs.put_bytes if isinstance(content, bytes) else blobs.put_file)(content))
        job = job or new_id(str(graph.get("name", "")))
        buffer = self.feed().subscribe(job) if watch else None
        late_s = min(LATE_S, self._timeout_s / LATE_SHARE)
        deadline = time.monotonic() + self._timeout_s - late_s
        try:
            request = client.SubmitJob(
                job=job,
                graph=dict(graph),
                parameters=dict(parameters or {}),
                accept_before_ms=now_ms() + int((self._timeout_s - late_s) * 1000),
            )
            pending = self._link.ask(request)
        except ValueError as error:
            self._unwatch(job, buffer)
            raise errors.Invalid(_first_sentence(error)) from None
        except errors.Unavailable:
            self._unwatch(job, buffer)
            raise

        def answer() -> Job:
            try:
                reply: client.Reply = pending.result(max(0.0, deadline - time.monotonic()) + late_s)
                while isinstance(reply, client.JobRejected) and reply.kind == "busy" and time.monotonic() < deadline:
                    self._closed.wait(min((reply.retry_after_ms or 0) / 1000, deadline - time.monotonic()))
                    reply = self._link.ask(request).result(max(0.0, deadline - time.monotonic()) + late_s)
                return self._accepted(reply, job, buffer)
            except errors.MillraceError as failure:
                self._unwatch(job, buffer)
                if isinstance(failure, errors.OutcomeUnknown):
                    why = "the Dispatcher lives, and has not stored it in time; is etcd there?" if self._dispatcher_lives() else failure
                    message = f"it is not known whether job {job} was accepted ({why}); ask: millrace show {job}"
                    raise errors.OutcomeUnknown(message, job) from None
                raise

        return Submitting(job, answer)

    def _accepted(self, reply: client.Reply, job: str, buffer: Buffer | None) -> Job:
        if isinstance(reply, client.JobRejected):
            kinds = {"invalid": errors.Invalid, "conflict": errors.Conflict, "late": errors.TooLate, "busy": errors.Busy}
            raise kinds.get(reply.kind, errors.Rejected)(reply.reason, reply.problems)
        accepted = _expect(reply, client.JobAcceptedReply)
        if accepted.status != "INITIALIZING":  # some of its events are older than this client's reader
            self._unwatch(job, buffer)
            buffer = None
        return Job(self, job, accepted.status, accepted.warnings, buffer)

    # asking

    def status(self, job: str) -> JobSummary:
        """Raises NotFound."""
        return self._ask(_about(client.GetJobStatus, job), client.JobStatusAnswered).summary

    def show(self, job: str) -> Shown:
        """(summary, ExecutionGraph, cause): tasks, subtasks, attempts; of an ended job from its archive. Raises NotFound."""
        described = self._describe(job)
        if described.archive is None:
            shown = Shown((described.summary, described.detail, (described.detail or {}).get("cause")))
            shown.silent = described.silent
            return shown
        archive = self.archive(described.archive)
        return Shown((described.summary, archive.get("detail"), archive.get("cause")))

    def list(self, most: int = 100, **only: Any) -> JobsListed:
        """The newest jobs, newest first. `only`: fields of ListJobs, such as name="nightly", states=["QUEUED"], since_ms=..."""
        return self._ask(client.ListJobs(most=most, **only), client.JobsListed)

    def cancel(self, job: str) -> str:
        """Asks for the job's end; returns its status now. Raises Refused for a FINISHED or FAILED job, NotFound."""
        return self._ask(_about(client.CancelJob, job), client.CancelAccepted).status

    def overview(self) -> ClusterOverview:
        """Where the ResourceManager is `silent`, only the jobs are counted."""
        return self._ask(client.GetClusterOverview(), client.ClusterOverview)

    def task_managers(self) -> list[TaskManagerInfo]:
        """Raises Unavailable where the ResourceManager is silent, for nobody else knows them."""
        listed = self._ask(client.ListTaskManagers(), client.TaskManagersListed)
        if listed.silent is not None:
            message = f"{listed.silent} does not answer, and nobody else knows the TaskManagers; running attempts go on meanwhile"
            raise errors.Unavailable(message, listed.silent)
        return listed.task_managers

    def wait(self, job: str, timeout_s: float | None = None) -> Ending:
        """Waits for the job's end, however long that takes; a Dispatcher that is replaced meanwhile is asked again.

        Raises NotFound; TimeoutError after `timeout_s`."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._closed.is_set():
            left = ASK_AGAIN_S if deadline is None else min(ASK_AGAIN_S, max(0.0, deadline - time.monotonic()))
            try:
                told = _expect(self._link.ask(_about(client.AwaitJobResult, job)).result(left), client.JobResult)
            except errors.OutcomeUnknown:
                if deadline is not None and time.monotonic() >= deadline:
                    raise TimeoutError(f"job {job} has not ended within {timeout_s:.0f} s") from None
                continue
            cause = told.cause
            if cause is None and told.status == "FAILED" and told.archive is not None and self._token:
                cause = self.archive(told.archive).get("cause")
            return Ending(job, told.status, told.ended_ms, told.archive, cause)
        raise errors.Unavailable("this client was closed")

    # events

    def feed(self) -> Feed:
        """Connects to the events of all jobs, so that those of a job submitted from now on are seen as they come."""
        with self._lock:
            if self._feed is None:
                self._feed = Feed(self._link)
            return self._feed

    def follow(self, job: str) -> Iterator[Event]:
        """The job's events from the first on, then as they come; ends with its end. Raises NotFound."""
        since_ms = self.status(job).accepted_ms
        return follow_log(self._link, job, since_ms, self._closed)

    def events(self, job: str | None = None, *, history: bool = False, go_on: bool = True) -> Iterator[Event]:
        """The events of all jobs (or of one) from now on, or from the oldest kept on; never ends, unless `go_on` is False:
        then with the last that was said. Ordered within a job."""
        return follow_log(self._link, job, None, self._closed, history, go_on)

    def _unwatch(self, job: str, buffer: Buffer | None) -> None:
        if self._feed is not None and buffer is not None:
            self._feed.forget(job, buffer)

    # files, results and logs

    def files(self, job: str) -> Files:
        """The files that its attempts left in their folders: of each subtask those of the last attempt that left any. Raises NotFound."""
        _, detail, _ = self.show(job)
        found = Files()
        for where in files.folders(detail or {}):
            part = files.listed(where, self.file(f"results/{where[3]}/files.json"))
            found = Files(found.kept + part.kept, found.left_out + part.left_out, found.left_out_in_all + part.left_out_in_all)
        return found

    def file(self, path: str) -> bytes:
        """The content of a kept file, by its path."""
        data: bytes = self._call_blobs(lambda blobs: blobs.get_file(path))
        return data

    def result(self, job: str) -> Result:
        """The rows of a FINISHED job. Raises NotFinished (also when it has none), NotFound."""
        described = self._describe(job)
        summary = described.summary
        if described.archive is None or summary.status not in ENDED:
            raise errors.NotFinished(f"job {job} is {summary.status}: it has no result yet", summary.status)
        archive = self.archive(described.archive)
        if summary.status != "FINISHED":
            cause = archive.get("cause")
            reason = f": {cause['message']}" if cause and cause.get("message") else ""
            raise errors.NotFinished(f"job {job} is {summary.status} and has no result{reason}", summary.status, cause)
        found = (archive.get("detail") or {}).get("result")
        if found is None:
            why = "a script has none, nor has a graph whose several last vertices leave open which is its `result`"
            raise errors.NotFinished(f"job {job} has no rows to show: {why}; what sinks wrote is at their paths", "FINISHED")
        return self.rows(found)

    def rows(self, found: Mapping[str, Any]) -> Result:
        """The Result that an archive, or the event of a job's end, describes; what it only names is fetched."""
        parts = found.get("parts", [found])
        whole = [self._fetch(part["path"]) if "path" in part else part for part in parts]
        rows = [row for part in whole for row in part["rows"]]
        truncated = any(part.get("truncated") for part in whole)
        return Result(whole[0]["columns"], whole[0]["types"], rows, truncated)

    def archive(self, path: str) -> dict[str, Any]:
        """What is kept of an ended job."""
        return self._fetch(path)

    def _fetch(self, path: str) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.file(path))
        return value

    def logs(self, job: str, follow: bool = False, every_attempt: bool = False) -> Iterator[LogPiece]:
        """What the attempts of a job wrote: the last attempt of each subtask, or every one. follow: also what comes, until
        the job's end."""
        reader = self.log_reader(job, every_attempt or follow)
        while True:
            ended = reader.look()
            yield from reader.read()
            if not follow or ended or self._closed.wait(LOG_TURN_S):
                return

    def log_reader(self, job: str, every_attempt: bool = True) -> LogReader:
        """Reads on in what the attempts of a job write, whenever it is asked to."""

        def described() -> tuple[str, dict[str, Any] | None]:
            summary, detail, _ = self.show(job)
            return summary.status, detail

        return LogReader(described, self._call_blobs, every_attempt)

    # dead letters

    def dead_letters(self) -> DeadLetters:
        """What the Dispatcher could not use: to read, send again, delete."""
        from .dead_letters import DeadLetters

        return DeadLetters(self._link)

    def check_dispatcher(self) -> None:
        """Returns when a Dispatcher has taken all requests that were published before this call. Raises Unavailable."""
        self._ask(client.DescribeBlobServer(), client.BlobServerDescribed)

    def _dispatcher_lives(self) -> bool:
        """Whether it answers a question for which it needs nobody."""
        try:
            self._link.ask(client.DescribeBlobServer()).result(LIVES_S)
        except errors.MillraceError:
            return False
        return True

    # the parts

    def _describe(self, job: str) -> JobDescribed:
        try:
            return self._ask(_about(client.DescribeJob, job), JobDescribed)
        except errors.NotFound:
            # A JobMaster that has just forgotten an ended job: the Dispatcher knows by now.
            return self._ask(_about(client.DescribeJob, job), JobDescribed)

    def _ask(self, request: client.Request, kind: type[R]) -> R:
        """The answer; who is too busy for one now is asked again within the time-out."""
        deadline = time.monotonic() + self._timeout_s
        try:
            reply = self._link.ask(request).result(self._timeout_s)
            while isinstance(reply, client.RequestRefused) and reply.kind == "busy" and time.monotonic() < deadline:
                self._closed.wait(BUSY_S)
                reply = self._link.ask(request).result(max(BUSY_S, deadline - time.monotonic()))
            return _expect(reply, kind)
        except errors.OutcomeUnknown as unknown:
            if isinstance(request, client.CancelJob):
                raise
            raise errors.Unavailable(str(unknown), "dispatcher") from None

    def _blob_client(self) -> Any:
        if self._blobs is None:
            from millrace.io.http.blobs import BlobClient

            if not self._token:
                raise errors.Unavailable("the blob server's token is not known: give it, or set MILLRACE_TOKEN")
            described = self._ask(client.DescribeBlobServer(), client.BlobServerDescribed)
            self._blobs = BlobClient(described.url, self._token)
        return self._blobs

    def _call_blobs(self, call: Callable[[Any], Any]) -> Any:
        """Over the known connection; once more over a new one, for the blob server moves with the Dispatcher's leader."""
        from millrace.io.http.blobs import BlobError

        try:
            return call(self._blob_client())
        except BlobError as failure:
            if failure.status is None:
                self._blobs = None
                try:
                    return call(self._blob_client())
                except BlobError as again:
                    failure = again
            told = WRONG_TOKEN if failure.status == 401 else str(failure)
            raise errors.Unavailable(told) from None


def new_id(name: str) -> str:
    """A new job id that begins like the job's name."""
    head = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-").lower()[:40].strip("-")
    return f"{head or 'job'}-{secrets.token_hex(4)}"


def _expect(reply: client.Reply, kind: type[R]) -> R:
    if isinstance(reply, kind):
        return reply
    if isinstance(reply, client.RequestRefused):
        if reply.kind == "busy":
            raise errors.Unavailable(reply.reason, reply.silent)
        raise (errors.NotFound if reply.kind == "not_found" else errors.Refused)(reply.reason)
    raise errors.Unavailable(f"the cluster answers with {reply.type} where {kind.__name__} was asked for")


def _about(kind: type[A], job: str) -> A:
    try:
        return kind(job=job)
    except ValueError:
        raise errors.Refused(f"{job!r} is no job's id: {client.JOB_ID_RULE}") from None


def _first_sentence(error: ValueError) -> str:
    found = getattr(error, "errors", None)
    first = found(include_url=False)[0] if found is not None else None
    if first and first["loc"] == ("job",):
        return f"{first['input']!r} is no job's id: {client.JOB_ID_RULE}"
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}" if first else str(error)
