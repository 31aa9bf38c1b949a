"""What a create body starts, in a line for people: nodes, flavor, auto_stop, engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from math import inf
from typing import Any, NamedTuple, TypeGuard

from reconciler.secrets import show

_POOLS = ("pool_id", "pool_group_id")


class UsedNodes(NamedTuple):
    """Nodes (None: no such number) of one flavor; of a pool where the job names no flavor."""

    nodes: int | None
    name: str


def resources(body: Mapping[str, Any]) -> list[UsedNodes]:
    """The nodes that a job with this body takes, those of its tasks included."""
    found = []
    for resource in _resource_trees(body):
        name = next((resource[one] for one in ("flavor_id", *_POOLS) if resource.get(one)), None)
        if name:
            count = resource.get("node_count", 1)
            found.append(
                UsedNodes(count if _is_positive(count) and isinstance(count, int) else None, str(name))
            )
    return found


def auto_stop_hours(body: Mapping[str, Any]) -> float | None:
    """After how many hours the service stops the job; None if it does not, or that cannot be told."""
    duration = _mapping(_mapping(body, "spec"), "auto_stop").get("duration")
    return float(duration) if _is_positive(duration) else None


def _is_positive(value: Any) -> TypeGuard[float]:
    """Whether a value is a number that can be reckoned with: `raw` may put anything into a body."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < inf


def summarize(body: Mapping[str, Any]) -> str:
    """Say what a job with this body takes and runs: `8 × modelarts.p3.large.public, auto_stop 48h, pytorch`.

    A heterogeneous job names the nodes of each task. What the body does not say is left out.
    """
    return ", ".join(_parts(show(body)))


def _parts(body: Mapping[str, Any]) -> Iterator[str]:
    for count, place in _resources(body):
        yield f"{count} × {place}"
    auto_stop = _mapping(_mapping(body, "spec"), "auto_stop")
    if duration := auto_stop.get("duration"):
        yield f"auto_stop {duration}h"
    algorithm = _mapping(body, "algorithm")
    for name in ("id", "subscription_id"):
        if algorithm.get(name):
            yield f"algorithm {algorithm[name]}"
    engines = [_mapping(algorithm, "engine")]
    engines += [_mapping(_mapping(task, "algorithm"), "engine") for task in _tasks(body)]
    yield from dict.fromkeys(engine for engine in map(_engine, engines) if engine)


def nodes_by_place(body: Mapping[str, Any]) -> Counter[str]:
    """How many nodes a job with this body takes: of each flavor, or of a pool where it names one only."""
    nodes: Counter[str] = Counter()
    for count, place in _resources(show(body)):
        nodes[place] += count if isinstance(count, int) else 1
    return nodes


def _resources(body: Mapping[str, Any]) -> Iterator[tuple[Any, str]]:
    """The nodes of the job, and of each of its tasks, with what they are."""
    for resource in _resource_trees(body):
        if place := _place(resource):
            yield resource.get("node_count", 1), place


def _resource_trees(body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield _mapping(_mapping(body, "spec"), "resource")
    for task in _tasks(body):
        yield _mapping(task, "task_resource")


def _tasks(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [task for task in body.get("tasks") or () if isinstance(task, Mapping)]


def _place(resource: Mapping[str, Any]) -> str:
    flavor = resource.get("flavor_id")
    pool = next((resource[name] for name in _POOLS if resource.get(name)), None)
    if flavor and pool:
        return f"{flavor} of pool {pool}"
    return str(flavor or (f"pool {pool}" if pool else ""))


def _engine(engine: Mapping[str, Any]) -> str:
    names = (engine.get(name) for name in ("engine_id", "engine_name", "engine_version", "image_url"))
    return " ".join(str(name) for name in names if name)


def _mapping(tree: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = tree.get(name)
    return value if isinstance(value, Mapping) else {}
