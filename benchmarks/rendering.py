"""What showing a plan of 1,000 actions costs in each format.

python benchmarks/rendering.py [--actions 1000] [--rounds 5] [--check]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from reconciler.core.values import TargetIdentity
from reconciler.decide.plan import Action, Plan, PlannedAction, Reason, count
from reconciler.render import Content, View, formats_of, render
from reconciler.secrets import Redactor

#: `--check` fails above this many seconds.
MOST_S = 1.0
#: Every kind is there; each job has changes of its own, so that nothing is folded.
_KINDS = {
    Action.CREATE: Reason.NOT_FOUND,
    Action.UPDATE: Reason.MUTABLE_CHANGED,
    Action.REPLACE: Reason.IMMUTABLE_CHANGED,
    Action.TERMINATE: Reason.NOT_IN_MANIFEST,
    Action.KEEP: Reason.UNCHANGED,
    Action.DEFER: Reason.NEEDS_PENDING,
    Action.BLOCKED: Reason.PROTECTED,
    Action.CONFLICT: Reason.NAME_TAKEN,
    Action.UNKNOWN: Reason.UNREADABLE,
}
_FIELDS = ("algorithm.parameters.lr", "algorithm.code_dir", "spec.resource.flavor_id", "description")


def main() -> int:
    """Measure, and report."""
    parser = argparse.ArgumentParser(description="Time the formats of a plan.")
    parser.add_argument("--actions", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--check", action="store_true", help=f"fail above {MOST_S:g} s a format")
    asked = parser.parse_args()
    plan = _plan(asked.actions)
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, {asked.actions} actions")
    slowest = 0.0
    for format_ in formats_of(Content.PLAN):
        for what, secrets in (("no secret in it", ["tell-nobody-1"]), ("a secret in it", ["words-of-3-"])):
            view = View(
                show_keep=True, redact=Redactor([*secrets, *(f"secret-{n}-of-many" for n in range(10))])
            )
            times = [_timed(plan, format_, view) for _ in range(asked.rounds)]
            slowest = max(slowest, *times)
            print(
                f"{format_:<10}  {what:<15}  first {times[0]:.3f} s, median {statistics.median(times):.3f} s"
            )
    return 1 if asked.check and slowest > MOST_S else 0


def _timed(plan: Plan, format_: str, view: View) -> float:
    begun = time.perf_counter()
    render(Content.PLAN, plan, format_, view)
    return time.perf_counter() - begun


def _plan(number: int) -> Plan:
    kinds = list(_KINDS)
    actions = tuple(_action(n, kinds[n % len(kinds)]) for n in range(number))
    target = TargetIdentity(
        name="prod", kind="modelarts", endpoint="https://modelarts.example", project_id="p", workspace_id="0"
    )
    return Plan(
        reconciler_version="0",
        created_at="2027-01-15T08:00:00Z",
        stack="vision",
        target=target,
        manifest_digest="sha256:0",
        applyable=True,
        complete=True,
        summary=count(actions),
        actions=actions,
    )


def _action(number: int, kind: Action) -> PlannedAction:
    key = f"job-{number:05}"
    change: dict[str, Any] = {"before": f"words-of-{number}-before", "after": f"words-of-{number}-after"}
    return PlannedAction.model_validate(
        {
            "key": key,
            "action": kind,
            "reason": _KINDS[kind],
            "detail": f"{', '.join(_FIELDS)} changed since {number}",
            "before": {"id": key, "name": key, "revision": 1, "phase": "Running", "digest": "a000000000000"},
            "after": {"name": f"{key}-r2", "revision": 2, "digest": "a000000000001"},
            "changes": [{"path": path, **change} for path in _FIELDS],
            "source": {"file": f"stacks/vision/{number % 20}.yaml", "line": number + 1, "column": 3},
        }
    )


if __name__ == "__main__":
    sys.exit(main())
