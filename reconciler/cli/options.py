"""Options and arguments that commands share, each option with an environment variable RECONCILER_<OPTION>.

Source: docs/reference/cli.md, "Options".
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from reconciler.cli.console import console
from reconciler.cli.output import OutputSpec, final_outputs
from reconciler.render import Content, formats_of
from reconciler.text import parse_duration
from reconciler.version import __version__

if TYPE_CHECKING:
    from reconciler.decide.plan import Allowances
    from reconciler.modelarts.jobs import Moment

F = TypeVar("F", bound=Callable[..., Any])
Add = Callable[[Any], Any]


# --- parameter types


class Parsed(click.ParamType[Any]):
    """A parameter type from a parser, which raises ValueError.

    `split` splits the environment variable of a repeatable option.
    """

    def __init__(
        self, name: str, parse: Callable[[str], Any], *, split: Callable[[str], list[str]] | None = None
    ) -> None:
        self.name, self._parse, self._split = name, parse, split

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):  # a default, or parsed already
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def split_envvar_value(self, rv: str) -> list[str]:
        return list(self._split(rv) if self._split else super().split_envvar_value(rv))


def by_line(text: str) -> list[str]:
    """Split into non-empty lines: for values that may contain spaces."""
    return [line for line in text.replace("\r\n", "\n").split("\n") if line]


def by_word(text: str) -> list[str]:
    """Split at spaces and commas."""
    return text.replace(",", " ").split()


def at_least_1s(what: str) -> Callable[[str], float]:
    """Return a parser of durations of at least one second; `what` is named in its error."""

    def parse(text: str) -> float:
        if (seconds := parse_duration(text)) < 1:
            raise ValueError(f"{what}must be at least 1s")
        return seconds

    return parse


def _parse_assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        # The text may be a secret and must not be shown.
        raise ValueError("write NAME=VALUE")
    return name, value


def _parse_keys(text: str) -> tuple[str, ...]:
    """Parse keys or globs, separated by commas. An empty one is refused: it must not mean every key."""
    keys = tuple(key.strip() for key in text.split(","))
    if not all(keys):
        raise ValueError(f"{text!r} has an empty key")
    return keys


def _parse_guard(text: str) -> str:
    allowances([text], force=False)
    return text


def _parse_moment(text: str) -> Moment:
    from reconciler.modelarts.jobs import Moment

    return Moment.parse(text)


def _parse_phase(text: str) -> str:
    from reconciler.core.phase import phase_named

    return phase_named(text).value


OPERATORS = ("between", "like", "in", "not")


def _parse_filter(text: str) -> dict[str, Any]:
    r"""Parse KEY:OPERATOR:VALUE[,VALUE], a filter of the service's search; `\,` is a literal comma."""
    key, _, rest = text.partition(":")
    operator, colon, values = rest.partition(":")
    if not (key and colon and values):
        raise ValueError("write KEY:OPERATOR:VALUE[,VALUE], e.g. pool_id:in:pool-1,pool-2")
    if operator not in OPERATORS:
        raise ValueError(f'"{operator}" is not one of {", ".join(OPERATORS)}')
    return {"key": key, "operator": operator, "value": _split_values(values)}


def _parse_tag(text: str) -> dict[str, Any]:
    key, equals, values = text.partition("=")
    if not key or (equals and not values):
        raise ValueError("write KEY or KEY=VALUE[,VALUE]")
    return {"key": key, "values": _split_values(values) if equals else []}


def _parse_word(text: str) -> str:
    if not text:  # pathlib would take it for the current directory
        raise click.UsageError("An argument is empty.")
    return text


def _split_values(text: str) -> list[str]:
    # Not compiled at import: most commands have no filter.
    return [value.replace("\\,", ",") for value in re.split(r"(?<!\\),", text)]


