"""The value before a change is hidden if a record calls it sensitive, or if it looks so.

Source: docs/semantics.md, "Secrets".
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reconciler.core.body import CURRENT
from reconciler.core.canonical import by_name
from reconciler.core.masking import LOOKS_SECRET, DeclaredSecrets, mask
from reconciler.core.observed import ObservedJob
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


# --- what a manifest declares sensitive is found by name in the answers of the service, without its value

DECLARED = SecretText("${var.t}", "${var.t}", has_value=False)


def hidden(declared: dict[str, Any], answer: dict[str, Any], job: ObservedJob | None = None) -> Any:
    """What is shown of an answer about the job of such an entry."""
    entry = a_job(**declared)
    return DeclaredSecrets.of(a_stack(entry)).hide(job or seen(entry), answer)


@pytest.mark.parametrize(
    ("declared", "answer", "shown"),
    [
        (
            {"algorithm__environments": {"T": DECLARED, "A": "1"}},
            {"algorithm": {"environments": {"T": "hush", "A": "1", "B": "2"}}},
            {"algorithm": {"environments": {"T": "(sensitive)", "A": "1", "B": "2"}}},
        ),
        (
            {"algorithm__environments": {"T": DECLARED}},  # some of the documents have a list of maps
            {"algorithm": {"environments": [{"A": "1"}, {"T": "hush"}]}},
            {"algorithm": {"environments": [{"A": "1"}, {"T": "(sensitive)"}]}},
        ),
        (
            {"algorithm__environments": {"T": DECLARED}},  # the service repeats it per task
            {"tasks": [{"algorithm": {"environments": {"T": "hush"}}}]},
            {"tasks": [{"algorithm": {"environments": {"T": "(sensitive)"}}}]},
        ),
        (
            {"algorithm__parameters": {"lr": 1, "key": DECLARED}},
            {"algorithm": {"parameters": [{"name": "key", "value": "hush"}, {"name": "lr", "value": "1"}]}},
            {
                "algorithm": {
                    "parameters": [{"name": "key", "value": "(sensitive)"}, {"name": "lr", "value": "1"}]
                }
            },
        ),
        (
            {"spec__notification": {"topic_urn": DECLARED, "events": ["x"]}},
            {"spec": {"notification": {"topic_urn": "hush", "events": ["x"]}}},
            {"spec": {"notification": {"topic_urn": "(sensitive)", "events": ["x"]}}},
        ),
        (
            {"spec__custom_metrics": [{"exec": {"command": ["curl", DECLARED]}}]},
            {"spec": {"custom_metrics": [{"exec": {"command": ["curl", "hush"]}}]}},
            {"spec": {"custom_metrics": [{"exec": {"command": ["curl", "(sensitive)"]}}]}},
        ),
        (
            {"spec__custom_metrics": [{"exec": {"command": ["curl", DECLARED]}}]},  # nobody knows which it is
            {"spec": {"custom_metrics": [{"exec": {"command": ["sh", "curl", "hush"]}}]}},
            {"spec": {"custom_metrics": [{"exec": {"command": ["(sensitive)"]}}]}},
        ),
    ],
)
def test_declared_secret_is_hidden_by_its_name_or_place(
    declared: dict[str, Any], answer: dict[str, Any], shown: dict[str, Any]
) -> None:
    body, values = hidden(declared, answer)
    assert body == shown
    assert "hush" in values


def test_value_not_declared_sensitive_is_shown() -> None:
    answer = {
        "algorithm": {"environments": {"HF_TOKEN": "x"}, "command": "python a.py"},
        "status": {"phase": "F"},
    }
    assert hidden({"algorithm__environments": {"T": DECLARED}}, answer) == (answer, ())
    assert hidden({}, answer) == (answer, ())


ENTRY = a_job(algorithm__environments={"T": DECLARED})
ANSWER = {"algorithm": {"environments": {"T": "hush"}}}


@pytest.mark.parametrize(
    ("job", "is_ours"),
    [
        (seen(ENTRY), True),
        (seen(ENTRY, revision=3), True),
        (seen(ENTRY, description="no marker"), True),  # it has our name
        (seen(ENTRY, name="copy-of-a"), True),  # a copied marker: what it holds was copied, too
        (seen(replace(ENTRY, key="old")), True),  # it was renamed, and its marker waits to follow
        (seen(ENTRY, stack="other"), False),
        (seen(ENTRY, name="b", description=""), False),
    ],
)
def test_secrets_of_an_entry_are_hidden_in_its_own_jobs_only(job: ObservedJob, is_ours: bool) -> None:
    secrets = DeclaredSecrets.of(a_stack(replace(ENTRY, formerly=("old",))))
    assert (secrets.hide(job, ANSWER)[1] == ("hush",)) is is_ours
