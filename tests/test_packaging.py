"""pyproject.toml declares every import, its lower bounds can be tested, and the lock matches it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from reconciler.extras import EXTRAS as EXTRAS_OF_MODULES
from tests.sources import modules

ROOT = Path(__file__).parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = SETTINGS["project"]
EXTRAS = PROJECT["optional-dependencies"]
LOCK = (ROOT / "requirements-dev.txt").read_text(encoding="utf-8")

#: Declared, but used without an import.
NOT_IMPORTED = {
    "tzdata": "zoneinfo reads the time zones from it where the system has none",
    "ruamel-yaml-clib": "ruamel.yaml.cyaml is the Python side of it",
}
#: Imported for the type checker only, which provides it.
ONLY_FOR_TYPES = {"_typeshed"}
#: Used as a command or pytest plugin, by the moto server, or as type stubs.
TOOLS = {
    "flask",
    "flask-cors",
    "mypy",
    "pytest-cov",
    "pytest-timeout",
    "pytest-xdist",
    "ruff",
    "types-jsonschema",
    "types-psutil",
    "types-requests",
}


def _requirements(*sections: list[str]) -> dict[str, Requirement]:
    found = [Requirement(text) for section in sections for text in section]
    return {canonicalize_name(one.name): one for one in found if one.name != "reconciler"}


RUNTIME = _requirements(PROJECT["dependencies"])
#: Extras that are optional features.
FEATURES = _requirements(*(EXTRAS[one.name] for one in EXTRAS_OF_MODULES.values()))
TEST = _requirements(EXTRAS["test"])
EVERYTHING = _requirements(PROJECT["dependencies"], *EXTRAS.values(), SETTINGS["build-system"]["requires"])


# ── imports ──────────────────────────────────────────────────────────────────────────────────────


@cache
def _imported_modules(directory: str) -> set[str]:
    found: set[str] = set()
    trees = (
        modules().values()
        if directory == "reconciler"
        else (ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / directory).rglob("*.py"))
    )
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module)
    return found


_distributions = cache(packages_distributions)


def _imported(*directories: str) -> set[str]:
    """Return the imported distributions, including all that share a namespace such as `ruamel`."""
    modules = {name.partition(".")[0] for directory in directories for name in _imported_modules(directory)}
    foreign = modules - sys.stdlib_module_names - ONLY_FOR_TYPES
    foreign -= {"reconciler", "tests", "docs", "benchmarks"}
    by_module = _distributions()
    unknown = foreign - set(by_module)
    # A package that is not installed counts as its own distribution.
    installed = {one for name in foreign - unknown for one in by_module[name]}
    return {canonicalize_name(one) for one in installed} | unknown


def test_every_import_is_declared_and_every_dependency_used_or_explained() -> None:
    package, features = _imported("reconciler"), {*RUNTIME, *FEATURES}
    assert package - features == set()
    assert features - package == set(NOT_IMPORTED) - package
    assert _imported("tests", "docs", "benchmarks") - set(EVERYTHING) == set()
    tests = set(_requirements(EXTRAS["test"], EXTRAS["dev"])) - TOOLS
    assert tests - {"huaweicloudsdkmodelarts"} - _imported("tests") == set()


def test_extras_equal_those_named_by_errors_and_all_has_each() -> None:
    named = {one.name: {canonicalize_name(one.package)} for one in EXTRAS_OF_MODULES.values()}
    assert {name: set(_requirements(EXTRAS[name])) for name in named} == named
    [every] = EXTRAS["all"]
    assert Requirement(every).extras == named.keys()


# ── lower bounds ───────────────────────────────────────────────────────────────────────────────────


def test_every_requirement_is_only_a_lower_bound() -> None:
    """An upper bound would forbid untested versions; a missing lower one would allow broken ones."""
    assert {one.operator for of in EVERYTHING.values() for one in of.specifier} == {">="}
    assert [name for name, of in EVERYTHING.items() if len(of.specifier) != 1] == []


def test_lowest_versions_equal_the_bounds() -> None:
    command = [sys.executable, str(ROOT / ".ci/lowest.py"), str(ROOT / "pyproject.toml")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = _requirements(done.stdout.splitlines())
    expected = RUNTIME | FEATURES | TEST | _requirements(SETTINGS["build-system"]["requires"])
    assert {name: str(one.specifier).removeprefix("==") for name, one in found.items()} == {
        name: str(one.specifier).removeprefix(">=") for name, one in expected.items()
    }
    assert found["psycopg"].extras == {"binary"}


def test_ci_tests_lowest_versions_on_lowest_python_and_newest_on_3_13() -> None:
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")
    lowest = PROJECT["requires-python"].removeprefix(">=")
    assert re.findall(r"^try_on (\w+) ([\d.]+)$", script, re.M) == [
        ("lowest", lowest),
        ("newest", "3.13"),
    ]


def test_ci_names_existing_tests() -> None:
    named = set(re.findall(r"\btests/[\w/.]+", (ROOT / ".ci/quick").read_text(encoding="utf-8")))
    assert len(named) > 20
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


# ── the lock ───────────────────────────────────────────────────────────────────────────────────────

PINNED = re.compile(r"^([a-z0-9-]+)==([^ ;\\]+)", re.M)


def _pins() -> dict[str, set[Version]]:
    pins: dict[str, set[Version]] = {}
    for name, version in PINNED.findall(LOCK):
        pins.setdefault(name, set()).add(Version(version))
    return pins


def test_locked_versions_satisfy_the_bounds() -> None:
    pins = _pins()
    assert EVERYTHING.keys() - pins.keys() == set(), "requirements-dev.txt lacks them: see CONTRIBUTING.md"
    wrong = {name for name, of in EVERYTHING.items() for pin in pins[name] if not of.specifier.contains(pin)}
    assert wrong == set()


# ── the page on security ───────────────────────────────────────────────────────────────────────────


def test_every_test_named_on_the_security_page_exists() -> None:
    page = (ROOT / "docs/operations/security.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page)
    assert len(named) > 10
    for path, test in named:
        text = (ROOT / path).read_text(encoding="utf-8")
        assert not test or f"def {test}(" in text, f"{path} has no {test}"
