"""Working without records, where somebody said so; and not, where nobody did."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.core.past import RunKind
from reconciler.core.record import RecordsUnavailable, Scope
from reconciler.core.values import MODELARTS, TargetIdentity
from reconciler.records.recording import Recording


class Now:
    """A clock that stands still."""

    def now(self) -> float:
        return 1_795_000_000.0

    def sleep(self, seconds: float) -> None: ...


def scope(endpoint: str = "https://here") -> Scope:
    target = TargetIdentity(name="there", kind=MODELARTS, endpoint=endpoint, project_id="p", workspace_id="0")
    return Scope.of("test", target)


@pytest.fixture
def blocked(tmp_path: Path) -> Path:
    """A root whose directory of records is a file."""
    (tmp_path / ".reconciler").write_text("", encoding="utf-8")
    return tmp_path


def test_directory_that_cannot_be_made_stops_an_apply(blocked: Path) -> None:
    recording = Recording(None, blocked, Now())
    with (
        pytest.raises(RecordsUnavailable, match="cannot be written"),
        recording.lock(scope(), lambda: None),
    ):
        pass


def test_unavailable_records_stop_no_run_that_goes_on_without_them(blocked: Path) -> None:
    warned: list[str] = []
    recording = Recording(None, blocked, Now(), goes_on_without=True, warn=warned.append)
    with recording.lock(scope(), lambda: None):
        assert recording.begin(scope(), RunKind.APPLY, "sha256:0").problem is None
    [warning] = warned
    assert "continuing without lock, journal and history" in warning


@pytest.mark.parametrize(
    ("one", "other"), [("https://here", "https://HERE:443"), ("http://127.0.0.1", "http://127.0.0.1:80")]
)
def test_port_that_goes_without_saying_makes_no_other_place(one: str, other: str) -> None:
    assert scope(one) == scope(other)
    assert scope(one) != scope(f"{one}:8443")
