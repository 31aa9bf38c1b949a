"""Declarative training jobs for Huawei Cloud ModelArts and Open Telekom Cloud.

::

    manifests ──load──▶ desired jobs ──┐
                                       ├─decide─▶ plan ─guard─▶ apply
    ModelArts ─observe─▶ observed jobs ┘            └─render─▶ text, json

From Python::

    import reconciler

    with reconciler.load("jobs/").connect() as session:
        print(session.plan())

Start reading in `reconcile.py`, the reconcile loop. `decide` and `core` do no I/O; the edges (`manifest`,
`modelarts`, `apply`, `records`, `render`) do I/O and decide nothing. `emulator` imitates ModelArts and is
independent of the rest. `api.py` is the Python API, `cli` the command line.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from reconciler.version import __version__ as __version__

# `X as X` marks a name as public for type checkers.
# isort: off
if TYPE_CHECKING:
    from reconciler.api import (
        ApplyFailed as ApplyFailed,
        DriftReport as DriftReport,
        Explanation as Explanation,
        ExportedManifest as ExportedManifest,
        HistoryReport as HistoryReport,
        JobClient as JobClient,
        Plan as Plan,
        Result as Result,
        Session as Session,
        Stack as Stack,
        StatusReport as StatusReport,
        WaitFailed as WaitFailed,
        load as load,
        load_plan as load_plan,
    )
    from reconciler.core.record import RecordsUnavailable as RecordsUnavailable
    from reconciler.decide.outcome import ApplyEvent as ApplyEvent
    from reconciler.errors import (
        Diagnostic as Diagnostic,
        ExitCode as ExitCode,
        Location as Location,
        LockHeld as LockHeld,
        ManifestInvalid as ManifestInvalid,
        NameTaken as NameTaken,
        NotFound as NotFound,
        NotSupported as NotSupported,
        ReconcilerError as ReconcilerError,
        Refused as Refused,
        Rejected as Rejected,
        ServerError as ServerError,
        ServiceError as ServiceError,
        Throttled as Throttled,
        Unanswered as Unanswered,
        Unauthorized as Unauthorized,
        Unreachable as Unreachable,
        UnreadableAnswer as UnreadableAnswer,
        WrongPhase as WrongPhase,
        WrongUsage as WrongUsage,
    )
    from reconciler.modelarts.operations import Event as Event, Metric as Metric, ReportedJob as ReportedJob
    from reconciler.plan_file import StalePlan as StalePlan

# isort: on

#: The public names by module, imported on first use for a fast command line. Everything else is private.
_NAMES_BY_MODULE = {
    "api": (
        "ApplyFailed DriftReport Explanation ExportedManifest HistoryReport JobClient Plan Result Session "
        "Stack StatusReport WaitFailed load load_plan"
    ),
    "modelarts.operations": "Event Metric ReportedJob",
    "decide.outcome": "ApplyEvent",
    "errors": (
        "Diagnostic ExitCode Location LockHeld ManifestInvalid NameTaken NotFound NotSupported "
        "ReconcilerError Refused Rejected ServerError ServiceError Throttled Unanswered "
        "Unauthorized Unreachable UnreadableAnswer WrongPhase WrongUsage"
    ),
    "core.record": "RecordsUnavailable",
    "plan_file": "StalePlan",
}
_MODULE_BY_NAME = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names.split()}

__all__ = sorted([*_MODULE_BY_NAME, "__version__"])


def __getattr__(name: str) -> Any:
    if name in _MODULE_BY_NAME:
        return getattr(import_module(f"reconciler.{_MODULE_BY_NAME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
