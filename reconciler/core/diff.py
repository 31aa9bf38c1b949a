"""Which fields differ between two canonical forms, and what was declared for a job known only by its details.

DeepDiff takes about 1.5 ms, so it is imported and called only for jobs whose digests differ. The service
fills in fields, so a reported value that is not declared any more was either removed from the manifest or
never in it. The digest decides: candidates are built from what is declared now and what is reported, the
likeliest first, and the one with the marker's digest is the declaration.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import chain, combinations, islice, takewhile
from typing import Any, NamedTuple

from reconciler.core.body import NAMED_LISTS, RERUN, digest_of, dotted_path
from reconciler.core.canonical import Canonical, FieldRule, SecretName, member_rule, rules, value_at
from reconciler.core.code import CODE
from reconciler.core.fields.field_types import Mark
from reconciler.core.values import Change
from reconciler.secrets import REDACTED, map_with

#: How many candidates are tried for one job; each takes some 20 to 70 µs.
LIMIT = 1_000
#: How many of them may be of one kind, so that each kind is tried.
_SHARE = LIMIT // 6

_Path = tuple[str | int, ...]


class _Absent:
    """A field that was not declared."""


_ABSENT = _Absent()
_NO_RULE = FieldRule()


class _Option(NamedTuple):
    """Another value that a field may have had. `is_put_back`: the reported one, which the base lacks."""

    path: _Path
    value: Any
    is_put_back: bool = False


_Choice = tuple[_Option, ...]


def declared_for(reported: Canonical, declared: Canonical, digest: str) -> Canonical | None:
    """Return the declaration with this digest, or None if no candidate has it.

    `reported` is the immutable part of the details, `declared` what the digest covers of the current
    declaration, in the form of the digest's algorithm.
    """
    guess = _Guess.of(reported, declared)
    # If nothing else differs, an edit of `rerun`, which cannot be recovered, is the best explanation.
    is_rerun = RERUN in declared and guess.base == declared
    for options in islice(guess.choices(), LIMIT // 5 if is_rerun else LIMIT):
        form = guess.base
        for option in options:
            form = _put(form, option.path, option.value)
        if digest_of(form, digest[:1]) == digest:
            return form
    return None


def is_by_reference(declared: Canonical) -> bool:
    """Whether the service's own algorithm is used, which brings its parameters, inputs and outputs."""
    algorithm = declared.get("algorithm", {})
    return "id" in algorithm or "subscription_id" in algorithm


