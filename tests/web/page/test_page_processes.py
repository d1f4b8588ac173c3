"""The page of a TaskManager and of the services: what a process answers, its logs and its threads, and what is shown where it is silent."""

from __future__ import annotations

from starlette.testclient import TestClient

from tests.client.asked import Held

from .seed import Cluster
from .test_page import said

TM = "/page/taskmanagers/task-manager-1"


def test_a_task_manager_says_how_it_and_its_jvms_are(web: TestClient) -> None:
    html = web.get(TM).text
    text = said(html)
    assert "Memory and garbage collection of its slots' JVMs" in text
    assert "0 30 MB of 1.0 GB 90 MB 4 bytes PS-MarkSweep 2 times in 80 ms , PS-Scavenge 9 times in 120 ms 80 1.5 s" in text
    assert "3 its JVM hangs" in text, "of the fourth slot"
    assert "as process 7 on host-a" in text and "4 cores, 9.7 GB, 7 bytes free; Linux" in text
    assert 'aria-label="30 MB of 1.0 GB"' in html.replace("\u00a0", " ")
    assert "millrace describe task-manager-1" in text and 'data-turn="1000"' in html


def test_where_it_is_silent_the_rest_is_shown_and_why_it_is_not_more(web: TestClient, cluster: Cluster) -> None:
    for _ in range(3):
        text = said(web.get("/page/taskmanagers/task-manager-2").text)
        assert "It does not say how it is: task-manager-2 does not answer" in text
        assert "What is in its slots" in text and "Memory and garbage collection" not in text
    assert cluster.asked == [("task-manager-2", "describe")], "silence, too, is kept for a moment"
    for tab, told in (("logs", "No logs to show task-manager-2 does not answer"),
                      ("threads", "Where its threads are is not known task-manager-2 does not answer")):  # fmt: skip
        assert told in said(web.get(f"/page/taskmanagers/task-manager-2?tab={tab}").text)


def test_settings_are_shown_with_where_they_are_from(web: TestClient) -> None:
    for path in (TM, "/page/services/dispatcher-2"):
        text = said(web.get(f"{path}?tab=settings").text)
        assert "Setting Value From" in text and 'conf {"spark.sql.ansi.enabled": "false"} in /etc/millrace.yaml' in text
        assert 'cluster "default" by default' in text
    silent = said(web.get("/page/taskmanagers/task-manager-2?tab=settings").text)
    assert "Its settings are not known task-manager-2 does not answer" in silent


def test_one_that_is_gone_or_unknown_is_not_asked(web: TestClient, cluster: Cluster) -> None:
    for tab in ("process", "settings", "logs", "threads"):
        text = said(web.get(f"/page/taskmanagers/task-manager-4?tab={tab}").text)
        assert "It is gone since" in text and "it is gone" in text
    assert web.get("/page/taskmanagers/task-manager-9").status_code == 404
    assert web.get(f"{TM}?tab=other").status_code == 400 and web.get(f"{TM}?path=/etc/passwd").status_code == 400
    assert cluster.asked == []


def test_a_log_is_chosen_from_the_list_and_its_end_is_shown(web: TestClient, cluster: Cluster) -> None:
    lines = [f"line {n} <b>&amp;" for n in range(30_000)]
    lines[29_998] = "a line with an ERROR in it"
    cluster.held["task-manager-1"]["log"] = Held("\n".join(lines).encode())
    html = web.get(f"{TM}?tab=logs").text
    assert "line 29999 &lt;b&gt;&amp;amp;" in html and "line 20000 " not in html, "2,000 lines"
    assert '<option value="log" selected>' in html and '<option value="slot-0.jvm.log">' in html
    assert '<li class="hit"><b>' in html and 'href="/api/v1/taskmanagers/task-manager-1/logs/log"' in html
    assert 'data-turn="0"' in html, "what is not renewed says of when it is"
    assert "As it was when this page was loaded" in said(html)
    assert "a JVM" in said(web.get(f"{TM}?tab=logs&log=slot-0.jvm.log").text)
    found = said(web.get(f"{TM}?tab=logs&find=ERROR").text)
    assert "a line with an ERROR in it" in found and "line 29999" not in found
    assert "No line has nothing-of-this" in said(web.get(f"{TM}?tab=logs&find=nothing-of-this").text)
    for wrong in ("../log", "/etc/passwd", "none"):
        answer = web.get(f"{TM}?tab=logs", params={"tab": "logs", "log": wrong})
        assert answer.status_code == 200 and f"there is no log '{wrong}'" in said(answer.text)


def test_threads_of_all_and_of_one_slot(web: TestClient) -> None:
    html = web.get(f"{TM}?tab=threads").text
    text = said(html)
    assert "at millrace/m.py:7 run" in text and "at app//Main.run(Main.java:3)" in text
    assert "The JVM of slot 1 it hangs" in text and "There is more than fits into an answer: one slot alone has more room" in text
    assert 'href="?tab=threads&amp;slot=3#tabs"' in html or 'href="?tab=threads&slot=3#tabs"' in html
    assert "one slot alone has more room" not in said(web.get(f"{TM}?tab=threads&slot=0").text)


def test_services_are_listed_and_each_has_its_logs_and_threads(web: TestClient) -> None:
    html = web.get("/page/services").text
    assert "5 processes of the services answer, leaders and standbys." in said(html)
    assert "dispatcher-2 host-a · process 7 dispatcher 0.1.0 dispatcher: standby" in said(html)
    assert 'href="/page/services/dispatcher-2"' in html and 'data-turn="5000"' in html
    assert "dispatcher: standby" in said(web.get("/page/services/dispatcher-2").text)
    assert "a Dispatcher" in said(web.get("/page/services/dispatcher-2?tab=logs").text)
    assert "at millrace/m.py:7 run" in said(web.get("/page/services/dispatcher-2?tab=threads").text)
    nobody = web.get("/page/services/dispatcher-9")
    assert nobody.status_code == 404 and "No process dispatcher-9 of a service answers" in said(nobody.text)
    leaders = web.get("/page/leaders").text
    assert '<a class="link" href="/page/services/' in leaders
