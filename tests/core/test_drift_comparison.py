"""Which drift is new, changed, gone, and due.

Source: docs/concepts/drift.md, "Since the last check".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.core.values import Change, timestamp
from reconciler.decide.drift_check import (
    NO_CHECK,
    Drift,
    DriftComparison,
    IgnoredDrift,
    LastCheck,
    compare,
    content_of,
)
from tests.builders import HOUR, NOW


def an_entry(key: str = "a", class_: str = "failed", job: str | None = "j1", **more: Any) -> Drift:
    return Drift.model_validate({"key": key, "class": class_, "job": job, **more})


def edited(text: str, job: str = "j1") -> Drift:
    return an_entry("a", "modified", job, changes=(Change(path="description", before="x", after=text),))


def check(last: LastCheck, *entries: Drift, at_s: float = NOW, **more: Any) -> DriftComparison:
    ignored = [IgnoredDrift.of(one) for one in more.pop("ignored", ())]
    judged = more.pop("is_judged", lambda _: True)
    return compare(last, [*entries, *ignored], judged, at_s=at_s, **more)


def after(comparison: DriftComparison, last: LastCheck = NO_CHECK, *, is_reported: bool = True) -> LastCheck:
    record = comparison.record(compared=True)
    kept = {one.id: one for one in last.standing if one.id not in record.gone}
    for one in record.standing:
        is_told = is_reported and not one.is_hidden
        kept[one.id] = one._replace(reported_at_s=comparison.at_s) if is_told else one
    return LastCheck(record.compared_at_s, tuple(kept.values()))


def keys(entries: Sequence[Drift]) -> list[tuple[str, str]]:
    return [(one.key, one.class_.value) for one in entries]


@pytest.mark.parametrize(
    ("before", "now", "new", "changed", "gone", "lasting"),
    [
        ([an_entry()], [an_entry()], [], [], [], ["failed"]),
        ([an_entry()], [], [], [], ["failed"], []),
        ([], [an_entry()], ["failed"], [], [], []),
        # the class makes it another drift
        ([an_entry()], [an_entry(class_="missing", job=None)], ["missing"], [], ["failed"], []),
        # another job of the same class, or other changes, do not
        ([an_entry(job="j1")], [an_entry(job="j2")], [], ["failed"], [], []),
        ([edited("y")], [edited("z")], [], ["modified"], [], []),
        # the detail may contain the phase of a running job
        ([an_entry(detail="Creating")], [an_entry(detail="Running")], [], [], [], ["failed"]),
        ([an_entry(node_hours=1.0)], [an_entry(node_hours=2.0)], [], [], [], ["failed"]),
        # several of one class: each job is its own
        (
            [an_entry("a", "orphaned", "j1"), an_entry("a", "orphaned", "j2")],
            [an_entry("a", "orphaned", "j2"), an_entry("a", "orphaned", "j3")],
            [], ["orphaned"], [], ["orphaned"],
        ),
        (
            [an_entry("a", "orphaned", "j1")],
            [an_entry("a", "orphaned", "j1"), an_entry("a", "orphaned", "j2")],
            ["orphaned"], [], [], ["orphaned"],
        ),
        # a third active revision beside two
        (
            [an_entry("a", "duplicate", "j1", others=("j2",))],
            [an_entry("a", "duplicate", "j1", others=("j2", "j3"))],
            [], ["duplicate"], [], [],
        ),
        # unreadable drift is neither new nor gone
        ([], [an_entry(class_="unknown")], [], [], [], []),
        ([an_entry(class_="unknown")], [], [], [], [], []),
    ],
)  # fmt: skip
def test_drift_since_the_last_check_is_classified(
    before: list[Drift],
    now: list[Drift],
    new: list[str],
    changed: list[str],
    gone: list[str],
    lasting: list[str],
) -> None:
    last = after(check(NO_CHECK, *before))
    compared = check(last, *now, at_s=NOW + HOUR)
    groups = (compared.new, compared.changed, compared.gone, compared.lasting)
    assert [[one.class_.value for one in group] for group in groups] == [new, changed, gone, lasting]
    assert compared.compared_with_s == NOW
    assert [one.class_.value for one in compared.due] == [*new, *changed]
    # The store has each drift once, and no ended drift.
    assert {one.id for one in after(compared, last).standing} == {one.id for one in compared.standing}


def duplicate(job: str, *others: str) -> Drift:
    return an_entry("a", "duplicate", job, others=others)


@pytest.mark.parametrize(
    ("before", "now", "is_kept"),
    [
        (an_entry(), an_entry(), True),
        (edited("y"), edited("z"), True),
        # another job that failed is another event; a third active job beside two is not
        (an_entry(job="j1"), an_entry(job="j2"), False),
        (duplicate("j2", "j1"), duplicate("j3", "j1", "j2"), True),
    ],
)
def test_since_of_changed_drift_is_its_first_check(before: Drift, now: Drift, is_kept: bool) -> None:
    last = after(check(NO_CHECK, before))
    compared = check(last, now, at_s=NOW + HOUR)
    [standing] = compared.standing
    assert standing.entry.since == timestamp(standing.since_s) == timestamp(NOW if is_kept else NOW + HOUR)
    last = after(compared, last)
    gone = check(last, at_s=NOW + 9 * HOUR)
    assert gone.gone[0].since == standing.entry.since
    again = check(after(gone, last), now, at_s=NOW + 10 * HOUR)
    assert again.new[0].since == timestamp(NOW + 10 * HOUR)


def test_unreadable_key_keeps_its_drift_and_is_not_new_afterwards() -> None:
    last = after(check(NO_CHECK, an_entry("a"), an_entry("b")))
    unread = check(last, an_entry("a", "unknown"), is_judged=lambda key: key != "a")
    assert keys(unread.gone) == [("b", "failed")]
    last = after(unread, last)
    back = check(last, an_entry("a"), at_s=NOW + HOUR)
    assert (back.new, back.changed, back.gone, keys(back.lasting)) == ((), (), (), [("a", "failed")])
    assert back.standing[0].since_s == NOW


@pytest.mark.parametrize(("hours", "is_due"), [(1, False), (24, False), (24.1, True), (48, True)], ids=str)
def test_lasting_drift_is_due_again_once_remind_is_over(hours: float, is_due: bool) -> None:
    last = after(check(NO_CHECK, an_entry()))
    for _ in range(2):  # checks between two reports change nothing
        compared = check(last, an_entry(), at_s=NOW + hours * HOUR)
        assert bool(compared.due) is is_due
        last = after(compared, last, is_reported=False)


def test_report_settles_all_standing_drift() -> None:
    last = after(check(NO_CHECK, an_entry("a")))
    last = after(check(last, an_entry("a"), an_entry("b"), at_s=NOW + 20 * HOUR), last)
    assert not check(last, an_entry("a"), an_entry("b"), at_s=NOW + 30 * HOUR).due
    assert len(check(last, an_entry("a"), an_entry("b"), at_s=NOW + 45 * HOUR).due) == 2


def test_drift_with_a_failed_notification_stays_due_and_sets_the_exit_code_on_schedule() -> None:
    last = after(check(NO_CHECK, an_entry()), is_reported=False)
    codes = []
    for hours in (1, 23, 25, 26, 47, 49, 50):
        compared = check(last, an_entry(), at_s=NOW + hours * HOUR, notified={"failed"})
        assert keys(compared.due) == [("a", "failed")]
        codes.append(len(compared.reported))
        last = after(compared, last, is_reported=False)
    assert codes == [0, 0, 1, 0, 0, 1, 0]


@pytest.mark.parametrize(
    ("others", "notified"),
    [([], {"missing"}), ([an_entry("b", "unknown")], {"failed"})],
    ids=["that no notification tells of", "of a check that could not judge everything"],
)
def test_drift_is_reported_by_the_next_exit_code(others: list[Drift], notified: set[str]) -> None:
    last = after(check(NO_CHECK, an_entry("a"), *others), is_reported=False)
    compared = check(last, an_entry("a"), at_s=NOW + 60, notified=notified)
    assert (compared.new, keys(compared.reported)) == ((), [("a", "failed")])


def test_ignored_drift_is_in_no_list_and_is_new_when_its_rule_ends() -> None:
    shown = check(NO_CHECK, an_entry())
    hidden = check(NO_CHECK, ignored=[an_entry()])
    for before in (shown, hidden):
        compared = check(after(before), ignored=[an_entry()])
        assert (compared.gone, compared.new, compared.lasting, compared.due) == ((), (), (), ())
    assert (hidden.new, check(after(hidden)).gone) == ((), ())
    found = check(after(hidden), an_entry(), at_s=NOW + HOUR)
    assert keys(found.new) == [("a", "failed")]
    assert found.new[0].since == timestamp(NOW)


def test_check_with_an_unreadable_predecessor_reports_nothing_as_new() -> None:
    compared = check(LastCheck(problem="it is damaged"), an_entry())
    assert (compared.new, compared.changed, compared.gone, compared.due) == ((), (), (), ())
    assert (compared.problem, compared.standing[0].entry.since) == ("it is damaged", timestamp(NOW))


def test_secret_in_a_change_is_in_no_content() -> None:
    content = content_of(edited("tell-nobody-1"), lambda text: text.replace("tell-nobody-1", "***"))
    assert "tell-nobody-1" not in content
    assert "***" in content


classes = st.sampled_from(["failed", "modified", "orphaned", "unknown"])
jobs = st.sampled_from(["j1", "j2", "j3", None])
entries = st.builds(an_entry, st.sampled_from("ab"), classes, jobs)
looks = st.lists(entries, max_size=4, unique_by=lambda one: (one.key, one.class_, one.job))


@given(st.lists(st.tuples(looks, st.sets(st.sampled_from("ab")), st.booleans()), max_size=6))
def test_sequence_of_checks_reports_each_drift_once_and_loses_none(
    rows: list[tuple[list[Drift], set[str], bool]],
) -> None:
    last = NO_CHECK
    for number, (look, unread, is_reported) in enumerate(rows):
        look = [one for one in look if one.key not in unread or one.class_.value == "unknown"]
        compared = check(last, *look, at_s=NOW + number, is_judged=lambda key, un=unread: key not in un)
        counted = [one for one in look if one.class_.value != "unknown"]
        assert sorted(keys(compared.visible)) == sorted(keys(counted))
        lists = [*compared.new, *compared.changed, *compared.lasting]
        assert len(lists) == len({(one.key, one.class_, one.job) for one in lists})
        assert not {one.key for one in compared.gone} & unread
        carried = {one.id for one in last.standing if one.entry.key in unread and one.counts}
        last = after(compared, last, is_reported=is_reported)
        assert carried <= {one.id for one in last.standing}
        assert all(one.since_s <= NOW + number for one in last.standing)
