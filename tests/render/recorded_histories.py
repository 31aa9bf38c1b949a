"""Histories as a store would have them: one that looks like a team's quarter, and one of any size."""

from __future__ import annotations

from random import Random
from typing import Any

from reconciler.core.identity import remote_name
from reconciler.core.record import PastAction, PastRevision, PastRun, PastStep
from reconciler.core.values import MODELARTS, TargetIdentity
from reconciler.decide.history import HistoryExcerpt, Timeline, make_timeline

#: Saturday, 21 November 2026, 08:40 UTC.
AT_S = 1_795_250_400.0
DAY_S, HOUR_S, MINUTE_S = 86_400.0, 3_600.0, 60.0
PROD = TargetIdentity(
    name="prod",
    kind=MODELARTS,
    endpoint="https://modelarts.cn-north-4.myhuaweicloud.com",
    project_id="0a1b2c3d4e5f",
    workspace_id="0",
)


def a_revision(key: str, number: int, begin_s: float, **more: Any) -> PastRevision:
    """A revision that was created at `begin_s`, by default one that completed after an hour."""
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
    """An apply that went well and took a minute."""
    known = {
        "id": number,
        "kind": "apply",
        "who": "alice",
        "where": "ci-runner-4, process 77",
        "command": "apply",
        "commit": "3b1f0c64a7d2" + "0" * 28,
        "plan_digest": "sha256:" + "0" * 64,
        "at_s": at_s,
        "ended_at_s": at_s + 60,
        "result": "complete",
    }
    return PastRun(**{**known, **more})


def nightly(keys: int, days: int) -> HistoryExcerpt:
    """Keys that run once every night, an apply each night and a drift check each hour."""
    random = Random(7)
    begin_s = AT_S - days * DAY_S
    revisions, runs = [], []
    for day in range(days):
        night_s = begin_s + day * DAY_S
        steps, actions = [], []
        for place in range(keys):
            key, number = f"training-{place:03d}", day + 1
            phase = random.choices(("Completed", "Failed", "Terminated"), (95, 4, 1))[0]
            queued_s, ran_s = random.randrange(30, 2_000), random.randrange(1_800, 12_000)
            begin = night_s + random.randrange(120)
            more = {"phase_text": phase, "started_at_s": begin + queued_s, "duration_s": float(ran_s)}
            revisions.append(a_revision(key, number, begin, **more))
            name = remote_name(key, number)
            steps.append(
                PastStep(key, "create", "create", name, f"{key}-{number}", begin, begin + 0.4, ok=True)
            )
            actions.append(PastAction(key, "create", "scheduled", "done", job=f"{key}-{number}"))
        runs.append(a_run(day * 25 + 1, night_s, steps=tuple(steps), actions=tuple(actions)))
        runs += [
            a_run(day * 25 + 2 + hour, night_s + hour * HOUR_S, kind="drift", result="no drift")
            for hour in range(24)
        ]
    return HistoryExcerpt(
        None,
        sorted(runs, key=lambda run: run.at_s, reverse=True),
        sorted(revisions, key=lambda one: one.created_at_s or 0.0, reverse=True),
    )


def timeline_of(shown: HistoryExcerpt) -> Timeline:
    """It, laid out."""
    return make_timeline("vision", PROD, shown, version="0.1.0", at_s=AT_S)


# ── a quarter of a team ─────────────────────────────────────────────────────────────────────────────


