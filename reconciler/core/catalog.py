"""What a target offers to jobs, and what a create body names that is missing there.

Only certain refusals count: an unreadable part of the catalog proves nothing, rules of the public pools do
not apply to dedicated ones, and rules of preset engines do not apply to images.

Source: docs/reference/modelarts.md, "Calls" and "Create request".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from reconciler.core.body import mapping_at, placed
from reconciler.core.values import PreflightReason
from reconciler.secrets import SecretText, show

_T = TypeVar("_T")


class Offered(NamedTuple, Generic[_T]):
    """A list of offers. `is_whole`: anything that is not listed is not offered."""

    items: Sequence[_T]
    is_whole: bool


class EngineOffer(NamedTuple):
    """One version of a preset framework. `reported` is the whole entry of the target."""

    engine_id: str
    name: str
    version: str
    run_user: str = ""
    reported: Mapping[str, Any] = MappingProxyType({})


class FlavorOffer(NamedTuple):
    """A kind of node: cores, memory and cards as text, and the maximum nodes of a job (None: not reported).

    `reported` is the whole entry of the target.
    """

    flavor_id: str
    type: str = ""
    cores: str = ""
    memory: str = ""
    cards: str = ""
    max_nodes: int | None = None
    reported: Mapping[str, Any] = MappingProxyType({})


class RecordQuota(NamedTuple):
    """The limit of job records, and how many there are. None: unknown."""

    quota: int | None
    used: int | None


class Offers(NamedTuple):
    """What a target offers. None: unknown.

    `most_nodes` has the maximum nodes of a job for each flavor of the public pools (None: not reported);
    `runs_images` says whether the command of an image can run there.
    """

    most_nodes: Mapping[str, int | None] | None = None
    engines: Collection[EngineOffer] | None = None
    runs_images: bool = True


class Missing(NamedTuple):
    """A value in a create body that the target does not offer."""

    reason: PreflightReason
    path: str
    value: str
    why: str = "is not offered by the target"

    @property
    def detail(self) -> str:
        """The problem in words; secrets appear by name."""
        return f'{self.path} "{show(self.value)}" {self.why}'


class PoolChoice(NamedTuple):
    """A dedicated pool, and the flavor requested from it, if any."""

    pool_id: str
    flavor_id: str | None

    def __str__(self) -> str:
        flavor = f" with {show(self.flavor_id)}" if self.flavor_id else ""
        return f"pool {show(self.pool_id)}{flavor}"


#: Kinds of jobs that run elsewhere than in the project's pools: at an edge, on another service's cluster, in
#: several pools. What they may name is not documented.
_RUN_ELSEWHERE = frozenset({"edge_job", "mrs_job", "federated_pool_job", "diag_job"})
#: A path, and the resources or engine there.
_Placed = tuple[str, Mapping[str, Any]]


def needs_flavors(body: Mapping[str, Any]) -> bool:
    """Whether the body names a flavor of the public pools."""
    return any(_is_public(item) and _has_value(item.get("flavor_id")) for _, item in _resources(body))


def needs_engines(body: Mapping[str, Any]) -> bool:
    """Whether the body names a preset engine."""
    return any(_is_preset(engine) for _, engine in _engines(body))


def pools(body: Mapping[str, Any]) -> Iterator[tuple[str, PoolChoice]]:
    """Yield the dedicated pools in a body, each with its path."""
    for path, resource in _resources(body):
        pool_id, flavor_id = resource.get("pool_id"), resource.get("flavor_id")
        if isinstance(pool_id, str) and _has_value(pool_id):
            flavor = flavor_id if isinstance(flavor_id, str) and _has_value(flavor_id) else None
            yield f"{path}.pool_id", PoolChoice(pool_id, flavor)


def missing(body: Mapping[str, Any], offers: Offers) -> list[Missing]:
    """Return what a body names but the target does not offer, in the order of the body."""
    result: list[Missing] = []
    if offers.engines is not None:
        for path, engine in _engines(body):
            result += _missing_engine(path, engine, offers.engines)
    if offers.most_nodes is not None:
        for path, resource in _resources(body):
            result += _missing_flavor(path, resource, offers.most_nodes)
    if not offers.runs_images:
        for path, algorithm in placed(body, "algorithm", "algorithm"):
            if command := algorithm.get("command"):
                why = "needs its container image, which the target cannot run"
                result.append(
                    Missing(PreflightReason.NEEDS_ITS_CONTAINER_IMAGE, f"{path}.command", command, why)
                )
    return result


def _resources(body: Mapping[str, Any]) -> Iterator[_Placed]:
    if body.get("kind") not in _RUN_ELSEWHERE:
        yield from placed(body, "spec.resource", "task_resource")


def _engines(body: Mapping[str, Any]) -> Iterator[_Placed]:
    for path, algorithm in placed(body, "algorithm", "algorithm"):
        # An algorithm of the service has its own engine; the rules for one sent along are not documented.
        is_by_reference = algorithm.get("id") or algorithm.get("subscription_id")
        if body.get("kind") not in _RUN_ELSEWHERE and not is_by_reference:
            yield f"{path}.engine", mapping_at(algorithm, "engine")


def _missing_engine(
    path: str, engine: Mapping[str, Any], offered: Collection[EngineOffer]
) -> Iterator[Missing]:
    if not _is_preset(engine):
        return
    reason = PreflightReason.ENGINE_NOT_OFFERED
    # `raw` may have a number; a secret must stay one.
    engine_id, name, version = (
        value if isinstance(value, str) else str(value or "") for value in map(engine.get, _ENGINE)
    )
    if engine_id:
        if engine_id not in [offer.engine_id for offer in offered]:
            yield Missing(reason, f"{path}.engine_id", engine_id)
    elif all(offer.name and offer.version for offer in offered):
        versions = [offer.version for offer in offered if offer.name == name]
        if not versions:
            yield Missing(reason, f"{path}.engine_name", name)
        elif version not in versions:
            yield Missing(reason, f"{path}.engine_version", version)


_ENGINE = ("engine_id", "engine_name", "engine_version")


def _is_preset(engine: Mapping[str, Any]) -> bool:
    engine_id, name, version = map(engine.get, _ENGINE)
    is_known = _has_value(engine_id) if engine_id else _has_value(name) and _has_value(version)
    return is_known and not engine.get("image_url")


def _missing_flavor(
    path: str, resource: Mapping[str, Any], most_nodes: Mapping[str, int | None]
) -> Iterator[Missing]:
    flavor_id, nodes = resource.get("flavor_id"), resource.get("node_count")
    if not isinstance(flavor_id, str) or not _has_value(flavor_id) or not _is_public(resource):
        return
    if flavor_id not in most_nodes:
        yield Missing(PreflightReason.FLAVOR_NOT_OFFERED, f"{path}.flavor_id", flavor_id)
    elif (limit := most_nodes[flavor_id] or 0) > 0 and isinstance(nodes, int) and nodes > limit:
        reason, why = PreflightReason.TOO_MANY_NODES, f"is more than the {limit} that {flavor_id} allows"
        yield Missing(reason, f"{path}.node_count", str(nodes), why)


def _is_public(resource: Mapping[str, Any]) -> bool:
    return not (resource.get("pool_id") or resource.get("pool_group_id"))


def _has_value(text: Any) -> bool:
    """Whether there is a value. A secret without one cannot be compared."""
    return bool(text) and (text.has_value if isinstance(text, SecretText) else True)
