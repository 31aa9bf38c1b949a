"""The body of an answer: read piece by piece and decompressed up to a bound, and parsed."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import requests
from pydantic_core import from_json

from reconciler.errors import UnreadableAnswer

#: So many bytes has an answer, decompressed. The longest that is documented is a log of 5 MB.
LONGEST_ANSWER = 32 * 2**20
#: An answer that is too deep to be parsed is cut where values lie deeper; documents have ten levels.
DEEPEST = 100
#: A number of 64 bits has 20 digits.
_LONGEST_NUMBER = 300
_CHUNK = 2**16


def read_content(response: requests.Response) -> bytes:
    """Return the whole body, decompressed.

    Raises:
        UnreadableAnswer: it is too long, or cannot be decompressed.
        requests.RequestException: the connection broke.
    """
    chunks, length = [], 0
    try:
        for chunk in response.iter_content(_CHUNK):
            chunks.append(chunk)
            length += len(chunk)
            if length > LONGEST_ANSWER:
                why = f"the body is larger than {LONGEST_ANSWER // 2**20} MB"
                raise UnreadableAnswer(why, status=response.status_code)
    except requests.exceptions.ContentDecodingError:
        raise UnreadableAnswer("the body cannot be decompressed", status=response.status_code) from None
    return b"".join(chunks)


def parse(content: bytes) -> Any:
    """Parse JSON. A value that cannot be represented is read as NaN, so that it spoils one job and not all.

    That is a number of more digits than Python converts, and whatever lies so deep that the text could not be
    parsed otherwise. A byte that is no UTF-8 is a lone surrogate, as JSON can spell it too.

    Raises:
        ValueError: it is not JSON.
    """
    try:
        return from_json(content)
    except ValueError:  # a lone surrogate, another encoding than UTF-8, too deep; or not JSON at all
        pass
    try:
        text = content.decode(json.detect_encoding(content), "surrogateescape")
        try:
            return _DECODER.decode(text)
        except RecursionError:
            return _DECODER.decode(_cut(text))
    except (ValueError, RecursionError):
        raise ValueError("the body is not JSON") from None


def _number(digits: str) -> int | float:
    return int(digits) if len(digits.lstrip("-")) <= _LONGEST_NUMBER else math.nan


_DECODER = json.JSONDecoder(parse_int=_number)


def _cut(text: str) -> str:
    """Put NaN where a value begins that lies deeper than `DEEPEST`."""
    kept: list[str] = []
    depth = begin = 0
    # Texts are passed over whole, one that does not end with all that follows.
    for step in re.finditer(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', text, re.DOTALL):
        if step[0] in "[{":
            depth += 1
            if depth == DEEPEST + 1:
                kept += (text[begin : step.start()], "NaN")
        elif step[0] in "]}":
            if depth == DEEPEST + 1:
                begin = step.end()
            depth -= 1
    if depth > DEEPEST:
        raise ValueError("it does not end")
    return "".join((*kept, text[begin:]))
