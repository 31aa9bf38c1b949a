"""Saved plans: exactly the reviewed plan is applied, elsewhere and later, or nothing."""

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

from reconciler.core.values import OF_BLOCKED, OF_SCHEDULES
from reconciler.decide.plan import PlannedAction
from reconciler.emulator import Effect
from reconciler.plan_file import sealed
from tests.cli.conftest import Reconciler, World, manifest, write
from tests.cli.lock_helpers import held_by

SECRET = "tell nobody/ever+2?"
TOKEN = "variables: {token: {env: A_TOKEN, sensitive: true}}\n"
PLAN = Path("saved.plan")
APPLY = "apply --plan saved.plan --yes"
PAGE = Path(__file__).parents[2] / "docs/reference/saved-plans.md"
ACTION_FIELDS = {
    name
    for name, field in PlannedAction.model_fields.items()
    if not field.exclude and name not in (*OF_SCHEDULES, *OF_BLOCKED)
}
Document = dict[str, Any]


def with_token(text: str) -> str:
    """Each job of the manifest needs the secret."""
    return text.replace(
        "parameters: {lr", "environments: {TOKEN: 'Bearer ${var.token}'}\n      parameters: {lr"
    )


def edited(world: World, *keys: str, of: str) -> str:
    """A manifest with these jobs, one of them with another learning rate."""
    head, found, tail = world.manifest(*keys).partition(f"  {of}:\n")
    return head + found + tail.replace("lr: 0.1", "lr: 0.2", 1)


def save(reconciler: Reconciler, options: str = "", code: int = 0) -> Document:
    """Save a plan, and delete the manifest."""
    reconciler.ends(code, f"plan --out {PLAN} {options}")
    for file in Path().glob("*.yaml"):
        file.unlink()
    return saved()


def saved() -> Document:
    document: Document = json.loads(PLAN.read_text(encoding="utf-8"))
    return document


@pytest.fixture
def every_action(world: World) -> Document:
    """A saved plan with a create, an update, a replace, a terminate and a keep."""
    world.apply(world.manifest("change", "gone", "same", "edit"))
    write(all_edited(world))
    document = save(world)
    world.forget_requests()
    actions = {action["key"]: action["action"] for action in document["actions"]}
    assert list(actions.values()) == ["replace", "update", "terminate", "create", "keep"]
    return document


def all_edited(world: World) -> str:
    text = edited(world, "change", "same", "edit", "new", of="change")
    return text.replace("description: edit of the test", "description: other words")


# ── the file ────────────────────────────────────────────────────────────────────────────────────────


def test_saved_plan_extends_the_plan_json_document(world: World) -> None:
    world.write("a", "b", "c")
    world("apply --yes --only a --only b")
    write(edited(world, "a", "c", of="a"))
    result = world(f"plan --json --out {PLAN}")
    document = saved()
    more = {}
    for action in document["actions"]:
        more[action["key"]] = {name: action.pop(name) for name in list(action) if name not in ACTION_FIELDS}
    assert document.pop("options")["root"] == "."
    assert document == result.document
    assert {key for key, added in more.items() if "desired" in added} == {"a", "c"}
    assert more["c"]["desired"]["algorithm"]["code_dir"] == "obs://b/code/"
    assert more["c"]["desired"]["metadata"]["description"].startswith("c of the test reconciler.test.c.r1.")


def test_plan_file_is_private_and_written_atomically(world: World) -> None:
    world.write("a")
    PLAN.write_text("an older plan", encoding="utf-8")
    PLAN.chmod(0o644)
    was = PLAN.stat().st_ino
    for code, file in ((0, str(PLAN)), (1, "there/is/no.plan"), (64, ".")):
        world.ends(code, f"plan --out {file}")
        assert sorted(path.name for path in Path().iterdir()) == ["jobs.yaml", "saved.plan"]
    assert stat.S_IMODE(PLAN.stat().st_mode) == 0o600
    assert PLAN.stat().st_ino != was


def test_plan_file_is_reproducible(world: World) -> None:
    write(with_token(world.manifest("b", "a", more=TOKEN)))
    texts = []
    for _ in range(2):
        world.ends(0, f"plan --out {PLAN} --var", f"token={SECRET}")
        world.time.sleep(5)
        texts.append(PLAN.read_bytes())
    first, second = (re.sub(rb'"created_at": ".*"', b"", text) for text in texts)
    assert first == second
    assert texts[0] != texts[1]


