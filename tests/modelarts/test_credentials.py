"""Credentials: lookup, use, and redaction."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.stack import Target
from reconciler.emulator.server import running
from reconciler.errors import Unauthorized
from reconciler.modelarts.auth import AccessKey, Anonymous, StaticToken, find_credentials
from reconciler.modelarts.clock import RetryPolicy
from reconciler.modelarts.connect import WsgiAdapter, connect
from reconciler.modelarts.http import Credentials, NoCredentials, Request, ServiceSession, SessionOptions
from reconciler.modelarts.known_secrets import known_secrets
from reconciler.modelarts.login import IamUnreachable, Login, LoginRefused, PasswordToken
from reconciler.secrets import CREDENTIAL_NAMES, Redactor, service_credentials
from tests.modelarts.building import TOKEN, StoppedClock
from tests.modelarts.serving import Canned, Iam, a_session

PASSWORD = "S3cretPassword"
KEYS = {"HUAWEICLOUD_SDK_AK": "AK1", "HUAWEICLOUD_SDK_SK": "secret-1"}
LOGIN = {
    "OS_AUTH_URL": "https://iam.example/v3",
    "OS_USERNAME": "me",
    "OS_PASSWORD": PASSWORD,
    "OS_DOMAIN_NAME": "ACCOUNT",
    "OS_PROJECT_NAME": "eu-de",
}


def found(environ: dict[str, str], profile: str | None = None) -> Credentials:
    return find_credentials(environ, lambda url: ServiceSession(url, Anonymous()), profile=profile)


@pytest.mark.parametrize(
    ("environ", "source", "what"),
    [
        (
            {**KEYS, "HW_ACCESS_KEY": "AK2", "HW_SECRET_KEY": "s", "OS_TOKEN": TOKEN},
            "HUAWEICLOUD_SDK_AK",
            "access key",
        ),
        ({"HW_ACCESS_KEY": "AK2", "HW_SECRET_KEY": "s", "OS_TOKEN": TOKEN}, "HW_ACCESS_KEY", "access key"),
        ({"OS_ACCESS_KEY": "AK3", "OS_SECRET_KEY": "s", "OS_TOKEN": TOKEN}, "OS_ACCESS_KEY", "access key"),
        ({"HUAWEICLOUD_SDK_AK": "AK1", "OS_TOKEN": TOKEN}, "OS_TOKEN", "token"),
        ({"MODELARTS_AUTH_TOKEN": TOKEN, "OS_AUTH_TOKEN": "x"}, "MODELARTS_AUTH_TOKEN", "token"),
        ({"OS_AUTH_TOKEN": TOKEN, "OS_TOKEN": "x", **LOGIN}, "OS_AUTH_TOKEN", "token"),
        ({"MODELARTS_AUTH_TOKEN": "  ", **LOGIN}, "OS_USERNAME", "user name and password"),
    ],
)
def test_credentials_found_first_are_used(environ: dict[str, str], source: str, what: str) -> None:
    credentials = found(environ)
    assert (credentials.source, credentials.what) == (source, what)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / ".huaweicloud" / "credentials"
    path.parent.mkdir()
    path.write_text(
        "[basic]\nak = AK9\nsk = sec%ret-9\nproject_id = p9\n"
        "[prod]\nak=AKP\nsk=secret-p\nsecurity_token=s-of-prod\n"
    )
    return path


def test_credentials_file_is_read_last(file: Path, tmp_path: Path) -> None:
    credentials = found({"HOME": str(tmp_path)})
    assert credentials.source == f"{file} [basic]"
    assert credentials.project_id() == "p9"
    assert list(credentials.secrets()) == ["sec%ret-9"]
    assert found({"HOME": str(tmp_path), "OS_TOKEN": TOKEN}).source == "OS_TOKEN"
    environ = {"HUAWEICLOUD_SDK_CREDENTIALS_FILE": str(file)}
    assert list(found(environ, "prod").secrets()) == ["secret-p", "s-of-prod"]
    with pytest.raises(NoCredentials, match=r"no section \[test\]"):
        found(environ, "test")
    file.write_text("sk: topsecret\nsk topsecret")
    with pytest.raises(NoCredentials) as problem:
        found(environ)
    assert "topsecret" not in str(problem.value)


@pytest.mark.parametrize(
    ("environ", "why"),
    [
        ({}, "none in the environment"),
        ({"HUAWEICLOUD_SDK_AK": "AK1"}, "HUAWEICLOUD_SDK_SK is not"),
        ({"OS_USERNAME": "me", "OS_PASSWORD": PASSWORD}, "OS_AUTH_URL, OS_USER_DOMAIN_NAME is not set"),
        ({"MODELARTS_AUTH_TOKEN": "two\nlines"}, "MODELARTS_AUTH_TOKEN contains"),
        ({"HUAWEICLOUD_SDK_CREDENTIALS_FILE": "/no/such/file"}, "file not found"),
    ],
)
def test_missing_credentials_error_names_what_is_missing(environ: dict[str, str], why: str) -> None:
    with pytest.raises(NoCredentials, match=why) as problem:
        found(environ)
    assert PASSWORD not in str(problem.value)
    assert "two" not in str(problem.value)


def test_credentials_are_hidden_in_their_repr() -> None:
    environs = [{**KEYS}, {"OS_TOKEN": TOKEN}, LOGIN]
    shown = repr([found(environ) for environ in environs]) + repr([vars(found(e)) for e in environs[2:]])
    assert not any(secret in shown for secret in ("secret-1", TOKEN, PASSWORD))


# ── access key ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("credentials", [AccessKey("AK", "secret-key", "T"), StaticToken(f" {TOKEN}\n", "T")])
def test_credentials_that_cannot_be_renewed_are_sent_once(credentials: Credentials) -> None:
    app = Canned((401, '{"error_code": "APIG.0301", "error_msg": "verify ak sk signature fail"}'))
    with pytest.raises(Unauthorized):
        a_session(app, credentials=credentials).call("GET", "/v2/p/x", repeat=RetryPolicy.SAFE)
    [environ] = app.environs
    assert environ.get("HTTP_X_AUTH_TOKEN", TOKEN) == TOKEN, "without the space around it"


# ── user name and password ─────────────────────────────────────────────────────────────────────────


class LoggedIn:
    def __init__(self, clock: StoppedClock, *answers: Any, iam: Iam | None = None) -> None:
        self.iam, self.app = iam or Iam(), Canned(*answers or [(200, "{}")])
        to_iam = SessionOptions(make_adapter=lambda: WsgiAdapter(self.iam), clock=clock)
        session = ServiceSession("http://localhost/v3", Anonymous(), to_iam)
        login = Login("me", PASSWORD, "ACCOUNT", project_name="eu-de")
        self.credentials = PasswordToken(login, session, clock, "OS_USERNAME")
        self.session = a_session(self.app, credentials=self.credentials, clock=clock)

    @property
    def tokens(self) -> list[str]:
        return [environ["HTTP_X_AUTH_TOKEN"] for environ in self.app.environs]


def test_token_is_fetched_once_and_renewed_before_it_ends(clock: StoppedClock) -> None:
    ends_at = datetime.fromtimestamp(clock.now() + 3600, UTC).isoformat().replace("+00:00", "Z")
    logged_in = LoggedIn(clock, iam=Iam(ends_at))
    for later_s in (0, 3000, 400):
        clock.now_s += later_s
        logged_in.session.call("GET", "/x")
    assert logged_in.tokens == ["token-1", "token-1", "token-2"]
    user = {"name": "me", "password": PASSWORD, "domain": {"name": "ACCOUNT"}}
    identity = {"methods": ["password"], "password": {"user": user}}
    asked = {"auth": {"identity": identity, "scope": {"project": {"name": "eu-de"}}}}
    assert logged_in.iam.logins == [asked] * 2


@pytest.mark.parametrize(
    ("answers", "tokens", "is_refused"),
    [
        ([(401, '{"error_code": "APIG.0307"}'), (201, "{}")], ["token-1", "token-2"], False),
        ([(401, "{}"), (201, "{}")], ["token-1", "token-2"], False),
        ([(401, '{"error_code": "APIG.0301"}')], ["token-1", "token-2"], True),
        ([(403, '{"error_code": "ModelArts.0112"}')], ["token-1"], True),
    ],
)
def test_token_is_renewed_once_on_a_401_even_for_a_create(
    clock: StoppedClock, answers: list[Any], tokens: list[str], is_refused: bool
) -> None:
    logged_in = LoggedIn(clock, *answers)
    with pytest.raises(Unauthorized) if is_refused else nullcontext():
        logged_in.session.call("POST", "/x", body={})
    assert logged_in.tokens == tokens
    assert set(logged_in.credentials.secrets()) == {PASSWORD, *tokens}


def test_token_renewed_by_another_thread_is_used(clock: StoppedClock) -> None:
    credentials = LoggedIn(clock).credentials
    request = Request("GET", "h", "/x")
    first = credentials.headers(request, clock.now())
    assert credentials.renew(first)
    second = credentials.headers(request, clock.now())
    assert credentials.renew(first), "somebody else was refused with the old one as well"
    assert credentials.headers(request, clock.now()) == second


@pytest.mark.parametrize(
    ("status", "failure"),
    [(401, LoginRefused), (403, LoginRefused), (400, LoginRefused), (503, IamUnreachable)],
)
def test_failed_login_sends_no_request(clock: StoppedClock, status: int, failure: type[Exception]) -> None:
    logged_in = LoggedIn(clock, iam=Iam(status=status))
    with pytest.raises(failure) as problem:
        logged_in.session.call("POST", "/x", body={})
    assert logged_in.app.environs == []
    assert PASSWORD not in str(problem.value)


def test_project_comes_from_the_token() -> None:
    redactor = Redactor()
    target = Target.model_validate({"kind": "modelarts", "endpoint": "https://private.example"})
    with running(Iam()) as url:
        environ = {**LOGIN, "OS_AUTH_URL": f"{url}/v3"}
        with connect(target, environ, SessionOptions(redactor=redactor)) as backend:
            assert backend.project_id == "p1"
    assert redactor(f"{PASSWORD} token-1") == "(sensitive) (sensitive)"


def test_password_is_not_sent_unencrypted() -> None:
    target = Target.model_validate({"kind": "modelarts", "region": "cn-north-4"})
    with pytest.raises(NoCredentials, match="unencrypted"):
        connect(target, {**LOGIN, "OS_AUTH_URL": "http://iam.example/v3"})


@pytest.mark.parametrize("name", sorted(CREDENTIAL_NAMES - {"RECONCILER_RECORDS", "RECONCILER_VAR"}))
def test_every_credential_in_the_environment_is_a_known_secret(name: str) -> None:
    assert set(known_secrets({name: " some-value ", "OS_USERNAME": "anna"})) == {" some-value ", "some-value"}


@pytest.mark.parametrize("value", ["keep", " wrong ", "1234567"])
def test_short_word_is_a_secret_as_a_password_but_not_as_a_token(value: str) -> None:
    for name in ("MODELARTS_AUTH_TOKEN", "HUAWEICLOUD_SDK_SK"):
        assert not [*known_secrets({name: value}), *service_credentials({name: value})]
    assert value in known_secrets({"OS_PASSWORD": value})
    assert value.strip() in service_credentials({"OS_PASSWORD": value})
    assert StaticToken(value, "MODELARTS_AUTH_TOKEN").secrets() == []


@pytest.mark.parametrize(
    ("name", "url", "known"),
    [
        ("HTTPS_PROXY", "http://anna:p%40ss@proxy:3128", {"p%40ss", "p@ss", "anna:p%40ss", "anna:p@ss"}),
        ("all_proxy", "a-token@proxy:3128", {"a-token"}),
        ("https_proxy", "http://proxy:3128", set()),
        ("RECONCILER_RECORDS", "postgresql://anna:p%40ss@host/db", {"p%40ss", "p@ss"}),
        ("RECONCILER_RECORDS", "postgresql://anna@host/db?sslpassword=a%20b&x=1", {"a%20b", "a b"}),
        ("OS_AUTH_URL", "https://iam.example/v3", set()),
        ("HOME_PAGE", "https://anna:pass@host", set()),
    ],
)
def test_passwords_in_urls_are_known_secrets(name: str, url: str, known: set[str]) -> None:
    assert set(known_secrets({name: url})) == known


def test_secrets_of_every_credentials_file_section_are_known(tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    text = "[basic]\nak = the-ak\nsk=the-sk/+=\nregion = cn-north-4\n[other\nsecurity_token: the-token\nak\n"
    file.write_text(text + "project_id = p1\napi_password = pw-1\n", encoding="utf-8")
    known = set(known_secrets({"HUAWEICLOUD_SDK_CREDENTIALS_FILE": str(file)}))
    assert known == {"the-ak", "the-sk/+=", "the-token", "pw-1"}


@pytest.mark.parametrize("kind", ["missing", "directory", "unreadable"])
def test_unreadable_credentials_file_adds_no_known_secrets(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "credentials"
    if kind == "directory":
        file.mkdir()
    elif kind == "unreadable":
        file.write_bytes(b"\xff\xfe\x00" * 10)
    assert list(known_secrets({"HUAWEICLOUD_SDK_CREDENTIALS_FILE": str(file)})) == []
