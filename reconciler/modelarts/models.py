"""How an object of the service is read: null is absent, numbers may be text and text numbers.

Unknown fields are kept in `model_extra`. `model_dump(mode="json", exclude_unset=True)` gives back what was
told: unknown fields as they were; documented ones under the name, and in the form, of their place in the
model, whichever of two spellings they came in.

Source: docs/modelarts.md, "Contradictions".
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)


@cache
def _fields_by_spelling(model: type[BaseModel]) -> Mapping[str, str]:
    """The names of a model's fields, by each name that the service has for them."""
    return {
        str(spelling): name
        for name, field in model.model_fields.items()
        for spelling in (
            field.validation_alias.choices if isinstance(field.validation_alias, AliasChoices) else [name]
        )
    }


class ResponseModel(BaseModel):
    """An object of the service."""

    model_config = ConfigDict(
        extra="allow",
        frozen=True,
        coerce_numbers_to_str=True,
        loc_by_alias=False,
        protected_namespaces=(),
        defer_build=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            known = _fields_by_spelling(cls)
            return {key: member for key, member in value.items() if member is not None or key not in known}
        return value


class Lenient(ResponseModel):
    """An object in which a member of the wrong type hides no other: it is kept beside the unknown ones."""

    if TYPE_CHECKING:
        # Unknown fields are attributes, and so are those that are taken from a declared model.
        def __getattr__(self, name: str) -> Any: ...

    @model_validator(mode="wrap")
    @classmethod
    def _mistyped_is_kept_aside(cls, value: Any, read: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return read(value)
        except ValidationError as error:
            wrong = {place["loc"][0] for place in error.errors() if place["loc"]}
            if not isinstance(value, Mapping) or not wrong:
                raise
        known = _fields_by_spelling(cls)
        aside = {key: member for key, member in value.items() if known.get(key) in wrong}
        found = read({key: member for key, member in value.items() if key not in aside})
        assert found.model_extra is not None  # extra="allow"
        found.model_extra.update(aside)
        return found


def _number_or_none(value: Any) -> Any:
    """An empty text is no number, and no mistake either."""
    return None if isinstance(value, str) and not value.strip() else value


def _one_map(value: Any) -> Any:
    """The documents show some maps as a list of maps; a key without a value has none."""
    maps = value if isinstance(value, list) else [value]
    if not all(isinstance(one, Mapping) for one in maps):
        return value
    return {key: member for one in maps for key, member in one.items() if member is not None}


Number = Annotated[int | float | None, BeforeValidator(_number_or_none)]
Count = Annotated[int | None, BeforeValidator(_number_or_none)]
Texts = Annotated[dict[str, str], BeforeValidator(_one_map)]


# --- tags


class Tag(ResponseModel):
    """A tag of a job or an engine."""

    key: str
    value: str = ""


class TagList(ResponseModel):
    tags: tuple[Tag, ...] = ()


class TagValues(ResponseModel):
    """A key, and all values that jobs of the project give it."""

    key: str
    values: tuple[str, ...] = ()


class ProjectTags(ResponseModel):
    tags: tuple[TagValues, ...] = ()


class TaggedJob(ResponseModel):
    """A job that was found by its tags."""

    resource_id: str
    resource_name: str = ""
    workspace_id: str = ""
    tags: tuple[Tag, ...] = ()
    resource_detail: Any = None


class TaggedJobs(ResponseModel):
    """A page of jobs that were found by their tags; `total_count` is how many there are."""

    resources: tuple[TaggedJob, ...] = ()
    total_count: Count = None


class TaggedCount(ResponseModel):
    total_count: int


# --- the catalog


class Quota(ResponseModel):
    """How many of something there may be, and are."""

    resource: str = ""
    quota: Count = None
    used: Count = None


class Quotas(ResponseModel):
    quotas: tuple[Quota, ...] = ()


class Accelerators(Lenient):
    """The cards of a node."""

    unit_num: Count = None
    # Some tables of the service's documents have the other spelling.
    product_name: str = Field("", validation_alias=AliasChoices("product_name", "product_nume"))
    memory: str = ""


class Cpu(Lenient):
    arch: str = ""
    core_num: Count = None


class Capacity(Lenient):
    size: Number = None
    unit: str = ""


class FlavorInfo(Lenient):
    """What a node of a flavor has; at most `max_num` of them."""

    max_num: Count = None
    cpu: Cpu | None = None
    gpu: Accelerators | None = None
    npu: Accelerators | None = None
    memory: Capacity | None = None
    disk: Capacity | None = None


class Billing(Lenient):
    code: str = ""
    unit_num: Count = None


class Flavor(Lenient):
    """A kind of node."""

    flavor_id: str = ""
    flavor_name: str = ""
    flavor_type: str = ""
    pool_id: str = ""
    max_num: Count = None
    support_engines: str = ""
    support_groups: str = ""
    billing: Billing | None = None
    flavor_info: FlavorInfo | None = None
    attributes: Texts = Field(default_factory=dict)


class Flavors(ResponseModel):
    total_count: Count = None
    flavors: tuple[Flavor, ...] = ()


class ImageInfo(ResponseModel):
    cpu_image_url: str = ""
    gpu_image_url: str = ""
    image_version: str = ""


class Engine(ResponseModel):
    """A preset framework in one version."""

    engine_id: str = ""
    engine_name: str = ""
    engine_version: str = ""
    v1_compatible: bool | None = None
    run_user: str = ""
    image_info: ImageInfo | None = None
    tags: tuple[Tag, ...] = ()


class Engines(ResponseModel):
    total: Count = None
    items: tuple[Engine, ...] = ()


# --- what a job reports


class Event(ResponseModel):
    """Something that happened to a job. `time` is text, as the service writes it."""

    time: str = ""
    level: str = ""
    message: str = ""
    source: str = ""


class Events(ResponseModel):
    """A page of events; `total` is how many there are."""

    total: Count = None
    limit: Count = None
    offset: Count = None
    order: str = ""
    start_time: str = ""
    end_time: str = ""
    events: tuple[Event, ...] = ()


class Task(Lenient):
    """A task of a job, and where it ran."""

    task: str = ""
    ip: str = ""
    host_ip: str = ""
    schedule_count: Count = None


class SubStage(ResponseModel):
    name: str = ""
    en_message: str = ""
    zh_message: str = ""
    create_time: str = ""


class Stage(ResponseModel):
    """A stage of a run: scheduling, preparing, running or end."""

    job_id: str = ""
    name: str = ""
    en_message: str = ""
    zh_message: str = ""
    start_time: str = ""
    end_time: str = ""
    stage_order: Count = None
    sub_stages: tuple[SubStage, ...] = ()


class RunResponse(ResponseModel):
    """One run of a job; a job that was restarted has several."""

    record_order: Count = None
    stages: tuple[Stage, ...] = ()


class Stages(ResponseModel):
    """The runs of a job."""

    total_count: Count = None
    running_records: tuple[RunResponse, ...] = ()


class LogPreview(ResponseModel):
    """The end of a log, at most 5 MB; sizes in bytes."""

    # It was named `context` before March 2022.
    content: str = Field("", validation_alias=AliasChoices("content", "context"))
    current_size: Count = None
    full_size: Count = None


class LogUrl(ResponseModel):
    """A link to a whole log, valid for five minutes; it grants access without credentials."""

    obs_url: str


class LogLines(ResponseModel):
    """Some lines of a log."""

    start_line: str = ""
    end_line: str = ""
    lines: Count = None
    content: str = ""


class Metric(ResponseModel):
    """One value per minute, in percent; None where there is none (the service says -1)."""

    metric: str = ""
    value: tuple[Number, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _minus_one_is_none(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and isinstance(value.get("value"), list):
            return {**value, "value": [None if v in (-1, "-1") else v for v in value["value"]]}
        return value


class Metrics(ResponseModel):
    metrics: tuple[Metric, ...] = ()
