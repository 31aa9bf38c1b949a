"""The part of the examination that is about the records: where they are, who holds the lock."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from reconciler.cli.context import runtime
from reconciler.connection import open_recording, records_url
from reconciler.core.ports import Clock
from reconciler.core.record import RecordsUnavailable, Scope
from reconciler.core.stack import Target
from reconciler.core.store_url import file_url, parse_store_url
from reconciler.core.values import TargetIdentity
from reconciler.decide.doctor import Check, of_lock, of_memory, unchecked, well, wrong
from reconciler.decide.journal import Records
from reconciler.errors import ManifestInvalid
from reconciler.manifests import LoadedStack
from reconciler.record_directory import NAME
from reconciler.recording import DATABASE, Recording

LOCK = "lock"


class RecordsExamination:
    """The records of one stack; `given` is the address that `--records` says."""

    def __init__(self, loaded: LoadedStack, target: Target, given: str | None, clock: Clock) -> None:
        self._loaded, self._target, self._given, self._clock = loaded, target, given, clock
        self._recording: Recording | None = None
        self._store: Records | None = None
        self._is_unavailable = False

    def of_store(self) -> Iterator[Check]:
        """Find the store, and look into it.

        Raises:
            WrongUsage: `--records` is not the address of a store.
        """
        try:
            url = records_url(self._target, self._given, self._loaded.records_url, runtime())
        except ManifestInvalid as invalid:
            yield from (
                wrong("records", f"{said.what}: {said.why}", said.fix) for said in invalid.diagnostics
            )
            self._is_unavailable = True
            yield from unchecked(("history",), "the record store URL is incomplete")
            return
        yield self._opened(url)
        if self._is_unavailable:
            yield from unchecked(("history",), "the record store is unavailable")
        else:
            is_shared = url is not None and not parse_store_url(url).kind.is_file
            yield of_memory(is_local=self._target.traits.is_embedded, is_shared=is_shared)

    def _opened(self, url: str | None) -> Check:
        store = parse_store_url(url or file_url(str(self._loaded.root / NAME / DATABASE)))
        file = self._loaded.root / store.name if store.kind.is_file else None
        place = f"this machine's file {file}" if file else store.shown
        if file and (problem := _problem_of(file.parent)):
            self._is_unavailable = True
            return problem
        self._recording = open_recording(url, self._loaded.root, runtime())
        try:
            self._store = self._recording.reading()
            if self._store is not None:
                self._store.check()
        except RecordsUnavailable as unavailable:
            self._is_unavailable = True
            [said] = unavailable.diagnostics
            return wrong("records", f"{said.what}: {said.why}", said.fix)
        return well("records", place if self._store else f"{place}; nothing is recorded yet")

    def of_lock(self, identity: TargetIdentity) -> Check:
        """See who holds the lock of the stack on this target."""
        if self._is_unavailable:
            return unchecked((LOCK,), "the record store is unavailable")[0]
        if self._store is None:
            return of_lock(None, 0.0)
        try:
            holder = self._store.holder(Scope.of(self._loaded.stack.name, identity))
        except RecordsUnavailable as unavailable:
            [said] = unavailable.diagnostics
            return wrong(LOCK, f"{said.what}: {said.why}", said.fix)
        return of_lock(holder, self._clock.now())

    def close(self) -> None:
        """Let go of the store."""
        if self._recording is not None:
            self._recording.close()


def _problem_of(directory: Path) -> Check | None:
    """Whether a file can be made in a directory, which need not exist yet."""
    there = next(place for place in (directory, *directory.parents) if place.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            return None
    except OSError as error:
        fix = f"{directory} must be a writable directory"
        return wrong("records", f"{directory}: {error.strerror or error}", fix)


def known_identity(name: str, target: Target) -> TargetIdentity | None:
    """Who the target is, as far as that can be known without credentials."""
    from reconciler.modelarts.target import identity_of

    try:
        return identity_of(name, target, os.environ)
    except ManifestInvalid:  # connecting says what is wrong
        return None
