"""The sheet: the one value that every format beside text and JSON is made of, with a row per job.

Its texts hold no secret and nothing that steers a terminal or a CI service; each format still escapes what is
special to it. The file of each content says what its sheet is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from enum import StrEnum
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from reconciler.core.values import Source
from reconciler.render import Content
from reconciler.render.groups import fold_alike, without_name
from reconciler.secrets import show
from reconciler.text import printable

if TYPE_CHECKING:
    from reconciler.core.values import Change, Head, PlanWarning
    from reconciler.decide.plan import Denial
    from reconciler.errors import Diagnostic
    from reconciler.render.style import View

Clean = Callable[[str], str]
#: The kind of a row about a policy that denies a job.
DENIED = "denied"
#: How a value is written where there is none.
NONE = "(none)"


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
    """One job, or several with the same change (`keys`).

    `kind` is the action, the class of drift or the status, `action` what has the status; `rule` is the word
    of a closed list that says why, `words` the kind as people read it. `lines` are further details, under
    `lines_title`.
    `is_finding` says that it needs attention. Where there is no room, what `is_cut_first`
    is left out first, and what `must_stay` last. For people, rows of a low `rank` come first.
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
        """All of it in a line."""
        return f"{self.kind} {self.key}: {self.text or self.rule}"

    @property
    def place(self) -> str:
        """Where the manifest has it: `jobs.yaml:23:3`; "" where it has not."""
        source = self.source
        return "" if source is None else f"{source.file}:{source.line}:{source.column}"


class Note(NamedTuple):
    """Something about the whole: a warning, or why a guard or policy refuses."""

    level: Level
    what: str
    why: str
    fix: str
    key: str = ""


class Sheet(NamedTuple):
    """A plan, a drift report, a result… as it is shown.

    `rows` has one row per job in the order of the document, `folded` the same with what is alike put
    together, what ends work first; `keys` are all keys that were looked at, and `counts` those of the
    summary. `denied` has a row for each job and policy that denies it, and for each that pre-flight found;
    `notes` say that once for each reason.
    `last_line` is the last line of the text, and `sums` what a plan throws away and may cost. `columns` are
    the heads of a table of the rows: their kinds, their keys, and their texts.
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
        """What kind of sheet it is, for people."""
        return "Apply" if self.content is Content.RESULT else self.content.value.capitalize()

    @property
    def command(self) -> str:
        """The command that it is of."""
        commands = {Content.RESULT: "apply", Content.VALIDATION: "validate"}
        return commands.get(self.content, self.content.value)

    @property
    def name(self) -> str:
        """What the sheet is about: STACK@TARGET."""
        return f"{self.stack}@{self.target}"

    @property
    def findings(self) -> list[Row]:
        """The rows that need attention, those of policies and pre-flight included."""
        return [*(row for row in self.rows if row.is_finding and row.level is not Level.NONE), *self.denied]


def sheet_of(content: Content, value: Any, view: View) -> Sheet:
    """The sheet of a value, in which each text is harmless and holds no secret.

    One look at all texts is quicker than one at each of ten thousand.
    """
    make = import_module(f"reconciler.render.{content.value}").sheet
    texts: list[str] = []

    def collected(text: str) -> str:
        texts.append(text)
        return printable(text)

    sheet: Sheet = make(value, view, collected)
    together = "\n".join(texts)
    if view.redact(together) == together:
        return sheet
    # Many rows say the same, and each row is shown both by itself and folded.
    redacted: Sheet = make(value, view, cache(lambda text: printable(view.redact(text))))
    return redacted


# ── what sheets are made of ─────────────────────────────────────────────────────────────────────────


class SheetHead(TypedDict):
    """The fields of a sheet that come from the head of a document."""

    stack: str
    target: str
    where: str
    created_at: str
    version: str


def head_of(head: Head, clean: Clean) -> SheetHead:
    """What a sheet takes over of a document about a stack on a target."""
    target = head.target
    where = f", {target.endpoint}, project {target.project_id}" if target.endpoint != target.kind else ""
    return SheetHead(
        stack=clean(head.stack),
        target=clean(target.name),
        where=clean(target.kind + where),
        created_at=clean(head.created_at),
        version=clean(head.reconciler_version),
    )


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


def row_of_denial(denial: Denial, source: Source | None, clean: Clean) -> Row:
    """A row for a job that a policy denies, at the job's place: `rule` is the name of the policy."""
    return finding_row(
        clean(denial.key),
        DENIED,
        clean(denial.policy),
        clean(f"policy {denial.policy}: {denial.explanation}"),
        place_of(source or denial.source, clean),
    )


def finding_row(key: str, kind: str, rule: str, text: str, source: Source | None) -> Row:
    """A row for an error of one job, beside what becomes of the job."""
    return Row(
        (key,), kind, kind, "!", "red", rule, text,
        source=source, level=Level.ERROR, is_finding=True, must_stay=True,
    )  # fmt: skip


def refusal_notes(refusals: Iterable[Diagnostic], clean: Clean) -> Iterator[Note]:
    """Why a guard or policy refuses the whole."""
    for one in refusals:
        yield Note(Level.ERROR, clean(one.what), clean(one.why), clean(one.fix or ""))


def warning_notes(warnings: Iterable[PlanWarning], clean: Clean) -> Iterator[Note]:
    """Warnings as they are shown."""
    for one in warnings:
        yield Note(Level.WARNING, *(clean(text or "") for text in (one.what, one.why, one.fix, one.key)))


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