class _Quarter:
    """A stack of forty keys, ninety days of it."""

    def __init__(self) -> None:
        self.random = Random(20261121)
        self.begin_s = AT_S - 88 * DAY_S - 8.67 * HOUR_S
        self.revisions: list[PastRevision] = []
        self.runs: list[PastRun] = []
        self.actions: dict[int, list[PastAction]] = {}
        self.steps: dict[int, list[PastStep]] = {}

    def run(self, at_s: float, **more: Any) -> int:
        number = len(self.runs) + 1
        self.runs.append(a_run(number, at_s, **more))
        return number

    def add(self, key: str, begin_s: float, run: int, **more: Any) -> PastRevision:
        number = 1 + sum(one.key == key for one in self.revisions)
        one = a_revision(key, number, begin_s, **more)
        self.revisions.append(one)
        step = PastStep(key, "create", "create", one.name, one.job, begin_s, begin_s + 0.5, ok=True)
        self.steps.setdefault(run, []).append(step)
        self.actions.setdefault(run, []).append(PastAction(key, "create", "scheduled", "done", job=one.job))
        return one

    def note(self, run: int, key: str, action: str, reason: str, status: str, detail: str) -> None:
        code = "ModelArts.2815" if status == "failed" else ""
        self.actions.setdefault(run, []).append(PastAction(key, action, reason, status, detail, code=code))

    def nights(self) -> None:
        """Trainings of every night, each at its hour; what fails is tried again."""
        random = self.random
        keys = {
            f"resnet50-{place}-nightly": 2.0 + hour for place, hour in zip(_REGIONS, range(4), strict=True)
        }
        keys |= {"detector-nightly": 1.0, "asr-zh-nightly": 3.0, "asr-en-nightly": 3.5, "tts-nightly": 4.0}
        keys |= {
            "ocr-nightly": 5.0,
            "segmentation-nightly": 0.5,
            "embedding-nightly": 6.0,
            "ranking-every-4h": 0.0,
        }
        for day in range(89):
            run = self.run(self.begin_s + day * DAY_S, who="ci", command="apply")
            for key, hour in keys.items():
                begins = [hour] if key != "ranking-every-4h" else [float(h) for h in range(0, 24, 4)]
                for begin in begins:
                    begin_s = self.begin_s + day * DAY_S + begin * HOUR_S + 5
                    if begin_s < AT_S - HOUR_S:
                        self._training(
                            key, begin_s, run, 0.4 if key == "ranking-every-4h" else 1.2 + random.random() * 2
                        )

    def _training(self, key: str, begin_s: float, run: int, hours: float) -> None:
        random = self.random
        queued_s = random.expovariate(1 / 900)
        is_bad_week = key == "asr-zh-nightly" and 40 <= (begin_s - self.begin_s) / DAY_S < 44
        fails = is_bad_week or random.random() < 0.025
        ran_s = hours * HOUR_S * (random.random() * 0.3 if fails else 0.9 + random.random() * 0.2)
        phase = ("Abnormal" if random.random() < 0.2 else "Failed") if fails else "Completed"
        times = {"started_at_s": begin_s + queued_s, "duration_s": ran_s, "phase_text": phase}
        self.add(key, begin_s, run, **times, node_count=1 + 7 * key.startswith("resnet"))
        if fails and not is_bad_week:
            self._training(key, begin_s + queued_s + ran_s + 120, run, hours)

    def weeks(self) -> None:
        """A pipeline of three stages, every Monday, for three corpora."""
        for week in range(13):
            monday_s = self.begin_s + (4 + 7 * week) * DAY_S + 9 * HOUR_S
            if monday_s > AT_S:
                break
            run = self.run(
                monday_s, who="bob", where="laptop, process 4711", ended_at_s=monday_s + 9 * HOUR_S
            )
            for corpus in ("news", "speech", "web"):
                at_s = monday_s
                for stage, hours in (("prepare", 3.0), ("train", 30.0), ("evaluate", 1.5)):
                    duration_s = hours * HOUR_S * (0.8 + self.random.random() * 0.5)
                    times = {"started_at_s": at_s + 400, "duration_s": duration_s, "node_count": 4}
                    self.add(f"{corpus}-{stage}", at_s, run, **times)
                    at_s += 400 + duration_s + 60

    def sweep(self) -> None:
        """Sixteen members, all at once, on what the queue leaves them; replaced once."""
        for round_, day in enumerate((30.4, 36.5)):
            at_s = self.begin_s + day * DAY_S
            run = self.run(at_s, who="carol", result="complete" if round_ else "partial")
            for member in range(16):
                lr, batch = ("0_1", "0_03", "0_01", "0_003")[member // 4], 32 << member % 4
                queued_s = member // 5 * 20 * HOUR_S + self.random.random() * HOUR_S
                ran_s = (26 + 10 * self.random.random()) * HOUR_S
                phase = "Completed" if member % 7 else "Failed"
                if not round_ and member % 4 == 3:
                    phase = "Terminated"
                digest = "ab7c" + f"{round_}" * 9
                times = {"started_at_s": at_s + queued_s, "duration_s": ran_s, "phase_text": phase}
                key = f"lr-sweep-batch-{batch}-lr-{lr}"
                self.add(key, at_s, run, **times, digest=digest, stopped=phase == "Terminated", node_count=2)

    def long_runs(self) -> None:
        """Weeks of pre-training: what was done to it, and what others did."""

        def day(number: float) -> float:
            return self.begin_s + number * DAY_S + 10 * HOUR_S

        run = self.run(day(3), who="dana", where="laptop, process 912")
        one = self.add(
            "llm-pretrain", day(3), run, started_at_s=day(5.2), duration_s=19 * DAY_S, node_count=16
        )
        self._ended(one, "Terminated")
        run = self.run(day(26), who="dana", where="laptop, process 920")
        one = self.add(
            "llm-pretrain", day(26), run, started_at_s=day(27), duration_s=31 * DAY_S, node_count=16
        )
        run = self.run(day(61), who="dana", where="laptop, process 931")
        one = self.add("llm-pretrain", day(61), run, started_at_s=day(61.6), duration_s=None, node_count=16)
        self._ended(one, "Running")
        for number in (9, 33, 66, 74):
            run = self.run(day(number), who="dana")
            self.note(run, "llm-pretrain", "update", "mutable_changed", "done", "priority 1 -> 3")
        run = self.run(day(52), kind="adopt", who="erin", command="adopt")
        one = self.add("llm-align", day(50), run, started_at_s=day(50.3), duration_s=12 * DAY_S, node_count=8)
        self.actions[run] = []
        self.note(run, "llm-align", "update", "adopted", "done", "job 3faf5c03-aaa1 adopted as r1")
        run = self.run(day(70), who="erin")
        one = self.add("llm-align", day(70), run, started_at_s=day(70.4), duration_s=None, node_count=8)
        self._ended(one, "Running", released_at_s=day(79))
        self.run(day(79), kind="release", who="erin", command="release")
        for number in (13, 14):
            run = self.run(day(number + 0.1), result="partial")
            said = "the name is held by a job that this account cannot see"
            self.note(run, "llm-reward", "conflict", "name_taken", "skipped", said)
        run = self.run(day(15))
        self.add("llm-reward", day(15), run, started_at_s=day(15.4), duration_s=5 * DAY_S, node_count=4)
        run = self.run(day(44), result="partial")
        self.note(run, "llm-reward", "create", "immutable_changed", "failed", "the resources are sold out")
        run = self.run(day(87.9))
        one = self.add("llm-reward", day(87.9), run, started_at_s=None, duration_s=None, node_count=4)
        self._ended(one, "Pending")

    def _ended(self, one: PastRevision, phase: str, **more: Any) -> None:
        place = self.revisions.index(one)
        self.revisions[place] = one._replace(phase_text=phase, **more)

    def checks(self) -> None:
        """A drift check every two hours; some find something, and for a night the service is away."""
        for number in range(88 * 12):
            at_s, day = self.begin_s + number * 2 * HOUR_S + 17 * MINUTE_S, number / 12
            word = next((word for word, begin, end in _FOUND if begin < day < end), "no drift")
            counts = {"drift": {"modified": 1}, "unknown": {"unknown": 40}}.get(word, {})
            ends = {"result": word, "summary": counts, "ended_at_s": at_s + 4}
            run = self.run(at_s, kind="drift", who="ci", command="drift", **ends)
            if number in (482, 487):
                status = "new" if number == 482 else "gone"
                self.note(run, "web-train", "drift", "modified", status, "priority 3 -> 1")

    def recorded(self) -> HistoryExcerpt:
        runs = [
            run._replace(
                actions=tuple(self.actions.get(run.id, ())),
                steps=tuple(self.steps.get(run.id, ())),
                summary=run.summary or {"done": len(self.actions.get(run.id, ()))},
            )
            for run in self.runs
        ]
        return HistoryExcerpt(
            None,
            sorted(runs, key=lambda run: run.at_s, reverse=True),
            sorted(self.revisions, key=lambda one: one.created_at_s or 0.0, reverse=True),
        )


_FOUND = (("drift", 25.5, 26.4), ("drift", 40.1, 40.55), ("unknown", 57.9, 58.4))
_REGIONS = ("eu", "us", "cn", "ap")


def a_quarter() -> HistoryExcerpt:
    """Forty keys over ninety days: trainings of every night, pipelines, a sweep, and long runs."""
    quarter = _Quarter()
    for part in (quarter.nights, quarter.weeks, quarter.sweep, quarter.long_runs, quarter.checks):
        part()
    return quarter.recorded()
