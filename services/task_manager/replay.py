"""`python -m services.task_manager.replay FILE`: what a TaskManager did, folded again from its journal."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from pydantic import TypeAdapter

from millrace.core.fold import Diverged

from .core.state import State
from .journal import replay


def main(argv: list[str] | None = None) -> int:
    """0: replayed to the same words, 1: it says something else (another build, or a machine that is not pure), 2: no journal."""
    parser = argparse.ArgumentParser(
        prog="python -m services.task_manager.replay",
        description="Folds a part of a TaskManager's journal again and prints the state that it leads to, as JSON. "
        "Every tick is compared with what was said then.",
    )
    parser.add_argument("file", type=Path, help="<work folder>/<id>/journal/<incarnation>.<part>.jsonl")
    file = parser.parse_args(argv).file
    try:
        folded = replay(file)
    except Diverged as error:
        print(f"not the same: {error}", file=sys.stderr)
        return 1
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    state = TypeAdapter(State).dump_python(folded.state, mode="json")
    facts = {"incarnation": folded.generation, "records": folded.next_offset, "digest": folded.digest, "state": state}
    print(json.dumps(facts, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
