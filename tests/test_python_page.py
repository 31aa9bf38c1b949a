"""docs/reference/python.md has every public name; its code is run by docs/generate.py."""

from __future__ import annotations

import re

import reconciler
from reconciler import emulator
from tests.pages import table, text_of

PAGE = "docs/reference/python.md"


def test_every_public_name_is_on_the_page() -> None:
    errors = {name for row in table(PAGE, "Errors", "error") for name in re.findall(r"\w+", row[0])}
    shown = set(re.findall(r"^::: (\S+)$", text_of(PAGE), re.M)) | {f"reconciler.{name}" for name in errors}
    public = {f"reconciler.{name}" for name in reconciler.__all__ if name != "__version__"}
    assert shown == public | {f"reconciler.emulator.{name}" for name in emulator.__all__}


def test_documented_exit_codes_of_errors_are_correct() -> None:
    for name, code, _ in table(PAGE, "Errors", "error"):
        assert getattr(reconciler, name.strip("`")).exit_code == int(code)
