"""KEY and PATH arguments of one command line, told apart."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from reconciler.cli.terminal.console import console
from reconciler.text import printable

_SEPARATORS = tuple(filter(None, (os.sep, os.altsep)))
_SUFFIXES = (".yaml", ".yml")


class Arguments(NamedTuple):
    """The keys, each once and in the order in which they were named, and the paths."""

    keys: tuple[str, ...] = ()
    paths: tuple[Path, ...] = ()


#: Whether the stack at these paths has a key.
HasKey = Callable[[Sequence[Path], str], bool]


def split_arguments(words: Sequence[str], has_key: HasKey, command: str) -> Arguments:
    """Tell keys from paths: what exists, holds a separator or ends in .yaml or .yml is a path.

    A key may have the name of a directory, in which its code is. It is the key then if the stack has it
    and another path follows. Without one it is the path, and stderr says how `command` is told the key.
    """
    places = [place for place, word in enumerate(words) if _is_path(word)]
    paths = [Path(words[place]) for place in places]
    keys: list[str] = []
    for place, word in enumerate(words):
        if place not in places:
            keys.append(word)
        elif _may_be_key(word) and has_key(paths, word):
            if place != places[-1]:
                keys.append(word)
                paths.remove(Path(word))
            elif not keys:
                also = f"{word} is both a path and a key; for the key use: reconciler {command} {word} ."
                console.say(printable(also))
    return Arguments(tuple(dict.fromkeys(keys)), tuple(paths))


def _is_path(word: str) -> bool:
    looks_like_one = any(s in word for s in _SEPARATORS) or word.lower().endswith(_SUFFIXES)
    return looks_like_one or Path(word).exists()


def _may_be_key(word: str) -> bool:
    from reconciler.core.identity import KEY_PATTERN

    return KEY_PATTERN.fullmatch(word) is not None
