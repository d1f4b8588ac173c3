"""The Dispatcher's ports, against etcd in memory and a real folder."""

from __future__ import annotations

import socket
import threading
import tracemalloc
from pathlib import Path

import pytest

from millrace.core.messages import effects
from millrace.core.messages.effects import StoredJob
from millrace.core.messages.execution import Archive
from millrace.io import interfaces
from millrace.io.interfaces import PAGE, Entry, Put, Txn, TxnResult, Unavailable
from millrace.io.storage.store import StorageError, blob_path, upload_path
from millrace.runtime import troubles
from millrace.runtime.performer import Refused
from services.dispatcher.ports import JobStore
from services.dispatcher.staging import Staging, delete_staging, place_of
from services.dispatcher.stored import batches, value_of
from tests.core.of_dispatcher import GRAPH, JOB, stored
from tests.core.of_dispatcher_ports import World, clean_effect, end_effect, puts

SHA = "0" * 64


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "storage")


def test_forty_submissions_are_one_transaction(world: World) -> None:
    names = [f"job-{number}" for number in range(40)]
    before = world.etcd.revision
    assert world.put(*puts(names)) == [stored(name, graph=None) for name in names], "their graphs are known"
    assert world.etcd.revision == before + 1
    assert [world.holds(name) for name in names] == [stored(name) for name in names]


def test_a_batch_that_meets_a_known_id_is_split_and_answers_what_stands(world: World) -> None:
    known = stored("b", "clean", digest="x")
    world.set(known, "b")
    assert world.put(*puts("abc")) == [stored("a", graph=None), known, stored("c", graph=None)]
    assert world.holds("b") == known


def test_a_put_that_is_performed_again_is_ours(world: World) -> None:
    put = puts([JOB])
    assert world.put(*put) == [stored(graph=None)]
    assert world.put(*put) == [stored()], "as it was read"


def test_large_graphs_go_in_several_transactions(world: World) -> None:
    large = {"name": "one", "vertices": {"v": {"sql": f"SELECT '{'x' * 250_000}'"}}}
    names = [f"job-{number}" for number in range(7)]
    before = world.etcd.revision
    assert world.put(*puts(names, graph=large)) == [stored(name, graph=None) for name in names]
    assert world.etcd.revision == before + 4


def test_who_leads_no_more_changes_nothing_and_knows_nothing(world: World) -> None:
    world.elect()
    for perform in (
        lambda: world.put(*puts([JOB])),
        lambda: world.put(effects.PutJobGraph(job=JOB, stored=stored(), accept_before_ms=1)),
        lambda: world.ports.end([end_effect()], world.fence),
    ):
        with pytest.raises(Refused):
            perform()
    assert world.holds() is None
    world.set(stored(state="dirty"))
    with pytest.raises(Refused):
        world.clean([clean_effect()], world.fence)
    assert world.holds() == stored(state="dirty")


def test_what_comes_too_late_by_the_real_clock_is_not_put(world: World) -> None:
    put = effects.PutJobGraph(job=JOB, stored=stored(), accept_before_ms=world.clock.now_ms())
    world.clock.advance(1)
    assert world.put(put) == ["nothing"]
    assert world.holds() is None
    in_time = put.model_copy(update={"accept_before_ms": world.clock.now_ms()})
    assert world.put(in_time) == [stored(graph=None)]
    assert world.put(put) == [stored()], "late, but it stands already"


@pytest.mark.parametrize("fault", ["unknown, done", "unknown, not done"])
def test_a_put_whose_answer_was_lost_is_tried_until_known_even_when_it_is_late_then(world: World, fault: str) -> None:
    put = effects.PutJobGraph(job=JOB, stored=stored(), accept_before_ms=world.clock.now_ms())
    world.store.faults.append(fault)
    assert world.put(put) == [None]
    world.clock.advance(10)
    assert world.put(put) == [stored() if fault == "unknown, done" else stored(graph=None)]
    assert world.holds() == stored()


def test_when_etcd_is_away_nothing_is_known(world: World) -> None:
    world.etcd.pause()
    with pytest.raises(Unavailable):
        world.put(*puts([JOB]))


