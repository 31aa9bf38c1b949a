"""What a job runs: the part `algorithm` of the create body; `desired.py` says what a line holds."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import (
    Field,
    StringConstraints,
    model_validator,
)

from reconciler.core.fields.field_types import (
    DISTINCT_NAMES,
    Choice,
    Filled,
    Flag,
    Strict,
    Text,
    given,
    rule_error,
)
from reconciler.core.fields.marks import DefaultTemplate, KeyedBy, Mark
from reconciler.core.fields.obs_path import (
    BootFile,
    CodeDirectory,
    GivenDirectory,
    GivenPath,
    ObsDirectory,
    ObsPath,
    is_inside,
    outside,
)


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
            raise rule_error("version_id is required unless service_type is V3")
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
            raise rule_error("engine_name requires engine_version, or image_url for a custom image")
        if self.engine_version and not (self.engine_name or self.engine_id):
            raise rule_error("engine_version requires engine_name")
        self.check_choices()
        if self.image_repo_id and not self.image_url:
            raise rule_error("image_repo_id requires image_url")
        if self.install_sys_packages and len(given(self, "engine_name", "engine_version", "image_url")) < 3:
            raise rule_error("install_sys_packages requires engine_name, engine_version and image_url")
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
            raise rule_error("log_type requires log_dir")
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
        description="Environment variables, as a mapping of names to values or as a list; at most 100.",
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
        known = given(self, "id", "subscription_id", "item_version_id")
        self.check_choices()
        if bool(self.subscription_id) != bool(self.item_version_id):
            raise rule_error("subscription_id and item_version_id must be set together")
        if known:
            return
        self._check_code(self.engine or Engine())
        if not given(
            self, "code_dir", "command", "autosearch_config_path", "autosearch_framework_path", "summary"
        ):
            raise rule_error(
                "one source is required: id, subscription_id + item_version_id, code_dir + boot_file, "
                "or command + engine.image_url"
            )
        self._check_boot_file(self.engine or Engine())

    def _check_code(self, engine: Engine) -> None:
        if self.boot_file and not self.code_dir:
            raise rule_error("boot_file requires code_dir")
        if engine.image_url and not engine.engine_name and not self.command:
            raise rule_error("a custom image requires command, or engine_name for a framework on the image")
        if self.code_dir and not (self.boot_file or self.command):
            raise rule_error("code_dir requires boot_file, or command for a custom image")
        if (self.boot_file or self.command) and not given(engine, "engine_id", "engine_name", "image_url"):
            raise rule_error("engine is required: engine_id, engine_name + engine_version, or image_url")

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
            raise rule_error("local_code_dir must be a directory of its own under /home (ModelArts.2857)")
