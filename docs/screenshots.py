"""Make the screenshots of docs/images: `python -m docs.screenshots`; it needs Chromium.

They show the plan of the golden files, so that they change only when the page does.
"""

from __future__ import annotations

import base64
import sys
import tempfile
from pathlib import Path

from reconciler.render import Content, render
from reconciler.render.style import View
from tests.render.browser import installed, started
from tests.render.test_golden import every_action

IMAGES = Path(__file__).parent / "images"
_SIZE = {"width": 1000, "height": 800, "deviceScaleFactor": 1, "mobile": False}


def main() -> int:
    """Open the page in each colour scheme, with the first change unfolded, and keep what it looks like."""
    program = installed()
    if program is None:
        sys.stderr.write("needs Chromium (Debian: apt install chromium)\n")
        return 1
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "plan.html")
        text = render(Content.PLAN, every_action(), "html", View(digest=f"sha256:{'0' * 64}"))
        file.write_text(text, encoding="utf-8")
        with started(program, Path(directory, "profile")) as browser:
            page = browser.page()
            page.call("Emulation.setDeviceMetricsOverride", **_SIZE)
            for scheme in ("light", "dark"):
                page.emulate(scheme)
                page.open(file.as_uri())
                page.run("document.querySelector('details').open = true")
                shot = page.call("Page.captureScreenshot", format="png")["data"]
                image = IMAGES / f"plan-{scheme}.png"
                image.write_bytes(base64.b64decode(shot))
                sys.stderr.write(f"wrote {image.name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
