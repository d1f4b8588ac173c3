"""`python -m tests.compose.standins`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ruamel.yaml import YAML

from deploy.local.downloads import CHECKOUT
from deploy.local.etcd import BUILT_VERSION, find_etcd, version_text
from deploy.local.java import find_java
from deploy.local.kafka import fetch_kafka

HERE = Path(__file__).resolve().parent
FILES = ("kafka.sh", "log4j2.properties", "etcdctl")
DOCKERFILE = CHECKOUT / "deploy" / "docker" / "Dockerfile"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
PACKAGES = "passwd,python3-minimal,python3-venv,ca-certificates,libstdc++6"
LEAN = [f"--dpkgopt=path-exclude=/usr/share/{each}/*" for each in ("man", "doc", "locale")]


def names() -> dict[str, str]:
    """Stand-in -> the image that it stands for."""
    bases = dict(re.findall(r"^ARG (PYTHON|JAVA)=(\S+)", DOCKERFILE.read_text(), re.MULTILINE))
    told = YAML(typ="safe").load((CHECKOUT / "docker-compose.yml").read_text())
    return {
        "python": bases["PYTHON"],
        "java": bases["JAVA"],
        "kafka": told["x-kafka"]["image"],
        "etcd": told["x-etcd"]["image"],
        "prometheus": told["services"]["prometheus"]["image"],
    }


def main() -> None:
    started = time.monotonic()
    missing = {stand_in: image for stand_in, image in names().items() if not is_there(image)}
    if missing:
        with tempfile.TemporaryDirectory() as folder:
            gather(Path(folder))
            say(f"gathered after {time.monotonic() - started:.0f} s")
            for stand_in, image in missing.items():
                docker("build", "--target", stand_in, "--tag", image, folder)
                say(f"{image} after {time.monotonic() - started:.0f} s")
    for target in ("control", "task-manager"):
        image = f"millrace-{target}"
        # The machine's own network: where packages come from may be reachable from here alone.
        docker("build", "--network", "host", "--target", target, "--tag", image, "--file", DOCKERFILE, CHECKOUT)
        say(f"{image} after {time.monotonic() - started:.0f} s")


def is_there(image: str) -> bool:
    return subprocess.run(["docker", "image", "inspect", image], capture_output=True, check=False).returncode == 0


def gather(folder: Path) -> None:
    """What the stand-ins are made of."""
    if not is_there("base"):
        subprocess.run(
            [
                "mmdebstrap",
                "--quiet",
                "--variant=essential",
                f"--include={PACKAGES}",
                *LEAN,
                "bookworm",
                folder / "base.tar",
            ],
            check=True,
        )
        docker(
            "import", "--change", "ENV PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", folder / "base.tar", "base"
        )
        (folder / "base.tar").unlink()
    for name in ("Dockerfile", *FILES):
        shutil.copy(HERE / name, folder)
    shutil.copy(CERTIFICATES, folder)
    shutil.copytree(pip_cache(), folder / "pip-cache")
    java = find_java().path.resolve().parent.parent
    shutil.copytree(
        java, folder / "java", ignore=shutil.ignore_patterns("src.zip", "jmods"), ignore_dangling_symlinks=True
    )
    shutil.copytree(fetch_kafka().folder, folder / "jars")
    shutil.copy(etcd(), folder / "etcd")
    get_prometheus(folder)


def etcd() -> Path:
    """Built by Go into a cache of its own, so that nobody else's etcd changes meanwhile; without Go the one of the packages."""
    cache = CHECKOUT / "build" / "compose"
    command = [sys.executable, "-m", "deploy.local.etcd", "build"]
    environment = {**os.environ, "MILLRACE_CACHE": str(cache), "PYTHONPATH": f"{CHECKOUT}:{CHECKOUT / 'shared'}"}
    if shutil.which("go") and subprocess.run(command, env=environment, check=False).returncode == 0:
        return cache / f"etcd-{BUILT_VERSION}" / "etcd"
    found = find_etcd()
    say(f"etcd could not be built: {version_text(found.version)} {found.origin} stands in")
    return found.path


def get_prometheus(folder: Path) -> None:
    """Debian's, without installing it: it would be started."""
    subprocess.run(["apt-get", "download", "--quiet", "prometheus"], cwd=folder, check=True)
    (package,) = folder.glob("prometheus_*.deb")
    subprocess.run(["dpkg", "--extract", package, folder / "debian"], check=True)
    package.unlink()
    for name in ("prometheus", "promtool"):
        shutil.move(folder / "debian" / "usr" / "bin" / name, folder)
    shutil.rmtree(folder / "debian")


def pip_cache() -> Path:
    """What pip fetched for this checkout need not be fetched again."""
    found = subprocess.run(
        [sys.executable, "-m", "pip", "cache", "dir"], capture_output=True, text=True, check=True
    ).stdout.strip()
    Path(found).mkdir(parents=True, exist_ok=True)
    return Path(found)


def docker(*arguments: object) -> None:
    """Without BuildKit: Debian's engine brings no builder for it."""
    done = subprocess.run(
        ["docker", *map(str, arguments)],
        **{"capture_output": True, "text": True, "check": False, "env": {**os.environ, "DOCKER_BUILDKIT": "0"}},
    )
    if done.returncode:
        sys.exit(f"docker {' '.join(map(str, arguments))}:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")


def say(line: str) -> None:
    print(f"stand-ins: {line}", flush=True)


if __name__ == "__main__":
    main()
