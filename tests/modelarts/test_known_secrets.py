"""What of our own is at hand is known from the start, whichever of it is used."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.modelarts.known_secrets import known_secrets
from reconciler.secrets import CREDENTIAL_NAMES


@pytest.mark.parametrize("name", sorted(CREDENTIAL_NAMES - {"RECONCILER_RECORDS", "RECONCILER_VAR"}))
def test_every_credential_in_the_environment_is_a_known_secret(name: str) -> None:
    assert set(known_secrets({name: " some-value ", "OS_USERNAME": "anna"})) == {" some-value ", "some-value"}


@pytest.mark.parametrize(
    ("name", "url", "known"),
    [
        ("HTTPS_PROXY", "http://anna:p%40ss@proxy:3128", {"p%40ss", "p@ss", "anna:p%40ss", "anna:p@ss"}),
        ("all_proxy", "a-token@proxy:3128", {"a-token"}),
        ("https_proxy", "http://proxy:3128", set()),
        ("RECONCILER_RECORDS", "postgresql://anna:p%40ss@host/db", {"p%40ss", "p@ss"}),
        ("RECONCILER_RECORDS", "postgresql://anna@host/db?sslpassword=a%20b&x=1", {"a%20b", "a b"}),
        ("OS_AUTH_URL", "https://iam.example/v3", set()),
        ("HOME_PAGE", "https://anna:pass@host", set()),
    ],
)
def test_passwords_in_urls_are_known_secrets(name: str, url: str, known: set[str]) -> None:
    assert set(known_secrets({name: url})) == known


def test_secrets_of_every_credentials_file_section_are_known(tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    text = "[basic]\nak = the-ak\nsk=the-sk/+=\nregion = cn-north-4\n[other\nsecurity_token: the-token\nak\n"
    file.write_text(text + "project_id = p1\napi_password = pw-1\n", encoding="utf-8")
    known = set(known_secrets({"HUAWEICLOUD_SDK_CREDENTIALS_FILE": str(file)}))
    assert known == {"the-ak", "the-sk/+=", "the-token", "pw-1"}


@pytest.mark.parametrize("kind", ["missing", "directory", "unreadable"])
def test_unreadable_credentials_file_adds_no_known_secrets(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "credentials"
    if kind == "directory":
        file.mkdir()
    elif kind == "unreadable":
        file.write_bytes(b"\xff\xfe\x00" * 10)
    assert list(known_secrets({"HUAWEICLOUD_SDK_CREDENTIALS_FILE": str(file)})) == []
