"""Saved plans: what was read is what is applied, elsewhere and later; or nothing is."""

from __future__ import annotations

import base64
import json
import re
import stat
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus

import pytest

from reconciler.cli.console import console
from reconciler.core.values import OF_BLOCKED, OF_SCHEDULES
from reconciler.decide.plan import PlannedAction
from reconciler.emulator import Effect, Fault, Job
from reconciler.plan_file import sealed
from reconciler.secrets import Redactor
from tests.apply.service import SharedTime
from tests.cli.conftest import Reconciler, Said, Service, manifest, write
from tests.cli.lock_helpers import held_by
from tests.modelarts.building import a_body

SECRET = "tell nobody/ever+2?"
TOKEN = "variables: {token: {env: A_TOKEN, sensitive: true}}\n"
CHANGING = {"CreateTrainingJob", "ChangeTrainingJobDescription", "StopTrainingJob", "DeleteTrainingJob"}
PLAN = Path("saved.plan")
PAGE = Path(__file__).parents[2] / "docs/saved-plans.md"


@pytest.fixture(autouse=True)
def time(service: Service, monkeypatch: pytest.MonkeyPatch) -> SharedTime:
    """Our clock is the emulator's: waiting moves it, and takes no time."""
    shared = SharedTime(service.clock)
    monkeypatch.setattr("reconciler.modelarts.clock.SystemClock", lambda *_: shared)
    return shared


def with_token(text: str) -> str:
    """Each job of the manifest needs the secret."""
    return text.replace(
        "parameters: {lr", "environments: {TOKEN: 'Bearer ${var.token}'}\n      parameters: {lr"
    )


def edited(service: Service, *keys: str, of: str, lr: str = "0.2") -> str:
    """A manifest with these jobs, one of them with another learning rate."""
    text = manifest(*keys, url=service.url)
    head, found, tail = text.partition(f"  {of}:\n")
    return head + found + tail.replace("lr: 0.1", f"lr: {lr}", 1)


def save(reconciler: Reconciler, *options: str, code: int = 0, to: Path = PLAN) -> dict[str, Any]:
    """Make a plan, and forget the manifest."""
    said = reconciler("plan", "--out", str(to), *options)
    assert said.code == code, said.err
    for file in Path().glob("*.yaml"):
        file.unlink()
    document: dict[str, Any] = json.loads(to.read_text(encoding="utf-8"))
    return document


def carry_out(reconciler: Reconciler, *options: str) -> Said:
    return reconciler("apply", "--plan", str(PLAN), "--yes", *options)


def changes(service: Service) -> list[str]:
    """The requests that changed something, or might have."""
    return [served.operation for served in service.app.requests if served.operation in CHANGING]


def only(service: Service) -> Job:
    [job] = service.store.jobs()
    return job


def named(service: Service, name: str) -> Job:
    return next(job for job in service.store.jobs() if job.body["metadata"]["name"] == name)


@pytest.fixture
def every_action(reconciler: Reconciler, service: Service) -> dict[str, Any]:
    """A saved plan with a create, an update, a replace, a terminate and a keep."""
    write(manifest("change", "gone", "same", "edit", url=service.url))
    assert reconciler("apply", "--yes").code == 0
    text = edited(service, "change", "same", "edit", "new", of="change")
    write(text.replace("description: edit of the test", "description: other words"))
    document = save(reconciler)
    service.app.requests.clear()
    actions = {action["key"]: action["action"] for action in document["actions"]}
    assert actions == {
        "change": "replace",
        "edit": "update",
        "gone": "terminate",
        "new": "create",
        "same": "keep",
    }
    return document


# ── the file ────────────────────────────────────────────────────────────────────────────────────────


