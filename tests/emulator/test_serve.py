"""`reconciler emulator serve` in a process of its own: its address, its options, and chaos."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
from click.testing import CliRunner
from werkzeug.test import Client

from reconciler.cli.main import cli
from reconciler.emulator import Store, chaos, create_app, running

JOBS = "/v2/project/training-jobs"
SEARCH = "/v2/project/training-job-searches"
MakeJob = Callable[..., dict[str, Any]]
ROOT = Path(__file__).parents[2]


@contextmanager
def served(*options: str) -> Iterator[str]:
    """`reconciler emulator serve` with options; yield its URL."""
    process = subprocess.Popen(
        [sys.executable, "-m", "reconciler", "emulator", "serve", *options],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().removeprefix("listening on ").strip()
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=10)
    assert process.returncode == 0


# ── the address ────────────────────────────────────────────────────────────────────────────────

SETTINGS = "/emulator/settings"


def test_emulator_listens_on_localhost_by_default() -> None:
    with served() as url:
        assert url.startswith("http://127.0.0.1:")
        assert requests.get(f"{url}{SETTINGS}", timeout=10).status_code == 200


def test_emulator_on_a_public_address_has_no_control_api() -> None:
    with served("--host", "0.0.0.0") as url:
        here = url.replace("0.0.0.0", "127.0.0.1")
        assert requests.get(f"{here}{SETTINGS}", timeout=10).status_code == 404


# ── options ────────────────────────────────────────────────────────────────────────────────────

PAGE = (Path(__file__).parents[2] / "docs" / "emulator.md").read_text(encoding="utf-8")


def test_strict_service_refuses_an_unknown_flavor(a_job: MakeJob) -> None:
    with served("--strict") as url, requests.Session() as session:
        body = a_job(edits={"spec.resource.flavor_id": "my.flavor"})
        refused = session.post(f"{url}{JOBS}", json=body, timeout=10).json()
        assert refused["error_code"] == "ModelArts.2781"
        assert session.post(f"{url}{JOBS}", json=a_job(), timeout=10).status_code == 201


def test_item_offsets_option_makes_offsets_count_items(a_job: MakeJob) -> None:
    with served("--item-offsets") as url, requests.Session() as session:
        for name in ("a", "b", "c"):
            session.post(f"{url}{JOBS}", json=a_job(name), timeout=10)
        search = {"offset": 1, "limit": 2, "order": "asc"}
        items = session.post(f"{url}{SEARCH}", json=search, timeout=10).json()["items"]
        settings = session.get(f"{url}/emulator/settings", timeout=10).json()
    assert [job["metadata"]["name"] for job in items] == ["b", "c"]
    assert settings == {"offset_counts": "items"}


def test_security_token_option_without_access_key_is_wrong_usage() -> None:
    said = CliRunner().invoke(cli, ["emulator", "serve", "--security-token", "t"])
    assert said.exit_code == 2
    assert "goes with --access-key" in said.output


def test_flavors_and_engines_of_another_account_are_listed_among_the_others() -> None:
    with Store() as store:
        client = Client(create_app(store, flavors=("my.flavor",), engines=("my-engine",)))
        flavors = client.get("/v2/project/training-job-flavors").get_json()
        engines = client.get("/v2/project/training-job-engines").get_json()
    listed = [one["flavor_id"] for one in flavors["flavors"]]
    assert {"my.flavor", "modelarts.vm.cpu.2u"} <= set(listed)
    assert flavors["total_count"] == len(listed)
    assert "my-engine" in [one["engine_id"] for one in engines["items"]]


def test_strict_catalogue_takes_no_more_flavors() -> None:
    said = CliRunner().invoke(cli, ["emulator", "serve", "--strict", "--flavor", "my.flavor"])
    assert said.exit_code == 2
    assert "--flavor and --engine are not for --strict" in said.output
    with Store() as store, pytest.raises(ValueError, match="strict catalogue"):
        create_app(store, strict_catalogue=True, engines=("my-engine",))


@pytest.mark.parametrize("option", ["--strict", "--flavor", "--engine", "--item-offsets", "--security-token"])
def test_option_is_in_the_help_and_the_documentation(option: str) -> None:
    assert option in CliRunner().invoke(cli, ["emulator", "serve", "--help"]).output
    assert f"`{option}" in PAGE


# ── chaos: a share of all answers fails at random, the same ones for the same seed ─────────────


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
