"""`-o github` in a step of a workflow: annotations on stdout, the summary and the outputs in files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Reconciler, manifest, write


class Step:
    """The files a runner provides to a step."""

    def __init__(self, directory: Path) -> None:
        self.summary, self.output = directory / "summary.md", directory / "output"

    @property
    def outputs(self) -> dict[str, str]:
        """The outputs seen by later steps; the last line of a name counts."""
        lines = self.output.read_text(encoding="utf-8").splitlines()
        return dict(line.split("=", 1) for line in lines)


@pytest.fixture
def step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Step:
    """A step in the top directory of a repository."""
    made = Step(tmp_path)
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(made.summary))
    monkeypatch.setenv("GITHUB_OUTPUT", str(made.output))
    return made


def test_github_plan_has_annotations_summary_and_outputs(reconciler: Reconciler, step: Step) -> None:
    write(manifest("a"))
    result = reconciler("plan --out plan.json -o github")
    last_line = "Plan: 1 to create, 0 to update, 0 to replace, 0 to terminate, 0 to keep."
    assert result.out == f"::notice title=reconciler test@there::{last_line}\n"
    digest = result.err.strip().splitlines()[-1]
    assert digest.startswith("sha256:")
    outputs = step.outputs
    assert (outputs["has_changes"], outputs["digest"], outputs["summary"]) == ("true", digest, last_line)
    assert (outputs["create"], outputs["terminate"]) == ("1", "0")
    summary = step.summary.read_text(encoding="utf-8")
    assert summary.startswith("<!-- reconciler: test@there -->\n")
    assert digest in summary


def test_unsaved_plan_has_the_digest_of_its_file_in_the_root(reconciler: Reconciler, step: Step) -> None:
    write(manifest("a"))
    reconciler("plan -o github")
    digest = step.outputs["digest"]
    reconciler("plan -o github --out plan.json")
    assert step.outputs["digest"] == digest
    reconciler.ends(0, "apply --plan plan.json --approve", digest, "--yes")


def test_unsavable_plan_has_no_digest(reconciler: Reconciler, step: Step) -> None:
    reconciler.setenv("A_TOKEN", "nightly")
    more = "variables: {token: {env: A_TOKEN, sensitive: true}}\n"
    write(manifest("nightly", more=more).replace("{lr: 0.1}", "{lr: '${var.token}'}"))
    result = reconciler("plan -o github")
    assert (result.code, step.outputs["digest"]) == (0, "")


def test_apply_ends_with_the_outputs_of_its_result(reconciler: Reconciler, step: Step) -> None:
    write(manifest("a"))
    reconciler("plan -o github")
    digest = step.outputs["digest"]
    result = reconciler("apply --yes -o github")
    assert step.outputs["digest"] == digest
    assert result.out.splitlines()[-1] == "::notice title=reconciler test@there::Applied: 1 succeeded."
    assert step.outputs["summary"] == "Applied: 1 succeeded."
    assert step.outputs["create"] == "1"
    summary = step.summary.read_text(encoding="utf-8")
    assert summary.index("1 to create") < summary.index("Applied: 1 succeeded.")
    reconciler.ends(0, "plan -o github")
    assert step.outputs["has_changes"] == "false"
    assert step.summary.read_text(encoding="utf-8").startswith(summary), "what others wrote stays"


def test_annotation_names_the_file_relative_to_the_repository(reconciler: Reconciler, step: Step) -> None:
    write(manifest("a"), "stacks/one/jobs.yaml")
    reconciler.patch.chdir("stacks/one")
    reconciler.ends(0, "apply --yes")
    write(manifest("a", lr="0.5"))
    result = reconciler("plan -o github")
    assert "::warning file=stacks/one/jobs.yaml,line=6,col=3,title=replace a::" in result.out


def test_github_format_outside_a_workflow_has_only_commands(reconciler: Reconciler, tmp_path: Path) -> None:
    for name in ("GITHUB_WORKSPACE", "GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT"):
        reconciler.patch.delenv(name, raising=False)
    write(manifest("a"))
    assert reconciler("plan -o github").out.startswith("::notice ")
    assert {path.name for path in tmp_path.iterdir()} == {"jobs.yaml", ".reconciler"}