def test_plan_file_has_no_secret_in_any_form(world: World) -> None:
    world.setenv("A_TOKEN", SECRET)
    text = with_token(world.manifest("a", more=TOKEN))
    write(text.replace("obs://b/code/train.py", "obs://b/code/train.py?${var.token}"))
    document = save(world)
    algorithm = document["actions"][0]["desired"]["algorithm"]
    assert algorithm["environments"] == {"TOKEN": "Bearer ${var.token}"}
    assert algorithm["boot_file"] == "obs://b/code/train.py?${var.token}"
    assert document["options"]["sources"]["token"]["env"] == "A_TOKEN"
    raw = SECRET.encode()
    forms = (
        *(SECRET, quote(SECRET), quote(SECRET, safe=""), quote_plus(SECRET)),
        base64.b64encode(raw).decode().rstrip("="),
        base64.urlsafe_b64encode(raw).decode().rstrip("="),
        "tell-nobody-1",  # the token of the service
    )
    written = PLAN.read_text(encoding="utf-8")
    assert [form for form in forms if form in written] == []


WORD = "tell-nobody-ever-2"


def _reported(world: World) -> None:
    """Let the service report the secret in a field that the plan changes."""
    world.describe("a", f"{WORD} {world.descriptions()['a'].split()[-1]}")


def _in_the_manifest(_: World) -> None:
    with Path("jobs.yaml").open("a", encoding="utf-8") as file:
        file.write(f"policies: [{{name: w, warn: 'true', message: '{WORD}'}}]\n")


@pytest.mark.parametrize(
    "mention",
    [_reported, _in_the_manifest, lambda _: Path("jobs.yaml").rename(f"{WORD}.yaml")],
    ids=["in a change", "in a warning", "in the name of a file"],
)
def test_plan_with_masked_values_is_shown_and_applied(
    world: World, mention: Callable[[World], object]
) -> None:
    world.setenv("A_TOKEN", WORD)
    text = with_token(world.manifest("a", more=TOKEN))
    world.apply(text)
    write(text.replace("a of the test", "other words"))
    mention(world)
    save(world)
    written = PLAN.read_text(encoding="utf-8")
    assert ("(sensitive)" in written, WORD in written) == (True, False)
    world.ends(0, f"show {PLAN}")
    world.ends(0, APPLY)
    assert world.descriptions()["a"].startswith("other words ")


HEADER = "header: {default: 'tell-nobody-1 ${var.token}', sensitive: true}"


def bare(text: str) -> str:
    """Remove other mentions of the key."""
    return text.replace("    description: nightly of the test\n", "")


def noted(text: str) -> str:
    return text.replace("description: nightly of the test", f"annotations: {{note: '{SECRET}'}}")


def composed(text: str) -> str:
    return text.replace("true}}\n", f"true}}, {HEADER}}}\n").replace("Bearer ${var.token}", "${var.header}")


#: The value of the secret, the edit of the manifest, the URL of the records, and the error.
NOT_SAVED: dict[str, tuple[str, Callable[[str], str], str, str]] = {
    "the key": ("nightly", bare, "", "contains the value of a secret, and"),
    "the host": ("127.0.0.1", bare, "", "contains the value of a secret, and"),
    "the stack": ("test", bare, "", "contains the value of a secret, and"),
    "a text of the body": (SECRET, noted, "", "jobs.nightly: its body also contains"),
    "a text around it": ("tell-nobody-2", composed, "", "variables.header: its text also contains"),
    "a password": (SECRET, str, "postgresql://user:hunter22@host/db", "set the URL in RECONCILER_RECORDS"),
    "a password option": (SECRET, str, "postgresql://host/db?user=u&password=hunter22", "RECONCILER_RECORDS"),
}


@pytest.mark.parametrize("what", NOT_SAVED)
def test_plan_with_an_unresolvable_secret_is_not_saved(world: World, what: str) -> None:
    secret, edit, records, words = NOT_SAVED[what]
    world.setenv("A_TOKEN", secret)
    write(edit(with_token(world.manifest("nightly", more=TOKEN))))
    world.ends(
        3,
        f"plan --out {PLAN} {records and '--records'} {records}",
        err=["a secret cannot be saved", words],
        lacks=["tell nobody", "tell-nobody", "hunter22"],
    )
    assert not PLAN.exists()


