"""Flink's metrics of processes: real values, asked for at most once an interval and one poll at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import TypeAdapter

from millrace.client import NotFound
from millrace.core.messages.processes import Collector, ProcessDescribed, SlotDescribed, TaskManagerDescribed
from services.web.flink import fetcher, job_manager, shapes, taskmanagers
from services.web.flink.fetcher import AT_ONCE, MetricFetcher, Sampled
from tests.core.of_processes import jvm_status, process_status
from tests.web.flink.scene import MEMBER, Commands, made


@pytest.fixture(scope="module")
def web() -> Iterator[Any]:
    """Flink's paths over the cluster of the scene, with one event loop for all requests."""
    with made(Commands([MEMBER])) as client:
        yield client


def described(name: str = "tm", **jvm: Any) -> TaskManagerDescribed:
    slots = [SlotDescribed(slot=0, state="FREE", memory_mb=512, jvm=jvm_status(**jvm))]
    return TaskManagerDescribed(correlation="", task_manager=name, incarnation=1, status=process_status(cores=4), slots=slots, total=1)


class Cluster:
    """Its processes answer when the test lets them."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.at_once = self.most = 0
        self.gate: asyncio.Event | None = None
        self.gone: set[str] = set()
        self.now_s = 0.0

    async def task_manager(self, name: str, wait_s: float) -> TaskManagerDescribed:
        self.asked.append(name)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            await (self.gate.wait() if self.gate is not None else asyncio.sleep(0))
        finally:
            self.at_once -= 1
        if name in self.gone:
            raise NotFound(f"there is no TaskManager {name}")
        return described(name, threads=len(self.asked))

    async def services(self, wait_s: float) -> list[ProcessDescribed]:
        self.asked.append("")
        return [ProcessDescribed(correlation="", process="d", status=process_status(cpu_ms=100 * len(self.asked)), scopes={})]

    def fetcher(self, interval_s: float = 10.0) -> MetricFetcher:
        return MetricFetcher(self, interval_s, lambda: self.now_s)  # type: ignore[arg-type]  # nothing else is called


def test_a_process_is_asked_once_an_interval_whoever_looks() -> None:
    cluster = Cluster()

    async def looks() -> None:
        made = cluster.fetcher()
        for _ in range(3):
            found = await asyncio.gather(*(made.task_manager("a") for _ in range(5)))
            assert all(each is not None and each.slots[0].jvm.threads == 1 for each in found)
        assert cluster.asked == ["a"]
        cluster.now_s = 10.0
        before = await made.task_manager("a")
        assert before is not None and before.slots[0].jvm is not None and before.slots[0].jvm.threads == 1, "it waits for nothing"
        await asyncio.sleep(0.01)
        after = (await made.task_managers(["a"]))["a"]
        assert isinstance(after.found, TaskManagerDescribed) and after.found.slots[0].jvm.threads == 2
        assert after.before is not None and after.before.found == before and after.before.before is None, "two are kept, for rates"
        assert cluster.asked == ["a", "a"]

    asyncio.run(looks())


def test_who_looks_again_after_a_while_is_told_nothing_old() -> None:
    cluster = Cluster()

    async def looks() -> None:
        made = cluster.fetcher()
        await made.task_manager("a")
        cluster.now_s = 30.0
        seen = (await made.task_managers(["a"]))["a"]
        assert isinstance(seen.found, TaskManagerDescribed) and seen.found.slots[0].jvm is not None
        assert (seen.found.slots[0].jvm.threads, seen.before) == (2, None), "a rate over the pause would tell of no moment"
        cluster.now_s = 60.0
        cluster.gone.add("a")
        assert await made.task_managers(["a"]) == {}

    asyncio.run(looks())


def test_one_poll_goes_on_at_a_time_and_asks_few_at_once() -> None:
    cluster = Cluster()
    names = [f"tm-{number}" for number in range(2 * AT_ONCE + 5)]

    async def looks() -> None:
        made = cluster.fetcher()
        found, other, service = await asyncio.gather(made.task_managers(names), made.task_manager("other"), made.service("d"))
        assert list(found) == names and other is not None and service[0] is not None
        assert cluster.most == AT_ONCE and sorted(cluster.asked) == sorted([*names, "other", ""])

    asyncio.run(looks())


def test_who_is_wanted_during_a_poll_is_asked_after_it() -> None:
    cluster = Cluster()

    async def looks() -> None:
        made = cluster.fetcher()
        await made.task_managers(["a", "b"])
        cluster.now_s = 10.0
        cluster.gate = asyncio.Event()
        for name in ("a", "b", "a"):
            assert await made.task_manager(name) is not None, "as it was before"
            await asyncio.sleep(0.01)
        assert cluster.asked == ["a", "b", "a"], "one poll at a time"
        cluster.gate.set()
        await asyncio.sleep(0.05)
        assert cluster.asked == ["a", "b", "a", "b"]

    asyncio.run(looks())


def test_who_does_not_answer_holds_up_nobody_for_long_and_has_no_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetcher, "WAIT_S", 0.05)
    cluster = Cluster()
    cluster.gone.add("gone")

    async def looks() -> None:
        made = MetricFetcher(cluster, 10.0)  # type: ignore[arg-type]  # by the real clock
        assert (await made.task_manager("gone"), await made.task_manager("a") is not None) == (None, True)
        cluster.gate = asyncio.Event()
        assert await made.task_manager("hangs") is None
        assert await made.task_manager("a") is not None, "what is known is told meanwhile"
        cluster.gate.set()
        await asyncio.sleep(0.01)
        assert await made.task_manager("hangs") is not None

    asyncio.run(looks())


def test_without_an_interval_nobody_is_asked() -> None:
    cluster = Cluster()

    async def looks() -> None:
        made = cluster.fetcher(0.0)
        assert (await made.task_manager("a"), await made.service("d"), cluster.asked) == (None, (None, None, 0.0), [])

    asyncio.run(looks())


def test_the_fetcher_remembers_only_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetcher, "KEPT_MOST", 3)
    cluster = Cluster()

    async def looks() -> None:
        made = cluster.fetcher()
        for number in range(9):
            await made.task_manager(f"tm-{number}")
        assert len(made._asked_s) == len(made._values) == 3

    asyncio.run(looks())


def test_rates_are_of_what_has_grown_since_it_was_asked_before() -> None:
    slots: list[Any] = [{"state": "FREE"}]
    old = described(cpu_ms=1_000, collectors=[Collector(name="PS", count=2, time_ms=80), Collector(name="gone", count=1, time_ms=1)])
    new = described(cpu_ms=9_000, collectors=[Collector(name="PS", count=3, time_ms=280), Collector(name="new", count=1, time_ms=9)])
    found = taskmanagers.measured_of(slots, Sampled(new, 30.0, Sampled(old, 20.0)))
    assert found["Status.JVM.GarbageCollector.PS.TimeMsPerSecond"] == 20.0 and found["Status.JVM.CPU.Load"] == 0.2
    assert found["Status.JVM.CPU.Time"] == 9_000_000_000 and "Status.JVM.GarbageCollector.new.TimeMsPerSecond" not in found
    later = new.slots[0].model_copy(update={"slot": 1})  # its JVM was not ready before, and has done much
    both = taskmanagers.measured_of(slots, Sampled(new.model_copy(update={"slots": [*new.slots, later]}), 30.0, Sampled(old, 20.0)))
    assert both["Status.JVM.CPU.Load"] == 0.2 and both["Status.JVM.CPU.Time"] == 18_000_000_000
    began = described(cpu_ms=9_500, uptime_ms=3)
    assert "Status.JVM.CPU.Load" not in taskmanagers.measured_of(slots, Sampled(began, 30.0, Sampled(old, 20.0)))
    again = taskmanagers.measured_of(slots, Sampled(old, 30.0, Sampled(new, 20.0)))  # its JVM was replaced
    assert "Status.JVM.CPU.Load" not in again and "Status.JVM.GarbageCollector.PS.TimeMsPerSecond" not in again
    first = taskmanagers.measured_of(slots, Sampled(new, 30.0))
    assert not any(name.endswith(("PerSecond", "Load")) for name in first)


def test_a_dispatcher_has_its_memory_as_heap_and_the_collections_of_python() -> None:
    before = process_status(pid=5, cpu_ms=1_000, collections_ms=100, cores=2)
    now = process_status(pid=5, cpu_ms=3_000, collections_ms=150, collections=40, resident=60, memory=900, cores=2)
    found = job_manager.of_process(now, before, 10.0)
    assert (found["Status.JVM.Memory.Heap.Used"], found["Status.JVM.Memory.Heap.Max"]) == (60, 900)
    assert (found["Status.JVM.CPU.Load"], found["Status.JVM.CPU.Time"]) == (0.1, 3_000_000_000)
    assert found["Status.JVM.GarbageCollector.Python.Count"] == 40
    assert found["Status.JVM.GarbageCollector.Python.TimeMsPerSecond"] == 5.0
    began = job_manager.of_process(now.model_copy(update={"pid": 6}), before, 10.0)
    assert "Status.JVM.CPU.Load" not in began, "another process of this name"
    old = job_manager.of_process(process_status(collections=None, collections_ms=None), None, 0.0)
    assert not any("Garbage" in name for name in old)


def test_values_have_flinks_shape(web: Any) -> None:
    for path, shape in (
        ("/jobmanager/metrics", list[shapes.Metric]), ("/taskmanagers/tm/metrics", list[shapes.Metric]),
        ("/taskmanagers/metrics", list[shapes.Aggregate]), ("/jobs/metrics", list[shapes.Aggregate]),
    ):  # fmt: skip
        ids = [each["id"] for each in web.get(path).json()]
        assert ids and all(each.keys() == {"id"} for each in web.get(path).json())
        values = web.get(path, params={"get": ",".join(ids)}).json()
        assert [each["id"] for each in values] == ids
        TypeAdapter(shape).validate_python(values, strict=True)
        if "s/metrics" not in path.replace("taskmanagers/tm", "tm"):
            assert all(isinstance(each["value"], str) and float(each["value"]) >= 0 for each in values)


def test_what_the_dashboard_asks_of_the_job_manager_is_there(web: Any) -> None:
    there = ["Status.JVM.Memory.Heap.Used", "Status.JVM.Memory.Heap.Max", "Status.JVM.GarbageCollector.Python.Count"]
    asked = ",".join([*there, "Status.Flink.Memory.Managed.Used"])
    assert [each["id"] for each in web.get(f"/jobmanager/metrics?get={asked}").json()] == there


def test_metrics_are_of_those_that_are_named_alone(web: Any) -> None:
    assert web.get("/taskmanagers/metrics?get=taskSlotsTotal&agg=sum&taskmanagers=none").json() == []
    assert web.get("/taskmanagers/metrics?get=taskSlotsTotal&agg=sum&taskmanagers=tm,none").json() == [{"id": "taskSlotsTotal", "sum": 3}]
    jobs = [each["id"] for each in web.get("/jobs").json()["jobs"]]
    assert len(jobs) > 2
    whole, one = (web.get(f"/jobs/metrics?get=runningTime&agg=sum{more}").json() for more in ("", f"&jobs={jobs[0]}"))
    assert one != [] and one[0]["sum"] <= whole[0]["sum"]
    assert web.get("/jobs/metrics?get=runningTime&jobs=none").json() == []
