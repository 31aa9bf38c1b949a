"""What pydantic found wrong, in our words and at the place a person would look."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError

from reconciler.core.expression import UnresolvedText
from reconciler.core.fields.field_types import fields_of
from reconciler.core.fields.obs_path import INVALID_PATH, OUTSIDE
from reconciler.core.scalar import is_boolean, scalar_text
from reconciler.core.time_zone import time_zones
from reconciler.errors import Diagnostic
from reconciler.manifest.expression_problems import CREDENTIAL, refused_credential
from reconciler.manifest.positions import Member, PathStep, Steps, diagnose, find, format_path
from reconciler.manifest.suggestions import did_you_mean
from reconciler.manifest.yaml import Document, shorten
from reconciler.secrets import SecretText

_Model = TypeVar("_Model", bound=BaseModel)
NAMED_LISTS = ("parameters", "inputs", "outputs")


class Unexpanded(str):
    """A text whose expression has no value; that has been said, and nothing else is said of it."""

    __slots__ = ()


@dataclass(frozen=True)
class Origin:
    """Where a merged value may come from: files with the path in each, the winning one first.

    `parts` are the values there, desugared, as far as they are known: what an expression stands for cannot be
    seen in the file.
    """

    places: tuple[tuple[Document, tuple[PathStep, ...]], ...]
    parts: tuple[Mapping[str, Any], ...] = ()

    def diagnose(
        self, steps: Steps, what: str, why: str = "", fix: str | None = None, **more: Any
    ) -> Diagnostic:
        """A problem with what stands at a path of the merged value, in the file that says it."""
        document, prefix = self._of(steps)
        return diagnose(document, (*prefix, *steps), what, why, fix, **more)

    def path(self, steps: Steps, up: int = 0) -> str:
        """A path in the file that says it, as people read it; `up` levels above."""
        _, prefix = self._of(steps)
        return format_path((*prefix, *steps)[: len(prefix) + len(steps) - up])

    def expression(self, steps: Steps) -> str | None:
        """The text at a path, if it holds an expression."""
        document, prefix = self._of(steps)
        node = find(document, (*prefix, *steps)).value
        text = getattr(node, "value", None)
        return text if isinstance(text, str) and "${" in text else None

    def _of(self, steps: Steps) -> tuple[Document, tuple[PathStep, ...]]:
        for (document, prefix), part in zip_longest(self.places, self.parts):
            path = (*prefix, *steps)
            if find(document, path).found == len(path) and (part is None or _holds(part, steps)):
                return document, prefix
        return self.places[0]


def _holds(part: Any, steps: Steps) -> bool:
    """Whether a part has a value at a path; of an expression without a value it may be."""
    for step in steps:
        if isinstance(step, Member) and isinstance(part, list) and step.name is not None:
            named = (one for one in part if isinstance(one, Mapping) and one.get("name") == step.name)
            part = next(named, None)
        elif isinstance(part, Mapping | list):
            part = _below(part, step.position if isinstance(step, Member) else step)
        else:
            return isinstance(part, Unexpanded | UnresolvedText)
    return part is not None


class _Words(NamedTuple):
    what: str
    why: str
    fix: str | None = None


class _Finding(NamedTuple):
    """One error of pydantic: what it says, the value it is about, and the model that value stands in."""

    context: Mapping[str, Any]
    value: Any
    name: str
    allowed: tuple[str, ...]


_KINDS = {
    "string_type": "text",
    "string_sub_type": "text",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "list_type": "a list",
    "keys_type": "a key or a list of keys",
}


def found(value: Any) -> str:
    """Say what a value is, without giving a secret away."""
    if isinstance(value, SecretText):
        return f"the sensitive value {value.reference}"
    if value is None:
        return "null"
    if is_boolean(value):
        return str(scalar_text(value))
    if isinstance(value, int | float):
        return shorten(str(scalar_text(value)))
    if isinstance(value, str):
        return f'"{shorten(value)}"'
    return "a mapping" if isinstance(value, Mapping) else "a list"


def _wrong_type(kind: str, finding: _Finding) -> _Words:
    value, fix = finding.value, None
    if kind in ("text", _KINDS["keys_type"]) and isinstance(value, bool | int | float):
        fix = f'quote it: "{scalar_text(value)}"'
    elif kind in ("an integer", "a number") and _reads_as_number(value):
        fix = "remove the quotes"
    elif kind == "true or false" and isinstance(value, str) and value.lower() in _BOOLEANS:
        fix = f"write {_BOOLEANS[value.lower()]}"
    return _Words("wrong type", f"expected {kind}, got {found(value)}", fix)


_BOOLEANS = {"yes": "true", "on": "true", "true": "true", "no": "false", "off": "false", "false": "false"}


def _reads_as_number(value: Any) -> bool:
    return (
        isinstance(value, str)
        and not isinstance(value, SecretText)
        and value.strip().lstrip("+-").isdecimal()
    )


def _unknown_field(finding: _Finding) -> _Words:
    allowed = ", ".join(finding.allowed)
    return _Words(
        "unknown field",
        f'"{shorten(finding.name)}" is not one of {allowed}',
        did_you_mean(finding.name, finding.allowed),
    )


def _not_allowed(finding: _Finding) -> _Words:
    choices = [str(choice) for choice in finding.context["choices"]]
    allowed = choices[0] if len(choices) == 1 else f"one of {', '.join(choices)}"
    why = f"must be {allowed}, got {found(finding.value)}"
    fix = did_you_mean(finding.value, choices) if type(finding.value) is str else None
    return _Words("value not allowed", why, fix)


def _bound(key: str, words: str) -> Callable[[_Finding], _Words]:
    def say(finding: _Finding) -> _Words:
        why = f"must be {words} {finding.context[key]}, got {found(finding.value)}"
        return _Words("value not allowed", why)

    return say


def _too_many(finding: _Finding) -> _Words:
    if isinstance(finding.value, str):
        return _too_long(finding)
    actual, most = finding.context.get("actual_length"), finding.context["max_length"]
    why = f"must have at most {most} items, got {actual or len(finding.value)}"
    return _Words("value not allowed", why)


def _too_long(finding: _Finding) -> _Words:
    most = finding.context["max_length"]
    return _Words("value not allowed", f"must have at most {most} characters, got {len(finding.value)}")


def _too_short(finding: _Finding) -> _Words:
    least = finding.context["min_length"]
    return _Words("value not allowed", f"must have at least {least} characters, got {found(finding.value)}")


def _pattern(finding: _Finding) -> _Words:
    why = f"must match {finding.context['pattern']}, got {found(finding.value)}"
    return _Words("value not allowed", why)


def _rule(finding: _Finding) -> _Words:
    message = str(finding.context.get("message", ""))
    return _Words("missing field" if " is required" in message else "incompatible fields", message)


def _form(finding: _Finding) -> _Words:
    rule = str(finding.context["rule"])
    is_scalar = not isinstance(finding.value, Mapping)
    return _Words("value not allowed", f"{rule}, got {found(finding.value)}" if is_scalar else rule)


def _duration(finding: _Finding) -> _Words:
    is_number = isinstance(finding.value, int | float) and not is_boolean(finding.value)
    fix = f'write it with its unit: "{scalar_text(finding.value)}s"' if is_number else None
    is_long = "more than" in str(finding.context.get("message"))
    rule = "must be at most 1000 years" if is_long else "must be a duration such as 90s, 2m, 1h30m or 2d"
    return _Words("value not allowed", f"{rule}, got {found(finding.value)}", fix)


def _day(finding: _Finding) -> _Words:
    return _Words("value not allowed", f"must be a date such as 2026-12-31, got {found(finding.value)}")


def _schedule(finding: _Finding) -> _Words:
    instead = finding.context["instead"]
    why = f"{finding.context['rule']}; got {found(finding.value)}"
    return _Words("invalid schedule", why, f'write "{instead}"' if instead else None)


def _timezone(finding: _Finding) -> _Words:
    why = f"{found(finding.value)} is not the name of a time zone, such as Europe/Berlin"
    return _Words("unknown time zone", why, did_you_mean(finding.value, time_zones()))


def _obs_path(finding: _Finding) -> _Words:
    fix = None if isinstance(finding.value, SecretText) else finding.context["fix"] or None
    return _Words("invalid OBS path", f"{finding.context['rule']}, got {found(finding.value)}", fix)


def _outside(finding: _Finding) -> _Words:
    beside = found(finding.context["beside_value"])
    why = f"must be below code_dir, {beside}, got {found(finding.value)} (ModelArts.2792)"
    return _Words("boot_file is outside code_dir", why)


#: pydantic's names of errors, and who finds the words.
_WORDS: dict[str, Callable[[_Finding], _Words]] = {
    "extra_forbidden": _unknown_field,
    "missing": lambda f: _Words("missing field", f'"{f.name}" is required'),
    "finite_number": lambda f: _Words("number out of range", f"must be finite, got {found(f.value)}"),
    "literal_error": _not_allowed,
    "enum": _not_allowed,
    "greater_than": _bound("gt", "more than"),
    "greater_than_equal": _bound("ge", "at least"),
    "less_than": _bound("lt", "less than"),
    "less_than_equal": _bound("le", "at most"),
    "too_long": _too_many,
    "string_too_long": _too_long,
    "string_too_short": _too_short,
    "string_pattern_mismatch": _pattern,
    "rule": _rule,
    "form": _form,
    "duration": _duration,
    "day": _day,
    "schedule": _schedule,
    "timezone": _timezone,
    "credential": lambda f: _Words(CREDENTIAL, *refused_credential(f.context["name"])),
    INVALID_PATH: _obs_path,
    OUTSIDE: _outside,
}


def validated(model: type[_Model], value: Any, origin: Origin) -> tuple[_Model | None, list[Diagnostic]]:
    """Return a mapping as a model, or None and what is wrong with it."""
    if not isinstance(value, dict):
        why = f"expected a mapping, got {found(value)}"
        return None, [origin.diagnose((), "wrong type", why, at_key=value is None)]
    try:
        return model.model_validate(value), []
    except ValidationError as error:
        return None, list(diagnostics(error, model, value, origin))


def diagnostics(
    error: ValidationError,
    model: type[BaseModel],
    tree: Any,
    origin: Origin,
    skip: frozenset[str] = frozenset(),
) -> Iterator[Diagnostic]:
    """Yield the problems of one model, those of the types in `skip` left out."""
    for one in error.errors(include_url=False):
        kind, loc, value, context = one["type"], one["loc"], one["input"], dict(one.get("ctx", {}))
        if kind == OUTSIDE:
            # A rule about two members is told at one of them.
            context["beside_value"] = beside = value.get(context["beside"])
            loc, value = (*loc, context["field"]), value.get(context["field"])
            if _is_unknown(beside, kind):
                continue
        if kind in skip or _is_unknown(value, kind):
            continue
        is_key = loc[-1:] == ("[key]",)
        steps = steps_of(loc[:-1] if is_key else loc, tree)
        field = _at(model, loc[:-1] if kind in ("extra_forbidden", "missing") else loc)
        name = str(loc[-1]) if loc else ""
        finding = _Finding({"choices": _choices(field), **context}, value, name, _names(field))
        yield _diagnose(kind, steps, _words(kind, finding, one["msg"]), origin, is_key=is_key)


def _words(kind: str, finding: _Finding, message: str) -> _Words:
    if kind in _KINDS:
        return _wrong_type(_KINDS[kind], finding)
    find_words = _WORDS.get(kind)
    return find_words(finding) if find_words else _Words("value not allowed", message)


def _diagnose(kind: str, steps: Steps, words: _Words, origin: Origin, *, is_key: bool) -> Diagnostic:
    if kind == "missing":
        return origin.diagnose(steps[:-1], *words, at_key=is_key)._replace(path=origin.path(steps, 1))
    problem = origin.diagnose(steps, *words, at_key=is_key or kind in ("extra_forbidden", "rule"))
    return problem._replace(path=origin.path(steps, 1)) if kind == "extra_forbidden" else problem


def _is_unknown(value: Any, kind: str) -> bool:
    """Whether nothing can be said of a value, because it has none yet."""
    return isinstance(value, Unexpanded) or _is_placeholder(value, kind)


def _is_placeholder(value: Any, kind: str) -> bool:
    """Whether it is a secret that has no value offline: it is some text, and nothing else is known."""
    if not isinstance(value, SecretText) or _KINDS.get(kind) in ("a mapping", "a list"):
        return False
    return not value.has_value


def steps_of(loc: tuple[int | str, ...], tree: Any) -> tuple[PathStep, ...]:
    """Turn pydantic's path into one that finds its way in mapping forms too."""
    steps: list[PathStep] = []
    for part in loc:
        below = _below(tree, part)
        if isinstance(part, int) and steps and steps[-1] in NAMED_LISTS:
            name = below.get("name") if isinstance(below, Mapping) else None
            # The file does not say the secret's value, but the expression that stands for it.
            name = name.reference if isinstance(name, SecretText) else name
            steps.append(Member(part, name if isinstance(name, str) else None))
        else:
            steps.append(part)
        tree = below
    return tuple(steps)


