"""`reconciler` for scripts: each call is a process forked from one with everything imported.

`python -m tests.ci.program SOCKET` serves calls one by one until its stdin ends. The command that
scripts call passes it arguments, directory, variables and open files, and ends with its exit code.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from tests.scenarios.fork_server import ROOT, become, import_everything

_CALL = """\
#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as line:
    line.connect({address!r})
    call = [os.getcwd(), dict(os.environ), sys.argv[1:]]
    socket.send_fds(line, [json.dumps(call).encode()], [0, 1, 2])
    sys.exit(int(line.recv(16)))
"""


@cache
def script() -> str:
    """Return the text of the command; its server is started once, and ends with this process."""
    directory = tempfile.mkdtemp(prefix="program-")
    address = f"{directory}/socket"
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.ci.program", address],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    atexit.register(server.communicate)
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"
    return _CALL.format(python=sys.executable, address=address)


def _serve(address: str) -> None:
    import_everything()
    gc.freeze()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen()
    print("ready", flush=True)  # noqa: T201
    while sys.stdin not in select.select([listening, sys.stdin], [], [])[0]:
        line, _ = listening.accept()
        with line:
            message, opened, _, _ = socket.recv_fds(line, 1 << 20, 3)
            directory, environ, arguments = json.loads(message)
            if (pid := os.fork()) == 0:
                line.close()
                with become(Path(directory), environ, arguments, opened):
                    pass
            for descriptor in opened:
                os.close(descriptor)
            _, status = os.waitpid(pid, 0)
            line.sendall(str(os.waitstatus_to_exitcode(status)).encode())


if __name__ == "__main__":
    _serve(sys.argv[1])
