"""What `jobs list` is asked for: the service's own filters, as options."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.options import OnePerLine, ParamType, option

if TYPE_CHECKING:
    from reconciler.modelarts.jobs import Moment

OPERATORS = ("between", "like", "in", "not")
_COMMA = re.compile(r"(?<!\\),")


class MomentType(ParamType):
    """A time such as 2026-11-21 or 2026-11-21T08:00:00Z, or a span such as 2d: so long ago."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Moment:
        """Read it; a time without a zone is UTC."""
        from reconciler.modelarts.jobs import Moment

        if isinstance(value, Moment):
            return value
        try:
            return Moment.parse(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class PhaseType(ParamType):
    """A phase, in any case, under any name that the service's documents have for it."""

    name = "phase"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the service's word."""
        from reconciler.core.phase import Phase, parse_phase

        phase = parse_phase(str(value))
        if phase is None:
            self.fail(f'"{value}" is not one of {", ".join(Phase)}', param, ctx)
        return phase.value


class FilterType(OnePerLine):
    r"""KEY:OPERATOR:VALUE[,VALUE], as the service's search takes it; `\,` is a comma within a value."""

    name = "filter"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        """Split it; which keys there are is for the service to say."""
        if isinstance(value, dict):
            return value
        key, _, rest = str(value).partition(":")
        operator, colon, values = rest.partition(":")
        if not (key and colon and values):
            self.fail("write KEY:OPERATOR:VALUE[,VALUE], e.g. pool_id:in:pool-1,pool-2", param, ctx)
        if operator not in OPERATORS:
            self.fail(f'"{operator}" is not one of {", ".join(OPERATORS)}', param, ctx)
        return {"key": key, "operator": operator, "value": _values(values)}


def _values(text: str) -> list[str]:
    return [value.replace("\\,", ",") for value in _COMMA.split(text)]


class TagType(OnePerLine):
    """KEY, or KEY=VALUE[,VALUE]: one of these values."""

    name = "tag"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        """Split it."""
        if isinstance(value, dict):
            return value
        key, equals, values = str(value).partition("=")
        if not key or (equals and not values):
            self.fail("write KEY or KEY=VALUE[,VALUE]", param, ctx)
        return {"key": key, "values": _values(values) if equals else []}


FILTERS: Sequence[Callable[[Any], Any]] = (
    option("--name", metavar="TEXT", default=None, help="Only jobs whose name contains this text."),
    option("--phase", "phases", multiple=True, type=PhaseType(), help="Only jobs in this phase; repeatable."),
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
        type=MomentType(),
        default=None,
        help="Only jobs created after TIME: 2026-11-21, 2026-11-21T08:00:00Z, or 2d (ago).",
    ),
    option(
        "--created-before",
        "before",
        metavar="TIME",
        type=MomentType(),
        default=None,
        help="Only jobs created before TIME.",
    ),
    option(
        "--filter",
        "filters",
        multiple=True,
        metavar="KEY:OPERATOR:VALUE[,VALUE]",
        type=FilterType(),
        help="Search condition of the service; operators: between, like, in, not. "
        "Write a comma within a value as \\,. Repeatable.",
    ),
    option(
        "--tag",
        "tags",
        multiple=True,
        metavar="KEY[=VALUE[,VALUE]]",
        type=TagType(),
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
