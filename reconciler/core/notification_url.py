"""Which Apprise URLs a manifest may name: those of services on the network, without a file of this machine.

Whoever can write a manifest chooses the URL, and whoever applies it runs what the URL says. So a service that
acts on this machine, or reads or writes its files, is refused, and so is a parameter that names a file. Tests
compare both tables with the services of the installed Apprise.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

_DESKTOP = "shows messages on the desktop of this machine"
#: Schemes that are refused, and what their services do.
REFUSED_SCHEMES = {
    **dict.fromkeys(("dbus", "kde", "qt", "glib", "gio", "gnome", "windows"), _DESKTOP),
    "macosx": "runs a command on this machine",
    "blink1": "opens a device of this machine",
    "syslog": "writes the log of this machine",
    "vapid": "reads and writes files",
    "file": "names a file",
}
#: Parameters that are refused whatever the service, for they name a file.
FILE_PARAMETERS = frozenset(
    ("attach", "attachment", "file", "file_url", "keyfile", "subfile", "pgpkey", "pgppub", "pgpprv")
)
#: It names a file, unless the service has its templates itself and takes the id of one.
_TEMPLATE = "template"
TEMPLATES_BY_ID = frozenset(
    ("gupshup", "kaleyra", "klr", "notifyre", "onesignal", "sendgrid", "sendpulse", "whatsapp")
)
_SCHEME = re.compile(r"\s*([a-z0-9]{1,32})://", re.IGNORECASE)


def refused_url(url: str) -> str | None:
    """Why a notification must not be sent to a URL, without any secret of it; None if it may."""
    found = _SCHEME.match(url)
    scheme = found[1].lower() if found else ""
    if (does := REFUSED_SCHEMES.get(scheme)) is not None:
        return f"{scheme}:// {does}; notifications go to services on the network only"
    for name in _parameters(url):
        if name in FILE_PARAMETERS or (name == _TEMPLATE and scheme not in TEMPLATES_BY_ID):
            return f'the parameter "{name}" names a file'
    return None


def _parameters(url: str) -> list[str]:
    """The names of parameters, as Apprise reads them: a `+` at the beginning marks one of another kind."""
    names = (pair.partition("=")[0] for pair in re.split("[?&;]", url.partition("?")[2]))
    return [unquote(name[:1] + name[1:].replace("+", " ")).strip().lower() for name in names]
