"""The client library alone, in an environment of its own, as its users install it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from deploy.local.downloads import only_one

ROOT = Path(__file__).resolve().parents[2]
INSTALL_MOST_S = 150
ENVIRONMENT = "environment"


@dataclass(frozen=True)
class Alone:
    """`folder`: the virtual environment, and all that is in it; nothing of the checkout."""

    folder: Path

    def run(self, *command: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Runs a program of the environment, in its folder. `env`: all of the variables that it gets."""
        program, *args = command
        return subprocess.run(
            [str(self.folder / "bin" / program), *args],
            **{"cwd": self.folder, "env": env, "capture_output": True, "text": True, "timeout": 120, "check": False},
        )


def shared(factory: pytest.TempPathFactory) -> Alone:
    """The one of this run, which tests leave as it is; whoever asks first installs it, and all workers have it."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "client-alone"
    done = folder / "done"
    with only_one(folder.with_name("client-alone.lock")):
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)  # what somebody began
            folder.mkdir()
            install(folder)
            done.touch()
    return Alone(folder / ENVIRONMENT)


def install(folder: Path) -> Alone:
    """Builds the wheel and installs it with the versions of the lock file."""
    source, environment = folder / "source", folder / ENVIRONMENT
    shutil.copytree(ROOT / "shared", source, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "build"))
    _do(sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, source)
    [wheel] = folder.glob("*.whl")
    uv = Path(sys.executable).with_name("uv")
    _do(uv, "venv", "--python", sys.executable, environment)
    _do(uv, "pip", "install", "--python", environment, "--no-build", "--constraint", ROOT / "requirements.lock", wheel)
    return Alone(environment)


def _do(*command: object) -> None:
    env = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run([str(each) for each in command], env=env, capture_output=True, text=True, timeout=INSTALL_MOST_S, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
