"""A recorded run folds again to the same states and the same words; what was changed in it is found, with its place."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from deploy.cli.replay import app
from millrace.core.fold import OutboxRecord
from millrace.core.topics import DISPATCHER, RESOURCE_MANAGER
from millrace.runtime.snapshots import freeze
from services.replay.core.checking import Check, Checked, Output
from services.replay.core.recorded import Recorded
from services.replay.exporting import export
from services.replay.machines import fold_of
from services.replay.replaying import At, Folder, open_file, state_at, story_of, verify
from tests.replay.conftest import Change, silent
from tests.replay.simulated import Simulated
from tests.simulation.cluster import Cluster

INBOX = "logs/job-master.commands/0"


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def lines(path: Path, part: str) -> list[list[str]]:
    """The records of a part, by their columns."""
    with zipfile.ZipFile(path) as read:
        return [line.split("\t", 4) for line in read.read(part).decode().splitlines()]


def test_a_recording_folds_to_the_states_and_words_of_the_run(cluster: Cluster, recording: Path) -> None:
    source = open_file(recording)
    report = verify(source, None, silent)
    assert report.difference is None
    assert [each.scope for each in report.scopes] == ["dispatcher", "resource-manager", "job-master/0"]
    assert all(each.ticks > 5 and len(each.found) > 20 and not each.uncovered for each in report.scopes)
    for name in cluster.world.topology.scopes():
        leader = cluster.leader(name)
        folder = Folder(source, name, silent)
        folder.to(At(leader.next_offset - 1))
        machine = fold_of(name, cluster.world.topology).machine
        assert freeze(machine, folder.folded) == freeze(machine, leader), name
    shown = run("verify", "--file", recording)
    assert shown.exit_code == 0 and shown.stdout.splitlines()[-1] == "0 differences"


def test_a_byte_of_a_decision_is_found_with_the_offset_that_led_to_it(recording: Path, change: Change) -> None:
    """What the ResourceManager said stands in the JobMaster's inbox, and in its own fold."""
    found = next(line for line in lines(recording, "logs/task-manager.commands/3") if '"type":"AllocateSlot"' in line[4])
    offset, said = json.loads(found[4])["key"][0], json.loads(found[4])["body"]["slot"]
    changed = change(recording, "logs/task-manager.commands/3", rf'(^{found[0]}\t.*"slot":)\d', rf"\g<1>{1 - said}")
    report = verify(open_file(changed), None, silent)
    assert report.difference is not None
    assert (report.difference[0].scope, report.difference[1].offset) == (RESOURCE_MANAGER, offset)
    shown = run("verify", "--file", changed)
    assert shown.exit_code == 1
    assert f"first difference: resource-manager, offset {offset}" in shown.stdout
    assert f"body.slot: was {1 - said}, is {said}" in shown.stdout
    assert re.search(rf"then: task-manager/\d@{found[0]}, AllocateSlot", shown.stdout)
    assert json.loads(run("verify", "--file", changed, "--json").stdout)["first_difference"]["offset"] == offset


def test_a_byte_of_what_was_decided_on_is_found_where_it_leads_to_other_words(recording: Path, change: Change) -> None:
    found = next(line for line in lines(recording, INBOX) if '"type":"StartJob"' in line[4] and '"job":"late"' in line[4])
    changed = change(recording, INBOX, rf'(^{found[0]}\t.*"cancel":)false', r"\g<1>true")
    (checked, difference) = verify(open_file(changed), None, silent).difference
    assert (checked.scope, difference.offset) == ("dispatcher", json.loads(found[4])["key"][0])
    (checked, difference) = verify(open_file(changed), "job-master/0", silent).difference
    assert (checked.scope, difference.offset) == ("job-master/0", int(found[0]))


