"""One listed job has invalid values: it is unknown, the others are planned, and nothing breaks.

Odd values are inserted as text, since a JSON library would not write most of them.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reconciler import reconcile
from reconciler.decide.plan import Action, Plan
from reconciler.modelarts.connect import connect_inprocess
from reconciler.modelarts.errors import parse
from reconciler.modelarts.http import SessionOptions
from reconciler.render import Content, View, render
from tests.apply.service import PROJECT, Service, a_service
from tests.builders import a_job, a_stack
from tests.hostile.sizes import RecordProperty, count_tried, size
from tests.modelarts.building import an_answer
from tests.modelarts.serving import Canned

JOBS = (a_job("first"), a_job("odd"), a_job("last"))
Path = tuple[str, ...]


def _deep(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


ODD: dict[str, bytes] = {
    "NaN": b"NaN",
    "Infinity": b"Infinity",
    "-Infinity": b"-Infinity",
    "1e999": b"1e999",
    "400 digits": b"9" * 400,
    "5000 digits": b"-" + b"9" * 5000,
    "200 levels": _deep(200),
    "100000 levels": _deep(100_000),
    "levels of objects": b'{"a":' * 500 + b'"]}"' + b"}" * 500,
    "a lone surrogate": b'"\\ud800"',
    "the other half": b'"x\\uDFFFx"',
    "an encoded surrogate": b'"\xed\xa0\x80"',
    "no utf-8": b'"\xff\xfe"',
    "an odd name": b'{"\\ud800": 1}',
}


class Spoiler:
    """Serves searches and details with some values of one job replaced."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.name = "odd"
        self.changes: list[tuple[Path, bytes]] = []

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        said: list[Any] = []
        content = b"".join(self.app(environ, lambda status, headers, _=None: said.append((status, headers))))
        if f'"{self.name}"'.encode() in content:
            told = json.loads(content)
            for job in told.get("items", [told]):
                if job.get("metadata", {}).get("name") == self.name:
                    for number, (path, _) in enumerate(self.changes):
                        _put(job, path, f"<{number}>")
            content = json.dumps(told).encode()
            for number, (_, value) in enumerate(self.changes):
                content = content.replace(b'"<%d>"' % number, value)
        start_response(said[-1][0], [("Content-Type", "application/json")])
        return [content]


def _put(job: Any, path: Path, value: Any) -> None:
    for part in path[:-1]:
        job = job.setdefault(part, {})
        if not isinstance(job, dict):
            return
    job[path[-1]] = value


def _paths(tree: Mapping[str, Any], prefix: Path = ()) -> Iterator[Path]:
    for name, value in tree.items():
        yield (*prefix, name)
        if isinstance(value, dict):
            yield from _paths(value, (*prefix, name))


@pytest.fixture(scope="module")
def spoiled() -> Iterator[tuple[Service, Spoiler, list[Path]]]:
    with a_service() as service:
        service.run(*JOBS)
        service.put_job("else")
        paths = list(_paths(json.loads(service.job("odd").text)))
        spoiler = Spoiler(service.app)
        with connect_inprocess(
            spoiler, project_id=PROJECT, options=SessionOptions(clock=service.time)
        ) as backend:
            service.backend = backend
            yield service, spoiler, [*paths, ("new",), ("metadata", "new"), ("status", "new", "deep")]


def look(service: Service) -> Plan:
    """Plan and render everything; check that every text can be encoded."""
    context = service.context(a_stack(*JOBS))
    plan, drift, status = reconcile.plan(context), reconcile.drift(context), reconcile.status(context)
    for format_ in ("text", "json"):
        render(Content.PLAN, plan, format_, View()).encode()
        render(Content.DRIFT, drift, format_, View()).encode()
        render(Content.STATUS, status, format_, View()).encode()
    actions = {action.key: action.action for action in plan.actions}
    assert (actions["first"], actions["last"]) == (Action.KEEP, Action.KEEP)
    return plan


#: Fields that identify a job.
NAMES = {("metadata",), ("metadata", "name"), ("metadata", "id"), ("metadata", "description")}


