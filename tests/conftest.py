"""What holds for every test: nothing of the person who runs them is read or written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

_PERSONAL = ("RECONCILER_", "HUAWEICLOUD_", "HW_", "OS_", "MODELARTS_")


@pytest.fixture(scope="session", autouse=True)
def _nobodys_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """An empty home, and an environment without credentials or options (the live suite keeps its own)."""
    home: Path = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        if not any(name.startswith("RECONCILER_LIVE") for name in os.environ):
            for name in [name for name in os.environ if name.startswith(_PERSONAL)]:
                patch.delenv(name)
        yield
