"""The flights pipeline: on two warm slots, and by hand in one warm PySpark session with as many cores."""

from __future__ import annotations

import time
from pathlib import Path

from deploy.local.downloads import CHECKOUT
from deploy.local.flights import flights_folder
from millrace.core.jobgraph.model import dump
from millrace.edge.graph_file import Loaded, load_graph

from .clusters import Cluster, cluster
from .figures import Row, Run, p50
from .warm_session import WarmSession, warm_session

TIMES_MOST = 2.0
FILE = CHECKOUT / "examples" / "flights.yaml"


def measure(run: Run) -> None:
    n = run.count(3, 1)
    ours: list[float] = []
    peer: list[float] = []
    with cluster("flights", run.say) as running:
        folder = running.stack.folder / "bench"
        with warm_session("local[2]", folder) as session:
            for turn in range(n + 1):  # the first one warms both
                run.say(f"{turn} of {n}")
                mine, rows = _ours(running, folder)
                running.settle()
                theirs, same = _peer(session, folder)
                if rows != same or not rows:
                    raise RuntimeError(f"the results differ: {rows[:3]} and {same[:3]}")
                ours.append(mine)
                peer.append(theirs)
    run.samples |= {"ours_s": ours[1:], "warm_session_s": peer[1:], "first_ours_s": ours[0], "first_peer_s": peer[0]}
    times = p50(ours[1:]) / p50(peer[1:])
    run.rows.append(Row(
        "the flights pipeline, second run", n, f"{p50(ours[1:]):.2f} s", f"most {max(ours[1:]):.2f} s",
        f"warm session local[2] {p50(peer[1:]):.2f} s", f"{times:.2f} x", f"{TIMES_MOST:.0f} x", times <= TIMES_MOST,
    ))  # fmt: skip


def _loaded(out: Path) -> Loaded:
    loaded = load_graph(FILE, {"data": str(flights_folder()), "out": str(out)})
    if loaded.errors or loaded.graph is None:
        raise RuntimeError("\n".join(loaded.rendered()))
    return loaded


def _ours(running: Cluster, folder: Path) -> tuple[float, list[list[object]]]:
    """Seconds from the submission, upload included, to the rows."""
    out = folder / "ours"
    loaded = _loaded(out)
    parameters = {"data": str(flights_folder()), "out": str(out)}
    started = time.perf_counter()
    job = running.client.submit(loaded.raw, parameters=parameters, uploads=loaded.uploads)
    rows = job.result().rows
    took = time.perf_counter() - started
    return took, rows


def _peer(session: WarmSession, folder: Path) -> tuple[float, list[list[object]]]:
    graph = _loaded(folder / "peer").graph
    assert graph is not None
    return session.graph(dump(graph), FILE.parent)
