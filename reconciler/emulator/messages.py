"""The messages of the API: a request as an operation sees it, and its response."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from werkzeug.datastructures import Headers

from reconciler.emulator.json_body import dump_json
from reconciler.emulator.operations import variants
from reconciler.emulator.storage.job_row import Job
from reconciler.emulator.storage.store import Store


@dataclass(frozen=True)
class ApiRequest:
    """What an operation is given. `path` holds the variable parts of the URL, `query` its parameters.

    `counts_items`: the offset of a search counts items, not pages; `shift`: see `SearchRequest`. `flavors`
    and `engines` are ids that the catalogue lists as well.
    """

    store: Store
    path: Mapping[str, Any]
    query: Mapping[str, str]
    headers: Headers
    body: bytes
    cloud: str = "huawei"
    strict_catalogue: bool = False
    flavors: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()
    counts_items: bool = False
    shift: int = 0

    @property
    def project(self) -> str:
        """The project id of the URL."""
        return str(self.path["project_id"])

    @property
    def job_id(self) -> str:
        """The job id of the URL."""
        return str(self.path["job_id"])

    def text(self, job: Job) -> str:
        """Return a job as JSON, as this cloud returns it."""
        if not (job.is_variant and self.cloud == "otc"):
            return job.text
        response = json.loads(job.text)
        variants.vary_declared(response)
        return dump_json(response)


class ApiResponse(NamedTuple):
    """A status and a body; an empty text is no body."""

    status: int
    text: str = ""


def json_response(status: int, value: Any) -> ApiResponse:
    """Return a response with a JSON body."""
    return ApiResponse(status, dump_json(value))
