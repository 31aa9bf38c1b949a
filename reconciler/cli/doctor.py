"""The checks of `doctor` for one target. After a failure, dependent checks are skipped."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from reconciler import errors
from reconciler.cli.context import runtime
from reconciler.connection import open_recording, records_url
from reconciler.core.addresses import file_url, parse_store_url
from reconciler.core.observed import Listing
from reconciler.core.ownership import sort_by_key
from reconciler.core.ports import SupportsDiagnosis, SupportsSearch
from reconciler.core.record import RecordsUnavailable, Scope
from reconciler.core.stack import Target
from reconciler.core.values import TargetIdentity
from reconciler.decide import doctor as judge
from reconciler.decide.doctor import Check, Health, Trouble, failed, of_failure, passed, unchecked
from reconciler.errors import Diagnostic, ServiceError
from reconciler.files import RECORD_DIRECTORY
from reconciler.manifest import LoadedStack
from reconciler.modelarts.errors import is_missing_right
from reconciler.modelarts.local import LocalFileFailed
from reconciler.modelarts.login import IamUnreachable, LoginRefused
from reconciler.modelarts.target import Connected, connected, identity_of
from reconciler.records.recording import DATABASE

if TYPE_CHECKING:
    from reconciler.records.recording import Recording
    from reconciler.records.store import Records

LOCK = "lock"
_MAY_LIST, _MAY_READ = "may list jobs", "may read a job"
#: The IAM actions that these checks need.
_LIST, _GET = "modelarts:trainJob:list", "modelarts:trainJob:get"
_OF_JOBS = ("duplicates", "adoption")
#: The checks that need the service, in order.
_STEPS = ("endpoint", "clock", "project", _MAY_LIST, _MAY_READ, *_OF_JOBS)


def _from(step: str) -> tuple[str, ...]:
    return _STEPS[_STEPS.index(step) :]


class Examination:
    """Checks one target of a stack and its records.

    `given` is the address from `--records`; `place` is the target, once it is connected.
    """

    def __init__(self, loaded: LoadedStack, name: str, target: Target, given: str | None = None) -> None:
        self._loaded, self._name, self._target, self._given = loaded, name, target, given
        self._runtime = runtime()
        self._store: Records | None = None
        self._recording: Recording | None = None
        self.place: dict[str, str | None] = {
            "name": name,
            "kind": target.kind,
            "endpoint": target.endpoint or target.region,
            "project_id": target.project_id,
            "workspace_id": target.workspace_id,
        }

    def checks(self) -> Iterator[Check]:
        """Run the checks in order.

        Raises:
            WrongUsage: `--records` is not the address of a store.
        """
        with ExitStack() as cleanup:
            yield from self._of_records(cleanup)
            identity = None
            with suppress(errors.ManifestInvalid):  # reported when connecting
                identity = identity_of(self._name, self._target, self._runtime.environ)
            if identity is not None:
                yield self._of_lock(identity)
            rest = _STEPS if identity is not None else (LOCK, *_STEPS)
            try:
                opening = connected(self._name, self._target, self._loaded.root, self._runtime)
                place = cleanup.enter_context(opening)
            except LocalFileFailed as failure:
                yield of_failure("target", failure)
                yield from unchecked(rest, "the target cannot be opened")
            except ServiceError as failure:
                yield of_failure("credentials", failure)
                yield from unchecked(rest, "no credentials")
            except errors.ManifestInvalid as invalid:
                yield from _problems("target", invalid.diagnostics)
                yield from unchecked(rest, "the target is incomplete")
            except OSError as error:
                yield failed("target", f"{error.filename}: {error.strerror or error}")
                yield from unchecked(rest, "the target cannot be opened")
            else:
                if identity is None:
                    yield self._of_lock(place.identity)
                yield from self._of_service(place)

    def _of_records(self, cleanup: ExitStack) -> Iterator[Check]:
        try:
            url = records_url(self._target, self._given, self._loaded.records_url, self._runtime)
        except errors.ManifestInvalid as invalid:
            yield from _problems("records", invalid.diagnostics)
            yield from unchecked(("history",), "the record store URL is incomplete")
            return
        root = self._loaded.root
        store = parse_store_url(url or file_url(str(root / RECORD_DIRECTORY / DATABASE)))
        where, check = store.shown, None
        if store.kind.is_file:
            file = root / store.name
            where = f"this machine's file {file}"
            try:
                # The directory may not exist yet.
                existing = next(one for one in (file.parent, *file.parent.parents) if one.exists())
                tempfile.TemporaryFile(dir=existing).close()
            except OSError as error:
                why = f"{file.parent}: {error.strerror or error}"
                check = failed("records", why, f"make {file.parent} a writable directory")
        if check is None:
            recording = open_recording(url, root, self._runtime)
            cleanup.callback(recording.close)
            try:
                self._store = recording.reading()
                if self._store is not None:
                    self._store.check()
            except RecordsUnavailable as unavailable:
                [check, *_] = _problems("records", unavailable.diagnostics)
        if check is not None:
            yield check
            yield from unchecked(("history",), "the record store is unavailable")
            return
        self._recording = recording
        yield passed("records", where if self._store else f"{where}; nothing is recorded yet")
        is_shared = url is not None and not store.kind.is_file
        yield judge.of_history(is_local=self._target.traits.is_embedded, is_shared=is_shared)

    def _of_lock(self, identity: TargetIdentity) -> Check:
        if self._recording is None:
            return unchecked((LOCK,), "the record store is unavailable")[0]
        if self._store is None:
            return judge.of_lock(None, 0.0)
        try:
            holder = self._store.holder(Scope.of(self._loaded.stack.name, identity))
        except RecordsUnavailable as unavailable:
            return _problems(LOCK, unavailable.diagnostics)[0]
        return judge.of_lock(holder, self._runtime.clock.now())

    def _of_service(self, place: Connected) -> Iterator[Check]:
        backend, identity, is_embedded = place.backend, place.identity, self._target.traits.is_embedded
        diagnosis = backend if isinstance(backend, SupportsDiagnosis) else None
        endpoint = diagnosis.endpoint if diagnosis else identity.endpoint
        self.place |= {"endpoint": endpoint, "project_id": identity.project_id}
        listing = _list(place)
        if isinstance(listing.problem, LoginRefused | IamUnreachable):
            yield of_failure("credentials", listing.problem)
            yield from unchecked(_STEPS, "no token")
            return
        if is_embedded:
            yield passed("credentials", "none required")
        elif diagnosis:
            yield passed("credentials", diagnosis.credentials_origin)
        else:
            yield _unsupported(place, "credentials", "report the source of its credentials")
        failure = listing.problem if isinstance(listing.problem, ServiceError) else None
        is_answer = isinstance(failure, errors.Unauthorized | errors.Rejected)
        if failure and (isinstance(failure, LocalFileFailed) or not is_answer):
            yield of_failure("endpoint", failure)
            yield from unchecked(_from("clock"), "the service does not respond")
            return
        yield passed("endpoint", f"{endpoint} responds")
        if is_embedded:
            clock = passed("clock", "jobs are timed by this machine's clock")
        elif diagnosis:
            clock = judge.of_clock(diagnosis.skew_s)
        else:
            clock = _unsupported(place, "clock", "report the time of its service")
        yield clock
        if failure and clock.health is Health.WRONG:
            # More failed signatures might lock the key.
            yield from unchecked(_from("project"), "the clock must be correct first")
        elif isinstance(failure, errors.Unauthorized) and not is_missing_right(failure):
            yield from _shut_out(failure, _from("project"))
        elif isinstance(failure, errors.Rejected):
            yield of_failure("endpoint", failure)
            yield from unchecked(_from("project"), "the endpoint does not look like the service")
        else:
            yield passed("project", identity.project_id)
            yield from self._of_access(place, listing)

    def _of_access(self, place: Connected, listing: Listing) -> Iterator[Check]:
        if isinstance(listing.problem, ServiceError):
            yield _denied(_MAY_LIST, _LIST, listing.problem)
        elif listing.problem:
            yield failed(_MAY_LIST, listing.problem, "retry", Trouble.UNREACHABLE)
        else:
            yield passed(_MAY_LIST, _LIST)
        try:
            yield _read(place, listing)
        except errors.Unauthorized as failure:
            yield from _shut_out(failure, _from(_MAY_READ))
            return
        if listing.problem:
            yield from unchecked(_OF_JOBS, "the list cannot be read")
            return
        stack = self._loaded.stack
        try:
            seen = place.backend.observe(stack.declared_keys)
        except errors.Unauthorized as failure:
            yield from _shut_out(failure, _OF_JOBS)
            return
        if seen.problem is not None:
            yield failed("the list", seen.problem, "retry", Trouble.UNREACHABLE)
        for lost in seen.unreadable:
            name = lost.name or lost.id or "a job"
            yield failed("the list", f"{name} cannot be read: {lost.why}", None, Trouble.UNREACHABLE)
        ownership = sort_by_key(seen, stack.name, stack.declared_keys)
        owned = [revision for view in ownership.views.values() for revision in view.owned]
        if owned and self._recording is not None:
            scope = Scope.of(stack.name, place.identity)
            self._recording.remember(scope, owned, place.clock.now())
        yield from judge.of_duplicates(ownership)
        yield from judge.of_conflicting_jobs(ownership, stack.declared_keys)


def _problems(name: str, diagnostics: Sequence[Diagnostic]) -> list[Check]:
    return [failed(name, f"{problem.what}: {problem.why}", problem.fix) for problem in diagnostics]


def _unsupported(place: Connected, name: str, feature: str) -> Check:
    return Check(name, Health.UNCHECKED, place.not_supported(feature).message)


def _list(place: Connected) -> Listing:
    try:
        if isinstance(place.backend, SupportsSearch):
            return place.backend.search(limit=1)
        seen = place.backend.observe()
    except errors.Unauthorized as failure:
        return Listing(problem=failure)
    return Listing(list(seen.jobs), list(seen.unreadable), seen.problem)


def _shut_out(failure: errors.Unauthorized, rest: Sequence[str]) -> Iterator[Check]:
    """Report one error for all remaining checks: more failed requests might lock the key."""
    found = of_failure("authentication", failure)
    yield found
    yield from unchecked(
        (name for name in rest if name != found.name), "the service denies this account access"
    )


def _read(place: Connected, listing: Listing) -> Check:
    """Check that the details of a job can be read.

    Raises:
        Unauthorized: the account has no access at all.
    """
    if not listing.jobs:
        return Check(_MAY_READ, Health.UNCHECKED, "the workspace has no job to test this with")
    try:
        place.backend.details(listing.jobs[0].id)
    except errors.NotFound:
        return Check(_MAY_READ, Health.UNCHECKED, "the job has been deleted")
    except ServiceError as failure:
        return _denied(_MAY_READ, _GET, failure)
    return passed(_MAY_READ, _GET)


def _denied(name: str, action: str, failure: ServiceError) -> Check:
    if is_missing_right(failure):
        found = of_failure(name, failure)
        return failed(name, found.detail, f"ask for a role that includes {action}", Trouble.ACCESS)
    if isinstance(failure, errors.Unauthorized):
        raise failure
    return of_failure(name, failure)
