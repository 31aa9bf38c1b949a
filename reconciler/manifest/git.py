"""Manifest files of a git commit: read from the repository, and copied to a directory of their own.

Nothing is checked out, and nothing that a repository configures is run: no hook, filter, monitor or pager,
and no object is fetched or replaced by another. Only `rev-parse`, `ls-tree` and `cat-file` are asked, without
a shell, and each for a limited time: a repository can make git wait for ever.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path, PurePosixPath
from shutil import which
from typing import IO, NamedTuple

from reconciler.errors import Diagnostic, ReconcilerError
from reconciler.manifest.files import SUFFIXES
from reconciler.manifest.yaml import MAX_FILE_BYTES

#: No target of a link and no path has more bytes, no name in it.
_MAX_PATH_BYTES, _MAX_NAME_BYTES = 4095, 255
_MAX_DEPTH = 200
#: A tree that holds itself many times over in a few kB has any number of paths.
_MAX_LISTING_BYTES = 256_000_000
_CHUNK = 1 << 20
_LIMIT_S = 30.0
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


def git_command(git: str, directory: Path) -> list[str]:
    """How git is called in a directory that anybody may have made; arguments follow."""
    return [git, *_FIXED, "-C", str(directory)]


def git_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment that git is called in: credentials are none of its business."""
    return {name: value for name, value in environ.items() if re.fullmatch(_INHERITED, name)} | _ENVIRONMENT


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

    @classmethod
    def around(cls, directory: Path, environ: Mapping[str, str]) -> Repository | None:
        """The repository that a directory lies in; None if it lies in none, or there is no git.

        Raises:
            GitFailed: there is one, and git does not read it: its owner is somebody else, say.
        """
        git = which("git", path=environ.get("PATH"))
        if git is None:
            return None
        found = cls(git, directory, "", directory, git_environment(environ))
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

    def _object(self, revision: str) -> str | None:
        code, out, _ = self._run("rev-parse", "--verify", "--quiet", revision)
        found = os.fsdecode(out.removesuffix(b"\n"))
        return found if code == 0 and re.fullmatch("[0-9a-f]{40,64}", found) else None

    def entries(self, commit: str) -> list[_TreeEntry]:
        """Every file, link and submodule of a commit.

        Raises:
            GitFailed: it cannot be listed, or holds a path that leads out of it.
        """
        code, out, err = self._run("ls-tree", "-r", "-z", "--full-tree", commit)
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

    def _run(self, *arguments: str) -> tuple[int, bytes, bytes]:
        """The exit code of git, and what it says on stdout and on stderr."""
        with tempfile.TemporaryFile() as errors:
            with self._started(*arguments, errors=errors) as process:
                assert process.stdout is not None
                out = process.stdout.read(_MAX_LISTING_BYTES + 1)
                if len(out) > _MAX_LISTING_BYTES:
                    raise _failed(f"git {arguments[0]}", b"the list of all paths is larger than 256 MB")
            errors.seek(0)
            return process.returncode, out, errors.read(_CHUNK)

    @contextmanager
    def _started(self, *arguments: str, errors: IO[bytes] | int) -> Iterator[subprocess.Popen[bytes]]:
        """Run git, with all that it starts, for a limited time; it has ended afterwards."""
        process = subprocess.Popen(  # noqa: S603 - a fixed program, no shell, and no argument that is an option
            [*git_command(self.git, self.directory), *arguments],
            env=self.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
        has_run_out = threading.Event()

        def end() -> None:
            has_run_out.set()
            _kill(process)

        timer = threading.Timer(_LIMIT_S, end)
        timer.daemon = True
        timer.start()
        try:
            with process:
                try:
                    yield process
                except BaseException:
                    _kill(process)
                    raise
        except Exception:
            if not has_run_out.is_set():
                raise
        finally:
            timer.cancel()
        if has_run_out.is_set():
            raise GitFailed(
                Diagnostic(
                    f"git {arguments[0]} did not end within {_LIMIT_S:g} s",
                    f"the repository around {self.directory} is damaged, or its disk is too slow",
                    "check that git log works there; a pipe in .git, or included by its config, blocks git",
                )
            )

    @contextmanager
    def blobs(self) -> Iterator[Callable[[str, int, IO[bytes]], int]]:
        """Read the contents of files, one after the other, from one process.

        Yields a function that copies at most so many bytes of a content, and returns how many it has.

        Raises:
            GitFailed: the repository does not have it.
        """
        with self._started("cat-file", "--batch", errors=subprocess.DEVNULL) as process:
            requests, responses = process.stdin, process.stdout
            assert requests is not None
            assert responses is not None

            def copy(oid: str, most: int, into: IO[bytes]) -> int:
                why = f"object {oid} is not in the repository; a shallow or partial clone lacks it".encode()
                missing = _failed("git cat-file", why)
                try:
                    requests.write(oid.encode() + b"\n")
                    requests.flush()
                except BrokenPipeError:
                    raise missing from None
                head = responses.readline().split()
                if len(head) != 3 or head[1] != b"blob":
                    raise missing
                size = left = int(head[2])
                while left:
                    chunk = responses.read(min(left, _CHUNK))
                    if not chunk:
                        raise missing
                    into.write(chunk[: max(0, most - (size - left))])
                    left -= len(chunk)
                responses.read(1)  # the line feed behind the content
                return size

            yield copy


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _failed(what: str, said: bytes) -> GitFailed:
    return GitFailed(Diagnostic("git failed", f"{what}: {said.decode('utf-8', 'replace').strip()}"))


class CommitFiles(NamedTuple):
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
    left_out = {path: why for path, _, _ in entries if (why := _why_not_copied(path, directory))}
    left_out |= {path: "it is a submodule" for path, kind, _ in entries if kind == "submodule"}
    files = {path: oid for path, kind, oid in entries if kind == "file" and path not in left_out}
    links: dict[str, str] = {}
    with repository.blobs() as copy_blob:
        for path, kind, oid in entries:
            if kind == "link" and path not in left_out:
                content = BytesIO()
                copy_blob(oid, _MAX_PATH_BYTES + 1, content)
                links[path] = os.fsdecode(content.getvalue())
        wanted = {path for path in files if path.endswith(SUFFIXES)}
        targets = (os.path.normpath(PurePosixPath(path).parent / link) for path, link in links.items())
        wanted |= {target for target in targets if target in files}
        for path in sorted(wanted):
            copy = directory / path
            copy.parent.mkdir(parents=True, exist_ok=True)
            with copy.open("xb") as file:
                size = copy_blob(files[path], MAX_FILE_BYTES, file)
                if size > MAX_FILE_BYTES:
                    file.truncate(size)  # the loader says that it is too large
    # Last, so that nothing is written through one.
    left_out |= _make_links(links, directory)
    return CommitFiles(frozenset(path for path, _, _ in entries), left_out)


def _why_not_copied(path: str, directory: Path) -> str | None:
    """Why no file of that path can be made, where git has no limit and the system has."""
    content = os.fsencode(path)
    if max(map(len, content.split(b"/"))) > _MAX_NAME_BYTES:
        return f"a name in it has more than {_MAX_NAME_BYTES} bytes"
    if content.count(b"/") > _MAX_DEPTH:
        return f"it lies more than {_MAX_DEPTH} directories deep"
    if len(os.fsencode(directory)) + 1 + len(content) > _MAX_PATH_BYTES:
        return f"its path has more than {_MAX_PATH_BYTES} bytes"
    return None


def _make_links(links: Mapping[str, str], directory: Path) -> dict[str, str]:
    """Make the links; returns those that lead out of the commit, which are none then, and why."""
    for path, target in links.items():
        place = directory / path
        if any(above.as_posix() in links for above in PurePosixPath(path).parents):
            raise _failed("git ls-tree", f"{path!r} lies below a link".encode())
        place.parent.mkdir(parents=True, exist_ok=True)
        if target and "\0" not in target and not target.startswith("/"):
            with suppress(OSError):  # longer than a link may be
                place.symlink_to(target)
    left_out = {}
    for path, target in links.items():
        place = directory / path
        real = Path(os.path.realpath(place))
        if not place.is_symlink() or not (real == directory or directory in real.parents):
            left_out[path] = f"it is a link to {shortened(target)}, outside the repository"
    for path in left_out:
        (directory / path).unlink(missing_ok=True)
    return left_out


def shortened(path: str) -> str:
    """A path as messages show it: git has no limit for it, and a reader has."""
    return path if len(path) <= _MAX_NAME_BYTES else f"{path[:_MAX_NAME_BYTES]}…"
