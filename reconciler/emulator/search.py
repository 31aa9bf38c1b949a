"""A search: the request body read into conditions that the store can run.

Source: the request table of "Querying a Training Job List" and its example; filters are ANDed, the
values of one filter ORed, and empty values have no effect.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import IPv4Address
from typing import Any, NamedTuple

from reconciler.emulator.lifecycle import SECONDARY
from reconciler.emulator.schemas import ApiError, invalid, refuse_if
from reconciler.emulator.validation import KINDS, check_limit, check_workspace

MAX_LIMIT = 50
DEFAULT_LIMIT = 10
"""No default is documented; ten is what the console shows."""
WINDOW_MS = 31 * 24 * 3_600_000
"""The widest span of create times that one search may cover."""


class FilterKey(NamedTuple):
    column: str
    operators: frozenset[str]


_EXACT = frozenset({"in", "not"})
_TEXT = frozenset({"in", "not", "like"})

KEYS = {
    "name": FilterKey("name", _TEXT),
    "algorithm_name": FilterKey("algorithm_name", _TEXT),
    "user_name": FilterKey("user_name", _TEXT),
    "create_time": FilterKey("create_ms", frozenset({"between"})),
    "training_experiment_id": FilterKey("experiment_id", _EXACT),
    **{
        key: FilterKey(key, _EXACT)
        for key in ("id", "phase", "kind", "user_id", "runtime_type", "algorithm_id", "pool_id", "priority")
    },
}
VALUES = {
    "phase": frozenset(SECONDARY),
    "kind": KINDS,
    "runtime_type": frozenset({"production", "debug"}),
    "priority": frozenset({"1", "2", "3"}),
}
"""The values that a filter by these keys takes; any other is refused."""
_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)?", re.ASCII)
_FIRST_HOST = int(IPv4Address("192.168.0.0"))
"""Task n of every started job lies on the host n + 1 addresses behind this one."""
MAX_CHOICES = 10
"""How many values one filter may name, and how many tags, values of a tag and addresses one search."""


class Condition(NamedTuple):
    """A piece of SQL about the table of jobs, and the values of its question marks.

    `is_about_life`: the response changes with time. `is_counted`: the sql fits the table of counts, too.
    """

    sql: str
    values: tuple[Any, ...]
    is_about_life: bool = False
    is_counted: bool = False


@dataclass(frozen=True)
class SearchRequest:
    """One page of a search: the `limit` jobs behind the first `skipped`. `offset` is what was sent."""

    workspace_id: str
    offset: int
    limit: int
    skipped: int
    descending: bool
    conditions: tuple[Condition, ...]


def read_search(
    body: Mapping[str, Any], now_ms: int, *, strict: bool = False, counts_items: bool = False, shift: int = 0
) -> SearchRequest:
    """Return the search that a request body asks for; its types have been checked before.

    `strict`: the workspace must be one of the catalogue; `counts_items`: the offset counts items, not pages;
    `shift`: by how many items the list moved towards its start since the page before was read.
    """
    offset, limit = body.get("offset") or 0, body.get("limit")
    limit = DEFAULT_LIMIT if limit is None else limit
    check_limit("limit", limit, MAX_LIMIT)
    refuse_if(limit < 1 or offset < 0, "limit must be at least 1 and offset must not be negative")
    column, order, train_type = (body.get(name) or "" for name in ("sort_by", "order", "train_type"))
    is_other = column not in {"", "create_time"}
    refuse_if(is_other, f"Sorting by {column} is not supported.", "ModelArts.2790")
    refuse_if(order not in {"", "asc", "desc"}, f"Order {order} is not supported.", "ModelArts.2790")
    check_workspace(body.get("workspace_id"), strict=strict)
    is_other = train_type not in {"", "job", "ftjob"}
    refuse_if(is_other, f"train_type {train_type} is not supported.", "ModelArts.2789")
    return SearchRequest(
        workspace_id=body.get("workspace_id") or "0",
        offset=offset,
        limit=limit,
        skipped=max(0, offset * (1 if counts_items else limit) + shift),
        descending=order != "asc",
        conditions=tuple(_conditions(body, now_ms)),
    )


def _conditions(body: Mapping[str, Any], now_ms: int) -> Iterator[Condition]:
    filters, tags, hosts = (body.get(name) or () for name in ("filters", "tags", "host_ips"))
    for item in filters:
        yield from _filter(item)
    if train_type := body.get("train_type"):
        yield Condition("fine_tuned = ?", (int(train_type == "ftjob"),))
    check_limit("host_ips", len(hosts), MAX_CHOICES)
    check_limit("tags", len(tags), MAX_CHOICES)
    for tag in tags:
        refuse_if(not tag.get("key"), "tags[].key must be given")
        check_limit("tags[].values", len(tag.get("values") or ()), MAX_CHOICES)
    check_tags_differ(tags)
    yield from map(has_tag, tags)
    if hosts:
        try:
            numbers = [int(IPv4Address(address)) - _FIRST_HOST for address in hosts]
        except ValueError:
            raise invalid("host_ips must be IPv4 addresses") from None
        least = min((number for number in numbers if 0 < number < 256), default=1 << 31)
        yield Condition("started_ms > 0 AND node_count >= ?", (least,), is_about_life=True)
    if (tags or hosts) and "create_time" not in [item.get("key") for item in filters]:
        # With tags or addresses the service looks back 31 days only.
        yield Condition("create_ms >= ?", (now_ms - WINDOW_MS,))


def _filter(item: Mapping[str, Any]) -> Iterator[Condition]:
    """Yield the condition of a filter; none if the filter names no value."""
    name, operator = item.get("key") or "", item.get("operator") or ""
    refuse_if(name not in KEYS, f"Condition key {item.get('key')} is not supported.", "ModelArts.2807")
    is_other, why = operator not in KEYS[name].operators, f"operator {operator} is not supported for {name}"
    refuse_if(is_other, f"Condition {why}.", "ModelArts.2808")
    given, most = item.get("value") or (), MAX_CHOICES
    refuse_if(len(given) > most, f"A condition takes at most {most} values.", "ModelArts.2809")
    values = tuple(filter(None, given))
    if name in VALUES and (unknown := set(values) - VALUES[name]):
        raise ApiError("ModelArts.2809", f"Condition value {min(unknown)} is not supported for {name}.")
    if not values:
        return
    column, marks = KEYS[name].column, _placeholders(values)
    if operator == "between":
        yield Condition(f"{column} BETWEEN ? AND ?", _span(values))
    elif operator == "like" and column == "name":
        yield name_contains(*values)
    elif operator == "like":
        parts = " OR ".join([f"instr(lower({column}), lower(?))"] * len(values))
        yield Condition(f"({parts})", values)
    elif operator == "in" and column == "name":
        keys = tuple(value.lower() for value in values)
        yield Condition(f"(name_key IN ({marks}) AND name IN ({marks}))", (*keys, *values))
    else:
        is_phase = column == "phase"
        sql = f"{column} {'IN' if operator == 'in' else 'NOT IN'} ({marks})"
        yield Condition(sql, values, is_about_life=is_phase, is_counted=is_phase)


def _placeholders(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))


def name_contains(*texts: str) -> Condition:
    """Return the condition that a job's name contains one of these texts, case aside."""
    found = (
        "SELECT seq FROM name_ends WHERE ending >= lower(?) AND ending < lower(?) || char(1114111)"
        " UNION SELECT seq FROM new_names WHERE instr(name_key, lower(?))"
    )
    sql = " UNION ".join([found] * len(texts))
    return Condition(f"seq IN ({sql})", tuple(text for text in texts for _ in range(3)))


