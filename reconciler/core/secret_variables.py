"""Variables for the secrets of jobs that become manifest entries: a file names a secret, and never holds it.

A value is taken for a secret by its mark (`constraint.sensitive` of a parameter), by the name that it goes
by, by its look, or because it is known. Source: docs/semantics.md, "Secrets".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.core.scalar import escape, variables_of
from reconciler.secrets import (
    SecretPart,
    SecretText,
    is_credential_name,
    is_secret_name,
    looks_secret,
    secret_parts,
    stands_out,
    without_parts,
)

IsSecret = Callable[[str], bool]

#: Names that are shown and compared, so that no variable that is sensitive may stand there.
_SHOWN = frozenset({"name", "local_path", "description", "kind"})
#: Environment variables that mean something to every program.
_TAKEN = frozenset({"HOME", "PATH", "USER", "SHELL", "LANG", "TMPDIR"})


class SecretVariables:
    """One variable for each secret value, named by the first field that holds it.

    `taken` are names of variables that mean something else already.
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._name_by_value: dict[str, str] = {}
        self._taken = {name.upper() for name in taken}

    def reference(self, value: str, field: str, key: str) -> str:
        """The expression for a value: its variable is named after the field, if need be after the key too."""
        if value not in self._name_by_value:
            self._name_by_value[value] = self._free(_name(field), _name(f"{key}_{field}"))
        return f"${{var.{self._name_by_value[value]}}}"

    def _free(self, short: str, long: str) -> str:
        numbered = (f"{long}_{number}" for number in range(2, len(self._taken) + 3))
        free = (name for name in (short, long, *numbered) if name not in self._taken and not _is_in_use(name))
        name = next(free)
        self._taken.add(name)
        return name

    def declarations(self, trees: Iterable[Any] | None = None) -> dict[str, dict[str, Any]]:
        """What a manifest says of them under `variables`: of all, or of those used in entries as written."""
        names = set(self._name_by_value.values())
        if trees is not None:
            names &= {name for tree in trees for text in texts_in(tree) for name in variables_of(text)}
        return {name: {"env": name, "sensitive": True} for name in sorted(names)}

    def parts(self, text: str) -> list[SecretPart]:
        """Where in a text the values stand that have a variable already, in order."""
        values = [value for value in self._name_by_value if stands_out(value) and value in text]
        pattern = re.compile("|".join(map(re.escape, sorted(values, key=len, reverse=True))))
        return [SecretPart(*found.span()) for found in pattern.finditer(text)] if values else []

    @property
    def value_by_name(self) -> dict[str, str]:
        """The secrets themselves, which nothing may show."""
        return {name: value for value, name in self._name_by_value.items()}


def texts_in(tree: Any) -> Iterator[str]:
    """Every text in plain data that is no name of a member."""
    for value in tree.values() if isinstance(tree, Mapping) else tree if isinstance(tree, list) else ():
        yield from texts_in(value)
    if isinstance(tree, str):
        yield tree


def _name(text: str) -> str:
    """A text as the name of an environment variable: hfToken is HF_TOKEN."""
    spread = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text).upper()
    name = re.sub(r"[^A-Z0-9]+", "_", spread).strip("_")
    return name if name[:1].isalpha() else f"SECRET_{name}".rstrip("_")


def _is_in_use(name: str) -> bool:
    # A name of one or two letters may be set for some other reason.
    return len(name) < 3 or is_credential_name(name) or name.startswith("RECONCILER_") or name in _TAKEN


@dataclass(frozen=True)
class SecretHider:
    """Puts `SecretText` where the tree of an entry holds a secret.

    `is_secret` says of a text that it holds a value which is known to be secret.
    """

    key: str
    variables: SecretVariables
    is_secret: IsSecret

    def argument(self, name: str, value: str, *, is_marked: bool = False) -> str:
        """The value of a parameter or an environment variable, hidden if it is a secret."""
        if is_marked and value:
            return self._hidden(value, [SecretPart(0, len(value), name)], name)
        if not (looks_secret(name, value) or self._is_known(value)):
            return value
        whole = [SecretPart(0, len(value), name)]
        return self._hidden(value, whole if is_secret_name(name) else secret_parts(value) or whole, name)

    def tree(self, tree: Any, field: str = "") -> Any:
        """A tree in which the texts that look secret by themselves, or are known, are hidden."""
        if isinstance(tree, Mapping):
            return {name: self.tree(value, name) for name, value in tree.items()}
        if isinstance(tree, list):
            return [self.tree(item, field) for item in tree]
        if not isinstance(tree, str) or isinstance(tree, SecretText) or field in _SHOWN:
            return tree
        # What a field of the service means is known, so neither its name nor a long id in it is a sign.
        if not (looks_secret("id", tree) or self._is_known(tree)):
            return tree
        return self._hidden(tree, secret_parts(tree), field)

    def _is_known(self, text: str) -> bool:
        """Whether a text holds a known secret, as it is or as it is written: escaping may make it one."""
        return self.is_secret(text) or self.is_secret(escape(text))

    def _hidden(self, text: str, parts: list[SecretPart], field: str) -> SecretText:
        if not parts:
            parts = self.variables.parts(text)
        if not parts or self._is_known(without_parts(text, parts)):
            parts = [SecretPart(0, len(text), field)]
        reference, end = "", 0
        for part in parts:
            literal = escape(text[end : part.start], before_expression=True)
            value = text[part.start : part.end]
            reference += literal + self.variables.reference(value, part.name or field, self.key)
            end = part.end
        return SecretText(text, reference + escape(text[end:]))
