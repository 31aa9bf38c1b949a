"""The protocols of what the core is given: service, clock, catalog, logs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from reconciler.core.observed import Observation, ObservedJob

if TYPE_CHECKING:
    from reconciler.core.catalog import EngineOffer, FlavorOffer, Offered, RecordQuota
    from reconciler.core.observed import Listing, SearchFilter
    from reconciler.core.policy_expression import Answer, Question
    from reconciler.errors import Rejected


class EvaluateExpressions(Protocol):
    """Evaluates the expressions of policies. Any failure of an expression is its answer."""

    def __call__(
        self, questions: Sequence[Question], values: Sequence[Mapping[str, Any]]
    ) -> Sequence[Sequence[Answer]]:
        """Return for each question an answer for each of its places."""


class Clock(Protocol):
    """The time, as a dependency."""

    def now(self) -> float:
        """Seconds since 1970."""

    def sleep(self, seconds: float) -> None:
        """Return when `seconds` have passed, or earlier if the program is stopping."""


class Backend(Protocol):
    """A target's jobs. Any method may raise a `ServiceError`; all are thread-safe."""

    def observe(
        self, names: Collection[str] | None = None, needs_absence: Callable[[Observation], bool] | None = None
    ) -> Observation:
        """Read the whole workspace, or if that is cheaper, what a plan for these `names` needs.

        With names the result has at least every active job, and every job whose name begins with one of them.
        It is whole if `needs_absence` says of the partial result that a decision depends on the absence of a
        job. Read errors are part of the result.

        Raises:
            Unauthorized: nothing can be read, and retrying would not help.
        """

    def find(self, name: str) -> list[ObservedJob]:
        """Return all jobs with exactly this name, ignoring case. Raises if the list would be incomplete."""

    def name_is_taken(self, name: str) -> bool | None:
        """Return whether the service has the name, visible or not; None if it cannot be asked."""

    def details(self, job_id: str) -> ObservedJob:
        """Read one job."""

    def create(self, body: Mapping[str, Any]) -> ObservedJob:
        """Create a job, with a single request."""

    def update(self, job_id: str, changes: Mapping[str, Any]) -> None:
        """Change fields of a job: `description`, and others that the cloud allows."""

    def terminate(self, job_id: str) -> None:
        """Request the termination of a job, which is Terminating from then on."""


@runtime_checkable
class SupportsSearch(Protocol):
    """A backend that can search for jobs."""

    def search(
        self,
        filters: Sequence[SearchFilter] = ...,
        *,
        order: str = ...,
        sort_by: str = ...,
        more: Mapping[str, Any] = ...,
        limit: int | None = ...,
        wanted: Callable[[ObservedJob], bool] = ...,
    ) -> Listing:
        """Read the jobs that match; errors are part of the result.

        With a `limit`, reading stops after the page on which that many `wanted` jobs are reached. `more` are
        further fields of the search request.

        Raises:
            Unauthorized: reading is not allowed.
            Rejected: the service does not support a condition.
        """


class Catalog(Protocol):
    """What a target offers to jobs. Any method may raise a `ServiceError`: then it is unknown."""

    def flavor_offers(self, flavor_type: str | None = None) -> Offered[FlavorOffer]:
        """Return the flavors of the public pools, of one type or all."""

    def engine_offers(self) -> Offered[EngineOffer]:
        """Return the preset engines."""

    def pool_refusal(self, pool_id: str, flavor_id: str | None) -> Rejected | None:
        """Return why the service would refuse a dedicated pool, or a flavor of it; None if unknown."""

    def record_quota(self) -> RecordQuota | None:
        """Return the limit and number of job records; None if they are not limited."""


@runtime_checkable
class SupportsDiagnosis(Protocol):
    """A backend with details about its connection."""

    @property
    def skew_s(self) -> float | None:
        """How far our clock is ahead of the service's, in seconds; None if the service sent no time."""

    @property
    def endpoint(self) -> str:
        """The address of the service."""

    @property
    def credentials_origin(self) -> str:
        """The kind and origin of the credentials, without secrets."""


#: Called for each request with method, path, status (None: no response), seconds.
RequestListener = Callable[[str, str, int | None, float], None]
#: Called when the list of jobs is read. The yielded function is called with the number of jobs on each page.
ReadingListener = Callable[[], AbstractContextManager[Callable[[int], None]]]
#: Called when code is uploaded. The yielded function is called with the bytes sent, and their total.
UploadListener = Callable[[], AbstractContextManager[Callable[[int, int], None]]]
Secrets = Sequence[str]
