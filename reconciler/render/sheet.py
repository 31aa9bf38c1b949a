"""What the formats beside text and JSON show of a plan, a drift report or a result: one row per job.

They are all made from this one value. Its texts hold no secret and nothing that steers a terminal or a CI
service; each format still escapes what is special to it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from reconciler.core.secret import show
from reconciler.core.values import Change, Source, TargetIdentity
from reconciler.decide.drift_entry import DriftClass
from reconciler.decide.groups import (
    ACTION_ORDER,
    Group,
    few,
    fold,
    fold_alike,
    in_order_for_people,
    without_name,
)
from reconciler.decide.plan import Action, Denial, PlannedAction, PreflightFinding, Reason
from reconciler.render.style import View
from reconciler.render.text import sums_of, what_starts
from reconciler.render.texts.drift import CHANGED, GONE, NEW, sections_of, since_and_cost, why_ignored
from reconciler.render.texts.drift import last_line as drift_last_line
from reconciler.text import printable

if TYPE_CHECKING:
    from reconciler.core.values import PlanWarning
    from reconciler.decide.drift_entry import Drift, IgnoredDrift, Pending
    from reconciler.decide.drift_report import DriftReport
    from reconciler.decide.plan import Plan
    from reconciler.errors import Diagnostic

Clean = Callable[[str], str]
#: The kind of a row that says what a policy denies.
DENIED = "denied"
#: The kind of a row that says what pre-flight found.
REFUSED = "refused"
#: What stands for the value of a field where there is none.
NONE = "(none)"
#: For people, what is no drift stands behind all drift.
_BEHIND = 10


class Level(StrEnum):
    """How much a row matters to whoever runs this in CI."""

    ERROR = "error"
    WARNING = "warning"
    NONE = "none"


class Field(NamedTuple):
    """A changed field; its values as JSON, None where there was, or will be, none."""

    path: str
    before: str | None
    after: str | None
    sensitive: bool
    forces_new_job: bool


class Row(NamedTuple):
    """One job, or several with the same change (`keys`), and what is said of it.

    `kind` is the action, the class of drift or the status, `action` what has the status; `rule` is the word
    of a closed list that says why, `words` the kind as people read it. `lines` are what else there is to
    read, under `lines_title`.
    `is_finding` says that somebody has to do something about it. Where there is no room, what `is_cut_first`
    is left out first, and what `must_stay` last. For people, rows of a low `rank` come first.
    """

    keys: tuple[str, ...]
    kind: str
    words: str
    symbol: str
    colour: str
    rule: str
    revision: str
    text: str
    starts: str = ""
    changes: tuple[Field, ...] = ()
    lines: tuple[str, ...] = ()
    lines_title: str = ""
    source: Source | None = None
    level: Level = Level.NONE
    is_finding: bool = False
    must_stay: bool = False
    is_cut_first: bool = False
    is_quiet: bool = False
    rank: int = 0
    action: str = ""

    @property
    def key(self) -> str:
        """The key, of several the first."""
        return self.keys[0]

    @property
    def sentence(self) -> str:
        """What is said of it, in a line."""
        return f"{self.kind} {self.key}: {self.text or self.rule}"

    @property
    def place(self) -> str:
        """Where the manifest has it: `jobs.yaml:23:3`; "" where it has not."""
        source = self.source
        return "" if source is None else f"{source.file}:{source.line}:{source.column}"


class Note(NamedTuple):
    """What is said of the whole: a warning, or why a guard or policy refuses."""

    level: Level
    what: str
    why: str
    fix: str
    key: str = ""


class Sheet(NamedTuple):
    """A plan, a drift report or a result as it is shown.

    `rows` has one row per job in the order of the document, `folded` the same with what is alike put
    together, what ends work first; `keys` are all keys that were looked at, and `counts` those of the
    summary. `denied` has a row for each job and policy that denies it, and for each that pre-flight found;
    `notes` say that once for each reason.
    `last_line` is the last line of the text, and `sums` what a plan throws away and may cost. `columns` are
    the heads of a table of the rows: their kinds, their keys, and what is said of them.
    """

    title: str
    stack: str
    target: str
    where: str
    last_line: str
    counts: dict[str, int]
    has_changes: bool
    created_at: str
    version: str
    rows: tuple[Row, ...]
    folded: tuple[Row, ...]
    keys: tuple[str, ...]
    notes: tuple[Note, ...] = ()
    denied: tuple[Row, ...] = ()
    sums: tuple[str, ...] = ()
    digest: str = ""
    columns: tuple[str, str, str] = ("Action", "Job", "Why")

    @property
    def name(self) -> str:
        """What the sheet is about: STACK@TARGET."""
        return f"{self.stack}@{self.target}"

    @property
    def findings(self) -> list[Row]:
        """What somebody has to do something about, what policies deny and pre-flight found included."""
        return [*(row for row in self.rows if row.is_finding and row.level is not Level.NONE), *self.denied]


def sheet_of_plan(plan: Plan, view: View) -> Sheet:
    """What is shown of a plan."""
    return harmless(lambda clean: _plan_as_sheet(plan, view, clean), view.redact)


def _plan_as_sheet(plan: Plan, view: View, clean: Clean) -> Sheet:
    rows = tuple(_row_of_action(Group((action,)), clean) for action in plan.actions)
    sources = {action.key: action.source for action in plan.actions}
    groups = tuple(_row_of_action(group, clean) for group in fold(in_order_for_people(plan.actions)))
    return Sheet(
        title="Plan",
        stack=clean(plan.stack),
        target=clean(plan.target.name),
        where=clean(place_of_target(plan.target)),
        last_line=plan.last_line,
        counts={action.value: count for action, count in plan.summary.items()},
        has_changes=bool(plan.to_execute),
        created_at=clean(plan.created_at),
        version=clean(plan.reconciler_version),
        rows=rows,
        folded=groups,
        keys=tuple(dict.fromkeys(row.key for row in rows)),
        sums=tuple(map(clean, sums_of(plan))),
        notes=(*refusal_notes(plan.refusals, clean), *warning_notes(plan.warnings, clean)),
        denied=(
            *(row_of_denial(one, sources.get(one.key), clean) for one in plan.denied),
            *(_row_of_finding(one, clean) for one in plan.preflight or ()),
        ),
        digest=view.digest,
    )


def _row_of_finding(finding: PreflightFinding, clean: Clean) -> Row:
    """A row for a job that the target would refuse: `rule` is the reason."""
    return Row(
        keys=(clean(finding.key),),
        kind=REFUSED,
        words=REFUSED,
        symbol="!",
        colour="red",
        rule=finding.reason.value,
        revision="",
        text=clean("; ".join(filter(None, (finding.detail, finding.fix)))),
        source=place_of(finding.source, clean),
        level=Level.ERROR,
        is_finding=True,
        must_stay=True,
    )


def _row_of_action(group: Group, clean: Clean) -> Row:
    """A row for an action, or for several with the same change."""
    actions, action, traits = group.actions, group.first, group.first.traits
    shown = action.after or action.before
    needs_help = traits.stands_in_the_way or action.action is Action.UNKNOWN
    # What policies deny and pre-flight found is an error in rows of its own.
    is_error = needs_help and action.reason not in (Reason.DENIED, Reason.PREFLIGHT)
    ends_work = traits.stops_a_job
    return Row(
        keys=tuple(clean(one.key) for one in actions),
        kind=action.action.value,
        words=traits.summary,
        symbol=action.symbol,
        colour=traits.colour,
        rule=clean(action.blocked_by[0]) if action.blocked_by else action.reason.value,
        revision=f"r{shown.revision}" if shown and len(actions) == 1 else "",
        text=clean(group.explanation),
        starts=clean(_starts(actions)),
        changes=tuple(field_of(change, clean) for change in action.changes),
        source=place_of(action.source, clean),
        level=Level.ERROR if is_error else Level.WARNING if ends_work else Level.NONE,
        is_finding=needs_help,
        must_stay=ends_work or traits.stands_in_the_way,
        is_cut_first=traits.is_executed and not ends_work,
        is_quiet=action.action is Action.KEEP and not action.ended_badly,
        rank=ACTION_ORDER.index(action.action),
    )


def row_of_denial(denial: Denial, source: Source | None, clean: Clean) -> Row:
    """A row for a job that a policy denies, at the job's place: `rule` is the name of the policy."""
    return Row(
        keys=(clean(denial.key),),
        kind=DENIED,
        words=DENIED,
        symbol="!",
        colour="red",
        rule=clean(denial.policy),
        revision="",
        text=clean(f"policy {denial.policy}: {denial.explanation}"),
        source=place_of(source or denial.source, clean),
        level=Level.ERROR,
        is_finding=True,
        must_stay=True,
    )


