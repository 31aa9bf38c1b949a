"""Foreign text never controls its viewer: one corpus for every format and content."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from functools import cache
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree as Xml

import pytest
from markdown_it import MarkdownIt
from prometheus_client.parser import text_string_to_metric_families
from pydantic import BaseModel

from reconciler.core.values import Change, Denial, PreflightReason, Source, TargetIdentity
from reconciler.decide.fleet import FleetReport, StackResult
from reconciler.decide.outcome import Outcome, Result, RunReport, Status, Waited, WaitEnd
from reconciler.decide.plan import Action, Plan, PreflightFinding
from reconciler.errors import Diagnostic, ExitCode, Location
from reconciler.render import (
    PLAIN,
    Content,
    Style,
    View,
    formats_of,
    render,
    render_part,
    render_run,
    step_outputs,
)
from reconciler.render.markdown import MOST_CHARACTERS
from reconciler.secrets import REDACTED, Redactor
from reconciler.text import INVISIBLE, visible
from tests.render.test_golden import compared, every_action
from tests.render.test_golden_files import denied, problems, reviewed, standing, tried
from tests.render.test_history import REVISIONS, RUNS, a_report

CORPUS = {
    "script": "<script>alert(1)</script>",
    "attribute": '" onload="alert(1)" \' onload=\'alert(1)',
    "end of comment": "--> <img src=x onerror=alert(1)> <!--",
    "end of cdata": "]]> <a/> &amp; &lt;",
    "end of template": "{{ 7 * 7 }} {% raw %} </details></td></tr></table>",
    "controls": "a\x00b\x07c\x08d\x0be\x0cf\x1fg\x7fh\x85i\x9bj",
    "lines": "one\ntwo\r\nthree\rfour\u2028five\u2029six",
    "terminal": "\x1b[2J\x1b]0;title\x07\x1b[31mred",
    "github": "::set-output name=has_changes::false",
    "github on a line": "\n::error::x\n::add-mask::x\n::stop-commands::x",
    "github escapes": "%0A::error::x%0D%0A::warning::y%25%3A%2C",
    "github file": "x\nhas_changes=false\nEOF\nghadelimiter_x",
    "azure": "##vso[task.setvariable variable=x]y ##[error]z",
    "teamcity": "##teamcity[buildStatus status='FAILURE']",
    "table": "a | b || c |\n|---|---|",
    "backticks": "` `` ``` ```` `a` ``b``` ~~~",
    "fence": "```\n# heading\n```",
    "emphasis": "*a* **b** _c_ __d__ ~~e~~ # f\n# g\n- h\n> i\n1. j",
    "links": "[a](https://example.com) ![b](https://example.com/c.png) <https://example.com> www.example.com",
    "mentions": "@everyone #1 GH-1 owner/repository#2 0123456789abcdef :+1: $x$",
    "reference": "[a]: https://example.com\n[a][a] \\",
    "direction": "a\u202eb\u2066c\u200fd\u200be\ufefff\u061c",
    "tags": "a\U000e0041\U000e007f\u00adb\u3164c",
    "surrogates": "a\ud800b\udfffc",
    "noncharacters": "a\ufffeb\uffffc\U0001ffffd",
    "metrics": '"} 1\nreconciler_run_success{stack="x"} 1 \\',
    "placeholders": "{0} {} %s %(a)s ${x} $(x)",
    "paths": "../../etc/passwd:1:2 C:\\x file:///etc/passwd",
    "long": "x" * 3_000,
    "empty": "",
}
HARMLESS = "word"


#: Fields without foreign text; times, which end in `_at`, are excluded, too.
OURS = frozenset({"at", "reconciler_version", "format_version", "summary", "status"})


def spoilt(value: Any, text: str, name: str = "") -> Any:
    """Replace each foreign text and data name of a value by this one, keeping keys distinct."""
    if isinstance(value, Enum) or name in OURS or name.endswith("_at"):
        return value
    if isinstance(value, str):
        return f"{value}{text}" if name in ("key", "stack") else text
    if isinstance(value, BaseModel):
        # Comparisons need valid Unicode: other jobs and manifests are refused.
        text = text.encode("utf-8", "replace").decode() if isinstance(value, Change) else text
        names = type(value).model_fields.keys() - ({"kind"} if isinstance(value, TargetIdentity) else set())
        return value.model_copy(update={one: spoilt(getattr(value, one), text, one) for one in names})
    if is_dataclass(value) and not isinstance(value, type):
        names = {one.name for one in fields(value) if one.init}
        return replace(value, **{one: spoilt(getattr(value, one), text, one) for one in names})
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(spoilt(getattr(value, one), text, one) for one in value._fields))
    if isinstance(value, Mapping):
        is_body = name == "desired"
        keeps = [isinstance(key, Enum) or is_body for key in value]
        return {
            key if kept else text: spoilt(member, text, "desired" if is_body else "")
            for (key, member), kept in zip(value.items(), keeps, strict=True)
        }
    return type(value)(spoilt(one, text) for one in value) if isinstance(value, list | tuple) else value


@cache
def plan_with(text: str) -> Plan:
    """The refused plan of every action, with every pre-flight finding."""
    plan: Plan = spoilt(every_action(), text)
    key, source = plan.actions[0].key, Source(file=f"{text}.yaml", line=1, column=1)
    found = tuple(
        PreflightFinding(key=key, reason=reason, path=text, detail=text, fix=text, source=source)
        for reason in PreflightReason
    )
    more = {"preflight": found, "refusals": (Diagnostic(f"refused{text}", text, text),)}
    return plan.model_copy(update={"denied": denied_with(text, key), **more})


@cache
def result_with(text: str) -> Result:
    actions = plan_with(text).actions
    outcomes = tuple(
        Outcome(action, status, text, message=text, code=text, request_id=text)
        for action, status in zip(actions, Status, strict=False)
    )
    return Result(outcomes, waits=(Waited(f"w{text}", Action.CREATE, WaitEnd.BLOCKED, text),))


def denied_with(text: str, key: str) -> tuple[Denial, ...]:
    source = Source(file=f"{text}.yaml", line=1, column=1)
    return (
        Denial(key=key, policy=f"p{text}", message=text, source=source),
        Denial(key=key, policy=f"q{text}", problem=text),
    )


@cache
def value_with(content: Content, text: str) -> Any:
    if content in (Content.PLAN, Content.RESULT):
        return plan_with(text) if content is Content.PLAN else result_with(text)
    if content is Content.REVIEW:
        jobs = tuple({(job.symbol, job.action): job for job in reviewed().jobs}.values())
        review = spoilt(reviewed().model_copy(update={"jobs": jobs}), text)
        review = review.model_copy(update={"denied": denied_with(text, review.jobs[0].key)})
        return review.model_copy(update={"others": (review,)})
    if content is Content.VALIDATION:
        return spoilt(denied().model_copy(update={"diagnostics": problems().diagnostics}), text)
    if content is Content.STATUS:
        return spoilt(standing(), text)
    if content is Content.HISTORY:
        return spoilt(a_report(key="a", runs=RUNS, revisions=REVISIONS[1:2]), text)
    return spoilt(compared() if content is Content.DRIFT else tried(), text)


def fleet_with(text: str, format_: str, redact: Any = str) -> FleetReport:
    """Two stacks with one name, distinguished by their roots in metrics, and a failed one."""
    plan = plan_with(text)
    part = render_part(Content.PLAN, plan, format_, View(redact=redact))
    hidden = redact(text)
    whole = StackResult(
        root=f"a/{hidden}",
        stack=every_action().stack,
        exit_code=ExitCode.DONE,
        target=f"t{hidden}",
        summary={action.value: number for action, number in plan.summary.items()},
        last_line=redact(plan.last_line),
        has_changes=True,
        parts={format_: redact(part) if format_ == "text" else part},
    )
    place = Location(f"{hidden}.yaml", 1, 1)
    problems = (Diagnostic(f"wrong{hidden}", hidden, hidden, place, hidden), Diagnostic(hidden or "wrong"))
    failed = StackResult(f"b/{hidden}", None, ExitCode.INVALID, errors=problems)
    return FleetReport.of("plan", [whole, failed, replace(whole, root=f"c/{hidden}", has_changes=False)])


def rendered(
    content: Content, format_: str, text: str, redact: Any = str, style: Style = PLAIN, verbose: bool = False
) -> str:
    if content is Content.FLEET:
        return render(content, fleet_with(text, format_, redact), format_, View(style=style))
    view = View(
        style, show_keep=True, redact=redact, verbose=verbose, plan=plan_with(text), digest="sha256:0"
    )
    return render(content, value_with(content, text), format_, view)


@cache
def harmless(content: Content, format_: str) -> str:
    return rendered(content, format_, HARMLESS)


CASES = [(content, format_) for content in Content for format_ in formats_of(content)]
_CONTROLS = re.compile(f"[\x00-\x08\x0b-\x1f{INVISIBLE}]")
_OBEYED = re.compile(r"^\s*::|##\[|##vso\[|##teamcity\[", re.MULTILINE)


@pytest.mark.parametrize(("content", "format_"), CASES)
def test_hostile_text_is_sanitized_in_every_format(content: Content, format_: str) -> None:
    wrong = {}
    for name, hostile in CORPUS.items():
        # Documents are Unicode, as the models that they are made of.
        text = hostile.encode("utf-8", "replace").decode() if format_ == "json" else hostile
        try:
            check_harmless(content, format_, rendered(content, format_, text))
        except AssertionError as error:
            wrong[name] = str(error)
    assert wrong == {}


def check_harmless(content: Content, format_: str, text: str) -> None:
    check_no_control(text, has_commands=format_ == "github")
    if check := _CHECKS.get(format_):
        check(text, harmless(content, format_))


def check_no_control(text: str, *, has_commands: bool = False) -> None:
    """Check that a text controls neither a terminal nor, unless it consists of commands, a CI service."""
    assert _CONTROLS.findall(text) == []
    text.encode("utf-8")
    assert has_commands or _OBEYED.findall(text) == []


@pytest.mark.parametrize("content", Content)
def test_terminal_output_has_no_escape_sequence_but_own_colours(content: Content) -> None:
    style = Style(colour=True, width=40)
    for hostile, verbose in itertools.product(CORPUS.values(), (False, True)):
        text = rendered(content, "text", hostile, style=style, verbose=verbose)
        # All output passes this filter last, so it must change nothing.
        assert visible(text) == text


# ── each format, as parsed by its reader ────────────────────────────────────────────────────────────


class Markup(HTMLParser):
    """The element counts and attributes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes |= {name for name, _ in attrs}


