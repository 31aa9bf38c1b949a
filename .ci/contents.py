"""Check the contents of dist/: the wheel, the sdist, and the SBOM if there is one.

The wheel holds the package and nothing else, the sdist holds every file of the repository, and the SBOM
names the package and every dependency that it declares. Nothing in there names a path of this machine.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
_METADATA = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}
#: The sdist has to be sufficient to review, change and test the program.
_NEEDED = ("LICENSE", "CHANGELOG.md", "SECURITY.md", "docs/index.md", "examples/first-job/jobs.yaml")


def _tracked() -> set[str]:
    command = ["git", "ls-files", "-z"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return {name for name in done.stdout.split("\0") if (ROOT / name).is_file()}


def _differences(what: str, found: set[str], expected: set[str]) -> Iterator[str]:
    for name in sorted(found - expected):
        yield f"{what}: {name} does not belong there"
    for name in sorted(expected - found):
        yield f"{what}: {name} is missing"


def wheel_problems(path: Path, tracked: set[str]) -> Iterator[str]:
    """The package with py.typed, metadata, licence and man pages; no tests."""
    package = {name for name in tracked if name.startswith("reconciler/")}
    if "reconciler/py.typed" not in package:
        yield f"{path.name}: the package has no py.typed"
    information = f"{path.name.rsplit('-py3', 1)[0]}.dist-info"
    manual = f"{path.name.rsplit('-py3', 1)[0]}.data/data/share/man/man1/reconciler"
    with zipfile.ZipFile(path) as wheel:
        names = set(wheel.namelist())
        pages = {name for name in names if name.startswith(manual)}
        if not {f"{manual}.1", f"{manual}-plan.1", f"{manual}-jobs-list.1"} <= pages:
            yield f"{path.name}: man pages are missing"
        if not all(wheel.read(name).isascii() for name in pages):
            yield f"{path.name}: a man page has characters that `man` drops in the locale C"
        yield from _differences(
            path.name, names - pages, package | {f"{information}/{name}" for name in _METADATA}
        )
        metadata = wheel.read(f"{information}/METADATA").decode()
    for line in ("License-Expression: Apache-2.0", "License-File: LICENSE", "Requires-Python: >=3.11"):
        if f"\n{line}\n" not in metadata:
            yield f"{path.name}: METADATA does not say {line!r}"


def sdist_problems(path: Path, tracked: set[str]) -> Iterator[str]:
    """Every file of the repository."""
    root = path.name.removesuffix(".tar.gz")
    with tarfile.open(path) as sdist:
        found = {member.name.removeprefix(f"{root}/") for member in sdist.getmembers() if member.isfile()}
    yield from _differences(path.name, found, tracked | {"PKG-INFO"})
    yield from (f"{path.name}: {name} is missing" for name in _NEEDED if name not in found)


def sbom_problems(path: Path) -> Iterator[str]:
    """CycloneDX: the package and its declared dependencies, each with a version."""
    text = path.read_text(encoding="utf-8")
    sbom = json.loads(text)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    subject = sbom["metadata"]["component"]
    if f"{subject['name']}-{subject.get('version')}.cdx.json" != path.name:
        yield f"{path.name}: is about {subject['name']} {subject.get('version')}"
    versions = {_normal(one["name"]): one.get("version") for one in sbom.get("components", [])}
    extras = project["optional-dependencies"]
    features = (one for name in re.findall(r"\w+", *extras["all"])[1:] for one in extras[name])
    for requirement in [*project["dependencies"], *features]:
        name = _normal(re.split(r"[\[><=~! ]", requirement)[0])
        if not versions.get(name):
            yield f"{path.name}: {name} is missing"
    if str(ROOT) in text or "file://" in text:
        yield f"{path.name}: names a path of this machine"


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main() -> int:
    """Check every file of dist/; return the exit code."""
    tracked = _tracked()
    dist = ROOT / "dist"
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    problems = [*wheel_problems(wheel, tracked), *sdist_problems(sdist, tracked)]
    for sbom in dist.glob("*.cdx.json"):
        problems += sbom_problems(sbom)
    print("\n".join(problems) or f"{wheel.name}, {sdist.name}: as they should be")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
