"""The error responses of the service, each with its HTTP status and body form.

Source: the error-code table of the OTC API reference and the gateway's error page, see docs/modelarts.md,
"Errors". Only codes that the emulator can answer by itself are listed; a fault may
answer any other code with a status of its own.
"""

from __future__ import annotations

from typing import NamedTuple


class ErrorCode(NamedTuple):
    """The HTTP status of a code, and the hint that the service adds (empty: none)."""

    status: int
    solution: str = ""


_READ_AGAIN = ErrorCode(400, "Check whether the job status is valid.")
_READ_REQUEST = ErrorCode(400, "Check whether the training project information in the request is valid.")
_TOO_MANY_JOBS = "Delete training jobs that are no longer needed, or apply for a larger quota."

#: Refusals of a value in the request, by the number behind "ModelArts.".
_OF_THE_REQUEST = (
    "2753 2755 2757 2758 2763 2764 2767 2780 2781 2782 2783 2788 2789 2790 2791 2792 2793 2806 2807 2808 "
    "2809 2816 2825 2830 2842 2854 2857"
)

CODES: dict[str, ErrorCode] = {
    **{f"ModelArts.{number}": _READ_REQUEST for number in _OF_THE_REQUEST.split()},
    "ModelArts.2751": ErrorCode(400, "Use another training job name."),
    "ModelArts.2775": ErrorCode(400),
    "ModelArts.2776": ErrorCode(204),
    "ModelArts.2777": ErrorCode(204),
    "ModelArts.2786": ErrorCode(404, "Check whether the project ID in the URI is that of the token."),
    "ModelArts.2787": ErrorCode(400, "Check whether the request body is valid JSON."),
    "ModelArts.2796": _READ_AGAIN._replace(status=409),
    "ModelArts.2803": ErrorCode(405),
    "ModelArts.2813": _READ_AGAIN._replace(status=409),
    "ModelArts.2815": ErrorCode(400, _TOO_MANY_JOBS),
    "ModelArts.2820": ErrorCode(400),
    "ModelArts.2858": _READ_AGAIN,
    "ModelArts.2890": _READ_REQUEST._replace(status=404),
    "ModelArts.0102": ErrorCode(400),
    "ModelArts.4104": ErrorCode(413),
    "ModelArts.50004000": ErrorCode(400),
    "APIGW.0101": ErrorCode(404),
    "APIGW.0201": ErrorCode(400),
    "APIGW.0301": ErrorCode(401),
    "APIGW.0308": ErrorCode(429),
    "ModelArts.0010": ErrorCode(500),
    "ModelArts.2950": ErrorCode(500),
    "ModelArts.4302": ErrorCode(503),
}


class ApiError(Exception):
    """The service returns an error instead of doing what was asked.

    `status` is taken from `CODES` unless it is given; a code that the table lacks needs one.
    """

    def __init__(self, code: str, message: str, *, status: int | None = None) -> None:
        known = CODES.get(code)
        if status is None and known is None:
            raise KeyError(f"{code} has no documented status here; give one")
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status if status is not None else CODES[code].status
        self.solution = known.solution if known else ""

    def body(self, request_id: str) -> dict[str, str]:
        """Return the JSON body: the gateway names the request, ModelArts suggests a remedy."""
        body = {"error_msg": self.message, "error_code": self.code}
        if self.code.startswith("APIG"):
            return body | {"request_id": request_id}
        return body | {"error_solution": self.solution} if self.solution else body


def job_not_found(job_id: str) -> ApiError:
    """The response to every operation on an id that is not there: 400, not 404."""
    return ApiError("ModelArts.2775", f"Training job (ID: {job_id}) not found.")


def invalid(message: str) -> ApiError:
    """The response to a parameter whose value is not allowed."""
    return ApiError("ModelArts.2788", f"Invalid parameter, {message}.")


def wrong_type(path: str, expected: str) -> ApiError:
    """The response to a parameter of the wrong JSON type."""
    return ApiError("ModelArts.2825", f"The type of parameter {path} is incorrect, expected {expected}.")
