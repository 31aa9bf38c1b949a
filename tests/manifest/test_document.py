"""YAML: plain values by the core schema, and every error with its location."""

from __future__ import annotations

import json
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.core.scalar import plain
from reconciler.errors import Snippet
from reconciler.manifest import yaml
from reconciler.manifest.yaml import MAX_DEPTH, parser
from tests.manifest.conftest import marked, place_of, read


def test_c_parser_is_available() -> None:
    import _ruamel_yaml  # type: ignore[import-not-found]

    assert issubclass(parser(), _ruamel_yaml.CParser)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("FALSE", False),
        ("on", "on"),
        ("yes", "yes"),
        ("n", "n"),
        ("~", None),
        ("", None),
        ("12", 12),
        ("-3", -3),
        ("0o17", 15),
        ("017", 17),
        ("0xff", 255),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("0.1", 0.1),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("-.inf", float("-inf")),
        ("2026-11-21", "2026-11-21"),
        ("1.2.3", "1.2.3"),
        ("'12'", "12"),
        ('"true"', "true"),
        ("!!str 12", "12"),
        ("!!int '12'", 12),
        ("!!float 1", 1.0),
        ("|\n  12\n", "12\n"),
    ],
)
def test_plain_scalars_follow_the_core_schema(text: str, value: object) -> None:
    document = read(f"a: {text}")
    assert not document.problems
    assert document.tree == {"a": value}
    assert type(plain(document.tree["a"])) is type(value)


def test_scalar_keys_are_their_text() -> None:
    assert read("{1: a, true: b, 0.5: c}").tree == {"1": "a", "true": "b", "0.5": "c"}


def test_anchors_and_merge_keys() -> None:
    document = read("base: &b {x: 1, y: 1}\none: {<<: *b, y: 2}\ntwo: {<<: [*b, {z: 3}]}\n")
    assert list(document.tree["one"].items()) == [("y", 2), ("x", 1)]  # its own ones first
    assert list(document.tree["two"].items()) == [("x", 1), ("y", 1), ("z", 3)]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{url: obs://bucket/path}", "obs://bucket/path"),
        ("{url: obs://${var.bucket}/path}", "obs://${var.bucket}/path"),
        ("{url: ${var.bucket}}", "${var.bucket}"),
        ("{url: org/image:1.0, b: 2}", "org/image:1.0"),
        ('{"url":"x", b: obs://b}', "x"),
        ("{url: 'a:b ${x}', b: c://d}", "a:b ${x}"),
    ],
)
def test_urls_and_expressions_need_no_quotes_in_flow_collections(text: str, value: str) -> None:
    document = read(f"a: {text}\n")
    assert not document.problems
    assert document.tree["a"]["url"] == value


@pytest.mark.parametrize(
    ("text", "place", "why"),
    [
        ("a: 1\na: 2\n", "2:1", "a.yaml:1:1"),
        ("a:\n  b: 1\n  c: 2\n  b: 3\n", "4:3", "a.yaml:2:3"),
        ("a: 1\n---\nb: 2\n", "2:1", "single document"),
        ("a:\n\tb: 1\n", "2:1", "a tab where"),
        ("a: [1,\n", "2:1", "flow"),
        ("a: 'x\n", "2:1", "quoted"),
        ("a: b: c\n", "1:5", "needs quotes"),
        ("a: @b\n", "1:4", "cannot start any token"),
        ("a: *nowhere\n", "1:4", "undefined alias"),
        ("a: x\n  y: z\n", "2:4", "indented by 2"),
        ("? [a]\n: b\n", "1:3", "a key must be text"),
        ("a: \0\n", "1:4", "U+0000"),
        ("x: 1\nab: \x07\n", "2:5", "U+0007"),
        ("é: \ud7ff\n".encode() + b"b: \xff\n", "2:4", "0xff is not UTF-8"),
        ("a: !!python/object:os.system x\n", "1:4", "!!python"),
        ("a: !secret x\n", "1:4", "!secret"),
        ("a: !!binary aGk=\n", "1:4", "!!binary"),
        ("a: !!set {x}\n", "1:4", "!!set"),
        ("a: !!int x\n", "1:4", "not a valid int"),
        ("- a\n", "1:1", "a mapping with keys"),
        ("just text\n", "1:1", "a mapping with keys"),
        ("a: &x [*x]\n", "1:4", "alias of itself"),
        ("a: {<<: 1}\n", "1:5", "<< takes a mapping"),
        ("a: {<<: {x: 1}, <<: {y: 2}}\n", "1:17", '"<<" is already defined at a.yaml:1:5'),
    ],
)
def test_syntax_error_has_a_location(text: str | bytes, place: str, why: str) -> None:
    document = read(text)
    assert len(document.problems) == 1
    assert place_of(document.problems[0]) == f"a.yaml:{place}"
    assert why in document.problems[0].why


