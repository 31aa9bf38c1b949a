"""What a person may declare below a job: one line a field.

A line says the type, the limits, the help text, the service's documented default (the field's
default, where it is not None) and, as marks, what an edit of the field means. Schema, normal form,
digest, diff and docs are read off these lines.

Source of fields and limits: the documents of docs/modelarts.md, "Sources".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)
from pydantic_core import PydanticCustomError

from reconciler.core.declared.marks import Cloud, DefaultTemplate, KeyedBy, Mark, UpdateInPlace
from reconciler.core.declared.obs_path import (
    BootFile,
    CodeDirectory,
    GivenDirectory,
    GivenPath,
    ObsDirectory,
    ObsPath,
    VolumePath,
    is_inside,
    outside,
)
from reconciler.core.declared.scalar import plain, scalar_text
from reconciler.core.observed.phase import Operation

HUAWEI_ONLY = frozenset({Cloud.HUAWEI})
EVERY_CLOUD = frozenset(Cloud)

RESCHEDULE = UpdateInPlace(HUAWEI_ONLY, Operation.UPDATE_PRIORITY)
WHILE_ACTIVE = UpdateInPlace(HUAWEI_ONLY, Operation.UPDATE_DESCRIPTION)
ANY_TIME = UpdateInPlace(EVERY_CLOUD, Operation.UPDATE_DESCRIPTION, on_ended=True)


@dataclass(frozen=True, slots=True)
class Choice:
    """Members of a model of which at most one may be given, or exactly one if one `is_required`.

    `hint` stands behind the rule in an error.
    """

    members: tuple[str, ...]
    is_required: bool = False
    hint: str = ""

    @property
    def rule(self) -> str:
        """The rule in words."""
        *others, last = self.members
        names = f"{', '.join(others)} and {last}"
        words = (
            f"exactly one of {names} is required" if self.is_required else f"{names} are mutually exclusive"
        )
        return f"{words}; {self.hint}" if self.hint else words


class Strict(BaseModel):
    """A model of what people write: an unknown key is a typo, and a wrong type is not guessed at."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, hide_input_in_errors=True, defer_build=True,
        allow_inf_nan=False,
    )  # fmt: skip

    #: The members of which only so many may be given; validator and schema both read this.
    choices: ClassVar[tuple[Choice, ...]] = ()

    def check_choices(self) -> None:
        """Raise the error of the first choice that is not made as it must be."""
        for choice in self.choices:
            count = len(_given(self, *choice.members))
            if count > 1 or (count == 0 and choice.is_required):
                raise _wrong(choice.rule)


#: The service wants text; people may write a number or a boolean, which is text as it stands.
Text = Annotated[str, BeforeValidator(scalar_text, json_schema_input_type=str | int | float | bool)]
#: A boolean, however it is spelled. Every boolean field has this type: `True` is no bool to pydantic.
Flag = Annotated[bool, BeforeValidator(plain)]
#: A path of a task, of which the service's documents say no more.
TaskPath = Annotated[str, Mark.OBS_PATH]
Hours = Literal["HOURS"]
Filled = Mark.FILLED_IN
Unreported = Mark.NOT_REPORTED


def _wrong(message: str) -> PydanticCustomError:
    # A custom error keeps our words as they are; a ValueError would be shown as "Value error, …".
    return PydanticCustomError("rule", "{message}", {"message": message})


def _given(model: BaseModel, *names: str) -> list[str]:
    """Those of the fields that say something (null, "" and empty containers say nothing)."""
    return [name for name in names if getattr(model, name) not in (None, "", [], {})]


def _distinct_names(items: list[Any] | None) -> list[Any] | None:
    seen: set[str] = set()
    for item in items or ():
        if item.name in seen:
            raise _wrong(f'the name "{item.name}" is used twice')
        seen.add(item.name)
    return items


DISTINCT_NAMES = AfterValidator(_distinct_names)


def _of_obs(inputs: list[Any] | None) -> list[Any] | None:
    if any(item.remote.dataset for item in inputs or ()):
        raise _wrong("the inputs of a task must come from obs, not from a dataset")
    return inputs


