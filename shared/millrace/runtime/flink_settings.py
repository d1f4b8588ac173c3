"""Flink's names of settings, taken in a settings file beside ours, with Flink's durations and sizes. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

_DURATION = re.compile(r"(\d{1,15})\s*(ms|milli|millis|s|sec|secs|second|seconds|m|min|mins|minute|minutes|h|hour|hours|d|day|days)")
_MS = {"ms": 1, "milli": 1, "millis": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZE = re.compile(r"(\d{1,15})\s*([kmgt])(b|bytes)?")
_KB = {"k": 1, "m": 1 << 10, "g": 1 << 20, "t": 1 << 30}


def _plain(value: Any) -> Any:
    return value


def _milliseconds(value: Any) -> int:
    """Of a Flink duration. Raises ValueError."""
    found = _DURATION.fullmatch(str(value).strip().lower())
    if found is None:
        raise ValueError(f"{str(value)[:40]!r} is no duration: write 500 ms, 10 s, 2 min, 1 h or 1 d")
    unit = found[2]
    return int(found[1]) * (_MS.get(unit) or _MS[unit[0]])


def _hours(value: Any) -> float:
    return _milliseconds(value) / 3_600_000


def _hours_of_seconds(value: Any) -> float:
    """Of a number of seconds, or of a Flink duration. Raises ValueError."""
    text = str(value).strip()
    return int(text) / 3600 if text.isdecimal() and len(text) < 16 else _hours(value)


def _megabytes(value: Any) -> int:
    """Of a Flink size, in whole MB. Raises ValueError."""
    found = _SIZE.fullmatch(str(value).strip().lower())
    if found is None or int(found[1]) * _KB[found[2]] < 1 << 10:
        raise ValueError(f"{str(value)[:40]!r} is no size of 1 MB or more: write 512m, 4g or 4 gb")
    return int(found[1]) * _KB[found[2]] >> 10


_LOAD_BALANCE = {"NONE": "warmest", "SLOTS": "spread", "MIN_RESOURCES": "packed"}


def _placement(value: Any) -> str:
    """Of a Flink mode of load balance. Raises ValueError."""
    found = _LOAD_BALANCE.get(str(value).strip().upper())
    if found is None:
        raise ValueError(f"{str(value)[:40]!r} has no meaning here: write {', '.join(_LOAD_BALANCE)}")
    return found


def _evenly(value: Any) -> str:
    """Raises ValueError."""
    if not isinstance(value, bool):
        raise ValueError(f"{str(value)[:40]!r} is neither true nor false")
    return "spread" if value else "warmest"


class Named(NamedTuple):
    """A setting of ours. service: whose it is; "": common to all. taken: turns Flink's value into ours."""

    service: str
    setting: str
    taken: Callable[[Any], Any] = _plain
    also: tuple[str, ...] = ()
    """Other services that have the setting, too."""

    @property
    def services(self) -> tuple[str, ...]:
        return (self.service, *self.also)


