"""The object store of a cloud, for code: endpoint, addresses and keys.

Requests go to the bucket's own host and are signed with AWS V4 and `UNSIGNED-PAYLOAD`. Each file is a single
PUT, because the vendor supports no trailing checksums. Source: docs/reference/code.md, "The object store".
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from reconciler.core.addresses import is_loopback
from reconciler.core.stack import Target
from reconciler.errors import Rejected, ServiceError, Unauthorized, Unreachable
from reconciler.modelarts.auth import AccessKey
from reconciler.modelarts.clock import RetryPolicy
from reconciler.modelarts.http import Credentials, Network, Request, ServiceSession, sendable
from reconciler.modelarts.target import service_endpoint

if TYPE_CHECKING:
    from obstore.store import ObjectStore, S3Store

#: Lifetime of temporary keys, and how long before their expiry they are renewed, in seconds.
LIFETIME_S, RENEW_BEFORE_END_S = 3600, 300


class Keys(NamedTuple):
    """Keys for the object store. Without an expiry they are permanent."""

    access_key: str
    secret_key: str
    security_token: str = ""
    expires_at: datetime | None = None


class KeysRefused(Unauthorized):
    """IAM refused temporary keys for the object store."""

    what = "no credentials for the code store"


class KeysUnavailable(Unreachable):
    """IAM could not issue temporary keys for the object store."""

    what = "no credentials for the code store"


def iam_endpoint(target: Target, environ: Mapping[str, str]) -> str:
    """Return the endpoint of IAM: the target's, else the host of OS_AUTH_URL, else that of the region.

    Raises:
        ManifestInvalid: there is none, or it is not allowed.
    """
    named = target.iam_endpoint or environ.get("OS_AUTH_URL")
    endpoint = service_endpoint(
        target, "iam", named, "iam_endpoint", insecure=target.insecure, takes_path=True
    )
    parts = urlsplit(endpoint)
    return f"{parts.scheme}://{parts.netloc}"


def open_directory(directory: Path, *, is_written: bool = True) -> ObjectStore:
    """Open a directory as an object store. It is created if `is_written`."""
    from obstore.store import LocalStore, MemoryStore  # few stacks upload code

    if not is_written:
        try:
            directory.stat()
        except FileNotFoundError:
            return MemoryStore()  # empty, like a missing directory
    return LocalStore(directory, mkdir=True, automatic_cleanup=True)


class ObjectAccess:
    """A credential provider for obstore.

    `check` raises the error that prevents getting keys. `is_elsewhere` tells whether the store redirects
    requests for the bucket: obstore follows some redirects, and reports misleading errors.
    """

    def __init__(self, keys: Callable[[], Keys], is_elsewhere: Callable[[], bool]) -> None:
        self.check, self.is_elsewhere = keys, is_elsewhere

    def __call__(self) -> dict[str, Any]:
        keys = self.check()
        token = {"token": keys.security_token} if keys.security_token else {}
        # Temporary keys are never cached by obstore: their expiry is by another clock.
        end = datetime.now(UTC) if keys.expires_at else None
        pair = {"access_key_id": keys.access_key, "secret_access_key": keys.secret_key}
        return {**pair, **token, "expires_at": end}


#: Held while environment variables are hidden.
_environment = threading.Lock()


@contextmanager
def _without_aws_variables() -> Iterator[None]:
    """Hide AWS_* variables, which obstore would read."""
    with _environment:
        names = [name for name in os.environ if name.startswith("AWS_")]
        hidden = {name: os.environ.pop(name) for name in names}
        try:
            yield
        finally:
            os.environ.update(hidden)


def bucket_url(target: Target, bucket: str) -> str:
    """Return the URL of a bucket: a host of its own, or a path on loopback.

    Raises:
        ManifestInvalid: the target has neither `obs_endpoint` nor region, or the endpoint is not allowed.
    """
    endpoint = service_endpoint(target, "obs", target.obs_endpoint, "obs_endpoint")
    scheme, _, host = endpoint.partition("://")
    is_here = is_loopback(urlsplit(f"{scheme}://{host}").hostname or "")
    return f"{scheme}://{host}/{bucket}" if is_here else f"{scheme}://{bucket}.{host}"


def open_objects(
    target: Target,
    address: str,
    keys: Callable[[], Keys],
    network: Network = Network(),  # noqa: B008 - it is frozen
    is_elsewhere: Callable[[], bool] = lambda: False,
) -> S3Store:
    """Open the object store at an address, `obs://BUCKET/PREFIX/`. Nothing is sent yet."""
    from obstore.store import S3Store  # few stacks upload code

    bucket, _, prefix = address.removeprefix("obs://").partition("/")
    url = bucket_url(target, bucket)
    is_in_path = url.endswith(f"/{bucket}")
    # Otherwise it would read proxies from the environment of the process.
    none = {"proxy_url": "http://127.0.0.1:9", "proxy_excludes": "*,0.0.0.0/0,::/0"}
    proxy = next(iter(network.proxies.values()), "")
    client: dict[str, Any] = {
        "allow_http": is_in_path,
        "connect_timeout": timedelta(seconds=network.connect_timeout_s),
        # Enough for a file of some gigabytes.
        "timeout": timedelta(minutes=15),
        **({"proxy_url": proxy} if proxy else none),
    }
    if network.ca_bundle and Path(network.ca_bundle).is_file():
        client["root_certificate"] = Path(network.ca_bundle).read_bytes()
    with _without_aws_variables():
        return S3Store(
            bucket,
            prefix=prefix.strip("/") or None,
            endpoint=url.removesuffix(f"/{bucket}"),
            virtual_hosted_style_request=not is_in_path,
            region=target.region or "region",
            unsigned_payload=True,
            # The vendor rejects the checksum of a bulk delete.
            disable_bulk_delete=True,
            credential_provider=ObjectAccess(keys, is_elsewhere),  # type: ignore[arg-type]
            client_options=client,  # type: ignore[arg-type]
            # `code_store` retries, and can be stopped by a signal.
            retry_config={"max_retries": 0},
        )


class KeySource:
    """Keys for the object store: those for the service, or temporary ones from IAM."""

    def __init__(
        self,
        credentials: Credentials,
        open_session: Callable[[], ServiceSession],
        now_s: Callable[[], float],
        address: str,
    ) -> None:
        self._credentials, self._open_session = credentials, open_session
        self._now_s, self._address = now_s, address
        self._lock = threading.Lock()
        self._keys: Keys | None = None

    def __call__(self) -> Keys:
        """Return keys that are valid for some minutes.

        Raises:
            KeysRefused: IAM refuses them.
            KeysUnavailable: IAM could not issue them.
        """
        if isinstance(self._credentials, AccessKey):
            return Keys(*self._credentials.parts)
        with self._lock:
            now_s = self._now_s()
            end = self._keys.expires_at if self._keys else None
            if self._keys is None or (end and end.timestamp() - now_s < RENEW_BEFORE_END_S):
                self._keys = self._fetch(now_s)
            return self._keys

    def _fetch(self, now_s: float) -> Keys:
        try:
            proof = self._credentials.headers(Request("GET", "", ""), now_s)
            try:
                return self._ask(proof, now_s)
            except Unauthorized as refusal:
                if refusal.status != 401 or not self._credentials.renew(proof):
                    raise
                return self._ask(self._credentials.headers(Request("GET", "", ""), now_s), now_s)
        except (Unauthorized, Rejected) as refusal:
            fix = f"check {self._credentials.source}, and iam_endpoint of the target"
            raise KeysRefused(
                f"IAM rejected the request: {refusal.message}", **_marks(refusal), fix=fix
            ) from None
        except ServiceError as failure:
            fix = "check iam_endpoint of the target, or OS_AUTH_URL"
            raise KeysUnavailable(
                f"IAM returned none: {failure.message}", **_marks(failure), fix=fix
            ) from None

    def _ask(self, proof: Mapping[str, str], now_s: float) -> Keys:
        about = {"id": proof.get("X-Auth-Token", ""), "duration_seconds": str(LIFETIME_S)}
        identity = {"methods": ["token"], "token": about, "policy": _policy(self._address)}
        with self._open_session() as iam:
            answer = iam.call(
                "POST",
                "/v3.0/OS-CREDENTIAL/securitytokens",
                body={"auth": {"identity": identity}},
                headers=proof,
                repeat=RetryPolicy.SAFE,
            )
        found = answer.json()
        given = found.get("credential") if isinstance(found, dict) else None
        names = ("access", "secret", "securitytoken")
        if not isinstance(given, dict) or not all(given.get(n) and isinstance(given[n], str) for n in names):
            raise answer.unreadable("its response contains no credential")
        iam.redactor.add_secrets(given[name] for name in names)
        try:
            end = datetime.fromisoformat(str(given.get("expires_at")))
        except ValueError:
            end = datetime.fromtimestamp(now_s + LIFETIME_S, UTC)
        access, secret, token = (sendable(given[name], "the response of IAM") for name in names)
        return Keys(access, secret, token, end if end.tzinfo else end.replace(tzinfo=UTC))


def _marks(failure: ServiceError) -> dict[str, Any]:
    return {"code": failure.code, "status": failure.status, "request_id": failure.request_id}


def _policy(address: str) -> dict[str, Any]:
    """The policy that restricts keys to the prefix of a store."""
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