OF_OBS = AfterValidator(_of_obs)


class Constraint(Strict):
    """The rules for a parameter's value."""

    type: Literal["String", "Integer", "Float", "Boolean"] | None = Field(
        None, description="Type of the value."
    )
    editable: Flag | None = Field(None, description="Whether the value may be changed.")
    required: Flag | None = Field(None, description="Whether a value is required.")
    sensitive: Flag | None = Field(None, description="Stored by the service, and without effect there.")
    valid_type: Literal["None", "Choice", "Range"] | None = Field(None, description="Meaning of valid_range.")
    valid_range: list[Text] | None = Field(
        None, description="Choices, or the ends of the range.", examples=[["0", "1"]]
    )


class I18nDescription(Strict):
    """A description of a parameter in one language."""

    language: Literal["zh-cn", "en-us"] | None = Field(None, description="Language of the text.")
    description: str | None = Field(None, description="The text.", examples=["Learning rate"])


class Parameter(Strict):
    """One argument of the training script."""

    name: Annotated[
        str,
        StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$"),
        Field(description="Name of the argument.", examples=["lr"]),
    ]
    value: Text | None = Field(None, description="Value; always sent as text.", examples=[0.1])
    description: Annotated[str | None, Filled] = Field(
        None, description="What the argument means.", examples=["Learning rate"]
    )
    constraint: Annotated[Constraint | None, Filled] = Field(None, description="Rules for the value.")
    i18n_description: Annotated[I18nDescription | None, Filled] = Field(
        None, description="Description in one language."
    )
    sensitive: Flag = Field(
        False,
        description="Never show the value, and start no new job when it changes (reconciler's own).",
        examples=[True],
    )


class Dataset(Strict):
    """A data set of the service as input."""

    id: str = Field(description="Id of the data set.", examples=["ak0Ft2xVgRTdMQbvbHs"])
    version_id: str | None = Field(
        None, description="Version; required unless service_type is V3.", examples=["5Hs1wGvJ7jDMB6dbQPW"]
    )
    service_type: str | None = Field(
        None, description="V3: a data set of the asset service.", examples=["V3"]
    )
    name: str | None = Field(None, description="Name of the data set.", examples=["imagenet"])
    dataset_proportion: int | None = Field(
        None, description="Share of the data set, for fine-tuning.", examples=[100]
    )

    @model_validator(mode="after")
    def _version(self) -> Self:
        if self.service_type != "V3" and not self.version_id:
            raise _wrong("version_id is required unless service_type is V3")
        return self


class Obs(Strict):
    """A place in object storage."""

    obs_url: GivenPath = Field(
        description="OBS path; a directory ends in /.", examples=["obs://vision-data/imagenet/"]
    )


class ObsTree(Strict):
    """A directory in object storage."""

    obs_url: GivenDirectory = Field(
        description="OBS directory; it ends in /.", examples=["obs://vision-data/out/"]
    )


class InputRemote(Strict):
    """Where an input comes from: a data set, or a path in object storage."""

    dataset: Dataset | None = Field(
        None,
        description="A data set of the service.",
        examples=[{"id": "ak0Ft2xVgRTdMQbvbHs", "version_id": "5Hs1wGvJ7jDMB6dbQPW"}],
    )
    obs: Obs | None = Field(None, description="A path in object storage.")

    choices = (Choice(("dataset", "obs"), is_required=True),)

    @model_validator(mode="after")
    def _one(self) -> Self:
        self.check_choices()
        return self


class RemoteConstraint(Strict):
    """What kind of data an input takes."""

    data_type: str | None = Field(None, description="Kind of data.", examples=["obs"])
    attributes: Literal["data_format", "data_segmentation", "dataset_type"] | None = Field(
        None, description="Attribute: data_format, data_segmentation, dataset_type.", examples=["data_format"]
    )


