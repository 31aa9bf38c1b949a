"""The command line as processes that can be killed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.scenarios.zygote import Zygote


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """What forks a process for each run."""
    zygote = Zygote()
    yield zygote
    zygote.close()
