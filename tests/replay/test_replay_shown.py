"""What the commands tell of a recorded run: stories with their causes, states in part, what changed and by what, records."""

from __future__ import annotations

import datetime
import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deploy.cli.replay import place
from deploy.cli.replay_shown import Filter, _leaf
from millrace.core.clocks import NowMs
from millrace.core.machine import Configured, Envelope
from millrace.core.topics import DISPATCHER, Topology
from services.replay.core.recorded import BadLog, Log, Recorded, title
from services.replay.core.story import Scan, Story, compose
from services.replay.core.trees import MISSING, differences, part, planted, state_hash, tree
from services.replay.machines import fold_of
from services.replay.replaying import At, changes, open_file, state_at, story_of
from tests.replay.conftest import silent
from tests.replay.test_replay_recording import run


@pytest.fixture(scope="module")
def told(recording: Path) -> Story:
    """The story of the job that was being deployed when the leader died."""
    found = story_of(open_file(recording), "wide", silent)
    assert found is not None
    return found


def causes(story: Story) -> dict[str, str]:
    """Type of a step -> type of the step that led to it, of the first of each."""
    found: dict[str, str] = {}
    for step in story.steps:
        if isinstance(step.because, int):
            found.setdefault(step.type, story.steps[step.because - 1].type)
    return found


def test_a_story_tells_what_led_to_what_from_the_submission_to_the_end(told: Story) -> None:
    assert (told.status, told.steps[0].type, told.steps[0].place) == ("FINISHED", "SubmitJob", "client.commands[0]@0")
    known = causes(told)
    expected = {
        "SubmitJob": "SubmitJob", "JobGraphStored": "SubmitJob", "StartJob": "JobGraphStored", "JobMasterStarted": "StartJob",
        "RequestSlots": "StartJob", "AllocateSlot": "RequestSlots", "DeployTasks": "OfferSlots", "JobEnded": "TaskStateChanged",
        "JobResultStored": "JobEnded", "JobRetired": "JobResultStored", "JobFinished": "JobResultStored",
    }  # fmt: skip
    assert {name: known.get(name) for name in expected} == expected
    for step in told.steps:
        assert not isinstance(step.because, int) or step.because < step.number
        assert step.since_ms >= 0 and step.gap_ms >= 0
    assert told.took_ms == next(step.since_ms for step in told.steps if step.type == "JobFinished")


def record(topic: str, offset: int, stamp_ms: int, value: dict[str, Any]) -> Recorded:
    return Recorded(topic, 0, offset, stamp_ms, "", json.dumps(value).encode())


def test_what_is_asked_about_a_job_later_is_no_part_of_its_story() -> None:
    asked = {"type": "DescribeJob", "job": "j"}
    retired = {"record": "Message", "sender": "dispatcher", "key": [7], "body": {"type": "JobRetired", "job": "j"}}
    found = [
        record("client.commands", 0, 1_000, {"type": "SubmitJob", "job": "j"}),
        record("job.events", 0, 1_005, {"type": "JobAccepted", "job": "j"}),
        record("job.events", 1, 1_500, {"type": "JobFinished", "job": "j"}),
        record("client.commands", 1, 9_000, asked),
        record("job-master.commands", 7, 1_600, retired),
    ]
    scan = Scan("j")
    story = compose("j", [each for each in found if scan.take(each)])
    assert story is not None and (story.status, story.took_ms) == ("FINISHED", 500)
    assert [step.type for step in story.steps] == ["SubmitJob", "JobAccepted", "JobFinished", "JobRetired"]
    assert not scan.take(record("dispatcher.commands", 3, 9_001, {"record": "Client", "offset": 1, "request": asked}))
    looked = {"record": "Outcome", "effect": "1.3.0", "result": {"type": "JobFound", "job": "j", "stands": None}}
    assert not scan.take(record("dispatcher.commands", 4, 9_002, looked))


