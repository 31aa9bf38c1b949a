"""A stack as its files declare it on one of its targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from reconciler.core.notify_entry import Destination
from reconciler.core.stack import Limits, Stack, Target, VariableSource
from reconciler.errors import Diagnostic, ManifestInvalid
from reconciler.manifest.notify import NotifySetting
from reconciler.manifest.origins import ValueOrigin
from reconciler.manifest.records import RecordsSetting
from reconciler.manifest.shown import shown
from reconciler.manifest.targets import Targets
from reconciler.secrets import Redactor


@dataclass(frozen=True)
class LoadedStack:
    """A stack as its files declare it.

    `targets` are read as far as the environment goes; `target` gives one that is whole. `target_name`
    is the one that the jobs are declared for, `differs` says whether they may be others on another one, and
    `on` gives the stack there. `secrets` every sensitive value that is known, used or not, and `sources`
    says of each sensitive variable with a value where it came from. `records_reference` is the URL of the
    record store without what is secret or comes from the environment; `records_url` gives it whole.
    `checked` are the same files as `check` read them on each target, where these differ. `origins` says
    where the values of the job come from that `load` was asked to trace. `file_names` are the names of the
    `files` in messages. `undeclared` are the variables that were given a value although no file of the stack
    declares them. `declared` has the keys of all files, each with its sweep, or "".
    """

    stack: Stack
    root: Path
    targets: Mapping[str, Target]
    target_name: str | None
    limits: Limits
    manifest_digest: str
    secrets: tuple[str, ...] = field(repr=False)
    files: tuple[Path, ...]
    warnings: tuple[Diagnostic, ...]
    file_names: tuple[str, ...] = ()
    records_reference: str | None = None
    sources: Mapping[str, VariableSource] = field(default_factory=dict)
    origins: tuple[ValueOrigin, ...] = field(default=(), repr=False)
    differs: bool = False
    undeclared: frozenset[str] = frozenset()
    declared: Mapping[str, str] = field(default_factory=dict)
    checked: tuple[LoadedStack, ...] = field(default=(), repr=False, compare=False)
    _targets: Targets = field(default_factory=Targets, repr=False, compare=False)
    _records: RecordsSetting = field(default_factory=RecordsSetting, repr=False, compare=False)
    _notify: NotifySetting = field(default_factory=NotifySetting, repr=False, compare=False)
    _on: Callable[[str | None, bool], LoadedStack] | None = field(default=None, repr=False, compare=False)

    def on(self, name: str | None, *, offline: bool) -> LoadedStack:
        """Return the stack as its files, as they were read, declare it on another target.

        Raises:
            ManifestInvalid: it is invalid there.
            WrongUsage: no target has that name.
        """
        assert self._on is not None
        return self._on(name, offline)

    def target(self, name: str | None = None) -> tuple[str, Target]:
        """Return a target with its name; left out, the manifest's default.

        Raises:
            WrongUsage: no target has that name, or none is named and there is no default.
            ManifestInvalid: its entry is invalid, or an expression in it has no value.
        """
        try:
            return self._targets.target(self.target_name if name is None else name)
        except ManifestInvalid as invalid:
            raise ManifestInvalid(*shown(invalid.diagnostics, Redactor(self.secrets))) from None

    def records_url(self) -> str | None:
        """Return where the record store is: `postgresql://…`, `sqlite:////absolute/path`, or None if no
        file says it. A URL with a secret in it is a `SecretText`.

        Raises:
            ManifestInvalid: an expression in it has no value, or what comes out is no address of a store.
        """
        try:
            return self._records.url()
        except ManifestInvalid as invalid:
            raise ManifestInvalid(*shown(invalid.diagnostics, Redactor(self.secrets))) from None

    @property
    def notifies(self) -> bool:
        """Whether drift and failed applies are told somewhere."""
        return bool(self._notify.entries)

    def destinations(self) -> tuple[Destination, ...]:
        """Return where drift and failed applies are told; an entry whose URL has no value says why."""
        return tuple(
            replace(one, problem=shown([one.problem], Redactor(self.secrets))[0]) if one.problem else one
            for one in self._notify.destinations()
        )
