"""Edges that are skewed in the table of jobs, over REST, on the page of the job and in the history."""

from __future__ import annotations

from typing import Any

from millrace.core.messages.execution import Archive, JobDetail, SkewedEdge
from services.web.core.archived import facts_of
from services.web.models import JobDetail as Answer
from services.web.page.job import job_shown
from tests.web.test_web_tables import Story, accepted, folded

EDGE: dict[str, Any] = {
    "task": "a", "vertex": "a", "keys": ["k"], "readers": ["v"], "subtask": 1, "shares": 2, "rows": 9_000_000, "rows_in_all": 10_000_000,
    "bytes": 90, "bytes_in_all": 100, "heaviest": [{"key": ["<b>"], "rows": 8_100_000}],
}  # fmt: skip


def skewed(story: Story) -> Any:
    described = folded(story.facts).described("j")
    assert described is not None
    return Answer.model_validate(described).model_dump(mode="json")["skewed"]


def test_an_edge_is_told_until_the_job_is_rescaled() -> None:
    story = Story()
    accepted(story, "j")
    assert skewed(story) == []
    story.say("EdgeSkewed", "j", job="j", edge=EDGE)
    assert skewed(story) == [SkewedEdge.model_validate(EDGE).model_dump(mode="json")]
    story.say("EdgeSkewed", "j", job="j", edge={**EDGE, "keys": ["k", "l"]})
    story.say("EdgeSkewed", "j", life=2, count=1, job="j", edge={**EDGE, "rows": 9_500_000})
    assert [(each["keys"], each["rows"]) for each in skewed(story)] == [(["k", "l"], 9_000_000), (["k"], 9_500_000)]
    story.say("JobRescaled", "j", job="j", parallelism={"v": 1}, tasks=[{"task": "a", "vertices": ["a"], "parallelism": 1}])
    assert skewed(story) == []


def test_the_page_says_what_is_uneven_and_what_helps() -> None:
    story = Story()
    accepted(story, "j")
    story.say("EdgeSkewed", "j", job="j", edge=EDGE)
    jobs = folded(story.facts)
    row, described = jobs.row("j"), jobs.described("j")
    assert row is not None and described is not None
    [(line, advice)] = job_shown(row, described, None, None, 0).skewed
    assert line == "a -> v by k: subtask 1 of 2 gets 90 % of the rows (9,000,000 of 10,000,000); k = <b> has about 90 % of them"
    assert advice.endswith("parallelism 1 for v lets Spark itself split what a join has too much of")


def test_the_history_has_it_too() -> None:
    detail = JobDetail(job="j", name="n", acceptance="1.1", status="FINISHED", accepted_ms=1, since_ms=2, skewed=[EDGE])
    archive = Archive(job="j", name="n", status="FINISHED", accepted_ms=1, ended_ms=9, detail=detail)
    assert [each.body["edge"] for each in facts_of(archive, "p", 0) if each.kind == "EdgeSkewed"] == [detail.skewed[0].json_value()]
