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
from typing import Any

from ruamel.yaml import YAML

from tests.ci.expressions import evaluate, filled_in, holds
from tests.ci.shell import RECONCILER, Shell, check_out, read_assignments

REPOSITORY = "team/jobs"


@dataclass
class JobRun:
    failed: bool = False
    logs: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    summary: str = ""

    @property
    def log(self) -> str:
        return "".join(self.logs.values())


class GitHub:
    def __init__(self, directory: Path, repository: Path, secrets: Mapping[str, str]) -> None:
        self.directory, self.repository = directory, repository
        self.numbers = count(4_000_000_001)
        self.secrets = dict(secrets)
        self.variables = {"RECONCILER": RECONCILER}
        self.tokens: set[str] = set()
        self.logs: list[str] = []
        (directory / "artifacts").mkdir(parents=True)
        self.save("comments", [])
        self.save("pulls", [])
        gh = shlex.join([sys.executable, str(Path(__file__).parent / "fake_gh.py"), str(directory)])
        self.shell = Shell(directory / "shell", {"gh": f'#!/bin/sh\nexec {gh} "$@"\n'})

    @property
    def comments(self) -> list[dict[str, Any]]:
        """The comments on all pull requests, the oldest first."""
        return list(json.loads((self.directory / "comments.json").read_text(encoding="utf-8")))

    def comment(self, user: str, body: str, number: int = 7) -> None:
        comments = self.comments
        comments.append({"id": 100 + len(comments), "number": number, "user": {"login": user}, "body": body})
        self.save("comments", comments)

    def merged(self, head: str, merge: str, number: int = 7) -> None:
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
        """Run the jobs of a workflow whose conditions hold, or only the named ones."""
        run = Run(self, workflow, event, commit, payload or {})
        run.run(only)
        self.logs.append(run.text)
        return run

    def jobs_of(
        self, workflow: Path, event: str, payload: Mapping[str, Any], changed: str = '["."]'
    ) -> list[str]:
        """Return the names of the jobs started by an event with these changed stacks."""
        run = Run(self, workflow, event, "", payload)
        needs = {"stacks": {"result": "success", "outputs": {"changed": changed}}}
        jobs = run.workflow["jobs"].items()
        return [name for name, job in jobs if holds(job.get("if"), {**run.context(job), "needs": needs})]

    def artifact(self, run: Run, name: str) -> list[Path]:
        return sorted((self.directory / "artifacts" / run.number / name).iterdir())

    @property
    def everything(self) -> str:
        """Everything visible to others: comments, artifacts, logs and summaries."""
        artifacts = (file for file in (self.directory / "artifacts").rglob("*") if file.is_file())
        texts = [file.read_text(encoding="utf-8") for file in artifacts]
        return "".join([*texts, *(one["body"] for one in self.comments), *self.logs])

    def save(self, name: str, value: object) -> None:
        (self.directory / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")


class Run(dict[str, JobRun]):
    """One run of a workflow: its jobs by name, with the stack if there are several, without skipped ones."""

    def __init__(
        self, github: GitHub, workflow: Path, event: str, commit: str, payload: Mapping[str, Any]
    ) -> None:
        super().__init__()
        self._github, self.workflow = github, YAML(typ="safe").load(workflow)
        assert event in self.workflow["on"]
        self.number = str(next(github.numbers))
        about = {"repository": REPOSITORY, "sha": commit, "run_id": self.number, "event_name": event}
        self._event: dict[str, Any] = {**about, "event": payload}
        self._directory = github.directory / "runs" / self.number

    @property
    def failed(self) -> bool:
        return any(job.failed for job in self.values())

    @property
    def text(self) -> str:
        """All visible text of the run."""
        return "".join(job.log + job.summary for job in self.values())

    def run(self, only: Sequence[str]) -> None:
        """Run the jobs, each after its needs."""
        for name, job in self.workflow["jobs"].items():
            if not only or name in (*only, "stacks"):
                needs = job.get("needs", [])
                needed = {one: self._result(one) for one in ([needs] if isinstance(needs, str) else needs)}
                context = {**self.context(job), "needs": needed}
                failed = any(one["result"] != "success" for one in needed.values())
                if not holds(job.get("if"), context, failed=failed):
                    continue
                stacks: list[dict[str, str]] = [{}]
                if "strategy" in job:
                    stacks = evaluate(job["strategy"]["matrix"]["stack"].strip("${} "), context)
                assert stacks, "GitHub refuses a matrix without values"
                for stack in stacks:
                    label = name if len(stacks) == 1 else f"{name} {stack['root']}"
                    self[label] = self._job(label, job, {**context, "matrix": {"stack": stack}})

    def _result(self, name: str) -> dict[str, Any]:
        """Return the result of a job, over all stacks."""
        done = [job for label, job in self.items() if label.partition(" ")[0] == name]
        result = "skipped" if not done else "failure" if any(job.failed for job in done) else "success"
        return {"result": result, "outputs": done[-1].outputs if done else {}}

    def context(self, job: Mapping[str, Any]) -> dict[str, Any]:
        granted = job.get("permissions", self.workflow["permissions"])
        token = ".".join(["ghs", *(f"{name}-{level}" for name, level in granted.items())])
        self._github.tokens.add(token)
        event = {**self._event, "token": token}
        return {"github": event, "vars": self._github.variables, "secrets": self._github.secrets}

    def _job(self, name: str, job: Mapping[str, Any], context: dict[str, Any]) -> JobRun:
        done = JobRun()
        files = self._directory / name.replace("/", "-")
        workspace, summary = files / "workspace", files / "summary.md"
        workspace.mkdir(parents=True)
        context = {**context, "steps": {}}
        runner = {
            f"GITHUB_{key.upper()}": str(self._event[key])
            for key in ("repository", "sha", "run_id", "event_name")
        }
        runner |= {"GITHUB_ACTIONS": "true", "CI": "true", "GITHUB_WORKSPACE": str(workspace)}
        for number, step in enumerate(job["steps"]):
            if not holds(step.get("if"), context, failed=done.failed):
                continue
            output = files / f"output-{number}"
            environ = {**runner, "GITHUB_STEP_SUMMARY": str(summary), "GITHUB_OUTPUT": str(output)}
            for where in (self.workflow, job, step):
                environ |= {key: filled_in(value, context) for key, value in where.get("env", {}).items()}
            label = step.get("name") or step.get("run") or step["uses"]
            if "run" in step:
                assert "${{" not in step["run"], "text from outside would be a part of the script"
                ended = self._github.shell.run(step["run"], workspace, environ)
                done.failed |= ended.code != 0
                done.logs[label] = f"{ended.log}exit code {ended.code}\n"
            else:
                options = {
                    key: filled_in(one, context) if isinstance(one, str) else one
                    for key, one in step.get("with", {}).items()
                }
                self._use(step["uses"].partition("@")[0], options, workspace)
            context["steps"][step.get("id", label)] = {"outputs": read_assignments(output)}
        done.summary = summary.read_text(encoding="utf-8") if summary.exists() else ""
        done.outputs = {key: filled_in(value, context) for key, value in job.get("outputs", {}).items()}
        return done

    def _use(self, action: str, options: Mapping[str, Any], workspace: Path) -> None:
        store = self._github.directory / "artifacts" / self.number
        match action:
            case "actions/checkout":
                assert options["persist-credentials"] is False
                depth = int(options.get("fetch-depth", 1))
                check_out(self._github.repository, self._event["sha"], workspace, depth)
            case "actions/setup-python":
                pass
            case "actions/upload-artifact":
                found = sorted(workspace.glob(options["path"]))
                assert found or options["if-no-files-found"] == "ignore", options
                for file in found:
                    kept = store / options["name"] / file.name
                    kept.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(file, kept)  # an artifact does not keep the mode
            case "actions/download-artifact":
                shutil.copytree(store / options["name"], workspace, dirs_exist_ok=True)
            case _:
                raise AssertionError(f"no such action here: {action}")