def _starts(actions: Sequence[PlannedAction]) -> str:
    """What actions start, and what it costs: of several the most frequent ones."""
    counts = Counter(filter(None, map(what_starts, actions)))
    if len(counts) < 2:
        return "".join(counts)
    return few([f"{count} {'job' if count == 1 else 'jobs'}: {text}" for text, count in counts.most_common()])


def place_of(source: Source | None, clean: Clean) -> Source | None:
    """Where the manifest has a key."""
    return None if source is None else source.model_copy(update={"file": clean(source.file)})


def field_of(change: Change, clean: Clean) -> Field:
    """A changed field as it is shown."""
    before, after = (
        None if value is None else clean(json.dumps(show(value), ensure_ascii=False))
        for value in (change.before, change.after)
    )
    return Field(clean(change.path), before, after, change.sensitive, change.forces_new_job)


def place_of_target(target: TargetIdentity) -> str:
    if target.endpoint == target.kind:
        return target.kind
    return f"{target.kind}, {target.endpoint}, project {target.project_id}"


def refusal_notes(refusals: Iterable[Diagnostic], clean: Clean) -> Iterator[Note]:
    for refusal in refusals:
        yield Note(Level.ERROR, clean(refusal.what), clean(refusal.why), clean(refusal.fix or ""))


