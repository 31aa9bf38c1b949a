"""The manifest exported from jobs declares those jobs: read back, it differs in nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.core.body import manifest_form, normalize_aliases
from reconciler.core.canonical import canonical, immutable_part
from reconciler.core.diff import changes_between, comparable_with_details
from reconciler.core.fields.field_types import Cloud
from reconciler.core.identity import Marker, key_problem
from reconciler.core.mutable import mutable_changes
from reconciler.core.observed import ObservedJob
from reconciler.core.stack import DesiredJob, Target
from reconciler.core.values import Change
from reconciler.manifest import export as exported_stack
from reconciler.manifest.export import ExportedStack, export_stack, unique_keys
from reconciler.manifest.files import stack_of
from reconciler.manifest.format import format_text
from reconciler.manifest.load import load
from reconciler.manifest.yaml import parse
from reconciler.secrets import Redactor, is_distinctive
from tests.builders import a_job, seen
from tests.core.fields import BASES, FIELDS, FORMS, declared, is_accepted, reported

SERVICE = Target(kind="modelarts", endpoint="https://service", project_id="p")


def export(*jobs: ObservedJob, redact: Redactor | None = None) -> ExportedStack:
    redact = redact or Redactor()
    return export_stack(
        "vision",
        "prod",
        SERVICE,
        jobs,
        is_secret=lambda text: redact(text) != text,
        add_secrets=redact.add_secrets,
    )


def read_back(stack: ExportedStack) -> Mapping[str, DesiredJob]:
    """Load the exported manifest, with the secrets in the environment."""
    text = stack.text(["head"])
    assert format_text(text, "jobs.yaml") == text
    document = parse(text.encode(), Path("jobs.yaml"), "jobs.yaml")
    assert not document.problems
    loaded = load(stack_of(document.tree, Path()), environ=stack.variables.value_by_name)
    return loaded.stack.jobs


def differences(desired: DesiredJob, job: ObservedJob) -> tuple[Change, ...]:
    """Return the differences found by adopting a job under an entry."""
    reported_form = immutable_part(canonical(normalize_aliases(manifest_form(job.body))))
    declared_form = immutable_part(canonical(manifest_form(desired.body or {})))
    compared = comparable_with_details(reported_form, declared_form)
    changes = changes_between(compared.before, compared.after, forces_new_job=True)
    marker = job.marker or Marker("vision", desired.key, 1, "b" + "0" * 12)
    mutable = mutable_changes(desired, job, marker, Cloud.HUAWEI)
    return (*changes, *compared.secrets, *mutable.now, *mutable.waiting)


TOKEN = "hf_QWERTYuiopasdfghJKLZXCVbnm12345678"
ODD = [
    "",
    "1.10",
    "true",
    "null",
    "${x}",
    "$${x}",
    "a: b",
    "#",
    "é\u202e",
    "\x1b[0m",
    "a\nb\n",
    "::error::x",
    TOKEN,
]
texts = st.sampled_from(ODD) | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20
)
arguments = st.dictionaries(
    st.sampled_from(["lr", "n", "password", "HF_TOKEN", "note", "true"]), texts, max_size=4
)


@st.composite
def jobs(draw: st.DrawFn, key: str = "a") -> ObservedJob | None:
    """Draw a job with some fields of one kind, and unusual texts."""
    base = draw(st.sampled_from(sorted(BASES)))
    fields = draw(st.lists(st.sampled_from([field for field in FIELDS if field.base == base]), max_size=5))
    values = {field: draw(st.sampled_from([field.value, field.other])) for field in fields}
    values = {field: value for field, value in values.items() if field.path not in ("raw", "lifecycle")}
    desired = declared(base, values)
    body: dict[str, Any] = dict(desired.body or {})
    if algorithm := body.get("algorithm"):
        parameters = [{"name": name, "value": value} for name, value in draw(arguments).items()]
        environments = {name.upper(): value for name, value in draw(arguments).items()}
        more = {"parameters": parameters} if "parameters" not in algorithm else {}
        body["algorithm"] = {**algorithm, **more, "environments": environments}
    desired = DesiredJob(key, body, desired.digest, draw(texts))
    if not is_accepted(desired):
        return None
    return reported(desired, draw(st.sampled_from(FORMS)), text=desired.description)


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from("abc"), unique=True, min_size=1).flatmap(
        lambda keys: st.tuples(*map(jobs, keys))
    )
)
def test_manifest_of_any_jobs_declares_them(made: tuple[ObservedJob | None, ...]) -> None:
    there = [job for job in made if job is not None]
    stack = export(*there)
    declared_jobs = read_back(stack)
    assert {entry.key for entry in stack.entries} == declared_jobs.keys()
    assert len(stack.entries) + len(stack.skipped) == len(there)
    for entry in stack.entries:
        lost = {path for path, _ in entry.omissions}
        found = {change.path for change in differences(declared_jobs[entry.key], entry.job)}
        assert found <= lost, (found, entry.tree)
    # The service does not report what a fine-tune job without an algorithm runs.
    assert all("algorithm is required" in why for _, why in stack.skipped)
    text = stack.text(())
    for value in stack.variables.value_by_name.values():
        assert not is_distinctive(value) or value not in text
    assert TOKEN not in text


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("base", sorted(BASES))
def test_every_kind_of_job_is_exported(base: str, form: str) -> None:
    values = {field: field.value for field in FIELDS if field.base == base and field.path == "tasks"}
    job = reported(declared(base, values), form)
    [entry] = export(job).entries
    assert differences(read_back(export(job))[entry.key], job) == ()


def test_manifest_is_laid_out_for_people() -> None:
    one = a_job("one", description="One", algorithm__parameters={"lr": 0.1, "epochs": 9})
    two = a_job("two", algorithm__environments={"HF_TOKEN": "hunter2"})
    there = [reported(one, text="One"), reported(two, name="two-r3", job_id="2", description="", text=None)]
    assert export(*there).text(["Head."]) == Path(__file__).with_name("exported.yaml").read_text(
        encoding="utf-8"
    )


def test_secret_shared_by_jobs_is_one_variable() -> None:
    one = a_job("one", algorithm__environments={"DB_PASSWORD": "hunter2"})
    two = a_job("two", algorithm__code_dir="obs://b/hunter2/", algorithm__boot_file="obs://b/hunter2/t.py")
    stack = export(reported(one), reported(two))
    assert "hunter2" not in stack.text(())
    assert stack.entries[1].written()["algorithm"]["code_dir"] == "${var.CODE_DIR}"
    assert differences(read_back(stack)["two"], stack.entries[1].job) == ()


def test_password_that_is_an_ordinary_word_is_hidden_only_as_a_password() -> None:
    job = a_job("test", algorithm__environments={"DB_PASSWORD": "test", "MODE": "test"})
    assert export(reported(job)).entries[0].written()["algorithm"]["environments"] == {
        "DB_PASSWORD": "${var.DB_PASSWORD}",
        "MODE": "test",
    }


def test_variable_of_a_job_that_is_skipped_is_not_declared() -> None:
    body = {"algorithm": {"environments": {"HF_TOKEN": "hunter2"}}}
    stack = export(seen(body=body), reported(a_job("b")))
    assert [one.job.name for one in stack.skipped] == ["a"]
    assert "variables" not in stack.mapping() or stack.mapping()["variables"] == {}


@pytest.mark.parametrize(
    ("names", "keys"),
    [
        (["a", "b"], ["a", "b"]),
        (["a", "a-r2", "a-r3"], ["a_2", "a_r2", "a"]),
        (["A", "a"], ["A", "a_2"]),
        (["x" * 60, "x" * 61], ["x" * 58, "x" * 56 + "_2"]),
        (["a-r2", "a_r2"], ["a", "a_r2"]),
        (["a-r2", "a-r3", "a_r2"], ["a_r2", "a", "a_r2_2"]),
        (["a b", "a_b"], ["a_b", "a_b_2"]),
    ],
)
def test_keys_are_unique_and_the_newest_revision_has_the_name(names: list[str], keys: list[str]) -> None:
    there = [ObservedJob(str(n), name, "", "Running") for n, name in enumerate(names)]
    found = unique_keys(there)
    assert len({key.casefold() for key in found.values()}) == len(names)
    assert all(key_problem(key) is None for key in found.values())
    assert [found[job.id] for job in there] == keys


@pytest.mark.parametrize("name", ["job-{}", "x" * 60 + "{}"], ids=["names of their own", "names alike"])
def test_keys_of_thousands_of_jobs_are_generated_quickly(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    numbered = Mock(side_effect=exported_stack._numbered)
    monkeypatch.setattr(exported_stack, "_numbered", numbered)
    there = [ObservedJob(str(n), name.format(n), "", "Running") for n in range(500)]
    assert len(set(unique_keys(there).values())) == len(there)
    assert numbered.call_count <= len(there)


def test_header_comment_cannot_be_broken_by_names() -> None:
    job = reported(a_job("a"), name="a\nb: c", job_id="x\ny", description="", text=None)
    text = export(job).text(["target\nname"])
    assert parse(text.encode(), Path("a"), "a").tree["jobs"].keys() == {"a_b__c"}
    assert text.startswith("# target\\nname\n")
