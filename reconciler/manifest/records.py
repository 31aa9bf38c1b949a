"""Where the record store of a stack is: the URL under `records`, read as far as the environment goes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from reconciler.core.expression import Reference, escape, parts_of
from reconciler.core.scalar import scalar_text
from reconciler.core.store_url import (
    HOLE,
    absolute_url,
    looks_like_passwords,
    passwords_in,
    store_url_problem,
    user_password,
    written_passwords,
)
from reconciler.errors import Diagnostic, ManifestInvalid
from reconciler.manifest.expression_problems import (
    CREDENTIAL,
    ENV_NOT_SET,
    NotExpanded,
    NoValue,
    Problem,
    refused_credential,
)
from reconciler.manifest.expressions import Expander, Values, credential_in, problems_in
from reconciler.manifest.positions import diagnose
from reconciler.manifest.variables import VariableValues
from reconciler.manifest.yaml import Document
from reconciler.secrets import SecretText


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
        return self._told(problem for problem in problems if problem.what != ENV_NOT_SET)

    def url(self) -> str | None:
        """Return the URL, whole, a relative path in it reckoned from the root; None if no file has one.

        It is a `SecretText` if there is a password or a sensitive value in it.

        Raises:
            ManifestInvalid: it is no address of a store, or an expression in it has no value.
        """
        if self.document is None:
            return None
        problems, url = self._read(self.values.online())
        if problems or url is None:
            raise ManifestInvalid(*self._told(problems))
        return url

    def secrets(self) -> set[str]:
        """The passwords in the URL, as far as they are known."""
        if self.document is None:
            return set()
        expander = Expander(self.values, self.environ, takes_credentials=True, budget=self.values.budget)
        return {form for one in _passwords_of(self.text, expander) for form in (one, unquote(one)) if one}

    def _read(self, values: VariableValues) -> tuple[list[Problem], str | None]:
        # Values that are no secret are looked at as if they were written there.
        written = reference_of(self.text, values)
        if problem := (
            misplaced_credential(written)
            or _literal_password(self.text)
            or _open_password(written)
            or _url_problem(written)
        ):
            return [problem], None
        expander = Expander(values, self.environ, takes_credentials=True, budget=values.budget)
        try:
            return [], resolve_url(self.text, expander, self.root)
        except NotExpanded as error:
            return [problem for _, problem in problems_in(self.text, expander)] or [error.problem], None

    def _told(self, problems: Iterator[Problem] | list[Problem]) -> list[Diagnostic]:
        assert self.document is not None
        is_url = _literal_password(self.text) is None and _url_problem(self.text) is None
        # Who knows what stands before an @ in what is no URL.
        is_open = skeleton_of(self.text).count("@") <= is_url
        return [
            diagnose(
                self.document, ("records",), problem.what, problem.why, problem.fix,
                text=problem.text or None, show_line=is_open,
            )
            for problem in problems
        ]  # fmt: skip


def resolve_url(text: str, expander: Expander, root: Path) -> str:
    """Return the URL that a text stands for.

    Raises:
        NotExpanded: an expression in it has no value, or what comes out is no address of a store.
    """
    value = scalar_text(expander.text(text))
    if not isinstance(value, str):
        kind = "nothing" if value is None else "a list or a mapping"
        raise NotExpanded(Problem(text, "wrong type", f"{text} is {kind}; expected text", None))
    url = str.__str__(value)
    if problem := _url_problem(escape(url)):
        raise NotExpanded(problem)
    url = absolute_url(url, str(root.absolute()))
    is_secret = isinstance(value, SecretText) or any(passwords_in(url))
    return SecretText(url, reference_of(text, expander.values)) if is_secret else url


def reference_of(text: str, values: Values) -> str:
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


def _open_value(reference: Reference, values: Values) -> str | None:
    kind, _, name = reference.inner.partition(".")
    if kind != "var":
        return None
    try:
        value = scalar_text(values.get(name))
    except NoValue:
        return None
    return None if isinstance(value, SecretText) or not isinstance(value, str) else value


def misplaced_credential(text: str) -> Problem | None:
    """What is wrong if a credential of reconciler itself stands anywhere but in the password of a URL."""
    parts = parts_of(text)
    for number, part in enumerate(parts):
        if isinstance(part, Reference) and (name := credential_in(part)):
            others = ((one if isinstance(one, str) else HOLE) for one in parts)
            url = "".join(_MARK if at == number else one for at, one in enumerate(others))
            if _MARK not in user_password(url):
                return Problem(part.text, CREDENTIAL, *refused_credential(name))
    return None


#: No URL holds this character.
_MARK = "\ufdd4"


def skeleton_of(text: str) -> str:
    """The text with something in place of each expression that stands in no URL."""
    return "".join(part if isinstance(part, str) else HOLE for part in parts_of(text))


def _has_password(text: str) -> bool:
    """Whether a password is written in a URL with expressions."""
    return not all(HOLE in password for password in written_passwords(skeleton_of(text)))


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


def _url_problem(text: str) -> Problem | None:
    """What is wrong with a URL; one with expressions in it is judged as far as it goes."""
    wrong = store_url_problem(skeleton_of(text))
    return None if wrong is None else Problem("", wrong.what, wrong.why, wrong.fix)


def _passwords_of(text: str, expander: Expander) -> Iterator[str]:
    """The passwords in the URL that a text stands for, and the values that they are put together from."""
    # A password that was not written as URLs demand ends a URL too early: what it is made from is known.
    holes = [part for part in parts_of(text) if isinstance(part, Reference)]
    marked = skeleton_of(text)
    for password in passwords_in(marked):
        first = marked[: marked.find(password)].count(HOLE)
        for part in holes[first : first + password.count(HOLE)]:
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
