"""The entry exported for a job declares that job: there is no difference."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from reconciler.core.body import create_body, desugar, manifest_form, normalize_aliases
from reconciler.core.canonical import canonical, immutable_part
from reconciler.core.diff import changes_between, comparable_with_details
from reconciler.core.entry import ManifestEntry, NotDeclarable, SecretVariables, job_key, manifest_entry
from reconciler.core.fields.field_types import Cloud
from reconciler.core.identity import key_problem
from reconciler.core.mutable import mutable_changes
from reconciler.core.observed import ObservedJob
from reconciler.core.stack import DesiredJob, JobEntry
from reconciler.core.values import Change
from tests.builders import a_job, seen
from tests.core.fields import FIELDS, FORMS, Field, declared, is_accepted, reported
from tests.each import each


def differences(entry: ManifestEntry) -> tuple[Change, ...]:
    """Return the differences found by adopting the job under its own entry."""
    tree = desugar(entry.tree)
    JobEntry.model_validate(tree)
    body = create_body(tree)
    before = immutable_part(canonical(normalize_aliases(manifest_form(entry.job.body))))
    compared = comparable_with_details(before, immutable_part(canonical(manifest_form(body))))
    changes = changes_between(compared.before, compared.after, forces_new_job=True)
    desired = DesiredJob(entry.key, body, "", entry.tree.get("description", ""))
    assert entry.job.marker is not None
    mutable = mutable_changes(desired, entry.job, entry.job.marker, Cloud.HUAWEI)
    return (*changes, *compared.secrets, *mutable.now, *mutable.waiting)


#: Fields in which a job created from an exported entry may differ from the exported job: not reported,
#: set only by the service, or brought along by an algorithm given by id.
OTHERWISE = {
    "training_experiment_reference__description": {"training_experiment_reference"},
    "annotations": {"endpoints"},
    "algorithm__name": {"algorithm.name"},
    "algorithm__code_dir": {"algorithm.code_dir"},
    "algorithm__engine": {"algorithm.engine.engine_name"},
    "raw": {"spec.brand_new"},
}


@pytest.mark.parametrize("form", FORMS)
@each("field", FIELDS)
def test_exported_entry_declares_its_job_and_recreates_it(field: Field, form: str) -> None:
    for value in (field.value, field.other):
        job = declared(field.base, {field: value})
        if not is_accepted(job):
            continue
        old = reported(job, form)
        entry = manifest_entry(old, stack="vision")
        assert differences(entry) == ()
        new = reported(DesiredJob(job.key, create_body(desugar(entry.tree)), job.digest), form)
        before, after = (canonical(normalize_aliases(manifest_form(one.body))) for one in (old, new))
        changes = changes_between(before, after, forces_new_job=True)
        assert {change.path for change in changes} <= OTHERWISE.get(field.path, set())


def exported(**changed: Any) -> dict[str, Any]:
    """Return the exported entry, as written to a file, of a job declared so."""
    return manifest_entry(reported(a_job(**changed)), stack="vision").written()


def test_exported_entry_has_manifest_shorthand_and_no_service_fields() -> None:
    entry = exported(
        description="ResNet",
        algorithm__parameters=[
            {"name": "lr", "value": "0.1"},
            {"name": "d", "value": "1", "description": "D"},
        ],
        algorithm__inputs={"data_url": "obs://b/in/"},
        algorithm__outputs=[
            {"name": "train_url", "remote": {"obs": {"obs_url": "/b/out/"}}, "access_method": "env"}
        ],
        algorithm__environments={"EMPTY": "", "A": "1"},
        spec__log_export_path={"obs_url": "/b/log/"},
        spec__resource__node_count=2,
    )
    assert entry == {
        "description": "ResNet",
        "algorithm": {
            "code_dir": "obs://b/code/",
            "boot_file": "obs://b/code/train.py",
            "engine": {"engine_id": "pytorch"},
            "parameters": {"lr": "0.1", "d": {"value": "1", "description": "D"}},
            "inputs": {"data_url": "obs://b/in/"},
            "outputs": {
                "train_url": {"access_method": "env", "remote": {"obs": {"obs_url": "obs://b/out/"}}}
            },
            "environments": {"EMPTY": "", "A": "1"},
        },
        "spec": {
            "resource": {"flavor_id": "modelarts.vm.cpu.2u", "node_count": 2},
            "log_export_path": {"obs_url": "obs://b/log/"},
        },
    }


def test_values_of_another_type_are_converted_to_manifest_types() -> None:
    spec = {
        "resource": {"flavor_id": "f", "node_count": "2"},
        "auto_stop": {"time_unit": "HOURS", "duration": 3.0},
    }
    body = {"algorithm": {"id": "a", "parameters": [{"name": "n", "value": 8.0}]}, "spec": spec}
    entry = manifest_entry(seen(body=body), stack="vision")
    assert entry.tree["spec"]["resource"]["node_count"] == 2
    assert entry.tree["spec"]["auto_stop"]["duration"] == 3
    assert entry.tree["algorithm"] == {"id": "a", "parameters": {"n": "8"}}
    JobEntry.model_validate(desugar(entry.tree))


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("resnet", "resnet"),
        ("resnet-r2", "resnet"),
        ("resnet-r1", "resnet_r1"),
        ("resnet-R2", "resnet_R2"),
        ("resnet-r02", "resnet_r02"),
        ("x-r2-r3", "x_r2"),
        ("-r2", "_r2"),
        ("a" * 64, "a" * 58),
        ("a" * 55 + "-r12-long", "a" * 55 + "_r1"),
        ("with space/é", "with_space__"),
        ("", "job"),
    ],
)
def test_exported_key_is_the_job_name_made_valid(name: str, key: str) -> None:
    job = ObservedJob(id="1", name=name, description="", phase_text="Running")
    assert job_key(job) == key
    assert key_problem(key) is None


def test_exported_key_of_an_owned_job_comes_from_its_marker() -> None:
    assert job_key(seen(key="resnet", revision=2)) == "resnet"


TOKEN = "hf_QWERTYuiopasdfghJKLZXCVbnm12345678"
SHA = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b"


@pytest.mark.parametrize(
    ("changed", "path", "written", "value"),
    [
        ({"algorithm__environments": {"HF_TOKEN": "abc"}}, "environments.HF_TOKEN", "${var.HF_TOKEN}", "abc"),
        ({"algorithm__environments": {"NOTE": TOKEN}}, "environments.NOTE", "${var.NOTE}", TOKEN),
        ({"algorithm__parameters": {"apiKey": "abc"}}, "parameters.apiKey", "${var.API_KEY}", "abc"),
        (
            {"algorithm__parameters": {"p": {"value": "abc", "constraint": {"sensitive": True}}}},
            "parameters.p.value",
            "${var.A_P}",
            "abc",
        ),
        (
            {"algorithm": {"command": "run $${X} --token abc -v", "engine": {"image_url": "a/b:1"}}},
            "command",
            "${var.COMMAND}",
            "run $${X} --token abc -v",
        ),
        (
            {"algorithm__environments": {"OS_PASSWORD": "abc"}},
            "environments.OS_PASSWORD",
            "${var.A_OS_PASSWORD}",
            "abc",
        ),
        ({"algorithm__environments": {"PLAIN": "known"}}, "environments.PLAIN", "${var.PLAIN}", "known"),
        ({"algorithm__environments": {"COMMIT": SHA}}, "environments.COMMIT", SHA, None),
    ],
)
def test_secret_is_exported_as_a_variable(
    changed: Mapping[str, Any], path: str, written: str, value: str | None
) -> None:
    variables = SecretVariables()
    job = reported(a_job(**changed))
    entry = manifest_entry(job, stack="vision", variables=variables, is_secret=lambda text: text == "known")
    place: Any = entry.written()["algorithm"]
    for part in path.split("."):
        place = place[part]
    assert place == written
    name = written.partition("${var.")[2].partition("}")[0]
    assert variables.value_by_name == ({} if value is None else {name: value})
    declaration = {} if value is None else {name: {"env": name, "sensitive": True}}
    assert variables.declarations([entry.written()]) == declaration
    assert variables.declarations([]) == {}
    assert differences(entry) == ()


def test_equal_secrets_share_a_variable_and_different_ones_do_not() -> None:
    variables = SecretVariables()
    for key, value in (("a", "one"), ("b", "one"), ("b", "two"), ("c", "three"), ("c", "four")):
        job = reported(a_job(key, algorithm__environments={"HF_TOKEN": value, "WANDB_KEY": "w"}))
        manifest_entry(job, stack="vision", variables=variables)
    assert variables.value_by_name == {
        "HF_TOKEN": "one",
        "WANDB_KEY": "w",
        "B_HF_TOKEN": "two",
        "C_HF_TOKEN": "three",
        "C_HF_TOKEN_2": "four",
    }


def test_exported_entry_has_no_secret_of_the_job() -> None:
    entry = exported(
        description=f"uses {TOKEN}",
        algorithm__parameters={"password": "hunter2", "url": "redis://:hunter2@host/"},
        algorithm__environments={"A": f"x {TOKEN}", "B_SECRET": "hunter2"},
        spec__volumes=[{"nfs": {"nfs_server_path": "nfs://u:hunter2@h/", "local_path": "/a"}}],
        spec__resource__pool_id="pool",
    )
    assert "hunter2" not in json.dumps(entry)
    assert TOKEN not in json.dumps(entry)


BODY: dict[str, Any] = {"algorithm": {"id": "a"}, "spec": {"resource": {"flavor_id": "f"}}}


def test_exported_description_has_no_marker_but_a_note_on_losses() -> None:
    plain = manifest_entry(seen(text="ResNet, nightly", body=BODY), stack="vision")
    assert (plain.tree["description"], plain.omissions) == ("ResNet, nightly", ())
    secret = manifest_entry(seen(text=f"token {TOKEN}", body=BODY), stack="vision")
    assert "description" not in secret.tree
    assert [one.path for one in secret.omissions] == ["description"]
    long = manifest_entry(seen(description="long and dull " * 20, body=BODY), stack="vision")
    assert 100 < len(long.tree["description"]) < 220
    assert [one.path for one in long.omissions] == ["description"]


def test_literal_dollar_brace_is_escaped_in_the_exported_entry() -> None:
    assert exported(algorithm__parameters={"a": "${x}"})["algorithm"]["parameters"] == {"a": "$${x}"}


def test_fields_that_the_service_does_not_report_are_named() -> None:
    entry = manifest_entry(reported(a_job(spec__notification={"topic_urn": "urn:t"})), stack="vision")
    assert "spec.notification" not in entry.unreported
    assert {"annotations", "spec.retention", "spec.reserved_time"} <= set(entry.unreported)


def test_exported_job_of_tasks_has_no_spec() -> None:
    body = {"kind": "hetero_job", "tasks": [{"role": "a", "task_resource": {"node_count": 1}}],
            "spec": {"resource": {"flavor_id": "f"}}}  # fmt: skip
    entry = manifest_entry(seen(body=body), stack="vision")
    assert entry.tree == {"kind": "hetero_job", "tasks": [{"role": "a", "task_resource": {"node_count": 1}}]}
    assert [one.path for one in entry.omissions] == ["spec"]


POOLED: dict[str, Any] = {"resource": {"pool_id": "p"}}
ODD, N = {"name": "odd name", "value": "1"}, {"name": "n", "value": "1"}
VOLUMES = [{"obs": {"local_path": "/a"}, "pfs": {"local_path": "/b"}}]


@pytest.mark.parametrize(
    ("algorithm", "spec", "raw"),
    [
        ({}, {"schedule_policy": {"priority": 0}}, {"spec": {"schedule_policy": {"priority": 0}}}),
        ({"parameters": [ODD, N]}, {}, {"algorithm": {"parameters": [ODD, N]}}),
        ({}, {"volumes": VOLUMES}, {"spec": {"volumes": VOLUMES}}),
        ({"local_code_dir": "/root/x"}, {}, {"algorithm": {"local_code_dir": "/root/x"}}),
    ],
)
def test_field_refused_by_the_models_is_exported_as_raw(
    algorithm: dict[str, Any], spec: dict[str, Any], raw: dict[str, Any]
) -> None:
    body = {"algorithm": {"id": "a", **algorithm}, "spec": {**POOLED, **spec}}
    entry = manifest_entry(seen(body=body), stack="vision")
    assert entry.tree["raw"] == raw
    assert differences(entry) == ()


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({}, "spec is required"),
        ({"spec": POOLED}, "algorithm is required"),
        ({"spec": POOLED, "algorithm": {"id": "a\ud800"}}, "not valid Unicode"),
        ({"spec": POOLED, "algorithm": {"id": "a\x00"}}, "NUL"),
        ({"spec": POOLED, "algorithm": {"id": "a", "environments": {"A" * 1001: "1"}}}, "more than 1000"),
        ({"spec": POOLED, "algorithm": {"id": "a", "environments": {"known": "1"}}}, "a secret"),
        (
            {"spec": POOLED, "algorithm": {"id": "a"}, "ftjob_config": {"train_process": 1e400}},
            "out of range",
        ),
    ],
)
def test_job_not_expressible_in_a_manifest_is_refused_with_a_reason(body: dict[str, Any], why: str) -> None:
    with pytest.raises(NotDeclarable, match=why):
        manifest_entry(seen(body=body), stack="vision", is_secret=lambda text: text == "known")