def test_saved_plan_is_the_document_of_plan_json_and_what_an_apply_needs(
    reconciler: Reconciler, service: Service
) -> None:
    write(manifest("a", "b", "c", url=service.url))
    reconciler("apply", "--yes", "--only", "a", "--only", "b")
    write(edited(service, "a", "c", of="a"))
    said = reconciler("plan", "--json", "--out", str(PLAN))
    saved = json.loads(PLAN.read_text(encoding="utf-8"))
    more = {}
    for action in saved["actions"]:
        more[action["key"]] = {name: action.pop(name) for name in list(action) if name not in ACTION_FIELDS}
    assert saved.pop("options")["root"] == "."
    assert saved == said.document
    assert {key for key, added in more.items() if "desired" in added} == {"a", "c"}
    assert more["c"]["desired"]["algorithm"]["code_dir"] == "obs://b/code/"
    assert more["c"]["desired"]["metadata"]["description"].startswith("c of the test reconciler.test.c.r1.")


ACTION_FIELDS = {
    name
    for name, field in PlannedAction.model_fields.items()
    if not field.exclude and name not in (*OF_SCHEDULES, *OF_BLOCKED)
}


def test_only_its_owner_may_read_it_and_it_is_there_at_once_or_not_at_all(
    reconciler: Reconciler, service: Service, tmp_path: Path
) -> None:
    write(manifest("a", url=service.url))
    PLAN.write_text("an older plan", encoding="utf-8")
    PLAN.chmod(0o644)
    was = PLAN.stat().st_ino
    assert reconciler("plan", "--out", str(PLAN)).code == 0
    assert stat.S_IMODE(PLAN.stat().st_mode) == 0o600
    assert PLAN.stat().st_ino != was
    assert sorted(path.name for path in tmp_path.iterdir()) == ["jobs.yaml", "saved.plan"]
    assert reconciler("plan", "--out", "there/is/no.plan").code == 1
    assert reconciler("plan", "--out", ".").code == 64
    assert sorted(path.name for path in tmp_path.iterdir()) == ["jobs.yaml", "saved.plan"]


def test_twice_is_the_same_bytes(reconciler: Reconciler, service: Service, time: SharedTime) -> None:
    write(with_token(manifest("b", "a", url=service.url, more=TOKEN)))
    texts = []
    for _ in range(2):
        assert reconciler("plan", "--var", f"token={SECRET}", "--out", str(PLAN)).code == 0
        time.sleep(5)
        texts.append(PLAN.read_bytes())
    first, second = (re.sub(rb'"created_at": ".*"', b"", text) for text in texts)
    assert first == second
    assert texts[0] != texts[1]


