"""Several files, one manifest: what is united, and where two of them disagree."""

from __future__ import annotations

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
