"""Manifest files of a git commit: read from the repository, and copied to a separate directory.

Nothing is checked out, and nothing that a repository configures is run: no hook, filter, monitor or pager,
and no object is fetched or replaced. Only `rev-parse`, `ls-tree`, `cat-file` and `config` are run, without a
shell and with a timeout, since a repository can make git block forever.
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

#: Limits on names in messages, and on the depth of copies: much deeper trees cannot be removed.
MAX_NAME, _MAX_DEPTH = 256, 200
_TIMEOUT_S = 30.0
#: A few kB of nested trees can have any number of paths.
_MAX_LISTING_BYTES = 256_000_000
_FIXED = ("--no-pager", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
#: Environment variables that git inherits: locations, and which repositories are safe to read.
_INHERITED = (
    "PATH|HOME|XDG_CONFIG_HOME|SYSTEMROOT|TMPDIR|GIT_(DIR|WORK_TREE|COMMON_DIR|OBJECT_DIRECTORY|EXEC_PATH|NAMESPACE"
    "|ALTERNATE_OBJECT_DIRECTORIES|QUARANTINE_PATH|CEILING_DIRECTORIES|DISCOVERY_ACROSS_FILESYSTEM"
    "|CONFIG_(GLOBAL|SYSTEM|NOSYSTEM|COUNT|KEY_[0-9]+|VALUE_[0-9]+)|TEST_ASSUME_DIFFERENT_OWNER)"
)
_ENVIRONMENT = {
    "LC_ALL": "C",
    "GIT_TERMINAL_PROMPT": "0",
    # Do not fetch objects that a partial clone lacks; older versions know only the second.
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    # The content of a commit must match its id.
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_GRAFT_FILE": os.devnull,
}


class GitFailed(ReconcilerError):
    """Git could not read the repository."""


_KIND_BY_MODE = {"100644": "file", "100755": "file", "120000": "link", "160000": "submodule"}
#: Path from the top of the repository, kind, and object id.
_TreeEntry = tuple[str, str, str]


class Repository(NamedTuple):
    """The repository around a directory. `prefix` is the directory's path in it, "" at its top."""

    git: str
    directory: Path
    prefix: str
    common_directory: Path
    environ: Mapping[str, str]
    timeout_s: float

    @classmethod
    def around(
        cls, directory: Path, environ: Mapping[str, str], timeout_s: float | None = None
    ) -> Repository | None:
        """Return the repository around a directory; None if there is none, or git is not installed.

        `timeout_s` applies to each call of git.

        Raises:
            GitFailed: git cannot read the repository, e.g. because of its owner.
        """
        git = which("git", path=environ.get("PATH"))
        if git is None:
            return None
        # Without credentials.
        inherited = {name: value for name, value in environ.items() if re.fullmatch(_INHERITED, name)}
        repository = cls(git, directory, "", directory, inherited | _ENVIRONMENT, timeout_s or _TIMEOUT_S)
        code, out, err = repository._run("rev-parse", "--git-common-dir", "--show-prefix")
        if code and b"not a git repository" in err:
            return None
        if code:
            raise _failed("git rev-parse", err)
        common, _, prefix = os.fsdecode(out).removesuffix("\n").partition("\n")
        return repository._replace(prefix=prefix.rstrip("/"), common_directory=(directory / common).resolve())

    def commit(self, revision: str) -> str | None:
        """Return the id of the commit of a revision (`main`, `HEAD~1`, `:/text`, …), or None."""
        if revision.startswith("-") or "\0" in revision:
            return None
        # In two steps, because everything after `:/` is the text to search for.
        oid = self._object(revision)
        return self._object(f"{oid}^{{commit}}") if oid else None

    def remote_url(self) -> str:
        """Return the URL of the remote `origin`, or ""."""
        return os.fsdecode(self._run("config", "--get", "remote.origin.url")[1]).strip()

    def _object(self, revision: str) -> str | None:
        code, out, _ = self._run("rev-parse", "--verify", "--quiet", revision)
        oid = os.fsdecode(out.removesuffix(b"\n"))
        return oid if code == 0 and re.fullmatch("[0-9a-f]{40,64}", oid) else None

    def uncommitted(self, commit: str | None, files: Iterable[CodeFile]) -> list[str]:
        """Return the files of the directory that differ from a commit, or that only the commit has.

        They are not compared by git, which may run what the repository configures.

        Raises:
            GitFailed: the commit cannot be listed.
        """
        entries = self.entries(commit, is_whole=False) if commit else ()
        committed = {path: oid for path, kind, oid in entries if kind == "file"}
        top, changed = os.path.realpath(self.directory), list[str]()
        files = list(files)
        for module, module_commit in [(path, oid) for path, kind, oid in entries if kind == "submodule"]:
            inside = [file for file in files if file.path.startswith(f"{module}/")]
            files = [file for file in files if file not in inside]
            if not (self.directory / module / ".git").exists():
                changed.append(f"{module} (a submodule that is not checked out)")
                continue
            repository = self._replace(directory=self.directory / module)
            below = [file._replace(path=file.path[len(module) + 1 :]) for file in inside]
            changed += [f"{module}/{path}" for path in repository.uncommitted(module_commit, below)]
        for file in files:
            real = os.path.realpath(self.directory / file.path)
            oid = committed.get(os.path.relpath(real, top), "")
            data = Path(real).read_bytes()
            pointer = (
                f"version https://git-lfs.github.com/spec/v1\noid sha256:{file.sha256}\nsize {file.size}\n"
            )
            forms = (data, data.replace(b"\r\n", b"\n"), pointer.encode())
            if not oid or oid not in (_blob_id(form, len(oid)) for form in forms):
                changed.append(file.path)
        deleted = (path for path in committed if not os.path.lexists(self.directory / path))
        return sorted({*changed, *deleted})

    def entries(self, commit: str, *, is_whole: bool = True) -> list[_TreeEntry]:
        """Return all files, links and submodules of a commit, or only those of the directory.

        Raises:
            GitFailed: the commit cannot be listed, or has a path that leads out of it.
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

    def contents(self, ids: Sequence[str], max_bytes: int | None = None) -> Iterator[bytes]:
        """Yield the contents of files, each up to `max_bytes`; by default one more than a manifest may have.

        Raises:
            GitFailed: an object is not in the repository.
        """
        with TemporaryFile() as out:
            self._run_to_file(out, "cat-file", "--batch", stdin="".join(f"{oid}\n" for oid in ids).encode())
            out.seek(0)
            for oid in ids:
                head = out.readline().split()
                if len(head) != 3 or head[1] != b"blob":
                    why = f"object {oid} is not in the repository; a shallow or partial clone lacks it"
                    raise _failed("git cat-file", why.encode())
                end = out.tell() + int(head[2]) + 1  # with the line feed
                yield out.read(min(int(head[2]), MAX_FILE_BYTES + 1 if max_bytes is None else max_bytes))
                out.seek(end)

    def _run(self, *arguments: str) -> tuple[int, bytes, bytes]:
        with TemporaryFile() as out:
            code, err = self._run_to_file(out, *arguments)
            if out.tell() > _MAX_LISTING_BYTES:
                raise _failed(f"git {arguments[0]}", b"the list of all paths is larger than 256 MB")
            out.seek(0)
            return code, out.read(), err

    def _run_to_file(self, out: IO[bytes], *arguments: str, stdin: bytes = b"") -> tuple[int, bytes]:
        """Run git with output to a file, since the output may be too large for memory."""
        command = [self.git, *_FIXED, "-C", str(self.directory), *arguments]
        try:
            done = subprocess.run(  # noqa: S603 - a fixed program, no shell, and no argument that is an option
                command,
                env=self.environ,
                input=stdin,
                stdout=out,
                stderr=subprocess.PIPE,
                timeout=self.timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            what = f"git {arguments[0]} did not end within {self.timeout_s:g} s"
            why = f"the repository around {self.directory} is damaged, or its disk is too slow"
            fix = "check that git log works there; a pipe in .git, or included by its config, blocks git"
            raise GitFailed(Diagnostic(what, why, fix)) from None
        out.seek(0, os.SEEK_END)
        return done.returncode, done.stderr


def _blob_id(data: bytes, length: int) -> str:
    # SHA-1 because git uses it; not for security.
    hashed = hashlib.sha256() if length == 64 else hashlib.sha1(usedforsecurity=False)
    hashed.update(b"blob %d\0" % len(data) + data)
    return hashed.hexdigest()


def _failed(what: str, message: bytes) -> GitFailed:
    return GitFailed(Diagnostic("git failed", f"{what}: {message.decode('utf-8', 'replace').strip()}"))


class CommitFiles(NamedTuple):
    """The manifest files of a commit, copied below a directory.

    `paths` are all paths of the commit; `left_out` maps those that could not be copied to the reason. `ids`
    are the object ids of its files, `submodules` the commits of its submodules.
    """

    paths: frozenset[str]
    left_out: Mapping[str, str]
    repository: Repository
    directory: Path
    ids: Mapping[str, str]
    submodules: Mapping[str, str] = MappingProxyType({})

    def copy_code(self, source: Path) -> None:
        """Copy a directory of code, and the ignore files that apply to it, unless they exist.

        Raises:
            GitFailed: the repository cannot be read.
        """
        if not source.is_relative_to(self.directory):
            return
        below = f"{source.relative_to(self.directory).as_posix()}/".removeprefix("./")
        missing = [
            path
            for path in self.ids
            if path.startswith(below) or (path.endswith(".gitignore") and below.startswith(path[:-10]))
            if not os.path.lexists(self.directory / path)
        ]
        contents = self.repository.contents([self.ids[path] for path in missing], sys.maxsize)
        # The files of submodules are not in the repository: write their commit, as `git diff` shows it.
        modules = {path: oid for path, oid in self.submodules.items() if path.startswith(below)}
        commits = ((path, f"Subproject commit {oid}\n".encode()) for path, oid in modules.items())
        for path, content in chain(zip(missing, contents, strict=True), commits):
            place = self.directory / path
            if Path(os.path.realpath(place.parent)) != place.parent:
                raise _failed("git ls-tree", f"{path!r} is below a link".encode())
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content)
            except (OSError, ValueError) as error:
                raise _failed(f"copying {shorten(path, MAX_NAME)}", str(error).encode()) from error

    def has(self, path: str) -> bool:
        """Whether a file or directory is in the commit; "" is the top directory."""
        below = f"{path}/"
        return not path or path in self.paths or any(other.startswith(below) for other in self.paths)

    def has_manifests_at(self, path: str) -> bool:
        """Whether a path is, or has below it, a file with the name of a manifest."""
        below = f"{path}/" if path else ""
        return any((own == path or own.startswith(below)) and own.endswith(SUFFIXES) for own in self.paths)


def copy_manifests(repository: Repository, commit: str, directory: Path) -> CommitFiles:
    """Copy the manifests of a commit to an empty directory, which must be resolved.

    Links stay links if their target is in the commit: the loader checks them.

    Raises:
        GitFailed: the repository cannot be read.
    """
    entries = repository.entries(commit)
    # Marks the top of a work tree for `CodeReader`.
    (directory / ".git").mkdir()
    submodules = {path: oid for path, kind, oid in entries if kind == "submodule"}
    left_out = dict.fromkeys(submodules, "it is a submodule")
    deep = f"it is more than {_MAX_DEPTH} directories deep"
    left_out |= {path: deep for path, _, _ in entries if path.count("/") > _MAX_DEPTH}
    files, linked = (
        {path: oid for path, kind, oid in entries if kind == selected and path not in left_out}
        for selected in ("file", "link")
    )
    targets = map(os.fsdecode, repository.contents([*linked.values()]))
    links = dict(zip(linked, targets, strict=True))
    copied = {path for path in files if path.endswith(SUFFIXES)}
    copied |= files.keys() & {os.path.normpath(PurePosixPath(path).parent / links[path]) for path in links}
    contents = repository.contents([files[path] for path in sorted(copied)])
    for path, content in zip(sorted(copied), contents, strict=True):
        with _collect_error(left_out, path):
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            (directory / path).write_bytes(content)
    # Links come last, so that nothing is written through one.
    left_out |= _make_links(links, directory)
    paths = frozenset(path for path, _, _ in entries)
    return CommitFiles(paths, left_out, repository, directory, files, submodules)


@contextmanager
def _collect_error(left_out: dict[str, str], path: str) -> Iterator[None]:
    """Add an error to `left_out`: unlike git, the file system limits the length of names and paths."""
    try:
        yield
    except (OSError, ValueError) as error:
        left_out[path] = getattr(error, "strerror", None) or str(error)


def _make_links(links: Mapping[str, str], directory: Path) -> dict[str, str]:
    """Make the links. Returns those that were left out, e.g. because they lead out of the commit, and why."""
    left_out: dict[str, str] = {}
    for path, target in links.items():
        if any(above.as_posix() in links for above in PurePosixPath(path).parents):
            raise _failed("git ls-tree", f"{path!r} is below a link".encode())
        with _collect_error(left_out, path):
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
