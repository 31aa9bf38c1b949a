"""The targets and records of a stack, checked even if the environment lacks values that they use."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from pydantic import ValidationError

from reconciler.core.addresses import (
    HOLE,
    absolute_url,
    endpoint_problem,
    holds_credentials,
    looks_like_passwords,
    passwords_in,
    store_url_problem,
    user_password,
    written_passwords,
)
from reconciler.core.scalar import Reference, escape, join_parts, parts_of, scalar_text
from reconciler.core.stack import SECTIONS, Target, TargetEntry
from reconciler.core.values import TARGET_KINDS
from reconciler.errors import Diagnostic, ManifestInvalid, WrongUsage, in_file_order
from reconciler.manifest.expressions import Expander, credential_in, problems_in
from reconciler.manifest.merge import DEFAULTS, VARIABLES, MergedEntry, defaults_on, variables_on
from reconciler.manifest.problems import (
    ENV_NOT_SET,
    NoValue,
    Problem,
    Steps,
    Unexpanded,
    describe,
    diagnose,
    diagnostics,
    did_you_mean,
    listed,
    not_a_mapping,
    refused_credential,
)
from reconciler.manifest.variables import VariableValues, unknown_variable
from reconciler.manifest.yaml import Document
from reconciler.secrets import SecretText, whole_url_secrets

if TYPE_CHECKING:
    from reconciler.core.settings import Variable

_CREDENTIALS = frozenset(
    {
        "accesskey", "ak", "apikey", "authtoken", "credential", "credentials", "password", "secret",
        "secretaccesskey", "secretkey", "securitytoken", "sk", "token", "username", "xauthtoken",
    }
)  # fmt: skip
_WHERE_CREDENTIALS_BELONG = (
    "remove it, and set HUAWEICLOUD_SDK_AK and HUAWEICLOUD_SDK_SK, or MODELARTS_AUTH_TOKEN, "
    "or OS_AUTH_URL with OS_USERNAME and OS_PASSWORD, or write ~/.huaweicloud/credentials"
)
_CODE_STORE, _BUCKET = "code_store", r"[a-z0-9][a-z0-9.-]*"
_NO_CREDENTIALS = "credentials come from the environment or a credentials file, never from a manifest"


class Targets(NamedTuple):
    """The targets of a stack by name. `expander_on` returns the expander for a target.

    `code_store_at` is the file with the `code_store` of targets without their own.
    """

    entries: Mapping[str, MergedEntry]
    expander_on: Callable[[str], Expander]
    code_store_at: Document | None = None

    def target(self, name: str | None) -> tuple[str, Target]:
        """Return one target with all its values.

        Raises:
            WrongUsage: no target has that name, or the name is None.
            ManifestInvalid: its entry is invalid, or an expression in it has no value.
        """
        if name is None or name not in self.entries:
            raise WrongUsage(self.no_such_target(name))
        target, problems = self._read(self.entries[name], is_used=True)
        if target is None or problems:
            raise ManifestInvalid(*in_file_order(problems))
        return name, target

    def check(self, declared: Mapping[str, Variable]) -> tuple[dict[str, Target], list[Diagnostic], set[str]]:
        """Read all targets, ignoring environment variables that are not set.

        Returns the targets that can be read, where an expression without a value stays as written, the
        problems, and literal secrets that must not be shown.
        """
        targets: dict[str, Target] = {}
        problems: list[Diagnostic] = []
        literals: set[str] = set()
        # The value of a misspelt variable may be a secret.
        show_line = not any(variable.sensitive for variable in declared.values())
        for name, entry in self.entries.items():
            target, entry_problems = self._read(entry, is_used=False)
            problems += entry_problems
            for variable in (variable for variable in variables_on(entry) if variable not in declared):
                words = unknown_variable(variable, declared)
                steps = (VARIABLES, variable)
                problems.append(entry.diagnose(steps, *words, at_key=True, show_line=show_line))
            defaults_on(entry, problems)
            value = entry.value if isinstance(entry.value, dict) else {}
            texts = {text for name, text in value.items() if _is_credential(name) and isinstance(text, str)}
            for endpoint in map(value.get, _ENDPOINTS):
                if isinstance(endpoint, str) and "@" in endpoint:
                    userinfo = endpoint.rpartition("@")[0].rpartition("//")[2]
                    texts |= {userinfo, *userinfo.split(":")}
            literals |= texts
            if target is not None:
                targets[name] = target
        return targets, problems, literals

    def unknown(self, name: str | None) -> tuple[str, str | None]:
        """Return why and fix for a name that is not a target; None if no target is named."""
        names = listed(self.entries)
        if not self.entries:
            return "the stack has no targets", "add targets: {local: {kind: local}} to the root file"
        if name is None:
            fix = "add target: NAME to the root file, or pass --target NAME"
            return f"there are several targets and no default: {names}", fix
        return f'"{name}" is not one of {names}', did_you_mean(name, self.entries)

    def no_such_target(self, name: str | None) -> Diagnostic:
        return Diagnostic("unknown target" if name is not None else "no target", *self.unknown(name))

    def _read(self, entry: MergedEntry, *, is_used: bool) -> tuple[Target | None, list[Diagnostic]]:
        value, origin = entry.value, entry.origin
        if not isinstance(value, dict):
            return None, [not_a_mapping(value, origin)]
        problems: list[Diagnostic] = []
        expander = self.expander_on(entry.name)
        settings: dict[str, Any] = {}
        shared = {} if self.code_store_at is None else {_CODE_STORE: self.code_store_at.tree[_CODE_STORE]}
        for name, member in {**shared, **value}.items():
            if _is_credential(name):
                why = f'"{name}" is not allowed here: {_NO_CREDENTIALS}'
                fix = _WHERE_CREDENTIALS_BELONG
                problem = entry.diagnose((name,), "literal secret", why, fix, at_key=True, show_line=False)
                problems.append(problem)
            elif name not in (VARIABLES, DEFAULTS):
                try:
                    settings[name] = expander.tree(member)
                except NoValue:
                    settings[name] = Unexpanded(member) if isinstance(member, str) else member
                    for steps, words in problems_in(member, expander, (name,)):
                        if is_used or words.what != ENV_NOT_SET:
                            problems.append(self._diagnose(entry, steps, *words))
        sections = {name: value[name] for name in (VARIABLES, DEFAULTS) if value.get(name) is not None}
        tree = {**settings, **sections}
        try:
            TargetEntry.model_validate(tree)
        except ValidationError as error:
            for problem in diagnostics(error, TargetEntry, tree, origin):
                # The value of an unknown field that is no typo may be a secret.
                show_line = problem.what != "unknown field" or problem.fix
                problems.append(problem if show_line else problem._replace(snippet=None))
            invalid = {item["loc"][0] for item in error.errors()}
            if not invalid.isdisjoint({"kind", "insecure"}):  # other rules depend on them
                return None, problems
            settings = {name: member for name, member in settings.items() if name not in invalid}
        target = Target.model_validate(settings)
        if target.code_store and not isinstance(settings[_CODE_STORE], Unexpanded):
            bucket, _, prefix = target.code_store.removeprefix("obs://").partition("/")
            is_valid = target.code_store.startswith("obs://") and re.fullmatch(_BUCKET, bucket)
            if not is_valid or {"", ".", ".."} & set(prefix.removesuffix("/").split("/") if prefix else ()):
                why = f"must be obs://BUCKET/PREFIX/, got {describe(target.code_store)}"
                problems.append(self._diagnose(entry, (_CODE_STORE,), "value not allowed", why))
        for prefix in target.storage if isinstance(target.storage, dict) else ():
            if not prefix.startswith("obs://"):
                why = f"must be a prefix such as obs://BUCKET/, got {describe(prefix)}"
                problems.append(entry.diagnose(("storage", prefix), "value not allowed", why, at_key=True))
        problems += _rule_problems(target, tree, entry)
        return target if tree.keys() == settings.keys() | sections.keys() else None, problems

    def _diagnose(self, entry: MergedEntry, steps: Steps, *words: Any) -> Diagnostic:
        """Report a problem with a setting of a target, at the shared `code_store` if it comes from there."""
        if steps[0] == _CODE_STORE and _CODE_STORE not in entry.value and self.code_store_at is not None:
            return diagnose(self.code_store_at, steps, *words)
        return entry.diagnose(steps, *words)


#: Whether `insecure` of the target allows plain http to other machines, and whether a path may follow.
_ENDPOINTS = {"endpoint": (True, False), "obs_endpoint": (None, False), "iam_endpoint": (True, True)}


def _is_credential(name: str) -> bool:
    return name.lower().replace("_", "").replace("-", "") in _CREDENTIALS


def _rule_problems(target: Target, tree: Mapping[str, Any], entry: MergedEntry) -> Iterator[Diagnostic]:
    for name in (name for kind in TARGET_KINDS.values() for name in kind.settings):
        if tree.get(name) is not None and name not in target.traits.settings:
            why = f"kind {target.kind} does not support {name}"
            yield entry.diagnose((name,), "incompatible fields", why, at_key=True)
    if target.traits.has_address and not (tree.get("region") or tree.get("endpoint")):
        why = f'"region" or "endpoint" is required for kind {target.kind}'
        yield entry.diagnose((), "missing field", why, "add region: cn-north-4", at_key=True)
    for name, (insecure, takes_path) in _ENDPOINTS.items():
        endpoint: str | None = getattr(target, name)
        if endpoint is None or isinstance(tree[name], Unexpanded):
            continue
        if holds_credentials(endpoint):
            why, fix = f"the endpoint contains a password: {_NO_CREDENTIALS}", _WHERE_CREDENTIALS_BELONG
            yield entry.diagnose((name,), "literal secret", why, fix, show_line=False)
        elif problem := endpoint_problem(endpoint, insecure and target.insecure, takes_path=takes_path):
            yield entry.diagnose((name,), "value not allowed", *problem)
    workspace = target.workspace_id
    if not isinstance(tree.get("workspace_id"), Unexpanded) and workspace != "0" and len(workspace) != 32:
        why = f'must be "0" or an id of 32 characters, got {describe(tree["workspace_id"])}'
        yield entry.diagnose(("workspace_id",), "value not allowed", why)


class RecordsSetting(NamedTuple):
    """The URL of a stack's record store, as declared in a file."""

    document: Document
    text: str
    values: VariableValues
    root: Path

    def reference(self) -> str:
        """Return the URL for storage, without secrets and values from the environment."""
        return reference_of(self.text, self.values.get)

    def check(self) -> list[Diagnostic]:
        """Return the problems of the URL, ignoring environment variables that are not set."""
        problems, _ = self._read(self.values)
        return [problem for problem in problems if problem.what != ENV_NOT_SET]

    def url(self) -> str:
        """Return the URL with all values; a relative path is relative to the root.

        It is a `SecretText` if it contains a password or a sensitive value.

        Raises:
            ManifestInvalid: it is not the URL of a record store, or an expression in it has no value.
        """
        problems, url = self._read(self.values.online())
        if problems or url is None:
            raise ManifestInvalid(*problems)
        return url

    def secrets(self) -> set[str]:
        """Return the known passwords in the URL, quoted and unquoted."""
        passwords = _passwords_of(self.text, self.values.expander(takes_credentials=True))
        return {form for password in passwords for form in (password, unquote(password)) if password}

    def _read(self, values: VariableValues) -> tuple[list[Diagnostic], str | None]:
        # Values that are not secret are checked as if they were written in the URL.
        written, expander = reference_of(self.text, values.get), values.expander(takes_credentials=True)
        problem = misplaced_credential(written) or _written_password(self.text, *_LITERAL)
        problem = problem or _written_password(written, *_OPEN) or _url_problem(written)
        problems = [problem] if problem else []
        if problem is None:
            try:
                return [], resolve_url(self.text, expander, self.root)
            except NoValue as error:
                problems = [problem for _, problem in problems_in(self.text, expander)] or [error.problem]
        is_url = not _written_password(self.text, *_LITERAL) and not _url_problem(self.text)
        # In an invalid URL, anything before an @ may be a password.
        show_line = _skeleton_of(self.text).count("@") <= is_url
        return [
            diagnose(self.document, ("records",), *words, show_line=show_line) for words in problems
        ], None


