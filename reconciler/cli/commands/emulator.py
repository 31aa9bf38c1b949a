"""`reconciler emulator serve`: the emulator as an HTTP server, for any ModelArts client."""

from __future__ import annotations

import errno
import gc
import signal
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from reconciler.cli.options import FiniteRange, option, with_options
from reconciler.cli.terminal.console import console
from reconciler.errors import Diagnostic, ReconcilerError

if TYPE_CHECKING:
    from reconciler.emulator import Server, Store


def _check_host(ctx: click.Context, param: click.Parameter, value: str) -> str:
    try:
        is_name = bool(value.encode("idna"))
    except UnicodeError:
        is_name = False
    if not is_name:
        raise click.BadParameter(f"{value!r} is not a valid address or host name", ctx, param)
    return value


def _check_credentials(access_key: str | None, secret_key: str | None, security_token: str | None) -> None:
    if bool(access_key) != bool(secret_key):
        raise click.UsageError("--access-key and --secret-key go together")
    if security_token and not access_key:
        raise click.UsageError("--security-token goes with --access-key and --secret-key")


def _open_store(data: Path | None, speed: float | None, *, noise: bool) -> Store:
    from reconciler.emulator import Store

    try:
        return Store(str(data) if data else ":memory:", speed=speed, noise=noise)
    except Exception as error:  # a directory that is not there, a file that is no database
        raise click.UsageError(f"--data {data}: {error}") from error


@click.group("emulator", no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Run the embedded emulator of the ModelArts training-job API."""


@command.command("serve")
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
    project_id: str | None,
    token: str | None,
    access_key: str | None,
    secret_key: str | None,
    security_token: str | None,
    speed: float | None,
    cloud: str,
    strict: bool,
    flavors: tuple[str, ...],
    engines: tuple[str, ...],
    item_offsets: bool,
    no_noise: bool,
    chaos: float | None,
    chaos_seed: int,
) -> None:
    """Speak the service's v2 API on a local port, errors included, until stopped.

    The first line on stdout says where: `listening on http://127.0.0.1:PORT`.
    """
    from reconciler import emulator
    from reconciler.core.endpoint_url import is_loopback

    gc.enable()  # a server runs for long

    console.redact.learn(secret for secret in (token, secret_key, security_token) if secret)
    _check_credentials(access_key, secret_key, security_token)
    if strict and (flavors or engines):
        raise click.UsageError("--flavor and --engine are not for --strict, whose catalogue is fixed")
    store = _open_store(data, speed, noise=not no_noise)
    app = emulator.create_app(
        store,
        project_id=project_id,
        token=token,
        access_key=access_key,
        secret_key=secret_key,
        security_token=security_token or None,
        cloud=cloud,
        strict_catalogue=strict,
        flavors=flavors,
        engines=engines,
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
