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

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    create_model,
    model_validator,
)
from pydantic.fields import FieldInfo

from reconciler.core.body import create_body, one_spelling, with_identity
from reconciler.core.fields import job as declared
from reconciler.core.fields import rare
from reconciler.core.fields.field_types import Cloud, Mark, UpdateInPlace, type_of
from reconciler.core.fields.job import JobBody
from reconciler.core.observed import Listing, ObservedJob, Unreadable
from reconciler.errors import NotSupported, ServiceError, UnreadableAnswer
from reconciler.modelarts.observe import find_invalid_value, page_of
from reconciler.modelarts.operations import (
    Billing,
    Count,
    FlavorInfo,
    Lenient,
    Number,
    OperationGroup,
    Task,
    Texts,
)

# --- declared and reported


_Model = TypeVar("_Model", bound=Lenient)
_VARIANTS: dict[type[BaseModel], type[Lenient]] = {}
#: How a plain type is read, and its value when nothing was reported.
_PLAIN: dict[Any, tuple[Any, Any]] = {
    str: (str, ""),
    bool: (bool | None, None),
    int: (Count, None),
    float: (Number, None),
}


def as_declared(
    *models: type[BaseModel], without: Collection[str] = ()
) -> Callable[[type[_Model]], type[_Model]]:
    """Give a response model the fields of the declared ones, but those that it has itself.

    It is their variant from then on, wherever another declared model has one of them as a field.
    """

    def extended(own: type[_Model]) -> type[_Model]:
        fields: dict[str, Any] = {
            name: _lenient(type_of(field))
            for model in models
            for name, field in model.model_fields.items()
            if name not in own.model_fields and name not in without
        }
        made = create_model(
            own.__name__, __base__=own, __module__=own.__module__, __doc__=own.__doc__, **fields
        )
        _VARIANTS.update(dict.fromkeys(models, made))
        return made

    return extended


def variant_of(model: type[BaseModel]) -> type[Lenient]:
    if model not in _VARIANTS:
        own = type(model.__name__, (Lenient,), {"__module__": __name__, "__doc__": model.__doc__})
        as_declared(model)(own)
    return _VARIANTS[model]


def _lenient(annotation: Any) -> tuple[Any, Any]:
    kind = bare_type(annotation)
    if get_origin(kind) is list:
        item = bare_type(get_args(kind)[0])
        is_plain = item is str or get_origin(item) is dict
        return tuple[item if is_plain else variant_of(item), ...], ()  # type: ignore[misc]
    if get_origin(kind) is dict:
        is_text = bare_type(get_args(kind)[1]) is str
        return Texts if is_text else dict[str, Any], Field(default_factory=dict)
    return _PLAIN.get(kind) or (variant_of(kind) | None, None)


