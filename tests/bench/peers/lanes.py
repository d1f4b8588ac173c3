"""Each work as lanes: who does it, and how."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from ..clusters import Cluster, cluster, end_of, sql_graph
from .contest import PEERS, SCRIPT, Contest
from .environments import CannotTakePart
from .turns import Bar, Figure, Lane, by_turns
from .worker import Answer
from .works import QUERIES, WHAT, graph

WARM_UP_JOBS, CHUNK, SMALL_LIMIT_S = 20, 10, 120.0
FIRST_JOBS = 5
ONE = "revenue"
"""The query of the works that need one."""


def flights(contest: Contest) -> list[Figure]:
    figure = Figure("flights", "The flights pipeline of examples/flights.yaml, to the rows of its report")
    able = contest.present(figure, {})
    lanes = [
        Lane("millrace-1", "Millrace, parallelism 1", lambda: contest.flights(1)),
        Lane("millrace-2", "Millrace, 2 subtasks on 2 slots", lambda: contest.flights(2)),
    ]
    for peer in able:
        lanes.append(Lane(peer, PEERS[peer].title, partial(contest.worker(peer).ask, contest.flights_request(peer))))
    if "submit" in contest.plan.peers:
        request = contest.flights_request("submit")
        lanes.append(Lane("submit", PEERS["submit"].title, lambda: contest.submit(request), warms=False))
    by_turns(figure, lanes, contest.plan.rounds, contest.say)
    return [figure]


def queries(contest: Contest) -> list[Figure]:
    tables = contest.tables(contest.plan.rows)
    return [_query(contest, query, tables) for query in QUERIES]


def _query(contest: Contest, query: str, tables: dict[str, str]) -> Figure:
    figure = Figure(query, f"{WHAT[query].capitalize()}, over {contest.plan.rows:,} lines of Parquet")
    able = contest.present(figure, {})
    request = contest.query_request(query, tables)
    lanes = [
        Lane("millrace-1", "Millrace, one plan", lambda: contest.query(graph(query, tables, 1), contest.cluster())),
        Lane("millrace-2", "Millrace, 2 subtasks with edges", lambda: contest.query(graph(query, tables, 2), contest.cluster())),
        Lane("millrace-script", "Millrace, a script", lambda: contest.script(request)),
    ]
    for peer in able:
        lanes.append(Lane(peer, PEERS[peer].title, partial(contest.worker(peer).ask, request)))
        if peer == "session":
            title = f"{PEERS[peer].title}, the script"
            lanes.append(Lane("session-script", title, lambda: _script_in_session(contest, request)))
    if "submit" in contest.plan.peers:
        lanes.append(Lane("submit", f"{PEERS['submit'].title}, the script", lambda: contest.submit(request), warms=False))
    by_turns(figure, lanes, contest.plan.rounds, contest.say)
    return figure


def _script_in_session(contest: Contest, request: dict[str, Any]) -> Answer:
    arguments = contest.script_arguments("session", request)
    return contest.worker("session").ask({"work": "script", "script": str(SCRIPT), "arguments": arguments})


def small(contest: Contest) -> list[Figure]:
    """Millrace gets all jobs at once; a peer does one after the other, and is measured for two minutes at most."""
    jobs = contest.plan.jobs
    figure = Figure("small", f"{jobs} queries of one row, one job each")
    able = contest.present(figure, {"submit": "it would start Spark for each; its start is in the other figures"})
    both = contest.cluster()
    with cluster("peers-one", contest.say, slots=1) as one:
        lanes = [
            Lane("millrace-2", "Millrace, all at once, 2 slots", lambda: _many(both, jobs)),
            Lane("millrace-1", "Millrace, all at once, one slot", lambda: _many(one, jobs)),
            *(Lane(peer, f"{PEERS[peer].title}, in turn", partial(_in_turn, contest, peer, jobs)) for peer in able),
        ]
        contest.say("small: a few of each, to warm up")
        for running in (both, one):
            _many(running, WARM_UP_JOBS)
        for peer in able:
            with contextlib.suppress(CannotTakePart):  # it says so again in its turn
                _in_turn(contest, peer, CHUNK)
        by_turns(figure, lanes, max(contest.plan.rounds // 2, 1), contest.say, warm=False)
    return [figure]


def _many(running: Cluster, jobs: int) -> Answer:
    started = time.perf_counter()
    sent = [running.client.begin_submit(sql_graph(f"SELECT {number} AS number")) for number in range(jobs)]
    accepted = [each.result() for each in sent]
    ends = [end_of(job) for job in accepted]
    seconds = time.perf_counter() - started
    if set(ends) != {"FINISHED"}:
        raise CannotTakePart(f"jobs ended {sorted(set(ends))}")
    rows = [row for job in accepted for row in job.result().rows]
    running.settle()
    return Answer(seconds, rows)


def _in_turn(contest: Contest, peer: str, jobs: int) -> Answer:
    """What is not done within the limit is taken to need as long as the rest."""
    seconds, rows = 0.0, []
    while len(rows) < jobs and seconds < SMALL_LIMIT_S:
        numbers = list(range(len(rows), min(len(rows) + CHUNK, jobs)))
        answer = contest.worker(peer).ask({"work": "small", "numbers": numbers})
        if answer.rows != [[number] for number in numbers]:
            raise CannotTakePart(f"its result differs: {answer.rows[:3]} for {numbers[:3]}")
        seconds, rows = seconds + answer.seconds, rows + answer.rows
    if len(rows) < jobs:
        contest.say(f"small: {PEERS[peer].title}: {len(rows)} of {jobs} in {seconds:.0f} s; counted in proportion")
    return Answer(seconds * jobs / len(rows), [[number] for number in range(jobs)])


def first(contest: Contest) -> list[Figure]:
    """A stack and processes of their own in each round."""
    figure = Figure("first", f"The first and the fifth run of {ONE}, on a slot or in a process just started")
    tables = contest.tables(contest.plan.rows)
    able = contest.present(figure, {
        "submit": "each of its runs is a first one", "connect": "its local server has one port, which the warm one listens on",
    })  # fmt: skip
    request = contest.query_request(ONE, tables)
    samples: dict[str, list[list[float]]] = {}
    idled: list[float] = []
    for number in range(1, max(contest.plan.rounds // 2, 1) + 1):
        with cluster("peers-first", contest.say, slots=1) as running:
            _five(contest, samples, "millrace", number, lambda: contest.query(graph(ONE, tables, 1), running))
        with cluster("peers-first", contest.say, slots=1) as running:
            running.await_rest()
            idled.append(contest.query(graph(ONE, tables, 1), running).seconds)
            contest.say(f"first: millrace, round {number}, after its slot had idled: {idled[-1]:.2f} s")
        for peer in list(able):
            try:
                with contest.start(peer) as process:
                    _five(contest, samples, peer, number, partial(process.ask, request))
            except CannotTakePart as reason:
                figure.leave_out(PEERS[peer].title, str(reason), wrong=True)
                able.remove(peer)
    for who, rounds in samples.items():
        title = PEERS[who].title if who in PEERS else "Millrace, one plan"
        for name, index in (("first", 0), ("fifth", FIRST_JOBS - 1)):
            figure.bars.append(Bar(f"{who}-{name}", f"{title}, {name}", [each[index] for each in rounds]))
    figure.bars.append(Bar("millrace-idled", "Millrace, one plan, first after its slot had idled", idled))
    return [figure]


def _five(
    contest: Contest, samples: dict[str, list[list[float]]], who: str, number: int, run: Callable[[], Answer]
) -> None:
    seconds = [run().seconds for _ in range(FIRST_JOBS)]
    samples.setdefault(who, []).append(seconds)
    contest.say(f"first: {who}, round {number}: {', '.join(f'{each:.2f}' for each in seconds)} s")


def tenfold(contest: Contest) -> list[Figure]:
    rows = contest.plan.rows
    figure = Figure("tenfold", f"{WHAT[ONE].capitalize()}, over {rows:,} lines and over ten times as many")
    able = contest.present(figure, {"submit": "its start is no part of what grows"})
    lanes = []
    for name, label, size in (("once", "", rows), ("tenfold", ", ten times the rows", rows * 10)):
        tables = contest.tables(size)
        run = partial(contest.query, graph(ONE, tables, 1), contest.cluster())
        lanes.append(Lane(f"millrace-{name}", f"Millrace, one plan{label}", run, group=name))
        for peer in able:
            ask = partial(contest.worker(peer).ask, contest.query_request(ONE, tables))
            lanes.append(Lane(f"{peer}-{name}", f"{PEERS[peer].title}{label}", ask, group=name))
    by_turns(figure, lanes, max(contest.plan.rounds // 2, 1), contest.say)
    return [figure]


def two(contest: Contest) -> list[Figure]:
    figure = Figure("two", "Two jobs (revenue, top) at once, and one after the other")
    for peer in contest.plan.peers:
        figure.leave_out(PEERS[peer].title, "one process, one after the other: nothing to compare")
    tables = contest.tables(contest.plan.rows)
    graphs = [graph(query, tables, 1) for query in ("revenue", "top")]

    def in_turn() -> Answer:
        answers = [contest.query(each, contest.cluster()) for each in graphs]
        return Answer(sum(answer.seconds for answer in answers), [row for answer in answers for row in answer.rows])

    def at_once() -> Answer:
        running = contest.cluster()
        started = time.perf_counter()
        jobs = [running.client.submit(each) for each in graphs]
        rows = [row for job in jobs for row in job.result().rows]
        seconds = time.perf_counter() - started
        running.settle()
        return Answer(seconds, rows)

    lanes = [Lane("millrace-in-turn", "Millrace, one after the other", in_turn), Lane("millrace-at-once", "Millrace, at once", at_once)]
    by_turns(figure, lanes, contest.plan.rounds, contest.say)
    return [figure]


WORKS: dict[str, Callable[[Contest], list[Figure]]] = {
    "flights": flights, "queries": queries, "small": small, "first": first, "tenfold": tenfold, "two": two,
}  # fmt: skip
