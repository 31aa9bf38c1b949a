"""`records`: the URL of the store, whole or as far as the environment goes, and never with its password."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reconciler.errors import ManifestInvalid
from reconciler.manifest.saved_secrets import resolve_records
from reconciler.secrets import Redactor, SecretText
from tests.manifest.conftest import Place, marked, place_of

VARIABLES = (
    "variables: {host: {default: db}, path: {default: $dir}, list: {default: [1]}, "
    "token: {env: TOKEN, sensitive: true}}\n"
)


def url_of(place: Place, text: str, **environ: str) -> str | None:
    place.write(f"stack: s\n{VARIABLES}records: {text}\n")
    return place.load(environ={"TOKEN": "hunter2!", **environ}).records_url()


def test_left_out_there_is_none(place: Place) -> None:
    for text in ("stack: s\n", "stack: s\nrecords:\n"):
        place.write(text)
        loaded = place.load()
        assert loaded.records_url() is None
        assert loaded.records_reference is None


@pytest.mark.parametrize(
    ("text", "url", "reference"),
    [
        ("postgresql://db/app", "postgresql://db/app", "postgresql://db/app"),
        ("postgresql://db:5432/app?options=a@b", "postgresql://db:5432/app?options=a@b", None),
        ("postgresql://app@db/app?sslmode=require", "postgresql://app@db/app?sslmode=require", None),
        ("'postgresql://${var.host}/app'", "postgresql://db/app", "postgresql://db/app"),
        ("'postgresql://${env.HOST}/app'", "postgresql://server/app", "postgresql://${env.HOST}/app"),
        ("'${env.URL}'", "postgresql://a:pa%2Fss@h/d", "${env.URL}"),
        ("'postgresql://a:${env.PW}@db/app'", "postgresql://a:swordfish@db/app", None),
        ("'postgresql://a:${var.token}@${var.host}/x'", "postgresql://a:hunter2!@db/x",
         "postgresql://a:${var.token}@db/x"),
        ("'postgresql://a:$${var.token}@db/x'", None, None),
        ("'postgresql://a@db/x?password=${env.PW}'", "postgresql://a@db/x?password=swordfish", None),
        ("sqlite:////var/lib/r.db", "sqlite:////var/lib/r.db", "sqlite:////var/lib/r.db"),
        ("sqlite:///r.db", "sqlite:///ROOT/r.db", "sqlite:///r.db"),
        ("sqlite:///../shared/r.db", "sqlite:///ROOT/../shared/r.db", "sqlite:///../shared/r.db"),
        ("'sqlite:///${var.path}${env.HOST}'", "sqlite:///ROOT/$dirserver", "sqlite:///$dir${env.HOST}"),
    ],
)  # fmt: skip
def test_url_is_whole_and_its_reference_can_be_kept(
    place: Place, text: str, url: str | None, reference: str | None
) -> None:
    environ = {"HOST": "server", "URL": "postgresql://a:pa%2Fss@h/d", "PW": "swordfish", "TOKEN": "hunter2!"}
    place.write(f"stack: s\n{VARIABLES}records: {text}\n")
    if url is None:
        assert place.problem(environ=environ).what == "literal secret"
        return
    loaded = place.load(environ=environ)
    assert loaded.records_url() == url.replace("ROOT", str(place.root))
    assert loaded.records_reference == (reference or text.strip("'"))
    again = resolve_records(
        loaded.records_reference or "",
        loaded.sources,
        variables={},
        environ=environ,
        base=Path("elsewhere"),
        root=place.root,
    )
    assert again == loaded.records_url()


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://a:${env.PW}@db/app",
        "postgresql://a:x${env.PW}y@db/app",
        "postgresql://a@db/app?sslmode=require&password=${env.PW}",
        "postgresql://${env.USERINFO}@db/app",
        "${env.URL}",
        "${env.MESSY}",
        "postgresql://a:${env.MESSY_PW}@db/app",
    ],
)
def test_password_from_the_environment_is_a_secret(place: Place, text: str) -> None:
    environ = {
        "PW": "sword%2Ffish",
        "USERINFO": "a:sword%2Ffish",
        "URL": "postgres://a:sword%2Ffish@db/app",
        "MESSY": "postgres://a:sword/fish@db/app",
        "MESSY_PW": "sword/fish",
    }
    place.write(f"stack: s\nrecords: '{text}'\n")
    loaded = place.load(environ=environ)
    redact = Redactor(loaded.secrets)
    if "MESSY" not in text:
        assert isinstance(url := loaded.records_url(), SecretText)
        assert url.reference == text
        assert "sword%2Ffish" in url
    for spelled in ("sword%2Ffish", "sword/fish"):
        if spelled == "sword/fish" or "MESSY" not in text:
            assert "fish" not in redact(f"cannot connect with {spelled} to db")


def test_sensitive_variable_may_stand_there(place: Place) -> None:
    url = url_of(place, "'postgresql://a:${var.token}@db/x'")
    assert isinstance(url, SecretText)
    assert url == "postgresql://a:hunter2!@db/x"
    assert url.reference == "postgresql://a:${var.token}@db/x"


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://a:hunter2@db/app",
        "postgresql://a:pw@db/app",
        "postgresql://a:${var.token}@db/app?password=pw",
        "postgresql://a@db/app?sslpassword=pw",
        "${env.SCHEME}://a:hunter2@db/app",
        "oracle://a:hunter2@db/app",
        "postgresql://a:hunter2/pw@db/app",
        "postgresql://a:hunter2#@db/app",
    ],
)
def test_literal_password_is_refused_and_not_shown(place: Place, text: str) -> None:
    place.write(f"stack: s\n{VARIABLES}records: '{text}'\n")
    problem = place.problem(environ={"TOKEN": "t0ken!"})
    assert (problem.what, problem.path, problem.snippet) == ("literal secret", "records", None)
    assert place_of(problem) == "main.yaml:3:10"
    assert "hunter2" not in repr(problem)
    assert "pw" not in repr(problem)
    assert "${env." in (problem.fix or "")


@pytest.mark.parametrize("text", ["postgresql://a:${var.open}@db/app", "${var.url}"])
def test_variable_that_gives_a_password_has_to_be_sensitive(place: Place, text: str) -> None:
    variables = "{open: {default: hunter2}, url: {default: 'postgresql://a:hunter2@db/app'}}"
    place.write(f"stack: s\nvariables: {variables}\nrecords: '{text}'\n")
    problem = place.problem()
    assert (problem.what, place_of(problem)) == ("secret not allowed here", "main.yaml:3:10")
    assert "sensitive: true" in (problem.fix or "")
    assert "hunter2" not in repr(problem)


@pytest.mark.parametrize(
    ("text", "what", "why"),
    [
        ("oracle://db/app", "not a valid record store URL", '"oracle" is not one of'),
        ("'${var.host}'", "not a valid record store URL", "the scheme is missing"),
        ("somewhere", "not a valid record store URL", "the scheme is missing"),
        ("''", "not a valid record store URL", "the scheme is missing"),
        ("'oracle://${env.NOT_SET}/'", "not a valid record store URL", '"oracle" is not one of'),
        ("'my sql://x'", "not a valid record store URL", "its scheme is not one of"),
        ("postgresql://db", "not a valid record store URL", "the database name is missing"),
        ("'postgresql://${var.host}'", "not a valid record store URL", "the database name is missing"),
        ("postgresql://db:port/app", "not a valid record store URL", "it cannot be parsed"),
        ("sqlite://r.db", "not a valid record store URL", "three slashes"),
        ("sqlite:///", "not a valid record store URL", "three slashes"),
        ("sqlite:////", "not a valid record store URL", "three slashes"),
        ("'${var.list}'", "wrong type", "a list or a mapping"),
        ("'postgresql://${var.list}/'", "wrong type", "cannot be embedded in text"),
        ("'postgresql://${var.hots}/'", "unknown variable", 'undefined variable "hots"'),
        ("'postgresql://${job.key}/'", "invalid expression", "below jobs and defaults"),
        ("[postgresql://db/app]", "wrong type", "expected text, got a list"),
        ("3", "wrong type", "expected text, got 3"),
    ],
)
def test_what_is_no_url_is_told(place: Place, text: str, what: str, why: str) -> None:
    place.write(f"stack: s\n{VARIABLES}records: {text}\n")
    problem = place.problem(environ={"TOKEN": "t0ken!"})
    assert (problem.what, problem.path) == (what, "records")
    assert why in problem.why
    assert place_of(problem).startswith("main.yaml:3:")
    if what == "not a valid record store URL":
        assert "sqlite:///PATH" in (problem.fix or "")


def test_unset_environment_variable_matters_only_for_who_needs_the_url(place: Place) -> None:
    place.write("stack: s\nrecords: postgresql://a:${env.PW}@${env.HOST}/app\n")
    loaded = place.load()
    assert loaded.records_reference == "postgresql://a:${env.PW}@${env.HOST}/app"
    with pytest.raises(ManifestInvalid) as raised:
        loaded.records_url()
    first, second = raised.value.diagnostics
    assert (first.what, place_of(first), marked(first)) == (
        "environment variable not set",
        "main.yaml:2:25",
        "${env.PW}",
    )
    assert (second.why, second.fix, place_of(second)) == (
        "HOST is not set",
        "export HOST=VALUE",
        "main.yaml:2:35",
    )


def test_offline_a_sensitive_variable_needs_no_value_until_the_url_is_used(place: Place) -> None:
    place.write(f"stack: s\n{VARIABLES}records: postgresql://a:${{var.token}}@db/x\n")
    loaded = place.load(offline=True)
    assert loaded.secrets == ()
    assert loaded.records_reference == "postgresql://a:${var.token}@db/x"
    with pytest.raises(ManifestInvalid, match="variable without a value"):
        loaded.records_url()


def test_without_a_value_a_variable_is_told_once_where_it_is_declared(place: Place) -> None:
    place.write("stack: s\nvariables: {host: {}}\nrecords: postgresql://${var.host}/x\n")
    problem = place.problem()
    assert (problem.what, place_of(problem)) == ("variable without a value", "main.yaml:2:13")


def test_two_files_may_say_the_same_and_not_disagree(place: Place) -> None:
    place.write("stack: s\nrecords: sqlite:///r.db\n")
    place.write("records: sqlite:///r.db\n", "more/a.yaml")
    assert place.load().records_url() == f"sqlite:///{place.root}/r.db"
    place.write("records: sqlite:///q.db\n", "more/a.yaml")
    problem = place.problem()
    assert (problem.what, place_of(problem)) == ("files disagree", "a.yaml:1:1")
    assert "main.yaml:2:1 has a different value" in problem.why


@pytest.mark.parametrize(
    ("main", "more"),
    [
        ("records: sqlite:///r.db", "records: postgresql://a:hunter2@db/app"),
        ("records: postgresql://a:hunter2@db/app", "records: postgresql://a:hunter3@db/app"),
        ("records: [postgresql://a:hunter2@db/app]", ""),
        ("records: {url: postgresql://a:hunter2@db/app}", ""),
        ("record: postgresql://a:hunter2@db/app", ""),
        ("records: postgresql//a:hunter2@db/app", ""),
        ("records: 'postgresql:/a:hunter2@db/app'", ""),
        ("records: postgresql://a:hunter/2@db/app", ""),
        ("records: postgresql://a:hunter@2@db/app", ""),
        ("{records: postgresql://a:hunter2@db/app, jbos: 1}", ""),
    ],
)
def test_password_is_shown_by_no_other_problem_either(place: Place, main: str, more: str) -> None:
    place.write("stack: s\n", "main.yaml")
    place.write(f"{main}\n", "one.yaml")
    place.write(f"{more}\n", "two.yaml")
    told: Any = place.problems()
    assert told
    assert "hunter" not in repr(told)


def test_sensitive_value_is_not_shown_with_the_problem(place: Place) -> None:
    place.write(f"stack: s\n{VARIABLES}records: '${{var.token}}'\n")
    problem = place.problem(environ={"TOKEN": "oracle://a:hunter2@db"})
    assert problem.what == "not a valid record store URL"
    assert "hunter2" not in repr(problem)