# ── show ────────────────────────────────────────────────────────────────────────────────────────────


def test_show_prints_the_plan_without_requests(world: World) -> None:
    world.write("a", "b")
    world("apply --yes --only a")
    write(edited(world, "a", "b", of="a"))
    plan = world(f"plan --out {PLAN}").out
    Path("jobs.yaml").unlink()
    world.forget_requests()
    assert world.ends(0, f"show {PLAN}", lacks="= keep").out == plan
    document = world(f"show --json {PLAN}").document
    assert (set(document["actions"][0]), "options" in document) == (ACTION_FIELDS, False)
    assert world(f"show {PLAN} -o text -o json=shown.json").out == plan
    assert json.loads(Path("shown.json").read_text(encoding="utf-8")) == document
    assert world.requests == []


def test_show_lists_kept_keys_and_guard_refusals(world: World) -> None:
    world.apply(world.manifest("a"))
    document = save(world)
    world.ends(0, f"show --show-keep {PLAN}", out="= keep")
    PLAN.write_text(json.dumps({**document, "news": 1}), encoding="utf-8")
    world.ends(0, f"show {PLAN}", out="1 to keep", err="warning: plan file modified since it was written")
    world.write()
    save(world, code=3)
    world.ends(0, f"show {PLAN}", err="--allow empty")


# ── applied ─────────────────────────────────────────────────────────────────────────────────────────


def test_saved_plan_is_applied_without_a_manifest_and_recorded(world: World, every_action: Document) -> None:
    result = world.ends(0, APPLY, out="Applied: 4 succeeded.")
    for what in ("replace change-r2", "update edit", "terminate gone", "create new"):
        assert re.search(rf"^  succeeded {what}(: now Terminat\w+)?$", result.out, re.M)
    assert world.job("change-r2").body["algorithm"]["parameters"][0]["value"] == "0.2"
    assert world.descriptions()["edit"].startswith("other words ")
    assert world.phases()["gone"] in ("Terminating", "Terminated")
    write(all_edited(world))
    world.ends(0, "plan --detailed-exitcode")
    run = world("history --json").document["runs"][0]
    assert (run["kind"], run["result"], len(run["actions"])) == ("apply", "complete", 4)
    [newest, *_] = world("history change --json").document["revisions"]
    assert newest["declared"]["immutable"]["algorithm"]["parameters"] == {"lr": {"value": "0.2"}}
    before = world.changes
    world.ends(4, APPLY)
    assert world.changes == before


def test_apply_of_a_saved_plan_prompts_and_reports_json_lines(world: World, every_action: Document) -> None:
    world.ends(3, f"apply --plan {PLAN} --json", err="fix: add --yes")
    assert world.changes == []
    events = world.ends(0, f"{APPLY} --json").events
    types = [event["type"] for event in events]
    assert (types[:2], types[-1]) == (["version", "planned"], "apply_completed")
    assert types.count("action_completed") == events[-1]["summary"]["done"] == 4
    assert events[1]["summary"] == every_action["summary"]


def test_plan_file_is_applied_from_any_directory(reconciler: Reconciler, tmp_path: Path) -> None:
    """The local target and the records are found relative to the plan file."""
    write(manifest("a"), "stack/jobs.yaml")
    write("", "plans/nothing")
    write("", "elsewhere/nothing")
    reconciler.ends(0, "plan stack --out plans/it")
    assert json.loads(Path("plans/it").read_text(encoding="utf-8"))["options"]["root"] == "../stack"
    Path("stack/jobs.yaml").unlink()
    reconciler.patch.chdir(tmp_path / "elsewhere")
    reconciler.ends(0, "apply --yes --plan ../plans/it")
    assert Path("../stack/.reconciler/records.sqlite3").exists()
    assert not Path(".reconciler").exists()
    write(manifest("a"), "../stack/jobs.yaml")
    reconciler.ends(0, "plan ../stack --detailed-exitcode")


