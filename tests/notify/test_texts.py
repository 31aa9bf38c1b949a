"""New drift first, by class, bounded, without foreign markup.

Source: docs/operations/watch.md, "Notifications".
"""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.decide.drift_check import Drift, DriftComparison
from reconciler.decide.outcome import Outcome, Status
from reconciler.notify import MOST_BYTES, MOST_TITLE, apply_notification, drift_notification, plain_text
from tests.builders import a_job, a_stack
from tests.core.test_decision_table import plan_for

ALL = ("missing", "failed", "terminated", "modified")


def drift(key: str, class_: str = "failed", detail: str = "it ended badly", **more: Any) -> Drift:
    return Drift.model_validate({"key": key, "class": class_, "detail": detail, **more})


def compared(new: tuple[Drift, ...] = (), lasting: tuple[Drift, ...] = (), **more: Any) -> DriftComparison:
    return DriftComparison(0.0, new=new, lasting=lasting, **{"due": (*new, *lasting), **more})


def test_new_drift_comes_first_and_each_class_together() -> None:
    new = (drift("b", "missing"), drift("c"), drift("a", "missing"))
    lasting = (drift("d", since="2026-11-20T00:00:00Z"),)
    notification = drift_notification(compared(new, lasting), ALL, "vision", "prod")
    assert notification is not None
    assert notification.title == "vision on prod: drift, 3 new, 1 lasting"
    assert notification.text.splitlines() == [
        "New:",
        "- missing (2)",
        "  b: it ended badly",
        "  a: it ended badly",
        "- failed (1)",
        "  c: it ended badly",
        "Lasting:",
        "- failed (1)",
        "  d: it ended badly (since 2026-11-20T00:00:00Z)",
    ]


@pytest.mark.parametrize(
    ("comparison", "classes", "is_sent"),
    [
        (compared((drift("a"),)), ("failed",), True),
        (compared((drift("a"),)), ("missing",), False),
        (compared(lasting=(drift("a"),)), ("failed",), True),
        (compared(lasting=(drift("a"),), due=()), ("failed",), False),
        (compared((drift("a", "missing"),), (drift("b"),), due=(drift("a", "missing"),)), ("failed",), False),
        (compared(gone=(drift("a"),)), ("failed",), False),
        (compared(), ALL, False),
    ],
)
def test_only_due_drift_of_the_classes_of_a_url_is_sent(
    comparison: DriftComparison, classes: tuple[str, ...], is_sent: bool
) -> None:
    assert (drift_notification(comparison, classes, "vision", "prod") is not None) is is_sent


def test_long_message_is_cut_by_whole_lines_and_says_so() -> None:
    many = tuple(drift(f"k{n}", detail="等待中" * 200) for n in range(500))
    notification = drift_notification(compared(many), ALL, "s", "t")
    assert notification is not None
    assert len(notification.text.encode()) <= MOST_BYTES
    *lines, last = notification.text.splitlines()
    assert last == f"… and {502 - len(lines)} more lines"
    titled = drift_notification(compared((drift("a"),)), ALL, "s" * 500, "t")
    assert titled is not None
    assert len(titled.title) == MOST_TITLE


@pytest.mark.parametrize(
    "hostile",
    [
        "<!channel> <script>alert(1)</script> <https://evil.example|click>",
        "@everyone @here [link](https://evil.example) ![](http://evil.example/x.png)",
        "*bold* `code` ~~gone~~ # heading || hidden || \\escape",
        "\x1b[31mred\n::error::text\r\n\u202eback",
    ],
)
def test_foreign_text_is_not_interpreted_as_markup(hostile: str) -> None:
    text = plain_text(hostile)
    assert not set("<>[]`*|~@\\!&#\n\r\x1b\u202e") & set(
        text.replace("\\x", "").replace("\\u", "").replace("\\n", "")
    )
    assert "https://" not in text
    assert "http://" not in text


def test_failed_apply_lists_each_action() -> None:
    first, second = plan_for(a_stack(a_job("a"), a_job("b"))).actions
    outcomes = [Outcome(first, Status.FAILED, message="quota <exceeded>"), Outcome(second, Status.DONE)]
    notification = apply_notification(outcomes, "vision", "prod")
    assert notification == (
        "vision on prod: apply failed, 1 of its actions",
        "create a: failed, quota ‹exceeded›",
    )
    assert apply_notification(outcomes[1:], "vision", "prod") is None
