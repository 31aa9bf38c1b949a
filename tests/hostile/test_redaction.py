"""Secrets × spellings × writers: no output leaks a secret in any spelling.

For whole commands against a service that echoes secrets see `test_repeated_secrets`.
"""

from __future__ import annotations

import io
import json
import logging
import re
import sys
import threading
import time
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.cli import exits, progress
from reconciler.cli.console import console
from reconciler.cli.exits import of_exception
from reconciler.core.observed import ObservedJob, last_lines
from reconciler.errors import Diagnostic, ManifestInvalid
from reconciler.manifest import load
from reconciler.manifest.yaml import shorten
from reconciler.modelarts.clock import SystemClock
from reconciler.modelarts.errors import failure_of, harmless
from reconciler.modelarts.jobs import follow_log, redact_log
from reconciler.modelarts.operations import LogPreview
from reconciler.records.database import Database, unavailable
from reconciler.records.dialects import dialect_of
from reconciler.records.schema import Damaged
from reconciler.render.json import dump, redacted
from reconciler.render.text import render_lines, render_table
from reconciler.secrets import REDACTED, Redactor
from reconciler.text import printable, visible
from tests.hostile.sizes import RecordProperty, count_tried, some
from tests.hostile.spellings_of_secrets import SECRETS, SPELLINGS, leak_of


@pytest.fixture(autouse=True)
def _knowing_console(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "redact", Redactor(SECRETS.values()))
    monkeypatch.setattr(console, "verbosity", 2)


# --- writers


def _on(stream: str, write: Callable[[], object], log_format: str = "text") -> str:
    there = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, stream, there)
        patch.setattr(console, "log_format", log_format)
        write()
    return there.getvalue()


def _out(text: str) -> str:
    return _on("stdout", lambda: console.result(text))


def _problem(text: str, log_format: str = "text") -> str:
    problem = Diagnostic("a problem", f"found {text}", f"not {text}", path=text)
    return _on("stderr", lambda: console.diagnostics([problem]), log_format)


def _document(text: str) -> str:
    document = {"before": [text, {"in": f"a {text} b"}], text: None}
    said = _on("stdout", lambda: console.document(document))
    json.loads(said)  # and it is still JSON
    return said


def _report(error: Exception) -> str:
    said = _on("stderr", lambda: of_exception(error))
    found = re.search(r"file (\S+\.txt)", said)
    assert found
    report = Path(found[1])
    try:
        return said + report.read_text(encoding="utf-8")
    finally:
        report.unlink()


def _error_body(text: str) -> str:
    body = json.dumps({"error_code": text, "error_msg": f"{text * 3} no", "request_id": text}).encode()
    shown = failure_of(400, body, request_id=text, redact=console.redact)
    other = failure_of(502, f"<html>{text}</html>".encode("utf-8", "replace"), redact=console.redact)
    return console.clean(f"{shown.message} {shown.code} {shown.request_id} {other.message}")


def _store_error(text: str) -> str:
    address = dialect_of("postgresql://user@host/database")
    [diagnostic] = unavailable(Damaged(f"row ({text})\nDETAIL: {text}"), address, console.redact).diagnostics
    return console.clean(f"{diagnostic.why} {diagnostic.fix}")


def _record(text: str) -> str:
    database = Database(dialect_of("sqlite:////nowhere"), SystemClock(), console.redact)
    return database.text(text) + database.document({"a": [text, {text: f"x{text}"}]})


def _log(text: str) -> str:
    record = logging.LogRecord("library", logging.WARNING, "", 0, "it said %s", (text,), None)
    return _on("stderr", lambda: logging.lastResort and logging.lastResort.handle(record))


def _failed_thread(text: str) -> str:
    thread = threading.Thread(target=lambda: 1 / 0)
    failed = threading.ExceptHookArgs((ValueError, ValueError(text), None, thread))
    return _on("stderr", lambda: threading.excepthook(failed))


