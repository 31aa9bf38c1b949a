"""The canonical form of a job, which is equal for jobs that mean the same.

It has no null, "", empty containers or documented defaults, and paths lose `obs://`. Numbers and booleans are
text (where the service wants text, as they were spelled), named lists and volumes are mappings, and a secret
is its name. The marks on each field of the models (`fields/`) say what applies to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from reconciler.core.fields.field_types import DefaultTemplate, KeyedBy, Mark, Rare, UpdateInPlace
from reconciler.core.fields.job import JobBody
from reconciler.secrets import SecretText, map_leaves

Canonical = dict[str, Any]
"""Nested mappings with text leaves; lists only where the order means something."""


class SecretName(str):
    """The name of a sensitive value in a canonical form. `value` is for comparisons only."""

    __slots__ = ("value",)
    value: str

    def __new__(cls, name: str, value: str) -> SecretName:
        self = super().__new__(cls, name)
        self.value = value
        return self


def by_name(form: Any) -> Any:
    """Return a canonical form as plain data, with only the names of secrets."""
    return map_leaves(form, lambda leaf: str(leaf) if isinstance(leaf, SecretName) else leaf)


class FieldRule:
    """What the models say about one field.

    `is_text`: the service wants text, so a number keeps its spelling. `scalar`: the type of a plain value, or
    None if it is unknown or one of several. `is_rare`: few manifests have the field.
    """

    def __init__(
        self, annotation: Any = None, metadata: Sequence[Any] = (), default: Any = None, description: str = ""
    ) -> None:
        self._type, more = _unwrap(annotation)
        by_kind = {type(mark): mark for mark in reversed(metadata)}
        self._rare: Rare | None = by_kind.get(Rare)
        self.update: UpdateInPlace | None = by_kind.get(UpdateInPlace)
        template: DefaultTemplate | None = by_kind.get(DefaultTemplate)
        self.keyed_by: str | None = by_kind[KeyedBy].field if KeyedBy in by_kind else None
        self.default = scalar(default) if isinstance(default, str | int | float) else None
        self.default_template = template.template if template else None
        self.marks = frozenset(m for m in (*metadata, *more) if isinstance(m, Mark))
        self.description = description
        self.is_text = self._type is str
        self.scalar: type | None = self._type if self._type in (str, int, float, bool) else None
        self.is_rare = self._rare is not None

    @cached_property
    def _inner(self) -> Any:
        return _unwrap(self._rare.type)[0] if self._rare else self._type

    @cached_property
    def members(self) -> Mapping[str, FieldRule]:
        if not isinstance(self._inner, type) or not issubclass(self._inner, BaseModel):
            return {}
        return {
            name: FieldRule(info.annotation, info.metadata, info.default, info.description or "")
            for name, info in self._inner.model_fields.items()
        }

    @cached_property
    def item(self) -> FieldRule | None:
        return FieldRule(get_args(self._inner)[0]) if get_origin(self._inner) is list else None

    @cached_property
    def templates(self) -> Mapping[str, str]:
        """The documented defaults of members that depend on the item."""
        return {name: rule.default_template for name, rule in self.members.items() if rule.default_template}

    @property
    def is_filled_in(self) -> bool:
        """Whether the service may return a value that was not sent."""
        return Mark.FILLED_IN in self.marks

    @property
    def is_reported(self) -> bool:
        """Whether details can be trusted to show the field."""
        return Mark.NOT_REPORTED not in self.marks

    @property
    def has_named_members(self) -> bool:
        """Whether its members are the user's own: environments, parameters, volumes."""
        return self.keyed_by is not None or Mark.FREE_MEMBERS in self.marks

    @cached_property
    def others(self) -> FieldRule:
        """The rule for members that no model knows: text if users choose the names, else unknown."""
        return _ANY_TEXT if self.has_named_members else _UNKNOWN


@cache
def rules() -> FieldRule:
    """The rules of a whole job in manifest form."""
    root = FieldRule(JobBody)
    output = root.members["algorithm"].members["outputs"].item
    assert output is not None
    # Only documented in responses, but `raw` can send it: "30s" in their tables, 30 in their examples.
    output.members = {**output.members, "period": FieldRule(None, (Mark.SECONDS, Mark.FILLED_IN))}
    return root


def _unwrap(annotation: Any) -> tuple[Any, list[Any]]:
    """Remove `Annotated` and `| None` from a type. Returns the inner type and the metadata."""
    metadata: list[Any] = []
    while True:
        if get_origin(annotation) is Annotated:
            annotation, *more = get_args(annotation)
            metadata += more
        elif get_origin(annotation) in (Union, UnionType):
            annotation = next(arg for arg in get_args(annotation) if arg is not NoneType)
        else:
            return annotation, metadata


def scalar(value: Any) -> str:
    """Write a plain value as text: 30 equals "30", and 8 equals 8.0."""
    if isinstance(value, SecretText):
        return SecretName(value.reference, str.__str__(value))
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e16:
        return str(int(value))
    return str(value)


def member_rule(rule: FieldRule, name: str) -> FieldRule | None:
    """Return the rule of a member in a canonical form, or None for a field that no model knows."""
    if rule.keyed_by:
        return rule.item
    return _ANY_TEXT if rule.has_named_members else rule.members.get(name)