def test_no_secret_is_in_it_in_no_form(
    reconciler: Reconciler, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_TOKEN", SECRET)
    text = with_token(manifest("a", url=service.url, more=TOKEN))
    write(text.replace("obs://b/code/train.py", "obs://b/code/train.py?${var.token}"))
    saved = save(reconciler)
    body = saved["actions"][0]["desired"]
    assert body["algorithm"]["environments"] == {"TOKEN": "Bearer ${var.token}"}
    assert body["algorithm"]["boot_file"] == "obs://b/code/train.py?${var.token}"
    assert saved["options"]["sources"]["token"]["env"] == "A_TOKEN"
    raw = SECRET.encode()
    forms = (
        SECRET,
        quote(SECRET),
        quote(SECRET, safe=""),
        quote_plus(SECRET),
        base64.b64encode(raw).decode().rstrip("="),
        base64.urlsafe_b64encode(raw).decode().rstrip("="),
        "tell-nobody-1",  # the token of the service
    )
    written = PLAN.read_text(encoding="utf-8")
    assert [form for form in forms if form in written] == []


WORD = "tell-nobody-ever-2"


def _reported(service: Service) -> None:
    """The service reports the secret where the plan says what it changes."""
    service.store.edit(only(service).id, lambda body: body["metadata"].update(
        description=f"{WORD} {body['metadata']['description'].split()[-1]}"))  # fmt: skip


def _in_the_manifest(text: str) -> Callable[[Service], object]:
    """The secret stands in the manifest as it is."""

    def write_more(_: Service) -> None:
        write(Path("jobs.yaml").read_text(encoding="utf-8") + text)

    return write_more


@pytest.mark.parametrize(
    "mention",
    [
        _reported,
        _in_the_manifest(f"policies: [{{name: w, warn: 'true', message: '{WORD}'}}]\n"),
        lambda _: Path("jobs.yaml").rename(f"{WORD}.yaml"),
    ],
    ids=["in a change", "in a warning", "in the name of a file"],
)
def test_plan_in_which_something_was_masked_is_shown_and_applied(
    reconciler: Reconciler,
    service: Service,
    monkeypatch: pytest.MonkeyPatch,
    mention: Callable[[Service], object],
) -> None:
    monkeypatch.setenv("A_TOKEN", WORD)
    text = with_token(manifest("a", url=service.url, more=TOKEN))
    write(text)
    assert reconciler("apply", "--yes").code == 0
    write(text.replace("a of the test", "other words"))
    mention(service)
    save(reconciler)
    assert "(sensitive)" in PLAN.read_text(encoding="utf-8")
    assert WORD not in PLAN.read_text(encoding="utf-8")
    assert reconciler("show", str(PLAN)).code == 0
    said = carry_out(reconciler)
    assert said.code == 0, said.err
    assert only(service).body["metadata"]["description"].startswith("other words ")


HEADER = "header: {default: 'tell-nobody-1 ${var.token}', sensitive: true}"


def bare(text: str) -> str:
    """Without what names the key outside of it."""
    return text.replace("    description: nightly of the test\n", "")


def noted(text: str) -> str:
    return text.replace("description: nightly of the test", f"annotations: {{note: '{SECRET}'}}")


def composed(text: str) -> str:
    return text.replace("true}}\n", f"true}}, {HEADER}}}\n").replace("Bearer ${var.token}", "${var.header}")


Edit = Callable[[str], str]
#: What is secret → its value, the edit of the manifest, the address of the records, and what is said.
NOT_SAVED: dict[str, tuple[str, Edit, str, str]] = {
    "the key": ("nightly", bare, "", "the letters of a secret"),
    "the host": ("127.0.0.1", bare, "", "the letters of a secret"),
    "the stack": ("test", bare, "", "the letters of a secret"),
    "a text of the body": (SECRET, noted, "", "jobs.nightly: its body also contains"),
    "a text around it": ("tell-nobody-2", composed, "", "variables.header: its text also contains"),
    "a password": (SECRET, str, "postgresql://user:hunter22@host/db", "set the URL in RECONCILER_RECORDS"),
    "a password option": (SECRET, str, "postgresql://host/db?user=u&password=hunter22", "RECONCILER_RECORDS"),
}


@pytest.mark.parametrize("what", NOT_SAVED)
def test_plan_with_a_secret_that_cannot_be_left_out_is_not_saved(
    reconciler: Reconciler, service: Service, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    secret, edit, records, words = NOT_SAVED[what]
    monkeypatch.setenv("A_TOKEN", secret)
    write(edit(with_token(manifest("nightly", url=service.url, more=TOKEN))))
    said = reconciler("plan", "--out", str(PLAN), *(["--records", records] if records else []))
    assert (said.code, PLAN.exists()) == (3, False), said.err
    assert "a secret that cannot be saved" in said.err
    assert words in said.err
    assert not [word for word in ("tell nobody", "tell-nobody", "hunter22") if word in said.out + said.err]


@pytest.mark.parametrize("value", [".inf", ".nan"])
def test_value_that_is_no_json_is_not_saved(reconciler: Reconciler, value: str) -> None:
    write(manifest("a").replace("    spec:", f"    raw: {{x: {value}}}\n    spec:"))
    said = reconciler("plan", "--out", str(PLAN))
    assert (said.code in (3, 65), PLAN.exists()) == (True, False)


# ── show ────────────────────────────────────────────────────────────────────────────────────────────


def test_show_shows_what_plan_showed_and_asks_nobody(reconciler: Reconciler, service: Service) -> None:
    write(manifest("a", "b", url=service.url))
    reconciler("apply", "--yes", "--only", "a")
    write(edited(service, "a", "b", of="a"))
    plan = reconciler("plan", "--out", str(PLAN))
    Path("jobs.yaml").unlink()
    service.app.requests.clear()
    shown = reconciler("show", str(PLAN))
    assert (shown.code, shown.out) == (0, plan.out)
    assert "= keep" not in shown.out
    document = reconciler("show", "--json", str(PLAN)).document
    assert set(document["actions"][0]) == ACTION_FIELDS
    assert "options" not in document
    assert reconciler("show", str(PLAN), "-o", "text", "-o", "json=shown.json").out == plan.out
    assert json.loads(Path("shown.json").read_text(encoding="utf-8")) == document
    assert len(service.app.requests) == 0


def test_show_lists_what_is_kept_and_what_guards_said(reconciler: Reconciler, service: Service) -> None:
    write(manifest("a", url=service.url))
    reconciler("apply", "--yes")
    save(reconciler)
    assert "= keep" in reconciler("show", "--show-keep", str(PLAN)).out
    write(manifest(url=service.url))
    save(reconciler, code=3)
    said = reconciler("show", str(PLAN))
    assert said.code == 0
    assert "--allow empty" in said.err


def test_edited_plan_is_shown_with_a_warning(reconciler: Reconciler, service: Service) -> None:
    write(manifest("a", url=service.url))
    PLAN.write_text(json.dumps({**save(reconciler), "news": 1}), encoding="utf-8")
    said = reconciler("show", str(PLAN))
    assert (said.code, "+ create" in said.out) == (0, True)
    assert "warning: plan file modified since it was written" in said.err


# ── carried out ─────────────────────────────────────────────────────────────────────────────────────


def test_saved_plan_is_carried_out_without_any_manifest_and_recorded(
    reconciler: Reconciler, service: Service, every_action: dict[str, Any]
) -> None:
    said = carry_out(reconciler)
    assert said.code == 0, said.err
    for what in ("replace change-r2", "update edit", "terminate gone", "create new"):
        assert re.search(rf"^  succeeded {what}(: now Terminat\w+)?$", said.out, re.M)
    assert "Applied: 4 succeeded." in said.out
    assert named(service, "change-r2").body["algorithm"]["parameters"][0]["value"] == "0.2"
    assert named(service, "edit").body["metadata"]["description"].startswith("other words ")
    assert named(service, "gone").life.phase in ("Terminating", "Terminated")
    write(edited(service, "change", "same", "edit", "new", of="change").replace(
        "description: edit of the test", "description: other words"))  # fmt: skip
    assert reconciler("plan", "--detailed-exitcode").code == 0
    run = reconciler("history", "--json").document["runs"][0]
    assert (run["kind"], run["result"], len(run["actions"])) == ("apply", "complete", 4)
    [newest, *_] = reconciler("history", "change", "--json").document["revisions"]
    assert newest["declared"]["immutable"]["algorithm"]["parameters"] == {"lr": {"value": "0.2"}}
    before = changes(service)
    assert carry_out(reconciler).code == 4
    assert changes(service) == before


def test_apply_of_a_saved_plan_asks_and_writes_its_steps_as_json_lines(
    reconciler: Reconciler, service: Service, every_action: dict[str, Any]
) -> None:
    said = reconciler("apply", "--plan", str(PLAN), "--json")
    assert (said.code, changes(service)) == (3, [])
    assert "fix: add --yes" in said.err
    said = carry_out(reconciler, "--json")
    assert said.code == 0
    types = [event["type"] for event in said.events]
    assert types[:2] == ["version", "planned"]
    assert types.count("action_completed") == 4
    assert types[-1] == "apply_completed"
    assert said.events[-1]["summary"]["done"] == 4
    assert said.events[1]["summary"] == every_action["summary"]


def test_plan_file_may_be_elsewhere_and_so_may_we(
    reconciler: Reconciler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The local target and the records are found from the plan file on."""
    write(manifest("a"), "stack/jobs.yaml")
    write("", "plans/nothing")
    assert reconciler("plan", "stack", "--out", "plans/it").code == 0
    saved = json.loads(Path("plans/it").read_text(encoding="utf-8"))
    assert saved["options"]["root"] == "../stack"
    Path("stack/jobs.yaml").unlink()
    write("", "elsewhere/nothing")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert reconciler("apply", "--yes", "--plan", "../plans/it").code == 0
    assert Path("../stack/.reconciler/records.sqlite3").exists()
    assert not Path(".reconciler").exists()
    write(manifest("a"), "../stack/jobs.yaml")
    assert reconciler("plan", "../stack", "--detailed-exitcode").code == 0


@pytest.mark.parametrize("way", ["manifest", "option", "variable"])
def test_records_are_where_they_were(
    reconciler: Reconciler,
    service: Service,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
) -> None:
    address = f"sqlite:///{tmp_path}/kept/records.sqlite3"
    more = "records: 'sqlite:///kept/records.sqlite3'\n" if way == "manifest" else ""
    if way == "variable":
        monkeypatch.setenv("RECONCILER_RECORDS", address)
    write(manifest("a", url=service.url, more=more))
    save(reconciler, *(["--records", address] if way == "option" else []))
    assert carry_out(reconciler).code == 0
    assert Path("kept/records.sqlite3").exists()
    assert not Path(".reconciler").exists()


def test_what_the_plan_does_not_execute_may_move(
    reconciler: Reconciler, service: Service, every_action: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Running instead of Pending, a kept job that failed, jobs of others, another manifest: all at once."""
    phases = {one["before"]["phase"] for one in every_action["actions"] if one["before"]}
    assert phases <= {"Creating", "Pending"}
    service.clock.advance(seconds=30)
    assert named(service, "change").life.phase == "Running"
    service.store.set_phase(named(service, "same").id, "Failed")
    service.store.create("p1", a_body("theirs", "somebody's"))
    service.store.create("p1", a_body("same-r2", "somebody's"))
    write("stack: [\n")
    monkeypatch.setattr("reconciler.plan_file.__version__", "0.1.99")
    assert carry_out(reconciler).code == 0


# ── secrets, found again ────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def needs_token(reconciler: Reconciler, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """A saved plan that creates a job with a secret, which came from the environment and is gone."""
    monkeypatch.setenv("A_TOKEN", SECRET)
    write(with_token(manifest("a", url=service.url, more=TOKEN)))
    save(reconciler)
    monkeypatch.delenv("A_TOKEN")


def environments(service: Service) -> Any:
    return only(service).body["algorithm"]["environments"]


#: What the environment holds, which options are given → what is sent.
FOUND: dict[str, tuple[str, tuple[str, ...], str]] = {
    "where it came from": (f"another {SECRET}", (), f"another {SECRET}"),
    "--var": ("not this one", ("--var", f"token={SECRET}"), SECRET),
    "--var-file": ("not this one", ("--var-file", "values.yaml"), SECRET),
}


@pytest.mark.parametrize("way", FOUND)
def test_secret_is_found_again(
    reconciler: Reconciler, service: Service, needs_token: None, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    environ, options, sent = FOUND[way]
    monkeypatch.setenv("A_TOKEN", environ)
    write(f"token: '{SECRET}'\n", "values.yaml")
    said = carry_out(reconciler, "-vv", *options)
    assert said.code == 0, said.err
    assert environments(service) == {"TOKEN": f"Bearer {sent}"}
    assert SECRET not in said.out + said.err


def test_composed_secret_is_put_together_again_from_its_parts(
    reconciler: Reconciler, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_TOKEN", SECRET)
    declared = (
        "{token: {env: A_TOKEN, sensitive: true}, header: {default: 'Key ${var.token}', sensitive: true}}"
    )
    text = manifest("a", url=service.url, more=f"variables: {declared}\n")
    write(with_token(text).replace("Bearer ${var.token}", "${var.header}"))
    save(reconciler)
    assert SECRET not in PLAN.read_text(encoding="utf-8")
    monkeypatch.setattr(console, "redact", Redactor())  # another process
    assert "${var.header} from the text Key ${var.token}" in reconciler("show", str(PLAN)).out
    monkeypatch.setenv("A_TOKEN", "another " + SECRET)
    said = carry_out(reconciler)
    assert said.code == 0, said.err
    assert environments(service) == {"TOKEN": f"Key another {SECRET}"}
    assert SECRET not in said.out + said.err


def test_plan_without_new_bodies_needs_no_secret(
    reconciler: Reconciler, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_TOKEN", SECRET)
    write(with_token(manifest("a", "b", url=service.url, more=TOKEN)))
    assert reconciler("apply", "--yes").code == 0
    write(with_token(manifest("a", url=service.url, more=TOKEN)))
    save(reconciler)
    monkeypatch.delenv("A_TOKEN")
    assert "succeeded terminate b" in carry_out(reconciler).out


# ── stale, or refused ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_stale_plan_sends_nothing_and_lists_every_movement(
    reconciler: Reconciler, service: Service, every_action: dict[str, Any], options: tuple[str, ...]
) -> None:
    service.store.set_phase(named(service, "change").id, "Completed")
    service.store.edit(named(service, "gone").id, lambda body: body["metadata"].update(
        description=body["metadata"]["description"] + ".protected"))  # fmt: skip
    service.store.create("p1", a_body("new", "somebody's"))
    said = carry_out(reconciler, *options)
    assert said.code == 4
    assert bool(said.out) is bool(options)
    for why in (
        "change: change was Creating, now Completed",
        "gone: gone is now protected",
        "new: the name new is taken",
    ):
        assert f"  why: {why}\n  fix: nothing was changed; create a new plan\n" in said.err
    assert said.err.count("error: stale plan") == 3
    assert changes(service) == []


class Place(NamedTuple):
    """What may be damaged beside the jobs."""

    patch: pytest.MonkeyPatch
    service: Service
    plan: dict[str, Any]
    cleanup: ExitStack

    def put(self, name: str, **said: Any) -> None:
        """Edit a member of the plan file, with a seal that fits."""
        PLAN.write_text(json.dumps(sealed({**self.plan, name: self.plan[name] | said})), encoding="utf-8")

    def break_search(self) -> None:
        """The service rejects every search."""
        self.service.app.faults.add(
            Fault(Effect.ANSWER, operation="ListTrainingJobs", status=503, count=None)
        )


#: What is no movement of a job → the exit code, and what the message names.
REFUSED: dict[str, tuple[Callable[[Place], object], int, str]] = {
    "another minor version": (
        lambda p: p.patch.setattr("reconciler.plan_file.__version__", "0.99.0"),
        4, "saved.plan was created by reconciler 0.1.0; this is 0.99.0",
    ),
    "another project": (lambda p: p.put("target", project_id="p2"), 4, "project p2"),
    "another workspace": (lambda p: p.put("target", workspace_id="7"), 4, "workspace 7"),
    "another endpoint": (lambda p: p.put("target", endpoint="https://a.example"), 4, "a.example"),
    "another target in its options": (
        lambda p: p.put("options", target=p.plan["options"]["target"] | {"project_id": "p2"}), 4, "project p1"
    ),
    "an edited body": (
        lambda p: PLAN.write_text(PLAN.read_text().replace("train.py", "other.py")),
        65, "error: invalid plan file\n  why: saved.plan: modified since it was written",
    ),
    "half of it": (lambda p: PLAN.write_text(PLAN.read_text()[:2000]), 65, "not a valid JSON document"),
    "no plan file": (lambda p: PLAN.unlink(), 64, "file not found"),
    "a lock that somebody holds": (
        lambda p: p.cleanup.enter_context(held_by("ann", place=p.service.url)), 6, "ann"
    ),
    "jobs that cannot be read": (Place.break_search, 8, "cannot verify"),
    "a history that cannot be read": (
        lambda p: Path(".reconciler/records.sqlite3").write_bytes(b"no database" * 999), 1, "records.sqlite3"
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_plan_that_does_not_fit_sends_nothing(
    reconciler: Reconciler,
    service: Service,
    every_action: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    what: str,
) -> None:
    make, code, words = REFUSED[what]
    with ExitStack() as cleanup:
        make(Place(monkeypatch, service, every_action, cleanup))
        said = carry_out(reconciler)
    assert (said.code, said.out) == (code, ""), said.err
    assert words in said.err
    assert changes(service) == []


def test_another_project_in_the_environment_makes_it_stale(
    reconciler: Reconciler, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OS_PROJECT_ID", "p1")
    write(manifest("a", url=service.url).replace(", project_id: p1", ""))
    save(reconciler)
    monkeypatch.setenv("OS_PROJECT_ID", "p2")
    said = carry_out(reconciler)
    assert said.code == 4
    assert re.search("it was created for .*, project p1, .*; this is .*, project p2, ", said.err)
    assert changes(service) == []
    monkeypatch.setenv("OS_PROJECT_ID", "p1")
    assert carry_out(reconciler).code == 0


def test_page_shows_what_is_said(
    reconciler: Reconciler, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What goes to stderr is not written by `docs.generate`."""
    page = PAGE.read_text(encoding="utf-8")
    monkeypatch.setenv("HF_TOKEN", SECRET)
    text = with_token(manifest("py-minist", url=service.url, more=TOKEN))
    write(
        text.replace("A_TOKEN", "HF_TOKEN")
        .replace("var.token", "var.hf_token")
        .replace("{token:", "{hf_token:")
    )
    save(reconciler)
    monkeypatch.delenv("HF_TOKEN")
    assert f"```text\n{carry_out(reconciler).err}```" in page
    assert carry_out(reconciler, "--var", f"hf_token={SECRET}").code == 0
    assert f"```text\n{carry_out(reconciler, '--var', f'hf_token={SECRET}').err}```" in page


@pytest.mark.parametrize(
    "options",
    [
        ["."],
        ["jobs.yaml"],
        ["--only", "a"],
        ["--force"],
        ["--target", "there"],
        ["-t", "there"],
        ["--allow", "reruns"],
    ],
)
def test_what_the_plan_says_already_is_64(
    reconciler: Reconciler, service: Service, options: list[str]
) -> None:
    write(manifest("a", url=service.url))
    assert reconciler("plan", "--out", str(PLAN)).code == 0
    service.app.requests.clear()
    said = carry_out(reconciler, *options)
    assert said.code == 64
    assert "error: not with --plan" in said.err
    assert len(service.app.requests) == 0


# ── guards and conflicts ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("allowed", "code"), [((), 3), (("--force",), 0), (("--allow", "terminations"), 0)], ids=str
)
def test_what_a_guard_refused_or_was_allowed_stays_so(
    reconciler: Reconciler, service: Service, allowed: tuple[str, ...], code: int
) -> None:
    write(manifest(*(f"k{number}" for number in range(6)), url=service.url))
    assert reconciler("apply", "--yes").code == 0
    write(manifest("k0", url=service.url))
    assert save(reconciler, *allowed, code=code)["applyable"] is (code == 0)
    service.app.requests.clear()
    said = carry_out(reconciler)
    assert said.code == code
    assert ("too many terminations" in said.err) is bool(code)
    assert ("Applied: 5 succeeded." in said.out) is not bool(code)
    assert bool(changes(service)) is not bool(code)


def test_conflict_is_skipped_and_the_rest_is_done(reconciler: Reconciler, service: Service) -> None:
    service.store.create("p1", a_body("a", "somebody's"))
    write(manifest("a", "b", url=service.url))
    saved = save(reconciler)
    assert saved["summary"]["conflict"] == 1
    said = carry_out(reconciler)
    assert said.code == 3
    assert "succeeded create b" in said.out
    assert "skipped   conflict a" in said.out


def test_variables_of_the_environment_that_shaped_the_plan_do_not_stand_in_its_way(
    reconciler: Reconciler, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(manifest("a", url=service.url))
    monkeypatch.setenv("RECONCILER_TARGET", "there")
    monkeypatch.setenv("RECONCILER_FORCE", "1")
    save(reconciler)
    assert reconciler("apply", "--plan", str(PLAN), "--yes").code == 0


@pytest.mark.parametrize("options", [(), ("--only", "b")])
def test_apply_that_cannot_begin_still_ends_its_events(
    reconciler: Reconciler, service: Service, options: tuple[str, ...]
) -> None:
    write(manifest("a", url=service.url))
    said = reconciler("apply", "--yes", "--json", "--target", "nowhere", *options)
    assert said.code == 64
    assert [event["type"] for event in said.events] == ["version", "apply_completed"]
    assert said.events[-1]["summary"]["done"] == 0
    assert said.events[-1]["message"]


# ── the digest ──────────────────────────────────────────────────────────────────────────────────────


def digest_of(reconciler: Reconciler) -> str:
    """What `show` prints on a line of its own."""
    [line] = re.findall("^sha256:[0-9a-f]{64}$", reconciler("show", str(PLAN)).out, re.MULTILINE)
    return str(line)


def test_plan_prints_the_digest_that_show_prints_whatever_the_time(
    reconciler: Reconciler, service: Service
) -> None:
    write(manifest("change", "same", url=service.url))
    assert reconciler("apply", "--yes").code == 0
    service.clock.advance(minutes=1)
    text = edited(service, "change", "same", of="change")
    write(text)
    first = json.loads(json.dumps(save(reconciler)))
    digest = digest_of(reconciler)
    write(text)
    service.clock.advance(minutes=2)
    planned = reconciler("plan", "--out", "again.plan")
    assert planned.out.splitlines()[0] == digest
    as_json = reconciler("plan", "--out", "again.plan", "--json")
    assert (digest in as_json.err.splitlines(), digest in as_json.out) == (True, False)
    assert as_json.document["lost_node_hours"] != first["lost_node_hours"]
    write(text.replace("lr: 0.2", "lr: 0.3"))
    assert digest not in reconciler("plan", "--out", "again.plan").out


@pytest.mark.parametrize(
    ("spelled", "why"),
    [
        (lambda whole: whole, None),
        (lambda whole: "sha256:" + "0" * 64, "sha256:0000"),
        (lambda whole: whole[:20], "compared whole"),
        (lambda whole: whole.removeprefix("sha256:"), "compared whole"),
        (str.upper, "compared whole"),
        (lambda whole: "", "no digest was approved"),
    ],
    ids=["its own", "another", "a prefix", "without the algorithm", "upper case", "empty"],
)
def test_no_other_plan_than_the_approved_one_is_applied(
    reconciler: Reconciler,
    service: Service,
    monkeypatch: pytest.MonkeyPatch,
    spelled: Callable[[str], str],
    why: str | None,
) -> None:
    write(manifest("a", url=service.url))
    save(reconciler)
    whole = digest_of(reconciler)
    given = spelled(whole)
    said = carry_out(reconciler, "--approve", given)
    assert said.code == (4 if why else 0)
    monkeypatch.setenv("RECONCILER_APPROVE", given)
    if why:
        for refused in (said, carry_out(reconciler)):
            assert (refused.code, refused.out) == (4, "")
            assert all(word in refused.err for word in (whole, given, why))
        assert changes(service) == []
