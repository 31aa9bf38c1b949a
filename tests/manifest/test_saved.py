"""Data saved without its secrets is restored, from any source of their values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from reconciler.core.scalar import escape, save, unresolvable_references
from reconciler.core.settings import Variable, VariableSource
from reconciler.errors import Diagnostic, ManifestInvalid, WrongUsage
from reconciler.manifest.expressions import Expander
from reconciler.manifest.saved_secrets import SecretSources, resolve
from reconciler.manifest.variables import VariableValues
from reconciler.secrets import SecretText
from tests.manifest.conftest import HEAD, JOB, Place

TOKEN = {"token": VariableSource(env="TOKEN")}


def again(
    tree: Any, sources: Mapping[str, VariableSource] = TOKEN, base: Path = Path("/nowhere"), **more: Any
) -> Any:
    nothing = SecretSources({}, (), {}, lambda _: None)
    return resolve(tree, sources, base, nothing._replace(**more))


def refused(tree: Any, sources: Mapping[str, VariableSource] = TOKEN, **more: Any) -> tuple[Diagnostic, ...]:
    with pytest.raises(ManifestInvalid) as raised:
        again(tree, sources, **more)
    return raised.value.diagnostics


# Sources


@pytest.mark.parametrize("members", [{}, {"env": "A", "file": "b"}, {"given": True, "default": True}])
def test_variable_source_has_exactly_one_of_five_kinds(members: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="one of env, file, given, default and text"):
        VariableSource(**members)


# Restoring


def test_saved_job_round_trips(place: Place) -> None:
    environments = "environments: {A: '${var.token}', B: 'Bearer ${var.token}', C: '$${x} $$', D: 1}, engine:"
    place.write(
        HEAD
        + "variables: {token: {env: TOKEN, sensitive: true}}\n"
        + f"jobs:\n  a:{JOB.replace('engine:', environments)}"
    )
    environ = {"TOKEN": "hunter2!"}
    loaded = place.load(environ=environ)
    body = loaded.stack.jobs["a"].body
    written = json.dumps(save(body))
    assert "hunter2" not in written
    assert unresolvable_references(body) == ()
    found = again(json.loads(written), loaded.sources, environ=environ)
    assert found == body
    assert found["algorithm"]["environments"]["B"].reference == "Bearer ${var.token}"
    assert found["algorithm"]["environments"]["C"] == "${x} $$"


HOSTILE = st.lists(st.sampled_from(["$${", "${", "${$}", "$", "{", "}", "var.token", "a", "\n"])).map("".join)


@settings(max_examples=40)
@given(st.recursive(HOSTILE | st.text() | st.integers() | st.none() | st.booleans(),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(HOSTILE, inner, max_size=3),
                    max_leaves=8))  # fmt: skip
def test_saved_plain_data_round_trips(tree: Any) -> None:
    assert again(json.loads(json.dumps(save(tree))), {}) == tree
    assert unresolvable_references(tree) == ()


@given(
    st.lists(HOSTILE | st.sampled_from([("token",), ("other",), ("open",)])),
    HOSTILE,
    HOSTILE | st.integers(),
    st.sampled_from(["t0ken", "$", "${", "}"]),
)
@example([("open",), ("token",)], "", "$", "t")
@example([("open",), ("token",)], "", "a$$", "t")
@example([("open",), "{x}", ("token",)], "", "$", "t")
@example([("token",), "$$", ("other",)], "", "", "t")
def test_saved_secrets_round_trip_with_value_and_reference(
    pieces: list[Any], other: str, open_value: str | int, token: str
) -> None:
    given_values = {"token": token, "other": other, "open": open_value}
    declared = {name: Variable(sensitive=name != "open") for name in given_values}
    text, literal = "", ""
    for piece in pieces:
        if isinstance(piece, tuple):
            text += escape(literal, before_expression=True) + f"${{var.{piece[0]}}}"
            literal = ""
        else:
            literal += piece
    text += escape(literal)
    value = Expander(VariableValues(declared, from_files=given_values).get, {}).text(text)
    tree = {"a": [value, {"b": value}]}
    written = json.loads(json.dumps(save(tree)))
    sources = {"token": VariableSource(env="TOKEN"), "other": VariableSource(given=True)}
    found = again(written, sources, environ={"TOKEN": token}, variables={"other": other})
    assert found == tree
    sent = "".join(str(given_values[piece[0]]) if isinstance(piece, tuple) else piece for piece in pieces)
    assert str(value) == sent
    assert isinstance(found["a"][0], SecretText) == isinstance(value, SecretText)
    assert unresolvable_references(tree) == ()
    if isinstance(value, SecretText):
        assert found["a"][1]["b"].reference == value.reference


# Current sources


def test_value_given_now_overrides_its_saved_source(tmp_path: Path) -> None:
    (tmp_path / "old.values").write_text("token: from-old-file\n")
    (tmp_path / "new.values").write_text("token: from-new-file\nother: 1\n")
    new: dict[str, Any] = {"var_files": [tmp_path / "new.values"]}
    from_file = {"token": VariableSource(file="old.values")}
    environ = {"TOKEN": "from-environment"}
    assert again("${var.token}", environ=environ) == "from-environment"
    assert again("${var.token}", from_file, base=tmp_path) == "from-old-file"
    assert again("${var.token}", environ=environ, **new) == "from-new-file"
    assert again("${var.token}", from_file, base=tmp_path, **new) == "from-new-file"
    assert again("${var.token}", variables={"token": "given"}, environ=environ, **new) == "given"
    assert again("${var.token}", {}, variables={"token": "given"}) == "given"
    # a file is read only if nothing else gives the value, and an unneeded value may be missing
    assert (
        again("${var.token}", {"token": VariableSource(file="none.values")}, variables={"token": "x"}) == "x"
    )
    assert again({"a": "plain"}) == {"a": "plain"}


@pytest.mark.parametrize(
    ("source", "why", "fix"),
    [
        (VariableSource(env="TOKEN"), "the environment variable TOKEN, which is not set",
         "export TOKEN=VALUE, or pass --var token=VALUE"),
        (VariableSource(file="none.values"), "none.values, which cannot be read: No such file or directory",
         "pass --var-file FILE or --var token=VALUE"),
        (VariableSource(file="bad.values"), "bad.values, which cannot be read: ",
         "pass --var-file FILE or --var token=VALUE"),
        (VariableSource(file="other.values"), "other.values, which no longer contains it",
         "pass --var-file FILE or --var token=VALUE"),
        (VariableSource(given=True), "was given by --var and is not stored", "pass --var token=VALUE"),
        (VariableSource(default=True), "was in the manifest and is not stored", "pass --var token=VALUE"),
        (VariableSource(text="a ${env.TOKEN}"), "is a ${env.TOKEN}, and", "pass --var token=VALUE"),
        (None, "is not recorded", "pass --var token=VALUE"),
    ],
)  # fmt: skip
def test_value_no_longer_available_is_refused_with_a_fix(
    tmp_path: Path, source: VariableSource | None, why: str, fix: str
) -> None:
    (tmp_path / "other.values").write_text("other: hunter2\n")
    (tmp_path / "bad.values").write_text("token: hunter2\n - : {\n")
    sources = {} if source is None else {"token": source}
    (problem,) = refused({"a": "Bearer ${var.token}", "b": "${var.token}"}, sources, base=tmp_path)
    assert problem.what == "variable without a value"
    assert why in problem.why
    assert problem.fix == fix
    assert "hunter2" not in repr(problem)


def test_every_missing_value_is_reported(tmp_path: Path) -> None:
    sources = {"a": VariableSource(env="A"), "b": VariableSource(given=True), "c": VariableSource(env="C")}
    problems = refused(["${var.c} ${var.a}", "${var.b}"], sources, environ={"C": "c"})
    assert [problem.fix for problem in problems] == [
        "export A=VALUE, or pass --var a=VALUE",
        "pass --var b=VALUE",
    ]


COMPOSED = {
    "header": VariableSource(text="Bearer ${var.token}"),
    "line": VariableSource(text="${var.header}; $${x} ${env.MORE}"),
    **TOKEN,
}


def test_composed_value_is_restored_from_its_parts() -> None:
    learned: list[str] = []
    environ = {"TOKEN": "hunter2!", "MORE": "more"}
    found = again("<${var.line}>", COMPOSED, environ=environ, add_secrets=learned.extend)
    assert found == "<Bearer hunter2!; ${x} more>"
    assert isinstance(found, SecretText)
    assert found.reference == "<${var.line}>"
    assert {"hunter2!", "Bearer hunter2!; ${x} more"} <= set(learned)
    assert again("${var.line}", COMPOSED, variables={"line": "given"}) == "given"


@pytest.mark.parametrize(
    ("environ", "fixes"),
    [
        ({"MORE": "more"}, ["export TOKEN=VALUE, or pass --var token=VALUE"]),
        ({"TOKEN": "t"}, ["pass --var line=VALUE"]),
    ],
)
def test_composed_value_names_its_missing_part(environ: dict[str, str], fixes: list[str]) -> None:
    assert [problem.fix for problem in refused("${var.line}", COMPOSED, environ=environ)] == fixes


@pytest.mark.parametrize("text", ["${env.PATH}", "${job.key}", "x ${parameter.a}", "${var.token", "${}"])
def test_saved_data_reads_nothing_but_variables(text: str) -> None:
    (problem,) = refused([text, text], environ={"PATH": "/bin", "TOKEN": "t"})
    assert problem.what == "invalid expression"
    assert "only ${var.NAME} is" in problem.why


def test_saved_value_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "v.values").write_text("token: [hunter2]\n")
    (problem,) = refused("${var.token}", var_files=[tmp_path / "v.values"])
    assert (problem.what, "hunter2" in repr(problem)) == ("wrong type", False)


def test_given_variable_files_must_exist_and_be_readable(tmp_path: Path) -> None:
    with pytest.raises(WrongUsage, match="no such path"):
        again("${var.token}", var_files=[tmp_path / "none.values"])
    (tmp_path / "bad.values").write_text("token: {hunter2\n")
    (problem,) = refused("${var.token}", var_files=[tmp_path / "bad.values"])
    assert (problem.what, "hunter2" in repr(problem)) == ("invalid YAML", False)


def test_every_value_is_redactable_before_anything_is_refused() -> None:
    learned: set[str] = set()
    sources = {**TOKEN, "gone": VariableSource(env="GONE"), "unused": VariableSource(env="UNUSED")}
    environ = {"TOKEN": "hunter2!", "UNUSED": "swordfish"}
    refused("${var.token} ${var.gone}", sources, environ=environ, add_secrets=learned.update)
    assert learned == {"hunter2!", "swordfish"}


# Unsavable values


@pytest.mark.parametrize(
    "reference",
    [
        "${parameter.password}",
        "${environment.A}",
        "${parameter.a}${var.token}",
        "${parameter.a}${var.b}",
        "${parameter.x{y}",
        "nothing",
        "$${var.token}",
    ],
)
def test_unresolvable_references_are_listed(reference: str) -> None:
    secret = SecretText("hunter2!", reference)
    fine = SecretText("hunter2!", "x${var.token}")
    assert unresolvable_references({"a": [secret, fine], "b": secret}) == (reference,)


@pytest.mark.parametrize(
    ("value", "lost"), [("hunter2!", ("${parameter.password}",)), ("'${var.token}'", ())]
)
def test_secret_marked_in_place_is_savable_if_a_variable_gives_it(
    place: Place, value: str, lost: tuple[str, ...]
) -> None:
    parameters = f"parameters: {{password: {{value: {value}, sensitive: true}}}}, engine:"
    head = HEAD + "variables: {token: {env: TOKEN, sensitive: true}}\n"
    job = place.job(JOB.replace("engine:", parameters), head, environ={"TOKEN": "hunter2!"})
    assert unresolvable_references(job.body) == lost
