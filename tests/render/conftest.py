"""One shared browser for all page tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.render.browser import Page, installed, started


@pytest.fixture(scope="session")
def browser_page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    program = installed()
    if program is None:
        pytest.skip("needs Chromium (Debian: apt install chromium)")
    with started(program, tmp_path_factory.mktemp("profile")) as browser:
        yield browser.page()