@pytest.mark.parametrize(("name", "then", "count"), [("odd", Action.UNKNOWN, 90), ("else", Action.KEEP, 60)])
def test_unrepresentable_value_makes_an_owned_job_unknown_and_leaves_the_others(
    spoiled: tuple[Service, Spoiler, list[Path]],
    name: str,
    then: Action,
    count: int,
    record_property: RecordProperty,
) -> None:
    service, spoiler, paths = spoiled
    spoiler.name = name
    cases = [(path, odd) for path in paths if name == "else" or path not in NAMES for odd in ODD]
    chosen = random.Random(1).sample(cases, min(len(cases), size(count)))
    for path, odd in chosen:
        spoiler.changes = [(path, ODD[odd])]
        actions = {action.key: action.action for action in look(service).actions}
        assert actions == {"first": Action.KEEP, "odd": then, "last": Action.KEEP}, (path, odd)
    count_tried(record_property, "invalid values in a job", len(chosen))


ANYTHING: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 10**18, 10**29, 1e300, 0.1, "", " ", "x" * 5000, "9" * 400, "nan", "inf"),
    *([], {}, [None], [[]], [{}], {"": None}, {"a": {"b": [1]}}, ["x", 1, None], "\x1b[2J", "\u202e", "é"),
    *("\U0001f600", "Completed", "Running", "odd", "2026-01-01T00:00:00Z", "30s", "-1", "1e400", "\u200b"),
)


def test_any_value_anywhere_in_a_job_does_not_break_the_plan(
    spoiled: tuple[Service, Spoiler, list[Path]], record_property: RecordProperty
) -> None:
    service, spoiler, paths = spoiled
    chance, count, spoiler.name = random.Random(2), size(150), "odd"
    for _ in range(count):
        chosen = [(chance.choice(paths), chance.choice(ANYTHING)) for _ in range(chance.randint(1, 3))]
        spoiler.changes = [(path, json.dumps(value).encode()) for path, value in chosen]
        try:
            look(service)
        except Exception as error:
            raise AssertionError(chosen) from error
    count_tried(record_property, "invalid values in a job", count)


# ── parsing ────────────────────────────────────────────────────────────────────────────────────────

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
)


@given(_VALUES)
def test_ordinary_json_is_parsed_unchanged(value: Any) -> None:
    assert repr(parse(json.dumps(value).encode())) == repr(value)


@given(
    st.from_regex(
        r"-?(0|[1-9]\d{0,25})(\.\d{1,25})?([eE][-+]?\d{1,3})?", fullmatch=True, alphabet="-+.eE0123456789"
    )
)
def test_number_is_parsed_as_the_standard_library_parses_it(number: str) -> None:
    assert repr(parse(f"[{number}]".encode())) == repr(json.loads(f"[{number}]"))


@given(st.binary(max_size=200))
@example(b'"\xff')
@example(b"[" * 3000)
@example(b"[" * 3000 + b'"' + b"]" * 3000)
@example(b'["\\"' * 2000)
@example(b"\xff\xfe[\x00")
def test_arbitrary_bytes_do_not_break_the_parser(content: bytes) -> None:
    with suppress(ValueError):
        parse(content)


def test_value_cut_for_its_depth_leaves_the_rest() -> None:
    deep = b"[" * 50_000 + b'"]["' + b"]" * 50_000
    told = parse(b'{"a": [' + deep + b', "[", {"b": 1}], "c": "}"}')
    assert told["c"] == "}"
    assert told["a"][1:] == ["[", {"b": 1}]


# ── many of a kind ─────────────────────────────────────────────────────────────────────────────────


def test_many_unreadable_jobs_are_counted_after_twenty() -> None:
    items = [an_answer(metadata__name=5, metadata__description="", metadata__id=f"i{n}") for n in range(40)]
    app = Canned((200, json.dumps({"items": copy.deepcopy(items)})))
    with a_service() as service, connect_inprocess(app, project_id=PROJECT) as backend:
        service.backend = backend
        context = service.context(a_stack(a_job()))
        for report in (reconcile.plan(context), reconcile.drift(context)):
            warnings = [one for one in report.warnings if one.what == "a job could not be read"]
            assert len(warnings) == 21
            assert warnings[-1].why == "20 more like this"
