"""`millrace history`: jobs that ended, without a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .stack_commands import DashboardFolder, StackName, dashboard_of


def history(
    storage: Annotated[
        str | None,
        typer.Option(
            metavar="URL", envvar="MILLRACE_STORAGE_URL",
            help="The storage of the cluster whose jobs are shown: a folder, or an fsspec URL such as s3://bucket/millrace. "
            "Without it that of the local stack.",
        ),
    ] = None,
    stack: StackName = "default",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")] = 0,
    jobs: Annotated[int, typer.Option(min=1, max=1_000_000, help="Archives that are shown, the newest; each takes about 5 KB.")] = 10_000,
    flink_dashboard: DashboardFolder = None,
    spark_history: Annotated[
        str, typer.Option(metavar="URL", help="A Spark history server: pages of jobs link their event logs there, if they kept any.")
    ] = "",
    spark_events: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", exists=True, file_okay=False, resolve_path=True,
            help="The folder that this server reads: event logs of the jobs that are shown are put there, and nothing is deleted.",
        ),
    ] = None,
) -> None:
    """Show the jobs that ended, from their archives in storage: the page and both REST APIs, without a cluster.

    In the foreground until Ctrl-C. It reads and never writes, so it may run beside the cluster, or when that is long gone. Archives of jobs
    that end meanwhile appear within seconds.

    On another address than loopback it needs what the web service needs: python -m services.web.history --help has all settings.
    """  # fmt: skip
    try:
        from services.web.history.running import run
        from services.web.history.settings import HistorySettings
    except ModuleNotFoundError as missing:
        raise typer.BadParameter(f"{missing.name} is not installed; the history needs: pip install 'millrace[web]'") from None
    from deploy.local.stack import Stack

    local = Stack(stack)
    url = storage or str(local.folder / "storage")
    if "://" not in url and not Path(url).is_dir():
        hint = "--storage" if storage else "--stack"
        raise typer.BadParameter(f"{url} is not there: give the folder, or the URL, that the cluster has as storage_url", param_hint=hint)
    dashboard = dashboard_of(flink_dashboard)
    flags = ["--storage-url", url, "--port", str(port), "--retained-jobs", str(jobs), "--log-level", "warning"]
    given = {"--flink-dashboard": dashboard, "--spark-history": spark_history, "--spark-events": spark_events}
    flags += [str(word) for name, value in given.items() if value for word in (name, value)]
    settings = HistorySettings.load_or_exit(flags)

    def print_addresses(address: str) -> None:
        typer.echo(f"history of {settings.describe()['storage_url']}: nothing is written there, and Ctrl-C stops it", err=True)
        typer.echo(f"page: {address}/page/    API: {address}/api/v1/jobs", err=True)
        if dashboard is not None:
            typer.echo(f"Flink's dashboard: {address}/flink/    its command line: flink list -a -m {address.partition('//')[2]}", err=True)

    if code := run(settings, print_addresses):
        raise typer.Exit(code)
