"""The cost of declared code: hashing compared with reading, uploading with obstore, planning with no code.

    python benchmarks/code.py [--rounds 7] [--check]

Hashing 989 files of 50 MB in total, in ten folders, is compared with reading them one after the other;
uploading 500 files of 1 kB, eight at once, to a stub of an object store in a separate process with
`obstore.put` of the same bytes by as many threads; planning 200 unchanged jobs that share one source with the
same jobs with a `code_dir`.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import obstore

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.measuring import Comparison, Run, in_turn, line, run
from reconciler.code import CodeSource, read_code
from reconciler.code_store import CodeStore
from reconciler.core.stack import Target
from reconciler.modelarts.objects import Keys, open_objects

ROOT = Path(__file__).parents[1]
#: `--check` fails above these: ratios to the reference, and seconds of CPU time that code adds to a plan.
MOST_HASHING, MOST_UPLOAD, MOST_PLAN_S = 1.2, 1.3, 0.02
AT_ONCE = 8
ADDRESS = "obs://benchmark/code/"

MANIFEST_HEAD = """\
apiVersion: reconciler/v1
stack: benchmark
targets: {there: {kind: local}}
defaults:
  algorithm:
    engine: {engine_id: pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64}
    environments: {EMULATOR_RUN_SECONDS: "86400000"}
  spec: {resource: {flavor_id: modelarts.vm.cpu.2u}}
jobs:
"""
WITH_CODE = "  train-{n:03}: {{code: {{source: ../src}}, algorithm: {{boot_file: train.py}}}}\n"
WITHOUT = "  train-{n:03}: {{algorithm: {{code_dir: obs://b/src/, boot_file: obs://b/src/train.py}}}}\n"


class Store(BaseHTTPRequestHandler):
    """An empty object store that discards uploads."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        says = b"" if self.command == "PUT" else b"<ListBucketResult></ListBucketResult>"
        self.send_response(200)
        self.send_header("ETag", f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"')
        self.send_header("Content-Length", str(len(says)))
        self.end_headers()
        self.wfile.write(says)

    do_GET = do_PUT = answer  # noqa: N815 - as http.server has them

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the method it overrides
        pass


@contextmanager
def served() -> Iterator[str]:
    """Run the store as a process; yield its address."""
    command = [sys.executable, __file__, "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


def serve() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Store) as server:
        print(f"http://127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever()


def timed(work: Callable[[], object]) -> Run:
    begun, cpu_s = time.perf_counter(), time.process_time()
    work()
    return Run(time.perf_counter() - begun, time.process_time() - cpu_s, 0.0)


def write_files(source: Path, count: int, size: int) -> None:
    for n in range(count):
        file = source / f"part{n % 10}" / f"module_{n:04}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(random.Random(n).randbytes(size))
    (source / "train.py").write_text("print()\n")


def hashing(scratch: Path, rounds: int) -> Comparison:
    source = scratch / "many"
    write_files(source, 989, 50_000_000 // 989)
    files = [file for file in source.rglob("*") if file.is_file()]
    return in_turn(
        lambda: timed(lambda: read_code(CodeSource(source))),
        lambda: timed(lambda: [file.read_bytes() for file in files]),
        rounds=rounds,
    )


def uploading(scratch: Path, url: str, rounds: int) -> Comparison:
    source = scratch / "small"
    write_files(source, 499, 1000)
    code = read_code(CodeSource(source))
    target = Target(kind="modelarts", region="cn-north-4", obs_endpoint=url)
    store = open_objects(target, ADDRESS, lambda: Keys("AK", "SK"))
    bytes_of = {file.path: (source / file.path).read_bytes() for file in code.files}

    def ours() -> None:
        CodeStore(ADDRESS, store).upload("benchmark", code, source)

    def theirs() -> None:
        def put(path: str) -> None:
            obstore.put(store, f"benchmark/{path}", bytes_of[path], use_multipart=False)

        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(put, bytes_of))

    return in_turn(lambda: timed(ours), lambda: timed(theirs), rounds=rounds)


def planning(scratch: Path, rounds: int) -> Comparison:
    write_files(scratch / "src", 100, 4000)

    def applied(name: str, job: str) -> Callable[[], Run]:
        directory = scratch / name
        directory.mkdir()
        text = MANIFEST_HEAD + "".join(job.format(n=n) for n in range(200))
        (directory / "jobs.yaml").write_text(text, encoding="utf-8")
        reconciler = partial(_reconciler, directory)
        reconciler("apply", "--yes")
        return lambda: reconciler("plan", "--detailed-exitcode")

    (scratch / ".git").mkdir()
    return in_turn(applied("code", WITH_CODE), applied("none", WITHOUT), rounds=rounds)


def _reconciler(directory: Path, *arguments: str) -> Run:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("RECONCILER_")}
    command = [sys.executable, "-m", "reconciler", *arguments, str(directory)]
    return run(command, cwd=ROOT, environ=environ)


def main() -> int:
    """Measure, and report."""
    parser = argparse.ArgumentParser(description="Time the code of jobs: hashed, uploaded, planned.")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--check", action="store_true", help="fail above what is named in the README")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve:
        with contextlib.suppress(KeyboardInterrupt):
            serve()
        return 0
    with tempfile.TemporaryDirectory() as scratch, served() as url:
        hashed = hashing(Path(scratch), asked.rounds)
        uploaded = uploading(Path(scratch), url, asked.rounds)
        planned = planning(Path(scratch), asked.rounds)
    for name, beside, compared in (
        ("989 files, 50 MB: hashed", "read", hashed),
        ("500 files, 0.5 MB: uploaded", "obstore.put", uploaded),
        ("plan of 200 jobs with code", "without", planned),
    ):
        print(line(name, compared.ours))
        print(line(beside, compared.theirs))
        pairs = zip(compared.ours, compared.theirs, strict=True)
        by_processor = statistics.median(ours.cpu_s / theirs.cpu_s for ours, theirs in pairs)
        print(f"{'ratio, pair by pair':<34} median {compared.ratio:7.3f}   processor {by_processor:7.3f}")
    # CPU time, because on a busy machine wall-clock time is too noisy for a few milliseconds.
    added_s = statistics.median(
        ours.cpu_s - theirs.cpu_s for ours, theirs in zip(planned.ours, planned.theirs, strict=True)
    )
    print(f"code adds {1000 * added_s:.0f} ms to a plan")
    is_slow = hashed.ratio > MOST_HASHING or uploaded.ratio > MOST_UPLOAD or added_s > MOST_PLAN_S
    return 1 if asked.check and is_slow else 0


if __name__ == "__main__":
    sys.exit(main())
