"""docs/concepts/decisions.md: `needs` defers a start; a newer upstream causes a rerun.

Each row is decided in the three workspaces of the decision table.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reconciler.core.observed import ObservedJob, Unreadable
from reconciler.core.phase import Phase
from reconciler.core.record import NO_HISTORY, HistorySnapshot
from reconciler.core.stack import DesiredJob, Stack, narrow
from reconciler.decide.outcome import Followed, may_start
from reconciler.decide.plan import Action, Plan, PlannedAction, Reason
from reconciler.decide.planner import propose_plan
from reconciler.decide.reports import WaitKind, explain, make_status
from tests.builders import HOUR, TARGET, a_job, a_stack, absent, seen
from tests.core.history import a_memory, past
from tests.core.test_decision_table import (
    DONE,
    OLD,
    TD,
    F,
    R,
    check_keys,
    jobs_as,
    plan_everywhere,
    rows,
    stack_as,
)
from tests.core.worlds import World, a_world

WAITS = (Action.DEFER, Reason.NEEDS_PENDING)
FAILED = (Action.BLOCKED, Reason.NEEDS_FAILED)
STARTS = (Action.CREATE, Reason.NOT_FOUND)
UP = a_job("up")


def needing(*upstream: str, key: str = "down", **members: Any) -> DesiredJob:
    return replace(a_job(key, **members), needs=upstream or ("up",))


def of(plan: Plan, key: str = "down") -> PlannedAction:
    [action] = [action for action in plan.actions if action.key == key]
    return action


def decisions(stack: Stack, *jobs: ObservedJob, **more: Any) -> dict[str, tuple[Action, Reason]]:
    return {one.key: (one.action, one.reason) for one in plan_everywhere(stack, *jobs, **more).actions}


@pytest.mark.parametrize(
    ("up", "observed", "expected"),
    rows(
        """
# settled: kept, and completed
completed | | up Completed | down create not_found
edit ignored | on_change: keep, rerun: again | up Completed plain | down create not_found
released | protect: false | up Completed protected | up update marker_changed / down create not_found
marker behind | | up Completed behind | up update marker_changed / down create not_found
renamed | formerly: was-up | was-up Completed | up update marker_changed / down create not_found
# open: it runs, or is going to
not there | | | down defer needs_pending
running | | up | down defer needs_pending
terminating | | up Terminating | down defer needs_pending
edited | rerun: again | up Completed plain | down defer needs_pending
to be replaced | on_change: replace, rerun: again | up plain | down defer needs_pending
retry due | on_failure: retry | up Failed | down defer needs_pending
recreate | on_terminated: recreate | up Terminated | down defer needs_pending
stopped by us | | up Terminated stopped | down defer needs_pending
edit refused | on_change: fail, rerun: again | up Completed plain | down defer needs_pending
name taken | | up by-hand | up conflict name_taken / down defer needs_pending
unknown phase | | up Frozen | up blocked unknown_phase / down defer needs_pending
unknown digest | | up Completed too-new | up blocked unknown_digest / down defer needs_pending
# failed: it ended badly, or is absent, and nothing starts it again
failed | | up Failed | down blocked needs_failed: needs up, which ended as Failed; blocks create
terminated | | up Terminated | down blocked needs_failed
no retry left | on_failure: retry, max_retries: 0 | up Failed | down blocked needs_failed
auto_stop | auto_stop: 1 | up Terminated ran_s=1h | up keep auto_stopped / down blocked needs_failed
absent | absent | up | up terminate state_absent / down blocked needs_failed
absent, completed | absent | up Completed \
    | down blocked needs_failed: needs up, which is absent; blocks create
""",
        4,
    ),
)
def test_start_waits_or_fails_with_its_upstream(up: str, observed: str, expected: str) -> None:
    stack = stack_as(f"up {up}; down needs: up")
    jobs = jobs_as(observed, stack)
    if up.startswith("formerly"):
        jobs = [seen(replace(UP, key="was-up"), phase=DONE)]
    check_keys(plan_everywhere(stack, *jobs), expected)


@pytest.mark.parametrize(
    ("down", "observed", "expected"),
    rows(
        """
