"""The output of plan, apply, destroy and drift."""

from __future__ import annotations

import re

import pytest

from reconciler.decide.plan import without_growing
from reconciler.emulator.lifecycle import Durations
from tests.cli.conftest import Reconciler, World, manifest, write

LAST_LINE = "Plan: {} to create, {} to update, {} to replace, {} to terminate, {} to keep."


def test_apply_and_replace_converge(reconciler: Reconciler) -> None:
    write(manifest("a"))
    assert reconciler("plan").out.splitlines()[-1] == LAST_LINE.format(1, 0, 0, 0, 0)
    assert "succeeded create a" in reconciler("apply --yes").out
    assert reconciler("plan").out.splitlines()[-1] == LAST_LINE.format(0, 0, 0, 0, 1)
    write(manifest("a", lr="0.01"))
    result = reconciler("plan")
    assert result.out.splitlines()[-1] == LAST_LINE.format(0, 0, 1, 0, 0)
    assert 'algorithm.parameters.lr: "0.1" -> "0.01"  # forces a new job' in result.out
    reconciler.ends(0, "apply --yes")
    assert reconciler("plan --show-keep").out.count("= keep") == 1
    assert reconciler("plan --json").document["actions"][0]["before"]["name"] == "a-r2"


def test_plan_an_hour_later_differs_only_in_elapsed_times(world: World) -> None:
    world.store.durations = Durations(running=100 * 3600)
    world.apply(world.manifest("a", "b", "c", "d"))
    world.time.sleep(600)
    ended = world.manifest("a", "b", lr="0.2").replace(
        "  b:\n", "  b:\n    lifecycle: {on_change: replace}\n"
    )
    write(ended + "  d: {state: absent}\n")
    first = world("plan --json").document
    world.time.sleep(2940)
    second = world("plan --json").document
    assert 0 < first["lost_node_hours"] < second["lost_node_hours"]
    pairs = list(zip(first["actions"], second["actions"], strict=True))
    assert [before["elapsed"] < after["elapsed"] for before, after in pairs] == [True] * 4
    assert without_growing(first) == without_growing(second)


def test_apply_reports_its_steps_as_json_lines(reconciler: Reconciler) -> None:
    write(manifest("a"))
    result = reconciler("apply --yes --json")
    expected = ["version", "planned", "action_started", "action_completed", "apply_completed"]
    assert [event["type"] for event in result.events] == expected
    assert [event["sequence"] for event in result.events] == [1, 2, 3, 4, 5]
    started, completed = result.events[2:4]
    assert (started["key"], started["action"], started["job"]) == ("a", "create", None)
    assert re.fullmatch("[0-9a-f-]{36}", completed["job"])
    assert result.events[-1]["summary"]["done"] == 1


def test_last_event_is_apply_completed_even_if_unconfirmed(reconciler: Reconciler) -> None:
    write(manifest("a"))
    result = reconciler.ends(3, "apply --json")
    assert result.events[-1]["type"] == "apply_completed"


def test_failed_action_quotes_the_service(world: World) -> None:
    world.write("a")
    world.fail("CreateTrainingJob", status=400, code="ModelArts.2815", message="full")
    [failed] = [e for e in world("apply --yes --json").events if e["type"] == "action_failed"]
    assert (failed["code"], failed["message"]) == ("ModelArts.2815", "full")
    assert failed["request_id"]


def test_partial_path_terminates_nothing(reconciler: Reconciler) -> None:
    write(manifest("a"), "stack/root.yaml")
    write("jobs:\n" + manifest("b").split("jobs:\n")[1], "stack/more/b.yaml")
    reconciler.ends(0, "apply --yes stack")
    write("jobs: {}\n", "stack/more/b.yaml")
    result = reconciler("plan stack/root.yaml")
    assert result.out.splitlines()[-1] == LAST_LINE.format(0, 0, 0, 0, 1)
    assert reconciler("plan stack").out.splitlines()[-1] == LAST_LINE.format(0, 0, 0, 1, 1)


def test_destroy_terminates_owned_jobs_but_no_protected_one(reconciler: Reconciler) -> None:
    protected = manifest("a", "b").replace("  b:\n", "  b:\n    lifecycle: {protect: true}\n")
    reconciler.apply(protected)
    reconciler.ends(3, "destroy --yes", out=["terminate a", "blocked"])
    phases = {
        a["key"]: a["before"]["phase"] for a in reconciler("plan --json").document["actions"] if a["before"]
    }
    assert phases["b"] in ("Creating", "Pending", "Running")


