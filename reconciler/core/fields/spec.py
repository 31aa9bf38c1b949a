"""Where and how a job runs: the part `spec` of the create body; `desired.py` says what a line holds."""

from __future__ import annotations

import re
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import (
    AfterValidator,
    Field,
    WithJsonSchema,
    model_validator,
)

from reconciler.core.fields.field_types import (
    RESCHEDULE,
    WHILE_ACTIVE,
    Choice,
    Filled,
    Flag,
    Hours,
    Strict,
    Text,
    Unreported,
    form_error,
    given,
    rule_error,
)
from reconciler.core.fields.marks import KeyedBy, Mark
from reconciler.core.fields.obs_path import (
    ObsDirectory,
    VolumePath,
)


class LogExportPath(Strict):
    """Where the log goes."""

    obs_url: Annotated[ObsDirectory | None, Filled] = Field(
        None, description="OBS directory; it ends in /.", examples=["obs://vision-data/logs/"]
    )
    host_path: Annotated[str | None, Filled] = Field(
        None, description="Directory on the host.", examples=["/var/log/training"]
    )


Positive = Annotated[float, Field(gt=0)]


class CustomizedFlavor(Strict):
    """A size of one's own on a dedicated pool."""

    cpu_core_num: Positive | None = Field(None, description="CPU cores, more than 0.", examples=[8])
    mem_size: Positive | None = Field(None, description="Memory in GB, more than 0.", examples=[64])
    accelerator_num: Annotated[float | None, Field(ge=0, description="Accelerators.", examples=[1])] = None


class Resource(Strict):
    """Where the job runs."""

    # For a dedicated pool the service fills the flavor in.
    flavor_id: Annotated[str | None, Filled] = Field(
        None, description="Compute flavor, e.g. modelarts.vm.cpu.2u.", examples=["modelarts.vm.cpu.2u"]
    )
    node_count: Annotated[int, Field(ge=1, description="Whole nodes.", examples=[2])] = 1
    pool_id: str | None = Field(None, description="Dedicated pool.", examples=["pool-7d3f"])
    pool_group_id: str | None = Field(
        None, description="Group of pools, for federated_pool_job.", examples=["pool-group-1"]
    )
    main_container_customized_flavor: CustomizedFlavor | None = Field(
        None, description="Custom size; requires pool_id."
    )

    choices = (Choice(("pool_id", "pool_group_id")),)

    @model_validator(mode="after")
    def _choice(self) -> Self:
        if not given(self, "flavor_id", "pool_id", "pool_group_id"):
            raise rule_error("flavor_id (public pool), pool_id or pool_group_id is required")
        self.check_choices()
        if self.main_container_customized_flavor and not self.pool_id:
            raise rule_error("main_container_customized_flavor requires pool_id")
        return self


class _Form(NamedTuple):
    """A form that a text must have, for the program and for an editor; "" says nothing."""

    pattern: str
    words: str

    @property
    def validator(self) -> AfterValidator:
        """Refuses text of another form."""
        return AfterValidator(self._check)

    @property
    def schema(self) -> WithJsonSchema:
        """Says the same."""
        pattern = f"^(?:|{self.pattern})$"
        return WithJsonSchema({"type": "string", "pattern": pattern, "$comment": self.words})

    def _check(self, text: str) -> str:
        if text and not re.fullmatch(self.pattern, text):
            raise form_error(f"must be {self.words}")
        return text


_MOUNT = _Form(r"/+[^/][\s\S]*", "an absolute path other than /")
_SERVER = _Form(r"[^/]+:/[\s\S]*", "host:/path")
MountPath = Annotated[str, _MOUNT.validator, _MOUNT.schema]
ServerPath = Annotated[str, _SERVER.validator, _SERVER.schema]


class NfsVolume(Strict):
    """A file server."""

    nfs_server_path: ServerPath | None = Field(
        None, description="host:/path of the server.", examples=["192.168.0.8:/data"]
    )
    local_path: MountPath | None = Field(
        None, description="Mount path in the container.", examples=["/mnt/data"]
    )
    read_only: Flag = Field(False, description="Whether the mount is read-only.")


class PfsVolume(Strict):
    """A parallel file system."""

    pfs_path: VolumePath | None = Field(None, description="/{bucket}/{path}.", examples=["/vision-pfs/data"])
    local_path: MountPath | None = Field(
        None, description="Mount path in the container.", examples=["/mnt/data"]
    )


class ObsVolume(Strict):
    """A bucket."""

    obs_path: VolumePath | None = Field(
        None, description="/{bucket}/{path}.", examples=["/vision-data/imagenet"]
    )
    local_path: MountPath | None = Field(
        None, description="Mount path in the container.", examples=["/mnt/data"]
    )


