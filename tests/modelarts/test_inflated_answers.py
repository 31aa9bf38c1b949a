"""A few bytes that claim to be much more cost no memory: why urllib3 has the lower bound that it has."""

from __future__ import annotations

import tracemalloc
import zlib
from functools import cache

import pytest

from reconciler.emulator.server import running
from reconciler.errors import UnreadableAnswer
from reconciler.modelarts import content
from reconciler.modelarts.auth import Anonymous
from reconciler.modelarts.http import ServiceSession
from tests.modelarts.serving import Canned

MB = 2**20
CLAIMED_MB = 128
WINDOW_BITS = {"gzip": 31, "deflate": zlib.MAX_WBITS}


@cache
def packed(*encodings: str) -> bytes:
    """So many megabytes of white space, packed once for each encoding."""
    pieces = [b" " * MB] * CLAIMED_MB
    for encoding in encodings:
        packer = zlib.compressobj(wbits=WINDOW_BITS[encoding])
        pieces = [*map(packer.compress, pieces), packer.flush()]
    return b"".join(pieces)


@pytest.mark.parametrize(
    "encodings",
    [("gzip",), ("deflate",), ("gzip", "gzip"), ("deflate", "gzip"), ("gzip", "gzip", "gzip")],
    ids=" ".join,
)
def test_inflating_answer_is_refused_before_decompression(
    encodings: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content, "LONGEST_ANSWER", 2 * MB)
    app = Canned((200, packed(*encodings), {"Content-Encoding": ", ".join(encodings)}))
    with running(app) as url, ServiceSession(url, Anonymous()) as session:
        tracemalloc.start()
        try:
            with pytest.raises(UnreadableAnswer, match=r"larger than 2 MB|not requested"):
                session.call("GET", "/x")
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 16 * MB


def test_answer_with_many_stacked_encodings_is_refused() -> None:
    app = Canned((200, packed("gzip"), {"Content-Encoding": ", ".join(["gzip"] * 100)}))
    with running(app) as url, ServiceSession(url, Anonymous()) as session, pytest.raises(UnreadableAnswer):
        session.call("GET", "/x")
