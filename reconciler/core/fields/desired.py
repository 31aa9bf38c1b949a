"""What a person may declare below a job: one line a field.

A line says the type, the limits, the help text, the service's documented default (the field's
default, where it is not None) and, as marks, what an edit of the field means. Schema, normal form,
digest, diff and docs are read off these lines. The larger parts have modules of their own: `algorithm.py`,
`spec.py`, `tasks.py`.

Source of fields and limits: the documents of docs/modelarts.md, "Sources".
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    model_validator,
)

from reconciler.core.fields.algorithm import Algorithm
from reconciler.core.fields.field_types import (
    ANY_TIME,
    WHILE_ACTIVE,
    Choice,
    Filled,
    Strict,
    Text,
    Unreported,
    form_error,
    rule_error,
)
from reconciler.core.fields.marks import Mark
from reconciler.core.fields.spec import Spec
from reconciler.core.fields.tasks import Task


class Ssh(Strict):
    """Access to the job by SSH."""

    key_pair_names: Annotated[list[str] | None, Mark.AS_SET, WHILE_ACTIVE] = Field(
        None, description="Key pairs that may log in.", examples=[["alice-laptop"]]
    )


class Endpoints(Strict):
    """Access to the running job."""

    ssh: Ssh | None = Field(None, description="SSH access.")


class ExperimentReference(Strict):
    """The experiment the job belongs to."""

    id: Annotated[str | None, Filled] = Field(
        None,
        description="Id of an experiment that exists.",
        examples=["3f2a1b0c-0000-4000-8000-000000000000"],
    )
    name: Annotated[str | None, Unreported, Field(max_length=64)] = Field(
        None, description="Name; without id the experiment is made.", examples=["resnet-sweep"]
    )
    description: Annotated[str | None, Unreported, Field(max_length=256)] = Field(
        None, description="Description of the experiment.", examples=["Learning rates"]
    )


class TaskEnvironment(Strict):
    """Environment of a fine-tune job."""

    envs: list[dict[str, Any]] | None = Field(
        None, description="Its variables.", examples=[[{"name": "SEED", "value": "1"}]]
    )


class FineTuneConfig(Strict):
    """Settings of a fine-tune job."""

    ft_job_uuid: str | None = Field(
        None, description="Id of the fine-tune job.", examples=["3f2a1b0c-0000-4000-8000-000000000000"]
    )
    ft_train_type: str | None = Field(None, description="Kind of fine-tuning.", examples=["LORA"])
    model_type: str | None = Field(None, description="Kind of model.", examples=["qwen"])
    train_output_path: str | None = Field(
        None, description="Where the result goes.", examples=["obs://vision-data/ft/"]
    )
    train_process: float | None = Field(None, description="Progress.", examples=[0.5])
    checkpoint_id: str | None = Field(None, description="Where to start from.", examples=["ckpt-1"])
    task_env: TaskEnvironment | None = Field(None, description="Environment.")
    checkpoint_config: dict[str, Any] | None = Field(
        None, description="How checkpoints are kept.", examples=[{"save_steps": 500}]
    )


#: Annotations that switch something on or off, and those that count.
_SWITCHES = frozenset(
    {
        "fault-tolerance/job-unconditional-retry",
        "fault-tolerance/hang-retry",
        "fault-tolerance/hccl_op_retry",
        "jupyter-lab/enable",
        "tensorboard/enable",
        "mindstudio-insight/enable",
        "performance_diagnosis_enabled",
    }
)
_RETRIES = ("fault-tolerance/job-retry-num", "fault-tolerance/pod-retry-num")


def _known_annotations(annotations: dict[str, str] | None) -> dict[str, str] | None:
    """Refuse values that the service's documents do not have; it may know more annotations than they do."""
    for name, value in (annotations or {}).items():
        if "${" in value:
            continue  # It has no value yet, or is a secret.
        if name in _SWITCHES and value not in ("true", "false"):
            raise form_error(f'{name} must be "true" or "false"')
        if name in _RETRIES and not (value.isdecimal() and int(value) > 0):
            raise form_error(f"{name} must be a whole number, at least 1")
    return annotations


JobKind = Literal[
    "job",
    "hetero_job",
    "autosearch_job",
    "mrs_job",
    "edge_job",
    "federated_pool_job",
    "diag_job",
    "visualization_job",
]


class JobBody(Strict):
    """The part of an entry that becomes the service's create body. Names are the service's own."""

    kind: JobKind = Field("job", description="Kind of job.")
    description: Annotated[str | None, ANY_TIME] = Field(
        None,
        description="What the job is for; the ownership marker is appended.",
        examples=["ResNet-50, nightly"],
    )
    annotations: Annotated[
        dict[str, Text] | None, Mark.FREE_MEMBERS, Unreported, AfterValidator(_known_annotations)
    ] = Field(
        None,
        description="Settings of advanced features, e.g. fault-tolerance/job-retry-num.",
        examples=[{"fault-tolerance/job-retry-num": "3"}],
    )
    training_experiment_reference: ExperimentReference | None = Field(
        None, description="The experiment the job belongs to."
    )
    algorithm: Algorithm | None = Field(
        None,
        description="What the job runs.",
        examples=[
            {
                "code_dir": "obs://vision-data/resnet/",
                "boot_file": "obs://vision-data/resnet/train.py",
                "engine": {"engine_id": "pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64"},
            }
        ],
    )
    tasks: list[Task] | None = Field(
        None,
        description="Tasks of a heterogeneous job; not together with spec.",
        examples=[
            [{"role": "worker", "task_resource": {"flavor_id": "modelarts.p3.large.public", "node_count": 2}}]
        ],
    )
    spec: Spec | None = Field(
        None,
        description="Where and how the job runs.",
        examples=[{"resource": {"flavor_id": "modelarts.vm.cpu.2u", "node_count": 1}}],
    )
    endpoints: Endpoints | None = Field(None, description="Access to the running job.")
    train_type: Annotated[Literal["SFT", "PRETRAIN", "LORA", "DPO", "RFT"] | None, Unreported] = Field(
        None, description="Kind of fine-tuning."
    )
    ftjob_config: Annotated[FineTuneConfig | None, Unreported] = Field(
        None, description="Settings of a fine-tune job."
    )

    choices = (Choice(("tasks", "spec")),)

    @model_validator(mode="after")
    def _frame(self) -> Self:
        self.check_choices()
        if self.tasks and self.kind != "hetero_job":
            raise rule_error("tasks requires kind: hetero_job")
        if not self.tasks and self.spec is None:
            raise rule_error("spec is required: where and how the job runs")
        if self.kind == "job" and self.algorithm is None and self.train_type is None:
            raise rule_error("algorithm is required: what the job runs")
        self._check_kind()
        return self

    def _check_kind(self) -> None:
        is_federated = self.kind == "federated_pool_job"
        if is_federated != bool(self.spec and self.spec.resource.pool_group_id):
            one, other = "kind federated_pool_job", "spec.resource.pool_group_id"
            raise rule_error(f"{one} requires {other}" if is_federated else f"{other} requires {one}")
        summary = self.algorithm.summary if self.algorithm else None
        if self.kind == "visualization_job" and not (summary and summary.data_sources):
            raise rule_error("kind visualization_job requires algorithm.summary.data_sources")
