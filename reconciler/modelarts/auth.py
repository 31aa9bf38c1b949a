"""Credentials: a token or an access key; `login` has those with a password.

Source: docs/reference/cli.md, "Credentials"; docs/reference/modelarts.md, "Authentication", "Signatures" and
"Tokens".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING

from reconciler.modelarts.clock import SystemClock
from reconciler.modelarts.http import Credentials, NoCredentials, Request, ServiceSession, sendable
from reconciler.modelarts.known_secrets import FILE_VARIABLE, credentials_file
from reconciler.secrets import ACCESS_KEYS, PASSWORD, TOKENS

if TYPE_CHECKING:
    from pathlib import Path

    from reconciler.core.ports import Clock


#: For the embedded emulator.
Anonymous = Credentials


class StaticToken(Credentials):
    """A token from the environment. Its project is unknown, and it cannot be renewed."""

    what = "token"

    def __init__(self, token: str, source: str) -> None:
        self._token = sendable(token, source)
        super().__init__(source, [self._token])

    def headers(self, request: Request, now_s: float) -> Mapping[str, str]:
        return {"X-Auth-Token": self._token}


# --- access keys

#: Signed headers. Those that proxies may change, such as User-Agent, are not signed.
_SIGNED = frozenset({"content-type"})


class AccessKey(Credentials):
    """An access key with its secret key; `security_token` for temporary ones.

    Requests are signed by the vendor's signer (SDK-HMAC-SHA256). A rejected signature is never retried:
    several wrong ones lock the key.
    """

    what = "access key"

    def __init__(
        self,
        access_key: str,
        secret_key: str,
        source: str,
        *,
        security_token: str | None = None,
        project_id: str | None = None,
    ) -> None:
        self._access_key = sendable(access_key, source)
        self._secret_key = sendable(secret_key, source)
        self._security_token = sendable(security_token or "", source)
        secrets = filter(None, (self._secret_key, self._security_token))
        super().__init__(source, [*secrets], project_id)

    @property
    def parts(self) -> tuple[str, str, str]:
        """Access key, secret key and security token, for services with another signature."""
        return self._access_key, self._secret_key, self._security_token

    def headers(self, request: Request, now_s: float) -> Mapping[str, str]:
        """Return date, project, signature, and the signed Host."""
        # Imported here, because the import is expensive.
        from huaweicloudsdkcore.sdk_request import SdkRequest
        from huaweicloudsdkcore.signer.signer import Signer

        signed = {name: value for name, value in request.headers.items() if name.lower() in _SIGNED}
        date = datetime.fromtimestamp(now_s, UTC).strftime("%Y%m%dT%H%M%SZ")
        signed |= {"Host": request.host, "X-Sdk-Date": date}
        if project_id := request.path.partition("/v2/")[2].partition("/")[0]:
            signed["X-Project-Id"] = project_id
        if self._security_token:
            signed["X-Security-Token"] = self._security_token
        to_sign = SdkRequest(
            method=request.method,
            host=request.host,
            resource_path=request.path,
            query_params=list(request.query),
            header_params=signed,
            body=request.body or b"",
        )
        Signer(SimpleNamespace(ak=self._access_key, sk=self._secret_key)).sign(to_sign)
        return {str(name): str(value) for name, value in to_sign.header_params.items()}


# --- the credential chain


def find_credentials(
    environ: Mapping[str, str],
    open_iam: Callable[[str], ServiceSession],
    clock: Clock | None = None,
    *,
    profile: str | None = None,
    project_id: str | None = None,
    region: str | None = None,
) -> Credentials:
    """Return the first credentials found. `open_iam` makes a session to OS_AUTH_URL.

    Raises:
        NoCredentials: there are none, or the first ones cannot be used.
    """

    def get(*names: str) -> str | None:
        return next((value for name in names if (value := environ.get(name, "").strip())), None)

    incomplete = []
    for ak_name, sk_name, token_name in ACCESS_KEYS:
        access_key, secret_key = get(ak_name), get(sk_name)
        if access_key and secret_key:
            security_token = get(token_name) if token_name else None
            return AccessKey(access_key, secret_key, ak_name, security_token=security_token)
        if access_key or secret_key:
            there, missing = (ak_name, sk_name) if access_key else (sk_name, ak_name)
            incomplete.append(f"{there} is set, {missing} is not")
    for name in TOKENS:
        if token := get(name):
            return StaticToken(token, name)
    wanted = {
        "OS_AUTH_URL": get("OS_AUTH_URL"),
        "OS_USERNAME": get("OS_USERNAME"),
        PASSWORD: environ.get(PASSWORD) or None,
        "OS_USER_DOMAIN_NAME": get("OS_USER_DOMAIN_NAME", "OS_DOMAIN_NAME"),
    }
    url, username, password, domain = wanted.values()
    if url and username and password and domain:
        project_id = project_id or get("OS_PROJECT_ID")
        project_name = get("OS_PROJECT_NAME", "OS_TENANT_NAME") or region
        if project_id or project_name:
            from reconciler.modelarts.login import Login, PasswordToken

            login = Login(username, password, domain, project_id, project_name)
            return PasswordToken(login, open_iam(url), clock or SystemClock(), "OS_USERNAME")
        incomplete.append("for the login with a password, OS_PROJECT_NAME is not set")
    elif any(wanted.values()):
        unset = ", ".join(name for name, value in wanted.items() if not value)
        incomplete.append(f"for the login with a password, {unset} is not set")
    # A missing file or section is an error only if it was named.
    is_named = bool(get(FILE_VARIABLE) or profile)
    path = credentials_file(environ)
    if path and (found := _of_file(path, profile or "basic", is_named=is_named)):
        return found
    raise NoCredentials(
        "; ".join(incomplete) or "none in the environment or a credentials file",
        fix="set HUAWEICLOUD_SDK_AK and HUAWEICLOUD_SDK_SK, or MODELARTS_AUTH_TOKEN",
    )


def _of_file(path: Path, section: str, *, is_named: bool) -> Credentials | None:
    import configparser

    parser = configparser.RawConfigParser()
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if not is_named:
            return None
        raise NoCredentials(
            f"file not found: {path}", fix=f"correct {FILE_VARIABLE} or the profile"
        ) from None
    except (OSError, UnicodeDecodeError, configparser.Error):
        # The parser's message quotes the line, which may hold the secret.
        raise NoCredentials(f"{path} cannot be read as an INI file") from None
    if not parser.has_section(section):
        if not is_named:
            return None
        raise NoCredentials(f"{path} has no section [{section}]", fix=f"add [{section}] with ak and sk")
    values = {key: value.strip() for key, value in parser.items(section) if value and value.strip()}
    if not (values.get("ak") and values.get("sk")):
        raise NoCredentials(f"section [{section}] of {path} has no ak and sk", fix="add both")
    return AccessKey(
        values["ak"],
        values["sk"],
        f"{path} [{section}]",
        security_token=values.get("security_token"),
        project_id=values.get("project_id"),
    )
