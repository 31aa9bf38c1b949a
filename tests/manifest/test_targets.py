"""Targets: what each kind takes, and that no credential ever stands in a manifest."""

from __future__ import annotations

import pytest

from reconciler.core.values import LOCAL
from reconciler.errors import ManifestInvalid, WrongUsage
from tests.manifest.conftest import Place, marked, place_of


def test_default_is_the_one_that_is_named(place: Place) -> None:
    place.write("stack: s\ntarget: b\ntargets: {a: {kind: local}, b: {kind: local}}\n")
    loaded = place.load()
    assert loaded.target_name == "b"
    assert loaded.target() == ("b", loaded.targets["b"])
    assert loaded.target("a")[0] == "a"


def test_only_target_needs_no_name(place: Place) -> None:
    place.write("stack: s\ntargets: {here: {kind: local}}\n")
    assert place.load().target()[0] == "here"
    assert place.load().targets["here"].kind == LOCAL


def test_several_targets_without_a_default_are_wrong_use(place: Place) -> None:
    place.write("stack: s\ntargets: {a: {kind: local}, b: {kind: local}}\n")
    loaded = place.load()
    assert loaded.target_name is None
    with pytest.raises(WrongUsage, match="a, b"):
        loaded.target()
    with pytest.raises(WrongUsage, match=r"unknown target.*not one of a, b"):
        loaded.target("c")


def test_stack_without_targets_loads(place: Place) -> None:
    place.write("stack: s\n")
    with pytest.raises(WrongUsage, match="no targets"):
        place.load().target()


def test_unset_environment_variable_matters_only_for_the_target_that_is_used(place: Place) -> None:
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
