"""Ways to break the response to a request that took effect."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable

from tests.hostile.wire import Break, Line


def respond_with(make: Callable[[bytes, bytes], bytes]) -> Break:
    """Send a response made from the original head, without its empty line, and body."""

    def break_it(line: Line, answer: bytes) -> None:
        head, _, body = answer.partition(b"\r\n\r\n")
        line.say(make(head, body))

    return break_it


def _with(*headers: bytes) -> Break:
    """The same response with more headers."""
    return respond_with(lambda head, body: b"\r\n".join([head, *headers, b"", body]))


def _bare(first: bytes, headers: bytes = b"") -> Break:
    """The same body with another status line and only these headers."""
    return respond_with(lambda _, body: first + b"\r\n" + headers + b"\r\n" + body)


def _framed(headers: bytes, change: Callable[[bytes], bytes]) -> Break:
    return respond_with(lambda _, body: b"HTTP/1.1 200 OK\r\n" + headers + b"\r\n" + change(body))


def _body(change: Callable[[bytes], bytes]) -> Break:
    def make(_: bytes, body: bytes) -> bytes:
        other = change(body)
        return b"HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n" % len(other) + other

    return respond_with(make)


def cut(at: int, *, with_reset: bool = False) -> Break:
    """Send this many bytes, then close or reset the connection."""

    def break_it(line: Line, answer: bytes) -> None:
        line.say(answer[:at])
        if with_reset:
            line.reset()

    return break_it


def flipped(at: int, bit: int) -> Break:
    """Send the whole with one bit changed."""

    def break_it(line: Line, answer: bytes) -> None:
        place = at % len(answer)
        line.say(answer[:place] + bytes([answer[place] ^ (1 << bit)]) + answer[place + 1 :])

    return break_it


def _below_tls(data: bytes) -> Break:
    return lambda line, _: line.say_below_tls(data)


_CHUNKED = b"Transfer-Encoding: chunked\r\n"
_ZIPPED = b"Content-Encoding: gzip\r\n"

WAYS: dict[str, Break] = {
    "two lengths": _with(b"Content-Length: 7"),
    "two lengths in one": _bare(b"HTTP/1.1 200 OK", b"Content-Length: 7, 9\r\n"),
    "negative length": _bare(b"HTTP/1.1 200 OK", b"Content-Length: -1\r\n"),
    "length of text": _bare(b"HTTP/1.1 200 OK", b"Content-Length: many\r\n"),
    "length of 400 digits": _bare(b"HTTP/1.1 200 OK", b"Content-Length: " + b"9" * 400 + b"\r\n"),
    "length of 5000 digits": _bare(b"HTTP/1.1 200 OK", b"Content-Length: " + b"9" * 5000 + b"\r\n"),
    "length of other digits": _bare(b"HTTP/1.1 200 OK", b"Content-Length: \xb2\r\n"),
    "too long a length": _bare(b"HTTP/1.1 200 OK", b"Content-Length: 99999\r\n"),
    "too short a length": _bare(b"HTTP/1.1 200 OK", b"Content-Length: 7\r\n"),
    "length and chunks": _with(b"Transfer-Encoding: chunked"),
    "unknown framing": _with(b"Transfer-Encoding: nonsense"),
    "chunks of garbage": _framed(_CHUNKED, lambda body: body),
    "chunk without a size": _framed(_CHUNKED, lambda body: b"\r\n" + body),
    "chunk of negative size": _framed(_CHUNKED, lambda body: b"-5\r\n" + body + b"\r\n0\r\n\r\n"),
    "chunk of huge size": _framed(_CHUNKED, lambda body: b"f" * 40 + b"\r\n" + body),
    "chunk that is too short": _framed(_CHUNKED, lambda body: b"3\r\n" + body + b"\r\n0\r\n\r\n"),
    "chunk without an end": _framed(_CHUNKED, lambda body: b"%x\r\n" % len(body) + body),
    "chunks without the last": _framed(_CHUNKED, lambda body: b"%x\r\n" % len(body) + body + b"\r\n"),
    "chunk size of 100 kB": _framed(_CHUNKED, lambda body: b"1" * 100_000),
    "no http": _bare(b"SSH-2.0-OpenSSH_9.9"),
    "http of the future": _bare(b"HTTP/9.9 200 OK"),
    "icy": _bare(b"ICY 200 OK"),
    "status of text": _bare(b"HTTP/1.1 fine OK"),
    "status of six digits": _bare(b"HTTP/1.1 200200 OK"),
    "status without sense": _bare(b"HTTP/1.1 000 OK"),
    "status line without end": respond_with(lambda *_: b"H" * 100_000),
    "empty lines": respond_with(lambda head, body: b"\r\n" * 50 + head),
    "nulls": respond_with(lambda *_: bytes(1000)),
    "body alone": respond_with(lambda _, body: body),
    "head alone": respond_with(lambda head, _: head + b"\r\n\r\n"),
    "line feeds": respond_with(lambda head, _: head.replace(b"\r\n", b"\n") + b"\n"),
    "header without a colon": respond_with(lambda head, body: head + b"\r\nnonsense\r\n\r\n" + body[:5]),
    "header with a null": _bare(b"HTTP/1.1 200 OK", b"X: \x00\x01\r\n\x00: y\r\nContent-Length: 5\r\n"),
    "header of 100 kB": _with(b"X: " + b"y" * 100_000),
    "1000 headers": _with(*[b"X: y"] * 1000),
    "folded headers": _bare(b"HTTP/1.1 200 OK", b"Content-Length:\r\n 7\r\n"),
    "cookies of nonsense": respond_with(
        lambda head, _: head + b"\r\nSet-Cookie: \xff=;;;=;Max-Age=9e999;Expires=never\r\n\r\n"
    ),
    "no gzip": _framed(_ZIPPED, lambda body: body),
    "half a gzip": _framed(_ZIPPED, lambda body: gzip.compress(body)[:-20]),
    "gzip that swells": _framed(_ZIPPED, lambda _: gzip.compress(bytes(50_000_000), 9)),
    "gzip of gzip that swells": _framed(
        b"Content-Encoding: gzip, gzip\r\n", lambda _: gzip.compress(gzip.compress(bytes(50_000_000)))
    ),
    "deflate of nonsense": _framed(b"Content-Encoding: deflate\r\n", lambda body: zlib.compress(body)[3:]),
    "compression that nobody asked for": _framed(b"Content-Encoding: br\r\n", lambda body: body),
    "compression 20 times": _framed(b"Content-Encoding: " + b"gzip, " * 20 + b"gzip\r\n", lambda body: body),
    "101": _bare(b"HTTP/1.1 101 Switching Protocols"),
    "102": _bare(b"HTTP/1.1 102 Processing"),
    "100 for ever": respond_with(lambda *_: b"HTTP/1.1 100 Continue\r\n\r\n" * 5000),
    "204": _bare(b"HTTP/1.1 204 No Content"),
    "304": _bare(b"HTTP/1.1 304 Not Modified"),
    "redirect": _bare(b"HTTP/1.1 307 There", b"Location: http://elsewhere.invalid/\r\n"),
    "redirect to nonsense": _bare(b"HTTP/1.1 302 There", b"Location: \x00\xff//[::\r\n"),
    "408": _bare(b"HTTP/1.1 408 Slow"),
    "500": _bare(b"HTTP/1.1 500 Broken"),
    "502 of a proxy": respond_with(
        lambda *_: b"HTTP/1.0 502 Bad Gateway\r\n\r\n<html><title>502</title>nginx</html>"
    ),
    "504": _bare(b"HTTP/1.1 504 Late"),
    "599": _bare(b"HTTP/1.1 599 Odd"),
    "600": _bare(b"HTTP/1.1 600 Odder"),
    "empty body": _body(lambda _: b""),
    "html": _body(lambda _: b"<html>Log in</html>"),
    "null": _body(lambda _: b"null"),
    "list": _body(lambda body: b"[" + body + b"]"),
    "two documents": _body(lambda body: body * 2),
    "no id": _body(lambda body: body.replace(b'"id"', b'"di"')),
    "numeric name": _body(lambda _: b'{"metadata": {"id": 5, "name": 7}, "status": {"phase": 1}}'),
    "utf-16": _body(lambda body: body.decode().encode("utf-16")),
    "no utf-8": _body(lambda body: body.replace(b"job", b"\xff\xfe")),
    "depth": _body(lambda _: b"[" * 100_000),
    "number of 5000 digits": _body(lambda _: b'{"metadata": ' + b"9" * 5000 + b"}"),
    "two answers": respond_with(lambda head, body: (head + b"\r\n\r\n" + body) * 2),
    "silent end": lambda line, answer: None,
    "reset": cut(0, with_reset=True),
    "reset in the status line": cut(7, with_reset=True),
    "reset in the head": cut(40, with_reset=True),
    "half the body": lambda line, answer: line.say(answer[: len(answer) * 3 // 4]),
}

TLS_WAYS: dict[str, Break] = {
    "plain http inside tls": lambda line, answer: line.say_below_tls(answer),
    "garbage inside tls": _below_tls(bytes(range(256))),
    "record of a wrong version": _below_tls(b"\x17\x09\x09\x00\x10" + bytes(16)),
    "record that does not verify": _below_tls(b"\x17\x03\x03\x00\x20" + bytes(32)),
    "record that is too long": _below_tls(b"\x17\x03\x03\xff\xff" + bytes(100)),
    "half a record": _below_tls(b"\x17\x03\x03\x00\x20" + bytes(5)),
    "alert: handshake failure": _below_tls(b"\x15\x03\x03\x00\x02\x02\x28"),
    "alert: unknown ca": _below_tls(b"\x15\x03\x03\x00\x02\x02\x30"),
    "alert: protocol version": _below_tls(b"\x15\x03\x03\x00\x02\x02\x46"),
    "another handshake": _below_tls(b"\x16\x03\x03\x00\x04\x0e\x00\x00\x00"),
    "end without a notice": _below_tls(b""),
}
