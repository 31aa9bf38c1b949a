"""The steps of one action. Each observes before it calls, and calls once.

Source: docs/concepts/crash-safety.md, "Apply", points 4 to 6.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

from reconciler.apply.journaled import JournaledBackend, Terms
from reconciler.apply.waiter import WaitingForJob, wait_for
from reconciler.core.body import is_of_same_form
from reconciler.core.identity import MAX_DESCRIPTION, Description
from reconciler.core.mutable import legal_now, unapplied_paths, unreported_paths
from reconciler.core.observed import ObservedJob
from reconciler.core.ownership import ConflictingJob
from reconciler.core.phase import Operation, Phase, may
from reconciler.core.record import RecordsUnavailable
from reconciler.core.stack import DesiredJob
from reconciler.decide.actions import clears_stopped, has_planned_flags
from reconciler.decide.doctor import MAX_SKEW_S
from reconciler.decide.key_state import stopped_itself
from reconciler.decide.outcome import Goal, Outcome, Status, WaitEnd, judge_wait
from reconciler.decide.plan import Action, PlannedAction, Reason
from reconciler.errors import (
    UNCERTAIN,
    Interrupted,
    NameTaken,
    NotFound,
    ServiceError,
    Throttled,
    Unauthorized,
    Unreachable,
    UnreadableAnswer,
    WrongPhase,
)

#: Maximum number of attempts of a request that may be repeated only after a new observation. The backend
#: retries idempotent ones (reads, PUT, terminate) itself.
ATTEMPTS = 4


class ActionEnded(Exception):
    """Ends the action without success."""

    def __init__(self, status: Status, detail: str, job: str | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.job = status, detail, job


class Steps:
    """Executes one action."""

    def __init__(
        self,
        action: PlannedAction,
        backend: JournaledBackend,
        terms: Terms,
        stack: str,
        tell_progress: Callable[[ObservedJob], None],
    ) -> None:
        self.action, self._backend, self._stack, self._tell_progress = action, backend, stack, tell_progress
        self._clock, self._timeout_s, self._cloud = terms.clock, terms.timeout_s, terms.cloud
        self._checks, self._is_interrupted = terms.checks, terms.stop.is_set
        self._prepare = terms.prepare

    @property
    def _next_name(self) -> str:
        assert self.action.after is not None
        return self.action.after.name

    def run(self) -> Outcome:
        """Execute the action. Failures are in the outcome.

        Raises:
            LockLost: another process may hold the lock.
            Interrupted: a stop was requested; completed calls are not undone.
        """
        do = {
            Action.CREATE: self._create,
            Action.UPDATE: self._update,
            Action.TERMINATE: self._terminate,
            Action.REPLACE: self._replace,
        }[self.action.action]
        try:
            if self.action.traits.starts_a_job:
                self._prepare(self.action, self._backend.pause)
            job, detail = do()
            due = self.action.detail if self.action.scheduled_for is not None else ""
            return Outcome(self.action, Status.DONE, "; ".join(filter(None, (due, detail))), job)
        except Interrupted:
            raise
        except (ActionEnded, ServiceError, RecordsUnavailable) as failure:
            end, met = _end_by(failure), _met_before(failure)
            code, request_id = (met.code, met.request_id) if met else ("", "")
            message = failure.message if isinstance(failure, ServiceError) else end.detail
            found = end.job or self.action.job_id
            return Outcome(self.action, end.status, end.detail, found, code, message, request_id)

    # --- create

    def _create(self) -> tuple[str, str]:
        self._wait_for_others()
        return self._one_before() or self._create_next()

    def _wait_for_others(self) -> None:
        for job_id in self.action.waits_for_jobs:
            with suppress(NotFound):
                self._wait(self._backend.details(job_id), Goal.ENDED)

    def _one_before(self) -> tuple[str, str] | None:
        """Fail if the previous revision is active: the service may have restarted it.

        Returns that revision if it has meanwhile completed with the declared digest, or ended by its own
        auto_stop. Nothing is left to do then, except for a newer upstream, a schedule or a requested rerun.
        """
        if self.action.follows is None:
            return None
        try:
            job = self._backend.details(self.action.follows)
            if job.phase is Phase.TERMINATING:
                job = self._wait(job, Goal.ENDED)
        except NotFound:
            return None
        verdict = may(Operation.CREATE_NEXT, job.phase)
        if not verdict:
            raise ActionEnded(Status.CONFLICT, f"{job.name} is {job.phase_text} again: {verdict.why}", job.id)
        digest = self.action.after.digest if self.action.after else None
        if job.marker is None or digest is None or not is_of_same_form(job.marker.digest, digest):
            return None
        if self.action.reason in (Reason.UPSTREAM_NEWER, Reason.RERUN_REQUESTED) or self.action.scheduled_for:
            return None
        if job.phase is Phase.COMPLETED:
            return job.id, f"{job.name} has completed in the meantime"
        if stopped_itself(DesiredJob(key=self.action.key, body=self.action.desired, digest=digest), job):
            return job.id, f"{job.name} is {job.phase_text}: stopped by its own auto_stop"
        return None

    def _create_next(self) -> tuple[str, str]:
        name = self._next_name
        if found := self._settled(name):
            return found
        self._await_time()
        refused = lost = 0
        while True:
            try:
                return self._backend.create(self.action.desired or {}).id, ""
            except (Throttled, Unreachable) as failure:  # it had no effect, so it may be retried
                refused += 1
                if refused == ATTEMPTS:
                    raise
                self._sleep(min(failure.retry_after_s or 2.0 ** (refused - 1), self._timeout_s))
            except (NameTaken, *UNCERTAIN) as failure:
                refused, lost = 0, lost + 1
                if not isinstance(failure, NameTaken):
                    # Wait before looking: a create may take effect after its response was lost.
                    self._sleep(2.0 ** (lost - 1))
                unknown = f"it is unknown whether {name} was created"
                # The job may exist: never send a second POST blindly.
                try:
                    if found := self._settled(name):
                        return found
                    is_held = isinstance(failure, NameTaken) or self._is_held(name)
                    if is_held:
                        return self._holder(name)
                except ServiceError as second:
                    raise ActionEnded(Status.UNKNOWN, f"{second.message}; {unknown}") from second
                if is_held is None:
                    raise ActionEnded(Status.UNKNOWN, f"{failure.message}; {unknown}") from failure
                if lost == ATTEMPTS:
                    raise

    def _await_time(self) -> None:
        """Wait until the service's clock reaches the scheduled time, if ours is ahead.

        A job created before its scheduled time, by the service's clock, would be started for it again.
        """
        if self.action.scheduled_for is None:
            return
        time_s = datetime.fromisoformat(self.action.scheduled_for).timestamp()
        left_s = time_s - (self._clock.now() - (self._backend.skew_s or 0.0))
        if 0 < left_s <= MAX_SKEW_S:  # with a larger skew, requests fail anyway
            self._sleep(left_s)

    def _settled(self, name: str) -> tuple[str, str] | None:
        """Look up the name. Returns our job, whoever created it; None if no job is found.

        Raises:
            ActionEnded: another job has the name.
        """
        found = self._backend.find(name)
        for job in found:
            if job.name == name and self._is_marked(job):
                return job.id, "already created"
        if found:
            holder = ConflictingJob(found[0], 0)
            why = f"{name} is taken by job {holder.job.id} ({holder.why})"
            raise ActionEnded(Status.CONFLICT, why, holder.job.id)
        return None

    def _holder(self, name: str) -> tuple[str, str]:
        if found := self._settled(name):
            return found
        raise ActionEnded(Status.CONFLICT, f"{name} is held by a job that this account cannot see")

    def _is_held(self, name: str) -> bool | None:
        """Whether a job has the name, visible or not. None if that is unknown.

        A filtered search proves presence only, so this uses the name check or reads the whole workspace.
        """
        taken = self._name_check(name)
        if taken is not None:
            return taken
        seen = self._backend.observe()
        if name in {job.name for job in seen.jobs} | {lost.name for lost in seen.unreadable}:
            return True
        is_whole = seen.is_whole and not any(lost.name is None for lost in seen.unreadable)
        return False if is_whole else None

    def _name_check(self, name: str) -> bool | None:
        """Ask the service whether the name is taken. None after a failure: not every account may ask."""
        try:
            return self._backend.name_is_taken(name)
        except ServiceError:
            return None

    # --- update

    def _update(self) -> tuple[str, str]:
        job = self._look()
        if self.action.reason is Reason.RELEASED and job.marker is None:
            return job.id, "its marker is already gone"
        self._check_flags(job)
        verdict = may(Operation.UPDATE_DESCRIPTION, job.phase)
        if not verdict or job.phase is None:
            raise ActionEnded(Status.FAILED, f"{job.name} is {job.phase_text}: {verdict.why}", job.id)
        body = legal_now(self.action.desired or {}, job.phase, self._cloud)
        failure = None
        try:
            self._backend.update(job.id, body)
        except UNCERTAIN as uncertain:
            failure = uncertain
        job = self._backend.details(job.id)
        if missing := unapplied_paths(body, job):
            self._check_not_taken(job)
            if failure:
                raise failure
            raise ActionEnded(Status.FAILED, f"the service did not apply {', '.join(missing)}", job.id)
        details = []
        if unseen := ", ".join(".".join(path) for path in unreported_paths(body, job)):
            details.append(f"{unseen} sent; the service does not report it")
        # Fields that were mutable in the planned phase, and no longer are.
        if late := unapplied_paths(self.action.desired or body, job):
            details.append(f"{', '.join(late)} cannot be changed while the job is {job.phase_text}")
        return job.id, "; ".join(details)

    # --- terminate

    def _terminate(self) -> tuple[str, str]:
        job = self._end()
        if job is None:
            return self.action.job_id or "", "its record no longer exists"
        return job.id, f"now {job.phase_text}"

    def _end(self) -> ObservedJob | None:
        """Mark the job as stopped by us, then terminate it. A job that has already ended is fine.

        Returns the job; None if its record no longer exists.
        """
        for attempt in range(ATTEMPTS):
            try:
                job = self._look_if_there()
                if job is None or (job.phase and not job.is_live):
                    return job
                if not (verdict := may(Operation.TERMINATE, job.phase)):
                    raise ActionEnded(Status.FAILED, f"{job.name} is {job.phase_text}: {verdict.why}", job.id)
                self._mark_stopped(job)
                self._backend.terminate(job.id)
                return self._look_if_there()
            except ServiceError as failure:
                # After these failures, which the backend does not retry, read the job and try again: only
                # its details say that it is gone.
                moved = isinstance(failure, (WrongPhase, UnreadableAnswer, NotFound))
                if moved and attempt < ATTEMPTS - 1:
                    self._sleep(min(failure.retry_after_s or float(attempt), self._timeout_s))
                    continue
                # The job may have ended, or the request may have succeeded without a response.
                with suppress(ServiceError):
                    job = self._look_if_there()
                    if job is None or (job.phase and not job.is_live):
                        return job
                raise
        raise AssertionError("the last attempt returns or raises")

    def _mark_stopped(self, job: ObservedJob) -> None:
        if job.marker is None or job.marker.stopped:
            return
        stopped = job.marker._replace(stopped=True)
        if stopped.key != self.action.key:
            # The key was renamed: update its marker as well.
            stopped = stopped._replace(key=self.action.key).for_job(job.name, job.id)
        # Shorten a description that leaves no room for the marker.
        room = MAX_DESCRIPTION - len(f" {stopped}")
        try:
            self._backend.update(job.id, {"description": str(Description(job.text[:room], stopped))})
        except UNCERTAIN:
            marker = self._look().marker
            if marker is None or not marker.stopped:
                raise

    # --- replace

    def _replace(self) -> tuple[str, str]:
        # Before anything is terminated: if this takes too long, the old job goes on.
        self._wait_for_others()
        if self.action.replace_order == "create_first":
            return self._replace_create_first()
        name = self._next_name
        # If the create failed afterwards, there would be no job at all.
        if self._checks is not None:
            self._checks.check(self.action)
        new = self._settled(name)
        if new is None and self._name_check(name):
            new = self._holder(name)
        self._await_time()
        old = self._end()
        if new:
            return new
        if old:
            try:
                old = self._wait(old, Goal.ENDED)
            except NotFound:
                old = None
        return self._create_in_place_of(old)

    def _create_in_place_of(self, old: ObservedJob | None) -> tuple[str, str]:
        """Create the next revision after the old job has ended. `old` is None if its record is gone."""
        try:
            return self._create_next()
        except Interrupted:
            raise
        except (ActionEnded, ServiceError, RecordsUnavailable) as failure:
            # No job is left, which the detail has to say.
            end, action = _end_by(failure), self.action
            assert action.before is not None
            assert action.after is not None
            ended = "is gone"
            if old is not None:
                ended = "was ended" if old.phase is Phase.TERMINATED else f"is {old.phase_text}"
            # After an unknown outcome the job may exist.
            made = f"r{action.after.revision} could not be made: " if end.status is not Status.UNKNOWN else ""
            detail = f"r{action.before.revision} {ended}; {made}{end.detail}"
            raise ActionEnded(end.status, detail, self.action.job_id) from _met_before(failure)

    def _replace_create_first(self) -> tuple[str, str]:
        self._look_if_there()
        job_id, detail = self._create_next()
        job = self._wait(self._backend.details(job_id), Goal.RUNNING)
        if judge_wait(Goal.RUNNING, job.phase) is not WaitEnd.REACHED:
            why = f"{job.name} ended as {job.phase_text}; the old job is kept"
            raise ActionEnded(Status.FAILED, why, job.id)
        self._end()
        return job_id, detail

    # --- observing and waiting

    def _look(self) -> ObservedJob:
        """Read the job of the action, and check that it is still the planned one."""
        assert self.action.before is not None
        job = self._backend.details(self.action.before.id)
        self._check_marker(job)
        return job

    def _look_if_there(self) -> ObservedJob | None:
        try:
            return self._look()
        except NotFound:
            return None

    def _wait(self, job: ObservedJob, goal: Goal) -> ObservedJob:
        """Poll a job until the goal is reached or cannot be reached any more. Other actions continue.

        Raises:
            ActionEnded: the wait timed out.
            Interrupted: a stop was requested.
        """
        waiting = WaitingForJob(self._backend, self._clock, job, goal, self._tell_progress)
        if not waiting.is_over and not self._is_interrupted():
            self._backend.pause()
        is_over = wait_for(waiting, self._clock, self._timeout_s, self._is_interrupted)
        job = waiting.job
        if not is_over and self._is_interrupted():
            raise Interrupted(f"{job.name} is {job.phase_text}")
        if not is_over:
            detail = f"{job.name} is still {job.phase_text} after {self._timeout_s:g} s"
            raise ActionEnded(Status.TIMED_OUT, detail, job.id)
        return job

    def _sleep(self, seconds: float) -> None:
        """Sleep, at most until a stop is requested. Other actions continue."""
        if not self._is_interrupted():
            self._backend.pause()
            self._clock.sleep(seconds)

    # --- the marker must still be the planned one, right before and after each call

    def _is_marked(self, job: ObservedJob) -> bool:
        """Whether a job has exactly the marker that the action gives it."""
        marker, after = job.marker, self.action.after
        return (
            marker is not None
            and after is not None
            and (marker.stack, marker.key, marker.revision, marker.digest)
            == (self._stack, self.action.key, after.revision, after.digest)
        )

    def _check_marker(self, job: ObservedJob) -> None:
        """Check that the job of the action is still the planned one."""
        action, marker = self.action, job.marker
        assert action.before is not None
        if action.reason is Reason.ADOPTED:
            self._check_not_taken(job)
            return
        if action.reason in _WHATEVER_FLAGS and marker is None:
            return
        stacks, keys = (self._stack, action.former_stack), (action.key, action.formerly)
        if marker is None or marker.stack not in stacks or marker.key not in keys:
            raise _conflict(job, f"{job.name} no longer carries our marker")
        if (marker.revision, marker.digest) != (action.before.revision, action.before.digest):
            raise _conflict(job)
        if action.traits.stops_a_job and marker.protected:
            raise _conflict(job, f"{job.name} has been protected in the meantime")

    def _check_flags(self, job: ObservedJob) -> None:
        """Check that nobody has changed flags of the marker, which an update would overwrite."""
        action, marker = self.action, job.marker
        if action.reason in _WHATEVER_FLAGS:
            return
        if marker is None or not has_planned_flags(action, marker):
            raise _conflict(job)
        if clears_stopped(action) and job.phase is not None and job.phase.is_terminal:
            raise _conflict(job, f"{job.name} is now {job.phase_text}, as requested")

    def _check_not_taken(self, job: ObservedJob) -> None:
        """Check that a job to adopt has no marker, or exactly the new one."""
        marker = job.marker
        if self.action.reason is Reason.ADOPTED and marker is not None and not self._is_marked(job):
            whose = f"key {marker.key} of stack {marker.stack}"
            raise _conflict(job, f"{job.name} was adopted in the meantime: it belongs to {whose}")


#: Updates that add or remove a whole marker, whatever its flags.
_WHATEVER_FLAGS = frozenset({Reason.MARKER_RESTORED, Reason.ADOPTED, Reason.RELEASED})


def _conflict(job: ObservedJob, detail: str = "") -> ActionEnded:
    detail = detail or f"the marker of {job.name} has changed in the meantime"
    return ActionEnded(Status.CONFLICT, detail, job.id)


def _end_by(failure: ActionEnded | ServiceError | RecordsUnavailable) -> ActionEnded:
    if isinstance(failure, ActionEnded):
        return failure
    if isinstance(failure, RecordsUnavailable):
        return ActionEnded(Status.FAILED, f"{failure}; it was not sent")
    why = failure.diagnostics[0]
    status = Status.DENIED if isinstance(failure, Unauthorized) else Status.FAILED
    return ActionEnded(status, why.message + (f"; to fix: {why.fix}" if why.fix else ""))


def _met_before(failure: Exception) -> ServiceError | None:
    """The failure behind the end of an action, e.g. a taken name."""
    if isinstance(failure, ServiceError):
        return failure
    met = failure.__cause__ or (None if failure.__suppress_context__ else failure.__context__)
    return met if isinstance(met, ServiceError) else None
