"""Runs mutants until a seed kills each, and writes the table of it."""

from __future__ import annotations

import gc
import multiprocessing
import re
import resource
import statistics
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from tests.simulation.mutants.here import SCENES, SCENES_OF, drawn
from tests.simulation.mutants.registry import MUTANTS, Mutant
from tests.simulation.running import run_seed
from tests.simulation.trial import quiet_logs

UNFIT = re.compile(r"^[^\n]*?(TypeError|AttributeError|NameError): ")  # the code has changed under the mutant: it shows nothing
ROOT = Path(__file__).parents[3]
DOCUMENT = ROOT / "docs" / "mutants.md"
SEEDS_MOST = 200
MEMORY_MOST = 4 << 30  # a seed has 200 MB: who goes round in circles may keep each round
SEED_MOST_S = 200.0  # of one seed, which takes about one on a free core: a mutant may go round in circles

HEAD = """# Mutants

For those who change the simulator or a rule. `make mutants` removes or changes one rule of the design in a process of its own. It runs the
simulator until a seed fails: that seed kills the mutant.

- **seeds**: how many were run until one killed it, from seed 0 on. A seed that fails without the mutant as well does not count.
- **broken**: the invariant or the rule that this seed reported ([simulation.md](simulation.md), [rules.md](rules.md)).
- The trials are small. Most have the faults and the clusters in which the rule is needed (`tests/simulation/mutants/here.py`).
- A mutant that survives is a rule that nobody needs, or a check that is missing.

## Guards without a mutant

Another guard has the same effect, so that both would have to be removed:

- A JobMaster gives up the slots of a TaskManager that sends from a new incarnation. The ResourceManager notifies it as well.
- The Dispatcher remembers ended jobs. etcd has those that it forgot.
- A JobMaster compares the number of an attempt in a slot. Messages of a TaskManager arrive in order, and a slot takes no second attempt
  before it has reported the end of the first.
- A JobMaster declares its jobs to a reborn Dispatcher. That one recovers them from etcd, starts each again, and gets an answer.
- A TaskManager answers a task for a slot that is gone, and a cancel of an unknown attempt. It has sent FailSlot for such a slot before,
  and the JobMaster has given up both by then.
- A TaskManager refuses a second job for a slot that is held, and the ResourceManager compares the allocation that ended. No slot is granted
  while it is held (each trial checks that), and messages about a slot arrive in order.
- The Dispatcher takes the ending that etcd has as its own. Its writes are fenced, and it stores one ending.
- Effects on one key wait for each other. Each of today's effects on a key follows from the outcome of the one before.
- A replica begins at the first offset of its generation. Before it there is no election of that generation, and nothing counts before one.
  Without that, too, nothing would count: messages name the life they are for, and outcomes the generation of their effect. Copied requests
  continue a chain that has not begun.
- A leader resigns when it does not read its own ticks back (`READ_BACK_MS`). A standby that can write takes the key long before.
- The id of a TaskManager is not given again while it is being stopped. Effects on one key wait for each other, and so a start with that id
  for the stop.
- The ResourceManager has a TaskManager stopped that it has declared lost. Its id is given again. The provider then has one that runs and
  does not register, and that one is stopped in time. If the id is not given again, the next list has one that nobody asked for.

## Mutants and what killed them
"""


@dataclass(frozen=True)
class Verdict:
    """`seeds`: how many were run until one killed it, or, where it `survives`, in all; `broken`: what the last one broke."""

    mutant: Mutant
    seeds: int
    broken: str = ""

    @property
    def survives(self) -> bool:
        return not self.broken


def run_mutants(mutants: Iterable[Mutant], workers: int, seeds: int = SEEDS_MOST) -> Iterator[Verdict]:
    """Each in processes of its own; verdicts in the order of the mutants."""
    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(lambda mutant: run_mutant(mutant, seeds), mutants)