def canonical(job: Mapping[str, Any]) -> Canonical:
    """Return the canonical form of a job in manifest form (see `body.manifest_form`)."""
    return _object(job, rules())


def _object(value: Mapping[str, Any], rule: FieldRule) -> Canonical:
    members, others = rule.members, rule.others
    result: Canonical = {}
    for name, member in value.items():
        below = members.get(name) or others
        # A shortcut for most members, which are text without marks.
        if member.__class__ is not str or below.marks:
            if (form := _value(member, below)) is not None:
                result[name] = form
        elif member and member != below.default:
            result[name] = member
    return result


_UNKNOWN = FieldRule()
_ANY_TEXT = FieldRule(str)


def _value(value: Any, rule: FieldRule) -> Any:
    """Return the canonical form of one field, or None if it is empty or a default."""
    # Ordered by frequency, since this runs for every field of every job.
    cls = value.__class__
    if cls is str:
        text = value
    elif cls is dict:
        return _object(value, rule) or None
    elif value is None:
        return None
    elif isinstance(value, list | tuple):
        return _list(list(value), rule) or None
    elif isinstance(value, dict):
        return _object(value, rule) or None
    else:
        text = scalar(value)
    if rule.marks:
        if Mark.OBS_PATH in rule.marks:
            text = _obs_path(text)
        elif Mark.SECONDS in rule.marks and text[:-1].isdigit():
            text = text.removesuffix("s")
    return None if text == "" or text == rule.default else text


def _list(items: list[Any], rule: FieldRule) -> Any:
    item_rule = rule.item or _UNKNOWN
    if rule.keyed_by:
        return dict(_keyed(items, item_rule, rule.keyed_by))
    if Mark.FREE_MEMBERS in rule.marks:
        # In the documents, environments are a map or a list of maps.
        merged = {k: v for item in items if isinstance(item, Mapping) for k, v in item.items()}
        return _object(merged, rule)
    forms = [form for item in items if (form := _value(item, item_rule)) is not None]
    return sorted(forms, key=str) if Mark.AS_SET in rule.marks else forms


def _keyed(items: list[Any], rule: FieldRule, keyed_by: str) -> Iterator[tuple[str, Any]]:
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            yield f"#{index}", _value(item, rule)
            continue
        name = item.get(keyed_by)
        if not name:
            # The local_path of a volume is one level down, under nfs, pfs or obs.
            below = (value.get(keyed_by) for value in item.values() if isinstance(value, dict))
            name = next(filter(None, below), None)
        form = _object(item, rule)
        form.pop(keyed_by, None)
        for field_name, template in rule.templates.items():
            if field_name in form and form[field_name] == template.format(name=name, index=index):
                del form[field_name]
        yield (f"#{index}" if name is None else str(name)), form


def _obs_path(text: str) -> str:
    bare = text.removeprefix("obs://").removeprefix("s3://")
    if "://" in bare or not bare:  # file:// is a directory in the image
        return text
    path = "/" + bare.lstrip("/")
    return SecretName(path, _obs_path(text.value)) if isinstance(text, SecretName) else path


def walk_rules(
    rule: FieldRule | None = None, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], FieldRule]]:
    """Yield every field with its path, parents first. Members of list items have `[]` in their path."""
    rule = rules() if rule is None else rule
    if path:
        yield path, rule
    if rule.item is not None:
        for name, member in rule.item.members.items():
            yield from walk_rules(member, (*path, "[]", name))
    for name, member in rule.members.items():
        yield from walk_rules(member, (*path, name))


@cache
def mutable_paths() -> tuple[tuple[str, ...], ...]:
    """The paths of all fields that the service can change on an existing job."""
    return tuple(_mutable(rules()))


def _mutable(rule: FieldRule, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the mutable fields below a field. No rare model and no list has any."""
    for name, member in rule.members.items():
        if member.update:
            yield (*path, name)
        elif not member.is_rare:
            yield from _mutable(member, (*path, name))


def rule_at(path: tuple[str, ...]) -> FieldRule:
    """Return the rule at a path from `walk_rules`; below environments, the rule of environments."""
    rule = rules()
    for name in path:
        if Mark.FREE_MEMBERS in rule.marks:
            return rule
        rule = (rule.item or _UNKNOWN) if name == "[]" else rule.members[name]
    return rule


def value_at(tree: Any, path: Sequence[str]) -> Any:
    """Return the value at a path of plain data, or None."""
    for name in path:
        # Nearly all are dicts, for which a look at the class is the fastest check.
        if tree.__class__ is not dict and not isinstance(tree, Mapping):
            return None
        tree = tree.get(name)
    return tree


def immutable_part(form: Canonical) -> Canonical:
    """Return a canonical form without the mutable fields: an edit of the rest needs a new job."""
    for path in mutable_paths():
        if value_at(form, path) is not None:
            form = _without(form, path)
    return form


def _without(form: Canonical, path: tuple[str, ...]) -> Canonical:
    name, *rest = path
    below = _without(form[name], tuple(rest)) if rest else {}
    others = {k: v for k, v in form.items() if k != name}
    return {**others, name: below} if below else others


def overlay(base: Mapping[str, Any], over: Mapping[str, Any]) -> Canonical:
    """Merge nested mappings; the values of `over` win."""
    result = dict(base)
    for name, value in over.items():
        below = result.get(name)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            value = overlay(below, value)
        result[name] = value
    return result
