"""The page over a cluster at one moment: what each screen says, what it never says, and what its forms do."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from millrace.cli.fates import Fate, Found
from millrace.client import Unavailable
from millrace.core.messages.execution import Archive
from millrace.io.storage.store import Storage
from services.web.follow import Follows
from services.web.page import icons, words
from services.web.page.listing import going_on
from services.web.page.shell import POLICY, static_files

from .seed import AGAIN, FAILED, FINISHED, RUNNING, SCRIPT, SECRET, STUCK, WAITING, Cluster

NOW = 1_700_000_000_000
STATIC = Path(icons.__file__).parent / "static"
SCREENS = (
    "/", "/jobs", "/jobs?q=state:failed", f"/jobs/{RUNNING}", f"/jobs/{RUNNING}?tab=now", f"/jobs/{FAILED}",
    f"/jobs/{FAILED}?tab=logs", f"/jobs/{WAITING}", f"/jobs/{FINISHED}?tab=work",
    f"/jobs/{FINISHED}", f"/jobs/{FINISHED}?tab=configuration", f"/jobs/{STUCK}", f"/jobs/{AGAIN}", f"/jobs/{SCRIPT}", "/queue",
    "/schedules", "/schedules/j", "/schedules/j/pause",
    "/taskmanagers", "/taskmanagers/task-manager-1", "/taskmanagers/task-manager-4", "/leaders",
    "/taskmanagers/task-manager-2", "/taskmanagers/task-manager-1?tab=settings",
    "/taskmanagers/task-manager-1?tab=logs", "/taskmanagers/task-manager-1?tab=threads&slot=0",
    "/services", "/services/dispatcher-2", "/services/web-1?tab=logs", "/services/web-1?tab=threads",
    "/letters?letter=401", "/more", "/submit",
    f"/jobs/{RUNNING}/cancel", f"/jobs/{RUNNING}/again", f"/jobs/{RUNNING}/rescale",
    "/block?host=ws-04", "/unblock?host=ws-04", "/deregister", "/shutdown",
)  # fmt: skip


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr("services.web.page.shell.Shell.wall_ms", lambda self: NOW)
    return Cluster(NOW, 120)


@pytest.fixture
def web(cluster: Cluster) -> Iterator[TestClient]:
    with TestClient(cluster.app(), base_url="http://127.0.0.1", follow_redirects=False) as client:
        yield client


@pytest.fixture(scope="module")
def seen() -> Iterator[TestClient]:
    """The page, for those who only look at it: one for all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("services.web.page.shell.Shell.wall_ms", lambda self: NOW)
        with TestClient(Cluster(NOW, 120).app(), base_url="http://127.0.0.1", follow_redirects=False) as client:
            yield client


def said(html: str) -> str:
    """What a reader sees, on one line."""
    html = re.sub(r"<(svg|script|title)\b.*?</\1>", " ", html, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html)).replace("\u00a0", " ").replace("&#39;", "'").replace("&#34;", '"')


def token(web: TestClient) -> str:
    found = re.search(r'name="token" value="([^"]+)"', web.get("/page/submit").text)
    assert found is not None
    return found.group(1)


@pytest.mark.parametrize("path", SCREENS)
def test_a_screen_obeys_its_own_policy_and_tells_no_secret(seen: TestClient, path: str) -> None:
    answer = seen.get(f"/page{path}")
    assert answer.status_code == 200
    assert answer.headers["content-security-policy"] == POLICY and "unsafe" not in POLICY
    html = answer.text
    assert SECRET not in html
    assert not re.search(r"\sstyle=|\son\w+=|javascript:|<script(?! src=)|https?://(?!www\.w3\.org)", html)
    assert "<script>alert(1)" not in html and "<b>&amp;" not in html
    assert html.count("<h1") == 1


def test_the_overview_says_what_needs_somebody(seen: TestClient) -> None:
    text = said(seen.get("/page/").text)
    assert "2 jobs failed in the last day, 2 jobs wait, 1 slot is broken, the rest is well" in text
    assert f"{FAILED} failed 5 min ago delays: a column with name `late_ratio` cannot be resolved. Did you mean `late_share`?" in text
    assert "Slot 1 of task-manager-3 is broken" in text and "task-manager-4 is gone 7 s ago no heartbeat for 612 ms" in text


