"""Where and how a job runs, as the service reports it: what it has beside the declared fields.

Source: docs/modelarts.md, "Responses" and "Contradictions"; the vendor's SDK, `SpecResponse`.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from reconciler.core.fields import spec, tasks
from reconciler.modelarts.catalog import Billing, FlavorInfo
from reconciler.modelarts.declared_models import as_declared
from reconciler.modelarts.models import Count, Lenient, Number, Texts


class FlavorDetail(Lenient):
    """The flavor of a public pool."""

    flavor_type: str = ""
    billing: Billing | None = None
    flavor_info: FlavorInfo | None = None
    attributes: Texts = Field(default_factory=dict)


class AllocatedResources(Lenient):
    """What the container was given; memory in GB."""

    cpu_arch: str = ""
    cpu_core_num: Number = None
    mem_size: Number = None
    accelerator_num: Number = None
    accelerator_type: str = ""


class PoolInfo(Lenient):
    """The dedicated pool; not documented, and seen in answers."""

    accelerator_num: Number = None
    pool_resource_flavor: Any = None


@as_declared(spec.Resource)
class Resource(Lenient):
    """Where the job runs."""

    policy: str = ""
    flavor_name: str = ""
    pool_name: str = ""
    pool_info: PoolInfo | None = None
    flavor_detail: FlavorDetail | None = None
    main_container_allocated_resources: AllocatedResources | None = None


@as_declared(spec.NodeSelector)
class NodeSelector(Lenient):
    """Nodes on which a job may run, in the words of Kubernetes."""

    nodeSelectorTerms: tuple[dict[str, Any], ...] = ()  # noqa: N815


@as_declared(spec.PreferredAffinity)
class PreferredAffinity(Lenient):
    """What the placement should obey, in the words of Kubernetes."""

    node_affinity: tuple[dict[str, Any], ...] = ()


@as_declared(spec.AssetModel)
class AssetModel(Lenient):
    """The model as an asset of the service."""

    id: str = ""
    location: str = ""


@as_declared(spec.Spec)
class Spec(Lenient):
    """Where and how the job runs."""

    is_hosted_log: bool | None = None


@as_declared(tasks.TaskResource)
class TaskResource(Lenient):
    """Where a task of a heterogeneous job runs."""

    flavor_name: str = ""
    flavor_type: str = ""
    max_num: Count = None
    billing: Billing | None = None
    flavor_info: FlavorInfo | None = None
    attributes: Texts = Field(default_factory=dict)
