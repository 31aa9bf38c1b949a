"""Planning, applying and checking from Python, equivalent to the command line."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from reconciler import (
    ApplyEvent,
    ApplyFailed,
    DriftReport,
    ExitCode,
    Explanation,
    ExportedManifest,
    HistoryReport,
    LockHeld,
    NotFound,
    Plan,
    Refused,
    Result,
    ServerError,
    Session,
    Stack,
    StalePlan,
    StatusReport,
    WrongUsage,
    load,
    load_plan,
    reconcile,
)
from reconciler.cli.main import cli, run
from reconciler.core.record import Scope
from reconciler.decide.plan import PlannedAction
from reconciler.emulator import Effect, Fault
from reconciler.records.recording import Recording, StackLock
from reconciler.render import Content, formats_of
from tests.api.conftest import ENVIRON, TOKEN, Service, manifest, secret_manifest, write
from tests.builders import a_startable_entry
from tests.cli.conftest import put_finished_job

ROOT = Path(__file__).parents[2]


def command_line(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Run a command; its exit code and stdout."""
    code = run(cli, list(arguments))
    return code, capsys.readouterr().out


def without_time(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name != "created_at"}


# --- the same as the command line


def test_plan_equals_that_of_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, manifest() | {"jobs": {"a": a_startable_entry(), "b": a_startable_entry(0.2)}})
    with load(tmp_path).connect() as session:
        plan = session.plan()
    assert isinstance(plan, Plan)
    code, text = command_line(capsys, "plan", str(tmp_path), "--detailed-exitcode")
    assert f"{plan}\n" == text == plan.render()
    assert plan.exit_code == code == ExitCode.CHANGES
    _, document = command_line(capsys, "plan", str(tmp_path), "--json")
    assert without_time(plan.to_dict()) == without_time(json.loads(document))
    assert without_time(json.loads(plan.render("json"))) == without_time(json.loads(document))


@pytest.mark.parametrize("format_", formats_of(Content.PLAN))
def test_plan_and_drift_are_rendered_in_every_format(service: Service, format_: str) -> None:
    put_finished_job(service.app.store, project="p1")
    with service.stack("a").connect(environ=ENVIRON) as session:
        plan, report = session.plan(), session.drift()
    assert "create" in plan.render(format_).lower() or format_ in ("sarif", "prometheus", "github")
    assert "missing" in report.render(format_)
    with pytest.raises(WrongUsage):
        plan.render(f"{format_}x")


def test_saved_plan_is_rendered_with_its_digest(service: Service) -> None:
    file = service.root / "plan.json"
    with service.stack("a").connect(environ=ENVIRON) as session:
        plan = session.plan()
        assert "sha256:" not in plan.render("markdown")
        plan.save(file)
    assert plan.digest in plan.render("markdown")
    assert plan.digest in load_plan(file).render("html")


