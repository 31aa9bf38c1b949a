"""Further calls of the service, in two groups (logs and catalog), and typed responses.

Calls that a cloud does not offer are refused without being sent. In responses null is absent, numbers may be
text and text may be numbers; other values are treated as absent.

Source: docs/reference/modelarts.md, "Calls", "Responses" and "Contradictions".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator

from reconciler.core.catalog import EngineOffer, FlavorOffer, Offered, RecordQuota
from reconciler.core.fields.field_types import Cloud
from reconciler.core.observed import Unreadable
from reconciler.errors import NotFound, NotSupported, Rejected
from reconciler.modelarts.clock import RetryPolicy
from reconciler.modelarts.http import ServiceResponse
from reconciler.modelarts.observe import number
from reconciler.modelarts.workspace import Workspace

# --- typed responses


class ResponseModel(BaseModel):
    """An object in a response. Known members are typed, the others are kept unchanged."""

    model_config = ConfigDict(
        extra="allow", frozen=True, coerce_numbers_to_str=True, protected_namespaces=(), defer_build=True
    )

    @field_validator("*", mode="wrap")
    @classmethod
    def _mistyped_is_absent(cls, value: Any, read: Callable[[Any], Any], info: ValidationInfo) -> Any:
        try:
            return read(value)
        except ValidationError:
            return cls.model_fields[str(info.field_name)].get_default()


class Metadata(ResponseModel):
    """Name, id and description of a job; times in milliseconds since 1970."""

    id: str = ""
    name: str = ""
    workspace_id: str = ""
    description: str = ""
    create_time: int | None = None
    user_name: str = ""


class StatusResponse(ResponseModel):
    """The status of a job; times and durations in milliseconds, 0 before the start."""

    phase: str = ""
    secondary_phase: str = ""
    duration: int | None = None
    start_time: int | None = None
    tasks: tuple[str, ...] = ()


class ReportedJob(ResponseModel):
    """A job as the service reports it.

    `metadata` and `status` are typed; other parts are plain data under the service's own names: `job.spec`.
    """

    metadata: Metadata = Metadata()
    status: StatusResponse = StatusResponse()

    def __repr__(self) -> str:
        return f"<ReportedJob {self.metadata.name} {self.metadata.id}: {self.status.phase}>"

    __str__ = __repr__


class JobList(tuple[ReportedJob, ...]):
    """The jobs found by a search. `unreadable` are those without an id, a name or a phase."""

    unreadable: tuple[Unreadable, ...] = ()


class Event(ResponseModel):
    """An event of a job. `time` is text, as the service writes it."""

    time: str = ""
    level: str = ""
    message: str = ""
    source: str = ""


class Metric(ResponseModel):
    """One value per minute, in percent; None if missing."""

    metric: str = ""
    value: tuple[float | None, ...] = ()


class LogPreview(NamedTuple):
    """The end of a log, at most 5 MB. `full_size` is the size of the whole log, in bytes."""

    content: str
    full_size: int | None = None


# --- groups of calls

_T = TypeVar("_T")


def _parts(answer: ServiceResponse, name: str) -> list[dict[str, Any]]:
    """Return the objects of a list in a response.

    Raises:
        UnreadableAnswer: it is not a list of objects.
    """
    parts = _object(answer).get(name) or []
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise answer.unreadable(f"{name}: expected a list of objects")
    return parts


def _object(answer: ServiceResponse) -> dict[str, Any]:
    content = answer.json()
    if not isinstance(content, dict):
        raise answer.unreadable("the response is not an object")
    return content


def _part(whole: Mapping[str, Any], name: str) -> dict[str, Any]:
    part = whole.get(name)
    return part if isinstance(part, dict) else {}


def _text(whole: Mapping[str, Any], *names: str) -> str:
    """The first of these members that is present, as text."""
    values = (whole.get(name) for name in names)
    return next((str(one) for one in values if isinstance(one, str | int) and one != ""), "")


def _count(value: Any) -> int | None:
    read = number(value)
    return None if read is None else int(read)


class OperationGroup:
    """Some calls of one workspace. Retries end after `_retry_for_s`."""

    _retry_for_s = math.inf

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._root = f"/v2/{workspace.project_id}"

    def _get(self, path: str, query: Mapping[str, Any] | None = None) -> ServiceResponse:
        return self._workspace.session.call(
            "GET", path, query=query, repeat=RetryPolicy.SAFE, retry_for_s=self._retry_for_s
        )

    def _only_on_huawei(self, what: str) -> None:
        if self._workspace.cloud is Cloud.OTC:
            raise NotSupported(f"Open Telekom Cloud does not support {what}")


# --- logs, events, metrics

#: Codes for a log that does not exist yet.
_NO_LOG_YET = frozenset({"ModelArts.2776", "ModelArts.2777", "ModelArts.2818"})


class Logs(OperationGroup):
    """Logs, events and metrics of jobs. A task is e.g. `worker-0`."""

    def events(self, job_id: str, offset: int = 0, limit: int = 50) -> list[Event]:
        """Return a page of events, oldest first. `limit` is at most 100."""
        query = {"offset": offset, "limit": limit, "order": "asc"}
        answer = self._get(f"{self._workspace.path_of(job_id)}/events", query)
        return [Event.model_validate(event) for event in _parts(answer, "events")]

    def preview(self, job_id: str, task: str) -> LogPreview | None:
        """Return the end of a task's log, or None if there is none yet."""
        if (answer := self._if_any(f"{self._path(job_id, 'tasks', task)}/logs/preview")) is None:
            return None
        log = _object(answer)
        # Named `context` before March 2022.
        return LogPreview(_text(log, "content", "context"), _count(log.get("full_size")))

    def metrics(self, job_id: str, task: str) -> tuple[Metric, ...] | None:
        """Return the utilization of a task's node per minute, or None if there is none yet."""
        if (answer := self._if_any(self._path(job_id, "metrics", task))) is None:
            return None
        metrics = []
        for metric in _parts(answer, "metrics"):
            values = metric.get("value")
            # The service sends -1 for a missing value.
            read = [number(value) for value in values] if isinstance(values, list) else []
            known = [None if value == -1 else value for value in read]
            metrics.append(Metric.model_validate({**metric, "value": known}))
        return tuple(metrics)

    def _path(self, job_id: str, kind: str, task: str) -> str:
        path = self._workspace.path_of(job_id)
        if task.strip(".") == "":
            raise NotFound(f"{task!r} is not a valid task id")
        return f"{path}/{kind}/{quote(task, safe='')}"

    def _if_any(self, path: str) -> ServiceResponse | None:
        try:
            answer = self._get(path)
        except Rejected as refusal:
            if refusal.code in _NO_LOG_YET:
                return None
            raise
        return None if answer.status == 204 else answer


