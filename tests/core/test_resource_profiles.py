"""Resource profiles: what slots have, what jobs and vertices ask for, and which slot they get."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from deploy.local.stack import Options
from deploy.local.stack_settings import Served, _provided
from millrace.core.clocks import AtMs
from millrace.core.jobgraph.compile import PLAN_TASK, compile_graph
from millrace.core.jobgraph.definitions import definitions
from millrace.core.jobgraph.model import JobGraph
from millrace.core.jobgraph.validate import validate
from millrace.core.machine import Configured, Envelope, PeerBorn
from millrace.core.messages import jobs, slots
from millrace.core.messages.profiles import WantedSlots, parts_of
from millrace.core.messages.slots import RegisterTaskManager, ReportedSlot
from millrace.core.profile import ExtraCounts, Profile, largest, unmet
from millrace.edge.graph_file import load_graph, load_script
from services.resource_manager.core.state import Slot, State
from services.task_manager.core.machine import TaskManager
from services.task_manager.settings import TaskManagerSettings
from tests.core.of_job_master import RM, TM, Shard, kinds
from tests.core.of_resource_manager import TM_A, TM_B, Driver, queued
from tests.core.of_workers import W1, W2, Provided, grants

PLAIN, GPU, BIG = Profile(1024, 2), Profile(1024, 2, (("gpu", 1),)), Profile(8192, 4)
MIXED: dict[str, Any] = {
    "name": "mixed",
    "vertices": {
        "a": {"sql": "SELECT 1 AS x"},
        "b": {"sql": "SELECT x FROM a", "parallelism": 2, "inputs": {"a": "hash(x)"}, "resources": {"extras": {"gpu": 1}}},
    },
}


def of(**parts: Any) -> Profile:
    return Profile.of(**parts)


# the profile


@pytest.mark.parametrize(
    ("slot", "wanted", "does"),
    [
        (PLAIN, of(), True), (PLAIN, of(memory_mb=1024, cores=2), True), (PLAIN, of(memory_mb=1025), False), (PLAIN, of(cores=3), False),
        (PLAIN, of(extras={"gpu": 1}), False), (GPU, of(extras={"gpu": 1}), True), (GPU, of(extras={"gpu": 2}), False),
        (GPU, of(extras={"gpu": 1, "ssd": 1}), False), (Profile(1024), of(cores=1), False),
    ],
)  # fmt: skip
def test_a_slot_satisfies_when_it_has_at_least_each_part(slot: Profile, wanted: Profile, does: bool) -> None:
    assert slot.satisfies(wanted) is does


def test_the_largest_is_the_most_of_each_part() -> None:
    assert largest([of(memory_mb=9, extras={"gpu": 1}), of(cores=3), of(memory_mb=2, extras={"gpu": 2, "a": 1})]) == of(
        memory_mb=9, cores=3, extras={"a": 1, "gpu": 2}
    )


def test_slots_serve_first_who_wants_exactly_them_and_then_who_wants_most() -> None:
    gpu, big = of(extras={"gpu": 1}), of(memory_mb=8192)
    both = of(memory_mb=8192, extras={"gpu": 1})
    assert unmet({gpu: 1, big: 1}, {both: 1, BIG: 1}) == {}
    assert unmet({gpu: 1, big: 1}, {both: 1}) == {big: 1}
    assert unmet({both: 1, gpu: 1}, {both: 1}) == {gpu: 1}, "a slot in use is wanted by its own profile"
    assert unmet({of(): 2}, {GPU: 1}) == {of(): 1}


def test_its_key_is_read_again_and_that_of_memory_alone_is_as_in_builds_before() -> None:
    for profile in (Profile(), PLAIN, GPU, of(cores=7, extras={"a-b.c": 2, "Z": 1})):
        assert Profile.read(profile.key) == profile
    assert Profile(1024).key == "1024" and GPU.key == "1024,cores=2,gpu=1"
    assert GPU.text == "1024 MB, 2 cores, gpu 1"


def test_a_snapshot_of_a_build_before_has_memory_in_its_place() -> None:
    snapshot = TypeAdapter(State)
    state = Driver().declared()
    state.register(memory_mb=(2048, 1024))
    written = snapshot.dump_python(state.state, mode="json")
    assert written["free"].keys() == {"2048", "1024"}
    for slot in written["task_managers"]["a"]["slots"].values():
        slot["memory_mb"] = int(slot.pop("profile"))
    assert snapshot.validate_python(written) == state.state
    assert TypeAdapter(Slot).validate_python({"memory_mb": 5, "state": "FREE"}).profile == Profile(5)


@pytest.mark.parametrize("extras", [{"gpu": 0}, {"gpu": -1}, {"gpu": 1.5}, {"gpu": True}, {"9": 1}, {"cores": 1}, {"a": 1_000_001},
                                    {f"a{n}": 1 for n in range(17)}])  # fmt: skip
def test_extras_are_few_and_counted_in_whole_numbers(extras: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(ExtraCounts).validate_python(extras, strict=True)


# the graph


def test_a_vertex_overrides_the_job_part_by_part_and_a_task_has_the_most_of_its_vertices() -> None:
    graph = {
        "name": "g",
        "resources": {"memory_mb": 2048, "extras": {"gpu": 1}},
        "vertices": {
            "s": {"source": {"format": "csv", "path": "/d/x.csv"}, "parallelism": 2, "resources": {"extras": {}}},
            "a": {"sql": "SELECT * FROM s", "parallelism": 2, "inputs": {"s": "forward"}, "resources": {"extras": {}, "cores": 2}},
            "b": {"sql": "SELECT * FROM a", "parallelism": 2, "inputs": {"a": "hash(x)"}, "resources": {"memory_mb": 512}},
        },
    }
    plan = compile_graph(JobGraph.model_validate(graph))
    job = of(memory_mb=2048, extras={"gpu": 1})
    assert plan.profiles == {"s+a": of(memory_mb=2048, cores=2), "b": of(memory_mb=512, extras={"gpu": 1}), PLAN_TASK: job}
    assert plan.profile is None
    whole = compile_graph(JobGraph.model_validate({**graph, "together": True}))
    assert whole.profile == of(memory_mb=2048, cores=2, extras={"gpu": 1}), "who starts together has slots that serve each"


def test_where_a_vertex_runs_makes_no_other_vertex_of_it() -> None:
    other = {**MIXED, "vertices": {**MIXED["vertices"], "b": {**MIXED["vertices"]["b"], "resources": {"cores": 4}}}}
    found = [definitions(compile_graph(JobGraph.model_validate(graph)), None) for graph in (MIXED, other)]
    assert found[0] == found[1]


def test_what_is_wrong_is_named_by_its_field() -> None:
    vertex = {"sql": "SELECT 1", "resources": {"cores": 0, "extras": {"gpu": 0, "9": 1}}}
    found = validate({"name": "g", "vertices": {"a": vertex}, "resources": {"extras": {"memory_mb": 1}, "memroy_mb": 1}})
    assert isinstance(found, list)
    said = {".".join(map(str, each.place)): each.message for each in found}
    assert said["vertices.a.resources.cores"] == "must be at least 1, not 0"
    assert said["vertices.a.resources.extras.gpu"] == "must be at least 1, not 0"
    assert "memory_mb is no extra: it is a part of its own" in said["resources.extras"]
    assert any(place.startswith("vertices.a.resources.extras.9") for place in said) and "resources.memroy_mb" in said


def test_options_of_submit_go_before_the_files_own_for_the_job(tmp_path: Path) -> None:
    file = tmp_path / "g.yaml"
    file.write_text("name: g\nresources: {cores: 1, extras: {ssd: 1}}\nvertices:\n  a: {sql: SELECT 1, resources: {memory_mb: 9}}\n")
    loaded = load_graph(file, resources={"memory_mb": "4096", "cores": "2", "gpu": "1"}, checks=False)
    assert loaded.graph is not None and loaded.raw["vertices"]["a"]["resources"] == {"memory_mb": 9}
    assert loaded.raw["resources"] == {"memory_mb": 4096, "cores": 2, "extras": {"ssd": 1, "gpu": 1}}
    wrong = load_graph(file, resources={"gpu": "x", "9": "1"}, checks=False)
    assert [".".join(map(str, each.place)) for each in wrong.errors] == ["resources.extras.gpu", "resources.extras.9"]
    [negative] = load_graph(file, resources={"gpu": "-1"}, checks=False).errors
    assert negative.message == "must be at least 1, not -1"
    script = tmp_path / "s.py"
    script.write_text("print(1)\n")
    assert load_script(script, resources={"gpu": "2"}).raw["resources"] == {"extras": {"gpu": 2}}


# the TaskManager


def test_a_task_manager_registers_what_its_slots_have() -> None:
    settings = TaskManagerSettings(slots=2, heap_mb=1024, cores=3, slot_extras={"gpu": 1})
    machine = TaskManager("t", shards=1)
    state = machine.blank()
    told = {**settings.deciding(), "incarnation": 1}
    list(machine.handle(state, Envelope("", 0, AtMs(1), "1.1", Configured(told), AtMs(1))))
    [said] = list(machine.handle(state, Envelope("", 0, AtMs(1), "1.2", PeerBorn(RM, 1), AtMs(1))))
    assert [(each.slot, each.profile) for each in said.body.slots] == [(n, of(memory_mb=1024, cores=3, extras={"gpu": 1})) for n in (0, 1)]
    assert TaskManagerSettings().deciding()["slot_cores"] >= 1, "without the setting: the machine's"


def test_a_stack_that_grows_says_what_its_slots_will_have(tmp_path: Path) -> None:
    written = _provided(Options(slots=2, cores=2, heap_mb=512, slot_extras={"gpu": 1}), Served("http://a", "t"), {})
    assert (written["worker_slot_cores"], written["worker_slot_extras"]) == (2, {"gpu": 1})
    own = {"task_manager": {"slot_extras": {"ssd": 2}}}
    assert _provided(Options(heap_mb=512), Served("http://a", "t"), own)["worker_slot_extras"] == {"ssd": 2}


# the ResourceManager


def cluster(*task_managers: tuple[str, Profile]) -> Driver:
    made = Driver().declared()
    for scope, *profiles in task_managers:
        register(made, scope, *profiles)
    return made


def register(driver: Driver, scope: str, *profiles: Profile) -> list[Any]:
    specs = [jobs.SlotSpec(slot=number, **parts_of(profile)) for number, profile in enumerate(profiles)]
    states = [ReportedSlot(slot=number, state="FREE") for number in range(len(specs))]
    return driver.say(scope, RegisterTaskManager(host="h", slots=specs, states=states))


def want(*wants: tuple[int, Profile]) -> dict[str, Any]:
    return {
        "slots": sum(number for number, _ in wants),
        "profiles": [WantedSlots(slots=number, **parts_of(profile)) for number, profile in wants],
    }


def test_a_job_gets_the_tightest_slot_and_rare_ones_are_left_for_who_asks_for_them() -> None:
    driver = cluster((TM_A, GPU), (TM_B, PLAIN))
    assert grants(driver.ask("any")) == [("any", "b")]
    assert grants(driver.ask("gpu", **want((1, of(extras={"gpu": 1}))))) == [("gpu", "a")]


def test_who_asks_for_what_is_not_free_waits_and_others_go_on() -> None:
    driver = cluster((TM_A, GPU), (TM_B, PLAIN))
    driver.ask("first", **want((1, of(extras={"gpu": 1}))))
    assert grants(driver.ask("second", since_ms=1, **want((1, of(extras={"gpu": 1}))))) == []
    assert grants(driver.ask("any", since_ms=2)) == [("any", "b")]
    assert driver.tick() == [queued("second", "the 1 slot with gpu 1 of 1 TaskManager is busy", 1)]
    driver.ask("any", 0)
    assert grants(driver.free(TM_B)) == [], "a slot without does not serve it"
    driver.ask("first", 0)
    assert grants(driver.free(TM_A)) == [("second", "a")]


def test_a_job_of_several_profiles_gets_of_each_what_it_lacks() -> None:
    driver = cluster((TM_A, GPU, GPU), (TM_B, PLAIN))
    gpu = of(extras={"gpu": 1})
    assert grants(driver.ask("j", **want((1, of()), (3, gpu)))) == [("j", "b"), ("j", "a"), ("j", "a")]
    assert list(driver.state.waiting.places) == ["j"] and driver.state.lacks("j").keys() == {(gpu, 1)}
    assert driver.tick() == [queued("j", "3 of 4 slots: all 2 slots with gpu 1 of 1 TaskManager are busy", 1)]
    assert grants(driver.ask("j", **want((1, of()), (2, GPU)))) == [] and not driver.state.waiting


def test_a_job_that_waits_in_two_lines_is_one_of_the_queue() -> None:
    driver = cluster((TM_A, GPU), (TM_B, PLAIN))
    driver.ask("before", 2)
    driver.ask("j", since_ms=1, **want((1, of(memory_mb=512)), (1, of(extras={"gpu": 1}))))
    driver.ask("k", since_ms=2)
    assert [(each.body.job, each.body.position) for each in driver.tick()] == [("j", 1), ("k", 2)]
    driver.ask("j", 0)
    assert list(driver.state.waiting.places) == ["k"] and len(driver.state.waiting.lines) == 1


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (of(extras={"gpu": 2}), "needs gpu 2 a slot, of at most 1"),
        (of(extras={"tpu": 1}), "needs tpu 1 a slot, of at most 0"),
        (of(cores=8), "needs 8 cores a slot, the largest has 4 cores"),
        (of(memory_mb=9000, cores=9), "needs 9000 MB a slot, the largest has 8192 MB"),
        (of(memory_mb=8192, extras={"gpu": 1}), "needs 8192 MB, gpu 1 in one slot, and none has all of it"),
    ],
)
def test_who_asks_for_what_no_slot_has_is_told_of_the_part_and_is_in_nobodys_way(wanted: Profile, reason: str) -> None:
    driver = cluster((TM_A, GPU), (TM_B, BIG))
    driver.ask("j", **want((1, wanted)))
    driver.ask("any", since_ms=1)
    assert driver.tick() == [queued("j", reason, None)]


def test_a_job_of_which_one_part_can_never_run_has_that_reason_while_the_others_do() -> None:
    driver = cluster((TM_A, PLAIN))
    assert grants(driver.ask("j", **want((1, of()), (1, of(extras={"gpu": 1}))))) == [("j", "a")]
    assert driver.tick() == [queued("j", "1 of 2 slots: needs gpu 1 a slot, of at most 0", None)]


def test_a_gang_is_given_slots_that_satisfy_or_none() -> None:
    driver = cluster((TM_A, GPU, PLAIN), (TM_B, GPU, GPU))
    [(_, other)] = grants(driver.ask("before", **want((1, of(extras={"gpu": 1})))))
    assert grants(driver.ask("gang", together=True, **want((3, of(extras={"gpu": 1}))))) == []
    driver.ask("before", 0)
    assert sorted(grants(driver.free(f"task-manager/{other}"))) == [("gang", "a"), ("gang", "b"), ("gang", "b")]


def test_after_nine_slots_that_others_got_the_next_one_goes_to_who_is_first_of_all() -> None:
    """As for memory: those who want less do not starve who wants more of the same slot."""
    driver = cluster((TM_A, GPU))
    driver.core(Configured({"tenants": {"small": {"weight": 1000}}}))
    register(driver, TM_B, PLAIN)
    driver.ask("held", tenant="large")
    driver.ask("s", 1, since_ms=2, tenant="small")
    driver.ask("gpu", since_ms=1, tenant="large", **want((1, of(extras={"gpu": 1}))))
    got = []
    for number in range(12):
        driver.ask(f"s{number}", since_ms=3 + number, tenant="small")
        driver.ask(driver.state.task_managers["a"].slots[0].job or "", 0)
        got += grants(driver.free(TM_A))
    assert [job for job, _ in got].index("gpu") == 9


# a provider


def test_none_is_started_for_a_job_that_its_slots_would_not_satisfy() -> None:
    driver = Provided(worker_slot_cores=2, worker_slot_extras={"gpu": 1})
    driver.ask("j", **want((1, of(extras={"gpu": 2}))))
    assert driver.wait(1_000) == [queued("j", "needs gpu 2 a slot, of at most 1", None)]
    assert driver.states() == {}
    driver.ask("k", **want((3, of(cores=2, extras={"gpu": 1}))))
    driver.wait(1_000)
    assert list(driver.states()) == [W1, W2]


def test_slots_without_do_not_count_for_who_needs_some() -> None:
    driver = Provided(worker_slot_extras={"gpu": 1}, task_managers_max=3)
    register(driver, "task-manager/by-hand", PLAIN, PLAIN)
    driver.ask("j", **want((2, of(extras={"gpu": 1}))))
    driver.wait(1_000)
    assert list(driver.states()) == [W1]


# the JobMaster


def offer(shard: Shard, *profiles: Profile, first: int = 0, job: str = "j") -> list[Any]:
    offers = [
        slots.SlotOffer(slot=number, allocation=f"a{number}", job=job, **parts_of(profile))
        for number, profile in enumerate(profiles, first)
    ]
    return shard(slots.OfferSlots(offers=offers), TM)


def asked(said: list[Any]) -> list[dict[Profile, int]]:
    requests = [one.body for one in said if isinstance(getattr(one, "body", None), jobs.RequestSlots)]
    return [{each.profile: each.slots for each in body.profiles} for body in requests]


def test_a_job_asks_by_profile_and_what_is_in_use_counts_by_its_own() -> None:
    shard, gpu = Shard(), of(extras={"gpu": 1})
    assert asked(shard.start(MIXED)) == [{of(): 1}]
    said = offer(shard, BIG)
    assert asked(said) == [{BIG: 1}] and "task-manager DeployTasks" in kinds(said)
    said = shard.told("a0", "FINISHED", report={"outputs": {"a": {"schema": "{}", "rows": 1, "bytes": 9}}})
    assert kinds(said)[-2:] == ["task-manager FreeSlots", "resource-manager RequestSlots 2"], "it serves none of those that wait"
    assert asked(said) == [{gpu: 2}]
    said = offer(shard, GPU, PLAIN, first=1)
    [deploy] = [each.body.tasks for each in said if isinstance(getattr(each, "body", None), slots.DeployTasks)]
    assert [(task.allocation, task.spec.resources) for task in deploy] == [("a1", {"gpu": 1})]
    assert asked(said) == [{GPU: 1, gpu: 1}]


def test_a_slot_goes_to_who_wants_most_of_it() -> None:
    shard = Shard()
    roots = {"name": "r", "vertices": {"a": {"sql": "SELECT 1"}, "q": {"sql": "SELECT 1", "resources": {"extras": {"gpu": 1}}}}}
    shard.start(roots)
    offer(shard, GPU, PLAIN)
    assert [slot.task for slot in shard.job.slots.values()] == ["q", "a"]


def test_a_job_of_one_profile_asks_for_memory_as_before_and_for_more_by_profile() -> None:
    shard = Shard()
    [said, *_] = shard.start({"name": "m", "vertices": {"q": {"sql": "SELECT 1"}}, "resources": {"memory_mb": 512}})
    assert said.body == jobs.RequestSlots(job="j", slots=1, priority=0, since_ms=500, memory_mb=512)
    [said, *_] = shard.start({"name": "c", "vertices": {"q": {"sql": "SELECT 1", "resources": {"cores": 2}}}}, job="k")
    assert said.body.memory_mb is None and asked([said]) == [{of(cores=2): 1}]


def test_a_shard_declares_the_same_again_to_a_new_resource_manager() -> None:
    shard = Shard()
    shard.start(MIXED)
    offer(shard, PLAIN)
    assert asked(shard(PeerBorn(RM, 2), "")) == [{PLAIN: 1}]