_markup = cache(Markup)


def check_html(text: str, plain: str) -> None:
    found, expected = Markup(text), _markup(plain)
    assert found.tags.keys() <= expected.tags.keys()
    for tag in ("script", "style", "tr", "table", "details", "meta"):
        assert found.tags[tag] == expected.tags[tag], tag
    assert found.attributes <= expected.attributes


_MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])
_STRANGE = {
    *("link_open", "image", "em_open", "s_open", "table_open", "hr", "ordered_list_open", "html_inline")
}
_OURS = {"details", "summary", "code", "b"}


@cache
def _kinds(text: str) -> Counter[str]:
    return Counter(token.type for token in _MARKDOWN.parse(text))


def check_markdown(text: str, plain: str) -> None:
    assert len(text) <= 60_000
    tokens = [token for block in _MARKDOWN.parse(text) for token in (block, *(block.children or ()))]
    kinds = Counter(token.type for token in tokens)
    expected = _kinds(plain)
    assert kinds.keys() & _STRANGE == set()
    assert kinds["heading_open"] <= expected["heading_open"]
    assert kinds["fence"] <= expected["fence"]
    for token in tokens:
        prose = token.content if token.type == "text" else ""
        if token.type == "html_block" and token.content.startswith("<!--"):
            assert token.content.find("-->") == len(token.content) - len("-->\n")
        elif token.type == "html_block":
            markup = Markup(token.content)
            assert set(markup.tags) <= _OURS, token.content
            assert markup.attributes == set()
            # Outside of code there must be no mention and no link.
            prose = re.sub(r"<code>.*?</code>", "", token.content)
        assert not re.search(r"@|#\d|https?:|www\.", prose), token.content


