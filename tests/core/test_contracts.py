"""What all messages, topics and machines keep to, whatever they are about."""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from types import UnionType
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from millrace.core.machine import Born, Configured, PassedOver, PeerBorn, Ticked
from millrace.core.messages import (
    audit,
    base,
    blocklist,
    client,
    effects,
    events,
    graphs,
    jobs,
    processes,
    records,
    requirements,
    schedule_effects,
    schedules,
    slots,
    worker_effects,
)
from millrace.core.messages.base import Body, Part
from millrace.core.messages.contracts import CLIENT, CONTRACTS, EVENTS
from millrace.core.messages.links import LINKS
from millrace.core.messages.records import Client, Hello, Message, UnknownRecord, decode
from millrace.core.messages.requests import REPLIES, REQUESTS
from millrace.core.topics import (
    DISPATCHER,
    INBOXES,
    JOB_MASTER,
    OPERATOR,
    PROCESS,
    RESOURCE_MANAGER,
    SERVICES,
    TASK_MANAGER,
    TOPICS,
    WEB,
    Topology,
    second_producer_topics,
)
from services.dispatcher.core import machine as dispatcher
from services.job_master.core import machine as job_master
from services.resource_manager.core import machine as resource_manager
from services.task_manager.core import machine as task_manager
from tests.core.of_messages import BODIES, RECORDS, WAITS, any_of, encoded, one_of

ROOT = Path(__file__).parents[2]
MODULES = (
    audit, blocklist, client, effects, events, graphs, jobs, processes, records, requirements, schedule_effects, schedules, slots,
    worker_effects,
)  # fmt: skip
ABSTRACT = {base.Request, base.Reply, events.JobEvent, events.ClusterEvent}
BY_TOPIC = {topic.name: topic for topic in TOPICS}
TOPOLOGY = Topology(shards=3, task_manager_partitions=5, job_event_partitions=6, reply_partitions=2)

HANDLERS: dict[str, Any] = {
    DISPATCHER: dispatcher.HANDLERS,
    RESOURCE_MANAGER: resource_manager.HANDLERS,
    JOB_MASTER: job_master.HANDLERS,
    TASK_MANAGER: task_manager.HANDLERS,
}


def classes() -> list[type[Body | Part]]:
    found = []
    for module in MODULES:
        found += [
            each for each in vars(module).values()
            if inspect.isclass(each) and issubclass(each, (Body, Part)) and each.__module__ == module.__name__
        ]  # fmt: skip
    return found


def named(values: Any) -> Any:
    return pytest.mark.parametrize("model", list(values), ids=lambda each: each.__name__)


# ---- message classes


@named(classes())
def test_a_message_is_a_frozen_strict_value_that_says_what_it_means(model: type[Body | Part]) -> None:
    config = model.model_config
    assert (config.get("frozen"), config.get("extra"), config.get("strict")) == (True, "forbid", True)
    meaning = inspect.cleandoc(model.__dict__.get("__doc__") or "")
    assert len(meaning) > 15, f"{model.__name__} does not say what it means"


@named(each for each in classes() if each not in ABSTRACT)
def test_a_message_takes_no_unknown_field_and_no_other_type_and_does_not_change(model: type[Body | Part]) -> None:
    value = one_of(model)
    given_ = value.model_dump(mode="json")
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        model.model_validate_json(TypeAdapter(Any).dump_json({**given_, "unheard_of": 1}))
    with pytest.raises(ValidationError, match="frozen"):
        setattr(value, next(iter(model.model_fields)), None)
    for name, field in model.model_fields.items():
        if field.annotation in (int, bool):
            with pytest.raises(ValidationError):
                model.model_validate_json(TypeAdapter(Any).dump_json({**given_, name: "1"}))


@named(BODIES)
def test_type_and_version_are_literals_that_the_class_is_registered_by(model: type[Body]) -> None:
    kind, version = model.model_fields["type"], model.model_fields["version"]
    assert get_args(kind.annotation) == (kind.default,) == (model.__name__,)
    assert get_args(version.annotation) == (version.default,)
    assert isinstance(version.default, int) and version.default >= 1
    contract = CONTRACTS.get((kind.default, version.default))
    assert contract is None or contract.body is model


def test_every_body_is_a_message_an_effect_an_outcome_or_a_local_fact_and_only_one_of_them() -> None:
    defined = [each for each in classes() if issubclass(each, Body) and each not in ABSTRACT]
    assert sorted(each.__name__ for each in BODIES) == sorted(each.__name__ for each in defined)


