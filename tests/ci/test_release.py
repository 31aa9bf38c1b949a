"""The workflows, including that for users: valid, with least permissions; and releases."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

from reconciler.version import __version__
from tests.ci.shell import ROOT

FILES = [*sorted((ROOT / ".github/workflows").glob("*.yml")), ROOT / "examples/ci/github/reconciler.yml"]
WORKFLOWS: dict[str, Any] = {file.stem: YAML(typ="safe").load(file) for file in FILES}
SCHEMA = json.loads((Path(__file__).parent / "schemas/github-workflow.json").read_text(encoding="utf-8"))
#: Write permissions of release jobs.
WRITES = {
    "ci": set(),
    "build": set(),
    "provenance": {"attestations", "id-token"},
    "pypi": {"id-token"},
    "image": {"attestations", "id-token", "packages"},
    "github": {"contents"},
}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_workflow_is_valid_pinned_and_calls_existing_scripts(file: Path) -> None:
    workflow, text = WORKFLOWS[file.stem], file.read_text(encoding="utf-8")
    jsonschema.Draft7Validator(SCHEMA).validate(workflow)
    assert "concurrency:" in text
    for line in (line for line in text.splitlines() if "uses:" in line and "uses: ./" not in line):
        assert re.search(r"uses: [\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line
    for script in re.findall(r"(?<![\w/])\.(?:ci|github)/[\w/.]+", text):
        assert (ROOT / script).is_file(), script
    steps = [step for job in workflow["jobs"].values() for step in job.get("steps", [])]
    assert [step["run"] for step in steps if "${{" in step.get("run", "")] == []


def test_each_job_of_a_release_has_the_least_permissions() -> None:
    release = WORKFLOWS["release"]
    for workflow in (release, WORKFLOWS["ci"]):
        assert workflow["permissions"] == {}
        steps = [step for job in workflow["jobs"].values() for step in job.get("steps", [])]
        checkouts = [step for step in steps if step.get("uses", "").startswith("actions/checkout@")]
        assert [step for step in checkouts if step["with"]["persist-credentials"] is not False] == []
    written = {
        name: {what for what, level in job["permissions"].items() if level == "write"}
        for name, job in release["jobs"].items()
    }
    assert written == WRITES


def notes(directory: Path, tag: str, changelog: str) -> subprocess.CompletedProcess[str]:
    """Run the script of the release on a repository with this changelog."""
    for name, text in (
        (".ci/release_notes.py", (ROOT / ".ci/release_notes.py").read_text(encoding="utf-8")),
        ("reconciler/version.py", (ROOT / "reconciler/version.py").read_text(encoding="utf-8")),
        ("CHANGELOG.md", changelog),
    ):
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(text, encoding="utf-8")
    command = [sys.executable, str(directory / ".ci/release_notes.py"), tag]
    return subprocess.run(command, capture_output=True, text=True)


CHANGELOG = f"""\
# Changelog

## [Unreleased]

- later

## [{__version__}] - 2026-12-01

### Added

- this

## [0.0.1] - 2026-01-01

- before

[{__version__}]: https://example.org
"""


def test_notes_of_a_release_are_its_section_of_the_changelog(tmp_path: Path) -> None:
    done = notes(tmp_path, f"v{__version__}", CHANGELOG)
    assert (done.returncode, done.stdout) == (0, "### Added\n\n- this\n")


@pytest.mark.parametrize(
    ("tag", "changelog", "message"),
    [
        ("v9.9.9", CHANGELOG, "the tag v9.9.9 is not v"),
        (f"v{__version__}", CHANGELOG.replace(f"## [{__version__}]", "## [0.0.2]"), "has no section"),
        (f"v{__version__}", CHANGELOG.replace("### Added\n\n- this\n", ""), "or an empty one"),
    ],
)
def test_release_without_its_version_or_its_section_is_refused(
    tmp_path: Path, tag: str, changelog: str, message: str
) -> None:
    done = notes(tmp_path, tag, changelog)
    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr
