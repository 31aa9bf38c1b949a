"""The forms of a secret to look for, level by level of what is decoded: see `core.decoding`.

White space, quotes and `+` count for nothing where a form is long enough: a URL writes `+` for a space, a
shell and YAML double or break quotes, and whoever wraps a text puts breaks where there were none.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from functools import cached_property

from reconciler.core.decoding import decode

#: Scanning outputs for shorter values would blank out half of every text, and hide nothing.
SHORTEST_SCANNED = 4
#: So many levels of escapes are looked through.
DEEPEST = 6
#: What counts for nothing in forms of at least this size.
IGNORED = bytes(range(0x21)) + b"\x7f\"'+"
_IGNORED_BYTES = frozenset(IGNORED)
_SHORTEST_SQUEEZED = 8
#: A pattern takes a thousand times the memory of its form.
_LONGEST_PATTERN = 10_000
_GAP = rb"[\x00-\x20\x7f\"'+]*"
#: A line of a secret with several: what says only that a key begins hides nothing.
_NO_SECRET_LINE = re.compile(r"-----(BEGIN|END) [A-Z0-9 ]+-----")
_CUT = rb"(?:\xe2\x80\xa6|\.\.\.)"
_CUT_MARK = re.compile(_CUT)
_BASE64 = rb"[A-Za-z0-9+/_-]?"
#: A part of a secret is known by so many characters, where something says that it was cut.
_SHORTEST_PART = 4


def squeeze(data: bytes) -> bytes:
    """Leave out what counts for nothing."""
    return data.translate(None, IGNORED)


class Form:
    """One form. `key` is in the text, squeezed if it `is_squeezed`, wherever `pattern` is found in it."""

    def __init__(self, form: bytes, *, is_base64: bool = False) -> None:
        squeezed = squeeze(form)
        self.is_squeezed = len(squeezed) >= _SHORTEST_SQUEEZED
        self.key = squeezed if self.is_squeezed else form
        self._is_base64 = is_base64

    @cached_property
    def pattern(self) -> re.Pattern[bytes]:
        """Where it stands. The letters of base64 beside it hold the rest of its first and last byte."""
        pattern = self._pattern(self.key)
        return re.compile(_BASE64 + pattern + _BASE64 + rb"={0,2}" if self._is_base64 else pattern)

    def spans(self, data: bytes, squeezed: bytes) -> Iterator[tuple[int, int]]:
        """The spans of `data` where this form stands, whole."""
        if not self.is_squeezed or self._is_base64 or len(self.key) <= _LONGEST_PATTERN:
            yield from (found.span() for found in self.pattern.finditer(data))
            return
        places = [place for place, byte in enumerate(data) if byte not in _IGNORED_BYTES]
        start = squeezed.find(self.key)
        while start >= 0:
            end = start + len(self.key)
            yield places[start], places[end - 1] + 1
            start = squeezed.find(self.key, end)

    def parts(self, data: bytes, squeezed: bytes) -> Iterator[tuple[int, int]]:
        """The spans of `data` where a part of this form stands before or behind a mark of cutting."""
        key, text = self.key, squeezed if self.is_squeezed else data
        if len(key) <= _SHORTEST_PART or not (key[:_SHORTEST_PART] in text or key[-_SHORTEST_PART:] in text):
            return
        marks = [found.span() for found in _CUT_MARK.finditer(text)]
        begins = {_end_of(text[max(0, start - len(key)) : start], key) for start, _ in marks}
        ends = {_begin_of(text[end : end + len(key)], key) for _, end in marks}
        for begin in begins - {b""}:
            found = re.finditer(rb"(" + self._pattern(begin) + rb")" + _GAP + _CUT, data)
            yield from (one.span(1) for one in found)
        for end in ends - {b""}:
            found = re.finditer(_CUT + _GAP + rb"(" + self._pattern(end) + rb")", data)
            yield from (one.span(1) for one in found)

    def _pattern(self, key: bytes) -> bytes:
        return (_GAP if self.is_squeezed else b"").join(re.escape(key[at : at + 1]) for at in range(len(key)))


def _end_of(text: bytes, key: bytes) -> bytes:
    """The longest beginning of `key` with which a text ends."""
    at = text.find(key[:_SHORTEST_PART])
    while at >= 0 and not key.startswith(text[at:]):
        at = text.find(key[:_SHORTEST_PART], at + 1)
    return text[at:] if at >= 0 else b""


def _begin_of(text: bytes, key: bytes) -> bytes:
    """The longest end of `key` with which a text begins."""
    end = text.rfind(key[-_SHORTEST_PART:])
    while end >= 0 and not key.endswith(text[: end + _SHORTEST_PART]):
        end = text.rfind(key[-_SHORTEST_PART:], 0, end + _SHORTEST_PART - 1)
    return text[: end + _SHORTEST_PART] if end >= 0 else b""


def forms_of(secret: str) -> Iterator[Form]:
    """Every form of a secret that decoding does not lead back to another one."""
    texts = list(dict.fromkeys(_texts(secret)))
    for text in texts:
        for level in _levels(text.encode("utf-8", "surrogatepass")):
            yield from map(Form, _written(level))
    for text in texts[:2]:
        raw = text.encode("utf-8", "surrogatepass")
        yield from (Form(core, is_base64=True) for core in _base64_cores(raw))


def breaks_of(secret: str) -> tuple[str, ...]:
    """The beginnings of a secret that end with a line: a log may have been read so far."""
    lines = secret.strip().replace("\r\n", "\n").splitlines(keepends=True)
    return tuple("".join(lines[:count]) for count in range(1, len(lines)))


def _texts(secret: str) -> Iterator[str]:
    """The secret, and what of it is one by itself: without space around it, line by line."""
    yield secret
    if len(secret.strip()) >= SHORTEST_SCANNED:
        yield secret.strip()
    # In an environment variable the lines of a key often are parted by a backslash and an n.
    lines = [line.strip() for line in secret.replace("\\n", "\n").splitlines()]
    if len(lines) > 1:
        for line in lines:
            if len(line) >= _SHORTEST_SQUEEZED and not _NO_SECRET_LINE.fullmatch(line):
                yield line


def _levels(raw: bytes) -> Iterator[bytes]:
    """The secret as it is left when what holds it is decoded to the end: it may look escaped itself."""
    for _ in range(DEEPEST):
        yield raw
        decoded = decode(raw)
        if decoded is None or len(decoded.data.strip()) < SHORTEST_SCANNED:
            return
        raw = decoded.data


def _written(raw: bytes) -> Iterator[bytes]:
    """UTF-8; as who takes its bytes for characters writes it; and in Latin-1."""
    yield raw
    if len(squeeze(raw)) < _SHORTEST_SQUEEZED:
        yield raw.replace(b" ", b"+")
        yield raw.replace(b"'", b"''")
        yield raw.replace(b'"', b'""')
    if not raw.isascii():
        yield raw.decode("latin-1").encode()
        try:
            yield raw.decode("utf-8").encode("latin-1")
        except UnicodeError:
            return


def _base64_cores(raw: bytes) -> Iterator[bytes]:
    """What of its base64 depends on the secret alone, wherever in a longer text it begins."""
    for shift, first in enumerate((0, 2, 3)):
        core = base64.b64encode(bytes(shift) + raw)[first : (shift + len(raw)) * 8 // 6]
        yield core
        if b"+" in core or b"/" in core:
            yield core.translate(bytes.maketrans(b"+/", b"-_"))
