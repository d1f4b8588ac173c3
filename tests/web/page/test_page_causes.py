"""Why a job failed, where nothing of it ran; and the lines of a query, by the user's file."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from millrace.core.messages.attempts import Fault
from services.web.core.plans import plan_of
from services.web.page.causes import query_of

from .seed import CAUSE, GRAPH, TASKS, Cluster
from .test_page import NOW, said

STANDS = {"file": "flights.yaml", "line": 42, "indent": 6}


def test_a_job_that_cannot_be_planned_names_its_task_and_waits_for_nothing(web: TestClient, cluster: Cluster) -> None:
    cluster.accept("unplanned-1", "flight-delays", NOW - 9000, TASKS)
    cluster.job("JobFailed", "unplanned-1", NOW - 100, archive=None, cause={**CAUSE, "file": "flights.yaml", "line": 44}, spent=None)
    html = web.get("/page/jobs/unplanned-1").text
    text = said(html)
    assert "None of its subtasks was ever in a slot: it could not be planned." in text and "Never began" in text
    assert "starts after" not in text and "no rows yet" not in text
    assert '<span class="at"><span class="cut">delays</span>' in html and '<span class="cut">flights.yaml:44</span>' in html


@pytest.mark.parametrize(
    ("sources", "place", "line"),
    [
        ({}, {}, 3),
        ({"delays": STANDS}, {"file": "flights.yaml", "line": 44}, 44),
        ({"delays": STANDS}, {"file": "other.yaml", "line": 44}, None),
        ({"delays": {**STANDS, "indent": None}}, {"file": "flights.yaml", "line": 44}, None),
        ({}, {"file": "ranking.py", "line": 3}, None),
    ],
)
def test_the_line_of_a_query_is_found_by_its_place(sources: dict[str, Any], place: dict[str, Any], line: int | None) -> None:
    plan = plan_of({**GRAPH, "sources": sources}, [name for name, _ in TASKS])
    assert plan is not None
    found = query_of(plan, Fault.model_validate({**CAUSE, **place}))
    assert [each for each in found if each[2]] == ([] if line is None else [(line, "  late_ratio", True)])
