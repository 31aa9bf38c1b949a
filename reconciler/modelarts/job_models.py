"""Jobs as the service reports them, requests about jobs, and the calls with both.

A plan reads a thousand jobs and looks at a few fields of each: it does without these models, which take
60 ms to make.

A job is reported as it is declared: the lenient variant of a declared model has its fields, so that a field
which is added to the models of `core` is read from answers as well. Text, numbers and the words of closed
lists are read as the service writes them; what is absent is "", None, () or {}. A field that the documents
spell in two ways has one place, that of the create body. A member of the wrong type is kept aside, in the
`model_extra` of its object: it hides no other. The answer itself, to the letter, is `ObservedJob.body`.

Of a request `body()` is what is sent: what was left out is left to the service.

Source: docs/modelarts.md, "Calls", "Search", "Updates", "Responses", "Phases" and "Contradictions"; the
vendor's SDK, `JobResponse`, `SpecResponse` and `JobAlgorithmResponse`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    create_model,
    model_validator,
)

from reconciler.core.body import create_body, one_spelling, with_identity
from reconciler.core.fields import job as declared
from reconciler.core.fields import rare
from reconciler.core.fields.field_types import Cloud, Mark, UpdateInPlace, type_of
from reconciler.core.fields.job import JobBody
from reconciler.core.observed import Listing, ObservedJob, Unreadable
from reconciler.errors import NotSupported, ServiceError, UnreadableAnswer
from reconciler.modelarts.observe import find_invalid_value, page_of
from reconciler.modelarts.operations import (
    KINDS,
    MODELS,
    Count,
    Lenient,
    OperationGroup,
    Texts,
    fields_of,
    make_models,
    with_fields,
)

# --- declared and reported

KINDS |= {
    # "30s", "30" and 30 are the same.
    "seconds": (
        Annotated[
            int | None,
            BeforeValidator(lambda v: v.strip().removesuffix("s") or None if isinstance(v, str) else v),
        ],
        None,
    ),
    # Some documents write it `discreate`.
    "param_type": (Annotated[str, BeforeValidator(lambda v: "discrete" if v == "discreate" else v)], ""),
    "objects": (tuple[dict[str, Any], ...], ()),
    "pairs": (tuple[tuple[Count, ...], ...], ()),
    "secret": (str, Field("", repr=False)),
}

#: Objects that are reported only. Times of records are in seconds since 1970, memory is in GB; `PoolInfo` is
#: not documented, and seen in answers; the token of a `WebTool`, a web page of the job, grants access.
_OBJECTS = {
    "Label": "key value",
    "FlavorDetail": "flavor_type billing:Billing flavor_info:FlavorInfo attributes:texts",
    "AllocatedResources": (
        "cpu_arch cpu_core_num:number mem_size:number accelerator_num:number accelerator_type"
    ),
    "PoolInfo": "accelerator_num:number pool_resource_flavor:any",
    "TaskStatus": "task exit_code:int message",
    "RecoverRecord": (
        "recover_start_at:int recover_end_at:int recover fault_scenario reason related_task recover_result"
    ),
    "RunningRecord": (
        "start_at:int end_at:int xpu_start_at:int start_type end_reason end_related_task end_recover "
        "end_recover_before_downgrade recover_records:RecoverRecord*"
    ),
    "TaskUrl": "task url",
    "WebTool": "url token:secret",
    "EnvironmentVariable": (
        "label des env_name env_type value modifiable:bool displayable:bool used_steps:*"
    ),
    "CheckpointConfig": "checkpoint_id save_checkpoints_max:int skipped_steps:int restore_training:int",
}
make_models(Lenient, _OBJECTS)

#: What an answer adds to the fields of declared models, or has in another form.
_ADDED = {
    "SearchParam": "param_type:param_type",
    "Dataset": "obs_url",
    "Output": "mode period:seconds",
    "Engine": "v1_compatible:bool usage support_groups tags:Label*",
    "Algorithm": "parameters_customization:bool",
    "Resource": (
        "policy flavor_name pool_name pool_info:PoolInfo flavor_detail:FlavorDetail "
        "main_container_allocated_resources:AllocatedResources"
    ),
    "NodeSelector": "nodeSelectorTerms:objects",
    "PreferredAffinity": "node_affinity:objects",
    "AssetModel": "id location",
    "Spec": "is_hosted_log:bool",
    "TaskResource": (
        "flavor_name flavor_type max_num:int billing:Billing flavor_info:FlavorInfo attributes:texts"
    ),
    "ExperimentReference": "serial_number",
    "Ssh": "task_urls:TaskUrl*",
    "Endpoints": "jupyter_lab:WebTool tensorboard:WebTool mindstudio_insight:WebTool",
    "TaskEnvironment": "envs:EnvironmentVariable*",
    "FineTuneConfig": "checkpoint_config:CheckpointConfig",
}
#: Declared models whose answers are alike: each has the fields of the others.
_ALIKE = ((declared.InputRemote, declared.OutputRemote), (declared.Engine, rare.TaskEngine))
#: What is declared beside the job's parts, and reported in its metadata.
_IN_METADATA = ("description", "annotations", "training_experiment_reference")
#: How a plain type is read, and its value when nothing was reported.
_PLAIN = {str: KINDS[""], bool: KINDS["bool"], int: KINDS["int"], float: KINDS["number"]}


@cache
def variant_of(model: type[BaseModel]) -> type[Lenient]:
    """The model that reads from an answer what is declared by another one."""
    alike = next((models for models in _ALIKE if model in models), (model,))
    fields = _reported(*alike) | fields_of(_ADDED.get(alike[0].__name__, ""))
    return create_model(alike[0].__name__, __base__=Lenient, __module__=__name__, **fields)


def _reported(*models: type[BaseModel]) -> dict[str, Any]:
    return {
        name: _lenient(type_of(field))
        for model in models
        for name, field in model.model_fields.items()
        if (model, name) != (declared.Parameter, "sensitive")  # which is never sent
    }


def _lenient(annotation: Any) -> tuple[Any, Any]:
    kind = bare_type(annotation)
    if get_origin(kind) is list:
        item = bare_type(get_args(kind)[0])
        is_plain = item is str or get_origin(item) is dict
        return tuple[item if is_plain else variant_of(item), ...], ()  # type: ignore[misc]
    if get_origin(kind) is dict:
        is_text = bare_type(get_args(kind)[1]) is str
        return Texts if is_text else dict[str, Any], Field(default_factory=dict)
    return _PLAIN[kind] if kind in _PLAIN else (variant_of(kind) | None, None)


def bare_type(annotation: Any) -> Any:
    """The type without None, limits and validators; a closed list of words is text."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return bare_type(get_args(annotation)[0])
    if origin in (Union, UnionType):
        [kind] = [one for one in get_args(annotation) if one is not NoneType]
        return bare_type(kind)
    return str if origin is Literal else annotation


