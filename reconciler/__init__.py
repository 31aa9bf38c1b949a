"""Declarative training jobs for Huawei Cloud ModelArts and Open Telekom Cloud.

::

    manifests ──load──▶ desired jobs ──┐
                                       ├─decide─▶ plan ─guard─▶ apply
    ModelArts ─observe─▶ observed jobs ┘            └─render─▶ text, json

From Python::

    import reconciler

    with reconciler.load("jobs/").connect() as session:
        print(session.plan())

Start reading in `reconcile.py`: the loop, each step a line. `core` decides and does no I/O; the edges
(`manifest`, `modelarts`, `apply`, `records`, `render`) do, and decide nothing; `emulator` is a pretend
ModelArts that knows nothing of the rest. `api.py` is what programs use, `cli` what people type.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from reconciler.version import __version__

if TYPE_CHECKING:
    from reconciler.api import (
        ApplyFailed,
        DriftReport,
        JobClient,
        Plan,
        Result,
        Session,
        Stack,
        WaitFailed,
        load,
        load_plan,
    )
    from reconciler.core.fields.job import JobBody
    from reconciler.core.record import LockHeld, RecordsUnavailable
    from reconciler.decide.outcome import ApplyEvent
    from reconciler.errors import (
        Diagnostic,
        ExitCode,
        Location,
        ManifestInvalid,
        NameTaken,
        NotFound,
        NotSupported,
        ReconcilerError,
        Refused,
        Rejected,
        ServerError,
        ServiceError,
        Throttled,
        Unanswered,
        Unauthorized,
        Unreachable,
        UnreadableAnswer,
        WrongPhase,
        WrongUsage,
    )
    from reconciler.modelarts.job_models import (
        Filter,
        JobPage,
        ReportedJob,
        Search,
        SearchBody,
        TagFilter,
        UpdateBody,
    )
    from reconciler.modelarts.operations import (
        Engine,
        Event,
        Events,
        Flavor,
        LogLines,
        LogPreview,
        Metric,
        Quota,
        Stages,
        TaggedJob,
        Task,
    )
    from reconciler.plan_file import StalePlan

#: The public names, by the module where they live. Imported on first use, so that the command line stays
#: quick. Everything else is private.
_NAMES_BY_MODULE = {
    "api": "ApplyFailed DriftReport JobClient Plan Result Session Stack WaitFailed load load_plan",
    "modelarts.job_models": "Filter JobPage ReportedJob Search SearchBody TagFilter UpdateBody",
    "modelarts.operations": "Engine Event Events Flavor LogLines LogPreview Metric Quota Stages TaggedJob "
    "Task",
    "core.fields.job": "JobBody",
    "decide.outcome": "ApplyEvent",
    "errors": (
        "Diagnostic ExitCode Location ManifestInvalid NameTaken NotFound NotSupported "
        "ReconcilerError Refused Rejected ServerError ServiceError Throttled Unanswered "
        "Unauthorized Unreachable UnreadableAnswer WrongPhase WrongUsage"
    ),
    "core.record": "LockHeld RecordsUnavailable",
    "plan_file": "StalePlan",
}
_MODULE_BY_NAME = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names.split()}

__all__ = [
    "ApplyEvent",
    "ApplyFailed",
    "Diagnostic",
    "DriftReport",
    "Engine",
    "Event",
    "Events",
    "ExitCode",
    "Filter",
    "Flavor",
    "JobBody",
    "JobClient",
    "JobPage",
    "Location",
    "LockHeld",
    "LogLines",
    "LogPreview",
    "ManifestInvalid",
    "Metric",
    "NameTaken",
    "NotFound",
    "NotSupported",
    "Plan",
    "Quota",
    "ReconcilerError",
    "RecordsUnavailable",
    "Refused",
    "Rejected",
    "ReportedJob",
    "Result",
    "Search",
    "SearchBody",
    "ServerError",
    "ServiceError",
    "Session",
    "Stack",
    "Stages",
    "StalePlan",
    "TagFilter",
    "TaggedJob",
    "Task",
    "Throttled",
    "Unanswered",
    "Unauthorized",
    "Unreachable",
    "UnreadableAnswer",
    "UpdateBody",
    "WaitFailed",
    "WrongPhase",
    "WrongUsage",
    "__version__",
    "load",
    "load_plan",
]


def __getattr__(name: str) -> Any:
    if name in _MODULE_BY_NAME:
        return getattr(import_module(f"reconciler.{_MODULE_BY_NAME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
