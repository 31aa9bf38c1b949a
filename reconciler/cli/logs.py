"""Logs, events and metrics of one job, fetched and shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from reconciler.cli.terminal.console import console
from reconciler.core.logtail import last_lines, unseen
from reconciler.errors import ServiceError
from reconciler.modelarts.jobs import FOLLOW_EVERY_S, first_task
from reconciler.render.lines import render_lines
from reconciler.text import printable

if TYPE_CHECKING:
    from reconciler.cli.service_session import TargetSession
    from reconciler.core.job_reports import NodeMetric
    from reconciler.core.observed_job import ObservedJob
    from reconciler.core.ports import Logs


def print_url(there: TargetSession, job: ObservedJob, task: str, *, as_json: bool) -> None:
    """Print a link to the whole log."""
    url = there.target.logs.url(job.id, task, download=True)
    if as_json:
        _dump({"job": job.id, "task": task, "url": url})
    elif url is not None:
        console.result(printable(url) + "\n")
    if url is None:
        _say_none(job, task)


def print_log(there: TargetSession, job: ObservedJob, task: str, lines: int | None, *, as_json: bool) -> None:
    """Print the end of a log."""
    preview = there.target.logs.preview(job.id, task)
    if preview is None:
        _say_none(job, task)
    content = preview.content if preview else ""
    has_gap = unseen(content, preview.full_size if preview else None, 0, is_last=True).has_gap
    shown = redact_log(content, is_cut=has_gap)
    shown = shown if lines is None else last_lines(shown, lines)
    if as_json:
        _dump({"job": job.id, "task": task, "log": shown if preview else None})
        return
    console.result(render_lines(shown))
    if has_gap and lines is None:
        console.say("The beginning of the log is not shown; use --url for a link to the whole log.")


def redact_log(text: str, *, is_cut: bool) -> str:
    """Take secrets out of a log before its lines are parted and cut. `is_cut`: its beginning is missing."""
    return console.redact(f"…{text}")[1:] if is_cut else console.redact(text)


def follow(there: TargetSession, job: ObservedJob, task: str, lines: int | None, *, as_json: bool) -> None:
    """Print a log as it grows, until the job has ended. With JSON each line is an object."""
    seen, is_first = 0, True
    while True:
        # The phase first: what the job wrote before it ended is in the log that is read after it.
        job = there.target.backend.details(job.id)
        has_ended = job.phase is not None and job.phase.is_terminal
        preview = there.target.logs.preview(job.id, task)
        if preview is not None:
            new = unseen(preview.content, preview.full_size, seen, is_last=has_ended)
            if not has_ended:
                new = new.without_end(console.redact.held_back(new.text))
            if new.has_gap and lines is None:
                console.say("Part of the log is not shown: the service returns only its end.")
            text = redact_log(new.text, is_cut=new.has_gap)
            text = last_lines(text, lines) if is_first and lines is not None else text
            _print_part(text, as_json=as_json)
            seen, is_first = new.size, False
        elif is_first:
            _say_none(job, task)
            is_first = False
        if has_ended:
            console.say(printable(f"{job.name} is {job.phase_text}."))
        if has_ended or console.has_no_reader:
            return
        there.clock.sleep(FOLLOW_EVERY_S)


def _print_part(text: str, *, as_json: bool) -> None:
    if as_json:
        for line in text.splitlines():
            console.document({"line": line}, indent=None)
    elif text:
        console.result(render_lines(text))


def end_of_log(logs: Logs, job: ObservedJob, lines: int) -> list[str]:
    """The last lines of a job's log; none where it cannot be read."""
    try:
        preview = logs.preview(job.id, first_task(job))
    except ServiceError:
        return []
    if preview is None:
        return []
    is_cut = preview.full_size is not None and preview.full_size > len(preview.content.encode())
    return redact_log(preview.content, is_cut=is_cut).splitlines()[-lines:]


def metric_row(metric: NodeMetric) -> tuple[str, ...]:
    """One metric in numbers: last, mean and largest value, and for how many minutes there is one."""
    values = [value for value in metric.value if value is not None]
    if not values:
        return metric.metric, "", "", "", "0"
    mean = sum(values) / len(values)
    return metric.metric, f"{values[-1]:.0f}", f"{mean:.0f}", f"{max(values):.0f}", str(len(values))


def _say_none(job: ObservedJob, task: str) -> None:
    console.say(printable(f"{job.name} has no log of {task} yet ({job.phase_text})."))


def _dump(document: Mapping[str, Any]) -> None:

    console.document(document)
