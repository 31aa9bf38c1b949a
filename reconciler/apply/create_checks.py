"""What can be known of a create before the job that it replaces is ended: whether the target offers it.

Source: docs/semantics.md, "Apply", point 4.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from reconciler.apply.catalog_reader import CatalogReader
from reconciler.core.catalog import (
    Missing,
    Offers,
    PreflightReason,
    missing,
    needs_engines,
    needs_flavors,
    pools,
)
from reconciler.decide.plan import PlannedAction
from reconciler.errors import Interrupted, NotOffered, NotSupported, ServiceError

_T = TypeVar("_T")


class CreateChecks:
    """Holds what replaces create against the catalog of one target; safe to use from several threads.

    Without a reader nothing is known, and nothing is refused. A part that cannot be asked says nothing: it
    is said once to `warn`, and the action goes on. What pre-flight has asked is not asked again, unless
    it got no answer.
    """

    def __init__(self, reader: CatalogReader | None, warn: Callable[[str], None]) -> None:
        self._reader, self._warn = reader, warn
        self._lock = threading.Lock()
        self._unread: set[str] = set()
        if reader is not None:
            reader.forget_failures()

    def check(self, action: PlannedAction) -> None:
        """See that the target offers what an action is to create.

        Raises:
            NotOffered: it does not; the words name field, value, the nearest offer and the manifest's place.
            Interrupted: the program is to stop.
        """
        body = action.desired or {}
        reader = self._reader
        if reader is None:
            return
        if found := missing(body, self._offers(reader, body)):
            raise NotOffered(_words(found, action))
        for use in pools(body):
            refusal = self._known(str(use.choice), partial(reader.pool_refusal, use.choice))
            if refusal is not None:
                why = f"is rejected by the service: {refusal.message}"
                refused = Missing(PreflightReason.POOL_REJECTED, use.path, use.pool_id, why=why)
                raise NotOffered(
                    _words([refused], action),
                    code=refusal.code,
                    status=refusal.status,
                    request_id=refusal.request_id,
                )

    def _offers(self, reader: CatalogReader, body: Mapping[str, Any]) -> Offers:
        return Offers(
            self._known("flavors", reader.most_nodes) if needs_flavors(body) else None,
            self._known("engines", reader.engines) if needs_engines(body) else None,
        )

    def _known(self, what: str, ask: Callable[[], _T | None]) -> _T | None:
        """What is known of a part; None where it could not be asked."""
        try:
            return ask()
        except Interrupted:
            raise
        except NotSupported:  # nothing failed: this target has no such part
            return None
        except ServiceError as failure:
            with self._lock:
                is_new = what not in self._unread
                self._unread.add(what)
            if is_new:
                why = failure.diagnostics[0]
                self._warn(f"cannot check {what} before replacing: {why.what}: {why.why}")
            return None


def _words(found: list[Missing], action: PlannedAction) -> str:
    source = action.source
    place = f" ({source.file}:{source.line}:{source.column})" if source else ""
    stays = f"; {action.before.name} was left unchanged" if action.before else ""
    return "; ".join(one.describe() for one in found) + place + stays
