"""The reconcile loop, read aloud: load → observe → plan → guard → apply.

It is level-based: it looks at what is, never at what it remembers doing. After a crash the remedy is
to run it again. Deciding is `core`'s, doing is `apply`'s; here they are put together.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from reconciler.core.phase import Phase
from reconciler.core.record import (
    REMIND_S,
    Scope,
)
from reconciler.core.selection import TakeUnmatched, check_keys, narrow
from reconciler.decide.guards import CatalogCheck
from reconciler.decide.journal import Journal
from reconciler.decide.key_state import PlanContext, Snapshot
from reconciler.decide.plan import NO_ALLOWANCES, Allowances, Plan, PlannedAction
from reconciler.decide.planner import ProposedPlan, guarded_plan, make_destroy_plan, propose_plan
from reconciler.observation import observe
from reconciler.version import __version__

if TYPE_CHECKING:
    from reconciler.apply.catalog import CatalogReader
    from reconciler.apply.executor import EventStream
    from reconciler.core.policy_expression import Answer, Question
    from reconciler.core.stack import Stack
    from reconciler.decide.drift import DriftReport
    from reconciler.decide.outcome import Result
    from reconciler.decide.preflight import CatalogAnswers
    from reconciler.decide.reports import Explanation, StatusReport
    from reconciler.manifest import LoadedStack
    from reconciler.modelarts.target import Connected
    from reconciler.notify import Notified
    from reconciler.recording import Recording


class Context(NamedTuple):
    """One stack on one target.

    `only` narrows the view, see `core.selection`; `tell` takes what `-v` shows. `recording` are its
    records, if it has any; what is seen is written down there. `is_applied` says that what is planned is
    to be carried out, which a history that cannot be read forbids; `catalog` then keeps what pre-flight was
    answered for the checks before each replace. `unmatched` takes the keys of `only`, and the allowed ones,
    that the stack does not have, where it is one of several; elsewhere they are wrong use. Once `stop` is set
    no policy is waited for.
    """

    loaded: LoadedStack
    target: Connected
    only: tuple[str, ...] = ()
    parallelism: int = 8
    tell: Callable[[str], None] = lambda _: None
    recording: Recording | None = None
    is_applied: bool = False
    catalog: CatalogReader | None = None
    unmatched: TakeUnmatched | None = None
    stop: threading.Event | None = None

    def to_apply(self) -> Context:
        """The same for one apply: what the catalog answers is asked once for all of it."""
        return self._replace(is_applied=True, catalog=self.new_catalog_reader())

    def new_catalog_reader(self) -> CatalogReader:
        """A reader of the target's catalog that knows nothing yet."""
        from reconciler.apply.catalog import CatalogReader  # an unchanged plan needs none of it

        return CatalogReader(lambda: self.target.catalog)

    @property
    def scope(self) -> Scope:
        """What the lock and the records are about."""
        return Scope.of(self.loaded.stack.name, self.target.identity)

    def plan_context(self, allowances: Allowances = NO_ALLOWANCES) -> PlanContext:
        """What is the same for every key, as of now."""
        return PlanContext(
            stack=self.loaded.stack.name,
            workspace_id=self.target.identity.workspace_id,
            cloud=self.target.cloud,
            at_s=self.target.clock.now(),
            limits=self.loaded.stack.limits,
            allowances=allowances,
            evaluate=partial(_evaluate, stop=self.stop),
        )


def _evaluate(
    questions: Sequence[Question], values: Sequence[Mapping[str, Any]], stop: threading.Event | None
) -> list[list[Answer]]:
    from reconciler.expressions.evaluator import evaluate  # only a stack with policies needs it

    return evaluate(questions, values, stop=stop)


class CheckOptions(NamedTuple):
    """What counts in a drift check.

    With `since_last` only what is new or has changed since the last check that could compare, or has lasted
    for longer than `remind_s` since it was reported last. `is_reported_later` says that the report is yet to
    be written or notified: what was reported is written down when it was, see `notify_drift`.
    One that is not `is_recorded` is no check for those that come after it.
    """

    since_last: bool = False
    remind_s: float = REMIND_S
    is_reported_later: bool = False
    is_recorded: bool = True


EVERY_DRIFT = CheckOptions()


def plan(context: Context, allowances: Allowances = NO_ALLOWANCES, *, with_preflight: bool = False) -> Plan:
    """Observe, and decide what apply would do. Nothing is changed.

    The catalog is asked about what is about to be carried out, and `with_preflight` about any plan.
    """
    proposed = propose(context, allowances)
    stack, actions = proposed.stack, proposed.actions
    return _guarded(context, proposed, _check_catalog(context, actions, stack, is_wanted=with_preflight))


