"""A repository with a stack, and the service that its jobs run on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.emulator import ManualClock, Store, create_app, running
from tests.ci.repository import ACCESS_KEY, PROJECT, SECRET_KEY, Repository
from tests.git_repository import make_repository

#: The CI scripts under test need bash.
needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repository]:
    """A git repository with a manifest; its target `prod` is an emulated service that checks signatures."""
    directory: Path = tmp_path_factory.mktemp("ci")
    with (
        pytest.MonkeyPatch.context() as patch,
        Store(clock=ManualClock()) as store,
        running(
            create_app(
                store, project_id=PROJECT, access_key=ACCESS_KEY, secret_key=SECRET_KEY, tells_time=True
            )
        ) as url,
    ):
        git = make_repository(directory / "repository", patch)
        git("config", "uploadpack.allowAnySHA1InWant", "true")
        yield Repository(directory / "repository", git, store, url)
