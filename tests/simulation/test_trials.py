"""Whole clusters under faults of every kind: every job ends once, nothing leaks, and a run is a function of its seed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from millrace.core.topics import RESOURCE_MANAGER, Topology
from tests.simulation.behaviour import Timing, all_finish
from tests.simulation.book import FENCED_MS, Book, Living
from tests.simulation.faults import ALL, RARE
from tests.simulation.seeds import each_seed
from tests.simulation.trial import Trial, quiet_logs
from tests.simulation.world import PacedBus, World

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _quiet() -> None:
    quiet_logs()


@each_seed(range(12), first=3)
def test_all_jobs_end_once_whatever_happens(seed: int) -> None:
    Trial(seed, faults=16).run()


@each_seed((201, 202, 203, 204, 205, 206), first=2)
def test_logs_that_lose_their_ends_lose_no_job(seed: int) -> None:
    trial = Trial(seed, faults=8, kinds=("cut", "cut", "kill", "pause", "broker"))
    trial.run()
    raised = [key for _, key, _ in trial.cluster.world.etcd.history if "/generations/" in key]
    assert trial.cluster.world.book.cuts
    assert len(raised) > len(set(raised)), "no scope was reborn"


def test_a_log_that_loses_an_outcome_before_anybody_reads_it_has_it_again() -> None:
    """The page of jobs that a new generation reads: the recovery went on only when another replica led."""
    shape = {"few": True, "paced": True, "waits": (0, 1, 3)}
    trial = Trial(0, faults=10, kinds=("cut:dispatcher",), aim="", after=("dirty",), **shape)
    trial.run()
    assert trial.done.done["cut:dispatcher"]


@each_seed((6, 8, 12), first=1)
def test_topics_that_are_made_anew_lose_no_job(seed: int) -> None:
    trial = Trial(seed, faults=24, kinds=("cut", "replace", "kill", "pause", "broker"), aim="dispatcher", few=True)
    trial.run()
    assert trial.done.done["replace"]


@each_seed((303, 302), first=1)
def test_who_hears_and_is_not_heard_and_storage_that_is_full(seed: int) -> None:
    trial = Trial(seed, faults=16, kinds=("one_way", "half_cut_off", "storage"), few=True)
    trial.run()
    assert trial.done.done["one_way"] and trial.done.done["storage"]


def test_a_hole_that_is_filled_while_nobody_leads_by_it() -> None:
    """A scope is away while another's session leaves a hole in its log; who speaks next says it all again."""
    trial = Trial(28, faults=20, kinds=("hole", "kill", "pause", "hole"), few=True)
    trial.run()
    assert trial.done.done["hole"]


@each_seed((17, 7), first=1)
def test_one_that_was_stopped_and_replaced_wakes_and_starts_what_it_was_told_before(seed: int) -> None:
    trial = Trial(seed, faults=16, kinds=("twin", "kill", "pause", "twin", "broker"))
    trial.run()
    assert trial.done.done["twin"]


@each_seed((2090, 1044, 2016), first=1)
def test_one_that_is_heard_and_reads_nothing_while_others_lose_their_logs_launches_nothing_of_an_earlier_life(seed: int) -> None:
    kinds = ("cut", "replace", "one_way", "cut:job-master", "cut:resource-manager", "one_way")
    trial = Trial(seed, faults=30, kinds=kinds, few=True, shape={"canceled": 0.5})
    trial.run()
    assert trial.done.done["one_way"] and trial.done.done["cut"]


def test_attempts_that_are_asked_to_end_take_their_time() -> None:
    """Jobs end, slots are free and staged output is deleted only after that."""
    asked: list[int] = []
    for seed in (3, 4):
        trial = Trial(seed, faults=6, few=True, shape={"canceled": 0.9, "timing": Timing(run=(200, 2_500)), "stalls": 0.0})
        trial.run()
        asked += trial.cluster.world.book.asked.values()
    assert any(200 < took_ms < 1_900 for took_ms in asked) and any(took_ms >= 2_000 for took_ms in asked), asked


