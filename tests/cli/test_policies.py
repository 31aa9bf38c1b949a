"""Policies as a user meets them: in plan, apply, saved plans, validate, review and `policies test`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from xml.etree import ElementTree as Xml

import jsonschema
import pytest

from reconciler.cli.project import schema
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


def never(condition: str) -> str:
    return f"policies: [{{name: p, deny: '{condition}', message: not there}}]\n"


DENIED = "denied by one-node: one is enough"


# ── plan and apply ─────────────────────────────────────────────────────────────────────────────────


def test_denied_key_is_shown_with_policy_message_and_location_in_every_format(reconciler: Reconciler) -> None:
    write(stack("a", "b", two_nodes="b"))
    error = "error: denied by a policy\n  --> jobs.yaml:5:29  policies.one-node\n"
    outcome = reconciler.ends(
        3,
        "plan --detailed-exitcode -o text -o json=p.json -o sarif=p.sarif -o junit=p.xml",
        out=f"  ! blocked   b       {DENIED}; blocks create\n",
        err=error,
    )
    assert outcome.out.splitlines()[-1].endswith(
        " 1 to create, 0 to update, 0 to replace, 0 to terminate, 0 to keep. 1 blocked."
    )
    document = json.loads(Path("p.json").read_text(encoding="utf-8"))
    jsonschema.validate(document, schema("plan"))
    a, b = document["actions"]
    assert (document["applyable"], a["action"], "blocked_action" in a) == (True, "create", False)
    assert (b["action"], b["reason"], b["blocked_action"]) == ("blocked", "denied", "create")
    assert (b["blocked_by"], b["detail"]) == (["one-node"], f"{DENIED}; blocks create")
    [denial] = document["denied"]
    assert (denial["key"], denial["policy"], denial["message"]) == ("b", "one-node", "one is enough")
    assert denial["source"] == {"file": "jobs.yaml", "line": 5, "column": 29}
    [result] = json.loads(Path("p.sarif").read_text(encoding="utf-8"))["runs"][0]["results"]
    assert (result["ruleId"], result["level"]) == ("one-node", "error")
    region = result["locations"][0]["physicalLocation"]
    assert (region["artifactLocation"]["uri"], region["region"]["startLine"]) == ("jobs.yaml", 16)
    [failure] = Xml.parse("p.xml").getroot().iter("failure")
    assert failure.get("type") == "denied: one-node"


def test_apply_executes_all_but_the_denied_key(world: World) -> None:
    write(stack("a", "b", two_nodes="b", url=world.url))
    for options in ("", "--force", "--allow budget", "--allow lost-work"):
        result = world.ends(3, f"apply --yes {options}", out=DENIED)
        assert (result.out + result.err).count("one is enough") == 1
        assert [*world.phases()] == ["a"]


def test_policies_apply_to_the_plan_of_apply_but_not_to_destroy(world: World) -> None:
    more = 'policies: [{name: no-replace, deny: action.kind == "replace"}]\n'
    world.apply(stack("a", more=more, url=world.url))
    write(stack("a", more=more, url=world.url, lr="0.2"))
    world.ends(3, "apply --yes")
    assert [*world.phases()] == ["a"]
    write(stack("a", more=never("true"), url=world.url))
    world.ends(0, "destroy --yes")


@pytest.mark.parametrize("command", ["plan head", "review base head"])
def test_github_annotates_each_denied_job_at_its_location(reconciler: Reconciler, command: str) -> None:
    write(stack("a"), "base/jobs.yaml")
    write(stack("a", "b", two_nodes="b"), "head/jobs.yaml")
    result = reconciler.ends(3, f"{command} -o github")
    error = "::error file=head/jobs.yaml,line=16,col=3,title=denied b::policy one-node: one is enough"
    assert [line for line in result.out.splitlines() if line.startswith("::error ")] == [error]


def test_saved_plan_keeps_the_policies_it_was_made_with(world: World) -> None:
    write(stack("a", two_nodes="a", more="", url=world.url))
    world.ends(0, "plan --out saved.plan")
    write(stack("a", two_nodes="a", url=world.url))
    world.ends(0, "apply --plan saved.plan --yes")


# ── validate and review ────────────────────────────────────────────────────────────────────────────


TARGETS = """\
targets:
  dev: {kind: local}
  prod: {kind: local, defaults: {spec: {resource: {node_count: 2}}}}
