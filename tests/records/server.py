"""A PostgreSQL server for tests: in a new directory, on a Unix socket, without fsync."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import psycopg

Command = list[str | Path]
SUPERUSER = "postgres"
#: A user with a password.
CAREFUL, PASSWORD = "careful", "s3cr3t/pass@word"


def programs() -> Path | None:
    """The directory of initdb and postgres, the newest if there are several."""
    packaged = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    found = packaged[-1] if packaged else shutil.which("initdb")
    return Path(found).resolve().parent if found else None


@contextmanager
def running(bin_dir: Path) -> Iterator[Path]:
    """Run a server; yields the directory of its socket."""
    # A socket's path has at most 107 characters, and pytest's directories are closed to other users.
    home = Path(tempfile.mkdtemp(prefix="reconciler-pg-"))
    data = home / "data"
    user = _unprivileged_user()
    if user:
        shutil.chown(home, user)
    try:
        options = f"-U {SUPERUSER} --auth=trust --no-sync -E UTF8".split()
        initdb: Command = [bin_dir / "initdb", "-D", data, *options]
        subprocess.run([*_as(user), *initdb], cwd=home, check=True, capture_output=True)
        rules = data / "pg_hba.conf"
        rules.write_text(f"local all {CAREFUL} scram-sha-256\n{rules.read_text()}")
        place = f"unix_socket_directories={home}"
        settings = ("fsync=off", "full_page_writes=off", "listen_addresses=", place)
        serve: Command = [bin_dir / "postgres", "-D", data, *(f"-c{setting}" for setting in settings)]
        with (home / "log").open("wb") as log:
            server = subprocess.Popen([*_as(user), *serve], cwd=home, stdout=log, stderr=log)
        try:
            _wait_for(home, server)
            yield home
        finally:
            server.send_signal(signal.SIGINT)
            server.wait()
    finally:
        shutil.rmtree(home)


def _unprivileged_user() -> str | None:
    """The server refuses to run as root."""
    if os.geteuid() != 0:
        return None
    users = {entry.pw_name for entry in pwd.getpwall()}
    return next(user for user in ("postgres", "nobody") if user in users)


def _as(user: str | None) -> list[str]:
    # The server must not outlive killed tests.
    if shutil.which("setpriv") is None:
        return ["runuser", "-u", user, "--"] if user else []
    become = [f"--reuid={user}", f"--regid={pwd.getpwnam(user).pw_gid}", "--clear-groups"] if user else []
    return ["setpriv", *become, "--pdeathsig=INT", "--"]


def _wait_for(home: Path, server: subprocess.Popen[bytes]) -> None:
    while server.poll() is None:
        try:
            with connect(home, "postgres") as connection:
                connection.execute("CREATE DATABASE records")
                connection.execute(f"CREATE ROLE {CAREFUL} LOGIN PASSWORD '{PASSWORD}'")
            return
        except psycopg.OperationalError:
            continue
    raise RuntimeError((home / "log").read_text())


def connect(home: Path, database: str = "records") -> psycopg.Connection[tuple[object, ...]]:
    """Connect as the superuser, each statement on its own."""
    return psycopg.connect(host=str(home), user=SUPERUSER, dbname=database, autocommit=True)


def url(home: Path, *, user: str = SUPERUSER, schema: str | None = None) -> str:
    """Return the records URL; `schema` precedes PostgreSQL's own functions, so it may shadow them."""
    options = "" if schema is None else f"&options={quote(f'-csearch_path={schema},pg_catalog', safe='')}"
    return f"postgresql://{user}@/records?host={quote(str(home), safe='')}{options}"
