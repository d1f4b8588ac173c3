"""TaskManagers and slots, page by page."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from services.web.app import application
from services.web.follow import Follows
from services.web.listing import BadCursor, part
from services.web.view import View
from services.web.worker import fact_of
from tests.web.test_web_api import ALONE, record
from tests.web.test_web_streams import fresh

NAMES = [f"tm-{n:02}" for n in range(7)]


def joined(view: View, offset: int, name: str) -> None:
    fact = {"type": "TaskManagerJoined", "task_manager": name, "incarnation": 1, "host": "h", "slots": 3, "states": ["FREE"] * 3}
    view.fold(fact_of(record("cluster.events", offset, "", **fact)))


@pytest.fixture
def scene() -> tuple[View, TestClient]:
    view = fresh()
    for offset, name in enumerate(reversed(NAMES)):
        joined(view, offset, name)
    return view, TestClient(application(view, lambda: Follows("", 0), ALONE), base_url="http://127.0.0.1")


def test_each_task_manager_and_slot_is_on_one_page(scene: tuple[View, TestClient]) -> None:
    web = scene[1]
    for path, of, total in (("taskmanagers", "task_managers", 7), ("slots", "slots", 21)):
        whole = web.get(f"/api/v1/{path}").json()
        assert (whole["total"], len(whole[of]), whole["next"]) == (total, total, None)
        found, cursor = [], ""
        while cursor is not None:
            answer = web.get(f"/api/v1/{path}", params={"limit": 2, "cursor": cursor}).json()
            assert len(answer[of]) <= 2 and answer["total"] == total
            found += answer[of]
            cursor = answer["next"]
        assert found == whole[of]
    assert [each["task_manager"] for each in web.get("/api/v1/taskmanagers").json()["task_managers"]] == NAMES


def test_who_comes_while_one_reads_moves_no_page(scene: tuple[View, TestClient]) -> None:
    view, web = scene
    cursor = web.get("/api/v1/taskmanagers?limit=3").json()["next"]
    joined(view, len(NAMES), "tm-00a")
    rest = web.get("/api/v1/taskmanagers", params={"cursor": cursor}).json()["task_managers"]
    assert [each["task_manager"] for each in rest] == NAMES[3:]


@pytest.mark.parametrize("cursor", ["x", "e30", "WzFd", "é", "bnVsbA"])
def test_what_is_no_cursor_of_slots_is_refused(scene: tuple[View, TestClient], cursor: str) -> None:
    web = scene[1]
    for path in ("slots", "taskmanagers"):
        answer = web.get(f"/api/v1/{path}", params={"cursor": cursor})
        assert (answer.status_code, answer.json()["errors"][0]["place"]) == (400, ["cursor"]), answer.text
    other = web.get("/api/v1/taskmanagers?limit=1").json()["next"]
    assert web.get("/api/v1/slots", params={"cursor": other}).status_code == 400


def test_a_cursor_holds_values_of_the_order_alone() -> None:
    rows = [{"a": "x", "n": n} for n in range(3)]
    page, more = part(rows, ("a", "n"), 1, "")
    assert page == rows[:1] and more is not None and part(rows, ("a", "n"), 5, more) == (rows[1:], None)
    assert part([], ("a", "n"), 5, more) == ([], None)
    with pytest.raises(BadCursor):
        part([{"a": "x", "n": "y"}], ("a", "n"), 5, more)
