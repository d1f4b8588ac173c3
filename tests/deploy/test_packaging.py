"""The files around the code agree with it and with each other."""

from __future__ import annotations

import ast
import importlib
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from ruamel.yaml import YAML

from deploy.local import etcd, flights, kafka
from deploy.local.kafka import KafkaBroker
from deploy.local.machine import MACHINES, SYSTEMS, Machine, problems, this
from millrace.core.topics import TOPICS
from millrace.runtime.settings import ServiceSettings
from millrace.runtime.traces import ENDPOINTS, HEADERS

ROOT = Path(__file__).parents[2]
OURS = ("dispatcher", "resource-manager", "job-master", "task-manager", "web")


def compose() -> dict:
    return YAML(typ="safe").load((ROOT / "docker-compose.yml").read_text())


def locked(name: str) -> dict[str, set[str]]:
    """Package -> the versions pinned in a lock file (several, if they differ by Python)."""
    versions: dict[str, set[str]] = {}
    for match in re.finditer(r"^([a-z0-9][a-z0-9.-]*)==([^ ;\\]+)", (ROOT / name).read_text(), re.MULTILINE):
        versions.setdefault(match[1], set()).add(match[2])
    return versions


def declared() -> list[Requirement]:
    """What pyproject.toml asks for."""
    text = (ROOT / "pyproject.toml").read_text()
    wanted = text[text.index("\ndependencies") : text.index("\n[project.scripts]")]
    return [Requirement(line) for line in re.findall(r'"([^"\n]+)"', re.sub(r"#.*", "", wanted))]


def test_the_lock_holds_what_is_declared():
    pins = locked("requirements.lock")
    assert len(declared()) > 20
    for wanted in declared():
        versions = pins[re.sub(r"[._]", "-", wanted.name.lower())]
        assert all(wanted.specifier.contains(version) for version in versions), wanted


LOCKS = [
    "requirements.lock",
    "requirements-build.lock",
    "deploy/docker/control.lock",
    "deploy/docker/task-manager.lock",
]


@pytest.mark.parametrize("name", LOCKS)
def test_every_pin_has_hashes(name):
    entries = re.split(r"^(?=[a-z0-9])", (ROOT / name).read_text(), flags=re.MULTILINE)[1:]
    assert entries
    assert all("--hash=sha256:" in entry for entry in entries)


def test_no_place_to_fetch_from_is_fixed():
    for name in LOCKS:
        assert not re.search(r"https?://|--index|--find-links", (ROOT / name).read_text())


def services() -> dict[str, dict]:
    return compose()["services"]


def test_compose_tells_our_services_only_what_they_know():
    for name in OURS:
        module = importlib.import_module(f"services.{name.replace('-', '_')}.settings")
        known = {f"MILLRACE_{field.upper()}" for field in fields_of(module)}
        service = services()[name]
        assert set(service["environment"]) <= {*known, ENDPOINTS[1], HEADERS[1]}
        assert service["environment"].items() >= compose()["x-settings"].items()
        assert (ROOT / "services" / service["command"][2].split(".")[1] / "__main__.py").exists()


def fields_of(module) -> set[str]:
    return {
        field
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, ServiceSettings)
        for field in each.model_fields
    }


def test_compose_passes_what_the_shell_says_of_traces_and_nothing_where_it_says_nothing():
    assert [compose()["x-settings"][name] for name in (ENDPOINTS[1], HEADERS[1])] == [None, None]


def test_compose_runs_the_same_kafka_as_the_laptop(tmp_path):
    broker = KafkaBroker(tmp_path)
    broker.ports = {"broker": 9092, "controller": 9093}
    laptop = {key: str(value) for key, value in broker._properties().items()}
    told = {
        key.removeprefix("KAFKA_").lower().replace("_", "."): str(value)
        for key, value in services()["kafka"]["environment"].items()
        if key.startswith("KAFKA_") and key not in ("KAFKA_HEAP_OPTS", "KAFKA_LOG_DIRS")
    }
    addresses = {"listeners", "advertised.listeners", "listener.security.protocol.map", "controller.quorum.voters"}
    same = (
        told.keys() - addresses - {"min.insync.replicas"}
    )  # which is Kafka's default, and told for those of ha to differ
    assert {key: told[key] for key in same} == {key: laptop[key] for key in same}
    only_for_a_laptop = {"log.dirs", "metric.reporters", "background.threads"}
    sizes = re.compile(r"num\..*\.threads|.*coordinator\.threads|log\.cleaner\..*|log\.retention\.check.*")
    assert {key for key in laptop.keys() - told.keys() if not sizes.fullmatch(key)} == only_for_a_laptop


