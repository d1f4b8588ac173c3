"""Which Java is taken, and the one sentence when there is none fit."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deploy.local.errors import LocalError
from deploy.local.java import find_java

SEVENTEEN = 'openjdk version "17.0.15" 2025-04-15'
TWENTY_FIVE = 'openjdk version "25" 2025-09-16'
EIGHT = 'java version "1.8.0_392"'
ADVICE = "install Java 17 or newer (a JDK or JRE) and put it on PATH, or point JAVA_HOME at it"


def java_in(folder: Path, says: str, code: int = 0) -> Path:
    folder.mkdir(parents=True)
    program = folder / "java"
    program.write_text(f"#!/bin/sh\nprintf '%s\\n' '{says}' >&2\nexit {code}\n")
    program.chmod(0o755)
    return program


def refusal(environ: dict[str, str]) -> str:
    with pytest.raises(LocalError) as error:
        find_java(environ)
    return str(error.value)


def test_this_machines_java_is_fit():
    assert find_java().version >= 17


def test_the_one_on_path(tmp_path):
    program = java_in(tmp_path / "bin", SEVENTEEN)
    java = find_java({"PATH": str(program.parent)})
    assert (java.path, java.version, java.text) == (program, 17, SEVENTEEN)


def test_java_home_goes_before_path(tmp_path):
    java_in(tmp_path / "bin", SEVENTEEN)
    program = java_in(tmp_path / "home" / "bin", TWENTY_FIVE)
    java = find_java({"PATH": str(tmp_path / "bin"), "JAVA_HOME": str(tmp_path / "home")})
    assert (java.path, java.version) == (program, 25)


def test_none(tmp_path):
    said = refusal({"PATH": str(tmp_path)})
    assert said == f"No Java was found (JAVA_HOME is not set, no java on PATH): {ADVICE}."


def test_too_old(tmp_path):
    program = java_in(tmp_path / "bin", EIGHT)
    assert refusal({"PATH": str(program.parent)}) == f"Java 8 at {program} is too old: {ADVICE}."


def test_a_wrong_java_home_is_not_passed_over(tmp_path):
    java_in(tmp_path / "bin", SEVENTEEN)
    said = refusal({"PATH": str(tmp_path / "bin"), "JAVA_HOME": "/nowhere"})
    assert said == f"JAVA_HOME is /nowhere, but there is no /nowhere/bin/java: {ADVICE}, or unset JAVA_HOME."


def test_a_program_that_only_says_where_to_get_java(tmp_path):
    program = java_in(tmp_path / "bin", "Unable to locate a Java Runtime.", code=1)
    assert refusal({"PATH": str(program.parent)}) == f"{program} is no usable Java: {ADVICE}."


def test_a_program_that_cannot_be_run(tmp_path):
    program = java_in(tmp_path / "bin", SEVENTEEN)
    program.write_text("#!/nowhere/sh\n")
    assert os.access(program, os.X_OK)
    assert refusal({"PATH": str(program.parent)}) == f"{program} is no usable Java: {ADVICE}."
