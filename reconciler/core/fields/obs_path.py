"""A path in object storage, as a manifest writes it, and what the service demands of it.

A path begins with obs:// or a slash, a directory ends in a slash (ModelArts.2791), and boot_file lies inside
code_dir (2792). file:// means a place in the image. Source: docs/modelarts.md, "Create request".
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from reconciler.core.fields.marks import Mark

_FORM = re.compile(r"(?:(?:obs|s3):/)?/[^/]+(?:/.*)?", re.DOTALL)
_SCHEME = re.compile(r"^(?:(?:obs|s3):/|file://)(?=/)")
IN_IMAGE = "file://"

#: pydantic's name of these errors, by which their words and their place are found.
INVALID_PATH, OUTSIDE = "obs_path", "boot_file_outside"


def _wrong(rule: str, fix: str | None) -> PydanticCustomError:
    return PydanticCustomError(INVALID_PATH, "{rule}", {"rule": rule, "fix": fix or ""})


def check_path(path: str) -> str:
    """Refuse what is not a path in object storage; "" says nothing.

    Raises:
        PydanticCustomError: the rule that it breaks, and a repair if one is near.
    """
    if path and not _FORM.fullmatch(path):
        lacks_scheme = re.fullmatch(r"[a-z0-9][a-z0-9.-]*/.*", path, re.DOTALL)
        fix = f'write "obs://{path}"' if lacks_scheme else None
        raise _wrong("must be obs://BUCKET/… or /BUCKET/…", fix)
    return path


def check_given(path: str) -> str:
    """Refuse "" where a place must be named."""
    if not path:
        raise _wrong("must be obs://BUCKET/… or /BUCKET/…", None)
    return path


def check_directory(path: str) -> str:
    """Refuse what is not a directory in object storage."""
    check_path(path)
    if path and not path.endswith("/"):
        raise _wrong("a directory must end in / (ModelArts.2791)", f'write "{path}/"')
    return path


def check_code_dir(path: str) -> str:
    """Refuse what is neither a directory in object storage nor a place in the image."""
    return path if path.startswith(IN_IMAGE) else check_directory(path)


def check_boot_file(path: str) -> str:
    """Refuse what is neither a file in object storage nor one in the image."""
    if not path.startswith(IN_IMAGE):
        check_path(path)
    if path.endswith("/"):
        raise _wrong("boot_file must be a file, not a directory (ModelArts.2758)", None)
    return path


def is_inside(file: str, directory: str) -> bool:
    """Whether a file lies in a directory or below it; with and without obs:// is the same place."""
    return _bare(file).startswith(_bare(directory).rstrip("/") + "/")


def outside() -> PydanticCustomError:
    """The error that boot_file is outside code_dir, to be raised for the model that holds both."""
    return PydanticCustomError(
        OUTSIDE, "boot_file is outside code_dir", {"field": "boot_file", "beside": "code_dir"}
    )


def _bare(path: str) -> str:
    return _SCHEME.sub("", path)


def _schema(words: str, *forms: str) -> WithJsonSchema:
    """The same rule for an editor."""
    return WithJsonSchema({"type": "string", "pattern": f"^(?:{'|'.join(forms)})$", "$comment": words})


_ANY, _EMPTY, _IMAGE = r"[\s\S]*", "", "file://"
_AT, _DIRECTORY_AT = "obs://BUCKET/… or /BUCKET/…", "obs://BUCKET/… or /BUCKET/…, ending in /"
_BUCKET = "(?:(?:obs|s3):/)?/[^/]+"
_PLACE, _DIRECTORY = f"{_BUCKET}(?:/{_ANY})?", f"{_BUCKET}/(?:{_ANY}/)?"
#: A file or a directory: nobody can tell which by its name.
ObsPath = Annotated[str, Mark.OBS_PATH, AfterValidator(check_path), _schema(_AT, _EMPTY, _PLACE)]
ObsDirectory = Annotated[
    str, Mark.OBS_PATH, AfterValidator(check_directory), _schema(_DIRECTORY_AT, _EMPTY, _DIRECTORY)
]
#: The path of a volume, of which every spelling is another one.
VolumePath = Annotated[str, AfterValidator(check_path), _schema(_AT, _EMPTY, _PLACE)]
#: A path where "" does not do.
GivenPath = Annotated[ObsPath, AfterValidator(check_given), _schema(_AT, _PLACE)]
GivenDirectory = Annotated[ObsDirectory, AfterValidator(check_given), _schema(_DIRECTORY_AT, _DIRECTORY)]
CodeDirectory = Annotated[
    str,
    Mark.OBS_PATH,
    AfterValidator(check_code_dir),
    _schema(f"{_DIRECTORY_AT}, or file://…", _EMPTY, _DIRECTORY, _IMAGE + _ANY),
]
BootFile = Annotated[
    str,
    Mark.OBS_PATH,
    AfterValidator(check_boot_file),
    _schema(
        f"{_AT}, or file://…, not ending in /",
        _EMPTY,
        f"{_BUCKET}(?:/(?:{_ANY}[^/])?)?",
        f"{_IMAGE}{_ANY}[^/]",
    ),
]
