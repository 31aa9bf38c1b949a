"""Plan files that somebody damaged or edited: shown or refused, and applied only if nothing of them changed.

Never internal error, never a secret, and no call that the plan does not show.
"""

from __future__ import annotations

import copy
import io
import json
import random
import shutil
import socket
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from reconciler.cli import main
from reconciler.cli.console import console
from reconciler.decide.plan import Action, Reason
from reconciler.emulator import ManualClock, Store, create_app, running
from reconciler.secrets import Redactor
from tests.apply.service import SharedTime
from tests.cli.conftest import manifest, write
from tests.core.test_edited_plans import at, places
from tests.hostile.sizes import RecordProperty, count_tried, size

SECRET = "tell nobody/9+x"
TOKEN = "tell-nobody-1"
SHOW = (("show",), ("show", "--json"), ("show", "--show-keep"), ("show", "-o", "text", "-o", "json=out.json"))
#: How a run over a damaged plan may end: done, refused, stale, invalid.
APPLIED = {0, 3, 4, 65}
PLAN, RECORDS = Path("saved.plan"), Path(".reconciler")


class Call(NamedTuple):
    """A request that may have changed something."""

    method: str
    path: str
    body: bytes


class Ended(NamedTuple):
    """How a run ended, and what it wrote."""

    code: int
    text: str
    err: str


def run(*arguments: str) -> Ended:
    console.redact = Redactor()
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main.run(main.cli, list(arguments))
    ended = Ended(int(code), out.getvalue() + err.getvalue(), err.getvalue())
    assert not any(one in ended.text for one in (SECRET, TOKEN, "Traceback")), arguments
    return ended


class Watch:
    """Stands before the emulator and keeps every request that is no question."""

    def __init__(self, app: Callable[..., Iterable[bytes]]) -> None:
        self.app = app
        self.calls: list[Call] = []

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        is_question = method == "GET" or path.endswith(("-searches", "/search", "/validate"))
        if not is_question and "search" not in path:
            body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            environ["wsgi.input"] = io.BytesIO(body)
            self.calls.append(Call(method, path, body))
        return self.app(environ, start_response)


class World:
    """A stack on an emulator, and a saved plan with each kind of action; it can be put back."""

    def __init__(self, store: Store, clock: ManualClock, watch: Watch, url: str) -> None:
        self.store, self.clock, self.watch = store, clock, watch
        self.plan = self._make(url)
        self._jobs = sqlite3.connect(":memory:", check_same_thread=False)
        self._live.backup(self._jobs)
        self._now_ms = clock.now_ms()
        shutil.copytree(RECORDS, "kept")
        self.put_back()

    @property
    def _live(self) -> sqlite3.Connection:
        return self.store.database._connection

    def _make(self, url: str) -> dict[str, Any]:
        secret = "variables: {token: {env: A_TOKEN, sensitive: true}}\n"
        job = "environments: {TOKEN: 'Bearer ${var.token}'}\n      parameters: {lr"
        text = manifest("change", "gone", "same", "edit", "late", url=url, more=secret)
        write(text.replace("parameters: {lr", job))
        assert run("apply", "--yes").code == 0
        done = next(one for one in self.store.jobs() if one.name == "late")
        self.store.set_phase(done.id, "Completed")
        text = manifest("same", "edit", "new", url=url, more=secret)
        text += manifest("change", "late", lr="0.2").split("jobs:\n")[1]
        text = text.replace("description: edit of the test", "description: other words")
        write(text.replace("parameters: {lr", job))
        assert run("plan", "--out", str(PLAN)).code == 0
        plan: dict[str, Any] = json.loads(PLAN.read_bytes())
        assert {a["action"] for a in plan["actions"]} == {"create", "update", "replace", "terminate", "keep"}
        return plan

    def put_back(self) -> None:
        """Have everything as it was when the plan was made."""
        self._jobs.backup(self._live)
        self.clock._now_ms = self._now_ms
        shutil.rmtree(RECORDS)
        shutil.copytree("kept", RECORDS)
        self.watch.calls.clear()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    def only_this_machine(host: Any, *more: Any, **options: Any) -> Any:
        if host not in ("127.0.0.1", "0.0.0.0", "localhost", None):
            raise socket.gaierror(f"{host} is not asked in tests")
        return resolve(host, *more, **options)

    clock, resolve = ManualClock(), socket.getaddrinfo
    with pytest.MonkeyPatch.context() as patch, Store(clock=clock) as store:
        patch.chdir(tmp_path_factory.mktemp("plans"))
        patch.setenv("MODELARTS_AUTH_TOKEN", TOKEN)
        patch.setenv("A_TOKEN", SECRET)
        patch.setattr(console, "redact", Redactor())
        patch.setattr("reconciler.modelarts.clock.SystemClock", lambda *_: SharedTime(clock))
        patch.setattr(socket, "getaddrinfo", only_this_machine)
        watch = Watch(create_app(store, project_id="p1", token=TOKEN))
        with running(watch) as url:
            yield World(store, clock, watch, url)


