"""The store of jobs and of their results, in the scenarios of Flink's contract tests. Each test names the one that it stands for.

Graph and result are one key here, `jobs/<id>`: accepted, then dirty, then clean."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.core.messages import effects
from millrace.io.interfaces import Put, Txn, Unavailable
from millrace.io.storage.store import Storage, blob_path, upload_path
from services.dispatcher.archivist import Archivist
from services.dispatcher.ports import JobStore
from tests.core.of_dispatcher import GRAPH, JOB, OTHER, stored
from tests.core.of_dispatcher_ports import World, clean_effect, end_effect, puts

SHA = "a" * 64


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "storage")


def recovered(world: World) -> dict[str, str]:
    """What a new leader is told of, with its state."""
    return {job: found.state for job, found in world.recover(effects.RecoverJobs(retained=10), world.fence).jobs.items()}


# results: dirty, then clean


def test_a_result_that_is_stored_twice_is_stored_once(world: World) -> None:
    """JobResultStoreContractTest: a dirty result of a job that has one throws there; here the first one stands, and is the answer."""
    world.put(*puts([JOB]))
    for status in ("FINISHED", "FAILED"):
        [outcome] = world.ports.end([end_effect(status=status)], world.fence)
        assert outcome.stands.status == "FINISHED"
    assert world.holds() == stored(state="dirty")


def test_no_result_makes_a_clean_one_dirty_again(world: World) -> None:
    """JobResultStoreContractTest: dirty after clean."""
    world.set(stored(state="clean"))
    [outcome] = world.ports.end([end_effect(status="FAILED")], world.fence)
    assert outcome.stands == stored(state="clean") == world.holds()


def test_a_result_is_marked_clean_as_often_as_you_like(world: World) -> None:
    """JobResultStoreContractTest: clean twice is fine."""
    world.set(stored(state="dirty"))
    for _ in range(2):
        world.clean([clean_effect()], world.fence)
        assert world.holds() == stored(state="clean")


def test_a_result_of_nobody_is_not_marked_clean(world: World) -> None:
    """JobResultStoreContractTest: clean of an unknown one throws there; here nothing is made."""
    world.clean([clean_effect()], world.fence)
    assert world.holds() is None


def test_a_result_is_there_from_dirty_on_and_stays(world: World) -> None:
    """JobResultStoreContractTest: hasDirty, hasClean, hasJobResultEntry."""
    seen = []

    def look() -> None:
        [found] = world.ports.find([effects.FindJob(job=JOB)], world.fence)
        seen.append((found.stands.state, found.stands.status) if found.stands is not None else None)

    look()
    world.put(*puts([JOB]))
    look()
    world.ports.end([end_effect()], world.fence)
    look()
    world.clean([clean_effect()], world.fence)
    look()
    assert seen == [None, ("accepted", None), ("dirty", "FINISHED"), ("clean", "FINISHED")]


def test_a_new_leader_is_told_which_results_are_dirty(world: World) -> None:
    """JobResultStoreContractTest: getDirtyResults has no clean ones. Here all are told, each with its state."""
    for job, state in (("a", "accepted"), ("b", "dirty"), ("c", "clean")):
        world.set(stored(job, state), job)
    assert recovered(world) == {"a": "accepted", "b": "dirty", "c": "clean"}


def test_a_clean_result_takes_the_place_of_the_dirty_one(world: World) -> None:
    """FileSystemJobResultStoreTest.testStoreCleanJobResultDeletesDirtyFile: and has no graph and no folders any more."""
    world.set(stored(state="dirty", staging=["/data/.out.staging/0.9"]))
    world.clean([clean_effect()], world.fence)
    assert world.holds() == stored(state="clean") and list(recovered(world)) == [JOB]


# graphs


def test_a_graph_that_is_not_there_is_none(world: World) -> None:
    """DefaultExecutionPlanStoreTest: recover a missing one."""
    assert world.ports.find([effects.FindJob(job=JOB)], world.fence) == [effects.JobFound(job=JOB, stands=None)]


def test_a_graph_of_somebody_else_is_not_replaced(world: World) -> None:
    """DefaultExecutionPlanStoreTest: an update of a plan that this store has not added is refused."""
    world.set(stored(digest="theirs"))
    [stands] = world.put(*puts([JOB], digest="ours", acceptance="0.77"))
    assert stands.digest == "theirs" and world.holds() == stored(digest="theirs")


def test_one_broken_graph_keeps_no_other_from_being_recovered(world: World) -> None:
    """DefaultExecutionPlanStoreTest: a broken handle is an error of its own; in Flink it ends the process (FLINK-30444)."""
    world.store.txn(Txn([], [Put(f"jobs/{JOB}", b"no job")]))
    world.set(stored(OTHER), OTHER)
    assert recovered(world) == {OTHER: "accepted"}
    assert world.troubles("unreadable") == [JOB]


def test_while_the_store_is_away_nothing_is_taken_for_stored(world: World) -> None:
    """DispatcherResourceCleanupTest.testFatalErrorIfJobCannotBeMarkedDirtyInJobResultStore,
    testErrorHandlingIfJobCannotBeMarkedAsCleanInJobResultStore: neither is fatal here. Each is tried until it is known."""
    world.set(stored())
    world.etcd.pause()
    for write in (lambda: world.ports.end([end_effect()], world.fence), lambda: world.clean([clean_effect()], world.fence)):
        with pytest.raises(Unavailable):
            write()
    world.etcd.resume()
    [outcome] = world.ports.end([end_effect()], world.fence)
    assert outcome.stands == stored(state="dirty")
    world.clean([clean_effect()], world.fence)
    assert world.holds() == stored(state="clean")


# files of jobs


def test_each_job_has_its_own_copy_of_a_file_and_loses_no_other_ones(world: World) -> None:
    """BlobServerDeleteTest: isolated by job; testJobCleanup. One content was uploaded, and two jobs use it."""
    world.storage.put_new(upload_path(SHA), b"code")
    graph = {**GRAPH, "modules": [{"name": "m.py", "sha256": SHA}]}
    world.put(*puts("ab", graph=graph))
    world.set(stored("a", "dirty"), "a")
    for _ in range(2):  # deleting twice is fine
        world.clean([clean_effect("a")], world.fence)
        assert not world.storage.exists(blob_path("a", "0.9", SHA))
        assert world.storage.get(blob_path("b", "0.9", SHA)) == b"code"


# archives of ended jobs


def test_an_archive_is_copied_for_the_history_when_its_job_ends_and_no_end_waits_for_it(world: World, tmp_path: Path) -> None:
    """DispatcherResourceCleanupTest.testArchivingFinishedJobToHistoryServer; in Flink a failed archiving is logged, too."""
    place = Storage(str(tmp_path / "place"))
    archivist = Archivist(world.storage, place, 1000, lambda _: None)
    ports = JobStore(world.store, world.storage, world.clock.now_ms, archivist=archivist)
    for job in (JOB, OTHER):
        world.set(stored(job), job)
    place.local().write_bytes(b"a file where the folder must be")
    [first] = ports.end([end_effect(JOB)], world.fence)
    archivist.work()
    place.local().unlink()
    [second] = ports.end([end_effect(OTHER)], world.fence)
    archivist.work()
    assert [first.stands.state, second.stands.state] == ["dirty", "dirty"]
    assert [entry.path for entry in place.list()] == [second.stands.archive]


def test_a_live_job_has_no_archive(world: World) -> None:
    """FileExecutionGraphInfoStoreTest.testUnknownGet; DispatcherResourceCleanupTest.testNotArchivingSuspendedJobToHistoryServer."""
    world.put(*puts([JOB]))
    assert world.storage.list("archives") == []


def test_an_archive_outlives_every_leader_and_is_found_by_its_job(world: World) -> None:
    """FileExecutionGraphInfoStoreTest: testPut, testStoredJobOverview; testCloseCleansUp deletes them with the process, here all stay."""
    world.put(*puts([JOB]))
    world.ports.end([end_effect()], world.fence)
    world.fence = world.elect()
    [found] = world.ports.find([effects.FindJob(job=JOB)], world.fence)
    assert found.stands is not None and found.stands.archive is not None
    assert world.storage.get(found.stands.archive)
