"""A collector of OpenTelemetry: takes spans over HTTP as protobuf, and shows the traces that they make."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from deploy.local.processes import free_port


@dataclass(frozen=True)
class Seen:
    """A span as it came. Times: Unix time, ns."""

    trace: str
    span: str
    parent: str
    name: str
    service: str
    start: int
    end: int
    attributes: dict[str, Any]
    failed: str | None
    state: str
    """Its `tracestate`."""

    @property
    def kind(self) -> str:
        """Its name without what it is about: a job's and a task's name may have any words."""
        return self.name if self.name.startswith("spark ") else self.name.partition(" ")[0]


class Collector:
    """Listens on a port of its own inside a `with`. `status`: what it answers. `spans`: all that came, repeats too."""

    def __init__(self) -> None:
        # Not one that systems lend to outgoing connections: while it is away, another process's would have it.
        self._port = free_port()
        self.status = 200
        self.spans: list[Seen] = []
        self.headers: list[dict[str, str]] = []
        self._changed = threading.Condition()

    def __enter__(self) -> Collector:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector._take(self.path, dict(self.headers), body)
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(collector.status)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """Nobody listens on its port meanwhile."""
        self.__exit__()
        try:
            yield
        finally:
            self.__enter__()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def until(self, what: str, found: Any, limit_s: float = 180) -> Any:
        """The first true value of `found(spans so far)`."""
        with self._changed:
            value = self._changed.wait_for(lambda: found(list(self.spans)), limit_s)
            assert value, f"waited {limit_s:.0f} s in vain for {what}; there are {sorted(span.name for span in self.spans)}"
            return value

    def of(self, job: str) -> list[Seen]:
        """The spans of a job, each once; two that have one identifier differ in their ends at most."""
        known: dict[tuple[str, str], Seen] = {}
        for span in self.spans:
            if span.attributes.get("millrace.job.id") == job:
                first = known.setdefault((span.trace, span.span), span)
                assert (*_all_but_end(first),) == (*_all_but_end(span),), f"two contents of one span: {first} {span}"
        return list(known.values())

    def _take(self, path: str, headers: dict[str, str], body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        assert path == "/v1/traces", path
        with self._changed:
            self.headers.append(headers)
            if self.status == 200:
                self.spans += [
                    _seen(span, _values(resource.resource.attributes)["service.name"])
                    for resource in request.resource_spans for scope in resource.scope_spans for span in scope.spans
                ]  # fmt: skip
            self._changed.notify_all()


def tree(spans: list[Seen]) -> list[str]:
    """The spans of one trace as lines, each below its parent, in the order in which they began. Those without a parent among them are
    the roots."""
    known = {span.span for span in spans}

    def lines(parent: str | None, depth: int) -> list[str]:
        found = []
        below = [span for span in spans if (span.parent == parent if parent is not None else span.parent not in known)]
        for span in sorted(below, key=lambda each: (each.start, each.end, each.name)):
            found += ["  " * depth + span.name, *lines(span.span, depth + 1)]
        return found

    return lines(None, 0)


def _all_but_end(span: Seen) -> list[Any]:
    return [value for name, value in vars(span).items() if name != "end"]


def _seen(span: Any, service: str) -> Seen:
    failed = span.status.message if span.status.code == span.status.STATUS_CODE_ERROR else None
    return Seen(
        span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex(), span.name, service, span.start_time_unix_nano,
        span.end_time_unix_nano, _values(span.attributes), failed, span.trace_state,
    )  # fmt: skip


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