def test_compose_and_the_laptop_have_one_version_of_each_server():
    assert compose()["x-kafka"]["image"] == f"apache/kafka:{kafka.VERSION}"
    assert compose()["x-etcd"]["image"] == f"quay.io/coreos/etcd:v{etcd.BUILT_VERSION}"


def test_with_ha_every_record_is_on_two_disks_before_it_counts():
    for name, service in services().items():
        if service.get("profiles") == ["ha"] and name.startswith("kafka"):
            told = service["environment"]
            assert (told["KAFKA_DEFAULT_REPLICATION_FACTOR"], told["KAFKA_MIN_INSYNC_REPLICAS"]) == (3, 2)
            assert all(value == 3 for key, value in told.items() if key.endswith("TOPIC_REPLICATION_FACTOR"))
    assert all("min.insync.replicas" not in topic.config() for topic in TOPICS)  # the broker's own holds


def test_executors_of_the_profile_spark_have_the_image_and_the_folders_of_a_task_manager():
    spark = {name: service for name, service in services().items() if service.get("profiles") == ["spark"]}
    assert list(spark) == ["spark-master", "spark-worker-1", "spark-worker-2"]
    task_manager = services()["task-manager"]
    for service in spark.values():
        assert service["image"] == task_manager["image"]
        assert set(service["volumes"]) == set(task_manager["volumes"]) - {"archives:/var/lib/millrace/work/archives"}


def test_compose_publishes_its_ports_to_this_machine_alone():
    ports = [port for service in services().values() for port in service.get("ports", ())]
    assert len(ports) == 13
    assert all(re.fullmatch(r"127\.0\.0\.1:\$\{[A-Z0-9_]+_PORT\}:\d+", port) for port in ports)


def test_compose_asks_for_what_the_env_file_says_and_nothing_else():
    said = set(re.findall(r"^([A-Z0-9_]+)=.+$", (ROOT / ".env").read_text(), re.MULTILINE))
    asked = set(re.findall(r"\$\{([A-Z0-9_]+)\}", (ROOT / "docker-compose.yml").read_text()))
    assert said == asked | {"COMPOSE_PROJECT_NAME"}


def test_every_container_is_bounded_and_starts_again():
    for name, service in services().items():
        assert service["restart"] == ("no" if name in ("check", "provision") else "unless-stopped")
        assert {"mem_limit", "pids_limit", "logging"} <= set(service)
        assert ("healthcheck" in service) == (name not in ("check", "provision"))
        assert service["cap_drop"] == ["ALL"]


@pytest.mark.parametrize("image", ["control", "task-manager"])
def test_an_image_has_the_packages_of_the_lock(image):
    pins, all_pins = locked(f"deploy/docker/{image}.lock"), locked("requirements.lock")
    assert pins and all(versions <= all_pins[name] for name, versions in pins.items())
    assert ("pyspark" in pins) == (image == "task-manager")


RUN_IN = {
    "control": ["dispatcher", "resource_manager", "job_master", "web", "replay"],
    "task-manager": ["task_manager"],
}


@pytest.mark.parametrize("image", RUN_IN)
def test_an_image_has_what_its_services_import(image):
    pins, owners = locked(f"deploy/docker/{image}.lock"), packages()
    folders = [ROOT / "shared", *(ROOT / "services" / service for service in RUN_IN[image])]
    files = [file for folder in folders for file in folder.rglob("*.py")]
    imported = {name: file for file in files for name in imports(file) if name in owners}
    assert {"pydantic", "confluent_kafka", "tenacity"} <= imported.keys()
    missing = {
        f"{name} of {file.relative_to(ROOT)}"
        for name, file in imported.items()
        if not {re.sub(r"[._]", "-", owner.lower()) for owner in owners[name]} & {*pins, "millrace"}
    }
    assert not missing


def packages() -> dict[str, list[str]]:
    """Package -> what was installed that holds it. (The library's own way knows too few of them in Python 3.10.)"""
    found: dict[str, list[str]] = {}
    for each in distributions():
        tops = {file.parts[0].removesuffix(".py") for file in each.files or () if file.suffix in (".py", ".so")}
        for top in tops if each.metadata["Name"] != "millrace" else ("millrace",):
            found.setdefault(top, []).append(each.metadata["Name"])
    return found


def imports(file: Path) -> set[str]:
    """The packages that a file imports, wherever it does so."""
    nodes = list(ast.walk(ast.parse(file.read_bytes())))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    return {name.partition(".")[0] for name in names}


def test_the_demos_data_is_whole():
    folder = flights.flights_folder()
    assert {path.name for path in folder.glob("*.csv")} == set(flights.PINS)
    with open(folder / "flights.csv") as lines:
        assert sum(1 for _ in lines) == 336_777


