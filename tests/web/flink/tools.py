"""Flink's own tools, unchanged, from PyPI: its command line, its Java client, and the files of its dashboard."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from deploy.local.downloads import cache_folder, only_one
from deploy.local.java import find_java

HERE = Path(__file__).parent
LOCK = HERE / "flink.lock"
LIMIT_S = 300.0
INSTALL_LIMIT_S = 600.0


def flink_home() -> Path:
    """Flink's folder with `bin`, `conf` and `lib`, installed at its first use by version and hash."""
    folder = cache_folder() / "flink-2.3.0"
    done = folder / ".installed"
    with only_one(folder.with_name(folder.name + ".lock")):
        if not done.exists() or done.read_text() != LOCK.read_text():
            shutil.rmtree(folder, ignore_errors=True)
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps", "--no-compile"]
            pip += ["--require-hashes", "--only-binary", ":all:", "--python-version", "3.11"]  # no Python of it is run
            pip += ["--target", str(folder), "--requirement", str(LOCK)]
            subprocess.run(pip, check=True, timeout=INSTALL_LIMIT_S)
            done.write_text(LOCK.read_text())
    return folder / "pyflink"


def dashboard(folder: Path) -> Path:
    """The dashboard's files, as a user unpacks them."""
    with zipfile.ZipFile(_jar()) as jar:
        jar.extractall(folder, [name for name in jar.namelist() if name.startswith("web/")])
    return folder / "web"


def _jar() -> Path:
    (jar,) = (flink_home() / "lib").glob("flink-dist-*.jar")
    return jar


def flink(port: int, *arguments: str, token: str = "") -> subprocess.CompletedProcess[str]:
    """Flink's command line against a service on loopback. Options follow the command: the address goes behind its first word. `token`: is
    sent with each request, by the variable that Flink has for headers."""
    command, *rest = arguments
    home = flink_home()
    java = find_java().path
    whole = ["bash", str(home / "bin" / "flink"), command, "-m", f"127.0.0.1:{port}", *rest]
    env = {**os.environ, "FLINK_HOME": str(home), "JAVA_HOME": str(java.resolve().parents[1])}
    if token:
        env["FLINK_REST_CLIENT_HEADERS"] = f"Authorization:Bearer {token}"
    return subprocess.run(whole, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def java_client(port: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """RestClient.java: what Flink's RestClusterClient makes of each call. Java compiles it before it runs it."""
    whole = [str(find_java().path), "-cp", f"{flink_home()}/lib/*", str(HERE / "RestClient.java"), str(port), *arguments]
    return subprocess.run(whole, capture_output=True, text=True, timeout=LIMIT_S, check=False)
