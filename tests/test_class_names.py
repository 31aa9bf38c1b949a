"""One name, one meaning: a class has its name to itself, in the whole program."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "reconciler"

#: Files whose classes are the same things once more.
AGAIN = (
    "api.py",  # what programs use wraps the value of the same name
    "emulator/",  # the second witness knows nothing of ours, and the service's words are the same
)
#: Names that stand for two things all the same, and why.
SHARED = {
    "Catalog": "the protocol in core.ports, and the backend's group of calls that satisfies it",
}


def shared_names(paths: Iterable[Path], root: Path) -> dict[str, list[str]]:
    """Name → the files with a class of that name, if there are several."""
    files: dict[str, list[str]] = defaultdict(list)
    for path in sorted(paths):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                files[node.name].append(path.relative_to(root).as_posix())
    return {name: where for name, where in files.items() if len(where) > 1}


def test_class_name_means_one_thing() -> None:
    ours = [
        path for path in PACKAGE.rglob("*.py") if not path.relative_to(PACKAGE).as_posix().startswith(AGAIN)
    ]
    assert len(ours) > 100
    assert set(shared_names(ours, PACKAGE)) == set(SHARED)


def test_second_class_of_a_name_is_seen(tmp_path: Path) -> None:
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("class Step: ...\n", encoding="utf-8")
    (tmp_path / "c.py").write_text("class Stop: ...\n", encoding="utf-8")
    assert shared_names(tmp_path.glob("*.py"), tmp_path) == {"Step": ["a.py", "b.py"]}
