"""Hostile requests: the emulator responds in the service's form, and keeps serving."""

from __future__ import annotations

import copy
import io
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from werkzeug.test import Client

from reconciler.emulator import ManualClock, Store, create_app
from reconciler.emulator.app import MORE_ROUTES, ROUTES
from tests.hostile.sizes import RecordProperty, count_tried, size
from tests.modelarts.building import a_body

Environ = dict[str, Any]
TOKEN = "tell-nobody"


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with Store(clock=ManualClock()) as opened:
        yield opened


def environ_of(method: str, path: bytes, query: str = "", body: bytes = b"", **headers: str) -> Environ:
    return {
        "REQUEST_METHOD": method,
        "SCRIPT_NAME": "",
        "PATH_INFO": path.decode("latin-1"),
        "QUERY_STRING": query,
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "CONTENT_LENGTH": str(len(body)),
        "CONTENT_TYPE": "application/json",
        "HTTP_HOST": "127.0.0.1",
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": io.StringIO(),
        **headers,
    }


def check_it_is_answered(app: Any, environ: Environ) -> int:
    said: list[str] = []
    content = b"".join(app(environ, lambda status, headers, _=None: said.append(status)))
    status = int(said[-1][:3])
    assert status < 500, content
    if status >= 400 and environ["REQUEST_METHOD"] != "HEAD":
        error = json.loads(content)
        assert error["error_code"]
        assert error["error_msg"]
    return status


# ── requests ───────────────────────────────────────────────────────────────────────────────────────

_DEEP: Any = "x"
for _ in range(80):
    _DEEP = [_DEEP]
ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 2**31, 2**63, 2**64, 10**400, -(10**17), 0.5, 1e308, float("nan"), float("inf")),
    *("", " ", "x" * 70_000, "\x00", "\n", "\ud800", "\U0001f600", "\u202e", "0"),
    *("-1", "'; DROP TABLE jobs; --"),
    *([], {}, [None], [[]], [{}], {"": {}}, {"\ud800": 1}, {"x" * 9000: "y"}, _DEEP, [0] * 3000),
    *("2026-01-01T00:00:00Z", "9999-99-99", "%s", "../..", "obs://", "HOURS", "Running", "terminate"),
)
QUERIES = (
    *("", "a", "=", "&&&", "limit=-1", "limit=999999999999999999999", "offset=1e9", "limit=%00", "limit=½"),
    *("order=x", "level=%ff%fe", "job_name=%ud800", "job_name=" + "x" * 9000),
    *("limit=1&limit=2", "start_time=0"),
    *("offset=-9223372036854775809", "schedule_count=NaN", "base_line=%F0%9F%98%80", "lines=0x10", ";=;"),
)
SEGMENTS = (
    *(b"", b"..", b".", b"\x00", b"\xff\xfe", b"%2e%2e", b"x" * 5000, b"a/b", b"\xf0\x9f\x98\x80"),
    *(b"*", b"?x"),
    *(b"batch-delete", b"0", b"' OR 1=1", b"\xed\xa0\x80", b"<x>", b"worker-0", b"\r\nX: y"),
)
METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "get", "\x00", "X" * 300)
#: Bodies by path suffix.
FITTING: dict[str, Any] = {
    "/training-jobs": a_body("fuzz"),
    "-searches": {"offset": 0, "limit": 10, "filters": [{"key": "name", "operator": "like", "value": ["x"]}]},
    "job-searches": {
        "filters": [{"key": "create_time", "operator": "between", "value": ["2026-01-01T00:00:00Z"] * 2}],
        **{"tags": [{"key": "a", "values": ["b"]}], "host_ips": ["1.2.3.4"], "sort_by": "create_time"},
    },
    "<job_id>": {
        "description": "x",
        "spec": {"schedule_policy": {"priority": 1}, "notification": {"events": []}},
    },
    "actions": {"action_type": "terminate"},
    "batch-delete": {"jobs": [{"kind": "job", "metadata": {"id": "x"}}]},
    "tags/create": {"tags": [{"key": "a", "value": "b"}]},
    "resource-instances/filter": {"tags": [{"key": "a", "values": ["b"]}], "without_any_tag": False},
    "resource-instances/count": {"matches": [{"key": "resource_name", "value": "x"}]},
    "training-quotas": {"quotas": [{"resource": "job-num", "quota": 5}]},
    "/faults": {"effect": "answer", "count": 0, "path": "*", "method": "NONE"},
    "faults": {"chaos": 0.0, "seed": 1},
    "clock": {"advance_s": 1},
    "phase": {"phase": "Failed"},
    "settings": {"offset_counts": "pages"},
}
BODIES = tuple(FITTING.values())


