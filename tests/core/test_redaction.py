"""Values that a program gets hold no secret, wherever in them one stood; all else is what it was."""

from __future__ import annotations

import json

import pytest

from reconciler.decide.drift_check import Drift, DriftClass
from reconciler.decide.outcome import Outcome, Status
from reconciler.decide.plan import Action
from reconciler.errors import Diagnostic
from reconciler.secrets import Redactor, SecretText, without_secrets
from tests.builders import a_job, a_stack, seen
from tests.core.test_decision_table import plan_for

SECRET = "hush-hush-9"
REDACT = Redactor([SECRET])
[CREATE] = plan_for(a_stack(a_job(algorithm__environments={"T": SecretText(SECRET, "${var.t}")}))).actions
[TAKEN] = plan_for(a_stack(a_job()), seen(a_job(), job_id=SECRET, description="")).actions


@pytest.mark.parametrize(
    "value",
    [
        CREATE,
        TAKEN,
        Drift(**{"key": "a", "class": DriftClass.UNOWNED}, job=SECRET),
        Outcome(CREATE, Status.FAILED, message=f"it is {SECRET}"),
        Diagnostic("refused", why=f"it is {SECRET}"),
        (f"x {SECRET}", {SECRET: [SECRET]}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_redacted_value_keeps_its_type(value: object) -> None:
    cleaned = without_secrets(value, REDACT)
    assert SECRET in f"{value} {_bodies(value)}"
    assert SECRET not in f"{cleaned} {_bodies(cleaned)}"
    assert type(cleaned) is type(value)


def test_value_without_secret_is_unchanged() -> None:
    [action] = plan_for(a_stack(a_job())).actions
    assert without_secrets(action, REDACT) is action


def test_own_words_stay_when_a_secret_has_the_same_letters() -> None:
    assert without_secrets(TAKEN, Redactor(["conflict", "Running"])).action is Action.CONFLICT


def _bodies(value: object) -> str:
    """What is sent, as it is: a secret does not show itself in a repr."""
    return json.dumps(getattr(value, "desired", None))
