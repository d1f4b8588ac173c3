"""`python -m services.dispatcher.trial BOOTSTRAP TOPIC OFFSET END`: reads client.commands where reading it has ended a process.

A process of its own, with little memory, that the kernel ends first. It fetches one batch at a time, so that none is unpacked before the
one in front of it is told of.
"""

from __future__ import annotations

import base64
import contextlib
import resource
import subprocess
import sys
from dataclasses import dataclass

from millrace.io.interfaces import Damaged, OffsetGone, Received, Unavailable
from millrace.io.kafka import KafkaBus

TOPIC = "client.commands"
MORE_MB = 64  # than the process has when it begins; a batch as the topic takes it has 1 MB unpacked
AT_ONCE = 256
PATIENCE_S, PATIENCE_ALL_S = 20, 120
BAD, CANNOT = 2, 3  # exit codes: the next one is damaged; Kafka does not answer
ONE_BATCH = {"fetch.message.max.bytes": 1, "queued.min.messages": 1}


@dataclass(frozen=True)
class Tried:
    """Records that could be read, and the offset from which on, up to `beyond`, none can be; the two are equal where all can."""

    good: list[Received]
    bad: int
    beyond: int


def tried(bootstrap: str, offset: int, end: int) -> Tried:
    """Reads from this offset on: some records, or what cannot be read and is in front of all others. Raises Unavailable."""
    beyond = offset
    while beyond < end:
        code, good = _run(bootstrap, beyond, end)
        if code == CANNOT:
            raise Unavailable(f"{TOPIC} cannot be tried at offset {beyond}: Kafka does not answer")
        if beyond > offset and (good or code == 0):
            return Tried([], offset, beyond)
        if good or code == 0:
            last = good[-1].offset + 1 if good else end
            return Tried(good, last, last)
        beyond += 1
    return Tried([], offset, beyond)


def _run(bootstrap: str, offset: int, end: int) -> tuple[int, list[Received]]:
    command = [sys.executable, "-m", "services.dispatcher.trial", bootstrap, TOPIC, str(offset), str(end)]
    try:
        ran = subprocess.run(command, stdout=subprocess.PIPE, timeout=PATIENCE_ALL_S, check=False)
    except subprocess.TimeoutExpired:
        return CANNOT, []
    lines = [line.partition(b" ") for line in ran.stdout.splitlines(keepends=True) if line.endswith(b"\n")]
    return ran.returncode, [Received(TOPIC, 0, int(number), 0, None, base64.b64decode(value)) for number, _, value in lines]


def main(arguments: list[str]) -> int:
    bootstrap, topic, offset, end = *arguments[:2], *map(int, arguments[2:])
    bus = KafkaBus(bootstrap, client_id="trial", on_fatal=lambda _: None, options=ONE_BATCH)
    _bound()
    read = 0
    try:
        with contextlib.closing(bus.reader(topic, 0, offset)) as reader:
            while offset < end and read < AT_ONCE:
                for _ in range(PATIENCE_S):
                    records = reader.poll(1_000, AT_ONCE)
                    for each in records:
                        print(each.offset, base64.b64encode(each.value).decode())
                    sys.stdout.flush()  # before the next batch is unpacked
                    if records:
                        break
                else:
                    return CANNOT
                read, offset = read + len(records), records[-1].offset + 1
        return 0
    except Damaged:
        return BAD
    except (Unavailable, OffsetGone):
        return CANNOT


def _bound() -> None:
    """Where the system has no such bound (macOS), a record that is too large for the machine still ends this process alone."""
    with contextlib.suppress(OSError, ValueError):
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
        with open("/proc/self/status") as file:
            data_kb = next(int(line.split()[1]) for line in file if line.startswith("VmData"))
        most = (data_kb << 10) + (MORE_MB << 20)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
