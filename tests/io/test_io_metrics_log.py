"""Metrics as lines of the log: what is in a line, and when it comes."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from millrace.runtime import metrics_log
from millrace.runtime.exposition import registry_of, watched
from millrace.runtime.metrics import ETCD_SECONDS, JOBS_ENDED, SLOTS
from millrace.runtime.metrics_log import MetricsLog
from millrace.runtime.settings import ServiceSettings


class Lines:
    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self.came = threading.Event()

    def info(self, event: str, **fields: Any) -> None:
        assert event == "metrics"
        self.told.append(fields)
        self.came.set()


def test_a_line_has_numbers_rates_and_means_since_the_line_before() -> None:
    lines, now_s = Lines(), [100.0]
    registry = registry_of("dispatcher", lambda: SLOTS.counts({"FREE": 3}))
    report = MetricsLog(registry, "host.dispatcher", lambda: now_s[0], lines)
    report.report()
    first = lines.told[-1]["metrics"]
    JOBS_ENDED.add("FINISHED")
    JOBS_ENDED.add("FINISHED")
    ETCD_SECONDS.observe(0.2, "txn")
    ETCD_SECONDS.observe(0.4, "txn")
    now_s[0] += 10
    report.report()
    line = lines.told[-1]
    assert line["scope"] == "host.dispatcher"
    found, name = line["metrics"], "millrace_jobs_ended_total{status=FINISHED}"
    assert found[name] == first.get(name, 0) + 2 and found["millrace_jobs_ended_total_per_s{status=FINISHED}"] == 0.2
    assert found["millrace_etcd_request_seconds_count_per_s{operation=txn}"] == 0.2
    assert found["millrace_etcd_request_mean_s{operation=txn}"] == 0.3
    assert all(found.values()) and not any("_bucket" in each or "_sum" in each or each in metrics_log.SKIPPED for each in found)
    assert found["process_resident_memory_bytes"] > 1 << 20 and not any(each.startswith("millrace_slots") for each in found)
    now_s[0] += 10
    report.report()
    later = lines.told[-1]["metrics"]
    assert later[name] == found[name] and "millrace_jobs_ended_total_per_s{status=FINISHED}" not in later, "nothing came since"


def test_a_process_logs_its_metrics_where_that_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = Lines()
    monkeypatch.setattr(metrics_log, "log", lines)
    for interval_ms, comes in ((1_000, True), (0, False)):
        lines.came.clear()
        lines.told.clear()
        server = watched(ServiceSettings(metrics_log_interval_ms=interval_ms, metrics_scope="a.<cluster>"), dict)
        server.start()
        try:
            assert lines.came.wait(60 if comes else 1.5) == comes
            assert not comes or lines.told[0]["scope"] == "a.default"
        finally:
            server.stop()
