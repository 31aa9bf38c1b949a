"""Each content in each format has a golden file, and no golden file is unused."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import reconciler.render
from reconciler.core.observed import Unreadable
from reconciler.core.past import PastChange
from reconciler.core.phase import Phase
from reconciler.core.values import Denial, Source
from reconciler.decide.history import HistoryReport
from reconciler.decide.policies import CaseResult, CasesReport
from reconciler.decide.reports import StatusReport
from reconciler.decide.review import Review
from reconciler.decide.validation import DeniedJob, Validation
from reconciler.errors import Diagnostic, Location, Severity, Snippet
from reconciler.render import FORMATS, Content, View, formats_of, render
from tests.builders import HOUR, NOW, a_job, a_stack, seen
from tests.core.test_status import status_of
from tests.render.test_fleet import a_fleet
from tests.render.test_golden import (
    GOLDEN,
    check,
    compared,
    drifted,
    every_action,
    interrupted_result,
    placed,
)
from tests.render.test_history import REVISIONS, RUNS, a_report
from tests.render.test_review import every_change, on_two_groups

FACTS: Any = {
    "reconciler_version": "0.0.0",
    "stack": "vision",
    "target": "prod",
    "targets": ("local", "prod"),
    "files": ("jobs.yaml", "sweeps.yaml"),
}


def problems() -> Validation:
    """A misspelt field, an unparsable file, and a problem without a location."""
    found = (
        Diagnostic("no such directory", "code/ does not exist"),
        Diagnostic(
            "unknown field",
            '"node_cout" is not one of flavor_id, node_count, pool_id',
            'did you mean "node_count"?',
            Location("jobs.yaml", 14, 9),
            "jobs.resnet50.spec.resource",
            Snippet("        node_cout: 2", 8, 9),
        ),
        Diagnostic("syntax error", "expected a mapping", location=Location("sweeps.yaml", 3, 1)),
    )
    return Validation(valid=False, **FACTS, diagnostics=tuple(found))


def denied() -> Validation:
    """Policies deny two jobs, one of them on one target only; a target was skipped."""
    place = Source(file="jobs.yaml", line=4, column=29)
    big = Denial(key="a", policy="one-node", message="one is enough", source=place)
    jobs = placed(a_stack(a_job("a"), a_job("b"))).jobs
    skipped = Diagnostic(
        "target skipped",
        'the target "test" was not checked: BUCKET is not set',
        location=Location("jobs.yaml", 7, 5),
        path="targets.test.variables.bucket",
        severity=Severity.WARNING,
    )
    found = tuple(
        DeniedJob(**{**dict(big), "key": key}, targets=targets, job=Source.of(jobs[key].location))
        for key, targets in (("a", ("local", "prod")), ("b", ("prod",)))
    )
    warnings = (skipped,)
    return Validation(valid=True, **FACTS, jobs=len(jobs), denied=found, warnings=warnings)


def reviewed() -> Review:
    denial = Denial(key="create", policy="no-new-jobs", message="ask first")
    return every_change().model_copy(update={"denied": (denial,)})


def recorded() -> HistoryReport:
    return a_report(runs=RUNS, revisions=REVISIONS)


def standing() -> StatusReport:
    """Keys without a job, queued, running, failed, superseded, conflicting, and unreadable."""
    first = a_job("first", lifecycle={"replace_order": "create_first"})
    wants = a_job("wants", needs=("ended",))
    jobs = [
        seen(a_job("first", algorithm__command="python other.py")),
        seen(first, revision=2, phase=Phase.PENDING),
        seen(a_job("ended"), phase=Phase.FAILED, ran_s=3600.0),
        seen(a_job("odd"), phase="Dancing"),
    ]
    entries = [a_job(key) for key in ("new", "ended", "odd", "unread")]
    by_whom = PastChange("ended", "create", "create", "apply", "alice", jobs[2].id, NOW - HOUR)
    lost = Unreadable("status.phase is missing", name="unread")
    return status_of([first, wants, *entries], *jobs, unreadable=[lost], changes=[by_whom])


def tried() -> CasesReport:
    return CasesReport("vision", (CaseResult("a.yaml"), CaseResult("b.yaml", ("denied by one-node",))))


#: Content → its values by the name of the golden file.
VALUES: dict[Content, dict[str, Callable[[], Any]]] = {
    Content.PLAN: {"plan": every_action},
    Content.DRIFT: {"drift": drifted, "drift-since-last": compared},
    Content.STATUS: {"status": standing},
    Content.RESULT: {"result": interrupted_result},
    Content.REVIEW: {"review": reviewed, "review-on-two-groups": on_two_groups},
    Content.CASES: {"cases": tried},
    Content.VALIDATION: {"validation": denied, "validation-invalid": problems},
    Content.HISTORY: {"history": recorded},
    Content.FLEET: {"fleet": a_fleet},
}
#: Files compared by other tests.
MORE = {
    *("diagnostics.text", "history-calls.text", "history-of-a-key.text"),
    *("history.ansi", "plan.ansi", "review.ansi"),
    *("plan-folded.markdown", "plan-folded.text", "plan-verbose.text"),
}
#: Contents with golden files for every format; the others have text and one sheet-based format.
IN_FULL = (Content.PLAN, Content.DRIFT, Content.RESULT, Content.FLEET)
FILES = [
    (content, format_, name)
    for content in Content
    for format_ in formats_of(content)
    for name in VALUES[content]
    if content in IN_FULL or format_ in ("text", "markdown")
]


@pytest.mark.parametrize(("content", "format_", "name"), FILES)
def test_content_is_shown_as_in_its_golden_file(content: Content, format_: str, name: str) -> None:
    digest = f"sha256:{'0' * 64}" if content is Content.PLAN else ""
    view = View(show_keep=True, digest=digest, plan=every_action())
    check(f"{name}.{format_}", render(content, VALUES[content][name](), format_, view))


def test_golden_files_are_those_of_the_table_of_formats() -> None:
    expected = {f"{name}.{format_}" for _, format_, name in FILES}
    assert {path.name for path in GOLDEN.iterdir() if path.is_file()} == expected | MORE


@pytest.mark.parametrize("name", FORMATS)
def test_format_is_a_file_of_its_name(name: str) -> None:
    module = import_module(f"reconciler.render.{name}")
    assert callable(module.render)
    assert hasattr(module, "render_fleet") is (Content.FLEET in FORMATS[name].renders)
    assert hasattr(module, "render_run") is FORMATS[name].is_final


def test_every_file_that_renders_contents_has_a_row() -> None:
    names = {path.stem for path in Path(reconciler.render.__path__[0]).glob("*.py")} - {"__init__"}
    renders = {one for one in names if hasattr(import_module(f"reconciler.render.{one}"), "render")}
    assert renders == set(FORMATS)
