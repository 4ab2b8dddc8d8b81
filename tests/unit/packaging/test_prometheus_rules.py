"""Alert rules and the dashboard use metrics that exist, and Prometheus' own tool accepts them."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from penstock.control.metric_families import FAMILIES
from scripts.write_dashboard import DOCUMENT, dashboard, expressions
from tests.support.metric_names import exposed_names, process_names

RULES = Path(__file__).resolve().parents[3] / "packaging" / "prometheus"
METRIC = re.compile(r"\b(?:penstock|process)_[a-z0-9_]+\b(?!\.yml)")

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed"
)


def told_names() -> set[str]:
    """Every name that a scrape may have."""
    return process_names().union(*(exposed_names(family) for family in FAMILIES.values()))


def promtool(*words: str) -> None:
    done = subprocess.run(
        ["promtool", *words], capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["penstock_alerts.yml", "penstock_alerts_test.yml"])
def test_rules_and_their_tests_name_metrics_that_exist(name: str) -> None:
    families = {family.full_name for family in FAMILIES.values()}  # in the texts
    named = set(METRIC.findall((RULES / name).read_text()))
    assert named
    assert named <= told_names() | families


def test_every_alert_is_tested() -> None:
    alerts = set(re.findall(r"alert: (\w+)", (RULES / "penstock_alerts.yml").read_text()))
    tested = set(re.findall(r"Penstock\w+", (RULES / "penstock_alerts_test.yml").read_text()))
    assert alerts == tested
    document = RULES.parents[1] / "docs" / "monitoring.md"
    assert f"has {len(alerts)} alert rules" in document.read_text()


@needs_promtool
def test_rules_fire_as_their_tests_say() -> None:
    promtool("check", "rules", str(RULES / "penstock_alerts.yml"))
    promtool("test", "rules", str(RULES / "penstock_alerts_test.yml"))


def test_the_dashboard_is_what_its_table_says_and_uses_metrics_that_exist() -> None:
    assert DOCUMENT.read_text() == dashboard(), "out of date: run `make docs`"
    named = {name for text in expressions() for name in METRIC.findall(text)}
    assert named <= told_names()
    panels = json.loads(dashboard())["panels"]
    numbers = [panel["id"] for panel in panels]
    assert len(numbers) == len(set(numbers))


@needs_promtool
def test_prometheus_understands_every_expression_of_the_dashboard(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": text} for number, text in enumerate(expressions())
    ]
    file = tmp_path / "panels.yml"
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    promtool("check", "rules", str(file))