def test_every_message_between_services_has_one_link_or_more_and_nothing_else_has() -> None:
    linked = [body for bodies in LINKS.values() for body in bodies]
    received = {(receiver, body) for (_, receiver), bodies in LINKS.items() for body in bodies}
    assert len(received) == len(set(linked)), "one message to two receivers: the registry knows one of each"
    assert {*linked, records.Hello, records.Forked} == set(records.MESSAGE_BODIES)
    for sender, receiver in LINKS:
        assert sender in SERVICES and receiver in SERVICES and sender != receiver


def test_contracts_name_topics_their_writers_and_their_readers() -> None:
    for contract in CONTRACTS.values():
        if contract.topic == "*.commands":
            continue
        topic = BY_TOPIC[contract.topic]
        readers = tuple("anyone" if each == CLIENT else each for each in contract.receivers)
        writers = tuple("anyone" if each == CLIENT else each for each in contract.senders)
        assert set(writers) <= set(topic.writers), contract
        assert readers == topic.readers, contract


def test_a_topic_is_written_by_those_who_say_something_on_it_and_by_nobody_else() -> None:
    """An inbox also by its own leader, but for a TaskManager, which has none."""
    said: dict[str, set[str]] = {name: {name.removesuffix(".commands")} for name in INBOXES if name != "task-manager.commands"}
    for contract in CONTRACTS.values():
        said.setdefault(contract.topic, set()).update("anyone" if each == CLIENT else each for each in contract.senders)
    assert {name: set(BY_TOPIC[name].writers) for name in said if name != "*.commands"} == {
        name: writers for name, writers in said.items() if name != "*.commands"
    }


def test_who_is_said_to_say_a_reply_says_it() -> None:
    """By the text of the machines: a service that names no reply says none."""
    services = Path(__file__).parents[2] / "services"
    for body, senders in ((c.body, c.senders) for c in CONTRACTS.values() if c.topic == "client.replies"):
        for service in (DISPATCHER, RESOURCE_MANAGER, JOB_MASTER):
            core = services / service.replace("-", "_") / "core"
            says = rf"\b{body.__name__}\b" + (r"|\banswering(\.| import .*\b)refuse\b" if body is client.RequestRefused else "")
            named = any(re.search(says, file.read_text()) for file in core.glob("*.py"))
            assert named == (service in senders), f"{body.__name__} is {'' if named else 'not '}in the code of {service}"


# ---- bytes


