"""`python -m tests.replay.page`: writes anew, below each command of the pages in examples/incidents, what it prints."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from services.replay.core.recorded import title
from services.replay.file import Recording
from services.replay.source import log_of

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "incidents"
PAGES = sorted(FOLDER.glob("*.md"))


def rewritten(page: Path) -> str:
    """The page with what its commands print now, and with the offset of the last election, which they name E."""
    elected = election(page.with_suffix(".zip"))

    def run(match: re.Match[str]) -> str:
        return f"```console\n$ {match[1]}\n{printed(match[1], elected)}```"

    text = re.sub(r"`E=\d+`", f"`E={elected}`", page.read_text())
    return re.sub(r"```console\n\$ ([^\n]+)\n.*?```", run, text, flags=re.DOTALL)


def election(recording: Path) -> int:
    """The offset of the last election of job-master/0."""
    source = Recording(recording)
    log = log_of(source, source.facts.scope("job-master/0"))
    return max(each.offset for each in source.read(log, log.first) if title(each).type == "Elected")


def printed(command: str, elected: int) -> str:
    """What a shell in the folder of the pages prints, in UTC and without a terminal. Not what goes to stderr: on a busy machine that has
    how far it is."""
    program = "from deploy.cli import main; main()"
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "millrace")
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c {shlex.quote(program)} "$@"\n')
        script.chmod(0o755)
        paths = os.pathsep.join([str(ROOT), str(ROOT / "shared")])
        env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": paths, "E": str(elected)}
        env |= {"TZ": "UTC", "LC_ALL": "C.UTF-8"}
        done = subprocess.run(
            ["bash", "-c", command], cwd=FOLDER, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=120,
            check=False,
        )  # fmt: skip
    return re.sub(r"[ \t]+$", "", done.stdout, flags=re.MULTILINE)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(rewritten(page))
        print(f"wrote {page.relative_to(ROOT)}")
