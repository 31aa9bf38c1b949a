"""Options and arguments that several commands share, each option with a variable RECONCILER_<OPTION>.

Source: docs/cli.md, "Options".
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click
from click.core import ParameterSource

from reconciler.cli.console import console
from reconciler.cli.output import OutputSpec, final_outputs
from reconciler.render import Content, formats_of
from reconciler.text import parse_duration, printable

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from reconciler.manifest.yaml import Document
    from reconciler.modelarts.jobs import Moment


def target_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The targets of the stack."""
    return _starting_with(incomplete, _names(_documents(ctx), "targets"))


def variable_names(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """The variables of the stack, each with the = behind which its value stands."""
    if "=" in incomplete:
        return []
    return _starting_with(incomplete, (f"{name}=" for name in _names(_documents(ctx), "variables")))


def guards(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """The guards, and lost-work for each key."""
    from reconciler.decide.plan import Guard

    before, equals, key = incomplete.partition("=")
    if equals and before == Guard.LOST_WORK:
        return _starting_with(key, _keys(ctx), prefix=f"{Guard.LOST_WORK}=")
    return _starting_with(incomplete, Guard)


def keys(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Keys of the stack; of several with commas between them the last one is completed."""
    before, comma, last = incomplete.rpartition(",")
    return _starting_with(last, _keys(ctx), prefix=before + comma)


def keys_and_paths(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Keys of the stack; where none fits, files and directories."""
    from click.shell_completion import CompletionItem

    return keys(ctx, param, incomplete) or [CompletionItem(incomplete, type="file")]


def topics(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """What `explain` explains: its tables, and the keys of the language."""
    from reconciler.core.schema import language_keys

    return _starting_with(
        incomplete, ("states", "rules", "fields", "origin", *(key.path for key in language_keys()))
    )


def words_of_topic(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """What follows a topic of `explain`: keys behind `origin`, and nothing behind the others."""
    return keys_and_paths(ctx, param, incomplete) if ctx.params.get("topic") == "origin" else []


def _starting_with(incomplete: str, names: Iterable[str], prefix: str = "") -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(prefix + name) for name in names if name.startswith(incomplete)]


def _paths(ctx: click.Context) -> list[Path]:
    """The PATHs that stand on the line so far: what exists of its words.

    Before an option that has no value yet click has not made arguments of them.
    """
    words: list[Any] = [*(ctx.params.get("paths") or ()), *(ctx.params.get("words") or ()), *ctx.args]
    return [path for path in map(Path, words) if path.exists()]


def _documents(ctx: click.Context) -> Sequence[Document]:
    from reconciler.manifest.files import find_stack

    try:
        return find_stack(_paths(ctx)).documents
    except Exception:  # whatever is wrong is said when the command is run
        return ()


def _keys(ctx: click.Context) -> Sequence[str]:
    """The keys of the stack's jobs, the members of a sweep in the place of its entry."""
    documents = _documents(ctx)
    entries = [entries for document in documents if isinstance(entries := document.tree.get("jobs"), dict)]
    if any(isinstance(entry, dict) and "matrix" in entry for one in entries for entry in one.values()):
        from reconciler.manifest.load import load

        with suppress(Exception):  # the entries are a help too
            return sorted(load(_paths(ctx), environ=os.environ, offline=True).stack.whole)
    return _names(documents, "jobs")


def _names(documents: Sequence[Document], section: str) -> list[str]:
    found = [document.tree.get(section) for document in documents]
    return sorted({str(name) for names in found if isinstance(names, dict) for name in names})


if TYPE_CHECKING:
    from reconciler.decide.plan import Allowances

    ParamType = click.ParamType[Any]
else:  # generic in newer versions of click only
    ParamType = click.ParamType

F = TypeVar("F", bound=Callable[..., Any])


class Parsed(ParamType):
    """A value that a function reads, which raises ValueError where it cannot.

    `split` parts what the environment variable of an option holds that may be given more than once.
    """

    def __init__(
        self,
        name: str,
        parse: Callable[[str], Any],
        *,
        split: Callable[[str], list[str]] | None = None,
        complete: Callable[[click.Context, str], list[CompletionItem]] | None = None,
    ) -> None:
        self.name, self._parse, self._split, self._complete = name, parse, split, complete

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):  # a default, or read already
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def split_envvar_value(self, rv: str) -> list[str]:
        return list(self._split(rv) if self._split else super().split_envvar_value(rv))

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return self._complete(ctx, incomplete) if self._complete else []


def by_line(text: str) -> list[str]:
    """The lines that are not empty: for values each of which may hold spaces."""
    return [line for line in text.replace("\r\n", "\n").split("\n") if line]


def by_word(text: str) -> list[str]:
    """The words, with spaces or commas between them."""
    return text.replace(",", " ").split()


def _parse_lease(text: str) -> float:
    # A shorter one ends between two signs of life.
    if (seconds := parse_duration(text)) < 1:
        raise ValueError("a lease must be at least 1s")
    return seconds


def _parse_assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        # The text may be a secret, so it is not shown.
        raise ValueError("write NAME=VALUE")
    return name, value


def _parse_keys(text: str) -> tuple[str, ...]:
    """Keys or globs with commas between them. An empty one is refused: it must not mean every key."""
    keys = tuple(key.strip() for key in text.split(","))
    if not all(keys):
        raise ValueError(f"{text!r} has an empty key")
    return keys


def _joined(ctx: click.Context, param: click.Parameter, value: Sequence[Sequence[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key for keys in value for key in keys))


def _parse_guard(text: str) -> str:
    from reconciler.decide.plan import Allowances

    Allowances.of([text])
    return text


def output_type(content: Content) -> Parsed:
    """FORMAT[=FILE], with the formats that can render a content."""

    def parse(text: str) -> OutputSpec:
        name, equals, file = text.partition("=")
        if name not in (known := formats_of(content)):
            raise ValueError(f"{name!r} is not one of {', '.join(known)}")
        if equals and not file:
            raise ValueError("a file name is missing after =")
        return OutputSpec(name, Path(file) if file else None)

    return Parsed(
        "format[=file]",
        parse,
        split=by_line,
        complete=lambda _, incomplete: _starting_with(incomplete, formats_of(content)),
    )


DURATION = Parsed("duration", parse_duration)


def option(*names: str, **settings: Any) -> Callable[[F], F]:
    """A click option that can be given by its environment variable too."""
    long = next(name for name in names if name.startswith("--"))
    variable = "RECONCILER_" + long.split("/")[0].removeprefix("--").upper().replace("-", "_")
    return click.option(*names, envvar=variable, **settings)


def _eager(attribute: str) -> dict[str, Any]:
    """An option that is heeded before the others, and sets an attribute of the console."""

    def callback(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        if value is not None:
            setattr(console, attribute, value)

    return {"expose_value": False, "is_eager": True, "callback": callback}


def _no_colour(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    console.colour = "never" if value else console.colour


def _no_pager(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    console.may_page = not value


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
    option(
        "--var",
        "variables",
        multiple=True,
        type=Parsed("name=value", _parse_assignment, split=by_line, complete=variable_names),
        help="Set a variable; repeatable.",
    ),
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
#: Where the stack is, for a command whose arguments end in PATH….
WHERE: Sequence[Callable[[Any], Any]] = (*STACK, TARGET_NAME)
#: The same for a command whose arguments are jobs, as many as one likes.
BESIDE_JOBS: Sequence[Callable[[Any], Any]] = (
    option(
        "--in",
        "paths",
        multiple=True,
        metavar="PATH",
        type=click.Path(path_type=Path),
        help="Stack whose targets to use; default: the current directory. Repeatable.",
    ),
    *STACK[1:],
    TARGET_NAME,
)
JSON = option("--json", "as_json", is_flag=True, help="JSON on stdout.")
ONLY = option(
    "--only",
    multiple=True,
    type=Parsed("keys", _parse_keys, split=by_word),
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
        type=Parsed("duration", _parse_lease),
        default="60s",
        show_default=True,
        help="How long the lock is kept after its holder died.",
    ),
)


def _parse_goal(text: str) -> Any:
    from reconciler.decide.wait import Goal

    if text not in (Goal.RUNNING, Goal.COMPLETED):
        raise ValueError(f"{text!r} is not one of running, completed")
    return Goal(text)


WAIT = option(
    "--wait",
    "goal",
    default=None,
    metavar="[running|completed]",
    type=Parsed(
        "goal", _parse_goal, complete=lambda _, begun: _starting_with(begun, ("completed", "running"))
    ),
    help="Then wait until every declared job gets there; start retries and dependent jobs meanwhile.",
)


def remind(text: str) -> Callable[[Any], Any]:
    """--remind: after how long drift that lasts is said again; `text` tells what is done with it."""
    return option("--remind", "remind_s", type=DURATION, default="24h", show_default=True, help=text)


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


def _add_json(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        ctx.params["outputs"] = (*ctx.params.get("outputs", ()), OutputSpec("json", None))


def output(content: Content) -> Sequence[Callable[[Any], Any]]:
    """The options that say in which formats something is shown, and where: one value, `outputs`."""
    return (
        option(
            "--json",
            is_flag=True,
            expose_value=False,
            callback=_add_json,
            help="JSON on stdout; same as -o json.",
        ),
        option(
            "-o",
            "--output",
            "outputs",
            multiple=True,
            type=output_type(content),
            # Before an option that is wrong ends the run, which metrics have to tell.
            is_eager=True,
            callback=_note_outputs,
            help=f"Output format ({', '.join(formats_of(content))}), and file unless stdout; repeatable.",
        ),
    )


TIMEOUT = option(
    "--timeout",
    "timeout_s",
    type=DURATION,
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
        type=Parsed("guard", _parse_guard, split=by_word, complete=guards),
        help="Override one guard: lost-work (or lost-work=KEY), reruns (or reruns=KEY), budget, "
        "terminations, found-nothing, empty; repeatable. Policies cannot be overridden.",
    ),
    FORCE,
)
DETAILED = option("--detailed-exitcode", is_flag=True, help="Exit 2 if there are changes.")
SHOW_KEEP = option("--show-keep", is_flag=True, help="Also list unchanged jobs.")


def _check_has_fleet(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value and not ctx.params.get("fleet") and is_typed("scheduler"):
        raise click.UsageError("--scheduler needs --fleet: a single stack is not sent to workers.", ctx)
    ctx.meta["scheduler"] = value


#: A command for one stack becomes one for all stacks of a tree, see `cli.fleet.check_fleet`.
FLEET: Sequence[Callable[[Any], Any]] = (
    option(
        "--fleet",
        is_flag=True,
        is_eager=True,
        help="Process each stack in and below PATH by itself; one report, one exit code.",
    ),
    option(
        "--scheduler",
        default=None,
        expose_value=False,
        callback=_check_has_fleet,
        metavar="tcp://HOST:PORT",
        help="With --fleet: use the workers of this dask scheduler, which see the same files.",
    ),
)


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


OPERATORS = ("between", "like", "in", "not")


def _parse_moment(text: str) -> Moment:
    from reconciler.modelarts.jobs import Moment

    return Moment.parse(text)


#: A time such as 2026-11-21 or 2026-11-21T08:00:00Z (UTC where no zone is named), or a span: so long ago.
MOMENT = Parsed("time", _parse_moment)


def _parse_phase(text: str) -> str:
    """The service's word for a phase, in any case, under any name that its documents have for it."""
    from reconciler.core.phase import Phase, parse_phase

    phase = parse_phase(text)
    if phase is None:
        raise ValueError(f'"{text}" is not one of {", ".join(Phase)}')
    return phase.value


def _parse_filter(text: str) -> dict[str, Any]:
    r"""KEY:OPERATOR:VALUE[,VALUE], as the service's search takes it; `\,` is a comma within a value."""
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


def _split_values(text: str) -> list[str]:
    # No regular expression at import: most commands have no filter.
    return [value.replace("\\,", ",") for value in re.split(r"(?<!\\),", text)]


FILTERS: Sequence[Callable[[Any], Any]] = (
    option("--name", metavar="TEXT", default=None, help="Only jobs whose name contains this text."),
    option(
        "--phase",
        "phases",
        multiple=True,
        type=Parsed("phase", _parse_phase),
        help="Only jobs in this phase; repeatable.",
    ),
    option("--kind", "kinds", multiple=True, metavar="KIND", help="Only jobs of this kind; repeatable."),
    option("--user", "users", multiple=True, metavar="ID", help="Only jobs of this user; repeatable."),
    option(
        "--algorithm-name",
        metavar="TEXT",
        default=None,
        help="Only jobs whose algorithm name contains this text.",
    ),
    option(
        "--created-after",
        "after",
        metavar="TIME",
        type=MOMENT,
        default=None,
        help="Only jobs created after TIME: 2026-11-21, 2026-11-21T08:00:00Z, or 2d (ago).",
    ),
    option(
        "--created-before",
        "before",
        metavar="TIME",
        type=MOMENT,
        default=None,
        help="Only jobs created before TIME.",
    ),
    option(
        "--filter",
        "filters",
        multiple=True,
        metavar="KEY:OPERATOR:VALUE[,VALUE]",
        type=Parsed("filter", _parse_filter, split=by_line),
        help="Search condition of the service; operators: between, like, in, not. "
        "Write a comma within a value as \\,. Repeatable.",
    ),
    option(
        "--tag",
        "tags",
        multiple=True,
        metavar="KEY[=VALUE[,VALUE]]",
        type=Parsed("tag", _parse_tag, split=by_line),
        help="Only jobs with this tag, of the last 31 days unless --created-after is given; repeatable.",
    ),
    option(
        "--host-ip",
        "host_ips",
        multiple=True,
        metavar="IP",
        help="Only jobs on this host, of the last 31 days unless --created-after is given; repeatable.",
    ),
    option(
        "--train-type",
        type=click.Choice(["job", "ftjob"]),
        default=None,
        help="Only custom or fine-tune jobs.",
    ),
    option("--unified", is_flag=True, help="Include both custom and fine-tune jobs."),
    option("--group-by", metavar="FIELD", default=None, help="Field that the service groups by."),
)


#: What the target is called in a manifest that is written for it, and in the CI workflow of `init`.
ADDRESSED = "prod"

ADDRESS: Sequence[Callable[[Any], Any]] = (
    option("--endpoint", metavar="URL", default=None, help="Service to read, instead of a stack's target."),
    option("--region", default=None, help="The same by its region, e.g. cn-north-4."),
    option(
        "--project-id",
        metavar="ID",
        default=None,
        help="Project there; default: HUAWEICLOUD_SDK_PROJECT_ID, or that of the credentials.",
    ),
    option("--workspace-id", metavar="ID", default=None, help='Workspace there; default: "0".'),
)


class Address(NamedTuple):
    """Where a service is; nothing is said where it is that of a stack's target."""

    endpoint: str | None = None
    region: str | None = None
    project_id: str | None = None
    workspace_id: str | None = None

    @property
    def is_given(self) -> bool:
        """Whether it names a service.

        Raises:
            UsageError: it says something of a service that it does not name.
        """
        if self.endpoint or self.region:
            return True
        if self.project_id or self.workspace_id:
            raise click.UsageError("--project-id and --workspace-id require --endpoint or --region")
        return False


def target_or_address(target: str | None, address: Address) -> tuple[str | None, Address]:
    """Which of the two is meant: what stands on the command line goes before the environment.

    Raises:
        UsageError: both stand there, or neither does more than the other.
    """
    if target is None or not address.is_given:
        return target, address
    if is_typed("target") is is_typed(*Address._fields):
        raise click.UsageError("--target names a target of a stack, --endpoint and --region do not; omit one")
    return (target, Address()) if is_typed("target") else (None, address)


def is_typed(*options: str) -> bool:
    """Whether one of these options of the running command stands on its command line."""
    context = click.get_current_context()
    return any(context.get_parameter_source(name) is ParameterSource.COMMANDLINE for name in options)


_SEPARATORS = tuple(filter(None, (os.sep, os.altsep)))
_SUFFIXES = (".yaml", ".yml")


#: Whether the stack at these paths has a key.
HasKey = Callable[[Sequence[Path], str], bool]


def split_arguments(
    words: Sequence[str], has_key: HasKey, command: str
) -> tuple[tuple[str, ...], tuple[Path, ...]]:
    """Tell keys, each once, from paths: what exists, holds a separator or ends in .yaml or .yml is a path.

    A key may have the name of a directory, in which its code is. It is the key then if the stack has it
    and another path follows. Without one it is the path, and stderr says how `command` is told the key.
    """
    from reconciler.core.identity import KEY_PATTERN

    def is_path(word: str) -> bool:
        looks_like_one = any(s in word for s in _SEPARATORS) or word.lower().endswith(_SUFFIXES)
        return looks_like_one or Path(word).exists()

    places = [place for place, word in enumerate(words) if is_path(word)]
    paths = [Path(words[place]) for place in places]
    keys: list[str] = []
    for place, word in enumerate(words):
        if place not in places:
            keys.append(word)
        elif KEY_PATTERN.fullmatch(word) and has_key(paths, word):
            if place != places[-1]:
                keys.append(word)
                paths.remove(Path(word))
            elif not keys:
                also = f"{word} is both a path and a key; for the key use: reconciler {command} {word} ."
                console.say(printable(also))
    return tuple(dict.fromkeys(keys)), tuple(paths)