class PathType(click.Path):
    """A path. An empty one is refused: pathlib takes it for the current directory."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("the path is empty", param, ctx)
        return super().convert(value, param, ctx)


FILE = PathType(path_type=Path, dir_okay=False)
ANY_PATH = PathType(path_type=Path)
#: An argument that may be a path or something else.
WORD = Parsed("text", _parse_word)
DURATION = Parsed("duration", parse_duration)
#: A time such as 2026-11-21 or 2026-11-21T08:00:00Z (default: UTC), or a duration before now.
MOMENT = Parsed("time", _parse_moment)


# --- options and commands


def option(names: str, text: str, dest: str | None = None, **settings: Any) -> Callable[[F], F]:
    """Make a click option with an environment variable.

    `names` is the left column of `--help`, such as "-t --target NAME". Defaults are shown there.
    """
    words = names.split()
    metavar = None if words[-1].startswith("-") else words.pop()
    variable = "RECONCILER_" + words[-1].removeprefix("--").upper().replace("-", "_")
    settings = {"metavar": metavar, "show_default": bool(settings.get("default")), **settings}
    return click.option(*words, *([dest] if dest else []), envvar=variable, help=text, **settings)


flag = partial(option, is_flag=True)
many = partial(option, multiple=True)


def _sets(attribute: str, *, flag_value: str | None = None, **settings: Any) -> dict[str, Any]:
    """Settings of an eager option that sets an attribute of the console, a flag to `flag_value`.

    It may be given before the command; if typed after it, that takes precedence. Among options of the same
    attribute the typed ones do.
    """

    def callback(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        if flag_value is not None:
            value = flag_value if value else None
        is_typed = ctx.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE
        if is_typed:  # click processes these first
            ctx.meta[attribute] = True
        if value is not None and (is_typed or (ctx.parent is None and attribute not in ctx.meta)):
            setattr(console, attribute, value)

    return {"expose_value": False, "is_eager": True, "show_default": False, "callback": callback, **settings}


_FORMATS, _WHEN = click.Choice(["text", "json"]), click.Choice(["auto", "always", "never"])


def common(*, hidden: bool = False) -> Sequence[Add]:
    """The options of every command. The help lists them once, so they are `hidden` in commands."""
    add, version = partial(option, hidden=hidden), "%(prog)s %(version)s"
    verbose = "Verbose output; -vv also logs each request."
    return (
        click.version_option(__version__, prog_name="reconciler", message=version, hidden=hidden),
        add("-v --verbose", verbose, count=True, **_sets("verbosity", default=0)),
        add("--log-format", "Log format on stderr.", type=_FORMATS, **_sets("log_format", default="text")),
        add(
            "--color",
            "When to use colours; auto: only on a terminal.",
            type=_WHEN,
            **_sets("colour", default="auto"),
        ),
        add("--no-color", "Disable colours.", is_flag=True, **_sets("colour", flag_value="never")),
    )


def command(
    name: str, *options: Sequence[Add] | Add, of: click.Group | None = None
) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a function a command, with its options in the order of `--help`."""

    def decorate(function: Callable[..., Any]) -> click.Command:
        groups = (one if isinstance(one, Sequence) else (one,) for one in (*options, common(hidden=True)))
        for add in reversed([add for group in groups for add in group]):
            function = add(function)
        return click.command(name)(function) if of is None else of.command(name)(function)

    return decorate


def group(name: str) -> Callable[[Callable[..., Any]], click.Group]:
    """Make a function a group of commands, before which the options of every command may stand."""
    settings = {"help_option_names": ["-h", "--help"]}

    def decorate(function: Callable[..., Any]) -> click.Group:
        for add in reversed(common(hidden=True)):
            function = add(function)
        return click.group(name, no_args_is_help=False, context_settings=settings)(function)

    return decorate


KEY = click.argument("key", metavar="KEY")
PATHS = click.argument("paths", nargs=-1, metavar="[PATH]...", type=ANY_PATH)

#: The options that give values to variables.
ASSIGNMENT = Parsed("name=value", _parse_assignment, split=by_line)
VARIABLES = (
    many("--var", "Set a variable; repeatable.", "variables", type=ASSIGNMENT),
    many("--var-file", "Read variables from a YAML file; repeatable.", "var_files", type=ANY_PATH),
)
STACK = (PATHS, *VARIABLES)
RECORDS = option(
    "--records URL",
    "Record store (lock, journal, history), such as postgresql://…; default: as in the manifest.",
)
WITHOUT_RECORDS = flag(
    "--without-records", "Work without lock, journal and history if their store is unavailable."
)


def _single(ctx: click.Context, param: click.Parameter, value: Sequence[str]) -> str | None:
    if len(value) > 1:
        raise click.UsageError(f"--target is given {len(value)} times: {', '.join(value)}.", ctx)
    return value[0] if value else None


