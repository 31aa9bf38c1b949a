"""What a refusal of the service means: its code and status → the failure of `core.ports`, and a fix.

The body of an error has one of many forms (the service's own, the gateway's, IAM's, HTML of a proxy);
`read_error` levels them out, `failure_of` says what they mean.

Source: docs/modelarts.md, "Errors".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

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
from reconciler.modelarts.content import parse
from reconciler.text import format_duration, printable

#: How much of a body that is not JSON is quoted, and of a message, in characters.
_QUOTED = 120
_LONGEST_MESSAGE = 1000
#: No error is longer than this, in bytes; of one that is the beginning is quoted.
_LONGEST_BODY = 2**20
_NO_CODE = re.compile(r"[^A-Za-z0-9._-]")


class Meaning(NamedTuple):
    """What a code says beyond its HTTP status: the failure, and a fix that we know better."""

    failure: type[ServiceError]
    fix: str | None = None


_WRONG_PROJECT = Meaning(
    Unauthorized,
    "the credentials belong to another project: check project_id and the region of the target",
)
_NEW_TOKEN = Meaning(
    Unauthorized,
    "get a new token, valid for 24 hours and in one region, or check the region of the target",
)
_NO_TOKEN = Meaning(Unauthorized, "use credentials of this project, see `reconciler doctor`")
_NO_RIGHT = Meaning(Unauthorized, "ask for a role that allows this operation in ModelArts")
_AGENCY = Meaning(Unauthorized, "grant ModelArts an agency: console, ModelArts, Permission Management")
_ACCOUNT = Meaning(Unauthorized, "the account is restricted: check its billing status in the console")
_BUSY = Meaning(
    Throttled,
    "retry later; plan, apply, destroy and drift send fewer requests at once with a smaller --parallelism",
)
_PHASE = Meaning(WrongPhase)

#: Codes that say more than their status does; the prefix APIG is APIGW.
CODES: dict[str, Meaning] = {
    "ModelArts.2751": Meaning(NameTaken),
    "ModelArts.2775": Meaning(NotFound),
    "ModelArts.2796": _PHASE,
    "ModelArts.2813": _PHASE,
    "ModelArts.2878": _PHASE,
    "ModelArts.2799": _BUSY,
    "ModelArts.4206": _BUSY,
    "ModelArts.6101": _BUSY,
    "APIGW.0308": _BUSY,
    "ModelArts.2786": _WRONG_PROJECT,
    "ModelArts.0207": _WRONG_PROJECT,
    "ModelArts.0210": _WRONG_PROJECT,
    "ModelArts.2823": _WRONG_PROJECT,
    "ModelArts.0204": Meaning(Unauthorized, "get a token scoped to the project"),
    "ModelArts.0212": Meaning(Unauthorized, "get a token scoped to the project"),
    "ModelArts.2784": _NEW_TOKEN,
    "ModelArts.0202": _NEW_TOKEN,
    "ModelArts.0203": _NEW_TOKEN,
    "APIGW.0307": _NEW_TOKEN,
    "ModelArts.0201": _NO_TOKEN,
    "ModelArts.0205": _NO_TOKEN,
    "ModelArts.0206": _NO_TOKEN,
    "ModelArts.0208": _NO_TOKEN,
    "APIGW.0301": Meaning(
        Unauthorized,
        "check the credentials, their region, and this machine's clock (15 minutes at most); "
        "more than 5 wrong signatures lock the key for 5 minutes",
    ),
    "APIGW.0303": _NO_TOKEN,
    "APIGW.0305": _NO_TOKEN,
    "APIGW.0310": _ACCOUNT,
    "ModelArts.0108": _NO_RIGHT,
    "ModelArts.0112": _NO_RIGHT,
    "ModelArts.2771": _NO_RIGHT,
    "ModelArts.2838": Meaning(Unauthorized, "the workspace policy forbids this: ask its administrator"),
    "ModelArts.2785": _AGENCY,
    "ModelArts.0428": _AGENCY,
    "ModelArts.2837": _ACCOUNT,
    "ModelArts.4116": _ACCOUNT,
    "ModelArts.4118": _ACCOUNT,
    "ModelArts.6201": _ACCOUNT,
    "ModelArts.6203": _ACCOUNT,
    "ModelArts.0102": Meaning(Rejected, "check workspace_id of the target"),
    "ModelArts.7005": Meaning(Rejected, "check workspace_id of the target"),
    "ModelArts.2815": Meaning(
        Rejected, "delete records that are no longer needed, or ask for a larger quota of training jobs"
    ),
    "APIGW.0101": Meaning(Rejected, "check endpoint or region of the target"),
    "ModelArts.4204": Meaning(Rejected, "check endpoint or region of the target"),
    "ModelArts.2836": Meaning(Rejected, "check endpoint or region of the target"),
}

_STATUSES: dict[int, type[ServiceError]] = {
    401: Unauthorized,
    403: Unauthorized,
    # The request reached somebody who then gave up on it: what became of it is not known.
    408: ServerError,
    409: WrongPhase,
    429: Throttled,
}

#: Codes after which a new token may help, once.
RENEW_ON = frozenset({"ModelArts.2784", "ModelArts.0202", "ModelArts.0203", "APIGW.0301", "APIGW.0307"})


class ErrorBody(NamedTuple):
    """An error, whatever its form: `code` and `request_id` are "" where the body has none."""

    code: str
    message: str
    solution: str = ""
    request_id: str = ""


def canonical_code(code: str) -> str:
    """Return a code with the one spelling of the gateway's prefix that our tables use."""
    return "APIGW." + code[5:] if code.startswith("APIG.") else code


