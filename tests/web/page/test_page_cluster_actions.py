"""What an admin does to the cluster from the page: hosts are blocked and unblocked, TaskManagers are stopped, the cluster
is shut down."""

from __future__ import annotations

import re

import pytest
from starlette.testclient import TestClient

from millrace.client import OutcomeUnknown, Unavailable
from services.resource_manager.core.scaling import room
from services.resource_manager.core.state import State

from .seed import WAITING, Cluster
from .test_page import said, token

ACTIONS = ("block", "unblock", "deregister", "shutdown")
HOST = "ws-04"
GIVEN = {"host": HOST, "length": "2h", "reason": "its disk is changed", "evacuate": "yes"}


def test_where_a_host_is_blocked_from_and_what_the_form_says(web: TestClient) -> None:
    assert 'href="/page/block" data-dialog>Block a host<' in web.get("/page/taskmanagers").text
    assert f'href="/page/block?host={HOST}" data-dialog>Block its host<' in web.get("/page/taskmanagers/task-manager-1").text
    form = web.get(f"/page/block?host={HOST}").text
    assert f"Block {HOST}?" in said(form) and f"millrace block {HOST}" in said(form)
    assert "1 TaskManager with 4 slots is registered from it, 4 in use." in said(form)
    assert f'name="host" value="{HOST}"' in form and '<option value="ws-05">' in form
    assert "No TaskManager is registered from far. It can be blocked before one comes." in said(web.get("/page/block?host=far").text)
    assert "Block a host?" in said(web.get("/page/block").text)


def test_a_host_is_blocked_shown_and_unblocked(web: TestClient, cluster: Cluster) -> None:
    done = web.post("/page/block", data={"token": token(web), **GIVEN})
    assert (done.status_code, done.headers["location"]) == (303, "/page/taskmanagers")
    assert cluster.sent == [("block", (HOST, 7_200_000, "its disk is changed", True, "over HTTP"))]
    html = web.get("/page/taskmanagers").text
    assert "Blocked hosts" in said(html) and f'href="/page/unblock?host={HOST}" data-dialog>Unblock<' in html
    assert f'href="/page/unblock?host={HOST}" data-dialog>Unblock its host<' in web.get("/page/taskmanagers/task-manager-1").text
    again = web.get(f"/page/block?host={HOST}").text
    assert "It is blocked already: this takes the place of what was said before." in said(again)
    assert 'value="its disk is changed"' in again and 'value="yes" checked' in again
    question = said(web.get(f"/page/unblock?host={HOST}").text)
    assert f"Unblock {HOST}?" in question and f"millrace unblock {HOST}" in question
    assert "It is not among the blocked hosts now" in said(web.get("/page/unblock?host=far").text)
    assert web.post("/page/unblock", data={"token": token(web), "host": HOST}).headers["location"] == "/page/taskmanagers"
    assert cluster.sent[1:] == [("unblock", HOST)] and "Blocked hosts" not in said(web.get("/page/taskmanagers").text)


def test_free_slots_of_a_blocked_host_count_as_free_nowhere_and_a_waiting_job_is_told_what_would_help(
    web: TestClient, cluster: Cluster
) -> None:
    assert "3 of 10 are free" in said(web.get("/page/").text) and "3 are free" in said(web.get("/page/submit").text)
    cluster.block("ws-05", None, "", evacuate=False, by="ada")
    assert "none of 10 is free; 3 slots more are on a blocked host" in said(web.get("/page/").text)
    assert "none is free; 3 slots more are on a blocked host: it would wait" in said(web.get("/page/submit").text)
    assert "3 free, 3 of them on a blocked host." in said(web.get("/page/taskmanagers").text)
    told = "3 slots are free on a blocked host. Unblock it: millrace unblock ws-05 , or at TaskManagers ."
    assert told in said(web.get(f"/page/jobs/{WAITING}").text)


def test_until_it_is_unblocked_where_no_time_is_typed(web: TestClient, cluster: Cluster) -> None:
    assert web.post("/page/block", data={"token": token(web), "host": "fe80::1", "length": " "}).status_code == 303
    assert cluster.sent == [("block", ("fe80::1", None, "", False, "over HTTP"))]


@pytest.mark.parametrize(
    ("typed", "field", "told"),
    [
        ({"host": ""}, "host", "Name a host"),
        ({"host": "a b"}, "host", "'a b' is no name of a host: choose one of those that are registered"),
        ({"length": "soon"}, "length", "'soon' is no length of time: say 90s, 30m, 2h or 3d, and a year at most"),
        ({"length": "0s"}, "length", "'0s' is no length of time"),
        ({"reason": "x" * 201}, "reason", "it has 201 characters: 200 at most"),
    ],
)
def test_a_mistake_stands_at_its_field_and_what_was_typed_stays(
    web: TestClient, cluster: Cluster, typed: dict[str, str], field: str, told: str
) -> None:
    answer = web.post("/page/block", data={"token": token(web), **GIVEN, **typed})
    assert answer.status_code == 400 and told in said(answer.text) and cluster.sent == []
    wrong = re.search(r'<input[^>]* aria-invalid="true"[^>]*>', answer.text)
    assert wrong is not None and f'name="{field}"' in wrong.group() and f"b-{field}-wrong" in wrong.group() and "autofocus" in wrong.group()
    assert answer.text.count("aria-invalid") == 1 and 'value="yes" checked' in answer.text


