"""A headless Chromium, driven over a pipe by the DevTools protocol, without further dependencies.

Source: https://chromedevtools.github.io/devtools-protocol/
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_SWITCHES = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
    "--remote-debugging-pipe",
]
_PATIENCE_S = 30.0


def installed() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """A tab; `requests` are the requested URLs, `errors` the console errors."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.call(method, parameters, self._session)

    def show(self, text: str, file: Path) -> Page:
        """Write a page to a file, open it, and wait until it is loaded."""
        file.write_text(text, encoding="utf-8")
        return self.open(file)

    def open(self, file: Path, scheme: str = "light") -> Page:
        """Open a page, and wait until it is loaded."""
        self.emulate(scheme)
        self._browser.events.clear()
        self.call("Page.navigate", url=file.as_uri())
        self._browser.wait_for("Page.loadEventFired")
        return self

    def run(self, script: str, **how: Any) -> Any:
        """Evaluate an expression; return its value from JSON."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, **how)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for_frame(self) -> None:
        script = "new Promise((done) => { requestAnimationFrame(() => requestAnimationFrame(done)) })"
        self.run(script, awaitPromise=True)

    def press(self, key: str, code: int, text: str = "") -> None:
        about = {"key": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", **about, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    def emulate(self, scheme: str, media: str = "screen") -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)

    @property
    def requests(self) -> list[str]:
        """URLs requested since the page was opened."""
        self.run("0")  # earlier events have arrived by now
        sent = (e["params"] for e in self._browser.events if e["method"] == "Network.requestWillBeSent")
        return [one["request"]["url"] for one in sent]

    @property
    def errors(self) -> list[str]:
        """Console errors: failed scripts, and violations of the page's policy."""
        self.run("0")
        return [
            json.dumps(event["params"])
            for event in self._browser.events
            if event["method"] in ("Runtime.exceptionThrown", "Log.entryAdded")
        ]


class Browser:
    def __init__(self, reader: int, writer: int) -> None:
        self._reader, self._writer, self._buffer, self._number = reader, writer, b"", 0
        self.events: list[dict[str, Any]] = []
        os.set_blocking(reader, False)

    def page(self) -> Page:
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        return Page(self, session)

    def call(self, method: str, parameters: dict[str, Any], session: str | None = None) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        message |= {"sessionId": session} if session else {}
        os.write(self._writer, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                result: dict[str, Any] = answer["result"]
                return result

    def wait_for(self, method: str) -> None:
        while not any(event["method"] == method for event in self.events):
            self._read()

    def _read(self) -> dict[str, Any]:
        """Return the next message; keep it if it is an event."""
        ends_at = time.monotonic() + _PATIENCE_S
        while b"\0" not in self._buffer:
            assert time.monotonic() < ends_at, "the browser does not answer"
            try:
                read = os.read(self._reader, 1 << 20)
            except BlockingIOError:
                time.sleep(0.002)
                continue
            assert read, "the browser has ended"
            self._buffer += read
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        if "method" in message:
            self.events.append(message)
        return message


@contextmanager
def started(program: str, profile: Path) -> Iterator[Browser]:
    """Run a browser with its own profile until the block ends."""
    from_us, to_browser = os.pipe()
    from_browser, to_us = os.pipe()

    def at_their_places() -> None:
        """Move the pipe to descriptors 3 and 4, which the protocol uses."""
        kept = [fcntl.fcntl(one, fcntl.F_DUPFD, 10) for one in (from_us, to_us)]
        for place, one in enumerate(kept, 3):
            os.dup2(one, place)

    process = subprocess.Popen(
        [program, *_SWITCHES, f"--user-data-dir={profile}", "about:blank"],
        pass_fds=(3, 4),
        preexec_fn=at_their_places,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(from_us)
    os.close(to_us)
    try:
        yield Browser(from_browser, to_browser)
    finally:
        process.terminate()
        process.wait(10)
        os.close(from_browser)
        os.close(to_browser)