def check_github(text: str, plain: str) -> None:
    commands = [re.match(r"::(\w+) ", line) for line in text.splitlines()]
    assert all(commands)
    names = [command[1] for command in commands if command]
    assert names == [line[2:].partition(" ")[0] for line in plain.splitlines()]


def check_json(text: str, plain: str) -> None:
    assert _shape(json.loads(text)) == _shape_of(plain)


@cache
def _shape_of(text: str) -> Any:
    return _shape(json.loads(text))


def _shape(value: Any) -> Any:
    if isinstance(value, dict):
        # Data field names are as hostile as values.
        return sorted((k if re.fullmatch(r"[$a-zA-Z_/0-9]+", k) else "*") for k in value if k != HARMLESS)
    return [_shape(one) for one in value] if isinstance(value, list) else type(value)


def check_junit(text: str, plain: str) -> None:
    counts, expected = (Counter(e.tag for e in Xml.fromstring(t.encode()).iter()) for t in (text, plain))
    assert counts == expected


def check_prometheus(text: str, plain: str) -> None:
    found, expected = (
        [(s.name, s.value) for family in text_string_to_metric_families(one) for s in family.samples]
        for one in (text, plain)
    )
    assert found == expected


_CHECKS = {
    "html": check_html,
    "markdown": check_markdown,
    "github": check_github,
    "json": check_json,
    "sarif": check_json,
    "junit": check_junit,
    "prometheus": check_prometheus,
}