def provided(cluster: Cluster, *workers: str) -> None:
    cluster.say("cluster.events", "ProviderConfigured", cluster.wall_ms, ("provider",), provider="process", least=0, most=4)
    for worker in workers:
        given = {"worker": worker, "state": "REGISTERED", "reason": None, "failed": False}
        cluster.say("cluster.events", "WorkerChanged", cluster.wall_ms, ("provider",), **given)


def test_all_task_managers_of_a_provider_are_stopped_after_a_question(web: TestClient, cluster: Cluster) -> None:
    provided(cluster, "task-manager-1", "task-manager-2")
    html = web.get("/page/taskmanagers").text
    assert 'href="/page/deregister" data-dialog>Stop all<' in html and "undo=true" not in html
    question = said(web.get("/page/deregister").text)
    assert "Stop all TaskManagers? The provider's 2 TaskManagers are stopped, and none is started until that is undone here" in question
    assert "What runs there is ended, waits, and runs again then" in question
    assert "millrace deregister" in question and "--undo" not in question and cluster.sent == []
    done = said(web.post("/page/deregister", data={"token": token(web), "undo": "no"}).text)
    assert cluster.sent == [("deregister", None)]
    assert "TaskManagers are being stopped 2 TaskManagers of the provider are stopped, and none is started" in done
    assert "at TaskManagers or with `millrace deregister --undo`" in done


def test_task_managers_of_a_provider_are_started_again(web: TestClient, cluster: Cluster) -> None:
    provided(cluster)
    assert 'href="/page/deregister?undo=true" data-dialog>Start again<' in web.get("/page/taskmanagers").text
    assert "The provider has none now, and starts none until that is undone here." in said(web.get("/page/deregister").text)
    question = said(web.get("/page/deregister?undo=true").text)
    assert "Have TaskManagers started again? The provider starts some when slots are short, 4 at most." in question
    assert "millrace deregister --undo" in question
    answer = web.post("/page/deregister", data={"token": token(web), "undo": "yes"})
    assert (answer.status_code, answer.headers["location"], cluster.sent) == (303, "/page/taskmanagers", [("register", None)])


def test_a_job_that_waits_for_a_deregistered_cluster_is_told_what_would_help(web: TestClient, cluster: Cluster) -> None:
    helps = "Have TaskManagers started again: millrace deregister --undo , or at TaskManagers ."
    assert helps not in said(web.get(f"/page/jobs/{WAITING}").text)
    state = State(shards=1)
    state.workers.deregistered = True
    cluster.job("JobWaiting", WAITING, cluster.wall_ms, reason=f"no slot is free; no more are started: {room(state).limit}", position=1)
    assert helps in said(web.get(f"/page/jobs/{WAITING}").text)


def test_without_a_provider_there_is_nothing_to_stop(web: TestClient) -> None:
    assert "/page/deregister" not in web.get("/page/taskmanagers").text
    for path in ("/page/deregister", "/page/deregister?undo=true"):
        html = web.get(path).text
        assert "Those that were started by hand are stopped by hand." in said(html) and '<button class="btn pri' not in html
        assert "millrace deregister" not in html
    assert web.get("/page/deregister?undo=perhaps").status_code == 400


def test_the_cluster_is_shut_down_after_a_question_that_says_what_becomes_of_its_jobs(web: TestClient, cluster: Cluster) -> None:
    assert 'href="/page/shutdown" data-dialog>Shut down the cluster<' in web.get("/page/services").text
    question = said(web.get("/page/shutdown").text)
    assert "Shut the cluster down? 8 jobs are suspended and kept. No job is accepted any more" in question
    assert "millrace shutdown" in question and cluster.sent == []
    done = said(web.post("/page/shutdown", data={"token": token(web)}).text)
    assert cluster.sent == [("shut down", None)]
    assert "The cluster is being shut down Now jobs are being suspended 9 jobs are kept, 2 suspended so far" in done
    assert "1 TaskManager of the provider is not stopped yet No answer of job-master/2: attempts of its jobs may still run" in done
    assert "To go on: start the cluster again, as with `millrace up --web`" in done


def test_what_is_refused_and_what_is_not_answered(web: TestClient, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for what in ACTIONS:
        assert web.post(f"/page/{what}", data=GIVEN).status_code == 403, "without the page's token"
        assert web.get(f"/page/{what}?host=a&other=1").status_code == 400
    assert cluster.sent == [] and web.get("/page/unblock?host=a%20b").status_code == 400
    refused = said(web.post("/page/block", data={"token": token(web), "host": "full"}).text)
    assert "It was not done full 100 hosts are blocked, the most there may be: unblock one first" in refused

    def silent(*_: object, **__: object) -> None:
        raise Unavailable("no answer", "resource-manager")

    def unknown(*_: object, **__: object) -> None:
        raise OutcomeUnknown("no answer within 10 s")

    monkeypatch.setattr(cluster, "unblock", silent)
    monkeypatch.setattr(cluster, "shut_down", unknown)
    monkeypatch.setattr(cluster, "deregister", silent)
    shown = said(web.post("/page/deregister", data={"token": token(web)}).text)
    assert "It is not known yet whether it was done TaskManagers of the provider no answer" in shown, "it is sent on"
    shown = said(web.post("/page/unblock", data={"token": token(web), "host": HOST}).text)
    assert "It is not known yet whether it was done ws-04 no answer" in shown
    shown = said(web.post("/page/shutdown", data={"token": token(web)}).text)
    assert "It is not known yet whether it was done the cluster no answer within 10 s" in shown