class Input(Strict):
    """Data that the job reads."""

    name: str = Field(
        description="Name of the input; also the argument that carries the local path.", examples=["data_url"]
    )
    description: Annotated[str | None, Filled] = Field(
        None, description="What the input is.", examples=["Training images"]
    )
    local_dir: Annotated[
        str | None, Filled, DefaultTemplate("/home/ma-user/modelarts/inputs/{name}_{index}")
    ] = Field(
        None,
        description="Directory in the container; by default /home/ma-user/modelarts/inputs/NAME_INDEX.",
        examples=["/home/ma-user/modelarts/inputs/data_url_0"],
    )
    access_method: Literal["parameter", "env"] = Field(
        "parameter", description="How the path is passed to the program."
    )
    remote: InputRemote = Field(
        description="Where the data comes from.",
        examples=[{"obs": {"obs_url": "obs://vision-data/imagenet/"}}],
    )
    remote_constraint: list[RemoteConstraint] | None = Field(None, description="What data fits.")


class OutputRemote(Strict):
    """Where an output goes."""

    obs: ObsTree = Field(description="A directory in object storage.")


class Output(Strict):
    """Data that the job writes."""

    name: str = Field(
        description="Name of the output; also the argument that carries the local path.",
        examples=["train_url"],
    )
    description: Annotated[str | None, Filled] = Field(
        None, description="What the output is.", examples=["Checkpoints"]
    )
    local_dir: Annotated[
        str | None, Filled, DefaultTemplate("/home/ma-user/modelarts/outputs/{name}_{index}")
    ] = Field(
        None,
        description="Directory in the container; by default /home/ma-user/modelarts/outputs/NAME_INDEX.",
        examples=["/home/ma-user/modelarts/outputs/train_url_0"],
    )
    access_method: Annotated[Literal["parameter", "env"], Filled] = Field(
        "parameter", description="How the path is passed to the program."
    )
    remote: OutputRemote = Field(description="Destination of the data.")


class Engine(Strict):
    """What the job runs in: a preset framework, an image of one's own, or both."""

    engine_id: Annotated[str | None, Filled] = Field(
        None,
        description="Id of a preset framework.",
        examples=["pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64"],
    )
    engine_name: Annotated[str | None, Filled] = Field(
        None, description="Name of a preset framework.", examples=["PyTorch"]
    )
    engine_version: Annotated[str | None, Filled] = Field(
        None,
        description="Version of a preset framework.",
        examples=["pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64"],
    )
    image_url: Annotated[str | None, Filled] = Field(
        None, description="Image: {organization}/{image}:{tag} of SWR.", examples=["vision/resnet:1.4"]
    )
    install_sys_packages: Annotated[Flag, Filled] = Field(
        False, description="Install the platform's packages into the image."
    )
    image_repo_id: str | None = Field(
        None, description="Instance of an SWR enterprise repository.", examples=["swr-ee-7f2c"]
    )

    choices = (
        Choice(("engine_id", "image_url"), hint="for a framework on an image use engine_name + image_url"),
    )

    @model_validator(mode="after")
    def _choice(self) -> Self:
        if self.engine_name and not (self.engine_version or self.image_url or self.engine_id):
            raise _wrong("engine_name requires engine_version, or image_url for a custom image")
        if self.engine_version and not (self.engine_name or self.engine_id):
            raise _wrong("engine_version requires engine_name")
        self.check_choices()
        if self.image_repo_id and not self.image_url:
            raise _wrong("image_repo_id requires image_url")
        if self.install_sys_packages and len(_given(self, "engine_name", "engine_version", "image_url")) < 3:
            raise _wrong("install_sys_packages requires engine_name, engine_version and image_url")
        return self


class RewardAttr(Strict):
    """A metric that a hyperparameter search watches."""

    name: str | None = Field(None, description="Name of the metric.", examples=["accuracy"])
    mode: Literal["max", "min"] | None = Field(None, description="Which way is better.")
    regex: str | None = Field(
        None, description="Pattern that finds the metric in the log.", examples=[r"accuracy=(\d+\.\d+)"]
    )


