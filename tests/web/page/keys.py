"""The page of a live cluster by keyboard alone: every action, and where the focus is. No mouse, and no address but the first."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .axe import AXE, RUN_AXE

FOCUSED = """() => {
  const at = document.activeElement
  if (!at || at === document.body) return {name: '', seen: true, inside: false}
  const style = getComputedStyle(at), bar = at.querySelector('.att'), box = at.getBoundingClientRect()
  const outlined = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2
  const middle = (from, to, most) => (Math.max(from, 0) + Math.min(to, most)) / 2
  const over = document.elementFromPoint(middle(box.left, box.right, innerWidth), middle(box.top, box.bottom, innerHeight))
  const labels = [...(at.labels || [])].map(each => each.innerText).join(' ')
  return {
    name: (at.ariaLabel || labels || at.innerText || at.textContent || at.title || '').replaceAll('\u00a0', ' ').trim(),
    tag: at.tagName, id: at.id,
    seen: at.id === 'main' || outlined || (bar !== null && parseFloat(getComputedStyle(bar).strokeWidth) >= 2),
    covered: Boolean(over && !at.contains(over) && !over.contains(at) && !at.matches('.skip')),
    inside: at.closest('dialog') !== null,
  }
}"""
"""What has the focus: its name, whether one sees that, whether something lies over it, whether it is in a dialog."""
TABS_MOST = 150
SLOW = """name: typed

vertices:
  ids:
    sql: SELECT id FROM range(8)

  waits:
    sql: SELECT id, reflect('java.lang.Thread', 'sleep', 600000L) AS slept FROM ids
    parallelism: 2
    inputs: {ids: hash(id)}
