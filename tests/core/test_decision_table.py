"""docs/concepts/decisions.md, row by row: declared, observed, on record -> action, reason.

Every row is decided in three workspaces (`plan_everywhere`), and the decision is the same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ruamel.yaml import YAML

from reconciler.core.fields.field_types import Cloud
from reconciler.core.lifecycle import Lifecycle
from reconciler.core.observed import ObservedJob, Unreadable
from reconciler.core.past import PastRevision
from reconciler.core.phase import Phase
from reconciler.core.record import NO_HISTORY, HistorySnapshot
from reconciler.core.scalar import OutputName, RevisionText
from reconciler.core.stack import DesiredJob, Stack, keys_of
from reconciler.decide.plan import NO_ALLOWANCES, Action, After, Allowances, Plan, PlannedAction, Reason
from reconciler.decide.planner import make_plan
from reconciler.errors import WrongUsage
from reconciler.expressions.evaluator import evaluate
from tests.builders import ENTRY, HOUR, NOW, STACK, TARGET, a_job, a_stack, absent, seen
from tests.core.history import a_memory, past
from tests.core.worlds import a_context, a_world
from tests.crowd import as_recorded, plan_among_foreign_jobs

C, P, R, T = Phase.CREATING, Phase.PENDING, Phase.RUNNING, Phase.TERMINATING
DONE, F, TD, AB = Phase.COMPLETED, Phase.FAILED, Phase.TERMINATED, Phase.ABNORMAL

OLD: dict[str, Any] = {"algorithm__parameters": {"lr": 0.5}}
LONG = 10 * HOUR


def plan_for(
    stack: Stack,
    *jobs: ObservedJob,
    cloud: Cloud = Cloud.HUAWEI,
    at_s: float = NOW,
    force: bool = False,
    allow: tuple[str, ...] = (),
    rerun: tuple[str, ...] = (),
    **seen: Any,
) -> Plan:
    """Plan a world, see `a_world`."""
    context = a_context(
        cloud=cloud,
        at_s=at_s,
        limits=stack.limits,
        allowances=Allowances.of(allow, force=force),
        rerun=keys_of(stack, rerun, stack.jobs),
        evaluate=evaluate,
    )
    return make_plan(stack, a_world(stack, *jobs, **seen).look, context, TARGET)


def plan_everywhere(
    stack: Stack,
    *jobs: ObservedJob,
    memory: HistorySnapshot = NO_HISTORY,
    cloud: Cloud = Cloud.HUAWEI,
    force: bool = False,
    allow: tuple[str, ...] = (),
    rerun: tuple[str, ...] = (),
    **unread: Any,
) -> Plan:
    """Plan in an empty workspace; check that it is the same beside 350 foreign jobs.

    There it is planned with and without a history, as in a fresh checkout.
    """
    more: dict[str, Any] = {"cloud": cloud, "rerun": rerun}
    plan = plan_for(stack, *jobs, memory=memory, force=force, allow=allow, **unread, **more)
    if not unread:
        recorded = as_recorded(jobs, STACK) if memory is NO_HISTORY else memory
        allowances = Allowances.of(allow, force=force)
        for history in (recorded, memory) if memory is NO_HISTORY else (memory,):
            among = plan_among_foreign_jobs(stack, jobs, history, cloud, allowances, rerun)
            assert decisions(among) == decisions(plan)
    return plan


def decisions(plan: Plan) -> tuple[object, ...]:
    """Return the plan without values only in a history: the previous declaration and its `rerun`."""
    unknown, known = (
        "changed in a field that the service does not report (lifecycle.rerun)",
        "lifecycle.rerun changed",
    )
    actions = [
        action.model_copy(update={"declared": None, "detail": action.detail.replace(unknown, known)})
        for action in plan.actions
    ]
    return actions, plan.warnings, plan.refusals


def decided(desired: DesiredJob, *jobs: ObservedJob, **more: Any) -> PlannedAction:
    """The one action for a key."""
    [action] = plan_for(a_stack(desired), *jobs, **more).actions
    return action


def decided_everywhere(desired: DesiredJob, *jobs: ObservedJob, **more: Any) -> PlannedAction:
    [action] = plan_everywhere(a_stack(desired), *jobs, **more).actions
    return action


def outcome(action: PlannedAction) -> tuple[Action, Reason, int | None]:
    return action.action, action.reason, action.after.revision if action.after else None


# --- the table


def rows(table: str, columns: int) -> list[Any]:
    """Parse a table: the subject of a row, then its columns; trailing ones may be omitted."""
    lines = [line.strip() for line in table.strip().splitlines()]
    cells = [[cell.strip() for cell in line.split("|")] for line in lines if line and line[0] != "#"]
    assert all(len(row) <= columns for row in cells)
    return [pytest.param(*row[1:], *[""] * (columns - len(row)), id=row[0]) for row in cells]


def declared_as(text: str, key: str = "a") -> DesiredJob:
    """Parse the entry of a key: its lifecycle and body fields; `absent` is `state: absent`."""
    is_absent = text.startswith("absent")
    fields = YAML(typ="safe").load(f"{{{text.removeprefix('absent')}}}")
    needs, formerly = (tuple(filter(None, fields.pop(name, "").split("+"))) for name in ("needs", "formerly"))
    lifecycle = {name: value for name, value in fields.items() if name in Lifecycle.model_fields}
    body = {name: value for name, value in fields.items() if name not in lifecycle}
    if hours := body.pop("auto_stop", None):
        body["spec__auto_stop"] = {"time_unit": "HOURS", "duration": hours}
    if body.pop("edited", False):
        body |= OLD
    desired = absent(key, **lifecycle) if is_absent else a_job(key, lifecycle=lifecycle, **body)
    return replace(desired, needs=needs, formerly=formerly)


def stack_as(text: str) -> Stack:
    """Entries with their keys: `up on_failure: retry; down needs: up`."""
    entries = (one.strip().partition(" ") for one in text.split(";"))
    return a_stack(*(declared_as(entry, key) for key, _, entry in entries))


def jobs_as(text: str, stack: Stack) -> list[ObservedJob]:
    """Jobs with their keys: `up Completed, down r2 old`."""
    found = []
    for key, _, words in (one.strip().partition(" ") for one in text.split(",") if one.strip()):
        entry = stack.find(key)
        [job] = observed_as(words or "r1", entry if entry and not entry.is_absent else a_job(key))
        found.append(job)
    return found


#: Words for an observed job; any other word is its phase.
WORDS: dict[str, dict[str, Any]] = {
    "stopped": {"stopped": True},
    "protected": {"protected": True},
    "foreign": {"stack": "other"},
    "by-hand": {"description": "by hand"},
    "behind": {"digest": "a" + "f" * 12},
    "too-new": {"digest": "z" + "0" * 12},
    "unseen": {"phase": ""},
}


def _parse_state(text: str, desired: DesiredJob) -> tuple[DesiredJob, dict[str, Any]]:
    state: dict[str, Any] = {}
    for word in text.split():
        name, equals, value = word.partition("=")
        if word in ("old", "plain"):  # made from another declaration, or from the one without lifecycle words
            body = a_job(desired.key, **(OLD if word == "old" else {}))
            desired = replace(body, lifecycle=desired.lifecycle)
        elif word[0] == "r" and word[1:].isdigit():
            state["revision"] = int(word[1:])
        elif equals and name in ("ran_s", "ended_s_ago"):
            state[name] = float(value.removesuffix("h")) * (HOUR if value.endswith("h") else 1)
        elif name == "made":  # hours ago
            has_ended = Phase(state["phase"]).is_terminal
            made_s = float(value) * HOUR
            state |= {
                "ran_s": 60 if has_ended else made_s - 10,
                "ended_s_ago": made_s - 70 if has_ended else 0,
            }
        else:
            state |= {name: value} if equals else WORDS.get(word, {"phase": word})
    return desired, state


def observed_as(text: str, desired: DesiredJob) -> list[ObservedJob]:
    """Parse jobs of key a: revision (r1), phase (Running), declaration (new), duration, other words."""
    new = a_job(desired.key) if desired.is_absent else desired
    states = [_parse_state(one, new) for one in text.split(",") if one.strip()]
    return [seen(declared, **state) for declared, state in states]


def recorded_as(text: str, desired: DesiredJob) -> HistorySnapshot:
    found: list[PastRevision] = []
    for declared, state in (_parse_state(one, desired) for one in text.split(",") if one.strip()):
        is_stopped = state.pop("stopped", False)
        found.append(past(declared, **state)._replace(stopped=is_stopped))
    return a_memory(*found) if found else NO_HISTORY


def spelled(action: PlannedAction) -> str:
    """Format an action, e.g. `create immutable_changed r2 reruns r1`; `badly` is a job that ended badly."""
    shown = action.after or action.before
    words = [action.action.value, action.reason.value, *([f"r{shown.revision}"] if shown else ())]
    words += [f"reruns r{action.rerun_of}"] if action.rerun_of is not None else []
    return " ".join([*words, *(["badly"] if action.ended_badly else ())])


def check_keys(plan: Plan, expected: str) -> None:
    """Compare some actions: `up keep completed / down defer needs_pending: waiting for up, then create`."""
    found = {f"{one.key} {one.action.value} {one.reason.value}": one.detail for one in plan.actions}
    for head, _, detail in (one.strip().partition(": ") for one in expected.split(" / ")):
        assert head in found
        assert not detail or found[head] == detail


def check(declared: str, observed: str, remembered: str, expected: str, says: str) -> None:
    desired = declared_as(declared)
    jobs, memory = observed_as(observed, desired), recorded_as(remembered, desired)
    plan = plan_everywhere(a_stack(desired), *jobs, memory=memory)
    assert [spelled(action) for action in plan.actions] == [one.strip() for one in expected.split(";")]
    assert not says or any(says in action.explanation for action in plan.actions)
    if remembered and not jobs:  # the service has no such job any more
        assert [(action.before, action.follows) for action in plan.actions] == [(None, None)]
    if "protect" in f"{declared} {observed}":  # no --force ends it either
        forced = plan_everywhere(a_stack(desired), *jobs, memory=memory, force=True)
        assert [spelled(action) for action in forced.actions] == [spelled(one) for one in plan.actions]
        blocked = [one for one in plan.actions if one.reason is Reason.PROTECTED]
        assert all("set `protect: false` first" in one.detail for one in blocked)


COLUMNS = ("declared", "observed", "expected", "says")
TABLE = rows(
    """
