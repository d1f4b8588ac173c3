"""What services measure: the table, what is answered of it, and who may ask."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from pydantic import SecretStr, ValidationError

from millrace.core.clocks import AtMs, NowMs
from millrace.core.fold import OutboxRecord
from millrace.io.kafka.bus import KafkaBus
from millrace.runtime import metrics
from millrace.runtime.exposition import exposed, gently, registry_of, watched
from millrace.runtime.health import HealthServer
from millrace.runtime.metrics import EVERY, TABLE, TAKEN_MOST, Counted, Metric, Sample, Shown, Timed
from millrace.runtime.readings import of_kafka
from millrace.runtime.settings import ServiceSettings
from tests.io.of_metrics import value_of

TOKEN = "a token of 20 letters"
OF_LANES = (metrics.EFFECT_SECONDS, metrics.EFFECT_RETRIES)
"""Begin with the process's own effects."""


def told(service: str, *readings: Any) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """(name, labels) -> value, as Prometheus reads what the service answers."""
    text = bytes(exposed(registry_of(service, *readings)).body).decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(each.name, tuple(sorted(each.labels.items()))): each.value for each in samples}


# ---- the table


@pytest.mark.parametrize("metric", TABLE, ids=lambda metric: metric.name)
def test_a_name_is_as_prometheus_wants_it(metric: Metric) -> None:
    assert re.fullmatch(r"(millrace|process)_[a-z]+(_[a-z]+)*", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert metric.unit == "seconds" or metric.kind != "histogram"
    assert metric.meaning.endswith(".") and set(metric.services) <= set(EVERY) and metric.services


def test_no_name_is_there_twice() -> None:
    assert len({metric.name for metric in TABLE}) == len(TABLE) > 40


def test_numbers_are_few_whatever_is_counted() -> None:
    """A label of many values would end Prometheus, and fill this process."""
    for metric in TABLE:
        values = [known for known in metric.labels.values() if not isinstance(known, str)]
        count = 1
        for each in values:
            count *= len(each)
        assert count <= 30, metric.name
    before = len(told("job-master"))
    for number in range(1000):
        metrics.ATTEMPTS_ENDED.add(f"a kind that a client made up {number}")
    assert len(told("job-master")) == before
    assert value_of(metrics.ATTEMPTS_ENDED, metrics.OTHER) >= 1000


@pytest.mark.parametrize("service", EVERY)
def test_a_service_answers_what_the_table_says_of_it_and_nothing_else(service: str) -> None:
    """Every number is there before anything happens: an alarm cannot see the first one otherwise."""
    read = (metric.of(1, *(_any(known) for known in metric.labels.values())) for metric in TABLE if _is_read(metric, service))
    found = told(service, lambda: read)
    names = {re.sub(r"_(bucket|sum|count)$", "", name) for name, _ in found}
    begun_later = {metric.name for metric in TABLE if not isinstance(metric, Shown) and (_is_open(metric) or metric in OF_LANES)}
    declared = {metric.name for metric in TABLE if service in metric.services}
    assert names - declared == set() and declared - names <= begun_later
    for metric in TABLE:
        if service in metric.services and isinstance(metric, Counted) and metric not in OF_LANES:
            for values in metric.combinations():
                assert (metric.name, tuple(sorted(zip(metric.labels, values, strict=True)))) in found


def _is_open(metric: Metric) -> bool:
    return any(isinstance(each, str) for each in metric.labels.values())


def _is_read(metric: Metric, service: str) -> bool:
    return isinstance(metric, Shown) and service in metric.services and not metric.of_library and metric is not metrics.BUILD_INFO


def _any(known: Any) -> str:
    return known if isinstance(known, str) else str(known[0])


def test_states_of_which_there_are_none_are_there_too() -> None:
    found = told("resource-manager", lambda: metrics.SLOTS.counts({"FREE": 3}))
    slots = {labels[0][1]: value for (name, labels), value in found.items() if name == "millrace_slots"}
    assert slots == {"STARTING": 0, "FREE": 3, "PENDING": 0, "ALLOCATED": 0, "ACTIVE": 0, "RELEASING": 0, "BROKEN": 0}


def test_a_clock_that_is_behind_the_brokers_takes_no_time_back() -> None:
    timed = _forgotten(Timed("millrace_tests_seconds", ("web",), "Of a test.", {"inbox": "one"}))
    timed.observe(-3.0, "one")
    assert (value_of(timed, "one", suffix="_count"), value_of(timed, "one", suffix="_sum")) == (1, 0)


def test_labels_that_are_known_are_looked_up_once_and_what_a_stranger_wrote_is_not_kept() -> None:
    timed = _forgotten(Timed("millrace_tests_kept_seconds", ("web",), "Of a test.", {"route": "the routes", "kind": ["a"]}))
    for kind in ("a", "a", "made up", "another"):
        timed.observe(0.1, "/jobs", kind)
    assert [value_of(timed, "/jobs", kind, suffix="_count") for kind in ("a", "other")] == [2, 2]
    assert list(timed._begun) == [("/jobs", "a")]


def test_what_was_observed_is_counted_by_itself_when_much_waits_and_when_somebody_asks() -> None:
    timed = _forgotten(Timed("millrace_tests_many_seconds", ("web",), "Of a test.", {"inbox": "one"}))
    for _ in range(TAKEN_MOST + 1):
        timed.observe(0.5, "one")
    assert list(timed._taken) == [(0.5, ("one",))]
    assert (value_of(timed, "one", suffix="_count"), value_of(timed, "one", suffix="_sum")) == (TAKEN_MOST + 1, 0.5 * (TAKEN_MOST + 1))


def _forgotten(metric: Any) -> Any:
    TABLE.remove(metric)
    return metric


# ---- reading


def test_what_cannot_be_read_hides_nothing_else() -> None:
    def broken() -> Iterator[Sample]:
        yield metrics.TASK_MANAGERS.of(3)
        raise RuntimeError("a state that is being replaced")

    found = told("resource-manager", broken, lambda: [metrics.QUEUE_JOBS.of(2)])
    assert found["millrace_task_managers", ()] == 3 and found["millrace_queue_jobs", ()] == 2


def test_rows_may_change_while_they_are_read_and_others_go_first_again_and_again() -> None:
    rows, rests = dict.fromkeys(range(1000), 1), []
    read = 0
    for _ in gently(rows.values(), lambda: rests.append(len(rows))):
        rows[len(rows)] = 1
        read += 1
    assert read == 1000 and rests == [1256, 1512, 1768]


def test_kafkas_times_are_those_that_its_library_tells() -> None:
    def producer(cnt: int, p99: int, waiting: int) -> str:
        brokers = {"b:1": {"rtt": {"cnt": cnt, "p50": 900, "p99": p99}}, "bootstrap": {"rtt": {"cnt": 0, "p50": 9e9, "p99": 9e9}}}
        return json.dumps({"msg_cnt": waiting, "brokers": brokers})

    silent, one, two = "", producer(3, 4_000, 2), producer(5, 7_000, 1)
    found = told("dispatcher", lambda: of_kafka(cast("KafkaBus", SimpleNamespace(statistics=[one, two]))))
    assert found["millrace_kafka_queue_records", ()] == 3
    assert found["millrace_kafka_request_seconds", (("quantile", "0.99"),)] == 0.007
    assert list(of_kafka(cast("KafkaBus", SimpleNamespace(statistics=[silent, silent])))) == []


# ---- who may ask


def settings(**given: Any) -> ServiceSettings:
    return ServiceSettings(storage_url="/tmp", **given)


def test_metrics_are_answered_beside_health() -> None:
    server = watched(settings(), lambda: {"role": "leader"})
    port = server.start()
    try:
        answer = httpx.get(f"http://127.0.0.1:{port}/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert httpx.post(f"http://127.0.0.1:{port}/metrics").status_code == 405
        assert httpx.get(f"http://127.0.0.1:{port}/health").json()["role"] == "leader"
    finally:
        server.stop()


@pytest.mark.parametrize("path", ["/metrics", "/health", "/ready"])
def test_with_a_token_nobody_is_let_in_without_it(path: str) -> None:
    server = watched(settings(metrics_token=SecretStr(TOKEN)), dict)
    port = server.start()
    try:
        url = f"http://127.0.0.1:{port}{path}"
        for given in ({}, {"Authorization": "Bearer another"}, {"Authorization": TOKEN}):
            refused = httpx.get(url, headers=given)
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        let_in = {"Authorization": f"Bearer {TOKEN}", "Host": "a-machine.example"}
        assert httpx.get(url, headers=let_in).status_code == 200
    finally:
        server.stop()


@pytest.mark.parametrize(("host", "status"), [
    ("127.0.0.1", 200), ("localhost:1234", 200), ("[::1]:80", 200), ("172.18.0.5:8080", 200),
    ("a-page.example", 400), ("127.0.0.1.a-page.example:80", 400), ("", 400), ("[", 400), ("localhost.a-page.example", 400),
])  # fmt: skip
def test_a_page_in_a_browser_reads_nothing_under_a_name_of_its_own(host: str, status: int) -> None:
    server = HealthServer(dict)
    port = server.start()
    try:
        assert httpx.get(f"http://127.0.0.1:{port}/health", headers={"Host": host}).status_code == status
    finally:
        server.stop()


def test_off_loopback_it_listens_with_a_token_or_in_a_container_alone() -> None:
    for given in ({}, {"metrics_token": SecretStr("short")}):
        with pytest.raises(ValidationError) as refused:
            settings(health_host="0.0.0.0", **given)
        assert [each["loc"] for each in refused.value.errors()] == [("health_host",)]
    assert settings(health_host="0.0.0.0", metrics_token=SecretStr(TOKEN)).health_host == "0.0.0.0"
    assert settings(health_host="0.0.0.0", published_on_loopback=True).health_host == "0.0.0.0"
    assert [settings(health_host=host).health_host for host in ("::1", "localhost")] == ["::1", "localhost"]


# ---- what services count


def said(type: str, key: str = "j", value: str = "{}") -> OutboxRecord:
    return OutboxRecord(1, "job.events", 0, key, type, value, "")


def test_a_job_is_counted_with_where_its_time_went() -> None:
    from services.dispatcher.metrics import Measures

    measures, phase = Measures(), metrics.JOB_SECONDS
    before = {each: value_of(phase, each, suffix="_sum") for each in phase.labels["phase"]}
    ended = value_of(metrics.JOBS_ENDED, "FAILED")
    state: Any = SimpleNamespace(live={"j": SimpleNamespace(offset=7, accepted_ms=5_250)})
    measures.came(7, 5_000)
    measures.counts["JobAccepted"](said("JobAccepted"), state)
    measures.counts["JobAccepted"](said("JobAccepted"), state)  # by a next term: when it came is not known any more
    spent = '{"job":"j","spent":{"queue_ms":1000,"start_ms":500,"plan_ms":0,"compute_ms":250,"exchange_ms":0,"publish_ms":125}}'
    measures.counts["JobFailed"](said("JobFailed", value=spent), state)
    measures.counts["JobFailed"](said("JobFailed", value='{"job":"j","spent":null}'), state)
    after = {each: value_of(phase, each, suffix="_sum") - before[each] for each in before}
    spent_s = {"store": 0.25, "queue": 1, "start": 0.5, "plan": 0, "compute": 0.25, "exchange": 0, "publish": 0.125}
    assert after == pytest.approx(spent_s)  # other tests of the process have added what is no sum of halves
    assert value_of(metrics.JOBS_ENDED, "FAILED") == ended + 2


@pytest.mark.parametrize(("more", "origin"), [
    ("", "new"), (',"origin":{"job":"a"}', "again"), (',"origin":{"job":"a","repair":true}', "repair"),
    (',"scheduled":{"schedule":"s","due":"2026-06-01T12:00:00+00:00","time_zone":"UTC"}', "schedule"),
])  # fmt: skip
def test_jobs_are_counted_by_what_they_come_of(more: str, origin: str) -> None:
    from services.dispatcher.metrics import Measures

    before = {each: value_of(metrics.JOBS_ORIGINS, each) for each in metrics.JOBS_ORIGINS.labels["origin"]}
    Measures().counts["JobAccepted"](said("JobAccepted", value=f'{{"job":"j"{more}}}'), SimpleNamespace(live={}))
    assert {each for each, count in before.items() if value_of(metrics.JOBS_ORIGINS, each) != count} == {origin}


def test_rescales_are_counted() -> None:
    from services.job_master.metrics import COUNTS

    before = value_of(metrics.RESCALED)
    COUNTS["JobRescaled"](said("JobRescaled"), SimpleNamespace())
    assert value_of(metrics.RESCALED) == before + 1


def test_agents_that_are_left_out_and_jobs_that_want_what_there_is_not_are_shown() -> None:
    from services.resource_manager.core.state import Job, State
    from services.resource_manager.metrics import shows

    jobs = {"a": Job(wanted=1, since_ms=5_000), "b": Job(wanted=1, since_ms=9_000, never_ms=NowMs(1)), "c": Job(wanted=1, held=1)}
    state = State(1, jobs=jobs, stamp_ms=AtMs(12_000))
    state.workers.left_out = ["the agent at http://a:1 does not answer"]
    found = {sample.metric: sample.value for sample in shows(state)}
    assert [found[each] for each in (metrics.QUEUE_JOBS, metrics.QUEUE_NEVER, metrics.PROVIDER_LEFT_OUT)] == [2, 1, 1]
    assert found[metrics.QUEUE_SECONDS] == 7


def test_when_requests_came_is_kept_of_the_last_ones_alone() -> None:
    from services.dispatcher.metrics import STAMPS_MOST, Measures

    measures = Measures()
    for offset in range(3 * STAMPS_MOST):
        measures.came(offset, offset)
    assert len(measures._stamps) == STAMPS_MOST and next(iter(measures._stamps)) == 2 * STAMPS_MOST


@pytest.mark.parametrize(("reason", "kind"), [
    ("busy: SubmitJob of job x: 10 live jobs", "busy"), ("no SubmitJob of job x: 2 things are wrong", "invalid"),
    ("it is no JSON", "unusable"),
])  # fmt: skip
def test_a_dead_letter_is_counted_by_its_kind(reason: str, kind: str) -> None:
    from services.dispatcher.metrics import Measures

    before = value_of(metrics.DEAD_LETTERS, kind)
    Measures().counts["DeadLetter"](said("DeadLetter", value=f'{{"reason": "{reason}"}}'), SimpleNamespace())
    assert value_of(metrics.DEAD_LETTERS, kind) == before + 1


@pytest.mark.parametrize(("event", "outcome"), [
    ('"state":"FINISHED"', "finished"), ('"state":"CANCELED"', "canceled"), ('"state":"FAILED","error":{"kind":"jvm"}', "jvm"),
    ('"state":"FAILED","error":{"kind":"of a later build"}', "other"), ('"state":"FAILED"', "other"),
])  # fmt: skip
def test_attempts_are_counted_by_how_they_ended(event: str, outcome: str) -> None:
    from services.job_master.metrics import COUNTS

    before, started = value_of(metrics.ATTEMPTS_ENDED, outcome), value_of(metrics.ATTEMPTS_STARTED)
    for value in (f"{{{event}}}", '{"state":"DEPLOYING"}', '{"state":"RUNNING"}'):
        COUNTS["AttemptStateChanged"](said("AttemptStateChanged", value=value), SimpleNamespace())
    assert value_of(metrics.ATTEMPTS_ENDED, outcome) == before + 1
    assert value_of(metrics.ATTEMPTS_STARTED) == started + 1


def test_second_attempts_are_counted_and_those_that_won() -> None:
    from services.job_master.metrics import COUNTS

    started, won = value_of(metrics.SECOND_ATTEMPTS_STARTED), value_of(metrics.SECOND_ATTEMPTS_WON)
    for attempt, state, beside in ((2, "DEPLOYING", 1), (2, "RUNNING", 1), (1, "CANCELED", 2), (2, "CANCELED", 1), (3, "FAILED", 1)):
        value = f'{{"state":"{state}","attempt":{attempt},"beside":{beside}}}'
        COUNTS["AttemptStateChanged"](said("AttemptStateChanged", value=value), SimpleNamespace())
    assert (value_of(metrics.SECOND_ATTEMPTS_STARTED) - started, value_of(metrics.SECOND_ATTEMPTS_WON) - won) == (1, 1)


def test_all_threads_may_count_at_once() -> None:
    counted = _forgotten(Counted("millrace_tests_total", ("web",), "Of a test.", {"scope": "one"}))
    threads = [threading.Thread(target=lambda: [counted.add("one") for _ in range(1000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert value_of(counted, "one") == 4000
