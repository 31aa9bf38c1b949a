"""`policies`, `drift.ignore` and `notify` in the files of a stack: joined, checked, with locations."""

from __future__ import annotations

import sys
from datetime import date
from pathlib import Path
from typing import get_args

import pytest

from reconciler import extras
from reconciler.core.settings import IgnorableClass
from reconciler.core.stack import Effect, IgnoreRule
from reconciler.decide.drift_check import DriftClass
from reconciler.errors import PackageMissing
from reconciler.expressions.evaluator import find_invalid
from tests.manifest.conftest import HEAD, Place

# ── policies ───────────────────────────────────────────────────────────────────────────────────────


def with_policy(place: Place, text: str, head: str = HEAD) -> None:
    place.write(f"{head}policies:\n{text}")


def test_policies_of_several_files_are_joined_in_the_order_of_the_files(place: Place) -> None:
    place.write(f"{HEAD}policies: [{{name: one, deny: 'true', message: no}}]\n")
    place.write("policies: [{name: two, warn: 'false', only: [create]}]\n", "more.yaml")
    place.write("policies:\n", "none.yaml")
    one, two = place.load().stack.policies
    assert (one.name, one.effect, one.expression, one.message) == ("one", Effect.DENY, "true", "no")
    assert one.only == ("create", "update", "replace")
    assert (two.name, two.effect, two.only) == ("two", Effect.WARN, ("create",))
    assert one.location is not None
    assert str(one.location).endswith("main.yaml:3:24")


def test_policy_expression_is_not_expanded(place: Place) -> None:
    with_policy(place, "  - {name: a, deny: 'job.key == \"${var.x}\"'}\n")
    [policy] = place.load().stack.policies
    assert policy.expression == 'job.key == "${var.x}"'


def test_policy_case_below_the_root_is_no_part_of_the_stack(place: Place) -> None:
    with_policy(place, "  - {name: a, deny: 'true'}\n")
    before = place.load().manifest_digest
    place.write("job: {}\nexpect: {deny: [a]}\n", "cases/one.yaml")
    place.write("job: {]\nexpect: {}\n", "cases/broken.yaml")
    loaded = place.load()
    assert [Path(file).name for file in loaded.files] == ["main.yaml"]
    assert loaded.manifest_digest == before


# ── drift.ignore ───────────────────────────────────────────────────────────────────────────────────


RULE = "{key: 'lr-*', class: failed, until: 2026-12-31, reason: known gap}"


def with_rules(place: Place, *rules: str, head: str = HEAD) -> None:
    place.write(f"{head}drift:\n  ignore:\n" + "".join(f"  - {rule}\n" for rule in rules))


def test_rules_of_several_files_are_joined_in_the_order_of_the_files(place: Place) -> None:
    place.write(f"{HEAD}drift: {{ignore: [{RULE}]}}\n")
    place.write("drift:\n  ignore:\n  - {key: a, class: orphaned, reason: by hand}\n", "more.yaml")
    place.write("drift:\n", "none.yaml")
    one, two = place.load().stack.ignored_drift
    assert (one.key, one.class_, one.until, one.reason) == ("lr-*", "failed", date(2026, 12, 31), "known gap")
    assert (two.key, two.class_, two.until) == ("a", "orphaned", None)
    assert str(one.location).endswith("main.yaml:3:18")
    assert str(two.location).endswith("more.yaml:3:5")


def test_rule_takes_the_values_of_variables_on_its_target(place: Place) -> None:
    head = (
        "stack: vision\ntarget: a\nvariables: {until: {default: '2026-01-31'}, sweep: {default: lr}}\n"
        "targets:\n  a: {kind: local}\n  b: {kind: local, variables: {until: '2027-01-31'}}\n"
    )
    with_rules(place, "{key: '${var.sweep}-*', class: failed, until: '${var.until}', reason: r}", head=head)
    found = {name: place.load(target=name).stack.ignored_drift for name in ("a", "b")}
    assert {name: (rule.key, str(rule.until)) for name, (rule,) in found.items()} == {
        "a": ("lr-*", "2026-01-31"),
        "b": ("lr-*", "2027-01-31"),
    }


def test_every_class_but_unknown_can_be_ignored() -> None:
    assert set(get_args(IgnorableClass)) == set(DriftClass) - {DriftClass.UNKNOWN}


@pytest.mark.parametrize(
    ("key", "class_", "matches"),
    [
        ("lr-1", "failed", True),
        ("lr-", "failed", True),
        ("LR-1", "failed", False),
        ("lr-1", "missing", False),
        ("x-lr-1", "failed", False),
    ],
)
def test_rule_matches_by_key_glob_and_class(key: str, class_: str, matches: bool) -> None:
    assert IgnoreRule("lr-*", "failed", "r").matches(key, class_) is matches


@pytest.mark.parametrize(
    ("at", "has_expired"),
    [("2026-12-30T12:00", False), ("2026-12-31T23:59:59", False), ("2027-01-01T00:00:00", True)],
)
def test_last_day_of_a_rule_is_included_in_utc(at: str, has_expired: bool) -> None:
    from datetime import UTC, datetime

    at_s = datetime.fromisoformat(at).replace(tzinfo=UTC).timestamp()
    assert IgnoreRule("a", "failed", "r", date(2026, 12, 31)).has_expired(at_s) is has_expired
    assert not IgnoreRule("a", "failed", "r").has_expired(at_s)
    assert not IgnoreRule("a", "failed", "r", date.max).has_expired(at_s)


# ── notify ─────────────────────────────────────────────────────────────────────────────────────────


TOKEN = "x-very-secret-9x"


URL = f"discord://id/{TOKEN}?template=/etc/passwd"


def test_forbidden_service_is_refused_without_apprise(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    place.write(f"{HEAD}notify: [{{url: 'dbus://'}}]\n")
    assert place.problem().what == "notification URL not allowed"


def test_notification_url_resolved_only_when_sending_is_not_used(place: Place) -> None:
    place.write(f"{HEAD}variables: {{u: {{env: HOOK, sensitive: true}}}}\nnotify: [{{url: '${{var.u}}'}}]\n")
    environ = {"HOOK": ""}
    loaded = place.load(offline=True, environ=environ)
    environ["HOOK"] = URL
    (destination,) = loaded.destinations()
    assert destination.url is None
    assert destination.problem is not None
    assert destination.problem.what == "notification URL not allowed"
    assert TOKEN not in repr(destination)


def test_stack_with_policies_loads_without_the_extra_if_none_is_evaluated(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda _: None)
    place.write('stack: s\npolicies: [{name: x, deny: "false", message: m}]\n')
    assert [policy.name for policy in place.load().stack.policies] == ["x"]
    with pytest.raises(PackageMissing):
        find_invalid(["false"])
