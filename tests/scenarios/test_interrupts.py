"""Ctrl-C, SIGTERM and SIGHUP at moments of a real process: a clean stop; a second signal stops at once.

The moments are those that `hooks` names: around the first commit and a later one, around a call of each
kind, and the last. Each of them meets two of the signals.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reconciler.apply.executor import INTERRUPTED, WITHOUT_EFFECT
from tests.scenarios.every_action import (
    APPLY,
    PLANNED,
    Place,
    World,
    check_the_next_apply_does_the_rest,
)
from tests.scenarios.fork_server import ForkServer, Run
from tests.scenarios.hooks import AFTER, BEFORE, HANDLED, HUNG, Accident

RecordProperty = Callable[[str, object], None]
EXITS = {"SIGHUP": 129, "SIGINT": 130, "SIGTERM": 143}
CHANGING = ("CreateTrainingJob", "ChangeTrainingJobDescription", "StopTrainingJob")
ENDS = {"action_completed": "done", "action_failed": "failed", "action_skipped": "skipped"}


def _result_of_newest_run(place: Place) -> Any:
    return place.ask_records("SELECT result FROM reconciler_runs ORDER BY id DESC LIMIT 1")[0][0]


def _runs(place: Place) -> Any:
    return place.ask_records("SELECT count(*) FROM reconciler_runs")[0][0]


def _outcomes(run: Run) -> Counter[str]:
    """Return the outcomes of the actions from the output."""
    return Counter(ENDS[event["type"]] for event in run.events if event["type"] in ENDS)


def _moments(world: World) -> list[str]:
    around = ["write #1", "write #12"]
    for operation in CHANGING:
        *_, request = (request for request in world.requests if request.startswith(operation))
        around.append(request)
    return [*(f"{when} {name}" for name in around for when in (BEFORE, AFTER)), world.moments[-2]]


@pytest.mark.parametrize("name", EXITS)
def test_first_signal_lets_actions_in_flight_finish(
    world: World, fork_server: ForkServer, tmp_path: Path, name: str, record_property: RecordProperty
) -> None:
    left_out = list(EXITS).index(name)
    chosen, came = [m for at, m in enumerate(_moments(world)) if at % len(EXITS) != left_out], 0
    for number, moment in enumerate(chosen):
        place, log = world.place.copy(tmp_path / str(number)), tmp_path / f"moments-{number}.txt"
        runs = _runs(place)
        run = fork_server.run(place.home, *APPLY, "--json", accidents=[Accident(moment, name)], log=log)
        if moment in log.read_text(encoding="utf-8").splitlines():
            came += 1
            assert run.code == EXITS[name], (moment, run.err)
            _check_nothing_more_was_sent(log, moment)
        if _outcomes(run):
            _check_it_stopped_in_order(run, moment)
            assert _runs(place) == runs + 1
            # After the last action there is nothing left to interrupt.
            assert _result_of_newest_run(place) == "interrupted" or not _was_cut_short(run)
        else:  # there was no plan yet, and nothing was begun
            assert _runs(place) == runs
            assert place.fates() == world.place.fates()
        if number % 2:  # this state is covered by the kill points
            check_the_next_apply_does_the_rest(world, place, fork_server, moment, with_plan=number == 1)
        shutil.rmtree(place.home)
    assert came >= len(chosen) - 2
    record_property("figure", ["signals at moments of an apply, each an orderly stop", came])


def _was_cut_short(run: Run) -> bool:
    return any("interrupted" in event.get("detail", "") for event in run.events)


def _check_nothing_more_was_sent(log: Path, moment: str) -> None:
    """Check that no mutating call follows the signal, except one in flight."""
    passed = log.read_text(encoding="utf-8").splitlines()
    # Other threads continue until the signal is handled.
    known = HANDLED if HANDLED in passed else moment
    later = [one.removeprefix(f"{BEFORE} ") for one in passed[passed.index(known) + 1 :]]
    is_one_in_flight = moment.removeprefix(f"{BEFORE} ").startswith(CHANGING)
    sent = [one for one in later if one.startswith(CHANGING)]
    assert len(sent) <= (0 if is_one_in_flight else 1), (moment, later)


def _check_it_stopped_in_order(run: Run, moment: str) -> None:
    """Check that each action is done, skipped, or has its progress reported."""
    ends = {event["key"]: event for event in run.events if event["type"] in ENDS}
    assert ends.keys() == PLANNED.keys(), moment
    last = run.events[-1]
    assert last["type"] == "apply_completed"
    summary = {how: many for how, many in last["summary"].items() if many}
    assert summary.pop("interrupted", 0) == _outcomes(run)["failed"]
    assert summary == _outcomes(run) - Counter(failed=1_000)
    cut_short = [e["message"] for e in ends.values() if e["type"] == "action_failed"]
    assert all(text.startswith("interrupted: ") for text in cut_short), cut_short
    skipped = {key: e["detail"] for key, e in ends.items() if e["type"] == "action_skipped"}
    assert skipped.pop("waiting")
    assert set(skipped.values()) <= {INTERRUPTED, WITHOUT_EFFECT}
    started = {event["key"] for event in run.events if event["type"] == "action_started"}
    assert {skipped[key] for key in started & skipped.keys()} <= {WITHOUT_EFFECT}


def test_skipped_actions_are_listed_in_the_text_output(
    world: World, fork_server: ForkServer, tmp_path: Path
) -> None:
    place = world.place.copy(tmp_path / "copy")
    moment = next(m for m in world.moments if m.startswith(f"{BEFORE} StopTrainingJob"))
    run = fork_server.run(place.home, *APPLY, accidents=[Accident(moment, "SIGTERM")])
    assert run.code == EXITS["SIGTERM"]
    assert "finishing the actions in flight; interrupt again to stop immediately" in run.err
    assert f"skipped   create new: {INTERRUPTED}" in run.out
    assert "succeeded terminate" in run.out
    assert "Apply interrupted: " in run.out


@pytest.mark.parametrize(("name", "operation"), list(zip(EXITS, CHANGING, strict=True)))
def test_second_signal_stops_at_once_and_reports_done_actions(
    world: World, fork_server: ForkServer, tmp_path: Path, name: str, operation: str
) -> None:
    place = world.place.copy(tmp_path / "copy")
    *_, request = (request for request in world.requests if request.startswith(operation))
    signals = [Accident(f"{BEFORE} {request}", name), Accident(request, HUNG[name])]
    run = fork_server.run(place.home, *APPLY, "--json", accidents=signals)
    assert run.code == EXITS[name], run.err
    last = run.events[-1]
    assert last["type"] == "apply_completed"
    summary = {how: many for how, many in last["summary"].items() if many}
    # An action may have ended its wait between the two signals.
    assert summary.pop("interrupted", 0) == _outcomes(run)["failed"]
    assert summary == _outcomes(run) - Counter(failed=1_000)
    assert summary["done"] > 0
    assert last["message"] in run.err
    assert _result_of_newest_run(place) == ""
    check_the_next_apply_does_the_rest(world, place, fork_server)


@pytest.mark.parametrize(
    "last_words",
    ["threading.Event().wait", "lambda: sys.stdout.write(1)", "lambda: os.close(1) or print('gone')"],
    ids=["nobody reads", "a fault", "the reader has gone"],
)
def test_second_signal_stops_despite_failing_or_hanging_output(last_words: str) -> None:
    script = f"""
import os, signal, sys, threading
from reconciler.cli.execution import Interrupt, interruptible
interrupt = Interrupt()
interrupt.last_words = {last_words}
with interruptible(interrupt):
    for _ in range(2):
        signal.raise_signal(signal.SIGINT)
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False
    )
    assert ended.returncode == 130, ended.stderr
    assert "Traceback" not in ended.stderr
