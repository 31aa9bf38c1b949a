"""The canonical layout of a manifest: text in, text out.

Keys that the language knows stand in the order of its models, names that people chose in theirs. Nesting is
two spaces, list items too. Comments, blank lines, anchors, quotes, the spelling of values and the flow or
block style of every collection are kept. What comes out is read again and compared before it is handed on.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from reconciler.errors import ManifestInvalid
from reconciler.manifest import yaml as document
from reconciler.manifest.comments import CommentAssignment, comments_of, without_trailing_space
from reconciler.manifest.nodes import not_supported, parse_nodes
from reconciler.manifest.printer import Printer, without_blank_end

_LINE_BREAK = re.compile("\r\n?")


def format_text(text: str, name: str) -> str:
    """Lay out a manifest; `name` is what messages call it.

    Raises:
        ManifestInvalid: it is no valid YAML for a manifest, or has a construct without a canonical form (an
            explicit `? key`).
    """
    lines = _LINE_BREAK.sub("\n", text.removeprefix("\ufeff"))
    before = _parsed(text, name)
    if not before.tree:
        return without_trailing_space(lines)
    root = parse_nodes(lines, name)
    comments = comments_of(lines, root)
    header, tail = CommentAssignment(lines, root).assign()
    for sorts in (True, False):
        written = [*header, *Printer(lines, root, sorts).lines(), *without_blank_end(tail)]
        new = "\n".join(written).lstrip("\n\ufeff")
        # A block of text at the end of a file may have no line break at its own end.
        for ended in (new + "\n", new):
            # What is written replaces what people wrote: a defect here must not change what their jobs are.
            keeps_values = _tree_of(ended, name) == before.tree
            if keeps_values and comments_of(ended, parse_nodes(ended, name)) == comments:
                return ended
    why = "the layout cannot be changed without changing a value or losing a comment"
    raise ManifestInvalid(not_supported(name, 1, why, None))


def _parsed(text: str, name: str) -> document.Document:
    parsed = document.parse(text.encode("utf-8", "surrogatepass"), Path(name), name)
    if parsed.problems:
        raise ManifestInvalid(*parsed.problems)
    return parsed


def _tree_of(text: str, name: str) -> Any:
    try:
        return _parsed(text, name).tree
    except ManifestInvalid:
        return None
