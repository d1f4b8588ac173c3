"""The list of 10,000 jobs until one can work with it, in Chromium: our page beside Flink's dashboard over the same service."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from typing import Any

from deploy.local.stack import home
from tests.web.flink.tools import dashboard
from tests.web.page.pictures import browser

from ..figures import Row, Run, p50
from .served import Publisher, Web, web_alone

TIMES_LEAST = 3.0
TURNS = 5
LIVE = 20
QUIET_MS = 500
LIMIT_MS = 120_000
WATCH = """window.busyUntil = 0
new PerformanceObserver(list => {
  for (const task of list.getEntries()) window.busyUntil = Math.max(window.busyUntil, task.startTime + task.duration)
}).observe({type: 'longtask', buffered: true})
window.shownAt = 0
const look = () => {
  if (!window.shownAt && document.querySelectorAll('tbody tr').length >= ROWS) window.shownAt = performance.now()
  if (!window.shownAt) setTimeout(look, 10)
}
look()"""
"""Before anything of a page runs: when its rows are there, and when its thread was last busy for 50 ms or longer."""
INTERACTIVE = """new Promise(done => {
  const look = () => {
    const since = Math.max(window.shownAt, window.busyUntil)
    if (window.shownAt && performance.now() - since >= QUIET) done(since)
    else setTimeout(look, 10)
  }
  look()
})"""
ROWS = {"ours": 20, "flinks": 10}
"""Of these a page of either list has more."""


def measure(run: Run) -> None:
    """Interactive: the rows are there, and since then, or since its last task of 50 ms or more, its thread was free for half a second.
    Counted from the request for the page to that moment, without the half second. Each turn is a browser profile of its own."""
    turns, jobs = run.count(TURNS, 1), run.count(10_000, 200)
    found: dict[str, list[float]] = {"ours": [], "flinks": []}
    shown: dict[str, list[float]] = {"ours": [], "flinks": []}
    with ExitStack() as started:
        files = dashboard(home() / "dashboard")
        web = started.enter_context(web_alone("opening", dashboard=files))
        _fill(web, run, jobs)
        chromium = started.enter_context(browser())
        places = {"ours": "/page/jobs", "flinks": "/flink/#/job/completed"}
        for turn in range(turns + 1):
            for name, place in places.items():
                rows_ms, took_ms = opened(chromium, f"{web.url}{place}", ROWS[name])
                if turn:
                    shown[name].append(rows_ms)
                    found[name].append(took_ms)
            if turn:
                run.say(f"{turn} of {turns}: ours {found['ours'][-1]:.0f} ms, Flink's {found['flinks'][-1]:.0f} ms")
    shutil.rmtree(home() / "dashboard", ignore_errors=True)
    run.samples["opening"] = {"interactive_ms": found, "rows_ms": shown}
    times = p50(found["flinks"]) / p50(found["ours"])
    run.rows.append(Row(
        f"the page of {jobs:,} jobs, until it is interactive", turns, f"{p50(found['ours']):.0f} ms", f"max {max(found['ours']):.0f} ms",
        f"Flink's dashboard {p50(found['flinks']):.0f} ms", f"{times:.1f} x faster", f"{TIMES_LEAST:.0f} x", times >= TIMES_LEAST,
    ))  # fmt: skip


def _fill(web: Web, run: Run, jobs: int) -> None:
    facts = Publisher(web.kafka)
    for number in range(jobs):
        facts.begin(f"nightly-orders-{number}", [("orders", 1)], ended=number >= LIVE)
        if number >= LIVE:
            facts.end(f"nightly-orders-{number}")
    facts.flush()
    web.await_folded(facts.said, run.say)


def opened(chromium: Any, url: str, rows: int) -> tuple[float, float]:
    """Milliseconds until the rows are there, and until the page is interactive."""
    context = chromium.new_context(viewport={"width": 1440, "height": 900})
    try:
        page = context.new_page()
        page.set_default_timeout(LIMIT_MS)
        page.add_init_script(WATCH.replace("ROWS", str(rows)))
        page.goto(url, wait_until="commit")
        took = page.evaluate(INTERACTIVE.replace("QUIET", str(QUIET_MS)))
        return float(page.evaluate("window.shownAt")), float(took)
    finally:
        context.close()
