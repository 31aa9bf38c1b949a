"""Longer time limits for runs with very many inputs."""

from __future__ import annotations

import pytest

from tests.hostile.sizes import FUZZ


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test an hour if many inputs are requested."""
    if FUZZ:
        for item in items:
            if item.path.parent.name == "hostile":
                item.add_marker(pytest.mark.timeout(3600))
