"""Manifests and tools: `init`, `validate`, `fmt`, `policies`, `schema`, `explain`, `doctor`, `emulator`."""

from __future__ import annotations

import errno
import gc
import os
import signal
import sys
from collections.abc import Callable, Sequence
from difflib import unified_diff
from importlib import import_module
from math import isfinite
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.console import console, paged
from reconciler.cli.context import known, load_stack
from reconciler.cli.options import (
    ADDRESS,
    FLEET,
    JSON,
    RECORDS,
    STACK,
    TARGET_NAME,
    VARIABLES,
    WHERE,
    Address,
    is_typed,
    option,
    output,
    target_or_address,
    topics,
    with_options,
    words_of_topic,
)
from reconciler.cli.output import OutputSpec, final_outputs, requested_outputs, show
from reconciler.errors import Diagnostic, ExitCode, ManifestInvalid, ReconcilerError, WrongUsage
from reconciler.files import write_file, write_new_file
from reconciler.modelarts.clock import SystemClock
from reconciler.render import Content
from reconciler.render.text import fit
from reconciler.text import printable

if TYPE_CHECKING:
    from reconciler.emulator import Server
    from reconciler.manifest.yaml import Document
    from reconciler.render import Style


@click.command("init")
@with_options(
    click.argument(
        "directory", metavar="[DIR]", default=".", type=click.Path(path_type=Path, file_okay=False)
    ),
    option("--from-service", is_flag=True, help="Start with the jobs that run and that no stack owns."),
    TARGET_NAME,
    VARIABLES,
    ADDRESS,
)
def init_command(
    directory: Path,
    from_service: bool,
    target: str | None,
    variables: Sequence[tuple[str, str]],
    var_files: Sequence[Path],
    **address: Any,
) -> int:
    """Write a commented manifest, a CI workflow and a .gitignore to start from.

    DIR is made if it does not exist; default: the current directory. A file that exists is never
    overwritten, and no manifest is written beside another one. The manifest uses the embedded
    emulator, so `reconciler plan` works at once.

    With --from-service it declares what runs: on the target at --endpoint or --region, or on that of
    the stack in the current directory. Secrets become variables.
    """
    from reconciler.cli import export
    from reconciler.manifest.export import (
        MANIFEST_FILE,
        WORKFLOW_FILE,
        head_of_export,
        stack_name,
        starting_files,
        workflow_for,
    )
    from reconciler.manifest.files import has_root_file
    from reconciler.modelarts.jobs import JobFilters

    if not from_service and is_typed("target", *Address._fields):
        raise click.UsageError("a target is read only with --from-service")
    has_stack = directory.is_dir() and has_root_file(directory)
    files, code = dict(starting_files(directory.resolve().name)), ExitCode.DONE
    if from_service and not has_stack:
        target, service = target_or_address(target, Address(**address))
        with export.open_source((), variables, var_files, target, service) as source:
            found = export.unmanaged_jobs(source.session, JobFilters(phases=export.RUNNING_PHASES), ())
            result, code = export.exported(source, stack_name(directory.resolve().name), found)
        if not result.entries and code:
            return code
        if not result.entries:
            console.say("No job runs that no stack owns.")
        name, root = source.target_name, source.session.loaded.root
        if source.target.traits.is_embedded and directory.resolve() != root.resolve():
            where_they_are = f"lie beside the manifest in {root}, and {directory} does not see them"
            console.say(printable(f"warning: the jobs of target {name} {where_they_are}"), "warning")
        text = export.manifest_text(result, head_of_export(name))
        files |= {MANIFEST_FILE: text, WORKFLOW_FILE: workflow_for(name)}
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        path = directory / name
        if name == MANIFEST_FILE and has_stack:
            console.say(f"exists, not written: {directory} has a manifest that says stack:")
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if write_new_file(path, text.encode()):
            console.result(f"{path}\n")
        else:
            console.say(f"exists, not written: {path}")
    return code


