"""What services measure: one table of declarations, with what counts it.

Counters and histograms are counted where something happens, and hold a few numbers each, whether or not anybody asks. Gauges are read when
somebody asks (`exposition.py`). Every label has few values, which are known before, or are named by the cluster's topology: what a client
writes is never a label. docs/metrics.md shows this table.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Literal, NamedTuple, get_args

import prometheus_client
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family

from millrace.core.messages.attempts import FaultKind
from millrace.core.messages.client import JobRejected, RequestRefused
from millrace.core.messages.effects import EFFECTS_OF
from millrace.core.states import ENDED_BY, ENDED_JOB, JobState, SlotState, SlotStateShown, StatusShown
from millrace.core.topics import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, TASK_MANAGER, WEB

prometheus_client.disable_created_metrics()  # a second number for each, which says when its process began to count

Labels = Mapping[str, Sequence[str] | str]
"""Label -> all its values; or what bounds them, in words."""
CONTROL = (DISPATCHER, RESOURCE_MANAGER, JOB_MASTER)
STREAMING = (*CONTROL, TASK_MANAGER)
EVERY = (*STREAMING, WEB)
OTHER = "other"
"""What a value counts as that is none of its label's: a later build's word, or a fault of ours."""
TABLE: list[Metric] = []
"""All of them, in the order in which they are shown."""

FAST_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
TAKEN_MOST = 256
"""Observations of a histogram that wait to be counted."""
LONG_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800, 7200)


class Metric:
    """One name. A histogram's name is that of its observations; Prometheus has it with `_bucket`, `_sum` and `_count` behind."""

    kind: ClassVar[str]

    def __init__(self, name: str, services: Sequence[str], meaning: str, labels: Labels | None = None) -> None:
        self.name, self.services, self.meaning, self.labels = name, tuple(services), meaning, dict(labels or {})
        TABLE.append(self)

    @property
    def unit(self) -> str:
        base = self.name.removesuffix("_total")
        return next((unit for unit in ("seconds", "bytes") if base.endswith(f"_{unit}")), "")

    def families(self) -> Iterable[Family]:
        """What was counted; nothing of what is read when somebody asks."""
        return ()

    def bounded(self, values: Sequence[str]) -> tuple[str, ...]:
        """The values of its labels, each one that is known."""
        pairs = zip(self.labels.values(), values, strict=True)
        return tuple(value if isinstance(known, str) or value in known else OTHER for known, value in pairs)

    def combinations(self) -> Iterator[tuple[str, ...]]:
        """All values of its labels together; none where the cluster names some: an alarm needs a number before the first one comes."""
        if not any(isinstance(known, str) for known in self.labels.values()):
            yield from itertools.product(*self.labels.values())


class Counted(Metric):
    """Only grows, from the start of its process on."""

    kind = "counter"

    def __init__(
        self, name: str, services: Sequence[str], meaning: str, labels: Labels | None = None, begins: bool = True
    ) -> None:
        """`begins`: all its numbers are there from the start."""
        super().__init__(name, services, meaning, labels)
        self._counter = prometheus_client.Counter(name, meaning, list(self.labels), registry=None)
        self._begun: dict[tuple[str, ...], prometheus_client.Counter] = {} if self.labels else {(): self._counter}
        for values in self.combinations() if self.labels and begins else ():
            self.begin(*values)

    def begin(self, *values: str) -> None:
        """There are none yet: without this number the first one would not look like a change."""
        self._begun[values] = self._counter.labels(*values)

    def add(self, *values: str) -> None:
        """Counts one. Any thread."""
        counter = self._begun.get(values)  # the library's own way to it takes longer than the addition
        (counter or self._counter.labels(*self.bounded(values))).inc()

    def more(self, amount: int) -> None:
        """Counts so many, where there is no label. Any thread."""
        self._counter.inc(amount)

    def families(self) -> Iterable[Family]:
        return self._counter.collect()