# what runs or has finished is never touched
running | | up Failed, down | down keep unchanged
terminating | | up Completed old, down Terminating | down keep terminated_outside
completed | | up Completed old, down Completed | down keep completed
updated | description: new | down text=old | down update mutable_changed
to be absent | absent | down | down terminate state_absent
# a start of any reason waits
retry | on_failure: retry | up, down Failed | down defer needs_pending
retry, settled | on_failure: retry | up Completed, down Failed | down create retry
declared again | | up, down Terminated stopped | down defer needs_pending
declared again, settled | | up Completed, down Terminated stopped | down create declared_again
edited | | up, down Completed old | down defer needs_pending
edited, settled | | up Completed, down Completed old | down create immutable_changed
superseded beside it | | down old ran_s=9, down r2 old | down terminate superseded / down defer needs_pending
retry not due | on_failure: retry | up, down Failed ended_s_ago=60 | down defer retry_later
""",
        4,
    ),
)
def test_needs_defer_starts_only(down: str, observed: str, expected: str) -> None:
    links = "absent needs: up" if down == "absent" else f"needs: up, {down}"
    stack = stack_as(f"up; down {links}")
    check_keys(plan_everywhere(stack, *jobs_as(observed, stack)), expected)


@pytest.mark.parametrize(
    ("entries", "observed", "expected"),
    rows(
        """
# a chain is deferred at every link
a starts | a; b needs: a; c needs: b | | a create not_found / b defer needs_pending / c defer needs_pending
a done | a; b needs: a; c needs: b | a Completed | b create not_found / c defer needs_pending
b done | a; b needs: a; c needs: b | a Completed, b Completed | c create not_found
a failed | a; b needs: a; c needs: b | a Failed | b blocked needs_failed / c defer needs_pending
a gone | a; b needs: a; c needs: b | b Completed | a create not_found / c create not_found
a edited | a; b needs: a; c needs: b | a Completed old, b Completed | c create not_found
# two upstreams: what has failed decides, whatever the other one is up to
both done | l; r; c needs: l+r | l Completed, r Completed | c create not_found
one runs | l; r; c needs: l+r | l Completed, r | c defer needs_pending: waiting for r, then create
one not there | l; r; c needs: l+r | l Completed | c defer needs_pending
one failed | l; r; c needs: l+r | l Completed, r Failed | c blocked needs_failed
one failed, one runs | l; r; c needs: l+r | l, r Failed | c blocked needs_failed
failed and absent | a; l absent; r; c needs: a+l+r | a Completed, r Failed \
    | c blocked needs_failed: needs l, which is absent, r, which ended as Failed; blocks create
