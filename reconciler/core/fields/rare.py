"""The models of rarely used fields; `job.py` explains their lines."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from reconciler.core.fields.field_types import (
    ByName,
    Choice,
    Exclusive,
    Filled,
    FilledText,
    Flag,
    Mark,
    Strict,
    TaskPath,
    Text,
    Unreported,
    VolumePath,
    described,
    form_error,
    optional,
    rule_error,
)
from reconciler.core.fields.job import Environments, Input, LogExportPath, Output, Parameter


class Constraint(Strict):
    """The rules for a parameter's value."""

    type: Literal["String", "Integer", "Float", "Boolean"] | None = optional("Type of the value.")
    editable: Flag | None = optional("Whether the value may be changed.")
    required: Flag | None = optional("Whether a value is required.")
    sensitive: Flag | None = optional("Stored by the service, and without effect there.")
    valid_type: Literal["None", "Choice", "Range"] | None = optional("Meaning of valid_range.")
    valid_range: list[Text] | None = optional("Choices, or the ends of the range.")


class I18nDescription(Strict):
    """A description of a parameter in one language."""

    language: Literal["zh-cn", "en-us"] | None = optional("Language of the text.")
    description: str | None = optional("The text.")


class Dataset(Strict):
    """A data set of the service as input."""

    id: str = described("Id of the data set.")
    version_id: str | None = optional("Version; required unless service_type is V3.")
    service_type: str | None = optional("V3: a data set of the asset service.")
    name: str | None = optional("Name of the data set.")
    dataset_proportion: int | None = optional("Share of the data set, for fine-tuning.")

    @model_validator(mode="after")
    def _version(self) -> Self:
        if self.service_type != "V3" and not self.version_id:
            raise rule_error("version_id is required unless service_type is V3")
        return self


class RemoteConstraint(Strict):
    """What kind of data an input takes."""

    data_type: str | None = optional("Kind of data.")
    attributes: Literal["data_format", "data_segmentation", "dataset_type"] | None = optional(
        "Attribute: data_format, data_segmentation, dataset_type."
    )


class RewardAttr(Strict):
    """A metric that a hyperparameter search watches."""

    name: str | None = optional("Name of the metric.")
    mode: Literal["max", "min"] | None = optional("Whether to maximize or minimize.")
    regex: str | None = optional("Pattern that finds the metric in the log.")


class SearchParam(Strict):
    """A hyperparameter that a search varies."""

    name: str | None = optional("Name of the hyperparameter.")
    param_type: Literal["continuous", "discrete"] | None = optional("Type of range.")
    lower_bound: Text | None = optional("Lower end of the range.")
    upper_bound: Text | None = optional("Upper end of the range.")
    discrete_points_num: Text | None = optional("Number of points of the range to try.")
    discrete_values: list[Text] | None = optional("The values to try.")


class AlgoParam(Strict):
    """One setting of a search algorithm."""

    key: str | None = optional("Name of the setting.")
    value: Text | None = optional("Value of the setting.")
    type: str | None = optional("Type of the setting.")


class AlgoConfig(Strict):
    """A search algorithm with its settings."""

    name: str | None = optional("Name of the search algorithm.")
    params: list[AlgoParam] | None = optional("Its settings.")


class AutoSearch(Strict):
    """A hyperparameter search."""

    skip_search_params: str | None = optional("Combinations to leave out.")
    reward_attrs: list[RewardAttr] | None = optional("Metrics to optimize.")
    search_params: list[SearchParam] | None = optional("Parameters to vary.")
    algo_configs: list[AlgoConfig] | None = optional("Search algorithm.")


class Policies(Strict):
    """How the algorithm is run."""

    auto_search: AutoSearch | None = optional("Search for hyperparameters.")


class Pfs(Strict):
    """A path of a parallel file system."""

    pfs_path: str = described("Path of the parallel file system.")


class LogDir(Strict):
    """Directory that the summaries are written to."""

    pfs: Pfs = described("A parallel file system.")


class JobReference(Strict):
    """Another training job."""

    job_id: str = described("Id of the job.")


class NfsReference(Strict):
    """A path on a file server."""

    nfs_path: str | None = optional("Path on the file server.")


class DataSource(Strict):
    """What a visualisation shows."""

    job: JobReference | None = optional("Job whose summaries to show.")
    nfs: NfsReference | None = optional("A path on a file server.")


class Summary(Strict):
    """Summaries for TensorBoard or MindStudio Insight."""

    log_type: Literal["tensorboard", "mindstudio-insight"] | None = optional("The tool.")
    log_dir: LogDir | None = optional("Directory that the summaries are written to.")
    data_sources: list[DataSource] | None = optional("What is shown.")

    @model_validator(mode="after")
    def _directory(self) -> Self:
        if self.log_type and not self.log_dir:
            raise rule_error("log_type requires log_dir")
        return self


