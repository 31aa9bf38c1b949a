"""Who runs this, and where: what is written beside an apply in the records."""

from __future__ import annotations

import getpass
import os
import platform
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from shutil import which

from reconciler.records.recording import RunMetadata

#: Variables in which CI systems say who started the job; the first that is set.
_WHO = ("GITHUB_ACTOR", "GITLAB_USER_LOGIN", "BUILD_REQUESTEDFOR", "BUILD_USER_ID")
_RUN = ("CI_JOB_URL", "BUILD_URL")
#: `https://user@host:443/path.git`, `ssh://git@host/path` or `git@host:path`.
_REMOTE = r"(?:[a-z+]+://(?:[^/@]*@)?(?P<host>[^/:@]+)(?::\d+)?/|(?:[^/@:]*@)?(?P<scp>[^/:@]{2,}):(?!//))(?P<path>.+)"


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
    remote = _ask_git(root, "config", "--get", "remote.origin.url")
    if not remote:
        return os.path.realpath(root)
    return f"{repository_name(remote)}//{_ask_git(root, 'rev-parse', '--show-prefix').strip('/')}"


def repository_name(remote: str) -> str:
    """A repository by host and path, however it is reached, and without credentials."""
    found = re.fullmatch(_REMOTE, remote)
    if found is None:
        return remote
    path = found["path"].strip("/").removesuffix(".git")
    return f"{(found['host'] or found['scp']).lower()}/{path}"


def _ask_git(root: Path, *question: str) -> str:
    from reconciler.manifest.git import git_command, git_environment

    git = which("git")
    if git is None:
        return ""
    try:
        told = subprocess.run(  # noqa: S603 - a fixed program and fixed arguments
            [*git_command(git, root), *question],
            env=git_environment(os.environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return ""
    return told.stdout.strip() if told.returncode == 0 else ""
