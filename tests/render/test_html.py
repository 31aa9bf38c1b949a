"""The HTML page: its contents, and its behavior in a headless Chromium."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from reconciler.decide.plan import Action
from reconciler.render import Content, View, formats_of, render, render_part
from tests.render.browser import Page
from tests.render.test_fleet import a_fleet
from tests.render.test_golden import every_action
from tests.render.test_golden_files import VALUES
from tests.render.test_markdown import a_plan, an_action

PAGE = Path(__file__).parents[2] / "reconciler" / "render" / "page"


class Elements(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


@pytest.fixture(scope="module")
def page_text() -> str:
    return render(Content.PLAN, every_action(), "html", View())


def test_page_has_a_row_per_action_with_terminations_first(page_text: str) -> None:
    check_self_contained(page_text)
    rows = [row for row in Elements(page_text).named("tr") if "data-key" in row]
    expected = {(action.key, action.action.value) for action in every_action().actions}
    assert {(row["data-key"], row["data-action"]) for row in rows} == expected
    first = [row["data-action"] for row in rows[:5]]
    assert first == ["terminate", "replace", "replace", "conflict", "blocked"]


def check_self_contained(page_text: str) -> None:
    """Check that a page loads nothing, and allows only its own script and style."""
    elements = Elements(page_text)
    named = {name for _, attributes in elements.found for name in attributes}
    assert named & {"src", "href", "srcset", "action", "style", "background", "data", "poster"} == set()
    assert not [tag for tag, _ in elements.found if tag in ("link", "img", "iframe", "object", "base")]
    assert not re.search(r"url\(|@import", page_text)
    (policy,) = (meta["content"] or "" for meta in elements.named("meta") if "http-equiv" in meta)
    assert re.match("default-src 'none'; style-src 'sha256-(?!.*unsafe)", policy)


# ── contrast, by the colours of the style ───────────────────────────────────────────────────────────


def _luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours. Source: WCAG 2.2, "contrast ratio"."""
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("number", [0, 1, 2], ids=["light", "dark", "print"])
def test_every_colour_of_text_is_readable_on_every_background(number: int) -> None:
    style = (PAGE / "page.css").read_text(encoding="utf-8")
    colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", style.split(":root")[number + 1]))
    assert len(colours) >= 10
    for name, colour in colours.items():
        if name not in ("back", "panel", "line"):
            assert contrast(colour, colours["back"]) >= 4.5, name
            assert contrast(colour, colours["panel"]) >= 4.5, name


# ── in a browser ────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def opened(browser_page: Page, tmp_path: Path) -> Page:
    """The plan of every action, opened as a file, with markup in one key."""
    hostile = an_action(Action.BLOCKED, 1, detail="<img src=x onerror=window.harmed=1>")
    hostile = hostile.model_copy(update={"key": "<script>window.harmed=1</script>"})
    plan = a_plan([*every_action().actions, hostile])
    return browser_page.show(render(Content.PLAN, plan, "html", View()), tmp_path / "plan.html")


def keys_shown(page: Page) -> list[str]:
    script = (
        "[...document.querySelectorAll('tr[data-key]')].filter(r => r.offsetHeight).map(r => r.dataset.key)"
    )
    return list(page.run(script))


def type_filter(page: Page, text: str) -> None:
    page.run(
        f"f = document.getElementById('filter'); f.value = {text!r}; f.dispatchEvent(new Event('input'))"
    )


def test_page_fetches_nothing_and_runs_no_foreign_script(opened: Page) -> None:
    assert [address.rpartition("/")[2] for address in opened.requests] == ["plan.html"]
    assert opened.errors == []
    assert opened.run("window.harmed") is None
    assert len(keys_shown(opened)) == len(every_action().actions) + 1


