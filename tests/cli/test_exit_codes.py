"""docs/reference/exit-codes.md: every outcome has its code, and errors are shown without a traceback."""

from __future__ import annotations

import itertools
import socket
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.emulator import Effect
from reconciler.emulator.lifecycle import Durations
from reconciler.errors import PRECEDENCE, ExitCode, first_of
from tests.cli.conftest import Reconciler, World, manifest, put_finished_job, write
from tests.cli.terminal import Terminal, run_on_terminal


def test_exit_codes_have_the_documented_precedence() -> None:
    order = [129, 130, 143, 70, 7, 6, 4, 5, 10, 9, 8, 65, 64, 1, 3, 2, 0]
    assert [int(code) for code in PRECEDENCE] == order
    assert set(PRECEDENCE) == set(ExitCode)
    for first, second in itertools.combinations(PRECEDENCE, 2):
        assert first_of([second, first]) is first
    assert first_of([]) is ExitCode.DONE


WRONG_USE: dict[str, tuple[str, ...]] = {
    "": ("pln", "emulator", "jobs", "jobs lst", "schema nonsense", "explain nonsense"),
    "plan": (
        *("--nonsense", "there-is-no-such-directory", "--parallelism many", "--only b", "--only b*"),
        *("-t elsewhere", "--var no-equals-sign", "-o yaml"),
        *("--allow lost-wrok", "--allow lost-work=b", "--allow lost-work="),
    ),
    "apply": ("--yes --allow terminations=a", "--timeout soon", "--yes --allow-empty"),
    "emulator serve": (
        *("--access-key only-half", "--chaos nan", "--host a..b", "--host=", "--host \udc80"),
        *(f"--speed {speed}" for speed in ("nan", "inf", "-1", "0", "1e7", "fast")),
    ),
    "jobs list": (
        *("--phase Sleeping", "--filter phase", "--filter phase:is:Running"),
        *(f"--filter id:in:{','.join('abcdefghijk')}", "--limit 0", "--created-after yesterday"),
        *("--created-after 1d --created-before 2d", "--tag =x", "nowhere", "-t elsewhere"),
    ),
    "jobs": (
        *("show", "show x --jsn", "terminate", "terminate x --in nowhere"),
        *("wait x --for joy", "wait x --timeout soon", "logs x --lines -1"),
    ),
    "history": ("-o sarif", "-o junit"),
    "flavors": ("--type TPU",),
    "engines": ("--nme x",),
}


@pytest.mark.parametrize("command", WRONG_USE)
def test_wrong_usage_is_64_and_never_2(reconciler: Reconciler, command: str) -> None:
    write(manifest("a"))
    for words in WRONG_USE[command]:
        # The error points to --help.
        reconciler.ends(64, f"{command} {words}", out="", err="error: ", lacks=["Commands:", "Traceback"])


#: An empty argument is an unset shell variable; it must not mean the current directory.
EMPTY = (
    *(
        "validate ~",
        "plan ~",
        "plan --fleet ~",
        "apply --yes ~",
        "destroy --yes ~",
        "drift ~",
        "fmt --check ~",
    ),
    *("validate jobs.yaml ~", "plan --var-file ~", "watch ~ --every 15m", "init ~", "unlock --yes ~"),
    *("why a ~", "history ~", "status ~", "status a ~", "release a ~ --yes", "adopt a x ~ --yes"),
    *("adopt --from-stack old ~ --yes", "explain origin a ~", "review ~ .", "review . ~", "review . . ~"),
    *("jobs list ~", "jobs show a --in ~", "export --all --in ~", "doctor ~", "notify test ~"),
)


@pytest.mark.parametrize("line", EMPTY)
def test_empty_path_is_wrong_usage(reconciler: Reconciler, line: str) -> None:
    write(manifest("a"))
    result = reconciler("", *("" if word == "~" else word for word in line.split()))
    assert (result.code, result.out) == (64, "")


def test_unavailable_listen_address_is_1(reconciler: Reconciler) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = reconciler("emulator serve --port", port)
    assert (result.code, result.out) == (1, "")
    assert f"why: 127.0.0.1:{port}: Address already in use\n" in result.err
    assert "fix: choose another --port" in result.err
    reconciler.ends(1, "emulator serve --host nowhere.invalid", err="error: cannot listen")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (manifest("a").replace("spec:", "spce:"), "unknown field"),
        ("stack: test\njobs: {a: [", "invalid YAML"),
        ("jobs: {}\n", "no root file"),
    ],
)
def test_invalid_manifest_is_65_with_its_location(reconciler: Reconciler, text: str, words: str) -> None:
    write(text)
    for command in ("validate", "plan", "apply", "drift", "destroy"):
        reconciler.ends(65, command, err=[f"error: {words}", "jobs.yaml"], lacks="Traceback")


def test_missing_credentials_are_7(reconciler: Reconciler) -> None:
    write(manifest("a", url="http://127.0.0.1:9"))
    reconciler.ends(7, "plan", err="fix:")


