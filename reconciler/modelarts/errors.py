"""Reads response bodies, with limits, and maps errors to a `ServiceError` with a fix.

Error bodies have many forms (the service's own, the gateway's, IAM's, HTML of a proxy). `read_error` parses
all of them, and `failure_of` classifies them.

Source: docs/reference/modelarts.md, "Errors".
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import requests
from pydantic_core import from_json

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
from reconciler.text import format_duration, printable

# --- bodies

#: Maximum size of a decompressed body. The longest documented one is a log of 5 MB.
LONGEST_ANSWER = 32 * 2**20
#: Values nested more deeply are dropped from a body that is too deep to be parsed. Documents have ten levels.
DEEPEST = 100
#: A 64-bit number has 20 digits.
_LONGEST_NUMBER = 300
_CHUNK = 2**16


def read_content(response: requests.Response) -> bytes:
    """Read the whole body, decompressed.

    Raises:
        UnreadableAnswer: it is too long, or cannot be decompressed.
        requests.RequestException: the connection broke.
    """
    chunks, length = [], 0
    try:
        for chunk in response.iter_content(_CHUNK):
            chunks.append(chunk)
            length += len(chunk)
            if length > LONGEST_ANSWER:
                why = f"the body is larger than {LONGEST_ANSWER // 2**20} MB"
                raise UnreadableAnswer(why, status=response.status_code)
    except requests.exceptions.ContentDecodingError:
        raise UnreadableAnswer("the body cannot be decompressed", status=response.status_code) from None
    return b"".join(chunks)


def parse(content: bytes) -> Any:
    """Parse JSON. Values that cannot be represented become NaN, so that they invalidate one job and not all.

    These are numbers with more digits than Python converts, and values nested too deeply to be parsed. Bytes
    that are not UTF-8 become lone surrogates.

    Raises:
        ValueError: it is not JSON.
    """
    try:
        return from_json(content)
    except ValueError:  # a lone surrogate, an encoding other than UTF-8, too deep, or not JSON at all
        pass
    try:
        text = content.decode(json.detect_encoding(content), "surrogateescape")
        try:
            return _DECODER.decode(text)
        except RecursionError:
            return _DECODER.decode(_cut(text))
    except (ValueError, RecursionError):
        raise ValueError("the body is not JSON") from None


def _number(digits: str) -> int | float:
    return int(digits) if len(digits.lstrip("-")) <= _LONGEST_NUMBER else math.nan


_DECODER = json.JSONDecoder(parse_int=_number)


def _cut(text: str) -> str:
    """Replace values nested more deeply than `DEEPEST` by NaN."""
    kept: list[str] = []
    depth = begin = 0
    # Strings are skipped as a whole, an unterminated one with all that follows.
    for step in re.finditer(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', text, re.DOTALL):
        if step[0] in "[{":
            depth += 1
            if depth == DEEPEST + 1:
                kept += (text[begin : step.start()], "NaN")
        elif step[0] in "]}":
            if depth == DEEPEST + 1:
                begin = step.end()
            depth -= 1
    if depth > DEEPEST:
        raise ValueError("it does not end")
    return "".join((*kept, text[begin:]))


# --- errors

#: Number of characters quoted of a body that is not JSON, and of a message.
_QUOTED = 120
_LONGEST_MESSAGE = 1000
#: Maximum size of an error body, in bytes; of a longer one the beginning is quoted.
_LONGEST_BODY = 2**20
_NO_CODE = r"[^A-Za-z0-9._-]"


class Meaning(NamedTuple):
    """The meaning of an error code: the exception and a fix."""

    failure: type[ServiceError]
    fix: str | None = None


_NO_RIGHT = Meaning(Unauthorized, "ask for a role that allows this operation in ModelArts")

#: Error codes that are more specific than their status, by meaning. Numbers are `ModelArts.` codes.
_CODES_BY_MEANING: dict[Meaning, str] = {
    Meaning(NameTaken): "2751",
    Meaning(NotFound): "2775",
    Meaning(WrongPhase): "2796 2813 2878",
    Meaning(
        Throttled,
        "retry later; "
        "plan, apply, destroy and drift send fewer requests at once with a smaller --parallelism",
    ): "2799 4206 6101 APIGW.0308",
    Meaning(
        Unauthorized,
        "the credentials belong to another project: check project_id and the region of the target",
    ): "2786 0207 0210 2823",
    Meaning(Unauthorized, "get a token scoped to the project"): "0204 0212",
    Meaning(
        Unauthorized,
        "get a new token, valid for 24 hours and in one region, or check the region of the target",
    ): "2784 0202 0203 APIGW.0307",
    Meaning(
        Unauthorized, "use credentials of this project, see `reconciler doctor`"
    ): "0201 0205 0206 0208 APIGW.0303 APIGW.0305",
    Meaning(
        Unauthorized,
        "check the credentials, their region, and this machine's clock (15 minutes at most); "
        "more than 5 wrong signatures lock the key for 5 minutes",
    ): "APIGW.0301",
    _NO_RIGHT: "0108 0112 2771",
    Meaning(Unauthorized, "the workspace policy forbids this: ask its administrator"): "2838",
    Meaning(
        Unauthorized, "grant ModelArts an agency: console, ModelArts, Permission Management"
    ): "2785 0428",
    Meaning(
        Unauthorized, "the account is restricted: check its billing status in the console"
    ): "2837 4116 4118 6201 6203 APIGW.0310",
    Meaning(Rejected, "check workspace_id of the target"): "0102 7005",
    Meaning(
        Rejected, "delete records that are no longer needed, or ask for a larger quota of training jobs"
    ): "2815",
    Meaning(Rejected, "check endpoint or region of the target"): "4204 2836 APIGW.0101",
}

#: The same, by code; the prefix APIG is normalized to APIGW.
CODES: dict[str, Meaning] = {
    code if "." in code else f"ModelArts.{code}": meaning
    for meaning, codes in _CODES_BY_MEANING.items()
    for code in codes.split()
}

_STATUSES: dict[int, type[ServiceError]] = {
    401: Unauthorized,
    403: Unauthorized,
    # The request was received and then aborted; whether it had an effect is unknown.
    408: ServerError,
    409: WrongPhase,
    429: Throttled,
}

#: Codes after which the token is renewed, once.
RENEW_ON = frozenset({"ModelArts.2784", "ModelArts.0202", "ModelArts.0203", "APIGW.0301", "APIGW.0307"})


class ErrorBody(NamedTuple):
    """An error body in common form: `code` and `request_id` are "" if the body has none."""

    code: str
    message: str
    solution: str = ""
    request_id: str = ""


def canonical_code(code: str) -> str:
    """Normalize the prefix of the gateway's codes."""
    return "APIGW." + code[5:] if code.startswith("APIG.") else code


