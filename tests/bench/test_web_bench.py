"""The bench of the web service: its client and its parts alone, and a small run of two figures whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from millrace.io.http.server import HttpServer
from tests.bench.figures import Run
from tests.bench.web import PARTS, event, facts_held
from tests.bench.web.load import rate, request, size_of
from tests.bench.web.opening import opened
from tests.bench.web.served import TASKS, Publisher
from tests.web.page.pictures import CHROMIUM, browser

ROWS = "<table><tbody>{}</tbody></table>"
BUSY = "setTimeout(() => { const end = performance.now() + 200; while (performance.now() < end) ; }, 100)"


@pytest.mark.parametrize(
    ("answer", "size"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Le", None),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab", 41),
        (b"HTTP/1.1 200 OK\r\nA: b\r\nContent-Length:12\r\n\r\n", 56),
        (b"HTTP/1.1 304 Not Modified\r\netag: x\r\n\r\n", 38),
    ],
)
def test_the_size_of_an_answer(answer: bytes, size: int | None) -> None:
    assert size_of(answer) == size


def test_as_many_reads_as_were_answered() -> None:
    asked: list[str] = []

    async def one(request: Request) -> Response:
        asked.append(request.headers["host"])
        return Response(b"x" * 1000)

    server = HttpServer(Starlette(routes=[Route("/one", one)]))
    port = server.start()
    try:
        told = rate(port, "/one", 0.2, 3)
        with pytest.raises(RuntimeError, match="404"):
            rate(port, "/none", 0.2, 1)
    finally:
        server.stop()
    assert 0 < told["reads"] <= len(asked) <= told["reads"] + 3 and set(asked) == {f"127.0.0.1:{port}"}
    assert told["bytes"] > 1000


def test_a_request_is_one_of_http() -> None:
    assert request(80, "/a?b=1", b"X: y\r\n") == (
        b"GET /a?b=1 HTTP/1.1\r\nHost: 127.0.0.1:80\r\nAccept: */*\r\nUser-Agent: bench\r\nX: y\r\n\r\n"
    )


def test_facts_are_numbered_by_kind_and_subject() -> None:
    facts, found = Publisher("127.0.0.1:1"), []
    record = facts.record
    facts.say = lambda *given, **body: found.append((*given, record(*given, **body)[1]))  # type: ignore[method-assign, func-returns-value]  # nothing is sent
    facts.begin("j-1", ended=True)
    facts.progress("j-1", 5)
    facts.end("j-1")
    attempts = [each[1:4] for each in found if each[0] == "AttemptStateChanged"]
    assert len(found) == facts.said == 4 + len(attempts) and len(attempts) == 3 * sum(n for _, n in TASKS)
    assert [b'"count": 3' in each[-1] for each in found if b'"state": "FINISHED"' in each[-1]] == [True] * 3


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium (Debian's package of that name)")
@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_page_is_interactive_when_its_rows_are_there_and_its_thread_is_free(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    with browser() as chromium:
        page.write_text(ROWS.format("<tr></tr>" * 5))
        rows_ms, took_ms = opened(chromium, page.as_uri(), 5)
        assert 0 < rows_ms <= took_ms
        page.write_text(f"{ROWS.format('<tr></tr>' * 5)}<script>{BUSY}</script>")
        rows_ms, took_ms = opened(chromium, page.as_uri(), 5)
        assert took_ms - rows_ms > 100, "it was busy for 200 ms after that"


@pytest.mark.long
@pytest.mark.timeout(600)
def test_small_figures_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(facts_held, "REST_S", 0.1)
    monkeypatch.setattr(event, "WARM_UP", 3)
    run = Run("web", True, lambda _: None)
    for part in (event.measure, facts_held.measure):
        assert part in PARTS.values()
        part(run)
    assert [row.figure.partition(",")[0] for row in run.rows] == [
        "event -> in JSON at a client", "the web service's memory for a million facts held", "the same after as many jobs again",
    ]  # fmt: skip
    found = run.samples["event"]
    assert len(found["shown_ms"]) == len(found["hop_ms"]) == 30 and found["read"]["failed"] == 0
    assert found["read"]["news"] + found["read"]["same"] > 0 and found["followed"]["events"] > 0
    assert min(run.samples["held"][name] for name in ("idle_mb", "held_mb", "later_mb")) > 0
