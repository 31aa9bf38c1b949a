"""A target that is open, and what it was opened with: what every kind of target has in common."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from reconciler.core.fields.marks import Cloud
from reconciler.core.ports import (
    Backend,
    Catalog,
    Clock,
    Logs,
    ReadingListener,
    RequestListener,
    SupportsCatalog,
    SupportsDelete,
    SupportsLogs,
    SupportsSearch,
)
from reconciler.core.secret import Redactor
from reconciler.core.values import TargetIdentity
from reconciler.errors import NotSupported
from reconciler.modelarts.retry import RateLimiter

_OTHER_KIND = "use a target of another kind: --target"


@dataclass(frozen=True, slots=True)
class Connected:
    """A target that can be asked: its backend, who it is, what its cloud can change on a job, its clock.

    `checks_offers` says that a create which names what is not in the catalog is refused. What not every
    kind of target can do is asked for by a property, which raises `NotSupported` where it cannot.
    """

    backend: Backend
    identity: TargetIdentity
    cloud: Cloud
    clock: Clock
    checks_offers: bool = False

    @property
    def search(self) -> SupportsSearch:
        """The backend, as one that finds jobs by conditions."""
        if isinstance(self.backend, SupportsSearch):
            return self.backend
        raise self.not_supported("search for jobs", "reconciler status shows the jobs of the stack")

    @property
    def deletion(self) -> SupportsDelete:
        """The backend, as one whose records can be deleted."""
        if isinstance(self.backend, SupportsDelete):
            return self.backend
        raise self.not_supported("delete the records of jobs")

    @property
    def logs(self) -> Logs:
        """What jobs report while they run."""
        if isinstance(self.backend, SupportsLogs):
            return self.backend.logs
        raise self.not_supported("show logs, events and metrics of jobs")

    @property
    def catalog(self) -> Catalog:
        """What the target offers."""
        if isinstance(self.backend, SupportsCatalog):
            return self.backend.catalog
        raise self.not_supported("list what it offers")

    def not_supported(self, ability: str, fix: str = _OTHER_KIND) -> NotSupported:
        """The refusal of what this kind of target cannot do."""
        name, kind = self.identity.name, self.identity.kind
        return NotSupported(f"target {name} is of kind {kind}, which cannot {ability}", fix=fix)


def _ignore(_: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Runtime:
    """What runs a stack: its environment and clock, what is kept out of every output, and who is told.

    `redactor` learns each value that must not be seen, and takes all of them out of what the service says.
    `warn` is told what a person should know, `tell` what `-v` shows, `on_request` of each request, and
    `reading` when the list of jobs is read. Once `stop` is set nobody sleeps any more, and nothing that
    changes something is sent. `command` is what the records name as such. `limiter` spreads
    the requests to a service that is not on this machine; left out, it is the one of this process.
    """

    environ: Mapping[str, str]
    clock: Clock
    redactor: Redactor = field(default_factory=Redactor)
    warn: Callable[[str], None] = _ignore
    tell: Callable[[str], None] = _ignore
    on_request: RequestListener | None = None
    reading: ReadingListener | None = None
    stop: threading.Event | None = None
    command: str = ""
    limiter: RateLimiter | None = None