class Timed(Metric):
    """How long something took: how many took at most so long."""

    kind = "histogram"

    def __init__(
        self, name: str, services: Sequence[str], meaning: str, labels: Labels | None = None, buckets: Sequence[float] = FAST_S,
        begins: bool = True,
    ) -> None:  # fmt: skip
        """`begins`: as a counter's."""
        super().__init__(name, services, meaning, labels)
        self._histogram = prometheus_client.Histogram(name, meaning, list(self.labels), registry=None, buckets=buckets)
        self._begun: dict[tuple[str, ...], prometheus_client.Histogram] = {} if self.labels else {(): self._histogram}
        self._taken: deque[tuple[float, tuple[str, ...]]] = deque()  # and not counted yet
        for values in self.combinations() if self.labels and begins else ():
            self.begin(*values)

    def begin(self, *values: str) -> None:
        """There are none yet, as a counter's."""
        self._begun[values] = self._histogram.labels(*values)

    def observe(self, seconds: float, *values: str) -> None:
        """Takes one in. Clocks of two machines may differ: less than nothing is nothing. Any thread.

        It is counted with others, later: a loop that does so for each record has other things in the processor's cache, and one took ten
        times as long as one of many."""
        self._taken.append((seconds, values))
        if len(self._taken) >= TAKEN_MOST:
            self._count_taken()

    def _count_taken(self) -> None:
        with contextlib.suppress(IndexError):  # none is left, or another thread has taken it
            while True:
                self._count(*self._taken.popleft())

    def _count(self, seconds: float, values: tuple[str, ...]) -> None:
        histogram = self._begun.get(values)  # as a counter's
        if histogram is None:
            known = self.bounded(values)
            histogram = self._histogram.labels(*known)
            if known == values:  # those are few; what a stranger wrote is not kept
                self._begun[values] = histogram
        histogram.observe(max(seconds, 0.0))

    def families(self) -> Iterable[Family]:
        self._count_taken()
        return self._histogram.collect()


class Sample(NamedTuple):
    """A value that was read."""

    metric: Shown
    value: float
    labels: tuple[str, ...]


class Shown(Metric):
    """Is read when somebody asks."""

    kind = "gauge"

    def __init__(
        self, name: str, services: Sequence[str], meaning: str, labels: Labels | None = None,
        kind: Literal["gauge", "counter"] = "gauge", of_library: bool = False,
    ) -> None:  # fmt: skip
        """`of_library`: the library reads it, under this name."""
        super().__init__(name, services, meaning, labels)
        self.kind = kind  # type: ignore[misc]  # the one class that has two
        self.of_library = of_library

    def of(self, value: float, *labels: str) -> Sample:
        return Sample(self, value, self.bounded(labels))

    def counts(self, counts: Mapping[str, int]) -> Iterator[Sample]:
        """Of its one label: how many there are of each value, also of those of which there are none."""
        found = dict.fromkeys((values[0] for values in self.combinations()), 0)
        for value, count in counts.items():
            (known,) = self.bounded((value,))
            found[known] = found.get(known, 0) + count
        yield from (self.of(count, value) for value, count in found.items())

    def family(self, samples: Iterable[Sample]) -> Family:
        shape = CounterMetricFamily if self.kind == "counter" else GaugeMetricFamily
        family = shape(self.name, self.meaning, labels=list(self.labels))
        for sample in samples:
            family.add_metric(sample.labels, sample.value)
        return family


SCOPE: Labels = {"scope": "the scopes of the process"}
LIVE = tuple(state for state in get_args(JobState) if state not in tuple(ENDED_JOB))
LANES = tuple(effect.__name__ for service in CONTROL for effect in EFFECTS_OF[service])
UNUSABLE = "unusable"
REJECTED = get_args(JobRejected.model_fields["kind"].annotation)
STORE, QUEUE, START = "store", "queue", "start"
RUN = ("plan", "compute", "exchange", "publish")

# ---- of every process

