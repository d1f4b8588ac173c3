"""`python -m tests.simulation 0-99`: whole clusters under faults drawn from seeds; what is broken is told with its seed."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

from tests.simulation.running import Result, run_seeds, run_trial, seeds_of
from tests.simulation.trial import Trial, quiet_logs
from tests.transcripts.flow import Flow

ROOT = Path(__file__).parents[2]
SAID_EVERY_S = 2.0
HASH_SEEDS = ("1", "2")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="make simulate SEEDS=... (python -m tests.simulation)",
        description="Runs a cluster in one process for each seed: the real machines, replicas and shells over Kafka, etcd,"
        " storage and slots in memory. The seed draws size, jobs and faults. Checks the invariants; exits with 1 when one is broken.",
    )
    made.add_argument("seeds", help="17, 0-99, or 3,10-12; a single one is told with all that was done to it")
    made.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (default: one a core)")
    made.add_argument("--repeat", action="store_true", help="run each seed twice, with other hashes of Python: all must be the same")
    made.add_argument("--records", action="store_true", help="of a single seed: also the records that flowed, one a line")
    made.add_argument("--json", action="store_true", help="one line of JSON a seed and nothing else")
    return made


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    quiet_logs()
    try:
        seeds = seeds_of(options.seeds)
    except ValueError as wrong:
        parser().error(str(wrong))
    if options.json:
        results = run_seeds(seeds, options.workers)
        return max([_json_line(result) for result in results], default=0)
    if len(seeds) == 1 and not options.repeat:
        return one(seeds[0], options.records)
    began = time.monotonic()
    if options.repeat:
        first, second = (list(_told(_elsewhere(options, hash_seed), len(seeds))) for hash_seed in HASH_SEEDS)
        results, differ = first + second, differing(first, second)
    else:
        results, differ = list(_told(run_seeds(seeds, options.workers), len(seeds))), []
    print(summary(results, time.monotonic() - began))
    for seed in differ:
        print(f"seed {seed} is not the same when it is run again: make simulate SEEDS={seed},{seed} REPEAT=1")
    if options.repeat and not differ:
        print(f"{len(seeds)} of {len(seeds)} seeds are the same when they are run again")
    return int(bool(differ) or any(result.failure for result in results))


def one(seed: int, records: bool) -> int:
    """One seed with its trace."""
    trial = Trial(seed)
    flow, begin_ms = Flow(trial.cluster.world), trial.cluster.world.clock.now_ms()
    result = run_trial(trial)
    lines = list(result.trace)
    if records:
        lines += [(stamp_ms - begin_ms, f"    {line}") for stamp_ms, line in flow.stamped()]
    print("\n".join(f"{at_ms:6} ms: {line}" for at_ms, line in sorted(lines, key=lambda line: line[0])))
    print(f"seed {seed}: {result.records} records, {result.jobs} jobs, {_faults([result])}")
    print(result.failure or f"all held: {result.hash}")
    return int(result.failure is not None)


def summary(results: list[Result], took_s: float) -> str:
    """The figures, and each failure with the command that runs it again."""
    records = sum(result.records for result in results)
    failed = [result for result in results if result.failure is not None]
    least = min((sum(result.faults.values()) for result in results), default=0)
    lines = [
        f"{len(results)} trials, {sum(result.jobs for result in results)} jobs, {records:,} records folded in {took_s:.0f} s"
        f" ({60 * records / max(took_s, 0.001):,.0f} a minute)",
        f"faults: {_faults(results)} (at least {least} a trial)",
        f"failures: {len(failed)}",
    ]
    for result in failed:
        lines += [f"  {brief(result)}", f"    {result.command}"]
    return "\n".join(lines)


def brief(result: Result) -> str:
    """What was broken, in a line."""
    return (result.failure or "").partition("\n")[0][:300]


def differing(first: Iterable[Result], second: Iterable[Result]) -> list[int]:
    """The seeds that did not lead to the same bytes in both runs."""
    hashes = {result.seed: (result.hash, result.records) for result in first}
    return sorted(result.seed for result in second if hashes[result.seed] != (result.hash, result.records))


def _faults(results: list[Result]) -> str:
    kinds: Counter[str] = Counter()
    for result in results:
        kinds.update(result.faults)
    return f"{sum(kinds.values())}: " + ", ".join(f"{kind.replace('_', ' ')} {n}" for kind, n in sorted(kinds.items()))


def _told(results: Iterable[Result], count: int) -> Iterator[Result]:
    """The same, with a line of progress now and then."""
    said = time.monotonic()
    records = failures = 0
    for done, result in enumerate(results, 1):
        records, failures = records + result.records, failures + (result.failure is not None)
        if result.failure is not None:
            print(f"{brief(result)}\n  {result.command}", file=sys.stderr, flush=True)
        if time.monotonic() - said > SAID_EVERY_S and done < count:
            said = time.monotonic()
            print(f"{done} of {count} seeds, {records:,} records, {failures} failures", file=sys.stderr, flush=True)
        yield result


def _elsewhere(options: argparse.Namespace, hash_seed: str) -> Iterator[Result]:
    """The results of a process whose hashes are those of `hash_seed`."""
    command = [sys.executable, "-m", "tests.simulation", options.seeds, "--json", "--workers", str(options.workers)]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    with subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield Result(**json.loads(line))


def _json_line(result: Result) -> int:
    print(json.dumps(asdict(result)), flush=True)
    return int(result.failure is not None)


if __name__ == "__main__":
    sys.exit(main())
