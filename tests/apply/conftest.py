"""The service for tests of apply."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from reconciler.core.fields.field_types import Cloud
from tests.apply.service import Service, a_service


@pytest.fixture
def service() -> Iterator[Service]:
    """Huawei Cloud's dialect: a name can be checked."""
    with a_service() as opened:
        yield opened


@pytest.fixture(params=list(Cloud), ids=str)
def either(request: pytest.FixtureRequest) -> Iterator[Service]:
    with a_service(request.param) as opened:
        yield opened
