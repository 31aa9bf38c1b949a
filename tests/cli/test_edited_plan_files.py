"""Whatever somebody does to a plan file, `apply --plan` and `show` end with a word, never with a fault."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from reconciler.plan_file import sealed
from tests.cli.conftest import Reconciler, Service, manifest, write
from tests.cli.test_saved_plans import CHANGING, PLAN, TOKEN, edited, save, with_token
from tests.core.test_edited_plans import changed, edits

#: Of the edits of every place, each so-many-th: every place is met, and the run stays short.
STRIDE = 53


@pytest.fixture
def plan(reconciler: Reconciler, service: Service, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A create, an update, a replace, a terminate and a keep, with a secret in each body."""
    monkeypatch.setenv("A_TOKEN", "tell-nobody-9")
    first = manifest("change", "gone", "same", "edit", url=service.url, more=TOKEN)
    write(with_token(first))
    assert reconciler("apply", "--yes").code == 0
    text = edited(service, "change", "same", "edit", "new", of="change").replace("jobs:\n", TOKEN + "jobs:\n")
    write(with_token(text.replace("description: edit of the test", "description: other words")))
    document = save(reconciler)
    service.app.requests.clear()
    assert {a["action"] for a in document["actions"]} == {"create", "update", "replace", "terminate", "keep"}
    return document


def test_edited_file_is_invalid_or_still_the_plan(
    reconciler: Reconciler, service: Service, plan: dict[str, Any]
) -> None:
    codes: dict[int, int] = {}
    for said, document in list(edits(plan))[::STRIDE]:
        PLAN.write_text(json.dumps(document), encoding="utf-8")
        # Nobody is there to say yes: a plan that still holds is refused at that question.
        answer = reconciler("apply", "--plan", str(PLAN))
        assert answer.code in (65, 4, 3), f"{said}: {answer.code}\n{answer.err}"
        assert "Traceback" not in answer.err, said
        codes[answer.code] = codes.get(answer.code, 0) + 1
    assert codes[65] > 0.9 * sum(codes.values())
    assert not [served for served in service.app.requests if served.operation in CHANGING]


def test_edited_file_is_shown_with_a_warning(reconciler: Reconciler, plan: dict[str, Any]) -> None:
    for said, document in list(edits(plan))[::STRIDE]:
        PLAN.write_text(json.dumps(document), encoding="utf-8")
        answer = reconciler("show", str(PLAN))
        assert answer.code in (0, 65), f"{said}: {answer.err}"
    PLAN.write_text(json.dumps({**plan, "news": 1}), encoding="utf-8")
    answer = reconciler("show", str(PLAN))
    assert (answer.code, "+ create" in answer.out) == (0, True)
    assert "warning: plan file modified since it was written" in answer.err


@pytest.mark.parametrize("seal", [sealed, dict], ids=["with a new seal", "as it is"])
@pytest.mark.parametrize("command", [("apply", "--yes", "--plan"), ("show",)])
def test_plan_file_without_format_version_is_65(
    reconciler: Reconciler,
    plan: dict[str, Any],
    command: tuple[str, ...],
    seal: Callable[[dict[str, Any]], dict[str, Any]],
) -> None:
    del plan["format_version"]
    PLAN.write_text(json.dumps(seal(plan)), encoding="utf-8")
    answer = reconciler(*command, str(PLAN))
    assert answer.code == 65
    assert "format_version is missing" in answer.err


def deep(levels: int) -> Any:
    tree: Any = "x"
    for _ in range(levels):
        tree = [tree]
    return tree


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("options", "root"), "a\0b"),
        (("options", "root"), "x" * 5000),
        (("options", "records"), "a\0b"),
        (("options", "records"), "sqlite:///a\0b"),
        (("options", "sources", "token"), {"file": "a\0b"}),
        (("options", "sources", "token"), {"env": "A\0=B"}),
        (("options", "target", "endpoint"), "http://[::1"),
        (("target", "endpoint"), "http://[::1"),
        (("actions", 0, "changes", 0, "before"), deep(900)),
        (("actions", 0, "desired", "metadata"), deep(90)),
        (("actions", 0, "detail"), "\ud800"),
        (("actions", 0, "desired", "metadata", "description"), "\ud800"),
        (("created_at"), 1e999),
    ],
)
@pytest.mark.parametrize("command", ["apply --plan", "show"])
def test_hostile_value_is_no_fault(
    reconciler: Reconciler, plan: dict[str, Any], path: Any, value: Any, command: str
) -> None:
    steps = (path,) if isinstance(path, str) else path
    PLAN.write_text(json.dumps(changed(plan, steps, value)), encoding="utf-8")
    answer = reconciler(*command.split(), str(PLAN))
    assert answer.code in ((0, 65) if command == "show" else (65,)), answer.err
