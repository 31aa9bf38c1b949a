"""Targets: what each kind takes, and that no credential ever stands in a manifest."""

from __future__ import annotations

import pytest

from reconciler.core.values import LOCAL, MODELARTS
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


def test_default_has_to_be_one_of_the_targets(place: Place) -> None:
    place.write("stack: s\ntarget: prd\ntargets: {prod: {kind: modelarts, region: r}}\n")
    problem = place.problem()
    assert (problem.what, place_of(problem)) == ("unknown target", "main.yaml:2:9")
    assert problem.fix == 'did you mean "prod"?'


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


@pytest.mark.parametrize(
    ("target", "what", "path"),
    [
        ("{kind: local, region: r}", "incompatible fields", "targets.t.region"),
        ("{kind: local, profile: p}", "incompatible fields", "targets.t.profile"),
        ("{kind: modelarts}", "missing field", "targets.t"),
        ("{region: r}", "missing field", "targets.t"),
        ("{kind: cloud}", "value not allowed", "targets.t.kind"),
        ("{kind: local, regoin: r}", "unknown field", "targets.t"),
        ("{kind: modelarts, region: 3}", "wrong type", "targets.t.region"),
        ("{kind: modelarts, region: r, workspace_id: abc}", "value not allowed", "targets.t.workspace_id"),
        ("{kind: modelarts, endpoint: modelarts.com}", "value not allowed", "targets.t.endpoint"),
        ("{kind: modelarts, endpoint: 'ftp://x'}", "value not allowed", "targets.t.endpoint"),
        ("{kind: modelarts, endpoint: 'https://x/v2'}", "value not allowed", "targets.t.endpoint"),
        ("{kind: modelarts, endpoint: 'https://x?a=b'}", "value not allowed", "targets.t.endpoint"),
        ("{kind: modelarts, endpoint: 'https://x:port'}", "value not allowed", "targets.t.endpoint"),
        ("{kind: modelarts, endpoint: 'http://x.com'}", "value not allowed", "targets.t.endpoint"),
        ("{kind: modelarts, endpoint: 'https://me:hunter2@x'}", "literal secret", "targets.t.endpoint"),
        ("{kind: modelarts, endpoint: 'https://me:hunter2@x:port'}", "literal secret", "targets.t.endpoint"),
        ("{kind: modelarts, endpoint: 'https://a b'}", "value not allowed", "targets.t.endpoint"),
        ("{kind: modelarts, region: r, password: hunter2}", "literal secret", "targets.t.password"),
        ("{kind: modelarts, region: r, secret_key: hunter2}", "literal secret", "targets.t.secret_key"),
        ("{kind: modelarts, region: r, AK: hunter2}", "literal secret", "targets.t.AK"),
        ("{kind: modelarts, region: '${var.secret}'}", "secret not allowed here", "targets.t.region"),
        ("{kind: modelarts, region: '${job.key}'}", "invalid expression", "targets.t.region"),
        ("", "wrong type", "targets.t"),
        ("[local]", "wrong type", "targets.t"),
    ],
)
def test_what_a_target_may_not_say(place: Place, target: str, what: str, path: str) -> None:
    place.write(f"stack: s\nvariables: {{secret: {{sensitive: true, env: S}}}}\ntargets:\n  t: {target}\n")
    problem = place.problem(environ={"S": "hunter2"})
    assert (problem.what, problem.path) == (what, path)
    assert place_of(problem).startswith("main.yaml:4:")
    assert "hunter2" not in repr(problem)


@pytest.mark.parametrize(
    "target",
    [
        "{kind: modelarts, endpoint: 'https://modelarts.eu-de.otc.t-systems.com', cloud: otc}",
        "{kind: modelarts, endpoint: 'http://127.0.0.1:8080'}",
        "{kind: modelarts, endpoint: 'http://[::1]:8080/'}",
        "{kind: modelarts, endpoint: 'http://localhost'}",
        "{kind: modelarts, endpoint: 'http://em.localhost'}",
        "{kind: modelarts, endpoint: 'http://10.0.0.1', insecure: true}",
        "{kind: modelarts, region: r, workspace_id: 0}",
        f"{{kind: modelarts, region: r, workspace_id: {'a' * 32}}}",
    ],
)
def test_what_a_target_may_say(place: Place, target: str) -> None:
    place.write(f"stack: s\ntargets:\n  t: {target}\n")
    assert place.load().target("t")[1].kind == MODELARTS


def test_credentials_are_told_where_they_belong(place: Place) -> None:
    place.write("stack: s\ntargets: {t: {kind: modelarts, region: r, token: hunter2}}\n")
    problem = place.problem()
    assert problem.fix is not None
    assert "HUAWEICLOUD_SDK_AK" in problem.fix
    assert "MODELARTS_AUTH_TOKEN" in problem.fix
