"""A truncated, damaged or edited saved plan is invalid: it is plain JSON, and one seal covers all of it.

Every place of real plans is corrupted in every cheap way: a few thousand edits.

Source: docs/reference/cli.md, "Saved plans".
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest

from reconciler.core.lifecycle import ReplaceOrder
from reconciler.core.phase import Phase
from reconciler.core.settings import VariableSource
from reconciler.core.stack import Target
from reconciler.core.values import LOCAL, TARGET_KINDS
from reconciler.decide.plan import Action, Plan, Reason
from reconciler.decide.saved_plan import SavedOptions
from reconciler.errors import Location, ManifestInvalid
from reconciler.plan_file import SEAL, StalePlan, document_of, read_document, read_plan, sealed
from reconciler.render import Content, View, render
from reconciler.render.plan import render_sources
from reconciler.secrets import SecretText
from tests.builders import HOUR, a_job, a_stack, absent, seen
from tests.core.test_decision_table import DONE, OLD, P, plan_for
from tests.hostile.sizes import FUZZ, RecordProperty, count_tried

Edit = Callable[[dict[str, Any]], dict[str, Any]]
VERSION = "0"
FILE = Path("plan.json")
OPTIONS = SavedOptions(target=Target(kind=LOCAL), root=".", sources={"token": VariableSource(env="TOKEN")})
BEFORE = a_job(**OLD)
FULL = a_job(
    description="costs ${a} lot",
    spec__schedule_policy={"priority": 2},
    spec__notification={"topic_urn": SecretText("urn", "${var.token}"), "events": ["JobFailed"]},
)
PLANS = {
    "create": plan_for(a_stack(FULL)),
    "update": plan_for(a_stack(FULL), seen(FULL, phase=P, text="was")),
    "replace of two": plan_for(a_stack(a_job()), seen(BEFORE), seen(BEFORE, revision=2)),
    "terminate": plan_for(a_stack(absent()), seen(a_job(), ran_s=HOUR, node_count=3)),
    "conflict": plan_for(a_stack(a_job()), seen(BEFORE, ran_s=30 * HOUR)),
    "several keys": plan_for(a_stack(a_job(), a_job("b"), a_job("c", **OLD)), seen(a_job("b"), phase=DONE)),
}
#: Values that grow with time are not sealed: nothing depends on them.
GROWING = re.compile(r"(without )?(created_at|(actions\.\d+\.)?(elapsed|lost_node_hours|cost)\b)")
#: Replacements for any value: other types, nothing, too much.
OTHERS: tuple[Any, ...] = (
    *(None, "", "x", "${var.other}", 0, -1, 10**400, 1.5, True),
    *([], {}, ["x"], {"x": "y"}),
)
ENUMS: dict[str, tuple[str, ...]] = {
    "action": tuple(map(str, Action)),
    "reason": tuple(map(str, Reason)),
    "phase": (*map(str, Phase), "Frozen"),
    "replace_order": get_args(ReplaceOrder),
    "kind": tuple(TARGET_KINDS),
}


def saved(plan: Plan) -> dict[str, Any]:
    """Return the plan as in its file."""
    data: dict[str, Any] = json.loads(json.dumps(sealed(document_of(plan, OPTIONS))))
    return data


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield every place in plain data except the root."""
    steps = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for step, value in steps:
        yield (*path, step)
        yield from places(value, (*path, step))