#: Repeating it is wrong usage, rather than the last one winning.
TARGET_NAME = many(
    "-t --target NAME",
    "Target of the manifest to use.",
    type=Parsed("name", str, split=lambda text: [text]),
    callback=_single,
)
#: Stack and target, for a command whose arguments end in PATH….
WHERE = (*STACK, TARGET_NAME)
#: The same for a command whose arguments are any number of jobs.
STACK_OPTIONS_FOR_JOBS = (
    many(
        "--in PATH",
        "Stack whose targets to use; default: the current directory. Repeatable.",
        "paths",
        type=ANY_PATH,
    ),
    *VARIABLES,
    TARGET_NAME,
)
JSON = flag("--json", "JSON on stdout.", "as_json")


def _keys(syntax: str, help_text: str) -> Add:
    """Make an option for keys: a declared key, the name of a sweep, or a glob."""

    def distinct(ctx: click.Context, param: click.Parameter, value: Any) -> tuple[str, ...]:
        return tuple(dict.fromkeys(key for keys in value for key in keys))

    return many(syntax, help_text, type=Parsed("keys", _parse_keys, split=by_word), callback=distinct)


ONLY = _keys(
    "--only KEY[,KEY...]", "Only these keys, sweeps, or declared keys that match a glob; repeatable."
)
RERUN = _keys(
    "--rerun KEY[,KEY...]",
    "Run these keys again, although nothing was edited; a sweep or glob takes those that "
    "have ended; repeatable.",
)
NO_PREFLIGHT = flag("--no-preflight", "Do not check quota, flavors, engines and pools on the target first.")
#: Target, parallelism and records, for a command whose first arguments are keys.
TARGET_OF_KEYS = (
    *VARIABLES,
    TARGET_NAME,
    option(
        "--parallelism", "Maximum number of concurrent operations.", type=click.IntRange(1, 64), default=8
    ),
    RECORDS,
    WITHOUT_RECORDS,
)
TARGET = (PATHS, *TARGET_OF_KEYS[:3], ONLY, *TARGET_OF_KEYS[3:])
#: A shorter lease would expire between two heartbeats.
LOCK = (
    option(
        "--lease",
        "How long the lock is kept after its holder dies.",
        "lease_s",
        type=Parsed("duration", at_least_1s("a lease ")),
        default="60s",
    ),
    option(
        "--lock-timeout",
        "How long to wait for the lock if another process holds it.",
        "lock_timeout_s",
        type=DURATION,
        default="0s",
    ),
)
WAIT = option(
    "--wait",
    "After applying, wait until every declared job reaches this phase; "
    "start retries and dependent jobs meanwhile.",
    "goal",
    type=click.Choice(["running", "completed"]),
)
#: The option `--remind`, whose help text depends on the command.
remind = partial(option, "--remind", dest="remind_s", type=DURATION, default="24h")
OUT = option("--out FILE", "Save the plan, for `reconciler apply --plan FILE`.", "plan_file", type=FILE)
TIMEOUT = option("--timeout", "How long to wait for each job.", "timeout_s", type=DURATION, default="10m")
YES = flag("-y --yes", "Do not ask for confirmation.")
FORCE = flag("--force", "Override all safety guards; policies still apply.")
GUARDS = (
    many(
        "--allow GUARD",
        "Override one guard: lost-work (or lost-work=KEY), reruns (or reruns=KEY), budget, "
        "terminations, found-nothing, empty; repeatable. Policies cannot be overridden.",
        type=Parsed("guard", _parse_guard, split=by_word),
    ),
    FORCE,
)
DETAILED = flag("--detailed-exitcode", "Exit 2 if there are changes.")
SHOW_KEEP = flag("--show-keep", "Also list unchanged jobs.")
SHOW_HISTORY = flag(
    "--show-history", "Also list ended jobs of older revisions and of keys no longer declared."
)


