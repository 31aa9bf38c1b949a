"""JUnit XML and SARIF are valid by the published schemas, and have what, why and where."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import jsonschema
import pytest
import xmlschema

from reconciler.core.values import Source
from reconciler.decide.plan import Action
from reconciler.render import Content, View, render
from tests.render.test_golden import drifted, every_action, interrupted_result
from tests.render.test_golden_files import denied, problems, reviewed
from tests.render.test_markdown import a_plan, an_action

SCHEMAS = Path(__file__).parent / "schemas"


@pytest.fixture(scope="module")
def junit_schema() -> xmlschema.XMLSchema:
    return xmlschema.XMLSchema(SCHEMAS / "junit-10.xsd")


@pytest.fixture(scope="module")
def sarif_schema() -> jsonschema.Draft4Validator:
    return jsonschema.Draft4Validator(json.loads((SCHEMAS / "sarif-2.1.0-rtm.5.json").read_text()))


#: Contents of whole-report formats.
CONTENTS: dict[str, tuple[Content, Callable[[], Any]]] = {
    "plan": (Content.PLAN, every_action),
    "drift": (Content.DRIFT, drifted),
    "result": (Content.RESULT, interrupted_result),
    "review": (Content.REVIEW, reviewed),
    "validation": (Content.VALIDATION, denied),
    "validation-invalid": (Content.VALIDATION, problems),
}


def rendered(name: str, format_: str) -> str:
    content, make = CONTENTS[name]
    return render(content, make(), format_, View(plan=every_action()))


def suite_of(text: str) -> Xml.Element:
    suite = Xml.fromstring(text.encode()).find("testsuite")
    assert suite is not None
    return suite


def failures_of(text: str) -> dict[str, Xml.Element]:
    cases = suite_of(text).iter("testcase")
    return {case.attrib["name"]: failure for case in cases for failure in case.iter("failure")}


@pytest.mark.parametrize("content", CONTENTS)
def test_junit_is_valid_by_the_strict_ant_schema(content: str, junit_schema: xmlschema.XMLSchema) -> None:
    """windyroad/JUnit-Schema: one failure in a testcase, these attributes, these elements in order."""
    text = rendered(content, "junit")
    junit_schema.validate(text)
    suite = suite_of(text)
    names = [child.tag for child in suite]
    assert names == ["properties", *["testcase"] * (len(names) - 3), "system-out", "system-err"]
    assert suite.attrib.keys() == {
        *("id", "package", "name", "timestamp", "hostname", "tests", "failures", "errors", "time")
    }
    for case in suite.iter("testcase"):
        assert case.attrib.keys() == {"name", "classname", "time"}
        assert len(case) <= 1
        assert all(failure.attrib.keys() == {"type", "message"} for failure in case)
    assert int(suite.attrib["tests"]) == len(names) - 3
    assert int(suite.attrib["failures"]) == len(suite.findall("testcase/failure"))


def test_junit_has_one_testcase_for_several_actions_of_a_key() -> None:
    twice = [an_action(Action.BLOCKED, 1), an_action(Action.BLOCKED, 1, detail="for another reason")]
    suite = suite_of(render(Content.PLAN, a_plan(twice), "junit", View()))
    (failure,) = suite.findall("testcase/failure")
    assert failure.attrib["message"] == "the words that say why 1; for another reason"


def results_of(text: str) -> list[dict[str, Any]]:
    (run,) = json.loads(text)["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert all(rules[result["ruleIndex"]] == result["ruleId"] for result in run["results"])
    return list(run["results"])


@pytest.mark.parametrize("content", CONTENTS)
def test_sarif_is_valid(content: str, sarif_schema: jsonschema.Draft4Validator) -> None:
    sarif_schema.validate(json.loads(rendered(content, "sarif")))


@pytest.mark.parametrize(
    ("file", "uri"),
    [
        ("stacks/a b.yaml", "stacks/a%20b.yaml"),
        ("a:b.yaml", "a%3Ab.yaml"),
        ("100%.yaml", "100%25.yaml"),
        ("/srv/jobs.yaml", "file:///srv/jobs.yaml"),
        ("训练.yaml", "%E8%AE%AD%E7%BB%83.yaml"),
    ],
)
def test_sarif_names_a_file_as_a_uri(file: str, uri: str) -> None:
    source = Source(file=file, line=1, column=1)
    plan = a_plan([an_action(Action.BLOCKED, 1).model_copy(update={"source": source})])
    (result,) = results_of(render(Content.PLAN, plan, "sarif", View()))
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == uri


def test_sarif_message_makes_no_link() -> None:
    plan = a_plan([an_action(Action.BLOCKED, 1, detail="[click](https://example.com)")])
    (result,) = results_of(render(Content.PLAN, plan, "sarif", View()))
    assert "](" not in result["message"]["text"]


def test_junit_of_a_review_fails_denied_and_blocked_jobs() -> None:
    failures = failures_of(rendered("review", "junit"))
    assert {key: failure.attrib["type"] for key, failure in failures.items()} == {
        "blocked": "blocked: protected",
        "conflict": "conflict: change_refused",
        "create": "denied: no-new-jobs",
    }


def test_junit_of_a_check_has_a_testcase_per_file_and_fails_those_with_problems() -> None:
    text = rendered("validation-invalid", "junit")
    cases = [case.attrib["name"] for case in suite_of(text).iter("testcase")]
    assert cases == ["jobs.yaml", "sweeps.yaml", "manifest"]
    assert failures_of(text).keys() == {"jobs.yaml", "sweeps.yaml", "manifest"}
    assert "jobs.yaml:14:9" in (failures_of(text)["jobs.yaml"].text or "")


def test_sarif_of_a_check_has_a_result_per_problem_warning_and_denied_job() -> None:
    found = {
        name: [(one["ruleId"], one["level"]) for one in results_of(rendered(name, "sarif"))]
        for name in ("validation-invalid", "validation")
    }
    wrong = [("no_such_directory", "error"), ("unknown_field", "error"), ("syntax_error", "error")]
    denied = [("one-node", "error"), ("one-node", "error"), ("target_skipped", "warning")]
    assert found == {"validation-invalid": wrong, "validation": denied}
