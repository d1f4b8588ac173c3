"""What each role may do: a row for every route. What has no row is refused to everybody who has to log in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from ..flink.paths import DASHBOARD, FIRST_WORDS, PREFIX, path_of
from .who import ROLES

Needs = Literal["nobody", "viewer", "operator", "admin"]
"""The least role; nobody: without a login."""
_ORDER: tuple[Needs, ...] = ("nobody", *ROLES)
Rules = Mapping[str, Sequence[tuple["re.Pattern[str]", Needs, str]]]
FILES, NO_ROUTE = f"{DASHBOARD}/{{file}}", "other"
"""What requests of the dashboard's files are counted as, and those that stand in no table."""
STREAMS = "/api/v1/streams/"

TABLE = """
nobody    GET    /healthz
viewer    GET    /metrics
viewer    GET    /api/v1/openapi.json
viewer    GET    /api/v1/schema
viewer    GET    /api/v1/overview
viewer    GET    /api/v1/taskmanagers
viewer    GET    /api/v1/taskmanagers/{name}
viewer    GET    /api/v1/taskmanagers/{name}/thread-dump
viewer    GET    /api/v1/taskmanagers/{name}/settings
viewer    GET    /api/v1/taskmanagers/{name}/logs
viewer    GET    /api/v1/taskmanagers/{name}/logs/{log}
viewer    GET    /api/v1/services
viewer    GET    /api/v1/services/{name}/thread-dump
viewer    GET    /api/v1/services/{name}/settings
viewer    GET    /api/v1/services/{name}/logs
viewer    GET    /api/v1/services/{name}/logs/{log}
viewer    GET    /api/v1/slots
viewer    GET    /api/v1/leaders
viewer    GET    /api/v1/jobs
viewer    GET    /api/v1/jobs/{job}
viewer    GET    /api/v1/jobs/{job}/logs
viewer    GET    /api/v1/jobs/{job}/logs/{task}/{subtask}/{attempt}/{stream}
viewer    GET    /api/v1/jobs/{job}/report
viewer    GET    /api/v1/jobs/{job}/failures
viewer    GET    /api/v1/jobs/{job}/result
viewer    GET    /api/v1/jobs/{job}/files
viewer    GET    /api/v1/jobs/{job}/files/{task}/{subtask}
viewer    GET    /api/v1/jobs/{job}/spark-logs
viewer    GET    /api/v1/jobs/{job}/events
viewer    GET    /api/v1/streams/jobs
viewer    GET    /api/v1/streams/jobs/{job}
viewer    GET    /api/v1/streams/jobs/{job}/logs
viewer    GET    /api/v1/streams/cluster
viewer    POST   /api/v1/validate
viewer    GET    /api/v1/schedules
viewer    GET    /api/v1/schedules/{schedule}
operator  PUT    /api/v1/schedules/{schedule}
operator  DELETE /api/v1/schedules/{schedule}
operator  POST   /api/v1/schedules/{schedule}/pause
operator  POST   /api/v1/schedules/{schedule}/resume
operator  POST   /api/v1/schedules/{schedule}/run
operator  POST   /api/v1/jobs
operator  POST   /api/v1/jobs/{job}/cancel
viewer    GET    /api/v1/jobs/{job}/requirements
operator  PUT    /api/v1/jobs/{job}/requirements
operator  POST   /api/v1/jobs/{job}/again
operator  POST   /api/v1/jobs/{job}/repair
operator  GET    /api/v1/deadletters
admin     POST   /api/v1/deadletters/{number}/redrive
admin     POST   /api/v1/shutdown
admin     POST   /api/v1/deregister
viewer    GET    /api/v1/blocklist
admin     PUT    /api/v1/blocklist/{host}
admin     DELETE /api/v1/blocklist/{host}
"""
"""Our own API. Dead letters hold the beginnings of others' requests."""

PAGE = """
nobody    GET    /page/static/{version}/{name}
nobody    GET    /page/login
nobody    POST   /page/login
nobody    GET    /page/login/oidc
nobody    GET    /page/login/back
viewer    POST   /page/logout
viewer    GET    /page/refused
viewer    GET    /
viewer    GET    /page
viewer    GET    /page/
viewer    GET    /page/queue
viewer    GET    /page/schedules
viewer    GET    /page/schedules/{schedule}
operator  GET    /page/schedules/{schedule}/{what}
operator  POST   /page/schedules/{schedule}/{what}
viewer    GET    /page/taskmanagers
viewer    GET    /page/taskmanagers/{name}
viewer    GET    /page/services
viewer    GET    /page/services/{name}
viewer    GET    /page/leaders
viewer    GET    /page/more
viewer    GET    /page/jobs
viewer    GET    /page/jobs/{job}
operator  GET    /page/jobs/{job}/cancel
operator  GET    /page/jobs/{job}/rescale
operator  POST   /page/jobs/{job}/rescale
operator  POST   /page/cancel
operator  GET    /page/jobs/{job}/again
operator  POST   /page/jobs/{job}/again
operator  GET    /page/jobs/{job}/repair
operator  POST   /page/jobs/{job}/repair
operator  GET    /page/submit
operator  POST   /page/submit
operator  GET    /page/letters
admin     POST   /page/redrive
admin     GET    /page/block
admin     POST   /page/block
admin     GET    /page/unblock
admin     POST   /page/unblock
admin     GET    /page/deregister
admin     POST   /page/deregister
admin     GET    /page/shutdown
admin     POST   /page/shutdown
"""

FLINK = """
viewer    GET    /openapi.json
viewer    GET    /config
viewer    GET    /overview
viewer    GET    /datasets
viewer    GET    /datasets/delete/{trigger}
viewer    GET    /applications/overview
viewer    GET    /applications/{application}
viewer    GET    /applications/{application}/exceptions
viewer    GET    /applications/{application}/jobmanager/config
viewer    GET    /jobmanager/config
viewer    GET    /jobmanager/environment
viewer    GET    /jobmanager/metrics
viewer    GET    /jobmanager/logs
viewer    GET    /jobmanager/logs/{file}
viewer    GET    /jobmanager/log
viewer    GET    /jobmanager/stdout
viewer    GET    /jobmanager/thread-dump
viewer    GET    /jobmanager/profiler
viewer    GET    /jobmanager/profiler/{file}
viewer    GET    /jobs
viewer    GET    /jobs/metrics
viewer    GET    /jobs/overview
viewer    GET    /jobs/{job}
viewer    GET    /jobs/{job}/status
viewer    GET    /jobs/{job}/plan
viewer    GET    /jobs/{job}/config
viewer    GET    /jobs/{job}/accumulators
viewer    GET    /jobs/{job}/metrics
viewer    GET    /jobs/{job}/exceptions
viewer    GET    /jobs/{job}/execution-result
viewer    GET    /jobs/{job}/jobmanager/config
viewer    GET    /jobs/{job}/jobmanager/environment
viewer    GET    /jobs/{job}/jobmanager/log-url
viewer    GET    /jobs/{job}/taskmanagers/{name}/log-url
viewer    GET    /jobs/{job}/vertices/{vertex}
viewer    GET    /jobs/{job}/vertices/{vertex}/subtasktimes
viewer    GET    /jobs/{job}/vertices/{vertex}/taskmanagers
viewer    GET    /jobs/{job}/vertices/{vertex}/accumulators
viewer    GET    /jobs/{job}/vertices/{vertex}/metrics
viewer    GET    /jobs/{job}/vertices/{vertex}/watermarks
viewer    GET    /jobs/{job}/vertices/{vertex}/jm-operator-metrics
viewer    GET    /jobs/{job}/vertices/{vertex}/backpressure
viewer    GET    /jobs/{job}/vertices/{vertex}/flamegraph
viewer    GET    /jobs/{job}/vertices/{vertex}/subtasks/accumulators
viewer    GET    /jobs/{job}/vertices/{vertex}/subtasks/metrics
viewer    GET    /jobs/{job}/vertices/{vertex}/subtasks/{subtask}
viewer    GET    /jobs/{job}/vertices/{vertex}/subtasks/{subtask}/metrics
viewer    GET    /jobs/{job}/vertices/{vertex}/subtasks/{subtask}/attempts/{attempt}
viewer    GET    /jobs/{job}/vertices/{vertex}/subtasks/{subtask}/attempts/{attempt}/accumulators
viewer    GET    /jobs/{job}/checkpoints
viewer    GET    /jobs/{job}/checkpoints/config
viewer    GET    /jobs/{job}/checkpoints/details/{checkpoint}
viewer    GET    /jobs/{job}/checkpoints/details/{checkpoint}/subtasks/{vertex}
viewer    GET    /jobs/{job}/checkpoints/{trigger}
viewer    GET    /jobs/{job}/savepoints/{trigger}
viewer    GET    /jobs/{job}/rescaling/{trigger}
viewer    GET    /jobs/{job}/rescales/{rest:path}
viewer    GET    /jobs/{job}/resource-requirements
viewer    GET    /savepoint-disposal/{trigger}
viewer    GET    /taskmanagers
viewer    GET    /taskmanagers/metrics
viewer    GET    /taskmanagers/{name}
viewer    GET    /taskmanagers/{name}/metrics
viewer    GET    /taskmanagers/{name}/thread-dump
viewer    GET    /taskmanagers/{name}/logs
viewer    GET    /taskmanagers/{name}/logs/{file}
viewer    GET    /taskmanagers/{name}/log
viewer    GET    /taskmanagers/{name}/stdout
viewer    GET    /taskmanagers/{name}/profiler
viewer    GET    /taskmanagers/{name}/profiler/{file}
viewer    PATCH  /jobs/{job}/clientHeartbeat
operator  PATCH  /jobs/{job}
operator  GET    /jobs/{job}/yarn-cancel
operator  GET    /jobs/{job}/yarn-stop
operator  POST   /applications/{application}/cancel
operator  POST   /jobs/{job}/savepoints
operator  POST   /jobs/{job}/stop
operator  POST   /jobs/{job}/checkpoints
operator  POST   /savepoint-disposal
operator  POST   /jobs
operator  PATCH  /jobs/{job}/rescaling
operator  PUT    /jobs/{job}/resource-requirements
operator  POST   /jobs/{job}/coordinators/{operator}
operator  DELETE /datasets/{dataset}
admin     DELETE /cluster
"""
"""Flink's, without prefix. Its dashboard cancels by GET."""


