"""Flink's names in a settings file: what each sets, and what is refused."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from typing import Any

import pytest

from millrace.runtime.flink_settings import ALSO, FLINK, WITHOUT, in_our_names, taken
from millrace.runtime.settings import BadSettings, ServiceSettings
from services.dispatcher.settings import DispatcherSettings
from services.job_master.settings import JobMasterSettings
from services.resource_manager.settings import ResourceManagerSettings
from services.task_manager.settings import TaskManagerSettings
from services.web.history.settings import HistorySettings
from services.web.settings import WebSettings

OF_SERVICE: dict[str, type[ServiceSettings]] = {
    cls.service: cls
    for cls in (DispatcherSettings, JobMasterSettings, ResourceManagerSettings, TaskManagerSettings, WebSettings, HistorySettings)
} | {"": ServiceSettings}


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("MILLRACE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def load(tmp_path: Path, text: str, cls: type[ServiceSettings] = ResourceManagerSettings) -> Any:
    path = tmp_path / "millrace.yaml"
    path.write_text(text)
    return cls.load(["--config", str(path)])


@pytest.mark.parametrize("name", FLINK)
def test_each_name_is_of_a_setting_that_there_is(name: str) -> None:
    for named in (FLINK[name], ALSO.get(name, FLINK[name])):
        assert all(named.setting in OF_SERVICE[service].model_fields for service in named.services)


def test_metrics_settings_are_those_of_whom_they_are_about(tmp_path: Path) -> None:
    text = "metrics: {reporter: {log: {interval: 30 s}}, scope: {jm: <host>.jobmanager, tm: <host>.tm.<tm_id>}, "
    text += "fetcher: {update-interval: 5 s}}\ntaskmanager.resource-id: tm-7\n"
    text += "dispatcher: {blob_token: a token of 20 letters}\n"
    found = {cls.service: load(tmp_path, text, cls) for cls in OF_SERVICE.values() if cls is not ServiceSettings}
    assert {each.metrics_log_interval_ms for each in found.values()} == {30_000}
    scopes = {name: each.scope() for name, each in found.items()}
    host = socket.gethostname()
    assert {scopes[name] for name in ("dispatcher", "resource_manager", "job_master")} == {f"{host}.jobmanager"}
    assert scopes["task_manager"] == f"{host}.tm.tm-7" and scopes["web"] == f"{host}.web.{found['web'].instance}"
    assert found["web"].metrics_fetch_interval_ms == 5_000
    both = "metrics.scope.jm: a\njob_master: {metrics_scope: b}\ndispatcher: {blob_token: a token of 20 letters}"
    assert load(tmp_path, both, DispatcherSettings).metrics_scope == "a"
    with pytest.raises(BadSettings, match="both are given"):
        load(tmp_path, both, JobMasterSettings)


@pytest.mark.parametrize("text, says", [
    ("metrics.scope.tm: <host>.<job_name>", "there is no variable <job_name>: a scope names a process, by <host>, <service>"),
    ("metrics.reporter.log.interval: 10 ms", "must be 1000 or more, or 0"),
])  # fmt: skip
def test_a_scope_or_an_interval_that_cannot_be_is_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(BadSettings, match=re.escape(says)):
        load(tmp_path, text, TaskManagerSettings)


@pytest.mark.parametrize("text", [
    "heartbeat.interval: 200 ms\nheartbeat.timeout: 2 s\nslotmanager.max-total-resource.memory: 8g\n",
    "heartbeat: {interval: 200ms, timeout: 2s}\nslotmanager: {max-total-resource: {memory: 8192 mb}}\n",
])  # fmt: skip
def test_a_file_in_flinks_names_sets_what_it_does_there(tmp_path: Path, text: str) -> None:
    found = load(tmp_path, text + "taskmanager.numberOfTaskSlots: 4\nresource_manager: {ageing_ms: 5}\n")
    assert (found.heartbeat_interval_ms, found.lost_after_ms, found.memory_mb_max, found.ageing_ms) == (200, 2000, 8192, 5)
    assert load(tmp_path, text + "taskmanager.numberOfTaskSlots: 4\n", TaskManagerSettings).slots == 4


@pytest.mark.parametrize("common", ["high-availability.storageDir: /a\n", "storage_url: /a\n", ""])
def test_a_place_of_the_history_goes_before_that_of_all(tmp_path: Path, common: str) -> None:
    text = f"historyserver.archive.fs.dir: /b\njobmanager.archive.fs.dir: /b\n{common}dispatcher: {{blob_token: t}}\n"
    assert load(tmp_path, text, HistorySettings).storage_url == "/b"
    found = load(tmp_path, text, DispatcherSettings)
    assert (found.storage_url, found.archive_url) == ("/a" if common else str(Path("data/storage").absolute()), "/b")


@pytest.mark.parametrize("text, placement", [
    ("taskmanager.load-balance.mode: SLOTS", "spread"), ("taskmanager.load-balance.mode: min_resources", "packed"),
    ("taskmanager: {load-balance: {mode: NONE}}", "warmest"), ("cluster.evenly-spread-out-slots: true", "spread"),
    ("cluster.evenly-spread-out-slots: false", "warmest"),
])  # fmt: skip
def test_where_slots_are_granted_is_told_by_its_names(tmp_path: Path, text: str, placement: str) -> None:
    assert load(tmp_path, f"{text}\n").slots_placement == placement


def test_a_flag_and_the_environment_go_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_LOST_AFTER_MS", "3000")
    assert load(tmp_path, "heartbeat.timeout: 2 s\n").lost_after_ms == 3000


@pytest.mark.parametrize("text, says", [
    ("taskmanager.load-balance.mode: TASKS", "taskmanager.load-balance.mode: 'TASKS' has no meaning here: write NONE, SLOTS, MIN_RES"),
    ("cluster.evenly-spread-out-slots: some", "cluster.evenly-spread-out-slots: 'some' is neither true nor false"),
    ("heartbeat.timout: 2 s", "unknown setting heartbeat.timout; did you mean heartbeat.timeout?"),
    ("taskmanager.memory.jvm-overhead.fraction: 0.1", "unknown setting taskmanager.memory.jvm-overhead.fraction; "),
    ("heartbeat.timeout: soon", "heartbeat.timeout: 'soon' is no duration: write 500 ms, 10 s, 2 min, 1 h or 1 d"),
    ("heartbeat.timeout: 2", "heartbeat.timeout: '2' is no duration"),
    ("slotmanager.max-total-resource.memory: 5 kb", "slotmanager.max-total-resource.memory: '5 kb' is no size of 1 MB or more"),
    ("heartbeat.timeout: 2 s\nresource_manager: {lost_after_ms: 900}", "heartbeat.timeout is lost_after_ms here, and both are given"),
    ("heartbeat.timeout: 2 s\nlost_after_ms: 900", "heartbeat.timeout is lost_after_ms here, and both are given"),
    ("heartbeat.timeout: 10 ms", "lost_after_ms in "),
    ("blob.service.ssl.enabled: true", "blob.service.ssl.enabled has no meaning here: TLS is on with blob_certificate and blob_key"),
    ("jobstore.type: Memory", "jobstore.type has no meaning here: ended jobs are in etcd, and their archives in storage"),
    ("jobstore: {cache-size: 1}", "jobstore.cache-size has no meaning here: "),
])  # fmt: skip
def test_what_is_wrong_is_refused_by_its_name(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(BadSettings) as caught:
        load(tmp_path, text)
    [problem] = caught.value.problems
    assert says in problem and "millrace.yaml" in problem


@pytest.mark.parametrize("name", WITHOUT)
def test_what_has_no_meaning_is_refused_with_the_reason_unless_it_says_what_is_so(name: str) -> None:
    assert name not in FLINK
    for value in WITHOUT[name].same:
        assert taken({name: value.upper()}, "dispatcher") == ({}, [])
    _, [problem] = taken({name: "other"}, "dispatcher")
    assert problem == f"{name} has no meaning here: {WITHOUT[name].why}"


def test_a_section_of_ours_that_begins_as_one_of_flinks_stays_one(tmp_path: Path) -> None:
    text = "web: {port: 8085}\nrestart-strategy: {fixed-delay: {attempts: 3}}\n"
    assert in_our_names({"web": {"port": 8085}})[0]["web"] == {"port": 8085}
    with pytest.raises(BadSettings, match=r"restart-strategy.fixed-delay.attempts has no meaning here: .* as restart.attempts"):
        load(tmp_path, text, WebSettings)
    assert load(tmp_path, "web: {port: 8085}", WebSettings).port == 8085


def test_a_name_that_sets_two_services_sets_each(tmp_path: Path) -> None:
    """Flink's cleanup interval is one of the BlobServer and of the caches; its number is one of seconds."""
    text = "blob.service.cleanup.interval: 7200\ndispatcher: {blob_token: t}\n"
    assert load(tmp_path, text, DispatcherSettings).keep_uploads_hours == 2
    assert load(tmp_path, text, TaskManagerSettings).blob_cache_hours == 2
    ours, problems = in_our_names({"blob.service.cleanup.interval": "90 min"})
    assert (ours["dispatcher"], ours["task_manager"], problems) == ({"keep_uploads_hours": 1.5}, {"blob_cache_hours": 1.5}, [])


