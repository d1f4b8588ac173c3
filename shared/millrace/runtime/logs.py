"""Logs of a service: one JSON line an event, or text for people; everything goes one way, and secrets do not go at all.

    logs.configure("dispatcher", instance=settings.instance, format=settings.log_format, level=settings.log_level,
                   secrets=settings.secret_values())
    log = structlog.get_logger()
    log = log.bind(scope="dispatcher", epoch=7)  # stands in each of its lines
    log.info("following", offset=42)

The libraries that log through the standard library (Kafka, etcd, uvicorn), warnings and uncaught exceptions take the
same way. An exception stands on the line of its event.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import math
import re
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any, TextIO

import structlog

# With those of Spark's and Hadoop's settings, which a TaskManager's may hold (fs.s3a.access.key, fs.azure.account.key.NAME).
_SECRET = r"(?:token|secret|password|passwd|authorization|credential|(?:access|account|private).?key)"
_SECRET_NAME = re.compile(_SECRET, re.IGNORECASE)
_SECRET_OPTION = re.compile(  # of a JVM; looked for where a name begins, else a text of "-D-D-D..." takes seconds
    rf"""((?<![\w.-])-D(?=[\w.-]{{0,100}}{_SECRET})[^=\s"']{{1,200}}=)(?:"[^"]*"|'[^']*'|[^\s"']+)""", re.IGNORECASE
)
_BEARER = re.compile(r"(bearer\s+)[a-z0-9._~+/=-]{8,}", re.IGNORECASE)
_PASSWORD_IN_URL = re.compile(r"(?<=://)[^/@\s]*:[^/@\s]+(?=@)")
_MASK = "***"
REPEAT_S, REPEATS_MOST = 30.0, 200
TAIL_BYTES = 1 << 20
# What these say at "info" is about every request; the services say what matters about it.
_QUIET = ("httpx", "httpcore", "uvicorn.access", "uvicorn.error", "asyncio", "fsspec", "grpc", "urllib3")


def configure(
    service: str,
    format: str = "auto",
    level: str = "info",
    *,
    instance: str = "",
    stream: TextIO | None = None,
    secrets: Iterable[str] = (),
) -> Redaction:
    """Sets up all logging of the process; a second call replaces the first.

    `format`: json, human, or auto (human if `stream` is a terminal). `stream`: standard error unless given. `secrets`:
    values that are masked wherever they appear. Returns the redaction, which takes further secrets (`add`)."""
    global _redaction
    out = stream if stream is not None else sys.stderr
    terminal = bool(getattr(out, "isatty", lambda: False)())
    human = format == "human" or (format == "auto" and terminal)
    redaction = _redaction = Redaction(secrets)
    sink = _Sink(out)
    number = getattr(logging, level.upper())
    process = {"service": service, "instance": instance} if instance else {"service": service}

    def about_process(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        return {**process, **event}

    processors: list[Callable[..., Any]] = [
        structlog.processors.add_log_level,
        Repeats(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
        about_process,
        redaction,
        _for_people(terminal) if human else _json_line,
    ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=lambda *_: sink,
        cache_logger_on_first_use=False,
    )
    _route_standard_library(number)
    _route_uncaught()
    if stream is None and not faulthandler.is_enabled():
        faulthandler.enable()  # where each thread was, if a library ends the process by SIGSEGV: else nothing tells
    return redaction


def tells_of_secret(name: str) -> bool:
    """Whether what has this name is to be kept secret."""
    return _SECRET_NAME.search(name) is not None


class Redaction:
    """Masks secrets: values under a name that says so, values that were registered, credentials in headers and URLs."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: tuple[str, ...] = ()
        self.add(*secrets)

    def add(self, *secrets: str) -> None:
        """Masks these values from now on. Values under 4 characters are left out: they would mask half the log."""
        known = {*self._secrets, *(secret for secret in secrets if len(secret) >= 4)}
        self._secrets = tuple(sorted(known, key=lambda each: (-len(each), each)))

    def __call__(self, _: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        return {name: self.masked(name, value) for name, value in event.items()}

    def text(self, text: str, mask: Callable[[str], str] = lambda secret: _MASK) -> str:
        """The text without secrets: `mask` says what stands in place of each."""

        def put(found: re.Match[str]) -> str:
            before = found[1] if found.re.groups else ""
            return before + mask(found[0][len(before) :])

        for secret in self._secrets:
            text = text.replace(secret, mask(secret))
        if "://" in text and "@" in text:
            text = _PASSWORD_IN_URL.sub(put, text)
        if "-D" in text:
            text = _SECRET_OPTION.sub(put, text)
        return _BEARER.sub(put, text) if "earer" in text else text

    def starred(self, data: bytes) -> bytes:
        """Bytes of a log without secrets: each is as many stars as it had bytes, so that what stands behind it stays where it was."""
        secrets = (secret.encode("utf-8", "replace").decode("latin-1") for secret in self._secrets)
        return Redaction(secrets).text(data.decode("latin-1"), lambda secret: "*" * len(secret)).encode("latin-1")

    def masked(self, name: Any, value: Any) -> Any:
        """What has this name, as JSON without secrets."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(name, str) and tells_of_secret(name):
            return _MASK
        if isinstance(value, int | float):
            return value if math.isfinite(value) else str(value)  # JSON knows no NaN
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.masked(key, each) for key, each in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self.masked(None, each) for each in value]
        return self.text(value if isinstance(value, str) else str(value))


class Tail:
    """The last lines of a log, in memory: for who asks the process for them where its log is no file."""

    def __init__(self, most: int = TAIL_BYTES) -> None:
        self._most = most
        self._lines: deque[bytes] = deque()
        self._lock = threading.Lock()
        self._kept = self._size = self._changed_ms = 0

    def add(self, line: str) -> None:
        data = f"{line}\n".encode("utf-8", "backslashreplace")
        with self._lock:
            self._lines.append(data)
            self._kept, self._size, self._changed_ms = self._kept + len(data), self._size + len(data), time.time_ns() // 1_000_000
            while self._kept > self._most and len(self._lines) > 1:
                self._kept -= len(self._lines.popleft())

    def kept(self) -> tuple[int, bytes, int]:
        """(where it begins in all that was written, its bytes, when the last line came in ms since 1970)."""
        with self._lock:
            return self._size - self._kept, b"".join(self._lines), self._changed_ms


TAIL = Tail()
"""Of this process."""
_redaction = Redaction()


def starred(data: bytes) -> bytes:
    """As `Redaction.starred`, with the secrets that this process was configured with."""
    return _redaction.starred(data)


class Repeats:
    """Says the same warning or error once in REPEAT_S, and how often it was left out since: while Kafka or etcd is away, many parts try
    again several times a second, for hours."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._logged: OrderedDict[str, tuple[float, int]] = OrderedDict()  # what -> when it was last said, how often left out since

    def __call__(self, _: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        if event["level"] not in ("warning", "error"):
            return event
        what, now_s = repr(sorted(event.items(), key=lambda item: item[0])), self._clock()
        with self._lock:
            logged_s, left_out = self._logged.pop(what, (-math.inf, 0))
            if now_s - logged_s < REPEAT_S:
                self._logged[what] = (logged_s, left_out + 1)
                raise structlog.DropEvent
            self._logged[what] = (now_s, 0)
            if len(self._logged) > REPEATS_MOST:
                self._logged.popitem(last=False)
        return {**event, "left_out": left_out} if left_out else event


class _Sink:
    """Where finished lines go. A log that cannot be written (disk full, reader gone) costs lines, never the service;
    how many were lost is said as soon as one can be written again."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._lost = 0

    def msg(self, line: str) -> None:
        with self._lock:
            try:
                TAIL.add(line)
                if self._lost:
                    self._write(
                        _json_line(None, "", {"level": "error", "event": "log_lines_lost", "lines": self._lost})
                    )
                self._write(line)
                self._stream.flush()
                self._lost = 0
            except (OSError, ValueError):
                self._lost += 1

    def _write(self, line: str) -> None:
        encoding = self._stream.encoding or "utf-8"
        self._stream.write(line.encode(encoding, "backslashreplace").decode(encoding) + "\n")

    log = debug = info = warn = warning = error = err = critical = fatal = failure = exception = msg


class _FromStandardLibrary(logging.Handler):
    """Hands a record of the standard library to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            facts: dict[str, Any] = {"logger": record.name}
            if record.exc_info:
                facts["exc_info"] = record.exc_info
            structlog.get_logger().log(min(max(record.levelno // 10 * 10, 10), 50), record.getMessage(), **facts)
        except Exception:
            self.handleError(record)


def _json_line(_: Any, __: str, event: Mapping[str, Any]) -> str:
    first = {name: event[name] for name in ("timestamp", "level", "service", "instance", "event") if name in event}
    return json.dumps({**first, **event}, ensure_ascii=False, separators=(",", ":"), default=str)


def _for_people(colors: bool) -> Callable[..., str]:
    # Tracebacks plain: the renderer's own choice would load rich and print local variables, secrets among them.
    plain = structlog.dev.plain_traceback
    return structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain, pad_event_to=30)


def _route_standard_library(level: int) -> None:
    root = logging.getLogger()
    root.handlers[:] = [_FromStandardLibrary()]
    root.setLevel(level)
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))
    logging.captureWarnings(True)


def _route_uncaught() -> None:
    def uncaught(kind: type[BaseException], error: BaseException | None, trace: Any, **facts: Any) -> None:
        if error is None or issubclass(kind, KeyboardInterrupt):
            sys.__excepthook__(kind, error or kind(), trace)
        else:
            structlog.get_logger().critical("uncaught_exception", exc_info=(kind, error, trace), **facts)

    def in_thread(args: threading.ExceptHookArgs) -> None:
        if not issubclass(args.exc_type, SystemExit):
            name = args.thread.name if args.thread else "?"
            uncaught(args.exc_type, args.exc_value, args.exc_traceback, thread=name)

    sys.excepthook = uncaught
    threading.excepthook = in_thread