#: Formats are tested in tests/render/test_hostile_text.py.
WRITERS: dict[str, Callable[[str], str]] = {
    "stdout": lambda text: _out(f"token={text}\n"),
    "stdout, a cell of a table": lambda text: _out(
        render_table(("NAME", "MESSAGE"), [("a", f"said {text} twice")])
    ),
    "stdout, JSON": _document,
    "stdout, a log": lambda text: _out(
        render_lines(redact_log(f"a\n{text}\nb\n", console.redact, is_cut=False))
    ),
    "stderr": lambda text: _on("stderr", lambda: console.say(f"warning: {printable(text)}")),
    "stderr, JSON": lambda text: _on("stderr", lambda: console.say(text), "json"),
    "stderr, -vv": lambda text: _on("stderr", lambda: console.detail(f"GET /v2/{text}: 200", 2)),
    "stderr, a problem": _problem,
    "stderr, a problem as JSON": lambda text: _problem(text, "json"),
    "a live table": progress.safe,
    "a prompt": lambda text: console.clean(f"Delete {text}?"),
    "a report": lambda text: _report(RuntimeError(f"cannot be: {text}")),
    "an error of the service": _error_body,
    "an error of the store": _store_error,
    "journal and history": _record,
    "a library's logger": _log,
    "a library's warning": lambda text: _on("stderr", lambda: warnings.warn(text, stacklevel=1)),
    "a thread that failed": _failed_thread,
}


