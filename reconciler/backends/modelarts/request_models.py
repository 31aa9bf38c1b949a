"""What the service is asked: the bodies of its search, update and terminate, under their documented names.

`body()` is what is sent: what was not said is left to the service.

Source: docs/modelarts.md, "Calls", "Search" and "Updates".
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

#: So many values, tags and addresses one search takes at most.
AtMostTen = Field(max_length=10)


class RequestModel(BaseModel):
    """A part of a request: an unknown name is a typo."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, defer_build=True)

    def body(self) -> dict[str, Any]:
        """The JSON object that is sent."""
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

    def conditions(self) -> dict[str, Any]:
        """The body without the fields that turn pages."""
        return self.model_dump(mode="json", exclude_defaults=True, include=set(Search.model_fields))


class SearchBody(Search):
    """The whole body of a search: one page of it. `offset` counts pages, the first is 0."""

    offset: Annotated[int | None, Field(ge=0)] = None
    limit: Annotated[int | None, Field(ge=1, le=50)] = None
    workspace_id: str | None = None


class ActionBody(RequestModel):
    """What is to be done with a job. The service knows `restart` too, and documents nothing of it."""

    action_type: Literal["terminate"]


class SchedulePolicyUpdate(RequestModel):
    """How the job queues."""

    priority: Annotated[int | None, Field(ge=1, le=3)] = None
    preemptible: bool | None = None


class NotificationUpdate(RequestModel):
    """Who is told of what."""

    topic_urn: str | None = None
    events: tuple[str, ...] | None = None


class SpecUpdate(RequestModel):
    """How the job runs on."""

    schedule_policy: SchedulePolicyUpdate | None = None
    notification: NotificationUpdate | None = None


class SshUpdate(RequestModel):
    """Key pairs that may log in."""

    key_pair_names: tuple[str, ...] | None = None


class EndpointsUpdate(RequestModel):
    """Access to the running job."""

    ssh: SshUpdate | None = None


class MetadataUpdate(RequestModel):
    """Switches of a running job. `annotation` is singular here, and jupyter-lab/enable its only key."""

    annotation: dict[str, str] | None = None


class UpdateBody(RequestModel):
    """What is to be changed on a job; an empty description clears it. OTC knows `description` alone."""

    description: Annotated[str | None, Field(max_length=256)] = None
    spec: SpecUpdate | None = None
    endpoints: EndpointsUpdate | None = None
    metadata: MetadataUpdate | None = None
