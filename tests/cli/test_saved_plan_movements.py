"""What may happen between `plan --out` and `apply --plan`, each kind by its name: harmless, stale or refused.

A plan is stale when what an executed action rests on moved (its job, the class of its phase, its digest, the
name that is needed, the keys that it needs), and when carrying it out would end or overwrite what it did not
show. Then nothing is sent. Everything else is harmless, whatever became of kept, deferred and blocked keys:
what was approved is done, and the next plan shows the rest.

Source: docs/saved-plans.md, "Stale"; docs/semantics.md, "Apply".
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from reconciler.cli.main import cli, run
from reconciler.emulator import Job, Store
from reconciler.emulator.errors import ApiError
from reconciler.modelarts.clock import SystemClock
from reconciler.modelarts.local import LOCAL_PROJECT
from reconciler.plan_file import sealed
from tests.cli.conftest import Reconciler, Said, manifest
from tests.cli.lock_helpers import held_by
from tests.modelarts.building import a_body

PLAN, MANIFEST, RECORDS = Path("saved.plan"), Path("jobs.yaml"), Path(".reconciler/records.sqlite3")
JOBS = Path(".reconciler/local.sqlite3")

FIRST = ("change", "gone", "same", "edit", "done", "again", "tried", "up")
#: The phase of each job when the plan is made; `gone` is Running, too.
PHASES = {
    **{"change": "Running", "gone": "Running", "same": "Pending", "edit": "Running", "done": "Completed"},
    **{"again": "Completed", "tried": "Failed", "up": "Completed"},
}
PLANNED = {
    **{"again": "create", "change": "replace", "done": "keep", "edit": "update", "gone": "terminate"},
    **{"new": "create", "same": "keep", "tried": "defer", "up": "keep", "down": "create"},
}
MORE = "variables: {token: {env: A_TOKEN, sensitive: true}, lr: {env: AN_LR, default: 0.1}}\n"


def _jobs(*keys: str) -> str:
    text = manifest(*keys, more=MORE)
    retried = "    lifecycle: {on_failure: retry, retry_delay: 10m}\n"
    text = text.replace("  tried:\n", f"  tried:\n{retried}")
    return text.replace("  down:\n", "  down:\n    needs: [up]\n")


def _edited() -> str:
    text = _jobs(*(key for key in FIRST if key != "gone"), "new", "down")
    for key, old, new in (
        ("change", "lr: 0.1", "lr: 0.2"),
        ("again", "lr: 0.1", "lr: 0.2"),
        ("edit", "edit of the test", "other words"),
        (
            "new",
            "parameters: {lr: 0.1}",
            "parameters: {lr: '${var.lr}'}\n      environments: {T: '${var.token}'}",
        ),
    ):
        head, entry, tail = text.partition(f"  {key}:\n")
        text = head + entry + tail.replace(old, new, 1)
    return text


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a saved plan that creates, replaces, updates, terminates, keeps and defers."""
    home: Path = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        patch.setenv("A_TOKEN", "first-secret")
        JOBS.parent.mkdir(mode=0o700)
        Store(str(JOBS), speed=1e-6).close()
        MANIFEST.write_text(_jobs(*FIRST), encoding="utf-8")
        assert run(cli, ["apply", "--yes", "-o", "text=first.txt"]) == 0
        with Store(str(JOBS)) as store:
            for job in store.jobs():
                store.set_phase(job.id, PHASES.get(job.name, "Running"))
        MANIFEST.write_text(_edited(), encoding="utf-8")
        assert run(cli, ["plan", "--out", str(PLAN), "-o", "text=plan.txt"]) == 0
        actions = json.loads(PLAN.read_text(encoding="utf-8"))["actions"]
        assert {action["key"]: action["action"] for action in actions} == PLANNED
        MANIFEST.unlink()
    return home


class LocalTime(SystemClock):
    """Waiting takes no time, and the jobs live on."""

    def sleep(self, seconds: float) -> None:
        with Store(str(JOBS)) as store:
            store.clock.advance(seconds=seconds)


