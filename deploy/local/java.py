"""Finding the Java that Kafka and Spark run on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deploy.local.errors import LocalError

OLDEST = 17
ADVICE = f"install Java {OLDEST} or newer (a JDK or JRE) and put it on PATH, or point JAVA_HOME at it"


@dataclass(frozen=True)
class Java:
    """A Java that was run: its program, its feature version (17, 21, ...) and what ``java -version`` said."""

    path: Path
    version: int
    text: str


def find_java(environ: Mapping[str, str] | None = None) -> Java:
    """The Java of JAVA_HOME, else the one on PATH; a ``LocalError`` if there is none or it is too old.

    A JAVA_HOME that holds no usable Java is an error and not skipped: Spark's scripts would follow it too.
    """
    environ = os.environ if environ is None else environ
    home = environ.get("JAVA_HOME")
    if home:
        path = Path(home) / "bin" / "java"
        if not path.is_file():
            raise LocalError(f"JAVA_HOME is {home}, but there is no {path}: {ADVICE}, or unset JAVA_HOME.")
    else:
        found = shutil.which("java", path=environ.get("PATH", ""))
        if found is None:
            raise LocalError(f"No Java was found (JAVA_HOME is not set, no java on PATH): {ADVICE}.")
        path = Path(found)
    text = _ask(path)
    version = _feature_version(text)
    if version is None:  # macOS ships a java that only says where to get one
        raise LocalError(f"{path} is no usable Java: {ADVICE}.", detail=text)
    if version < OLDEST:
        raise LocalError(f"Java {version} at {path} is too old: {ADVICE}.")
    return Java(path, version, text)


def _ask(path: Path) -> str:
    try:
        done = subprocess.run([str(path), "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (done.stderr + done.stdout).strip()


def _feature_version(text: str) -> int | None:
    """17 of '... version "17.0.15" ...', 8 of '"1.8.0_392"'."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match.group(1)) if match else None


def main() -> int:
    """Check only: silent if there is a fit Java, else the sentence."""
    try:
        find_java()
    except LocalError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
