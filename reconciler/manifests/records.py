"""Where the record store of a stack is: the URL under `records`, read as far as the environment goes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import unquote

from reconciler.core.declared.expression import Reference, escape, parts_of
from reconciler.core.declared.scalar import scalar_text
from reconciler.core.diagnostic import Diagnostic, ManifestInvalid
from reconciler.core.text.secret import SecretText
from reconciler.manifests.expand import Expander, NotExpanded, Problem, problems_in
from reconciler.manifests.variables import NoValue, VariableValues
from reconciler.manifests.yaml.document import Document
from reconciler.manifests.yaml.positions import diagnose

_FORMS = "postgresql://user@host/database or sqlite:///PATH"
_SCHEMES = ("postgresql", "postgres", "postgresql+psycopg", "sqlite")
_NOT_SET = "environment variable not set"
#: Stands for an expression whose value is not looked at.
_HOLE = "\ufdd3"
_PASSWORD_OPTIONS = ("password", "sslpassword")
#: A password that ends the URL too early: a number behind a colon is a port.
_UNQUOTED_PASSWORD = re.compile(r"//[^\s/:@]*:(?!\d*[/?#,])([^\s@]+)@")
#: Whatever may be a password in a URL, though it may be no URL.
_LOOKS_LIKE_PASSWORD = re.compile(r"//[^\s/:@]*:([^\s@]+)@")


@dataclass(frozen=True)
class RecordsSetting:
    """The URL of a stack's record store, as one of its files says it; empty if none does."""

    document: Document | None = None
    text: str = ""
    values: VariableValues = field(default_factory=lambda: VariableValues({}))
    environ: Mapping[str, str] = field(default_factory=dict)
    root: Path = Path()

    def reference(self) -> str | None:
        """The URL to be written down: without what is secret, or comes from the environment."""
        return None if self.document is None else reference_of(self.text, self.values)

    def check(self) -> list[Diagnostic]:
        """Look at the URL, whatever the environment holds; what is wrong with it in any case."""
        if self.document is None:
            return []
        problems, _ = self._read(self.values)
        return self._told(problem for problem in problems if problem.what != _NOT_SET)

    def url(self) -> str | None:
        """Return the URL, whole, a relative path in it reckoned from the root; None if no file has one.

        It is a `SecretText` if there is a password or a sensitive value in it.

        Raises:
            ManifestInvalid: it is no address of a store, or an expression in it has no value.
        """
        if self.document is None:
            return None
        problems, url = self._read(replace(self.values, offline=False, _known={}))
        if problems or url is None:
            raise ManifestInvalid(*self._told(problems))
        return url

    def secrets(self) -> set[str]:
        """The passwords in the URL, as far as they are known."""
        if self.document is None:
            return set()
        expander = Expander(self.values, self.environ, takes_credentials=True)
        return {form for one in _passwords_of(self.text, expander) for form in (one, unquote(one)) if one}

    def _read(self, values: VariableValues) -> tuple[list[Problem], str | None]:
        # Values that are no secret are looked at as if they were written there.
        written = reference_of(self.text, values)
        problem = _literal_password(self.text) or _open_password(written) or _address_problem(written)
        if problem:
            return [problem], None
        expander = Expander(values, self.environ, takes_credentials=True)
        try:
            return [], read_address(self.text, expander, self.root)
        except NotExpanded as error:
            return [problem for _, problem in problems_in(self.text, expander)] or [error.problem], None

    def _told(self, problems: Iterator[Problem] | list[Problem]) -> list[Diagnostic]:
        assert self.document is not None
        is_url = _literal_password(self.text) is None and _address_problem(self.text) is None
        # Who knows what stands before an @ in what is no URL.
        is_open = skeleton_of(self.text).count("@") <= is_url
        return [
            diagnose(
                self.document, ("records",), problem.what, problem.why, problem.fix,
                text=problem.text or None, show_line=is_open,
            )
            for problem in problems
        ]  # fmt: skip


def read_address(text: str, expander: Expander, root: Path) -> str:
    """Return the URL that a text stands for.

    Raises:
        NotExpanded: an expression in it has no value, or what comes out is no address of a store.
    """
    value = scalar_text(expander.text(text))
    if not isinstance(value, str):
        kind = "nothing" if value is None else "a list or a mapping"
        raise NotExpanded(Problem(text, "wrong type", f"{text} is {kind}; expected text", None))
    url = str.__str__(value)
    if problem := _address_problem(escape(url)):
        raise NotExpanded(problem)
    scheme, _, rest = url.partition("://")
    if scheme == "sqlite":
        # Four slashes before an absolute path, as everywhere.
        url = f"sqlite:///{(root / rest[1:]).absolute()}"
    is_secret = isinstance(value, SecretText) or any(passwords_in(url))
    return SecretText(url, reference_of(text, expander.values)) if is_secret else url