def test_an_effect_that_nobody_hears_of_is_found_between_two_ticks(recording: Path, change: Change) -> None:
    """The digest of a graph goes into the effect that stores it, whose own digest the next tick carries."""
    inbox = "logs/dispatcher.commands/0"
    found = next(line for line in lines(recording, inbox) if '"record":"Client"' in line[4] and '"job":"late"' in line[4])
    changed = change(recording, inbox, rf'(^{found[0]}\t.*"digest":")[0-9a-f]', r"\g<1>x")
    (checked, difference) = verify(open_file(changed), "dispatcher", silent).difference
    assert checked.scope == DISPATCHER and difference.seq is None
    first, last = re.search(r"at offset (\d+) to (\d+)", difference.why[1]).groups()
    assert int(first) <= int(found[0]) <= int(last) < difference.offset
    assert f"now offset {found[0]} leads to" in " ".join(difference.why)


def test_a_word_that_is_missing_where_it_was_said_to_is_found(recording: Path, change: Change) -> None:
    events = next(name for name in zipfile.ZipFile(recording).namelist() if "job.events" in name and lines(recording, name))
    last = lines(recording, events)[-1]
    changed = change(recording, events, rf"^{last[0]}\t.*\n", "")
    (checked, difference) = verify(open_file(changed), None, silent).difference
    assert "does not stand in" in difference.why[0] and difference.seq == int(last[3].split("/")[-1])


def test_a_state_that_differs_from_when_it_was_exported_is_found(recording: Path, change: Change) -> None:
    changed = change(recording, "folded.json", r'"state":"....', '"state":"0000')
    (checked, difference) = verify(open_file(changed), None, silent).difference
    assert "had 0000" in difference.why[0]


def test_a_snapshot_that_is_not_the_fold_is_found(cluster: Cluster) -> None:
    source = Simulated(cluster)
    scope = source.facts.scope("job-master/0")
    folder = Folder(source, scope.name, silent)
    folder.to(At(40))
    folder.folded.state.settings.moves_most += 1
    source.snapshots = lambda asked: [41] if asked == scope else []
    source.snapshot = lambda asked, offset: folder.folded
    (checked, difference) = verify(source, None, silent).difference
    assert (checked.scope, difference.offset) == (scope.name, 40)
    assert difference.why[1] == "state.settings.moves_most: was 21, is 20"


def test_an_export_is_the_same_records_byte_for_byte(recording: Path, cluster: Cluster, tmp_path: Path) -> None:
    source, live = open_file(recording), Simulated(cluster)
    assert source.logs() == live.logs()
    for log in source.logs():
        assert list(source.read(log, log.first)) == list(live.read(log, log.first))
    again = tmp_path / "again.zip"
    assert run("export", again, "--file", recording).exit_code == 0
    assert again.read_bytes() == recording.read_bytes()
    assert run("export", again, "--file", recording).exit_code == 2


def test_what_is_redacted_folds_and_tells_no_payload(recording: Path, tmp_path: Path) -> None:
    path = tmp_path / "redacted.zip"
    shown = run("export", path, "--file", recording, "--redact")
    assert shown.exit_code == 0 and "note" not in shown.stdout
    with zipfile.ZipFile(path) as written:
        text = b"".join(written.read(name) for name in written.namelist()).decode()
    with zipfile.ZipFile(recording) as whole:
        assert b"SELECT" in whole.read(INBOX)
    assert "SELECT" not in text and "redacted:" in text
    shown = run("verify", "--file", path)
    assert shown.exit_code == 0, shown.stdout
    assert "payloads are redacted" in shown.stdout and "0 differences" in shown.stdout
    assert story_of(open_file(path), "wide", silent).status == "FINISHED"


def test_the_records_of_one_job_are_told_but_not_folded(recording: Path, tmp_path: Path) -> None:
    path = tmp_path / "wide.zip"
    assert run("export", path, "--file", recording, "--job", "wide").exit_code == 0
    assert story_of(open_file(path), "wide", silent) == story_of(open_file(recording), "wide", silent)
    assert story_of(open_file(path), "single", silent) is None
    last = max(each.stamp_ms for log in open_file(path).logs() for each in open_file(path).read(log, log.first))
    assert open_file(path).newest_ms() == last, "what a time of day is counted from"
    for words in (("verify",), ("state", "dispatcher"), ("diff", "dispatcher", "5")):
        shown = run(*words, "--file", path)
        assert shown.exit_code == 2 and "only the records about job wide" in shown.stderr
    assert run("import", path).exit_code == 2


