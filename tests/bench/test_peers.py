"""The bench of peers: its pure parts, how it treats a process, and a small run whole."""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import psutil
import pytest
import typer
from pyarrow import parquet

from deploy.local.downloads import CHECKOUT
from millrace.core.jobgraph.model import JobGraph
from millrace.core.jobgraph.validate import validate
from tests.bench.peers import data
from tests.bench.peers.__main__ import _chosen
from tests.bench.peers.compare import difference
from tests.bench.peers.contest import PEERS, WORKERS
from tests.bench.peers.environments import HERE, CannotTakePart, _last_line, version
from tests.bench.peers.page import page, seconds, svg
from tests.bench.peers.targets import TARGETS, ratios
from tests.bench.peers.turns import Bar, Figure, Lane, by_turns, figure_of
from tests.bench.peers.worker import Answer, Worker, worker
from tests.bench.peers.workers.pandas_steps import half_up
from tests.bench.peers.works import QUERIES, graph

FACTS = {"cores": 2, "memory_mb": 8192, "date": "2026-11-25T12:00:00+00:00"}


# results beside each other


@pytest.mark.parametrize("other", [[[1, 2.0 + 1e-12, None]], [[1, 2, None]], [(1.0, 2.0, None)]])
def test_equal_cells(other: list[list[object]]) -> None:
    assert difference([[1, 2.0, None]], other) is None


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ([], "0 rows instead of 1"),
        ([[1, 2.0]], "row 0 has 2 columns instead of 3"),
        ([[1, 2.0, "b"]], "row 0, column 2: 'b' instead of 'a'"),
        ([[1, 2.00001, "a"]], "row 0, column 1: 2.00001 instead of 2.0"),
        ([[2, 2.0, "a"]], "row 0, column 0: 2 instead of 1"),
        ([["1", 2.0, "a"]], "row 0, column 0: '1' instead of 1"),
        ([[True, 2.0, "a"]], "row 0, column 0: True instead of 1"),
        ([[1, None, "a"]], "row 0, column 1: None instead of 2.0"),
    ],
)
def test_the_first_difference_is_named(other: list[list[object]], says: str) -> None:
    assert difference([[1, 2.0, "a"]], other) == says


def test_large_integers_are_compared_exactly() -> None:
    assert difference([[10**17]], [[10**17 + 1]]) is not None


# turns


def lane(name: str, order: list[str], rows: object = ((1,),), warms: bool = True) -> Lane:
    def run() -> Answer:
        order.append(name)
        if isinstance(rows, CannotTakePart):
            raise rows
        return Answer(float(len(order)), rows)  # type: ignore[arg-type]  # rows of any kind

    return Lane(name, name.upper(), run, warms=warms)


def test_each_round_begins_with_another_lane_and_the_warm_up_does_not_count() -> None:
    order: list[str] = []
    figure = Figure("f", "what")
    by_turns(figure, [lane("a", order), lane("b", order), lane("c", order, warms=False)], 2, lambda _: None)
    assert "".join(order) == "ab" + "bca" + "cab"
    assert figure.bars == [Bar("a", "A", [5.0, 7.0]), Bar("b", "B", [3.0, 8.0]), Bar("c", "C", [4.0, 6.0])]
    assert figure.left_out == []


def test_a_lane_that_breaks_or_differs_is_left_out_with_the_reason() -> None:
    order: list[str] = []
    figure = Figure("f", "what")
    lanes = [lane("a", order), lane("b", order, [[2]]), lane("c", order, CannotTakePart("no Java")), lane("d", order, [])]
    by_turns(figure, lanes, 2, lambda _: None)
    assert "".join(order) == "abcd" + "a" + "a"
    assert [(each.label, each.reason) for each in figure.left_out] == [
        ("B", "its result differs: row 0, column 0: 2 instead of 1, as A has it"),
        ("C", "no Java"),
        ("D", "its result differs: it is empty"),
    ]
    assert all(each.wrong for each in figure.left_out)
    assert [bar.name for bar in figure.bars] == ["a"]


