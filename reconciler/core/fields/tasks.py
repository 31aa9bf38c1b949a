"""The tasks of a heterogeneous job: the part `tasks` of the create body; see `desired.py`."""

from __future__ import annotations

from typing import Annotated

from pydantic import (
    Field,
)

from reconciler.core.fields.algorithm import Environments, Input, Output, Parameter
from reconciler.core.fields.field_types import (
    DISTINCT_NAMES,
    Strict,
    TaskPath,
    Text,
)
from reconciler.core.fields.marks import KeyedBy, Mark
from reconciler.core.fields.spec import LogExportPath


class TaskEngine(Strict):
    """What a task of a heterogeneous job runs in."""

    engine_id: str | None = Field(
        None,
        description="Id of a preset framework.",
        examples=["pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64"],
    )
    engine_name: str | None = Field(None, description="Name of a preset framework.", examples=["PyTorch"])
    engine_version: str | None = Field(
        None,
        description="Version of a preset framework.",
        examples=["pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64"],
    )
    image_url: str | None = Field(None, description="Image of SWR.", examples=["vision/resnet:1.4"])
    run_user: Text | None = Field(
        None, description='User id in a custom image, "1000" by default.', examples=["1000"]
    )


class TaskJobConfig(Strict):
    """Settings of a task."""

    parameters: Annotated[list[Parameter] | None, KeyedBy("name"), DISTINCT_NAMES] = Field(
        None, description="Arguments.", examples=[{"epochs": 90}]
    )
    inputs: Annotated[list[Input] | None, KeyedBy("name"), DISTINCT_NAMES] = Field(
        None, description="Data to read.", examples=[{"data_url": "obs://vision-data/imagenet/"}]
    )
    outputs: Annotated[list[Output] | None, KeyedBy("name"), DISTINCT_NAMES] = Field(
        None, description="Data to write.", examples=[{"train_url": "obs://vision-data/out/"}]
    )
    engine: TaskEngine | None = Field(None, description="What the task runs in.")


class TaskAlgorithm(Strict):
    """What a task of a heterogeneous job runs."""

    job_config: TaskJobConfig | None = Field(None, description="Settings of the task.")
    code_dir: TaskPath | None = Field(
        None, description="OBS directory with the code.", examples=["obs://vision-data/rl/"]
    )
    boot_file: TaskPath | None = Field(
        None, description="The script to start.", examples=["obs://vision-data/rl/worker.py"]
    )
    engine: TaskEngine | None = Field(None, description="What the task runs in.")
    inputs: Annotated[list[Input] | None, KeyedBy("name"), DISTINCT_NAMES] = Field(
        None, description="Data to read, OBS only.", examples=[{"data_url": "obs://vision-data/imagenet/"}]
    )
    outputs: Annotated[list[Output] | None, KeyedBy("name"), DISTINCT_NAMES] = Field(
        None, description="Data to write.", examples=[{"train_url": "obs://vision-data/out/"}]
    )
    local_code_dir: str | None = Field(
        None,
        description="Where the code lies in the container.",
        examples=["/home/ma-user/modelarts/user-job-dir"],
    )
    working_dir: str | None = Field(
        None,
        description="Working directory in the container.",
        examples=["/home/ma-user/modelarts/user-job-dir/rl"],
    )
    environments: Annotated[Environments | None, Mark.FREE_MEMBERS] = Field(
        None, description="Environment variables.", examples=[{"NCCL_DEBUG": "INFO"}]
    )


class TaskResource(Strict):
    """Where a task runs."""

    flavor_id: str | None = Field(None, description="Compute flavor.", examples=["modelarts.p3.large.public"])
    node_count: Annotated[int, Field(ge=1, description="Whole nodes.", examples=[2])]
    pool_id: str | None = Field(None, description="Dedicated pool.", examples=["pool-7d3f"])


class Task(Strict):
    """One task of a heterogeneous job."""

    role: str | None = Field(None, description="Role of the task.", examples=["worker"])
    algorithm: TaskAlgorithm | None = Field(
        None,
        description="What the task runs.",
        examples=[{"code_dir": "obs://vision-data/rl/", "boot_file": "obs://vision-data/rl/worker.py"}],
    )
    task_resource: TaskResource | None = Field(None, description="Where the task runs.")
    log_export_path: LogExportPath | None = Field(None, description="Where the log goes.")
