"""Print the section of CHANGELOG.md about a release: `python .ci/release_notes.py v0.1.0`.

The tag has to name the version of the package, and its section has to say something; else it exits 1.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def section(changelog: str, version: str) -> str:
    """The text below the heading of a version, such as `## [0.1.0] - 2026-12-01`; "" if there is none."""
    heading = rf"^## \[{re.escape(version)}\][^\n]*\n"
    found = re.search(rf"{heading}(.*?)(?=^## |^\[[^\]\n]+\]: |\Z)", changelog, re.M | re.S)
    return found[1].strip() if found else ""


def main(tag: str, root: Path = ROOT) -> int:
    """Print the section, or an error; return the exit code."""
    text = (root / "reconciler/version.py").read_text(encoding="utf-8")
    version = text.partition('"')[2].partition('"')[0]
    if tag != f"v{version}":
        print(f"the tag {tag} is not v{version}, the version in reconciler/version.py", file=sys.stderr)
        return 1
    notes = section((root / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    if not notes:
        print(f"CHANGELOG.md has no section ## [{version}], or an empty one", file=sys.stderr)
        return 1
    print(notes)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
