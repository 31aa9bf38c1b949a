"""Requests signed with an access key (SDK-HMAC-SHA256), by the vendor's own signer.

Source: docs/modelarts.md, "Signatures".
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from types import SimpleNamespace

from reconciler.core.ports import Secrets
from reconciler.modelarts.credentials import sendable
from reconciler.modelarts.request import Request

#: What may change on the way, such as User-Agent, is not signed.
_SIGNED = frozenset({"content-type"})


class AccessKey:
    """An access key with its secret key; `security_token` for temporary ones."""

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
        self._security_token = sendable(security_token, source) if security_token else None
        self._project_id = project_id
        self.source = source

    def headers(self, request: Request, now_s: float) -> Mapping[str, str]:
        """Return date, project, signature, and Host, which must be sent as it was signed."""
        # Imported here: half as heavy as everything else a plan needs.
        from huaweicloudsdkcore.sdk_request import SdkRequest
        from huaweicloudsdkcore.signer.signer import Signer

        signed = {name: value for name, value in request.headers.items() if name.lower() in _SIGNED}
        signed |= {
            "Host": request.host,
            "X-Sdk-Date": datetime.fromtimestamp(now_s, UTC).strftime("%Y%m%dT%H%M%SZ"),
        }
        if project_id := _project_of(request.path):
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

    def renew(self, refused: Mapping[str, str]) -> bool:
        """Never: a failing signature that is repeated locks the key."""
        return False

    def project_id(self) -> str | None:
        """The project that stood beside the key, if one did."""
        return self._project_id

    def secrets(self) -> Secrets:
        """The secret key and the security token; the access key is a name."""
        return [self._secret_key, *([self._security_token] if self._security_token else [])]


def _project_of(path: str) -> str | None:
    """Return the project that a path of the API names: `…/v2/{project_id}/…`."""
    _, version, rest = path.partition("/v2/")
    return rest.partition("/")[0] if version else None
