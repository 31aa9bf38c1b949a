"""The history page: its contents, and its rendering in a headless Chromium."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.past import PastAction, PastRevision, PastRun
from reconciler.decide.history import HistoryReport, make_timeline
from reconciler.render.history import COLOURS
from reconciler.render.timeline import render_timeline
from tests.render.browser import Page
from tests.render.recorded_histories import AT_S, DAY_S, HOUR_S, PROD, a_quarter, a_revision, a_run
from tests.render.test_hostile_text import CORPUS, HARMLESS, check_html, check_no_control
from tests.render.test_html import Elements, check_contrasts, check_self_contained, contrast

PAGES = Path(__file__).parents[2] / "reconciler/render/page"


@pytest.fixture(scope="module")
def page_text() -> str:
    return render_timeline(make_timeline(a_quarter()))


def page_of(*revisions: PastRevision, runs: tuple[PastRun, ...] = ()) -> str:
    return render_timeline(
        make_timeline(HistoryReport("vision", PROD, "", "0.1.0", AT_S, None, runs, revisions))
    )


def shapes(text: str, name: str) -> list[tuple[str, str]]:
    """Return the classes and labels of the shapes in a lane."""
    lane = text.split(f'<tr data-key="{name}">')[1].split("</tr>")[0]
    return re.findall(r'<rect class="([^"]*)".*?<title>(.*?)</title>', lane)


def test_lane_of_a_key_has_its_revisions_by_phase_and_its_marks(page_text: str) -> None:
    rows = [str(row["data-key"]) for row in Elements(page_text).named("tr") if "data-key" in row]
    assert (rows[:2], len(rows), rows[2:] == sorted(rows[2:])) == (["Applies", "Drift checks"], 12, True)
    found = shapes(page_text, "llm-pretrain")
    assert [look.split()[:2] for look, _ in found] == [
        *(["bar", phase] for phase in ("terminated", "completed", "running")),
        ["mark", "apply"],
        ["mark", "changed-outside"],
        *([["mark", "apply"]] * 3),
    ]
    assert found[0][1].startswith("r1 llm-pretrain: Terminated; created 2026-08-27T23:59:48Z, started ")
    assert found[3][1] == "apply 2026-09-03T00:00:48Z: update (mutable changed): priority 1 -&gt; 3"
    assert found[4][1].endswith("llm-pretrain was terminated, not by an apply")
    assert "10 keys, 1062 revisions." in page_text
    text = render_timeline(make_timeline(a_quarter())._replace(hidden_revisions=1_200, hidden_runs=1))
    assert "Not shown: 1200 older revisions and 1 older run." in text
    assert "Nothing is recorded yet." in page_of()


def test_applies_and_checks_have_a_lane_each(page_text: str) -> None:
    looks = [look for look, _ in shapes(page_text, "Drift checks")]
    assert {look: looks.count(look) for look in looks} == {"run green": 1035, "run yellow": 15, "run red": 6}
    assert "1035 no drift, 15 drift, 6 unknown" in page_text
    assert len(shapes(page_text, "Applies")) == 102


def test_each_end_of_a_run_is_drawn_as_the_legend_says() -> None:
    legend = re.findall(r'<span class="sample bar (run \w+)" aria-hidden="true"></span>([^<]+)', page_of())
    looks = {word: look for look, words in legend for word in words.split(", ")}
    ends = ["complete", "partial", "interrupted", "refused", "nothing to do", "unfinished"]
    assert looks.keys() == {*ends, "running", "drift", "no drift", "unknown"}
    for kind, lane, words in (("apply", "Applies", ends), ("drift", "Drift checks", ["drift", "unknown"])):
        for word in words:
            run = a_run(1, AT_S - 1, kind=kind, result=word if word != "unfinished" else "")
            assert [look for look, _ in shapes(page_of(runs=(run,)), lane)] == [looks[word]]
    assert looks["nothing to do"] not in {looks[word] for word in ends if word != "nothing to do"}


def test_bars_fit_the_page_and_short_ones_are_visible() -> None:
    text = page_of(a_revision("a", 1, AT_S - HOUR_S, duration_s=0.0), a_revision("b", 1, AT_S - 9 * DAY_S))
    for x, width in re.findall(r'x="([\d.]+)" width="([\d.]+)"', text):
        assert float(width) >= 2
        assert 0 <= float(x) <= 998


# ── hostile text and secrets ───────────────────────────────────────────────────────────────────────


def page_with(text: str, redact: Any = str) -> str:
    """Return a page of one key with this text for each foreign text."""
    about = dict.fromkeys(("who", "where", "command"), text)
    actions = (
        PastAction(f"k{text}", "create", "not_found", "failed", text, code=text),
        PastAction(f"k{text}", text, text, text, text),
    )
    about |= {"kind": f"k{text}", "result": f"r{text}"}
    run = a_run(1, AT_S - DAY_S, **about, summary={text: 1}, actions=actions)
    seen: Any = {"phase_text": f"p{text}", "phases": (("Failed", AT_S), (text, AT_S))}
    one = a_revision(f"k{text}", 1, AT_S - HOUR_S, name=text, digest=text, **seen)
    target = PROD.model_copy(update={"name": f"t{text}", "endpoint": text, "project_id": text})
    report = HistoryReport(f"s{text}", target, "", "0.1.0", AT_S, f"k{text}", (run,), (one,))
    return render_timeline(make_timeline(report), redact)


@pytest.mark.parametrize("name", CORPUS)
def test_recorded_text_is_sanitized_on_the_page(name: str) -> None:
    text = page_with(CORPUS[name])
    check_no_control(text)
    check_html(text, page_with(HARMLESS))


# ── how it looks ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("number", [0, 1, 2], ids=["light", "dark", "print"])
def test_each_state_is_distinguishable(number: int) -> None:
    found: dict[str, str] = {}
    for name in ("page.css", "timeline.css"):
        style = (PAGES / name).read_text(encoding="utf-8")
        found |= dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", style.split(":root")[number + 1]))
    names = {"queued", "running", "terminating", "completed", "failed", "abnormal", "terminated", "outside"}
    for name in (*names, "unknown", *set(COLOURS.values())):
        assert contrast(found[name], found["panel"]) >= 3, name


def test_page_loads_nothing_and_has_no_script(page_text: str) -> None:
    check_self_contained(page_text)
    assert "<script" not in page_text
    assert len(re.findall("http(?!s://modelarts.cn-north-4.|-equiv)", page_text)) == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_timeline_page_renders_in_a_browser(
    browser_page: Page, page_text: str, tmp_path: Path, scheme: str
) -> None:
    browser_page.show(page_text, tmp_path / "history.html").emulate(scheme)
    assert [address.rpartition("/")[2] for address in browser_page.requests] == ["history.html"]
    assert browser_page.errors == []
    bar = "document.querySelector('[data-key=llm-pretrain] .bar')"
    box = f"(b => [b.width, b.height])({bar}.getBoundingClientRect())"
    width, height = browser_page.run(box)
    assert width > 50
    assert height > 5
    assert browser_page.run(f"getComputedStyle({bar}).fill") != "rgb(0, 0, 0)"
    check_contrasts(browser_page, at_least=30)
