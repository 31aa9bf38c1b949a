"""One name, one meaning: class names are unique in the program."""

from __future__ import annotations

import ast
from collections import Counter

from tests.sources import modules

#: Files whose classes repeat others on purpose.
AGAIN = (
    "api.py",  # the public API wraps values of the same name
    "emulator/",  # the emulator imports nothing of ours, and uses the service's terms
)
#: Names with two meanings, and why.
SHARED = {
    "Catalog": "the protocol in core.ports, and the backend's group of calls that satisfies it",
}


def test_class_name_is_unique() -> None:
    ours = [tree for path, tree in modules().items() if not path.startswith(AGAIN)]
    names = Counter(node.name for tree in ours for node in tree.body if isinstance(node, ast.ClassDef))
    assert {name for name, count in names.items() if count > 1} == SHARED.keys()
