"""The canonical layout: what it changes, and what it keeps."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.errors import ManifestInvalid
from reconciler.manifest.format import format_text
from reconciler.manifest.yaml import parse

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").rglob("*.yaml"))


def formatted(text: str) -> str:
    """The layout of a text, which is that of its own layout, too."""
    once = format_text(dedent(text), "jobs.yaml")
    assert format_text(once, "jobs.yaml") == once
    return once


def test_known_keys_stand_in_the_order_of_the_language_and_chosen_names_as_they_were() -> None:
    text = """\
        jobs:
          b: {}
          a:
            lifecycle: {protect: true}
            spec: {}
            needs: [b]
            algorithm:
              parameters: {z: 1, a: 2}
              code_dir: obs://b/c/
            description: what it is for
        stack: test
        """
    assert formatted(text) == dedent("""\
        stack: test
        jobs:
          b: {}
          a:
            description: what it is for
            needs: [b]
            algorithm:
              code_dir: obs://b/c/
              parameters: {z: 1, a: 2}
            spec: {}
            lifecycle: {protect: true}
        """)


def test_keys_of_an_environment_stand_in_order_in_each_form() -> None:
    text = """\
        jobs:
          a:
            algorithm:
              environments:
                - value: x  # the value
                  name: A
                - sensitive: true
                  value: y
                  name: B
          b:
            algorithm:
              environments:
                A:
                  sensitive: true
                  value: x
        """
    assert formatted(text) == dedent("""\
        jobs:
          a:
            algorithm:
              environments:
                - name: A
                  value: x  # the value
                - name: B
                  value: y
                  sensitive: true
          b:
            algorithm:
              environments:
                A:
                  value: x
                  sensitive: true
        """)


def test_defaults_of_a_target_stand_in_the_order_of_a_job() -> None:
    text = """\
        targets:
          prod:
            defaults:
              spec: {}
              description: a
            variables: {b: 1, a: 2}
            kind: local
        """
    assert formatted(text) == dedent("""\
        targets:
          prod:
            kind: local
            variables: {b: 1, a: 2}
            defaults:
              description: a
              spec: {}
        """)


def test_nesting_is_two_spaces_for_lists_too() -> None:
    text = """\
        jobs:
             a:
                 needs:
                 - b
                 algorithm:
                      parameters:
                      -    name: lr
                           value: 1
        """
    assert formatted(text) == dedent("""\
        jobs:
          a:
            needs:
              - b
            algorithm:
              parameters:
                - name: lr
                  value: 1
        """)


def test_comments_move_with_the_key_that_they_stand_above() -> None:
    text = """\
        # What this file is for.

        # the jobs
        jobs:
          a:
            # where it runs
            spec: {}   # small
            # what it runs
            algorithm:
              code_dir: obs://b/c/  # code
              # nothing more
            # end of a
          # end of the jobs
        # its name
        stack: test
        # the end
        """
    assert formatted(text) == dedent("""\
        # What this file is for.

        # its name
        stack: test
        # the jobs
        jobs:
          a:
            # what it runs
            algorithm:
              code_dir: obs://b/c/  # code
              # nothing more
            # where it runs
            spec: {}   # small
            # end of a
          # end of the jobs
        # the end
        """)


@pytest.mark.parametrize(
    "value",
    [
        "0.10",
        "1e3",
        "0x1F",
        "'yes'",
        '"a: b"',
        "True",
        "~",
        "",
        "obs://${var.bucket}/a:b",
        "!!str 12",
        "&x y",
    ],
)
def test_spelling_of_a_value_is_kept(value: str) -> None:
    assert f"a: {value}".rstrip() in formatted(f"jobs:\n   j:\n      raw:\n          a:   {value}\n")


def test_collections_in_one_line_get_one_space_behind_commas_and_colons() -> None:
    text = "jobs: { a: {needs: [b,c ],  raw: {x:  1,'y':[ ] , z}}}\n"
    assert formatted(text) == "jobs: {a: {needs: [b, c], raw: {x: 1, 'y': [], z}}}\n"


def test_collections_in_braces_over_several_lines_keep_their_lines() -> None:
    text = """\
        jobs:
            a:
                needs: [
                    b,  # first
                    c
                ]
        """
    assert formatted(text) == dedent("""\
        jobs:
          a:
            needs: [
                b,  # first
                c
            ]
        """)


@pytest.mark.parametrize("header", ["|", "|-", "|+", ">", ">-", "|2", ">2-"])
def test_lines_of_a_block_scalar_keep_their_own_indentation(header: str) -> None:
    text = (
        f"jobs:\n      a:\n        description: {header}\n          one\n            two\n\n          three\n"
    )
    assert formatted(text) == (
        f"jobs:\n  a:\n    description: {header}\n      one\n        two\n\n      three\n"
    )


def test_text_over_several_lines_is_indented_below_its_key() -> None:
    text = "jobs:\n      a:\n           description: one\n             two\n           raw: {}\n"
    assert formatted(text) == "jobs:\n  a:\n    description: one\n      two\n    raw: {}\n"


def test_alias_never_comes_before_its_anchor() -> None:
    text = "jobs:\n  a: &a\n    description: x\ndefaults: *a\nstack: test\n"
    assert formatted(text) == text, "in the order of the language, defaults would come first"


def test_anchor_tag_and_merge_key_stay() -> None:
    text = """\
        stack: test
        defaults: &base
          spec: {node_count: 1}
        jobs:
          a:
            description: x
            <<: *base
          b: !!map
            <<: [*base, {kind: job}]
        """
    assert "  a:\n    <<: *base\n    description: x\n" in formatted(text)


def test_start_of_the_document_and_modelines_stay_at_the_top() -> None:
    text = "# yaml-language-server: $schema=x.json\n---\njobs: {}\nstack: test\n"
    assert formatted(text) == "# yaml-language-server: $schema=x.json\n---\nstack: test\njobs: {}\n"


def test_windows_line_ends_and_byte_order_mark_go() -> None:
    assert formatted("\ufeffstack: test\r\njobs: {}\r\n") == "stack: test\njobs: {}\n"


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n"])
def test_file_without_values_keeps_its_comments(text: str) -> None:
    assert formatted(text) == text.lstrip("\n")


def test_explicit_key_is_refused_with_its_place() -> None:
    for key in ("a", "# one\n    a"):
        with pytest.raises(ManifestInvalid) as invalid:
            format_text(f"stack: test\njobs:\n  ? {key}\n  : {{}}\n", "jobs.yaml")
        diagnostic = invalid.value.diagnostics[0]
        assert diagnostic.why == "a key is written with `?`"
        assert str(diagnostic.location) == f"jobs.yaml:{3 + key.count(chr(10))}:1"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # below the key of a value that follows in a line of its own
        ("a:  # 1\n  # 2\n  x # 3\nb: 1\n", "a:  # 1\n  # 2\n  x # 3\nb: 1\n"),
        ("a:\n  b:\n# 1\n    x\n", "a:\n  b:\n    # 1\n    x\n"),
        # beside anchors and tags
        (
            "l:\n- &a # 1\n  x: 1\n- &b # 2\n  # 3\n  - y\n",
            "l:\n  - &a # 1\n    x: 1\n  - &b # 2\n    # 3\n    - y\n",
        ),
        ("l: # 1\n- &a # 2\n  - &b # 3\n    x: 1\n", "l: # 1\n  - &a # 2\n    - &b # 3\n      x: 1\n"),
        ("--- &a # 1\n# 2\nx: 1\n", "---\n&a # 1\n# 2\nx: 1\n"),
        ("%YAML 1.2\n--- !!map\nx: 1\n", "%YAML 1.2\n---\n!!map\nx: 1\n"),
        # behind a file in braces
        ("--- {a: 1} # 1\n# 2\n", "---\n{a: 1} # 1\n# 2\n"),
        # at the end of a list in the column of its key
        ("l:\n- x\n  # 1\n# 2\nm: 1\n", "l:\n  - x\n  # 1\n# 2\nm: 1\n"),
        # deeper than the one before it
        ("a:\n  b:\n    c: 1\n  # 1\n    # 2\nd: 1\n", "a:\n  b:\n    c: 1\n  # 1\n  # 2\nd: 1\n"),
        # behind a block of text that keeps its line breaks
        ("a: |+\n   x\n\n# 1\nb: 1\n", "a: |+\n  x\n\n# 1\nb: 1\n"),
    ],
)
def test_comment_stays_where_it_was(text: str, expected: str) -> None:
    assert formatted(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:\n   b: |+\n     x\n\n\n", "a:\n  b: |+\n    x\n\n\n"),
        ("a:\n   - |+\n     x\n\n   - y\n", "a:\n  - |+\n    x\n\n  - y\n"),
        ("a:\n   b: |\n     x\n         \nc: 1\n", "a:\n  b: |\n    x\n        \nc: 1\n"),
        ("a:\n   b: |\n     x  \n\nc: 1\n", "a:\n  b: |\n    x  \n\nc: 1\n"),
        ("a:\n   b: |2\n       x\n     \n   \nc: 1\n", "a:\n  b: |2\n      x\nc: 1\n"),
        ("a: |\n\nb: |+\n   \n\nc: >-\nd: 1\n", "a: |\n\nb: |+\n\n\nc: >-\nd: 1\n"),
        ("a:\n   b: |\n     x", "a:\n  b: |\n    x"),
        ("a:\n   b: |+\n     x", "a:\n  b: |+\n    x"),
    ],
)
def test_block_of_text_keeps_the_space_at_its_end(text: str, expected: str) -> None:
    assert format_text(text, "jobs.yaml") == expected
    assert format_text(expected, "jobs.yaml") == expected


@pytest.mark.parametrize("text", ["jobs: {}\nstack: |\n  x", "x: 1\n\njobs: |+\n  x\n"])
def test_keys_stay_in_place_where_another_order_would_change_a_value(text: str) -> None:
    assert formatted(text) == text


def test_space_that_yaml_takes_for_text_is_kept() -> None:
    assert formatted("a:  x\u00a0\nl:\n- \u00a0k:   1\n") == "a: x\u00a0\nl:\n  - \u00a0k: 1\n"


def test_line_breaks_of_yaml_end_lines() -> None:
    assert formatted("# one\ra:  1\r\nb: 2\n") == "# one\na: 1\nb: 2\n"


def test_separator_in_quotes_is_kept() -> None:
    text = "a: 'x\u2028 y\x85'\n\"k\u2029\": 1\n"
    assert formatted(text.replace(": ", ":  ")) == text


def test_key_without_a_value_in_braces_stays_valid() -> None:
    assert formatted("a: {b:  , c: }\nd: [ e:  ]\n") == "a: {b: , c: }\nd: [e: ]\n"


def test_item_of_a_list_gets_no_blank_line_from_a_key_that_comes_first_now() -> None:
    text = """\
        jobs:
          a:
            algorithm:
              inputs:
                - obs: {}

                  # its name
                  name: data
        """
    assert "inputs:\n        # its name\n        - name: data\n\n          obs: {}\n" in formatted(text)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_examples_are_in_the_canonical_layout(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert formatted(text) == text


_PLAIN = st.sampled_from(["a", "x1", "0.10", "true", "obs://b/c/", "'q # q'", '"d\\n"', "", "~", "é", "1e3"])
_NAMES = st.sampled_from(
    [
        "a",
        "b",
        "c d",
        '"q"',
        "stack",
        "jobs",
        "spec",
        "algorithm",
        "description",
        "parameters",
        "name",
        "value",
    ]
)
_COMMENTS = st.sampled_from(["", "", "", "# one", "# two: {", "#", "# - three"])


@st.composite
def blocks(draw: st.DrawFn, indent: int = 0, depth: int = 0) -> list[str]:
    """The lines of a block mapping with random style, comments and blank lines."""
    lines: list[str] = []
    space = " " * indent
    for key in draw(st.lists(_NAMES, min_size=1, max_size=4, unique=True)):
        for _ in range(draw(st.integers(0, 2))):
            comment = draw(_COMMENTS)
            lines.append(" " * draw(st.integers(0, indent)) + comment if comment else "")
        trailing = draw(_COMMENTS)
        trailing = " " * draw(st.integers(1, 3)) + trailing if trailing else ""
        kind = draw(
            st.sampled_from(["plain", "flow", "text", "list", "map", "items"])
            if depth < 3
            else st.just("plain")
        )
        step = draw(st.integers(1, 5))
        if kind == "plain":
            lines.append(f"{space}{key}:{' ' * draw(st.integers(1, 3))}{draw(_PLAIN)}{trailing}")
        elif kind == "flow":
            lines.append(f"{space}{key}: {{ a:  [1,{draw(_PLAIN) or 2}],b: {{}} }}{trailing}")
        elif kind == "text":
            mark = draw(st.sampled_from(["|", "|-", ">", ">-"]))
            lines += [
                f"{space}{key}: {mark}",
                f"{space}{' ' * step}one",
                "",
                f"{space}{' ' * step}  two # no",
            ]
        elif kind == "list":
            lines.append(f"{space}{key}:{trailing}")
            inner = " " * (indent + draw(st.integers(0, 3)))
            lines += [f"{inner}-{' ' * step}{draw(_PLAIN)}" for _ in range(draw(st.integers(1, 3)))]
        elif kind == "items":
            lines.append(f"{space}{key}:{trailing}")
            for _ in range(draw(st.integers(1, 2))):
                first, *others = [
                    one for one in draw(blocks(indent + 2, depth + 2)) if one.strip()[:1] not in ("", "#")
                ]
                lines += [f"{space}- {first.lstrip()}", *others]
        else:
            lines += [f"{space}{key}:{trailing}", *draw(blocks(indent + step, depth + 1))]
    return lines


def _comments(text: str) -> list[str]:
    return sorted(re.findall(r"(?:^|\s)(#(?: one| two: \{| - three)?)$", text, flags=re.MULTILINE))


@settings(max_examples=300, deadline=None)
@given(blocks())
def test_layout_of_any_manifest_is_idempotent_and_keeps_values_and_comments(lines: list[str]) -> None:
    text = "\n".join(lines) + "\n"
    before = parse(text.encode(), Path("x"), "x")
    if before.problems:
        with pytest.raises(ManifestInvalid):
            format_text(text, "x")
        return
    once = formatted(text)
    assert parse(once.encode(), Path("x"), "x").tree == before.tree
    assert _comments(once) == _comments(text)