class SearchParam(Strict):
    """A hyperparameter that a search varies."""

    name: str | None = Field(None, description="Name of the hyperparameter.", examples=["lr"])
    param_type: Literal["continuous", "discrete"] | None = Field(None, description="Type of range.")
    lower_bound: Text | None = Field(None, description="Lower end of the range.", examples=[0.001])
    upper_bound: Text | None = Field(None, description="Upper end of the range.", examples=[0.1])
    discrete_points_num: Text | None = Field(
        None, description="Number of points of the range to try.", examples=[5]
    )
    discrete_values: list[Text] | None = Field(
        None, description="The values to try.", examples=[["32", "64"]]
    )


class AlgoParam(Strict):
    """One setting of a search algorithm."""

    key: str | None = Field(None, description="Name of the setting.", examples=["num_samples"])
    value: Text | None = Field(None, description="Value of the setting.", examples=[20])
    type: str | None = Field(None, description="Type of the setting.", examples=["Integer"])


class AlgoConfig(Strict):
    """A search algorithm with its settings."""

    name: str | None = Field(None, description="Name of the search algorithm.", examples=["bayes_opt_search"])
    params: list[AlgoParam] | None = Field(None, description="Its settings.")


class AutoSearch(Strict):
    """A hyperparameter search."""

    skip_search_params: str | None = Field(
        None, description="Combinations to leave out.", examples=["lr=0.1"]
    )
    reward_attrs: list[RewardAttr] | None = Field(None, description="Metrics to optimize.")
    search_params: list[SearchParam] | None = Field(None, description="Parameters to vary.")
    algo_configs: list[AlgoConfig] | None = Field(None, description="Search algorithm.")


class Policies(Strict):
    """How the algorithm is run."""

    auto_search: AutoSearch | None = Field(None, description="Search for hyperparameters.")


class Pfs(Strict):
    """A path of a parallel file system."""

    pfs_path: str = Field(description="Path of the parallel file system.", examples=["/vision-pfs/logs"])


class LogDir(Strict):
    """Directory the summaries are written to."""

    pfs: Pfs = Field(description="A parallel file system.")


class JobReference(Strict):
    """Another training job."""

    job_id: str = Field(description="Id of the job.", examples=["3faf5c03-9a2c-4b1f-8d52-0f4e6a7b8c9d"])


class NfsReference(Strict):
    """A path on a file server."""

    nfs_path: str | None = Field(None, description="Path on the file server.", examples=["/logs"])


class DataSource(Strict):
    """What a visualisation shows."""

    job: JobReference | None = Field(None, description="Job whose summaries to show.")
    nfs: NfsReference | None = Field(None, description="A path on a file server.")


class Summary(Strict):
    """Summaries for TensorBoard or MindStudio Insight."""

    log_type: Literal["tensorboard", "mindstudio-insight"] | None = Field(None, description="The tool.")
    log_dir: LogDir | None = Field(None, description="Directory the summaries are written to.")
    data_sources: list[DataSource] | None = Field(None, description="What is shown.")

    @model_validator(mode="after")
    def _directory(self) -> Self:
        if self.log_type and not self.log_dir:
            raise _wrong("log_type requires log_dir")
        return self


EnvironmentName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", min_length=1, max_length=8192)
]
EnvironmentValue = Annotated[Text, StringConstraints(max_length=4096)]
Environments = Annotated[dict[EnvironmentName, EnvironmentValue], Field(max_length=100)]

_NOT_BELOW = ("/home/ma-user/modelarts-dev", "/home/ma-user/infer")


