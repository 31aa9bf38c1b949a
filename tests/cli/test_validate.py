"""`validate` in every format: the outputs are written whether or not the manifest is valid."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest

from reconciler.render import Content, formats_of
from tests.cli.conftest import Reconciler, manifest, write

DENY = "policies: [{name: no-a, deny: job.key == 'a', message: not that one}]\n"
FORMATS = formats_of(Content.VALIDATION)
TO_FILES = [word for name in FORMATS for word in ("-o", f"{name}=out.{name}")]


def broken() -> None:
    """Two files, a misspelt key in one of them."""
    write(manifest("a"))
    write("jobs: {b: {spce: {}}}\n", "more.yaml")


def shown() -> dict[str, str]:
    return {name: Path(f"out.{name}").read_text(encoding="utf-8") for name in FORMATS}


def test_invalid_manifest_is_written_to_every_format_and_to_stderr(reconciler: Reconciler) -> None:
    broken()
    error = "error: unknown field\n  --> more.yaml:1:12  jobs.b\n"
    reconciler.ends(65, "validate", *TO_FILES, out="", err=error)
    files = shown()
    assert all("spce" in text for text in files.values())
    assert error in files["text"]
    assert files["markdown"].startswith("<!-- reconciler: test@there -->\n")
    assert "::error file=more.yaml,line=1,col=12,title=invalid jobs.b::unknown field: " in files["github"]
    cases = {case.attrib["name"]: len(case) for case in Xml.fromstring(files["junit"]).iter("testcase")}
    assert cases == {"jobs.yaml": 0, "more.yaml": 1}
    places = [
        one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        for one in json.loads(files["sarif"])["runs"][0]["results"]
    ]
    assert set(places) == {"more.yaml"}


def test_validation_document_has_problems_with_locations(reconciler: Reconciler) -> None:
    write(manifest("a", "b", more=DENY))
    document = reconciler.ends(3, "validate --json").document
    assert (document["valid"], document["targets"]) == (True, ["there"])
    assert document["denied"][0]["job"] == {"file": "jobs.yaml", "line": 7, "column": 3}
    broken()
    document = reconciler.ends(65, "validate --json", err="").document
    assert document["files"] == ["jobs.yaml", "more.yaml"]
    assert {one["path"] for one in document["diagnostics"]} >= {"jobs.b"}


# ── other commands with an invalid manifest ─────────────────────────────────────────────────────────


@pytest.mark.parametrize("command", ["plan", "drift"])
def test_failed_command_writes_no_report(reconciler: Reconciler, command: str) -> None:
    """Except metrics, which report the failure: tests/cli/test_run_metrics.py."""
    broken()
    formats = [name for name in FORMATS if name != "prometheus"]
    result = reconciler(command, *(word for name in formats for word in ("-o", f"{name}=out.{name}")))
    assert (result.code, result.out) == (65, "")
    assert not [name for name in formats if Path(f"out.{name}").exists()]
