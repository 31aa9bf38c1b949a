"""Writes results in the requested formats, immediately or at the end of the run."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from reconciler.cli.console import console
from reconciler.errors import SUCCESSES, Refused
from reconciler.files import append_file
from reconciler.render import FORMATS, PLAIN, Content, View, formats_of, render, render_run, step_outputs

if TYPE_CHECKING:
    from reconciler.decide.plan import Allowances, Plan
    from reconciler.reconcile import Context


class OutputSpec(NamedTuple):
    """A format and its file (None: stdout)."""

    format: str
    file: Path | None


class FinalOutputs:
    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Reset the state of the previous run."""
        self._started_s = time.monotonic()
        self._specs: dict[OutputSpec, None] = {}
        self._shown: tuple[Content, object, View] | None = None
        self._command = self._stack = self._target = ""
        self.notifications_failed = 0

    def ask(self, command: str, specs: Iterable[OutputSpec]) -> None:
        """Register the requested outputs, before anything can fail."""
        self._command = command
        self._specs |= {spec: None for spec in specs if FORMATS[spec.format].is_final}

    def about(self, stack: str, target: str | None) -> None:
        """Register the stack and target of the run, as soon as they are known."""
        self._stack, self._target = stack, target or ""

    def show(self, content: Content, value: object, view: View) -> None:
        """Register the value to write at the end. The last one wins."""
        self._shown = (content, value, view)

    def take(self) -> list[OutputSpec]:
        """Return the requested outputs to a command that writes them itself."""
        specs, self._specs = list(self._specs), {}
        return specs

    @property
    def is_asked_for(self) -> bool:
        return bool(self._specs)

    def finish(self, code: int) -> None:
        """Write the final outputs.

        Raises:
            OSError, WrongUsage: a file cannot be written.
        """
        if not self._specs:
            return
        from reconciler.decide.outcome import RunReport

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
        """Find the requested outputs on a command line that could not be parsed."""
        given, typed = os.environ.get("RECONCILER_OUTPUT", ""), option_values(args, "--output", "-o")
        parts = (text.partition("=") for text in (*given.split("\n"), *typed))
        specs = [OutputSpec(n, Path(file) if file else None) for n, _, file in parts if n in FORMATS]
        self.ask(command_in(args), specs)


def command_in(args: Sequence[str]) -> str:
    """Return the name of the command on a command line."""
    pairs = zip(args, ("", *args), strict=False)
    words = (word for word, before in pairs if before not in ("--color", "--log-format"))
    return next((word for word in words if not word.startswith("-")), "")


def option_values(args: Sequence[str], name: str, short: str | None = None) -> Iterator[str]:
    """Find the values of an option on a command line that could not be parsed."""
    words = args[: args.index("--")] if "--" in args else args
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word in (name, short):
            yield following
        elif word.startswith(f"{name}="):
            yield word.removeprefix(f"{name}=")
        elif short and word.startswith(short):
            yield word.removeprefix(short)


final_outputs = FinalOutputs()


def show_plan(
    plan: Plan, outputs: Sequence[OutputSpec], *, show_keep: bool = False, digest: str = ""
) -> None:
    """Write a plan to the outputs, and what refuses it or blocks keys to stderr.

    If stdout has the text, which shows the blocked keys, stderr does not repeat their details. `digest` is
    that of the plan's file, if it has one.
    """
    from reconciler.decide.guards import blockers

    final_outputs.about(plan.stack, plan.target.name)
    show(Content.PLAN, plan, outputs, View(show_keep=show_keep, digest=digest))
    console.diagnostics(blockers(plan, is_text_shown=OutputSpec("text", None) in outputs))


def save_plan(
    plan: Plan,
    context: Context,
    allowances: Allowances,
    records: str | None,
    outputs: Iterable[OutputSpec],
    file: Path | None = None,
) -> str:
    """Write a plan to a file, and return its digest. `records` is the value of `--records`.

    Without a file, a GitHub workflow gets the digest as if it were saved beside the root file: "" if that
    format was not requested, or the plan cannot be saved.
    """
    is_for_github = os.environ.get("GITHUB_OUTPUT") and any(spec.format == "github" for spec in outputs)
    if file is None and not is_for_github:
        return ""
    from reconciler.plan_file import digest_of_document, document_to_save, write_plan

    values: Any = {"records": records, "environ": os.environ, "redact": console.redact}
    with nullcontext() if file else suppress(Refused):
        document = document_to_save(plan, context, allowances, file, **values)
        if file is not None:
            write_plan(document, file)
        return digest_of_document(document)
    return ""


def requested_outputs(outputs: Sequence[OutputSpec]) -> list[OutputSpec]:
    """The requested outputs, with text on stdout unless another format goes there."""
    default = [] if any(spec.file is None for spec in outputs) else [OutputSpec("text", None)]
    return list(dict.fromkeys([*default, *outputs]))


def show(
    content: Content,
    value: object,
    outputs: Sequence[OutputSpec],
    view: View | None = None,
    *,
    before: tuple[Content, object] | None = None,
    is_redacted: bool = False,
) -> None:
    """Write a value to the outputs. Final formats are written at the end of the run.

    The value is the result of what was shown `before`, and follows it on stdout. A file holds both, or only
    the result; see `Format.is_whole`. `is_redacted`: its parts have been redacted already.
    """
    view = view or View()
    final_outputs.show(content, value, view)
    for spec in outputs:
        form = FORMATS[spec.format]
        if form.is_final or spec.format not in formats_of(content):
            continue
        text = _rendered(content, value, spec, view)
        if before is not None and not form.is_whole:
            above = "" if spec.file is None else _rendered(*before, spec, view)
            text = f"{above}\n{text}"
        if spec.file is None:
            console.result(text, is_redacted=is_redacted or form.redacts)
        else:
            console.write_file(spec.file, text, is_redacted=is_redacted or form.redacts)
    if any(spec.format == "github" for spec in outputs):
        _tell_github(content, value, view, is_result=before is not None)


def _rendered(content: Content, value: object, spec: OutputSpec, view: View) -> str:
    style = console.style(sys.stdout) if spec.file is None else PLAIN
    return render(content, value, spec.format, _completed(view)._replace(style=style))


def _completed(view: View) -> View:
    is_verbose = console.verbosity > 0
    return view._replace(redact=console.redact, verbose=is_verbose, directory=directory_in_repository())


def directory_in_repository() -> str:
    """The current directory relative to the repository of a GitHub workflow; "" elsewhere."""
    here = Path.cwd()
    top = os.environ.get("GITHUB_WORKSPACE")
    return here.relative_to(top).as_posix() if top and here.is_relative_to(top) else ""


def _tell_github(content: Content, value: object, view: View, *, is_result: bool) -> None:
    """Write step summary and step outputs."""
    view = _completed(view)
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        text = render(content, value, "markdown", view)
        append_file(Path(summary), console.encoded(text, is_redacted=True))
    if file := os.environ.get("GITHUB_OUTPUT"):
        text = step_outputs(content, value, view, is_result=is_result)
        append_file(Path(file), console.encoded(text, is_redacted=True))
