"""Known secrets are redacted, and probable ones detected; see also tests/hostile.

Source: docs/operations/security.md, "Secrets".
"""

from __future__ import annotations

import json
import pickle

import pytest

from reconciler.core.canonical import walk_rules
from reconciler.core.masking import _name_of
from reconciler.decide.drift_check import Drift, DriftClass
from reconciler.decide.outcome import Outcome, Status
from reconciler.decide.plan import Action
from reconciler.errors import Diagnostic
from reconciler.secrets import (
    Redactor,
    SecretText,
    is_secret_name,
    looks_secret,
    show,
    without_secrets,
)
from tests.builders import a_job, a_stack, seen
from tests.core.test_decision_table import plan_for


def test_secret_is_shown_as_its_source() -> None:
    secret = SecretText("hidden", "${var.t}")
    assert show({"a": [secret, {"b": secret}], "c": 1}) == {"a": ["${var.t}", {"b": "${var.t}"}], "c": 1}
    assert "hidden" not in repr([secret])
    copied = pickle.loads(pickle.dumps(secret))
    assert (copied, copied.reference) == ("hidden", "${var.t}")


# ── values for programs ────────────────────────────────────────────────────────────────────────

SECRET = "hush-hush-9"
REDACT = Redactor([SECRET])
[CREATE] = plan_for(a_stack(a_job(algorithm__environments={"T": SecretText(SECRET, "${var.t}")}))).actions
[TAKEN] = plan_for(a_stack(a_job()), seen(a_job(), job_id=SECRET, description="")).actions


