"""What a manifest declares sensitive is found by name in the service's answers, without its value."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reconciler.core.masking import DeclaredSecrets
from reconciler.core.observed_job import ObservedJob
from reconciler.secrets import SecretText
from tests.builders import a_job, a_stack, seen

SECRET = SecretText("${var.t}", "${var.t}", has_value=False)


def hidden(declared: dict[str, Any], answer: dict[str, Any], job: ObservedJob | None = None) -> Any:
    """What is shown of an answer about the job of such an entry."""
    entry = a_job(**declared)
    return DeclaredSecrets.of(a_stack(entry)).hide(job or seen(entry), answer)


@pytest.mark.parametrize(
    ("declared", "answer", "shown"),
    [
        (
            {"algorithm__environments": {"T": SECRET, "A": "1"}},
            {"algorithm": {"environments": {"T": "hush", "A": "1", "B": "2"}}},
            {"algorithm": {"environments": {"T": "(sensitive)", "A": "1", "B": "2"}}},
        ),
        (
            {"algorithm__environments": {"T": SECRET}},  # some of the documents have a list of maps
            {"algorithm": {"environments": [{"A": "1"}, {"T": "hush"}]}},
            {"algorithm": {"environments": [{"A": "1"}, {"T": "(sensitive)"}]}},
        ),
        (
            {"algorithm__environments": {"T": SECRET}},  # the service repeats it per task
            {"tasks": [{"algorithm": {"environments": {"T": "hush"}}}]},
            {"tasks": [{"algorithm": {"environments": {"T": "(sensitive)"}}}]},
        ),
        (
            {"algorithm__parameters": {"lr": 1, "key": SECRET}},
            {"algorithm": {"parameters": [{"name": "key", "value": "hush"}, {"name": "lr", "value": "1"}]}},
            {
                "algorithm": {
                    "parameters": [{"name": "key", "value": "(sensitive)"}, {"name": "lr", "value": "1"}]
                }
            },
        ),
        (
            {"spec__notification": {"topic_urn": SECRET, "events": ["x"]}},
            {"spec": {"notification": {"topic_urn": "hush", "events": ["x"]}}},
            {"spec": {"notification": {"topic_urn": "(sensitive)", "events": ["x"]}}},
        ),
        (
            {"spec__custom_metrics": [{"exec": {"command": ["curl", SECRET]}}]},
            {"spec": {"custom_metrics": [{"exec": {"command": ["curl", "hush"]}}]}},
            {"spec": {"custom_metrics": [{"exec": {"command": ["curl", "(sensitive)"]}}]}},
        ),
        (
            {"spec__custom_metrics": [{"exec": {"command": ["curl", SECRET]}}]},  # nobody knows which it is
            {"spec": {"custom_metrics": [{"exec": {"command": ["sh", "curl", "hush"]}}]}},
            {"spec": {"custom_metrics": [{"exec": {"command": ["(sensitive)"]}}]}},
        ),
    ],
)
def test_declared_secret_is_hidden_by_its_name_or_place(
    declared: dict[str, Any], answer: dict[str, Any], shown: dict[str, Any]
) -> None:
    found = hidden(declared, answer)
    assert found.body == shown
    assert "hush" in found.values


def test_value_not_declared_sensitive_is_shown() -> None:
    answer = {
        "algorithm": {"environments": {"HF_TOKEN": "x"}, "command": "python a.py"},
        "status": {"phase": "F"},
    }
    assert hidden({"algorithm__environments": {"T": SECRET}}, answer) == (answer, ())
    assert hidden({}, answer) == (answer, ())


ENTRY = a_job(algorithm__environments={"T": SECRET})
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
    assert (secrets.hide(job, ANSWER).values == ("hush",)) is is_ours