class Algorithm(Strict):
    """What the job runs."""

    id: str | None = Field(
        None,
        description="Id of an algorithm of the service.",
        examples=["0a1b2c3d-0000-4000-8000-000000000000"],
    )
    name: Annotated[str | None, Filled] = Field(
        None, description="Set by the service; leave it out.", examples=["resnet"]
    )
    subscription_id: str | None = Field(
        None, description="Id of a subscribed algorithm.", examples=["6c7d8e9f-0000-4000-8000-000000000000"]
    )
    item_version_id: str | None = Field(
        None, description="Version of a subscribed algorithm.", examples=["1.0.0"]
    )
    code_dir: Annotated[CodeDirectory | None, Filled] = Field(
        None,
        description="OBS directory with the code, ending in /; file:// means a directory in the image.",
        examples=["obs://vision-data/resnet/"],
    )
    boot_file: Annotated[BootFile | None, Filled] = Field(
        None,
        description="The script to start, inside code_dir.",
        examples=["obs://vision-data/resnet/train.py"],
    )
    autosearch_config_path: ObsPath | None = Field(
        None, description="YAML file of a search, in OBS.", examples=["obs://vision-data/search.yaml"]
    )
    autosearch_framework_path: ObsDirectory | None = Field(
        None, description="OBS directory of the search framework.", examples=["obs://vision-data/search/"]
    )
    command: Annotated[str | None, Filled] = Field(
        None, description="Start command of a custom image.", examples=["python /app/train.py"]
    )
    parameters: Annotated[list[Parameter] | None, KeyedBy("name"), DISTINCT_NAMES] = Field(
        None,
        description="Arguments of the script, as a mapping or as the service's list.",
        examples=[{"epochs": 90, "lr": 0.1}],
    )
    policies: Annotated[Policies | None, Filled] = Field(None, description="How the algorithm is run.")
    inputs: Annotated[list[Input] | None, KeyedBy("name"), DISTINCT_NAMES] = Field(
        None,
        description="Data to read, as a mapping of names to OBS paths or as the service's list.",
        examples=[{"data_url": "obs://vision-data/imagenet/"}],
    )
    outputs: Annotated[list[Output] | None, KeyedBy("name"), DISTINCT_NAMES] = Field(
        None,
        description="Data to write, as a mapping of names to OBS paths or as the service's list.",
        examples=[{"train_url": "obs://vision-data/out/"}],
    )
    engine: Annotated[Engine | None, Filled] = Field(None, description="What the job runs in.")
    local_code_dir: Annotated[str | None, Filled] = Field(
        "/home/ma-user/modelarts/user-job-dir",
        description="Where the code lies in the container.",
        examples=["/home/ma-user/code"],
    )
    working_dir: str | None = Field(
        None,
        description="Working directory in the container.",
        examples=["/home/ma-user/modelarts/user-job-dir/resnet"],
    )
    environments: Annotated[Environments | None, Mark.FREE_MEMBERS, Filled] = Field(
        None,
        description="Environment variables, as a mapping of names to values; at most 100.",
        examples=[{"NCCL_DEBUG": "INFO"}],
    )
    summary: Summary | None = Field(None, description="Summaries for visualisation.")

    choices = (Choice(("id", "subscription_id")), Choice(("id", "item_version_id")))

    @model_validator(mode="after")
    def _rules(self) -> Self:
        self._check_source()
        self._check_local_code_dir()
        return self

    def _check_source(self) -> None:
        known = _given(self, "id", "subscription_id", "item_version_id")
        self.check_choices()
        if bool(self.subscription_id) != bool(self.item_version_id):
            raise _wrong("subscription_id and item_version_id must be set together")
        if known:
            return
        self._check_code(self.engine or Engine())
        if not _given(
            self, "code_dir", "command", "autosearch_config_path", "autosearch_framework_path", "summary"
        ):
            raise _wrong(
                "one source is required: id, subscription_id + item_version_id, code_dir + boot_file, "
                "or command + engine.image_url"
            )
        self._check_boot_file(self.engine or Engine())

    def _check_code(self, engine: Engine) -> None:
        if self.boot_file and not self.code_dir:
            raise _wrong("boot_file requires code_dir")
        if engine.image_url and not engine.engine_name and not self.command:
            raise _wrong("a custom image requires command, or engine_name for a framework on the image")
        if self.code_dir and not (self.boot_file or self.command):
            raise _wrong("code_dir requires boot_file, or command for a custom image")
        if (self.boot_file or self.command) and not _given(engine, "engine_id", "engine_name", "image_url"):
            raise _wrong("engine is required: engine_id, engine_name + engine_version, or image_url")

    def _check_boot_file(self, engine: Engine) -> None:
        # What an image starts by its own command is not looked for in code_dir.
        starts_command = self.command and engine.image_url
        if (
            self.boot_file
            and self.code_dir
            and not starts_command
            and not is_inside(self.boot_file, self.code_dir)
        ):
            raise outside()

    def _check_local_code_dir(self) -> None:
        path = (self.local_code_dir or "").rstrip("/")
        if not path:
            return
        # The default itself lies below a refused directory, and the service takes it.
        refused = path in {"/home/ma-user", "/home/ma-user/modelarts", *_NOT_BELOW} or any(
            path.startswith(f"{directory}/") for directory in _NOT_BELOW
        )
        if not path.startswith("/home/") or refused:
            raise _wrong("local_code_dir must be a directory of its own under /home (ModelArts.2857)")


