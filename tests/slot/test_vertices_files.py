"""Files of exchange folders: one that is gone, or was cut, is missed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from services.task_manager.slot.attempt import exchange as of_exchange
from services.task_manager.slot.attempt import exchange_files
from tests.slot.attempts import Attempts, chained
from tests.slot.test_vertices_exchange import Exchange


@pytest.fixture
def exchange(attempts: Attempts, tmp_path: Path) -> Exchange:
    return Exchange(attempts, tmp_path / "exchange")


_RESULT = {"vertex": "c", "edge": "result", "rows": 100_000}
QUERY = "SELECT id % 8 AS k, id FROM range({i} * 1000, {i} * 1000 + 1000)"


def _produced(exchange: Exchange, kind: str) -> dict[str, Any]:
    """An edge over two producers of several files each; of a hash edge the second of two shares."""
    more = {"keys": ["k"], "shares": 2} if kind == "hash" else {}
    exchange.produce("q", QUERY, kind, parts=2, **more)
    return exchange.edge("q", kind, listed=True, **({"keys": ["k"], "share": 1, "shares": 2} if kind == "hash" else {}))


def _parts(edge: dict[str, Any], number: int) -> list[Path]:
    below = Path(edge["folders"][number]) / (f"__share={edge['share']}" if edge["edge"] == "hash" else "")
    return sorted(path for path in below.iterdir() if path.name.startswith("part-"))


@pytest.fixture(params=["this machine", "by Hadoop"])
def looked_at(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of this machine is looked at directly, one of a storage by Hadoop's FileSystem: here both are folders of this machine."""
    if request.param == "by Hadoop":
        made = exchange_files.Folder.__init__

        def by_hadoop(self: Any, session: Any, folder: str) -> None:
            made(self, session, folder)
            self._local = None

        monkeypatch.setattr(exchange_files.Folder, "__init__", by_hadoop)


@pytest.mark.usefixtures("looked_at")
@pytest.mark.parametrize("kind", ["broadcast", "hash"])
def test_a_single_file_that_is_gone_is_missed_and_who_wrote_it_is_named(attempts: Attempts, exchange: Exchange, kind: str) -> None:
    """Spark reads what is there: the rows of that file were just not in the result."""
    edge = _produced(exchange, kind)
    consumer = {"id": "c", "sql": "SELECT count(*) AS n FROM q", "inputs": {"q": edge}}
    assert 0 < attempts.rows(consumer)[0][0] <= 2_000
    there = len(_parts(edge, 1))
    _parts(edge, 1)[0].unlink()
    error = attempts.fail(consumer)
    assert (error["kind"], error["retryable"], error["condition"]) == ("infrastructure", False, "EXCHANGE_LOST")
    assert error["lost"].split("\n") == [edge["folders"][1]]
    assert f"{edge['folders'][1]} has {there - 1} of {there} files" in error["message"]


@pytest.mark.parametrize("where", ["by the query", "by its own code"])
def test_rows_that_are_deleted_while_they_are_read_are_missed(attempts: Attempts, exchange: Exchange, where: str) -> None:
    """Spark has looked for the files when the vertex was opened: it says that a path is not there, as of any path of the user."""
    edge = _produced(exchange, "hash")
    gone = _parts(edge, 1)[0]
    code = f"import os\ndef f(q):\n    os.unlink({str(gone)!r})\n    {'q.collect()' if where == 'by its own code' else ''}\n    return q\n"
    consumer = {"id": "c", "python": "m:f", "inputs": {"q": edge}}
    error = attempts.fail(consumer, outputs=[_RESULT], modules=[attempts.module("m.py", code)])
    assert (error["kind"], error["retryable"], error["condition"]) == ("infrastructure", False, "EXCHANGE_LOST")
    assert error["lost"] == edge["folders"][1] and error["vertex"] == "c"


def test_what_fails_of_itself_while_its_rows_are_there_keeps_its_reason(attempts: Attempts, exchange: Exchange) -> None:
    edge = _produced(exchange, "broadcast")
    error = attempts.fail({"id": "c", "sql": "SELECT raise_error('mine') FROM q", "inputs": {"q": edge}}, outputs=[_RESULT])
    assert error["kind"] == "user" and "mine" in error["message"]


