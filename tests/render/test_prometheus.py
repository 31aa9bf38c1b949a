"""Metrics, as the parser of Prometheus' own client reads them."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from reconciler.decide.metrics import RunReport
from reconciler.render import Content, View, render, render_run
from reconciler.text import printable
from tests.render.test_golden import every_action

RUN = RunReport("plan", "vision", "local", is_success=True, ended_at_s=1_800_000_000.5, duration_s=1.25)


def samples(text: str) -> dict[tuple[str, str], float]:
    """Name and last label → value; every sample says whose it is."""
    found = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        for sample in family.samples:
            labels = dict(sample.labels)
            assert (labels.pop("stack"), labels.pop("target")) == ("vision", "local")
            ((_, value),) = labels.items()
            found[sample.name, value] = sample.value
    return found


@pytest.mark.parametrize("is_success", [True, False])
def test_run_says_how_and_when_it_ended(is_success: bool) -> None:
    run = RunReport("drift", "vision", "local", is_success, ended_at_s=1_800_000_000.5, duration_s=1.25)
    assert samples(render_run("prometheus", View(run=run))) == {
        ("reconciler_run_success", "drift"): float(is_success),
        ("reconciler_run_timestamp_seconds", "drift"): 1_800_000_000.5,
        ("reconciler_run_duration_seconds", "drift"): 1.25,
        ("reconciler_notifications_failed_total", "drift"): 0,
    }


def test_plan_of_a_run_has_both() -> None:
    names = {name for name, _ in samples(render(Content.PLAN, every_action(), "prometheus", View(run=RUN)))}
    assert {"reconciler_plan_actions", "reconciler_run_success"} <= names


@pytest.mark.parametrize("text", ['a"b', "a\\b", "a\nb", "a}b 1", "\x1b[2J"])
def test_label_is_escaped(text: str) -> None:
    run = RunReport("plan", text, "local", is_success=True, ended_at_s=0, duration_s=0)
    families = text_string_to_metric_families(render_run("prometheus", View(run=run)))
    values = {sample.labels["stack"] for family in families for sample in family.samples}
    assert values == {printable(text)}
