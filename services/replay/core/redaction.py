"""Everything replaced by tokens that its owner may have written: what a job computes, from where, with what, and what went wrong in it.

What stays is listed, so that a field nobody thought of goes: ids and names of jobs, vertices, TaskManagers and slots, states, kinds,
numbers that count and times. A string becomes a token of a keyed hash, equal for equal strings of one export; numbers of results
become 0. Machines copy the rest and do not look into it, so that what is redacted can be folded; only digests, and what is made of
redacted texts, are other words then.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from typing import Any

from millrace.core.jobgraph.model import READ_FORMATS, WRITE_FORMATS, Edge
from millrace.core.messages.base import JOB_ID_PATTERN
from millrace.core.messages.processes import AskProcess
from millrace.core.messages.requests import REQUESTS
from millrace.core.topics import PROCESS_QUESTIONS

from .recorded import Recorded
from .repairs import carried_alike, has_carried, has_kept, kept_alike

KEPT = frozenset({
    "acceptance", "after", "allocation", "archive", "attempt", "attempts", "build", "client_log", "cluster", "edge", "effect", "id", "job",
    "kind", "provider", "worker", "cursor", "next", "do", "answers", "step",
    "leader", "life", "listed", "log", "log_id", "mode", "record", "recovery", "result", "scope", "sender", "sent_reason", "state",
    "states", "status", "strategy", "task", "task_manager", "task_managers", "through", "to", "topic", "type", "vertex", "vertices",
    "waiting", "what", "who", "schedule", "cron", "time_zone", "missed", "overlap", "change", "due", "last", "last_job", "due_job",
    "group", "profile", "places", "planned_by", "kept", "kept_from", "slots_placement",
})  # fmt: skip
"""Fields whose strings stay: ids, names and what is one of a few words."""
KEPT_WHOLE = frozenset({"allocations", "free", "kept_of", "queues", "spare", "starts_to_send", "warm"})
"""Fields that hold nothing but ids, however deep."""
PAYLOADS = frozenset({"args", "conf", "detail", "env", "options", "parameters", "rows"})
"""Fields whose numbers go, too, and the names of what is in them."""
MAPS = frozenset({
    "attempts", "changed", "defined", "effects", "ended", "expected", "extras", "folders", "hashed", "inputs", "jobs", "key_types", "live",
    "lookups",
    "outbox", "outputs", "parallelism", "peers", "pinned", "rescaled", "rescaling", "results", "schemas", "sinks", "slots", "sources",
    "task_managers", "tasks", "tenants", "vertices", "wants",
})  # fmt: skip
"""Fields that are kept by ids, or by names that an owner chose: such a name is no field, though it may be spelt like one."""
OF_HOSTS = frozenset({"hosts", "unread", "unsent"})
"""Fields that are kept by the names of hosts, which go."""
REASONS = frozenset({
    "CancelTasks", "DisconnectTaskManager", "JobQueued", "JobWaiting", "NotEnoughResources", "ReleaseTaskManager", "TaskManagerGone",
    "TaskManagerLost",
})  # fmt: skip
"""Messages whose `reason` is in a service's own words, of nobody's job."""
_HOSTS = re.compile(r"(?<=on a blocked host \()[^)]+|(?<=on blocked hosts \()[^)]+?(?= and \d+ more\)|\))")
"""Names of hosts in such words."""
_BROKEN = re.compile(r"(?<=broken \()([A-Za-z0-9._-]+: )(.+?)(?=\)(?:; |\Z))", re.DOTALL)
"""Why a slot is broken, in such words: what its JVM printed."""
_EVACUATED = re.compile(r"host (\S+) is evacuated(?:: (.*))?", re.DOTALL)
DIGESTS = ("digest", "sha256")
FORMATS = (*READ_FORMATS, *WRITE_FORMATS)
REQUEST_TYPES = {body.model_fields["type"].default for body in REQUESTS} | {AskProcess.model_fields["type"].default}
STRANGERS = frozenset({"client.commands", PROCESS_QUESTIONS})
"""Topics to which anybody writes."""
TOKEN = "redacted:"
Text = Callable[[str], str]


def tokens(secret: bytes) -> Text:
    """Makes tokens of texts; who does not have the secret cannot try texts. A token can be a name, too, of a module or a function."""

    def token(text: str) -> str:
        return f"{TOKEN}x{hashlib.blake2b(text.encode(), digest_size=6, key=secret).hexdigest()}" if text else text

    return token


def redacted(recorded: Recorded, token: Text) -> Recorded:
    """A record with tokens for what goes; bytes that are no JSON become one, and so does what a stranger wrote and is no request."""
    stranger = recorded.topic in STRANGERS
    value = _request(recorded.value, token) if stranger else _value(recorded.value, token)
    key = token(recorded.key) if stranger or recorded.topic == "client.replies" else recorded.key
    return recorded._replace(value=value, id=token(recorded.id) if stranger else recorded.id, key=key)


def _value(value: bytes, token: Text) -> bytes:
    try:
        return _json(walk(json.loads(value), token)).encode()
    except (ValueError, RecursionError):
        return token(value.decode(errors="replace")).encode()


def _request(value: bytes, token: Text) -> bytes:
    """No machine folds it: what its story needs is which request it is, and of which job."""
    try:
        raw = json.loads(value)
    except (ValueError, RecursionError):
        raw = None
    if not isinstance(raw, dict) or raw.get("type") not in REQUEST_TYPES:
        return token(value.decode(errors="replace")).encode()
    kept = {"type": raw["type"], **({"version": raw["version"]} if isinstance(raw.get("version"), int) else {})}
    if isinstance(raw.get("job"), str) and re.fullmatch(JOB_ID_PATTERN, raw["job"]):
        kept["job"] = raw["job"]
    return _json({**kept, "rest": token(_json({name: raw[name] for name in raw if name not in kept}))}).encode()


def masked(value: bytes) -> bytes:
    """A record without what redaction changes: what is left to compare."""
    try:
        return _json(walk(json.loads(value), _nothing)).encode()
    except (ValueError, RecursionError):
        return b""


def _nothing(_: str) -> str:
    return ""


def walk(value: Any, token: Text, field: str = "") -> Any:
    """The value of a field with tokens in it. JSON within texts, as states hold it, is redacted within."""
    if field in KEPT_WHOLE:
        return value
    if field in PAYLOADS and not _are_subtasks(value, field):
        return "" if token is _nothing else _payload(value, token)
    if isinstance(value, dict):
        if value.get("type") in REASONS and "reason" in value:
            redacted = {"reason": _own_words(value["reason"], token)} if isinstance(value["reason"], str) else {}
            return {**{name: walk(inner, token, name) for name, inner in value.items()}, **redacted}
        if value.get("type") == "UploadLog" or value.get("do") == "upload":  # which log a client asks for may be any text
            value = {**value, "log": token(str(value.get("log")))}
        if field in OF_HOSTS:
            return {token(name): walk(inner, token) for name, inner in value.items()}
        if field in MAPS:
            return {name: _edge(inner, token) if field == "inputs" else walk(inner, token) for name, inner in value.items()}
        return _fields(value, token)
    if isinstance(value, list):
        return [walk(inner, token, "" if isinstance(inner, dict) else field) for inner in value]  # maps of a list have fields
    return _text(value, token, field) if isinstance(value, str) else value


def _are_subtasks(value: Any, field: str) -> bool:
    """Of a task in a JobMaster's state, by number: what is else called rows is a list of them, or how many."""
    return field == "rows" and isinstance(value, dict) and all(str(number).isdecimal() for number in value)


