"""The texts of drift reports, status, results, reviews, validation and policy tests."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from reconciler.core.values import timestamp
from reconciler.decide.drift_check import REMEDIES, Drift, DriftClass, IgnoredDrift, Pending
from reconciler.decide.outcome import Outcome, Result, Status, WaitEnd, spell_status
from reconciler.decide.plan import Reason, spell_work
from reconciler.render import View
from reconciler.render.plan import grouping_key, in_order_for_people, job_lines, shared_detail
from reconciler.render.text import (
    INDENT,
    group_by,
    grouping_key_of_changes,
    name_of,
    pad,
    place_in,
    printable_line,
    render_change,
    render_denials,
    render_diagnostics,
    render_entry,
    render_head,
    render_keys,
    render_table,
    render_warnings,
    width_of_names,
    without_name,
)
from reconciler.text import format_duration, printable

if TYPE_CHECKING:
    from reconciler.decide.drift import DriftReport
    from reconciler.decide.policies import CasesReport
    from reconciler.decide.reports import JobStatus, StatusReport
    from reconciler.decide.review import NodeCount, Review, ReviewedJob, ReviewedSide
    from reconciler.decide.validation import Validation

#: Maximum number of flavors listed.
_MOST_FLAVORS = 20

# ── drift ───────────────────────────────────────────────────────────────────────────────────────────

#: Marks on the rows of drift, compared with the last check.
NEW, CHANGED, GONE = "new", "changed", "gone"


def drift_sections(report: DriftReport) -> list[tuple[str, Sequence[Drift], str]]:
    """Return the sections of a drift report: new, then lasting, then gone.

    A section is a title, its entries, and their mark: new, changed, gone or "".
    """
    comparison = report.comparison
    if not report.since_last or comparison is None:
        return [("", report.drift, "")]
    if comparison.problem is not None:
        return [("The last check could not be read, so it is unknown whether this is new:", report.drift, "")]
    at_s = comparison.compared_with_s
    since = "" if at_s is None else f" since {timestamp(at_s)}"
    unread = tuple(entry for entry in report.drift if entry.class_ is DriftClass.UNKNOWN)
    sections = [
        (f"New{since or '; no earlier check is recorded'}:", comparison.new, NEW),
        (f"Changed{since}:", comparison.changed, CHANGED),
        ("Could not be read:", unread, ""),
        ("Lasting:", comparison.lasting, ""),
        (f"Gone{since}:", comparison.gone, GONE),
    ]
    return [section for section in sections if section[1]]


def drift_text(report: DriftReport, view: View) -> str:
    """Text for people; the last line counts."""
    style, is_folded, place = view.style, not view.verbose, place_in(report.declared)

    def look(item: Drift) -> Hashable:
        detail = without_name(item.detail, item.key)
        return item.class_, item.remedy, detail, grouping_key_of_changes(item.changes)

    sections = [
        (title, group_by(entries, look, place, is_folded=is_folded), mark)
        for title, entries, mark in drift_sections(report)
    ]
    pending = group_by(
        report.pending, lambda one: without_name(one.detail, one.key), place, is_folded=is_folded
    )
    found: list[Sequence[Drift | Pending]] = [group for _, groups, _ in sections for group in groups]
    found += (*pending, *((one,) for one in report.ignored))
    width = width_of_names((name_of([one.key for one in group]) for group in found), style)
    blocks: list[list[str]] = []
    for title, groups, mark in sections:
        blocks.append([title] if title else [])
        for group in groups:
            first, keys = group[0], [one.key for one in group]
            blocks[-1] += render_entry(
                style.paint(f"  {first.class_.value:<10}", "green" if mark == GONE else "red"),
                keys,
                _words(group) + since_and_cost(*group),
                style,
                width,
            )
            fix = (first.fix or "") if len(group) == 1 else first.remedy or REMEDIES[first.class_]
            if mark != GONE and fix:
                blocks[-1].append(printable_line(f"{INDENT}fix: ", fix))
    if pending:
        blocks.append(["Pending changes (not drift; run apply):"])
        for due in pending:
            keys = [one.key for one in due]
            blocks[-1] += render_entry(f"  {'pending':<10}", keys, _words(due), style, width, is_cut=True)
    if report.ignored:
        # Listed one by one, so that nothing is ignored unnoticed.
        blocks.append(["Ignored:"])
        for one in report.ignored:
            head = style.paint(f"  {one.class_.value:<10}", "dim")
            words = f"{one.detail}; {why_ignored(one)}"
            blocks[-1] += render_entry(head, [one.key], words, style, width)
    lines = [style.paint(render_head(report.stack, report.target), "bold")]
    for block in filter(None, blocks):
        lines += ["", *block]
    lines += ["", *render_warnings(report.warnings, style), drift_last_line(report)]
    return "\n".join(lines) + "\n"


def drift_last_line(report: DriftReport) -> str:
    found = ", ".join(f"{count} {name.value}" for name, count in report.summary.items() if count)
    parts = [found or "none"]
    comparison = report.comparison
    if report.since_last and comparison is not None and comparison.problem is None:
        counts = {NEW: comparison.new, CHANGED: comparison.changed, GONE: comparison.gone}
        parts.append(", ".join(f"{len(entries)} {word}" for word, entries in counts.items()))
    ignored = f"{len(report.ignored)} ignored, " if report.ignored else ""
    parts.append(f"{ignored}{len(report.pending)} pending, {report.compared} compared")
    return f"Drift: {'; '.join(parts)}."


def _words(group: Sequence[Drift | Pending]) -> str:
    first = group[0]
    return first.detail if len(group) == 1 else without_name(first.detail, first.key)


def since_and_cost(*group: Drift) -> str:
    """The time of the first check that found the drift, and its cost."""
    times = {
        "at": sorted({one.began_at for one in group if one.began_at}),
        "seen since": sorted({one.since for one in group if one.since}),
    }
    since = ", ".join(
        f"{'' if len(found) == 1 else 'the first '}{words} {found[0]}"
        for words, found in times.items()
        if found
    )
    work = sum(one.node_hours or 0.0 for one in group)
    return (f" ({since})" if since else "") + (f"; cost {spell_work(work)}" if work else "")


def why_ignored(entry: IgnoredDrift) -> str:
    """The rule that ignores the drift, and its reason."""
    place = f" {entry.rule.file}:{entry.rule.line}" if entry.rule else ""
    until = f" until {entry.until}" if entry.until else ""
    words = f"ignored by rule{place}{until}"
    return f"{words}: {entry.reason}" if entry.reason else words


# ── status ──────────────────────────────────────────────────────────────────────────────────────────

#: The heads of the table of `status`.
STATUS_COLUMNS = ("KEY", "REVISION", "PHASE", "QUEUED", "RAN", "NODES", "LAST CHANGE", "WAITS FOR")
#: The same, by importance.
STATUS_ORDER = ("KEY", "PHASE", "WAITS FOR", "RAN", "REVISION", "LAST CHANGE", "QUEUED", "NODES")


def status_text(report: StatusReport, view: View) -> str:
    """Render a status: a table, warnings and a summary line."""
    style = view.style
    rows = (status_cells(one, report) for one in report.jobs)
    found = render_table(STATUS_COLUMNS, rows, style, STATUS_ORDER)
    lines = [style.paint(render_head(report.stack, report.target), "bold"), "", found]
    return "\n".join([*lines, *render_warnings(report.warnings, style), printable(report.last_line)]) + "\n"


def status_cells(one: JobStatus, report: StatusReport) -> tuple[str, ...]:
    """One row of the table."""
    nodes, last = "" if one.nodes is None else str(one.nodes), ""
    if change := one.last_change:
        age = datetime.fromisoformat(report.created_at) - datetime.fromisoformat(change.at)
        who = f" by {change.who}" if change.who else ""
        last = f"{change.what}{who}, {format_duration(max(0.0, age.total_seconds()))} ago"
    return (
        one.key,
        "" if one.revision is None else f"r{one.revision}",
        one.phase_text,
        span(one.queued_s),
        span(one.ran_s),
        f"{nodes} × {one.flavor}" if one.flavor else nodes,
        last,
        one.wait_text,
    )


def span(seconds: float | None) -> str:
    """A duration in a table. "" if it is unknown or zero."""
    return format_duration(round(seconds)) if seconds else ""


# ── results ─────────────────────────────────────────────────────────────────────────────────────────


def result_text(result: Result, view: View) -> str:
    """Text for people; the last line counts."""
    style, lines = view.style, list[str]()

    def look(outcome: Outcome) -> Hashable:
        # Actions that the plan folded are folded here if they ended in the same way.
        return outcome.status, shared(outcome), grouping_key(outcome.action)

    def shared(outcome: Outcome) -> str:
        if outcome.detail == outcome.action.detail:
            return shared_detail(outcome.action)
        return without_name(outcome.detail, outcome.key)

    place = place_in(view.plan.declared if view.plan else ())
    for group in group_by(result.outcomes, look, place, is_folded=not view.verbose):
        first = group[0]
        jobs = [outcome.action.after or outcome.action.before for outcome in group]
        names = [job.name if job else outcome.key for job, outcome in zip(jobs, group, strict=True)]
        colour = {Status.DONE: "green", Status.SKIPPED: "dim"}.get(first.status, "red")
        word = style.paint(f"{spell_status(first.status):<9}", colour)
        name, detail = names[0], first.detail
        if first.action.reason in (Reason.PREFLIGHT, Reason.DENIED):
            detail = detail.partition(": ")[0]  # the plan shows the rest
        if len(group) > 1:
            name, detail = f"{len(group)} jobs", shared(first)
        line = f"{first.action.action.value} {name}" + (f": {detail}" if detail else "")
        lines.append(printable_line(f"  {word} ", line))
        if len(group) > 1:
            lines += render_keys(
                names, style.width, is_cut=first.status is Status.DONE and first.action.traits.is_harmless
            )
    width = width_of_names((waited.key for waited in result.waits), style)
    words = []
    for waited in result.waits:
        word, more = waited.end.value.replace("_", " "), waited.describe(view.at_s)
        if waited.end is WaitEnd.REACHED and waited.job is not None:
            # The goal is the phase that the job has reached.
            times = waited.times(view.at_s)
            word, more = waited.job.phase_text, waited.job.name + (f" ({times})" if times else "")
        words.append((word, more))
    ends = max((11, *(len(word) for word, _ in words)))
    for waited, (word, more) in zip(result.waits, words, strict=True):
        end = style.paint(printable(f"{word:<{ends}}"), "green" if waited.end is WaitEnd.REACHED else "red")
        lines.append(printable_line(f"  {end} ", f"{pad(waited.key, width)}  {more}"))
    lines.append(result_last_line(result))
    return "\n".join(lines) + "\n"


def result_last_line(result: Result) -> str:
    counts = [
        f"{count} {spell_status(status)}"
        for status, count in result.summary.items()
        if count or status == Status.DONE
    ]
    return f"{'Apply interrupted' if result.interrupted else 'Applied'}: {', '.join(counts)}."


# ── reviews; the last line is fixed (docs/reference/cli.md, "Review") ────────────────────────────────────


def review_text(review: Review, view: View) -> str:
    """Render jobs, settings, nodes, cost and denials, by target where targets differ."""
    return "\n".join(_review_lines(one, view) for one in review.each)


def _review_lines(review: Review, view: View) -> str:
    style = view.style
    on = f" on {review.target_names}" if review.target_names else ""

    def look(job: ReviewedJob) -> Hashable:
        return job.symbol, job.action, job.change, _detail(job), grouping_key_of_changes(job.changes)

    lines = [style.paint(printable(f"Stack {review.stack}{on}: {sides_of(review)}"), "bold"), ""]
    shown, place = in_order_for_people(review.jobs), place_in(review.declared)
    groups = group_by(shown, look, place, is_folded=not view.verbose)
    width = width_of_names((name_of(_names(group)) for group in groups), style)
    for group in groups:
        first = group[0]
        lines += job_lines(
            first,
            _names(group),
            first.detail if len(group) == 1 else _detail(first),
            style,
            width,
            starts=[job.starts for job in group],
            is_cut=first.traits.is_harmless,
            is_braced=first.formerly is None,
            is_verbose=view.verbose,
        )
    if groups:
        lines.append("")
    lines += (*review_settings(review), *review_nodes(review), *review_cost(review))
    lines += render_warnings(review.warnings, style, review.declared)
    lines += render_denials(review.denied, style)
    lines.append(review.last_line)
    return "\n".join(lines) + "\n"


def sides_of(review: Review) -> str:
    """The compared directories or revisions, with their commits."""

    def name(side: ReviewedSide) -> str:
        return side.name if side.commit is None else f"{side.name} ({side.commit[:10]})"

    return f"{name(review.base)} -> {name(review.head)}"


def _detail(job: ReviewedJob) -> str:
    return without_name(job.detail, job.formerly) if job.formerly else job.detail


def _names(group: Sequence[ReviewedJob]) -> list[str]:
    """The keys; for several renamed ones with their former keys."""
    if len(group) == 1:
        return [group[0].key]
    return [job.key if job.formerly is None else f"{job.formerly} -> {job.key}" for job in group]


def review_settings(review: Review) -> Iterator[str]:
    """Render changes outside of jobs."""
    if review.settings:
        yield "Settings:"
        yield from ("  " + render_change(change) for change in review.settings)
        yield ""


def review_nodes(review: Review) -> Iterator[str]:
    """Render the nodes of all jobs before and after, for flavors whose number differs."""
    nodes = review.nodes
    changed = {name: count for name, count in nodes.flavors.items() if count.before != count.after}
    if not changed:
        yield f"Nodes: {nodes.after}, unchanged."
        return
    yield f"Nodes: {_difference(nodes)}"
    listed = list(changed.items())
    for name, count in listed[:_MOST_FLAVORS]:
        yield printable(f"  {name}: {_difference(count)}")
    if len(listed) > _MOST_FLAVORS:
        yield f"  and {len(listed) - _MOST_FLAVORS} more flavors"
    if same := len(nodes.flavors) - len(listed):
        yield f"  {same} {'flavor' if same == 1 else 'flavors'} unchanged"


def review_cost(review: Review) -> Iterator[str]:
    """Render the difference in cost: the maximum, or per hour where it is unbounded."""
    if (cost := review.cost) is None:
        return
    for words, amount in (("at most", cost.cost_max), ("per hour", cost.cost_per_hour)):
        before, after = amount.before, amount.after
        if before is not None and after is not None:
            more = f" -> {after:,.2f} ({after - before:+,.2f})" if after != before else ", unchanged"
            yield printable(f"Cost of all jobs {words}: {cost.currency} {before:,.2f}{more}")
            return
    yield "Cost of all jobs: unknown, a flavor has no price"


def _difference(count: NodeCount) -> str:
    return f"{count.before} -> {count.after} ({count.after - count.before:+})"


# ── validation, policy tests ────────────────────────────────────────────────────────────────────────


def validation_text(report: Validation, view: View) -> str:
    """Render problems, warnings and denials. The last line is a summary."""
    found = (*report.diagnostics, *report.warnings)
    problems = render_diagnostics(found, view.style, verbose=view.verbose) if found else ""
    lines = (*render_denials(report.denied, view.style), printable(report.last_line))
    rest = "".join(f"{line}\n" for line in lines)
    return problems + rest


def cases_text(report: CasesReport, view: View) -> str:
    """Render a line per case. The last line is a summary."""
    lines = []
    for one in report.results:
        word, colour = ("passed", "green") if one.has_passed else ("failed", "red")
        lines.append(printable_line(view.style.paint(f"  {word} ", colour), one.name))
        lines += (printable_line(INDENT, problem) for problem in one.problems)
    passed = len(report.results) - len(report.failed)
    lines.append(f"Policies of {printable(report.stack)}: {passed} passed, {len(report.failed)} failed.")
    return "\n".join(lines) + "\n"
