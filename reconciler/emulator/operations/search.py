"""A search: the request body read into conditions that the store can run.

Source: the request table of "Querying a Training Job List" and its example; filters are ANDed, the
values of one filter ORed, and empty values have no effect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from reconciler.emulator.errors import ApiError, invalid
from reconciler.emulator.operations.validation import check_workspace

MAX_LIMIT = 50
DEFAULT_LIMIT = 10
"""No default is documented; ten is what the console shows."""
WINDOW_MS = 31 * 24 * 3_600_000
"""The widest span of create times that one search may cover."""


class Key(NamedTuple):
    """A filter key: the column it reads, and the operators it takes."""

    column: str
    operators: frozenset[str]


_EXACT = frozenset({"in", "not"})
_TEXT = frozenset({"in", "not", "like"})

KEYS = {
    "name": Key("name", _TEXT),
    "algorithm_name": Key("algorithm_name", _TEXT),
    "user_name": Key("user_name", _TEXT),
    "create_time": Key("create_ms", frozenset({"between"})),
    "id": Key("id", _EXACT),
    "phase": Key("phase", _EXACT),
    "kind": Key("kind", _EXACT),
    "user_id": Key("user_id", _EXACT),
    "runtime_type": Key("runtime_type", _EXACT),
    "algorithm_id": Key("algorithm_id", _EXACT),
    "pool_id": Key("pool_id", _EXACT),
    "training_experiment_id": Key("experiment_id", _EXACT),
    "priority": Key("priority", _EXACT),
}
OPERATORS = frozenset({"between", "like", "in", "not"})
PHASES = frozenset(
    {"Creating", "Pending", "Running", "Terminating", "Completed", "Failed", "Terminated", "Abnormal"}
)
"""What a filter by phase may ask for."""
MAX_CHOICES = 10
"""How many values one filter may name, and how many tags, values of a tag and addresses one search."""


class Condition(NamedTuple):
    """A piece of SQL about the table of jobs, and the values of its question marks.

    `is_about_life`: the answer changes with time. `is_counted`: the sql fits the table of counts, too.
    """

    sql: str
    values: tuple[Any, ...]
    is_about_life: bool = False
    is_counted: bool = False


@dataclass(frozen=True)
class SearchRequest:
    """One page of a search; `offset` counts pages, or items if `counts_items`.

    `shift`: by how many items the list moved towards its start since the page before was read.
    """

    workspace_id: str = "0"
    offset: int = 0
    limit: int = DEFAULT_LIMIT
    descending: bool = True
    group_by: str = ""
    train_type: str | None = None
    conditions: tuple[Condition, ...] = field(default=())
    counts_items: bool = False
    shift: int = 0

    @property
    def skipped(self) -> int:
        """How many jobs stand before the page."""
        return max(0, self.offset * (1 if self.counts_items else self.limit) + self.shift)


def read_search(body: Mapping[str, Any], now_ms: int, *, strict: bool = False) -> SearchRequest:
    """Return the search that a request body asks for; the shape has been checked before.

    `strict`: the workspace must be one of the catalogue.

    Raises:
        ApiError: a page, order or filter that the service does not offer.
    """
    limit, offset = body.get("limit"), body.get("offset") or 0
    if limit is not None and limit > MAX_LIMIT:
        raise ApiError("ModelArts.2816", f"limit exceeds its upper limit {MAX_LIMIT}.")
    if (limit is not None and limit < 1) or offset < 0:
        raise invalid("limit must be at least 1 and offset must not be negative")
    if body.get("sort_by") not in {None, "", "create_time"}:
        raise ApiError("ModelArts.2790", f"Sorting by {body['sort_by']} is not supported.")
    if body.get("order") not in {None, "", "asc", "desc"}:
        raise ApiError("ModelArts.2790", f"Order {body['order']} is not supported.")
    check_workspace(body.get("workspace_id"), strict=strict)
    train_type = body.get("train_type") or None
    if train_type not in {None, "job", "ftjob"}:
        raise ApiError("ModelArts.2789", f"train_type {train_type} is not supported.")
    return SearchRequest(
        workspace_id=body.get("workspace_id") or "0",
        offset=offset,
        limit=DEFAULT_LIMIT if limit is None else limit,
        descending=body.get("order") != "asc",
        group_by=body.get("group_by") or "",
        train_type=train_type,
        conditions=tuple(_conditions(body, train_type, now_ms)),
    )


def _conditions(body: Mapping[str, Any], train_type: str | None, now_ms: int) -> list[Condition]:
    filters = body.get("filters") or ()
    found = [condition for item in filters if (condition := _filter(item))]
    if train_type:
        found.append(Condition("fine_tuned = ?", (int(train_type == "ftjob"),)))
    tags, hosts = body.get("tags") or (), body.get("host_ips") or ()
    _check_count("host_ips", hosts)
    _check_count("tags", tags)
    for tag in tags:
        _check_count("tags[].values", tag.get("values") or ())
    check_tags_differ(tags)
    found += [tagged(tag) for tag in tags]
    if hosts:
        found.append(_hosts(hosts))
    timed = any(item.get("key") == "create_time" for item in filters)
    if (tags or hosts) and not timed:
        # With tags or addresses the service looks back 31 days only.
        found.append(Condition("create_ms >= ?", (now_ms - WINDOW_MS,)))
    return found


def _filter(item: Mapping[str, Any]) -> Condition | None:
    key = KEYS.get(item.get("key") or "")
    if key is None:
        raise ApiError("ModelArts.2807", f"Condition key {item.get('key')} is not supported.")
    operator = item.get("operator") or ""
    if operator not in OPERATORS or operator not in key.operators:
        raise ApiError("ModelArts.2808", f"Condition operator {operator} is not supported for {item['key']}.")
    given = item.get("value") or ()
    if len(given) > MAX_CHOICES:
        raise ApiError("ModelArts.2809", f"A condition takes at most {MAX_CHOICES} values.")
    values = tuple(value for value in given if value)
    if item["key"] == "phase" and (unknown := set(values) - PHASES):
        raise ApiError("ModelArts.2809", f"Condition value {min(unknown)} is not supported for phase.")
    if not values:
        return None
    marks = ", ".join("?" * len(values))
    about_phase = {"is_about_life": True, "is_counted": True} if key.column == "phase" else {}
    match operator:
        case "between":
            return Condition(f"{key.column} BETWEEN ? AND ?", _span(values))
        case "like":
            if key.column == "name":
                return name_contains(*values)
            parts = " OR ".join([f"instr(lower({key.column}), lower(?))"] * len(values))
            return Condition(f"({parts})", values)
        case "not":
            return Condition(f"{key.column} NOT IN ({marks})", values, **about_phase)
        case _ if key.column == "name":
            keys = tuple(value.lower() for value in values)
            return Condition(f"(name_key IN ({marks}) AND name IN ({marks}))", (*keys, *values))
        case _:
            return Condition(f"{key.column} IN ({marks})", values, **about_phase)


def name_contains(*texts: str) -> Condition:
    """Return the condition that a job's name contains one of these texts, case aside."""
    ends = " UNION ".join(
        ["SELECT seq FROM name_ends WHERE ending >= lower(?) AND ending < lower(?) || char(1114111)"]
        * len(texts)
    )
    return Condition(f"seq IN ({ends})", tuple(text for text in texts for _ in range(2)))


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
        ValueError: it is none.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def check_tags_differ(tags: Sequence[Mapping[str, Any]]) -> None:
    """Refuse tags to search by that name a key, or a value of one key, twice.

    Raises:
        ApiError: 400 ModelArts.2788.
    """
    for where, given in (
        ("tags", [tag.get("key") for tag in tags]),
        *(("tags[].values", tag.get("values") or ()) for tag in tags),
    ):
        if len(given) != len(set(given)):
            raise invalid(f"{where} must not name the same twice")


def _check_count(where: str, given: Sequence[Any]) -> None:
    if len(given) > MAX_CHOICES:
        raise ApiError("ModelArts.2816", f"{where} exceeds its upper limit {MAX_CHOICES}.")


def tagged(tag: Mapping[str, Any]) -> Condition:
    """Return the condition that a job has a tag: the key, and one of the values if there are any."""
    values = tuple(value for value in tag.get("values") or () if value is not None)
    chosen = f" AND value IN ({', '.join('?' * len(values))})" if values else ""
    # Only the number of question marks goes into the text.
    sql = f"seq IN (SELECT seq FROM tags JOIN jobs ON id = job_id WHERE key = ?{chosen})"  # noqa: S608
    return Condition(sql, (tag.get("key"), *values))


def _hosts(addresses: list[str]) -> Condition:
    """Task n of every started job lies on host 192.168.0.(n + 1)."""
    parts = [address.rpartition(".") for address in addresses]
    numbers = [int(last) for net, _, last in parts if net == "192.168.0" and last.isdecimal() and int(last)]
    least = min(numbers, default=None)
    sql = "started_ms > 0 AND node_count >= ?"
    return Condition(sql, (least if least is not None else 1 << 31,), is_about_life=True)
