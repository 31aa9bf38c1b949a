"""Target and environment → endpoint, project, cloud, network."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.fields.field_types import Cloud
from reconciler.core.ports import Clock
from reconciler.core.stack import Target
from reconciler.core.values import LOCAL
from reconciler.emulator import StoreError
from reconciler.errors import ManifestInvalid, Unauthorized
from reconciler.modelarts.connect import cloud_of, connect, endpoint_of, network_of, project_of
from reconciler.modelarts.http import NoCredentials
from reconciler.modelarts.local import LocalFileFailed, _fix_of
from reconciler.modelarts.target import Connected, Runtime, connected
from tests.modelarts.building import PROJECT, TOKEN


def a_target(**members: Any) -> Target:
    return Target.model_validate({"kind": "modelarts", "project_id": PROJECT, **members})


@pytest.mark.parametrize(
    ("entry", "endpoint"),
    [
        ({"region": "cn-north-4"}, "https://modelarts.cn-north-4.myhuaweicloud.com"),
        ({"region": "ap-southeast-1"}, "https://modelarts.ap-southeast-1.myhuaweicloud.cn"),
        ({"region": "eu-west-101"}, "https://modelarts.eu-west-101.myhuaweicloud.eu"),
        ({"region": "eu-de"}, "https://modelarts.eu-de.otc.t-systems.com"),
        ({"region": "cn-north-4", "endpoint": "https://private.example/"}, "https://private.example"),
        ({"endpoint": "http://localhost:8080"}, "http://localhost:8080"),
        ({"endpoint": "http://em.localhost:8080"}, "http://em.localhost:8080"),
        ({"endpoint": "http://[::1]:8080"}, "http://[::1]:8080"),
        ({"endpoint": "http://10.0.0.1", "insecure": True}, "http://10.0.0.1"),
    ],
)
def test_endpoint_follows_from_target_and_region(entry: dict[str, Any], endpoint: str) -> None:
    assert endpoint_of(a_target(**entry)) == endpoint


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"region": "evil.example/"},
        {"endpoint": "http://10.0.0.1"},
        {"endpoint": "http://localhost.example"},
        {"endpoint": "http://127.0.0.1.example"},
        {"endpoint": "ftp://host"},
        {"endpoint": "modelarts.example"},
        {"endpoint": "https://me:secret@host"},
        {"endpoint": "https://host?x=1"},
        {"endpoint": "https://host/v2"},
        {"endpoint": "https://host:port"},
        {"endpoint": "https://"},
    ],
)
def test_forbidden_endpoint_is_refused(entry: dict[str, Any]) -> None:
    with pytest.raises(ManifestInvalid) as problem:
        endpoint_of(a_target(**entry))
    fix = problem.value.diagnostics[0].fix or ""
    assert "insecure: true" in fix if entry.get("endpoint", "").startswith("http://") else fix
    assert "secret" not in str(problem.value)


@pytest.mark.parametrize(
    ("entry", "environ", "project"),
    [
        ({"project_id": "p1"}, {"OS_PROJECT_ID": "p3"}, "p1"),
        ({"project_id": None}, {"HUAWEICLOUD_SDK_PROJECT_ID": "p2", "OS_PROJECT_ID": "p3"}, "p2"),
        ({"project_id": ""}, {"OS_PROJECT_ID": "p3"}, "p3"),
    ],
)
def test_project_comes_from_the_target_or_else_the_environment(
    entry: dict[str, Any], environ: dict[str, str], project: str
) -> None:
    assert project_of(a_target(**entry), environ) == project


@pytest.mark.parametrize("project_id", [None, "../other", "a b"])
def test_missing_or_invalid_project_is_refused(project_id: str | None) -> None:
    with pytest.raises(ManifestInvalid):
        project_of(a_target(project_id=project_id), {})


@pytest.mark.parametrize(
    ("entry", "endpoint", "cloud"),
    [
        ({}, "https://modelarts.eu-de.otc.t-systems.com", Cloud.OTC),
        ({}, "https://modelarts.cn-north-4.myhuaweicloud.com", Cloud.HUAWEI),
        ({}, "https://otc.t-systems.com.example", Cloud.HUAWEI),
        ({"cloud": "otc"}, "https://private.example", Cloud.OTC),
        ({"cloud": "huawei"}, "https://modelarts.eu-de.otc.t-systems.com", Cloud.HUAWEI),
    ],
)
def test_cloud_follows_from_target_and_endpoint(entry: dict[str, Any], endpoint: str, cloud: Cloud) -> None:
    assert cloud_of(a_target(**entry), endpoint) is cloud


@pytest.mark.parametrize(
    ("environ", "endpoint", "proxies"),
    [
        ({"HTTPS_PROXY": "http://p:1"}, "https://h.example", {"https": "http://p:1"}),
        (
            {"https_proxy": "http://q:1", "HTTPS_PROXY": "http://p:1"},
            "https://h.example",
            {"https": "http://q:1"},
        ),
        ({"ALL_PROXY": "http://p:1"}, "https://h.example", {"https": "http://p:1"}),
        ({"HTTP_PROXY": "http://p:1"}, "https://h.example", {}),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": ".example"}, "https://h.example", {}),
        ({"HTTPS_PROXY": "http://p:1", "no_proxy": "*"}, "https://h.example", {}),
        ({"HTTP_PROXY": "http://p:1"}, "http://127.0.0.1:8080", {}),
        ({"HTTP_PROXY": "http://p:1"}, "http://em.localhost:8080", {}),
    ],
)
def test_proxy_comes_from_the_environment_unless_excluded_or_local(
    environ: dict[str, str], endpoint: str, proxies: dict[str, str]
) -> None:
    assert network_of(endpoint, environ).proxies == proxies


def test_ca_bundle_comes_from_the_environment() -> None:
    environ = {"SSL_CERT_FILE": "/b", "REQUESTS_CA_BUNDLE": "/a"}
    assert network_of("https://h.example", environ).ca_bundle == "/a"
    assert network_of("https://h.example", {}).ca_bundle is None


def test_missing_credentials_are_an_authentication_error_with_a_fix() -> None:
    with pytest.raises(NoCredentials) as problem:
        connect(a_target(region="cn-north-4"), {})
    assert isinstance(problem.value, Unauthorized)
    assert "HUAWEICLOUD_SDK_AK" in (problem.value.diagnostics[0].fix or "")


def test_connected_backend_has_endpoint_project_and_credentials() -> None:
    with connect(a_target(region="eu-de", workspace_id="w"), {"OS_TOKEN": TOKEN}) as backend:
        assert backend.session.endpoint == "https://modelarts.eu-de.otc.t-systems.com"
        assert (backend.project_id, backend.workspace_id, backend.cloud) == (PROJECT, "w", Cloud.OTC)
        assert backend.session.credentials.source == "OS_TOKEN"
        assert list(backend.session.secrets()) == [TOKEN]


class Frozen(Clock):
    def now(self) -> float:
        return 1.0

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing is tried again")


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Connected]:
    with connected("there", Target(kind=LOCAL), tmp_path, Runtime({}, Frozen())) as place:
        yield place


def run(directory: Path, sql: str) -> None:
    with closing(sqlite3.connect(directory / ".reconciler" / "local.sqlite3")) as file:
        file.execute(sql)


def test_request_failed_by_the_local_file_raises_without_retry(local: Connected, tmp_path: Path) -> None:
    run(tmp_path, "DROP TABLE jobs")
    with pytest.raises(LocalFileFailed, match="no such table: jobs") as raised:
        local.backend.details("00000000-0000-0000-0000-000000000000")
    assert str(raised.value.diagnostics[0].fix).startswith("remove ")


def test_clock_falls_back_without_the_local_file(local: Connected, tmp_path: Path) -> None:
    assert local.clock.now() > 1.0
    run(tmp_path, "DROP TABLE clock")
    assert local.clock.now() == 1.0


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("SQLITE_BUSY", "another process is using it; retry when that process has ended"),
        ("SQLITE_BUSY_SNAPSHOT", "another process is using it; retry when that process has ended"),
        ("SQLITE_READONLY", "local.sqlite3 must be a writable file, and r a directory"),
        ("SQLITE_CANTOPEN", "local.sqlite3 must be a writable file, and r a directory"),
        ("SQLITE_FULL", "check whether the disk is full"),
        ("SQLITE_CORRUPT", "remove r/local.sqlite3 if the jobs of the local target may be lost"),
    ],
)
def test_fix_suggests_no_removal_of_a_locked_file(name: str, fix: str) -> None:
    error = StoreError("said by the database")
    error.sqlite_errorname = name
    assert _fix_of(error, Path("r/local.sqlite3")) == fix
