"""What an apply waits for: a job's goal, and whether the revision that it follows still stands for its key.

Source: docs/concepts/crash-safety.md, "Waiting".
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from reconciler.core.ownership import Revision
from reconciler.core.phase import Phase
from reconciler.decide.outcome import WaitEnd
from reconciler.decide.plan import Action, After, PlannedAction, Reason


class Goal(StrEnum):
    """What a job is waited for to be."""

    RUNNING = "running"
    COMPLETED = "completed"
    ENDED = "ended"


_BADLY = frozenset({Phase.FAILED, Phase.ABNORMAL})

#: Goal → the phases that reach it, and the ends after which it is out of reach.
GOALS: dict[Goal, tuple[frozenset[Phase], frozenset[Phase]]] = {
    # A short job may be over before anybody looks.
    Goal.RUNNING: (frozenset({Phase.RUNNING, Phase.COMPLETED}), _BADLY | {Phase.TERMINATED}),
    Goal.COMPLETED: (frozenset({Phase.COMPLETED}), _BADLY | {Phase.TERMINATED}),
    # Whoever waits for the end of a job that he terminates has what he wanted.
    Goal.ENDED: (frozenset({Phase.COMPLETED, Phase.TERMINATED}), _BADLY),
}


def judge(goal: Goal, phase: Phase | None) -> WaitEnd:
    """Say how the wait stands; a phase that nobody knows (None) decides nothing."""
    reached, badly = GOALS[goal]
    if phase in reached:
        return WaitEnd.REACHED
    return WaitEnd.ENDED_BADLY if phase in badly else WaitEnd.WAITING


# --- whether the revision that a wait follows still stands for its key


_ENDED_BY_SOMEBODY = frozenset({Phase.TERMINATING, Phase.TERMINATED})


class Followed(NamedTuple):
    """The revision that a wait follows, and what the wait announced.

    `job` is the id of the revision that the plan kept or made, None where there is none yet; `had_ended`
    says that it was over before the plan. `after` is the revision that an action tried to make.
    `is_deferred`: the plan said that something is done about the key later. `is_kept`: the plan keeps that
    revision, or the wait has made it or goes on with it.
    """

    job: str | None = None
    had_ended: bool = False
    after: After | None = None
    is_deferred: bool = False
    is_kept: bool = True

    @classmethod
    def of(cls, action: PlannedAction) -> Followed:
        phase = action.before.phase if action.before else ""
        ended = {one.value for one in Phase if one.is_terminal or one is Phase.TERMINATING}
        # A create, deferred or not, follows a revision that has ended.
        had_ended = phase in ended or action.before is None
        is_kept = action.traits.keeps_the_job
        return cls(action.rests_on, had_ended, is_deferred=action.action is Action.DEFER, is_kept=is_kept)


class Superseded(NamedTuple):
    """Somebody else ended the followed revision, or made another one, which is that one; and why."""

    revision: Revision | None
    why: str


def judge_followed(
    followed: Followed, action: PlannedAction, owned: Sequence[Revision], digest: str | None
) -> Followed | Superseded | None:
    """Judge the followed revision by what a later plan says of its key.

    `owned` are the revisions of the key, and `digest` is the declared one, None where no manifest is there.
    Returns what is followed from now on: a revision that the plan announced, or a retry, takes its place.
    None where it is not in the list, which may lag behind: its details tell more.
    """
    if action.action is Action.UNKNOWN or action.reason is Reason.AGED_OUT or action.aged_out_as is not None:
        return followed
    by_id = {revision.job.id: revision for revision in owned}
    newest = by_id.get(action.rests_on or "")
    mine = by_id.get(followed.job or "")
    if newest is not None and newest is not mine and (mine is None or newest.number > mine.number):
        if _is_announced(followed, newest, digest) or _is_retry(mine, newest, owned):
            return Followed(newest.job.id)
        return Superseded(newest, f"{newest.job.name} was made elsewhere")
    if mine is None:
        return None if followed.job else followed
    # Without our mark it may be a platform's doing: a bad end, but for rules that would start it again.
    was_ended = mine.marker.stopped or (action.traits.starts_a_job and action.scheduled_for is None)
    if was_ended and not followed.had_ended and mine.job.phase in _ENDED_BY_SOMEBODY:
        return Superseded(mine, f"{mine.job.name} was ended elsewhere")
    return followed


def _is_announced(followed: Followed, revision: Revision, digest: str | None) -> bool:
    """Whether it is what an action tried to make (its answer was lost, say), or what the key waited for."""
    made = followed.after
    if made is not None and (revision.job.name, revision.marker.digest) == (made.name, made.digest):
        return True
    is_waited_for = followed.job is None or (followed.is_deferred and followed.had_ended)
    return made is None and is_waited_for and revision.marker.digest == digest


def _is_retry(mine: Revision | None, newest: Revision, owned: Sequence[Revision]) -> bool:
    """Whether the followed revision ended badly by itself, and somebody else tried the same again.

    So did each revision between the two. What somebody ended is no retry, and nothing goes on with it.
    """
    if mine is None or newest.job.phase in _ENDED_BY_SOMEBODY:
        return False
    tries = [revision for revision in owned if mine.number <= revision.number < newest.number]
    are_the_same = all(one.marker.digest == newest.marker.digest for one in tries)
    return are_the_same and all(one.job.phase and one.job.phase.ended_badly for one in tries)


def may_start(followed: Followed, action: PlannedAction) -> bool:
    """Whether a wait may carry an action out: what was deferred, or a retry of the followed revision."""
    if not action.traits.starts_a_job or action.rests_on != followed.job:
        return False
    return followed.is_deferred or (action.action is Action.CREATE and action.reason is Reason.RETRY)
