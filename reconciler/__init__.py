"""Declarative training jobs for Huawei Cloud ModelArts and Open Telekom Cloud.

::

    manifests ──load──▶ desired jobs ──┐
                                       ├─decide─▶ plan ─guard─▶ apply
    ModelArts ─observe─▶ observed jobs ┘            └─render─▶ text, json

Start reading in `reconcile.py`: the loop, each step a line. `core` decides and does no I/O; the edges
(`manifests`, `backends`, `apply`, `records`, `render`) do, and decide nothing; `emulator` is a pretend
ModelArts that knows nothing of the rest.

From Python::

    from reconciler import Context, Runtime, SystemClock, connected, load, plan

    loaded = load([Path("jobs")], environ=os.environ)
    name, target = loaded.target(None)
    with connected(name, target, loaded.root, Runtime(os.environ, SystemClock())) as place:
        print(plan(Context(loaded, place)).summary)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from reconciler.version import __version__

if TYPE_CHECKING:
    from reconciler.backends.asked import Filter, Search, SearchBody, TagFilter, UpdateBody
    from reconciler.backends.clock import SystemClock
    from reconciler.backends.reported import JobPage, ReportedJob
    from reconciler.backends.told import (
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
    from reconciler.core.desired import JobBody
    from reconciler.core.drift import DriftReport
    from reconciler.core.plan import Plan
    from reconciler.core.ports import (
        NameTaken,
        NotFound,
        Rejected,
        ServerFault,
        ServiceFailure,
        Throttled,
        Unanswered,
        Unauthorized,
        Unreachable,
        UnreadableAnswer,
        WrongPhase,
    )
    from reconciler.manifests import LoadedStack, load
    from reconciler.reconcile import Context, drift, plan
    from reconciler.recording import Recording
    from reconciler.rollout import Rollout
    from reconciler.targets import Runtime, connected

#: The public names, by the module where they live: what is asked of the service and what it tells, its
#: failures, and the loop. Imported on first use, so that the command line stays quick.
_NAMES_BY_MODULE = {
    "backends.asked": ("Filter", "Search", "SearchBody", "TagFilter", "UpdateBody"),
    "backends.clock": ("SystemClock",),
    "backends.reported": ("JobPage", "ReportedJob"),
    "backends.told": (
        "Engine",
        "Event",
        "Events",
        "Flavor",
        "LogLines",
        "LogPreview",
        "Metric",
        "Quota",
        "Stages",
        "TaggedJob",
        "Task",
    ),
    "core.desired": ("JobBody",),
    "core.drift": ("DriftReport",),
    "core.plan": ("Plan",),
    "core.ports": (
        "NameTaken",
        "NotFound",
        "Rejected",
        "ServerFault",
        "ServiceFailure",
        "Throttled",
        "Unanswered",
        "Unauthorized",
        "Unreachable",
        "UnreadableAnswer",
        "WrongPhase",
    ),
    "manifests": ("LoadedStack", "load"),
    "reconcile": ("Context", "drift", "plan"),
    "recording": ("Recording",),
    "rollout": ("Rollout",),
    "targets": ("Runtime", "connected"),
}
_MODULE_BY_NAME = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names}

__all__ = [
    "Context",
    "DriftReport",
    "Engine",
    "Event",
    "Events",
    "Filter",
    "Flavor",
    "JobBody",
    "JobPage",
    "LoadedStack",
    "LogLines",
    "LogPreview",
    "Metric",
    "NameTaken",
    "NotFound",
    "Plan",
    "Quota",
    "Recording",
    "Rejected",
    "ReportedJob",
    "Rollout",
    "Runtime",
    "Search",
    "SearchBody",
    "ServerFault",
    "ServiceFailure",
    "Stages",
    "SystemClock",
    "TagFilter",
    "TaggedJob",
    "Task",
    "Throttled",
    "Unanswered",
    "Unauthorized",
    "Unreachable",
    "UnreadableAnswer",
    "UpdateBody",
    "WrongPhase",
    "__version__",
    "connected",
    "drift",
    "load",
    "plan",
]


def __getattr__(name: str) -> Any:
    if name in _MODULE_BY_NAME:
        return getattr(import_module(f"reconciler.{_MODULE_BY_NAME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
