"""Variables and expressions: which value is taken, of which type, and where nothing gives one."""

from __future__ import annotations

import re
from typing import Any

import pytest

from reconciler.errors import Severity
from reconciler.secrets import SecretText
from tests.manifest.conftest import HEAD, JOB, Place, marked, place_of

BODY = JOB.replace("engine: {engine_id: pt}", "engine: {engine_id: pt}, environments: {X: %s}")


def head(variables: str) -> str:
    return f"{HEAD}variables: {{{variables}}}\n"


def environment(place: Place, value: str, declared: str = "", **options: Any) -> Any:
    """The value of the environment variable X, as it is sent."""
    job = place.job(BODY % value, head(declared), **options)
    assert job.body is not None
    return job.body["algorithm"]["environments"]["X"]


def test_the_first_source_that_has_a_value_wins(place: Place) -> None:
    file = place.write("v: from file\n", "one.yaml")
    later = place.write("v: from later file\n", "two.yaml")
    sources: dict[str, Any] = {
        "variables": {"v": "from option"},
        "var_files": [file, later],
        "environ": {"V": "from environment"},
    }
    declared = "v: {env: V, default: from default}"

    def value() -> Any:
        return environment(place, "'${var.v}'", declared, **sources)

    assert value() == "from option"
    del sources["variables"]
    assert value() == "from later file"
    sources["var_files"] = []
    (place.root / "one.yaml").unlink()
    (place.root / "two.yaml").unlink()
    assert value() == "from environment"
    sources["environ"] = {"V": ""}
    assert value() == "from default"  # an empty environment variable is how CI spells a missing one


def test_a_variable_that_only_a_target_uses_needs_a_value_too(place: Place) -> None:
    place.write("stack: s\nvariables: {r: {}}\ntargets: {t: {kind: modelarts, region: '${var.r}'}}\n")
    problem = place.problem()
    assert (problem.what, place_of(problem)) == ("variable without a value", "main.yaml:2:13")
    assert place.load(variables={"r": "cn-north-4"}).targets["t"].region == "cn-north-4"


def test_a_variable_file_that_cannot_be_read_may_have_given_the_value(place: Place) -> None:
    place.write(head("v: {}") + f"jobs:\n  a:{BODY % '${var.v}'}")
    values = place.write("v: [\n", "values.yaml")
    assert place.problem(var_files=[values]).what == "invalid YAML"


def test_names_that_nobody_declares_are_errors(place: Place) -> None:
    place.write(head("bucket: {default: b}"))
    values = place.write("other: 1\nbuckett: 2\n", "values.yaml")
    problems = place.problems(variables={"bucke": "x"}, var_files=[values])
    assert [(p.what, p.fix) for p in problems] == [
        ("unknown variable", 'did you mean "bucket"?'),
        ("unknown variable", None),
        ("unknown variable", 'did you mean "bucket"?'),
    ]
    assert place_of(problems[2]) == "values.yaml:2:1"


# Secrets


SECRET = "token: {env: TOKEN, sensitive: true}"


def test_a_text_with_a_secret_is_shown_with_the_name_in_its_place(place: Place) -> None:
    sent = environment(
        place,
        "'Bearer ${var.token} $${x} ${var.n}'",
        SECRET + ", n: {default: 1}",
        environ={"TOKEN": "hunter2!"},
    )
    assert isinstance(sent, SecretText)
    assert sent == "Bearer hunter2! ${x} 1"
    assert sent.reference == "Bearer ${var.token} $${x} 1"


def test_rotating_a_secret_changes_no_digest(place: Place) -> None:
    def digest(token: str) -> str:
        return place.job(BODY % "'${var.token}'", head(SECRET), environ={"TOKEN": token}).digest

    assert digest("hunter2!") == digest("correct horse")
    plain = place.job(BODY % "hunter2!", head(SECRET), environ={"TOKEN": "hunter2!"})
    assert plain.digest != digest("hunter2!")


