"""The response to a create is broken: the job is found by its name, and never created twice.

The request has arrived and had its effect each time, so that a second POST would be a second start if the
service's names were not unique. The outcome is tested at two levels: every byte at which an answer
can end, and bits that flip, at the session; each way of `broken_answers`, plain and inside TLS, in an apply.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.stack import Target
from reconciler.decide.outcome import Status
from reconciler.errors import UNCERTAIN, ServiceError, Unreachable
from reconciler.modelarts.auth import Anonymous
from reconciler.modelarts.connect import connect
from reconciler.modelarts.http import Network, ServiceSession, SessionOptions
from tests.apply.service import PROJECT, Service, a_service, the_only
from tests.builders import a_job
from tests.hostile.broken_answers import TLS_WAYS, WAYS, cut, flipped
from tests.hostile.sizes import RecordProperty, count_tried, size, some
from tests.hostile.wire import Break, Wire, a_wire, make_certificate
from tests.modelarts.serving import Canned

FIGURE = "interrupted responses to a create"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@contextmanager
def a_wired_service(files: tuple[Path, Path] | None) -> Iterator[tuple[Service, Wire]]:
    """A service behind a wire, without real sleeps."""
    with a_service() as service, a_wire(service.app, files) as wire:
        said = {"kind": "modelarts", "endpoint": wire.url, "project_id": PROJECT}
        environ = {"MODELARTS_AUTH_TOKEN": "t", "REQUESTS_CA_BUNDLE": str(files[0]) if files else ""}
        with connect(Target.model_validate(said), environ, SessionOptions(clock=service.time)) as backend:
            network = backend.session._network._replace(read_timeout_s=1.0)
            backend.session._network = network
            service.backend = backend
            yield service, wire


def check_one_job_is_made(files: tuple[Path, Path] | None, name: str, break_it: Break) -> None:
    with a_wired_service(files) as (service, wire):
        wire.breaks = break_it
        outcome = the_only(service.apply(a_job()))
        assert (wire.posts, len(service.store.jobs())) == (1, 1), name
        assert (outcome.status, outcome.job) == (Status.DONE, service.job("a").id), (name, outcome.detail)


def test_create_with_a_broken_answer_is_settled_by_lookup(record_property: RecordProperty) -> None:
    for name, break_it in WAYS.items():
        check_one_job_is_made(None, name, break_it)
    count_tried(record_property, FIGURE, len(WAYS))


def test_create_with_a_broken_tls_answer_is_settled_by_lookup(
    certificate: tuple[Path, Path], record_property: RecordProperty
) -> None:
    ways = {**dict(some(list(WAYS.items()), 12, share=1.0)), **TLS_WAYS}
    for name, break_it in ways.items():
        check_one_job_is_made(certificate, name, break_it)
    count_tried(record_property, FIGURE, len(ways))


# ── at every byte ──────────────────────────────────────────────────────────────────────────────────

BODY = b'{"metadata": {"id": "3faf5c03", "name": "a"}, "status": {"phase": "Creating"}, "kind": "job"}'
HEADERS = {"Content-Type": "application/json", "X-Request-Id": "r1", "Content-Length": str(len(BODY))}
LENGTH = len(BODY) + len("HTTP/1.1 201 Said\r\n\r\n") + sum(len(f"{n}: {v}\r\n") for n, v in HEADERS.items())


def check_it_is_uncertain(wire: Wire, network: Network, break_it: Break, what: object) -> None:
    """Check for one POST with its response, or a failure with an unknown effect."""
    wire.breaks, wire.posts = break_it, 0
    told: Any = None
    try:
        with ServiceSession(wire.url, Anonymous(), SessionOptions(network=network)) as session:
            told = session.call("POST", "/v2/p/training-jobs", body={"name": "a"}).json()
    except ServiceError as failure:
        told = failure
    assert isinstance(told, (dict, *UNCERTAIN)), (what, told)
    assert not isinstance(told, Unreachable), (what, told)
    assert wire.posts == 1, what


@contextmanager
def an_answer(files: tuple[Path, Path] | None) -> Iterator[tuple[Wire, Network]]:
    network = Network(ca_bundle=str(files[0]) if files else None, read_timeout_s=1.0)
    with a_wire(Canned((201, BODY, HEADERS)), files) as wire:
        yield wire, network


def test_answer_cut_at_any_byte_leaves_the_effect_unknown(record_property: RecordProperty) -> None:
    with an_answer(None) as (wire, network):
        for with_reset in (False, True):
            for at in range(LENGTH):
                check_it_is_uncertain(wire, network, cut(at, with_reset=with_reset), (at, with_reset))
    count_tried(record_property, FIGURE, 2 * LENGTH)


def test_tls_answer_cut_at_any_byte_leaves_the_effect_unknown(
    certificate: tuple[Path, Path], record_property: RecordProperty
) -> None:
    places = some(range(LENGTH), 60)
    with an_answer(certificate) as (wire, network):
        for at in places:
            check_it_is_uncertain(wire, network, cut(at), at)
    count_tried(record_property, FIGURE, len(places))


def test_answer_with_a_flipped_bit_leaves_the_effect_unknown(record_property: RecordProperty) -> None:
    chance = random.Random(1)
    # Not the status, which may become one that explicitly denies the effect.
    places = [(chance.randrange(12, LENGTH), chance.randrange(8)) for _ in range(size(150))]
    with an_answer(None) as (wire, network):
        for at, bit in places:
            check_it_is_uncertain(wire, network, flipped(at, bit), (at, bit))
    count_tried(record_property, FIGURE, len(places))