@pytest.mark.parametrize("way", ["manifest", "option", "variable"])
def test_saved_plan_uses_the_records_it_was_made_with(world: World, tmp_path: Path, way: str) -> None:
    address = f"sqlite:///{tmp_path}/kept/records.sqlite3"
    if way == "variable":
        world.setenv("RECONCILER_RECORDS", address)
    world.write("a", more="records: 'sqlite:///kept/records.sqlite3'\n" if way == "manifest" else "")
    save(world, f"--records {address}" if way == "option" else "")
    world.ends(0, APPLY)
    assert Path("kept/records.sqlite3").exists()
    assert not Path(".reconciler").exists()


# ── secrets ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("given", ["", "--var", "--var-file"])
def test_secret_of_a_saved_plan_is_read_from_its_source_or_given(world: World, given: str) -> None:
    world.setenv("A_TOKEN", SECRET)
    write(with_token(world.manifest("a", more=TOKEN)))
    save(world)
    sent = f"another {SECRET}"
    world.setenv("A_TOKEN", "not this one" if given else sent)
    write(f"token: '{sent}'\n", "values.yaml")
    options = {"": [], "--var": [given, f"token={sent}"], "--var-file": [given, "values.yaml"]}[given]
    world.ends(0, f"{APPLY} -vv", *options, lacks=SECRET)
    assert world.job("a").body["algorithm"]["environments"] == {"TOKEN": f"Bearer {sent}"}


# ── stale, or refused ───────────────────────────────────────────────────────────────────────────────


def test_stale_plan_sends_nothing_and_lists_every_change(world: World, every_action: Document) -> None:
    world.set_phase("Completed", "change")
    world.describe("gone", world.descriptions()["gone"] + ".protected")
    world.put("new", description="somebody's")
    moved = (
        "change: change was Creating, now Completed",
        "gone: gone is now protected",
        "new: the name new is taken",
    )
    results = [
        world.ends(
            4, line, err=[f"  why: {why}\n  fix: nothing was changed; create a new plan\n" for why in moved]
        )
        for line in (APPLY, f"{APPLY} --json")
    ]
    assert [bool(one.out) for one in results] == [False, True]
    assert {one.err.count("error: stale plan") for one in results} == {3}
    assert world.changes == []


class Place(NamedTuple):
    """What a test may damage besides the jobs."""

    patch: pytest.MonkeyPatch
    world: World
    plan: Document
    cleanup: ExitStack

    def put(self, name: str, **members: Any) -> None:
        """Edit a member of the plan file, and reseal it."""
        PLAN.write_text(json.dumps(sealed({**self.plan, name: self.plan[name] | members})), encoding="utf-8")


#: Mismatch other than a changed job → exit code and words of the message; the last two stay damaged.
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
        lambda p: p.cleanup.enter_context(held_by("ann", place=p.world.url)), 6, "ann"
    ),
    "a history that cannot be read": (
        lambda p: Path(".reconciler/records.sqlite3").write_bytes(b"no database" * 999), 1, "records.sqlite3"
    ),
    "jobs that cannot be read": (
        lambda p: p.world.fail("ListTrainingJobs", Effect.ANSWER, status=503, count=None), 8, "cannot verify"
    ),
}  # fmt: skip


def test_plan_of_another_context_sends_nothing(world: World, every_action: Document) -> None:
    text, records = PLAN.read_text(), Path(".reconciler/records.sqlite3")
    recorded = records.read_bytes()
    for make, code, words in REFUSED.values():
        with ExitStack() as cleanup, pytest.MonkeyPatch.context() as patch:
            make(Place(patch, world, every_action, cleanup))
            world.ends(code, APPLY, out="", err=words)
        assert world.changes == []
        PLAN.write_text(text)
        records.write_bytes(recorded)


def test_another_project_in_the_environment_makes_the_plan_stale(world: World) -> None:
    world.setenv("OS_PROJECT_ID", "p1")
    write(world.manifest("a").replace(", project_id: p1", ""))
    save(world)
    world.setenv("OS_PROJECT_ID", "p2")
    result = world.ends(4, APPLY)
    assert re.search("it was created for .*, project p1, .*; this is .*, project p2, ", result.err)
    assert world.changes == []
    world.setenv("OS_PROJECT_ID", "p1")
    world.ends(0, APPLY)


