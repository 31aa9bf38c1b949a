"""Text from the service or a manifest steers nothing that shows it: one corpus, every format and content."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree as Xml

import pytest
from markdown_it import MarkdownIt
from prometheus_client.parser import text_string_to_metric_families

from reconciler.core.record import PastAction, PastStep
from reconciler.core.stack import Declared
from reconciler.core.values import Denial, PreflightReason, Source
from reconciler.decide.drift import DriftReport
from reconciler.decide.drift_check import Drift, DriftClass, DriftComparison, IgnoredBy, IgnoredDrift
from reconciler.decide.fleet import FleetReport, StackResult
from reconciler.decide.history import HistoryReport
from reconciler.decide.metrics import RunReport
from reconciler.decide.outcome import Outcome, Result, Status, Waited, WaitEnd
from reconciler.decide.plan import Action, Plan, PreflightFinding
from reconciler.decide.policies import CaseResult, CasesReport
from reconciler.decide.review import NodeCount, Review
from reconciler.decide.validation import DeniedJob, ManifestProblem, Validation
from reconciler.errors import Diagnostic, ExitCode, Location, Severity, Snippet
from reconciler.render import PLAIN, Content, Style, View, formats_of, render, render_run, step_outputs
from reconciler.render.markdown import MOST_CHARACTERS
from reconciler.secrets import REDACTED, Redactor
from reconciler.text import INVISIBLE, visible
from tests.builders import NOW
from tests.render.test_golden import drifted, every_action
from tests.render.test_history import a_report, a_revision, a_run
from tests.render.test_review import every_change

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


@cache
def plan_with(text: str) -> Plan:
    """The plan of every action, in which each text from outside is this one."""
    plan = every_action()
    actions = []
    # What is compared is known to be Unicode: jobs and manifests that hold anything else are refused.
    value = text.encode("utf-8", "replace").decode()
    for number, action in enumerate(plan.actions):
        changes = [
            change.model_copy(update={"path": f"a.{value}", "before": {value: value}, "after": [value, 1]})
            for change in action.changes
        ]
        source = action.source and action.source.model_copy(update={"file": f"{text}.yaml"})
        changed: dict[str, Any] = {"key": f"{number}{text}", "detail": text, "changes": tuple(changes)}
        if action.desired is not None:
            changed["desired"] = {"spec": {"resource": {"flavor_id": text}}}
        for name in ("before", "after"):
            shown = getattr(action, name)
            changed[name] = shown and shown.model_copy(update={"name": text})
        actions.append(action.model_copy(update={**changed, "source": source}))
    warnings = [
        one.model_copy(update={"what": f"a{text}", "why": text, "fix": text, "key": text})
        for one in plan.warnings
    ]
    target = {"name": f"t{text}", "endpoint": f"https://{text}", "project_id": text}
    return plan.model_copy(
        update={
            "actions": tuple(actions),
            "warnings": tuple(warnings),
            "target": plan.target.model_copy(update=target),
            "denied": denied_with(text, actions[0].key),
            "preflight": findings_with(text, actions[0].key),
            "refusals": (Diagnostic(f"refused{text}", text, text),),
        }
    )


@cache
def drift_with(text: str) -> DriftReport:
    report = drifted()
    drift = []
    value = text.encode("utf-8", "replace").decode()
    for number, entry in enumerate(report.drift):
        changes = [
            change.model_copy(update={"path": f"a.{value}", "before": value, "after": value})
            for change in entry.changes
        ]
        source = entry.source and entry.source.model_copy(update={"file": f"{text}.yaml"})
        changed = {"key": f"{number}{text}", "detail": text, "since": text, "changes": tuple(changes)}
        more = {"source": source, **({} if number else {"began_at": text, "fix": text})}
        drift.append(entry.model_copy(update={**changed, **more}))
    pending = [one.model_copy(update={"key": f"p{text}", "detail": text}) for one in report.pending]
    target = report.target.model_copy(update={"name": f"t{text}"})
    changed_report = {"drift": tuple(drift), "pending": tuple(pending), "target": target}
    new, *lasting = drift
    lists: dict[str, Any] = {"new": (new,), "gone": tuple(gone_with(text)), "ignored": ignored_with(text)}
    comparison = DriftComparison(0.0, 0.0, lasting=tuple(lasting), new=lists["new"], gone=lists["gone"])
    return report.model_copy(
        update={
            **changed_report,
            **lists,
            "since_last": True,
            "comparison": comparison,
            "keys": tuple(entry.key for entry in drift),
        }
    )


def gone_with(text: str) -> Iterator[Drift]:
    yield Drift.model_construct(key=f"g{text}", class_=DriftClass.FAILED, job=text, detail=text, since=text)


def ignored_with(text: str) -> tuple[IgnoredDrift, ...]:
    entry: dict[str, Any] = {
        "class_": DriftClass.FAILED,
        "job": text,
        "detail": text,
        "since": text,
        "reason": text,
    }
    place = Source(file=f"{text}.yaml", line=1, column=1)
    return (
        IgnoredDrift.model_construct(**entry, key=f"i{text}", by=IgnoredBy.RULE, until=text, rule=place),
        IgnoredDrift.model_construct(
            **entry, key=f"j{text}", by=IgnoredBy.ACCEPT, who=text, accepted_at=text
        ),
    )


@cache
def result_with(text: str) -> Result:
    actions = plan_with(text).actions
    outcomes = tuple(
        Outcome(action, status, text, message=text, code=text, request_id=text)
        for action, status in zip(actions, Status, strict=False)
    )
    return Result(outcomes, waits=(Waited(f"w{text}", Action.CREATE, WaitEnd.BLOCKED, text),))


@cache
def review_with(text: str) -> Review:
    review = every_change()
    value = text.encode("utf-8", "replace").decode()
    jobs = []
    for number, job in enumerate(review.jobs):
        changes = [
            change.model_copy(update={"path": f"a.{value}", "before": value, "after": {value: value}})
            for change in job.changes
        ]
        source = job.source and job.source.model_copy(update={"file": f"{text}.yaml"})
        # Each says something of its own, so that the same ones are folded whatever the text.
        said = {"key": f"{number}{text}", "detail": f"{number}{text}", "starts": text and job.starts and text}
        jobs.append(job.model_copy(update={**said, "changes": tuple(changes), "source": source}))
    setting = review.settings[0].model_copy(update={"path": value, "before": value, "after": [value]})
    nodes = review.nodes.model_copy(update={"flavors": {text: NodeCount(before=1, after=2)}})
    sides = {
        name: getattr(review, name).model_copy(update={"name": f"s{text}", "commit": None})
        for name in ("base", "head")
    }
    warnings = [one.model_copy(update={"what": text, "why": text, "fix": text}) for one in review.warnings]
    more = {"jobs": tuple(jobs), "settings": (setting,), "nodes": nodes, "warnings": tuple(warnings)}
    denied = denied_with(text, jobs[0].key)
    return review.model_copy(update={**more, **sides, "target": f"t{text}", "denied": denied})


def denied_with(text: str, key: str) -> tuple[Denial, ...]:
    source = Source(file=f"{text}.yaml", line=1, column=1)
    return (
        Denial(key=key, policy=f"p{text}", message=text, source=source),
        Denial(key=key, policy=f"q{text}", problem=text),
    )


def findings_with(text: str, key: str) -> tuple[PreflightFinding, ...]:
    source = Source(file=f"{text}.yaml", line=1, column=1)
    return tuple(
        PreflightFinding(key=key, reason=reason, path=text, detail=text, fix=text, source=source)
        for reason in PreflightReason
    )


@cache
def cases_with(text: str) -> CasesReport:
    return CasesReport("stack", (CaseResult(text), CaseResult(f"{text}.yaml", (text, text))))


def fleet_with(text: str, format_: str, redact: Any = str) -> FleetReport:
    """Two stacks with one name, which metrics tell apart by their roots, and one that failed."""
    plan = plan_with(text)
    part = render(Content.PLAN, plan, format_, View(redact=redact))
    hidden = redact(text)
    whole = StackResult(
        root=f"a/{hidden}",
        stack=plan.stack,
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


@cache
def validation_with(text: str) -> Validation:
    found = [
        Diagnostic(text, text, text, Location(f"{text}.yaml", 1, 1), text, Snippet(text, 0, 1)),
        Diagnostic(text, path=text),
        Diagnostic(f"w{text}", text, severity=Severity.WARNING),
    ]
    report = Validation(
        reconciler_version="0.0.0",
        valid=False,
        stack=f"s{text}",
        target=f"t{text}",
        targets=(text,),
        files=(f"{text}.yaml",),
        diagnostics=tuple(map(ManifestProblem.of, found[:2])),
    )
    denied = tuple(
        DeniedJob(**dict(one), targets=(f"t{text}",), job=Source(file=f"{text}.yaml", line=1, column=1))
        for one in denied_with(text, f"k{text}")
    )
    warnings = (ManifestProblem.of(found[2]),)
    return report.model_copy(update={"denied": denied, "warnings": warnings})


@cache
def history_with(text: str) -> HistoryReport:
    value = text.encode("utf-8", "replace").decode()
    step = PastStep(text, text, text, text, text, NOW, NOW, False, text, text, text)
    action = PastAction(text, text, text, "failed", text, text, text)
    said = dict.fromkeys(("who", "where", "command", "commit", "plan_digest", "result"), text)
    run = a_run(1, kind=text, summary={"failed": 1}, actions=(action,), steps=(step,), **said)
    declared = Declared({value: value}, {}, text)
    names = dict.fromkeys(("name", "job", "digest", "phase_text"), text)
    revision = a_revision(1, key=f"k{text}", phases=((text, NOW),), declared=declared, **names)
    report = a_report(key=f"k{text}", runs=(run,), revisions=(revision,))
    return report.model_copy(update={"stack": f"s{text}", "target": plan_with(text).target})


def rendered(
    content: Content,
    format_: str,
    text: str,
    redact: Any = str,
    style: Style = PLAIN,
    *,
    verbose: bool = False,
) -> str:
    if content is Content.FLEET:
        return render(content, fleet_with(text, format_, redact), format_, View(style=style))
    values = {
        Content.VALIDATION: validation_with,
        Content.HISTORY: history_with,
        Content.PLAN: plan_with,
        Content.DRIFT: drift_with,
        Content.RESULT: result_with,
        Content.REVIEW: review_with,
        Content.CASES: cases_with,
    }
    view = View(
        style, show_keep=True, redact=redact, verbose=verbose, plan=plan_with(text), digest="sha256:0"
    )
    return render(content, values[content](text), format_, view)


@cache
def harmless(content: Content, format_: str) -> str:
    return rendered(content, format_, HARMLESS)


CASES = [(content, format_) for content in Content for format_ in formats_of(content)]
_CONTROLS = re.compile(f"[\x00-\x08\x0b-\x1f{INVISIBLE}]")
_OBEYED = re.compile(r"^\s*::|##\[|##vso\[|##teamcity\[", re.MULTILINE)


@pytest.mark.parametrize("name", CORPUS)
@pytest.mark.parametrize(("content", "format_"), CASES)
def test_nothing_of_it_is_obeyed(content: Content, format_: str, name: str) -> None:
    hostile = CORPUS[name]
    if format_ == "json":  # documents are Unicode, as the models that they are made of
        hostile = hostile.encode("utf-8", "replace").decode()
    text = rendered(content, format_, hostile)
    check_no_control(text, has_commands=format_ == "github")
    if check := _CHECKS.get(format_):
        check(text, harmless(content, format_))


def check_no_control(text: str, *, has_commands: bool = False) -> None:
    """Nothing in a text steers a terminal or, unless it is made of commands, a CI service."""
    assert _CONTROLS.findall(text) == []
    text.encode("utf-8")
    assert has_commands or _OBEYED.findall(text) == []


@pytest.mark.parametrize("content", Content)
def test_terminal_sees_no_sequence_but_colours_and_links_of_ours(content: Content) -> None:
    style = Style(colour=True, width=40, url_of=lambda _: "file:///srv/jobs.yaml", link_id="0123")
    for hostile, verbose in itertools.product(CORPUS.values(), (False, True)):
        text = rendered(content, "text", hostile, style=style, verbose=verbose)
        # What holds something else would be changed: this is what all output passes last.
        assert visible(text, "0123") == text


# ── each format, as what reads it takes it ──────────────────────────────────────────────────────────


class Markup(HTMLParser):
    """How many elements of a kind a page has, and which attributes."""

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
        if token.type == "html_block" and token.content.startswith("<!--"):
            assert token.content.find("-->") == len(token.content) - len("-->\n")
        elif token.type == "html_block":
            markup = Markup(token.content)
            assert set(markup.tags) <= _OURS, token.content
            assert markup.attributes == set()
            # Where no code is, no mention and no link is made either.
            prose = re.sub(r"<code>.*?</code>", "", token.content)
            assert not re.search(r"@|#\d|https?:|www\.", prose), token.content
        elif token.type == "text":
            assert not re.search(r"@|#\d|https?:|www\.", token.content), token.content


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
        # The names of fields that are data are as hostile as their values.
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
def test_no_output_of_a_step_and_no_metric_of_a_run_is_added(text: str) -> None:
    def outputs(content: Content, value: Any) -> list[str]:
        return step_outputs(content, value, View()).splitlines()

    assert outputs(Content.PLAN, plan_with(text)) == outputs(Content.PLAN, plan_with(HARMLESS))
    assert outputs(Content.DRIFT, drift_with(text)) == outputs(Content.DRIFT, drift_with(HARMLESS))
    # The summary of a check names the stack, which the schema of names keeps harmless; here it is not.
    shown, expected = (outputs(Content.VALIDATION, validation_with(one)) for one in (text, HARMLESS))
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


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize(("content", "format_"), CASES)
def test_no_secret_is_shown(content: Content, format_: str, secret: str) -> None:
    redact = Redactor([secret])
    text = rendered(content, format_, f"it is {secret}.", redact)
    if format_ == "text":
        text = redact(text)
    assert "nobody" not in text
    assert REDACTED in text or format_ == "prometheus"
