"""The catalog of a ModelArts project: flavors of the public pools, preset engines, dedicated pools, quotas.

Source: docs/modelarts.md, "Calls"; ShowTrainingFlavorMaxAvailableResource of the vendor's SDK,
which is refused where pool or flavor do not exist, and meant to be asked before a create.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import AliasChoices, BaseModel, Field

from reconciler.core.catalog import EngineOffer, FlavorOffer, Offered, RecordQuota
from reconciler.errors import Rejected
from reconciler.modelarts.models import Count, Lenient, Number, ResponseModel, Texts
from reconciler.modelarts.operations import OperationGroup, parsed
from reconciler.modelarts.tags import Tag

#: The pool is unknown, not for training or not running.
_POOL_REFUSED = frozenset({"ModelArts.2890", "ModelArts.2886", "ModelArts.2887"})
#: The pool does not have the flavor. Where none is wanted, this says that the question lacks one.
_FLAVOR_UNKNOWN = "ModelArts.2781"
#: What the service calls the records of jobs among its quotas.
_JOB_RECORDS = "job-num"


class Quota(ResponseModel):
    """How many of something there may be, and are."""

    resource: str = ""
    quota: Count = None
    used: Count = None


class Quotas(ResponseModel):
    """All quotas."""

    quotas: tuple[Quota, ...] = ()


class Accelerators(Lenient):
    """The cards of a node."""

    unit_num: Count = None
    # Some tables of the service's documents have the other spelling.
    product_name: str = Field("", validation_alias=AliasChoices("product_name", "product_nume"))
    memory: str = ""


class Cpu(Lenient):
    """The processor of a node."""

    arch: str = ""
    core_num: Count = None


class Capacity(Lenient):
    """So much of it."""

    size: Number = None
    unit: str = ""


class FlavorInfo(Lenient):
    """What a node of a flavor has; at most `max_num` of them."""

    max_num: Count = None
    cpu: Cpu | None = None
    gpu: Accelerators | None = None
    npu: Accelerators | None = None
    memory: Capacity | None = None
    disk: Capacity | None = None


class Billing(Lenient):
    """What is paid for."""

    code: str = ""
    unit_num: Count = None


class Flavor(Lenient):
    """A kind of node."""

    flavor_id: str = ""
    flavor_name: str = ""
    flavor_type: str = ""
    pool_id: str = ""
    max_num: Count = None
    support_engines: str = ""
    support_groups: str = ""
    billing: Billing | None = None
    flavor_info: FlavorInfo | None = None
    attributes: Texts = Field(default_factory=dict)


class Flavors(ResponseModel):
    """All flavors of the public pools."""

    total_count: Count = None
    flavors: tuple[Flavor, ...] = ()


class ImageInfo(ResponseModel):
    """The images of an engine."""

    cpu_image_url: str = ""
    gpu_image_url: str = ""
    image_version: str = ""


class Engine(ResponseModel):
    """A preset framework in one version."""

    engine_id: str = ""
    engine_name: str = ""
    engine_version: str = ""
    v1_compatible: bool | None = None
    run_user: str = ""
    image_info: ImageInfo | None = None
    tags: tuple[Tag, ...] = ()


class Engines(ResponseModel):
    """All engines."""

    total: Count = None
    items: tuple[Engine, ...] = ()


class Catalog(OperationGroup):
    """What one project offers; asked anew each time."""

    # Who asks goes on without the answer, with a lock held meanwhile.
    _patience_s = 15.0

    def flavors(self, flavor_type: str | None = None) -> tuple[Flavor, ...]:
        """Return the flavors of the public pools, of one type (CPU, GPU, Ascend) or all."""
        return self.flavor_list(flavor_type).flavors

    def flavor_list(self, flavor_type: str | None = None) -> Flavors:
        """Return the same with the number that there are."""
        answer = self._get(f"{self._root}/training-job-flavors", {"flavor_type": flavor_type})
        return parsed(Flavors, answer)

    def engines(self) -> tuple[Engine, ...]:
        """Return the preset engines."""
        return self.engine_list().items

    def engine_list(self) -> Engines:
        """Return the same with the number that there are."""
        return parsed(Engines, self._get(f"{self._root}/training-job-engines"))

    def quotas(self, resource: str | None = None, user_id: str | None = None) -> tuple[Quota, ...]:
        """Return how many job records there may be, and are."""
        self._only_on_huawei("quotas")
        answer = self._get(f"{self._root}/training-quotas", {"resource": resource, "user_id": user_id})
        return parsed(Quotas, answer).quotas

    # ── what core.ports.Catalog asks for ───────────────────────────────────────────────────────

    def flavor_offers(self, flavor_type: str | None = None) -> Offered[FlavorOffer]:
        """Return the flavors of the public pools; the list may have gaps."""
        listed = self.flavor_list(flavor_type)
        flavors = [_flavor_offer(flavor) for flavor in listed.flavors]
        return Offered(flavors, _is_whole([one.flavor_id for one in flavors], listed.total_count))

    def engine_offers(self) -> Offered[EngineOffer]:
        """Return the preset engines; the list may have gaps."""
        listed = self.engine_list()
        engines = [
            EngineOffer(one.engine_id, one.engine_name, one.engine_version, one.run_user, _reported(one))
            for one in listed.items
        ]
        return Offered(engines, _is_whole([one.engine_id for one in engines], listed.total))

    def record_quota(self) -> RecordQuota | None:
        """Return how many job records there may be, and are; None where the service says nothing of it."""
        quotas = self.quotas(_JOB_RECORDS)
        # The service may list others, whatever it was asked for.
        found = [one for one in quotas if one.resource == _JOB_RECORDS]
        if not found and len(quotas) == 1 and not quotas[0].resource:
            found = [*quotas]
        return RecordQuota(found[0].quota, found[0].used) if found else None

    def pool_refusal(self, pool_id: str, flavor_id: str | None) -> Rejected | None:
        """Why the service would refuse a pool, or a flavor of it; None if nothing is known against it."""
        self._only_on_huawei("questions about pools")
        query = {"pool_id": pool_id, "flavor_id": flavor_id}
        try:
            self._get(f"{self._root}/training-pool-flavors", query)
        except Rejected as refusal:
            if refusal.code in _POOL_REFUSED or (flavor_id and refusal.code == _FLAVOR_UNKNOWN):
                return refusal
            raise
        return None


def _is_whole(ids: Sequence[str], total: int | None) -> bool:
    """Whether what is not on a list is not offered: each entry could be read, and none is left out."""
    return bool(ids) and all(ids) and (total or 0) <= len(set(ids))


def _flavor_offer(flavor: Flavor) -> FlavorOffer:
    info = flavor.flavor_info or FlavorInfo()
    return FlavorOffer(
        flavor.flavor_id,
        flavor.flavor_type,
        cores="" if info.cpu is None else f"{_number(info.cpu.core_num)} {info.cpu.arch}".strip(),
        memory="" if info.memory is None else f"{_number(info.memory.size)} {info.memory.unit}".strip(),
        cards=_cards(info.gpu or info.npu),
        max_nodes=info.max_num,
        reported=_reported(flavor),
    )


def _cards(cards: Accelerators | None) -> str:
    if cards is None:
        return ""
    memory = f" ({cards.memory})" if cards.memory else ""
    return f"{_number(cards.unit_num)} x {cards.product_name}{memory}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def _reported(answer: BaseModel) -> dict[str, Any]:
    return answer.model_dump(mode="json", exclude_unset=True)
