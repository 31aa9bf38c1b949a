"""What is wrong with a manifest: in our words, at its place, and with the name that was meant.

Places are looked up when a problem needs one, and never before: most runs need none.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache, partial
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError

from reconciler.core.body import HOISTED, NAMED_LISTS, RAW_FORBIDDEN
from reconciler.core.canonical import FieldRule, rules
from reconciler.core.fields.field_types import INVALID_PATH, OUTSIDE, fields_of, type_of
from reconciler.core.lifecycle import time_zones
from reconciler.core.scalar import UnresolvedText, is_boolean, scalar_text
from reconciler.errors import Diagnostic, Location
from reconciler.manifest.yaml import Document, place_behind, shorten
from reconciler.secrets import Redactor, SecretText

#: Up to so many names are compared all; of more, so many neighbours on each side.
_FEW, _NEIGHBOURS = 60, 5
#: How many of the valid names a message lists.
MOST_LISTED = 20
#: Longer than any name; a longer text is no slip of one.
_LONGEST = 100


def did_you_mean(
    name: str, known: Iterable[str], spelled: str = "{}", but_not: tuple[str, ...] = ()
) -> str | None:
    """A question that offers the nearest of the known names, or None if none is near; case does not matter.

    `but_not` are never offered: the names of whoever asks. A manifest may hold names by the thousand, and
    comparing each with each would take minutes: of many only those are compared that begin or end like the
    misspelt one, as a slip of one letter leaves one of the two.
    """
    if len(name) > _LONGEST:
        return None
    own, name = {one.lower() for one in but_not}, name.lower()
    by_lower, forward, backward = _sorted_names(tuple(known))
    candidates: Iterable[str] = by_lower
    if forward:
        ending = (other[::-1] for other in _around(backward, name[::-1]))
        candidates = dict.fromkeys((*_around(forward, name), *ending))
    from difflib import get_close_matches

    near = get_close_matches(name, [one for one in candidates if one not in own], n=1, cutoff=0.6)
    return f'did you mean "{spelled.format(by_lower[near[0]])}"?' if near else None


@lru_cache(maxsize=64)
def _sorted_names(known: tuple[str, ...]) -> tuple[dict[str, str], list[str], list[str]]:
    """The names by their lower case; if they are many, also in order, and in order from behind."""
    by_lower = {name.lower(): name for name in reversed(known)}
    forward = sorted(by_lower) if len(by_lower) > _FEW else []
    return by_lower, forward, sorted(name[::-1] for name in forward)


def _around(ordered: list[str], name: str) -> list[str]:
    at = bisect_left(ordered, name)
    return ordered[max(0, at - _NEIGHBOURS) : at + _NEIGHBOURS]


def listed(names: Collection[str]) -> str:
    """The names one after the other; of many the first ones, and how many more there are."""
    more = len(names) - MOST_LISTED
    shown = ", ".join(islice(names, MOST_LISTED))
    return shown if more <= 0 else f"{shown} and {more} more"


NO_VALUE = "variable without a value"
UNKNOWN_VARIABLE = "unknown variable"
ENV_NOT_SET = "environment variable not set"
CREDENTIAL = "credential not allowed here"


class Problem(NamedTuple):
    """What is wrong, in the words of a diagnostic; `text` is the part of a value that it is about."""

    what: str
    why: str = ""
    fix: str | None = None
    text: str = ""


class NoValue(Exception):
    """A variable or an expression has no value that could be used; `problem` says why."""

    def __init__(self, what: str, why: str, fix: str | None = None, text: str = "") -> None:
        self.problem = Problem(what, why, fix, text)
        super().__init__(why)


def is_utf8(text: str) -> bool:
    """Whether a text can be sent: one from outside may hold bytes that are none."""
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


def not_utf8(source: str) -> tuple[str, str, str]:
    """The words for a text that cannot be sent."""
    return "invalid text", f"{source} contains bytes that are not valid UTF-8", "use UTF-8"


def refused_credential(name: str, text: str = "") -> Problem:
    """Why an environment variable may not be used in a manifest, and what to do."""
    why = (
        f"{name} contains a credential of reconciler itself; only the password in the URL of records may "
        f"use it, as ${{env.{name}}}"
    )
    return Problem(CREDENTIAL, why, "use a different environment variable", text)


class Member(NamedTuple):
    """A step into a named list, which a file may have written as a mapping of names."""

    position: int
    name: str | None


PathStep = str | int | Member
Steps = Sequence[PathStep]
#: The key and the value of a member, as nodes; an item of a list is both.
_Nodes = tuple[Any, Any]


def find(document: Document, steps: Steps) -> tuple[Any, Any, int]:
    """Follow a path through a file as far as it goes.

    Returns the nodes of key and value at its end, or those of the last step that is in the file, and how many
    steps the file has.
    """
    key, node = None, document.root
    for count, step in enumerate(steps):
        if node is None:
            return key, node, count
        is_named = count > 0 and isinstance(steps[count - 1], Member)
        if step == "name" and is_named and key is not node:
            return key, key, len(steps)  # in the mapping form the key is the name
        if _is_scalar(node):
            # `lr: 0.1` stands for {name: lr, value: 0.1}, and `${var.x}` for whatever it holds.
            return key, node, len(steps) if is_named or "${" in node.value else count
        child = _child(document, node, step)
        if child is None:
            return key, node, count
        # An item of a list has no key: what is missing in it is told at the item itself.
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
        parts = (_variable(document, item, step) for item in node.value if not _is_scalar(item))
        return next((found for found in parts if found), None)
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
    """The nodes of a variable's name and value in an item of a list of environments."""
    named, value = _member(document, item, "name"), _member(document, item, "value")
    if named is None or (value is None and _member(document, item, "sensitive") is None):
        return _child(document, item, name)
    is_this = _is_scalar(named[1]) and named[1].value == name
    return (named[1], item if value is None else value[1]) if is_this else None


