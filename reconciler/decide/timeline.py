"""What was recorded of a stack, laid out over time: a lane per key, its revisions as bars, and marks.

Values only: `render/timeline.py` makes a page of them. Times are seconds since 1970.
"""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.core.record import PastRun
from reconciler.core.values import TargetIdentity
from reconciler.decide.history_report import HistoryExcerpt
from reconciler.decide.timeline_bars import Bar, BarState, bars_by_key, calendar_time
from reconciler.decide.timeline_marks import TimelineMark, marks_by_key

#: So many revisions and runs are laid out, the newest ones: a page of more is too large to be opened.
MOST_BARS = 100_000
MOST_RUNS = 20_000


@dataclass(frozen=True, slots=True)
class Lane:
    """What is known of one key: its revisions, oldest first, and what was done to them or happened."""

    key: str
    bars: tuple[Bar, ...]
    marks: tuple[TimelineMark, ...]

    @property
    def tracks(self) -> int:
        """How many revisions at most are side by side."""
        return 1 + max((bar.track for bar in self.bars), default=0)

    def count(self, state: BarState) -> int:
        """How many revisions ended, or are, like this."""
        return sum(bar.state is state for bar in self.bars)


@dataclass(frozen=True, slots=True)
class Timeline:
    """Lanes by key, and the runs of the stack, oldest first. `key` is None for all keys.

    `hidden_revisions` and `hidden_runs` are how many older ones were left out.
    """

    stack: str
    target: TargetIdentity
    version: str
    at_s: float
    begin_s: float
    end_s: float
    lanes: tuple[Lane, ...]
    runs: tuple[PastRun, ...]
    key: str | None = None
    hidden_revisions: int = 0
    hidden_runs: int = 0

    def count(self, state: BarState) -> int:
        """How many revisions of all keys ended, or are, like this."""
        return sum(lane.count(state) for lane in self.lanes)


def make_timeline(
    stack: str, target: TargetIdentity, shown: HistoryExcerpt, *, version: str, at_s: float
) -> Timeline:
    """Lay out a history. What it shows of runs and revisions is given newest first."""
    runs, revisions = tuple(shown.runs[:MOST_RUNS][::-1]), shown.revisions[:MOST_BARS]
    bars = bars_by_key(runs, revisions, at_s)
    marks = marks_by_key(runs, revisions, bars)
    keys = {*bars, *marks} if shown.key is None else {shown.key}
    lanes = tuple(Lane(key, bars.get(key, ()), tuple(marks.get(key, ()))) for key in sorted(keys))
    every_bar = [bar for lane in lanes for bar in lane.bars]
    end_s = max([at_s, *(bar.end_s for bar in every_bar), *(run.at_s for run in runs)])
    begin_s = min([end_s, *(bar.begin_s for bar in every_bar), *(run.at_s for run in runs)])
    return Timeline(
        stack=stack,
        target=target,
        version=version,
        at_s=at_s,
        begin_s=calendar_time(begin_s),
        end_s=calendar_time(end_s),
        lanes=lanes,
        runs=runs,
        key=shown.key,
        hidden_revisions=len(shown.revisions) - len(revisions),
        hidden_runs=len(shown.runs) - len(runs),
    )