def test_wrong_token_is_7(world: World) -> None:
    world.write("a")
    world.setenv("MODELARTS_AUTH_TOKEN", "forged-token-2")
    for command in (["plan"], ["apply", "--yes"], ["drift"], ["destroy", "--yes"]):
        world.ends(7, *command, lacks="forged-token-2")


@pytest.mark.usefixtures("_no_retry_delay")
def test_unreachable_endpoint_is_8(reconciler: Reconciler) -> None:
    write(manifest("a", url="http://127.0.0.1:9"))
    reconciler.setenv("MODELARTS_AUTH_TOKEN", "tell-nobody-1")
    for command in ("plan --detailed-exitcode", "apply --yes", "drift", "destroy --yes"):
        reconciler.ends(8, command, out="cannot be reached")
    runs = reconciler.ends(0, "history --json").document["runs"]
    assert {run["kind"]: run["result"] for run in runs} == dict.fromkeys(
        ("apply", "drift", "destroy"), "unknown"
    )


def many(world: World) -> str:
    """A manifest that terminates five of six running jobs."""
    world.apply(world.manifest(*"abcdef"))
    return world.manifest("a")


def long_running(world: World) -> str:
    """A manifest without a job that has run for 30 hours."""
    world.store.durations = Durations(running=100 * 3600)
    world.apply(world.manifest("a", "b"))
    world.time.sleep(108000)
    return world.manifest("b")


def vanished(world: World) -> str:
    """A manifest whose only job, last seen running, is missing."""
    world.apply(world.manifest("a"))
    for job in world.store.jobs():
        world.store.set_phase(job.id, "Failed")
        world.store.delete("p1", job.id)
    world.time.sleep(3600)
    return world.manifest("b")


GUARDED = {
    "terminations": many,
    "lost-work": long_running,
    "found-nothing": vanished,
}


@pytest.mark.parametrize("guard", GUARDED)
def test_guard_refusal_is_3_and_names_the_allow_option(world: World, guard: str) -> None:
    write(GUARDED[guard](world))
    world.ends(3, "plan", err=f"--allow {guard}")
    world.ends(3, "plan --detailed-exitcode")
    assert world("plan --json").document["applyable"] is False
    before = [(job.id, job.life.phase) for job in world.store.jobs()]
    world.ends(3, "apply --yes")
    assert [(job.id, job.life.phase) for job in world.store.jobs()] == before
    world.ends(0, "plan --force")
    world.ends(2, "plan --detailed-exitcode --allow budget --allow", guard)
    world.setenv("RECONCILER_ALLOW", f"budget, {guard}")
    world.ends(0, "plan")
    world.ends(0, "apply --yes")


def test_first_apply_to_a_second_target_warns_and_local_targets_do_not_count(world: World) -> None:
    both = world.manifest("a").replace("targets:\n", "target: there\ntargets:\n  here: {kind: local}\n")
    other = f"other: {{kind: modelarts, endpoint: '{world.url}', project_id: p1, workspace_id: {'2' * 32}}}"
    write(both.replace("targets:\n  here", f"targets:\n  {other}\n  here"))
    world.ends(0, "apply --yes -t here")
    result = world("apply --yes")
    assert (result.code, "first apply to this target" in result.out) == (0, False)
    world.ends(0, "plan -t other", out="first apply to this target")
    assert "first apply" not in world("plan -t here").out


def test_unknown_precedes_refusal_and_refusal_precedes_changes(world: World) -> None:
    write(many(world))
    world.fail("ListTrainingJobs", Effect.MALFORMED_JOB, count=99)
    world.ends(8, "plan --detailed-exitcode")


def test_key_in_conflict_is_3_in_apply_and_only_shows_in_a_plan(world: World) -> None:
    body = {
        "kind": "job",
        "metadata": {"name": "a"},
        "algorithm": {"code_dir": "obs://b/c/", "boot_file": "obs://b/c/t.py", "engine": {"engine_id": "e"}},
        "spec": {"resource": {"flavor_id": "f", "node_count": 1}},
    }
    world.store.create("p1", body)
    world.write("a", "b")
    world.ends(2, "plan --detailed-exitcode")
    world.ends(3, "apply --yes")
    world.ends(0, "plan --detailed-exitcode")
    assert "conflict" in world("plan").out


@pytest.mark.parametrize(("text", "code"), [("y\n", 0), ("n\n", 3), ("\n", 3)])
@pytest.mark.parametrize(
    ("command", "question", "jobs_after_yes"),
    [("apply", "Apply this plan?", ["a", "a-r2"]), ("destroy", "Terminate these jobs?", ["a"])],
)
def test_declined_prompt_is_a_refusal(
    world: World,
    command: str,
    question: str,
    jobs_after_yes: list[str],
    text: str,
    code: int,
) -> None:
    world.apply(world.manifest("a"))
    if command == "apply":
        [job] = world.store.jobs()
        world.store.set_phase(job.id, "Completed")
        world.write("a", lr="0.2")
    world.patch.setattr(sys, "stdin", Terminal(text))
    world.ends(code, command, err=question)
    assert [job.name for job in world.store.jobs()] == (jobs_after_yes if code == 0 else ["a"])
    phases = [job.life.phase for job in world.store.jobs()]
    assert ("Terminating" in phases) is (command == "destroy" and code == 0)


