"""The files of Flink's dashboard, from the user's own copy."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from starlette.responses import Response
from starlette.staticfiles import StaticFiles

POLICY = (
    "default-src 'self'; img-src 'self' data:; font-src 'self' data:; style-src 'self' 'unsafe-inline'; "
    # Its page has one handler inline: this.media='all', which puts its style sheet to use.
    "script-src 'self' 'unsafe-hashes' 'sha256-MhtPZXr7+LpJUY5qtMutB+qWfQtMaPccfe7QXtCcEYc='; "
    "worker-src 'self' blob:; base-uri 'self'; frame-ancestors 'none'; form-action 'self'"
)
FILES_MOST = 5000


class Dashboard(StaticFiles):
    """Whatever lay in the folder at the start, and no link. A request names one of these, and no path of the file system. Its page may do
    what it must, and that is more than ours may."""

    def __init__(self, folder: Path) -> None:
        """Raises ValueError for a folder that has too much in it to be the dashboard's."""
        super().__init__(directory=folder)
        self._files: dict[str, Path] = {}
        for root, _, names in os.walk(folder):
            for each in (Path(root, name) for name in names):
                if each.is_file() and not each.is_symlink():
                    self._files[each.relative_to(folder).as_posix()] = each
            if len(self._files) > FILES_MOST:
                raise ValueError(f"{folder} has more than {FILES_MOST} files: it is not the folder `web` of Flink's flink-dist jar")

    def lookup_path(self, path: str) -> tuple[str, os.stat_result | None]:
        file = self._files.get("index.html" if path == "." else path)
        try:
            return (str(file), file.stat()) if file is not None else ("", None)
        except OSError:  # it was deleted since
            return "", None

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers["Content-Security-Policy"] = POLICY
        return response
