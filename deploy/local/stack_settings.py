"""The settings of a stack's services, in one file that its owner alone may read: it has the blob server's token, and the agent's."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml import YAML

from millrace.runtime.flink_settings import in_our_names
from millrace.runtime.machine_limits import memory_bytes, usable_cores
from millrace.runtime.settings import PREFIX, SERVICES, BadSettings, ServiceSettings, did_you_mean, merged, read_file
from services.task_manager.settings import TaskManagerSettings, heap_of

from .spark_classes import class_data_folder
from .stack import Options, Stack, write_private

# A stack asks its services how they are: by loopback, where nobody needs a token.
_OF_ALL = ("cluster", "kafka_bootstrap", "etcd_endpoint", "storage_url", "log_format", "health_host", "metrics_token")
DECIDED = {
    "": (*_OF_ALL, "health_port"),  # one service may have its own
    "dispatcher": (*_OF_ALL, "blob_port", "blob_token"),
    "web": (*_OF_ALL, "blob_token"),
    "job_master": _OF_ALL,
    "resource_manager": (
        *_OF_ALL, "provider", "agents", "agent_token", "task_managers_min", "task_managers_max", "worker_slots", "worker_memory_mb",
        "worker_slot_cores", "worker_slot_extras",
    ),
    "task_manager": (*_OF_ALL, "slots", "heap_mb", "cores", "python", "work_folder"),
}  # fmt: skip
"""What a stack decides itself, or `up` by its options."""
_OF_ONE_PROCESS = ("host", "port", "id", "config", "instance", "ready_file", "stack")


def without_decided(environment: Mapping[str, str], grows: bool) -> dict[str, str]:
    """The environment for a stack's services. A variable goes before their file: one that names another cluster would have them join it.
    A stack that does not grow may be given agents by variables."""
    given = [names for service, names in DECIDED.items() if grows or service != "resource_manager"]
    decided = {name.upper() for names in (*given, _OF_ONE_PROCESS) for name in names}
    stems = {name: name.upper().removeprefix(PREFIX).split("__")[0] for name in environment if name.upper().startswith(PREFIX)}
    return {name: value for name, value in environment.items() if stems.get(name) not in decided}


class Served(NamedTuple):
    """Where the agent answers, and the token that it asks for."""

    url: str
    token: str


def write_settings(stack: Stack, options: Options, kafka: str, etcd: str, blob_port: int, agent: Served | None) -> None:
    """`agent`: starts TaskManagers for the ResourceManager; None: the supervisor alone does. What the stack decides goes before the user's
    own settings. Raises BadSettings for a file of these that cannot be used."""
    # A laptop does other work too: a little more patience than a cluster's machines need. And making a class-data archive costs it a
    # minute of a core: all stacks have one, also those that live for one job.
    stacks = {"resource_manager": {"lost_after_ms": 800}, "task_manager": {"class_data_folder": str(class_data_folder())}}
    own = merged(stacks, own_settings(options.config))
    settings = {
        "cluster": "default",
        "kafka_bootstrap": kafka,
        "etcd_endpoint": etcd,
        "storage_url": str(stack.folder / "storage"),
        "log_format": "json",
        "dispatcher": {"blob_port": blob_port, "blob_token": stack.token()},
        "web": {"blob_token": stack.token()},
        "resource_manager": _provided(options, agent, own) if agent else {},
        "task_manager": {
            "slots": options.slots,
            "heap_mb": _heap_mb(options),
            **({"cores": options.cores} if options.cores else {}),
            **({"slot_extras": options.slot_extras} if options.slot_extras else {}),
            **({"python": options.python} if options.python else {}),
            "work_folder": str(stack.folder / "work"),
        },
    }
    written = io.StringIO()
    YAML(typ="safe").dump(merged(own, settings), written)
    write_private(stack.settings_file, written.getvalue())


def blob_url(options: Options, port: int) -> str:
    """Where a Dispatcher's BlobServer answers, over TLS where the user's settings have a certificate for it. Raises BadSettings."""
    own = own_settings(options.config).get("dispatcher") or {}
    return f"http{'s' if own.get('blob_certificate') else ''}://127.0.0.1:{port}"


def own_settings(config: str) -> dict[str, Any]:
    """The user's file, in our names; nothing without one. Raises BadSettings."""
    if not config:
        return {}
    content, problems = in_our_names(read_file(Path(config)))
    for service, names in DECIDED.items():
        section = content.get(service) or {} if service else content
        given = [name for name in names if isinstance(section, dict) and name in section]
        problems += [f"{name} is decided by the stack, or by an option of millrace up: leave it out" for name in given]
    problems += _unknown(content) if content else ()
    if problems:
        raise BadSettings([f"in {config}: {each}" for each in problems])
    return content


def _unknown(content: Mapping[str, Any]) -> Iterator[str]:
    """Names that no service takes. The services would refuse them, too, but with the path of the file that is written for them."""
    from services.dispatcher.settings import DispatcherSettings
    from services.job_master.settings import JobMasterSettings
    from services.resource_manager.settings import ResourceManagerSettings
    from services.web.settings import WebSettings

    models = (DispatcherSettings, ResourceManagerSettings, JobMasterSettings, TaskManagerSettings, WebSettings)
    sections = {model.service: [*model.model_fields] for model in models}
    common = [*ServiceSettings.model_fields]
    for name, value in content.items():
        its = [section for section, names in sections.items() if name in names]
        if name in sections:
            known, given = sections[name], value if isinstance(value, Mapping) else ()  # what is no mapping is told of already
            yield from (f"unknown setting {name}.{each}{did_you_mean(str(each), known)}" for each in given if each not in known)
        elif name not in common and name not in SERVICES:
            hint = f"; it is one of the section {' or '.join(its)}" if its else did_you_mean(name, [*common, *sections])
            yield f"unknown setting {name}{hint}"


def _provided(options: Options, agent: Served, own: dict[str, Any]) -> dict[str, Any]:
    extras = options.slot_extras or (own.get("task_manager") or {}).get("slot_extras") or {}
    return {
        "provider": "process", "agents": [agent.url], "agent_token": agent.token,
        "task_managers_min": options.task_managers, "task_managers_max": options.most,
        "worker_slots": options.slots, "worker_memory_mb": _heap_mb(options),
        "worker_slot_cores": options.cores or usable_cores(), "worker_slot_extras": extras,
    }  # fmt: skip


def _heap_mb(options: Options) -> int:
    return options.heap_mb or heap_of(memory_bytes(), options.slots * max(options.most, 1))
