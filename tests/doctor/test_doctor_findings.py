"""What `millrace doctor` says of what it sees; and that a bundle's logs are without secrets."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from deploy.cli.app import app
from deploy.doctor import etcd, here, kafka, kafka_version, scopes
from deploy.doctor.bundle import _letter, _stripped, scrubbed
from deploy.doctor.etcd import Member
from deploy.doctor.examine import Report, Where, examine, none_registered
from deploy.doctor.findings import Finding, Unreachable
from deploy.doctor.kafka import Cluster, Partition, Version
from deploy.doctor.scopes import Scope
from deploy.local.processes import put_aside
from millrace.core.messages.client import ClusterOverview, Provided
from millrace.core.topics import TOPICS, Topology
from millrace.io.interfaces import Put, Txn
from millrace.runtime.logs import Redaction
from millrace.runtime.saving import SNAPSHOT_RECORDS
from millrace.runtime.service import TopologyMissing
from tests.simulation import Clock
from tests.simulation.store import MemoryEtcd, MemoryStore

TOPOLOGY = Topology()
GOOD = Partition(leader=1, replicas=1, in_sync=1)


def healthy(brokers: int = 1, **changes: dict[str, Any]) -> Cluster:
    """A cluster as it should be, with other parts in its topics or configs."""
    topics = {topic.name: {n: GOOD for n in range(topic.count(TOPOLOGY))} for topic in TOPICS}
    configs = {topic.name: topic.config() for topic in TOPICS}
    return Cluster(
        {n: {} for n in range(1, brokers + 1)}, {**topics, **changes.get("topics", {})},
        {name: {**config, **changes.get("configs", {}).get(name, {})} for name, config in configs.items()},
    )  # fmt: skip


def said(findings: Iterable[Finding]) -> list[tuple[str, str]]:
    return [(finding.level, finding.what) for finding in findings]


def test_topics_as_they_should_be() -> None:
    assert said(kafka.topics(healthy(), TOPOLOGY)) == [
        ("ok", f"all {len(TOPICS)} are there, with the partitions and settings of the topics' file")
    ]


@pytest.mark.parametrize(("changes", "what"), [
    ({"topics": {"job.events": {}}}, "job.events is not there"),
    ({"topics": {"job.events": {0: GOOD}}}, "job.events has 1 partitions and not 8: keys lie where nobody looks for them"),
    ({"topics": {"web.cluster": {0: Partition(-1, 1, 0)}}}, "web.cluster has no leader for partition 0"),
    ({"topics": {"web.cluster": {0: Partition(1, 3, 2)}}, "configs": {"web.cluster": {"min.insync.replicas": "2"}}},
     "web.cluster has replicas that are not in sync, of partition 0"),
    ({"topics": {"web.cluster": {0: Partition(1, 3, 3)}}},
     "web.cluster has 3 replicas and min.insync.replicas=1: one that is alone may acknowledge"),
    ({"configs": {"dispatcher.commands": {"retention.ms": "86400000"}}},
     "dispatcher.commands has retention.ms=86400000 and not -1"),
])  # fmt: skip
def test_a_topic_that_is_not_as_the_file_has_it(changes: dict[str, Any], what: str) -> None:
    found = list(kafka.topics(healthy(**changes), TOPOLOGY))
    assert [(finding.level, finding.what) for finding in found] == [("problem", what)]
    assert found[0].fix


def test_settings_of_brokers_that_would_lose_records() -> None:
    cluster = healthy(3)
    assert [level for level, _ in said(kafka.settings(cluster))] == ["ok"]
    unclean = dataclasses.replace(cluster, brokers={**cluster.brokers, 2: {"unclean.leader.election.enable": "true"}})
    assert said(kafka.settings(unclean)) == [
        ("problem", "broker 2 lets a replica lead that lacks acknowledged records")
    ]
    assert [level for level, _ in said(kafka.settings(healthy()))] == ["note"], "one broker is a choice"


@pytest.mark.parametrize(("version", "level", "what"), [
    (Version("4.3", "4.3"), "ok", "4.3"),
    (Version("3.3", "3.3"), "ok", "3.3"),
    (Version("4.3 or newer", "4.3 or newer"), "ok", "4.3 or newer"),
    (Version("3.2", "3.2"), "problem",
     "broker 1 runs 3.2: a log that was deleted and made anew may pass for the old one, and nothing was tried with it"),
    (Version("", ""), "problem",
     "broker 1 runs a version before 3.0, or with ZooKeeper: a log that was deleted and made anew may pass for the old one, and nothing "
     "was tried with it"),
    (Version("4.3", "3.9"), "note", "broker 1 runs 4.3, and the cluster's metadata are still those of 3.9"),
    (Version(failure="timed out"), "note", "broker 1 does not tell its version (timed out)"),
])  # fmt: skip
def test_the_versions_of_brokers(version: Version, level: str, what: str) -> None:
    found = list(kafka.versions(dataclasses.replace(healthy(), versions={1: version})))
    assert [(finding.level, finding.what) for finding in found] == [(level, what)]
    assert bool(found[0].fix) == (level != "ok")


def answer(supported: bytes, finalized: bytes, error: int = 0) -> bytes:
    """What a broker says to ApiVersions 3: one request that it knows, no throttling, the features, in tags that differ by broker."""
    tags = b"\x03" + b"\x00" + bytes([len(supported)]) + supported + b"\x01\x08" + bytes(8) + b"\x02" + bytes([len(finalized)]) + finalized
    return bytes(4) + error.to_bytes(2, "big") + b"\x02" + bytes(6) + b"\x00" + bytes(4) + tags


def feature(first: int, second: int, name: bytes = b"metadata.version") -> bytes:
    return b"\x02" + bytes([len(name) + 1]) + name + first.to_bytes(2, "big") + second.to_bytes(2, "big") + b"\x00"


@pytest.mark.parametrize(("bytes_", "expected"), [
    (answer(feature(7, 30), feature(21, 21)), ("4.3", "3.9")),
    (answer(feature(7, 31), feature(31, 31)), ("4.3 or newer", "4.3 or newer")),
    (answer(feature(1, 14), b"\x01"), ("3.6", "")),
    (answer(feature(1, 14, b"group.version"), b"\x01"), ("", "")),
    (bytes(4) + (35).to_bytes(2, "big"), ("", "")),
])  # fmt: skip
def test_a_broker_tells_its_version_by_its_features(bytes_: bytes, expected: tuple[str, str]) -> None:
    assert kafka_version.versions(bytes_) == expected


@pytest.mark.parametrize("cut", [0, 5, 9, 20, 40])
def test_what_is_no_answer_of_kafka_is_told(cut: int) -> None:
    with pytest.raises(ValueError, match="cut off: is this Kafka"):
        kafka_version.versions(answer(feature(7, 30), feature(21, 21))[:cut])


@pytest.mark.parametrize(("member", "levels", "what"), [
    (Member("e", "3.5.9", members=3), ["ok"], "version 3.5.9, 0.0 MB, it has a leader and no alarm"),
    (Member("e", "3.6.0-rc.1", members=3), ["ok"], "version 3.6.0-rc.1, 0.0 MB, it has a leader and no alarm"),
    (Member("e", "3.5.1", members=3), ["problem"],
     "e runs 3.5.1, which can lose acknowledged writes when it is killed (etcd issue 13766)"),
    (Member("e", "3.5.8", members=3), ["problem"], "e runs 3.5.8, which has known ways to end up with inconsistent data"),
    (Member("e", "3.6.0", members=3, has_leader=False), ["problem"], "e has no leader"),
    (Member("e", "3.6.0", members=3, errors=("NOSPACE",)), ["problem"], "e raises the alarm 'NOSPACE'"),
    (Member("e", "3.6.0", members=3, db_bytes=2 << 30), ["note", "ok"],
     "e holds 2.1 GB; without another quota it takes no writes above 2.1 GB"),
])  # fmt: skip
def test_an_etcd_that_would_lose_writes_or_refuse_them(member: Member, levels: list[str], what: str) -> None:
    found = list(etcd.findings([member]))
    assert ([finding.level for finding in found], found[0].what) == (levels, what)


def test_the_etcd_that_millrace_brings_to_a_local_stack_is_noted_and_no_problem() -> None:
    found = list(etcd.findings([Member("e", "3.5.1", members=1)], brought=True))
    assert [finding.level for finding in found] == ["note", "note", "ok"]
    assert found[0].what.endswith("(etcd issue 13766): fine for a try")
    assert Report(found).problems == 0, "so doctor ends with 0"


def test_an_etcd_member_that_does_not_answer_is_a_problem() -> None:
    found = said(etcd.findings([Member("a", "3.6.0", members=2), Member("b", failure="refused")]))
    assert found == [("problem", "b does not answer (refused)")]


def scope(**changes: Any) -> Scope:
    good = Scope("dispatcher", "d-1", 1, None, first=0, end=40, tick_ms=-3, snapshot=None, parked=())
    return dataclasses.replace(good, **changes)


@pytest.mark.parametrize(("changes", "level", "what"), [
    ({}, "ok", "d-1 leads it, and has read its log to the end (40)"),
    ({"leader": None}, "problem", "nobody leads it"),
    ({"leader": "by hand", "foreign": True}, "problem",
     "its leader key was written by hand ('by hand', without a lease), and nobody replaces it: no process of it runs"),
    ({"tick_ms": None}, "problem",
     "d-1 leads it, and no tick came within 4 s: it is stuck, busy, or has just died"),
    ({"generation": 2, "reason": "the log ends at 3"}, "note",
     "it lives in generation 2: its log was damaged once (the log ends at 3)"),
    ({"end": 200_000}, "problem",
     f"its newest snapshot is 200,000 records old (one is due every {SNAPSHOT_RECORDS:,}): a start takes long"),
    ({"snapshot": 5, "first": 9}, "problem", "its snapshot is at 5 and its log begins at 9: nobody can start from it"),
    ({"parked": ("offset 7: KeyError",)}, "problem", "a record ended a process of it, offset 7: KeyError"),
    ({"snapshot": 190_000, "end": 200_000}, "ok", "d-1 leads it, and has read its log to the end (200000)"),
])  # fmt: skip
def test_a_machine(changes: dict[str, Any], level: str, what: str) -> None:
    first = next(scopes.findings([scope(**changes)]))
    assert (first.level, first.what) == (level, what)


@pytest.mark.parametrize(("difference_ms", "level"), [(1_999, "ok"), (-2_001, "problem"), (60_000, "problem")])
def test_clocks(difference_ms: int, level: str) -> None:
    assert [finding.level for finding in scopes.clock("Kafka", difference_ms)] == [level]


def test_replicas_that_are_behind_and_processes_that_are_not_well(tmp_path: Path) -> None:
    def service(offset: int, status: str = "ok", restarts: int = 0) -> dict[str, Any]:
        health = {"status": status, "scopes": [{"scope": "dispatcher", "role": "standby", "offset": offset}]}
        return {"pid": 7, "log": "d.log", "restarts": restarts, "health": health}

    status = {"services": {"dispatcher": service(10), "dispatcher-2": service(10, "stuck: dispatcher", 2)}}
    assert said(here.lag(status, {"dispatcher": 12})) == [("ok", "no replica is more than 2 records behind")]
    assert said(here.lag(status, {"dispatcher": 90_010}))[0] == (
        "problem", "dispatcher (standby) is 90,000 records behind the end of its log",
    )  # fmt: skip
    assert said(here.processes(status)) == [
        ("problem", "dispatcher-2 (process 7): stuck: dispatcher"), ("note", "dispatcher-2 was started again 2 times"),
    ]  # fmt: skip
    note = list(here.processes(status))[1]
    for code in (1, -9):  # as the supervisor puts it aside
        log = tmp_path / "d.log"
        log.write_text("last words")
        put_aside(log, code)
        [aside] = tmp_path.iterdir()
        assert aside.name in note.fix
        aside.unlink()


@pytest.mark.parametrize(("free", "level"), [(999_000_000, "problem"), (2_000_000_000, "note"), (90_000_000_000, "ok")])
def test_room_on_the_disk(free: int, level: str) -> None:
    assert here.disk({"disk": {"free": free}, "folder": "/x"}).level == level


def test_what_is_fine_needs_no_fix_and_everything_else_has_one() -> None:
    found = [
        *kafka.topics(healthy(), TOPOLOGY), *kafka.settings(healthy()), *etcd.findings([Member("e", "3.5.1", members=1)]),
        *scopes.findings([scope(leader=None), scope()]),
    ]  # fmt: skip
    assert all((finding.level == "ok") == (finding.fix == "") for finding in found)


@pytest.mark.parametrize("command", ["doctor", "bundle"])
def test_a_cluster_is_given_by_both_addresses(command: str) -> None:
    shown = CliRunner().invoke(app, [command, "--kafka", "127.0.0.1:1"])
    assert shown.exit_code == 2 and "--etcd is missing" in shown.stderr


@pytest.mark.long
def test_a_cluster_that_does_not_answer_is_exit_code_3() -> None:
    shown = CliRunner().invoke(app, ["doctor", "--kafka", "127.0.0.1:1", "--etcd", "127.0.0.1:1"])
    assert shown.exit_code == 3
    assert "Kafka at 127.0.0.1:1 does not answer" in shown.stdout and "etcd at 127.0.0.1:1 does not answer" in shown.stdout


@pytest.mark.parametrize(("line", "masked"), [
    ("the key is s3cret-value here", "the key is *** here"),
    ('{"blob_token":"abc","n":1}', '{"blob_token":"***","n":1}'),
    ("PYSPARK_GATEWAY_SECRET=0123abc next", "PYSPARK_GATEWAY_SECRET=*** next"),
    ("spark.hadoop.fs.s3a.access.key=AK spark.x.password: 'p w'", "spark.hadoop.fs.s3a.access.key=*** spark.x.password: '***'"),
    ("conf fs.azure.account.key.a.net=AK", "conf fs.azure.account.key.a.net=***"),
    ("connects to https://me:pw@host/", "connects to https://***@host/"),
    ("apiKey=2 and 3 tokens", "apiKey=2 and 3 tokens"),
])  # fmt: skip
def test_no_secret_stays_in_a_log(line: str, masked: str) -> None:
    assert scrubbed(Redaction(["s3cret-value"]), line) == masked


@pytest.mark.timeout(60)
@pytest.mark.parametrize("word", ["a", "token", "-Dtoken", "-D", "="])
def test_a_long_word_in_a_log_costs_little(word: str) -> None:
    assert scrubbed(Redaction(), f"{word * 20_000} blob_token=abc").endswith(" blob_token=***")


def test_what_lies_on_dead_letters_is_not_all_said_to_be_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each letter that was sent again is there twice: itself, and the note of it."""

    class Three:
        def __init__(self, settings: dict[str, Any]) -> None: ...

        def get_watermark_offsets(self, partition: object, timeout: float) -> tuple[int, int]:
            return 2, 5

        def close(self) -> None: ...

    monkeypatch.setattr(scopes, "Consumer", Three)
    assert said(scopes.dead_letters("127.0.0.1:1")) == [
        ("note", "3 records are on dead-letters, for 30 days: what could not be used or was refused, and what of it was sent again")
    ]


