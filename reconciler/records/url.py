"""Where a store is: the URL, taken apart, and what of it people may see."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, quote_plus, unquote

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from reconciler.core.diagnostic import Diagnostic, WrongUsage
from reconciler.core.text.secret import REDACTED

_POSTGRESQL = frozenset({"postgresql", "postgres", "postgresql+psycopg"})
_FORMS = "sqlite:///absolute/path or postgresql://user@host/database"


@dataclass(frozen=True, slots=True)
class Address:
    """The place of a store. `shown` is the URL without credentials; `path` is the file, if it is one."""

    url: URL = field(repr=False)
    shown: str
    path: Path | None = None
    secrets: frozenset[str] = field(default=frozenset(), repr=False)

    def without_secrets(self, text: str) -> str:
        """Take the URL's own credentials out of a text, in whichever form they stand there."""
        for secret in sorted(self.secrets, key=len, reverse=True):
            text = text.replace(secret, REDACTED)
        return text


def parse_address(url: str) -> Address:
    """Read a URL.

    Raises:
        WrongUsage: it is not the URL of a store. The words never hold more of it than its scheme.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise _wrong("the scheme is missing")
    if scheme == "sqlite":
        return _file(rest)
    if scheme in _POSTGRESQL:
        return _server(rest)
    shown = scheme if scheme.replace("+", "").isalnum() else "its scheme"
    raise _wrong(f"{shown} is not one of sqlite, postgresql")


def _file(rest: str) -> Address:
    if not rest.startswith("/") or not rest.strip("/"):
        raise _wrong("a SQLite file is given by its absolute path, after three slashes")
    path = Path("/" + rest.lstrip("/"))
    return Address(URL.create("sqlite", database=str(path)), f"sqlite://{path}", path)


def _server(rest: str) -> Address:
    try:
        url = make_url("postgresql+psycopg://" + rest)
    except (ArgumentError, ValueError):
        raise _wrong(
            "it cannot be parsed; characters with a meaning in a URL must be written as %xx"
        ) from None
    if "@" in (url.host or ""):
        raise _wrong("it contains two @; write the one in the password as %40")
    if not url.database:
        raise _wrong("the database name is missing")
    # Behind the question mark stand options of the driver, passwords among them.
    shown = URL.create("postgresql", url.username, None, url.host, url.port, url.database)
    given = [url.password or "", *_values(url, "password"), *_values(url, "sslpassword")]
    forms = {form for secret in given for form in _forms(secret)}
    return Address(url, shown.render_as_string(), secrets=frozenset(forms))


def _values(url: URL, name: str) -> tuple[str, ...]:
    value = url.query.get(name, ())
    return (value,) if isinstance(value, str) else value


def _forms(secret: str) -> set[str]:
    return {secret, unquote(secret), quote(secret), quote(secret, safe=""), quote_plus(secret)} - {""}


def _wrong(why: str) -> WrongUsage:
    return WrongUsage(Diagnostic("not a valid record store URL", why, f"write {_FORMS}"))
