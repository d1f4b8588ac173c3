"""What a screen asks beside the tables: a job's detail, graph, rows and logs, and dead letters. All of it is kept for a moment."""

from __future__ import annotations

import json
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import structlog

from millrace.cli.fates import Found, fate_of
from millrace.client import Millrace, MillraceError, Result, files
from millrace.client.dead_letters import Letter, Page
from millrace.core.messages.attempts import Fault
from millrace.core.messages.effects import StoredJob
from millrace.core.messages.execution import Archive, JobDetail
from millrace.core.states import ENDED_JOB
from millrace.io.interfaces import Entry
from millrace.runtime.logs import Redaction

from ..api.questions import what_it_does
from ..commands import Commands
from ..core.plans import as_it_runs
from ..kept import Kept
from ..spark_logs import SparkLog, logs_in

KEPT_MOST = 64
DETAIL_S = 1.0
"""So long a live job's detail is shown again without asking its JobMaster."""
LETTERS_S = 5.0
LETTERS_MOST = 5000
"""Of very many letters the page tells of the newest."""
FATE_S = 30.0
REPORT_S = 2.0
"""So long a report is shown again without asking the attempts; each of them looks at Spark for it."""
REPORT_WAIT_S = 5.0
WAIT_S = 2.0
LOG_BYTES = 256 << 10
"""Of a log, from its end."""
RESULT_ROWS = 1000

T = TypeVar("T")
log = structlog.get_logger("web")


@dataclass(frozen=True)
class Known:
    """What is known of a job beside its facts. `missing`: why it is not more, in a sentence."""

    detail: JobDetail | None = None
    cause: Fault | None = None
    graph: Mapping[str, Any] | None = None
    missing: str = ""
    version: str = ""


