"""`millrace rescale`: what it takes and prints."""

from __future__ import annotations

import contextlib
import json

import pytest
from typer.testing import CliRunner

from millrace.cli.app import app
from millrace.cli.tables import rescaled_line
from millrace.core.messages.execution import JobDetail
from tests.web.rescaled import WHY, Rescaling


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Rescaling:
    client = Rescaling()
    monkeypatch.setattr("millrace.cli.rescale.connected", lambda stack: contextlib.nullcontext(client))
    return client


def table(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_without_a_number_it_prints_what_there_is(client: Rescaling) -> None:
    done = CliRunner().invoke(app, ["rescale", "j"])
    assert (done.exit_code, client.rescaled, done.stderr) == (0, [], "")
    assert table(done.stdout) == [
        "vertex parallelism at most as why not more", "a 2 128", "b 1 128 b", "c 1 128 b", f"app 1 1 {WHY}",
    ]  # fmt: skip
    assert json.loads(CliRunner().invoke(app, ["rescale", "j", "--json"]).stdout)["vertices"][1]["group"] == "b"


def test_numbers_of_all_and_of_some(client: Rescaling) -> None:
    done = CliRunner().invoke(app, ["rescale", "j", "--parallelism", "4", "-p", "b=2", "-p", "c=2"])
    assert (done.exit_code, client.rescaled) == (0, [("j", 4, {"b": 2, "c": 2})])
    assert table(done.stdout)[1] == "a 2 (new) 128"
    assert done.stderr == "job j is rescaled: 1 vertex has another parallelism\n"
    same = CliRunner().invoke(app, ["rescale", "j", "-p", "a=2"])
    assert same.stderr == "job j has these numbers already: nothing changes\n"
    told = json.loads(CliRunner().invoke(app, ["rescale", "j", "-p", "3", "--json"]).stdout)
    assert (told["job"], told["changed"]) == ("j", {"a": 3})


@pytest.mark.parametrize("wrong", ["0", "", "x", "-1", "1.5", "=2", "a=", "a=x", "²", "01", "9" * 30])
def test_what_is_no_number_is_refused_before_anything_is_sent(client: Rescaling, wrong: str) -> None:
    done = CliRunner().invoke(app, ["rescale", "j", "--parallelism", wrong])
    assert (done.exit_code, client.rescaled) == (2, []), done.output


def test_show_has_what_was_changed_and_what_is_about_to() -> None:
    job = {"job": "j", "name": "n", "acceptance": "a", "status": "RUNNING", "accepted_ms": 1, "since_ms": 1}
    assert rescaled_line(None) == rescaled_line(JobDetail(**job)) == ""
    assert rescaled_line(JobDetail(**job, rescaled={"a": 2, "b": 3})) == "a 2, b 3"
    assert rescaled_line(JobDetail(**job, rescaled={"a": 2}, rescaling={"b": 3})) == "a 2; when what runs is canceled: b 3"
