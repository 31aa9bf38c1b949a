"""The value before a change is masked if recorded as sensitive, or if it looks so.

Source: docs/operations/security.md, "Secrets".
"""

from __future__ import annotations

import json
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
    """Return what a plan shows before each change if a reported job is no longer declared so.

    `then` are the recorded declarations of earlier revisions.
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
    ("before", "path", "shown"),
    [
        (environments(NCCL_DEBUG="INFO"), ENVIRONMENTS, {"NCCL_DEBUG": "INFO"}),
        (environments(HF_TOKEN="plain"), ENVIRONMENTS, {"HF_TOKEN": LOOKS_SECRET}),
        (environments(NOTE=RANDOM), ENVIRONMENTS, {"NOTE": LOOKS_SECRET}),
        (environments(A="1", KEY="2"), ENVIRONMENTS, {"A": "1", "KEY": LOOKS_SECRET}),
        ({"algorithm__parameters": {"lr": 0.1, "epochs": 90}}, f"{PARAMETERS}.epochs", "90"),
        ({"algorithm__parameters": {"lr": 0.1, "max_tokens": 512}}, f"{PARAMETERS}.max_tokens", "512"),
        ({"algorithm__parameters": {"lr": 0.1, "api_key": "x"}}, f"{PARAMETERS}.api_key", LOOKS_SECRET),
        ({"algorithm__parameters": {"lr": 0.1, "note": RANDOM}}, f"{PARAMETERS}.note", LOOKS_SECRET),
        # edited, not removed
        ({"algorithm__parameters": {"lr": "hf_" + RANDOM}}, f"{PARAMETERS}.lr", LOOKS_SECRET),
    ],
)
def test_value_read_back_from_details_is_shown_unless_it_looks_like_a_secret(
    before: dict[str, Any], path: str, shown: Any
) -> None:
    assert removed(before)[path] == (shown, LOOKS_SECRET in str(shown))


def test_edited_command_containing_a_secret_is_hidden_whole() -> None:
    def commanded(jobs_command: str) -> Change:
        return Change(
            path="algorithm.command", before=jobs_command, after="python train.py", forces_new_job=True
        )

    [hidden] = mask((commanded("python train.py --token hunter2"),))
    assert (hidden.before, hidden.after, hidden.sensitive) == (LOOKS_SECRET, "python train.py", True)
    open_one = commanded("python train.py --lr 0.1 --max_tokens 512")
    assert mask((open_one,)) == (open_one,)


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


@pytest.mark.parametrize(
    ("before", "records", "shown", "is_sensitive"),
    [
        ({"NOTE": "open", "OTHER": "1"}, [SECRET], {"NOTE": REDACTED, "OTHER": "1"}, True),
        # recorded as not sensitive
        ({"NOTE": RANDOM, "HF_TOKEN": "plain"}, [OPEN], {"NOTE": RANDOM, "HF_TOKEN": "plain"}, False),
        ({"NOTE": RANDOM}, [OPEN, SECRET], {"NOTE": REDACTED}, True),
        ({"HF_TOKEN": "another"}, [OPEN], {"HF_TOKEN": LOOKS_SECRET}, True),
    ],
)
def test_record_decides_whether_a_removed_value_is_sensitive(
    before: dict[str, Any], records: list[dict[str, Any]], shown: dict[str, Any], is_sensitive: bool
) -> None:
    assert removed(environments(**before), *records)[ENVIRONMENTS] == (shown, is_sensitive)


def test_name_of_a_secret_in_a_record_is_shown_as_sensitive() -> None:
    declared = Declared(immutable=by_name(a_job(**SECRET).covered_by(CURRENT)))
    change = Change(path=f"{ENVIRONMENTS}.NOTE", before="${var.note}", after=None)
    assert mask((change,), [declared]) == (change.model_copy(update={"sensitive": True}),)


def test_change_is_masked_by_the_record_of_the_newest_revision() -> None:
    job = a_job(**OPEN)
    plan = plan_for(a_stack(a_job()), seen(job), memory=a_memory(past(job, 1, Phase.RUNNING)))
    [change] = plan.actions[0].changes
    assert (change.before, change.sensitive) == ({"NOTE": RANDOM, "HF_TOKEN": "plain"}, False)


def test_mutable_field_is_masked_like_any_other() -> None:
    job = a_job(description="new")
    [action] = plan_for(a_stack(job), seen(replace(job, description=f"token: {RANDOM}"))).actions
    assert [change.before for change in action.changes] == [LOOKS_SECRET]


# --- declared as sensitive: found by name in service responses, without the value

DECLARED = SecretText("${var.t}", "${var.t}", has_value=False)


def hidden(declared: dict[str, Any], answer: dict[str, Any]) -> Any:
    """Return the response about the job of such an entry as shown, and what was removed."""
    entry, values = a_job(**declared), list[str]()
    shown = DeclaredSecrets.of(a_stack(entry)).hide(replace(seen(entry), body=answer), values.extend)
    return shown, tuple(values)


ENVIRONMENT = {"algorithm__environments": {"T": DECLARED}}
METRICS = {"spec__custom_metrics": [{"exec": {"command": ["curl", DECLARED]}}]}


@pytest.mark.parametrize(
    ("declared", "answer"),
    [
        (ENVIRONMENT, {"algorithm": {"environments": {"T": "hush", "A": "1", "B": "2"}}}),
        # some of the documents have a list of maps, and the service repeats it per task
        (ENVIRONMENT, {"algorithm": {"environments": [{"A": "1"}, {"T": "hush"}]}}),
        (ENVIRONMENT, {"tasks": [{"algorithm": {"environments": {"T": "hush"}}}]}),
        (
            {"algorithm__parameters": {"lr": 1, "key": DECLARED}},
            {"algorithm": {"parameters": [{"name": "key", "value": "hush"}, {"name": "lr", "value": "1"}]}},
        ),
        (
            {"spec__notification": {"topic_urn": DECLARED, "events": ["x"]}},
            {"spec": {"notification": {"topic_urn": "hush", "events": ["x"]}}},
        ),
        (METRICS, {"spec": {"custom_metrics": [{"exec": {"command": ["curl", "hush"]}}]}}),
    ],
)
def test_declared_secret_is_hidden_by_its_name_or_place(
    declared: dict[str, Any], answer: dict[str, Any]
) -> None:
    body, values = hidden(declared, answer)
    assert body == json.loads(json.dumps(answer).replace("hush", "(sensitive)"))
    assert values == ("hush",)


def test_list_of_another_length_is_hidden_whole() -> None:
    body, values = hidden(METRICS, {"spec": {"custom_metrics": [{"exec": {"command": ["sh", "a", "hush"]}}]}})
    assert body == {"spec": {"custom_metrics": [{"exec": {"command": ["(sensitive)"]}}]}}
    assert values == ("sh", "a", "hush")


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
        (seen(ENTRY, description="no marker"), True),  # it has the key's name
        (seen(ENTRY, name="copy-of-a"), True),  # a copied marker: its contents were copied, too
        (seen(replace(ENTRY, key="old")), True),  # renamed; its marker is not updated yet
        (seen(ENTRY, stack="other"), False),
        (seen(ENTRY, name="b", description=""), False),
    ],
)
def test_secrets_of_an_entry_are_hidden_in_its_own_jobs_only(job: ObservedJob, is_ours: bool) -> None:
    secrets = DeclaredSecrets.of(a_stack(replace(ENTRY, formerly=("old",))))
    values = list[str]()
    secrets.hide(replace(job, body=ANSWER), values.extend)
    assert (values == ["hush"]) is is_ours
