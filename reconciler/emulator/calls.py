"""A call: one request as an operation sees it, and the answer it gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from werkzeug.datastructures import Headers

from reconciler.emulator.answers import dumps
from reconciler.emulator.store import Store


@dataclass(frozen=True)
class Call:
    """What an operation is given. `path` holds the variable parts of the URL, `query` its parameters."""

    store: Store
    path: Mapping[str, Any]
    query: Mapping[str, str]
    headers: Headers
    body: bytes
    cloud: str = "huawei"
    strict_catalogue: bool = False

    @property
    def project(self) -> str:
        """The project id of the URL."""
        return str(self.path["project_id"])

    @property
    def job_id(self) -> str:
        """The job id of the URL."""
        return str(self.path["job_id"])


class Answer(NamedTuple):
    """A status and a body; an empty text is no body."""

    status: int
    text: str = ""


def answer(status: int, value: Any) -> Answer:
    """Return an answer with a JSON body."""
    return Answer(status, dumps(value))
