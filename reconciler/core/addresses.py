"""URLs of services and of record stores."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from posixpath import join
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qs, quote, quote_plus, unquote, urlsplit

from reconciler.errors import Diagnostic, WrongUsage
from reconciler.secrets import PASSWORD_OPTIONS, REDACTED

_WRITE_URL = "write a URL such as https://modelarts.example.com"


def is_loopback(host: str) -> bool:
    """Whether a host is this machine: `localhost`, any name below it, or a loopback address."""
    import ipaddress

    name = host.lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def holds_credentials(endpoint: str) -> bool:
    """Whether an endpoint has, or seems to have, a user name or password."""
    return "@" in endpoint


def _split_url(endpoint: str) -> SplitResult | None:
    try:
        parts = urlsplit(endpoint)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return None
    is_plain = endpoint.isascii() and endpoint.isprintable() and " " not in endpoint
    return parts if host and is_plain and parts.scheme in ("http", "https") else None


def endpoint_problem(
    endpoint: str, insecure: bool | None, *, takes_path: bool = False
) -> tuple[str, str] | None:
    """Return why an endpoint must not be used and how to fix it, or None.

    The texts do not contain the endpoint, which may hold a secret. `insecure` allows plain http to other
    machines, None that nothing does; `takes_path` is for URLs such as OS_AUTH_URL.
    """
    endpoint = endpoint.strip()
    if holds_credentials(endpoint):
        return "the endpoint contains a user name or password", "set credentials in the environment"
    parts = _split_url(endpoint)
    if parts is None:
        return "the endpoint is not a valid URL", _WRITE_URL
    host = parts.hostname or ""
    if parts.query or parts.fragment or (parts.path.strip("/") and not takes_path):
        return "an endpoint must not have a path, query or fragment", f"write {parts.scheme}://{parts.netloc}"
    if parts.scheme == "http" and not insecure and not is_loopback(host):
        fix = f"write https://{parts.netloc}" + ", or add insecure: true to the target" * (insecure is False)
        return f"credentials would be sent to {host} unencrypted", fix
    return None


# --- The URL of a record store: its database, its parts, and its form without secrets


class StoreKind(NamedTuple):
    """A database that can hold the records.

    `name` is the reconciler's name for it, `form` an example URL. A file serves one machine, a server many.
    """

    name: str
    schemes: tuple[str, ...]
    form: str
    is_file: bool = False


STORES = (
    StoreKind(
        "postgresql", ("postgresql", "postgres", "postgresql+psycopg"), "postgresql://user@host/database"
    ),
    StoreKind("sqlite", ("sqlite",), "sqlite:///PATH", is_file=True),
)
_BY_SCHEME: Mapping[str, StoreKind] = {scheme: kind for kind in STORES for scheme in kind.schemes}

#: A placeholder in a URL for an expression without a value yet; no URL contains this character.
HOLE = "\ufdd3"
#: A password may contain an unquoted slash. A number before a database and its options is a port.
_SERVER = (
    r"(?:(?P<user>[^:/]*)(?::(?!\d+/[^@?]*\?)(?P<password>[^@]*))?@)?(?:\[(?P<ipv6>[^/?]+)\]|(?P<host>[^/:?]+))?"
    r"(?::(?P<port>[0-9]+))?(?:/(?P<database>[^?]*))?(?:\?(?P<options>.*))?"
)
#: A password that ends the host too early. A number after a colon is a port.
_UNQUOTED_PASSWORD = r"//[^\s/:@]*:(?!\d*[/?#,])([^\s@]+)@"  # noqa: S105 - a pattern
#: Anything that may be a password in a URL, even in text that is not a valid one.
_LOOKS_LIKE_PASSWORD = r"//[^\s/:@]*:([^\s@]+)@"  # noqa: S105 - a pattern


@dataclass(frozen=True)
class StoreUrl:
    """A parsed URL. `name` is the path of the file as written, or the database on the server.

    `options` are those of the driver, which may include passwords.
    """

    kind: StoreKind
    name: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    host: str | None = None
    port: int | None = None
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)

    @property
    def shown(self) -> str:
        """The URL without credentials and options."""
        user = "" if self.user is None else f"{quote(self.user, safe=' +')}@"
        host = f"[{self.host}]" if ":" in (self.host or "") else self.host or ""
        port = "" if self.port is None else f":{self.port}"
        name = self.name if self.kind.is_file else quote(self.name, safe=" +/")
        return f"{self.kind.name}://{user}{host}{port}/{name}"

    def without_secrets(self, text: str) -> str:
        """Redact the URL's own credentials in a text, quoted or not."""
        options = (value for name in PASSWORD_OPTIONS for value in self.options.get(name, ()))
        forms = {
            form
            for value in (self.password or "", *options)
            for form in (value, unquote(value), quote(value), quote(value, safe=""), quote_plus(value))
        }
        for form in sorted(forms - {""}, key=len, reverse=True):
            text = text.replace(form, REDACTED)
        return text


