"""action.yml and templates/reconciler.yml, which other repositories use; a runner's shell runs their code."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import pytest
from ruamel.yaml import YAML

from tests.ci.conftest import needs_bash
from tests.ci.expressions import filled_in
from tests.ci.repository import SECRET_KEY, SECRETS, Repository
from tests.ci.shell import RECONCILER, ROOT, Script, Shell, read_assignments
from tests.test_messages import wrong_commands

ACTION: dict[str, Any] = YAML(typ="safe").load(ROOT / "action.yml")
HEADER, COMPONENT = YAML(typ="safe").load_all(ROOT / "templates/reconciler.yml")
#: Makes an environment whose pip records its arguments, and whose program is ours.
_VENV = """\
#!/bin/sh
mkdir -p "$3/bin"
printf '#!/bin/sh\\necho "$@" > %s/installed\\n' "$3" > "$3/bin/pip"
printf '#!/bin/sh\\nexec reconciler "$@"\\n' > "$3/bin/reconciler"
chmod +x "$3/bin/pip" "$3/bin/reconciler"
"""


class Used(NamedTuple):
    """The result of a step that used the action."""

    ended: Script
    outputs: dict[str, str]
    summary: str
    installed: str


def use(directory: Path, workspace: Path, **given: str) -> Used:
    """Run the scripts of the action, with these inputs and the defaults of the others."""
    number = len(list(directory.iterdir()))
    shell = Shell(directory / f"shell-{number}", {"make-venv": _VENV})
    inputs = {name: one["default"] for name, one in ACTION["inputs"].items()}
    assert given.keys() <= inputs.keys()
    context = {"inputs": inputs | given, "steps": {"python": {"outputs": {"python-path": "make-venv"}}}}
    output, summary = directory / f"output-{number}", directory / f"summary-{number}"
    runner = {
        "GITHUB_OUTPUT": str(output),
        "GITHUB_STEP_SUMMARY": str(summary),
        "RUNNER_TEMP": str(directory),
    }
    runner |= {"GITHUB_ACTIONS": "true", "GITHUB_ACTION_PATH": "/action", "GITHUB_WORKSPACE": str(workspace)}
    for step in ACTION["runs"]["steps"][1:]:
        environ = {name: filled_in(value, context) for name, value in step["env"].items()}
        ended = shell.run(step["run"], workspace, {**runner, **SECRETS, **environ})
        assert SECRET_KEY not in ended.log
    found = {**context, "steps": {"run": {"outputs": read_assignments(output)}}}
    outputs = {name: filled_in(one["value"], found) for name, one in ACTION["outputs"].items()}
    installed = (directory / "reconciler/installed").read_text(encoding="utf-8").strip()
    return Used(ended, outputs, summary.read_text(encoding="utf-8") if summary.exists() else "", installed)


def test_scripts_hold_no_expression_and_name_existing_commands() -> None:
    """An expression is inserted into a script, so an input could inject a command."""
    assert [step.get("run", "") for step in ACTION["runs"]["steps"] if "${{" in step.get("run", "")] == []
    assert "$[[" not in str(next(iter(COMPONENT.values()))["script"])
    assert re.fullmatch(r"actions/setup-python@[0-9a-f]{40}", ACTION["runs"]["steps"][0]["uses"])
    for command in HEADER["spec"]["inputs"]["command"]["options"]:
        assert wrong_commands(f"reconciler {command}") == []


def test_page_lists_the_inputs_and_outputs() -> None:
    page = (ROOT / "examples/ci/README.md").read_text(encoding="utf-8")
    for start, inputs in (("| GitHub Actions", ACTION["inputs"]), ("| GitLab: ", HEADER["spec"]["inputs"])):
        row = next(line for line in page.splitlines() if line.startswith(start))
        _, _, reports, listed, _ = row.split("|")
        assert set(re.findall(r"`([\w-]+)`", listed)) == set(inputs)
        assert "GitLab" in start or set(re.findall(r"`([\w-]+)`", reports)) == set(ACTION["outputs"])


@needs_bash
def test_action_plans_applies_that_plan_and_fails_on_drift(tmp_path: Path, repository: Repository) -> None:
    repository.commit(a=0.1, b=0.1)
    planned = use(tmp_path, repository.path, target="prod", arguments="--show-keep\n-v")
    assert planned.ended.code == 0, planned.ended.log
    assert planned.outputs["exit-code"] == "0"
    assert planned.outputs["has-changes"] == "true"
    assert planned.outputs["summary"].startswith("Plan: 2 to create")
    assert planned.summary.startswith("<!-- reconciler: vision@prod -->\n**Plan: 2 to create")
    digest, file = planned.outputs["digest"], planned.outputs["plan-file"]
    refused = use(
        tmp_path, repository.path, command="apply", arguments=f"--plan {file} --approve sha256:{'0' * 64}"
    )
    assert (refused.ended.code, refused.outputs["exit-code"]) == (4, "4")
    applied = use(tmp_path, repository.path, command="apply", arguments=f"--plan {file} --approve {digest}")
    assert applied.ended.code == 0, applied.ended.log
    assert repository.running == {"a": "0.1", "b": "0.1"}
    assert "Applied: 2 succeeded." in applied.summary
    assert applied.outputs["plan-file"] == ""
    for job in repository.store.jobs():
        repository.store.set_phase(job.id, "Failed")
    drift = use(tmp_path, repository.path, command="drift", target="prod", path="jobs.yaml")
    assert (drift.ended.code, drift.outputs["exit-code"]) == (2, "2")
    assert "::warning" in drift.ended.log


@needs_bash
@pytest.mark.parametrize(
    ("given", "installed"),
    [
        ({}, f"/action[{ACTION['inputs']['extras']['default']}]"),
        ({"extras": ""}, "/action"),
        ({"extras": "code"}, "/action[code]"),
    ],
)
def test_action_installs_the_program_of_its_own_tag(
    tmp_path: Path, given: dict[str, str], installed: str
) -> None:
    used = use(tmp_path, tmp_path, command="destroy", **given)
    assert used.installed == f"install --quiet {installed}"
    assert used.ended.code == 64
    assert "::error title=reconciler::the command is plan, apply or drift, not destroy" in used.ended.log


def component(**given: str) -> dict[str, Any]:
    """The job of the component, with these inputs and the defaults of the others."""
    inputs = {name: one.get("default") for name, one in HEADER["spec"]["inputs"].items()}
    assert given.keys() <= inputs.keys()
    text = re.sub(
        r"\$\[\[ inputs\.(\w+) \]\]", lambda found: str((inputs | given)[found[1]]), json.dumps(COMPONENT)
    )
    return dict(json.loads(text))


@needs_bash
def test_component_is_one_valid_job_that_plans(tmp_path: Path, repository: Repository) -> None:
    schema = json.loads((Path(__file__).parent / "schemas/gitlab-ci.json").read_text(encoding="utf-8"))
    pipeline = component(package=RECONCILER, target="prod", job="plan the jobs")
    jsonschema.Draft7Validator(schema).validate(pipeline)
    [(name, job)] = pipeline.items()
    assert name == "plan the jobs"
    repository.commit(c=0.1)
    variables = {key: one["value"] if isinstance(one, dict) else one for key, one in job["variables"].items()}
    ended = Shell(tmp_path / "shell").run("\n".join(job["script"]), repository.path, {**SECRETS, **variables})
    assert ended.code == 0, ended.log
    assert "+ create" in ended.log
    assert SECRET_KEY not in ended.log
    kept = [*job["artifacts"]["paths"], job["artifacts"]["reports"]["junit"]]
    assert [file for file in kept if not (repository.path / file).exists()] == []
