"""Commands for manifests, and tools: `init`, `validate`, `fmt`, `policies`, `schema`, `doctor`, …"""

from __future__ import annotations

import errno
import gc
import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reconciler.cli import options as opt
from reconciler.cli.console import console
from reconciler.cli.context import known, load_stack
from reconciler.cli.output import OutputSpec, final_outputs, requested_outputs, show
from reconciler.errors import Diagnostic, ExitCode, ManifestInvalid, ReconcilerError, WrongUsage
from reconciler.files import write_file, write_new_file
from reconciler.render import Content
from reconciler.text import printable

if TYPE_CHECKING:
    from reconciler.render import Style


#: Next steps shown by `init`, and those with the manifest that it writes.
NEXT = """\
Next:
{cd}  reconciler plan                     shows what would start{own}
CI: .github/workflows/reconciler.yml lists the variable and secrets to set."""
_NEXT_WITH_OWN = """, as a process of this machine
  reconciler apply --wait completed   starts it, and waits for its end
  reconciler jobs logs hello          shows its output
  reconciler plan -t prod             does the same for ModelArts; set targets.prod first"""


@opt.command(
    "init",
    click.argument(
        "directory", metavar="[DIR]", default=".", type=opt.PathType(path_type=Path, file_okay=False)
    ),
)
def init_command(directory: Path) -> int:
    """Write a commented manifest, a training, a CI workflow and a .gitignore to start from.

    DIR is created if it does not exist; default: the current directory. A file that exists is never
    overwritten, and no manifest is written beside another one. The training runs on this machine, so
    `reconciler apply` works at once. For jobs that exist already, add their target to the manifest;
    `reconciler export --all` prints their entries.
    """
    from reconciler.manifest.export import MANIFEST_FILE, PROGRAM_FILE, starting_files
    from reconciler.manifest.files import has_root_file

    own = ""
    has_stack = directory.is_dir() and has_root_file(directory)
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in starting_files(directory.resolve().name).items():
        path = directory / name
        if has_stack and name in (MANIFEST_FILE, PROGRAM_FILE):
            if name == MANIFEST_FILE:
                console.say(f"exists, not written: {directory} has a manifest that says stack:")
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if write_new_file(path, text.encode()):
            console.result(f"{path}\n")
            own = _NEXT_WITH_OWN if name == MANIFEST_FILE else own
        else:
            console.say(f"exists, not written: {path}")
    cd = "" if directory == Path() else f"  cd {shlex.quote(str(directory))}\n"
    console.say(NEXT.format(cd=cd, own=own))
    return ExitCode.DONE


@opt.command("validate", opt.STACK, opt.TARGET_NAME, opt.output(Content.VALIDATION), opt.FLEET)
def validate_command(
    paths: Sequence[Path],
    variables: Sequence[tuple[str, str]],
    outputs: Sequence[OutputSpec],
    fleet: bool,
    **options: Any,
) -> int:
    """Check the manifest of a stack, on every target or on the one that --target names.

    PATH is one or more manifest files or directories; default: the current directory. Neither
    the service nor credentials are needed, and sensitive variables may have no value. A target is
    skipped, with a warning, if its variables or defaults use an environment variable that is not set.
    Policies are evaluated for every job as if it had to be created.
    """
    from reconciler.validation import validate_stack

    if fleet:
        from reconciler.cli.fleet import check_fleet

        return check_fleet()
    specs = requested_outputs(outputs)
    options |= {"variables": dict(variables), "environ": os.environ}
    found = validate_stack(list(paths) or [Path()], add_secrets=console.redact.add_secrets, **options)
    console.diagnostics(found.skipped)
    if found.loaded is not None:
        known(found.loaded)
    report = found.report
    final_outputs.about(report.stack or "", report.target)
    # As text, stdout has only the summary line, and nothing if the manifest is invalid.
    on_stdout = OutputSpec("text", None)
    show(Content.VALIDATION, report, [spec for spec in specs if spec != on_stdout])
    if report.valid and on_stdout in specs:
        console.result(f"{printable(report.last_line)}\n")
    # JSON on stdout contains the problems, so stderr does not repeat them.
    if report.valid or OutputSpec("json", None) not in specs:
        console.diagnostics(found.problems)
    return found.exit_code


