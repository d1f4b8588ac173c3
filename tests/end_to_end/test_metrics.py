"""/metrics of every service of a real stack, before, while and after a job runs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from deploy.local.monitoring import config_file
from millrace.runtime.metrics import TABLE
from tests.end_to_end.running import LIMIT_S, Held, RunningStack, until

Numbers = dict[tuple[str, str], float]
"""(name, values of its labels) -> the sum over all processes."""


def numbers(running: RunningStack) -> Numbers:
    """What Prometheus would read now, found as it finds it."""
    found: Numbers = {}
    for target in json.loads(config_file(running.stack.folder).with_name("targets.json").read_text()):
        text = httpx.get(f"http://{target['targets'][0]}/metrics", timeout=LIMIT_S, trust_env=False).text
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                key = sample.name, " ".join(value for _, value in sorted(sample.labels.items()))
                found[key] = found.get(key, 0.0) + sample.value
    return found


def at_rest(running: RunningStack) -> Numbers:
    """As `numbers`, when no job lives; {} until then."""
    now = numbers(running)
    return {} if any(value for (name, _), value in now.items() if name == "millrace_jobs") else now


def test_a_job_is_seen_in_the_metrics_of_all_services(running: RunningStack, tmp_path: Path) -> None:
    targets: list[dict[str, Any]] = json.loads(config_file(running.stack.folder).with_name("targets.json").read_text())
    assert [each["labels"]["instance"] for each in targets] == list(running.stack.facts()["services"])
    # Slots are free before the end of the job that held them is stored, and counted.
    before = until("no job", lambda: at_rest(running))
    names = {re.sub(r"_(bucket|sum|count)$", "", name) for name, _ in before}
    assert names <= {metric.name for metric in TABLE}
    held = Held(running, tmp_path / "held")
    held.started()
    shown = (("millrace_jobs", "RUNNING"), ("millrace_slots", "ACTIVE"), ("millrace_task_manager_slots", "ACTIVE"),
             ("millrace_shard_jobs", "job-master/0"), ("millrace_shard_slots", "job-master/0"))  # fmt: skip
    until("a job that runs, in all that is shown of it", lambda: [now[key] for now in [numbers(running)] for key in shown] == [1] * 5)
    assert held.let_go().end["type"] == "JobFinished"
    after = until("no job", lambda: (now := numbers(running))["millrace_jobs", "RUNNING"] == 0 and now)
    news = {key: after[key] - before.get(key, 0) for key in after}
    one_more = {
        ("millrace_jobs_accepted_total", ""), ("millrace_jobs_ended_total", "FINISHED"), ("millrace_attempts_ended_total", "finished"),
        ("millrace_effect_seconds_count", "PutJobGraph"), ("millrace_effect_seconds_count", "EndJob"),
        *(("millrace_job_phase_seconds_count", phase) for phase in ("store", "queue", "start", "compute")),
    }  # fmt: skip
    assert {key: news[key] for key in one_more} == dict.fromkeys(one_more, 1)
    assert news["millrace_job_phase_seconds_sum", "compute"] > 0 and news["millrace_command_lag_seconds_count", "client.commands"] >= 1
    assert all(after["millrace_leads", scope] == 1 for scope in ("dispatcher", "resource-manager", "job-master/0"))
    assert after["millrace_etcd_request_seconds_count", "txn"] > before["millrace_etcd_request_seconds_count", "txn"]
    slowest = "millrace_kafka_request_seconds", "0.5"
    until("Kafka's times, which its library first reports after ten seconds", lambda: numbers(running).get(slowest, 0) > 0)