@pytest.mark.parametrize(("keys", "code"), [(b"\x04", 3), (b"\x03", 130)], ids=["Ctrl-D", "Ctrl-C"])
def test_end_of_input_at_the_prompt_is_a_refusal(tmp_path: Path, keys: bytes, code: int) -> None:
    (tmp_path / "jobs.yaml").write_text(manifest("a"), encoding="utf-8")

    def is_asked(screen: list[str]) -> bool:
        return any("Apply this plan?" in line for line in screen)

    seen = run_on_terminal(tmp_path, "apply", interrupt_when=is_asked, keys=keys)
    assert seen.code == code, seen.whole
    assert any("not confirmed" in line for line in seen.whole) is (code == 3)


@pytest.mark.parametrize("command", ["apply", "destroy"])
def test_refusal_without_a_terminal_names_the_flag(world: World, command: str) -> None:
    world.apply(world.manifest("a"))
    world.write("b")
    world.ends(3, command, err="fix: add --yes")


@pytest.mark.parametrize("command", ["apply", "apply --fleet"])
def test_starts_deferred_to_the_wait_need_confirmation(world: World, command: str) -> None:
    world.apply(world.manifest("a"))
    write(world.manifest("a", "b") + "    needs: [a]\n")
    world.ends(0, command)
    world.ends(3, f"{command} --wait running", err="fix: add --yes")
    assert world.changes == ["CreateTrainingJob"]


@pytest.mark.parametrize("command", ["apply", "destroy", "unlock"])
def test_empty_plan_needs_no_confirmation(reconciler: Reconciler, command: str) -> None:
    reconciler.apply(manifest("a"))
    if command == "destroy":
        reconciler.ends(0, "destroy --yes")
    result = reconciler(command)
    assert (result.code, "?" in result.err) == (0, False)


def test_drift_is_0_2_or_8(world: World) -> None:
    world.write("a")
    world.ends(0, "drift")  # never applied, so it is pending
    put_finished_job(world.store, project="p1")
    world.ends(2, "drift")  # missing
    world.ends(0, "apply --yes")
    world.ends(0, "drift")
    [_, job] = world.store.jobs()
    world.store.set_phase(job.id, "Failed")
    world.ends(2, "drift", out="failed")
    world.fail("ListTrainingJobs", Effect.MALFORMED_JOB, count=99)
    world.ends(8, "drift")


def test_internal_error_is_70_with_a_report_without_secrets(world: World, tmp_path: Path) -> None:
    world.write("a")

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("tell-nobody-1")

    world.patch.setattr("reconciler.reconcile.propose_plan", broken)
    world.patch.setattr("tempfile.tempdir", str(tmp_path))
    result = world.ends(70, "plan", lacks="Traceback")
    [report] = tmp_path.glob("reconciler-report-*.txt")
    assert stat.S_IMODE(report.stat().st_mode) == 0o600
    assert "ZeroDivisionError" in report.read_text()
    assert "tell-nobody-1" not in report.read_text() + result.err


def test_help_and_version_are_0(reconciler: Reconciler) -> None:
    reconciler.ends(0, "--help")
    assert reconciler().code == 0
    assert reconciler("--version").out.startswith("reconciler ")
    for command in ("validate", "plan", "apply", "destroy", "drift", "schema", "explain", "emulator"):
        reconciler.ends(0, command, "--help", lacks="--version")
        version = reconciler("--version").out
        assert command == "emulator" or reconciler(f"{command} --version").out == version


def unreachable_store() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"postgresql://r@127.0.0.1:{free.getsockname()[1]}/none"


def damaged_store() -> str:
    Path("damaged.sqlite3").write_bytes(b"no database" * 100)
    return "sqlite:///damaged.sqlite3"


@pytest.mark.parametrize("store", [unreachable_store, damaged_store])
def test_unavailable_store_refuses_changes_unless_overridden(world: World, store: Callable[[], str]) -> None:
    url = store()
    world.write("a")

    def run(command: str, *arguments: str) -> int:
        world.ends(1, command, "--yes", *arguments, "--records", url)
        return world(command, "--yes", *arguments, "--records", url, "--without-records").code

    assert run("apply") == 0
    world.write("a", "b")
    world.ends(0, "plan --out b.plan --records", url, "--without-records")
    world.ends(0, "apply --yes --plan b.plan --without-records")
    assert [job.name for job in world.store.jobs()] == ["a", "b"]
    assert run("destroy") == 0
    assert [job.life.phase for job in world.store.jobs()] == ["Terminating", "Terminating"]