def test_import_checks_and_copies(recording: Path, tmp_path: Path, change: Change) -> None:
    assert run("import", recording, "--to", tmp_path / "kept").exit_code == 0
    assert (tmp_path / "kept" / "run.zip").read_bytes() == recording.read_bytes()
    again = run("import", recording, "--to", tmp_path / "kept")
    assert (again.exit_code, again.stdout) == (2, "") and "is there already" in again.stderr
    shown = run("import", recording, "--to", tmp_path / "kept" / "run.zip")
    assert shown.exit_code == 2 and f"it cannot be copied to {tmp_path / 'kept' / 'run.zip'}" in shown.stderr
    changed = change(recording, "folded.json", r'"state":"....', '"state":"0000')
    assert run("import", changed, "--to", tmp_path / "none").exit_code == 1
    assert not (tmp_path / "none").exists()


def test_a_log_that_was_cut_below_is_folded_from_a_snapshot(cluster: Cluster, tmp_path: Path) -> None:
    """Its records below are gone, as below a snapshot's margin."""
    source = Simulated(cluster)
    scope = source.facts.scope("job-master/0")
    folder = Folder(source, scope.name, silent)
    folder.to(At(60))
    whole = state_at(source, scope.name, At(), silent)
    logs = source.logs()
    cut = [log if log.topic != scope.topic else type(log)(log.topic, 0, log.log_id, 50, log.end) for log in logs]
    source.logs = lambda: cut
    source.snapshots = lambda asked: [61] if asked == scope else []
    source.snapshot = lambda asked, offset: folder.folded
    path = tmp_path / "cut.zip"
    assert export(source, path, None, False, silent).unfolded == []
    found = open_file(path)
    assert state_at(found, scope.name, At(), silent) == whole
    report = verify(found, None, silent)
    assert report.difference is None and "do not reach back so far" in " ".join(report.notes)
    said = [each.id.rpartition("/") for log in found.logs() for each in found.read(log, 0)]
    n = sum(life == "job-master/0/1" and int(number) <= folder.folded.published_through for life, _, number in said)
    assert f"{n} records are not compared: they were said before the snapshots from which the folds begin" in report.notes
    shown = run("state", scope.name, "--at", 55, "--file", path)
    assert shown.exit_code == 2
    assert "starts too late: its records begin at offset 50" in shown.stderr and "replay state --at 61 or later" in shown.stderr


@pytest.mark.parametrize(
    ("part", "old", "new", "says"),
    [
        (INBOX, r"^40\t.*\n", "", "records between them are missing; the state up to offset 39 can be shown"),
        (INBOX, r'(^41\t.*)"record":"\w+"', r'\g<1>"record":"Vow"', "job-master/0@41 is of a kind or version that this build does not"),
        (INBOX, r"^(41\t[^{]*)\{.*$", r"\g<1>nothing", "job-master/0@41 is no record but 7 other bytes"),
        (INBOX, r"^41\t.*$", "41 what", "is no record: the file was changed by hand"),
        ("recording.json", r'("name":"job-master/0".*?"log_id":")', r"\g<1>x", "these are another cluster's records"),
        ("recording.json", r'"format":1', '"format":2', "this build reads format 1"),
        ("recording.json", r'"topology"', '"typology"', "is not whole"),
        ("recording.json", r"^\{", "", "is no file of replay export, or it is cut off or damaged"),
        ("recording.json", r"(?s)^.*$", "[1]", "is no file of replay export: its recording.json is no object"),
        ("recording.json", r'"parked":\{\}', '"parked":7', "is not whole"),
    ],
)  # fmt: skip
def test_bad_input_is_said_precisely(recording: Path, change: Change, part: str, old: str, new: str, says: str) -> None:
    shown = run("state", "job-master/0", "--file", change(recording, part, old, new))
    assert shown.exit_code == 2, shown.output
    assert says in shown.stderr and shown.stderr.count("\n") == 1


