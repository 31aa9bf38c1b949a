"""examples/scheduled: the alert rules and the dashboard name only exported metrics."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from reconciler.decide.drift_check import DriftClass
from reconciler.decide.plan import Action
from reconciler.render.prometheus import MetricSource
from reconciler.watch import CheckReport, WatchState, watch_figures
from tests.pages import names, table

FOLDER = Path(__file__).parents[2] / "examples/scheduled"
ALERTS, DASHBOARD = FOLDER / "alerts.yml", FOLDER / "dashboard.json"
_NAME = re.compile(r"\breconciler_\w+")
_SELECTOR = re.compile(r"(reconciler_\w+)(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'(\w+)(=~|!=|!~|=)"((?:[^"\\]|\\.)*)"')


def _exported() -> dict[str, dict[str, set[str]]]:
    """Return each exported metric with the values of each label; {} for any."""
    result = CheckReport(
        exit_code=0, has_compared=True, summary=dict.fromkeys(DriftClass, 0), plan=dict.fromkeys(Action, 0)
    )
    state = WatchState().after(result, 0.0)
    closed: dict[str, set[Any]] = {"class": set(DriftClass), "action": set(Action)}
    closed["command"] = {"watch", "drift", "plan", "apply"}
    return {
        figure.name: {label: {str(v) for v in closed.get(label, ())} for label in figure.samples[0][0]}
        for figure in watch_figures(state, MetricSource("s", "t"))
    }


EXPORTED = _exported()


RULES = [rule for group in YAML(typ="safe", pure=True).load(ALERTS)["groups"] for rule in group["rules"]]
PANELS: list[dict[str, Any]] = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
SHOWN = [target["expr"] for panel in PANELS for target in panel["targets"]]


@pytest.mark.parametrize("expression", [*(rule["expr"] for rule in RULES), *SHOWN])
def test_metric_expression_selects_exported_series(expression: str) -> None:
    selected = list(_SELECTOR.finditer(expression))
    assert selected
    for name, matchers in (found.groups() for found in selected):
        assert name in EXPORTED
        for label, operator, value in _MATCHER.findall(matchers or ""):
            assert label in EXPORTED[name]
            assert _can_match(EXPORTED[name][label], operator, value), f"{label}{operator}{value}"
    for opening, closing in ("()", "[]", "{}"):
        assert expression.count(opening) == expression.count(closing)
    for grouped in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression):
        labels = {label.strip() for label in grouped.split(",")}
        assert any(labels <= EXPORTED[name].keys() for name in _NAME.findall(expression))


def _can_match(values: set[str], operator: str, value: str) -> bool:
    """Whether every alternative of a matcher is a possible value; variables match any."""
    if not values or "$" in value:
        return True
    return set(value.split("|") if "~" in operator else [value]) <= values


def test_page_lists_each_alert() -> None:
    assert names(table("docs/operations/metrics.md", "Alerts", "alert")) == [rule["alert"] for rule in RULES]


def test_dashboard_shows_each_metric() -> None:
    assert {name for expression in SHOWN for name in _NAME.findall(expression)} == EXPORTED.keys()


def test_every_failure_has_an_alert_with_instructions() -> None:
    rules = {rule["alert"]: rule for rule in RULES}
    assert len(rules) == len(RULES)
    for rule in rules.values():
        assert {"summary", "description"} <= rule["annotations"].keys()
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
    troubles = ("Drift", "CheckFailed", "CheckOld", "NotificationsFailed", "PlanNotApplied")
    assert rules.keys() >= {f"Reconciler{one}" for one in troubles}


def test_promtool_accepts_the_rules() -> None:
    if (promtool := shutil.which("promtool")) is None:
        pytest.skip("promtool is not installed")
    done = subprocess.run([promtool, "check", "rules", str(ALERTS)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