def _places(tree: Any, prefix: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield prefix
    inside = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for name, value in inside:
        yield from _places(value, (*prefix, name))


def _changed(tree: Any, chance: random.Random) -> Any:
    tree = copy.deepcopy(tree)
    place = chance.choice(list(_places(tree)))
    if not place:
        return chance.choice(ODD)
    holder = tree
    for part in place[:-1]:
        holder = holder[part]
    holder[place[-1]] = chance.choice(ODD)
    return tree


PATHS = [(route.method, route.path) for route in (*ROUTES, *MORE_ROUTES)]
PATHS += [("POST", f"/emulator/{name}") for name in ("clock", "faults", "settings", "jobs/<job_id>/phase")]
HEADERS = (
    *("HTTP_AUTHORIZATION", "HTTP_X_SDK_DATE", "CONTENT_TYPE", "HTTP_X_AUTH_TOKEN", "HTTP_HOST"),
    *("HTTP_COOKIE", "HTTP_ORIGIN", "HTTP_X_LANGUAGE", "HTTP_CONTENT_ENCODING", "HTTP_RANGE"),
)
ODD_HEADERS = (
    *("", "\xff", "x" * 9000, "gzip", "-1"),
    "SDK-HMAC-SHA256 Access=AK, SignedHeaders=host, Signature=é",
)
NO_JSON = (b"", b"[" * 100_000, b"{", b"\xff", b"null")


def odd_request(chance: random.Random, job_ids: list[str]) -> Environ:

    def is_odd(share: float) -> bool:
        return chance.random() < share

    method, pattern = chance.choice(PATHS)
    known = {"<project_id>": "p1", "<job_id>": chance.choice(job_ids), "<task_id>": "worker-0"}
    segments = [known.get(part, part).encode() for part in pattern.split("/")]
    path = b"/".join(chance.choice(SEGMENTS) if is_odd(0.04) else segment for segment in segments)
    # Its valid body depends on the path suffix.
    fitting = [body for name, body in FITTING.items() if pattern.endswith(name)]
    value: Any = chance.choice(fitting if fitting and not is_odd(0.3) else BODIES)
    for _ in range(chance.choice((0, 1, 1, 1, 2, 5))):
        value = _changed(value, chance)
    content = chance.choice(NO_JSON) if is_odd(0.1) else json.dumps(value).encode()
    if content and is_odd(0.15):
        at = chance.randrange(len(content))
        content = content[:at] + chance.randbytes(1) + content[at + chance.randrange(3) :]
    headers = {} if is_odd(0.05) else {"HTTP_X_AUTH_TOKEN": TOKEN}
    headers |= {name: chance.choice(ODD_HEADERS) for name in HEADERS if is_odd(0.04)}
    method = chance.choice(METHODS) if is_odd(0.1) else method
    return environ_of(method, path, chance.choice(QUERIES) if is_odd(0.4) else "", content, **headers)


def check_all_are_answered(cloud: str, seed: int, count: int) -> set[int]:
    statuses, chance = set(), random.Random(seed)
    with Store(clock=ManualClock()) as store:
        app = create_app(store, token=TOKEN, access_key="AK", secret_key="SK", cloud=cloud, control=True)
        job_ids = [store.create("p1", a_body(name)).id for name in ("one", "two")]
        for number in range(count):
            app.faults.clear()
            environ = odd_request(chance, [*job_ids, "none"])
            try:
                statuses.add(check_it_is_answered(app, environ))
            except BaseException as error:
                asked = [environ[name][:200] for name in ("REQUEST_METHOD", "PATH_INFO", "QUERY_STRING")]
                raise AssertionError(seed, number, asked, environ["wsgi.input"].getvalue()[:400]) from error
    return statuses


@pytest.mark.parametrize("cloud", ["huawei", "otc"])
def test_odd_requests_never_cause_a_server_error(cloud: str, record_property: RecordProperty) -> None:
    # A new service every few hundred requests: accumulated jobs would slow down later ones.
    batches, statuses = size(1200, 0.3) // 600, set()
    for seed in range(batches):
        statuses |= check_all_are_answered(cloud, seed, 600)
    assert {200, 201, 400, 401, 404, 405} <= statuses
    count_tried(record_property, "malformed requests to the emulator", batches * 600)


# ── the control API ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:80"}, 200),
        ({"Host": "127.9.9.9"}, 200),
        ({"Host": "[::1]:8080"}, 200),
        ({"Origin": "http://localhost:3000"}, 200),
        ({"Host": "rebound.example"}, 403),
        ({"Host": "127.0.0.1.example"}, 403),
        ({"Host": "[::1"}, 403),
        ({"Host": ""}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": ""}, 403),
        ({"Origin": "http://127.0.0.1.example"}, 403),
        ({"Origin": "http://127.0.0.1@evil.example"}, 403),
    ],
)
def test_control_api_refuses_foreign_hosts_and_origins(
    store: Store, headers: dict[str, str], status: int
) -> None:
    client = Client(create_app(store, control=True))
    answer = client.get("/emulator/clock", headers=headers)
    assert answer.status_code == status
    assert ("error_code" in answer.get_json()) == (status != 200)


@pytest.mark.parametrize(
    ("credentials", "headers", "status"),
    [
        ({"token": TOKEN}, {}, 401),
        ({"token": TOKEN}, {"X-Auth-Token": "another"}, 401),
        ({"token": TOKEN}, {"X-Auth-Token": TOKEN}, 200),
        ({"access_key": "AK", "secret_key": "SK"}, {}, 401),
    ],
)
def test_control_api_requires_the_configured_credentials(
    store: Store, credentials: dict[str, str], headers: dict[str, str], status: int
) -> None:
    client = Client(create_app(store, control=True, **credentials))  # type: ignore[arg-type]
    assert client.get("/emulator/jobs", headers=headers).status_code == status
