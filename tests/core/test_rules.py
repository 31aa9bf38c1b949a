"""Decision rules: the first one that applies decides, and the decision names it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hypothesis import given, settings

from reconciler.decide.key_state import KeyState, PlanContext, keys_in_view, state_of
from reconciler.decide.rules import RULES, Rule, decide
from tests.builders import NOW, STACK
from tests.core.worlds import World, worlds


def test_rules_have_unique_names_and_a_one_line_condition() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", rule.name)
        assert re.fullmatch(r"[A-Z`].*[^.]", rule.when)


@settings(max_examples=150)
@given(worlds())
def test_decision_names_the_first_rule_that_applies_and_has_an_action_of_it(world: World) -> None:
    look, situation = world.look, PlanContext(STACK, at_s=NOW, allowances=world.allowances)
    for key in keys_in_view(world.stack, look.ownership):
        desired = world.stack.find(key)
        needed = desired.needs if desired else ()
        upstream = tuple(state_of(one, world.stack.find(one), look, situation) for one in needed)
        state = KeyState(look.view(key, desired), desired, look, situation, upstream=upstream)
        decision = decide(state)
        passed, [rule, *_] = before_and_from(decision.rule)
        asked = (one for one in passed if one.scope is None or one.scope(state))
        assert [one.name for one in asked if one.judge(state)] == []
        assert {action.action for action in decision.actions[:1]} <= set(rule.actions)
        assert all(rule.hints_for(action.reason) for action in decision.actions)


def before_and_from(name: str) -> tuple[Sequence[Rule], Sequence[Rule]]:
    place = [rule.name for rule in RULES].index(name)
    return RULES[:place], RULES[place:]
