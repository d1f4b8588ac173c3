"""Results and reports of attempts: what is kept, what is passed on, and what user code wrote itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from millrace.core.faults import fault
from millrace.core.messages.records import Fact, decode, encode
from services.task_manager.ports.keeping import RESULT_BYTES_MAX
from tests.task_manager.of_ports import ATTEMPT, World, ended


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_large_result_goes_to_storage(world: World) -> None:
    rows = [[n, "x" * 30] for n in range(1000)]
    result = {"columns": ["n", "x"], "types": ["int", "string"], "rows": rows, "truncated": True}
    assert len(json.dumps(result)) > RESULT_BYTES_MAX
    world.launch()
    world.go()
    world.slot.start()
    world.slot.end("finished", report={"outputs": {}, "result": result})
    path = f"results/ac/{ATTEMPT}/result.json"
    kept = {"columns": ["n", "x"], "types": ["int", "string"], "truncated": True, "path": path}
    assert world.told()[1:] == [ended("finished", report={"outputs": {}, "result": kept})]
    assert json.loads(world.storage.get(path)) == result


def test_a_result_that_cannot_be_stored_fails_the_attempt(world: World) -> None:
    world.launch()
    world.go()
    world.slot.start()
    (world.folder / "storage" / "results").write_text("a file where a folder is needed")
    world.slot.end("finished", report={"result": {"columns": ["x"], "types": ["string"], "rows": [["x" * RESULT_BYTES_MAX]]}})
    (end,) = world.told()[1:]
    assert (end.status, end.report, end.error.kind) == ("failed", None, "infrastructure")
    assert "a file stands where a folder is needed" in end.error.message


def test_a_report_that_no_message_can_carry_fails_the_attempt(world: World) -> None:
    world.launch()
    world.go()
    world.slot.start()
    world.slot.end("finished", report={"outputs": {"v": {"schema": SCHEMA.replace("one", "x" * 800_000)}}})
    (end,) = world.told()[1:]
    message = "its schemas and lists of files take 800136 bytes; at most 700000 can be passed on"
    assert end.error == fault("user", message)


@pytest.mark.parametrize(
    "error", ["text", {"kind": "user"}, {"kind": "user", "retryable": True, "message": "x" * 200_000}, {
        "kind": "user", "retryable": True, "message": "m", "frame": {"deep": []}
    }],
)  # fmt: skip
def test_an_error_that_user_code_wrote_itself_harms_nobody(world: World, error: Any) -> None:
    world.launch()
    world.go()
    world.slot.start()
    world.slot.end("failed", error=error)
    (end,) = world.told()[1:]
    assert end.error == fault("user", "its process left an error that cannot be read")


SCHEMA = '{"type":"struct","fields":[{"name":"one","type":"int","nullable":false,"metadata":{}}]}'


def deep(levels: int) -> Any:
    return [] if levels == 0 else [deep(levels - 1)]


@pytest.mark.parametrize(
    "report", [
        [1], {"outputs": [1]}, {"outputs": {}}, {"outputs": {"v": {"rows": 1}}}, {"outputs": {"v": {"schema": 1}}},
        {"outputs": {"v": {"schema": "\udcff"}}}, {"outputs": {"v": {"schema": "{}"}}}, {"outputs": {"v": {"schema": '{"fields": [1]}'}}},
        {"outputs": {"v": {"schema": SCHEMA.replace('"int"', '{"type":' * 300 + "1" + "}" * 300)}}},
        {"outputs": {"v": {"schema": SCHEMA}}, "result": {"rows": []}},
        {"outputs": {"v": {"schema": SCHEMA}}, "result": {"columns": [], "types": [], "rows": [deep(200)]}},
        {"outputs": {"v": {"schema": SCHEMA}}, "pinned": [], "key_types": {}},
        {"outputs": {"v": {"schema": SCHEMA}}, "pinned": {}, "key_types": {"v": 1}},
    ],
)  # fmt: skip
def test_a_report_that_user_code_wrote_itself_harms_nobody(world: World, report: Any) -> None:
    """A JobMaster relies on its shape, and no record is read that is too deep."""
    world.launch(outputs=[{"vertex": "v", "edge": "hash"}, {"vertex": "out", "edge": "sink"}])
    world.go()
    world.slot.start()
    world.slot.end("finished", report=report)
    (end,) = world.told()[1:]
    assert (end.status, end.report, end.error.kind, end.error.retryable) == ("failed", None, "user", False)
    assert end.error.message.startswith("its process left a report that cannot be read: ")
    assert decode(encode(Fact(body=end))) == Fact(body=end)
