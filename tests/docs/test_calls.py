"""Every call of the original runtime has what carries it, or a reason; and what docs/calls.md names is there."""

from __future__ import annotations

import re
from functools import cache

import pytest
import typer

from deploy.cli.app import app
from millrace.core.messages import base, links
from millrace.core.messages.records import Forked, Hello
from millrace.core.messages.requests import REPLIES, REQUESTS
from services.web.access.roles import FLINK, TABLE

from .call_rows import ABSENT, CALLS, NAMES, WANTED
from .calls import SIMULATED, Absent, Call, handlers_of
from .references import ROOT, resolve, source, wrong
from .sentences import too_long

MESSAGES = {body.__name__: body for body in (*REQUESTS, *REPLIES, *links.BODIES, Hello, Forked)}
ROWS = [(component, call) for component, calls in CALLS.items() for call in calls]
MISSING = [(component, each) for component, absent in ABSENT.items() for each in absent]


def commands(group: typer.Typer, above: str = "") -> set[str]:
    """As they are typed, but for the program's name."""
    own = {above + (each.name or getattr(each.callback, "__name__", "")) for each in group.registered_commands}
    below = ((each.typer_instance, each.name or getattr(each.typer_instance, "info", each).name) for each in group.registered_groups)
    return own.union(*(commands(inner, f"{above}{name} ") for inner, name in below if inner is not None))


COMMANDS = commands(app)
ROUTES = {" ".join(line.split()[1:]) for line in (TABLE + FLINK).split("\n") if line}


def name_of(call: str) -> str:
    return re.split(r"[:,]", call)[0]


@pytest.mark.parametrize(("component", "call"), ROWS, ids=lambda each: each.name if isinstance(each, Call) else each)
def test_a_row_has_no_hole_and_names_what_there_is(component: str, call: Call) -> None:
    assert bool(call.messages) != bool(call.done_by and call.scenario), "a message leads to its handler and scenario by itself"
    assert call.handlers and call.tests and call.cli and call.rest and all(call.scenarios)
    unhandled = [body.__name__ for body in call.messages if not issubclass(body, base.Reply) and not list(handlers_of(body))]
    assert unhandled == [], "no machine handles it"
    assert wrong(" ".join(f"`{each}`" for each in (*call.handlers, *call.tests, *call.scenarios))) == []
    assert all(re.fullmatch(r"test_\w+\.py:test_\w+", each) for each in call.tests)
    assert call.cli.startswith("none: ") or set(call.cli.split(", ")) <= COMMANDS
    assert call.rest.startswith("none: ") or set(call.rest.split(", ")) <= ROUTES


@cache
def _with_builders(path: str) -> str:
    """A file of tests, with the builders that it imports."""
    file = resolve(path)
    assert file is not None
    text = file.read_text()
    imported = [ROOT / f"{name.replace('.', '/')}.py" for name in re.findall(r"^from (tests\.\S+) import", text, re.MULTILINE)]
    return "\n".join([text, *(each.read_text() for each in imported if each.is_file())])


@pytest.mark.parametrize(("component", "call"), [row for row in ROWS if row[1].messages], ids=lambda each: getattr(each, "name", each))
def test_a_test_of_a_row_is_about_one_of_its_messages(component: str, call: Call) -> None:
    names = "|".join(body.__name__ for body in call.messages)
    assert any(re.search(rf"\b({names})\b", _with_builders(place.partition(":")[0])) for place in call.tests)


@pytest.mark.parametrize("component", WANTED)
def test_each_call_of_the_original_has_a_row_or_a_reason(component: str) -> None:
    absent = (part for each in ABSENT[component] for part in each.call.split(", "))
    there = [name_of(name) for name in (*(call.name for call in CALLS[component]), *absent)]
    assert [name for name in WANTED[component].split() if name not in there] == []


def test_each_message_that_a_call_of_the_original_makes_is_there_or_has_a_reason() -> None:
    there = {*MESSAGES, *(absent.name for _, absent in MISSING)}
    assert [name for name in NAMES.split() if name not in there] == []


def test_the_lists_of_calls_are_whole() -> None:
    assert {component: len(set(names.split())) for component, names in WANTED.items()} == {
        "Dispatcher": 16, "ResourceManager": 15, "SlotManager": 15, "JobMaster": 15, "TaskManager": 10,
    }  # fmt: skip


def test_each_message_has_a_row() -> None:
    """A new message is shown here, too, with its test and scenario: a row in tests/docs/call_rows.py."""
    shown = {body for _, call in ROWS for body in call.messages}
    assert [name for name, body in MESSAGES.items() if body not in shown] == []


@pytest.mark.parametrize(("component", "absent"), MISSING, ids=lambda each: getattr(each, "name", each))
def test_what_is_absent_has_a_reason_and_has_not_come_meanwhile(component: str, absent: Absent) -> None:
    assert absent.why.startswith(("not there yet", "none: ", "as above"))
    assert absent.name not in MESSAGES, f"it has come: give {absent.call} a row"


def test_a_message_that_no_transcript_shows_is_asserted_by_the_test_that_is_named() -> None:
    for body, place in SIMULATED.items():
        path, _, symbol = place.partition(":")
        file = resolve(path)
        assert file is not None and re.search(rf"\b{body.__name__}\b", source(file, symbol)), f"{place} asserts no {body.__name__}"


def test_sentences_of_reasons_are_short() -> None:
    shown = (text for _, call in ROWS for text in (call.cli, call.rest))
    assert too_long("\n\n".join([*(absent.why for _, absent in MISSING), *shown])) == []
