"""docs/concepts/revisions.md, "Comparison": released digests stay valid, however a manifest is spelt.

`digests_of_0_1_0.json` holds manifests with the digests computed by version 0.1.0. It never changes; a
version with a new letter adds its own file.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.body import CURRENT, digest_of
from reconciler.core.phase import Phase
from reconciler.core.scalar import spelled
from reconciler.core.stack import DesiredJob
from reconciler.decide.plan import Action, Reason
from reconciler.decide.planner import details_needed, needs_history
from reconciler.manifest import load
from reconciler.plan_file import failed_preconditions
from tests.builders import NOW, a_job, a_stack, made_by_0_1_0, seen
from tests.core.history import a_memory, past
from tests.core.test_decision_table import decided, plan_for
from tests.core.worlds import a_look

CORPUS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("digests_of_0_1_0.json").read_text())


def jobs_of(case: dict[str, Any], root: Path) -> dict[str, DesiredJob]:
    (root / "main.yaml").write_text(case["manifest"], encoding="utf-8")
    files = [root / name for name in case.get("var_files", {})]
    for file in files:
        file.write_text(case["var_files"][file.name], encoding="utf-8")
    loaded = load(
        [root], variables=case.get("variables", {}), var_files=files, environ=case.get("environ", {})
    )
    return dict(loaded.stack.jobs)


#: Where `raw` is sent unchanged. An infinite number is no JSON, so none was ever sent.
SENT_AS_NUMBERS = ("scalars as raw-unknown", "scalars as raw-period", "scalars as raw-count")


def without_endless_numbers(case: dict[str, Any]) -> dict[str, Any]:
    """The case without entries that could never be sent, and are now refused."""
    if case["name"] not in SENT_AS_NUMBERS:
        return case
    head, *entries = re.split(r"(?m)^(?=  \w+:$)", case["manifest"])
    kept = [entry for entry in entries if not re.search(r"(?i)\.(?:inf|nan)\b", entry)]
    assert len(kept) == len(entries) - 3
    keys = {entry.split(":")[0].strip() for entry in kept}
    digests = {key: digest for key, digest in case["digests"].items() if key in keys}
    return {**case, "manifest": "".join((head, *kept)), "digests": digests}


@pytest.mark.parametrize("case", CORPUS, ids=[case["name"] for case in CORPUS])
def test_digest_of_version_0_1_0_matches_the_declaration(case: dict[str, Any], tmp_path: Path) -> None:
    """A failure here means that an upgrade would replace running jobs: use a new letter."""
    case = without_endless_numbers(case)
    jobs = jobs_of(case, tmp_path)
    assert {key: digest_of(job.covered_by("a"), "a") for key, job in jobs.items()} == case["digests"]
    assert {key for key, job in jobs.items() if not job.is_declared_by(case["digests"][key])} == set()
    assert {job.digest[0] for job in jobs.values()} == {CURRENT}


# --- decisions about a job made by version 0.1.0


SPELLED: dict[str, Any] = {"algorithm__parameters": {"lr": spelled(1.1, "1.10")}}
EDITED: dict[str, Any] = {"algorithm__parameters": {"lr": spelled(1.1, "1.10"), "epochs": 9}}


@pytest.mark.parametrize("entry", [{}, SPELLED, {"lifecycle": {"rerun": spelled(2, "002")}}])
@pytest.mark.parametrize(
    ("phase", "reason"), [(Phase.RUNNING, Reason.UNCHANGED), (Phase.COMPLETED, Reason.COMPLETED)]
)
def test_job_created_by_version_0_1_0_is_kept(entry: dict[str, Any], phase: Phase, reason: Reason) -> None:
    desired = a_job(**entry)
    then = made_by_0_1_0(desired)
    assert then.digest != desired.digest
    kept = decided(desired, seen(then, phase=phase))
    assert (kept.action, kept.reason) == (Action.KEEP, reason)


def test_plan_for_an_unchanged_job_of_0_1_0_reads_no_details_and_no_history() -> None:
    desired = a_job(**SPELLED)
    stack, job = a_stack(desired), seen(made_by_0_1_0(desired))
    look = a_look(stack, job)
    assert details_needed(stack, look) == ()
    assert not needs_history(stack, look, {})


def test_revisions_under_the_old_digest_count_as_those_of_the_key() -> None:
    desired = a_job(**SPELLED, lifecycle={"on_failure": "retry", "max_retries": 1})
    jobs = [seen(made_by_0_1_0(desired), phase=Phase.FAILED), seen(desired, revision=2, phase=Phase.FAILED)]
    assert decided(desired, *jobs).reason is Reason.RETRIES_EXHAUSTED
    kept = decided(a_job(**SPELLED), memory=a_memory(past(made_by_0_1_0(a_job(**SPELLED)))))
    assert (kept.action, kept.reason) == (Action.KEEP, Reason.AGED_OUT)


@pytest.mark.parametrize("is_remembered", [True, False])
def test_edit_of_a_job_of_0_1_0_changes_only_the_edited_field(is_remembered: bool) -> None:
    then = made_by_0_1_0(a_job(**SPELLED))
    job = seen(then)
    memory = a_memory(past(then, job=job)) if is_remembered else a_memory()
    action = decided(a_job(**EDITED), job, memory=memory)
    assert [(c.path, c.before, c.after) for c in action.changes] == [
        ("algorithm.parameters.epochs", None, "9")
    ]
    assert action.after is not None
    assert action.after.digest[0] == CURRENT


def test_update_of_a_job_of_0_1_0_keeps_its_digest_and_records_its_declaration() -> None:
    desired = a_job(**SPELLED, description="new")
    then = made_by_0_1_0(a_job(**SPELLED))
    action = decided(desired, seen(then))
    assert (action.action, action.after and action.after.digest) == (Action.UPDATE, then.digest)
    assert action.declared is not None
    assert digest_of(dict(action.declared.immutable), "a") == then.digest


def test_saved_plan_of_a_create_with_the_old_digest_is_stale() -> None:
    stack = a_stack(a_job())
    plan = plan_for(stack)
    look = a_look(stack)
    assert failed_preconditions(plan, look, NOW) == ()
    [action] = plan.actions
    assert action.after is not None
    after = action.after.model_copy(update={"digest": "a" + action.after.digest[1:]})
    old = plan.model_copy(update={"actions": (action.model_copy(update={"after": after}),)})
    assert failed_preconditions(old, look, NOW) == (
        f"a: digest {after.digest} was computed by another version of reconciler",
    )
