"""What an ended attempt leaves is kept: a large result, the files in its folder, its logs."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import structlog

from millrace.core.faults import EXCHANGE_LOST, NOT_READABLE, fault, infrastructure
from millrace.core.messages.attempts import AttemptReport, Fault, FilesLeft, ResultRows
from millrace.core.messages.effects import LaunchAttempt
from millrace.io.storage.store import BadName, Damaged, NameTaken, NotFound, Storage, StorageError

from ..kept_files import Keep, keep_files
from ..slot.common.faults import NOT_WRITABLE, OF_DISKS
from ..slot.common.folders import why_kept
from .reports import UNREADABLE, Unfit, check_size, checked

RESULT_BYTES_MAX = 16 << 10  # a larger result goes to storage, and its place into the report

log = structlog.get_logger("slots")


@dataclass(frozen=True)
class Ending:
    """How an attempt ended. `left`: the report that it left, which its user's code may have written, without its result's rows; `rows`:
    those, as JSON, which the slot's host has looked at. `report`: what is passed on of both."""

    status: Literal["finished", "failed", "killed"]
    left: Any = None
    rows: str | None = None
    error: Fault | None = None
    report: AttemptReport | None = None


@dataclass(frozen=True)
class Folders:
    """Of one attempt: where it works, and where its standard outputs go, which its slot makes; `files`: copies of its job's, by hash."""

    work: Path
    log: Path
    files: Path


