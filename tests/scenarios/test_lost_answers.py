"""A request or its response is lost: the same apply determines the outcome.

Each request of an undisturbed apply (named by `hooks`) has one accident in turn: it is lost before it
arrives, undetectably for the client, loses its response, is timed out, throttled, given up by a gateway, or
answered with half a document. Each mutating request is lost before it arrives, loses its response after its
effect, and has two more accidents in turn. With `EVERY_ACCIDENT=1` each request has all of them. Keys are
independent, so an apply has one accident per key. Sleeping between retries advances the clock.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import cycle, product
from pathlib import Path

import pytest

from reconciler.emulator import Effect, Fault
from tests.scenarios.every_action import (
    APPLY,
    MET,
    World,
    changes,
    check_it_ended_well,
)
from tests.scenarios.fork_server import ForkServer
from tests.scenarios.hooks import (
    BEFORE,
    GARBLED,
    GAVE_UP,
    LOST_AFTER,
    LOST_BEFORE,
    THROTTLED,
    TIMED_OUT,
    Accident,
)
from tests.scenarios.over_http import a_service, entry

RecordProperty = Callable[[str, object], None]
CHUNKS = 3
CHANGING = ("CreateTrainingJob", "ChangeTrainingJobDescription", "StopTrainingJob")
OTHERS = (LOST_AFTER, TIMED_OUT, THROTTLED, GAVE_UP, GARBLED)
#: The old keys of renamed keys.
FORMERLY = {"was-edited": "moved-and-edited", "was-here": "moved"}
#: An action that reads garbage fails, and the next apply completes it.
AFTER_NONSENSE = (0, 5, 8)


def _accidents(world: World) -> Iterator[Accident]:
    of_a_look, of_a_change = cycle((LOST_BEFORE, *OTHERS)), cycle(OTHERS[1:])
    for request in world.requests:
        if os.environ.get("EVERY_ACCIDENT"):
            chosen = {LOST_BEFORE, *OTHERS}
        elif request.startswith(CHANGING):
            chosen = {LOST_BEFORE, LOST_AFTER, next(of_a_change), next(of_a_change)}
        else:
            chosen = {next(of_a_look)}
        yield from (Accident(request, what) for what in sorted(chosen))


def _groups(accidents: Iterable[Accident]) -> list[list[Accident]]:
    """Group accidents, at most one per key; reads for all keys and garbage are alone."""
    groups: dict[tuple[object, ...], list[Accident]] = defaultdict(list)
    of_a_key: Counter[tuple[str, bool]] = Counter()
    for accident in accidents:
        *words, job, _ = accident.at.split()
        key = re.sub(r"-r\d+$", "", job)
        one = FORMERLY.get(key, key), accident.what == GARBLED
        of_a_key[one] += 1
        groups[(one[1], of_a_key[one]) if words else accident].append(accident)
    return list(groups.values())


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_stack_is_complete_after_any_lost_or_garbled_answer(
    world: World, fork_server: ForkServer, tmp_path: Path, chunk: int, record_property: RecordProperty
) -> None:
    accidents = list(_accidents(world))
    changing = sum(request.startswith(CHANGING) for request in world.requests)
    assert len(accidents) > len(world.requests) + 2 * changing
    assert len(accidents) >= 100
    chosen, met = _groups(accidents)[chunk::CHUNKS], 0
    for number, group in enumerate(chosen):
        place, log = world.place.copy(tmp_path / str(number)), tmp_path / f"moments-{number}.txt"
        run = fork_server.run(place.home, *APPLY, accidents=group, log=log)
        assert run.code in (AFTER_NONSENSE if group[0].what == GARBLED else (0,)), (group, run.err)
        moments = log.read_text(encoding="utf-8").splitlines()
        for accident in group:
            met += f"{BEFORE} {accident.at}" in moments
            _check_no_create_was_sent_blindly(accident, moments)
        place.let_pass(60)
        if run.code != 0:
            assert fork_server.run(place.home, *APPLY).code == 0, group
            place.let_pass(60)
        check_it_ended_well(world, place, group)
        if number % 3 == 0:
            assert changes(place, fork_server) == [], group
        shutil.rmtree(place.home)
    assert met >= sum(map(len, chosen)) * MET
    record_property("figure", ["requests or answers lost, refused or garbled", met])


def _check_no_create_was_sent_blindly(accident: Accident, moments: list[str]) -> None:
    """Check that a second POST follows only if the first one certainly had no effect."""
    if accident.at.startswith("CreateTrainingJob"):
        again = f"{BEFORE} {accident.at.removesuffix('1')}2" in moments
        assert again == (accident.what in (LOST_BEFORE, THROTTLED)), accident


# --- over a wire

LOSSES = [
    Fault(Effect.LOST_BEFORE),
    Fault(Effect.LOST_AFTER),
    Fault(Effect.ANSWER, status=429, code="APIGW.0308", retry_after_s=1),
    Fault(Effect.ANSWER, status=503, code="ModelArts.4302"),
    Fault(Effect.ANSWER_AFTER, status=504, code="APIGW.0201"),
    Fault(Effect.TRUNCATED),
    Fault(Effect.UNREADABLE),
]
BEFORE_IT = {"edited": entry(), "replaced": entry(), "gone": entry()}
WANTED = {"edited": entry(description="text"), "replaced": entry(lr=0.2), "new": entry()}


@pytest.mark.parametrize("loss", LOSSES, ids=lambda fault: f"{fault.effect}-{fault.status}")
def test_apply_over_http_with_lost_answers_ends_complete(
    fork_server: ForkServer, tmp_path: Path, loss: Fault
) -> None:
    with a_service(fork_server) as service:
        home = tmp_path / "copy"
        service.declare(home, BEFORE_IT)
        assert service.run(home, *APPLY).code == 0
        service.store.clock.advance(seconds=60)
        service.declare(home, WANTED)
        # The first one of each, and one in the midst of the replacement.
        for operation, nth in product(CHANGING, (1, 2)):
            service.app.faults.add(replace(loss, operation=operation, nth=nth))
        run = service.run(home, *APPLY)
        assert run.code == 0, run.err
        service.store.clock.advance(seconds=60)
        assert service.changes(home) == []
        assert set(service.jobs_of_each_revision().values()) == {1}
        assert service.active() == {"edited": 1, "new": 1, "replaced": 1}
        assert service.phases() == {
            "edited": "Running",
            "gone": "Terminated",
            "new": "Running",
            "replaced": "Terminated",
            "replaced-r2": "Running",
        }