def _member(document: Document, node: Any, name: str | None) -> _Nodes | None:
    """The member of a mapping, be it one that `<<` brings; None if the node is no mapping."""
    members = document.members(node) if _is_mapping(node) and not _is_scalar(node) else {}
    if name in members:
        return members[name]
    if "<<" in members and not _is_scalar(merged := members["<<"][1]):
        for source in [merged] if _is_mapping(merged) else merged.value:
            if not _is_scalar(source) and (found := _child(document, source, name or "")):
                return found
    return None


def format_path(steps: Steps) -> str:
    """A path as people read it: `algorithm.parameters.lr`, `spec.volumes[0].nfs`."""
    text = ""
    for step in steps:
        if isinstance(step, Member):
            step = step.position if step.name is None else step.name
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text.removeprefix(".")


#: A place in a file: line and column, 0-based, and the length of what stands there.
_Token = tuple[int, int, int]


def _token_of(document: Document, node: Any) -> _Token:
    start, end = node.start_mark, node.end_mark
    if not _is_scalar(node):
        return start.line, start.column, 1
    same_line = end is not None and end.line == start.line
    length = end.column - start.column if same_line else len(document.lines[start.line]) - start.column
    return start.line, start.column, length


def _token_inside(document: Document, node: Any, offset: int, length: int) -> _Token:
    line, column = place_behind(document.text[node.start_mark.index : offset])
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
    """A problem with what stands at a path; where the file lacks it, at the nearest thing above.

    It points at the key, or at the value if it is one that can be seen; with `text`, at the first place in
    the value that says just that.
    """
    key, node, count = find(document, steps)
    offset = -1
    if text and node is not None and node.end_mark is not None:
        offset = document.text.find(text, node.start_mark.index, node.end_mark.index)
    if offset >= 0:
        token = _token_inside(document, node, offset, len(text))
    else:
        is_seen = node is not None and _is_scalar(node) and (bool(node.value) or bool(node.style))
        node = key if key is not None and (at_key or count < len(steps) or not is_seen) else node
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
    """A problem with a place inside of a text: its line and column there, from 1.

    The words say it where the file spells that line of the text otherwise.
    """
    _, node, _ = find(document, steps)
    line, column = place
    text = (node.value.split("\n") + [""] * line)[line - 1]
    offset = document.text.find(text, node.start_mark.index, node.end_mark.index) if text else -1
    if offset < 0:
        words = Problem(what, f"line {line}, column {column} of the expression: {why}", fix)
        return _diagnostic(document, steps, _token_of(document, node), words)
    token = _token_inside(document, node, offset + column - 1, 1)
    return _diagnostic(document, steps, token, Problem(what, why, fix))


_Model = TypeVar("_Model", bound=BaseModel)


class Unexpanded(str):
    """A text whose expression has no value; that has been said, and nothing else is said of it."""

    __slots__ = ()


