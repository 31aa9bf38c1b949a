"""`reconciler jobs`, `flavors`, `engines`: the calls of the service, as seen by people and programs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from reconciler.core.observed import unseen
from reconciler.emulator import Effect, Job, Store
from tests.cli.conftest import Reconciler, Result, World, manifest, write
from tests.modelarts.building import a_body

OWNED = "reconciler.vision.resnet50.r1.a3f9a2c1b7d4e"
NO_ID = "00000000-0000-0000-0000-000000000000"
DAY = 86_400


@pytest.fixture
def here(world: World) -> World:
    """A stack with a key `a` without a job."""
    world.write("a")
    return world


def put(world: World, name: str = "resnet50", phase: str = "Running", description: str = "") -> Job:
    return world.put(name, phase, description)


def put_tagged(world: World, name: str) -> Job:
    job = put(world, name)
    world.store.tag("p1", job.id, {"team": "vision"})
    return job


def names(result: Result) -> str:
    assert result.code == 0, result.err
    found = [item["metadata"]["name"] for item in result.document["items"]]
    assert result.document["count"] == len(found)
    return "".join(found)


# ── list ───────────────────────────────────────────────────────────────────────────────────────────


def test_list_shows_owner_phase_and_age(here: World) -> None:
    put(here, description=f"nightly {OWNED}")
    put(here, "copy", "Failed", OWNED)
    put(here, "by-hand", "Pending")
    here.time.sleep(7200)
    head, *rows = [line.split() for line in here.ends(0, "jobs list").out.splitlines()]
    assert head == ["ID", "NAME", "PHASE", "OWNER", "AGE", "DURATION", "NODES"]
    assert [" ".join(row[1:]) for row in rows] == [
        "by-hand Pending - 2 h - 2",
        "copy Failed (copied marker) 2 h - 2",
        "resnet50 Running vision/resnet50 r1 2 h 2 h 2",
    ]


def test_list_takes_the_filters_of_the_service(here: World) -> None:
    put(here, "a")
    here.put("b", "Failed", train_type="SFT")
    here.time.sleep(7200)
    put_tagged(here, "c")
    put(here, "d", "Pending")
    for found, lines in (
        ("dcba", ("", "--kind job", "--unified", "--group-by kind")),
        ("abcd", ("--order asc",)),
        ("b", ("--name B", "--train-type ftjob", "--filter name:like:nothing\\,like,b")),
        ("ca", ("--phase running", "--host-ip 192.168.0.2")),
        ("ca", ("--host-ip 192.168.0.9 --host-ip 192.168.0.1",)),
        ("dca", ("--phase Running --phase waiting", "--filter phase:not:Failed", "--train-type job")),
        ("", ("--kind mrs_job", "--user nobody", "--algorithm-name resnet", "--tag team=nlp")),
        ("", ("--host-ip 192.168.0.9",)),
        ("d", ("--filter phase:in:Failed,Pending --filter name:like:d",)),
        ("dc", ("--created-after 90m", "--limit 2")),
        ("ba", ("--created-before 90m", "--created-after 45d --created-before 90m")),
        ("c", ("--tag team", "--tag team=nlp,vision", "--host-ip 192.168.0.2 --created-after 90m")),
    ):
        for options in lines:
            assert names(here(f"jobs list --json {options}")) == found, options


@pytest.mark.parametrize("which", ["", "--tag team"])
def test_time_filters_need_one_search(here: World, which: str) -> None:
    """The jobs are 96, 64, 32 and 0 days old."""
    for n, name in enumerate("abcd"):
        put_tagged(here, name)
        here.time.sleep(32 * DAY if n < 3 else 0)
    for times, found in (
        ("", "d" if which else "dcba"),
        ("--created-after 2d", "d"),
        ("--created-after 31d", "d"),
        ("--created-after 70d --created-before 40d", "b"),
        ("--created-after 9998-12-31 --created-before 9999-12-31", ""),
        ("--created-after 9999-12-31", ""),
        ("--created-after 99999d --created-before 99998d", ""),
    ):
        here.forget_requests()
        result = here(f"jobs list --json {which} {times}")
        assert (names(result), len(here.requests)) == (found, 1), times
    for times, found in (("--created-after 33d", "dc"), ("--created-before 40d", "ba")):
        here.forget_requests()
        if which:
            here.ends(64, f"jobs list {which} {times}", out="", err="31 days")
        else:
            assert names(here(f"jobs list --json {times}")) == found
        assert len(here.requests) == (not which)
    here.ends(64, f"jobs list {which} --created-after 1d --created-before 2d", out="", err="--created-before")


def test_list_reads_no_more_pages_than_the_limit_needs(here: World) -> None:
    for n in range(120):
        put(here, f"{n:03}")
    result = here("jobs list --limit 60 --json")
    assert names(result) == "".join(f"{n:03}" for n in range(119, 59, -1))
    assert (result.document["complete"], len(here.requests)) == (False, 2)
    here.ends(0, "jobs list --limit 60", err="--limit")
    assert here("jobs list --limit 500 --json").document["complete"] is True


def test_unreadable_job_is_named_and_hides_no_other(here: World) -> None:
    put(here, "good")
    put(here, "bad")
    here.fail("ListTrainingJobs", Effect.MALFORMED_JOB)
    here.ends(8, "jobs list", out="good", err="bad: status.phase missing")


def test_unknown_filter_is_refused_by_the_service(here: World) -> None:
    here.ends(1, "jobs list --filter colour:in:red", out="", err="ModelArts.2807")


def test_log_is_sanitized_for_terminal_and_ci(here: World) -> None:
    put(here)
    shown = {
        "::error::a": r"\x3a:error::a",
        "  ::set-output name=a::b": r"  \x3a:set-output name=a::b",
        "c ##vso[task.setvariable]d": r"c \x23#vso[task.setvariable]d",
        "##[error]e": r"\x23#[error]e",
        "\u202ef": r"\u202ef",
    }
    log = "".join(f"{line}\n" for line in shown).encode()
    here.patch.setattr("reconciler.emulator.Store.log", lambda *_: (log, len(log)))
    assert here("jobs logs resnet50").out.splitlines() == [*shown.values()]
    result = here.ends(0, "jobs logs resnet50 --json", lacks=["##", "\u202e"])
    assert result.document["log"].splitlines() == [*shown]


# ── show ───────────────────────────────────────────────────────────────────────────────────────────


def test_list_and_show_give_all_that_the_service_reported(here: World) -> None:
    job = here.put("resnet50", "Running", future={"field": [1, {"x": None}], "word": "of next year"})
    whole = json.loads(here.store.find(job.id).text)
    assert here("jobs list --json").document["items"] == [whole]
    for named in (job.id, "resnet50", "ResNet50"):
        assert here("jobs show --json", named).document == whole
        here.ends(
            0,
            "jobs show",
            named,
            out=[f"id           {job.id}", "owner        none (unmanaged)", "    word: of next year"],
            lacks="      - name: ",
        )


def test_tokens_of_endpoints_are_in_no_output(here: World) -> None:
    job = put(here)
    token = f"token-{job.id}"
    notebook = {"jupyter-lab/enable": "true"}
    here.store.edit(job.id, lambda body: body["metadata"].update(annotations=notebook))
    assert token in here.store.find(job.id).text
    for line in ("show {}", "show {} --json", "list --json", "terminate {} --yes --json"):
        here.ends(0, f"jobs {line.format(job.id)} -vv", lacks=token)
    lab = here("jobs show --json", job.id).document["endpoints"]["jupyter_lab"]
    assert lab == {"url": f"https://{job.id}.modelarts.invalid/jupyter-lab", "token": "(sensitive)"}


@pytest.mark.parametrize("verb", ["show", "logs", "events", "terminate", "delete", "wait"])
def test_missing_job_is_1(here: World, verb: str) -> None:
    for named in (NO_ID, "no-such-name", "..", "batch-delete", "a b"):
        here.ends(1, "jobs", verb, named, out="", err=["no such job", "reconciler jobs list"])
    assert here.changes == []


# ── logs, events ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("_growing_logs")
def test_logs_print_the_log_and_nothing_else(here: World) -> None:
    job = put(here)
    here.time.sleep(35)
    result = here.ends(0, "jobs logs resnet50", err="")
    texts = [line.partition("] ")[2] for line in result.out.splitlines()]
    assert texts == [f"[worker-0] step {n}" for n in range(4)]
    last = here("jobs logs --task worker-1 --lines 1", job.id).out
    assert (last.endswith("[worker-1] step 3\n"), last.count("\n")) == (True, 1)
    assert here("jobs logs --lines 2 --json", job.id).document["log"].count("\n") == 2


def test_missing_log_is_no_failure(here: World) -> None:
    put(here, phase="Pending")
    here.ends(0, "jobs logs resnet50", out="", err="yet (Pending)")
    assert here("jobs logs resnet50 --json").document["log"] is None


def run_for(world: World, name: str, seconds: int, result: str = "Completed") -> Job:
    """Create a job that runs for this long."""
    body = a_body(name)
    body["algorithm"]["environments"] = {"EMULATOR_RUN_SECONDS": str(seconds), "EMULATOR_RESULT": result}
    return world.store.create("p1", body)


@pytest.mark.usefixtures("_growing_logs")
def test_follow_prints_each_line_once_until_the_end(here: World) -> None:
    here.store.set_phase(run_for(here, "short", 95).id, "Pending")
    result = here.ends(0, "jobs logs short --follow", err=["no log of worker-0 yet", "short is Completed."])
    assert [line.rpartition(" ")[2] for line in result.out.splitlines()] == [str(n) for n in range(10)]
    lines = here("jobs logs short --follow --lines 3 --json").events
    assert [line["line"].rpartition(" ")[2] for line in lines] == ["7", "8", "9"]


@pytest.mark.parametrize(
    ("content", "full_size", "seen", "is_last", "expected"),
    [
        ("a\nb\n", 4, 0, False, ("a\nb\n", 4, False)),
        ("a\nb\n", 4, 2, False, ("b\n", 4, False)),
        ("a\nb\nhal", 7, 2, False, ("b\n", 4, False)),
        ("a\nb\nhal", 7, 4, True, ("hal", 7, False)),
        ("a\nb\n", None, 2, False, ("b\n", 4, False)),
        ("y\nz\n", 24, 22, False, ("z\n", 24, False)),
        ("y\nz\n", 24, 2, False, ("y\nz\n", 24, True)),
        ("new\n", 4, 99, False, ("new\n", 4, False)),
        ("ä\n", 3, 0, False, ("ä\n", 3, False)),
        ("", 0, 0, True, ("", 0, False)),
    ],
)
def test_unseen_part_of_a_growing_log_is_found(
    content: str, full_size: int | None, seen: int, is_last: bool, expected: tuple[str, int, bool]
) -> None:
    assert unseen(content, full_size, seen, is_last=is_last) == expected


def messages(world: World, job: Job, options: str = "") -> list[str]:
    told = world(f"jobs events {job.id} --json {options}").document["events"]
    return [event["message"] for event in told]


def test_events_are_printed(here: World) -> None:
    job = put(here, phase="Failed")
    lines = here("jobs events resnet50").out.splitlines()
    assert lines[0].split() == ["TIME", "LEVEL", "SOURCE", "MESSAGE"]
    assert lines[-1].endswith("Job     Training job failed.")
    assert messages(here, job)[-1] == "Training job failed."


def test_events_are_read_page_by_page(here: World) -> None:
    job = put(here)
    for n in range(150):
        here.store.set_phase(job.id, ["Pending", "Running"][n % 2])
    assert [len(messages(here, job, options)) for options in ("", "--limit 120")] == [152, 120]


# ── terminate and delete ───────────────────────────────────────────────────────────────────────────


def test_terminate_prompts_or_names_the_flag_without_a_terminal(here: World) -> None:
    job = put(here)
    here.ends(3, "jobs terminate", job.id, err=["--yes", f"{job.id}  resnet50  Running"])
    assert here.changes == []
    here.setenv("RECONCILER_YES", "1")
    assert here("jobs terminate resnet50").out == f"terminating  {job.id}  resnet50\n"
    assert here.phases() == {"resnet50": "Terminating"}


@pytest.mark.parametrize(
    ("verb", "phase", "flags", "why"),
    [
        ("terminate", "Terminating", "", "resnet50 is Terminating: already terminating"),
        ("terminate", "Completed", "", "resnet50 is Completed: nothing to terminate"),
        ("terminate", "Hibernating", "", "resnet50 is Hibernating: the phase is unknown to this version"),
        ("terminate", "Running", ".protected", "protect: false"),
        ("delete", "Running", "", "resnet50 is Running: the record of an active job cannot be deleted"),
        ("delete", "Terminating", "", "resnet50 is Terminating: wait: the job is being terminated"),
        ("delete", "Hibernating", "", "resnet50 is Hibernating: the phase is unknown to this version"),
    ],
)
def test_force_does_not_override_illegal_phase_or_protection(
    here: World, verb: str, phase: str, flags: str, why: str
) -> None:
    put(here, phase=phase, description=flags and OWNED + flags)
    result = here.ends(3, f"jobs {verb} resnet50 --yes --force", out="", err=why)
    assert flags or "legal " in result.err
    assert here.changes == []


@pytest.mark.parametrize("verb", ["terminate", "delete"])
def test_all_jobs_are_checked_before_the_first_is_touched(here: World, verb: str) -> None:
    good, bad = ("Running", "Completed") if verb == "terminate" else ("Completed", "Running")
    jobs = [put(here, "one", good), put(here, "two", bad), put(here, "three", bad)]
    result = here.ends(3, f"jobs {verb} --yes", *(job.id for job in jobs))
    assert result.err.count("error: cannot ") == 2
    here.ends(1, f"jobs {verb} one --yes", NO_ID)
    assert here.changes == []


@pytest.mark.parametrize(
    ("verb", "phase", "fix"),
    [("terminate", "Running", "change resnet50 in the"), ("delete", "Completed", "keep its record, which")],
)
def test_job_that_a_stack_owns_needs_force(here: World, verb: str, phase: str, fix: str) -> None:
    put(here, "resnet50", phase, OWNED)
    put(here, "copy", phase, OWNED)
    here.ends(3, f"jobs {verb} resnet50 --yes", err=["r1 of resnet50 in stack vision", fix, "--force"])
    assert here.changes == []
    here.ends(0, f"jobs {verb} resnet50 --yes --force")
    # A copied marker is no ownership.
    here.ends(0, f"jobs {verb} copy --yes")
    assert not Path(".reconciler").exists(), "recorded only where there are records"


@pytest.mark.parametrize(
    ("command", "name", "then"),
    [("jobs terminate a --yes --force", "jobs terminate", 2), ("destroy --yes", "destroy", 0)],
)
def test_drift_says_by_whom_a_declared_job_was_terminated(
    here: World, command: str, name: str, then: int
) -> None:
    here.ends(0, "apply --yes")
    here.ends(0, command)
    here.time.sleep(60)
    assert ("terminated outside the manifest" in here("plan --show-keep").out) is (then == 2)
    document = here.ends(2, "drift --json").document
    [entry] = document["drift"]
    assert (entry["class"], document["pending"]) == ("terminated", [])
    assert entry["detail"].startswith(f"a was terminated by {name} (")
    assert here("history --json").document["runs"][1]["kind"] == name
    here("apply --yes")
    here.ends(then, "drift")


@pytest.mark.parametrize(
    "command", ["jobs list", "jobs show a", "jobs wait a --for running", "export a", "export --all", "doctor"]
)
def test_jobs_command_records_observations_of_the_stack(here: World, command: str) -> None:
    here.ends(0, "apply --yes")
    here.time.sleep(60)
    shutil.rmtree(".reconciler")
    here(command)
    [revision] = here("history --json").document["revisions"]
    assert (revision["key"], revision["phase"]) == ("a", "Running")


def recorded_phase(here: World) -> str:
    [revision] = here("history --json").document["revisions"]
    return str(revision["phase"])


def test_followed_log_records_the_end_of_the_job(here: World) -> None:
    here.ends(0, "apply --yes")
    here.time.sleep(60)
    here.ends(0, "jobs logs a --follow", err="a is Completed")
    assert recorded_phase(here) == "Completed"


def test_observation_before_a_confirmation_hides_no_later_one(here: World) -> None:
    here.ends(0, "apply --yes")
    here.time.sleep(60)

    def complete_and_plan(question: str) -> None:
        here.set_phase("Completed")
        here.time.sleep(60)
        here("plan")

    here.patch.setattr("reconciler.cli.job_actions.confirm", complete_and_plan)
    here("jobs terminate a --force")
    assert recorded_phase(here) == "Completed"


def test_termination_succeeds_without_records(here: World) -> None:
    put(here, description="reconciler.test.resnet50.r1.a000000000000")
    here.setenv("RECONCILER_RECORDS", "nonsense://there")
    here.ends(0, "jobs terminate resnet50 --yes --force", err="the termination is not recorded")
    assert here.changes == ["StopTrainingJob"]


def test_terminate_of_a_job_already_terminating_succeeds(here: World) -> None:
    job = put(here)
    here.fail("StopTrainingJob", Effect.ANSWER_AFTER, status=409, code="ModelArts.2796")
    outcome = here.ends(0, "jobs terminate resnet50 --yes --json")
    result = {"id": job.id, "name": "resnet50", "result": "terminating", "error": None}
    assert outcome.document["jobs"] == [result]


def test_job_that_cannot_be_terminated_stops_no_other(here: World) -> None:
    ids = {name: put(here, name).id for name in ("one", "two", "three")}
    here.fail(path=f"*{ids['two']}*", method="POST", status=400, code="ModelArts.2788")
    told = here.ends(5, "jobs terminate one two three two --yes --json").document["jobs"]
    results = {"one": "terminating", "two": "failed", "three": "terminating"}
    assert [(done["name"], done["result"]) for done in told] == [*results.items()]
    assert told[1]["error"]["code"] == "ModelArts.2788"
    assert here.phases() == {"one": "Terminating", "two": "Running", "three": "Terminating"}


def test_several_jobs_are_deleted_by_one_call(here: World) -> None:
    for name in ("one", "two", "three"):
        put(here, name, "Failed")
    assert here("jobs delete one --yes").out.startswith("deleting  ")
    here.ends(0, "jobs delete two three --yes")
    assert here.changes == ["DeleteTrainingJob", "BatchDeleteTrainingJob"]
    assert here.store.jobs() == []


@pytest.mark.parametrize("jobs", ["one", "one two"])
def test_lost_answer_to_a_delete_is_looked_up(here: World, jobs: str) -> None:
    for name in jobs.split():
        put(here, name, "Failed")
    for operation in ("DeleteTrainingJob", "BatchDeleteTrainingJob"):
        here.fail(operation, Effect.LOST_AFTER)
    told = here.ends(0, f"jobs delete {jobs} --yes --json").document["jobs"]
    assert [done["result"] for done in told] == ["deleted"] * len(jobs.split())


# ── wait ───────────────────────────────────────────────────────────────────────────────────────────


def test_wait_ends_when_all_are_completed(here: World) -> None:
    ids = [run_for(here, "short", 30).id, run_for(here, "long", 300).id]
    result = here.ends(0, "jobs wait short", ids[1], err="short: Running -> Completed")
    expected = [f"short {ids[0]}: Completed (30 s elapsed)", f"long {ids[1]}: Completed (5 min elapsed)"]
    assert result.out.splitlines() == expected
    assert 300 < sum(here.time.slept) < 330


@pytest.mark.parametrize(
    ("goal", "phase", "code", "result"),
    [
        ("running", "Running", 0, "reached"),
        ("running", "Failed", 10, "ended_badly"),
        ("running", "Terminated", 10, "ended_badly"),
        ("completed", "Completed", 0, "reached"),
        ("completed", "Running", 9, "timed_out"),
        ("completed", "Failed", 10, "ended_badly"),
        ("completed", "Terminated", 10, "ended_badly"),
        ("ended", "Completed", 0, "reached"),
        ("ended", "Terminated", 0, "reached"),
        ("ended", "Abnormal", 10, "ended_badly"),
        ("ended", "Hibernating", 9, "timed_out"),
    ],
)
def test_wait_ends_at_its_goal(here: World, goal: str, phase: str, code: int, result: str) -> None:
    put(here, phase=phase)
    outcome = here.ends(code, f"jobs wait resnet50 --for {goal} --timeout 1m --json")
    assert outcome.document["jobs"][0]["result"] == result


@pytest.mark.usefixtures("_growing_logs")
def test_job_that_ends_badly_shows_the_end_of_its_log(here: World) -> None:
    run_for(here, "resnet50", 500, "Failed")
    result = here.ends(10, "jobs wait resnet50", err="[worker-0] step 50", lacks="[worker-0] step 30\n")
    assert result.out.startswith("ended badly: resnet50")
    [told] = here("jobs wait resnet50 --json").document["jobs"]
    assert (told["result"], told["phase"], told["duration_s"]) == ("ended_badly", "Failed", 500.0)
    assert len(told["log"]) == 20


@pytest.mark.parametrize(("timeout", "slept"), [("0s", 0), ("40s", 40)])
def test_timed_out_wait_is_9(here: World, timeout: str, slept: float) -> None:
    put(here)
    result = here.ends(9, f"jobs wait resnet50 --timeout {timeout}")
    assert result.out.startswith("timed out: resnet50")
    assert sum(here.time.slept) == pytest.approx(slept)
    put(here, "broken", "Failed")
    told = here.ends(10, "jobs wait resnet50 broken --timeout 30s --json").document["jobs"]
    assert [job["result"] for job in told] == ["timed_out", "ended_badly"]


def test_wait_survives_temporary_service_failures(here: World) -> None:
    run_for(here, "resnet50", 30)
    here.fail("ShowTrainingJobDetails", nth=2, count=12, status=503)
    here.ends(0, "jobs wait resnet50", err="cannot be read at the moment")


def test_job_deleted_during_the_wait_is_unknown(here: World) -> None:
    job = put(here)
    here.time.at(5, lambda: here.store.delete("p1", job.id))
    assert here.ends(8, "jobs wait resnet50 --json").document["jobs"][0]["result"] == "gone"


# ── the target ─────────────────────────────────────────────────────────────────────────────────────


def test_flavors_and_engines_are_listed(here: World) -> None:
    result = here.ends(0, "flavors --type ascend", out="192 arm64  768 GB   8 x Ascend-910 (32GB)")
    assert " ".join(result.out.splitlines()[0].split()) == "FLAVOR TYPE CORES MEMORY CARDS MAX NODES"
    flavors = here("flavors --json").document["flavors"]
    assert {flavor["flavor_type"] for flavor in flavors} == {"CPU", "GPU", "Ascend"}
    assert flavors[0]["attributes"]["is_multi_nodes_supported"] == "true"
    assert len(here("engines --name pytorch").out.splitlines()) == 4
    assert here("engines --json").document["engines"][0]["image_info"]["image_version"] == "3.3.0"


def test_jobs_use_the_target_of_the_stack_in_path(here: World) -> None:
    job = put(here)
    write(manifest("a").replace("stack: test", "stack: Test"))
    write(here.manifest("a"), "elsewhere/jobs.yaml")
    for code, line in (
        (65, "jobs list"),
        (0, "jobs list elsewhere"),
        (0, f"jobs show {job.id} elsewhere/jobs.yaml"),
        (0, f"jobs terminate {job.id} --in elsewhere --yes"),
        (0, "flavors elsewhere"),
    ):
        here.ends(code, line)
    here.apply(manifest("a"))  # on the local target
    assert names(here("jobs list --json")) == "a"


def test_forbidden_is_7_and_unreachable_is_8(here: World) -> None:
    put(here)
    here.fail(status=403, code="ModelArts.0112", count=None)
    for line in ("jobs list", "flavors", "jobs terminate resnet50 --yes"):
        here.ends(7, line)
    write(manifest("a", url="http://127.0.0.1:9"))
    here.ends(8, "jobs list")
    here.ends(8, "jobs show", NO_ID)


# ── a key of the stack ─────────────────────────────────────────────────────────────────────────────


def revision(world: World, number: int, phase: str = "Running", key: str = "a") -> Job:
    """A revision of a key of the stack in this directory."""
    name = key if number == 1 else f"{key}-r{number}"
    return put(world, name, phase, f"reconciler.test.{key}.r{number}.a3f9a2c1b7d4e")


def shown(world: World, word: str) -> str:
    """Return the id of the job selected by a word."""
    return str(world.ends(0, "jobs show --json", word).document["metadata"]["id"])


@pytest.mark.parametrize(
    ("key", "phases", "word", "meant"),
    [
        ("a", "Completed Running", "a", 2),
        ("a", "Completed Running", "a-r2", 2),
        ("a", "Completed Completed", "a", 2),
        ("a", "Running Terminating", "a", 1),
        ("a", "Running Failed", "a", 1),
        ("a", "Terminated Pending", "a", 2),
        ("old", "Completed Failed", "old", 2),
    ],
)
def test_key_means_its_newest_revision_and_goes_before_a_name(
    here: World, key: str, phases: str, word: str, meant: int
) -> None:
    jobs = [revision(here, number, phase, key) for number, phase in enumerate(phases.split(), 1)]
    assert shown(here, word) == jobs[meant - 1].id
    assert shown(here, jobs[0].id) == jobs[0].id


def test_renamed_key_also_selects_the_jobs_of_its_old_name(here: World) -> None:
    write(here.manifest("a") + "    formerly: old\n")
    job = revision(here, 3, key="old")
    assert shown(here, "a") == job.id


def test_large_workspace_costs_a_name_one_more_search_and_hides_no_adopted_job(here: World) -> None:
    """The adopted job has ended, and no search by name finds it."""
    adopted = put(here, "by-hand", "Completed")
    here.describe("by-hand", f"reconciler.test.a.r1.a3f9a2c1b7d4e.id{adopted.id.replace('-', '')[:8]}")
    for n in range(120):
        put(here, f"other-{n}", "Completed")
    here("jobs show other-7")
    assert here.requests.count("ListTrainingJobs") == 2
    assert shown(here, "a") == adopted.id


def test_revision_of_another_stack_is_a_job_of_that_name_only(here: World) -> None:
    foreign = put(here, "a", description="reconciler.vision.a.r1.a3f9a2c1b7d4e").id
    result = here("jobs show a --json")
    assert result.document["metadata"]["id"] == foreign
    assert result.err == f"a is a key without a job of the stack; using {foreign}, which has that name.\n"


@pytest.mark.parametrize(
    ("word", "texts"),
    [
        ("train", ["stack test owns no job of key 'train'", "fix: reconciler status"]),
        ("trian", ['did you mean "train"?']),
    ],
    ids=["a key without a job", "nearly a key"],
)
def test_unknown_job_argument_has_a_fix(world: World, word: str, texts: list[str]) -> None:
    world.write("train")
    world.ends(1, "jobs show", word, err=texts)


def test_unreadable_workspace_leaves_the_newest_revision_unknown(here: World) -> None:
    revision(here, 1)
    here.fail("ListTrainingJobs", count=None, status=500)
    here.ends(8, "jobs terminate a --yes --force")
    assert here.changes == []


@pytest.mark.parametrize(("verb", "phase"), [("terminate", "Running"), ("delete", "Failed")])
def test_newest_revision_is_owned_so_ending_it_needs_force(here: World, verb: str, phase: str) -> None:
    revision(here, 1, "Completed")
    second = revision(here, 2, phase)
    here.ends(3, f"jobs {verb} a -y", err="a-r2 is r2 of a in stack test")
    here.ends(3, f"jobs {verb} a --force")  # not confirmed
    assert here.changes == []
    assert here(f"jobs {verb} a -y --force --json").document["jobs"][0]["id"] == second.id


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("jobs show a", 0), ("jobs logs a", 0), ("jobs events a", 0), ("jobs wait a", 0), ("export a", 0),
        ("jobs delete a --yes --force", 0), ("jobs terminate a --yes --force", 3),
        ("jobs list", 0), ("export --all", 0),
    ],
)  # fmt: skip
def test_path_after_the_jobs_selects_their_stack(
    here: World, monkeypatch: pytest.MonkeyPatch, line: str, code: int
) -> None:
    revision(here, 1, "Completed")
    for name in ("stack", "elsewhere"):
        Path(name).mkdir()
    Path("jobs.yaml").rename("stack/jobs.yaml")
    monkeypatch.chdir("elsewhere")
    here.ends(code, line, "../stack")


@pytest.mark.parametrize(
    "line",
    [
        *("plan", "apply --yes", "status", "drift", "history", "why a", "doctor"),
        *("jobs list", "jobs show a", "jobs logs a", "jobs events a", "jobs metrics a", "export a"),
        *("jobs wait a --for running", "jobs terminate a --yes --force", "destroy --yes"),
    ],
)
def test_every_command_says_that_emulated_jobs_are_pretended(reconciler: Reconciler, line: str) -> None:
    reconciler.apply(manifest("a"))
    with Store(".reconciler/local.sqlite3") as local:
        local.set_phase(local.jobs()[0].id, "Running")
    result = reconciler(line)
    assert (result.out + result.err).count("on there (emulator: jobs are pretended)") == 1
    if line not in {"export a"}:
        assert "pretended" not in reconciler(f"{line} --json").err
