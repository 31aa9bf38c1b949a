"""Drift checks on a changing service: each class of drift by each cause, and changes that are no drift.

Every check is recorded like `drift --since-last`; there is always an unaffected second key.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from reconciler import reconcile
from reconciler.core.record import REMIND_S
from reconciler.core.stack import DesiredJob, Stack
from reconciler.decide.drift import DriftReport
from reconciler.decide.drift_check import DriftClass
from reconciler.emulator import Effect, Fault
from reconciler.errors import ExitCode
from reconciler.records.recording import Recording
from tests.apply.service import CREATE, FIND, PROJECT, STOP, Service, a_service, marker
from tests.apply.test_rollout import rollout
from tests.builders import HOUR, a_job, a_stack

DAY = 24 * HOUR
CONTROL = a_job("control")
A = a_job("a")
EDITED = a_job("a", algorithm__parameters={"lr": 0.5})
DESCRIBED = a_job("a", description="as declared")
BRIEF = a_job("a", spec__auto_stop={"time_unit": "HOURS", "duration": 1})
NIGHTLY = a_job("a", lifecycle={"schedule": "0 2 * * *"})
CREATE_FIRST = a_job("a", algorithm__parameters={"lr": 0.5}, lifecycle={"replace_order": "create_first"})


@dataclass
class Site:
    """A stack on a service, with the records of one checkout."""

    service: Service
    root: Path
    declared: tuple[DesiredJob, ...] = (A,)
    warnings: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.recording = self._opened(self.root)

    def _opened(self, root: Path) -> Recording:
        root.mkdir(exist_ok=True)
        return Recording(None, root, self.service.time, warn=self.warnings.append)

    @property
    def stack(self) -> Stack:
        """The currently declared stack."""
        stack = a_stack(CONTROL, *self.declared)
        return replace(stack, whole=stack.jobs)

    def declare(self, *jobs: DesiredJob) -> None:
        """Edit the manifest."""
        self.declared = jobs

    def apply(self, *jobs: DesiredJob, by: Recording | None = None) -> None:
        """Apply a manifest, with our records or those of another checkout."""
        stack = a_stack(CONTROL, *jobs)
        rollout(
            self.service,
            stack=replace(stack, whole=stack.jobs),
            goal=None,
            recording=by or self.recording,
        )
        self.service.time.sleep(60)

    def colleague(self, *jobs: DesiredJob, shares_records: bool = False) -> None:
        """Apply another manifest of the stack from another checkout."""
        by = self.recording if shares_records else self._opened(self.root / "colleague")
        self.apply(*jobs, by=by)

    def lose_records(self) -> None:
        """Start over with a fresh checkout."""
        self.recording.close()
        shutil.rmtree(self.root)
        self.recording = self._opened(self.root)

    def check(self, *, since_last: bool = True, remind_s: float = REMIND_S) -> DriftReport:
        """Look."""
        context = self.service.context(self.stack)._replace(recording=self.recording)
        report = reconcile.drift(context, since_last=since_last, remind_s=remind_s)
        reconcile.notify_drift(context, report)
        return report

    def terminate(self, name: str = "a") -> None:
        """Terminate a job in the console."""
        self.service.store.terminate(PROJECT, self.service.job(name).id)
        self.service.time.sleep(60)

    def put(self, phase: str, name: str = "a") -> None:
        """Put a job into a phase."""
        self.service.store.set_phase(self.service.job(name).id, phase)

    def delete(self, name: str = "a") -> None:
        """Delete a job's record."""
        self.service.store.delete(PROJECT, self.service.job(name).id)
        self.service.time.sleep(60)

    def crash(self, operation: str, *jobs: DesiredJob) -> None:
        """Kill our apply when it sends a request, which does not arrive."""

        def die() -> None:
            raise Killed

        self.service.gate.before(operation, die)
        with pytest.raises(Killed):
            self.apply(*jobs)


