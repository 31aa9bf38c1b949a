"""A secret that the service repeats in any of its text fields leaves the program by no channel.

The channels are stdout, stderr, each format as a file, the files of a CI service, the saved plan, the page of
the history, metrics, the record store with its journal, and notifications. (Metrics that are served or pushed
have no label that the service gives.)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.cli.console import console
from reconciler.cli.main import cli, run
from reconciler.emulator import ManualClock, Store, create_app, running
from reconciler.secrets import Redactor
from tests.apply.service import SharedTime
from tests.cli.conftest import manifest
from tests.hostile.sizes import RecordProperty, count_tried
from tests.hostile.spellings_of_secrets import leak_of
from tests.notify.receiver import Receiver, receiving

ROW = "secrets in each text field of the service, in every channel"
SECRET, TOKEN = "tell/nobody+9!xQz", "tell-nobody-1"
FORMATS = ("markdown", "html", "junit", "sarif", "prometheus", "json", "github")
#: What says which job it is and how it stands; without it there is nothing to tell.
IDENTITY = {("metadata", "id"), ("metadata", "name"), ("status", "phase")}

Path_ = tuple[Any, ...]


def texts(tree: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Every place of a text in plain data."""
    if isinstance(tree, str):
        yield path
    elif isinstance(tree, dict | list):
        for step, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from texts(value, (*path, step))


class Repeater:
    """Hands requests on, and writes the secret into one field of each job in an answer, or into errors."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.path: Path_ = ()
        self.refuses: str | None = None

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if self.refuses == environ["REQUEST_METHOD"]:
            start_response("400 Bad Request", [("Content-Type", "application/json")])
            return [json.dumps({"error_code": "ModelArts.2757", "error_msg": f"no: {SECRET}"}).encode()]
        told: list[Any] = []
        content = b"".join(self.app(environ, lambda status, headers, _=None: told.append((status, headers))))
        start_response(told[-1][0], [("Content-Type", "application/json")])
        try:
            answer = json.loads(content)
        except ValueError:
            return [content]
        if isinstance(answer, dict) and self.path:
            for job in answer.get("items") or [answer]:
                self._write(job)
        return [json.dumps(answer).encode()]

    def _write(self, job: dict[str, Any]) -> None:
        place: Any = job
        try:
            for step in self.path[:-1]:
                place = place[step]
            text = place[self.path[-1]]
        except (LookupError, TypeError):
            return
        place[self.path[-1]] = f"{SECRET} {text}"


@pytest.fixture
def repeater(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[tuple[Repeater, Receiver, Store]]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MODELARTS_AUTH_TOKEN", TOKEN)
    monkeypatch.setenv("THE_TOKEN", SECRET)
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "github-output"))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "github-summary"))
    monkeypatch.setattr(console, "redact", Redactor())
    clock = ManualClock()
    monkeypatch.setattr("reconciler.modelarts.clock.SystemClock", lambda *_: SharedTime(clock))
    with Store(clock=clock) as store, receiving() as receiver:
        repeater = Repeater(create_app(store, project_id="p1", token=TOKEN))
        with running(repeater) as url:
            more = "variables: {token: {env: THE_TOKEN, sensitive: true}}\n"
            more += f"notify: [{{url: '{receiver.url('chat')}'}}]\n"
            Path("jobs.yaml").write_text(manifest("a", "b", url=url, more=more), encoding="utf-8")
            yield repeater, receiver, store


def test_secret_in_any_text_field_of_the_service_leaves_by_no_channel(
    repeater: tuple[Repeater, Receiver, Store],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    record_property: RecordProperty,
) -> None:
    spoiled, receiver, store = repeater
    assert run(cli, ["apply", "--yes"]) == 0
    shown = store.jobs()[0]
    fields = [path for path in texts(json.loads(shown.body_text)) if path not in IDENTITY]
    fields += [("metadata", "user_name"), ("status", "secondary_phase"), ("status", "phase")]
    assert len(fields) > 10
    looked_through = 0

    def look(command: list[str]) -> None:
        nonlocal looked_through
        code = run(cli, command)
        said = capsys.readouterr()
        assert code != 70, said.err
        for output in said:
            assert leak_of(SECRET, output, 2) is None, (command, spoiled.path)
        looked_through += 2

    files = [
        argument
        for name in FORMATS
        for argument in ("-o", f"{name}={name}.out" if name != "github" else name)
    ]
    for spoiled.path in fields:
        look(["plan", "--show-keep", "--out", "saved.plan", *files])
        look(["drift", "--remind", "0s", *files])
    spoiled.path, spoiled.refuses = ("metadata", "description"), "PUT"
    look(["apply", "--yes", *files])
    look(["history", "--html", "history.html"])
    for file in sorted(tmp_path.rglob("*")):
        if file.is_file() and file.name != "jobs.yaml":
            assert leak_of(SECRET, file.read_bytes().decode("utf-8", "replace"), 1) is None, file.name
            looked_through += 1
    for message in receiver.messages["chat"]:
        assert leak_of(SECRET, json.dumps(message, ensure_ascii=False), 2) is None
        looked_through += 1
    assert {title.split(": ")[1].split(",")[0] for title in receiver.titles("chat")} == {
        "drift",
        "apply failed",
    }
    count_tried(record_property, ROW, looked_through)
