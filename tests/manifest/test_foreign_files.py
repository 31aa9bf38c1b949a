"""Files named like a manifest that are none: links out of the stack, credentials, devices, pipes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reconciler.errors import WrongUsage
from reconciler.manifest import yaml as file_content
from tests.manifest.conftest import HEAD, JOB, Place, place_of

SECRET = "hunter2-and-more"
ROOT = f"{HEAD}jobs:\n  top:{JOB}"
SHARED = f"jobs:\n  shared:{JOB}"

#: Files other than manifests, each containing a secret.
FOREIGN = {
    "a credentials file": f"[basic]\nak = AKEXAMPLE\nsk = {SECRET}\n",
    "a quoted token": f"'{SECRET}\n",
    "netrc": f"machine h login u password {SECRET}\n",
    "dotenv": f"A: b\nOS_PASSWORD={SECRET}\n",
    "a key": f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\n",
    "a mapping": f"OS_PASSWORD: {SECRET}\n",
    "a mapping with a tag": f"password: !!int {SECRET}\n",
    "a mapping with two of a key": f"password: {SECRET}\npassword: {SECRET}\n",
    "a mapping with a fault": f"password: {SECRET}: x\n",
    "broken json": f'{{"auth": "{SECRET}", }}}}\n',
    "a resource of Kubernetes": f"apiVersion: v1\nkind: Secret\ndata: {{a: {SECRET}, a: {SECRET}}}\n",
    "no utf-8": f"{SECRET}\udcff\n",
}


@pytest.fixture
def stack(place: Place) -> Place:
    place.root = place.root / "stack"
    place.root.mkdir()
    place.write(ROOT)
    return place


@pytest.fixture
def outside(tmp_path: Path) -> Place:
    (tmp_path / "outside").mkdir()
    return Place(tmp_path / "outside")


# ── links ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("is_relative", [True, False])
def test_link_out_of_the_stack_is_refused(stack: Place, outside: Place, is_relative: bool) -> None:
    target = outside.write(SHARED, "shared.yaml")
    (stack.root / "x.yaml").symlink_to("../outside/shared.yaml" if is_relative else target)
    problem = stack.problem()
    assert problem.what == "link leaves the stack"
    assert place_of(problem) == "x.yaml:1:1"
    assert str(target) in problem.why
    assert problem.fix is not None
    assert problem.fix.endswith("x.yaml")
    assert problem.snippet is None


def test_link_out_of_the_stack_is_read_if_named(stack: Place, outside: Place) -> None:
    outside.write(SHARED, "shared.txt")
    (stack.root / "x.yaml").symlink_to("../outside/shared.txt")
    assert stack.load(".", "x.yaml").stack.jobs.keys() == {"top", "shared"}
    assert stack.load("x.yaml").stack.jobs.keys() == {"shared"}
    assert stack.load("x.yaml").stack.declared_keys == {"top", "shared"}
    assert stack.load("../stack/x.yaml").root == stack.root


def test_named_link_permits_no_other_link(stack: Place, outside: Place) -> None:
    outside.write(SHARED, "shared.yaml")
    outside.write("", "other.yaml")
    for name in ("shared", "other"):
        (stack.root / f"{name}.yaml").symlink_to(outside.root / f"{name}.yaml")
    with pytest.raises(Exception, match=r"other\.yaml"):
        stack.load(".", "shared.yaml")


def test_linked_root_file_is_refused_unless_named_with_its_directory(place: Place, outside: Place) -> None:
    outside.write(ROOT, "root.yaml")
    (place.root / "stack").mkdir()
    (place.root / "stack" / "main.yaml").symlink_to(outside.root / "root.yaml")
    place.root = place.root / "stack"
    assert place.problem().what == "link leaves the stack"
    assert place.load(".", "main.yaml").root == place.root
    assert place.load("main.yaml").root == outside.root


def test_link_into_a_stack_selects_its_target_file(stack: Place, outside: Place) -> None:
    (outside.root / "mine.yaml").symlink_to(stack.root / "main.yaml")
    assert outside.load("mine.yaml").root == stack.root


def test_link_within_the_stack_is_read(stack: Place) -> None:
    stack.write(SHARED, ".parts/shared.yaml")
    (stack.root / "deep").mkdir()
    (stack.root / "deep" / "x.yaml").symlink_to("../.parts/shared.yaml")
    assert stack.load().stack.declared_keys == {"top", "shared"}


def test_link_within_a_linked_directory_is_read_but_not_one_out_of_it(stack: Place, outside: Place) -> None:
    outside.write(SHARED, "common/.parts/shared.yaml")
    (outside.root / "common" / "x.yaml").symlink_to(".parts/shared.yaml")
    (stack.root / "common").symlink_to(outside.root / "common")
    assert stack.load().stack.declared_keys == {"top", "shared"}
    outside.write("", "away.yaml")
    (outside.root / "common" / "y.yaml").symlink_to("../away.yaml")
    problem = stack.problem()
    assert (problem.what, place_of(problem)) == ("link leaves the stack", "y.yaml:1:1")


@pytest.mark.parametrize(
    ("target", "why"), [("nowhere.yaml", "No such file"), ("x.yaml", "Too many levels of symbolic links")]
)
def test_broken_link_is_an_unreadable_file(stack: Place, target: str, why: str) -> None:
    (stack.root / "x.yaml").symlink_to(target)
    problem = stack.problem()
    assert (problem.what, place_of(problem)) == ("unreadable file", "x.yaml:1:1")
    assert why in problem.why
    with pytest.raises(WrongUsage):
        stack.load("x.yaml")


# ── irregular files ────────────────────────────────────────────────────────────────────────────────


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """Fail if it takes longer: opening a pipe blocks forever."""

    def late(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("kind", ["pipe", "link to a device", "standard input"])
@pytest.mark.parametrize("is_named", [False, True])
def test_irregular_file_is_refused_without_blocking(stack: Place, kind: str, is_named: bool) -> None:
    path = stack.root / "x.yaml"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero" if kind == "link to a device" else "/dev/stdin")
    with within(5):
        if is_named and kind == "standard input":
            return  # Here it may be of any type, even a file.
        if is_named:
            with pytest.raises(Exception, match="not a regular file"):
                stack.load(".", "x.yaml")
        else:
            assert stack.problem().what in ("unreadable file", "link leaves the stack")


def test_oversized_file_is_refused_with_the_limit(stack: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_content, "MAX_FILE_BYTES", 3_000_000)
    stack.write("#" * 2_999_999 + "\n", "x.yaml")
    stack.load()
    stack.write("#" * 3_000_000 + "\n", "x.yaml")
    problem = stack.problem()
    assert (problem.what, place_of(problem)) == ("unreadable file", "x.yaml:1:1")
    assert "3,000,000 bytes" in problem.why


def test_file_without_permission_is_unreadable(stack: Place) -> None:
    path = stack.write(SHARED, "x.yaml")
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("root reads everything")
    assert stack.problem().what == "unreadable file"


# ── files whose lines are hidden ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("text", FOREIGN.values(), ids=FOREIGN)
def test_lines_of_a_file_that_is_no_manifest_are_not_shown(stack: Place, text: str) -> None:
    (stack.root / "x.yaml").write_bytes(text.encode("utf-8", "surrogateescape"))
    problems = stack.problems()
    assert {problem.location.file.rpartition("/")[2] for problem in problems if problem.location} == {
        "x.yaml"
    }
    assert [problem.snippet for problem in problems] == [None] * len(problems)
    assert SECRET not in repr(problems)


@pytest.mark.parametrize("text", FOREIGN.values(), ids=FOREIGN)
def test_values_of_a_malformed_variable_file_are_not_shown(stack: Place, text: str) -> None:
    file = stack.root / "values.yml"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    problems = stack.problems(var_files=[file])
    assert [problem.snippet for problem in problems] == [None] * len(problems)
    assert SECRET not in repr(problems)
