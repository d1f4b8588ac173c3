"""Settings: where they come from, which wins, and what is said about mistakes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import ClassVar

import pytest
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from millrace.core.messages.processes import SETTING_CHARACTERS_MOST
from millrace.runtime.settings import BadSettings, ServiceSettings


class Limits(BaseModel):
    model_config = ConfigDict(extra="forbid")

    jobs: int = Field(9, description="Jobs at once.")
    key: SecretStr | None = Field(None, description="Key.")


class Example(ServiceSettings):
    """Does 100% of something."""

    service: ClassVar[str] = "job_master"
    shards: list[int] = Field([0], description="Shards hosted.")
    blob_token: SecretStr = Field(SecretStr(""), description="Token.")
    careful: bool = Field(False, description="Look twice.")
    heap_mb: int | None = Field(None, description="Heap.")
    limits: Limits = Field(Limits(), description="Limits.")


class Needy(ServiceSettings):
    service: ClassVar[str] = "task_manager"
    slots: int = Field(description="Slots.")
    token: SecretStr = Field(description="Token.")


class Keyed(ServiceSettings):
    service: ClassVar[str] = "resource_manager"
    named: dict[str, Limits] = Field({}, description="Limits by name.")


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("MILLRACE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def problems(*argv: str, settings: type[ServiceSettings] = Example) -> list[str]:
    with pytest.raises(BadSettings) as caught:
        settings.load(argv)
    return caught.value.problems


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "millrace.yaml"
    path.write_text(text)
    return str(path)


def test_defaults(tmp_path: Path) -> None:
    settings = Example.load(["--instance", "one"])
    assert settings.describe() == {
        "config": None,
        "cluster": "default",
        "instance": "one",
        "kafka_bootstrap": "127.0.0.1:9092",
        "etcd_endpoint": "127.0.0.1:2379",
        "storage_url": str(tmp_path / "data/storage"),
        "health_port": 0,
        "published_on_loopback": False,
        "metrics_token": "",
        "health_host": "127.0.0.1",
        "metrics_log_interval_ms": 0,
        "metrics_scope": "<host>.<service>.<instance>",
        "ready_file": None,
        "log_format": "auto",
        "log_level": "info",
        "shards": [0],
        "blob_token": "",
        "careful": False,
        "heap_mb": None,
        "limits": {"jobs": 9, "key": None},
    }


def test_instance_is_the_service_and_a_random_suffix() -> None:
    one, other = Example.load([]).instance, Example.load([]).instance
    assert one.startswith("job-master-") and len(one) == len("job-master-") + 6 and one != other


def test_flag_wins_over_environment_wins_over_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "cluster: file\nlog_level: debug\nhealth_port: 1\nlimits: {jobs: 1}\n")
    monkeypatch.setenv("MILLRACE_CONFIG", path)
    monkeypatch.setenv("MILLRACE_LOG_LEVEL", "warning")
    monkeypatch.setenv("MILLRACE_HEALTH_PORT", "2")
    monkeypatch.setenv("MILLRACE_LIMITS__KEY", "sesame")
    settings = Example.load(["--health-port", "3"])
    assert (settings.cluster, settings.log_level, settings.health_port) == ("file", "warning", 3)
    assert settings.limits.jobs == 1 and settings.limits.key == SecretStr("sesame")


def test_own_section_wins_over_top_level_and_other_sections_are_not_read(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "cluster: all\nhealth_port: 1\n"
        "job_master: {health_port: 2, limits: {jobs: 3}}\ntask_manager: {slots: 4, x: 5}\n",
    )
    settings = Example.load(["--config", path])
    assert (settings.cluster, settings.health_port, settings.limits.jobs) == ("all", 2, 3)


@pytest.mark.parametrize(
    "argv", [["--shards", "1,2"], ["--shards", "1", "--shards", "2"], ["--shards", "[1, 2]"], ["--shards=1,2"]]
)
def test_list_from_flags(argv: list[str]) -> None:
    assert Example.load(argv).shards == [1, 2]


@pytest.mark.parametrize("text", ["1,2", "[1,2]", " 1, 2"])
def test_list_from_environment(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_SHARDS", text)
    assert Example.load([]).shards == [1, 2]


def test_switches_and_nested_flags() -> None:
    settings = Example.load(["--careful", "--limits.jobs", "4", "--heap-mb", "256"])
    assert (settings.careful, settings.limits.jobs, settings.heap_mb) == (True, 4, 256)
    assert Example.load(["--careful", "--no-careful"]).careful is False


@pytest.mark.parametrize(("name", "address"), [
    ("etcd-endpoint", "https://etcd:2379"), ("kafka-bootstrap", "SASL_SSL://me:hunter2@kafka:9093"), ("kafka-bootstrap", "a:1,SSL://b:1"),
])  # fmt: skip
def test_an_address_that_asks_for_tls_or_a_password_is_refused(name: str, address: str) -> None:
    [problem] = problems(f"--{name}", address)
    assert problem.startswith(f"{name.replace('-', '_')} from a flag: Kafka and etcd are spoken to without TLS and passwords")
    assert "hunter2" not in problem


def test_empty_variable_is_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_HEAP_MB", "")
    monkeypatch.setenv("MILLRACE_CLUSTER", "")
    assert (Example.load([]).heap_mb, Example.load([]).cluster) == (None, "default")


def test_object_made_in_code_reads_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_CLUSTER", "outside")
    assert Example(shards=[7]).cluster == "default"


def test_unknown_flag() -> None:
    assert problems("--kafka-bootstrp=h:1") == ["unknown flag --kafka-bootstrp; did you mean --kafka-bootstrap?"]


def test_unknown_flag_does_not_repeat_its_value() -> None:
    assert problems("--blob-tokn", "hunter2") == ["unknown flag --blob-tokn; did you mean --blob-token?"]
    assert problems("hunter2") == ["a value without a flag was given; every setting is given as --name VALUE"]


@pytest.mark.parametrize("argv", [["--blob-token", "hunter2"], ["--blob-token=hunter2"], ["--blob-token"]])
def test_secret_is_refused_as_a_flag(argv: list[str]) -> None:
    assert problems(*argv) == [
        "--blob-token is a secret and not taken from the command line; give MILLRACE_BLOB_TOKEN or the file of --config"
    ]


def test_nested_secret_is_refused_as_a_flag_in_every_spelling() -> None:
    assert problems("--limits.key", "hunter2") == [
        "--limits.key is a secret and not taken from the command line; "
        "give MILLRACE_LIMITS__KEY or the file of --config"
    ]
    assert problems("--limits", '{"key": "hunter2"}') == ["unknown flag --limits; did you mean --limits.key?"]


def test_an_unknown_name_below_a_name_of_ones_own(tmp_path: Path) -> None:
    path = written(tmp_path, "named: {a.b: {job: 1}, jobs: {limits: {}}}\n")
    assert problems("--config", path, settings=Keyed) == [
        f"unknown setting named.a.b.job in {path}; did you mean jobs?",
        f"unknown setting named.jobs.limits in {path}; known are jobs, key",
    ]


def test_a_name_of_flinks_below_a_section_stands_elsewhere(tmp_path: Path) -> None:
    path = written(tmp_path, "job_master: {heartbeat.timeout: 2 s}\n")
    hint = "did you mean heartbeat.timeout, at the top level of the file?"
    assert problems("--config", path) == [f"unknown setting heartbeat.timeout in {path}; {hint}"]


def test_unknown_names_in_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "kafka-bootstrap: x\nlimits: {job: 1}\njob_master: {shard: 3}\nresource_manger: {}\n")
    assert problems("--config", path) == [
        f"unknown setting limits.job in {path}; did you mean jobs?",
        f"unknown setting kafka-bootstrap in {path}; did you mean kafka_bootstrap?",
        f"unknown setting resource_manger in {path}; did you mean resource_manager?",
        f"unknown setting shard in {path}; did you mean shards?",
    ]


def test_variable_with_a_slip_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_KAFKA_BOOTSTRP", "x")
    assert problems() == ["unknown variable MILLRACE_KAFKA_BOOTSTRP; did you mean MILLRACE_KAFKA_BOOTSTRAP?"]


def test_variable_of_another_program_is_named_and_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_PYTHON", "/usr/bin/python3")
    assert Example.load([]).describe()["ignored_environment"] == ["MILLRACE_PYTHON"]


def test_every_mistake_at_once_with_its_origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "log_level: loud\n")
    monkeypatch.setenv("MILLRACE_LIMITS__JOBS", "many")
    assert problems("--config", path, "--health-port", "70000", "--shards", "1,x") == [
        "health_port from a flag: should be less than or equal to 65535",
        f"log_level in {path}: should be 'debug', 'info', 'warning' or 'error'",
        "shards.1 from a flag: should be a valid integer, unable to parse string as an integer",
        "limits.jobs from the environment: should be a valid integer, unable to parse string as an integer",
    ]


def test_required_settings_say_how_they_are_given() -> None:
    assert problems(settings=Needy) == [
        "slots is required; give --slots, MILLRACE_SLOTS or slots in the file of --config",
        "token is required; give MILLRACE_TOKEN or token in the file of --config",
    ]


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    missing = tmp_path / "missing.yaml"
    assert problems("--config", str(missing)) == [
        f"the settings file {missing} cannot be read: No such file or directory"
    ]
    path = written(tmp_path, "- a\n- b\n")
    assert problems("--config", path) == [f"the settings file {path} must be a mapping of names to values"]
    path = written(tmp_path, "cluster: a\nlimits: {jobs: 1\n")
    assert problems("--config", path) == [
        f"the settings file {path} is not YAML: line 3: expected ',' or '}}', but got '<stream end>'"
    ]
    path = written(tmp_path, "config: other.yaml\n")
    assert problems("--config", path) == [f"config cannot stand in {path} itself; give --config or MILLRACE_CONFIG"]
    path = written(tmp_path, "job_master: 3\n")
    assert problems("--config", path) == [f"section job_master in {path} must be a mapping of names to values"]
    Path(path).write_bytes(b"\xff\xfe\xff")
    assert problems("--config", path) == [f"the settings file {path} is not YAML: not UTF-8 text"]


def test_empty_file_is_no_settings(tmp_path: Path) -> None:
    assert Example.load(["--config", written(tmp_path, "")]).cluster == "default"


def test_description_shows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_BLOB_TOKEN", "hunter2")
    monkeypatch.setenv("MILLRACE_LIMITS__KEY", "sesame")
    monkeypatch.setenv("MILLRACE_STORAGE_URL", "s3://id:pass@bucket/millrace")
    settings = Example.load([])
    described = settings.describe()
    assert (described["blob_token"], described["limits"]) == ("***", {"jobs": 9, "key": "***"})
    assert described["storage_url"] == "s3://***@bucket/millrace"
    assert settings.secret_values() == ["hunter2", "sesame"]
    assert not any(secret in text for secret in ("hunter2", "sesame", "pass") for text in (json.dumps(described),))


def test_mistakes_end_the_process_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        Example.load_or_exit(["--health-port", "x", "--cluster", "Not Good"])
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        "job-master: 2 settings are wrong (job-master --help lists all):\n"
        "  cluster from a flag: String should match pattern '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'\n"
        "  health_port from a flag: should be a valid integer, unable to parse string as an integer\n"
    )


def test_help_teaches_every_setting(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as ended:
        Example.load(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert ended.value.code == 0
    assert "Does 100% of something." in text
    assert "--shards list[int] Shards hosted. [default: [0]; MILLRACE_SHARDS]" in text
    assert "--blob-token [refused] Token. [not as a flag; MILLRACE_BLOB_TOKEN]" in text
    assert "--limits.jobs int Jobs at once. [default: 9; MILLRACE_LIMITS__JOBS]" in text
    assert "--careful, --no-careful Look twice. [default: False; MILLRACE_CAREFUL]" in text
    assert "--heap-mb int Heap. [MILLRACE_HEAP_MB]" in text
    for name in Example.model_fields:
        if name != "limits":
            assert f"MILLRACE_{name.upper()}]" in text, name


def test_ready_file(tmp_path: Path) -> None:
    path = tmp_path / "run" / "ready.json"
    settings = Example.load(["--ready-file", str(path), "--instance", "one"])
    settings.write_ready(health_port=4711)
    assert json.loads(path.read_text()) == {
        "service": "job_master",
        "instance": "one",
        "pid": os.getpid(),
        "health_port": 4711,
    }
    assert [each.name for each in path.parent.iterdir()] == ["ready.json"]
    Example.load([]).write_ready(health_port=1)


def test_each_setting_says_from_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one within another, of which the file gives one part and the environment another."""
    monkeypatch.setenv("MILLRACE_LIMITS__KEY", "hunter2")
    monkeypatch.setenv("MILLRACE_BLOB_TOKEN", "sesame")
    path = written(tmp_path, "cluster: west\nlimits: {jobs: 4}\njob_master: {shards: [1, 2]}\n")
    settings = Example.load(["--config", path, "--cluster", "east", "--instance", "i"])
    found = {each.name: (each.value, each.origin) for each in settings.effective()}
    assert list(found) == [*list(Example.model_fields)[:-1], "limits.jobs", "limits.key"]
    given = {name: each for name, each in found.items() if each[1] != "by default"}
    assert given == {
        "config": (path, "from a flag"),
        "cluster": ("east", "from a flag"),
        "instance": ("i", "from a flag"),
        "shards": ([1, 2], f"in {path}"),
        "blob_token": ("***", "from the environment"),
        "limits.jobs": (4, f"in {path}"),
        "limits.key": ("***", "from the environment"),
    }


def test_what_looks_like_a_secret_is_stars_and_what_is_long_its_beginning(tmp_path: Path) -> None:
    path = written(tmp_path, f"conf: {{spark.hadoop.fs.s3a.secret.key: hunter2, spark.x: '-Dpassword=hunter2', spark.y: {'z' * 5000}}}\n")

    class Sparky(Example):
        conf: dict[str, str] = Field({}, description="Of Spark.")

    [conf] = [each for each in Sparky.load(["--config", path]).effective() if each.name == "conf"]
    assert isinstance(conf.value, str) and len(conf.value) == SETTING_CHARACTERS_MOST
    assert conf.value.startswith('{"spark.hadoop.fs.s3a.secret.key": "***", "spark.x": "-Dpassword=***", "spark.y": "zzz')