@pytest.mark.usefixtures("looked_at")
def test_a_file_that_was_cut_or_a_note_that_is_gone_is_missed_too(attempts: Attempts, exchange: Exchange) -> None:
    edge = _produced(exchange, "broadcast")
    consumer = {"id": "c", "sql": "SELECT count(*) AS n FROM q", "inputs": {"q": edge}}
    cut = _parts(edge, 0)[0]
    size = sum(path.stat().st_size for path in _parts(edge, 0))
    cut.with_name(f".{cut.name}.crc").unlink(missing_ok=True)
    cut.write_bytes(cut.read_bytes()[:-8])
    for path in Path(edge["folders"][1]).iterdir():
        path.unlink()
    error = attempts.fail(consumer)
    assert error["lost"].split("\n") == edge["folders"]
    assert f"{edge['folders'][0]} has files of {size - 8} bytes, and {size} were written, and 1 more like it" in error["message"]


def test_an_output_of_a_build_that_noted_no_files_is_read_as_it_is(attempts: Attempts, exchange: Exchange) -> None:
    edge = {**_produced(exchange, "hash"), "listed": False}
    consumer = {"id": "c", "sql": "SELECT count(*) AS n FROM q", "inputs": {"q": edge}}
    rows = attempts.rows(consumer)
    for folder in edge["folders"]:
        (Path(folder) / exchange_files.NOTE).unlink()
    assert attempts.rows(consumer) == rows and rows[0][0] > 0


@pytest.mark.usefixtures("looked_at")
def test_an_output_without_rows_is_whole(attempts: Attempts, exchange: Exchange) -> None:
    exchange.produce("q", "SELECT id AS k FROM range(0)", "hash", keys=["k"], shares=3)
    edge = exchange.edge("q", "hash", listed=True, keys=["k"], share=2, shares=3)
    assert (exchange.folder / "q" / "0" / exchange_files.NOTE).read_text() == 3 * (f"{'0 0':31}\n")
    assert attempts.rows({"id": "c", "sql": "SELECT count(*) AS n FROM q", "inputs": {"q": edge}}) == [[0]]


def test_a_file_that_is_gone_before_it_was_noted_fails_who_wrote_it(
    attempts: Attempts, exchange: Exchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deleted while it was written: Spark commits what it finds, and the note would have had the rest alone."""
    counted = of_exchange.written
    monkeypatch.setattr(of_exchange, "written", lambda *of: (counted(*of)[0], counted(*of)[1] + 1))
    folder = str(exchange.folder / "q")
    error = attempts.fail({"id": "q", "sql": "SELECT 1 AS k"}, outputs=[{"vertex": "q", "edge": "broadcast", "folder": folder}])
    assert (error["kind"], error["condition"]) == ("infrastructure", "EXCHANGE_NOT_WRITTEN")
    assert f"{folder} has 1 of the 2 files" in error["message"]


def _sink(tmp_path: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The vertices of a sink of three files, and its output."""
    source = {"id": "src", "python": "m:f", "inputs": {}}
    sink = {"id": "out", "sink": {"format": "json", "path": str(tmp_path / "out"), "mode": "append"}, "inputs": chained("src")}
    return [source, sink], {"vertex": "out", "edge": "sink", "folder": str(tmp_path / "staged"), "name": "n"}


THREE = "def f(spark):\n    return spark.range(0, 30, 1, 3)\n"


@pytest.mark.usefixtures("looked_at")
def test_of_a_sinks_staged_files_the_number_is_noted(attempts: Attempts, tmp_path: Path) -> None:
    """Whoever publishes them later looks for that name among those that it finds."""
    vertices, output = _sink(tmp_path)
    attempts.run(*vertices, outputs=[output], modules=[attempts.module("m.py", THREE)])
    names = sorted(path.name for path in (tmp_path / "staged").iterdir() if path.suffix != ".crc")
    assert names[0] == f"{exchange_files.STAGED}3" and [name[:5] for name in names[1:]] == 3 * ["part-"]


def test_a_staged_file_that_is_gone_before_it_was_noted_fails_who_wrote_it(
    attempts: Attempts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted, (vertices, output) = of_exchange.written, _sink(tmp_path)

    def written(session: Any, folder: str) -> tuple[int | None, int | None]:
        next(Path(folder).glob("part-*")).unlink()
        return counted(session, folder)

    monkeypatch.setattr(of_exchange, "written", written)
    error = attempts.fail(*vertices, outputs=[output], modules=[attempts.module("m.py", THREE)])
    assert (error["kind"], error["condition"]) == ("infrastructure", "SINK_NOT_WRITTEN")
    assert f"{output['folder']} has 2 of the 3 files" in error["message"]
