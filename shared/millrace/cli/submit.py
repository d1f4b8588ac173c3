"""`millrace submit`: a graph's file, or a script with the flags of spark-submit."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from millrace.core.states import JobStatus
from millrace.core.trace_context import STATE_VARIABLE, VARIABLE

from .connection import StackOption, connected, is_named
from .environment import EnvFileOption, EnvOption, variables
from .exits import Exit
from .options import FollowOption, NewJobOption, ParallelismOption, QuietOption, ResourceOption, pairs

if TYPE_CHECKING:
    from millrace.client import Job, Millrace
    from millrace.core.jobgraph.problems import Problem
    from millrace.core.messages.attempts import Fault
    from millrace.edge.graph_file import Loaded

    from .output import LiveOutput
    from .progress import End

LISTED_MOST = 5  # files that are gone, by name
GRAPH_SUFFIXES = (".yaml", ".yml", ".json")
EXECUTORS = "those of a --master are set by --conf spark.executor... and spark.cores.max"
NOT_TAKEN = {
    "--deploy-mode": "the driver always runs in a slot of the cluster",
    "--class": "only Python scripts are run",
    "--properties-file": "give each setting with --conf",
    "--driver-memory": "a slot's memory is fixed when its TaskManager starts (millrace up --heap-mb)",
    "--executor-memory": f"a slot's memory is fixed when its TaskManager starts (millrace up --heap-mb); {EXECUTORS}",
    "--driver-cores": "a slot's threads are fixed when its TaskManager starts (millrace up --cores)",
    "--executor-cores": f"a slot's threads are fixed when its TaskManager starts (millrace up --cores); {EXECUTORS}",
    "--total-executor-cores": f"a slot's threads are fixed when its TaskManager starts (millrace up --cores); {EXECUTORS}",
    "--num-executors": f"the cluster's slots decide that (millrace up --slots); {EXECUTORS}",
    "--queue": "give priority in the graph's file",
}


class SubmitCommand(TyperCommand):
    """After a graph's file options may go on; after a script all that follows is the script's own, as with spark-submit."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        takes = {flag for each in self.get_params(ctx) if not getattr(each, "is_flag", True) for flag in each.opts}
        words = iter(args)
        for word in words:
            flag = word.split("=")[0]
            if flag in NOT_TAKEN:
                ctx.fail(f"{flag} is not taken: {NOT_TAKEN[flag]}")
            if word in takes:
                next(words, None)  # its value, which may look like a script: `--py-files helper.py`
            elif not word.startswith("-") and not word.endswith(GRAPH_SUFFIXES):
                break
        ctx.allow_interspersed_args = False
        if not any(word in ("-h", "--help") for word in args):
            found, _, _ = self.make_parser(ctx).parse_args(args=list(args))
            ctx.allow_interspersed_args = str(found.get("target")).endswith(GRAPH_SUFFIXES)
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed


def submit(
    target: Annotated[str, typer.Argument(metavar="GRAPH.yaml | SCRIPT.py", help="What to run.", show_default=False)],
    args: Annotated[list[str] | None, typer.Argument(help="The script's own arguments.", show_default=False)] = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option(
            "-p", "--parameter", metavar="NAME=VALUE", help="A value for the graph's ${NAME}; may be repeated."
        ),
    ] = None,
    parallelism: ParallelismOption = None,
    resource: ResourceOption = None,
    job: NewJobOption = None,
    wait: FollowOption = False,
    quiet: QuietOption = False,
    name: Annotated[str | None, typer.Option(help="The script's name (default: the file's).")] = None,
    conf: Annotated[
        list[str] | None, typer.Option("--conf", "-c", metavar="KEY=VALUE", help="A Spark setting; may be repeated.")
    ] = None,
    py_files: Annotated[str | None, typer.Option(metavar="A.py,B.zip", help="Modules for the script.")] = None,
    files: Annotated[str | None, typer.Option(metavar="A,B", help="Files for its working folder.")] = None,
    jars: Annotated[str | None, typer.Option(metavar="A.jar,B.jar", help="Jars for its class path.")] = None,
    archives: Annotated[str | None, typer.Option(metavar="A.zip,B.tgz", help="Archives, unpacked beside it.")] = None,
    packages: Annotated[
        str | None, typer.Option(metavar="G:A:V,...", help="Maven packages for its class path.")
    ] = None,
    master: Annotated[
        str | None, typer.Option(metavar="spark://HOST:PORT", help="The Spark cluster that runs its tasks (default: its slot).")
    ] = None,
    env: EnvOption = None,
    env_file: EnvFileOption = None,
    stack: StackOption = "default",
) -> None:
    """Submit a job: a graph's file, or a PySpark script with the flags of spark-submit.

    Prints the job's id once it is stored: from then on it runs, whatever dies. With --wait it shows instead how the job goes, what
    scripts and Python functions write (stdout on stdout, stderr on stderr), and the result; Ctrl-C then leaves the job alone.

    Exit codes of --wait: 0 FINISHED, 1 FAILED, 2 invalid, 3 unavailable, 4 outcome unknown (ask millrace show), 5 CANCELED.
    Of a script that ended with an exit code of its own: that one, as of spark-submit.

    millrace submit examples/flights.yaml -p data=FOLDER --wait

    millrace submit --wait --conf spark.sql.shuffle.partitions=4 etl.py --day 2013-01-01
    """
    flags = {
        "name": name, "conf": conf, "py_files": py_files, "files": files, "jars": jars, "archives": archives, "packages": packages,
        "master": master, "parallelism": pairs(parallelism, "--parallelism"), "resources": pairs(resource, "--resource"),
    }  # fmt: skip
    parameters = pairs(parameter, "-p")
    load = _graph if Path(target).suffix in GRAPH_SUFFIXES else _script
    loaded = load(Path(target), args or [], parameters, flags, variables(env, env_file))
    check_loaded(loaded)
    with connected(stack) as millrace:
        accepted = send(millrace, loaded, parameters, job, wait)
        if not wait:
            typer.echo(accepted.id)
            return
        raise typer.Exit(follow(millrace, accepted, stack, graph=loaded.raw, quiet=quiet))


