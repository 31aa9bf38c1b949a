"""Manifest files of a git commit: read from the repository, and copied to a directory of their own.

Nothing is checked out, and nothing that a repository configures is run: no hook, filter, monitor or pager,
and no object is fetched. Only `rev-parse`, `ls-tree` and `cat-file` are asked, without a shell.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from io import BytesIO
from pathlib import Path, PurePosixPath
from shutil import which
from typing import IO, NamedTuple

from reconciler.core.diagnostic import Diagnostic, ReconcilerError
from reconciler.manifests.sources.files import SUFFIXES
from reconciler.manifests.yaml.file_content import MAX_FILE_BYTES

_OID = re.compile("[0-9a-f]{40,64}")
#: No target of a link is longer.
_MAX_LINK_BYTES = 4096
_CHUNK = 1 << 20
_FIXED = ("--no-pager", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
#: What git is told of our environment; credentials are none of its business.
_INHERITED = ("PATH", "HOME", "XDG_CONFIG_HOME", "SYSTEMROOT", "TMPDIR")
_ENVIRONMENT = {
    "LC_ALL": "C",
    "GIT_TERMINAL_PROMPT": "0",
    # A partial clone would fetch what is missing; older versions know the second only.
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
}


class GitFailed(ReconcilerError):
    """Git could not read what the repository should hold."""


class EntryKind(Enum):
    """What stands at a path of a commit."""

    FILE = "file"
    LINK = "link"
    SUBMODULE = "submodule"


_KIND_BY_MODE = {
    "100644": EntryKind.FILE,
    "100755": EntryKind.FILE,
    "120000": EntryKind.LINK,
    "160000": EntryKind.SUBMODULE,
}


class TreeEntry(NamedTuple):
    """One path of a commit, from the top of the repository."""

    path: str
    kind: EntryKind
    oid: str


@dataclass(frozen=True)
class Repository:
    """The repository around a directory. `prefix` is the directory's path in it, "" at its top."""

    git: str
    directory: Path
    prefix: str
    common_directory: Path
    environ: Mapping[str, str]

    @classmethod
    def around(cls, directory: Path, environ: Mapping[str, str]) -> Repository | None:
        """The repository that a directory lies in; None if it lies in none, or there is no git.

        Raises:
            GitFailed: there is one, and git does not read it: its owner is somebody else, say.
        """
        git = which("git", path=environ.get("PATH"))
        if git is None:
            return None
        own = {
            name: value for name, value in environ.items() if name in _INHERITED or name.startswith("GIT_")
        }
        found = cls(git, directory, "", directory, {**own, **_ENVIRONMENT})
        done = found._run("rev-parse", "--git-common-dir", "--show-prefix")
        if done.returncode:
            if b"not a git repository" in done.stderr:
                return None
            raise _failed("git rev-parse", done.stderr)
        common, _, prefix = os.fsdecode(done.stdout).removesuffix("\n").partition("\n")
        return cls(git, directory, prefix.rstrip("/"), (directory / common).resolve(), found.environ)

    def commit(self, revision: str) -> str | None:
        """The id of the commit that a revision (`main`, `HEAD~1`, `:/text`, …) names, or None."""
        if revision.startswith("-") or "\0" in revision:
            return None
        # In two steps: what stands behind `:/` is text to be searched for, to its end.
        found = self._object(revision)
        return self._object(f"{found}^{{commit}}") if found else None

    def _object(self, revision: str) -> str | None:
        found = self._line("rev-parse", "--verify", "--quiet", revision)
        return found if found is not None and _OID.fullmatch(found) else None

    def entries(self, commit: str) -> list[TreeEntry]:
        """Every file, link and submodule of a commit.

        Raises:
            GitFailed: it cannot be listed, or holds a path that leads out of it.
        """
        done = self._run("ls-tree", "-r", "-z", "--full-tree", commit)
        if done.returncode:
            raise _failed(f"git ls-tree {commit}", done.stderr)
        return [entry for line in done.stdout.split(b"\0") if line and (entry := _entry(line)) is not None]

    def _line(self, *arguments: str) -> str | None:
        done = self._run(*arguments)
        return os.fsdecode(done.stdout.removesuffix(b"\n")) if done.returncode == 0 else None

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(  # noqa: S603 - a fixed program, no shell, and no argument that is an option
            self._command(*arguments), env=self.environ, capture_output=True, check=False
        )

    def _command(self, *arguments: str) -> list[str]:
        return [self.git, *_FIXED, "-C", str(self.directory), *arguments]

    @contextmanager
    def blobs(self) -> Iterator[BlobReader]:
        """Read the contents of files, one after the other."""
        process = subprocess.Popen(  # noqa: S603 - as above
            self._command("cat-file", "--batch"),
            env=self.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        with process:
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                yield BlobReader(process.stdin, process.stdout)
            except BaseException:
                process.kill()
                raise


def _entry(line: bytes) -> TreeEntry | None:
    head, _, name = line.partition(b"\t")
    mode, _, oid = os.fsdecode(head).split(" ")
    path = os.fsdecode(name)
    if {"", ".", ".."} & set(path.split("/")):
        raise _failed("git ls-tree", f"the path {path!r} leads out of the repository".encode())
    kind = _KIND_BY_MODE.get(mode)
    return None if kind is None else TreeEntry(path, kind, oid)


def _failed(what: str, said: bytes) -> GitFailed:
    return GitFailed(Diagnostic("git failed", f"{what}: {said.decode('utf-8', 'replace').strip()}"))


class BlobReader:
    """Asks one running `git cat-file --batch`."""

    def __init__(self, requests: IO[bytes], responses: IO[bytes]) -> None:
        self._requests, self._responses = requests, responses

    def copy(self, oid: str, most: int, into: IO[bytes]) -> int:
        """Copy at most so many bytes of a file's content; returns how many it has.

        Raises:
            GitFailed: the repository does not have it.
        """
        try:
            self._requests.write(oid.encode() + b"\n")
            self._requests.flush()
        except BrokenPipeError:
            raise _missing(oid) from None
        head = self._responses.readline().split()
        if len(head) != 3 or head[1] != b"blob":
            raise _missing(oid)
        size = left = int(head[2])
        while left:
            chunk = self._responses.read(min(left, _CHUNK))
            if not chunk:
                raise _missing(oid)
            into.write(chunk[: max(0, most - (size - left))])
            left -= len(chunk)
        self._responses.read(1)  # the line feed behind the content
        return size


def _missing(oid: str) -> GitFailed:
    why = f"object {oid} is not in the repository; a shallow or partial clone lacks it".encode()
    return _failed("git cat-file", why)


@dataclass(frozen=True)
class CommitFiles:
    """The manifest files of a commit, copied below a directory.

    `paths` are all of its paths, `left_out` those that could not be copied, each with why.
    """

    paths: frozenset[str]
    left_out: Mapping[str, str]

    def has(self, path: str) -> bool:
        """Whether a file or a directory of that path is in the commit; "" is its top."""
        below = f"{path}/"
        return not path or path in self.paths or any(one.startswith(below) for one in self.paths)

    def has_manifests_at(self, path: str) -> bool:
        """Whether a file named like a manifest stands at or below a path."""
        below = f"{path}/" if path else ""
        return any((one == path or one.startswith(below)) and one.endswith(SUFFIXES) for one in self.paths)


def copy_manifests(repository: Repository, commit: str, directory: Path) -> CommitFiles:
    """Copy what may belong to a stack from a commit to an empty directory, which is resolved.

    Links stay links where they lead to something of the commit: the loader judges them.

    Raises:
        GitFailed: the repository cannot be read.
    """
    entries = repository.entries(commit)
    files = {entry.path: entry for entry in entries if entry.kind is EntryKind.FILE}
    left_out = {entry.path: "it is a submodule" for entry in entries if entry.kind is EntryKind.SUBMODULE}
    links: dict[str, str] = {}
    with repository.blobs() as blobs:
        for entry in entries:
            if entry.kind is EntryKind.LINK:
                links[entry.path] = _link_target(blobs, entry)
        wanted = {path for path in files if path.endswith(SUFFIXES)}
        wanted |= {target for path, link in links.items() if (target := _lexical(path, link)) in files}
        for path in sorted(wanted):
            _copy(blobs, files[path], directory / path)
    # Last, so that nothing is written through one.
    left_out |= _make_links(links, directory)
    return CommitFiles(frozenset(entry.path for entry in entries), left_out)


def _link_target(blobs: BlobReader, entry: TreeEntry) -> str:
    content = BytesIO()
    blobs.copy(entry.oid, _MAX_LINK_BYTES, content)
    return os.fsdecode(content.getvalue())


def _lexical(path: str, link: str) -> str:
    return os.path.normpath(PurePosixPath(path).parent / link)


def _copy(blobs: BlobReader, entry: TreeEntry, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        size = blobs.copy(entry.oid, MAX_FILE_BYTES, file)
        if size > MAX_FILE_BYTES:
            file.truncate(size)  # the loader says that it is too large


def _make_links(links: Mapping[str, str], directory: Path) -> dict[str, str]:
    """Make the links; returns those that lead out of the commit, which are none then, and why."""
    for path, target in links.items():
        place = directory / path
        if any(above.as_posix() in links for above in PurePosixPath(path).parents):
            raise _failed("git ls-tree", f"{path!r} lies below a link".encode())
        place.parent.mkdir(parents=True, exist_ok=True)
        if target and "\0" not in target and not target.startswith("/"):
            place.symlink_to(target)
    left_out = {}
    for path, target in links.items():
        place = directory / path
        real = Path(os.path.realpath(place))
        if not place.is_symlink() or not (real == directory or directory in real.parents):
            left_out[path] = f"it is a link to {target}, outside the repository"
    for path in left_out:
        (directory / path).unlink(missing_ok=True)
    return left_out
