"""The catalog of a ModelArts project: flavors of the public pools, preset engines, and dedicated pools.

Source: docs/modelarts.md, "Calls"; ShowTrainingFlavorMaxAvailableResource of the vendor's SDK,
which is refused where pool or flavor do not exist, and meant to be asked before a create.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from reconciler.backends.http.retry import RetryPolicy
from reconciler.backends.modelarts.backend import ModelArtsBackend
from reconciler.core.declared.marks import Cloud
from reconciler.core.observed.catalog import EngineOffer
from reconciler.core.ports import Rejected

#: The pool is unknown, not for training or not running; it does not have the flavor.
_POOL_REFUSED = frozenset({"ModelArts.2890", "ModelArts.2886", "ModelArts.2887", "ModelArts.2781"})


class ServiceCatalog:
    """What one project offers; asked anew each time."""

    def __init__(self, backend: ModelArtsBackend) -> None:
        self._backend = backend

    def flavors(self) -> Mapping[str, int | None] | None:
        """The flavors of the public pools, with the most nodes a job may have; None if the list has gaps."""
        listed = self._backend.operations.flavor_list()
        most_nodes = {
            flavor.flavor_id: flavor.flavor_info.max_num if flavor.flavor_info else None
            for flavor in listed.flavors
            if flavor.flavor_id
        }
        return most_nodes if most_nodes and (listed.total_count or 0) <= len(listed.flavors) else None

    def engines(self) -> Collection[EngineOffer] | None:
        """The preset engines; None if the list has gaps."""
        listed = self._backend.operations.engine_list()
        engines = [
            EngineOffer(engine.engine_id, engine.engine_name, engine.engine_version)
            for engine in listed.items
            if engine.engine_id
        ]
        return engines if engines and (listed.total or 0) <= len(listed.items) else None

    def pool_refusal(self, pool_id: str, flavor_id: str | None) -> Rejected | None:
        """Why the service would refuse a pool, or a flavor of it; None if nothing is known against it."""
        if self._backend.cloud is Cloud.OTC:
            return None
        query = {"pool_id": pool_id, "flavor_id": flavor_id}
        path = f"/v2/{self._backend.project_id}/training-pool-flavors"
        try:
            self._backend.session.call("GET", path, query=query, repeat=RetryPolicy.SAFE)
        except Rejected as refusal:
            if refusal.code in _POOL_REFUSED:
                return refusal
            raise
        return None