def _graph(path: Path, args: list[str], parameters: dict[str, str], flags: dict[str, Any], env: dict[str, str]) -> Loaded:
    _refuse(args, "arguments are for scripts; give a graph its parameters with -p NAME=VALUE")
    ours = {name: flags.pop(name) for name in ("master", "parallelism", "resources")}
    given = [flag for flag, value in flags.items() if value]
    _refuse(given, f"--{(given or [''])[0].replace('_', '-')} is for scripts; it stands in a graph's file instead")
    from millrace.edge.graph_file import load_graph

    return load_graph(path, parameters, same_machine=not is_named(), sent=True, env=env, **ours)


def _script(path: Path, args: list[str], parameters: dict[str, str], flags: dict[str, Any], env: dict[str, str]) -> Loaded:
    _refuse(path.suffix != ".py", f"{path} is neither a graph (.yaml, .yml, .json) nor a PySpark script (.py)")
    ours = [word for word in args if word in ("--wait", "-w", "--follow", "--stack")]
    if ours:
        print(f"note: {', '.join(ours)} stands after the script and goes to it; ours stand before it", file=sys.stderr)
    _refuse(parameters, "-p is for graphs; give a script its arguments after its name")
    _refuse(flags["parallelism"], "--parallelism is for graphs: a script is one vertex")
    from millrace.edge.graph_file import load_script

    paths = {flag: [Path(each) for each in _comma(flags[flag])] for flag in ("py_files", "files", "jars", "archives")}
    return load_script(
        path,
        args,
        name=flags["name"],
        conf=pairs(flags["conf"], "--conf"),
        packages=_comma(flags["packages"]),
        master=flags["master"],
        env=env,
        resources=flags["resources"],
        py_files=paths["py_files"],
        files=paths["files"],
        jars=paths["jars"],
        archives=paths["archives"],
    )


def send(millrace: Millrace, loaded: Loaded, parameters: dict[str, str], job: str | None, watch: bool) -> Job:
    """Submits what was loaded; what the cluster finds wrong with it is printed, and ends the command."""
    from millrace.client import Rejected, new_id

    job = job or new_id(str(loaded.raw["name"]))
    trace = os.environ.get(VARIABLE), os.environ.get(STATE_VARIABLE)
    try:
        with named_at_ctrl_c(job):
            accepted = millrace.submit(loaded.raw, job, parameters, loaded.uploads, watch, loaded.env, *trace)
    except Rejected as rejected:
        if rejected.problems:
            print_problems(loaded, rejected.problems)
            raise typer.Exit(Exit.INVALID) from None
        raise
    rendered = loaded.rendered()
    for line in (loaded.render(_problem(each, warning=True)) for each in accepted.warnings):
        if line not in rendered:  # what the cluster alone has found
            print(line, file=sys.stderr)
    return accepted


@contextmanager
def named_at_ctrl_c(job: str) -> Iterator[None]:
    """While a submission is answered. Its id is chosen before, so that who does not wait for the answer can ask for it."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"\nit is not known whether job {job} was accepted; ask: millrace show {job}", file=sys.stderr)
        raise


def follow(
    millrace: Millrace, job: Job, stack: str, lives_on: bool = True, graph: dict[str, Any] | None = None, quiet: bool = False
) -> int:
    """Shows progress until the end; the exit code that tells it.

    - lives_on: the stack stays, so that the job can be asked about later.
    - graph: its vertices that run a user's own code have their output shown. None: it is the cluster's, and is read at the job's end."""
    from millrace.client import MillraceError

    from .progress import show_progress

    option = "" if stack == "default" else f" --stack {stack}"
    output = None if quiet else _output(millrace, job, graph)
    try:
        ending = show_progress(job.id, job.events(), lambda: millrace.wait(job.id), output, quiet)
    except KeyboardInterrupt:
        if lives_on:
            follow = f"millrace events {job.id} -f{option}    cancel it: millrace cancel {job.id}{option}"
            print(f"\njob {job.id} goes on. Follow it: {follow}", file=sys.stderr)
        return Exit.INTERRUPTED
    except MillraceError as failure:  # whatever it is, the job was accepted: that must not look as if it was not
        ask = f"ask: millrace show {job.id}{option}"
        print(f"job {job.id} was accepted, and it is not known how it goes on ({failure}); {ask}", file=sys.stderr)
        return Exit.UNKNOWN
    if graph is None:
        graph = _stored(millrace, ending)
        output = output if _runs_code(graph) else None
    if output is not None and output.trouble:
        print(f"not all that it wrote is shown: {output.trouble}", file=sys.stderr)
    failed = ending.status == JobStatus.FAILED
    if failed:
        _print_cause(ending.cause)
    if lives_on and (failed or output is not None):
        print(f"what it wrote: millrace logs {job.id}{option}", file=sys.stderr)
    if _runs_code(graph):
        _print_files(millrace, job.id, ending)
    if failed:
        return _script_exit(ending.cause, graph) or Exit.FAILED
    if ending.status == JobStatus.CANCELED:
        return Exit.CANCELED
    _print_rows(millrace, job.id, ending, f"millrace result {job.id}{option}" if lives_on else None)
    return Exit.FINISHED