def test_an_accepted_job_keeps_its_modules(world: World) -> None:
    world.storage.put_new(upload_path(SHA), b"code")
    module = {"name": "m.py", "sha256": SHA}
    missing = {"name": "n.py", "sha256": "1" * 64}
    graph = {**GRAPH, "modules": [module, missing]}
    assert world.put(effects.PutJobGraph(job=JOB, stored=stored(graph=graph))) == [stored(graph=None)]
    world.storage.delete_tree("uploads")
    assert world.storage.get(blob_path(JOB, "0.9", SHA)) == b"code"


def test_nothing_is_accepted_while_storage_cannot_keep_its_modules(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was accepted, and then FAILED for want of an upload that was there."""
    world.storage.put_new(upload_path(SHA), b"code")
    put, copy_new = puts(["with", "without"]), world.storage.copy_new
    with_module = put[0].stored.model_copy(update={"graph": {**GRAPH, "modules": [{"name": "m.py", "sha256": SHA}]}})
    put[0] = put[0].model_copy(update={"stored": with_module})

    def away(source: str, path: str) -> None:
        raise StorageError(path, "the disk reports an error", "check the disk")

    monkeypatch.setattr(world.storage, "copy_new", away)
    waits, other = world.put(*put)
    assert (waits, world.holds("with")) == (None, None)
    assert other is not None, "another one does not wait for it"
    monkeypatch.setattr(world.storage, "copy_new", copy_new)
    assert world.put(put[0]) == [with_module.model_copy(update={"graph": None})]
    assert world.storage.get(blob_path("with", with_module.acceptance, SHA)) == b"code"


def test_modules_that_were_copied_in_vain_go(world: World) -> None:
    world.set(stored())
    world.storage.put_new(upload_path(SHA), b"code")
    graph = {**GRAPH, "modules": [{"name": "m.py", "sha256": SHA}]}
    late = stored(graph=graph).model_copy(update={"acceptance": "0.77"})
    assert world.put(effects.PutJobGraph(job=JOB, stored=late)) == [stored()]
    assert not world.storage.exists(blob_path(JOB, "0.77", SHA))


def test_find(world: World) -> None:
    world.set(stored())
    finds = [effects.FindJob(job=JOB), effects.FindJob(job="other")]
    found = world.ports.find(finds, world.fence)
    assert found == [effects.JobFound(job=JOB, stands=stored()), effects.JobFound(job="other", stands=None)]


def test_an_ending_replaces_the_accepted_job_once_its_archive_is_readable(world: World) -> None:
    world.put(*puts("abc"))
    known = stored("b", "clean", status="CANCELED")
    world.set(known, "b")
    outcomes = world.ports.end([end_effect("a"), end_effect("b"), end_effect("c"), end_effect("d")], world.fence)
    endings = [stored("a", "dirty"), known, stored("c", "dirty"), stored("d", "dirty")]
    assert [outcome.stands for outcome in outcomes] == endings
    assert [world.holds(name) for name in "abcd"] == endings
    assert Archive.model_validate_json(world.storage.get("archives/a/0.9/0.11.json")) == end_effect("a").archive


def test_no_ending_without_its_archive(world: World, tmp_path: Path) -> None:
    world.put(*puts("ab"))
    (tmp_path / "storage/archives").mkdir(parents=True)
    (tmp_path / "storage/archives/a").write_text("in the way")
    first, second = world.ports.end([end_effect("a"), end_effect("b")], world.fence)
    assert (first, second.stands) == (None, stored("b", "dirty"))
    assert world.holds("a") == stored("a")


def test_an_ending_whose_answer_was_lost_stands(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.put(*puts([JOB]))
    txn = world.store.txn

    def failing(request: Txn) -> TxnResult:
        if request.then:  # the write, not the read before it
            world.store.faults.append("unknown, done")
        return txn(request)

    monkeypatch.setattr(world.store, "txn", failing)
    with pytest.raises(Unavailable):
        world.ports.end([end_effect()], world.fence)
    monkeypatch.undo()
    [outcome] = world.ports.end([end_effect(status="FAILED")], world.fence)
    assert outcome.stands == stored(state="dirty"), "the first one counts"


def test_cleaning_deletes_leavings_then_leaves_a_tombstone(world: World, tmp_path: Path) -> None:
    world.set(stored(state="dirty"))
    for path in ("exchange/0.9/1/0-v/part", blob_path(JOB, "0.9", SHA), "exchange/0.8/1/0-v/part"):
        world.storage.put_new(path, b"x")
    staging = tmp_path / "data/.out.staging"
    for folder in ("0.9/1", "0.8/1"):
        (staging / folder).mkdir(parents=True)
    effect = clean_effect(staging=[f"file://{staging}/0.9", "relative", str(tmp_path / "data")])
    assert world.clean([effect], world.fence) == [effects.JobCleaned(job=JOB)]
    assert world.holds() == stored(state="clean")
    assert [entry.path for entry in world.storage.list()] == ["exchange/0.8/1/0-v/part"]
    assert [each.name for each in staging.iterdir()] == ["0.8"]
    assert world.clean([effect], world.fence) == [effects.JobCleaned(job=JOB)], "a repeat finds it done"
    delete_staging(f"{staging}/0.8")
    assert not staging.exists()


def test_what_cannot_be_deleted_holds_up_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sweep finds it."""

    def away(path: str) -> None:
        raise StorageError(path, "the disk reports an error", "check the disk")

    world.set(stored(state="dirty"))
    monkeypatch.setattr(world.storage, "delete_tree", away)
    assert world.clean([clean_effect()], world.fence) == [effects.JobCleaned(job=JOB)]
    assert world.holds() == stored(state="clean")


def test_staged_output_whose_place_hangs_is_told_and_holds_up_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A sink on a mount whose server is gone: no job's leavings were deleted any more."""
    let_go = threading.Event()

    def delete(folder: str, schemes: object) -> None:
        if "hangs" in folder:
            let_go.wait(60)
        else:
            delete_staging(folder)

    monkeypatch.setattr("services.dispatcher.staging.delete_staging", delete)
    fine = tmp_path / "data/.out.staging/0.9"
    fine.mkdir(parents=True)
    world.ports = JobStore(world.store, world.storage, world.clock.now_ms, Staging(patience_s=0.2))
    clean = world.ports.ports()[effects.CleanJob]
    for job in "ab":
        world.set(stored(job, "dirty"), job)
    hanging = clean_effect("a", staging=["/gone/.hangs.staging/0.9"])
    assert clean([hanging, clean_effect("b", staging=[str(fine)])], world.fence) == [effects.JobCleaned(job=job) for job in "ab"]
    assert not fine.exists() and world.troubles("staging") == ["a"]
    [(_, facts, _)] = troubles.noted(world.store, "staging")
    assert facts.folders == ["/gone/.hangs.staging/0.9"] and "does not answer" in facts.reason
    let_go.set()


def test_when_all_folders_of_some_servers_hang_those_of_others_are_deleted(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight sinks on one mount whose server is gone took all threads, and nothing was deleted any more until the process ended."""
    let_go = threading.Event()

    def delete(folder: str, schemes: object) -> None:
        if "hangs" in folder:
            let_go.wait(60)
        else:
            delete_staging(folder)

    monkeypatch.setattr("services.dispatcher.staging.delete_staging", delete)
    mounts = tmp_path / "mounts"
    mounts.write_text("x / ext4 rw 0 0\nserver:/x /far\\040off nfs rw 0 0\n")
    monkeypatch.setattr("services.dispatcher.staging.MOUNTS", str(mounts))
    servers = ("/far off/hangs{}", "s3://hangs{}", "hdfs://hangs:8020/{}")
    staging = Staging(patience_s=0.05)
    for _ in range(3):
        hanging = [f"{server.format(number)}/.out.staging/0.9" for server in servers for number in range(20)]
        assert list(staging.delete(hanging)) == hanging
    staging._patience_s = 30
    fine = tmp_path / "data/.out.staging/0.9"
    fine.mkdir(parents=True)
    assert staging.delete([str(fine)]) == {} and not fine.exists()
    let_go.set()


@pytest.mark.parametrize("path,place", [
    ("/data/.o.staging/1", "/"), ("file:///far/x/.o.staging/1", "/far"), ("/far/near/.o.staging/1", "/far/near"), ("/farther/x", "/"),
    ("s3://a/x", "s3"), ("s3://b/x", "s3"), ("hdfs://h:1/x", "hdfs://h:1"), ("hdfs://g:1/x", "hdfs://g:1"),
])  # fmt: skip
def test_what_hangs_together_is_told_by_the_path(path: str, place: str) -> None:
    assert place_of(path, ["/", "/far", "/far/near"]) == place


@pytest.mark.parametrize("url", ["http://127.0.0.1:{port}/admin?do=/.x.staging/0.9", "simplecache::http://127.0.0.1:{port}/.x.staging/0.9"])
def test_no_host_that_a_submission_names_is_asked_anything(world: World, url: str) -> None:
    """The Dispatcher did GET /admin?do=... from its own network when a job with such a sink had failed."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        world.set(stored(state="dirty"))
        folder = url.format(port=server.getsockname()[1])
        assert world.clean([clean_effect(staging=[folder])], world.fence) == [effects.JobCleaned(job=JOB)]
        with pytest.raises(TimeoutError):
            server.accept()
    assert world.troubles("staging") == [JOB]


def test_endings_that_come_again_late_or_for_nobody_change_nothing(world: World) -> None:
    """What a store of results owes: dirty twice is once, dirty after clean stays clean, clean twice or of nobody is nothing."""
    world.put(*puts([JOB]))
    first, again = stored(state="dirty"), end_effect(status="CANCELED")
    for effect in (end_effect(), end_effect(), again):
        [outcome] = world.ports.end([effect], world.fence)
        assert outcome.stands == world.holds() == first
    for _ in range(2):
        assert world.clean([clean_effect()], world.fence) == [effects.JobCleaned(job=JOB)]
        assert world.holds() == stored(state="clean")
    [outcome] = world.ports.end([again], world.fence)
    assert outcome.stands == world.holds() == stored(state="clean")
    assert world.clean([clean_effect("nobody")], world.fence) == [effects.JobCleaned(job="nobody")]
    assert world.holds("nobody") is None


@pytest.mark.parametrize(
    "path", ["/data/out", "/data/.out.staging", "/data/.out.staging/..", "/data/out.staging/0.9", ""]
)
def test_nothing_but_a_jobs_own_staging_is_deleted(path: str) -> None:
    with pytest.raises(OSError, match="no staging folder"):
        delete_staging(path)


def test_recovery_tells_all_that_lives_and_the_newest_ended_in_pages(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.dispatcher.recovering.PAGE_BYTES", 500)
    expected = {}
    for number in range(9):
        job = f"job-{number}"
        stands = stored(job, ["accepted", "dirty", "clean"][number % 3], **({"ended_ms": number} if number % 3 else {}))
        world.set(stands, job)
        expected[job] = stands
    del expected["job-2"]
    told: dict[str, StoredJob] = {}
    after, pages = "", 0
    while after is not None:
        page = world.recover(effects.RecoverJobs(after=after, retained=2), world.fence)
        assert not told.keys() & page.jobs.keys()
        told |= page.jobs
        after, pages = page.through, pages + 1
    assert told == expected
    assert pages > 2


@pytest.mark.parametrize(
    "foreign",
    [
        {"state": "accepted", "graph": None},
        {"state": "dirty", "status": None},
        {"state": "dirty", "status": "WHAT"},
        {"state": "clean", "status": None},
    ],
)
def test_a_job_that_lacks_what_its_state_needs_is_its_own_trouble(world: World, foreign: dict) -> None:
    """Each of them ended every Dispatcher that folded what etcd told of it."""
    world.set(stored("a"), "a")
    world.set(stored("b").model_copy(update={"graph": GRAPH, **foreign}), "b")
    page = world.recover(effects.RecoverJobs(retained=9), world.fence)
    assert (page.jobs, world.troubles("unreadable")) == ({"a": stored("a")}, ["b"])
    [found] = world.ports.find([effects.FindJob(job="b")], world.fence)
    assert found.stands is None and f"is {foreign['state']} without" in found.unreadable


def test_a_key_that_holds_no_job_is_that_jobs_trouble_alone(world: World) -> None:
    """No job came back in a new generation, and whoever asked in one batch with it had no answer."""
    world.set(stored("a"), "a")
    for job, value in (("b", b"{torn"), ("c", b'{"state": "of somebody else"}')):
        world.store.txn(Txn([], [Put(f"jobs/{job}", value)]))
    page = world.recover(effects.RecoverJobs(retained=9), world.fence)
    assert (page.jobs, page.through) == ({"a": stored("a")}, None)
    assert world.troubles("unreadable") == ["b", "c"]
    found = world.ports.find([effects.FindJob(job=job) for job in "abcd"], world.fence)
    assert [each.stands for each in found] == [stored("a"), None, None, None]
    assert [bool(each.unreadable) for each in found] == [False, True, True, False]
    put, other = world.ports.put_graphs(puts(["b", "e"]), world.fence)
    assert put.unreadable and put.stands is None and other.stands == stored("e", graph=None)
    [ended] = world.ports.end([end_effect("b")], world.fence)
    assert ended.stands == world.holds("b") == stored("b", "dirty"), "the log knows how it ended"


def test_recovery_holds_a_page_of_etcd_however_many_jobs_have_ended(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It listed all that ever were, and could not end: 2 KB for each of them."""
    monkeypatch.setattr(interfaces, "PAGE_MOST", PAGE)
    count = 20 * PAGE
    for number in range(count):
        world.set(stored(f"old-{number:05}", "clean", ended_ms=number), f"old-{number:05}")
    world.set(stored("alive"), "alive")
    monkeypatch.setattr(world.store, "list", lambda prefix: pytest.fail("a listing of all"))
    tracemalloc.start()
    page = world.recover(effects.RecoverJobs(retained=3), world.fence)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert list(page.jobs) == ["alive", *(f"old-{number:05}" for number in range(count - 3, count))]
    assert peak < 2_000 * count / 4, peak


def test_recovery_asks_in_thousands_for_small_tombstones_and_in_few_for_large_graphs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three million tombstones it made 94,000 pages of 64, before it told of the first job."""
    value, large = value_of(stored("j", "clean", ended_ms=1)), value_of(stored("j", graph={"name": "x" * 100_000}))
    held = {f"jobs/a{number:05}": value for number in range(6_000)} | {f"jobs/b{number:03}": large for number in range(200)}
    for batch in batches((Put(key, each), max(7_000, len(each))) for key, each in held.items()):
        world.store.txn(Txn([], batch))
    pages: list[int] = []
    page = world.store.page

    def counted(prefix: str, after: str = "", most: int = PAGE) -> list[Entry]:
        found = page(prefix, after, most)
        size = sum(len(each.value) for each in found)
        if size > PAGE * len(large):
            raise Unavailable("it takes longer than a call may")
        pages.append(size)
        return found

    monkeypatch.setattr(world.store, "page", counted)
    read = [each.key for each in interfaces.pages(world.store, "jobs/")]
    assert read == sorted(held)
    assert max(pages) <= PAGE * len(large) and len(pages) < 30, "and not 97"


def test_recovery_goes_on_under_another_leader(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.dispatcher.recovering.PAGE_BYTES", 1)
    for job in "abc":
        world.set(stored(job), job)
    first = world.recover(effects.RecoverJobs(retained=9), world.fence)
    assert (list(first.jobs), first.through) == (["a"], "a")
    world.set(stored("d"), "d")
    fresh = JobStore(world.store, world.storage)
    for ports in (world.ports, fresh):
        world.ports = ports
        second = world.recover(effects.RecoverJobs(after="a", retained=9), world.elect())
        third = world.recover(effects.RecoverJobs(after="c", retained=9), world.fence)
        assert (list(second.jobs), list(third.jobs), third.through) == (["b"], ["d"], None)