@pytest.mark.parametrize("content", [one for one in Content if "html" in formats_of(one)])
def test_page_of_every_content_fetches_nothing_and_unfolds(
    browser_page: Page, tmp_path: Path, content: Content
) -> None:
    (make, *_) = VALUES[content].values()
    text = render(content, make(), "html", View(plan=every_action()))
    browser_page.show(text, tmp_path / "page.html")
    assert [address.rpartition("/")[2] for address in browser_page.requests] == ["page.html"]
    assert browser_page.errors == []
    assert len(keys_shown(browser_page)) == text.count("<tr data-key=")
    browser_page.run("document.getElementById('unfold').click()")
    assert browser_page.run("document.querySelectorAll('details:not([open])').length") == 0


def test_filter_shows_rows_containing_all_words(opened: Page) -> None:
    type_filter(opened, "replace discards")
    assert keys_shown(opened) == ["replace", "replace-first"]
    assert opened.run("document.getElementById('shown').value") == "2 of 13"
    type_filter(opened, "no such job")
    assert keys_shown(opened) == []
    type_filter(opened, "")
    assert len(keys_shown(opened)) == 13


#: Every visible text, with its colour and background.
CONTRASTS = """
[...document.querySelectorAll('body *')].filter(e => e.offsetHeight && [...e.childNodes].some(
  n => n.nodeType === 3 && n.textContent.trim())).map(e => {
    let at = e, back = 'rgba(0, 0, 0, 0)';
    while (back === 'rgba(0, 0, 0, 0)' && at) {
      back = getComputedStyle(at).backgroundColor;
      at = at.parentElement;
    }
    return [e.tagName, getComputedStyle(e).color, back];
})
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(opened: Page, scheme: str) -> None:
    opened.emulate(scheme)
    opened.run("document.getElementById('unfold').click()")
    backs = check_contrasts(opened, at_least=50)
    assert ("#ffffff" in backs) is (scheme == "light")


def check_contrasts(page: Page, *, at_least: int) -> set[str]:
    """Check the contrast of every visible text; return the background colours."""
    found = [(tag, hex_of(colour), hex_of(back)) for tag, colour, back in page.run(CONTRASTS)]
    assert len(found) > at_least
    assert [one for one in found if contrast(*one[1:]) < 4.5] == []
    return {back for _, _, back in found}


def hex_of(colour: str) -> str:
    """Convert the browser's `rgb(…)` to `#rrggbb`."""
    red, green, blue = map(int, re.findall(r"\d+", colour)[:3])
    return f"#{red:02x}{green:02x}{blue:02x}"


def test_print_shows_all_changes_and_no_controls(opened: Page) -> None:
    opened.run("window.dispatchEvent(new Event('beforeprint'))")
    opened.emulate("light", "print")
    assert opened.run("document.querySelectorAll('details:not([open])').length") == 0
    assert opened.run("document.querySelector('.controls').offsetHeight") == 0
    opened.run("window.dispatchEvent(new Event('afterprint'))")
    assert opened.run("document.querySelectorAll('details[open]').length") == 0


def test_fleet_page_has_one_filter_for_all_stacks(browser_page: Page, tmp_path: Path) -> None:
    page = browser_page.show(render(Content.FLEET, a_fleet(), "html", View()), tmp_path / "fleet.html")
    sections = "[...document.querySelectorAll('section')].filter(s => s.offsetHeight).length"
    everything = len(keys_shown(page))
    type_filter(page, "unknown field")
    assert (keys_shown(page), page.run(sections)) == (["b/failed"], 1)
    type_filter(page, "")
    assert (len(keys_shown(page)), page.run(sections)) == (everything, 3)


@pytest.mark.parametrize("content", list(VALUES))
def test_embeddable_part_has_rows_and_no_script(content: Content) -> None:
    if "html" in formats_of(content) and content is not Content.FLEET:
        (make, *_) = VALUES[content].values()
        view = View(plan=every_action())
        part = render_part(content, make(), "html", view)
        whole = render(content, make(), "html", view)
        assert part.count("<tr data-key=") == whole.count("<tr data-key=")
        assert not re.search("<(script|style|html|body|input|!)", part)