@pytest.mark.parametrize("written, ports", [
    ("0", [0]), ("50100", [50100]), ("50100-50102", [50100, 50101, 50102]), ("'50100, 50200-50201'", [50100, 50200, 50201]),
])  # fmt: skip
def test_a_port_may_be_a_range(tmp_path: Path, written: str, ports: list[int]) -> None:
    for name in ("blob.server.port", "blob_port"):
        assert load(tmp_path, f"{name}: {written}\ndispatcher: {{blob_token: t}}\n", DispatcherSettings).blob_ports == ports


@pytest.mark.parametrize("written", ["70000", "5-1", "1-70000", "'1,'", "x", "-1", "true", "1.5", "[1]"])
def test_what_is_no_port_is_refused(tmp_path: Path, written: str) -> None:
    with pytest.raises(BadSettings, match="blob_port in .*: must be a port up to 65535, a range such as"):
        load(tmp_path, f"blob_port: {written}\ndispatcher: {{blob_token: t}}\n", DispatcherSettings)


def test_clients_are_told_of_tls(tmp_path: Path) -> None:
    pem = tmp_path / "a.pem"
    pem.write_text("")
    found = load(tmp_path, f"dispatcher: {{blob_token: t, blob_certificate: {pem}, blob_key: {pem}}}\n", DispatcherSettings)
    assert found.advertised_url(8100) == "https://127.0.0.1:8100"


