"""Packages that only some features need, each an extra of this package."""

from __future__ import annotations

from importlib.util import find_spec
from typing import NamedTuple

from reconciler.errors import PackageMissing


class Extra(NamedTuple):
    """An extra, the package that it installs, and what the package does."""

    name: str
    package: str
    purpose: str


#: By the module that is imported. Keep in step with pyproject.toml, which has the versions.
EXTRAS = {
    "apprise": Extra("notify", "apprise", "sends notifications"),
    "cel": Extra("policies", "common-expression-language", "evaluates policies"),
    "distributed": Extra("fleet", "distributed", "connects to a scheduler"),
    "obstore": Extra("code", "obstore", "uploads code"),
    "psycopg": Extra("postgres", "psycopg", "keeps records on PostgreSQL"),
    "waitress": Extra("emulator", "waitress", "serves the emulator over HTTP"),
}


def missing(module: str) -> PackageMissing:
    """Return the error for a module that cannot be imported, with the command that installs it."""
    extra = EXTRAS[module]
    why = f"{extra.package}, which {extra.purpose}, is not installed"
    return PackageMissing(why, fix=f"pip install 'reconciler[{extra.name}]'")


def require(module: str) -> None:
    """Check that a module can be found, without importing it.

    Raises:
        PackageMissing: its extra is not installed.
    """
    if find_spec(module) is None:
        raise missing(module)