MODELS["ExperimentReference"] = variant_of(rare.ExperimentReference)


# `ai_project`, `uuid`, `update_time` and `tags` are not documented, and seen in answers.
@with_fields("training_experiment_reference:ExperimentReference ai_project uuid update_time:int tags:Label*")
class Metadata(Lenient):
    """What the job is called; times in milliseconds since 1970."""

    id: str = ""
    name: str = ""
    workspace_id: str = ""
    description: str = ""
    create_time: Count = None
    user_name: str = ""
    annotations: Texts = Field(default_factory=dict)


@with_fields(
    "node_count_metrics:pairs task_statuses:TaskStatus* running_records:RunningRecord* task_ips:Task* "
    "retention_time:int"
)
class StatusResponse(Lenient):
    """Where the job is in its life; times and durations in milliseconds, 0 before the start.

    `node_count_metrics` are pairs of a time and the nodes from then on. `secondary_phase` may be anything.
    """

    phase: str = ""
    secondary_phase: str = ""
    duration: Count = None
    start_time: Count = None
    tasks: tuple[str, ...] = ()


@with_fields({name: kind for name, kind in _reported(JobBody).items() if name not in _IN_METADATA})
class ReportedJob(Lenient):
    """All that the service reports of a job: in details, terminate, and the items of a search."""

    metadata: Metadata = Field(default_factory=Metadata)
    status: StatusResponse = Field(default_factory=StatusResponse)

    @classmethod
    def of(cls, job: ObservedJob) -> Self:
        return cls.model_validate(job.body)

    @model_validator(mode="before")
    @classmethod
    def _in_one_spelling(cls, value: Any) -> Any:
        return one_spelling(value) if isinstance(value, Mapping) else value


@with_fields("limit:int offset:int sort_by order group_by workspace_id ai_project train_type")
class JobPage(Lenient):
    """A page of the search: `items`, and what the service made of the question.

    `total` and `count` are the service's; neither says whether there is another page.
    """

    total: Count = None
    count: Count = None
    items: tuple[ReportedJob, ...] = ()