# nothing owned; a name that is taken
nothing there | | | create not_found r1
unmanaged job | | by-hand | conflict name_taken | unmanaged
unmanaged job of a later name | | r7 by-hand | conflict name_taken | a-r7 is taken by job
foreign job | | foreign | conflict name_taken | have stack other release it
foreign job that has ended, of a later name | | r4 Completed foreign | conflict name_taken | a-r4 is taken
foreign job of five digits | | r10000 foreign | conflict name_taken
name that differs in case only | | key=A description= | conflict name_taken
newer foreign job beside ours | | r1, r2 Completed foreign | conflict name_taken r1 | a-r2 is taken
newer unmanaged job beside ours | | r1, r2 by-hand | conflict name_taken r1 | a-r2 is taken
older foreign job | | r3, r2 foreign | keep unchanged r3
older unmanaged job | | r3, r2 by-hand | keep unchanged r3
copied marker under another name | | name=a-copy | create not_found r1
copied marker | | description=reconciler.vision.b.r1.a000000000000 | conflict name_taken | copied marker
# a conflict names the active job, else the newest
two active | | r1 by-hand, r2 by-hand | conflict name_taken | a-r2 is taken
one active | | r1 by-hand, r2 Completed by-hand | conflict name_taken | a is taken
none active | | Completed by-hand, r3 Failed by-hand, r2 Completed by-hand | conflict name_taken \
    | a-r3 is taken
beside a foreign one | | foreign, r2 Completed by-hand | conflict name_taken | a-r2 is taken
foreign ones | | r3 foreign, r2 foreign | conflict name_taken | a-r2 is taken
in the way | | r2 Failed, r1 by-hand, r3 Completed by-hand | conflict name_taken r2 | a-r3 is taken
# the declared digest is the observed one
creating | | Creating | keep unchanged r1 | creating
pending | | Pending | keep unchanged r1 | pending
running | | Running | keep unchanged r1 | running
completed | | Completed | keep completed r1
completed, whatever would start it | on_failure: retry, on_terminated: recreate | Completed \
    | keep completed r1
terminating | | Terminating | keep terminated_outside r1 badly
terminating, stopped by us | | Terminating stopped | create waits_for_termination r2
failed | | Failed | keep failed r1 badly | failed; on_failure: keep
abnormal | | Abnormal | keep failed r1 badly
failed, retry | on_failure: retry | Failed | create retry r2 | attempt 1 of 1
failed, no retry left | on_failure: retry, max_retries: 0 | Failed | keep retries_exhausted r1 badly
failed, retry not due | on_failure: retry | Failed ended_s_ago=60 | defer retry_later r1 \
    | 2027-01-15T08:01:00Z
failed, recreate | on_terminated: recreate | Failed | keep failed r1 badly
terminated | | Terminated | keep terminated_outside r1 badly
terminated, retry | on_failure: retry | Terminated | keep terminated_outside r1 badly
terminated, recreate | on_terminated: recreate | Terminated | create recreate r2
recreate not due | on_terminated: recreate | Terminated ended_s_ago=60 | defer retry_later r1
terminated, stopped by us | | Terminated stopped | create declared_again r2
# stopped by its own auto_stop, give or take five minutes
auto_stop, abnormal | auto_stop: 2, on_failure: retry | Abnormal ran_s=6901 | keep auto_stopped r1
auto_stop, terminating | auto_stop: 1, on_terminated: recreate | Terminating ran_s=1h | keep auto_stopped r1
failed six minutes sooner | auto_stop: 2, on_failure: retry | Failed ran_s=6840 | create retry r2
terminated sooner | auto_stop: 2, on_terminated: recreate | Terminated ran_s=1h | create recreate r2
# retries: after 2m x 2^(k-1), at most max_retries in an unbroken run
1st retry, early | on_failure: retry, max_retries: 3 | Abnormal ended_s_ago=119 | defer retry_later r1
1st retry | on_failure: retry, max_retries: 3 | Abnormal ended_s_ago=121 | create retry r2
3rd retry, early | on_failure: retry, max_retries: 3 | Failed, r2 Failed, r3 Failed ended_s_ago=479 \
    | defer retry_later r3
