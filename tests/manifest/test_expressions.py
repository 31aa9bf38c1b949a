"""Variables and expressions: which value and type they have, and missing values."""

from __future__ import annotations

import pytest

from tests.manifest.conftest import HEAD, WITH_X, Place


def head(variables: str) -> str:
    return f"{HEAD}variables: {{{variables}}}\n"


def test_undeclared_option_is_an_error(place: Place) -> None:
    place.write(head("bucket: {default: b}"))
    problem = place.problem(variables={"bucke": "x"})
    assert (problem.what, problem.fix) == ("unknown variable", 'did you mean "bucket"?')


# Secrets


SECRET = "token: {env: TOKEN, sensitive: true}"


def test_every_sensitive_value_is_known_for_redaction(place: Place) -> None:
    declared = (
        SECRET
        + ", unused: {env: UNUSED, sensitive: true}, option: {sensitive: true}, filed: {sensitive: true}"
        + ", literal: {sensitive: true, default: in the file}, plain: {default: shown}"
    )
    place.write(head(declared) + f"jobs:\n  a:{WITH_X % '${var.token}'}")
    loaded = place.load(
        variables={"option": "from option"},
        var_files=[place.write("filed: 1234567\n", "values.yaml")],
        environ={"TOKEN": "hunter2!", "UNUSED": "not asked for"},
    )
    assert set(loaded.secrets) == {"hunter2!", "not asked for", "from option", "1234567", "in the file"}
    assert "hunter2!" not in repr(loaded)
    assert "not asked for" not in repr(loaded)


@pytest.mark.parametrize("filler", [0, 45, 10_000])
def test_line_with_a_secret_is_not_shown(place: Place, filler: int) -> None:
    declared = "{token: {sensitive: true, default: correct-horse-battery-staple}"
    place.write(f"{{stack: s, variables: {declared}{' ' * filler}, typo: {{}}}}, jobs: {{}}, jbos: 1}}\n")
    assert [problem.snippet for problem in place.problems()] == [None, None]