def resolve_url(text: str, expander: Expander, root: Path) -> str:
    """Expand a text to the URL of a record store.

    Raises:
        NoValue: an expression in it has no value, or the result is not such a URL.
    """
    value = scalar_text(expander.text(text))
    if not isinstance(value, str):
        kind = "nothing" if value is None else "a list or a mapping"
        raise NoValue("wrong type", f"{text} is {kind}; expected text", text=text)
    url = str.__str__(value)
    if problem := _url_problem(escape(url)):
        raise NoValue(*problem)
    url = absolute_url(url, str(root.absolute()))
    is_secret = isinstance(value, SecretText) or any(passwords_in(url))
    return SecretText(url, reference_of(text, expander.value_of)) if is_secret else url


def reference_of(text: str, value_of: Callable[[str], Any]) -> str:
    """Expand a text, but keep expressions for secrets and values from the environment."""

    def expanded(part: str | Reference) -> str | Reference:
        if isinstance(part, str) or not part.inner.startswith("var."):
            return part
        try:
            value = scalar_text(value_of(part.inner.removeprefix("var.")))
        except NoValue:
            return part
        return part if isinstance(value, SecretText) or not isinstance(value, str) else value

    return join_parts(map(expanded, parts_of(text)))


def misplaced_credential(text: str) -> Problem | None:
    """Return the problem of a credential of reconciler itself outside of a URL's password, or None."""
    mark = "\ufdd4"  # no URL holds this character
    parts = parts_of(text)
    for number, part in enumerate(parts):
        if isinstance(part, Reference) and (name := credential_in(part)):
            texts = ((other if isinstance(other, str) else HOLE) for other in parts)
            url = "".join(mark if index == number else text for index, text in enumerate(texts))
            if mark not in user_password(url):
                return refused_credential(name, part.text)
    return None


