"""Where the jobs may live: the entries under `targets`, read when one of them is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from reconciler.core.addresses import endpoint_problem, holds_credentials
from reconciler.core.settings import CLOUD_ONLY
from reconciler.core.stack import Target, TargetEntry, Variable
from reconciler.errors import Diagnostic, ManifestInvalid, WrongUsage, in_file_order
from reconciler.manifest.expressions import Expander, problems_in
from reconciler.manifest.merge import DefaultsPart, MergedEntry, allowed_in_defaults, problems_in_defaults
from reconciler.manifest.positions import PathStep, diagnose
from reconciler.manifest.problems import (
    ENV_NOT_SET,
    Names,
    NotExpanded,
    Origin,
    Problem,
    Unexpanded,
    diagnostics,
    did_you_mean,
    found,
    listed,
)
from reconciler.manifest.variables import unknown_variable

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
#: What an entry says of the jobs, and not of the place where they live.
VARIABLES, DEFAULTS = "variables", "defaults"
_HIDDEN_LITERAL = "credentials come from the environment or a credentials file, never from a manifest"


@dataclass(frozen=True)
class Targets:
    """The targets of a stack, by name. `expander_on` has the values that hold on one of them."""

    entries: Mapping[str, MergedEntry] = field(default_factory=dict)
    expander_on: Callable[[str], Expander] | None = None

    def target(self, name: str | None) -> tuple[str, Target]:
        """Return one target, whole: every expression in it has a value.

        Raises:
            WrongUsage: there is no target of that name, or none is named and there are several.
            ManifestInvalid: its entry is invalid, or an expression in it has no value.
        """
        if name is None or name not in self.entries:
            raise WrongUsage(self.no_such_target(name))
        target, problems = self._read(self.entries[name], is_used=True)
        if target is None or problems:
            raise ManifestInvalid(*in_file_order(problems))
        return name, target

    def check(self) -> tuple[dict[str, Target], list[Diagnostic], set[str]]:
        """Read every target, whatever the environment holds.

        Returns the targets that can be read so far (an expression without a value stays as it is
        written), the problems, and literal secrets that must not be shown.
        """
        targets: dict[str, Target] = {}
        problems: list[Diagnostic] = []
        literals: set[str] = set()
        for name, entry in self.entries.items():
            target, found_here = self._read(entry, is_used=False)
            problems += found_here
            literals |= _literals(entry.value)
            if target is not None:
                targets[name] = target
        return targets, problems, literals

    def unknown(self, name: str | None) -> tuple[str, str | None]:
        """Why no target has that name, and which one may have been meant."""
        names = listed(self.entries)
        if not self.entries:
            return "the stack has no targets", "add targets: {local: {kind: local}} to the root file"
        if name is None:
            return (
                f"there are several targets and no default: {names}",
                "add target: NAME to the root file, or pass --target NAME",
            )
        return f'"{name}" is not one of {names}', did_you_mean(name, self.entries)

    def no_such_target(self, name: str | None) -> Diagnostic:
        """The diagnostic for a target that does not exist, or was not named."""
        return Diagnostic("unknown target" if name is not None else "no target", *self.unknown(name))

    def _read(self, entry: MergedEntry, *, is_used: bool) -> tuple[Target | None, list[Diagnostic]]:
        value = entry.value
        origin = Origin(((entry.document, entry.steps),))
        if not isinstance(value, dict):
            why = f"expected a mapping, got {found(value)}"
            return None, [origin.diagnose((), "wrong type", why, at_key=value is None)]
        problems = list(_literal_secrets(value, origin))
        place, not_expanded = self._expanded(entry)
        problems += [
            origin.diagnose(steps, problem.what, problem.why, problem.fix, text=problem.text)
            for steps, problem in not_expanded
            if is_used or problem.what != ENV_NOT_SET
        ]
        sections = {name: value[name] for name in (VARIABLES, DEFAULTS) if value.get(name) is not None}
        tree = {**place, **sections}
        try:
            TargetEntry.model_validate(tree)
        except ValidationError as error:
            return None, problems + list(diagnostics(error, TargetEntry, tree, origin))
        target = Target.model_validate(place)
        return target, problems + list(_rule_problems(target, tree, origin))

    def _expanded(
        self, entry: MergedEntry
    ) -> tuple[dict[str, Any], list[tuple[tuple[PathStep, ...], Problem]]]:
        """The place that a target names, and the expressions in it that have no value."""
        assert self.expander_on is not None
        expander = self.expander_on(entry.name)
        place: dict[str, Any] = {}
        problems: list[tuple[tuple[PathStep, ...], Problem]] = []
        for name, member in entry.value.items():
            if _is_credential(name) or name in (VARIABLES, DEFAULTS):
                continue
            try:
                place[name] = expander.tree(member)
            except NotExpanded:
                place[name] = Unexpanded(member) if isinstance(member, str) else member
                problems += problems_in(member, expander, (name,))
        return place, problems


def variables_on(entry: MergedEntry | None) -> dict[str, Any]:
    """The values that a target gives, as it says them."""
    return _section(entry, VARIABLES)


def defaults_on(entry: MergedEntry | None) -> tuple[DefaultsPart, ...]:
    """What a target says of every job."""
    part = _defaults_part(entry)
    return () if part is None else (allowed_in_defaults(part),)


def differs(entry: MergedEntry) -> bool:
    """Whether a manifest may come to something else on this target."""
    return bool(variables_on(entry) or defaults_on(entry))


def entry_problems(entry: MergedEntry, declared: Mapping[str, Variable]) -> Iterator[Diagnostic]:
    """Yield what is wrong with the values and defaults of a target, whatever comes of their expressions."""
    variables = variables_on(entry)
    names = Names(declared)
    # Beside a name that is misspelt may stand a secret.
    show_line = not any(variable.sensitive for variable in declared.values())
    for name in variables:
        if name not in declared:
            steps = (*entry.steps, VARIABLES, name)
            words = unknown_variable(name, names)
            yield diagnose(entry.document, steps, *words, at_key=True, show_line=show_line)
    if part := _defaults_part(entry):
        yield from problems_in_defaults(part)


def _defaults_part(entry: MergedEntry | None) -> DefaultsPart | None:
    tree = _section(entry, DEFAULTS)
    return DefaultsPart(entry.document, (*entry.steps, DEFAULTS), tree) if entry and tree else None


def _section(entry: MergedEntry | None, name: str) -> dict[str, Any]:
    value = entry.value.get(name) if entry is not None and isinstance(entry.value, dict) else None
    return value if isinstance(value, dict) else {}


def _is_credential(name: str) -> bool:
    return name.lower().replace("_", "").replace("-", "") in _CREDENTIALS


def _literal_secrets(value: Mapping[str, Any], origin: Origin) -> Iterator[Diagnostic]:
    for name in value:
        if _is_credential(name):
            yield origin.diagnose(
                (name,), "literal secret", f'"{name}" is not allowed here: {_HIDDEN_LITERAL}',
                _WHERE_CREDENTIALS_BELONG, at_key=True, show_line=False,
            )  # fmt: skip


def _literals(value: Any) -> set[str]:
    """Text that is a secret although it stands in the file."""
    if not isinstance(value, dict):
        return set()
    literals = {text for name, text in value.items() if _is_credential(name) and isinstance(text, str)}
    endpoint = value.get("endpoint")
    if isinstance(endpoint, str) and "@" in endpoint:
        userinfo = endpoint.rpartition("@")[0].rpartition("//")[2]
        literals |= {userinfo, *userinfo.split(":")}
    return literals


def _rule_problems(target: Target, tree: Mapping[str, Any], origin: Origin) -> Iterator[Diagnostic]:
    if target.traits.is_embedded:
        for name in CLOUD_ONLY:
            if tree.get(name) is not None:
                yield origin.diagnose(
                    (name,), "incompatible fields", f"kind {target.kind} does not support {name}", at_key=True
                )
    elif target.traits.has_address and not target.region and not target.endpoint:
        why = f'"region" or "endpoint" is required for kind {target.kind}'
        yield origin.diagnose((), "missing field", why, "add region: cn-north-4", at_key=True)
    if target.endpoint is not None and not isinstance(tree["endpoint"], Unexpanded):
        yield from _endpoint_problems(target.endpoint, target, origin)
    workspace = target.workspace_id
    if not isinstance(tree.get("workspace_id"), Unexpanded) and workspace != "0" and len(workspace) != 32:
        why = f'must be "0" or an id of 32 characters, got {found(tree["workspace_id"])}'
        yield origin.diagnose(("workspace_id",), "value not allowed", why)


def _endpoint_problems(endpoint: str, target: Target, origin: Origin) -> Iterator[Diagnostic]:
    if holds_credentials(endpoint):
        yield origin.diagnose(
            ("endpoint",), "literal secret", f"the endpoint contains a password: {_HIDDEN_LITERAL}",
            _WHERE_CREDENTIALS_BELONG, show_line=False,
        )  # fmt: skip
    elif problem := endpoint_problem(endpoint, target.insecure):
        yield origin.diagnose(("endpoint",), "value not allowed", *problem)


def default_problem(name: str, document: Any, targets: Targets) -> Diagnostic:
    """`target:` names none of the targets."""
    return diagnose(document, ("target",), "unknown target", *targets.unknown(name))