3rd retry | on_failure: retry, max_retries: 3 | Failed, r2 Failed, r3 Failed ended_s_ago=481 | create retry r4
4th retry | on_failure: retry, max_retries: 3 | Failed, r2 Failed, r3 Failed, r4 Failed \
    | keep retries_exhausted r4 badly
another declaration between | on_failure: retry | Failed, r2 Failed old, r3 Failed | create retry r4
a success between | on_failure: retry | Failed, r2 Completed, r3 Failed | create retry r4
# the declaration changed
edited, creating | | Creating old | replace immutable_changed r2 | algorithm.parameters.lr changed
edited, pending for long | | Pending old ran_s=10h | conflict would_lose_work r1 | would lose 10 h on 1 node
edited | | old | replace immutable_changed r2
edited, ran for lost_time | | old ran_s=1h | replace immutable_changed r2
edited, ran for longer | | old ran_s=3601 | conflict would_lose_work r1
edited, rerun | rerun: twice | old ran_s=10h | conflict would_lose_work r1
edited, replace | on_change: replace | old ran_s=10h | replace immutable_changed r2
edited, keep | on_change: keep | old ran_s=10h | keep change_ignored r1 | on_change: keep
edited, fail | on_change: fail | old | conflict change_refused r1 | on_change: fail
edited, terminating | | Terminating old | create waits_for_termination r2
edited, terminating, keep | on_change: keep | Terminating old | keep change_ignored r1 badly
edited, terminating, fail | on_change: fail | Terminating old | conflict change_refused r1
edited, completed | | Completed old | create immutable_changed r2 reruns r1 | runs finished work again
edited, failed | | Failed old | create immutable_changed r2
edited, completed, keep | on_change: keep | Completed old | keep change_ignored r1
edited, failed, keep | on_change: keep | Failed old | keep change_ignored r1 badly
edited, stopped, keep | on_change: keep | Terminated old stopped | keep change_ignored r1
edited, completed, fail | on_change: fail | Completed old | conflict change_refused r1
edited, r10000 | | r10000 Failed old | create immutable_changed r10001
# the edit is one that is ignored
ignored, running | ignore_changes: [algorithm.parameters] | old ran_s=10h | keep unchanged r1 \
    | running; ignored: algorithm.parameters
ignored, one of several | ignore_changes: [spec.auto_stop, algorithm] | old | keep unchanged r1 \
    | ignored: algorithm
ignored, the last of an object | ignore_changes: [algorithm.parameters.lr], algorithm__parameters: {} \
    | old | keep unchanged r1 | running; ignored: algorithm.parameters.lr
ignored, all of an object | ignore_changes: [algorithm.inputs.a, algorithm.inputs.c, algorithm.inputs.b], \
    algorithm__inputs: {a: 'obs://b/a/', b: 'obs://b/b/'} | plain | keep unchanged r1 \
    | ignored: algorithm.inputs.a, algorithm.inputs.b
ignored, fail | ignore_changes: [algorithm], on_change: fail | old | keep unchanged r1
ignored, terminating | ignore_changes: [algorithm] | Terminating old stopped | create waits_for_termination r2
ignored, completed | ignore_changes: [algorithm] | Completed old | keep completed r1 | ignored: algorithm
ignored, failed | ignore_changes: [algorithm] | Failed old | keep failed r1 badly
ignored, retry | ignore_changes: [algorithm], on_failure: retry | Failed old | create retry r2
ignored, counts as a try | ignore_changes: [algorithm], on_failure: retry | Failed old, r2 Failed \
    | keep retries_exhausted r2 badly
ignored, counts as a try of the edit before | ignore_changes: [algorithm], on_failure: retry \
    | Failed, r2 Failed old | keep retries_exhausted r2 badly
ignored, 2nd retry | ignore_changes: [algorithm], on_failure: retry, max_retries: 2 | Failed old, r2 Failed \
    | create retry r3 | attempt 2 of 2
ignored, back to what failed | ignore_changes: [spec.auto_stop], on_failure: retry, max_retries: 0, \
    auto_stop: 2 | old, r2 Failed plain | keep retries_exhausted r1 badly
not ignored, no try | ignore_changes: [spec.auto_stop], on_failure: retry | Failed old, r2 Failed \
    | create retry r3
ignored, terminated | ignore_changes: [algorithm] | Terminated old | keep terminated_outside r1 badly
ignored, recreate | ignore_changes: [algorithm], on_terminated: recreate | Terminated old | create recreate r2
ignored, stopped by us | ignore_changes: [algorithm] | Terminated old stopped | create declared_again r2
ignored, protected | ignore_changes: [algorithm], protect: true | old protected | keep unchanged r1
ignored, description | ignore_changes: [algorithm], description: new | old text=x | update mutable_changed r1
ignored, stopped itself before | ignore_changes: [spec.auto_stop], auto_stop: 9, on_failure: retry \
    | Failed plain ran_s=9h | create retry r2
not ignored beside it | ignore_changes: [spec.auto_stop], auto_stop: 2 | old | replace immutable_changed r2 \
    | algorithm.parameters.lr
not ignored, one of an object | ignore_changes: [algorithm.inputs.a], \
    algorithm__inputs: {a: 'obs://b/a/', b: 'obs://b/b/'} | plain | replace immutable_changed r2
not ignored | ignore_changes: [algorithm.parameters.seed, algorithm.par] | old | replace immutable_changed r2
# going back to an older declaration
back, running | | Completed, r2 old | replace immutable_changed r3 \
    | r1 completed this declaration, and r2 came after it
back, completed | | Completed, r2 Completed old | create immutable_changed r3 reruns r2 \
    | r1 completed this declaration
newest completed | | Completed old, r2 Completed old | create immutable_changed r3 reruns r2
newest failed | | Completed old, r2 Failed old | create immutable_changed r3
back to what we stopped | | Terminated stopped, r2 old | replace immutable_changed r3
back to what failed | | old, r2 Failed ended_s_ago=10h | keep failed r1 badly | keeping r1
back, retry early | on_failure: retry | old, r2 Failed ended_s_ago=60 | defer retry_later r1
back, retry | on_failure: retry | old, r2 Failed ended_s_ago=10h | replace immutable_changed r3
back, no retry left | on_failure: retry, max_retries: 0 | old, r2 Failed ended_s_ago=10h \
    | keep retries_exhausted r1 badly
