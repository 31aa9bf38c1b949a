"""What of a URL must not be seen. Split by hand: one that cannot be parsed has a password all the same."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote

#: Options of a database's driver that hold one.
PASSWORD_OPTIONS = frozenset(("password", "sslpassword"))
#: A shorter part of a URL that is a secret as a whole is none, but a word such as `notify`.
_SHORTEST_PART = 12


def user_info_secrets(url: str) -> Iterator[str]:
    """Yield what stands before the host: for a proxy the name alone may be a token."""
    for user_info in _user_infos(url):
        password = user_info.partition(":")[2]
        yield from filter(None, (password, unquote(password), user_info, unquote(user_info)))


def password_secrets(url: str) -> Iterator[str]:
    """Yield the passwords before the host and among the options; the name of a user is none."""
    passwords = [user_info.partition(":")[2] for user_info in _user_infos(url.partition("?")[0])]
    for option in url.partition("?")[2].split("&"):
        name, _, value = option.partition("=")
        if unquote(name).lower() in PASSWORD_OPTIONS:
            passwords.append(value)
    for password in filter(None, passwords):
        yield from (password, unquote(password))


def whole_url_secrets(url: str) -> Iterator[str]:
    """Yield a URL that is a secret whatever it is made of, and what others may say of it.

    That is the URL without its scheme, and the long parts between its marks.
    """
    rest = url.partition("://")[2]
    yield from (url, rest)
    text = rest
    for mark in "/?&=@:;,#":
        text = text.replace(mark, " ")
    for part in text.split():
        if len(part) >= _SHORTEST_PART:
            yield from (part, unquote(part))


def _user_infos(url: str) -> Iterator[str]:
    rest = url.partition("://")[2] or url
    # A password may hold what ends the host elsewhere.
    for upto in (rest, rest.partition("/")[0]):
        user_info, at, _ = upto.rpartition("@")
        if at:
            yield user_info
