"""The page of a history: what is in it, and, in a headless Chromium, what a reader can do with it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.record import PastAction, PastRevision
from reconciler.decide.history import HistoryExcerpt, Timeline
from reconciler.render.timeline import render_timeline
from tests.render.browser import Page
from tests.render.recorded_histories import (
    AT_S,
    DAY_S,
    HOUR_S,
    a_quarter,
    a_revision,
    a_run,
    nightly,
    timeline_of,
)
from tests.render.test_hostile_text import CORPUS, HARMLESS, check_html, check_no_control
from tests.render.test_html import (
    Elements,
    check_contrasts,
    check_self_contained,
    contrast,
    keys_shown,
    type_filter,
)

STYLE = Path(__file__).parents[2] / "reconciler/render/page/timeline.css"
STATES = (
    *("queued", "running", "terminating", "completed", "failed", "abnormal", "terminated"),
    *("outside", "unknown"),
)


@pytest.fixture(scope="module")
def quarter() -> Timeline:
    return timeline_of(a_quarter())


@pytest.fixture(scope="module")
def page_text(quarter: Timeline) -> str:
    return render_timeline(quarter)


def data_of(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data


def page_of(*revisions: PastRevision) -> str:
    return render_timeline(timeline_of(HistoryExcerpt(None, (), revisions)))


# ── what is in it ──────────────────────────────────────────────────────────────────────────────────


def test_page_says_in_words_what_it_shows(quarter: Timeline, page_text: str) -> None:
    rows = [row["data-key"] for row in Elements(page_text).named("tr") if "data-key" in row]
    assert rows == [lane.key for lane in quarter.lanes]
    for words in (
        "3 revisions: 1 running, 1 completed, 1 terminated elsewhere; r3 running 2026-10-24T23:59:48Z; "
        "marked: 4 updated, 1 terminated elsewhere",
        "10 keys, 1,062 revisions: 1 queued, 1 running, 1,030 completed, 17 failed, 11 abnormal, "
        "1 terminated elsewhere, 1 released. 5 changes outside of an apply.",
        "1,056 drift checks: 1,035 no drift, 15 drift, 6 unknown",
        "102 runs: 99 complete, 3 partial",
    ):
        assert f">{words}<" in page_text
    text = render_timeline(quarter._replace(hidden_revisions=1_200, hidden_runs=1))
    assert "Not shown: 1,200 older revisions and 1 older run." in text
    assert "Nothing is recorded yet." in page_of()


def test_legend_names_what_occurs_and_nothing_else() -> None:
    text = page_of(a_revision("a", 1, AT_S - HOUR_S))
    assert re.findall(r'aria-hidden="true">.*?</span>(.*?)</li>', text) == ["queued", "completed"]


def test_page_loads_nothing_and_allows_only_its_own_script_and_style(page_text: str) -> None:
    check_self_contained(page_text)
    assert len(re.findall("http(?!s://modelarts.cn-north-4.|-equiv)", page_text)) == 0


def test_numbers_are_those_of_the_history(quarter: Timeline, page_text: str) -> None:
    data = data_of(page_text)
    for lane, (bars, marks) in zip(quarter.lanes, data["lanes"], strict=True):
        assert [bar[0] for bar in bars] == [bar.number for bar in lane.bars]
        assert [data["begin"] + bar[1] for bar in bars] == [round(bar.begin_s) for bar in lane.bars]
        assert [data["states"][bar[4]][0] for bar in bars] == [bar.state for bar in lane.bars]
        assert [data["marks"][mark[0]][0] for mark in marks] == [mark.kind for mark in lane.marks]
    assert [run[0] for run in data["runs"]] == [run.id for run in quarter.runs]
    odd = page_of(a_revision("a", 2, AT_S - HOUR_S, name="made-by-hand"))
    assert "made-by-hand" in data_of(odd)["texts"]


# ── hostile text and secrets ───────────────────────────────────────────────────────────────────────


def history_with(text: str) -> HistoryExcerpt:
    """One key, in whose history each text from outside is this one."""
    about = dict.fromkeys(("who", "where", "command", "commit"), text)
    actions = (
        PastAction(f"k{text}", "create", "not_found", "failed", text, code=text),
        PastAction(f"k{text}", text, text, text, text),
    )
    about |= {"kind": f"k{text}", "result": f"r{text}"}
    run = a_run(1, AT_S - DAY_S, **about, summary={text: 1}, actions=actions)
    seen: Any = {"phase_text": f"p{text}", "phases": (("Failed", AT_S), (text, AT_S))}
    one = a_revision(f"k{text}", 1, AT_S - HOUR_S, name=text, digest=text, **seen)
    return HistoryExcerpt(None, (run,), (one,))


def page_with(text: str, redact: Any = str) -> str:
    timeline = timeline_of(history_with(text))
    target = timeline.target.model_copy(update={"name": f"t{text}", "endpoint": text, "project_id": text})
    return render_timeline(timeline._replace(stack=f"s{text}", target=target, key=f"k{text}"), redact)


@pytest.mark.parametrize("name", CORPUS)
def test_nothing_that_was_recorded_is_obeyed(name: str) -> None:
    text = page_with(CORPUS[name])
    check_no_control(text)
    check_html(text, page_with(HARMLESS))
    data, plain = data_of(text), data_of(page_with(HARMLESS))
    assert data.keys() == plain.keys()
    assert all(isinstance(one, str) for one in data["texts"])


# ── colours ────────────────────────────────────────────────────────────────────────────────────────


def colours(number: int) -> dict[str, str]:
    base = (STYLE.parent / "page.css").read_text(encoding="utf-8")
    of_page = STYLE.read_text(encoding="utf-8")
    found: dict[str, str] = {}
    for style in (base, of_page):
        found |= dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", style.split(":root")[number + 1]))
    return found


@pytest.mark.parametrize("number", [0, 1, 2], ids=["light", "dark", "print"])
def test_each_state_stands_out_and_its_letter_is_readable_on_it(number: int) -> None:
    found = colours(number)
    for state in STATES:
        assert contrast(found[state], found["panel"]) >= 3, state
        assert contrast(found[state], found["back"]) >= 4.5, state
        assert contrast(found["ink"], found[state]) >= 4.5, state


# ── in a browser ────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def opened(browser_page: Page, page_text: str, tmp_path: Path) -> Page:
    return show(browser_page, page_text, tmp_path)


def show(page: Page, text: str, directory: Path) -> Page:
    resize(page, 1280)
    return page.show(text, directory / "history.html")


def resize(page: Page, width: int) -> None:
    page.call(
        "Emulation.setDeviceMetricsOverride", width=width, height=1000, deviceScaleFactor=1, mobile=False
    )


def settled(page: Page) -> Page:
    page.wait_for_frame()
    return page


def bars(page: Page, key: str) -> list[str]:
    script = f"[...document.querySelectorAll('[data-key={key}] [data-kind=bar]')].map(g => g.dataset.state)"
    return list(settled(page).run(script))


def title_of(page: Page, key: str, kind: str = "bar") -> str:
    """What the first bar or mark of a lane explains to whoever points at it."""
    script = f"document.querySelector('[data-key={key}] [data-kind={kind}] title').textContent"
    return str(settled(page).run(script))


def span_days(page: Page) -> float:
    return float(settled(page).run("(view.to - view.from) / 86400"))


def test_bars_and_marks_are_drawn_and_explained_and_nothing_is_fetched(opened: Page) -> None:
    assert bars(opened, "llm-pretrain") == ["terminated elsewhere", "completed", "running"]
    assert "failed" in bars(opened, "asr-zh-nightly")
    assert [address.rpartition("/")[2] for address in opened.requests] == ["history.html"]
    assert opened.errors == []
    count = "document.querySelectorAll('[data-key=llm-pretrain] {}').length"
    assert opened.run(count.format("path.wait")) == 3
    assert opened.run(count.format("[data-kind=mark]")) == 5
    assert opened.run("document.querySelectorAll('[data-runs=checks] .item.bad').length") > 0
    lines = title_of(opened, "llm-pretrain").split("\n")
    assert lines[0] == "llm-pretrain r1: terminated elsewhere"
    assert lines[1].startswith("created 2026-08-27 23:59:48 UTC by apply #")
    assert lines[2].startswith("queued 52.8 h, ran 19 d, ended 2026-09-18")
    assert title_of(opened, "llm-pretrain", "mark").startswith("llm-pretrain: updated\n2026-09-03")


def test_filter_shows_keys_that_have_all_words(opened: Page) -> None:
    type_filter(opened, "llm")
    assert keys_shown(opened) == ["llm-align", "llm-pretrain", "llm-reward"]
    assert opened.run("shown.value") == "3 of 10"
    type_filter(opened, "terminated elsewhere")
    assert keys_shown(opened) == ["llm-pretrain"]
    type_filter(opened, "no such key")
    assert keys_shown(opened) == []
    assert opened.run("document.getElementById('nothing').hidden") is False
    type_filter(opened, "")
    assert len(keys_shown(opened)) == 10


def click(page: Page, selector: str) -> None:
    page.run(f"document.querySelector({selector!r}).click()")


def test_buttons_zoom_and_a_key_lists_its_revisions(opened: Page) -> None:
    whole = span_days(opened)
    click(opened, "#zoom-in")
    assert span_days(opened) == pytest.approx(whole / 2)
    click(opened, "#zoom-out")
    assert span_days(opened) == pytest.approx(whole)
    click(opened, '[data-days="7"]')
    assert span_days(opened) == pytest.approx(7)
    assert opened.run("document.querySelector('[aria-pressed=true]').textContent") == "7 d"
    assert 6 <= len(bars(opened, "asr-zh-nightly")) <= 9
    click(opened, "#everything")
    assert span_days(opened) == pytest.approx(whole)
    opened.run("document.querySelector('[data-key=llm-pretrain] .key').focus()")
    opened.press("Enter", 13, "\r")
    rows = opened.run("[...document.querySelectorAll('.detail tbody tr')].map(r => r.textContent)")
    assert len(rows) == 3 + 5
    assert rows[0].startswith("r3running2026-10-24")
    assert opened.errors == []


def odd_page() -> str:
    """More revisions at one time than are drawn side by side, a long name, and one without any time."""
    many = [a_revision("many", number, AT_S - 9 * HOUR_S + 60 * number) for number in range(1, 14)]
    times = {"created_at_s": None, "started_at_s": None, "duration_s": None, "seen_at_s": AT_S - HOUR_S}
    return page_of(*many, a_revision("timeless", 1, AT_S, **times), a_revision("a" * 58, 1, AT_S - DAY_S))


def test_no_revision_hides_another_and_one_without_a_known_creation_says_so(
    browser_page: Page, tmp_path: Path
) -> None:
    page = settled(show(browser_page, odd_page(), tmp_path))
    drawn = "document.querySelectorAll('[data-key=many] [data-kind=bar]')"
    assert page.run(f"[...{drawn}].map(one => Number(one.dataset.count))") == [1] * 7 + [6]
    assert page.run(f"[...{drawn}].at(-1).querySelector('text').textContent") in ("C ×6", "C")
    click(page, "[data-key=timeless] .key")
    assert "before 2026-11-21 07:40:00 UTC" in page.run("document.querySelector('.detail').textContent")
    assert "first seen 2026-11-21 07:40:00 UTC" in title_of(page, "timeless")


@pytest.mark.parametrize("width", [360, 500, 1280])
def test_nothing_is_cut_off(browser_page: Page, tmp_path: Path, width: int) -> None:
    page = show(browser_page, odd_page(), tmp_path)
    resize(page, width)
    for _ in range(6):
        labels = (
            "(() => { const right = document.querySelector('#axis').getBoundingClientRect().right;"
            " return [...document.querySelectorAll('#axis text')]"
            ".filter(one => one.getBoundingClientRect().right > right).map(one => one.textContent) })()"
        )
        assert settled(page).run(labels) == []
        click(page, "#zoom-in")
    heights = "[...document.querySelectorAll('.group button')].map(one => one.offsetHeight).filter(Boolean)"
    assert len(set(page.run(heights))) == 1
    assert page.run("document.documentElement.scrollWidth") <= width
    long = "a" * 58
    assert page.run(f"document.querySelector('[data-key={long}] .key').title") == long


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(opened: Page, scheme: str) -> None:
    opened.emulate(scheme)
    click(opened, "[data-key=llm-pretrain] .key")
    check_contrasts(settled(opened), at_least=100)


def test_print_shows_every_lane_and_no_controls(browser_page: Page, tmp_path: Path) -> None:
    page = show(browser_page, render_timeline(timeline_of(nightly(100, 3))), tmp_path)
    page.run("window.dispatchEvent(new Event('beforeprint'))")
    page.emulate("light", "print")
    assert len(bars(page, "training-099")) == 3
    assert page.run("document.querySelector('.controls').offsetHeight") == 0
    page.run("window.dispatchEvent(new Event('afterprint'))")
    assert page.run("view.width") > 860


def test_without_scripts_the_page_is_a_table_of_words(
    browser_page: Page, page_text: str, tmp_path: Path
) -> None:
    browser_page.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        page = show(browser_page, page_text, tmp_path)
        heights = page.run("[...document.querySelectorAll('[data-key] .words')].map(one => one.offsetHeight)")
        assert min(heights) > 10
        assert page.run("document.querySelector('.controls').offsetHeight") == 0
    finally:
        browser_page.call("Emulation.setScriptExecutionDisabled", value=False)


def test_hostile_text_is_shown_and_does_nothing(browser_page: Page, tmp_path: Path) -> None:
    hostile = "<img src=x onerror=window.harmed=1></script><script>window.harmed=1</script>"
    page = show(browser_page, page_with(hostile), tmp_path)
    settled(page).run("document.querySelectorAll('.key').forEach(one => one.click())")
    assert page.run("window.harmed") is None
    assert page.errors == []
    assert hostile in page.run("document.querySelector('.detail').textContent + document.body.textContent")
