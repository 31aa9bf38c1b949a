"""What the service tells beside its jobs: events, logs, metrics, flavors… under its documented names.

Lenient: null is absent, numbers may be text and text numbers, unknown fields are kept in `model_extra`.

Source: reference/modelarts-api.md 2 and 12.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, model_validator


class Told(BaseModel):
    """An object of the service."""

    model_config = ConfigDict(extra="allow", frozen=True, coerce_numbers_to_str=True, protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: member for key, member in value.items() if member is not None}
        return value


def _number_or_none(value: Any) -> Any:
    """An empty text is no number, and no mistake either."""
    return None if isinstance(value, str) and not value.strip() else value


Number = Annotated[float | None, BeforeValidator(_number_or_none)]
Count = Annotated[int | None, BeforeValidator(_number_or_none)]


class Event(Told):
    """Something that happened to a job. `time` is text, as the service writes it."""

    time: str = ""
    level: str = ""
    message: str = ""
    source: str = ""


class Events(Told):
    """A page of events; `total` is how many there are."""

    total: Count = None
    limit: Count = None
    offset: Count = None
    order: str = ""
    events: tuple[Event, ...] = ()


class Task(Told):
    """A task of a job, and where it ran."""

    task: str = ""
    ip: str = ""
    host_ip: str = ""
    schedule_count: Count = None


class SubStage(Told):
    """A step within a stage."""

    name: str = ""
    en_message: str = ""
    create_time: str = ""


class Stage(Told):
    """A stage of a run: scheduling, preparing, running or end."""

    name: str = ""
    en_message: str = ""
    start_time: str = ""
    end_time: str = ""
    stage_order: Count = None
    sub_stages: tuple[SubStage, ...] = ()


class Run(Told):
    """One run of a job; a job that was restarted has several."""

    record_order: Count = None
    stages: tuple[Stage, ...] = ()


class Stages(Told):
    """The runs of a job."""

    running_records: tuple[Run, ...] = ()


class LogPreview(Told):
    """The end of a log, at most 5 MB; sizes in bytes."""

    # It was named `context` before March 2022.
    content: str = Field("", validation_alias=AliasChoices("content", "context"))
    current_size: Count = None
    full_size: Count = None


class LogUrl(Told):
    """A link to a whole log; it lives five minutes, and whoever has it can read the log."""

    obs_url: str


class LogLines(Told):
    """Some lines of a log."""

    start_line: str = ""
    end_line: str = ""
    lines: Count = None
    content: str = ""


class Metric(Told):
    """One value per minute, in percent; None where there is none (the service says -1)."""

    metric: str = ""
    value: tuple[Number, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _minus_one_is_none(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and isinstance(value.get("value"), list):
            return {**value, "value": [None if v in (-1, "-1") else v for v in value["value"]]}
        return value


class Metrics(Told):
    """All metrics of a task."""

    metrics: tuple[Metric, ...] = ()


class Quota(Told):
    """How many of something there may be, and are."""

    resource: str = ""
    quota: Count = None
    used: Count = None


class Quotas(Told):
    """All quotas."""

    quotas: tuple[Quota, ...] = ()


class Accelerators(Told):
    """The cards of a node."""

    unit_num: Count = None
    # Some tables of the service's documents have the other spelling.
    product_name: str = Field("", validation_alias=AliasChoices("product_name", "product_nume"))
    memory: str = ""


class Cpu(Told):
    """The processor of a node."""

    arch: str = ""
    core_num: Count = None


class Capacity(Told):
    """So much of it."""

    size: Number = None
    unit: str = ""


class FlavorInfo(Told):
    """What a node of a flavor has; at most `max_num` of them."""

    max_num: Count = None
    cpu: Cpu | None = None
    gpu: Accelerators | None = None
    npu: Accelerators | None = None
    memory: Capacity | None = None
    disk: Capacity | None = None


class Flavor(Told):
    """A kind of node."""

    flavor_id: str = ""
    flavor_name: str = ""
    flavor_type: str = ""
    flavor_info: FlavorInfo | None = None


class Flavors(Told):
    """All flavors of the public pools."""

    flavors: tuple[Flavor, ...] = ()


class ImageInfo(Told):
    """The images of an engine."""

    cpu_image_url: str = ""
    gpu_image_url: str = ""
    image_version: str = ""


class Engine(Told):
    """A preset framework in one version."""

    engine_id: str = ""
    engine_name: str = ""
    engine_version: str = ""
    run_user: str = ""
    image_info: ImageInfo | None = None


class Engines(Told):
    """All engines."""

    items: tuple[Engine, ...] = ()


class Tag(Told):
    """A tag of a job."""

    key: str
    value: str = ""


class Tags(Told):
    """The tags of one job."""

    tags: tuple[Tag, ...] = ()


class TagValues(Told):
    """A key, and all values that jobs of the project give it."""

    key: str
    values: tuple[str, ...] = ()


class ProjectTags(Told):
    """All tags of a project."""

    tags: tuple[TagValues, ...] = ()


class TaggedJob(Told):
    """A job that was found by its tags."""

    resource_id: str
    resource_name: str = ""
    workspace_id: str = ""
    tags: tuple[Tag, ...] = ()


class TaggedJobs(Told):
    """A page of jobs that were found by their tags; `total_count` is how many there are."""

    resources: tuple[TaggedJob, ...] = ()
    total_count: Count = None


class TaggedCount(Told):
    """How many jobs have the tags."""

    total_count: int
