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


@pytest.mark.parametrize(("default", "given"), [("1", "one"), ("1", "1.5"), ("true", "yes"), ("0.5", "half")])
def test_text_that_is_not_of_the_type_of_the_default_is_an_error(
    place: Place, default: str, given: str
) -> None:
    place.write(head(f"v: {{default: {default}}}") + f"jobs:\n  a:{BODY % '${var.v}'}")
    problem = place.problem(variables={"v": given})
    assert problem.what == "wrong type"
    assert 'the value of "v" from --var must be' in problem.why
    assert (problem.path, marked(problem)) == ("variables.v.default", default)


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("'${job.key}'", "a"),
        ("'x-${job.key}-${var.n}'", "x-a-3"),
        ("'$${var.n}'", "${var.n}"),
        ("'$$${var.n}'", "$${var.n}"),
        ("'a $ b $HOME {x}'", "a $ b $HOME {x}"),
        ("'${env.HOME_DIR}'", "/home"),
        ("'${ var.n }'", "3"),
        ("'${var.t}'", "true"),
        ("'is ${var.t}'", "is true"),
    ],
)
def test_expressions(place: Place, text: str, sent: str) -> None:
    declared = "n: {default: 3}, t: {default: true}"
    assert environment(place, text, declared, environ={"HOME_DIR": "/home"}) == sent


def test_a_variable_may_hold_a_whole_mapping(place: Place) -> None:
    declared = "parameters: {default: {lr: 0.1, epochs: 3}}"
    body = JOB.replace("engine:", "parameters: '${var.parameters}', engine:")
    job = place.job(body, head(declared))
    assert job.body is not None
    assert job.body["algorithm"]["parameters"] == [
        {"name": "lr", "value": "0.1"},
        {"name": "epochs", "value": "3"},
    ]


def test_a_variable_without_a_value_is_told_once_whether_it_is_used_or_not(place: Place) -> None:
    jobs = "".join(f"  {key}:{BODY % '${var.v}'}" for key in "abc")
    place.write(head("v: {}, unused: {}, secret: {sensitive: true}") + f"jobs:\n{jobs}")
    problems = place.problems()
    assert {problem.what for problem in problems} == {"variable without a value"}
    assert [problem.path for problem in problems] == [f"variables.{n}" for n in ("v", "unused", "secret")]
    assert [marked(problem) for problem in problems] == ["v", "unused", "secret"]
    assert [problem.path for problem in place.problems(offline=True)] == ["variables.v", "variables.unused"]


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


@pytest.mark.parametrize(
    "declared",
    [
        "token: {sensitive: true, default: hunter2!, defualt: x}",
        "token: {sensitive: 'yes', default: hunter2!}",
        "token: {sensitive: true, default: [hunter2!], defualt: x}",
    ],
)
def test_the_secret_of_a_declaration_that_is_wrong_is_not_shown(place: Place, declared: str) -> None:
    place.write(head(declared))
    assert "hunter2!" not in repr(place.problem())


def test_the_secrets_of_files_that_disagree_are_not_shown(place: Place) -> None:
    place.write(head("token: {sensitive: true, default: correct horse}"))
    place.write("variables: {token: {sensitive: true, default: hunter2!}}\n", "more.yaml")
    problem = place.problem()
    assert problem.what == "files disagree"
    assert "hunter2!" not in repr(problem)


def test_a_value_marked_sensitive_is_not_shown_where_its_job_is_wrong(place: Place) -> None:
    parameters = "parameters: {p: {value: hunter2!, sensitive: true}, q: {valeu: 1}}, engine:"
    place.write(HEAD + f"jobs:\n  a:{JOB.replace('engine:', parameters)}")
    problem = place.problem()
    assert problem.what == "unknown field"
    assert "hunter2!" not in repr(problem)


