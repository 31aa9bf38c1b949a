"""docs/reference/manifest.md: each construct has a valid example, and each key is in one."""

from __future__ import annotations

import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from reconciler.core.schema import manifest_schema
from tests.pages import text_of

PAGE = "docs/reference/manifest.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", text_of(PAGE), re.M | re.S)
FILES = [text for language, text in BLOCKS if language == "yaml"]
MANIFESTS = [text for text in FILES if not text.startswith("# ../prod.yaml")]
VALIDATOR = Draft202012Validator(manifest_schema())


def parsed(text: str) -> Any:
    return YAML(typ="safe", pure=True).load(text)


def test_every_manifest_page_example_is_readable() -> None:
    assert all(re.match(r"# [\w./-]+\.yaml\n", text) for text in FILES)
    languages = [language for language, _ in BLOCKS]
    assert set(languages) == {"yaml", "sh", "text"}
    for number, language in enumerate(languages):
        if language == "yaml":
            assert languages[number + 1] == "sh"


@pytest.mark.parametrize("text", MANIFESTS, ids=range(len(MANIFESTS)))
def test_editor_schema_accepts_every_valid_example(text: str) -> None:
    assert VALIDATOR.is_valid(parsed(text)) is ("node_cout" not in text)
