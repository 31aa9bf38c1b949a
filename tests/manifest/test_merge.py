"""Several files, one manifest: what is united, and where two of them disagree."""

from __future__ import annotations

import pytest

from tests.manifest.conftest import JOB, Place


def test_sections_of_several_files_are_united(place: Place) -> None:
    place.write("stack: s\ntargets: {a: {kind: local}}\nvariables: {x: {default: 1}}\n")
    place.write(
        f"targets: {{b: {{kind: local}}}}\nvariables: {{y: {{default: 2}}}}\njobs:\n  j:{JOB}", "more.yaml"
    )
    place.write("target: b\nlimits: {terminations: 9}\n", "rest.yaml")
    loaded = place.load()
    assert loaded.targets.keys() == {"a", "b"}
    assert loaded.target_name == "b"
    assert loaded.limits.terminations == 9
    assert loaded.stack.limits == loaded.limits
    assert loaded.stack.jobs.keys() == {"j"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("target: a", "target: a"),
        ("targets: {b: {kind: local}}", "targets: {b: {kind: local}}"),
        ("variables: {v: {default: 1}}", "variables: {v: {default: 1}}"),
        ("limits: {terminations: 5}", "limits: {terminations: 5, lost_time: 2h}"),
        ("defaults: {spec: {resource: {node_count: 1}}}", "defaults: {spec: {resource: {flavor_id: f}}}"),
        ("defaults: {algorithm: {parameters: {a: 1}}}", "defaults: {algorithm: {parameters: {b: 1}}}"),
        (
            "defaults: {algorithm: {parameters: {a: 1}}}",
            "defaults: {algorithm: {parameters: [{name: a, value: 1}]}}",
        ),
    ],
)
def test_files_may_say_the_same_or_different_parts(place: Place, one: str, other: str) -> None:
    place.write("stack: s\ntargets: {a: {kind: local}}\n")
    place.write(one + "\n", "b.yaml")
    place.write(other + "\n", "c.yaml")
    place.load()


def test_no_policies_are_fine(place: Place) -> None:
    place.write("stack: s\npolicies: []\n")
    place.load()