def harmless(text: str, longest: int = _LONGEST_MESSAGE, redact: Callable[[str], str] = str) -> str:
    """Return foreign text on one line, with nothing in it that is obeyed, or not seen, cut to `longest`.

    `redact` comes before all that, since a secret that is cut is not known any more, nor one whose
    white space is gone; and again before the end, since cleaning may put one together.
    """
    text = redact(text)[: 4 * longest]
    # A letter that Python does not know yet may be anything.
    line = redact("".join(c if c.isprintable() else " " for c in printable(" ".join(text.split()))))
    return line if len(line) <= longest else line[: longest - 1] + "…"


def read_error(content: bytes, redact: Callable[[str], str] = str) -> ErrorBody:
    """Level out the forms that an error body can have; never fails.

    `redact` gets each text as the service sent it, before anything of it is cut or cleaned.

    Source: docs/modelarts.md, "Errors".
    """
    content = content[:_LONGEST_BODY]
    try:
        body = parse(content)
    except ValueError:
        return ErrorBody("", _quote(content.decode("utf-8", "replace"), redact))
    for level in _levels(body):
        code, message = _first(level, "error_code", "errorCode", "code"), _first(level, *_MESSAGES)
        if code or message:
            return ErrorBody(
                _code(code, redact),
                harmless(message or _first(level, "title") or code, redact=redact),
                harmless(_first(level, "error_solution"), redact=redact),
                harmless(_first(level, "request_id") or _first(body, "request_id"), 128, redact),
            )
    # Written anew: what was sent may spell a character in many ways, as `\/` and `\u002f`.
    return ErrorBody("", _quote(json.dumps(body, ensure_ascii=False), redact))


_MESSAGES = ("error_msg", "errorMsg", "error_message", "message", "error_description")


def _levels(body: Any) -> list[Mapping[str, Any]]:
    """The object itself, and what it nests: `{"error": {…}}` is IAM's form."""
    if not isinstance(body, dict):
        return []
    return [body, *(member for member in body.values() if isinstance(member, dict))]


def _first(level: Mapping[str, Any], *names: str) -> str:
    for name in names:
        value = level.get(name)
        if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
            return str(value)
    return ""


def _code(said: str, redact: Callable[[str], str]) -> str:
    code = _NO_CODE.sub("", said)
    # What we know is nobody's secret, and decides what the failure means.
    return code if canonical_code(code) in CODES else redact(_NO_CODE.sub("", redact(said)))[:64]


def _quote(text: str, redact: Callable[[str], str]) -> str:
    said = harmless(text, _QUOTED, redact)
    return f"not an error of the ModelArts service: {said}" if said else "no message"


def failure_of(
    status: int,
    content: bytes,
    *,
    request_id: str = "",
    retry_after_s: float | None = None,
    fix: str | None = None,
    redact: Callable[[str], str] = str,
) -> ServiceError:
    """Return the failure that an answer other than 2xx stands for.

    The code decides before the status: 404 ModelArts.2786 is a matter of credentials, and *no such
    job* is a 400. `fix` is what the caller knows better than the code does. `redact` takes secrets out
    of what the service says.
    """
    error = read_error(content, redact)
    meaning = CODES.get(canonical_code(error.code)) or Meaning(_by_status(status))
    if status >= 500 and meaning.failure is not Throttled:
        # A code must not make a call look harmless that a broken server may have carried out.
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


def _by_status(status: int) -> type[ServiceError]:
    if 400 <= status < 500:
        return _STATUSES.get(status, Rejected)
    return ServerError if status >= 500 else UnreadableAnswer


def redirected(status: int, location: str, redact: Callable[[str], str] = str) -> UnreadableAnswer:
    """Return the failure for a redirect: following one would hand the credentials to somebody else."""
    return UnreadableAnswer(
        f"a redirect to {harmless(location, _QUOTED, redact) or 'nowhere'}; redirects are never followed",
        status=status,
        fix="check endpoint of the target: it must be the service itself, not a page that redirects to it",
    )
