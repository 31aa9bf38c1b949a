"""A place to test against: the emulator, called inside the process or over HTTP, with each credential."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from reconciler.backends.connect import connect, connect_inprocess
from reconciler.backends.modelarts import ModelArtsBackend
from reconciler.core.stack import Target, TargetKind
from reconciler.emulator.app import Application, create_app
from reconciler.emulator.clock import ManualClock
from reconciler.emulator.server import running
from reconciler.emulator.store import Store
from tests.backends.building import ACCESS_KEY, PROJECT, SECRET_KEY, TOKEN, StoppedClock


@pytest.fixture
def emulator() -> Iterator[Application]:
    """The service, with a clock that stands still until a test advances it."""
    with Store(clock=ManualClock()) as store:
        yield create_app(store, project_id=PROJECT)


@pytest.fixture
def clock() -> StoppedClock:
    """The client's clock: sleeping moves it, and takes no time."""
    return StoppedClock()


@pytest.fixture
def local(emulator: Application, clock: StoppedClock) -> Iterator[ModelArtsBackend]:
    """A backend on the emulator, without a socket."""
    with connect_inprocess(emulator, project_id=PROJECT, clock=clock) as backend:
        yield backend


@pytest.fixture(params=["in process", "token", "access key", "otc"])
def backend(request: pytest.FixtureRequest) -> Iterator[ModelArtsBackend]:
    """One backend after the other: what is true of all of them is the contract."""
    cloud = "otc" if request.param == "otc" else "huawei"
    with Store(clock=ManualClock()) as store:
        app = create_app(
            store,
            project_id=PROJECT,
            token=TOKEN if request.param != "access key" else None,
            access_key=ACCESS_KEY if request.param == "access key" else None,
            secret_key=SECRET_KEY if request.param == "access key" else None,
            cloud=cloud,
        )
        if request.param == "in process":
            app.settings = create_app(store, project_id=PROJECT).settings
            with connect_inprocess(app, project_id=PROJECT) as inside:
                yield inside
            return
        environ = {"MODELARTS_AUTH_TOKEN": TOKEN}
        if request.param == "access key":
            environ = {"HUAWEICLOUD_SDK_AK": ACCESS_KEY, "HUAWEICLOUD_SDK_SK": SECRET_KEY}
        with running(app) as url:
            target = Target.model_validate(
                {"kind": TargetKind.MODELARTS, "endpoint": url, "project_id": PROJECT, "cloud": cloud}
            )
            with connect(target, environ) as outside:
                yield outside