# targets, bars


def flights() -> Figure:
    bars = [Bar("millrace-1", "one plan", [2.0, 9.0, 2.2]), Bar("session", "warm <session>", [2.0]), Bar("millrace-2", "two", [3.0])]
    figure = Figure("flights", "The flights & all", bars)
    figure.leave_out("Flink", "no Parquet")
    return figure


def test_ratios_are_of_medians_and_say_what_was_not_measured() -> None:
    tenfold = Figure("tenfold", "", [Bar("millrace-once", "once", [1.0]), Bar("millrace-tenfold", "tenfold", [9.0])])
    found = ratios([flights(), tenfold, Figure("small", "")])
    assert [(each.ratio, each.most, each.verdict) for each in found] == [
        (1.1, 1.1, "reached"),
        (1.5, 1.3, "missed"),
        (None, 0.8, "not measured"),
        (None, 1.3, "not measured"),
        (0.9, 1.0, "reached"),
    ]


def test_a_figure_is_read_from_its_json_again() -> None:
    assert figure_of(json.loads(json.dumps(flights().written()))) == flights()


def test_bars_have_the_lengths_of_their_medians() -> None:
    root = ElementTree.fromstring(svg([flights(), Figure("small", "nothing measured")], "a note"))
    space = "{http://www.w3.org/2000/svg}"
    lengths = [float(each.attrib["width"]) for each in root.iter(f"{space}rect")][1:]
    assert lengths[2] / lengths[0] == pytest.approx(3.0 / 2.2, abs=0.01)
    words = [each.text for each in root.iter(f"{space}text")]
    assert "2.20 s" in words and "warm <session>" in words and "a note" in words and "nothing measured" not in words
    assert float(root.attrib["height"]) > max(float(each.attrib["y"]) for each in [*root.iter(f"{space}rect")][1:])


def test_the_page_is_whole_and_names_who_was_left_out() -> None:
    made = page([flights()], ratios([flights()]), FACTS, {"dask": "dask==1"})
    assert "no Parquet" in made and "warm &lt;session&gt;" in made and "dask==1" in made and "missed" in made
    assert not re.search(r"(src|href)=", made)


def test_seconds_are_short() -> None:
    assert [seconds(each) for each in (0.041, 9.999, 12.34, 1234.5)] == ["0.04 s", "10.00 s", "12.3 s", "1,234.5 s"]


# what is asked for


def test_names_are_chosen_in_their_own_order() -> None:
    assert _chosen("peer", "submit, session", list(PEERS)) == ["session", "submit"]
    assert _chosen("peer", "", list(PEERS)) == []
    with pytest.raises(typer.BadParameter, match="no peer 'spark'; there are session, submit"):
        _chosen("peer", "spark", list(PEERS))
    with pytest.raises(typer.BadParameter):
        _chosen("work", "", ["flights"])


@pytest.mark.parametrize(("query", "parallelism"), [*itertools.product(QUERIES, (1, 2))])
def test_the_queries_are_graphs(query: str, parallelism: int) -> None:
    found = validate(graph(query, data.tables(Path("/data")), parallelism))
    assert isinstance(found, JobGraph), found
    assert max(vertex.parallelism for vertex in found.vertices.values()) == parallelism


def test_every_target_is_of_a_known_work() -> None:
    assert {target.figure for target in TARGETS} == {"flights", "small", "first", "tenfold", "two", *QUERIES}


# data and environments


def test_tables_are_the_same_each_time(tmp_path: Path) -> None:
    made = [data.generate(tmp_path / name, 4001) for name in ("a", "b")]
    for name in data.TABLES:
        first, second = (parquet.read_table(folder / name) for folder in made)
        assert first.equals(second)
    assert parquet.read_table(made[0] / "lineitem").num_rows == 4001
    assert data.generate(tmp_path / "a", 4001, seed=5) != made[0]


