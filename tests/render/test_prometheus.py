"""Metrics, parsed by the Prometheus client."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from reconciler.decide.outcome import RunReport
from reconciler.render import View, render_run
from reconciler.text import printable


@pytest.mark.parametrize("text", ['a"b', "a\\b", "a\nb", "a}b 1", "\x1b[2J"])
def test_run_metrics_have_result_time_and_escaped_labels(text: str) -> None:
    run = RunReport("drift", text, "local", is_success=True, ended_at_s=1_800_000_000.5, duration_s=1.25)
    families = list(text_string_to_metric_families(render_run("prometheus", View(run=run))))
    samples = [sample for family in families for sample in family.samples]
    labels = {"stack": printable(text), "target": "local", "command": "drift"}
    assert all(family.documentation for family in families)
    assert [(one.name.removeprefix("reconciler_"), one.labels, one.value) for one in samples] == [
        ("run_success", labels, 1),
        ("run_timestamp_seconds", labels, 1_800_000_000.5),
        ("run_duration_seconds", labels, 1.25),
        ("notifications_failed_total", labels, 0),
    ]
