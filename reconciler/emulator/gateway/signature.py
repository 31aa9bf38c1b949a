"""The AK/SK signature of a request (SDK-HMAC-SHA256), checked from its description.

Source: the scheme of the vendor's signing guide: canonical request, string to sign, HMAC with the
secret key itself as the key.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from urllib.parse import parse_qsl, quote

ALGORITHM = "SDK-HMAC-SHA256"
MAX_SKEW = timedelta(minutes=15)
_AUTHORIZATION = re.compile(
    rf"{ALGORITHM} Access=(?P<access>[^,\s]+), *"
    r"SignedHeaders=(?P<headers>[^,\s]+), *Signature=(?P<signature>\w+)"
)


class BadSignature(Exception):
    """The request is not signed, or not by the one who holds the key; the text says why."""


class WrongSignature(BadSignature):
    """The key is known, and the signature is not made with it."""


class SignedRequest(NamedTuple):
    """What a signature covers. `path` is percent-decoded, `query` is raw, header names are lower case."""

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
    if abs(now - _moment(date)) > MAX_SKEW:
        raise BadSignature("The request time and the current time differ too much")
    names = found["headers"].split(";")
    if not {"host", "x-sdk-date"} <= set(names) or names != sorted(names):
        raise BadSignature("SignedHeaders must be sorted and name host and x-sdk-date")
    expected = sign(canonical_request(request, names), date, secret_key)
    if not _is_same(expected, found["signature"]):
        raise WrongSignature("verify aksk signature fail, signature mismatch")


def canonical_request(request: SignedRequest, names: list[str]) -> str:
    """Return the canonical form of a request whose headers `names` are signed."""
    path = "/".join(_encode(segment) for segment in request.path.split("/"))
    pairs = sorted(parse_qsl(request.query, keep_blank_values=True))
    headers = "".join(f"{name}:{request.headers.get(name, '').strip()}\n" for name in names)
    return "\n".join(
        [
            request.method,
            path if path.endswith("/") else path + "/",
            "&".join(f"{_encode(key)}={_encode(value)}" for key, value in pairs),
            headers,
            ";".join(names),
            _body_hash(request),
        ]
    )


def sign(canonical: str, date: str, secret_key: str) -> str:
    """Return the signature of a canonical request, in hexadecimal."""
    text = f"{ALGORITHM}\n{date}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    return hmac.new(secret_key.encode(), text.encode(), hashlib.sha256).hexdigest()


def _body_hash(request: SignedRequest) -> str:
    # A body that is not JSON may be left out of the signature; an empty one is always hashed.
    if request.body and request.headers.get("x-sdk-content-sha256") == "UNSIGNED-PAYLOAD":
        return "UNSIGNED-PAYLOAD"
    return hashlib.sha256(request.body).hexdigest()


def _is_same(one: str, other: str) -> bool:
    # As bytes, for of texts it compares ASCII only.
    return hmac.compare_digest(one.encode(), other.encode())


def _encode(text: str) -> str:
    return quote(text, safe="~")


def _moment(date: str) -> datetime:
    try:
        return datetime.strptime(date, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        raise BadSignature("X-Sdk-Date missing or malformed") from None