def at(tree: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        tree = tree[step]
    return tree


def edits(data: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every cheap edit of a plan file, with a description."""
    for path in places(data):
        value, *where = at(data, path), ".".join(map(str, path))
        others = [*OTHERS, *ENUMS.get(str(path[-1]), ())]
        if isinstance(value, str):
            others += [value + "x", value[:-1], value.upper()]
        if type(value) is int:
            others += [value + 1, str(value)]
        for other in others:
            if (type(other), other) != (type(value), value):
                yield f"{where[0]} = {other!r}", changed(data, path, other)
        yield f"without {where[0]}", removed(data, path)
        if isinstance(value, dict):
            yield f"{where[0]} with more", changed(data, (*path, "of_next_year"), 1)
    yield "a new key", {**data, "of_next_year": 1}
    actions = data["actions"]
    yield "actions twice", {**data, "actions": [*actions, *actions]}
    if len(actions) > 1:
        yield "actions turned round", {**data, "actions": actions[::-1]}


def changed(data: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    edited: dict[str, Any] = _edited(data, path, lambda tree, step: operator.setitem(tree, step, value))
    return edited


def removed(data: dict[str, Any], path: tuple[Any, ...]) -> dict[str, Any]:
    edited: dict[str, Any] = _edited(data, path, lambda tree, step: tree.pop(step))
    return edited


def _edited(data: Any, path: tuple[Any, ...], edit: Callable[[Any, Any], object]) -> Any:
    """Return a copy edited at a place; it shares everything not on the path there."""
    step, *rest = path
    copied = data.copy()
    if rest:
        copied[step] = _edited(data[step], tuple(rest), edit)
    else:
        edit(copied, step)
    return copied


@pytest.mark.parametrize("name", PLANS)
def test_plan_edited_at_any_place_is_invalid(name: str, record_property: RecordProperty) -> None:
    data = saved(PLANS[name])
    assert read_document(data, FILE, VERSION, strict=True).plan.document() == PLANS[name].document()
    accepted, count = [], 0
    for edit, edited in edits(data):
        count += 1
        try:
            read_document(edited, FILE, VERSION, strict=True)
        except ManifestInvalid:
            continue
        except StalePlan:
            assert edit.startswith("reconciler_version")
            continue
        accepted.append(edit)
    assert [edit for edit in accepted if not GROWING.match(edit)] == []
    assert [edit for edit in accepted if edit.startswith("without")] == [], "a key is missing"
    count_tried(record_property, "edited plan files", count)


REPLACE = PLANS["replace of two"]
[PLACE] = [place for place, one in enumerate(REPLACE.actions) if one.action is Action.REPLACE]


def without(part: str) -> Edit:
    """Remove a part of a replace."""
    return lambda data: changed(data, ("actions", PLACE, part), None)


def deep(levels: int) -> Any:
    tree: Any = "x"
    for _ in range(levels):
        tree = [tree]
    return tree


#: Edit of the plan of a replace, and whether it is resealed → the error of its apply.
EDITS: dict[str, tuple[Edit, bool, str]] = {
    "elapsed": (lambda d: changed(d, ("actions", PLACE, "elapsed"), 1.0), False, "its seal does not match"),
    "lost_node_hours": (
        lambda d: changed(d, ("actions", PLACE, "lost_node_hours"), 10**300), False, "its seal does not match"
    ),
    "no seal": (lambda d: changed(d, ("options", SEAL), None), False, "its seal does not match"),
    "empty seal": (lambda d: changed(d, ("options", SEAL), ""), False, "its seal does not match"),
    "another seal": (
        lambda d: changed(d, ("options", SEAL), "sha256:" + "0" * 64), False, "its seal does not match"
    ),
    "another stack": (lambda d: d | {"stack": "other"}, False, "its seal does not match"),
    "another manifest": (lambda d: d | {"manifest_digest": "sha256:1"}, False, "its seal does not match"),
    **{
        f"without {part}": (without(part), True, f"actions.{PLACE} (a): {part} is missing")
        for part in ("before", "after", "desired", "declared")
    },
    **{
        f"unknown key in {name}": (
            partial(changed, path=(*path, "of_next_year"), value=1), True, "of_next_year"
        )
        for name, path in {
            "document": (), "options": ("options",), "action": ("actions", PLACE),
            "declared": ("actions", PLACE, "declared"), "after": ("actions", PLACE, "after"),
        }.items()
    },
    "no format_version": (lambda d: removed(d, ("format_version",)), True, "format_version is missing"),
    "another major format": (lambda d: d | {"format_version": "2.0"}, True, "format_version 2.0"),
    "no actions": (lambda d: removed(d, ("actions",)), False, "actions"),
    "no options": (lambda d: removed(d, ("options",)), False, "it differs from what `plan --out` wrote"),
    "900 levels": (
        lambda d: changed(d, ("actions", PLACE, "changes", 0, "before"), deep(900)), False, "it differs from"
    ),
}  # fmt: skip
#: Edits that cannot be shown either.
UNREADABLE = {"no format_version", "another major format", "no actions", "no options", "900 levels"}


@pytest.mark.parametrize("edit", EDITS)
def test_edited_plan_is_refused_by_apply_and_shown_if_readable(edit: str) -> None:
    make, is_sealed, words = EDITS[edit]
    data = make(saved(REPLACE))
    data = sealed(data) if is_sealed else data
    with pytest.raises(ManifestInvalid) as caught:
        read_document(data, FILE, VERSION, strict=True)
    assert words in str(caught.value)
    if edit in UNREADABLE:
        with pytest.raises(ManifestInvalid):
            read_document(data, FILE, VERSION, strict=False)
    else:
        assert read_document(data, FILE, VERSION, strict=False).plan.actions


@pytest.mark.parametrize(
    ("version", "is_stale"), [("1.2.3", False), ("1.2.9", False), ("1.3.0", True), ("2.2.3", True)]
)
def test_plan_of_another_minor_version_is_stale_and_shown(version: str, is_stale: bool) -> None:
    data = sealed(saved(REPLACE) | {"reconciler_version": "1.2.3"})
    assert read_document(data, FILE, version, strict=False)
    with pytest.raises(StalePlan, match=r"1\.2\.3") if is_stale else nullcontext():
        read_document(data, FILE, version, strict=True)


#: Values an edited plan may hold unsealed; they may be shown.
HOSTILE: list[tuple[tuple[Any, ...], Any]] = [
    (("options", "root"), "a\0b"),
    (("options", "records"), "sqlite:///a\0b"),
    (("options", "sources", "token"), {"file": "a\0b"}),
    (("options", "sources", "token"), {"env": "A\0=B"}),
    (("options", "target", "endpoint"), "http://[::1"),
    (("target", "endpoint"), "http://[::1"),
    (("actions", 0, "desired", "spec"), deep(90)),
    (("actions", 0, "detail"), "\ud800"),
    (("actions", 0, "desired", "description"), "\ud800"),
    (("created_at",), float("inf")),
]


@pytest.mark.parametrize("name", ["update", "replace of two", "several keys"])
def test_edited_plan_is_shown_or_invalid(name: str) -> None:
    data = saved(PLANS[name])
    tried = list(edits(data))[:: 1 if FUZZ else 7]
    if name == "update":
        tried += [(str(path), changed(data, path, value)) for path, value in HOSTILE]
    for edit, edited in tried:
        try:
            read = read_document(edited, FILE, VERSION, strict=False)
        except ManifestInvalid:
            continue
        view = View(show_keep=True)
        assert render(Content.PLAN, read.plan, "text", view), edit
        assert render(Content.PLAN, read.plan, "json", view), edit
        render_sources(read.plan, read.options, read.options.records)


# ── plain JSON only ──────────────────────────────────────────────────────────────────────────────


def instead(pattern: str, text: str) -> Callable[[bytes], bytes]:
    def damage(data: bytes) -> bytes:
        changed, count = re.subn(pattern.encode(), lambda _: text.encode(), data, count=1)
        assert count
        return changed

    return damage


NUMBER = r"(?<=\"line\": )\d+"
#: Corruptions of the bytes.
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "UTF-16": lambda data: data.decode().encode("utf-16"),
    "Latin-1": lambda data: data.replace(b"train.py", b"tr\xe4in.py"),
    "an encoded surrogate": lambda data: data.replace(b"train.py", b"\xed\xa0\x80"),
    "a mark of byte order": lambda data: b"\xef\xbb\xbf" + data,
    "a NUL byte": lambda data: data.replace(b"train.py", b"tr\0in.py"),
    "nothing": lambda data: b"",
    "the first half": lambda data: data[: len(data) // 2],
    "two documents": lambda data: data * 2,
    "a list": lambda data: b"[]",
    "an empty object": lambda data: b"{}",
    "NaN": instead(NUMBER, "NaN"),
    "Infinity": instead(NUMBER, "-Infinity"),
    "1e400": instead(NUMBER, "1e400"),
    "5000 digits": instead(NUMBER, "-" + "9" * 5000),
    "100000 levels": lambda data: b'{"a":' * 100_000,
    "500 levels": instead('"warnings": \\[', '"warnings": [' + "[" * 500 + "]" * 500),
    "half a pair": instead('"stack": "', '"stack": "\\ud800'),
    "half a pair as a key": instead('"source"', '"\\ud800": 1, "source"'),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_file_that_is_not_plain_json_is_invalid(damage: str, tmp_path: Path) -> None:
    plan = plan_for(a_stack(replace(a_job(), location=Location("jobs.yaml", 3, 1))))
    file = tmp_path / "plan.json"
    file.write_bytes(DAMAGES[damage](json.dumps(saved(plan)).encode()))
    for strict in (True, False):
        with pytest.raises(ManifestInvalid, match="invalid plan file"):
            read_plan(file, repr, strict=strict)
