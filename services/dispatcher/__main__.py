"""`python -m services.dispatcher`: the one place where a Dispatcher's parts are put together."""

from __future__ import annotations

import sys
from functools import partial

from millrace.core.jobgraph.model import DEFAULT_LIMITS
from millrace.io.http.blobs import YOUNG_MS, BlobServer
from millrace.io.http.server import CannotListen
from millrace.io.storage.disk_space import DiskSpace
from millrace.io.storage.store import Storage, StorageError
from millrace.runtime.hosting import Hosted, Term
from millrace.runtime.service import Process

from .archivist import Archivist
from .client_port import ClientPort
from .core.machine import Dispatcher
from .graphs import GraphListener
from .housekeeping import Housekeeping
from .intake import Intake
from .metrics import Measures, shows
from .ports import JobStore
from .request_marks import RequestMarks
from .schedules.firing import Schedules
from .settings import DispatcherSettings
from .staging import Staging
from .traces import performing
from .trial import tried


def main() -> int:
    settings = DispatcherSettings.load_or_exit()
    process = Process(settings)
    topology = process.wait_for_cluster()
    most_bytes, disk_space = settings.blob_max_mb << 20, DiskSpace(process.storage, settings.min_free_mb)
    try:
        # On every replica, so that its URL is known when it is elected; clients are told the leader's.
        blobs = BlobServer(
            process.storage, settings.blob_token.get_secret_value(), settings.blob_host, settings.blob_ports, most_bytes, disk_space,
            process.fatal, settings.blob_requests_most, settings.blob_backlog, min(YOUNG_MS, settings.keep_uploads_ms // 4),
            settings.blob_certificate, settings.blob_key,
        )  # fmt: skip
        port = blobs.start()
        archivist = Archivist(process.storage, Storage(settings.archive_url), settings.archive_ms) if settings.archive_url else None
    except (CannotListen, StorageError) as failure:
        what = "the BlobServer" if isinstance(failure, CannotListen) else "archive_url"
        print(f"dispatcher: {what}: {failure}", file=sys.stderr)
        return 2
    if archivist is not None:
        archivist.start()
    if settings.blob_certificate:
        blobs.keep_renewed(process.stopping)
    intake = Intake(process.storage, DEFAULT_LIMITS, settings.check_local_files, disk_space)
    readable = partial(tried, settings.kafka_bootstrap)
    measures = Measures()
    client_port = ClientPort(process.bus, intake, RequestMarks(process.store), readable, process.fatal, measures.came)
    staging = Staging(settings.schemes())
    jobs = JobStore(process.store, process.storage, staging=staging, archivist=archivist)
    housekeeping = Housekeeping(
        process.store, process.storage, process.bus, staging, settings.keep_ms, process.fatal, settings.keep_archives,
        int(settings.keep_ended_hours * 3_600_000), settings.keep_uploads_ms, archivist,
    )  # fmt: skip

    graphs = GraphListener(
        process.store, Intake(process.storage, DEFAULT_LIMITS, settings.check_local_files, disk_space), process.fatal
    )  # fmt: skip
    schedules = Schedules(process.store, process.bus, jobs.schedules_changed, process.fatal)

    def on_lead(term: Term) -> None:
        client_port.lead(term)
        graphs.lead(term)
        schedules.lead(term)
        housekeeping.lead(term)

    deciding = {**settings.deciding(port), "reopened": process.reopened}
    ports = performing(jobs.ports(), process.traces)
    hosted = Hosted(Dispatcher(topology), ports, deciding, on_lead, measures.counts, shows)
    return process.run([hosted], topology, stop_also=blobs.stop)


if __name__ == "__main__":
    sys.exit(main())
