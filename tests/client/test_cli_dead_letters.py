"""`millrace dlq` over a real Kafka and a real Dispatcher."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Producer

from deploy.cli.app import app, guarded
from deploy.cli.dlq.commands import _send
from millrace.client import Millrace, new_id
from millrace.client.dead_letters import LETTER, ORIGIN, REPEATS, DeadLetters
from millrace.io.etcd.store import EtcdStore
from millrace.io.interfaces import Delete, Put, Txn
from millrace.io.kafka.admin import KafkaAdmin
from millrace.io.kafka.logs import KafkaLogs
from tests.client.cluster import ControlPlane
from tests.contract.conftest import eventually

UPLOAD = b"def f(): pass\n# of the dead letters\n"


@dataclass
class Desk:
    """Parks records, and runs `millrace dlq`."""

    plane: ControlPlane
    millrace: Millrace
    capsys: pytest.CaptureFixture[str]

    @property
    def letters(self) -> DeadLetters:
        return self.millrace.dead_letters()

    def park(
        self, *values: bytes, key: bytes | None = None, headers: list[tuple[str, bytes]] | None = None
    ) -> list[int]:
        """The numbers of the letters of these records, which are refused; some only once etcd was asked: later ones overtake them."""
        producer = Producer({"bootstrap.servers": self.plane.kafka.bootstrap})
        start = self.letters.end()
        for value in values:
            producer.produce("client.commands", value, key=key, headers=headers or [])
        assert producer.flush(60) == 0

        def all_parked() -> list[int]:
            found = [each.number for each in self.letters.read() if each.number >= start]
            return found if len(found) >= len(values) else []

        parked = eventually(all_parked, f"{len(values)} letters")
        assert len(parked) == len(values)
        return parked

    def fire(self, job: str) -> None:
        """Publishes what is accepted, without reply_to, and waits until it is."""
        self.millrace._link.publish("client.commands", fired(job), key=None)
        self.millrace.status(job)

    def run(self, *args: str) -> tuple[int, str, str]:
        """(exit code, stdout, stderr)"""
        self.capsys.readouterr()
        code = guarded(lambda: app(["dlq", *args]))
        said = self.capsys.readouterr()
        return code, said.out, said.err

    def json(self, *args: str) -> Any:
        code, out, err = self.run(*args, "--json")
        assert code == 0, err
        return json.loads(out)


@pytest.fixture
def desk(
    plane: ControlPlane, millrace: Millrace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Desk]:
    monkeypatch.setenv("MILLRACE_KAFKA_BOOTSTRAP", plane.kafka.bootstrap)
    monkeypatch.setenv("MILLRACE_ETCD_ENDPOINT", plane.etcd.endpoint)
    yield Desk(plane, millrace, capsys)


def needs_upload(job: str, sha256: str) -> bytes:
    """Without reply_to: parked while the upload is not there."""
    graph = {
        "name": "x",
        "vertices": {"a": {"sql": "SELECT 1 AS a"}, "b": {"python": "m:f", "inputs": {"a": "forward"}}},
        "modules": [{"name": "m.py", "sha256": sha256, "kind": "py"}],
    }
    return json.dumps({"type": "SubmitJob", "version": 1, "job": job, "graph": graph}).encode()


def test_a_record_does_not_speak_to_the_terminal_of_who_looks_at_it(desk: Desk) -> None:
    [letter] = desk.park(b"\x1b]0;mine\x07", headers=[("ce_source", b"\x1b[2J")])
    _, out, _ = desk.run("show", str(letter))
    assert "\x1b" not in out and out.endswith("what it says\n\\x1b]0;mine\\x07\n")
    assert "header    ce_source: \\x1b[2J" in out


def test_an_interrupted_redrive_says_how_far_it_came(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = desk.park(b"one", b"two")
    send = DeadLetters.redrive

    def redrive(self: DeadLetters, letter: Any, original: Any) -> Any:
        if letter.number == second:
            raise KeyboardInterrupt
        return send(self, letter, original)

    monkeypatch.setattr(DeadLetters, "redrive", redrive)
    code, _, err = desk.run("redrive", str(first), str(second), "--force", "--yes")
    assert (code, err) == (130, "interrupted: sent 1 of 2; the same command goes on with the rest\n")


def test_letters_are_listed_and_shown_as_far_as_they_can_be_read(desk: Desk) -> None:
    long = b'{"type": "SubmitJobs", "version": 1, "job": "night-7", "graph": "' + b"x" * 9000 + b'"}'
    rubbish, unknown = desk.park(b"\xff\xfe", long, key=b"k", headers=[("ce_source", b"/billing")])
    found = desk.json("list", "-n", "2")
    assert [(each["letter"], each["type"], each["job"]) for each in found] == [
        (unknown, "SubmitJobs", "night-7"), (rubbish, None, None),
    ]  # fmt: skip
    assert found[0]["reason"].startswith("unknown type 'SubmitJobs'; known are SubmitJob, ")
    assert (found[0]["kind"], found[1]["kind"]) == ("unknown type '...'", "not UTF-8 at byte N")
    assert (found[0]["truncated"], found[1]["truncated"]) == (True, False)
    assert found[0]["value"]["version"] == 1

    _, out, _ = desk.run("show", str(unknown))
    assert out.startswith(f"letter    {unknown}, parked ")
    assert f"whole     there, in client.commands[0] at offset {found[0]['offset']}" in out
    assert "header    ce_source: /billing" in out
    assert '"job": "night-7"' in out
    letters = desk.letters
    [letter] = [each for each in letters.read() if each.number == unknown]
    original = letters.original(letter)
    assert (original.value, original.key, original.headers) == (long, b"k", (("ce_source", b"/billing"),))
    assert desk.json("list", "--job", "night-7")[0]["letter"] == unknown
    assert desk.json("list", "--reason", "not utf-8")[0]["letter"] == rubbish
    assert desk.json("list", "--topic", "job.events") == desk.json("list", "--until", "10000d") == []
    assert len(desk.json("list", "--since", "1d")) == len(desk.json("list"))
    code, _, err = desk.run("show", "99999")
    assert (code, err) == (
        1,
        "millrace: there is no letter 99999 (any more): millrace dlq list tells those that are kept\n",
    )


def test_what_is_still_wrong_is_not_sent_again_unless_it_must_be(desk: Desk) -> None:
    numbers = desk.park(b"{", b"[]", b"[1]", b'{"type": "CancelJob", "version": 1}')
    plan = desk.json("redrive", *map(str, numbers))
    assert [(row["letters"], row["kind"], row["fate"]) for row in plan] == [
        (2, 'no message', "still wrong"), (1, "not JSON", "still wrong"), (1, "no CancelJob", "still wrong"),
    ]  # fmt: skip
    before = desk.letters.end()
    assert desk.json("redrive", *map(str, numbers), "--yes") == {
        "sent": 0, "left": {"still wrong": 4}, "parked_again": [], "failed": [],
    }  # fmt: skip
    assert desk.letters.end() == before

    first = numbers[-1]
    for again in (1, 2, 3):
        done = desk.json("redrive", str(first), "--force", "--yes")
        assert done["sent"] == 1
        [back] = done["parked_again"]
        assert back["reason"] == "no CancelJob: job: Field required"
        first = back["letter"]
        [letter] = [each for each in desk.letters.read() if each.number == first]
        headers = dict(desk.letters.original(letter).headers)
        assert (letter.repeats, headers[REPEATS]) == (again, str(again).encode())
    assert headers[ORIGIN] == f"client.commands/0/{desk.json('show', str(numbers[-1]))['offset']}".encode()
    assert headers[LETTER] != str(numbers[-1]).encode()
    assert desk.json("redrive", str(first), "--force", "--yes")["left"] == {"sent too often": 1}
    assert desk.json("redrive", str(first), "--force", "--most-repeats", "4")[0]["fate"] == "send"
    story = desk.json("show", str(numbers[-1]))["story"]
    assert [line.split("  ")[1].split(" ")[0] for line in story] == ["letter", "sent"] * 3 + ["letter"]


def test_a_job_whose_upload_came_late_is_accepted_once_whoever_sends_it_again(desk: Desk, tmp_path: Path) -> None:
    sha256 = hashlib.sha256(UPLOAD).hexdigest()
    jobs = [new_id("late") for _ in range(3)]
    numbers = desk.park(*(needs_upload(job, sha256) for job in jobs))
    assert all("was not uploaded" in each["reason"] for each in desk.json("list", "-n", "3"))
    (tmp_path / "m.py").write_bytes(UPLOAD)
    desk.millrace._blob_client().put_file(tmp_path / "m.py")

    code, out, err = desk.run("redrive", "--reason", "was not uploaded")
    assert (code, err) == (0, "nothing was sent; --yes sends 3\n")
    assert out.splitlines()[1].split()[:5] == ["3", "no", "SubmitJob", "sent", "letter"]
    assert desk.json("redrive", str(numbers[0]), "--yes")["sent"] == 1  # an interrupted run, as it were
    assert desk.json("redrive", "--reason", "was not uploaded", "--yes") == {
        "sent": 2, "left": {"sent already": 1}, "parked_again": [], "failed": [],
    }  # fmt: skip
    [letter] = [each for each in desk.letters.read() if each.number == numbers[1]]
    desk.letters.redrive(letter, desk.letters.original(letter))  # as if the first sending had not been written down
    desk.millrace.check_dispatcher()
    listed = [each.job for each in desk.millrace.list(1000).jobs if each.job in jobs]
    assert sorted(listed) == sorted(jobs), "each once"
    assert (
        desk.json("show", str(numbers[2]))["story"][-1]
        == f"it was not parked again: millrace show {jobs[2]} tells of its job"
    )
    assert desk.json("list", "--job", jobs[0], "--open") == []
    for job in jobs:
        desk.millrace.cancel(job)


def fired(job: str, n: int = 1) -> bytes:
    """Without reply_to. Its type and id stand behind the first bytes, which are all that a letter has of it."""
    graph = {"name": "x", "vertices": {"a": {"sql": f"SELECT '{'x' * 1000}' AS a, {n} AS n"}}}
    return json.dumps({"graph": graph, "type": "SubmitJob", "version": 1, "job": job}).encode()


@pytest.mark.long
def test_a_submission_without_room_and_without_anybody_to_tell_is_found_and_sent_again(desk: Desk) -> None:
    live, job = new_id("live"), new_id("fired")
    desk.fire(live)
    desk.plane.stop("dispatcher")
    desk.plane.start("dispatcher", max_live_jobs=1)
    try:
        [busy] = desk.park(fired(job))
        [row] = desk.json("list", "--job", job)
        assert (row["letter"], row["type"], row["kind"], row["truncated"]) == (busy, "SubmitJob", "busy", True)
        assert row["reason"].startswith(f"busy: SubmitJob of job {job}: ") and "max_live_jobs is 1" in row["reason"]
        assert desk.run("show", str(busy), "--raw")[1] == fired(job).decode()
        [again] = desk.json("redrive", "--reason", "busy:", "--yes")["parked_again"]
        assert again["reason"] == row["reason"]
    finally:
        desk.plane.stop("dispatcher")
        desk.plane.start("dispatcher")
    assert desk.json("redrive", "--reason", "busy:", "--yes") == {
        "sent": 1, "left": {"sent already": 1}, "parked_again": [], "failed": [],
    }  # fmt: skip
    assert job in [each.job for each in desk.millrace.list(1000).jobs]
    end = desk.letters.end()
    desk.fire(job)
    assert desk.letters.end() == end, "the same again is no refusal"
    for each in (live, job):
        desk.millrace.cancel(each)


def test_another_jobs_id_is_not_sent_again_unless_it_must_be(desk: Desk) -> None:
    job = new_id("fired")
    desk.fire(job)
    [number] = desk.park(fired(job, 2))
    reason = f"conflict: SubmitJob of job {job}: job {job} exists with another graph or other parameters; submit under another id"
    why = "its id is another job's, and stays so: publish it under another id"
    shown = desk.json("show", str(number))
    assert (shown["reason"], shown["still_wrong"]) == (reason, why)
    assert f"redrive   leaves it: {why}\n" in desk.run("show", str(number))[1]
    [row] = desk.json("redrive", str(number))
    assert (row["kind"], row["fate"], row["example"]) == ("conflict", "still wrong", f"letter {number}: {why}")
    for _ in range(3):
        [back] = desk.json("redrive", str(number), "--force", "--yes")["parked_again"]
        assert back["reason"] == reason
        number = back["letter"]
    assert desk.json("redrive", str(number), "--force", "--yes")["left"] == {"sent too often": 1}
    desk.millrace.cancel(job)


def test_a_record_that_is_late_by_now_is_not_sent_to_be_refused_unheard(desk: Desk) -> None:
    value = json.loads(needs_upload(new_id("late"), "0" * 64))
    [number] = desk.park(json.dumps({**value, "accept_before_ms": int(time.time() * 1000) - 5}).encode())
    [row] = desk.json("redrive", str(number))
    why = "its accept_before_ms has passed: it would be rejected as late; publish it with a later one, or with none"
    assert row["example"] == f"letter {number}: {why}"


def test_what_was_deleted_at_its_origin_is_sent_from_its_letter_if_that_has_all_of_it(desk: Desk) -> None:
    small, large = desk.park(b'{"type": "X", "a": 1}', b'{"type": "X", "a": "' + b"x" * 5000 + b'"}')
    letters = desk.letters
    origin = max(each.letter.offset for each in letters.read())
    KafkaAdmin(desk.plane.kafka.bootstrap).delete_below("client.commands", 0, origin + 1)
    found = {each.number: each for each in letters.read()}
    original = letters.original(found[small])
    assert (original.value, original.place) == (b'{"type": "X", "a": 1}', "the letter itself")
    assert desk.run("show", str(large), "--raw") == (
        1, "", f"millrace: letter {large} keeps the first 4096 of 5022 bytes; the rest was in client.commands[0] at offset {origin}, "
        "and it was deleted there\n",
    )  # fmt: skip
    assert desk.json("redrive", str(small), str(large), "--force", "--yes")["left"] == {"gone": 1}
    assert desk.json("show", str(large))["value"]["type"] == "X"


def test_letters_are_deleted_up_to_a_number_and_not_without_a_yes(desk: Desk) -> None:
    first, second, third = desk.park(b"1", b"2", b"3")
    count = len(desk.letters.read())
    waiting = len(desk.json("list", "--open", "-n", "1000"))
    kept = 1
    expected = f"{count - kept} letters below {third}, {waiting - kept} of them not sent again"
    assert desk.run("purge", "--below", str(third)) == (0, f"would delete {expected}; --yes does it\n", "")
    assert len(desk.letters.read()) == count
    assert desk.run("purge", "--below", str(third), "--yes") == (0, f"deleted {expected}\n", "")
    assert [each.number for each in desk.letters.read()] == [third]
    for doing in ((), ("--yes",)):  # what would be done is what is done
        code, out, err = desk.run("purge", "--below", str(third + 1000), *doing)
        assert (code, out) == (1, "") and err.startswith("millrace: the next letter will be number ")
    assert desk.run("purge", "--before", "1d")[1].startswith("would delete 0 letters below ")
    assert desk.run("purge", "--all", "--yes")[1].startswith("deleted 1 letter below ")
    assert desk.run("redrive")[0] == desk.run("purge")[0] == 2
    assert desk.run("list", "--since", "soon")[0] == 2


@contextmanager
def passed_over(desk: Desk, ended: int = 2) -> Iterator[tuple[str, str]]:
    """(place, job) of a StartJob that is marked as one that ended processes; the services that run do not look there again."""
    job = desk.millrace.submit({"name": "one", "vertices": {"one": {"sql": "SELECT 1 AS one"}}}).id
    shard = stored(desk.plane, job)["shard"]
    logs = KafkaLogs(desk.plane.kafka.bootstrap, client_id="tests")
    reader = logs.reader("job-master.commands", shard, 0)
    started: list[int] = []
    while not started:
        told = ((each.offset(), json.loads(each.value())) for each in reader.scan(1_000, 1_000))
        started = [at for at, value in told if value.get("body", {}).get("type") == "StartJob" and value["body"]["job"] == job]
    reader.close()
    store = EtcdStore(desk.plane.etcd.endpoint, "/millrace/default/")
    key = f"parked/job-master/{shard}/1/{started[0]}"
    entry = {"ended": ended, "build": "0.1.0+abc", "error": "ZeroDivisionError: poisoned"}
    store.txn(Txn([], [Put(key, json.dumps(entry).encode())]))
    try:
        yield f"job-master/{shard}@{started[0]}", job
    finally:
        store.txn(Txn([], [Delete(key)]))
        store.close()
        desk.millrace.cancel(job)


def stored(plane: ControlPlane, job: str) -> Any:
    store = EtcdStore(plane.etcd.endpoint, "/millrace/default/")
    try:
        return json.loads(store.get(f"jobs/{job}").value)
    finally:
        store.close()


@pytest.mark.long
def test_records_passed_over_in_inboxes_are_listed_and_shown_and_never_sent_again(desk: Desk) -> None:
    [letter] = desk.park(b"[]")
    with passed_over(desk) as (place, job):
        rows = {each["letter"]: each for each in desk.json("list")}
        assert letter in rows
        row = rows[place]
        assert (row["type"], row["job"], row["reason"]) == ("StartJob", job, "ZeroDivisionError: poisoned")
        assert (row["build"], row["ended_processes"], row["value"]["body"]["job"]) == ("0.1.0+abc", 2, job)
        assert [each["letter"] for each in desk.json("list", "--job", job)] == [place]
        assert desk.json("list", "--reason", "poisoned", "--until", "1d") == []
        _, out, _ = desk.run("show", place)
        assert out.startswith(f"record    {place}, written ")
        assert f"redrive   never: it is a record of the inbox of {place.partition('@')[0]}, and what came behind it" in out
        assert "said by dispatcher" in out and "it ended 2 processes of build 0.1.0+abc: ZeroDivisionError: poisoned" in out
        assert f"job {job} has failed with that cause" in out and f'"job": "{job}"' in out
        _, raw, _ = desk.run("show", place, "--raw")
        assert json.loads(raw)["body"]["job"] == job
        before = desk.letters.end()
        for which in ((place,), ("--reason", "poisoned"), (place, "--force")):
            [plan] = desk.json("redrive", *which)
            assert (plan["kind"], plan["fate"]) == ("ZeroDivisionError", "of an inbox")
            assert f"submit job {job} again, under a new id" in plan["example"]
            assert desk.json("redrive", *which, "--yes") == {
                "sent": 0, "left": {"of an inbox": 1}, "parked_again": [], "failed": [],
            }  # fmt: skip
        assert desk.letters.end() == before
    code, _, err = desk.run("show", place)
    assert (code, err) == (1, f"millrace: no record {place} is passed over: millrace dlq list tells those that are\n")
    with passed_over(desk, ended=1) as (place, _):
        assert place not in [each["letter"] for each in desk.json("list")], "it has ended one process, and is tried again"
    with passed_over(desk, ended=3) as (place, _):
        assert "hearing of it ended a process, too" in desk.run("show", place)[1]


def test_without_etcd_the_letters_are_listed_all_the_same(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    [letter] = desk.park(b"[]")
    monkeypatch.delenv("MILLRACE_ETCD_ENDPOINT")
    code, out, err = desk.run("list", "-n", "1000")
    assert code == 0 and f"{letter} " in out
    assert err.startswith("note: records that are passed over in inboxes are not listed: where etcd is must be known too: name it in ")
    assert desk.run("show", "job-master/0@1")[0] == 3


def test_a_cluster_that_is_stopped_is_sent_nothing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    [number] = desk.park(b"[]")
    desk.plane.stop("dispatcher")
    try:
        monkeypatch.setattr("millrace.cli.connection.ANSWER_S", 1.0)
        before = KafkaAdmin(desk.plane.kafka.bootstrap).offsets("dead-letters", 0)
        code, out, err = desk.run("redrive", str(number), "--force", "--yes")
        assert (code, out) == (3, "")
        assert err == (
            "millrace: nothing was sent: the cluster is stopped, or has no Dispatcher (no answer to DescribeBlobServer within 1 s; "
            "is a Dispatcher running?)\n"
        )
        assert KafkaAdmin(desk.plane.kafka.bootstrap).offsets("dead-letters", 0) == before
    finally:
        desk.plane.start("dispatcher")


@pytest.mark.long
def test_without_kafka_it_is_said_in_one_line(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_KAFKA_BOOTSTRAP", "127.0.0.1:1")
    code, out, err = desk.run("list")
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert err.startswith("millrace: Kafka at 127.0.0.1:1 does not answer within 5 s")


def test_records_are_sent_no_faster_than_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=100.0)
    sent: list[float] = []

    def sleep(seconds: float) -> None:
        clock.now += seconds

    def redrive(letter: object, original: object) -> None:
        clock.now += 0.1  # Kafka takes its time, and that counts
        sent.append(round(clock.now - 100.0, 3))

    monkeypatch.setattr("deploy.cli.dlq.commands.time", SimpleNamespace(monotonic=lambda: clock.now, sleep=sleep))
    assert _send(SimpleNamespace(redrive=redrive), [(None, None)] * 4, per_second=4.0) == []
    assert sent == [0.1, 0.35, 0.6, 0.85]