@click.command("validate")
@with_options(STACK, TARGET_NAME, output(Content.VALIDATION), FLEET)
def validate_command(
    paths: Sequence[Path],
    variables: Sequence[tuple[str, str]],
    var_files: Sequence[Path],
    target: str | None,
    outputs: Sequence[OutputSpec],
    fleet: bool,
) -> int:
    """Check the manifest of a stack, on every target or on the one that --target names.

    PATH is one or more manifest files or directories; default: the current directory. Neither
    the service nor credentials are needed, and sensitive variables may have no value. A target is
    skipped, with a warning, if its variables or defaults use an environment variable that is not set.
    Policies are asked about every job as if it had to be created.
    """
    from reconciler.validation import validate_stack

    if fleet:
        from reconciler.cli.fleet import check_fleet

        return check_fleet()
    specs = requested_outputs(outputs)
    files = list(paths) or [Path()]
    learn = console.redact.learn
    found = validate_stack(
        files, environ=os.environ, variables=dict(variables), var_files=var_files, target=target, learn=learn
    )
    if found.skipped:
        console.diagnostics(found.skipped)
    if found.loaded is not None:
        known(found.loaded)
    report = found.report
    final_outputs.about(report.stack or "", report.target)
    # As text, stdout has the line that says it all, and nothing where the manifest is invalid.
    on_stdout = OutputSpec("text", None)
    show(Content.VALIDATION, report, [spec for spec in specs if spec != on_stdout])
    if report.valid and on_stdout in specs:
        console.result(fit(f"{printable(report.last_line)}\n", console.style(sys.stdout)))
    # Programs that read the document from stdout need no problems on stderr as well.
    if found.problems and (report.valid or OutputSpec("json", None) not in specs):
        console.diagnostics(found.problems)
    return found.exit_code


@click.command("fmt")
@with_options(
    click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path(path_type=Path)),
    option("--check", is_flag=True, help="Change nothing; show a diff, and exit 1 if a file would change."),
)
def fmt_command(paths: Sequence[Path], check: bool) -> int:
    """Rewrite manifest files in the canonical layout.

    PATH is one or more manifest files or directories; default: the current directory. Keys are put
    in order and nesting is two spaces. Comments, blank lines, anchors, quotes and the spelling of
    values are kept, and no value changes. The names of the files that were changed go to stdout.
    """
    from reconciler.manifest.files import manifest_files

    problems: list[Diagnostic] = []
    changed = 0
    for document in manifest_files(paths):
        try:
            changed += _format(document, check)
        except ManifestInvalid as invalid:
            problems += invalid.diagnostics
    if problems:
        raise ManifestInvalid(*problems)
    return ExitCode.FAILED if check and changed else ExitCode.DONE


def _format(document: Document, check: bool) -> bool:
    from reconciler.manifest.format import format_text, written_secrets

    if document.problems:
        raise ManifestInvalid(*document.problems)
    formatted = format_text(document.text, document.file)
    if formatted.encode("utf-8") == document.data:
        return False
    if check:
        console.redact.learn(written_secrets(document, os.environ))
        console.result(_diff(document, formatted))
    else:
        write_file(document.path, formatted.encode("utf-8"))
        console.result(printable(document.file) + "\n")
    return True


def _diff(document: Document, formatted: str) -> str:
    # Hidden before they are compared: the marks of a diff would cut a value of several lines to pieces.
    before = _lines(console.redact(document.data.decode("utf-8")))
    after = _lines(console.redact(formatted))
    return "".join(
        printable(line.removesuffix("\n"))
        + ("\n" if line.endswith("\n") else "\n\\ No newline at end of file\n")
        for line in unified_diff(before, after, document.file, document.file)
    )


def _lines(text: str) -> list[str]:
    """The lines as a reader of the log sees them; any other break is shown as an escape."""
    *lines, last = text.split("\n")
    return [*(f"{line}\n" for line in lines), *([last] if last else [])]