# --- the catalog

#: The pool is unknown, not for training or not running.
_POOL_REFUSED = frozenset({"ModelArts.2890", "ModelArts.2886", "ModelArts.2887"})
#: The pool does not have the flavor. In a request without a flavor it only means that one is missing.
_FLAVOR_UNKNOWN = "ModelArts.2781"
#: The quota of job records.
_JOB_RECORDS = "job-num"


class Catalog(OperationGroup):
    """Flavors, engines, dedicated pools and quotas, as a `core.ports.Catalog`. Nothing is cached.

    Source: docs/reference/modelarts.md, "Calls"; ShowTrainingFlavorMaxAvailableResource of the vendor's SDK,
    which fails if pool or flavor do not exist.
    """

    # Short, because callers hold a lock and can do without the answer.
    _retry_for_s = 15.0

    def flavor_offers(self, flavor_type: str | None = None) -> Offered[FlavorOffer]:
        """Return the flavors of the public pools, of one type (CPU, GPU, Ascend) or all."""
        answer = self._get(f"{self._root}/training-job-flavors", {"flavor_type": flavor_type})
        flavors = [_flavor_offer(flavor) for flavor in _parts(answer, "flavors")]
        return _offered(flavors, [one.flavor_id for one in flavors], _object(answer).get("total_count"))

    def engine_offers(self) -> Offered[EngineOffer]:
        """Return the preset engines."""
        answer = self._get(f"{self._root}/training-job-engines")
        engines = [
            EngineOffer(
                _text(one, "engine_id"),
                _text(one, "engine_name"),
                _text(one, "engine_version"),
                _text(one, "run_user"),
                reported=one,
            )
            for one in _parts(answer, "items")
        ]
        return _offered(engines, [one.engine_id for one in engines], _object(answer).get("total"))

    def record_quota(self) -> RecordQuota | None:
        """Return limit and use of the quota of job records. None if the service does not list it."""
        self._only_on_huawei("quotas")
        quotas = _parts(self._get(f"{self._root}/training-quotas", {"resource": _JOB_RECORDS}), "quotas")
        # The service may list other quotas than the requested one.
        found = [one for one in quotas if _text(one, "resource") == _JOB_RECORDS]
        if not found and len(quotas) == 1 and not _text(quotas[0], "resource"):
            found = quotas
        return RecordQuota(_count(found[0].get("quota")), _count(found[0].get("used"))) if found else None

    def pool_refusal(self, pool_id: str, flavor_id: str | None) -> Rejected | None:
        """Return the error with which the service would refuse a pool or its flavor. None if it would not."""
        self._only_on_huawei("questions about pools")
        query = {"pool_id": pool_id, "flavor_id": flavor_id}
        try:
            self._get(f"{self._root}/training-pool-flavors", query)
        except Rejected as refusal:
            if refusal.code in _POOL_REFUSED or (flavor_id and refusal.code == _FLAVOR_UNKNOWN):
                return refusal
            raise
        return None


def _offered(offers: list[_T], ids: list[str], total: Any) -> Offered[_T]:
    """Make a list of offers, which is complete if all entries could be read."""
    return Offered(offers, bool(ids) and all(ids) and (number(total) or 0) <= len(set(ids)))


def _flavor_offer(flavor: dict[str, Any]) -> FlavorOffer:
    def shown(count: Any, *words: str) -> str:
        read = number(count)
        return " ".join(["" if read is None else f"{read:g}", *words]).strip()

    info = _part(flavor, "flavor_info")
    cpu, memory = _part(info, "cpu"), _part(info, "memory")
    cards = _part(info, "gpu") or _part(info, "npu")
    # Some of the service's documents have the other spelling.
    named = f"{shown(cards.get('unit_num'))} x {_text(cards, 'product_name', 'product_nume')}"
    of_card = _text(cards, "memory")
    return FlavorOffer(
        _text(flavor, "flavor_id"),
        _text(flavor, "flavor_type"),
        cores=shown(cpu.get("core_num"), _text(cpu, "arch")),
        memory=shown(memory.get("size"), _text(memory, "unit")),
        cards=named + (f" ({of_card})" if of_card else "") if cards else "",
        max_nodes=_count(info.get("max_num")),
        reported=flavor,
    )