""",
        4,
    ),
)
def test_chained_and_shared_needs_are_waited_for(entries: str, observed: str, expected: str) -> None:
    stack = stack_as(entries)
    check_keys(plan_everywhere(stack, *jobs_as(observed, stack)), expected)


def test_unreadable_upstream_is_waited_for() -> None:
    lost = (Unreadable("status is missing", name="up"),)
    found = decisions(a_stack(UP, needing()), seen(a_job("down", **OLD), phase=DONE), unreadable=lost)
    assert found == {"up": (Action.UNKNOWN, Reason.UNREADABLE), "down": WAITS}


@pytest.mark.parametrize(("upstream", "kind"), [(R, WAITS), (F, FAILED)])
def test_replace_with_open_needs_neither_terminates_nor_creates(
    upstream: Phase, kind: tuple[Action, Reason]
) -> None:
    plan = plan_everywhere(
        a_stack(UP, needing()), seen(UP, phase=upstream), seen(a_job("down", **OLD), ran_s=999)
    )
    held = of(plan)
    assert (held.action, held.reason) == kind
    assert held.before is not None
    assert (held.after, held.desired, held.lost_node_hours) == (None, None, 0)
    assert [change.path for change in held.changes] == ["algorithm.parameters.lr"]
    assert "replace" in held.detail
    assert (plan.lost_node_hours, plan.applyable) == (0, False)


# --- an upstream out of view, or aged out


def only(stack: Stack, *keys: str) -> Stack:
    return narrow(replace(stack, whole=stack.jobs), keys, [])


@pytest.mark.parametrize(
    ("phase", "expected"), [(DONE, STARTS), (R, WAITS), (None, WAITS), (F, FAILED), ("Frozen", WAITS)]
)
def test_upstream_out_of_view_counts_and_is_not_shown(
    phase: str | None, expected: tuple[Action, Reason]
) -> None:
    jobs = [seen(UP, phase=phase)] if phase else []
    assert decisions(only(a_stack(UP, needing()), "down"), *jobs) == {"down": expected}


def test_chain_of_needs_is_followed_out_of_view() -> None:
    stack = only(a_stack(a_job("a"), needing("a", key="b"), needing("b", key="c")), "c")
    assert decisions(stack, seen(a_job("a"), phase=DONE)) == {"c": WAITS}
    assert decisions(stack, seen(a_job("b"), phase=DONE)) == {"c": STARTS}


def test_upstream_out_of_view_that_changed_is_compared_like_any_other() -> None:
    stack = only(a_stack(a_job("up", **OLD), needing()), "down")
    assert decisions(stack, seen(UP, phase=DONE)) == {"down": WAITS}
    assert decisions(stack, seen(UP, phase=DONE), details={}) == {"down": WAITS}


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        (NO_HISTORY, WAITS),
        (HistorySnapshot(problem="unavailable"), (Action.UNKNOWN, Reason.UNREADABLE)),
        *((a_memory(past(UP, 1, phase)), FAILED) for phase in (F, TD, R)),
        (a_memory(past(UP)), STARTS),
    ],
    ids=["unknown", "unreadable", "failed", "terminated", "was running", "completed"],
)
def test_aged_out_upstream_counts_as_completed_only_if_it_completed(
    memory: HistorySnapshot, expected: tuple[Action, Reason]
) -> None:
    assert decisions(a_stack(UP, needing()), memory=memory, force=True)["down"] == expected


def test_upstream_with_a_marker_to_restore_is_waited_for() -> None:
    """It may have been made from another declaration; then it reruns first."""
    wiped = seen(UP, phase=DONE, description="")
    found = decisions(a_stack(UP, needing()), wiped, memory=a_memory(past(UP, 1, DONE)))
    assert found == {"up": (Action.UPDATE, Reason.MARKER_RESTORED), "down": WAITS}


# --- an upstream with a newer completed revision

#: up completed r1 and r2; down was made between the two.
OLDER, NEWER = (
    seen(UP, phase=DONE, ended_s_ago=24 * HOUR),
    seen(UP, revision=2, phase=DONE, ended_s_ago=20 * HOUR),
)
UPS = "up Completed ended_s_ago=24h, up r2 Completed ended_s_ago=20h"


def down(*needs: str, **more: Any) -> DesiredJob:
    more.setdefault("lifecycle", {"on_upstream": "rerun"})
    return needing(*needs, **more)


def made(desired: DesiredJob | None = None, **more: Any) -> ObservedJob:
    return seen(desired or down(), **{"phase": DONE, "ended_s_ago": 22 * HOUR, **more})


def warned(plan: Plan) -> list[tuple[str, str | None]]:
    return [(one.what, one.fix) for one in plan.warnings if one.key == "down"]


ASK = "`lifecycle.on_upstream: rerun` runs it again, and so does an edit of `lifecycle.rerun`"
LATER = "it runs again once it has ended (on_upstream: rerun)"


@pytest.mark.parametrize(
    ("declared", "job", "expected", "fix"),
    rows(
        """
completed | on_upstream: rerun | Completed \
    | down create upstream_newer: made from an older up; on_upstream: rerun
