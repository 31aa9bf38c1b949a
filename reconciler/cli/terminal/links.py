"""Links to the files of the manifest, where the terminal has them.

Source: https://gist.github.com/egmontkob/eb114294efbcd5adb1944c9f3cb5feda (OSC 8). A terminal does not say
whether it knows them. Nearly all that do not ignore them; those that show them as text are left out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote

from reconciler.render.style import Place

_WITHOUT = ("dumb", "unknown", "linux", "cons25", "vt100", "vt220", "emacs")
#: Before this version VTE showed them wrongly.
_LEAST_VTE = 5000


def are_shown(environ: Mapping[str, str]) -> bool:
    """Whether the terminal has links; FORCE_HYPERLINK says it for those that are not known here."""
    if forced := environ.get("FORCE_HYPERLINK", ""):
        return forced != "0"
    term = environ.get("TERM", "")
    if not term or term in _WITHOUT or environ.get("TERM_PROGRAM") == "Apple_Terminal":
        return False
    vte = environ.get("VTE_VERSION", "")
    return not vte.isdecimal() or int(vte) >= _LEAST_VTE


def new_id() -> str:
    """What tells links of ours from those in text from elsewhere: nobody can know it beforehand."""
    return os.urandom(8).hex()


def url_of(place: Place) -> str | None:
    """The address of a line of a file, if the file is there: what a git revision holds is not."""
    url = _url_of_file(Path.cwd() / place.file)
    return None if url is None else f"{url}#{place.line}"


@lru_cache(maxsize=256)
def _url_of_file(path: Path) -> str | None:
    try:
        return f"file://{quote(path.as_posix())}" if path.is_file() else None
    except (OSError, ValueError):
        return None
