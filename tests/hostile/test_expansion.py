"""A small manifest with a huge expansion is refused quickly, in little memory."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hostile.sizes import RecordProperty, count_tried

#: Limits of CPU time and memory. The worst cases take 4 s and 320 MB.
MOST_S, MOST_KB = 12.0, 400_000

HEAD = "stack: s\ntargets: {local: {kind: local}}\n"
BODY = (
    "algorithm: {code_dir: obs://b/c/, boot_file: obs://b/c/t.py, engine: {engine_id: p}OUTPUTS}, "
    "spec: {resource: {flavor_id: g}}"
)
ONES = "[" + "1, " * 1000 + "1]"
KEYS = "[j" + ", j".join(map(str, range(3000))) + "]"


def rows(row: str, *numbers: int) -> str:
    """Repeat the row for each number of the range: `#` is the number, `<` the previous one."""
    return "".join(f"{row}\n".replace("#", str(n)).replace("<", str(n - 1)) for n in range(*numbers))


def variable(value: str) -> str:
    return f"variables: {{v: {{default: {value}}}}}\n"


def doubling(first: str, step: str, count: int, marks: str = "") -> str:
    """Variables that each contain the previous one twice."""
    before = f"  v0: {{{marks}default: {first}}}\n"
    return f"variables:\n{before}" + rows(f"  v#: {{{marks}default: {step}}}", 1, count)


def jobs(count: int, more: str, outputs: str = "") -> str:
    return "jobs:\n" + rows(f"  j#: {{{BODY.replace('OUTPUTS', outputs)}, {more}}}", count)


TEXT = doubling("x" * 100, "'${var.v<}${var.v<}'", 16)
SWELLING = {
    "texts of variables": HEAD + doubling("x" * 100, "'${var.v<}${var.v<}'", 30),
    "lists of variables": HEAD + doubling("[x, x]", "['${var.v<}', '${var.v<}']", 30),
    "mappings of variables": HEAD + doubling("{a: 1}", "{a: '${var.v<}', b: '${var.v<}'}", 30),
    "secrets": HEAD + doubling("x" * 100, "'${var.v<}${var.v<}'", 30, "sensitive: true, "),
    "variables of targets": "stack: s\ntarget: t0\n" + doubling("x", "'${var.v<}${var.v<}'", 15)
    + "targets:\n" + rows(f"  t#: {{kind: local, variables: {{v0: '#{'y' * 1000}'}}}}", 300),
    "notifications": HEAD + TEXT + "notify:\n" + rows("  - {url: 'json://h/#${var.v15}'}", 500),
    "texts of jobs": HEAD + TEXT + jobs(1000, "raw: {x: '${var.v12}${job.key}'}"),
    "a megabyte said a thousand times": HEAD + variable("x" * 1_000_000)
    + jobs(1, "raw: {x: '" + "${var.v}" * 1000 + "'}"),
    "lists of jobs": HEAD + variable(ONES) + jobs(2000, "raw: {x: '${var.v}'}"),
    "templates": HEAD + f"templates:\n  t0: {{raw: {{x0: {ONES}}}}}\n"
    + rows(f"  t#: {{extends: t<, raw: {{x#: {ONES}}}}}", 1, 100) + jobs(1000, "extends: t99"),
    "members of sweeps": HEAD + "jobs:\n"
    + rows("  a#: {matrix: {x: &x# [1,2,3,4,5,6,7,8,9,0], y: *x#, z: *x#, w: *x#}, state: absent}", 100),
    "included combinations": HEAD + "jobs:\n  a:\n    matrix:\n      x:\n" + rows("        - #", 9000)
    + "      include:\n" + rows("        - {y#: 1}", 900),
    "axis of long values": HEAD + variable("x" * 1_000_000)
    + "jobs: {a: {matrix: {x: [1,2,3,4,5,6,7,8,9,0], c: ['${var.v}']}, name: 'a-${matrix.x}-${matrix.c}'}}\n",
    "keys that jobs name": HEAD + variable(KEYS)
    + "jobs:\n" + rows("  j#: {state: absent, formerly: '${var.v}', needs: '${var.v}'}", 3000),
    "outputs": HEAD + "variables: {v: {default: 'obs://b/x/'}}\n"
    + jobs(28, "state: present", ", outputs: {o: '${jobs.j<.outputs.o}${jobs.j<.outputs.o}'}")
    .replace("${jobs.j-1.outputs.o}", "${var.v}"),
    "aliases": HEAD + "x0: &x0 [1,2,3,4,5,6,7,8,9]\n" + rows("x#: &x# [*x<,*x<,*x<,*x<,*x<,*x<]", 1, 12),
}  # fmt: skip

LONG = {
    "expressions that are not closed": HEAD + jobs(1, "raw: {x: '" + "${var." * 200_000 + "'}"),
    "a password": HEAD + "jobs: {a: {descriptio: '" + "db://u:" * 200_000 + "@'}}\n",
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_megabyte_of_text_is_refused_quickly_in_little_memory(
    tmp_path: Path, text: str, record_property: RecordProperty
) -> None:
    assert "invalid expression" in (error := refused_soon(tmp_path, text)) or "unknown field" in error
    count_tried(record_property, "damaged manifests", 1)


@pytest.mark.parametrize("text", SWELLING.values(), ids=SWELLING)
def test_expanding_manifest_is_refused_quickly_in_little_memory(
    tmp_path: Path, text: str, record_property: RecordProperty
) -> None:
    text = refused_soon(tmp_path, text)
    assert re.search("MB in this manifest|more than|characters is too long to name", text), text[:2000]
    count_tried(record_property, "damaged manifests", 1)


#: Runs a command, and prints its exit code and resources. A process begins with the memory of the one that
#: started it, which for the tests is much.
_MEASURED = """\
import os, sys
to_stderr = [(os.POSIX_SPAWN_DUP2, 2, 1)]
process = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=to_stderr)
_, status, used = os.wait4(process, 0)
print(os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, used.ru_maxrss)
"""


def refused_soon(directory: Path, text: str) -> str:
    """Return the error of an invalid manifest, checked against the limits."""
    (directory / "m.yaml").write_text(text)
    program = [sys.executable, "-m", "reconciler", "validate", str(directory)]
    command = [sys.executable, "-S", "-c", _MEASURED, *program]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    code, seconds, kilobytes = done.stdout.split()
    assert code == "65", done.stderr[:2000]
    assert float(seconds) < MOST_S
    assert int(kilobytes) < MOST_KB
    assert len(done.stderr) < 500_000
    return done.stderr