"""


def test_validate_checks_policies_on_every_target_and_names_it(reconciler: Reconciler) -> None:
    write(stack("a").replace("targets:\n  there: {kind: local}\n", TARGETS))
    reconciler.ends(3, "validate", err="one-node denies a: one is enough (target prod)")
    reconciler.ends(0, "validate -t dev")
    write(stack("a", more="policies: [{name: hint, warn: 'true', message: think twice}]\n"))
    reconciler.ends(0, "validate", err="warning: policy hint\n  --> jobs.a\n  why: think twice")


def test_review_checks_policies_for_changed_jobs_only(reconciler: Reconciler) -> None:
    write(stack("a", "old", two_nodes="old"), "base/jobs.yaml")
    write(stack("a", "b", "old", two_nodes="old"), "head/jobs.yaml")
    reconciler.ends(0, "review base head")
    write(stack("a", "b", "old", two_nodes="b"), "head/jobs.yaml")
    denied = "denied: policy one-node: one is enough (head/jobs.yaml:5:29)\n        b\n"
    reconciler.ends(3, "review base head", out=denied)
    document = reconciler("review base head --json").document
    assert [(one["key"], one["policy"]) for one in document["denied"]] == [("b", "one-node")]
    # By the policies of HEAD; the review shows that they changed.
    write(stack("a", "b", two_nodes="b", more=DENY.replace("> 1", "> 2")), "head/jobs.yaml")
    changed = 'policies.one-node.deny: "job.spec.resource.node_count > 1" -> '
    reconciler.ends(0, "review base head", out=changed)


# ── policies test ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """The stack with the four examples, and their cases."""
    shutil.copytree(EXAMPLE, tmp_path / "policies", ignore=shutil.ignore_patterns(".reconciler"))
    return tmp_path / "policies"


def test_example_policy_cases_pass_and_each_policy_has_a_denied_case(
    reconciler: Reconciler, example: Path
) -> None:
    result = reconciler.ends(0, "policies test policies", out="  passed policies/cases/nine-nodes.yaml\n")
    assert result.out.endswith("Policies of policies: 6 passed, 0 failed.\n")
    document = reconciler("policies test policies --json").document
    assert (document["stack"], document["passed"], document["failed"]) == ("policies", 6, 0)
    name = "policies/cases/expensive-flavor.yaml"
    assert document["cases"][0] == {"name": name, "passed": True, "problems": []}
    text = "".join(path.read_text(encoding="utf-8") for path in (example / "cases").iterdir())
    for name in ("flavors", "eight-nodes-at-most", "description", "no-replace-of-long-runs"):
        assert f"deny: [{name}]" in text


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("deny: [flavors]", "deny: []", "flavors denies, which is not expected"),
        ("deny: [flavors]", "deny: [flavors, description]", "description is expected to deny, but does not"),
        ("deny: [flavors]", "warn: [flavors]", "flavors is expected to warn, but does not"),
        ("deny: [flavors]", "deny: [flavours]", "expects flavours, which is not a policy of the stack"),
        ("flavor_id: modelarts.p3.large.public, ", "", 'there is no field "flavor_id"'),
    ],
)
def test_failing_policy_case_says_why(
    reconciler: Reconciler, example: Path, old: str, new: str, problem: str
) -> None:
    name = "policies/cases/expensive-flavor.yaml"
    write(Path(name).read_text(encoding="utf-8").replace(old, new), name)
    failed = [f"  failed {name}\n", problem]
    reconciler.ends(1, "policies test policies/cases -o text -o junit=report.xml", out=failed)
    suite = Xml.parse("report.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures")) == ("6", "1")
    assert [case.get("name") for case in suite.iter("testcase") if case.find("failure") is not None] == [name]


@pytest.mark.parametrize(
    ("text", "at", "what"),
    [
        ("job: {spec: {resource: {node_cuont: 1}}}\nexpect: {}\n", "1:25", "unknown field"),
        ("job: {matrix: {a: [1]}}\nexpect: {}\n", "1:7", "not allowed in a case"),
        ("job: {lifecycle: {on_failure: never}}\nexpect: {}\n", "1:31", "value not allowed"),
        ("job: {}\nexpect: {}\naction: {kind: keep}\n", "3:16", "value not allowed"),
        ("job: {raw: {status: {}}}\nexpect: {}\n", "1:13", "not allowed in raw"),
        ("job: {}\nexpect: {}\nexpect: {}\n", "3:1", "duplicate key"),
    ],
)
def test_invalid_policy_case_has_a_location(
    reconciler: Reconciler, example: Path, text: str, at: str, what: str
) -> None:
    write(text, "policies/cases/wrong.yaml")
    place = f"error: {what}\n  --> policies/cases/wrong.yaml:{at}"
    reconciler.ends(65, "policies test policies", err=place)


def test_policy_case_may_set_action_target_and_key(reconciler: Reconciler) -> None:
    conditions = (
        'job.key == "given" && action.node_hours == null && action.cost == 5 && target.name == "prod" '
        '&& action.reason == "retry" && target.project_id == ""'
    )
    write(stack("a", more=f"policies: [{{name: p, deny: '{conditions}'}}]\n"))
    reconciler.ends(64, "policies test", err="no policy cases")
    write(
        "key: given\njob: {}\ntarget: {name: prod}\n"
        "action: {kind: create, reason: retry, node_hours: null, cost: 5}\nexpect: {deny: [p]}\n",
        "cases/one.yaml",
    )
    reconciler.ends(0, "policies test")