# ── what is done to the file ───────────────────────────────────────────────────────────────────────

TOKENS = (
    *(b"null", b"NaN", b"-Infinity", b"1e400", b"9" * 400, b"[" * 300, b"{", b"}", b'"', b",", b"\\", b"\0"),
    *(b"\xff", b"\xed\xa0\x80", b"\\ud800", b"\\u0000", b"\xef\xbb\xbf", b"${var.token}", b"${env.A}", b"\n"),
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, 2, -1, 10**40, 1.5, "", "x", "a\0b"),
    *("\ud800", "\x1b[2J", "../..", "/dev/zero"),
    *("${var.token}", "x ${var.token}", "${var.other}", "${env.A_TOKEN}", "${", "$${var.token}"),
    *("<script>", [], {}, ["x"], {"x": "y"}, [[]], {"name": "TOKEN", "value": "${var.token}"}),
    *("postgresql://u:${env.A_TOKEN}@127.0.0.1:1/r", "sqlite:///x.db", "x" * 300, "9" * 400),
    *(*Action, *Reason),
    *("Running", "Completed", "Terminated", "Frozen"),
    *("terminate_first", "create_first", "local", "modelarts"),
)  # fmt: skip


def damaged(chance: random.Random, data: bytes) -> bytes:
    """The file with some bytes changed, cut, doubled or put in."""
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        at, more = chance.randrange(len(data) + 1), chance.randrange(1, 60)
        kind = chance.randrange(6)
        if kind == 0 and at < len(data):
            data = data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]
        elif kind == 1:
            data = data[:at] + data[at + more :]
        elif kind == 2:
            data = data[:at] + data[at : at + more] + data[at:]
        elif kind == 3:
            data = data[:at] + chance.choice(TOKENS) + data[at:]
        elif kind == 4:
            data = data[:at] + chance.randbytes(more) + data[at + more :]
        else:
            data = data[: chance.randrange(len(data) + 1)]
    return data


def edited(chance: random.Random, plan: dict[str, Any]) -> dict[str, Any]:
    """The plan with some parts changed, taken away, swapped or taken from another place."""
    plan = copy.deepcopy(plan)
    for _ in range(chance.choice((1, 1, 2, 3))):
        every = list(places(plan))
        path = chance.choice(every)
        parent, kind = at(plan, path[:-1]), chance.randrange(6)
        other = chance.choice([one for one in every if one[-1] == path[-1]] if kind == 4 else every)
        if kind == 0:
            parent.pop(path[-1])
        elif kind == 1 and isinstance(parent, dict):
            parent[chance.choice(("x", "of_next_year", "before", "desired", "env", "\0", ""))] = (
                chance.choice(VALUES)
            )
        elif kind == 2 and isinstance(parent[path[-1]], str):
            parent[path[-1]] += chance.choice(("x", "-r2", ".protected", ".stopped", " "))
        elif kind in (3, 4):
            parent[path[-1]] = copy.deepcopy(at(plan, other))
        else:
            parent[path[-1]] = chance.choice(VALUES)
    return plan


