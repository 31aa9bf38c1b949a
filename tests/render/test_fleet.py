"""The report of a fleet in the formats that combine its stacks."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import xmlschema

from reconciler.decide.fleet import FleetReport, StackResult
from reconciler.decide.plan import last_line
from reconciler.errors import Diagnostic, ExitCode, Location
from reconciler.render import Content, View, formats_of, render, render_part, step_outputs
from reconciler.render.markdown import MOST_CHARACTERS
from tests.render.test_golden import every_action

SCHEMAS = Path(__file__).parent / "schemas"
PARTS = formats_of(Content.FLEET)


@cache
def parts() -> dict[str, str]:
    return {name: render_part(Content.PLAN, every_action(), name, View()) for name in PARTS}


def planned(root: str, **changed: Any) -> StackResult:
    plan = every_action()
    counts = {action.value: number for action, number in plan.summary.items()}
    result = StackResult(root, "vision", ExitCode.UNKNOWN, target="prod", summary=counts)
    result = replace(result, last_line=plan.last_line, has_changes=True, parts=parts())
    return replace(result, **changed)


ODD = Diagnostic("unknown field", "oops", "remove it", Location("b/failed/jobs.yaml", 3, 5))
FAILED = StackResult("b/failed", None, ExitCode.INVALID, errors=(ODD, Diagnostic("no endpoint")))
QUIET = planned("c/quiet", exit_code=ExitCode.DONE, has_changes=False, last_line="Plan: nothing.", stack="c")
REPORT = FleetReport.of("plan", [QUIET, FAILED, planned("a/changed")], "0.0.0")


def a_fleet() -> FleetReport:
    """A stack with changes, a failed one, and an unchanged one."""
    return REPORT


def shown(format_: str, report: FleetReport = REPORT) -> str:
    return render(Content.FLEET, report, format_, View())


def test_fleet_total_has_the_wording_of_a_plan_summary() -> None:
    words = last_line({action: 2 * number for action, number in every_action().summary.items()})
    assert REPORT.last_line == f"Fleet: 3 stacks, 1 with changes, 1 failed; {words.removeprefix('Plan: ')}"


def test_junit_and_sarif_are_valid_by_the_published_schemas() -> None:
    xmlschema.XMLSchema(SCHEMAS / "junit-10.xsd").validate(shown("junit"))
    schema = json.loads((SCHEMAS / "sarif-2.1.0-rtm.5.json").read_text())
    jsonschema.Draft4Validator(schema).validate(json.loads(shown("sarif")))


def test_errors_stand_before_warnings_in_annotations() -> None:
    names = [line.split(" ")[0] for line in shown("github").splitlines()]
    assert names == sorted(names, key=["::error", "::warning", "::notice"].index)
    place = "file=b/failed/jobs.yaml,line=3,col=5"
    assert f"::error {place},title=stack b/failed::unknown field: oops" in shown("github")
    assert names.count("::notice") == 1


def test_outputs_of_a_step_are_the_totals() -> None:
    lines = step_outputs(Content.FLEET, REPORT, View()).splitlines()
    assert lines[:4] == ["has_changes=true", f"summary={REPORT.last_line}", "stacks=3", "failed=1"]


@pytest.mark.parametrize("stacks", [1, 40, 400])
def test_comment_fits_and_keeps_a_line_for_as_many_stacks_as_possible(stacks: int) -> None:
    text = shown("markdown", FleetReport.of("plan", [planned(f"team/s{n:03}") for n in range(stacks)]))
    assert len(text) <= MOST_CHARACTERS
    lines = [line for line in text.splitlines() if line.startswith("- `team/s")]
    sections = [line for line in text.splitlines() if line.startswith("### ")]
    left_out = [line for line in text.splitlines() if line.startswith("**Left out")]
    if stacks == 400:
        assert f"{400 - len(lines)} stacks, the details of" in left_out[0]
        assert len(lines) > 100
    else:
        missing = f"**Left out because of the size limit:** the details of {stacks - len(sections)} stacks."
        assert (len(lines), left_out) == (stacks, [missing] if stacks == 40 else [])