def test_a_blocked_host_is_shown_with_its_task_managers_until_when_by_whom_and_why(web: TestClient, cluster: Cluster) -> None:
    host = cluster.view.cluster.task_managers()[0]["host"]
    name = cluster.view.cluster.task_managers()[0]["task_manager"]
    one = {"host": host, "since_ms": NOW, "until_ms": NOW + 7_200_000, "by": "ada@<b>", "reason": "its disk is changed", "evacuate": True}
    cluster.say("cluster.events", "BlocklistChanged", NOW, ("blocklist",), hosts=[one])
    html = web.get("/page/taskmanagers").text
    assert "blocked until 2023-11-15 00:13:20.000 UTC by ada@&lt;b&gt;: its disk is changed" in said(html)
    assert "Blocked hosts" in said(html) and ">in 2" in html.replace("\u00a0", " ")
    text = said(web.get(f"/page/taskmanagers/{name}").text)
    assert "None of its slots is granted, and what runs there is moved" in text and f"millrace unblock {host}" in text
    cluster.say("cluster.events", "BlocklistChanged", NOW, ("blocklist",), hosts=[{**one, "until_ms": None}])
    assert "blocked until it is unblocked by ada" in said(web.get("/page/taskmanagers").text)
    cluster.say("cluster.events", "BlocklistChanged", NOW, ("blocklist",), hosts=[])
    assert "blocked" not in said(web.get("/page/taskmanagers").text).lower()


def test_a_cluster_without_anything_says_so_on_every_screen() -> None:
    cluster = Cluster.__new__(Cluster)
    cluster.wall_ms, cluster.sent, cluster._offsets, cluster._counts = NOW, [], {}, {}
    from services.web.view import View

    cluster.storage, cluster.running, cluster._unknown = Storage("memory://empty"), {}, ()
    cluster.view = View({}, {}, 10)
    cluster.view.load({})
    with TestClient(cluster.app(), base_url="http://127.0.0.1") as web:
        for path, text in (("/", "No TaskManager is here"), ("/jobs", "No job yet"), ("/queue", "Nothing waits"),
                           ("/taskmanagers", "None is here"), ("/leaders", "No leader was elected yet"),
                           ("/services", "No process answers")):  # fmt: skip
            answer = web.get(f"/page{path}")
            assert answer.status_code == 200 and text in said(answer.text), path


def test_jobs_are_searched_filtered_sorted_and_paged(seen: TestClient) -> None:
    def found(query: str) -> list[str]:
        return re.findall(r'<tr id="r-([^"]+)"', seen.get(f"/page/jobs{query}").text)

    assert found("")[:2] == [RUNNING, WAITING]
    assert len(found("")) == 50 and not set(found("")) & set(found("?start=50"))
    assert found("?q=state:waiting") == [WAITING, STUCK]
    assert found("?q=late_ratio") == [FAILED], "by the cause"
    assert found("?q=tm:task-manager-4") == [RUNNING]
    assert found("?q=flight+since:10m") == [RUNNING, FAILED]
    assert found("?q=state:live&sort=took")[0] == STUCK
    assert "state:runing is no state" in said(seen.get("/page/jobs?q=state:runing").text)
    assert "None of" in said(seen.get("/page/jobs?q=nothing-is-called-so").text)
    assert seen.get("/page/jobs?sort=x").status_code == 400 and seen.get("/page/jobs?x=1").status_code == 400


def test_jobs_that_came_since_are_held_back_until_they_are_asked_for(web: TestClient, cluster: Cluster) -> None:
    upto = re.search(r'data-upto="([^"]+)"', web.get("/page/jobs").text)
    assert upto is not None
    cluster.accept("new-1", "new", NOW, [("a", 1)])
    held = web.get(f"/page/jobs?upto={upto.group(1)}").text
    assert 'id="r-new-1"' not in held and "Show 1 newer" in said(held)
    assert 'id="r-new-1"' in web.get("/page/jobs").text


def test_a_running_job_shows_its_graph_attempts_and_critical_path(seen: TestClient) -> None:
    html = seen.get(f"/page/jobs/{RUNNING}").text.replace("\u00a0", " ")
    text = said(html)
    assert "5 of 7 finished, 1 runs" in text and "8, of them 1 moved" in text
    assert '">245,290 rows<small>so far · 20,110/s</small>' in html, "what has ended, and what runs"
    assert "longest [1] 3.6 s, median 3.2 s" in seen.get(f"/page/jobs/{RUNNING}?task=flights").text.replace("\u00a0", " ")
    assert "336,776 rows" in html and "5 of 8 Spark tasks" in text
    assert "critical path: plan 684 ms, flights[1] 3.6 s, joined[1] 6.5 s" in text
    assert "Lost, moved: task-manager-4 was lost (no heartbeat for 612 ms)" in text
    assert 'aria-label="joined[1] attempt 2 on task-manager-2: Running, 6.5 s so far, from 5.9 s after acceptance"' in html


def test_what_a_running_job_does_now_is_asked_of_its_attempts(seen: TestClient) -> None:
    html = seen.get(f"/page/jobs/{RUNNING}?tab=now").text
    text = said(html)
    assert "joined[1] attempt 2 on task-manager-2 For 6.5 s: stages 1 of 3, Spark tasks 5 of 8; 120,400 rows read, 81,030 written" in text
    assert "join of flights and &lt;b&gt;&amp;amp; weather 5 of 8" in text and "1 ranking.py:16 rank 2 pyspark/sql" in text
    assert '<li class="hit"><b>1</b><span>ranking.py:16 rank' in html
    assert f"millrace inspect {RUNNING}" in text
    assert "No attempt says what it does it waits for slots" in said(seen.get(f"/page/jobs/{WAITING}?tab=now").text)
    ended = seen.get(f"/page/jobs/{FINISHED}?tab=now").text
    assert "None runs at this moment." in said(ended) and "Now" not in re.findall(r'class="tab"[^>]*>(\w+)', ended)


def test_what_spark_has_done_is_a_table_of_attempts(web: TestClient, cluster: Cluster) -> None:
    done = {"rows_read": 1_200_000, "bytes_read": 34_000_000, "bytes_spilled_disk": 2_100, "gc_ms": 400, "tasks_done": 8, "tasks_total": 9}
    cluster.progressing(RUNNING, done)
    told = said(web.get(f"/page/jobs/{RUNNING}?tab=work").text)
    assert "Subtask Attempt Tasks Read Written Shuffle read Shuffle written Spilled Memory Ran Cpu Gc" in told
    assert "8/9 34 MB, 1.2 M rows" in told and "2.1 kB" in told and "0.4 s" in told
    assert "No attempt has said what its Spark does" in said(web.get(f"/page/jobs/{WAITING}?tab=work").text)


def test_a_failed_job_begins_with_its_cause_and_the_line(seen: TestClient) -> None:
    html = seen.get(f"/page/jobs/{FAILED}").text
    text = said(html)
    assert "delays failed: a column with name `late_ratio` cannot be resolved. Did you mean `late_share`?" in text
    assert "Mend the query at the line that the message names." in text
    assert re.search(r'<li class="hit"><b>3</b><span>  late_ratio</span>', html)
    assert "Whole stack trace, 214 lines" in text
    assert text.index("delays failed") < text.index("Graph") < text.index("Timeline of attempts")


def test_a_waiting_job_says_why_its_place_and_how_it_moved(seen: TestClient) -> None:
    text = said(seen.get(f"/page/jobs/{WAITING}").text)
    assert "1 of 1 in line 0 of 2 slots: of 10 slots of 3 TaskManagers 8 are busy" in text
    assert "10 slots of 3 TaskManagers: 5 busy, 1 starting, 1 broken." in said(seen.get("/page/queue").text)
    assert "Place so far 3, 2, 1" in text and "RUNNING, no attempt yet" in text
    assert "It fits into no slot as things are" in said(seen.get(f"/page/jobs/{STUCK}").text)