def _check_has_fleet(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value and not ctx.params.get("fleet") and is_typed("scheduler"):
        raise click.UsageError("--scheduler needs --fleet: a single stack is not sent to workers.", ctx)
    ctx.meta["scheduler"] = value


#: Options that run a command for all stacks of a tree; see `cli.fleet.check_fleet`.
FLEET = (
    flag(
        "--fleet",
        "Process each stack in and below PATH separately; one report, one exit code.",
        is_eager=True,
    ),
    option(
        "--scheduler tcp://HOST:PORT",
        "With --fleet: use the workers of this dask scheduler, which must see the same files.",
        expose_value=False,
        callback=_check_has_fleet,
    ),
)
FILTERS = (
    option("--name TEXT", "Only jobs whose name contains this text."),
    many("--phase", "Only jobs in this phase; repeatable.", "phases", type=Parsed("phase", _parse_phase)),
    many("--kind KIND", "Only jobs of this kind; repeatable.", "kinds"),
    many("--user ID", "Only jobs of this user; repeatable.", "users"),
    option("--algorithm-name TEXT", "Only jobs whose algorithm name contains this text."),
    option(
        "--created-after TIME",
        "Only jobs created after TIME: 2026-11-21, 2026-11-21T08:00:00Z, or 2d (ago).",
        "after",
        type=MOMENT,
    ),
    option("--created-before TIME", "Only jobs created before TIME.", "before", type=MOMENT),
    many(
        "--filter KEY:OPERATOR:VALUE[,VALUE]",
        "Search condition of the service; operators: between, like, in, not. "
        "Write a comma within a value as \\,. Repeatable.",
        "filters",
        type=Parsed("filter", _parse_filter, split=by_line),
    ),
    many(
        "--tag KEY[=VALUE[,VALUE]]",
        "Only jobs with this tag, of the last 31 days unless --created-after is given; repeatable.",
        "tags",
        type=Parsed("tag", _parse_tag, split=by_line),
    ),
    many(
        "--host-ip IP",
        "Only jobs on this host, of the last 31 days unless --created-after is given; repeatable.",
        "host_ips",
    ),
    option("--train-type", "Only custom or fine-tune jobs.", type=click.Choice(["job", "ftjob"])),
    flag("--unified", "Include both custom and fine-tune jobs."),
    option("--group-by FIELD", "Field that the service groups by."),
)


def output(content: Content) -> Sequence[Add]:
    """The options for formats and files of the output, combined into one value, `outputs`."""

    def parse(text: str) -> OutputSpec:
        name, equals, file = text.partition("=")
        if name not in (formats := formats_of(content)):
            raise ValueError(f"{name!r} is not one of {', '.join(formats)}")
        if equals and not file:
            raise ValueError("a file name is missing after =")
        return OutputSpec(name, Path(file) if file else None)

    def note(ctx: click.Context, param: click.Parameter, value: Sequence[OutputSpec]) -> Sequence[OutputSpec]:
        final_outputs.ask(ctx.info_name or "", value)
        return value

    def add_json(ctx: click.Context, param: click.Parameter, value: bool) -> None:
        if value:
            ctx.params["outputs"] = (*ctx.params.get("outputs", ()), OutputSpec("json", None))

    return (
        flag("--json", "JSON on stdout; same as -o json.", expose_value=False, callback=add_json),
        many(
            "-o --output",
            f"Output format ({', '.join(formats_of(content))}), and file unless stdout; repeatable.",
            "outputs",
            type=Parsed("format[=file]", parse, split=by_line),
            # Eager, so that metrics are written even if another option is invalid.
            is_eager=True,
            callback=note,
        ),
    )


def allowances(allow: Sequence[str], *, force: bool) -> Allowances:
    from reconciler.decide.plan import Allowances

    return Allowances.of(allow, force=force)


def is_typed(name: str) -> bool:
    """Whether an option of the current command was given on the command line."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def _is_path(word: str) -> bool:
    has_separator = any(separator in word for separator in (os.sep, os.altsep) if separator)
    return has_separator or word.lower().endswith((".yaml", ".yml")) or word in (os.curdir, os.pardir)


def take_paths(words: Sequence[str], where: dict[str, Any], *, needs_job: bool = True) -> tuple[str, ...]:
    """Return the jobs among the arguments. Those spelled as paths select the stack, as `--in` does."""
    jobs = tuple(word for word in words if not _is_path(word))
    if needs_job and not jobs:
        return tuple(words)  # no such jobs
    where["paths"] = (*where["paths"], *(Path(word) for word in words if _is_path(word)))
    return jobs


def split_arguments(words: Sequence[str]) -> tuple[tuple[str, ...], tuple[Path, ...]]:
    """Split arguments into unique keys and paths.

    A path has a separator, ends in .yaml or .yml, or is `.` or `..`. If there is no such path, a word that
    exists as a file or directory is one, too.
    """
    paths = [word for word in words if _is_path(word)] or [word for word in words if Path(word).exists()]
    keys = dict.fromkeys(word for word in words if word not in paths)
    return tuple(keys), tuple(map(Path, paths))
