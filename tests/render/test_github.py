"""Workflow commands and step outputs: a runner parses exactly the intended values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from reconciler.decide.plan import Action
from reconciler.render import Content, View, render, step_outputs
from tests.render.test_golden import drifted, every_action
from tests.render.test_markdown import a_plan, an_action

_COMMAND = re.compile(r"::(\w+) (.*?)::(.*)")


class Command(NamedTuple):
    """A workflow command as parsed by the runner (actions/runner, ActionCommand.TryParseV2)."""

    name: str
    properties: dict[str, str]
    message: str


def runner(text: str) -> list[Command]:
    """Parse the lines of a step like a runner."""
    found = []
    for line in text.splitlines():
        match = _COMMAND.fullmatch(line)
        assert match, line
        properties = dict(pair.split("=", 1) for pair in match[2].split(",") if pair)
        read = {key: _unescaped(value) for key, value in properties.items()}
        found.append(Command(match[1], read, _unescaped(match[3], ())))
    return found


def _unescaped(text: str, more: Sequence[tuple[str, str]] = ((":", "%3A"), (",", "%2C"))) -> str:
    for plain, written in (*more, ("\r", "%0D"), ("\n", "%0A"), ("%", "%25")):
        text = text.replace(written, plain)
    return text


def test_annotation_has_the_location_of_the_key() -> None:
    first = runner(render(Content.PLAN, every_action(), "github", View(directory="stacks/vision")))[0]
    place = {"file": "stacks/vision/jobs.yaml", "line": "10", "col": "3"}
    assert first.properties == {**place, "title": "blocked blocked"}


@pytest.mark.parametrize("text", ["100 % of it, a:b", "50%0A::error::x", "%25", "a::b::c"])
def test_message_and_title_round_trip(text: str) -> None:
    action = an_action(Action.BLOCKED, 1, detail=text).model_copy(update={"key": text})
    command = runner(render(Content.PLAN, a_plan([action]), "github", View()))[0]
    assert command == Command("error", {"title": f"blocked {text}"}, text)


def test_outputs_of_a_plan_and_of_a_drift_report() -> None:
    plan = every_action()
    assert outputs_of(Content.PLAN, plan) == {
        "has_changes": "true",
        "digest": "sha256:0",
        "summary": plan.last_line,
        **{action.value: str(count) for action, count in plan.summary.items()},
    }
    outputs = outputs_of(Content.DRIFT, drifted())
    assert (outputs["has_changes"], outputs["missing"], outputs["stuck"]) == ("true", "1", "0")
    assert outputs["summary"].startswith("Drift: ")


def outputs_of(content: Content, value: object) -> dict[str, str]:
    lines = step_outputs(content, value, View(digest="sha256:0")).splitlines()
    return dict(line.split("=", 1) for line in lines)
