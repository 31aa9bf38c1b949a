"""Plans, drift reports and events as JSON for programs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from reconciler.core.phase import Phase
from reconciler.core.values import TARGET_KINDS
from reconciler.decide.drift_check import DriftClass
from reconciler.decide.outcome import EventType
from reconciler.decide.plan import Action, Reason
from reconciler.render import Content, View
from reconciler.secrets import REDACTED
from reconciler.text import COMMAND_MARK, INVISIBLE

if TYPE_CHECKING:
    from reconciler.decide.fleet import FleetReport

_FIELD = re.compile("[a-z_]+")
_ID = re.compile(
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|sha256:[0-9a-f]{64}|[a-z][0-9a-f]{12}|[0-9a-f]{32}"
)
_SHORT = 8
#: Fields with closed lists of words, which are never redacted: a secret may happen to equal such a word.
_WORDS: Mapping[str, frozenset[str]] = {
    "action": frozenset(Action),
    "blocked_action": frozenset(Action),
    "reason": frozenset(Reason),
    "phase": frozenset(Phase),
    "kind": frozenset(TARGET_KINDS),
    "class": frozenset(DriftClass),
    "type": frozenset(EventType),
}
_COUNTS = frozenset({"summary", "sequence", "revision", "line", "column"})
# json.dumps escapes C0 controls only. Terminals also obey C1 controls, bidirectional and invisible characters
# can hide text, and a lone surrogate cannot be encoded.
_HARMFUL = re.compile(f"[{INVISIBLE}]")


def dump(value: Any, *, indent: int | None = 2) -> str:
    """Serialize plain data as JSON that is safe for terminals and CI logs."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    text = _HARMFUL.sub(lambda found: json.dumps(found[0])[1:-1], text)
    return re.sub(COMMAND_MARK, r"\\u0023", text)


def redacted(value: Any, redact: Callable[[str], str]) -> Any:
    """Redact plain data, text by text. Redacting the finished document would break the JSON."""
    text = json.dumps(value, ensure_ascii=False)
    # Scanning the whole document once is faster than scanning thousands of texts.
    return value if redact(text) == text else _redacted(value, redact)


def _redacted(value: Any, redact: Callable[[str], str]) -> Any:
    if isinstance(value, Mapping):
        document = {}
        for key, member in value.items():
            name = str(key)
            # Field names stay, even if a secret has the same letters.
            shown = name if _FIELD.fullmatch(name) else redact(name)
            document[shown] = member if _is_ours(name, member) else _redacted(member, redact)
        return document
    if isinstance(value, list | tuple):
        return [_redacted(item, redact) for item in value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return REDACTED if redact(str(value)) == REDACTED else value  # e.g. a PIN
    if not isinstance(value, str):
        return value
    text = redact(value)
    if text in (value, REDACTED) or not _ID.fullmatch(value):
        return text
    # A short secret may occur in an id or digest by chance; redacting it would make that useless.
    count = text.count(REDACTED)
    taken_out = len(value) - len(text) + count * len(REDACTED)
    return value if taken_out <= count * _SHORT else text


def _is_ours(name: str, value: Any) -> bool:
    """Whether a field holds a word of a closed list or a count, which is never a secret."""
    if isinstance(value, str):
        return value in _WORDS.get(name, ())
    numbers = value.values() if isinstance(value, Mapping) else (value,)
    return name in _COUNTS and all(type(number) is int for number in numbers)


def render(content: Content, value: Any, view: View) -> str:
    """Render the document that the command prints with `--json`."""
    document = value.document()
    return dump(redacted(document, view.redact)) + "\n"


def render_fleet(report: FleetReport, view: View) -> str:
    """Render the document of docs/operations/fleets.md.

    The documents of the stacks are redacted JSON text already, serialized by the workers. Each replaces the
    null of its entry, which is found by its indent.
    """
    parts = (one.parts.get("json", "null") for one in report.results if not one.errors)
    place = re.compile(r'(?<=^      "document": )null$', re.MULTILINE)
    # JSON strings contain no line breaks.
    indented = (part.rstrip("\n").replace("\n", "\n" + 6 * " ") for part in parts)
    return place.sub(lambda _: next(indented), dump(report.document())) + "\n"
