"""What strangers write to client.commands beside the load: damaged, wrong, huge, packed small; and graphs at each limit."""

from __future__ import annotations

import hashlib
import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from millrace.core.jobgraph.model import DEFAULT_LIMITS
from tests.task_manager.timed import query

from .history import FLOOD, HOSTILE, Sent

TOPIC = "client.commands"
PAUSE_S = (0.2, 1.2)
AGAIN_S = 5.0
TOGETHER = 3_000  # records in one batch
ASKED = ("CancelJob", "DescribeJob", "AwaitJobResult", "GetJobStatus")
PRODUCER = {
    "message.max.bytes": 1_000_000_000, "batch.size": 900_000_000, "queue.buffering.max.kbytes": 1_000_000,
    "message.timeout.ms": 30_000, "retries": 0, "log_level": 0, "linger.ms": 5,
}  # fmt: skip
"""No retries: what a killed broker has not answered is unknown, and stands there once at most."""

Value = tuple[bytes, str, str]
"""What is sent, its correlation if it may be answered, the job that it may begin."""


@dataclass
class Hostile:
    """A thread that runs in a `with`; what became of its requests is read afterwards. The same seed asks for the same in the same order.
    `spark`: real slots run what is accepted."""

    bootstrap: str
    seed: int
    spark: bool = False
    sent: list[Sent] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._draw = random.Random(f"{self.seed} hostile")
        self._count = 0
        self._canceled_s: dict[str, float] = {}
        self._lasting: list[str] = []  # jobs that would take the slots for minutes
        self._ending = threading.Event()
        common = {**PRODUCER, "bootstrap.servers": self.bootstrap}
        self._producers = {codec: Producer({**common, "compression.type": codec}) for codec in ("none", "gzip", "zstd")}
        self._silent = socket.create_server(("127.0.0.1", 0))  # takes connections, and never answers
        self._url = f"http://127.0.0.1:{self._silent.getsockname()[1]}/x"
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Hostile:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(120)
        self._silent.close()

    def cancel(self, jobs: list[str]) -> None:
        """Cancels jobs of its own that would last for long; what it has asked for a moment ago it does not ask again."""
        now_s = time.monotonic()
        for job in jobs:
            if now_s - self._canceled_s.get(job, -AGAIN_S) >= AGAIN_S:
                self._canceled_s[job] = now_s
                self._send("cancel of its own", self._request("CancelJob", job=job))
        self._flush()

    def _run(self) -> None:
        kinds: dict[str, tuple[int, Callable[[], Iterator[Value]]]] = {
            "garbage": (3, self._garbage),
            "another shape": (4, self._shapes),
            "deep": (2, self._deep),
            "half of a surrogate pair": (2, self._surrogates),
            FLOOD: (1, lambda: iter([(self._draw.choice((b"", b"{}", b"x", b"[]")), "", "")] * TOGETHER)),
            "small only while packed": (2, self._packed),
            "a graph at a limit": (3, self._limits),
            "a graph above a limit": (3, self._above),
            "a graph of 25,000 subtasks": (1, self._widest),
            "a URL as sink": (1, self._url_as_sink),
            "about strangers' jobs": (4, self._strangers),
            "the same id again": (2, self._again),
            "long names and settings": (3, self._long),
            **({"a large end": (2, self._large_ends)} if self.spark else {}),
        }
        try:
            while not self._ending.is_set():
                kind = self._draw.choices(list(kinds), [weight for weight, _ in kinds.values()])[0]
                codec = self._draw.choice(("gzip", "zstd")) if kind in (FLOOD, "small only while packed") else "none"
                for value in kinds[kind][1]():
                    self._send(kind, value, codec)
                self._flush()
                self._ending.wait(self._draw.uniform(*PAUSE_S))
                self.cancel(self._lasting)
                self._lasting = []
        except Exception as failure:
            self.errors.append(f"the hostile client ended: {type(failure).__name__}: {failure}")

    def _send(self, kind: str, value: Value, codec: str = "none") -> None:
        data, correlation, job = value
        sent = Sent(kind, hashlib.sha256(data).hexdigest(), correlation, job)
        self.sent.append(sent)

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                sent.became, sent.offset = "taken", message.offset() or 0
            elif error.code() in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD, KafkaError.INVALID_MSG):
                sent.became = "refused"

        self._producers[codec].produce(TOPIC, data, on_delivery=delivered)

    def _flush(self) -> None:
        for producer in self._producers.values():
            producer.flush(60)

    def _request(self, kind: str, version: object = 1, **fields: Any) -> Value:
        self._count += 1
        correlation = f"{HOSTILE}{self.seed}-{self._count}"
        body = {"type": kind, "version": version, "reply_to": "hostile", "correlation": correlation, **fields}
        return json.dumps(body).encode(), correlation, fields["job"] if kind == "SubmitJob" else ""

    def _submit(self, vertices: dict[str, Any], job: str = "", **more: Any) -> Value:
        graph = {"name": "hostile", "vertices": vertices, "restart": {"strategy": "none"}, **more}
        return self._request("SubmitJob", job=job or f"{HOSTILE}{self._count + 1}", graph=graph)

    # what is sent; each yields some requests

    def _garbage(self) -> Iterator[Value]:
        for _ in range(3):
            yield self._draw.randbytes(self._draw.randrange(4_000)), "", ""
        yield self._draw.choice((b"", b"\x00", b"null", b'"' * 1_001, b"\xef\xbb\xbf{}", b"9" * 5_000, b"NaN", b"1e999")), "", ""

    def _shapes(self) -> Iterator[Value]:
        values: tuple[object, ...] = (
            [], 3, {"type": "SubmitJob"}, {"type": ["SubmitJob"], "version": 1}, {"type": "Nobody", "version": 1},
            *({"type": "CancelJob", "version": version, "job": "a"} for version in (0, -1, 2, 10**19, "1", 1.0, True, None, [1])),
            *({"type": "SubmitJob", "version": 1, "job": job, "graph": {}} for job in ("", "../../x", "a/b", "a" * 101, 7, None)),
            {"type": "SubmitJob", "version": 1, "job": "a", "graph": [1]}, {"type": "ListJobs", "version": 1, "most": 10**6},
        )  # fmt: skip
        for value in self._draw.sample(values, 4):
            yield json.dumps(value).encode(), "", ""
        yield b'{"type":"ListJobs","type":"ListJobs","version":1}', "", ""
        for vertices in ({}, {"a": {}}, {"a": {"sql": 7}}, {"a": {"sql": query(0.01), "inputs": {"a": "forward"}}}, {"a": []}):
            yield self._submit(vertices)

    def _deep(self) -> Iterator[Value]:
        depth = self._draw.choice((DEFAULT_LIMITS.depth, 1_000, 100_000))
        yield b"[" * depth + b"]" * depth, "", ""
        yield b'{"a":' * depth, "", ""
        bottom: object = 1
        for _ in range(DEFAULT_LIMITS.depth - self._draw.choice((3, 4, 5))):
            bottom = {"a": bottom}
        yield self._submit({"one": {"sql": query(0.01)}, "two": bottom})

    def _surrogates(self) -> Iterator[Value]:
        half = json.loads('"\\ud800"')
        for fields in ({"job": f"a{half}"}, {"correlation": half, "job": "a"}, {"reply_to": half, "job": "a"}):
            data, _, _ = self._request("CancelJob", **fields)
            yield data, "", ""
        data, _, _ = self._submit({half: {"sql": query(0.01)}}, name=half)
        yield data, "", ""

    def _packed(self) -> Iterator[Value]:
        yield bytes(self._draw.choice((30, 30, 100, 300)) << 20), "", ""

    def _limits(self) -> Iterator[Value]:
        most, one = DEFAULT_LIMITS, {"sql": query(0.01)}
        wide = {**one, "inputs": {"one": "hash(seconds)"}, "parallelism": most.parallelism}
        chain = {f"v{n}": {**one, "inputs": {f"v{n - 1}": "hash(seconds)"}} if n else one for n in range(most.vertices)}
        deep = query(0.01)
        for _ in range(self._draw.choice((10, 30, 60))):
            deep = f"SELECT * FROM ({deep})"
        yield self._draw.choice((
            self._submit(chain),
            self._submit({"one": one, "two": wide, "three": wide}),
            self._submit({"one": {"sql": f"{query(0.01)}, '{'x' * (most.sql_bytes - 100)}' AS x"}}),
            self._submit({f"v{n}": {"sql": f"{query(0.01)}, '{'x' * 60_000}' AS x"} for n in range(4)}),
            self._submit({"one": {"sql": deep}}),
        ))  # fmt: skip

    def _above(self) -> Iterator[Value]:
        most, one = DEFAULT_LIMITS, {"sql": query(0.01)}
        wide = {**one, "inputs": {"one": "hash(seconds)"}, "parallelism": most.parallelism}
        yield self._draw.choice((
            self._submit({f"v{n}": one for n in range(most.vertices + 1)}),
            self._submit({"one": one, "two": {**wide, "parallelism": most.parallelism + 1}}),
            self._submit({"one": {"sql": f"{query(0.01)}, '{'x' * most.sql_bytes}' AS x"}}),
            self._submit({f"v{n}": {"sql": f"{query(0.01)}, '{'x' * 60_000}' AS x"} for n in range(6)}),
            self._submit({"one": {"sql": "(" * 20_000}}),
            self._submit({"one": {"sql": "SELECT " + "-" * 30_000 + "1"}}),
            self._submit({"one": {"sql": f"SELECT {'(' * 3_000}1{')' * 3_000}"}}),
        ))  # fmt: skip

    def _widest(self) -> Iterator[Value]:
        """Each of its numbers is within the limit: 25,000 subtasks of some bytes each."""
        one = {"sql": query(0.01)}
        wide = {**one, "inputs": {"one": "hash(seconds)"}, "parallelism": DEFAULT_LIMITS.parallelism}
        value = self._submit({"one": one, **{f"v{n}": wide for n in range(DEFAULT_LIMITS.vertices - 1)}})
        self._lasting.append(value[2])
        yield value

    def _url_as_sink(self) -> Iterator[Value]:
        for path in (self._url, f"s3a://{self._url[7:]}", f"file://{'x' * 3_000}"):
            sink = {"sink": {"format": "csv", "path": path}, "inputs": {"one": "forward"}}
            yield self._submit({"one": {"sql": query(0.01)}, "out": sink})

    def _strangers(self) -> Iterator[Value]:
        for kind in ASKED:
            yield self._request(kind, job=f"nobody-{self._draw.randrange(10**9)}")
        yield self._request("ListJobs", name="x" * 255, most=1_000)

    def _again(self) -> Iterator[Value]:
        job = f"{HOSTILE}again-{self._count}"
        for seconds in (0.01, 0.02, 0.01):
            yield self._submit({"one": {"sql": query(seconds)}}, job)
        yield self._request("AwaitJobResult", job=job)

    def _long(self) -> Iterator[Value]:
        one = {"one": {"sql": query(0.01)}}
        yield self._submit(one, name="x" * self._draw.choice((255, 256, 100_000)))
        yield self._submit({"x" * self._draw.choice((64, 300, 50_000)): one["one"]})
        yield self._submit(one, env={f"A{n}": "x" * self._draw.choice((100, 1_000)) for n in range(DEFAULT_LIMITS.variables)})
        yield self._submit(one, conf={"spark." + "x" * 10_000: "y" * 100_000})
        yield self._submit(one, parameters={f"p{n}": "${p0}" * 200 for n in range(DEFAULT_LIMITS.parameters)})
        data, _, _ = self._request("CancelJob", job="a", correlation="x" * 100_000)
        yield data, "", ""

    def _large_ends(self) -> Iterator[Value]:
        yield self._submit({"one": {"sql": "SELECT repeat('x', 1000000) AS x FROM range(100)"}})
        yield self._submit({"one": {"sql": "SELECT raise_error(repeat('x', 5000000)) AS x"}})
