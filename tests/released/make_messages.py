"""Prints the schemas of what 0.1.0 said between TaskManagers and others, by its own code: in a checkout of it

    python PATH_TO_THIS_FILE > PATH_TO_THE_FILE
"""

from __future__ import annotations

import json
import sys

sys.path.insert(0, ".")

from millrace.core.messages import LINKS
from millrace.core.messages.records import Forked, Hello


def main() -> None:
    found: dict[str, dict[str, object]] = {"heard": {}, "said": {}}
    for (sender, receiver), bodies in LINKS.items():
        for body in (*bodies, Hello, Forked):
            if "task-manager" in (sender, receiver):
                found["said" if sender == "task-manager" else "heard"][body.__name__] = body.model_json_schema()
    print(json.dumps(found, sort_keys=True, separators=(",", ":")))


if __name__ == "__main__":
    main()