# only the marker is behind
marker behind | | behind ran_s=10h | update marker_changed r1
marker behind, completed | | Completed behind | update marker_changed r1
marker behind, failed | | Failed behind | update marker_changed r1
marker behind, no retry left | on_failure: retry | Failed, r2 Failed behind | update marker_changed r2
marker behind, retry | on_failure: retry | Failed behind | create retry r2
marker behind, recreate | on_terminated: recreate | Terminated behind | create recreate r2
marker behind, stopped by us | | Terminated behind stopped | create declared_again r2
marker behind, ending by us | | Terminating behind stopped | create waits_for_termination r2
stopped flag of a running job | | stopped | update marker_changed r1
# what can be changed on the job
description, pending | description: new | Pending text=old | update mutable_changed r1
description, running | description: new | text=old | update mutable_changed r1
description, terminating | description: new | Terminating text=old | keep terminated_outside r1 badly
description, completed | description: new | Completed text=old | keep completed r1
description, abnormal | description: new | Abnormal text=old | keep failed r1 badly
description, edit ignored | description: new, on_change: keep | old text=old | update mutable_changed r1
description, back to what failed | description: new | old text=old, r2 Failed ended_s_ago=10h \
    | update mutable_changed r1
description, back, no retry left | description: new, on_failure: retry, max_retries: 0 \
    | old text=old, r2 Failed ended_s_ago=10h | update mutable_changed r1
# protection
edited, protected by its marker | | old protected | blocked protected r1
edited, protected by its entry | protect: true | old | blocked protected r1
edited, protected by its entry, replace | on_change: replace, protect: true | old | blocked protected r1
absent, protected by its marker | absent | protected | blocked protected r1
absent, protected by its entry | absent protect: true | Running | blocked protected r1
superseded, protected by its entry | protect: true | old, r2 \
    | blocked protected r1; update marker_changed r2
edited and released | protect: false | old protected | blocked protected r1
protected by its entry | protect: true | Running | update marker_changed r1
protected by its entry, completed | protect: true | Completed | update marker_changed r1
protect false | protect: false | protected | update marker_changed r1
protect false, as it was | protect: false | Running | keep unchanged r1
protection undeclared | | protected | keep unchanged r1
protected and superseded | | protected ran_s=1, r2 ran_s=99 | blocked protected r1; keep unchanged r2
absent, protection released first | absent protect: false | protected | update protection_released r1
absent, not protected | absent protect: false | Running | terminate state_absent r1
# which revision stands for the key: the active one with the declared digest, the longest running if several
ran longest, older | | ran_s=99, r2 ran_s=9 | keep unchanged r1; terminate superseded r2
ran longest, newer | | ran_s=9, r2 ran_s=99 | terminate superseded r1; keep unchanged r2
as declared | | ran_s=9, r2 old ran_s=99 | keep unchanged r1; terminate superseded r2
# else the newest active one
none as declared | | old ran_s=9, r2 old ran_s=9 | terminate superseded r1; replace immutable_changed r3
newer failed | | Running, r2 Failed | keep unchanged r1
newer completed otherwise | | Running, r2 Completed old | keep unchanged r1
newer terminating | | Running, r2 Terminating | keep unchanged r1
older terminating | | Terminating, r2 Running | keep unchanged r2
newest terminating | | Completed, r2 Terminating old | create waits_for_termination r3 | r1 completed this
# what completed with the declared digest outdoes older active ones
newer completed | | Running, r2 Completed | terminate superseded r1; keep completed r2
older completed | | Completed, r2 Running | keep unchanged r2
none active | | Completed, r2 Failed | keep failed r2 badly
new one pending | replace_order: create_first | old ran_s=10h, r2 Pending \
    | defer superseded r1; keep unchanged r2
new one creating | replace_order: create_first | old ran_s=10h, r2 Creating \
    | defer superseded r1; keep unchanged r2
new one runs | replace_order: create_first | old ran_s=10h, r2 | terminate superseded r1; keep unchanged r2
# what this version does not know
unknown phase | | Frozen | blocked unknown_phase r1 | Frozen
unknown phase, absent | absent | Frozen | blocked unknown_phase r1
unknown phase before a taken name | | Frozen, r2 by-hand | blocked unknown_phase r1
unknown digest | | too-new | blocked unknown_digest r1 | needs a newer reconciler
unknown digest of an older one | | too-new, r2 ran_s=999 | blocked unknown_digest r1
unknown digest, absent | absent | too-new, r2 ran_s=999 | blocked unknown_digest r1
""",
    5,
)


@pytest.mark.parametrize(COLUMNS, TABLE)
def test_decision_matches_the_table(declared: str, observed: str, expected: str, says: str) -> None:
    check(declared, observed, "", expected, says)


@pytest.mark.parametrize(COLUMNS, [row for row in TABLE if "old" in row.values[1]])
def test_decision_of_an_edit_beside_numbered_texts(
    declared: str, observed: str, expected: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENTRY["algorithm"], "outputs", {"o": "obs://b/o/${job.revision}/"})
    check(declared, observed, "", expected, says)


@pytest.mark.parametrize(
    COLUMNS,
    rows(
        """
