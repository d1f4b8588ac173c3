"""docs/comparison.md: what it says of our page is on the page, in the very words, at the address that the row names."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from .seed import FAILED, FINISHED, RUNNING, WAITING, Cluster
from .test_page import NOW

DOCUMENT = (Path(__file__).parents[3] / "docs" / "comparison.md").read_text()
JOBS = {"RUNNING": RUNNING, "FAILED": FAILED, "FINISHED": FINISHED, "WAITING": WAITING}
ROWS = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in DOCUMENT.splitlines() if line.startswith("| ")][2:]


def test_each_question_has_three_answers_and_a_place() -> None:
    assert 15 <= len(ROWS) <= 25 and {len(row) for row in ROWS} == {5}
    for question, ours, where, flink, spark in ROWS:
        assert question.endswith("?") and "**" in ours and where.startswith("`/") and flink and spark, question


@pytest.fixture(scope="module")
def seen() -> Iterator[TestClient]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("services.web.page.shell.Shell.wall_ms", lambda self: NOW)
        with TestClient(Cluster(NOW).app(), base_url="http://127.0.0.1") as web:
            yield web


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_what_is_said_of_our_page_stands_there(row: list[str], seen: TestClient) -> None:
    shown = ""
    for path in re.findall(r"`([^`]+)`", row[2]):
        answer = seen.get("/page" + re.sub(r"[A-Z]+", lambda found: JOBS[found[0]], path))
        assert answer.status_code == 200, path
        shown += html.unescape(re.sub(r"\s+", " ", answer.text)).replace("\u00a0", " ")
    words = re.findall(r"\*\*([^*]+)\*\*", row[1])
    assert [each for each in words if each not in shown] == []
