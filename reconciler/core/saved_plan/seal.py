"""The seals of a saved plan: checksums over what no movement of the service explains.

Each action has one, and the options have one for themselves and the head of the document. What may have
moved meanwhile, another version or another target is stale and not damaged, so it is not under a seal; nor
is what grows with time, for the same plan is the same file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

CHECKSUM = "checksum"
#: The jobs may move, and what they have done grows.
_OPEN_IN_ACTION = ("before", "after", "elapsed", "lost_node_hours")
#: The head's part under the seal of the options.
_HEAD = ("stack", "manifest_digest", "applyable", "complete", "summary", "warnings")
#: Another place is another target, and the plan stale there.
_IDENTITY = ("endpoint", "region", "project_id", "workspace_id")


def seal_of_action(action: Mapping[str, Any], known: Iterable[str]) -> str:
    """The seal of an action, over those of its members that are `known`."""
    return _checksum({name: action[name] for name in known if name in action and name not in _OPEN_IN_ACTION})


def seal_of_options(document: Mapping[str, Any], options: Mapping[str, Any], known: Iterable[str]) -> str:
    """The seal of the options, over those of their members that are `known`, and over the head."""
    said = {name: options[name] for name in known if name in options}
    if isinstance(target := said.get("target"), Mapping):
        said["target"] = {name: value for name, value in target.items() if name not in _IDENTITY}
    return _checksum([{name: document.get(name) for name in _HEAD}, said])


def _checksum(said: Any) -> str:
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def broken(
    document: Mapping[str, Any], known_of_action: Iterable[str], known_of_options: Iterable[str]
) -> Iterator[str]:
    """Say, for people, where a document is not what was written; its shape has been checked."""
    known = tuple(known_of_action)
    for place, action in enumerate(document["actions"]):
        if action.get(CHECKSUM) != seal_of_action(action, known):
            yield f"actions.{place} ({action['key']}): modified since it was written"
    options = document["options"]
    if options.get(CHECKSUM) != seal_of_options(document, options, known_of_options):
        yield "the options or the head of the document were modified since they were written"


def without_seals(document: Mapping[str, Any]) -> dict[str, Any]:
    """The same document without its checksums, which no model knows."""
    result = dict(document)
    if isinstance(actions := result.get("actions"), list):
        result["actions"] = [_without(action) for action in actions]
    result["options"] = _without(result.get("options"))
    return result


def _without(said: Any) -> Any:
    return {k: v for k, v in said.items() if k != CHECKSUM} if isinstance(said, Mapping) else said
