"""Each refusal that the Dispatcher and the ResourceManager can give is given by a test.

The places are read from the source of both cores. Each has a test that is run here, and that has to come by this very place: a new
refusal without a test fails. What many requests share is asked of each of them.
"""

from __future__ import annotations

import ast
import functools
import importlib
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest

from millrace.core.machine import PassedOver, Publish
from millrace.core.messages import base, client, schedules
from millrace.core.messages.records import Client
from millrace.core.topics import RESOURCE_MANAGER
from services.dispatcher.core import forwarding, questions, waiting
from tests.core.of_dispatcher import GRAPH, settled

ROOT = Path(__file__).parents[2]
CORES = ("dispatcher", "resource_manager")
GIVES = ("refuse", "_refuse", "reject", "_answer_without")
REFUSALS = {"RequestRefused", "JobRejected"}
KINDS = {kind for each in (client.RequestRefused, client.JobRejected) for kind in get_args(each.model_fields["kind"].annotation)}


def _name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _gives(call: ast.Call) -> bool:
    name = _name(call.func)
    return name in GIVES or name == "reply" and any(_name(each) in REFUSALS for each in call.args) or name in REFUSALS


@functools.cache
def places() -> dict[tuple[str, int], str]:
    """Module and line of each call that refuses -> what it is called here: its function, kind and place in it, from 1."""
    found: dict[tuple[str, int], str] = {}
    for path in [each for core in CORES for each in sorted((ROOT / "services" / core / "core").glob("*.py"))]:
        core = path.parts[-3]
        for function in [each for each in ast.walk(ast.parse(path.read_text())) if isinstance(each, ast.FunctionDef)]:
            if function.name in GIVES:
                continue  # what the places call
            calls = [each for each in ast.walk(function) if isinstance(each, ast.Call) and _gives(each)]
            counts: dict[str, int] = {}
            for call in sorted(calls, key=lambda each: each.lineno):
                given = [*call.args, *(each.value for each in call.keywords)]
                constants = [each.value for each in given if isinstance(each, ast.Constant)]
                kinds = [each for each in constants if isinstance(each, str) and each in KINDS]
                label = f"{core}/{path.stem}.{function.name} {kinds[0] if kinds else '*'}"
                counts[label] = counts.get(label, 0) + 1
                shown = f"{label} {counts[label]}"
                found |= {(f"services.{core}.core.{path.stem}", line): shown for line in range(call.lineno, (call.end_lineno or 0) + 1)}
    return found


