"""Before anything else of the compose file: is there room for it, and a token for the BlobServer?

A container of its own, so that what is wrong is one line and nothing was started: `docker compose logs check`.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path

SLOT_MB = 512  # of a slot beyond its heap: the JVM itself and the Python processes
TASK_MANAGER_MB = 256  # of a TaskManager beyond its slots
HA_MEMBERS = 3
SPARKS = 3  # a master and two workers
SIZED = ("KAFKA", "ETCD", "CONTROL", "TASK_MANAGER", "SLOT_HEAP", "SPARK_WORKER", "PROMETHEUS", "GRAFANA", "JAEGER")


def problem(sizes: Mapping[str, str], docker_mb: int) -> str | None:
    """What is wrong with the sizes of `.env` for a Docker with so much memory, in one line; None if nothing is."""
    try:
        mb = {name: int(sizes[f"{name}_MB"]) for name in SIZED}
        slots, task_managers, controls = (int(sizes[name]) for name in ("SLOTS", "TASK_MANAGERS", "CONTROLS"))
    except (KeyError, ValueError) as wrong:
        return f"a size of .env is missing or no number ({wrong}): correct it."
    least = slots * (mb["SLOT_HEAP"] + SLOT_MB) + TASK_MANAGER_MB
    if mb["TASK_MANAGER"] < least:
        return (
            f"TASK_MANAGER_MB={mb['TASK_MANAGER']} is too little for {slots} slot(s) with heaps of {mb['SLOT_HEAP']} MB: "
            f"give it {least}, or lower SLOTS or SLOT_HEAP_MB, in .env."
        )
    profiles = sizes.get("PROFILES", "").split(",")
    members = HA_MEMBERS if "ha" in profiles else 1
    needed = members * (mb["KAFKA"] + mb["ETCD"]) + controls * mb["CONTROL"] + task_managers * mb["TASK_MANAGER"]
    needed += SPARKS * mb["SPARK_WORKER"] if "spark" in profiles else 0
    needed += mb["PROMETHEUS"] + mb["GRAFANA"] if "monitoring" in profiles else 0
    needed += mb["JAEGER"] if "traces" in profiles else 0
    if needed > docker_mb:
        return (
            f"the containers may take {needed} MB of memory together and Docker has {docker_mb} MB: give Docker more, "
            "or lower TASK_MANAGERS or the sizes that end in _MB, in .env."
        )
    return None


def memory_mb() -> int:
    """Of the machine that runs the containers."""
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["MemTotal"].split()[0]) // 1024


def make_token(folder: Path) -> None:
    """A token that only this cluster knows, made once: for clients, and as settings files for the Dispatchers and the web service."""
    token = folder / "blob-token"
    if not token.exists() or not token.read_text().strip():  # empty: the machine stopped just after it was made
        new = secrets.token_hex(16)
        _write(folder / "dispatcher.yaml", f'dispatcher: {{blob_token: "{new}"}}\n')
        (folder / "web.yaml").unlink(missing_ok=True)
        _write(token, new)
    if not (folder / "web.yaml").exists():  # of a cluster that an earlier version made
        _write(folder / "web.yaml", f'web: {{blob_token: "{token.read_text().strip()}"}}\n')


def _write(file: Path, text: str) -> None:
    """It is there whole or not at all, also when the machine stops meanwhile."""
    new = file.with_name(file.name + ".new")
    new.unlink(missing_ok=True)
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    new.replace(file)


def main() -> int:
    wrong = problem(os.environ, memory_mb())
    if wrong:
        print(f"check: {wrong}", file=sys.stderr)
        return 2
    make_token(Path("/var/lib/millrace/secrets"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
