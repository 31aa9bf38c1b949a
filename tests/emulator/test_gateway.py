"""Authentication: tokens, signatures, projects."""

# A response without JSON fails the test anyway.
# mypy: disable-error-code="index"

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from werkzeug.test import Client, TestResponse

from reconciler.emulator import Store, create_app
from reconciler.emulator.auth import BadSignature, SignedRequest, canonical_request, sign, verify

PROJECT = "0123456789abcdef0123456789abcdef"
ACCESS, SECRET = "AKEXAMPLE0000000000", "SKexampleExampleExampleExampleExample000"
DATE = "20260821T120000Z"
NOW = datetime(2026, 8, 21, 12, tzinfo=UTC)
HEADERS = {
    "content-type": "application/json",
    "host": "modelarts.eu-de.otc.t-systems.com",
    "x-project-id": PROJECT,
    "x-sdk-date": DATE,
}
TERMINATE = SignedRequest(
    "POST",
    f"/v2/{PROJECT}/training-jobs/66ff6991-fd66-40b6-8101-0829a46d3731/actions",
    "",
    HEADERS,
    b'{"action_type":"terminate"}',
)


def signed(request: SignedRequest, **changes: str) -> SignedRequest:
    names = sorted(request.headers)
    signature = sign(canonical_request(request, names), request.headers["x-sdk-date"], SECRET)
    authorization = f"SDK-HMAC-SHA256 Access={ACCESS}, SignedHeaders={';'.join(names)}, Signature={signature}"
    headers = {**request.headers, "authorization": authorization}
    return request._replace(
        headers=headers | {key.replace("_", "-"): value for key, value in changes.items()}
    )


def reworded(old: str, new: str) -> SignedRequest:
    authorization = signed(TERMINATE).headers["authorization"]
    assert old in authorization
    return signed(TERMINATE, authorization=authorization.replace(old, new))


@pytest.mark.parametrize("minutes", [-15, 0, 15])
def test_signature_with_a_clock_difference_of_15_minutes_is_accepted(minutes: int) -> None:
    verify(signed(TERMINATE), ACCESS, SECRET, NOW + timedelta(minutes=minutes))


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (TERMINATE, "missing"),
        (signed(TERMINATE, authorization="Bearer x"), "malformed"),
        (signed(TERMINATE)._replace(body=b"{}"), "mismatch"),
        (signed(TERMINATE)._replace(method="PUT"), "mismatch"),
        (signed(TERMINATE)._replace(path="/v2/other"), "mismatch"),
        (signed(TERMINATE)._replace(query="a=1"), "mismatch"),
        (signed(TERMINATE, x_project_id="other"), "mismatch"),
        (signed(TERMINATE, x_sdk_date="yesterday"), "malformed"),
        (signed(TERMINATE._replace(headers={**HEADERS, "x-sdk-date": "20260821T114459Z"})), "differ"),
        (signed(TERMINATE._replace(headers={**HEADERS, "x-sdk-date": "20260821T121501Z"})), "differ"),
        (signed(TERMINATE._replace(headers={"x-sdk-date": DATE})), "host"),
        (reworded("host;x-project-id;x-sdk-date", "x-sdk-date;x-project-id;host"), "sorted"),
        (reworded("SDK-HMAC-SHA256", "SDK-HMAC-SHA512"), "malformed"),
        # Python's compare_digest raises for non-ASCII text.
        (reworded(f"Access={ACCESS}", "Access=ÄK"), "AK"),
        (reworded("Signature=", "Signature=é"), "mismatch"),
    ],
)
def test_wrong_signature_is_refused_with_a_reason(request_: SignedRequest, why: str) -> None:
    with pytest.raises(BadSignature, match=why):
        verify(request_, ACCESS, SECRET, NOW)


