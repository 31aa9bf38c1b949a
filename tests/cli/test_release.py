"""`reconciler release`, as a user calls it: what runs goes on, and is nobody's."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.core.identity import parse_description
from reconciler.emulator import Effect, Fault
from tests.cli.conftest import Reconciler, Service, manifest, write
from tests.cli.test_adopt import UPDATE, changing, check_nothing_changes, descriptions

SECRET = "variables: {token: {env: TOKEN_OF_NOBODY, sensitive: true}}\n"


def applied(reconciler: Reconciler, service: Service, *keys: str) -> None:
    """The jobs of a stack, which run."""
    write(manifest(*keys, url=service.url))
    assert reconciler("apply", "--yes").code == 0
    service.clock.advance(seconds=60)
    service.app.requests.clear()


def test_marker_is_taken_off_and_the_text_of_the_description_stays(
    reconciler: Reconciler, service: Service
) -> None:
    applied(reconciler, service, "a")
    said = reconciler("release", "a", "--yes")
    assert said.code == 0, said.err
    assert descriptions(service) == {"a": "a of the test"}
    assert [job.life.phase for job in service.store.jobs()] == ["Running"]
    assert changing(service) == [UPDATE]
    assert "the next plan will be in conflict (name taken)" in said.out
    assert "fix: remove a from jobs.yaml" in said.out
    assert "release: complete" in reconciler("history", "a").out


def test_released_job_is_not_taken_back_by_the_history(reconciler: Reconciler, service: Service) -> None:
    applied(reconciler, service, "a", "b")
    [job] = [job for job in service.store.jobs() if job.body["metadata"]["name"] == "a"]
    assert reconciler("release", "a", "--yes").code == 0
    for _ in range(2):
        said = reconciler("plan")
        assert "1 in conflict" in said.out
        assert f"adopt it (reconciler adopt a {job.id}), or rename the key" in said.out
    assert "unowned" in reconciler("drift").out
    write(manifest("b", url=service.url))
    check_nothing_changes(reconciler)
    assert reconciler("apply", "--yes").code == 0
    assert descriptions(service)["a"] == "a of the test"


def test_released_job_is_adopted_again_as_the_next_revision(reconciler: Reconciler, service: Service) -> None:
    applied(reconciler, service, "a")
    [job] = service.store.jobs()
    assert reconciler("release", "a", "--yes").code == 0
    assert reconciler("adopt", "a", job.id, "--yes").code == 0
    assert ".r2." in descriptions(service)["a"]
    check_nothing_changes(reconciler)
    revisions = reconciler("history", "a", "--json").document["revisions"]
    assert [(one["revision"], one["released_at"] is not None) for one in revisions] == [(2, False), (1, True)]
    assert all(one["declared"] for one in revisions)


def test_key_that_is_not_declared_any_more_is_released_without_a_warning(
    reconciler: Reconciler, service: Service
) -> None:
    applied(reconciler, service, "a", "b")
    write(manifest("b", url=service.url))
    said = reconciler("release", "a", "--yes")
    assert said.code == 0
    assert "still declared" not in said.out
    assert parse_description(descriptions(service)["a"]).marker is None
    check_nothing_changes(reconciler)


def test_release_needs_no_value_of_a_secret(reconciler: Reconciler, service: Service) -> None:
    applied(reconciler, service, "a")
    text = manifest("a", url=service.url, more=SECRET)
    write(text.replace("parameters:", "environments: {T: '${var.token}'}\n      parameters:"))
    assert reconciler("plan").code == 65
    assert reconciler("release", "a", "--yes").code == 0


def test_release_that_the_service_refuses_leaves_the_job_ours(
    reconciler: Reconciler, service: Service
) -> None:
    applied(reconciler, service, "a")
    service.app.faults.add(Fault(Effect.ANSWER, operation=UPDATE, status=400, code="ModelArts.2763"))
    assert reconciler("release", "a", "--yes").code == 5
    check_nothing_changes(reconciler)
    [revision] = reconciler("history", "a", "--json").document["revisions"]
    assert revision["released_at"] is None


def test_fresh_checkout_releases_too(reconciler: Reconciler, service: Service) -> None:
    applied(reconciler, service, "a")
    Path(".reconciler/records.sqlite3").unlink()
    assert reconciler("release", "a", "--yes").code == 0
    assert "1 in conflict" in reconciler("plan").out


@pytest.mark.parametrize(
    ("key", "code", "words"),
    [
        ("a", 3, "fix: add --yes"),
        ("b", 0, "nothing to do: stack test owns no job of key b"),
        ("ressnet", 64, 'did you mean "resnet"?'),
    ],
)
def test_release_that_is_not_confirmed_or_has_nothing_to_do_changes_nothing(
    reconciler: Reconciler, service: Service, key: str, code: int, words: str
) -> None:
    applied(reconciler, service, "a")
    write(manifest("a", "b", "resnet", url=service.url))
    said = reconciler("release", key)
    assert (said.code, words in said.out + said.err, changing(service)) == (code, True, [])
