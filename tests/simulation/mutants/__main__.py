"""`python -m tests.simulation.mutants [NAME ...]`: kills mutants, and writes docs/mutants.md when all were run."""

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.simulation.mutants import MUTANTS
from tests.simulation.mutants.running import DOCUMENT, ROOT, SEEDS_MOST, document, run_mutants


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="make mutants (python -m tests.simulation.mutants)",
        description=f"Breaks a rule of the design at a time and runs the simulator until a seed fails, at most {SEEDS_MOST}."
        " Exits with 1 when a mutant survives. All of them: writes docs/mutants.md.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutants with these words in their names (default: all)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="mutants at once (default: one a core)")
    parser.add_argument("--seeds", type=int, default=SEEDS_MOST, help="seeds at most")
    options = parser.parse_args(arguments)
    chosen = [each for each in MUTANTS.values() if not options.names or any(n in each.name for n in options.names)]
    if not chosen:
        parser.error(f"no mutant is called so; there are: {', '.join(MUTANTS)}")
    verdicts, began = [], time.monotonic()
    for verdict in run_mutants(chosen, options.workers, options.seeds):
        verdicts.append(verdict)
        came = f"killed by seed {verdict.seeds - 1}: {verdict.broken}" if verdict.seeds else f"survives {options.seeds} seeds"
        print(f"{len(verdicts):3} of {len(chosen)}  [{verdict.mutant.rule}] {verdict.mutant.name}: {came}", flush=True)
    survivors = [verdict.mutant.name for verdict in verdicts if not verdict.seeds]
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} killed in {time.monotonic() - began:.0f} s")
    if not options.names and options.seeds == SEEDS_MOST:
        DOCUMENT.write_text(document(verdicts))
        print(f"wrote {DOCUMENT.relative_to(ROOT)}")
    return int(bool(survivors))


if __name__ == "__main__":
    sys.exit(main())