"""
Step = Callable[["Hands"], None]


class Hands:
    """Somebody who uses the page by keys. Notes each focus that cannot be seen, and each dialog that axe finds something in."""

    def __init__(self, view: Any, address: str, folder: Path) -> None:
        self.view, self.address, self.folder = view, address, folder
        self.wrong: list[str] = []
        self.job = ""
        """The job that was typed."""

    def press(self, *keys: str) -> None:
        for each in keys:
            self.view.keyboard.press(each)

    def at(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.view.evaluate(FOCUSED)
        return found

    def tab_to(self, name: str) -> None:
        """Tab until what begins with this name has the focus."""
        for _ in range(TABS_MOST):
            self.press("Tab")
            at = self.at()
            if not at["seen"]:
                self.wrong.append(f"{self._title()}: the focus is on {at['name'][:60]!r}, and one does not see it")
            if at.get("covered"):
                self.wrong.append(f"{self._title()}: something lies over {at['name'][:60]!r}, which has the focus")
            if at["name"].startswith(name):
                return
        raise AssertionError(f"{TABS_MOST} tabs do not lead to {name!r}")

    def go(self, key: str, headline: str) -> None:
        self.press("g", key)
        self.headline(headline)

    def headline(self, text: str) -> None:
        self.view.locator("h1", has_text=text).first.wait_for()

    def asked(self, link: str, first: str) -> None:
        """Opens the question behind a link: the focus begins at `first` in it, Escape gives it back to the link, and it is opened again."""
        self.tab_to(link)
        for again in (False, True):
            self.press("Enter")
            self.view.locator("dialog[open] #question-h").wait_for()
            at = self.at()
            if not at["inside"] or not at["name"].startswith(first):
                self.wrong.append(f"the question of {link!r} begins at {at['name'][:60]!r}, not at {first!r}")
            if again:
                return
            self.looked_at(f"asked-{link.split()[0].lower()}")
            self.press("Escape")
            self.view.locator("dialog[open]").wait_for(state="detached")
            if not (back := self.at())["name"].startswith(link):
                self.wrong.append(f"after Escape in the question of {link!r} the focus is at {back['name'][:60]!r}")

    def looked_at(self, name: str) -> None:
        """By axe, and in a picture."""
        self.view.evaluate(AXE)
        self.wrong += [f"{name}: {each}" for each in self.view.evaluate(RUN_AXE)]
        self.view.screenshot(path=str(self.folder / f"keys-{name}.png"))

    def _title(self) -> str:
        return str(self.view.title()).partition(" · ")[0]


def by_keys(view: Any, address: str, folder: Path, failed: str) -> list[str]:
    """Does all that the page offers. `failed`: a job that failed, whose logs are searched. The cluster has free slots, a schedule
    `nightly` and a dead letter; in the end it is shut down."""
    hands = Hands(view, address, folder)
    steps: tuple[Step, ...] = (
        _skips, lambda hands: _searches_logs(hands, failed), _submits, _looks_inside, _rescales, _cancels, _repairs, _cancels_many,
        _blocks, _schedules, _letters, _processes, _shuts_down,
    )  # fmt: skip
    for step in steps:
        view.goto(f"{address}/")
        try:
            step(hands)
        except Exception as failure:  # a step that does not go on is told, and the next one is tried
            hands.wrong.append(f"by keys, {getattr(step, '__name__', 'search')}: {str(failure).splitlines()[0]}")
            print(hands.wrong[-1], file=sys.stderr, flush=True)
            view.screenshot(path=str(folder / f"keys-wrong-{len(hands.wrong)}.png"))
    return list(dict.fromkeys(hands.wrong))


def _skips(hands: Hands) -> None:
    hands.press("Tab")
    assert hands.at()["name"] == "Skip to content"
    hands.press("Enter")
    assert hands.at()["id"] == "main", "the skip link does not lead to what is shown"
    hands.press("?")
    hands.view.locator("#keys[open]").wait_for()
    hands.looked_at("keys")
    hands.press("?", "j", "Escape")
    hands.view.locator("#keys[open]").wait_for(state="detached")
    hands.tab_to("Live")
    hands.press("Enter")
    hands.view.locator("details.fresh[open]").wait_for()
    hands.press("Escape")
    hands.view.locator("details.fresh[open]").wait_for(state="detached")


def _searches_logs(hands: Hands, failed: str) -> None:
    hands.go("j", "Jobs")
    hands.press("/")
    hands.view.keyboard.type(failed)
    hands.press("Enter")
    hands.view.get_by_role("status").get_by_text("1 job", exact=True).wait_for()
    hands.press("j")
    hands.press("Enter")
    hands.headline(failed)
    hands.tab_to("Logs")
    hands.press("Enter")
    hands.view.locator("#lfind").wait_for()
    hands.view.wait_for_timeout(2500)  # the page is renewed meanwhile
    assert hands.at()["name"].startswith("Logs"), f"after two renewals the focus is at {hands.at()['name'][:60]!r}"
    hands.tab_to("Find in the log")
    hands.view.keyboard.type("no line has this")
    hands.tab_to("Show")
    hands.view.wait_for_timeout(1500)
    hands.press("Enter")
    hands.view.get_by_text("No line has no line has this").wait_for()


def _submits(hands: Hands) -> None:
    hands.press("n")
    hands.headline("Submit a job")
    hands.tab_to("The graph as YAML")
    hands.press("Control+a")
    hands.view.keyboard.insert_text(SLOW.replace("parallelism", "paralelism"))
    hands.view.get_by_text("1 mistake").wait_for()
    hands.press("Control+a")
    hands.view.keyboard.insert_text(SLOW)
    hands.view.locator("#told", has_text="valid").wait_for()
    hands.looked_at("typed")
    hands.press("Control+Enter")
    hands.headline("typed-")
    hands.job = hands.view.locator("h1").inner_text()


def _opened(hands: Hands, job: str) -> None:
    hands.go("j", "Jobs")
    hands.press("/")
    hands.view.keyboard.type(job)
    hands.press("Enter")
    hands.view.get_by_role("status").get_by_text("1 job", exact=True).wait_for()
    hands.press("j", "Enter")
    hands.headline(job)


def _looks_inside(hands: Hands) -> None:
    _opened(hands, hands.job)
    hands.view.locator("#chosen", has_text="Running").wait_for()
    hands.tab_to("Now")
    hands.press("Enter")
    hands.view.get_by_text("asked at this moment").wait_for()
    hands.looked_at("now")
    for tab in ("Result", "Logs", "Story", "Spark", "Configuration"):
        hands.tab_to(tab)
        hands.press("Enter")
        hands.view.locator(".tab[aria-current]", has_text=tab).wait_for()


def _rescales(hands: Hands) -> None:
    _opened(hands, hands.job)
    hands.asked("Rescale", "waits")
    hands.press("Control+a")
    hands.view.keyboard.type("3")
    hands.press("Enter")
    hands.view.locator(".node", has_text="waits").get_by_text("×3").first.wait_for()
    hands.looked_at("rescaled")


def _cancels(hands: Hands) -> None:
    _opened(hands, hands.job)
    hands.view.locator(".node", has_text="ids").get_by_text("8 rows").first.wait_for()  # that is what a repair keeps
    hands.asked("Cancel", "Keep it")
    hands.tab_to(f"Cancel {hands.job}")
    hands.press("Enter")
    hands.view.locator("h1 + .st", has_text="Canceled").wait_for()


def _repairs(hands: Hands) -> None:
    _opened(hands, hands.job)
    hands.asked("Repair", "Leave it")
    hands.tab_to("Repair")
    hands.press("Enter")
    hands.view.get_by_text("Repairs", exact=True).wait_for()
    hands.view.locator("h1 + .st", has_text="Running").wait_for()
    hands.view.locator(".node", has_text="waits").get_by_text("sql", exact=True).wait_for()
    hands.looked_at("repaired")
    _opened(hands, hands.job)
    hands.asked("Run again", "Leave it")
    hands.tab_to("Run again")
    hands.press("Enter")
    hands.view.get_by_text("Run again from", exact=True).wait_for()


def _cancels_many(hands: Hands) -> None:
    hands.go("j", "Jobs")
    hands.press("/")
    hands.view.keyboard.type("typed state:live")
    hands.press("Enter")
    hands.view.get_by_role("status").get_by_text("2 jobs", exact=True).wait_for()
    hands.press("j", "x", "j", "x")
    hands.view.get_by_text("2 selected").wait_for()
    hands.looked_at("selected")
    hands.asked("Cancel 2", "Keep them")
    hands.tab_to("Cancel 2 jobs")
    hands.press("Enter")
    hands.headline("2 of 2 jobs canceled")
    hands.looked_at("canceled")


def _blocks(hands: Hands) -> None:
    hands.go("t", "TaskManagers")
    hands.press("j", "Enter")
    hands.view.get_by_text("What is in its slots").wait_for()
    hands.asked("Block its host", "For")
    hands.view.keyboard.type("soon")
    hands.press("Enter")
    hands.view.get_by_role("alert").filter(has_text="is no length of time").wait_for()
    hands.looked_at("block-wrong")
    hands.press("Control+a")
    hands.view.keyboard.type("2h")
    hands.tab_to("Why")
    hands.view.keyboard.type("a fan is broken")
    hands.press("Enter")
    hands.view.locator("#blocked", has_text="a fan is broken").wait_for()
    hands.looked_at("blocked")
    hands.asked("Unblock", "Leave it blocked")
    hands.tab_to("Unblock")
    hands.press("Enter")
    hands.view.locator("#blocked").wait_for(state="detached")


def _schedules(hands: Hands) -> None:
    hands.tab_to("Schedules")
    hands.press("Enter")
    hands.headline("Schedules")
    hands.press("j", "Enter")
    hands.headline("nightly")
    for word, then in (("Pause", "paused"), ("Resume", "active")):
        hands.asked(word, "Leave it")
        hands.tab_to(word)
        hands.press("Enter")
        hands.view.locator("main .st", has_text=then).wait_for()
    hands.asked("Run now", "Leave it")
    hands.tab_to("Run now")
    hands.press("Enter")
    hands.headline("nightly-")
    hands.view.locator("h1 + .st", has_text="Finished").wait_for()
    hands.tab_to("Schedules")
    hands.press("Enter")
    hands.headline("Schedules")
    hands.press("j", "Enter")
    hands.headline("nightly")
    hands.looked_at("schedule")
    hands.asked("Remove", "Leave it")
    hands.tab_to("Remove")
    hands.press("Enter")
    hands.view.get_by_text("No schedules").wait_for()


def _letters(hands: Hands) -> None:
    hands.go("d", "Dead letters")
    hands.press("j", "Enter")
    hands.view.get_by_role("heading", name="Letter 0").wait_for()
    hands.press("x")
    hands.asked("Send 1 again", "Leave them")
    hands.press("Enter")
    hands.view.locator("dialog[open]").wait_for(state="detached")
    hands.tab_to("What would be accepted now?")
    hands.press("Enter")
    hands.headline("None of them would be accepted now")
    hands.press("Escape")
    hands.headline("Dead letters")


def _processes(hands: Hands) -> None:
    hands.go("s", "Services")
    hands.press("j", "Enter")
    hands.view.get_by_text("Open files").wait_for()
    for tab in ("Settings", "Logs", "Threads"):
        hands.tab_to(tab)
        hands.press("Enter")
        hands.view.locator(".tab[aria-current]", has_text=tab).wait_for()
    hands.looked_at("threads")


def _shuts_down(hands: Hands) -> None:
    hands.go("s", "Services")
    hands.asked("Shut down the cluster", "Keep it running")
    hands.tab_to("Shut down")
    hands.press("Enter")
    hands.headline("The cluster is being shut down")
    hands.looked_at("ended")