none there | | | create not_found r1
running, of a glob | | Running | keep unchanged r1
terminating, of a glob | | Terminating | keep terminated_outside r1 badly
completed | | Completed | create rerun_requested r2 reruns r1 | rerun requested; runs finished work again
failed | | Failed | create rerun_requested r2
failed, a retry is not due | on_failure: retry | Failed ended_s_ago=60 | create rerun_requested r2
failed, no retry left | on_failure: retry, max_retries: 0 | Failed | create rerun_requested r2
terminated | | Terminated | create rerun_requested r2
stopped by us | | Terminated stopped | create rerun_requested r2
stopped itself | auto_stop: 2 | Failed ran_s=2h | create rerun_requested r2
edited | | Completed old | create rerun_requested r2 reruns r1 | requested; algorithm.parameters.lr changed
edited, keep | on_change: keep | Completed old | create rerun_requested r2 reruns r1
edited, fail | on_change: fail | Completed old | conflict change_refused r1
protected | protect: true | Completed protected | create rerun_requested r2 reruns r1
beside an older active one | | Running, r2 Failed | keep unchanged r1
name taken | | Completed, r2 by-hand | conflict name_taken r1
absent | absent | Completed |
""",
        5,
    ),
)
def test_requested_rerun_applies_to_ended_jobs_only(
    declared: str, observed: str, expected: str, says: str
) -> None:
    desired = declared_as(declared)
    plan = plan_everywhere(a_stack(desired), *observed_as(observed, desired), rerun=("a*",))
    assert [spelled(action) for action in plan.actions] == [one for one in [expected] if one]
    assert not says or says in plan.actions[0].explanation


@pytest.mark.parametrize("phase", [C, P, R, T])
def test_requested_rerun_of_an_active_job_is_wrong_usage(phase: Phase) -> None:
    desired = a_job()
    with pytest.raises(WrongUsage, match=f"a is {phase}; --rerun a starts only what has ended"):
        plan_among_foreign_jobs(
            a_stack(desired), [seen(desired, phase=phase)], None, Cloud.HUAWEI, NO_ALLOWANCES, ("a",)
        )


@pytest.mark.parametrize(
    ("ignored", "was", "now", "expected", "says", "says_on_record"),
    [
        # The ignored paths are reported, so something else explains the digest.
        (["algorithm"], {"annotations": {"t": "1"}, **OLD}, {"annotations": {"t": "2"}},
         "replace immutable_changed r2", "does not report (annotations)", "annotations.t changed"),
        (["algorithm"], {"lifecycle": {"rerun": "1"}, **OLD}, {"lifecycle": {"rerun": "2"}},
         "replace immutable_changed r2", "does not report (lifecycle.rerun)", "lifecycle.rerun changed"),
        # If it is unknown, the job is kept, and the detail says so.
        (["annotations"], {"annotations": {"t": "1"}}, {"annotations": {"t": "2"}},
         "keep unchanged r1", "ignored: annotations; what was declared before is not on record",
         "ignored: annotations"),
        (["annotations.t"], {"annotations": {"t": "1"}}, {"annotations": {"t": "2"}},
         "keep unchanged r1", "not on record", "ignored: annotations.t"),
        (["annotations"], {"annotations": {"t": "1"}, **OLD}, {"annotations": {"t": "2"}},
         "replace immutable_changed r2", "algorithm.parameters.lr changed", "annotations.t changed"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_on_record", [False, True])
def test_unreported_edit_is_ignored_only_if_it_may_be_below_an_ignored_path(
    ignored: list[str],
    was: dict[str, Any],
    now: dict[str, Any],
    expected: str,
    says: str,
    says_on_record: str,
    is_on_record: bool,
) -> None:
    made = a_job(**was)
    lifecycle = {"ignore_changes": ignored, **now.get("lifecycle", {})}
    desired = a_job(**{**now, "lifecycle": lifecycle})
    shown = seen(made, body={**(made.body or {}), "metadata": {}})
    memory = a_memory(past(made, phase=R)) if is_on_record else NO_HISTORY
    action = decided_everywhere(desired, shown, memory=memory)
    assert spelled(action) == expected
    assert (says_on_record if is_on_record else says) in action.detail


NUMBERED: dict[str, Any] = {
    "algorithm__outputs": {"o": "obs://b/o/${job.revision}/"},
    # Names are keys in the canonical form.
    "algorithm__inputs": [{"name": "i${job.revision}", "remote": {"obs": {"obs_url": "obs://b/i/"}}}],
    "algorithm__environments": [{"name": "E${job.revision}", "value": "e"}, {"E": "${job.revision}"}],
    "spec__volumes": [
        {"nfs": {"nfs_server_path": "h:/d", "local_path": "/mnt/${job.revision}"}},
        {"nfs": {"nfs_server_path": "h:/d", "local_path": "/mnt"}},
    ],
    "description": "run ${job.revision}",
}


@pytest.mark.parametrize(
    ("revision", "phase", "lr", "lifecycle", "expected"),
    [
        (1, R, 0.1, {}, "keep unchanged r1"),
        (7, R, 0.1, {}, "keep unchanged r7"),
        (7, DONE, 0.1, {}, "keep completed r7"),
        (7, F, 0.1, {"on_failure": "retry"}, "create retry r8"),
        (7, R, 0.5, {}, "replace immutable_changed r8"),
        (7, DONE, 0.5, {}, "create immutable_changed r8 reruns r7"),
        (7, R, 0.5, {"ignore_changes": ["algorithm.parameters"]}, "keep unchanged r7"),
    ],
)
@pytest.mark.parametrize("is_on_record", [False, True])
def test_revision_number_in_texts_is_no_difference(
    revision: int, phase: Phase, lr: float, lifecycle: dict[str, Any], expected: str, is_on_record: bool
) -> None:
    desired = a_job(
        lifecycle=lifecycle, algorithm__parameters={"lr": 0.1, "n": "r${job.revision}"}, **NUMBERED
    )
    was = a_job(algorithm__parameters={"lr": lr, "n": "r${job.revision}"}, **NUMBERED)
    memory = a_memory(past(was, revision, phase)) if is_on_record else NO_HISTORY
    action = decided_everywhere(desired, seen(was, revision=revision, phase=phase), memory=memory)
    assert spelled(action) == expected
    changed = {change.path for change in action.changes}
    assert changed == ({"algorithm.parameters.lr"} if "immutable_changed" in expected else set())
    if action.desired:
        sent = action.desired["algorithm"]
        assert sent["outputs"][0]["remote"]["obs"]["obs_url"] == f"obs://b/o/{revision + 1}/"
        assert {"name": "n", "value": f"r{revision + 1}"} in sent["parameters"]
        assert sent["environments"] == {f"E{revision + 1}": "e", "E": str(revision + 1)}
        assert action.desired["spec"]["volumes"][0]["nfs"]["local_path"] == f"/mnt/{revision + 1}"
        assert action.desired["metadata"]["description"].startswith(f"run {revision + 1} ")
        assert action.after is not None
        assert action.after.digest == desired.digest


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from obs://b/o/1/", "keep unchanged r1"),
        ("from obs://b/o/0/", "update mutable_changed r1"),
        ("from elsewhere", "update mutable_changed r1"),
    ],
)
def test_description_keeps_the_upstream_path_sent_with_the_job(text: str, expected: str) -> None:
    """Its upstream has since completed a newer revision."""
    path = (OutputName("p", "o"), RevisionText(["obs://b/o/", None, "/"]))
    desired = replace(a_job(), needs=("p",), description=RevisionText(["from ", path]), is_numbered=True)
    upstream = a_job("p")
    jobs = [seen(upstream, phase=DONE), seen(upstream, revision=2, phase=DONE), seen(a_job(), text=text)]
    [own, _] = plan_everywhere(a_stack(desired, upstream), *jobs).actions
    assert spelled(own) == expected
    if own.desired:
        assert own.desired["description"].startswith("from obs://b/o/2/ ")


@pytest.mark.parametrize("is_on_record", [False, True])
@pytest.mark.parametrize(
    ("was", "now", "expected", "before"),
    [
        ("o/${job.revision}/", "o/3/", "update marker_changed r3", []),
        ("o/3/", "o/${job.revision}/", "update marker_changed r3", []),
        ("o/${job.revision}/", "o/2/", "replace immutable_changed r4", ["/b/o/3/"]),
        ("o/${job.revision}/", "p/${job.revision}/", "replace immutable_changed r4", ["/b/o/3/"]),
    ],
)
def test_literal_revision_number_equals_the_reference_for_that_revision(
    was: str, now: str, expected: str, before: list[str], is_on_record: bool
) -> None:
    made, desired = (a_job(algorithm__outputs={"o": f"obs://b/{path}"}) for path in (was, now))
    memory = a_memory(past(made, 3, R)) if is_on_record else NO_HISTORY
    action = decided_everywhere(desired, seen(made, revision=3), memory=memory)
    assert spelled(action) == expected
    assert [change.before for change in action.changes if change.forces_new_job] == before


def test_path_with_another_revision_number_is_an_edit() -> None:
    desired = a_job(algorithm__outputs={"o": "obs://b/o/${job.revision}/"})
    action = decided_everywhere(desired, seen(a_job(algorithm__outputs={"o": "obs://b/o/2/"}), revision=3))
    assert spelled(action) == "replace immutable_changed r4"
    assert [change.after for change in action.changes] == ["/b/o/${job.revision}/"]


@pytest.mark.parametrize(
    ("declared", "observed", "remembered", "expected", "says"),
    rows(
        """