def preflight(context: Context, plan: Plan) -> Plan:
    """Ask the target's catalog, before an apply, what it would refuse of a plan that was made before.

    What it finds blocks the keys that it is about.

    Raises:
        Interrupted: the program is to stop.
    """
    from reconciler.decide.preflight import with_check  # an unchanged plan needs none of it

    checked = _check_catalog(context, plan.actions, context.loaded.stack)
    return plan if checked is None else with_check(plan, checked, context.loaded.stack)


def _check_catalog(
    context: Context, actions: Sequence[PlannedAction], stack: Stack, *, is_wanted: bool = False
) -> CatalogCheck | None:
    """Ask the target's catalog what it would refuse of some actions; None where it is not asked.

    It is asked before an apply that creates something, and where `is_wanted`. Then replaces are held
    against it as well, and so is a target that takes more than its catalog lists; what the target has no
    way to say is a warning. Apply leaves replaces to the checks right before each.
    """
    if not (is_wanted or context.is_applied):
        return None
    from reconciler.decide import preflight as core  # a plan needs none of it

    if not (is_wanted or core.is_needed(actions)):
        return None
    checked = core.checked_actions(actions, with_replaces=is_wanted)
    deferred = core.deferred_actions(actions, stack) if is_wanted else []
    answers = _catalog_answers(context, [*checked, *deferred], with_offers=is_wanted)
    target = context.target.identity.name
    warnings = [
        *core.unchecked_warnings(one for one in answers.unchecked if is_wanted or not one.is_lacking),
        *core.deferred_warnings(core.find_in_bodies(deferred, answers, target)),
    ]
    return CatalogCheck(core.find(actions, checked, answers, target), tuple(warnings))


def _catalog_answers(
    context: Context, checked: Sequence[PlannedAction], *, with_offers: bool
) -> CatalogAnswers:
    """Ask what has to be known of some jobs; `with_offers` also a target that takes what it does not list."""
    from reconciler.apply.catalog import answers_to
    from reconciler.decide.preflight import questions_about

    questions = questions_about(checked, with_offers=with_offers or context.target.checks_offers)
    return answers_to(context.catalog or context.new_catalog_reader(), questions)


def propose(context: Context, allowances: Allowances = NO_ALLOWANCES) -> ProposedPlan:
    """Observe, decide every key, and ask the policies."""
    plan_context = context.plan_context(allowances)
    stack, snapshot = observe(context, plan_context, with_details=True)
    check_keys(allowances.named_keys, stack, snapshot.ownership.owned_keys, context.unmatched)
    return propose_plan(stack, snapshot, plan_context, context.target.identity)


def plan_with_snapshot(context: Context, allowances: Allowances = NO_ALLOWANCES) -> tuple[Plan, Snapshot]:
    """What apply would do, with what that rests on; the catalog is not asked."""
    proposed = propose(context, allowances)
    return _guarded(context, proposed), proposed.snapshot


def _guarded(context: Context, proposed: ProposedPlan, checked: CatalogCheck | None = None) -> Plan:
    digest = context.loaded.manifest_digest
    return guarded_plan(proposed, manifest_digest=digest, version=__version__, checked=checked)


def destroy_plan(context: Context) -> Plan:
    """Observe, and decide what destroy would terminate."""
    plan_context = replace(context.plan_context(), destroys=True)
    stack, snapshot = observe(context, plan_context)
    return make_destroy_plan(
        stack,
        snapshot,
        plan_context,
        context.target.identity,
        manifest_digest=context.loaded.manifest_digest,
        version=__version__,
    )


def drift(context: Context, options: CheckOptions = EVERY_DRIFT) -> DriftReport:
    """Observe, and say what changed behind the manifest's back. The check is recorded."""
    from reconciler.decide.drift import make_drift_report  # a plan needs none of it
    from reconciler.drift_checks import compared, last_check

    plan_context, last = context.plan_context(), last_check(context)
    stack, snapshot = observe(context, plan_context)
    snapshot = _with_changes(context, snapshot)
    report = make_drift_report(
        stack,
        snapshot,
        plan_context,
        context.target.identity,
        manifest_digest=context.loaded.manifest_digest,
        version=__version__,
    )
    return compared(report, last, context, options, plan_context.at_s)


