"""etcd restored from an older backup, then `millrace recover` [R24]: no accepted job is lost, no ended one runs again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from deploy.recover import Refused
from millrace.core.machine import Envelope, Output, PassedOver
from millrace.core.messages.records import Client
from millrace.core.topics import DISPATCHER, JOB_MASTER, TOPICS
from services.dispatcher.core.machine import HANDLERS
from tests.simulation.behaviour import Behaviour
from tests.simulation.cluster import CONTROL, Cluster
from tests.simulation.restoring import backup, put_right, restore, restored, start
from tests.simulation.trial import quiet_logs
from tests.simulation.workload import single

HELD = ("ends-later", "stays", "new-stays")

@pytest.fixture
def cluster() -> Cluster:
    """`old` has ended, `ends-later` and `stays` run; what ended is soon forgotten by the Dispatcher's state."""
    return started(snapshot_records=40)


def started(snapshot_records: int) -> Cluster:
    quiet_logs()

    def script(spec: dict[str, Any]) -> Behaviour:
        return Behaviour("hang" if spec["job"] in HELD else "finish")

    made = Cluster(slots=4, script=script, snapshot_records=snapshot_records, deciding={DISPATCHER: {"retained_jobs": 2}})
    made.run(made.ready)
    for job in ("old", "ends-later", "stays"):
        made.client.submit(job, single())
    made.run(lambda: made.ended("old") and len(made.world.book.living) == 2)
    return made


def go_on(cluster: Cluster) -> None:
    """What happens after the backup: jobs are accepted, run and end."""
    cluster.client.cancel("ends-later")
    cluster.run(lambda: cluster.ended("ends-later"))
    for job in ("new-1", "new-2", "new-3", "new-stays"):
        cluster.client.submit(job, single())
        cluster.run(lambda job=job: cluster.ended(job) or job in HELD and len(cluster.world.book.living) == 2)
    cluster.run(most_ms=3_000)


STATUSES = {
    "old": "FINISHED", "ends-later": "CANCELED", "stays": None,
    "new-1": "FINISHED", "new-2": "FINISHED", "new-3": "FINISHED", "new-stays": None,
}  # fmt: skip


def ends(cluster: Cluster, attempts: int) -> None:
    """The two that stay are canceled, all is over, and no attempt was started since there were so many."""
    for job in ("stays", "new-stays"):
        cluster.client.cancel(job)
    cluster.run(lambda: cluster.ended(*STATUSES) and cluster.at_rest(), most_ms=60_000)
    assert cluster.statuses() == {job: status or "CANCELED" for job, status in STATUSES.items()}
    assert len(cluster.world.book.launched) == attempts


def test_recover_puts_back_what_was_accepted_and_what_has_ended(cluster: Cluster) -> None:
    saved = backup(cluster.world.etcd)
    go_on(cluster)
    attempts, before = len(cluster.world.book.launched), cluster.statuses()
    highest = cluster.world.etcd.revision
    restore(cluster, saved)
    assert cluster.statuses() == {"old": "FINISHED", "ends-later": None, "stays": None}
    said = put_right(cluster)
    assert cluster.statuses() == before == STATUSES
    assert cluster.world.etcd.revision > highest, "no epoch and no incarnation is given twice"
    assert "jobs: 1 are put back as accepted, 4 as ended" in said
    assert [line for line in said if line.startswith("dispatcher: the snapshot")]
    assert put_right(cluster) == ["jobs: 0 are put back as accepted, 0 as ended"], "again, it changes nothing"
    start(cluster)
    ends(cluster, attempts)


