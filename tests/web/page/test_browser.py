"""Headless Chromium visits every screen, and uses the actions. axe finds nothing serious, the console stays empty, nothing overflows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millrace.io.http.server import HttpServer
from tests.web.history.scene import Scene, archive

from .axe import AXE, RUN_AXE
from .pictures import CHROMIUM, LIMIT_MS, SCREENS, WIDTHS, browser, served
from .seed import RUNNING, SCRIPT, Cluster

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium (Debian's package of that name)"),
]
NODES_MOST = 2500
OVER_EACH_OTHER = """() => {
  const drawn = [...document.querySelectorAll('.axis text')].map(each => [each.textContent, each.getBoundingClientRect()])
  const found = drawn.filter(([, at]) => at.width)
  return found.slice(1).filter(([, at], n) => at.left < found[n][1].right).map(([text]) => text)
}"""
"""Times below the timeline of which one lies over the one before."""


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
        wrong += [f"{name}: {each} is written over another time" for each in view.evaluate(OVER_EACH_OTHER)]
        if (nodes := view.evaluate("document.querySelectorAll('*').length")) > NODES_MOST:
            wrong.append(f"{name}: {nodes} nodes")
    view.close()
    assert wrong == [] and said == []


def test_the_past_on_a_phone_shows_whose_jobs_they_are(chromium: Any, tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.write("nightly-orders-41", archive("nightly-orders-41"))
    scene.archives.look()
    server = HttpServer(scene.web.app)
    said: list[str] = []
    view = opened(chromium, 390, "light", said)
    try:
        view.goto(f"http://127.0.0.1:{server.start()}/page/jobs")
        assert view.locator("#rows .c-id").evaluate("cell => [cell.scrollWidth - cell.clientWidth, cell.clientWidth > 150]") == [0, True]
        assert view.locator("#rows .c-what").evaluate("cell => cell.clientWidth > 250")
    finally:
        view.close()
        server.stop()
    assert said == []


def test_states_change_in_place_and_a_new_job_waits_to_be_asked_for(page: tuple[str, Cluster], chromium: Any) -> None:
    said: list[str] = []
    view, cluster = opened(chromium, 1440, "light", said), page[1]
    view.goto(f"{page[0]}/jobs")
    view.locator(f"#r-{SCRIPT} input").check()
    cluster.accept("just-came-1", "just-came", cluster.wall_ms + 60_000, [("a", 1)])
    view.get_by_text("Show 1 newer").wait_for()
    cluster.job("JobStateChanged", SCRIPT, cluster.wall_ms, status="CANCELLING", cause=None)
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


def test_a_host_is_blocked_and_unblocked_by_keys_and_the_cluster_shut_down(page: tuple[str, Cluster], chromium: Any) -> None:
    """Each question is a dialog: focus begins in it, Escape closes it and gives it back, a mistake has its field focused."""
    said: list[str] = []
    view, cluster = opened(chromium, 390, "dark", said), page[1]
    view.goto(f"{page[0]}/taskmanagers")
    link, dialog = view.get_by_role("link", name="Block a host"), view.get_by_role("dialog")
    link.focus()
    view.keyboard.press("Enter")
    dialog.locator("[name=host]").wait_for()
    assert view.evaluate("document.activeElement.name") == "host"
    view.evaluate(AXE)
    assert view.evaluate(RUN_AXE) == []
    view.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    assert view.evaluate("document.activeElement.textContent") == "Block a host"
    view.keyboard.press("Enter")
    dialog.locator("[name=host]").fill("ws-04")
    dialog.locator("[name=length]").fill("soon")
    view.keyboard.press("Enter")
    view.get_by_role("alert").filter(has_text="'soon' is no length of time").wait_for()
    assert view.evaluate("document.activeElement.name") == "length"
    view.evaluate(AXE)
    assert view.evaluate(RUN_AXE) == []
    view.locator(":focus").fill("2h")
    view.keyboard.press("Enter")
    view.locator("#blocked").get_by_role("link", name="Unblock ws-04").click()
    dialog.get_by_role("button", name="Unblock").click()
    view.locator("#blocked").wait_for(state="detached")
    assert [what for what, _ in cluster.sent if "block" in what] == ["block", "unblock"]
    view.goto(f"{page[0]}/services")
    view.get_by_role("link", name="Shut down the cluster").click()
    dialog.get_by_role("button", name="Shut down").wait_for()
    assert view.evaluate("document.activeElement.textContent") == "Keep it running"
    dialog.get_by_role("button", name="Shut down").click()
    view.locator("h1", has_text="The cluster is being shut down").wait_for()
    view.close()
    assert [each for each in said if "400 (Bad Request)" not in each] == []


def test_a_selection_is_kept_until_its_question_is_answered(page: tuple[str, Cluster], chromium: Any) -> None:
    """By keys alone. Of a question that is a page of its own, Escape and the link lead back."""
    said: list[str] = []
    view, cluster = opened(chromium, 1440, "light", said), page[1]
    dialog = view.get_by_role("dialog")
    view.goto(f"{page[0]}/jobs?q=state:live")
    for key in ("j", "x", "j", "x"):
        view.keyboard.press(key)
    button = view.get_by_role("button", name="Cancel 2")
    button.focus()
    view.keyboard.press("Enter")
    dialog.get_by_role("link", name="Keep them").wait_for()
    assert view.evaluate("document.activeElement.textContent") == "Keep them"
    for key in ("?", "n", "j", "Escape"):  # those of the list do nothing now
        view.keyboard.press(key)
    dialog.wait_for(state="detached")
    assert view.evaluate("document.activeElement.textContent").startswith("Cancel 2")
    view.get_by_text("2 selected").wait_for()
    view.keyboard.press("Enter")
    dialog.get_by_role("button", name="Cancel 2 jobs").click()
    view.locator("h1", has_text="2 of 2 jobs canceled").wait_for()
    assert len([what for what, _ in cluster.sent if what == "cancel"]) >= 2
    for leaves in (lambda: view.keyboard.press("Escape"), lambda: view.get_by_role("link", name="Keep it").click()):
        view.goto(f"{page[0]}/jobs/{SCRIPT}/cancel")
        leaves()
        view.wait_for_url(f"{page[0]}/jobs")
    view.close()
    assert said == []


def test_what_is_typed_outlives_updates_until_it_is_sent(page: tuple[str, Cluster], chromium: Any) -> None:
    said: list[str] = []
    view, cluster = opened(chromium, 1440, "light", said), page[1]
    view.goto(f"{page[0]}/jobs")
    view.keyboard.press("/")
    view.keyboard.type("state:finished")
    view.keyboard.press("Tab")
    cluster.accept("comes-in-between", "comes-in-between", cluster.wall_ms + 120_000, [("a", 1)])
    view.locator("#r-comes-in-between").wait_for()
    view.keyboard.press("Enter")
    view.locator(".fchip[aria-current]", has_text="Finished").wait_for()
    view.close()
    assert said == []


def test_a_screen_that_is_refused_is_not_called_live(page: tuple[str, Cluster], chromium: Any) -> None:
    """A refusal as JSON has no screen in it: the old one stayed, and counted as fresh."""
    said: list[str] = []
    view = opened(chromium, 1440, "light", said)
    view.goto(f"{page[0]}/jobs")
    assert view.locator("#fresh b").inner_text() == "Live"
    view.route("**/page/jobs", lambda route: route.fulfill(status=429, content_type="application/problem+json", body="{}"))
    view.locator("#fresh b", has_text="Not connected").wait_for()
    assert "The web service answers 429. You see" in view.locator("#strip").inner_text()
    view.unroute("**/page/jobs")
    view.locator("#fresh b", has_text="Live").wait_for()
    view.close()
    assert [each for each in said if "429" not in each] == []
