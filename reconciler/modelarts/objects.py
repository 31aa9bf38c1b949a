"""The object store of a cloud, for code: its endpoint, its addresses, and keys for it.

Every request goes to the bucket's own host, is signed as AWS V4 with `UNSIGNED-PAYLOAD`, and is one PUT for a
file: the vendor takes no trailing checksums. Source: docs/code.md, "The object store".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from reconciler.core.addresses import endpoint_problem, is_loopback
from reconciler.core.stack import Target
from reconciler.errors import Diagnostic, ManifestInvalid, Unauthorized
from reconciler.modelarts.auth import AccessKey
from reconciler.modelarts.clock import RetryPolicy
from reconciler.modelarts.http import Credentials, Request, ServiceSession

if TYPE_CHECKING:
    from pathlib import Path

    from obstore.store import LocalStore, S3Store

#: Regions whose addresses do not follow the pattern. Source: docs/code.md, "The object store".
_ENDPOINTS = {
    "eu-de": "https://obs.eu-de.otc.t-systems.com",
    "eu-nl": "https://obs.eu-nl.otc.t-systems.com",
    "eu-west-101": "https://obs.eu-west-101.myhuaweicloud.eu",
}
_IAM_ENDPOINTS = {
    "eu-de": "https://iam.eu-de.otc.t-systems.com",
    "eu-nl": "https://iam.eu-nl.otc.t-systems.com",
    "eu-west-101": "https://iam.eu-west-101.myhuaweicloud.eu",
}
#: How long temporary keys are asked for, in seconds, and how near their end they are renewed.
LIFETIME_S, RENEW_BEFORE_END_S = 3600, 300


class Keys(NamedTuple):
    """Keys for the object store; without an end they stay."""

    access_key: str
    secret_key: str
    security_token: str = ""
    expires_at: datetime | None = None


class KeysRefused(Unauthorized):
    """IAM gave no temporary keys for the object store."""

    what = "no keys for the code store"


def store_endpoint(target: Target) -> str:
    """Return where the object store of a target answers.

    Raises:
        ManifestInvalid: the target says neither, or an address that must not be used.
    """
    region = (target.region or "").strip()
    endpoint = (target.obs_endpoint or "").strip().rstrip("/") or _ENDPOINTS.get(region, "")
    if not endpoint and not region:
        fix = "add region, or obs_endpoint: https://obs.REGION.myhuaweicloud.com"
        raise ManifestInvalid(
            Diagnostic("no endpoint", "the target has neither a region nor an obs_endpoint", fix)
        )
    endpoint = endpoint or f"https://obs.{region}.myhuaweicloud.com"
    # Plain http is for this machine only, whatever the target says of its own endpoint.
    if problem := endpoint_problem(endpoint, insecure=False):
        raise ManifestInvalid(Diagnostic("invalid endpoint", *problem))
    return endpoint


def iam_endpoint(target: Target, environ: Mapping[str, str]) -> str:
    """Return where IAM answers: the target's, else the host of OS_AUTH_URL, else that of the region."""
    named = target.iam_endpoint or environ.get("OS_AUTH_URL", "")
    if named:
        parts = urlsplit(named)
        return f"{parts.scheme}://{parts.netloc}"
    region = target.region or ""
    return _IAM_ENDPOINTS.get(region) or f"https://iam.{region}.myhuaweicloud.com"


def open_directory(directory: Path) -> LocalStore:
    """Open a directory of this machine as the place of objects; it is made if it is not there."""
    from obstore.store import LocalStore  # few stacks upload code

    return LocalStore(directory, mkdir=True, automatic_cleanup=True)