# The Makefile, in an empty folder with the local Python's code, before anything is installed.


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    for name in ("Makefile", "pyproject.toml", "requirements.lock", "requirements-build.lock"):
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def make(folder: Path, *arguments: str, **environment: str) -> tuple[int, list[str]]:
    """Exit code, and what a user reads before make's own closing line."""
    done = subprocess.run(
        ["make", "--no-print-directory", *arguments],
        **{"cwd": folder, "capture_output": True, "text": True, "check": False, "timeout": 120},
        env={**os.environ, "MAKEFLAGS": "", "MAKELEVEL": "0", "JAVA_HOME": "", **environment},
    )
    lines = (done.stdout + done.stderr).splitlines()
    return done.returncode, [line for line in lines if not line.startswith("make: ***")]


def test_make_alone_lists_every_target(fresh):
    code, lines = make(fresh)
    phony = re.search(r"^\.PHONY: (.*)$", (fresh / "Makefile").read_text(), re.MULTILINE)
    assert code == 0
    assert [line.split()[1] for line in lines if line.startswith("  make ")] == phony[1].split()


def test_make_with_an_old_python(fresh):
    old = fresh / "python3"
    old.write_text('#!/bin/sh\n[ "$1" = -V ] && echo Python 3.8.1\nexit 1\n')
    old.chmod(0o755)
    code, lines = make(fresh, "setup", f"PYTHON={old}")
    assert code == 2
    assert lines == [
        f"Python 3.10 or newer is needed and '{old}' is Python 3.8.1: install one and say PYTHON=python3.12 make ..."
    ]
    assert not (fresh / ".venv").exists()


def test_make_where_the_packages_do_not_exist(fresh):
    """Emulated: a Python that says it is of a machine that no package is made for."""
    other = fresh / "python3"
    other.write_text(
        "#!/bin/sh\n"
        "[ $1 = -c ] && exit 0\n"
        f'[ $1 = -m ] && exec {sys.executable} -c "import platform, runpy; platform.machine = lambda: \'riscv64\'; '
        'runpy.run_module(\'$2\', run_name=\'__main__\')"\n'
    )
    other.chmod(0o755)
    code, lines = make(fresh, "setup", f"PYTHON={other}")
    assert code == 2
    assert lines == ["The packages exist for x86-64 and 64-bit ARM, and this is riscv64: use a machine or a container of those."]
    assert not (fresh / ".venv").exists()


USUAL = Machine("linux", "x86_64", "glibc", (3, 12), "CPython", False, ("/home/josé müller, data/millrace",))


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({}, []),
        ({"machine": "aarch64"}, []),
        ({"system": "darwin", "machine": "arm64", "libc": ""}, []),
        ({"system": "darwin", "machine": "x86_64", "libc": "", "python": (3, 14)}, []),
        ({"python": (3, 10)}, []),
        ({"system": "win32", "machine": "AMD64", "libc": ""}, ["Millrace runs on Linux and macOS, and this is win32: use WSL 2."]),
        ({"libc": ""}, ["etcd and some packages exist for Linuxes with glibc alone"]),
        ({"python": (3, 15)}, ["The packages exist for Python 3.10 to 3.14, and this is 3.15: say PYTHON=python3.12 make ..."]),
        ({"implementation": "PyPy"}, ["The packages exist for the usual CPython, and this is PyPy"]),
        ({"free_threaded": True}, ["The packages exist for the usual CPython, and this is a CPython without a global lock"]),
        ({"folders": ("/a:b",)}, ["/a:b has a ':' in its name, at which Java's class path and PATH are parted: use another folder."]),
        ({"machine": "ppc64le", "python": (3, 9)}, ["The packages exist for x86-64", "The packages exist for Python 3.10 to 3.14"]),
    ],
)
def test_what_cannot_work_is_said_with_what_to_do(other, said):
    """Of machines that are not here, by what they would say of themselves."""
    found = list(problems(replace(USUAL, **other)))
    assert len(found) == len(said) and all(map(str.startswith, found, said)), found


def test_this_machine_can_work():
    assert list(problems(this())) == []


def test_every_system_that_is_let_in_has_an_etcd():
    assert {system for system, _ in etcd.PACKAGED_SHA256} == set(SYSTEMS)
    assert {machine for _, machine in etcd.PACKAGED_SHA256} == set(MACHINES)


def test_make_without_java(fresh):
    code, lines = make(fresh, "demo", JAVA_HOME="/nowhere")
    assert code == 2
    assert lines[0].startswith("JAVA_HOME is /nowhere, but there is no /nowhere/bin/java: install Java 17 or newer")
    assert len(lines) == 1
    assert not (fresh / ".venv").exists()
