"""The sheet: the common value behind every format but text and JSON, with a row per job.

Its texts are redacted and free of terminal escapes and CI commands; each format escapes its own special
characters.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from reconciler.core.phase import parse_phase
from reconciler.core.values import Source
from reconciler.decide.drift_check import Drift, DriftClass
from reconciler.decide.outcome import Result, Status, WaitEnd, spell_status
from reconciler.decide.plan import Action, CodeChange, Plan, PlannedAction, Reason
from reconciler.decide.policies import refusals_of
from reconciler.errors import Severity
from reconciler.render import Content, View, reports
from reconciler.render.plan import (
    explain_group,
    grouping_key,
    in_order_for_people,
    revision_of,
    sums_of,
    what_starts,
)
from reconciler.render.text import group_by, merge_equal_warnings, place_in, without_name
from reconciler.secrets import show
from reconciler.text import few, format_size, printable

if TYPE_CHECKING:
    from reconciler.core.values import Change, Denial, Head, PlanWarning
    from reconciler.decide.drift import DriftReport
    from reconciler.decide.reports import StatusReport
    from reconciler.decide.review import Review, ReviewedJob
    from reconciler.decide.validation import Validation
    from reconciler.errors import Diagnostic

Clean = Callable[[str], str]
#: The kind of a row about a denied job.
DENIED = "denied"
#: Limit of the list of changed code files.
_MOST_FILES = 20
#: Shown for a missing value.
NONE = "(none)"


class Level(StrEnum):
    """The severity of a row in CI."""

    ERROR = "error"
    WARNING = "warning"
    NONE = "none"


class Field(NamedTuple):
    """A changed field. Its values are JSON; None where there is none."""

    path: str
    before: str | None
    after: str | None
    sensitive: bool
    forces_new_job: bool


class Row(NamedTuple):
    """One job, or several (`keys`) with the same change.

    `kind` is the action, the class of drift or the status; `action` is the action that has the status. `rule`
    is the reason, from a closed list, and `words` the kind for people. `is_finding` rows need attention.
    Output of limited size omits `is_cut_first` rows first and `must_stay` rows last. Rows of a low `rank` are
    shown first.
    """

    keys: tuple[str, ...]
    kind: str
    words: str
    symbol: str
    colour: str
    rule: str
    text: str
    revision: str = ""
    starts: str = ""
    changes: tuple[Field, ...] = ()
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
        return self.keys[0]

    @property
    def sentence(self) -> str:
        """The row as one line of text."""
        return f"{self.kind} {self.key}: {self.text or self.rule}"

    @property
    def place(self) -> str:
        """The place in the manifest, `jobs.yaml:23:3`, or ""."""
        source = self.source
        return "" if source is None else f"{source.file}:{source.line}:{source.column}"


class Note(NamedTuple):
    """A message about the whole: a warning, or the refusal of a guard or policy."""

    level: Level
    what: str
    why: str
    fix: str
    key: str = ""


class Sheet(NamedTuple):
    """A plan, a drift report, a result… prepared for output.

    `rows` has a row per job in the order of the document; `folded` groups equal rows, and those that end work
    come first. `keys` are all keys in view, `counts` those of the summary. `denied` has a row per job and
    policy that denies it, and per finding of pre-flight; `notes` has each of these reasons once. `last_line`
    is the last line of the text, `sums` are the discarded work and the cost of a plan. `columns` are the
    heads of a table of the rows: kind, key and text.
    """

    content: Content
    stack: str
    target: str
    where: str
    last_line: str
    counts: dict[str, int]
    rows: tuple[Row, ...]
    folded: tuple[Row, ...]
    keys: tuple[str, ...]
    has_changes: bool = False
    created_at: str = ""
    version: str = ""
    notes: tuple[Note, ...] = ()
    denied: tuple[Row, ...] = ()
    sums: tuple[str, ...] = ()
    digest: str = ""
    columns: tuple[str, str, str] = ("Action", "Job", "Why")

    @property
    def title(self) -> str:
        """The kind of the sheet, for people."""
        return "Apply" if self.content is Content.RESULT else self.content.value.capitalize()

    @property
    def command(self) -> str:
        commands = {Content.RESULT: "apply", Content.VALIDATION: "validate"}
        return commands.get(self.content, self.content.value)

    @property
    def name(self) -> str:
        """STACK@TARGET."""
        return f"{self.stack}@{self.target}"

    @property
    def findings(self) -> list[Row]:
        """The rows that need attention, including those of policies and pre-flight."""
        return [*(row for row in self.rows if row.is_finding and row.level is not Level.NONE), *self.denied]


# ── parts of sheets ─────────────────────────────────────────────────────────────────────────────────


def _head_of(head: Head, clean: Clean) -> dict[str, Any]:
    return {
        "stack": clean(head.stack),
        "target": clean(head.target.name),
        "where": clean(head.target.about),
        "created_at": clean(head.created_at),
        "version": clean(head.reconciler_version),
    }


def _row(
    clean: Clean,
    key: str,
    kind: str,
    symbol: str,
    colour: str,
    text: str,
    is_error: bool = False,
    *,
    rule: str = "",
    source: Source | None = None,
    changes: Iterable[Change] = (),
) -> Row:
    """Make a row of unsanitized values. `rule` defaults to the kind; `is_error` marks an error of one job."""
    if source is not None:
        source = source.model_copy(update={"file": clean(source.file)})
    row = Row((clean(key),), kind, kind, symbol, colour, rule or kind, clean(text), source=source)
    row = row._replace(changes=tuple(_field_of(change, clean) for change in changes))
    if is_error:
        row = row._replace(colour="red", level=Level.ERROR, is_finding=True, must_stay=True)
    return row


def _field_of(change: Change, clean: Clean) -> Field:
    before, after = (
        None if value is None else clean(json.dumps(show(value), ensure_ascii=False))
        for value in (change.before, change.after)
    )
    return Field(clean(change.path), before, after, change.sensitive, change.forces_new_job)


def _fields_of_code(files: Sequence[CodeChange], clean: Clean) -> Iterator[Field]:
    for file in files[:_MOST_FILES]:
        before = None if file.old_size is None else format_size(file.old_size)
        after = None if file.change == "removed" else format_size(file.size)
        if file.diff is not None:
            after = f"{after}, {file.words.removeprefix(file.path).strip()}"
        yield Field(clean(f"code {file.path}"), before, after, False, True)
    if len(files) > _MOST_FILES:
        yield Field("code", None, f"{len(files) - _MOST_FILES} more files", False, True)


def _row_of_denial(denial: Denial, source: Source | None, clean: Clean) -> Row:
    """A row about a denied job, at the job's place. `rule` is the name of the policy."""
    text, source = f"policy {denial.policy}: {denial.explanation}", source or denial.source
    return _row(clean, denial.key, DENIED, "!", "", text, True, rule=clean(denial.policy), source=source)


