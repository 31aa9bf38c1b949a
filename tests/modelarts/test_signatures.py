"""Signatures: equal to the vendor client's, and accepted by an independent verifier."""

from __future__ import annotations

import warnings
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from reconciler.emulator.auth import SignedRequest, verify
from reconciler.modelarts.auth import AccessKey
from reconciler.modelarts.http import JSON, Request, json_bytes, query_of
from tests.modelarts.building import ACCESS_KEY, PROJECT, SECRET_KEY

with warnings.catch_warnings():
    # The SDK uses features deprecated in newer versions of Python.
    warnings.simplefilter("ignore")
    from huaweicloudsdkcore.auth.credentials import BasicCredentials
    from huaweicloudsdkcore.client import Client
    from huaweicloudsdkcore.http.http_config import HttpConfig

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:huaweicloudsdkcore")

NOW = datetime(2026, 8, 21, 12, tzinfo=UTC)
HOST = "modelarts.cn-north-4.myhuaweicloud.com"

texts = st.text(st.characters(codec="utf-8"), max_size=12)
segments = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12).filter(lambda s: s.strip(".") != "")
values = texts | st.integers(-5, 10**12) | st.booleans()
bodies = st.none() | st.dictionaries(texts, texts | st.integers() | st.none() | st.lists(texts, max_size=2))


class Call(NamedTuple):
    method: str
    segments: tuple[str, ...]
    query: dict[str, Any]
    body: dict[str, Any] | None
    token: str | None


calls = st.builds(
    Call,
    st.sampled_from(["GET", "POST", "PUT", "DELETE"]),
    st.lists(segments, max_size=3).map(tuple),
    st.dictionaries(texts.filter(bool), values, max_size=3),
    bodies,
    st.none() | st.just("MIIFSecurityToken"),
)


def ours(call: Call) -> Request:
    content = None if call.body is None else json_bytes(call.body)
    path = "/".join([f"/v2/{PROJECT}", *(quote(segment, safe="") for segment in call.segments)])
    kind = {} if content is None else {"Content-Type": JSON}
    request = Request(
        call.method,
        HOST,
        path,
        query_of(call.query),
        {"User-Agent": "x", "X-Language": "en-us", **kind},
        content,
    )
    proof = AccessKey(ACCESS_KEY, SECRET_KEY, "TEST", security_token=call.token).headers(
        request, NOW.timestamp()
    )
    return Request(request.method, HOST, request.path, request.query, {**request.headers, **proof}, content)


class OfTheVendor(Client):  # type: ignore[misc]
    """The vendor's client, except for two irrelevant headers.

    It signs its User-Agent, which a proxy may change, and sends Content-Type without a body.
    """

    def __init__(self, token: str | None) -> None:
        super().__init__()
        credentials = BasicCredentials(ACCESS_KEY, SECRET_KEY, PROJECT)
        if token:
            credentials.with_security_token(token)
        self.with_config(HttpConfig(ignore_content_type_for_get_request=True))
        self.with_credentials(credentials).with_endpoints([f"https://{HOST}"])
        self.init_http_client()

    def _parse_header_params(self, formats: Any, headers: Any) -> Any:
        parsed = super()._parse_header_params(formats, headers)
        del parsed["User-Agent"]
        return parsed

    def signed(self, call: Call) -> Any:
        names = [f"p{n}" for n in range(len(call.segments))]
        content = None if call.body is None else json_bytes(call.body).decode()
        path = "/".join(["/v2/{project_id}", *(f"{{{name}}}" for name in names)])
        headers = {"X-Sdk-Date": NOW.strftime("%Y%m%dT%H%M%SZ")} | ({"Content-Type": JSON} if content else {})
        return self.build_future_request(
            call.method,
            path,
            dict(zip(names, call.segments, strict=True)),
            list(call.query.items()),
            headers,
            content,
            {},
            None,
            None,
            {},
            None,
        ).result()


VENDORS = {token: OfTheVendor(token) for token in (None, "MIIFSecurityToken")}


@settings(max_examples=100)
@given(calls)
def test_signed_headers_equal_those_of_the_vendor_client(call: Call) -> None:
    # A DELETE without a body: see `OfTheVendor`.
    assume(call.body is not None or call.method == "GET")
    mine, theirs = ours(call), VENDORS[call.token].signed(call)
    assert mine.path_and_query == theirs.uri
    assert (mine.body or b"") == (theirs.body or b"")
    signed = {name: value for name, value in mine.headers.items() if name not in {"User-Agent", "X-Language"}}
    assert {k.lower(): v for k, v in signed.items()} == {
        k.lower(): v for k, v in theirs.header_params.items()
    }


# ── the emulator's verifier ────────────────────────────────────────────────────────────────────────


def as_received(request: Request) -> SignedRequest:
    return SignedRequest(
        request.method,
        unquote(request.path),
        request.path_and_query.partition("?")[2],
        {name.lower(): value for name, value in request.headers.items()},
        request.body or b"",
    )


@settings(max_examples=100)
@given(calls)
def test_signature_of_any_request_is_accepted(call: Call) -> None:
    verify(as_received(ours(call)), ACCESS_KEY, SECRET_KEY, NOW)