@pytest.mark.parametrize(
    "wrong",
    [
        "environments: {p: {value: hunter2!, sensitive: true, foo: 1}}",
        "environments: {p: {value: hunter2!, sensitive: yes}}",
        "environments: {p: {value: hunter2!, Sensitive: true}}",
        "environments: {p: {value: hunter2!, ensitive: true}}",
        "environments: {p: {value: hunter2!, sensitve: true}}",
        "environments: {p: {value: hunter2!, is_sensitive: true}}",
        "environments: [{name: p, value: hunter2!, sensitive: true, foo: 1}]",
        "environments: [{name: p, value: hunter2!, sensitive: yes}]",
        "environments: [{name: p, value: hunter2!, sensitve: true}]",
        "environments: [{name: p-q, value: hunter2!, sensitive: true}]",
        "environments: [{name: p, value: [hunter2!], sensitive: true}]",
        "parameters: {p: {value: hunter2!, sensitive: 'true'}}",
        "parameters: {p: {vale: hunter2!, sensitive: true}}",
        "parameters: {p: {value: [hunter2!], sensitive: true}}",
        "parameters: {p: {value: 'hunter2!${var.none}', sensitive: true}}",
    ],
)
def test_value_that_was_meant_to_be_sensitive_is_not_shown(place: Place, wrong: str) -> None:
    place.write(HEAD + f"jobs:\n  a:{JOB.replace('engine:', f'{wrong}, engine:')}")
    for problem in place.problems():
        assert problem.snippet is not None
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


@pytest.mark.parametrize("field", ["kind", "spec", "algorithm", "lifecycle", "tasks", "raw", "annotations"])
@pytest.mark.parametrize("offline", [True, False])
def test_a_secret_is_text_and_nothing_else(place: Place, field: str, offline: bool) -> None:
    place.write(head(SECRET) + f"defaults:{JOB}jobs:\n  a: {{{field}: '${{var.token}}'}}\n")
    environ = {} if offline else {"TOKEN": "hunter2!"}
    problem = place.problem(offline=offline, environ=environ)
    assert problem.what in ("wrong type", "value not allowed", "secret not allowed here")
    assert "hunter2!" not in repr(problem)


@pytest.mark.parametrize("member", ["on_change", "max_retries", "retry_delay", "protect"])
def test_offline_a_secret_in_lifecycle_is_refused_too(place: Place, member: str) -> None:
    place.write(head(SECRET) + f"jobs:\n  a:{JOB}    lifecycle: {{{member}: '${{var.token}}'}}\n")
    problem = place.problem(offline=True)
    assert problem.location is not None
    assert "${var.token}" in problem.why + problem.path


@pytest.mark.parametrize(
    ("text", "marked_text"),
    [
        ("description: 'x ${var.token}'", "'x ${var.token}'"),
        ("lifecycle: {rerun: '${var.token}'}", "'${var.token}'"),
    ],
)
def test_a_secret_may_not_stand_where_it_would_be_shown(place: Place, text: str, marked_text: str) -> None:
    place.write(head(SECRET) + f"jobs:\n  a:{JOB}    {text}\n")
    problem = place.problem(environ={"TOKEN": "hunter2!"})
    assert problem.what == "secret not allowed here"
    assert marked(problem) == marked_text


def test_a_secret_may_not_name_a_member(place: Place) -> None:
    parameters = "parameters: [{name: '${var.token}', value: 1}], engine:"
    place.write(head(SECRET) + f"jobs:\n  a:{JOB.replace('engine:', parameters)}")
    problem = place.problem(environ={"TOKEN": "hunter2"})
    assert (problem.what, problem.path) == (
        "secret not allowed here",
        "jobs.a.algorithm.parameters.${var.token}.name",
    )


def test_no_secret_stands_in_a_diagnostic(place: Place) -> None:
    body = JOB.replace("node_count: 1", "node_count: '${var.token}', flavour: '${var.token}'")
    place.write(
        head("token: {env: TOKEN, sensitive: true, default: hunter2!}")
        + f"jobs:\n  a:{body}    kind: 'x-${{var.token}}'\n    state: '${{var.token}}'\n"
        + "    nonsense: hunter2!\n"
    )
    problems = place.problems()
    assert len(problems) >= 4
    assert "hunter2!" not in repr(problems)


def test_a_default_of_a_sensitive_variable_is_a_warning(place: Place) -> None:
    place.write(head("token: {sensitive: true, default: hunter2!}"))
    (warning,) = place.load().warnings
    assert (warning.what, warning.severity) == ("literal secret", Severity.WARNING)
    assert "hunter2!" not in repr(warning)
    assert place.load().stack.warnings == (warning,)