def test_every_package_is_pinned_by_hash() -> None:
    locks = sorted((HERE / "locks").glob("*.lock"))
    assert {lock.stem for lock in locks} == {peer.lock for peer in PEERS.values() if peer.lock}
    for lock in locks:
        entries = re.split(r"\n(?=\S)", lock.read_text().strip())
        assert all("==" in entry.splitlines()[0] and "--hash=sha256:" in entry for entry in entries), lock.name
        wanted = re.sub(r"\[.*\]", "", version(lock.stem))
        assert any(entry.startswith(f"{wanted} ") for entry in entries), lock.name


def test_spark_connect_is_the_spark_that_millrace_runs() -> None:
    ours = re.search(r"^pyspark==(\S+)", (CHECKOUT / "requirements.lock").read_text(), re.MULTILINE)
    assert ours is not None and version("connect") == f"pyspark[connect]=={ours.group(1)}"


def test_a_half_is_rounded_as_sql_does() -> None:
    assert [half_up(each, 1) for each in (0.25, -0.25, 19.349999, 19.35)] == [0.3, -0.3, 19.3, 19.4]


def test_the_reason_of_a_failed_install_is_its_error(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("Collecting x\nERROR: no version of x for this Python\n[notice] a new pip\n")
    assert _last_line(tmp_path / "log") == "ERROR: no version of x for this Python"


# a peer's process

ECHO = """
import os, subprocess, sys
sys.path.insert(0, {workers!r})
from lines import serve

child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("this goes to the log")
serve({{
    "echo": lambda request: [[request["value"], float("nan"), os.environ["HOME"]]],
    "child": lambda request: [[child.pid]],
    "fail": lambda request: 1 / 0,
    "die": lambda request: os._exit(3),
}})
"""


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Worker]:
    script = tmp_path / "echo.py"
    script.write_text(ECHO.format(workers=str(WORKERS)))
    with worker("echo", Path(sys.executable), script, [], tmp_path / "logs") as found:
        yield found


@pytest.mark.long
def test_a_worker_answers_and_an_error_ends_the_work_alone(process: Worker) -> None:
    with pytest.raises(CannotTakePart, match="ZeroDivisionError: division by zero"):
        process.ask({"work": "fail"})
    ((value, nothing, home),) = process.ask({"work": "echo", "value": 41}).rows
    assert (value, nothing) == (41, None)
    assert home != os.environ.get("HOME")


def test_a_worker_that_died_says_so_each_time_and_leaves_nothing(tmp_path: Path) -> None:
    script = tmp_path / "echo.py"
    script.write_text(ECHO.format(workers=str(WORKERS)))
    with worker("echo", Path(sys.executable), script, [], tmp_path / "logs") as process:
        ((pid,),) = process.ask({"work": "child"}).rows
        for _ in range(2):
            with pytest.raises(CannotTakePart, match="echo ended"):
                process.ask({"work": "die"})
    assert ended(pid)


def ended(pid: int) -> bool:
    """Also a zombie: nobody may be there to take its status."""
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.mark.long
def test_nothing_of_a_worker_is_left_by_an_interrupt(tmp_path: Path) -> None:
    script = tmp_path / "echo.py"
    script.write_text(ECHO.format(workers=str(WORKERS)))
    with pytest.raises(KeyboardInterrupt):
        with worker("echo", Path(sys.executable), script, [], tmp_path / "logs") as process:
            ((pid,),) = process.ask({"work": "child"}).rows
            ((_, _, scratch),) = process.ask({"work": "echo", "value": 1}).rows
            assert not ended(pid) and Path(scratch).exists()
            raise KeyboardInterrupt
    assert ended(pid)
    assert not Path(scratch).exists()
    assert "this goes to the log" in (tmp_path / "logs" / "echo.log").read_text()


def test_a_worker_that_does_not_start_gives_its_last_line(tmp_path: Path) -> None:
    script = tmp_path / "broken.py"
    script.write_text("raise ImportError('no flink here')")
    with pytest.raises(CannotTakePart, match="flink does not start: ImportError: no flink here"):
        with worker("flink", Path(sys.executable), script, [], tmp_path):
            pass


# the whole, small
