"""What policies deny, as text for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from reconciler.core.values import Source
from reconciler.decide.plan import Denial
from reconciler.render.style import Style
from reconciler.render.texts.groups import KeyList, render_keys
from reconciler.text import printable


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


def spell_place(source: Source) -> str:
    """A place in the manifest, as editors take it."""
    return printable(f"{source.file}:{source.line}:{source.column}")
