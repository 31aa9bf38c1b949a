"""The pipeline for GitLab CI: valid by the published schema, safe, and each of its scripts is run.

They run against an emulated service in a real git repository; `tests/ci/gitlab.py` serves the API of GitLab.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import pytest
from ruamel.yaml import YAML

from tests.ci.conftest import needs_bash
from tests.ci.gitlab import ME, TOKEN, GitLab, JobRun, rule_holds
from tests.ci.repository import SECRET_KEY, SECRETS, Repository
from tests.ci.shell import ROOT, Shell

DIRECTORY = ROOT / "examples/ci/gitlab"
FILE = DIRECTORY / ".gitlab-ci.yml"
PIPELINE: dict[str, Any] = YAML(typ="safe").load(FILE)
JOBS = {name: job for name, job in PIPELINE.items() if isinstance(job, dict) and "script" in job}
SCHEMA = Path(__file__).parent / "schemas/gitlab-ci.json"
NOTE_SCRIPT = {".gitlab/reconciler_note.py": (DIRECTORY / "reconciler_note.py").read_text(encoding="utf-8")}
PUSHED = {"CI_PIPELINE_SOURCE": "push", "CI_COMMIT_BRANCH": "main"}
BY_HAND = {**PUSHED, "CI_PIPELINE_SOURCE": "web"}
SCHEDULED = {**PUSHED, "CI_PIPELINE_SOURCE": "schedule"}


def _merge_request(base: str = "0", source: str = "42") -> dict[str, str]:
    return {
        "CI_PIPELINE_SOURCE": "merge_request_event",
        "CI_MERGE_REQUEST_IID": "3",
        "CI_MERGE_REQUEST_PROJECT_ID": "42",
        "CI_MERGE_REQUEST_SOURCE_PROJECT_ID": source,
        "CI_MERGE_REQUEST_DIFF_BASE_SHA": base,
    }


# ── contents ───────────────────────────────────────────────────────────────────────────────────────


def test_pipeline_is_valid_by_the_published_schema() -> None:
    jsonschema.Draft7Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(PIPELINE)


def test_check_job_has_no_credentials_and_apply_jobs_run_one_at_a_time() -> None:
    environments = {name: job.get("environment") for name, job in JOBS.items()}
    assert environments.pop("check") is None
    assert environments.pop("plan") == environments.pop("drift") == {"name": "plan", "action": "access"}
    assert environments == dict.fromkeys(("apply", "apply-by-hand", "clock"), "production")
    groups = {name: job.get("resource_group") for name, job in JOBS.items() if "resource_group" in job}
    assert groups == dict.fromkeys(environments, "reconciler-apply")


@pytest.mark.parametrize(
    ("predefined", "started"),
    [
        (_merge_request(), ["check", "plan"]),
        (_merge_request(source="43"), ["check"]),
        (PUSHED, ["apply"]),
        (BY_HAND, ["plan", "apply-by-hand"]),
        (SCHEDULED, ["clock", "drift"]),
    ],
    ids=["merge request", "merge request of a fork", "merge", "by hand", "schedule"],
)
def test_pipeline_starts_the_jobs_of_its_trigger(predefined: Mapping[str, str], started: list[str]) -> None:
    found = [
        name for name, job in JOBS.items() if any(rule_holds(rule["if"], predefined) for rule in job["rules"])
    ]
    assert found == started


# ── behavior ───────────────────────────────────────────────────────────────────────────────────────


class Story(NamedTuple):
    """A merge request planned twice, merged and applied."""

    gitlab: GitLab
    repository: Repository
    first: Mapping[str, JobRun]
    first_note: str
    second: Mapping[str, JobRun]
    merge: str
    applied: JobRun
    jobs: Mapping[str, str]


@pytest.fixture(scope="module")
def story(repository: Repository, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    git = repository.git
    with GitLab(tmp_path_factory.mktemp("gitlab"), repository.path, SECRETS).serving() as gitlab:
        base = repository.commit(NOTE_SCRIPT, a=0.1)
        git("checkout", "--quiet", "-b", "change")
        gitlab.note(1, "<!-- reconciler: vision@prod -->\n\nA merge applies this plan of . on prod: forged")
        gitlab.note(2, "looks good")
        first = gitlab.run(FILE, repository.commit(a=0.1, b=0.1), _merge_request(base))
        first_note = gitlab.notes[-1]["body"]
        head = repository.commit(a=0.1, b=0.5)
        second = gitlab.run(FILE, head, _merge_request(base), "plan")
        git("checkout", "--quiet", "main")
        merge = repository.merge("change")
        gitlab.merge_requests = [_merged(1, "0" * 40, "0" * 40), _merged(3, head, merge)]
        applied = gitlab.run(FILE, merge, PUSHED)["apply"]
        yield Story(gitlab, repository, first, first_note, second, merge, applied, repository.running)


def _merged(iid: int, head: str, merge: str) -> dict[str, Any]:
    return {"iid": iid, "state": "merged", "sha": head, "merge_commit_sha": merge, "squash_commit_sha": None}


def test_merge_request_is_checked_without_credentials(story: Story) -> None:
    check = story.first["check"]
    assert check.code == 0, check.log
    assert "Valid: stack vision, 2 jobs" in check.log
    assert "1 added" in check.log


def test_plan_is_one_note_that_updates_itself(story: Story) -> None:
    assert [run["plan"].code for run in (story.first, story.second)] == [0, 0], story.first["plan"].log
    [note] = [note for note in story.gitlab.notes if note["author"]["id"] == ME]
    assert len(story.gitlab.notes) == 3
    for body, run in ((story.first_note, story.first), (note["body"], story.second)):
        digest = run["plan"].handed_on["DIGEST"]
        assert body.startswith("<!-- reconciler: vision@prod -->\n**Plan: 2 to create")
        assert re.search(f"job {run['plan'].id}, commit [0-9a-f]{{40}}, digest {digest}$", body.rstrip())
        assert body.count(digest) == 2
    assert story.first["plan"].handed_on != story.second["plan"].handed_on


def test_merge_applies_the_last_shown_plan(story: Story) -> None:
    assert story.applied.code == 0, story.applied.log
    assert story.jobs == {"a": "0.1", "b": "0.5"}


@pytest.mark.parametrize(
    ("merged", "message"),
    [
        ([], "is not the merge of a merge request"),
        ([_merged(3, "3" * 40, "MERGE")], "the plan on merge request 3 is not that of its last commit"),
        ([_merged(4, "3" * 40, "MERGE")], "merge request 4 has no note with a plan that can be applied"),
    ],
    ids=["pushed without a merge request", "pushed to the branch after the plan", "no plan"],
)
def test_nothing_is_applied_without_an_approved_plan(
    story: Story, merged: list[dict[str, Any]], message: str
) -> None:
    before = story.gitlab.merge_requests
    known = [{**one, "merge_commit_sha": story.merge} for one in merged]
    story.gitlab.merge_requests = known
    try:
        done = story.gitlab.run(FILE, story.merge, PUSHED)["apply"]
    finally:
        story.gitlab.merge_requests = before
    assert done.code == 1
    assert f"no approved plan: {'commit ' + story.merge + ' ' if not merged else ''}{message}" in done.log
    assert "Stack vision" not in done.log


def test_manual_pipeline_applies_a_fresh_plan(story: Story) -> None:
    commit = story.repository.commit(a=0.1, b=0.5, c=0.1)
    done = story.gitlab.run(FILE, commit, BY_HAND)
    assert [job.code for job in done.values()] == [0, 0], [job.log for job in done.values()]
    assert story.repository.running == {**story.jobs, "c": "0.1"}
    assert JOBS["apply-by-hand"]["rules"][0]["when"] == "manual"


def test_scheduled_pipeline_starts_due_jobs_only(story: Story) -> None:
    before = story.repository.running
    commit = story.repository.commit(a=0.9, d=0.1)  # a is edited, others are gone, d is not started yet
    for _ in range(2):
        [clock] = story.gitlab.run(FILE, commit, SCHEDULED, "clock").values()
        assert clock.code == 0, clock.log
        assert story.repository.running == {**before, "d": "0.1"}
    assert {job.life.phase for job in story.repository.store.jobs()}.isdisjoint({"Terminating", "Terminated"})


def test_drift_fails_the_pipeline_and_is_shown(story: Story) -> None:
    [job] = [job for job in story.repository.store.jobs() if job.name == "a"]
    story.repository.store.set_phase(job.id, "Failed")
    drift = story.gitlab.run(FILE, story.merge, SCHEDULED)["drift"]
    assert drift.code == 2
    assert "\ndrift: the service is not as the last apply left it\n" in drift.log


def test_logs_and_notes_hold_no_secret(story: Story) -> None:
    shown = "".join([*story.gitlab.logs, *(note["body"] for note in story.gitlab.notes)])
    assert "Applied: 2 succeeded." in shown
    assert SECRET_KEY not in shown
    assert TOKEN not in shown


@needs_bash
@pytest.mark.parametrize(
    ("code", "message"), [(0, ""), (2, "drift: "), (8, "drift unknown: "), (7, "exit code 7")]
)
def test_exit_codes_of_a_drift_check_are_distinguished(tmp_path: Path, code: int, message: str) -> None:
    shell = Shell(tmp_path / "shell", {"reconciler": f"#!/bin/sh\nexit {code}\n"})
    done = shell.run("\n".join(JOBS["drift"]["script"]), tmp_path, {"STACK": ".", "TARGET": "prod"})
    assert done.code == code
    assert done.log == "" if not message else message in done.log