Positive = Annotated[float, Field(gt=0)]


class CustomizedFlavor(Strict):
    """A custom size on a dedicated pool."""

    cpu_core_num: Positive | None = optional("CPU cores, more than 0.")
    mem_size: Positive | None = optional("Memory in GB, more than 0.")
    accelerator_num: float | None = optional("Accelerators.", ge=0)


def _matches(pattern: str, words: str) -> AfterValidator:
    """Return a validator for the format of a text; "" is valid."""

    def check(text: str) -> str:
        if text and not re.fullmatch(pattern, text):
            raise form_error(f"must be {words}")
        return text

    return AfterValidator(check)


MountPath = Annotated[str, _matches(r"/+[^/][\s\S]*", "an absolute path other than /")]
ServerPath = Annotated[str, _matches(r"[^/]+:/[\s\S]*", "host:/path")]


class NfsVolume(Strict):
    """A file server."""

    nfs_server_path: ServerPath | None = optional("host:/path of the server.")
    local_path: MountPath | None = optional("Mount path in the container.")
    read_only: Flag = optional("Whether the mount is read-only.", default=False)


class PfsVolume(Strict):
    """A parallel file system."""

    pfs_path: VolumePath | None = optional("/{bucket}/{path}.")
    local_path: MountPath | None = optional("Mount path in the container.")


class ObsVolume(Strict):
    """A bucket."""

    obs_path: VolumePath | None = optional("/{bucket}/{path}.")
    local_path: MountPath | None = optional("Mount path in the container.")


class Volume(Exclusive):
    """Storage that is mounted into the container."""

    nfs: NfsVolume | None = optional("A file server.")
    pfs: PfsVolume | None = optional("A parallel file system.")
    obs: ObsVolume | None = optional("A bucket.")

    choices = (Choice(("nfs", "pfs", "obs"), is_required=True),)


class LogExportConfig(Strict):
    """How the log is written."""

    version: Literal["v0", "v1"] = optional("Layout of the log.", default="v0")
    rotation_enabled: Flag = optional("Whether the log is rotated.", default=False)


class NodeSelectorRequirement(Strict):
    """One condition on a node."""

    key: str = described("Label or field of the node.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"] = described("Comparison.")
    values: list[Text] | None = optional("Values to compare with.")


class NodeSelectorTerm(Strict):
    """Conditions on a node that must all hold."""

    matchExpressions: list[NodeSelectorRequirement] | None = optional(  # noqa: N815
        "On labels."
    )
    matchFields: list[NodeSelectorRequirement] | None = optional(  # noqa: N815
        "On fields."
    )


class NodeSelector(Strict):
    """Nodes on which a job may run; one term is enough."""

    nodeSelectorTerms: list[NodeSelectorTerm] = described("Terms; at least one must match.")  # noqa: N815


class PreferredTerm(Strict):
    """Preferred nodes."""

    weight: int = described("Weight of the term.", ge=0, le=100)
    preference: NodeSelectorTerm = described("Which nodes.")


class RequiredAffinity(Strict):
    """Required placement rules."""

    affinity_type: Literal["cabinet", "hyperinstance", "networkTopology"] | None = optional(
        "Unit in which nodes are grouped."
    )
    affinity_group_size: Annotated[int, Filled] = described("Nodes of a group.", default=1, ge=1)
    job_level: Annotated[Literal["cluster", "hyperinstanceGroup"], Filled] = optional(
        "Scope across which the job may spread.", default="cluster"
    )
    affinity_group_level: Literal["hyperinstanceGroup", "hyperinstance", "slice"] = optional(
        "Scope across which a group may spread.", default="hyperinstanceGroup"
    )
    node_affinity: Annotated[NodeSelector | None, Unreported] = optional("On which nodes.")

    @model_validator(mode="after")
    def _levels(self) -> Self:
        # Ignore the defaults, since the service may fill them in.
        is_network = self.affinity_type in (None, "networkTopology")
        for name, default in (("job_level", "cluster"), ("affinity_group_level", "hyperinstanceGroup")):
            if getattr(self, name) != default and not is_network:
                raise rule_error(f"{name} requires affinity_type: networkTopology")
        return self


class PreferredAffinity(Strict):
    """Preferred placement rules."""

    node_affinity: list[PreferredTerm] | None = optional("On which nodes.")


JobEvent = Literal[
    "JobStarted", "JobCompleted", "JobFailed", "JobTerminated", "JobRestarted", "JobHanged", "JobPreempted"
]


class Notification(Strict):
    """Who is notified of which events; messages go to an SMN topic."""

    topic_urn: str = described("URN of the topic.")
    events: Annotated[list[JobEvent] | None, Mark.AS_SET] = optional("Events to notify about.")


class Exec(Strict):
    """A command that prints metrics."""

    command: list[str] | None = optional("The command and its arguments.")