BUILD_INFO = Shown("millrace_build_info", EVERY, "1; its label says which version runs.", {"version": "the version that runs"})
for _name, _meaning in (
    ("cpu_seconds_total", "Processor time of the process. The processes of a slot are not in it."),
    ("resident_memory_bytes", "Memory of the process."), ("virtual_memory_bytes", "Address space of the process."),
    ("open_fds", "Open files and connections."), ("max_fds", "As many may be open."),
    ("start_time_seconds", "When it started, in Unix time."),
):  # fmt: skip
    Shown(f"process_{_name}", EVERY, _meaning, kind="counter" if _name.endswith("_total") else "gauge", of_library=True)
OPERATION: Labels = {"operation": ("range", "txn", "lease")}
ETCD_SECONDS = Timed(
    "millrace_etcd_request_seconds", EVERY, "From a request to etcd to its answer, or to the end of waiting for it.", OPERATION,
)  # fmt: skip
ETCD_FAILURES = Counted("millrace_etcd_failures_total", EVERY, "Requests to etcd without an answer, or that it refused.", OPERATION)
KAFKA_SECONDS = Shown(
    "millrace_kafka_request_seconds", STREAMING,
    "From a request of its producers to the broker's answer, in the last ten seconds, of the slowest broker. With acks=all it is how long "
    "a record takes to be on all in-sync replicas.", {"quantile": ("0.5", "0.99")},
)  # fmt: skip
KAFKA_QUEUE = Shown("millrace_kafka_queue_records", STREAMING, "Records that no broker has acknowledged.")

SENT, DROPPED = "sent", "dropped"
SPANS = Counted(
    "millrace_spans_total", EVERY,
    "Spans of traces: sent to the collector, or dropped because it did not take them, or so many waited for it.",
    {"outcome": (SENT, DROPPED)},
)  # fmt: skip

# ---- of whoever folds an inbox

COMMAND_LAG = Timed(
    "millrace_command_lag_seconds", STREAMING,
    "From the broker's stamp of a record to its folding by the leader, or for client.commands to its first check. Two clocks are compared. "
    "Ticks count too, so there are figures while nothing happens.",
    {"inbox": "the scopes of the process, and client.commands"},
)  # fmt: skip
OUTBOX = Shown("millrace_outbox_records", STREAMING, "Sent, or to be sent, and not acknowledged by Kafka.", SCOPE)
LOOP_AGE = Shown("millrace_loop_age_seconds", STREAMING, "Since the loop of the scope last turned. Above 3 it is stuck.", SCOPE)
LEADS = Shown("millrace_leads", CONTROL, "1: this process leads the scope. The sum over all processes is 1.", SCOPE)
EPOCH = Shown("millrace_epoch", CONTROL, "Number of the term that was folded last.", SCOPE)
GENERATION = Shown("millrace_generation", CONTROL, "Number of the log that is folded.", SCOPE)
OFFSET = Shown("millrace_inbox_offset", CONTROL, "The next offset of the inbox to be folded: its rate is records a second.", SCOPE)
EFFECTS = Shown("millrace_effects_waiting", CONTROL, "Effects without an outcome.", SCOPE)
TERMS = Counted("millrace_terms_total", CONTROL, "Terms of leadership that this process began: elections and failovers.", SCOPE)
TERMS_LOST = Counted("millrace_terms_lost_total", CONTROL, "Terms that ended otherwise than by a stop or a handover.", SCOPE)
GENERATIONS = Counted("millrace_generations_total", CONTROL, "Logs that this process found damaged and replaced.", SCOPE)
FENCED = Counted(
    "millrace_fencing_refusals_total", CONTROL, "Writes that etcd refused, because the leader that asked was replaced.", SCOPE,
)  # fmt: skip
PASSED_OVER = Counted(
    "millrace_records_passed_over_total", CONTROL,
    "Records that this process folded without their handler, for they had ended processes. Every process that folds one counts it once, a "
    "standby too.", SCOPE,
)  # fmt: skip
EFFECT_SECONDS = Timed(
    "millrace_effect_seconds", CONTROL,
    "From asking for an effect to its outcome, with all tries. FenceTaskManager: one for each TaskManager declared lost.",
    {"effect": LANES}, LONG_S, begins=False,
)  # fmt: skip
EFFECT_RETRIES = Counted(
    "millrace_effect_retries_total", CONTROL, "Effects to be carried out again.", {"effect": LANES}, begins=False,
)  # fmt: skip

