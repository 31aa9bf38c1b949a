"""`--only`: part of a stack, on the command line."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.conftest import Reconciler, Result, World, manifest, write


def keys(result: Result) -> list[str]:
    actions: list[dict[str, Any]] = result.document["actions"]
    return [action["key"] for action in actions]


def test_keys_are_separated_by_commas_options_or_spaces_in_the_environment(
    reconciler: Reconciler,
) -> None:
    write(manifest("a", "b", "c"))
    for only in (["a,b"], ["a, b"], ["a", "b"], ["b,a", "a"], ["[ab]"], ["a*,b*"]):
        result = reconciler("plan --json", *(f"--only={one}" for one in only))
        assert (result.code, keys(result)) == (0, ["a", "b"]), only
    for value in ("", ",", "a,", ",a", "a,,b", " "):  # never every key
        reconciler.ends(64, "apply -y --only", value, err="empty key")
    for value in ("a,b", "a b", "a, b"):
        reconciler.setenv("RECONCILER_ONLY", value)
        assert keys(reconciler("plan --json")) == ["a", "b"]


@pytest.mark.parametrize(
    ("only", "why", "fix"),
    [
        ("trian", '"trian" is neither a declared nor an owned key of stack test', 'did you mean "train"?'),
        ("train,x-*", 'no declared key of stack test matches "x-*"', "must be given in full"),
        ("gon*", 'no declared key of stack test matches "gon*"', "must be given in full"),
    ],
)
def test_only_without_a_match_is_wrong_usage(reconciler: Reconciler, only: str, why: str, fix: str) -> None:
    write(manifest("train", "gone"))
    reconciler("apply -y")
    write(manifest("train"))
    reconciler.ends(64, "plan --only", only, out="", err=[why, fix])
    reconciler.ends(0, "plan --only gone")  # owned, and named in full


def test_matrix_entry_selects_all_its_members(world: World) -> None:
    text = world.manifest("lone", "s").replace("  s:\n", "  s:\n    matrix: {lr: [3, 1, 2, 5, 4, 6]}\n")
    world.apply(text)
    world.time.sleep(60)
    write(text.replace("4, 6", "4"))
    members = [f"s-lr-{number}" for number in (3, 1, 2, 5, 4)]
    result = world.ends(0, "plan --json --show-keep --only s")
    assert [action["key"] for action in result.document["actions"]] == sorted(members)
    world.ends(0, "status s", out=members, lacks="\nlone ")

    keep = "5 jobs: keep (unchanged): running\n        s-lr-{3,1,2,5,4}\n"
    world.ends(0, "why s", out=[keep, "decided by the rule unchanged: "], lacks=["lone", "Declared"])
    found = world("why s --json").document
    assert [one["key"] for one in found["explanations"]] == members
    assert found["stack"] == found["explanations"][0]["stack"]
    assert found["explanations"][1] == {
        **world("why s-lr-1 --json").document,
        "created_at": found["created_at"],
    }
    assert world("why s -v").out.count("Declared\n") == 5

    origins = world.ends(0, "explain origin s", lacks="lone").out.splitlines()
    assert [line for line in origins if line in members] == members
    world.ends(64, "adopt s 0", err=f"name one of them, e.g. {members[0]}")

    # Its former members have a history.
    past = world("history s --json").document
    assert {one["key"] for one in past["revisions"]} == {*members, "s-lr-6"}
    assert {one["key"] for run in past["runs"] for one in run["actions"]} == {*members, "s-lr-6"}
    world.ends(0, "history s --limit 2", out="Key s\n", lacks="its declaration")

    world.ends(0, "release s --yes", out="Plan: 0 to create, 5 to update,")
    assert {key for key, text in world.descriptions().items() if "reconciler." in text} == {"lone", "s-lr-6"}


def test_rerun_starts_the_next_revision_of_an_ended_job(world: World) -> None:
    world.write("a", "b")
    world("apply --yes")
    world.ends(64, "plan --rerun a", err="--rerun a starts only what has ended")
    world.ends(64, "plan --rerun c", err='"c" is not a declared key of stack')
    world.ends(64, "plan --only b --rerun a", err='--rerun names "a", but --only leaves it out')
    world.set_phase("Completed", "a")
    result = world.ends(
        0, "plan --rerun * --out p.json", out="a  r2   rerun requested; runs finished work again"
    )
    assert "Plan: 1 to create, 0 to update, 0 to replace, 0 to terminate, 1 to keep." in result.out
    world.ends(64, "apply --plan p.json --rerun a", err="--rerun: already set in the saved plan")
    world.ends(0, "apply --yes --plan p.json")
    assert world.job("a-r2").life.phase == "Creating"
    world.ends(0, "plan --rerun * --detailed-exitcode")  # both are active by now
    write(world.manifest("a", "b").replace("  b:\n", "  b:\n    state: absent\n"))
    world.ends(64, "plan --rerun b", err="b has `state: absent`, so --rerun b starts nothing")


def test_key_outside_of_path_is_named_with_its_file(reconciler: Reconciler) -> None:
    write(manifest("a"), "stack/a.yaml")
    write(manifest("b").partition("jobs:")[1] + manifest("b").partition("jobs:")[2], "stack/b.yaml")
    reconciler.ends(0, "apply -y stack")
    for command in ("plan", "drift", "status"):
        result = reconciler.ends(64, command, "stack/a.yaml", "--only", "b")
        assert 'PATH does not include "b", which stack/b.yaml declares' in result.err
    reconciler.ends(64, "destroy -y stack/a.yaml --only b")
    assert keys(reconciler("plan --json stack --only b")) == ["b"]


@pytest.mark.parametrize("command", ["plan", "drift", "status", "destroy"])
@pytest.mark.parametrize(
    ("only", "count"), [("a", "2 keys are"), ("a,b", "1 key is"), ("a,b,c", "0 keys are")]
)
def test_number_of_keys_out_of_view_is_always_shown(
    reconciler: Reconciler, command: str, only: str, count: str
) -> None:
    write(manifest("a", "b", "c"))
    reconciler("apply -y")
    result = reconciler(command, "--only", only)
    assert f"{count} declared but not in view" in result.out


def test_owned_undeclared_key_out_of_only_is_left_alone(reconciler: Reconciler) -> None:
    write(manifest("a", "b", "c"))
    reconciler.ends(0, "apply --yes --only a --only b*")
    write(manifest("a", "c"))
    result = reconciler("plan --only a")
    assert result.out.splitlines()[-1].endswith(" 0 to terminate, 1 to keep.")
    assert result.out.count("warning: partial view: ") == 1
    assert "declared but not in view; 1 key is owned but not in view; left alone" in result.out
    reconciler.ends(0, "plan --only b")
