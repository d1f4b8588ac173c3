"""Small jobs a second on two slots: Millrace's by turns with those of Flink's session cluster, whose jobs do nothing.

Flink's cluster is its own two processes, with its default settings, and keeps nothing that outlives them. Millrace's jobs are durable, as
always: of one query of one row on Spark, and of nothing on slots that end what they are given at once.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

from deploy.local.java import find_java
from deploy.local.processes import free_port, port_is_free, spawn
from tests.web.flink.tools import flink_home

from ..clusters import Cluster, cluster, end_of, expect_finished, show_logs, sql_graph, wait_until
from ..figures import Row, Run, p50

SLOTS = 2
PROGRAM = Path(__file__).parent / "NoOpJobs.java"
COMPILE_S = 120.0


def measure(run: Run) -> None:
    jobs, rounds = run.count(200, 10), run.count(3, 1)
    used: list[Counter[str]] = []
    with ExitStack() as open_:
        lanes = {
            "flink": open_.enter_context(flinks_session(run)),
            "nothing": open_.enter_context(_millrace("small-nothing", run, simulated=True, used=[])),
            "query": open_.enter_context(_millrace("small-query", run, simulated=False, used=used)),
        }
        took: dict[str, list[float]] = {name: [] for name in lanes}
        for number in range(rounds + 1):  # the first warms all
            for name in list(lanes)[number % len(lanes) :] + list(lanes)[: number % len(lanes)]:
                seconds = lanes[name](jobs)
                run.say(f"round {number} of {rounds}, {name}: {jobs / seconds:.1f} jobs a second")
                if number:
                    took[name].append(seconds)
    run.samples |= {f"{name}_s": each for name, each in took.items()} | {"jobs": jobs}
    flinks = jobs / p50(took["flink"])
    for name, what in (("query", "of one query of one row"), ("nothing", "that do nothing, the control plane alone")):
        rate = jobs / p50(took[name])
        run.rows.append(Row(
            f"durable jobs {what}, {SLOTS} slots", rounds, f"{rate:.1f} a second", f"least {jobs / max(took[name]):.1f}",
            f"Flink's session cluster, jobs that do nothing and are not durable: {flinks:.1f} a second",
            f"{rate / flinks:.2f} x", "1 x", rate >= flinks,
        ))  # fmt: skip
    total = {name: sum(each[name] for each in used[1:]) * 1000 / (jobs * rounds) for name in used[-1]}
    run.samples["processor_ms_a_job"] = total
    run.rows.append(Row(
        "processor time of such a job of one row", rounds, f"{sum(total.values()):.0f} ms",
        ", ".join(f"{name} {ms:.0f}" for name, ms in sorted(total.items(), key=lambda each: -each[1]) if ms >= 1), "", "", "", None,
    ))  # fmt: skip


@contextmanager
def _millrace(name: str, run: Run, simulated: bool, used: list[Counter[str]]) -> Iterator[Callable[[int], float]]:
    """What runs so many jobs on a stack of its own, and returns the seconds until all have FINISHED. `used`: takes the seconds of processor
    time that each part of the stack needed meanwhile."""
    with cluster(name, run.say, slots=SLOTS, simulated=simulated) as running:

        def seconds(jobs: int) -> float:
            began, before = time.perf_counter(), _parts(running)
            sent = [running.client.begin_submit(sql_graph(f"SELECT {number} AS number")) for number in range(jobs)]
            expect_finished(Counter(end_of(each.result()) for each in sent))
            took = time.perf_counter() - began
            used.append(_parts(running) - before)
            return took

        yield seconds


def _parts(running: Cluster) -> Counter[str]:
    """Seconds of processor time so far: of each service, and of the slots' JVMs apart from their Python, with all attempts that ended."""
    found: Counter[str] = Counter()
    for name, processes in running.families().items():
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                java = process.name() == "java"
                part = name if not name.endswith("slots") else "JVMs of slots" if java else "Python of slots"
                found[part] += sum(process.cpu_times()[: 4 if part == "Python of slots" else 2])
    return found


@contextmanager
def flinks_session(run: Run) -> Iterator[Callable[[int], float]]:
    """The same on Flink's own session cluster: a JobManager, and a TaskManager with all slots."""
    folder = Path(os.environ["MILLRACE_HOME"]) / "flink-session"
    shutil.rmtree(folder, ignore_errors=True)
    classes, java = _compiled(folder / "classes"), find_java().path
    ports = [free_port()]
    ports.append(free_port(ports))
    (folder / "config.yaml").write_text(
        f"jobmanager: {{rpc: {{address: 127.0.0.1, port: {ports[0]}}}, memory: {{process: {{size: 1600m}}}}}}\n"
        f"taskmanager: {{numberOfTaskSlots: {SLOTS}, host: 127.0.0.1, memory: {{process: {{size: 1728m}}}}}}\n"
        f"rest: {{address: 127.0.0.1, port: {ports[1]}}}\n"
    )
    env = {
        **os.environ, "JAVA_HOME": str(java.resolve().parents[1]), "FLINK_CONF_DIR": str(folder), "FLINK_LOG_DIR": str(folder),
        "HADOOP_CLASSPATH": str(classes),  # which Flink's scripts put on the class path of both
    }  # fmt: skip
    shutil.copy(flink_home() / "conf" / "log4j-console.properties", folder)
    command = [str(java), "-cp", f"{flink_home()}/lib/*:{classes}", "NoOpJobs", str(ports[1])]
    with ExitStack() as open_:
        for script in ("jobmanager", "taskmanager"):
            argv = ["/bin/bash", str(flink_home() / "bin" / f"{script}.sh"), "start-foreground"]
            open_.callback(spawn(argv, log=folder / f"{script}.log", env=env, cwd=folder).stop)
        log = open_.enter_context(open(folder / "client.log", "wb"))
        client = open_.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True))
        open_.callback(client.kill)

        def seconds(jobs: int) -> float:
            assert client.stdin is not None and client.stdout is not None
            client.stdin.write(f"{jobs}\n")
            client.stdin.flush()
            for line in client.stdout:
                if line.startswith("seconds "):
                    return float(line.split()[1])
            show_logs(folder)
            raise RuntimeError(f"Flink's client has ended with {client.wait()}")

        wait_until("Flink's JobManager", lambda: not port_is_free(ports[1]))
        run.say("Flink's session cluster is up")
        yield seconds


def _compiled(folder: Path) -> Path:
    """The folder of the program's classes. It needs a JDK."""
    folder.mkdir(parents=True)
    compiler = [str(find_java().path), "--module", "jdk.compiler/com.sun.tools.javac.Main"]
    jars = os.pathsep.join(str(jar) for jar in sorted((flink_home() / "lib").glob("*.jar")))
    command = [*compiler, "-cp", jars, "-d", str(folder), str(PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_S, check=False)
    if done.returncode:
        raise RuntimeError(f"{PROGRAM.name} does not compile (a JDK is needed): {done.stderr[-2000:] or done.stdout[-2000:]}")
    return folder
