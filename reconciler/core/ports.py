"""What an edge is handed: the protocols of a service, its clock, its catalog and its logs."""

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
    """Answers questions of policies; however an expression fails, that is its answer."""

    def __call__(
        self, questions: Sequence[Question], values: Sequence[Mapping[str, Any]]
    ) -> Sequence[Sequence[Answer]]:
        """For each question, an answer for each of its places."""


class Clock(Protocol):
    """Time, as a value that is handed in."""

    def now(self) -> float:
        """Seconds since 1970."""

    def sleep(self, seconds: float) -> None:
        """Return when `seconds` have passed, or earlier if the program is to stop."""


class Backend(Protocol):
    """A place where jobs live. Any method may raise a `ServiceError`; all are safe to call from threads."""

    def observe(
        self, names: Collection[str] | None = None, needs_absence: Callable[[Observation], bool] | None = None
    ) -> Observation:
        """Read the workspace: all of it, or what a plan for these `names` needs if that is cheaper.

        With names the answer holds at least every active job, and every job whose name begins with one
        of them; it is whole if it had to be, because `needs_absence` says of the partial answer that a
        decision rests on a job not being there. What cannot be read is said in the answer, not raised.

        Raises:
            Unauthorized: nothing can be read, and no later look would help.
        """

    def find(self, name: str) -> list[ObservedJob]:
        """Return the jobs with exactly this name (case aside); the list is complete, or it raises."""

    def name_is_taken(self, name: str) -> bool | None:
        """Ask whether the service holds the name, seen or not; None where it cannot be asked."""

    def details(self, job_id: str) -> ObservedJob:
        """Read one job."""

    def create(self, body: Mapping[str, Any]) -> ObservedJob:
        """Create a job; asked once, never repeated."""

    def update(self, job_id: str, changes: Mapping[str, Any]) -> None:
        """Change fields of a job: `description`, and what the cloud lets one change."""

    def terminate(self, job_id: str) -> None:
        """Ask for the end of a job; it is Terminating from then on."""


@runtime_checkable
class SupportsSearch(Protocol):
    """A backend that finds jobs by conditions of its own."""

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
        """Read the jobs that match; failures are in the answer.

        With a `limit` reading stops after the page on which so many `wanted` jobs are reached. `more` are
        further fields of the search.

        Raises:
            Unauthorized: nobody is allowed to read it.
            Rejected: one of the conditions is not known.
        """


class Catalog(Protocol):
    """What a target offers to jobs. Any method may raise a `ServiceError`: then it is not known."""

    def flavor_offers(self, flavor_type: str | None = None) -> Offered[FlavorOffer]:
        """The flavors of the public pools, of one type or all."""

    def engine_offers(self) -> Offered[EngineOffer]:
        """The preset engines."""

    def pool_refusal(self, pool_id: str, flavor_id: str | None) -> Rejected | None:
        """Why the service would refuse a dedicated pool, or a flavor of it; None if nothing is known."""

    def record_quota(self) -> RecordQuota | None:
        """How many job records there may be, and are; None where that is not limited."""


@runtime_checkable
class SupportsDiagnosis(Protocol):
    """A backend that says how it reaches its service."""

    @property
    def skew_s(self) -> float | None:
        """How far our clock is ahead of the service's, in seconds; None if it told no time."""

    @property
    def endpoint(self) -> str:
        """The address of the service."""

    @property
    def credentials_origin(self) -> str:
        """What the credentials are and where they were found, without a secret."""


#: Told about each request: method, path, status (None: no answer), seconds.
RequestListener = Callable[[str, str, int | None, float], None]
#: Asked for when the list of jobs is read: what it yields is told how many jobs each page had.
ReadingListener = Callable[[], AbstractContextManager[Callable[[int], None]]]
#: Asked for when code is uploaded: what it yields is told how many bytes of how many have been sent.
UploadListener = Callable[[], AbstractContextManager[Callable[[int, int], None]]]
Secrets = Sequence[str]
