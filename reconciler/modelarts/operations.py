"""The service's further calls in groups, with the models of their answers: logs, tags and the catalog.

What a cloud does not offer is refused here, unsent.

Null is absent, numbers may be text and text numbers. Unknown fields are kept in `model_extra`, and
`model_dump(mode="json", exclude_unset=True)` gives back what was received: unknown fields as they were;
documented ones under the name, and in the form, of their place in the model.

Source: docs/modelarts.md, "Calls", "Search", "Updates" and "Contradictions".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Self, TypedDict, TypeVar, Unpack, cast
from urllib.parse import quote

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    TypeAdapter,
    ValidationError,
    create_model,
    model_validator,
)

from reconciler.core.catalog import EngineOffer, FlavorOffer, Offered, RecordQuota
from reconciler.core.fields.field_types import Cloud
from reconciler.errors import NotFound, NotSupported, Rejected
from reconciler.modelarts.clock import RetryPolicy
from reconciler.modelarts.content import MemoryBudget
from reconciler.modelarts.http import ServiceResponse
from reconciler.modelarts.workspace import Workspace


@cache
def _fields_by_spelling(model: type[BaseModel]) -> Mapping[str, str]:
    return {
        str(spelling): name
        for name, field in model.model_fields.items()
        for spelling in (
            field.validation_alias.choices if isinstance(field.validation_alias, AliasChoices) else [name]
        )
    }


class ResponseModel(BaseModel):
    if TYPE_CHECKING:
        # Unknown fields are attributes, and so are those of tables and of declared models.
        def __getattr__(self, name: str) -> Any: ...

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


# --- models as tables

#: Types of fields as a table writes them, each with its value when nothing was reported.
KINDS: dict[str, tuple[Any, Any]] = {
    "": (str, ""),
    "*": (tuple[str, ...], ()),
    "int": (Count, None),
    "number": (Number, None),
    "bool": (bool | None, None),
    "texts": (Texts, Field(default_factory=dict)),
    "any": (Any, None),
    "needed": (str, ...),
    # Some tables of the service's documents have the other spelling.
    "product": (str, Field("", validation_alias=AliasChoices("product_name", "product_nume"))),
}
#: The models of other types, by name.
MODELS: dict[str, Any] = {}
_Model = TypeVar("_Model", bound=BaseModel)


def fields_of(table: str) -> dict[str, Any]:
    """Read a table of fields: `key size:number tags:Label*` is a text, a number and a list of models."""
    fields: dict[str, Any] = {}
    for name, _, kind in (entry.partition(":") for entry in table.split()):
        model: Any = MODELS.get(kind.rstrip("*"))
        if model is None:
            fields[name] = KINDS[kind]
        else:
            fields[name] = (tuple[(model, ...)], ()) if kind.endswith("*") else (model | None, None)
    return fields


def make_models(base: type[ResponseModel], tables: Mapping[str, str]) -> None:
    """Make models, each of which may have those before it as the type of a field."""
    for name, table in tables.items():
        MODELS[name] = create_model(name, __base__=base, __module__=base.__module__, **fields_of(table))


def with_fields(fields: str | Mapping[str, Any] = "") -> Callable[[type[_Model]], type[_Model]]:
    """Give a model more fields than its class shows, those of a table or as they are."""

    def extended(own: type[_Model]) -> type[_Model]:
        given = fields_of(fields) if isinstance(fields, str) else fields
        more: dict[str, Any] = {name: kind for name, kind in given.items() if name not in own.model_fields}
        made = create_model(
            own.__name__, __base__=own, __module__=own.__module__, __doc__=own.__doc__, **more
        )
        MODELS[own.__name__] = made
        return made

    return extended


make_models(
    Lenient,
    {
        "Accelerators": "unit_num:int product_name:product memory",
        "Cpu": "arch core_num:int",
        "Capacity": "size:number unit",
        # What a node of a flavor has; at most `max_num` of them.
        "FlavorInfo": "max_num:int cpu:Cpu gpu:Accelerators npu:Accelerators memory:Capacity disk:Capacity",
        "Billing": "code unit_num:int",
    },
)


@with_fields()
class Task(Lenient):
    """A task of a job, and where it ran."""

    task: str = ""
    ip: str = ""
    host_ip: str = ""
    schedule_count: Count = None


# --- calls in groups

_T = TypeVar("_T")


def parsed(shape: type[_T] | str, answer: ServiceResponse) -> _T:
    """Return an answer as a value of `shape`, a type or the name of a model.

    Raises:
        UnreadableAnswer: it is not one.
    """
    kind: type[_T] = MODELS[shape] if isinstance(shape, str) else shape
    try:
        return TypeAdapter(kind).validate_python(answer.json())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise answer.unreadable(f"{where or 'the answer'}: {first['msg']}") from None


class OperationGroup:
    """Some calls of one workspace; a question is not asked again later than `_retry_for_s`."""

    _retry_for_s = math.inf

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._root = f"/v2/{workspace.project_id}"

    def _get(
        self, path: str, query: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
    ) -> ServiceResponse:
        return self._workspace.session.call(
            "GET", path, query=query, headers=headers, repeat=RetryPolicy.SAFE, retry_for_s=self._retry_for_s
        )

    def _only_on_huawei(self, what: str) -> None:
        if self._workspace.cloud is Cloud.OTC:
            raise NotSupported(f"Open Telekom Cloud does not support {what}")


# --- what jobs report

#: Codes that say that there is nothing yet.
_NO_LOG_YET = frozenset({"ModelArts.2776", "ModelArts.2777", "ModelArts.2818"})


class Event(ResponseModel):
    """Something that happened to a job. `time` is text, as the service writes it."""

    time: str = ""
    level: str = ""
    message: str = ""
    source: str = ""


@with_fields("limit:int offset:int order start_time end_time")
class Events(ResponseModel):
    """A page of events; `total` is how many there are."""

    total: Count = None
    events: tuple[Event, ...] = ()


make_models(
    ResponseModel,
    {
        "SubStage": "name en_message zh_message create_time",
        # Of a run: scheduling, preparing, running or end.
        "Stage": "job_id name en_message zh_message start_time end_time stage_order:int sub_stages:SubStage*",
        # A job that was restarted has several runs.
        "RunResponse": "record_order:int stages:Stage*",
    },
)


@with_fields("running_records:RunResponse*")
class Stages(ResponseModel):
    """The runs of a job."""

    total_count: Count = None


class LogPreview(ResponseModel):
    """The end of a log, at most 5 MB; sizes in bytes."""

    # It was named `context` before March 2022.
    content: str = Field("", validation_alias=AliasChoices("content", "context"))
    current_size: Count = None
    full_size: Count = None


@with_fields("start_line end_line lines:int")
class LogLines(ResponseModel):
    """Some lines of a log."""

    content: str = ""


@with_fields()
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


# The link to a whole log is valid for five minutes, and grants access without credentials.
make_models(ResponseModel, {"Metrics": "metrics:Metric*", "LogUrl": "obs_url:needed"})


class EventQuery(TypedDict, total=False):
    """Which events of a job are asked for. `limit` is 1 to 100 (50), `level` Info, Error or Warning.

    `start_time` and `end_time` go together, in RFC 3339. `source` is K8S, Job or Task.
    """

    offset: int | None
    limit: int | None
    order: str | None
    level: str | None
    pattern: str | None
    start_time: str | None
    end_time: str | None
    source: str | None


class Logs(OperationGroup):
    """What the jobs of one workspace report. A task is e.g. `worker-0`."""

    def events(self, job_id: str, **query: Unpack[EventQuery]) -> Events:
        """Return a page of events, the first fifty unless `limit` and `offset` say otherwise.

        `source` is known to Open Telekom Cloud only.

        Raises:
            NotSupported: another cloud would ignore the `source`, so nothing was sent.
        """
        if query.get("source") is not None and self._workspace.cloud is not Cloud.OTC:
            raise NotSupported("only Open Telekom Cloud supports filtering events by source")
        return parsed(Events, self._get(f"{self._workspace.path_of(job_id)}/events", query))

    def tasks(self, job_id: str, schedule_count: int | None = None) -> tuple[Task, ...]:
        """Return the tasks of the nth scheduling (None: the last one), and where they ran."""
        self._only_on_huawei("tasks")
        answer = self._get(f"{self._workspace.path_of(job_id)}/tasks", {"schedule_count": schedule_count})
        return parsed(tuple[Task, ...], answer)

    def stages(self, job_id: str) -> Stages:
        """Return the stages of each run."""
        self._only_on_huawei("stages")
        return parsed(Stages, self._get(f"{self._workspace.path_of(job_id)}/stages"))

    def preview(self, job_id: str, task: str) -> LogPreview | None:
        """Return the end of a task's log, or None while there is none."""
        return self._if_any(LogPreview, self._path(job_id, "tasks", task, "/logs/preview"))

    def url(self, job_id: str, task: str, *, download: bool = False) -> str | None:
        """Return a link to a task's whole log, or None while there is none."""
        kind = "application/octet-stream" if download else "text/plain"
        path = self._path(job_id, "tasks", task, "/logs/url")
        link: Any = self._if_any("LogUrl", path, headers={"Content-Type": kind})
        return link.obs_url if link else None

    def lines(
        self,
        job_id: str,
        task: str,
        *,
        base_line: str | None = None,
        lines: int | None = None,
        order: str | None = None,
    ) -> LogLines | None:
        """Return 1 to 500 (50) lines of a task's log from `base_line` on, or None while there is none."""
        self._only_on_huawei("logs by line")
        query = {"base_line": base_line, "lines": lines, "order": order}
        return self._if_any(LogLines, self._path(job_id, "logs", task), query)

    def metrics(self, job_id: str, task: str) -> tuple[Metric, ...] | None:
        """Return how busy a task's node was, minute by minute, or None while there is nothing yet."""
        found: Any = self._if_any("Metrics", self._path(job_id, "metrics", task))
        return found.metrics if found else None

    def _path(self, job_id: str, kind: str, task: str, rest: str = "") -> str:
        path = self._workspace.path_of(job_id)
        if task.strip(".") == "":
            raise NotFound(f"{task!r} is not a valid task id")
        return f"{path}/{kind}/{quote(task, safe='')}{rest}"

    def _if_any(
        self,
        shape: type[_T] | str,
        path: str,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> _T | None:
        try:
            answer = self._get(path, query, headers)
        except Rejected as refusal:
            if refusal.code in _NO_LOG_YET:
                return None
            raise
        return None if answer.status == 204 else parsed(shape, answer)


# --- tags

#: The service's limit: tags listed by one call.
TAG_PAGE = 1000


make_models(
    ResponseModel,
    {
        "Tag": "key:needed value",
        "TagList": "tags:Tag*",
        "TagValues": "key:needed values:*",
        "ProjectTags": "tags:TagValues*",
    },
)


@with_fields("tags:Tag* resource_detail:any")
class TaggedJob(ResponseModel):
    """A job that was found by its tags."""

    resource_id: str
    resource_name: str = ""
    workspace_id: str = ""


class TaggedCount(ResponseModel):
    total_count: int


make_models(ResponseModel, {"TaggedJobs": "resources:TaggedJob* total_count:int"})


class Tags(OperationGroup):
    """The tags of the jobs of one workspace; only on Huawei Cloud."""

    def of_job(self, job_id: str) -> dict[str, str]:
        """Return the tags of a job."""
        found: Any = parsed("TagList", self._get(self._tags_of(job_id)))
        return {tag.key: tag.value for tag in found.tags}

    def add(self, job_id: str, tags: Mapping[str, str]) -> None:
        """Give a job tags; a key that it has gets the new value."""
        body = {"tags": [{"key": key, "value": value} for key, value in tags.items()]}
        self._workspace.session.call(
            "POST", f"{self._tags_of(job_id)}/create", body=body, repeat=RetryPolicy.SAFE, changes=True
        )

    def remove(self, job_id: str, keys: Iterable[str]) -> None:
        """Take tags off a job."""
        body = {"tags": [{"key": key} for key in keys]}
        self._workspace.session.call(
            "DELETE", f"{self._tags_of(job_id)}/delete", body=body, repeat=RetryPolicy.SAFE, changes=True
        )

    def of_project(self) -> dict[str, tuple[str, ...]]:
        """Return the values of all tags of the project, by key."""
        self._only_on_huawei("tags")

        def page(offset: int) -> list[tuple[str, tuple[str, ...]]]:
            answer = self._get(f"{self._tags}/tags", {"limit": TAG_PAGE, "offset": offset})
            found: Any = parsed("ProjectTags", answer)
            return [(tag.key, tag.values) for tag in found.tags]

        return _all_pages(page)

    def find(
        self, tags: Mapping[str, Sequence[str]], *, name: str | None = None, without_any: bool = False
    ) -> tuple[TaggedJob, ...]:
        """Return all jobs of the workspace with these tags: all keys, for each one of its values.

        No value for a key means any. With `name` only jobs whose name contains that text; `without_any`
        finds those without a tag.
        """
        budget = MemoryBudget()

        def page(offset: int) -> list[tuple[str, TaggedJob]]:
            query = {"limit": TAG_PAGE, "offset": offset}
            answer = self._search("filter", tags, name, without_any, query)
            budget.take(answer.content)
            found: Any = parsed("TaggedJobs", answer)
            return [(job.resource_id, job) for job in found.resources]

        return tuple(_all_pages(page).values())

    def count(
        self, tags: Mapping[str, Sequence[str]], *, name: str | None = None, without_any: bool = False
    ) -> int:
        return parsed(TaggedCount, self._search("count", tags, name, without_any)).total_count

    @property
    def _tags(self) -> str:
        return f"{self._root}/modelarts-training-job"

    def _tags_of(self, job_id: str) -> str:
        self._only_on_huawei("tags")
        self._workspace.path_of(job_id)
        return f"{self._tags}/{job_id}/tags"

    def _search(
        self,
        kind: str,
        tags: Mapping[str, Sequence[str]],
        name: str | None,
        without_any: bool,
        query: Mapping[str, Any] | None = None,
    ) -> ServiceResponse:
        """Send a search: a POST that changes nothing."""
        self._only_on_huawei("tags")
        conditions = [{"key": key, "values": list(values)} for key, values in tags.items()]
        body: dict[str, Any] = {"workspace_id": self._workspace.workspace_id, "tags": conditions}
        if name is not None:
            body["matches"] = [{"key": "resource_name", "value": name}]
        if without_any:
            body["without_any_tag"] = True
        path = f"{self._tags}/resource-instances/{kind}"
        return self._workspace.session.call("POST", path, body=body, query=query, repeat=RetryPolicy.SAFE)


def _all_pages(read_page: Callable[[int], list[tuple[str, _T]]]) -> dict[str, _T]:
    """Read pages until one is short, or has nothing new: a service may ignore the offset."""
    found: dict[str, _T] = {}
    offset = 0
    while True:
        page = read_page(offset)
        new = {key: value for key, value in page if key not in found}
        found |= new
        if len(page) < TAG_PAGE or not new:
            return found
        offset += len(page)


# --- the catalog

#: The pool is unknown, not for training or not running.
_POOL_REFUSED = frozenset({"ModelArts.2890", "ModelArts.2886", "ModelArts.2887"})
#: The pool does not have the flavor. Without a flavor in the question, this says that it lacks one.
_FLAVOR_UNKNOWN = "ModelArts.2781"
#: What the service calls the records of jobs among its quotas.
_JOB_RECORDS = "job-num"


@with_fields()
class Quota(ResponseModel):
    """How many of something there may be, and are."""

    resource: str = ""
    quota: Count = None
    used: Count = None


@with_fields(
    "pool_id max_num:int support_engines support_groups billing:Billing flavor_info:FlavorInfo "
    "attributes:texts"
)
class Flavor(Lenient):
    """A kind of node."""

    flavor_id: str = ""
    flavor_name: str = ""
    flavor_type: str = ""


make_models(ResponseModel, {"ImageInfo": "cpu_image_url gpu_image_url image_version"})


@with_fields("v1_compatible:bool run_user image_info:ImageInfo tags:Tag*")
class Engine(ResponseModel):
    """A preset framework in one version."""

    engine_id: str = ""
    engine_name: str = ""
    engine_version: str = ""


make_models(
    ResponseModel,
    {
        "Quotas": "quotas:Quota*",
        "Flavors": "total_count:int flavors:Flavor*",
        "Engines": "total:int items:Engine*",
    },
)


class Catalog(OperationGroup):
    """Flavors of the public pools, preset engines, dedicated pools and quotas, asked anew each time.

    Source: docs/modelarts.md, "Calls"; ShowTrainingFlavorMaxAvailableResource of the vendor's SDK, which is
    refused where pool or flavor do not exist, and meant to be asked before a create.
    """

    # Who asks goes on without the answer, with a lock held meanwhile.
    _retry_for_s = 15.0

    def flavors(self, flavor_type: str | None = None) -> tuple[Flavor, ...]:
        """Return the flavors of the public pools, of one type (CPU, GPU, Ascend) or all."""
        found = self._list("Flavors", "flavors", {"flavor_type": flavor_type})
        return cast("tuple[Flavor, ...]", found.flavors)

    def engines(self) -> tuple[Engine, ...]:
        """Return the preset engines."""
        return cast("tuple[Engine, ...]", self._list("Engines", "engines").items)

    def _list(self, shape: str, what: str, query: Mapping[str, Any] | None = None) -> Any:
        return parsed(shape, self._get(f"{self._root}/training-job-{what}", query))

    def quotas(self, resource: str | None = None, user_id: str | None = None) -> tuple[Quota, ...]:
        """Return how many job records there may be, and are."""
        self._only_on_huawei("quotas")
        answer = self._get(f"{self._root}/training-quotas", {"resource": resource, "user_id": user_id})
        found: Any = parsed("Quotas", answer)
        return cast("tuple[Quota, ...]", found.quotas)

    # What core.ports.Catalog asks for.

    def flavor_offers(self, flavor_type: str | None = None) -> Offered[FlavorOffer]:
        """Return the flavors of the public pools; the list may have gaps."""
        listed = self._list("Flavors", "flavors", {"flavor_type": flavor_type})
        flavors = [_flavor_offer(flavor) for flavor in listed.flavors]
        return Offered(flavors, _is_whole([one.flavor_id for one in flavors], listed.total_count))

    def engine_offers(self) -> Offered[EngineOffer]:
        """Return the preset engines; the list may have gaps."""
        listed = self._list("Engines", "engines")
        engines = [
            EngineOffer(one.engine_id, one.engine_name, one.engine_version, one.run_user, _reported(one))
            for one in listed.items
        ]
        return Offered(engines, _is_whole([one.engine_id for one in engines], listed.total))

    def record_quota(self) -> RecordQuota | None:
        """Return how many job records there may be, and are; None where the service does not list them."""
        quotas = self.quotas(_JOB_RECORDS)
        # The service may list others than the requested one.
        found = [one for one in quotas if one.resource == _JOB_RECORDS]
        if not found and len(quotas) == 1 and not quotas[0].resource:
            found = [*quotas]
        return RecordQuota(found[0].quota, found[0].used) if found else None

    def pool_refusal(self, pool_id: str, flavor_id: str | None) -> Rejected | None:
        """Return why the service would refuse a pool, or a flavor of it; None if it would not."""
        self._only_on_huawei("questions about pools")
        query = {"pool_id": pool_id, "flavor_id": flavor_id}
        try:
            self._get(f"{self._root}/training-pool-flavors", query)
        except Rejected as refusal:
            if refusal.code in _POOL_REFUSED or (flavor_id and refusal.code == _FLAVOR_UNKNOWN):
                return refusal
            raise
        return None


def _is_whole(ids: Sequence[str], total: int | None) -> bool:
    """Whether what is not on a list is not offered: each entry could be read, and none is left out."""
    return bool(ids) and all(ids) and (total or 0) <= len(set(ids))


def _flavor_offer(flavor: Flavor) -> FlavorOffer:
    def shown(count: float | None, *words: str) -> str:
        return " ".join(["" if count is None else f"{count:g}", *words]).strip()

    info: Any = flavor.flavor_info or MODELS["FlavorInfo"]()
    cards = info.gpu or info.npu
    named = cards and f"{shown(cards.unit_num)} x {cards.product_name}"
    return FlavorOffer(
        flavor.flavor_id,
        flavor.flavor_type,
        cores=shown(info.cpu.core_num, info.cpu.arch) if info.cpu else "",
        memory=shown(info.memory.size, info.memory.unit) if info.memory else "",
        cards=named + (f" ({cards.memory})" if cards.memory else "") if cards else "",
        max_nodes=info.max_num,
        reported=_reported(flavor),
    )


def _reported(answer: BaseModel) -> dict[str, Any]:
    return answer.model_dump(mode="json", exclude_unset=True)
