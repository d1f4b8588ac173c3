"""From an event at its service to the JSON at a client, on a busy cluster, beside one record's way through the same Kafka."""

from __future__ import annotations

import os
import socket
import threading
import time
from contextlib import ExitStack
from typing import Any

from deploy.local.stack import home
from millrace.io.kafka.admin import KafkaAdmin
from millrace.io.kafka.bus import KafkaBus

from ..clusters import wait_until
from ..figures import Row, Run, p50, percentile
from .load import HOST, request
from .served import TOPIC, Publisher, Web, helper, told, web_alone

TIMES_MOST = 5.0
READERS, STREAMS = 200, 50
REPORTS_S, ENDS_S = 100.0, 5.0
"""Facts a second about how far attempts are: of 1,000 jobs each says something new every ten seconds. And jobs that end, and begin."""
WARM_UP = 30
PAUSE_S = 0.02
GIVE_UP_S = 30.0
HOP = "bench-hop"
JOB = "probed"
PROBES = 1 << 40
"""Numbers of facts of this process, behind those of the one that publishes the others."""


def measure(run: Run) -> None:
    """By turns: a fact about a job, until it stands in the stream of all jobs; and a record, until it is back. Both are sent by this
    process, and come to it. The stream is one of the fifty."""
    n, running = run.count(300, 30), run.count(1000, 50)
    readers, streams = run.count(READERS, 10), run.count(STREAMS, 5)
    with web_alone("event") as web, ExitStack() as started:
        folder = home() / "alone-web-event"
        rates = [str(run.count(int(REPORTS_S), 50)), str(ENDS_S)]
        publisher = started.enter_context(helper("publish", folder, web.kafka, str(running), *rates))
        wait_until(f"{running} jobs", lambda: told(publisher))
        web.await_folded(told(publisher)["said"], run.say)
        read = started.enter_context(helper("readers", folder, str(web.port), str(readers)))
        followed = started.enter_context(helper("streams", folder, str(web.port), str(streams - 1)))
        wait_until("readers and followers at work", lambda: told(read) and told(followed))
        web.await_folded(told(publisher)["said"], run.say)
        probe = started.enter_context(Probe(web))
        shown, bare = [], []
        for number in range(WARM_UP + n):
            if number >= WARM_UP and (number - WARM_UP) % 50 == 0:
                run.say(f"{number - WARM_UP} of {n}, {told(publisher)}, {told(read)}, {told(followed)}")
            took, hop = probe.event(number), probe.hop()
            if number >= WARM_UP:
                shown.append(took * 1000)
                bare.append(hop * 1000)
            time.sleep(PAUSE_S)
        run.samples["event"] = {
            "shown_ms": shown, "hop_ms": bare, "published": told(publisher), "read": told(read), "followed": told(followed),
            "web_percent_of_a_core": _busy(web), "memory_mb": web.resident_mb(),
        }  # fmt: skip
    times = p50(shown) / p50(bare)
    load = f"{running:,} jobs, {rates[0]} reports a second, {readers} readers, {streams} streams"
    run.rows.append(Row(
        f"event -> in JSON at a client, {load}", n, f"{p50(shown):.1f} ms",
        f"p99 {percentile(shown, 99):.1f} ms", f"bare hop {p50(bare):.1f} ms, p99 {percentile(bare, 99):.1f}", f"{times:.2f} x",
        f"below {TIMES_MOST:.0f} x", times < TIMES_MOST,
    ))  # fmt: skip


def _busy(web: Web) -> float:
    """% of a core that the web process uses now."""
    return web.process.cpu_percent(3.0)


class Probe:
    """Sends events and records, and sees when they are there."""

    def __init__(self, web: Web) -> None:
        self._web = web
        self._facts = Publisher(web.kafka, first=PROBES)
        self._bus = KafkaBus(web.kafka, client_id="bench-probe", on_fatal=_die)
        KafkaAdmin(web.kafka).ensure_topics([(HOP, 1, {"message.timestamp.type": "LogAppendTime"})])
        self._hops = self._bus.reader(HOP, 0, 0)
        self._seen: dict[bytes, float] = {}
        self._came = threading.Condition()
        self._stream = socket.create_connection((HOST, web.port))

    def __enter__(self) -> Probe:
        self._facts.begin(JOB)
        self._facts.flush()
        self._stream.sendall(request(self._web.port, "/api/v1/streams/jobs"))
        threading.Thread(target=self._follow, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.shutdown(socket.SHUT_RDWR)
        self._bus.close()

    def event(self, number: int) -> float:
        """Seconds from sending a fact to the end of the JSON that has it."""
        mark = f"probe {number:06}"
        partition, value, headers = self._facts.record("JobWaiting", JOB, reason=mark, position=None)
        started = time.perf_counter()
        self._bus.append(TOPIC, partition, value, key=JOB.encode(), headers=headers)
        with self._came:
            if not self._came.wait_for(lambda: mark.encode() in self._seen, GIVE_UP_S):
                raise TimeoutError(f"an event was not shown within {GIVE_UP_S:.0f} s")
        self._bus.serve()
        return self._seen.pop(mark.encode()) - started

    def hop(self) -> float:
        """Seconds from sending a record of that size to its coming back."""
        started = time.perf_counter()
        self._bus.append(HOP, 0, bytes(200))
        while not self._hops.poll(500):
            if time.perf_counter() - started > GIVE_UP_S:
                raise TimeoutError(f"a record did not come back within {GIVE_UP_S:.0f} s")
        took = time.perf_counter() - started
        self._bus.serve()
        return took

    def _follow(self) -> None:
        """An event is there when it is whole."""
        rest = b""
        while data := self._stream.recv(1 << 20):
            now = time.perf_counter()
            *events, rest = (rest + data).split(b"\n\n")
            for event in events:
                place = event.find(b'"probe ')
                if place >= 0:
                    with self._came:
                        self._seen[event[place + 1 : place + 13]] = now
                        self._came.notify_all()


def _die(reason: str) -> Any:
    print(reason, flush=True)
    os._exit(1)
