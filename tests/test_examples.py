"""Every example is valid, for the program and for an editor, and its page is true."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from docs.doc_runner import PageRun, WentWrong
from docs.generate import PAGES as GENERATED
from docs.generate import generate

ROOT = Path(__file__).parents[1]
#: Examples with a stack, possibly in a directory `jobs`. Other files have their own tests: tests/ci,
#: tests/schedules.
EXAMPLES = sorted(
    path
    for path in (ROOT / "examples").iterdir()
    if any((path / name).exists() for name in ("jobs.yaml", "jobs/jobs.yaml"))
)
#: The commands of the other examples are run by a guide in docs/guides.
RUN_HERE = [path for path in GENERATED if path.parts[0] == "examples"]
MODELINE = re.compile(r"# yaml-language-server: \$schema=((?:\.\./)+schemas/manifest\.schema\.json)")
SCHEMA = json.loads((ROOT / "schemas/manifest.schema.json").read_text(encoding="utf-8"))

each_example = pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)


def _stack(example: Path) -> Path:
    """Return the directory of its root file."""
    return example / "jobs" if (example / "jobs").is_dir() else example


@each_example
def test_example_is_valid_by_the_editor_schema(example: Path) -> None:
    files = list(_stack(example).glob("*.yaml"))
    assert files
    for path in files:
        text = path.read_text(encoding="utf-8")
        modeline = MODELINE.fullmatch(text.splitlines()[0])
        assert modeline
        assert (path.parent / modeline[1]).resolve() == ROOT / "schemas/manifest.schema.json"
        Draft202012Validator(SCHEMA).validate(YAML(typ="safe", pure=True).load(text))


@pytest.mark.parametrize("page", RUN_HERE, ids=str)
def test_commands_of_the_example_page_do_what_it_shows(page: Path) -> None:
    """Each command has the documented exit code and output."""
    written = (ROOT / page).read_text(encoding="utf-8")
    assert written == generate(page), f"{page} is not up to date: python -m docs.generate"


def test_unexpected_exit_code_of_a_documented_command_is_detected(tmp_path: Path) -> None:
    shutil.copytree(
        ROOT / "examples/first-job",
        tmp_path,
        ignore=shutil.ignore_patterns(".reconciler"),
        dirs_exist_ok=True,
    )
    with pytest.raises(WentWrong, match="exits 2"):
        PageRun(tmp_path).run_again("```sh\nreconciler plan --detailed-exitcode\n```\n")
    told = PageRun(tmp_path).run_again("```sh\nreconciler validate\n```\n\n```text\nno\n```\n")
    assert "Valid: stack first-job" in told
