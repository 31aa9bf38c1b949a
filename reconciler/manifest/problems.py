"""Problems of a manifest: diagnostics with a location and, for a misspelt name, a suggestion.

Locations are looked up only when a problem needs one; most runs need none.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError

from reconciler.core.body import HOISTED, NAMED_LISTS, RAW_FORBIDDEN
from reconciler.core.canonical import FieldRule, rules
from reconciler.core.fields.field_types import INVALID_PATH, OUTSIDE, fields_of, type_of
from reconciler.core.lifecycle import time_zones
from reconciler.core.scalar import UnresolvedText, is_boolean, scalar_text
from reconciler.errors import Diagnostic, Location
from reconciler.manifest.yaml import Document, end_position, shorten
from reconciler.secrets import Redactor, SecretText
from reconciler.text import few

#: Up to `_FEW` names are all compared; of more, this many neighbours on each side.
_FEW, _NEIGHBOURS = 60, 5
#: Limit on the valid names that a message lists.
MAX_LISTED = 20
#: A longer text is not a misspelt name.
_MAX_NAME = 100


def did_you_mean(
    name: str, known: Iterable[str], spelled: str = "{}", but_not: tuple[str, ...] = ()
) -> str | None:
    """Suggest the closest known name, ignoring case. Returns None if none is close.

    Names in `but_not` are never suggested, e.g. the name of the job itself. If there are many known names,
    only those that begin or end like the misspelt one are compared: comparing thousands with each other would
    take minutes, and a typo of one letter leaves the beginning or the end intact.
    """
    if len(name) > _MAX_NAME:
        return None
    excluded, name = {other.lower() for other in but_not}, name.lower()
    by_lower, forward, backward = _sorted_names(tuple(known))
    candidates: Iterable[str] = by_lower
    if forward:
        ending = (other[::-1] for other in _around(backward, name[::-1]))
        candidates = dict.fromkeys((*_around(forward, name), *ending))
    from difflib import get_close_matches

    near = get_close_matches(name, [other for other in candidates if other not in excluded], n=1, cutoff=0.6)
    return f'did you mean "{spelled.format(by_lower[near[0]])}"?' if near else None


@lru_cache(maxsize=64)
def _sorted_names(known: tuple[str, ...]) -> tuple[dict[str, str], list[str], list[str]]:
    """Return the names by their lower case; if there are many, also sorted, and reversed and sorted."""
    by_lower = {name.lower(): name for name in reversed(known)}
    forward = sorted(by_lower) if len(by_lower) > _FEW else []
    return by_lower, forward, sorted(name[::-1] for name in forward)


def _around(ordered: list[str], name: str) -> list[str]:
    at = bisect_left(ordered, name)
    return ordered[max(0, at - _NEIGHBOURS) : at + _NEIGHBOURS]


def listed(names: Collection[str]) -> str:
    """List the first names, and the number of any others."""
    return few(tuple(names), MAX_LISTED)


NO_VALUE = "variable without a value"
UNKNOWN_VARIABLE = "unknown variable"
ENV_NOT_SET = "environment variable not set"
CREDENTIAL = "credential not allowed here"


#: Types of errors that may only follow from another one, or from something that is left out or unreadable.
SECONDARY_ERRORS = frozenset({"missing", "rule"})


class Problem(NamedTuple):
    """A diagnostic without its location. `text` is the part of the value that it is about."""

    what: str
    why: str = ""
    fix: str | None = None
    text: str = ""


class NoValue(Exception):
    """A variable or an expression has no usable value; `problem` says why."""

    def __init__(self, what: str, why: str, fix: str | None = None, text: str = "") -> None:
        self.problem = Problem(what, why, fix, text)
        super().__init__(why)


def is_utf8(text: str) -> bool:
    """Whether a text can be sent: text from the environment may contain undecodable bytes."""
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


def not_utf8(source: str) -> tuple[str, str, str]:
    return "invalid text", f"{source} contains bytes that are not valid UTF-8", "use UTF-8"


def refused_credential(name: str, text: str = "") -> Problem:
    why = (
        f"{name} contains a credential of reconciler itself; only the password in the URL of records may "
        f"use it, as ${{env.{name}}}"
    )
    return Problem(CREDENTIAL, why, "use a different environment variable", text)


class Member(NamedTuple):
    """A step into a named list, which a file may also write as a mapping by name."""

    position: int
    name: str | None


PathStep = str | int | Member
Steps = Sequence[PathStep]
#: The key and the value of a member, as nodes; an item of a list is both.
_Nodes = tuple[Any, Any]


def find_node(document: Document, steps: Steps) -> tuple[Any, Any, int]:
    """Follow a path through a file as far as the file has it.

    Returns the key node and value node of the last step that was found, and the number of steps found.
    """
    key, node = None, document.root
    for count, step in enumerate(steps):
        if node is None:
            return key, node, count
        is_named = count > 0 and isinstance(steps[count - 1], Member)
        if step == "name" and is_named and key is not node:
            return key, key, len(steps)  # in the mapping form the key is the name
        if _is_scalar(node):
            # `lr: 0.1` is short for {name: lr, value: 0.1}, `auto_stop: 8h` for a unit and a duration, and
            # `${var.x}` may be any value.
            is_short = is_named or steps[count - 1] == "auto_stop" or "${" in node.value
            return key, node, len(steps) if is_short else count
        child = _child(document, node, step)
        if child is None:
            return key, node, count
        # A list item has no key: fields missing in it are reported at the item itself.
        key, node = child
    return key, node, len(steps)


def _is_scalar(node: Any) -> bool:
    return isinstance(node.value, str)


def _is_mapping(node: Any) -> bool:
    return bool(node.value) and isinstance(node.value[0], tuple)


def _child(document: Document, node: Any, step: PathStep) -> _Nodes | None:
    if _is_mapping(node):
        return _member(document, node, step.name if isinstance(step, Member) else str(step))
    if isinstance(step, str):
        # Environments may be a list of variables, or of mappings of variables.
        members = (_variable(document, item, step) for item in node.value if not _is_scalar(item))
        return next((member for member in members if member), None)
    if isinstance(step, Member) and step.name is not None:
        if id(node) not in document.items_by_name:
            named = ((_member(document, item, "name"), item) for item in reversed(node.value))
            by_name = {name[1].value: item for name, item in named if name and _is_scalar(name[1])}
            document.items_by_name[id(node)] = by_name
        item = document.items_by_name[id(node)].get(step.name)
        return None if item is None else (item, item)
    index = step.position if isinstance(step, Member) else step
    return (node.value[index], node.value[index]) if index < len(node.value) else None


def _variable(document: Document, item: Any, name: str) -> _Nodes | None:
    """Return the nodes of a variable's name and value in one item of a list of environments."""
    named, value = _member(document, item, "name"), _member(document, item, "value")
    if named is None or (value is None and _member(document, item, "sensitive") is None):
        return _child(document, item, name)
    is_match = _is_scalar(named[1]) and named[1].value == name
    return (named[1], item if value is None else value[1]) if is_match else None


