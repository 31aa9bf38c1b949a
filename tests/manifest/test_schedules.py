"""docs/manifest.md, "Schedules": what may be written, and what is said of what may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.errors import ManifestInvalid, Severity
from reconciler.manifest.load import LoadedStack, load

MANIFEST = """\
stack: nightly
targets: {local: {kind: local}}
defaults:
  algorithm: {code_dir: obs://b/code/, boot_file: obs://b/code/train.py, engine: {engine_id: pytorch}}
  spec: {resource: {flavor_id: modelarts.vm.cpu.2u}}
  lifecycle: DEFAULTS
jobs:
  a:
    lifecycle: LIFECYCLE
"""


def read(tmp_path: Path, lifecycle: str, defaults: str = "{}") -> LoadedStack:
    text = MANIFEST.replace("LIFECYCLE", lifecycle).replace("DEFAULTS", defaults)
    (tmp_path / "jobs.yaml").write_text(text, encoding="utf-8")
    return load([tmp_path], environ={})


@pytest.mark.parametrize(
    "cron",
    [
        "0 2 * * *",
        "*/5 0-6,22 1,15 JAN-MAR mon-fri",
        "0 0 L * *",
        "0 0 LW * *",
        "0 0 * * FRI#2",
        "0 0 * * 5L",
        "0 0 29 2 *",
        "0 0 31 2 MON",
        "0 0 * * 7",
    ],
)
def test_schedule_is_taken_as_it_stands(cron: str, tmp_path: Path) -> None:
    job = read(tmp_path, f'{{schedule: "{cron}"}}').stack.jobs["a"]
    assert job.schedule is not None
    assert (job.schedule.expression, job.schedule.timezone) == (cron, "UTC")


@pytest.mark.parametrize(
    ("cron", "why"),
    [("0 " * 200, "must have at most 256 characters"), ("9" * 200 + " 0 1 * *", "is not a valid minute")],
)
def test_long_schedule_is_refused(cron: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(ManifestInvalid) as invalid:
        read(tmp_path, f'{{schedule: "{cron}"}}')
    [problem] = invalid.value.diagnostics
    assert why in problem.why


def test_options_of_a_schedule_that_is_not_there_are_a_warning_where_the_job_says_them(
    tmp_path: Path,
) -> None:
    warnings = read(tmp_path, "{timezone: Europe/Berlin, overlap: replace}").stack.warnings
    assert {(one.what, one.path, one.severity) for one in warnings} == {
        ("option without effect", "jobs.a.lifecycle.timezone", Severity.WARNING),
        ("option without effect", "jobs.a.lifecycle.overlap", Severity.WARNING),
    }
    assert read(tmp_path, "{}", "{timezone: Europe/Berlin, overlap: replace}").stack.warnings == ()
    assert read(tmp_path, '{schedule: "0 2 * * *", timezone: Europe/Berlin}').stack.warnings == ()


def test_schedule_is_no_part_of_the_digest_nor_of_the_body(tmp_path: Path) -> None:
    plain = read(tmp_path, "{}").stack.jobs["a"]
    scheduled = read(
        tmp_path, '{schedule: "0 2 * * *", timezone: Asia/Kolkata, overlap: replace}'
    ).stack.jobs["a"]
    assert (scheduled.digest, scheduled.body) == (plain.digest, plain.body)