class Volume(Strict):
    """Storage that is mounted into the container."""

    nfs: NfsVolume | None = Field(
        None,
        description="A file server.",
        examples=[{"nfs_server_path": "192.168.0.8:/data", "local_path": "/mnt/data"}],
    )
    pfs: PfsVolume | None = Field(
        None,
        description="A parallel file system.",
        examples=[{"pfs_path": "/vision-pfs/data", "local_path": "/mnt/data"}],
    )
    obs: ObsVolume | None = Field(
        None,
        description="A bucket.",
        examples=[{"obs_path": "/vision-data/imagenet", "local_path": "/mnt/data"}],
    )

    choices = (Choice(("nfs", "pfs", "obs"), is_required=True),)

    @model_validator(mode="after")
    def _one(self) -> Self:
        self.check_choices()
        return self


class LogExportConfig(Strict):
    """How the log is written."""

    version: Literal["v0", "v1"] = Field("v0", description="Layout of the log.")
    rotation_enabled: Flag = Field(False, description="Whether the log is rotated.")


class Span(Strict):
    """A time in whole hours."""

    time_unit: Hours = Field(description="HOURS.")
    duration: Annotated[int, Field(ge=1, description="Whole hours.", examples=[48])]


class NodeSelectorRequirement(Strict):
    """One condition on a node."""

    key: str = Field(description="Label or field of the node.", examples=["topology.kubernetes.io/zone"])
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"] = Field(description="Comparison.")
    values: list[Text] | None = Field(None, description="Values to compare with.", examples=[["zone-1"]])


