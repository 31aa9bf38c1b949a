"""What a job runs, as the service reports it: what it has beside the declared fields, or spells in two ways.

Source: docs/modelarts.md, "Responses" and "Contradictions"; the vendor's SDK, `JobAlgorithmResponse`.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator

from reconciler.core.fields import algorithm, tasks
from reconciler.modelarts.declared_models import as_declared
from reconciler.modelarts.models import Lenient


def _without_unit(value: Any) -> Any:
    return value.strip().removesuffix("s") or None if isinstance(value, str) else value


def _read_discrete(value: Any) -> Any:
    return "discrete" if value == "discreate" else value


#: "30s", "30" and 30 are the same.
Seconds = Annotated[int | None, BeforeValidator(_without_unit)]


@as_declared(algorithm.Parameter, without={"sensitive"})  # which is never sent
class Parameter(Lenient):
    """One argument of the training script."""


@as_declared(algorithm.SearchParam)
class SearchParam(Lenient):
    """A hyperparameter that a search varies."""

    # Some documents write it `discreate`.
    param_type: Annotated[str, BeforeValidator(_read_discrete)] = ""


@as_declared(algorithm.Dataset)
class Dataset(Lenient):
    """A data set; `obs_url` is where it lies."""

    obs_url: str = ""


@as_declared(algorithm.InputRemote, algorithm.OutputRemote)
class Remote(Lenient):
    """Where data lies: in object storage, or in a data set."""


@as_declared(algorithm.Output)
class Output(Lenient):
    """Data that the job writes; it is uploaded every `period` seconds."""

    mode: str = ""
    period: Seconds = None


class Label(Lenient):
    """A tag."""

    key: str = ""
    value: str = ""


@as_declared(algorithm.Engine, tasks.TaskEngine)
class JobEngine(Lenient):
    """What a job, or a task, runs in."""

    v1_compatible: bool | None = None
    usage: str = ""
    support_groups: str = ""
    tags: tuple[Label, ...] = ()


@as_declared(algorithm.Algorithm)
class Algorithm(Lenient):
    """What the job runs."""

    parameters_customization: bool | None = None