def test_what_is_about_any_of_its_allocations_is_of_its_story() -> None:
    scan, given = Scan("j"), [{"slot": 0, "allocation": "1.5.0"}, {"slot": 1, "allocation": "1.5.1"}]
    allocate = {"type": "AllocateSlots", "job": "j", "shard": 0, "slots": given}
    assert scan.take(record("task-manager.commands", 0, 1_000, {"record": "Message", "body": allocate}))
    freed = [{"record": "Message", "body": {"type": "SlotFreed", "slot": 1, "allocation": f"1.5.{n}"}} for n in range(3)]
    assert [scan.take(record("resource-manager.commands", 1, 1_001, each)) for each in freed] == [True, True, False]


def test_a_job_that_nobody_accepted_is_not_said_to_go_on() -> None:
    refused = [record("client.commands", 0, 1_000, {"type": "SubmitJob", "job": "j"})]
    stored = {"record": "Outcome", "effect": "1.0.0", "result": {"type": "JobGraphStored", "job": "j", "stands": {}}}
    for more, status in (([], "not accepted"), ([record("dispatcher.commands", 1, 1_001, stored)], "not ended")):
        story = compose("j", refused + more)
        assert story is not None and story.status == status


def test_a_folder_is_no_file_of_a_journal(tmp_path: Path) -> None:
    (tmp_path / "3.0.jsonl").write_text("")
    shown = run("show", "--file", tmp_path)
    assert shown.exit_code == 2
    assert f"{tmp_path} is a folder: " in shown.stderr and "of a TaskManager's journal, such as 3.0.jsonl" in shown.stderr


def test_a_story_shows_who_took_over_and_every_attempt_once(told: Story) -> None:
    elected = [step for step in told.steps if step.type == "Elected"]
    assert [step.scope for step in elected] == ["job-master/0"]
    told_of = next(step for step in told.steps if "state DEPLOYING" in step.detail)
    assert told_of.number < elected[0].number
    assert sum("(said again)" in step.detail for step in told.steps) >= 3
    finished = [step.detail for step in told.steps if step.type == "AttemptStateChanged" and "state FINISHED" in step.detail]
    assert len(finished) == len(set(finished)) == told.attempts
    assert all("late" not in step.detail and "single" not in step.detail for step in told.steps)


def test_a_story_is_printed_and_is_json(recording: Path, told: Story) -> None:
    shown = run("story", "wide", "--file", recording).stdout.splitlines()
    assert shown[0].startswith(f"job wide: FINISHED, {told.attempts} attempts, ")
    assert len(shown) == len(told.steps) + 2
    found = json.loads(run("story", "wide", "--file", recording, "--json").stdout)
    assert [step["place"] for step in found["steps"]] == [step.place for step in told.steps]


def test_a_state_at_a_place_is_the_fold_up_to_it(recording: Path) -> None:
    source = open_file(recording)
    end, tree = state_at(source, "dispatcher", At(), silent)
    assert sorted(tree["state"]["ended"]) == ["late", "single", "wide"] and tree["next_offset"] == end + 1
    stored = story_of(source, "single", silent)
    assert stored is not None
    (before,) = [step for step in stored.steps if step.type == "JobResultStored"]
    offset = int(before.place.partition("@")[2])
    for at in (At(offset - 1), At(offset)):
        reached, tree = state_at(source, "dispatcher", at, silent)
        assert reached == at.offset
        assert ("single" in tree["state"]["live"], "single" in tree["state"]["ended"]) == (at.offset < offset, at.offset == offset)
    reached, _ = state_at(source, "dispatcher", At(stamp_ms=before.stamp_ms), silent)
    assert reached >= offset
    shown = run("state", "dispatcher", "--file", recording, "--path", "state.ended.single.status", "--json")
    assert json.loads(shown.stdout) == {"scope": "dispatcher", "offset": end, "path": "state.ended.single.status", "state": "FINISHED"}
    assert "└── FINISHED" in run("state", "dispatcher", "--file", recording, "--path", "state.ended.single.status").stdout


