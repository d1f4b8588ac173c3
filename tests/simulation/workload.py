"""Jobs for simulated clusters: graphs of every kind, and attempts that behave as a seed says."""

from __future__ import annotations

import hashlib
import random
import zlib
from collections.abc import Callable
from typing import Any

from millrace.io.storage.store import upload_path
from tests.simulation.behaviour import Behaviour, Script
from tests.simulation.slots import ANALYSIS_ERROR, read_by
from tests.simulation.world import World

Graph = dict[str, Any]

MODULE = b"def rank(df):\n    return df\n"


def upload_module(world: World) -> None:
    """What graphs with a python vertex need in storage."""
    world.storage.put_if_absent(upload_path(_sha256()), MODULE)


def single(name: str = "single", **fields: Any) -> Graph:
    """One query: one task, one subtask."""
    return {"name": name, "vertices": {"query": {"sql": "SELECT 1 AS one"}}, **fields}


def wide(name: str = "wide", parallelism: int = 4, **fields: Any) -> Graph:
    """A source in shares: planned first, then one task of many subtasks, and a hash edge into two."""
    return {
        "name": name,
        "vertices": {
            "numbers": {"source": {"format": "csv", "path": "/data/numbers.csv"}, "parallelism": parallelism},
            "sums": {
                "sql": "SELECT k, sum(v) AS v FROM numbers GROUP BY k",
                "parallelism": 2,
                "inputs": {"numbers": "hash(k)"},
            },
        },
        **fields,
    }


def joined(name: str = "joined", **fields: Any) -> Graph:
    """Two hash inputs, a broadcast, a module, a chain into a sink: every edge, and a planning attempt."""
    out = f"memory://out/{name}"
    return {
        "name": name,
        "vertices": {
            "flights": {"source": {"format": "csv", "path": "/data/flights.csv"}, "parallelism": 2},
            "weather": {"source": {"format": "jdbc"}},  # no files, so it is handed over
            "airlines": {"source": {"format": "csv", "path": "/data/airlines.csv"}},
            "joined": {
                "sql": "SELECT * FROM flights JOIN weather USING (origin) JOIN airlines USING (carrier)",
                "parallelism": 2,
                "inputs": {"flights": "hash(origin)", "weather": "hash(origin)", "airlines": "broadcast"},
            },
            "delays": {
                "sql": "SELECT carrier, count(*) AS n FROM joined GROUP BY carrier",
                "inputs": {"joined": "hash(carrier)"},
            },
            "ranked": {"python": "ranking:rank", "inputs": {"delays": "forward"}, "schema": "carrier STRING, n LONG"},
            "report": {
                "sink": {"format": "parquet", "path": out, "mode": "overwrite"},
                "inputs": {"ranked": "forward"},
            },
        },
        "modules": [{"name": "ranking.py", "sha256": _sha256(), "kind": "py"}],
        **fields,
    }


def diamond(name: str = "diamond", **fields: Any) -> Graph:
    """Two ways from one vertex to another, and a sink beside the result."""
    out = f"memory://out/{name}"
    return {
        "name": name,
        "vertices": {
            "base": {"sql": "SELECT 1 AS k, 2 AS v"},
            "left": {"sql": "SELECT k, v FROM base", "parallelism": 2, "inputs": {"base": "hash(k)"}},
            "right": {"sql": "SELECT k, v FROM base", "inputs": {"base": "broadcast"}},
            "both": {
                "sql": "SELECT * FROM left JOIN right USING (k)",
                "inputs": {"left": "hash(k)", "right": "hash(k)"},
            },
            "kept": {"sink": {"format": "parquet", "path": out, "mode": "error"}, "inputs": {"left": "broadcast"}},
        },
        **fields,
    }


def roots(name: str = "roots", **fields: Any) -> Graph:
    """Queries that wait for nothing: all run at once, from the start."""
    return {"name": name, "vertices": {each: {"sql": "SELECT 1 AS k"} for each in "abcd"}, **fields}


