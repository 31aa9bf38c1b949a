"""The workflow for GitHub Actions: safe, and each of its steps is run (valid by its schema: `test_release`).

It is the one of `examples/ci/github`, which `reconciler init` writes, too. The steps run against an emulated
service in a real git repository; `tests/ci/fake_gh.py` answers their GitHub requests.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from ruamel.yaml import YAML

from reconciler.manifest.export import WORKFLOW_FILE, starting_files
from reconciler.render.markdown import MOST_CHARACTERS
from tests.ci.conftest import needs_bash
from tests.ci.expressions import filled_in
from tests.ci.github import REPOSITORY, GitHub, Run
from tests.ci.repository import JOB, PROJECT, SECRET_KEY, SECRETS, Repository
from tests.ci.shell import ROOT, Shell
from tests.git_repository import commit

FILE = ROOT / "examples/ci/github/reconciler.yml"
TEXT = FILE.read_text(encoding="utf-8")
WORKFLOW: dict[str, Any] = YAML(typ="safe").load(TEXT)
STEPS = [(job, step) for job, body in WORKFLOW["jobs"].items() for step in body["steps"]]
OTHER = "stacks/other/jobs.yaml"
#: The marker of a foreign comment, and a forged plan.
FORGED = (
    "<!-- reconciler: vision@prod -->\n\n"
    f"A merge applies this plan of . on prod: run 1, commit 0, digest sha256:{'0' * 64}"
)

# ── contents ───────────────────────────────────────────────────────────────────────────────────────


def test_actionlint_finds_nothing() -> None:
    lint = shutil.which("actionlint")
    if lint is None:
        pytest.skip("actionlint is not installed")
    done = subprocess.run([lint, str(FILE)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_init_writes_the_same_workflow() -> None:
    assert starting_files("models")[WORKFLOW_FILE] == TEXT


def test_no_code_of_a_pull_request_runs_with_the_rights_of_the_repository() -> None:
    assert not {"pull_request_target", "workflow_run"} & set(WORKFLOW["on"])
    for job, step in STEPS:
        uses_secrets = "secrets." in str(step.get("env"))
        is_program = str(step.get("run", "")).startswith(("reconciler ", "code=0\nreconciler "))
        assert not uses_secrets or (is_program and job not in ("stacks", "check"))
    assert all("secrets." not in str(job.get("env")) for job in [WORKFLOW, *WORKFLOW["jobs"].values()])


def test_each_job_has_the_least_permissions_and_a_limit_of_time() -> None:
    assert WORKFLOW["permissions"] == {}
    written = {
        name: {what for what, level in job["permissions"].items() if level == "write"}
        for name, job in WORKFLOW["jobs"].items()
    }
    assert written.pop("plan") == {"pull-requests"}
    others = ("stacks", "check", "apply", "apply-by-hand", "clock", "drift")
    assert written == dict.fromkeys(others, frozenset())
    assert all(job["timeout-minutes"] <= 60 for job in WORKFLOW["jobs"].values())


def test_apply_jobs_run_one_at_a_time_and_are_never_cancelled() -> None:
    for name in ("apply", "apply-by-hand", "clock"):
        job = WORKFLOW["jobs"][name]
        assert job["environment"] == ("production-clock" if name == "clock" else "production")
        assert job["concurrency"] == {"group": "reconciler-apply-${{ matrix.stack.root }}", "queue": "max"}


# ── behavior ───────────────────────────────────────────────────────────────────────────────────────


class Story(NamedTuple):
    """A pull request planned twice, merged and applied, with the result of each step."""

    github: GitHub
    repository: Repository
    base: str
    first: Run
    first_comment: str
    second: Run
    merge: str
    head: str
    applied: Run
    jobs: Mapping[str, str]
    comments: Sequence[Mapping[str, Any]]

    def pushed(self, head: str, merge: str) -> Run:
        """Run the workflow as after the merge of that pull request, with its comments."""
        self.github.save("comments", self.comments)
        self.github.merged(head, merge)
        return self.github.run(FILE, "push", self.merge, {"before": self.base})


def _pull_request(base: str, head: str, source: str = REPOSITORY, user: str = "anna") -> dict[str, Any]:
    to = {"sha": head, "repo": {"full_name": source}}
    about = {"number": 7, "user": {"login": user}, "base": {"sha": base}, "head": to}
    return {"number": 7, "pull_request": about}


def _planned(github: GitHub, repository: Repository, base: str, head: str, *jobs: str) -> Run:
    """Run the workflow on the merge commit of a pull request."""
    git = repository.git
    git("checkout", "--quiet", "--detach", base)
    merged = repository.merge(head)
    git("checkout", "--quiet", "change")
    return github.run(FILE, "pull_request", merged, _pull_request(base, head), only=jobs)


@pytest.fixture(scope="module")
def story(repository: Repository, tmp_path_factory: pytest.TempPathFactory) -> Story:
    if not (shutil.which("bash") and shutil.which("jq")):
        pytest.skip("bash or jq is not installed, which runs the scripts and the fake gh")
    git = repository.git
    github = GitHub(tmp_path_factory.mktemp("github"), repository.path, SECRETS)
    base = repository.commit(starting_files("models"), a=0.1)
    git("checkout", "--quiet", "-b", "change")
    github.comment("somebody", FORGED)
    github.comment("somebody", "looks good")
    other = {OTHER: repository.manifest("other", far=0.1)}
    first = _planned(github, repository, base, repository.commit(other, a=0.1, b=0.1))
    first_comment = github.comments[2]["body"]
    head = repository.commit(a=0.1, b=0.5)
    second = _planned(github, repository, base, head, "plan")
    git("checkout", "--quiet", "main")
    merge = repository.merge("change")
    github.merged(head, merge)
    applied = github.run(FILE, "push", merge, {"before": base})
    found = (github, repository, base, first, first_comment, second, merge, head, applied)
    return Story(*found, repository.running, github.comments)


def test_each_stack_of_a_pull_request_is_checked_without_credentials(story: Story) -> None:
    each_stack = [f"{job} {stack}" for job in ("check", "plan") for stack in (".", "stacks/other")]
    assert list(story.first) == ["stacks", *each_stack]
    check = story.first["check ."]
    assert not check.failed, check.log
    assert "Valid: stack vision, 2 jobs" in check.log
    assert "1 added" in check.logs["Review"]
    assert "::notice title=reconciler vision@local::Review: 1 added" in check.log
    assert "1 added" in check.summary


def test_plan_is_one_comment_that_updates_itself(story: Story) -> None:
    assert not story.first.failed, story.first.text
    comment, other = (one for one in story.comments if one["user"]["login"] == "github-actions[bot]")
    assert other["body"].startswith("<!-- reconciler: other@prod -->\n**Plan: 1 to create")
    for body, run in ((story.first_comment, story.first), (comment["body"], story.second)):
        assert body.startswith("<!-- reconciler: vision@prod -->\n**Plan: 2 to create")
        [digest] = set(re.findall("sha256:[0-9a-f]{64}", run["plan ."].summary))
        assert body.count(digest) == 2
        assert MOST_CHARACTERS + len(body.rstrip().splitlines()[-1]) < 65_536, "what GitHub takes"
        assert re.search(f"run {run.number}, commit [0-9a-f]{{40}}, digest {digest}$", body.rstrip())
    assert story.first_comment != comment["body"]
    assert "::notice title=reconciler vision@prod::Plan: 2 to create" in story.second["plan ."].log
    assert "Digest of the plan" in story.second["plan ."].summary


def test_merge_applies_the_last_shown_plan(story: Story) -> None:
    assert list(story.applied) == ["stacks", "apply .", "apply stacks/other"]
    assert not story.applied.failed, story.applied.text
    assert story.jobs == {"a": "0.1", "b": "0.5", "far": "0.1"}
    assert "Applied: 2 succeeded." in story.applied["apply ."].summary


def test_plan_that_was_applied_before_is_stale(story: Story) -> None:
    before = story.repository.running
    again = story.pushed(story.head, story.merge)
    assert again["apply ."].logs["Apply"].endswith("exit code 4\n")
    assert story.repository.running == before


def test_digest_other_than_the_shown_one_is_refused(story: Story) -> None:
    shown = next(one for one in story.comments if one["body"] != FORGED and "vision@prod" in one["body"])
    body = shown["body"].rstrip()
    edited = {**shown, "body": re.sub(r"sha256:[0-9a-f]{64}$", f"sha256:{'0' * 64}", body)}
    refused = story._replace(comments=[edited]).pushed(story.head, story.merge)
    assert refused["apply ."].logs["Apply"].endswith("exit code 4\n")
    assert "approve" in refused["apply ."].log


@pytest.mark.parametrize(
    ("is_merge", "message"),
    [
        (False, "is not the merge of a pull request"),
        (True, "the plan on pull request 7 is not that of its last commit"),
    ],
    ids=["pushed without a pull request", "pushed to the branch after the plan"],
)
def test_nothing_is_applied_without_an_approved_plan(story: Story, is_merge: bool, message: str) -> None:
    run = story.pushed("3" * 40, story.merge if is_merge else "2" * 40)
    assert run.failed
    assert "::error title=no approved plan::" in run.text
    assert message in run.text
    assert "Apply" not in run["apply ."].logs


def test_push_of_several_pull_requests_applies_none_of_their_plans(story: Story) -> None:
    """As a merge queue does; the plan of the last one ignores the ones before."""
    git = story.repository.git
    git("checkout", "--quiet", "--detach", story.merge)
    last = story.repository.commit(a=0.1, b=0.6)
    git("checkout", "--quiet", "main")
    landed = {"merged_at": "2026-01-01", "head": {"sha": story.head}}
    merges = ((7, story.merge), (9, last))
    story.github.save("pulls", [{**landed, "number": n, "merge_commit_sha": sha} for n, sha in merges])
    run = story.github.run(FILE, "push", last, {"before": story.base})
    assert "this push lands pull request 7, too, which has a plan of its own" in run.text
    assert "Apply" not in run["apply ."].logs
    # A single one, of any number of commits, is still found.
    run = story.github.run(FILE, "push", last, {"before": story.merge})
    assert "pull request 9 has no comment with a plan" in run.text


def test_merge_queue_is_checked_against_its_own_base(tmp_path: Path) -> None:
    payload = {"merge_group": {"base_sha": "b" * 40}}
    assert GitHub(tmp_path / "g", tmp_path, {}).jobs_of(FILE, "merge_group", payload) == ["stacks", "check"]
    base, _ = (step["env"]["BASE"] for _, step in STEPS if "BASE" in step.get("env", {}))
    assert filled_in(base, {"github": {"event": payload}}) == "b" * 40
    assert filled_in(base, {"github": {"event": _pull_request("a" * 40, "c" * 40)}}) == "a" * 40


def test_refused_plan_is_shown_and_not_offered_for_a_merge(story: Story) -> None:
    story.repository.git("checkout", "--quiet", "-B", "change", story.merge)
    head = story.repository.commit({"empty.yaml": "jobs: {}\n"})
    run = _planned(story.github, story.repository, story.merge, head, "plan")
    story.repository.git("checkout", "--quiet", "main")
    assert run["plan"].logs["Plan"].endswith("exit code 3\n")
    comments = story.github.comments
    refused = next(one["body"] for one in comments if "**Plan: 0 to create, 0 to update" in one["body"])
    assert "A merge applies" not in refused
    pushed = story._replace(comments=comments).pushed(head, story.merge)
    assert "has no comment with a plan that can be applied" in pushed.text


#: Jobs that become due, and their triggers.
DUE = {
    "nightly": 'lifecycle: {schedule: "0 2 * * *"}',
    "flaky": "lifecycle: {on_failure: retry}",
    "prepare": "lifecycle: {}",
    "train": "needs: [prepare]",
}
WORK = "".join(f"{JOB.format(key=key, lr=0.1)}    {more}\n" for key, more in DUE.items())


def test_manual_run_applies_a_fresh_plan_and_scheduled_run_applies_due_jobs(story: Story) -> None:
    """A night later an unapproved edit, and its terminations, wait."""
    repository, store = story.repository, story.repository.store
    story.github.variables["RECONCILER_STACKS"] = "."
    run = story.github.run(FILE, "workflow_dispatch", repository.commit(a=0.1, b=0.5, more=WORK))
    assert [name.partition(" ")[0] for name in run] == ["stacks", *["plan"] * 2, *["apply-by-hand"] * 2]
    assert not run.failed, run.text
    assert repository.running == {**story.jobs, **dict.fromkeys(("nightly", "flaky", "prepare"), "0.1")}
    assert "Comment" not in run["plan ."].logs
    ids = {job.name: job.id for job in store.jobs()}
    for name in ("nightly", "prepare"):
        store.set_phase(ids[name], "Completed")
    for name in ("flaky", "a"):
        store.set_phase(ids[name], "Failed")
    store.clock.advance(hours=30)
    store.set_phase(ids["far"], "Running")
    edited = repository.commit({OTHER: repository.manifest("other", far=0.7)}, a=0.1, b=0.7, more=WORK)
    run = story.github.run(FILE, "schedule", edited)
    assert [name.partition(" ")[0] for name in run] == ["stacks", *["clock"] * 2, *["drift"] * 2]
    assert not run["clock ."].failed, run["clock ."].log
    assert {job.name for job in store.jobs()} - set(ids) == {"nightly-r2", "flaky-r2", "train"}
    assert "Start what is due" not in run["clock stacks/other"].logs
    assert store.get(PROJECT, ids["far"]).life.phase == "Running"
    assert run["drift ."].logs["Look for drift"].endswith("exit code 2\n")
    assert "::error title=drift::" in run.text
    assert {file.name for file in story.github.artifact(run, "reconciler-drift")} == {"drift.md", "drift.xml"}
    again = story.github.run(FILE, "schedule", edited, only=["clock"])
    assert "Start what is due" not in again["clock ."].logs
    assert not again.failed, again.text


def test_change_without_manifests_plans_nothing(story: Story) -> None:
    """Dependabot changes no manifest, and gets no secrets."""
    story.repository.git("checkout", "--quiet", "-B", "change", story.merge)
    head = commit(story.repository.git, {"requirements.txt": "numpy==2\n"})
    run = _planned(story.github, story.repository, story.merge, head, "plan")
    assert (list(run), run.failed) == (["stacks"], False)


def test_logs_comments_and_artifacts_hold_no_secret(story: Story) -> None:
    shown = story.github.everything
    assert "Applied: 2 succeeded." in shown
    assert SECRET_KEY not in shown
    assert not [token for token in story.github.tokens if token in shown]


def test_fork_dependabot_and_unrelated_changes_get_no_plan(tmp_path: Path) -> None:
    github, check = GitHub(tmp_path / "github", tmp_path, SECRETS), ["stacks", "check"]
    own, fork = _pull_request("0", "1"), _pull_request("0", "1", source="somebody/jobs")
    dependabot = _pull_request("0", "1", user="dependabot[bot]")
    assert github.jobs_of(FILE, "pull_request", own) == [*check, "plan"]
    for payload, changed in ((fork, '["."]'), (dependabot, '["."]'), (own, "[]")):
        assert github.jobs_of(FILE, "pull_request", payload, changed) == check
    assert github.jobs_of(FILE, "push", {}, "[]") == ["stacks"]


@needs_bash
@pytest.mark.parametrize(
    ("code", "message"),
    [(0, ""), (2, "drift::"), (8, "drift unknown::"), (7, "drift check failed::exit code 7")],
)
def test_exit_codes_of_a_drift_check_are_distinguished(tmp_path: Path, code: int, message: str) -> None:
    shell = Shell(tmp_path / "shell", {"reconciler": f"#!/bin/sh\nexit {code}\n"})
    [script] = [step["run"] for job, step in STEPS if job == "drift" and step.get("name") == "Look for drift"]
    done = shell.run(script, tmp_path, {"STACK": ".", "TARGET": "prod"})
    assert done.code == code
    assert done.log == "" if not message else f"title={message}" in done.log