def test_of_a_dead_letter_a_bundle_has_nothing_that_a_client_wrote() -> None:
    reason = "no SubmitJob of job mine-7: conf.spark.password: Input should be a valid string, not ['pw']"
    told = {"type": "DeadLetter", "offset": 3, "reason": reason, "head_base64": "eyJ9"}
    assert _letter(json.dumps(told).encode()) == {"type": "DeadLetter", "offset": 3, "kind": "no SubmitJob"}
    assert _letter(b'{"type": "DeadLetterRedriven", "letter": 1}') == {"type": "DeadLetterRedriven", "letter": 1}


@pytest.mark.parametrize("value", [b"", b"[]", b"no JSON", b"[" * 100_000])
def test_what_is_no_letter_hinders_no_bundle(value: bytes) -> None:
    assert _letter(value) == {"type": None, "size_bytes": len(value)}


def test_what_answers_is_looked_at_also_while_the_rest_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(address: str) -> Any:
        raise Unreachable(f"etcd at {address} does not answer")

    monkeypatch.setattr(kafka, "read", lambda address: healthy())
    monkeypatch.setattr(etcd, "read", away)
    report = examine(Where("k:1", "e:1"))
    assert {finding.check for finding in report.findings} == {"kafka settings"}
    what_to_do = "start what does not run, or name its right address, and ask again for the rest"
    assert report.unreachable == f"etcd at e:1 does not answer: {what_to_do}"


