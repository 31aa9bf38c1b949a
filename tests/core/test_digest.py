"""Equivalent declarations have one digest; released digests never change.

Source: docs/concepts/revisions.md, "Comparison".
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.core.body import (
    CURRENT,
    covered_by,
    create_body,
    desugar,
    digest_of,
    is_known,
    manifest_form,
    with_identity,
)
from reconciler.core.canonical import canonical, immutable_part, mutable_paths
from reconciler.secrets import SecretText
from tests.builders import CODE, an_entry

FULL: dict[str, Any] = {
    "kind": "job",
    "description": "mutable, so no part of the digest",
    "annotations": {"fault-tolerance/job-retry-num": 3},
    "algorithm": {
        **CODE,
        "parameters": {"epochs": 90, "lr": 0.1, "fast": True},
        "inputs": {"data_url": "obs://b/in/"},
        "outputs": {"train_url": "obs://b/out/"},
        "environments": {"NCCL_DEBUG": "INFO", "SECRET": SecretText("x", "${var.token}")},
    },
    "spec": {
        "resource": {"flavor_id": "modelarts.p3.large.public", "node_count": 2},
        "volumes": [{"nfs": {"nfs_server_path": "h:/", "local_path": "/mnt/a"}}],
        "auto_stop": {"time_unit": "HOURS", "duration": 24},
        "schedule_policy": {"priority": 3},
        "notification": {"topic_urn": "urn", "events": ["JobFailed"]},
    },
}


def digest(entry: dict[str, Any], rerun: str | None = None) -> str:
    body = create_body(desugar(entry))
    return digest_of(covered_by(CURRENT, body, rerun))


def test_released_digest_never_changes() -> None:
    """A failure here means that an upgrade would replace every running job: use a new letter."""
    assert digest(an_entry()) == "b3254f1e5b8e2"
    assert digest(FULL) == "b78dc5a6c1b4a"
    assert digest(FULL, rerun="2026-11-21") == "b1004841e593d"


@pytest.mark.parametrize(
    "changed",
    [
        {"spec__schedule_policy": {"priority": 2, "preemptible": True}},
        {"spec__notification": {"topic_urn": "other", "events": ["JobCompleted"]}},
        {"endpoints": {"ssh": {"key_pair_names": ["me"]}}},
        {"kind": "job", "annotations": {}, "algorithm__command": "", "algorithm__code_dir": "s3://b/code/"},
        {"algorithm__local_code_dir": "/home/ma-user/modelarts/user-job-dir"},
        {"spec__log_export_path": {"obs_url": ""}},
    ],
)
def test_mutable_field_or_default_changes_no_digest(changed: dict[str, Any]) -> None:
    assert digest(an_entry(**changed)) == digest(an_entry())


@pytest.mark.parametrize(
    "changed",
    [
        {"kind": "mrs_job"},
        {"annotations": {"tensorboard/enable": "true"}},
        {"algorithm__code_dir": "obs://b/code2/"},
        {"algorithm__parameters": {"lr": 0.2}},
        {"algorithm__parameters": {"lr": 0.1, "epochs": 1}},
        {"algorithm__environments": {"A": "1"}},
        {"spec__resource": {"flavor_id": "modelarts.vm.cpu.2u", "node_count": 2}},
        {"spec__auto_stop": {"time_unit": "HOURS", "duration": 1}},
        {"spec__runtime_type": "debug"},
        {"raw": {"spec": {"brand_new": True}}},
    ],
)
def test_immutable_field_changes_the_digest(changed: dict[str, Any]) -> None:
    assert digest(an_entry(**changed)) != digest(an_entry())


def test_duration_in_any_spelling_has_the_same_digest() -> None:
    def with_period(period: object) -> str:
        outputs = {"algorithm": {"outputs": {"o": {"period": period}}}}
        return digest(an_entry(algorithm__outputs={"o": "obs://b/o/"}, raw=outputs))

    assert with_period("30s") == with_period("30") == with_period(30)
    assert with_period("31s") != with_period(30)
    assert digest(an_entry(algorithm__parameters={"t": "30s"})) != digest(
        an_entry(algorithm__parameters={"t": "30"})
    )


def test_rotated_secret_value_changes_no_digest_but_another_name_does() -> None:
    def with_secret(value: str, reference: str) -> str:
        return digest(an_entry(algorithm__environments={"T": SecretText(value, reference)}))

    assert with_secret("a", "${var.t}") == with_secret("b", "${var.t}")
    assert with_secret("a", "${var.t}") != with_secret("a", "${var.u}")


@given(st.randoms(use_true_random=False))
def test_order_of_keys_and_named_lists_changes_no_digest(random: Any) -> None:
    def shuffled(value: Any) -> Any:
        if isinstance(value, dict):
            items = [(k, shuffled(v)) for k, v in value.items()]
            random.shuffle(items)
            return dict(items)
        return value

    entry = shuffled(FULL)
    parameters = [{"name": k, "value": v} for k, v in FULL["algorithm"]["parameters"].items()]
    random.shuffle(parameters)
    entry["algorithm"]["parameters"] = parameters
    assert digest(entry) == digest(FULL)


def test_canonical_form_is_its_own_canonical_form_and_plain_json() -> None:
    form = canonical(manifest_form(create_body(desugar(FULL))))
    json.dumps(form)
    immutable = immutable_part(form)
    for path in mutable_paths():
        place: Any = immutable
        for name in path[:-1]:
            place = place.get(name, {})
        assert path[-1] not in place


def test_digest_with_an_unknown_version_letter_is_not_known() -> None:
    assert is_known("a000000000000")
    assert not is_known("z000000000000")
    assert not is_known("")


# --- the body


def test_create_body_has_the_structure_of_the_service() -> None:
    body = with_identity(create_body(desugar(FULL)), name="n", workspace_id="0", description="d")
    assert body["metadata"] == {
        "annotations": {"fault-tolerance/job-retry-num": "3"},
        "name": "n",
        "workspace_id": "0",
        "description": "d",
    }
    assert body["algorithm"]["parameters"] == [
        {"name": "epochs", "value": "90"},
        {"name": "lr", "value": "0.1"},
        {"name": "fast", "value": "true"},
    ]
    assert body["algorithm"]["inputs"] == [
        {"name": "data_url", "remote": {"obs": {"obs_url": "obs://b/in/"}}}
    ]
    assert json.loads(json.dumps(body))["algorithm"]["environments"]["SECRET"] == "x"


def test_sensitive_parameters_and_environments_are_represented_by_name() -> None:
    entry = an_entry(
        algorithm__parameters={"key": {"value": 12345, "sensitive": True}},
        algorithm__environments={"T": {"value": "hidden", "sensitive": True}, "U": "seen"},
    )
    body = create_body(desugar(entry))
    [parameter] = body["algorithm"]["parameters"]
    assert parameter == {"name": "key", "value": "12345"}
    assert repr(parameter["value"]) == "SecretText('${parameter.key}')"
    assert repr(body["algorithm"]["environments"]["T"]) == "SecretText('${environment.T}')"
    assert "hidden" not in repr(body)


def test_raw_is_merged_last_and_into_named_lists_by_name() -> None:
    raw = {
        "spec": {"resource": {"node_count": 4}, "new": {"a": 1}},
        "algorithm": {"parameters": {"lr": {"unit": "x"}}},
    }
    body = create_body(desugar(an_entry(raw=raw)))
    assert body["spec"]["resource"] == {"flavor_id": "modelarts.vm.cpu.2u", "node_count": 4}
    assert body["spec"]["new"] == {"a": 1}
    assert body["algorithm"]["parameters"] == [{"name": "lr", "value": "0.1", "unit": "x"}]
