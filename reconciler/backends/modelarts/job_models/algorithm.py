"""What a job runs, as the service reports it.

Source: docs/modelarts.md, "Responses" and "Contradictions"; the vendor's SDK, `JobAlgorithmResponse`.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from reconciler.backends.modelarts.lenient import Count, Lenient, Texts


def _without_unit(value: Any) -> Any:
    return value.strip().removesuffix("s") or None if isinstance(value, str) else value


def _read_discrete(value: Any) -> Any:
    return "discrete" if value == "discreate" else value


#: "30s", "30" and 30 are the same.
Seconds = Annotated[int | None, BeforeValidator(_without_unit)]


class Constraint(Lenient):
    """The rules for a parameter's value."""

    type: str = ""
    editable: bool | None = None
    required: bool | None = None
    sensitive: bool | None = None
    valid_type: str = ""
    valid_range: tuple[str, ...] = ()


class I18nDescription(Lenient):
    """A description in one language."""

    language: str = ""
    description: str = ""


class Parameter(Lenient):
    """One argument of the training script."""

    name: str = ""
    value: str = ""
    description: str = ""
    constraint: Constraint | None = None
    i18n_description: I18nDescription | None = None


class RewardAttr(Lenient):
    """A metric that a hyperparameter search watches."""

    name: str = ""
    mode: str = ""
    regex: str = ""


class SearchParam(Lenient):
    """A hyperparameter that a search varies."""

    name: str = ""
    # Some documents write it `discreate`.
    param_type: Annotated[str, BeforeValidator(_read_discrete)] = ""
    lower_bound: str = ""
    upper_bound: str = ""
    discrete_points_num: str = ""
    discrete_values: tuple[str, ...] = ()


class AlgoParam(Lenient):
    """One setting of a search algorithm."""

    key: str = ""
    value: str = ""
    type: str = ""


class AlgoConfig(Lenient):
    """A search algorithm with its settings."""

    name: str = ""
    params: tuple[AlgoParam, ...] = ()


class AutoSearch(Lenient):
    """A hyperparameter search."""

    skip_search_params: str = ""
    reward_attrs: tuple[RewardAttr, ...] = ()
    search_params: tuple[SearchParam, ...] = ()
    algo_configs: tuple[AlgoConfig, ...] = ()


class Policies(Lenient):
    """How the algorithm is run."""

    auto_search: AutoSearch | None = None


class Dataset(Lenient):
    """A data set; `obs_url` is where it lies."""

    id: str = ""
    version_id: str = ""
    obs_url: str = ""
    service_type: str = ""
    name: str = ""
    dataset_proportion: Count = None


class Obs(Lenient):
    """A place in object storage."""

    obs_url: str = ""


class Remote(Lenient):
    """Where data lies: in object storage, or in a data set."""

    obs: Obs | None = None
    dataset: Dataset | None = None


class RemoteConstraint(Lenient):
    """What kind of data an input takes."""

    data_type: str = ""
    attributes: str = ""


class Data(Lenient):
    """Data of the job, by the name of its argument."""

    name: str = ""
    description: str = ""
    local_dir: str = ""
    access_method: str = ""
    remote: Remote | None = None


class Input(Data):
    """Data that the job reads."""

    remote_constraint: tuple[RemoteConstraint, ...] = ()


class Output(Data):
    """Data that the job writes; it is uploaded every `period` seconds."""

    mode: str = ""
    period: Seconds = None


class Label(Lenient):
    """A tag."""

    key: str = ""
    value: str = ""


class JobEngine(Lenient):
    """What a job, or a task, runs in."""

    engine_id: str = ""
    engine_name: str = ""
    engine_version: str = ""
    image_url: str = ""
    image_repo_id: str = ""
    install_sys_packages: bool | None = None
    v1_compatible: bool | None = None
    run_user: str = ""
    usage: str = ""
    support_groups: str = ""
    tags: tuple[Label, ...] = ()


class Pfs(Lenient):
    """A path of a parallel file system."""

    pfs_path: str = ""


class LogDir(Lenient):
    """Where summaries are written."""

    pfs: Pfs | None = None


class SummaryJob(Lenient):
    """The job whose summaries are shown."""

    job_id: str = ""


class SummaryNfs(Lenient):
    """A path on a file server."""

    nfs_path: str = ""


class DataSource(Lenient):
    """What a visualisation shows."""

    job: SummaryJob | None = None
    nfs: SummaryNfs | None = None


class Summary(Lenient):
    """Summaries for TensorBoard or MindStudio Insight."""

    log_type: str = ""
    log_dir: LogDir | None = None
    data_sources: tuple[DataSource, ...] = ()


class Algorithm(Lenient):
    """What the job runs."""

    id: str = ""
    name: str = ""
    subscription_id: str = ""
    item_version_id: str = ""
    code_dir: str = ""
    boot_file: str = ""
    autosearch_config_path: str = ""
    autosearch_framework_path: str = ""
    command: str = ""
    parameters: tuple[Parameter, ...] = ()
    parameters_customization: bool | None = None
    policies: Policies | None = None
    inputs: tuple[Input, ...] = ()
    outputs: tuple[Output, ...] = ()
    engine: JobEngine | None = None
    local_code_dir: str = ""
    working_dir: str = ""
    environments: Texts = Field(default_factory=dict)
    summary: Summary | None = None


class TaskJobConfig(Lenient):
    """Settings of a task."""

    parameters: tuple[Parameter, ...] = ()
    inputs: tuple[Input, ...] = ()
    outputs: tuple[Output, ...] = ()
    engine: JobEngine | None = None


class TaskAlgorithm(Lenient):
    """What a task of a heterogeneous job runs."""

    job_config: TaskJobConfig | None = None
    code_dir: str = ""
    boot_file: str = ""
    inputs: tuple[Input, ...] = ()
    outputs: tuple[Output, ...] = ()
    engine: JobEngine | None = None
    local_code_dir: str = ""
    working_dir: str = ""
    environments: Texts = Field(default_factory=dict)
