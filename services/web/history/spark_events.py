"""Event logs of the jobs that are shown, in a folder that a Spark history server reads: one next to the other, as Spark writes them."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import structlog

from millrace.client import files
from millrace.core.messages.execution import JobDetail
from millrace.io.storage.store import BadName, NotFound, Storage, StorageError

from ..spark_logs import FOLDER, SparkLog, logs_in

OF_THE_FOLDER = (
    errno.EACCES, errno.EDQUOT, errno.EIO, errno.ENOENT, errno.ENOSPC, errno.ENOTDIR, errno.EPERM, errno.EROFS,
)  # fmt: skip
"""No log can be put there. Any other error of the system is that of one log: of its names, which a job has chosen."""

log = structlog.get_logger("history")


class SparkEvents:
    """Puts them there. What is too old there is deleted by the Spark history server, as it is told to."""

    def __init__(self, storage: Storage, folder: Path) -> None:
        self._storage, self.folder = storage, folder

    def put(self, detail: JobDetail | None) -> None:
        """The logs of a job, but those that are there already. What is the matter with one log alone is a warning. Raises
        StorageError, once all that can be is there: to be tried again."""
        failed: StorageError | None = None
        for where in files.folders(detail):
            try:
                failed = self._put(where) or failed
            except (NotFound, BadName, ValueError):
                pass  # it went by age; or `files` of this job says what is the matter
            except StorageError as failure:
                failed = failure
        if failed is not None:
            raise failed

    def _put(self, where: tuple[str, int, int, str]) -> StorageError | None:
        """Those of one attempt, and why some are to be tried again. Raises StorageError, ValueError: its files are not listed."""
        failed = None
        for each in logs_in(files.listed(where, self._storage.get(f"results/{where[3]}/files.json")).kept):
            try:
                self._copy(each)
            except StorageError as failure:
                if isinstance(failure, NotFound | BadName):
                    _left_out(each, failure)
                else:
                    failed = failure
            except (OSError, ValueError) as failure:
                if isinstance(failure, OSError) and failure.errno in OF_THE_FOLDER:
                    reason = failure.strerror or type(failure).__name__
                    return StorageError(str(self.folder), reason, "make room there, or give another --spark-events")
                _left_out(each, failure)
        return failed

    def _copy(self, found: SparkLog) -> None:
        """What is there appears whole: it is written beside under a name that no history server reads. An application may have left
        several files of its name."""
        for top in {each.name.split("/")[1]: None for each in found.files}:
            if (self.folder / top).exists():
                continue
            beside = self.folder / f".{top.encode()[:200].decode(errors='ignore')}"  # a name may have 255 bytes
            shutil.rmtree(beside, ignore_errors=True)
            try:
                for each in found.files:
                    name = each.name.removeprefix(f"{FOLDER}/")
                    if name.split("/")[0] == top:
                        (beside / name).parent.mkdir(parents=True, exist_ok=True)
                        with open(beside / name, "wb") as file:
                            for chunk in self._storage.chunks(each.path, 0, each.bytes):
                                file.write(chunk)
                (beside / top).rename(self.folder / top)
            finally:
                shutil.rmtree(beside, ignore_errors=True)


def _left_out(found: SparkLog, why: Exception) -> None:
    log.warning("an event log is left out", task=found.task, subtask=found.subtask, application=found.application, reason=str(why))
