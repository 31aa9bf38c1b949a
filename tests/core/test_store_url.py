"""Record store URLs: parsing, errors, and display."""

from __future__ import annotations

import pytest

from reconciler.core.addresses import (
    HOLE,
    STORES,
    StoreKind,
    file_url,
    parse_store_url,
    passwords_in,
    store_url_problem,
    written_passwords,
)
from reconciler.errors import WrongUsage


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("records.db", "the scheme is missing"),
        ("oracle://u:hunter22@h/d", '"oracle" is not one of'),
        ("://u:hunter22@h/d", "its scheme is not one of"),
        ("sqlite://records.db", "three slashes"),
        ("sqlite:///", "three slashes"),
        ("sqlite:////", "three slashes"),
        ("postgresql://u:hunter22/d", "it cannot be parsed"),
        ("postgresql://u:hunter22@h:port/d", "it cannot be parsed"),
        ("postgresql://u:hun@hunter22@h/d", "it contains two @"),
        ("postgresql://u:hunter22@h", "the database name is missing"),
    ],
)
def test_invalid_store_url_is_refused_without_showing_a_password(url: str, why: str) -> None:
    with pytest.raises(WrongUsage) as refused:
        parse_store_url(url)
    (told,) = refused.value.diagnostics
    assert told.what == "not a valid record store URL"
    assert why in told.why
    assert told.fix == "write " + " or ".join(kind.form for kind in STORES)
    assert "hunter22" not in str(told)
    assert store_url_problem(url) == told


@pytest.mark.parametrize(
    ("url", "is_told"),
    [
        (f"{HOLE}://anything", False),
        (f"{HOLE}", False),
        (f"postgresql://{HOLE}", False),
        (f"postgresql://u:{HOLE}@h", False),
        (f"sqlite://{HOLE}", False),
        (f"sqlite:///{HOLE}", False),
        (f"sqlite://r{HOLE}.db", True),
        (f"oracle://{HOLE}", True),
        (f"{HOLE}records", False),
        (f"records/{HOLE}", False),
    ],
)
def test_store_url_with_unknown_values_is_checked_as_far_as_known(url: str, is_told: bool) -> None:
    assert (store_url_problem(url) is not None) == is_told


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_store_url_is_shown_without_credentials_and_options(scheme: str) -> None:
    url = parse_store_url(f"{scheme}://ann:hunter%2022@h:5433/d?sslpassword=sword%2Ffish&sslmode=require")
    assert url.shown == "postgresql://ann@h:5433/d"
    for spelled in ("hunter 22", "hunter%2022", "hunter+22", "sword/fish", "sword%2Ffish"):
        assert spelled not in repr(url)
        assert url.without_secrets(f"with {spelled}") == "with (sensitive)"


@pytest.mark.parametrize(
    ("rest", "parts"),
    [
        ("ann:p/w@h/d", ("ann", "p/w", "h", None, "d")),
        ("ann:5/w@h/d", ("ann", "5/w", "h", None, "d")),
        ("h:5432/d?options=a@b", (None, None, "h", 5432, "d")),
        ("ann@h:5432/d?options=a@b", ("ann", None, "h", 5432, "d")),
        ("ann:p%3Fw@[::1]:5432/d", ("ann", "p?w", "::1", 5432, "d")),
        ("/d?host=%2Ftmp", (None, None, None, None, "d")),
    ],
)
def test_server_url_is_parsed_into_its_parts(rest: str, parts: tuple[object, ...]) -> None:
    url = parse_store_url(f"postgresql://{rest}")
    assert (url.user, url.password, url.host, url.port, url.name) == parts


def test_database_name_in_a_store_url_may_be_quoted() -> None:
    url = parse_store_url("postgresql://h/my%3Fdb")
    assert (url.name, url.shown) == ("my?db", "postgresql://h/my%3Fdb")


def test_file_url_is_shown_as_written() -> None:
    url = file_url("/var/r.db")
    assert url == parse_store_url(url).shown == "sqlite:////var/r.db"


@pytest.mark.parametrize(
    ("url", "regular", "all_written"),
    [
        ("postgresql://a:pw@h/d", {"pw"}, {"pw"}),
        ("postgresql://a@h/d?sslpassword=pw", {"pw"}, {"pw"}),
        ("postgresql://a@h:5432/d?options=a@b", set(), set()),
        ("postgresql://a:p/w@h/d", set(), {"p/w"}),
        ("a:pw@h", set(), set()),
    ],
)
def test_passwords_in_a_store_url_are_found(url: str, regular: set[str], all_written: set[str]) -> None:
    assert (set(passwords_in(url)), set(written_passwords(url))) == (regular, all_written)


@pytest.mark.parametrize("kind", STORES, ids=lambda kind: kind.name)
def test_example_url_of_each_store_kind_is_parsed_as_that_kind(kind: StoreKind) -> None:
    assert kind.name in kind.schemes
    assert parse_store_url(kind.form).kind is kind
