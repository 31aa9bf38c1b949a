"""Several stacks are read at once, in a process that has read none yet."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from reconciler.manifest import yaml
from reconciler.manifest.yaml import parse

THREADS = 8
TEXT = b"stack: a\njobs: {a: {spec: {resource: {node_count: 1}}}}\n"


@pytest.fixture
def _threads_take_turns_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_threads_take_turns_often")
def test_files_that_are_the_first_ones_in_several_threads_are_read() -> None:
    for _ in range(20):
        yaml._made_parser.cache_clear()
        begin = threading.Barrier(THREADS)

        def read(number: int, begin: threading.Barrier = begin) -> list[str]:
            begin.wait()
            return [one.what for one in parse(TEXT, Path(f"{number}.yaml"), f"{number}.yaml").problems]

        with ThreadPoolExecutor(THREADS) as pool:
            assert list(pool.map(read, range(THREADS))) == [[]] * THREADS
