"""What a process answers that is asked about itself: how it is, its threads, its logs, its settings. None of it shows a secret."""

from __future__ import annotations

import gc
import hashlib
import os
import platform
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from types import FrameType

import psutil
import structlog
from pydantic_core import to_json

from millrace import __version__
from millrace.core.messages.processes import (
    DUMPS_BYTES_MOST,
    LOGS_MOST,
    Answer,
    Ask,
    DescribeAsk,
    Description,
    LogFile,
    LogFiles,
    LogPiece,
    LogsAsk,
    NoAnswer,
    ProcessStatus,
    Setting,
    SettingsAsk,
    SettingsFound,
    ThreadDump,
    ThreadDumps,
    ThreadsAsk,
    UploadAsk,
    UploadedPiece,
)
from millrace.io.storage.store import Storage, StorageError

from . import own_logs
from .machine_limits import memory_bytes, usable_cores
from .own_logs import Log

FOLDER = "logs/asked"
"""In storage: the pieces of logs that were asked for. They go after an hour."""
KEPT_S = 3600.0
STORED_MOST = 256 << 20
"""Bytes that a process stores there within such a time: whoever reaches Kafka may ask. A piece counts as PIECE_LEAST at least."""
PIECE_LEAST = 16 << 10
AT_ONCE = 4
FRAMES_MOST = 200
TEXT_MOST = 160

log = structlog.get_logger("inspection")


class Collections:
    """How often Python has collected garbage, and for how long, since `begin`. One collection comes after the other, whatever thread
    has it to do."""

    def __init__(self) -> None:
        self.count, self.seconds, self._began_s = 0, 0.0, 0.0

    def begin(self) -> None:
        if self._note not in gc.callbacks:
            gc.callbacks.append(self._note)

    def _note(self, phase: str, _: object) -> None:
        if phase == "start":
            self._began_s = time.perf_counter()
        else:
            self.count += 1
            self.seconds += time.perf_counter() - self._began_s


COLLECTIONS = Collections()