def _rules(*tables: str) -> Rules:
    found: dict[str, list[tuple[re.Pattern[str], Needs, str]]] = {}
    for line in "".join(tables).split("\n"):
        if line:
            needs, method, path = line.split()
            assert needs in _ORDER, line
            found.setdefault(method, []).append((re.compile(_pattern(path)), needs, path))
    return found


def _pattern(path: str) -> str:
    """As the routers read it."""
    parts = re.split(r"(\{[^}]*\})", path)
    return "".join((".*" if part.endswith(":path}") else "[^/]+") if part.startswith("{") else re.escape(part) for part in parts)


_OWN, _FLINK = _rules(TABLE, PAGE), _rules(FLINK)


def needed(method: str, path: str) -> Needs | None:
    """The least role for a request; None: it stands in no table. Where a path fits several rows the strictest counts."""
    asked = path_of(path)
    if _is_file(method, path, asked):
        return "viewer"
    rules = _OWN if asked is None else _FLINK
    found = [needs for pattern, needs, _ in rules.get(method, ()) if pattern.fullmatch(path if asked is None else asked)]
    return max(found, key=_ORDER.index, default=None)


def methods_of(path: str) -> list[str]:
    """What a path of ours may be asked by."""
    found = [method for method, rules in _OWN.items() if any(pattern.fullmatch(path) for pattern, _, _ in rules)]
    return sorted([*found, "HEAD"] if "GET" in found and not path.startswith(STREAMS) else found)


def route_of(method: str, path: str) -> str:
    """The row that a request is counted under: of few texts, whatever a client asks for."""
    asked = path_of(path)
    if _is_file(method, path, asked) or path == DASHBOARD:
        return FILES
    rules, prefix, of = (_OWN, "", path) if asked is None else (_FLINK, PREFIX, asked)
    found = (row for pattern, _, row in rules.get(method, ()) if pattern.fullmatch(of))
    return next((prefix + row for row in found), NO_ROUTE)


def _is_file(method: str, path: str, asked: str | None) -> bool:
    """Whether it is one of the dashboard's."""
    word = (asked or "").partition("/")[2].partition("/")[0]
    return path.startswith(DASHBOARD) and word not in FIRST_WORDS and method == "GET" and asked != "/openapi.json"


def changes(method: str, path: str) -> bool:
    """Whether such a request counts as a command. Flink's dashboard cancels by GET."""
    return method not in ("GET", "HEAD", "OPTIONS") or path.rstrip("/").endswith(("/yarn-cancel", "/yarn-stop"))