def _member(document: Document, node: Any, name: str | None) -> _Nodes | None:
    """Return the member of a mapping, merged by `<<` or not; None if the node is not a mapping."""
    members = document.members(node) if _is_mapping(node) and not _is_scalar(node) else {}
    if name in members:
        return members[name]
    if "<<" in members and not _is_scalar(merged := members["<<"][1]):
        for source in [merged] if _is_mapping(merged) else merged.value:
            if not _is_scalar(source) and (child := _child(document, source, name or "")):
                return child
    return None


def format_path(steps: Steps) -> str:
    """Format a path for messages: `algorithm.parameters.lr`, `spec.volumes[0].nfs`."""
    text = ""
    for step in steps:
        if isinstance(step, Member):
            step = step.position if step.name is None else step.name
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text.removeprefix(".")


#: 0-based line and column, and length.
_Token = tuple[int, int, int]


def _token_of(document: Document, node: Any) -> _Token:
    start, end = node.start_mark, node.end_mark
    if not _is_scalar(node):
        return start.line, start.column, 1
    same_line = end is not None and end.line == start.line
    length = end.column - start.column if same_line else len(document.lines[start.line]) - start.column
    return start.line, start.column, length


def _token_inside(document: Document, node: Any, offset: int, length: int) -> _Token:
    line, column = end_position(document.text[node.start_mark.index : offset])
    return node.start_mark.line + line, column + (0 if line else node.start_mark.column), length