class Killed(BaseException):
    """Ends the process at once."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with a_service() as service:
        site = Site(service, tmp_path / "ours")
        yield site
        site.recording.close()


def found(entries: Any) -> list[tuple[str, str]]:
    return [(one.key, one.class_.value) for one in entries]


# --- drift: (class, cause, manifest applied first, event)

Happens = Callable[[Site], object]


def restart_older(site: Site) -> None:
    site.apply(EDITED)
    site.declare(EDITED)
    site.check()
    site.service.store.restart(PROJECT, site.service.job("a").id)
    site.service.time.sleep(30)


def edit_description(text: str) -> Happens:
    return lambda site: site.service.describe("a", f"{text} {marker('a', 1, A.digest)}")


def miss_a_night(site: Site) -> None:
    """Miss a scheduled time."""
    site.apply(NIGHTLY)
    site.declare(NIGHTLY)
    site.put("Completed")
    site.service.time.sleep(40 * HOUR)


def remove_marker(site: Site) -> None:
    site.service.describe("a", "mine now")


def hold_terminating(site: Site) -> None:
    store = site.service.store
    store.terminate(PROJECT, site.service.job("a").id)
    store.hold(site.service.job("a").id)
    site.check()
    site.service.time.sleep(2 * HOUR)


def both(*steps: Happens) -> Happens:
    def happen(site: Site) -> None:
        for step in steps:
            step(site)

    return happen


def lose_records(site: Site) -> None:
    site.lose_records()


#: Followed by an extra check, so that the fresh store does not report everything as new.
def lost(*steps: Happens) -> Happens:
    return both(lose_records, lambda site: site.check(), *steps)


WAYS: list[tuple[str, str, Happens]] = [
    ("missing", "the service forgets a job that ran", lambda site: site.delete()),
    ("missing", "somebody ends and deletes it", both(
        lambda site: site.terminate(), lambda site: site.delete(),
    )),
    ("missing", "with lost records", lost(lambda site: site.delete())),
    ("missing", "records lost at once with it", both(lambda site: site.delete(), lose_records)),
    ("failed", "the job fails", lambda site: site.put("Failed")),
    ("failed", "the service breaks", lambda site: site.put("Abnormal")),
    ("failed", "with lost records", lost(lambda site: site.put("Failed"))),
    ("failed", "of a colleague's revision", both(
        lambda site: site.colleague(EDITED, shares_records=True),
        lambda site: site.put("Failed", "a-r2"),
        lambda site: site.declare(EDITED),
    )),
    ("terminated", "somebody ends it in the console", lambda site: site.terminate()),
    ("terminated", "with lost records", lost(lambda site: site.terminate())),
    ("terminated", "by the service, nobody asked", lambda site: site.put("Terminated")),
    ("missed", "nobody applies", miss_a_night),
    ("missed", "with lost records", lost(miss_a_night)),
    ("missed", "in a fresh checkout", both(miss_a_night, lose_records)),
    ("modified", "somebody edits it in the console", edit_description("by hand")),
    ("modified", "with lost records", lost(edit_description("by hand"))),
    ("modified", "a colleague applies another text", lambda site: site.colleague(DESCRIBED)),
    ("duplicate", "the service restarts an older revision", restart_older),
    ("duplicate", "our apply dies between two jobs", both(
        lambda site: site.crash(STOP, CREATE_FIRST), lambda site: site.declare(CREATE_FIRST),
    )),
    ("orphaned", "a colleague applies a key that we do not have", lambda site: site.colleague(A, a_job("x"))),
    ("orphaned", "an entry is removed and the records are lost", both(
        lose_records, lambda site: site.declare(),
    )),
    ("orphaned", "the service restarts what we ended", both(
        lambda site: site.apply(), lambda site: site.declare(), lambda site: site.check(),
        lambda site: site.service.store.restart(PROJECT, site.service.job("a").id),
        lambda site: site.service.time.sleep(30),
    )),
    ("unowned", "somebody removes the marker", remove_marker),
    ("unowned", "with lost records", lost(remove_marker)),
    ("unowned", "somebody takes the next name", lambda site: site.service.put_job("a-r2")),
    ("unowned", "somebody copies the job", lambda site: site.service.put_job(
        "a-r2", marker("a", 1, A.digest))),
    ("stuck", "the service does not end it", hold_terminating),
    ("stuck", "with lost records", lost(hold_terminating)),
    ("unknown", "the list cannot be read", lambda site: site.service.fail(
        Fault(Effect.ANSWER, operation=FIND, status=501, count=None))),
    ("unknown", "a job cannot be read", lambda site: site.service.fail(
        Fault(Effect.MALFORMED_JOB, operation=FIND, count=None))),
    ("unknown", "the service has a new phase", lambda site: site.put("Hibernating")),
    ("unknown", "a newer version made the job", lambda site: site.service.describe(
        "a", marker("a", 1, "z" + "0" * 12))),
]  # fmt: skip

#: Drift with a known loss.
COSTS = {"failed", "terminated", "duplicate", "orphaned", "unowned", "stuck"}


@pytest.mark.parametrize(("class_", "way", "happens"), WAYS, ids=[f"{one}: {way}" for one, way, _ in WAYS])
def test_drift_of_any_kind_and_origin_is_reported_once(
    site: Site, class_: str, way: str, happens: Happens
) -> None:
    site.apply(A)
    assert site.check().exit_code is ExitCode.DONE
    happens(site)
    report = site.check()
    assert {one.class_.value for one in report.drift} == {class_}, way
    if class_ == "unknown":
        assert (report.exit_code, report.new, report.gone) == (ExitCode.UNKNOWN, (), ())
        return
    assert (report.exit_code, found(report.new)) == (ExitCode.CHANGES, found(report.drift))
    assert "control" not in {one.key for one in report.drift}
    [entry] = report.new
    assert entry.since == report.created_at
    assert entry.fix
    assert (entry.node_hours is not None) is (class_ in COSTS)
    site.service.time.sleep(HOUR)
    again = site.check()
    assert (again.exit_code, again.new, again.changed, again.gone) == (ExitCode.DONE, (), (), ())
    assert [one.since for one in again.drift] == [entry.since]
    assert site.check(since_last=False).exit_code is ExitCode.CHANGES
    site.service.time.sleep(DAY + 60)
    assert site.check().exit_code is ExitCode.CHANGES, "it is told again once a day"


def test_every_class_of_drift_has_a_row() -> None:
    assert {class_ for class_, _, _ in WAYS} == {one.value for one in DriftClass}


# --- no drift


def run_to_end(site: Site) -> None:
    for phase in ("Pending", "Running", "Completed"):
        site.put(phase)
        assert site.check().exit_code is ExitCode.DONE
        site.service.time.sleep(60)


def add_unknown_fields(site: Site) -> None:
    def add(body: dict[str, Any]) -> None:
        body["next_year"] = {"field": [1]}
        body["metadata"]["colour"] = "blue"
        body["spec"]["resource"]["filled_in"] = "by the service"

    site.service.store.edit(site.service.job("a").id, add)


NO_DRIFT: list[tuple[str, Happens]] = [
    ("progress to the end", run_to_end),
    ("re-scheduling", both(lambda site: site.put("Running"), lambda site: site.check(),
                           lambda site: site.put("Pending"))),
    ("stopped by its own auto_stop", both(
        lambda site: site.apply(BRIEF), lambda site: site.declare(BRIEF),
        lambda site: site.service.time.sleep(2 * HOUR),
    )),
    ("fields that the service fills in", add_unknown_fields),
    ("an edit of the manifest", lambda site: site.declare(EDITED)),
    ("an edit that updates", lambda site: site.declare(DESCRIBED)),
    ("a new key", lambda site: site.declare(A, a_job("new"))),
    ("a removed key", lambda site: site.declare()),
    ("our own termination", both(lambda site: site.declare(), lambda site: site.apply())),
    ("our own replace", both(lambda site: site.declare(EDITED), lambda site: site.apply(EDITED))),
    ("our own update", both(lambda site: site.declare(DESCRIBED), lambda site: site.apply(DESCRIBED))),
    ("our replace died after the old job was ended", both(
        lambda site: site.declare(EDITED), lambda site: site.crash(CREATE, EDITED),
        lambda site: site.service.time.sleep(120),
    )),
    ("our create died before it was sent", both(
        lambda site: site.crash(CREATE, A, a_job("new")), lambda site: site.declare(A, a_job("new")),
    )),
    ("a colleague's apply, in the same records", both(
        lambda site: site.colleague(EDITED, shares_records=True), lambda site: site.declare(EDITED),
    )),
    ("a completed job whose record has aged out", both(
        lambda site: site.put("Completed"), lambda site: site.check(), lambda site: site.delete(),
    )),
    ("lost records of a stack that is as declared", lose_records),
    ("another stack's job", lambda site: site.service.put_job("b", marker("b", 1, A.digest, stack="other"))),
    ("somebody's job of another name", lambda site: site.service.put_job("mine")),
    ("a copy of the job under another name", lambda site: site.service.put_job(
        "copy", marker("a", 1, A.digest))),
    ("the service restarts a completed job", both(
        lambda site: site.put("Completed"), lambda site: site.check(),
        lambda site: site.service.store.restart(PROJECT, site.service.job("a").id),
    )),
]  # fmt: skip


@pytest.mark.parametrize(
    ("happens"), [happens for _, happens in NO_DRIFT], ids=[name for name, _ in NO_DRIFT]
)
def test_expected_change_is_no_drift(site: Site, happens: Happens) -> None:
    site.apply(A)
    assert site.check().exit_code is ExitCode.DONE
    happens(site)
    for _ in range(2):
        report = site.check()
        assert (found(report.drift), report.new, report.gone, report.exit_code) == ([], (), (), ExitCode.DONE)
        site.service.time.sleep(60)
    assert site.check(since_last=False).exit_code is ExitCode.DONE


def test_damaged_records_are_reported_and_make_no_drift_new(site: Site) -> None:
    site.apply(A)
    site.put("Failed")
    assert site.check().exit_code is ExitCode.CHANGES
    site.recording.close()
    [file] = site.root.rglob("records.sqlite3")
    kept = file.read_bytes()
    file.write_bytes(b"this is no database" * 100)
    report = site.check()
    assert report.exit_code is ExitCode.UNKNOWN
    assert (report.new, report.gone, report.compared_with) == ((), (), None)
    assert [warning.what for warning in report.warnings] == ["the history could not be read"]
    assert any("not recorded" in warning for warning in site.warnings)
    site.recording.close()
    for left in file.parent.glob("records.sqlite3*"):
        left.unlink()
    file.write_bytes(kept)
    assert site.check().exit_code is ExitCode.DONE, "what was reported before is known again"


# --- hundreds of checks


def test_drift_found_by_a_concurrent_check_is_not_gone(site: Site) -> None:
    """Our observation begins, a concurrent check records unseen drift, then ours is recorded."""
    site.apply(A)
    site.check()
    other = Recording(None, site.root, site.service.time)

    def meanwhile() -> None:
        site.put("Failed")
        context = site.service.context(site.stack)._replace(recording=other)
        assert found(reconcile.drift(context).drift) == [("a", "failed")]
        site.put("Running")

    site.service.gate.before(FIND, meanwhile)
    ours = site.check()
    other.close()
    assert (ours.drift, ours.gone) == ((), ())
    site.put("Failed")
    report = site.check()
    assert (report.new, found(report.drift)) == ((), [("a", "failed")])
