"""`millrace doctor` and `millrace bundle`: what is not well with a cluster, for its operator and for who helps."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.connection import NoConnection, StackOption, stack_facts
from millrace.cli.exits import Exit

if TYPE_CHECKING:
    from deploy.doctor.examine import Report, Where

KafkaOption = Annotated[
    str, typer.Option("--kafka", envvar="MILLRACE_KAFKA_BOOTSTRAP", help="Kafka of a cluster, host:port[,host:port].")
]
EtcdOption = Annotated[
    str, typer.Option("--etcd", envvar="MILLRACE_ETCD_ENDPOINT", help="Its etcd, host:port[,host:port].")
]
ClusterOption = Annotated[str, typer.Option("--cluster", envvar="MILLRACE_CLUSTER", help="Its name.")]
COLORS = {"ok": "green", "note": "yellow", "problem": "bold red"}


def doctor(
    kafka: KafkaOption = "",
    etcd: EtcdOption = "",
    cluster: ClusterOption = "default",
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    stack: StackOption = "default",
) -> None:
    """Look for what is not well: Java, ports, disk, Kafka, etcd, topics, clocks, leaders, lag, snapshots. Each with its fix.

    Of the local stack, or of a cluster given by --kafka and --etcd. It only reads. Takes up to ten seconds.

    Exit codes: 0 all is well (notes are no faults), 1 there are problems, 3 Kafka, etcd or the stack cannot be reached.
    """
    from deploy.doctor.examine import examine

    report = examine(find_cluster(kafka, etcd, cluster, stack))
    if as_json:
        from millrace.cli.tables import print_json

        print_json(report.shown())
    else:
        print_report(report)
    if report.unreachable:
        raise typer.Exit(Exit.UNAVAILABLE)
    raise typer.Exit(Exit.FAILED if report.problems else Exit.FINISHED)


def find_cluster(kafka: str, etcd: str, cluster: str, stack: str) -> Where:
    """The cluster that the options name, else the local stack. Raises NoConnection, BadParameter."""
    from deploy.doctor.examine import Where

    if bool(kafka) != bool(etcd):
        missing = "--etcd" if kafka else "--kafka"
        raise typer.BadParameter(f"a cluster is given by both addresses: {missing} is missing")
    if kafka:
        return Where(kafka, etcd, cluster)
    facts = stack_facts(stack)
    if not facts.get("kafka_bootstrap"):
        name = "" if stack == "default" else f" --stack {stack}"
        raise NoConnection(
            f"there is no stack {stack!r}: start one with millrace up{name}, or name a cluster by --kafka and --etcd"
        )
    from deploy.local.stack import Stack

    return Where(str(facts["kafka_bootstrap"]), str(facts["etcd_endpoint"]), "default", Stack(stack))


def print_report(report: Report) -> None:
    """Findings as lines, what to do below each."""
    from rich.console import Console
    from rich.text import Text

    console = Console(width=None if os.isatty(1) else 10_000, highlight=False)
    for finding in report.findings:
        line = Text(f"{finding.level:8}", COLORS[finding.level]) + Text(f"{finding.check}: {finding.what}", "default")
        console.print(line)
        if finding.fix:
            console.print(Text(f"         -> {finding.fix}"))
    if report.unreachable:
        console.print(Text("problem ", COLORS["problem"]) + Text(f"unreachable: {report.unreachable}", "default"))
    elif report.problems:
        console.print(f"{report.problems} problem{'s' * (report.problems != 1)}")
    else:
        console.print("all is well")


def bundle(
    out: Annotated[
        Path | None, typer.Option(help="The archive to write; else millrace-bundle-TIME.tar.gz here.", show_default=False)
    ] = None,
    kafka: KafkaOption = "",
    etcd: EtcdOption = "",
    cluster: ClusterOption = "default",
    stack: StackOption = "default",
) -> None:
    """Write a support archive (tar.gz): versions, settings, ends of logs, what doctor found, leaders, topics, dead letters.

    Secrets are left out, and so is what belongs to jobs: their graphs, results and logs. Look through it before you give it away.
    """
    from deploy.doctor.bundle import write

    target = out or Path(time.strftime("millrace-bundle-%Y%m%d-%H%M%S.tar.gz"))
    where = find_cluster(kafka, etcd, cluster, stack)
    try:
        names = write(where, target)
    except OSError as failure:
        print(f"millrace: {target} cannot be written: {failure.strerror}; name another file with --out", file=sys.stderr)
        raise typer.Exit(Exit.INVALID) from None
    print(f"{target}: {len(names)} files, {target.stat().st_size / 1000:,.0f} kB")