def open_objects(
    target: Target,
    address: str,
    keys: Callable[[], Keys],
    network: Mapping[str, str],
    ca_bundle: str | None = None,
) -> S3Store:
    """Open the object store at an address, `obs://BUCKET/PREFIX/`. Nothing is sent yet."""
    from obstore.store import S3Store  # few stacks upload code

    bucket, _, prefix = address.removeprefix("obs://").partition("/")
    endpoint = store_endpoint(target)
    parts = urlsplit(endpoint)
    is_here = is_loopback(parts.hostname or "")

    def credentials() -> dict[str, Any]:
        found = keys()
        token = {"token": found.security_token} if found.security_token else {}
        return {
            "access_key_id": found.access_key,
            "secret_access_key": found.secret_key,
            "expires_at": found.expires_at,
            **token,
        }

    client: dict[str, Any] = {"allow_http": is_here, "timeout": timedelta(minutes=5)}
    if network.get(parts.scheme):
        client["proxy_url"] = network[parts.scheme]
    return S3Store(
        bucket,
        prefix=prefix.strip("/") or None,
        # The vendor takes the bucket in the host only; a stub on this machine has no such hosts.
        endpoint=endpoint if is_here else f"{parts.scheme}://{bucket}.{parts.netloc}",
        virtual_hosted_style_request=not is_here,
        region=target.region or "region",
        unsigned_payload=True,
        # The vendor refuses the checksum of a bulk delete.
        disable_bulk_delete=True,
        credential_provider=credentials,  # type: ignore[arg-type]
        client_options=client,  # type: ignore[arg-type]
        retry_config={"max_retries": 6, "retry_timeout": timedelta(seconds=90)},
    )


class KeySource:
    """Keys for the object store: those for the service, or temporary ones of IAM."""

    def __init__(
        self,
        credentials: Credentials,
        open_session: Callable[[], ServiceSession],
        now_s: Callable[[], float],
        learn: Callable[[list[str]], object],
        address: str,
    ) -> None:
        self._credentials, self._open_session, self._now_s, self._learn = (
            credentials,
            open_session,
            now_s,
            learn,
        )
        self._address = address
        self._keys: Keys | None = None

    def __call__(self) -> Keys:
        """Return keys that are good for some minutes.

        Raises:
            KeysRefused: IAM gave none.
        """
        if isinstance(self._credentials, AccessKey):
            return Keys(*self._credentials.parts)
        now_s = self._now_s()
        end = self._keys.expires_at if self._keys else None
        if self._keys is None or (end and end.timestamp() - now_s < RENEW_BEFORE_END_S):
            self._keys = self._fetch(now_s)
        return self._keys

    def _fetch(self, now_s: float) -> Keys:
        token = self._credentials.headers(Request("GET", "", ""), now_s).get("X-Auth-Token", "")
        identity = {
            "methods": ["token"],
            "token": {"id": token, "duration_seconds": str(LIFETIME_S)},
            "policy": _policy(self._address),
        }
        with self._open_session() as iam:
            answer = iam.call(
                "POST",
                "/v3.0/OS-CREDENTIAL/securitytokens",
                body={"auth": {"identity": identity}},
                repeat=RetryPolicy.SAFE,
            )
        found = answer.json()
        given = found.get("credential") if isinstance(found, dict) else None
        names = ("access", "secret", "securitytoken")
        if not isinstance(given, dict) or not all(isinstance(given.get(name), str) for name in names):
            raise KeysRefused(
                "the answer of IAM holds no credential", status=answer.status, fix="check iam_endpoint"
            )
        self._learn([given["secret"], given["securitytoken"]])
        try:
            end = datetime.fromisoformat(str(given.get("expires_at")))
        except ValueError:
            end = datetime.fromtimestamp(now_s + LIFETIME_S, UTC)
        access_key, secret_key, token = (str(given[name]) for name in names)
        return Keys(access_key, secret_key, token, end if end.tzinfo else end.replace(tzinfo=UTC))


def _policy(address: str) -> dict[str, Any]:
    """Narrow keys to the prefix of a store."""
    bucket, _, prefix = address.removeprefix("obs://").partition("/")
    below = f"OBS:*:*:object:{bucket}/{prefix.strip('/')}/*".replace("//", "/")
    objects = ["obs:object:PutObject", "obs:object:GetObject", "obs:object:DeleteObject"]
    return {
        "Version": "1.1",
        "Statement": [
            {"Effect": "Allow", "Action": objects, "Resource": [below]},
            {
                "Effect": "Allow",
                "Action": ["obs:bucket:ListBucket"],
                "Resource": [f"OBS:*:*:bucket:{bucket}"],
            },
        ],
    }
