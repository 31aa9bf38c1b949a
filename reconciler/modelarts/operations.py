"""What the groups of the service's calls share: one backend, and how an answer is read.

What a cloud does not offer is refused here, unsent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from reconciler.core.fields.marks import Cloud
from reconciler.errors import NotSupported
from reconciler.modelarts.http import ServiceResponse
from reconciler.modelarts.retry import RetryPolicy

if TYPE_CHECKING:
    from reconciler.modelarts.backend import ModelArtsBackend

_T = TypeVar("_T")


class OperationGroup:
    """Some calls of one workspace, over the session of its backend.

    A question is not asked again later than `_patience_s` seconds after it was asked first.
    """

    _patience_s = math.inf

    def __init__(self, backend: ModelArtsBackend) -> None:
        self._backend = backend
        self._root = f"/v2/{backend.project_id}"

    def _get(
        self, path: str, query: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
    ) -> ServiceResponse:
        return self._backend.session.call(
            "GET", path, query=query, headers=headers, repeat=RetryPolicy.SAFE, patience_s=self._patience_s
        )

    def _only_on_huawei(self, what: str) -> None:
        if self._backend.cloud is Cloud.OTC:
            raise NotSupported(f"Open Telekom Cloud does not support {what}")


def parsed(shape: type[_T], answer: ServiceResponse) -> _T:
    """Return what an answer says.

    Raises:
        UnreadableAnswer: it has another shape.
    """
    try:
        value: _T = TypeAdapter(shape).validate_python(answer.json())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise answer.unreadable(f"{where or 'the answer'}: {first['msg']}") from None
    return value
