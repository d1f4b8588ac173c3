"""`python -m tests.simulation.mutants [NAME ...]`: kills mutants, and writes docs/mutants.md."""

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.simulation.mutants import MUTANTS
from tests.simulation.mutants.running import DOCUMENT, ROOT, SEEDS_MOST, listed, merged, run_mutants


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="make mutants (python -m tests.simulation.mutants)",
        description=f"Breaks a rule of the design at a time and runs the simulator until a seed fails, at most {SEEDS_MOST}."
        " Exits with 1 when a mutant survives. Writes what came of it into docs/mutants.md.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutants with these words in their names (default: all)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="mutants at once (default: one a core)")
    parser.add_argument("--seeds", type=int, default=SEEDS_MOST, help="seeds at most")
    parser.add_argument("--missing", action="store_true", help="only those that the table does not have yet")
    options = parser.parse_args(arguments)
    chosen = [each for each in MUTANTS.values() if not options.names or any(n in each.name for n in options.names)]
    if not chosen:
        parser.error(f"no mutant is called so; there are: {', '.join(MUTANTS)}")
    text = DOCUMENT.read_text() if DOCUMENT.exists() and (options.names or options.missing) else ""
    if options.missing:
        there = [verdict.mutant for verdict in listed(text)]
        chosen = [each for each in chosen if each not in there]
    verdicts, began = [], time.monotonic()
    for verdict in run_mutants(chosen, options.workers, options.seeds):
        verdicts.append(verdict)
        DOCUMENT.write_text(merged(text, verdicts))
        last = f"killed by seed {verdict.seeds - 1}: {verdict.broken}"
        came = f"survives {verdict.seeds} seeds" if verdict.survives else last
        print(f"{len(verdicts):3} of {len(chosen)}  [{verdict.mutant.rule}] {verdict.mutant.name}: {came}", flush=True)
    survivors = [verdict.mutant.name for verdict in verdicts if verdict.survives]
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} killed in {time.monotonic() - began:.0f} s")
    print(f"wrote {DOCUMENT.relative_to(ROOT)}")
    return int(bool(survivors))


if __name__ == "__main__":
    sys.exit(main())
