"""A review as text and as a document."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from reconciler.core.stack import DesiredJob, Limits, Prices, Target
from reconciler.decide.review import Review, ReviewedSide, Side, make_review, merge_reviews
from reconciler.errors import Location
from reconciler.render import Content, Style, View, render
from tests.builders import a_job, a_stack, absent
from tests.render.test_golden import check

COMMIT = {"main": "51f1ccc977" + "c" * 30, "feature": "8184509627" + "c" * 30}
TARGETS = {"prod": Target.model_validate({"kind": "modelarts", "region": "cn-north-4", "project_id": "p"})}


def members(entry: str, count: int, **changed: Any) -> list[DesiredJob]:
    return [
        replace(a_job(f"{entry}-lr-{n}", algorithm__parameters={"lr": n}, **changed), sweep=entry)
        for n in range(count)
    ]


def side(name: str, *jobs: DesiredJob, **more: Any) -> Side:
    placed = [replace(job, location=Location(f"{name}:jobs.yaml", n, 3)) for n, job in enumerate(jobs, 1)]
    head = ReviewedSide(name=name, commit=COMMIT[name], stack="vision", manifest_digest=f"sha256:{name}")
    return Side(head, a_stack(*placed, **more), TARGETS, "prod", file_prefix=f"{name}:")


@cache
def every_change() -> Review:
    """One change of each kind, and a growing sweep."""
    protected = {"protect": True}
    four = {"flavor_id": "modelarts.p3.large", "node_count": 4}
    before = (
        a_job("blocked", lifecycle=protected),
        a_job("conflict"),
        a_job("keep"),
        a_job("old-name"),
        a_job("policy"),
        a_job("replace"),
        a_job("replace-first"),
        a_job("terminate", spec__resource=four),
        a_job("absent", kind="job", spec__resource=four),
        a_job("looks-removed", algorithm__command="a"),
        a_job("update"),
        *members("grown", 4),
        *members("edited", 12),
    )
    edit = {"algorithm__environments": {"API_TOKEN": "tell-nobody-1"}}
    after = (
        a_job("blocked", lifecycle=protected, **edit),
        a_job("conflict", lifecycle={"on_change": "fail"}, **edit),
        a_job("create", spec__auto_stop={"time_unit": "HOURS", "duration": 48}),
        a_job("keep"),
        replace(a_job("new-name"), formerly=("old-name",)),
        a_job("policy", lifecycle={"on_failure": "retry"}),
        a_job("replace", **edit),
        a_job("replace-first", lifecycle={"replace_order": "create_first", "on_change": "replace"}, **edit),
        a_job("looks-added", algorithm__command="a"),
        absent("absent"),
        a_job("update", description="the new words"),
        *members("grown", 64),
        *members("edited", 12, spec__resource=four),
    )
    limits = Limits.model_validate({"terminations": 9})
    return make_review(
        side("main", *before), side("feature", *after, limits=limits), target=None, version="0.0.0"
    )


def on_two_groups() -> Review:
    """Twice the nodes on each target, and an edit on one; with prices."""
    prices = Prices.model_validate({"currency": "CNY", "node_hour": {"cpu": 1.5}})
    one, two = ({"flavor_id": "cpu", "node_count": count} for count in (1, 2))
    found = []
    for name, lr in (("dev", 0.1), ("prod", 0.2), ("test", 0.1)):
        after = a_job("a", spec__resource=two, algorithm__parameters={"lr": lr})
        before = a_job("a", spec__resource=one, algorithm__parameters={"lr": 0.1})
        sides = side("main", before), side("feature", after, prices=prices)
        found.append(make_review(*sides, target=name, version="0.0.0"))
    return merge_reviews(found)


def text_of(before: list[DesiredJob], after: list[DesiredJob]) -> str:
    found = make_review(side("main", *before), side("feature", *after), target=None, version="1")
    return render(Content.REVIEW, found, "text", View())


def test_review_in_colour_matches_its_golden_file() -> None:
    check("review.ansi", render(Content.REVIEW, every_change(), "text", View(Style(colour=True))))


def test_review_without_changes_says_so() -> None:
    assert text_of([a_job()], [a_job()]) == (
        "Stack vision on prod: main (51f1ccc977) -> feature (8184509627)\n\nNodes: 1, unchanged.\n"
        "Review: 0 added, 0 removed, 0 renamed, 0 changed, 1 unchanged.\n"
    )


def test_renamed_jobs_of_a_sweep_are_shown_once_with_both_keys() -> None:
    after = [replace(job, key=f"new-{job.key}", formerly=(job.key,)) for job in members("s", 6)]
    text = text_of(members("s", 6), after)
    assert "~ update    6 jobs  formerly the job; the job continues" in text
    assert "s-lr-0 -> new-s-lr-0" in text


def test_many_flavors_are_counted() -> None:
    jobs = [a_job(f"j{n}", spec__resource={"flavor_id": f"f{n}"}) for n in range(25)]
    assert "  and 5 more flavors\n" in text_of([], jobs)