def _notes(
    refusals: Iterable[Diagnostic],
    warnings: Iterable[PlanWarning],
    clean: Clean,
    declared: Iterable[str] = (),
) -> tuple[Note, ...]:
    """Refusals of the whole plan, then warnings."""
    found = [(Level.ERROR, one.what, one.why, one.fix, "") for one in refusals]
    for one in merge_equal_warnings(warnings, declared):
        found.append((Level.WARNING, one.what, one.why, one.fix, one.key or ""))
    return tuple(Note(level, *(clean(text or "") for text in texts)) for level, *texts in found)


def _rows_of(rows: Sequence[Row], keys: Iterable[str] = (), declared: Sequence[str] = ()) -> dict[str, Any]:
    """The fields of a sheet that follow from its rows: `rows`, `keys` and `folded`."""

    def look(row: Row) -> Hashable:
        return row.kind, row.symbol, row.rule, without_name(row.text, row.key), row.changes

    found = []
    for first, *others in group_by(sorted(rows, key=lambda row: row.rank), look, place_in(declared)):
        if others:
            text = without_name(first.text, first.key)
            first = first._replace(keys=(first.key, *(row.key for row in others)), text=text, revision="")
        found.append(first)
    of_all = dict.fromkeys((*keys, *(row.key for row in rows)))
    return {"rows": tuple(rows), "folded": tuple(found), "keys": tuple(of_all)}


# ── plans ─────────────────────────────────────────────────────────────────────────────────────────────


def _plan_sheet(plan: Plan, view: View, clean: Clean) -> Sheet:
    """A row per action, and separate rows for denials and findings of pre-flight."""
    rows = tuple(_plan_row((action,), plan, clean) for action in plan.actions)
    sources = {action.key: action.source for action in plan.actions}
    denied = [_row_of_denial(one, sources.get(one.key), clean) for one in plan.denied]
    for one in plan.preflight or ():
        text, rule = "; ".join(filter(None, (one.detail, one.fix))), one.reason.value
        denied.append(_row(clean, one.key, "refused", "!", "", text, True, rule=rule, source=one.source))
    shown, place = in_order_for_people(plan.actions), place_in(plan.declared)
    alike = group_by(shown, grouping_key, place)
    return Sheet(
        Content.PLAN,
        **_head_of(plan, clean),
        last_line=plan.last_line,
        counts={action.value: count for action, count in plan.summary.items()},
        has_changes=bool(plan.to_execute),
        rows=rows,
        folded=tuple(_plan_row(group, plan, clean) for group in alike),
        keys=tuple(dict.fromkeys(row.key for row in rows)),
        sums=tuple(map(clean, sums_of(plan))),
        notes=_notes(plan.refusals, plan.warnings, clean, plan.declared),
        denied=tuple(denied),
        digest=view.digest,
    )


