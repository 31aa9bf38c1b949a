"""An emulator of ModelArts: the training-job API of the service, on a local port or in-process.

It is written from the API documents, and imports nothing else of this project, so that it does not share its
mistakes.

    store = Store("jobs.sqlite3")                      # or Store() for memory
    app = create_app(store, token="secret")            # a WSGI application
    serve(app, port=8080, on_ready=lambda server: print(server.url))

Environment variables of a job set its duration, `EMULATOR_RUN_SECONDS`, and its end, `EMULATOR_RESULT`
(Completed, Failed, Abnormal). Tests advance a `ManualClock`, change jobs through the `Store`, and make
requests fail with a `Fault`; the control API of `app` offers the same over HTTP.

Rejected requests raise `ApiError`. A module imports only modules listed before it::

    schemas                                    error responses; JSON bodies and their types
    lifecycle catalog                          the phases of a job; flavors, engines, pools
    validation responses                       a create request, an update, the response about a job
    search database store                      the jobs, in SQLite
    auth faults                                how it is set up and guarded, and what goes wrong
    jobs app server                            the operations, and how they are called
"""

from reconciler.emulator.app import Application, ServedRequest, create_app
from reconciler.emulator.auth import Settings
from reconciler.emulator.database import EmulatorClock, ManualClock, StoreError
from reconciler.emulator.faults import Effect, Fault, Faults, ResponseLost, chaos
from reconciler.emulator.lifecycle import Durations
from reconciler.emulator.schemas import ApiError
from reconciler.emulator.server import Server, running, serve
from reconciler.emulator.store import Job, Store

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