class HttpGet(Strict):
    """HTTP endpoint that returns metrics."""

    path: str | None = optional("Path of the HTTP endpoint.")
    port: int | None = optional("Port of the HTTP endpoint.")

    @model_validator(mode="after")
    def _both(self) -> Self:
        if (self.path is None) != (self.port is None):
            raise rule_error("path and port must be set together")
        return self


class CustomMetric(Exclusive):
    """Custom metrics."""

    exec: Exec | None = optional("Command that prints them.")
    http_get: HttpGet | None = optional("HTTP endpoint that returns them.")

    choices = (Choice(("exec", "http_get"), is_required=True),)


class ObsModel(Strict):
    """Where a model goes."""

    obs_path: str = described("Path in object storage.")
    local_path: str | None = optional("Path in the container.")


class OutputModel(Strict):
    """The model that the job produces."""

    obs: ObsModel | None = optional("Destination in object storage.")


class AssetModel(Strict):
    """The model as an asset of the service."""

    name: str = described("Name of the asset.")
    version: str = described("Version of the asset.")
    type: str = described("Type of the asset.")
    code: str | None = optional("Code of the asset.")
    desc: str | None = optional("Description of the asset.")
    series: str | None = optional("Series of the model.")
    model_desc: str | None = optional("Description of the model.")
    parent_asset_id: str | None = optional("Asset it was derived from.")


class Retention(Strict):
    """How long the record is kept, where the platform ages records."""

    policy: Literal["enabled", "disabled"] | None = optional("Whether the record expires.")


class ExperimentReference(Strict):
    """The experiment the job belongs to."""

    id: FilledText = optional("Id of an experiment that exists.")
    name: Annotated[str | None, Unreported] = optional(
        "Name; without an id, the experiment is created.", max_length=64
    )
    description: Annotated[str | None, Unreported] = optional(
        "Description of the experiment.", max_length=256
    )


class TaskEnvironment(Strict):
    """Environment of a fine-tune job."""

    envs: list[dict[str, Any]] | None = optional("Its variables.")


class FineTuneConfig(Strict):
    """Settings of a fine-tune job."""

    ft_job_uuid: str | None = optional("Id of the fine-tune job.")
    ft_train_type: str | None = optional("Kind of fine-tuning.")
    model_type: str | None = optional("Kind of model.")
    train_output_path: str | None = optional("Where the result goes.")
    train_process: float | None = optional("Progress.")
    checkpoint_id: str | None = optional("Where to start from.")
    task_env: TaskEnvironment | None = optional("Environment.")
    checkpoint_config: dict[str, Any] | None = optional("How checkpoints are kept.")


class TaskEngine(Strict):
    """What a task of a heterogeneous job runs in."""

    engine_id: str | None = optional("Id of a preset framework.")
    engine_name: str | None = optional("Name of a preset framework.")
    engine_version: str | None = optional("Version of a preset framework.")
    image_url: str | None = optional("Image of SWR.")
    run_user: Text | None = optional('User id in a custom image, "1000" by default.')


class TaskJobConfig(Strict):
    """Settings of a task."""

    parameters: ByName[Parameter] = optional("Arguments.")
    inputs: ByName[Input] = optional("Data to read.")
    outputs: ByName[Output] = optional("Data to write.")
    engine: TaskEngine | None = optional("What the task runs in.")


class TaskAlgorithm(Strict):
    """What a task of a heterogeneous job runs."""

    job_config: TaskJobConfig | None = optional("Settings of the task.")
    code_dir: TaskPath | None = optional("OBS directory with the code.")
    boot_file: TaskPath | None = optional("The script to start.")
    engine: TaskEngine | None = optional("What the task runs in.")
    inputs: ByName[Input] = optional("Data to read, OBS only.")
    outputs: ByName[Output] = optional("Data to write.")
    local_code_dir: str | None = optional("Location of the code in the container.")
    working_dir: str | None = optional("Working directory in the container.")
    environments: Annotated[Environments | None, Mark.FREE_MEMBERS] = optional("Environment variables.")


class TaskResource(Strict):
    """Where a task runs."""

    flavor_id: str | None = optional("Compute flavor.")
    node_count: int = described("Number of nodes.", ge=1)
    pool_id: str | None = optional("Dedicated pool.")


class Task(Strict):
    """One task of a heterogeneous job."""

    role: str | None = optional("Role of the task.")
    algorithm: TaskAlgorithm | None = optional("What the task runs.")
    task_resource: TaskResource | None = optional("Where the task runs.")
    log_export_path: LogExportPath | None = optional("Where the log goes.")


# The types of lists that fields of `job.py` name.
RemoteConstraints = list[RemoteConstraint]
Volumes = Annotated[list[Volume], Field(max_length=8)]
CustomMetrics = list[CustomMetric]
Tasks = list[Task]