# ---- of jobs

JOBS = Shown("millrace_jobs", (DISPATCHER,), "Jobs that have not ended. Of the leader alone.", {"state": LIVE})
JOBS_ACCEPTED = Counted("millrace_jobs_accepted_total", (DISPATCHER,), "Accepted jobs.")
NEW, AGAIN, REPAIR, SCHEDULE = "new", "again", "repair", "schedule"
JOBS_ORIGINS = Counted(
    "millrace_jobs_origins_total", (DISPATCHER,), "The same by what they come of: submitted by themselves, run again from another job, "
    "begun with what another one had finished, or a schedule's run.", {"origin": (NEW, AGAIN, REPAIR, SCHEDULE)},
)  # fmt: skip
SCHEDULE_TIMES = Counted(
    "millrace_schedule_times_left_out_total", (DISPATCHER,), "Times of schedules that have no job: they were missed, the run before "
    "still went on, the schedule was paused, or the job was not accepted.",
)  # fmt: skip
JOBS_REJECTED = Counted("millrace_jobs_rejected_total", (DISPATCHER,), "Submissions that were refused.", {"kind": REJECTED})
JOBS_ENDED = Counted("millrace_jobs_ended_total", (DISPATCHER,), "Jobs that ended.", {"status": tuple(ENDED_BY.values())})
JOB_SECONDS = Timed(
    "millrace_job_phase_seconds", (DISPATCHER,),
    "Where the time of an ended job went. store: from Kafka's stamp of its submission to its acceptance. The others are those of `spent` "
    "in `show`; plan, compute, exchange and publish are its run.",
    {"phase": (STORE, QUEUE, START, *RUN)}, LONG_S,
)  # fmt: skip
REFUSED = Counted(
    "millrace_requests_refused_total", (DISPATCHER,), "Other requests of clients that were refused.",
    {"kind": get_args(RequestRefused.model_fields["kind"].annotation)},
)  # fmt: skip
DEAD_LETTERS = Counted(
    "millrace_dead_letters_total", (DISPATCHER,), "Records of client.commands that became dead letters: refused submissions that nobody "
    f"waits for, by their kind, and what is no request ({UNUSABLE}).", {"kind": (*REJECTED, UNUSABLE)},
)  # fmt: skip
GRAPH_BYTES = Shown(
    "millrace_job_graphs_bytes", (DISPATCHER,),
    "Characters of the graphs of live jobs, and of those that are being stored; max_live_graphs_mb bounds them.",
)  # fmt: skip
SUBTASKS = Shown(
    "millrace_job_subtasks", (DISPATCHER,), "Subtasks of live jobs, and of those that are being stored; max_live_subtasks bounds them.",
)  # fmt: skip
WAITING = Shown("millrace_requests_waiting", (DISPATCHER,), "Requests that wait for a job's end, or for etcd.")

# ---- of slots and attempts

