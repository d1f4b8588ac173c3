"""Agents that start and stop TaskManagers with timed slots as the ResourceManager asks for them, and what must hold of those.

`python -m tests.chaos.agents` is `millrace agent`, but for the slots of its TaskManagers.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil

from deploy.local import processes
from deploy.local.processes import free_port
from deploy.local.stack import Stack, write_private
from millrace.client import Millrace
from millrace.io.etcd.store import EtcdStore

from .task_managers import Kept

COUNT, EACH_MOST = 2, 2
LEAST, MOST = 1, 3
"""TaskManagers of both agents together."""
SLOTS = 2  # of each
LOOK_S = 0.2
SERVICE, TIMED = "services.task_manager", "tests.task_manager.timed"
TOKEN = "a token of both agents, which is long enough"


class Agents(Kept):
    """`crowds`: whenever more TaskManagers ran than may, or two of one id, which."""

    patience_s = 10.0  # an agent that is stopped stops its TaskManagers

    def __init__(self, stack: Stack, ended: Callable[[str, int, Path], object] = lambda *_: None) -> None:
        super().__init__(stack, [f"agent-{number + 1}" for number in range(COUNT)], ended)
        self._ports: dict[str, int] = {}
        for name in self.names:
            self._ports[name] = free_port(self._ports.values())
        self.crowds: list[str] = []
        self._looking = threading.Thread(target=self._look, daemon=True)

    def settings(self) -> dict[str, str]:
        """Those of the ResourceManager, in the environment. It decides soon, so that as much as possible happens in a run."""
        agents = json.dumps([self._url(name) for name in self.names])
        given = {
            "PROVIDER": "process", "AGENTS": agents, "AGENT_TOKEN": TOKEN, "AGENT_AWAY_MS": 6_000, "TASK_MANAGERS_MIN": LEAST,
            "TASK_MANAGERS_MAX": MOST, "WORKER_SLOTS": SLOTS, "WORKER_START_MS": 15_000, "WORKER_IDLE_MS": 1_500,
        }  # fmt: skip
        return {f"MILLRACE_{name}": str(value) for name, value in given.items()}

    def __enter__(self) -> Agents:
        self._token_file = self._stack.folder / "agent-token"
        write_private(self._token_file, TOKEN)
        super().__enter__()
        self._looking.start()
        return self

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._looking.join()

    def command(self, name: str) -> list[str]:
        command = ["-m", "tests.chaos.agents", "agent", "--config", self._stack.settings_file, "--token-file", self._token_file]
        command += ["--port", self._ports[name], "--logs", self._stack.folder / "logs" / name, "--most", EACH_MOST]
        return [str(word) for word in command]

    def around(self) -> Mapping[str, str]:
        return {name: value for name, value in os.environ.items() if not name.startswith("MILLRACE_")}

    def running(self) -> list[tuple[str, int]]:
        """(id, process) of each TaskManager of the stack that runs, whoever is its parent."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                words = process.cmdline()
                if TIMED in words and str(self._stack.settings_file) in words:
                    found.append((words[words.index("--id") + 1], process.pid))
        return sorted(found)

    def problem(self, store: EtcdStore, client: Millrace) -> str:
        """What is wrong with a cluster at rest: the agents have those that are kept, all of them registered, and nothing else runs."""
        leader = store.get("leaders/resource-manager")
        if leader is None:
            return "no ResourceManager leads"
        listed = sorted(each for name in self.names for each in self._listed(name, leader.mod_revision))
        running = [name for name, _ in self.running()]
        seen = client.overview()
        counts = (seen.task_managers, seen.provided.starting) if seen.provided is not None else None
        if running != listed or len(listed) != LEAST or counts != (LEAST, 0):
            return f"{LEAST} is to be kept, the agents have {listed}, there run {running}, and registered and starting are {counts}"
        return ""

    def _url(self, name: str) -> str:
        return f"http://127.0.0.1:{self._ports[name]}"

    def _listed(self, name: str, epoch: int) -> list[str]:
        """What runs, as this agent says to a leader of this epoch. Raises OSError."""
        claim = self._stack.folder / "logs" / name / "cluster"
        url = f"{self._url(name)}/workers?epoch={epoch}&cluster={claim.read_text().strip()}"
        with urllib.request.urlopen(urllib.request.Request(url, headers={"Authorization": f"Bearer {TOKEN}"}), timeout=5) as answer:
            return [each for each, ended in json.loads(answer.read())["workers"].items() if ended is None]

    def _look(self) -> None:
        while not self._ending.wait(LOOK_S):
            running = self.running()
            if len(running) > MOST or len(dict(running)) < len(running):
                self.crowds.append(f"TaskManagers run that may not, of {MOST} that may, each once: {running}")


def main() -> None:
    spawn = processes.spawn

    def timed(argv: list[str], **more: object) -> processes.Child:
        return spawn([TIMED if word == SERVICE else word for word in argv], **more)  # type: ignore[arg-type]  # as they were given

    processes.spawn = timed  # type: ignore[assignment]  # it is called as the agent does
    from deploy.cli import main as millrace

    millrace()


if __name__ == "__main__":
    main()