SHOWN = {
    "test_dispatcher_submit": {
        "dispatcher/answers.refuse_internal internal 1": "test_whoever_asks_about_a_key_that_holds_no_job_is_told_so",
        "dispatcher/bad_records._client * 1": "test_a_submission_that_ended_processes_is_told_to_who_waits_or_parked",
        "dispatcher/lookups.on_job_graph_stored late 1": "test_after_a_late_one_the_next_in_line_is_put",
        "dispatcher/questions.on_client * 1": "test_an_invalid_submission_is_rejected_with_all_problems",
        "dispatcher/submission.store_submission invalid 1": "test_a_graph_with_more_subtasks_than_all_live_jobs_may_have_is_invalid",
        "dispatcher/submission.store_submission busy 2": "test_the_graphs_of_live_jobs_are_bounded",
        "dispatcher/submission._same_or_conflict conflict 1": "test_a_conflict_that_nobody_waits_for_is_parked",
        "dispatcher/waiting.wait busy 1": "test_where_too_many_wait_for_one_job_a_submission_that_nobody_waits_for_is_parked",
    },
    "test_dispatcher_bad_records": {
        "dispatcher/answers.refuse_internal internal 2": "test_of_a_bad_page_each_job_is_recovered_by_itself",
        "dispatcher/bad_records._lookup * 1": "test_of_a_bad_page_each_job_is_recovered_by_itself",
        "dispatcher/bad_records._job_result_stored * 1": "test_after_a_bad_outcome_of_its_end_a_job_has_ended_here_and_stays_dirty_in_etcd",
        "dispatcher/bad_records._stored_jobs_listed * 1": "test_who_waits_for_a_list_that_is_a_bad_record_is_refused",
    },
    "test_dispatcher_requests": {
        "dispatcher/answers.not_found not_found 1": "test_an_unknown_job_is_not_found",
        "dispatcher/questions._deregister_cluster conflict 1":
            "test_a_cluster_is_deregistered_once_however_often_the_request_is_read",
        "dispatcher/questions._cancel_ended conflict 1": "test_cancel_of_an_ended_job",
        "dispatcher/questions._ask_resource_manager busy 1": "test_while_no_resource_manager_is_heard_the_client_is_told",
        "dispatcher/questions._ask_blocklist conflict 1":
            "test_the_blocklist_is_the_resource_managers_and_is_changed_once_however_often_a_request_is_read",
        "dispatcher/submission.store_absent late 1": "test_behind_a_submission_that_was_refused_before_a_new_one_is_put",
        "dispatcher/waiting.wait busy 2": "test_waiting_requests_are_bounded",
        "dispatcher/waiting.look_up busy 2": "test_waiting_requests_are_bounded",
    },
    "test_refusals": {
        "dispatcher/bad_records._client * 2": "test_any_request_whose_handling_ended_processes_is_refused",
        "dispatcher/questions._ask_blocklist busy 1": "test_before_the_resource_manager_was_heard_each_question_for_it_is_refused",
        "dispatcher/waiting.look_up busy 1": "test_while_too_many_jobs_are_looked_for_each_request_about_another_is_refused",
    },
    "test_dispatcher_schedules": {
        "dispatcher/bad_records._schedules * 1": "test_an_outcome_that_ended_processes_is_passed_over_and_its_request_refused",
        "dispatcher/schedules.set_schedule invalid 1": "test_what_the_client_port_found_wrong_is_refused_and_nothing_is_stored",
        "dispatcher/schedules._ask busy 1": "test_what_a_dispatcher_without_its_log_reads_again_changes_nothing",
        "dispatcher/schedules._ask busy 2": "test_only_so_many_requests_are_under_way",
        "dispatcher/schedules.on_schedule_stored conflict 1": "test_what_etcd_has_no_room_for_is_refused",
        "dispatcher/schedules.on_schedule_changed internal 1": "test_a_schedule_is_paused_resumed_and_removed",
        "dispatcher/schedules.on_schedules_found internal 1": "test_of_what_is_not_there_and_what_cannot_be_read_a_run_is_refused",
        "dispatcher/schedules.refuse_overdue busy 1": "test_while_etcd_is_silent_each_is_answered_in_time_and_keeps_its_place",
        "dispatcher/schedules._not_found not_found 1": "test_a_schedule_is_paused_resumed_and_removed",
    },
    "test_dispatcher_closing": {
        "dispatcher/closing.shut_down_cluster conflict 1": "test_a_request_that_a_dispatcher_without_its_log_reads_again_ends_nothing",
        "dispatcher/closing.shut_down_cluster conflict 2":
            "test_a_request_that_nobody_took_in_time_does_not_end_the_cluster_that_is_started_later",
        "dispatcher/closing.shut_down_cluster busy 1": "test_who_waits_for_the_end_is_bounded",
        "dispatcher/submission.store_submission busy 1": "test_from_then_on_no_job_is_accepted",
    },
    "test_dispatcher_questions": {
        "dispatcher/forwarding.refuse_full busy 1": "test_questions_that_wait_are_bounded",
        "dispatcher/waiting._refuse_waiting busy 1": "test_while_etcd_is_silent_who_asks_of_an_unknown_job_is_told_so",
        "dispatcher/waiting._refuse_submission busy 1":
            "test_while_etcd_is_silent_who_submits_is_answered_when_its_time_is_up_and_may_be_accepted_yet",
        "dispatcher/questions._blocklist_without busy 1": "test_who_blocks_a_host_is_told_that_the_resource_manager_is_silent",
        "dispatcher/questions._ask_task_manager busy 1": "test_while_the_resource_manager_was_never_heard_no_task_manager_is_asked",
        "dispatcher/questions._task_manager_without busy 1":
            "test_a_question_about_a_task_manager_is_answered_without_the_resource_manager_later_than_that_would_answer",
    },
    "test_dispatcher_listing": {
        "dispatcher/listing.list_job_details invalid 1": "test_what_is_no_cursor_is_refused",
        "dispatcher/listing.list_job_details busy 1": "test_what_a_recovery_leaves_out_and_what_is_looked_up_is_in_etcd_alone",
        "dispatcher/listing.list_job_details busy 2": "test_an_etcd_that_is_silent_is_named_and_is_not_asked_by_ever_more",
        "dispatcher/listing.refuse_overdue busy 1": "test_an_etcd_that_is_silent_is_named_and_is_not_asked_by_ever_more",
    },
    "test_dispatcher_repairs": {
        "dispatcher/lookups.on_job_graph_stored * 1": "test_a_repair_that_is_refused_is_answered_with_the_reason",
    },
    "test_dispatcher_changed_graphs": {
        "dispatcher/lookups.on_job_graph_stored busy 1":
            "test_who_asks_for_a_copy_before_it_is_noticed_does_not_have_it_run_by_the_originals_acceptance",
    },
    "test_dispatcher_requirements": {
        "dispatcher/requirements.update_live conflict 1": "test_a_job_that_ends_or_has_ended_is_left_alone",
        "dispatcher/requirements.update_live conflict 2": "test_a_job_that_ends_or_has_ended_is_left_alone",
        "dispatcher/requirements.update_live busy 1": "test_no_job_has_more_subtasks_than_there_may_be",
        "dispatcher/requirements._ask_job_master busy 1": "test_a_job_has_a_bound_of_rescales_that_are_not_decided",
        "dispatcher/requirements.answer_decided conflict 1": "test_what_the_job_master_refuses_leaves_nothing",
        "dispatcher/requirements.refuse_ended conflict 1": "test_a_job_that_ends_or_has_ended_is_left_alone",
        "dispatcher/requirements._invalid invalid 1": "test_no_job_has_more_subtasks_than_there_may_be",
    },
    "test_resource_manager_asking": {
        "resource_manager/asking.on_ask_task_manager not_found 1": "test_an_unknown_task_manager_is_answered_for_at_once",
        "resource_manager/asking.on_ask_task_manager conflict 1": "test_one_of_0_1_0_is_not_asked",
        "resource_manager/asking.on_ask_task_manager busy 1": "test_questions_that_wait_are_bounded",
        "resource_manager/asking.answer_overdue busy 1": "test_in_a_cluster_at_rest_the_time_begins_with_the_question",
        "resource_manager/asking.answer_lost not_found 1": "test_a_task_manager_that_leaves_is_answered_for_at_once",
        "resource_manager/bad_records._ask_task_manager internal 1": "test_a_question_whose_handling_ended_processes_is_refused",
    },
    "test_resource_manager_machine": {
        "resource_manager/bad_records._query * 1": "test_a_bad_query_is_refused",
    },
    "test_resource_manager_blocklist": {
        "resource_manager/bad_records._ask_blocklist internal 1": "test_records_that_ended_processes_keep_nobody_waiting",
        "resource_manager/blocklist.on_ask_blocklist busy 1": "test_a_new_life_grants_nothing_before_it_has_read_who_is_blocked",
        "resource_manager/blocklist.on_ask_blocklist busy 2": "test_what_cannot_be_done_is_refused",
        "resource_manager/blocklist.on_ask_blocklist conflict 1": "test_what_cannot_be_done_is_refused",
        "resource_manager/blocklist.on_block_stored conflict 1": "test_what_cannot_be_done_is_refused",
        "resource_manager/blocklist.answer_overdue busy 1":
            "test_while_etcd_is_silent_who_blocks_a_host_is_told_that_and_it_is_not_the_resource_manager",
    },
}  # fmt: skip
"""File of tests -> place -> the test of it that comes by there. All of its parameters are tried."""