# --- requests


#: So many values, tags and addresses one search takes at most.
AtMostTen = Field(max_length=10)


class RequestModel(BaseModel):
    """A part of a request: an unknown name is a typo."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, defer_build=True)

    def body(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude_defaults=True)


class Filter(RequestModel):
    """One condition of a search. Keys are the service's: name, create_time, phase, kind, user_id…

    `between` takes two times in RFC 3339, at most 31 days apart.
    """

    key: str
    operator: Literal["between", "like", "in", "not"]
    value: Annotated[tuple[str, ...], AtMostTen]


class TagFilter(RequestModel):
    """A tag that a job must have, with one of the values; no value means any (Huawei only)."""

    key: str
    values: Annotated[tuple[str, ...], AtMostTen] = ()


class Search(RequestModel):
    """Which jobs, in which order; all conditions must hold.

    With tags or addresses the service looks at 31 days only: the last ones, or those that a filter of
    create_time names. `unified_jobs` is known from the vendor's Terraform provider alone. Open Telekom Cloud
    knows neither tags and addresses nor `train_type` and `unified_jobs`.
    """

    filters: tuple[Filter, ...] = ()
    sort_by: str | None = None
    order: Literal["asc", "desc"] | None = None
    group_by: str | None = None
    train_type: Literal["job", "ftjob"] | None = None
    unified_jobs: bool | None = None
    tags: Annotated[tuple[TagFilter, ...], AtMostTen] = ()
    host_ips: Annotated[tuple[str, ...], AtMostTen] = ()


class SearchBody(Search):
    """The whole body of a search: one page of it. `offset` counts pages, the first is 0."""

    offset: Annotated[int | None, Field(ge=0)] = None
    limit: Annotated[int | None, Field(ge=1, le=50)] = None
    workspace_id: str | None = None


class ActionBody(RequestModel):
    """What is to be done with a job. The service knows `restart` too, and documents nothing of it."""

    action_type: Literal["terminate"]


class MetadataUpdate(RequestModel):
    """Switches of a running job. `annotation` is singular here, and jupyter-lab/enable its only key."""

    annotation: dict[str, str] | None = None


def _update_of(model: type[BaseModel], *, whole: bool = False) -> dict[str, Any]:
    """The fields of an update: all that is declared and can be changed in place; each is optional."""
    fields: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        kind = bare_type(type_of(field))
        is_mutable = whole or any(isinstance(mark, UpdateInPlace) for mark in field.metadata)
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            if below := _update_of(kind, whole=is_mutable):
                made = create_model(
                    f"{kind.__name__}Update", __base__=RequestModel, __doc__=kind.__doc__, **below
                )
                fields[name] = made | None, None
        elif is_mutable:
            if get_origin(kind) is list:
                kind = tuple[bare_type(get_args(kind)[0]), ...]  # type: ignore[misc]
            limits = (limit for limit in field.metadata if not isinstance(limit, UpdateInPlace | Mark))
            fields[name] = Annotated[(kind | None, Field(), *limits)], None
    return fields


@with_fields(_update_of(JobBody))
class UpdateBody(RequestModel):
    """What is to be changed on a job; an empty description clears it. OTC knows `description` alone.

    Beside these fields it has all that can be declared and changed in place: `spec` and `endpoints`, as
    mappings. Source of that list: the marks in `core`.
    """

    description: Annotated[str | None, Field(max_length=256)] = None
    metadata: MetadataUpdate | None = None

    if TYPE_CHECKING:

        def __init__(self, **fields: Any) -> None: ...


def unknown_fields(job: ObservedJob) -> tuple[str, ...]:
    """Return their paths, each once, the status aside: `spec.brand_new`, `tasks.brand_new`.

    An answer that cannot be read as a job has none.
    """
    try:
        found = ReportedJob.of(job).model_copy(update={"status": None})
    except ValidationError:
        return ()
    return tuple(dict.fromkeys(_below(found, "")))


def _below(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, BaseModel):
        yield from (f"{path}{name}" for name in value.model_extra or ())
        for name in type(value).model_fields:
            yield from _below(getattr(value, name), f"{path}{name}.")
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _below(item, path)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _below(item, path)


# --- the calls

_EVERY_JOB = Search()


class Found(tuple[ReportedJob, ...]):
    """The jobs that a search found; `unreadable` are those that lack an id, a name or a phase."""

    unreadable: tuple[Unreadable, ...]

    def __new__(cls, jobs: Iterable[ReportedJob] = (), unreadable: Iterable[Unreadable] = ()) -> Self:
        found = super().__new__(cls, jobs)
        found.unreadable = tuple(unreadable)
        return found

    @classmethod
    def of(cls, listing: Listing, limit: int | None, read: Callable[[ObservedJob], ReportedJob]) -> Self:
        """Read the jobs of a listing, `limit` at most; one with an invalid value is unreadable.

        Raises:
            ServiceError: the list could not be read to its end.
        """
        if isinstance(listing.problem, ServiceError):
            raise listing.problem
        if listing.problem:
            raise UnreadableAnswer(listing.problem)
        jobs, unreadable = [], [*listing.unreadable]
        for job in listing.jobs[:limit]:
            if invalid := find_invalid_value(dict(job.body)):
                unreadable.append(Unreadable(f"it contains {invalid}", job.name, job.id))
            else:
                jobs.append(read(job))
        return cls(jobs, unreadable)


class Jobs(OperationGroup):
    """The jobs of one workspace. A call about a job that does not exist raises `NotFound`."""

    def create(self, name: str, job: JobBody) -> ReportedJob:
        """Create a job, described as below a key of a manifest, in the target's workspace.

        It is sent once, never repeated, and the job belongs to no stack.

        Raises:
            NameTaken: a job of that name exists, seen or not.
            Unanswered, UnreadableAnswer, ServerError: whether there is a job now is not known.
        """
        body = with_identity(
            create_body(job.model_dump(exclude_unset=True)),
            name=name,
            workspace_id=self._workspace.workspace_id,
            description=job.description or "",
        )
        return ReportedJob.of(self._workspace.create(body))

    def search(self, search: Search = _EVERY_JOB, limit: int | None = None) -> Found:
        """Return the jobs that match, the oldest first unless `search` says otherwise; pages are turned here.

        With a `limit` no page is read beyond the one that reaches it. Entries that cannot be read hide no
        others: they are in the answer's `unreadable`.

        Raises:
            UnreadableAnswer: the list moved.
            NotSupported: the cloud does not know a field of the search; nothing was sent.
        """
        fields = search.model_dump(mode="json", exclude_defaults=True, include=set(Search.model_fields))
        listing = self._workspace.search(fields.pop("filters", ()), more=fields, limit=limit)
        return Found.of(listing, limit, ReportedJob.of)

    def page(self, search: SearchBody) -> JobPage:
        """Return one page, as the service cuts it; of the target's workspace, if none is named.

        Raises:
            UnreadableAnswer: it is not a list of jobs.
        """
        body = {"workspace_id": self._workspace.workspace_id, **search.body()}
        answer = self._workspace.ask_for_page(body)
        content: Any = answer.json()
        page = page_of(content)
        if isinstance(page, str):
            raise answer.unreadable(page)
        if not all(isinstance(item, dict) for item in page.items):
            raise answer.unreadable("a list entry is not an object")
        if invalid := next(filter(None, map(find_invalid_value, page.items)), None):
            raise answer.unreadable(f"a list entry contains {invalid}")
        return JobPage.model_validate(content)

    def details(self, job_id: str) -> ReportedJob:
        """Return all that the service reports of a job."""
        job = self._workspace.details(job_id)
        if invalid := find_invalid_value(dict(job.body)):
            raise UnreadableAnswer(f"the job contains {invalid}")
        return ReportedJob.of(job)

    def update(self, job_id: str, changes: UpdateBody) -> None:
        """Change fields of a job; on Open Telekom Cloud its description only."""
        body = changes.body()
        if self._workspace.cloud is Cloud.OTC and body.keys() - {"description"}:
            raise NotSupported("Open Telekom Cloud can change only the description of a job")
        self._workspace.update(job_id, body)

    def terminate(self, job_id: str) -> ReportedJob:
        """Ask for the end of a job; return it, Terminating.

        Raises:
            WrongPhase: it has ended, or its phase just changed: read it again.
        """
        answer = self._workspace.act(job_id, ActionBody(action_type="terminate").body())
        job = answer.json()
        if not isinstance(job, dict):
            raise answer.unreadable("the response is not a job")
        return ReportedJob.model_validate(job)

    def delete(self, job_id: str) -> None:
        """Delete a job's record. It is gone some time later, when `details` raises `NotFound`."""
        self._workspace.delete(job_id)
