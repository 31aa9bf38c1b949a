"""Secrets, their spellings in a text, and an independent leak detector.

The detector shares no code with the redactor: it undoes escapes with the standard library, in every order.
"""

from __future__ import annotations

import base64
import binascii
import html
import json
import re
from collections.abc import Callable, Iterator
from urllib.parse import quote, quote_plus, unquote, unquote_plus

Spelling = Callable[[str], str]

_PEM = (
    "-----BEGIN PRIVATE KEY-----\n"
    "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQDb7x+Zq0Wk3/6u\n"
    "y5Yt2nV8Lw1eJr9PzXh+KsTfQmCgUb/RaNdEoHi4MvBpG7jlxZOSc3kDFtW0yIqA\n"
    "q9f8Xk==\n"
    "-----END PRIVATE KEY-----\n"
)
#: Features that some spelling would hide: punctuation, space, non-ASCII letters, lines, escapes.
SECRETS: dict[str, str] = {
    "token": "hf_QxWzRtYpLkJhGfDsAbVnMc",
    "access key": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYzK4pq==",
    "password": "Zq7 x&<w>/k%41+\"m'\\p",
    "letters beyond ASCII": "größe/密码 ünd+Wörter€",
    "beyond the plane": "kex😀zebra=plim/vox",
    "key with lines": _PEM,
    "key in one line": _PEM.replace("\n", "\\n"),
    "JSON": '{"type": "svc_acc", "private_key_id": "d41f9c0be77a", "n": "q/x y"}',
    "escaped": "w%2Fk\\u0041&amp;Qz-7Yv",
    "short": "k3/Q",
    "number": "4820917365",
}


def _utf8(text: str) -> bytes:
    return text.encode("utf-8")


def _base64(text: str) -> str:
    return base64.b64encode(_utf8(text)).decode()


def _json(text: str) -> str:
    return json.dumps(text)[1:-1]


def _lower(text: str) -> str:
    return re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), quote(text, safe=""))


SPELLINGS: dict[str, Spelling] = {
    "raw": str,
    "URL": lambda text: quote(text, safe=""),
    "URL, lower case": _lower,
    "URL, path": quote,
    "URL, form": quote_plus,
    "JSON": _json,
    "JSON, solidus": lambda text: _json(text).replace("/", "\\/"),
    "JSON, not ASCII": lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    "Python": lambda text: repr(text)[1:-1],
    "YAML": lambda text: "'" + text.replace("'", "''") + "'",
    "base64": _base64,
    "base64, URL-safe": lambda text: base64.urlsafe_b64encode(_utf8(text)).decode(),
    "base64, not padded": lambda text: _base64(text).rstrip("="),
    "basic auth": lambda text: _base64(f"user:{text}"),
    "base64 of more": lambda text: _base64(f"ab{text}xy"),
}


# --- the leak detector

_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{6,}")
_ESCAPE = re.compile(
    r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|x([0-9a-fA-F]{2})|(\n)|([nrtbfv0ae])|([^A-Za-z0-9]))"
)
_CONTROLS = {
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "b": "\b",
    "f": "\f",
    "v": "\v",
    "0": "\0",
    "a": "\a",
    "e": "\x1b",
}
_IGNORED = dict.fromkeys(map(ord, " \t\r\n\"'+"))
#: Consecutive characters of a secret that count as a leak.
_TELLING = 9


def _unescape(text: str) -> str:
    def meant(found: re.Match[str]) -> str:
        code = found[1] or found[2] or found[3]
        if code:
            return chr(min(int(code, 16), 0x10FFFF))
        return "" if found[4] else _CONTROLS.get(found[5] or "", found[6] or "")

    text = _ESCAPE.sub(meant, text)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _as_utf8(text: str) -> str:
    """Decode text written byte by byte, as in the repr of bytes."""
    try:
        return text.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return text


def _unbase64(text: str) -> Iterator[str]:
    for found in _BASE64.finditer(re.sub(r"[\r\n]", "", text)):
        word = found[0].replace("-", "+").replace("_", "/")
        for start in range(4):
            part = word[start:]
            try:
                data = base64.b64decode(part[: len(part) - (len(part) % 4 == 1)] + "==")
            except binascii.Error:
                continue
            yield data.decode("utf-8", "replace")


_UNDO: tuple[Callable[[str], str], ...] = (unquote, unquote_plus, html.unescape, _unescape)


def _readings(text: str, depth: int = 3) -> Iterator[str]:
    """Yield the text and all its decodings."""
    seen, level = {text}, [text]
    yield text
    for _ in range(depth):
        found = {
            new for one in level for new in (*(undo(one) for undo in _UNDO), _as_utf8(one), *_unbase64(one))
        }
        level = [one for one in found - seen if len(one) >= 4]
        seen |= found
        yield from level


def _pieces(secret: str) -> set[str]:
    plain = re.sub("-----[A-Z ]+-----", "", secret.replace("\\n", "\n")).translate(_IGNORED)
    if len(plain) <= _TELLING:
        return {secret.translate(_IGNORED)}
    return {plain[at : at + _TELLING] for at in range(len(plain) - _TELLING + 1)}


def leak_of(secret: str, output: str, depth: int = 3) -> str | None:
    """Return the part of a secret readable in an output, or None."""
    pieces = _pieces(secret)
    for reading in _readings(output, depth):
        squeezed = reading.translate(_IGNORED)
        if len(pieces) == 1:
            found = next((piece for piece in pieces if piece in squeezed), None)
        else:
            found = next(
                (
                    s
                    for at in range(len(squeezed) - _TELLING + 1)
                    if (s := squeezed[at : at + _TELLING]) in pieces
                ),
                None,
            )
        if found is not None:
            return f"{found!r} in {reading[:300]!r}"
    return None