@opt.command("fmt", opt.PATHS, opt.flag("--check", "Change nothing; exit 1 if a file would change."))
def fmt_command(paths: Sequence[Path], check: bool) -> int:
    """Rewrite manifest files in the canonical layout.

    PATH is one or more manifest files or directories; default: the current directory. Nesting is two
    spaces. Comments, blank lines, anchors, quotes, the order of keys and the spelling of values are kept,
    and no value changes. The names of the files that change go to stdout.
    """
    from reconciler.manifest.files import manifest_files
    from reconciler.manifest.format import format_text

    problems: list[Diagnostic] = []
    has_changed = False
    for document in manifest_files(paths):
        try:
            if document.problems:
                raise ManifestInvalid(*document.problems)
            formatted = format_text(document.text, document.file)
        except ManifestInvalid as invalid:
            problems += invalid.diagnostics
            continue
        if (data := formatted.encode("utf-8")) == document.data:
            continue
        has_changed = True
        if not check:
            write_file(document.path, data)
        console.result(printable(document.file) + "\n")
    if problems:
        raise ManifestInvalid(*problems)
    return ExitCode.FAILED if check and has_changed else ExitCode.DONE


@opt.group("policies")
def policies_command() -> None:
    """Work with the policies of a stack."""


@opt.command(
    "test",
    click.argument("paths", nargs=-1, metavar="[DIR]...", type=opt.ANY_PATH),
    opt.VARIABLES,
    opt.TARGET_NAME,
    opt.output(Content.CASES),
    of=policies_command,
)
def test(paths: Sequence[Path], outputs: Sequence[OutputSpec], **options: Any) -> int:
    """Evaluate the policies of a stack on the cases in DIR, and compare the results.

    DIR holds the cases, YAML files with `job` and `expect`, and selects a stack like PATH of
    other commands; default: the current directory. Neither the service nor credentials are needed.
    Exits 1 if a case fails.
    """
    from reconciler.decide.policies import run_cases
    from reconciler.expressions.evaluator import Evaluator
    from reconciler.manifest.sections import read_cases
    from reconciler.modelarts.target import known_values

    cases = read_cases(paths)
    directories = [path if path.is_dir() else path.parent for path in paths]
    loaded = load_stack(directories, **options, offline=True)
    stack, name = loaded.stack, loaded.target_name
    target = {} if name is None else known_values(name, loaded.targets.get(name), os.environ)
    with Evaluator() as evaluate:
        report = run_cases(cases, stack, target, evaluate)
    show(Content.CASES, report, requested_outputs(outputs))
    return ExitCode.FAILED if report.failed else ExitCode.DONE


@opt.group("notify")
def notify_command() -> None:
    """Work with the notifications of a stack."""


@opt.command("test", opt.PATHS, opt.VARIABLES, opt.TARGET_NAME, of=notify_command)
def notify_test(paths: Sequence[Path], **options: Any) -> int:
    """Send one message to each URL of `notify`, and report each result.

    Exits 1 if one could not be sent. The service is not contacted.
    """
    from reconciler.notify import send_test

    loaded = load_stack(paths, **options, offline=True)
    destinations = loaded.destinations()
    problems = send_test(destinations, loaded.stack.name)
    for destination, problem in zip(destinations, problems, strict=True):
        console.result(f"{destination.name}: {f'failed: {problem}' if problem else 'sent'}\n")
    if not destinations:
        console.say(f"stack {loaded.stack.name} has no `notify`; nothing was sent")
    return ExitCode.FAILED if any(problems) else ExitCode.DONE


#: Documents with the module and model of their schema; that of the manifest is special.
_DOCUMENTS = {
    "plan": ("plan", "Plan"),
    "drift": ("drift", "DriftReport"),
    "events": ("outcome", "ApplyEvent"),
}
NAMES = ("manifest", *_DOCUMENTS)


def schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a document, generated from its model."""
    from reconciler.core.schema import manifest_schema

    if name not in _DOCUMENTS:
        return manifest_schema()
    module, model = _DOCUMENTS[name]
    written_by = getattr(import_module(f"reconciler.decide.{module}"), model)
    published: dict[str, Any] = written_by.published_schema()
    return published


@opt.command("schema", click.argument("name", type=click.Choice(NAMES), default="manifest"))
def schema_command(name: str) -> None:
    """Print the JSON Schema of a document; default: manifest."""

    console.document(schema(name))


_TABLES, _ORIGIN = ("states", "fields"), "origin"


@opt.command(
    "explain",
    click.argument("topic", metavar="[states|fields|FIELD|origin KEY [PATH]...]", default="states"),
    click.argument("words", nargs=-1, metavar="", type=opt.WORD),
    opt.VARIABLES,
    opt.TARGET_NAME,
)
def explain_command(topic: str, words: Sequence[str], **options: Any) -> None:
    """Print a decision table, or where the values of a job come from.

    states: what is legal in each phase. fields: what changing each field of a job means. FIELD is one of
    them, such as spec.resource.node_count, schedule_policy or on_change. origin KEY: each value of the
    job with the file and line that gave it; PATH is as in plan.
    """
    from reconciler.core.stack import unknown_key
    from reconciler.render import commands

    style = console.style(sys.stdout)
    if topic != _ORIGIN:
        if words:
            raise click.UsageError(f'got unexpected arguments after "{topic}": {" ".join(words)}')
        console.result(
            getattr(commands, f"render_{topic}")(style) if topic in _TABLES else _explain_field(topic, style)
        )
        return
    if not words:
        raise click.UsageError("origin needs the key of a job: reconciler explain origin KEY [PATH]...")
    key, *paths = words
    loaded = load_stack([Path(path) for path in paths], **options, offline=True, traced=key)
    keys = loaded.stack.named_by(key, loaded.stack.whole)
    if not keys:
        raise WrongUsage(unknown_key(loaded.stack, key, loaded.stack.whole, declared_only=True))
    for place, one in enumerate(keys):
        head = "" if keys == (key,) else "\n" * bool(place) + style.paint(printable(one), "bold") + "\n"
        console.result(head + commands.render_origins(loaded.origins.get(one, ()), style))


def _explain_field(name: str, style: Style) -> str:
    from reconciler.core.schema import fields, find_fields
    from reconciler.render.commands import render_fields

    found = find_fields(name)
    if len(found) == 1:
        return render_fields(style, found[0].path)
    if found:
        listed = "".join(f"\n  {one.path}" for one in found)
        raise click.UsageError(f'several fields are called "{name}"; choose one of:{listed}')
    from difflib import get_close_matches

    topics = (*_TABLES, _ORIGIN)
    names = [known for one in fields() for known in (one.path, one.path.rpartition(".")[2])]
    near = get_close_matches(name, [*topics, *names], n=1)
    hint = f' Did you mean "{near[0]}"?' if near else ""
    allowed = ", ".join(f'"{topic}"' for topic in topics)
    raise click.UsageError(f'"{name}" is not {allowed} or a field of a job.{hint}')


@opt.command("doctor", opt.WHERE, opt.RECORDS, opt.JSON)
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
    examination = Examination(loaded, name, chosen, records)
    checks = list(examination.checks())
    place = examination.place
    if as_json:
        console.document(checks_document({"stack": loaded.stack.name, "target": place}, checks))
    else:
        where = chosen.traits.note or chosen.kind
        if place["project_id"] is not None and not chosen.traits.is_embedded:
            where += ", {endpoint}, project {project_id}, workspace {workspace_id}".format(**place)
        head = f"Stack {loaded.stack.name} on {place['name']} ({where})"
        console.result(render_checks(head, checks, console.style(sys.stdout)))
    troubles = {check.trouble for check in checks if check.health is Health.WRONG}
    if Trouble.ACCESS in troubles:
        return ExitCode.UNAUTHORIZED
    if Trouble.UNREACHABLE in troubles:
        return ExitCode.UNKNOWN
    return ExitCode.FAILED if troubles else ExitCode.DONE


@opt.command("completion", click.argument("shell", type=click.Choice(("bash", "zsh", "fish"))))
def completion_command(shell: str) -> None:
    """Print the script that completes commands, options and choices in a shell.

    \b
    bash: reconciler completion bash > ~/.local/share/bash-completion/completions/reconciler
    zsh:  reconciler completion zsh > "${fpath[1]}/_reconciler"
    fish: reconciler completion fish > ~/.config/fish/completions/reconciler.fish
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None, "a shell that click knows"
    root = click.get_current_context().find_root().command
    completion = found(root, {}, "reconciler", "_RECONCILER_COMPLETE")
    # Not `source()`, which runs bash to check its version.
    console.result(completion.source_template % completion.source_vars() + "\n")