def notify_drift(context: Context, report: DriftReport, before: Notified | None = None) -> Notified:
    """Send what is due of a drift report, and record what was reported, by that or by the exit code.

    `before` is the result of the check before, where that is known: a URL that has a message is not sent it
    again because another URL failed.
    """
    from reconciler.notify import NOTHING_NOTIFIED, notify_drift  # a plan needs none of it

    recording, comparison = context.recording, report.comparison
    if recording is None or comparison is None:
        return NOTHING_NOTIFIED
    destinations = context.loaded.destinations()
    notified = notify_drift(
        report, destinations, recording.redact, recording.warn, before or NOTHING_NOTIFIED
    )
    if comparison.problem is None:
        recording.mark_reported(context.scope, notified.reported, comparison.at_s)
    return notified


def notify_apply(context: Context, plan: Plan, result: Result) -> int:
    """Send that an apply failed, if it did and the manifest says where; return how many messages failed."""
    recording = context.recording
    if recording is None or not context.loaded.notifies:
        return 0
    from reconciler.notify import notify_apply  # a plan needs none of it

    return notify_apply(
        result.outcomes,
        plan.stack,
        plan.target.name,
        context.loaded.destinations(),
        recording.redact,
        recording.warn,
    )


def _with_changes(context: Context, snapshot: Snapshot) -> Snapshot:
    """The same with who changed each key last, where a job was terminated and the history can be read."""
    owned = (revision for view in snapshot.ownership.views.values() for revision in view.owned)
    is_wanted = any(revision.job.phase is Phase.TERMINATED for revision in owned)
    if context.recording is None or snapshot.memory.problem is not None or not is_wanted:
        return snapshot
    return snapshot._replace(changes=context.recording.last_changes(context.scope))


def why(context: Context, key: str) -> Explanation:
    """Observe, and say which rule decides about one key, on which values. Nothing is changed.

    Where its job is about to be started, or waits for another key, the catalog is asked as well, unless the
    target takes what its catalog lacks.

    Raises:
        WrongUsage: the key is neither declared nor owned.
    """
    from reconciler.decide.reports import explain  # a plan needs none of it
    from reconciler.drift_checks import seen_since

    plan_context = context.plan_context()
    stack, snapshot = observe(context, plan_context, with_details=True, with_drift=True)
    snapshot = _with_changes(context, snapshot)
    check_keys({key}, stack, snapshot.ownership.owned_keys)
    proposed = propose_plan(stack, snapshot, plan_context, context.target.identity)
    checked = _check_key(context, proposed, key)
    explanation = explain(key, proposed, _guarded(context, proposed, checked))
    drift = seen_since(explanation.drift, context.recording, context.scope)
    return explanation.model_copy(update={"drift": drift})


def _check_key(context: Context, proposed: ProposedPlan, key: str) -> CatalogCheck | None:
    """Ask the catalog about the job that one key is to start, now or later; None where it starts none."""
    from reconciler.decide import preflight  # a plan needs none of it

    actions = proposed.actions
    starting = preflight.checked_actions(actions, with_replaces=True)
    own = [
        action
        for action in (*starting, *preflight.deferred_actions(actions, proposed.stack))
        if action.key == key
    ]
    if not own:
        return None
    answers = _catalog_answers(context, own, with_offers=False)
    found = preflight.find(actions, own, answers, proposed.target.name)
    return CatalogCheck(found, tuple(preflight.unchecked_warnings(answers.unchecked)))


def status(context: Context) -> StatusReport:
    """Observe, and say where each key in view stands, and what it waits for. Nothing is changed."""
    from reconciler.decide.reports import make_status  # a plan needs none of it

    made, snapshot = plan_with_snapshot(context)
    stack = narrow(context.loaded.stack, context.only, snapshot.ownership.owned_keys)
    changes = context.recording.last_changes(context.scope) if context.recording else {}
    return make_status(stack, snapshot, made, context.plan_context(), changes)


def apply(
    context: Context,
    plan: Plan,
    stream: EventStream,
    stop: threading.Event,
    *,
    timeout_s: float,
    journal: Journal | None = None,
) -> Result:
    """Carry a plan out, each call between two lines of the journal, if there is one."""
    from reconciler.apply.catalog import CreateChecks  # a plan needs none of it
    from reconciler.apply.executor import Execution

    recording = context.recording
    execution = Execution(
        context.target.backend,
        context.target.clock,
        cloud=context.target.cloud,
        stream=stream,
        stop=stop,
        journal=journal or Journal(),
        parallelism=context.parallelism,
        timeout_s=timeout_s,
        checks=CreateChecks(
            (context.catalog or context.new_catalog_reader()) if context.target.checks_offers else None,
            recording.warn if recording else context.tell,
        ),
    )
    return execution.run(plan)
