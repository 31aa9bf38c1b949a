"""A token that is fetched from IAM with user name and password, kept in memory, and renewed.

Source: docs/modelarts.md, "Tokens".
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from reconciler.core.ports import Clock, Secrets
from reconciler.errors import Rejected, ServiceError, Unauthorized, Unreachable
from reconciler.modelarts.credentials import sendable
from reconciler.modelarts.http import ServiceResponse, ServiceSession
from reconciler.modelarts.request import Request
from reconciler.modelarts.retry import RetryPolicy

_WHAT_IAM_LOOKS_AT = "OS_USERNAME, OS_PASSWORD, OS_USER_DOMAIN_NAME and the project"

#: A token this near its end, in seconds, is renewed before it is used.
RENEW_BEFORE_END_S = 300.0


class LoginRefused(Unauthorized):
    """IAM gave no token for the login, so the service itself was not asked."""


class IamUnreachable(Unreachable):
    """IAM gave no answer, so the service itself was not asked."""


@dataclass(frozen=True, slots=True)
class Login:
    """Who asks, for which project: its id, or else its name (in Huawei Cloud that of the region)."""

    username: str
    password: str
    domain: str
    project_id: str | None = None
    project_name: str | None = None

    def __repr__(self) -> str:
        return f"Login({self.username!r}, {self.domain!r})"

    def body(self) -> dict[str, Any]:
        """Return the request for a token whose scope is the project."""
        user = {"name": self.username, "password": self.password, "domain": {"name": self.domain}}
        project = {"id": self.project_id} if self.project_id else {"name": self.project_name}
        return {
            "auth": {
                "identity": {"methods": ["password"], "password": {"user": user}},
                "scope": {"project": project},
            }
        }


@dataclass(frozen=True, slots=True)
class _Token:
    value: str
    ends_at_s: float | None
    project_id: str | None

    def __repr__(self) -> str:
        return "_Token()"


class PasswordToken:
    """Tokens for a login; `iam` is a session whose endpoint is OS_AUTH_URL."""

    what = "user name and password"

    def __init__(self, login: Login, iam: ServiceSession, clock: Clock, source: str) -> None:
        self._login = login
        self._iam = iam
        iam.hide([login.password])
        self._clock = clock
        self._lock = threading.Lock()
        self._token: _Token | None = None
        self._spent: list[str] = []
        self.source = source

    def headers(self, request: Request, now_s: float) -> Mapping[str, str]:
        """Return the token; it is fetched if there is none, or if it is about to end.

        Raises:
            LoginRefused: IAM refuses the login.
            IamUnreachable: IAM gave no token, so the request itself was not sent.
        """
        return {"X-Auth-Token": self._current(now_s).value}

    def renew(self, refused: Mapping[str, str]) -> bool:
        """Forget the token that was refused; the next request fetches another one."""
        with self._lock:
            if self._token and self._token.value == refused.get("X-Auth-Token"):
                self._forget()
        return True

    def project_id(self) -> str | None:
        """The project the token is for; it is fetched to find out."""
        return self._login.project_id or self._current(self._clock.now()).project_id

    def secrets(self) -> Secrets:
        """The password, and every token so far."""
        token = [self._token.value] if self._token else []
        return [self._login.password, *self._spent, *token]

    def _forget(self) -> None:
        if self._token:
            self._spent.append(self._token.value)
        self._token = None

    def _current(self, now_s: float) -> _Token:
        with self._lock:
            ends_at_s = self._token.ends_at_s if self._token else None
            if ends_at_s is not None and ends_at_s - now_s < RENEW_BEFORE_END_S:
                self._forget()
            if self._token is None:
                self._token = _token(self._fetch())
            return self._token

    def _fetch(self) -> ServiceResponse:
        try:
            return self._iam.call(
                "POST",
                "/auth/tokens",
                query={"nocatalog": "true"},
                body=self._login.body(),
                repeat=RetryPolicy.SAFE,
            )
        except Unauthorized as refusal:
            raise _refused(refusal, f"check {_WHAT_IAM_LOOKS_AT}") from None
        except Rejected as refusal:
            raise _refused(refusal, f"check OS_AUTH_URL, {_WHAT_IAM_LOOKS_AT}") from None
        except ServiceError as failure:
            raise IamUnreachable(
                f"no token from IAM: {failure.message}", status=failure.status, fix="check OS_AUTH_URL"
            ) from None
        finally:
            # The next one is due in a day.
            self._iam.close()


def _refused(refusal: ServiceError, fix: str) -> LoginRefused:
    return LoginRefused(
        f"IAM rejected the login: {refusal.message}",
        code=refusal.code,
        status=refusal.status,
        request_id=refusal.request_id,
        fix=fix,
    )


def _token(answer: ServiceResponse) -> _Token:
    value = answer.headers.get("X-Subject-Token", "")
    if not value:
        raise LoginRefused(
            "the response from IAM contains no token", status=answer.status, fix="check OS_AUTH_URL"
        )
    told = answer.json()
    token = told.get("token") if isinstance(told, dict) else None
    about = token if isinstance(token, dict) else {}
    project = about.get("project")
    project_id = project.get("id") if isinstance(project, dict) else None
    return _Token(
        sendable(value, "the response from IAM"),
        _moment_s(about.get("expires_at")),
        project_id if isinstance(project_id, str) else None,
    )


def _moment_s(text: Any) -> float | None:
    """Read a time such as 2026-08-21T12:00:00.000000Z; None if it is not one: then a 401 has to tell."""
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return moment.timestamp() if moment.tzinfo else None