class Origin(NamedTuple):
    """Where a merged value may come from: files with the path in each, the winning one first.

    `parts` are the values there, desugared, as far as they are known: what an expression stands for cannot be
    seen in the file.
    """

    places: tuple[tuple[Document, tuple[PathStep, ...]], ...]
    parts: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def at(cls, document: Document, *steps: PathStep) -> Origin:
        """That of what stands in one file, at a path."""
        return cls(((document, steps),))

    def diagnose(
        self, steps: Steps, what: str, why: str = "", fix: str | None = None, text: str = "", **more: bool
    ) -> Diagnostic:
        """A problem with what stands at a path of the merged value, in the file that says it."""
        document, prefix = self._of(steps)
        return diagnose(document, (*prefix, *steps), what, why, fix, text, **more)

    def directory(self, steps: Steps) -> Path:
        return self._of(steps)[0].path.parent

    def path(self, steps: Steps, up: int = 0) -> str:
        """A path in the file that says it, as people read it; `up` levels above."""
        _, prefix = self._of(steps)
        return format_path((*prefix, *steps)[: len(prefix) + len(steps) - up])

    def expression(self, steps: Steps) -> str | None:
        """The text at a path, if it holds an expression."""
        document, prefix = self._of(steps)
        text = getattr(find(document, (*prefix, *steps))[1], "value", None)
        return text if isinstance(text, str) and "${" in text else None

    def _of(self, steps: Steps) -> tuple[Document, tuple[PathStep, ...]]:
        for (document, prefix), part in zip_longest(self.places, self.parts):
            path = (*prefix, *steps)
            if find(document, path)[2] == len(path) and (part is None or _holds(part, steps)):
                return document, prefix
        return self.places[0]


def _holds(part: Any, steps: Steps) -> bool:
    """Whether a part has a value at a path; of an expression without a value it may be."""
    for step in steps:
        if isinstance(step, Member) and isinstance(part, list) and step.name is not None:
            named = (one for one in part if isinstance(one, Mapping) and one.get("name") == step.name)
            part = next(named, None)
        elif isinstance(part, Mapping | list):
            part = member_at(part, step.position if isinstance(step, Member) else step)
        else:
            return isinstance(part, Unexpanded | UnresolvedText)
    return part is not None


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


# What pydantic finds, in our words: of the value, and of its context. Beside what pydantic says there are the
# `name` of the field, the `names` of its model and the `choices` of its type.
_Context = Mapping[str, Any]
_NOT_ALLOWED = "value not allowed"


def _unknown_field(value: Any, context: _Context) -> Problem:
    name, names, places = context["name"], context["names"], context["places"]()
    why = f'"{shorten(name)}" is not one of {", ".join(names)}'
    # What is spelled as a field of another level stands in the wrong place.
    fix = f"move it to {places[0]}" if len(places) == 1 else did_you_mean(name, names)
    return Problem("unknown field", why, fix)


def _not_a_choice(value: Any, context: _Context) -> Problem:
    choices = context["choices"]
    allowed = choices[0] if len(choices) == 1 else f"one of {', '.join(choices)}"
    fix = did_you_mean(value, choices) if type(value) is str else None
    return Problem(_NOT_ALLOWED, f"must be {allowed}, got {found(value)}", fix)


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
    return Problem(_NOT_ALLOWED, rule if isinstance(value, Mapping) else f"{rule}, got {found(value)}")


def _duration(value: Any, context: _Context) -> Problem:
    is_long = "more than" in str(context.get("message"))
    rule = "must be at most 1000 years" if is_long else "must be a duration such as 90s, 2m, 1h30m or 2d"
    return Problem(_NOT_ALLOWED, f"{rule}, got {found(value)}")


def _timezone(value: Any, context: _Context) -> Problem:
    why = f"{found(value)} is not the name of a time zone, such as Europe/Berlin"
    return Problem("unknown time zone", why, did_you_mean(value, time_zones()))


def _outside(value: Any, context: _Context) -> Problem:
    beside = found(context["beside_value"])
    why = f"must be below code_dir, {beside}, got {found(value)} (ModelArts.2792)"
    return Problem("boot_file is outside code_dir", why)


#: pydantic's names of errors, and who finds the words; of a value that is not allowed, what it must be.
_WORDS: dict[str, str | Callable[[Any, _Context], Problem]] = {
    "extra_forbidden": _unknown_field,
    "missing": lambda _, context: Problem("missing field", f'"{context["name"]}" is required'),
    "finite_number": lambda value, _: Problem("number out of range", f"must be finite, got {found(value)}"),
    "literal_error": _not_a_choice,
    "enum": _not_a_choice,
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "too_long": _too_many,
    "string_too_long": _too_many,
    "string_too_short": "must have at least {min_length} characters",
    "string_pattern_mismatch": "must match {pattern}",
    "rule": _rule,
    "form": _form,
    "duration": _duration,
    "day": "must be a date such as 2026-12-31",
    "schedule": lambda value, context: Problem("invalid schedule", f"{context['rule']}; got {found(value)}"),
    "timezone": _timezone,
    "credential": lambda _, context: refused_credential(context["name"]),
    INVALID_PATH: lambda value, context: Problem(
        "invalid OBS path", f"{context['rule']}, got {found(value)}"
    ),
    OUTSIDE: _outside,
}


def _words(kind: str, value: Any, context: _Context, message: str) -> Problem:
    if kind in _KINDS:
        return Problem("wrong type", f"expected {_KINDS[kind]}, got {found(value)}")
    find_words = _WORDS.get(kind)
    if isinstance(find_words, str):
        return Problem(_NOT_ALLOWED, f"{find_words.format(**context)}, got {found(value)}")
    return find_words(value, context) if find_words else Problem(_NOT_ALLOWED, message)