@pytest.mark.parametrize("lost", [False, True])
def test_logs_whose_last_election_is_deleted_are_told_by_their_snapshots(lost: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """So it is wherever leaders have led for some days. `lost`: etcd has lost all its data, and there is no backup."""
    monkeypatch.setattr("millrace.runtime.saving.KEPT_RECORDS", 5)
    cluster = started(snapshot_records=20)
    saved = backup(cluster.world.etcd)
    go_on(cluster)
    cluster.run(most_ms=120_000)
    attempts, before = len(cluster.world.book.launched), cluster.statuses()
    for scope in cluster.world.topology.scopes():
        log = cluster.world.broker.log(*cluster.world.topology.inbox(scope))
        assert not any(b'"Elected"' in received.value for received in log.records if received.offset >= log.first), scope
    restore(cluster, ({}, 1) if lost else saved)
    if lost:
        storage, path = cluster.world.storage, "snapshots/dispatcher"
        away = {entry.path: storage.get(entry.path) for entry in storage.list(path)}
        storage.delete_tree(path)
        with pytest.raises(Refused, match=r"^the log of dispatcher begins at \d+, and no whole snapshot reaches so far"):
            put_right(cluster)
        for each, data in away.items():
            storage.put_new(each, data)
    put_right(cluster)
    assert cluster.statuses() == before == STATUSES
    start(cluster)
    for scope in cluster.world.topology.scopes():
        folded = cluster.leader(scope)
        assert folded is not None and folded.generation == 1, "its log is whole"
    ends(cluster, attempts)


def test_a_backup_that_is_as_new_as_the_logs_is_raised_all_the_same(cluster: Cluster) -> None:
    """Logs know of a revision a moment late: what was given since then may have been the epoch of one, or the incarnation of another."""
    cluster.run(most_ms=3_000)
    etcd = cluster.world.etcd
    for name in CONTROL:
        cluster.stop(name)
    saved, given = backup(etcd), etcd.revision + 20
    restore(cluster, saved)
    etcd.revision += 1  # whoever started first with the restored one
    said = put_right(cluster)
    assert etcd.revision > given and f"revision: {saved[1] + 1} is raised to {etcd.revision - 1}" in said
    assert put_right(cluster) == ["jobs: 0 are put back as accepted, 0 as ended"], "again, it changes nothing"


def test_what_was_put_back_is_enough_when_the_log_is_lost_after_that(cluster: Cluster) -> None:
    saved = backup(cluster.world.etcd)
    go_on(cluster)
    attempts = len(cluster.world.book.launched)
    restore(cluster, saved)
    put_right(cluster)
    broker = cluster.world.broker
    broker.delete_topics(["dispatcher.commands"])
    broker.ensure_topics((each.name, each.count(cluster.world.topology), each.config()) for each in TOPICS)
    start(cluster)
    folded = cluster.leader(DISPATCHER)
    assert folded is not None and folded.generation == 2
    ends(cluster, attempts)


def test_without_recover_nobody_leads(cluster: Cluster) -> None:
    saved = backup(cluster.world.etcd)
    go_on(cluster)
    restore(cluster, saved)
    for name in CONTROL:
        cluster.start(name)
    cluster.run(most_ms=20_000)
    assert not any(cluster.leader(scope) for scope in cluster.world.topology.scopes())


def test_a_generation_that_began_after_the_backup_is_put_back(cluster: Cluster) -> None:
    saved = backup(cluster.world.etcd)
    scope = f"{JOB_MASTER}/0"
    cluster.stop("job-master#1")
    cluster.world.broker.truncate("job-master.commands", 0, 5)
    cluster.world.book.cut(scope, 5)
    cluster.start("job-master#1")
    cluster.run(lambda: (folded := cluster.leader(scope)) is not None and folded.generation == 2)
    cluster.run(most_ms=3_000)
    restore(cluster, saved)
    assert f"{scope}: generation 1 is put back to 2" in put_right(cluster)
    start(cluster)
    folded = cluster.leader(scope)
    assert folded is not None and folded.generation == 2


@pytest.mark.parametrize("deaf", [False, True])
def test_a_record_that_was_parked_after_the_backup_is_passed_over_again(
    monkeypatch: pytest.MonkeyPatch, deaf: bool
) -> None:
    """`deaf`: hearing that it is passed over ended a process, too."""
    requested, passed_over = HANDLERS[Client], HANDLERS[PassedOver]

    def poisoned(state: Any, record: Client, envelope: Envelope) -> Iterator[Output]:
        if record.request.job == "poison":
            raise ZeroDivisionError("poisoned")
        return requested(state, record, envelope)

    def poisoned_too(state: Any, body: PassedOver, envelope: Envelope) -> Iterator[Output]:
        if deaf:
            raise ZeroDivisionError("told")
        return passed_over(state, body, envelope)

    monkeypatch.setitem(HANDLERS, Client, poisoned)
    monkeypatch.setitem(HANDLERS, PassedOver, poisoned_too)
    cluster = started(snapshot_records=10**9)
    saved = backup(cluster.world.etcd)
    cluster.client.submit("poison", single())
    deaths = die_and_rise(cluster, "dispatcher#1", "behind")
    assert deaths == (3 if deaf else 2)
    entries = {key: entry.value for key, entry in cluster.world.etcd._entries.items() if "/parked/" in key}
    cluster.kill("dispatcher#1")  # so that no snapshot stands behind the record
    restore(cluster, saved)
    said = put_right(cluster)
    assert len([line for line in said if line.endswith("it is passed over, as it was after the backup")]) == deaths - 1
    again = {key: entry.value for key, entry in cluster.world.etcd._entries.items() if "/parked/" in key}
    assert again == entries and len(again) == 1
    assert put_right(cluster) == ["jobs: 0 are put back as accepted, 0 as ended"], "again, it changes nothing"
    start(cluster)
    cluster.client.submit("after", single())
    cluster.run(lambda: cluster.ended("after"))


def die_and_rise(cluster: Cluster, name: str, job: str) -> int:
    """Runs this job, with the process started again whenever it ended itself; how often that was."""
    cluster.client.submit(job, single())
    for deaths in range(10):
        try:
            cluster.run(lambda: cluster.ended(job), most_ms=60_000)
            return deaths
        except ZeroDivisionError:
            cluster.kill(name)
            cluster.start(name)
    raise AssertionError("it dies for ever")


def test_a_log_that_folds_otherwise_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a record was parked that does not fail any more."""
    cluster = started(snapshot_records=10**9)
    go_on(cluster)
    cluster.kill("dispatcher#1")
    restore(cluster, backup(cluster.world.etcd))

    monkeypatch.setitem(HANDLERS, Client, lambda state, record, envelope: iter(()))
    with pytest.raises(Refused, match=r"^the log of dispatcher leads to other words than its tick at offset \d+ names"):
        put_right(cluster)


def test_it_is_refused_while_somebody_leads(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.recover.LEADER_S", 0.0)
    with pytest.raises(Refused, match="^dispatcher#1 leads dispatcher: end all control services first"):
        put_right(cluster)


def test_it_is_refused_when_too_many_revisions_are_lacking(cluster: Cluster) -> None:
    saved = backup(cluster.world.etcd)
    cluster.world.etcd.revision += 1_000_000
    cluster.run(most_ms=5_000)
    restore(cluster, saved)
    with pytest.raises(Refused, match="etcdutl snapshot restore --bump-revision 2001[0-9]{3} --mark-compacted"):
        put_right(cluster)


@pytest.mark.parametrize("seed", (0, 1, 2, 7))  # 7: a job was still to be cleaned up, and its key is younger than the backup
def test_jobs_before_and_after_a_backup(seed: int) -> None:
    quiet_logs()
    restored(seed)


def test_a_job_whose_acceptance_the_log_has_lost_runs_all_the_same(cluster: Cluster) -> None:
    """A power cut takes the ends of all logs, and etcd's disk: of a job that the backup has the logs know nothing. It ended FAILED."""
    cluster.run(most_ms=3_000)
    end = cluster.world.broker.log("dispatcher.commands", 0).end
    cluster.client.submit("new-1", single())
    cluster.run(lambda: "new-1" in cluster.statuses())
    saved = backup(cluster.world.etcd)
    for name in [name for name, each in cluster.processes.items() if each.alive]:
        cluster.kill(name)
    cluster.world.broker.truncate("dispatcher.commands", 0, end)
    cluster.world.book.cut(DISPATCHER, end)
    restore(cluster, saved)
    said = put_right(cluster)
    assert "dispatcher: its log has lost the records of 1 jobs that etcd has: generation 2 begins, which takes them over" in said
    assert not [line for line in put_right(cluster) if "are put back" in line or "begins" in line], "again, it changes nothing"
    assert cluster.statuses() == {"old": "FINISHED", "ends-later": None, "stays": None, "new-1": None}
    start(cluster)
    cluster.start("task-manager/1")
    cluster.run(lambda: cluster.ended("new-1"), most_ms=60_000)
    assert cluster.statuses()["new-1"] == "FINISHED"
