"""Publication of a sink on an object store that refuses, or is away, and beside a path whose server is gone."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from millrace.io.interfaces import Put, Txn, Unavailable
from millrace.runtime.performer import Fence
from services.job_master.ports import RECORD, TRIES, OneByPath
from services.task_manager.slot.attempt.exchange_files import STAGED
from tests.job_master.sinks import sink
from tests.simulation import Clock
from tests.simulation.store import MemoryEtcd, MemoryStore

REMOTE = sink(Path("x"), [f"memory://.out.staging/1.2/{part}" for part in ("0", "1")]).model_copy(update={"path": "memory://out"})


@pytest.fixture
def remote() -> Iterator[MemoryFileSystem]:
    """An object store, where all is staged."""
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    for part in ("0", "1"):
        memory.pipe_file(f"/.out.staging/1.2/{part}/part-0", part.encode())
        memory.pipe_file(f"/.out.staging/1.2/{part}/{STAGED}1", b"")
    yield memory
    memory.store.clear()


FORBIDDEN = PermissionError("Forbidden")


def refuse(monkeypatch: pytest.MonkeyPatch, times: int, failure: Exception = FORBIDDEN) -> None:
    """It does so when the second file is to be published, so many times."""
    copy, left = MemoryFileSystem.cp_file, [None] * times

    def cp_file(fs: MemoryFileSystem, path1: str, path2: str, **given: object) -> None:
        if left and path2.startswith("/out/") and "-00001-" in path2:
            left.pop()
            raise failure
        copy(fs, path1, path2, **given)

    monkeypatch.setattr(MemoryFileSystem, "cp_file", cp_file)


EPOCH = 2  # of the first write to a store


def outcomes(publisher: OneByPath) -> list[str]:
    """What comes of the tries until one has an outcome."""
    said = []
    for _ in range(100):
        try:
            outcome = publisher(REMOTE, Fence("job-master/0", EPOCH))
        except Exception as failure:
            said.append(str(failure))
            continue
        assert outcome is not None
        return [*said, outcome.problem or "published"]
    return said


@pytest.fixture
def publisher() -> OneByPath:
    store = MemoryStore(MemoryEtcd(Clock()), "/test/")
    assert store.txn(Txn([], [Put("leaders/job-master/0", b"p")])).revision == EPOCH
    return OneByPath(store)


def test_an_object_store_that_refuses_for_a_moment_costs_no_finished_job(
    remote: MemoryFileSystem, publisher: OneByPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, 3)
    assert outcomes(publisher) == ["Forbidden"] * 3 + ["published"]
    assert [remote.cat_file(file) for file in sorted(remote.find("/out"))] == [b"0", b"1"]


def test_an_object_store_that_refuses_for_good_is_the_jobs_problem_after_some_tries(
    remote: MemoryFileSystem, publisher: OneByPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, 10_000)
    said = outcomes(publisher)
    assert len(said) == TRIES and "cannot be written as a folder of files: Forbidden" in said[-1]
    assert not remote.find("/out")


class HttpError(Exception):
    """As gcsfs has it."""

    def __init__(self, code: int | str) -> None:
        super().__init__(f"it said {code}")
        self.code = code


class NoCredentialsError(Exception):
    """As botocore has it."""


class CredentialRetrievalError(Exception):
    """As botocore has it: who gives credentials, and renews them, does not answer."""


class EndpointConnectionError(Exception):
    """As botocore has it."""


class RefreshError(Exception):
    """As google.auth has it."""

    retryable = True


class HTTPClientError(Exception):
    """As botocore has it."""


class ReadError(HTTPClientError):
    """One of these."""


@pytest.mark.parametrize(
    "failure",
    [
        OSError("Forbidden: https://storage.googleapis.com/out"), OSError(errno.EINVAL, "AuthorizationHeaderMalformed"),
        FileNotFoundError("The specified bucket does not exist"), NoCredentialsError("Unable to locate credentials"), HttpError(401),
        HttpError("400"), RuntimeError("Failed to copy"), NoCredentialsError(),
    ],
)  # fmt: skip
def test_what_is_refused_in_the_words_of_a_driver_is_the_jobs_problem_after_some_tries(
    failure: Exception, remote: MemoryFileSystem, publisher: OneByPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job whose sinks are being published cannot be canceled: it would go on for ever, and nothing would say why."""
    refuse(monkeypatch, 10_000, failure)
    said = outcomes(publisher)
    assert len(said) == TRIES and said[-1].endswith(f"cannot be written as a folder of files: {str(failure) or 'NoCredentialsError'}")
    assert not remote.find("/out")


def caused(failure: Exception, cause: Exception) -> Exception:
    failure.__cause__ = cause
    return failure


@pytest.mark.parametrize(
    "failure",
    [
        EndpointConnectionError("Could not connect"), ReadError("broken"), TimeoutError("no answer"), ConnectionResetError("by peer"),
        HttpError(503), HttpError("429"), OSError(errno.EBUSY, "SlowDown"), OSError(errno.ENOSPC, "quota"),
        caused(RuntimeError("Failed to copy"), EndpointConnectionError("Could not connect")), RefreshError("503"), Unavailable("etcd"),
        CredentialRetrievalError("no answer"), MemoryError(), RuntimeError("can't start new thread"),
    ],
)  # fmt: skip
def test_an_object_store_that_is_away_costs_no_finished_job_however_long_it_is(
    failure: Exception, remote: MemoryFileSystem, publisher: OneByPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, 99, failure)
    assert outcomes(publisher) == [str(failure)] * 99 + ["published"]


@pytest.mark.parametrize("moved", [False, True])
def test_a_torn_record_of_what_is_published_fails_no_job_that_can_be_published(
    moved: bool, remote: MemoryFileSystem, publisher: OneByPath
) -> None:
    remote.pipe_file(f"/.out.staging/1.2/0/{RECORD}", b'{"moves": [["/.out')
    if moved:
        remote.pipe_file("/out/1.2-out-1-00000-part-0", b"0")
    said = outcomes(publisher)
    assert len(said) == TRIES and all("which is damaged" in each for each in said[:-1])
    assert ("is damaged" in said[-1]) == moved, "nothing is moved before the record stands"


def test_a_path_whose_server_is_gone_holds_up_no_other(
    publisher: OneByPath, remote: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To open a path may take its server's answer."""
    asked, is_over, answered, known = threading.Event(), threading.Event(), [], fsspec.core.url_to_fs

    def url_to_fs(path: str) -> Any:
        if "hangs" in path:
            asked.set()
            answered.append(is_over.wait(5))
            raise OSError("its server is gone")
        return known(path)

    monkeypatch.setattr(fsspec.core, "url_to_fs", url_to_fs)
    hangs = REMOTE.model_copy(update={"path": "memory://hangs/out"})
    hanging = threading.Thread(target=lambda: pytest.raises(OSError, publisher, hangs, Fence("job-master/0", EPOCH)))
    hanging.start()
    assert asked.wait(20)
    assert outcomes(publisher) == ["published"] and not answered
    is_over.set()
    hanging.join()