class Place(NamedTuple):
    """A copy of that directory, which is the current one, and what else may move there."""

    store: Store
    patch: pytest.MonkeyPatch
    cleanup: ExitStack
    reconciler: Reconciler

    def job(self, name: str) -> Job:
        """One job."""
        return next(job for job in self.store.jobs() if job.name == name)

    def put(self, name: str, phase: str) -> None:
        """Another phase."""
        self.store.set_phase(self.job(name).id, phase)

    def take(self, name: str, description: str = "somebody's") -> None:
        """A new job, made elsewhere."""
        self.store.create(LOCAL_PROJECT, a_body(name, description))

    def describe(self, name: str, old: str, new: str) -> None:
        """Other words in a description."""

        def edit(body: dict[str, Any]) -> None:
            found = body["metadata"]["description"]
            assert re.search(old, found)
            body["metadata"]["description"] = re.sub(old, new, found)

        self.store.edit(self.job(name).id, edit)

    def delete(self, name: str) -> None:
        """Its record is gone from the service."""
        self.store.delete(LOCAL_PROJECT, self.job(name).id)

    def let_pass(self, minutes: float) -> None:
        """Time passes, and every job stays in its phase."""
        jobs = self.store.jobs()
        for job in jobs:
            self.store.hold(job.id)
        self.store.clock.advance(minutes=minutes)
        for job in jobs:
            self.store.release(job.id)

    def declare(self, text: str) -> None:
        """Another manifest."""
        MANIFEST.write_text(text, encoding="utf-8")

    def edit_plan(self, finish: Callable[[dict[str, Any]], dict[str, Any]] = dict, **said: Any) -> None:
        """Edit the file of the plan; `finish` is done to its document at last."""
        document = json.loads(PLAN.read_text(encoding="utf-8"))
        PLAN.write_text(json.dumps(finish({**document, **said})), encoding="utf-8")

    def apply(self, *options: str) -> Said:
        """Carry the plan out."""
        return self.reconciler("apply", "--plan", str(PLAN), "--yes", *options)

    def state(self) -> list[tuple[Any, ...]]:
        """All that the service has of all jobs."""
        return [(job.id, job.name, job.body_text, job.life.phase) for job in self.store.jobs()]


@pytest.fixture
def place(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reconciler: Reconciler
) -> Iterator[Place]:
    """A fresh copy."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.setenv("A_TOKEN", "first-secret")
    monkeypatch.setattr("reconciler.modelarts.clock.SystemClock", LocalTime)
    with ExitStack() as cleanup, Store(str(JOBS)) as store:
        yield Place(store, monkeypatch, cleanup, reconciler)


Move = Callable[[Place], object]


def apply_as_colleague(place: Place, text: str) -> None:
    """Somebody else plans and applies another manifest."""
    place.declare(text)
    assert place.reconciler("apply", "--yes", "--force").code in (0, 3)
    MANIFEST.unlink()


def unmarked(name: str) -> Move:
    return lambda place: place.describe(name, r" ?reconciler\.\S+", "")


def without(name: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda document: sealed({key: value for key, value in document.items() if key != name})


def adopt_as(place: Place, name: str, key: str) -> None:
    """A colleague's job goes over to a key."""
    place.take(name)
    marker = f"reconciler.test.{key}.r2.a000000000000.id{place.job(name).id[:8]}"
    place.describe(name, r"\Z", f" {marker}")


