"""Snapshots in chunks, made by a copy of the process; the name of a build."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import millrace
from millrace.core.fold import Fold, ScopeState
from millrace.core.topics import Topology
from millrace.io.interfaces import Txn, TxnResult
from millrace.io.storage.store import Storage
from millrace.runtime import build
from millrace.runtime.forked import await_children, forked
from millrace.runtime.saving import Saving
from millrace.runtime.snapshots import CHUNK_ENTRIES, Snapshots, chunks, folder, freeze, thaw
from services.dispatcher.core.machine import Dispatcher
from services.dispatcher.core.state import EndedJob, LiveJob
from services.resource_manager.core.machine import ResourceManager
from tests.simulation import Clock
from tests.simulation.store import MemoryEtcd, MemoryStore

MACHINE = Dispatcher(Topology())


def folded_with(jobs: int) -> ScopeState:
    folded = Fold(MACHINE, Topology()).blank(3, 17)
    for number in range(jobs):
        folded.state.live[f"job-{number}"] = LiveJob(f"1.{number}", "d", 0, number, 'a "name"\n', f'{{"n": {number}}}')
    return folded


class Collected:
    """What a copy gives."""

    def __init__(self) -> None:
        self.data: bytes | None = b"nothing yet"
        self._there = threading.Event()

    def __call__(self, data: bytes | None) -> None:
        self.data = data
        self._there.set()

    def wait(self) -> bytes | None:
        assert self._there.wait(120)
        return self.data


@pytest.mark.parametrize("jobs", [0, 1, CHUNK_ENTRIES, 2 * CHUNK_ENTRIES + 1])
def test_what_is_thawed_is_what_was_frozen(jobs: int) -> None:
    folded = folded_with(jobs)
    data = freeze(MACHINE, folded)
    assert thaw(MACHINE, data) == folded
    assert list(thaw(MACHINE, data).state.live) == list(folded.state.live), "in the same order"
    assert freeze(MACHINE, thaw(MACHINE, data)) == data


def test_a_long_table_is_written_as_the_type_that_it_has(recwarn: pytest.WarningsRecorder) -> None:
    """Else each piece of it is warned of, on the stderr of each Dispatcher with many ended jobs."""
    folded = folded_with(0)
    for number in range(CHUNK_ENTRIES + 1):
        folded.state.ended[f"job-{number}"] = EndedJob(f"1.{number}", "d", "name", "FINISHED", 1, 2, None)
    assert thaw(MACHINE, freeze(MACHINE, folded)) == folded
    assert not recwarn.list


def test_what_this_build_does_not_know_is_refused_in_a_sentence() -> None:
    data = freeze(MACHINE, folded_with(1))
    with pytest.raises(ValueError, match="there is no field"):
        thaw(ResourceManager(1), data)
    with pytest.raises(ValueError):
        thaw(MACHINE, b"no snapshot")


def test_a_copy_of_the_process_makes_it_while_the_state_goes_on() -> None:
    folded, collected = folded_with(3 * CHUNK_ENTRIES), Collected()
    data = freeze(MACHINE, folded)

    def slowly() -> Iterator[bytes]:
        for chunk in chunks(MACHINE, folded):
            time.sleep(0.001)
            yield chunk

    forked(slowly, collected)
    folded.state.live.clear()
    folded.next_offset += 1
    assert collected.wait() == data


def test_a_copy_that_fails_gives_nothing_says_why_and_leaves_no_process(capfd: pytest.CaptureFixture[str]) -> None:
    def fails() -> Iterator[bytes]:
        yield b"half"
        raise ValueError("no bytes can be made of it")

    before, collected = psutil.Process().children(), Collected()
    forked(fails, collected)
    assert collected.wait() is None
    assert [child for child in psutil.Process().children() if child not in before] == []
    assert "ValueError: no bytes can be made of it" in capfd.readouterr().err


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_copy_whose_end_nobody_learns_gives_nothing_and_a_service_learns_it() -> None:
    """A process inherits that the ends of its children are ignored."""
    kept = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        ignored, learned = Collected(), Collected()
        forked(lambda: iter([b"all"]), ignored)
        for thread in [each for each in threading.enumerate() if each.name == "forked"]:
            thread.join(30)
        assert ignored.data is None, "else no further one is ever made"
        await_children()
        forked(lambda: iter([b"all"]), learned)
        assert learned.wait() == b"all"
    finally:
        signal.signal(signal.SIGCHLD, kept)


def test_a_copy_keeps_nothing_open_that_belongs_to_its_parent() -> None:
    reading, writing = os.pipe()
    collected = Collected()

    def tells() -> Iterator[bytes]:
        for number in (reading, writing):
            try:
                os.fstat(number)
                yield b"open"
            except OSError:
                yield b"closed "

    try:
        forked(tells, collected)
        assert collected.wait() == b"closed closed "
    finally:
        os.close(reading)
        os.close(writing)


def test_a_file_of_another_in_its_folder_costs_no_snapshot(tmp_path: Path) -> None:
    """NFS and file managers leave some. At the end of a term it cost the key's return as well."""
    snapshots = Snapshots(MemoryStore(MemoryEtcd(Clock()), "/test/"), Storage(str(tmp_path)), MACHINE)
    place, folded = tmp_path / folder(MACHINE.scope), folded_with(1)
    place.mkdir(parents=True)
    (place / ".nfs0001").write_text("x")
    for _ in range(3):
        assert snapshots.save(folded) is not None
        folded.next_offset += 1
    assert sorted(path.name.split("-")[1] for path in place.glob("*.zst")) == ["18", "19"] and (place / ".nfs0001").exists()


