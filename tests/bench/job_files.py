"""A job's archive on the way to its attempts: from the launch of an attempt to the file in its folder, on a TaskManager without Spark."""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from millrace.core.messages.effects import LaunchAttempt
from millrace.io.storage.store import Storage, blob_path
from services.task_manager.ports.slots import Slots
from services.task_manager.slot.attempt.modules import linked
from tests.core.of_attempts import spec_of
from tests.task_manager.simulated_slot import SimulatedSlot

from .figures import Row, Run, p50, percentile

BYTES, AT_ONCE, SLOTS = 50 << 20, 50, 4


def measure(run: Run) -> None:
    size, attempts = run.count(BYTES, 1 << 20), run.count(AT_ONCE, 8)
    with tempfile.TemporaryDirectory() as folder:
        peers = [_plain_copy(Path(folder) / "plain", size) for _ in range(3)]
        cases = {"1 attempt": (1, 1), f"{attempts} at once": (attempts, attempts), f"{attempts} on {SLOTS} slots": (SLOTS, attempts)}
        for what, (slots, count) in cases.items():
            run.say(what)
            took, whole, read = _launched(Path(folder) / what, size, slots, count)
            run.samples |= {f"{what}, s": took, f"{what}, all, s": whole, f"{what}, bytes from storage": read}
            run.rows.append(Row(
                f"an archive of {size >> 20} MB to {what}", count, f"{p50(took) * 1000:,.0f} ms",
                f"p99 {percentile(took, 99) * 1000:,.0f} ms, all {whole:.1f} s", f"a copy of the file {p50(peers) * 1000:,.0f} ms",
                f"storage read {read / size:.0f} times", "once", read == size,
            ))  # fmt: skip


def _plain_copy(path: Path, size: int) -> float:
    path.write_bytes(os.urandom(size))
    started = time.perf_counter()
    path.with_suffix(".copy").write_bytes(path.read_bytes())
    return time.perf_counter() - started


class _Counting(Storage):
    read = 0

    def chunks(self, path: str, start: int, length: int) -> Any:
        for piece in super().chunks(path, start, length):
            self.read += len(piece)
            yield piece


def _launched(folder: Path, size: int, slots: int, attempts: int) -> tuple[list[float], float, int]:
    """(seconds of each attempt, seconds of all, bytes that storage gave)."""
    storage, data = _Counting(str(folder / "storage")), os.urandom(size)
    sha256 = hashlib.sha256(data).hexdigest()
    storage.put_new(blob_path("j", "ac", sha256), data)
    module: dict[str, Any] = {"name": "a.zip", "sha256": sha256, "kind": "archive"}
    begun: dict[str, float] = {}
    took: list[float] = []
    free: list[int] = list(range(slots))
    turned = threading.Condition()

    class Slot(SimulatedSlot):
        def run(self, attempt: str, spec: dict[str, Any], work: str, log: str, blobs: str) -> None:
            super().run(attempt, spec, work, log, blobs)
            threading.Thread(target=self._take, args=(attempt, spec, work, blobs)).start()

        def _take(self, attempt: str, spec: dict[str, Any], work: str, blobs: str) -> None:
            linked(module, SimpleNamespace(work=work, blobs=blobs), Path(work))  # type: ignore[arg-type]  # all that it reads of Dirs
            took.append(time.perf_counter() - begun[attempt])
            self.start()
            self.end("finished", report=self.report(spec))
            self.ready()
            with turned:
                free.append(self.number)
                turned.notify()

    made = Slots(lambda number, on_event: Slot(number, on_event, prompt=False), slots, folder / "tm", storage, lambda _: None)
    made.start()
    started = time.perf_counter()
    for number in range(attempts):
        with turned:
            turned.wait_for(lambda: bool(free))
            slot = free.pop(0)
        attempt = f"j/0-t/{number}/1"
        begun[attempt] = time.perf_counter()
        made.launch(LaunchAttempt(slot=slot, attempt=attempt, acceptance="ac", folder=f"ac/{attempt}", spec=spec_of(modules=[module])))
    with turned:
        turned.wait_for(lambda: len(took) == attempts)
    whole = time.perf_counter() - started
    made.close(5)
    return took, whole, storage.read