def diagnose(
    document: Document,
    steps: Steps,
    what: str,
    why: str = "",
    fix: str | None = None,
    text: str = "",
    *,
    at_key: bool = False,
    show_line: bool = True,
) -> Diagnostic:
    """Create a diagnostic for the value at a path, or for its closest parent in the file.

    It points to the value if that is a visible scalar, else to the key; with `text`, to its first occurrence
    in the value.
    """
    key, node, count = find_node(document, steps)
    offset = -1
    if text and node is not None and node.end_mark is not None:
        offset = document.text.find(text, node.start_mark.index, node.end_mark.index)
    if offset >= 0:
        token = _token_inside(document, node, offset, len(text))
    else:
        is_visible = node is not None and _is_scalar(node) and (bool(node.value) or bool(node.style))
        node = key if key is not None and (at_key or count < len(steps) or not is_visible) else node
        token = (0, 0, 1) if node is None else _token_of(document, node)
    return _diagnostic(document, steps, token, Problem(what, why, fix), show_line=show_line)


def _diagnostic(
    document: Document, steps: Steps, token: _Token, problem: Problem, *, show_line: bool = True
) -> Diagnostic:
    snippet = document.snippet(*token) if show_line else None
    return Diagnostic(*problem[:3], document.location(*token[:2]), format_path(steps), snippet)


def location_of_key(document: Document, steps: Steps) -> Location:
    if place := document.entry_places.get(tuple(steps)):  # type: ignore[arg-type]
        return document.location(*place)
    location = diagnose(document, steps, "", at_key=True, show_line=False).location
    assert location is not None
    return location


def diagnose_inside(
    document: Document, steps: Steps, place: tuple[int, int], what: str, why: str, fix: str | None = None
) -> Diagnostic:
    """Create a diagnostic for a position inside a text: line and column from 1.

    If the file spells that line of the text differently, the message names the position.
    """
    _, node, _ = find_node(document, steps)
    line, column = place
    text = (node.value.split("\n") + [""] * line)[line - 1]
    offset = document.text.find(text, node.start_mark.index, node.end_mark.index) if text else -1
    if offset < 0:
        problem = Problem(what, f"line {line}, column {column} of the expression: {why}", fix)
        return _diagnostic(document, steps, _token_of(document, node), problem)
    token = _token_inside(document, node, offset + column - 1, 1)
    return _diagnostic(document, steps, token, Problem(what, why, fix))


_Model = TypeVar("_Model", bound=BaseModel)


class Unexpanded(str):
    """A text whose expression has no value. That has been reported, and further problems are suppressed."""

    __slots__ = ()


class Origin(NamedTuple):
    """The possible sources of a merged value: files with the path in each, in order of precedence.

    `parts` are the desugared values there, as far as known: they have the members that an expression in the
    file stands for.
    """

    places: tuple[tuple[Document, tuple[PathStep, ...]], ...]
    parts: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def at(cls, document: Document, *steps: PathStep) -> Origin:
        """Return the origin of a value from one path of one file."""
        return cls(((document, steps),))

    def diagnose(
        self, steps: Steps, what: str, why: str = "", fix: str | None = None, text: str = "", **more: bool
    ) -> Diagnostic:
        """Create a diagnostic for a path of the merged value, in the file that it comes from."""
        document, prefix = self._of(steps)
        return diagnose(document, (*prefix, *steps), what, why, fix, text, **more)

    def directory(self, steps: Steps) -> Path:
        return self._of(steps)[0].path.parent

    def path(self, steps: Steps, up: int = 0) -> str:
        """Format a path of the merged value as a path of its file, without the last `up` steps."""
        _, prefix = self._of(steps)
        return format_path((*prefix, *steps)[: len(prefix) + len(steps) - up])

    def expression(self, steps: Steps) -> str | None:
        """Return the text at a path if it contains an expression, else None."""
        document, prefix = self._of(steps)
        text = getattr(find_node(document, (*prefix, *steps))[1], "value", None)
        return text if isinstance(text, str) and "${" in text else None

    def _of(self, steps: Steps) -> tuple[Document, tuple[PathStep, ...]]:
        for (document, prefix), part in zip_longest(self.places, self.parts):
            path = (*prefix, *steps)
            if find_node(document, path)[2] == len(path) and (part is None or _holds(part, steps)):
                return document, prefix
        return self.places[0]


_ABSENT = object()


def _holds(part: Any, steps: Steps) -> bool:
    """Whether a part has a value at a path. True if it may have one: an expression without a value."""
    for step in steps:
        if isinstance(step, Member) and isinstance(part, list) and step.name is not None:
            named = (item for item in part if isinstance(item, Mapping) and item.get("name") == step.name)
            part = next(named, _ABSENT)
        elif isinstance(part, Mapping | list):
            part = member_at(part, step.position if isinstance(step, Member) else step, _ABSENT)
        else:
            return isinstance(part, Unexpanded | UnresolvedText)
    return part is not _ABSENT  # null replaces other values, as an item of a list


