"""What policies deny and pre-flight found, as text for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from reconciler.core.planning.groups import FOLDED_FROM
from reconciler.core.planning.plan import Denial, PreflightFinding, Source
from reconciler.core.text.sanitize import printable
from reconciler.render.layout import cell_len, pad
from reconciler.render.style import Style
from reconciler.render.texts.groups import INDENT, KeyList, printable_line, render_keys


def render_denials(denied: Iterable[Denial], style: Style) -> Iterator[str]:
    """Each policy with what it says and where it stands, and all keys that it denies."""
    keys_by_reason: dict[Denial, list[str]] = {}
    for one in denied:
        keys_by_reason.setdefault(one.model_copy(update={"key": ""}), []).append(one.key)
    for reason, keys in keys_by_reason.items():
        source = reason.source
        said = printable(f"policy {reason.policy}: {reason.explanation}")
        if source is not None:
            said += f" ({style.link(spell_place(source), source)})"
        yield f"{style.paint('denied: ', 'red')}{said}"
        yield from render_keys(keys, KeyList(width=style.width))


def render_findings(findings: Iterable[PreflightFinding] | None, style: Style) -> Iterator[str]:
    """What the target would refuse, each with its jobs and where they stand; of many jobs their keys."""
    alike: dict[PreflightFinding, list[PreflightFinding]] = {}
    for one in findings or ():
        alike.setdefault(one.model_copy(update={"key": "", "source": None}), []).append(one)
    for reason, group in alike.items():
        said = "; ".join(filter(None, (reason.detail, reason.fix)))
        yield printable_line(style.paint("refused: ", "red"), said)
        if len(group) >= FOLDED_FROM:
            yield from render_keys((one.key for one in group), KeyList(width=style.width))
            continue
        width = max(cell_len(printable(one.key)) for one in group)
        for one in group:
            place = "" if one.source is None else style.link(spell_place(one.source), one.source)
            yield f"{INDENT}{pad(printable(one.key), width)}  {place}".rstrip()


def spell_place(source: Source) -> str:
    """A place in the manifest, as editors take it."""
    return printable(f"{source.file}:{source.line}:{source.column}")
