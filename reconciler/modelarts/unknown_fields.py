"""Fields of a job that no document of the service has: newer than this version, or sent by `raw` once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from reconciler.core.observed_job import ObservedJob
from reconciler.modelarts.job_models import ReportedJob


def unknown_fields(job: ObservedJob) -> tuple[str, ...]:
    """Return their paths, each once, the status aside: `spec.brand_new`, `tasks.brand_new`.

    Of an answer that holds what is no text nothing is said.
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