@pytest.fixture
def _redirected(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(logging, "lastResort", logging.lastResort)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        exits.redirect()
        yield


ROW = "secrets in outputs"


def test_secret_in_any_spelling_is_redacted_in_text(record_property: RecordProperty) -> None:
    cases = [(name, form) for name in SECRETS for form in SPELLINGS]
    tried = some(cases, 1600)
    leaks = {}
    for name, form in tried:
        secret, text = SECRETS[name], f"it is {SPELLINGS[form](SECRETS[name])} there"
        shown = console.redact(text)
        if leak := leak_of(secret, shown):
            leaks[name, form] = leak
        assert shown.startswith("it is ")
        assert shown.endswith(" there")
    assert leaks == {}
    count_tried(record_property, ROW, len(tried))


@pytest.mark.usefixtures("_redirected")
@pytest.mark.parametrize("writer", WRITERS)
def test_secret_in_any_spelling_is_redacted_by_every_writer(
    writer: str, record_property: RecordProperty
) -> None:
    offset = list(WRITERS).index(writer)
    cases = [(name, form) for name in SECRETS for form in SPELLINGS]
    tried = some(cases[offset:], 40, share=0.01)
    leaks = {}
    for name, form in tried:
        written = WRITERS[writer](SPELLINGS[form](SECRETS[name]))
        assert written
        if leak := leak_of(SECRETS[name], written):
            leaks[name, form] = leak
    assert leaks == {}
    count_tried(record_property, ROW, len(tried))


def test_leak_detector_finds_every_spelling() -> None:
    """The other tests depend on the leak detector."""
    blind = [
        (name, form)
        for name, form in some([(name, form) for name in SECRETS for form in SPELLINGS], 500)
        if leak_of(SECRETS[name], f"it is {SPELLINGS[form](SECRETS[name])} there") is None
    ]
    assert blind == []


SECRET = SECRETS["token"]
#: What may adjoin a short secret: an escape, another script.
BESIDE = (("a\\n", ""), ("a%2F", ""), ('{"a": "\\t', '"}'), (r"\u4ee4", ""), ("口令", "错误"))


@pytest.mark.parametrize("cut", range(8, len(SECRET)))
def test_secret_cut_at_an_ellipsis_is_redacted(cut: int) -> None:
    assert console.redact(f"it is {SECRET[:cut]}… there") == f"it is {REDACTED}… there"
    assert console.redact(f"it is {SECRET[:cut]}...") == f"it is {REDACTED}..."
    if len(SECRET) - cut >= 8:
        assert console.redact(f"…{SECRET[cut:]} there") == f"…{REDACTED} there"
    assert leak_of(SECRET, console.redact(shorten("x" * (59 - cut) + SECRET))) is None


@pytest.mark.parametrize("longest", [5, 20, 60, 600])
def test_message_is_shortened_after_redaction(longest: int) -> None:
    for name, secret in SECRETS.items():
        shown = harmless(f"said {secret} " * 5, longest, console.redact)
        assert leak_of(secret, shown) is None, name


def test_log_is_redacted_before_its_last_lines_are_taken() -> None:
    key = SECRETS["key with lines"]
    log = f"begin\n{key}end\n"
    for count in range(len(log.splitlines()) + 1):
        assert leak_of(key, last_lines(redact_log(log, console.redact, is_cut=False), count)) is None
    for start in range(len(log)):
        assert (
            leak_of(SECRET, redact_log(log[start:].replace(key, SECRET), console.redact, is_cut=True)) is None
        )


@pytest.mark.parametrize("step", [1, 3, 7, 50])
@pytest.mark.parametrize(
    "secret", [SECRETS["key with lines"], "first\nsecond\nthird\n", "one\r\ntwo2\r\nlast"]
)
def test_follow_holds_back_lines_that_may_begin_a_secret(secret: str, step: int) -> None:
    redact, job = Redactor([secret]), ObservedJob("id", "a", "", "Running")
    whole = f"begin\n{secret.strip()}\nmore\n{secret.splitlines()[0]}\nelse\n"
    sizes = iter([*range(step, len(whole), step), len(whole)])
    written = 0

    def details(_: str) -> ObservedJob:
        nonlocal written
        written = next(sizes)
        return replace(job, phase_text="Completed" if written == len(whole) else "Running")

    target = Mock()
    target.backend.details = details
    target.logs.preview = lambda *_: LogPreview(content=whole[:written])
    shown = "".join(part.text or "" for part in follow_log(target, job, "worker-0", redact))
    assert shown.replace("\r", "") == redact(whole).replace("\r", "")
    assert REDACTED in shown


def test_lines_of_a_multiline_secret_are_redacted_one_by_one() -> None:
    for line in SECRETS["key with lines"].splitlines()[1:-1]:
        assert console.redact(f"12:00:01 INFO {line}") == f"12:00:01 INFO {REDACTED}"


@pytest.mark.parametrize(
    ("secret", "text", "shown"),
    [
        # too short to search for
        *(
            (short, text := f"node {short} of 11, cab abc    and so on", text)
            for short in ("1", "ab", "abc", "    ")
        ),
        # letters or digits only: as a whole word
        ("train", "training of train-2 restrained; train", "training of *-2 restrained; *"),
        ("4820", "step 14820 of 48200, pin 4820, 4820/7", "step 14820 of 48200, pin *, */7"),
        ("plan", "planned: plan.json, explanation", "planned: *.json, explanation"),
        ("口令口令", "我的口令口令错误", "我的*错误"),  # a script without spaces
        *(("hush", f"{before}hush{after}", f"{before}*{after}") for before, after in BESIDE),
        # a terminal breaks lines where there is a space
        ("four words and-a-half\tlong", "is four\n    words\n    and-a-half\tlong, so", "is *, so"),
    ],
)
def test_secret_is_redacted_only_as_a_whole_word(secret: str, text: str, shown: str) -> None:
    assert Redactor([secret])(text) == shown.replace("*", REDACTED)


@pytest.mark.parametrize(
    "text", ["k3 /Q", "K3/Q", "k3%2", "HF_QXWZRTYPLKJHGFDSABVNMC", "(sensitive)", "…", "..."]
)
def test_text_that_only_resembles_a_secret_is_shown(text: str) -> None:
    assert console.redact(f"it is {text} there") == f"it is {text} there"
    assert Redactor(["sensitive"])(f"{REDACTED} and {text}") == f"{REDACTED} and {text}"


def test_secret_number_is_redacted_in_json_and_others_are_kept() -> None:
    redact = Redactor(["482091"])
    document = {"pin": 482091, "time": 1482091, "share": 0.482091, "yes": True, "482091": None}
    assert redacted(document, redact) == {
        "pin": REDACTED,
        "time": 1482091,
        "share": 0.482091,
        "yes": True,
        REDACTED: None,
    }


@given(st.lists(st.text(min_size=4, max_size=12), min_size=1, max_size=4), st.text(max_size=60))
def test_redaction_of_any_text_succeeds_and_is_idempotent(secrets: list[str], text: str) -> None:
    redact = Redactor(secrets)
    once = redact(text + secrets[0])
    assert redact(once) == once
    assert json.loads(dump(redacted({"a": text}, redact)))


@pytest.mark.parametrize("piece", ["Ab{}…", "%25", "\\", "&amp;", "QUFB", "A", "Ab12 ", "...", "(sensitive)"])
def test_adversarial_text_is_redacted_in_linear_time(piece: str) -> None:
    redact = Redactor([SECRET, "Ab" * 50, "A" * 200])
    redact("prepare everything")

    def cost(count: int) -> float:
        text = "".join(piece.replace("{}", str(at % 97)) for at in range(count))
        began = time.process_time()
        redact(text)
        return time.process_time() - began

    assert min(cost(16_000) for _ in range(3)) < 16 * max(min(cost(4_000) for _ in range(3)), 0.001)


@pytest.mark.parametrize("is_valid", [True, False])
def test_every_scalar_of_a_sensitive_variable_is_a_known_secret(tmp_path: Path, *, is_valid: bool) -> None:
    default = "{user: anna-the-first, pins: [48209, 0x1F2E3], more: {deep: 3.14159}}"
    text = (
        f"apiVersion: reconciler/v1\nstack: s\nvariables:\n  all: {{sensitive: true, default: {default}}}\n"
    )
    (tmp_path / "jobs.yaml").write_text(
        text + ("" if is_valid else "jobs: {a: {nonsense: 1}}\n"), encoding="utf-8"
    )
    learnt: list[str] = []
    with suppress(ManifestInvalid):
        load([tmp_path], environ={}, add_secrets=learnt.extend)
    assert {"anna-the-first", "48209", "0x1F2E3", "3.14159"} <= set(learnt)


# --- invisible characters


#: Visible characters of category Cf.
SEEN = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}
#: Those that are not of these categories.
UNSEEN_LETTERS = {0x34F, 0x115F, 0x1160, 0x3164, 0xFFA0, *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)}


