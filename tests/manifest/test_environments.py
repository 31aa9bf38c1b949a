"""Environments: one manifest, and the changes by its targets."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.errors import ManifestInvalid, WrongUsage
from reconciler.manifest.files import find_stack
from reconciler.manifest.load import check, load
from tests.manifest.conftest import Place

#: A job whose environment variable X has the value of `v`, on the targets dev and prod.
STACK = """\
stack: s
target: dev
targets:
  dev: {kind: local, %s}
  prod: {kind: local, %s}
variables: {v: {%s}, other: {default: o}}
jobs:
  a:
    algorithm:
      code_dir: obs://b/code/
      boot_file: obs://b/code/train.py
      engine: {engine_id: pt}
      environments: {X: "${var.v}"}
    spec: {resource: {flavor_id: gpu, node_count: 1}}
"""


def stack(place: Place, dev: str = "", prod: str = "", declared: str = "default: d") -> None:
    place.write(STACK % (dev, prod, declared))


def value_on(place: Place, target: str | None, **options: Any) -> Any:
    """Return the environment variable X that is sent."""
    job = place.load(target=target, **options).stack.jobs["a"]
    assert job.body is not None
    return job.body["algorithm"]["environments"]["X"]


# --- variables


def test_target_entry_may_use_its_own_variable_values(place: Place) -> None:
    place.write(
        "stack: s\ntarget: dev\nvariables: {region: {default: cn-north-1}}\ntargets:\n"
        "  dev: {kind: modelarts, region: '${var.region}', project_id: p}\n"
        "  prod: {kind: modelarts, region: '${var.region}', project_id: p, variables: {region: cn-north-4}}\n"
    )
    for target in ("dev", "prod"):
        loaded = place.load(target=target)
        assert {name: one.region for name, one in loaded.targets.items()} == {
            "dev": "cn-north-1",
            "prod": "cn-north-4",
        }
        assert loaded.target("prod")[1].region == "cn-north-4"


def test_check_on_all_targets_refuses_an_unknown_default_target(place: Place) -> None:
    stack(place, "variables: {v: d}", "variables: {v: p}")
    place.write((place.root / "main.yaml").read_text().replace("target: dev", "target: prd"))
    assert check_all(place) == (None, ["target: unknown target"])


def test_first_target_with_all_values_is_loaded_without_a_default(place: Place) -> None:
    text = STACK.replace("target: dev\n", "", 1)
    place.write(text % ("variables: {v: '${env.DEV}'}", "variables: {v: p}", "default: d"))
    assert value_on(place, None) == "p"
    assert value_on(place, None, environ={"DEV": "e"}) == "e"
    assert place.load().target_name is None
    with pytest.raises(WrongUsage):
        place.load().target()


def test_order_of_declaration_does_not_matter_and_depth_is_free(place: Place) -> None:
    links = ", ".join(f"v{n}: {{default: '${{var.v{n + 1}}}'}}" for n in range(3000))
    place.write(f"stack: s\ntargets: {{l: {{kind: local}}}}\nvariables: {{{links}, v3000: {{default: 7}}}}\n")
    place.load()


# --- every target at once


def check_all(place: Place, **options: Any) -> tuple[str | None, list[str]]:
    """Return the loaded target with the skipped ones, or every problem."""
    try:
        loaded, skipped = check([place.root], **{"environ": {}, **options})
    except ManifestInvalid as invalid:
        return None, [f"{problem.path}: {problem.what}" for problem in invalid.diagnostics]
    return loaded.target_name, [problem.why for problem in skipped]


MANY = (None, ["targets.prod.variables.v: wrong type"])
UNSET = "environment variable not set"


@pytest.mark.parametrize(
    ("dev", "prod", "declared", "options", "outcome"),
    [
        ("v: 1", "v: many", "type: number", {}, MANY),
        ("v: 1", "v: many", "type: number", {"target": "dev"}, ("dev", [])),
        ("v: 1", "v: '${env.P}'", "", {}, ("dev", ['the target "prod" was not checked: P is not set'])),
        ("v: 1", "v: '${env.P}'", "", {"environ": {"P": "x"}}, ("dev", [])),
        ("v: 1", "v: '${env.P}'", "", {"target": "prod"}, (None, [f"targets.prod.variables.v: {UNSET}"])),
        ("", "v: many, other: '${env.P}'", "type: number, default: 1", {}, MANY),
        ("v: '${env.D}'", "v: '${env.P}'", "", {}, (None, [f"targets.dev.variables.v: {UNSET}"])),
    ],
    ids=[
        *("problem of another target", "one target", "environment not set", "environment set"),
        *("environment of the only one not set", "problem of one to be skipped", "none can be checked"),
    ],
)
def test_every_target_with_its_environment_is_checked(
    place: Place, dev: str, prod: str, declared: str, options: dict[str, Any], outcome: tuple[Any, list[str]]
) -> None:
    stack(place, f"variables: {{{dev}}}", f"variables: {{{prod}}}", declared)
    assert check_all(place, **options) == outcome


def test_problem_on_all_targets_is_reported_once(place: Place) -> None:
    stack(place, "variables: {v: 1}")
    place.write((place.root / "main.yaml").read_text().replace("node_count: 1", "node_count: none"))
    assert len(check_all(place)[1]) == 1


def test_kind_of_a_target_of_the_wrong_type_is_reported(place: Place) -> None:
    place.write("stack: s\ntarget: a\ntargets: {a: {kind: local}, b: {kind: []}}\n")
    assert check_all(place) == (None, ["targets.b.kind: wrong type"])


def test_stack_on_another_target_uses_the_bytes_already_read(place: Place) -> None:
    stack(place, prod="variables: {v: p}")
    files = find_stack([place.root])
    (place.root / "main.yaml").write_text("stack: other\n")
    job = load(files, environ={}, target="prod").stack.jobs["a"]
    assert job.body is not None
    assert job.body["algorithm"]["environments"]["X"] == "p"
