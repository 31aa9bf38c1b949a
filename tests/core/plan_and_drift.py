"""Which drift findings are compatible with which action of a plan of the same moment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import NamedTuple

from reconciler.decide.actions import KeyDecision
from reconciler.decide.drift import DriftReport
from reconciler.decide.plan import Action, Plan, PlannedAction, Reason

PENDING = "pending"
MISSING, FAILED, TERMINATED, MODIFIED, MISSED = "missing", "failed", "terminated", "modified", "missed"
DUPLICATE, ORPHANED, UNOWNED, STUCK, UNKNOWN = "duplicate", "orphaned", "unowned", "stuck", "unknown"
MISSED = "missed"

#: Compatible with every action of a key that owns jobs.
ANYWHERE = {DUPLICATE, UNOWNED, STUCK, MISSED}
#: A newer revision than the counting one ended badly.
BAD_END = {FAILED, TERMINATED}
#: A job that was terminated outside or failed, and has aged out of the service.
ENDED = {*BAD_END, MISSING}


class Beside(NamedTuple):
    """One of `one_of` must be found, if there are any; `also` may be found."""

    one_of: set[str]
    also: set[str]


A, R = Action, Reason
BESIDE: dict[tuple[Action, Reason], Beside] = {
    # as declared
    (A.KEEP, R.UNCHANGED): Beside(set(), {*BAD_END, MODIFIED}),
    (A.KEEP, R.COMPLETED): Beside(set(), {MODIFIED}),
    (A.KEEP, R.AUTO_STOPPED): Beside(set(), {MODIFIED}),
    (A.KEEP, R.AGED_OUT): Beside(set(), set()),
    # ended badly
    (A.KEEP, R.FAILED): Beside({*ENDED, PENDING}, {MODIFIED}),
    (A.KEEP, R.TERMINATED_OUTSIDE): Beside({TERMINATED, MISSING}, set()),
    (A.KEEP, R.RETRIES_EXHAUSTED): Beside({*ENDED, PENDING}, {MODIFIED}),
    (A.CREATE, R.RETRY): Beside({FAILED, MISSING, PENDING}, set()),
    (A.CREATE, R.RECREATE): Beside({TERMINATED, MISSING}, {PENDING}),
    # a drift check reads no details, so it may miss an edit of a needed key
    (A.CREATE, R.UPSTREAM_NEWER): Beside(set(), {*ENDED, MODIFIED, PENDING}),
    (A.CREATE, R.SCHEDULED): Beside(set(), {*ENDED, MODIFIED, PENDING}),
    (A.REPLACE, R.SCHEDULED): Beside(set(), {*BAD_END, MODIFIED, PENDING}),
    (A.KEEP, R.WAITS_FOR_SCHEDULE): Beside({PENDING}, {*ENDED, MODIFIED}),
    (A.DEFER, R.RETRY_LATER): Beside({*ENDED, PENDING}, {MODIFIED}),
    # the manifest is ahead
    (A.KEEP, R.CHANGE_IGNORED): Beside({PENDING}, {*ENDED, MODIFIED}),
    (A.CREATE, R.IMMUTABLE_CHANGED): Beside({PENDING}, {*ENDED, MODIFIED}),
    (A.REPLACE, R.IMMUTABLE_CHANGED): Beside({PENDING}, {*BAD_END, MODIFIED}),
    (A.CONFLICT, R.CHANGE_REFUSED): Beside({PENDING}, {*ENDED, MODIFIED}),
    (A.CONFLICT, R.WOULD_LOSE_WORK): Beside({PENDING}, {*BAD_END, MODIFIED}),
    (A.CONFLICT, R.RENAME_CLASH): Beside({PENDING}, set()),
    (A.CREATE, R.DECLARED_AGAIN): Beside({PENDING}, set()),
    (A.CREATE, R.WAITS_FOR_TERMINATION): Beside(set(), {PENDING}),
    (A.UPDATE, R.RENAMED): Beside({PENDING}, {*ENDED, MODIFIED}),
    (A.UPDATE, R.MUTABLE_CHANGED): Beside({MODIFIED, PENDING}, BAD_END),
    (A.UPDATE, R.MARKER_CHANGED): Beside({MODIFIED, PENDING, *BAD_END}, set()),
    # not there
    (A.CREATE, R.NOT_FOUND): Beside({MISSING, PENDING}, set()),
    (A.UPDATE, R.MARKER_RESTORED): Beside({UNOWNED}, {*ENDED, MODIFIED, PENDING}),
    (A.CONFLICT, R.NAME_TAKEN): Beside(set(), {*ENDED, MODIFIED, PENDING}),
    # not declared; of a declared key: the replace of a protected job, or a create beside one
    (A.BLOCKED, R.PROTECTED): Beside({ORPHANED, PENDING, DUPLICATE}, {*ENDED, MODIFIED}),
    (A.TERMINATE, R.NOT_IN_MANIFEST): Beside({ORPHANED, PENDING}, set()),
    (A.TERMINATE, R.STATE_ABSENT): Beside({ORPHANED, PENDING}, set()),
    (A.UPDATE, R.PROTECTION_RELEASED): Beside({ORPHANED, PENDING, DUPLICATE}, {*BAD_END, MODIFIED}),
    (A.TERMINATE, R.SUPERSEDED): Beside({DUPLICATE}, {*ENDED, MODIFIED, PENDING}),
    (A.DEFER, R.SUPERSEDED): Beside({DUPLICATE}, {*ENDED, MODIFIED, PENDING}),
    # not compared; drift compares digests only, so it may know what a plan does not
    (A.BLOCKED, R.UNKNOWN_PHASE): Beside({UNKNOWN}, set()),
    (A.BLOCKED, R.UNKNOWN_DIGEST): Beside({UNKNOWN}, set()),
    (A.UNKNOWN, R.UNREADABLE): Beside({UNKNOWN, PENDING}, {*ENDED, MODIFIED}),
}

#: Deferred by `needs`: compatible with what is compatible with the start itself.
HELD_BACK = {R.NEEDS_PENDING, R.NEEDS_FAILED}
#: The rule for a scheduled time that comes while the job is active: no drift.
OVERLAPPING = "overlapping"


def contradictions(
    plan: Plan,
    report: DriftReport,
    ending: Collection[str],
    decisions: Mapping[str, KeyDecision],
    *,
    history_is_known: bool = True,
) -> list[str]:
    """Return the contradictions between plan and drift report of the same moment.

    `decisions` are what the rules chose, before `needs` deferred anything. `ending` are the keys of which a
    job is being terminated: a plan decides as if it were terminated already, and it has not drifted yet.
    """
    found: defaultdict[str, set[str]] = defaultdict(set)
    for entry in report.drift:
        found[entry.key].add(entry.class_.value)
    for item in report.pending:
        found[item.key].add(PENDING)
    warned = {warning.key for warning in report.warnings if warning.what == "superseded revision is active"}
    by_key: defaultdict[str, list[PlannedAction]] = defaultdict(list)
    for action in plan.actions:
        by_key[action.key].append(action)
    contradicting = []
    for key, actions in by_key.items():
        rows = [_row(action, decisions.get(key)) for action in actions]
        here = found[key] | ({DUPLICATE} if key in warned else set())
        # A decision that needs an unreadable history is unknown.
        if not history_is_known and UNKNOWN in here:
            continue
        allowed = ANYWHERE.union(*(row.one_of | row.also for row in rows))
        if any(action.formerly or (action.former_keys and key in ending) for action in actions):
            allowed.add(PENDING)  # its marker follows, if not now
        lacking = [
            action.reason.value
            for action, row in zip(actions, rows, strict=True)
            if row.one_of and not row.one_of & here and key not in ending
        ]
        if lacking or here - allowed:
            planned = [f"{action.action}/{action.reason}" for action in actions]
            contradicting.append(f"{key}: {planned} beside {sorted(here) or 'nothing'}")
    quiet = found.keys() - by_key.keys()
    contradicting += [
        f"{key}: no action beside {sorted(found[key])}" for key in quiet if found[key] - {STUCK}
    ]
    return contradicting


def _row(action: PlannedAction, decision: KeyDecision | None) -> Beside:
    pair = action.action, action.reason
    if decision and decision.chosen and action.reason in HELD_BACK:
        pair = decision.chosen.action, decision.chosen.reason
    elif decision and decision.rule == OVERLAPPING and action.reason is R.PROTECTED:
        pair = A.REPLACE, R.SCHEDULED
    assert pair in BESIDE, f"{pair[0]} for {pair[1]} needs a row of BESIDE in tests/core/plan_and_drift.py"
    return BESIDE[pair]
