"""Escaped text, one level decoded, with the way back to the places of the original.

A secret can stand in an output as a URL, JSON, HTML, a shell or Python spells it, and each of these may be
escaped again. To look for it in all of these forms the text is decoded, one level after another, and what is
found there is traced back. It is done on UTF-8 bytes: that is what percent encoding counts in.
"""

from __future__ import annotations

import re
from base64 import b64decode
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

#: `text.INVISIBLE`, as UTF-8: a mark without width may stand anywhere in a word, unseen.
INVISIBLE_BYTES = rb"""
    \xc2[\x80-\x9f\xad] | \xcd\x8f | \xd8\x9c
  | \xe1(?:\x85[\x9f\xa0] | \x9e[\xb4\xb5] | \xa0[\x8b-\x8f])
  | \xe2(?:\x80[\x8b-\x8f\xa8-\xae] | \x81[\xa0-\xaf])
  | \xe3\x85\xa4 | \xed[\xa0-\xbf][\x80-\xbf]
  | \xef(?:\xb8[\x80-\x8f] | \xbb\xbf | \xbe\xa0 | \xbf[\xb0-\xbb])
  | \xf0(?:\x93\x90[\xb0-\xbf] | \x9b\xb2[\xa0-\xa3] | \x9d\x85[\xb3-\xba]) | \xf3\xa0[\x80-\xbf][\x80-\xbf]
"""
_TOKEN = (
    rb"""
    %(?:[0-9A-Fa-f]{2} | u[0-9A-Fa-f]{4})                                       # URLs
  | \\u[dD][89abAB][0-9A-Fa-f]{2}\\u[dD][c-fC-F][0-9A-Fa-f]{2}                  # JSON, beyond U+FFFF
  | \\x[c-fC-F][0-9A-Fa-f](?:\\x[89abAB][0-9A-Fa-f]){1,3}                        # bytes of one character
  | \\(?:u[0-9A-Fa-f]{4} | u\{[0-9A-Fa-f]{1,6}\} | U[0-9A-Fa-f]{8} | x[0-9A-Fa-f]{2} | [0-3][0-7]{2}
        | [abefnrtv0] | \r?\n[ \t]* | (?!%[0-9A-Fa-f]{2})[^0-9A-Za-z\x80-\xff])   # JSON, Python, YAML
  | &(?:\#[0-9]{1,7} | \#[xX][0-9A-Fa-f]{1,6} | [A-Za-z][0-9A-Za-z]{1,31});     # HTML
  | \x1b\[[0-9;]*m                                                              # colours
  | """
    + INVISIBLE_BYTES
)
#: Chance does not make so many readable characters in a row of the letters of a word or a path.
_TEXT = 8
_URL_SAFE = bytes.maketrans(b"-_", b"+/")
_LETTERS = dict(zip(b"abefnrtv0", b"\x07\x08\x1b\x0c\x0a\x0d\x09\x0b\x00", strict=True))
_SIGNS = {b"&amp;": b"&", b"&lt;": b"<", b"&gt;": b">", b"&quot;": b'"', b"&apos;": b"'", b"&nbsp;": b" "}


@dataclass(frozen=True, slots=True)
class Decoded:
    """`data`, and for each token that was decoded its place there and in what was decoded."""

    data: bytes
    _at: list[int] = field(default_factory=list)
    _sizes: list[int] = field(default_factory=list)
    _spans: list[tuple[int, int]] = field(default_factory=list)

    def origin(self, start: int, end: int) -> tuple[int, int]:
        """Return the span of the original that `data[start:end]` comes from, `end` not included."""
        return self._origin(start)[0], self._origin(end - 1)[1]

    def _origin(self, place: int) -> tuple[int, int]:
        token = bisect_right(self._at, place) - 1
        if token < 0:
            return place, place + 1
        behind = place - self._at[token] - self._sizes[token]
        if behind < 0:
            return self._spans[token]
        begin = self._spans[token][1] + behind
        return begin, begin + 1


def decode(data: bytes) -> Decoded | None:
    """Decode one level of all escapes; None if there is none."""
    if not has_escapes(data):
        return None
    pieces: list[bytes] = []
    decoded = Decoded(b"")
    size = end = 0
    known: dict[bytes, bytes] = {}
    for found in _token().finditer(data):
        token = found[0]
        meant = known.get(token)
        if meant is None:
            meant = known[token] = _meaning(token)
        if meant == token:
            continue
        begin = found.start()
        pieces += (data[end:begin], meant)
        size += begin - end
        decoded._at.append(size)
        decoded._sizes.append(len(meant))
        end = found.end()
        decoded._spans.append((begin, end))
        size += len(meant)
    if not pieces:
        return None
    pieces.append(data[end:])
    return Decoded(b"".join(pieces), decoded._at, decoded._sizes, decoded._spans)


def base64_texts(data: bytes, shortest: int) -> Iterator[tuple[tuple[int, int], bytes]]:
    """Yield the places in `data` that may be the base64 of a text of `shortest` bytes, with what they hold.

    It may begin at any letter: what stands before it, a path say, may consist of the same letters.
    """
    text = _text_of(min(shortest, _TEXT))
    for found in _base64_of(shortest).finditer(data):
        letters = found[0].rstrip(b"=").translate(_URL_SAFE)
        for start in range(4):
            part = letters[start:]
            held = b64decode(part[: len(part) - (len(part) % 4 == 1)] + b"==")
            if text.search(held):
                yield found.span(), held


@cache
def _token() -> re.Pattern[bytes]:
    return re.compile(_TOKEN, re.VERBOSE)


@cache
def _base64_of(shortest: int) -> re.Pattern[bytes]:
    return re.compile(rb"[A-Za-z0-9+/_-]{%d,}={0,2}" % -(-shortest * 4 // 3))


@cache
def _text_of(size: int) -> re.Pattern[bytes]:
    return re.compile(rb"[\t\n\r\x20-\x7e]{%d}" % size)


def has_escapes(data: bytes) -> bool:
    """Whether anything may have to be decoded: a quick look."""
    return b"\\" in data or b"%" in data or b"&" in data or b"\x1b" in data or not data.isascii()


def _meaning(token: bytes) -> bytes:
    match token[:1]:
        case b"%":
            return _character(int(token[2:], 16)) if token[1:2] == b"u" else bytes((int(token[1:], 16),))
        case b"\\":
            return _unescaped(token)
        case b"&":
            return _unreferenced(token)
    return b""  # colours, and what nobody sees


def _unescaped(token: bytes) -> bytes:
    kind, rest = token[1:2], token[2:]
    if kind in b"uUx" and rest:
        if kind == b"x" and b"\\" in rest:
            return bytes(int(pair, 16) for pair in token[2:].split(b"\\x"))
        if b"\\" in rest:
            high, low = int(rest[:4], 16), int(rest[6:], 16)
            return _character(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))
        return _character(int(rest.strip(b"{}"), 16))
    if rest.isdigit():
        return bytes((int(token[1:], 8),))
    if kind in b"\r\n":
        return b""
    letter = _LETTERS.get(token[1])
    return kind if letter is None else bytes((letter,))


def _unreferenced(token: bytes) -> bytes:
    if (sign := _SIGNS.get(token)) is not None:
        return sign
    if token[1:2] == b"#":
        digits = token[2:-1]
        return _character(int(digits[1:], 16) if digits[:1] in b"xX" else int(digits))
    from html import unescape

    return unescape(token.decode()).encode()


def _character(number: int) -> bytes:
    return chr(number).encode("utf-8", "surrogatepass") if number <= 0x10FFFF else b""