def test_what_changed_is_told_with_the_records_that_changed_it(recording: Path) -> None:
    source = open_file(recording)
    story = story_of(source, "single", silent)
    assert story is not None
    (stored,) = [step for step in story.steps if step.type == "JobResultStored"]
    offset = int(stored.place.partition("@")[2])
    _, _, found = changes(source, "dispatcher", At(offset - 1), At(offset), "state", silent)
    by_path = {each.path: each for each in found}
    assert by_path["state.live.single"].after is MISSING and by_path["state.ended.single"].before is MISSING
    assert by_path["state.ended_counts.FINISHED"].after == by_path["state.ended_counts.FINISHED"].before + 1 if (
        by_path["state.ended_counts.FINISHED"].before is not MISSING
    ) else by_path["state.ended_counts.FINISHED"].after == 1
    assert {each.offset for change in found for each in change.records} == {offset}
    _, _, found = changes(source, "dispatcher", At(0), At(), "state.ended.single", silent)
    assert [(each.path, each.records[0].offset) for each in found] == [("state.ended.single", offset)]
    _, _, found = changes(source, "dispatcher", At(0), At(), "state.ended.single.status", silent)
    [change] = found  # below what is new as a whole
    assert (change.before, change.after, [each.offset for each in change.records]) == (MISSING, "FINISHED", [offset])
    _, _, found = changes(source, "dispatcher", At(offset - 1), At(offset), "state.live.single.graph", silent)
    assert [each.after for each in found] == [MISSING], "and below what is gone"
    shown = run("diff", "dispatcher", offset - 1, offset, "--file", recording, "--path", "state.live.nobody")
    assert shown.exit_code == 2 and "there is no 'nobody' here" in shown.stderr
    shown = json.loads(run("diff", "dispatcher", offset - 1, offset, "--file", recording, "--json").stdout)
    assert {each["path"] for each in shown["changes"]} == set(by_path)
    text = run("diff", "dispatcher", offset - 1, offset, "--file", recording).stdout
    assert f"offset {offset} JobResultStored" in text


def test_records_are_shown_by_scope_job_type_time_and_offset(recording: Path) -> None:
    def shown(*words: object) -> list[dict[str, Any]]:
        return [json.loads(line) for line in run("show", "--file", recording, "--json", *words).stdout.splitlines()]

    source = open_file(recording)
    everything = shown("--all")
    assert len(everything) == sum(log.end - log.first for log in source.logs())
    assert [each["stamp_ms"] for each in everything] == sorted(each["stamp_ms"] for each in everything)
    inbox = shown("--all", "--scope", "job-master/0")
    assert [each["offset"] for each in inbox] == list(range(len(inbox)))
    assert shown("--all", "--scope", "job-master/0", "--from", 10, "--to", 12) == inbox[10:13]
    late = [each for each in inbox if each["stamp_ms"] >= inbox[30]["stamp_ms"]]
    assert shown("--all", "--scope", "job-master/0", "-n", 3) == inbox[-3:]
    assert shown("--scope", "job-master/0", "--type", "Elected,Tick") == [
        each for each in inbox if each["value"]["record"] in ("Elected", "Tick")
    ]
    assert len(late) > 1
    assert {each["value"]["job"] for each in shown("--job", "single", "--scope", "job.events")} == {"single"}
    assert run("show", "--file", recording, "--scope", "nothing").exit_code == 2
    lines = run("show", "--file", recording, "--scope", "client.commands").stdout.splitlines()
    assert [line.split()[2:4] for line in lines[:2]] == [["client.commands[0]@0", "SubmitJob"], ["client.commands[0]@1", "SubmitJob"]]


