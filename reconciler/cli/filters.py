"""What `jobs list` is asked for: the service's own filters, as options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from reconciler.cli.options import OnePerLine, ParamType, option

if TYPE_CHECKING:
    from reconciler.core.observed import ObservedJob

OPERATORS = ("between", "like", "in", "not")
#: One search covers so many days at most, and a filter takes so many values. Source: reference 3.
WINDOW_S = 31 * 86_400
MAX_VALUES = 10


class Moment(NamedTuple):
    """A point in time: seconds since 1970, or so many seconds ago."""

    seconds: float
    is_ago: bool = False

    def at_s(self, now_s: float) -> float:
        """Seconds since 1970."""
        return now_s - self.seconds if self.is_ago else self.seconds


class MomentType(ParamType):
    """A time such as 2026-11-21 or 2026-11-21T08:00:00Z, or a span such as 2d: so long ago."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Moment:
        """Read it; a time without a zone is UTC."""
        from reconciler.core.duration import parse_duration

        if isinstance(value, Moment):
            return value
        text = str(value)
        try:
            return Moment(parse_duration(text), is_ago=True)
        except ValueError:
            pass
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            self.fail(f'"{text}" is no time; write 2026-11-21, 2026-11-21T08:00:00Z, or 2d', param, ctx)
        return Moment((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


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
    """KEY:OPERATOR:VALUE[,VALUE], as the service's search takes it."""

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
        return {"key": key, "operator": operator, "value": values.split(",")}


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
        return {"key": key, "values": values.split(",") if equals else []}


FILTERS: Sequence[Callable[[Any], Any]] = (
    option("--name", metavar="TEXT", default=None, help="Only jobs whose name holds this text."),
    option("--phase", "phases", multiple=True, type=PhaseType(), help="Only this phase; repeatable."),
    option("--kind", "kinds", multiple=True, metavar="KIND", help="Only this kind; repeatable."),
    option("--user", "users", multiple=True, metavar="ID", help="Only of this user; repeatable."),
    option(
        "--algorithm-name",
        metavar="TEXT",
        default=None,
        help="Only of algorithms whose name holds this text.",
    ),
    option(
        "--created-after",
        "after",
        metavar="TIME",
        type=MomentType(),
        default=None,
        help="2026-11-21, 2026-11-21T08:00:00Z, or 2d: not longer ago than that.",
    ),
    option(
        "--created-before", "before", metavar="TIME", type=MomentType(), default=None, help="The other end."
    ),
    option(
        "--filter",
        "filters",
        multiple=True,
        metavar="KEY:OPERATOR:VALUE[,VALUE]",
        type=FilterType(),
        help="Any condition of the service's search; operators: between, like, in, not. Repeatable.",
    ),
    option(
        "--tag",
        "tags",
        multiple=True,
        metavar="KEY[=VALUE[,VALUE]]",
        type=TagType(),
        help="Only with this tag (the last 31 days, unless times are given); repeatable.",
    ),
    option("--host-ip", "host_ips", multiple=True, metavar="IP", help="Only jobs on this host; repeatable."),
    option(
        "--train-type", type=click.Choice(["job", "ftjob"]), default=None, help="Custom or fine-tune jobs."
    ),
)


class Wanted(NamedTuple):
    """What is asked of the service, and what is looked at on our side as well."""

    filters: list[dict[str, Any]]
    more: dict[str, Any]
    after_s: float | None
    before_s: float | None

    def matches(self, job: ObservedJob) -> bool:
        """Whether a job lies between the times; one search cannot span more than 31 days."""
        created_at_s = job.created_at_s
        if created_at_s is None:
            return self.after_s is None and self.before_s is None
        return (self.after_s is None or created_at_s >= self.after_s) and (
            self.before_s is None or created_at_s <= self.before_s
        )


def wanted(
    now_s: float,
    *,
    name: str | None,
    phases: Sequence[str],
    kinds: Sequence[str],
    users: Sequence[str],
    algorithm_name: str | None,
    after: Moment | None,
    before: Moment | None,
    filters: Sequence[dict[str, Any]],
    tags: Sequence[dict[str, Any]],
    host_ips: Sequence[str],
    train_type: str | None,
) -> Wanted:
    """Turn the options into the service's search.

    Raises:
        UsageError: a condition has more values than the service takes, or the times are the wrong way round.
    """
    asked = [
        ("name", "like", [name] if name else []),
        ("phase", "in", list(phases)),
        ("kind", "in", list(kinds)),
        ("user_id", "in", list(users)),
        ("algorithm_name", "like", [algorithm_name] if algorithm_name else []),
    ]
    conditions = [{"key": key, "operator": how, "value": values} for key, how, values in asked if values]
    conditions += filters
    for condition in conditions:
        if len(condition["value"]) > MAX_VALUES:
            raise click.UsageError(f"the service takes {MAX_VALUES} values of {condition['key']} at most")
    after_s = after.at_s(now_s) if after else None
    before_s = before.at_s(now_s) if before else None
    if after_s is not None:
        # The service's clock may be ahead of ours.
        last_s = now_s + 3600 if before_s is None else before_s
        if last_s < after_s:
            raise click.UsageError("--created-before lies before --created-after")
        if last_s - after_s <= WINDOW_S:
            span = [datetime.fromtimestamp(s, UTC).isoformat() for s in (after_s, last_s)]
            conditions.append({"key": "create_time", "operator": "between", "value": span})
    more = {"tags": list(tags), "host_ips": list(host_ips), "train_type": train_type}
    return Wanted(conditions, {key: value for key, value in more.items() if value}, after_s, before_s)