def test_drift_equals_that_of_the_command_line(
    service: Service, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MODELARTS_AUTH_TOKEN", ENVIRON["MODELARTS_AUTH_TOKEN"])
    with load(write(service.root, manifest("a", "b", url=service.url))).connect() as session:
        session.apply().raise_for_failures()
        service.clock.advance(seconds=60)
        session.jobs.terminate("a", force=True)
        service.clock.advance(seconds=60)
        report = session.drift()
    assert isinstance(report, DriftReport)
    code, text = command_line(capsys, "drift", str(service.root))
    assert (report.exit_code, f"{report}\n") == (code, text)
    _, document = command_line(capsys, "drift", str(service.root), "--json")
    assert without_time(report.to_dict()) == without_time(json.loads(document))
    assert report.has_drift
    assert report.summary["terminated"] == 1
    assert [(one.key, one.class_) for one in report.drift] == [("a", "terminated")]
    assert report.pending == ()


def test_drift_since_the_last_check_counts_new_or_due_drift(service: Service) -> None:
    data = manifest("a", "b", url=service.url)
    data["drift"] = {"ignore": [{"key": "b", "class": "terminated", "reason": "known"}]}
    with load(write(service.root, data)).connect(environ=ENVIRON) as session:
        session.apply().raise_for_failures()
        assert session.drift(since_last=True).exit_code == 0
        for job in service.app.store.jobs():
            service.app.store.set_phase(job.id, "Terminated")
        first, second = session.drift(since_last=True), session.drift(since_last=True)
        again, plain = session.drift(since_last=True, remind_s=0), session.drift()
        for job in service.app.store.jobs():
            service.app.store.set_phase(job.id, "Running")
        gone = session.drift(since_last=True)
    assert [report.exit_code for report in (first, second, again, plain, gone)] == [2, 0, 2, 2, 0]
    assert [one.key for one in first.new] == ["a"]
    assert [(one.key, one.reason) for one in first.ignored] == [("b", "known")]
    assert (second.new, second.changed, [one.key for one in second.drift]) == ((), (), ["a"])
    assert [one.key for one in gone.gone] == ["a"]
    assert first.to_dict()["new"][0]["class"] == "terminated"


@pytest.fixture
def applied(service: Service, monkeypatch: pytest.MonkeyPatch) -> Session:
    """A stack with a completed job, usable from the command line, too."""
    monkeypatch.setenv("MODELARTS_AUTH_TOKEN", TOKEN)
    session = load(write(service.root, manifest("a", url=service.url))).connect()
    session.apply().raise_for_failures()
    service.clock.advance(seconds=7200)
    session.drift()
    return session


@pytest.mark.parametrize(
    ("asked", "kind", "arguments"),
    [
        (lambda session: session.status(), StatusReport, ("status",)),
        (lambda session: session.status(only="a"), StatusReport, ("status", "a")),
        (lambda session: session.why("a"), Explanation, ("why", "a")),
        (lambda session: session.history(), HistoryReport, ("history",)),
        (lambda session: session.history("a", limit=1), HistoryReport, ("history", "a", "--limit", "1")),
    ],
)
def test_report_equals_that_of_the_command_line(
    applied: Session,
    service: Service,
    capsys: pytest.CaptureFixture[str],
    asked: Callable[[Session], Any],
    kind: type[Any],
    arguments: tuple[str, ...],
) -> None:
    report = asked(applied)
    assert kind is type(report)
    code, text = command_line(capsys, *arguments, str(service.root), "--json")
    assert without_time(report.to_dict()) == without_time(json.loads(text))
    assert code == getattr(report, "exit_code", code)
    _, text = command_line(capsys, *arguments, str(service.root))
    assert str(report).splitlines()[:3] == text.splitlines()[:3]


def test_reports_have_the_values_of_the_stack(applied: Session) -> None:
    status, why, history = applied.status(), applied.why("a"), applied.history()
    assert [(one.key, one.phase) for one in status.jobs] == [("a", "Completed")]
    assert (status.summary, status.complete) == ({"Completed": 1}, True)
    assert (why.key, [one.action for one in why.actions]) == ("a", ["keep"])
    assert [one.rules[-1].applies for one in why.members] == [True]
    assert [run.kind for run in history.runs] == ["drift", "apply"]
    assert history.summary == {"runs": 2, "revisions": 1}
    for key in (applied.why, applied.history, applied.release, lambda key: applied.adopt(key, "a")):
        with pytest.raises(WrongUsage):
            key("nobody")


def test_job_is_adopted_and_released(service: Service) -> None:
    entry = a_startable_entry()
    entry["algorithm"]["parameters"] = [{"name": "lr", "value": "0.1"}]
    made = service.app.store.create("p1", {"kind": "job", "metadata": {"name": "by-hand"}, **entry})
    with service.stack("a", lr=0.2).connect(environ=ENVIRON) as session:
        refused = session.adopt("a", "by-hand")
        assert (refused.ok, refused.exit_code) == (False, ExitCode.REFUSED)
        with pytest.raises(Refused):
            refused.raise_for_failures()
        assert session.adopt("a", made.id, accept=True).ok
        assert not session.plan().has_changes
        assert session.release("a").ok
        assert [one.phase for one in session.status().jobs] == [None]
    with service.stack("a").connect(environ=ENVIRON) as session:
        assert session.adopt("a", "by-hand").ok
        assert not session.plan().has_changes


def test_export_equals_that_of_the_command_line(
    applied: Session, service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    exported = applied.export("a")
    _, text = command_line(capsys, "export", "a", "--in", str(service.root))
    assert (exported, isinstance(exported, ExportedManifest)) == (text, True)
    assert Stack.from_dict(exported.to_dict(), service.root).keys == ("a",)
    assert "fields not reported" in [one.what for one in exported.warnings]
    with pytest.raises(NotFound):
        applied.export(["a", "nobody"])


def test_notebook_shows_tables_without_scripts_and_secrets(service: Service) -> None:
    environ = {**ENVIRON, "GITHUB_ACTOR": "<script>alert(1)</script>"}
    with service.stack("a").connect(environ=environ) as session:
        assert repr(session.history()) == "<HistoryReport: 0 runs, 0 revisions>"
        shown: list[Any] = [session.plan(), session.apply(), session.status()]
        assert repr(shown[0]).startswith("<Plan: 1 to create, ")
        assert repr(shown[1]) == "<Result: Applied: 1 succeeded.>"
        assert session.history()._repr_html_() is None
    [job] = service.app.store.jobs()
    words = f"<script>{TOKEN}</script> {job.body['metadata']['description']}"
    service.app.store.edit(job.id, lambda body: body["metadata"].update(description=words))
    with service.stack("a").connect(environ=environ) as session:
        shown += [session.drift(), session.plan()]
    pages = [one._repr_html_() for one in shown]
    for page in pages:
        assert page is not None
        assert "<table" in page
        assert 'data-key="a"' in page
        assert "<script" not in page
        assert TOKEN not in page
    assert "create by &lt;script&gt;" in str(pages[2])
    assert "&lt;script&gt;" in str(pages[3])


def test_job_applied_by_python_is_kept_and_recorded_for_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, manifest("a"))
    with load(tmp_path).connect() as session:
        assert session.apply().ok
    code, text = command_line(capsys, "plan", str(tmp_path), "--detailed-exitcode")
    assert code == 0, text
    _, text = command_line(capsys, "history", str(tmp_path), "--json")
    [applied] = [one for one in json.loads(text)["runs"] if one["kind"] == "apply"]
    assert (applied["command"], applied["result"]) == ("python", "complete")


def test_stack_from_a_mapping_equals_the_stack_from_a_file(tmp_path: Path) -> None:
    data = manifest() | {
        "jobs": {"a": a_startable_entry(1e-5, description="é\u2028\x85 text"), "b": a_startable_entry()}
    }
    from_file, from_data = load(write(tmp_path, data)), Stack.from_dict(data, tmp_path)
    digests = [
        {key: one.digest for key, one in stack._loaded.stack.jobs.items()} for stack in (from_file, from_data)
    ]
    assert digests[0] == digests[1]
    assert from_data.name == "test"
    assert from_data.keys == ("a", "b")
    assert from_data.targets == ("there",)
    assert from_data.warnings == ()


# --- apply


def test_plan_right_after_apply_has_no_changes(service: Service) -> None:
    with service.stack("a").connect(environ=ENVIRON) as session:
        plan = session.plan()
        assert plan.has_changes
        assert plan.applyable
        assert plan.complete
        assert plan.summary["create"] == 1
        [action] = plan.actions
        assert (action.key, action.action, action.reason, action.detail) == (
            "a",
            "create",
            "not_found",
            "new",
        )
        result = session.apply(plan)
        assert isinstance(result, Result)
        assert (result.ok, result.exit_code, result.summary["done"]) == (True, ExitCode.DONE, 1)
        assert [(one.key, one.status) for one in result.outcomes] == [("a", "done")]
        assert "create a" in str(result)
        result.raise_for_failures()
        plan = session.plan()
        assert not plan.has_changes
        assert session.apply(plan).outcomes == ()


def test_plan_overtaken_by_another_apply_is_stale_and_does_nothing(service: Service) -> None:
    with service.stack("a", "b").connect(environ=ENVIRON) as session:
        plan = session.plan()
        session.apply(session.plan(only="a"))
        with pytest.raises(StalePlan) as caught:
            session.apply(plan)
    assert caught.value.exit_code == ExitCode.STALE
    assert service.asked("CreateTrainingJob") == 1


def test_plan_for_another_target_is_stale(service: Service, tmp_path: Path) -> None:
    with Stack.from_dict(manifest("a"), tmp_path).connect() as session:
        plan = session.plan()
    with service.stack("a").connect(environ=ENVIRON) as session, pytest.raises(StalePlan):
        session.apply(plan)
    assert service.app.store.jobs() == []


def test_plan_refused_by_a_guard_is_applied_when_allowed(service: Service) -> None:
    with service.stack("a", "b", "c", "d", "e").connect(environ=ENVIRON) as session:
        session.apply()
    with service.stack("a").connect(environ=ENVIRON) as session:
        session.apply()
    with service.stack().connect(environ=ENVIRON) as session:
        plan = session.plan()
        assert [one.what for one in plan.refusals] == ["the manifest declares no job"]
        assert not plan.applyable
        with pytest.raises(Refused) as caught:
            session.apply(plan)
        assert caught.value.exit_code == ExitCode.REFUSED
        with pytest.raises(Refused):
            session.apply()
        assert session.plan(allow=["empty"]).applyable
        assert session.apply(session.plan(force=True)).ok


def test_apply_of_an_unreadable_service_has_the_exit_code_of_the_command_line(
    service: Service, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MODELARTS_AUTH_TOKEN", ENVIRON["MODELARTS_AUTH_TOKEN"])
    write(service.root, manifest(url=service.url))
    service.app.faults.add(
        Fault(Effect.ANSWER, path="*/training-job-searches", status=400, code="ModelArts.0104", count=None)
    )
    with load(service.root).connect() as session, pytest.raises(Refused) as caught:
        session.apply()
    code, _ = command_line(capsys, "apply", "--yes", str(service.root))
    assert caught.value.exit_code == code == ExitCode.UNKNOWN


def test_failed_action_is_in_the_result_and_raised_on_request(service: Service) -> None:
    service.app.faults.add(
        Fault(Effect.ANSWER, operation="CreateTrainingJob", status=400, code="ModelArts.0104", count=1)
    )
    with service.stack("a", "b").connect(environ=ENVIRON, parallelism=1) as session:
        result = session.apply()
    assert not result.ok
    assert result.exit_code == ExitCode.PARTIAL
    assert (result.summary["failed"], result.summary["done"]) == (1, 1)
    with pytest.raises(ApplyFailed) as caught:
        result.raise_for_failures()
    assert caught.value.exit_code == ExitCode.PARTIAL
    assert caught.value.result is result
    assert [one.what for one in caught.value.diagnostics] == ["failed"]
    assert "create a" in str(caught.value)


def test_failing_event_listener_does_not_stop_the_apply(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: ApplyEvent) -> None:
        raise RuntimeError("the notebook was closed")

    with service.stack("a").connect(environ=ENVIRON) as session:
        assert session.apply(on_event=fail).ok
    assert "on_event failed" in caplog.text


def test_wait_goes_on_until_every_job_has_completed(service: Service) -> None:
    seen: list[ApplyEvent] = []

    def let_time_pass(event: ApplyEvent) -> None:
        seen.append(event)
        service.clock.advance(seconds=3600)

    with service.stack("a").connect(environ=ENVIRON) as session:
        result = session.apply(wait="completed", on_event=let_time_pass)
        assert result.ok
        assert [(one.key, one.end) for one in result.waits] == [("a", "reached")]
        assert session.jobs.get("a").status.phase == "Completed"
        assert "action_progress" in [event.type for event in seen]


def test_second_apply_raises_lock_held_while_the_first_runs(service: Service) -> None:
    first, second = (service.stack("a").connect(environ=ENVIRON) for _ in range(2))
    refused: list[BaseException] = []

    def apply_beside(event: ApplyEvent) -> None:
        if event.type == "planned":
            try:
                second.apply()
            except LockHeld as held:
                refused.append(held)

    with first, second:
        assert first.apply(on_event=apply_beside).ok
        assert [one.exit_code for one in refused if isinstance(one, LockHeld)] == [ExitCode.LOCKED]
        assert second.apply().ok  # it was let go


def test_lock_lost_while_planning_stops_no_later_apply(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    losing: list[Callable[[], None]] = []
    make_lock, plan = Recording.lock, reconcile.plan

    def remember_lock(self: Recording, scope: Scope, on_lost: Callable[[], None]) -> StackLock:
        losing.append(on_lost)
        return make_lock(self, scope, on_lost)

    def lose_lock(context: reconcile.Context) -> NoReturn:
        losing.pop()()
        raise ServerError("no answer")

    monkeypatch.setattr(Recording, "lock", remember_lock)
    with service.stack("a").connect(environ=ENVIRON) as session:
        monkeypatch.setattr(reconcile, "plan", lose_lock)
        with pytest.raises(ServerError):
            session.apply()
        monkeypatch.setattr(reconcile, "plan", plan)
        assert [outcome.status for outcome in session.apply().outcomes] == ["done"]


# --- no global state


def test_session_prints_nothing_and_installs_no_signal_handler(
    service: Service, capfd: pytest.CaptureFixture[str]
) -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    with service.stack("a").connect(environ=ENVIRON) as session:
        session.apply(on_event=lambda _: before.update(now={n: signal.getsignal(n) for n in [*before]}))  # type: ignore[call-overload]
        session.drift()
        session.destroy()
    handlers = before.pop("now")  # type: ignore[call-overload]
    assert handlers == before
    assert capfd.readouterr() == ("", "")


def test_session_output_has_no_secret(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="reconciler")
    secret, events = "tell-nobody-2", list[ApplyEvent]()
    environ = {**ENVIRON, "TOKEN": secret}
    data = secret_manifest("is ${var.token}", url=service.url)
    with Stack.from_dict(data, service.root, environ=environ).connect(environ=environ) as session:
        first = session.plan()
        result = session.apply(first, on_event=events.append)
        job = result.outcomes[0].job
        assert job is not None
        service.app.store.edit(job, lambda body: _say(body, secret))
        second = session.plan()
        found = [*first.actions, *second.actions, *result.outcomes, *session.drift().drift, *events]
        texts = [str(first), first.render("json"), json.dumps(first.to_dict()), str(session.jobs.get("a"))]
    assert [change.before for change in second.actions[0].changes] == ["(sensitive)"]
    texts += [str(one) + repr(one) for one in found]
    texts += [json.dumps(a.desired) + a.model_dump_json() for a in found if isinstance(a, PlannedAction)]
    assert "action_completed a create" in caplog.text
    assert "POST /v2/p1/training-jobs" in caplog.text
    assert not [text for text in (*texts, caplog.text) if secret in text or TOKEN in text]


def _say(body: dict[str, Any], text: str) -> None:
    body["metadata"]["description"] = f"is {text} {body['metadata']['description']}"


@pytest.mark.parametrize("secret", ["apply_completed", "create", "2026", "null"])
def test_secret_equal_to_a_keyword_does_not_break_an_apply(service: Service, secret: str) -> None:
    data = secret_manifest(url=service.url)
    environ, events = {**ENVIRON, "TOKEN": secret}, list[ApplyEvent]()
    with Stack.from_dict(data, service.root, environ=environ).connect(environ=environ) as session:
        result = session.apply(on_event=events.append)
    assert result.ok
    kinds = ["version", "planned", "action_started", "action_completed", "apply_completed"]
    assert [event.type for event in events] == kinds
    assert [event.sequence for event in events] == [1, 2, 3, 4, 5]
    assert events[3].key == "a"


def test_sessions_in_two_threads_are_independent(tmp_path: Path) -> None:
    done: dict[str, list[str]] = {}
    together = threading.Barrier(2)

    def work(name: str) -> None:
        root = tmp_path / name
        root.mkdir()
        data = manifest(*(f"{name}-{number}" for number in range(5))) | {"stack": name}
        with Stack.from_dict(data, root).connect() as session:
            together.wait()
            session.apply().raise_for_failures()
            made = sorted(one.metadata.name for one in session.jobs.list())
            session.destroy().raise_for_failures()
            done[name] = made

    threads = [threading.Thread(target=work, args=(name,)) for name in ("left", "right")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == {name: [f"{name}-{number}" for number in range(5)] for name in ("left", "right")}


INTERRUPTED = """\
import json, sys
import reconciler
stack = reconciler.Stack.from_dict(json.loads(sys.argv[1]), sys.argv[2])
with stack.connect() as session:
    try:
        session.apply(wait="completed", on_event=lambda event: print(event.type, flush=True))
    except KeyboardInterrupt:
        print("interrupted", session.plan().summary["create"])
    print(session.jobs.terminate("a", force=True).status.phase)
"""


def test_interrupted_wait_ends_cleanly_and_frees_the_lock(tmp_path: Path) -> None:
    """A notebook's *Interrupt*: the wait ends, the lock is free, and the session stays usable."""
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, json.dumps(manifest("a")), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout as stdout:
        for line in stdout:
            if line.strip() == "action_progress":
                process.send_signal(signal.SIGINT)
                break
        rest = stdout.read().splitlines()
    assert process.wait(timeout=20) == 0
    assert rest[-2:] == ["interrupted 0", "Terminating"]
    with Stack.from_dict(manifest("a"), tmp_path).connect() as session:
        assert session.apply().ok


# --- wrong usage does nothing


@pytest.mark.parametrize(
    "call",
    [
        lambda session: session.plan(only="b"),
        lambda session: session.plan(allow="everything"),
        lambda session: session.apply(wait="done"),
        lambda session: session.jobs.wait("a", "happy"),
        lambda session: session.jobs.list(limit=-1),
        lambda session: session.jobs.list(created_after=5),
    ],
)
def test_invalid_argument_is_wrong_usage(service: Service, call: Callable[..., object]) -> None:
    with service.stack("a").connect(environ=ENVIRON) as session:
        with pytest.raises(WrongUsage):
            call(session)
        assert session.plan(allow="lost-work").summary["create"] == 1


def test_plan_of_another_stack_is_wrong_usage_and_does_nothing(service: Service, tmp_path: Path) -> None:
    with service.stack("a").connect(environ=ENVIRON) as session:
        plan = session.plan()
        plan.save(tmp_path / "plan.json")
    with service.stack("a", stack="other").connect(environ=ENVIRON) as other:
        for one in (plan, load_plan(tmp_path / "plan.json")):
            with pytest.raises(WrongUsage, match="plan of another stack"):
                other.apply(one)
    assert not service.asked("CreateTrainingJob")


@pytest.mark.parametrize("call", ["plan", "apply", "drift", "destroy"])
def test_closed_session_is_wrong_usage(service: Service, call: str) -> None:
    with service.stack("a").connect(environ=ENVIRON) as session:
        pass
    with pytest.raises(WrongUsage, match="the session is closed"):
        getattr(session, call)()


def test_jobs_of_a_closed_session_are_wrong_usage(tmp_path: Path) -> None:
    """On a local target, its closed file was taken for a damaged one."""
    with Stack.from_dict(manifest("a"), tmp_path).connect(environ={}) as session:
        jobs = session.jobs
        assert jobs.list() == ()
    with pytest.raises(WrongUsage, match="the session is closed"):
        jobs.list()
    with pytest.raises(WrongUsage, match="the session is closed"):
        jobs.get("a")