def _span(values: tuple[str, ...]) -> tuple[int, int]:
    try:
        first, last = (milliseconds_of(value) for value in values)
    except ValueError:
        raise ApiError("ModelArts.2809", "create_time takes two RFC 3339 times.") from None
    if not 0 <= last - first <= WINDOW_MS:
        raise ApiError("ModelArts.2809", "The two times of create_time must be at most 31 days apart.")
    return first, last


def milliseconds_of(text: str) -> int:
    """Return the time of an RFC 3339 text; without a zone it is UTC.

    Raises:
        ValueError: the text is not such a time.
    """
    if not _RFC_3339.fullmatch(text):
        raise ValueError(text)
    moment = datetime.fromisoformat(text.upper())
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def check_tags_differ(tags: Sequence[Mapping[str, Any]]) -> None:
    """Refuse tags to search by that name a key, or a value of one key, twice."""
    of_tags = (("tags[].values", tag.get("values") or ()) for tag in tags)
    for where, given in (("tags", [tag.get("key") for tag in tags]), *of_tags):
        refuse_if(len(given) != len(set(given)), f"{where} must not name the same twice")


def has_tag(tag: Mapping[str, Any]) -> Condition:
    """Return the condition that a job has a tag: the key, and one of the values if there are any."""
    values = tuple(value for value in tag.get("values") or () if value is not None)
    chosen = f" AND value IN ({_placeholders(values)})" if values else ""
    # Only the number of question marks goes into the text.
    sql = f"seq IN (SELECT seq FROM tags JOIN jobs ON id = job_id WHERE key = ?{chosen})"  # noqa: S608
    return Condition(sql, (tag.get("key"), *values))