_KINDS = {
    **dict.fromkeys(("string_type", "string_sub_type"), "text"),
    **dict.fromkeys(("int_type", "int_from_float"), "an integer"),
    "float_type": "a number",
    "bool_type": "true or false",
    **dict.fromkeys(("dict_type", "mapping_type", "model_type", "model_attributes_type"), "a mapping"),
    "list_type": "a list",
    "tuple_type": "a list of paths",
    "keys_type": "a key or a list of keys",
}


def describe(value: Any) -> str:
    """Describe a value for a message, without revealing a secret."""
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


# Messages for pydantic's errors, from the value and pydantic's context, to which are added the `name` of the
# field, the `names` of its model, the `choices` of its type and the `places` where it would be allowed.
_Context = Mapping[str, Any]
_NOT_ALLOWED = "value not allowed"


def _unknown_field(value: Any, context: _Context) -> Problem:
    name, names, places = context["name"], context["names"], context["places"]
    why = f'"{shorten(name)}" is not one of {", ".join(names)}'
    # A field of another level is misplaced, not misspelt.
    fix = f"move it to {places[0]}" if len(places) == 1 else did_you_mean(name, names)
    return Problem("unknown field", why, fix)


def _not_a_choice(value: Any, context: _Context) -> Problem:
    choices = context["choices"]
    allowed = choices[0] if len(choices) == 1 else f"one of {', '.join(choices)}"
    fix = did_you_mean(value, choices) if type(value) is str else None
    return Problem(_NOT_ALLOWED, f"must be {allowed}, got {describe(value)}", fix)


def _too_many(value: Any, context: _Context) -> Problem:
    is_text = isinstance(value, str)
    count = (not is_text and context.get("actual_length")) or len(value)
    kind = "characters" if is_text else "items"
    return Problem(_NOT_ALLOWED, f"must have at most {context['max_length']} {kind}, got {count}")


def _rule(value: Any, context: _Context) -> Problem:
    message = str(context.get("message", ""))
    return Problem("missing field" if " is required" in message else "incompatible fields", message)


def _form(value: Any, context: _Context) -> Problem:
    rule = str(context["rule"])
    return Problem(_NOT_ALLOWED, rule if isinstance(value, Mapping) else f"{rule}, got {describe(value)}")


def _duration(value: Any, context: _Context) -> Problem:
    is_long = "more than" in str(context.get("message"))
    rule = "must be at most 1000 years" if is_long else "must be a duration such as 90s, 2m, 1h30m or 2d"
    return Problem(_NOT_ALLOWED, f"{rule}, got {describe(value)}")


def _timezone(value: Any, context: _Context) -> Problem:
    why = f"{describe(value)} is not the name of a time zone, such as Europe/Berlin"
    return Problem("unknown time zone", why, did_you_mean(value, time_zones()))


def _outside(value: Any, context: _Context) -> Problem:
    code_dir = describe(context["code_dir"])
    why = f"must be below code_dir, {code_dir}, got {describe(value)} (ModelArts.2792)"
    return Problem("boot_file is outside code_dir", why)


#: By pydantic's error type: a function that explains the error, or the rule that an invalid value breaks.
_MESSAGES: dict[str, str | Callable[[Any, _Context], Problem]] = {
    "extra_forbidden": _unknown_field,
    "missing": lambda _, context: Problem("missing field", f'"{context["name"]}" is required'),
    "finite_number": lambda value, _: Problem(
        "number out of range", f"must be finite, got {describe(value)}"
    ),
    "literal_error": _not_a_choice,
    "enum": _not_a_choice,
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "too_long": _too_many,
    "string_too_long": _too_many,
    # Every least length in the models is 1.
    **dict.fromkeys(("too_short", "string_too_short"), lambda *_: Problem(_NOT_ALLOWED, "must not be empty")),
    "string_pattern_mismatch": "must match {pattern}",
    "rule": _rule,
    "form": _form,
    "duration": _duration,
    "day": "must be a date such as 2026-12-31",
    "schedule": lambda value, context: Problem(
        "invalid schedule", f"{context['rule']}; got {describe(value)}"
    ),
    "timezone": _timezone,
    "credential": lambda _, context: refused_credential(context["name"]),
    INVALID_PATH: lambda value, context: Problem(
        "invalid OBS path", f"{context['rule']}, got {describe(value)}"
    ),
    OUTSIDE: _outside,
}


