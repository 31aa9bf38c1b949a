"""Manifest files of a git commit: read from the repository, and copied to a directory of their own.

Nothing is checked out, and nothing that a repository configures is run: no hook, filter, monitor or pager,
and no object is fetched or replaced by another. Only `rev-parse`, `ls-tree` and `cat-file` are asked, without
a shell, and each for a limited time: a repository can make git wait for ever.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path, PurePosixPath
from shutil import which
from tempfile import TemporaryFile
from types import MappingProxyType
from typing import IO, NamedTuple

from reconciler.core.code import CodeFile
from reconciler.errors import Diagnostic, ReconcilerError
from reconciler.manifest.files import SUFFIXES
from reconciler.manifest.yaml import MAX_FILE_BYTES, shorten

#: Names are shown up to here, and directories copied: the system can remove no tree that is much deeper.
MAX_NAME, _MAX_DEPTH = 256, 200
_LIMIT_S = 30.0
#: A tree that holds itself many times over in a few kB has any number of paths.
_MAX_LISTING_BYTES = 256_000_000
_FIXED = ("--no-pager", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
#: What git is told of our environment: where things are, and whose repositories are safe to read.
_INHERITED = (
    "PATH|HOME|XDG_CONFIG_HOME|SYSTEMROOT|TMPDIR|GIT_(DIR|WORK_TREE|COMMON_DIR|OBJECT_DIRECTORY|EXEC_PATH|NAMESPACE"
    "|ALTERNATE_OBJECT_DIRECTORIES|QUARANTINE_PATH|CEILING_DIRECTORIES|DISCOVERY_ACROSS_FILESYSTEM"
    "|CONFIG_(GLOBAL|SYSTEM|NOSYSTEM|COUNT|KEY_[0-9]+|VALUE_[0-9]+)|TEST_ASSUME_DIFFERENT_OWNER)"
)
_ENVIRONMENT = {
    "LC_ALL": "C",
    "GIT_TERMINAL_PROMPT": "0",
    # A partial clone would fetch what is missing; older versions know the second only.
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    # What a commit holds is what its id says.
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_GRAFT_FILE": os.devnull,
}


class GitFailed(ReconcilerError):
    """Git could not read what the repository should hold."""


#: What stands at a path of a commit, by its mode.
_KIND_BY_MODE = {"100644": "file", "100755": "file", "120000": "link", "160000": "submodule"}
#: A path of a commit from the top of the repository, what stands there, and the id of its content.
_TreeEntry = tuple[str, str, str]


class Repository(NamedTuple):
    """The repository around a directory. `prefix` is the directory's path in it, "" at its top."""

    git: str
    directory: Path
    prefix: str
    common_directory: Path
    environ: Mapping[str, str]
    limit_s: float

    @classmethod
    def around(
        cls, directory: Path, environ: Mapping[str, str], limit_s: float | None = None
    ) -> Repository | None:
        """The repository that a directory lies in; None if it lies in none, or there is no git.

        `limit_s` is how long each call of git may take.

        Raises:
            GitFailed: there is one, and git does not read it: its owner is somebody else, say.
        """
        git = which("git", path=environ.get("PATH"))
        if git is None:
            return None
        # Credentials are none of its business.
        inherited = {name: value for name, value in environ.items() if re.fullmatch(_INHERITED, name)}
        found = cls(git, directory, "", directory, inherited | _ENVIRONMENT, limit_s or _LIMIT_S)
        code, out, err = found._run("rev-parse", "--git-common-dir", "--show-prefix")
        if code and b"not a git repository" in err:
            return None
        if code:
            raise _failed("git rev-parse", err)
        common, _, prefix = os.fsdecode(out).removesuffix("\n").partition("\n")
        return found._replace(prefix=prefix.rstrip("/"), common_directory=(directory / common).resolve())

    def commit(self, revision: str) -> str | None:
        """The id of the commit that a revision (`main`, `HEAD~1`, `:/text`, …) names, or None."""
        if revision.startswith("-") or "\0" in revision:
            return None
        # In two steps: what stands behind `:/` is text to be searched for, to its end.
        found = self._object(revision)
        return self._object(f"{found}^{{commit}}") if found else None

    def remote_url(self) -> str:
        """The URL of the remote `origin`; "" if there is none."""
        return os.fsdecode(self._run("config", "--get", "remote.origin.url")[1]).strip()

    def _object(self, revision: str) -> str | None:
        code, out, _ = self._run("rev-parse", "--verify", "--quiet", revision)
        found = os.fsdecode(out.removesuffix(b"\n"))
        return found if code == 0 and re.fullmatch("[0-9a-f]{40,64}", found) else None

    def uncommitted(self, commit: str | None, files: Iterable[CodeFile]) -> list[str]:
        """The files of the directory that are not as a commit has them, and those of it that are gone.

        They are read here, and not compared by git, which may run what the repository configures.

        Raises:
            GitFailed: the commit cannot be listed.
        """
        entries = self.entries(commit, is_whole=False) if commit else ()
        there = {path: oid for path, kind, oid in entries if kind == "file"}
        top, found = os.path.realpath(self.directory), list[str]()
        files = list(files)
        for module, made in [(path, oid) for path, kind, oid in entries if kind == "submodule"]:
            inside = [file for file in files if file.path.startswith(f"{module}/")]
            files = [file for file in files if file not in inside]
            if not (self.directory / module / ".git").exists():
                found.append(f"{module} (a submodule that is not checked out)")
                continue
            repository = self._replace(directory=self.directory / module)
            below = [file._replace(path=file.path[len(module) + 1 :]) for file in inside]
            found += [f"{module}/{path}" for path in repository.uncommitted(made, below)]
        for file in files:
            real = os.path.realpath(self.directory / file.path)
            oid = there.get(os.path.relpath(real, top), "")
            data = Path(real).read_bytes()
            pointer = (
                f"version https://git-lfs.github.com/spec/v1\noid sha256:{file.sha256}\nsize {file.size}\n"
            )
            forms = (data, data.replace(b"\r\n", b"\n"), pointer.encode())
            if not oid or oid not in (_blob_id(one, len(oid)) for one in forms):
                found.append(file.path)
        gone = (path for path in there if not os.path.lexists(self.directory / path))
        return sorted({*found, *gone})

    def entries(self, commit: str, *, is_whole: bool = True) -> list[_TreeEntry]:
        """Every file, link and submodule of a commit, or of the directory in it.

        Raises:
            GitFailed: it cannot be listed, or holds a path that leads out of it.
        """
        code, out, err = self._run("ls-tree", "-r", "-z", *(["--full-tree"] if is_whole else []), commit)
        if code:
            raise _failed(f"git ls-tree {commit}", err)
        entries = []
        for line in filter(None, out.split(b"\0")):
            head, _, name = line.partition(b"\t")
            mode, _, oid = os.fsdecode(head).split(" ")
            path = os.fsdecode(name)
            if {"", ".", ".."} & set(path.split("/")):
                raise _failed("git ls-tree", f"the path {path!r} leads out of the repository".encode())
            if mode in _KIND_BY_MODE:
                entries.append((path, _KIND_BY_MODE[mode], oid))
        return entries

    def contents(self, ids: Sequence[str], most: int | None = None) -> Iterator[bytes]:
        """The contents of files, in order, and of each so many bytes: one too many for a manifest.

        Raises:
            GitFailed: the repository does not have one.
        """
        with TemporaryFile() as out:
            self._ask(out, "cat-file", "--batch", feed="".join(f"{oid}\n" for oid in ids).encode())
            out.seek(0)
            for oid in ids:
                head = out.readline().split()
                if len(head) != 3 or head[1] != b"blob":
                    why = f"object {oid} is not in the repository; a shallow or partial clone lacks it"
                    raise _failed("git cat-file", why.encode())
                end = out.tell() + int(head[2]) + 1  # behind the line feed
                yield out.read(min(int(head[2]), MAX_FILE_BYTES + 1 if most is None else most))
                out.seek(end)

    def _run(self, *arguments: str) -> tuple[int, bytes, bytes]:
        with TemporaryFile() as out:
            code, err = self._ask(out, *arguments)
            if out.tell() > _MAX_LISTING_BYTES:
                raise _failed(f"git {arguments[0]}", b"the list of all paths is larger than 256 MB")
            out.seek(0)
            return code, out.read(), err

    def _ask(self, out: IO[bytes], *arguments: str, feed: bytes = b"") -> tuple[int, bytes]:
        """Let git write to a file: what a repository holds may be more than fits into memory."""
        command = [self.git, *_FIXED, "-C", str(self.directory), *arguments]
        try:
            done = subprocess.run(  # noqa: S603 - a fixed program, no shell, and no argument that is an option
                command,
                env=self.environ,
                input=feed,
                stdout=out,
                stderr=subprocess.PIPE,
                timeout=self.limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            what = f"git {arguments[0]} did not end within {self.limit_s:g} s"
            why = f"the repository around {self.directory} is damaged, or its disk is too slow"
            fix = "check that git log works there; a pipe in .git, or included by its config, blocks git"
            raise GitFailed(Diagnostic(what, why, fix)) from None
        out.seek(0, os.SEEK_END)
        return done.returncode, done.stderr


def _blob_id(data: bytes, length: int) -> str:
    # The name that git gives a content; nobody is kept out by it.
    hashed = hashlib.sha256() if length == 64 else hashlib.sha1(usedforsecurity=False)
    hashed.update(b"blob %d\0" % len(data) + data)
    return hashed.hexdigest()


def _failed(what: str, said: bytes) -> GitFailed:
    return GitFailed(Diagnostic("git failed", f"{what}: {said.decode('utf-8', 'replace').strip()}"))


class CommitFiles(NamedTuple):
    """The manifest files of a commit, copied below a directory.

    `paths` are all of its paths, `left_out` those that could not be copied, each with why. `ids` are those of
    the contents of its files, `submodules` the commits of others that stand in it.
    """

    paths: frozenset[str]
    left_out: Mapping[str, str]
    repository: Repository
    directory: Path
    ids: Mapping[str, str]
    submodules: Mapping[str, str] = MappingProxyType({})

    def copy_code(self, source: Path) -> None:
        """Copy a directory of code, and what leaves files out of it, unless that has been done.

        Raises:
            GitFailed: the repository cannot be read.
        """
        if not source.is_relative_to(self.directory):
            return
        below = f"{source.relative_to(self.directory).as_posix()}/".removeprefix("./")
        wanted = [
            path
            for path in self.ids
            if path.startswith(below) or (path.endswith(".gitignore") and below.startswith(path[:-10]))
            if not os.path.lexists(self.directory / path)
        ]
        contents = self.repository.contents([self.ids[path] for path in wanted], sys.maxsize)
        # Of what is not in the repository at least another commit is seen, in git's own words.
        modules = {path: oid for path, oid in self.submodules.items() if path.startswith(below)}
        words = ((path, f"Subproject commit {oid}\n".encode()) for path, oid in modules.items())
        for path, content in chain(zip(wanted, contents, strict=True), words):
            place = self.directory / path
            if Path(os.path.realpath(place.parent)) != place.parent:
                raise _failed("git ls-tree", f"{path!r} lies below a link".encode())
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content)
            except (OSError, ValueError) as error:
                raise _failed(f"copying {shorten(path, MAX_NAME)}", str(error).encode()) from error

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
    # To what reads code this is the top of a work tree.
    (directory / ".git").mkdir()
    submodules = {path: oid for path, kind, oid in entries if kind == "submodule"}
    left_out = dict.fromkeys(submodules, "it is a submodule")
    deep = f"it lies more than {_MAX_DEPTH} directories deep"
    left_out |= {path: deep for path, _, _ in entries if path.count("/") > _MAX_DEPTH}
    files, linked = (
        {path: oid for path, one, oid in entries if one == kind and path not in left_out}
        for kind in ("file", "link")
    )
    targets = map(os.fsdecode, repository.contents([*linked.values()]))
    links = dict(zip(linked, targets, strict=True))
    wanted = {path for path in files if path.endswith(SUFFIXES)}
    wanted |= files.keys() & {os.path.normpath(PurePosixPath(path).parent / links[path]) for path in links}
    contents = repository.contents([files[path] for path in sorted(wanted)])
    for path, content in zip(sorted(wanted), contents, strict=True):
        with _noted(left_out, path):
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            (directory / path).write_bytes(content)
    # Last, so that nothing is written through one.
    left_out |= _make_links(links, directory)
    paths = frozenset(path for path, _, _ in entries)
    return CommitFiles(paths, left_out, repository, directory, files, submodules)


@contextmanager
def _noted(left_out: dict[str, str], path: str) -> Iterator[None]:
    """Take note of what cannot be made: git has no limit for names and paths, and the system has."""
    try:
        yield
    except (OSError, ValueError) as error:
        left_out[path] = getattr(error, "strerror", None) or str(error)


def _make_links(links: Mapping[str, str], directory: Path) -> dict[str, str]:
    """Make the links; returns those that are none then, as they lead out of the commit, say, and why."""
    left_out: dict[str, str] = {}
    for path, target in links.items():
        if any(above.as_posix() in links for above in PurePosixPath(path).parents):
            raise _failed("git ls-tree", f"{path!r} lies below a link".encode())
        with _noted(left_out, path):
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            (directory / path).symlink_to(target)
    outside = [
        path
        for path in links.keys() - left_out.keys()
        if not Path(os.path.realpath(directory / path)).is_relative_to(directory)
    ]
    for path in outside:
        (directory / path).unlink()
        left_out[path] = f"it is a link to {shorten(links[path], MAX_NAME)}, outside the repository"
    return left_out
