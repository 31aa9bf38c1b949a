"""One answer in twenty fails at random: throttled, broken or lost. Every apply ends complete all the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import pytest

from reconciler import reconcile
from reconciler.core.fields.field_types import Cloud
from reconciler.core.identity import parse_remote_name
from reconciler.core.stack import DesiredJob
from reconciler.decide.outcome import Status
from reconciler.decide.plan import EVERY_GUARD, Action
from reconciler.emulator import chaos
from tests.apply.service import CREATE, Service, a_service
from tests.builders import a_job, a_stack

#: On each cloud, each of 20 actions.
APPLIES = 20
FAILING = 0.05
#: What becomes of a group of five keys, in this order over and over.
STEPS = (Action.CREATE, Action.REPLACE, Action.UPDATE, Action.TERMINATE)
ACTIVE = {"Creating", "Pending", "Running"}


@dataclass(frozen=True)
class Declared:
    """A group of five keys as the manifest has them."""

    number: int
    lr: float = 0.1
    text: str = ""
    is_there: bool = True

    def after(self, step: Action) -> Declared:
        """The same group, edited so that each of its keys needs this action."""
        match step:
            case Action.REPLACE:
                return replace(self, lr=self.lr + 1)
            case Action.UPDATE:
                return replace(self, text=f"{self.text}!")
            case _:
                return replace(self, is_there=step is Action.CREATE)

    def jobs(self) -> Iterator[DesiredJob]:
        """The desired jobs."""
        for letter in "abcde" if self.is_there else "":
            yield a_job(
                f"{letter}{self.number}",
                description=self.text,
                algorithm__parameters={"lr": self.lr},
                lifecycle={"on_change": "replace"},
            )


class Story(NamedTuple):
    """A service whose answers fail, and four groups of keys on it, each at another step."""

    service: Service
    groups: list[Declared]

    def edit(self, turn: int) -> list[DesiredJob]:
        """Give every group its next step: five keys for each kind of action."""
        for group in self.groups:
            self.groups[group.number] = group.after(STEPS[(group.number + turn) % len(STEPS)])
        return [job for group in self.groups for job in group.jobs()]


@pytest.fixture(params=Cloud)
def story(request: pytest.FixtureRequest) -> Iterator[Story]:
    """Three groups run when the trouble begins; the fourth comes first."""
    with a_service(request.param) as service:
        groups = [Declared(number, is_there=number > 0) for number in range(len(STEPS))]
        service.run(*(job for group in groups for job in group.jobs()))
        service.fail(*chaos(FAILING))
        yield Story(service, groups)


def test_applies_under_chaos_end_complete_without_duplicates(story: Story) -> None:
    service = story.service
    for turn in range(APPLIES):
        context = service.context(a_stack(*story.edit(turn)))
        before = len(service.store.jobs())
        plan = reconcile.plan(context, EVERY_GUARD)
        assert Counter(action.action for action in plan.to_execute) == dict.fromkeys(STEPS, 5)
        result = service.carry_out(plan)
        assert [
            (o.action.key, o.status, o.detail) for o in result.outcomes if o.status is not Status.DONE
        ] == []
        assert len(result.outcomes) == 20
        # Five creates and five replacements: ten jobs more, whatever became of the answers.
        assert len(service.store.jobs()) == before + 10
        active = [job for job in service.store.jobs() if job.life.phase in ACTIVE]
        keys = Counter(parse_remote_name(job.name).key for job in active)
        assert keys == dict.fromkeys(context.loaded.stack.jobs, 1)
        service.time.sleep(60)
        assert not reconcile.plan(context).to_execute
    failed = [served for served in service.app.requests if served.status == 0 or served.status >= 429]
    assert len(failed) > 0.02 * len(service.app.requests)
    assert service.asked(CREATE) >= 15 + 10 * APPLIES