def parse_store_url(url: str) -> StoreUrl:
    """Parse the URL of a record store.

    Raises:
        WrongUsage: it is not valid. The message contains nothing of it except its scheme.
    """
    kind, rest = _split(url)
    if kind.is_file:
        if rest[:1] != "/" or not rest.strip("/"):
            raise _wrong("the path of a file follows three slashes; an absolute path starts with a fourth")
        return StoreUrl(kind, rest[1:])
    match = re.fullmatch(_SERVER, rest)
    if match is None:
        raise _wrong("it cannot be parsed; characters with a meaning in a URL must be written as %xx")
    user, password, ipv6, host, port, database, options = match.groups()
    if "@" in (host or ""):
        raise _wrong("it contains two @; write the one in the password as %40")
    if not database:
        raise _wrong("the database name is missing")
    return StoreUrl(
        kind,
        unquote(database),
        None if user is None else unquote(user),
        None if password is None else unquote(password),
        ipv6 or host,
        int(port) if port else None,
        {name: tuple(values) for name, values in parse_qs(options or "").items()},
    )


def store_url_problem(url: str) -> Diagnostic | None:
    """Return the problem with a URL, or None. A URL with a `HOLE` is checked as far as possible."""
    if HOLE in url.partition("://")[0]:
        return None
    try:
        kind, rest = _split(url)
        is_open = rest.startswith(HOLE) if kind.is_file else HOLE in rest
        if not is_open:
            parse_store_url(url)
    except WrongUsage as error:
        return error.diagnostics[0]
    return None


def absolute_url(url: str, root: str) -> str:
    """Return the URL of a file with its path made absolute below `root`; any other URL as it is."""
    scheme, _, rest = url.partition("://")
    kind = _BY_SCHEME.get(scheme)
    # An absolute path follows four slashes, as in SQLAlchemy.
    return file_url(join(root, rest[1:])) if kind and kind.is_file and rest[:1] == "/" else url


def file_url(path: str) -> str:
    """Return the URL of a store in the file at an absolute path."""
    return f"sqlite:///{path}"


def _split(url: str) -> tuple[StoreKind, str]:
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise _wrong("the scheme is missing")
    if scheme not in _BY_SCHEME:
        shown = f'"{scheme}"' if scheme.replace("+", "").isalnum() else "its scheme"
        raise _wrong(f"{shown} is not one of {', '.join(kind.name for kind in STORES)}")
    return _BY_SCHEME[scheme], rest


def _wrong(why: str) -> WrongUsage:
    forms = " or ".join(kind.form for kind in STORES)
    return WrongUsage(Diagnostic("not a valid record store URL", why, f"write {forms}"))


def user_password(url: str) -> str:
    """Return the password in the user info of a valid URL, still quoted, or ""."""
    _, separator, rest = url.partition("://")
    userinfo, at, _ = re.split("[/?#]", rest, maxsplit=1)[0].rpartition("@")
    return userinfo.partition(":")[2] if separator and at else ""


def passwords_in(url: str) -> Iterator[str]:
    """Yield the passwords of a valid URL, still quoted."""
    if password := user_password(url):
        yield password
    for option in url.partition("?")[2].split("&"):
        name, _, value = option.partition("=")
        if value and unquote(name).lower() in PASSWORD_OPTIONS:
            yield value


def written_passwords(url: str) -> Iterator[str]:
    """Yield the passwords of a URL, including those that are not quoted as they must be."""
    yield from passwords_in(url)
    yield from re.findall(_UNQUOTED_PASSWORD, url)


def looks_like_passwords(text: str) -> Iterator[str]:
    """Yield what looks like a URL's password in any text."""
    return (password for password in re.findall(_LOOKS_LIKE_PASSWORD, text) if "${" not in password)
