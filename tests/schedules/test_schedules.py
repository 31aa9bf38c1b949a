"""The schedules of `examples/scheduled`, each checked as far as a machine without a cluster can.

Command lines are parsed by the commands themselves, so that a removed option is found.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest
from cronsim import CronSim
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from reconciler.cli.main import COMMANDS, LazyGroup, cli, run
from reconciler.errors import ExitCode
from tests.ci.shell import ROOT

EXAMPLE = ROOT / "examples/scheduled"
UNITS = sorted((EXAMPLE / "systemd").iterdir())
SCRIPT = EXAMPLE / "cron/reconciler-drift"
PROGRAM = "/opt/reconciler/bin/reconciler"
_yaml = YAML(typ="safe", pure=True)
OBJECTS: dict[str, Any] = {
    path.stem: _yaml.load(path) for path in sorted((EXAMPLE / "kubernetes").glob("*.yaml"))
}
TEMPLATES = {
    "cronjob": OBJECTS["cronjob"]["spec"]["jobTemplate"]["spec"]["template"],
    "watch": OBJECTS["watch"]["spec"]["template"],
}
each_pod = pytest.mark.parametrize("name", TEMPLATES)


# ── calls ──────────────────────────────────────────────────────────────────────────────────────────


class Call(NamedTuple):
    """A command line and its location."""

    place: str
    command: str
    arguments: tuple[str, ...]


GUIDES = [ROOT / "docs/guides" / name for name in ("nightly.md", "drift-alerts.md")]
_CALL = re.compile(rf"(?:^|[\s(/`])reconciler ((?:{'|'.join(COMMANDS)})\b[^|>&)`#\n]*)")


def calls() -> Iterator[Call]:
    """Yield every call of the program in the example files and on its page."""
    for path in (*UNITS, *sorted((EXAMPLE / "cron").iterdir()), *GUIDES):
        text = path.read_text(encoding="utf-8").replace("\\\n", " ")
        lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
        if path.suffix == ".service":
            lines = [line.replace("%%", "%") for line in lines if line.startswith("ExecStart=")]
        for found in _CALL.finditer("\n".join(lines)):
            words = re.sub(r"\s2$", "", found[1].rstrip())
            command, *arguments = shlex.split(words)
            yield Call(path.name, command, tuple(arguments))
    for name, template in TEMPLATES.items():
        for container in template["spec"]["containers"]:
            command, *arguments = container["args"]
            yield Call(f"kubernetes/{name}.yaml", command, tuple(arguments))


CALLS = list(calls())


def test_every_schedule_calls_the_program() -> None:
    assert {call.place for call in CALLS} >= {
        *("crontab", "reconciler-drift", "reconciler-drift.service", "reconciler-watch.service"),
        *("kubernetes/cronjob.yaml", "kubernetes/watch.yaml", "nightly.md", "drift-alerts.md"),
    }
    assert {call.command for call in CALLS} >= {"drift", "watch", "apply"}


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.place}-{call.command}")
def test_scheduled_command_line_is_valid(call: Call, tmp_path: Path) -> None:
    """Check options and their values; paths are those of a server."""
    program = click.Context(cli, info_name="reconciler", **cli.context_settings)
    command = LazyGroup().get_command(program, call.command)
    assert command is not None, f"no such command: {call.command}"
    (tmp_path / "jobs").mkdir()
    arguments = [
        str(tmp_path / "jobs") if word.startswith(("/", "$")) or word.endswith("/") else word
        for word in call.arguments
    ]
    command.make_context(call.command, arguments, parent=program)


@pytest.mark.parametrize("call", [call for call in CALLS if call.command == "apply"], ids=lambda c: c.place)
def test_scheduled_commands_never_prompt(call: Call) -> None:
    assert "--yes" in call.arguments
    assert not {"--force", "--allow"} & set(call.arguments)


# ── cron ───────────────────────────────────────────────────────────────────────────────────────────


def crontab() -> list[str]:
    lines = (EXAMPLE / "cron/crontab").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#") and not re.match(r"\w+=", line)]


def test_times_of_the_crontab_are_valid() -> None:
    assert len(crontab()) == 2
    for line in crontab():
        next(CronSim(" ".join(line.split()[:5]), datetime(2026, 11, 22, tzinfo=UTC)))
        # A percent sign ends a cron command.
        assert "%" not in line


def reported(tmp_path: Path, code: int, *, locked: bool = False) -> subprocess.CompletedProcess[str]:
    """Return output and exit code of the script if the check ends like this."""
    directory = tmp_path / "bin"
    directory.mkdir()
    program = directory / "reconciler"
    program.write_text(f'#!/bin/sh\necho "called: $*"\necho "said" >&2\nexit {code}\n', encoding="utf-8")
    program.chmod(0o755)
    environ = {**os.environ, "PATH": f"{directory}:{os.environ['PATH']}", "TMPDIR": str(tmp_path)}
    command = [str(SCRIPT), "/srv/jobs", "prod"]
    if locked:
        lock = tmp_path / f"reconciler-drift-{os.getuid()}.lock"
        command = ["flock", str(lock), *command]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=20)


@pytest.mark.skipif(shutil.which("flock") is None, reason="flock is not installed")
@pytest.mark.parametrize("code", [ExitCode.DONE, ExitCode.CHANGES, ExitCode.UNAUTHORIZED, ExitCode.UNKNOWN])
def test_cron_mails_every_check_with_findings(code: ExitCode, tmp_path: Path) -> None:
    done = reported(tmp_path, code)
    assert done.returncode == code
    if code == ExitCode.DONE:
        assert done.stdout + done.stderr == ""
    else:
        first, _, rest = done.stdout.partition("\n\n")
        assert "/srv/jobs on prod" in first
        assert re.fullmatch(r"called: drift /srv/jobs --target prod --since-last\nsaid\n", rest)
        assert ("Drift in" in first) is (code in (ExitCode.CHANGES, ExitCode.UNKNOWN))
        assert ("is unknown" in first) is (code == ExitCode.UNKNOWN)


@pytest.mark.skipif(shutil.which("flock") is None, reason="flock is not installed")
def test_overlapping_check_is_reported(tmp_path: Path) -> None:
    done = reported(tmp_path, 0, locked=True)
    assert done.returncode == 75
    assert done.stdout.startswith("No check of /srv/jobs on prod: the one before still runs.")


# ── systemd ────────────────────────────────────────────────────────────────────────────────────────

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)


@pytest.fixture
def units(tmp_path: Path) -> list[str]:
    """The units, with an existing program."""
    for path in UNITS:
        text = path.read_text(encoding="utf-8").replace(PROGRAM, "/bin/true")
        (tmp_path / path.name).write_text(text.replace("/usr/bin/logger", "/bin/true"), encoding="utf-8")
    return [str(tmp_path / path.name) for path in UNITS]


def settings(name: str) -> dict[str, str]:
    """Return the last word of each setting of a unit."""
    lines = (EXAMPLE / "systemd" / name).read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if re.match(r"\w+=", line))


@needs_systemd
def test_systemd_finds_nothing_wrong(units: list[str]) -> None:
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["reconciler-drift.service", "reconciler-watch.service"])
def test_credentials_come_from_a_file_and_no_user_is_shared(name: str) -> None:
    found = settings(name)
    assert found["EnvironmentFile"] == "/etc/reconciler/credentials"
    assert (found["DynamicUser"], found["ProtectSystem"]) == ("yes", "strict")
    assert not re.search(
        r"(?m)^Environment=.*(SECRET|PASSWORD|TOKEN|_SK|_AK)", (EXAMPLE / "systemd" / name).read_text()
    )


# ── Kubernetes ─────────────────────────────────────────────────────────────────────────────────────


def validator(kind: str) -> Draft202012Validator:
    schema = json.loads((Path(__file__).parent / "schemas/kubernetes-1.34.json").read_text(encoding="utf-8"))
    group = {"CronJob": "batch", "Deployment": "apps"}[kind]
    return Draft202012Validator({**schema, "$ref": f"#/$defs/io.k8s.api.{group}.v1.{kind}"})


@pytest.mark.parametrize("name", OBJECTS)
def test_kubernetes_object_is_valid_by_the_published_schema(name: str) -> None:
    there = OBJECTS[name]
    validator(there["kind"]).validate(there)
    assert not validator(there["kind"]).is_valid({**there, "spec": {**there["spec"], "misspelt": "Forbid"}})


@each_pod
def test_credentials_come_from_a_kubernetes_secret(name: str) -> None:
    (container,) = TEMPLATES[name]["spec"]["containers"]
    assert {one["name"] for one in container["env"]} >= {"HUAWEICLOUD_SDK_AK", "HUAWEICLOUD_SDK_SK"}
    assert all(
        set(one) == {"name", "valueFrom"} and set(one["valueFrom"]) == {"secretKeyRef"}
        for one in container["env"]
    )


def test_manifest_is_found_in_a_mounted_config_map(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in a volume: links to links, below a hidden directory replaced as a whole."""
    hidden = tmp_path / "..2026_11_22"
    shutil.copytree(EXAMPLE / "jobs", hidden, ignore=shutil.ignore_patterns(".*"))
    (tmp_path / "..data").symlink_to(hidden.name)
    for path in hidden.iterdir():
        (tmp_path / path.name).symlink_to(f"..data/{path.name}")
    assert run(cli, ["validate", str(tmp_path), "--target", "local"]) == ExitCode.DONE
    assert "stack scheduled" in capsys.readouterr().out


