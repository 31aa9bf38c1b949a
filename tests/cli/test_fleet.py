"""`--fleet`: a command for every stack of a tree, one report, one exit code."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, chdir
from pathlib import Path
from typing import Any

import pytest

from reconciler import reconcile
from reconciler.emulator import Effect
from reconciler.errors import PRECEDENCE, Diagnostic, Refused
from reconciler.fleet import COMMANDS
from reconciler.render import Content, formats_of
from tests.cli.conftest import JOB, Reconciler, Service, World, write
from tests.cli.lock_helpers import held_by


def stack(name: str, keys: str = "", *, url: str | None = None, project: str = "p1", more: str = "") -> str:
    """Return a manifest with a job per key, on the embedded emulator or a service."""
    service = f"{{kind: modelarts, endpoint: '{url}', project_id: {project}}}"
    target = "{kind: local}" if url is None else service
    jobs = "".join(JOB.format(key=key, lr="0.1") for key in keys.split())
    head = f"apiVersion: reconciler/v1\nstack: {name}\ntargets: {{there: {target}}}\n{more}"
    return head + (f"jobs:\n{jobs}" if keys else "jobs: {}\n")


def put(url: str | None = None, **texts: str) -> None:
    """Write stacks by directory name: their keys, or their whole text."""
    for name, text in texts.items():
        write(text if "\n" in text else stack(name, text, url=url), f"{name}/stack.yaml")


def entries(document: Any) -> dict[str, Any]:
    return {entry["root"]: entry for entry in document["stacks"]}


def codes_of(document: Any) -> dict[str, int]:
    return {root: entry["exit_code"] for root, entry in entries(document).items()}


BROKEN = stack("two", "b") + "oops: 1\n"


# ── which stacks ─────────────────────────────────────────────────────────────────────────────────────


def test_every_root_below_path_is_a_separate_stack_even_if_nested(reconciler: Reconciler) -> None:
    write(stack("above", "z"), "above.yaml")
    write(stack("outer", "a"), "tree/outer/stack.yaml")
    write(stack("inner", "b"), "tree/outer/deep/inner/stack.yaml")
    write(stack("other", "c"), "tree/outer-b/stack.yaml")
    write(stack("hidden", "d"), "tree/.hidden/stack.yaml")
    result = reconciler("validate --fleet --json tree")
    shown = [(one["root"], one["stack"], one["document"]["jobs"]) for one in result.document["stacks"]]
    assert shown == [("outer", "outer", 1), ("outer-b", "other", 1), ("outer/deep/inner", "inner", 1)]
    # The root of PATH itself is "."; roots of several paths are relative to their common parent.
    for paths, roots in (
        ("tree/outer-b", ["."]),
        ("tree/outer/deep tree/outer-b", ["outer-b", "outer/deep/inner"]),
    ):
        assert list(entries(reconciler(f"validate --fleet --json {paths}").document)) == roots
    for path in ("above.yaml", "nowhere"):
        reconciler.ends(64, f"validate --fleet {path}")


def test_tree_without_a_root_file_is_a_manifest_error_with_its_candidates(reconciler: Reconciler) -> None:
    write(stack("above"), "stack.yaml")
    write("jobs: {}\n", "tree/jobs.yaml")
    write("stak: a\njobs: {}\n", "tree/other.yaml")
    words = ["no root file", "tree/jobs.yaml", 'did you mean "stack"']
    reconciler.ends(65, "validate --fleet tree", out="", err=words)


# ── failures ─────────────────────────────────────────────────────────────────────────────────────────


def test_failing_stacks_hide_no_other(reconciler: Reconciler, service: Service) -> None:
    put(good="a", broken=stack("broken", "a") + "oops: 1\n", syntax="stack: syntax\njobs: {a\n")
    put(denied=stack("denied", "a", url=service.url, project="p2"))
    put("http://127.0.0.1:1", unreachable="a")
    for file in ("a", "b"):
        write(stack("twice"), f"twice/{file}.yaml")
    reconciler.patch.setattr("reconciler.modelarts.http.retry_wait_s", lambda *_: None)
    result = reconciler.ends(7, "plan --fleet --json")
    codes = {"broken": 65, "denied": 7, "good": 0, "syntax": 65, "twice": 65, "unreachable": 8}
    assert codes_of(result.document) == codes
    assert entries(result.document)["broken"]["stack"] == "broken"
    assert entries(result.document)["twice"]["stack"] is None
    assert all(("document" in one) != ("error" in one) for one in result.document["stacks"])


def test_unreadable_directory_is_an_entry(reconciler: Reconciler) -> None:
    put(one="a")
    Path("locked").mkdir()
    scandir = os.scandir

    def denied(path: Any) -> Any:
        if isinstance(path, Path) and path.name == "locked":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    reconciler.patch.setattr(os, "scandir", denied)
    document = reconciler.ends(65, "validate --fleet --json").document
    assert entries(document)["locked"]["error"]["message"] == "unreadable directory: Permission denied"


def test_exit_code_is_the_first_by_the_order_of_the_table_over_all_stacks(reconciler: Reconciler) -> None:
    put(changes="a")
    reconciler.ends(0, "plan --fleet")
    put(empty="")
    reconciler.ends(2, "plan --fleet --detailed-exitcode --allow empty")
    reconciler.ends(3, "plan --fleet --detailed-exitcode")  # a manifest without jobs
    put(two=BROKEN)
    result = reconciler.ends(65, "plan --fleet --detailed-exitcode --json")
    assert sorted(result.document["summary"]["exit_codes"]) == ["2", "3", "65"]
    assert PRECEDENCE.index(65) < PRECEDENCE.index(3) < PRECEDENCE.index(2)


def test_internal_error_is_70_of_its_stack_without_secrets(reconciler: Reconciler) -> None:
    plan = reconcile.plan

    def fails_for_one(context: Any, *more: Any, **others: Any) -> Any:
        if context.loaded.stack.name == "two":
            raise KeyError("swordfish-1")
        return plan(context, *more, **others)

    reconciler.patch.setattr(reconcile, "plan", fails_for_one)
    reconciler.setenv("PASSWORD_OF_TWO", "swordfish-1")
    variables = "variables: {password: {env: PASSWORD_OF_TWO, sensitive: true}}\n"
    put(one="a", two=stack("two", "a", more=variables))
    result = reconciler.ends(70, "plan --fleet --json", lacks="swordfish-1")
    assert codes_of(result.document) == {"one": 0, "two": 70}
    assert entries(result.document)["two"]["error"]["message"] == "internal error: KeyError: '(sensitive)'"
    [report] = re.findall(r"with the file (\S+) ", result.err)
    text = Path(report).read_text(encoding="utf-8")
    assert ("fails_for_one" in text, "swordfish-1" in text) == (True, False)
    Path(report).unlink()


@pytest.mark.parametrize("command", COMMANDS)
def test_stacks_that_cannot_be_checked_are_errors_of_their_entries(world: World, command: str) -> None:
    """Two stacks owning the same jobs are both named; the jobs of a local target are beside it."""
    put(good="a", wrong=stack("wrong", "b").replace("jobs:", "jbos:"))
    put(copy=stack("same", "a", url=world.url), first=stack("same", "b", url=world.url))
    put(**dict.fromkeys(("local-1", "local-2"), stack("beside", "a")))
    found = entries(world.ends(65, f"{command} --fleet --json").document)
    failed = {root: one["error"]["message"] for root, one in found.items() if "error" in one}
    assert set(failed) == {"copy", "first", "wrong"}
    assert "copy and first both declare stack same" in failed["copy"]
    assert "jbos" in failed["wrong"]
    assert set(found["wrong"]) == {"root", "stack", "exit_code", "error"}
    assert (found["wrong"]["stack"], found["wrong"]["exit_code"]) == ("wrong", 65)
    assert set(found["good"]) == {"root", "stack", "exit_code", "document"}


# ── options ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("options", "code", "why"),
    [
        ("--fleet --only=nowhere", 64, "of any stack of the fleet"),
        ("--fleet --only=no*", 64, "of any stack of the fleet"),
        ("--fleet --allow=lost-work=nowhere", 64, "of any stack of the fleet"),
        ("--fleet --var=y=1", 65, "unknown variable"),
        ("--fleet --var-file=values.yaml", 65, "unknown variable"),
        ("--fleet --out plan.json", 64, "--out works on a single stack"),
        ("--fleet --rerun nowhere", 64, "of any stack of the fleet"),
        ("--scheduler tcp://127.0.0.1:8786 one", 64, "--scheduler needs --fleet"),
    ],
)
def test_option_without_meaning_for_a_fleet_is_refused(
    reconciler: Reconciler, options: str, code: int, why: str
) -> None:
    put(one="a", two="b")
    write("y: 1\n", "values.yaml")
    reconciler.ends(code, f"plan {options}", out="", err=why)


def test_keys_variables_and_targets_apply_to_the_stacks_that_declare_them(reconciler: Reconciler) -> None:
    put(one=stack("one", "a b", more="variables: {x: {default: '1', allowed: ['1', '2']}}\n"))
    targets = "targets: {here: {kind: local}, there: {kind: local}}\ntarget: here\n"
    put(two=stack("two", "b c").replace("targets: {there: {kind: local}}\n", targets))
    document = reconciler.ends(0, "plan --fleet --json --only a,c*").document
    actions = {root: one["document"]["actions"] for root, one in entries(document).items()}
    keys = {root: [action["key"] for action in found] for root, found in actions.items()}
    assert keys == {"one": ["a"], "two": ["c"]}
    reconciler.ends(0, "validate --fleet --var x=2")
    assert codes_of(reconciler("validate --fleet --json --var x=3").document) == {"one": 65, "two": 0}
    document = reconciler("plan --fleet --json -t here").document
    assert codes_of(document) == {"one": 64, "two": 0}
    assert entries(document)["two"]["document"]["target"]["name"] == "here"
    reconciler.setenv("RECONCILER_SCHEDULER", "tcp://127.0.0.1:8786")  # for fleets only
    reconciler.ends(0, "plan one")


# ── the report ───────────────────────────────────────────────────────────────────────────────────────


def test_text_summarizes_unchanged_stacks_and_shows_the_rest_with_a_total(reconciler: Reconciler) -> None:
    put(kept="a", new="b c")
    reconciler("apply --yes kept")
    wrong = stack("wrong").replace("{kind: local}", "{kind: nothing}")
    put(x=wrong, y=wrong)
    lines = reconciler("plan --fleet").out.splitlines()
    assert lines[0] == "= kept  Plan: 0 to create, 0 to update, 0 to replace, 0 to terminate, 1 to keep."
    assert lines[1:3] == ["new:", "Stack new on there (emulator: jobs are pretended)"]
    assert "Plan: 2 to create, 0 to update, 0 to replace, 0 to terminate, 0 to keep." in lines
    assert "x: failed with exit code 65" in lines
    assert lines[-1] == (
        "Fleet: 4 stacks, 1 with changes, 2 failed; "
        "2 to create, 0 to update, 0 to replace, 0 to terminate, 1 to keep."
    )


def test_plan_without_changes_is_shown_if_it_lists_a_key(world: World) -> None:
    put(world.url, bad="a", kept="b")
    world.ends(0, "apply --fleet --yes")
    world.set_phase("Failed", "a")
    world.ends(0, "plan --fleet", out=["  = keep      a  r1   failed", "= kept  Plan: 0 to create"])
    world.ends(0, "plan --fleet --show-keep", out=["  = keep      a  r1   ", "  = keep      b  r1   "])
    world.ends(0, "plan --fleet --only a", out=["Stack kept on there"], lacks="= kept  ")
    # They are no changes, either.
    assert world("plan --fleet --json").document["summary"]["changed"] == 0


def test_stacks_with_the_same_failure_are_shown_once(world: World) -> None:
    world.patch.delenv("MODELARTS_AUTH_TOKEN")
    put(world.url, a="k", b="k", c="k")
    out = world.ends(7, "plan --fleet").out
    assert out.splitlines()[:2] == ["3 stacks: failed with exit code 7", "        a, b, c"]
    assert out.count("HUAWEICLOUD_SDK_AK") == 1


def test_preflight_runs_for_each_stack(world: World) -> None:
    unknown = stack("two", "a", url=world.url).replace("modelarts.vm.cpu.2u", "modelarts.nowhere")
    put(world.url, one="a", two=unknown)
    assert codes_of(world("plan --fleet --json").document) == {"one": 0, "two": 3}


def test_fleet_documents_equal_those_of_the_single_stacks(world: World) -> None:
    def timeless(document: Any) -> Any:
        return {name: value for name, value in document.items() if name != "created_at"}

    put(world.url, one="a")
    put(two=stack("two", "b", more="policies: [{name: no, deny: 'true', message: never}]\n"))
    for command in set(COMMANDS) - {"apply"}:
        together = entries(world(f"{command} --fleet --json").document)
        for root in ("one", "two"):
            alone = world(f"{command} --json {root}")
            assert together[root]["exit_code"] == alone.code
            assert timeless(together[root]["document"]) == timeless(alone.document)


def test_prometheus_tells_stacks_of_one_name_apart_by_their_root(reconciler: Reconciler) -> None:
    put(x=stack("same", "a"), y=stack("same", "b"))
    reconciler("plan --fleet -o prometheus=m.prom")
    lines = Path("m.prom").read_text(encoding="utf-8").splitlines()
    samples = [line.rpartition(" ")[0] for line in lines if not line.startswith("#")]
    assert len(set(samples)) == len(samples)
    assert 'reconciler_plan_actions{stack="same",target="there",action="create",root="x"} 1.0' in lines


def test_progress_is_a_line_now_and_then_and_each_stack_if_verbose(reconciler: Reconciler) -> None:
    put(one="a", two="a")
    reconciler.ends(0, "plan --fleet", err="")
    result = reconciler("plan --fleet -v --json")
    shown = re.findall(r"debug: (\d of \d) stacks done; (\w+): Plan: 1 to create", result.err)
    assert [count for count, _ in shown] == ["1 of 2", "2 of 2"]
    assert {name for _, name in shown} == {"one", "two"}
    reconciler.patch.setattr("reconciler.cli.fleet.SAY_AFTER_S", -1.0)
    assert reconciler("plan --fleet").err == "1 of 2 stacks done\n"


# ── apply ────────────────────────────────────────────────────────────────────────────────────────────

DENIED = stack("denied", "e", more="policies: [{name: no, deny: 'true', message: never}]\n")


def answering(reconciler: Reconciler, answer: Callable[[], None] = lambda: None) -> list[str]:
    """Confirm prompts on a terminal, or call `answer`; return the prompts."""
    asked: list[str] = []

    def confirm(question: str) -> None:
        asked.append(question)
        answer()

    reconciler.patch.setattr("reconciler.cli.execution.confirm", confirm)
    return asked


def summaries(document: Any) -> dict[str, dict[str, int]]:
    """Return the action counts by result, by the root of each applied stack."""
    ends = {root: one["document"]["events"] for root, one in entries(document).items() if "document" in one}
    return {
        root: {status: number for status, number in events[-1]["summary"].items() if number}
        for root, events in ends.items()
        if events
    }


def test_fleet_apply_asks_once_and_applies_each_stack_separately(reconciler: Reconciler) -> None:
    put(kept="a", one="b c", two="d", denied=DENIED, typo=BROKEN)
    reconciler.ends(0, "apply --yes kept")
    asked = answering(reconciler)
    result = reconciler.ends(65, "apply --fleet -o text -o json=r.json -o text=r.txt")
    assert asked == ["Apply the plans of 2 stacks?"]
    plans, results = (
        result.out.split("\n\nFleet: 5 stacks, 3 with changes, 1 failed; ")[0],
        result.out.splitlines(),
    )
    assert "  + create    b  r1   new" in plans
    assert results[-1] == "Fleet: 5 stacks, 2 with changes, 1 failed; 3 succeeded."
    assert result.out.count("Applied: 2 succeeded.") == 1
    text = Path("r.txt").read_text(encoding="utf-8")
    assert text.count("  + create    b  r1   new") == text.count("  succeeded create b") == 1
    document = json.loads(Path("r.json").read_text(encoding="utf-8"))
    assert codes_of(document) == {"denied": 3, "kept": 0, "one": 0, "two": 0, "typo": 65}
    assert summaries(document) == {
        "denied": {"skipped": 1},
        "kept": {},
        "one": {"done": 2},
        "two": {"done": 1},
    }
    assert document["summary"]["counts"]["done"] == 3
    assert [one["root"] for one in document["stacks"]] == ["denied", "kept", "one", "two", "typo"]
    # Now there is nothing to do, so there is no prompt.
    again = reconciler.ends(65, "apply --fleet")
    assert (len(asked), again.out.count("Fleet: ")) == (1, 1)
    history = entries(reconciler("history --fleet --json").document)
    assert [run["result"] for run in history["one"]["document"]["runs"]] == ["nothing to do", "complete"]


def test_declined_prompt_refuses_every_stack(world: World) -> None:
    put(world.url, one="a", two="b")

    def no() -> None:
        raise Refused(Diagnostic("not confirmed"))

    asked = answering(world, no)
    result = world.ends(3, "apply --fleet --json", err="not confirmed")
    assert (len(asked), codes_of(result.document), world.changes) == (1, {"one": 3, "two": 3}, [])
    assert summaries(result.document) == {}


def test_plan_other_than_the_shown_one_is_stale(world: World) -> None:
    put(world.url, one="a", two="b", three="c")

    def edit() -> None:
        put(world.url, two="b more")
        world.put("c")

    answering(world, edit)
    document = world.ends(4, "apply --fleet --json").document
    assert codes_of(document) == {"one": 0, "three": 4, "two": 4}
    assert entries(document)["two"]["error"]["message"].startswith("stale plan: the manifest or the service")
    assert sorted(world.phases()) == ["a", "c"]


def test_unverifiable_plan_is_unknown_and_not_stale(world: World) -> None:
    put(world.url, one="a")
    answering(world, lambda: world.fail(status=502, count=None))
    document = world.ends(8, "apply --fleet --json --timeout 1s").document
    assert entries(document)["one"]["error"]["message"].startswith("service error: cannot verify the plan: ")


def test_job_progress_makes_no_plan_stale(world: World) -> None:
    put(world.url, one="a")
    world.ends(0, "apply --fleet --yes")
    put(world.url, one="a b")
    answering(world, lambda: world.set_phase("Failed", "a"))
    assert codes_of(world.ends(0, "apply --fleet --json").document) == {"one": 0}


def test_lock_of_one_stack_does_not_block_others(reconciler: Reconciler) -> None:
    put(held="a", free="b")
    with ExitStack() as held:
        with chdir("held"):
            held.enter_context(held_by("bob", stack="held"))
        document = reconciler.ends(6, "apply --fleet --yes --json").document
    assert codes_of(document) == {"free": 0, "held": 6}
    assert summaries(document) == {"free": {"done": 1}}


def test_stacks_that_own_the_same_jobs_are_not_applied(world: World) -> None:
    put(copy=stack("same", "a", url=world.url), first=stack("same", "b", url=world.url))
    put(world.url, good="c")
    assert codes_of(world.ends(65, "apply --fleet --yes --json").document) == {
        "copy": 65,
        "first": 65,
        "good": 0,
    }
    assert list(world.phases()) == ["c"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_ends_every_stack_cleanly(world: World, number: int, code: int) -> None:
    put(world.url, **{f"s{n}": f"k{n} m{n}" for n in range(9)})
    served = world.service.app.requests

    class Interrupting(type(served)):  # type: ignore[misc]
        def append(self, request: Any) -> None:
            super().append(request)
            if request.operation == "CreateTrainingJob" and world.changes == ["CreateTrainingJob"]:
                os.kill(os.getpid(), number)
                time.sleep(0.2)

    world.service.app.requests = Interrupting(served)
    document = world.ends(code, "apply --fleet --yes --json", err="finishing the actions").document
    assert set(codes_of(document).values()) <= {0, code}
    assert [root for root, one in entries(document).items() if "not started" in str(one.get("error"))]
    done = sum(found.get("done", 0) for found in summaries(document).values())
    assert 0 < done == len(world.phases()) < 18


def test_stacks_are_waited_for_concurrently(reconciler: Reconciler, service: Service) -> None:
    """A wait may take days."""
    put(service.url, **{f"s{n}": f"k{n}" for n in range(6)})
    reconciler.patch.setattr("reconciler.apply.waiter.LONGEST_PAUSE_S", 0.1)
    reconciler.patch.setattr("reconciler.rollout.LONGEST_PAUSE_S", 0.1)

    def advance() -> None:
        while len(service.store.jobs()) < 6:
            time.sleep(0.05)
        service.clock.advance(minutes=5)

    mover = threading.Thread(target=advance, daemon=True)
    mover.start()
    result = reconciler.ends(0, "apply --fleet --yes --wait running --json")
    waits = [one["document"]["events"][-1]["waits"] for one in result.document["stacks"]]
    assert [wait["result"] for found in waits for wait in found] == ["reached"] * 6


# ── every command ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("command", COMMANDS)
def test_fleet_has_every_format_of_its_command(world: World, command: str) -> None:
    put(world.url, one="a", two="b", typo=stack("typo", "c") + "oops: 1\n")
    content = {"validate": Content.VALIDATION, "apply": Content.PLAN}.get(command) or Content(command)
    world.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    files = [f"-o {name}={name}.out" for name in formats_of(content)]
    files += ["--html html.out"] * (command == "history")
    world.ends(65, f"{command} --fleet {' '.join(files)} {'--yes' * (command == 'apply')}")
    shown = {file.stem: file.read_text(encoding="utf-8") for file in Path().glob("*.out")}
    assert len(shown) == len(files)
    assert [name for name, text in shown.items() if "typo" not in text] == []
    assert sorted(entries(json.loads(shown["json"]))) == ["one", "two", "typo"]
    assert shown["html"].count("<section>") == 3
    assert shown.get("markdown", "<!-- reconciler: fleet -->\n").startswith("<!-- reconciler: fleet -->\n")


def test_step_outputs_of_an_apply_count_the_actions_of_its_plans(world: World) -> None:
    put(world.url, one="a")
    world.ends(0, "apply --fleet --yes")
    edited = stack("one", "a", url=world.url).replace("lr: 0.1", "lr: 0.2")
    put(world.url, one=f"{edited}    lifecycle: {{on_change: fail}}\n", two="b")
    world.setenv("GITHUB_OUTPUT", "outputs")
    world.ends(3, "apply --fleet --yes -o github")
    outputs = dict(line.split("=", 1) for line in Path("outputs").read_text(encoding="utf-8").splitlines())
    assert (outputs["has_changes"], outputs["create"], outputs["conflict"]) == ("true", "1", "1")
    assert outputs["summary"].startswith("Fleet: 2 stacks, 1 with changes; 1 succeeded")


def test_step_outputs_of_stale_plans_still_tell_their_changes(world: World) -> None:
    put(world.url, one="a")
    world.setenv("GITHUB_OUTPUT", "outputs")
    answering(world, lambda: put(world.url, one="b"))
    world.ends(4, "apply --fleet -o github")
    outputs = dict(line.split("=", 1) for line in Path("outputs").read_text(encoding="utf-8").splitlines())
    assert (outputs["has_changes"], outputs["create"]) == ("true", "1")


def test_status_and_history_accept_keys_of_any_stack(reconciler: Reconciler) -> None:
    put(one="a", two="b")
    reconciler("apply --fleet --yes")
    for command, rows in (("status", "jobs"), ("history", "revisions")):
        document = reconciler.ends(0, f"{command} --fleet a --json").document
        found = {
            root: [row["key"] for row in one["document"][rows]] for root, one in entries(document).items()
        }
        assert found == {"one": ["a"], "two": []}
        reconciler.ends(64, f"{command} --fleet nowhere", out="", err="of any stack of the fleet")
    assert reconciler("status --fleet").out.splitlines()[-1] == "Fleet: 2 stacks; 2 jobs."
    assert reconciler("history --fleet a").out.splitlines()[-1] == "Fleet: 2 stacks; 1 run, 1 revision."


# ── drift ──────────────────────────────────────────────────────────────────────────────────────────


def test_fleet_drift_is_reported_once(world: World) -> None:
    put(world.url, one="a")
    world.ends(0, "apply --yes one")
    world.set_phase("Failed")
    assert [world("drift --fleet --since-last").code for _ in range(2)] == [2, 0]


# ── the process ──────────────────────────────────────────────────────────────────────────────────────


def test_interrupt_ends_the_fleet_without_a_report(world: World) -> None:
    put(world.url, **{f"s{number}": "a" for number in range(30)})
    world.fail(effect=Effect.DELAY, delay_s=0.05, count=None)
    served = world.service.app.requests

    class Interrupting(type(served)):  # type: ignore[misc]
        def append(self, request: Any) -> None:
            super().append(request)
            if len(self) == 40:
                os.kill(os.getpid(), signal.SIGINT)

    world.service.app.requests = Interrupting(served)
    result = world.ends(130, "plan --fleet --json", out="")
    assert len(world.requests) < 100
    assert re.search(r"^s\d+: Plan: 1 to create", result.err, re.MULTILINE)