def test_a_job_that_waits_for_its_storage_stands_in_no_queue_and_its_story_says_so(web: TestClient, cluster: Cluster) -> None:
    why = "storage cannot be written: No space left on device"
    cluster.job("JobStateChanged", RUNNING, NOW, status="RESTARTING", cause=None)
    cluster.job("JobWaiting", RUNNING, NOW, reason=why, position=None)
    assert cluster.view.jobs.row(RUNNING)["waiting"] == why
    assert f'id="q-{RUNNING}"' not in web.get("/page/queue").text and why in said(web.get(f"/page/jobs/{RUNNING}?tab=story").text)
    cluster.job("JobStateChanged", RUNNING, NOW, status="RUNNING", cause=None)
    assert cluster.view.jobs.row(RUNNING)["waiting"] is None, "it tries again"


def test_a_job_that_waits_is_expected_until_that_time_has_passed(web: TestClient, cluster: Cluster) -> None:
    for left_ms, shown in ((61_000, True), (-1, False)):
        cluster.job("JobWaiting", WAITING, NOW, reason="busy", position=1, expected_ms=NOW + left_ms)
        assert ("expected in" in web.get(f"/page/jobs/{WAITING}").text) == shown
        row = re.search(f'<tr id="q-{WAITING}">.*?</tr>', web.get("/page/queue").text)
        assert row is not None and ('data-l="expected in"></td>' in row[0]) != shown


@pytest.mark.parametrize(("rows", "told"), [(0, "0 rows"), (1, "1 row"), (1234, "1,234 rows"), (None, "")])
def test_a_finished_job_is_listed_with_how_many_rows_came_out(rows: int | None, told: str) -> None:
    found, _ = going_on({"rows": rows, "cause": None}, {"tasks": []}, "FINISHED")
    assert found.replace("\u00a0", " ") == told


def test_a_finished_job_begins_with_its_rows(seen: TestClient) -> None:
    text = said(seen.get(f"/page/jobs/{FINISHED}").text)
    assert "43 rows , 6 columns, all of them." in text and "Frontier Airlines Inc." in text and "NULL" in text
    assert text.index("43 rows") < text.index("Graph") and "compute 6.9 s" in text


def test_logs_are_of_an_attempt_that_the_job_had_and_of_no_other_path(seen: TestClient) -> None:
    shown = said(seen.get(f"/page/jobs/{FAILED}?tab=logs&find=error").text)
    assert "late_ratio cannot be resolved" in shown and "Finished task" not in shown
    elsewhere = seen.get(f"/page/jobs/{FAILED}?tab=logs&attempt=../../../etc/passwd").text
    assert f"of {FAILED}/delays+ranked+report/0/1" in elsewhere


@pytest.mark.parametrize("path", [
    "/static/x/../shell.py", "/static/x/..%2fshell.py", "/static/x/%2e%2e", "/static/x/nothing.css", "/static/x/", "/static//etc/passwd",
])  # fmt: skip
def test_no_address_reaches_the_file_system(seen: TestClient, path: str) -> None:
    assert seen.get(f"/page{path}").status_code == 404


def test_what_is_not_there_is_said_in_words(seen: TestClient) -> None:
    answer = seen.get("/page/jobs/nothing")
    assert answer.status_code == 404 and "millrace show nothing knows older ones" in said(answer.text)
    assert seen.get("/page/taskmanagers/nothing").status_code == 404


def test_the_same_screen_is_not_sent_twice(web: TestClient, cluster: Cluster) -> None:
    tag = web.get("/page/jobs").headers["etag"]
    assert web.get("/page/jobs", headers={"if-none-match": tag}).status_code == 304
    cluster.accept("new-1", "new", NOW, [("a", 1)])
    assert web.get("/page/jobs", headers={"if-none-match": tag}).status_code == 200


def test_a_page_that_does_not_follow_says_so(cluster: Cluster) -> None:
    with TestClient(cluster.app(Follows("Kafka has not answered for 47 s", 3600.0)), base_url="http://127.0.0.1") as web:
        cluster.view.behind_s = lambda: 47  # nothing had happened for long before
        text = said(web.get("/page/").text)
    assert "Behind shows what was 47.0 s ago" in text and "Kafka has not answered for 47 s. Jobs go on; this page is old." in text