@dataclass
class _Guess:
    """The likeliest declaration, and the fields in which it may be wrong.

    `likely` and `unlikely` are alternative values in the order in which they are tried; `unknown` are those
    of fields that no model knows, which the service adds unless `raw` declares them. `secrets` are changes of
    fields whose value differs from the sensitive one that is declared.
    """

    keeps_named_lists: bool
    base: Canonical = field(default_factory=dict)
    likely: list[_Option] = field(default_factory=list)
    unlikely: list[_Option] = field(default_factory=list)
    unknown: list[_Option] = field(default_factory=list)
    secrets: list[Change] = field(default_factory=list)

    @classmethod
    def of(cls, reported: Canonical, declared: Canonical) -> _Guess:
        guess = cls(keeps_named_lists=not is_by_reference(declared))
        covered = {name: value for name, value in declared.items() if name != RERUN}
        guess.base = guess._guess_object(covered, reported, rules(), ())
        if RERUN in declared:
            guess.base[RERUN] = declared[RERUN]
            guess.likely.insert(0, _Option((RERUN,), _ABSENT))
        return guess

    # --- The order of the candidates

    def choices(self) -> Iterator[_Choice]:
        """Yield the changes to the base: none, then single ones, then pairs."""
        likely, rare = _choices_among(self.likely)
        unlikely, rarest = _choices_among(self.unlikely)
        unknown: list[_Choice] = [(option,) for option in self.unknown]
        yield ()
        yield from (*likely, *rare)
        yield from islice(_pairs(likely, likely), _SHARE)
        yield from islice((*unlikely, *rarest), _SHARE)
        yield from unknown
        for first, second in (
            (likely, unlikely),
            (likely, rare),
            (likely, unknown),
            (likely, rarest),
            (rare, unlikely),
            (unlikely, unlikely),
        ):
            yield from islice(_pairs(first, second), _SHARE)

    # --- The likeliest declaration

    def _guess_object(
        self, declared: Mapping[str, Any], reported: Mapping[str, Any], rule: FieldRule, path: _Path
    ) -> Canonical:
        base: Canonical = {}
        for name in (*declared, *(name for name in reported if name not in declared)):
            place, below = (*path, name), _rule_below(rule, name, is_declared=bool(declared))
            if name not in reported:
                # It was added, unless the service never reports it. List items are compared as a whole.
                is_in_item = any(isinstance(part, int) for part in path)
                is_shown = below.is_reported if below is not None else place == (CODE,)
                was_added = is_shown or is_in_item
                value = _ABSENT if was_added else declared[name]
                self.likely.append(_Option(place, declared[name] if was_added else _ABSENT))
            elif name not in declared:
                value = self._guess_reported(reported[name], below, rule, place)
            else:
                value = self._guess_both(declared[name], reported[name], below, place)
            # An empty object is the same as none, except for an argument without a value.
            if value is not _ABSENT and (value != {} or rule.keyed_by):
                base[name] = value
        return base

    def _guess_both(self, declared: Any, reported: Any, rule: FieldRule | None, path: _Path) -> Any:
        """Guess a field that is declared and reported: a different reported value was the declared one."""
        if rule is not None and rule.is_filled_in and not rule.has_named_members:
            self._add_filled_in(path, _ABSENT)
        match declared, reported:
            case dict(), dict():
                return self._guess_object(declared, reported, rule or _NO_RULE, path)
            case list(), list() if len(declared) == len(reported):
                item = (rule and rule.item) or _NO_RULE
                pairs = enumerate(zip(declared, reported, strict=True))
                return [self._guess_both(old, new, item, (*path, index)) for index, (old, new) in pairs]
        if isinstance(declared, SecretName):
            self.unlikely.append(_Option(path, reported))
            if declared.value != reported:
                shown = (part for part in path if isinstance(part, str))
                self.secrets.append(_change(shown, REDACTED, declared, forces_new_job=True))
            return declared
        self._add_secret(path)
        if declared == reported:
            return declared
        if rule is not None and not rule.is_reported:
            self.likely.append(_Option(path, reported))
            return declared
        self.unlikely.append(_Option(path, declared))
        return self._strip(reported, rule, path)

    def _guess_reported(self, reported: Any, rule: FieldRule | None, parent: FieldRule, path: _Path) -> Any:
        """Guess a field that is only reported: removed from the manifest, or filled in by the service."""
        if rule is None:
            self.unknown.append(_Option(path, reported))
            return _ABSENT
        if parent.has_named_members and rule.is_reported:
            if parent.keyed_by == "name" and not self.keeps_named_lists:
                # It may belong to the algorithm. Leave out what the service fills in below it.
                bare = _Guess(keeps_named_lists=True)._strip(reported, rule, path)
                self.likely.append(_Option(path, bare, is_put_back=True))
                return _ABSENT
            if parent.keyed_by is None:
                self._add_secret(path)
            return self._strip(reported, rule, path)
        if not rule.is_reported or (rule.is_filled_in and not rule.has_named_members):
            if isinstance(reported, dict):
                return self._guess_object({}, reported, rule, path)
            self._add_filled_in(path, reported)
            return _ABSENT
        return self._strip(reported, rule, path)

    def _strip(self, reported: Any, rule: FieldRule | None, path: _Path) -> Any:
        """Return a reported value as it was declared, without what the service may have filled in."""
        if isinstance(reported, dict):
            return self._guess_object({}, reported, rule or _NO_RULE, path)
        if isinstance(reported, list):
            item = (rule and rule.item) or _NO_RULE
            return [self._strip(value, item, (*path, index)) for index, value in enumerate(reported)]
        self._add_secret(path)
        return reported

    def _add_filled_in(self, path: _Path, value: Any) -> None:
        """Add an alternative for a field that the service may have filled in."""
        option = _Option(path, value, is_put_back=value is not _ABSENT)
        # The service fills in many fields of list items, which are rarely declared.
        is_in_item = any(isinstance(part, int) or part in NAMED_LISTS for part in path)
        (self.unlikely if is_in_item else self.likely).append(option)

    def _add_secret(self, path: _Path) -> None:
        """Add the name as an alternative value of a parameter or variable that may be marked `sensitive`."""
        match path:
            case (*_, "environments", name):
                self.unlikely.append(_Option(path, f"${{environment.{name}}}"))
            case (*_, "parameters", name, "value"):
                self.unlikely.append(_Option(path, f"${{parameter.{name}}}"))