failed | on_upstream: rerun | Failed | down create upstream_newer
terminated | on_upstream: rerun | Terminated | down create upstream_newer
terminating | on_upstream: rerun | Terminating | down create waits_for_termination
running | on_upstream: rerun | Running | down keep unchanged | LATER
unset | | Completed | down keep completed | ASK
unset, running | | Running | down keep unchanged | ASK
edited | on_upstream: rerun | Completed old | down create immutable_changed
edited, keep | on_upstream: rerun, on_change: keep | Completed old | down create upstream_newer
edited, fail | on_upstream: rerun, on_change: fail | Completed old | down conflict change_refused
up runs | on_upstream: rerun | Completed ended_s_ago=22h, up r3 | down defer needs_pending: up runs again
up failed | on_upstream: rerun | Completed ended_s_ago=22h, up r3 Failed | down blocked needs_failed: \
needs up, which ended as Failed; blocks create: made from an older up; on_upstream: rerun
up in conflict | on_upstream: rerun | Completed ended_s_ago=22h, up r3 by-hand | down defer needs_pending: \
waiting for up, then create: made from an older up; on_upstream: rerun
""",
        5,
    ),
)
def test_newer_upstream_reruns_an_ended_job_or_warns(
    declared: str, job: str, expected: str, fix: str
) -> None:
    stack = stack_as(f"up; down needs: up, {declared}")
    plan = plan_everywhere(stack, *jobs_as(f"{UPS}, down {job} ended_s_ago=22h", stack))
    check_keys(plan, expected)
    assert warned(plan) == ([("made from an older up", {"ASK": ASK, "LATER": LATER}[fix])] if fix else [])
    if "old" in job:
        assert [change.path for change in of(plan).changes] == ["algorithm.parameters.lr"]


def test_next_revision_counts_as_the_rerun() -> None:
    plan = plan_everywhere(a_stack(UP, down()), OLDER, NEWER, made())
    assert of(plan).after is not None
    assert of(plan).rerun_of == 1
    assert plan.last_line.endswith("1 of them run finished work again.")


def test_warning_says_when_the_upstream_completed() -> None:
    desired = down(lifecycle={})
    plan = plan_everywhere(a_stack(UP, desired), OLDER, NEWER, made(desired))
    assert [one.why for one in plan.warnings] == [
        "up completed r2 at 2027-01-14T12:00:00Z, after down was created"
    ]


#: The service rounds its times: the upstream a job was made from must not rerun it.
MADE_S = made().created_at_s or 0.0
ENDED_AS_IT_WAS_CREATED = [
    replace(NEWER, created_at_s=MADE_S - 70, started_at_s=MADE_S + later_s - 60) for later_s in (0.0, 0.9)
]


def test_upstream_created_later_is_newer_even_if_it_completed_at_once() -> None:
    desired = down(lifecycle={})
    soon = replace(NEWER, created_at_s=MADE_S + 0.2, started_at_s=None, duration_s=None)
    plan = plan_everywhere(a_stack(UP, desired), OLDER, soon, made(desired))
    assert warned(plan) == [("made from an older up", ASK)]


@pytest.mark.parametrize(
    "upstream",
    [
        [OLDER],
        [OLDER, seen(UP, revision=2, phase=F, ended_s_ago=20 * HOUR)],
        [OLDER, seen(UP, revision=2, phase=TD, ended_s_ago=20 * HOUR)],
        [OLDER, replace(NEWER, started_at_s=None, created_at_s=None)],
        *([up] for up in ENDED_AS_IT_WAS_CREATED),
    ],
    ids=["one revision", "failed", "terminated", "no times", "at that moment", "less than a second later"],
)
@pytest.mark.parametrize("lifecycle", [{}, {"on_upstream": "rerun"}])
def test_upstream_without_a_newer_completion_changes_nothing(
    upstream: list[ObservedJob], lifecycle: dict[str, Any]
) -> None:
    desired = down(lifecycle=lifecycle)
    plan = plan_everywhere(a_stack(UP, desired), *upstream, made(desired))
    assert (of(plan).reason, warned(plan)) == (Reason.COMPLETED, [])


@pytest.mark.parametrize(
    ("stack", "jobs"),
    [
        (a_stack(UP, down(lifecycle={})), [OLDER, seen(UP, revision=2), made(down(lifecycle={}))]),
        (a_stack(UP, down(lifecycle={})), [made(down(lifecycle={}))]),
        (a_stack(UP, down()), [NEWER, replace(made(), created_at_s=None)]),
        (a_stack(UP, down()), [OLDER, NEWER, made(), made(revision=2, ended_s_ago=19 * HOUR)]),
        (a_stack(absent("up"), down()), [OLDER, NEWER, made()]),
    ],
    ids=["runs again, kept", "not there, kept", "no time of creation", "rerun already", "absent"],
)
def test_job_made_from_the_newest_upstream_is_kept(stack: Stack, jobs: list[ObservedJob]) -> None:
    plan = plan_everywhere(stack, *jobs)
    assert (of(plan).reason, warned(plan)) == (Reason.COMPLETED, [])


def test_single_newer_upstream_causes_a_rerun_that_waits_for_the_others() -> None:
    other = a_job("other")
    stack, jobs = a_stack(UP, other, down("up", "other")), (OLDER, NEWER, made())
    settled = seen(other, phase=DONE, ended_s_ago=30 * HOUR)
    check_keys(plan_everywhere(stack, *jobs, settled), "down create upstream_newer")
    check_keys(plan_everywhere(stack, *jobs, seen(other)), "down defer needs_pending: other runs again")


def test_many_newer_upstreams_are_counted() -> None:
    several = [a_job(f"up-{n}") for n in range(5)]
    desired = down(*(job.key for job in several), lifecycle={})
    upstream = [seen(job, phase=DONE, ended_s_ago=20 * HOUR) for job in several]
    plan = plan_everywhere(a_stack(*several, desired), *upstream, made(desired))
    assert [what for what, _ in warned(plan)] == ["made from an older up-0, up-1, up-2 and 2 more"]


def test_job_declared_absent_is_not_rerun() -> None:
    stack = a_stack(UP, replace(absent("down"), needs=("up",)))
    assert [action.key for action in plan_everywhere(stack, OLDER, NEWER, made()).actions] == ["up"]


def test_renamed_upstream_counts_by_its_new_key() -> None:
    stack = a_stack(replace(a_job("new-up"), formerly=("up",)), down("new-up"))
    expected = "down create upstream_newer: made from an older new-up; on_upstream: rerun"
    check_keys(plan_everywhere(stack, OLDER, NEWER, made()), expected)


@pytest.mark.parametrize("jobs", [(made(),), (OLDER, NEWER)], ids=["upstream", "downstream"])
def test_aged_out_newer_upstream_causes_a_rerun(jobs: tuple[ObservedJob, ...]) -> None:
    memory = a_memory(past(UP, 1, job=OLDER), past(UP, 2, job=NEWER), past(down(), 1, job=made()))
    action = of(plan_everywhere(a_stack(UP, down()), *jobs, memory=memory))
    assert action.reason is Reason.UPSTREAM_NEWER
    assert action.after is not None
    assert action.after.revision == 2


def test_wait_starts_a_rerun_only_if_the_plan_announced_it() -> None:
    stack = a_stack(UP, down())
    later = of(plan_everywhere(stack, OLDER, NEWER, made()))
    kept = of(plan_everywhere(stack, OLDER, made()))
    announced = of(plan_everywhere(stack, OLDER, NEWER, seen(UP, revision=3, phase=R), made()))
    assert not may_start(Followed.of(kept), later)
    assert may_start(Followed.of(announced), later)


# --- a chain of `on_upstream: rerun` is announced whole; each link runs once

TRAIN = "train needs: prepare, on_upstream: rerun"
CHAIN = f"{TRAIN}; report needs: train, on_upstream: rerun"
MADE = "train Completed made=22, report Completed made=20"
ANNOUNCED = "train defer needs_pending: prepare runs again / report defer needs_pending: train runs again"
LEFT_ALONE = "train keep completed: completed / report keep completed: completed"
FIRST = f"prepare Completed plain made=24, {MADE}"


@pytest.mark.parametrize(
    ("prepare", "observed", "expected"),
    rows(
        """
