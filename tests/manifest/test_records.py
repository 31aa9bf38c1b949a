"""`records`: the URL of the store, complete or partial, and never with its password."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.errors import ManifestInvalid
from reconciler.manifest.saved_secrets import SecretSources, resolve_records
from reconciler.secrets import Redactor, SecretText
from tests.manifest.conftest import Place, marked, place_of

VARIABLES = (
    "variables: {host: {default: db}, path: {default: $dir}, list: {default: [1]}, "
    "token: {env: TOKEN, sensitive: true}}\n"
)


def test_omitted_records_have_no_url(place: Place) -> None:
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
def test_records_url_is_resolved_and_its_reference_is_kept(
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
    given = SecretSources({}, (), environ, lambda _: None)
    again = resolve_records(
        loaded.records_reference or "", loaded.sources, Path("elsewhere"), given, place.root
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


def test_unset_environment_variable_fails_only_when_the_url_is_used(place: Place) -> None:
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


def test_offline_sensitive_variable_needs_no_value_until_the_url_is_used(place: Place) -> None:
    place.write(f"stack: s\n{VARIABLES}records: postgresql://a:${{var.token}}@db/x\n")
    loaded = place.load(offline=True)
    assert loaded.secrets == ()
    assert loaded.records_reference == "postgresql://a:${var.token}@db/x"
    with pytest.raises(ManifestInvalid, match="variable without a value"):
        loaded.records_url()