def _skeleton_of(text: str) -> str:
    """Replace each expression with a character that no URL contains."""
    return "".join(part if isinstance(part, str) else HOLE for part in parts_of(text))


_OPEN = (
    "secret not allowed here",
    "a variable that is not sensitive provides the password in the record store URL",
    "set sensitive: true on that variable",
)
_LITERAL = (
    "literal secret",
    "the record store URL contains a password, where anyone can read it",
    "use ${env.NAME}, as in postgresql://user:${env.PGPASSWORD}@host/database",
)


def _written_password(text: str, *words: str) -> Problem | None:
    """Return a problem with these words if a password in a URL has no expression."""
    passwords = written_passwords(_skeleton_of(text))
    return None if all(HOLE in password for password in passwords) else Problem(*words)


def _url_problem(text: str) -> Problem | None:
    """Check a URL, which may have expressions."""
    problem = store_url_problem(_skeleton_of(text))
    return None if problem is None else Problem(problem.what, problem.why, problem.fix)


def _passwords_of(text: str, expander: Expander) -> Iterator[str]:
    """Yield the passwords in the URL that a text expands to, and the values that they are composed of."""
    # An unquoted password may end the URL early, so the values in it are looked up as well.
    holes = [part for part in parts_of(text) if isinstance(part, Reference)]
    marked = _skeleton_of(text)
    for password in passwords_in(marked):
        first = marked[: marked.find(password)].count(HOLE)
        for part in holes[first : first + password.count(HOLE)]:
            yield from _text_of(part.text, expander)
    for url in _text_of(text, expander):
        yield from passwords_in(url)
        yield from looks_like_passwords(url)


