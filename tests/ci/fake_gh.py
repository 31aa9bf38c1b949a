"""`gh` as the workflows call it, on comments, pull requests and artifacts in a directory.

The token names the permissions of the job, as `tests/ci/github.py` creates it; everything else is refused.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

PER_PAGE = 2
_COMMENTS, _COMMENT = r"repos/[^/]+/[^/]+/issues/(\d+)/comments", r"repos/[^/]+/[^/]+/issues/comments/(\d+)"
_PULLS = r"repos/[^/]+/[^/]+/commits/([0-9a-f]{40})/pulls"


class Refused(Exception):
    """`gh` was refused."""


def _may(what: str, *levels: str) -> None:
    if not any(f"{what}-{level}" in os.environ["GH_TOKEN"].split(".") for level in levels):
        raise Refused(f"HTTP 403: Resource not accessible by integration ({what})")


def download(state: Path, arguments: list[str]) -> None:
    parser = argparse.ArgumentParser()
    for name in ("run", "--repo", "--name"):
        parser.add_argument(name)
    asked = parser.parse_args(arguments)
    _may("actions", "read")
    found = state / "artifacts" / asked.run / asked.name
    if not found.is_dir():
        raise Refused("no valid artifacts found to download")
    shutil.copytree(found, Path.cwd(), dirs_exist_ok=True)


def api(state: Path, arguments: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("--method", default="GET")
    parser.add_argument("--paginate", action="store_true")
    parser.add_argument("--silent", action="store_true")
    parser.add_argument("--field", default="body=@/dev/null")
    parser.add_argument("--jq", default=".")
    asked = parser.parse_args(arguments)
    assert asked.field.startswith("body=@")
    answer = _answer(state, asked.method, asked.path, Path(asked.field[6:]).read_text(encoding="utf-8"))
    pages = [answer]
    if isinstance(answer, list):
        pages = [answer[start : start + PER_PAGE] for start in range(0, len(answer) or 1, PER_PAGE)]
    for page in pages if asked.paginate else pages[:1]:
        if not asked.silent:
            subprocess.run(["jq", "-r", asked.jq], input=json.dumps(page), text=True, check=True)


def _answer(state: Path, method: str, path: str, body: str) -> Any:
    if re.fullmatch(_PULLS, path):
        _may("contents", "read")
        _may("pull-requests", "read", "write")
        return json.loads((state / "pulls.json").read_text(encoding="utf-8"))
    found = re.fullmatch(_COMMENT if method == "PATCH" else _COMMENTS, path)
    assert found, (method, path)
    number, file = int(found[1]), state / "comments.json"
    comments: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
    _may("pull-requests", "write", *(["read"] if method == "GET" else []))
    match method:
        case "GET":
            return [comment for comment in comments if comment["number"] == number]
        case "POST":
            user = {"login": "github-actions[bot]"}
            comments.append({"id": 100 + len(comments), "number": number, "user": user, "body": body})
        case "PATCH":
            [comment] = [comment for comment in comments if comment["id"] == number]
            comment["body"] = body
    file.write_text(json.dumps(comments), encoding="utf-8")
    return {}


if __name__ == "__main__":
    directory, (command, *rest) = Path(sys.argv[1]), sys.argv[2:]
    try:
        if not os.environ.get("GH_TOKEN"):
            raise Refused("set the GH_TOKEN environment variable")
        if command == "run":
            assert rest.pop(0) == "download"
            download(directory, rest)
        else:
            assert command == "api"
            api(directory, rest)
    except Refused as refused:
        sys.exit(f"gh: {refused}")