def bare_type(annotation: Any) -> Any:
    """The type without None, limits and validators; a closed list of words is text."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return bare_type(get_args(annotation)[0])
    if origin in (Union, UnionType):
        [kind] = [one for one in get_args(annotation) if one is not NoneType]
        return bare_type(kind)
    return str if origin is Literal else annotation


#: "30s", "30" and 30 are the same.
Seconds = Annotated[
    int | None, BeforeValidator(lambda v: v.strip().removesuffix("s") or None if isinstance(v, str) else v)
]


@as_declared(declared.Parameter, without={"sensitive"})  # which is never sent
class Parameter(Lenient):
    """One argument of the training script."""


@as_declared(rare.SearchParam)
class SearchParam(Lenient):
    # Some documents write it `discreate`.
    param_type: Annotated[str, BeforeValidator(lambda v: "discrete" if v == "discreate" else v)] = ""


@as_declared(rare.Dataset)
class Dataset(Lenient):
    """A data set; `obs_url` is where it lies."""

    obs_url: str = ""


@as_declared(declared.InputRemote, declared.OutputRemote)
class Remote(Lenient):
    """Where data lies: in object storage, or in a data set."""


@as_declared(declared.Output)
class Output(Lenient):
    """Data that the job writes; it is uploaded every `period` seconds."""

    mode: str = ""
    period: Seconds = None


class Label(Lenient):
    """A tag."""

    key: str = ""
    value: str = ""


@as_declared(declared.Engine, rare.TaskEngine)
class JobEngine(Lenient):
    v1_compatible: bool | None = None
    usage: str = ""
    support_groups: str = ""
    tags: tuple[Label, ...] = ()


@as_declared(declared.Algorithm)
class Algorithm(Lenient):
    """What the job runs."""

    parameters_customization: bool | None = None


class FlavorDetail(Lenient):
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


class PoolInfo(Lenient):
    """The dedicated pool; not documented, and seen in answers."""

    accelerator_num: Number = None
    pool_resource_flavor: Any = None


@as_declared(declared.Resource)
class Resource(Lenient):
    policy: str = ""
    flavor_name: str = ""
    pool_name: str = ""
    pool_info: PoolInfo | None = None
    flavor_detail: FlavorDetail | None = None
    main_container_allocated_resources: AllocatedResources | None = None


@as_declared(rare.NodeSelector)
class NodeSelector(Lenient):
    """Nodes on which a job may run, in the words of Kubernetes."""

    nodeSelectorTerms: tuple[dict[str, Any], ...] = ()  # noqa: N815


@as_declared(rare.PreferredAffinity)
class PreferredAffinity(Lenient):
    """What the placement should obey, in the words of Kubernetes."""

    node_affinity: tuple[dict[str, Any], ...] = ()


@as_declared(rare.AssetModel)
class AssetModel(Lenient):
    id: str = ""
    location: str = ""


@as_declared(declared.Spec)
class Spec(Lenient):
    is_hosted_log: bool | None = None


@as_declared(rare.TaskResource)
class TaskResource(Lenient):
    flavor_name: str = ""
    flavor_type: str = ""
    max_num: Count = None
    billing: Billing | None = None
    flavor_info: FlavorInfo | None = None
    attributes: Texts = Field(default_factory=dict)


#: What is declared beside the job's parts, and reported in its metadata.
_IN_METADATA = ("description", "annotations", "training_experiment_reference")


@as_declared(rare.ExperimentReference)
class ExperimentReference(Lenient):
    """The experiment that the job belongs to, and its number there."""

    serial_number: str = ""


class Metadata(Lenient):
    """What the job is called; times in milliseconds since 1970."""

    id: str = ""
    name: str = ""
    workspace_id: str = ""
    description: str = ""
    create_time: Count = None
    user_name: str = ""
    annotations: Texts = Field(default_factory=dict)
    training_experiment_reference: ExperimentReference | None = None
    ai_project: str = ""
    # Not documented, and seen in answers.
    uuid: str = ""
    update_time: Count = None
    tags: tuple[Label, ...] = ()


class TaskStatus(Lenient):
    task: str = ""
    exit_code: Count = None
    message: str = ""


class RecoverRecord(Lenient):
    """One attempt to recover from a fault; times in seconds since 1970."""

    recover_start_at: Count = None
    recover_end_at: Count = None
    recover: str = ""
    fault_scenario: str = ""
    reason: str = ""
    related_task: str = ""
    recover_result: str = ""


class RunningRecord(Lenient):
    """One run of a job; times in seconds since 1970."""

    start_at: Count = None
    end_at: Count = None
    xpu_start_at: Count = None
    start_type: str = ""
    end_reason: str = ""
    end_related_task: str = ""
    end_recover: str = ""
    end_recover_before_downgrade: str = ""
    recover_records: tuple[RecoverRecord, ...] = ()


class StatusResponse(Lenient):
    """Where the job is in its life; times and durations in milliseconds, 0 before the start.

    `node_count_metrics` are pairs of a time and the nodes from then on. `secondary_phase` may be anything.
    """

    phase: str = ""
    secondary_phase: str = ""
    duration: Count = None
    start_time: Count = None
    node_count_metrics: tuple[tuple[Count, ...], ...] = ()
    tasks: tuple[str, ...] = ()
    task_statuses: tuple[TaskStatus, ...] = ()
    running_records: tuple[RunningRecord, ...] = ()
    task_ips: tuple[Task, ...] = ()
    retention_time: Count = None


class TaskUrl(Lenient):
    task: str = ""
    url: str = ""


@as_declared(declared.Ssh)
class Ssh(Lenient):
    task_urls: tuple[TaskUrl, ...] = ()


class WebTool(Lenient):
    """A web page of the job; its token grants access."""

    url: str = ""
    token: str = Field("", repr=False)


@as_declared(declared.Endpoints)
class Endpoints(Lenient):
    """Access to the running job."""

    jupyter_lab: WebTool | None = None
    tensorboard: WebTool | None = None
    mindstudio_insight: WebTool | None = None


class EnvironmentVariable(Lenient):
    label: str = ""
    des: str = ""
    env_name: str = ""
    env_type: str = ""
    value: str = ""
    modifiable: bool | None = None
    displayable: bool | None = None
    used_steps: tuple[str, ...] = ()


@as_declared(rare.TaskEnvironment)
class TaskEnvironment(Lenient):
    envs: tuple[EnvironmentVariable, ...] = ()


class CheckpointConfig(Lenient):
    checkpoint_id: str = ""
    save_checkpoints_max: Count = None
    skipped_steps: Count = None
    restore_training: Count = None


@as_declared(rare.FineTuneConfig)
class FineTuneConfig(Lenient):
    checkpoint_config: CheckpointConfig | None = None


@as_declared(declared.JobBody, without=_IN_METADATA)
class ReportedJob(Lenient):
    """All that the service reports of a job: in details, terminate, and the items of a search."""

    metadata: Metadata = Field(default_factory=Metadata)
    status: StatusResponse = Field(default_factory=StatusResponse)
    algorithm: Algorithm | None = None
    spec: Spec | None = None

    @classmethod
    def of(cls, job: ObservedJob) -> Self:
        """Read the whole answer about a job."""
        return cls.model_validate(job.body)

    @model_validator(mode="before")
    @classmethod
    def _in_one_spelling(cls, value: Any) -> Any:
        return one_spelling(value) if isinstance(value, Mapping) else value


class JobPage(Lenient):
    """A page of the search: `items`, and what the service made of the question.

    `total` and `count` are the service's; neither says whether there is another page.
    """

    total: Count = None
    count: Count = None
    limit: Count = None
    offset: Count = None
    sort_by: str = ""
    order: str = ""
    group_by: str = ""
    workspace_id: str = ""
    ai_project: str = ""
    train_type: str = ""
    items: tuple[ReportedJob, ...] = ()


# --- requests


#: So many values, tags and addresses one search takes at most.
AtMostTen = Field(max_length=10)


class RequestModel(BaseModel):
    """A part of a request: an unknown name is a typo."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, defer_build=True)

    def body(self) -> dict[str, Any]:
        """The JSON object that is sent."""
        return self.model_dump(mode="json", exclude_defaults=True)


