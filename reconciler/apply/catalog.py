"""Reads the catalog of a target, for pre-flight and right before a replace terminates the old job.

Source: docs/concepts/guards.md, "Pre-flight"; docs/concepts/crash-safety.md, "Apply", point 4.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from reconciler.core.catalog import (
    EngineOffer,
    Offers,
    PoolChoice,
    RecordQuota,
    needs_engines,
    needs_flavors,
    pools,
)
from reconciler.core.ports import Catalog
from reconciler.decide.plan import PlannedAction
from reconciler.decide.preflight import CatalogAnswers, UncheckedPart, refused_in_body
from reconciler.errors import Interrupted, NotOffered, NotSupported, Rejected, ServiceError

_T = TypeVar("_T")


class CatalogReader:
    """Reads a catalog and caches its parts. Thread-safe.

    `open_catalog` may raise `NotSupported`. Methods raise `ServiceError` if their part cannot be read.
    """

    def __init__(self, open_catalog: Callable[[], Catalog]) -> None:
        self._open_catalog = open_catalog
        self._locks: dict[object, threading.Lock] = {}
        self._answers: dict[object, Any] = {}
        self._failures: dict[object, ServiceError] = {}

    def most_nodes(self) -> Mapping[str, int | None] | None:
        """The public flavors with their maximum number of nodes. None if the list may be incomplete."""
        flavors = self._ask_once("flavors", lambda catalog: catalog.flavor_offers())
        return {one.flavor_id: one.max_nodes for one in flavors.items} if flavors.is_whole else None

    def engines(self) -> list[EngineOffer] | None:
        """The preset engines. None if the list may be incomplete."""
        engines = self._ask_once("engines", lambda catalog: catalog.engine_offers())
        return [one for one in engines.items if one.engine_id] if engines.is_whole else None

    def pool_refusal(self, choice: PoolChoice) -> Rejected | None:
        """The error with which a pool would be refused. None if there is none."""
        return self._ask_once(choice, lambda catalog: catalog.pool_refusal(*choice))

    def quota(self) -> RecordQuota | None:
        """Limit and use of the quota of job records. None if there is no limit."""
        return self._ask_once("quota", lambda catalog: catalog.record_quota())

    def forget_failures(self) -> None:
        """Forget failures, so that these parts are read again."""
        self._failures.clear()

    def _ask_once(self, part: object, ask: Callable[[Catalog], _T]) -> _T:
        # One lock per part; `setdefault` is atomic.
        with self._locks.setdefault(part, threading.Lock()):
            if known := self._failures.get(part):
                raise known
            if part not in self._answers:
                try:
                    self._answers[part] = ask(self._open_catalog())
                except Interrupted:  # not a failure of the part
                    raise
                except ServiceError as failure:
                    self._failures[part] = failure
                    raise
            answer: _T = self._answers[part]
            return answer


def answers_about(
    reader: CatalogReader,
    starting: Sequence[PlannedAction],
    *,
    with_offers: bool = True,
    with_quota: bool = True,
) -> CatalogAnswers:
    """Read the parts of the catalog that are needed to check these jobs.

    Sequentially on the caller's thread, so that an interrupt takes effect at once. Parts that cannot be read
    are in `unchecked`.

    Raises:
        Interrupted: a stop was requested.
    """
    bodies = [action.desired or {} for action in starting] if with_offers else []
    unchecked: list[UncheckedPart] = []

    def ask(part: object, question: Callable[[], _T | None]) -> _T | None:
        try:
            return question()
        except Interrupted:
            raise
        except NotSupported:  # the target lacks this part
            return None
        except ServiceError as failure:
            # Without the request id, so that the same failure gives the same plan.
            marks = ", ".join(
                filter(None, [failure.code, f"HTTP {failure.status}" if failure.status else ""])
            )
            why = f"{failure.what}: {failure.message}" + (f" ({marks})" if marks else "")
            unchecked.append(UncheckedPart(str(part), why))
            return None

    pool_choices = dict.fromkeys(choice for body in bodies for _, choice in pools(body))
    refusals = {choice: ask(choice, partial(reader.pool_refusal, choice)) for choice in pool_choices}
    return CatalogAnswers(
        Offers(
            ask("flavors", reader.most_nodes) if any(map(needs_flavors, bodies)) else None,
            ask("engines", reader.engines) if any(map(needs_engines, bodies)) else None,
        ),
        {choice: refusal.message for choice, refusal in refusals.items() if refusal is not None},
        ask("quota", reader.quota) if starting and with_quota else None,
        tuple(unchecked),
    )


class CreateChecks:
    """Checks creates of replaces against the catalog of a target. Thread-safe.

    Parts that cannot be read are reported once to `warn`, and refuse nothing. The results of pre-flight are
    reused.
    """

    def __init__(self, reader: CatalogReader, warn: Callable[[str], None]) -> None:
        self._reader, self._warn = reader, warn
        self._lock = threading.Lock()
        self._unread: set[str] = set()
        reader.forget_failures()

    def check(self, action: PlannedAction) -> None:
        """Check that the target offers what an action will create.

        Raises:
            NotOffered: it does not; the message has field, value, nearest offer and place in the manifest.
            Interrupted: a stop was requested.
        """
        answers = answers_about(self._reader, [action], with_quota=False)
        with self._lock:
            new = [one for one in answers.unchecked if one.part not in self._unread]
            self._unread.update(one.part for one in new)
        for one in new:
            self._warn(f"cannot check {one.part} before replacing: {one.why}")
        found = refused_in_body(action.desired or {}, answers)
        if not found:
            return
        source, words = action.source, "; ".join(one.detail for one in found)
        if source:
            words += f" ({source.file}:{source.line}:{source.column})"
        if action.before:
            words += f"; {action.before.name} was left unchanged"
        # For a pool, use the error of the service.
        refusal = next(filter(None, map(self._reader.pool_refusal, answers.refused_pools)), None)
        marks = ("code", "status", "request_id") if refusal else ()
        raise NotOffered(words, **{name: getattr(refusal, name) for name in marks})
