"""The job as the service reports it, and a page of the search that finds it.

A field that the documents spell in two ways stands in one place, that of the create body; a place in the
model is named as the service names it. A member of the wrong type is kept aside, in the `model_extra` of
its object: it hides no other. The answer itself, to the letter, is `ObservedJob.body`.

Source: docs/modelarts.md, "Responses", "Phases" and "Contradictions"; the vendor's SDK, `JobResponse`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field, model_validator

from reconciler.core.aliases import one_spelling
from reconciler.core.fields import desired
from reconciler.core.observed_job import ObservedJob
from reconciler.modelarts.algorithm_models import Algorithm, Label
from reconciler.modelarts.declared_models import as_declared
from reconciler.modelarts.logs import Task
from reconciler.modelarts.models import Count, Lenient, Texts
from reconciler.modelarts.spec_models import Spec

#: What is declared beside the job's parts, and reported in its metadata.
_IN_METADATA = ("description", "annotations", "training_experiment_reference")


@as_declared(desired.ExperimentReference)
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
    """How a task ended."""

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
    """Where a task can be reached by SSH."""

    task: str = ""
    url: str = ""


@as_declared(desired.Ssh)
class Ssh(Lenient):
    """Access to the job by SSH."""

    task_urls: tuple[TaskUrl, ...] = ()


class WebTool(Lenient):
    """A web page beside the job; whoever has the token is in."""

    url: str = ""
    token: str = Field("", repr=False)


@as_declared(desired.Endpoints)
class Endpoints(Lenient):
    """Access to the running job."""

    jupyter_lab: WebTool | None = None
    tensorboard: WebTool | None = None
    mindstudio_insight: WebTool | None = None


class EnvironmentVariable(Lenient):
    """A variable of a fine-tune job."""

    label: str = ""
    des: str = ""
    env_name: str = ""
    env_type: str = ""
    value: str = ""
    modifiable: bool | None = None
    displayable: bool | None = None
    used_steps: tuple[str, ...] = ()


@as_declared(desired.TaskEnvironment)
class TaskEnvironment(Lenient):
    """Environment of a fine-tune job."""

    envs: tuple[EnvironmentVariable, ...] = ()


class CheckpointConfig(Lenient):
    """How checkpoints are kept."""

    checkpoint_id: str = ""
    save_checkpoints_max: Count = None
    skipped_steps: Count = None
    restore_training: Count = None


@as_declared(desired.FineTuneConfig)
class FineTuneConfig(Lenient):
    """Settings of a fine-tune job."""

    checkpoint_config: CheckpointConfig | None = None


@as_declared(desired.JobBody, without=_IN_METADATA)
class ReportedJob(Lenient):
    """All that the service tells of a job: the answer of details and terminate, and an item of the search."""

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
