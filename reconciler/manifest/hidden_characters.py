"""Characters by which a file says something else to the parser than to the person who reviews it.

What changes the direction of text may show a line in another order than it is read; what only some readers
take for a line break hides a line. Written as an escape in double quotes both are seen.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, NamedTuple

from reconciler.manifest.composition import SEPARATORS, quoted_spans

#: The marks, embeddings, overrides and isolates of Unicode's bidirectional algorithm.
DIRECTION = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_HIDDEN = re.compile(f"[{DIRECTION}{SEPARATORS}]")


class HiddenCharacter(NamedTuple):
    """One such character: where it stands in the text, and the words of a problem."""

    at: int
    why: str
    fix: str


def hidden_characters(text: str, root: Any) -> Iterator[HiddenCharacter]:
    """Yield those that no file may hold; `root` are the nodes of the text, None if it cannot be parsed."""
    if text.isascii() or (found := list(_HIDDEN.finditer(text))) == []:
        return
    has_separators = any(one[0] in SEPARATORS for one in found)
    spans, known = quoted_spans(text, root) if has_separators else ([], 0)
    starts, ends = [start for start, _ in sorted(spans)], [end for _, end in sorted(spans)]
    for one in found:
        index, name = one.start(), f"U+{ord(one[0]):04X}"
        fix = f'remove it, or write it as "\\u{ord(one[0]):04x}" in double quotes'
        if one[0] not in SEPARATORS:
            yield HiddenCharacter(index, f"{name} changes the direction of the text around it", fix)
            continue
        before = bisect_right(starts, index) - 1
        if index < known and not (before >= 0 and index < ends[before]):
            yield HiddenCharacter(index, f"{name} outside quotes is a line break to some readers only", fix)
