"""Which files are the code of a job, within which limits, and its digest."""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.code import CodeRejected, CodeSource, find_code, read_code
from reconciler.code_changes import with_lines
from reconciler.core.code import CodeFile, digest_of
from reconciler.decide.plan import CodeChange
from reconciler.text import format_size


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A new directory `src` with one file of code."""
    directory = tmp_path / "src"
    put(directory, "train.py")
    return directory


def put(directory: Path, *paths: str, text: str = "print()\n") -> None:
    for path in paths:
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text(text, encoding="utf-8")


def found(source: Path, exclude: tuple[str, ...] = (), include: tuple[str, ...] = ()) -> list[str]:
    return [file.path for file in find_code(CodeSource(source, exclude, include))]


def test_every_regular_file_is_code_except_the_default_exclusions(source: Path) -> None:
    put(source, "pkg/__init__.py", "data.bin", ".hidden", ".venv/pyvenv.cfg", ".venv/lib/x.py")
    put(source, ".git/config", "a/__pycache__/x.pyc", "b.pyc", ".DS_Store", ".reconciler/x")
    put(source, ".ipynb_checkpoints/x")
    put(source, ".gitignore", ".reconcilerignore", "pkg/.gitignore", text="")
    assert found(source) == [".hidden", "data.bin", "pkg/__init__.py", "train.py"]


def test_exclude_and_ignore_files_leave_out_and_include_brings_back(source: Path) -> None:
    put(source, "data/a.bin", "data/keep.txt", "x.ckpt", "deep/y.ckpt", "notes.md")
    put(source, ".gitignore", text="data/\n")
    put(source, ".reconcilerignore", text="*.md\n")
    assert found(source, exclude=("*.ckpt",)) == ["train.py"]
    brought = found(source, exclude=("*.ckpt",), include=("data/keep.txt", "y.ckpt"))
    assert brought == ["data/keep.txt", "deep/y.ckpt", "train.py"]


def test_ignore_files_above_the_source_count_up_to_the_work_tree(tmp_path: Path) -> None:
    put(tmp_path, ".gitignore", text="*.log\n")
    put(tmp_path / "tree", ".git/HEAD", "proj/src/train.py", "proj/src/a.log", "proj/src/b.tmp")
    put(tmp_path / "tree", ".gitignore", text="*.tmp\n")
    assert found(tmp_path / "tree/proj/src") == ["a.log", "train.py"]


PATTERNS = (
    *("*.ckpt", "data/", "/data", "data/*", "!x.py", "**/build", "a/**/b", "*.txt", "!*.txt", "tmp?", "[ab]"),
    *("/a/b", "b/", "#c", "\\#c", "*.py", "!a/x.py", "a/", "Ü", "/*", "a/*/b", "a/**", "!data/", "!build/"),
    *("**", "a/**/", "!a/**/", "*/", "!*/", "**/a/", "/a/**/x.py", "[!a]*", "x.py ", "data/**", "\\!a"),
    *("!data/x.py", "x.py\r", "!/a", "z\\.txt", "*.*", "tmp[0-9]", "a**", "!**/b", "b/**/a/*"),
    # Patterns that git interprets specially, or that match nothing.
    *("a\\", "!", "[b-a]", "[[:alpha:]]", "[[:x:]]", "[\\]ab]", "[!-a]", "a\t", "x.py\\ ", "?", "[a"),
    *("/a**/x.py", "*a*", "*t*p*", "*a/*.*y", "b*/**/*u*d", "**/a/**/b/**/*.py"),
)
NAMES = ("a", "b", "data", "x.py", "y.ckpt", "z.txt", "build", "tmp1", "Ü")


def test_file_ignored_by_git_is_no_code(tmp_path: Path) -> None:
    """Random trees with random ignore files, against git itself."""
    for seed in range(40):
        choice = random.Random(seed)
        tree = tmp_path / "tree"
        shutil.rmtree(tree, ignore_errors=True)
        subprocess.run(["git", "init", "-q", str(tree)], check=True)
        src = tree / "proj" / "src"
        src.mkdir(parents=True)
        _fill(src, choice, 0)
        put(src, "always")
        if choice.random() < 0.5:
            put(tree, ".gitignore", text="\n".join(choice.sample(PATTERNS[:8], 2)))
        options = "-c core.excludesFile=/dev/null ls-files -coz --exclude-standard ."
        command = ["git", "-C", str(src), *options.split()]
        listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0")
        expected = sorted(path for path in listed if path and not path.endswith(".gitignore"))
        assert (found(src) if expected else []) == expected, seed


def test_pattern_with_many_stars_is_matched_without_backtracking(tmp_path: Path) -> None:
    paths = ["a/" * 30 + "a", "a" * 200]
    put(tmp_path, *paths, ".gitignore", text="*a" * 40 + "*b\n" + "**/a/" * 9 + "b\n")
    assert found(tmp_path) == paths


def _fill(directory: Path, choice: random.Random, depth: int) -> None:
    for name in choice.sample(NAMES, choice.randint(1, 5)):
        place = directory / name
        if depth < 3 and "." not in name and choice.random() < 0.6:
            place.mkdir()
            _fill(place, choice, depth + 1)
        else:
            put(directory, name)
    if choice.random() < 0.4:
        put(directory, ".gitignore", text="\n".join(choice.sample(PATTERNS, choice.randint(1, 4))) + "\n")


def test_foreign_ignore_files_and_default_exclusions_are_handled(source: Path) -> None:
    put(source, "a.log", "b\n.log", ".env", "data/keep.py", "data/big.bin")
    put(source, ".gitignore", text="\ufeff*.log\r\n.env\r\ndata/**\r\n!data/keep.py\r\n")
    assert found(source) == ["data/keep.py", "train.py"]
    assert found(source, exclude=("data/**", "!data/big.bin")) == ["train.py"]


def test_link_inside_is_the_file_it_points_to(source: Path) -> None:
    put(source, "real/a.py")
    (source / "link.py").symlink_to("real/a.py")
    (source / "also").symlink_to("real")
    (source / "nowhere").symlink_to("nowhere")
    assert found(source, exclude=("nowhere",)) == ["also/a.py", "link.py", "real/a.py", "train.py"]


def link_out(source: Path) -> None:
    put(source.parent, "other.py")
    (source / "out.py").symlink_to("../other.py")


def link_in_a_circle(source: Path) -> None:
    (source / "sub").mkdir()
    (source / "sub" / "up").symlink_to("..")


def link_to_a_key(source: Path) -> None:
    put(source, ".env")
    put(source, ".gitignore", text=".env")
    (source / "settings").symlink_to(".env")


def case_twins(source: Path) -> None:
    put(source, "pkg/A.py", "pkg/a.py")


def many_files(source: Path) -> None:
    put(source, *(f"d/{n}.py" for n in range(1000)))


def bound_socket(source: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(source / "sock"))


REFUSED: list[tuple[Callable[[Path], object], str]] = [
    (link_out, "out.py is a link that leads out of the code"),
    (link_in_a_circle, "sub/up is a link to a directory that contains it"),
    (lambda source: (source / "gone.py").symlink_to("none"), "gone.py cannot be read"),
    (lambda source: (source / "itself").symlink_to("itself"), "itself cannot be read"),
    (lambda source: (source / "below").symlink_to("train.py/x"), "below cannot be read"),
    (lambda source: os.mkfifo(source / "pipe"), "pipe is a pipe"),
    (bound_socket, "sock is a socket"),
    (link_to_a_key, "settings looks like a credential"),
    (case_twins, "pkg/A.py and pkg/a.py differ only in case"),
    (many_files, "1,001 files in 1 folders; the limit is 1,000 in total"),
    (lambda source: put(source, "a/" * 32 + "x.py"), "more than 32 levels deep"),
    (lambda source: put(source, "a/" * 500 + "x.py"), "more than 32 levels deep"),
    (lambda source: put(source, "a\nb.py"), "contains an unprintable character"),
    (lambda source: put(source, "big.bin", text="x" * 2000), r"2.0 kB in 2 files.*big.bin \(2.0 kB\)"),
    (lambda source: (source / "train.py").unlink(), "contains no code files"),
    (lambda source: put(source, ".gitignore", text="*\n"), "1 left out by .gitignore"),
    *(
        (lambda source, name=name: put(source, f"conf/{name}"), f"conf/{name} looks like a credential")
        for name in (".env", ".env.local", "key.pem", "id_rsa", ".netrc", "credentials.json", "credentials")
    ),
]


@pytest.mark.parametrize(("spoil", "why"), REFUSED)
def test_file_that_cannot_be_uploaded_is_refused_by_name(
    source: Path, spoil: Callable[[Path], object], why: str
) -> None:
    spoil(source)
    with pytest.raises(CodeRejected, match=why):
        find_code(CodeSource(source, max_size=1000))


def test_file_falsely_named_like_a_credential_may_be_included(source: Path) -> None:
    put(source, "test.pem", ".env.example")
    assert found(source, include=("test.pem",)) == [".env.example", "test.pem", "train.py"]


def test_digest_covers_paths_and_contents(source: Path, tmp_path: Path) -> None:
    put(source, "pkg/a.py", text="a")
    read = read_code(CodeSource(source))
    assert read.name == "src"
    assert read.digest == digest_of(reversed(read.files))
    os.utime(source / "train.py", (1, 1))
    (source / "train.py").chmod(0o755)
    shutil.copytree(source, tmp_path / "copy" / "src")
    for place in (source, tmp_path / "copy" / "src"):
        assert read_code(CodeSource(place)).digest == read.digest
    put(source, "train.py", text="print(1)\n")
    assert read_code(CodeSource(source)).digest != read.digest


def test_digest_of_a_known_tree() -> None:
    """It is part of job markers, so it never changes."""
    files = [CodeFile("b/ü.py", 1, "22"), CodeFile("a.py", 0, "11")]
    assert digest_of(files) == "sha256:40a54dac0b968687cafb6b1a0648d20fc87447d6e2a2df8aed282bd73bbe156b"


@pytest.mark.parametrize(
    ("size", "text"),
    [(999, "999 B"), (1000, "1.0 kB"), (41_200, "41 kB"), (9_960_000, "10 MB"), (5 * 10**12, "5000 GB")],
)
def test_size_is_formatted_for_people(size: int, text: str) -> None:
    assert format_size(size) == text


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        ("", "x\n", ["@@ -0,0 +1 @@", "+x"]),
        ("a\nb\n", "a\r\nb\n", ["@@ -1,2 +1,2 @@", "-a", "+a\r", " b"]),
        (
            "1\n2\n3\n4\n5\n6\n7\n",
            "1\n2\n3\n4\n5\nX\n7\n",
            ["@@ -3,5 +3,5 @@", " 3", " 4", " 5", "-6", "+X", " 7"],
        ),
        ("a\n" * 10_000, "a\n" * 9_999, ["@@ -9997,4 +9997,3 @@", " a", " a", " a", "-a"]),
        ("a", "b\0", None),
    ],
)
def test_lines_of_a_change_are_those_of_a_unified_diff(
    before: str, after: str, lines: list[str] | None
) -> None:
    change = CodeChange(path="a", change="changed", size=1)
    [found] = with_lines((change,), lambda _: before.encode(), lambda _: after.encode())
    assert found.diff == (None if lines is None else tuple(lines))


def test_diff_of_dissimilar_files_is_fast() -> None:
    old, new = ("".join(f"{n * step % 101}\n" for n in range(5_000)).encode() for step in (1, 7))
    [found] = with_lines((CodeChange(path="a", change="changed", size=1),), lambda _: old, lambda _: new)
    # An exact comparison would take many seconds.
    assert found.words == "a +5000 -5000"
