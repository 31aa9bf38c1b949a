"""What a notification says: a title, and a text that is short enough for every service and holds no markup.

What is new comes first, then what lasts, each by class. `redact` takes the secrets out of each line before
its markup is replaced and its end is cut off: either would make another text of a secret.
Source: docs/watch.md, "Notifications".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from reconciler.decide.drift_comparison import DriftComparison
from reconciler.decide.drift_entry import Drift
from reconciler.decide.outcome import Outcome, Status
from reconciler.text import printable

Redact = Callable[[str], str]
#: What the strictest services take of one message, in bytes of UTF-8, and of its title.
MOST_BYTES, MOST_TITLE = 1800, 120
#: One line does not keep the others out.
_MOST_LINE = 240
#: Characters by which a chat, a mail or a page takes text for more than text; they become what reads alike.
_MARKUP = str.maketrans(
    {
        "<": "‹", ">": "›", "[": "(", "]": ")", "`": "'", "*": "∗", "|": "¦", "~": "∼", "@": "＠", "\\": "∖",
        "!": "ǃ", "&": "＆", "#": "＃",
    }
)  # fmt: skip
_LINK = re.compile(r"\b(?:https?|ftp)(?=://)", re.IGNORECASE)
_BADLY = {
    Status.FAILED: "failed",
    Status.DENIED: "permission denied",
    Status.TIMED_OUT: "timed out",
    Status.UNKNOWN: "outcome unknown",
    Status.CONFLICT: "conflict",
    Status.INTERRUPTED: "interrupted",
}


@dataclass(frozen=True, slots=True)
class NotificationText:
    """One message."""

    title: str
    text: str


def plain_text(text: str) -> str:
    """One line that no service takes for a mention, a link, a style or a tag."""
    return _LINK.sub(lambda found: f"{found[0][0]}xx{found[0][3:]}", printable(text).translate(_MARKUP))


def drift_notification(
    comparison: DriftComparison, classes: Collection[str], stack: str, target: str, redact: Redact = str
) -> NotificationText | None:
    """What is told of these classes of drift; None where nothing of them has to be told now."""
    if not any(entry.class_.value in classes for entry in comparison.due):
        return None
    new = _of(classes, (*comparison.new, *comparison.changed))
    lasting = _of(classes, comparison.lasting)
    counts = [f"{len(new)} new"] if new else []
    counts += [f"{len(lasting)} lasting"] if lasting else []
    title = f"{stack} on {target}: drift, {', '.join(counts)}"
    lines = [*_section("New", new, redact), *_section("Lasting", lasting, redact)]
    return NotificationText(_title(title, redact), _bounded(lines))


def drift_of_classes(comparison: DriftComparison, classes: Collection[str]) -> tuple[Drift, ...]:
    """The drift that a notification about these classes lists."""
    return _of(classes, comparison.visible)


def apply_notification(
    outcomes: Iterable[Outcome], problem: str, stack: str, target: str, redact: Redact = str
) -> NotificationText | None:
    """What is told of an apply that failed; None if all went well. `problem` kept it from beginning."""
    failed = [outcome for outcome in outcomes if outcome.status in _BADLY]
    if not failed and not problem:
        return None
    lines = [plain_text(redact(problem))] if problem else []
    for outcome in failed:
        why = outcome.message or outcome.detail
        said = f"{outcome.action.action.value} {outcome.key}: {_BADLY[outcome.status]}"
        lines.append(_line(f"{said}, {why}" if why else said, redact))
    count = f", {len(failed)} of its actions" if failed else ""
    return NotificationText(_title(f"{stack} on {target}: apply failed{count}", redact), _bounded(lines))


def _of(classes: Collection[str], entries: Sequence[Drift]) -> tuple[Drift, ...]:
    return tuple(entry for entry in entries if entry.class_.value in classes)


def _section(word: str, entries: Sequence[Drift], redact: Redact) -> Iterator[str]:
    """A heading, then each class with its entries."""
    if entries:
        yield f"{word}:"
    for class_ in dict.fromkeys(entry.class_ for entry in entries):
        of_class = [entry for entry in entries if entry.class_ is class_]
        yield f"- {class_.value} ({len(of_class)})"
        for entry in of_class:
            since = f" (since {entry.since})" if entry.since and word == "Lasting" else ""
            yield _line(f"  {entry.key}: {entry.detail}{since}", redact)


def _line(text: str, redact: Redact) -> str:
    line = plain_text(redact(text))
    return line if len(line) <= _MOST_LINE else f"{line[: _MOST_LINE - 1]}…"


def _title(text: str, redact: Redact) -> str:
    return plain_text(redact(text))[:MOST_TITLE]


def _bounded(lines: Sequence[str]) -> str:
    """As many lines as there is room for; how many are left out is said."""
    room = MOST_BYTES - len("\n… and 99999 more lines".encode())
    kept: list[str] = []
    for line in lines:
        room -= len(line.encode()) + 1
        if room < 0:
            break
        kept.append(line)
    left = len(lines) - len(kept)
    return "\n".join([*kept, *([f"… and {left} more lines"] if left else [])])