def whole_address(url: str, root: Path) -> str:
    """An address that was given on the command line; a relative path in it is one below `root`, too."""
    scheme, _, rest = url.partition("://")
    return f"sqlite:///{root.resolve() / rest[1:]}" if scheme == "sqlite" and rest[:1] == "/" else url


def reference_of(text: str, values: VariableValues) -> str:
    """The text with those expressions kept that stand for what is secret, or comes from the environment."""
    shown, literal = "", ""
    for part in parts_of(text):
        value = part if isinstance(part, str) else _open_value(part, values)
        if value is None:
            assert isinstance(part, Reference)
            shown += escape(literal, before_expression=True) + part.text
            literal = ""
        else:
            literal += value
    return shown + escape(literal)


def _open_value(reference: Reference, values: VariableValues) -> str | None:
    kind, _, name = reference.inner.partition(".")
    if kind != "var":
        return None
    try:
        value = scalar_text(values.get(name))
    except NoValue:
        return None
    return None if isinstance(value, SecretText) or not isinstance(value, str) else value


def skeleton_of(text: str) -> str:
    """The text with something in place of each expression that stands in no URL."""
    return "".join(part if isinstance(part, str) else _HOLE for part in parts_of(text))


def _has_password(text: str) -> bool:
    """Whether a password is written in a URL with expressions."""
    skeleton = skeleton_of(text)
    found = (*passwords_in(skeleton), *_UNQUOTED_PASSWORD.findall(skeleton))
    return not all(_HOLE in password for password in found)


def _open_password(text: str) -> Problem | None:
    if not _has_password(text):
        return None
    why = "a variable that is not sensitive provides the password in the record store URL"
    return Problem("", "secret not allowed here", why, "set sensitive: true on that variable")


def _literal_password(text: str) -> Problem | None:
    if not _has_password(text):
        return None
    why = "the record store URL contains a password, where anyone can read it"
    fix = "use ${env.NAME}, as in postgresql://user:${env.PGPASSWORD}@host/database"
    return Problem("", "literal secret", why, fix)


def _address_problem(text: str) -> Problem | None:
    """What is wrong with a URL; one with expressions in it is judged as far as it goes."""
    scheme, separator, rest = skeleton_of(text).partition("://")
    if _HOLE in scheme:
        return None
    why = None
    if not separator:
        why = "the scheme is missing"
    elif scheme not in _SCHEMES:
        shown = f'"{scheme}"' if scheme.replace("+", "").isalnum() else "its scheme"
        why = f"{shown} is not one of postgresql and sqlite"
    elif scheme == "sqlite" and not rest.startswith(_HOLE) and not (rest[:1] == "/" and rest.strip("/")):
        why = "the path of a SQLite file follows three slashes; an absolute path starts with a fourth"
    return None if why is None else Problem("", "not a valid record store URL", why, f"write {_FORMS}")


def passwords_in(url: str) -> Iterator[str]:
    """The passwords of a URL that is one."""
    _, separator, rest = url.partition("://")
    userinfo, at, _ = re.split("[/?#]", rest, maxsplit=1)[0].rpartition("@")
    if separator and at and (password := userinfo.partition(":")[2]):
        yield password
    for option in url.partition("?")[2].split("&"):
        name, _, value = option.partition("=")
        if value and unquote(name).lower() in _PASSWORD_OPTIONS:
            yield value


def _passwords_of(text: str, expander: Expander) -> Iterator[str]:
    """The passwords in the URL that a text stands for, and the values that they are put together from."""
    # A password that was not written as URLs demand ends a URL too early: what it is made from is known.
    holes = [part for part in parts_of(text) if isinstance(part, Reference)]
    marked = skeleton_of(text)
    for password in passwords_in(marked):
        first = marked[: marked.find(password)].count(_HOLE)
        for part in holes[first : first + password.count(_HOLE)]:
            yield from _text_of(part.text, expander)
    for url in _text_of(text, expander):
        yield from passwords_in(url)
        yield from looks_like_passwords(url)


def _text_of(text: str, expander: Expander) -> Iterator[str]:
    try:
        value = scalar_text(expander.text(text))
    except NotExpanded:
        return
    # Offline, the name stands for a value that is not known.
    if isinstance(value, str) and not (isinstance(value, SecretText) and str.__eq__(value, value.reference)):
        yield str.__str__(value)


def looks_like_passwords(text: str) -> Iterator[str]:
    """What stands in a text where URLs have a password, and is written there as it is."""
    return (found for found in _LOOKS_LIKE_PASSWORD.findall(text) if "${" not in found)
