"""`drift --since-last`, `drift.ignore` and `accept`, as a person and a program see them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from reconciler.emulator import Effect, Fault, Job
from tests.cli.conftest import Reconciler, Said, Service, manifest, write

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "schemas/drift.schema.json").read_text(encoding="utf-8"))


@pytest.fixture
def failed(reconciler: Reconciler, service: Service) -> Job:
    """Two jobs, of which `a` has failed since."""
    write(manifest("a", "b", url=service.url))
    assert reconciler("apply", "--yes").code == 0
    service.clock.advance(seconds=7200)
    job = next(job for job in service.store.jobs() if job.name == "a")
    service.store.set_phase(job.id, "Failed")
    return job


def with_rule(service: Service, rule: str) -> None:
    more = f"drift:\n  ignore:\n  - {rule}\n"
    write(manifest("a", "b", url=service.url, more=more))


def lists(said: Said) -> dict[str, list[tuple[str, str]]]:
    document = said.document
    names = ("drift", "ignored", "new", "changed", "gone")
    return {name: [(one["key"], one["class"]) for one in document.get(name, ())] for name in names}


def check(reconciler: Reconciler, *more: str) -> Said:
    said = reconciler("drift", "--json", *more)
    Draft202012Validator(SCHEMA).validate(said.document)
    return said


A_FAILED = [("a", "failed")]
NOTHING: list[tuple[str, str]] = []


# --- since the last check


def test_first_check_since_the_last_finds_everything_new_and_the_second_nothing(
    reconciler: Reconciler, failed: Job
) -> None:
    first = check(reconciler, "--since-last")
    assert (first.code, lists(first)["new"], first.document["compared_with"]) == (2, A_FAILED, None)
    second = check(reconciler, "--since-last")
    assert (second.code, lists(second)) == (
        0, {"drift": A_FAILED, "ignored": [], "new": [], "changed": [], "gone": []}
    )  # fmt: skip
    assert second.document["compared_with"] == first.document["created_at"]
    [entry] = second.document["drift"]
    assert entry["since"] == first.document["created_at"]
    assert 1.9 < entry["node_hours"] < 2.1
    assert entry["fix"].startswith("reconciler jobs logs a; then edit `lifecycle.rerun` of a")
    [entry] = reconciler("why", "a", "--json").document["drift"]
    assert (entry["class"], entry["since"]) == ("failed", first.document["created_at"])
    plain = check(reconciler)
    assert (plain.code, {"new", "changed", "gone", "compared_with"} & set(plain.document)) == (2, set())


def test_drift_that_lasts_is_told_again_after_remind(reconciler: Reconciler, failed: Job) -> None:
    assert check(reconciler, "--since-last").code == 2
    assert check(reconciler, "--since-last", "--remind", "0s").code == 2
    assert check(reconciler, "--since-last", "--remind", "1h").code == 0


def test_report_that_could_not_be_written_is_due_again(reconciler: Reconciler, failed: Job) -> None:
    assert reconciler("drift", "--since-last", "-o", "html=nowhere/report.html").code == 1
    said = check(reconciler, "--since-last")
    assert (said.code, lists(said)["new"], lists(said)["drift"]) == (2, [], A_FAILED)
    assert check(reconciler, "--since-last").code == 0


def test_text_shows_what_is_new_first(reconciler: Reconciler, service: Service, failed: Job) -> None:
    assert "New; no earlier check is recorded:" in reconciler("drift", "--since-last").out
    [other] = [job for job in service.store.jobs() if job.name == "b"]
    service.store.set_phase(other.id, "Terminated")
    lines = reconciler("drift", "--since-last").out.splitlines()
    titles = [line for line in lines if line.endswith(":")]
    assert [title.partition(" since ")[0] for title in titles] == ["New", "Lasting:"]
    assert lines.index(titles[0]) < next(n for n, line in enumerate(lines) if "terminated b" in line)
    assert lines.index(titles[1]) < next(n for n, line in enumerate(lines) if "failed     a" in line)
    assert lines[-1] == "Drift: 1 failed, 1 terminated; 1 new, 0 changed, 0 gone; 0 pending, 2 compared."


def test_every_format_tells_what_is_new_and_what_is_ignored(
    reconciler: Reconciler, service: Service, failed: Job
) -> None:
    assert reconciler("drift").code == 2
    with_rule(service, "{key: a, class: failed, reason: known gap}")
    [other] = [job for job in service.store.jobs() if job.name == "b"]
    service.store.set_phase(other.id, "Terminated")
    formats = ("text", "markdown", "html", "github", "junit", "sarif", "prometheus")
    outputs = [word for name in formats for word in ("-o", f"{name}={name}.out")]
    assert reconciler("drift", "--since-last", *outputs).code == 2
    texts = {name: Path(f"{name}.out").read_text(encoding="utf-8") for name in formats}
    metrics = texts.pop("prometheus")
    assert 'reconciler_drift_new{stack="test",target="there",class="terminated"} 1.0' in metrics
    assert 'reconciler_drift_ignored{stack="test",target="there",class="failed"} 1.0' in metrics
    assert 'reconciler_drift{stack="test",target="there",class="failed"} 0.0' in metrics
    for name, text in texts.items():
        assert "new" in text.lower(), name
        assert "terminated" in text, name
        # Two hold only what somebody has to do something about.
        assert name in ("github", "sarif") or "known gap" in text, name


def test_check_that_cannot_read_the_last_one_exits_8_and_says_so(reconciler: Reconciler, failed: Job) -> None:
    assert check(reconciler, "--since-last").code == 2
    Path(".reconciler/records.sqlite3").write_bytes(b"this is no database" * 100)
    said = reconciler("drift", "--since-last")
    assert said.code == 8
    assert "whether this is new is unknown" in said.out or "could not be read" in said.out
    assert "this check is not recorded" in said.err


# --- rules of the manifest


def test_ignored_drift_is_listed_and_does_not_count(
    reconciler: Reconciler, service: Service, failed: Job
) -> None:
    with_rule(service, "{key: 'a*', class: failed, until: 2999-12-31, reason: known gap in the data}")
    said = check(reconciler)
    assert (said.code, lists(said)["drift"], lists(said)["ignored"]) == (0, [], A_FAILED)
    [entry] = said.document["ignored"]
    assert (entry["by"], entry["reason"], entry["until"]) == ("rule", "known gap in the data", "2999-12-31")
    assert entry["rule"] == {"file": "jobs.yaml", "line": 7, "column": 5}
    assert said.document["summary"]["failed"] == 0
    text = reconciler("drift").out
    assert "ignored by rule jobs.yaml:7 until 2999-12-31: known gap in the data" in text
    assert text.splitlines()[-1] == "Drift: none; 1 ignored, 0 pending, 2 compared."


def test_expired_rule_ignores_nothing_and_is_a_warning_with_its_place(
    reconciler: Reconciler, service: Service, failed: Job
) -> None:
    with_rule(service, "{key: a, class: failed, until: 2020-01-31, reason: known gap}")
    said = check(reconciler)
    assert (said.code, lists(said)["drift"], lists(said)["ignored"]) == (2, A_FAILED, [])
    [warning] = said.document["warnings"]
    assert warning["what"] == "expired rule of drift.ignore"
    assert warning["why"].startswith("jobs.yaml:7:5: it ignored failed of a until 2020-01-31")


# --- accept


def test_accepted_drift_is_known_until_it_changes(
    reconciler: Reconciler, service: Service, failed: Job
) -> None:
    accepted = reconciler("accept", "a", "--reason", "we know", "--json")
    assert (accepted.code, lists(accepted)["drift"], lists(accepted)["ignored"]) == (0, [], A_FAILED)
    for more in ((), ("--since-last",)):
        said = check(reconciler, *more)
        assert (said.code, lists(said)["drift"]) == (0, [])
        [entry] = said.document["ignored"]
        assert (entry["by"], entry["reason"], entry["class"]) == ("accept", "we know", "failed")
        assert entry["who"]
        assert entry["accepted_at"]
    service.store.delete(failed.project, failed.id)
    service.clock.advance(seconds=60)
    said = check(reconciler, "--since-last")
    assert (said.code, lists(said)["new"], lists(said)["gone"]) == (2, [("a", "missing")], [])


def test_acceptance_can_be_taken_back(reconciler: Reconciler, failed: Job) -> None:
    assert reconciler("accept", "a").code == 0
    assert check(reconciler).code == 0
    back = reconciler("accept", "a", "--remove", "--json")
    assert (back.code, lists(back)["drift"]) == (0, A_FAILED)
    assert back.document["warnings"] == [], "no partial view"
    said = check(reconciler, "--since-last")
    assert (said.code, lists(said)["new"]) == (2, A_FAILED)
    assert check(reconciler).code == 2
    said = reconciler("accept", "a", "--remove")
    assert (said.code, "nothing of a is accepted" in said.err) == (64, True)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["b"], "b has no drift"),
        (["c"], '"c" is neither a declared nor an owned key'),
        (["a", "--remove", "--reason", "r"], "needs no reason"),
        ([], "Missing argument 'KEY'"),
    ],
)
def test_accept_without_drift_is_wrong_use(
    reconciler: Reconciler, failed: Job, arguments: list[str], why: str
) -> None:
    said = reconciler("accept", *arguments)
    assert (said.code, why in said.err) == (64, True), said.err


def test_accept_of_what_is_known_already_says_by_whom(
    reconciler: Reconciler, service: Service, failed: Job
) -> None:
    assert reconciler("accept", "a").code == 0
    assert "is accepted already" in reconciler("accept", "a").err
    assert reconciler("accept", "a", "--remove").code == 0
    with_rule(service, "{key: a, class: failed, reason: r}")
    assert "ignored already, by a rule" in reconciler("accept", "a").err


def test_nothing_is_accepted_that_cannot_be_read(
    reconciler: Reconciler, service: Service, failed: Job
) -> None:
    service.app.faults.add(Fault(Effect.ANSWER, operation="ListTrainingJobs", status=501, count=None))
    said = reconciler("accept", "a")
    assert (said.code, "nothing was accepted" in said.err) == (8, True)
    service.app.faults.clear()
    Path(".reconciler/records.sqlite3").write_bytes(b"this is no database" * 100)
    for more in ((), ("--remove",)):
        assert reconciler("accept", "a", *more).code == 1


def test_history_shows_checks_and_acceptances(reconciler: Reconciler, service: Service, failed: Job) -> None:
    assert reconciler("drift").code == 2
    assert reconciler("accept", "a", "--reason", "we know").code == 0
    service.store.set_phase(failed.id, "Running")
    assert reconciler("drift").code == 0
    out = reconciler("history").out
    assert "1 failed, 1 new" in out
    assert "new       failed a: a ended as Failed" in out
    assert "accepted  failed a: we know" in out
    runs: list[dict[str, Any]] = reconciler("history", "a", "--json").document["runs"]
    assert [(run["kind"], [one["status"] for one in run["actions"]]) for run in runs] == [
        ("accept", ["accepted"]),
        ("drift", ["new"]),
        ("apply", ["done"]),
    ]
