"""Recording and alert rules by promtool, against the metrics that are really exposed, and beside their runbook."""

import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.observability import dashboard
from loadtest.programs import find_program
from loadtest.server_process import BenchError
from serving.telemetry.metric_maker import SECONDS
from serving.telemetry.metrics import ServerMetrics
from serving.telemetry.supervision import SupervisorMetrics
from serving.telemetry.values import ValueMemory

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
RULES = sorted((PROMETHEUS / "rules").glob("*.yml"))
CASES = sorted((PROMETHEUS / "tests").glob("*.yml"))
DASHBOARD = ROOT / "deploy" / "grafana" / "dashboards" / "ghostless.json"
RUNBOOK = ROOT / "docs" / "observability.md"
PER_SERIES = {"job", "instance", "le", "alertname"}


@pytest.fixture(scope="module")
def promtool() -> str:
    try:
        return find_program("promtool")
    except BenchError as error:
        pytest.skip(str(error))


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)


def rules(kind: str) -> Iterator[dict[str, Any]]:
    for file in RULES:
        for group in yaml.safe_load(file.read_text())["groups"]:
            yield from (rule for rule in group["rules"] if kind in rule)


ALERTS = [rule["alert"] for rule in rules("alert")]


def test_promtool_accepts_rules_and_configuration(promtool: str) -> None:
    checked = run(promtool, "check", "config", PROMETHEUS / "prometheus.yml")
    assert checked.returncode == 0, checked.stderr
    for file in RULES:
        assert str(file) in checked.stdout
    assert run(promtool, "check", "rules", *RULES).returncode == 0


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.stem))
def test_rules_fire_and_keep_silent_as_they_should(promtool: str, case: Path) -> None:
    tested = run(promtool, "test", "rules", case)
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_promtool_would_notice_a_wrong_threshold(promtool: str, tmp_path: Path) -> None:
    shutil.copytree(PROMETHEUS, tmp_path, dirs_exist_ok=True)
    alerts = tmp_path / "rules" / "alerts.yml"
    alerts.write_text(alerts.read_text().replace("rejected:ratio_rate5m > 0.01", "rejected:ratio_rate5m > 0.2"))
    tested = run(promtool, "test", "rules", tmp_path / "tests" / "serving.yml")
    assert tested.returncode != 0
    assert "GhostlessRejecting" in tested.stdout + tested.stderr


def test_every_alert_is_tested_both_ways() -> None:
    seen = defaultdict(set)
    for file in CASES:
        for test in yaml.safe_load(file.read_text())["tests"]:
            for case in test.get("alert_rule_test", ()):
                seen[case["alertname"]].add(bool(case["exp_alerts"]))
    assert dict(seen) == {alert: {True, False} for alert in ALERTS}


@pytest.mark.parametrize("alert", ALERTS)
def test_every_alert_has_its_runbook_paragraph(alert: str) -> None:
    (rule,) = (rule for rule in rules("alert") if rule["alert"] == alert)
    assert rule["labels"]["severity"] in ("page", "ticket")
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    assert ROOT / page == RUNBOOK
    _, *sections = re.split(r"^#+ ", RUNBOOK.read_text(), flags=re.MULTILINE)
    (section,) = (each for each in sections if each.splitlines()[0].lower() == anchor)
    assert alert in section
    assert len(section.split()) > 30, "a paragraph, not a heading alone"


def test_group_names_are_unique_as_the_operator_demands() -> None:
    names = [group["name"] for file in RULES for group in yaml.safe_load(file.read_text())["groups"]]
    assert len(names) == len(set(names))


def test_the_operators_manifest_is_in_step() -> None:
    written = (ROOT / "deploy" / "kubernetes" / "rules.yaml").read_text()
    (groups,) = (each["spec"]["groups"] for each in yaml.safe_load_all(written))
    assert groups == [group for file in RULES for group in yaml.safe_load(file.read_text())["groups"]], "make manifests"


def exposed() -> dict[str, set[str]]:
    """Labels of each series' name, as the server defines them."""
    memory = ValueMemory()
    ServerMetrics(memory)
    families = [*memory.read().families.values(), SupervisorMetrics(None).family]
    names: dict[str, set[str]] = {}
    for family in families:
        endings = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(family.kind, ("",))
        names |= {family.name + ending: set(family.labels) for ending in endings}
    return names


def expressions() -> list[tuple[str, str]]:
    of_rules = [
        (rule.get("alert") or rule["record"], rule["expr"]) for kind in ("alert", "record") for rule in rules(kind)
    ]
    return of_rules + [(each.panel, each.expression) for each in dashboard.queries(DASHBOARD, "1m")]


def test_rules_and_panels_use_only_what_is_exposed_or_recorded() -> None:
    metrics, recorded = exposed(), {rule["record"] for rule in rules("record")}
    used: set[str] = set()
    for where, expression in expressions():
        for name in re.findall(r"\b(?:\w+:)?ghostless[\w:]*", re.sub(r'"[^"]*"', '""', expression)):
            assert name in (recorded if ":" in name else metrics), f"{where}: {name} is neither exposed nor recorded"
            used.add(name)
        for name, matchers in re.findall(r"\b(ghostless_\w+)\{([^}]*)\}", expression):
            labels = set(re.findall(r"(\w+)\s*(?:=|!)", re.sub(r'"[^"]*"', '""', matchers)))
            assert labels <= metrics[name] | PER_SERIES, f"{where}: {name} has no {labels - metrics[name]}"
    shown = {re.sub(r"_(bucket|sum|count)$", "", name) for name in used}
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in metrics} <= shown, "a metric that nobody looks at"


def test_the_page_names_every_metric() -> None:
    told = set(re.findall(r"\w+", RUNBOOK.read_text()))
    names = {re.sub(r"_(bucket|sum|count)$", "", name).removeprefix("ghostless_") for name in exposed()}
    assert names <= told, names - told


def test_the_latency_objective_is_a_bucket_of_the_histogram() -> None:
    bounds = {f"{bound:g}" for bound in SECONDS}
    objectives = {le for _, expression in expressions() for le in re.findall(r'le="([^"]+)"', expression)}
    assert objectives
    assert objectives <= bounds


def test_the_dashboard_is_whole() -> None:
    panels = dashboard.panels(DASHBOARD)
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert dashboard.variables(DASHBOARD) == {"datasource", *dashboard.EVERYTHING}
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        assert panel["description"], panel["title"]
        assert panel["targets"], panel["title"]
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, f"{panel['title']} lies over another panel"
        taken |= cells


def test_the_manifest_is_written_as_it_is(tmp_path: Path) -> None:
    copied = tmp_path / "deploy"
    shutil.copytree(ROOT / "deploy", copied)
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "prometheusrule", tmp_path / "tools")
    written = copied / "kubernetes" / "rules.yaml"
    before = written.read_text()
    written.write_text("")
    assert run(sys.executable, tmp_path / "tools" / "prometheusrule").returncode == 0
    assert written.read_text() == before