# the first link runs again
edited | edited: true | prepare Completed plain made=24 | ANNOUNCED
to be replaced | edited: true, on_change: replace | prepare plain | ANNOUNCED
recreate | on_terminated: recreate | prepare Terminated made=24 | ANNOUNCED
declared again | | prepare Terminated made=24 stopped | ANNOUNCED
schedule | schedule: 0 2 * * * | prepare Completed made=48 | ANNOUNCED
running | | prepare Completed made=24, prepare r2 Running | ANNOUNCED
ending | edited: true | prepare Terminating plain | ANNOUNCED
not there | | | ANNOUNCED
# what runs completes once more, whatever is to become of the edit
edit refused | edited: true, on_change: fail | prepare plain | ANNOUNCED
protected | edited: true, protect: true | prepare plain | ANNOUNCED
would lose work | edited: true | prepare plain ran_s=10h | ANNOUNCED
# it does not
completed | | prepare Completed made=24 | LEFT_ALONE
updated | description: new | prepare Completed made=24 text=old | LEFT_ALONE
edit ignored | edited: true, on_change: keep | prepare Completed plain made=24 | LEFT_ALONE
edit refused, completed | edited: true, on_change: fail | prepare Completed plain made=24 | LEFT_ALONE
failed | | prepare Failed made=24 | LEFT_ALONE
terminated | | prepare Terminated made=24 | LEFT_ALONE
unknown digest | | prepare Completed made=24 too-new | LEFT_ALONE
name taken | | prepare by-hand | LEFT_ALONE
absent | absent | prepare | LEFT_ALONE
""",
        4,
    ),
)
def test_chain_is_deferred_if_its_first_link_reruns(prepare: str, observed: str, expected: str) -> None:
    stack = stack_as(f"prepare {prepare}; {CHAIN}")
    plan = plan_everywhere(stack, *jobs_as(f"{observed}, {MADE}", stack))
    check_keys(plan, ANNOUNCED if expected == "ANNOUNCED" else LEFT_ALONE)


def test_chain_is_kept_if_its_first_link_is_unreadable() -> None:
    stack, lost = stack_as(f"prepare; {CHAIN}"), Unreadable("status is missing", name="prepare")
    check_keys(plan_everywhere(stack, *jobs_as(MADE, stack), unreadable=(lost,)), LEFT_ALONE)


@pytest.mark.parametrize(
    ("entries", "observed", "expected"),
    rows(
        """
