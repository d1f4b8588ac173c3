"""Processes that load a server: `python -m tests.bench.web.load WHAT ...`. Each prints what it did as lines of JSON.

One client for every server: HTTP/1.1 over plain sockets, kept alive. It costs a fraction of what any server here does for a request.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import select
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from .served import Publisher

HOST = "127.0.0.1"
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
ETAG = re.compile(rb"\r\netag: *([^\r]+)", re.IGNORECASE)
OK = b"HTTP/1.1 200"
TELL_S = 1.0
STEP_S = 0.01
LIST = "/api/v1/jobs?limit=50"


def request(port: int, path: str, more: bytes = b"") -> bytes:
    return b"GET %s HTTP/1.1\r\nHost: %s:%d\r\nAccept: */*\r\nUser-Agent: bench\r\n%s\r\n" % (path.encode(), HOST.encode(), port, more)


def size_of(answer: bytes | bytearray) -> int | None:
    """How long an answer is that begins so; None: its head has not come."""
    end = answer.find(b"\r\n\r\n")
    if end < 0:
        return None
    found = LENGTH.search(answer, 0, end + 2)
    return end + 4 + (int(found[1]) if found else 0)


def tell(**what: Any) -> None:
    print(json.dumps(what), flush=True)


# as many reads as can be


def rate(port: int, path: str, seconds: float, connections: int) -> dict[str, Any]:
    """Reads one path over some connections, each as soon as its last read is answered. An answer that comes in one piece, as long as the
    last whole one, is taken for whole: to look for its end takes as long as all else here."""
    asked, waiting, buffer = request(port, path), select.poll(), bytearray(1 << 20)
    sockets: dict[int, socket.socket] = {}
    begun: dict[int, bytes] = {}
    for _ in range(connections):
        connection = socket.create_connection((HOST, port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sockets[connection.fileno()] = connection
        waiting.register(connection, select.POLLIN)
        connection.sendall(asked)
    reads, size, started = 0, 0, time.perf_counter()
    while (took := time.perf_counter() - started) < seconds:
        for number, _ in waiting.poll(1000):
            connection = sockets[number]
            came = connection.recv_into(buffer)
            if came != size or number in begun or not buffer.startswith(OK):
                if not came:
                    raise RuntimeError("the server closed a connection")
                answer = begun.pop(number, b"") + bytes(buffer[:came])
                whole = size_of(answer)
                if whole is None or len(answer) < whole:
                    begun[number] = answer
                    continue
                if not answer.startswith(OK):
                    raise RuntimeError(answer[:500].decode(errors="replace"))
                size = whole
            reads += 1
            connection.sendall(asked)
    for connection in sockets.values():
        connection.close()
    return {"reads": reads, "seconds": took, "bytes": size}


# readers at their pace


class Reader:
    """Somebody who looks at one path once a second, as a page does: with the tag of what it has."""

    def __init__(self, port: int, path: str, counts: dict[str, float]) -> None:
        self._port, self._path, self._counts, self._tag = port, path, counts, b""

    async def run(self, after_s: float, every_s: float) -> None:
        await asyncio.sleep(after_s)
        reader, writer = await asyncio.open_connection(HOST, self._port)
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            asked = loop.time()
            writer.write(request(self._port, self._path, b"If-None-Match: %s\r\n" % self._tag if self._tag else b""))
            head = await reader.readuntil(b"\r\n\r\n")
            length = LENGTH.search(head)
            if length:
                await reader.readexactly(int(length[1]))
            kind = {b"200": "news", b"304": "same"}.get(head[9:12], "failed")
            self._counts[kind] += 1
            self._counts["waited_ms"] += (loop.time() - asked) * 1000
            if found := ETAG.search(head):
                self._tag = found[1]
            due += every_s
            await asyncio.sleep(max(0.0, due - loop.time()))


async def readers(port: int, number: int) -> None:
    """Each of another job, and one of ten of the list."""
    counts = dict.fromkeys(("news", "same", "failed", "waited_ms"), 0.0)
    paths = [LIST if n % 10 == 9 else f"/api/v1/jobs/running-{n}" for n in range(number)]
    tasks = [asyncio.create_task(Reader(port, path, counts).run(n / number, 1.0)) for n, path in enumerate(paths)]
    await _telling(tasks, counts)


async def streams(port: int, number: int) -> None:
    """Two of five follow all jobs, two one job, and one the cluster."""
    counts = dict.fromkeys(("events", "bytes"), 0.0)
    kinds = ("jobs", "jobs/running-{}", "jobs", "jobs/running-{}", "cluster")
    paths = [f"/api/v1/streams/{kinds[n % 5].format(n)}" for n in range(number)]
    await _telling([asyncio.create_task(_follow(port, path, counts)) for path in paths], counts)


async def _follow(port: int, path: str, counts: dict[str, float]) -> None:
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(request(port, path))
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(f"{path}: {head[:300].decode(errors='replace')}")
    while data := await reader.read(1 << 16):
        counts["bytes"] += len(data)
        counts["events"] += data.count(b"\nevent: ")


async def _telling(tasks: list[asyncio.Task[None]], counts: dict[str, float]) -> None:
    """Says once a second what they did; ends with the first that breaks."""
    while True:
        done, _ = await asyncio.wait(tasks, timeout=TELL_S, return_when=asyncio.FIRST_EXCEPTION)
        for each in done:
            each.result()
        tell(**counts)


# a cluster that works


def publish(bootstrap: str, running: int, reports_s: float, ends_s: float) -> None:
    """Keeps so many jobs running: each second some report how far they are, and some end, in place of which others begin."""
    facts = Publisher(bootstrap)
    live = [f"running-{n}" for n in range(running)]
    for job in live:
        facts.begin(job)
    facts.flush()
    tell(said=facts.said)
    started, reports, ends, told_s = time.monotonic(), 0, 0, 0.0
    while True:
        passed = time.monotonic() - started
        while reports < passed * reports_s:
            reports += 1
            facts.progress(live[reports * 7 % running], reports)
        while ends < passed * ends_s:
            place = running - 1 - ends % (running // 2)  # those that are read stay
            ends += 1
            facts.end(live[place])
            live[place] = f"running-{running + ends}"
            facts.begin(live[place])
        if passed - told_s > TELL_S:
            told_s = passed
            tell(said=facts.said, lag_ms=1000 * (time.monotonic() - started - passed))
        facts.wait(STEP_S)


def main(what: str, *arguments: str) -> None:
    if what == "rate":
        port, path, seconds, connections, *cores = arguments
        if cores and cores[0]:
            os.sched_setaffinity(0, {int(core) for core in cores[0].split(",")})
        tell(**rate(int(port), path, float(seconds), int(connections)))
    elif what == "publish":
        publish(arguments[0], int(arguments[1]), float(arguments[2]), float(arguments[3]))
    else:
        kinds: dict[str, Callable[[int, int], Any]] = {"readers": readers, "streams": streams}
        asyncio.run(kinds[what](int(arguments[0]), int(arguments[1])))


if __name__ == "__main__":
    main(*sys.argv[1:])
