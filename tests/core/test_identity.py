"""docs/concepts/ownership.md, "Terms" and "Ownership": names, markers, and when a marker is valid."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.core.identity import (
    KEY_PATTERN,
    MAX_DESCRIPTION,
    STACK_PATTERN,
    Description,
    Marker,
    ScheduleMark,
    key_problem,
    parse_description,
    parse_remote_name,
    remote_name,
    room_for_description,
    stack_problem,
)

KEYS = st.from_regex(re.compile(KEY_PATTERN.pattern, re.ASCII), fullmatch=True).filter(
    lambda k: key_problem(k) is None
)
STACKS = st.from_regex(re.compile(STACK_PATTERN.pattern, re.ASCII), fullmatch=True)
MARKERS = st.builds(
    Marker,
    stack=STACKS,
    key=KEYS,
    revision=st.integers(1, 9999),
    digest=st.from_regex(re.compile("[a-z][0-9a-f]{12}"), fullmatch=True),
    id_part=st.none() | st.from_regex(re.compile("[0-9a-f]{8}"), fullmatch=True),
    schedule=st.none()
    | st.builds(ScheduleMark, st.sampled_from(["0000", "3fa9"]), st.none() | st.integers(0, 2**32 - 1)),
    protected=st.booleans(),
    stopped=st.booleans(),
)


@given(KEYS, st.integers(1, 9999))
def test_remote_name_round_trips(key: str, revision: int) -> None:
    assert parse_remote_name(remote_name(key, revision)) == (key, revision)
    assert len(remote_name(key, revision)) <= 64


@given(st.text(max_size=80), MARKERS)
def test_marker_after_any_text_round_trips(text: str, marker: Marker) -> None:
    read = parse_description(str(Description(text, marker)))
    assert read.marker == marker
    assert read.text == text


@given(MARKERS)
def test_marker_has_only_characters_that_every_description_accepts(marker: Marker) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_.-]+", str(marker))


@given(MARKERS)
def test_description_always_has_room_for_the_widest_marker(marker: Marker) -> None:
    room = room_for_description(marker.stack, marker.key)
    assert room >= 100
    assert len(str(Description("x" * room, marker))) <= MAX_DESCRIPTION


def test_documented_marker_is_parsed_and_written() -> None:
    read = parse_description("ResNet-50, nightly reconciler.vision.resnet50.r2.a3f9a2c1b7d4e")
    assert read.text == "ResNet-50, nightly"
    assert read.marker == Marker("vision", "resnet50", 2, "a3f9a2c1b7d4e")
    assert str(Description("", read.marker)) == "reconciler.vision.resnet50.r2.a3f9a2c1b7d4e"


@pytest.mark.parametrize(
    "description",
    [
        "",
        "reconciler.vision.resnet50.r2.a3f9a2c1b7d4e and more",
        "xreconciler.vision.resnet50.r2.a3f9a2c1b7d4e",
        "reconciler.vision.resnet50.r0.a3f9a2c1b7d4e",
        "reconciler.Vision.resnet50.r2.a3f9a2c1b7d4e",
        "reconciler.vision.resnet50.r2.3f9a2c1b7d4e",
        "reconciler.vision.resnet50.r2.a3f9a2c1b7d4e.stopped.protected",
        "reconciler.vision.resnet50.r2.A3F9A2C1B7D4E",
    ],
)
def test_inexact_marker_text_is_not_parsed(description: str) -> None:
    assert parse_description(description).marker is None


@pytest.mark.parametrize(
    ("name", "job_id", "id_part", "is_believed"),
    [
        ("a", "11112222-x", None, True),
        ("a-copy", "11112222-x", None, False),  # copied in the console
        ("a-r2", "11112222-x", None, False),
        ("anything", "11112222-x", "11112222", True),  # adopted
        ("anything", "99992222-x", "11112222", False),
    ],
)
def test_marker_is_valid_only_on_its_own_job(
    name: str, job_id: str, id_part: str | None, is_believed: bool
) -> None:
    marker = Marker("vision", "a", 1, "a" + "0" * 12, id_part=id_part)
    assert marker.is_on_its_own_job(name, job_id) is is_believed


@pytest.mark.parametrize(
    ("problem", "valid", "invalid"),
    [
        (
            *(key_problem, ["a", "A-b_C9", "x" * 58, "r2", "a-r", "a-r2x", "-", "r-2"]),
            ["", "x" * 59, "a b", "a.b", "é", "a-r2", "a-R10", "a-r02", "a-r٣", "a\n"],
        ),
        (stack_problem, ["a", "vision", "a-b-0", "x" * 32], ["", "V", "-a", "a-", "a_b", "x" * 33, "a.b"]),
    ],
)
def test_only_valid_names_are_accepted(
    problem: Callable[[str], str | None], valid: list[str], invalid: list[str]
) -> None:
    assert [name for name in valid if problem(name)] == []
    assert [name for name in invalid if not problem(name)] == []


@pytest.mark.parametrize(
    ("name", "read"), [("a-r1", ("a-r1", 1)), ("a-r02", ("a-r02", 1)), ("a-r2", ("a", 2))]
)
def test_remote_name_with_noncanonical_revision_is_read_as_a_key(name: str, read: tuple[str, int]) -> None:
    assert parse_remote_name(name) == read