edited | CHAIN | FIRST | ANNOUNCED / prepare create immutable_changed: algorithm.parameters.lr changed
first runs | CHAIN | FIRST, prepare r2 Running | prepare keep unchanged / ANNOUNCED
first done | CHAIN | FIRST, prepare r2 Completed made=3 | report defer needs_pending: train runs again \
    / train create upstream_newer: made from an older prepare; on_upstream: rerun
second runs | CHAIN | FIRST, prepare r2 Completed made=3, train r2 Running ended_s_ago=2h \
    | train keep unchanged / report defer needs_pending: train runs again
second done | CHAIN | FIRST, prepare r2 Completed made=3, train r2 Completed made=2 \
    | train keep completed / report create upstream_newer: made from an older train; on_upstream: rerun
all done | CHAIN \
    | FIRST, prepare r2 Completed made=3, train r2 Completed made=2, report r2 Completed made=1 | LEFT_ALONE
# else it would run with the old one, and once more
last edited | TRAIN; report needs: train, on_upstream: rerun, edited: true \
    | prepare Completed plain made=24, train Completed made=22, report Completed plain made=20 \
    | report defer needs_pending: waiting for train, then create: algorithm.parameters.lr changed
last replaced | TRAIN; report needs: train, on_change: replace, edited: true \
    | prepare Completed plain made=24, train Completed made=22, report plain \
    | report defer needs_pending: waiting for train, then replace: algorithm.parameters.lr changed
