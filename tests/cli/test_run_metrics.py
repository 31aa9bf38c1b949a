"""`-o prometheus=FILE` tells how the run ended: written whole, when it has, and also where it failed."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from reconciler.cli.output import OutputSpec, final_outputs
from reconciler.errors import ExitCode
from tests.cli.conftest import Reconciler, World, manifest, put_finished_job, write

FILE = "metrics.prom"


class Metrics(dict[str, float]):
    """The samples of the file by name, those with a kind or a class as `name action`; labels aside."""

    def __init__(self) -> None:
        super().__init__()
        self.labels: dict[str, str] = {}
        text = Path(FILE).read_text(encoding="utf-8")
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = dict(sample.labels)
                kind = labels.pop("action", labels.pop("class", ""))
                self[f"{sample.name} {kind}".strip()] = sample.value
                self.labels |= labels


@pytest.fixture
def stack() -> None:
    write(manifest("a"))
    put_finished_job()


@pytest.mark.usefixtures("stack")
def test_plan(reconciler: Reconciler) -> None:
    said = reconciler("plan -o", f"prometheus={FILE}")
    assert said.out.startswith("Stack test")
    metrics = Metrics()
    assert metrics.labels == {"stack": "test", "target": "there", "command": "plan"}
    assert metrics["reconciler_run_success"] == metrics["reconciler_plan_actions create"] == 1
    assert metrics["reconciler_plan_actions terminate"] == 0
    assert metrics["reconciler_run_timestamp_seconds"] > 1_700_000_000
    assert 0 < metrics["reconciler_run_duration_seconds"] < 60


@pytest.mark.usefixtures("stack")
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("plan", "--detailed-exitcode"), ExitCode.CHANGES),
        (("drift",), ExitCode.CHANGES),
        (("apply", "--yes"), ExitCode.DONE),
        (("apply",), ExitCode.REFUSED),
    ],
)
def test_changes_and_refusals_are_successes(
    reconciler: Reconciler, arguments: tuple[str, ...], code: ExitCode
) -> None:
    reconciler.ends(code, *arguments, "-o", f"prometheus={FILE}")
    metrics = Metrics()
    assert metrics["reconciler_run_success"] == 1
    assert metrics.labels["command"] == arguments[0]


def test_service_that_cannot_be_reached(reconciler: Reconciler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELARTS_AUTH_TOKEN", "tell-nobody-1")
    write(manifest("a", url="http://127.0.0.1:1"))
    code = reconciler("plan -o", f"prometheus={FILE}").code
    assert code == ExitCode.UNKNOWN
    metrics = Metrics()
    assert metrics["reconciler_run_success"] == 0
    assert metrics.labels == {"stack": "test", "target": "there", "command": "plan"}


def test_wrong_credentials(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELARTS_AUTH_TOKEN", "the-wrong-one")
    world.write("a")
    world.ends(ExitCode.UNAUTHORIZED, "drift -o", f"prometheus={FILE}")
    assert Metrics()["reconciler_run_success"] == 0


@pytest.mark.parametrize(
    ("text", "arguments", "labels"),
    [
        ("stack: test\nnonsense: 1\n", (), ("test", "")),
        (manifest("a") + "nonsense: 1\n", (), ("test", "there")),
        (manifest("a") + "nonsense: 1\n", ("--target", "there"), ("test", "there")),
        ("nonsense: 1\n", (), ("", "")),
    ],
)
def test_invalid_manifest_of_a_stack(
    reconciler: Reconciler, text: str, arguments: tuple[str, ...], labels: tuple[str, str]
) -> None:
    write(text)
    reconciler.ends(ExitCode.INVALID, "plan", *arguments, "-o", f"prometheus={FILE}")
    metrics = Metrics()
    assert metrics["reconciler_run_success"] == 0
    assert (metrics.labels["stack"], metrics.labels["target"]) == labels


@pytest.mark.usefixtures("stack")
@pytest.mark.parametrize(
    "wrong", [("--no-such-option",), ("--parallelism", "none"), ("--target", "nowhere"), ("no-such-path",)]
)
def test_wrong_usage(reconciler: Reconciler, wrong: tuple[str, ...]) -> None:
    for arguments in (
        ("plan", *wrong, "-o", f"prometheus={FILE}"),
        ("plan", f"--output=prometheus={FILE}", *wrong),
    ):
        Path(FILE).unlink(missing_ok=True)
        reconciler.ends(ExitCode.WRONG_USAGE, *arguments)
        metrics = Metrics()
        assert metrics["reconciler_run_success"] == 0
        assert metrics.labels["command"] == "plan"


@pytest.mark.parametrize("code", ExitCode)
def test_every_exit_code_is_a_success_or_a_failure(code: ExitCode, tmp_path: Path) -> None:
    final_outputs.begin()
    final_outputs.ask("plan", [OutputSpec("prometheus", tmp_path / FILE)])
    final_outputs.finish(code)
    assert Metrics()["reconciler_run_success"] == (code in (0, 2, 3))


@pytest.mark.usefixtures("stack")
def test_saved_plan_that_was_not_approved(reconciler: Reconciler) -> None:
    reconciler.ends(0, "plan --out plan.json")
    write(manifest("a", lr="0.5"))
    reconciler.ends(ExitCode.STALE, "apply --plan plan.json --approve sha256:0 -o", f"prometheus={FILE}")
    metrics = Metrics()
    assert metrics["reconciler_run_success"] == 0
    assert metrics.labels == {"stack": "test", "target": "there", "command": "apply"}


@pytest.mark.usefixtures("stack")
def test_file_that_cannot_be_written_fails_the_run(reconciler: Reconciler) -> None:
    reconciler.ends(ExitCode.FAILED, "plan -o", f"prometheus=missing/{FILE}", err="missing")


@pytest.mark.usefixtures("stack")
def test_variable_of_the_environment(reconciler: Reconciler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECONCILER_OUTPUT", f"text\nprometheus={FILE}")
    reconciler.ends(ExitCode.WRONG_USAGE, "plan --no-such-option")
    assert Metrics()["reconciler_run_success"] == 0