# completed with the declared digest: finished work stays finished
completed | | | Completed | keep aged_out r1 | completed on 2027-01-14; its record has aged out of the service
completed after a failure | | | Failed, r2 Completed | keep aged_out r2
newer than a failed one | | Failed | r2 Completed | keep aged_out r2
newer than another declaration | | Completed old | r2 Completed | keep aged_out r2
older active one | | old | r2 Completed | terminate superseded r1; keep aged_out r2
nothing of it is updated | description: new words, protect: true | | Completed | keep aged_out r1
# not the newest: what is owned decides
newer running | | r2 | Completed | keep unchanged r2
newer failed | | r2 Failed | Completed | keep failed r2 badly
newer of another declaration | | r2 Completed old | Completed | create immutable_changed r3 reruns r2
replace is numbered after all | | old | Running old, r5 Failed old | replace immutable_changed r6
# edited since
back to a completed one | | | Completed, r2 Completed old | create immutable_changed r3 reruns r2
edited | | | Completed old | create immutable_changed r2 reruns r1
edited, keep | on_change: keep | | Completed old | keep change_ignored r1
edited, fail | on_change: fail | | Completed old | conflict change_refused
back to what failed | | old | r2 Failed | keep failed r1 badly
edited rerun | rerun: again | | Completed plain | create immutable_changed r2 reruns r1
older one terminating | | Terminating old stopped | r2 Completed old \
    | create immutable_changed r3 reruns r2 | waits for the end of r1;
# another end: decided as if the service had it yet
failed | | | Failed | keep failed r1 badly
terminated | | | Terminated | keep terminated_outside r1 badly
stopped by us | | | Terminated stopped | create declared_again r2
failed, retry | on_failure: retry | | Failed | create retry r2
failed, no retry left | on_failure: retry, max_retries: 0 | | Failed | keep retries_exhausted r1 badly
terminated, recreate | on_terminated: recreate | | Terminated | create recreate r2
running, recreate | on_terminated: recreate | | Running | create recreate r2
# the service forgets only what has ended, so what was active has ended since
running | | | Running | keep terminated_outside r1 badly
never seen | | | unseen | keep terminated_outside r1 badly
running, stopped by us | | | Running stopped | create declared_again r2
# retries are counted across what has aged out
attempt 3 of 3 | on_failure: retry, max_retries: 3 | r3 Failed | Failed, r2 Failed | create retry r4 \
    | attempt 3 of 3
3 of 2 | on_failure: retry, max_retries: 2 | r3 Failed | Failed, r2 Failed | keep retries_exhausted r3 badly
a success between | on_failure: retry | r3 Failed | Failed, r2 Completed | create retry r4
an end between | on_failure: retry | r3 Failed | Failed, r2 Terminated | keep retries_exhausted r3 badly
delay x 4 | on_failure: retry, max_retries: 3 | r3 Failed ended_s_ago=479 | Failed, r2 Failed \
    | defer retry_later r3
# a job of ours that has lost its marker
running, wiped | | by-hand | Running | update marker_restored r1
completed, wiped | | Completed by-hand | Completed | update marker_restored r1
abnormal, wiped | | Abnormal by-hand | Abnormal | update marker_restored r1
terminating, wiped | | Terminating by-hand | Running | conflict name_taken
unknown phase, wiped | | Frozen by-hand | Running | conflict name_taken
all of them, wiped | | Completed old by-hand, r2 by-hand | Completed old, r2 Running \
    | update marker_restored r1; update marker_restored r2
wiped beside an owned one | | Terminated old stopped, r2 by-hand | Terminated old, r2 Running \
    | update marker_restored r2
newer name taken | | by-hand, r2 by-hand | Running | conflict name_taken | a-r2
another job of that name | | by-hand job_id=somebody-else | Running | conflict name_taken
given to another stack | | foreign job_id=x | Running job_id=x | conflict name_taken
""",
        6,
    ),
)
def test_decision_with_history_matches_the_table(
    declared: str, observed: str, remembered: str, expected: str, says: str
) -> None:
    check(declared, observed, remembered, expected, says)


# --- contents of an action


@pytest.mark.parametrize(
    ("protect", "flag"), [(None, ""), (False, ""), (True, ".protected")], ids=["unset", "false", "true"]
)
def test_create_sends_name_and_marker(protect: bool | None, flag: str) -> None:
    action = decided_everywhere(a_job(lifecycle={"protect": protect}))
    assert action.before is None
    assert action.after is not None
    assert action.after.name == "a"
    assert action.desired is not None
    assert action.desired["metadata"]["description"] == f"reconciler.vision.a.r1.{a_job().digest}{flag}"


def test_change_is_shown_with_both_values() -> None:
    for lifecycle in ({}, {"on_change": "keep"}, {"on_change": "fail"}):
        [change] = decided_everywhere(a_job(lifecycle=lifecycle), seen(a_job(**OLD))).changes
        assert (change.path, change.before, change.after) == ("algorithm.parameters.lr", "0.5", "0.1")
        assert change.forces_new_job


def test_revision_of_the_longest_key_is_blocked_at_the_name_length_limit() -> None:
    key = "k" * 58
    found = decided_everywhere(a_job(key), seen(a_job(key, **OLD), revision=9_999, phase=DONE))
    assert (found.action, found.reason) == (Action.BLOCKED, Reason.NAME_TOO_LONG)
    assert (
        decided_everywhere(a_job(key), seen(a_job(key, **OLD), revision=9_998, phase=DONE)).action
        is Action.CREATE
    )


@pytest.mark.parametrize(
    ("entries", "job", "expected"),
    [
        (
            [a_job("new"), a_job()],
            seen(a_job("new"), name="a", id_part="12345678", job_id="12345678-aaaa"),
            ["create not_found r2", "keep unchanged r1"],
        ),
        # Whether names differing only in case are distinct is not documented.
        ([a_job("Aa")], seen(a_job("aA")), ["create not_found r2", "terminate not_in_manifest r1"]),
    ],
    ids=["after a rename", "renamed in case only"],
)
def test_key_is_created_after_the_job_that_has_its_name(
    entries: list[DesiredJob], job: ObservedJob, expected: list[str]
) -> None:
    assert [spelled(action) for action in plan_everywhere(a_stack(*entries), job).actions] == expected


def test_next_revision_of_an_adopted_job_is_named_after_its_key() -> None:
    adopted = seen(a_job(**OLD), name="by-hand", job_id="12345678-aaaa", id_part="12345678", phase=DONE)
    found = decided_everywhere(a_job(), adopted)
    assert found.after is not None
    assert found.after.name == "a-r2"


@pytest.mark.parametrize(
    ("ended_s_ago", "ahead_s", "reason"),
    [(130, 0, Reason.RETRY), (130, 100, Reason.RETRY_LATER), (60, -100, Reason.RETRY)],
)
def test_retry_is_due_by_the_clock_of_the_service(ended_s_ago: int, ahead_s: float, reason: Reason) -> None:
    """`ahead_s` is how far this machine's clock is ahead."""
    desired = declared_as("on_failure: retry")
    failed = observed_as(f"Failed ended_s_ago={ended_s_ago}", desired)
    assert decided(desired, *failed, skew_s=ahead_s).reason is reason


