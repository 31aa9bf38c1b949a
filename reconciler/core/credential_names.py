"""The environment variables that hold our own credentials: read by the backends, refused in a manifest.

A manifest that put one of them into a job would hand it to whatever code the job runs. Names of what is
only an address or an id (`OS_AUTH_URL`, `OS_USERNAME`, `OS_PROJECT_ID`…) are no credentials.

Source: docs/cli.md, "Credentials".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit


class AccessKeyNames(NamedTuple):
    """Where an access key stands: its two halves, and the token that makes a temporary one valid."""

    access_key: str
    secret_key: str
    security_token: str | None


#: In the order in which they are looked for.
ACCESS_KEYS = (
    AccessKeyNames("HUAWEICLOUD_SDK_AK", "HUAWEICLOUD_SDK_SK", "HUAWEICLOUD_SDK_SECURITY_TOKEN"),
    AccessKeyNames("HW_ACCESS_KEY", "HW_SECRET_KEY", "HW_SECURITY_TOKEN"),
    AccessKeyNames("OS_ACCESS_KEY", "OS_SECRET_KEY", None),
)
#: In the order in which they are looked for.
TOKENS = ("MODELARTS_AUTH_TOKEN", "OS_AUTH_TOKEN", "OS_TOKEN")
PASSWORD = "OS_PASSWORD"  # noqa: S105  (its name, not its value)
#: Options of ours that may hold a secret: an address with a password, the values of variables, and what
#: the emulator asks its clients for.
OPTIONS = (
    "RECONCILER_RECORDS",
    "RECONCILER_VAR",
    "RECONCILER_TOKEN",
    "RECONCILER_ACCESS_KEY",
    "RECONCILER_SECRET_KEY",
)

_OF_THE_SERVICE = (*(name for names in ACCESS_KEYS for name in names if name), *TOKENS, PASSWORD)
#: Every environment variable that holds a credential of ours, or half of one.
CREDENTIAL_NAMES = frozenset((*_OF_THE_SERVICE, *OPTIONS))
_PROXIES = frozenset(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"))


def is_credential_name(name: str) -> bool:
    """Whether an environment variable of that name holds a credential of ours; case does not matter."""
    return name.upper() in CREDENTIAL_NAMES


def holds_credential(name: str, value: str) -> bool:
    """Whether a variable with that value holds a credential of ours: a proxy may ask for a password."""
    if is_credential_name(name):
        return True
    if name.upper() not in _PROXIES:
        return False
    address = value if "://" in value else f"//{value}"
    try:
        return urlsplit(address).password is not None
    except ValueError:
        return "@" in value


def service_credentials(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the credentials of the service that the environment holds, in use or not."""
    for name in _OF_THE_SERVICE:
        if value := environ.get(name, "").strip():
            yield value
