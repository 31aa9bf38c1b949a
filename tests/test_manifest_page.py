"""docs/manifest.md: each construct has an example that is valid, and each key stands in one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from docs.doc_runner import PageRun
from docs.generate import own_keys
from reconciler.core.schema import manifest_schema
from tests.pages import text_of

PAGE = "docs/manifest.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", text_of(PAGE), re.M | re.S)
FILES = [text for language, text in BLOCKS if language == "yaml"]
MANIFESTS = [text for text in FILES if not text.startswith("# ../prod.yaml")]
VALIDATOR = Draft202012Validator(manifest_schema())
#: Keys that have no example there, and why.
WITHOUT_EXAMPLE = {
    "records": "docs/records.md has it",
    "targets.NAME.workspace_id": "few need it",
    "targets.NAME.profile": "docs/cli.md has it",
    "targets.NAME.insecure": "nobody should need it",
    "lifecycle.replace_order": "docs/semantics.md has it",
}


def parsed(text: str) -> Any:
    return YAML(typ="safe", pure=True).load(text)


def test_every_example_is_a_file_that_its_commands_read() -> None:
    assert all(re.match(r"# [\w./-]+\.yaml\n", text) for text in FILES)
    languages = [language for language, _ in BLOCKS]
    assert set(languages) == {"yaml", "sh", "text"}
    for number, language in enumerate(languages):
        if language == "yaml":
            assert languages[number + 1] == "sh"


@pytest.mark.parametrize("text", MANIFESTS, ids=range(len(MANIFESTS)))
def test_editor_takes_every_example_but_the_one_with_errors(text: str) -> None:
    assert VALIDATOR.is_valid(parsed(text)) is ("node_cout" not in text)


def test_every_key_of_our_own_has_an_example() -> None:
    shown = {path for text in MANIFESTS for path in paths_of(parsed(text))}
    own = {path for path, *_ in own_keys()}
    assert own - shown == WITHOUT_EXAMPLE.keys()


def paths_of(manifest: dict[str, Any]) -> Iterator[str]:
    """The keys that a manifest has, named as the table names them."""
    for name, value in manifest.items():
        yield name
        if name in ("jobs", "templates"):
            for entry in value.values():
                yield from below(entry, "")
        elif name in ("targets", "variables"):
            for entry in value.values():
                yield from below(entry, f"{name}.NAME.")
        elif name in ("policies", "notify"):
            for entry in value:
                yield from below(entry, f"{name}[].")
        else:
            yield from below(value, f"{name}.")


def below(value: Any, prefix: str) -> Iterator[str]:
    for name, member in value.items() if isinstance(value, dict) else ():
        yield f"{prefix}{name}"
        yield from below(member, f"{prefix}{name}.")
        for item in member if isinstance(member, list) else ():
            yield from below(item, f"{prefix}{name}[].")


def test_section_with_files_has_a_directory_of_its_own(tmp_path: Path) -> None:
    section = "## {}\n```yaml\n# {}\nx: 1\n```\n```sh\nls *\n```\n```text\n```\n"
    run = PageRun(tmp_path).run_again(section.format("One", "a.yaml") + section.format("Two", "b/c.yaml"))
    assert re.findall(r"```text\n(.*?)```", run, re.S) == ["a.yaml\n", "c.yaml\n"]
