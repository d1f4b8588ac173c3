"""docs/queue.md: its settings and its graph are taken, and its picture of the queue is what comes of them."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from millrace.core.jobgraph.compile import PLAN_TASK, compile_graph
from millrace.core.jobgraph.model import JobGraph
from millrace.core.jobgraph.validate import validate
from millrace.core.machine import Configured
from millrace.core.profile import Profile
from services.resource_manager.core.placement import PLACEMENTS
from services.resource_manager.settings import ResourceManagerSettings, TenantLimits
from tests.core.of_resource_manager import TM_B, Driver
from tests.core.of_workers import grants
from tests.core.test_resource_manager_tenants import driver

TEXT = (Path(__file__).parents[2] / "docs" / "queue.md").read_text()
BLOCKS = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)]
GRAPHS = [block for block in BLOCKS if "vertices" in block]
UPLOADED = {"sha256": "0" * 64}


def test_its_graphs_name_a_tenant_and_want_their_slots_together() -> None:
    found = [validate({**block, "modules": [dict(UPLOADED, name=name) for name in block.get("modules", ())]}) for block in GRAPHS]
    assert all(isinstance(each, JobGraph) for each in found), found
    assert [(each.tenant, each.together) for each in found] == [("research", False), ("", False), ("", True)]
    assert compile_graph(found[1]).profiles == {PLAN_TASK: Profile(2048), "fitted": Profile(2048, 4, (("gpu", 1),))}


def test_its_settings_are_those_of_a_resource_manager() -> None:
    (placed,) = (block for block in BLOCKS if "slots_placement" in block.get("resource_manager", {}))
    assert ResourceManagerSettings(**placed["resource_manager"]).slots_placement == "spread"
    (block,) = (block for block in BLOCKS if "tenants" in block.get("resource_manager", {}))
    read = ResourceManagerSettings(**block["resource_manager"])
    told = {"research": {"slots": 2, "weight": 1}, "reports": {"weight": 3}, "*": {"slots": 8, "weight": 1}}
    assert read.deciding()["tenants"] == told


def test_its_time_outs_are_the_defaults() -> None:
    (block,) = (block for block in BLOCKS if "job_timeout_ms" in block.get("resource_manager", {}))
    assert block["resource_manager"] == {name: getattr(ResourceManagerSettings(), name) for name in block["resource_manager"]}


def test_its_queue_is_what_these_settings_lead_to() -> None:
    (block,) = (block for block in BLOCKS if "tenants" in block.get("resource_manager", {}))
    cluster = driver(4096, 4096)
    cluster.register(TM_B, memory_mb=(4096, 4096))
    limits = {name: TenantLimits.model_validate(each) for name, each in block["resource_manager"]["tenants"].items()}
    cluster.core(Configured({"tenants": {name: each.model_dump(exclude_none=True) for name, each in limits.items()}}))
    wants = (
        ("explore-1", "research", 2, None), ("hourly-1", "", 2, None), ("explore-2", "research", 1, None), ("hourly-3", "", 1, None),
        ("model-1", "research", 1, 65536), ("daily-1", "reports", 1, None),
    )  # fmt: skip
    for since_ms, (job, tenant, slots, memory_mb) in enumerate(wants):
        cluster.ask(job, slots, tenant=tenant, since_ms=since_ms, memory_mb=memory_mb)
    found = {each.body.job: (each.body.position, each.body.reason) for each in cluster.tick()}
    shown = re.findall(r"^    (\d*) +([a-z]+-\d) +\w+ +[-\d]+ [:\d]+ +(?:[\d.]+ s)? +(\S.*)$", TEXT, re.MULTILINE)
    assert {job: (int(place) if place else None, why) for place, job, why in shown} == found


def test_where_it_says_that_slots_are_granted_they_are() -> None:
    shown = re.findall(r"^    ((?:warmest|spread)(?:, \w+)*) +tm-1 (\d), tm-2 (\d), tm-3 (\d)$", TEXT, re.MULTILINE)
    found = {placement: [int(each) for each in counts] for names, *counts in shown for placement in names.split(", ")}
    assert set(found) == set(PLACEMENTS)
    for placement, counts in found.items():
        cluster = Driver().declared()
        cluster.core(Configured({"slots_placement": placement}))
        for number in (1, 2, 3):
            cluster.register(f"task-manager/tm-{number}", memory_mb=(1024,) * 3)
        given = [name for _, name in grants(cluster.ask("j", 6))]
        assert [given.count(f"tm-{number}") for number in (1, 2, 3)] == counts


def test_what_it_shows_of_a_gang_is_what_one_is_told() -> None:
    cluster = driver(1024, 1024)
    cluster.register(TM_B, memory_mb=(1024, 1024))
    cluster.ask("single")
    cluster.ask("training-1", 4, together=True, since_ms=1)
    (told,) = cluster.tick()
    assert f"{told.body.reason} (number {told.body.position})\n" in TEXT
