"""A pretend GitLab: its API on a local port, and runners that run the jobs of a pipeline."""

from __future__ import annotations

import json
import re
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from ruamel.yaml import YAML

from tests.ci.expressions import evaluate_tokens
from tests.ci.shell import RECONCILER, Shell, check_out, read_assignments

PROJECT_ID, TOKEN, ME = "42", "glpat-tell-nobody", 900
PER_PAGE = 2
_TERM = re.compile(r'\s*(?:\$(?P<name>\w+)|(?P<text>"[^"]*")|(?P<operator>==|!=|&&|\|\|))')


def rule_holds(rule: str, variables: Mapping[str, str]) -> bool:
    return bool(
        evaluate_tokens(_TERM, rule, lambda it: it["text"][1:-1] if it["text"] else variables.get(it["name"]))
    )


@dataclass
class JobRun:
    id: str
    code: int
    log: str
    handed_on: dict[str, str] = field(default_factory=dict)


class GitLab:
    def __init__(self, directory: Path, repository: Path, credentials: Mapping[str, str]) -> None:
        self._directory, self._repository, self._credentials = directory, repository, credentials
        self._shell = Shell(directory / "shell")
        self._jobs = count(5_001)
        self.notes: list[dict[str, Any]] = []
        self.merge_requests: list[dict[str, Any]] = []
        self.logs: list[str] = []
        self.url = ""

    def note(self, author: int, body: str, iid: str = "3") -> None:
        self.notes.append({"id": len(self.notes) + 1, "iid": iid, "author": {"id": author}, "body": body})

    @contextmanager
    def serving(self) -> Iterator[GitLab]:
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"project": self}))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        self.url = f"http://127.0.0.1:{server.server_port}/api/v4"
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def run(self, file: Path, commit: str, predefined: Mapping[str, str], *only: str) -> dict[str, JobRun]:
        """Run the jobs of a pipeline whose rules hold, or only the named ones."""
        pipeline = YAML(typ="safe").load(file)
        variables = {
            "CI_COMMIT_SHA": commit,
            "CI_DEFAULT_BRANCH": "main",
            "CI_PROJECT_ID": PROJECT_ID,
            "CI_API_V4_URL": self.url,
            "RECONCILER": RECONCILER,
            **predefined,
        }
        assert any(rule_holds(rule["if"], variables) for rule in pipeline["workflow"]["rules"])
        done: dict[str, JobRun] = {}
        for name, job in pipeline.items():
            if not isinstance(job, dict) or "script" not in job or (only and name not in only):
                continue
            if any(rule_holds(rule["if"], variables) for rule in job["rules"]):
                done[name] = self._job(pipeline, job, variables, [done[one] for one in job.get("needs", [])])
        return done

    def _job(self, pipeline: Any, job: Any, variables: Mapping[str, str], needed: list[JobRun]) -> JobRun:
        number = str(next(self._jobs))
        checkout = self._directory / "jobs" / number / "checkout"
        check_out(self._repository, variables["CI_COMMIT_SHA"], checkout)
        environ = {**pipeline["variables"], **variables, "CI_JOB_ID": number}
        if "environment" in job:
            # Variables of these environments only, as the head of the file requires.
            environ |= {**self._credentials, "GITLAB_TOKEN": TOKEN}
        for one in needed:
            environ |= one.handed_on
            shutil.copytree(self._artifacts(one.id), checkout, dirs_exist_ok=True)
        script = "\n".join([*pipeline["default"]["before_script"], *job["script"]])
        ended = self._shell.run(script, checkout, environ)
        self.logs.append(ended.log)
        done = JobRun(number, ended.code, ended.log)
        kept, artifacts = self._artifacts(number), job.get("artifacts", {})
        kept.mkdir()
        reports = artifacts.get("reports", {})
        for name in [*artifacts.get("paths", []), *reports.values()]:
            if (file := checkout / name).exists():
                shutil.copyfile(file, kept / name)
        done.handed_on = read_assignments(checkout / reports.get("dotenv", "-"))
        return done

    def _artifacts(self, number: str) -> Path:
        return self._directory / "jobs" / number / "artifacts"

    def answer(self, method: str, path: str, query: Mapping[str, list[str]], body: Any) -> Any:
        """Return a response of the API: a value, a page of a list, or the bytes of a file."""
        if path == "/user":
            return {"id": ME}
        path = path.removeprefix(f"/projects/{PROJECT_ID}")
        if re.fullmatch(r"/repository/commits/[0-9a-f]{40}/merge_requests", path):
            return self.merge_requests
        if found := re.fullmatch(r"/jobs/(\d+)/artifacts/(.+)", path):
            return (self._artifacts(found[1]) / unquote(found[2])).read_bytes()
        found = re.fullmatch(r"/merge_requests/(\d+)/notes(?:/(\d+))?", path)
        assert found, path
        if method == "GET":
            assert query["sort"] == ["asc"]
            return [note for note in self.notes if note["iid"] == found[1]]
        if method == "POST":
            self.note(ME, body["body"], found[1])
        else:
            assert method == "PUT"
            self.notes[int(found[2]) - 1]["body"] = body["body"]
        return {}


class _Handler(BaseHTTPRequestHandler):
    project: GitLab

    def do_GET(self) -> None:
        assert self.headers["PRIVATE-TOKEN"] == TOKEN
        address = urlsplit(self.path)
        query = parse_qs(address.query)
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        answer = self.project.answer(self.command, address.path.removeprefix("/api/v4"), query, body)
        next_page = ""
        if isinstance(answer, list) and "page" in query:
            page = int(query["page"][0])
            next_page = str(page + 1) * (len(answer) > page * PER_PAGE)
            answer = answer[(page - 1) * PER_PAGE : page * PER_PAGE]
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("X-Next-Page", next_page)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_POST = do_PUT = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass
