"""The TaskManager's slots as its machine's effects reach them: LaunchAttempt, KillAttempt, and the events that come back."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, Protocol

import structlog
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from millrace.core.jobgraph.model import Limits
from millrace.core.jobgraph.parse import measure
from millrace.core.messages.base import Body, empty
from millrace.core.messages.effects import KillAttempt, LaunchAttempt
from millrace.core.messages.slots import (
    AttemptEnded,
    AttemptRunning,
    SlotBroken,
    SlotReady,
    SlotReplacing,
)
from millrace.io.storage.store import Storage, StorageError, blob_path

from .core.slot_table import infrastructure
from .kept_files import Keep, keep_files

RESULT_BYTES_MAX = 16 << 10  # a larger result goes to storage, and its place into the report
REPORT_BYTES_MAX = 700_000  # schemas, and the files that a plan pins
REPORT_DEPTH_MAX = 100  # no record that holds it may be too deep to be read
ERROR_BYTES_MAX = 128 << 10  # sixteen times what errors.describe writes of the longest, as escaped JSON
BLOBS_AGE_S = 7 * 24 * 3600  # uploaded files that no attempt has asked for since
BLOBS_BYTES_MAX, BLOBS_MOST = 2 << 30, 1_000  # of all of them together: with a new one, those longest unused go
AGAIN_S, BROKEN_AGAIN_S = 1.0, 60.0  # until a slot whose host ended, or that is broken, is started again
FAILED_STARTS_MAX = 3  # of a slot's process, one after the other, before its slot is called broken
SAID_MAX = 500  # characters of what it said last

KEEP = Keep()
VARIABLES_BYTES_MAX = 1 << 20  # a client's are a sixteenth of that
_VARIABLES = TypeAdapter(TypedDict("_VARIABLES", {"env": dict[str, str], "salt": str}))

UNREADABLE = "its process left a report that cannot be read"

log = structlog.get_logger("slots")


class SlotPort(Protocol):
    """A slot's process; see `slot.client.SlotProcess`. All methods return at once but `close`."""

    def run(self, attempt: str, spec: dict[str, Any], work: str, log: str, blobs: str) -> None: ...

    def kill(self, attempt: str, why: str) -> None: ...

    def beat(self, patience_ms: int) -> None: ...

    def close(self) -> None: ...


OnEvent = Callable[[dict[str, Any]], None]
SlotFactory = Callable[[int, OnEvent], SlotPort]
"""Starts the slot of this number; it tells its events from then on, on any thread."""


