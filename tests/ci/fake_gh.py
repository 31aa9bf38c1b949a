"""`gh` as the workflows call it, on comments, pull requests and artifacts in a directory.

The token names the permissions of the job, as `tests/ci/github.py` makes it; the rest is refused.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PER_PAGE = 2
_COMMENTS = re.compile(r"repos/([^/]+/[^/]+)/issues/(\d+)/comments")
_COMMENT = re.compile(r"repos/([^/]+/[^/]+)/issues/comments/(\d+)")
_PULLS = re.compile(r"repos/([^/]+/[^/]+)/commits/([0-9a-f]{40})/pulls")


class Refused(Exception):
    """What `gh` ends with when it is refused."""


def main(state: Path, arguments: list[str]) -> None:
    """Carry one call out."""
    if not os.environ.get("GH_TOKEN"):
        raise Refused("set the GH_TOKEN environment variable")
    if arguments[:2] == ["run", "download"]:
        _download(state, arguments[2:])
    else:
        assert arguments[0] == "api", arguments
        _api(state, arguments[1:])


def _may(what: str, *levels: str) -> None:
    if not any(f"{what}-{level}" in os.environ["GH_TOKEN"].split(".") for level in levels):
        raise Refused(f"HTTP 403: Resource not accessible by integration ({what})")


def _download(state: Path, arguments: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run")
    parser.add_argument("--repo", required=True)
    parser.add_argument("--name", required=True)
    asked = parser.parse_args(arguments)
    _may("actions", "read")
    found = state / "artifacts" / asked.run / asked.name
    if not found.is_dir():
        raise Refused("no valid artifacts found to download")
    shutil.copytree(found, Path.cwd(), dirs_exist_ok=True)


def _api(state: Path, arguments: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("--method", default="GET")
    parser.add_argument("--paginate", action="store_true")
    parser.add_argument("--silent", action="store_true")
    parser.add_argument("--field")
    parser.add_argument("--jq", default=".")
    asked = parser.parse_args(arguments)
    pages = _pages(_answer(state, asked.method, asked.path, _body(asked.field)))
    for page in pages if asked.paginate else [next(pages)]:
        if not asked.silent:
            subprocess.run(["jq", "-r", asked.jq], input=json.dumps(page), text=True, check=True)


def _body(field: str | None) -> str:
    if field is None:
        return ""
    name, _, file = field.partition("=@")
    assert name == "body"
    return Path(file).read_text(encoding="utf-8")


def _pages(answer: Any) -> Iterator[Any]:
    if not isinstance(answer, list):
        yield answer
        return
    for start in range(0, len(answer) or 1, PER_PAGE):
        yield answer[start : start + PER_PAGE]


def _answer(state: Path, method: str, path: str, body: str) -> Any:
    file = state / "comments.json"
    comments: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
    if found := _PULLS.fullmatch(path):
        _may("contents", "read")
        _may("pull-requests", "read", "write")
        return json.loads((state / "pulls.json").read_text(encoding="utf-8"))
    if method == "GET":
        found = _COMMENTS.fullmatch(path)
        assert found, path
        _may("pull-requests", "read", "write")
        return [comment for comment in comments if comment["number"] == int(found[2])]
    _may("pull-requests", "write")
    if method == "POST":
        found = _COMMENTS.fullmatch(path)
        assert found, path
        user = {"login": "github-actions[bot]"}
        comments.append({"id": 100 + len(comments), "number": int(found[2]), "user": user, "body": body})
    else:
        found = _COMMENT.fullmatch(path)
        assert found, path
        assert method == "PATCH"
        [comment] = [comment for comment in comments if comment["id"] == int(found[2])]
        comment["body"] = body
    file.write_text(json.dumps(comments), encoding="utf-8")
    return {}


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), sys.argv[2:])
    except Refused as refused:
        sys.exit(f"gh: {refused}")
