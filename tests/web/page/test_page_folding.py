"""A graph of very many tasks on the page: what is a box of its own, what is drawn together, and that the picture has no cycle."""

from __future__ import annotations

import random
import re

import pytest
from starlette.testclient import TestClient

from services.web.page.folding import GROUPS, KEPT_MOST, folded
from services.web.page.layout import drawn

from .seed import EDGES, Cluster
from .test_page import NOW, said


def test_what_is_kept_stands_alone_and_the_rest_of_its_layers_together() -> None:
    upstream: dict[str, list[str]] = {f"read-{n}": [] for n in range(100)}
    upstream |= {f"join-{n}": [f"read-{n}"] for n in range(100)} | {"report": [f"join-{n}" for n in range(100)]}
    found = folded(upstream, ["join-3"])
    assert found.upstream == {"~0-0": [], "~1-1": ["~0-0"], "join-3": ["~0-0"], "report": ["~1-1", "join-3"]}
    assert (found.of["read-7"], found.of["join-3"], found.of["join-4"], found.of["report"]) == ("~0-0", "join-3", "~1-1", "report")


def test_a_long_chain_is_put_together_step_by_step() -> None:
    upstream: dict[str, list[str]] = {"t0": []} | {f"t{n}": [f"t{n - 1}"] for n in range(1, 200)}
    found = folded(upstream, ["t50", "t51"])
    names = list(found.upstream)
    assert names[:6] == ["~0-16", "~17-33", "~34-49", "t50", "t51", "~52-67"]
    assert all(found.upstream[reader] == [producer] for producer, reader in zip(names, names[1:], strict=False))


@pytest.mark.parametrize("seed", range(30))
def test_any_graph_stays_small_and_without_a_cycle(seed: int) -> None:
    draw = random.Random(seed)
    names = [f"t{n}" for n in range(draw.randrange(61, 400))]
    upstream = {name: draw.sample(names[:n], min(n, draw.randrange(3))) for n, name in enumerate(names)}
    kept = draw.sample(names, draw.randrange(40))
    found = folded(upstream, kept)
    assert {found.of[name] for name in kept[:KEPT_MOST]} == set(kept[:KEPT_MOST])
    assert len(found.upstream) <= 3 * KEPT_MOST + GROUPS + 1
    seen: set[str] = set()
    for box, read in found.upstream.items():
        assert set(read) <= seen, "producers come first, so there is no cycle"
        seen.add(box)
    assert {(found.of[each], found.of[name]) for name in names for each in upstream[name] if found.of[each] != found.of[name]} == {
        (each, box) for box, read in found.upstream.items() for each in read
    }
    picture = drawn(found.upstream, dict.fromkeys(found.upstream, 1))
    assert picture.boxes.keys() == found.upstream.keys()


def test_a_job_of_very_many_tasks_has_a_picture_and_each_task_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.web.page.shell.Shell.wall_ms", lambda self: NOW)
    cluster = Cluster(NOW)
    many = [(f"read-{n}", 1) for n in range(80)] + [(f"join-{n}", 2) for n in range(80)]
    for n in range(80):
        monkeypatch.setitem(EDGES, f"join-{n}", [(f"read-{n}", "hash")])
    cluster.accept("wide-1", "wide", NOW - 60_000, many)
    for n in range(80):
        cluster.attempt("wide-1", f"read-{n}", 0, ("task-manager-1", n % 4), NOW - 50_000, NOW - 40_000)
    cluster.attempt("wide-1", "join-7", 1, ("task-manager-1", 0), NOW - 30_000)
    with TestClient(cluster.app(), base_url="http://127.0.0.1") as web:
        html = web.get("/page/jobs/wide-1").text
        text = said(html)
        assert "what tells most is drawn alone, the rest together" in text
        boxes = re.findall(r'class="node [^"]*" href="\?task=([^&]*)&', html)
        assert set(boxes) == {"~0-0", "~1-1", "join-7"} or set(boxes) == {"~0-0", "~1-1", "join-7", "read-7"}
        assert "79 created" in text and "finished" in text
        assert html.count("<") // 2 < 2500, "nodes: those of tasks that are drawn together are listed where the group is chosen"
        group = said(web.get("/page/jobs/wide-1?task=~1-1").text)
        assert "Drawn together: 79 created. Choose one to see it alone." in group
        chosen = web.get("/page/jobs/wide-1?task=join-9").text
        assert "?task=join-9&" in "".join(re.findall(r'class="node [^"]*" href="[^"]*"', chosen)), "it is a box of its own now"
