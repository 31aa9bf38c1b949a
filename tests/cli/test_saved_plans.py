"""Saved plans: what was read is what is applied, elsewhere and later; or nothing is."""

from __future__ import annotations

import base64
import json
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from reconciler.cli.console import console
from reconciler.core.values import OF_BLOCKED, OF_SCHEDULES
from reconciler.decide.plan import PlannedAction
from reconciler.emulator import Effect, Fault, Job
from reconciler.emulator.lifecycle import Durations
from reconciler.plan_file import sealed
from reconciler.secrets import Redactor
from tests.apply.service import SharedTime
from tests.cli.conftest import Reconciler, Said, Service, manifest, write
from tests.modelarts.building import a_body

SECRET = "tell nobody/ever+2?"
TOKEN = "variables: {token: {env: A_TOKEN, sensitive: true}}\n"
CHANGING = {"CreateTrainingJob", "ChangeTrainingJobDescription", "StopTrainingJob", "DeleteTrainingJob"}
EXECUTED = ("create", "update", "replace")
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


# ── the file ───────────────────────────────────────────────────────────────────────────────────────


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


@pytest.mark.parametrize("secret", ["nightly", "127.0.0.1", "test"])
def test_plan_of_a_name_with_the_letters_of_a_secret_is_not_saved(
    reconciler: Reconciler, service: Service, monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    monkeypatch.setenv("A_TOKEN", secret)
    text = with_token(manifest("nightly", url=service.url, more=TOKEN))
    write("\n".join(line for line in text.splitlines() if "description" not in line))
    said = reconciler("plan", "--out", str(PLAN))
    assert (said.code, PLAN.exists()) == (3, False)
    assert "a secret that cannot be saved" in said.err


def test_secret_that_nobody_could_find_again_is_not_saved(
    reconciler: Reconciler, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_TOKEN", SECRET)
    text = with_token(manifest("a", url=service.url, more=TOKEN))
    write(text.replace("description: a of the test", f"annotations: {{note: '{SECRET}'}}"))
    said = reconciler("plan", "--out", str(PLAN))
    assert said.code == 3
    assert "a secret that cannot be saved" in said.err
    assert SECRET not in said.out + said.err
    assert not PLAN.exists()
    assert "postgresql" not in said.err
    write(manifest("a", url=service.url))
    said = reconciler("plan", "--out", str(PLAN), "--records", "postgresql://me:s3cr3t-word@127.0.0.1:1/r")
    assert said.code == 3
    assert "s3cr3t-word" not in said.out + said.err


def test_dollar_sign_that_is_meant_is_the_same_when_it_is_applied(
    reconciler: Reconciler, service: Service
) -> None:
    text = manifest("a", url=service.url)
    write(text.replace("description: a of the test", "annotations: {note: 'costs $${var.x} and $5'}"))
    save(reconciler)
    assert carry_out(reconciler).code == 0
    assert only(service).body["metadata"]["annotations"] == {"note": "costs ${var.x} and $5"}


# ── show ───────────────────────────────────────────────────────────────────────────────────────────


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


def test_show_reads_what_a_later_version_wrote(reconciler: Reconciler, service: Service) -> None:
    write(manifest("a", url=service.url))
    saved = save(reconciler)
    saved |= {"reconciler_version": "0.99.0", "format_version": "1.7", "news": 1}
    saved["actions"][0]["news"] = {}
    saved["options"]["news"] = []
    PLAN.write_text(json.dumps(saved), encoding="utf-8")
    assert "+ create" in reconciler("show", str(PLAN)).out
    saved["format_version"] = "2.0"
    PLAN.write_text(json.dumps(saved), encoding="utf-8")
    assert reconciler("show", str(PLAN)).code == 65


# ── carried out ────────────────────────────────────────────────────────────────────────────────────


def test_saved_plan_is_carried_out_without_any_manifest(
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


def test_second_time_it_is_stale(
    reconciler: Reconciler, service: Service, every_action: dict[str, Any]
) -> None:
    assert carry_out(reconciler).code == 0
    before = changes(service)
    assert carry_out(reconciler).code == 4
    assert changes(service) == before


def test_apply_of_a_saved_plan_writes_its_steps_as_json_lines(
    reconciler: Reconciler, service: Service, every_action: dict[str, Any]
) -> None:
    said = carry_out(reconciler, "--json")
    assert said.code == 0
    types = [event["type"] for event in said.events]
    assert types[:2] == ["version", "planned"]
    assert types.count("action_completed") == 4
    assert types[-1] == "apply_completed"
    assert said.events[-1]["summary"]["done"] == 4
    assert said.events[1]["summary"] == every_action["summary"]


def test_it_asks(reconciler: Reconciler, service: Service, every_action: dict[str, Any]) -> None:
    said = reconciler("apply", "--plan", str(PLAN))
    assert said.code == 3
    assert "fix: add --yes" in said.err
    assert changes(service) == []


def test_apply_of_a_saved_plan_is_recorded_as_any_apply(
    reconciler: Reconciler, service: Service, every_action: dict[str, Any]
) -> None:
    assert carry_out(reconciler).code == 0
    write(manifest("change", url=service.url))
    run = reconciler("history", "--json").document["runs"][0]
    assert (run["kind"], run["result"]) == ("apply", "complete")
    assert len(run["actions"]) == 4
    [newest, *_] = reconciler("history", "change", "--json").document["revisions"]
    assert newest["declared"]["immutable"]["algorithm"]["parameters"] == {"lr": {"value": "0.2"}}


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


def test_nothing_to_do_is_nothing_to_ask(reconciler: Reconciler, service: Service) -> None:
    write(manifest("a", url=service.url))
    reconciler("apply", "--yes")
    save(reconciler)
    service.app.requests.clear()
    assert reconciler("apply", "--plan", str(PLAN)).code == 0
    assert changes(service) == []


# ── secrets, found again ───────────────────────────────────────────────────────────────────────────


@pytest.fixture
def needs_token(reconciler: Reconciler, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """A saved plan that creates a job with a secret, which came from the environment and is gone."""
    monkeypatch.setenv("A_TOKEN", SECRET)
    write(with_token(manifest("a", url=service.url, more=TOKEN)))
    save(reconciler)
    monkeypatch.delenv("A_TOKEN")


def environments(service: Service) -> Any:
    return only(service).body["algorithm"]["environments"]


def test_secret_comes_from_where_it_came_from(
    reconciler: Reconciler, service: Service, needs_token: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_TOKEN", "another " + SECRET)
    said = carry_out(reconciler, "-vv")
    assert said.code == 0
    assert environments(service) == {"TOKEN": f"Bearer another {SECRET}"}
    assert SECRET not in said.out + said.err


@pytest.mark.parametrize("way", ["--var", "--var-file"])
def test_or_from_what_is_given_now(
    reconciler: Reconciler, service: Service, needs_token: None, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setenv("A_TOKEN", "not this one")
    write(f"token: '{SECRET}'\n", "values.yaml")
    given = {"--var": f"token={SECRET}", "--var-file": "values.yaml"}[way]
    assert carry_out(reconciler, way, given).code == 0
    assert environments(service) == {"TOKEN": f"Bearer {SECRET}"}


def test_file_of_values_is_looked_for_again(reconciler: Reconciler, service: Service) -> None:
    write("variables: {token: {sensitive: true}}\n" + with_token(manifest("a", url=service.url)))
    write(f"token: '{SECRET}'\n", "secrets/values.yml")
    save(reconciler, "--var-file", "secrets/values.yml")
    assert SECRET not in PLAN.read_text(encoding="utf-8")
    assert carry_out(reconciler).code == 0
    assert environments(service) == {"TOKEN": f"Bearer {SECRET}"}


def test_secret_that_is_not_there_is_65_and_says_what_to_do(
    reconciler: Reconciler, service: Service, needs_token: None
) -> None:
    service.app.requests.clear()
    said = carry_out(reconciler)
    assert said.code == 65
    assert 'the value of "token" came from the environment variable A_TOKEN, which is not set' in said.err
    assert "fix: export A_TOKEN=VALUE, or give --var token=VALUE" in said.err
    assert len(service.app.requests) == 0


def test_secret_given_by_var_has_to_be_given_again(reconciler: Reconciler, service: Service) -> None:
    write(with_token(manifest("a", url=service.url, more=TOKEN)))
    save(reconciler, "--var", f"token={SECRET}")
    said = carry_out(reconciler)
    assert said.code == 65
    assert "was given by --var and is not stored" in said.err
    assert "fix: give --var token=VALUE" in said.err
    assert carry_out(reconciler, "--var", f"token={SECRET}").code == 0


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


def test_text_around_a_secret_that_holds_another_one_is_not_saved(
    reconciler: Reconciler, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_TOKEN", "tell-nobody-2")
    header = "{default: 'tell-nobody-1 ${var.token}', sensitive: true}"
    declared = f"{{token: {{env: A_TOKEN, sensitive: true}}, header: {header}}}"
    text = manifest("a", url=service.url, more=f"variables: {declared}\n")
    write(with_token(text).replace("Bearer ${var.token}", "${var.header}"))
    said = reconciler("plan", "--out", str(PLAN))
    assert (said.code, PLAN.exists()) == (3, False)
    assert "variables.header: its text also contains" in said.err
    assert "tell-nobody" not in said.out + said.err


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


# ── stale ──────────────────────────────────────────────────────────────────────────────────────────


def test_pending_that_runs_by_now_is_fine(
    reconciler: Reconciler, service: Service, every_action: dict[str, Any]
) -> None:
    phases = {
        action["key"]: action["before"]["phase"] for action in every_action["actions"] if action["before"]
    }
    assert set(phases.values()) <= {"Creating", "Pending"}
    service.clock.advance(seconds=30)
    assert named(service, "change").life.phase == "Running"
    assert carry_out(reconciler).code == 0


def test_job_that_is_kept_may_complete_meanwhile(
    reconciler: Reconciler, service: Service, every_action: dict[str, Any]
) -> None:
    service.store.set_phase(named(service, "same").id, "Completed")
    assert carry_out(reconciler).code == 0


Move = Callable[[Service], object]
MOVES: dict[str, tuple[Move, str]] = {
    "the job to be replaced has ended": (
        lambda s: s.store.set_phase(named(s, "change").id, "Completed"),
        "change: change was Creating, now Completed",
    ),
    "the job to be updated has failed": (
        lambda s: s.store.set_phase(named(s, "edit").id, "Failed"),
        "edit: edit was Creating, now Failed",
    ),
    "the job to be terminated is gone": (
        lambda s: s.store.delete("p1", s.store.set_phase(named(s, "gone").id, "Failed").id),
        "gone: gone",
    ),
    "the name of the new job is taken": (
        lambda s: s.store.create("p1", a_body("new", "somebody's")),
        "new: the name new is taken",
    ),
    "the name of the next revision is taken": (
        lambda s: s.store.create("p1", a_body("change-r2", "somebody's")),
        "change: the name change-r2 is taken",
    ),
    "another digest": (
        lambda s: s.store.edit(named(s, "change").id, other_digest),
        "change: the marker of change has changed",
    ),
    "another active revision": (
        lambda s: s.store.create("p1", a_body("edit-r2", "reconciler.test.edit.r2.a000000000000")),
        "edit: edit-r2 exists, which the plan does not know",
    ),
    "our job for the key that was to be created": (
        lambda s: s.store.create("p1", a_body("new", "reconciler.test.new.r1.a000000000000")),
        "new: ",
    ),
}


def other_digest(body: dict[str, Any]) -> None:
    """As if somebody had applied another declaration."""
    text = body["metadata"]["description"]
    body["metadata"]["description"] = re.sub(r"\.[a-z][0-9a-f]{12}", ".b000000000000", text)


@pytest.mark.parametrize("what", MOVES)
def test_what_moved_makes_it_stale_and_nothing_is_done(
    reconciler: Reconciler, service: Service, every_action: dict[str, Any], what: str
) -> None:
    move, said_of_it = MOVES[what]
    move(service)
    said = carry_out(reconciler)
    assert said.code == 4, said.err
    assert said.out == ""
    assert f"why: {said_of_it}" in said.err
    assert "fix: nothing was changed; create a new plan" in said.err
    assert changes(service) == []
    events = carry_out(reconciler, "--json")
    assert events.code == 4
    assert changes(service) == []


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


def test_every_difference_is_listed(
    reconciler: Reconciler, service: Service, every_action: dict[str, Any]
) -> None:
    for what in ("the job to be replaced has ended", "the name of the new job is taken"):
        MOVES[what][0](service)
    said = carry_out(reconciler)
    assert said.code == 4
    assert said.err.count("error: stale plan") == 2


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda saved: saved["options"]["target"].update(project_id="p2"), "project p1"),
        (lambda saved: saved["target"].update(project_id="p2"), "project p2"),
        (lambda saved: saved["target"].update(workspace_id="7"), "workspace 7"),
        (lambda saved: saved["target"].update(endpoint="https://elsewhere.example"), "elsewhere.example"),
    ],
)
def test_another_place_makes_it_stale(
    reconciler: Reconciler,
    service: Service,
    every_action: dict[str, Any],
    edit: Callable[[dict[str, Any]], object],
    words: str,
) -> None:
    edit(every_action)
    PLAN.write_text(json.dumps(sealed(every_action)), encoding="utf-8")
    said = carry_out(reconciler)
    assert said.code == 4, said.err
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


def test_workspace_that_cannot_be_read_is_8(
    reconciler: Reconciler, service: Service, every_action: dict[str, Any]
) -> None:
    service.app.faults.add(Fault(Effect.ANSWER, operation="ListTrainingJobs", status=503, count=None))
    assert carry_out(reconciler).code == 8
    assert changes(service) == []


# ── files that are none ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda text: text[: len(text) // 2], "not a valid JSON document"),
        (lambda text: "", "not a valid JSON document"),
        (lambda text: "[" * 100_000, "not a valid JSON document"),
        (lambda text: "[]", "it differs from what `plan --out` wrote"),
        (lambda text: "{}", "it differs from what `plan --out` wrote"),
        (lambda text: text.replace('"actions"', '"notions"', 1), "actions"),
        (lambda text: text.replace('"action": "create"', '"action": "delete"', 1), "actions.0.action"),
        (lambda text: text.replace('"key"', '"kee"', 1), "actions.0.k"),
        (lambda text: text.replace('"options"', '"news": 1, "options"', 1), "news"),
        (lambda text: text.replace('"desired"', '"news": 1, "desired"', 1), "actions.0.news"),
        (lambda text: text.replace('"root"', '"news": 1, "root"', 1), "news"),
        (lambda text: text.replace('"format_version": "1.', '"format_version": "2.', 1), "format_version 2"),
    ],
)
def test_damaged_one_is_65(
    reconciler: Reconciler, service: Service, damage: Callable[[str], str], words: str
) -> None:
    write(manifest("a", url=service.url))
    save(reconciler)
    PLAN.write_text(damage(PLAN.read_text(encoding="utf-8")), encoding="utf-8")
    service.app.requests.clear()
    said = carry_out(reconciler)
    assert said.code == 65, said.err
    assert "error: invalid plan file" in said.err
    assert words in said.err
    assert len(service.app.requests) == 0


def test_output_of_plan_json_is_no_saved_plan(reconciler: Reconciler, service: Service) -> None:
    write(manifest("a", url=service.url))
    reconciler("plan", "-o", f"json={PLAN}")
    for said in (carry_out(reconciler), reconciler("show", str(PLAN))):
        assert said.code == 65
        assert "it differs from what `plan --out` wrote" in said.err


@pytest.mark.parametrize("arguments", [["apply", "--yes", "--plan"], ["show"]])
@pytest.mark.parametrize("file", ["no.plan", ".", "/dev/null"])
def test_file_that_is_not_there_is_64(
    reconciler: Reconciler, service: Service, arguments: list[str], file: str
) -> None:
    said = reconciler(*arguments, file)
    assert said.code == 64
    assert "no such plan file" in said.err


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


# ── guards, conflicts, failures ────────────────────────────────────────────────────────────────────


def test_what_a_guard_refused_is_refused_again(reconciler: Reconciler, service: Service) -> None:
    keys = [f"k{number}" for number in range(6)]
    write(manifest(*keys, url=service.url))
    assert reconciler("apply", "--yes").code == 0
    write(manifest("k0", url=service.url))
    saved = save(reconciler, code=3)
    assert saved["applyable"] is False
    service.app.requests.clear()
    said = carry_out(reconciler)
    assert said.code == 3
    assert "too many terminations" in said.err
    assert changes(service) == []


@pytest.mark.parametrize("allowed", [["--force"], ["--allow", "terminations"]])
def test_what_was_allowed_stays_allowed(reconciler: Reconciler, service: Service, allowed: list[str]) -> None:
    keys = [f"k{number}" for number in range(6)]
    write(manifest(*keys, url=service.url))
    assert reconciler("apply", "--yes").code == 0
    write(manifest("k0", url=service.url))
    save(reconciler, *allowed)
    assert "Applied: 5 succeeded." in carry_out(reconciler).out


@pytest.mark.parametrize(
    ("lifecycle", "allowed", "code"),
    [("{}", [], 4), ("{on_change: replace}", [], 0), ("{}", ["--allow", "lost-work"], 0)],
)
def test_replace_of_a_job_that_ran_longer_than_lost_time_meanwhile_is_stale(
    reconciler: Reconciler,
    service: Service,
    time: SharedTime,
    lifecycle: str,
    allowed: list[str],
    code: int,
) -> None:
    service.store.durations = Durations(running=100 * 3600)
    with_lifecycle = "  a:\n", f"  a:\n    lifecycle: {lifecycle}\n"
    write(manifest("a", url=service.url).replace(*with_lifecycle))
    assert reconciler("apply", "--yes").code == 0
    write(manifest("a", url=service.url, lr="0.2").replace(*with_lifecycle))
    service.clock.advance(minutes=1)
    [action] = save(reconciler, *allowed)["actions"]
    assert action["action"] == "replace"
    service.clock.advance(hours=2)
    service.app.requests.clear()
    said = carry_out(reconciler)
    assert said.code == code
    assert ("longer than limits.lost_time" in said.err) is (code == 4)
    assert bool(changes(service)) is (code == 0)


def test_conflict_is_skipped_and_the_rest_is_done(reconciler: Reconciler, service: Service) -> None:
    service.store.create("p1", a_body("a", "somebody's"))
    write(manifest("a", "b", url=service.url))
    saved = save(reconciler)
    assert saved["summary"]["conflict"] == 1
    said = carry_out(reconciler)
    assert said.code == 3
    assert "succeeded create b" in said.out
    assert "skipped   conflict a" in said.out


def test_only_is_kept_to(reconciler: Reconciler, service: Service) -> None:
    write(manifest("a", "b", url=service.url))
    save(reconciler, "--only", "b")
    assert carry_out(reconciler).code == 0
    assert only(service).body["metadata"]["name"] == "b"


def test_failed_action_stops_no_other(reconciler: Reconciler, service: Service) -> None:
    write(manifest("a", "b", url=service.url))
    save(reconciler)
    service.app.faults.add(
        Fault(Effect.ANSWER, operation="CreateTrainingJob", status=400, code="ModelArts.2815", message="full")
    )
    said = carry_out(reconciler)
    assert said.code == 5
    assert "Applied: 1 succeeded, 1 failed." in said.out
    assert len(service.store.jobs()) == 1


def test_lost_answer_makes_no_second_job(reconciler: Reconciler, service: Service) -> None:
    write(manifest("a", url=service.url))
    save(reconciler)
    service.app.faults.add(Fault(Effect.LOST_AFTER, operation="CreateTrainingJob"))
    assert carry_out(reconciler).code == 0
    assert len(service.store.jobs()) == 1


def test_apply_of_a_saved_plan_waits_for_what_it_started(reconciler: Reconciler, service: Service) -> None:
    write(manifest("a", url=service.url))
    save(reconciler)
    assert carry_out(reconciler, "--wait", "completed", "--timeout", "2h").code == 0
    assert only(service).life.phase == "Completed"


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


@pytest.mark.parametrize("option", ["user:hunter22@host/db", "host/db?user=u&password=hunter22"])
def test_password_in_the_address_of_the_records_is_not_saved(
    reconciler: Reconciler, service: Service, option: str
) -> None:
    write(manifest("a", url=service.url))
    said = reconciler("plan", "--out", str(PLAN), "--records", f"postgresql://{option}")
    assert said.code == 3
    assert "RECONCILER_RECORDS" in said.err
    assert "hunter22" not in said.err + said.out
    assert not PLAN.exists()