class Keeping:
    """Keeps what attempts leave. `logs`: where logs lie that storage is to have at the end."""

    def __init__(self, storage: Storage, logs: Path, keep: Keep) -> None:
        self._storage, self._logs, self._keep = storage, logs, keep

    def log_folder(self, effect: LaunchAttempt, otherwise: Path) -> Path:
        """Where an attempt's logs are kept. `otherwise`: where storage is no folder; they are uploaded from there at the end."""
        try:
            return self._storage.local(f"logs/{effect.folder}")
        except StorageError:
            return otherwise

    @property
    def mark(self) -> str:
        """A file that is there as long as the folder is in which attempts write. Empty: it is no folder, or has none."""
        storage = self._storage
        return str(storage.local(storage.mark)) if storage.mark is not None and storage.is_folder else ""

    def keep(self, effect: LaunchAttempt, ending: Ending, folders: Folders) -> Ending:
        """The ending as it is passed on, after all that is kept is in storage. Raises nothing: an end is told in any case, for nobody
        could end the attempt any more."""
        kept, believed = ending, False
        try:
            try:
                self._check_there(ending)
                believed = True
                kept = self._bounded(effect, ending)
                kept = self._with_files(effect, kept, folders.work)
            finally:
                self._upload(effect, folders.log)  # the logs of what cannot be kept are wanted most
            return kept
        except (OSError, StorageError) as failure:
            if _lost_rows(ending):
                return Ending("failed", error=lacking(failure, NOT_READABLE))
            if ending.status == "finished" or not believed:
                it_failed = "" if ending.status == "finished" else "it failed, and "
                return Ending("failed", error=lacking(failure, NOT_WRITABLE, f"{it_failed}what it leaves cannot be kept: "))
            log.warning("files of an attempt are lost", attempt=effect.attempt, reason=str(failure))
            return kept
        except Unfit as failure:
            return Ending("failed", error=fault("user", str(failure)))
        except Exception as failure:
            log.exception("what an attempt left cannot be kept", attempt=effect.attempt)
            return Ending("failed", error=infrastructure(f"{type(failure).__name__}: {failure}"))

    def unprepared(self, error: OSError | StorageError) -> Fault:
        """Why an attempt cannot begin. A file that storage does not give, though it gives its own mark, is likely to stay so: no job waits
        for that without end."""
        if isinstance(error, StorageError) and self._answers():
            return infrastructure(f"{error}; the rest of the storage can be read")
        return lacking(error, NOT_READABLE)

    def _answers(self) -> bool:
        try:
            return self._storage.mark is not None and bool(self._storage.get(self._storage.mark))
        except StorageError:
            return False

    def _check_there(self, ending: Ending) -> None:
        """Raises StorageError where what the attempt wrote or missed lies in a storage that is not there, as below a missing mount. That
        may be why it failed; one that has not begun has another reason, and may be told by the thread that folds."""
        failed = ending.status == "failed" and ending.error is not None and ending.error.kind != "infrastructure"
        if (ending.status == "finished" or failed) and self._storage.is_folder or _lost_rows(ending):
            self._storage.check_there()

    def _bounded(self, effect: LaunchAttempt, ending: Ending) -> Ending:
        """With a report as a message may carry it: a large result lies in storage, and the report tells where. Many rows are passed on
        unparsed, for that would hold up the other slots."""
        left, rows = ending.left, ending.rows
        if left is None:
            return ending
        report = checked(effect.spec, left)
        if report.result is not None:
            result = left["result"]
            if rows is None:
                raise Unfit(f"{UNREADABLE}: its result has no rows")
            data = f'{json.dumps(result)[:-1]}, "rows": {rows}}}'.encode()
            if len(data) > RESULT_BYTES_MAX:
                path = f"results/{effect.folder}/result.json"
                self._storage.put_new(path, data)
                kept = {**result, "path": path}
            else:
                kept = {**result, "rows": json.loads(rows)}
            report = report.model_copy(update={"result": ResultRows.model_validate(kept)})
        check_size(report.json_value())
        return replace(ending, report=report)

    def _with_files(self, effect: LaunchAttempt, ending: Ending, work: Path) -> Ending:
        """With what is to be told, in its report or error, of the files that the attempt has left in its folder."""
        report, error = ending.report, ending.error
        if ending.status == "killed" or effect.spec.kind == "plan":
            return ending
        files = keep_files(str(work), effect.spec.modules, self._storage, effect.folder, self._keep)
        if files is not None and report is not None:
            report = report.model_copy(update={"files": FilesLeft(**files)})
        elif files is not None and error is not None:
            error = error.model_copy(update={"files_kept": files["kept"], "files_left_out": files["left_out"]})
        return replace(ending, report=report, error=error)

    def _upload(self, effect: LaunchAttempt, folder: Path) -> None:
        """Where storage is no folder, logs go there now. If they cannot, that is no reason to lose a result that is kept."""
        if folder.parent != self._logs:
            return
        try:
            self._upload_from(folder, effect.folder)
        except (OSError, StorageError) as failure:
            log.warning("the logs of an attempt are lost", attempt=effect.attempt, reason=str(failure))
        if why := why_kept(str(folder)):
            log.warning("the logs of an attempt cannot be removed here", attempt=effect.attempt, reason=why)

    def _upload_from(self, folder: Path, name_there: str) -> None:
        for name in ("stdout", "stderr"):
            file = folder / name
            if file.is_file():  # and no pipe, for which one would wait for ever
                with self._storage.writer(f"logs/{name_there}/{name}") as writer, open(file, "rb") as lines:
                    while piece := lines.read(1 << 20):
                        writer.write(piece)
                    writer.commit()


def _lost_rows(ending: Ending) -> bool:
    return ending.error is not None and ending.error.condition == EXCHANGE_LOST


def lacking(error: OSError | StorageError, condition: str, before: str = "") -> Fault:
    """The fault of an attempt that cannot begin, or whose end cannot be kept. What no other slot could do better has a condition, by which
    its job waits. `condition`: of storage, which did not do what was asked. `before`: begins its message."""
    if isinstance(error, OSError):
        message, is_away, condition = f"{error.filename}: {error.strerror}", error.errno in OF_DISKS, NOT_WRITABLE
    else:
        message, is_away = str(error), not isinstance(error, (NotFound, NameTaken, BadName, Damaged))
    return fault("infrastructure", before + message, retryable=True, condition=condition) if is_away else infrastructure(before + message)
