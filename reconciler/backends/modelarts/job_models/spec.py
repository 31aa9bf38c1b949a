"""Where and how a job runs, as the service reports it.

Source: docs/modelarts.md, "Responses" and "Contradictions"; the vendor's SDK, `SpecResponse`.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from reconciler.backends.modelarts.lenient import Count, Lenient, Number, Texts
from reconciler.backends.modelarts.responses import Billing, FlavorInfo


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


class CustomizedFlavor(Lenient):
    """A size of one's own on a dedicated pool; memory in GB."""

    cpu_core_num: Number = None
    mem_size: Number = None
    accelerator_num: Number = None


class PoolInfo(Lenient):
    """The dedicated pool; not documented, and seen in answers."""

    accelerator_num: Number = None
    pool_resource_flavor: Any = None


class Resource(Lenient):
    """Where the job runs."""

    policy: str = ""
    flavor_id: str = ""
    flavor_name: str = ""
    node_count: Count = None
    pool_id: str = ""
    pool_name: str = ""
    pool_group_id: str = ""
    pool_info: PoolInfo | None = None
    flavor_detail: FlavorDetail | None = None
    main_container_allocated_resources: AllocatedResources | None = None
    main_container_customized_flavor: CustomizedFlavor | None = None


class NfsVolume(Lenient):
    """A file server."""

    nfs_server_path: str = ""
    local_path: str = ""
    read_only: bool | None = None


class PfsVolume(Lenient):
    """A parallel file system."""

    pfs_path: str = ""
    local_path: str = ""


class ObsVolume(Lenient):
    """A bucket."""

    obs_path: str = ""
    local_path: str = ""


class Volume(Lenient):
    """Storage that is mounted into the container."""

    nfs: NfsVolume | None = None
    pfs: PfsVolume | None = None
    obs: ObsVolume | None = None


class LogExportPath(Lenient):
    """Where the log goes."""

    obs_url: str = ""
    host_path: str = ""


class LogExportConfig(Lenient):
    """How the log is written."""

    version: str = ""
    rotation_enabled: bool | None = None


class Span(Lenient):
    """A time; the only documented unit is HOURS."""

    time_unit: str = ""
    duration: Count = None


class NodeSelector(Lenient):
    """Nodes on which a job may run, in the words of Kubernetes."""

    nodeSelectorTerms: tuple[dict[str, Any], ...] = ()  # noqa: N815


class RequiredAffinity(Lenient):
    """What the placement must obey."""

    affinity_type: str = ""
    affinity_group_size: Count = None
    job_level: str = ""
    affinity_group_level: str = ""
    node_affinity: NodeSelector | None = None


class PreferredAffinity(Lenient):
    """What the placement should obey, in the words of Kubernetes."""

    node_affinity: tuple[dict[str, Any], ...] = ()


class SchedulePolicy(Lenient):
    """How the job queues."""

    priority: Count = None
    preemptible: bool | None = None
    required_affinity: RequiredAffinity | None = None
    preferred_affinity: PreferredAffinity | None = None


class Notification(Lenient):
    """Who is told of what."""

    topic_urn: str = ""
    events: tuple[str, ...] = ()


class Exec(Lenient):
    """A command that prints metrics."""

    command: tuple[str, ...] = ()


class HttpGet(Lenient):
    """An address that answers with metrics."""

    path: str = ""
    port: Count = None


class CustomMetric(Lenient):
    """Metrics of one's own."""

    exec: Exec | None = None
    http_get: HttpGet | None = None


class OutputModel(Lenient):
    """The model that the job makes."""

    obs: ObsVolume | None = None


class AssetModel(Lenient):
    """The model as an asset of the service."""

    id: str = ""
    name: str = ""
    code: str = ""
    version: str = ""
    location: str = ""
    desc: str = ""
    series: str = ""
    type: str = ""
    model_desc: str = ""
    parent_asset_id: str = ""


class Retention(Lenient):
    """How long the record is kept."""

    policy: str = ""


class Spec(Lenient):
    """Where and how the job runs."""

    resource: Resource | None = None
    runtime_type: str = ""
    volumes: tuple[Volume, ...] = ()
    log_export_path: LogExportPath | None = None
    log_export_config: LogExportConfig | None = None
    is_hosted_log: bool | None = None
    auto_stop: Span | None = None
    retention: Retention | None = None
    reserved_time: Span | None = None
    schedule_policy: SchedulePolicy | None = None
    notification: Notification | None = None
    custom_metrics: tuple[CustomMetric, ...] = ()
    output_model: OutputModel | None = None
    asset_model: AssetModel | None = None
    asset_id: str = ""


class TaskResource(Lenient):
    """Where a task of a heterogeneous job runs."""

    flavor_id: str = ""
    flavor_name: str = ""
    flavor_type: str = ""
    node_count: Count = None
    max_num: Count = None
    pool_id: str = ""
    billing: Billing | None = None
    flavor_info: FlavorInfo | None = None
    attributes: Texts = Field(default_factory=dict)