HARMLESS: dict[str, Move] = {
    "nothing moved": lambda p: None,
    # phases
    "a kept job went on from Pending to Running": lambda p: p.put("same", "Running"),
    "a kept job went back from Pending to Creating": lambda p: p.put("same", "Creating"),
    "a kept job completed": lambda p: p.put("same", "Completed"),
    "a kept job failed": lambda p: p.put("same", "Failed"),
    "a kept job was terminated": lambda p: p.put("same", "Terminated"),
    "a kept job that completed was restarted by the service": lambda p: p.put("done", "Running"),
    "a kept job is in an unknown phase": lambda p: p.put("same", "Frozen"),
    "the job to be replaced was queued again": lambda p: p.put("change", "Pending"),
    "the job to be updated was queued again": lambda p: p.put("edit", "Pending"),
    "the job to be terminated was queued again": lambda p: p.put("gone", "Creating"),
    "the job of a deferred retry went from Failed to Abnormal": lambda p: p.put("tried", "Abnormal"),
    "the job of a deferred retry was restarted by the service": lambda p: p.put("tried", "Running"),
    # records
    "the record of a kept job that completed aged out": lambda p: p.delete("done"),
    "the record of a kept job that was active is gone": lambda p: (p.put("same", "Failed"), p.delete("same")),
    "the record of a kept job is gone, and the history does not know it": lambda p: (
        p.delete("done"),
        shutil.move(RECORDS, "lost"),
    ),
    "the record of the kept job that a new one needs aged out": lambda p: p.delete("up"),
    "the record of the job of a deferred retry is gone": lambda p: p.delete("tried"),
    "the record of the job before a create aged out": lambda p: p.delete("again"),
    # time
    "the deferred retry has become due": lambda p: p.let_pass(minutes=20),
    # what is not the plan's
    "a job of somebody else's was made": lambda p: p.take("theirs"),
    "a job of another stack was made": lambda p: p.take("x", "reconciler.other.x.r1.a000000000000"),
    "our marker was copied to a job of another name": lambda p: p.take(
        "copied", p.job("same").body["metadata"]["description"]
    ),
    "the description of a kept job was edited": lambda p: p.describe("same", "same of", "mine, of"),
    "the description of the job to be terminated was edited": lambda p: p.describe("gone", "gone of", "of"),
    "the description to be written stands there already": lambda p: p.describe(
        "edit", "edit of the test", "other words"
    ),
    "the kept job was protected": lambda p: p.describe("same", r"\Z", ".protected"),
    "the kept job that a new one needs was protected": lambda p: p.describe("up", r"\Z", ".protected"),
    "the marker of a kept job was removed": unmarked("same"),
    "a kept job went over to another stack": lambda p: p.describe(
        "same", "reconciler.test.", "reconciler.other."
    ),
    "another digest is in the marker of a kept job": lambda p: p.describe(
        "same", r"\.([a-z])[0-9a-f]{12}", r".\g<1>000000000000"
    ),
    "a colleague made another revision of a kept key": lambda p: p.take(
        "same-r2", "reconciler.test.same.r2.a000000000000"
    ),
    "the next name of a kept key was taken": lambda p: p.take("same-r2"),
    "a colleague released a kept key": lambda p: (
        p.declare(_edited()),
        p.reconciler("release", "same", "--yes"),
        p.declare("not read"),
    ),
    # what the plan holds already, and what is resolved again
    "the manifest was edited": lambda p: p.declare(manifest("unrelated")),
    "the manifest is invalid": lambda p: p.declare("stack: [\n"),
    "limits would refuse it now": lambda p: p.declare(_edited() + "limits: {node_hours: 0}\n"),
    "a policy would deny it now": lambda p: p.declare(_edited() + "policies: [{name: none, deny: 'true'}]\n"),
    "another value of a variable": lambda p: p.patch.setenv("AN_LR", "0.7"),
    "another value of a secret": lambda p: p.patch.setenv("A_TOKEN", "second-secret"),
    "another patch version of the program": lambda p: p.patch.setattr(
        "reconciler.plan_file.__version__", "0.1.99"
    ),
    "another time of creation": lambda p: p.edit_plan(created_at="2026-01-01T00:00:00Z"),
}