TASK_MANAGERS = Shown("millrace_task_managers", (RESOURCE_MANAGER,), "Registered TaskManagers.")
TASK_MANAGERS_STARTING = Shown(
    "millrace_task_managers_starting", (RESOURCE_MANAGER,), "TaskManagers that a provider was asked to start, and that have not registered."
)
HOSTS_BLOCKED = Shown("millrace_hosts_blocked", (RESOURCE_MANAGER,), "Hosts of which no slot is granted.")
TASK_MANAGERS_STARTED = Counted(
    "millrace_task_managers_started_total", (RESOURCE_MANAGER,), "TaskManagers that a provider was asked to start."
)
TASK_MANAGERS_FAILED = Counted(
    "millrace_task_managers_failed_total", (RESOURCE_MANAGER,),
    "Of those, how many were not started, did not register in time, or were lost.",
)
PROVIDER_LEFT_OUT = Shown(
    "millrace_provider_left_out", (RESOURCE_MANAGER,), "Agents that do not answer, or refuse: none is started there. Or parts of another "
    "provider.",
)  # fmt: skip
TASK_MANAGERS_GONE = Counted("millrace_task_managers_gone_total", (RESOURCE_MANAGER,), "TaskManagers that left, or were declared lost.")
SLOTS = Shown(
    "millrace_slots", (RESOURCE_MANAGER,), "Slots of registered TaskManagers.", {"state": tuple(each.value for each in SlotState)},
)  # fmt: skip
QUEUE_JOBS = Shown("millrace_queue_jobs", (RESOURCE_MANAGER,), "Jobs that wait for a slot.")
QUEUE_NEVER = Shown(
    "millrace_queue_unfit_jobs", (RESOURCE_MANAGER,), "Of those, how many want slots that the cluster has none of, and can have none of."
)
QUEUE_SECONDS = Shown("millrace_queue_age_seconds", (RESOURCE_MANAGER,), "The longest time that a job has waited for its slots.")
SHARD_JOBS = Shown("millrace_shard_jobs", (JOB_MASTER,), "Jobs of the shard.", SCOPE)
SHARD_SLOTS = Shown("millrace_shard_slots", (JOB_MASTER,), "Slots that the jobs of the shard hold.", SCOPE)
RESCALED = Counted("millrace_job_rescales_total", (JOB_MASTER,), "Times that a live job was given another parallelism.")
ATTEMPTS_STARTED = Counted("millrace_attempts_started_total", (JOB_MASTER,), "Attempts that came to run.")
SECOND_ATTEMPTS_STARTED = Counted(
    "millrace_second_attempts_started_total", (JOB_MASTER,), "Second attempts of slow subtasks that were deployed beside the first ones."
)
SECOND_ATTEMPTS_WON = Counted(
    "millrace_second_attempts_won_total", (JOB_MASTER,), "Second attempts that finished before the first ones, which were canceled."
)
ATTEMPTS_ENDED = Counted(
    "millrace_attempts_ended_total", (JOB_MASTER,),
    "Attempts that ended: finished, canceled, or the kind of their fault (docs/reference.md).",
    {"outcome": ("finished", "canceled", *get_args(FaultKind), OTHER)},
)  # fmt: skip
OWN_SLOTS = Shown(
    "millrace_task_manager_slots", (TASK_MANAGER,), "Its own slots, as it sees them itself.",
    {"state": tuple(each.value for each in SlotState if each is not SlotState.PENDING)},
)  # fmt: skip
REGISTERED = Shown("millrace_task_manager_registered", (TASK_MANAGER,), "1: the ResourceManager knows it.")
BEHIND = Shown("millrace_task_manager_behind", (TASK_MANAGER,), "1: it may have been declared lost, and launches nothing until it knows.")

HIT, FETCHED, FAILED = "hit", "fetched", "failed"
BLOB_REQUESTS = Counted(
    "millrace_blob_cache_requests_total", (TASK_MANAGER,),
    "Files of jobs that attempts wanted: from the cache (hit), from storage (fetched), or not to be had (failed).",
    {"outcome": (HIT, FETCHED, FAILED)},
)  # fmt: skip
BLOB_BYTES = Counted("millrace_blob_cache_fetched_bytes_total", (TASK_MANAGER,), "What it fetched from storage.")
BLOBS_DAMAGED = Counted(
    "millrace_blob_cache_damaged_total", (TASK_MANAGER,), "Files of jobs that were not what their hash says, in the cache or as they came.",
)  # fmt: skip
BLOBS_HELD = Shown("millrace_blob_cache_files", (TASK_MANAGER,), "Files of jobs in the cache.")
BLOBS_HELD_BYTES = Shown("millrace_blob_cache_bytes", (TASK_MANAGER,), "How large they are together; blob_cache_mb bounds them.")
BLOBS_USED = Shown("millrace_blob_cache_used_files", (TASK_MANAGER,), "Those of them that an attempt uses now.")

