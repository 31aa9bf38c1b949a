"""Documented tables are compared with those of the program."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import click
import pytest
from jsonschema import Draft202012Validator

from reconciler.cli.main import cli, run
from reconciler.core.canonical import walk_rules
from reconciler.core.identity import MAX_DESCRIPTION, MAX_NAME
from reconciler.core.phase import Phase
from reconciler.core.settings import APPLY_FAILED, NOTIFY_CLASSES, PolicyEntry
from reconciler.core.stack import Limits, Target
from reconciler.core.values import MODELARTS, PROCESS, TARGET_KINDS
from reconciler.decide.drift_check import REMEDIES, DriftClass
from reconciler.decide.outcome import EventType
from reconciler.decide.plan import Action, Guard, Plan, Reason, last_line
from reconciler.decide.policies import CaseFile
from reconciler.decide.review import Review
from reconciler.decide.rules import RULES
from reconciler.errors import PRECEDENCE, ExitCode
from reconciler.extras import EXTRAS
from reconciler.modelarts.auth import find_credentials
from reconciler.modelarts.connect import endpoint_of
from reconciler.modelarts.errors import CODES, RENEW_ON
from reconciler.modelarts.http import MAX_SKEW_S
from reconciler.modelarts.observe import PAGE_SIZE
from reconciler.modelarts.workspace import BATCH
from reconciler.render.prometheus import MetricSource
from reconciler.secrets import ACCESS_KEYS, PASSWORD, TOKENS
from reconciler.text import parse_duration
from reconciler.watch import CheckReport, WatchState, watch_figures
from tests.pages import ROOT, fenced, names, section, table
from tests.test_messages import BY_WORDS

_CODE = re.compile(r"`([^`]+)`")


@pytest.mark.parametrize(
    ("page", "heading", "first", "known"),
    [
        ("concepts/guards", "Guards", "guard", set(Guard)),
        ("concepts/drift", "Drift", "class", list(DriftClass)),
        ("reference/exit-codes", "Exit codes", "code", [str(code.value) for code in sorted(ExitCode)]),
        ("reference/schemas", "Events", "type", list(EventType)),
        ("start/install", "Extras", "extra", [*sorted(one.name for one in EXTRAS.values()), "all"]),
        ("reference/policies", "Policies", "key", set(PolicyEntry.model_fields)),
        ("reference/policies", "Testing policies", "key", set(CaseFile.model_fields)),
        ("reference/process-target", "Keys", "key", list(TARGET_KINDS[PROCESS].settings)),
    ],
)
def test_first_column_of_a_documented_table_is_complete(
    page: str, heading: str, first: str, known: list[str] | set[str]
) -> None:
    """A list is in page order."""
    rows = table(f"docs/{page}.md", heading, first)
    shown = names(rows) or [row[0] for row in rows]
    assert type(known)(shown) == known
    assert len(shown) == len(known)


# ── docs/start/real-account.md ───────────────────────────────────────────────────────────────────────────


def test_documented_targets_are_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    targets = fenced("docs/start/real-account.md", "Name the target", "yaml")
    monkeypatch.setenv("HUAWEICLOUD_SDK_PROJECT_ID", "p1")
    monkeypatch.setenv("OS_PROJECT_ID", "p2")
    (tmp_path / "jobs.yaml").write_text(f"stack: shown\n{targets}", encoding="utf-8")
    assert run(cli, ["validate", str(tmp_path)]) == ExitCode.DONE


# ── docs/concepts/decisions.md ────────────────────────────────────────────────────────────────────────


def test_documented_decision_rules_are_complete_and_in_order() -> None:
    shown = [
        (name.strip("`"), when, re.findall(r"\*\*(\w+)\*\*", actions))
        for name, when, actions in table("docs/concepts/decisions.md", "Decisions", "rule")
    ]
    assert shown == [(rule.name, rule.when, list(rule.actions)) for rule in RULES]
    assert {action for rule in RULES for action in rule.actions} == set(Action)


def test_limits_have_the_documented_defaults() -> None:
    text = section("docs/concepts/guards.md", "Guards")
    shown = {name: _default(value) for name, value in re.findall(r"`(\w+)` \(([^)]+)\)", text)}
    assert shown == {name: field.default for name, field in Limits.model_fields.items()}


def _default(text: str) -> Any:
    if text == "unset":
        return None
    return int(text) if text.isdigit() else parse_duration(text)


def test_phases_are_active_or_terminal_as_documented() -> None:
    rows = {row[0]: row[1] for row in table("docs/concepts/ownership.md", "Terms", "term")}
    for phase in Phase:
        assert (phase.value in rows["active"]) is phase.is_active
        assert (phase.value in rows["terminal"]) is phase.is_terminal


def test_documented_remedies_equal_those_of_the_program() -> None:
    rows = table("docs/concepts/drift.md", "Remedies", "class")
    assert {row[0]: row[1] for row in rows} == {one.value: text for one, text in REMEDIES.items()}
    assert set(REMEDIES) == set(DriftClass)


def test_every_drift_class_but_unknown_can_be_notified() -> None:
    assert set(NOTIFY_CLASSES) == {*DriftClass, APPLY_FAILED} - {DriftClass.UNKNOWN}


# ── docs/operations/metrics.md ──────────────────────────────────────────────────────────────────────────


def test_documented_metrics_equal_those_of_a_watch() -> None:
    result = CheckReport(exit_code=0, has_compared=True, summary={"failed": 1}, plan={"create": 1})
    state = WatchState().after(result, 0.0)
    exported = watch_figures(state, MetricSource("s", "t"))
    shown = [row[0].strip("`") for row in table("docs/operations/metrics.md", "Values", "metric")]
    assert sorted(shown) == sorted(f"{one.name}{{{','.join(one.samples[0][0])}}}" for one in exported)


# ── docs/reference/cli.md ────────────────────────────────────────────────────────────────────────────────


def test_documented_exit_code_precedence_is_that_of_the_program() -> None:
    found = re.search(
        r"first of these wins: ([\d, ]+)\.", section("docs/reference/exit-codes.md", "Exit codes")
    )
    assert found is not None
    assert tuple(map(int, found[1].split(", "))) == PRECEDENCE


def test_repeatable_option_variables_are_separated_as_documented() -> None:
    separated = {
        "newline": ["a b", "c,d:e"],
        "that of `PATH`: a colon, on Windows a semicolon": ["a b\nc,d", "e"],
        "comma or space": ["a", "b", "c", "d:e"],
        "space": ["a", "b", "c,d:e"],
    }
    rows = table("docs/reference/cli.md", "Environment variables", "variable")
    shown = {name: separated[row[1]] for row in rows for name in _CODE.findall(row[0])}
    split = {
        str(param.envvar): [*param.type.split_envvar_value("a b\nc,d:e")]
        for command in BY_WORDS.values()
        for param in command.params
        if isinstance(param, click.Option) and param.multiple and param.name != "target"
    }
    others = separated[next(row[1] for row in rows if row[0] == "any other")]
    assert {name: shown.get(name, others) for name in split} == split
    assert shown.keys() <= split.keys()


def test_credentials_are_searched_in_documented_order(tmp_path: Path) -> None:
    rows = [
        _CODE.findall(row[1].partition(" (")[0])
        for row in table("docs/reference/cli.md", "Credentials", "credentials")
    ]
    *by_variables, [path, file_variable, *_] = rows
    file = tmp_path / "credentials"
    file.write_text("[basic]\nak = AK\nsk = SK\n", encoding="utf-8")
    environ = {name: "https://iam.example.com/v3" for row in by_variables for name in row}
    environ |= {file_variable: str(file), "OS_PROJECT_ID": "p1"}
    for row in by_variables:
        assert _source_of(environ) in row
        for name in row:
            del environ[name]
    assert _source_of(environ).startswith(str(file))
    file.unlink()
    at_home = tmp_path / path.removeprefix("~/")
    at_home.parent.mkdir()
    at_home.write_text("[basic]\nak = AK\nsk = SK\n", encoding="utf-8")
    assert _source_of({"HOME": str(tmp_path)}).startswith(str(at_home))


def test_every_credential_variable_is_documented() -> None:
    described = set(_CODE.findall(section("docs/reference/cli.md", "Credentials")))
    of_keys = {name for names_ in ACCESS_KEYS for name in names_ if name}
    assert of_keys | set(TOKENS) | {PASSWORD} <= described


def _source_of(environ: Mapping[str, str]) -> str:
    return find_credentials(environ, lambda url: Mock()).source


def test_last_line_of_a_plan_has_the_documented_form() -> None:
    ones = (Action.CREATE, Action.REPLACE, Action.DEFER, Action.BLOCKED, Action.CONFLICT, Action.UNKNOWN)
    summary = dict.fromkeys(Action, 0) | dict.fromkeys(ones, 1) | {Action.KEEP: 12}
    line = last_line(summary, ended_badly=2, reruns=60)
    assert fenced("docs/reference/cli.md", "Text output", "text") == line + "\n"


def test_documented_plan_has_every_field() -> None:
    shown = json.loads(fenced("docs/reference/schemas.md", "Plan", "json"))
    schema = Plan.published_schema()
    Draft202012Validator(schema).validate(shown)
    assert shown.keys() == schema["properties"].keys()
    fields = {name for action in shown["actions"] for name in action}
    assert fields == schema["$defs"]["PlannedAction"]["properties"].keys()
    assert shown["actions"][0]["reason"] == Reason.IMMUTABLE_CHANGED


def test_review_and_its_last_line_have_the_documented_form() -> None:
    counted = {Action.CREATE: 62, Action.UPDATE: 2, Action.REPLACE: 14, Action.TERMINATE: 3}
    actions = dict.fromkeys(Action, 0) | counted | {Action.BLOCKED: 1, Action.CONFLICT: 1}
    summary = {"added": 62, "removed": 3, "renamed": 1, "changed": 18, "unchanged": 5}
    document = json.loads(fenced("docs/reference/schemas.md", "Review", "json"))
    shown = Review.model_validate(document)
    assert shown.document() == document
    line = shown.model_copy(update={"summary": summary, "actions": actions}).last_line
    assert fenced("docs/reference/cli.md", "Review", "text") == line + "\n"


# ── docs/reference/modelarts.md ──────────────────────────────────────────────────────────────────────────


def test_documented_region_endpoints_equal_those_of_the_program() -> None:
    *rows, (_, pattern) = table("docs/reference/modelarts.md", "Endpoints", "region")
    shown = {region.strip("`"): endpoint.strip("`") for region, endpoint in rows}
    shown["cn-north-4"] = pattern.strip("`").replace("REGION", "cn-north-4")
    for region, endpoint in shown.items():
        assert endpoint_of(Target(kind=MODELARTS, region=region)) == endpoint


def test_documented_service_limits_equal_those_of_the_program() -> None:
    numbers = [float(row[1]) for row in table("docs/reference/modelarts.md", "Limits", "object")]
    assert numbers == [PAGE_SIZE, MAX_NAME, MAX_DESCRIPTION, BATCH, MAX_SKEW_S]


def test_documented_error_codes_are_complete_and_grouped_by_meaning() -> None:
    rows = [_CODE.findall(row[0]) for row in table("docs/reference/modelarts.md", "Errors", "codes")]
    assert sorted(code for row in rows for code in row) == sorted(CODES)
    for row in rows:
        assert len({CODES[code].failure for code in row}) == 1, row


def test_documented_token_renewal_codes_equal_those_of_the_program() -> None:
    sentence = section("docs/reference/modelarts.md", "Errors").partition("renewed once after")[2]
    assert set(_CODE.findall(sentence)) == RENEW_ON


def test_documented_unreturned_fields_equal_those_of_the_model() -> None:
    unreported = {".".join(path) for path, rule in walk_rules() if not rule.is_reported}
    bullet = (
        section("docs/reference/modelarts.md", "Responses")
        .split("not returned reliably: ")[1]
        .split(". (")[0]
    )
    assert set(_CODE.findall(bullet)) == unreported


# ── docs/reference/glossary.md ───────────────────────────────────────────────────────────────────────────


def test_terms_of_the_glossary_are_sorted_and_used_by_another_page() -> None:
    terms = [row[0] for row in table("docs/reference/glossary.md", "Glossary", "term")]
    assert terms == sorted(set(terms), key=str.casefold)
    pages = [*(ROOT / "docs").rglob("*.md")]
    texts = " ".join(page.read_text(encoding="utf-8") for page in pages if page.stem != "glossary")
    unused = [one for one in terms if not re.search(rf"\b{re.escape(one)}", texts, re.IGNORECASE)]
    assert unused == []
