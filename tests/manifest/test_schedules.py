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
    ("cron", "why", "fix"),
    [
        ("61 * * * *", '"61" is not a valid minute, which is 0 to 59', None),
        ("0 24 * * *", '"24" is not a valid hour, which is 0 to 23', None),
        ("0 0 0 * *", '"0" is not a valid day of the month', None),
        ("0 0 * 13 *", '"13" is not a valid month', None),
        ("0 0 * * SUNDAY", '"SUNDAY" is not a valid day of the week', None),
        ("0 0 * * *,", '"*," is not a valid day of the week', None),
        ("*/0 * * * *", '"*/0" is not a valid minute', None),
        ("5-1 * * * *", '"5-1" is not a valid minute', None),
        ("0 0 1", "must have five fields", None),
        ("0 0 0 1 * *", "must have five fields", None),
        ("", "must have five fields", None),
        ("@daily", "must have five fields", 'write "0 0 * * *"'),
        ("0 0 30 2 *", "must come at some time", None),
        ("0 0 31 4,6,9,11 *", "must come at some time", None),
        ("0 0 */28 * MON#2", "must come at some time", None),
        ("0 " * 200, "must have at most 256 characters", None),
        ("9" * 200 + " 0 1 * *", "is not a valid minute", None),
    ],
)
def test_schedule_that_is_none_is_told_with_its_place(
    cron: str, why: str, fix: str | None, tmp_path: Path
) -> None:
    with pytest.raises(ManifestInvalid) as invalid:
        read(tmp_path, f'{{schedule: "{cron}"}}')
    [problem] = invalid.value.diagnostics
    assert (problem.what, problem.path, problem.fix) == ("invalid schedule", "jobs.a.lifecycle.schedule", fix)
    assert why in problem.why
    assert problem.location is not None
    assert (problem.location.line, problem.location.column) == (9, 27)


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("Europe/Berln", 'did you mean "Europe/Berlin"?'),
        ("europe/berlin", 'did you mean "Europe/Berlin"?'),
        ("America/NewYork", 'did you mean "America/New_York"?'),
        ("localtime", None),
        ("right/UTC", None),
        ("../UTC", None),
        ("/etc/localtime", None),
        ("Europe", None),
        ("x" * 300, None),
    ],
)
def test_unknown_time_zone_is_told_with_the_nearest_one(name: str, fix: str | None, tmp_path: Path) -> None:
    with pytest.raises(ManifestInvalid) as invalid:
        read(tmp_path, f'{{schedule: "0 2 * * *", timezone: "{name}"}}')
    [problem] = invalid.value.diagnostics
    assert (problem.what, problem.path) == ("unknown time zone", "jobs.a.lifecycle.timezone")
    if fix is not None:
        assert problem.fix == fix


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