FLINK: dict[str, Named] = {
    "high-availability.storageDir": Named("", "storage_url"),
    "heartbeat.interval": Named("resource_manager", "heartbeat_interval_ms", _milliseconds),
    "heartbeat.timeout": Named("resource_manager", "lost_after_ms", _milliseconds),
    "resourcemanager.job.timeout": Named("resource_manager", "job_timeout_ms", _milliseconds),
    "resourcemanager.taskmanager-timeout": Named("resource_manager", "worker_idle_ms", _milliseconds),
    "resourcemanager.taskmanager-registration.timeout": Named("resource_manager", "worker_start_ms", _milliseconds),
    "slotmanager.number-of-slots.max": Named("resource_manager", "slots_max"),
    "slotmanager.max-total-resource.cpu": Named("resource_manager", "cores_max"),
    "slotmanager.max-total-resource.memory": Named("resource_manager", "memory_mb_max", _megabytes),
    "slotmanager.redundant-taskmanager-num": Named("resource_manager", "task_managers_spare"),
    "taskmanager.load-balance.mode": Named("resource_manager", "slots_placement", _placement),
    "cluster.evenly-spread-out-slots": Named("resource_manager", "slots_placement", _evenly),
    "taskmanager.numberOfTaskSlots": Named("task_manager", "slots"),
    "taskmanager.resource-id": Named("task_manager", "id"),
    "taskmanager.slot.timeout": Named("task_manager", "allocation_timeout_ms", _milliseconds),
    "env.java.home": Named("task_manager", "java_home"),
    "blob.server.port": Named("dispatcher", "blob_port"),
    "blob.fetch.num-concurrent": Named("dispatcher", "blob_requests_most"),
    "blob.fetch.backlog": Named("dispatcher", "blob_backlog"),
    "blob.fetch.retries": Named("task_manager", "blob_fetch_retries"),
    "blob.service.cleanup.interval": Named("dispatcher", "keep_uploads_hours", _hours_of_seconds),
    "jobstore.max-capacity": Named("dispatcher", "retained_jobs"),
    "jobstore.expiration-time": Named("dispatcher", "keep_hours", _hours),
    "historyserver.archive.retained-jobs": Named("dispatcher", "keep_archives"),
    "jobmanager.archive.fs.dir": Named("dispatcher", "archive_url"),
    "historyserver.archive.fs.dir": Named("history", "storage_url"),
    "rest.port": Named("web", "port"),
    "metrics.reporter.log.interval": Named("", "metrics_log_interval_ms", _milliseconds),
    "metrics.scope.jm": Named("dispatcher", "metrics_scope", also=("resource_manager", "job_master")),
    "metrics.scope.tm": Named("task_manager", "metrics_scope"),
    "metrics.fetcher.update-interval": Named("web", "metrics_fetch_interval_ms", _milliseconds),
    "rest.bind-address": Named("web", "host"),
    "historyserver.web.port": Named("history", "port"),
    "historyserver.web.address": Named("history", "host"),
}
"""Flink's name -> what it sets here."""
ALSO: dict[str, Named] = {
    "blob.service.cleanup.interval": Named("task_manager", "blob_cache_hours", _hours_of_seconds),
}
"""What a name sets of a second service."""


class Without(NamedTuple):
    """Why a name has no meaning here, and what to do. same: values, in small letters, with which it says what is so in any case."""

    why: str
    same: tuple[str, ...] = ()


