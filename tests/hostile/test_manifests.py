"""Any file as a manifest is accepted or refused: quickly, without an internal error, without a secret."""

from __future__ import annotations

import base64
import io
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NoReturn

import pytest

from reconciler.cli.console import console
from reconciler.cli.main import cli, run
from reconciler.secrets import Redactor
from reconciler.text import visible
from tests.hostile.broken_manifests import (
    ENCODINGS,
    GOOD,
    MARKED,
    MARKED_AT,
    ODD,
    damaged,
    paths_of,
    text_of,
    with_value,
)
from tests.hostile.sizes import RecordProperty, count_tried, size, some

#: A credential in the environment, and the value of a sensitive variable.
SECRETS = ("correct-horse-battery", "hunter2-swordfish")
FORMS = (*SECRETS, *(base64.b64encode(secret.encode()).decode()[:-4] for secret in SECRETS))
COMMAND = re.compile(r"^::.*::|##(?:\[|vso\[|teamcity\[)", re.IGNORECASE)
CODES = {0, 3, 8, 64, 65}
#: CPU seconds allowed per run, a hundred times the usual.
MOST_S = 5.0
Try = Callable[..., int]


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("OS_", "HUAWEI", "HW_", "MODELARTS"))]:
        monkeypatch.delenv(name)
    for name, value in (
        ("OS_PASSWORD", SECRETS[0]),
        ("TOKEN", SECRETS[1]),
        ("PROJECT", "p"),
        ("HOME", "/none"),
    ):
        monkeypatch.setenv(name, value)
    return tmp_path


@pytest.fixture
def attempt(stack: Path) -> Iterator[Try]:
    """Write a manifest, run a command on it, and check its outcome."""
    codes = CODES | {1}  # a file that `fmt --check` would change

    def call(data: bytes, *arguments: str, told: str = "", hidden: str = SECRETS[0]) -> int:
        (stack / "main.yaml").write_bytes(data)
        console.redact = Redactor()
        out, err = io.StringIO(), io.StringIO()
        started = time.process_time()
        with redirect_stdout(out), redirect_stderr(err):
            code = run(cli, list(arguments))
        took_s = time.process_time() - started
        text = out.getvalue() + err.getvalue()
        assert code in codes, f"{told}: {code}: {text[-2000:]}"
        assert "Traceback" not in text, told
        assert took_s < MOST_S, f"{told}: {took_s:.1f} s"
        assert [form for form in (*FORMS, hidden) if form in text] == [], f"{told}: {text[-2000:]}"
        assert not steering(text), f"{told}: {steering(text)}"
        if code == 65:
            assert "error" in err.getvalue() or "diagnostics" in text, told
        if "--json" in arguments and out.getvalue():
            document = json.loads(out.getvalue(), parse_constant=_no_number)
            for problem in document.get("diagnostics", ()):
                assert problem["what"]
                assert min(problem["location"]["line"], problem["location"]["column"]) >= 1, told
        return code

    before = console.redact
    yield call
    console.redact = before


def steering(text: str) -> list[str]:
    """Return the lines that control a terminal or a CI service, or break invisibly."""
    return [
        line
        for line in text.split("\n")
        if visible(line) != line or len(line.splitlines()) > 1 or COMMAND.search(line.lstrip())
    ]


def _no_number(name: str) -> NoReturn:
    raise AssertionError(f"{name} is not JSON")


def test_manifest_is_valid_before_it_is_broken(attempt: Try) -> None:
    text = text_of(GOOD).encode()
    assert attempt(text, "validate") == 0
    assert attempt(text, "plan", "--json") == 0


def test_odd_value_at_any_path_is_accepted_or_refused(attempt: Try, record_property: RecordProperty) -> None:
    cases = [(path, name) for path in paths_of(GOOD) for name in ODD]
    tried = some(cases, 200)
    codes: list[int] = []
    for path, name in tried:
        data = with_value(path, ODD[name]).encode("utf-8", "surrogatepass")
        # Without its mark it is no secret.
        hidden = SECRETS[0] if path[: len(MARKED_AT)] == MARKED_AT else MARKED
        arguments = ("validate",) if len(codes) % 5 else ("plan", "--json", "-t", "local")
        codes.append(attempt(data, *arguments, told=f"{path} {name}", hidden=hidden))
    assert {0, 65} <= set(codes)
    count_tried(record_property, "damaged manifests", len(tried))


def test_damaged_manifest_is_accepted_or_refused(attempt: Try, record_property: RecordProperty) -> None:
    count = size(250, 0.8)
    for number in range(count):
        others = {0: ("plan", "--json"), 1: ("fmt", "--check", "."), 2: ("validate",)}
        arguments = others.get(number % 20, ("validate", "--json"))
        attempt(damaged(number), *arguments, told=f"damaged({number})")
    count_tried(record_property, "damaged manifests", count)


@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize(
    "arguments", [("validate",), ("validate", "--json"), ("plan", "--json"), ("fmt", "--check")]
)
def test_manifest_in_any_encoding_is_accepted_or_refused(
    attempt: Try, name: str, arguments: tuple[str, ...], record_property: RecordProperty
) -> None:
    attempt(ENCODINGS[name](text_of(GOOD)), *arguments, told=name)
    count_tried(record_property, "damaged manifests", 1)