last new | CHAIN | prepare Completed plain made=24, train Completed made=22 \
    | report defer needs_pending: waiting for train, then create
a link that keeps ends it | train needs: prepare; report needs: train, on_upstream: rerun | FIRST | LEFT_ALONE
a running link is kept | CHAIN | prepare Completed plain made=24, train, report Completed made=20 \
    | train keep unchanged: running / report defer needs_pending: train runs again
failed link | CHAIN | prepare Completed plain made=24, train Failed made=22, report Completed made=20 \
    | ANNOUNCED
terminating link | CHAIN | prepare Completed plain made=24, train Terminating, report Completed made=20 \
    | ANNOUNCED
edit ignored | train needs: prepare, on_upstream: rerun, edited: true, on_change: keep \
    | prepare Completed plain made=24, train Completed plain made=22 \
    | train defer needs_pending: prepare runs again
edit refused | train needs: prepare, on_upstream: rerun, edited: true, on_change: fail \
    | prepare Completed plain made=24, train Completed plain made=22 | train conflict change_refused
# the other upstream is heeded, too
other done | other; train needs: other+prepare, on_upstream: rerun | OTHER Completed made=24 \
    | train defer needs_pending: prepare runs again
other runs | other; train needs: other+prepare, on_upstream: rerun | OTHER \
    | train defer needs_pending: other, prepare run again
other failed | other; train needs: other+prepare, on_upstream: rerun | OTHER Failed made=24 \
    | train blocked needs_failed: needs other, which ended as Failed; blocks create: prepare runs again
# both branches of a diamond are waited for
diamond | DIAMOND | BRANCHES | bottom defer needs_pending: left, right run again
one branch done | DIAMOND | BRANCHES, left r2 Completed made=2, right r2 \
    | bottom defer needs_pending: right runs again
both branches done | DIAMOND | BRANCHES, left r2 Completed made=2, right r2 Completed made=1 \
    | bottom create upstream_newer: made from an older left, right; on_upstream: rerun
one branch failed | DIAMOND | BRANCHES, left r2 Completed made=2, right r2 Failed made=2 \
    | bottom blocked needs_failed: \