def test_snapshots_of_another_cluster_in_the_same_folder_are_neither_taken_nor_deleted(tmp_path: Path) -> None:
    """The storage was given over. Each cluster's logs begin at 0, and whoever deletes below a snapshot deletes what has a lower offset."""
    storage, place = Storage(str(tmp_path)), tmp_path / folder(MACHINE.scope)
    stores = {cluster: MemoryStore(MemoryEtcd(Clock()), "/test/") for cluster in ("a" * 32, "b" * 32, "")}  # "": of 0.1
    for cluster, store in stores.items():
        snapshots, folded = Snapshots(store, storage, MACHINE, cluster), folded_with(1)
        for _ in range(3):
            assert snapshots.save(folded) is not None
            folded.next_offset += 1
    names = sorted(path.name.rpartition("-")[0] for path in place.glob("*.zst"))
    assert names == ["3-18", "3-19", *(f"{each * 8}-3-{offset}" for each in "ab" for offset in (18, 19))]
    upgraded, folded = Snapshots(stores[""], storage, MACHINE, "c" * 32), folded_with(1)
    for offset in (30, 31, 32):
        folded.next_offset = offset
        assert upgraded.save(folded) is not None
    names = sorted(path.name.rpartition("-")[0] for path in place.glob("*.zst"))
    assert names == [*(f"{each * 8}-3-{offset}" for each in "ab" for offset in (18, 19)), "cccccccc-3-31", "cccccccc-3-32"]
    pointer = upgraded.newest(3)
    assert pointer is not None and upgraded.load(pointer) is not None


def test_the_last_snapshot_of_a_term_is_written_though_another_is_stored_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one of a copy of the process came between its look and its change: then no other build went on from there."""
    store, storage = MemoryStore(MemoryEtcd(Clock()), "/test/"), Storage(str(tmp_path))
    snapshots, folded, beside = Snapshots(store, storage, MACHINE), folded_with(2), folded_with(1)
    folded.next_offset += 5
    change = store.txn

    def late(txn: Txn) -> TxnResult:
        monkeypatch.undo()
        assert snapshots.save(beside) is not None
        return change(txn)

    monkeypatch.setattr(store, "txn", late)
    Saving(snapshots, MACHINE, lambda make, keep: None, lambda offset: None).last(folded)
    pointer = snapshots.newest(3)
    assert pointer is not None and (pointer.offset, pointer.final) == (folded.next_offset, True)
    loaded = snapshots.load(pointer)
    assert loaded is not None and loaded[0] == folded


def test_a_build_is_named_after_its_version_and_the_code_that_folds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    standing = build.build_of([MACHINE])
    assert standing.startswith(f"{millrace.__version__}+") and standing == build.build_of([MACHINE])
    assert standing != build.build_of([ResourceManager(1)]), "each service has a core of its own"
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "a.py").write_text("1")
    monkeypatch.setattr(build.millrace, "__file__", str(tmp_path / "__init__.py"))
    first = build.build_of([MACHINE])
    (tmp_path / "core" / "a.py").write_text("2")
    second = build.build_of([MACHINE])
    monkeypatch.setattr(build.pydantic, "VERSION", "another one, which may write the same words otherwise")
    assert len({standing, first, second, build.build_of([MACHINE])}) == 4


def test_one_code_in_a_wheel_and_in_a_checkout_is_one_build(tmp_path: Path) -> None:
    """Else each waits for the other's handover, and `millrace recover` refuses."""
    top = Path(millrace.__file__).parents[2]
    places = {"checkout": ("shared/millrace", "services"), "wheel": ("millrace", "services")}
    said = []
    for place, targets in places.items():
        for source, target in zip(places["checkout"], targets, strict=True):
            shutil.copytree(top / source, tmp_path / place / target, ignore=shutil.ignore_patterns("__pycache__"))
        code = (
            "from millrace.runtime.build import build_of; from services.dispatcher.core.machine import Dispatcher; "
            "from services.job_master.core.machine import JobMaster; from millrace.core.topics import Topology; import millrace; "
            "print(millrace.__file__, build_of([Dispatcher(Topology()), JobMaster(0)]))"
        )
        folders = [str((tmp_path / place / target).parent) for target in targets]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
        done = subprocess.run([sys.executable, "-c", code], env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
        file, _, build_name = done.stdout.rpartition(" ")
        assert file.startswith(str(tmp_path)), done.stderr
        said.append(build_name)
    assert said[0] == said[1]
