"""Rows and files of what an attempt hands on are those of its own write, whatever its user's code writes beside it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from services.task_manager.slot.attempt import exchange
from tests.slot.attempts import Attempts, chained


@pytest.fixture(name="write_beside")
def write_beside_(attempts: Attempts, tmp_path: Path) -> Callable[[], None]:
    """Writes a thousand rows in three files, as a thread that a python vertex has left does."""

    def write() -> None:
        attempts.spark.newSession().range(0, 1000, 1, 3).write.mode("append").parquet(str(tmp_path / "beside"))

    def write_on_a_thread() -> None:
        thread = threading.Thread(target=write)
        thread.start()
        thread.join()

    return write_on_a_thread


@pytest.mark.parametrize("begun", ["before", "after"])
def test_what_is_handed_on_is_counted_though_others_write(
    attempts: Attempts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_beside: Callable[[], None], begun: str
) -> None:
    write = exchange.write

    def among_others(df: Any, output: Any, bare: Any) -> None:
        if begun == "before":
            write_beside()
        write(df, output, bare)
        if begun == "after":
            write_beside()

    monkeypatch.setattr(exchange, "write", among_others)
    vertex = {"id": "src", "sql": "SELECT 1 AS v UNION ALL SELECT 2", "inputs": {}}
    output = {"vertex": "src", "edge": "broadcast", "folder": str(tmp_path / "out")}
    assert attempts.run(vertex, outputs=[output])["outputs"]["src"]["rows"] == 2


def test_what_a_sink_has_is_counted_though_others_write(
    attempts: Attempts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_beside: Callable[[], None]
) -> None:
    write_sink = exchange.write_sink

    def before_others(df: Any, sink: Any, folder: str) -> None:
        write_sink(df, sink, folder)
        write_beside()

    monkeypatch.setattr(exchange, "write_sink", before_others)
    source = {"id": "src", "sql": "SELECT 1 AS v", "inputs": {}}
    sink = {"id": "out", "sink": {"format": "json", "path": str(tmp_path / "out"), "mode": "append"}, "inputs": chained("src")}
    output = {"vertex": "out", "edge": "sink", "folder": str(tmp_path / "staged"), "name": "n"}
    assert attempts.run(source, sink, outputs=[output])["outputs"]["out"]["rows"] == 1


def test_a_write_that_spark_has_forgotten_is_not_taken_for_another(
    attempts: Attempts, tmp_path: Path, write_beside: Callable[[], None]
) -> None:
    write_beside()
    assert exchange.written(attempts.spark, str(tmp_path / "elsewhere")) == (None, None)


def test_a_listener_that_is_slow_costs_the_counts_and_not_the_attempt(attempts: Attempts, tmp_path: Path) -> None:
    """Spark's wait for its listeners ends with a TimeoutException after ten seconds: here at once."""
    jvm = attempts.spark.sparkContext._jvm

    class Late:
        def __getattr__(self, name: str) -> Any:
            return self

        def __call__(self) -> Any:
            return self

        def waitUntilEmpty(self) -> None:  # noqa: N802
            concurrent = jvm.java.util.concurrent
            concurrent.CompletableFuture().get(1, concurrent.TimeUnit.MILLISECONDS)

    assert exchange.written(Late(), str(tmp_path)) == (None, None)
