"""`python -m tests.web.page.cost [JOBS]`: what the list of so many jobs costs: the server's time for a screen that nobody has asked for
yet, and its bytes; beside what Flink's dashboard asks for. `python -m tests.bench web/opening` measures both in Chromium."""

from __future__ import annotations

import gzip
import sys
import time
from statistics import median

from starlette.testclient import TestClient

from .seed import Cluster

TURNS = 7
PATHS = {
    "the list": "/page/jobs", "the last page": "/page/jobs?start={last}", "by state": "/page/jobs?q=state:failed",
    "by words": "/page/jobs?q=orders+s3a", "by TaskManager": "/page/jobs?q=tm:task-manager-4", "by time taken": "/page/jobs?sort=took",
    "Flink's list": "/v1/jobs/overview",
}  # fmt: skip


def measured(jobs: int) -> list[tuple[str, float, int, int]]:
    """What is asked for, the median of its ms, its bytes, and those gzipped."""
    cluster = Cluster(time.time_ns() // 1_000_000, jobs)
    found = []
    with TestClient(cluster.app(), base_url="http://127.0.0.1") as web:
        for name, path in PATHS.items():
            took = []
            for turn in range(TURNS):
                # Something has happened: no screen is kept from before.
                cluster.job("JobStateChanged", "wordcount-5e1a77d0", cluster.wall_ms + turn, status="RUNNING", cause=None)
                began_s = time.perf_counter()
                answer = web.get(path.format(last=jobs // 50 * 50), headers={"Accept-Encoding": "identity"})
                took.append((time.perf_counter() - began_s) * 1000)
                assert answer.status_code == 200, answer.text
            found.append((name, median(took), len(answer.content), len(gzip.compress(answer.content, 4))))
    return found


def main() -> None:
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    print(f"{'of ' + format(jobs, ',') + ' jobs':20}{'ms':>9}{'bytes':>12}{'gzipped':>10}")
    for name, ms, size, small in measured(jobs):
        print(f"{name:20}{ms:9.1f}{size:12,}{small:10,}")


if __name__ == "__main__":
    main()
