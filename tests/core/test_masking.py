"""The value before a change is hidden if a record calls it sensitive, or if it looks so.

Source: docs/semantics.md, "Secrets".
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reconciler.core.canonical import by_name
from reconciler.core.digest import CURRENT
from reconciler.core.masking import LOOKS_SECRET, mask
from reconciler.core.phase import Phase
from reconciler.core.stack import Declared
from reconciler.core.values import Change
from reconciler.secrets import REDACTED, SecretText
from tests.builders import a_job, a_stack, seen
from tests.core.history import a_memory, past
from tests.core.test_decision_table import plan_for

RANDOM = "x9Kd83jsLq02mZpT7vBnR4cW"
PARAMETERS, ENVIRONMENTS = "algorithm.parameters", "algorithm.environments"


def removed(before: dict[str, Any], *then: dict[str, Any]) -> dict[str, Any]:
    """What a plan shows before each change when what the service reports of a job is declared no more.

    `then` are the declarations that the history has of earlier revisions.
    """
    job = a_job(**before)
    records = [past(a_job(**one), number + 1, Phase.COMPLETED) for number, one in enumerate(then)]
    newest = seen(job, revision=len(then) + 1)
    plan = plan_for(a_stack(a_job()), newest, memory=a_memory(*records))
    [action] = plan.actions
    return {change.path: (change.before, change.sensitive) for change in action.changes}


def environments(**values: Any) -> dict[str, Any]:
    return {"algorithm__environments": values}


# --- without a history


@pytest.mark.parametrize(
    ("before", "shown"),
    [
        (environments(NCCL_DEBUG="INFO"), {"NCCL_DEBUG": "INFO"}),
        (environments(HF_TOKEN="plain"), {"HF_TOKEN": LOOKS_SECRET}),
        (environments(NOTE=RANDOM), {"NOTE": LOOKS_SECRET}),
        (environments(A="1", KEY="2"), {"A": "1", "KEY": LOOKS_SECRET}),
    ],
)
def test_removed_environment_is_shown_unless_it_looks_like_a_secret(
    before: dict[str, Any], shown: dict[str, Any]
) -> None:
    found = removed(before)
    assert found[ENVIRONMENTS] == (shown, LOOKS_SECRET in shown.values())


@pytest.mark.parametrize(
    ("before", "path", "shown"),
    [
        ({"algorithm__parameters": {"lr": 0.1, "epochs": 90}}, f"{PARAMETERS}.epochs", "90"),
        ({"algorithm__parameters": {"lr": 0.1, "max_tokens": 512}}, f"{PARAMETERS}.max_tokens", "512"),
        ({"algorithm__parameters": {"lr": 0.1, "api_key": "x"}}, f"{PARAMETERS}.api_key", LOOKS_SECRET),
        ({"algorithm__parameters": {"lr": 0.1, "note": RANDOM}}, f"{PARAMETERS}.note", LOOKS_SECRET),
        (
            {"algorithm__parameters": {"lr": "hf_" + RANDOM}},
            f"{PARAMETERS}.lr",
            LOOKS_SECRET,
        ),  # edited, not removed
    ],
)
def test_parameter_read_back_from_details_is_shown_unless_it_looks_like_a_secret(
    before: dict[str, Any], path: str, shown: str
) -> None:
    assert removed(before)[path] == (shown, shown == LOOKS_SECRET)


def test_edited_command_with_a_secret_in_it_is_hidden_whole() -> None:
    def commanded(jobs_command: str) -> Change:
        return Change(
            path="algorithm.command", before=jobs_command, after="python train.py", forces_new_job=True
        )

    [hidden] = mask((commanded("python train.py --token hunter2"),))
    assert (hidden.before, hidden.after, hidden.sensitive) == (LOOKS_SECRET, "python train.py", True)
    open_one = commanded("python train.py --lr 0.1 --max_tokens 512")
    assert mask((open_one,)) == (open_one,)


def test_hint_names_a_command_that_exists() -> None:
    from reconciler.cli.jobs import jobs_command

    assert "reconciler jobs show JOB --json" in LOOKS_SECRET
    assert "--json" in [name for option in jobs_command.commands["show"].params for name in option.opts]


@pytest.mark.parametrize("path", ["marker.key", "lifecycle.protect"])
def test_own_fields_are_never_masked(path: str) -> None:
    change = Change(path=path, before="api-token", after="b")
    assert mask((change,)) == (change,)


def test_lists_are_masked_item_by_item() -> None:
    before = [{"exec": {"jobs_command": ["curl", f"https://u:{RANDOM}@host"]}}]
    [hidden] = mask((Change(path="spec.custom_metrics", before=before),))
    assert hidden.before == [{"exec": {"jobs_command": ["curl", LOOKS_SECRET]}}]


# --- with a history


SECRET: dict[str, Any] = {"algorithm__environments": {"NOTE": SecretText("open", "${var.note}")}}
OPEN: dict[str, Any] = {"algorithm__environments": {"NOTE": RANDOM, "HF_TOKEN": "plain"}}


def test_value_declared_sensitive_in_any_recorded_revision_is_masked() -> None:
    found = removed(environments(NOTE="open", OTHER="1"), SECRET)
    assert found[ENVIRONMENTS] == ({"NOTE": REDACTED, "OTHER": "1"}, True)


def test_value_recorded_as_not_sensitive_is_shown_whatever_it_looks_like() -> None:
    found = removed(environments(NOTE=RANDOM, HF_TOKEN="plain"), OPEN)
    assert found[ENVIRONMENTS] == ({"NOTE": RANDOM, "HF_TOKEN": "plain"}, False)


def test_value_sensitive_in_one_of_two_records_is_masked() -> None:
    found = removed(environments(NOTE=RANDOM), OPEN, SECRET)
    assert found[ENVIRONMENTS] == ({"NOTE": REDACTED}, True)


def test_value_without_a_record_is_masked_if_it_looks_like_a_secret() -> None:
    found = removed(environments(HF_TOKEN="another"), OPEN)
    assert found[ENVIRONMENTS] == ({"HF_TOKEN": LOOKS_SECRET}, True)


def test_name_of_a_secret_in_a_record_is_shown() -> None:
    declared = Declared(immutable=by_name(a_job(**SECRET).covered_by(CURRENT)))
    change = Change(path=f"{ENVIRONMENTS}.NOTE", before="${var.note}", after=None)
    assert mask((change,), [declared]) == (change,)


def test_change_is_masked_by_the_record_of_the_newest_revision() -> None:
    job = a_job(**OPEN)
    plan = plan_for(a_stack(a_job()), seen(job), memory=a_memory(past(job, 1, Phase.RUNNING)))
    [change] = plan.actions[0].changes
    assert (change.before, change.sensitive) == ({"NOTE": RANDOM, "HF_TOKEN": "plain"}, False)


def test_mutable_field_is_masked_like_any_other() -> None:
    job = a_job(description="new")
    [action] = plan_for(a_stack(job), seen(replace(job, description=f"token: {RANDOM}"))).actions
    assert [change.before for change in action.changes] == [LOOKS_SECRET]