def test_non_json_body_may_be_left_out_of_the_signature() -> None:
    headers = {**HEADERS, "x-sdk-content-sha256": "UNSIGNED-PAYLOAD"}
    request = signed(TERMINATE._replace(headers=headers))
    verify(request._replace(body=b"anything"), ACCESS, SECRET, NOW)


# ── the application ────────────────────────────────────────────────────────────────────────────────


def search(client: Client, headers: dict[str, str], project: str = PROJECT) -> TestResponse:
    return client.post(f"/v2/{project}/training-job-searches", json={}, headers=headers)


def aksk(path: str = f"/v2/{PROJECT}/training-job-searches") -> dict[str, str]:
    request = SignedRequest("POST", path, "", {"host": "localhost", "x-sdk-date": DATE}, b"{}")
    return dict(signed(request).headers)


@pytest.mark.parametrize(
    ("credentials", "headers", "status"),
    [
        ({}, {}, 200),
        ({"token": "t"}, {}, 401),
        ({"token": "t"}, {"X-Auth-Token": "wrong"}, 401),
        ({"access_key": ACCESS, "secret_key": SECRET}, aksk("/v2/other"), 401),
        ({"access_key": ACCESS, "secret_key": SECRET}, {"X-Auth-Token": "t"}, 401),
        ({"token": "t", "access_key": ACCESS, "secret_key": SECRET}, {"X-Auth-Token": "t"}, 200),
        ({"token": "t", "access_key": ACCESS, "secret_key": SECRET}, aksk(), 200),
    ],
)
def test_request_is_accepted_only_with_configured_credentials(
    store: Store, credentials: dict[str, Any], headers: dict[str, str], status: int
) -> None:
    response = search(Client(create_app(store, now=lambda: NOW, **credentials)), headers)
    assert response.status_code == status
    if status == 401:
        assert response.json["error_code"] == "APIGW.0301"
        assert response.json["error_msg"].startswith("Incorrect IAM authentication information: ")
        assert response.json["request_id"] == response.headers["X-Request-Id"]


def test_security_token_without_an_access_key_is_refused(store: Store) -> None:
    with pytest.raises(ValueError, match="goes with"):
        create_app(store, security_token="t")


# ── the lock of a key ──────────────────────────────────────────────────────────────────────────────

RIGHT, WRONG = "right", "wrong"


class Gate:
    def __init__(self, store: Store, **more: Any) -> None:
        self.now = NOW
        app = create_app(store, access_key=ACCESS, secret_key=SECRET, now=lambda: self.now, **more)
        self._client = Client(app)

    def knock(self, *attempts: str) -> list[int]:
        return [self.answer(attempt).status_code for attempt in attempts]

    def answer(self, attempt: str) -> TestResponse:
        headers = aksk()
        if attempt == WRONG:
            headers["authorization"] = headers["authorization"][:-4] + "beef"
        return search(self._client, headers)


def test_six_wrong_signatures_in_a_row_lock_the_key_for_five_minutes(store: Store) -> None:
    gate = Gate(store)
    assert gate.knock(*[WRONG] * 6, RIGHT) == [401] * 7
    assert "AK access failed to reach the limit" in gate.answer(RIGHT).json["error_msg"]
    assert gate.answer(RIGHT).json["error_code"] == "APIGW.0301"
    gate.now += timedelta(minutes=4, seconds=59)
    assert gate.knock(RIGHT) == [401]
    gate.now += timedelta(seconds=1)
    assert gate.knock(RIGHT, *[WRONG] * 5, RIGHT) == [200, *[401] * 5, 200], "and it counts anew"


def test_access_key_without_a_secret_key_is_refused(store: Store) -> None:
    with pytest.raises(ValueError, match="go together"):
        create_app(store, access_key=ACCESS)


def test_request_for_another_project_is_not_found(store: Store) -> None:
    client = Client(create_app(store, project_id=PROJECT))
    refused = search(client, {}, project="another")
    assert (refused.status_code, refused.json["error_code"]) == (404, "ModelArts.2786")
    assert search(client, {}).status_code == 200