@pytest.mark.parametrize("examples", [8, pytest.param(20, marks=pytest.mark.long)])
@pytest.mark.parametrize("model", [*BODIES, *RECORDS], ids=lambda each: each.__name__)
def test_what_is_written_is_read_as_the_same_value_and_written_as_the_same_bytes(model: type[Body | Part], examples: int) -> None:
    read = decode if issubclass(model, Part) else model.model_validate_json

    @settings(max_examples=examples, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(any_of(model))
    def roundtrip(value: Any) -> None:
        again = read(encoded(value))
        assert again == value
        assert type(again) is type(value)
        assert encoded(again) == encoded(value)

    roundtrip()


@settings(max_examples=30, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_message_keeps_the_class_of_its_body(data: st.DataObject) -> None:
    body = data.draw(any_of(data.draw(st.sampled_from(records.MESSAGE_BODIES))))
    message = Message(to="a", to_life=1, sender="b", life=2, key=(3, 4), prev=None, body=body)
    again = decode(encoded(message))
    assert isinstance(again, Message)
    assert type(again.body) is type(body) and again == message


@settings(max_examples=100, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_the_short_way_to_the_bytes_of_a_message_gives_the_same(data: st.DataObject) -> None:
    body = data.draw(any_of(data.draw(st.sampled_from(records.MESSAGE_BODIES))))
    to, sender = data.draw(st.text()), data.draw(st.text())
    number, key = st.integers(0, 2**62), st.tuples(st.integers(0, 2**62), st.integers(0, 2**30))
    to_life, life, said, prev = data.draw(number), data.draw(number), data.draw(key), data.draw(st.none() | key)
    message = Message(to=to, to_life=to_life, sender=sender, life=life, key=said, prev=prev, body=body)
    assert records.message_json(to, to_life, sender, life, said, prev, body).encode() == encoded(message)


def test_equal_messages_are_equal_bytes_in_any_process() -> None:
    told = [
        subprocess.run(
            [sys.executable, "-m", "tests.core.of_messages"],
            cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True, timeout=60,
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert told[0] == told[1]
    assert told[0].count(b"\n") == len(BODIES) + len(RECORDS) + 1


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{}",
        b"[]",
        b'{"record":"Nothing"}',
        b'{"record":"Probe","who":"x"}',
        b'{"record":"Probe","who":"x","n":"1"}',
        b'{"record":"Probe","who":"x","n":1,"more":2}',
        b'{"record":"Message","to":"a","to_life":1,"sender":"b","life":1,"key":[1,2],"prev":null,"body":{"type":"New","version":1}}',
        b'{"record":"Message","to":"a","to_life":1,"sender":"b","life":1,"key":[1,2],"prev":null,"body":{"type":"Hello","version":2}}',
        b'{"record":"Message","to":"a","to_life":1,"sender":"b","life":1,"key":[1],"prev":null,"body":{"type":"Hello","version":1}}',
    ],
)
def test_what_is_no_record_of_this_build_is_refused(value: bytes) -> None:
    with pytest.raises(UnknownRecord if value else ValidationError):
        decode(value)


# ---- machines


@pytest.mark.parametrize("service", SERVICES)
def test_a_machine_has_a_handler_for_all_that_it_can_be_given_and_no_other(service: str) -> None:
    expected: set[type] = {Born, Configured, Ticked, PeerBorn}
    expected |= {body for (_, receiver), bodies in LINKS.items() if receiver == service for body in bodies}
    expected |= {outcome for outcome in effects.EFFECTS_OF.get(service, {}).values() if outcome is not None}
    if service != TASK_MANAGER:
        expected.add(PassedOver)  # a TaskManager's bad record ends it, and its attempts run elsewhere
    if service == DISPATCHER:
        expected |= {Client, *graphs.NOTICED}
    if service == TASK_MANAGER:
        expected |= set(slots.LOCAL_FACTS)
    assert set(HANDLERS[service]) == expected
    assert not {Hello, records.Forked} & set(HANDLERS[service]), "those are the core's own"


@pytest.mark.parametrize("service", SERVICES)
def test_all_handlers_are_of_one_style_and_nothing_else_has_their_names(service: str) -> None:
    """`on_<message>(state, body, envelope)`: who knows one service knows all."""
    found = {}
    for path in sorted((ROOT / "services" / service.replace("-", "_") / "core").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("on_"):
                found[f"{path.stem}.{node.name}"] = [each.arg for each in node.args.args]
    handlers = {f"{each.__module__.rpartition('.')[2]}.{each.__name__}" for each in HANDLERS[service].values()}
    bodies: dict[Any, list[type]] = {}
    for body, handler in HANDLERS[service].items():
        bodies.setdefault(handler, []).append(body)
    for handler, classes in bodies.items():
        taken = inspect.get_annotations(handler, eval_str=True)["body"]
        assert set(get_args(taken) if isinstance(taken, UnionType) else (taken,)) == set(classes), handler
    assert {name: arguments for name, arguments in found.items() if arguments != ["state", "body", "envelope"]} == {}
    assert set(found) == handlers


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_says_and_does_what_is_registered_as_its_own_and_all_of_it(service: str) -> None:
    """By the classes that its core makes."""
    made = set()
    for path in sorted((ROOT / "services" / service.replace("-", "_") / "core").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            # a class that is called, or handed on as in reply(asked, client.JobsListed, ...)
            if isinstance(node, (ast.Attribute, ast.Name)) and isinstance(node.ctx, ast.Load):
                made.add(node.attr if isinstance(node, ast.Attribute) else node.id)
    if "answered" in made:
        made.add("QuestionAnswered")  # by core/answering.py
    own = {contract.type for contract in CONTRACTS.values() if service in contract.senders}
    own -= {"Hello", "Forked", "LeaderElected"} | {reply.__name__ for reply in REPLIES}
    own |= {effect.__name__ for effect in effects.EFFECTS_OF.get(service, {})}
    assert not own - made, "registered as its own, and never made"
    other = {body.__name__ for body in BODIES} - {body.__name__ for body in HANDLERS[service]}
    other -= own | {each.__name__ for each in (*REPLIES, *REQUESTS)}
    assert not other & made, "made here, and not registered as its own"


def test_every_reply_and_every_public_fact_is_made_somewhere() -> None:
    makers = [*(ROOT / "services").glob("*/core/*.py"), ROOT / "shared" / "millrace" / "client" / "dead_letters.py"]
    makers += [ROOT / "shared" / "millrace" / "core" / each for each in ("fold.py", "answering.py")]
    makers += [ROOT / "services" / "web" / "access" / "audit.py"]
    texts = "\n".join(path.read_text() for path in makers)
    unmade = [
        body.__name__ for body in (*REPLIES, *EVENTS) if not re.search(rf"\b{body.__name__}\b", texts)
    ]
    assert not unmade


# ---- topics


def test_every_topic_that_code_names_is_in_the_table() -> None:
    shape = re.compile(r"[a-z]+(-[a-z]+)*\.(commands|replies|events|jobs|cluster|questions)|dead-letters")
    named_ = {}
    for top in ("shared", "services", "deploy"):
        for path in sorted((ROOT / top).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and shape.fullmatch(node.value):
                    named_.setdefault(node.value, path.name)
    assert set(named_) <= set(BY_TOPIC), named_
    assert len(BY_TOPIC) == len(TOPICS)


def test_a_topic_has_writers_readers_and_limits() -> None:
    parties = {*SERVICES, OPERATOR, WEB, PROCESS, "anyone"}
    for topic in TOPICS:
        assert topic.writers and topic.readers and topic.carries and topic.key
        assert {*topic.writers, *topic.readers} <= parties
        assert topic.retention_ms == -1 or topic.retention_ms > 0
        config = topic.config()
        assert config["message.timestamp.type"] == "LogAppendTime", "machine time is made of the broker's stamps"
        cleanup = "compact" if topic.name.startswith("web.") else "delete"
        assert (config["retention.ms"], config["cleanup.policy"]) == (str(topic.retention_ms), cleanup)
        inbox = topic.name.endswith(".commands") and topic.name != "client.commands"
        assert "anyone" not in (*topic.writers, *topic.readers) or not inbox, "strangers write no inbox"


def test_nothing_that_a_job_waits_for_on_its_way_to_a_slot_goes_aside() -> None:
    assert all(set(topic.aside) <= set(topic.writers) for topic in TOPICS)
    steps = {
        DISPATCHER: ("dispatcher.commands", "job-master.commands", WAITS["StartJob"]),
        JOB_MASTER: ("job-master.commands", "resource-manager.commands", "task-manager.commands"),
        RESOURCE_MANAGER: ("resource-manager.commands", "task-manager.commands", "job-master.commands"),  # TaskManagerLost
    }
    aside = {service: second_producer_topics(service) for service in SERVICES}
    assert set(steps) == {service for service in aside if aside[service]}, "a TaskManager's heartbeats tell how all that it says goes"
    assert not [(service, topic) for service, topics in steps.items() for topic in topics if topic in aside[service]]


def test_what_waits_for_what() -> None:
    types = {contract.type for contract in CONTRACTS.values()}
    assert set(WAITS) <= types and set(WAITS.values()) <= types | {topic.name for topic in TOPICS}
    found = [
        named.value.value
        for path in sorted((ROOT / "services").glob("*/core/**/*.py"))
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in ("Say", "Publish")
        for named in call.keywords
        if named.arg == "after"
    ]
    events = ["JobAccepted", "JobAccepted", "JobCancelling"]  # what a job's own events follow
    assert set(events) <= types
    assert sorted(found) == sorted([*WAITS.values(), *events]), "each is declared where it is said"


def test_partitions_are_those_of_the_topology() -> None:
    counts = {topic.name: topic.count(TOPOLOGY) for topic in TOPICS}
    assert counts == {
        "client.commands": 1, "client.replies": 2, "job.events": 6, "cluster.events": 1, "cluster.identity": 1,
        "dead-letters": 1,
        "audit.events": 1, "process.questions": 1,
        "dispatcher.commands": 1, "resource-manager.commands": 1, "job-master.commands": 3, "task-manager.commands": 5,
        "web.jobs": 6, "web.cluster": 1,
    }  # fmt: skip
    used = {topic.partitions for topic in TOPICS if isinstance(topic.partitions, str)}
    assert used == {each.name for each in fields(Topology)}


def test_every_scope_has_an_inbox_of_its_own_and_task_managers_share_theirs() -> None:
    inboxes = [TOPOLOGY.inbox(scope) for scope in TOPOLOGY.scopes()]
    assert len(set(inboxes)) == len(inboxes)
    for topic, partition in (*inboxes, *(TOPOLOGY.inbox(f"task-manager/tm-{n}") for n in range(50))):
        assert 0 <= partition < BY_TOPIC[topic].count(TOPOLOGY)
    assert TOPOLOGY.inbox("task-manager/tm-1") == ("task-manager.commands", 2), "for ever: it is stored nowhere"
    assert [TOPOLOGY.shard_of(job) for job in ("a", "b", "c", "d")] == [0, 2, 0, 0], "for ever, too"


def test_a_key_of_a_public_topic_has_one_partition() -> None:
    for topic in ("job.events", "client.replies", "cluster.events", "dead-letters"):
        found = {TOPOLOGY.partition(topic, f"key-{n}") for n in range(200)}
        assert found == set(range(BY_TOPIC[topic].count(TOPOLOGY)))
    assert all(TOPOLOGY.partition("job.events", f"j{n}") == TOPOLOGY.events_partition(f"j{n}") for n in range(50))


@pytest.mark.parametrize("effect", effects.EFFECTS, ids=lambda effect: effect.__name__)
def test_the_json_of_an_effect_begins_with_its_type(effect: type[Body]) -> None:
    assert effects.type_of(encoded(one_of(effect)).decode()) == effect.__name__
