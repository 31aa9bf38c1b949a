"""`-o prometheus=FILE` has the outcome of the run: written atomically at its end, also after a failure."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from reconciler.cli.output import OutputSpec, final_outputs
from reconciler.errors import ExitCode
from tests.cli.conftest import Reconciler, manifest, put_finished_job, write

FILE = "metrics.prom"


class Metrics(dict[str, float]):
    """The samples of the file by name, or `name kind` if they have an action or class."""

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


def run(reconciler: Reconciler, code: int, line: str, success: int) -> Metrics:
    """Run a command that writes its metrics."""
    Path(FILE).unlink(missing_ok=True)
    reconciler.ends(code, f"{line} -o prometheus={FILE}")
    metrics = Metrics()
    assert metrics["reconciler_run_success"] == success
    assert metrics.labels["command"] == line.split()[0]
    return metrics


@pytest.mark.usefixtures("stack")
def test_plan_metrics_have_actions_time_and_duration(reconciler: Reconciler) -> None:
    metrics = run(reconciler, 0, "plan", 1)
    assert metrics.labels == {"stack": "test", "target": "there", "command": "plan"}
    assert metrics["reconciler_plan_actions create"] == 1
    assert metrics["reconciler_plan_actions terminate"] == 0
    assert metrics["reconciler_run_timestamp_seconds"] > 1_700_000_000
    assert 0 < metrics["reconciler_run_duration_seconds"] < 60


@pytest.mark.usefixtures("stack")
def test_changes_and_refusals_count_as_success_and_wrong_usage_does_not(reconciler: Reconciler) -> None:
    run(reconciler, 2, "plan --detailed-exitcode", 1)
    metrics = run(reconciler, 2, "drift", 1)
    assert (metrics["reconciler_drift missing"], metrics["reconciler_drift failed"]) == (1, 0)
    run(reconciler, 3, "apply", 1)
    run(reconciler, 0, "apply --yes", 1)
    for wrong in ("--no-such-option", "--parallelism none", "--target nowhere", "no-such-path"):
        run(reconciler, 64, f"plan {wrong}", 0)
        Path(FILE).unlink()
        reconciler.ends(64, f"--color never plan --output=prometheus={FILE} {wrong}")
        metrics = Metrics()
        assert (metrics["reconciler_run_success"], metrics.labels["command"]) == (0, "plan")


@pytest.mark.parametrize(
    ("text", "options", "labels"),
    [
        ("stack: test\nnonsense: 1\n", "", ("test", "")),
        (manifest("a") + "nonsense: 1\n", "", ("test", "there")),
        (manifest("a") + "nonsense: 1\n", "--target there", ("test", "there")),
        ("nonsense: 1\n", "", ("", "")),
    ],
)
def test_metrics_of_an_invalid_manifest_name_its_stack(
    reconciler: Reconciler, text: str, options: str, labels: tuple[str, str]
) -> None:
    write(text)
    metrics = run(reconciler, 65, f"plan {options}", 0)
    assert (metrics.labels["stack"], metrics.labels["target"]) == labels


@pytest.mark.parametrize("code", ExitCode)
def test_every_exit_code_is_a_success_or_a_failure(code: ExitCode, tmp_path: Path) -> None:
    final_outputs.begin()
    final_outputs.ask("plan", [OutputSpec("prometheus", tmp_path / FILE)])
    final_outputs.finish(code)
    assert Metrics()["reconciler_run_success"] == (code in (0, 2, 3))


@pytest.mark.usefixtures("stack")
def test_metrics_file_is_set_by_environment_and_fails_the_run_if_unwritable(
    reconciler: Reconciler,
) -> None:
    reconciler.ends(1, f"plan -o prometheus=missing/{FILE}", err="missing")
    reconciler.setenv("RECONCILER_OUTPUT", f"text\nprometheus={FILE}")
    reconciler.ends(64, "plan --no-such-option")
    assert Metrics()["reconciler_run_success"] == 0
