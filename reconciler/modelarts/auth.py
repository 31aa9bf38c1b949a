"""Where credentials are looked for: the first provider of `CREDENTIAL_CHAIN` that finds some wins.

Source: docs/cli.md, "Credentials".
"""

from __future__ import annotations

import configparser
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from reconciler.core.credential_names import ACCESS_KEYS, PASSWORD, TOKENS, AccessKeyNames
from reconciler.core.ports import Clock
from reconciler.modelarts.clock import SystemClock
from reconciler.modelarts.credentials import Credentials, NoCredentials, StaticToken
from reconciler.modelarts.http import ServiceSession
from reconciler.modelarts.iam import Login, PasswordToken
from reconciler.modelarts.known_secrets import FILE_VARIABLE, credentials_file
from reconciler.modelarts.signing import AccessKey


@dataclass(frozen=True)
class CredentialContext:
    """What providers look at. `open_iam` makes a session to OS_AUTH_URL; `halves` is what was half there."""

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

    def provider(context: CredentialContext) -> Credentials | None:
        access_key, secret_key = context.get(ak_name), context.get(sk_name)
        if access_key and secret_key:
            token = context.get(token_name) if token_name else None
            return AccessKey(access_key, secret_key, ak_name, security_token=token)
        if access_key or secret_key:
            there, missing = (ak_name, sk_name) if access_key else (sk_name, ak_name)
            context.halves.append(f"{there} is set, {missing} is not")
        return None

    return provider


def _token(context: CredentialContext) -> Credentials | None:
    for source in TOKENS:
        if token := context.get(source):
            return StaticToken(token, source)
    return None


def _password(context: CredentialContext) -> Credentials | None:
    wanted = {
        "OS_AUTH_URL": context.get("OS_AUTH_URL"),
        "OS_USERNAME": context.get("OS_USERNAME"),
        PASSWORD: context.environ.get(PASSWORD) or None,
        "OS_USER_DOMAIN_NAME": context.get("OS_USER_DOMAIN_NAME", "OS_DOMAIN_NAME"),
    }
    url, username, password, domain = wanted.values()
    project_id = context.project_id or context.get("OS_PROJECT_ID")
    project_name = context.get("OS_PROJECT_NAME", "OS_TENANT_NAME") or context.region
    if not (url and username and password and domain):
        missing = [name for name, value in wanted.items() if not value]
        if 0 < len(missing) < len(wanted):
            context.halves.append(f"for the login with a password, {', '.join(missing)} is not set")
        return None
    if not (project_id or project_name):
        context.halves.append("for the login with a password, OS_PROJECT_NAME is not set")
        return None
    login = Login(username, password, domain, project_id, project_name)
    return PasswordToken(login, context.open_iam(url), context.clock, "OS_USERNAME")


def _file(context: CredentialContext) -> Credentials | None:
    path = credentials_file(context.environ)
    if path is None:
        return None
    section = context.profile or "basic"
    try:
        return _access_key_of(path, section)
    except _Missing as missing:
        if context.get(FILE_VARIABLE) or context.profile:
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


CREDENTIAL_CHAIN: tuple[Callable[[CredentialContext], Credentials | None], ...] = (
    *map(_access_key, ACCESS_KEYS),
    _token,
    _password,
    _file,
)


def find_credentials(context: CredentialContext) -> Credentials:
    """Return the first credentials found.

    Raises:
        NoCredentials: there are none, or those that come first cannot be used.
    """
    for provider in CREDENTIAL_CHAIN:
        if found := provider(context):
            return found
    raise NoCredentials(
        "; ".join(context.halves) or "none in the environment or a credentials file",
        fix="set HUAWEICLOUD_SDK_AK and HUAWEICLOUD_SDK_SK, or MODELARTS_AUTH_TOKEN",
    )
