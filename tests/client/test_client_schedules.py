"""Schedules against a real control plane, by the command line and the library: what docs/schedules.md says is what one sees."""

from __future__ import annotations

import json
import re
import time
from datetime import datetime, timezone
from pathlib import Path

import pytest
import yaml

from millrace.client import Invalid, Millrace, NotFound, Refused, new_id
from tests.client.cluster import ControlPlane
from tests.client.test_cli_jobs import run
from tests.contract.conftest import eventually

TEXT = (Path(__file__).parents[2] / "docs" / "schedules.md").read_text()
HOUR_MS = 3_600_000


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """The one of the how-to."""
    [block] = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    path = tmp_path / "daily.yaml"
    path.write_text(block)
    return path


def test_a_schedule_by_the_command_line(plane: ControlPlane, millrace: Millrace, graph: Path) -> None:
    [command] = re.findall(r"^    \$ millrace (schedule set daily .*)$", TEXT, re.MULTILINE)
    words = [each.strip('"') for each in re.findall(r'"[^"]*"|\S+', command.replace("daily.yaml", str(graph)))]
    first, *rest = run(plane, *words)[0].splitlines()
    assert re.fullmatch(r"next      \d{4}-\d\d-\d\d 03:00 Europe/Berlin", first) and len(rest) == 4
    assert "daily" in run(plane, "schedule", "list")[0]
    job = run(plane, "schedule", "run", "daily")[0].strip()
    assert re.fullmatch(r"daily-[0-9a-f]{8}", job)
    assert "schedule  daily, asked for by hand\n" in run(plane, "show", job)[0]
    shown = run(plane, "schedule", "show", "daily")[0]
    assert "cron      0 3 * * * (Europe/Berlin)" in shown and re.search(rf"by hand +{job} +\w+ ", shown)
    assert "resume daily" in run(plane, "schedule", "pause", "daily")[0]
    [listed] = [each for each in json.loads(run(plane, "schedule", "list", "--json")[0]) if each["schedule"] == "daily"]
    assert (listed["paused"], listed["next"], listed["time_zone"]) == (True, [], "Europe/Berlin")
    assert run(plane, "schedule", "resume", "daily")[0].startswith("next      ")
    assert run(plane, "schedule", "remove", "daily")[0] == "schedule daily is removed\n"
    assert run(plane, "schedule", "show", "daily", code=1)[1] == "millrace: there is no schedule daily\n"
    millrace.cancel(job)


def test_what_is_wrong_is_said_before_anything_is_kept(plane: ControlPlane, graph: Path) -> None:
    _, err = run(plane, "schedule", "set", "wrong", graph, "--cron", "0 25 * * *", "--time-zone", "Europe/Belin", code=2)
    assert "time_zone: 'Europe/Belin' is no time zone (did you mean Europe/Berlin?)" in err and "bad hour" in err
    graph.write_text(graph.read_text().replace("SELECT", "SELEKT"))
    assert "daily.yaml" in run(plane, "schedule", "set", "wrong", graph, "--cron", "@daily", code=2)[1]
    assert run(plane, "schedule", "remove", "wrong", code=1)[1] == "millrace: there is no schedule wrong\n"


def test_missed_times_are_made_up_for_one_after_the_other_and_each_once(plane: ControlPlane, millrace: Millrace, graph: Path) -> None:
    """The Dispatcher is killed in between."""
    now_ms = time.time_ns() // 1_000_000
    name, hours = new_id("hourly"), [now_ms - now_ms % HOUR_MS - number * HOUR_MS for number in (1, 0)]
    raw = yaml.safe_load(graph.read_text())
    millrace.set_schedule(name, raw, "@hourly", missed="all", overlap="wait", since_ms=hours[0] - 1)
    jobs = [f"{name}-{datetime.fromtimestamp(each / 1000, timezone.utc):%Y%m%dT%H%MZ}" for each in hours]
    eventually(lambda: _is_there(millrace, jobs[0]), "the first is accepted")
    plane.children["dispatcher"].popen.kill()
    plane.children["dispatcher"].popen.wait(20)
    plane.start("dispatcher")
    due = millrace.status(jobs[0]).scheduled
    assert due is not None and due.due == f"{datetime.fromtimestamp(hours[0] / 1000, timezone.utc):%Y-%m-%dT%H:00:00+00:00}"
    assert not _is_there(millrace, jobs[1]), "one runs at a time"
    waits = eventually(lambda: (told := millrace.schedule(name)).schedule.due_job == jobs[1] and told, "the next one waits")
    assert waits.schedule.last_job == jobs[0]
    assert f"it waits for the end of {jobs[0]}" in run(plane, "schedule", "show", name)[0]
    millrace.cancel(jobs[0])
    eventually(lambda: _is_there(millrace, jobs[1]), "the second is accepted")
    assert f"schedule  {name}, for " in run(plane, "show", jobs[1])[0]
    millrace.cancel(jobs[1])
    millrace.wait(jobs[1])
    found = eventually(lambda: (told := millrace.schedule(name)).schedule.due is None and told, "that its start is noted")
    assert [each.job for each in found.runs if each.job] == jobs[::-1]
    assert [json.loads(line)["type"] for line in run(plane, "events", jobs[0], "--json")[0].splitlines()].count("JobAccepted") == 1
    assert millrace.list(name="daily report").total >= 2
    millrace.remove_schedule(name)


def _is_there(millrace: Millrace, job: str) -> bool:
    try:
        return bool(millrace.status(job))
    except NotFound:
        return False


def test_the_library_says_what_it_is(millrace: Millrace) -> None:
    raw = {"name": "n", "vertices": {"v": {"sql": "SELECT 1"}}}
    with pytest.raises(Invalid, match="'a b' is no name of a schedule: it begins with"):
        millrace.set_schedule("a b", raw, "@daily")
    with pytest.raises(Invalid, match="missed: "):
        millrace.set_schedule("a", raw, "@daily", missed="some")
    with pytest.raises(Invalid, match="'a b' is no name of a schedule"):
        millrace.run_schedule("a b")
    with pytest.raises(NotFound, match="there is no schedule nobody"):
        millrace.run_schedule("nobody")
    with pytest.raises(Refused):
        millrace.pause_schedule("nobody")
    name = new_id("python")
    try:
        made = millrace.set_schedule(name, raw, "0 0 1 1 *", "Asia/Kathmandu", uploads={}, paused=True)
        assert (made.paused, made.next) == (True, []) and name in [each.schedule for each in millrace.schedules()]
        assert millrace.pause_schedule(name, undo=True).next[0].endswith("-01-01T00:00:00+05:45")
    finally:
        millrace.remove_schedule(name)