class NodeSelectorTerm(Strict):
    """Conditions on a node that must all hold."""

    matchExpressions: list[NodeSelectorRequirement] | None = Field(  # noqa: N815
        None,
        description="On labels.",
        examples=[[{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-1"]}]],
    )
    matchFields: list[NodeSelectorRequirement] | None = Field(  # noqa: N815
        None,
        description="On fields.",
        examples=[[{"key": "metadata.name", "operator": "NotIn", "values": ["node-7"]}]],
    )


class NodeSelector(Strict):
    """Nodes on which a job may run; one term is enough."""

    nodeSelectorTerms: list[NodeSelectorTerm] = Field(description="Terms; at least one must match.")  # noqa: N815


class PreferredTerm(Strict):
    """Nodes on which a job rather runs."""

    weight: Annotated[int, Field(ge=0, le=100, description="Weight of the term.", examples=[50])]
    preference: NodeSelectorTerm = Field(description="Which nodes.")


class RequiredAffinity(Strict):
    """Required placement rules."""

    affinity_type: Literal["cabinet", "hyperinstance", "networkTopology"] | None = Field(
        None, description="Unit in which nodes are grouped."
    )
    affinity_group_size: Annotated[
        int, Filled, Field(ge=1, description="Nodes of a group.", examples=[4])
    ] = 1
    job_level: Annotated[Literal["cluster", "hyperinstanceGroup"], Filled] = Field(
        "cluster", description="Scope across which the job may spread."
    )
    affinity_group_level: Literal["hyperinstanceGroup", "hyperinstance", "slice"] = Field(
        "hyperinstanceGroup", description="Scope across which a group may spread."
    )
    node_affinity: Annotated[NodeSelector | None, Unreported] = Field(None, description="On which nodes.")

    @model_validator(mode="after")
    def _levels(self) -> Self:
        # The service may fill the defaults in, so that they say nothing.
        is_network = self.affinity_type in (None, "networkTopology")
        for name, default in (("job_level", "cluster"), ("affinity_group_level", "hyperinstanceGroup")):
            if getattr(self, name) != default and not is_network:
                raise rule_error(f"{name} requires affinity_type: networkTopology")
        return self


class PreferredAffinity(Strict):
    """Preferred placement rules."""

    node_affinity: list[PreferredTerm] | None = Field(None, description="On which nodes.")


class SchedulePolicy(Strict):
    """How the job queues; dedicated pools only."""

    priority: Annotated[
        int,
        RESCHEDULE,
        Filled,
        Field(ge=1, le=3, description="1 to 3; 3 requires a permission.", examples=[2]),
    ] = 1
    preemptible: Annotated[Flag, RESCHEDULE] = Field(False, description="Whether other jobs may preempt it.")
    required_affinity: RequiredAffinity | None = Field(None, description="Required placement rules.")
    preferred_affinity: Annotated[PreferredAffinity | None, Unreported] = Field(
        None, description="Preferred placement rules."
    )

    choices = (Choice(("required_affinity", "preferred_affinity")),)

    @model_validator(mode="after")
    def _one(self) -> Self:
        self.check_choices()
        return self


JobEvent = Literal[
    "JobStarted", "JobCompleted", "JobFailed", "JobTerminated", "JobRestarted", "JobHanged", "JobPreempted"
]


class Notification(Strict):
    """Who is notified of which events; messages go to an SMN topic."""

    topic_urn: str = Field(
        description="URN of the topic.", examples=["urn:smn:cn-north-4:0123456789abcdef:training"]
    )
    events: Annotated[list[JobEvent] | None, Mark.AS_SET] = Field(
        None, description="Events to notify about.", examples=[["JobCompleted", "JobFailed"]]
    )


class Exec(Strict):
    """A command that prints metrics."""

    command: list[str] | None = Field(
        None, description="The command and its arguments.", examples=[["python", "/app/metrics.py"]]
    )


class HttpGet(Strict):
    """HTTP endpoint that returns metrics."""

    path: str | None = Field(None, description="Path of the HTTP endpoint.", examples=["/metrics"])
    port: int | None = Field(None, description="Port of the HTTP endpoint.", examples=[9090])

    @model_validator(mode="after")
    def _both(self) -> Self:
        if (self.path is None) != (self.port is None):
            raise rule_error("path and port must be set together")
        return self


class CustomMetric(Strict):
    """Custom metrics."""

    exec: Exec | None = Field(None, description="Command that prints them.")
    http_get: HttpGet | None = Field(
        None, description="HTTP endpoint that returns them.", examples=[{"path": "/metrics", "port": 9090}]
    )

    choices = (Choice(("exec", "http_get"), is_required=True),)

    @model_validator(mode="after")
    def _one(self) -> Self:
        self.check_choices()
        return self


class ObsModel(Strict):
    """Where a model goes."""

    obs_path: str = Field(description="Path in object storage.", examples=["obs://vision-data/models/"])
    local_path: str | None = Field(
        None, description="Path in the container.", examples=["/home/ma-user/model"]
    )


class OutputModel(Strict):
    """The model that the job makes."""

    obs: ObsModel | None = Field(None, description="Destination in object storage.")


class AssetModel(Strict):
    """The model as an asset of the service."""

    name: str = Field(description="Name of the asset.", examples=["resnet50"])
    version: str = Field(description="Version of the asset.", examples=["1.0.0"])
    type: str = Field(description="Type of the asset.", examples=["model"])
    code: str | None = Field(None, description="Code of the asset.", examples=["resnet50"])
    desc: str | None = Field(
        None, description="Description of the asset.", examples=["ResNet-50 on ImageNet"]
    )
    series: str | None = Field(None, description="Series of the model.", examples=["resnet"])
    model_desc: str | None = Field(None, description="Description of the model.", examples=["Classifier"])
    parent_asset_id: str | None = Field(None, description="Asset it was derived from.", examples=["asset-1"])


class Retention(Strict):
    """How long the record is kept, where the platform ages records."""

    policy: Literal["enabled", "disabled"] | None = Field(None, description="Whether the record expires.")


class Spec(Strict):
    """Where and how the job runs."""

    resource: Resource = Field(
        description="Where the job runs.", examples=[{"flavor_id": "modelarts.vm.cpu.2u", "node_count": 1}]
    )
    runtime_type: Annotated[Literal["production", "debug"], Filled] = Field(
        "production", description="debug requires a dedicated pool."
    )
    volumes: Annotated[list[Volume] | None, KeyedBy("local_path"), Field(max_length=8)] = Field(
        None, description="Storage to mount; dedicated pools only."
    )
    log_export_path: Annotated[LogExportPath | None, Filled] = Field(None, description="Where the log goes.")
    log_export_config: LogExportConfig | None = Field(None, description="How the log is written.")
    auto_stop: Span | None = Field(
        None,
        description="When the service stops the job by itself.",
        examples=[{"time_unit": "HOURS", "duration": 48}],
    )
    retention: Annotated[Retention | None, Unreported] = Field(
        None, description="How long the record is kept."
    )
    reserved_time: Annotated[Span | None, Unreported] = Field(
        None, description="How long the resources are kept after the end."
    )
    schedule_policy: Annotated[SchedulePolicy | None, Filled] = Field(
        None, description="How the job queues.", examples=[{"priority": 2, "preemptible": False}]
    )
    notification: Annotated[Notification | None, WHILE_ACTIVE, Unreported] = Field(
        None, description="Who is notified of which events."
    )
    custom_metrics: list[CustomMetric] | None = Field(None, description="Custom metrics.")
    output_model: OutputModel | None = Field(None, description="The model that the job makes.")
    asset_model: AssetModel | None = Field(None, description="The model as an asset.")
    asset_id: str | None = Field(None, description="Asset to fine-tune.", examples=["asset-1"])

    @model_validator(mode="after")
    def _paths(self) -> Self:
        paths = [v.local_path for item in self.volumes or () if (v := item.nfs or item.pfs or item.obs)]
        if len(paths) != len(set(paths)):
            raise rule_error("two volumes have the same local_path")
        return self