def test_nul_is_reported_once_at_its_location_despite_aliases() -> None:
    document = read('a: &a ["\\0"]\nb: [*a, *a]\nc: [*a]\n')
    assert [place_of(problem) for problem in document.problems] == ["a.yaml:1:8"]
    assert document.is_broken


def test_duplicate_key_is_marked_and_the_first_one_is_kept() -> None:
    document = read("jobs: 1\njobs: 2\n")
    assert document.problems[0].what == "duplicate key"
    assert marked(document.problems[0]) == "jobs"
    assert document.tree == {"jobs": 1}


@pytest.mark.parametrize("second", ["x", "[x]", "[[x, y]]", "{[x]: y}"])
def test_duplicate_section_of_any_type_is_a_duplicate_key(second: str) -> None:
    document = read(f"jobs: {{a: {{}}}}\njobs: {second}\n")
    assert [problem.what for problem in document.problems] == ["duplicate key"]
    assert document.tree == {"jobs": {"a": {}}}


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "a: " + "[" * 500 + "]" * 500,
        "- " * 100_000,
        "".join(" " * n + "a:\n" for n in range(300)),
    ],
)
def test_nesting_is_bounded(text: str) -> None:
    (problem,) = read(text).problems
    assert f"more than {MAX_DEPTH} levels" in problem.why
    assert problem.location is not None


def test_nesting_through_aliases_is_bounded() -> None:
    lines = ["a0: &a0 [1]", *(f"a{n}: &a{n} [[[*a{n - 1}]]]" for n in range(1, 60))]
    (problem,) = read("\n".join(lines)).problems
    assert "levels deep" in problem.why


def test_positions_count_characters_and_not_bytes() -> None:
    (problem,) = read("jobs: {ä: {名: 1, 名: 2}}\n").problems
    assert place_of(problem) == "a.yaml:1:18"
    assert marked(problem) == "名"


@pytest.mark.parametrize(
    ("before", "after"), [(0, 10_000), (3, 10_000), (10_000, 10_000), (10_000, 0), (60, 0), (30, 30)]
)
def test_long_line_is_cut_around_the_location(before: int, after: int) -> None:
    line = "." * before + "here" + "." * after
    snippet = Snippet(line, before, 4).cut()
    assert len(snippet.text) <= 122
    assert snippet.text[snippet.start : snippet.start + snippet.length] == "here"
    assert snippet.text.startswith("…") is (before > 100)
    assert snippet.text.endswith("…") is (after > 100)


_YAML = st.text(alphabet=st.sampled_from("ab<1.~ \n:-'\"&*!{}[],#|>?\u00e9"), max_size=40)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=400)
@given(
    text=st.one_of(
        _YAML,
        _YAML.map("jobs:\n  x: 1\n  {}".format),
        st.dictionaries(st.text(max_size=4), _VALUES, max_size=3).map(json.dumps),
    )
)
def test_values_from_events_equal_those_from_nodes(text: str) -> None:
    by_events = read(text)
    with mock.patch.object(yaml, "_plain_mapping", return_value=None):
        by_nodes = read(text)
    for attribute in ("problems", "is_broken", "entry_places"):
        assert getattr(by_events, attribute) == getattr(by_nodes, attribute)
    assert repr(by_events.tree) == repr(by_nodes.tree)


def _limits_are_those_of_the_nodes(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    by_events = read(text)
    monkeypatch.setattr(yaml, "_plain_mapping", lambda _: None)
    assert by_events.problems == read(text).problems


@pytest.mark.parametrize("levels", range(MAX_DEPTH - 4, MAX_DEPTH + 3))
def test_event_parser_has_the_same_depth_limit(levels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for begin, inner, end in (("{x: ", "1", "}"), ("{x: ", "", "}"), ("[", "1", "]"), ("[", "", "]")):
        with monkeypatch.context() as patched:
            _limits_are_those_of_the_nodes("a: " + begin * levels + inner + end * levels, patched)


@pytest.mark.parametrize("count", range(4, 24))
def test_event_parser_has_the_same_size_limit(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml, "MAX_NODES", 20)
    members = "".join(f"k{number}: 1, " for number in range(count))
    for text in (
        f"a: {list(range(count))}",
        f"a: {{{members}}}",
        f"{{{members}}}",
        f"a: {{{members}}}\nb: []",
    ):
        with monkeypatch.context() as patched:
            _limits_are_those_of_the_nodes(text, patched)


def test_plain_mapping_is_parsed_without_nodes() -> None:
    with mock.patch.object(yaml, "compose") as compose:
        assert read("stack: s\njobs:\n  \u00e9: {a: [1, 'x']}\n").tree == {
            "stack": "s",
            "jobs": {"\u00e9": {"a": [1, "x"]}},
        }
    compose.assert_not_called()
