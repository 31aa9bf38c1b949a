"""The code of a job: which files of a directory it is, and within which limits. `code_store` uploads it."""

from __future__ import annotations

import codecs
import hashlib
import os
import re
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from reconciler.core.code import Code, CodeFile, digest_of
from reconciler.errors import Rejected
from reconciler.files import kind_of, read_file
from reconciler.text import format_size

MEGABYTE = 1_000_000
#: What a job of the service can hold (reference/execution.md, section 3): folders count as files do.
MAX_ENTRIES, MAX_DEPTH, DEFAULT_MAX_SIZE = 1000, 32, 100 * MEGABYTE
MAX_KEY_BYTES = 1023
IGNORE_FILES = (".gitignore", ".reconcilerignore")

_NEVER_CODE = frozenset(
    {".git", ".hg", ".svn", ".reconciler", "__pycache__", ".ipynb_checkpoints", ".DS_Store"}
)
#: By their names, and by the directories that they lie in.
_CREDENTIALS = (
    r"(?i)(^|/)(\.aws|\.ssh|\.huaweicloud)/|(^|/)("
    r"\.env(?!\.(example|sample|template)$)(\.[^/]*)?|[^/]*\.(pem|key|p12|pfx|jks|kdbx|ppk)"
    r"|id_(rsa|dsa|ecdsa|ed25519)|[._]netrc|\.(pgpass|htpasswd|obsutilconfig|pypirc|npmrc|git-credentials)"
    r"|credentials([^/]*\.(json|csv|ya?ml))?|service-account[^/]*\.json)$"
)
_WORTH_A_THREAD, _MAX_IGNORE_FILE = 8 * MEGABYTE, 1 << 20


class CodeRejected(Rejected):
    """The directory cannot be the code of a job; nothing was sent."""

    what = "cannot use the code"


class CodeSource(NamedTuple):
    """What a manifest says of the code of a job. `source` is a directory, with no link in its path."""

    source: Path
    exclude: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    max_size: int = DEFAULT_MAX_SIZE


class FoundFile(NamedTuple):
    """A file that is code. `path` is relative to the source, with slashes; `size` in bytes."""

    path: str
    place: str
    size: int