def _plan_row(actions: Sequence[PlannedAction], plan: Plan, clean: Clean) -> Row:
    action = actions[0]
    counts = Counter(filter(None, (what_starts(one, plan) for one in actions)))
    # The most frequent ones first.
    many = [f"{count} {'job' if count == 1 else 'jobs'}: {what}" for what, count in counts.most_common()]
    starts = "".join(counts) if len(counts) < 2 else few(many)
    return _job_row(action, explain_group(actions), starts, clean)._replace(
        keys=tuple(clean(one.key) for one in actions),
        rule=clean(action.blocked_by[0]) if action.blocked_by else action.reason.value,
        revision=revision_of(action) if len(actions) == 1 else "",
        is_quiet=action.action is Action.KEEP and not action.ended_badly,
    )


def _job_row(job: PlannedAction | ReviewedJob, text: str, starts: str, clean: Clean) -> Row:
    traits = job.traits
    ends_work = traits.stops_a_job
    needs_help = traits.needs_attention or job.action is Action.UNKNOWN
    # Denials and findings of pre-flight are errors in rows of their own.
    is_error = needs_help and job.reason not in (Reason.DENIED, Reason.PREFLIGHT)
    kind, colour, changes = job.action.value, traits.colour, job.changes
    row = _row(clean, job.key, kind, job.symbol, colour, text, source=job.source, changes=changes)
    files = (job.code and job.code.files) or ()
    if files and any(change.path == "code" for change in changes):
        fields = [field for field in row.changes if field.path != "code"]
        row = row._replace(changes=(*fields, *_fields_of_code(files, clean)))
    return row._replace(
        words=traits.summary,
        rule=job.reason.value,
        starts=clean(starts),
        level=Level.ERROR if is_error else Level.WARNING if ends_work else Level.NONE,
        is_finding=needs_help,
        must_stay=ends_work or traits.needs_attention,
        is_cut_first=traits.is_executed and not ends_work,
        rank=traits.place,
    )


# ── drift ─────────────────────────────────────────────────────────────────────────────────────────────


def _drift_sheet(report: DriftReport, view: View, clean: Clean) -> Sheet:
    """A row per drift. Pending, gone and ignored entries follow, and are no findings."""
    rows = []
    for rank, (_, entries, mark) in enumerate(reports.drift_sections(report)):
        for entry in entries if mark != reports.GONE else ():
            text = (f"{mark}: " if mark else "") + entry.detail + reports.since_and_cost(entry)
            text += f"; fix: {entry.fix}" if entry.fix else ""
            symbol, colour, level = "!", "red", Level.WARNING
            if entry.class_ is DriftClass.UNKNOWN:
                symbol, colour, level = "?", "magenta", Level.ERROR
            kind, place, changes = entry.class_.value, entry.source, entry.changes
            row = _row(clean, entry.key, kind, symbol, colour, text, source=place, changes=changes)
            rows.append(row._replace(level=level, is_finding=True, must_stay=True, rank=rank))
    rows.sort(key=lambda row: row.key)

    def described(entry: Drift) -> str:
        return f"{entry.class_.value}: {entry.detail}{reports.since_and_cost(entry)}"

    rows += (
        _row(clean, one.key, "pending", ">", "blue", one.detail)._replace(rank=10) for one in report.pending
    )
    rows += (
        _row(clean, one.key, reports.GONE, "=", "green", described(one))._replace(rank=11)
        for one in report.gone
    )
    for known in report.ignored:
        text = f"{described(known)}; {reports.why_ignored(known)}"
        rows.append(_row(clean, known.key, "ignored", "=", "dim", text)._replace(rank=12))
    counts = {name.value: count for name, count in report.summary.items()} | {"ignored": len(report.ignored)}
    if report.since_last:
        counts |= {
            reports.NEW: len(report.new),
            reports.CHANGED: len(report.changed),
            reports.GONE: len(report.gone),
        }
    return Sheet(
        Content.DRIFT,
        **_head_of(report, clean),
        last_line=reports.drift_last_line(report),
        counts=counts,
        has_changes=report.is_due,
        **_rows_of(rows, sorted({*map(clean, report.keys), *(row.key for row in rows)})),
        notes=_notes((), report.warnings, clean),
    )


