"""A fetched folder is there whole and verified, or not at all."""

from __future__ import annotations

import gc
import hashlib
import multiprocessing
from pathlib import Path

import pytest

from deploy.local import kafka
from deploy.local.downloads import cache_folder, fetched, read_pins, verify
from deploy.local.errors import LocalError

CONTENTS = {"a.jar": b"first", "b.jar": b"second"}
PINS = {name: hashlib.sha256(content).hexdigest() for name, content in CONTENTS.items()}


class Source:
    """Writes what it is told to, and counts."""

    def __init__(self, contents: dict[str, bytes]) -> None:
        self.contents = contents
        self.fetches = 0

    def __call__(self, files: Path, scratch: Path) -> None:
        self.fetches += 1
        (scratch / "rubbish").write_text("of the tool that fetches")
        for name, content in self.contents.items():
            (files / name).write_bytes(content)


def test_fetched_once_and_then_only_looked_at(tmp_path):
    source = Source(CONTENTS)
    for _ in range(2):
        assert fetched(tmp_path / "kafka", PINS, source) == tmp_path / "kafka"
    assert source.fetches == 1
    assert {path.name for path in (tmp_path / "kafka").iterdir()} == {"a.jar", "b.jar", ".verified"}
    assert {path.name for path in tmp_path.iterdir()} == {"kafka", "kafka.lock"}


@pytest.mark.parametrize(
    ("contents", "wrong"),
    [
        ({**CONTENTS, "a.jar": b"other"}, f"a.jar has SHA-256 {hashlib.sha256(b'other').hexdigest()} instead of"),
        ({"a.jar": b"first"}, "b.jar is missing"),
        ({**CONTENTS, "c.jar": b"third"}, "c.jar is not among the pinned files"),
    ],
)
def test_what_is_not_as_pinned_is_not_kept(tmp_path, contents, wrong):
    with pytest.raises(LocalError, match="is not what is pinned") as error:
        fetched(tmp_path / "kafka", PINS, Source(contents))
    assert wrong in str(error.value)
    assert {path.name for path in tmp_path.iterdir()} == {"kafka.lock"}
    fetched(tmp_path / "kafka", PINS, Source(CONTENTS))  # and the next try is free of it


def test_every_difference_is_named(tmp_path):
    (tmp_path / "a.jar").write_bytes(b"other")
    with pytest.raises(LocalError) as error:
        verify(tmp_path, PINS)
    assert [line.split()[0] for line in error.value.detail.splitlines()] == ["b.jar", "a.jar"]


def test_a_damaged_folder_is_fetched_again(tmp_path):
    source = Source(CONTENTS)
    folder = fetched(tmp_path / "kafka", PINS, source)
    (folder / "a.jar").write_bytes(b"trunc")
    (folder / "b.jar").unlink()
    fetched(folder, PINS, source)
    assert source.fetches == 2
    assert (folder / "b.jar").read_bytes() == b"second"


def test_other_pins_are_fetched_anew(tmp_path):
    folder = fetched(tmp_path / "kafka", PINS, Source(CONTENTS))
    newer = {"a.jar": hashlib.sha256(b"newer").hexdigest()}
    fetched(folder, newer, Source({"a.jar": b"newer"}))
    assert {path.name for path in folder.iterdir()} == {"a.jar", ".verified"}


def test_a_fetch_that_fails_leaves_nothing(tmp_path):
    def fetch(files: Path, _: Path) -> None:
        (files / "a.jar").write_bytes(b"first")
        raise LocalError("no network")

    with pytest.raises(LocalError, match="^no network$"):
        fetched(tmp_path / "kafka", PINS, fetch)
    assert {path.name for path in tmp_path.iterdir()} == {"kafka.lock"}


def _fetch_in_a_process(folder: Path, counter: Path, barrier) -> None:
    gc.freeze()  # to collect a Kafka client of the parent's, without its threads, ends this process

    def fetch(files: Path, _: Path) -> None:
        with open(counter, "a") as count:
            count.write("x")
        for name, content in CONTENTS.items():
            (files / name).write_bytes(content)

    barrier.wait()
    fetched(folder, PINS, fetch)
    verify_whole = {name: (folder / name).read_bytes() for name in PINS}
    assert verify_whole == CONTENTS


def test_several_at_once_fetch_once(tmp_path):
    spawn = multiprocessing.get_context("fork")  # "spawn" leaves a process behind that ends with the test run only
    barrier = spawn.Barrier(4)
    arguments = (tmp_path / "kafka", tmp_path / "count", barrier)
    processes = [spawn.Process(target=_fetch_in_a_process, args=arguments) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0, 0]
    assert (tmp_path / "count").read_text() == "x"


def test_the_cache_is_where_it_is_told():
    assert cache_folder({"MILLRACE_CACHE": "/some/where"}) == Path("/some/where")
    assert cache_folder({}) == Path(__file__).parents[2] / ".millrace" / "cache"


def test_a_tampered_jar_of_kafka_is_refused(tmp_path, monkeypatch):
    """With the real pins and the real jars, one of them changed on its way."""
    jars = kafka.fetch_kafka().folder

    def tampering(_java, _modules, files: Path, _scratch: Path, log: Path) -> None:
        for name in read_pins(kafka.PINS):
            (files / name).hardlink_to(jars / name)
        (files / "re2j-1.8.jar").unlink()
        (files / "re2j-1.8.jar").write_bytes((jars / "re2j-1.8.jar").read_bytes() + b"!")

    monkeypatch.setenv("MILLRACE_CACHE", str(tmp_path))
    monkeypatch.setattr(kafka, "run_ivy", tampering)
    with pytest.raises(LocalError, match=r"re2j-1\.8\.jar has SHA-256 .* nothing of it was kept"):
        kafka.fetch_kafka()
    assert not (tmp_path / "kafka-4.3.1").exists()


def test_a_fetch_without_success_says_where_to_look(tmp_path, monkeypatch):
    (tmp_path / "modules.xml").write_text("<no-ivy-file/>")
    monkeypatch.setenv("MILLRACE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(kafka, "MODULES", tmp_path / "modules.xml")
    with pytest.raises(LocalError, match=r"could not be fetched: see .*kafka-4\.3\.1\.fetch\.log") as error:
        kafka.fetch_kafka()
    assert "no-ivy-file" in error.value.detail
    assert not (tmp_path / "cache" / "kafka-4.3.1").exists()
