"""A mistake as it stands in its file: what the user has, what the user types, and what the user sees.

    What goes wrong, in a sentence.
    needs a stack                        (only where a job must run)
    --- flow.yaml                        (a file of the user's; its text follows)
    ...
    $ millrace submit --job ID --quiet --wait flow.yaml   (what is typed; a variable may stand before it, as in a shell)
    ...                                  (stdout and stderr; `test_mistakes.py` says how it is written anew)

Times, the folders of this machine and the TaskManager that a job ran on are taken out of what is shown. How often it ran is told
behind it.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.cli.inside import shown

STACK = "needs a stack"
Runs = Callable[[str], int]
"""How many attempts of a job's subtasks there were, one after the other."""
_PROGRESS = re.compile(r"^ *\d+\.\d\d s  ")
_OF_A_RUN = (
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "UUID"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"), "TIME"),
    (re.compile(r"\b\d+\.\d+ s\b"), "N s"),
    (re.compile(r"\btask-manager-\d\b"), "task-manager-N"),
    (re.compile(r"^(time      ).+"), r"\1PARTS"),
)


@dataclass
class Scene:
    """The parts of a mistake's file."""

    title: str
    needs_stack: bool = False
    files: dict[str, str] = field(default_factory=dict)
    commands: list[str] = field(default_factory=list)

    def head(self) -> str:
        """All that the user has, as it stands in the file."""
        lines = [self.title, *([STACK] if self.needs_stack else ())]
        return "\n".join(lines) + "\n" + "".join(f"--- {name}\n{text}" for name, text in self.files.items())


def read(text: str) -> Scene:
    """The scene that a file tells; what the commands printed is not looked at."""
    title, *lines = text.splitlines(keepends=True)
    scene, name = Scene(title.rstrip("\n")), None
    for line in lines:
        if line.startswith("$ "):
            scene.commands.append(line[2:].rstrip("\n"))
        elif scene.commands:
            continue
        elif line.startswith("--- "):
            name = line[4:].rstrip("\n")
            scene.files[name] = ""
        elif name is not None:
            scene.files[name] += line
        elif line.rstrip("\n") == STACK:
            scene.needs_stack = True
    return scene


FILES = sorted(Path(__file__).parent.glob("*.txt"))
ON_A_STACK = [file for file in FILES if read(file.read_text()).needs_stack]


def play(file: Path, folder: Path, environment: dict[str, str], request: pytest.FixtureRequest, runs: Runs | None = None) -> None:
    """Compares what the file's commands print now with what it has, or writes it."""
    before = file.read_text()
    now = played(read(before), folder, environment, runs)
    if request.config.getoption("--rewrite"):
        file.write_text(now)
    else:
        assert now == before, "".join(difflib.unified_diff(before.splitlines(True), now.splitlines(True), "as written", "now"))


def played(scene: Scene, folder: Path, environment: dict[str, str], runs: Runs | None) -> str:
    """The scene's file with what its commands print now. `folder`: empty, the user's; it has a folder `project` then, where the user is."""
    project = folder / "project"
    for name, text in scene.files.items():
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    project.mkdir(exist_ok=True)
    said = [f"$ {command}\n{_run(command, project, environment, runs)}" for command in scene.commands]
    return scene.head() + "".join(said)


def _run(command: str, project: Path, environment: dict[str, str], runs: Runs | None) -> str:
    words = shlex.split(command)
    variables = {}
    while "=" in words[0]:
        name, _, variables[name] = words.pop(0).partition("=")
    assert words.pop(0) == "millrace", f"a scene's commands are millrace's: {command}"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(project)
        for name in [name for name in os.environ if name.startswith("MILLRACE_")]:
            patch.delenv(name)
        code, text = shown(*words, COLUMNS="200", **environment, **variables)
    lines = text.splitlines()
    said = [line.rstrip() for line in lines if not _PROGRESS.match(line)]
    if runs is not None and "--job" in words and "--wait" in words:
        count = runs(words[words.index("--job") + 1])
        said.append(f"[it ran {count} time{'s' * (count != 1)}]")
    said.append(f"[exit code {code}]")
    return "".join(f"{_bare(line, project)}\n" for line in said)


def _bare(line: str, project: Path) -> str:
    """A line without what differs from one run to the next."""
    home = os.environ.get("MILLRACE_HOME")
    for folder, name in ((project.parent, "/home/me"), (Path(home) if home else None, "MILLRACE_HOME")):
        line = line.replace(str(folder), name) if folder else line
    for pattern, name in _OF_A_RUN:
        line = pattern.sub(name, line)
    return line