def test_rows_that_cannot_be_read_now_are_not_said_to_be_none(web: TestClient, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(path: str) -> Archive:
        raise Unavailable("Kafka is away")

    monkeypatch.setattr(cluster, "archive", away)
    text = said(web.get(f"/page/jobs/{FINISHED}").text)
    assert re.search("The rows cannot be read now its archive cannot be read: .*Kafka is away", text) and "It has no rows" not in text


# forms


def test_a_cancel_asks_first_shows_its_command_and_goes_as_anyones_does(web: TestClient, cluster: Cluster) -> None:
    form = {"token": token(web), "job": [RUNNING, SCRIPT, FINISHED]}
    asked = said(web.post("/page/cancel", data=form).text)
    assert "Cancel 2 jobs?" in asked and f"millrace cancel {RUNNING} {SCRIPT}" in asked and cluster.sent == []
    done = web.post("/page/cancel", data={**form, "job": [RUNNING, SCRIPT], "sure": "yes"})
    assert cluster.sent == [("cancel", RUNNING), ("cancel", SCRIPT)] and "2 of 2 jobs canceled" in said(done.text)
    one = web.post("/page/cancel", data={**form, "job": AGAIN, "sure": "yes"})
    assert (one.status_code, one.headers["location"]) == (303, f"/page/jobs/{AGAIN}")


@pytest.mark.parametrize("path", ["/cancel", "/redrive", "/submit", f"/jobs/{RUNNING}/again"])
def test_a_form_of_another_page_does_nothing(web: TestClient, cluster: Cluster, path: str) -> None:
    for given in ({}, {"token": "x"}, {"token": ""}):
        assert web.post(f"/page{path}", data={"job": RUNNING, "sure": "yes", **given}).status_code in (403, 415)
    headers = {"origin": "http://a-page.example"}
    assert web.post(f"/page{path}", data={"token": token(web), "job": RUNNING, "sure": "yes"}, headers=headers).status_code == 403
    assert cluster.sent == []


def test_a_job_is_run_again_as_it_was_stored(web: TestClient, cluster: Cluster) -> None:
    answer = web.post(f"/page/jobs/{FINISHED}/again", data={"token": token(web)})
    [(what, (job, graph, _, _))] = cluster.sent
    assert (what, graph["name"], answer.headers["location"]) == ("submit", "flight-delays", f"/page/jobs/{job}")
    assert job.startswith("flight-delays-") and job != FINISHED
    assert graph["origin"] == {"job": FINISHED}


def test_a_job_that_has_not_ended_is_not_run_again(web: TestClient, cluster: Cluster) -> None:
    assert f"/page/jobs/{FINISHED}/again" in web.get(f"/page/jobs/{FINISHED}").text
    assert "/again" not in web.get(f"/page/jobs/{RUNNING}").text
    for answer in (web.get(f"/page/jobs/{RUNNING}/again"), web.post(f"/page/jobs/{RUNNING}/again", data={"token": token(web)})):
        assert f"job {RUNNING} is RUNNING: it can be run again once it has ended" in said(answer.text)
    for answer in (web.get(f"/page/jobs/{RUNNING}/repair"), web.post(f"/page/jobs/{RUNNING}/repair", data={"token": token(web)})):
        assert f"job {RUNNING} is RUNNING: it can be repaired once it has FAILED or was CANCELED" in said(answer.text)
    assert cluster.sent == []


def test_a_job_that_failed_can_be_repaired_from_its_page(web: TestClient, cluster: Cluster) -> None:
    assert f"/page/jobs/{FAILED}/repair" in web.get(f"/page/jobs/{FAILED}").text
    assert "/repair" not in web.get(f"/page/jobs/{FINISHED}").text
    cluster.accept("failed-at-once", "n", NOW, [("a", 1)])
    cluster.job("JobFailed", "failed-at-once", NOW, archive=None, cause=None, spent=None)
    assert "/repair" not in web.get("/page/jobs/failed-at-once").text, "nothing of it had finished"
    assert "is FINISHED: there is nothing to repair" in said(web.get(f"/page/jobs/{FINISHED}/repair").text)
    asked = said(web.get(f"/page/jobs/{FAILED}/repair").text)
    assert f"Repair {FAILED}?" in asked and f"millrace repair {FAILED}" in asked
    answer = web.post(f"/page/jobs/{FAILED}/repair", data={"token": token(web)})
    [(what, (job, graph, _, _))] = cluster.sent
    assert (what, graph["origin"], answer.headers["location"]) == ("submit", {"job": FAILED, "repair": True}, f"/page/jobs/{job}")


def test_a_graph_is_checked_at_its_lines_before_it_is_sent(web: TestClient, cluster: Cluster) -> None:
    one = "name: a\nvertices:\n  one:\n    sql: SELECT 1 AS x\n    paralelism: 2\n"
    wrong = one + "  two:\n    sql: SELECT * FROM one\n    inputs: {on: forward}\n"
    html = web.post("/page/submit", data={"token": token(web), "graph": wrong, "check": "yes"}).text
    assert "3 mistakes" in said(html) and "5:5" in html and "did you mean parallelism?" in html and "8:14" in html
    assert "aria-disabled" in html
    refused = web.post("/page/submit", data={"token": token(web), "graph": wrong, "id": "mine"})
    assert refused.status_code == 400 and "Mend 3 mistakes first" in said(refused.text) and cluster.sent == []


def test_a_graph_is_submitted_with_its_files_and_without_its_environment(web: TestClient, cluster: Cluster) -> None:
    text = "name: a\nenv: {KEY: v, RETRIES: 3, DEBUG: true}\n"
    text += "vertices:\n  one:\n    sql: SELECT 1 AS x\n  two:\n    python: 'mod:f'\n    inputs: {one: forward}\n"
    content = b"def f(one):\n    return one\n"
    answer = web.post("/page/submit", data={"token": token(web), "graph": text, "id": "mine"}, files={"file": ("mod.py", content)})
    assert (answer.status_code, answer.headers.get("location")) == (303, "/page/jobs/mine"), said(answer.text)
    sha256 = hashlib.sha256(content).hexdigest()
    [(_, (job, graph, uploads, env))] = cluster.sent
    assert (job, uploads, env) == ("mine", {sha256: content}, {"KEY": "v", "RETRIES": "3", "DEBUG": "true"}) and "env" not in graph
    assert graph["modules"] == [{"name": "mod.py", "sha256": sha256, "kind": "py"}]


def test_what_the_cluster_refuses_is_said_and_the_text_stays(web: TestClient) -> None:
    graph = "name: a\nvertices: {one: {sql: SELECT 1 AS x}}\n"
    answer = web.post("/page/submit", data={"token": token(web), "graph": graph, "id": "taken"})
    assert answer.status_code == 409 and "another job has this id" in said(answer.text) and graph in answer.text


@pytest.mark.parametrize("text", [
    "", "[", "a: &x [*x]", "- 1", "vertices: 1", "vertices: {a: {inputs: {b: forward}}, b: {inputs: {a: forward}}}", "\x00",
])  # fmt: skip
def test_a_text_that_is_no_graph_is_told_and_breaks_nothing(web: TestClient, text: str) -> None:
    assert web.post("/page/submit", data={"token": token(web), "graph": text, "check": "yes"}).status_code == 200


def test_dead_letters_are_sent_again_after_what_would_become_of_each_is_shown(web: TestClient, cluster: Cluster) -> None:
    form = {"token": token(web), "letter": ["400", "401", "402", "9999"]}
    asked = said(web.post("/page/redrive", data=form).text)
    assert "Send 1 letter again? Nothing was sent yet." in asked and "2 letters would come to nothing, and stay." in asked
    assert "1 sent busy letter 400" in asked
    assert "1 left: still wrong conflict letter 401: its id is another job's, and stays so" in asked
    assert "1 left: gone not JSON letter 402: letter 402 keeps the first 2 of 812 bytes" in asked
    assert "millrace dlq redrive 400 --yes" in asked and cluster.sent == []
    done = said(web.post("/page/redrive", data={**form, "sure": "yes"}).text)
    assert "1 of 3 letters sent again" in done and "letter 401 was left: still wrong, its id is another job's" in done
    assert cluster.sent == [("redrive", 400)]


def test_a_number_of_other_digits_is_no_number_here(web: TestClient) -> None:
    """Python calls `²` a digit, and makes no number of it."""
    assert web.post("/page/redrive", data={"token": token(web), "letter": ["²"]}).status_code == 200
    assert web.get("/page/jobs", params={"upto": "¹².job"}).status_code == 200


def test_the_log_that_is_opened_is_not_the_empty_one(web: TestClient, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a script prints was behind an empty stderr."""
    written = {"stdout": b"", "stderr": b""}
    monkeypatch.setattr(cluster, "log_end", lambda folder, stream, most: (written[stream], len(written[stream])))

    def opened(job: str, asked: str = "") -> tuple[str, bool]:
        html = web.get(f"/page/jobs/{job}?tab=logs{asked}").text
        [stream] = re.findall("<option selected>(std[a-z]+)<", html)
        return stream, "was written" in said(html)

    assert (opened(RUNNING), opened(FAILED)) == (("stdout", False), ("stderr", False))
    written["stdout"] = b"this was written"
    assert (opened(RUNNING), opened(FAILED)) == (("stdout", True), ("stdout", True))
    written["stderr"] = b"this was written, too"
    assert (opened(RUNNING), opened(FAILED)) == (("stdout", True), ("stderr", True))
    written["stderr"] = b""
    assert opened(FAILED, "&stream=stderr") == ("stderr", False), "who chose it has it"


def test_of_very_many_dead_letters_the_newest_are_told_of(web: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.web.page.reads.LETTERS_MOST", 2)
    shown = said(web.get("/page/letters").text)
    assert "More than 2 letters are kept, 2 of the newest were not sent again." in shown and "letter 406" not in shown


def test_what_all_dead_letters_would_come_to_is_asked_for_at_once(web: TestClient, cluster: Cluster) -> None:
    asked = said(web.post("/page/redrive", data={"token": token(web), "all": "yes"}).text)
    assert "Send 3 letters again?" in asked and "3 sent busy letter 406" in asked and cluster.sent == []
    none = said(web.post("/page/redrive", data={"token": token(web), "letter": ["401"]}).text)
    assert "None of them would be accepted now" in none and "Send 0" not in none


def test_a_chosen_dead_letter_says_what_would_become_of_it(seen: TestClient) -> None:
    assert "It would be accepted now, as far as can be told" in said(seen.get("/page/letters?letter=400").text)
    wrong = said(seen.get("/page/letters?letter=401").text)
    assert "Sent again it would come to nothing still wrong: its id is another job's, and stays so" in wrong
    assert "Sent again it would come to nothing gone: letter 402 keeps" in said(seen.get("/page/letters?letter=402").text)


def test_a_dead_letter_that_is_wrong_as_before_has_its_reason_once(web: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.web.page.reads.fate_of", lambda letters, letter: Found(Fate.WRONG, letter.reason))
    shown = said(web.get("/page/letters?letter=401").text)
    assert "Sent again it would come to nothing still wrong, for the same reason Was at" in shown


# what others made


def test_files_of_others_are_those_of_their_packages_with_their_licences() -> None:
    told = (STATIC / "licences.txt").read_text()
    for name in ("geist-latin-wght-normal.woff2", "geist-mono-latin-wght-normal.woff2", "idiomorph.min.js"):
        assert f"{hashlib.sha256((STATIC / name).read_bytes()).hexdigest()}  {name}" in told, name
    assert told.count("SIL OPEN FONT LICENSE Version 1.1") == 2 and "Zero-Clause BSD" in told


def test_files_are_cached_for_ever_under_a_name_that_changes_with_them(seen: TestClient) -> None:
    version, files = static_files()
    assert {"page.css", "page.js", "idiomorph.min.js", "licences.txt", "icon.svg"} <= files.keys()
    answer = seen.get(f"/page/static/{version}/page.css")
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert answer.headers["content-type"].startswith("text/css")


@pytest.mark.parametrize(("ms", "text"), [
    (589, "589 ms"), (12_400, "12.4 s"), (72_000, "1 min 12 s"), (59_990, "1 min"), (19_140_000, "5 h 19 min"), (90_000_000, "1 d 1 h"),
])  # fmt: skip
def test_lengths_of_time(ms: int, text: str) -> None:
    assert words.length(ms).replace("\u00a0", " ") == text
