"""Endpoint URLs: which are local, and which are valid."""

from __future__ import annotations

import pytest

from reconciler.core.addresses import endpoint_problem, is_loopback
from reconciler.core.record import Scope
from reconciler.core.values import MODELARTS
from tests.builders import TARGET

HERE = ("localhost", "LOCALHOST", "em.localhost", "a.b.localhost", "127.0.0.1", "127.8.9.1", "::1")
ELSEWHERE = ("", "10.0.0.1", "0.0.0.0", "localhost.a", "127.0.0.1.a", "mylocalhost", "::", "example.com")


@pytest.mark.parametrize("host", [*HERE, *ELSEWHERE])
def test_only_local_host_names_are_loopback(host: str) -> None:
    assert is_loopback(host) is (host in HERE)


@pytest.mark.parametrize(
    ("endpoint", "insecure"),
    [
        ("https://modelarts.example.com", False),
        ("https://modelarts.example.com:443/", False),
        (" https://modelarts.example.com ", False),
        ("http://em.localhost:8080", False),
        ("http://[::1]:8080", False),
        ("http://10.0.0.1", True),
    ],
)
def test_valid_endpoint_is_accepted(endpoint: str, insecure: bool) -> None:
    assert endpoint_problem(endpoint, insecure) is None


@pytest.mark.parametrize(
    ("endpoint", "message"),
    [
        ("", "not a valid URL"),
        ("modelarts.example.com", "not a valid URL"),
        ("ftp://host", "not a valid URL"),
        ("https://", "not a valid URL"),
        ("https://host:port", "not a valid URL"),
        ("https://host:99999", "not a valid URL"),
        ("https://[::1", "not a valid URL"),
        ("https://ho st", "not a valid URL"),
        ("https://ho\nst", "not a valid URL"),
        ("https://hö.example", "not a valid URL"),
        ("https://me:hunter2@host", "a user name or password"),
        ("https://me:hunter2@host:port", "a user name or password"),
        ("me:hunter2@host", "a user name or password"),
        ("https://host/v2", "path"),
        ("https://host?a=b", "query"),
        ("https://host#a", "fragment"),
        ("http://10.0.0.1", "10.0.0.1 unencrypted"),
        ("http://localhost.example", "localhost.example unencrypted"),
    ],
)
def test_invalid_endpoint_is_refused_with_why_and_fix(endpoint: str, message: str) -> None:
    problem = endpoint_problem(endpoint, insecure=False)
    assert problem is not None
    why, fix = problem
    assert message in why
    assert fix
    assert "hunter2" not in why + fix


def test_url_that_is_no_endpoint_may_have_a_path() -> None:
    assert endpoint_problem("https://iam.example.com/v3", insecure=False, takes_path=True) is None
    assert endpoint_problem("https://iam.example.com/v3?a=b", insecure=False, takes_path=True) is not None


@pytest.mark.parametrize(
    ("one", "other"), [("https://here", "https://HERE:443"), ("http://127.0.0.1", "http://127.0.0.1:80")]
)
def test_default_port_does_not_change_the_scope(one: str, other: str) -> None:
    def scope(endpoint: str) -> Scope:
        return Scope.of("test", TARGET.model_copy(update={"kind": MODELARTS, "endpoint": endpoint}))

    assert scope(one) == scope(other)
    assert scope(one) != scope(f"{one}:8443")
