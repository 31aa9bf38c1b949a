"""`reconciler doctor`: what is wrong is told apart, and each has something to do about it."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from reconciler.decide.doctor import Health, of_clock, of_memory, of_quota
from reconciler.emulator import Effect, Fault, ManualClock, Store, create_app, running
from reconciler.modelarts.known_secrets import FILE_VARIABLE
from tests.cli.conftest import Reconciler, Said, Service, manifest, write
from tests.cli.lock_helpers import held_by
from tests.modelarts.building import ACCESS_KEY, SECRET_KEY, a_body
from tests.modelarts.serving import Iam


class RealTime:
    """This machine's time, `ahead_s` of what it should be; nobody waits for anything."""

    ahead_s = 0.0

    def now(self) -> float:
        return time.time() + self.ahead_s

    def sleep(self, seconds: float) -> None:
        """Go on at once."""


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> RealTime:
    clock = RealTime()
    monkeypatch.setattr("reconciler.modelarts.clock.SystemClock", lambda *_: clock)
    return clock


@pytest.fixture
def signed(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A service that checks signatures, and the key that it knows in the environment."""
    monkeypatch.setenv("HUAWEICLOUD_SDK_AK", ACCESS_KEY)
    monkeypatch.setenv("HUAWEICLOUD_SDK_SK", SECRET_KEY)
    with Store(clock=ManualClock()) as store:
        app = create_app(store, project_id="p1", access_key=ACCESS_KEY, secret_key=SECRET_KEY)
        with running(app) as url:
            yield url


def checks(said: Said) -> dict[str, dict[str, Any]]:
    """The checks of a JSON answer, by name."""
    return {check["name"]: check for check in said.document["checks"]}


def wrong(said: Said) -> list[str]:
    return [name for name, check in checks(said).items() if check["status"] == "wrong"]


# ── all is well ────────────────────────────────────────────────────────────────────────────────────


def test_all_is_well(reconciler: Reconciler, service: Service) -> None:
    write(manifest("a", url=service.url))
    service.store.create("p1", a_body("somebody-elses"))
    said = reconciler("doctor", "--json")
    assert said.code == 0
    assert said.document["well"] is True
    assert said.document["target"]["project_id"] == "p1"
    found = checks(said)
    assert {name for name, check in found.items() if check["status"] != "ok"} == {"history"}
    assert found["records"]["detail"].endswith("records.sqlite3; nothing is recorded yet")
    assert found["lock"]["detail"] == "not held"
    assert found["credentials"]["detail"] == "token, from MODELARTS_AUTH_TOKEN"
    assert found["project"]["detail"] == "p1, from the target"
    assert found["quota"]["detail"] == "1 of 10000 job records"
    text = reconciler("doctor").out
    assert text.splitlines()[-1] == f"Doctor: {len(found) - 1} ok, 1 note, 0 wrong."
    assert "tell-nobody-1" not in text + said.out


def test_nothing_is_changed(reconciler: Reconciler, service: Service) -> None:
    write(manifest("a", url=service.url))
    assert reconciler("doctor").code == 0
    changing = {"CreateTrainingJob", "ChangeTrainingJobDescription", "StopTrainingJob", "DeleteTrainingJob"}
    assert not changing & {served.operation for served in service.app.requests}
    assert service.store.jobs() == []


def test_the_local_target_needs_nothing(reconciler: Reconciler) -> None:
    write(manifest("a"))
    said = reconciler("doctor", "--json")
    assert said.code == 0
    assert checks(said)["credentials"]["detail"] == "none required"


def test_what_otc_does_not_offer_is_no_fault(reconciler: Reconciler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELARTS_AUTH_TOKEN", "tell-nobody-1")
    with Store() as store, running(create_app(store, token="tell-nobody-1", cloud="otc")) as url:
        write(manifest("a", url=url).replace("project_id: p1", "project_id: p1, cloud: otc"))
        said = reconciler("doctor", "--json")
    assert said.code == 0
    assert checks(said)["quota"]["status"] == "not checked"


# ── credentials ────────────────────────────────────────────────────────────────────────────────────


def test_which_credentials_were_found_is_told_and_never_their_value(
    reconciler: Reconciler, signed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(manifest("a", url=signed))
    said = reconciler("doctor", "--json")
    assert said.code == 0
    assert checks(said)["credentials"]["detail"] == "access key, from HUAWEICLOUD_SDK_AK"
    assert SECRET_KEY not in said.out + said.err
    path = write(f"[basic]\nak = {ACCESS_KEY}\nsk = {SECRET_KEY}\n", "keys.ini")
    for name in ("HUAWEICLOUD_SDK_AK", "HUAWEICLOUD_SDK_SK"):
        monkeypatch.delenv(name)
    monkeypatch.setenv(FILE_VARIABLE, str(path))
    said = reconciler("doctor", "--json")
    assert checks(said)["credentials"]["detail"] == "access key, from keys.ini [basic]"
    assert SECRET_KEY not in said.out + said.err


def test_without_credentials(reconciler: Reconciler) -> None:
    write(manifest("a", url="http://127.0.0.1:9"))
    said = reconciler("doctor", "--json")
    assert said.code == 7
    assert wrong(said) == ["credentials"]
    assert "MODELARTS_AUTH_TOKEN" in checks(said)["credentials"]["fix"]
    assert checks(said)["endpoint"]["status"] == "not checked"


def test_half_a_key_says_which_half_is_missing(
    reconciler: Reconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(manifest("a", url="http://127.0.0.1:9"))
    monkeypatch.setenv("HUAWEICLOUD_SDK_AK", ACCESS_KEY)
    said = reconciler("doctor", "--json")
    assert said.code == 7
    assert "HUAWEICLOUD_SDK_SK is not" in checks(said)["credentials"]["detail"]


@pytest.fixture
def by_password(monkeypatch: pytest.MonkeyPatch) -> Iterator[Iam]:
    """An identity service that lets nobody in, and a login for it in the environment."""
    iam = Iam(status=401, code="401")
    with running(iam) as url:
        monkeypatch.setenv("OS_AUTH_URL", f"{url}/v3")
        for name in ("USERNAME", "PASSWORD", "USER_DOMAIN_NAME"):
            monkeypatch.setenv(f"OS_{name}", "S3cretPassword")
        yield iam


@pytest.mark.parametrize("project", [", project_id: p1", ""], ids=["named", "of the token"])
def test_a_wrong_password_is_a_matter_of_the_credentials(
    reconciler: Reconciler, by_password: Iam, monkeypatch: pytest.MonkeyPatch, project: str
) -> None:
    monkeypatch.setenv("OS_PROJECT_NAME", "eu-de")
    write(manifest("a", url="http://127.0.0.1:9").replace(", project_id: p1", project))
    for command in ("plan", "doctor"):
        told(
            reconciler(command),
            7,
            "IAM rejected the login: no: ",
            "fix: check OS_USERNAME, OS_PASSWORD, OS_USER_DOMAIN_NAME",
        )
    by_password.logins.clear()
    said = reconciler("doctor", "--json")
    assert wrong(said) == ["credentials"]
    assert checks(said)["endpoint"]["status"] == "not checked"
    assert len(by_password.logins) == 1
    assert "S3cretPassword" not in said.out + said.err


def test_an_identity_service_that_is_away_says_nothing_of_the_endpoint(
    reconciler: Reconciler, by_password: Iam, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OS_AUTH_URL", "http://127.0.0.1:9/v3")
    write(manifest("a", url="http://127.0.0.1:9"))
    said = reconciler("doctor", "--json")
    assert said.code == 8
    assert wrong(said) == ["credentials"]
    assert checks(said)["credentials"]["fix"] == "check OS_AUTH_URL"
    assert checks(said)["endpoint"]["status"] == "not checked"


# ── the five that everybody meets: one paragraph, and what to do; the same for a plan ─────────────


def told(said: Said, code: int, *words: str) -> None:
    """It ended with this code, and says these words in one short error."""
    assert said.code == code
    spoken = said.out + said.err
    assert "Traceback" not in spoken
    for word in words:
        assert word in spoken


def test_bad_credentials(reconciler: Reconciler, signed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write(manifest("a", url=signed))
    monkeypatch.setenv("HUAWEICLOUD_SDK_SK", "forged-secret-key")
    for command in ("plan", "doctor"):
        told(reconciler(command), 7, "fix: check the credentials", "APIGW.0301")
    said = reconciler("doctor", "--json")
    assert wrong(said) == ["authentication"]
    assert checks(said)["may check names"]["status"] == "not checked"


def test_a_failing_signature_is_not_repeated(
    reconciler: Reconciler, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(manifest("a", url=service.url))
    monkeypatch.setenv("MODELARTS_AUTH_TOKEN", "forged-token-2")
    assert reconciler("doctor").code == 7
    assert len(service.app.requests) == 1


def test_the_wrong_project(reconciler: Reconciler, service: Service) -> None:
    write(manifest("a", url=service.url).replace("project_id: p1", "project_id: p2"))
    for command in ("plan", "doctor"):
        told(reconciler(command), 7, "fix: the credentials belong to another project", "ModelArts.2786")
    assert wrong(reconciler("doctor", "--json")) == ["project"]


def test_the_wrong_region(reconciler: Reconciler, monkeypatch: pytest.MonkeyPatch) -> None:
    write(manifest("a", url="URL").replace("endpoint: 'URL'", "region: cn-nowhere-1"))
    monkeypatch.setenv("MODELARTS_AUTH_TOKEN", "tell-nobody-1")

    def no_such_host(host: str, *_: object, **__: object) -> None:
        assert host == "modelarts.cn-nowhere-1.myhuaweicloud.com"
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", no_such_host)
    for command in ("plan", "doctor"):
        told(reconciler(command), 8, "cannot be reached", "cn-nowhere-1", "region of the target")
    for command in ("plan", "drift"):
        out = reconciler(command).out
        assert out.count("Name or service not known") == 1, "once for all keys"
        assert re.search(
            r"^  (\? )?unknown +a +.*the list could not be read( \(seen since .*\))?$", out, re.M
        )
    assert wrong(reconciler("doctor", "--json")) == ["endpoint"]


@pytest.mark.parametrize(("ahead_s", "word"), [(1200, "20 min ahead of"), (-1200, "20 min behind")])
def test_a_clock_that_is_twenty_minutes_off(
    reconciler: Reconciler, signed: str, clock: RealTime, ahead_s: float, word: str
) -> None:
    write(manifest("a", url=signed))
    clock.ahead_s = ahead_s
    for command in ("plan", "doctor"):
        told(reconciler(command), 7, f"{word} the service's", "fix: synchronize this machine's clock")
    assert wrong(reconciler("doctor", "--json")) == ["clock"]


@pytest.mark.parametrize(
    ("status", "code", "fix"),
    [
        (403, "ModelArts.0206", "use credentials of this project"),
        (403, "ModelArts.0210", "the credentials belong to another project"),
        (403, "ModelArts.2785", "grant ModelArts an agency"),
        (403, "APIGW.0310", "the account is restricted"),
        (403, "APIG.0310", "the account is restricted"),
        (401, "ModelArts.2784", "get a new token"),
        (403, "ModelArts.0203", "get a new token"),
        (403, "ModelArts.4116", "the account is restricted"),
        (403, "ModelArts.4118", "the account is restricted"),
        (401, "", None),
    ],
)
def test_who_is_not_let_in_is_told_so_once_and_asks_no_more(
    reconciler: Reconciler, service: Service, status: int, code: str, fix: str | None
) -> None:
    """More than 5 wrong signatures in a row lock a key."""
    write(manifest("a", url=service.url))
    service.app.faults.add(Fault(Effect.ANSWER, count=None, status=status, code=code))
    said = reconciler("doctor", "--json")
    assert said.code == 7
    [name] = wrong(said)
    assert name == ("project" if code == "ModelArts.0210" else "authentication")
    found = checks(said)[name]
    assert (found["fix"] or "").startswith(fix or "")
    assert "role" not in (found["fix"] or "")
    assert len(service.app.requests) == 1


@pytest.mark.parametrize(
    ("status", "code"),
    [(403, "ModelArts.0112"), (401, "ModelArts.0112"), (403, "ModelArts.0108"), (403, "ModelArts.9999")],
)
def test_a_role_that_is_missing_says_nothing_of_other_calls(
    reconciler: Reconciler, service: Service, status: int, code: str
) -> None:
    write(manifest("a", url=service.url))
    service.app.faults.add(
        Fault(Effect.ANSWER, operation="ListTrainingJobs", count=None, status=status, code=code)
    )
    said = reconciler("doctor", "--json")
    assert said.code == 7
    assert wrong(said) == ["may list jobs"]
    assert checks(said)["may list jobs"]["fix"] == "ask for a role that includes modelarts:trainJob:list"
    assert len(service.app.requests) == 5


def test_who_is_let_out_half_way_asks_no_more_either(reconciler: Reconciler, service: Service) -> None:
    write(manifest("a", url=service.url))
    service.app.faults.add(
        Fault(
            Effect.ANSWER,
            operation="ShowTrainingJobFlavors",
            count=None,
            status=403,
            code="ModelArts.4116",
        )
    )
    said = reconciler("doctor", "--json")
    assert said.code == 7
    assert wrong(said) == ["authentication"]
    found = checks(said)
    assert found["may list jobs"]["status"] == "ok"
    assert found["may see flavors"]["status"] == found["adoption"]["status"] == "not checked"
    assert len(service.app.requests) == 2


@pytest.mark.parametrize("code", ["APIGW.0307", "ModelArts.0207"])
def test_credentials_of_another_region(reconciler: Reconciler, service: Service, code: str) -> None:
    write(manifest("a", url=service.url))
    service.app.faults.add(Fault(Effect.ANSWER, count=None, status=401, code=code))
    for command in ("plan", "doctor"):
        told(reconciler(command), 7, code, "the region of the target")


def test_an_expired_token(reconciler: Reconciler, service: Service) -> None:
    write(manifest("a", url=service.url))
    said = "The token must be updated."
    service.app.faults.add(Fault(Effect.ANSWER, count=None, status=401, code="APIGW.0307", message=said))
    for command in ("plan", "doctor"):
        told(reconciler(command), 7, "fix: get a new token", said)


# ── permissions and the rest ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("operation", "name", "action"),
    [
        ("ListTrainingJobs", "may list jobs", "modelarts:trainJob:list"),
        ("ShowTrainingJobDetails", "may read a job", "modelarts:trainJob:get"),
        ("ListTrainingJobEvents", "may read events", "modelarts:trainJob:get"),
        ("ValidateTrainingJobName", "may check names", "modelarts:trainJob:checkName"),
        ("ShowTrainingJobFlavors", "may see flavors", "modelarts:trainJob:list"),
        ("ShowTrainingJobEngines", "may see engines", "modelarts:trainJob:list"),
        ("ShowTrainingQuotas", "quota", "modelarts:trainJob:getQuotas"),
    ],
)
def test_a_right_that_is_missing(
    reconciler: Reconciler, service: Service, operation: str, name: str, action: str
) -> None:
    write(manifest("a", url=service.url))
    service.store.create("p1", a_body("somebody-elses"))
    service.app.faults.add(
        Fault(Effect.ANSWER, operation=operation, count=None, status=403, code="ModelArts.0112")
    )
    said = reconciler("doctor", "--json")
    assert said.code == 7
    assert wrong(said) == [name]
    assert checks(said)[name]["fix"] == f"ask for a role that includes {action}"
    assert checks(said)["endpoint"]["status"] == "ok"


def test_a_service_that_is_broken_is_8(reconciler: Reconciler, service: Service) -> None:
    write(manifest("a", url=service.url))
    service.app.faults.add(Fault(Effect.ANSWER, status=503, count=None))
    said = reconciler("doctor", "--json")
    assert said.code == 8
    assert wrong(said) == ["endpoint"]


def test_a_target_that_says_too_little_is_1(reconciler: Reconciler, monkeypatch: pytest.MonkeyPatch) -> None:
    write(manifest("a", url="https://x").replace(", project_id: p1", ""))
    monkeypatch.setenv("MODELARTS_AUTH_TOKEN", "tell-nobody-1")
    said = reconciler("doctor", "--json")
    assert said.code == 1
    assert "HUAWEICLOUD_SDK_PROJECT_ID" in checks(said)["target"]["fix"]


def test_records_that_cannot_be_written_are_1(reconciler: Reconciler, service: Service) -> None:
    write(manifest("a", url=service.url))
    write("a file, where a directory is wanted", ".reconciler")
    said = reconciler("doctor", "--json")
    assert said.code == 1
    assert wrong(said) == ["records"]
    write(manifest("a"))
    assert reconciler("doctor").code == 1


@pytest.mark.parametrize(
    ("records", "words"),
    [
        ("sqlite:////tmp/elsewhere/records.sqlite3", "records.sqlite3; nothing is recorded yet"),
        ("sqlite:////dev/null/records.sqlite3", "/dev/null: "),
        ("postgresql://nobody:tell-nobody-2@127.0.0.1:1/r", "the record store cannot be reached: postgresql"),
    ],
)
def test_another_store_is_named_and_tried(
    reconciler: Reconciler, service: Service, records: str, words: str
) -> None:
    write(manifest("a", url=service.url))
    said = reconciler("doctor", "--json", "--records", records)
    assert words in checks(said)["records"]["detail"]
    assert "tell-nobody-2" not in said.out + said.err
    assert (wrong(said) == ["records"]) == (said.code == 1)
    if said.code:
        assert checks(said)["lock"] == {
            "name": "lock",
            "status": "not checked",
            "detail": "the record store is unavailable",
            "fix": None,
            "trouble": None,
        }


def test_a_damaged_store_is_1(reconciler: Reconciler, service: Service) -> None:
    write(manifest("a", url=service.url))
    write("this is no database, " * 100, ".reconciler/records.sqlite3")
    said = reconciler("doctor", "--json")
    assert said.code == 1
    assert wrong(said) == ["records"]
    assert checks(said)["history"]["status"] == "not checked"


def test_an_address_without_a_value_is_told_and_the_rest_is_checked(
    reconciler: Reconciler, service: Service
) -> None:
    more = "records: 'postgresql://reconciler:${env.NO_SUCH_PASSWORD}@db.example/records'\n"
    write(manifest("a", url=service.url, more=more))
    said = reconciler("doctor", "--json")
    assert said.code == 1
    assert wrong(said) == ["records"]
    assert "NO_SUCH_PASSWORD" in checks(said)["records"]["detail"]
    assert checks(said)["may list jobs"]["status"] == "ok"
    assert reconciler("doctor", "--records", "ftp://x/y").code == 64


def test_relative_path_of_a_store_is_one_below_the_root(reconciler: Reconciler, service: Service) -> None:
    root = write(manifest("a", url=service.url)).resolve().parent
    (root / "not-a-directory").write_text("")
    said = reconciler("doctor", "--json", "--records", "sqlite:///not-a-directory/r.db")
    assert checks(said)["records"]["detail"].startswith(f"{root}/not-a-directory: ")


def test_who_holds_the_lock_is_a_note(reconciler: Reconciler, service: Service) -> None:
    write(manifest("a", url=service.url))
    with held_by("alice", place=service.url):
        said = reconciler("doctor", "--json")
    assert said.code == 0
    lock = checks(said)["lock"]
    assert lock["status"] == "note"
    assert lock["detail"].startswith("held by alice on laptop, process 7 since 20")
    assert lock["detail"].endswith("; it expires in 60 s unless renewed")
    assert "reconciler unlock" in lock["fix"]
    assert checks(reconciler("doctor", "--json"))["lock"]["detail"] == "not held"


def test_the_lock_needs_no_credentials_if_the_project_is_named(reconciler: Reconciler) -> None:
    write(manifest("a", url="http://127.0.0.1:9"))
    with held_by("alice", place="http://127.0.0.1:9"):
        assert checks(reconciler("doctor", "--json"))["lock"]["status"] == "note"
    write(manifest("a", url="http://127.0.0.1:9").replace(", project_id: p1", ""))
    unknown = checks(reconciler("doctor", "--json"))["lock"]
    assert (unknown["status"], unknown["detail"]) == ("not checked", "no credentials")


@pytest.mark.parametrize(
    ("is_local", "is_shared", "health"),
    [
        (True, False, Health.WELL),
        (True, True, Health.WELL),
        (False, True, Health.WELL),
        (False, False, Health.NOTE),
    ],
)
def test_whether_finished_work_is_remembered(is_local: bool, is_shared: bool, health: Health) -> None:
    found = of_memory(is_local=is_local, is_shared=is_shared)
    assert found.health is health
    assert ("records: postgresql://" in (found.fix or "")) == (health is Health.NOTE)


def test_more_than_one_active_revision_is_told(reconciler: Reconciler, service: Service) -> None:
    write(manifest("a", url=service.url))
    assert reconciler("apply", "--yes").code == 0
    twin = a_body("a-r2", "reconciler.test.a.r2.a000000000000")
    service.store.create("p1", twin)
    said = reconciler("doctor", "--json")
    assert said.code == 1
    assert wrong(said) == ["duplicates"]
    assert "a has 2 active revisions: a (Creating" in checks(said)["duplicates"]["detail"]
    assert "reconciler apply" in checks(said)["duplicates"]["fix"]


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
def test_an_unmanaged_job_with_a_declared_name_could_be_adopted(
    reconciler: Reconciler, service: Service, name: str, description: str, is_candidate: bool
) -> None:
    write(manifest("a", url=service.url))
    job = service.store.create("p1", a_body(name, description))
    said = reconciler("doctor", "--json")
    assert said.code == int(is_candidate)
    if is_candidate:
        assert job.id in checks(said)["adoption"]["detail"]
        fix = checks(said)["adoption"]["fix"]
        assert fix.startswith(f"reconciler adopt a {job.id}; or rename the key a in the manifest")


def test_a_job_that_cannot_be_read_is_8(reconciler: Reconciler, service: Service) -> None:
    write(manifest("a", url=service.url))
    service.store.create("p1", a_body("b"))
    service.app.faults.add(Fault(Effect.MALFORMED_JOB, operation="ListTrainingJobs", count=None))
    said = reconciler("doctor", "--json")
    assert said.code == 8
    assert "b cannot be read" in checks(said)["the list"]["detail"]


def test_wrong_use_and_an_invalid_manifest_are_what_they_are_everywhere(reconciler: Reconciler) -> None:
    write(manifest("a"))
    assert reconciler("doctor", "--nonsense").code == 64
    assert reconciler("doctor", "-t", "elsewhere").code == 64
    write(manifest("a").replace("stack: test", "stack: Test"))
    assert reconciler("doctor").code == 65


@pytest.mark.parametrize(
    ("skew_s", "health"),
    [
        (None, Health.UNCHECKED),
        (0.0, Health.WELL),
        (-290.0, Health.WELL),
        (301.0, Health.NOTE),
        (-899.0, Health.NOTE),
        (901.0, Health.WRONG),
        (-5000.0, Health.WRONG),
    ],
)
def test_the_clock(skew_s: float | None, health: Health) -> None:
    assert of_clock(skew_s).health is health


@pytest.mark.parametrize(
    ("quota", "used", "health"),
    [
        (None, None, Health.UNCHECKED),
        (100, 0, Health.WELL),
        (100, 89, Health.WELL),
        (100, 90, Health.NOTE),
        (100, 100, Health.WRONG),
    ],
)
def test_the_quota(quota: int | None, used: int | None, health: Health) -> None:
    assert of_quota(quota, used).health is health
