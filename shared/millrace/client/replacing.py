"""Files of a stored graph, in place of which others go."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import errors


def replaced(graph: Mapping[str, Any], files: Mapping[str, Path | bytes]) -> tuple[dict[str, Any], dict[str, Path | bytes]]:
    """(The graph with these modules, what is to be uploaded). files: name of a module -> what takes its place. Raises Invalid for one that
    the graph has not."""
    modules = [dict(module) for module in graph.get("modules", ())]
    names = [module["name"] for module in modules if module.get("kind") != "env"]
    uploads: dict[str, Path | bytes] = {}
    for name, content in files.items():
        if name not in names:
            known = f"there are: {', '.join(names)}" if names else "there are none"
            raise errors.Invalid(f"{name} is no file of this job; {known}")
        sha256 = hashlib.sha256(content if isinstance(content, bytes) else content.read_bytes()).hexdigest()
        uploads[sha256] = content
        for module in modules:
            if module["name"] == name and module.get("kind") != "env":
                module["sha256"] = sha256
    return {**graph, **({"modules": modules} if modules else {})}, uploads