STALE: dict[str, tuple[Move, str]] = {
    # phases
    "the job to be replaced has ended": (
        lambda p: p.put("change", "Completed"),
        "change: change was Running, now Completed",
    ),
    "the job to be replaced is being terminated": (
        lambda p: p.put("change", "Terminating"),
        "change: change was Running, now Terminating",
    ),
    "the job to be updated has failed": (
        lambda p: p.put("edit", "Failed"),
        "edit: edit was Running, now Failed",
    ),
    "the job to be terminated has ended": (
        lambda p: p.put("gone", "Completed"),
        "gone: gone was Running, now Completed",
    ),
    "the job before a create was restarted by the service": (
        lambda p: p.put("again", "Running"),
        "again: again is Running again",
    ),
    "the job to be replaced is gone": (
        lambda p: (p.put("change", "Failed"), p.delete("change")),
        "change: change ({change}) is gone or no longer carries our marker",
    ),
    "the marker of the job to be replaced was removed": (
        unmarked("change"),
        "change: change ({change}) is gone or no longer carries our marker",
    ),
    "the marker of the job to be updated was removed": (
        unmarked("edit"),
        "edit: edit ({edit}) is gone or no longer carries our marker",
    ),
    "the marker of the job to be terminated was removed": (
        unmarked("gone"),
        "gone: gone ({gone}) is gone or no longer carries our marker",
    ),
    "the job to be terminated went over to another stack": (
        lambda p: p.describe("gone", "reconciler.test.", "reconciler.other."),
        "gone: gone ({gone}) is gone or no longer carries our marker",
    ),
    "another digest is in the marker of the job to be replaced": (
        lambda p: p.describe("change", r"\.([a-z])[0-9a-f]{12}", r".\g<1>000000000000"),
        "change: the marker of change has changed",
    ),
    "the job to be replaced was protected": (
        lambda p: p.describe("change", r"\Z", ".protected"),
        "change: change is now protected",
    ),
    "the job to be terminated was protected": (
        lambda p: p.describe("gone", r"\Z", ".protected"),
        "gone: gone is now protected",
    ),
    # names
    "the name of a new key was taken": (lambda p: p.take("new"), "new: the name new is taken"),
    "the name of a new key was taken by another stack": (
        lambda p: p.take("new", "reconciler.other.new.r1.a000000000000"),
        "new: the name new is taken",
    ),
    "the name of a new key was taken in another case": (
        lambda p: p.take("NEW"),
        "new: the name NEW is taken",
    ),
    "the marker of a job was copied to the name of a new key": (
        lambda p: p.take("new", p.job("same").body["metadata"]["description"]),
        "new: the name new is taken",
    ),
    "the name of the next revision was taken": (
        lambda p: p.take("change-r2"),
        "change: the name change-r2 is taken",
    ),
    "a later revision's name was taken": (
        lambda p: p.take("again-r4"),
        "again: r2 is no longer the next revision; r5 is",
    ),
    "the name of a new key was adopted as a revision of a kept key": (
        lambda p: adopt_as(p, "new", "same"),
        "new: r1 is no longer the next revision; r2 is",
    ),
    # what a new job needs
    "the kept job that a new one needs was restarted by the service": (
        lambda p: p.put("up", "Running"),
        "up: up was Completed, now Running",
    ),
    "the kept job that a new one needs failed": (
        lambda p: p.put("up", "Failed"),
        "up: up was Completed, now Failed",
    ),
    "the kept job that a new one needs lost its marker": (
        unmarked("up"),
        "up: up ({up}) is gone or no longer carries our marker",
    ),
    "the kept job that a new one needs is gone, and the history does not know it": (
        lambda p: (p.delete("up"), shutil.move(RECORDS, "lost")),
        "up: up ({up}) is gone or no longer carries our marker",
    ),
    "a colleague runs another revision of the key that a new one needs": (
        lambda p: p.take("up-r2", "reconciler.test.up.r2.a000000000000"),
        "up: up-r2 exists, which the plan does not know",
    ),
    "another revision of the key that a new one needs failed": (
        lambda p: (p.take("up-r2", "reconciler.test.up.r2.a000000000000"), p.put("up-r2", "Failed")),
        "up: needed, and up-r2 is Failed",
    ),
    # what colleagues did
    "a colleague made the new job": (
        lambda p: p.take("new", "reconciler.test.new.r1.a000000000000"),
        "new: r1 is no longer the next revision; r2 is",
    ),
    "a colleague made another revision of the key to be terminated": (
        lambda p: p.take("gone-r2", "reconciler.test.gone.r2.a000000000000"),
        "gone: gone-r2 exists, which the plan does not know",
    ),
    "a colleague applied the same edit": (
        lambda p: apply_as_colleague(p, _edited()),
        "change: change was Running, now Terminat",
    ),
    # what an update would overwrite
    "the description to be updated was edited": (
        lambda p: p.describe("edit", "edit of the test", "a note of the night"),
        'edit: description of edit has changed, now "a note of the night"',
    ),
    # time
    "the job to be replaced has run longer than limits.lost_time": (
        lambda p: p.let_pass(minutes=63),
        "change: change has now run for 63 min, longer than limits.lost_time",
    ),
    # the history
    "the history knows a newer revision of a new key": (
        lambda p: (p.take("new", "reconciler.test.new.r1.a000000000000"), p.put("new", "Failed"),
                   p.declare(_jobs("new")), p.reconciler("plan"), p.declare("not read"), p.delete("new")),
        "new: r1 is no longer the next revision; r2 is",
    ),
    # the plan
    "another minor version of the program": (
        lambda p: p.patch.setattr("reconciler.plan_file.__version__", "0.99.0"),
        "saved.plan was created by reconciler 0.1.0; this is 0.99.0",
    ),
    "a plan that says another minor version": (
        lambda p: p.edit_plan(reconciler_version="0.99.0"),
        "saved.plan was created by reconciler 0.99.0",
    ),
    "a plan for another workspace": (
        lambda p: p.edit_plan(
            sealed, target={**json.loads(PLAN.read_text())["target"], "workspace_id": "7"}
        ),
        "it was created for local, project local, workspace 7; this is local, project local, workspace 0",
    ),
}  # fmt: skip


