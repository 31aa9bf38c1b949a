"""One name, one meaning: a class has its name to itself, in the whole program."""

from __future__ import annotations

import ast
from collections import Counter

from tests.sources import modules

#: Files whose classes are the same things once more.
AGAIN = (
    "api.py",  # what programs use wraps the value of the same name
    "emulator/",  # the second witness knows nothing of ours, and the service's words are the same
)
#: Names that stand for two things all the same, and why.
SHARED = {
    "Catalog": "the protocol in core.ports, and the backend's group of calls that satisfies it",
}


def test_class_name_is_unique() -> None:
    ours = [tree for path, tree in modules().items() if not path.startswith(AGAIN)]
    names = Counter(node.name for tree in ours for node in tree.body if isinstance(node, ast.ClassDef))
    assert {name for name, count in names.items() if count > 1} == SHARED.keys()