def test_a_certificate_needs_its_key(tmp_path: Path) -> None:
    (tmp_path / "a.pem").write_text("")
    with pytest.raises(BadSettings, match="blob_certificate and blob_key belong together: give both, or neither"):
        load(tmp_path, f"dispatcher: {{blob_token: t, blob_certificate: {tmp_path / 'a.pem'}}}\n", DispatcherSettings)


def test_durations_and_sizes_are_flinks() -> None:
    for written, ms in (("500 ms", 500), ("10s", 10_000), ("2 min", 120_000), ("1 h", 3_600_000), ("3 days", 259_200_000)):
        assert taken({"heartbeat.interval": written}, "resource_manager") == ({"heartbeat_interval_ms": ms}, [])
    for written, mb in (("512m", 512), ("4g", 4096), ("1 TB", 1 << 20), ("2048 kb", 2)):
        assert taken({"slotmanager.max-total-resource.memory": written}, "resource_manager") == ({"memory_mb_max": mb}, [])
    assert taken({"jobstore.expiration-time": "90 min"}, "dispatcher") == ({"keep_hours": 1.5}, [])


def test_a_whole_file_is_told_in_our_names() -> None:
    found, problems = in_our_names({"metrics.scope.jm": "a.<host>", "job_master": {"shards": [1]}, "heartbeat.rpc-failure-threshold": 2})
    assert len(problems) == 1 and problems[0].startswith("heartbeat.rpc-failure-threshold has no meaning here: a heartbeat is a record")
    assert in_our_names({"heartbeat.rpc-failure-threshold": -1}) == ({}, []), "it is off here in any case"
    assert found["dispatcher"] == found["resource_manager"] == {"metrics_scope": "a.<host>"}
    assert found["job_master"] == {"shards": [1], "metrics_scope": "a.<host>"} and "task_manager" not in found
