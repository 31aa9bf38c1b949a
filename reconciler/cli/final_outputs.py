"""Outputs that say how the run ended: they are written when it has, and also where it failed.

Little is imported here: every command passes by.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from reconciler.cli.terminal.console import console
from reconciler.decide.metrics import RunReport
from reconciler.errors import SUCCESSES
from reconciler.render import FORMATS, Content, render, render_run
from reconciler.render.style import View


class OutputSpec(NamedTuple):
    """A format, and the file that it goes to (None: stdout)."""

    format: str
    file: Path | None


class _Shown(NamedTuple):
    """The last value that was shown."""

    content: Content
    value: object
    view: View


class FinalOutputs:
    """What a run has to write at its end."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """A run begins: forget the one before."""
        self._started_s = time.monotonic()
        self._specs: dict[OutputSpec, None] = {}
        self._shown: _Shown | None = None
        self._command = self._stack = self._target = ""
        self.notifications_failed = 0

    def ask(self, command: str, specs: Iterable[OutputSpec]) -> None:
        """Note what a command was asked for, before it does anything that may fail."""
        self._command = command
        self._specs |= {spec: None for spec in specs if FORMATS[spec.format].is_final}

    def about(self, stack: str, target: str | None) -> None:
        """Note which stack and target the run is about, as soon as that is known."""
        self._stack, self._target = stack, target or ""

    def show(self, content: Content, value: object, view: View) -> None:
        """Note what there is to show; what comes later counts."""
        self._shown = _Shown(content, value, view)

    def take(self) -> list[OutputSpec]:
        """Hand over what was asked for to a command that writes it itself, more than once."""
        specs, self._specs = list(self._specs), {}
        return specs

    @property
    def is_asked_for(self) -> bool:
        """Whether there is anything to write."""
        return bool(self._specs)

    def finish(self, code: int) -> None:
        """Write everything, now that the exit code is known.

        Raises:
            OSError, WrongUsage: a file cannot be written.
        """
        run = RunReport(
            command=self._command,
            stack=self._stack,
            target=self._target,
            is_success=code in SUCCESSES,
            ended_at_s=time.time(),
            duration_s=time.monotonic() - self._started_s,
            notifications_failed=self.notifications_failed,
        )
        for spec in self._specs:
            if self._shown is None:
                text = render_run(spec.format, View(redact=console.redact, run=run))
            else:
                content, value, view = self._shown
                text = render(content, value, spec.format, view._replace(redact=console.redact, run=run))
            if spec.file is None:
                console.result(text, is_redacted=True)
            else:
                console.write_file(spec.file, text, is_redacted=True)

    def find(self, args: Sequence[str]) -> None:
        """Take what is asked for from a command line that was too wrong to be parsed as far as that."""
        words = args[: args.index("--")] if "--" in args else args
        asked = [*os.environ.get("RECONCILER_OUTPUT", "").split("\n")]
        for word, following in zip(words, [*words[1:], ""], strict=True):
            if word in ("-o", "--output"):
                asked.append(following)
            asked += [word[len(start) :] for start in ("--output=", "-o") if word.startswith(start)]
        command = next((word for word in words if not word.startswith("-")), "")
        parts = [text.partition("=") for text in asked]
        found = [(name, Path(file) if file else None) for name, _, file in parts if name in FORMATS]
        self.ask(command, [OutputSpec(name, file) for name, file in found])


final_outputs = FinalOutputs()
