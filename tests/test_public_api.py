"""Public names: existing, documented, and each used by a test."""

from __future__ import annotations

import re
from pathlib import Path

import reconciler

TESTS = Path(__file__).parent
PUBLIC = sorted(name for name in reconciler.__all__ if name != "__version__")


def test_public_names_exist_and_are_documented() -> None:
    for name in PUBLIC:
        value = getattr(reconciler, name)
        assert value.__doc__, name
        for member, what in vars(value).items() if isinstance(value, type) else ():
            is_ours = str(getattr(what, "__module__", "")).startswith("reconciler")
            if (is_ours or isinstance(what, property)) and not member.startswith("_"):
                assert what.__doc__, f"{name}.{member}"


def test_documented_names_equal_the_public_names() -> None:
    assert sorted([*reconciler._MODULE_BY_NAME, "__version__"]) == sorted(reconciler.__all__)
    assert dir(reconciler) == sorted(reconciler.__all__)


def test_every_public_name_is_used_by_a_test() -> None:
    texts = [path.read_text(encoding="utf-8") for path in TESTS.rglob("*.py") if path != Path(__file__)]
    words = {word for text in texts for word in re.findall(r"\w+", text)}
    assert set(PUBLIC) - words == set()
