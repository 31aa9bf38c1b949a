"""`reconciler adopt`: make unmanaged jobs revisions of declared keys."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from reconciler.cli.completions import keys
from reconciler.cli.options import (
    LOCK,
    TARGET_OF_KEYS,
    TIMEOUT,
    YES,
    OutputSpec,
    option,
    output,
    with_options,
)
from reconciler.cli.terminal.console import console
from reconciler.cli.terminal.interrupts import Interrupt, abortable
from reconciler.errors import Diagnostic, WrongUsage
from reconciler.render import Content
from reconciler.text import printable, printable_lines

if TYPE_CHECKING:
    from reconciler.cli.context import StackOptions
    from reconciler.cli.execution import ApplyRequest
    from reconciler.core.entry_patch import EntryPatch
    from reconciler.job_declaration import JobDeclaration
    from reconciler.manifests import LoadedStack

_USAGE = "KEY JOB_ID [PATH]..., --all [PATH]... or --from-stack OLD [PATH]..."


class AdoptRequest(NamedTuple):
    """What is to be adopted: one job, all that match a glob, or what a stack owned under its old name."""

    words: tuple[str, ...]
    accept: bool = False
    every: bool = False
    pattern: str | None = None
    old: str | None = None
    written_to: str | None = None

    @property
    def is_of_one_job(self) -> bool:
        """Whether KEY and JOB_ID are meant."""
        return not self.every and self.old is None

    @property
    def paths(self) -> tuple[Path, ...]:
        """Where the stack is. A directory behind --write is such a place."""
        paths = tuple(map(Path, self.words[2:] if self.is_of_one_job else self.words))
        is_place = self.written_to and Path(self.written_to).is_dir()
        return (*paths, Path(self.written_to)) if self.written_to and is_place else paths

    @property
    def file(self) -> Path | None:
        """The file that is to hold the entry; None: the root file."""
        is_file = self.written_to and not Path(self.written_to).is_dir()
        return Path(self.written_to) if self.written_to and is_file else None

    @property
    def question(self) -> str:
        """What is asked before anything is done."""
        if self.old is not None:
            return f"Take over what stack {self.old} owns?"
        if self.written_to is not None:
            return f"Write the entry, and adopt this job as {self.words[0]}?"
        return f"Adopt this job as {self.words[0]}?" if self.is_of_one_job else "Adopt these jobs?"

    def check(self) -> None:
        """See that the options fit one another.

        Raises:
            WrongUsage: they do not.
        """
        if self.every and self.old is not None:
            raise _wrong("--all and --from-stack are two ways to choose jobs")
        if self.pattern is not None and not self.every:
            raise _wrong("--match chooses among the jobs of --all")
        if self.old is not None and self.accept:
            raise _wrong("--from-stack compares nothing, so there is nothing for --accept")
        if self.written_to is not None:
            self._check_it_can_be_written()
        if self.is_of_one_job and len(self.words) < 2:
            raise _wrong("a key and the id of a job are needed")

    def _check_it_can_be_written(self) -> None:
        if self.accept or not self.is_of_one_job:
            raise _wrong("--write declares one job as it is")
        if self.file is not None and self.file.suffix not in (".yaml", ".yml"):
            raise _wrong(f"--write {self.file}: no manifest file; without FILE it stands last")


def _wrong(why: str) -> WrongUsage:
    return WrongUsage(Diagnostic("wrong arguments", why, f"reconciler adopt {_USAGE}"))


@click.command("adopt")
@with_options(
    click.argument("words", nargs=-1, metavar="[KEY JOB_ID] [PATH]...", shell_complete=keys),
    option("--accept", is_flag=True, help="Take a job as it is where it differs from its declaration."),
    option(
        "--write",
        "written_to",
        is_flag=False,
        flag_value="",
        default=None,
        metavar="[FILE]",
        help="Add an entry for the job to FILE of the stack (default: its root file), comments kept.",
    ),
    option(
        "--all", "every", is_flag=True, help="Adopt each unmanaged job that has a name of a declared key."
    ),
    option("--match", "pattern", default=None, metavar="GLOB", help="With --all: only jobs of such a name."),
    option(
        "--from-stack",
        "old",
        default=None,
        metavar="OLD",
        help="Adopt all that stack OLD owns of the declared keys: the stack was renamed.",
    ),
    TARGET_OF_KEYS,
    output(Content.PLAN),
    YES,
    TIMEOUT,
    LOCK,
)
def command(
    words: Sequence[str],
    accept: bool,
    written_to: str | None,
    every: bool,
    pattern: str | None,
    old: str | None,
    outputs: Sequence[OutputSpec],
    as_json: bool,
    yes: bool,
    timeout_s: float,
    **options: Any,
) -> int:
    """Make an unmanaged job the next revision of KEY; nothing restarts.

    The job must equal the declaration. Where it differs, the differences are shown, and the YAML that would
    remove them; --accept takes the job as it is. Its description becomes the declared one, with the marker.
    """
    from reconciler.cli.execution import ApplyRequest, nothing_done
    from reconciler.core.record import RunKind

    request = AdoptRequest(tuple(words), accept, every, pattern, old, written_to)
    asked = ApplyRequest("", RunKind.ADOPT, outputs, as_json, yes, timeout_s)
    with nothing_done(asked):
        request.check()
    asked = asked._replace(question=request.question)
    opening: Any = {**options, "paths": request.paths, "only": ()}
    if old is not None:
        return _rename_stack(old, asked, opening)
    return _adopt(request, asked, opening) if written_to is None else _declare(request, asked, opening)


def _adopt(request: AdoptRequest, asked: ApplyRequest, opening: StackOptions) -> int:
    from reconciler.adoption import adopt_all_plan, adopt_plan
    from reconciler.cli.context import opened
    from reconciler.cli.execution import carry_out, hold_lock, nothing_done

    interrupt = Interrupt()
    with ExitStack() as cleanup:
        with nothing_done(asked), abortable(interrupt):
            context = cleanup.enter_context(opened(stop=interrupt.stop, **opening))
            context = context._replace(is_applied=True)
            hold = hold_lock(cleanup, context, interrupt)
            if request.every:
                adoption = adopt_all_plan(context, request.pattern or "*", takes_as_is=request.accept)
            else:
                key, job_id, *_ = request.words
                adoption = adopt_plan(context, key, job_id, takes_as_is=request.accept)
        code = carry_out(context, adoption.plan, asked, hold)
        _show_patches(adoption.patches, asked)
        return code


def _declare(request: AdoptRequest, asked: ApplyRequest, opening: StackOptions) -> int:
    from reconciler.cli.context import opened
    from reconciler.cli.execution import carry_out, hold_lock, nothing_done
    from reconciler.job_declaration import declare_job, file_to_edit
    from reconciler.manifests.load import load_files
    from reconciler.manifests.sources.files import find_stack

    key, job_id, *_ = request.words
    var_files = list(opening["var_files"])
    interrupt = Interrupt()
    with ExitStack() as cleanup:
        with nothing_done(asked), abortable(interrupt):
            context = cleanup.enter_context(opened(stop=interrupt.stop, **opening))
            context = context._replace(is_applied=True)
            files = find_stack([context.loaded.root], var_files)
            document = file_to_edit(files, request.file)

            def load(edited: Mapping[Path, bytes], values: Mapping[str, str]) -> LoadedStack:
                missing = {name: value for name, value in values.items() if name not in os.environ}
                return load_files(
                    files.edited(edited),
                    variables={**missing, **dict(opening["variables"])},
                    var_files=var_files,
                    environ=os.environ,
                    learn=console.redact.learn,
                    target=opening["target"],
                )

            hold = hold_lock(cleanup, context, interrupt)
            declared = declare_job(
                context, key, job_id, files, document, load, lambda text: console.redact(text) != text
            )
        plan = declared.adoption.plan
        if plan.applyable:
            _show_entry(declared, asked)
            asked = asked._replace(on_confirmed=declared.write)
        return carry_out(declared.context, plan, asked, hold)


def _show_entry(declared: JobDeclaration, asked: ApplyRequest) -> None:
    from reconciler.manifests.yaml.writer import yaml_text

    shown = f"{printable(declared.document.file)} gets:\n\n{printable_lines(yaml_text(declared.tree))}\n"
    if asked.tells_events:
        console.say(shown)
    else:
        console.result(shown)


def _rename_stack(old: str, asked: ApplyRequest, opening: StackOptions) -> int:
    from reconciler.adoption import check_old_name, move_plan, old_scope, take_over_history
    from reconciler.cli.context import opened
    from reconciler.cli.execution import carry_out, hold_lock, nothing_done

    interrupt = Interrupt()
    with ExitStack() as cleanup:
        with nothing_done(asked), abortable(interrupt):
            context = cleanup.enter_context(opened(offline=True, stop=interrupt.stop, **opening))
            context = context._replace(is_applied=True)
            check_old_name(context, old)
            hold = hold_lock(cleanup, context, interrupt, old_scope(context, old))
            move = move_plan(context, old)
        if move.forgotten:
            asked = asked._replace(on_confirmed=lambda: take_over_history(context, move))
        return carry_out(context, move.plan, asked, hold)


def _show_patches(patches: Sequence[EntryPatch], asked: ApplyRequest) -> None:
    """Show the YAML that would make entries equal to their jobs: below the plan, or on stderr beside JSON."""
    from reconciler.manifests.yaml.writer import yaml_text

    for patch in patches:
        head = f"To declare the job of {patch.key} as it is, merge this into its entry"
        if patch.says_null:
            head += " (null: leave the field out)"
        text = yaml_text(patch.tree)
        shown = f"\n{printable(head)}:\n\n{printable_lines(text)}"
        if asked.tells_events:
            console.say(shown)
        else:
            console.result(shown)
