"""Equal statements about five or more jobs are shown once in text; documents are never folded."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from reconciler.core.observed import Unreadable
from reconciler.core.stack import DesiredJob
from reconciler.core.values import PlanWarning
from reconciler.decide.outcome import Outcome, Result, Status
from reconciler.decide.plan import Action, Plan
from reconciler.errors import FOLD_FROM, Location
from reconciler.render import Content, Style, View, render
from reconciler.render.reports import result_text as render_result
from reconciler.render.sheet import sheet_of
from reconciler.render.text import INDENT, render_warnings
from tests.builders import a_job, a_stack, absent, seen
from tests.core.test_decision_table import OLD, plan_for
from tests.core.test_drift import report

#: More than fit on the lines of a list that may be cut.
MANY = 80
ENTRY = Location("jobs.yaml", 5, 3)


def keys(count: int, word: str = "job") -> list[str]:
    return [f"{word}-{number:02}" for number in range(count)]


def sweep(names: Sequence[str], **changed: Any) -> list[DesiredJob]:
    """Members of one matrix, with one location."""
    return [replace(a_job(key, **changed), location=ENTRY) for key in names]


def text_of(plan: Plan, view: View | None = None) -> str:
    return render(Content.PLAN, plan, "text", view or View())


def names_in(text: str, names: Sequence[str]) -> list[str]:
    """Return the named keys, in braces or alone."""
    spread = re.sub(r"([\w-]+)\{(.+?)\}", lambda m: ", ".join(m[1] + one for one in m[2].split(",")), text)
    return [name for name in names if re.search(rf"(?<![\w-]){name}(?![\w-])", spread)]


# ── plans ──────────────────────────────────────────────────────────────────────────────────────────


def test_creates_of_one_sweep_are_shown_once_with_resources_and_count() -> None:
    text = text_of(plan_for(a_stack(*sweep(keys(64)))))
    lines = text.splitlines()
    assert lines[2] == "  + create    64 jobs  r1   new"
    assert lines[-3] == f"{INDENT}each: 1 × modelarts.vm.cpu.2u, pytorch"
    assert lines[-1] == "Plan: 64 to create, 0 to update, 0 to replace, 0 to terminate, 0 to keep."
    assert len(lines) <= 10


def test_differing_creates_of_one_sweep_are_counted_per_resource() -> None:
    large = sweep(keys(3, "large"), spec__resource={"flavor_id": "p3", "node_count": 8})
    text = text_of(plan_for(a_stack(*sweep(keys(6, "small")), *large)))
    assert "9 jobs" in text
    assert f"{INDENT}6 jobs: 1 × modelarts.vm.cpu.2u, pytorch\n" in text
    assert f"{INDENT}3 jobs: 8 × p3, pytorch\n" in text


def test_four_members_of_a_sweep_are_shown_one_by_one() -> None:
    assert text_of(plan_for(a_stack(*sweep(keys(FOLD_FROM - 1))))).count("+ create") == 4


@pytest.mark.parametrize("action", [Action.REPLACE, Action.TERMINATE, Action.UNKNOWN, Action.CONFLICT])
def test_key_list_that_needs_review_is_never_cut(action: Action) -> None:
    names = keys(MANY)
    lifecycle = {"on_change": "fail"} if action is Action.CONFLICT else {}
    declared = [a_job(key, lifecycle=lifecycle) for key in names if action is not Action.TERMINATE]
    unreadable = tuple(Unreadable("x", name=key) for key in names if action is Action.UNKNOWN)
    plan = plan_for(a_stack(*declared), *(seen(a_job(key, **OLD)) for key in names), unreadable=unreadable)
    assert plan.summary[action] == MANY
    text = text_of(plan)
    assert names_in(text, names) == names
    assert text.count(action.value) < 10


def test_kept_jobs_that_ended_badly_are_all_named() -> None:
    names = keys(MANY)
    stack = a_stack(*map(a_job, names))
    text = text_of(plan_for(stack, *(seen(a_job(key), phase="Failed") for key in names)))
    assert names_in(text, names) == names


#: A sweep in matrix order, and its brace form.
MATRIX = [f"s-batch-{batch}-lr-{lr}" for lr in ("0_1", "0_01", "0_001") for batch in (64, 128, 256)]
IN_BRACES = f"{INDENT}s-batch-{{64,128,256}}-lr-{{0_1,0_01,0_001}}"
OTHERS = [*"ecadb"]


@pytest.mark.parametrize(
    ("names", "named"), [(MATRIX, IN_BRACES), (OTHERS, INDENT + "{e,c,a,d,b}")], ids=["sweep", "others"]
)
@pytest.mark.parametrize("width", [None, 80])
@pytest.mark.parametrize("action", [Action.CREATE, Action.REPLACE, Action.UPDATE, Action.TERMINATE])
def test_same_action_is_shown_once_with_braces_in_manifest_order(
    action: Action, width: int | None, names: list[str], named: str
) -> None:
    declared = [absent(key) if action is Action.TERMINATE else a_job(key) for key in names]
    was = OLD if action is Action.REPLACE else {"description": "other"} if action is Action.UPDATE else {}
    ran = [seen(a_job(key, **was)) for key in names] if action is not Action.CREATE else []
    plan = plan_for(a_stack(*declared), *ran, allow=("terminations",))
    assert plan.summary[action] == len(names)
    view = View(Style(width=width), plan=plan)
    lines = text_of(plan, view).splitlines()
    assert lines[2].split()[1:4] == [action, str(len(names)), "jobs"]
    assert lines[3] == named
    done = Result(tuple(Outcome(one, Status.DONE) for one in plan.actions))
    assert named.split("}")[0] in render_result(done, view)
    folded = sheet_of(Content.PLAN, plan, view).folded[0], sheet_of(Content.RESULT, done, view).folded[0]
    assert [row.keys for row in folded] == [tuple(names)] * 2


def test_long_brace_list_is_wrapped_after_commas() -> None:
    names = [f"training-{number:03}" for number in range(40)]
    plan = plan_for(a_stack(*map(a_job, names)), *(seen(a_job(key, **OLD)) for key in names))
    [first, *rest] = text_of(plan, View(Style(width=60))).splitlines()[3:7]
    assert first == f"{INDENT}training-{{000,001,002,003,004,005,006,007,008,009,"
    assert all(line.startswith(f"{INDENT}0") and len(line) <= 60 for line in rest)


def test_retries_with_different_due_times_are_shown_once() -> None:
    declared = [a_job(key, lifecycle={"on_failure": "retry", "retry_delay": "1h"}) for key in keys(6)]
    ran = [seen(job, phase="Failed", ended_s_ago=60.0 - n) for n, job in enumerate(declared)]
    [line] = [line for line in text_of(plan_for(a_stack(*declared), *ran)).splitlines() if "> defer" in line]
    assert line.endswith("6 jobs  r1   failed; retry 1 of 1, the first at 2027-01-15T08:59:00Z")


@pytest.mark.parametrize("owner", ["other", None])
def test_names_taken_by_other_jobs_are_shown_once(owner: str | None) -> None:
    declared = [a_job(key) for key in keys(5)]
    seen_as: dict[str, Any] = {"stack": owner} if owner else {"description": "by hand"}
    taken = [seen(job, **seen_as) for job in declared]
    plan = plan_for(a_stack(*declared), *taken)
    [line] = [line for line in text_of(plan).splitlines() if "! conflict" in line]
    assert "5 jobs" in line
    assert " KEY is taken by job JOB (" in line
    assert ("(there: reconciler release KEY)" if owner else "(reconciler adopt KEY JOB)") in line
    skipped = Result(tuple(Outcome(one, Status.SKIPPED, one.detail) for one in plan.actions))
    assert "conflict 5 jobs: KEY is taken by job JOB (" in render_result(skipped, View(plan=plan))


def test_forced_replacement_is_explained_once() -> None:
    jobs = [seen(a_job(key, algorithm__parameters={"lr": n})) for n, key in enumerate(keys(5))]
    text = text_of(plan_for(a_stack(*map(a_job, keys(5))), *jobs))
    assert (text.count("  # forces a new job\n"), text.count("  # new job\n")) == (1, 4)


def test_same_warning_of_several_keys_is_shown_once() -> None:
    warned = [PlanWarning(what="policy big", why="ask", key=key) for key in sorted(MATRIX)]
    lines = [*render_warnings([*warned, PlanWarning(what="other", why="x")], Style(), MATRIX)]
    assert lines == [f"warning: {IN_BRACES.strip()}: policy big: ask", "warning: other: x"]


def test_differing_revisions_are_shown_beside_their_keys() -> None:
    names = keys(6)
    jobs = [seen(a_job(key, **OLD), revision=1 + number % 2) for number, key in enumerate(names)]
    text = text_of(plan_for(a_stack(*map(a_job, names)), *jobs))
    assert "job-00 r2, job-01 r3, job-02 r2" in text


def test_long_list_of_needed_keys_counts_the_rest() -> None:
    upstream = keys(64)
    down = replace(a_job("down"), needs=tuple(upstream))
    text = text_of(plan_for(a_stack(*sweep(upstream), down)))
    assert "waiting for job-00, job-01, job-02 and 61 more, then create" in text


def test_json_is_never_folded() -> None:
    document = json.loads(render(Content.PLAN, plan_for(a_stack(*sweep(keys(64)))), "json", View()))
    assert [action["key"] for action in document["actions"]] == keys(64)


# ── drift, results ─────────────────────────────────────────────────────────────────────────────────


def test_drift_of_many_jobs_is_shown_once_and_names_every_key() -> None:
    names = keys(MANY)
    found = report(a_stack(*map(a_job, names)), *(seen(a_job(key), phase="Failed") for key in names))
    text = render(Content.DRIFT, found, "text", View())
    assert names_in(text, names) == names
    assert text.count("failed") <= 3
    assert f"{MANY} jobs  the job ended as Failed (at" in text
    document = json.loads(render(Content.DRIFT, found, "json", View()))
    assert len(document["drift"]) == MANY


def test_differing_drift_is_shown_one_by_one() -> None:
    jobs = [seen(a_job(key), text=f"by hand {key}") for key in "abcdef"]
    text = render(Content.DRIFT, report(a_stack(*map(a_job, "abcdef")), *jobs), "text", View())
    assert text.count("  modified ") == 6


def test_pending_changes_of_many_jobs_are_shown_once() -> None:
    names = keys(MANY)
    found = report(a_stack(*map(a_job, names)), *(seen(a_job(key, **OLD)) for key in names))
    text = render(Content.DRIFT, found, "text", View())
    assert f"pending    {MANY} jobs  changed since r1 (Running)" in text
    assert re.search(r"and \d+ more$", text, re.MULTILINE)


@pytest.mark.parametrize("phase", ["Failed", "Running"])
def test_drift_and_pending_changes_are_in_manifest_order(phase: str) -> None:
    edited = OLD if phase == "Running" else {}
    found = report(a_stack(*map(a_job, MATRIX)), *(seen(a_job(key, **edited), phase=phase) for key in MATRIX))
    assert IN_BRACES in render(Content.DRIFT, found, "text", View()).splitlines()


def outcomes(status: Status, detail: str = "") -> Result:
    plan = plan_for(a_stack(*sweep(keys(MANY))))
    return Result(tuple(Outcome(action, status, detail) for action in plan.actions))


def test_equal_outcomes_of_many_jobs_are_shown_once() -> None:
    lines = render_result(outcomes(Status.DONE), View()).splitlines()
    assert lines[0] == f"  succeeded create {MANY} jobs"
    assert re.fullmatch(rf"{INDENT}job-{{00,01,.*}}, and \d+ more", lines[1])
    assert len(lines) == 3
    assert lines[-1] == f"Applied: {MANY} succeeded."


def test_failures_of_many_jobs_name_every_key() -> None:
    text = render_result(outcomes(Status.FAILED, "quota exceeded"), View())
    assert text.startswith(f"  failed    create {MANY} jobs: quota exceeded\n")
    assert names_in(text, keys(MANY)) == keys(MANY)
