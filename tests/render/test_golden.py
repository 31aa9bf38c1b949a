"""Renderers are tested by readable files; `UPDATE_GOLDEN=1 pytest` rewrites them."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import date
from functools import cache
from pathlib import Path

import pytest

from reconciler.core.observed import Unreadable
from reconciler.core.stack import Effect, IgnoreRule, Policy, Stack
from reconciler.core.values import timestamp
from reconciler.decide.drift import DriftReport, with_comparison
from reconciler.decide.drift_check import LastCheck, StandingDrift, compare, content_of
from reconciler.decide.outcome import Outcome, Result, Status
from reconciler.decide.plan import Action, Plan, count, last_line
from reconciler.errors import Diagnostic, Location, Severity, Snippet
from reconciler.render import Content, Style, View, render
from reconciler.render.text import render_diagnostics
from tests.builders import HOUR, NOW, a_job, a_stack, absent, seen
from tests.core.test_decision_table import OLD, plan_for
from tests.core.test_drift import report

GOLDEN = Path(__file__).parent / "golden"


def check(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), "if it is meant: UPDATE_GOLDEN=1 pytest tests/render"


def placed(stack: Stack) -> Stack:
    """The same stack with a location for each job."""
    jobs = enumerate(stack.jobs.items(), 1)
    return replace(
        stack, jobs={key: replace(job, location=Location("jobs.yaml", 10 * n, 3)) for n, (key, job) in jobs}
    )


A_POLICY = Policy(
    name="five-nodes",
    effect=Effect.DENY,
    expression='job.key == "denied"',
    message="more than five nodes need the platform team",
    location=Location("jobs.yaml", 4, 7),
)


@cache
def every_action() -> Plan:
    retry = {"on_failure": "retry"}
    stack = a_stack(
        a_job("blocked"),
        a_job("conflict"),
        a_job("create"),
        a_job("defer", lifecycle=retry),
        a_job("keep"),
        a_job("replace", algorithm__inputs={"data": "obs://b/in/"}),
        a_job("replace-first", lifecycle={"replace_order": "create_first"}),
        absent("terminate"),
        a_job("unknown"),
        a_job("update", description="the new words"),
        a_job("waits", spec__schedule_policy={"priority": 3}),
        a_job("denied"),
        policies=(A_POLICY,),
    )
    return plan_for(
        placed(stack),
        seen(a_job("blocked", **OLD), protected=True),
        seen(a_job("conflict", **OLD), ran_s=30 * HOUR, node_count=8),
        seen(a_job("defer"), phase="Failed", ended_s_ago=30),
        seen(a_job("keep")),
        seen(a_job("replace", **OLD), ran_s=HOUR / 2),
        seen(a_job("replace-first", **OLD)),
        seen(a_job("terminate"), ran_s=2 * HOUR, node_count=4),
        seen(a_job("update"), text="the old words"),
        seen(a_job("waits", spec__schedule_policy={"priority": 3}), body=a_job("waits").body),
        unreadable=(Unreadable("status.phase is missing", name="unknown"),),
    )


DECLARED = ("done", "edited", "failed", "gone", "ahead")
FOUND = (
    seen(a_job("done"), phase="Completed"),
    seen(a_job("edited"), text="by hand"),
    seen(a_job("failed"), phase="Failed", ended_s_ago=HOUR),
    seen(a_job("ahead", **OLD)),
    seen(a_job("orphan")),
)


@cache
def drifted() -> DriftReport:
    """Drift of several classes, and a pending change."""
    return report(placed(a_stack(*map(a_job, DECLARED))), *FOUND)


@cache
def compared() -> DriftReport:
    """The same since the last check: two ignored, one gone."""
    rules = (
        IgnoreRule("f*", "failed", "known gap", date(2999, 12, 31), Location("jobs.yaml", 6, 5)),
        IgnoreRule("old", "terminated", "we know", None, Location("jobs.yaml", 7, 5)),
    )
    stack = placed(a_stack(*map(a_job, (*DECLARED, "old"))))
    old = seen(a_job("old"), phase="Terminated", ended_s_ago=2 * HOUR)
    found = report(replace(stack, ignored_drift=rules), *FOUND, old, seen(a_job("orphan-2")))
    by_key = {entry.key: entry for entry in (*found.drift, *found.ignored)}
    over = by_key["old"].model_copy(update={"key": "repaired", "since": timestamp(NOW - HOUR)})
    standing = [
        StandingDrift(by_key["edited"], "another text", NOW - HOUR),
        StandingDrift(by_key["orphan"], content_of(by_key["orphan"], str), NOW - HOUR),
        StandingDrift(by_key["old"], content_of(by_key["old"], str), NOW - HOUR),
        StandingDrift(over, "it", NOW - HOUR),
    ]
    every = (*found.drift, *found.ignored)
    comparison = compare(LastCheck(NOW - HOUR / 2, tuple(standing)), every, found.is_conclusive, at_s=NOW)
    return with_comparison(found, comparison, since_last=True)


def test_golden_plan_has_every_action() -> None:
    kinds = {action.action for action in every_action().actions}
    assert kinds == set(Action), "add a job for it to every_action"


def edited_sweep() -> Plan:
    """The same change on five jobs, another on a sixth, and a bad end."""
    keys = [f"sweep-lr-0_{n}" for n in range(5)]
    stack = a_stack(
        a_job("bad"),
        a_job("new", spec__auto_stop={"time_unit": "HOURS", "duration": 48}),
        a_job("other", algorithm__parameters={"lr": 9}),
        *(a_job(key) for key in keys),
        *(a_job(f"{key}-done") for key in keys),
    )
    return plan_for(
        stack,
        seen(a_job("bad"), phase="Failed"),
        seen(a_job("other", **OLD), ran_s=600),
        *(seen(a_job(key, **OLD), ran_s=600.0 * n, node_count=2) for n, key in enumerate(keys, 1)),
        *(seen(a_job(f"{key}-done", **OLD), phase="Completed") for key in keys),
        allow=("reruns",),
    )


@pytest.mark.parametrize("format_", ["text", "markdown"])
def test_same_change_on_five_jobs_is_shown_once_with_the_keys(format_: str) -> None:
    check(f"plan-folded.{format_}", render(Content.PLAN, edited_sweep(), format_, View()))


def test_verbose_plan_shows_each_key_and_the_whole_body_of_each_start() -> None:
    check("plan-verbose.text", render(Content.PLAN, edited_sweep(), "text", View(verbose=True)))


def test_plan_in_colour_is_as_in_the_golden_file() -> None:
    check("plan.ansi", render(Content.PLAN, every_action(), "text", View(Style(colour=True))))


def test_last_line_of_a_plan_is_fixed() -> None:
    summary = count([]) | {Action.CREATE: 1, Action.REPLACE: 1, Action.KEEP: 12}
    fixed = "Plan: 1 to create, 0 to update, 1 to replace, 0 to terminate, 12 to keep."
    assert last_line(summary) == fixed
    more = dict.fromkeys((Action.DEFER, Action.BLOCKED, Action.CONFLICT, Action.UNKNOWN), 1)
    assert last_line(summary | more) == f"{fixed} 1 deferred, 1 blocked, 1 in conflict, 1 unknown."
    ended = "1 deferred, 1 blocked, 1 in conflict, 1 unknown, 2 kept although they ended badly."
    assert last_line(summary | more, ended_badly=2) == f"{fixed} {ended}"
    again = "60 of them run finished work again."
    assert last_line(summary | more, ended_badly=2, reruns=60) == f"{fixed} {ended} {again}"
    assert last_line(summary, ended_badly=2) == f"{fixed} 2 kept although they ended badly."
    assert last_line(summary, reruns=60) == f"{fixed} {again}"


REJECTED = "the service rejected the request: full (ModelArts.2815, HTTP 400)"


def interrupted_result() -> Result:
    """The result of the plan of every action: done, failed, timed out, skipped."""
    actions = {action.key: action for action in every_action().actions}
    return Result(
        (
            Outcome(actions["create"], Status.DONE, job="id"),
            Outcome(actions["replace"], Status.TIMED_OUT, "replace is still Terminating after 600 s"),
            Outcome(actions["update"], Status.FAILED, REJECTED),
            Outcome(actions["defer"], Status.SKIPPED, actions["defer"].detail),
        ),
        interrupted=True,
    )


def test_diagnostics_match_the_golden_text() -> None:
    why, fix = '"node_cout" is not one of flavor_id, node_count, pool_id', 'did you mean "node_count"?'
    place, line = Location("examples/first-job/jobs.yaml", 14, 9), Snippet("        node_cout: 2", 8, 9)
    problems = [
        Diagnostic("unknown field", why, fix, place, "jobs.resnet50.spec.resource", line),
        Diagnostic("the service cannot be reached", "connection refused \x1b[2J"),
        Diagnostic("a literal secret", severity=Severity.WARNING, path="variables.token"),
    ]
    check("diagnostics.text", render_diagnostics(problems))
