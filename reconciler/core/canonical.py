"""The canonical form of a job: two jobs that mean the same have the same one.

null, absent, "" and empty containers go; values equal to the documented defaults go; `obs://` goes;
numbers and booleans become text (where the service wants text they are text already, as they were
spelled); named lists and volumes become mappings; a secret is its name.
What is special about a field is read off its line in the models (`desired.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel

from reconciler.core.fields.desired import JobBody
from reconciler.core.fields.marks import DefaultTemplate, KeyedBy, Mark, UpdateInPlace
from reconciler.secrets import SecretText

_M = TypeVar("_M")

Canonical = dict[str, Any]
"""Nested mappings with text leaves; lists only where the order means something."""


class SecretName(str):
    """The name that stands for a sensitive value in a canonical form; `value` is for comparing only."""

    __slots__ = ("value",)
    value: str

    def __new__(cls, name: str, value: str) -> SecretName:
        """Name a value."""
        self = super().__new__(cls, name)
        self.value = value
        return self


def by_name(form: Any) -> Any:
    """A canonical form as plain data: of a secret only the name is left."""
    if isinstance(form, SecretName):
        return str(form)
    if isinstance(form, Mapping):
        return {name: by_name(value) for name, value in form.items()}
    return [by_name(item) for item in form] if isinstance(form, list) else form


@dataclass(frozen=True)
class FieldRule:
    """What is known of one field: its members if it is an object, its item if it is a list.

    `is_text` says that the service wants text, so that a number stays as it is spelled; `scalar` is the type
    of a plain value, None where it is one of several or unknown.
    """

    members: Mapping[str, FieldRule] = field(default_factory=dict)
    item: FieldRule | None = None
    keyed_by: str | None = None
    default: str | None = None
    default_template: str | None = None
    marks: frozenset[Mark] = frozenset()
    update: UpdateInPlace | None = None
    description: str = ""
    is_text: bool = False
    scalar: type | None = None

    @cached_property
    def templated(self) -> frozenset[str]:
        """The members whose documented default depends on the item."""
        return frozenset(name for name, member in self.members.items() if member.default_template)

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

    def member(self, name: str) -> FieldRule:
        """The rule of a member."""
        return self.members.get(name) or self.others


@cache
def rules() -> FieldRule:
    """The rules of a whole job in manifest form, read off the models once."""
    root = _rule_of_model(JobBody)
    # Response-only, but `raw` can send it: "30s" in the documents' tables, 30 in their examples.
    period = FieldRule(marks=frozenset({Mark.SECONDS, Mark.FILLED_IN}))
    return _with_member(root, ("algorithm", "outputs"), "period", period)


def _with_member(rule: FieldRule, path: tuple[str, ...], name: str, member: FieldRule) -> FieldRule:
    if not path:
        if rule.item is not None:
            return replace(rule, item=_with_member(rule.item, (), name, member))
        return replace(rule, members={**rule.members, name: member})
    return replace(
        rule, members={**rule.members, path[0]: _with_member(rule.members[path[0]], path[1:], name, member)}
    )


def _rule_of_model(model: type[BaseModel]) -> FieldRule:
    members = {}
    for name, info in model.model_fields.items():
        default = info.default if isinstance(info.default, str | int | float) else None
        members[name] = replace(
            _rule_of_type(info.annotation, info.metadata),
            default=None if default is None else scalar(default),
            description=info.description or "",
        )
    return FieldRule(members=members)


def _rule_of_type(annotation: Any, metadata: list[Any]) -> FieldRule:
    inner, more = _unwrap(annotation)
    keyed_by, template = _first(KeyedBy, metadata), _first(DefaultTemplate, metadata)
    rule = FieldRule(is_text=inner is str, scalar=inner if inner in (str, int, float, bool) else None)
    if get_origin(inner) is list:
        rule = FieldRule(item=_rule_of_type(get_args(inner)[0], []))
    elif isinstance(inner, type) and issubclass(inner, BaseModel):
        rule = _rule_of_model(inner)
    return replace(
        rule,
        keyed_by=keyed_by.field if keyed_by else None,
        default_template=template.template if template else None,
        marks=frozenset(m for m in (*metadata, *more) if isinstance(m, Mark)),
        update=_first(UpdateInPlace, metadata),
    )


def _first(kind: type[_M], metadata: list[Any]) -> _M | None:
    return next((m for m in metadata if isinstance(m, kind)), None)


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
    result: Canonical = {}
    members, others = rule.members, rule.others
    for name, member in value.items():
        if (form := _value(member, members.get(name) or others)) is not None:
            result[name] = form
    return result


_UNKNOWN = FieldRule()
_ANY_TEXT = FieldRule(is_text=True)


def _value(value: Any, rule: FieldRule) -> Any:
    """Return the canonical form of one field, or None if it says nothing."""
    # The order of the questions is that of their frequency: this runs for every field of every job.
    if type(value) is str:
        text = value
    elif isinstance(value, dict):
        return _object(value, rule) or None
    elif value is None:
        return None
    elif isinstance(value, list | tuple):
        return _list(list(value), rule) or None
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
        name = _item_key(item, keyed_by)
        form = _object(item, rule)
        form.pop(keyed_by, None)
        for field_name in form.keys() & rule.templated:
            template = rule.members[field_name].default_template or ""
            if form[field_name] == template.format(name=name, index=index):
                del form[field_name]
        yield (f"#{index}" if name is None else str(name)), form


def _item_key(item: Mapping[str, Any], keyed_by: str) -> Any:
    # A volume has its local_path one level down, under nfs, pfs or obs.
    if found := item.get(keyed_by):
        return found
    nested = (v.get(keyed_by) for v in item.values() if isinstance(v, dict))
    return next((key for key in nested if key), None)


def _obs_path(text: str) -> str:
    bare = text
    for prefix in ("obs://", "s3://"):
        bare = bare.removeprefix(prefix)
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
    return tuple(path for path, rule in walk_rules() if rule.update)


def rule_at(path: tuple[str, ...]) -> FieldRule:
    """The rule of the field at a path that `walk_rules` gave; of an item of environments that of all."""
    rule = rules()
    for name in path:
        if Mark.FREE_MEMBERS in rule.marks:
            return rule
        rule = (rule.item or _UNKNOWN) if name == "[]" else rule.members[name]
    return rule


class Parts(NamedTuple):
    """A canonical form, split by what an edit means."""

    immutable: Canonical
    mutable: Canonical


def split(form: Canonical) -> Parts:
    """Split a canonical form into what needs a new job and what can be changed on the job there is."""
    mutable: Canonical = {}
    for path in mutable_paths():
        form, value = _without(form, path)
        if value is not None:
            place = mutable
            for name in path[:-1]:
                place = place.setdefault(name, {})
            place[path[-1]] = value
    return Parts(form, mutable)


def _without(form: Canonical, path: tuple[str, ...]) -> tuple[Canonical, Any]:
    name, *rest = path
    if name not in form:
        return form, None
    value = form[name]
    below: Canonical = {}
    if rest:
        if not isinstance(value, dict):
            return form, None
        below, value = _without(value, tuple(rest))
        if value is None:
            return form, None
    others = {k: v for k, v in form.items() if k != name}
    return ({**others, name: below} if below else others), value
