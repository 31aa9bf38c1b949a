"""Damaged manifests: odd values at every path, inserted bytes and tokens, odd encodings."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

Path = tuple[str | int, ...]

#: The value of a parameter marked as sensitive in place, and its path.
MARKED, MARKED_AT = "hidden-parameter", ("jobs", "train", "algorithm", "parameters", "key")

GOOD: dict[str, Any] = {
    "apiVersion": "reconciler/v1",
    "stack": "vision",
    "target": "local",
    "targets": {
        "local": {
            "kind": "local",
            "variables": {"bucket": "${var.team}-data", "lr": 0.2},
            "defaults": {"spec": {"resource": {"node_count": 1}}, "lifecycle": {"on_failure": None}},
        },
        "prod": {
            "kind": "modelarts", "region": "cn-north-4", "project_id": "${env.PROJECT}",
            "workspace_id": "0", "cloud": "huawei", "profile": "basic",
        },
        "private": {"kind": "modelarts", "endpoint": "http://127.0.0.1:1", "project_id": "p"},
    },
    "variables": {
        "team": {"type": "string", "default": "vision", "allowed": ["vision", "speech"]},
        "bucket": {"default": "vision-data", "description": "where the data are"},
        "token": {"env": "TOKEN", "sensitive": True},
        "lr": {"default": 0.1},
        "parameters": {"default": {"epochs": 3}},
    },
    "limits": {"terminations": 5, "terminations_percent": 30, "lost_time": "1h", "lost_node_hours": 24},
    "defaults": {"algorithm": {"parameters": {"seed": "1e-5"}}, "lifecycle": {"on_failure": "retry"}},
    "templates": {
        "base": {"spec": {"resource": {"flavor_id": "modelarts.vm.cpu.2u"}, "auto_stop": None}},
        "gpu": {"extends": "base", "algorithm": {"parameters": {"batch": 64}}},
    },
    "jobs": {
        "sweep": {
            "extends": ["gpu", "base"],
            "matrix": {
                "lr": [0.3, "${var.lr}"],
                "batch": [64, 128],
                "include": [{"lr": 0.5, "batch": 32}],
                "exclude": [{"lr": 0.3, "batch": 128}],
            },
            "name": "s-${matrix.lr}-${matrix.batch}",
            "needs": ["train"],
            "algorithm": {
                "id": "0a1b2c3d-0000-4000-8000-000000000000",
                "parameters": {"lr": "${matrix.lr}", "batch": "${matrix.batch}", "seed": None},
                "inputs": {"data": "${jobs.train.outputs.train_url}"},
            },
        },
        "train": {
            "description": "nightly, ${job.key}",
            "annotations": {"team": "vision"},
            "algorithm": {
                "code_dir": "obs://${var.bucket}/code/",
                "boot_file": "obs://${var.bucket}/code/train.py",
                "engine": {"engine_id": "pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64"},
                "parameters": {"lr": "${var.lr}", "key": {"value": MARKED, "sensitive": True}},
                "inputs": [{"name": "data_url", "remote": {"obs": {"obs_url": "obs://b/in/"}}}],
                "outputs": {"train_url": "obs://${var.bucket}/out/"},
                "environments": {"HF_TOKEN": "Bearer ${var.token}"},
            },
            "spec": {
                "resource": {"flavor_id": "modelarts.vm.cpu.2u", "node_count": 1},
                "schedule_policy": {"priority": 2},
                "auto_stop": {"time_unit": "HOURS", "duration": 48},
                "volumes": [{"nfs": {"nfs_server_path": "h:/x", "local_path": "/mnt", "read_only": False}}],
            },
            "endpoints": {"ssh": {"key_pair_names": ["k"]}},
            "lifecycle": {"max_retries": 2, "retry_delay": "2m", "protect": False, "rerun": "2026-11-21"},
            "raw": {"spec": {"brand_new": [1, 0.5, "${var.lr}"]}},
        },
        "evaluate": {
            "needs": ["train"], "formerly": "eval",
            "algorithm": {"id": "0a1b2c3d-0000-4000-8000-000000000000", "parameters": "${var.parameters}"},
            "spec": {"resource": {"flavor_id": "modelarts.vm.cpu.2u"}},
        },
        "gone": {"state": "absent"},
    },
}  # fmt: skip

#: YAML to replace a value.
ODD: dict[str, str] = {
    "nothing": "null",
    "true": "true",
    "zero": "0",
    "minus": "-1",
    "float": "1.5",
    "empty": '""',
    "list": "[]",
    "mapping": "{}",
    "nested": "[[[{a: [{}]}]]]",
    "mapping of null": "{a: null}",
    "list of null": "[null]",
    "inf": ".inf",
    "minus inf": "-.INF",
    "nan": ".nan",
    "1e400": "1e400",
    "tiny": "1e-400",
    "400 digits": "9" * 400,
    "minus 5000 digits": "-" + "9" * 5000,
    "64 bits": str(2**63),
    "65 bits": str(2**64),
    "hex": "0x" + "f" * 400,
    "NUL": r'"a\0b"',
    "surrogate": r'"\ud800"',
    "controls": r'"\e[31m\a\u202e\u200b"',
    "tag character": '"\U000e0041"',
    "line breaks": r'"a\n::error::b\r\u2028"',
    "long": "x" * 100_000,
    "spaces": '"   "',
    "tag": "!!int x",
    "python": "!!python/object:os.system {}",
    "binary": "!!binary aGk=",
    "alias": "*nowhere",
    "anchor": "&a [*a]",
    "merge": "{<<: [1]}",
    "open": "${",
    "no name": "${}",
    "unknown": "'${var.buckett}'",
    "credential": "'${env.OS_PASSWORD}'",
    "secret": "'${var.token}'",
    "secret in text": "'x ${var.token} y'",
    "job": "'${job.key}'",
    "mapping variable": "'${var.parameters}'",
    "matrix": "'${matrix.lr}'",
    "output": "'${jobs.train.outputs.train_url}'",
    "own output": "'${jobs.evaluate.outputs.x}'",
    "no output": "'${jobs.}'",
    "cycle of variables": "'${var.bucket}${var.team}'",
    "axes": "{a: [1, 2], b: [x, y]}",
    "templates": "[gpu, base, gpu, none]",
    "url": "'https://u:p@h/'",
    "path": "'../../../../etc/passwd'",
    "date": "2026-11-21",
    "sexagesimal": "1:30:00",
    "duration": "99999999999d",
    "emoji": "\U0001f469‍\U0001f52c",
    "deep": "[" * 90 + "]" * 90,
    "deeper": "[" * 200 + "]" * 200,
    "many": "[" + "1, " * 5000 + "1]",
}

#: Insertions into the text of a manifest.
TOKENS = (
    *"{}[]:,-?|>#%&*!'\"~@` \t\n\r\0\u2028\ufdd0é",
    *("<<: ", "&a ", "*a", "!!int ", "!x ", ": ", "- ", "---\n", "...\n", "%YAML 1.1\n", "\n  ", "\r", "\t"),
    *("matrix:", "extends: gpu", "templates:", "${matrix.lr}", "${jobs.train.outputs.train_url}"),
    *("\x85", "\u2029", "\u202e", "\u2066", "\u061c", "\x0b", "\x0c", "\n::error::x", "##[error]"),
    *("##vso[x]", "# "),
    *("${env.HUAWEICLOUD_SDK_SK}", "notify: [{url: 'syslog://'}]", "\n::add-mask::a\n"),
    *("${", "$${", "${var.token}", "${env.OS_PASSWORD}", "${job.key}", "null", ".inf", "9" * 400, "obs://"),
    *("sensitive: true", "stack: other", "jobs:", "raw:", "\ufeff", "\ud800", "\U000e0001", "\\0", "\\ud800"),
)
ENCODINGS: dict[str, Callable[[str], bytes]] = {
    "utf-16": lambda text: text.encode("utf-16"),
    "utf-16 without mark": lambda text: text.encode("utf-16-be"),
    "utf-32": lambda text: text.encode("utf-32"),
    "byte order mark": lambda text: text.encode("utf-8-sig"),
    "two marks": lambda text: b"\xef\xbb\xbf" + text.encode("utf-8-sig"),
    "latin-1": lambda text: text.replace("nightly", "nächtlich").encode("latin-1"),
    "carriage returns": lambda text: text.replace("\n", "\r").encode(),
    "dos": lambda text: text.replace("\n", "\r\n").encode(),
    "tabs": lambda text: text.replace("  ", "\t").encode(),
    "cut": lambda text: text.encode()[: len(text) // 2],
    "twice": lambda text: (text + text).encode(),
    "documents": lambda text: f"{text}---\n{text}".encode(),
    "nothing": lambda text: b"",
    "NULs": lambda text: b"\0" * 100,
    "no end": lambda text: (text + "x: [").encode(),
    "anchors": lambda text: (
        text
        + "x0: &x0 [1,2,3,4,5,6,7,8,9]\n"
        + "".join(f"x{n}: &x{n} [{','.join([f'*x{n - 1}'] * 9)}]\n" for n in range(1, 12))
    ).encode(),
}


def paths_of(tree: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the path of every value below the root."""
    for step, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        yield (*path, step)
        if isinstance(value, dict | list):
            yield from paths_of(value, (*path, step))


