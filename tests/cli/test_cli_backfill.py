"""`millrace backfill`: which runs there are, and which of them are begun."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, ClassVar

import pytest
import typer

from millrace.cli import backfill as subject
from millrace.cli.backfill import Runs, values_of
from millrace.client import (
    Busy,
    Ending,
    Invalid,
    Millrace,
    MillraceError,
    NotFound,
    OutcomeUnknown,
    TooLate,
    Unavailable,
)
from millrace.core.messages.attempts import Fault
from millrace.core.messages.client import JobSummary
from millrace.edge.graph_file import Loaded, load_graph

GRAPH = "name: Per day\nparameters: {date: '1970-01-01'}\nvertices:\n  one: {sql: \"SELECT '${date}' AS d\"}\n"


@pytest.mark.parametrize("text, values", [
    ("a,b , c", ["a", "b", "c"]),
    ("2024-02-28..2024-03-01", ["2024-02-28", "2024-02-29", "2024-03-01"]),
    ("2025-12..2026-02", ["2025-12", "2026-01", "2026-02"]),
    ("8..11", ["8", "9", "10", "11"]),
    ("08..11", ["08", "09", "10", "11"]),
    ("20260130..20260131", ["20260130", "20260131"]),
    ("2026-01-31..2026-01-31", ["2026-01-31"]),
])  # fmt: skip
def test_a_range_is_its_values_in_their_order(text: str, values: list[str]) -> None:
    assert values_of(text) == values


@pytest.mark.parametrize("text, says", [
    ("2026-02-01..2026-01-01", "ends before it begins"),
    ("0..10000", "has 10,001 values, and 10,000 may be given at once"),
    ("2026-01..2026-01-31", "is no range"),
    ("2026-13-01..2026-13-02", "is no range"),
    ("2026-W01-1..2026-W01-3", "is no range"),
    ("..5", "is no range"),
    ("a,,b", "has an empty value, or one twice"),
    ("a,a", "has an empty value, or one twice"),
])  # fmt: skip
def test_what_is_no_range_is_refused(text: str, says: str) -> None:
    with pytest.raises(typer.BadParameter, match=says):
        values_of(text)


class Cluster:
    """Jobs that RUN for two looks, and end as `ends` has it by their value."""

    token = "t"
    refuses: ClassVar[dict[str, list[MillraceError]]] = {}

    def environment_hash(self, env: dict[str, str]) -> str:
        millrace: Any = object.__new__(Millrace)
        millrace._token = self.token
        found: str = millrace.environment_hash(env)
        return found

    def __init__(self, **ends: str) -> None:
        self.ends, self.jobs, self.looks, self.most, self.refused = ends, {}, itertools.count(), 0, set()

    def status(self, job: str) -> JobSummary:
        if job not in self.jobs:
            raise NotFound(job)
        next(self.looks)
        left, end = self.jobs[job]
        self.jobs[job] = (left - 1, end)
        status = "RUNNING" if left > 0 else end
        return JobSummary(job=job, name="n", status=status, accepted_ms=1)

    def submit(self, graph: Any, job: str, parameters: dict[str, str], uploads: Any, watch: bool, env: Any) -> None:
        value = parameters["date"]
        if value in self.refused:
            raise Invalid("it is wrong")
        if self.refuses.get(value):
            raise self.refuses[value].pop()
        self.jobs[job] = (2, self.ends.get(value, "FINISHED"))
        self.most = max(self.most, sum(left > 0 for left, _ in self.jobs.values()))

    def wait(self, job: str) -> Ending:
        return Ending(job, self.jobs[job][1], 1, None, Fault(kind="user", message="bad day") if self.jobs[job][1] == "FAILED" else None)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "LOOK_S", 0)


def runs(cluster: Cluster, tmp_path: Path, values: str = "a,b,c", parallel: int = 1, stop: bool = False, graph: str = GRAPH) -> Runs:
    path = tmp_path / "graph.yaml"
    path.write_text(graph)

    def load(value: str) -> Loaded:
        return load_graph(path, {"date": value})

    return Runs(cluster, "date", load, {}, parallel, stop, values_of(values))  # type: ignore[arg-type]  # all of it that is asked


def test_each_value_is_a_job_and_so_many_run_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Cluster()
    assert runs(cluster, tmp_path, "a,b,c,d,e", parallel=2).go() == 0
    assert cluster.most == 2
    out, err = capsys.readouterr()
    assert [line.split("\t")[::2] for line in out.splitlines()] == [[value, "FINISHED"] for value in "abcde"]
    assert err.splitlines()[-1] == "5 runs: 5 FINISHED"
    assert all(job.startswith("per-day-") for job in cluster.jobs)


def test_the_same_again_runs_what_failed_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Cluster(b="FAILED", c="CANCELED")
    assert runs(cluster, tmp_path).go() == 1
    err = capsys.readouterr().err
    assert "date=b" in err and "FAILED: bad day" in err and "3 runs: 1 FINISHED, 2 not" in err
    first = dict(cluster.jobs)
    cluster.ends = {}
    assert runs(cluster, tmp_path).go() == 0
    assert sorted(cluster.jobs.keys() - first.keys()) == sorted(f"{job}.2" for job in first if job.startswith(("per-day-b", "per-day-c")))
    assert runs(cluster, tmp_path).go() == 0
    assert len(cluster.jobs) == 5


def test_another_graph_makes_other_runs(tmp_path: Path) -> None:
    cluster = Cluster()
    assert runs(cluster, tmp_path, "a").go() == runs(cluster, tmp_path, "a", graph=GRAPH.replace("AS d", "AS day")).go() == 0
    assert len(cluster.jobs) == 2


def test_a_comment_makes_no_other_runs_and_those_of_a_build_before_count(tmp_path: Path) -> None:
    cluster = Cluster()
    assert runs(cluster, tmp_path, "a").go() == runs(cluster, tmp_path, "a", graph=f"# of Ann\n\n{GRAPH}").go() == 0
    assert len(cluster.jobs) == 1
    loaded = load_graph(tmp_path / "graph.yaml", {"date": "b"})
    before = subject.id_of(loaded, "b", {"date": "b"}, 1, sources=True)
    cluster.jobs[before] = (0, "FINISHED")
    assert runs(cluster, tmp_path, "b", graph=f"# of Ann\n\n{GRAPH}").go() == 0
    assert len(cluster.jobs) == 2 and before != subject.id_of(loaded, "b", {"date": "b"}, 1)


def test_another_variable_makes_other_runs_whose_ids_do_not_tell_it(tmp_path: Path) -> None:
    cluster, graphs = Cluster(), [GRAPH, f"{GRAPH}env: {{PIN: 1234}}\n", f"{GRAPH}env: {{PIN: 1235}}\n"]
    for graph in (*graphs, *graphs):
        assert runs(cluster, tmp_path, "a", graph=graph).go() == 0
    assert len(cluster.jobs) == 3
    assert "per-day-a-9ef2434d" in cluster.jobs, "without variables an id stays what it was"
    other = Cluster()
    other.token = "another"
    assert runs(other, tmp_path, "a", graph=graphs[1]).go() == 0
    assert not other.jobs.keys() & cluster.jobs.keys(), "who has no token cannot try likely values"
    other.token = ""
    with pytest.raises(Unavailable, match="token is not known"):
        runs(other, tmp_path, "a", graph=graphs[1]).go()


def test_what_runs_already_is_waited_for(tmp_path: Path) -> None:
    cluster = Cluster()
    began = runs(cluster, tmp_path, "a")
    began._begin("a")
    assert runs(cluster, tmp_path, "a").go() == 0
    assert len(cluster.jobs) == 1


def test_no_further_run_begins_behind_a_failure_if_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Cluster(a="FAILED")
    assert runs(cluster, tmp_path, stop=True).go() == 1
    assert len(cluster.jobs) == 1
    assert "3 runs: 0 FINISHED, 1 not, 2 not begun" in capsys.readouterr().err


def test_a_value_that_the_cluster_refuses_holds_up_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Cluster()
    cluster.refused = {"b"}
    assert runs(cluster, tmp_path).go() == 1
    out, err = capsys.readouterr()
    assert [line.split("\t")[2] for line in out.splitlines()] == ["FINISHED", "INVALID", "FINISHED"]
    assert "INVALID: it is wrong" in err


def test_a_value_for_which_the_cluster_has_no_room_yet_is_tried_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Cluster()
    cluster.refuses = {"b": [Busy("20000 jobs are live"), Busy("20000 jobs are live")]}
    assert runs(cluster, tmp_path).go() == 0
    out, err = capsys.readouterr()
    assert [line.split("\t")[::2] for line in out.splitlines()] == [[value, "FINISHED"] for value in "abc"]
    assert err.count("waits: 20000 jobs are live") == 1


@pytest.mark.parametrize("failure", [TooLate("its time was up"), OutcomeUnknown("no answer"), Unavailable("no answer")])
def test_what_is_no_fault_of_the_graph_ends_it_and_the_value_is_not_begun(
    failure: MillraceError, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = Cluster()
    cluster.refuses = {"b": [failure]}
    with pytest.raises(type(failure)):
        runs(cluster, tmp_path).go()
    out, err = capsys.readouterr()
    assert out.splitlines()[-1].startswith("a\t") and "runs that go on: 0; not begun: 2." in err


def test_ctrl_c_says_what_goes_on_and_that_the_same_command_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = Cluster()

    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(subject.time, "sleep", interrupted)
    assert runs(cluster, tmp_path, parallel=2).go() == 130
    assert "runs that go on: 2; not begun: 1. The same command goes on with them." in capsys.readouterr().err
