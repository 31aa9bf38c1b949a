"""`reconciler watch`: drift checks, or applies, on a schedule."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.options import (
    LOCK,
    TARGET,
    DurationType,
    OnePerLine,
    OutputSpec,
    ParamType,
    option,
    output,
    remind,
    with_options,
)
from reconciler.render import Content

if TYPE_CHECKING:
    from reconciler.decide.watch_window import Window


class _IntervalType(DurationType):
    """A span of time between two checks, or for one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it."""
        seconds = super().convert(value, param, ctx)
        if seconds < 1:
            self.fail("must be at least 1s", param, ctx)
        return seconds


class _ShareType(ParamType):
    """A share such as 10%."""

    name = "percentage"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it."""
        if isinstance(value, float):
            return value
        text = str(value).strip()
        number = text.removesuffix("%").strip()
        if not (number.isascii() and number.replace(".", "", 1).isdigit()) or float(number) > 100:
            self.fail(f"{text!r} is not a percentage from 0% to 100%", param, ctx)
        return float(number) / 100


class _WindowType(OnePerLine):
    """A window of the week."""

    name = "window"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Window:
        """Read it."""
        from reconciler.decide.watch_window import InvalidWindow, Window

        if isinstance(value, Window):
            return value
        try:
            return Window.parse(str(value))
        except InvalidWindow as error:
            self.fail(str(error), param, ctx)


class _AddressType(ParamType):
    """HOST:PORT; without a host this machine."""

    name = "host:port"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        """Read it."""
        if isinstance(value, tuple):
            return value
        found = re.fullmatch(r"(?:\[([^\[\]]+)\]|([^\[\]]*)):([0-9]{1,5})", str(value))
        if found is None or int(found[3]) > 65535:
            self.fail(f"{value!r} is not an address; write 127.0.0.1:9464", param, ctx)
        return found[1] or found[2] or "127.0.0.1", int(found[3])


@click.command("watch")
@with_options(
    TARGET,
    option(
        "--every",
        "every_s",
        type=_IntervalType(),
        default="15m",
        show_default=True,
        help="Time between two checks.",
    ),
    option(
        "--jitter",
        type=_ShareType(),
        default="0%",
        show_default=True,
        metavar="PERCENT",
        help="Start each check later by a random part of the interval, up to this share.",
    ),
    option(
        "--check-timeout",
        "check_timeout_s",
        type=_IntervalType(),
        default="5m",
        show_default=True,
        help="Time limit for a check, its apply included.",
    ),
    remind("Notify again of drift that has lasted for this long."),
    option("--apply", "applies", is_flag=True, help="Apply changes, without asking; never past a guard."),
    option(
        "--max-actions",
        type=click.IntRange(0),
        default=None,
        metavar="N",
        help="With --apply: refuse a plan with more actions.",
    ),
    option(
        "--window",
        "windows",
        multiple=True,
        type=_WindowType(),
        metavar="WINDOW",
        help='With --apply: apply only in this window, e.g. "Mon-Fri 07:00-19:00 Europe/Berlin"; repeatable.',
    ),
    option(
        "--listen",
        type=_AddressType(),
        default=None,
        metavar="HOST:PORT",
        help="Serve /metrics and /healthz on this address, e.g. 127.0.0.1:9464.",
    ),
    option(
        "--push-gateway",
        default=None,
        metavar="URL",
        help="Push the metrics to this Prometheus Pushgateway after each check.",
    ),
    output(Content.DRIFT),
    LOCK,
)
def command(outputs: Sequence[OutputSpec], as_json: bool, **options: Any) -> int:
    """Check for drift at once and then once every interval, until stopped by a signal.

    Each check reads the manifest anew and is a line on stdout: text, or JSON with --json. With --apply
    changes are applied, too. A check that fails ends nothing; after failures checks come less often.
    """
    from reconciler.cli.output import requested_outputs
    from reconciler.cli.watch import WatchRequest, watch

    request = WatchRequest(**{one.name: options[one.name] for one in fields(WatchRequest)})
    specs = requested_outputs(outputs, as_json=as_json)
    return watch(request, specs, click.get_current_context())
