"""`--chaos`: a share of all answers fails at random, the same ones for the same seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import requests
from click.testing import CliRunner

from reconciler.cli.main import cli
from reconciler.emulator import Store, chaos, create_app, running
from tests.emulator.serving import served

SEARCH = "/v2/project/training-job-searches"
JOBS = "/v2/project/training-jobs"
MakeJob = Callable[..., dict[str, Any]]


def outcome(session: requests.Session, url: str) -> int | None:
    """The status of one search, or None where the connection closed."""
    try:
        return session.post(f"{url}{SEARCH}", json={}, timeout=10).status_code
    except requests.ConnectionError:
        return None


def outcomes(url: str, count: int) -> list[int | None]:
    with requests.Session() as session:
        return [outcome(session, url) for _ in range(count)]


@pytest.mark.parametrize("probability", [0.05, 0.5])
def test_chaos_fails_its_share_of_answers_over_http(store: Store, probability: float) -> None:
    app = create_app(store, faults=chaos(probability, seed=7))
    with running(app) as url:
        count = Counter(outcomes(url, 600))
    assert count.keys() == {200, 429, 500, 503, 504, None}, "every kind comes"
    failed = 600 - count[200]
    assert failed == pytest.approx(600 * probability, rel=0.5)


def test_throttled_answer_of_chaos_has_retry_after(store: Store) -> None:
    app = create_app(store, faults=chaos(0.5, seed=1))
    with running(app) as url, requests.Session() as session:
        for _ in range(100):
            try:
                answer = session.post(f"{url}{SEARCH}", json={}, timeout=10)
            except requests.ConnectionError:
                continue
            if answer.status_code == 429:
                assert answer.headers["Retry-After"] == "1"
                assert answer.json()["error_code"] == "APIGW.0308"
                return
    raise AssertionError("nothing was throttled")


def test_chaos_fails_some_requests_after_their_effect(store: Store, a_job: MakeJob) -> None:
    app = create_app(store, faults=chaos(1.0, seed=3))
    with running(app) as url, requests.Session() as session:
        for number in range(60):
            try:
                status = session.post(f"{url}{JOBS}", json=a_job(f"job-{number}"), timeout=10).status_code
                assert status >= 400
            except requests.ConnectionError:
                pass
    assert 5 < store.count("project") < 40


def test_chaos_with_the_same_seed_fails_the_same_requests(store: Store) -> None:
    runs = []
    for seed in (4, 4, 5):
        with running(create_app(store, faults=chaos(0.3, seed))) as url:
            runs.append(outcomes(url, 60))
    assert runs[0] == runs[1] != runs[2]


def test_chaos_spares_the_control_api(store: Store) -> None:
    app = create_app(store, control=True, faults=chaos(1.0))
    with running(app) as url, requests.Session() as session:
        assert {session.get(f"{url}/emulator/clock", timeout=10).status_code for _ in range(30)} == {200}
        assert session.delete(f"{url}/emulator/faults", timeout=10).status_code == 204
        assert outcome(session, url) == 200


# ── the command line ───────────────────────────────────────────────────────────────────────────────


def test_served_emulator_with_chaos_fails_requests_and_without_noise_echoes_jobs(a_job: MakeJob) -> None:
    with served("--chaos", "0.3", "--chaos-seed", "4", "--no-noise") as url:
        count = Counter(outcomes(url, 200))
        assert {429, 500, None} < count.keys()
        assert 200 - count[200] == pytest.approx(60, abs=30)
        with requests.Session() as session:
            session.delete(f"{url}/emulator/faults", timeout=10)
            made = session.post(f"{url}{JOBS}", json=a_job("plain"), timeout=10).json()
    assert made["algorithm"] == a_job()["algorithm"], "without noise a job is answered as it was sent"


def test_help_describes_the_chaos_options() -> None:
    text = CliRunner().invoke(cli, ["emulator", "serve", "--help"]).output
    for word in ("--chaos P", "--chaos-seed", "--no-noise", "429", "500", "connections closed"):
        assert word in " ".join(text.split())


@pytest.mark.parametrize("share", ["-0.1", "1.5", "many"])
def test_chaos_share_out_of_range_is_refused(share: str) -> None:
    assert CliRunner().invoke(cli, ["emulator", "serve", "--chaos", share]).exit_code == 2
