"""The web service's tables: facts in, rows and answers out, exactly."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from millrace.core.states import ENDED_JOB, IN_SLOT
from services.web.core.cluster import GONE_KEPT, LED_KEPT, Cluster
from services.web.core.facts import Fact, Row, Rows
from services.web.core.failures import failures_of
from services.web.core.jobs import ATTEMPTS_KEPT, PAST_KEPT, Jobs
from services.web.view import View

T0 = 1_700_000_000_000
SPENT = {"queue_ms": 1, "start_ms": 2, "plan_ms": 3, "compute_ms": 4, "exchange_ms": 5, "publish_ms": 6}


class Story:
    """Facts in the order in which they are said, each at the next offset and one millisecond later."""

    def __init__(self, topic: str = "job.events", partition: int = 0) -> None:
        self.topic, self.partition = topic, partition
        self.facts: list[Fact] = []
        self._counts: dict[tuple[str, str], int] = {}

    def say(self, type: str, subject: str, life: int = 1, **body: Any) -> Fact:
        number = self._counts[type, subject] = body.pop("count", self._counts.get((type, subject), 0) + 1)
        n = len(self.facts)
        what = {"type": type, "version": 1, "at_ms": T0 + n, "count": number, **body}
        self.facts.append(Fact(self.topic, self.partition, n, T0 + n, life, what))
        return self.facts[-1]


def accepted(story: Story, job: str, parallelism: int = 1) -> None:
    tasks = [{"task": "a", "vertices": ["a"], "parallelism": parallelism}]
    story.say("JobAccepted", job, job=job, name=f"name of {job}", tasks=tasks)


def attempt(story: Story, job: str, state: str, number: int = 1, subtask: int = 0, life: int = 1, **more: Any) -> None:
    place = {"task": "a", "subtask": subtask, "attempt": number, "task_manager": "tm", "slot": 1, "error": None}
    story.say("AttemptStateChanged", job, life, job=job, state=state, **{**place, **more})


def whole_job(job: str = "j") -> Story:
    story = Story()
    accepted(story, job, parallelism=2)
    story.say("JobStateChanged", job, job=job, status="RUNNING", cause=None)
    story.say("JobWaiting", job, job=job, reason="no slot is free", position=3)
    attempt(story, job, "DEPLOYING")
    attempt(story, job, "RUNNING")
    attempt(story, job, "FAILED", error={"kind": "user", "message": "no"}, slot=None)
    attempt(story, job, "DEPLOYING", number=2, subtask=0, created_ms=T0 + 5, scheduled_ms=T0 + 5)
    attempt(story, job, "FINISHED", number=2, subtask=0, slot=None)
    story.say("JobFinished", job, job=job, archive="archives/j", result=None, spent=SPENT)
    return story


def folded(facts: list[Fact], rows: Rows | None = None, retained: int = 10) -> Jobs:
    jobs = Jobs(rows if rows is not None else {}, retained)
    for fact in facts:
        jobs.fold(fact)
    return jobs


def test_a_job_from_its_acceptance_to_its_end() -> None:
    story = whole_job()
    after_waiting = folded(story.facts[:3])
    assert after_waiting.listed() == [{
        "job": "j", "name": "name of j", "status": "RUNNING", "accepted_ms": T0, "since_ms": T0 + 1, "running_ms": None,
        "ended_ms": None, "waiting": "no slot is free", "position": 3, "expected_ms": None, "state": "QUEUED",
    }]  # fmt: skip
    jobs = folded(story.facts)
    assert jobs.described("j") == {
        "job": "j", "name": "name of j", "status": "FINISHED", "accepted_ms": T0, "since_ms": T0 + 8, "running_ms": T0 + 3,
        "ended_ms": T0 + 8, "state": "FINISHED", "waiting": None, "position": None, "expected_ms": None,
        "cause": None, "archive": "archives/j", "spent": SPENT, "origin": None,
        "tasks": [{"task": "a", "subtasks": [
            {"subtask": 0, "attempt": 2, "state": "FINISHED", "attempts": [
                {"attempt": 1, "task_manager": "tm", "slot": 1, "error": {"kind": "user", "message": "no"}, "state": "FAILED",
                 "since_ms": {"DEPLOYING": T0 + 3, "RUNNING": T0 + 4, "FAILED": T0 + 5}},
                {"attempt": 2, "task_manager": "tm", "slot": 1, "error": None, "state": "FINISHED",
                 "since_ms": {"CREATED": T0 + 5, "SCHEDULED": T0 + 5, "DEPLOYING": T0 + 6, "FINISHED": T0 + 7}},
            ]},
            {"subtask": 1, "attempt": 0, "state": "CREATED", "attempts": []},
        ]}],
    }  # fmt: skip
    assert (jobs.statuses(), jobs.described("k"), jobs.described("j/a/0")) == ({"FINISHED": 1}, None, None)


def test_the_failure_history_of_a_job() -> None:
    story, job = Story(), "j"
    accepted(story, job, parallelism=2)
    told = [
        (0, 1, {"number": 3, "then": "restart", "delay_ms": 50, "why": "x"}),
        (1, 1, {"number": 4, "then": "move", "delay_ms": 0, "why": "y", "concurrent_with": 3}),
        (0, 2, {"number": 5, "then": "fail", "why": "z"}),
    ]
    for subtask, number, decided in told:
        attempt(story, job, "FAILED", number=number, subtask=subtask, error={"kind": "user", "message": "no", "decided": decided})
    described = folded(story.facts).described(job)
    assert described is not None

    def entry(n: int) -> Row:
        subtask, number, decided = told[n]
        error = {"kind": "user", "message": "no", "decided": decided}
        return {"at_ms": T0 + 1 + n, "task": "a", "subtask": subtask, "attempt": number, "task_manager": "tm", "error": error}

    assert failures_of(described) == ([{**entry(2), "concurrent": []}, {**entry(0), "concurrent": [entry(1)]}], 2)
    assert failures_of({"tasks": []}) == ([], 0)


def test_failures_of_an_earlier_build_are_listed_one_by_one() -> None:
    described = folded(whole_job().facts).described("j")
    assert described is not None
    [only], omitted = failures_of(described)
    assert (only["attempt"], only["concurrent"], omitted) == (1, [], 0)


def test_what_was_said_about_a_job_itself_is_kept_in_its_order_and_bounded() -> None:
    story = whole_job()
    jobs = folded(story.facts)
    row = jobs.row("j")
    assert row is not None and row["past"] == [
        {"at_ms": T0, "kind": "JobAccepted"},
        {"at_ms": T0 + 1, "kind": "JobStateChanged", "status": "RUNNING"},
        {"at_ms": T0 + 2, "kind": "JobWaiting", "reason": "no slot is free", "position": 3},
        {"at_ms": T0 + 8, "kind": "JobFinished", "archive": "archives/j"},
    ]
    for place in range(2 * PAST_KEPT, 0, -1):
        story.say("JobWaiting", "k", job="k", reason="no slot is free", position=place)
    kept = folded(story.facts).row("k")
    assert kept is not None and [each["position"] for each in kept["past"]] == [
        2 * PAST_KEPT, 2 * PAST_KEPT - 1, *range(PAST_KEPT - 2, 0, -1),
    ]  # fmt: skip


def test_jobs_by_whether_and_when_they_ended_and_how_many_rows_they_have() -> None:
    story = whole_job("first")
    result = {"columns": ["a"], "types": ["int"], "rows": [[1], [2]], "truncated": False}
    for job in ("second", "third"):
        accepted(story, job)
    story.say("JobFinished", "second", job="second", archive=None, result=result)
    jobs = folded(story.facts)
    assert [row["job"] for row in jobs.live()] == ["third"]
    assert [(row["job"], row["rows"]) for row in jobs.ended_since(T0 + 8)] == [("first", None), ("second", 2)]
    assert [row["job"] for row in jobs.ended_since(T0 + 9)] == ["second"]
    assert sorted(row["job"] for row in jobs.rows()) == ["first", "second", "third"]
    assert jobs.row("first/a/0") is None


def test_a_waiting_job_waits_no_more_once_an_attempt_is_deployed() -> None:
    jobs = folded(whole_job().facts[:4])
    assert [(job["waiting"], job["position"]) for job in jobs.listed()] == [(None, None)]


def progressing(story: Story, rows: int, number: int = 1, life: int = 1) -> None:
    progress = {"rows_read": rows, "rows_written": 0, "bytes_read": None}
    attempts = [{"task": "a", "subtask": 0, "attempt": number, "progress": progress}]
    story.say("AttemptsProgressing", "j", life, job="j", attempts=attempts)


def last_progress(jobs: Jobs) -> Any:
    described = jobs.described("j")
    assert described is not None
    return described["tasks"][0]["subtasks"][0]["attempts"][-1].get("progress")


def test_a_running_attempt_has_what_it_reported_last_and_an_ended_one_keeps_it() -> None:
    story = Story()
    rows: dict[str, Row] = {}
    accepted(story, "j")
    attempt(story, "j", "RUNNING")
    for count in (10, 20):
        progressing(story, count)
    progressing(story, 99, number=2)
    progressing(story, 99, life=2)
    jobs = folded(story.facts, rows)
    assert last_progress(jobs) == {"rows_read": 20, "rows_written": 0}
    assert not jobs.fold(story.facts[2]), "what is older says nothing new"
    assert last_progress(folded([], rows)) is None, "it is in no row: a changelog of it would be long"
    attempt(story, "j", "FINISHED", slot=None)
    jobs.fold(story.facts[-1])
    assert last_progress(folded([], rows)) == {"rows_read": 20, "rows_written": 0}
    progressing(story, 99)
    assert not jobs.fold(story.facts[-1])
    attempt(story, "j", "DEPLOYING", number=2)
    jobs.fold(story.facts[-1])
    assert last_progress(jobs) is None


def test_an_ended_attempt_has_what_it_reported_in_the_end() -> None:
    story = Story()
    accepted(story, "j")
    attempt(story, "j", "RUNNING")
    progressing(story, 10)
    attempt(story, "j", "FINISHED", slot=None, progress={"rows_read": 30, "gc_ms": 2, "rows_per_s": None})
    assert last_progress(folded(story.facts)) == {"rows_read": 30, "gc_ms": 2}


def test_the_plan_attempt_is_shown_once_there_is_one() -> None:
    story = Story()
    accepted(story, "j")
    attempt(story, "j", "DEPLOYING", task="@plan")
    described = folded(story.facts).described("j")
    assert described is not None and [task["task"] for task in described["tasks"]] == ["@plan", "a"]


@pytest.mark.parametrize("seed", range(30))
def test_a_fact_that_is_said_again_or_read_again_counts_once(seed: int) -> None:
    """A new leader says again what its predecessor may not have said; a restarted reader reads again from where it had committed."""
    facts, draw = whole_job().facts, random.Random(seed)
    again: list[Fact] = []
    for n in range(len(facts)):
        again.append(facts[n])
        if draw.random() < 0.4:
            again += facts[draw.randrange(n + 1) : n + 1]
    once: dict[str, Row] = {}
    twice: dict[str, Row] = {}
    folded(facts, once)
    folded(again, twice)
    assert twice == once


@pytest.mark.parametrize("cut", range(10))
def test_a_restart_in_the_middle_gives_the_same_tables(cut: int) -> None:
    """Rows come back from the changelog; some records are read a second time."""
    facts = whole_job().facts
    whole: dict[str, Row] = {}
    folded(facts, whole)
    kept: dict[str, Row] = {}
    folded(facts[:cut], kept)
    again = Jobs(kept, 10)
    again.load()
    for fact in facts[max(0, cut - 3) :]:
        again.fold(fact)
    assert kept == whole
    assert again.listed() == folded(facts).listed()


def test_a_reborn_job_master_begins_its_attempts_anew_and_its_late_word_changes_nothing() -> None:
    story = Story()
    accepted(story, "j", parallelism=2)
    story.say("JobStateChanged", "j", job="j", status="RUNNING", cause=None)
    attempt(story, "j", "DEPLOYING", number=4)
    attempt(story, "j", "FINISHED", subtask=1)
    late = story.say("JobStateChanged", "j", job="j", status="CANCELLING", cause=None)
    story.facts.pop()
    story.say("JobStateChanged", "j", life=2, job="j", status="RUNNING", cause=None, count=1)
    attempt(story, "j", "DEPLOYING", number=1, life=2, count=1)
    jobs = folded([*story.facts, late])
    described = jobs.described("j")
    assert described is not None and described["status"] == "RUNNING"
    (first, second) = described["tasks"][0]["subtasks"]
    assert [each["attempt"] for each in first["attempts"]] == [1]
    assert second == {"subtask": 1, "attempt": 0, "state": "CREATED", "attempts": []}
    attempt(story, "j", "RUNNING", number=1, life=2, task_manager="tm-2")
    assert folded(story.facts).on("tm-2") == {"j"} and folded(story.facts).on("tm") == set()


def test_a_job_is_cancelling_as_soon_as_the_dispatcher_has_accepted_that() -> None:
    """What its JobMaster sent before, or sends about it later, is no news."""
    story = Story()
    accepted(story, "j")
    story.say("JobStateChanged", "j", job="j", status="RUNNING", cause=None)
    story.say("JobCancelling", "j", job="j")
    jobs = folded(story.facts)
    assert [(each["status"], each["state"], each["since_ms"]) for each in jobs.listed()] == [("CANCELLING", "CANCELLING", T0 + 2)]
    for status in ("RESTARTING", "CANCELLING"):
        assert jobs.fold(story.say("JobStateChanged", "j", job="j", status=status, cause=None))
        assert [(each["status"], each["since_ms"]) for each in jobs.listed()] == [("CANCELLING", T0 + 2)]
    assert jobs.fold(story.say("JobFinished", "j", job="j", archive="a", result=None, spent=None))
    assert [each["status"] for each in jobs.listed()] == ["FINISHED"]


def test_of_a_subtasks_attempts_the_newest_are_kept() -> None:
    story = Story()
    accepted(story, "j")
    for number in range(1, ATTEMPTS_KEPT + 3):
        attempt(story, "j", "FAILED", number=number)
    described = folded(story.facts).described("j")
    assert described is not None
    assert [a["attempt"] for a in described["tasks"][0]["subtasks"][0]["attempts"]] == list(range(3, ATTEMPTS_KEPT + 3))


def test_of_ended_jobs_the_newest_are_kept_with_nothing_left_of_the_others() -> None:
    rows: dict[str, Row] = {}
    story = Story()
    for job in ("one", "two", "three"):
        accepted(story, job)
        attempt(story, job, "FINISHED")
    accepted(story, "lives")
    for job in ("two", "one", "three"):
        story.say("JobCanceled", job, job=job, archive=None)
    jobs = folded(story.facts, rows, retained=2)
    assert [job["job"] for job in jobs.listed()] == ["lives", "three", "one"]
    assert sorted(rows) == ["lives", "one", "one/a/0", "three", "three/a/0"]
    assert [job["job"] for job in jobs.listed("CANCELED")] == ["three", "one"]


def test_a_forgotten_job_whose_facts_are_read_again_is_forgotten_again_and_no_other() -> None:
    """Rows come back from the changelog, and the facts since the last commit are read a second time."""
    rows: dict[str, Row] = {}
    story = Story()
    for job in ("one", "two", "three"):
        accepted(story, job)
        attempt(story, job, "FINISHED")
        story.say("JobCanceled", job, job=job, archive=None)
    before = folded(story.facts, rows, retained=2).listed()
    again = Jobs(rows, 2)
    again.load()
    for fact in story.facts:
        again.fold(fact)
    assert again.listed() == before and [job["job"] for job in before] == ["three", "two"]
    assert sorted(rows) == ["three", "three/a/0", "two", "two/a/0"]


def test_what_was_said_too_long_ago_is_missing_and_no_error() -> None:
    jobs = folded(whole_job().facts[4:5])
    assert jobs.listed() == [{
        "job": "j", "name": "", "status": "INITIALIZING", "accepted_ms": None, "since_ms": None, "ended_ms": None,
        "running_ms": T0 + 4, "waiting": None, "position": None, "expected_ms": None, "state": "INITIALIZING",
    }]  # fmt: skip


def cluster_story() -> Story:
    story = Story("cluster.events")
    elected = {"scope": "dispatcher", "generation": 1}
    story.say("LeaderElected", "dispatcher", **elected, leader="d-1", epoch=5)
    joined = {"task_manager": "tm", "host": "h", "slots": 2}
    story.say("TaskManagerJoined", "tm 7", **joined, incarnation=7, states=["STARTING", "BROKEN"])
    story.say("SlotChanged", "tm 7 0", task_manager="tm", incarnation=7, slot=0, state="FREE", reason=None)
    story.say("LeaderElected", "dispatcher", **elected, leader="d-2", epoch=9)
    return story


def test_task_managers_slots_and_leaders() -> None:
    cluster = Cluster({})
    for fact in cluster_story().facts:
        assert cluster.fold(fact)
        assert not cluster.fold(fact), "known"
    assert cluster.task_managers() == [{
        "task_manager": "tm", "incarnation": 7, "since_ms": T0 + 1, "gone_ms": None, "reason": None, "slots": 2, "host": "h",
        "blocked": None,
    }]  # fmt: skip
    held = {"task_manager": "tm", "slot": 0, "job": "j", "task": "a", "subtask": 0, "attempt": 1}
    empty = {"job": None, "task": None, "subtask": None, "attempt": None, "reason": None}
    broken = {"task_manager": "tm", "slot": 1, "state": "BROKEN", **empty}
    assert cluster.slots([]) == [{"task_manager": "tm", "slot": 0, "state": "FREE", **empty}, broken]
    assert cluster.slots([held]) == [{**held, "state": "ACTIVE", "reason": None}, broken]
    assert cluster.leaders() == [
        {"scope": "dispatcher", "leader": "d-2", "epoch": 9, "generation": 1, "since_ms": T0 + 3}
    ]
    assert cluster.led() == {"dispatcher": [{"leader": "d-1", "epoch": 5, "since_ms": T0, "until_ms": T0 + 3}]}


def test_of_a_scopes_leaders_the_newest_are_kept() -> None:
    cluster, story = Cluster({}), Story("cluster.events")
    for epoch in range(LED_KEPT + 5):
        cluster.fold(story.say("LeaderElected", "s", scope="s", generation=1, leader="d", epoch=epoch))
    assert [each["epoch"] for each in cluster.led()["s"]] == list(range(4, LED_KEPT + 4))


def test_a_lost_task_manager_is_gone_until_it_joins_anew() -> None:
    cluster, story = Cluster({}), cluster_story()
    story.say("TaskManagerGone", "tm 7", task_manager="tm", incarnation=7, reason="no heartbeat for 700 ms")
    for fact in story.facts:
        cluster.fold(fact)
    assert cluster.task_managers() == [] and cluster.slots([]) == []
    assert [(row["reason"], row["gone_ms"]) for row in cluster.task_managers(gone=True)] == [
        ("no heartbeat for 700 ms", T0 + 4)
    ]
    joined = {"task_manager": "tm", "host": "h", "slots": 1, "states": ["FREE"]}
    cluster.fold(story.say("TaskManagerJoined", "tm 8", incarnation=8, **joined))
    cluster.fold(story.say("SlotChanged", "tm 7 0", task_manager="tm", incarnation=7, slot=0, state="BROKEN"))
    assert [row["incarnation"] for row in cluster.task_managers()] == [8]
    assert [slot["state"] for slot in cluster.slots([])] == ["FREE"], "the older incarnation's late word"


def test_blocked_hosts_are_those_that_were_said_last() -> None:
    cluster, story = Cluster({}), Story("cluster.events")
    for name, host in (("a", "h"), ("b", "i")):
        story.say("TaskManagerJoined", name, task_manager=name, incarnation=1, host=host, slots=2, states=["FREE", "FREE"])
    one = {"host": "h", "since_ms": T0, "until_ms": None, "by": "ada", "reason": "disk", "evacuate": True}
    other = {**one, "host": "unknown"}
    story.say("BlocklistChanged", "blocklist", hosts=[other, one])
    story.say("BlocklistChanged", "blocklist", hosts=[], count=1)  # said again
    assert [cluster.fold(fact) for fact in story.facts] == [True, True, True, False]
    assert [row["blocked"] for row in cluster.task_managers()] == [one, None]
    in_slots = [{"task_manager": "a", "slot": 1, "job": "j", "task": "q", "subtask": 0, "attempt": 1}]
    assert cluster.blocklist(in_slots) == [
        {**one, "task_managers": 1, "slots": 2, "busy": 1}, {**other, "task_managers": 0, "slots": 0, "busy": 0},
    ]  # fmt: skip
    story.say("BlocklistChanged", "blocklist", life=2, hosts=[], count=1)
    assert cluster.fold(story.facts[-1]) and cluster.blocked() == {}


def test_task_managers_that_are_being_started_are_shown_and_why_the_last_one_was_not() -> None:
    rows: dict[str, Row] = {}
    cluster, story = Cluster(rows), Story("cluster.events")
    none: Row = {"provider": "standalone", "least": 0, "most": None, "workers": [], "starting": [], "problem": None}
    assert cluster.provider() == none

    def changed(worker: str, state: str, reason: str | None = None, failed: bool = False) -> bool:
        return cluster.fold(story.say("WorkerChanged", "workers", worker=worker, state=state, reason=reason, failed=failed))

    cluster.fold(story.say("ProviderConfigured", "provider", provider="process", least=0, most=4))
    assert changed("task-manager-1", "REQUESTED") and changed("task-manager-2", "REQUESTED") and changed("task-manager-2", "STARTING")
    starting = [each["task_manager"] for each in cluster.provider()["starting"]]
    assert (starting, cluster.provider()["most"]) == (["task-manager-1", "task-manager-2"], 4)
    changed("task-manager-1", "STOPPING", "no room", True)
    assert (cluster.provider()["problem"], len(cluster.provider()["starting"])) == ("task-manager-1: no room", 1)
    changed("task-manager-1", "STOPPED")
    changed("task-manager-2", "REGISTERED")
    assert cluster.provider()["problem"] is None and cluster.provider()["starting"] == []
    assert cluster.provider()["workers"] == ["task-manager-2"]
    assert not any(cluster.fold(fact) for fact in story.facts), "read again, they are known"


def test_a_reborn_resource_manager_counts_anew_and_is_heard() -> None:
    cluster, story = Cluster({}), cluster_story()
    for fact in story.facts:
        cluster.fold(fact)
    told = {"task_manager": "tm", "incarnation": 7, "slot": 0}
    assert cluster.fold(story.say("SlotChanged", "tm 7 0", life=2, count=1, **told, state="BROKEN", reason="no memory"))
    assert [slot["state"] for slot in cluster.slots([])] == ["BROKEN", "BROKEN"]


def test_of_the_gone_the_newest_are_kept() -> None:
    rows: dict[str, Row] = {}
    cluster, story = Cluster(rows), Story("cluster.events")
    for n in range(GONE_KEPT + 2):
        cluster.fold(story.say("TaskManagerGone", f"{n}", task_manager=f"tm-{n}", incarnation=n, reason="left"))
    assert len(rows) == GONE_KEPT and "task-manager/tm-1" not in rows and "task-manager/tm-2" in rows


def test_every_answer_says_as_of_when_it_is_after_a_restart_too() -> None:
    jobs: dict[str, Row] = {}
    cluster: dict[str, Row] = {}
    view = View(jobs, cluster, 10)
    view.load({})
    for fact in (*whole_job().facts, *cluster_story().facts):
        view.fold(fact)
    expected = {"offsets": {"job.events": {"0": 8}, "cluster.events": {"0": 3}}, "time_ms": T0 + 8, "behind_s": 0}
    assert view.ask(lambda view: view.jobs.statuses()) == ({"FINISHED": 1}, expected)
    again = View(jobs, cluster, 10)
    again.load({})
    assert again.ask(lambda view: view.jobs.statuses()) == ({"FINISHED": 1}, expected)


def test_a_record_that_is_no_fact_is_counted_and_changes_nothing() -> None:
    view = View({}, {}, 10)
    with pytest.raises(KeyError):
        view.fold(Fact("job.events", 0, 0, T0, 1, {"type": "JobAccepted"}))
    view.pass_over("job.events", 0, 0, T0)  # as who folds does then
    view.fold(Fact("job.events", 0, 1, T0, 1, {"type": "SomethingNew", "job": "j", "at_ms": 1}))
    assert view.folded == {"news": 0, "known": 1, "unreadable": 1}
    assert view.ask(lambda view: view.jobs.listed())[0] == []


def test_a_job_that_was_forgotten_meanwhile_is_no_news() -> None:
    assert not folded(whole_job().facts).is_newer("k", {})


@pytest.mark.parametrize("seed", range(20))
def test_what_is_in_slots_and_how_many_there_are_is_kept_as_it_is_counted(seed: int) -> None:
    """Facts of some jobs in any order, also of later lives and behind a job's end; one job is forgotten for the next that ends."""
    draw, story = random.Random(seed), Story()
    for _ in range(60):
        job, life = draw.choice("abcd"), draw.randint(1, 2)
        kind = draw.choice(("accepted", "status", "end", "attempt", "attempt", "attempt", "plan"))
        if kind == "accepted":
            accepted(story, job, parallelism=2)
        elif kind == "status":
            story.say("JobStateChanged", job, life, job=job, status=draw.choice(("RUNNING", "RESTARTING")), cause=None)
        elif kind == "end" and draw.random() < 0.3:
            story.say("JobCanceled", job, life, job=job, archive=None)
        else:
            task = "@plan" if kind == "plan" else "a"
            state = draw.choice(("DEPLOYING", "RUNNING", "FINISHED", "CANCELED"))
            attempt(story, job, state, subtask=draw.randint(0, 2), life=life, task=task)
    jobs = Jobs({}, 1)
    for fact in story.facts:
        jobs.fold(fact)
        described = [(row["job"], jobs.described(row["job"]) or {}, row["status"]) for row in jobs.rows()]
        held = [
            (job, task["task"], each["subtask"], each["attempts"][-1]["attempt"]) for job, shown, status in described
            for task in shown["tasks"] for each in task["subtasks"] if status not in ENDED_JOB and each["state"] in IN_SLOT
        ]  # fmt: skip
        found = [(each["job"], each["task"], each["subtask"], each["attempt"]) for each in jobs.in_slots()]
        assert sorted(found) == sorted(held)
        assert jobs.statuses() == Counter(status for _, _, status in described)
        loaded = Jobs(jobs._rows, 1)
        loaded.load()
        assert (sorted(map(str, loaded.in_slots())), loaded.statuses()) == (sorted(map(str, jobs.in_slots())), jobs.statuses())
