"""Bounds on the cost of a manifest: thousands of names, large values, many warnings."""

from __future__ import annotations

import random
import string
import time

import pytest

from reconciler.manifest.problems import did_you_mean, listed
from tests.manifest.conftest import HEAD, JOB, WITH_X, Place

MANY = 300
_RANDOM = random.Random(1)  # reproducible
NAMES = ["".join(_RANDOM.choices(string.ascii_lowercase, k=10)) for _ in range(MANY)]


def misspelt(name: str) -> str:
    at = _RANDOM.randrange(len(name))
    return name[:at] + "0" + name[at + 1 :]


def jobs(*bodies: str) -> str:
    return "jobs:\n" + "".join(f"  job{n}:{body}" for n, body in enumerate(bodies))


#: Candidates for the nearest name: those of a model, of the stack, of a list, and secrets in one line.
MISSPELT = {
    "fields": jobs(JOB + "".join(f"    algoritm{n}: {{}}\n" for n in range(MANY))),
    "variables": f"variables: {{{', '.join(f'{name}: {{default: 1}}' for name in NAMES)}}}\n"
    + jobs(*(WITH_X % f"'${{var.{misspelt(name)}}}'" for name in NAMES)),
    "needs": "jobs:\n" + "".join(f"  {name}:{JOB}    needs: [{misspelt(name)}]\n" for name in NAMES),
    "members of one list": jobs(
        JOB.replace(
            "engine:", f"parameters: [{', '.join(f'{{name: p{n}, valeu: 1}}' for n in range(MANY))}], engine:"
        )
    ),
    "secrets in one line": "jobs: {"
    + ", ".join(
        f"a{n}: {{algorithm: {{parameters: {{p: {{value: hunter{n}, sensitive: yes}}}}}}}}"
        for n in range(MANY)
    )
    + "}\n",
}


@pytest.mark.parametrize("text", MISSPELT.values(), ids=MISSPELT)
def test_thousand_misspelt_names_are_reported_quickly(place: Place, text: str) -> None:
    place.write(HEAD + text)
    started = time.process_time()
    problems = place.problems()
    took_s = time.process_time() - started
    assert len(problems) > MANY * 0.9
    # Half a second on an idle machine, two with a thousand secrets; quadratic comparison takes minutes.
    assert took_s < 6


@pytest.mark.parametrize("known", [NAMES[:50], NAMES])
def test_nearest_name_is_found_among_few_and_many(known: list[str]) -> None:
    found = [did_you_mean(misspelt(name), known) == f'did you mean "{name}"?' for name in known]
    assert sum(found) > 0.98 * len(found)
    assert did_you_mean("0123456789", known) is None
    assert did_you_mean(known[0].upper(), known) == f'did you mean "{known[0]}"?'
    assert did_you_mean("x" * 1_000_000, ["x" * 90, *known]) is None


def test_long_list_of_names_is_cut_and_counted() -> None:
    assert listed(["a", "b"]) == "a, b"
    assert listed([str(n) for n in range(25)]).endswith("18, 19 and 5 more")


# ── warnings ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("count", "shown"), [(20, 20), (21, 21), (1000, 21)])
def test_warnings_of_one_kind_beyond_twenty_are_counted(place: Place, count: int, shown: int) -> None:
    place.write(
        f"{HEAD}variables:\n" + "".join(f"  v{n}: {{default: x, sensitive: true}}\n" for n in range(count))
    )
    warnings = place.load().warnings
    assert len(warnings) == shown
    if count > 20:
        assert (warnings[-1].what, warnings[-1].why) == ("literal secret", f"{count - 20} more like this")