class TaskEngine(Strict):
    """What a task of a heterogeneous job runs in."""

    engine_id: str | None = Field(
        None,
        description="Id of a preset framework.",
        examples=["pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64"],
    )
    engine_name: str | None = Field(None, description="Name of a preset framework.", examples=["PyTorch"])
    engine_version: str | None = Field(
        None,
        description="Version of a preset framework.",
        examples=["pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64"],
    )
    image_url: str | None = Field(None, description="Image of SWR.", examples=["vision/resnet:1.4"])
    run_user: Text | None = Field(
        None, description='User id in a custom image, "1000" by default.', examples=["1000"]
    )


class TaskJobConfig(Strict):
    """Settings of a task."""

    parameters: Annotated[list[Parameter] | None, KeyedBy("name"), DISTINCT_NAMES] = Field(
        None, description="Arguments.", examples=[{"epochs": 90}]
    )
    inputs: Annotated[list[Input] | None, KeyedBy("name"), DISTINCT_NAMES, OF_OBS] = Field(
        None, description="Data to read.", examples=[{"data_url": "obs://vision-data/imagenet/"}]
    )
    outputs: Annotated[list[Output] | None, KeyedBy("name"), DISTINCT_NAMES] = Field(
        None, description="Data to write.", examples=[{"train_url": "obs://vision-data/out/"}]
    )
    engine: TaskEngine | None = Field(None, description="What the task runs in.")


class TaskAlgorithm(Strict):
    """What a task of a heterogeneous job runs."""

    job_config: TaskJobConfig | None = Field(None, description="Settings of the task.")
    code_dir: TaskPath | None = Field(
        None, description="OBS directory with the code.", examples=["obs://vision-data/rl/"]
    )
    boot_file: TaskPath | None = Field(
        None, description="The script to start.", examples=["obs://vision-data/rl/worker.py"]
    )
    engine: TaskEngine | None = Field(None, description="What the task runs in.")
    inputs: Annotated[list[Input] | None, KeyedBy("name"), DISTINCT_NAMES, OF_OBS] = Field(
        None, description="Data to read, OBS only.", examples=[{"data_url": "obs://vision-data/imagenet/"}]
    )
    outputs: Annotated[list[Output] | None, KeyedBy("name"), DISTINCT_NAMES] = Field(
        None, description="Data to write.", examples=[{"train_url": "obs://vision-data/out/"}]
    )
    local_code_dir: str | None = Field(
        None,
        description="Where the code lies in the container.",
        examples=["/home/ma-user/modelarts/user-job-dir"],
    )
    working_dir: str | None = Field(
        None,
        description="Working directory in the container.",
        examples=["/home/ma-user/modelarts/user-job-dir/rl"],
    )
    environments: Annotated[Environments | None, Mark.FREE_MEMBERS] = Field(
        None, description="Environment variables.", examples=[{"NCCL_DEBUG": "INFO"}]
    )


class TaskResource(Strict):
    """Where a task runs."""

    flavor_id: str | None = Field(None, description="Compute flavor.", examples=["modelarts.p3.large.public"])
    node_count: Annotated[int, Field(ge=1, description="Whole nodes.", examples=[2])]
    pool_id: str | None = Field(None, description="Dedicated pool.", examples=["pool-7d3f"])


class LogExportPath(Strict):
    """Where the log goes."""

    obs_url: Annotated[ObsDirectory | None, Filled] = Field(
        None, description="OBS directory; it ends in /.", examples=["obs://vision-data/logs/"]
    )
    host_path: Annotated[str | None, Filled] = Field(
        None, description="Directory on the host.", examples=["/var/log/training"]
    )


