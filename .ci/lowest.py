"""Print the lowest version that pyproject.toml allows of each package, in the form of a requirements file.

What the package, its extras and its tests need, and what builds it: `NAME>=VERSION` becomes `NAME==VERSION`.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

_LOWER_BOUND = re.compile(r"(?P<name>[A-Za-z0-9._-]+(\[[a-z0-9,]+\])?)>=(?P<version>[0-9][0-9.]*)")


def lowest(requirement: str) -> str:
    """Return the requirement pinned to its lowest version; ValueError if it is not a plain lower bound."""
    found = _LOWER_BOUND.fullmatch(requirement)
    if found is None:
        raise ValueError(f"pyproject.toml: {requirement!r} is not of the form NAME>=VERSION")
    return f"{found['name']}=={found['version']}"


def _names_itself(requirement: str) -> bool:
    """Return whether it names other extras of this package, which are listed separately."""
    return requirement.startswith("reconciler[")


def main(path: Path) -> None:
    """Print one requirement per line."""
    settings = tomllib.loads(path.read_text(encoding="utf-8"))
    project = settings["project"]
    extras = project["optional-dependencies"]
    requirements = [
        *project["dependencies"],
        *(
            one
            for extra in (*re.findall(r"\w+", *extras["all"])[1:], "test")
            for one in extras[extra]
            if not _names_itself(one)
        ),
        *settings["build-system"]["requires"],
    ]
    print("\n".join(lowest(requirement) for requirement in requirements))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "pyproject.toml"))
