"""Declarative training jobs for Huawei Cloud ModelArts and Open Telekom Cloud.

::

    manifests ──load──▶ desired jobs ──┐
                                       ├─decide─▶ plan ─guard─▶ apply
    ModelArts ─observe─▶ observed jobs ┘            └─render─▶ text, json

Start reading in `reconcile.py`: the loop, each step a line. `core` decides and does no I/O; the edges
(`manifests`, `backends`, `apply`, `render`) do, and decide nothing; `emulator` is a pretend ModelArts
that knows nothing of the rest.

From Python::

    from reconciler import Context, Surroundings, SystemClock, connected, load, plan

    loaded = load([Path("jobs")], environ=os.environ)
    name, target = loaded.target(None)
    with connected(name, target, Surroundings(loaded.root, os.environ, SystemClock())) as place:
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
    from reconciler.core.drift import DriftReport
    from reconciler.core.plan import Plan
    from reconciler.manifests import LoadedStack, load
    from reconciler.reconcile import Context, apply, drift, plan
    from reconciler.targets import Surroundings, connected

#: The public names and where they live. Imported on first use, so that the command line stays quick.
_PUBLIC = {
    "Context": "reconcile",
    "DriftReport": "core.drift",
    "Filter": "backends.asked",
    "JobPage": "backends.reported",
    "LoadedStack": "manifests",
    "Plan": "core.plan",
    "ReportedJob": "backends.reported",
    "Search": "backends.asked",
    "SearchBody": "backends.asked",
    "Surroundings": "targets",
    "SystemClock": "backends.clock",
    "TagFilter": "backends.asked",
    "UpdateBody": "backends.asked",
    "apply": "reconcile",
    "connected": "targets",
    "drift": "reconcile",
    "load": "manifests",
    "plan": "reconcile",
}

__all__ = [
    "Context",
    "DriftReport",
    "Filter",
    "JobPage",
    "LoadedStack",
    "Plan",
    "ReportedJob",
    "Search",
    "SearchBody",
    "Surroundings",
    "SystemClock",
    "TagFilter",
    "UpdateBody",
    "__version__",
    "apply",
    "connected",
    "drift",
    "load",
    "plan",
]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(f"reconciler.{_PUBLIC[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