def test_nobody_else_starts_beside_a_living_attempt() -> None:
    """Not even who is not heard for a while; and beside a stray it is still the other one that counts."""
    book, spec = Book(), {"job": "j", "task": "t", "subtask": 0, "vertices": [], "outputs": []}
    lives, unheard, stray = (Living(name, 0, f"j/t/0/1.{n}") for n, name in enumerate(("1.4", "2.5", "3.7")))
    book.unheard |= {unheard.task_manager: None, stray.task_manager: None}
    book.replaced[stray.task_manager] = None
    book.attempt_started(spec, lives)
    with pytest.raises(AssertionError, match="I7"):
        book.attempt_started(spec, unheard)
    book.attempt_started(spec, stray)
    book.attempt_ended(spec, stray, finished=False)
    with pytest.raises(AssertionError, match="I7"):
        book.attempt_started(spec, unheard)


def test_one_whose_heartbeats_were_held_back_may_have_successors_until_it_knows_and_no_longer() -> None:
    book, spec = Book(), {"job": "j", "task": "t", "subtask": 0, "vertices": [], "outputs": []}
    held, successor, third = (Living(name, 0, f"j/t/0/1.{n}") for n, name in enumerate(("1.4", "2.5", "3.7")))
    book.attempt_started(spec, held, now_ms=1_000)
    with pytest.raises(AssertionError, match="I7"):
        book.attempt_started(spec, successor, now_ms=1_500)
    book.held_back[held.task_manager] = 1_500
    with pytest.raises(AssertionError, match="I7"):
        book.attempt_started(spec, successor, now_ms=1_500 + FENCED_MS)
    book.attempt_started(spec, successor, now_ms=1_499 + FENCED_MS)
    with pytest.raises(AssertionError, match="I7"):
        book.attempt_started(spec, third, now_ms=1_499 + FENCED_MS)


def test_what_stalls_hold_back_is_counted_for_each_partition_until_its_next_delivery() -> None:
    world, (topic, partition) = World(Topology(), 0, all_finish, stalls=1.0), Topology().inbox(RESOURCE_MANAGER)
    bus = PacedBus(world, "one", pytest.fail)
    bus.append(topic, partition, b"{}")
    due_ms = world.clock.now_ms()
    for _ in range(4):
        begun_ms = world.clock.now_ms()
        assert not bus.some()
        world.clock.advance(bus._stalled[topic, partition] - begun_ms)
    assert bus.held_ms == {(topic, partition): world.clock.now_ms() - due_ms}
    bus.cut_off = True
    assert bus.deliver() == 0 and bus.held_ms
    bus.cut_off, world.stalls = False, 0.0
    assert bus.some() and not bus.held_ms


def test_heartbeats_that_stalls_hold_back_for_so_long_that_their_sender_is_lost() -> None:
    """No fault was done to that TaskManager: it reads in etcd that it was declared lost, a moment after its tasks began elsewhere."""
    shape = {"stalls": 0.3, "task_managers": 3, "timing": Timing(run=(200, 2_500))}
    trial = Trial(59, faults=2, kinds=("kill",), aim="", few=True, paced=True, waits=(3, 30, 100), poison=("job-1",), shape=shape)
    trial.run()
    assert trial.cluster.world.book.held_back and not trial.cluster.world.book.unheard


def test_a_trial_that_goes_on_may_take_any_number_of_steps() -> None:
    """They are counted from the last fact about a job; one that stands still is stuck after so many."""
    trial = Trial(101, faults=0, few=True, steps_most=600)
    trial.run()
    assert trial.cluster.rounds > 3 * trial.steps_most
    with pytest.raises(AssertionError, match=r"Stuck: I10: .* do not go on"):
        Trial(101, faults=0, few=True, steps_most=20).run()


