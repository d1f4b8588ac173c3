"""The tables of the documents, from the code they are about. Each function returns Markdown without a trailing newline."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from ruamel.yaml import YAML

from millrace.core import election
from millrace.core.faults import FAULTS, THEN
from millrace.core.messages import effects, graphs, records, slots
from millrace.core.messages.contracts import CONTRACTS, Contract
from millrace.core.states import (
    ATTEMPT_TRANSITIONS,
    CLOSING_TRANSITIONS,
    EXECUTION_TRANSITIONS,
    JOB_TRANSITIONS,
    RECOVERY_TRANSITIONS,
    SLOT_TRANSITIONS,
    STORED_TRANSITIONS,
    WORKER_TRANSITIONS,
)
from millrace.core.topics import DAY_MS, GIB, SERVICES, TOPICS
from millrace.runtime.flink_settings import ALSO, FLINK, WITHOUT
from millrace.runtime.metrics import EVERY
from millrace.runtime.metrics import TABLE as METRICS
from millrace.runtime.settings import PREFIX, ServiceSettings
from millrace.runtime.spans import OF_ALL
from millrace.runtime.spans import TABLE as SPANS
from services.dispatcher.settings import DispatcherSettings
from services.job_master.settings import JobMasterSettings
from services.resource_manager.settings import ResourceManagerSettings
from services.task_manager.core import presence
from services.task_manager.settings import TaskManagerSettings
from services.web.access.roles import TABLE
from services.web.history.settings import HistorySettings
from services.web.settings import WebSettings
from tests.conformance import execution, items, masters

from .call_rows import ABSENT, CALLS
from .calls import HEAD, rows_of
from .schemas import BY_CLIENTS

SHORT = 25
SUBMISSION = Path(__file__).parents[1] / "transcripts" / "submission.txt"
RULES = Path(__file__).parents[2] / "deploy" / "monitoring" / "rules.yml"
RECORDS = (records.Elected, records.Tick, records.Message, records.Outcome, records.Client, records.Fact, records.Probe)

KEYS = {"task_manager": "task_manager; of LeaderElected the scope"}


def topics() -> str:
    rows = []
    for topic in TOPICS:
        kept = "for ever" if topic.retention_ms < 0 else f"{topic.retention_ms // DAY_MS} d"
        kept += f", at most {topic.retention_bytes // GIB} GiB" if topic.retention_bytes > 0 else ""
        partitions = topic.partitions if isinstance(topic.partitions, int) else f"`{topic.partitions}`"
        rows.append((f"`{topic.name}`", topic.carries, KEYS.get(topic.key, topic.key), partitions, kept, topic.writers, topic.readers))
    return _table(("topic", "carries", "key", "partitions", "kept", "written by", "read by"), rows)


def inbox_records() -> str:
    return _table(("record", "meaning"), [(f"`{model.__name__}`", _first_sentence(model)) for model in RECORDS])


def service_messages() -> str:
    links = [c for c in CONTRACTS.values() if c.topic.endswith(".commands") and c.topic != "client.commands"]
    rows = [
        (f"`{c.type}`", _parties(c.senders), _parties(c.receivers), _first_sentence(c.body))
        for c in sorted(links, key=lambda c: c.topic != "*.commands")
    ]
    return _table(("message", "from", "to (its inbox)", "meaning"), rows)


def client_messages() -> str:
    return _by_topic("client.commands", "process.questions", "client.replies", second="sent by")


def public_facts() -> str:
    return _by_topic("job.events", "cluster.events", "dead-letters", "audit.events", second="sent by")


def effect_table() -> str:
    rows = []
    for service, pairs in effects.EFFECTS_OF.items():
        for effect, outcome in pairs.items():
            shown = f"`{outcome.__name__}`" if outcome is not None else "none"
            rows.append((f"`{effect.__name__}`", service, shown, _first_sentence(effect)))
    return _table(("effect", "of", "outcome", "meaning"), rows)


def local_facts() -> str:
    facts = (*slots.LOCAL_FACTS, *graphs.NOTICED)
    return _table(("fact", "meaning"), [(f"`{fact.__name__}`", _first_sentence(fact)) for fact in facts])


def job_states() -> str:
    return _states(JOB_TRANSITIONS)


def subtask_states() -> str:
    return _states(EXECUTION_TRANSITIONS)


def slot_states() -> str:
    return _states(SLOT_TRANSITIONS)


def worker_states() -> str:
    return _states(WORKER_TRANSITIONS)


def attempt_states() -> str:
    return _states(ATTEMPT_TRANSITIONS, diagram=False)


def recovery_states() -> str:
    return _states(RECOVERY_TRANSITIONS, diagram=False)


def stored_states() -> str:
    return _states(STORED_TRANSITIONS, diagram=False)


def closing_steps() -> str:
    return _states(CLOSING_TRANSITIONS, diagram=False)


def roles() -> str:
    """An arrow from a role to another: its guards, or what happens where there are none."""
    when: dict[tuple[str, str], list[str]] = {}
    for sources, event, guards, target in election.TRANSITIONS:
        words = " and ".join(each.__name__ for each in guards) or event.value
        for source in sources:
            if source is not target:
                when.setdefault((source.name, target.name), []).append(words)
    arrows = [f"    {source} --> {target}: {', or '.join(words)}" for (source, target), words in when.items()]
    return "\n".join(["```mermaid", "stateDiagram-v2", "    [*] --> FOLLOWING", *arrows, "```"])


def presence_states() -> str:
    rows, arrows = [], []
    for sources, event, conditions, target in presence.TRANSITIONS:
        names = ", ".join(f"`{each.__name__}`" for each in conditions)
        rows.append((", ".join(each.value for each in sources), event.value, names, target.value))
        label = event.value + "".join(f" [{each.__name__}]" for each in conditions)
        arrows += [f"    {_node(source)} --> {_node(target)}: {label}" for source in sources if source is not target]
    table = _table(("state", "what happens", "where", "then"), rows)
    ends = f"    {_node(presence.PresenceState.LOST)} --> [*]"
    return "\n".join([table, "", "```mermaid", "stateDiagram-v2", "    [*] --> PRESENT", *arrows, ends, "```"])


def faults_of_attempts() -> str:
    order = list(THEN)
    rows = sorted(FAULTS.items(), key=lambda each: order.index(each[1].then))
    head = ("`kind`", "`retryable`", "what ended the attempt", "what follows", "what to do")
    return _table(head, [(f"`{kind}`", str(again).lower(), row.what, THEN[row.then], row.help) for (kind, again), row in rows])


def journey() -> str:
    """The transcript of one job: what the first scene of the scenario shows."""
    output = SUBMISSION.read_text().partition("\n----\n")[2].partition("\n\n")[0]
    return f"```\n{output}\n```"


def settings_common() -> str:
    return _settings(ServiceSettings, {})


def settings_own() -> str:
    parts = []
    for cls in (DispatcherSettings, ResourceManagerSettings, JobMasterSettings, TaskManagerSettings, WebSettings):
        parts.append(f"**{cls.service}**\n\n{_settings(cls, ServiceSettings.model_fields)}")
    same = {name: field for name, field in HistorySettings.model_fields.items() if name not in HistorySettings.__annotations__}
    parts.append(f"**{HistorySettings.service}**: those of {WebSettings.service}, and its own\n\n{_settings(HistorySettings, same)}")
    return "\n\n".join(parts)


def flink_settings() -> str:
    units = {
        "_hours_of_seconds": "seconds, or a duration", "_hours": "a duration", "_milliseconds": "a duration", "_megabytes": "a size",
        "_placement": "NONE, SLOTS or MIN_RESOURCES", "_evenly": "true or false",
    }  # fmt: skip
    all_of = [(key, named) for name, first in FLINK.items() for key, named in ((name, first), (name, ALSO.get(name))) if named is not None]
    rows = [
        (f"`{key}`", ", ".join(named.services) or "all", f"`{named.setting}`", units.get(named.taken.__name__, ""))
        for key, named in all_of
    ]  # fmt: skip
    return _table(("in Flink", "service", "setting", "as"), rows)


def flink_without() -> str:
    rows = [(f"`{name}`", ", ".join(f"`{each}`" for each in without.same), without.why) for name, without in WITHOUT.items()]
    return _table(("in Flink", "taken all the same", "why it has no meaning"), rows)


def metrics() -> str:
    """A row of values for each label that has few; what bounds it for each that the cluster names."""
    rows = []
    for metric in METRICS:
        labels = (f"`{name}`: {known if isinstance(known, str) else ' '.join(known)}" for name, known in metric.labels.items())
        services = "every one" if metric.services == EVERY else ", ".join(metric.services)
        rows.append((f"`{metric.name}`", metric.kind, metric.unit, "; ".join(labels), services, metric.meaning))
    return _table(("name", "type", "unit", "labels", "service", "meaning"), rows)


def spans() -> str:
    rows = []
    for kind in SPANS:
        name = f"{kind.name} {kind.about}".strip()
        attributes = "; ".join(f"`{each}`: {meaning}" for each, meaning in kind.attributes.items() if each not in OF_ALL)
        rows.append((f"`{name}`", kind.service, kind.parent, kind.begins, kind.ends, attributes))
    return _table(("span", "made by", "part of", "begins when", "ends when", "attributes"), rows)


def alerts() -> str:
    """By their rules; what the summary has of labels and values is left out."""
    rows = []
    for group in YAML(typ="safe").load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            told = re.sub(r"\{\{ *\$labels\.(\w+) *\}\}", lambda found: found.group(1).upper(), rule["annotations"]["summary"])
            told = re.sub(r"\{\{[^}]*\$value[^}]*\}\}", "N", told)
            place = rule["annotations"]["runbook"].removeprefix("docs/").removeprefix("metrics.md")
            rows.append((f"`{rule['alert']}`", rule["labels"]["severity"], rule.get("for", "at once"), told, f"[read on]({place})"))
    return _table(("alert", "severity", "after", "says", "what to do"), rows)


def routes_and_roles() -> str:
    rows = [line.split() for line in TABLE.split("\n") if line]
    return _table(("least role", "requests"), [
        ("none" if role == "nobody" else role, " ".join(f"`{method} {path}`" for each, method, path in rows if each == role))
        for role in dict.fromkeys(each for each, _, _ in rows)
    ])  # fmt: skip


def calls_of(component: str) -> Callable[[], str]:
    return lambda: _table(HEAD, rows_of(CALLS[component]))


def absent_calls() -> str:
    rows = [(component, each.call, f"`{each.name}`", each.why) for component, calls in ABSENT.items() for each in calls]
    return _table(("component", "call", "its message would be", "why it is not here"), rows)


def items_of(those: tuple[items.Item, ...]) -> Callable[[], str]:
    return lambda: _table(items.HEAD, items.rows_of(those))


def items_without() -> str:
    return _table(("in Flink", "why"), items.rows_without((*masters.WITHOUT, *execution.WITHOUT)))


TABLES = {
    "dispatcher items": items_of(masters.DISPATCHER),
    "leadership items": items_of(masters.LEADERSHIP),
    "resource items": items_of(masters.RESOURCES),
    "jobmaster items": items_of(execution.JOB_MASTER),
    "taskmanager items": items_of(execution.TASK_MANAGER),
    "store items": items_of(execution.STORES),
    "better items": items_of(execution.BETTER),
    "items without a test": items_without,
    **{f"calls of the {component.lower()}": calls_of(component) for component in CALLS},
    "absent calls": absent_calls,
    "metrics": metrics,
    "alerts": alerts,
    "spans": spans,
    "journey": journey,
    "faults": faults_of_attempts,
    "topics": topics,
    "records": inbox_records,
    "messages": service_messages,
    "requests and replies": client_messages,
    "public facts": public_facts,
    "effects": effect_table,
    "local facts": local_facts,
    "job states": job_states,
    "subtask states": subtask_states,
    "slot states": slot_states,
    "worker states": worker_states,
    "attempt states": attempt_states,
    "roles": roles,
    "recovery states": recovery_states,
    "stored states": stored_states,
    "closing steps": closing_steps,
    "presence states": presence_states,
    "common settings": settings_common,
    "settings": settings_own,
    "flink settings": flink_settings,
    "flink without": flink_without,
    "routes and roles": routes_and_roles,
}


# ---- parts


def _by_topic(*names: str, second: str) -> str:
    rows = []
    for name in names:
        for c in CONTRACTS.values():
            if c.topic == name:
                rows.append((f"`{c.type}`", f"`{c.topic}`", _said_by(c), _first_sentence(c.body)))
    return _table(("message", "topic", second, "meaning"), rows)


def _said_by(contract: Contract) -> str:
    return "clients" if contract.topic in BY_CLIENTS else _parties(contract.senders)


def _parties(parties: Sequence[str]) -> str:
    return "any service" if tuple(parties) == SERVICES else ", ".join(parties)


def _states(transitions: Mapping[Any, Iterable[Any]], diagram: bool = True) -> str:
    rows = [(state.value, ", ".join(each.value for each in to) or "(an end)") for state, to in transitions.items()]
    table = _table(("state", "may be followed by"), rows)
    if not diagram:
        return table
    lines = [f"    [*] --> {_node(next(iter(transitions)))}"]
    for state, to in transitions.items():
        lines += [f"    {_node(state)} --> {_node(each)}" for each in to] or [f"    {_node(state)} --> [*]"]
    return "\n".join([table, "", "```mermaid", "stateDiagram-v2", *lines, "```"])


def _node(state: Enum) -> str:
    return str(state.value)


def _settings(cls: type[ServiceSettings], without: Mapping[str, Any]) -> str:
    fields = {name: field for name, field in cls.model_fields.items() if name not in without}
    rows = [
        (f"`{name}`", f"`{PREFIX}{name.upper().replace('.', '__')}`", _default(field), field.description or "")
        for name, field in _flat(fields)
    ]
    return _table(("setting", "in the environment", "default", "meaning"), rows)


def _flat(fields: Mapping[str, FieldInfo], above: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Those of a section one by one, under its name."""
    for name, field in fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _flat(field.annotation.model_fields, f"{above}{name}.")
        else:
            yield f"{above}{name}", field


def _default(field: FieldInfo) -> str:
    if SecretStr in (field.annotation, *getattr(field.annotation, "__args__", ())):
        return "(required; a secret, never a flag)" if field.is_required() else "(a secret, never a flag)"
    if field.default is PydanticUndefined:
        return "(required)"
    empty = field.default is None or field.default == "" or field.default == [] or field.default == {}
    shown = " ".join(map(str, field.default)) if isinstance(field.default, list) else str(field.default)
    return "" if empty else f"`{shown}`"


def _first_sentence(cls: type) -> str:
    """The first sentence of a class's docstring, on one line; with the second where it is very short."""
    paragraph = " ".join(inspect.cleandoc(cls.__dict__.get("__doc__") or "").split("\n\n")[0].split())
    end = paragraph.find(". ", SHORT)
    return paragraph if end < 0 else paragraph[: end + 1]


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *([_cell(each) for each in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: Any) -> str:
    text = ", ".join(value) if isinstance(value, tuple) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")
