"""The local stack: Kafka, etcd and the four services of one folder, under one supervisor.

A stack is a folder, `<home>/stacks/<name>`, with all that it has: data, storage, logs, settings, token, `stack.json` (what runs,
where). Stacks share nothing but the cache of programs, so any number can run side by side.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from . import monitoring
from .downloads import CHECKOUT
from .errors import LocalError, plain_errors
from .processes import end_tree, is_running, log_tail
from .server import left_in

DEFAULT = "default"
CONTROL_SERVICES = ("dispatcher", "resource_manager", "job_master")
START_LIMIT_S = 180.0
LEFT_S = 6.0  # for a service that a supervisor has left
DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # no proxy knows this machine's loopback
STOP_LIMIT_S = 60.0  # services have 6 s and Kafka 15 until they are killed, each one after the other; the machine may be busy


@dataclass(frozen=True)
class Options:
    """What `up` may be told; kept in the stack's folder, so that a later `up` without options starts the same stack."""

    slots: int = 2
    task_managers: int = 1
    """So many are always there."""
    task_managers_most: int | None = None
    """Up to so many more are started when slots are short, and stopped when they are idle; None: none."""
    cores: int | None = None
    """None: all of the machine."""
    heap_mb: int | None = None
    """None: by the machine's memory."""
    slot_extras: dict[str, int] = field(default_factory=dict)
    """What each slot has beside memory and cores."""
    python: str = ""
    shards: int = 1
    standbys: int = 0
    """Further processes of each control service, that take over when the leader ends."""
    web: bool = False
    """The web service too."""
    flink_dashboard: str = ""
    """The folder with the files of Flink's dashboard, which the web service answers; empty: it does not."""
    config: str = ""
    """The user's own file of settings, read at each start; empty: none."""

    @property
    def most(self) -> int:
        """TaskManagers at most."""
        return max(self.task_managers, self.task_managers_most or 0)

    @property
    def grows(self) -> bool:
        """Whether the ResourceManager starts and stops TaskManagers."""
        return self.most > self.task_managers


def home() -> Path:
    """MILLRACE_HOME, else `.millrace` in the checkout."""
    return Path(os.environ.get("MILLRACE_HOME") or CHECKOUT / ".millrace").absolute()


class Stack:
    """One stack, running or not."""

    def __init__(self, name: str = DEFAULT) -> None:
        if not name.replace("-", "").replace("_", "").isalnum() or len(name) > 40:
            raise LocalError(f"{name!r} is no name for a stack: use letters, digits, - and _, at most 40.")
        self.name = name
        self.folder = home() / "stacks" / name

    @property
    def option(self) -> str:
        """What a command that is advised needs to mean this stack: a `down --purge` without it would delete another one."""
        return "" if self.name == DEFAULT else f" --stack {self.name}"

    @property
    def token_file(self) -> Path:
        return self.folder / "token"

    def token(self) -> str:
        """Of the stack's BlobServers, made when there is none, or an empty one: the machine stopped just after that was made."""
        with contextlib.suppress(FileNotFoundError):
            if standing := self.token_file.read_text().strip():
                return standing
        write_private(self.token_file, made := secrets.token_urlsafe(32))
        return made

    @property
    def settings_file(self) -> Path:
        return self.folder / "settings.yaml"

    @property
    def supervisor_log(self) -> Path:
        return self.folder / "logs" / "supervisor.log"

    def facts(self) -> dict[str, Any]:
        """`stack.json`; {} if the stack never ran."""
        try:
            return dict(json.loads((self.folder / "stack.json").read_text()))
        except (OSError, ValueError):
            return {}

    def write_facts(self, facts: dict[str, Any]) -> None:
        new = self.folder / "stack.json.new"
        new.write_text(json.dumps(facts, indent=1) + "\n")
        new.replace(self.folder / "stack.json")

    def supervisor(self) -> psutil.Process | None:
        """The living supervisor."""
        facts = self.facts()
        with contextlib.suppress(KeyError, TypeError, psutil.NoSuchProcess):
            process = psutil.Process(facts["pid"])
            if abs(process.create_time() - facts["created"]) < 1 and is_running(process):
                return process
        return None

    def options(self) -> Options:
        """Those of the last start, or the defaults."""
        known = self.facts().get("options", {})
        return Options(**{key: value for key, value in known.items() if key in Options.__dataclass_fields__})

    # what a user does

    def up(self, options: Options | None, progress: Callable[[str], None], foreground: bool = False) -> dict[str, Any]:
        """Starts the supervisor and returns the facts when the stack takes jobs. Does nothing if it runs.

        foreground: the supervisor ends with this process, however that ends. Raises LocalError, with nothing left running.
        """
        if self.supervisor() is not None:
            if options is not None and options != self.options():
                raise LocalError(
                    f"Stack {self.name} is up already, with other options: say 'millrace down{self.option}' first; jobs and data stay."
                )
            progress(f"stack {self.name} is up already")
            return self._await_ready(None, progress, shown=len(self.facts().get("steps", [])))
        options = options or self.options()
        standing = self.facts().get("options", {}).get("shards", options.shards)
        if standing != options.shards:
            raise LocalError(
                f"Stack {self.name} was made with {standing} shards, which is fixed for its life: say --shards {standing}, "
                f"or 'millrace down --purge{self.option}' and start anew."
            )
        with plain_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            self.folder.chmod(0o700)  # what jobs read, write and are told is in storage, logs and Kafka's segments
            (self.folder / "logs").mkdir(exist_ok=True)
            self.write_facts(
                {**self.facts(), "state": "starting", "reason": None, "steps": [], "pid": 0, "options": asdict(options)}
            )
        command = [sys.executable, "-m", "deploy.local.supervisor", self.name]
        if foreground:
            command.append(str(os.getpid()))
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(CHECKOUT), str(CHECKOUT / "shared")])}
        with open(self.supervisor_log, "ab") as log:
            started = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=env,
                cwd=self.folder,
            )
        try:
            return self._await_ready(started, progress)
        except BaseException:
            _end(started.pid)
            raise

    def _await_ready(
        self, started: subprocess.Popen[bytes] | None, progress: Callable[[str], None], shown: int = 0
    ) -> dict[str, Any]:
        """Says the supervisor's steps, from number `said` on, until the stack is ready."""
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline:
            facts = self.facts()
            for step in facts.get("steps", [])[shown:]:
                progress(step)
                shown += 1
            if facts.get("state") == "ready":
                return facts
            if facts.get("state") == "failed":
                raise LocalError(facts.get("reason") or "the stack failed", facts.get("detail") or "")
            if started is not None and started.poll() == 0:
                started = None  # another `up` was first: its supervisor runs the stack
            if started is not None and started.poll() is not None:
                tail = log_tail([self.supervisor_log])
                raise LocalError(f"The supervisor ended while it started: see {self.supervisor_log}.", tail)
            if started is None and self.supervisor() is None:
                raise LocalError(f"Stack {self.name} is not running: 'millrace up{self.option}' starts it.")
            time.sleep(0.02)
        raise LocalError(f"The stack was not ready within {START_LIMIT_S:.0f} s: see {self.folder / 'logs'}.")

    def down(self, purge: bool = False) -> bool:
        """Ends the stack; jobs and data stay unless `purge`. False: it did not run. Raises LocalError if it does not end."""
        process = self.supervisor()
        if process is not None:
            _end(process.pid)
        left = self.end_left(self.facts()) if process is None else 0
        for server in ("kafka", "etcd"):
            orphan = left_in(self.folder / server) if process is None else None
            if orphan is not None:
                end_tree(orphan.pid)
                left += 1
        if purge and self.folder.exists():
            shutil.rmtree(self.folder)
        return process is not None or left > 0

    def end_left(self, facts: dict[str, Any]) -> int:
        """Ends what a supervisor that was killed has left of its services, and says how many. Where the system tells them of its death, as
        Linux does, they end by themselves, a moment later."""
        left = 0
        for service in facts.get("services", {}).values():
            with contextlib.suppress(psutil.Error):
                if str(self.settings_file) in psutil.Process(service["pid"]).cmdline():
                    end_tree(service["pid"], LEFT_S)
                    left += 1
        return left

    def status(self) -> dict[str, Any]:
        """Facts, with each service's health and the disk use of each part."""
        facts = self.facts()
        running = self.supervisor() is not None
        services = {
            name: {**service, **_metrics_url(service), "health": _health(service) if running else None}
            for name, service in facts.get("services", {}).items()
        }
        return {
            "stack": self.name,
            "folder": str(self.folder),
            "state": facts.get("state", "stopped") if running else "stopped",
            **{
                key: facts.get(key)
                for key in ("kafka_bootstrap", "etcd_endpoint", "blob_url", "web_url", "token_file", "warnings", "options", "shut_down")
            },
            "services": services,
            "prometheus_config": str(monitoring.config_file(self.folder)),
            "disk": disk_use(self.folder),
        }


