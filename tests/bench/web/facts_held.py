"""What facts cost in memory that the web service holds, and whether it stays so when older jobs are forgotten for new ones."""

from __future__ import annotations

import time

from ..figures import Row, Run
from .served import Publisher, Web, web_alone

GB_MOST = 1.0
FLAT_MOST = 1.1
JOB_TASKS = (("read", 16), ("join", 12), ("report", 4))
FACTS = 3 + 3 * sum(n for _, n in JOB_TASKS)
"""Of one such job: it is accepted, runs and finishes; each of its attempts is deployed, runs and finishes."""
REST_S = 5.0


def measure(run: Run) -> None:
    """As many ended jobs as are kept, then twice as many again in their place. The figure is what the process has grown by, for a million
    facts; what of it a process needs for itself, whatever it holds, does not count."""
    jobs = run.count(400, 60)
    with web_alone("held", retained=jobs) as web:
        facts = Publisher(web.kafka)
        _end(web, facts, run, range(20))  # what is made at the first use is made
        idle = _resting(web)
        _end(web, facts, run, range(20, jobs))
        held = _resting(web)
        _end(web, facts, run, range(jobs, 2 * jobs))
        second = _resting(web)
        _end(web, facts, run, range(2 * jobs, 3 * jobs))
        later = _resting(web)
    gb = (held - idle) / 1000 / ((jobs - 20) * FACTS) * 1e6
    run.samples["held"] = {"idle_mb": idle, "held_mb": held, "second_mb": second, "later_mb": later, "jobs": jobs, "facts": jobs * FACTS}
    run.rows.append(Row(
        "the web service's memory for a million facts held", 1, f"{gb:.2f} GB", f"{held:.0f} MB with {jobs * FACTS:,}",
        f"idle {idle:.0f} MB", "", f"at most {GB_MOST:.0f} GB", gb <= GB_MOST,
    ))  # fmt: skip
    flat = later / held
    run.rows.append(Row(
        "the same after as many jobs again, twice", 1, f"{later:.0f} MB", f"{second:.0f} MB between", f"held {held:.0f} MB",
        f"{flat:.2f} x", f"at most {FLAT_MOST} x", flat <= FLAT_MOST,
    ))  # fmt: skip


def _end(web: Web, facts: Publisher, run: Run, jobs: range) -> None:
    for number in jobs:
        facts.begin(f"held-{number}", JOB_TASKS, ended=True)
        facts.end(f"held-{number}")
    facts.flush()
    web.await_folded(facts.said, run.say)


def _resting(web: Web) -> float:
    time.sleep(REST_S)
    return web.resident_mb()
