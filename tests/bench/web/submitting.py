"""From a submission to RUNNING: by HTTP beside by Kafka, and by Kafka with the web service and its readers beside without."""

from __future__ import annotations

import json
import threading
import time
from contextlib import ExitStack

import httpx

from millrace.client import new_id
from millrace.client.events import Buffer, follow_buffer

from ..clusters import ENDS, Cluster, cluster, sql_graph
from ..figures import Row, Run, p50, percentile
from .event import READERS, STREAMS
from .served import helper, started, told

BY_HTTP_MOST, BESIDE_MOST = 1.3, 1.1
WARM_UP = 20
TURNS = 5
PAUSE_S = 0.02
GRAPH = sql_graph("SELECT 1 AS one")
READ_JOBS = 200
"""Jobs that the readers look at."""


def by_http(run: Run) -> None:
    """One after the other, on one cluster; RUNNING is seen by the same connected client."""
    n = run.count(300, 20)
    http_ms, kafka_ms = [], []
    with cluster("web-submitting", run.say, simulated=True, web=True) as running:
        url = running.stack.facts()["web_url"]
        with httpx.Client(base_url=f"{url}/api/v1", trust_env=False, timeout=30) as http:
            for number in range(WARM_UP + n):
                if number >= WARM_UP and (number - WARM_UP) % 100 == 0:
                    run.say(f"{number - WARM_UP} of {n}")
                ways = [(kafka_ms, kafka(running)), (http_ms, over_http(running, http))]
                for samples, took in ways if number >= WARM_UP else ():
                    samples.append(took * 1000)
    run.samples["submitting"] = {"http_ms": http_ms, "kafka_ms": kafka_ms}
    times = p50(http_ms) / p50(kafka_ms)
    run.rows.append(Row(
        "submit by HTTP -> RUNNING", n, f"{p50(http_ms):.1f} ms", f"p99 {percentile(http_ms, 99):.1f} ms",
        f"by Kafka {p50(kafka_ms):.1f} ms, p99 {percentile(kafka_ms, 99):.1f}", f"{times:.2f} x", f"at most {BY_HTTP_MOST} x",
        times <= BY_HTTP_MOST,
    ))  # fmt: skip


def kafka(running: Cluster) -> float:
    """Seconds until RUNNING."""
    job = new_id("bench")
    buffer = running.client.feed().subscribe(job)
    began = time.perf_counter()
    sent = running.client.begin_submit(GRAPH, job, watch=False)
    seen = _running(buffer)
    sent.result()
    return seen - began


def over_http(running: Cluster, http: httpx.Client) -> float:
    """Seconds until RUNNING. The answer may come after that, and is waited for elsewhere."""
    job, answers = new_id("bench"), []
    buffer = running.client.feed().subscribe(job)
    body = json.dumps(GRAPH)

    def send() -> None:
        answers.append(http.post("/jobs", params={"job": job}, content=body, headers={"Content-Type": "application/json"}))

    sender = threading.Thread(target=send)
    began = time.perf_counter()
    sender.start()
    seen = _running(buffer)
    sender.join()
    if answers[0].status_code != 201:
        raise RuntimeError(answers[0].text)
    return seen - began


def _running(buffer: Buffer) -> float:
    """When RUNNING came; returns after the job's end."""
    seen = 0.0
    for event in follow_buffer(buffer):
        if event["type"] == "AttemptStateChanged" and event["state"] == "RUNNING":
            seen = time.perf_counter()
        elif event["type"] in ENDS and event["type"] != "JobFinished":
            raise RuntimeError(f"the job ended with {event}")
    time.sleep(PAUSE_S)
    if not seen:
        raise RuntimeError("the job ended before its RUNNING was said")
    return seen


def beside(run: Run) -> None:
    """Turns on one cluster: without a web service, and with one and those who read and follow it."""
    n, turns = run.count(60, 10), run.count(TURNS, 1)
    readers, streams = run.count(READERS, 10), run.count(STREAMS, 5)
    with_ms, without_ms, read = [], [], None
    with cluster("web-beside", run.say, slots=16, simulated=True) as running:
        for number in range(READ_JOBS):
            running.client.submit(GRAPH, f"running-{number}", watch=False)
        running.settle()
        for turn in range(turns):
            run.say(f"{turn + 1} of {turns}, without: {p50(_turn(running, n, without_ms)):.1f} ms")
            with ExitStack() as others:
                folder = running.stack.folder / "logs"
                web = others.enter_context(started(running.kafka, running.etcd, folder))
                loads = [
                    others.enter_context(helper("readers", folder, str(web.port), str(readers))),
                    others.enter_context(helper("streams", folder, str(web.port), str(streams))),
                ]
                time.sleep(2.0)  # all have asked once
                run.say(f"{turn + 1} of {turns}, with: {p50(_turn(running, n, with_ms)):.1f} ms")
                read = [told(each) for each in loads]
    run.samples["beside"] = {"with_ms": with_ms, "without_ms": without_ms, "read": read}
    times = p50(with_ms) / p50(without_ms)
    run.rows.append(Row(
        f"submit by Kafka -> RUNNING, with the web service, {readers} readers and {streams} streams", len(with_ms),
        f"{p50(with_ms):.1f} ms", f"p99 {percentile(with_ms, 99):.1f} ms",
        f"without {p50(without_ms):.1f} ms, p99 {percentile(without_ms, 99):.1f}", f"{times:.2f} x", f"at most {BESIDE_MOST} x",
        times <= BESIDE_MOST,
    ))  # fmt: skip


def _turn(running: Cluster, n: int, samples: list[float]) -> list[float]:
    for _ in range(WARM_UP // 2):
        kafka(running)
    taken = [kafka(running) * 1000 for _ in range(n)]
    samples += taken
    return taken