def run_mutant(mutant: Mutant, seeds: int = SEEDS_MOST) -> Verdict:
    """Until a seed kills it: something that must hold does not, or nothing goes on any more."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_live, args=(mutant.name, seeds, there))
    process.start()
    there.close()
    done = 0
    try:
        while done < seeds:
            if not here.poll(SEED_MOST_S):
                return Verdict(mutant, done + 1, "it does not come to an end")
            failure = here.recv()
            done += 1
            if failure is not None and UNFIT.search(failure):
                print(f"{mutant.name} does not fit the code any more: {failure.partition(chr(10))[0]}", flush=True)
            elif failure is not None and holds(mutant, done - 1):
                return Verdict(mutant, done, brief(failure))
    except EOFError:
        process.join()
        raise RuntimeError(f"{mutant.name}: the process of seed {done} ended with {process.exitcode}") from None
    finally:
        process.kill()
        process.join()
        here.close()
    return Verdict(mutant, seeds)


def _live(name: str, seeds: int, results: Connection) -> None:
    gc.freeze()  # to collect what was the parent's, such as a Kafka client without its threads, ends this process
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MOST, MEMORY_MOST))
    mutant = MUTANTS[name]
    mutant.apply()
    for seed in range(seeds):
        results.send(run(mutant, seed))


def run(mutant: Mutant, seed: int) -> str | None:
    """A seed of a mutant: what did not hold."""
    scene = SCENES.get(mutant.rule)
    if scene is None or not mutant.apply.__module__.endswith(SCENES_OF):
        return run_seed(seed, **drawn(mutant, seed)).failure
    quiet_logs()
    try:
        scene(seed)
    except Exception as failure:
        return f"seed {seed}: {type(failure).__name__}: {failure}"
    return None


def holds(mutant: Mutant, seed: int) -> bool:
    """Whether all holds in that seed without the mutant: else it shows nothing about it."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)

    def live() -> None:
        gc.freeze()
        there.send(run(mutant, seed))

    process = context.Process(target=live)
    process.start()
    there.close()
    try:
        failure = here.recv()
    finally:
        process.join()
        here.close()
    if failure is not None:
        print(f"{mutant.name}, seed {seed} fails without a mutant: {failure.partition(chr(10))[0]}", flush=True)
    return failure is None


def brief(failure: str) -> str:
    """The invariant that was broken, or what kind of error came of it."""
    what = failure.partition("\n")[0].partition(": ")[2]
    kind, _, rest = what.partition(": ")
    invariant = re.match(r"I\d+|\[R\d+\]", rest)
    if kind == "Stuck":
        return "I10"
    if invariant is not None:
        return invariant[0] if rest.startswith("I") else f"rule {invariant[0][2:-1]}"
    return "an answer is missing or doubled" if rest.startswith("request ") else f"a process ends: {kind}"


def document(verdicts: Iterable[Verdict]) -> str:
    """docs/mutants.md."""
    rows = sorted(verdicts, key=lambda verdict: (verdict.mutant.rule, verdict.mutant.name))
    needed = [verdict.seeds for verdict in rows if not verdict.survives]
    lines = [
        HEAD,
        f"{len(needed)} of {len(rows)} mutants are killed, half of them within {_seeds(statistics.median_low(needed or [0]))}.\n",
        "| rule | mutant | replaced | why it must be seen | broken | seeds |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for each in rows:
        seeds = f"survives {each.seeds}" if each.survives else str(each.seeds)
        what = each.mutant
        lines.append(f"| {what.rule} | {what.name} | `{what.place}` | {what.why} | {each.broken} | {seeds} |")
    return "\n".join(lines) + "\n"


def _seeds(count: int) -> str:
    return f"{count} seed{'s' * (count != 1)}"


def listed(text: str) -> list[Verdict]:
    """The verdicts in a text of `document`, of mutants that there still are."""
    rows = re.findall(r"^\| \d+ \| ([^|]+?) \| .*? \| ([^|]*?) \| (?:survives )?(\d+) \|$", text, re.MULTILINE)
    return [Verdict(MUTANTS[name], int(seeds), broken) for name, broken, seeds in rows if name in MUTANTS]


def merged(text: str, verdicts: Iterable[Verdict]) -> str:
    """The document with these verdicts instead of older ones on the same mutants."""
    return document({each.mutant.name: each for each in (*listed(text), *verdicts)}.values())


