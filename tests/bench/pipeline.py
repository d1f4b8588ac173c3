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

FILE = CHECKOUT / "examples" / "flights.yaml"
ONE, TWO = "each vertex once", "two subtasks on two slots"
TIMES_MOST = {ONE: 1.1, TWO: 1.3}


def measure(run: Run) -> None:
    n = run.count(5, 1)
    ours: dict[str, list[float]] = {way: [] for way in TIMES_MOST}
    peer: list[float] = []
    with cluster("flights", run.say) as running:
        folder = running.stack.folder / "bench"
        with warm_session("local[2]", folder) as session:
            for turn in range(n + 1):  # the first one warms all
                run.say(f"{turn} of {n}")
                theirs, same = _peer(session, folder)
                peer.append(theirs)
                for way, samples in ours.items():
                    took, rows = _ours(running, folder, way)
                    running.settle()
                    if rows != same or not rows:
                        raise RuntimeError(f"the results differ: {rows[:3]} and {same[:3]}")
                    samples.append(took)
    run.samples |= {"warm_session_s": peer[1:], "first_peer_s": peer[0]}
    for way, samples in ours.items():
        run.samples |= {f"{way}_s": samples[1:], f"first {way}_s": samples[0]}
        times = p50(samples[1:]) / p50(peer[1:])
        run.rows.append(Row(
            f"the flights pipeline, {way}, second run on", n, f"{p50(samples[1:]):.2f} s", f"most {max(samples[1:]):.2f} s",
            f"warm session local[2] {p50(peer[1:]):.2f} s", f"{times:.2f} x", f"{TIMES_MOST[way]:.1f} x", times <= TIMES_MOST[way],
        ))  # fmt: skip


def _loaded(out: Path) -> Loaded:
    loaded = load_graph(FILE, {"data": str(flights_folder()), "out": str(out)})
    if loaded.errors or loaded.graph is None:
        raise RuntimeError("\n".join(loaded.rendered()))
    return loaded


def _ours(running: Cluster, folder: Path, way: str) -> tuple[float, list[list[object]]]:
    """Seconds from the submission, upload included, to the rows."""
    out = folder / "ours"
    loaded = _loaded(out)
    parameters = {"data": str(flights_folder()), "out": str(out)}
    raw = {**loaded.raw, "vertices": {name: dict(vertex) for name, vertex in loaded.raw["vertices"].items()}}
    if way == ONE:
        for vertex in raw["vertices"].values():
            vertex.pop("parallelism", None)
    started = time.perf_counter()
    job = running.client.submit(raw, parameters=parameters, uploads=loaded.uploads)
    rows = job.result().rows
    took = time.perf_counter() - started
    return took, rows


def _peer(session: WarmSession, folder: Path) -> tuple[float, list[list[object]]]:
    graph = _loaded(folder / "peer").graph
    assert graph is not None
    return session.graph(dump(graph), FILE.parent)