# ── the image ──────────────────────────────────────────────────────────────────────────────────────

DOCKERFILE = ROOT / "Dockerfile"


def instructions() -> list[tuple[str, str]]:
    lines = DOCKERFILE.read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    return [tuple(line.split(maxsplit=1)) for line in lines if line and not line.startswith("#")]  # type: ignore[misc]


def test_image_contains_no_secret() -> None:
    assert not re.search(r"(?i)(secret|token|password|_sk|_ak)\s*=", DOCKERFILE.read_text(encoding="utf-8"))
    assert {name for name, _ in instructions()} == {
        *("ARG", "FROM", "LABEL", "WORKDIR", "COPY", "RUN", "ENV", "USER", "ENTRYPOINT", "CMD")
    }


def test_image_is_rootless_and_copies_only_from_the_context() -> None:
    image = instructions()[[name for name, _ in instructions()].index("LABEL") :]
    assert dict(image)["USER"].partition(":")[0].isdigit()
    assert dict(image)["USER"] != "0:0"
    copied = [file for name, files in instructions() if name == "COPY" for file in files.split()[:-1]]
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    files = {one for one in copied if not one.startswith(("--from", "/opt/"))}
    assert {f"!{one}" for one in files} == {line for line in ignored if line.startswith("!")}
    assert [one for one in sorted(files) if not (ROOT / one).exists()] == []
