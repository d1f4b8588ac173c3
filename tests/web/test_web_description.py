"""The OpenAPI document and the application hold each other: schemathesis makes requests of all kinds from it, right and wrong."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any
from unittest import SkipTest

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi import checks as of_openapi

from millrace.client import Job, MillraceError, NotFinished, NotFound, Refused, Result, Shown
from millrace.client.dead_letters import Letter, Page
from millrace.client.files import Files, KeptFile
from millrace.core.messages.blocklist import BlockedHostInfo
from millrace.core.messages.client import JobDetails, JobDetailsListed, JobReported, JobSummary, ShutDown
from millrace.core.messages.events import DeadLetter
from millrace.io.storage.store import Storage
from services.web.app import application
from services.web.commands import Commands
from services.web.follow import Follows
from services.web.view import View
from tests.client.asked import Asked
from tests.web.rescaled import Rescaling
from tests.web.scheduled import Scheduled
from tests.web.test_web_kept import detail
from tests.web.test_web_tables import T0, Story, accepted, attempt


def no_500(ctx: Any, response: Any, case: Any) -> None:
    """A 503 or 504 is an answer: the cluster gives none in `wait_s`. A 500 is a mistake of the service."""
    assert response.status_code != 500, response.text


CHECKS = (
    no_500,
    of_openapi.status_code_conformance,
    of_openapi.content_type_conformance,
    of_openapi.response_headers_conformance,
    of_openapi.response_schema_conformance,
    of_openapi.unsupported_method,
    of_openapi.negative_data_rejection,
    of_openapi.allow_header_conformance,
)
"""Not that all that its schemas allow is taken: a graph that is an object need be no graph."""


class Some(Asked, Scheduled, Rescaling):
    """In place of a client: a cluster that knows job j, with each kind of answer and refusal."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage)
        Scheduled.__init__(self)
        Rescaling.__init__(self)
        self.jobs: dict[str, Any] = {}
        self._lock = threading.Lock()

    def submit(self, graph: Any, job: str, parameters: Any, uploads: Any, watch: bool, env: Any, traceparent: Any = None) -> Job:
        with self._lock:
            self.jobs[job] = graph
        return Job(None, job, "INITIALIZING", [], None)  # type: ignore[arg-type]  # it is asked nothing

    def cancel(self, job: str) -> str:
        self._known(job)
        if job == "done":
            raise Refused("job done is FINISHED")
        return "CANCELLING"

    def graph_of(self, job: str, *, repair: bool = False) -> dict[str, Any]:
        self._known(job)
        if job != "done":
            raise Refused(f"job {job} is RUNNING")
        return {"name": "n", "vertices": {"one": {"sql": "SELECT 1 AS a"}}}

    def list_details(self, limit: int, cursor: str, **only: Any) -> JobDetailsListed:
        details = JobDetails(job="j", name="n", status="RUNNING", accepted_ms=T0, silent="job-master/0")
        return JobDetailsListed(correlation="1", jobs=[details], next="1.j")

    def shut_down(self) -> ShutDown:
        return ShutDown(step="SUSPENDING", since_ms=T0, live=1, suspended=0, workers=0)

    def deregister(self, undo: bool) -> int:
        return 0 if undo else 1

    def block(self, host: str, for_ms: int | None, reason: str, *, evacuate: bool, by: str) -> BlockedHostInfo:
        if host[0].isdigit():
            raise Refused("100 hosts are blocked, and more may not be: unblock one (`millrace blocked`)")
        return BlockedHostInfo(host=host, since_ms=T0, by=by, reason=reason, evacuate=evacuate, task_managers=0, slots=0, busy=0)

    def unblock(self, host: str) -> bool:
        return host == "h"

    def show(self, job: str) -> Shown:
        self._known(job)
        return Shown(JobSummary(job=job, name="n", status="RUNNING", accepted_ms=T0), detail("RUNNING", 2), None)

    def report_now(self, job: str, task: str, subtask: int | None) -> JobReported:
        self._known(job)
        return JobReported(correlation="1", job=job, running=0, reason="none runs")

    def result(self, job: str) -> Result:
        self._known(job)
        if job == "j":
            raise NotFinished("job j is RUNNING", "RUNNING")
        return Result(["a"], ["int"], [[1], [None]], False)

    def files(self, job: str) -> Files:
        self._known(job)
        return Files([KeptFile("a", 0, 1, "x.csv", 3, "results/x.csv")], [("y", "it is too large")], 1)

    def status(self, job: str) -> JobSummary:
        return self.show(job).summary

    def events(self, job: str, **_: Any) -> Any:
        return iter([{"type": "JobAccepted", "job": job}])

    def dead_letters(self) -> Some:
        return self

    def page(self, below: int | None, most: int) -> Page:
        letter = DeadLetter(
            topic="client.commands", partition=0, offset=3, reason="no message", at_ms=T0, size_bytes=1, sha256="0" * 64, head_base64="eA=="
        )
        return Page([Letter(0, letter)], 1, False)

    def one(self, number: int) -> Letter | None:
        return self.page(None, 1).letters[0] if number == 0 else None

    def original(self, letter: Letter) -> Any:
        return letter

    def redrive(self, letter: Letter, original: Any, by: str) -> None: ...

    def close(self) -> None: ...

    @staticmethod
    def _known(job: str) -> None:
        if job not in ("j", "done"):
            raise NotFound(f"there is no job {job!r}")


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("storage")
    for path in ("logs/c.1.2/0-a.0.1.1/stdout", "results/x.csv"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("abc")
    view, story, cluster = View({}, {}, 100), Story(), Story("cluster.events")
    view.load({})
    accepted(story, "j")
    attempt(story, "j", "RUNNING")
    cluster.say("TaskManagerJoined", "tm", task_manager="tm", incarnation=1, host="h", slots=1, states=["FREE"])
    for fact in (*story.facts, *cluster.facts):
        view.fold(fact)
    storage = Storage(str(folder))
    app = application(view, lambda: Follows("", 0), Commands(lambda: Some(storage)), storage=storage)  # type: ignore[arg-type,return-value]  # as asked
    loaded = schemathesis.openapi.from_asgi("/api/v1/openapi.json", app, headers={"Host": "127.0.0.1"})
    return loaded.exclude(path_regex="/streams/")  # which have no end; tests of their own send them what is wrong


@pytest.mark.parametrize("examples", [2, pytest.param(8, marks=pytest.mark.long)])
@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_whatever_is_asked_is_answered_as_described(described: Any, mode: GenerationMode, examples: int) -> None:
    wrong = []
    for found in described.get_all_operations():
        operation = found.ok()

        @seed(1)
        @settings(
            max_examples=examples, deadline=None, database=None, phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(case=operation.as_strategy(generation_mode=mode))
        def check(case: Any) -> None:
            case.call_and_validate(checks=CHECKS, headers={"Host": "127.0.0.1"})

        try:
            check()
        except (Unsatisfiable, SkipTest):
            continue  # nothing of this kind can be asked of it
        except FailureGroup as failures:
            wrong.append(f"{operation.label}: {'; '.join(map(str, failures.exceptions))}")
    assert not wrong, "\n\n".join(wrong)


def test_the_description_is_openapi_3_1_and_names_what_it_refers_to(described: Any) -> None:
    document = described.raw_schema
    assert document["openapi"].startswith("3.1")
    text = json.dumps(document)
    for name in document["components"]["schemas"]:
        assert f'#/components/schemas/{name}"' in text, f"nothing refers to {name}"


def test_it_stands_for_a_client() -> None:
    """What it has is what the client library has: no call of it can be answered here that could not be there."""
    import inspect

    from millrace.client import Millrace

    of_jobs = ("submit", "cancel", "rescale", "requirements", "show", "report_now", "result", "files", "status", "events")
    for name in (*of_jobs, "dead_letters", "task_manager", "service", "services"):
        real, mine = inspect.signature(getattr(Millrace, name)), inspect.signature(getattr(Some, name))
        asked = [each.name for each in mine.parameters.values() if each.kind is not each.VAR_KEYWORD]
        assert asked == [each for each in real.parameters if each in asked], name
    assert issubclass(NotFound, MillraceError)