def test_what_is_asked_in_vain_is_said(recording: Path, tmp_path: Path) -> None:
    shown = run("show", "--file", recording, "--scope", "dispatcher", "--from", 999_999)
    end = At().last(open_file(recording), next(log for log in open_file(recording).logs() if log.topic == "dispatcher.commands"))
    assert (shown.exit_code, shown.stdout) == (0, "")
    assert shown.stderr == f"no record is such; dispatcher.commands[0] has offsets 0 to {end}\n"
    assert run("show", "--file", recording, "--job", "nobody").stdout == "", "who was elected is no news of a job that is not there"
    for words in (("story", "nobody"), ("export", tmp_path / "nobody.zip", "--job", "nobody")):
        shown = run(*words, "--file", recording)
        assert (shown.exit_code, shown.stderr.splitlines()[-1][:41]) == (1, "millrace: no record names a job 'nobody':")
    assert not list(tmp_path.iterdir())
    for more in (("--file", recording), ("--to", 5)):
        shown = run("show", "--follow", *more)
        assert shown.exit_code == 2 and "--follow" in shown.stderr
    shown = run("state", "dispatcher", "--file", recording, "--at", "2099-01-01", "--path", "epoch")
    assert shown.exit_code == 0 and "note: it has no later record than that, which is of " in shown.stderr
    assert run("state", "dispatcher", "--file", recording, "--at", end, "--path", "epoch").stderr == ""


def test_a_time_of_day_is_the_last_such_one_in_the_file(recording: Path) -> None:
    source = open_file(recording)
    newest = datetime.datetime.fromtimestamp(source.newest_ms() / 1000, datetime.timezone.utc).astimezone()

    def offset_at(text: str) -> int:
        return int(json.loads(run("state", "dispatcher", "--file", recording, "--json", "--at", text).stdout)["offset"])

    for back_s in (0, 1):  # a run of seconds, of a day long ago
        moment = newest - datetime.timedelta(seconds=back_s)
        assert offset_at(moment.time().isoformat()) == offset_at(moment.replace(tzinfo=None).isoformat())
    later = (newest + datetime.timedelta(seconds=1)).time().isoformat()
    shown = run("state", "dispatcher", "--file", recording, "--at", later)
    assert (shown.exit_code, "has no record up to there" in shown.stderr) == (2, True), "it was that late the day before"


def test_a_time_of_day_of_another_zone_is_of_that_zones_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC+5")  # behind it
    time.tzset()
    try:
        newest = datetime.datetime(2026, 1, 31, 1, 0, tzinfo=datetime.timezone.utc)
        shortly_before = newest - datetime.timedelta(minutes=30)
        source: Any = SimpleNamespace(newest_ms=lambda: int(newest.timestamp() * 1000))
        assert place("00:30:00Z", source) == place("19:30", source) == At(stamp_ms=int(shortly_before.timestamp() * 1000))
    finally:
        monkeypatch.undo()
        time.tzset()


def test_tables_of_the_web_service_are_no_step_of_a_story(recording: Path) -> None:
    class WithTables:
        """The recording, as it is where the web service runs: it writes its rows, which name the jobs."""

        def __init__(self, source: Any) -> None:
            self.source = source

        def __getattr__(self, name: str) -> Any:
            return getattr(self.source, name)

        def logs(self) -> list[Log]:
            return [*(log for log in self.source.logs() if log.topic != "web.jobs"), Log("web.jobs", 0, "id", 0, 1)]

        def scan(self, logs: Any, words: Any) -> Any:
            yield from self.source.scan([log for log in logs if log.topic != "web.jobs"], words)
            if any(log.topic == "web.jobs" for log in logs):
                yield Recorded("web.jobs", 0, 0, 1, '"wide"', b'{"job":"wide","status":"RUNNING"}')

    with_tables = story_of(WithTables(open_file(recording)), "wide", silent)
    assert with_tables == story_of(open_file(recording), "wide", silent)
    shown = Filter(WithTables(open_file(recording)), None, None, None, None, None, False)
    assert {log.topic for log in shown.logs} & {"web.jobs", "web.cluster"} == set()
    named = Filter(WithTables(open_file(recording)), "web.jobs", None, None, None, None, False)
    assert [log.topic for log in named.logs] == ["web.jobs"]


