"""An expression in CEL, compiled: the one module that knows the library.

The library stops no expression that runs for long, and a very deep one ends the process. So the text of an
expression is bounded, and what it can loop over and multiply; what that leaves is some seconds for each job.
Source of the language: https://github.com/google/cel-spec/blob/master/doc/langdef.md
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

#: What an expression may name.
NAMES = ("job", "action", "stack", "target")
#: Characters of an expression. So many operators are nested at most, which the library survives.
MOST_CHARACTERS = 2_000
#: Macros (all, exists, exists_one, filter, map) of an expression, and how deep they may be nested.
MOST_MACROS, DEEPEST_MACRO = 20, 2
#: Uses of `map`, and of `+`: together they multiply a text or a list.
MOST_MAPS, MOST_SUMS = 2, 50
#: Members of a list or mapping where macros are nested.
MOST_MEMBERS = 200

_MACROS = frozenset({"all", "exists", "exists_one", "existsOne", "filter", "map"})
#: Names that are no variables.
_WORDS = frozenset({"int", "uint", "double", "bool", "string", "bytes", "list", "map", "null_type", "type"})
_TOKEN = re.compile(
    r"""
    (?P<space>\s+|//[^\n]*)
  | (?P<text>[bB]?[rR](?:\"{3}.*?\"{3}|'{3}.*?'{3}|"[^"\n]*"|'[^'\n]*')
      | [bB]?(?:\"{3}(?:\\.|.)*?\"{3}|'{3}(?:\\.|.)*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<sign>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_REPORTED = re.compile(r"ERROR: <input>:(\d+):(\d+): ([^\n]*)")
#: What the parser says beside what is wrong.
_ASIDE = re.compile(r"^Syntax error: | expecting \{.*$")
_PARSER_WORDS = (
    ("mismatched input '<EOF>'", "unexpected end"),
    ("mismatched input", "unexpected"),
    ("extraneous input", "unexpected"),
    ("'<EOF>'", "the end"),
    ("<EOF>", "the end"),
)
_LONGEST_REASON = 200
_Value = TypeVar("_Value")


class InvalidExpression(ValueError):
    """An expression that does not compile; line and column are places in its text and count from 1.

    `unknown_name` is the name in it that stands for nothing, if that is what is wrong.
    """

    def __init__(self, why: str, line: int = 1, column: int = 1, unknown_name: str | None = None) -> None:
        self.why, self.line, self.column, self.unknown_name = why, line, column, unknown_name
        super().__init__(why)


class NotJudged(Exception):
    """An expression that gives neither true nor false for some values; the message says why.

    `missing` is the field that it asks for and that is not there, if that is why.
    """

    def __init__(self, why: str, missing: str | None = None) -> None:
        self.missing = missing
        super().__init__(why)


class ExpressionValues:
    """What an expression is asked about: plain values by the names of `NAMES`, converted once for many."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        """Convert the values.

        Raises:
            NotJudged: there is a text in them that no expression can hold.
        """
        from cel import Context

        self.largest = _largest(values)
        self.context = _guarded(lambda: Context(dict(values)))


class Expression:
    """A compiled expression. It is pure: for the same values it gives the same."""

    def __init__(self, text: str) -> None:
        """Compile a text.

        Raises:
            InvalidExpression: it does not compile, or is more than can be afforded.
        """
        from cel import compile as compile_text

        if len(text) > MOST_CHARACTERS:
            raise InvalidExpression(f"{len(text):,} characters; at most {MOST_CHARACTERS:,} are allowed")
        try:
            self._program = _guarded(lambda: compile_text(text), ValueError)
        except NotJudged as error:
            raise InvalidExpression(str(error)) from None
        except ValueError as error:
            raise _reported(str(error), text) from None
        shape = _Shape(text)
        shape.check()
        shape.check_names(self._program.variables())
        self._is_nested = shape.deepest > 1

    def holds(self, values: ExpressionValues) -> bool:
        """Whether the expression is true.

        Raises:
            NotJudged: it fails on these values, or is no boolean.
        """
        if self._is_nested and values.largest > MOST_MEMBERS:
            raise NotJudged(
                f"the job has a list of {values.largest:,} items; nested macros take {MOST_MEMBERS:,}"
            )
        found = _guarded(lambda: self._program.execute(values.context))
        if not isinstance(found, bool):
            raise NotJudged(f"its value is {_kind(found)}, not true or false")
        return found


def fields_in(text: str) -> tuple[str, ...]:
    """The fields that an expression names, each once: `job.spec.resource.node_count`, `stack`.

    A field of a list's member, which has no one value, and a function that is called on a field are left out.
    """
    tokens = [token for token in _tokens(text) if token.kind != "space"]
    found: list[str] = []
    for place, token in enumerate(tokens):
        if token.kind == "name" and token.text in NAMES and (place == 0 or tokens[place - 1].text != "."):
            found.append(_path_from(tokens[place:]))
    return tuple(dict.fromkeys(found))


def _path_from(tokens: Sequence[_Lexeme]) -> str:
    """The path at the beginning of some tokens: names with dots between them."""
    path = [tokens[0].text]
    for dot, name, after in zip(tokens[1::2], tokens[2::2], [*tokens[3::2], None], strict=False):
        if dot.text != "." or name.kind != "name" or (after is not None and after.text == "("):
            break
        path.append(name.text)
    return ".".join(path)


def _guarded(call: Callable[[], _Value], passed_on: type[Exception] | None = None) -> _Value:
    """Call the library; whatever it raises is a `NotJudged`, also where its own code gave up."""
    try:
        return call()
    except BaseException as error:
        if passed_on is not None and type(error) is passed_on:
            raise
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise _in_words(error) from None


def _in_words(error: BaseException) -> NotJudged:
    text = str(error.args[0]) if error.args else str(error)
    if isinstance(error, KeyError):
        return NotJudged(f'there is no field "{_short(text)}"', missing=text)
    if isinstance(error, ZeroDivisionError):
        return NotJudged("it divides by zero")
    if isinstance(error, TypeError):
        return NotJudged("it compares or joins values of different types, or null")
    if (undefined := re.match(r"Undefined variable or function: '(\w+)'", text)) is not None:
        return NotJudged(f'"{undefined[1]}" is not known, or not for a value of this type')
    return NotJudged(_short(text))


def _short(text: str) -> str:
    """The first line of what the library says, or as much of it as a person reads."""
    line = text.split("\n", 1)[0].rstrip(" .:")
    return line if len(line) <= _LONGEST_REASON else f"{line[: _LONGEST_REASON - 1]}…"


def _reported(said: str, text: str) -> InvalidExpression:
    # The text stands in front, and may hold whatever the parser could say.
    found = _REPORTED.search(said.removeprefix(f"Failed to parse expression '{text}'"))
    if found is None:
        return InvalidExpression("it is not valid CEL")
    why = _ASIDE.sub("", found[3])
    for theirs, ours in _PARSER_WORDS:
        why = why.replace(theirs, ours)
    return InvalidExpression(_short(why), int(found[1]), int(found[2]))


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    kinds = {str: "text", int: "a number", float: "a number", list: "a list", dict: "a mapping"}
    return kinds.get(type(value), "something else")


def _largest(tree: Any) -> int:
    """How many members the largest list or mapping has."""
    if isinstance(tree, Mapping):
        return max(len(tree), *map(_largest, tree.values()), 0)
    if isinstance(tree, list):
        return max(len(tree), *map(_largest, tree), 0)
    return 0


class _Lexeme(NamedTuple):
    kind: str
    text: str
    start: int


class _Shape:
    """What an expression that compiles is made of, as far as that can multiply work."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [token for token in _tokens(text) if token.kind != "space"]
        self.macros: list[_Lexeme] = []
        self.bound: set[str] = set()
        self.deepest = 0
        self._walk()

    def _walk(self) -> None:
        """Follow the brackets, and see how many of those around are a macro's."""
        open_: list[bool] = []
        is_macro = False
        for place, token in enumerate(self._tokens):
            if token.text in ("(", "[", "{"):
                open_.append(is_macro)
                self.deepest = max(self.deepest, sum(open_))
            elif token.text in (")", "]", "}") and open_:
                open_.pop()
            is_macro = self._is_macro(place)
            if is_macro:
                self.macros.append(token)
                self.bound.add(self._at(place + 2).text)

    def _is_macro(self, place: int) -> bool:
        if self._tokens[place].text not in _MACROS or self._tokens[place].kind != "name":
            return False
        return self._at(place - 1).text == "." and self._at(place + 1).text == "("

    def _at(self, place: int) -> _Lexeme:
        return self._tokens[place] if 0 <= place < len(self._tokens) else _Lexeme("", "", 0)

    def check(self) -> None:
        """See that it can be afforded.

        Raises:
            InvalidExpression: it cannot.
        """
        maps = [token for token in self.macros if token.text == "map"]
        sums = [token for token in self._tokens if token.text == "+"]
        for count, most, what, tokens in (
            (len(self.macros), MOST_MACROS, "macros", self.macros),
            (len(maps), MOST_MAPS, "uses of map", maps),
            (len(sums), MOST_SUMS, "uses of +", sums),
            (self.deepest, DEEPEST_MACRO, "macros nested in each other", self.macros),
        ):
            if count > most:
                start = tokens[most].start
                raise InvalidExpression(f"{count} {what}; at most {most} are allowed", *self._place(start))

    def check_names(self, variables: list[str]) -> None:
        """See that every variable is one that policies have.

        Raises:
            InvalidExpression: one is not.
        """
        unknown = set(variables) - {*NAMES, *self.bound, *_WORDS}
        for place, token in enumerate(self._tokens):
            if token.kind == "name" and token.text in unknown and self._at(place - 1).text != ".":
                why = f'"{_short(token.text)}" is not one of {", ".join(NAMES)}'
                raise InvalidExpression(why, *self._place(token.start), unknown_name=token.text)

    def _place(self, start: int) -> tuple[int, int]:
        """Line and column of an offset, from 1."""
        before = self._text[:start].split("\n")
        return len(before), len(before[-1]) + 1


def _tokens(text: str) -> Iterator[_Lexeme]:
    for found in _TOKEN.finditer(text):
        yield _Lexeme(str(found.lastgroup), found[0], found.start())
