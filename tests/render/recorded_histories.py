"""A realistic history of a team's quarter."""

from __future__ import annotations

from random import Random
from typing import Any

from reconciler.core.identity import remote_name
from reconciler.core.past import PastAction, PastRevision, PastRun, PastStep
from reconciler.core.values import MODELARTS, TargetIdentity
from reconciler.decide.history import HistoryReport

#: Saturday, 21 November 2026, 08:40 UTC.
AT_S = 1_795_250_400.0
DAY_S, HOUR_S = 86_400.0, 3_600.0
PROD = TargetIdentity(
    name="prod",
    kind=MODELARTS,
    endpoint="https://modelarts.cn-north-4.myhuaweicloud.com",
    project_id="0a1b2c3d",
    workspace_id="0",
)


def a_revision(key: str, number: int, begin_s: float, **more: Any) -> PastRevision:
    """A revision created at `begin_s`, by default completed after an hour."""
    known = {
        "key": key,
        "number": number,
        "name": remote_name(key, number),
        "job": f"{key}-{number}",
        "digest": "a3f9a2c1b7d4e",
        "phase_text": "Completed",
        "created_at_s": begin_s,
        "started_at_s": begin_s + 60,
        "duration_s": HOUR_S,
    }
    return PastRevision(**{**known, **more})


def a_run(number: int, at_s: float, **more: Any) -> PastRun:
    """A successful apply that took a minute."""
    known = {
        "id": number,
        "kind": "apply",
        "who": "alice",
        "where": "ci-runner-4, process 77",
        "command": "apply",
        "plan_digest": "sha256:" + "0" * 64,
        "at_s": at_s,
        "ended_at_s": at_s + 60,
        "result": "complete",
    }
    return PastRun(**{**known, **more})


# ── a quarter of a team ─────────────────────────────────────────────────────────────────────────────

NIGHTLY = tuple(f"{what}-nightly" for what in ("asr-zh", "asr-en", "ocr", "tts", "detector", "embedding"))
#: Days with drift, and days with the service unavailable.
_FOUND = (("drift", 25.5, 26.4), ("drift", 40.1, 40.55), ("unknown", 57.9, 58.4))


def a_quarter() -> HistoryReport:
    """Ten keys over 88 days: nightly trainings, one every four hours, and long runs."""
    random = Random(20261121)
    begin_s = AT_S - 88 * DAY_S - 8.67 * HOUR_S
    revisions: list[PastRevision] = []
    runs: list[PastRun] = []

    def run(day: float, who: str = "dana", actions: tuple[PastAction, ...] = (), **more: Any) -> int:
        runs.append(a_run(len(runs) + 1, begin_s + day * DAY_S, who=who, actions=actions, **more))
        return len(runs)

    def add(
        number: int, key: str, day: float, queued_s: float | None, ran_s: float | None, **more: Any
    ) -> None:
        """Add the revisions created by run `number`."""
        at_s = begin_s + day * DAY_S
        started_s = None if queued_s is None else at_s + queued_s
        place = 1 + sum(one.key == key for one in revisions)
        one = a_revision(key, place, at_s, started_at_s=started_s, duration_s=ran_s, **more)
        revisions.append(one)
        created = PastStep(key, "create", "create", one.name, one.job, at_s, at_s + 0.5, ok=True)
        found = runs[number - 1]
        done = PastAction(key, "create", "scheduled", "done", job=one.job)
        actions, steps = (*found.actions, done), (*found.steps, created)
        summary = {"done": len(actions)}
        runs[number - 1] = found._replace(actions=actions, steps=steps, summary=summary)

    for day in range(88):
        number = run(day, who="ci")
        hours = [(key, 1.0 + place, 1.2 + 2 * random.random()) for place, key in enumerate(NIGHTLY)]
        hours += [("ranking-every-4h", hour, 0.4) for hour in range(0, 24, 4)]
        for key, hour, ran_h in hours:
            fails = random.random() < 0.025 or (key == NIGHTLY[0] and 40 <= day < 44)
            phase = random.choice(("Abnormal", "Failed")) if fails else "Completed"
            queued_s, ran_s = random.expovariate(1 / 900), ran_h * HOUR_S
            add(number, key, day + hour / 24, queued_s, ran_s, phase_text=phase)
    for day, queued_days, ran_days, phase in (
        (3, 2.2, 19, "Terminated"), (26, 1, 31, "Completed"), (61, 0.6, None, "Running")
    ):  # fmt: skip
        ran = None if ran_days is None else ran_days * DAY_S
        add(run(day), "llm-pretrain", day, queued_days * DAY_S, ran, phase_text=phase, node_count=16)
    for day in (9, 33, 66, 74):
        done = PastAction("llm-pretrain", "update", "mutable_changed", "done", "priority 1 -> 3")
        run(day, actions=(done,))
    adopted = PastAction("llm-align", "update", "adopted", "done", "job 3faf5c03-aaa1 adopted as r1")
    add(run(50), "llm-align", 50, HOUR_S, 12 * DAY_S)
    run(52, kind="adopt", command="adopt", actions=(adopted,))
    released_s = begin_s + 79 * DAY_S
    add(run(70), "llm-align", 70, HOUR_S, None, phase_text="Running", released_at_s=released_s)
    text = "the name is held by a job that this account cannot see"
    for at in (13.1, 14.1):
        taken = PastAction("llm-reward", "conflict", "name_taken", "skipped", text)
        run(at, result="partial", actions=(taken,))
    failed = PastAction("llm-reward", "create", "not_found", "failed", "sold out", code="ModelArts.2815")
    run(44, result="partial", actions=(failed,))
    add(run(87.9), "llm-reward", 87.9, None, None, phase_text="Pending")
    for number in range(88 * 12):
        at = number / 12
        word = next((word for word, begin, end in _FOUND if begin < at < end), "no drift")
        counts = {"drift": {"modified": 1}, "unknown": {"unknown": 10}}.get(word, {})
        status = {482: "new", 487: "gone"}.get(number)
        found = PastAction("llm-align", "drift", "modified", status or "", "priority 3 -> 1")
        actions = (found,) if status else ()
        run(at + 0.01, "ci", actions, kind="drift", command="drift", result=word, summary=counts)
    return HistoryReport(
        "vision",
        PROD,
        "",
        "0.1.0",
        AT_S,
        None,
        sorted(runs, key=lambda run: run.at_s, reverse=True),
        sorted(revisions, key=lambda one: one.created_at_s or 0.0, reverse=True),
    )