def _explain(kind: str, value: Any, context: _Context, message: str) -> Problem:
    if kind in _KINDS:
        return Problem("wrong type", f"expected {_KINDS[kind]}, got {describe(value)}")
    explain = _MESSAGES.get(kind)
    if isinstance(explain, str):
        return Problem(_NOT_ALLOWED, f"{explain.format(**context)}, got {describe(value)}")
    return explain(value, context) if explain else Problem(_NOT_ALLOWED, message)


def validated(model: type[_Model], value: Any, origin: Origin) -> tuple[_Model | None, list[Diagnostic]]:
    """Validate a mapping. Returns None and the problems if it is invalid."""
    if not isinstance(value, dict):
        return None, [not_a_mapping(value, origin)]
    try:
        return model.model_validate(value), []
    except ValidationError as error:
        return None, list(diagnostics(error, model, value, origin))


def not_a_mapping(value: Any, origin: Origin) -> Diagnostic:
    """Report a value that is not a mapping; null is reported at its key."""
    return origin.diagnose(
        (), "wrong type", f"expected a mapping, got {describe(value)}", at_key=value is None
    )


def diagnostics(
    error: ValidationError,
    model: type[BaseModel],
    tree: Any,
    origin: Origin,
    skip: frozenset[str] = frozenset(),
) -> Iterator[Diagnostic]:
    """Yield the problems of one model, without the error types in `skip`."""
    for item in error.errors(include_url=False):
        kind, loc, value, context = item["type"], item["loc"], item["input"], dict(item.get("ctx", {}))
        if kind == OUTSIDE:
            # A rule about two members is reported at one of them.
            context["code_dir"] = value.get("code_dir")
            loc, value = (*loc, "boot_file"), value.get("boot_file")
            if _is_unknown(context["code_dir"], kind):
                continue
        if kind in skip or _is_unknown(value, kind):
            continue
        is_key = loc[-1:] == ("[key]",)
        steps = steps_of(loc[:-1] if is_key else loc, tree)
        is_extra, is_missing = kind == "extra_forbidden", kind == "missing"
        field = _type_at(model, loc[:-1] if is_extra or is_missing else loc)
        names = tuple(fields_of(field)) if _is_model(field) else ()
        name = str(loc[-1]) if loc else ""
        places = _places_of(name, model, origin.path(steps, len(steps))) if is_extra else []
        defaults = {"name": name, "names": names, "choices": _choices(field), "places": places}
        explained = _explain(kind, value, {**defaults, **context}, item["msg"])
        at_key = is_key or is_extra or kind == "rule"
        problem = origin.diagnose(steps[:-1] if is_missing else steps, *explained, at_key=at_key)
        yield problem._replace(path=origin.path(steps, 1)) if is_missing or is_extra else problem


def _is_unknown(value: Any, kind: str) -> bool:
    """Whether a value cannot be judged: it has an expression without a value, or is a secret without one."""
    if isinstance(value, SecretText):
        return _KINDS.get(kind) not in ("a mapping", "a list") and not value.has_value
    return isinstance(value, Unexpanded)


def steps_of(loc: tuple[int | str, ...], tree: Any) -> tuple[PathStep, ...]:
    """Convert pydantic's path to one that also works if the file has a named list in its mapping form."""
    steps: list[PathStep] = []
    for part in loc:
        tree, above = member_at(tree, part), steps[-1] if steps else None
        if isinstance(part, int) and above in NAMED_LISTS:
            name = tree.get("name") if isinstance(tree, Mapping) else None
            # The file has the expression, not the secret's value.
            name = name.reference if isinstance(name, SecretText) else name
            steps.append(Member(part, name if isinstance(name, str) else None))
        else:
            steps.append(part)
    return tuple(steps)


def member_at(tree: Any, part: int | str, default: Any = None) -> Any:
    """Return a member of plain data, or the default if there is none."""
    if isinstance(tree, Mapping):
        return tree.get(part, default)
    if isinstance(tree, list) and isinstance(part, int) and part < len(tree):
        return tree[part]
    return default


