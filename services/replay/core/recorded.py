"""Records as a recording has them, and what can be said of one without folding it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from millrace.core.fold import Parked
from millrace.core.topics import TASK_MANAGER, TOPICS, Topology

CHANGELOGS = frozenset(topic.name for topic in TOPICS if topic.compacted)
"""Topics that keep a service's own tables: what is on them follows from other records, and leads to none."""


class BadLog(Exception):
    """What was recorded cannot be folded as it was asked. The message says what is wrong, where, and what can still be shown."""


class Shortened(BadLog):
    """Records of a living log were deleted while it was read, as they are below a new snapshot. After `look_again` the log is known
    as it is then, and can be read again from the beginning."""

    def __init__(self, message: str, look_again: Callable[[], None]) -> None:
        super().__init__(message)
        self.look_again = look_again


class Recorded(NamedTuple):
    """One record of a partition. `id`: its CloudEvents id, which numbers what a scope said; "" where it has none."""

    topic: str
    partition: int
    offset: int
    stamp_ms: int
    """The broker's stamp; in a TaskManager's journal its own clock's."""
    key: str
    value: bytes
    id: str = ""

    @property
    def log(self) -> str:
        """The scope whose inbox it lies in; of public topics the partition."""
        inbox = self.topic.endswith(".commands") and self.topic != "client.commands"
        return self.key if inbox and self.key else log_name(self.topic, self.partition)

    @property
    def place(self) -> str:
        """Names it for ever, such as dispatcher@12 or job.events[3]@0."""
        return f"{self.log}@{self.offset}"


def log_name(topic: str, partition: int) -> str:
    return f"{topic}[{partition}]"


@dataclass(frozen=True)
class Log:
    """A partition: offsets `first` up to, not including, `end`."""

    topic: str
    partition: int
    log_id: str
    first: int
    end: int

    @property
    def name(self) -> str:
        return log_name(self.topic, self.partition)


@dataclass(frozen=True)
class Scope:
    """What etcd says of a scope: which log its generation is [R22], and which records are passed over [R26]."""

    name: str
    topic: str
    partition: int
    generation: int
    log_id: str
    first_offset: int
    parked: Mapping[int, Parked] = field(default_factory=dict)


@dataclass(frozen=True)
class Facts:
    """What is known of the cluster. `job`: only records about this job are here; they can be shown, not folded."""

    cluster: str
    topology: Topology
    scopes: Mapping[str, Scope]
    job: str | None = None
    redacted: bool = False

    def scope(self, name: str) -> Scope:
        """Raises BadLog."""
        found = self.scopes.get(name)
        if found is None:
            where = "; a TaskManager's journal is a file: --file WORK/ID/journal/..." if name.startswith(f"{TASK_MANAGER}/") else ""
            raise BadLog(f"there is no scope {name!r} here; there are: {', '.join(self.scopes)}{where}")
        return found

    def whole(self) -> None:
        """Raises BadLog where there is nothing to fold."""
        if self.job is not None:
            raise BadLog(
                f"this file holds only the records about job {self.job}, which cannot be folded: "
                f"look at them with replay show and replay story {self.job}, or export without --job"
            )


class Title(NamedTuple):
    """A record in a few words. `job`: whom it is about, where it says so itself."""

    type: str
    detail: str
    sender: str = ""
    job: str | None = None


_SHOWN = (
    "status", "state", "kind", "task", "subtask", "attempt", "attempts", "slot", "slots", "allocation", "allocations",
    "task_manager", "worker", "incarnation", "reason", "within_ms", "position", "problem", "mark", "shard", "host", "letter", "by",
)  # fmt: skip
_LONGEST = 60


def parse(value: bytes) -> dict[str, Any] | None:
    """The JSON object of a record; None: it is none."""
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):  # strangers write what they like
        return None
    return found if isinstance(found, dict) else None


def title(recorded: Recorded) -> Title:
    """What a record is, from its bytes alone: also of records that this build cannot decode. Its texts can be printed."""
    kind, detail, sender, job = _title(recorded)
    return Title(_plain(kind), detail, _plain(sender), None if job is None else _plain(job))


def _title(recorded: Recorded) -> Title:
    value = parse(recorded.value)
    if value is None:
        return Title("(no JSON object)", f"{len(recorded.value)} bytes")
    kind = value.get("record")
    if kind == "Message":
        body = _object(value.get("body"))
        return Title(str(body.get("type")), _fields(body), str(value.get("sender")), _job(body))
    if kind == "Outcome":
        result = _object(value.get("result"))
        stands = _object(result.get("stands"))
        detail = " ".join(filter(None, (f"of effect {_plain(value.get('effect'))}", _fields(result), _fields(stands))))
        return Title(str(result.get("type")), detail, "", _job(result))
    if kind == "Fact":
        body = _object(value.get("body"))
        return Title(str(body.get("type")), _fields(body), "", _job(body))
    if kind == "Client":
        return _client(value)
    if kind == "Elected":
        detail = f"{_plain(value.get('who'))} epoch {value.get('epoch')} generation {value.get('generation')} build {value.get('build')}"
        return Title("Elected", detail)
    if kind == "Tick":
        return Title("Tick", f"{value.get('n')} of epoch {value.get('epoch')}, published through {value.get('published_through')}")
    if kind == "Probe":
        return Title("Probe", f"{value.get('n')} by {value.get('who')}")
    return Title(str(value.get("type", "(no type)")), _fields(value), recorded.id.rpartition("/")[0].rpartition("/")[0], _job(value))


def _client(value: dict[str, Any]) -> Title:
    place = f"client.commands[{value.get('partition', 0)}]@{value.get('offset')}"
    refusal = _object(value.get("refusal"))
    if refusal:
        return Title("Client", f"no request, {place}: {_plain(refusal.get('reason'))}")
    request = _object(value.get("request"))
    problems = value.get("problems") or ()
    found = f"{len(problems)} problems" if problems else "valid" if value.get("graph") is not None else ""
    return Title(str(request.get("type")), " ".join(filter(None, (f"from {place}", found))), "client", _job(request))


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _job(body: dict[str, Any]) -> str | None:
    job = body.get("job")
    if isinstance(job, str):
        return job
    return _job_of(body, "offers", "job") or _job_of(body, "tasks", "attempt") or _job_of({"": [body]}, "", "attempt")


def _job_of(body: dict[str, Any], several: str, name: str) -> str | None:
    """Of the first of several; an attempt's name begins with its job."""
    for each in body.get(several) or ():
        found = _object(each).get(name)
        if isinstance(found, str):
            return found.partition("/")[0]
    return None


def _fields(body: dict[str, Any]) -> str:
    shown = []
    for name in _SHOWN:
        value = body.get(name)
        if value is not None and value != [] and not isinstance(value, dict):
            text = ", ".join(_plain(each) for each in value) if isinstance(value, list) else _plain(value)
            shown.append(f"{name} {text}")
    for name in ("cause", "error"):
        message = _object(body.get(name)).get("message")
        if message:
            shown.append(f"{name} {_plain(message.splitlines()[0])}")
    for several, name in (("tasks", "attempt"), ("offers", "allocation")):
        names = [_plain(_object(each).get(name)) for each in body.get(several) or () if name in _object(each)]
        if names:
            shown.append(f"{name} {', '.join(names)}")
    return " ".join(shown)


def _plain(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    text = text if text.isprintable() else text.encode("unicode_escape").decode()
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
