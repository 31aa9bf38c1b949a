"""Policies as a user meets them: in plan, apply, saved plans, validate, review and `policies test`."""

from __future__ import annotations

import shutil
from pathlib import Path
from xml.etree import ElementTree as Xml

import jsonschema
import pytest

from reconciler.cli.project import schema
from reconciler.errors import ExitCode
from tests.cli.conftest import Reconciler, World, manifest, write

EXAMPLE = Path(__file__).parents[2] / "examples/policies"
TWO_NODES = "{flavor_id: modelarts.vm.cpu.2u, node_count: 2}"
ONE_NODE = "{flavor_id: modelarts.vm.cpu.2u}"
DENY = "policies: [{name: one-node, deny: job.spec.resource.node_count > 1, message: one is enough}]\n"


def stack(*keys: str, two_nodes: str = "", more: str = DENY, url: str | None = None, lr: str = "0.1") -> str:
    """A manifest with these jobs; one of them may take two nodes."""
    text = manifest(*keys, more=more, url=url, lr=lr)
    head, found, tail = text.partition(f"  {two_nodes}:\n" if two_nodes else text)
    return head + found + tail.replace(ONE_NODE, TWO_NODES, 1)


def started(world: World) -> list[str]:
    return [job.name for job in world.store.jobs()]


# ── plan and apply ─────────────────────────────────────────────────────────────────────────────────


def test_denied_key_is_shown_with_policy_message_and_place(reconciler: Reconciler) -> None:
    write(stack("a", "b", two_nodes="b"))
    said = reconciler.ends(ExitCode.REFUSED, "plan --detailed-exitcode")
    assert "  ! blocked   b       denied by one-node: one is enough; blocks create\n" in said.out
    assert said.out.endswith(
        "Plan: 1 to create, 0 to update, 0 to replace, 0 to terminate, 0 to keep. 1 blocked.\n"
    )
    assert "error: denied by a policy\n  --> jobs.yaml:5:29  policies.one-node\n" in said.err
    assert "one-node denies b: one is enough" in said.err


def test_document_of_a_plan_names_what_is_denied_and_what_it_would_have_been(reconciler: Reconciler) -> None:
    write(stack("a", "b", two_nodes="b"))
    said = reconciler("plan --json")
    jsonschema.validate(said.document, schema("plan"))
    assert said.document["applyable"] is True
    a, b = said.document["actions"]
    assert (a["action"], "blocked_action" in a) == ("create", False)
    assert (b["action"], b["reason"], b["blocked_action"]) == ("blocked", "denied", "create")
    assert (b["blocked_by"], b["detail"]) == (
        ["one-node"],
        "denied by one-node: one is enough; blocks create",
    )
    [denial] = said.document["denied"]
    assert (denial["key"], denial["policy"], denial["message"]) == ("b", "one-node", "one is enough")
    assert denial["source"] == {"file": "jobs.yaml", "line": 5, "column": 29}


@pytest.mark.parametrize("options", [(), ("--force",), ("--allow", "budget"), ("--allow", "lost-work")])
def test_apply_starts_all_but_the_denied_key_whatever_is_allowed(
    world: World, options: tuple[str, ...]
) -> None:
    write(stack("a", "b", two_nodes="b", url=world.url))
    said = world.ends(ExitCode.REFUSED, "apply --yes", *options)
    assert started(world) == ["a"]
    assert "denied by one-node: one is enough" in said.err


def test_destroy_is_not_asked_about(world: World) -> None:
    write(stack("a", more="", url=world.url))
    world("apply --yes")
    write(stack("a", more="policies: [{name: never, deny: 'true'}]\n", url=world.url))
    world.ends(ExitCode.DONE, "destroy --yes")