def _text_of(text: str, expander: Expander) -> Iterator[str]:
    with suppress(NoValue):
        if (value := known_text(expander.text(text))) is not None:
            yield value


def known_text(value: Any) -> str | None:
    """Return a value as text; None if it is not text, or a secret that has no value offline."""
    text = scalar_text(value)
    is_known = isinstance(text, str) and not (isinstance(text, SecretText) and not text.has_value)
    return str.__str__(text) if is_known else None


def misplaced_urls(documents: Iterable[Document]) -> set[str]:
    """Return the URLs in `notify` and in unknown (maybe misspelt) sections, and their parts.

    They are redacted from all problems of a manifest. OBS paths are not included.
    """
    urls = (
        text
        for document in documents
        for key, value in document.tree.items()
        if key == "notify" or key not in SECTIONS
        for text in _texts_of(value)
        if "://" in text and not text.startswith("obs://")
    )
    return {part for url in urls for part in whole_url_secrets(url)}


def _texts_of(value: Any) -> Iterator[str]:
    """Yield all texts in a value, including keys."""
    if isinstance(value, str):
        yield str(value)
    elif isinstance(value, dict):
        yield from (text for item in value.items() for part in item for text in _texts_of(part))
    elif isinstance(value, list | tuple):
        yield from (text for item in value for text in _texts_of(item))
