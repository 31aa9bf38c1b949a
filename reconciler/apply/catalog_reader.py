"""The catalog of one target, each part asked once, for as many actions as want to know."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

from reconciler.core.catalog import EngineOffer, Offers, PoolChoice, RecordQuota
from reconciler.core.ports import Catalog
from reconciler.decide.preflight import CatalogAnswers, CatalogQuestions, UncheckedPart
from reconciler.errors import Interrupted, NotSupported, Rejected, ServiceError

_T = TypeVar("_T")


class _Answer(NamedTuple):
    """What asking for a part came to: a value, or why there is none."""

    value: Any = None
    failure: ServiceError | None = None


class CatalogReader:
    """Asks a catalog, and remembers what it answered or why it did not; safe to use from several threads.

    `open_catalog` may raise `NotSupported`. Each of the questions raises `ServiceError` where its part could
    not be asked.
    """

    def __init__(self, open_catalog: Callable[[], Catalog]) -> None:
        self._open_catalog = open_catalog
        self._lock = threading.Lock()
        self._locks: dict[object, threading.Lock] = {}
        self._answers: dict[object, _Answer] = {}

    def most_nodes(self) -> Mapping[str, int | None] | None:
        """The flavors of the public pools with the most nodes of each; None if the list may have gaps."""
        flavors = self._asked_once("flavors", lambda catalog: catalog.flavor_offers())
        return {one.flavor_id: one.max_nodes for one in flavors.items} if flavors.is_whole else None

    def engines(self) -> list[EngineOffer] | None:
        """The preset engines; None if the list may have gaps."""
        engines = self._asked_once("engines", lambda catalog: catalog.engine_offers())
        return [one for one in engines.items if one.engine_id] if engines.is_whole else None

    def pool_refusal(self, choice: PoolChoice) -> Rejected | None:
        """Why a pool would be refused; None if nothing is known against it."""
        return self._asked_once(choice, lambda catalog: catalog.pool_refusal(*choice))

    def quota(self) -> RecordQuota | None:
        """How many job records there may be, and are; None where that is not limited."""
        return self._asked_once("quota", lambda catalog: catalog.record_quota())

    def forget_failures(self) -> None:
        """Ask again what could not be asked."""
        with self._lock:
            for part in [part for part, answer in self._answers.items() if answer.failure is not None]:
                del self._answers[part]

    def _asked_once(self, part: object, ask: Callable[[Catalog], _T]) -> _T:
        with self._lock:
            lock = self._locks.setdefault(part, threading.Lock())
        with lock:
            answer = self._answers.get(part) or self._asked(ask)
            with self._lock:
                self._answers[part] = answer
        if answer.failure is not None:
            raise answer.failure
        value: _T = answer.value
        return value

    def _asked(self, ask: Callable[[Catalog], Any]) -> _Answer:
        try:
            return _Answer(ask(self._open_catalog()))
        except Interrupted:
            raise
        except ServiceError as failure:
            return _Answer(failure=failure)


def answers_to(reader: CatalogReader, questions: CatalogQuestions) -> CatalogAnswers:
    """Ask several things. What could not be asked is said in the answer.

    One after the other in the thread of the caller, whom an interrupt reaches at once: they are few.

    Raises:
        Interrupted: the program is to stop.
    """
    answers = {part: _attempt(ask) for part, ask in _asks(reader, questions).items()}
    refused = {choice: answers[choice].value for choice in questions.pools}
    return CatalogAnswers(
        Offers(*(_known(answers, part) for part in ("flavors", "engines"))),
        {choice: refusal.message for choice, refusal in refused.items() if refusal is not None},
        _known(answers, "quota"),
        tuple(
            UncheckedPart(str(part), _words(answer.failure), isinstance(answer.failure, NotSupported))
            for part, answer in answers.items()
            if answer.failure is not None
        ),
    )


def _asks(reader: CatalogReader, questions: CatalogQuestions) -> dict[object, Callable[[], Any]]:
    """How each part is asked that is in question."""
    pools: dict[object, Callable[[], Any]] = {
        choice: partial(reader.pool_refusal, choice) for choice in questions.pools
    }
    lists: tuple[tuple[str, bool, Callable[[], Any]], ...] = (
        ("flavors", questions.flavors, reader.most_nodes),
        ("engines", questions.engines, reader.engines),
        ("quota", questions.quota, reader.quota),
    )
    return {**pools, **{part: ask for part, is_asked, ask in lists if is_asked}}


def _known(answers: Mapping[object, _Answer], part: str) -> Any:
    """What a part was answered; None where it was not asked, or could not be."""
    answer = answers.get(part)
    return None if answer is None else answer.value


def _attempt(ask: Callable[[], Any]) -> _Answer:
    try:
        return _Answer(ask())
    except Interrupted:
        raise
    except ServiceError as failure:
        return _Answer(failure=failure)


def _words(failure: ServiceError) -> str:
    """Why, without the id of the request: the same failure gives the same plan."""
    marks = [failure.code, f"HTTP {failure.status}" if failure.status else ""]
    said = ", ".join(filter(None, marks))
    return f"{failure.what}: {failure.message}" + (f" ({said})" if said else "")
