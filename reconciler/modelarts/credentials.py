"""Who we are to the service, and how a request proves it.

`signing` and `iam` hold the other two kinds, `ways` says where they are looked for.

Source: docs/cli.md, "Credentials"; docs/modelarts.md, "Authentication".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from reconciler.core.ports import Secrets
from reconciler.errors import Unauthorized
from reconciler.modelarts.request import Request


class NoCredentials(Unauthorized):
    """There are no credentials, or what is there cannot be used."""

    what = "no credentials"


class Credentials(Protocol):
    """One way to prove who is asking."""

    @property
    def what(self) -> str:
        """What was found, without its value: `token`, `access key`."""
        ...

    @property
    def source(self) -> str:
        """Where it was found, e.g. `MODELARTS_AUTH_TOKEN`."""
        ...

    def headers(self, request: Request, now_s: float) -> Mapping[str, str]:
        """Return the headers that prove it for this request."""
        ...

    def renew(self, refused: Mapping[str, str]) -> bool:
        """Make new what the service no longer takes; False where that is not possible.

        `refused` are the headers it did not take: another thread may have renewed them meanwhile.
        """
        ...

    def project_id(self) -> str | None:
        """The project that the credentials themselves name, if they do."""
        ...

    def secrets(self) -> Secrets:
        """The values that must never be seen."""
        ...


class Anonymous:
    """No proof at all: for the emulator inside this process."""

    what = "no credentials"
    source = "not needed"

    def headers(self, request: Request, now_s: float) -> Mapping[str, str]:
        """Nothing."""
        return {}

    def renew(self, refused: Mapping[str, str]) -> bool:
        """There is nothing to renew."""
        return False

    def project_id(self) -> str | None:
        """None."""
        return None

    def secrets(self) -> Secrets:
        """There are none."""
        return ()


class StaticToken:
    """A token that somebody else fetched."""

    what = "token"

    def __init__(self, token: str, source: str) -> None:
        self._token = sendable(token, source)
        self.source = source

    def headers(self, request: Request, now_s: float) -> Mapping[str, str]:
        """The token."""
        return {"X-Auth-Token": self._token}

    def project_id(self) -> str | None:
        """A token does not say it."""
        return None

    def renew(self, refused: Mapping[str, str]) -> bool:
        """We did not fetch it, so we cannot fetch another one."""
        return False

    def secrets(self) -> Secrets:
        """The token."""
        return (self._token,)


def sendable(secret: str, source: str) -> str:
    """Return a value that can stand in a header; space around it is a common slip, and taken off.

    Raises:
        NoCredentials: it cannot be sent. (The HTTP library would quote it in its own error.)
    """
    trimmed = secret.strip()
    if not (trimmed.isascii() and trimmed.isprintable()):
        raise NoCredentials(
            f"{source} contains characters that are not allowed in an HTTP header",
            fix=f"set {source} to a valid value",
        )
    return trimmed