def test_a_secret_that_reads_as_a_number_stays_text(place: Place) -> None:
    assert environment(place, "'${var.token}'", SECRET, environ={"TOKEN": "12345"}) == "12345"


def test_every_sensitive_value_is_known_for_redaction(place: Place) -> None:
    declared = (
        SECRET
        + ", unused: {env: UNUSED, sensitive: true}, option: {sensitive: true}, filed: {sensitive: true}"
        + ", literal: {sensitive: true, default: in the file}, plain: {default: shown}"
    )
    place.write(head(declared) + f"jobs:\n  a:{BODY % '${var.token}'}")
    loaded = place.load(
        variables={"option": "from option"},
        var_files=[place.write("filed: 1234567\n", "values.yaml")],
        environ={"TOKEN": "hunter2!", "UNUSED": "not asked for"},
    )
    assert set(loaded.secrets) == {"hunter2!", "not asked for", "from option", "1234567", "in the file"}
    assert "hunter2!" not in repr(loaded)
    assert "not asked for" not in repr(loaded)


def test_offline_too_a_sensitive_value_that_is_there_is_known(place: Place) -> None:
    place.write(head(SECRET + ", other: {sensitive: true}"))
    assert place.load(offline=True, environ={"TOKEN": "hunter2!"}).secrets == ("hunter2!",)


def test_a_value_that_another_one_outdoes_is_still_a_secret(place: Place) -> None:
    place.write(head("token: {env: TOKEN, sensitive: true, default: correct horse}"))
    loaded = place.load(variables={"token": "hunter2!"}, environ={"TOKEN": "battery staple"})
    assert set(loaded.secrets) == {"hunter2!", "battery staple", "correct horse"}


def test_the_secrets_of_files_that_disagree_are_not_shown(place: Place) -> None:
    place.write(head("token: {sensitive: true, default: correct horse}"))
    place.write("variables: {token: {sensitive: true, default: hunter2!}}\n", "more.yaml")
    problem = place.problem()
    assert problem.what == "files disagree"
    assert "hunter2!" not in repr(problem)


def test_line_of_a_file_that_cannot_be_read_and_says_sensitive_is_not_shown(place: Place) -> None:
    place.write(
        "stack: s\nvariables:\n  t: {sensitive: true\n  u: hunter2!}\n  v: {default: hunter3!\njobs: {}\n"
    )
    problem = place.problem()
    assert problem.what == "invalid YAML"
    assert problem.location is not None
    assert problem.snippet is None


@pytest.mark.parametrize("filler", [0, 45, 10_000])
def test_a_long_line_is_cut_after_its_secrets_are_taken_out(place: Place, filler: int) -> None:
    declared = "{token: {sensitive: true, default: correct-horse-battery-staple}"
    place.write(f"{{stack: s, variables: {declared}{' ' * filler}, typo: {{}}}}, jobs: {{}}, jbos: 1}}\n")
    problems = place.problems()
    for problem in problems:
        assert problem.snippet is not None
        assert len(problem.snippet.text) <= 122
        assert not re.search("corr|orse|batt|apl", problem.snippet.text)
    assert marked(problems[-1]) == "jbos"


def test_offline_a_secret_needs_no_value(place: Place) -> None:
    assert environment(place, "'${var.token}'", SECRET, offline=True) == "${var.token}"
    assert place.load(offline=True).secrets == ()
    place.write(head("v: {}") + f"jobs:\n  a:{BODY % '${var.v}'}")
    assert place.problem(offline=True).what == "variable without a value"


def test_a_default_of_a_sensitive_variable_is_a_warning(place: Place) -> None:
    place.write(head("token: {sensitive: true, default: hunter2!}"))
    (warning,) = place.load().warnings
    assert (warning.what, warning.severity) == ("literal secret", Severity.WARNING)
    assert "hunter2!" not in repr(warning)
    assert place.load().stack.warnings == (warning,)
