"""`reconciler release`, as a user calls it: what runs goes on, and is nobody's."""

from __future__ import annotations

import pytest

from tests.cli.conftest import World, write
from tests.cli.test_adopt import UPDATE, check_nothing_changes

SECRET = "variables: {token: {env: TOKEN_OF_NOBODY, sensitive: true}}\n"


@pytest.fixture
def stack(world: World) -> World:
    """A stack with a job of key `a` that runs."""
    return applied(world, "a")


def applied(world: World, *keys: str) -> World:
    world.apply(world.manifest(*keys))
    world.time.sleep(60)
    world.forget_requests()
    return world


def test_marker_is_taken_off_and_the_text_of_the_description_stays(stack: World) -> None:
    words = ["the next plan will be in conflict (name taken)", "fix: remove a from jobs.yaml"]
    stack.ends(0, "release a --yes", out=words)
    assert stack.descriptions() == {"a": "a of the test"}
    assert stack.phases() == {"a": "Running"}
    assert stack.changes == [UPDATE]
    stack.ends(0, "history a", out="release: complete")


def test_released_job_is_not_taken_back_by_the_history(world: World) -> None:
    applied(world, "a", "b")
    world.ends(0, "release a --yes")
    for _ in range(2):
        fix = f"adopt it (reconciler adopt a {world.job('a').id}), or rename the key"
        world.ends(0, "plan", out=["1 in conflict", fix])
    assert "unowned" in world("drift").out
    world.write("b")
    check_nothing_changes(world)
    world.ends(0, "apply --yes")
    assert world.descriptions()["a"] == "a of the test"


def test_released_job_is_adopted_again_as_the_next_revision(stack: World) -> None:
    stack.ends(0, "release a --yes")
    stack.ends(0, f"adopt a {stack.job('a').id} --yes")
    assert ".r2." in stack.descriptions()["a"]
    check_nothing_changes(stack)
    revisions = stack("history a --json").document["revisions"]
    assert [(one["revision"], one["released_at"] is not None) for one in revisions] == [(2, False), (1, True)]
    assert all(one["declared"] for one in revisions)


def test_release_needs_no_value_of_a_secret(stack: World) -> None:
    text = stack.manifest("a", more=SECRET)
    write(text.replace("parameters:", "environments: {T: '${var.token}'}\n      parameters:"))
    stack.ends(65, "plan")
    stack.ends(0, "release a --yes")


def test_release_that_is_not_confirmed_or_has_nothing_to_do_changes_nothing(stack: World) -> None:
    stack.write("a", "b", "resnet")
    stack.ends(3, "release a", err="fix: add --yes")
    stack.ends(0, "release b", out="nothing to do: stack test owns no job of key b")
    stack.ends(64, "release ressnet", err='did you mean "resnet"?')
    assert stack.changes == []