_OF_JOBS = Without(
    "no metric of a process has the name of a job, a task or a subtask, for there is no end of them; what each does is its progress"
)
_OF_GRAPHS = "each job has its own: restart in its graph (docs/restarts.md)"
_OF_RESTARTS = {
    "type": "restart.strategy",
    "fixed-delay.attempts": "restart.attempts",
    "fixed-delay.delay": "restart.delay_ms",
    "failure-rate.max-failures-per-interval": "restart.max_failures_per_interval",
    "failure-rate.failure-rate-interval": "restart.failure_rate_interval_ms",
    "failure-rate.delay": "restart.delay_ms",
    "exponential-delay.initial-backoff": "restart.initial_backoff_ms",
    "exponential-delay.max-backoff": "restart.max_backoff_ms",
    "exponential-delay.backoff-multiplier": "restart.backoff_multiplier",
    "exponential-delay.jitter-factor": "restart.jitter_factor",
    "exponential-delay.reset-backoff-threshold": "restart.reset_backoff_threshold_ms",
    "exponential-delay.attempts-before-reset-backoff": "restart.attempts_before_reset_backoff",
}
_NO_DELAY = Without("a request is matched with free slots in the record that brings it, and nothing is collected before", ("0", "0 ms"))
_STARTS = Without("a TaskManager that failed is followed by another one at once, then after 1, 2, 4 and at most 30 s: docs/growing.md")
WITHOUT: dict[str, Without] = {
    "high-availability.type": Without("it is always on: leaders and accepted jobs are in the etcd at etcd_endpoint"),
    "resourcemanager.start-worker.max-failure-rate": _STARTS,
    "resourcemanager.start-worker.retry-interval": _STARTS,
    "resourcemanager.previous-worker.recovery.timeout": Without(
        "a new leader asks the provider what it has, and starts none before: only an agent that is away is waited for, agent_away_ms"
    ),
    "resourcemanager.standalone.start-up-time": Without("a job waits for what the cluster has not: not_enough_resources_ms ends that"),
    "slot.request.timeout": Without(
        "a job waits in the queue: not_enough_resources_ms ends that where it can never be served, timeouts.queue_ms of a graph in any case"
    ),
    "slotmanager.number-of-slots.min": Without("task_managers_min says how many TaskManagers are kept, needed or not", ("0",)),
    "slotmanager.requirement-check.delay": _NO_DELAY,
    "slotmanager.declare-needed-resource.delay": _NO_DELAY,
    "taskmanager.registration.timeout": Without(
        "a TaskManager waits for the ResourceManager as long as it takes; worker_start_ms ends one of a provider that does not register"
    ),
    **{
        f"restart-strategy.{name}": Without(f"{_OF_GRAPHS}, as {setting}") for name, setting in _OF_RESTARTS.items()
    },
    "jobmanager.execution.failover-strategy": Without("each job has its own: restart.scope in its graph, region or full", ("region",)),
    "jobmanager.execution.attempts-history-size": Without(
        "of a subtask three failed attempts are kept, of a job 300, and in job.events all that Kafka still has"
    ),
    "web.exception-history-size": Without("the last 300 failures of a job are kept, and of each of its subtasks three"),
    "job-result-store.delete-on-commit": Without(
        "a tombstone of each ended job stays in etcd as long as its submission may be read again", ("false",)
    ),
    "pipeline.jobvertex-parallelism-overrides": Without(
        "a vertex has the parallelism of its graph; millrace submit --parallelism and millrace rescale change it"
    ),
    "blob.service.ssl.enabled": Without("TLS is on with blob_certificate and blob_key of the Dispatchers: give those", ("false",)),
    "blob.offload.minsize": Without("a deployment names files by their hash, and carries none: nothing is large enough to go apart"),
    "blob.storage.directory": Without("files lie in storage_url, and a TaskManager's cache in its work_folder"),
    "blob.client.connect.timeout": Without("a client waits 30 s for each step of an upload, and TaskManagers read storage itself"),
    "blob.client.socket.timeout": Without("a client waits 30 s for each step of an upload, and TaskManagers read storage itself"),
    "jobstore.type": Without(
        "ended jobs are in etcd, and their archives in storage: in memory they would end with their Dispatcher; write File", ("file",)
    ),
    "jobstore.cache-size": Without("archives are read from storage by who asks, and no Dispatcher holds any"),
    "historyserver.archive.fs.refresh-interval": Without("millrace history looks as often as a look is quick: docs/history.md"),
    "historyserver.archive.clean-expired-jobs": Without(
        "millrace history deletes nothing: the Dispatchers do, by keep_hours and archive_hours", ("false",)
    ),
    "heartbeat.rpc-failure-threshold": Without(
        "a heartbeat is a record in Kafka, and no call of one can fail: heartbeat.timeout alone decides", ("-1",)
    ),
    "metrics.reporters": Without("each process answers Prometheus at /metrics; metrics.reporter.log.interval has it log its metrics, too"),
    "metrics.reporter.prom.port": Without("Prometheus asks each service at its health_port: set that in the section of each"),
    "metrics.reporter.prom.factory.class": Without("each process answers Prometheus at /metrics without it"),
    "metrics.reporter.log.factory.class": Without("metrics.reporter.log.interval is all that it needs"),
    "metrics.scope.jm-job": _OF_JOBS,
    "metrics.scope.jm-operator": _OF_JOBS,
    "metrics.scope.tm-job": _OF_JOBS,
    "metrics.scope.task": _OF_JOBS,
    "metrics.scope.operator": _OF_JOBS,
    "metrics.scope.delimiter": Without("a scope has the delimiters that it is written with", (".",)),
    "metrics.system-resource": Without(
        "a machine's processor and memory are its own exporter's; a TaskManager tells them when it is asked", ("false",)
    ),
    "metrics.internal.query-service.port": Without("processes are asked by Kafka, and need no port for it", ("0",)),
    "metrics.latency.interval": Without("rows are not timed one by one: Spark's tasks read whole files", ("0", "0 ms")),
}
"""What Flink has and there is no need for here."""
_COMMON = {named.setting for named in FLINK.values() if not named.service}
_SECTIONS = {service for named in FLINK.values() for service in named.services}
_BEGINNINGS = {key.partition(".")[0] for key in (*FLINK, *WITHOUT)} - _SECTIONS


