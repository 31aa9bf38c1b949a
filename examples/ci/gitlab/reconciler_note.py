"""Write the plan as a note on a merge request, fetch the plan that a note shows, and list what is due.

    python reconciler_note.py write plan.md               # in a pipeline of a merge request
    python reconciler_note.py fetch reconciler.plan.json  # after the merge; prints the digest shown
    python reconciler_note.py due plan.json               # on a schedule; prints the keys that may start

Only notes of the token's own user count. The first line of a note says whose plan it is, its last one which
job made it, from which commit, and its digest. Copy this file to .gitlab/ of the repository. It needs Python
alone, and reads GITLAB_TOKEN and the variables that GitLab sets.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote
from urllib.request import Request, urlopen

#: Reasons to start a job without another approval: it is declared, and it is due.
DUE = ("scheduled", "retry", "recreate", "upstream_newer", "not_found")
SHOWN = re.compile(r"job (\d+), commit ([0-9a-f]+), digest (sha256:[0-9a-f]{64})")


def call(method: str, path: str, body: object = None) -> tuple[bytes, str]:
    """Send a request to GitLab's API. Returns the response, and the number of the next page or ""."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"PRIVATE-TOKEN": os.environ["GITLAB_TOKEN"], "Content-Type": "application/json"}
    url = f"{os.environ['CI_API_V4_URL']}/{path}"
    with urlopen(Request(url, data, headers, method=method), timeout=60) as answer:  # noqa: S310
        return answer.read(), answer.headers.get("X-Next-Page") or ""


def ask(path: str) -> Any:
    """Return the response of the API, parsed as JSON."""
    return json.loads(call("GET", path)[0])


def notes(merge_request: str) -> Iterator[dict[str, Any]]:
    """Return our notes on a merge request, oldest first."""
    me, page = ask("user")["id"], "1"
    while page:
        text, page = call(
            "GET", f"{merge_request}/notes?sort=asc&order_by=created_at&per_page=100&page={page}"
        )
        yield from (note for note in json.loads(text) if note["author"]["id"] == me)


def write(project: str, file: str) -> None:
    """Show the plan in the note that begins with the same line, or in a new one."""
    body = Path(file).read_text(encoding="utf-8")
    marker = body.partition("\n")[0]
    merge_request = f"{project}/merge_requests/{os.environ['CI_MERGE_REQUEST_IID']}"
    for note in notes(merge_request):
        if note["body"].partition("\n")[0].rstrip() == marker:
            call("PUT", f"{merge_request}/notes/{note['id']}", {"body": body})
            return
    call("POST", f"{merge_request}/notes", {"body": body})


def fetch(project: str, file: str) -> None:
    """Download the plan that the merge request of this commit showed last, and print its digest."""
    commit = os.environ["CI_COMMIT_SHA"]
    for found in ask(f"{project}/repository/commits/{commit}/merge_requests"):
        made = {found["sha"], found.get("merge_commit_sha"), found.get("squash_commit_sha")}
        if found["state"] == "merged" and commit in made:
            break
    else:
        refuse(f"commit {commit} is not the merge of a merge request")
    said = f"A merge applies this plan of {os.environ['STACK']} on {os.environ['TARGET']}: "
    shown = None
    for note in notes(f"{project}/merge_requests/{found['iid']}"):
        lines = note["body"].rstrip().splitlines() or [""]
        if lines[0].startswith("<!-- reconciler: ") and lines[-1].startswith(said):
            shown = SHOWN.fullmatch(lines[-1].removeprefix(said))
    if shown is None:
        refuse(f"merge request {found['iid']} has no note with a plan that can be applied")
    job, planned, digest = shown.groups()
    if planned != found["sha"]:
        refuse(f"the plan on merge request {found['iid']} is not that of its last commit")
    plan, _ = call("GET", f"{project}/jobs/{job}/artifacts/{quote(Path(file).name)}")
    Path(file).touch(mode=0o600)
    Path(file).write_bytes(plan)
    sys.stdout.write(f"{digest}\n")


def due(_: str, file: str) -> None:
    """Print the keys whose only action is to start a job that is due."""
    actions = json.loads(Path(file).read_text(encoding="utf-8"))["actions"]
    others = {one["key"] for one in actions if one["action"] != "create" or one["reason"] not in DUE}
    sys.stdout.write(",".join(sorted({one["key"] for one in actions} - others)))


def refuse(why: str) -> NoReturn:
    """There is no approved plan."""
    sys.exit(f"no approved plan: {why}; run a pipeline of this branch by hand, which plans anew")


if __name__ == "__main__":
    command = {"write": write, "fetch": fetch, "due": due}[sys.argv[1]]
    command(f"projects/{os.environ['CI_PROJECT_ID']}", sys.argv[2])