_Request = TypeVar("_Request", bound=RequestModel)


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


def _with_mutable_fields(own: type[_Request]) -> type[_Request]:
    """Give a request model the declared fields that can be changed in place; all are optional."""
    fields = {
        name: update
        for name, field in JobBody.model_fields.items()
        if name not in own.model_fields and (update := _update_of(field))
    }
    return create_model(own.__name__, __base__=own, __module__=own.__module__, __doc__=own.__doc__, **fields)


def _update_of(field: FieldInfo) -> Any:
    """The field of an update, None for a field that cannot be changed."""
    kind = bare_type(type_of(field))
    is_mutable = any(isinstance(mark, UpdateInPlace) for mark in field.metadata)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        fields: dict[str, Any] = {
            name: _optional(member) if is_mutable else _update_of(member)
            for name, member in kind.model_fields.items()
        }
        fields = {name: update for name, update in fields.items() if update}
        if not fields:
            return None
        made = create_model(f"{kind.__name__}Update", __base__=RequestModel, __doc__=kind.__doc__, **fields)
        return made | None, None
    return _optional(field) if is_mutable else None


def _optional(field: FieldInfo) -> tuple[Any, None]:
    kind = bare_type(type_of(field))
    if get_origin(kind) is list:
        kind = tuple[bare_type(get_args(kind)[0]), ...]  # type: ignore[misc]
    limits = (limit for limit in field.metadata if not isinstance(limit, UpdateInPlace | Mark))
    return Annotated[(kind | None, Field(), *limits)], None


@_with_mutable_fields
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
    """The jobs of one workspace."""

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
        """Return all that the service reports of a job.

        Raises:
            NotFound: there is none with that id.
        """
        job = self._workspace.details(job_id)
        if invalid := find_invalid_value(dict(job.body)):
            raise UnreadableAnswer(f"the job contains {invalid}")
        return ReportedJob.of(job)

    def update(self, job_id: str, changes: UpdateBody) -> None:
        """Change fields of a job; on Open Telekom Cloud its description only.

        Raises:
            NotFound: there is no such job.
        """
        body = changes.body()
        if self._workspace.cloud is Cloud.OTC and body.keys() - {"description"}:
            raise NotSupported("Open Telekom Cloud can change only the description of a job")
        self._workspace.update(job_id, body)

    def terminate(self, job_id: str) -> ReportedJob:
        """Ask for the end of a job; return it, Terminating.

        Raises:
            WrongPhase: it has ended, or its phase just changed: read it again.
            NotFound: there is no such job.
        """
        answer = self._workspace.act(job_id, ActionBody(action_type="terminate").body())
        job = answer.json()
        if not isinstance(job, dict):
            raise answer.unreadable("the response is not a job")
        return ReportedJob.model_validate(job)

    def delete(self, job_id: str) -> None:
        """Delete a job's record. It is gone some time later, when `details` raises `NotFound`.

        Raises:
            NotFound: there is no such job.
        """
        self._workspace.delete(job_id)
