"""The metadata of a run in the records: by whom, where, and from which repository."""

from __future__ import annotations

import getpass
import os
import platform
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from reconciler.errors import ReconcilerError
from reconciler.records.recording import RunMetadata

#: Variables of CI systems for the person who started the job, in order of precedence.
_WHO = ("GITHUB_ACTOR", "GITLAB_USER_LOGIN", "BUILD_REQUESTEDFOR", "BUILD_USER_ID")
_RUN = ("CI_JOB_URL", "BUILD_URL")
#: `https://user@host:443/path.git`, `ssh://git@host/path` or `git@host:path`.
_REMOTE = r"(?:[a-z+]+://(?:[^/@]*@)?(?P<host>[^/:@]+)(?::\d+)?/|(?:[^/@:]*@)?(?P<scp>[^/:@]{2,}):(?!//))(?P<path>.+)"

#: Short, because an apply waits for git.
_GIT_TIMEOUT_S = 5.0


def collect_metadata(environ: Mapping[str, str], command: str = "") -> RunMetadata:
    """Collect the metadata of this run. Unknown values are ""."""

    def first(names: tuple[str, ...]) -> str:
        return next((environ[name] for name in names if environ.get(name)), "")

    who = first(_WHO)
    if not who:
        try:
            who = getpass.getuser()
        except (OSError, KeyError, ImportError):  # a user without a name, e.g. in a container
            who = str(os.getuid()) if hasattr(os, "getuid") else ""
    run = first(_RUN)
    if {"GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID"} <= environ.keys():
        repository = f"{environ['GITHUB_SERVER_URL']}/{environ['GITHUB_REPOSITORY']}"
        run = f"{repository}/actions/runs/{environ['GITHUB_RUN_ID']}"
    where = f"{platform.node() or 'unknown host'}, process {os.getpid()}" + (f", {run}" if run else "")
    return RunMetadata(who, where, command)


def find_place(root: Path) -> str:
    """Return where a stack's manifests are, independent of the checkout: the repository and the path in it.

    Outside of a repository, or without a remote, it is the directory.
    """
    from reconciler.manifest.git import Repository

    repository, remote = None, ""
    with suppress(ReconcilerError, OSError, ValueError):  # must not fail an apply
        repository = Repository.around(root, os.environ, _GIT_TIMEOUT_S)
        remote = repository.remote_url() if repository else ""
    if repository is None or not remote:
        return os.path.realpath(root)
    # Host and path only: independent of the protocol, and without credentials.
    if match := re.fullmatch(_REMOTE, remote):
        path = match["path"].strip("/").removesuffix(".git")
        remote = f"{(match['host'] or match['scp']).lower()}/{path}"
    return f"{remote}//{repository.prefix}"