def _shown() -> dict[str, tuple[str, str]]:
    return {place: (file, test) for file, rows in SHOWN.items() for place, test in rows.items()}


def test_each_place_that_refuses_has_a_test() -> None:
    assert set(_shown()) == set(places().values())


def test_each_kind_of_refusal_that_is_declared_is_given() -> None:
    text = "".join(path.read_text() for core in CORES for path in (ROOT / "services" / core / "core").glob("*.py"))
    assert len(KINDS) == 6 and {kind for kind in KINDS if f'"{kind}"' in text} == KINDS


def _modules() -> Iterator[ModuleType]:
    for core in CORES:
        for path in sorted((ROOT / "services" / core / "core").glob("[!_]*.py")):
            yield importlib.import_module(f"services.{core}.core.{path.stem}")


def _watch(patch: pytest.MonkeyPatch) -> set[str]:
    """The places that refuse from here on: each calls one of GIVES, or `reply`."""
    came: set[str] = set()

    def watched(original: Any) -> Any:
        def given(*arguments: Any, **named: Any) -> Any:
            caller = sys._getframe(1)
            came.add(places().get((caller.f_globals["__name__"], caller.f_lineno), ""))
            return original(*arguments, **named)

        return given

    for module in _modules():
        for name in (*GIVES, "reply"):
            if hasattr(module, name):
                patch.setattr(module, name, watched(getattr(module, name)))
    return came


