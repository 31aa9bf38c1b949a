"""`policies:` in the files of a stack: joined, checked, compiled; every problem at its place."""

from __future__ import annotations

from reconciler.core.stack import Effect
from tests.manifest.conftest import Place

HEAD = "stack: vision\ntargets: {local: {kind: local}}\n"


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


def test_expression_of_a_policy_is_not_expanded(place: Place) -> None:
    with_policy(place, "  - {name: a, deny: 'job.key == \"${var.x}\"'}\n")
    [policy] = place.load().stack.policies
    assert policy.expression == 'job.key == "${var.x}"'


# ── cases beside the manifest ──────────────────────────────────────────────────────────────────────


def test_case_below_the_root_is_no_part_of_the_stack(place: Place) -> None:
    with_policy(place, "  - {name: a, deny: 'true'}\n")
    before = place.load().manifest_digest
    place.write("job: {}\nexpect: {deny: [a]}\n", "cases/one.yaml")
    place.write("job: {]\nexpect: {}\n", "cases/broken.yaml")
    loaded = place.load()
    assert [path.name for path in loaded.files] == ["main.yaml"]
    assert loaded.manifest_digest == before
