"""A history as text; `UPDATE_GOLDEN=1 pytest` rewrites the files."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.core.past import PastAction, PastRevision, PastRun, PastStep
from reconciler.core.stack import Declared
from reconciler.decide.history import HistoryReport
from reconciler.render import Style, View
from reconciler.render.history import history_text
from tests.builders import NOW
from tests.render.recorded_histories import PROD
from tests.render.test_golden import check

ID = "3faf5c03-aaa1-4cbe-879d-24b05d997347"
DECLARED = Declared(
    immutable={
        "algorithm": {
            "code_dir": "/vision-data/resnet/",
            "parameters": {"lr": {"value": "0.1"}, "epochs": {"value": "90"}},
            "environments": {"HF_TOKEN": "${var.hf_token}"},
        },
        "spec": {"resource": {"flavor_id": "modelarts.vm.gpu.t4u8"}},
    },
    mutable={"spec": {"schedule_policy": {"priority": "2"}}},
    description="ResNet-50, nightly",
    protect=True,
)


def a_run(number: int, **more: Any) -> PastRun:
    begin = {"kind": "apply", "who": "alice", "where": "laptop, process 4711", "command": "apply"}
    digests = {
        "plan_digest": "sha256:" + "1234567890abcdef" * 4,
    }
    return PastRun(**{"id": number, "at_s": NOW + number * 3600, **begin, **digests, **more})


def a_revision(number: int, **more: Any) -> PastRevision:
    name = "resnet50-nightly" + f"-r{number}" * (number > 1)
    known = {"key": "resnet50-nightly", "number": number, "name": name, "job": ID, "digest": "a3f9a2c1b7d4e"}
    return PastRevision(**{**known, "created_at_s": NOW + number * 3600, **more})


KEY = "resnet50-nightly"
SOLD_OUT = (
    "the service rejected the request: the resources that were asked for are sold out for now, "
    "please try again later"
)
RUNS = (
    a_run(
        4, kind="drift", command="drift", ended_at_s=NOW + 14_401.5, result="drift", summary={"missing": 1}
    ),
    a_run(
        3,
        steps=(
            PastStep(KEY, "replace", "update", KEY, ID, NOW, NOW + 0.25, True),
            PastStep(
                "bert-base", "create", "create", "bert-base", None, NOW, NOW + 130.0, False,
                "ModelArts.2815", "the resources are sold out", "req-1",
            ),
            PastStep(KEY, "replace", "terminate", KEY, ID, NOW + 1),
        ),
    ),
    a_run(
        2,
        ended_at_s=NOW + 7_212,
        result="partial",
        actions=(
            PastAction(KEY, "replace", "immutable_changed", "done", job=ID),
            PastAction("bert-base", "create", "not_found", "failed", SOLD_OUT, code="ModelArts.2815"),
            PastAction(
                "lr-sweep-batch-64-lr-0_1", "terminate", "not_in_manifest", "timed_out",
                "is still Terminating",
            ),
            PastAction("lr-sweep-batch-64-lr-0_01", "blocked", "protected", "skipped", "protected"),
        ),
    ),
    a_run(1, who="", where="", plan_digest="", ended_at_s=NOW + 3600.04, result="complete"),
)  # fmt: skip
REVISIONS = (
    a_revision(3, created_at_s=None),
    a_revision(
        2,
        phase_text="Running",
        started_at_s=NOW + 7_300,
        duration_s=118_000.0,
        node_count=8,
        seen_at_s=NOW + 125_300,
        declared=DECLARED,
        phases=(("Creating", NOW + 7_200), ("Pending", NOW + 7_203), ("Running", NOW + 7_400)),
    ),
    a_revision(1, phase_text="Terminated", started_at_s=NOW + 3_700, duration_s=42.0, declared=Declared()),
)


def a_report(**more: Any) -> HistoryReport:
    return HistoryReport("vision", PROD, "sha256:0", "0.1.0", NOW, **more)


@pytest.mark.parametrize(
    ("name", "more", "options"),
    [
        ("history-calls.text", {"runs": RUNS[1:2]}, {"verbose": True}),
        ("history-of-a-key.text", {"runs": RUNS[3:], "revisions": REVISIONS, "key": "resnet50-nightly"}, {}),
        ("history.ansi", {"runs": RUNS, "revisions": REVISIONS}, {"style": Style(colour=True)}),
    ],
)
def test_history_is_as_in_the_golden_file(name: str, more: dict[str, Any], options: dict[str, Any]) -> None:
    text = history_text(a_report(**more), View(**options))
    check(name, text)