def _rule_below(rule: FieldRule, name: str, *, is_declared: bool) -> FieldRule | None:
    """Return the rule of a member, which inherits the marks of an object that is not declared."""
    member = member_rule(rule, name)
    if member is None or rule.keyed_by:
        return member
    inherited = (
        {Mark.NOT_REPORTED} if rule.has_named_members or is_declared else {Mark.NOT_REPORTED, Mark.FILLED_IN}
    )
    if not (inherited & rule.marks) - member.marks:
        return member
    member = copy(member)
    member.marks |= inherited & rule.marks
    return member


def _choices_among(options: list[_Option]) -> tuple[list[_Choice], list[_Choice]]:
    """Return likely choices (one value, or all below an object) and rare ones (some of one object)."""
    groups = _groups_by_object(option for option in options if option.is_put_back)
    single = [(option,) for option in options if not option.is_put_back]
    swaps, pairs = _sibling_choices(options)
    rare = [*swaps, *(pair for pair in pairs if _paths(pair) not in groups)]
    return [*sorted(groups.values(), key=len), *single], rare


def _sibling_choices(options: Iterable[_Option]) -> tuple[list[_Choice], list[_Choice]]:
    """Return, by object, all options if both kinds occur, and the pairs with at least one put back."""
    by_parent: dict[_Path, list[_Option]] = {}
    for option in options:
        by_parent.setdefault(option.path[:-1], []).append(option)
    # E.g. an engine was declared in one way, and the service filled in the other, which is declared now.
    swaps = [tuple(siblings) for siblings in by_parent.values() if len({o.is_put_back for o in siblings}) > 1]
    pairs = chain.from_iterable(combinations(siblings, 2) for siblings in by_parent.values())
    return swaps, [pair for pair in pairs if any(option.is_put_back for option in pair)]


def _groups_by_object(options: Iterable[_Option]) -> dict[tuple[_Path, ...], _Choice]:
    """Group options by the objects that contain them, keyed by their paths to remove duplicates."""
    below: dict[_Path, list[_Option]] = {}
    for option in options:
        for length in range(len(option.path) + 1):
            below.setdefault(option.path[:length], []).append(option)
    return {_paths(group): tuple(group) for group in below.values()}


def _paths(options: Iterable[_Option]) -> tuple[_Path, ...]:
    return tuple(option.path for option in options)


def _pairs(choices: list[_Choice], others: list[_Choice]) -> Iterator[_Choice]:
    """Yield pairs, ordered by the sum of their indices; within one list, each pair once."""
    for total in range(len(choices) + len(others) - 1):
        for index in range(max(0, total - len(others) + 1), min(total + 1, len(choices))):
            if choices is not others or index < total - index:
                yield (*choices[index], *others[total - index])


def _put(form: Any, path: Sequence[str | int], value: Any) -> Any:
    """Return a form with another value at a path. Unchanged parts are shared."""
    if not path:
        return value
    name, *below = path
    if isinstance(name, int):
        if not isinstance(form, list):
            return form
        return [_put(item, below, value) if i == name else item for i, item in enumerate(form)]
    form = form if isinstance(form, dict) else {}
    changed = _put(form.get(name), below, value)
    others = {key: item for key, item in form.items() if key != name}
    return others if changed is _ABSENT or changed == {} else {**others, name: changed}


# --- Which fields differ between two canonical forms


def changes_between(
    before: Canonical, after: Canonical, *, forces_new_job: bool, shown: Canonical | None = None
) -> tuple[Change, ...]:
    """Return the fields that differ, sorted by path. A list that differs is one field.

    `shown` is `after` with the texts to display: the compared ones may be spelled as in an earlier version.
    """
    changes = []
    for path in differing_paths(before, after):
        old, new = value_at(before, path), value_at(after, path)
        displayed = new if shown is None else map_with(new, value_at(shown, path), _respelled)
        changes.append(_change(path, old, displayed, forces_new_job=forces_new_job))
    return tuple(sorted(changes, key=lambda change: change.path))


