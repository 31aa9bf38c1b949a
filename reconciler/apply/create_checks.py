"""What can be known of a create before the job that it replaces is ended: whether the target offers it.

Source: docs/semantics.md, "Apply", point 4.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from reconciler.core.observed.catalog import Missing, Offers, missing, needs_engines, needs_flavors, pools
from reconciler.core.planning.plan import PlannedAction
from reconciler.core.ports import Catalog, NotOffered, Rejected, ServiceError

_T = TypeVar("_T")


class CreateChecks:
    """Asks the catalog of one target, each part once for all actions; safe to use from several threads.

    Without a catalog nothing is known, and nothing is refused. A part that cannot be asked says nothing: it
    is said once to `warn`, and the action goes on.
    """

    def __init__(self, catalog: Catalog | None, warn: Callable[[str], None]) -> None:
        self._catalog, self._warn = catalog, warn
        self._lock = threading.Lock()
        self._answers: dict[object, Any] = {}

    def check(self, action: PlannedAction) -> None:
        """See that the target offers what an action is to create.

        Raises:
            NotOffered: it does not; the words name field, value, the nearest offer and the manifest's place.
        """
        body = action.desired or {}
        if self._catalog is None:
            return
        if found := missing(body, self._offers(self._catalog, body)):
            raise NotOffered(_words(found, action))
        for use in pools(body):
            refusal = self._pool_refusal(self._catalog, use.pool_id, use.flavor_id)
            if refusal is not None:
                refused = Missing(use.path, use.pool_id, why=f"is rejected by the service: {refusal.message}")
                raise NotOffered(
                    _words([refused], action),
                    code=refusal.code,
                    status=refusal.status,
                    request_id=refusal.request_id,
                )

    def _offers(self, catalog: Catalog, body: Mapping[str, Any]) -> Offers:
        flavors = self._asked_once("flavors", catalog.flavor_offers) if needs_flavors(body) else None
        engines = self._asked_once("engines", catalog.engine_offers) if needs_engines(body) else None
        return Offers(
            {one.flavor_id: one.max_nodes for one in flavors.items} if flavors and flavors.is_whole else None,
            [one for one in engines.items if one.engine_id] if engines and engines.is_whole else None,
        )

    def _pool_refusal(self, catalog: Catalog, pool_id: str, flavor_id: str | None) -> Rejected | None:
        wanted = f"pool {pool_id}" + (f" with {flavor_id}" if flavor_id else "")
        return self._asked_once(wanted, lambda: catalog.pool_refusal(pool_id, flavor_id))

    def _asked_once(self, what: str, ask: Callable[[], _T | None]) -> _T | None:
        """Ask, or remember the answer; None where it is not known."""
        with self._lock:
            if what not in self._answers:
                self._answers[what] = self._asked(what, ask)
            answer: _T | None = self._answers[what]
            return answer

    def _asked(self, what: str, ask: Callable[[], _T | None]) -> _T | None:
        try:
            return ask()
        except ServiceError as failure:
            why = failure.diagnostics[0]
            self._warn(f"cannot check {what} before replacing: {why.what}: {why.why}")
            return None


def _words(found: list[Missing], action: PlannedAction) -> str:
    source = action.source
    place = f" ({source.file}:{source.line}:{source.column})" if source else ""
    stays = f"; {action.before.name} was left unchanged" if action.before else ""
    return "; ".join(one.describe() for one in found) + place + stays
