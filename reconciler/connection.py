"""Connect a loaded stack to its target and its records, for the command line and the Python API."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from reconciler.core.addresses import absolute_url, parse_store_url, passwords_in
from reconciler.core.record import LEASE_S, Scope
from reconciler.core.stack import Target, suggest_key
from reconciler.errors import Diagnostic, ManifestInvalid, WrongUsage
from reconciler.manifest import LoadedStack
from reconciler.modelarts.target import Runtime, connected, identity_of
from reconciler.reconcile import Context
from reconciler.records.recording import Recording, RunMetadata
from reconciler.version import __version__

if TYPE_CHECKING:
    from reconciler.core.ports import Clock
    from reconciler.core.values import TargetIdentity
    from reconciler.decide.history import HistoryReport
    from reconciler.records.store import Records


class RecordOptions(NamedTuple):
    """The record store to use, and how its lock is held.

    `url` is from `--records` or its variable; None selects that of the manifest. `lease_s` is how long a lock
    outlives its holder's last heartbeat, and `lock_timeout_s` how long to wait for a held lock.
    `without_records` continues if the store is unavailable.
    """

    url: str | None = None
    lease_s: float = LEASE_S
    lock_timeout_s: float = 0.0
    without_records: bool = False

    @classmethod
    def of(cls, options: Mapping[str, Any], url: str | None) -> RecordOptions:
        """Take the fields that are among the options of a command."""
        given = {name: options[name] for name in cls._fields[1:] if name in options}
        return cls(url, **given)


DEFAULT_RECORDS = RecordOptions()


@contextmanager
def connect(
    loaded: LoadedStack,
    target_name: str | None,
    runtime: Runtime,
    records: RecordOptions = DEFAULT_RECORDS,
    *,
    offline: bool = False,
) -> Iterator[Context]:
    """Connect a stack to a target, by default the one it was loaded for.

    `offline` is for commands that create nothing, e.g. an emergency stop: they work without secrets.

    Raises:
        WrongUsage: no target has that name.
        ManifestInvalid: the target, or the URL of the record store, lacks a value.
        Unauthorized: no credentials were found.
    """
    name, target = loaded.target(target_name)
    url, missing = None, None
    try:
        url = records_url(target, records.url, loaded.records_url, runtime)
    except ManifestInvalid as invalid:
        if not offline:
            raise
        missing = invalid.diagnostics
    with connect_target(loaded, name, target, url, runtime, records) as context:
        if missing is not None:
            context.recording.unavailable = missing
        yield context


@contextmanager
def connect_target(
    loaded: LoadedStack, name: str, target: Target, url: str | None, runtime: Runtime, records: RecordOptions
) -> Iterator[Context]:
    """Connect to a target. `url` is that of the record store, None for the file next to the root file."""
    recording = open_recording(url, loaded.root, runtime, records)
    with closing(recording), connected(name, target, loaded.root, runtime) as place:
        log_debug, stop, uploading = runtime.log_debug, runtime.stop, runtime.uploading
        yield Context(loaded, place, recording, log_debug=log_debug, stop=stop, uploading=uploading)


def records_url(
    target: Target, given: str | None, declared: Callable[[], str | None], runtime: Runtime
) -> str | None:
    """Return the URL of the record store of a stack on a target; None is the file next to the root file.

    `given` is from `--records` or its variable, `declared` from the manifest. Local targets use neither:
    their jobs and their records are next to the root file.

    Raises:
        WrongUsage: `given` is not the URL of a store.
        ManifestInvalid: the declared URL lacks a value.
    """
    if not target.traits.is_embedded:
        return given or declared()
    if given:
        runtime.redactor.add_secrets(passwords_in(given))
        parse_store_url(given)
    return None


def open_recording(
    url: str | None, root: Path, runtime: Runtime, options: RecordOptions = DEFAULT_RECORDS
) -> Recording:
    """Return the records of the stack whose root file is in `root`. The store is opened on first use."""
    if url is not None:
        runtime.redactor.add_secrets(passwords_in(url))
        url = absolute_url(url, str(root.resolve()))

    @cache
    def origin() -> RunMetadata:
        from reconciler.run_metadata import collect_metadata  # not needed to plan

        return collect_metadata(runtime.environ, runtime.command)

    @cache
    def find_place(root: Path) -> str:
        from reconciler.run_metadata import find_place

        return find_place(root)

    return Recording(
        url,
        root,
        runtime.clock,
        runtime.redactor,
        origin,
        find_place,
        lease_s=options.lease_s,
        lock_timeout_s=options.lock_timeout_s,
        goes_on_without=options.without_records,
        warn=runtime.warn,
        log_debug=runtime.log_debug,
    )


class RecordedStack(NamedTuple):
    """A stack on a target with its records, but without its service: for its history and its lock."""

    loaded: LoadedStack
    target: TargetIdentity
    recording: Recording
    clock: Clock

    @property
    def scope(self) -> Scope:
        return Scope.of(self.loaded.stack.name, self.target)

    @property
    def store(self) -> Records | None:
        """The store, or None if there is none yet.

        Raises:
            RecordsUnavailable: the store cannot be read.
        """
        return self.recording.reading()

    def history(self, key: str | None, limit: int | None) -> HistoryReport:
        """Return the newest runs and revisions of one key, or of all, each up to `limit`.

        The name of a sweep selects all its members, including former ones.

        Raises:
            WrongUsage: the key is not declared and has no records.
            RecordsUnavailable: the store cannot be read.
        """
        # Not needed to plan.
        from reconciler.decide.history import HistoryReport, codes_of, newest_revisions

        store, scope, stack = self.store, self.scope, self.loaded.stack
        head = (scope.stack, self.target, self.loaded.manifest_digest, __version__, self.clock.now(), key)
        if store is None:
            return HistoryReport(*head)

        if key is None:
            runs, recorded = store.runs(scope, limit=limit), [*store.memory(scope).revisions]
            newest = newest_revisions(recorded, limit)
            return HistoryReport(*head, runs, newest, codes=codes_of(newest, recorded, store.codes))
        declared = {*stack.whole, *stack.declared_keys, *stack.former_keys}
        former = (member for member, sweep in store.memory(scope).sweeps.items() if sweep == key)
        keys = frozenset({key, *stack.members_of(key), *former})
        runs, revisions = store.runs(scope, keys=keys, limit=limit), store.revisions(scope, *keys)
        if declared.isdisjoint(keys) and not runs and not revisions:
            known = {*store.memory(scope).by_key, *declared}
            why = f'"{key}" is not a key of stack {scope.stack}, and has no records there'
            fix = suggest_key(key, known) or "reconciler history lists the recorded keys"
            raise WrongUsage(Diagnostic("unknown key", why, fix))
        newest = revisions[::-1][:limit] if len(keys) == 1 else newest_revisions(revisions, limit)
        return HistoryReport(*head, runs, newest, keys, codes_of(newest, revisions, store.codes))


@contextmanager
def open_records_of(
    loaded: LoadedStack, target_name: str | None, given: str | None, runtime: Runtime
) -> Iterator[RecordedStack]:
    """Open the records of a stack on one of its targets, without its service; `given` is a URL, or None.

    Raises:
        ManifestInvalid: the target or the URL of the store lacks a value.
        Unauthorized: the project id must come from the credentials, and there are none.
    """
    name, target = loaded.target(target_name)
    identity = identity_of(name, target, runtime.environ)
    if identity is None:
        with connected(name, target, loaded.root, runtime) as place:
            identity = place.identity
    url = records_url(target, given, loaded.records_url, runtime)
    with closing(open_recording(url, loaded.root, runtime)) as recording:
        yield RecordedStack(loaded, identity, recording, runtime.clock)