SPARK_TASKS = Shown(
    "millrace_spark_tasks_total", (TASK_MANAGER,), "Spark tasks of all attempts in its slots, as these and the next ones report them about "
    "once a second and at their end.", {"outcome": ("done", "failed")}, kind="counter",
)  # fmt: skip
SPARK_ROWS = Shown(
    "millrace_spark_rows_total", (TASK_MANAGER,), "Rows that Spark tasks read and wrote. read: from sources, and from what other tasks "
    "handed on. shuffle: between Spark's stages.",
    {"what": ("read", "written", "shuffle_read", "shuffle_written")}, kind="counter",
)  # fmt: skip
SPARK_BYTES = Shown(
    "millrace_spark_bytes_total", (TASK_MANAGER,), "The same in bytes. spilled: of rows for which a task had no room in memory, as "
    "large as they were there, and as they were written to disk.",
    {"what": ("read", "written", "shuffle_read", "shuffle_written", "spilled_memory", "spilled_disk")}, kind="counter",
)  # fmt: skip
SPARK_SECONDS = Shown(
    "millrace_spark_task_seconds_total", (TASK_MANAGER,), "Of Spark tasks, added up over all of them. run: they ran. cpu: processor "
    "time in the JVM. gc: the JVM collected garbage meanwhile; tasks side by side count the same collection each.",
    {"what": ("run", "cpu", "gc")}, kind="counter",
)  # fmt: skip
SPARK_PEAK = Shown(
    "millrace_spark_memory_peak_bytes", (TASK_MANAGER,), "The most that a stage of an attempt that runs has needed to sort, join and "
    "aggregate, added up over its tasks.",
)  # fmt: skip

# ---- of the web service

WEB_JOBS = Shown("millrace_web_jobs", (WEB,), "Jobs that it shows, the retained ended ones too.", {"status": get_args(StatusShown)})
WEB_SLOTS = Shown("millrace_web_slots", (WEB,), "Slots that it shows.", {"state": get_args(SlotStateShown)})
WEB_TASK_MANAGERS = Shown("millrace_web_task_managers", (WEB,), "TaskManagers that it shows.")
WEB_FACTS = Shown(
    "millrace_web_facts_total", (WEB,), "Records that it has read.", {"what": ("news", "known", "unreadable")}, kind="counter",
)  # fmt: skip
WEB_OFFSET = Shown(
    "millrace_web_offset", (WEB,), "The last offset that it shows.",
    {"topic": "job.events and cluster.events", "partition": "their partitions"},
)  # fmt: skip
WEB_FOLLOWS = Shown("millrace_web_follows", (WEB,), "1: Kafka answers, and what it has is read.")
WEB_FOLD_AGE = Shown("millrace_web_last_fold_age_seconds", (WEB,), "Since the last record was taken in.")
WEB_AS_OF = Shown("millrace_web_as_of_seconds", (WEB,), "Kafka's stamp of the newest record that it shows, in Unix time.")
NO_ANSWER = "none"
WEB_REQUESTS = Timed(
    "millrace_web_request_seconds", (WEB,),
    "From a request over HTTP to the end of its answer, or of a stream to its beginning. A status of none: its client left before.",
    {
        "route": "the routes (docs/access.md, and Flink's below /v1), `/flink/{file}`, and other",
        "method": ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"),
        "status": ("2xx", "3xx", "4xx", "5xx", NO_ANSWER),
    },
    (0.001, 0.005, 0.02, 0.1, 0.5, 2, 10, 60),
)  # fmt: skip