def attempt(chance: random.Random, plan: dict[str, Any]) -> bytes:
    """One file that somebody might hand in."""
    if chance.randrange(2):
        return damaged(chance, json.dumps(plan, indent=2).encode())
    return json.dumps(edited(chance, plan)).encode()


# ── what is looked at ──────────────────────────────────────────────────────────────────────────────


def unexpected(calls: list[Call], plan: dict[str, Any]) -> list[Call]:
    """The calls that no action of the file announces; a create counts once."""
    actions = [action for action in plan["actions"] if isinstance(action, dict)]
    names = [a["after"]["name"] for a in actions if a["action"] in ("create", "replace")]
    ended = {a["before"]["id"] for a in actions if a["action"] in ("replace", "terminate")}
    written = ended | {a["before"]["id"] for a in actions if a["action"] == "update"}
    wrong = []
    for call in calls:
        job = call.path.partition("/training-jobs/")[2].partition("/")[0]
        if not job:
            body = json.loads(call.body)
            name = body["metadata"]["name"]
            is_shown = name in names and _says(plan, name, body)
            names = [one for one in names if one != name]
        elif call.path.endswith("/actions"):
            is_shown = job in ended and json.loads(call.body) == {"action_type": "terminate"}
        else:
            is_shown = call.method == "PUT" and job in written
        if not is_shown:
            wrong.append(call)
    return wrong


def _says(plan: dict[str, Any], name: str, body: Any) -> bool:
    """Whether the file holds this body, secrets by name."""
    [saved] = [
        a["desired"] for a in plan["actions"] if (a.get("after") or {}).get("name") == name and "desired" in a
    ]
    expected = json.dumps(saved).replace("$${", "${")
    return bool(json.loads(expected.replace("${var.token}", SECRET)) == body)


def test_damaged_plan_is_refused_or_does_what_it_shows(world: World, record_property: RecordProperty) -> None:
    count, done, codes = size(150, 1), 0, Counter[str]()
    for number in range(count):
        chance = random.Random(f"plans {number}")
        data = attempt(chance, world.plan)
        PLAN.write_bytes(data)
        PLAN.chmod(0o600)
        command = chance.choice(SHOW)
        shown = run(*command, str(PLAN))
        assert shown.code in (0, 65), f"{number}: {shown}"
        applied = run("apply", "--plan", str(PLAN))
        assert not world.watch.calls, f"{number}: nobody said yes"
        assert applied.code in APPLIED, f"{number}: {applied}"
        codes[f"refused {applied.code}"] += 1
        if "not confirmed" in applied.err:
            applied = run("apply", "--yes", "--plan", str(PLAN))
            codes[f"applied {applied.code}"] += 1
            assert applied.code in APPLIED, f"{number}: {applied}"
            assert unexpected(world.watch.calls, world.plan) == [], number
            done += bool(world.watch.calls)
            world.put_back()
    assert done
    assert codes["refused 65"] > count * 2 // 3
    count_tried(record_property, "plan files, damaged or edited", count)


def test_undamaged_plan_does_what_it_shows(world: World) -> None:
    """What the others are held against."""
    PLAN.write_bytes(json.dumps(world.plan).encode())
    PLAN.chmod(0o600)
    ended = run("apply", "--yes", "--plan", str(PLAN))
    assert ended.code == 0, ended
    assert len(world.watch.calls) == 8
    assert unexpected(world.watch.calls, world.plan) == []
    create = next(call for call in world.watch.calls if call.path.endswith("/training-jobs"))
    assert unexpected([*world.watch.calls, create], world.plan) == [create]
    assert unexpected([create._replace(body=create.body.replace(b"train.py", b"other.py"))], world.plan) != []
    assert unexpected([Call("PUT", "/v2/p1/training-jobs/another", b"{}")], world.plan) != []
    world.put_back()
