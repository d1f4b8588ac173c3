"""deploy/monitoring: what it asks for exists, in the rules, in the dashboard and in the document; where it is scraped is where it is."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from deploy.local.monitoring import Target, config_file, write
from millrace.runtime.metrics import EVERY, TABLE, Metric

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "monitoring"
PROMTOOL = shutil.which("promtool")
OF_PROMETHEUS = {"up": ("job", "instance"), "ALERTS": ("alertname", "alertstate", "severity")}
OF_TARGETS = ("job", "instance")
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("",), "gauge": ("",)}
WORDS = frozenset(["sum", "max", "count", "rate", "increase", "deriv", "changes", "histogram_quantile", "topk", "or", "and", "vector"])
BY_NAME: dict[str, Metric] = {metric.name + suffix: metric for metric in TABLE for suffix in SUFFIXES[metric.kind]}
_SELECTED = re.compile(r"(?<![\w$])([a-zA-Z_:][\w:]*)\s*(\{[^}]*\})?")


def yaml(path: str) -> Any:
    return YAML(typ="safe").load((ROOT / path).read_text())


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml("deploy/monitoring/rules.yml")["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((FOLDER / "grafana" / "millrace.json").read_text())["panels"]
    return found


def expressions() -> Iterator[tuple[str, str]]:
    """(where it stands, PromQL) of all."""
    for rule in rules():
        yield rule["alert"], rule["expr"]
    for panel in panels():
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]
    asked = (ROOT / "docs" / "metrics.md").read_text().partition("\n## Ask\n")[2].partition("\n## ")[0]
    for question, promql in re.findall(r"^\| ([^|`]+) \| `(.+)` \|$", asked, re.MULTILINE):
        yield question, promql.replace("\\|", "|")


def wrong_in(promql: str) -> list[str]:
    """What it names that is not there: metrics, labels, values of labels; and counters that are read as if they were gauges."""
    wrong, labels = [], set(OF_TARGETS) | {"le"}
    grouped = re.findall(r"\b(?:by|without) \(([^)]*)\)", promql)
    rest = re.sub(r"\b(?:by|without) \([^)]*\)", " ", re.sub(r"\[[^\]]*\]", "[]", promql))
    for found in _SELECTED.finditer(rest):
        name, selector = found.group(1), found.group(2) or ""
        if name in WORDS or name in OF_PROMETHEUS:
            labels |= set(OF_PROMETHEUS.get(name, ()))
            continue
        metric = BY_NAME.get(name)
        if metric is None:
            wrong.append(f"there is no {name}")
            continue
        labels |= set(metric.labels)
        wrong += wrong_selectors(metric, selector)
        if (metric.kind != "gauge") != bool(re.search(rf"(rate|increase)\({name}(\{{[^}}]*\}})?\[", rest)):
            wrong.append(f"{name} is a {metric.kind}")
    wrong += [f"nothing here has {label}" for group in grouped for label in re.findall(r"\w+", group) if label not in labels]
    return wrong


def wrong_selectors(metric: Metric, selector: str) -> Iterator[str]:
    for label, operator, value in re.findall(r"(\w+)\s*(=~|!~|!=|=)\s*\"([^\"]*)\"", selector):
        known = EVERY if label == "job" else metric.labels.get(label)
        if known is None and label not in OF_TARGETS:
            yield f"{metric.name} has no {label}"
        for each in (value.split("|") if operator.endswith("~") else [value]) if not isinstance(known, str) and known else ():
            if each not in known:
                yield f"{label} of {metric.name} is never {each}"


@pytest.mark.parametrize(("where", "promql"), list(expressions()))
def test_what_is_asked_for_is_there(where: str, promql: str) -> None:
    assert wrong_in(promql) == []


@pytest.mark.parametrize("promql", [
    "sum(millrace_job)", 'millrace_jobs{state="ENDED"}', 'millrace_jobs{status="RUNNING"}', "sum by (shard) (millrace_jobs)",
    "millrace_jobs_accepted_total", "rate(millrace_jobs[5m])", "rate(millrace_job_phase_seconds[5m])",
    'rate(millrace_attempts_ended_total{outcome=~"lost|gone"}[5m])', 'process_open_fds{job="jobmanager"}',
])  # fmt: skip
def test_what_is_not_there_is_found(promql: str) -> None:
    assert len(wrong_in(promql)) == 1


def test_all_that_is_counted_is_shown() -> None:
    """The dashboard leaves out what others say as well."""
    shown = " ".join(target["expr"] for panel in panels() for target in panel.get("targets", ()))
    not_shown = {metric.name for metric in TABLE if not re.search(rf"\b{metric.name}(_bucket|_sum|_count)?\b", shown)}
    assert {name for name in not_shown if not name.startswith(("process_", "millrace_web_", "millrace_task_manager_"))} == {
        "millrace_build_info", "millrace_epoch", "millrace_generation", "millrace_effects_waiting", "millrace_job_graphs_bytes",
        "millrace_shard_slots", "millrace_attempts_started_total",
    }  # fmt: skip


# ---- the rules


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alert_says_what_it_is_and_where_to_read_on(rule: dict[str, Any]) -> None:
    assert re.fullmatch(r"Millrace[A-Z][A-Za-z]+", rule["alert"])
    assert rule["labels"]["severity"] in ("page", "ticket", "note") and set(rule["annotations"]) == {"summary", "runbook"}
    path, _, anchor = rule["annotations"]["runbook"].partition("#")
    heads = re.findall(r"^#+ (.+)$", (ROOT / path).read_text(), re.MULTILINE)
    assert anchor in {re.sub(r"[^\w -]", "", head).lower().replace(" ", "-") for head in heads}
    for label in re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]):
        grouped = re.findall(r"by \(([^)]*)\)", rule["expr"])
        assert label in OF_TARGETS or label in "".join(grouped) or label in _labels_of(rule["expr"])
        assert not grouped or label in "".join(grouped), f"{label} is summed away"


def _labels_of(promql: str) -> set[str]:
    return {label for name in _SELECTED.findall(promql) if name[0] in BY_NAME for label in BY_NAME[name[0]].labels}


def test_alerts_have_names_of_their_own() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names) >= 20


def test_each_alert_is_tried_where_it_is_raised_and_where_it_is_not() -> None:
    raised: dict[bool, set[str]] = {True: set(), False: set()}
    for each in yaml("deploy/monitoring/rules_test.yml")["tests"]:
        for tried in each.get("alert_rule_test", ()):
            raised[bool(tried.get("exp_alerts"))].add(tried["alertname"])
    assert raised[True] == raised[False] == {rule["alert"] for rule in rules()}


@pytest.mark.skipif(PROMTOOL is None, reason="there is no promtool on PATH (Debian's package prometheus has it)")
def test_prometheus_itself_takes_the_rules_and_raises_what_it_should() -> None:
    for arguments in (
        ("check", "rules", "rules.yml"), ("test", "rules", "rules_test.yml"), ("check", "config", "--syntax-only", "prometheus.yml"),
    ):  # fmt: skip
        done = subprocess.run([str(PROMTOOL), *arguments], cwd=FOLDER, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


# ---- the dashboard


def test_the_dashboard_reads_the_source_that_is_provisioned_and_its_panels_have_room() -> None:
    (source,) = yaml("deploy/monitoring/grafana/datasources.yml")["datasources"]
    assert source["url"] == "http://prometheus:9090"
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        assert place["x"] + place["w"] <= 24 and not cells & taken, panel["title"]
        taken |= cells
        if panel["type"] != "row":
            assert {target["datasource"]["uid"] for target in panel["targets"]} == {panel["datasource"]["uid"]} == {source["uid"]}
    assert len({panel["id"] for panel in panels()}) == len(panels())


# ---- where it is scraped


def test_in_compose_every_service_is_scraped_where_it_answers() -> None:
    compose, config = yaml("docker-compose.yml"), yaml("deploy/monitoring/prometheus.yml")
    scraped = {each["job_name"]: each["dns_sd_configs"][0] for each in config["scrape_configs"]}
    assert set(scraped) == set(EVERY)
    ours = {name for name, each in compose["services"].items() if "services." in str(each.get("command"))}
    assert {name for each in scraped.values() for name in each["names"]} == ours
    settings = compose["x-settings"]
    assert {each["port"] for each in scraped.values()} == {int(settings["MILLRACE_HEALTH_PORT"])}
    assert settings["MILLRACE_HEALTH_HOST"] == "0.0.0.0" and settings["MILLRACE_PUBLISHED_ON_LOOPBACK"] == "true"


def test_in_compose_its_files_are_where_its_images_look_for_them() -> None:
    compose = yaml("docker-compose.yml")["services"]
    mounted = {}
    for name in ("prometheus", "grafana"):
        assert compose[name]["profiles"] == ["monitoring"]
        for volume in compose[name]["volumes"]:
            if volume.startswith("./"):
                file, there, mode = volume.split(":")
                assert (ROOT / file).is_file() and mode == "ro"
                mounted[there] = file
    (rules_there,) = yaml("deploy/monitoring/prometheus.yml")["rule_files"]
    assert mounted[rules_there].endswith("/rules.yml")
    (provider,) = yaml("deploy/monitoring/grafana/dashboards.yml")["providers"]
    home = compose["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert mounted[home].endswith("millrace.json") and home.startswith(provider["options"]["path"])


def test_in_compose_jaeger_is_reached_by_the_services_and_from_this_machine_alone() -> None:
    compose, document = yaml("docker-compose.yml"), (ROOT / "docs" / "traces.md").read_text()
    jaeger = compose["services"]["jaeger"]
    assert jaeger["profiles"] == ["traces"] and not jaeger["image"].endswith(":latest")
    assert jaeger["ports"] == ["127.0.0.1:${JAEGER_PORT}:16686", "127.0.0.1:${OTLP_PORT}:4318"]
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in compose["x-settings"] and "OTEL_EXPORTER_OTLP_ENDPOINT=http://jaeger:4318" in document


def test_on_a_laptop_prometheus_is_told_where_services_answer_now(tmp_path: Path) -> None:
    write(tmp_path, [Target("dispatcher", "dispatcher-2", 4711), Target("task-manager", "task-manager-1", 4712)])
    config = YAML(typ="safe").load(config_file(tmp_path).read_text())
    assert [Path(file).is_file() for file in config["rule_files"]] == [True]
    (found,) = config["scrape_configs"][0]["file_sd_configs"][0]["files"]
    targets = config_file(tmp_path).with_name(found)
    assert json.loads(targets.read_text())[0] == {
        "targets": ["127.0.0.1:4711"], "labels": {"job": "dispatcher", "instance": "dispatcher-2"},
    }  # fmt: skip
    before = targets.stat().st_ino
    write(tmp_path, [Target("dispatcher", "dispatcher-2", 4711), Target("task-manager", "task-manager-1", 4712)])
    assert targets.stat().st_ino == before, "it would be read again for nothing"
    write(tmp_path, [])
    assert json.loads(targets.read_text()) == []