def test_stale_plan_error_equals_the_documented_one(world: World) -> None:
    """`docs.generate` does not generate stderr."""
    page = PAGE.read_text(encoding="utf-8")
    world.setenv("HF_TOKEN", SECRET)
    text = with_token(world.manifest("spirals", more=TOKEN)).replace("A_TOKEN", "HF_TOKEN")
    write(text.replace("var.token", "var.hf_token").replace("{token:", "{hf_token:"))
    save(world)
    world.patch.delenv("HF_TOKEN")
    assert f"```text\n{world(APPLY).err}```" in page
    given = ("--var", f"hf_token={SECRET}")
    world.ends(0, APPLY, *given)
    assert f"```text\n{world(APPLY, *given).err}```" in page


def test_option_fixed_by_the_saved_plan_is_64(world: World) -> None:
    world.write("a")
    world.ends(0, f"plan --out {PLAN}")
    world.forget_requests()
    for options in (
        *(".", "jobs.yaml", "--only a", "--force"),
        *("--target there", "-t there", "--allow reruns"),
    ):
        world.ends(64, f"{APPLY} {options}", err="error: not with --plan")
    assert world.requests == []


# ── guards and conflicts ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("allowed", "code"), [("", 3), ("--force", 0), ("--allow terminations", 0)])
def test_guard_decision_is_saved_with_the_plan(world: World, allowed: str, code: int) -> None:
    world.apply(world.manifest(*"abcdef"))
    world.write("a")
    assert save(world, allowed, code=code)["applyable"] is (code == 0)
    world.forget_requests()
    result = world.ends(code, APPLY)
    assert ("too many terminations" in result.err) is bool(code)
    assert ("Applied: 5 succeeded." in result.out) is bool(world.changes) is not bool(code)


def test_environment_options_used_for_the_plan_do_not_block_its_apply(world: World) -> None:
    world.write("a")
    world.setenv("RECONCILER_TARGET", "there")
    world.setenv("RECONCILER_FORCE", "1")
    save(world)
    world.ends(0, APPLY)


def test_apply_that_cannot_start_still_emits_its_last_event(world: World) -> None:
    world.write("a")
    events = world.ends(64, "apply --yes --json --target nowhere").events
    assert [event["type"] for event in events] == ["version", "apply_completed"]
    assert events[-1]["summary"]["done"] == 0
    assert events[-1]["message"]


# ── the digest ──────────────────────────────────────────────────────────────────────────────────────


def digest_of(reconciler: Reconciler) -> str:
    """Return the digest printed by `show`."""
    [line] = re.findall("^sha256:[0-9a-f]{64}$", reconciler(f"show {PLAN}").out, re.MULTILINE)
    return str(line)


def test_plan_and_show_print_the_same_digest_at_any_time(world: World) -> None:
    world.apply(world.manifest("change", "same"))
    world.time.sleep(60)
    text = edited(world, "change", "same", of="change")
    write(text)
    first = save(world)
    digest = digest_of(world)
    write(text)
    world.time.sleep(120)
    assert world("plan --out again.plan").out.splitlines()[0] == digest
    as_json = world("plan --out again.plan --json")
    assert (digest in as_json.err.splitlines(), digest in as_json.out) == (True, False)
    assert as_json.document["lost_node_hours"] != first["lost_node_hours"]
    write(text.replace("lr: 0.2", "lr: 0.3"))
    assert digest not in world("plan --out again.plan").out


def test_plan_other_than_the_approved_one_is_not_applied(world: World) -> None:
    world.write("a")
    save(world)
    whole = digest_of(world)
    for given, why in (
        ("sha256:" + "0" * 64, "sha256:0000"),
        (whole[:20], "compared whole"),
        (whole.removeprefix("sha256:"), "compared whole"),
        (whole.upper(), "compared whole"),
        ("", "an empty digest was approved"),
    ):
        world.ends(4, f"{APPLY} --approve", given, out="", err=[whole, given, why])
        with world.patch.context() as patch:
            patch.setenv("RECONCILER_APPROVE", given)
            world.ends(4, APPLY, out="", err=[whole, given, why])
    assert world.changes == []
    world.ends(0, f"{APPLY} --approve {whole}")
