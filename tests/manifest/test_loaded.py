"""Manifests that load, and what is loaded of each: `loaded.txt` says both."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.manifest import LoadedStack
from reconciler.secrets import show
from tests.manifest.conftest import Place


def cases() -> Iterator[Any]:
    """Each manifest with the lines of options and values behind it."""
    text = Path(__file__).with_name("loaded.txt").read_text(encoding="utf-8")
    for section in text.split("\n## ")[1:]:
        head, _, body = section.partition("\n\n")
        title, _, end = head.partition("\n")
        manifest: list[str] = []
        asked: list[str] = []
        for line in [*body.rstrip().split("\n"), ""]:
            is_asked = line.startswith(("= ", "$ "))
            if asked and not is_asked:
                identity = f"{title}: {' '.join(manifest)}"
                yield pytest.param("\n".join([*manifest, end, ""]), asked, id=identity)
                manifest, asked = [], []
            (asked if is_asked else manifest).append(line)


def load(place: Place, options: str) -> LoadedStack:
    """Load the stack with the options and environment variables of a command line."""
    words = iter(shlex.split(options))
    given: dict[str, Any] = {"variables": {}, "environ": {}}
    for word in words:
        if word == "--var":
            name, _, value = next(words).partition("=")
            given["variables"][name] = value
        elif word == "--target":
            given["target"] = next(words)
        else:
            name, _, value = word.partition("=")
            given["environ"][name] = value
    return place.load(**given)


def value_of(loaded: LoadedStack, subject: str, name: str) -> Any:
    """What is loaded of a job, or of the stack, as JSON has it."""
    if subject in ("keys", "declared", "secrets"):
        stack = loaded.stack
        return {
            "keys": list(stack.jobs),
            "declared": sorted(stack.declared_keys),
            "secrets": list(loaded.secrets),
        }[subject]
    job = loaded.stack.jobs[subject]
    if name == "lifecycle":
        return f"{job.lifecycle.on_change} {job.lifecycle.max_retries} {job.lifecycle.protect}"
    if name in ("needs", "formerly"):
        return list(getattr(job, name))
    if name in ("description", "is_absent", "body"):
        return getattr(job, name)
    assert job.body is not None
    algorithm = job.body.get("algorithm", {})
    listed = {"parameters": ("value",), "inputs": ("remote", "obs", "obs_url")}
    if name == "environments":
        return algorithm.get(name, {})
    if name in listed:
        return {one["name"]: _below(one, listed[name]) for one in algorithm.get(name, [])}
    return _below(job.body, name.split("."))


def _below(tree: Any, steps: Any) -> Any:
    for step in steps:
        tree = tree[int(step)] if isinstance(tree, list) else tree[step]
    return tree


@pytest.mark.parametrize(("manifest", "asked"), list(cases()))
def test_stack_is_loaded_as_its_manifest_says(place: Place, manifest: str, asked: list[str]) -> None:
    place.write(manifest)
    loaded = place.load() if asked[0].startswith("= ") else None
    for line in asked:
        if line.startswith("$ "):
            loaded = load(place, line[2:])
            continue
        assert loaded is not None
        subject, rest = line[2:].split(" ", 1)
        if subject in ("same", "differ"):
            digests = [loaded.stack.jobs[key].digest for key in rest.split()]
            assert len(set(digests)) == (1 if subject == "same" else len(digests)), line
            continue
        name, _, value = ("", "", rest) if subject in ("keys", "declared", "secrets") else rest.partition(" ")
        found = show(value_of(loaded, subject, name))
        expected = value if name == "lifecycle" else json.loads(value)
        assert found == expected, line
        assert type(found) is type(expected) or isinstance(found, type(expected)), line