def test_another_build_is_told_and_a_difference_may_be_its_own(recording: Path, change: Change) -> None:
    changed = change(recording, INBOX, r'"build":"[^"]+"', '"build":"9.9"')
    note = "job-master/0 was led by build 9.9 from offset"
    assert note in " ".join(verify(open_file(changed), None, silent).notes)
    assert run("state", "job-master/0", "--file", changed).exit_code == 0
    digest = r'("record":"Tick".*"digest":")[0-9a-f]{4}'
    shown = run("state", "job-master/0", "--file", change(changed, INBOX, digest, r"\g<1>0000"))
    assert shown.exit_code == 1 and note in shown.stderr


def test_a_file_that_is_cut_off_or_flipped_is_told(recording: Path, tmp_path: Path) -> None:
    data, bad = recording.read_bytes(), tmp_path / "bad.zip"
    bad.write_bytes(data[:-100])
    assert "cut off or damaged" in run("verify", "--file", bad).stderr
    with zipfile.ZipFile(recording) as read:
        place = read.getinfo(INBOX).header_offset + 200
    bad.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    shown = run("verify", "--file", bad)
    assert shown.exit_code == 2 and f"{INBOX} is cut off or damaged" in shown.stderr
    assert run("verify", "--file", tmp_path / "none.zip").exit_code == 2


def test_what_is_asked_for_and_not_there_is_told(recording: Path) -> None:
    for words, says in (
        (("state", "task-manager/tm-1"), "job-master/0; a TaskManager's journal is a file: --file WORK/ID/journal/..."),
        (("state", "nobody"), "there is no scope 'nobody' here; there are: dispatcher, resource-manager, job-master/0"),
        (("state", "dispatcher", "--at", 99999), "there is no offset 99999 yet"),
        (("state", "dispatcher", "--at", "2000-01-01T00:00:00"), "has no record up to there"),
        (("state", "dispatcher", "--path", "state.jobs"), "there is no 'jobs' here; there is: settings, recovery, live"),
        (("state", "dispatcher", "--at", "soon"), "'soon' is no place"),
        (("diff", "dispatcher", "20", "10"), "name the earlier one first"),
        (("show", "--from", "20"), "an offset is one of a single log"),
        (("show", "--follow"), "a file does not grow"),
    ):  # fmt: skip
        shown = run(*words, "--file", recording)
        assert shown.exit_code == 2, words
        assert says in re.sub(r"[\s│]+", " ", shown.stderr), shown.stderr
    assert run("story", "nobody", "--file", recording).exit_code == 1


def test_records_of_before_and_behind_the_fold_are_counted_without_a_look_at_all_outputs() -> None:
    """Each of them went through all: a record of a snapshot's own time took as long as the whole fold has outputs."""

    class Unwalked(dict[int, Output]):
        def __iter__(self) -> Iterator[int]:
            raise AssertionError("all outputs are walked through")

    check = Check()
    folded = check.scopes["dispatcher"] = Checked("dispatcher", 3, 100, 40, outputs=Unwalked())
    for seq in (41, 42):
        check._note(folded, OutboxRecord(seq, "job.events", 0, "key", "type", "value"), 100)
    for seq in (39, 40, 43):
        check.compare(Recorded("job.events", 0, seq, 0, "key", b"value", f"dispatcher/3/{seq}"))
    assert (folded.earlier, folded.later, folded.found) == (2, 1, set())
    empty = check.scopes["dispatcher"] = Checked("dispatcher", 3, 100, 40, outputs=Unwalked())
    for seq in (40, 41):
        check.compare(Recorded("job.events", 0, seq, 0, "key", b"value", f"dispatcher/3/{seq}"))
    assert (empty.earlier, empty.later) == (1, 1)