def _stored(millrace: Millrace, ending: End) -> dict[str, Any]:
    """The graph of a job that ended; of one whose archive cannot be read it is empty."""
    from millrace.client import MillraceError

    try:
        return millrace.archive(ending.archive).graph if ending.archive else {}
    except MillraceError:
        return {}


def _print_files(millrace: Millrace, job: str, ending: End) -> None:
    """What the job has left by relative paths: where it is, and loudly what of it is gone."""
    from millrace.client import MillraceError

    from .files import left_out
    from .tables import files_lines

    try:
        detail = millrace.archive(ending.archive).detail if ending.archive else None
        lines = files_lines(detail, job)
        if any(line.startswith("NOT kept") for line in lines):
            lines += left_out(millrace.files(job))[:LISTED_MOST]
    except MillraceError:
        return  # `show` tells it when it can be read
    for line in lines:
        print(line, file=sys.stderr)


def _print_rows(millrace: Millrace, job: str, ending: End, more: str | None) -> None:
    """The first rows of the result, if the job has one: from its last event, or from its archive where it is not small. `more`: the
    command that prints all of them."""
    from millrace.client import MillraceError, NotFinished

    from .tables import print_head

    if sys.stderr.isatty():
        print(file=sys.stderr)  # between progress and rows
    try:
        print_head(millrace.result(job) if ending.result is None else millrace.rows(ending.result), more)
    except NotFinished:
        return  # it has no rows: what it made is where its sinks are
    except MillraceError as failure:
        print(f"the result cannot be shown now: {failure}", file=sys.stderr)


def _output(millrace: Millrace, job: Job, graph: dict[str, Any] | None) -> LiveOutput | None:
    """For a job that runs code that may write something, as far as that is known."""
    if graph is not None and not _runs_code(graph):
        return None
    from .output import LiveOutput

    return LiveOutput(millrace.log_reader(job.id), alone=graph is not None and len(graph["vertices"]) == 1)


def _runs_code(graph: dict[str, Any]) -> bool:
    return any("python" in vertex or "spark_app" in vertex for vertex in graph.get("vertices", {}).values())


def _script_exit(cause: Fault | None, graph: dict[str, Any]) -> int | None:
    """What a job that is one script ended with: its caller goes by that, as by the exit code of spark-submit. Said, for 2 to 5 have
    meanings of their own here; each of those tells another thing as well."""
    code = cause.exit_code if cause is not None else None
    kinds = [vertex.get("spark_app") for vertex in graph.get("vertices", {}).values()]
    if code is None or not 0 < code < 256 or len(kinds) != 1 or kinds[0] is None:
        return None
    print(f"exit code {code} is the script's own", file=sys.stderr)
    return code


def _print_cause(cause: Fault | None) -> None:
    from .tables import cause_lines

    for line in cause_lines(cause):
        print(line, file=sys.stderr)


def check_loaded(loaded: Loaded) -> None:
    """Warnings and errors found here, each with its line; errors end the command."""
    for line in loaded.rendered():
        print(line, file=sys.stderr)
    if loaded.errors:
        count = len(loaded.errors)
        print(f"not submitted: {count} problem{'s' * (count != 1)}", file=sys.stderr)
        raise typer.Exit(Exit.INVALID)


def print_problems(loaded: Loaded, problems: list[Any]) -> None:
    """What the cluster found wrong, as if it had been found here."""
    for each in problems:
        print(loaded.render(_problem(each)), file=sys.stderr)
    print(f"not accepted: {len(problems)} problem{'s' * (len(problems) != 1)}", file=sys.stderr)


def _problem(answered: Any, warning: bool = False) -> Problem:
    """A problem as the cluster answered it."""
    from millrace.core.jobgraph.problems import Problem

    return Problem(tuple(answered.place), answered.message, answered.hint, warning=warning)


def _comma(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _refuse(given: object, reason: str) -> None:
    if given:
        raise typer.BadParameter(reason)
