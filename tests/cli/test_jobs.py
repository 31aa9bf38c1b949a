"""`reconciler jobs`, `flavors`, `engines`: the service's own calls, as people and programs see them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.observed import last_lines, unseen
from reconciler.core.phase import Phase
from reconciler.decide.outcome import WaitEnd
from reconciler.decide.wait import GOALS, Goal, judge
from reconciler.emulator import Effect, Fault, Job
from reconciler.modelarts.http import ServiceSession
from tests.apply.service import SharedTime
from tests.cli.conftest import Reconciler, Service, manifest, write
from tests.modelarts.building import a_body

OWNED = "reconciler.vision.resnet50.r1.a3f9a2c1b7d4e"
NO_ID = "00000000-0000-0000-0000-000000000000"
CHANGING = {"StopTrainingJob", "DeleteTrainingJob", "BatchDeleteTrainingJob"}


@pytest.fixture(autouse=True)
def time(service: Service, monkeypatch: pytest.MonkeyPatch) -> SharedTime:
    """Our clock is the emulator's: waiting moves it, and takes no time. A stack is here."""
    write(manifest("a", url=service.url))
    shared = SharedTime(service.clock)
    monkeypatch.setattr("reconciler.modelarts.clock.SystemClock", lambda *_: shared)
    return shared


def put(service: Service, name: str = "resnet50", phase: str = "Running", **more: Any) -> Job:
    """A job of somebody's, which stays in its phase."""
    body = a_body(name, more.pop("description", ""))
    for part, members in more.items():
        body[part] = {**body.get(part, {}), **members} if isinstance(members, dict) else members
    job = service.store.create("p1", body)
    service.store.set_phase(job.id, phase)
    return service.store.hold(job.id)


def changes(service: Service) -> list[str]:
    """The operations that change something, in the order in which they were sent."""
    return [served.operation for served in service.app.requests if served.operation in CHANGING]


def phase_of(service: Service, job: Job) -> str:
    return service.store.find(job.id).life.phase


# ── list ───────────────────────────────────────────────────────────────────────────────────────────


def test_list_shows_whose_job_it_is_and_how_it_does(
    reconciler: Reconciler, service: Service, time: SharedTime
) -> None:
    put(service, description=f"nightly {OWNED}")
    put(service, "copy", "Failed", description=OWNED)
    put(service, "by-hand", "Pending")
    time.sleep(7200)
    said = reconciler("jobs", "list")
    assert said.code == 0
    head, *rows = [line.split() for line in said.out.splitlines()]
    assert head == ["ID", "NAME", "PHASE", "OWNER", "AGE", "DURATION", "NODES"]
    assert [row[1:] for row in rows] == [
        ["by-hand", "Pending", "-", "2", "h", "-", "2"],
        ["copy", "Failed", "(copied", "marker)", "2", "h", "-", "2"],
        ["resnet50", "Running", "vision/resnet50", "r1", "2", "h", "2", "h", "2"],
    ]


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ([], "dcba"),
        (["--order", "asc"], "abcd"),
        (["--name", "B"], "b"),
        (["--phase", "running"], "ca"),
        (["--phase", "Running", "--phase", "waiting"], "dca"),
        (["--kind", "job"], "dcba"),
        (["--kind", "mrs_job"], ""),
        (["--user", "nobody"], ""),
        (["--algorithm-name", "resnet"], ""),
        (["--filter", "phase:not:Failed"], "dca"),
        (["--filter", "phase:in:Failed,Pending", "--filter", "name:like:d"], "d"),
        (["--created-after", "90m"], "dc"),
        (["--created-before", "90m"], "ba"),
        (["--created-after", "45d", "--created-before", "90m"], "ba"),
        (["--tag", "team"], "c"),
        (["--tag", "team=nlp,vision"], "c"),
        (["--tag", "team=nlp"], ""),
        (["--host-ip", "192.168.0.9"], ""),
        (["--host-ip", "192.168.0.2"], "ca"),
        (["--host-ip", "192.168.0.2", "--created-after", "90m"], "c"),
        (["--host-ip", "192.168.0.9", "--host-ip", "192.168.0.1"], "ca"),
        (["--train-type", "ftjob"], "b"),
        (["--train-type", "job"], "dca"),
        (["--unified"], "dcba"),
        (["--group-by", "kind"], "dcba"),
        (["--filter", "name:like:nothing\\,like,b"], "b"),
        (["--limit", "2"], "dc"),
    ],
)
def test_list_takes_the_filters_of_the_service(
    reconciler: Reconciler, service: Service, time: SharedTime, options: list[str], names: str
) -> None:
    put(service, "a")
    put(service, "b", "Failed", train_type="SFT")
    time.sleep(7200)
    tagged = put(service, "c")
    put(service, "d", "Pending")
    service.store.tag("p1", tagged.id, {"team": "vision"})
    said = reconciler("jobs", "list", "--json", *options)
    assert said.code == 0
    assert [item["metadata"]["name"] for item in said.document["items"]] == list(names)
    assert said.document["count"] == len(names)