def taken(content: Mapping[str, Any], service: str) -> tuple[dict[str, Any], list[str]]:
    """A file's top level with what stands there by Flink's names as settings of ours, as far as this service or all have them; and a
    sentence for each mistake."""
    ours: dict[str, Any] = {}
    problems: list[str] = []
    given: dict[str, Any] = {}
    for name, value in _flat(content):
        if "." in name:
            given[name] = value
        else:
            ours[name] = value
    for name, value in sorted(given.items(), key=lambda each: each[0] in FLINK and bool(FLINK[each[0]].service)):  # what is common first
        without = WITHOUT.get(name)
        if without is not None:
            if str(value).strip().lower() not in without.same:
                problems.append(f"{name} has no meaning here: {without.why}")
            continue
        if name not in FLINK:
            close = difflib.get_close_matches(name, FLINK, n=1, cutoff=0.6)
            hint = f"did you mean {close[0]}?" if close else "docs/reference.md has those of Flink that have a meaning here"
            problems.append(f"unknown setting {name}; {hint}")
            continue
        both = (FLINK[name], ALSO.get(name))
        named = next((each for each in both if each is not None and (not each.service or service in each.services)), None)
        if named is None:
            continue
        own = content.get(service if named.service else "")
        is_common = named.service and named.setting in _COMMON  # of one service: it goes before
        if (named.setting in ours and not is_common) or (isinstance(own, Mapping) and named.setting in own):
            problems.append(f"{name} is {named.setting} here, and both are given: leave out one")
            continue
        try:
            ours[named.setting] = named.taken(value)
        except ValueError as wrong:
            problems.append(f"{name}: {wrong}")
    return ours, problems


def misplaced(name: str) -> str:
    """What to say of an unknown name that is one of Flink's, or nearly so, and does not stand at the top level of a file; else nothing."""
    close = difflib.get_close_matches(name, (*FLINK, *WITHOUT), n=1, cutoff=0.6) if "." in name else []
    return f"; did you mean {close[0]}, at the top level of the file?" if close else ""


def in_our_names(content: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """A whole settings file without Flink's names: what belongs to a service stands in its section. And a sentence for each mistake."""
    found: dict[str, Any] = {}
    problems: dict[str, None] = {}
    for service in dict.fromkeys(each for named in FLINK.values() for each in named.services):
        if not isinstance(content.get(service) or {}, Mapping):
            problems[f"section {service} must be a mapping of names to values"] = None
            continue
        ours, wrong = taken(content, service)
        problems |= dict.fromkeys(wrong)
        own = {name: value for name, value in ours.items() if name not in content}
        section = {**dict(content.get(service) or {}), **own}
        found |= own if not service else {service: section} if section else {}
    return {**{name: value for name, value in _flat(content) if "." not in name}, **found}, list(problems)


def _flat(content: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """With Flink's nested names joined by dots, as its own file may have them."""
    for name, value in content.items():
        if isinstance(value, Mapping) and str(name).partition(".")[0] in _BEGINNINGS:
            yield from ((f"{name}.{rest}", each) for rest, each in _inner(value))
        else:
            yield str(name), value


def _inner(content: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in content.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{rest}", each) for rest, each in _inner(value))
        else:
            yield str(name), value
