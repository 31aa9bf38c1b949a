"""The bytes of a plan file as plain data: JSON as its standard has it, and nothing that libraries add to it.

What two readers could take for two things is refused: a key that stands there twice, NaN, a number that no
float holds, another encoding than UTF-8.

Source: RFC 8259; docs/cli.md, "Saved plans".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

#: A plan of ten thousand jobs is a tenth of this.
MOST_BYTES = 256 * 1024 * 1024
#: Values take some hundred bytes of memory each, however short they are written.
MOST_VALUES = 10_000_000
#: A manifest holds no longer number either.
_MOST_DIGITS = 300
_LONGEST_QUOTED = 40
_SURROGATE = re.compile("[\ud800-\udfff]")
#: Half of a surrogate pair that stands for a byte of a file name that is no UTF-8.
_BYTE_OF_A_NAME = re.compile("[\udc80-\udcff]")
#: Members of an action, and of the document, whose texts come from a manifest or the service as they are.
_FREE_TEXTS = frozenset({"desired", "declared", "changes", "detail", "warnings"})
#: Members that name files.
_FILE_NAMES = frozenset({"file", "root"})


class NotAPlanFile(ValueError):
    """The bytes are no JSON document that `plan --out` could have written; the words say why."""


def parse(data: bytes) -> Any:
    """Return the document as plain data.

    Raises:
        NotAPlanFile: it is no JSON, or ambiguous, or has more in it than any plan.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotAPlanFile(
            f"byte {error.start + 1} is not valid UTF-8; another program may have rewritten the file"
        ) from None
    if sum(map(data.count, (b",", b":", b"[", b"{"))) > MOST_VALUES:
        raise NotAPlanFile(f"it holds more than {MOST_VALUES:,} values")
    try:
        return _DECODER.decode(text)
    except NotAPlanFile:
        raise
    except RecursionError:
        raise NotAPlanFile("not a valid JSON document: nested too deeply") from None
    except ValueError:
        raise NotAPlanFile("not a valid JSON document; it may be truncated") from None


def is_json(document: Mapping[str, Any]) -> bool:
    """Whether all of a document can be written as JSON: infinity and NaN cannot."""
    try:
        json.dumps(document, allow_nan=False)
    except ValueError:
        return False
    return True


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise NotAPlanFile(f"{json.dumps(_short(twice))} occurs twice in one object")
    return members


def _integer(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise NotAPlanFile(f"a number has more than {_MOST_DIGITS} digits")
    return int(text)


def _number(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise NotAPlanFile(f"{_short(text)} is out of range for a number")
    return value


def _constant(text: str) -> NoReturn:
    raise NotAPlanFile(f"{text} is not a JSON number")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_int=_integer, parse_float=_number, parse_constant=_constant
)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_QUOTED else text[: _LONGEST_QUOTED - 1] + "…"


def unreadable_texts(document: Mapping[str, Any]) -> Iterator[str]:
    """Say, for people, where half of a surrogate pair or NUL stands that no plan has there.

    Names of files may hold bytes that are no UTF-8; what comes from a manifest may hold NUL.
    """
    # The whole text is searched first, which is quick: hardly any plan has either.
    text = json.dumps(document, ensure_ascii=False)
    if "\\u0000" in text or _SURROGATE.search(text):
        yield from _in_tree(document, (), is_free=False)


def _in_tree(tree: Any, path: tuple[str, ...], *, is_free: bool) -> Iterator[str]:
    if isinstance(tree, str):
        yield from _in_text(tree, path, is_free=is_free)
    elif isinstance(tree, list):
        for place, value in enumerate(tree):
            yield from _in_tree(value, (*path, str(place)), is_free=is_free)
    elif isinstance(tree, Mapping):
        for name, value in tree.items():
            yield from _in_text(name, (*path, "a name"), is_free=is_free)
            yield from _in_tree(value, (*path, name), is_free=is_free or name in _FREE_TEXTS)


def _in_text(text: str, path: tuple[str, ...], *, is_free: bool) -> Iterator[str]:
    if path[-1] in _FILE_NAMES and not is_free:
        text = _BYTE_OF_A_NAME.sub("", text)
    where = ".".join(_SURROGATE.sub("?", name) for name in path)
    if _SURROGATE.search(text):
        yield f"{where}: unpaired surrogate"
    if "\0" in text and not is_free:
        yield f"{where}: NUL character"