def read_code(source: CodeSource) -> Code:
    """Read and hash the code of a job.

    Raises:
        CodeRejected: it is none, it breaks a limit, or something in it cannot be read.
    """
    from concurrent.futures import ThreadPoolExecutor  # few stacks declare code

    found = find_code(source)
    # Hashing releases the lock of the interpreter, and so does reading; threads cost more than little code.
    count = min(8, os.cpu_count() or 1, 1 + sum(file.size for file in found) // _WORTH_A_THREAD)
    parts = [found[n::count] for n in range(count)]
    with ThreadPoolExecutor(count) as pool:
        files = tuple(sorted(file for part in pool.map(_hashed, parts) for file in part))
    return Code(source.source.name, files, digest_of(files))


def _hashed(found: Sequence[FoundFile]) -> list[CodeFile]:
    # One buffer for all: hashlib.file_digest makes one for each file, which takes half as long again.
    files, buffer = [], memoryview(bytearray(1 << 18))
    for file in found:
        hashed, size = hashlib.sha256(), 0
        try:
            with open(file.place, "rb", buffering=0) as stream:  # noqa: PTH123 - one of thousands
                while count := stream.readinto(buffer):
                    hashed.update(buffer[:count])
                    size += count
        except OSError as error:
            raise _unreadable(file.path, error) from error
        files.append(CodeFile(file.path, size, hashed.hexdigest()))
    return files


# ── what is code ───────────────────────────────────────────────────────────────────────────────────


def find_code(source: CodeSource) -> list[FoundFile]:
    """List the files that are code, sorted by path, without reading them.

    Raises:
        CodeRejected: as `read_code`.
    """
    walk = _SourceWalk(source)
    found = sorted(walk.files())
    _check_limits(source, found)
    if not found:
        raise CodeRejected(
            f"{source.source} contains no code files"
            + "".join(f"; {count:,} left out by {by}" for by, count in walk.left_out.most_common()),
            fix="put the code there, or add files back with `include`",
        )
    return found


#: The parts of a pattern of git.
_TOKEN = (
    rb"(?s)(?P<stars>\*+)(?P<slash>/?)|(?P<any>\?)|(?P<set>\[(?P<not>[!^]?+)"
    rb"(?P<members>\]?+(?:\[:[^\]]*:\]|\\.|[^\]\\])*+)\])|\\(?P<escaped>.)|(?P<plain>[^\\\[])|(?P<broken>.)"
)
_MEMBER = rb"(?s)\[:([^\]]*):\]|\\?(.)(?:-(?:\\(.)|([^\]\\])))?"
_CLASSES = {
    **{b"alnum": rb"0-9A-Za-z", b"alpha": rb"A-Za-z", b"digit": rb"0-9", b"xdigit": rb"0-9A-Fa-f"},
    **{b"lower": rb"a-z", b"upper": rb"A-Z", b"punct": rb"!-/:-@[-`{-~", b"blank": rb" \t", b"space": rb"\s"},
    **{b"cntrl": rb"\x00-\x1f\x7f", b"graph": rb"!-~", b"print": rb" -~"},
}


def _rule_of(line: bytes) -> tuple[re.Pattern[bytes], bool, bool] | None:
    """Parse a line of git's pattern language.

    Returns the pattern, whether only directories match it, and whether they are left out rather than brought
    back. None if the line says nothing, or if nothing matches it.
    """
    trimmed = re.match(rb"(?s)(?:\\.|[^\\])*?(?= *$)|.*", line)[0]  # type: ignore[index]
    bare = trimmed.removeprefix(b"!").removesuffix(b"/")
    if not bare or line.startswith(b"#") or (regex := _regex_of(bare.removeprefix(b"/"))) is None:
        return None
    anywhere = b"" if b"/" in bare else b"(?:.*/)?(?!.*/)"
    return re.compile(b"(?s)" + anywhere + regex), trimmed.endswith(b"/"), not trimmed.startswith(b"!")


def _regex_of(glob: bytes) -> bytes | None:
    """Translate a pattern of git into a regular expression; None if nothing matches it."""
    regex, first = b"", re.search(rb"[*?[\\]|$", glob).start()  # type: ignore[union-attr]
    last_star = last_cross = -1
    for token in re.finditer(_TOKEN, glob):
        if stars := token["stars"]:
            begins = token.start() == first or glob[token.start() - 1] == ord("/")
            ends = token["slash"] or re.match(rb"\\/|$", glob[token.end() :])
            crosses = len(stars) > 1 and begins and ends
            if crosses:
                if last_cross >= 0:
                    # So is the first match of what stands between two that cross directories.
                    regex = (
                        regex[:last_cross] + b"(?>(?:.*?/)??" + regex[last_cross + len(b"(?:.*/)?") :] + b")"
                    )
                last_star, last_cross = -1, len(regex) if token["slash"] else -1
                regex += b"(?:.*/)?" if token["slash"] else b".*"
                continue
            if last_star >= 0:
                # The first match of what stands between two stars is as good as any other.
                regex = regex[:last_star] + b"(?>[^/]*?" + regex[last_star + len(b"[^/]*") :] + b")"
            last_star = len(regex)
            regex += b"[^/]*" + token["slash"]
        elif token["set"]:
            members = b""
            for name, start, *ends in re.findall(_MEMBER, token["members"]):
                if name and name not in _CLASSES:
                    return None
                # Where the end of a range is before its start, that alone is meant.
                end = max(start, b"".join(ends))
                members += _CLASSES.get(name) or re.escape(start) + b"-" + re.escape(end)
            regex += b"[^/" + members + b"]" if token["not"] else rb"(?!/)[\x00" + members + b"]"
        elif token["broken"]:
            return None
        else:
            regex += b"[^/]" if token["any"] else re.escape(token["escaped"] or token["plain"])
    return regex


class _Ignored:
    """Lines of git's pattern language as git reads them: about an entry, and not about what lies below it.

    They are called `name`, and are about paths below `directory`.
    """

    def __init__(self, lines: Iterable[bytes], name: str, directory: str = "") -> None:
        self._rules = [rule for rule in map(_rule_of, lines) if rule][::-1]
        self.name, self._start = name, len(directory) + bool(directory)

    def leaves_out(self, path: str) -> bool | None:
        """Whether an entry is left out, a directory with a slash behind; None if no line is about it."""
        entry = os.fsencode(path[self._start :])
        bare = entry.removesuffix(b"/")
        for pattern, of_directories, is_out in self._rules:
            if pattern.fullmatch(bare) and (bare != entry or not of_directories):
                return is_out
        return None

    def covers(self, path: str) -> bool:
        """Whether an entry is named, or else a directory that it lies in."""
        ends = [n for n, character in enumerate(path, start=1) if character == "/" or n == len(path)]
        decided = (self.leaves_out(path[:end]) for end in reversed(ends))
        return next((is_named for is_named in decided if is_named is not None), False)


class _SourceWalk:
    def __init__(self, source: CodeSource) -> None:
        self._root = str(source.source.resolve())
        self._exclude = _Ignored(map(os.fsencode, source.exclude), "`exclude`")
        self._include = _Ignored(map(os.fsencode, source.include), "`include`")
        self._included_below = [_literal_start(pattern) for pattern in source.include]
        self.left_out: Counter[str] = Counter()

    def files(self) -> Iterator[FoundFile]:
        rules: list[_Ignored] = []
        left_out_by = ""
        # A source in a directory that git ignores is ignored with it.
        above = [Path(self._root), *Path(self._root).parents]
        work_tree = next((n for n, directory in enumerate(above) if (directory / ".git").exists()), 0)
        for n in range(work_tree, 0, -1):
            rules += _rules_in(above[n], IGNORE_FILES[:1])
            left_out_by = left_out_by or self._left_out_by("", f"{above[n - 1]}/", rules)
        return self._below(self._root, "", rules, (self._root,), left_out_by)

    def _below(
        self, directory: str, below: str, rules: Sequence[_Ignored], way: tuple[str, ...], left_out_by: str
    ) -> Iterator[FoundFile]:
        """List the code in a directory. `below`: its path, with a slash; `way`: the real paths above."""
        try:
            with os.scandir(directory) as found:
                entries = {entry.name: entry for entry in found}
        except OSError as error:
            raise _unreadable(below or directory, error) from error
        if below and "pyvenv.cfg" in entries:
            self.left_out["being a virtual environment"] += 1
            return
        rules = [*rules, *_rules_in(Path(directory), [name for name in IGNORE_FILES if name in entries])]
        for name, entry in sorted(entries.items()):
            if name in _NEVER_CODE or name in IGNORE_FILES or name.endswith(".pyc"):
                continue
            # Not `is_dir`, which raises for a link to itself.
            path, slash = below + name, "/" if os.path.isdir(entry) else ""  # noqa: PTH112
            out_by = left_out_by or self._left_out_by(path + slash, entry.path + slash, rules)
            if out_by and not self._is_included(path + slash):
                self.left_out[out_by] += 1
                continue
            real, status = self._checked(entry, path, way)
            if slash:
                yield from self._below(entry.path, path + slash, rules, (*way, real), out_by)
            else:
                yield FoundFile(path, real, status.st_size)

    def _checked(self, entry: os.DirEntry[str], path: str, way: Sequence[str]) -> tuple[str, os.stat_result]:
        """Check that an entry can be uploaded; return its real path, and its status."""
        try:
            path.encode()
        except UnicodeEncodeError:
            raise CodeRejected(f"the name of {path!a} is not UTF-8", fix="rename it") from None
        if not path.isprintable():
            why = f"the name of {path!a} contains an unprintable character"
            raise CodeRejected(why, fix="rename it")
        if path.count("/") >= MAX_DEPTH:
            raise CodeRejected(f"{path} is more than {MAX_DEPTH} levels deep", fix="move it up")
        try:
            # Only a link leads anywhere else.
            real = (
                os.path.realpath(entry.path, strict=True) if entry.is_symlink() else f"{way[-1]}/{entry.name}"
            )
            status = entry.stat()
        except OSError as error:
            raise _unreadable(path, error) from error
        if not f"{real}/".startswith(f"{self._root}/"):
            raise CodeRejected(
                f"{path} is a link that leads out of the code, to {real}",
                fix="copy its target into the code, or leave the link out with `exclude`",
            )
        if entry.is_dir():
            if real in way:
                why = f"{path} is a link to a directory that contains it"
                raise CodeRejected(why, fix="remove the link")
        elif not stat.S_ISREG(status.st_mode):
            raise CodeRejected(f"{path} is {kind_of(status.st_mode)}", fix="leave it out with `exclude`")
        elif not self._include.covers(path) and any(
            re.search(_CREDENTIALS, name) for name in {f"/{path}", real[len(self._root) :]}
        ):
            raise CodeRejected(
                f"{path} looks like a credential",
                fix="leave it out with `exclude`, or name it in `include` if it is not one",
            )
        return real, status

    def _left_out_by(self, seen: str, full: str, rules: Sequence[_Ignored]) -> str:
        """Name what leaves an entry out; "" if nothing does. Of the ignore files the nearest decides."""
        if seen and self._exclude.leaves_out(seen):
            return self._exclude.name
        for one in reversed(rules):
            if (is_out := one.leaves_out(full)) is not None:
                return one.name if is_out else ""
        return ""

    def _is_included(self, seen: str) -> bool:
        """Whether `include` brings an entry back, or may do so with something below it."""
        return self._include.covers(seen) or (
            seen.endswith("/")
            and any(
                start is None or start.startswith(seen) or seen.startswith(start)
                for start in self._included_below
            )
        )


def _rules_in(directory: Path, names: Iterable[str]) -> Iterator[_Ignored]:
    for name in names:
        try:
            text = read_file(directory / name, _MAX_IGNORE_FILE).removeprefix(codecs.BOM_UTF8)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise _unreadable(str(directory / name), error) from error
        yield _Ignored((line.removesuffix(b"\r") for line in text.split(b"\n")), name, str(directory))


def _literal_start(pattern: str) -> str | None:
    """Return the directories that a pattern begins with; None if it can match anywhere."""
    bare = pattern.removeprefix("/")
    if "/" not in bare.rstrip("/") and not pattern.startswith("/"):
        return None
    literal = bare[: re.search(r"[*?[\\]|$", bare).start()]  # type: ignore[union-attr]
    return literal[: literal.rfind("/") + 1]


# ── limits ─────────────────────────────────────────────────────────────────────────────────────────


def _check_limits(source: CodeSource, found: Sequence[FoundFile]) -> None:
    directories = set[str]()
    for path, *_ in found:
        while (path := path.rpartition("/")[0]) and path not in directories:
            directories.add(path)
    entries = len(found) + len(directories)
    if entries > MAX_ENTRIES:
        raise CodeRejected(
            f"{len(found):,} files in {len(directories):,} folders; the limit is {MAX_ENTRIES:,} in total",
            fix="leave out what is not code with `exclude` or .reconcilerignore; put data into an input",
        )
    by_folded: dict[str, str] = {}
    for path in (*(file.path for file in found), *directories):
        other = by_folded.setdefault(path.casefold(), path)
        if other != path:
            raise CodeRejected(f"{other} and {path} differ only in case", fix="rename one of them")
    size = sum(file.size for file in found)
    if size > source.max_size:
        largest = sorted(found, key=lambda file: (-file.size, file.path))[:5]
        raise CodeRejected(
            f"{format_size(size)} in {len(found):,} files; `max_size` is {format_size(source.max_size)}. "
            "The largest: " + ", ".join(f"{file.path} ({format_size(file.size)})" for file in largest),
            fix="leave out what is not code with `exclude`, put data into an input, or raise `max_size`",
        )


def check_keys(code: Code, place: str) -> None:
    """Check that the store can name each file by `place`, the `code_dir` of the code, and its path.

    Raises:
        CodeRejected: a key would be too long.
    """
    longest = max(code.files, key=lambda file: len(file.path.encode())).path
    size = len(f"{place.removeprefix('obs://').partition('/')[2]}{longest}".encode())
    if size > MAX_KEY_BYTES:
        raise CodeRejected(
            f"the key of {longest} in the store would have {size:,} bytes; the limit is {MAX_KEY_BYTES:,}",
            fix="shorten its path or the prefix of `code_store`",
        )


def _unreadable(path: str, error: OSError) -> CodeRejected:
    return CodeRejected(
        f"{path} cannot be read: {error.strerror or error}",
        fix="make it readable, or leave it out with `exclude`",
    )
