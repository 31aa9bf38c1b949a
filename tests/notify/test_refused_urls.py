"""The tables of refused services and parameters, compared with the services of the installed Apprise."""

from __future__ import annotations

import re
import warnings
from collections import defaultdict
from functools import cache
from pathlib import Path

import apprise
import pytest

from reconciler.core.settings import FILE_PARAMETERS, REFUSED_SCHEMES, TEMPLATES_BY_ID, refused_url

PLUGINS = Path(apprise.__file__).parent / "plugins"
#: How a plugin gets at something of this machine. What it does with attachments, of which we send none, and
#: with its own images does not count.
TOUCHES_MACHINE = re.compile(
    r"""subprocess | os\.(?:system|popen|exec) | \bctypes\b | ^\s*import\ syslog | \bgi\.repository
      | SessionBus | win32 | Blink1 | AppriseAttachment\(asset | keyfile(?!=None)
      | (?<![.\w])open\((?!\s*attach|payload\.path|path,\ "rb"|\)) """,
    re.VERBOSE | re.MULTILINE,
)
#: Parameters that sound like files but are none: their meaning.
NO_FILES = {
    "path": "the path of a URL",
    "fullpath": "the path of a URL",
    "workflow_path": "the path of a URL",
    "attach-as": "the name of a field",
    "filename": "what the attachment of a URL is called",
    "profile": "an id",
    "pgp": "a mode",
}
SOUNDS_LIKE_FILE = re.compile("file|path|cert|template|attach|pgp|script|cmd|pem|dir(?!ect)")


@cache
def services() -> list[tuple[tuple[str, ...], set[str], str]]:
    """Yield each Apprise service: schemes, parameters, plugin source."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        schemas = apprise.Apprise().details(show_requirements=True, show_disabled=True)["schemas"]
    sources: dict[str, str] = defaultdict(str)
    found = []
    for path in sorted(PLUGINS.rglob("*.py")):
        name = path.relative_to(PLUGINS).parts[0].removesuffix(".py")
        sources[name] += path.read_text()
    manager = apprise.plugins.N_MGR
    for schema in schemas:
        schemes = tuple(map(str, (*(schema["protocols"] or ()), *(schema["secure_protocols"] or ()))))
        module = manager[schemes[0]].__module__.removeprefix("apprise.plugins.").partition(".")[0]
        details = schema["details"]
        found.append((schemes, {*details["args"], *details["tokens"]}, sources[module]))
    return found


def is_refused(scheme: str, parameter: str = "") -> bool:
    return refused_url(f"{scheme}://host/x" + (f"?{parameter}=x" if parameter else "")) is not None


def test_apprise_is_read_whole() -> None:
    assert len(services()) > 100
    assert all(source for _, _, source in services())


def test_local_services_and_file_parameters_are_refused() -> None:
    """Either the whole service, or its file parameters."""
    for schemes, parameters, source in services():
        of_files = {name for name in parameters if SOUNDS_LIKE_FILE.search(name)} - NO_FILES.keys()
        for scheme in schemes:
            for name in of_files:
                is_id = name == "template" and scheme in TEMPLATES_BY_ID
                assert is_id or is_refused(scheme, name), (scheme, name)
            if TOUCHES_MACHINE.search(source):
                is_covered = of_files and all(is_refused(scheme, name) for name in of_files)
                assert is_refused(scheme) or is_covered, scheme


def test_templates_by_id_belong_to_services_that_open_no_file() -> None:
    found = {scheme: source for schemes, _, source in services() for scheme in schemes}
    for scheme in TEMPLATES_BY_ID & found.keys():
        assert not TOUCHES_MACHINE.search(found[scheme]), scheme


def test_most_services_are_allowed() -> None:
    schemes = [scheme for schemes, _, _ in services() for scheme in schemes]
    assert len([one for one in schemes if is_refused(one)]) <= len(REFUSED_SCHEMES)


@pytest.mark.parametrize(
    "url",
    [
        "SysLog://",
        "  dbus://",
        "discord://id/token?template=/etc/passwd",
        "discord://id/token/?x=1&TEMPLATE=/etc/passwd",
        "discord://id/token?x;%74emplat%65=~/x",
        "discord://id/token?x=?template=x",
        "discord://id/token?+template=a&template =b",
        "https://hooks.slack.com/services/a/b/c?template=x",
        *(f"json://host/?{name}=x" for name in sorted(FILE_PARAMETERS)),
    ],
)
def test_spelling_of_a_refused_url_does_not_matter(url: str) -> None:
    assert refused_url(url) is not None


@pytest.mark.parametrize(
    "url",
    [
        "json://host/file?+keyfile=x&:template=y&-attach=z",
        "mailto://u:p@host?to=a@b&pgp=no",
        "slack://a/b/c/#channel?image=no",
        "sendgrid://key:a@b.c/?template=d-12",
        "${x}",
        "",
    ],
)
def test_url_without_files_is_allowed(url: str) -> None:
    assert refused_url(url) is None
