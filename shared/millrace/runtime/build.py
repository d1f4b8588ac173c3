"""The name of this build: which code folds."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterable
from pathlib import Path

import pydantic

import millrace
from millrace.core.machine import Machine


def build_of(machines: Iterable[Machine]) -> str:
    """The version, and a digest of all code that decides what these machines' records lead to, and of what writes it as JSON: two builds of
    one name fold alike [R27]."""
    cores = {Path(millrace.__file__).parent / "core", *(Path(inspect.getfile(type(each))).parent for each in machines)}
    mixed = hashlib.blake2b(f"pydantic {pydantic.VERSION} ".encode(), digest_size=4)
    # By names that are the same wherever it is installed: a checkout has its packages in other folders than a wheel.
    files = {path.relative_to(core.parent.parent).as_posix(): path for core in cores for path in core.rglob("*.py")}
    for name in sorted(files):
        mixed.update(f"{name} ".encode() + files[name].read_bytes())
    return f"{millrace.__version__}+{mixed.hexdigest()}"