#: What is no movement of the service: the exit code, and what the message names.
REFUSED: dict[str, tuple[Move, int, str]] = {
    "the history cannot be read": (lambda p: RECORDS.write_bytes(b"no database" * 999), 1, "records.sqlite3"),
    "somebody else holds the lock": (lambda p: p.cleanup.enter_context(held_by("ann")), 6, "ann"),
    "a secret has no value": (lambda p: p.patch.delenv("A_TOKEN"), 65, "A_TOKEN"),
    "a plan of another stack": (lambda p: p.edit_plan(stack="other"), 65, "modified since it was written"),
    "a plan that was edited": (lambda p: p.edit_plan(manifest_digest="sha256:0"), 65, "modified since"),
    "a plan that says another patch version": (
        lambda p: p.edit_plan(reconciler_version="0.1.99"), 65, "modified since"
    ),
    "a plan with a key that is not known": (lambda p: p.edit_plan(sealed, news=1), 65, "news"),
    "a plan without format_version": (
        lambda p: p.edit_plan(without("format_version")), 65, "format_version is missing"
    ),
    "no plan file": (lambda p: PLAN.unlink(), 64, "file not found"),
    "the jobs cannot be read": (
        lambda p: p.patch.setattr(Store, "search", _broken), 8, "cannot verify"
    ),
}  # fmt: skip


def _broken(*_: object) -> None:
    raise ApiError("ModelArts.0001", "broken", status=400)


@pytest.mark.parametrize("movement", HARMLESS)
def test_harmless_movement_changes_nothing_of_what_is_applied(place: Place, movement: str) -> None:
    HARMLESS[movement](place)
    said = place.apply()
    assert said.code == 0, said.err
    assert "Applied: 6 succeeded, 1 skipped." in said.out
    place.store.clock.advance(seconds=60)  # a terminate does not wait for the end of its job
    phases = {job.name: job.life.phase for job in place.store.jobs()}
    assert phases["gone"] == phases["change"] == "Terminated"
    assert {"new", "down", "change-r2", "again-r2"} <= set(phases)
    assert "tried-r2" not in phases
    assert place.job("edit").body["metadata"]["description"].startswith("other words reconciler.")


