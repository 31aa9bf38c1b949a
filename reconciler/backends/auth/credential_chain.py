"""Where credentials are looked for: one row of `WAYS` each, the first that finds some wins.

Source: docs/cli.md, "Credentials".
"""

from __future__ import annotations

import configparser
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from reconciler.backends.auth.credentials import Credentials, NoCredentials, StaticToken
from reconciler.backends.auth.iam import Login, PasswordToken
from reconciler.backends.auth.known_secrets import FILE_VARIABLE, credentials_file
from reconciler.backends.auth.signing import AccessKey
from reconciler.backends.clock import SystemClock
from reconciler.backends.http.session import ServiceSession
from reconciler.core.ports import Clock
from reconciler.core.text.credential_names import ACCESS_KEYS, PASSWORD, TOKENS, AccessKeyNames


@dataclass(frozen=True)
class CredentialContext:
    """What the ways look at. `open_iam` makes a session to OS_AUTH_URL; `halves` is what was half there."""

    environ: Mapping[str, str]
    open_iam: Callable[[str], ServiceSession]
    clock: Clock = field(default_factory=SystemClock)
    profile: str | None = None
    project_id: str | None = None
    region: str | None = None
    halves: list[str] = field(default_factory=list)

    def get(self, *names: str) -> str | None:
        """Return the first of these variables that is set to more than space."""
        return next((value for name in names if (value := self.environ.get(name, "").strip())), None)


def _access_key(names: AccessKeyNames) -> Callable[[CredentialContext], Credentials | None]:
    ak_name, sk_name, token_name = names

    def way(around: CredentialContext) -> Credentials | None:
        access_key, secret_key = around.get(ak_name), around.get(sk_name)
        if access_key and secret_key:
            token = around.get(token_name) if token_name else None
            return AccessKey(access_key, secret_key, ak_name, security_token=token)
        if access_key or secret_key:
            there, missing = (ak_name, sk_name) if access_key else (sk_name, ak_name)
            around.halves.append(f"{there} is set, {missing} is not")
        return None

    return way


def _token(around: CredentialContext) -> Credentials | None:
    for source in TOKENS:
        if token := around.get(source):
            return StaticToken(token, source)
    return None


def _password(around: CredentialContext) -> Credentials | None:
    wanted = {
        "OS_AUTH_URL": around.get("OS_AUTH_URL"),
        "OS_USERNAME": around.get("OS_USERNAME"),
        PASSWORD: around.environ.get(PASSWORD) or None,
        "OS_USER_DOMAIN_NAME": around.get("OS_USER_DOMAIN_NAME", "OS_DOMAIN_NAME"),
    }
    url, username, password, domain = wanted.values()
    project_id = around.project_id or around.get("OS_PROJECT_ID")
    project_name = around.get("OS_PROJECT_NAME", "OS_TENANT_NAME") or around.region
    if not (url and username and password and domain):
        missing = [name for name, value in wanted.items() if not value]
        if 0 < len(missing) < len(wanted):
            around.halves.append(f"for the login with a password, {', '.join(missing)} is not set")
        return None
    if not (project_id or project_name):
        around.halves.append("for the login with a password, OS_PROJECT_NAME is not set")
        return None
    login = Login(username, password, domain, project_id, project_name)
    return PasswordToken(login, around.open_iam(url), around.clock, "OS_USERNAME")


def _file(around: CredentialContext) -> Credentials | None:
    path = credentials_file(around.environ)
    if path is None:
        return None
    section = around.profile or "basic"
    try:
        return _access_key_of(path, section)
    except _Missing as missing:
        if around.get(FILE_VARIABLE) or around.profile:
            raise NoCredentials(missing.why, fix=missing.fix) from None
        return None


class _Missing(Exception):
    """There is no such file, or section: a mistake only where somebody named it."""

    def __init__(self, why: str, fix: str) -> None:
        super().__init__(why)
        self.why, self.fix = why, fix


def _access_key_of(path: Path, section: str) -> AccessKey:
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise _Missing(f"file not found: {path}", f"correct {FILE_VARIABLE} or the profile") from None
    except (OSError, UnicodeDecodeError, configparser.Error):
        # The parser's own message quotes the line, which may be the one with the secret.
        raise NoCredentials(f"{path} cannot be read as an INI file") from None
    if not parser.has_section(section):
        raise _Missing(f"{path} has no section [{section}]", f"add [{section}] with ak and sk")
    said = {key: value.strip() for key, value in parser.items(section) if value and value.strip()}
    if not (said.get("ak") and said.get("sk")):
        raise NoCredentials(f"section [{section}] of {path} has no ak and sk", fix="add both")
    return AccessKey(
        said["ak"],
        said["sk"],
        f"{path} [{section}]",
        security_token=said.get("security_token"),
        project_id=said.get("project_id"),
    )


WAYS: tuple[Callable[[CredentialContext], Credentials | None], ...] = (
    *map(_access_key, ACCESS_KEYS),
    _token,
    _password,
    _file,
)


def find_credentials(around: CredentialContext) -> Credentials:
    """Return the first credentials found.

    Raises:
        NoCredentials: there are none, or those that come first cannot be used.
    """
    for way in WAYS:
        if found := way(around):
            return found
    raise NoCredentials(
        "; ".join(around.halves) or "none in the environment or a credentials file",
        fix="set HUAWEICLOUD_SDK_AK and HUAWEICLOUD_SDK_SK, or MODELARTS_AUTH_TOKEN",
    )
