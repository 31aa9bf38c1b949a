"""`emulator serve`: what its options change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests
from click.testing import CliRunner
from werkzeug.test import Client

from reconciler.cli.main import cli
from reconciler.emulator import Store, create_app
from tests.emulator.serving import served

JOBS = "/v2/project/training-jobs"
SEARCH = "/v2/project/training-job-searches"
MakeJob = Callable[..., dict[str, Any]]
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