@pytest.mark.parametrize("movement", STALE)
def test_stale_plan_sends_nothing_and_names_the_movement(place: Place, movement: str) -> None:
    ids = {job.name: job.id for job in place.store.jobs()}
    move, words = STALE[movement]
    move(place)
    before = place.state()
    said = place.apply()
    assert (said.code, said.out) == (4, ""), said.err
    assert f"why: {words.format(**ids)}" in said.err
    assert place.state() == before


@pytest.mark.parametrize("movement", REFUSED)
def test_plan_that_cannot_be_checked_sends_nothing(place: Place, movement: str) -> None:
    move, code, words = REFUSED[movement]
    move(place)
    said = place.apply()
    assert said.code == code, said.err
    assert words in said.err
    place.patch.undo()
    assert sorted(job.name for job in place.store.jobs()) == sorted(FIRST)


def test_all_movements_are_listed_together(place: Place) -> None:
    moved = (
        "the job to be replaced has ended",
        "the name of a new key was taken",
        "the job to be terminated was protected",
    )
    for movement in moved:
        STALE[movement][0](place)
    said = place.apply()
    assert said.code == 4
    assert [f"why: {STALE[movement][1]}" in said.err for movement in moved] == [True] * 3
    assert said.err.count("error: stale plan") == 3


# ── the digest ─────────────────────────────────────────────────────────────────────────────────────


def digest_of(place: Place) -> str:
    """What `show` prints on a line of its own."""
    [line] = re.findall("^sha256:[0-9a-f]{64}$", place.reconciler("show", str(PLAN)).out, re.MULTILINE)
    return str(line)


def test_plan_prints_the_digest_that_show_prints_whatever_the_time(place: Place) -> None:
    first = digest_of(place)
    place.declare(_edited())
    place.let_pass(minutes=2)
    planned = place.reconciler("plan", "--out", "again.plan")
    assert planned.out.splitlines()[0] == first
    as_json = place.reconciler("plan", "--out", "again.plan", "--json")
    assert (first in as_json.err.splitlines(), first in as_json.out) == (True, False)
    then, now = (json.loads(Path(name).read_text(encoding="utf-8")) for name in (PLAN, "again.plan"))
    assert then["lost_node_hours"] != now["lost_node_hours"]
    place.declare(_edited().replace("lr: 0.2", "lr: 0.3"))
    assert first not in place.reconciler("plan", "--out", "again.plan").out


def test_approved_plan_is_applied(place: Place) -> None:
    assert place.apply("--approve", digest_of(place)).code == 0


@pytest.mark.parametrize(
    ("spelled", "why"),
    [
        (lambda whole: "sha256:" + "0" * 64, "sha256:0000"),
        (lambda whole: whole[:20], "compared whole"),
        (lambda whole: whole.removeprefix("sha256:"), "compared whole"),
        (str.upper, "compared whole"),
        (lambda whole: "", "no digest was approved"),
    ],
    ids=["another", "a prefix", "without the algorithm", "upper case", "empty"],
)
@pytest.mark.parametrize("way", ["option", "variable"])
def test_any_other_digest_than_the_plan_s_is_refused(
    place: Place, spelled: Callable[[str], str], why: str, way: str
) -> None:
    whole = digest_of(place)
    given, before = spelled(whole), place.state()
    if way == "variable":
        place.patch.setenv("RECONCILER_APPROVE", given)
    said = place.apply(*(["--approve", given] if way == "option" else []))
    assert (said.code, said.out) == (4, "")
    assert whole in said.err
    assert given in said.err
    assert why in said.err
    assert place.state() == before
