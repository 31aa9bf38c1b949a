"""`reconciler doctor`: what is wrong is told apart, and each has something to do about it."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from reconciler.backends.ways import FILE_VARIABLE
from reconciler.core.checkup import Health, of_clock, of_quota
from reconciler.emulator import Effect, Fault, ManualClock, Store, create_app, running
from tests.backends.building import ACCESS_KEY, SECRET_KEY, a_body
from tests.cli.conftest import Reconciler, Said, Service, manifest, write


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
    monkeypatch.setattr("reconciler.backends.clock.SystemClock", lambda: clock)
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
    assert {check["status"] for check in found.values()} == {"ok"}
    assert found["credentials"]["detail"] == "token, from MODELARTS_AUTH_TOKEN"
    assert found["project"]["detail"] == "p1, from the target"
    assert found["quota"]["detail"] == "1 of 10000 job records"
    text = reconciler("doctor").out
    assert text.splitlines()[-1] == f"Doctor: {len(found)} ok, 0 wrong."
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
    assert checks(said)["credentials"]["detail"] == "none are needed"


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
        told(reconciler(command), 7, "fix: the credentials are of another project", "ModelArts.2786")
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
    assert wrong(reconciler("doctor", "--json")) == ["endpoint"]


@pytest.mark.parametrize(("ahead_s", "word"), [(1200, "20 min ahead of"), (-1200, "20 min behind")])
def test_a_clock_that_is_twenty_minutes_off(
    reconciler: Reconciler, signed: str, clock: RealTime, ahead_s: float, word: str
) -> None:
    write(manifest("a", url=signed))
    clock.ahead_s = ahead_s
    for command in ("plan", "doctor"):
        told(reconciler(command), 7, f"{word} the service's", "fix: set this machine's clock")
    assert wrong(reconciler("doctor", "--json")) == ["clock"]


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
    assert checks(said)[name]["fix"] == f"ask for a role that has {action}"
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
        assert checks(said)["adoption"]["fix"].startswith(f"reconciler adopt a {job.id}")


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