def test_the_title_of_a_record_is_what_it_is_about() -> None:
    def of(value: object, id: str = "") -> tuple[str, ...]:
        return tuple(title(Recorded("t", 0, 1, 2, "k", json.dumps(value).encode(), id)))

    body = {"type": "DeployTasks", "version": 1, "tasks": [{"attempt": "a/0-x/0/1.1", "allocation": "1.2.3"}]}
    assert of({"record": "Message", "sender": "job-master/0", "body": body}) == (
        "DeployTasks", "attempt a/0-x/0/1.1", "job-master/0", "a",
    )  # fmt: skip
    result = {"type": "JobGraphStored", "job": "a", "stands": {"state": "accepted", "shard": 0}}
    assert of({"record": "Outcome", "effect": "1.5.0", "result": result}) == (
        "JobGraphStored", "of effect 1.5.0 state accepted shard 0", "", "a",
    )  # fmt: skip
    assert of({"type": "JobFinished", "job": "a"}, "dispatcher/1/7") == ("JobFinished", "", "dispatcher", "a")
    assert of({"type": "\x1b[2J\ud800", "reason": "\n"})[:2] == ("\\x1b[2J\\ud800", "reason \\n")
    assert title(Recorded("t", 0, 1, 2, "k", b'{"a":' * 100_000)).type == "(no JSON object)"
    assert of({"job": "a", "status": "RUNNING"}) == ("(no type)", "status RUNNING", "", "a")
    assert of({"type": "DeadLetterRedriven", "letter": 3, "by": "me@host"})[1] == "letter 3 by me@host"
    assert of({"type": "CancelTasks", "attempts": [], "reason": "no", "within_ms": 2_000})[1] == "reason no within_ms 2000"
    assert _leaf("SELECT '\x1b[31m'") == "SELECT '\\x1b[31m'"
    assert of([1]) == ("(no JSON object)", "3 bytes", "", None)
    refused = {"record": "Client", "offset": 4, "partition": 0, "refusal": {"reason": "no JSON"}}
    assert of(refused) == ("Client", "no request, client.commands[0]@4: no JSON", "", None)


def test_trees_differ_at_their_deepest_places() -> None:
    before = {"a": {"x": 1, "y": [1, 2]}, "gone": {"z": 1}}
    after = {"a": {"x": 2, "y": [1, 2]}, "new": None}
    assert list(differences(before, after)) == [
        (("a", "x"), 1, 2), (("gone",), {"z": 1}, MISSING), (("new",), MISSING, None),
    ]  # fmt: skip
    rows, changed = [{"x": 1}, {"x": 2}], [{"x": 1}, {"x": 3}]
    assert list(differences(rows, changed)) == [(("1", "x"), 2, 3)]
    assert list(differences(rows, rows[:1])) == [((), rows, rows[:1])]
    assert list(differences({"a": 1}, {"a": True})) == [(("a",), 1, True)]


def test_a_path_may_go_through_names_with_dots() -> None:
    tree = {"jobs": {"a.b": {"c": [{"d": 1}]}, "a": 2}}
    assert part(tree, "jobs.a.b.c.0.d") == 1 and part(tree, "jobs.a") == 2 and part(tree, "") is tree
    with pytest.raises(BadLog, match=r"there is no 'x' here; there is: a.b, a"):
        part(tree, "jobs.x")


def test_a_tree_holds_what_a_snapshot_holds() -> None:
    """A field that the machine sets beside the state was in the tree, so that equal states had other hashes."""
    fold = fold_of(DISPATCHER, Topology())
    folded = fold.blank(1, 0)
    before = state_hash(fold.machine, folded)
    for _ in fold.machine.handle(folded.state, Envelope("", 0, NowMs(1), "1.0", Configured({}))):
        pass
    assert folded.state.topology is not None
    assert "topology" not in tree(fold.machine, folded)["state"] and state_hash(fold.machine, folded) == before
    assert planted(fold.machine, tree(fold.machine, folded)) == folded