def differing_paths(before: Canonical, after: Canonical) -> tuple[tuple[str, ...], ...]:
    """Return the paths at which two forms differ, sorted. A list that differs is one path."""
    if before == after:
        return ()
    from deepdiff import DeepDiff

    tree = DeepDiff(before, after, view="tree", threshold_to_diff_deeper=0)
    full_paths = [level.path(output_format="list") for kind in tree.values() for level in kind]
    # Cut paths at the first list, since an index in it means nothing to users.
    paths = {tuple(takewhile(lambda part: not isinstance(part, int), path)) for path in full_paths}
    # DeepDiff distinguishes a secret from its name, which is all that the history has.
    return tuple(sorted(path for path in paths if value_at(before, path) != value_at(after, path)))


def _respelled(form: Any, shown: Any) -> Any:
    return shown if isinstance(form, str) and isinstance(shown, str) else form


def _change(path: Iterable[Any], before: Any, after: Any, *, forces_new_job: bool) -> Change:
    sensitive = isinstance(before, SecretName) or isinstance(after, SecretName)
    return Change(
        path=dotted_path(path),
        before=_hidden(before) if sensitive else without_wrappers(before),
        after=_hidden(after) if sensitive else without_wrappers(after),
        sensitive=sensitive,
        forces_new_job=forces_new_job,
    )


def _hidden(value: Any) -> Any:
    # The name of a secret may be shown, but not a value that a secret replaced or replaces.
    return None if value is None else str(value) if isinstance(value, SecretName) else REDACTED


def without_wrappers(form: Any) -> Any:
    """Return a canonical form as plain data; an argument that only has a value becomes that value."""
    if isinstance(form, Mapping):
        if set(form) == {"value"}:
            return without_wrappers(form["value"])
        return {name: without_wrappers(value) for name, value in form.items()}
    if isinstance(form, list):
        return [without_wrappers(item) for item in form]
    return str(form) if isinstance(form, str) else form


class Comparable(NamedTuple):
    """Two canonical forms reduced to what can be compared.

    `unreported` are declared fields that details do not show. `secrets` are changes of fields whose value
    differs from the sensitive one that is declared. It may have been rotated, which restarts nothing, so they
    count only if nothing else explains a changed digest.
    """

    before: Canonical
    after: Canonical
    unreported: tuple[str, ...]
    secrets: tuple[Change, ...] = ()


def comparable_with_details(reported: Canonical, declared: Canonical) -> Comparable:
    """Make a job from the service comparable with the current declaration.

    `before` is the likeliest declaration. It leaves out what only the service sets; what the service may fill
    in never counts as removed, and what it does not report cannot be compared.
    Source: docs/concepts/revisions.md, "Comparison"; docs/reference/modelarts.md, "Responses".
    """
    guess = _Guess.of(reported, declared)
    unreported: list[str] = []
    after = _reported_part(declared, reported, unreported)
    before = _reported_part(guess.base, reported, [])
    secrets = sorted(guess.secrets, key=lambda change: change.path)
    return Comparable(before, after, tuple(unreported), tuple(secrets))


def unreported_among(
    changes: Iterable[Change], before: Canonical, after: Canonical, reported: Canonical
) -> tuple[str, ...]:
    """Return the paths of those changes between two declarations that details do not show."""
    unreported: list[str] = []
    for form in (before, after):
        _reported_part(form, reported, unreported)
    below = tuple(f"{path}." for path in unreported)
    return tuple(
        change.path for change in changes if change.path in unreported or change.path.startswith(below)
    )


def _reported_part(form: Canonical, reported: Canonical, unreported: list[str]) -> Canonical:
    """Return the part of a declaration that the service reports. Other paths are added to `unreported`."""

    def walk(form: Canonical, reported: Canonical, rule: FieldRule, path: tuple[str, ...]) -> Canonical:
        result: Canonical = {}
        for name, value in form.items():
            place, member, other = (*path, name), member_rule(rule, name), reported.get(name)
            # The location of the code, and thereby its digest, is reported.
            is_unknown_and_unseen = member is None and other is None and place != (CODE,)
            if is_unknown_and_unseen or (member and not member.is_reported):
                unreported.append(dotted_path(place))
            elif isinstance(value, dict):
                kept = walk(value, other if isinstance(other, dict) else {}, member or _NO_RULE, place)
                if kept or not value:
                    result[name] = kept
            else:
                result[name] = value
        return result

    return walk(form, reported, rules(), ())
