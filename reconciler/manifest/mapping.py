"""A manifest that is data: read as the one file of a stack, so that every rule for files holds for it too."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reconciler.errors import Diagnostic, ManifestInvalid, WrongUsage
from reconciler.manifest.files import StackFiles
from reconciler.manifest.hidden_characters import DIRECTION
from reconciler.manifest.yaml import parse

#: What messages call it, and what stands for its file name in digests and plans.
NAME = "<mapping>"
#: JSON leaves them as they are; in a file, which it is then read as, they are forbidden.
_NOT_IN_YAML = re.compile(f"[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff{DIRECTION}]")


def stack_of(mapping: Mapping[str, Any], root: Path) -> StackFiles:
    """The stack whose one file holds this; `root` is where its records lie.

    Raises:
        WrongUsage: `root` is no directory.
        ManifestInvalid: there is something in it that no manifest can hold, or no `stack`.
    """
    if not root.is_dir():
        raise WrongUsage(Diagnostic("no such directory", f"{root} is not a directory"))
    if not isinstance(mapping, Mapping):
        raise _invalid(f"expected a mapping, got {type(mapping).__name__}")
    if "stack" not in mapping:
        raise _invalid("`stack` is missing", 'add "stack": "my-stack"')
    directory = root.resolve()
    path = directory / NAME
    document = parse(_yaml(mapping), path, NAME)
    document.relative = NAME
    return StackFiles(directory, (document,), frozenset({path}))


def _yaml(mapping: Mapping[str, Any]) -> bytes:
    """The same as YAML, which JSON is."""
    try:
        text = json.dumps(mapping, indent=2, ensure_ascii=False, allow_nan=False, default=_refuse)
        text = _NOT_IN_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
        return text.encode()
    except UnicodeEncodeError:
        raise _invalid("text contains an unpaired surrogate") from None
    except (ValueError, TypeError, RecursionError) as error:
        raise _invalid(str(error)) from None


def _refuse(value: object) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a manifest cannot contain a value of type {type(value).__name__}")


def _invalid(why: str, fix: str | None = None) -> ManifestInvalid:
    return ManifestInvalid(Diagnostic("invalid manifest", why, fix))
