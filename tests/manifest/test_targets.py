"""Targets: the fields of each kind, and no credentials in a manifest."""

from __future__ import annotations

import pytest

from reconciler.errors import ManifestInvalid, WrongUsage
from tests.manifest.conftest import Place, marked, place_of


@pytest.mark.parametrize(
    ("text", "name", "default"),
    [
        ("target: b\ntargets: {a: {kind: local}, b: {kind: local}}", None, "b"),
        ("target: b\ntargets: {a: {kind: local}, b: {kind: local}}", "a", "b"),
        ("targets: {here: {kind: local}}", None, "here"),
    ],
)
def test_target_is_the_named_the_default_or_the_only_one(
    place: Place, text: str, name: str | None, default: str
) -> None:
    place.write(f"stack: s\n{text}\n")
    loaded = place.load()
    assert loaded.target_name == default
    assert loaded.target(name) == (name or default, loaded.targets[name or default])


@pytest.mark.parametrize(
    ("text", "name", "why"),
    [
        ("targets: {a: {kind: local}, b: {kind: local}}", None, "a, b"),
        ("targets: {a: {kind: local}, b: {kind: local}}", "c", r"unknown target.*not one of a, b"),
        ("", None, "no targets"),
    ],
)
def test_undetermined_target_is_wrong_usage(place: Place, text: str, name: str | None, why: str) -> None:
    place.write(f"stack: s\n{text}\n")
    loaded = place.load()
    assert loaded.target_name is None
    with pytest.raises(WrongUsage, match=why):
        loaded.target(name)


def test_unset_environment_variable_fails_only_on_the_target_in_use(place: Place) -> None:
    place.write(
        """\
        stack: s
        target: local
        targets:
          local: {kind: local}
          prod: {kind: modelarts, region: cn-north-4, project_id: "${env.PROJECT}"}
        """
    )
    loaded = place.load()
    assert loaded.target()[0] == "local"
    assert loaded.targets["prod"].region == "cn-north-4"
    with pytest.raises(ManifestInvalid) as raised:
        loaded.target("prod")
    (problem,) = raised.value.diagnostics
    assert (problem.what, place_of(problem)) == ("environment variable not set", "main.yaml:5:60")
    assert marked(problem) == "${env.PROJECT}"
    assert place.load(environ={"PROJECT": "p"}).target("prod")[1].project_id == "p"
