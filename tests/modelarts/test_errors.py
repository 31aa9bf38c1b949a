"""Meaning of a refusal: code and status → exception."""

from __future__ import annotations

import json
import re

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.cli.main import COMMANDS, cli
from reconciler.errors import (
    NameTaken,
    NotFound,
    Rejected,
    ServerError,
    ServiceError,
    Throttled,
    Unauthorized,
    UnreadableAnswer,
    WrongPhase,
)
from reconciler.modelarts.errors import failure_of, harmless, read_error


@pytest.mark.parametrize(
    ("status", "code", "failure"),
    [
        (400, "ModelArts.2751", NameTaken),
        (400, "ModelArts.2775", NotFound),
        (409, "ModelArts.2796", WrongPhase),
        (409, "ModelArts.2813", WrongPhase),
        (409, "ModelArts.2878", WrongPhase),
        (409, "", WrongPhase),
        (400, "ModelArts.2788", Rejected),
        (400, "ModelArts.2815", Rejected),
        (404, "ModelArts.2890", Rejected),
        (404, "APIGW.0101", Rejected),
        (404, "", Rejected),
        (404, "ModelArts.2786", Unauthorized),  # a 404 of the project, not of a job
        (400, "ModelArts.2838", Unauthorized),
        (400, "ModelArts.2837", Unauthorized),
        (403, "ModelArts.2785", Unauthorized),
        (403, "ModelArts.0112", Unauthorized),
        (401, "APIGW.0301", Unauthorized),
        (401, "APIG.0301", Unauthorized),
        (401, "", Unauthorized),
        (403, "", Unauthorized),
        (429, "APIGW.0308", Throttled),
        (429, "APIG.0308", Throttled),
        (429, "ModelArts.2799", Throttled),
        (429, "", Throttled),
        (400, "ModelArts.6101", Throttled),
        (500, "ModelArts.0010", ServerError),
        (503, "ModelArts.4302", ServerError),
        (502, "APIGW.0201", ServerError),
        (413, "APIGW.0201", Rejected),
        (504, "", ServerError),
        (408, "ModelArts.6100", ServerError),  # the outcome of the request is unknown
        (500, "ModelArts.2775", ServerError),  # a broken server is not trusted
        (199, "", UnreadableAnswer),
    ],
)
def test_status_and_code_decide_the_error_class(status: int, code: str, failure: type[ServiceError]) -> None:
    body = json.dumps({"error_code": code, "error_msg": "No."} if code else {}).encode()
    assert type(failure_of(status, body)) is failure


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ({"error_msg": "not found.", "error_code": "ModelArts.2755"}, "ModelArts.2755", "not found."),
        ({"error": {"code": 401, "message": "Wrong", "title": "Unauthorized"}}, "401", "Wrong"),
        ({"code": "X.1", "message": "m"}, "X.1", "m"),
        ({"errorCode": "X.2", "errorMsg": "m"}, "X.2", "m"),
        ({"is_success": False, "error_code": "X.3", "error_message": "old"}, "X.3", "old"),
        ({"error_code": "ModelArts.0112"}, "ModelArts.0112", "ModelArts.0112"),
        ({"error_msg": {"deep": 1}}, "", 'not an error of the ModelArts service: {"error_msg": {"deep": 1}}'),
        ([], "", "not an error of the ModelArts service: []"),
    ],
)
def test_error_body_of_any_form_has_code_and_message(body: object, code: str, message: str) -> None:
    assert read_error(json.dumps(body).encode())[:2] == (code, message)


def test_html_error_of_a_proxy_is_quoted_printable_and_short() -> None:
    failure = failure_of(502, b"<html>\x1b[31m<h1>Bad\r\nGateway\xff</h1>" + b"x" * 9999)
    assert isinstance(failure, ServerError)
    assert "<html>\\x1b[31m<h1>Bad Gateway" in failure.message
    assert len(failure.message) < 200


def test_request_id_comes_from_header_or_else_body() -> None:
    body = b'{"error_code": "APIG.0301", "error_msg": "decrypt token fail", "request_id": "abc"}'
    assert failure_of(401, body).request_id == "abc"
    assert failure_of(401, body, request_id="def").request_id == "def"


def test_fix_falls_back_to_that_of_the_service() -> None:
    ours = failure_of(404, b'{"error_code": "ModelArts.2786", "error_msg": "x", "error_solution": "theirs"}')
    theirs = failure_of(
        400, b'{"error_code": "ModelArts.2751", "error_msg": "x", "error_solution": "theirs"}'
    )
    assert "project_id" in (ours.diagnostics[0].fix or "")
    assert theirs.diagnostics[0].fix == "theirs"


def test_throttling_fix_names_parallelism_only_for_commands_with_it() -> None:
    fix = failure_of(429, b'{"error_code": "APIGW.0308", "error_msg": "x"}').diagnostics[0].fix or ""
    commands, _, rest = fix.partition(" with a smaller --parallelism")
    named = re.findall(r"[a-z]+", commands.rpartition("; ")[2].partition(" send")[0])
    assert rest == ""
    with_it = {name for name in COMMANDS if has_parallelism(name)}
    assert {"plan", "apply"} <= set(named) - {"and"} <= with_it


def has_parallelism(name: str) -> bool:
    found = cli.get_command(click.Context(cli), name)
    return found is not None and any("--parallelism" in option.opts for option in found.params)


def test_encoded_authorization_message_is_not_shown() -> None:
    body = b'{"error_code": "X.1", "error_msg": "no", "encoded_authorization_message": "opaque"}'
    assert "opaque" not in str(failure_of(403, body))


@given(
    st.binary()
    | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(lambda x: json.dumps(x).encode())
)
def test_error_body_of_any_bytes_is_read(content: bytes) -> None:
    assert read_error(content).message


@given(st.text())
def test_quoted_error_text_is_one_printable_line(text: str) -> None:
    assert harmless(text).isprintable()