class Slots:
    """All slots of a process. `on_fact(body)` is called, on any thread, with what becomes of them."""

    def __init__(
        self,
        factory: SlotFactory,
        count: int,
        folder: Path,
        storage: Storage,
        on_fact: Callable[[Body], None],
        *,
        keep: Keep = KEEP,
        submit: Callable[[Callable[[], None]], Any] | None = None,
        later: Callable[[float, Callable[[], None]], None] | None = None,
    ) -> None:
        """`folder`: the TaskManager's own. `keep`: of what attempts leave in theirs.
        `submit` runs what may take long (default: threads), `later` after some seconds."""
        self.factory, self.storage, self.on_fact, self.keep = factory, storage, on_fact, keep
        self.attempts, self.logs, self.blobs = folder / "attempts", folder / "logs", folder / "blobs"
        self.submit = submit or ThreadPoolExecutor(min(count, 32), thread_name_prefix="attempts").submit
        self.later = later or _later
        self.closing = False
        self._lanes = [_Lane(self, number) for number in range(count)]

    def start(self) -> None:
        """Starts all slots. Nothing of an earlier process is here any more: its working files go."""
        for folder in (self.attempts, self.logs):
            shutil.rmtree(folder, ignore_errors=True)
        for folder in (self.attempts, self.logs, self.blobs):
            folder.mkdir(parents=True, exist_ok=True)
        self.trim()
        for lane in self._lanes:
            lane.start()

    def launch(self, effect: LaunchAttempt) -> None:
        """Prepares an attempt and orders it; what becomes of it is told by facts."""
        self._lanes[effect.slot].launch(effect)

    def kill(self, effect: KillAttempt) -> None:
        """Ends an attempt; its AttemptEnded follows, or is on the way already."""
        self._lanes[effect.slot].kill(effect)

    def beat(self, patience_ms: int) -> None:
        """The TaskManager is at work: said to the slots with an attempt, which end when they do not hear it for so long."""
        for lane in self._lanes:
            lane.beat(patience_ms)

    def trim(self) -> None:
        """Deletes uploaded files that are old or too many. What an attempt here was launched with stays: it may not have read it yet."""
        used = {module["sha256"] for lane in self._lanes for module in lane.modules()}
        now, size = time.time(), 0
        found: list[tuple[float, int, Path]] = []
        for blob in self.blobs.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another slot's trim
                found.append(((stat := blob.stat()).st_mtime, stat.st_size, blob))
        for number, (used_s, size_bytes, blob) in enumerate(sorted(found, reverse=True)):
            size += size_bytes
            old = used_s < now - BLOBS_AGE_S
            many = (size > BLOBS_BYTES_MAX or number >= BLOBS_MOST) and not blob.name.startswith(".")  # those are being written
            if (old or many) and blob.name not in used:
                blob.unlink(missing_ok=True)

    def close(self, timeout_s: float) -> None:
        """Ends all slots and what runs in them, within this time; what is left dies with this process."""
        self.closing = True
        threads = [threading.Thread(target=lane.close, daemon=True) for lane in self._lanes]
        for thread in threads:
            thread.start()
        end = time.monotonic() + timeout_s
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))