def test_conflict_states_the_work_that_would_be_lost() -> None:
    found = decided_everywhere(a_job(), seen(a_job(**OLD), ran_s=30 * HOUR, node_count=8))
    way_out = "set `on_change: replace`, or pass `--allow lost-work`"
    assert found.explanation == f"algorithm.parameters.lr changed; would lose 30 h on 8 nodes; {way_out}"
    assert found.detail == f"algorithm.parameters.lr changed; {way_out}"
    assert (found.elapsed, found.nodes, found.lost_node_hours) == (30 * HOUR, 8, 0)


@pytest.mark.parametrize(
    ("allow", "is_replaced"),
    [("lost-work", True), ("lost-work=a", True)]
    + [(other, False) for other in ("lost-work=b", "terminations", "budget")],
)
def test_long_running_job_is_replaced_when_its_loss_is_allowed(allow: str, is_replaced: bool) -> None:
    running = seen(a_job(**OLD), ran_s=30 * HOUR, node_count=8)
    found, _ = plan_everywhere(a_stack(a_job(), a_job("b")), running, allow=(allow,)).actions
    assert found.action is (Action.REPLACE if is_replaced else Action.CONFLICT)
    assert found.lost_node_hours == (240 if is_replaced else 0)
    assert not is_replaced or found.explanation.endswith("; discards 30 h of work on 8 nodes")


def test_running_time_without_a_readable_start_counts_from_creation() -> None:
    running = replace(seen(a_job(**OLD)), started_at_s=None, duration_s=None, created_at_s=NOW - LONG)
    assert decided_everywhere(a_job(), running).action is Action.CONFLICT


@pytest.mark.parametrize("most", [0, 1, 2])
def test_exhausted_retries_are_counted(most: int) -> None:
    desired = a_job(lifecycle={"on_failure": "retry", "max_retries": most})
    failed = [seen(desired, revision=number, phase=Phase.FAILED) for number in range(1, most + 2)]
    [found] = plan_for(a_stack(desired), *failed).actions
    assert found.detail == f"failed; {most} of {most} retries used"


def test_retry_without_a_delay_is_due_after_more_than_a_thousand_failures() -> None:
    desired = a_job(lifecycle={"on_failure": "retry", "max_retries": 2000, "retry_delay": "0s"})
    failed = [seen(desired, revision=number, phase=Phase.FAILED) for number in range(1, 1102)]
    [found] = plan_for(a_stack(desired), *failed).actions
    assert (found.action, found.reason) == (Action.CREATE, Reason.RETRY)


def test_only_rerun_of_the_lifecycle_changes_the_digest() -> None:
    assert a_job(lifecycle={"on_change": "fail", "max_retries": 9}).digest == a_job().digest
    assert a_job(lifecycle={"rerun": "2026-11-21"}).digest != a_job().digest


def test_edited_rerun_creates_a_revision_that_reruns_the_same_work() -> None:
    again, job = a_job(lifecycle={"rerun": "again"}), seen(a_job(), phase=DONE)
    found, known = (
        decided_everywhere(again, job),
        decided_everywhere(again, job, memory=as_recorded([job], STACK)),
    )
    assert [spelled(one) for one in (found, known)] == ["create immutable_changed r2 reruns r1"] * 2
    assert "a field that the service does not report" in found.detail
    assert "lifecycle.rerun changed" in known.detail


def test_outdated_marker_gets_the_declared_digest() -> None:
    found = decided_everywhere(a_job(), seen(a_job(), digest="a" + "f" * 12))
    assert found.after == After(name="a", revision=1, digest=a_job().digest)


def test_empty_diff_with_an_unreported_declared_field_is_a_change() -> None:
    desired = a_job(annotations={"tensorboard/enable": "true"})
    found = decided_everywhere(desired, seen(desired, digest="a" + "f" * 12))
    assert found.action is Action.REPLACE
    assert "a field that the service does not report" in found.detail


# --- mutable fields


def test_edited_description_is_written_before_the_marker() -> None:
    desired = a_job(description="new")
    found = decided_everywhere(desired, seen(desired, text="old"))
    assert found.desired == {"description": f"new reconciler.vision.a.r1.{desired.digest}"}


def test_update_sends_the_marker_despite_a_description_in_raw() -> None:
    desired = a_job(description="new", raw={"description": "theirs"})
    found = decided_everywhere(desired, seen(desired, text="old"))
    assert found.desired == {"description": f"new reconciler.vision.a.r1.{desired.digest}"}


@pytest.mark.parametrize(
    ("phase", "cloud", "action"),
    [
        (P, Cloud.HUAWEI, Action.UPDATE),
        (R, Cloud.HUAWEI, Action.KEEP),
        (C, Cloud.HUAWEI, Action.KEEP),
        (P, Cloud.OTC, Action.KEEP),
    ],
)
def test_priority_change_is_deferred_when_phase_or_cloud_does_not_allow_it(
    phase: Phase, cloud: Cloud, action: Action
) -> None:
    desired = a_job(spec__schedule_policy={"priority": 3})
    plan = plan_everywhere(a_stack(desired), seen(desired, phase=phase, body=a_job().body), cloud=cloud)
    assert plan.actions[0].action is action
    assert [w.what for w in plan.warnings] == ([] if action is Action.UPDATE else ["deferred"])
    if action is Action.UPDATE:
        assert plan.actions[0].desired == {
            "description": f"reconciler.vision.a.r1.{desired.digest}",
            "spec": {"schedule_policy": {"priority": 3}},
        }


@pytest.mark.parametrize(
    ("declared", "reported", "action"),
    [
        ({"priority": 1}, {"priority": 2}, Action.UPDATE),  # a default like any other value
        (None, {"priority": 2, "preemptible": True}, Action.KEEP),  # filled in by the service
    ],
)
def test_reported_priority_is_compared_with_a_declared_one(
    declared: dict[str, Any] | None, reported: dict[str, Any], action: Action
) -> None:
    desired = a_job(spec__schedule_policy=declared) if declared else a_job()
    body = a_job(spec__schedule_policy=reported).body
    assert decided_everywhere(desired, seen(desired, phase=P, body=body)).action is action


