"""One stack, written in several ways: the same plan byte for byte; and a sweep that grows by one value.

What may differ is what says how and where it is written: `manifest_digest`, which covers the bytes of the
files, and `source`. `created_at` is the time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from tests.cli.conftest import Reconciler, write

HEAD = "stack: vision\ntargets: {here: {kind: local}}\nvariables: {bucket: {default: b}}\n"
DEFAULTS = "defaults: {spec: {resource: {flavor_id: modelarts.vm.cpu.2u, node_count: 2}}}\n"
CODE = (
    "code_dir: obs://b/code/, boot_file: obs://b/code/train.py, "
    "engine: {engine_id: pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64}"
)
PREPARE = "  prepare: {{algorithm: {{{code}, outputs: {outputs}}}}}\n"
TRAIN = (
    "  train: {{description: 'the model', algorithm: {{{code}, parameters: {parameters}, inputs: {inputs}, "
    "environments: {environments}}}, lifecycle: {{protect: true}}}}\n"
)
SWEEP = (
    "  sweep: {{matrix: {{lr: [0.10, 1e-2]}}, needs: prepare, algorithm: {{{code}, parameters: {swept}}}}}\n"
)

SUGAR = {
    "outputs": "{data: 'obs://${var.bucket}/data/'}",
    "parameters": "{epochs: 0123, lr: 1.10}",
    "inputs": "{data: '${jobs.prepare.outputs.data}'}",
    "environments": "{A: 1, B: x}",
    "swept": "{lr: '${matrix.lr}'}",
}
LISTS = {
    "outputs": "[{name: data, remote: {obs: {obs_url: 'obs://${var.bucket}/data/'}}}]",
    "parameters": "[{name: epochs, value: 0123}, {value: 1.10, name: lr}]",
    "inputs": "[{name: data, remote: {obs: {obs_url: '${jobs.prepare.outputs.data}'}}}]",
    "environments": "[{name: A, value: 1}, {name: B, value: x}]",
    "swept": "[{name: lr, value: '${matrix.lr}'}]",
}


def jobs(form: Mapping[str, str]) -> tuple[str, str, str]:
    prepare, train, sweep = (one.format(code=CODE, **form) for one in (PREPARE, TRAIN, SWEEP))
    return prepare, train, sweep


def templates() -> str:
    """Everything through templates: overridden, removed and inherited in several steps."""
    return f"""\
templates:
  base: {{algorithm: {{{CODE}, parameters: {{epochs: 1, gone: 1}}}}}}
  other:
    extends: base
    algorithm: {{parameters: [{{name: gone, value: null}}, {{name: epochs, value: 0123}}]}}
  model:
    extends: other
    description: overridden
    lifecycle: {{protect: true}}
    algorithm: {{parameters: {{lr: 1.10}}, environments: {{A: 1, Z: 1}}}}
jobs:
  prepare: {{extends: base, algorithm: {{parameters: null, outputs: {SUGAR["outputs"]}}}}}
  train:
    extends: [base, model]
    description: the model
    algorithm: {{environments: [{{name: Z, value: null}}, {{B: x}}], inputs: {SUGAR["inputs"]}}}
  sweep:
    extends: base
    matrix: {{lr: [0.10, 1e-2]}}
    needs: prepare
    algorithm: {{parameters: {{epochs: null, gone: null, lr: "${{matrix.lr}}"}}}}
"""


ONE = "jobs.yaml"
WAYS: dict[str, dict[str, str]] = {
    "mapping sugar": {ONE: HEAD + DEFAULTS + "jobs:\n" + "".join(jobs(SUGAR))},
    "list form": {ONE: HEAD + DEFAULTS + "jobs:\n" + "".join(jobs(LISTS))},
    "templates": {ONE: HEAD + DEFAULTS + templates()},
    "another order": {ONE: "jobs:\n" + "".join(reversed(jobs(SUGAR))) + DEFAULTS + HEAD},
    "five files": {
        "main.yaml": HEAD,
        "shared/defaults.yaml": DEFAULTS,
        **{f"jobs/{n}.yaml": f"jobs:\n{job}" for n, job in enumerate(jobs(SUGAR))},
    },
}


def planned(reconciler: Reconciler, directory: str) -> tuple[str, list[object]]:
    """The document of the plan without how and where it is written, and the bodies that would be sent."""
    said = reconciler.ends(0, "plan", directory, "--json", "--out", f"{directory}.plan")
    document = said.document
    assert re.fullmatch("sha256:[0-9a-f]{64}", document.pop("manifest_digest"))
    del document["created_at"]
    for action in document["actions"]:
        assert set(action.pop("source")) == {"file", "line", "column"}
    saved = json.loads(Path(f"{directory}.plan").read_text(encoding="utf-8"))
    return json.dumps(document), [action.get("desired") for action in saved["actions"]]


def test_same_stack_in_every_form_has_the_same_plan_byte_for_byte(reconciler: Reconciler) -> None:
    plans, texts = {}, {}
    for number, (way, files) in enumerate(WAYS.items()):
        for name, text in files.items():
            write(text, f"way-{number}/{name}")
        plans[way] = planned(reconciler, f"way-{number}")
        texts[way] = reconciler("plan", f"way-{number}").out
    first = plans["mapping sugar"]
    assert json.loads(first[0])["summary"]["create"] == 1
    for way in WAYS:
        assert plans[way] == first, way
        assert texts[way] == texts["mapping sugar"], way


# --- a sweep that grows