class _Lane:
    """One slot: at most one attempt at a time, as the machine sees to."""

    def __init__(self, slots: Slots, number: int) -> None:
        self._slots, self._number = slots, number
        self._lock = threading.RLock()  # a simulated slot answers while it is told
        self._process: SlotPort | None = None
        self._effect: LaunchAttempt | None = None  # the attempt that was launched and has not ended
        self._ordered = False  # the process was told of it
        self._running = False  # the process said that it runs
        self._killed: str | None = None  # why it is to be killed, said before the process was told of it
        self._broken = False
        self._failed_starts = 0
        self._count = itertools.count(1)
        self._work = self._log = Path()

    def start(self) -> None:
        try:
            self._broken = False
            self._process = self._slots.factory(self._number, self._on_event)
        except OSError as error:
            self._tell(SlotBroken(slot=self._number, reason=f"its process cannot be started: {error}"))
            self._slots.later(BROKEN_AGAIN_S, self._start_again)

    def close(self) -> None:
        if self._process is not None:
            self._process.close()

    def launch(self, effect: LaunchAttempt) -> None:
        with self._lock:
            self._effect, self._ordered, self._running, self._killed = effect, False, False, None
        if effect.spec.get("modules"):
            self._slots.submit(lambda: self._prepare(effect))
        else:
            self._prepare(effect)  # no file is touched here: what the attempt starts with takes no turn of another thread

    def kill(self, effect: KillAttempt) -> None:
        with self._lock:
            if self._effect is None or self._effect.attempt != effect.attempt:
                return
            if not self._ordered:
                self._killed = effect.why
            elif self._process is not None:
                self._process.kill(effect.attempt, effect.why)

    def modules(self) -> list[dict[str, Any]]:
        """What the attempt of this slot was launched with."""
        effect = self._effect
        return effect.spec.get("modules") or [] if effect is not None else []

    def beat(self, patience_ms: int) -> None:
        process = self._process
        if process is not None and self._ordered and self._effect is not None:
            process.beat(patience_ms)

    # preparing, on a thread of its own where there is something to fetch

    def _prepare(self, effect: LaunchAttempt) -> None:
        try:
            self._name_folders(effect)
            spec = effect.spec
            for module in effect.spec.get("modules") or []:
                if module["kind"] == "env":
                    spec = {**spec, "env": {**spec.get("env", {}), **self._variables(effect, module["sha256"])}}
                else:
                    self._fetch(effect, module["sha256"])
        except (OSError, StorageError) as error:
            message = str(error) if isinstance(error, StorageError) else f"{error.filename}: {error.strerror}"
            self._over(effect, "failed", error=infrastructure(message))
            return
        except Exception as error:  # a spec that makes no sense must not hold the slot for ever
            log.exception("an attempt cannot be prepared", attempt=effect.attempt)
            self._over(effect, "failed", error=infrastructure(f"{type(error).__name__}: {error}"))
            return
        with self._lock:
            if self._effect is not effect:
                return
            why = self._killed
            if why is None and self._process is not None:
                self._ordered = True
                work, log_, blobs = str(self._work), str(self._log), str(self._slots.blobs)
                self._process.run(effect.attempt, spec, work, log_, blobs)
                return
        if why is None:
            again = infrastructure("the slot's process is being started again")
            self._over(effect, "failed", error=again, reusable=False)
        else:
            self._over(effect, "killed", error={"kind": "killed", "retryable": False, "message": why})

    def _name_folders(self, effect: LaunchAttempt) -> None:
        """Where the attempt works and what it says is kept; its slot makes them."""
        name = f"{self._number}-{next(self._count)}"
        self._work = self._slots.attempts / name
        try:
            self._log = self._slots.storage.local(f"logs/{effect.folder}")
        except StorageError:
            self._log = self._slots.logs / name  # and uploaded at the end

    def _variables(self, effect: LaunchAttempt, sha256: str) -> dict[str, str]:
        """The environment variables that were uploaded for the job. They go to the slot's process through its pipe: into no file here, no
        journal and no log. Raises StorageError."""
        path = blob_path(effect.spec["job"], effect.acceptance, sha256)
        size = self._slots.storage.size(path)
        data = self._slots.storage.get(path) if size <= VARIABLES_BYTES_MAX else b""
        try:
            if hashlib.sha256(data).hexdigest() != sha256:
                raise ValueError
            return _VARIABLES.validate_json(data)["env"]
        except ValueError:  # without its words, which have the values in them
            raise StorageError(path, "holds no environment variables", "submit the job again") from None

    def _fetch(self, effect: LaunchAttempt, sha256: str) -> None:
        """An uploaded file, by its hash, into the folder that all attempts here read."""
        target = self._slots.blobs / sha256
        if target.exists():
            if target.is_file() and _holds(target, sha256):
                os.utime(target)
                return
            log.warning("a file that all attempts read was changed, and is fetched again", sha256=sha256)
        path = blob_path(effect.spec["job"], effect.acceptance, sha256)
        size = self._slots.storage.size(path)
        temporary = self._slots.blobs / f".{sha256}.{self._number}"
        found = hashlib.sha256()
        try:
            with open(temporary, "wb") as file:
                for piece in self._slots.storage.chunks(path, 0, size):
                    found.update(piece)
                    file.write(piece)
            if found.hexdigest() != sha256:
                raise StorageError(path, "holds other bytes than its name says", "submit the job again")
            temporary.chmod(0o444)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
        self._slots.trim()

    # what the process says, on its thread

    def _on_event(self, event: dict[str, Any]) -> None:
        try:
            self._handle(event)
        except Exception:
            log.exception("an event of a slot is lost", slot=self._number, event_=str(event)[:500])

    def _handle(self, event: dict[str, Any]) -> None:
        kind = event["is"]
        effect = self._effect
        if kind == "ready":
            self._failed_starts = 0
            self._tell(SlotReady(slot=self._number))
        elif kind == "running":
            self._running = True
            self._tell(AttemptRunning(slot=self._number, attempt=event["attempt"]))
        elif kind == "ended":
            if effect is not None and effect.attempt == event["attempt"]:
                report, rows, error = event.get("report"), event.get("rows"), _sound(event.get("error"))
                self._over(effect, event["status"], report=report, rows=rows, error=error)
        elif kind == "replacing":
            if not event.get("attempt"):  # else it is the attempt's own JVM
                self._tell(SlotReplacing(slot=self._number, reason=event["reason"]))
        elif kind == "broken":
            self._break(" ".join(filter(None, (event["reason"], event.get("hint")))))
        elif kind == "gone":
            self._gone(event.get("code"), event.get("said") or "")

    def _break(self, reason: str) -> None:
        self._broken = True
        log.error("a slot is broken", slot=self._number, reason=reason)
        self._tell(SlotBroken(slot=self._number, reason=reason))

    def _gone(self, code: Any, said: str) -> None:
        """The slot's process ended: with this one, because it is broken, or because something killed it."""
        if self._slots.closing:
            return
        self._process = None
        effect = self._effect
        if effect is not None:
            self._over(effect, "failed", error=infrastructure(f"the slot's process ended with {code}"), reusable=False)
        if not self._broken:
            self._failed_starts += 1
            log.warning("a slot's process ended", slot=self._number, code=code, said=said)
            if self._failed_starts >= FAILED_STARTS_MAX:  # nobody would see that it never becomes ready
                last = said[-SAID_MAX:] or "it said nothing; the log of the TaskManager may tell more"
                self._break(f"Its process ended {self._failed_starts} times before it was ready, the last time with {code}: {last}")
            else:
                self._tell(SlotReplacing(slot=self._number, reason=f"its process ended with {code}"))
        self._slots.later(BROKEN_AGAIN_S if self._broken else AGAIN_S, self._start_again)

    def _start_again(self) -> None:
        if not self._slots.closing:
            self.start()

    def _over(
        self, effect: LaunchAttempt, status: Any, *, report: Any = None, rows: str | None = None, error: Any = None,
        reusable: bool = True,
    ) -> None:
        """Keeps what an ended attempt leaves, and tells the end once."""
        with self._lock:
            if self._effect is not effect:
                return
            self._effect = None
            never_ran = not self._running
        try:
            try:
                report = self._bounded(effect, report, rows)
                report, error = self._with_files(effect, status, report, error)
            finally:
                self._upload(effect)  # the logs of what cannot be kept are wanted most
        except (OSError, StorageError) as failure:
            if status == "finished":
                status, report, error = "failed", None, infrastructure(f"its result cannot be kept: {failure}")
            else:
                log.warning("files or logs of an attempt are lost", attempt=effect.attempt, reason=str(failure))
        except _Unfit as failure:
            status, report = "failed", None
            error = {"kind": "user", "retryable": False, "message": str(failure)}
        except Exception as failure:  # its end is told in any case: nobody could end it any more
            log.exception("what an attempt left cannot be kept", attempt=effect.attempt)
            status, report, error = "failed", None, infrastructure(f"{type(failure).__name__}: {failure}")
        self._tell(AttemptEnded(
            slot=self._number, attempt=effect.attempt, status=status, report=report, error=error
        ))  # fmt: skip
        if never_ran and reusable:
            # It may have ended before the process took it: then no reset follows, and nothing says that the slot is ready.
            self._tell(SlotReady(slot=self._number))
        work = self._work
        self._slots.submit(lambda: shutil.rmtree(work, ignore_errors=True))

    def _with_files(self, effect: LaunchAttempt, status: str, report: Any, error: Any) -> tuple[Any, Any]:
        """Report or error, with what is to be told of the files that the attempt has left in its folder."""
        if status == "killed" or effect.spec.get("kind") == "plan":
            return report, error
        files = keep_files(str(self._work), effect.spec, self._slots.storage, effect.folder, self._slots.keep)
        if report is not None:
            report = {name: value for name, value in report.items() if name != "files"}  # user code can write its file, too
        if files is None:
            return report, error
        if report is not None:
            return {**report, "files": files}, error
        return report, {**error, "files_kept": files["kept"], "files_left_out": files["left_out"]} if error is not None else None

    def _bounded(self, effect: LaunchAttempt, report: Any, rows: str | None) -> Any:
        """The report as a message may carry it: a large result lies in storage, and the report tells where. `rows`: those of its result,
        which the slot's host has looked at; many are passed on unparsed, for that would hold up the other slots."""
        if report is None:
            return None
        _check_shape(effect, report)
        result = report.get("result")
        if result is not None:
            if rows is None:
                raise _Unfit(f"{UNREADABLE}: its result has no rows")
            data = f'{json.dumps(result)[:-1]}, "rows": {rows}}}'.encode()
            if len(data) > RESULT_BYTES_MAX:
                path = f"results/{effect.folder}/result.json"
                self._slots.storage.put_new(path, data)
                report = {**report, "result": {**result, "path": path}}
            else:
                report = {**report, "result": {**result, "rows": json.loads(rows)}}
        size = len(json.dumps(report))
        if size > REPORT_BYTES_MAX:
            raise _Unfit(f"its schemas and lists of files take {size} bytes; at most {REPORT_BYTES_MAX} can be passed on")
        if reason := measure(report, Limits(depth=REPORT_DEPTH_MAX, input_bytes=REPORT_BYTES_MAX)):
            raise _Unfit(f"{UNREADABLE}: {reason}")
        return report

    def _upload(self, effect: LaunchAttempt) -> None:
        """Where storage is no folder, logs go there now."""
        if self._log.parent != self._slots.logs:
            return
        for name in ("stdout", "stderr"):
            file = self._log / name
            if file.is_file():  # and no pipe, for which one would wait for ever
                with self._slots.storage.writer(f"logs/{effect.folder}/{name}") as writer, open(file, "rb") as lines:
                    while piece := lines.read(1 << 20):
                        writer.write(piece)
                    writer.commit()
        shutil.rmtree(self._log, ignore_errors=True)

    def _tell(self, body: Body) -> None:
        self._slots.on_fact(body)


