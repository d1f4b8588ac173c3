"""A running cluster goes over to another build and back: no job is lost, none is run again, no attempt notices."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.local.stack import Options, Stack
from millrace import __version__
from millrace.client import Millrace
from tests.chaos.task_managers import TaskManagers
from tests.end_to_end.builds import OtherBuild, TwoBuilds, copy_with_version
from tests.end_to_end.running import Watched, until
from tests.task_manager.timed import TWO_AT_ONCE, query

SCOPES = {"dispatcher", "resource-manager", "job-master/0", "job-master/1"}


def job(seconds: float) -> dict[str, object]:
    return {"name": "timed", "vertices": {"query": {"sql": query(seconds)}}}


@pytest.mark.long
def test_an_upgrade_and_a_downgrade_with_jobs_running(stacks_home: Path, tmp_path: Path) -> None:
    stack = Stack("upgraded")
    facts = stack.up(Options(task_managers=0, shards=2), print, foreground=True)
    try:
        with (
            TaskManagers(stack, 2, 8) as task_managers,
            OtherBuild(stack, copy_with_version(tmp_path / "code", "99.0")) as other,
            Millrace(facts["kafka_bootstrap"], timeout_s=60) as client,
        ):
            builds = TwoBuilds(stack, other)
            until("another build that waits for every scope", builds.is_settled)
            held = [Watched(client.submit(job(3_600))) for _ in range(8)]
            for each in held:
                each.running()
            short, seen = [], [versions(builds)]
            for _ in range(2):
                builds.end_leaders()
                short += [client.begin_submit(job(0.05)) for _ in range(20)]
                seen.append(until("the other build leads, and the first one waits", lambda: handed_over(builds, seen[-1])))
            old, new = dict.fromkeys(SCOPES, __version__), dict.fromkeys(SCOPES, "99.0")
            assert seen == [old, new, old]
            ends = [Watched(each.result()) for each in short]
            assert [each.end["type"] for each in ends] == ["JobFinished"] * 40
            assert [each.attempts("RUNNING") for each in ends + held] == [[("query", 0, 1)]] * 48, "none runs again"
            assert not (task_managers.lives / TWO_AT_ONCE).exists()
            for each in held:
                each.job.cancel()
                assert each.end["type"] == "JobCanceled"
    finally:
        stack.down(purge=True)


def versions(builds: TwoBuilds) -> dict[str, str]:
    """Scope -> version of its leader."""
    return {scope: build.partition("+")[0] for scope, (build, _) in builds.leaders().items()}


def handed_over(builds: TwoBuilds, before: dict[str, str]) -> dict[str, str]:
    """The versions, when each scope has another one than before; {} until then. Between two looks all leaders may go."""
    now = versions(builds)
    another = now.keys() == before.keys() and not now.items() & before.items()
    return now if another and builds.is_settled() else {}
