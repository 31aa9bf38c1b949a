"""Many values, one case: what a case costs is more than what many tests do."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

import pytest

Test = Callable[..., None]


def each(names: str | Sequence[str], values: Iterable[Any]) -> Callable[[Test], Test]:
    """Run a test for each of the values, as `parametrize` does, but as one case; all that failed are named.

    Fixtures are the same for all of them.
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
