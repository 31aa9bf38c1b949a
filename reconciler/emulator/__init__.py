"""An emulator of ModelArts: the training-job API of the service, on a local port or in-process.

It is written from the API documents alone, imports nothing else of this project and shares no table
with it, so that a mistake made here and there must be made twice.

    store = Store("jobs.sqlite3")                      # or Store() for memory
    app = create_app(store, token="secret")            # a WSGI application
    serve(app, port=8080, on_ready=lambda server: print(server.url))

A job's environment variables can direct it: `EMULATOR_RUN_SECONDS` says for how long it runs,
`EMULATOR_RESULT` how that ends (Completed, Failed, Abnormal). A test advances a `ManualClock`, moves
jobs through the `Store` and makes requests fail with a `Fault`; `control` offers the same over HTTP.
"""

from reconciler.emulator.app import Application, create_app
from reconciler.emulator.control.api import ServedRequest
from reconciler.emulator.control.faults import Effect, Fault, Faults, ResponseLost, chaos
from reconciler.emulator.errors import ApiError
from reconciler.emulator.operations.lifecycle import Durations
from reconciler.emulator.server import Server, running, serve
from reconciler.emulator.settings import Settings
from reconciler.emulator.storage.clock import EmulatorClock, ManualClock
from reconciler.emulator.storage.database import StoreError
from reconciler.emulator.storage.job_row import Job
from reconciler.emulator.storage.store import Store

__all__ = [
    "ApiError",
    "Application",
    "Durations",
    "Effect",
    "EmulatorClock",
    "Fault",
    "Faults",
    "Job",
    "ManualClock",
    "ResponseLost",
    "ServedRequest",
    "Server",
    "Settings",
    "Store",
    "StoreError",
    "chaos",
    "create_app",
    "running",
    "serve",
]
