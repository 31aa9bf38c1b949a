"""One action against the service, with any event between the plan and its end, as a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import pytest

from reconciler.adoption import adopt_plan, move_plan, release_plan
from reconciler.apply.steps import ATTEMPTS
from reconciler.core.fields.field_types import Cloud
from reconciler.core.identity import MAX_DESCRIPTION
from reconciler.core.stack import DesiredJob
from reconciler.decide.outcome import EventType, Outcome, Status
from reconciler.decide.plan import Action, Plan, Reason
from reconciler.emulator import Effect, Fault, Job
from reconciler.errors import Unreachable
from reconciler.modelarts.clock import MAX_ATTEMPTS
from tests.apply.service import (
    CHECK_NAME,
    CREATE,
    FIND,
    PROJECT,
    SHOW,
    STOP,
    UPDATE,
    Service,
    a_service,
    marker,
    the_only,
)
from tests.builders import STACK, a_job, a_stack, absent

Do = Callable[[Service], object]
Check = Callable[[Service, Outcome], object]
HUAWEI, OTC = (Cloud.HUAWEI,), (Cloud.OTC,)
DONE, FAILED, CONFLICT, UNKNOWN = Status.DONE, Status.FAILED, Status.CONFLICT, Status.UNKNOWN
LETTERS = {CREATE: "C", UPDATE: "U", STOP: "S"}


def nothing(*_: object) -> None:
    """No event, or no further check."""


class Case(NamedTuple):
    """The planned job, the declaration, an event since the plan, and the outcome of the action."""

    desired: DesiredJob
    then: tuple[Do, ...]
    #: The job at the time of the plan, and earlier events.
    had: DesiredJob | None = None
    first: Do = nothing
    plan: Callable[[Service], Plan] | None = None
    timeout_s: float = 600
    status: Status = DONE
    #: Text in the detail, and the error's code, which always comes with a request id.
    detail: str = ""
    code: str = ""
    #: The name of the job in the outcome.
    job: str = ""
    #: The mutating calls: C(reate), U(pdate), S(top).
    sent: str | None = None
    #: The final phase of each job, or only their names.
    phases: str | None = None
    descriptions: Mapping[str, str] = {}
    #: Whether the next plan keeps the jobs.
    is_settled: bool = False
    check: Check = nothing


CASES: list[Any] = []


def case(name: str, desired: DesiredJob, *then: Do, **more: Any) -> None:
    for cloud in more.pop("clouds", tuple(Cloud)):
        CASES.append(pytest.param(cloud, Case(desired, then, **more), id=f"{name}-{cloud}"))


# --- events


def fails(effect: Effect, operation: str, **more: Any) -> Do:
    return lambda service: service.fail(Fault(effect, operation=operation, **more))


def answers(operation: str, status: int, code: str = "", **more: Any) -> Do:
    more = {"count": None, **more}
    return fails(Effect.ANSWER, operation, status=status, **({"code": code} if code else {}), **more)


def before(operation: str, do: Do) -> Do:
    return lambda service: service.gate.before(operation, lambda: do(service))


def after(operation: str, do: Do) -> Do:
    return lambda service: service.gate.after(operation, lambda: do(service))


def at_the(nth: int, operation: str, do: Do) -> Do:

    def count(service: Service) -> None:
        asked = list[str]()

        def run() -> None:
            asked.append("")
            if len(asked) == nth:
                do(service)

        service.gate.before(operation, run, always=True)

    return count


def at(seconds: float, do: Do) -> Do:
    return lambda service: service.time.at(seconds, lambda: do(service))


def is_now(phase: str, name: str = "a") -> Do:
    return lambda service: service.store.set_phase(service.job(name).id, phase)


def hangs(name: str = "a") -> Do:
    return lambda service: service.store.hold(service.job(name).id)


def hangs_as(phase: str) -> Do:
    return lambda service: (is_now(phase)(service), hangs()(service))


def is_deleted(name: str = "a") -> Do:
    return lambda service: service.store.delete(PROJECT, service.job(name).id)


def says(text: str, name: str = "a") -> Do:
    return lambda service: service.describe(name, text)


def put(name: str, text: str = "") -> Do:
    return lambda service: service.put_job(name, text)


def put_hidden(name: str) -> Do:
    return lambda service: service.put_hidden_job(name)


def sleeps(seconds: float) -> Do:
    return lambda service: service.time.sleep(seconds)


def applied(*jobs: DesiredJob) -> Do:
    return lambda service: service.apply(*jobs)


def all_of(*deeds: Do) -> Do:
    return lambda service: [do(service) for do in deeds]


def refuse_connection(*_: object) -> None:
    raise Unreachable("Connection refused")


def never_reached(service: Service) -> None:
    service.gate.before(CREATE, refuse_connection, always=True)


# --- further checks


def asks(operation: str, times: int) -> Check:
    def check(service: Service, _: Outcome) -> None:
        assert service.asked(operation) == times

    return check


def requests(*operations: str) -> Check:
    def check(service: Service, _: Outcome) -> None:
        assert [served.operation for served in service.app.requests] == [*operations]

    return check


def a_ended_before(name: str) -> Check:
    def check(service: Service, _: Outcome) -> None:
        assert service.job("a").life.ended_ms <= service.job(name).create_ms

    return check


def each_post_is_proven(service: Service, _: Outcome) -> None:
    asked = [served.operation for served in service.app.requests]
    proof = CHECK_NAME if service.cloud is Cloud.HUAWEI else FIND
    posts = [place for place, operation in enumerate(asked) if operation == CREATE]
    assert len(posts) > 1
    for sooner, later in pairwise(posts):
        assert FIND in asked[sooner + 1 : later]
        assert asked[later - 1] == proof, "a blind second POST"


A = a_job()
OURS = marker("a", 1, A.digest)
NEW: dict[str, Any] = {"algorithm__parameters": {"lr": 0.5}}
CHANGED = a_job(**NEW)
NEW_FIRST = a_job(**NEW, lifecycle={"replace_order": "create_first"})
NO_ANSWER = [Effect.LOST_BEFORE, Effect.LOST_AFTER, Effect.ANSWER, Effect.ANSWER_AFTER]
REFUSALS = [400, 401, 403, 404, 500, 503]
LOST = fails(Effect.LOST_BEFORE, CREATE)
LOOK_UP_FAILS = answers(FIND, 503, nth=2)
LONG_AGO = all_of(is_now("Failed"), sleeps(3600))


# --- create: one job despite lost responses

case("created", A, sent="C", job="a", descriptions={"a": OURS}, is_settled=True, check=requests(FIND, CREATE))
for effect in (*NO_ANSWER, Effect.UNREADABLE, Effect.TRUNCATED, Effect.MALFORMED_JOB):
    lost = fails(effect, CREATE, status=504)
    sent = "CC" if effect in (Effect.LOST_BEFORE, Effect.ANSWER) else "C"
    case(f"create answered by {effect}", A, lost, sent=sent, job="a", is_settled=True)
case("second post", A, LOST, check=each_post_is_proven)


def waited_longer_each_time(service: Service, outcome: Outcome) -> None:
    each_post_is_proven(service, outcome)
    assert [slept for slept in service.time.slept if slept >= 1] == [2.0**n for n in range(ATTEMPTS)]


case(
    "create lost every time",
    A,
    fails(Effect.LOST_BEFORE, CREATE, count=None),
    status=FAILED,
    sent="C" * ATTEMPTS,
    phases="",
    check=waited_longer_each_time,
)
case(
    "create lost all but once",
    A,
    fails(Effect.LOST_BEFORE, CREATE, count=ATTEMPTS - 1),
    sent="C" * ATTEMPTS,
    job="a",
)
case(
    "absence not provable any more",
    A,
    fails(Effect.LOST_BEFORE, CREATE, count=None),
    at_the(2, CREATE, answers(FIND, 503)),
    status=UNKNOWN,
    sent="CC",
    clouds=OTC,
)
case("effect after the lost answer", A, LOST, at(0.9, put("a", OURS)), sent="C", job="a")
for status in REFUSALS:
    refused = answers(CHECK_NAME, status, "ModelArts.0010")
    case(f"name check {status}, the whole list proves absence", A, LOST, refused, sent="CC", clouds=HUAWEI)
case("lost before, then after", A, LOST, fails(Effect.LOST_AFTER, CREATE, nth=2), sent="CC", job="a")
for effect in NO_ANSWER:
    case(
        f"create answered by {effect}, look-up fails",
        A,
        fails(effect, CREATE),
        LOOK_UP_FAILS,
        status=UNKNOWN,
        detail="it is unknown whether a was created",
        code="ModelArts.0010",
        sent="C",
    )
taken = before(CREATE, put("a"))
case("taken, look-up fails", A, taken, LOOK_UP_FAILS, status=UNKNOWN, sent="C", clouds=HUAWEI)
# The second look-up by name succeeds, the following scan of the workspace fails.
case("list incomplete", A, LOST, answers(FIND, 503, nth=3), status=UNKNOWN, sent="C", clouds=OTC)
case("look-up fails", A, answers(FIND, 503, "ModelArts.4302"), status=FAILED, code="ModelArts.4302", sent="")

# --- create: the name

case("made by us before", A, applied(A), detail="already created", job="a", phases="a")
case("made by us at once", A, before(CREATE, put("a", OURS)), detail="already created", job="a", phases="a")
STRANGERS = {
    "unmanaged": ("somebody's", "unmanaged"),
    "other stack": (marker("a", 1, A.digest, stack="other"), "owned by key a of stack other"),
    "copied marker": (marker("b", 1, A.digest), "copied marker"),
    "other revision": (marker("a", 2, A.digest), "copied marker"),
    "other declaration": (marker("a", 1, "a" + "f" * 12), f"owned by key a of stack {STACK}"),
}
for who, (text, whose) in STRANGERS.items():
    for when, deeds, sent in (
        ("before the look", [put("a", text)], ""),
        ("between look and create", [before(CREATE, put("a", text))], "C"),
        ("after a lost answer", [before(CREATE, put("a", text)), fails(Effect.LOST_AFTER, CREATE)], "C"),
    ):
        case(
            f"taken {when}: {who}",
            A,
            *deeds,
            status=CONFLICT,
            detail=f" ({whose})",
            job="a",
            sent=sent,
            descriptions={"a": text},
            clouds=HUAWEI,
        )
case("name of another case", A, put("A", "by hand"), status=CONFLICT, clouds=HUAWEI)
HIDDEN = "a is held by a job that this account cannot see"
for answer in (None, *NO_ANSWER):
    lost = fails(answer, CREATE) if answer else nothing
    case(
        f"hidden: {answer}", A, put_hidden("a"), lost, status=CONFLICT, detail=HIDDEN, sent="C", clouds=HUAWEI
    )
case(
    "hidden", A, put_hidden("a"), status=CONFLICT, detail=HIDDEN, code="ModelArts.2751", sent="C", clouds=OTC
)


def event_equals_outcome(service: Service, outcome: Outcome) -> None:
    failed = next(event for event in service.events if event.type is EventType.ACTION_FAILED)
    event = failed.document()
    assert (event.get("detail"), event["job"]) == (outcome.detail, outcome.job)
    assert (failed.code, failed.message, failed.request_id) == (
        outcome.code,
        outcome.message,
        outcome.request_id,
    )


case(
    "taken",
    A,
    taken,
    status=CONFLICT,
    detail="a is taken by job",
    code="ModelArts.2751",
    check=event_equals_outcome,
)

# --- create: refusals

THROTTLED = "APIGW.0308"


def sleeps_as_told(service: Service, _: Outcome) -> None:
    assert 7 in service.time.slept


def sleeps_no_longer_than_it_may(service: Service, _: Outcome) -> None:
    assert max(service.time.slept) <= 60


throttled = answers(CREATE, 429, THROTTLED, count=1, retry_after_s=7)
again = answers(CREATE, 429, "ModelArts.4206", count=1)
case("throttled twice", A, throttled, again, sent="CCC", check=sleeps_as_told)
throttled = answers(CREATE, 429, THROTTLED, count=1, retry_after_s=3000)
case("throttled for long", A, throttled, timeout_s=60, check=sleeps_no_longer_than_it_may)
case("throttled every time", A, answers(CREATE, 429, THROTTLED), status=FAILED, code=THROTTLED)
case("not sent", A, before(CREATE, refuse_connection), check=asks(CHECK_NAME, 0))
case("never sent", A, never_reached, status=FAILED, detail="cannot be reached", phases="")
quota = answers(CREATE, 400, "ModelArts.2815", message="quota")
case(
    "refused",
    A,
    quota,
    status=FAILED,
    detail="quota",
    code="ModelArts.2815",
    sent="C",
    check=event_equals_outcome,
)
case("forbidden", A, answers(CREATE, 403, "ModelArts.2771"), status=Status.DENIED, code="ModelArts.2771")

# --- create: a further revision

RETRIED = a_job(lifecycle={"on_failure": "retry"})
RETRY = {"had": RETRIED, "first": LONG_AGO, "clouds": HUAWEI}
case(
    "restarted since",
    RETRIED,
    is_now("Pending"),
    status=CONFLICT,
    detail="a is Pending again",
    sent="",
    **RETRY,
)
detail = "a has completed in the meantime"
case("completed since", RETRIED, is_now("Completed"), detail=detail, job="a", phases="a=Completed", **RETRY)
case("deleted since", CHANGED, is_deleted(), had=A, first=is_now("Completed"), phases="a-r2", clouds=HUAWEI)
ENDING = {"had": A, "first": applied(absent()), "clouds": HUAWEI}
case("terminating", A, phases="a=Terminated a-r2=Creating", check=a_ended_before("a-r2"), **ENDING)
late = Status.TIMED_OUT
case("does not end", A, hangs(), timeout_s=120, status=late, phases="a=Terminating", **ENDING)


def completes_meanwhile(service: Service) -> None:
    hangs()(service)
    at(5, is_now("Completed"))(service)


def is_completed(service: Service, _: Outcome) -> None:
    assert service.plan(A).actions[0].reason is Reason.COMPLETED


case(
    "completes instead of ending", A, completes_meanwhile, phases="a=Completed", check=is_completed, **ENDING
)


def put_revision(service: Service, number: int, phase: str) -> Job:
    """Create a revision of another declaration, as a concurrent apply would."""
    earlier = a_job(algorithm__parameters={"lr": 0.7})
    job = service.put_job(f"a-r{number}", marker("a", number, earlier.digest), dict(earlier.body or {}))
    service.store.set_phase(job.id, phase)
    return job


def behind(service: Service) -> None:
    applied(absent())(service)
    put_revision(service, 2, "Completed")
    assert service.plan(A).actions[0].waits_for_jobs == (service.job("a").id,)


OLDER = {"had": A, "first": behind}
three = "a=Terminated a-r2=Completed a-r3=Creating"
case("older one terminating", A, phases=three, check=a_ended_before("a-r3"), **OLDER)
two = "a=Terminating a-r2=Completed"
case("older one does not end", A, hangs(), timeout_s=120, status=late, job="a", phases=two, **OLDER)
case("older one deleted", A, sleeps(600), is_deleted(), phases="a-r2=Completed a-r3=Creating", **OLDER)


def auto_stopped(hours: int, lr: float = 0.1) -> DesiredJob:
    return a_job(spec__auto_stop={"time_unit": "HOURS", "duration": hours}, algorithm__parameters={"lr": lr})


def is_ending_after_54_minutes(service: Service) -> None:
    """A job that is already terminating ends four minutes after the plan."""
    sleeps(54 * 60)(service)
    is_now("Terminating")(service)
    says(f"{service.description('a')}.stopped")(service)
    hangs()(service)


AUTO_STOP = {"first": is_ending_after_54_minutes, "clouds": HUAWEI}
ends = at(4 * 60, lambda service: service.store.release(service.job("a").id))
own = {"detail": "a is Terminated: stopped by its own auto_stop", "job": "a", "phases": "a=Terminated"}
case("own auto_stop", auto_stopped(1), ends, had=auto_stopped(1), **own, **AUTO_STOP)
two = "a=Terminated a-r2=Creating"
case("long before auto_stop", auto_stopped(2), ends, had=auto_stopped(2), phases=two, **AUTO_STOP)
case("own auto_stop, edited", auto_stopped(1, lr=0.5), ends, had=auto_stopped(1), phases=two, **AUTO_STOP)

# --- replace: never two at once, and no longer gap than necessary


def is_replaced(service: Service, outcome: Outcome) -> None:
    assert outcome.action.action is Action.REPLACE
    a_ended_before("a-r2")(service, outcome)
    assert service.description("a").endswith(".stopped")


case(
    "replaced",
    CHANGED,
    had=A,
    sent="USC",
    job="a-r2",
    descriptions={"a-r2": marker("a", 2, CHANGED.digest)},
    is_settled=True,
    check=is_replaced,
)


def goes_on_once_it_ends(service: Service, _: Outcome) -> None:
    assert sum(service.time.slept[-40:]) >= 120
    service.store.release(service.job("a").id)
    assert the_only(service.apply(CHANGED)).status is DONE
    assert service.phases() == {"a": "Terminated", "a-r2": "Creating"}


detail = "a is still Terminating after 120 s"
late_end = {"timeout_s": 120, "status": late, "detail": detail, "job": "a", "phases": "a=Terminating"}
case("old one does not end", CHANGED, hangs(), had=A, check=goes_on_once_it_ends, **late_end)
for phase in ("Completed", "Failed", "Terminated", "Terminating"):
    case(f"old one {phase}", CHANGED, is_now(phase), had=A, sent="C")
for operation in (SHOW, UPDATE, STOP):
    deleted = before(operation, is_deleted())
    case(f"old one deleted at {operation}", CHANGED, deleted, had=A, phases="a-r2=Creating")
case("old one deleted while it ends", CHANGED, hangs(), at(5, is_deleted()), had=A, phases="a-r2=Creating")
for who, deed in (("stranger", put("a-r2")), ("hidden", put_hidden("a-r2"))):
    case(
        f"next name taken by a {who}",
        CHANGED,
        deed,
        had=A,
        status=CONFLICT,
        sent="",
        check=lambda service, _: is_running(service),
        clouds=HUAWEI,
    )


def is_running(service: Service) -> None:
    assert service.phases()["a"] == "Running"


for status in (*REFUSALS, 502):
    refused = answers(CHECK_NAME, status, "ModelArts.2771")
    two = "a=Terminated a-r2=Creating"
    case(f"names not to be checked: {status}", CHANGED, refused, had=A, job="a-r2", phases=two, clouds=HUAWEI)
next_one = put("a-r2", marker("a", 2, CHANGED.digest))
case("made before", CHANGED, next_one, had=A, job="a-r2", sent="US")
for what, text in (("protected", f"{OURS}.protected"), ("rewritten", marker("a", 1, CHANGED.digest))):
    case(f"{what} since", CHANGED, says(text), had=A, status=CONFLICT, sent="", phases="a=Running")
case("old one cannot be read for a while", CHANGED, answers(SHOW, 503, nth=3, count=8), had=A)


def ran_before_the_other_ended(service: Service, _: Outcome) -> None:
    assert service.job("a-r2").life.since("Running") <= service.job("a").life.since("Terminating")


case("new one first", NEW_FIRST, had=A, sent="CUS", job="a-r2", check=ran_before_the_other_ended)
quick = a_job(
    algorithm__environments={"EMULATOR_RUN_SECONDS": "0"}, lifecycle={"replace_order": "create_first"}
)
case("new one first, completed at once", quick, had=A, phases="a=Terminating a-r2=Completed")


def is_kept(service: Service, _: Outcome) -> None:
    [kept] = service.plan(NEW_FIRST).actions
    assert (kept.action, kept.before and kept.before.revision) == (Action.KEEP, 1), "on_failure: keep"


for phase in ("Failed", "Abnormal", "Terminated"):
    case(
        f"new one first, {phase}",
        NEW_FIRST,
        at(1, is_now(phase, "a-r2")),
        had=A,
        status=FAILED,
        detail=f"a-r2 ended as {phase}; the old job is kept",
        job="a-r2",
        phases=f"a=Running a-r2={phase}",
        check=is_kept,
    )
FIRST: dict[str, Any] = {"desired": NEW_FIRST, "had": A}
slow = after(CREATE, hangs("a-r2"))
two = "a=Running a-r2=Creating"
case("new one first, too late", NEW_FIRST, slow, had=A, timeout_s=60, status=late, job="a-r2", phases=two)
protect = at(1, says(f"{OURS}.protected"))
both_run = "a=Running a-r2=Running"
case("new one first, old one protected", NEW_FIRST, protect, had=A, status=CONFLICT, phases=both_run)
case("new one first, answer lost", NEW_FIRST, fails(Effect.LOST_AFTER, CREATE), had=A, phases="a a-r2")
case("new one first, old one deleted", NEW_FIRST, is_deleted(), had=A, phases="a-r2")
back = all_of(applied(CHANGED), sleeps(10))
case("back to the first declaration", A, had=A, first=back, phases="a a-r2 a-r3", is_settled=True)

# --- terminate: marked first; an already ended job counts as done

END: dict[str, Any] = {"had": A, "clouds": HUAWEI}
GONE = absent()
STOPPED = {"a": f"{OURS}.stopped"}


def is_waited_for(service: Service, _: Outcome) -> None:
    assert service.plan(A).actions[0].reason is Reason.WAITS_FOR_TERMINATION


case("terminated", GONE, sent="US", job="a", descriptions=STOPPED, check=is_waited_for, **END)
nightly = a_job(description="nightly")
case(
    "terminated, text stays", GONE, had=nightly, descriptions={"a": f"nightly {OURS}.stopped"}, clouds=HUAWEI
)
no_room = says("x" * (MAX_DESCRIPTION - len(OURS) - 1) + f" {OURS}")
cut = {"a": "x" * (MAX_DESCRIPTION - len(OURS) - 9) + f" {OURS}.stopped"}
case("terminated, no room", GONE, first=no_room, descriptions=cut, phases="a=Terminating", **END)
for phase in ("Completed", "Failed", "Terminated", "Abnormal", "Terminating"):
    for when, operation in (("before the look", SHOW), ("before the mark", UPDATE), ("before the end", STOP)):
        ended = before(operation, hangs_as(phase))
        unmarked = {"a": OURS} if operation == SHOW else {}
        row: dict[str, Any] = {"detail": f"now {phase}", "phases": f"a={phase}", "descriptions": unmarked}
        case(f"{phase} {when}", GONE, ended, **row, **END)
moved = answers(STOP, 409, "ModelArts.2878", count=1)
case(
    "status moved twice", GONE, moved, moved, sent="USSS", phases="a=Terminating", check=asks(SHOW, 4), **END
)
moves = answers(STOP, 409, "ModelArts.2878")
case("status always moves", GONE, moves, status=FAILED, code="ModelArts.2878", phases="a=Running", **END)
ended = at_the(4, STOP, is_now("Completed"))
case("ended before the last attempt", GONE, moved, moved, moved, ended, detail="now Completed", **END)
for operation in (STOP, UPDATE, SHOW):
    for effect in (*NO_ANSWER, Effect.TRUNCATED if operation == SHOW else Effect.UNREADABLE):
        lost = fails(effect, operation, status=503)
        row = {"phases": "a=Terminating", "descriptions": STOPPED}
        case(f"terminate: {operation} answered by {effect}", GONE, lost, **row, **END)
for operation in (STOP, UPDATE):
    broken = answers(operation, 503, "ModelArts.4302")
    row = {"status": FAILED, "code": "ModelArts.4302", "phases": "a=Running"}
    only_so_often = asks(operation, MAX_ATTEMPTS)
    case(f"terminate: {operation} always fails", GONE, broken, check=only_so_often, **row, **END)
    lost = fails(Effect.LOST_AFTER, operation, count=None)
    case(f"terminate: {operation} never answered", GONE, lost, descriptions=STOPPED, **END)
for operation in (SHOW, UPDATE, STOP):
    deleted = before(operation, is_deleted())
    case(f"deleted at {operation}", GONE, deleted, detail="its record no longer exists", **END)
for operation in (UPDATE, STOP):
    # Only a details request proves that a job is gone.
    once, always = (answers(operation, 400, "ModelArts.2775", count=count) for count in (1, None))
    case(f"{operation} does not find it once", GONE, once, phases="a=Terminating", **END)
    row = {"status": FAILED, "code": "ModelArts.2775", "phases": "a=Running"}
    case(f"{operation} does not find it", GONE, always, **row, **END)
    case(f"replace: {operation} does not find it", CHANGED, always, had=A, **row)
refused = answers(UPDATE, 400, "ModelArts.2788")
case("mark refused", GONE, refused, status=FAILED, code="ModelArts.2788", sent="U", **END)
MOVED = {
    "protected": f"{OURS}.protected",
    "given away": marker("a", 1, A.digest, stack="other"),
    "renewed": marker("a", 1, "a" + "f" * 12),
    "wiped": "mine now",
}
for what, text in MOVED.items():
    row = {"status": CONFLICT, "sent": "", "descriptions": {"a": text}, "phases": "a=Running"}
    case(f"not terminated: {what}", GONE, says(text), **row, **END)
protect = after(UPDATE, says(f"{OURS}.protected.stopped"))
case("protected before the second try", GONE, moved, protect, status=CONFLICT, phases="a=Running", **END)
case("unknown phase", GONE, is_now("Hibernating"), status=FAILED, detail="Hibernating", sent="", **END)


class Killed(BaseException):
    """The program ends here."""


def killed_before_the_end(service: Service) -> None:
    """The job is marked but not terminated."""

    def kill() -> None:
        raise Killed

    service.gate.before(STOP, kill)
    with pytest.raises(Killed):
        service.carry_out(service.plan(GONE))
    assert (service.description("a"), service.phases()) == (STOPPED["a"], {"a": "Running"})


KILLED = {**END, "first": killed_before_the_end}
case("half stopped, and finished", GONE, phases="a=Terminating", **KILLED)
case("half stopped, and declared", A, descriptions={"a": OURS}, is_settled=True, **KILLED)

# --- update: legal changes are written, and read back

EDITED = a_job(description="new")
OLD = a_job(description="old")
WRITTEN = {"a": f"new {OURS}"}
case("updated", EDITED, had=OLD, descriptions=WRITTEN, is_settled=True, check=requests(SHOW, UPDATE, SHOW))
undone = after(UPDATE, says(f"old {OURS}"))
no_effect = "the service did not apply description"
case("update without effect", EDITED, undone, had=OLD, status=FAILED, detail=no_effect)
URGENT = a_job(spec__schedule_policy={"priority": 3})
PENDING = {"first": all_of(applied(A), sleeps(1.5)), "clouds": HUAWEI}


def forgets_the_priority(service: Service) -> None:
    service.store.edit(service.job("a").id, lambda body: body["spec"].pop("schedule_policy"))


forgotten = after(UPDATE, forgets_the_priority)
case(
    "priority forgotten", URGENT, forgotten, status=FAILED, detail="spec.schedule_policy.priority", **PENDING
)


def has_priority(service: Service, _: Outcome) -> None:
    assert service.job("a").body["spec"]["schedule_policy"] == {"priority": 3}


case("priority", URGENT, check=has_priority, **PENDING)
BOTH = a_job(spec__schedule_policy={"priority": 3}, description="new")


def is_deferred(service: Service, outcome: Outcome) -> None:
    assert [change.path for change in outcome.action.changes] == [
        "description",
        "spec.schedule_policy.priority",
    ]
    assert "schedule_policy" not in service.job("a").body["spec"]
    assert [warning.what for warning in service.plan(BOTH).warnings] == ["deferred"]


too_late = "spec.schedule_policy.priority cannot be changed while the job is Running"
by_now = {"descriptions": WRITTEN, "is_settled": True, "check": is_deferred, "detail": too_late}
case("runs by now", BOTH, sleeps(10), **by_now, **PENDING)
for effect in NO_ANSWER:
    lost = fails(effect, UPDATE, status=503)
    case(f"update answered by {effect}", EDITED, lost, had=A, descriptions=WRITTEN)
broken = answers(UPDATE, 503, "ModelArts.4302")
so_often = asks(UPDATE, MAX_ATTEMPTS)
case("update always fails", EDITED, broken, had=A, status=FAILED, code="ModelArts.4302", check=so_often)
lost = fails(Effect.LOST_AFTER, UPDATE, count=None)
case("update never answered", EDITED, lost, had=A, descriptions=WRITTEN)
ending = hangs_as("Terminating")
case("update of a terminating job", EDITED, ending, had=A, status=FAILED, detail="Terminating", sent="")
case("update of a deleted job", EDITED, is_deleted(), had=A, status=FAILED, code="ModelArts.2775")
for protect_ in (True, False):
    said_ = {"a": f"{OURS}.protected" if protect_ else OURS}
    before_, wanted = (a_job(lifecycle={"protect": one}) for one in (not protect_, protect_))
    case(f"protect: {protect_}", wanted, had=before_, descriptions=said_)


def goes_then(service: Service, outcome: Outcome) -> None:
    assert outcome.action.reason is Reason.PROTECTION_RELEASED
    assert the_only(service.apply(absent(protect=False))).action.action is Action.TERMINATE
    assert service.phases() == {"a": "Terminating"}


protected = a_job(lifecycle={"protect": True})
case("released first", absent(protect=False), had=protected, sent="U", phases="a=Running", check=goes_then)
for what, text in {**MOVED, "stopped": f"{OURS}.stopped"}.items():
    row = {"status": CONFLICT, "sent": "", "descriptions": {"a": text}}
    case(f"not updated: {what}", EDITED, says(text), had=A, **row)
for what, wanted in {
    "edited": EDITED,
    "edited and released": a_job(description="new", lifecycle={"protect": False}),
    "released": absent(protect=False),
}.items():
    case(f"protection gone, {what}", wanted, says(OURS), had=protected, status=CONFLICT)
case("text edited since", EDITED, says(f"somebody's {OURS}"), had=OLD, descriptions=WRITTEN)


def is_declared_again(service: Service, outcome: Outcome) -> None:
    assert [change.path for change in outcome.action.changes] == ["marker.stopped"]
    assert service.plan(A).actions[0].reason is Reason.DECLARED_AGAIN


unstopped = {"had": A, "first": says(f"{OURS}.stopped"), "status": CONFLICT, "descriptions": STOPPED}
case("stopped, and ended since", A, is_now("Terminated"), check=is_declared_again, **unstopped)

# --- adopt, release and move: executed like updates

TEXT = a_job(description="a text")


def adoption(service: Service) -> Plan:
    return adopt_plan(service.context(a_stack(TEXT)), "a", service.job("by-hand").id)[0]


def is_ours(service: Service, _: Outcome) -> None:
    assert service.description("by-hand") == f"a text {OURS}.id{service.job('by-hand').id[:8]}"
    assert not service.plan(TEXT).to_execute
    assert service.plan(TEXT).actions[0].action is Action.KEEP


BY_HAND = {
    "first": lambda service: service.put_job("by-hand", "their text", dict(TEXT.body or {})),
    "plan": adoption,
}
case("adopted", TEXT, check=is_ours, **BY_HAND)
case("adopted at once", TEXT, check=requests(SHOW, UPDATE, SHOW), **BY_HAND)
for effect in (Effect.LOST_AFTER, Effect.ANSWER_AFTER, Effect.UNREADABLE):
    lost = fails(effect, UPDATE, count=None)
    case(f"adoption answered by {effect}", TEXT, lost, check=is_ours, clouds=HUAWEI, **BY_HAND)


def adopts_next_time(service: Service, outcome: Outcome) -> None:
    service.app.faults.clear()
    plan = adoption(service)
    for _ in range(2):
        assert the_only(service.carry_out(plan)).status is DONE
    is_ours(service, outcome)


lost = fails(Effect.LOST_BEFORE, UPDATE, count=None)
case("adoption lost", TEXT, lost, status=FAILED, check=adopts_next_time, clouds=HUAWEI, **BY_HAND)
undone = after(UPDATE, says("their text", "by-hand"))
case("adoption without effect", TEXT, undone, status=FAILED, detail=no_effect, clouds=HUAWEI, **BY_HAND)


def is_adopted_elsewhere(service: Service) -> None:
    job = service.job("by-hand")
    service.describe(job.name, marker("x", 1, A.digest, f"id{job.id[:8]}", stack="rival"))


def stays_theirs(service: Service, outcome: Outcome) -> None:
    assert outcome.detail == "by-hand was adopted in the meantime: it belongs to key x of stack rival"
    assert service.description("by-hand").startswith("reconciler.rival.x.")


for when, deed in (
    ("before", before(SHOW, is_adopted_elsewhere)),
    ("after", after(UPDATE, is_adopted_elsewhere)),
):
    row = {"status": CONFLICT, "check": stays_theirs, "clouds": HUAWEI}
    case(f"adopted elsewhere {when} ours", TEXT, deed, **row, **BY_HAND)
ending = all_of(is_now("Terminating", "by-hand"), hangs("by-hand"))
case("adoption of a terminating job", TEXT, ending, status=FAILED, sent="", clouds=HUAWEI, **BY_HAND)
RIVAL = {"a": f"a text {marker('a', 1, A.digest, stack='rival')}"}
RELEASE = {"had": TEXT, "plan": lambda service: release_plan(service.context(a_stack(TEXT)), "a")}
case("released", TEXT, descriptions={"a": "a text"}, **RELEASE)
case("released before", TEXT, says("a text"), detail="its marker is already gone", **RELEASE)
moved_away = says(RIVAL["a"])
case("not released: moved since", TEXT, moved_away, status=CONFLICT, descriptions=RIVAL, **RELEASE)


def is_of_the_old_stack(service: Service) -> None:
    service.describe("a", service.description("a").replace(f".{STACK}.", ".old."))


MOVE = {
    "had": TEXT,
    "first": is_of_the_old_stack,
    "plan": lambda service: move_plan(service.context(a_stack(TEXT)), "old").plan,
}
case("moved", TEXT, sent="U", descriptions={"a": f"a text {OURS}"}, is_settled=True, **MOVE)
stopped = f"a text {marker('a', 1, A.digest, 'stopped', stack='old')}"
case("not moved: stopped since", TEXT, says(stopped), status=CONFLICT, descriptions={"a": stopped}, **MOVE)


@pytest.mark.parametrize(("cloud", "case"), CASES)
def test_every_action_has_its_outcome(cloud: Cloud, case: Case) -> None:
    with a_service(cloud) as service:
        if case.had is not None:
            service.run(case.had)
        case.first(service)
        plan = case.plan(service) if case.plan else service.plan(case.desired)
        service.forget_requests()
        service.time.slept.clear()
        for do in case.then:
            do(service)
        service.forget_requests()
        outcome = the_only(service.carry_out(plan, timeout_s=case.timeout_s))
        assert outcome.status is case.status, outcome
        assert case.detail in outcome.detail
        assert not case.code or (outcome.code, bool(outcome.request_id)) == (case.code, True)
        assert not case.job or outcome.job == service.job(case.job).id
        assert case.sent is None or "".join(LETTERS[one] for one in service.changes) == case.sent
        if case.phases is not None:
            shown = sorted(service.phases().items())
            names = [f"{name}={phase}" if "=" in case.phases else name for name, phase in shown]
            assert " ".join(names) == case.phases
        for name, text in case.descriptions.items():
            assert service.description(name) == text
        case.check(service, outcome)
        if case.is_settled:
            assert service.plan(case.desired).actions[0].action is Action.KEEP