@pytest.fixture
def tagged_for_months(service: Service, time: SharedTime) -> Service:
    """Jobs of 96, 64, 32 and 0 days ago, each with a tag and a host."""
    for n, name in enumerate("abcd"):
        job = put(service, name)
        service.store.tag("p1", job.id, {"team": "vision"})
        time.sleep(32 * 86_400 if n < 3 else 0)
    service.app.requests.clear()
    return service


@pytest.mark.parametrize("which", [["--tag", "team"], ["--host-ip", "192.168.0.1"]])
@pytest.mark.parametrize(
    ("times", "names", "requests"),
    [
        ([], "d", 1),
        (["--created-after", "2d"], "d", 1),
        (["--created-after", "33d"], "dc", 2),
        (["--created-after", "99d"], "dcba", 4),
        (["--created-after", "99d", "--order", "asc"], "abcd", 4),
        (["--created-after", "99d", "--created-before", "40d"], "ba", 2),
        (["--created-after", "99d", "--created-before", "9999-12-31"], "dcba", 4),
        (["--created-after", "9998-12-31", "--created-before", "9999-12-31"], "", 1),
        (["--created-after", "99999d", "--created-before", "99998d"], "", 1),
        (["--created-after", "70d", "--limit", "2"], "dc", 3),
    ],
)
def test_tags_and_hosts_are_searched_31_days_at_a_time(
    reconciler: Reconciler,
    tagged_for_months: Service,
    which: list[str],
    times: list[str],
    names: str,
    requests: int,
) -> None:
    said = reconciler("jobs", "list", "--json", *which, *times)
    assert said.code == 0
    assert [item["metadata"]["name"] for item in said.document["items"]] == list(names)
    assert said.document["complete"] is ("--limit" not in times)
    assert len(tagged_for_months.app.requests) == requests
    assert ("31 days" in said.err) is (not times)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--created-before", "2d"], "--created-after"),
        (["--created-after", "99d", "--sort", "name"], "--sort"),
    ],
)
def test_what_cannot_be_searched_in_parts_is_wrong_use(
    reconciler: Reconciler, service: Service, options: list[str], words: str
) -> None:
    said = reconciler("jobs", "list", "--tag", "team", *options)
    assert (said.code, said.out) == (64, "")
    assert "31 days" in said.err
    assert words in said.err
    assert len(service.app.requests) == 0


def test_job_on_the_seam_of_two_searches_is_listed_once(
    reconciler: Reconciler, service: Service, time: SharedTime
) -> None:
    time.sleep(1 - time.now() % 1)
    job = put(service, "seam")
    service.store.tag("p1", job.id, {"team": "vision"})
    at_s = service.store.find(job.id).create_ms / 1000
    before = datetime.fromtimestamp(at_s + 31 * 86_400, UTC).isoformat()
    after = datetime.fromtimestamp(at_s - 86_400, UTC).isoformat()
    time.sleep(40 * 86_400)
    said = reconciler(
        "jobs", "list", "--json", "--tag", "team", "--created-after", after, "--created-before", before
    )
    assert said.document["count"] == 1
    assert len(service.app.requests) == 2


def test_list_reads_no_more_pages_than_the_limit_needs(reconciler: Reconciler, service: Service) -> None:
    for n in range(120):
        put(service, f"job-{n:03}")
    said = reconciler("jobs", "list", "--limit", "60", "--json")
    assert [item["metadata"]["name"] for item in said.document["items"]] == [
        f"job-{n:03}" for n in range(119, 59, -1)
    ]
    assert said.document["complete"] is False
    assert len(service.app.requests) == 2
    assert "--limit" in reconciler("jobs", "list", "--limit", "60").err
    assert reconciler("jobs", "list", "--limit", "500", "--json").document["complete"] is True


def test_list_gives_whole_jobs_to_programs(reconciler: Reconciler, service: Service) -> None:
    job = put(service, future={"field": [1, {"x": None}]})
    [item] = reconciler("jobs", "list", "--json").document["items"]
    assert item == json.loads(service.store.find(job.id).text)
    assert item["future"] == {"field": [1, {"x": None}]}


def test_job_that_cannot_be_read_is_told_and_hides_no_other(reconciler: Reconciler, service: Service) -> None:
    put(service, "good")
    put(service, "bad")
    service.app.faults.add(Fault(Effect.MALFORMED_JOB, operation="ListTrainingJobs"))
    said = reconciler("jobs", "list")
    assert said.code == 8
    assert "good" in said.out
    assert "bad: status.phase missing" in said.err


def test_condition_that_the_service_does_not_know_is_its_refusal(reconciler: Reconciler) -> None:
    said = reconciler("jobs", "list", "--filter", "colour:in:red")
    assert (said.code, said.out) == (1, "")
    assert "ModelArts.2807" in said.err


def test_name_on_the_service_cannot_steer_the_terminal(reconciler: Reconciler, service: Service) -> None:
    put(service, description="\x1b[31mred\x9b\u202e")
    for arguments in (["jobs", "list"], ["jobs", "show", "resnet50"], ["jobs", "show", "resnet50", "--json"]):
        out = reconciler(*arguments).out
        assert not set("\x1b\x9b") & set(out)