def test_nothing_starts_of_a_job_that_has_ended() -> None:
    book, spec = Book(), {"job": "j", "task": "t", "subtask": 0, "vertices": [], "outputs": []}
    with pytest.raises(AssertionError, match="I5: j/t/0/1.1 starts when its job has ended"):
        book.attempt_started(spec, Living("1.4", 0, "j/t/0/1.1"), over=True)


def test_no_name_of_an_attempt_is_given_again_but_after_a_cut_of_which_nobody_can_tell() -> None:
    book, spec = Book(), {"job": "j", "task": "t", "subtask": 0, "vertices": [], "outputs": []}
    first, second = (Living(name, 0, "j/t/0/1.1") for name in ("1.4", "2.5"))
    book.attempt_started(spec, first)
    book.task_manager_died(first.task_manager)
    with pytest.raises(AssertionError, match="I7: j/t/0/1.1 starts twice"):
        book.attempt_started(spec, second)
    book.unseen += 1
    book.attempt_started(spec, second)
    book.task_manager_died(second.task_manager)
    with pytest.raises(AssertionError, match="I7: j/t/0/1.1 starts twice"):
        book.attempt_started(spec, first)


def test_a_leader_that_is_cut_off_takes_what_it_knew_of_a_log_that_is_cut_with_it() -> None:
    trial = Trial(5368)
    trial.run()
    assert trial.done.done["cut"]


def test_a_cut_log_costs_its_own_scope_a_life_and_no_other() -> None:
    Trial(1834).run()


def test_a_job_whose_start_ends_processes_fails_whatever_else_happens() -> None:
    trial = Trial(303, faults=8, kinds=("kill", "pause", "etcd"), few=True, poison=("job-1",))
    trial.run()
    assert trial.cluster.statuses()["job-1"] in ("FAILED", "CANCELED")


@each_seed((31002, 31000, 31003), first=1)
def test_who_is_nearly_lost_slots_that_die_and_leaders_that_give_way_while_clients_ask(seed: int) -> None:
    trial = Trial(seed, faults=30, kinds=RARE, few=True, shape={"asks": 0.1})
    trial.run()
    assert trial.done.done["blink"] and trial.cluster.client.asked > 2 * len(trial.jobs)


@each_seed((32001, 32002), first=1)
def test_little_is_remembered_and_all_is_timed_closely(seed: int) -> None:
    """Ended jobs are forgotten at once, each TaskManager that comes changes how often all beat, and slots wait a moment for a task."""
    deciding = {
        "dispatcher": {"retained_jobs": 1}, "resource-manager": {"beats_per_s_max": 15}, "task-manager": {"allocation_timeout_ms": 400}
    }  # fmt: skip
    Trial(seed, faults=30, kinds=ALL, few=True, shape={"asks": 0.1, "deciding": deciding, "task_managers": 3}).run()


def test_a_calm_cluster_leaves_nothing_behind() -> None:
    Trial(101, faults=0).run()


@each_seed(range(3), first=1)
def test_no_task_manager_is_missed_for_what_becomes_of_its_slots(seed: int) -> None:
    """One that holds a slot beats often, and both sides must know whether it does."""
    trial = Trial(seed, faults=24, kinds=("jvm", "storage", "puts"), few=True, paced=True, shape={"stalls": 0.0})
    trial.run()
    assert trial.done.done["jvm"]


def test_a_seed_tells_all_that_happens() -> None:
    first = Trial(7, faults=8).run()
    assert Trial(7, faults=8).run() == first
    assert Trial(8, faults=8).run() != first


@pytest.mark.long
def test_no_hash_of_python_decides() -> None:
    other = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"  # than here
    assert _hash_of(7, other) == Trial(7).run()


def _hash_of(seed: int, hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'shared'}"}
    command = [sys.executable, "-m", "tests.simulation", str(seed), "--json", "--workers", "1"]
    ran = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    return str(json.loads(ran.stdout)["hash"])
