"""`reconciler doctor`: each failure is distinguished and has a fix."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from reconciler.decide.doctor import Check, Health, of_clock, of_history
from reconciler.emulator import Effect, Fault, ManualClock, Store, create_app, running
from reconciler.modelarts.known_secrets import FILE_VARIABLE
from tests.cli.conftest import CHANGING, Reconciler, Result, Service, manifest, write
from tests.cli.lock_helpers import held_by
from tests.modelarts.building import ACCESS_KEY, SECRET_KEY, a_body
from tests.modelarts.serving import Iam

AWAY = "http://127.0.0.1:9"


class RealTime:
    """The machine's time, `ahead_s` fast; sleeping returns at once."""

    ahead_s = 0.0

    def now(self) -> float:
        return time.time() + self.ahead_s

    def sleep(self, seconds: float) -> None:
        """Return at once."""


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> RealTime:
    clock = RealTime()
    monkeypatch.setattr("reconciler.modelarts.clock.SystemClock", lambda *_: clock)
    return clock


@pytest.fixture
def signed(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A service that checks signatures, with its key in the environment."""
    monkeypatch.setenv("HUAWEICLOUD_SDK_AK", ACCESS_KEY)
    monkeypatch.setenv("HUAWEICLOUD_SDK_SK", SECRET_KEY)
    with Store(clock=ManualClock()) as store:
        app = create_app(store, project_id="p1", access_key=ACCESS_KEY, secret_key=SECRET_KEY)
        with running(app) as url:
            yield url


class Findings(NamedTuple):
    """The result of `doctor --json`: the checks by name, and the failed ones."""

    result: Result
    checks: dict[str, dict[str, Any]]
    wrong: list[str]

    def status(self, name: str) -> str:
        return str(self.checks[name]["status"])

    def detail(self, name: str) -> str:
        return str(self.checks[name]["detail"])

    def fix(self, name: str) -> str:
        return self.checks[name]["fix"] or ""


def doctor(reconciler: Reconciler, code: int, *wrong: str, options: str = "") -> Findings:
    """Run it; check its exit code and its failed checks."""
    result = reconciler.ends(code, f"doctor --json {options}")
    checks = {check["name"]: check for check in result.document["checks"]}
    found = [name for name, check in checks.items() if check["status"] == "wrong"]
    assert found == list(wrong), checks
    return Findings(result, checks, found)


@pytest.fixture
def stack(service: Service) -> Service:
    """A service, and the manifest of a stack on it."""
    write(manifest("a", url=service.url))
    return service


# --- all is well


def test_healthy_setup_passes_and_nothing_is_changed(reconciler: Reconciler, stack: Service) -> None:
    stack.store.create("p1", a_body("somebody-elses"))
    found = doctor(reconciler, 0)
    document = found.result.document
    assert (document["well"], document["target"]["project_id"]) == (True, "p1")
    assert {name for name, check in found.checks.items() if check["status"] != "ok"} == {"history"}
    assert found.detail("records").endswith("records.sqlite3; nothing is recorded yet")
    for name, detail in {
        "lock": "not held",
        "credentials": "token, from MODELARTS_AUTH_TOKEN",
        "project": "p1",
    }.items():
        assert found.detail(name) == detail
    text = reconciler("doctor").out
    assert text.splitlines()[-1] == f"Doctor: {len(found.checks) - 1} ok, 1 note, 0 wrong."
    assert "tell-nobody-1" not in text + found.result.out
    assert not CHANGING & {served.operation for served in stack.app.requests}


def test_local_target_needs_no_credentials(reconciler: Reconciler) -> None:
    write(manifest("a"))
    assert doctor(reconciler, 0).detail("credentials") == "none required"


# --- credentials


def test_source_of_the_credentials_is_shown_and_never_their_value(
    reconciler: Reconciler, signed: str
) -> None:
    write(manifest("a", url=signed))
    path = write(f"[basic]\nak = {ACCESS_KEY}\nsk = {SECRET_KEY}\n", "keys.ini")
    reconciler.setenv(FILE_VARIABLE, str(path))
    for detail in ("access key, from HUAWEICLOUD_SDK_AK", "access key, from keys.ini [basic]"):
        found = doctor(reconciler, 0)
        assert found.detail("credentials") == detail
        assert SECRET_KEY not in found.result.out + found.result.err
        for name in ("HUAWEICLOUD_SDK_AK", "HUAWEICLOUD_SDK_SK"):
            reconciler.patch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("variables", "words"),
    [({}, "MODELARTS_AUTH_TOKEN"), ({"HUAWEICLOUD_SDK_AK": ACCESS_KEY}, "HUAWEICLOUD_SDK_SK is not")],
    ids=["none", "half a key"],
)
def test_missing_credentials_are_7_and_no_request_is_sent(
    reconciler: Reconciler, variables: dict[str, str], words: str
) -> None:
    write(manifest("a", url=AWAY))
    for name, value in variables.items():
        reconciler.setenv(name, value)
    found = doctor(reconciler, 7, "credentials")
    assert words in found.detail("credentials") + found.fix("credentials")
    assert found.status("endpoint") == "not checked"


@pytest.fixture
def by_password(monkeypatch: pytest.MonkeyPatch) -> Iterator[Iam]:
    """An identity service that refuses every login, with a login in the environment."""
    iam = Iam(status=401, code="401")
    with running(iam) as url:
        monkeypatch.setenv("OS_AUTH_URL", f"{url}/v3")
        for name in ("USERNAME", "PASSWORD", "USER_DOMAIN_NAME"):
            monkeypatch.setenv(f"OS_{name}", "S3cretPassword")
        yield iam


@pytest.mark.parametrize("project", [", project_id: p1", ""], ids=["named", "of the token"])
def test_wrong_password_fails_the_credentials_check(
    reconciler: Reconciler, by_password: Iam, project: str
) -> None:
    reconciler.setenv("OS_PROJECT_NAME", "eu-de")
    write(manifest("a", url=AWAY).replace(", project_id: p1", project))
    fix = "fix: check OS_USERNAME, OS_PASSWORD, OS_USER_DOMAIN_NAME"
    refused(reconciler, 7, "IAM rejected the login: no: ", fix)
    by_password.logins.clear()
    found = doctor(reconciler, 7, "credentials")
    assert (found.status("endpoint"), len(by_password.logins)) == ("not checked", 1)
    assert "S3cretPassword" not in found.result.out + found.result.err


def test_unreachable_identity_service_leaves_the_endpoint_unchecked(
    reconciler: Reconciler, by_password: Iam
) -> None:
    reconciler.setenv("OS_AUTH_URL", f"{AWAY}/v3")
    write(manifest("a", url=AWAY))
    found = doctor(reconciler, 8, "credentials")
    assert (found.fix("credentials"), found.status("endpoint")) == ("check OS_AUTH_URL", "not checked")


# --- common mistakes: the same message and fix as in a plan


def refused(reconciler: Reconciler, code: int, *words: str) -> None:
    """Plan and doctor exit with this code, and print these words."""
    for command in ("plan", "doctor"):
        result = reconciler.ends(code, command, lacks="Traceback")
        assert all(word in result.out + result.err for word in words), result


def test_bad_credentials_fail_the_authentication_check(reconciler: Reconciler, signed: str) -> None:
    write(manifest("a", url=signed))
    reconciler.setenv("HUAWEICLOUD_SDK_SK", "forged-secret-key")
    refused(reconciler, 7, "fix: check the credentials", "APIGW.0301")
    assert doctor(reconciler, 7, "authentication").status("may read a job") == "not checked"


def test_wrong_project_fails_the_project_check(reconciler: Reconciler, service: Service) -> None:
    write(manifest("a", url=service.url).replace("project_id: p1", "project_id: p2"))
    refused(reconciler, 7, "fix: the credentials belong to another project", "ModelArts.2786")
    doctor(reconciler, 7, "project")


def test_wrong_region_fails_the_endpoint_check(reconciler: Reconciler) -> None:
    write(manifest("a", url="URL").replace("endpoint: 'URL'", "region: cn-nowhere-1"))
    reconciler.setenv("MODELARTS_AUTH_TOKEN", "tell-nobody-1")

    def no_such_host(host: str, *_: object, **__: object) -> None:
        assert host == "modelarts.cn-nowhere-1.myhuaweicloud.com"
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    reconciler.patch.setattr(socket, "getaddrinfo", no_such_host)
    refused(reconciler, 8, "cannot be reached", "cn-nowhere-1", "region of the target")
    for command in ("plan", "drift"):
        out = reconciler(command).out
        assert out.count("Name or service not known") == 1, "once for all keys"
        line = r"^  (\? )?unknown +a +.*the list could not be read( \(seen since .*\))?$"
        assert re.search(line, out, re.M)
    doctor(reconciler, 8, "endpoint")


@pytest.mark.parametrize(("ahead_s", "word"), [(1200, "20 min ahead of"), (-1200, "20 min behind")])
def test_clock_off_by_twenty_minutes_fails_the_clock_check(
    reconciler: Reconciler, signed: str, clock: RealTime, ahead_s: float, word: str
) -> None:
    write(manifest("a", url=signed))
    clock.ahead_s = ahead_s
    refused(reconciler, 7, f"{word} the service's", "fix: synchronize this machine's clock")
    doctor(reconciler, 7, "clock")


def fail(service: Service, operation: str | None = None, effect: Effect = Effect.ANSWER, **more: Any) -> None:
    service.app.faults.add(Fault(effect, operation=operation, count=None, **more))


# --- refused calls

LIST, READ = "ListTrainingJobs", "ShowTrainingJobDetails"
LOGIN, RESTRICTED, NO_ROLE = "authentication", "the account is restricted", (403, "ModelArts.0112")


@pytest.mark.parametrize(
    ("operation", "answer", "name", "fix", "requests"),
    [
        # After a failed authentication no more requests: more than 5 wrong signatures lock a key.
        (None, (403, "ModelArts.0206"), LOGIN, "use credentials of this project", 1),
        (None, (403, "ModelArts.0210"), "project", "the credentials belong to another project", 1),
        (None, (403, "APIGW.0310"), LOGIN, RESTRICTED, 1),
        (READ, (403, "ModelArts.4116"), LOGIN, RESTRICTED, 2),
        # A missing role does not affect other calls.
        (LIST, NO_ROLE, "may list jobs", "role: modelarts:trainJob:list", 1),
        (LIST, (403, "ModelArts.9999"), "may list jobs", "role: modelarts:trainJob:list", 1),
        (READ, NO_ROLE, "may read a job", "role: modelarts:trainJob:get", 3),
    ],
)
def test_refused_call_fails_one_check(
    reconciler: Reconciler,
    stack: Service,
    operation: str | None,
    answer: tuple[int, str],
    name: str,
    fix: str,
    requests: int,
) -> None:
    stack.store.create("p1", a_body("somebody-elses"))
    fail(stack, operation, status=answer[0], code=answer[1])
    found = doctor(reconciler, 7, name)
    assert found.fix(name).startswith(fix.replace("role:", "ask for a role that includes"))
    assert ("role" in found.fix(name)) is fix.startswith("role:")
    assert len(stack.app.requests) == requests
    if requests > 1:
        assert found.status("may list jobs") == ("wrong" if operation == LIST else "ok")
        assert (found.status("adoption") == "not checked") is (requests < 3)
    if fix.startswith("role:"):
        assert found.status("endpoint") == "ok"


def test_incomplete_target_is_1(reconciler: Reconciler) -> None:
    write(manifest("a", url="https://x").replace(", project_id: p1", ""))
    reconciler.setenv("MODELARTS_AUTH_TOKEN", "tell-nobody-1")
    assert "HUAWEICLOUD_SDK_PROJECT_ID" in doctor(reconciler, 1, "target").fix("target")


# --- records and lock


def test_unwritable_records_are_1(reconciler: Reconciler, stack: Service) -> None:
    write("a file, where a directory is wanted", ".reconciler")
    doctor(reconciler, 1, "records")
    write(manifest("a"))
    reconciler.ends(1, "doctor")


@pytest.mark.parametrize(
    ("records", "code", "words"),
    [
        ("sqlite:////tmp/elsewhere/records.sqlite3", 0, "records.sqlite3; nothing is recorded yet"),
        ("sqlite:////dev/null/records.sqlite3", 1, "/dev/null: "),
        ("sqlite:///jobs.yaml/r.db", 1, "ROOT/jobs.yaml: "),  # relative to the root
        ("postgresql://nobody:tell-nobody-2@127.0.0.1:1/r", 1, "the record store cannot be reached: postg"),
    ],
)
def test_store_given_by_option_is_named_and_checked(
    reconciler: Reconciler, stack: Service, records: str, code: int, words: str
) -> None:
    found = doctor(reconciler, code, *(["records"] if code else []), options=f"--records {records}")
    assert words.replace("ROOT", str(Path.cwd())) in found.detail("records")
    assert "tell-nobody-2" not in found.result.out + found.result.err
    if code:
        unknown = {"status": "not checked", "detail": "the record store is unavailable"}
        assert found.checks["lock"] == {"name": "lock", **unknown, "fix": None, "trouble": None}


def test_address_without_a_value_is_shown_and_the_rest_is_checked(
    reconciler: Reconciler, service: Service
) -> None:
    more = "records: 'postgresql://reconciler:${env.NO_SUCH_PASSWORD}@db.example/records'\n"
    write(manifest("a", url=service.url, more=more))
    found = doctor(reconciler, 1, "records")
    assert "NO_SUCH_PASSWORD" in found.detail("records")
    assert found.status("may list jobs") == "ok"
    reconciler.ends(64, "doctor --records ftp://x/y")


def test_held_lock_is_a_note(reconciler: Reconciler, stack: Service) -> None:
    with held_by("alice", place=stack.url):
        found = doctor(reconciler, 0)
    assert found.status("lock") == "note"
    assert found.detail("lock").startswith("held by alice on laptop, process 7 since 20")
    assert re.search(r"; it expires in [56]\d s unless renewed$", found.detail("lock"))
    assert "reconciler unlock" in found.fix("lock")


def test_lock_needs_no_credentials_if_the_project_is_named(reconciler: Reconciler) -> None:
    write(manifest("a", url=AWAY))
    with held_by("alice", place=AWAY):
        assert doctor(reconciler, 7, "credentials").status("lock") == "note"
    write(manifest("a", url=AWAY).replace(", project_id: p1", ""))
    found = doctor(reconciler, 7, "credentials")
    assert (found.status("lock"), found.detail("lock")) == ("not checked", "no credentials")


# --- the jobs


def test_second_active_revision_fails_the_check(reconciler: Reconciler, stack: Service) -> None:
    reconciler.ends(0, "apply --yes")
    stack.store.create("p1", a_body("a-r2", "reconciler.test.a.r2.a000000000000"))
    found = doctor(reconciler, 1, "duplicates")
    assert "a has 2 active revisions: a (Creating" in found.detail("duplicates")
    assert "reconciler apply" in found.fix("duplicates")


@pytest.mark.parametrize(
    ("name", "description", "is_candidate"),
    [
        ("a", "by hand", True),
        ("a-r7", "", True),
        ("a", "reconciler.test.b.r1.a000000000000", True),
        ("a", "reconciler.other.a.r1.a000000000000", False),
        ("b", "by hand", False),
    ],
)
def test_unmanaged_job_with_a_declared_name_could_be_adopted(
    reconciler: Reconciler, stack: Service, name: str, description: str, is_candidate: bool
) -> None:
    job = stack.store.create("p1", a_body(name, description))
    found = doctor(reconciler, int(is_candidate), *(["adoption"] if is_candidate else []))
    if is_candidate:
        assert job.id in found.detail("adoption")
        fix = f"reconciler adopt a {job.id}; or rename the key a in the manifest"
        assert found.fix("adoption").startswith(fix)


@pytest.mark.parametrize(
    ("check", "health"),
    [
        (of_clock(None), Health.UNCHECKED),
        (of_clock(0.0), Health.WELL),
        (of_clock(-290.0), Health.WELL),
        (of_clock(301.0), Health.NOTE),
        (of_clock(-899.0), Health.NOTE),
        (of_clock(901.0), Health.WRONG),
        (of_clock(-5000.0), Health.WRONG),
        (of_history(is_local=True, is_shared=False), Health.WELL),
        (of_history(is_local=True, is_shared=True), Health.WELL),
        (of_history(is_local=False, is_shared=True), Health.WELL),
        (of_history(is_local=False, is_shared=False), Health.NOTE),
    ],
)
def test_clock_and_history_checks_have_a_health(check: Check, health: Health) -> None:
    assert check.health is health
    if check.name == "history":
        assert ("records: postgresql://" in (check.fix or "")) is (health is Health.NOTE)
