"""The fields that a manifest may declare for a job, one per line.

A line has the type, the limits, the help text, the service's documented default (the field's default if it is
not None) and, as marks, what an edit of the field means. Schema, canonical form, digest, diff and docs derive
from it. The models of `Rare` fields are in `rare.py`.

Source of fields and limits: the documents of docs/reference/modelarts.md, "Sources".
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from reconciler.core.fields.field_types import (
    ANY_TIME,
    OUTSIDE,
    RESCHEDULE,
    WHILE_ACTIVE,
    BootFile,
    ByName,
    Choice,
    CodeDirectory,
    DefaultTemplate,
    Exclusive,
    Filled,
    FilledText,
    Flag,
    GivenDirectory,
    GivenPath,
    KeyedBy,
    Mark,
    ObsDirectory,
    ObsPath,
    Rare,
    Strict,
    Text,
    Unreported,
    described,
    form_error,
    given,
    is_inside,
    optional,
    rule_error,
)


class Parameter(Strict):
    """One argument of the training script."""

    name: Annotated[str, StringConstraints(pattern="^[A-Za-z0-9_-]{1,64}$")] = described(
        "Name of the argument."
    )
    value: Text | None = optional("Value; always sent as text.")
    description: FilledText = optional("Description of the argument.")
    constraint: Annotated[Any, Rare("Constraint"), Filled] = optional("Rules for the value.")
    i18n_description: Annotated[Any, Rare("I18nDescription"), Filled] = optional(
        "Description in one language."
    )
    sensitive: Flag = optional(
        "Never show the value, and start no new job when it changes (reconciler's own).", default=False
    )


class Obs(Strict):
    """A place in object storage."""

    obs_url: GivenPath = described("OBS path; a directory ends in /.")


class ObsTree(Strict):
    """A directory in object storage."""

    obs_url: GivenDirectory = described("OBS directory; it ends in /.")


class InputRemote(Exclusive):
    """Where an input comes from: a data set, or a path in object storage."""

    dataset: Annotated[Any, Rare("Dataset")] = optional("A data set of the service.")
    obs: Obs | None = optional("A path in object storage.")

    choices = (Choice(("dataset", "obs"), is_required=True),)


class Input(Strict):
    """Data that the job reads."""

    name: str = described("Name of the input; also the argument that carries the local path.")
    description: FilledText = optional("Description of the input.")
    local_dir: Annotated[
        str | None, Filled, DefaultTemplate("/home/ma-user/modelarts/inputs/{name}_{index}")
    ] = optional("Directory in the container; by default /home/ma-user/modelarts/inputs/NAME_INDEX.")
    access_method: Literal["parameter", "env"] = optional(
        "How the path is passed to the program.", default="parameter"
    )
    remote: InputRemote = described("Where the data comes from.")
    remote_constraint: Annotated[Any, Rare("RemoteConstraints")] = optional("Data that the input accepts.")


class OutputRemote(Strict):
    """Where an output goes."""

    obs: ObsTree = described("A directory in object storage.")


class Output(Strict):
    """Data that the job writes."""

    name: str = described("Name of the output; also the argument that carries the local path.")
    description: FilledText = optional("Description of the output.")
    local_dir: Annotated[
        str | None, Filled, DefaultTemplate("/home/ma-user/modelarts/outputs/{name}_{index}")
    ] = optional("Directory in the container; by default /home/ma-user/modelarts/outputs/NAME_INDEX.")
    access_method: Annotated[Literal["parameter", "env"], Filled] = optional(
        "How the path is passed to the program.", default="parameter"
    )
    remote: OutputRemote = described("Destination of the data.")


class Engine(Strict):
    """What the job runs in: a preset framework, a custom image, or both."""

    engine_id: FilledText = optional("Id of a preset framework.")
    engine_name: FilledText = optional("Name of a preset framework.")
    engine_version: FilledText = optional("Version of a preset framework.")
    image_url: FilledText = optional("Image: {organization}/{image}:{tag} of SWR.")
    install_sys_packages: Annotated[Flag, Filled] = optional(
        "Install the platform's packages into the image.", default=False
    )
    image_repo_id: str | None = optional("Instance of an SWR enterprise repository.")

    choices = (
        Choice(("engine_id", "image_url"), hint="for a framework on an image use engine_name + image_url"),
    )

    @model_validator(mode="after")
    def _choice(self) -> Self:
        name, version, image = self.engine_name, self.engine_version, self.image_url
        if name and not (version or image or self.engine_id):
            raise rule_error("engine_name requires engine_version, or image_url for a custom image")
        if version and not (name or self.engine_id):
            raise rule_error("engine_version requires engine_name")
        self.check_choices()
        if self.image_repo_id and not image:
            raise rule_error("image_repo_id requires image_url")
        if self.install_sys_packages and not (name and version and image):
            raise rule_error("install_sys_packages requires engine_name, engine_version and image_url")
        return self


EnvironmentName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", min_length=1, max_length=8192)
]
EnvironmentValue = Annotated[Text, StringConstraints(max_length=4096)]
Environments = Annotated[dict[EnvironmentName, EnvironmentValue], Field(max_length=100)]


class EnvironmentItem(Strict):
    """One environment variable in list form."""

    name: EnvironmentName
    value: EnvironmentValue | None
    sensitive: Flag = False


#: local_code_dir must not be below the former, or any of the latter.
_FORBIDDEN_PARENTS = ("/home/ma-user/modelarts-dev", "/home/ma-user/infer")
_FORBIDDEN_DIRECTORIES = frozenset({"/home/ma-user", "/home/ma-user/modelarts", *_FORBIDDEN_PARENTS})
_FORBIDDEN_PREFIXES = tuple(f"{directory}/" for directory in _FORBIDDEN_PARENTS)


class Algorithm(Strict):
    """What the job runs."""

    id: str | None = optional("Id of an algorithm of the service.")
    name: FilledText = optional("Set by the service; leave it out.")
    subscription_id: str | None = optional("Id of a subscribed algorithm.")
    item_version_id: str | None = optional("Version of a subscribed algorithm.")
    code_dir: Annotated[CodeDirectory | None, Filled] = optional(
        "OBS directory with the code, ending in /; file:// means a directory in the image."
    )
    boot_file: Annotated[BootFile | None, Filled] = optional("The script to start, inside code_dir.")
    autosearch_config_path: ObsPath | None = optional("YAML file of a search, in OBS.")
    autosearch_framework_path: ObsDirectory | None = optional("OBS directory of the search framework.")
    command: FilledText = optional("Start command of a custom image.")
    parameters: ByName[Parameter] = optional(
        "Arguments of the script, as a mapping or as the service's list."
    )
    policies: Annotated[Any, Rare("Policies"), Filled] = optional("How the algorithm is run.")
    inputs: ByName[Input] = optional(
        "Data to read, as a mapping of names to OBS paths or as the service's list."
    )
    outputs: ByName[Output] = optional(
        "Data to write, as a mapping of names to OBS paths or as the service's list."
    )
    engine: Annotated[Engine | None, Filled] = optional("What the job runs in.")
    local_code_dir: FilledText = optional(
        "Location of the code in the container.", default="/home/ma-user/modelarts/user-job-dir"
    )
    working_dir: str | None = optional("Working directory in the container.")
    environments: Annotated[Environments | None, Mark.FREE_MEMBERS, Filled] = optional(
        "Environment variables, as a mapping of names to values or as a list; at most 100."
    )
    summary: Annotated[Any, Rare("Summary")] = optional("Summaries for visualisation.")

    choices = (Choice(("id", "subscription_id")), Choice(("id", "item_version_id")))

    @model_validator(mode="after")
    def _rules(self) -> Self:
        self.check_choices()
        if bool(self.subscription_id) != bool(self.item_version_id):
            raise rule_error("subscription_id and item_version_id must be set together")
        if not given(self, "id", "subscription_id", "item_version_id"):
            self._check_source(self.engine or Engine())
        path = (self.local_code_dir or "").rstrip("/")
        # The default is itself below a forbidden directory, but the service accepts it.
        is_refused = path in _FORBIDDEN_DIRECTORIES or path.startswith(_FORBIDDEN_PREFIXES)
        if path and (is_refused or not path.startswith("/home/")):
            raise rule_error("local_code_dir must be a directory of its own under /home (ModelArts.2857)")
        return self

    def _check_source(self, engine: Engine) -> None:
        code_dir, boot_file, command = self.code_dir, self.boot_file, self.command
        sources = ("code_dir", "command", "autosearch_config_path", "autosearch_framework_path", "summary")
        if boot_file and not code_dir:
            raise rule_error("boot_file requires code_dir")
        if engine.image_url and not engine.engine_name and not command:
            raise rule_error("a custom image requires command, or engine_name for a framework on the image")
        if code_dir and not (boot_file or command):
            raise rule_error("code_dir requires boot_file, or command for a custom image")
        if (boot_file or command) and not given(engine, "engine_id", "engine_name", "image_url"):
            raise rule_error("engine is required: engine_id, engine_name + engine_version, or image_url")
        if not given(self, *sources):
            raise rule_error(
                "one source is required: id, subscription_id + item_version_id, code_dir + boot_file, "
                "or command + engine.image_url"
            )
        # The command of an image need not be in code_dir.
        starts_command = command and engine.image_url
        if boot_file and code_dir and not starts_command and not is_inside(boot_file, code_dir):
            raise PydanticCustomError(OUTSIDE, "boot_file is outside code_dir")


class LogExportPath(Strict):
    """Where the log goes."""

    obs_url: Annotated[ObsDirectory | None, Filled] = optional("OBS directory; it ends in /.")
    host_path: FilledText = optional("Directory on the host.")


class Resource(Strict):
    """Where the job runs."""

    # For a dedicated pool, the service fills in the flavor.
    flavor_id: FilledText = optional("Compute flavor, e.g. modelarts.vm.cpu.2u.")
    node_count: int = described("Number of nodes.", default=1, ge=1)
    pool_id: str | None = optional("Dedicated pool.")
    pool_group_id: str | None = optional("Group of pools, for federated_pool_job.")
    main_container_customized_flavor: Annotated[Any, Rare("CustomizedFlavor")] = optional(
        "Custom size; requires pool_id."
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


class Span(Strict):
    """A time in whole hours."""

    time_unit: Literal["HOURS"] = described("HOURS.")
    duration: int = described("Whole hours.", ge=1)


class RunTime(Strict):
    """The longest time that a job may run."""

    time_unit: Literal["HOURS", "SECONDS"] = described("HOURS; SECONDS on a target of kind process.")
    duration: int = described("Number of time units.", ge=1)


def _refuse_scalar(value: Any) -> Any:
    """Refuse a number, and text that `desugar` could not convert to a duration."""
    if isinstance(value, str | int | float):
        raise form_error(
            "must be whole hours, such as 8h or 2d, or whole seconds on a target of kind process"
        )
    return value


class SchedulePolicy(Exclusive):
    """How the job queues; dedicated pools only."""

    priority: Annotated[int, RESCHEDULE, Filled] = described(
        "1 to 3; 3 requires a permission.", default=1, ge=1, le=3
    )
    preemptible: Annotated[Flag, RESCHEDULE] = optional("Whether other jobs may preempt it.", default=False)
    required_affinity: Annotated[Any, Rare("RequiredAffinity")] = optional("Required placement rules.")
    preferred_affinity: Annotated[Any, Rare("PreferredAffinity"), Unreported] = optional(
        "Preferred placement rules."
    )

    choices = (Choice(("required_affinity", "preferred_affinity")),)


class Spec(Strict):
    """Where and how the job runs."""

    resource: Resource = described("Where the job runs.")
    runtime_type: Annotated[Literal["production", "debug"], Filled] = optional(
        "debug requires a dedicated pool.", default="production"
    )
    volumes: Annotated[Any, Rare("Volumes"), KeyedBy("local_path")] = optional(
        "Storage to mount; dedicated pools only."
    )
    log_export_path: Annotated[LogExportPath | None, Filled] = optional("Where the log goes.")
    log_export_config: Annotated[Any, Rare("LogExportConfig")] = optional("How the log is written.")
    auto_stop: (
        Annotated[RunTime, BeforeValidator(_refuse_scalar, json_schema_input_type=RunTime | str)] | None
    ) = optional(
        "When the service stops the job by itself: whole hours, such as 8h; for a process whole seconds."
    )
    retention: Annotated[Any, Rare("Retention"), Unreported] = optional("How long the record is kept.")
    reserved_time: Annotated[Span | None, Unreported] = optional(
        "How long the resources are kept after the end."
    )
    schedule_policy: Annotated[SchedulePolicy | None, Filled] = optional("How the job queues.")
    notification: Annotated[Any, Rare("Notification"), WHILE_ACTIVE, Unreported] = optional(
        "Who is notified of which events."
    )
    custom_metrics: Annotated[Any, Rare("CustomMetrics")] = optional("Custom metrics.")
    output_model: Annotated[Any, Rare("OutputModel")] = optional("The model that the job produces.")
    asset_model: Annotated[Any, Rare("AssetModel")] = optional("The model as an asset.")
    asset_id: str | None = optional("Asset to fine-tune.")

    @model_validator(mode="after")
    def _paths(self) -> Self:
        paths = [v.local_path for item in self.volumes or () if (v := item.nfs or item.pfs or item.obs)]
        if len(paths) != len(set(paths)):
            raise rule_error("two volumes have the same local_path")
        return self


class Ssh(Strict):
    """Access to the job by SSH."""

    key_pair_names: Annotated[list[str] | None, Mark.AS_SET, WHILE_ACTIVE] = optional(
        "Key pairs that may log in."
    )


class Endpoints(Strict):
    """Access to the running job."""

    ssh: Ssh | None = optional("SSH access.")


#: Annotations that take a boolean, and those that take a count.
_SWITCHES = frozenset(
    {
        "fault-tolerance/job-unconditional-retry",
        "fault-tolerance/hang-retry",
        "fault-tolerance/hccl_op_retry",
        "jupyter-lab/enable",
        "tensorboard/enable",
        "mindstudio-insight/enable",
        "performance_diagnosis_enabled",
    }
)
_RETRIES = ("fault-tolerance/job-retry-num", "fault-tolerance/pod-retry-num")


def _known_annotations(annotations: dict[str, str] | None) -> dict[str, str] | None:
    """Check the values of documented annotations; others are allowed, since the service may know more."""
    for name, value in (annotations or {}).items():
        if "${" in value:
            continue  # it has no value yet, or is a secret
        if name in _SWITCHES and value not in ("true", "false"):
            raise form_error(f'{name} must be "true" or "false"')
        if name in _RETRIES and not (value.isdecimal() and int(value) > 0):
            raise form_error(f"{name} must be a whole number, at least 1")
    return annotations


JobKind = Literal[
    "job",
    "hetero_job",
    "autosearch_job",
    "mrs_job",
    "edge_job",
    "federated_pool_job",
    "diag_job",
    "visualization_job",
]


class JobBody(Strict):
    """The part of an entry that becomes the service's create body. Names are the service's own."""

    kind: JobKind = optional("Kind of job.", default="job")
    description: Annotated[str | None, ANY_TIME] = optional(
        "What the job is for; the ownership marker is appended."
    )
    annotations: Annotated[
        dict[str, Text] | None, Mark.FREE_MEMBERS, Unreported, AfterValidator(_known_annotations)
    ] = optional("Settings of advanced features, e.g. fault-tolerance/job-retry-num.")
    training_experiment_reference: Annotated[Any, Rare("ExperimentReference")] = optional(
        "The experiment the job belongs to."
    )
    algorithm: Algorithm | None = optional("What the job runs.")
    tasks: Annotated[Any, Rare("Tasks")] = optional("Tasks of a heterogeneous job; not together with spec.")
    spec: Spec | None = optional("Where and how the job runs.")
    endpoints: Endpoints | None = optional("Access to the running job.")
    train_type: Annotated[Literal["SFT", "PRETRAIN", "LORA", "DPO", "RFT"] | None, Unreported] = optional(
        "Kind of fine-tuning."
    )
    ftjob_config: Annotated[Any, Rare("FineTuneConfig"), Unreported] = optional(
        "Settings of a fine-tune job."
    )

    choices = (Choice(("tasks", "spec")),)

    @model_validator(mode="after")
    def _frame(self) -> Self:
        self.check_choices()
        is_federated = self.kind == "federated_pool_job"
        has_group = bool(self.spec and self.spec.resource.pool_group_id)
        summary = self.algorithm.summary if self.algorithm else None
        if self.tasks and self.kind != "hetero_job":
            raise rule_error("tasks requires kind: hetero_job")
        missing = []
        if self.kind == "job" and self.algorithm is None and self.train_type is None:
            missing.append("algorithm is required: what the job runs")
        if not self.tasks and self.spec is None:
            missing.append("spec is required: where and how the job runs")
        if missing:
            raise rule_error("; ".join(missing))
        if is_federated and not has_group:
            raise rule_error("kind federated_pool_job requires spec.resource.pool_group_id")
        if has_group and not is_federated:
            raise rule_error("spec.resource.pool_group_id requires kind federated_pool_job")
        if self.kind == "visualization_job" and not (summary and summary.data_sources):
            raise rule_error("kind visualization_job requires algorithm.summary.data_sources")
        return self