def harmless(text: str, longest: int = _LONGEST_MESSAGE, redact: Callable[[str], str] = str) -> str:
    """Return untrusted text on one line, sanitized and cut to `longest` characters.

    It is redacted first, because a shortened secret would not be recognized, and once more after sanitizing,
    which may put one together.
    """
    text = redact(text)[: 4 * longest]
    # Characters unknown to this Python may be control characters.
    line = redact("".join(c if c.isprintable() else " " for c in printable(" ".join(text.split()))))
    return line if len(line) <= longest else line[: longest - 1] + "…"


def read_error(content: bytes, redact: Callable[[str], str] = str) -> ErrorBody:
    """Parse an error body of any form. Never fails.

    Each text is redacted before it is sanitized and cut.

    Source: docs/reference/modelarts.md, "Errors".
    """
    content = content[:_LONGEST_BODY]
    try:
        body = parse(content)
    except ValueError:
        return ErrorBody("", _quote(content.decode("utf-8", "replace"), redact))
    # The object and its members: IAM nests errors as `{"error": {…}}`.
    levels = [body, *body.values()] if isinstance(body, dict) else []
    for level in (level for level in levels if isinstance(level, dict)):
        code, message = _first(level, "error_code", "errorCode", "code"), _first(level, *_MESSAGES)
        if code or message:
            known = re.sub(_NO_CODE, "", code)
            # A known code is not a secret, and must not be redacted.
            is_known = canonical_code(known) in CODES
            return ErrorBody(
                known if is_known else redact(re.sub(_NO_CODE, "", redact(code)))[:64],
                harmless(message or _first(level, "title") or code, redact=redact),
                harmless(_first(level, "error_solution"), redact=redact),
                harmless(_first(level, "request_id") or _first(body, "request_id"), 128, redact),
            )
    # Serialized again, because escapes such as `\/` and `\u002f` would hide secrets.
    return ErrorBody("", _quote(json.dumps(body, ensure_ascii=False), redact))


_MESSAGES = ("error_msg", "errorMsg", "error_message", "message", "error_description")


def _first(level: Mapping[str, Any], *names: str) -> str:
    for name in names:
        value = level.get(name)
        if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
            return str(value)
    return ""


def _quote(text: str, redact: Callable[[str], str]) -> str:
    quoted = harmless(text, _QUOTED, redact)
    return f"not an error of the ModelArts service: {quoted}" if quoted else "no message"


def failure_of(
    status: int,
    content: bytes,
    *,
    request_id: str = "",
    retry_after_s: float | None = None,
    fix: str | None = None,
    redact: Callable[[str], str] = str,
) -> ServiceError:
    """Return the exception for a response other than 2xx.

    The code takes precedence over the status: 404 ModelArts.2786 is an authentication error, and *no such
    job* is a 400. `fix` overrides the fix of the code. `redact` redacts the service's message.
    """
    error = read_error(content, redact)
    by_status: type[ServiceError] = ServerError if status >= 500 else UnreadableAnswer
    if 400 <= status < 500:
        by_status = _STATUSES.get(status, Rejected)
    meaning = CODES.get(canonical_code(error.code)) or Meaning(by_status)
    if status >= 500 and meaning.failure is not Throttled:
        # Whatever the code says, a failing server may have executed the request.
        meaning = Meaning(ServerError, meaning.fix)
    wish = f"; the service asks to retry after {format_duration(retry_after_s)}" if retry_after_s else ""
    return meaning.failure(
        error.message + wish,
        code=error.code,
        status=status,
        request_id=harmless(request_id, 128, redact) or error.request_id,
        fix=fix or meaning.fix or error.solution or None,
        retry_after_s=retry_after_s,
    )


def is_missing_right(failure: ServiceError) -> bool:
    """Whether the service knows the caller, who may not make this call; others may well be allowed.

    The code decides: HTTP 403 stands for invalid keys and restricted accounts as well.
    """
    if not isinstance(failure, Unauthorized):
        return False
    meaning = CODES.get(canonical_code(failure.code))
    return failure.status == 403 if meaning is None else meaning is _NO_RIGHT