class Inspector:
    """Answers for one process. `settings`: what it runs with; `logs`: what logs it has now, by id; `scopes`: which it replicates, and
    what it is in each."""

    def __init__(
        self,
        service: str,
        storage: Storage,
        settings: Callable[[], list[Setting]],
        logs: Callable[[], Mapping[str, Log]] = own_logs.own_logs,
        scopes: Callable[[], dict[str, str]] = dict,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._service, self._storage, self._settings, self._logs, self._scopes = service, storage, settings, logs, scopes
        self._clock = clock
        COLLECTIONS.begin()
        self._stored: deque[tuple[float, int]] = deque()  # when, and how much
        self._storing = threading.Lock()

    def status(self) -> ProcessStatus:
        """How the process is."""
        process = psutil.Process()
        with process.oneshot():
            times = process.cpu_times()
            return ProcessStatus(
                service=self._service,
                host=socket.gethostname()[:TEXT_MOST],
                pid=process.pid,
                version=__version__,
                python=platform.python_version(),
                system=platform.platform()[:TEXT_MOST],
                started_ms=int(process.create_time() * 1000),
                cores=usable_cores(),
                memory=memory_bytes(),
                memory_free=int(psutil.virtual_memory().available),
                resident=int(process.memory_info().rss),
                cpu_ms=int((times.user + times.system) * 1000),
                threads=process.num_threads(),
                files=process.num_fds(),
                collections=COLLECTIONS.count,
                collections_ms=int(COLLECTIONS.seconds * 1000),
            )

    def answer(self, ask: Ask) -> Answer:
        """Raises OSError, StorageError."""
        match ask:
            case DescribeAsk():
                return Description(status=self.status(), scopes=self._scopes())
            case ThreadsAsk(slot=None):
                return ThreadDumps(dumps=fitted([own_threads()]))
            case ThreadsAsk():
                return NoAnswer(kind="not_found", reason=f"a {self._service} has no slots")
            case LogsAsk():
                known = own_logs.listed(self._logs())
                rows = [LogFile(log=name, bytes=each.size, modified_ms=each.modified_ms) for name, each in sorted(known.items())]
                return LogFiles(logs=rows[:LOGS_MOST])
            case UploadAsk():
                return self._upload(ask)
            case SettingsAsk():
                return SettingsFound(settings=self._settings())

    def _upload(self, ask: UploadAsk) -> Answer:
        found = self._logs().get(ask.log)
        if found is None:
            return NoAnswer(kind="not_found", reason=f"there is no log {ask.log!r}; ask for the list of logs")
        start, data, whole = own_logs.piece(found, ask.start, ask.length)
        path = f"{FOLDER}/{hashlib.sha256(data).hexdigest()}" if data else ""
        if data and not self._store(path, data):
            reason = f"it has stored {STORED_MOST >> 20} MB of its logs for those who asked within an hour; ask again later"
            return NoAnswer(kind="busy", reason=reason)
        return UploadedPiece(piece=LogPiece(log=ask.log, path=path, start=start, bytes=len(data), size=whole.size))

    def _store(self, path: str, data: bytes) -> bool:  # [R32]
        """Stores a piece, or has one that is there stay; False: too much was stored lately. Raises StorageError."""
        with self._storing:
            while self._stored and self._stored[0][0] < self._clock() - KEPT_S:
                self._stored.popleft()
            if self._storage.exists(path):
                self._storage.touch(path)  # so that it does not go before it is read
                return True
            size = max(len(data), PIECE_LEAST)
            if sum(each for _, each in self._stored) + size > STORED_MOST:
                return False
            if self._storage.put_if_absent(path, data):
                self._stored.append((self._clock(), size))
            return True


class Answers:
    """Answers questions, each on a thread of its own, for some take long. Only a few at once: who asks too much is refused."""

    def __init__(self, answer: Callable[[Ask], Answer]) -> None:
        """`answer` may raise whatever it likes: that is an answer, too."""
        self._answer = answer
        self._free = threading.BoundedSemaphore(AT_ONCE)

    def give(self, ask: Ask, on_answer: Callable[[Answer], None]) -> None:
        """Calls back with the answer, on some thread. Waits for nothing."""
        if not self._free.acquire(blocking=False):
            on_answer(NoAnswer(kind="busy", reason=f"it answers {AT_ONCE} questions at this moment; try again"))
            return
        try:
            threading.Thread(target=self._run, args=(ask, on_answer), name="answer", daemon=True).start()
        except RuntimeError:  # a question must not end a process that is short of threads
            self._free.release()
            on_answer(NoAnswer(kind="busy", reason="no thread can be started; try again"))

    def _run(self, ask: Ask, on_answer: Callable[[Answer], None]) -> None:
        try:
            answer = self._answer(ask)
        except (OSError, StorageError) as failure:
            reason = failure.what if isinstance(failure, StorageError) else failure.strerror or str(failure)
            answer = NoAnswer(kind="internal", reason=f"it cannot be read or stored: {reason}")
        except Exception as failure:
            log.exception("a question is not answered", ask=ask.do)
            answer = NoAnswer(kind="internal", reason=f"a fault of Millrace: {type(failure).__name__}")
        self._free.release()
        on_answer(answer)


def own_threads() -> ThreadDump:
    """Where each thread of this process is."""
    known = {thread.ident: thread for thread in threading.enumerate()}
    paragraphs = []
    for ident, frame in sys._current_frames().items():
        thread = known.get(ident)
        name = thread.name if thread is not None else f"thread {ident}"
        number = f" id={thread.native_id}{' daemon' if thread.daemon else ''}" if thread is not None else ""
        paragraphs.append("\n".join([f'"{name}"{number}', *_frames(frame)]))
    return ThreadDump(of="the process", text="\n\n".join(sorted(paragraphs)) + "\n")


def _frames(frame: FrameType | None) -> list[str]:
    roots = sorted({path for path in sys.path if path}, key=len, reverse=True)
    lines: list[str] = []
    while frame is not None and len(lines) < FRAMES_MOST:
        file = frame.f_code.co_filename
        root = next((each for each in roots if file.startswith(each + os.sep)), "")
        lines.append(f"    at {file[len(root) + 1 :] if root else file}:{frame.f_lineno} {frame.f_code.co_name}")
        frame = frame.f_back
    return lines


def fitted(dumps: list[ThreadDump], most: int = DUMPS_BYTES_MOST) -> list[ThreadDump]:
    """The same, cut so that their texts take at most `most` bytes as JSON together. What one does not need, the others have."""
    sizes = {number: len(to_json(dump.text or "")) for number, dump in enumerate(dumps)}
    cut = list(dumps)
    for done, number in enumerate(sorted(sizes, key=lambda each: sizes[each])):
        share = most // (len(dumps) - done)
        if sizes[number] > share:
            cut[number] = dumps[number].model_copy(update={"text": _cut(dumps[number].text or "", share), "truncated": True})
        most -= min(sizes[number], share)
    return cut


def _cut(text: str, most: int) -> str:
    """Its beginning, whole lines, that as JSON take at most so many bytes."""
    while text and len(to_json(text)) > most:
        text = text[: len(text) * most // (len(to_json(text)) + 1)].rpartition("\n")[0]
    return text