needs right, which ended as Failed; blocks create: made from an older left; on_upstream: rerun
""",
        4,
    ),
)
def test_chain_runs_link_by_link(entries: str, observed: str, expected: str) -> None:
    branches = "left needs: prepare, on_upstream: rerun; right needs: prepare, on_upstream: rerun; "
    words = {
        "CHAIN": CHAIN,
        "TRAIN": TRAIN,
        "DIAMOND": f"{branches}bottom needs: left+right, on_upstream: rerun",
        "FIRST": FIRST,
        "OTHER": "prepare Completed plain made=24, train Completed made=22, other",
        "BRANCHES": "prepare Completed plain made=24, left Completed made=22, right Completed made=22, "
        "bottom Completed made=20" + (", prepare r2 Completed made=3" if "r2" in observed else ""),
        "ANNOUNCED": ANNOUNCED,
        "LEFT_ALONE": LEFT_ALONE,
    }
    for word, replacement in words.items():
        entries, observed, expected = (
            text.replace(word, replacement) for text in (entries, observed, expected)
        )
    stack = stack_as(f"prepare edited: true; {entries}")
    plan = plan_everywhere(stack, *jobs_as(observed, stack))
    check_keys(plan, expected)
    assert plan.lost_node_hours == 0


@pytest.fixture
def announced() -> World:
    stack = stack_as(f"prepare edited: true; {CHAIN}")
    return a_world(stack, *jobs_as(FIRST, stack))


def test_deferred_link_names_what_it_waits_for_and_is_not_counted_as_a_rerun_yet(announced: World) -> None:
    plan = announced.plan()
    train = of(plan, "train")
    assert (train.reason, train.waits_for, train.rerun_of) == (Reason.NEEDS_PENDING, ("prepare",), None)
    assert plan.last_line == (
        "Plan: 1 to create, 0 to update, 0 to replace, 0 to terminate, 0 to keep. 2 deferred. "
        "1 of them run finished work again."
    )


@pytest.mark.parametrize("key", ["train", "report"])
def test_link_with_an_upstream_out_of_view_is_deferred(key: str) -> None:
    stack = stack_as(f"prepare edited: true; {CHAIN}")
    plan = plan_everywhere(only(stack, key), *jobs_as(FIRST, stack))
    assert [action.key for action in plan.actions] == [key]
    check_keys(plan, next(one for one in ANNOUNCED.split(" / ") if one.startswith(key)))


@pytest.mark.parametrize("forgotten", ["prepare", "train", "report"])
def test_link_that_has_aged_out_is_part_of_the_chain(forgotten: str) -> None:
    stack = stack_as(f"prepare edited: true; {CHAIN}")
    jobs = {one.name: one for one in jobs_as(FIRST, stack)}
    entries = {**stack.jobs, "prepare": a_job("prepare")}
    memory = a_memory(*(past(entries[key], 1, job=job) for key, job in jobs.items()))
    plan = plan_everywhere(stack, *(job for key, job in jobs.items() if key != forgotten), memory=memory)
    check_keys(plan, f"{ANNOUNCED} / prepare create immutable_changed")


def test_scheduled_link_waits_for_its_upstream_to_run_again() -> None:
    stack = stack_as(f"prepare edited: true; {TRAIN}, schedule: 0 2 * * *")
    plan = plan_everywhere(stack, *jobs_as("prepare Completed plain made=70, train Completed made=60", stack))
    assert of(plan, "train").action is Action.DEFER
    assert of(plan, "train").detail.startswith("waiting for prepare, then create: scheduled for")


# --- in the other reports


@pytest.mark.parametrize(
    ("prepare", "chain", "observed", "pending"),
    [
        (
            "edited: true",
            CHAIN,
            "prepare Completed plain made=24, train Failed made=22, report Completed made=20 text=by-hand",
            {
                "prepare": "changed since r1 (Completed)",
                "train": "prepare runs again",
                "report": "train runs again",
            },
        ),
        (
            "",
            CHAIN,
            f"prepare Completed made=24, prepare r2 Completed made=21, {MADE}",
            {"train": "made from an older prepare; on_upstream: rerun", "report": "train runs again"},
        ),
        (
            "edited: true",
            "train needs: prepare",
            "prepare Completed plain made=24, train Completed made=22",
            {"prepare": "changed since r1 (Completed)"},
        ),
    ],
    ids=["about to run again", "its turn has come", "a link that keeps"],
)
def test_link_about_to_run_again_is_pending_and_has_not_drifted(
    prepare: str, chain: str, observed: str, pending: dict[str, str]
) -> None:
    stack = stack_as(f"prepare {prepare}; {chain}")
    report = a_world(stack, *jobs_as(observed, stack)).drift()
    assert report.drift == ()
    assert {one.key: one.detail for one in report.pending} == pending


def test_why_of_a_deferred_link_names_its_rule_and_hint(announced: World) -> None:
    proposed = propose_plan(announced.stack, announced.look, announced.context, TARGET)
    explanation = explain("train", proposed, announced.plan())
    assert (explanation.rules[-1].name, explanation.chosen) == ("upstream-newer", Action.CREATE)
    assert explanation.actions[0].detail == "prepare runs again"
    assert explanation.otherwise == (
        "wait until the needed keys have completed",
        "set `lifecycle.on_upstream: keep`, and it is kept, with a warning",
    )


def test_status_of_a_deferred_link_names_what_it_waits_for(announced: World) -> None:
    jobs = make_status(announced.proposed(), announced.plan(), {}).jobs
    [train] = [row for row in jobs if row.key == "train"]
    assert (train.phase, train.waits_for is not None) == ("Completed", True)
    assert train.waits_for is not None
    assert (train.waits_for.kind, train.waits_for.keys) == (WaitKind.NEEDS, ("prepare",))
    assert train.waits_for.detail == "prepare runs again"