def _runs(test: Any) -> Iterator[dict[str, Any]]:
    """The arguments of each run of a test, as pytest gives them."""
    marks = [mark for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
    for values in itertools.product(*(mark.args[1] for mark in marks)):
        found: dict[str, Any] = {}
        for mark, value in zip(marks, values, strict=True):
            names = [name.strip() for name in mark.args[0].split(",")] if isinstance(mark.args[0], str) else list(mark.args[0])
            given = getattr(value, "values", value) if type(value).__name__ == "ParameterSet" else value
            found |= dict(zip(names, given if len(names) > 1 or type(value).__name__ == "ParameterSet" else [given], strict=True))
        yield found


@pytest.mark.parametrize(("file", "test"), sorted(set(_shown().values())))
def test_the_test_of_a_refusal_comes_by_its_place(file: str, test: str) -> None:
    module = importlib.import_module(f"tests.core.{file}")
    function, fixtures = getattr(module, test), {name: each for name, each in vars(module).items() if name == "driver"}
    with pytest.MonkeyPatch.context() as patch:
        came = _watch(patch)
        for arguments in _runs(function):
            with pytest.MonkeyPatch.context() as own:
                given = {"monkeypatch": lambda own=own: own, **{name: each.__wrapped__ for name, each in fixtures.items()}}
                wanted = function.__code__.co_varnames[: function.__code__.co_argcount]
                function(**arguments, **{name: given[name]() for name in wanted if name not in arguments})
    assert {place for place, shown in _shown().items() if shown == (file, test)} <= came


# what many requests share, asked of each

FIELDS: dict[str, Any] = {
    "job": "job-x", "graph": {}, "task_manager": "a", "log": "log", "start": 0, "length": 1, "host": "a", "schedule": "s",
    "cron": "0 3 * * *",
    "parallelism": {"v": 2}, "slot": 0, "reply_to": "c", "correlation": "2",
}  # fmt: skip
OTHERS = list(questions.OTHER_REQUESTS)
FORWARDED = [kind for kind, row in questions.OTHER_REQUESTS.items() if row.without is not None]
OF_JOBS = list(questions.JOB_REQUESTS)
CHANGES = [client.DeregisterCluster, client.ShutDownCluster, schedules.SetSchedule, schedules.PauseSchedule, schedules.RemoveSchedule,
           schedules.RunSchedule, *(kind for kind, what in questions.BLOCKLIST.items() if what != "list")]  # fmt: skip


def _asked(kind: type[base.Request]) -> base.Request:
    return kind.model_construct(**{name: value for name, value in FIELDS.items() if name in kind.model_fields})


def _refused(outputs: list[Any]) -> str:
    [told] = [each.body for each in outputs if isinstance(each, Publish) and each.topic == "client.replies"]
    assert isinstance(told, client.RequestRefused | client.JobRejected) and told.correlation == "2", told
    return told.kind


@pytest.mark.parametrize("kind", FORWARDED)
def test_before_the_resource_manager_was_heard_each_question_for_it_is_refused(kind: type[base.Request]) -> None:
    world = settled()
    del world.state.received_from[RESOURCE_MANAGER]
    outputs = world.request(_asked(kind))
    assert _refused(outputs) == "busy" and len(outputs) == 1, "and nothing is done"


@pytest.mark.parametrize("kind", FORWARDED)
def test_while_too_many_wait_for_the_resource_manager_each_question_for_it_is_refused(
    kind: type[base.Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "FORWARDED_MOST", 0)
    outputs = settled().request(_asked(kind))
    assert _refused(outputs) == "busy" and len(outputs) == 1, "and nothing is done"


@pytest.mark.parametrize("kind", OF_JOBS)
def test_while_too_many_jobs_are_looked_for_each_request_about_another_is_refused(
    kind: type[base.Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "WAITING_MOST", 0)
    outputs = settled().tell(Client(log="l", prev=-1, offset=0, request=_asked(kind), graph=GRAPH, digest="d", decided=True))
    assert _refused(outputs) == "busy" and len(outputs) == 1, "and etcd is not asked"


@pytest.mark.parametrize("kind", CHANGES)
def test_a_change_that_a_dispatcher_without_its_log_reads_again_is_refused(kind: type[base.Request]) -> None:
    world = settled()
    outputs = world.tell(Client(log="l", prev=-1, offset=0, request=_asked(kind), decided=True))
    assert _refused(outputs) in ("busy", "conflict") and len(outputs) == 1, "and nothing is done"


@pytest.mark.parametrize("kind", [*OTHERS, *OF_JOBS])
def test_any_request_whose_handling_ended_processes_is_refused(kind: type[base.Request]) -> None:
    record = Client(log="l", prev=-1, offset=0, request=_asked(kind))
    outputs = settled().tell(PassedOver(record, "KeyError: 'x'"))
    assert _refused(outputs) == "internal"
