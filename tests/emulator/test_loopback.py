"""`emulator serve` is reached from this machine alone unless told otherwise, and only then directed."""

from __future__ import annotations

import requests

from tests.emulator.serving import served

SETTINGS = "/emulator/settings"


def test_emulator_listens_on_localhost_by_default() -> None:
    with served() as url:
        assert url.startswith("http://127.0.0.1:")
        assert requests.get(f"{url}{SETTINGS}", timeout=10).status_code == 200


def test_emulator_on_a_public_address_has_no_control_api() -> None:
    with served("--host", "0.0.0.0") as url:
        here = url.replace("0.0.0.0", "127.0.0.1")
        assert requests.get(f"{here}{SETTINGS}", timeout=10).status_code == 404
