"""Who runs this, and where: what is written beside an apply in the records."""

from __future__ import annotations

import getpass
import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path

from reconciler.errors import ReconcilerError
from reconciler.records.recording import RunMetadata

#: Variables in which CI systems say who started the job; the first that is set.
_WHO = ("GITHUB_ACTOR", "GITLAB_USER_LOGIN", "BUILD_REQUESTEDFOR", "BUILD_USER_ID")
_RUN = ("CI_JOB_URL", "BUILD_URL")
#: `https://user@host:443/path.git`, `ssh://git@host/path` or `git@host:path`.
_REMOTE = r"(?:[a-z+]+://(?:[^/@]*@)?(?P<host>[^/:@]+)(?::\d+)?/|(?:[^/@:]*@)?(?P<scp>[^/:@]{2,}):(?!//))(?P<path>.+)"

#: An apply that is under way does not wait longer for git.
_GIT_LIMIT_S = 5.0


def origin(environ: Mapping[str, str], command: str = "") -> RunMetadata:
    """Find it out; what cannot be found out is ""."""

    def first(names: tuple[str, ...]) -> str:
        return next((environ[name] for name in names if environ.get(name)), "")

    who = first(_WHO)
    if not who:
        try:
            who = getpass.getuser()
        except (OSError, KeyError, ImportError):  # a user without a name, as containers have them
            who = str(os.getuid()) if hasattr(os, "getuid") else ""
    run = first(_RUN)
    if {"GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID"} <= environ.keys():
        repository = f"{environ['GITHUB_SERVER_URL']}/{environ['GITHUB_REPOSITORY']}"
        run = f"{repository}/actions/runs/{environ['GITHUB_RUN_ID']}"
    where = f"{platform.node() or 'unknown host'}, process {os.getpid()}" + (f", {run}" if run else "")
    return RunMetadata(who, where, command)


def place_of(root: Path) -> str:
    """Where the manifests of a stack are, wherever they are checked out: the repository and the path in it.

    Outside of a repository that others share it is the directory.
    """
    from reconciler.manifest.git import Repository

    try:
        repository = Repository.around(root, os.environ, _GIT_LIMIT_S)
        remote = repository.remote_url() if repository else ""
    except (ReconcilerError, OSError, ValueError):  # no apply fails for it
        return os.path.realpath(root)
    if repository is None or not remote:
        return os.path.realpath(root)
    # By host and path, however it is reached, and without credentials.
    if found := re.fullmatch(_REMOTE, remote):
        path = found["path"].strip("/").removesuffix(".git")
        remote = f"{(found['host'] or found['scp']).lower()}/{path}"
    return f"{remote}//{repository.prefix}"
