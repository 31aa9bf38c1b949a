"""Who runs this, where, and from which commit: what is written beside an apply in the records."""

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

#: Variables in which CI systems say who started the job, and for which commit; the first that is set.
_WHO = ("GITHUB_ACTOR", "GITLAB_USER_LOGIN", "BUILD_REQUESTEDFOR", "BUILD_USER_ID")
_COMMIT = ("GITHUB_SHA", "CI_COMMIT_SHA", "BUILD_SOURCEVERSION", "GIT_COMMIT")
_RUN = ("CI_JOB_URL", "BUILD_URL")
#: `https://user@host:443/path.git`, `ssh://git@host/path` or `git@host:path`.
_REMOTE = r"(?:[a-z+]+://(?:[^/@]*@)?(?P<host>[^/:@]+)(?::\d+)?/|(?:[^/@:]*@)?(?P<scp>[^/:@]{2,}):(?!//))(?P<path>.+)"


def origin(root: Path, environ: Mapping[str, str], command: str = "") -> RunMetadata:
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
    # The commit that the manifests are checked out at, with `+` where they are edited.
    if commit := _ask_git(root, "rev-parse", "HEAD"):
        commit += "+" * _is_edited(root)
    return RunMetadata(who, where, command, commit or first(_COMMIT))


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


def _is_edited(root: Path) -> bool:
    """Whether anything in the directory differs from the commit.

    Git compares by filters, which may be anybody's programs: they are left out.
    """
    names = r"^filter\..*\.(clean|process|required)$"
    filters = _ask_git(root, "config", "--name-only", "--get-regexp", names)
    given = os.environ.get("GIT_CONFIG_COUNT", "")
    first = int(given) if given.isdecimal() else 0
    environ: dict[str, str] = {}
    for number, name in enumerate(filters.splitlines(), start=first):
        environ |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": ""}
        environ["GIT_CONFIG_COUNT"] = str(number + 1)
    question = ("status", "--porcelain", "--ignore-submodules", "--", ".")
    return bool(_ask_git(root, *question, environ=environ))


def _ask_git(root: Path, *question: str, environ: Mapping[str, str] | None = None) -> str:
    from reconciler.manifest.git import git_command, git_environment

    git = which("git")
    if git is None:
        return ""
    try:
        told = subprocess.run(  # noqa: S603 - a fixed program and fixed arguments
            [*git_command(git, root), *question],
            env=git_environment(os.environ) | dict(environ or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return ""
    return told.stdout.strip() if told.returncode == 0 else ""