# ── status ────────────────────────────────────────────────────────────────────────────────────────────


def _status_sheet(report: StatusReport, view: View, clean: Clean) -> Sheet:
    """A row per revision. Unknown, blocked and conflicting ones need attention."""
    rows = []
    for one in report.jobs:
        key, revision, phase, queued, ran, nodes, last, waits_for = reports.status_cells(one, report)
        parts = {"queued {}": queued, "ran {}": ran, "{}": last}
        parts["{}" if one.problem is not None else "waits for: {}"] = waits_for
        text = "; ".join(words.format(value) for words, value in parts.items() if value)
        known = parse_phase(one.phase or "")
        symbol = "!" if one.is_stuck or (known is not None and known.ended_badly) else ""
        row = _row(clean, key, clean(phase or "no job"), symbol, "red" if symbol else "", text, one.is_stuck)
        words = "without a job" if not phase else known.value if known else "unknown"
        rows.append(row._replace(words=words, revision=revision, starts=clean(nodes)))
    return Sheet(
        Content.STATUS,
        **_head_of(report, clean),
        last_line=clean(report.last_line),
        counts={"jobs": len(rows), "without_a_job": report.without_a_job, "unknown": report.unknown},
        **_rows_of(rows),
        notes=_notes((), report.warnings, clean),
        columns=("Phase", "Job", "Now"),
    )


# ── results ───────────────────────────────────────────────────────────────────────────────────────────


def _result_sheet(result: Result, view: View, clean: Clean) -> Sheet:
    """A row per action and per wait. `view.plan` has the target and the other keys."""
    rows = []
    for outcome in result.outcomes:
        action, status = outcome.action, outcome.status
        is_skipped = status is Status.SKIPPED
        is_bad = status not in (Status.DONE, Status.SKIPPED) or action.action is Action.UNKNOWN
        is_bad = is_bad or (is_skipped and action.traits.needs_attention)
        shown = action.after or action.before
        became = outcome.message or outcome.detail
        text = action.action.value + (f": {became}" if became else "")
        kind, symbol, colour = status.value, action.symbol, action.traits.colour
        row = _row(clean, action.key, kind, symbol, colour, text, is_bad, source=action.source)
        rows.append(
            row._replace(
                words=spell_status(status),
                rule=action.reason.value if is_skipped else status.value,
                rank=0 if is_bad else 2 if is_skipped else 1,
                revision=f"r{shown.revision}" if shown else "",
                action=action.action.value,
            )
        )
    for waited in result.waits:
        is_bad, kind = waited.end is not WaitEnd.REACHED, waited.end.value
        text = f"waited for: {waited.describe(view.at_s)}".rstrip(": ")
        row = _row(clean, waited.key, kind, "!" if is_bad else "=", "green", text, is_bad)
        rows.append(row._replace(words=kind.replace("_", " "), rank=0 if is_bad else 1))
    plan = view.plan
    keys = () if plan is None else (clean(action.key) for action in plan.actions)
    return Sheet(
        Content.RESULT,
        **({"stack": "", "target": "", "where": ""} if plan is None else _head_of(plan, clean)),
        last_line=reports.result_last_line(result),
        counts=result.summary,
        has_changes=any(outcome.status is Status.DONE for outcome in result.outcomes),
        **_rows_of(rows, keys, plan.declared if plan else ()),
        digest=view.digest,
        columns=("Outcome", "Job", "Why"),
    )


# ── reviews, checks of a manifest ─────────────────────────────────────────────────────────────────────


def _on_targets(names: Sequence[str]) -> str:
    return f" ({'target' if len(names) == 1 else 'targets'} {', '.join(names)})"