class Reads:
    """For one event loop."""

    def __init__(self, commands: Commands, kept: Kept, stored: Callable[[str], Entry | None], spark_history: str = "") -> None:
        """`kept`: what ended jobs left in storage. `stored`: what etcd holds of a job, by its key. Raises Unavailable."""
        self._spark_history = spark_history
        self._commands, self._left, self._stored = commands, kept, stored
        self._kept: OrderedDict[Hashable, tuple[float, Any]] = OrderedDict()

    async def job(self, row: Mapping[str, Any]) -> Known:
        """Of an ended job from its archive, of a live one from its JobMaster and from etcd."""
        if row["status"] in ENDED_JOB:
            return await self._ended(row)
        job = row["job"]
        known: Known | None = self._find(("live", job), DETAIL_S)
        if known is None:
            detail, missing = None, ""
            try:
                shown = await self._commands.call(lambda client: client.show(job), WAIT_S)
                detail = shown.detail
                missing = f"{shown.silent} does not answer; running attempts go on meanwhile" if shown.silent else ""
            except MillraceError as failure:
                missing = str(failure)
            known = Known(detail, None, await self._graph(job), missing, f"{time.monotonic_ns()}")
            self._keep(("live", job), known)
        return replace(known, graph=as_it_runs(known.graph, row))

    async def _ended(self, row: Mapping[str, Any]) -> Known:
        path = row["archive"]
        if path is None:
            return Known(missing="it has no archive")
        try:
            archive: Archive = await self._once(("archive", path), lambda client: client.archive(path))
        except MillraceError as failure:
            return Known(missing=f"its archive cannot be read: {failure}")
        return Known(archive.detail, archive.cause, archive.graph or None, version=path)

    async def comes(self, job: str) -> bool:
        """Whether facts of a job are on their way of which the tables tell nothing: it was sent from here just now, or etcd has it."""
        return self._commands.expects(job) or await self._graph(job) is not None

    async def _graph(self, job: str) -> Mapping[str, Any] | None:
        graph: Mapping[str, Any] | None = self._find(("graph", job))
        if graph is None:
            try:
                entry = await self._commands.work(lambda: self._stored(f"jobs/{job}"), WAIT_S)
                graph = StoredJob.model_validate_json(entry.value).graph if entry is not None else None
            except Exception as failure:  # etcd is away, or holds what is none: the page is drawn without edges
                log.warning("a job's graph cannot be read", job=job, reason=repr(failure))
            if graph is not None:
                self._keep(("graph", job), graph)
        return graph

    async def result(self, known: Known) -> Result | None:
        """The rows of a FINISHED job; None: it has none. Raises MillraceError."""
        found = known.detail.result if known.detail is not None else None
        if found is None:
            return None
        return await self._once(("result", known.version), lambda client: client.rows(found))

    async def spark(self, job: str, known: Known) -> list[tuple[SparkLog, str]]:
        """Event logs of an ended job, each with its page on the Spark history server; none where no such server is configured."""
        if not self._spark_history or not known.version or not any(files.folders(known.detail)):
            return []
        found = await self._once(("spark", known.version), lambda client: logs_in(client.files(job).kept))
        return [(each, address) for each in found if (address := each.shown_at(self._spark_history))]

    async def report(self, job: str) -> tuple[Any, str]:
        """What the attempts of a live job do at this moment; and why that is not known."""
        found: tuple[Any, str] | None = self._find(("report", job), REPORT_S)
        if found is None:
            try:
                found = await what_it_does(self._commands, job, REPORT_WAIT_S), ""
            except MillraceError as failure:
                found = None, str(failure)
            self._keep(("report", job), found)
        return found

    async def lines(self, path: str, stream: str, ended: bool) -> tuple[bytes, int]:
        """The end of what an attempt wrote, and how long all of it is. `path` is of a job's detail, never of a request. ended: the job has,
        so nothing more comes."""
        ask = self._left.left if ended else self._commands.call
        return await ask(lambda client: client.log_end(path, stream, LOG_BYTES), WAIT_S)

    async def letters(self, anew: bool = False) -> Page:
        """The newest dead letters. Raises MillraceError."""
        found: Page | None = None if anew else self._find("letters", LETTERS_S)
        if found is None:
            found = await self._commands.call(lambda client: client.dead_letters().page(None, LETTERS_MOST))
            self._keep("letters", found)
        return found

    async def fate(self, letter: Letter) -> Found:
        """What would become of a letter that is sent again now. Raises MillraceError."""
        key = ("fate", letter.number, letter.redriven is not None)
        found: Found | None = self._find(key, FATE_S)
        if found is None:
            found = (await self._commands.call(lambda client: fate_of(client.dead_letters(), letter), WAIT_S))._replace(original=None)
            self._keep(key, found)
        return found

    async def _once(self, key: Hashable, call: Callable[[Millrace], T]) -> T:
        """What never changes: something that an ended job left."""
        found: T | None = self._find(key)
        if found is None:
            found = await self._left.left(call, WAIT_S)
            self._keep(key, found)
        return found

    def _find(self, key: Hashable, most_s: float | None = None) -> Any:
        made_s, value = self._kept.get(key, (0.0, None))
        return value if most_s is None or time.monotonic() - made_s <= most_s else None

    def _keep(self, key: Hashable, value: Any) -> None:
        self._kept[key] = (time.monotonic(), value)
        self._kept.move_to_end(key)
        while len(self._kept) > KEPT_MOST:
            self._kept.popitem(last=False)


def redacted(graph: Mapping[str, Any]) -> str:
    """The graph as JSON for people, without what may be a secret."""
    return json.dumps(_redacted(graph), indent=2, ensure_ascii=False)


SECRET = ("secret", "password", "passwd", "token", "credential", "access.key", "accesskey", "account.key", "private", "apikey")
HIDDEN = "(not shown)"
_GIVEN = re.compile(rf"((?:{'|'.join(map(re.escape, SECRET))}|signature|(?<=[?&])sig)[\w.-]{{0,40}}=)[^\s&;\"']+", re.IGNORECASE)


def _redacted(value: Any, name: str = "") -> Any:
    if isinstance(value, Mapping):
        return {key: _redacted(each, str(key)) for key, each in value.items()}
    if isinstance(value, list | tuple):  # arguments of a script: the value of an option is the next of them
        before = ["", *(each if isinstance(each, str) and each.startswith("-") and "=" not in each else "" for each in value)]
        return [_redacted(each, f"{name}{option}") for each, option in zip(value, before, strict=False)]
    if not isinstance(value, str):
        return value
    return HIDDEN if any(word in name.lower() for word in SECRET) else _without_secrets(value)


def _without_secrets(text: str) -> str:
    """Without those that an address or an option has in itself."""
    text = Redaction().text(text)
    return _GIVEN.sub(rf"\1{HIDDEN}", text) if "://" in text or text.startswith("-") else text