def _below(tree: Any, part: int | str) -> Any:
    if isinstance(tree, Mapping):
        return tree.get(part)
    if isinstance(tree, list) and isinstance(part, int) and part < len(tree):
        return tree[part]
    return None


def _at(model: type[BaseModel], loc: tuple[int | str, ...]) -> Any:
    """The type at a path of a model, or None if there is none."""
    annotation: Any = model
    for part in loc:
        annotation = _bare(annotation)
        if get_origin(annotation) is list:
            annotation = get_args(annotation)[0]
        elif get_origin(annotation) is dict:
            annotation = get_args(annotation)[1]
        elif (
            isinstance(annotation, type)
            and issubclass(annotation, BaseModel)
            and part in fields_of(annotation)
        ):
            annotation = fields_of(annotation)[str(part)].annotation
        else:
            return None
    return _bare(annotation)


def _bare(annotation: Any) -> Any:
    """Take `Annotated` and `| None` off a type."""
    while True:
        if hasattr(annotation, "__metadata__"):
            annotation = annotation.__origin__
        elif type(None) in (arguments := get_args(annotation)):
            annotation = next(one for one in arguments if one is not type(None))
        else:
            return annotation


def _names(annotation: Any) -> tuple[str, ...]:
    is_model = isinstance(annotation, type) and issubclass(annotation, BaseModel)
    return tuple(fields_of(annotation)) if is_model else ()


def _choices(annotation: Any) -> tuple[str, ...]:
    if get_origin(annotation) is Literal:
        return tuple(str(choice) for choice in get_args(annotation))
    members = getattr(annotation, "__members__", None)
    return tuple(str(member.value) for member in members.values()) if members else ()
