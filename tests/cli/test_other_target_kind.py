"""A kind of target with the core protocol only: each command works, or names the missing operation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest

import reconciler as api
from reconciler.cli.jobs import jobs_command as jobs_command
from reconciler.cli.main import COMMANDS
from reconciler.core.values import TARGET_KINDS, TargetKind
from reconciler.errors import ExitCode
from tests.cli import memory_target
from tests.cli.conftest import Reconciler, manifest, write
from tests.cli.memory_target import KIND, MemoryBackend

LACKS = f"target there is of kind {KIND}, which cannot "
KEY = "resnet"


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryBackend]:
    """The kind is in the table; the manifest declares one job on it."""
    monkeypatch.setitem(TARGET_KINDS, KIND, TargetKind(KIND, memory_target.__name__))
    write(manifest(KEY).replace("{kind: local}", f"{{kind: {KIND}}}"))
    yield from memory_target.emptied()


class Walk(NamedTuple):
    """A command on a stack with a running job, its exit code, and its output.

    Without a code it must work, or name the missing operation.
    """

    arguments: tuple[str, ...]
    code: ExitCode | None
    says: str = ""


def works(*arguments: str, says: str = "", code: ExitCode = ExitCode.DONE) -> Walk:
    return Walk(arguments, code, says)


def lacks(*arguments: str, ability: str) -> Walk:
    return Walk(arguments, ExitCode.FAILED, f"{LACKS}{ability}")


REPORTS = "show logs, events and metrics of jobs"
WALKS = (
    works("validate"),
    works("review", ".", ".", says="1 unchanged"),
    Walk(("policies", "test"), ExitCode.WRONG_USAGE, "no policy cases"),
    works("notify", "test"),
    works("plan", says="1 to keep"),
    works("plan", "--out", "plan.json", says="sha256:"),
    works("apply", "--yes", says="1 to keep"),
    works("apply", "--yes", "--wait", "running", says="1 to keep"),
    Walk(("run", KEY), ExitCode.WRONG_USAGE, "run needs one of kind process"),
    works("destroy", "--yes", says="terminate"),
    works("adopt", "--from-stack", "before", says="nothing to do"),
    works("release", KEY, "--yes", says="released"),
    works("drift", says="Drift: none"),
    Walk(("watch", "--window", "never"), ExitCode.WRONG_USAGE, "not a valid window"),
    works("status", says=KEY),
    works("why", KEY, says="keep (unchanged)"),
    works("history", says=KEY),
    works("unlock", "--yes"),
    works("schema", "manifest"),
    works("explain", "states"),
    works("doctor", says="may read a job"),
    works("doctor", "--json", says=f"{LACKS}report the source of its credentials"),
    works("emulator", "serve", "--help"),
    works("init", "new"),
    works("export", KEY, says="stack: test"),
    lacks("export", "--all", ability="search for jobs"),
    works("fmt"),
    works("completion", "bash"),
    Walk(("code", "list"), ExitCode.WRONG_USAGE, "no code store"),
    lacks("flavors", ability="list flavors, engines and pools"),
    lacks("engines", ability="list flavors, engines and pools"),
    lacks("jobs", "list", ability="search for jobs"),
    works("jobs", "show", KEY, says="Running"),
    lacks("jobs", "logs", KEY, ability=REPORTS),
    lacks("jobs", "logs", KEY, "--follow", ability=REPORTS),
    lacks("jobs", "events", KEY, ability=REPORTS),
    lacks("jobs", "metrics", KEY, ability=REPORTS),
    works("jobs", "wait", KEY, "--for", "running", says="Running"),
    works("jobs", "terminate", KEY, "--yes", "--force", says="terminating"),
    lacks("jobs", "delete", KEY, "--yes", "--force", ability="delete the records of jobs"),
)


def _all_walks() -> list[Walk]:
    """Yield the rows of the table, and each further command on a job."""
    assert isinstance(jobs_command, click.Group)
    rows = {walk.arguments[1] for walk in WALKS if walk.arguments[0] == "jobs"}
    return [*WALKS, *(Walk(("jobs", name, KEY), None) for name in jobs_command.commands if name not in rows)]


@pytest.mark.parametrize("walk", _all_walks(), ids=lambda walk: " ".join(walk.arguments))
def test_command_works_or_names_the_missing_operation(reconciler: Reconciler, walk: Walk) -> None:
    reconciler.ends(ExitCode.DONE, "apply --yes")
    result = reconciler(*walk.arguments)
    if walk.code is None:
        assert result.code == ExitCode.DONE or LACKS in result.err, f"{result.err}: give it a row of WALKS"
    else:
        assert result.code == walk.code, result.err
    assert walk.says in result.out + result.err


def test_saved_plan_is_shown_and_applied(reconciler: Reconciler) -> None:
    reconciler.ends(ExitCode.DONE, "plan --out plan.json")
    assert "1 to create" in reconciler("show plan.json").out
    reconciler.ends(ExitCode.DONE, "apply --plan plan.json --yes")


def test_every_command_has_a_test_case() -> None:
    missing = set(COMMANDS) - {walk.arguments[0] for walk in WALKS} - {"show"}
    assert not missing, "each needs a row of WALKS"


def test_replace_checks_no_catalog(reconciler: Reconciler, memory: MemoryBackend) -> None:
    reconciler("apply --yes")
    edited = Path("jobs.yaml").read_text(encoding="utf-8").replace("lr: 0.1", "lr: 0.2")
    write(edited)
    reconciler.ends(ExitCode.DONE, "apply --yes")
    expected = [(KEY, "Terminated"), (f"{KEY}-r2", "Running")]
    assert [(job.name, job.phase_text) for job in memory.jobs.values()] == expected


def test_failed_job_is_reported_without_its_log(reconciler: Reconciler, memory: MemoryBackend) -> None:
    reconciler("apply --yes")
    [job_id] = memory.jobs
    memory.end(job_id, "Failed")
    result = reconciler.ends(ExitCode.ENDED_BADLY, "jobs wait", KEY, "--for", "completed")
    assert "error" not in result.err
    assert "ended badly" in result.out


def test_undeclared_key_is_found_without_a_search(reconciler: Reconciler) -> None:
    reconciler("apply --yes")
    write(manifest("other").replace("{kind: local}", f"{{kind: {KIND}}}"))
    assert f"{KEY}" in reconciler("jobs show", KEY).out


def test_session_names_the_missing_operation(reconciler: Reconciler) -> None:
    reconciler("apply --yes")
    with api.load().connect() as session:
        assert session.plan().summary["keep"] == 1
        assert session.jobs.get(KEY).metadata.name == KEY
        for call in (session.jobs.list, lambda: session.jobs.logs(KEY), lambda: session.jobs.events(KEY)):
            with pytest.raises(api.NotSupported, match=f"of kind {KIND}, which cannot"):
                call()


def test_unknown_kind_lists_the_available_kinds(reconciler: Reconciler) -> None:
    write(manifest(KEY).replace("{kind: local}", "{kind: memroy}"))
    result = reconciler.ends(ExitCode.INVALID, "validate", err=f"must be one of {', '.join(TARGET_KINDS)}")
    assert 'did you mean "memory"?' in result.err
