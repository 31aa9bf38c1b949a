"""The body of an answer: read piece by piece, decompressed and parsed, and never more of it than is bearable.

A service that is broken, or is not the one that it pretends to be, must cost no more memory than a large
answer of a healthy one. So a body is bounded where it is read and decompressed, and what JSON would make of
it is estimated before it is made: an empty list is three characters and seventy bytes of memory.
"""

from __future__ import annotations

import json
import math
import re
import threading
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import requests
import urllib3

from reconciler.errors import UnreadableAnswer

#: So many bytes has an answer, decompressed. The longest that is documented is a log of 5 MB.
LONGEST_ANSWER = 32 * 2**20
#: So many bytes of memory may the values of one answer take, and of all answers of one reading.
MOST_MEMORY = 256 * 2**20
MOST_MEMORY_OF_A_READING = 2**30
#: Where values lie deeper than this in an answer, it is cut; the documents of the service have ten levels.
DEEPEST = 100
#: A longer answer is not cut, since that is slow.
_LONGEST_TO_CUT = 4 * 2**20
_LONGEST_NUMBER = 300
_CHUNK = 2**16
_MEGABYTE = 2**20


# --- reading


def read_content(response: requests.Response) -> bytes:
    """Return the whole body, decompressed.

    Raises:
        UnreadableAnswer: it is too long, or compressed in a way that was not requested.
        OSError, urllib3.exceptions.HTTPError: the connection broke.
    """
    chunks, length = [], 0
    try:
        for chunk in _decompressed(response):
            chunks.append(chunk)
            length += len(chunk)
            if length > LONGEST_ANSWER:
                raise UnreadableAnswer(
                    f"the body is larger than {LONGEST_ANSWER // _MEGABYTE} MB", status=response.status_code
                )
    except zlib.error as error:
        raise UnreadableAnswer(
            f"the body cannot be decompressed: {error}", status=response.status_code
        ) from None
    if getattr(response.raw, "length_remaining", None):
        # The next major version of urllib3 raises it itself.
        raise urllib3.exceptions.ProtocolError("the response ended prematurely")
    return b"".join(chunks)


def _decompressed(response: requests.Response) -> Iterator[bytes]:
    raw: Any = response.raw
    # As it was sent: below version 2.6 urllib3 would inflate a piece to any size.
    pieces = (
        raw.stream(_CHUNK, decode_content=False)
        if hasattr(raw, "stream")
        else iter(lambda: raw.read(_CHUNK), b"")
    )
    encodings = response.headers.get("Content-Encoding", "").split(",")
    names = [name for name in (part.strip().lower() for part in encodings) if name not in _PLAIN]
    if len(names) > 1 or not _COMPRESSED.issuperset(names):
        raise UnreadableAnswer(
            "the body uses a content encoding that was not requested", status=response.status_code
        )
    return _inflated(pieces) if names else pieces


_PLAIN = frozenset({"", "identity"})
_COMPRESSED = frozenset({"gzip", "x-gzip", "deflate"})
#: zlib finds out by itself whether gzip or zlib comes; deflate without a head of its own is the third.
_EITHER, _BARE = zlib.MAX_WBITS | 32, -zlib.MAX_WBITS


def _inflated(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Decompress pieces, into pieces of bounded size; what follows the end of the stream is left out.

    Raises:
        zlib.error: it is not compressed, or breaks off.
    """
    stream, has_begun = zlib.decompressobj(_EITHER), False
    for piece in pieces:
        while piece and not stream.eof:
            try:
                inflated = stream.decompress(piece, _CHUNK)
            except zlib.error:
                if has_begun:
                    raise
                stream = zlib.decompressobj(_BARE)
                inflated = stream.decompress(piece, _CHUNK)
            has_begun = True
            yield inflated
            piece = stream.unconsumed_tail
    if has_begun:
        yield stream.flush()
        if not stream.eof:
            raise zlib.error("it is truncated")


# --- parsing


class MemoryBudget:
    """Memory for all answers of one reading; threads may share it."""

    def __init__(self, most: int = MOST_MEMORY_OF_A_READING) -> None:
        self._most, self._taken = most, 0
        self._lock = threading.Lock()

    def take(self, content: bytes) -> None:
        """Count an answer before it is parsed.

        Raises:
            UnreadableAnswer: it would be too much, all answers before it included.
        """
        with self._lock:
            self._taken += memory_of(content)
            if self._taken > self._most:
                raise UnreadableAnswer(
                    f"the responses of one observation take more than {self._most // _MEGABYTE} MB of memory"
                )


def memory_of(content: bytes) -> int:
    """Estimate how many bytes of memory the values of a JSON text take; rather too many than too few."""
    # A character takes up to four bytes, twice: in the text and in the value.
    per_byte = 2 if content.isascii() and b"\\u" not in content else 8
    values = content.count(b",") + content.count(b":") + content.count(b"[") + content.count(b"{")
    return per_byte * len(content) + 72 * values


def parse(content: bytes) -> Any:
    """Parse JSON. A value that cannot be represented is read as NaN, so that it spoils one job and not all.

    That is a number of more than 300 digits, and whatever lies deeper than `DEEPEST`. A byte that is no
    UTF-8 is a lone surrogate, as JSON can spell it too.

    Raises:
        ValueError: it is not JSON; the words say what it is instead.
    """
    if memory_of(content) > MOST_MEMORY:
        raise ValueError(f"the body takes more than {MOST_MEMORY // _MEGABYTE} MB of memory")
    try:
        text = content.decode(json.detect_encoding(content))
    except UnicodeDecodeError:
        text = content.decode("utf-8", "surrogateescape")
    try:
        return _DECODER.decode(text)
    except RecursionError:
        pass
    except ValueError:
        raise ValueError("the body is not JSON") from None
    if len(text) > _LONGEST_TO_CUT:
        raise ValueError("the body is nested too deeply")
    try:
        return _DECODER.decode(_cut(text))
    except (ValueError, RecursionError):
        raise ValueError("the body is not JSON") from None


def _number(digits: str) -> int | float:
    return int(digits) if len(digits) <= _LONGEST_NUMBER else math.nan


_DECODER = json.JSONDecoder(parse_int=_number)
_STEP = re.compile(r'["\[\]{}]')
_REST_OF_TEXT = re.compile(r'[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


def _cut(text: str) -> str:
    """Put NaN where a value begins that lies deeper than `DEEPEST`."""
    kept: list[str] = []
    depth = begin = at = 0
    while found := _STEP.search(text, at):
        at = found.end()
        if found[0] == '"':
            if not (rest := _REST_OF_TEXT.match(text, at)):
                break
            at = rest.end()
        elif found[0] in "[{":
            depth += 1
            if depth == DEEPEST + 1:
                kept += (text[begin : found.start()], "NaN")
        else:
            if depth == DEEPEST + 1:
                begin = at
            depth -= 1
    if depth > DEEPEST:
        raise ValueError("it does not end")
    return "".join((*kept, text[begin:]))