def test_policies_are_asked_again_under_the_lock(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was planned before counts for nothing: the plan that apply makes is the one that is judged."""
    more = 'policies: [{name: no-replace, deny: action.kind == "replace"}]\n'
    write(stack("a", more=more, url=world.url))
    world.ends(ExitCode.DONE, "plan")
    world.ends(ExitCode.DONE, "apply --yes")
    write(stack("a", more=more, url=world.url, lr="0.2"))
    world.ends(ExitCode.REFUSED, "apply --yes")
    assert started(world) == ["a"]


# ── formats ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("command", [("plan", "head"), ("review", "base", "head")])
def test_github_annotates_each_denied_job_at_its_place(
    reconciler: Reconciler, command: tuple[str, ...]
) -> None:
    write(stack("a"), "base/jobs.yaml")
    write(stack("a", "b", two_nodes="b"), "head/jobs.yaml")
    said = reconciler.ends(ExitCode.REFUSED, *command, "-o", "github")
    errors = [line for line in said.out.splitlines() if line.startswith("::error ")]
    assert errors == [
        "::error file=head/jobs.yaml,line=16,col=3,title=denied b::policy one-node: one is enough"
    ]


def test_sarif_has_a_result_with_the_name_of_the_policy(reconciler: Reconciler) -> None:
    write(stack("a", "b", two_nodes="b"))
    [run] = reconciler("plan -o sarif").document["runs"]
    [result] = run["results"]
    assert (result["ruleId"], result["level"]) == ("one-node", "error")
    region = result["locations"][0]["physicalLocation"]
    assert (region["artifactLocation"]["uri"], region["region"]["startLine"]) == ("jobs.yaml", 16)


def test_junit_of_a_plan_fails_the_denied_job(reconciler: Reconciler) -> None:
    write(stack("a", "b", two_nodes="b"))
    suite = Xml.fromstring(reconciler("plan -o junit").out)[0]
    assert suite.get("failures") == "1"
    [failure] = suite.iter("failure")
    assert failure.get("type") == "denied: one-node"


# ── saved plans ────────────────────────────────────────────────────────────────────────────────────


def test_saved_plan_holds_what_was_denied(world: World) -> None:
    write(stack("a", two_nodes="a", url=world.url))
    world.ends(ExitCode.REFUSED, "plan --out saved.plan")
    Path("jobs.yaml").unlink()
    shown = world("show saved.plan")
    assert "denied by one-node: one is enough" in shown.out
    world.ends(ExitCode.REFUSED, "apply --plan saved.plan --yes")
    assert started(world) == []


def test_saved_plan_is_judged_by_the_policies_of_its_time(world: World) -> None:
    write(stack("a", two_nodes="a", more="", url=world.url))
    world.ends(ExitCode.DONE, "plan --out saved.plan")
    write(stack("a", two_nodes="a", url=world.url))
    world.ends(ExitCode.DONE, "apply --plan saved.plan --yes")
    assert started(world) == ["a"]


# ── validate and review ────────────────────────────────────────────────────────────────────────────


def test_validate_asks_about_every_job_as_a_create(reconciler: Reconciler) -> None:
    write(stack("a", "b", two_nodes="b"))
    said = reconciler.ends(ExitCode.REFUSED, "validate")
    assert said.out == "Valid: stack test, 2 jobs in view, 1 file. 1 job is denied by a policy.\n"
    assert "one-node denies b: one is enough" in said.err
    document = reconciler("validate --json").document
    assert (document["valid"], [one["key"] for one in document["denied"]]) == (True, ["b"])


TARGETS = """\
targets:
  dev: {kind: local}
  prod: {kind: local, defaults: {spec: {resource: {node_count: 2}}}}
"""


def test_validate_asks_on_every_target_and_names_those_that_are_meant(reconciler: Reconciler) -> None:
    text = stack("a").replace("targets:\n  there: {kind: local}\n", TARGETS)
    write(text)
    reconciler.ends(ExitCode.REFUSED, "validate", err="one-node denies a: one is enough (target prod)")
    reconciler.ends(ExitCode.DONE, "validate -t dev")
    reconciler.ends(ExitCode.REFUSED, "validate -t prod")


def test_validate_knows_the_target_without_credentials(reconciler: Reconciler) -> None:
    more = "policies: [{name: p, deny: target.project_id == 'p1', message: not there}]\n"
    write(stack("a", more=more, url="https://modelarts.example.com"))
    reconciler.ends(ExitCode.REFUSED, "validate")


def test_validate_says_what_only_a_plan_can_ask(reconciler: Reconciler) -> None:
    more = "policies: [{name: p, deny: target.project_id == 'p1'}]\n"
    text = stack("a", more=more, url="https://modelarts.example.com").replace(", project_id: p1", "")
    write(text)
    reconciler.ends(ExitCode.DONE, "validate", err="only a plan can ask it: it needs project_id")


def test_warning_of_validate_names_the_job(reconciler: Reconciler) -> None:
    write(stack("a", more="policies: [{name: hint, warn: 'true', message: think twice}]\n"))
    reconciler.ends(ExitCode.DONE, "validate", err="warning: policy hint\n  --> jobs.a\n  why: think twice")


def test_review_asks_about_what_changes_and_refuses(reconciler: Reconciler) -> None:
    write(stack("a", "old", two_nodes="old"), "base/jobs.yaml")
    write(stack("a", "b", "old", two_nodes="old"), "head/jobs.yaml")
    reconciler.ends(ExitCode.DONE, "review base head")
    write(stack("a", "b", "old", two_nodes="b"), "head/jobs.yaml")
    said = reconciler.ends(ExitCode.REFUSED, "review base head")
    assert "denied: policy one-node: one is enough (head/jobs.yaml:5:29)\n        b\n" in said.out
    document = reconciler("review base head --json").document
    jsonschema.validate(document, schema("review"))
    assert [(one["key"], one["policy"]) for one in document["denied"]] == [("b", "one-node")]


def test_review_asks_by_the_policies_of_head_and_shows_that_they_changed(reconciler: Reconciler) -> None:
    write(stack("a"), "base/jobs.yaml")
    write(stack("a", "b", two_nodes="b", more=DENY.replace("> 1", "> 2")), "head/jobs.yaml")
    said = reconciler.ends(ExitCode.DONE, "review base head")
    assert 'policies.one-node.deny: "job.spec.resource.node_count > 1" -> ' in said.out


def test_review_does_not_guess_what_a_replace_throws_away(reconciler: Reconciler) -> None:
    more = 'policies: [{name: p, deny: action.kind == "replace" && action.lost_node_hours > 1}]\n'
    write(stack("a", more=more), "base/jobs.yaml")
    write(stack("a", more=more, lr="0.2"), "head/jobs.yaml")
    reconciler.ends(ExitCode.DONE, "review base head", out="only a plan can ask it: it needs lost_node_hours")


# ── hostile ────────────────────────────────────────────────────────────────────────────────────────

HOSTILE = r"\e[31mred\e]0;title\a ::error::x ##vso[task] <script>&\u202e"


@pytest.mark.parametrize("command", [("plan",), ("plan", "--json"), ("validate",), ("validate", "--json")])
def test_name_and_message_of_a_policy_steer_no_terminal_and_no_ci(
    reconciler: Reconciler, command: tuple[str, ...]
) -> None:
    more = f'policies: [{{name: "{HOSTILE}", deny: "true", message: "{HOSTILE}"}}]\n'
    write(stack("a", more=more))
    said = reconciler.ends(ExitCode.REFUSED, *command)
    for text in (said.out, said.err):
        assert not set("\x1b\a\u202e") & set(text)
        assert "##vso[" not in text


# ── policies test ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """The stack with the four examples, and their cases."""
    shutil.copytree(EXAMPLE, tmp_path / "policies", ignore=shutil.ignore_patterns(".reconciler"))
    return tmp_path / "policies"


def test_cases_of_the_example_pass(reconciler: Reconciler, example: Path) -> None:
    said = reconciler.ends(ExitCode.DONE, "policies test policies")
    assert "  passed policies/cases/nine-nodes.yaml\n" in said.out
    assert said.out.endswith("Policies of policies: 6 passed, 0 failed.\n")


def test_each_policy_of_the_example_has_a_case_that_it_denies(example: Path) -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in (example / "cases").iterdir())
    for name in ("flavors", "eight-nodes-at-most", "description", "no-replace-of-long-runs"):
        assert f"deny: [{name}]" in text


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("deny: [flavors]", "deny: []", "flavors denies, which is not expected"),
        ("deny: [flavors]", "deny: [flavors, description]", "description is expected to deny, and does not"),
        ("deny: [flavors]", "warn: [flavors]", "flavors is expected to warn, and does not"),
        ("deny: [flavors]", "deny: [flavours]", "expects flavours, which is not a policy of the stack"),
        ("flavor_id: modelarts.p3.large.public, ", "", 'there is no field "flavor_id"'),
    ],
)
def test_case_that_fails_says_why(
    reconciler: Reconciler, example: Path, old: str, new: str, problem: str
) -> None:
    case = example / "cases/expensive-flavor.yaml"
    case.write_text(case.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    said = reconciler.ends(ExitCode.FAILED, "policies test policies/cases")
    assert "  failed policies/cases/expensive-flavor.yaml\n" in said.out
    assert problem in said.out


def test_junit_of_cases_has_a_failure_where_one_failed(reconciler: Reconciler, example: Path) -> None:
    case = example / "cases/expensive-flavor.yaml"
    case.write_text(case.read_text(encoding="utf-8").replace("[flavors]", "[]"), encoding="utf-8")
    reconciler.ends(ExitCode.FAILED, "policies test policies -o junit=report.xml")
    suite = Xml.parse("report.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures")) == ("6", "1")
    failures = {case.get("name"): case.find("failure") for case in suite.iter("testcase")}
    failed = [name for name, failure in failures.items() if failure is not None]
    assert failed == ["policies/cases/expensive-flavor.yaml"]


def test_document_of_cases(reconciler: Reconciler, example: Path) -> None:
    document = reconciler("policies test policies --json").document
    assert (document["stack"], document["passed"], document["failed"]) == ("policies", 6, 0)
    assert document["cases"][0] == {
        "name": "policies/cases/expensive-flavor.yaml",
        "passed": True,
        "problems": [],
    }


@pytest.mark.parametrize(
    ("text", "at", "what"),
    [
        ("job: {spec: {resource: {node_cuont: 1}}}\nexpect: {}\n", "1:25", "unknown field"),
        ("job: {state: absent}\nexpect: {}\n", "1:7", "not allowed in a case"),
        ("job: {matrix: {a: [1]}}\nexpect: {}\n", "1:7", "not allowed in a case"),
        ("job: {lifecycle: {on_failure: never}}\nexpect: {}\n", "1:31", "value not allowed"),
        ("job: {}\nexpect: {denny: []}\n", "2:10", "unknown field"),
        ("job: {}\nexpect: {}\naction: {kind: keep}\n", "3:16", "value not allowed"),
        ("job: {}\nexpect: {}\naction: {reason: because}\n", "3:18", "value not allowed"),
        ("job: []\nexpect: {}\n", "1:1", "wrong type"),
        ("job: {raw: {status: {}}}\nexpect: {}\n", "1:13", "not allowed in raw"),
        ("job: {}\nexpect: {}\nexpect: {}\n", "3:1", "duplicate key"),
    ],
)
def test_case_that_is_invalid_says_where(
    reconciler: Reconciler, example: Path, text: str, at: str, what: str
) -> None:
    write(text, "policies/cases/wrong.yaml")
    said = reconciler.ends(ExitCode.INVALID, "policies test policies")
    assert f"error: {what}\n  --> policies/cases/wrong.yaml:{at}" in said.err


def test_case_may_say_action_target_and_key(reconciler: Reconciler) -> None:
    conditions = (
        'job.key == "given" && action.node_hours == null && action.cost == 5 && target.name == "prod" '
        '&& action.reason == "retry" && target.project_id == ""'
    )
    write(stack("a", more=f"policies: [{{name: p, deny: '{conditions}'}}]\n"))
    write(
        "key: given\njob: {}\ntarget: {name: prod}\n"
        "action: {kind: create, reason: retry, node_hours: null, cost: 5}\nexpect: {deny: [p]}\n",
        "cases/one.yaml",
    )
    reconciler.ends(ExitCode.DONE, "policies test")


def test_folder_without_cases_is_wrong_use(reconciler: Reconciler) -> None:
    write(stack("a"))
    reconciler.ends(ExitCode.WRONG_USAGE, "policies test", err="no policy cases")
