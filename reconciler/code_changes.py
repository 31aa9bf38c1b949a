"""Changed files and lines in the code of jobs, compared with their running revisions.

Informational only: no decision depends on it. The earlier code comes from the history, else from the code
store, which is only read; lines are compared with the stored files.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from difflib import unified_diff
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from reconciler.core.code import CODE, REQUIREMENTS, Code, CodeFile, digits, etag_of
from reconciler.core.stack import Stack
from reconciler.core.values import PlanWarning
from reconciler.decide.actions import planned_code
from reconciler.decide.plan import CodeChange, Plan, PlannedAction, code_changes
from reconciler.errors import Interrupted, ReconcilerError, ServiceError
from reconciler.manifest.git import Repository
from reconciler.text import few

if TYPE_CHECKING:
    from reconciler.code_store import CodeStore, Upload
    from reconciler.decide.review import Review, ReviewedJob, Side

T = TypeVar("T")
#: Larger files (in bytes) are compared as a whole. With more differing lines, all are shown as changed.
MOST_COMPARED, _MOST_LINES = 65_536, 2_000
#: Lines of context in a diff.
_CONTEXT = 3

#: Reads a file of the code by its path; None if it is missing or too large.
ReadFile = Callable[[str], bytes | None]


def with_lines(changes: tuple[CodeChange, ...], before: ReadFile, after: ReadFile) -> tuple[CodeChange, ...]:
    """Add the changed lines of small text files."""

    def compared(change: CodeChange) -> CodeChange:
        if change.change != "changed" or max(change.size, change.old_size or 0) > MOST_COMPARED:
            return change
        old, new = before(change.path), after(change.path)
        return change.model_copy(update={"diff": None if old is None or new is None else _diff(old, new)})

    return tuple(map(compared, changes))


def _diff(before: bytes, after: bytes) -> tuple[str, ...] | None:
    """Return the hunks of a unified diff. None for binary files."""
    try:
        old, new = (data.decode().splitlines(keepends=True) for data in (before, after))
    except UnicodeDecodeError:
        return None
    if b"\0" in before + after:
        return None
    # Trim equal lines at both ends: the comparison takes quadratic time.
    start = _same_lines(old, new)
    old, new = old[start:], new[start:]
    end = _same_lines(old[::-1], new[::-1])
    old, new = old[: len(old) - end], new[: len(new) - end]
    if max(len(old), len(new)) > _MOST_LINES:
        lines = [
            f"@@ -1,{len(old)} +1,{len(new)} @@",
            *(f"-{line}" for line in old),
            *(f"+{line}" for line in new),
        ]
    else:
        lines = list(unified_diff(old, new, n=_CONTEXT))[2:]
    return tuple(
        re.sub(r"(?<=[-+])\d+", lambda found: str(int(found[0]) + start), line)
        if line.startswith("@@ ")
        else line
        for line in (line.rstrip("\n") for line in lines)
    )


def _same_lines(old: Sequence[str], new: Sequence[str]) -> int:
    """Count the common first lines, without those shown as context."""
    differs = (number for number, (a, b) in enumerate(zip(old, new, strict=False)) if a != b)
    return max(0, next(differs, min(len(old), len(new))) - _CONTEXT)


def read_below(directory: Path) -> ReadFile:
    """Return a function that reads the files below a directory."""

    def read(path: str) -> bytes | None:
        try:
            return (directory / path).read_bytes()
        except OSError:
            return None

    return read


class CodeComparison:
    """Compares the code of jobs with earlier code and with the code store. Results are cached.

    `recorded` looks up a digest in the history; `open_store` opens the store at an address. `problems` holds,
    by address, why a store could not be read.
    """

    def __init__(
        self,
        stack: str,
        root: Path,
        recorded: Callable[[str], Code | None],
        open_store: Callable[[str], CodeStore],
    ) -> None:
        self.problems: dict[str, ServiceError] = {}
        self._stack, self._root, self._recorded = stack, root, recorded
        self._store = cache(open_store)
        self.changes, self.missing = cache(self._changes), cache(self._missing)

    def _changes(self, code: Code, address: str, before: str) -> tuple[CodeChange, ...] | None:
        """Return the changes since the code with digest `before`, which may be a prefix, or "" for none.

        None if that code is unknown.
        """
        if before in ("", code.digest):
            return code_changes(code.files if before else (), code.files)
        old = self._recorded(before)
        if old is None:
            stored = self._asked(address, lambda store: store.stored(self._stack, digits(before)))
            old = stored and stored.code
        if old is None:
            return None
        known = {file.path: file.sha256 for file in old.files}

        def read_stored(path: str) -> bytes | None:
            data = self._asked(address, lambda store: store.read(self._stack, old, path, MOST_COMPARED))
            is_same = data is not None and hashlib.sha256(data).hexdigest() == known[path]
            return data if is_same else None

        return with_lines(
            code_changes(old.files, code.files), read_stored, read_below(self._root / code.source)
        )

    def _missing(self, code: Code, address: str) -> Upload | None:
        """Return what an upload would send; None if the store cannot be read."""

        def md5_of(file: CodeFile) -> str:
            return etag_of(read_below(self._root / code.source)(file.path) or b"")

        return self._asked(address, lambda store: store.missing(self._stack, code, md5_of))

    def _asked(self, address: str, ask: Callable[[CodeStore], T]) -> T | None:
        """Query a store, unless an earlier request failed."""
        if address in self.problems:
            return None
        try:
            return ask(self._store(address))
        except Interrupted:
            raise
        except ServiceError as problem:
            self.problems[address] = problem
            return None


# --- plans


def with_code(
    plan: Plan,
    stack: Stack,
    root: Path,
    comparison: CodeComparison,
    keys: Collection[str] | None = None,
    *,
    installs: bool,
) -> Plan:
    """Add to the plan, for all keys or some, the changes in code, the upload sizes and the warnings.

    `installs` is true if the target installs the packages of requirements files.
    """
    warnings, actions = list(plan.warnings), []
    state = cache(_commit_of)
    for action in plan.actions:
        change = next((change for change in action.changes if change.path == CODE), None)
        desired = stack.find(action.key)
        # Also for an action that is not executed, if the code is among its changes.
        planned = action.code or (planned_code(desired) if desired and change else None)
        if planned is None or (keys is not None and action.key not in keys):
            actions.append(action)
            continue
        code, more = planned.code, dict[str, Any]()
        before = change.before or "" if change else planned.before
        if before is not None:
            more["files"] = comparison.changes(code, planned.store, before)
        if action.traits.starts_a_job:
            upload = comparison.missing(code, planned.store)
            more |= {"upload_bytes": upload.size, "upload_count": len(upload.files)} if upload else {}
            if problem := comparison.problems.get(planned.store):
                what, fix = "the code store could not be read", problem.diagnostics[0].fix
                warnings.append(PlanWarning(what=what, why=problem.message, fix=fix, key=action.key))
            commit, uncommitted = state(root / code.source, code)
            if uncommitted:
                where = f"in commit {commit[:10]}" if commit else "in any commit"
                why = f"{code.source} has changes that are not {where}: {few(uncommitted, 5)}"
                fix = "commit them, so that the job's code can be restored from git"
                warnings.append(PlanWarning(what="uncommitted files", why=why, fix=fix))
            warnings += () if installs else _not_installed(action, code, plan.target.name)
            commit += "-dirty" * bool(commit and uncommitted)
            action = action.model_copy(
                update={"declared": action.declared and replace(action.declared, commit=commit)}
            )
        actions.append(action.model_copy(update={"code": planned.model_copy(update=more)}))
    return plan.model_copy(update={"actions": tuple(actions), "warnings": tuple(dict.fromkeys(warnings))})


def _commit_of(source: Path, code: Code) -> tuple[str, list[str]]:
    """Return the commit checked out around the code ("" if none), and the files that differ from it."""
    try:
        repository = Repository.around(source, os.environ)
        if repository is None:
            return "", []
        commit = repository.commit("HEAD")
        return commit or "", repository.uncommitted(commit, code.files)
    except (ReconcilerError, OSError):  # must not fail a plan
        return "", []


def _not_installed(action: PlannedAction, code: Code, target: str) -> Iterator[PlanWarning]:
    """Warn about a requirements file that the target does not install."""
    is_preset = not ((action.desired or {}).get("algorithm") or {}).get("command")
    for name in [file.path for file in code.files if file.path in REQUIREMENTS and is_preset]:
        why = f"its code has a {name}, but the target installs no packages"
        fix = f"set `install_requirements: true` on target {target}"
        yield PlanWarning(what="packages are not installed", why=why, fix=fix, key=action.key)


# --- reviews


def reviewed_code(review: Review, base: Side, base_root: Path, head: Side, head_root: Path) -> Review:
    """Add the changed files to each job whose code differs. Both trees must still exist."""

    @cache
    def compare(before: Code | None, after: Code) -> tuple[CodeChange, ...]:
        changes = code_changes(before.files if before else (), after.files)
        read_before = read_below(base_root / (before.source if before else "."))
        return with_lines(changes, read_before, read_below(head_root / after.source))

    def reviewed(job: ReviewedJob) -> ReviewedJob:
        previous = base.stack and base.stack.find(job.formerly or job.key)
        desired = head.stack and head.stack.find(job.key)
        planned = planned_code(desired) if desired else None
        if planned is None or not any(change.path == CODE for change in job.changes):
            return job
        files = compare(previous.code if previous else None, planned.code)
        # Without the store, so that targets with the same changes are grouped.
        return job.model_copy(update={"code": planned.model_copy(update={"files": files, "store": ""})})

    return review.model_copy(update={"jobs": tuple(map(reviewed, review.jobs))})
