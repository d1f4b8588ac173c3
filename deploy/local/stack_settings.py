"""The settings of a stack's services, in one file that its owner alone may read: it has the blob server's token, and the agent's."""

from __future__ import annotations

import io
from typing import Any, NamedTuple

from ruamel.yaml import YAML

from millrace.runtime.inspection import memory_bytes
from services.task_manager.settings import heap_of

from .stack import Options, Stack, write_private


class Served(NamedTuple):
    """Where the agent answers, and the token that it asks for."""

    url: str
    token: str


def write_settings(stack: Stack, options: Options, kafka: str, etcd: str, blob_port: int, agent: Served | None) -> None:
    """`agent`: starts TaskManagers for the ResourceManager; None: the supervisor alone does."""
    settings = {
        "cluster": "default",
        "kafka_bootstrap": kafka,
        "etcd_endpoint": etcd,
        "storage_url": str(stack.folder / "storage"),
        "log_format": "json",
        "dispatcher": {"blob_port": blob_port, "blob_token": stack.token()},
        "web": {"blob_token": stack.token()},
        # A laptop does other work too: a little more patience than a cluster's machines need.
        "resource_manager": {"lost_after_ms": 800, **(_provided(options, agent) if agent else {})},
        "task_manager": {
            "slots": options.slots,
            "heap_mb": _heap_mb(options),
            **({"cores": options.cores} if options.cores else {}),
            **({"python": options.python} if options.python else {}),
            "work_folder": str(stack.folder / "work"),
        },
    }
    written = io.StringIO()
    YAML(typ="safe").dump(settings, written)
    write_private(stack.settings_file, written.getvalue())


def _provided(options: Options, agent: Served) -> dict[str, Any]:
    return {
        "provider": "process", "agents": [agent.url], "agent_token": agent.token,
        "task_managers_min": options.task_managers, "task_managers_max": options.most,
        "worker_slots": options.slots, "worker_memory_mb": _heap_mb(options),
    }  # fmt: skip


def _heap_mb(options: Options) -> int:
    return options.heap_mb or heap_of(memory_bytes(), options.slots * max(options.most, 1))
