"""Many values in one test case, because a case costs more than many test bodies."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

import pytest

Test = Callable[..., None]


def each(names: str | Sequence[str], values: Iterable[Any]) -> Callable[[Test], Test]:
    """Run a test for each of the values, like `parametrize`, but as one case that names every failure.

    All values share the fixtures.
    """
    every = [names] if isinstance(names, str) else [*names]
    known = [dict(zip(every, [one] if isinstance(names, str) else one, strict=True)) for one in values]

    def decorate(test: Test) -> Test:
        @wraps(test)
        def loop(**fixtures: Any) -> None:
            failed: list[tuple[dict[str, Any], BaseException]] = []
            for given in known:
                try:
                    test(**fixtures, **given)
                except (Exception, pytest.fail.Exception) as failure:
                    failed.append((given, failure))
            if failed:
                (first, error), *others = failed
                error.add_note(f"{len(failed)} of {len(known)} failed; this is {first}")
                error.add_note("\n".join(f"{given}: {other!r}"[:300] for given, other in others))
                raise error

        signature = inspect.signature(test)
        others = [one for one in signature.parameters.values() if one.name not in every]
        vars(loop)["__signature__"] = signature.replace(parameters=others)
        return loop

    return decorate