def _holds(file: Path, sha256: str) -> bool:
    """Whether a file still has the bytes that its name says: attempts run as the user that it belongs to."""
    found = hashlib.sha256()
    with open(file, "rb") as pieces:
        while piece := pieces.read(1 << 20):
            found.update(piece)
    return found.hexdigest() == sha256


def _sound(error: Any) -> dict[str, Any] | None:
    """An error as it may be passed on: user code can write its file, too."""
    if error is None:
        return None
    sound = (
        isinstance(error, dict)
        and all(isinstance(error.get(key), kind) for key, kind in (("kind", str), ("retryable", bool), ("message", str)))
        and all(value is None or isinstance(value, (str, int)) for value in error.values())
        and len(json.dumps(error)) <= ERROR_BYTES_MAX
    )
    if sound:
        return dict(error)
    return {"kind": "user", "retryable": False, "message": "its process left an error that cannot be read"}


class _Unfit(Exception):
    """A report that cannot be passed on."""


class _Column(BaseModel):
    name: str
    type: str | dict[str, Any]


class _Schema(BaseModel):
    fields: list[_Column]


class _Output(BaseModel):
    model_config = ConfigDict(strict=True)
    schema_: Annotated[str, AfterValidator(lambda text: _Schema.model_validate_json(text) and text)] = Field(alias="schema")


class _Result(BaseModel):
    model_config = ConfigDict(strict=True)
    columns: list[str]
    types: list[str]


class _Report(BaseModel):
    """What a JobMaster relies on. User code can write its file, too."""

    model_config = ConfigDict(strict=True)
    outputs: dict[str, _Output] = empty(dict)
    result: _Result | None = None
    pinned: dict[str, dict[str, Any]] = empty(dict)
    key_types: dict[str, list[str]] = empty(dict)


def _check_shape(effect: LaunchAttempt, report: Any) -> None:
    """Raises _Unfit."""
    try:
        outputs = _Report.model_validate(report).outputs
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "the whole"
        raise _Unfit(f"{UNREADABLE}: {place[:200]}: {first['msg']}") from None
    for output in effect.spec.get("outputs", ()):
        if output["edge"] != "sink" and output["vertex"] not in outputs:
            raise _Unfit(f"{UNREADABLE}: it says nothing of {output['vertex']}")


def _later(seconds: float, do: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, do)
    timer.daemon = True
    timer.start()
