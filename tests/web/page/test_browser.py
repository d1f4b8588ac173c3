"""Headless Chromium visits every screen, and uses the actions. axe finds nothing serious, the console stays empty, nothing overflows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .pictures import CHROMIUM, LIMIT_MS, SCREENS, WIDTHS, browser, served
from .seed import RUNNING, SCRIPT, Cluster

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium (Debian's package of that name)"),
]
AXE = (Path(__file__).parent / "axe.min.js").read_text()
NODES_MOST = 2500
RUN_AXE = """async () => (await axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']})).violations
    .filter(each => ['serious', 'critical'].includes(each.impact))
    .map(each => each.id + ': ' + each.nodes.map(node => node.html.slice(0, 160)))"""


@pytest.fixture(scope="module")
def page() -> Iterator[tuple[str, Cluster]]:
    with served() as found:
        yield found


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as found:
        yield found


def opened(chromium: Any, width: int, scheme: str, said: list[str]) -> Any:
    view = chromium.new_page(viewport={"width": width, "height": WIDTHS[width]}, color_scheme=scheme)
    view.set_default_timeout(LIMIT_MS)
    view.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    view.on("pageerror", lambda error: said.append(str(error)))
    return view


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", list(WIDTHS))
def test_every_screen_in_every_width_and_colour(page: tuple[str, Cluster], chromium: Any, width: int, scheme: str) -> None:
    said: list[str] = []
    view, wrong = opened(chromium, width, scheme, said), []
    for name, path in SCREENS.items():
        view.goto(page[0] + path)
        view.evaluate(AXE)
        wrong += [f"{name}: {each}" for each in view.evaluate(RUN_AXE)]
        if (wide := view.evaluate("document.documentElement.scrollWidth - innerWidth")) > 0:
            wrong.append(f"{name}: {wide} px too wide")
        if (nodes := view.evaluate("document.querySelectorAll('*').length")) > NODES_MOST:
            wrong.append(f"{name}: {nodes} nodes")
    view.close()
    assert wrong == [] and said == []


def test_states_change_in_place_and_a_new_job_waits_to_be_asked_for(page: tuple[str, Cluster], chromium: Any) -> None:
    said: list[str] = []
    view, cluster = opened(chromium, 1440, "light", said), page[1]
    view.goto(f"{page[0]}/jobs")
    view.locator(f"#r-{SCRIPT} input").check()
    cluster.accept("just-came-1", "just-came", cluster.now_ms + 60_000, [("a", 1)])
    view.get_by_text("Show 1 newer").wait_for()
    cluster.job("JobStateChanged", SCRIPT, cluster.now_ms, status="CANCELLING", cause=None)
    view.locator(f"#r-{SCRIPT}").get_by_text("Cancelling").wait_for()
    assert view.locator(f"#r-{SCRIPT} input").is_checked() and view.locator("#r-just-came-1").count() == 0
    view.get_by_text("Show 1 newer").click()
    view.locator("#r-just-came-1").wait_for()
    view.close()
    assert said == []


def test_a_job_is_canceled_by_a_dialog_and_a_graph_checked_as_it_is_typed(page: tuple[str, Cluster], chromium: Any) -> None:
    said: list[str] = []
    view, cluster = opened(chromium, 1440, "dark", said), page[1]
    view.goto(f"{page[0]}/jobs/{RUNNING}")
    view.get_by_role("link", name="Cancel").click()
    view.get_by_role("dialog").get_by_role("button", name=f"Cancel {RUNNING}").click()
    view.locator("h1 + .st", has_text="Cancelling").wait_for()
    assert ("cancel", RUNNING) in cluster.sent
    view.goto(f"{page[0]}/submit")
    view.locator("#graph-text").fill("name: typed\nvertices:\n  one:\n    sql: SELECT 1 AS a\n    paralelism: 2\n")
    view.get_by_text("1 mistake").wait_for()
    assert view.locator("#problems").inner_text().startswith("5:5")
    view.locator("#graph-text").fill("name: typed\nvertices:\n  one:\n    sql: SELECT 1 AS a\n")
    view.locator("#told", has_text="valid").wait_for()
    view.keyboard.press("Control+Enter")
    view.locator("h1", has_text="typed-").wait_for()
    view.close()
    assert said == []


def test_a_task_manager_is_looked_at_in_place_and_a_log_is_chosen(page: tuple[str, Cluster], chromium: Any) -> None:
    said: list[str] = []
    view, cluster = opened(chromium, 1440, "light", said), page[1]
    view.goto(f"{page[0]}/taskmanagers/task-manager-1")
    view.locator("#jvm-0", has_text="30 MB of 1.0 GB").wait_for()
    cluster.mute = (*cluster.mute, "task-manager-1")
    view.get_by_text("It does not say how it is:").wait_for()
    assert view.locator("#slot-0").count() == 1 and view.locator("#jvm-0").count() == 0
    cluster.mute = cluster.mute[:-1]
    view.locator("#jvm-0").wait_for()
    view.get_by_role("link", name="Logs", exact=True).click()
    view.get_by_label("Log", exact=True).select_option("slot-0.jvm.log")
    view.locator("#log", has_text="a JVM").wait_for()
    view.get_by_role("link", name="Threads", exact=True).click()
    view.get_by_role("region", name="Threads of the JVM of slot 0").wait_for()
    view.keyboard.press("g")
    view.keyboard.press("s")
    view.get_by_role("link", name="dispatcher-2").click()
    view.locator("h1", has_text="dispatcher-2").wait_for()
    view.close()
    assert said == []