def text_of(tree: Any, indent: int = 0) -> str:
    """Return a tree as YAML, in block style at the top, so that lines can be changed."""
    if indent < 3 and isinstance(tree, dict) and tree:
        return "".join(
            f"{'  ' * indent}{json.dumps(name)}:"
            + (
                f"\n{text_of(value, indent + 1)}"
                if isinstance(value, dict) and value and indent < 2
                else f" {_flow(value)}\n"
            )
            for name, value in tree.items()
        )
    return f"{'  ' * indent}{_flow(tree)}\n"


class Odd(str):
    """Verbatim YAML."""


def _flow(value: Any) -> str:
    if isinstance(value, Odd):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)}: {_flow(member)}" for name, member in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return json.dumps(value)


def with_value(path: Path, odd: str) -> str:
    """Return the valid manifest with an odd value at a path."""
    tree = copy.deepcopy(GOOD)
    _parent(tree, path)[path[-1]] = Odd(odd)
    return text_of(tree)


def _parent(tree: Any, path: Path) -> Any:
    for step in path[:-1]:
        tree = tree[step]
    return tree


def damaged(number: int) -> bytes:
    """Return the valid manifest with some damage, reproducible by number."""
    chance = random.Random(number)
    tree = copy.deepcopy(GOOD)
    for _ in range(chance.choice((0, 0, 1, 3))):
        _change_tree(tree, chance)
    text = text_of(tree)
    for _ in range(chance.choice((0, 1, 1, 2, 5))):
        start = chance.randrange(len(text) + 1)
        pieces = "".join(chance.choices(TOKENS, k=chance.randrange(4)))
        text = text[:start] + pieces + text[start + chance.choice((0, 0, 1, 5, 40)) :]
    if chance.random() < 0.2:
        lines = text.splitlines(keepends=True)
        chance.shuffle(lines)
        text = "".join(lines)
    data = text.encode("utf-8", "surrogatepass")
    for _ in range(chance.choice((0, 0, 1, 4))):
        start = chance.randrange(len(data) + 1)
        data = data[:start] + bytes(chance.choices(range(256), k=chance.randrange(3))) + data[start + 1 :]
    return data


def _change_tree(tree: Any, chance: random.Random) -> None:
    path = chance.choice(list(paths_of(tree)))
    parent, last = _parent(tree, path), path[-1]
    match chance.randrange(5):
        case 0:
            parent[last] = Odd(chance.choice(list(ODD.values())))
        case 1:
            del parent[last]
        case 2:  # a value from another path
            parent[last] = copy.deepcopy(
                _parent(GOOD, other := chance.choice(list(paths_of(GOOD))))[other[-1]]
            )
        case 3:
            parent[last] = [parent[last]]
        case _:
            name = f"{last}{chance.choice(TOKENS)}".encode("utf-8", "replace").decode()
            if isinstance(parent, dict):
                parent[name] = parent.pop(last)