@pytest.mark.parametrize("lost", [False, True])
def test_an_etcd_that_lost_its_data_is_not_told_to_be_provisioned_first(lost: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(store: object) -> Topology:
        raise TopologyMissing("none")

    cluster = healthy() if lost else dataclasses.replace(healthy(), topics={})
    monkeypatch.setattr(kafka, "read", lambda address: cluster)
    monkeypatch.setattr(etcd, "read", lambda address: [Member("e", "3.6.0", members=3)])
    monkeypatch.setattr("deploy.doctor.examine.read_topology", missing)
    monkeypatch.setattr("deploy.doctor.examine._answers", lambda where: iter(()))
    found = next(each for each in examine(Where("k:1", "e:1")).findings if each.check == "topology")
    assert (found.what, found.level) == ("etcd knows no cluster 'default'", "problem")
    assert ("`millrace recover`" in found.fix) == lost and found.fix.endswith(kafka.PROVISION)


def test_no_secret_stays_in_settings() -> None:
    given = {"dispatcher": {"blob_token": "abc", "token_file": "/t", "ports": [1]}, "tokens": 3, "aws_secret_access_key": "k"}
    assert _stripped(given) == {
        "dispatcher": {"blob_token": "***", "token_file": "/t", "ports": [1]}, "tokens": 3, "aws_secret_access_key": "***",
    }  # fmt: skip


def test_troubles_of_jobs_are_told_with_what_to_do() -> None:
    store = MemoryStore(MemoryEtcd(Clock()), "/m/")
    held = {
        "jobs/a": b"{}",
        "jobs/b": b"torn",
        "troubles/unreadable/b": b'{"reason": "it is torn"}',
        "troubles/staging/a": b'{"folders": ["/x/.out.staging/1.2"], "reason": "away"}',
        "troubles/staging/c": b"foreign",
        "troubles/staging/d": b'{"folders": null, "reason": "away"}',
        "troubles/unreadable/z\udcff": b"foreign",
        "troubles/requests/client.commands": b'{"offset": 7, "reason": "the process that reads it ended with code 1"}',
    }
    for key, value in held.items():
        store.txn(Txn([], [Put(key, value)]))
    counted, unreadable, no_text, requests, staged, foreign, no_folders = etcd.jobs(store)
    assert requests.level == "problem" and "wait at offset 7 of 'client.commands': the process that reads it ended" in requests.what
    assert (counted.level, counted.what[:9]) == ("ok", "2 in etcd")
    assert (unreadable.level, unreadable.what) == ("problem", "b: it is torn") and "jobs/b" in unreadable.fix
    assert "`millrace show b` knows the job, leave it" in unreadable.fix, "of a live job it is the only copy beside the log"
    assert no_text.what.startswith("z\\udcff: ") and no_text.what.encode()
    assert staged.level == foreign.level == no_folders.level == "note" and "/x/.out.staging/1.2 (away)" in staged.what


@pytest.mark.parametrize(("provided", "waiting", "level", "said"), [
    (None, 0, "problem", "start one"),
    (Provided(starting=0, least=0, most=0), 0, "problem", "start one"),
    (Provided(starting=0, least=0, most=2), 0, "ok", ""),
    (Provided(starting=1, least=0, most=2), 3, "ok", ""),
    (Provided(starting=0, least=0, most=2), 3, "problem", "millrace queue"),
])  # fmt: skip
def test_a_cluster_that_grows_when_jobs_wait_has_no_task_manager_at_rest(
    provided: Provided | None, waiting: int, level: str, said: str
) -> None:
    """That was a problem, and the exit code 1."""
    overview = ClusterOverview(
        correlation="", jobs={}, task_managers=0, slots=0, free_slots=0, waiting_jobs=waiting, provided=provided
    )  # fmt: skip
    found = none_registered(overview)
    assert found.level == level and said in found.fix
