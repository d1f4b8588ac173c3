"""The table of roles: every route of the three APIs stands in it, and nothing else is let through."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from services.web.access.roles import FLINK, PAGE, TABLE, changes, needed, route_of
from services.web.access.settings import Access
from tests.web.access.logins import login_of
from tests.web.page.seed import Cluster


def routes(app: Any) -> Iterator[tuple[str, str]]:
    for route in app.routes:
        contexts = route.effective_route_contexts() if hasattr(route, "effective_route_contexts") else [route]
        for each in contexts:
            yield from ((method, each.path) for method in each.methods or () if method != "HEAD")


def rows(*tables: str) -> set[tuple[str, str]]:
    found = [line.split()[1:] for line in "".join(tables).split("\n") if line]
    return {(method, re.sub(r"\{[^}:]*(:path)?\}", r"{\1}", path)) for method, path in found}


def test_every_route_has_a_row_and_every_row_a_route(tmp_path: Any) -> None:
    app = Cluster(1, 1).app(login=login_of(tmp_path))
    flink = next(each.kwargs["flink"] for each in app.user_middleware if "flink" in each.kwargs)()
    for of, tables in ((app, (TABLE, PAGE)), (flink, (FLINK,))):
        there = {(method, re.sub(r"\{[^}:]*(:path)?\}", r"{\1}", path)) for method, path in routes(of)}
        assert there - rows(*tables) == set(), "a route without a row: say in access/roles.py who may use it"
        assert rows(*tables) - there == set(), "a row without a route"


@pytest.mark.parametrize(("method", "path", "role"), [
    ("GET", "/healthz", "nobody"), ("GET", "/metrics", "viewer"), ("GET", "/api/v1/jobs/j", "viewer"), ("POST", "/api/v1/jobs", "operator"),
    ("POST", "/api/v1/jobs/j/cancel", "operator"), ("POST", "/api/v1/deadletters/3/redrive", "admin"), ("POST", "/page/redrive", "admin"),
    ("GET", "/page/block", "admin"), ("POST", "/page/unblock", "admin"), ("POST", "/page/shutdown", "admin"),
    ("GET", "/page/deregister", "admin"), ("POST", "/page/deregister", "admin"),
    ("POST", "/api/v1/shutdown", "admin"), ("POST", "/api/v1/deregister", "admin"),
    ("PUT", "/api/v1/blocklist/h", "admin"), ("GET", "/api/v1/blocklist", "viewer"),
    ("GET", "/jobs/j", "viewer"), ("GET", "/v1/jobs/j/", "viewer"), ("PATCH", "/v1/jobs/j", "operator"),
    ("PATCH", "/flink/jobs/j", "operator"),
    ("GET", "/jobs/j/yarn-cancel", "operator"), ("GET", "/flink/v1/jobs/j/yarn-cancel", "operator"), ("DELETE", "/cluster", "admin"),
    ("GET", "/flink/main.js", "viewer"), ("GET", "/flink/", "viewer"), ("POST", "/flink/main.js", None),
    ("GET", "/flink/jobs/j/unknown", None),
    ("GET", "/api/v1/nothing", None), ("POST", "/api/v1/overview", None), ("GET", "/api/v1/jobs/", None), ("GET", "//page", None),
    ("GET", "/api/v1/jobs/a/b/c/d/e/f/g", None), ("TRACE", "/api/v1/jobs", None), ("GET", "/main.js", None), ("GET", "/v1/main.js", None),
    ("GET", "/page/static/1/page.css", "nobody"), ("GET", "/page/static/1/../../jobs", None),
])  # fmt: skip
def test_who_is_needed(method: str, path: str, role: str | None) -> None:
    assert needed(method, path) == role


@pytest.mark.parametrize(("method", "path", "route"), [
    ("GET", "/api/v1/jobs/j", "/api/v1/jobs/{job}"), ("GET", "/jobs/overview", "/v1/jobs/overview"),
    ("GET", "/flink/v1/jobs/j/", "/v1/jobs/{job}"), ("GET", "/page/jobs/j", "/page/jobs/{job}"), ("GET", "/flink/main.js", "/flink/{file}"),
    ("GET", "/flink", "/flink/{file}"), ("DELETE", "/api/v1/jobs/j", "other"), ("GET", "/jobs/j/x/y", "other"), ("GET", "/%2e", "other"),
    ("OPTIONS", "/api/v1/jobs", "other"),
])  # fmt: skip
def test_a_request_is_counted_under_its_row(method: str, path: str, route: str) -> None:
    assert route_of(method, path) == route


def test_what_counts_as_a_command() -> None:
    assert changes("GET", "/flink/jobs/j/yarn-cancel"), "Flink's dashboard cancels by GET"
    assert changes("POST", "/page/login") and changes("PATCH", "/jobs/j") and changes("DELETE", "/nothing")
    assert not changes("GET", "/page/submit") and not changes("HEAD", "/jobs/j")
    asked = [line.split() for line in FLINK.split("\n") if line]
    assert [path for role, method, path in asked if method == "GET" and role != "viewer" and not changes(method, path)] == []


def test_without_a_login_access_has_no_limits_of_a_client() -> None:
    usual = Access.usual()
    assert (usual.has_login, usual.requests_per_s, usual.streams) == (False, None, None)