@pytest.mark.parametrize("text", CORPUS.values(), ids=CORPUS)
def test_hostile_text_adds_no_step_output_and_no_metric(text: str) -> None:
    def outputs(content: Content, text: str) -> list[str]:
        return step_outputs(content, value_with(content, text), View()).splitlines()

    for content in (Content.PLAN, Content.DRIFT):
        assert outputs(content, text) == outputs(content, HARMLESS)
    # The summary of a check has the stack name, which is normally validated, but hostile here.
    shown, expected = (outputs(Content.VALIDATION, one) for one in (text, HARMLESS))
    assert [line.partition("=")[0] for line in shown] == [line.partition("=")[0] for line in expected]
    run = RunReport("plan", text, text, is_success=False, ended_at_s=0, duration_s=0)
    plain = replace(run, stack="a", target="b")
    check_prometheus(*(render_run("prometheus", View(run=one)) for one in (run, plain)))


@pytest.mark.parametrize("content", [one for one in Content if "markdown" in formats_of(one)])
def test_comment_is_never_too_long(content: Content) -> None:
    shown = rendered(content, "markdown", "x<````" * 700)
    assert len(shown) <= MOST_CHARACTERS
    assert shown.startswith("<!-- reconciler: ")


# ── secrets, also those that escaping would hide from a search in the finished text ─────────────────

SECRETS = ["tell-nobody-1", "<tell>&'nobody'\"1", "tell%0Anobody:1,2", "tell`nobody`|1*_", "tell\\nobody]1"]


@pytest.mark.parametrize(("content", "format_"), CASES)
def test_no_secret_is_shown(content: Content, format_: str) -> None:
    for secret in SECRETS:
        redact = Redactor([secret])
        text = rendered(content, format_, f"it is {secret}.", redact)
        if format_ == "text":
            text = redact(text)
        assert "nobody" not in text
        assert REDACTED in text or format_ == "prometheus"
