"""`python -m services.job_master`: the one place where a JobMaster's parts are put together."""

from __future__ import annotations

import sys

from millrace.runtime.hosting import Hosted
from millrace.runtime.service import Process

from .core.machine import JobMaster
from .metrics import COUNTS, shown
from .ports import ports
from .settings import JobMasterSettings
from .traces import JobSpans


def main() -> int:
    settings = JobMasterSettings.load_or_exit()
    process = Process(settings)
    topology = process.wait_for_cluster()
    unknown = [shard for shard in settings.shards if not 0 <= shard < topology.shards]
    if unknown:
        print(f"job-master: the cluster has shards 0 to {topology.shards - 1}, not {unknown}", file=sys.stderr)
        return 2
    hosted = [_hosted(JobMaster(shard), settings, process) for shard in settings.shards or range(topology.shards)]
    return process.run(hosted, topology)


def _hosted(machine: JobMaster, settings: JobMasterSettings, process: Process) -> Hosted:
    spans = JobSpans(process.traces) if process.traces is not None else None
    deciding = settings.deciding() if spans is None else {**settings.deciding(), "traced": True}
    return Hosted(
        machine, ports(process.store), deciding, on_lead=spans.lead if spans is not None else None,
        counts=spans.counting(COUNTS) if spans is not None else COUNTS, shows=shown(machine.scope),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
