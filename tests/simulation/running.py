"""Many trials: each in a process of its own kind, with what came of it."""

from __future__ import annotations

import gc
import multiprocessing
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.trial import Trial, quiet_logs

COMMAND = "make simulate SEEDS={seed}"


@dataclass(frozen=True)
class Result:
    """What came of one seed. `hash`: of all that happened; "" when something did not hold, which `failure` says. `trace`: (ms since the
    start, what was done)."""

    seed: int
    hash: str
    records: int
    jobs: int
    faults: dict[str, int]
    trace: list[tuple[int, str]] = field(default_factory=list)
    failure: str | None = None

    @property
    def command(self) -> str:
        """Runs this seed again, with its trace."""
        return COMMAND.format(seed=self.seed)


def seeds_of(text: str) -> list[int]:
    """`17`, `0-99`, `3,10-12`. Raises ValueError."""
    found: dict[int, None] = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if match is None:
            raise ValueError(f"{part!r} is neither a seed (17) nor a range of seeds (0-99)")
        first = int(match[1])
        last = int(match[2]) if match[2] else first
        if last < first:
            raise ValueError(f"{part!r} ends before it begins")
        found.update(dict.fromkeys(range(first, last + 1)))
    return list(found)


def run_seed(seed: int, **drawn: Any) -> Result:
    """One trial. What does not hold, and whatever else is raised, is the result's `failure`. `drawn`: what the seed does not draw."""
    quiet_logs()
    gc.collect()
    gc.disable()  # a trial makes little garbage in circles, and much that stays until its audit
    try:
        return run_trial(Trial(seed, **drawn))
    finally:
        gc.enable()


def run_trial(trial: Trial) -> Result:
    """As `run_seed`."""
    hashed, failure = "", None
    try:
        hashed = trial.run()
    except Exception as broken:
        failure = str(broken)
    folded = trial.cluster.world.book.folded
    return Result(trial.seed, hashed, folded, len(trial.jobs), trial.done.done, trial.done.trace, failure)


def run_seeds(seeds: Iterable[int], workers: int) -> Iterator[Result]:
    """Results as they come."""
    if workers == 1:
        yield from map(run_seed, seeds)
        return
    with multiprocessing.get_context("fork").Pool(workers, gc.freeze) as pool:
        yield from pool.imap_unordered(run_seed, seeds)