@pytest.mark.parametrize(
    "value",
    [
        CREATE,
        TAKEN,
        Drift(**{"key": "a", "class": DriftClass.UNOWNED}, job=SECRET),
        Outcome(CREATE, Status.FAILED, message=f"it is {SECRET}"),
        Diagnostic("refused", why=f"it is {SECRET}"),
        (f"x {SECRET}", {SECRET: [SECRET]}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_redacted_value_keeps_its_type(value: object) -> None:
    cleaned = without_secrets(value, REDACT)
    assert SECRET in f"{value} {_bodies(value)}"
    assert SECRET not in f"{cleaned} {_bodies(cleaned)}"
    assert type(cleaned) is type(value)


def test_value_without_secret_is_unchanged() -> None:
    [action] = plan_for(a_stack(a_job())).actions
    assert without_secrets(action, REDACT) is action


def test_own_words_are_kept_if_a_secret_has_the_same_letters() -> None:
    assert without_secrets(TAKEN, Redactor(["conflict", "Running"])).action is Action.CONFLICT


def _bodies(value: object) -> str:
    """Return the real value; the repr of a secret hides it."""
    return json.dumps(getattr(value, "desired", None))


# ── probable secrets ──────────────────────────────────────────────────────────────────────────

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N"


def words(text: str) -> list[str]:
    return text.split()


PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----"


def test_secret_name_is_detected() -> None:
    names = words("""
    token TOKEN HF_TOKEN hf-token hf.token hfToken GITHUB_TOKEN_2 token_prod secret CLIENT_SECRET clientSecret
    password DB_PASSWORD dbpassword db_passwd MYSQL_PWD passphrase DB_PASS key API_KEY apikey apiKey APIKey
    WANDB_API_KEY AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY ssh_key encryption-key API_KEYS access_tokens
    IMAGE_REGISTRY_TOKEN OUTPUT_SAS_TOKEN URL_ACCESS_TOKEN registry_token_new
    credential CREDENTIALS gcpCredentials auth BASIC_AUTH authorization OBS_AK OBS_SK jwt session_cookie
    """)
    assert [name for name in names if not is_secret_name(name)] == []
    assert [name for name in names if not looks_secret(name, "hunter2")] == []


def test_name_merely_containing_a_secret_word_is_no_secret_name() -> None:
    names = words("""
    monkey keyboard turkey key_frames keyframes key-points keyPoints num_key_value_heads primary_key sort_key
    label_key tokenizer tokenizer_path max_tokens maxTokens max_new_tokens token_count tokens tokens_per_batch
    pad_token_id eos_token mask_token token_type_ids author authority auth_url OS_AUTH_URL auth_type
    secretary compass passes forward_pass bypass epochs lr skip ask break task NCCL_DEBUG hf_tokenizer
    """)
    assert [name for name in names if is_secret_name(name)] == []
    assert [name for name in names if looks_secret(name, "hunter2")] == []


def test_field_name_of_the_service_is_no_secret_name() -> None:
    for path, _ in walk_rules():
        assert not is_secret_name(_name_of(".".join(path))), path


@pytest.mark.parametrize("value", ["", "true", "False", "no", "none", "null"])
def test_empty_or_boolean_value_is_no_secret_under_a_secret_name(value: str) -> None:
    assert not looks_secret("use_auth_token", value)


@pytest.mark.parametrize(
    "value",
    [
        *words("""
        hf_QWERTYuiopasdfghJKLZXCVbnm12345678 ghp_16C7e42F292c6912E7710c838347Ae178B4a
        github_pat_11ABCDEFG0abcdefghijkl_mnopqrstuvwxyz glpat-ABCdef123456ghijklmn
        sk-proj-abcdefghijklmnopqrstuv xoxb-123456789012-abcdef AKIAIOSFODNN7EXAMPLE
        https://hooks.slack.com/services/T000/B000/XXXX
        postgresql://user:pw@host/db redis://:hunter2@host:6379
        https://host/object?Signature=abcdefgh12345678&x=1
        x9Kd83jsLq02mZpT7vBnR4cW 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b HPUAWVJ3K2QX9LMTB0RZ
        wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY
        """),
        JWT,
        PEM,
        "Bearer abcdefghijklmnop",
        "curl -H 'Authorization: Bearer abcdefghijklmnop' https://host",
        "python train.py --lr 0.1 --hf-token hunter2",
        "python train.py --password=hunter2",
        "API_KEY=hunter2 python train.py",
        "export API_KEY=hunter2; python train.py",
        '{"password": "hunter2"}',
    ],
)
def test_value_of_a_known_token_form_or_long_and_random_is_a_secret(value: str) -> None:
    assert looks_secret("NOTE", value)


@pytest.mark.parametrize(
    "value",
    [
        *words("""
        0.1 20261121 2026-11-21T08:00:00Z 12345678901234567890123456789012
        obs://vision-data/imagenet/2026-11-21/ /vision-data/9f86d081884c7d659a2feaa0c55ad015a3bf4f1b/
        s3://b/x9Kd83jsLq02mZpT7vBnR4cW/ /home/ma-user/modelarts/inputs/data_url_0
        pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64 modelarts.vm.gpu.t4u8
        swr.cn-north-4.myhuaweicloud.com/org/image:1.0
        swr.example.com/org/image@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
        3faf5c03-5c2b-4d6f-9d6a-0a1b2c3d4e5f resnet50-imagenet-lr-0-01-batch-64-seed-1234
        MyVeryLongClassNameForTrainingRuns DistributedDataParallelKwargs2 sparse_categorical_crossentropy
        http://proxy:3128 https://host:8080/path?page=1 urn:smn:cn-north-4:0123456789:topic
        """),
        "python train.py --lr 0.1 --max_tokens 512 --tokenizer bert/base --key_frames 8",
        "python train.py --token $HF_TOKEN --password ${DB_PASSWORD}",
        "torchrun --nproc_per_node=8 train.py --master_addr=$VC_WORKER_HOSTS:6666",
        "ResNet-50, trained nightly on ImageNet-21k with mixed precision",
    ],
)
def test_paths_names_numbers_and_commands_are_no_secrets(value: str) -> None:
    assert not looks_secret("NOTE", value)


@pytest.mark.parametrize("name", ["commit", "GIT_SHA", "image_digest", "run_id", "data_version", "md5"])
def test_long_random_value_of_an_identifier_field_is_no_secret(name: str) -> None:
    assert not looks_secret(name, "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b")
    assert looks_secret(name, "ghp_16C7e42F292c6912E7710c838347Ae178B4a")