@click.group("policies", no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
def policies_command() -> None:
    """Work with the policies of a stack."""


@policies_command.command("test")
@click.argument("paths", nargs=-1, metavar="[DIR]...", type=click.Path(path_type=Path))
@with_options(VARIABLES, TARGET_NAME, output(Content.CASES))
def test(paths: Sequence[Path], outputs: Sequence[OutputSpec], **options: Any) -> int:
    """Ask the policies of a stack about the cases in DIR, and compare what they say.

    DIR holds the cases, YAML files with `job` and `expect`, and stands for a stack like PATH of
    other commands; default: the current directory. Neither the service nor credentials are needed.
    Exits 1 if a case fails.
    """
    from reconciler.decide.policies import Surroundings, run_cases
    from reconciler.expressions.evaluator import Evaluator
    from reconciler.manifest.policy_cases import read_cases
    from reconciler.modelarts.target import known_values

    cases = read_cases(paths)
    directories = [path if path.is_dir() else path.parent for path in paths]
    loaded = load_stack(directories, **options, offline=True)
    stack = loaded.stack
    name = loaded.target_name
    target_values = {} if name is None else known_values(name, loaded.targets.get(name), os.environ)
    surroundings = Surroundings(stack.name, target_values)
    with Evaluator() as evaluate:
        report = run_cases(cases, stack.policies, surroundings, evaluate, stack.prices)
    show(Content.CASES, report, requested_outputs(outputs))
    return ExitCode.FAILED if report.failed else ExitCode.DONE


#: Each document with the module and the model that write it; a manifest has a schema of its own.
_DOCUMENTS = {
    "plan": ("plan", "Plan"),
    "drift": ("drift", "DriftReport"),
    "events": ("outcome", "ApplyEvent"),
    "history": ("history", "HistoryReport"),
    "status": ("reports", "StatusReport"),
    "review": ("review", "Review"),
    "validate": ("validation", "Validation"),
    "why": ("reports", "Explanation"),
    "fleet": ("fleet", "FleetDocument"),
}
NAMES = ("manifest", *_DOCUMENTS)


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema of a document, made from the models that write and read it."""
    from reconciler.core.schema import manifest_schema

    if name not in _DOCUMENTS:
        return manifest_schema()
    module, model = _DOCUMENTS[name]
    published: dict[str, Any] = getattr(
        import_module(f"reconciler.decide.{module}"), model
    ).published_schema()
    return published


@click.command("schema")
@click.argument("name", type=click.Choice(NAMES), default="manifest")
@with_options()
def schema_command(name: str) -> None:
    """Print the JSON Schema of a document; default: manifest."""

    console.document(schema(name))


ORIGIN = "origin"


@click.command("explain")
@click.argument(
    "topic",
    metavar="[states|rules|fields|NAME|origin KEY [PATH]...]",
    default="states",
    shell_complete=topics,
)
@click.argument("words", nargs=-1, metavar="", shell_complete=words_of_topic)
@with_options(VARIABLES, TARGET_NAME)
def explain_command(topic: str, words: Sequence[str], **options: Any) -> None:
    """Print one of the tables that decide, or where the values of a job come from.

    states: what is legal in each phase. rules: how the action for a key is chosen. fields: what
    changing each field of a job means. NAME is any key of a manifest, such as matrix, limits.lost_time
    or node_count: its type, limits, default and example, and what changing it means. origin KEY: each
    value of the job with the file and line that gave it; PATH is as in plan.
    """
    if topic == ORIGIN:
        with paged(is_wanted=True):
            _explain_origin(words, **options)
        return
    from reconciler.render import commands

    if words:
        raise click.UsageError(f'got unexpected arguments after "{topic}": {" ".join(words)}')
    style = console.style(sys.stdout)
    printed: dict[str, Callable[[Style], str]] = {
        "states": commands.render_states,
        "rules": commands.render_rules,
        "fields": commands.render_fields,
    }
    shown = printed[topic](style) if topic in printed else _explain_key(topic, (*printed, ORIGIN), style)
    with paged(is_wanted=True):
        console.result(shown)


def _explain_key(name: str, others: Sequence[str], style: Style) -> str:
    from reconciler.core.schema import NoSuchKey, find_key
    from reconciler.render.commands import render_key

    try:
        return render_key(find_key(name), style)
    except NoSuchKey as unknown:
        if unknown.candidates:
            listed = "".join(f"\n  {path}" for path in unknown.candidates)
            raise click.UsageError(f'several keys are called "{name}"; choose one of:{listed}') from None
        hint = f' Did you mean "{unknown.nearest}"?' if unknown.nearest else ""
        allowed = ", ".join(f'"{topic}"' for topic in others)
        raise click.UsageError(f'"{name}" is not {allowed} or a key of a manifest.{hint}') from None


def _explain_origin(words: Sequence[str], **options: Any) -> None:
    from reconciler.core.stack import unknown_key
    from reconciler.render.commands import render_origins

    if not words:
        raise click.UsageError("origin needs the key of a job: reconciler explain origin KEY [PATH]...")
    key, *paths = words
    loaded = load_stack([Path(path) for path in paths], **options, offline=True, traced=key)
    if key not in loaded.stack.whole:
        raise WrongUsage(unknown_key(loaded.stack, key, loaded.stack.whole))
    console.result(render_origins(loaded.origins, console.style(sys.stdout)))


@click.command("doctor")
@with_options(WHERE, RECORDS, JSON)
def doctor_command(records: str | None, as_json: bool, **stack: Any) -> int:
    """Check records, lock, credentials, endpoint, clock, project, permissions, duplicates, adoption
    candidates.

    Nothing is changed, and no secret is shown. Exits 0 if there is no problem, 7 for credentials
    and permissions, 8 if the service cannot be reached, and 1 otherwise.
    """
    from reconciler.cli.doctor import Examination
    from reconciler.decide.doctor import Health, Trouble
    from reconciler.render.commands import checks_document, render_checks

    loaded = load_stack(**stack, offline=True)
    name, chosen = loaded.target(stack["target"])
    examination = Examination(loaded, name, chosen, SystemClock(), records)
    checks = list(examination.checks())
    place = examination.place
    if as_json:
        head: dict[str, object] = {"stack": loaded.stack.name, "target": place}
        console.document(checks_document(head, checks))
    else:
        where = ""
        if place["project_id"] is not None:
            where = f", {place['endpoint']}, project {place['project_id']}, workspace {place['workspace_id']}"
        head_line = f"Stack {loaded.stack.name} on {place['name']} ({place['kind']}{where})"
        console.result(render_checks(head_line, checks, console.style(sys.stdout)))
    troubles = {check.trouble for check in checks if check.health is Health.WRONG}
    codes = {
        Trouble.ACCESS: ExitCode.UNAUTHORIZED,
        Trouble.UNREACHABLE: ExitCode.UNKNOWN,
        Trouble.OTHER: ExitCode.FAILED,
    }
    return next((code for trouble, code in codes.items() if trouble in troubles), ExitCode.DONE)


SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@with_options(click.argument("shell", type=click.Choice(SHELLS)))
def completion_command(shell: str) -> int:
    """Print the script that completes commands, options, keys and targets in a shell.

    \b
    bash: reconciler completion bash > ~/.local/share/bash-completion/completions/reconciler
    zsh:  reconciler completion zsh > "${fpath[1]}/_reconciler"
    fish: reconciler completion fish > ~/.config/fish/completions/reconciler.fish
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None, "one of SHELLS"
    completion = found(
        click.get_current_context().find_root().command, {}, "reconciler", "_RECONCILER_COMPLETE"
    )
    # Not `source()`: for bash it runs the bash of this machine to ask for its version.
    console.result(completion.source_template % completion.source_vars() + "\n")
    return 0


class FiniteRange(click.FloatRange):
    """A number in a range, which `nan` and `inf` never are."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


def _check_host(ctx: click.Context, param: click.Parameter, value: str) -> str:
    try:
        is_name = bool(value.encode("idna"))
    except UnicodeError:
        is_name = False
    if not is_name:
        raise click.BadParameter(f"{value!r} is not a valid address or host name", ctx, param)
    return value


@click.group("emulator", no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
def emulator_command() -> None:
    """Run the embedded emulator of the ModelArts training-job API."""


@emulator_command.command("serve")
@with_options(
    (
        option(
            "--host",
            default="127.0.0.1",
            show_default=True,
            callback=_check_host,
            help="Address to listen on.",
        ),
        option(
            "--port", type=click.IntRange(0, 65535), default=0, help="Port to listen on; 0 picks a free one."
        ),
        option(
            "--data",
            type=click.Path(path_type=Path, dir_okay=False),
            default=None,
            help="File to store the jobs in; default: in memory.",
        ),
        option("--project-id", default=None, help="Only accept this project id; default: any."),
        option("--token", default=None, help="Require this X-Auth-Token."),
        option("--access-key", default=None, help="Access key; with --secret-key, requests must be signed."),
        option("--secret-key", default=None, help="The secret key of --access-key."),
        option(
            "--security-token",
            default=None,
            help="Require this X-Security-Token of temporary credentials; default: any.",
        ),
        option(
            "--speed",
            type=FiniteRange(min=0, min_open=True, max=1_000_000),
            default=None,
            help="Speed-up factor for job time; with 60 a second counts as a minute.",
        ),
        option(
            "--cloud",
            type=click.Choice(["huawei", "otc"]),
            default="huawei",
            show_default=True,
            help="API variant to emulate.",
        ),
        option(
            "--strict",
            is_flag=True,
            help="Reject flavors, engines, algorithms, pools and workspaces that the catalogue lacks, and on "
            "public pools whatever requires a dedicated one.",
        ),
        option(
            "--flavor",
            "flavors",
            multiple=True,
            metavar="ID",
            help="Also list this flavor, such as one of another account; repeatable.",
        ),
        option(
            "--engine",
            "engines",
            multiple=True,
            metavar="ID",
            help="Also list this engine; repeatable.",
        ),
        option(
            "--item-offsets",
            is_flag=True,
            help="Count search offsets in items, as some documents say, instead of pages.",
        ),
        option(
            "--no-noise",
            is_flag=True,
            help="Return jobs as they were sent, without the changes that the service makes.",
        ),
        option(
            "--chaos",
            type=FiniteRange(0, 1),
            default=None,
            metavar="P",
            help="Fail this fraction of the requests at random, e.g. 0.05: status 429, 500, 503 and 504, "
            "connections closed before and after the effect.",
        ),
        option(
            "--chaos-seed",
            type=int,
            default=0,
            show_default=True,
            help="Random seed of --chaos; the same seed fails the same requests.",
        ),
    )
)
def serve(
    host: str,
    port: int,
    data: Path | None,
    speed: float | None,
    strict: bool,
    item_offsets: bool,
    no_noise: bool,
    chaos: float | None,
    chaos_seed: int,
    **settings: Any,
) -> None:
    """Speak the service's v2 API on a local port, errors included, until stopped.

    The first line on stdout says where: `listening on http://127.0.0.1:PORT`.
    """
    from reconciler import emulator
    from reconciler.core.addresses import is_loopback

    gc.enable()  # a server runs for long

    secrets = (settings["token"], settings["secret_key"], settings["security_token"])
    console.redact.learn(secret for secret in secrets if secret)
    if bool(settings["access_key"]) != bool(settings["secret_key"]):
        raise click.UsageError("--access-key and --secret-key go together")
    if settings["security_token"] and not settings["access_key"]:
        raise click.UsageError("--security-token goes with --access-key and --secret-key")
    if strict and (settings["flavors"] or settings["engines"]):
        raise click.UsageError("--flavor and --engine are not for --strict, whose catalogue is fixed")
    try:
        store = emulator.Store(str(data) if data else ":memory:", speed=speed, noise=not no_noise)
    except Exception as error:  # a directory that is not there, a file that is no database
        raise click.UsageError(f"--data {data}: {error}") from error
    app = emulator.create_app(
        store,
        **{**settings, "security_token": settings["security_token"] or None},
        strict_catalogue=strict,
        offset_counts="items" if item_offsets else "pages",
        control=is_loopback(host),
        tells_time=True,
        faults=emulator.chaos(chaos, chaos_seed) if chaos else (),
    )

    def ready(server: Server) -> None:
        def end(number: int, frame: FrameType | None) -> None:
            server.stop()

        signal.signal(signal.SIGINT, end)
        signal.signal(signal.SIGTERM, end)
        console.result(f"listening on {server.url}\n")

    try:
        emulator.serve(app, host, port, on_ready=ready)
    except OSError as error:
        reason = str(error.strerror or error).partition(" (while")[0]
        fix = "choose another --port; 0 picks a free one" if error.errno == errno.EADDRINUSE else None
        raise ReconcilerError(Diagnostic("cannot listen", f"{host}:{port}: {reason}", fix)) from error
    finally:
        store.close()