def write_private(file: Path, text: str) -> None:
    """Writes a file for its owner alone. It is there whole or not at all, also when the machine stops meanwhile."""
    new = file.with_name(file.name + ".new")
    new.unlink(missing_ok=True)  # of whoever may read it
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    new.replace(file)


def disk_use(folder: Path) -> dict[str, int]:
    """Bytes of each part of a stack's folder, and free on its disk. Attempts come and go meanwhile: what is gone counts nothing."""
    use = {}
    for part in sorted(folder.iterdir()) if folder.is_dir() else []:
        use[part.name] = 0
        inside = (os.path.join(top, name) for top, folders, files in os.walk(part) for name in (*folders, *files))
        for path in (str(part), *inside):
            with contextlib.suppress(OSError):
                use[part.name] += os.lstat(path).st_blocks * 512
    with contextlib.suppress(OSError):
        use["free"] = shutil.disk_usage(next(each for each in (folder, *folder.parents) if each.is_dir())).free
    return use


def _metrics_url(service: dict[str, Any]) -> dict[str, str]:
    return {"metrics_url": f"http://127.0.0.1:{service['health_port']}/metrics"} if "health_port" in service else {}


def _health(service: dict[str, Any]) -> dict[str, Any]:
    if "health_port" not in service:
        return {"status": "starts: it has not said yet where it answers"}
    try:
        with DIRECTLY.open(f"http://127.0.0.1:{service['health_port']}/health", timeout=2) as answer:
            return dict(json.loads(answer.read()))
    except urllib.error.HTTPError as failure:  # it says what is wrong
        with contextlib.suppress(Exception):
            return dict(json.loads(failure.read()))
        return {"status": f"does not answer: {failure}"}
    except Exception as failure:  # whatever it is, it is what the user asked about
        return {"status": f"does not answer: {failure}"}


def _end(pid: int) -> None:
    """SIGTERM to a supervisor, which ends all it started; SIGKILL when it takes too long (its children get SIGTERM then)."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_LIMIT_S
        while is_running(process):
            if time.monotonic() > deadline:
                process.kill()
                raise LocalError(
                    f"The supervisor (process {pid}) did not end within {STOP_LIMIT_S:.0f} s and was killed."
                )
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
            time.sleep(0.02)
