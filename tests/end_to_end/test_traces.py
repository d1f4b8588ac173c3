"""Traces of jobs on a real stack with standbys, as a collector of OpenTelemetry gets them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from millrace.core.trace_context import parse, trace_of
from millrace.runtime.spans import ID, TABLE
from tests.end_to_end.running import Held, RunningStack, Watched, until
from tests.end_to_end.test_metrics import numbers
from tests.io.of_traces import Collector, Seen

TRACE, PUBLISHER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GIVEN = f"00-{TRACE}-{PUBLISHER}-01"
STATE = "rojo=00f067aa0ba902b7,congo@t=t61rcWkgMzE"
GRAPH = {
    "name": "counts",
    "vertices": {
        "numbers": {"sql": "SELECT id, id % 3 AS k FROM range(0, 1000, 1, 4)"},
        "counts": {"sql": "SELECT k, count(*) AS n FROM numbers GROUP BY k", "inputs": {"numbers": "hash(k)"}, "parallelism": 2},
    },
}


def whole(collector: Collector, job: Watched, spark: bool = False, **least: int) -> list[Seen]:
    """All spans of a job that has ended, each once. `least`: so many of each kind come; beside those of the job and of each attempt that
    ran, which are sent by other processes than these. `spark`: each attempt has a Spark job, and that has a stage; some have several, so
    their number alone does not tell that those of the last attempt have come."""
    assert job.end
    ran = len(job.attempts("RUNNING"))
    least = {"job": 1, "store": 1, "queue": 1, "slot": 1, "finish": 1, "attempt": ran, "start": ran, **least}

    def found(spans: list[Seen]) -> bool:
        mine = {span.span: span for span in spans if span.attributes.get(ID) == job.id}.values()
        kinds = Counter(span.kind for span in mine)
        jobs = [span for span in mine if span.kind == "spark job"]
        run = {span.parent for span in jobs if span.span in {each.parent for each in mine if each.kind == "spark stage"}}
        return all(kinds[kind] >= count for kind, count in least.items()) and (
            not spark or {span.span for span in mine if span.kind == "attempt"} <= run
        )

    collector.until(f"all spans of {job.id}: {least}", found)
    return collector.of(job.id)


def rows_written(spans: list[Seen]) -> int:
    return sum(span.attributes.get("spark.stage.rows_written", 0) for span in spans)


def check_tree(spans: list[Seen], trace: str, publisher: str) -> Seen:
    """They are one trace, and a tree; nothing of it is outside of what it is a part of. Its root."""
    known = {span.span: span for span in spans}
    assert {span.trace for span in spans} == {trace} and len(known) == len(spans)
    [root] = [span for span in spans if span.parent not in known]
    assert (root.kind, root.parent) == ("job", publisher)
    declared = {kind.name: kind for kind in TABLE}
    for span in spans:
        kind = declared[span.kind]
        assert span.attributes.keys() <= kind.attributes.keys() and span.service == f"millrace-{kind.service}"
        if span is not root:
            parent = known[span.parent]
            assert parent.kind in kind.parent and parent.start <= span.start <= span.end <= parent.end, (parent, span)
    return root


def test_a_job_is_one_trace_from_its_publisher_to_its_spark_stages(replicated: RunningStack, collector: Collector, tmp_path: Path) -> None:
    sink = {"out": {"sink": {"format": "parquet", "path": str(tmp_path / "out")}, "inputs": {"counts": "broadcast"}}}
    job = replicated.submit({**GRAPH, "vertices": {**GRAPH["vertices"], **sink}}, traceparent=GIVEN, tracestate=STATE)
    assert job.end["type"] == "JobFinished"
    attempts = job.attempts("FINISHED")
    whole(collector, job, spark=True, publish=1)
    collector.until("what its stages wrote", lambda _: rows_written(collector.of(job.id)) >= 1000)  # one attempt's may come in two parts
    spans = collector.of(job.id)
    root = check_tree(spans, TRACE, PUBLISHER)
    assert (root.name, root.attributes["millrace.job.status"], root.failed) == ("job counts", "FINISHED", None)
    kinds = Counter(span.kind for span in spans)
    assert len(attempts) == kinds["attempt"] == kinds["start"] == 4
    assert [kinds[once] for once in ("job", "store", "queue", "publish", "finish")] == [1] * 5
    assert kinds["slot"] >= 1, "one for each that it was granted"
    assert {span.state for span in spans} == {STATE}
    parents = {kind: {span.parent for span in spans if span.kind == kind} for kind in ("spark job", "spark stage")}
    assert parents["spark job"] == {span.span for span in spans if span.kind == "attempt"}
    assert parents["spark stage"] <= {span.span for span in spans if span.kind == "spark job"}
    assert rows_written(spans) >= 1000


def test_a_job_without_a_publishers_trace_has_its_own_which_the_code_of_its_attempts_is_in(
    replicated: RunningStack, collector: Collector, tmp_path: Path
) -> None:
    script = "import os, sys\nopen(sys.argv[1], 'w').write(os.environ['TRACEPARENT'])\nraise SystemExit(3)"
    job = replicated.script(script, [tmp_path / "told"])
    spans = whole(collector, job)
    root = check_tree(spans, trace_of(job.id), "")
    [attempt] = [span for span in spans if span.kind == "attempt"]
    told = parse((tmp_path / "told").read_text())
    assert told is not None and (told.trace, told.span) == (attempt.trace, attempt.span)
    for span in (root, attempt):
        assert span.failed and span.attributes["error.type"] == job.cause["kind"]


@pytest.mark.long
def test_a_job_whose_leaders_are_killed_is_one_trace_all_the_same(replicated: RunningStack, collector: Collector, tmp_path: Path) -> None:
    scopes = ("dispatcher", "resource-manager", "job-master/0", "job-master/1")
    before = {scope: (replicated.leader(scope), replicated.leader_key(scope)) for scope in scopes}
    killed = {name: replicated.pid(name) for name, _ in before.values()}
    held = Held(replicated, tmp_path / "held")
    held.started()
    job = held.watched
    begun = {"store", "queue", "slot", "start"}
    collector.until("what is over already", lambda spans: begun <= {span.kind for span in spans if span.attributes.get(ID) == job.id})
    replicated.kill(*killed)
    for scope, (_, old) in before.items():
        until(f"another leader of {scope}", lambda scope=scope, old=old: replicated.leader_key(scope) not in (None, old))
    for name, pid in killed.items():
        replicated.started_again(name, pid)  # what counts spans in the tests behind this one begins anew with it
    assert held.let_go().end["type"] == "JobFinished"
    spans = whole(collector, job)
    check_tree(spans, trace_of(job.id), "")
    assert Counter(span.kind for span in spans if not span.kind.startswith("spark")) == {
        "job": 1, "store": 1, "queue": 1, "slot": 1, "attempt": 1, "start": 1, "finish": 1,
    }  # fmt: skip


def test_a_publisher_that_wants_no_spans_gets_none_and_its_code_is_told(
    replicated: RunningStack, collector: Collector, tmp_path: Path
) -> None:
    script = "import os, sys\nopen(sys.argv[1], 'w').write(os.environ['TRACEPARENT'])"
    quiet = replicated.client.submit(
        {"name": "quiet", "vertices": {"q": {"sql": "SELECT 1"}}}, traceparent=f"{GIVEN[:-1]}0", watch=False
    )
    quiet.wait()
    after = replicated.script(script, [tmp_path / "told"])
    whole(collector, after)  # sent later, by the same processes
    assert collector.of(quiet.id) == []


@pytest.mark.long
def test_without_its_collector_jobs_run_and_what_is_lost_is_counted(replicated: RunningStack, collector: Collector) -> None:
    dropped = "millrace_spans_total", "dropped"
    before = numbers(replicated)[dropped]
    with collector.away():
        job = replicated.submit(GRAPH)
        assert job.end["type"] == "JobFinished"
        until("lost spans to be counted", lambda: numbers(replicated)[dropped] > before)
    again = replicated.submit(GRAPH)
    check_tree(whole(collector, again), trace_of(again.id), "")
