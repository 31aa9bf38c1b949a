"""A pretend GitHub: it runs the jobs of a workflow as its runners do, with the steps in a fresh checkout."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml import YAML

from tests.ci.expressions import filled_in, holds
from tests.ci.shell import RECONCILER, Shell, check_out, read_assignments

REPOSITORY = "team/jobs"


@dataclass
class JobRun:
    """How a job went: the log of each step by its name, and what it left."""

    failed: bool = False
    logs: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    summary: str = ""

    @property
    def log(self) -> str:
        """What all steps said."""
        return "".join(self.logs.values())


class GitHub:
    """A repository on GitHub: its git repository, secrets, variables, comments and artifacts."""

    def __init__(self, directory: Path, repository: Path, secrets: Mapping[str, str]) -> None:
        self.directory, self._repository = directory, repository
        self._runs = count(4_000_000_001)
        self.secrets = dict(secrets)
        self.variables = {"RECONCILER": RECONCILER}
        self.tokens: set[str] = set()
        self.logs: list[str] = []
        (directory / "artifacts").mkdir(parents=True)
        self.save("comments", [])
        self.save("pulls", [])
        gh = shlex.join([sys.executable, str(Path(__file__).parent / "fake_gh.py"), str(directory)])
        self._shell = Shell(directory / "shell", {"gh": f'#!/bin/sh\nexec {gh} "$@"\n'})

    @property
    def comments(self) -> list[dict[str, Any]]:
        """The comments on all pull requests, the oldest first."""
        found: list[dict[str, Any]] = json.loads(
            (self.directory / "comments.json").read_text(encoding="utf-8")
        )
        return found

    def comment(self, user: str, body: str, number: int = 7) -> None:
        """Somebody comments on a pull request."""
        comments = self.comments
        comments.append({"id": 100 + len(comments), "number": number, "user": {"login": user}, "body": body})
        self.save("comments", comments)

    def merged(self, head: str, merge: str, number: int = 7) -> None:
        """The pull request is merged."""
        one = {"number": number, "merged_at": "2026-01-01", "merge_commit_sha": merge, "head": {"sha": head}}
        self.save("pulls", [{**one, "number": 1, "merge_commit_sha": "0" * 40}, one])

    def run(
        self,
        workflow: Path,
        event: str,
        commit: str,
        payload: Mapping[str, Any] | None = None,
        *,
        only: Sequence[str] = (),
    ) -> Run:
        """Run the jobs of a workflow whose conditions hold, or only those that are named."""
        started = Event(event, commit, payload or {})
        return Run(self, YAML(typ="safe").load(workflow), started).run(only)

    def jobs_of(self, workflow: Path, event: str, payload: Mapping[str, Any]) -> list[str]:
        """The names of the jobs that an event starts."""
        return Run(self, YAML(typ="safe").load(workflow), Event(event, "", payload)).starting()

    def artifact(self, run: Run, name: str) -> list[Path]:
        """The files of an artifact."""
        return sorted((self.directory / "artifacts" / run.number / name).iterdir())

    @property
    def everything(self) -> str:
        """All that others may see: comments, artifacts, logs and summaries."""
        artifacts = (file for file in (self.directory / "artifacts").rglob("*") if file.is_file())
        texts = [file.read_text(encoding="utf-8") for file in artifacts]
        return "".join([*texts, *(one["body"] for one in self.comments), *self.logs])

    def save(self, name: str, value: object) -> None:
        """Keep comments or pull requests."""
        (self.directory / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")


class Event(NamedTuple):
    """What starts a run, and on which commit."""

    name: str
    commit: str
    payload: Mapping[str, Any]


class Run(dict[str, JobRun]):
    """One run of a workflow: its jobs by name; those that are skipped are missing."""

    def __init__(self, github: GitHub, workflow: Mapping[str, Any], event: Event) -> None:
        super().__init__()
        assert event.name in workflow["on"]
        self._github, self._workflow = github, workflow
        self.number = str(next(github._runs))
        self._event: dict[str, Any] = {
            "event_name": event.name,
            "event": event.payload,
            "repository": REPOSITORY,
            "sha": event.commit,
            "run_id": self.number,
        }
        self._directory = github.directory / "runs" / self.number

    @property
    def failed(self) -> bool:
        """Whether a job failed."""
        return any(job.failed for job in self.values())

    @property
    def text(self) -> str:
        """All that the run shows to whoever may look at it."""
        return "".join(job.log + job.summary for job in self.values())

    def starting(self) -> list[str]:
        """The names of the jobs whose conditions hold."""
        jobs = self._workflow["jobs"]
        return [name for name, job in jobs.items() if holds(job.get("if"), self._context(job))]

    def run(self, only: Sequence[str]) -> Run:
        """Run the jobs, each after those that it needs."""
        for name, job in self._workflow["jobs"].items():
            if only and name not in only:
                continue
            needed = [job["needs"]] if "needs" in job else []
            failed = any(one not in self or self[one].failed for one in needed)
            context = {
                **self._context(job),
                "needs": {one: self[one].__dict__ for one in needed if one in self},
            }
            if holds(job.get("if"), context, failed=failed):
                self[name] = self._job(name, job, context)
        self._github.logs.append(self.text)
        return self

    def _context(self, job: Mapping[str, Any]) -> dict[str, Any]:
        granted = job.get("permissions", self._workflow["permissions"])
        token = ".".join(["ghs", *(f"{name}-{level}" for name, level in granted.items())])
        self._github.tokens.add(token)
        return {
            "github": {**self._event, "token": token},
            "vars": self._github.variables,
            "secrets": self._github.secrets,
        }

    def _job(self, name: str, job: Mapping[str, Any], context: dict[str, Any]) -> JobRun:
        done = JobRun()
        workspace, files = self._directory / name / "workspace", self._directory / name
        workspace.mkdir(parents=True)
        context = {**context, "steps": {}}
        runner = self._variables(workspace) | {"GITHUB_STEP_SUMMARY": str(files / "summary.md")}
        for number, step in enumerate(job["steps"]):
            if not holds(step.get("if"), context, failed=done.failed):
                continue
            output = files / f"output-{number}"
            environ = {**runner, "GITHUB_OUTPUT": str(output)}
            for where in (self._workflow, job, step):
                environ |= {key: filled_in(value, context) for key, value in where.get("env", {}).items()}
            label = step.get("name") or step.get("run") or step["uses"]
            if "run" in step:
                assert "${{" not in step["run"], "text from outside would be a part of the script"
                ended = self._github._shell.run(step["run"], workspace, environ)
                done.failed |= ended.code != 0
                done.logs[label] = f"{ended.log}exit code {ended.code}\n"
            else:
                self._use(step["uses"].partition("@")[0], step.get("with", {}), workspace)
            context["steps"][step.get("id", label)] = {"outputs": read_assignments(output)}
        summary = files / "summary.md"
        done.summary = summary.read_text(encoding="utf-8") if summary.exists() else ""
        done.outputs = {key: filled_in(value, context) for key, value in job.get("outputs", {}).items()}
        return done

    def _variables(self, workspace: Path) -> dict[str, str]:
        return {
            "GITHUB_ACTIONS": "true",
            "CI": "true",
            "GITHUB_WORKSPACE": str(workspace),
            "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_SHA": self._event["sha"],
            "GITHUB_RUN_ID": self.number,
            "GITHUB_EVENT_NAME": self._event["event_name"],
        }

    def _use(self, action: str, options: Mapping[str, Any], workspace: Path) -> None:
        store = self._github.directory / "artifacts" / self.number
        match action:
            case "actions/checkout":
                assert options["persist-credentials"] is False
                depth = int(options.get("fetch-depth", 1))
                check_out(self._github._repository, self._event["sha"], workspace, depth)
            case "actions/setup-python":
                pass
            case "actions/upload-artifact":
                found = sorted(workspace.glob(options["path"]))
                assert found or options["if-no-files-found"] == "ignore", options
                for file in found:
                    kept = store / options["name"] / file.name
                    kept.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(file, kept)  # an artifact keeps no mode
            case "actions/download-artifact":
                shutil.copytree(store / options["name"], workspace, dirs_exist_ok=True)
            case _:
                raise AssertionError(f"no such action here: {action}")