def validated(model: type[_Model], value: Any, origin: Origin) -> tuple[_Model | None, list[Diagnostic]]:
    """Return a mapping as a model, or None and what is wrong with it."""
    if not isinstance(value, dict):
        return None, [not_a_mapping(value, origin)]
    try:
        return model.model_validate(value), []
    except ValidationError as error:
        return None, list(diagnostics(error, model, value, origin))


def not_a_mapping(value: Any, origin: Origin) -> Diagnostic:
    """Say that a value is no mapping; where there is none at all, of its key."""
    return origin.diagnose((), "wrong type", f"expected a mapping, got {found(value)}", at_key=value is None)


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
        is_extra, is_missing = kind == "extra_forbidden", kind == "missing"
        field = _type_at(model, loc[:-1] if is_extra or is_missing else loc)
        names = tuple(fields_of(field)) if _is_model(field) else ()
        name = str(loc[-1]) if loc else ""
        places = partial(_places_of, name, model, origin.path(()) if is_extra else "")
        defaults = {"name": name, "names": names, "choices": _choices(field), "places": places}
        words = _words(kind, value, {**defaults, **context}, one["msg"])
        at_key = is_key or is_extra or kind == "rule"
        problem = origin.diagnose(steps[:-1] if is_missing else steps, *words, at_key=at_key)
        yield problem._replace(path=origin.path(steps, 1)) if is_missing or is_extra else problem


def _is_unknown(value: Any, kind: str) -> bool:
    """Whether nothing can be said of a value: it has none yet, or is a secret that has none offline."""
    if isinstance(value, SecretText):
        return _KINDS.get(kind) not in ("a mapping", "a list") and not value.has_value
    return isinstance(value, Unexpanded)


def steps_of(loc: tuple[int | str, ...], tree: Any) -> tuple[PathStep, ...]:
    """Turn pydantic's path into one that finds its way in mapping forms too."""
    steps: list[PathStep] = []
    for part in loc:
        tree, above = member_at(tree, part), steps[-1] if steps else None
        if isinstance(part, int) and above in NAMED_LISTS:
            name = tree.get("name") if isinstance(tree, Mapping) else None
            # The file does not say the secret's value, but the expression that stands for it.
            name = name.reference if isinstance(name, SecretText) else name
            steps.append(Member(part, name if isinstance(name, str) else None))
        else:
            steps.append(part)
    return tuple(steps)


def member_at(tree: Any, part: int | str) -> Any:
    """The member of plain data; None where there is none."""
    if isinstance(tree, Mapping):
        return tree.get(part)
    if isinstance(tree, list) and isinstance(part, int) and part < len(tree):
        return tree[part]
    return None


def _type_at(model: type[BaseModel], loc: tuple[int | str, ...]) -> Any:
    """The type at a path of a model, or None if there is none."""
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
    """A type without `Annotated` and `| None`."""
    if hasattr(annotation, "__metadata__"):
        return _bare(annotation.__origin__)
    others = [one for one in get_args(annotation) if one is not type(None)]
    return _bare(others[0]) if len(others) < len(get_args(annotation)) else annotation


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _places_of(name: str, model: Any, path: str) -> list[str]:
    """The paths at which a model has a field of that name, those below lists aside."""
    places = []
    for own, field in fields_of(model).items():
        below = _bare(type_of(field))
        places += [f"{path}.{own}"] if own == name else []
        places += _places_of(name, below, f"{path}.{own}") if _is_model(below) else []
    return places


def members_of(model: type[BaseModel], name: str) -> Collection[str]:
    """The names that may stand below a field of a model; none where it is no field, or holds no others."""
    below = _type_at(model, (name,))
    return fields_of(below) if _is_model(below) else ()


def _choices(annotation: Any) -> list[str]:
    if get_origin(annotation) is Literal:
        return list(map(str, get_args(annotation)))
    return [str(member.value) for member in getattr(annotation, "__members__", {}).values()]


def distinct(problems: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Each problem once: a mistake in `defaults` is met by every job."""
    seen: dict[Any, Diagnostic] = {}
    for problem in problems:
        seen.setdefault((problem.location, problem.what, problem.why), problem)
    return tuple(seen.values())


def shown(problems: Iterable[Diagnostic], redact: Redactor) -> tuple[Diagnostic, ...]:
    """The same problems, with no known secret in their words. A line that holds one is not shown."""
    redact_line = cache(redact)  # all of a file may stand in one line
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
    """What `raw` must not hold, and members whose type would break the body."""
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
    return origin.diagnose(steps, "wrong type", f"expected {kind}, got {found(value)}")