def warning_notes(warnings: Iterable[PlanWarning], clean: Clean) -> Iterator[Note]:
    """Warnings as they are shown."""
    for one in warnings:
        texts = (clean(text or "") for text in (one.what, one.why, one.fix, one.key))
        yield Note(Level.WARNING, *texts)


def sheet_of_drift(report: DriftReport, view: View) -> Sheet:
    """What is shown of a drift report; what is pending is listed behind, and is no finding."""
    return harmless(lambda clean: _drift_as_sheet(report, clean), view.redact)


def _drift_as_sheet(report: DriftReport, clean: Clean) -> Sheet:
    rows = [
        _row_of_drift(entry, section.mark, clean, rank)
        for rank, section in enumerate(sections_of(report))
        for entry in section.entries
        if section.mark != GONE
    ]
    rows.sort(key=lambda row: row.key)
    rows += [_row_of_pending(entry, clean) for entry in report.pending]
    rows += [_row_of_gone(entry, clean) for entry in report.gone]
    rows += [_row_of_ignored(entry, clean) for entry in report.ignored]
    found = (*report.keys, *(row.key for row in rows))
    counts = {name.value: count for name, count in report.summary.items()} | {"ignored": len(report.ignored)}
    if report.since_last:
        counts |= {NEW: len(report.new), CHANGED: len(report.changed), GONE: len(report.gone)}
    return Sheet(
        title="Drift",
        stack=clean(report.stack),
        target=clean(report.target.name),
        where=clean(place_of_target(report.target)),
        last_line=drift_last_line(report),
        counts=counts,
        has_changes=report.is_due,
        created_at=clean(report.created_at),
        version=clean(report.reconciler_version),
        rows=tuple(rows),
        folded=folded(rows),
        keys=tuple(sorted(set(map(clean, found)))),
        notes=tuple(warning_notes(report.warnings, clean)),
    )


def _row_of_drift(entry: Drift, mark: str, clean: Clean, rank: int) -> Row:
    is_unknown = entry.class_ is DriftClass.UNKNOWN
    said = f"{mark}: {entry.detail}" if mark else entry.detail
    fix = f"; fix: {entry.fix}" if entry.fix else ""
    return Row(
        keys=(clean(entry.key),),
        kind=entry.class_.value,
        words=entry.class_.value,
        symbol="?" if is_unknown else "!",
        colour="magenta" if is_unknown else "red",
        rule=entry.class_.value,
        revision="",
        text=clean(said + since_and_cost(entry) + fix),
        changes=tuple(field_of(change, clean) for change in entry.changes),
        source=place_of(entry.source, clean),
        level=Level.ERROR if is_unknown else Level.WARNING,
        is_finding=True,
        must_stay=True,
        rank=rank,
    )


def _row_of_gone(entry: Drift, clean: Clean) -> Row:
    text = clean(f"{entry.class_.value}: {entry.detail}{since_and_cost(entry)}")
    return Row((clean(entry.key),), GONE, GONE, "=", "green", GONE, "", text, rank=_BEHIND + 1)


def _row_of_ignored(entry: IgnoredDrift, clean: Clean) -> Row:
    text = clean(f"{entry.class_.value}: {entry.detail}{since_and_cost(entry)}; {why_ignored(entry)}")
    key = (clean(entry.key),)
    return Row(key, "ignored", "ignored", "=", "dim", "ignored", "", text, rank=_BEHIND + 2)


def _row_of_pending(entry: Pending, clean: Clean) -> Row:
    text = clean(entry.detail)
    return Row((clean(entry.key),), "pending", "pending", ">", "blue", "pending", "", text, rank=_BEHIND)


def folded(rows: Sequence[Row]) -> tuple[Row, ...]:
    """The rows in the order for people, with those that say the same of many jobs put together."""
    in_order = sorted(rows, key=lambda row: row.rank)
    return tuple(_as_one(group) for group in fold_alike(in_order, _look))


def _look(row: Row) -> Hashable:
    return row.kind, row.symbol, row.rule, without_name(row.text, row.key), row.changes


def _as_one(rows: Sequence[Row]) -> Row:
    first = rows[0]
    if len(rows) == 1:
        return first
    keys = tuple(row.key for row in rows)
    return first._replace(keys=keys, text=without_name(first.text, first.key), revision="")


def harmless(make: Callable[[Clean], Sheet], redact: Callable[[str], str]) -> Sheet:
    """Make a sheet in which each text is harmless, and holds no secret.

    One look at all texts is quicker than one at each of ten thousand.
    """
    texts: list[str] = []

    def collected(text: str) -> str:
        texts.append(text)
        return printable(text)

    sheet = make(collected)
    together = "\n".join(texts)
    if redact(together) == together:
        return sheet
    # Many rows say the same, and each row is shown both by itself and folded.
    return make(cache(lambda text: printable(redact(text))))