# --- secrets, hostile text, colours


@pytest.mark.parametrize(
    ("line", "is_coloured"),
    [
        ("plan --color always", True),
        ("plan --color always --no-color", False),
        ("--color always plan", True),
        ("--no-color plan", False),
        ("--no-color plan --color always", True),
        ("--color always plan --no-color", False),
        ("--color=always -v --log-format json plan --color never", False),
        ("plan", False),
        ("RECONCILER_NO_COLOR=1 plan --color always", True),
        ("RECONCILER_NO_COLOR=1 --color always plan", True),
        ("RECONCILER_COLOR=always plan", True),
        ("RECONCILER_COLOR=always plan --no-color", False),
        ("RECONCILER_COLOR=always RECONCILER_NO_COLOR=1 plan", False),
        ("jobs --color always list", True),
        ("--no-color jobs --color always list", True),
        ("jobs --color always list --no-color", False),
        ("RECONCILER_COLOR=always jobs --no-color list", False),
    ],
)
def test_common_option_may_precede_the_command(
    reconciler: Reconciler, monkeypatch: pytest.MonkeyPatch, line: str, is_coloured: bool
) -> None:
    write(manifest("a"))
    reconciler("apply --yes")
    while line.startswith("RECONCILER_"):
        variable, line = line.split(" ", 1)
        monkeypatch.setenv(*variable.split("=", 1))
    result = reconciler.ends(0, line)
    assert ("\x1b[" in result.out) is is_coloured
    assert ('"level": "debug"' in result.err) is ("-v" in line)
    reconciler.ends(0, "--help", out=("--no-color", "--log-format", "-v, --verbose"))
    for command in ("plan", "jobs", "jobs list"):
        reconciler.ends(0, f"{command} --help", lacks=("--no-color", "--color", "--log-format", "--verbose"))


def test_duplicate_target_option_is_wrong_usage(reconciler: Reconciler) -> None:
    write(manifest("a"))
    for line in ("plan -t there --target there", "validate -t there -t other", "jobs list -t a -t b"):
        reconciler.ends(64, line, out="", err="--target is given 2 times")
    reconciler.setenv("RECONCILER_TARGET", "elsewhere")
    reconciler.ends(0, "plan -t there")
    reconciler.ends(64, "plan", err="elsewhere")


def test_options_can_be_given_by_the_environment(reconciler: Reconciler) -> None:
    write(manifest("a"))
    reconciler.setenv("RECONCILER_DETAILED_EXITCODE", "1")
    reconciler.setenv("RECONCILER_JSON", "1")
    result = reconciler.ends(2, "plan")
    assert result.document["stack"] == "test"


def test_sweep_members_are_always_listed_in_matrix_order(reconciler: Reconciler) -> None:
    matrix = "    matrix: {lr: [0.1, 0.01], batch: [64, 128, 256]}\n"
    write(manifest("z", "a", "c").replace("  a:\n", f"  a:\n{matrix}"))
    write(manifest("b"), "../base/jobs.yaml")
    for line in ("review ../base .", "plan --out plan.json", "show plan.json", "apply -y", "destroy -y"):
        reconciler.ends(0, line, out="        z, a-batch-{64,128,256}-lr-{0_1,0_01}, c\n")


@pytest.mark.parametrize("limits", ["node_hours: 50", "cost: 50", "lost_node_hours: 5"])
def test_unbounded_create_is_reported_if_there_is_a_budget(reconciler: Reconciler, limits: str) -> None:
    write(manifest("a", "b", more=f"limits: {{{limits}}}\n"))
    has_budget = not limits.startswith("lost")
    result = reconciler("plan --out plan.json --allow budget")
    count = 3 if has_budget else 0
    assert result.out.count("unbounded node-hours") == count
    assert reconciler("show plan.json").out.count("unbounded node-hours") == count
    result = reconciler("plan")
    assert ("why: blocks a, b: unbounded node-hours would be started\n" in result.err) is has_budget


def test_history_is_listed_on_request(world: World) -> None:
    world.apply(world.manifest("a", "b"))
    world.set_phase("Completed")
    world.apply(world.manifest("a", lr="0.2"))
    world.ends(0, "plan", out=["Stack test", "1 to keep"], lacks="history")
    result = world.ends(0, "plan --show-history")
    assert [line.split() for line in result.out.splitlines() if "history" in line] == [
        [".", "history", "a", "r1", "a", "is", "Completed"],
        [".", "history", "b", "r1", "b", "is", "Completed"],
    ]
    assert result.out.endswith("1 to keep.\n")