def _review_sheet(review: Review, view: View, clean: Clean) -> Sheet:
    """A row per changed job and target. It depends neither on the time nor on a service."""
    rows, denied, sums = list[Row](), list[Row](), list[str]()
    last_lines, counts = list[str](), Counter[str]()
    for one in review.each:
        # If the targets differ, each row names its targets.
        on = _on_targets(one.targets) if review.others else ""
        last_lines.append(f"{one.target_names}: {one.last_line}" if review.others else one.last_line)
        sources = {job.key: job.source for job in one.jobs}
        rows += (_job_row(job, job.detail + on, job.starts, clean) for job in one.jobs)
        found = (_row_of_denial(denial, sources.get(denial.key), clean) for denial in one.denied)
        denied += (row._replace(text=row.text + clean(on)) for row in found)
        lines = (*reports.review_settings(one), *reports.review_nodes(one), *reports.review_cost(one))
        sums += (clean(line) for line in (f"On {one.target_names}:" if review.others else "", *lines) if line)
        counts += Counter(one.summary)
    on_all = f" on {review.target_names}" if len(review.targets) > 1 and not review.others else ""
    return Sheet(
        Content.REVIEW,
        stack=clean(review.stack),
        target=clean(review.target or ""),
        where=clean(reports.sides_of(review) + on_all),
        last_line=clean(" ".join(last_lines)),
        counts={kind: counts[kind] for kind in review.summary},
        has_changes=bool(rows or review.settings),
        version=clean(review.reconciler_version),
        **_rows_of(rows, declared=review.declared),
        notes=_notes(
            refusals_of(review.every_denial), (w for one in review.each for w in one.warnings), clean
        ),
        denied=tuple(denied),
        sums=tuple(sums),
    )


def _validation_sheet(report: Validation, view: View, clean: Clean) -> Sheet:
    """A row per problem with its place, then denials, then warnings."""
    denied = []
    for denial in report.denied:
        row = _row_of_denial(denial, denial.job, clean)
        if set(denial.targets) != set(report.targets):
            row = row._replace(text=row.text + clean(_on_targets(denial.targets)))
        denied.append(row)
    rows = (
        *_problem_rows(report.diagnostics, "problem", clean),
        *denied,
        *_problem_rows(report.warnings, "warning", clean),
    )
    return Sheet(
        Content.VALIDATION,
        stack=clean(report.stack or ""),
        target=clean(report.target or ""),
        where="",
        last_line=clean(report.last_line),
        counts={
            "jobs": report.jobs,
            "errors": len(report.diagnostics),
            "warnings": len(report.warnings),
            "denied": len(report.denied),
        },
        version=clean(report.reconciler_version),
        rows=rows,
        folded=rows,
        keys=tuple(map(clean, report.files)),
        columns=("Severity", "Key", "Problem"),
    )


def _problem_rows(problems: Sequence[Diagnostic], word: str, clean: Clean) -> Iterator[Row]:
    for one in problems:
        text = ": ".join(filter(None, (one.what, one.why))) + (f"; fix: {one.fix}" if one.fix else "")
        key = one.path or (one.location.file if one.location else "manifest")
        is_error = one.severity is Severity.ERROR
        kind = "invalid" if is_error else "warning"
        row = _row(clean, key, kind, "!", "yellow", text, is_error, source=Source.of(one.location))
        yield row._replace(
            words=word if len(problems) == 1 else f"{word}s",
            rule=re.sub("[^a-z0-9]+", "_", clean(one.what).lower()).strip("_") or "problem",
            level=Level.ERROR if is_error else Level.WARNING,
            is_finding=True,
        )


def by_file(sheet: Sheet) -> Sheet:
    """Group the findings by file. Warnings become notes."""
    rows = tuple(
        row._replace(keys=(row.source.file if row.source else "manifest",), text=f"{row.key}: {row.text}")
        for row in sheet.rows
        if row.level is Level.ERROR
    )
    notes = (Note(Level.WARNING, row.key, row.text, "") for row in sheet.rows if row.level is Level.WARNING)
    keys = tuple(dict.fromkeys((*sheet.keys, *(row.key for row in rows))))
    return sheet._replace(rows=rows, folded=rows, keys=keys, notes=(*sheet.notes, *notes))


# ── of any content ──────────────────────────────────────────────────────────────────────────────────

_SHEETS: Mapping[Content, Callable[[Any, View, Clean], Sheet]] = {
    Content.PLAN: _plan_sheet,
    Content.DRIFT: _drift_sheet,
    Content.STATUS: _status_sheet,
    Content.RESULT: _result_sheet,
    Content.REVIEW: _review_sheet,
    Content.VALIDATION: _validation_sheet,
}


def sheet_of(content: Content, value: Any, view: View) -> Sheet:
    """Make the sheet of a value, with all texts sanitized and redacted."""
    texts: list[str] = []

    def collected(text: str) -> str:
        texts.append(text)
        return printable(text)

    sheet = _SHEETS[content](value, view, collected)
    together = "\n".join(texts)
    if view.redact(together) == together:
        return sheet
    # Cached: many rows have the same text, and each row is shown both by itself and folded.
    return _SHEETS[content](value, view, cache(lambda text: printable(view.redact(text))))
