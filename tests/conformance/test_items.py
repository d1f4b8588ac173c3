"""Each item has its tests, and each of these tests names its item."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.docs.references import resolve, wrong

from . import execution, masters
from .items import Item, Without

ITEMS = (
    *masters.DISPATCHER, *masters.LEADERSHIP, *masters.RESOURCES, *execution.JOB_MASTER, *execution.TASK_MANAGER, *execution.STORES,
    *execution.BETTER,
)  # fmt: skip
WITHOUT = (*masters.WITHOUT, *execution.WITHOUT)
HERE = Path(__file__).parent
GONE = re.compile(r"none: .|not there yet: .")


def docstrings() -> dict[str, str]:
    """Place -> docstring, of the tests in this folder but for these."""
    found = {}
    for file in sorted(HERE.glob("test_*.py")):
        if file.name != Path(__file__).name:
            for node in ast.parse(file.read_text()).body:
                if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                    found[f"{file.name}:{node.name}"] = ast.get_docstring(node) or ""
    return found


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: f"{item.flink}: {item.names}"[:80])
def test_an_item_has_tests_that_there_are(item: Item) -> None:
    assert item.here.endswith((".", "]")) and item.tests
    assert wrong(" ".join(f"`{each}`" for each in item.tests)) == []
    assert all(":test_" in each or each.startswith("tests/transcripts/") for each in item.tests)


def test_each_test_of_this_folder_shows_an_item_and_names_its_class() -> None:
    named = {place: [item for item in ITEMS if place in item.tests] for place in docstrings()}
    assert [place for place, items in named.items() if not items] == [], "no item has it: a row in masters.py or execution.py"
    strange = [
        place for place, text in docstrings().items()
        if not any(name in text for item in named[place] for name in re.split(r", | and ", item.flink))
    ]  # fmt: skip
    assert strange == [], "the docstring names no class of Flink's tests that its items name"


def test_what_has_no_test_has_a_reason() -> None:
    assert [each for each in WITHOUT if not GONE.match(each.why)] == []
    both = {(item.flink, name) for item in ITEMS for name in item.names.split(", ")} & {
        (each.flink, name) for each in WITHOUT for name in each.names.split(", ")
    }
    assert both == set(), "they have come"


def test_no_name_of_a_test_is_that_of_a_file_elsewhere() -> None:
    """Documents name a test by its file alone."""
    assert [file.name for file in sorted(HERE.glob("test_*.py")) if resolve(file.name) != file] == []


def test_items_are_of_both_kinds() -> None:
    assert len(ITEMS) >= 80 and isinstance(WITHOUT[0], Without)
