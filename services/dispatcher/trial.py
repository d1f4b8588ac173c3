"""`python -m services.dispatcher.trial BOOTSTRAP TOPIC OFFSET END`: reads client.commands where reading it has ended a process.

A process of its own, with little memory, that the kernel ends first. It tells where it stands before it reads there. A record is given
up on evidence alone. What says nothing about it (no memory to begin with, Kafka is away, a mistake of ours) is `Inconclusive`, and
requests wait.
"""

from __future__ import annotations

import base64
import contextlib
import resource
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from millrace.io.interfaces import Received, Unavailable
from millrace.io.kafka.bus import DAMAGED, offset_of
from millrace.io.kafka.config import COMMON, CONSUMER, log

TOPIC = "client.commands"
MORE_MB = 64  # than the process has when it is connected; a batch as the topic takes it has 1 MB unpacked
AT_ONCE, AT_ONCE_BYTES = 256, 4 << 20
PATIENCE_S, ALL_S, LOOK_S = 20.0, 120.0, 0.5
TIMES = 2  # that one record must do it
NO_MEMORY, UNREAD = 3, 4  # exit codes
LETHAL = (NO_MEMORY, -signal.SIGKILL, -signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS)  # librdkafka aborts without memory
ONE_BATCH = {"fetch.message.max.bytes": 1, "queued.min.messages": 1, "fetch.wait.max.ms": 100, "enable.partition.eof": True}


@dataclass(frozen=True)
class Read:
    """These records can be read; from `behind` on nothing was tried."""

    records: list[Received]
    behind: int


@dataclass(frozen=True)
class Unreadable:
    """The offsets from `first` to before `behind` cannot be read by anybody, and what was read to see that could be."""

    first: int
    behind: int


Tried = Read | Unreadable


class Inconclusive(Unavailable):  # [R30]
    """Nothing is known about the records: the reading itself failed."""


@dataclass
class _Run:
    """What one process told, and how it ended."""

    ready: bool = False
    at: int = -1  # what it was about to read
    records: list[Received] = field(default_factory=list)
    end: int = -1  # it came there
    code: int | None = None  # None: it was ended, for its time was over

    @property
    def succeeded(self) -> bool:
        return bool(self.records) or self.end >= 0


def tried(bootstrap: str, offset: int, end: int, ended: threading.Event) -> Tried:  # [R30]
    """Reads from this offset on: some records, or what cannot be read and is in front of all others. Raises Inconclusive."""
    until_s = time.monotonic() + ALL_S
    at, deaths = offset, 0
    while at < end and time.monotonic() < until_s:
        run = _run(bootstrap, at, end, until_s, ended)
        deaths = deaths + 1 if run.at == at else 1
        at = max(at, run.at)
        if run.succeeded:
            return Unreadable(offset, at) if at > offset else Read(run.records, _behind(run))
        if run.code in LETHAL and run.ready:
            at, deaths = (at + 1, 0) if deaths == TIMES else (at, deaths)
        elif run.code is not None:
            raise Inconclusive(f"{TOPIC} cannot be tried at offset {at}: {_failure(run)}")
    if at == offset:
        raise Inconclusive(f"{TOPIC} cannot be tried at offset {offset}: it takes longer than {ALL_S:g} s")
    control = _run(bootstrap, end, end, time.monotonic() + PATIENCE_S, ended)
    if not control.succeeded:
        raise Inconclusive(f"{TOPIC} cannot be tried at offset {offset}: what is behind cannot be read either: {_failure(control)}")
    return Unreadable(offset, at)


def _behind(run: _Run) -> int:
    return run.end if run.end >= 0 else run.records[-1].offset + 1


def _failure(run: _Run) -> str:
    """In the words of who looks for the cause: what the process itself said is in the log above."""
    if run.code == UNREAD:
        return "Kafka did not let it be read (see the log above)"
    how = f"with code {run.code}" if run.code is not None else "for its time was over"
    return f"the process that reads it ended {how}{'' if run.ready else ', before it had begun'} (see the log above)"


def _run(bootstrap: str, offset: int, end: int, until_s: float, ended: threading.Event) -> _Run:
    """Raises Inconclusive where no process can be started, or the term has ended."""
    run = _Run(at=offset)
    command = [sys.executable, "-m", "services.dispatcher.trial", bootstrap, TOPIC, str(offset), str(end)]
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            output = _output_of(process, until_s, ended)
    except OSError as failure:
        raise Inconclusive(f"{TOPIC} cannot be tried at offset {offset}: no process can be started ({failure})") from None
    for line in output.splitlines(keepends=True):
        words = line.split()
        match words if line.endswith(b"\n") else []:
            case [b"ready"]:
                run.ready = True
            case [b"at", number]:
                run.at = int(number)
            case [b"record", number, stamp_ms, *value]:
                run.records.append(Received(TOPIC, 0, int(number), int(stamp_ms), None, base64.b64decode(b"".join(value))))
            case [b"end", number]:
                run.end = int(number)
    if ended.is_set():
        raise Inconclusive("the term has ended")
    run.code = process.returncode if time.monotonic() < until_s else None
    return run


def _output_of(process: subprocess.Popen[bytes], until_s: float, ended: threading.Event) -> bytes:
    while True:
        try:
            return process.communicate(timeout=LOOK_S)[0]
        except subprocess.TimeoutExpired:
            if ended.is_set() or time.monotonic() > until_s:
                process.kill()


def main(arguments: list[str]) -> int:
    bootstrap, topic, offset, end = arguments[0], arguments[1], int(arguments[2]), int(arguments[3])
    try:
        consumer = Consumer({**COMMON, **CONSUMER, **ONE_BATCH, "bootstrap.servers": bootstrap, "client.id": "trial", "logger": log})
        consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE_S)  # all its threads are there then
        _bound()
        _report("ready")
        try:
            return _read(consumer, topic, offset, end)
        except MemoryError:
            return NO_MEMORY
    except KafkaException as failure:
        print(f"trial: {failure}", file=sys.stderr)
        return UNREAD


def _read(consumer: Consumer, topic: str, offset: int, end: int) -> int:
    """Tells the first records that can be read. What is damaged is read once more, then passed over."""
    while True:
        for _ in range(TIMES):
            _report("at", offset)
            consumer.assign([TopicPartition(topic, 0, offset)])
            count = size = 0
            while True:
                message = consumer.poll(PATIENCE_S)
                if message is None:
                    print(f"trial: Kafka told nothing of offset {offset + count} for {PATIENCE_S:g} s", file=sys.stderr)
                    return UNREAD
                error = message.error()
                if error is None:
                    value = message.value() or b""
                    # before the next batch is unpacked
                    _report("record", message.offset(), message.timestamp()[1], base64.b64encode(value).decode())
                    count, size = count + 1, size + len(value)
                    if count == AT_ONCE or size > AT_ONCE_BYTES or offset_of(message) + 1 >= end:
                        return 0
                elif error.code() == KafkaError._PARTITION_EOF:
                    _report("end", message.offset())
                    return 0
                elif count:
                    return 0
                elif error.code() in DAMAGED:
                    break
                else:
                    raise KafkaException(error)
        offset += 1


def _report(*words: object) -> None:
    print(*words, flush=True)


def _bound() -> None:
    """Where the system has no such bound (macOS), a record that is too large for the machine still ends this process alone."""
    with contextlib.suppress(OSError, ValueError):
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
        with open("/proc/self/status") as file:
            data_kb = next(int(line.split()[1]) for line in file if line.startswith("VmData"))
        most = (data_kb << 10) + (MORE_MB << 20)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # it is meant to be aborted, and nobody looks into it


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
