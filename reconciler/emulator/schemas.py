"""The bodies of requests and responses: errors, each with its HTTP status and form, and JSON by its schema.

A body is read strictly, checked against the schema of the request, and written compactly.

Source: the error-code table of the OTC API reference and the gateway's error page, see
docs/reference/modelarts.md, "Errors". Only codes that the emulator itself returns are listed; faults may
return others.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple


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


def invalid(message: str) -> ApiError:
    """The response to a parameter whose value is not allowed."""
    return ApiError("ModelArts.2788", f"Invalid parameter, {message}.")


def refuse_if(is_wrong: object, message: str, code: str = "") -> None:
    """Refuse what is wrong: with a code, or as `invalid`."""
    if is_wrong:
        raise ApiError(code, message) if code else invalid(message)


def wrong_type(path: str, expected: str) -> ApiError:
    """The response to a parameter of the wrong JSON type."""
    return ApiError("ModelArts.2825", f"The type of parameter {path} is incorrect, expected {expected}.")


# --- bodies

#: The documents have ten levels; a number has 64 bits.
MAX_DEPTH = 64
_MAX_DIGITS = 18


def read_json(data: bytes) -> Any:
    """Return the value of a body.

    Raises:
        ApiError: 400 ModelArts.2787, not JSON, or JSON that no service could keep: half of a surrogate pair,
            a number beyond 64 bits or none at all, values nested deeper than `MAX_DEPTH`.
    """
    try:
        value = json.loads(data.decode(), parse_int=_int, parse_float=_float, parse_constant=_float)
        holders = [value]
        for _ in range(MAX_DEPTH + 1):
            below: list[Any] = []
            for holder in holders:
                if isinstance(holder, str):
                    holder.encode()
                elif isinstance(holder, dict):
                    below += [*holder, *holder.values()]
                elif isinstance(holder, list):
                    below += holder
            holders = below
        if holders:
            raise ValueError("nested too deep")
    except (ValueError, RecursionError):
        raise ApiError("ModelArts.2787", "The request body is not valid JSON.") from None
    return value


def dump_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class ApiResponse(NamedTuple):
    """A status and a body; an empty text is no body."""

    status: int
    text: str = ""


def json_response(status: int, value: Any) -> ApiResponse:
    return ApiResponse(status, dump_json(value))


def value_at(body: Any, path: str) -> Any:
    """Return the value at a dotted path, "spec.auto_stop.duration"; None where a part of it is absent."""
    for name in path.split("."):
        body = body.get(name) if isinstance(body, Mapping) else None
    return body


def put_at(body: dict[str, Any], path: str, value: Any) -> None:
    """Put a value at a dotted path; absent mappings on the way to it are made."""
    *above, name = path.split(".")
    for part in above:
        body[part] = body.get(part) or {}
        body = body[part]
    body[name] = value


def _int(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError("a number that is too long")
    return int(digits)


def _float(digits: str) -> float:
    if not math.isfinite(number := float(digits)):
        raise ValueError("not a number")
    return number


TEXT_MAP = object()
NUMBER = (int, float)
Schema = Any

_WORDS: dict[Any, str] = {str: "string", int: "integer", bool: "boolean", NUMBER: "number", dict: "object"}


def _texts(names: str) -> dict[str, Any]:
    return dict.fromkeys(names.split(), str)


_DATA = {
    **_texts("name description local_dir access_method"),
    "remote": {"obs": {"obs_url": str}, "dataset": _texts("id version_id service_type name")},
}
_HOURS = {"time_unit": str, "duration": int}

JOB: Schema = {
    **_texts("kind train_type"),
    "metadata": {
        **_texts("name workspace_id description"),
        "annotations": TEXT_MAP,
        "training_experiment_reference": _texts("id name description"),
    },
    "algorithm": {
        **_texts("id name subscription_id item_version_id code_dir boot_file local_code_dir working_dir"),
        **_texts("command autosearch_config_path autosearch_framework_path"),
        "parameters": [{**_texts("name value description"), "constraint": dict}],
        "policies": {"auto_search": dict},
        "inputs": [_DATA],
        "outputs": [_DATA],
        "engine": {
            **_texts("engine_id engine_name engine_version image_url image_repo_id"),
            "install_sys_packages": bool,
        },
        "environments": TEXT_MAP,
        "summary": {"log_type": str, "log_dir": dict, "data_sources": [dict]},
    },
    "tasks": [{"role": str, "algorithm": dict, "task_resource": {"flavor_id": str, "node_count": int}}],
    "spec": {
        **_texts("runtime_type asset_id"),
        "resource": {
            **_texts("flavor_id pool_id pool_group_id"),
            "node_count": int,
            "main_container_customized_flavor": dict.fromkeys(
                ("cpu_core_num", "mem_size", "accelerator_num"), NUMBER
            ),
        },
        "volumes": [
            {
                "nfs": {**_texts("nfs_server_path local_path"), "read_only": bool},
                "pfs": _texts("pfs_path local_path"),
                "obs": _texts("obs_path local_path"),
            }
        ],
        "log_export_path": _texts("obs_url host_path"),
        "log_export_config": {"version": str, "rotation_enabled": bool},
        "auto_stop": _HOURS,
        "retention": {"policy": str},
        "reserved_time": _HOURS,
        "schedule_policy": {
            "priority": int,
            "preemptible": bool,
            "required_affinity": {"affinity_type": str, "affinity_group_size": int},
            "preferred_affinity": dict,
        },
        "notification": {"topic_urn": str, "events": [str]},
        "custom_metrics": [{"exec": {"command": [str]}, "http_get": {"path": str, "port": int}}],
        "output_model": dict,
        "asset_model": dict,
    },
    "endpoints": {"ssh": {"key_pair_names": [str]}},
    "ftjob_config": dict,
}

_TAGS = [{"key": str, "values": [str]}]
SEARCH: Schema = {
    **_texts("sort_by order group_by workspace_id train_type"),
    **dict.fromkeys(("offset", "limit"), int),
    "unified_jobs": bool,
    "filters": [{**_texts("key operator"), "value": [str]}],
    "tags": _TAGS,
    "host_ips": [str],
}
ACTION: Schema = {"action_type": str}
BATCH: Schema = {"jobs": [{"kind": str, "metadata": {"id": str}}]}
QUOTAS: Schema = {"user_id": str, "quotas": [{**_texts("resource extra_info"), "quota": int, "used": int}]}
_PAIRS = [_texts("key value")]
TAGS: Schema = {"tags": _PAIRS}
TAG_QUERY: Schema = {"tags": _TAGS, "workspace_id": str, "without_any_tag": bool, "matches": _PAIRS}


def read(data: bytes, schema: Schema) -> dict[str, Any]:
    """Return the JSON object that a request carries, of the given schema."""
    body = read_json(data)
    if not isinstance(body, dict):
        raise wrong_type("body", "object")
    check(body, schema, "")
    return body


def check(value: Any, schema: Schema, path: str) -> None:
    """Refuse a value that is not of the schema; `path` is its place, for the message."""
    if value is None:
        return
    if schema is TEXT_MAP:
        _check_kind(value, dict, path)
        for key, item in value.items():
            _check_kind(item, str, f"{path}.{key}")
    elif isinstance(schema, list):
        if not isinstance(value, list):
            raise wrong_type(path, "array")
        for index, item in enumerate(value):
            if item is None:
                kind = schema[0] if isinstance(schema[0], type) else dict
                raise wrong_type(f"{path}[{index}]", _WORDS[kind])
            check(item, schema[0], f"{path}[{index}]")
    elif isinstance(schema, Mapping):
        _check_kind(value, dict, path)
        for name, inner in schema.items():
            if name in value:
                check(value[name], inner, f"{path}.{name}" if path else name)
    else:
        _check_kind(value, schema, path)


def _check_kind(value: Any, kind: Any, path: str) -> None:
    # In Python a boolean is an integer; in JSON it is not.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise wrong_type(path, _WORDS[kind])