def _type_at(model: type[BaseModel], loc: tuple[int | str, ...]) -> Any:
    annotation: Any = model
    for part in loc:
        if get_origin(annotation) in (list, dict):
            annotation = _bare(get_args(annotation)[-1])
        elif _is_model(annotation) and part in fields_of(annotation):
            annotation = _bare(type_of(fields_of(annotation)[str(part)]))
        else:
            return None
    return annotation


def _bare(annotation: Any) -> Any:
    """Strip `Annotated` and `| None` from a type."""
    if hasattr(annotation, "__metadata__"):
        return _bare(annotation.__origin__)
    others = [arg for arg in get_args(annotation) if arg is not type(None)]
    return _bare(others[0]) if len(others) < len(get_args(annotation)) else annotation


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _places_of(name: str, model: Any, path: str) -> list[str]:
    """Return the paths of fields with that name in a model, except below lists."""
    places = []
    for own, field in fields_of(model).items():
        below = _bare(type_of(field))
        places += [f"{path}.{own}"] if own == name else []
        places += _places_of(name, below, f"{path}.{own}") if _is_model(below) else []
    return places


def members_of(model: type[BaseModel], name: str) -> Collection[str]:
    """Return the names of the fields below a field of a model; empty if it is no field, or not a mapping."""
    below = _type_at(model, (name,))
    return fields_of(below) if _is_model(below) else ()


def _choices(annotation: Any) -> list[str]:
    if get_origin(annotation) is Literal:
        return list(map(str, get_args(annotation)))
    return [str(member.value) for member in getattr(annotation, "__members__", {}).values()]


def distinct(problems: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Remove duplicates: an error in `defaults` is found in every job."""
    seen: dict[Any, Diagnostic] = {}
    for problem in problems:
        seen.setdefault((problem.location, problem.what, problem.why), problem)
    return tuple(seen.values())


def redact_diagnostics(problems: Iterable[Diagnostic], redact: Redactor) -> tuple[Diagnostic, ...]:
    """Redact the texts of problems. The snippet is dropped if its line contains a secret."""
    redact_line = cache(redact)  # a whole file may be one line
    return tuple(
        problem._replace(
            why=redact(problem.why),
            fix=None if problem.fix is None else redact(problem.fix),
            path=redact(problem.path),
            snippet=line.cut() if (line := problem.snippet) and redact_line(line.text) == line.text else None,
        )
        for problem in problems
    )


def raw_problems(raw: Any, origin: Origin) -> Iterator[Diagnostic]:
    """Yield the members that `raw` must not have, and those whose type would break the create body."""
    if not isinstance(raw, dict):
        return
    forbidden = "not allowed in raw"
    if "status" in raw:
        yield origin.diagnose(("raw", "status"), forbidden, "status is reported by the service", at_key=True)
    metadata = raw.get("metadata", {})
    if not isinstance(metadata, dict):
        yield _raw_type(origin, ("raw", "metadata"), metadata, "a mapping")
        metadata = {}
    for name in RAW_FORBIDDEN["metadata"]:
        if name in metadata:
            why = f"metadata.{name} is part of the job's identity"
            yield origin.diagnose(("raw", "metadata", name), forbidden, why, at_key=True)
    for name in HOISTED:
        if name in metadata:
            yield from _raw_types(metadata[name], rules().members[name], origin, ("raw", "metadata", name))
    for name, value in raw.items():
        if name not in ("metadata", "status") and (rule := rules().members.get(name)) is not None:
            yield from _raw_types(value, rule, origin, ("raw", name))


def _raw_types(
    value: Any, rule: FieldRule, origin: Origin, steps: tuple[PathStep, ...]
) -> Iterator[Diagnostic]:
    is_named = steps[-1] in NAMED_LISTS
    if value is None or (rule.item is not None and is_named and isinstance(value, dict)):
        return
    if rule.item is not None and not isinstance(value, list):
        yield _raw_type(origin, steps, value, "a list")
    elif rule.item is not None:
        for index, item in enumerate(value if rule.item.members else ()):
            step: PathStep = Member(index, None) if is_named else index
            yield from _raw_types(item, rule.item, origin, (*steps, step))
    elif rule.members and not isinstance(value, dict):
        yield _raw_type(origin, steps, value, "a mapping")
    else:
        for name, member in rule.members.items():
            if name in value:
                yield from _raw_types(value[name], member, origin, (*steps, name))


def _raw_type(origin: Origin, steps: tuple[PathStep, ...], value: Any, kind: str) -> Diagnostic:
    return origin.diagnose(steps, "wrong type", f"expected {kind}, got {describe(value)}")