class Task(Strict):
    """One task of a heterogeneous job."""

    role: str | None = Field(None, description="Role of the task.", examples=["worker"])
    algorithm: TaskAlgorithm | None = Field(
        None,
        description="What the task runs.",
        examples=[{"code_dir": "obs://vision-data/rl/", "boot_file": "obs://vision-data/rl/worker.py"}],
    )
    task_resource: TaskResource | None = Field(None, description="Where the task runs.")
    log_export_path: LogExportPath | None = Field(None, description="Where the log goes.")


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
        if not _given(self, "flavor_id", "pool_id", "pool_group_id"):
            raise _wrong("flavor_id (public pool), pool_id or pool_group_id is required")
        self.check_choices()
        if self.main_container_customized_flavor and not self.pool_id:
            raise _wrong("main_container_customized_flavor requires pool_id")
        return self


def _mount_path(path: str) -> str:
    if path and (not path.startswith("/") or not path.strip("/")):
        raise _wrong("local_path must be an absolute path other than /")
    return path


def _nfs_path(path: str) -> str:
    if path and not re.fullmatch(r"[^/]+:/.*", path):
        raise _wrong("nfs_server_path must be host:/path")
    return path


MountPath = Annotated[str, AfterValidator(_mount_path)]


class NfsVolume(Strict):
    """A file server."""

    nfs_server_path: Annotated[str, AfterValidator(_nfs_path)] | None = Field(
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
                raise _wrong(f"{name} requires affinity_type: networkTopology")
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
            raise _wrong("path and port must be set together")
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
            raise _wrong("two volumes have the same local_path")
        return self


class Ssh(Strict):
    """Access to the job by SSH."""

    key_pair_names: Annotated[list[str] | None, Mark.AS_SET, WHILE_ACTIVE] = Field(
        None, description="Key pairs that may log in.", examples=[["alice-laptop"]]
    )


class Endpoints(Strict):
    """Access to the running job."""

    ssh: Ssh | None = Field(None, description="SSH access.")


class ExperimentReference(Strict):
    """The experiment the job belongs to."""

    id: str | None = Field(
        None,
        description="Id of an experiment that exists.",
        examples=["3f2a1b0c-0000-4000-8000-000000000000"],
    )
    name: Annotated[str | None, Unreported, Field(max_length=64)] = Field(
        None, description="Name; without id the experiment is made.", examples=["resnet-sweep"]
    )
    description: Annotated[str | None, Unreported, Field(max_length=256)] = Field(
        None, description="Description of the experiment.", examples=["Learning rates"]
    )


class TaskEnvironment(Strict):
    """Environment of a fine-tune job."""

    envs: list[dict[str, Any]] | None = Field(
        None, description="Its variables.", examples=[[{"name": "SEED", "value": "1"}]]
    )


class FineTuneConfig(Strict):
    """Settings of a fine-tune job."""

    ft_job_uuid: str | None = Field(
        None, description="Id of the fine-tune job.", examples=["3f2a1b0c-0000-4000-8000-000000000000"]
    )
    ft_train_type: str | None = Field(None, description="Kind of fine-tuning.", examples=["LORA"])
    model_type: str | None = Field(None, description="Kind of model.", examples=["qwen"])
    train_output_path: str | None = Field(
        None, description="Where the result goes.", examples=["obs://vision-data/ft/"]
    )
    train_process: float | None = Field(None, description="Progress.", examples=[0.5])
    checkpoint_id: str | None = Field(None, description="Where to start from.", examples=["ckpt-1"])
    task_env: TaskEnvironment | None = Field(None, description="Environment.")
    checkpoint_config: dict[str, Any] | None = Field(
        None, description="How checkpoints are kept.", examples=[{"save_steps": 500}]
    )


#: Annotations that switch something on or off, and those that let the service show summaries.
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
_VISUALIZATION = ("tensorboard/enable", "mindstudio-insight/enable")
_RETRIES = ("fault-tolerance/job-retry-num", "fault-tolerance/pod-retry-num")


def _known_annotations(annotations: dict[str, str] | None) -> dict[str, str] | None:
    """Refuse values that the service's documents do not have; it may know more annotations than they do."""
    for name, value in (annotations or {}).items():
        if "${" in value:
            continue  # It has no value yet, or is a secret.
        if name in _SWITCHES and value not in ("true", "false"):
            raise _wrong(f'{name} must be "true" or "false"')
        if name in _RETRIES and not (value.isdecimal() and int(value) > 0):
            raise _wrong(f"{name} must be a whole number, at least 1")
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

    kind: JobKind = Field("job", description="Kind of job.")
    description: Annotated[str | None, ANY_TIME] = Field(
        None,
        description="What the job is for; the ownership marker is appended.",
        examples=["ResNet-50, nightly"],
    )
    annotations: Annotated[
        dict[str, Text] | None, Mark.FREE_MEMBERS, Unreported, AfterValidator(_known_annotations)
    ] = Field(
        None,
        description="Settings of advanced features, e.g. fault-tolerance/job-retry-num.",
        examples=[{"fault-tolerance/job-retry-num": "3"}],
    )
    training_experiment_reference: ExperimentReference | None = Field(
        None, description="The experiment the job belongs to."
    )
    algorithm: Algorithm | None = Field(
        None,
        description="What the job runs.",
        examples=[
            {
                "code_dir": "obs://vision-data/resnet/",
                "boot_file": "obs://vision-data/resnet/train.py",
                "engine": {"engine_id": "pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64"},
            }
        ],
    )
    tasks: list[Task] | None = Field(
        None,
        description="Tasks of a heterogeneous job; not together with spec.",
        examples=[
            [{"role": "worker", "task_resource": {"flavor_id": "modelarts.p3.large.public", "node_count": 2}}]
        ],
    )
    spec: Spec | None = Field(
        None,
        description="Where and how the job runs.",
        examples=[{"resource": {"flavor_id": "modelarts.vm.cpu.2u", "node_count": 1}}],
    )
    endpoints: Endpoints | None = Field(None, description="Access to the running job.")
    train_type: Literal["SFT", "PRETRAIN", "LORA", "DPO", "RFT"] | None = Field(
        None, description="Kind of fine-tuning."
    )
    ftjob_config: FineTuneConfig | None = Field(None, description="Settings of a fine-tune job.")

    choices = (Choice(("tasks", "spec")),)

    @model_validator(mode="after")
    def _frame(self) -> Self:
        self.check_choices()
        if self.tasks and self.kind != "hetero_job":
            raise _wrong("tasks requires kind: hetero_job")
        if not self.tasks and self.spec is None:
            raise _wrong("spec is required: where and how the job runs")
        if self.kind == "job" and self.algorithm is None and self.train_type is None:
            raise _wrong("algorithm is required: what the job runs")
        self._check_kind()
        return self

    def _check_kind(self) -> None:
        has_group = bool(self.spec and self.spec.resource.pool_group_id)
        if has_group != (self.kind == "federated_pool_job"):
            need = "spec.resource.pool_group_id requires kind: federated_pool_job"
            raise _wrong(
                need if has_group else "kind federated_pool_job requires spec.resource.pool_group_id"
            )
        algorithm = self.algorithm or Algorithm.model_construct()
        for name in ("autosearch_config_path", "autosearch_framework_path"):
            if getattr(algorithm, name) and self.kind != "autosearch_job":
                raise _wrong(f"algorithm.{name} requires kind: autosearch_job")
        if self.spec and self.spec.retention and self.kind != "job":
            raise _wrong("spec.retention requires kind: job")
        shown = [name for name in _VISUALIZATION if (self.annotations or {}).get(name) == "true"]
        if (shown or self.kind == "visualization_job") and not (
            algorithm.summary and algorithm.summary.data_sources
        ):
            who = f"the annotation {shown[0]}" if shown else "kind visualization_job"
            raise _wrong(f"{who} requires algorithm.summary.data_sources")
