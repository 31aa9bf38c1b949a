"""Authentication: the check of a request's token or signature."""

from __future__ import annotations

from werkzeug.wrappers import Request

from reconciler.emulator.errors import ApiError
from reconciler.emulator.gateway.key_lockout import KeyLockout
from reconciler.emulator.gateway.signature import BadSignature, SignedRequest, verify
from reconciler.emulator.settings import Settings


class Authenticator:
    """Accepts the token or the signature, whichever is configured; either of them if both are."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lockout = KeyLockout()

    def check(self, request: Request, body: bytes) -> None:
        """Refuse a request without valid credentials.

        Raises:
            ApiError: 401 APIGW.0301.
        """
        settings = self._settings
        if settings.token is None and settings.access_key is None:
            return
        token = request.headers.get("X-Auth-Token")
        if settings.token is not None and token is not None:
            if token != settings.token:
                raise _unauthorized("decrypt token fail")
            return
        if settings.access_key is None:
            raise _unauthorized("Token header is missing")
        if settings.token is not None and "Authorization" not in request.headers:
            raise _unauthorized("Token header is missing")
        self._check_signature(request, body, settings.access_key)

    def _check_signature(self, request: Request, body: bytes, access_key: str) -> None:
        settings = self._settings
        now = settings.now()
        try:
            with self._lockout.counting(now):
                verify(_signed(request, body), access_key, settings.secret_key or "", now)
        except BadSignature as problem:
            raise _unauthorized(str(problem)) from None
        if settings.security_token not in {None, request.headers.get("X-Security-Token")}:
            raise _unauthorized("the security token is missing or not that of the access key")


def _unauthorized(why: str) -> ApiError:
    return ApiError("APIGW.0301", f"Incorrect IAM authentication information: {why}")


def _signed(request: Request, body: bytes) -> SignedRequest:
    return SignedRequest(
        method=request.method,
        path=request.path,
        query=request.query_string.decode("latin-1"),
        headers={name.lower(): value for name, value in request.headers.items()},
        body=body,
    )