def test_log_steers_neither_the_terminal_nor_a_ci_service(
    reconciler: Reconciler, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(service)
    hostile = [
        "::error::a",
        "  ::set-output name=a::b",
        "c ##vso[task.setvariable]d",
        "##[error]e",
        "\u202ef",
    ]
    monkeypatch.setattr("reconciler.emulator.logs._log", lambda *_: hostile)
    assert reconciler("jobs", "logs", "resnet50").out.splitlines() == [
        r"\x3a:error::a",
        r"  \x3a:set-output name=a::b",
        r"c \x23#vso[task.setvariable]d",
        r"\x23#[error]e",
        r"\u202ef",
    ]
    said = reconciler("jobs", "logs", "resnet50", "--json")
    assert "##" not in said.out
    assert "\u202e" not in said.out
    assert said.document["log"].splitlines() == hostile


# ── show ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("by", ["id", "name", "name in another case"])
def test_show_is_all_that_the_service_told(reconciler: Reconciler, service: Service, by: str) -> None:
    job = put(service, future={"field": "of next year"})
    named = {"id": job.id, "name": "resnet50", "name in another case": "ResNet50"}[by]
    said = reconciler("jobs", "show", named, "--json")
    assert said.document == json.loads(service.store.find(job.id).text)
    text = reconciler("jobs", "show", named).out
    assert f"id           {job.id}" in text
    assert "owner        none (unmanaged)" in text
    assert "    field: of next year" in text
    assert "      - name: " not in text


def test_tokens_of_endpoints_are_in_no_output(reconciler: Reconciler, service: Service) -> None:
    job = put(service)
    token = f"token-{job.id}"
    service.store.edit(
        job.id, lambda body: body["metadata"].update(annotations={"jupyter-lab/enable": "true"})
    )
    assert token in service.store.find(job.id).text
    for arguments in (
        ["jobs", "show", job.id],
        ["jobs", "show", job.id, "--json"],
        ["jobs", "list", "--json"],
        ["jobs", "terminate", job.id, "--yes", "--json"],
    ):
        said = reconciler(*arguments, "-vv")
        assert said.code == 0
        assert token not in said.out + said.err
    lab = reconciler("jobs", "show", job.id, "--json").document["endpoints"]["jupyter_lab"]
    assert lab == {"url": f"https://{job.id}.modelarts.invalid/jupyter-lab", "token": "(sensitive)"}


def test_secret_of_the_manifest_is_not_shown_either(
    reconciler: Reconciler, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_tell-nobody")
    text = manifest("a", url=service.url, more="variables:\n  t: {env: HF_TOKEN, sensitive: true}\n")
    reconciler.apply(text.replace("{lr: 0.1}", "{t: '${var.t}'}"))
    for arguments in (["jobs", "show", "a"], ["jobs", "list", "--json"]):
        assert "hf_tell-nobody" not in reconciler(*arguments).out
    # To look at jobs, nobody needs the secrets of those that are declared.
    monkeypatch.delenv("HF_TOKEN")
    assert reconciler("plan").code == 65
    assert reconciler("jobs", "list").code == 0


@pytest.mark.parametrize("named", [NO_ID, "no-such-name", "..", "batch-delete", "a b"])
@pytest.mark.parametrize("verb", ["show", "logs", "events", "metrics", "terminate", "delete", "wait"])
def test_job_that_is_not_there_is_1(reconciler: Reconciler, service: Service, verb: str, named: str) -> None:
    said = reconciler("jobs", verb, named)
    assert (said.code, said.out) == (1, "")
    assert "no such job" in said.err
    assert "reconciler jobs list" in said.err
    assert changes(service) == []


# ── logs, events, metrics ──────────────────────────────────────────────────────────────────────────


def test_logs_print_the_log_and_nothing_else(
    reconciler: Reconciler, service: Service, time: SharedTime
) -> None:
    job = put(service)
    time.sleep(35)
    said = reconciler("jobs", "logs", "resnet50")
    assert [line.partition("] ")[2] for line in said.out.splitlines()] == [
        f"[worker-0] step {n}" for n in range(4)
    ]
    assert said.err == ""
    last = reconciler("jobs", "logs", job.id, "--task", "worker-1", "--lines", "1")
    assert last.out.endswith("[worker-1] step 3\n")
    assert last.out.count("\n") == 1
    assert reconciler("jobs", "logs", job.id, "--lines", "2", "--json").document["log"].count("\n") == 2


def test_link_to_the_whole_log(reconciler: Reconciler, service: Service) -> None:
    job = put(service)
    said = reconciler("jobs", "logs", job.id, "--url")
    assert said.out.startswith("https://")
    assert reconciler("jobs", "logs", job.id, "--url", "--json").document["url"] == said.out.strip()
    assert reconciler("jobs", "logs", job.id, "--url", "--follow").code == 64


def test_what_is_not_there_yet_is_said_and_no_failure(reconciler: Reconciler, service: Service) -> None:
    put(service, phase="Pending")
    for arguments in (["logs"], ["logs", "--url"], ["metrics"]):
        said = reconciler("jobs", *arguments, "resnet50")
        assert (said.code, said.out) == (0, "")
        assert "yet (Pending)" in said.err
    assert reconciler("jobs", "logs", "resnet50", "--json").document["log"] is None
    assert reconciler("jobs", "metrics", "resnet50", "--json").document["metrics"] is None


def test_follow_prints_each_line_once_until_the_end(
    reconciler: Reconciler, service: Service, time: SharedTime
) -> None:
    job = service.store.create("p1", a_body("short"))
    service.store.edit(
        job.id, lambda body: body["algorithm"].update(environments={"EMULATOR_RUN_SECONDS": "95"})
    )
    service.store.set_phase(job.id, "Pending")
    said = reconciler("jobs", "logs", "short", "--follow")
    assert said.code == 0
    assert [line.rpartition(" ")[2] for line in said.out.splitlines()] == [str(n) for n in range(10)]
    assert "no log of worker-0 yet" in said.err
    assert "short is Completed." in said.err
    lines = reconciler("jobs", "logs", "short", "--follow", "--lines", "3", "--json").events
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
def test_what_of_a_growing_log_is_new(
    content: str, full_size: int | None, seen: int, is_last: bool, expected: tuple[str, int, bool]
) -> None:
    assert unseen(content, full_size, seen, is_last=is_last) == expected


def test_last_lines_of_a_text() -> None:
    assert [last_lines("a\nb\nc", n) for n in (0, 1, 2, 9)] == ["", "c", "b\nc", "a\nb\nc"]


def test_events(reconciler: Reconciler, service: Service) -> None:
    job = put(service, phase="Failed")
    said = reconciler("jobs", "events", "resnet50")
    assert said.out.splitlines()[0].split() == ["TIME", "LEVEL", "SOURCE", "MESSAGE"]
    assert said.out.splitlines()[-1].endswith("Job     Training job failed.")
    only = reconciler("jobs", "events", job.id, "--level", "Error", "--json").document
    assert [event["message"] for event in only["events"]] == ["Training job failed."]
    newest = reconciler("jobs", "events", job.id, "--order", "desc", "--limit", "1", "--json").document
    assert newest["events"] == only["events"]
    assert reconciler("jobs", "events", job.id, "--pattern", "nothing like it").out == ""


def test_events_between_two_times_and_from_one_on(
    reconciler: Reconciler, service: Service, time: SharedTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []

    send = ServiceSession.call

    def call(session: ServiceSession, method: str, path: str, **more: Any) -> Any:
        if path.endswith("/events"):
            asked.append({key: value for key, value in more["query"].items() if value is not None})
        return send(session, method, path, **more)

    monkeypatch.setattr(ServiceSession, "call", call)
    job = put(service, phase="Pending")
    time.sleep(3600)
    service.store.set_phase(job.id, "Running")
    time.sleep(3600)
    service.store.set_phase(job.id, "Failed")
    everything = [
        "Training job created.",
        "Training job is queuing for resources.",
        "Training job started running.",
        "Training job failed.",
    ]

    def messages(*options: str) -> list[str]:
        told = reconciler("jobs", "events", job.id, "--json", *options).document["events"]
        return [event["message"] for event in told]

    assert messages() == everything
    assert messages("--since", "90m") == everything[2:]
    assert messages("--until", "30m") == everything[:3]
    assert messages("--since", "90m", "--until", "30m") == everything[2:3]
    assert messages("--since", "99999d", "--until", "9999-12-31") == everything
    assert messages("--since", "9999-12-31") == messages("--until", "1970-01-01") == []
    assert messages("--offset", "1") == everything[1:]
    assert messages("--offset", "1", "--limit", "2") == everything[1:3]
    assert messages("--offset", "9") == []
    assert all(("start_time" in query) == ("end_time" in query) for query in asked), "both, or neither"
    assert reconciler("jobs", "events", job.id, "--since", "1h", "--until", "2h").code == 64


def test_source_of_events_is_no_question_for_this_cloud(reconciler: Reconciler, service: Service) -> None:
    job = put(service)
    said = reconciler("jobs", "events", job.id, "--source", "K8S")
    assert (said.code, said.out) == (1, "")
    assert "only Open Telekom Cloud" in said.err


def test_events_are_read_page_by_page(reconciler: Reconciler, service: Service) -> None:
    job = put(service)
    for n in range(150):
        service.store.set_phase(job.id, ["Pending", "Running"][n % 2])
    told = reconciler("jobs", "events", job.id, "--json").document["events"]
    assert len(told) == 152
    assert len(reconciler("jobs", "events", job.id, "--limit", "120", "--json").document["events"]) == 120


def test_metrics(reconciler: Reconciler, service: Service, time: SharedTime) -> None:
    job = put(service)
    time.sleep(150)
    rows = {
        line.split()[0]: line.split()[1:] for line in reconciler("jobs", "metrics", job.id).out.splitlines()
    }
    assert rows["METRIC"] == ["LAST", "MEAN", "MAX", "MINUTES"]
    assert rows["npuUtil"] == ["-", "-", "-", "0"]
    assert rows["cpuUsage"] == ["72", "59", "72", "3"]
    told = reconciler("jobs", "metrics", job.id, "--json").document["metrics"]
    assert told["cpuUsage"] == [46, 59, 72]
    assert told["npuUtil"] == [None, None, None]


# ── terminate and delete ───────────────────────────────────────────────────────────────────────────


def test_terminate_asks_and_without_a_terminal_names_the_flag(
    reconciler: Reconciler, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = put(service)
    said = reconciler("jobs", "terminate", job.id)
    assert said.code == 3
    assert "--yes" in said.err
    assert f"{job.id}  resnet50  Running" in said.err
    assert changes(service) == []
    monkeypatch.setenv("RECONCILER_YES", "1")
    assert reconciler("jobs", "terminate", "resnet50").out == f"terminating  {job.id}  resnet50\n"
    assert phase_of(service, job) == "Terminating"


@pytest.mark.parametrize(
    ("verb", "phase", "why"),
    [
        ("terminate", "Terminating", "already terminating"),
        ("terminate", "Completed", "nothing to terminate"),
        ("terminate", "Hibernating", "the phase is unknown to this version"),
        ("delete", "Running", "the job is active"),
        ("delete", "Terminating", "wait: the job is being terminated"),
        ("delete", "Hibernating", "the phase is unknown to this version"),
    ],
)
def test_what_is_not_legal_is_not_sent_and_3(
    reconciler: Reconciler, service: Service, verb: str, phase: str, why: str
) -> None:
    put(service, phase=phase)
    said = reconciler("jobs", verb, "resnet50", "--yes", "--force")
    assert (said.code, said.out) == (3, "")
    assert f"resnet50 is {phase}: {why}" in said.err
    assert "legal " in said.err
    assert changes(service) == []


@pytest.mark.parametrize("verb", ["terminate", "delete"])
def test_all_jobs_are_checked_before_the_first_is_touched(
    reconciler: Reconciler, service: Service, verb: str
) -> None:
    good, bad = ("Running", "Completed") if verb == "terminate" else ("Completed", "Running")
    jobs = [put(service, "one", good), put(service, "two", bad), put(service, "three", bad)]
    said = reconciler("jobs", verb, *(job.id for job in jobs), "--yes")
    assert said.code == 3
    assert said.err.count("error: cannot ") == 2
    assert changes(service) == []
    assert reconciler("jobs", verb, "one", NO_ID, "--yes").code == 1
    assert changes(service) == []


@pytest.mark.parametrize(("verb", "phase"), [("terminate", "Running"), ("delete", "Completed")])
def test_job_that_a_stack_owns_needs_force(
    reconciler: Reconciler, service: Service, verb: str, phase: str
) -> None:
    job = put(service, description=OWNED, phase=phase)
    put(service, "copy", phase, description=OWNED)
    said = reconciler("jobs", verb, job.id, "--yes")
    assert said.code == 3
    assert "r1 of resnet50 in stack vision" in said.err
    assert "--force" in said.err
    assert changes(service) == []
    assert reconciler("jobs", verb, job.id, "--yes", "--force").code == 0
    # A copied marker makes nobody an owner.
    assert reconciler("jobs", verb, "copy", "--yes").code == 0


def test_a_protected_job_is_not_terminated_by_force_either(reconciler: Reconciler, service: Service) -> None:
    put(service, description=f"{OWNED}.protected")
    said = reconciler("jobs", "terminate", "resnet50", "--yes", "--force")
    assert said.code == 3
    assert "protect: false" in said.err
    assert changes(service) == []


def test_what_was_terminated_by_hand_shows_in_the_next_plan(reconciler: Reconciler, time: SharedTime) -> None:
    assert reconciler("apply", "--yes").code == 0
    assert reconciler("jobs", "terminate", "a", "--yes", "--force").code == 0
    time.sleep(60)
    assert "terminated outside the manifest" in reconciler("plan", "--show-keep").out


@pytest.mark.parametrize(
    ("command", "name"),
    [(("jobs", "terminate", "a", "--yes", "--force"), "jobs terminate"), (("destroy", "--yes"), "destroy")],
)
def test_drift_says_by_whom_a_declared_job_was_terminated(
    reconciler: Reconciler, time: SharedTime, command: tuple[str, ...], name: str
) -> None:
    assert reconciler("apply", "--yes").code == 0
    assert reconciler(*command).code == 0
    time.sleep(60)
    said = reconciler("drift", "--json")
    assert said.code == 2
    [entry] = said.document["drift"]
    assert (entry["class"], said.document["pending"]) == ("terminated", [])
    assert entry["detail"].startswith(f"a was terminated by {name} (")
    assert f"{name} (" in reconciler("why", "a").out
    assert reconciler("history", "--json").document["runs"][1]["kind"] == name
    reconciler("apply", "--yes")
    assert reconciler("drift").code == (0 if name == "destroy" else 2)


def test_termination_by_hand_is_recorded_only_where_there_are_records(
    reconciler: Reconciler, service: Service
) -> None:
    job = put(service, description=OWNED)
    assert reconciler("jobs", "terminate", job.id, "--yes", "--force").code == 0
    assert not Path(".reconciler").exists()


def test_termination_counts_as_done_where_the_records_cannot_be_found(
    reconciler: Reconciler, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = put(service, description="reconciler.test.resnet50.r1.a000000000000")
    monkeypatch.setenv("RECONCILER_RECORDS", "nonsense://there")
    said = reconciler("jobs", "terminate", job.id, "--yes", "--force")
    assert (said.code, changes(service)) == (0, ["StopTrainingJob"])
    assert "the termination is not recorded" in said.err


def test_terminate_that_comes_too_late_has_what_it_wanted(reconciler: Reconciler, service: Service) -> None:
    job = put(service)
    late = Fault(Effect.ANSWER_AFTER, operation="StopTrainingJob", status=409, code="ModelArts.2796")
    service.app.faults.add(late)
    said = reconciler("jobs", "terminate", job.id, "--yes", "--json")
    assert said.code == 0
    assert said.document["jobs"] == [
        {"id": job.id, "name": "resnet50", "result": "terminating", "error": None}
    ]


def test_one_job_that_cannot_be_terminated_stops_no_other(reconciler: Reconciler, service: Service) -> None:
    jobs = [put(service, name) for name in ("one", "two", "three")]
    path = f"*{jobs[1].id}*"
    service.app.faults.add(Fault(Effect.ANSWER, path=path, method="POST", status=400, code="ModelArts.2788"))
    said = reconciler("jobs", "terminate", "one", "two", "three", "two", "--yes", "--json")
    assert said.code == 5
    assert [(done["name"], done["result"]) for done in said.document["jobs"]] == [
        ("one", "terminating"),
        ("two", "failed"),
        ("three", "terminating"),
    ]
    assert said.document["jobs"][1]["error"]["code"] == "ModelArts.2788"
    assert [phase_of(service, job) for job in jobs] == ["Terminating", "Running", "Terminating"]


def test_terminate_without_the_right_to_it_is_7(reconciler: Reconciler, service: Service) -> None:
    put(service)
    service.app.faults.add(
        Fault(Effect.ANSWER, operation="StopTrainingJob", status=403, code="ModelArts.0112")
    )
    assert reconciler("jobs", "terminate", "resnet50", "--yes").code == 7


def test_several_records_are_deleted_by_one_call(reconciler: Reconciler, service: Service) -> None:
    for name in ("one", "two", "three"):
        put(service, name, "Failed")
    assert reconciler("jobs", "delete", "one", "--yes").out.startswith("deleting  ")
    assert changes(service) == ["DeleteTrainingJob"]
    assert reconciler("jobs", "delete", "two", "three", "--yes").code == 0
    assert changes(service) == ["DeleteTrainingJob", "BatchDeleteTrainingJob"]
    assert service.store.jobs() == []


@pytest.mark.parametrize("names", [["one"], ["one", "two"]])
def test_lost_answer_to_a_delete_is_looked_up(
    reconciler: Reconciler, service: Service, names: list[str]
) -> None:
    for name in names:
        put(service, name, "Failed")
    service.app.faults.add(
        Fault(Effect.LOST_AFTER, operation="DeleteTrainingJob"),
        Fault(Effect.LOST_AFTER, operation="BatchDeleteTrainingJob"),
    )
    said = reconciler("jobs", "delete", *names, "--yes", "--json")
    assert said.code == 0
    assert [done["result"] for done in said.document["jobs"]] == ["deleted"] * len(names)


# ── wait ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("goal", Goal)
@pytest.mark.parametrize("phase", [*Phase, None])
def test_every_phase_is_judged_one_way(goal: Goal, phase: Phase | None) -> None:
    reached, badly = GOALS[goal]
    assert not reached & badly
    decided = phase is not None and (phase.is_terminal or phase in reached)
    assert (judge(goal, phase) is not WaitEnd.WAITING) is decided


def run_for(service: Service, name: str, seconds: int, result: str = "Completed") -> Job:
    """A job that has just been created, and will run for so long."""
    body = a_body(name)
    body["algorithm"]["environments"] = {"EMULATOR_RUN_SECONDS": str(seconds), "EMULATOR_RESULT": result}
    return service.store.create("p1", body)


def test_wait_ends_when_all_are_completed(reconciler: Reconciler, service: Service, time: SharedTime) -> None:
    jobs = [run_for(service, "short", 30), run_for(service, "long", 300)]
    said = reconciler("jobs", "wait", "short", jobs[1].id)
    assert said.code == 0
    assert said.out.splitlines() == [
        f"short {jobs[0].id}: Completed (30 s elapsed)",
        f"long {jobs[1].id}: Completed (5 min elapsed)",
    ]
    assert "short: Running -> Completed" in said.err
    assert 300 < sum(time.slept) < 330


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
def test_wait_for(
    reconciler: Reconciler, service: Service, goal: str, phase: str, code: int, result: str
) -> None:
    put(service, phase=phase)
    said = reconciler("jobs", "wait", "resnet50", "--for", goal, "--timeout", "1m", "--json")
    assert (said.code, said.document["jobs"][0]["result"]) == (code, result)


def test_job_that_ends_badly_shows_the_end_of_its_log(reconciler: Reconciler, service: Service) -> None:
    run_for(service, "resnet50", 500, "Failed")
    said = reconciler("jobs", "wait", "resnet50")
    assert said.code == 10
    assert said.out.startswith("ended badly: resnet50")
    assert "[worker-0] step 50" in said.err
    assert "[worker-0] step 30\n" not in said.err
    [told] = reconciler("jobs", "wait", "resnet50", "--json").document["jobs"]
    assert (told["result"], told["phase"], told["duration_s"], len(told["log"])) == (
        "ended_badly",
        "Failed",
        500.0,
        20,
    )


@pytest.mark.parametrize(("timeout", "slept"), [("0s", 0), ("40s", 40)])
def test_wait_that_runs_out_is_9(
    reconciler: Reconciler, service: Service, time: SharedTime, timeout: str, slept: float
) -> None:
    put(service)
    said = reconciler("jobs", "wait", "resnet50", "--timeout", timeout)
    assert said.code == 9
    assert said.out.startswith("timed out: resnet50")
    assert sum(time.slept) == pytest.approx(slept)


def test_bad_end_says_more_than_a_wait_that_ran_out(reconciler: Reconciler, service: Service) -> None:
    put(service, "forever")
    put(service, "broken", "Failed")
    said = reconciler("jobs", "wait", "forever", "broken", "--timeout", "30s", "--json")
    assert said.code == 10
    assert [job["result"] for job in said.document["jobs"]] == ["timed_out", "ended_badly"]


@pytest.mark.parametrize(("count", "code"), [(12, 0), (None, 8)], ids=["for a while", "for good"])
def test_wait_bears_with_a_service_that_fails_for_a_while(
    reconciler: Reconciler, service: Service, count: int | None, code: int
) -> None:
    job = run_for(service, "resnet50", 30)
    failing = Fault(Effect.ANSWER, operation="ShowTrainingJobDetails", nth=2, count=count, status=503)
    service.app.faults.add(failing)
    said = reconciler("jobs", "wait", job.id)
    assert said.code == code
    assert "cannot be read at the moment" in said.err


def test_job_that_is_deleted_meanwhile_is_unknown(
    reconciler: Reconciler, service: Service, time: SharedTime
) -> None:
    job = put(service)
    time.at(5, lambda: service.store.delete("p1", job.id))
    said = reconciler("jobs", "wait", job.id, "--json")
    assert said.code == 8
    assert said.document["jobs"][0]["result"] == "gone"


# ── what the target offers ─────────────────────────────────────────────────────────────────────────


def test_flavors(reconciler: Reconciler) -> None:
    said = reconciler("flavors", "--type", "ascend")
    assert said.out.splitlines()[0].split() == ["FLAVOR", "TYPE", "CORES", "MEMORY", "CARDS", "MAX", "NODES"]
    assert "192 arm64  768 GB   8 x Ascend-910 (32GB)" in said.out
    told = reconciler("flavors", "--json").document["flavors"]
    assert {flavor["flavor_type"] for flavor in told} == {"CPU", "GPU", "Ascend"}
    assert told[0]["attributes"]["is_multi_nodes_supported"] == "true"


def test_engines(reconciler: Reconciler) -> None:
    said = reconciler("engines", "--name", "pytorch")
    assert len(said.out.splitlines()) == 4
    told = reconciler("engines", "--json").document["engines"]
    assert told[0]["image_info"]["image_version"] == "3.3.0"


# ── which target is meant ───────────────────────────────────────────────────────────


def test_target_is_that_of_the_stack_that_path_means(reconciler: Reconciler, service: Service) -> None:
    job = put(service)
    write(manifest("a").replace("stack: test", "stack: Test"))
    write(manifest("a", url=service.url), "elsewhere/jobs.yaml")
    assert reconciler("jobs", "list").code == 65
    assert reconciler("jobs", "list", "elsewhere").code == 0
    assert reconciler("jobs", "show", job.id, "elsewhere/jobs.yaml").code == 0
    assert reconciler("jobs", "terminate", job.id, "--in", "elsewhere", "--yes").code == 0
    assert reconciler("flavors", "elsewhere").code == 0


def test_local_target_is_asked_like_any_other(
    reconciler: Reconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    reconciler.apply(manifest("a"))
    [item] = reconciler("jobs", "list", "--json").document["items"]
    assert item["metadata"]["name"] == "a"


def test_without_rights_it_is_7_and_without_a_service_8(
    reconciler: Reconciler, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.app.faults.add(Fault(Effect.ANSWER, status=403, code="ModelArts.0112", count=None))
    assert reconciler("jobs", "list").code == 7
    assert reconciler("flavors").code == 7
    write(manifest("a", url="http://127.0.0.1:9"))
    assert reconciler("jobs", "list").code == 8
    assert reconciler("jobs", "show", NO_ID).code == 8


# ── a key of the stack ─────────────────────────────────────────────────────────────────────────────


def revision(service: Service, number: int, phase: str = "Running", *, key: str = "a", **more: Any) -> Job:
    """A revision of a key of the stack in this directory."""
    name = more.pop("name", key if number == 1 else f"{key}-r{number}")
    marker = f"reconciler.test.{key}.r{number}.a3f9a2c1b7d4e"
    return put(service, name, phase, description=marker, **more)


def shown(reconciler: Reconciler, word: str) -> str:
    """The id of the job that a word means."""
    said = reconciler("jobs", "show", word, "--json")
    assert said.code == 0, said.err
    return str(said.document["metadata"]["id"])


@pytest.mark.parametrize(
    ("key", "phases", "word", "meant"),
    [
        ("a", ("Completed", "Running"), "a", 2),
        ("a", ("Completed", "Running"), "a-r2", 2),
        ("a", ("Completed", "Completed"), "a", 2),
        ("a", ("Running", "Terminating"), "a", 1),
        ("a", ("Running", "Failed"), "a", 1),
        ("a", ("Terminated", "Pending"), "a", 2),
        ("old", ("Completed", "Failed"), "old", 2),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, tuple) else str(value),
)
def test_key_means_the_revision_that_stands_for_it_and_not_the_job_of_that_name(
    reconciler: Reconciler, service: Service, key: str, phases: tuple[str, str], word: str, meant: int
) -> None:
    jobs = [revision(service, number, phase, key=key) for number, phase in enumerate(phases, 1)]
    assert shown(reconciler, word) == jobs[meant - 1].id
    assert shown(reconciler, jobs[0].id) == jobs[0].id


def test_key_that_was_renamed_means_the_jobs_of_its_old_name_too(
    reconciler: Reconciler, service: Service
) -> None:
    write(manifest("a", url=service.url) + "    formerly: old\n")
    job = revision(service, 3, key="old")
    assert shown(reconciler, "a") == job.id


def test_revision_of_another_name_is_found_in_a_large_workspace(
    reconciler: Reconciler, service: Service, time: SharedTime
) -> None:
    """It was adopted: no search by name finds it, and it has ended."""
    adopted = put(service, "by-hand", "Completed")
    marker = f"reconciler.test.a.r1.a3f9a2c1b7d4e.id{adopted.id.replace('-', '')[:8]}"
    service.store.edit(adopted.id, lambda body: body["metadata"].update(description=marker))
    for n in range(120):
        put(service, f"other-{n}", "Completed")
    assert shown(reconciler, "a") == adopted.id


def test_revision_of_another_stack_is_a_job_of_that_name_only(
    reconciler: Reconciler, service: Service
) -> None:
    foreign = put(service, "a", description="reconciler.vision.a.r1.a3f9a2c1b7d4e")
    said = reconciler("jobs", "show", "a", "--json")
    assert said.document["metadata"]["id"] == foreign.id
    assert said.err == f"a is a key without a job of the stack; using {foreign.id}, which has that name.\n"


@pytest.mark.parametrize(
    ("word", "texts"),
    [
        ("train", ["stack test owns no job of key 'train'", "fix: reconciler status"]),
        ("trian", ['did you mean "train"?']),
    ],
    ids=["a key without a job", "nearly a key"],
)
def test_word_that_means_no_job_says_what_to_do(
    reconciler: Reconciler, service: Service, word: str, texts: list[str]
) -> None:
    write(manifest("train", url=service.url))
    said = reconciler("jobs", "show", word)
    assert said.code == 1
    assert all(text in said.err for text in texts)


def test_workspace_that_cannot_be_read_hides_which_revision_is_the_newest(
    reconciler: Reconciler, service: Service
) -> None:
    revision(service, 1)
    service.app.faults.add(Fault(Effect.ANSWER, operation="ListTrainingJobs", count=None, status=500))
    said = reconciler("jobs", "terminate", "a", "--yes", "--force")
    assert said.code == 8
    assert changes(service) == []


def test_name_of_a_job_costs_one_more_search_than_its_id(reconciler: Reconciler, service: Service) -> None:
    for n in range(120):
        put(service, f"other-{n}", "Completed")
    service.app.requests.clear()
    reconciler("jobs", "show", "other-7")
    assert [served.operation for served in service.app.requests].count("ListTrainingJobs") == 2


@pytest.mark.parametrize("verb", ["terminate", "delete"])
def test_newest_revision_is_owned_so_ending_it_needs_force(
    reconciler: Reconciler, service: Service, verb: str
) -> None:
    first = revision(service, 1, "Completed")
    second = revision(service, 2, "Running" if verb == "terminate" else "Failed")
    said = reconciler("jobs", verb, "a", "-y")
    assert said.code == 3
    assert "a-r2 is r2 of a in stack test" in said.err
    assert changes(service) == []
    assert reconciler("jobs", verb, "a", "--force").code == 3  # nobody agreed
    assert changes(service) == []
    assert reconciler("jobs", verb, "a", "-y", "--force", "--json").document["jobs"][0]["id"] == second.id
    assert first.id != second.id


@pytest.mark.parametrize("verb", ["logs", "events", "metrics", "wait"])
def test_other_calls_take_a_key(reconciler: Reconciler, service: Service, verb: str) -> None:
    revision(service, 1, "Failed")
    second = revision(service, 2, "Completed")
    said = reconciler("jobs", verb, "a", "--json")
    assert said.code == 0
    assert second.id in said.out
