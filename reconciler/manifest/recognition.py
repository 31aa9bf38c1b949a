"""Is a file a manifest, by its look? For files that cannot be read as one, or should never have been.

A file that is named like a manifest may be anything: a credentials file behind a link, the environment of
a process. No line of such a file is shown. A manifest with a mistake in it is known by a key that it has
on its first level; its lines are shown, for they say best where the mistake is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

#: What a manifest says on its first level, and hardly any other file.
_KEYS = frozenset(
    {
        *("stack", "target", "targets", "variables", "limits", "prices"),
        *("policies", "drift", "notify", "records", "defaults", "jobs"),
    }
)
_OURS = "reconciler/"
_ANY_KEY = "|".join(sorted(_KEYS))
#: On the first level of a block, or of a flow mapping that is the whole file, as JSON is.
_SAYS_STACK = re.compile(r"""^stack[ \t]*:|\A\s*\{[^{}\[\]]*?["']?\bstack["']?\s*:""", re.MULTILINE)
_PLAIN_KEY = re.compile(rb"[A-Za-z]+:(?:[ \t]|\Z)")
_PLAIN_STACK = re.compile(rb"^stack:[ \t]+([a-z][a-z0-9-]*)[ \t]*(?:#[^\n]*)?\r?$", re.MULTILINE)
_NO_NAMES = frozenset((b"true", b"false", b"null"))
_SAYS_KEY = re.compile(
    rf"""^(?:{_ANY_KEY})[ \t]*:(?:\s|\Z)|^apiVersion[ \t]*:[ \t]*["']?{_OURS}"""
    rf"""|\A\s*\{{[^{{}}\[\]]*?["']?\b(?:{_ANY_KEY})["']?\s*:""",
    re.MULTILINE,
)
_SAYS_SENSITIVE = re.compile(r"\bsensitive\b")


#: What a case for policies says on its first level, see `manifest.policy_cases`.
_CASE_KEYS = frozenset(("job", "expect"))
#: What it does not say: jobs that are left out of the stack would count as absent.
_NOT_IN_CASE = (_KEYS | {"apiVersion", "templates"}) - {"target"}
_SAYS_EXPECT = re.compile(r"^expect[ \t]*:", re.MULTILINE)


def says_stack(text: str) -> bool:
    """Whether a text that cannot be parsed is a root file, as far as it looks."""
    return _SAYS_STACK.search(text) is not None


def plain_stack_name(data: bytes) -> str | None:
    """The name in a file that says `stack: NAME` on a line of its own, as nearly all root files do.

    None where only a parser can tell: the file is no plain mapping, or the name is quoted or no name.
    """
    lines = (line for line in data.splitlines() if line.strip() and not line.lstrip().startswith(b"#"))
    first = next((line for line in lines if line.rstrip() != b"---"), b"")
    names = _PLAIN_STACK.findall(data) if _PLAIN_KEY.match(first) else []
    return names[0].decode() if len(names) == 1 and names[0] not in _NO_NAMES else None


def says_sensitive(text: str) -> bool:
    """Whether a text that cannot be parsed may hold the value of something sensitive."""
    return _SAYS_SENSITIVE.search(text) is not None


def is_manifest_text(text: str) -> bool:
    """Whether a text that cannot be parsed is a manifest, as far as it looks."""
    return _SAYS_KEY.search(text) is not None


def is_manifest_tree(tree: Mapping[str, Any]) -> bool:
    """Whether a mapping is a manifest: one of its keys is."""
    return not _KEYS.isdisjoint(tree) or str(tree.get("apiVersion")).startswith(_OURS)


def is_case_tree(tree: Mapping[str, Any]) -> bool:
    """Whether a mapping is a case for policies, which is no manifest although it may lie among them."""
    return tree.keys() >= _CASE_KEYS and tree.keys().isdisjoint(_NOT_IN_CASE)


def is_case_text(text: str) -> bool:
    """Whether a text that cannot be parsed is a case for policies, as far as it looks."""
    return _SAYS_EXPECT.search(text) is not None and not is_manifest_text(text)
