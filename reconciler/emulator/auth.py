"""The settings of an emulated service, and the check of a token or of an AK/SK signature (SDK-HMAC-SHA256).

Source: the scheme of the vendor's signing guide: canonical request, string to sign, HMAC with the
secret key itself as the key. The lockout of a key is that of the gateway's error page (APIGW.0301).
"""

from __future__ import annotations

import hashlib
import hmac
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from urllib.parse import parse_qsl, quote

from werkzeug.wrappers import Request

from reconciler.emulator.schemas import ApiError

CLOUDS = frozenset({"huawei", "otc"})


@dataclass(frozen=True)
class Settings:
    """The settings that are fixed when the application is created.

    `project_id`: the only project (None: any). `token`, or `access_key` with `secret_key`: the accepted
    credentials (none: no check). `security_token`: the one that belongs to a temporary key pair (None: any).
    `cloud`: "huawei", or "otc", which has fewer operations and can only change the description.
    `strict_catalogue`: reject flavors, engines, algorithms, pools and workspaces that the catalogue lacks,
    and on public pools what needs a dedicated one. `flavors`, `engines`: further ids to list, unless it is
    strict. `control`: offer the control API. `tells_time`: send the emulated time as `Date`, else the real
    one. `now` is the real time, for the age of signatures; `sleep` waits real seconds.

    Raises:
        ValueError: an unknown cloud, half of a key pair, or additions to a strict catalogue.
    """

    project_id: str | None = None
    token: str | None = None
    access_key: str | None = None
    secret_key: str | None = None
    security_token: str | None = None
    cloud: str = "huawei"
    strict_catalogue: bool = False
    flavors: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()
    control: bool = False
    tells_time: bool = False
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        if self.cloud not in CLOUDS:
            raise ValueError(f"cloud must be one of {', '.join(sorted(CLOUDS))}, not {self.cloud}")
        if (self.access_key is None) != (self.secret_key is None):
            raise ValueError("access_key and secret_key go together")
        if self.security_token is not None and self.access_key is None:
            raise ValueError("security_token goes with access_key and secret_key")
        if self.strict_catalogue and (self.flavors or self.engines):
            raise ValueError("a strict catalogue has its own flavors and engines only")


# --- signatures and tokens

ALGORITHM = "SDK-HMAC-SHA256"
MAX_SKEW = timedelta(minutes=15)
#: After more wrong signatures in a row than this, the access key is locked.
MAX_FAILURES = 5
LOCKED_FOR = timedelta(minutes=5)
_AUTHORIZATION = re.compile(
    rf"{ALGORITHM} Access=(?P<access>[^,\s]+), *"
    r"SignedHeaders=(?P<headers>[^,\s]+), *Signature=(?P<signature>\w+)"
)


class BadSignature(Exception):
    """The request is not signed, or not by the one who holds the key; the text says why."""


class WrongSignature(BadSignature):
    """The key is known, and the signature is not made with it."""


class SignedRequest(NamedTuple):
    """The signed parts of a request. `path` is percent-decoded, `query` raw, header names are lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


def verify(request: SignedRequest, access_key: str, secret_key: str, now: datetime) -> None:
    """Check the signature of a request at the time `now`.

    Raises:
        BadSignature: it is missing, malformed, of another key or too old; as `WrongSignature`, wrong.
    """
    found = _AUTHORIZATION.fullmatch(request.headers.get("authorization", "").strip())
    if not found:
        raise BadSignature("Authorization header missing or malformed")
    if not _is_same(found["access"], access_key):
        raise BadSignature("verify aksk signature fail, AK access failed to reach the limit or unknown")
    date = request.headers.get("x-sdk-date", "")
    try:
        signed_at = datetime.strptime(date, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        raise BadSignature("X-Sdk-Date missing or malformed") from None
    if abs(now - signed_at) > MAX_SKEW:
        raise BadSignature("The request time and the current time differ too much")
    names = found["headers"].split(";")
    if not {"host", "x-sdk-date"} <= set(names) or names != sorted(names):
        raise BadSignature("SignedHeaders must be sorted and name host and x-sdk-date")
    expected = sign(canonical_request(request, names), date, secret_key)
    if not _is_same(expected, found["signature"]):
        raise WrongSignature("verify aksk signature fail, signature mismatch")


def canonical_request(request: SignedRequest, names: list[str]) -> str:
    """Return the canonical form of a request whose headers `names` are signed."""
    path = quote(request.path, safe="/~")
    pairs = sorted(parse_qsl(request.query, keep_blank_values=True))
    headers = "".join(f"{name}:{request.headers.get(name, '').strip()}\n" for name in names)
    body_hash = hashlib.sha256(request.body).hexdigest()
    # A body that is not JSON may be left out of the signature; an empty one is always hashed.
    if request.body and request.headers.get("x-sdk-content-sha256") == "UNSIGNED-PAYLOAD":
        body_hash = "UNSIGNED-PAYLOAD"
    return "\n".join(
        [
            request.method,
            path if path.endswith("/") else path + "/",
            "&".join(f"{quote(key, safe='~')}={quote(value, safe='~')}" for key, value in pairs),
            headers,
            ";".join(names),
            body_hash,
        ]
    )


def sign(canonical: str, date: str, secret_key: str) -> str:
    """Return the signature of a canonical request, in hexadecimal."""
    text = f"{ALGORITHM}\n{date}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    return hmac.new(secret_key.encode(), text.encode(), hashlib.sha256).hexdigest()


def _is_same(one: str, other: str) -> bool:
    # As bytes, for of texts it compares ASCII only.
    return hmac.compare_digest(one.encode(), other.encode())


class Authenticator:
    """Checks the token or the signature, whichever is configured; if both are, either is accepted.

    After more than five wrong signatures in a row the access key is locked for five minutes.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._failures = 0
        self._locked_until: datetime | None = None

    def check(self, request: Request, body: bytes) -> None:
        """Refuse a request without valid credentials."""
        settings = self._settings
        if settings.token is None and settings.access_key is None:
            return
        token = request.headers.get("X-Auth-Token")
        if settings.token is not None and token is not None:
            if token != settings.token:
                raise _unauthorized("decrypt token fail")
            return
        is_signed = settings.token is None or "Authorization" in request.headers
        if settings.access_key is None or not is_signed:
            raise _unauthorized("Token header is missing")
        now = settings.now()
        signed = SignedRequest(
            method=request.method,
            path=request.path,
            query=request.query_string.decode("latin-1"),
            headers={name.lower(): value for name, value in request.headers.items()},
            body=body,
        )
        with self._lock:
            if self._locked_until is not None:
                if now < self._locked_until:
                    why = "verify aksk signature fail, AK access failed to reach the limit, forbidden"
                    raise _unauthorized(why)
                self._failures, self._locked_until = 0, None
            try:
                verify(signed, settings.access_key, settings.secret_key or "", now)
            except BadSignature as problem:
                self._failures += isinstance(problem, WrongSignature)
                if self._failures > MAX_FAILURES:
                    self._locked_until = now + LOCKED_FOR
                raise _unauthorized(str(problem)) from None
            self._failures = 0
        if settings.security_token not in {None, request.headers.get("X-Security-Token")}:
            raise _unauthorized("the security token is missing or not that of the access key")


def _unauthorized(why: str) -> ApiError:
    return ApiError("APIGW.0301", f"Incorrect IAM authentication information: {why}")
