"""Take screenshots with Chromium:

    python -m docs.screenshots              # those of docs/images
    python -m docs.screenshots DIRECTORY    # what the site looks like

Those of docs/images show the output for a small stack, and a fixed history, so that they change only when the
pages or the text do.
"""

from __future__ import annotations

import base64
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple, TextIO
from unittest import mock

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from docs.doc_runner import PageRun
from reconciler.cli import console
from reconciler.decide.history import make_timeline
from reconciler.render import Style
from reconciler.render.timeline import render_timeline
from tests.render.browser import Page, installed, started
from tests.render.recorded_histories import a_quarter

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs/images"
#: Pages of the site: the home, a step, a guide, pages with much code and with tables, and translations.
SITE_PAGES = (
    *("index", "start/first-job", "guides/sweep", "reference/manifest", "reference/exit-codes"),
    *("zh/index", "zh/guides/sweep"),
)
SITE_WIDTHS = (1280, 420)
_WIDTH, _WIDE = 1000, 1280
_COLUMNS = 110
#: A stack, and an edit of it while its jobs run.
_STORY = """\
```yaml
# base/jobs.yaml
apiVersion: reconciler/v1
stack: vision
targets: {local: {kind: local}}
defaults:
  algorithm:
    code_dir: obs://vision/code/
    boot_file: obs://vision/code/train.py
    engine: {engine_id: pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64}
    environments: {EMULATOR_RUN_SECONDS: "86400"}
  spec: {resource: {flavor_id: modelarts.vm.gpu.8v100, node_count: 2}}
jobs:
  classifier:
    algorithm: {parameters: {lr: 0.01}}
  segmenter:
    algorithm: {parameters: {lr: 0.01}}
    lifecycle: {protect: true}
  detector:
    description: baseline
    algorithm: {parameters: {lr: 0.01}}
  tokenizer:
    algorithm: {parameters: {vocabulary: 32000}}
```

```sh
reconciler apply --yes base
sleep 2400
cp -R base head && cp -R base/.reconciler head
sed -i -e '/tokenizer/,$d' -e '/classifier/,/segmenter/s/0.01/0.003/' head/jobs.yaml
sed -i -e 's/baseline/baseline, two nodes/' head/jobs.yaml
printf '  embedder: {needs: [classifier]}\\n  ranker: {}\\n' >> head/jobs.yaml
reconciler review base head -o html=review.html
reconciler plan -o html=plan.html head
```

```sh
reconciler plan head
```

```text
```
"""
_TERMINAL = """\
<!DOCTYPE html><meta charset="utf-8"><title>{title}</title>
<body style="margin: 0; padding: 16px; background: {background}; color: {foreground}">
<pre style="margin: 0; font: 14px/1.35 'DejaVu Sans Mono', monospace"><b>$ {title}</b>
{code}</pre>
"""


class Shot(NamedTuple):
    """A page to capture, with colour scheme, size, and an action to do first."""

    name: str
    html: str
    scheme: str
    height: int
    script: str = ""
    width: int = _WIDTH


def shots(directory: Path) -> Iterator[Shot]:
    """The plan on a terminal and as a page, the review of the same change, and a history over time."""
    directory.mkdir()
    with mock.patch.object(console.Console, "style", _as_on_a_terminal):
        page = PageRun(directory).run_again(_STORY)
    printed = page.rpartition("```text\n")[2].removesuffix("```\n")
    yield Shot("plan-terminal.png", terminal_page("reconciler plan", printed), "dark", 314, width=880)
    timeline = render_timeline(make_timeline(a_quarter()))
    unfold = "document.querySelector('details').open = true"
    for scheme in ("light", "dark"):
        yield Shot(f"plan-{scheme}.png", (directory / "plan.html").read_text(), scheme, 800, unfold)
        yield Shot(f"review-{scheme}.png", (directory / "review.html").read_text(), scheme, 800, unfold)
        yield Shot(f"timeline-{scheme}.png", timeline, scheme, 690, width=_WIDE)


def _as_on_a_terminal(of: console.Console, stream: TextIO) -> Style:
    return Style(colour=True, width=_COLUMNS, redact=of.redact)


def terminal_page(command: str, printed: str) -> str:
    """Return a page that shows a command and its output like a dark terminal."""
    terminal = Console(record=True, file=io.StringIO(), width=_COLUMNS, force_terminal=True)
    terminal.print(Text.from_ansi(printed), end="")
    code = terminal.export_html(theme=MONOKAI, inline_styles=True, code_format="{code}")
    background, foreground = MONOKAI.background_color.hex, MONOKAI.foreground_color.hex
    return _TERMINAL.format(title=escape(command), code=code, background=background, foreground=foreground)


def take(page: Page, shot: Shot, directory: Path) -> None:
    """Open a page, and save a screenshot."""
    _resize(page, shot.width, shot.height)
    page.show(shot.html, directory / "page.html").emulate(shot.scheme)
    if shot.script:
        page.run(shot.script)
    _keep(page, IMAGES / shot.name)


def take_site(page: Page, site: Path, directory: Path) -> None:
    """Save screenshots of some pages of the site: wide and narrow, light and dark."""
    for name in SITE_PAGES:
        for width in SITE_WIDTHS:
            _resize(page, width, 1400)
            for scheme in ("light", "dark"):
                # The page remembers its last settings, including the colours.
                page.open(site / f"{name}.html", scheme).run("localStorage.clear()")
                page.open(site / f"{name}.html", scheme)
                _keep(page, directory / f"{name.replace('/', '-')}-{width}-{scheme}.png")


def _resize(page: Page, width: int, height: int) -> None:
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    page.call("Emulation.setDeviceMetricsOverride", **size)
    page.call("Emulation.setScrollbarsHidden", hidden=True)


def _keep(page: Page, path: Path) -> None:
    page.wait_for_frame()
    image = page.call("Page.captureScreenshot", format="png")["data"]
    path.write_bytes(base64.b64decode(image))
    sys.stderr.write(f"wrote {path.name}\n")


def build_site(directory: Path) -> Path:
    """Build the site for reading from disk."""
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(directory)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "OFFLINE": "true"}, check=True)  # noqa: S603
    return directory


def main(arguments: list[str]) -> int:
    """Write all images, or those of the site into a directory."""
    program = installed()
    if program is None:
        sys.stderr.write("needs Chromium (Debian: apt install chromium)\n")
        return 1
    with tempfile.TemporaryDirectory() as directory, started(program, Path(directory, "profile")) as browser:
        page = browser.page()
        if arguments:
            Path(arguments[0]).mkdir(parents=True, exist_ok=True)
            take_site(page, build_site(Path(directory, "site")), Path(arguments[0]))
            return 0
        IMAGES.mkdir(exist_ok=True)
        for shot in shots(Path(directory, "story")):
            take(page, shot, Path(directory))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
