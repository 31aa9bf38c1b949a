"""`policies:` in the files of a stack: joined, checked, compiled; every problem at its place."""

from __future__ import annotations

import pytest

from reconciler.core.stack import Effect
from tests.manifest.conftest import Place, marked, place_of

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


@pytest.mark.parametrize(
    ("text", "at", "mark"),
    [
        ("  - name: a\n    deny: job.key == @\n", "5:22", "@"),
        ("  - name: a\n    deny: 'job.key == ''a'' && @'\n", "5:32", "@"),
        ('  - name: a\n    deny: "job.key == @"\n', "5:23", "@"),
        ("  - {name: a, warn: job.key == @}\n", "4:32", "@"),
        ("  - name: a\n    deny: |\n      job.key ==\n      @\n", "7:7", "@"),
        ("  - name: a\n    deny: |2\n      job.key ==\n      @\n", "7:7", "@"),
        ("  - name: a\n    deny: >-  # folded\n      job.key\n      ==\n\n      @ x\n", "9:7", "@"),
        ("  - name: a\n    deny: job.key\n      ==   @\n", "6:12", "@"),
        ("  - name: a\n    deny: 'job.key\n\n      == \"日本\" @'\n", "7:15", "@"),
        ("  - name: a\n    deny: jbo.key == 1\n", "5:11", "j"),
        ("  - name: a\n    deny: &x >\n      true &&\n\n      jbo.key == 1\n", "8:7", "j"),
        ("  - name: a\n    deny: job.key ==\n", "5:21", None),
    ],
    ids=range(12),
)
def test_expression_that_does_not_compile_is_marked_at_its_column(
    place: Place, text: str, at: str, mark: str | None
) -> None:
    with_policy(place, text)
    problem = place.problem()
    assert (problem.what, place_of(problem)) == ("invalid expression", f"main.yaml:{at}")
    if mark:
        assert marked(problem) == mark


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
