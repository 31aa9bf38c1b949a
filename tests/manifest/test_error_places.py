"""An error is told once, at the text that is wrong, whichever way that text came into a job."""

from __future__ import annotations

import pytest

from tests.manifest.conftest import Place, marked, place_of

ALGORITHM = "algorithm: {code_dir: /b/, boot_file: /b/t.py, engine: {engine_id: pt}}"
WRONG = "spec: {resource: {flavor_id: g, node_cout: 2}}"
RIGHT = "spec: {resource: {flavor_id: g}}"
HEAD = "stack: vision\ntargets: {local: {kind: local}}\n"

WAYS = {
    "two jobs themselves": f"jobs:\n  a: {{{ALGORITHM}, {RIGHT}}}\n  b: {{{ALGORITHM}, {WRONG}}}\n",
    "defaults": f"defaults: {{{WRONG}}}\njobs:\n  a: {{{ALGORITHM}}}\n  b: {{{ALGORITHM}}}\n",
    "a template": f"""
templates: {{t: {{{WRONG}}}}}
jobs:
  a: {{{ALGORITHM}, extends: t}}
  b: {{{ALGORITHM}, extends: t}}
""",
    "a template that another extends": f"""
templates: {{t: {{{WRONG}}}, u: {{extends: t}}}}
jobs:
  a: {{{ALGORITHM}, extends: u}}
""",
    "a template that no job takes over": f"""
templates: {{t: {{{WRONG}}}}}
jobs:
  a: {{{ALGORITHM}, {RIGHT}}}
""",
    "an anchor": f"jobs:\n  a: &a {{{ALGORITHM}, {WRONG}}}\n  b: *a\n",
    "a merge key": f"jobs:\n  a: &a {{{ALGORITHM}, {WRONG}}}\n  b: {{<<: *a, needs: [a]}}\n",
    "a sweep": f"jobs:\n  a: {{matrix: {{lr: [1, 2, 3]}}, {ALGORITHM}, {WRONG}}}\n",
    "a sweep of a template": f"""
templates: {{t: {{{WRONG}}}}}
jobs:
  a: {{matrix: {{lr: [1, 2]}}, {ALGORITHM}, extends: t}}
""",
}


@pytest.mark.parametrize("way", WAYS)
def test_wrong_text_is_told_once_where_it_stands(place: Place, way: str) -> None:
    text = HEAD + WAYS[way]
    place.write(text)
    problem = place.problem()
    line = next(number for number, one in enumerate(text.splitlines(), start=1) if "node_cout" in one)
    column = text.splitlines()[line - 1].index("node_cout") + 1
    assert problem.what == "unknown field"
    assert marked(problem) == "node_cout"
    assert place_of(problem) == f"main.yaml:{line}:{column}"
    assert problem.fix == 'did you mean "node_count"?'


def test_target_defaults_and_other_files_are_places_too(place: Place) -> None:
    place.write(f"stack: vision\ntargets:\n  local: {{kind: local, defaults: {{{WRONG}}}}}\n")
    place.write(f"jobs:\n  a: {{{ALGORITHM}, {RIGHT}, sepc: 1}}\n", "other.yaml")
    assert [(place_of(one), marked(one)) for one in place.problems()] == [
        ("main.yaml:3:67", "node_cout"),
        ("other.yaml:2:114", "sepc"),
    ]


@pytest.mark.parametrize(
    ("one", "other", "what"),
    [
        ("jobs: {a: {state: absent}}", "jobs: {a: {state: absent}}", "duplicate key"),
        ("jobs: {a: {state: absent}}", "jobs: {A: {state: absent}}", "keys differ only in case"),
        ("defaults: {kind: job}", "defaults: {kind: edge_job}", "files disagree"),
        ("templates: {t: {kind: job}}", "templates: {t: {}}", "files disagree"),
        ("variables: {v: {default: 1}}", "variables: {v: {default: 2}}", "files disagree"),
        ("limits: {reruns: 1}", "limits: {reruns: 2}", "files disagree"),
        ("target: local", "target: other", "files disagree"),
        ("records: sqlite:///a.db", "records: sqlite:///b.db", "files disagree"),
        ("jobs: {x: {formerly: o, state: absent}}", "jobs: {y: {formerly: o, state: absent}}",
         "former key claimed twice"),
    ],
)  # fmt: skip
def test_both_places_of_a_disagreement_are_named(place: Place, one: str, other: str, what: str) -> None:
    place.write(f"{HEAD}{one}\n", "first.yaml")
    place.write(f"\n{other}\n", "second.yaml")
    problem = next(problem for problem in place.problems() if problem.what == what)
    assert place_of(problem).startswith("second.yaml:2:")
    assert "first.yaml:3:" in problem.why


def test_both_places_of_a_key_that_stands_twice_in_one_file_are_named(place: Place) -> None:
    place.write(f"{HEAD}jobs: {{a: {{state: absent}}}}\njobs: {{}}\n")
    problem = place.problem()
    assert (problem.what, place_of(problem)) == ("duplicate key", "main.yaml:4:1")
    assert "main.yaml:3:1" in problem.why


def test_wrong_inherited_member_is_told_at_its_text_beside_an_expression_for_all_members(
    place: Place,
) -> None:
    place.write(
        f"""{HEAD}variables: {{more: {{default: {{alpha: 1}}}}}}
defaults: {{algorithm: {{parameters: {{"a b": 1}}}}}}
jobs: {{a: {{{ALGORITHM.replace("engine:", 'parameters: "${var.more}", engine:')}, {RIGHT}}}}}
"""
    )
    problem = place.problem()
    assert (place_of(problem), marked(problem)) == ("main.yaml:4:37", '"a b"')