def test_on_change_keep_updates_mutable_fields_and_keeps_the_old_digest() -> None:
    desired = a_job(description="new", lifecycle={"on_change": "keep"})
    found = decided_everywhere(desired, seen(a_job(**OLD), text="old"))
    assert found.action is Action.UPDATE
    assert found.after is not None
    assert found.after.digest == a_job(**OLD).digest


def test_protection_is_released_before_the_job_is_terminated() -> None:
    found = decided_everywhere(absent(protect=False), seen(a_job(), protected=True, text="mine"))
    assert found.desired == {"description": f"mine reconciler.vision.a.r1.{a_job().digest}"}


# --- absent


@pytest.mark.parametrize(
    ("phase", "is_ended"),
    [(C, True), (P, True), (R, True), (T, False), (DONE, False), (F, False), (TD, False), (AB, False)],
)
@pytest.mark.parametrize("how", ["undeclared", "state: absent"])
def test_undeclared_or_absent_active_job_is_terminated(phase: Phase, is_ended: bool, how: str) -> None:
    stack = a_stack(a_job("b"), *([absent()] if how == "state: absent" else []))
    plan = plan_everywhere(stack, seen(a_job(), phase=phase), seen(a_job("b")))
    reason = "not_in_manifest" if how == "undeclared" else "state_absent"
    mine = [spelled(action) for action in plan.actions if action.key == "a"]
    assert mine == ([f"terminate {reason} r1"] if is_ended else [])


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (seen(a_job(), protected=True), Reason.PROTECTED),
        (seen(a_job(), digest="z" + "0" * 12), Reason.UNKNOWN_DIGEST),
    ],
)
def test_undeclared_job_that_is_protected_or_has_an_unknown_digest_is_blocked(
    job: ObservedJob, reason: Reason
) -> None:
    actions = plan_everywhere(a_stack(a_job("b")), job, seen(a_job("b"))).actions
    assert [(a.key, a.action) for a in actions] == [("a", Action.BLOCKED), ("b", Action.KEEP)]
    assert actions[0].reason is reason


def test_partial_view_terminates_only_keys_declared_absent() -> None:
    stack = a_stack(a_job("b"), absent("c"), is_partial=True)
    plan = plan_everywhere(stack, seen(a_job()), seen(a_job("b")), seen(a_job("c")))
    assert [(a.key, a.action) for a in plan.actions] == [("b", Action.KEEP), ("c", Action.TERMINATE)]
    assert [w.why for w in plan.warnings] == ["1 key is owned but not in view; left alone"]


def test_former_key_of_a_key_in_view_is_not_counted_as_left_alone() -> None:
    stack = a_stack(declared_as("formerly: old", "b"), is_partial=True)
    plan = plan_everywhere(stack, seen(a_job("old")), seen(a_job("a")))
    assert [(a.key, a.action) for a in plan.actions] == [("b", Action.UPDATE)]
    assert [w.why for w in plan.warnings] == ["1 key is owned but not in view; left alone"]


def test_other_stacks_and_unmanaged_jobs_are_never_touched() -> None:
    others = seen(a_job(), stack="other"), seen(key="b", description=""), seen(key="c", name="c-copy")
    assert plan_everywhere(a_stack(a_job("d")), *others, seen(a_job("d"))).to_execute == ()


# --- unreadable


def test_key_with_unreadable_details_is_unknown() -> None:
    assert decided_everywhere(a_job(), seen(a_job(**OLD)), details={}).action is Action.UNKNOWN


@pytest.mark.parametrize(
    ("lost", "owned"),
    [
        (Unreadable("status.phase is missing", name="a-r2", id="x"), [seen(a_job())]),
        (Unreadable("status.phase is missing", name="a", id="x", claimed=seen(a_job()).marker), []),
        (Unreadable("no name"), []),
    ],
    ids=["of a known name", "with our marker", "nameless"],
)
@pytest.mark.parametrize("is_declared", [True, False])
def test_unreadable_job_makes_its_key_unknown_and_hides_no_other(
    lost: Unreadable, owned: list[ObservedJob], is_declared: bool
) -> None:
    stack = a_stack(*([a_job()] if is_declared else []), a_job("b"))
    plan = plan_everywhere(stack, *owned, seen(a_job("b")), unreadable=(lost,))
    is_in_view = is_declared or lost.name is not None
    expected = [("a", Action.UNKNOWN)] if is_in_view else []
    assert [(a.key, a.action) for a in plan.actions] == [*expected, ("b", Action.KEEP)]
    assert not plan.complete


def test_unreadable_list_makes_every_key_unknown() -> None:
    assert decided_everywhere(a_job(), is_whole=False).action is Action.UNKNOWN, "a part of it"
    plan = plan_everywhere(a_stack(a_job(), a_job("b")), seen(a_job("b")), problem="timeout", is_whole=False)
    assert {a.action for a in plan.actions} == {Action.UNKNOWN}
    assert not plan.applyable


def test_unreadable_list_makes_every_declared_key_of_a_destroy_unknown() -> None:
    stack = a_stack(a_job(), a_job("b"))
    plan = a_world(stack, seen(a_job("b")), problem="timeout", is_whole=False).destroy_plan()
    assert [(a.key, a.action) for a in plan.actions] == [("a", Action.UNKNOWN), ("b", Action.UNKNOWN)]


def test_nameless_job_makes_a_retry_unknown() -> None:
    desired = a_job(lifecycle={"on_failure": "retry"})
    plan = plan_everywhere(a_stack(desired), seen(desired, phase=F), unreadable=(Unreadable("no name"),))
    assert [action.action for action in plan.actions] == [Action.UNKNOWN]
    assert [warning.why for warning in plan.warnings] == ["no name"]


def test_unknown_takes_precedence_over_blocked() -> None:
    jobs = seen(a_job(), phase="Frozen"), seen(key="a", revision=2, description="")
    lost = Unreadable("broken", name="a-r3")
    assert decided_everywhere(a_job(), *jobs, unreadable=(lost,)).action is Action.UNKNOWN


@pytest.mark.parametrize(
    "job", [seen(a_job(**OLD), ran_s=HOUR / 2), seen(a_job(**OLD), phase=DONE), seen(a_job(), phase=F)]
)
def test_action_unknown_for_lack_of_proof_has_no_request_and_no_loss(job: ObservedJob) -> None:
    desired = a_job(lifecycle={"on_failure": "retry"})
    found = plan_everywhere(a_stack(desired), job, is_whole=False, details={job.id: job})
    [action] = found.actions
    assert action.action is Action.UNKNOWN
    assert (action.desired, action.declared, action.after, action.follows) == (None, None, None, None)
    assert (action.lost_node_hours, action.lost_time, action.rerun_of) == (0.0, None, None)
    assert (found.lost_node_hours, found.reruns) == (0.0, ())
    assert action.__dict__.keys() == PlannedAction.model_fields.keys()
