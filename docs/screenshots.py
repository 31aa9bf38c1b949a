"""Make the screenshots of docs/images: `python -m docs.screenshots`; it needs Chromium.

They show the plan of the golden files and histories that are always the same, so that they change only when
the pages or the text do.
"""

from __future__ import annotations

import base64
import io
import sys
import tempfile
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from reconciler.decide.history import make_timeline
from reconciler.render import Content, Style, View, render
from reconciler.render.timeline import render_timeline
from tests.render.browser import Page, installed, started
from tests.render.recorded_histories import a_quarter
from tests.render.test_golden import every_action

IMAGES = Path(__file__).parent / "images"
_WIDTH, _WIDE = 1000, 1280
_COLUMNS = 110
_TERMINAL = """\
<!DOCTYPE html><meta charset="utf-8"><title>{title}</title>
<body style="margin: 0; padding: 16px; background: {background}; color: {foreground}">
<pre style="margin: 0; font: 14px/1.35 'DejaVu Sans Mono', monospace"><b>$ {title}</b>
{code}</pre>
"""


class Shot(NamedTuple):
    """A page, and how it is shown: its colour scheme, its size, and what is done with it first."""

    name: str
    html: str
    scheme: str
    height: int
    script: str = ""
    width: int = _WIDTH


def shots() -> Iterator[Shot]:
    """The plan as a page in each colour scheme, its first change unfolded; on a terminal; a history over
    time.
    """
    plan = render(Content.PLAN, every_action(), "html", View(digest=f"sha256:{'0' * 64}"))
    unfold = "document.querySelector('details').open = true"
    for scheme in ("light", "dark"):
        yield Shot(f"plan-{scheme}.png", plan, scheme, 800, unfold)
    yield Shot("plan-terminal.png", terminal_page("reconciler plan"), "dark", 640)
    timeline = render_timeline(make_timeline(a_quarter()))
    for scheme in ("light", "dark"):
        yield Shot(f"timeline-{scheme}.png", timeline, scheme, 1060, width=_WIDE)


def terminal_page(command: str) -> str:
    """The text of the plan, as a terminal with dark colours shows it."""
    text = render(Content.PLAN, every_action(), "text", View(Style(colour=True, width=_COLUMNS)))
    terminal = Console(record=True, file=io.StringIO(), width=_COLUMNS, force_terminal=True)
    terminal.print(Text.from_ansi(text), end="")
    code = terminal.export_html(theme=MONOKAI, inline_styles=True, code_format="{code}")
    background, foreground = MONOKAI.background_color.hex, MONOKAI.foreground_color.hex
    return _TERMINAL.format(title=escape(command), code=code, background=background, foreground=foreground)


def take(page: Page, shot: Shot, directory: Path) -> None:
    """Open a page, and keep what it looks like."""
    size = {"width": shot.width, "height": shot.height, "deviceScaleFactor": 1, "mobile": False}
    page.call("Emulation.setDeviceMetricsOverride", **size)
    page.call("Emulation.setScrollbarsHidden", hidden=True)
    page.show(shot.html, directory / "page.html").emulate(shot.scheme)
    if shot.script:
        page.run(shot.script)
    page.wait_for_frame()
    image = page.call("Page.captureScreenshot", format="png")["data"]
    (IMAGES / shot.name).write_bytes(base64.b64decode(image))
    sys.stderr.write(f"wrote {shot.name}\n")


def main() -> int:
    """Write all images."""
    program = installed()
    if program is None:
        sys.stderr.write("needs Chromium (Debian: apt install chromium)\n")
        return 1
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as directory, started(program, Path(directory, "profile")) as browser:
        page = browser.page()
        for shot in shots():
            take(page, shot, Path(directory))
    return 0


if __name__ == "__main__":
    sys.exit(main())