@cache
def invisible_characters() -> list[str]:
    return [
        character
        for code, character in enumerate(map(chr, range(sys.maxunicode + 1)))
        if (unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp", "Cs") and code not in SEEN)
        or code in UNSEEN_LETTERS
    ]


PLAIN = set("\t\n\x1b")


@pytest.mark.usefixtures("_redirected")
@pytest.mark.parametrize("writer", WRITERS)
def test_invisible_characters_are_escaped_by_every_writer(
    writer: str, record_property: RecordProperty
) -> None:
    write, characters = WRITERS[writer], invisible_characters()
    for start in range(0, len(characters), 200):
        text = "a" + "b".join(characters[start : start + 200]) + "c"
        written = write(text)
        if writer in ("journal and history",):  # data; the commands that show it are the others
            continue
        assert set(written) & set(characters) <= PLAIN
        assert "\x1b" not in written.replace("\x1b[", "") or "\x1b" not in text
    count_tried(record_property, "invisible characters in outputs", len(characters))


def test_rendered_text_keeps_its_colours_and_lines() -> None:
    text = "\x1b[1mhead\x1b[0m\n\tone 训练 é 😀\n"
    assert visible(text) == text
    assert visible("a\x1b]0;title\x07\rb\x9b1m") == "a\\x1b]0;title\\x07\\rb\\x9b1m"