def _fields(value: dict[str, Any], token: Text) -> dict[str, Any]:
    found = {name: walk(inner, token, name) for name, inner in value.items()}
    if "planned_by" in value and "jobs" in value:  # of Kept, where it is a map of ids to ids
        found["jobs"] = value["jobs"]
    if token is not _nothing and has_kept(value):
        found = kept_alike(value, found)
    return carried_alike(value, found) if token is not _nothing and has_carried(value) else found


def _text(text: str, token: Text, field: str) -> str:
    if text[:1] in ("{", "["):
        try:
            return _json(walk(json.loads(text), token, "" if field in KEPT else field))
        except (ValueError, RecursionError):
            return token(text)
    if field in DIGESTS and token is not _nothing:
        return hashlib.shake_256(token(text).encode()).hexdigest((len(text) + 1) // 2)[: len(text)]
    if field in KEPT:
        return _own_words(text, token)
    return text if field == "format" and text in FORMATS else token(text)


def _own_words(text: str, token: Text) -> str:
    """A text that stays, but for the names of hosts in it, why an operator blocked one, and why a slot is broken."""
    if evacuated := _EVACUATED.fullmatch(text):
        host, why = evacuated.groups()
        return f"host {token(host)} is evacuated{'' if why is None else ': '}{token(why or '')}"
    text = _BROKEN.sub(lambda found: found[1] + token(found[2]), text)
    return _HOSTS.sub(lambda found: ", ".join(token(host) for host in found[0].split(", ")), text)


def _payload(value: Any, token: Text) -> Any:
    if isinstance(value, dict):
        return {token(str(name)).replace(":", "_"): _payload(inner, token) for name, inner in value.items()}
    if isinstance(value, list):
        return [_payload(inner, token) for inner in value]
    if isinstance(value, str):
        return token(value)
    return 0 if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def _edge(value: Any, token: Text) -> Any:
    """`hash(column, ...)` is an edge still when its columns are tokens."""
    if not isinstance(value, str):
        return walk(value, token)
    try:
        edge = Edge.parse(value)
    except ValueError:
        return token(value)
    return str(Edge(edge.kind, tuple(token(key) for key in edge.keys)))


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