def sink(name: str = "sink", parallelism: int = 2, mode: str = "overwrite", **fields: Any) -> Graph:
    """Rows in shares straight into files."""
    edge = {"rows": "hash(k)"} if parallelism > 1 else {"rows": "forward"}
    return {
        "name": name,
        "vertices": {
            "rows": {"sql": "SELECT 1 AS k"},
            "kept": {
                "sink": {"format": "parquet", "path": f"memory://out/{name}", "mode": mode},
                "parallelism": parallelism,
                "inputs": edge,
            },
        },
        **fields,
    }


KINDS: tuple[Callable[..., Graph], ...] = (single, roots, wide, joined, diamond)


def drawn(seed: int, name: str, kinds: tuple[Callable[..., Graph], ...] = KINDS) -> Graph:
    """A graph of these kinds as the seed says; short delays, so that retries are seen."""
    chance = random.Random(f"{seed}/{name}")
    fixed = {"attempts": chance.choice((0, 2, 5)), "delay_ms": chance.choice((0, 100, 700))}
    fields: dict[str, Any] = {
        "restart": drawn_restart(random.Random(f"restart {seed}/{name}"), fixed),
        "priority": chance.choice((0, 0, 0, 5)),
        "timeouts": {"run_ms": 3_000, **({"queue_ms": 4_000} if chance.random() < 0.1 else {})},
    }
    return chance.choice(kinds)(name, **fields)


def repairing(seed: int, job: str, kinds: tuple[Callable[..., Graph], ...] = KINDS) -> Graph:
    """The graph of a job that repairs another one, `job`: the same, or, of one in three, with another query in its last vertex that has
    one."""
    of = job.partition(".")[0]
    graph = drawn(seed, of, kinds)
    chance = random.Random(f"repair {seed}/{job}")
    if chance.random() < 0.33:
        name = [each for each, vertex in graph["vertices"].items() if "sql" in vertex][-1]
        vertex = graph["vertices"][name]
        graph["vertices"] = {**graph["vertices"], name: {**vertex, "sql": f"{vertex['sql']} -- mended"}}
    return {**graph, "origin": {"job": job, "repair": True, **({"keep_changed": True} if chance.random() < 0.3 else {})}}


def drawn_restart(chance: random.Random, fixed: dict[str, Any]) -> dict[str, Any]:
    """Each strategy, most jobs the fixed delay. Intervals are longer than any trial, so that `audit` can count what they allow."""
    delay_ms = fixed["delay_ms"]
    others = (
        {"strategy": "none"},
        {"strategy": "failure-rate", "max_failures_per_interval": chance.choice((1, 3)), "failure_rate_interval_ms": 86_400_000,
         "delay_ms": delay_ms},
        {"strategy": "exponential-delay", "initial_backoff_ms": 1 + delay_ms, "max_backoff_ms": 2_000, "jitter_factor": 0.5,
         "backoff_multiplier": 2, "attempts_before_reset_backoff": chance.choice((1, 3))},
    )  # fmt: skip
    scope = {"scope": "full"} if chance.random() < 0.15 else {}
    return {**chance.choice((fixed, fixed, fixed, *others)), **scope}


def drawn_behaviour(seed: int, failing: float = 0.12) -> Script:
    """Attempts of which about `failing` do not finish, each as the seed says for its name."""

    def behave(spec: dict[str, Any]) -> Behaviour:
        name = f"{seed}/{spec['job']}/{spec['task']}/{spec['subtask']}/{spec['attempt']}"
        folders = read_by(spec)
        if folders and zlib.crc32(f"lost {name}".encode()) % 1_000 < 1_000 * failing / 8:
            return Behaviour("fail", error=lost_rows(folders[: 1 + zlib.crc32(name.encode()) % len(folders)]))
        drawn = (zlib.crc32(name.encode()) % 10_000) / 10_000 / failing
        if drawn >= 1:
            return Behaviour()
        if drawn < 0.5:
            return Behaviour("fail")
        if drawn < 0.6:
            return Behaviour("fail", error=ANALYSIS_ERROR)
        return Behaviour("hang") if drawn < 0.8 else Behaviour("break")

    return behave


def lost_rows(folders: list[str]) -> dict[str, Any]:
    """The error of an attempt that does not find what others have handed on."""
    return {"kind": "infrastructure", "retryable": False, "condition": "EXCHANGE_LOST", "message": "gone", "lost": "\n".join(folders)}


def _sha256() -> str:
    return hashlib.sha256(MODULE).hexdigest()
