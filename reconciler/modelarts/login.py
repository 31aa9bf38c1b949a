"""A login to IAM: tokens for a user name and a password.

Source: docs/reference/modelarts.md, "Authentication" and "Tokens".
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from reconciler.errors import Rejected, ServiceError, Unauthorized, Unreachable
from reconciler.modelarts.clock import RetryPolicy
from reconciler.modelarts.http import Credentials, Request, ServiceResponse, ServiceSession, sendable

if TYPE_CHECKING:
    from reconciler.core.ports import Clock, Secrets


class LoginRefused(Unauthorized):
    """IAM rejected the login, so the request to the service was not sent."""


class IamUnreachable(Unreachable):
    """IAM did not respond, so the request to the service was not sent."""


#: A token that expires sooner, in seconds, is renewed before use.
RENEW_BEFORE_END_S = 300.0


class Login(NamedTuple):
    """User, password and project: its id, or else its name (on Huawei Cloud that of the region)."""

    username: str
    password: str
    domain: str
    project_id: str | None = None
    project_name: str | None = None

    def __repr__(self) -> str:
        return f"Login({self.username!r}, {self.domain!r})"

    def body(self) -> dict[str, Any]:
        user = {"name": self.username, "password": self.password, "domain": {"name": self.domain}}
        project = {"id": self.project_id} if self.project_id else {"name": self.project_name}
        identity = {"methods": ["password"], "password": {"user": user}}
        return {"auth": {"identity": identity, "scope": {"project": project}}}


class PasswordToken(Credentials):
    """Tokens for a login, fetched from IAM, kept in memory and renewed. `iam` is a session to OS_AUTH_URL."""

    what = "user name and password"

    def __init__(self, login: Login, iam: ServiceSession, clock: Clock, source: str) -> None:
        super().__init__(source)
        self._login, self._iam, self._clock = login, iam, clock
        iam.redactor.add_secrets([login.password])
        self._lock = threading.Lock()
        self._tokens: list[str] = []
        self._is_current = False
        self._ends_at_s = math.inf

    def headers(self, request: Request, now_s: float) -> Mapping[str, str]:
        """Return the token, fetched if there is none or if it is about to expire.

        Raises:
            LoginRefused: IAM rejects the login.
            IamUnreachable: IAM did not respond.
        """
        with self._lock:
            if not self._is_current or self._ends_at_s - now_s < RENEW_BEFORE_END_S:
                self._is_current = False
                self._take(self._fetch())
            return {"X-Auth-Token": self._tokens[-1]}

    def renew(self, refused: Mapping[str, str]) -> bool:
        """Discard the rejected token; the next request fetches another one."""
        with self._lock:
            if self._tokens and self._tokens[-1] == refused.get("X-Auth-Token"):
                self._is_current = False
        return True

    def project_id(self) -> str | None:
        """The project of the token, which is fetched if necessary."""
        if not self._login.project_id:
            self.headers(Request("GET", "", ""), self._clock.now())
        return self._login.project_id or self._project_id

    def secrets(self) -> Secrets:
        return [self._login.password, *self._tokens]

    def _fetch(self) -> ServiceResponse:
        try:
            return self._iam.call(
                "POST",
                "/auth/tokens",
                query={"nocatalog": "true"},
                body=self._login.body(),
                repeat=RetryPolicy.SAFE,
            )
        except (Unauthorized, Rejected) as refusal:
            url = "" if isinstance(refusal, Unauthorized) else "OS_AUTH_URL, "
            raise LoginRefused(
                f"IAM rejected the login: {refusal.message}",
                code=refusal.code,
                status=refusal.status,
                request_id=refusal.request_id,
                fix=f"check {url}OS_USERNAME, OS_PASSWORD, OS_USER_DOMAIN_NAME and the project",
            ) from None
        except ServiceError as failure:
            raise IamUnreachable(
                f"no token from IAM: {failure.message}", status=failure.status, fix="check OS_AUTH_URL"
            ) from None
        finally:
            # Not needed for another day.
            self._iam.close()

    def _take(self, answer: ServiceResponse) -> None:
        value = answer.headers.get("X-Subject-Token", "")
        if not value:
            raise LoginRefused(
                "the response from IAM contains no token", status=answer.status, fix="check OS_AUTH_URL"
            )

        def member(holder: Any, name: str) -> Any:
            return holder.get(name) if isinstance(holder, dict) else None

        about = member(answer.json(), "token")
        project_id = member(member(about, "project"), "id")
        self._tokens.append(sendable(value, "the response from IAM"))
        self._project_id = project_id if isinstance(project_id, str) else None
        try:
            # Without an expiry it is renewed after a 401.
            end = datetime.fromisoformat(member(about, "expires_at"))
            self._ends_at_s = end.timestamp() if end.tzinfo else math.inf
        except (TypeError, ValueError):
            self._ends_at_s = math.inf
        self._is_current = True
