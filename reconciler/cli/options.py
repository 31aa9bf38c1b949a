"""The options that mean the same everywhere, each with a variable RECONCILER_<OPTION>.

Source: docs/cli.md, "Options".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from reconciler.cli.completions import guards, keys, target_names, variable_names
from reconciler.cli.final_outputs import OutputSpec as OutputSpec
from reconciler.cli.final_outputs import final_outputs
from reconciler.cli.terminal.console import console
from reconciler.render import Content, formats_of
from reconciler.text import parse_duration

if TYPE_CHECKING:
    from reconciler.decide.plan import Allowances

    ParamType = click.ParamType[Any]
else:  # generic in newer versions of click only
    ParamType = click.ParamType

F = TypeVar("F", bound=Callable[..., Any])


class DurationType(ParamType):
    """A span of time such as 90s, 2m or 1h30m; seconds in the program."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it."""
        try:
            return parse_duration(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class LeaseType(DurationType):
    """A span of time that a lock can be held for: shorter ones end between two signs of life."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it."""
        seconds = super().convert(value, param, ctx)
        if seconds < 1:
            self.fail("a lease must be at least 1s", param, ctx)
        return seconds


class FiniteRange(click.FloatRange):
    """A number in a range, which `nan` and `inf` never are."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it."""
        number: float = super().convert(value, param, ctx)
        if not isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


class OnePerLine(ParamType):
    """In the environment variable one a line, for each may hold spaces."""

    def split_envvar_value(self, rv: str) -> list[str]:
        """Split the lines; empty ones are none."""
        return [line for line in rv.replace("\r\n", "\n").split("\n") if line]


class AssignmentType(OnePerLine):
    """NAME=VALUE."""

    name = "name=value"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Split it."""
        if isinstance(value, tuple):
            return value
        name, equals, text = str(value).partition("=")
        if not equals or not name:
            # The text may be a secret, so it is not shown.
            self.fail("write NAME=VALUE", param, ctx)
        return name, text

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The names of the variables."""
        return variable_names(ctx, incomplete)


class KeysType(ParamType):
    """Keys or globs with commas between them; a key cannot hold one."""

    name = "keys"

    def split_envvar_value(self, rv: str) -> list[str]:
        """Split at spaces and commas."""
        return rv.replace(",", " ").split()

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Split them. An empty key is refused: a variable without a value must not mean every key."""
        if isinstance(value, tuple):
            return value
        keys = tuple(key.strip() for key in str(value).split(","))
        if not all(keys):
            self.fail(f"{value!r} has an empty key", param, ctx)
        return keys


def _joined(ctx: click.Context, param: click.Parameter, value: Sequence[Sequence[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key for keys in value for key in keys))


class GuardType(ParamType):
    """A guard to let pass: its name, or lost-work=KEY. In the environment commas or spaces divide several."""

    name = "guard"

    def split_envvar_value(self, rv: str) -> list[str]:
        """Split the words."""
        return rv.replace(",", " ").split()

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check that there is such a guard."""
        from reconciler.decide.plan import Allowances

        try:
            Allowances.of([str(value)])
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return str(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The guards."""
        return guards(ctx, incomplete)


class OutputType(OnePerLine):
    """FORMAT[=FILE], with the formats that can render a content."""

    name = "format[=file]"

    def __init__(self, content: Content) -> None:
        self._content = content

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> OutputSpec:
        """Split it, and check the format."""
        if isinstance(value, OutputSpec):
            return value
        name, equals, file = str(value).partition("=")
        if name not in (known := formats_of(self._content)):
            self.fail(f"{name!r} is not one of {', '.join(known)}", param, ctx)
        if equals and not file:
            self.fail("a file name is missing after =", param, ctx)
        return OutputSpec(name, Path(file) if file else None)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The formats."""
        return [CompletionItem(name) for name in formats_of(self._content) if name.startswith(incomplete)]


def option(*names: str, **settings: Any) -> Callable[[F], F]:
    """A click option that can be given by its environment variable too."""
    long = next(name for name in names if name.startswith("--"))
    variable = "RECONCILER_" + long.split("/")[0].removeprefix("--").upper().replace("-", "_")
    return click.option(*names, envvar=variable, **settings)


def _set(attribute: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def callback(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        if value is not None:
            setattr(console, attribute, value)

    return callback


def _no_colour(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        console.colour = "never"


def _no_pager(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    console.may_page = not value


def _eager(attribute: str) -> dict[str, Any]:
    return {"expose_value": False, "is_eager": True, "callback": _set(attribute)}


COMMON: Sequence[Callable[[Any], Any]] = (
    option(
        "-v",
        "--verbose",
        count=True,
        default=0,
        help="Verbose output; -vv also logs each request.",
        **_eager("verbosity"),
    ),
    option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        help="Log format on stderr.",
        **_eager("log_format"),
    ),
    option(
        "--color",
        type=click.Choice(["auto", "always", "never"]),
        default="auto",
        help="When to use colours; auto: only on a terminal.",
        **_eager("colour"),
    ),
    option("--no-color", is_flag=True, expose_value=False, callback=_no_colour, help="Disable colours."),
    option(
        "--no-pager",
        is_flag=True,
        expose_value=False,
        callback=_no_pager,
        help="Do not use a pager for long output.",
    ),
)

#: How variables get their values.
VARIABLES: Sequence[Callable[[Any], Any]] = (
    option("--var", "variables", multiple=True, type=AssignmentType(), help="Set a variable; repeatable."),
    option(
        "--var-file",
        "var_files",
        multiple=True,
        type=click.Path(path_type=Path),
        help="Read variables from a YAML file; repeatable.",
    ),
)

STACK: Sequence[Callable[[Any], Any]] = (
    click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path(path_type=Path)),
    *VARIABLES,
)

RECORDS = option(
    "--records",
    default=None,
    metavar="URL",
    help="Record store (lock, journal, history), such as postgresql://…; default: as in the manifest.",
)

WITHOUT_RECORDS = option(
    "--without-records",
    is_flag=True,
    help="Work without lock, journal and history if their store is unavailable.",
)

TARGET_NAME = option(
    "-t",
    "--target",
    default=None,
    metavar="NAME",
    shell_complete=target_names,
    help="Target of the manifest to use.",
)
ONLY = option(
    "--only",
    multiple=True,
    type=KeysType(),
    callback=_joined,
    shell_complete=keys,
    metavar="KEY[,KEY...]",
    help="Only these keys, or declared keys that match a glob; repeatable.",
)
#: How a target is worked on, and what is written down of it.
_WORK: Sequence[Callable[[Any], Any]] = (
    option(
        "--parallelism",
        type=click.IntRange(1, 64),
        default=8,
        show_default=True,
        help="Maximum number of concurrent operations.",
    ),
    RECORDS,
    WITHOUT_RECORDS,
)
TARGET: Sequence[Callable[[Any], Any]] = (*STACK, TARGET_NAME, ONLY, *_WORK)
#: The same for a command whose first arguments are no paths.
TARGET_OF_KEYS: Sequence[Callable[[Any], Any]] = (*VARIABLES, TARGET_NAME, *_WORK)

LOCK: Sequence[Callable[[Any], Any]] = (
    option(
        "--lease",
        "lease_s",
        type=LeaseType(),
        default="60s",
        show_default=True,
        help="How long the lock is kept after its holder died.",
    ),
)


class GoalType(ParamType):
    """What to wait for."""

    name = "goal"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read it."""
        from reconciler.decide.wait import Goal

        if value not in (Goal.RUNNING.value, Goal.COMPLETED.value):
            self.fail(f"{value!r} is not one of running, completed", param, ctx)
        return Goal(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The goals."""
        return [CompletionItem(name) for name in ("completed", "running") if name.startswith(incomplete)]


WAIT = option(
    "--wait",
    "goal",
    default=None,
    metavar="[running|completed]",
    type=GoalType(),
    help="Then wait until every declared job gets there; start retries and dependent jobs meanwhile.",
)


def remind(text: str) -> Callable[[Any], Any]:
    """--remind: after how long drift that lasts is said again; `text` tells what is done with it."""
    return option("--remind", "remind_s", type=DurationType(), default="24h", show_default=True, help=text)


OUT = option(
    "--out",
    "plan_file",
    default=None,
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Save the plan, for `reconciler apply --plan FILE`.",
)


def _note_outputs(
    ctx: click.Context, param: click.Parameter, value: Sequence[OutputSpec]
) -> Sequence[OutputSpec]:
    final_outputs.ask(ctx.info_name or "", value)
    return value


def output(content: Content) -> Sequence[Callable[[Any], Any]]:
    """The options that say in which formats something is shown, and where."""
    return (
        option("--json", "as_json", is_flag=True, help="JSON on stdout; same as -o json."),
        option(
            "-o",
            "--output",
            "outputs",
            multiple=True,
            type=OutputType(content),
            # Before an option that is wrong ends the run, which metrics have to tell.
            is_eager=True,
            callback=_note_outputs,
            help=f"Output format ({', '.join(formats_of(content))}), and file unless stdout; repeatable.",
        ),
    )


TIMEOUT = option(
    "--timeout",
    "timeout_s",
    type=DurationType(),
    default="10m",
    show_default=True,
    help="How long to wait for each job.",
)
YES = option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
FORCE = option("--force", is_flag=True, help="Override safety guards; not policies.")
GUARDS: Sequence[Callable[[Any], Any]] = (
    option(
        "--allow",
        multiple=True,
        metavar="GUARD",
        type=GuardType(),
        help="Override one guard: lost-work (or lost-work=KEY), reruns (or reruns=KEY), budget, "
        "terminations, found-nothing, empty; repeatable. Policies cannot be overridden.",
    ),
    FORCE,
)
DETAILED = option("--detailed-exitcode", is_flag=True, help="Exit 2 if there are changes.")
SHOW_KEEP = option("--show-keep", is_flag=True, help="Also list unchanged jobs.")


def allowances(allow: Sequence[str], *, force: bool) -> Allowances:
    """What the options of GUARDS allow."""
    from reconciler.decide.plan import Allowances

    return Allowances.of(allow, force=force)


def with_options(*groups: Sequence[Callable[[Any], Any]] | Callable[[Any], Any]) -> Callable[[F], F]:
    """Put options on a command, in the order in which `--help` shows them."""
    options = [o for group in groups for o in (group if isinstance(group, Sequence) else (group,))]

    def decorate(function: F) -> F:
        for add in reversed([*options, *COMMON]):
            function = add(function)
        return function

    return decorate
