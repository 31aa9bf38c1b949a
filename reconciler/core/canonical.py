"""The canonical form of a job: two jobs that mean the same have the same one.

null, absent, "" and empty containers go; values equal to the documented defaults go; `obs://` goes;
numbers and booleans become text (where the service wants text they are text already, as they were
spelled); named lists and volumes become mappings; a secret is its name.
What is special about a field is read off its line in the models (`fields/`).
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
    """The name that stands for a sensitive value in a canonical form; `value` is for comparing only."""

    __slots__ = ("value",)
    value: str

    def __new__(cls, name: str, value: str) -> SecretName:
        self = super().__new__(cls, name)
        self.value = value
        return self


def by_name(form: Any) -> Any:
    """A canonical form as plain data: of a secret only the name is left."""
    return map_leaves(form, lambda leaf: str(leaf) if isinstance(leaf, SecretName) else leaf)


class FieldRule:
    """What is known of one field, read off its line in the models.

    `is_text` says that the service wants text, so that a number stays as it is spelled; `scalar` is the type
    of a plain value, None where it is one of several or unknown. `is_rare` says that few manifests have it.
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
        return {name: one.default_template for name, one in self.members.items() if one.default_template}

    @property
    def is_filled_in(self) -> bool:
        """Whether the service may return a value that was never sent."""
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
        """The rule of the members that no model knows: it says nothing, or that people's own are text."""
        return _ANY_TEXT if self.has_named_members else _UNKNOWN


@cache
def rules() -> FieldRule:
    """The rules of a whole job in manifest form."""
    root = FieldRule(JobBody)
    output = root.members["algorithm"].members["outputs"].item
    assert output is not None
    # Response-only, but `raw` can send it: "30s" in the documents' tables, 30 in their examples.
    output.members = {**output.members, "period": FieldRule(None, (Mark.SECONDS, Mark.FILLED_IN))}
    return root


def _unwrap(annotation: Any) -> tuple[Any, list[Any]]:
    """Take `Annotated` and `| None` off a type; return what is inside, and the metadata passed by."""
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
    """A value where a number is wanted, as text: 30 and "30" are the same, and so are 8 and 8.0."""
    if isinstance(value, SecretText):
        return SecretName(value.reference, str.__str__(value))
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e16:
        return str(int(value))
    return str(value)


def member_rule(rule: FieldRule, name: str) -> FieldRule | None:
    """The rule of one member in a canonical form, or None for a field that no model knows."""
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
        of_member = members.get(name) or others
        # Most members are text that means nothing but itself, and most calls are saved here.
        if member.__class__ is not str or of_member.marks:
            if (form := _value(member, of_member)) is not None:
                result[name] = form
        elif member and member != of_member.default:
            result[name] = member
    return result


_UNKNOWN = FieldRule()
_ANY_TEXT = FieldRule(str)


def _value(value: Any, rule: FieldRule) -> Any:
    """Return the canonical form of one field, or None if it says nothing."""
    # The order of the questions is that of their frequency: this runs for every field of every job.
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
        # The documents show environments as a map in places, and as a list of maps in others.
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
            # A volume has its local_path one level down, under nfs, pfs or obs.
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
    """Yield every field with its path, parents first; the members of a list stand under `[]`."""
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
    """The fields that the service can change on a job that exists."""
    return tuple(_mutable(rules()))


def _mutable(rule: FieldRule, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of the fields below one that can be changed; no rare model and no list has such a field."""
    for name, member in rule.members.items():
        if member.update:
            yield (*path, name)
        elif not member.is_rare:
            yield from _mutable(member, (*path, name))


def rule_at(path: tuple[str, ...]) -> FieldRule:
    """The rule of the field at a path that `walk_rules` gave; of an item of environments that of all."""
    rule = rules()
    for name in path:
        if Mark.FREE_MEMBERS in rule.marks:
            return rule
        rule = (rule.item or _UNKNOWN) if name == "[]" else rule.members[name]
    return rule


def value_at(tree: Any, path: Sequence[str]) -> Any:
    """What stands at a path of plain data, or None."""
    for name in path:
        # A dict is nearly all of them, and a look at its class costs a tenth of the question.
        if tree.__class__ is not dict and not isinstance(tree, Mapping):
            return None
        tree = tree.get(name)
    return tree


def immutable_part(form: Canonical) -> Canonical:
    """A canonical form without what can be changed on the job there is: an edit of it needs a new one."""
    for path in mutable_paths():
        if value_at(form, path) is not None:
            form = _without(form, path)
    return form


def _without(form: Canonical, path: tuple[str, ...]) -> Canonical:
    name, *rest = path
    below = _without(form[name], tuple(rest)) if rest else {}
    others = {k: v for k, v in form.items() if k != name}
    return {**others, name: below} if below else others


def overlay(one: Mapping[str, Any], other: Mapping[str, Any]) -> Canonical:
    """Merge nested mappings; where both have a value, that of `other` stands."""
    result = dict(one)
    for name, value in other.items():
        below = result.get(name)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            value = overlay(below, value)
        result[name] = value
    return result
