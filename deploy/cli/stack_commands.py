"""`millrace up | down | status | demo`: the local stack. Only a checkout has it (the folder `deploy`)."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from millrace.core.states import ENDED_JOB, JobState

StackName = Annotated[
    str,
    typer.Option(
        "--stack", envvar="MILLRACE_STACK", help="Name of the local stack; each has its own folder and ports."
    ),
]

DashboardFolder = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER", exists=True, file_okay=False, resolve_path=True,
        help="Answer the files of Flink's dashboard from here, at /flink/ of the web service (docs/flink.md says where they are).",
    ),
]  # fmt: skip

ConfigFile = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="Settings of the services, YAML, read at each start: docs/reference.md has them. --config '' forgets the file."
    ),
]
Exactly = Annotated[
    int | None, typer.Option("--task-managers", min=0, max=16, help="Number of TaskManagers, no more and no fewer: --min and --max in one.")
]
SlotExtra = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=N", help="What each slot has beside, for jobs that ask for it: gpu=1; 0 removes it; may be repeated."),
]
Least = Annotated[
    int | None, typer.Option("--min", min=0, max=16, help="TaskManagers that are always there; 0: none at rest (first time: 1).")
]
Most = Annotated[
    int | None,
    typer.Option(
        "--max", min=1, max=16,
        help="TaskManagers at most: started when slots are short, stopped when idle (first time: as many as the machine holds).",
    ),
]  # fmt: skip

LIVING = [state for state in get_args(JobState) if state not in ENDED_JOB]
LIVING_SHOWN = 10
LIVING_S = 2.0  # for the answer: who says `down` waits no longer than that


def register(app: typer.Typer) -> None:
    """Adds the commands to the program."""
    for command in (up, down, status, demo):
        app.command(rich_help_panel="The local stack")(command)
    app.command(rich_help_panel="The cluster")(recover)


def up(
    stack: StackName = "default",
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return when it takes jobs, and leave it running.")
    ] = False,
    slots: Annotated[int | None, typer.Option(min=1, max=64, help="Slots of each TaskManager (first time: 2).")] = None,
    task_managers: Exactly = None,
    least: Least = None,
    most: Most = None,
    cores: Annotated[
        int | None,
        typer.Option(min=1, max=64, help="Threads of each slot: its Spark runs as local with so many (first time: as many as cores)."),
    ] = None,
    heap_mb: Annotated[
        int | None,
        typer.Option(
            min=512, help="Heap of each slot's JVM, in MB; least 512 (first time: half of the memory over all slots, at most 4096)."
        ),
    ] = None,
    slot_extra: SlotExtra = None,
    python: Annotated[
        str | None, typer.Option(help="Python that runs the jobs; it needs PySpark 4.2 (first time: millrace's own).")
    ] = None,
    shards: Annotated[
        int | None, typer.Option(min=1, max=64, help="JobMaster shards; fixed for the stack's life (first time: 1, with standbys 2).")
    ] = None,
    standbys: Annotated[
        int | None,
        typer.Option(
            min=0, max=8, help="Further processes of each control service, to take over when one dies (first time: 0)."
        ),
    ] = None,
    web: Annotated[
        bool | None, typer.Option("--web/--no-web", help="The web service too: a page, and JSON (first time: without).")
    ] = None,
    flink_dashboard: DashboardFolder = None,
    config: ConfigFile = None,
) -> None:
    """Start Kafka, etcd and the four services.

    In the foreground until Ctrl-C, which ends all of it; with --detach it stays, and `millrace down` ends it. Jobs and data stay in the
    stack's folder over down and up; options not given are those of the last up.
    """
    from deploy.local.java import find_java
    from deploy.local.stack import Options, Stack

    local = Stack(stack)
    if local.supervisor() is None:
        find_java()  # what cannot work is said before anything is started
    given = {
        "slots": slots, "cores": cores, "heap_mb": heap_mb, "python": python, "shards": shards,
        "standbys": standbys, "web": web, "flink_dashboard": dashboard_of(flink_dashboard),
        "config": config and str(Path(config).absolute()),
    }  # fmt: skip
    options = {**local.options().__dict__, **{name: value for name, value in given.items() if value is not None}}
    options["slot_extras"] = _slot_extras(options["slot_extras"], slot_extra)
    options |= _task_managers(options, bool(local.facts()), task_managers, least, most)
    _check_settings(options["config"])
    options["flink_dashboard"] = options["flink_dashboard"] if Path(options["flink_dashboard"], "index.html").is_file() else ""
    if flink_dashboard is not None and not options["web"]:
        raise typer.BadParameter("the web service answers its files: give --web, too", param_hint="--flink-dashboard")
    if shards is None and standbys and not local.facts():
        options["shards"] = 2  # each of the two JobMasters then leads one
    facts = local.up(Options(**options), _print_line, foreground=not detach)
    _print_up(stack, facts, dashboard=bool(options["flink_dashboard"]))
    if detach:
        _print_line(f"submit: millrace submit{local.option} examples/hello.yaml --wait    stop: millrace down{local.option}")
        return
    _print_line("Ctrl-C stops it.")
    _stay(local)


def _check_settings(config: str) -> None:
    """Raises BadParameter for a file of settings that cannot be used, now or any more."""
    from deploy.local.stack_settings import own_settings
    from millrace.runtime.settings import BadSettings

    try:
        own_settings(config)
    except BadSettings as bad:
        raise typer.BadParameter("; ".join(bad.problems), param_hint="--config") from None


def _slot_extras(before: dict[str, int], given: list[str] | None) -> dict[str, int]:
    from pydantic import TypeAdapter, ValidationError

    from millrace.cli.options import pairs
    from millrace.core.profile import ExtraCounts

    counts = TypeAdapter(ExtraCounts)
    extras: dict[str, Any] = {**before, **pairs(given, "--slot-extra")}
    try:
        return counts.validate_python({name: number for name, number in extras.items() if str(number) != "0"})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise typer.BadParameter(f"{where}{': ' if where else ''}{first['msg']}", param_hint="--slot-extra") from None


def _task_managers(options: dict[str, Any], known: bool, exactly: int | None, least: int | None, most: int | None) -> dict[str, Any]:
    """How many there are at least and at most. `known`: the stack was up before, and what is not given stays."""
    if exactly is not None:
        if least is not None or most is not None:
            raise typer.BadParameter("it says both --min and --max: give it alone, or those two", param_hint="--task-managers")
        return {"task_managers": exactly, "task_managers_most": None}
    if least is not None and most is not None and most < least:
        raise typer.BadParameter(f"{most} is less than --min {least}", param_hint="--max")
    if known and least is None and most is None:
        return {}
    from deploy.agent import machine_holds
    from millrace.runtime.machine_limits import memory_bytes, usable_cores

    low = options["task_managers"] if least is None else least
    high = most or options["task_managers_most"] or machine_holds(options["slots"], options["heap_mb"], usable_cores(), memory_bytes())
    return {"task_managers": min(low, high) if least is None else low, "task_managers_most": max(low, high) if most is None else most}


def _print_up(stack: str, facts: dict[str, Any], dashboard: bool) -> None:
    for warning in facts.get("warnings", []):
        _print_line(f"note: {warning}")
    _print_line(
        f"stack {stack} is up: Kafka {facts['kafka_bootstrap']}, etcd {facts['etcd_endpoint']}, blobs {facts['blob_url']}"
    )
    if facts.get("web_url"):
        _print_line(f"page: {facts['web_url']}/page/    API: {facts['web_url']}/api/v1/overview")
        if dashboard:
            address = facts["web_url"].partition("//")[2]
            _print_line(f"Flink's dashboard: {facts['web_url']}/flink/    its command line: flink list -m {address}")


def dashboard_of(folder: Path | None) -> str | None:
    """The folder, if it is the one that is meant."""
    if folder is not None and not (folder / "index.html").is_file():
        message = f"{folder} has no index.html: it must be the folder `web` of Flink's flink-dist jar, unpacked (unzip JAR 'web/*')"
        raise typer.BadParameter(message, param_hint="--flink-dashboard")
    return str(folder) if folder is not None else None


def down(
    stack: StackName = "default",
    purge: Annotated[bool, typer.Option(help="Also delete its folder: jobs, results, logs, data.")] = False,
) -> None:
    """Stop the stack; jobs and data stay for the next up, unless --purge.

    Jobs that have not ended are named first. At the next up they go on: what runs begins again (a script from its start), and of a graph
    what had FINISHED is kept.
    """
    from deploy.local.stack import Stack

    local = Stack(stack)
    if not local.folder.exists():
        _print_line(f"there is no stack {stack}: {local.folder} is not there")
        return
    _print_living(local, purge)
    ran = local.down(purge)
    what = "stopped" if ran else "was not running"
    _print_line(f"stack {stack} {what}{'; its folder is deleted' if purge else ''}")


def status(
    stack: StackName = "default",
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """What of the stack runs, how it is, and the room it takes."""
    from deploy.local.stack import Stack

    local = Stack(stack)
    found = local.status()
    if found["state"] == "ready" and local.options().grows:
        found["task_managers"] = _task_managers_now(local)
    if as_json:
        typer.echo(json.dumps(found, indent=1))
        return
    _print_status(found)


def _task_managers_now(local: Any) -> dict[str, int] | None:
    """Of a stack that grows, as its ResourceManager counts them; None: the cluster does not answer."""
    from millrace.client import Millrace, MillraceError

    try:
        with Millrace(local.facts()["kafka_bootstrap"], timeout_s=LIVING_S) as millrace:
            seen = millrace.overview()
    except MillraceError:
        return None
    return {"registered": seen.task_managers, **seen.provided.model_dump()} if seen.provided is not None else None


def recover(
    kafka_bootstrap: Annotated[str, typer.Option(help="Kafka, host:port.", envvar="MILLRACE_KAFKA_BOOTSTRAP")],
    etcd_endpoint: Annotated[str, typer.Option(help="etcd, host:port.", envvar="MILLRACE_ETCD_ENDPOINT")],
    storage_url: Annotated[str, typer.Option(help="The services' storage.", envvar="MILLRACE_STORAGE_URL")],
    cluster: Annotated[str, typer.Option(help="The cluster's name.", envvar="MILLRACE_CLUSTER")] = "default",
) -> None:
    """Put back what an etcd that was restored from a backup lacks, as the cluster's logs know it.

    Order: end all control services (TaskManagers may go on), restore etcd, run this, start the services again. It may be run again.

    Exit codes: 0 done, 2 refused (the message says what to do first), 3 something does not answer.
    """
    from deploy.recover import Refused, recover_cluster
    from millrace.cli.exits import Exit
    from millrace.io.interfaces import Unavailable
    from millrace.io.storage.store import StorageError

    try:
        recover_cluster(kafka_bootstrap, etcd_endpoint, storage_url, cluster, typer.echo)
    except (Refused, Unavailable, StorageError) as failure:
        _print_line(f"millrace: {failure}")
        raise typer.Exit(Exit.INVALID if isinstance(failure, Refused) else Exit.UNAVAILABLE) from None


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the report that the pipeline writes.")] = Path(
        "build/flight-delays"
    ),
    keep: Annotated[bool, typer.Option("--keep", help="Leave the stack running.")] = False,
    web: Annotated[bool, typer.Option("--web", help="The page too; it stays open until Ctrl-C.")] = False,
) -> None:
    """Start a stack of its own, run the flights pipeline on it, show the result, stop everything.

    Two slots read New York's flights of 2013 (336,776 of them), meet them with the weather by hour and airport, and rank the airlines
    by delay. Ctrl-C ends all that was started.
    """
    from deploy.local.downloads import CHECKOUT
    from deploy.local.flights import flights_folder
    from deploy.local.stack import Options, Stack
    from millrace.cli.connection import ANSWER_S
    from millrace.cli.submit import check_loaded, follow, send
    from millrace.client import Millrace
    from millrace.edge.graph_file import load_graph

    parameters = {"data": str(flights_folder(_print_line)), "out": str(out.absolute())}
    local = Stack(f"demo-{os.getpid()}")
    if not keep:  # a JVM that runs one job ends before the full JIT compiler has paid for itself
        os.environ.setdefault("MILLRACE_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1,-XX:+UseSerialGC")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # not by raising SIGINT, which a shell's background ignores
    try:
        facts = local.up(Options(web=web), _print_line, foreground=not keep)
        for warning in facts.get("warnings", []):
            _print_line(f"note: {warning}")
        if web:
            _print_line(f"page: {facts['web_url']}/page/")
        loaded = load_graph(CHECKOUT / "examples" / "flights.yaml", parameters)
        check_loaded(loaded)
        with Millrace(facts["kafka_bootstrap"], token=local.token(), timeout_s=ANSWER_S) as millrace:  # whatever the environment names
            _print_line(f"job flight-delays: examples/flights.yaml on {parameters['data']}")
            code = follow(millrace, send(millrace, loaded, parameters, None, True), local.name, keep, graph={})  # it shows its rows alone
        if code == 0:
            _print_line(f"the same rows are in {out} as Parquet")
        if web and not keep:
            _print_line(f"page: {facts['web_url']}/page/    Ctrl-C stops it.")
            with suppress(KeyboardInterrupt):
                threading.Event().wait()
    finally:
        if keep:
            _print_line(f"it runs on; millrace down --purge --stack {local.name} ends it")
        else:
            _print_line("stopping")
            local.down(purge=True)
    raise typer.Exit(code)


def _print_status(found: dict[str, Any]) -> None:
    from millrace.cli.tables import table

    print(f"stack {found['stack']} in {found['folder']}: {found['state']}")
    if found["state"] == "stopped":
        if found["shut_down"]:
            print(found["shut_down"])
        name = "" if found["stack"] == "default" else f" --stack {found['stack']}"
        print(f"start it: millrace up --detach{name}")
    else:
        print(f"Kafka {found['kafka_bootstrap']}, etcd {found['etcd_endpoint']}, blobs {found['blob_url']}")
        if found["web_url"]:
            print(f"page {found['web_url']}/page/, API {found['web_url']}/api/v1/overview")
        if (counts := found.get("task_managers")) is not None:
            print("TaskManagers {registered}, {starting} being started; at least {least}, at most {most}".format(**counts))
        print(f"token of the blob server in {found['token_file']}")
        print(f"metrics of all: prometheus --config.file={found['prometheus_config']}")
        for warning in found["warnings"] or []:
            print(f"note: {warning}")
        table(("service", "process", "scope", "role", "offset", "restarts"), _service_rows(found["services"]))
    parts = {part: size / 1e6 for part, size in found["disk"].items()}
    free = parts.pop("free", 0.0)
    used = ", ".join(f"{part} {size:,.1f}" for part, size in parts.items() if size >= 0.1)
    print(f"disk, MB: {used or 'nothing'}; {free:,.0f} are free")


def _service_rows(services: dict[str, Any]) -> Iterator[tuple[object, ...]]:
    """A row for each scope of each service; in place of its role, what is wrong with its service. One that waits until another build
    hands the log over says for which."""
    for name, service in services.items():
        health = service["health"] or {}
        status = str(health.get("status", "no answer"))
        for scope in health.get("scopes") or [{}]:
            role = scope.get("role", status) if status == "ok" else status
            if build := scope.get("waits_for"):
                role += f", waits for build {build}"
            yield name, service["pid"], scope.get("scope"), role, scope.get("offset"), service["restarts"]


def _print_living(local: Any, purge: bool) -> None:
    """Which jobs have not ended, and what becomes of them. A cluster that does not answer is stopped all the same."""
    if local.supervisor() is None or local.facts().get("state") != "ready":
        return
    from millrace.cli.words import printable
    from millrace.client import Millrace, MillraceError

    try:
        with Millrace(local.facts()["kafka_bootstrap"], timeout_s=LIVING_S) as millrace:
            living = millrace.list(LIVING_SHOWN, states=LIVING)
    except MillraceError as failure:
        _print_line(f"note: which jobs have not ended is not known ({printable(str(failure))})")
        return
    if not living.total:
        return
    one = living.total == 1
    fate = "it is deleted" if one else "they are deleted"
    if not purge:
        fate = "at the next `millrace up` what runs begins again, a script from its start; of a graph what has FINISHED is kept"
    _print_line(f"{living.total} job{'' if one else 's'} {'has' if one else 'have'} not ended: {fate}")
    for job in living.jobs:
        _print_line(printable(f"  {job.job}  {job.state}"))
    if living.total > len(living.jobs):
        _print_line(f"  and {living.total - len(living.jobs)} more")


def _stay(local: Any) -> None:
    """Until Ctrl-C or SIGTERM, or until the stack ends by itself; then all of it is ended."""
    asked: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: asked.append(1))
    while not asked and local.supervisor() is not None:
        time.sleep(0.3)
    ended = None if asked else local.facts().get("shut_down")
    if ended:
        _print_line(ended)
        return
    _print_living(local, purge=False)
    _print_line("stopping")
    local.down()
    if not asked:
        raise typer.Exit(1)


def _print_line(line: str) -> None:
    typer.echo(line, err=True)