class FiniteRange(click.FloatRange):
    """A finite number in a range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


def _check_host(ctx: click.Context, param: click.Parameter, value: str) -> str:
    with suppress(UnicodeError):
        if value.encode("idna"):
            return value
    raise click.BadParameter(f"{value!r} is not a valid address or host name", ctx, param)


@opt.group("emulator")
def emulator_command() -> None:
    """Run the embedded emulator of the ModelArts training-job API."""


@opt.command(
    "serve",
    opt.option("--host", "Address to listen on.", default="127.0.0.1", callback=_check_host),
    opt.option("--port", "Port to listen on; 0 picks a free one.", type=click.IntRange(0, 65535), default=0),
    opt.option("--data", "File to store the jobs in; default: in memory.", type=opt.FILE),
    opt.option("--project-id", "Only accept this project id; default: any."),
    opt.option("--token", "Require this X-Auth-Token."),
    opt.option("--access-key", "Access key; with --secret-key, requests must be signed."),
    opt.option("--secret-key", "The secret key of --access-key."),
    opt.option("--security-token", "Require this X-Security-Token of temporary credentials; default: any."),
    opt.option(
        "--speed",
        "Speed-up factor for job time; with 60, a second counts as a minute.",
        type=FiniteRange(min=0, min_open=True, max=1_000_000),
    ),
    opt.option("--cloud", "API variant to emulate.", type=click.Choice(["huawei", "otc"]), default="huawei"),
    opt.flag(
        "--strict",
        "Reject flavors, engines, algorithms, pools and workspaces that the catalogue lacks, and, on "
        "public pools, features that require a dedicated one.",
    ),
    opt.many("--flavor ID", "Also list this flavor, such as one of another account; repeatable.", "flavors"),
    opt.many("--engine ID", "Also list this engine; repeatable.", "engines"),
    opt.flag("--item-offsets", "Count search offsets in items, as some documents say, instead of pages."),
    opt.flag("--no-noise", "Return jobs exactly as sent, without the changes that the service makes."),
    opt.option(
        "--chaos P",
        "Fail this fraction of the requests at random, e.g. 0.05: status 429, 500, 503 and 504, "
        "connections closed before and after the effect.",
        type=FiniteRange(0, 1),
    ),
    opt.option(
        "--chaos-seed",
        "Random seed of --chaos; the same seed fails the same requests.",
        type=int,
        default=0,
        show_default=True,
    ),
    of=emulator_command,
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

    The first line on stdout is `listening on http://127.0.0.1:PORT`.
    """
    from reconciler import emulator
    from reconciler.core.addresses import is_loopback
    from reconciler.extras import require

    gc.enable()  # disabled for short runs

    secrets = (settings["token"], settings["secret_key"], settings["security_token"])
    console.redact.add_secrets(secret for secret in secrets if secret)
    if bool(settings["access_key"]) != bool(settings["secret_key"]):
        raise click.UsageError("--access-key and --secret-key go together")
    if settings["security_token"] and not settings["access_key"]:
        raise click.UsageError("--security-token goes with --access-key and --secret-key")
    if strict and (settings["flavors"] or settings["engines"]):
        raise click.UsageError("--flavor and --engine cannot be used with --strict, whose catalogue is fixed")
    require("waitress")
    try:
        store = emulator.Store(str(data) if data else ":memory:", speed=speed, noise=not no_noise)
    except Exception as error:  # e.g. a missing directory, or a file that is not a database
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

    try:
        emulator.serve(
            app, host, port, on_ready=lambda server: console.result(f"listening on {server.url}\n")
        )
    except OSError as error:
        reason = str(error.strerror or error).partition(" (while")[0]
        fix = "choose another --port; 0 picks a free one" if error.errno == errno.EADDRINUSE else None
        raise ReconcilerError(Diagnostic("cannot listen", f"{host}:{port}: {reason}", fix)) from error
    finally:
        store.close()
