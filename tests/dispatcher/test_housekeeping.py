"""What is old goes, what is young or in use stays."""

from __future__ import annotations

import os
from pathlib import Path

from millrace.io.storage import Storage
from services.dispatcher.housekeeping import Housekeeping

HOUR_MS = 3_600_000


def test_old_uploads_logs_results_and_archives_go_and_blobs_of_jobs_stay(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    old = ["blobs/uploads/a", "logs/x/stdout", "results/x/r.json", "archives/j/1.json"]
    kept = ["blobs/uploads/b", "blobs/j/1.2/c", "snapshots/dispatcher/1-2-x.json.zst", "exchange/1.2/1/0-a/part"]
    for path in [*old, *kept]:
        storage.put_new(path, b"x")
        if path != "blobs/uploads/b":
            os.utime(storage.local(path), (1_000, 1_000))
    now_ms = storage.stat("blobs/uploads/b").modified_ms + HOUR_MS
    Housekeeping(storage, 2 * HOUR_MS).sweep(now_ms)
    assert sorted(entry.path for entry in storage.list()) == sorted(kept)
