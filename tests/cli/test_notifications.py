"""`notify`: drift and failed applies are sent once to the declared URLs, which are never shown."""

from __future__ import annotations

import base64
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from reconciler.cli.main import cli, run
from tests.cli.conftest import Reconciler, World, manifest, put_finished_job, write
from tests.cli.test_interrupted import CREATE
from tests.cli.test_watch import TimeMachine
from tests.hostile.spellings_of_secrets import leak_of
from tests.notify.receiver import Receiver, receiving

SECRET = "tell-nobody-4711"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


def notifying(*entries: str, keys: tuple[str, ...] = ("a",), url: str | None = None) -> None:
    """Write a manifest with these entries of `notify`."""
    lines = "".join(f"  - {entry}\n" for entry in entries)
    variables = "variables: {chat: {env: CHAT, sensitive: true}}\n"
    write(manifest(*keys, url=url, more=f"{variables}notify:\n{lines}"))
    if url is None:
        put_finished_job()


def test_drift_is_notified_once_until_the_reminder_is_due(reconciler: Reconciler, receiver: Receiver) -> None:
    notifying(f"{{url: '{receiver.url('chat')}'}}")
    for _ in range(3):
        reconciler.ends(2, "drift")
    assert receiver.titles("chat") == ["test on there: drift, 1 new"]
    reconciler.ends(2, "drift --remind 0s")
    assert receiver.titles("chat")[1:] == ["test on there: drift, 1 lasting"]


def test_test_message_goes_to_each_url_and_each_result_is_reported(
    reconciler: Reconciler, receiver: Receiver
) -> None:
    notifying(f"{{url: '{receiver.url('chat')}', on: [missing]}}", "{url: '${var.chat}'}")
    reconciler.setenv("CHAT", receiver.url("more"))
    sent = "notify at jobs.yaml:7:6: sent\nnotify at jobs.yaml:8:6: sent\n"
    assert reconciler.ends(0, "notify test").out == sent
    assert receiver.titles("chat") == receiver.titles("more") == ["test: test message"]
    reconciler.setenv("CHAT", receiver.url(f"broken/{SECRET}"))
    reconciler.ends(1, "notify test", out=["7:6: sent", "8:6: failed: "], lacks=SECRET)
    write(manifest("a"))
    reconciler.ends(0, "notify test", out="", err="stack test has no `notify`; nothing was sent")


def test_failing_url_is_reported_and_retried_without_changing_the_exit_code(
    reconciler: Reconciler, receiver: Receiver
) -> None:
    notifying("{url: '${var.chat}', on: [missing]}")
    reconciler.setenv("CHAT", receiver.url(f"broken/{SECRET}"))
    reconciler.ends(
        2,
        "drift -v -o prometheus=m.prom -o text",
        err="notification to notify at jobs.yaml:7:6 failed",
        lacks=SECRET,
    )
    assert 'reconciler_notifications_failed_total{stack="test",target="there",command="drift"} 1.0' in Path(
        "m.prom"
    ).read_text(encoding="utf-8")
    reconciler.setenv("CHAT", receiver.url("chat"))
    reconciler.ends(2, "drift")
    reconciler.ends(2, "drift")
    assert receiver.titles("chat") == ["test on there: drift, 1 lasting"]


def test_failing_url_does_not_change_the_exit_code_of_later_checks(
    reconciler: Reconciler, receiver: Receiver
) -> None:
    notifying("{url: '${var.chat}', on: [missing]}")
    reconciler.setenv("CHAT", receiver.url("broken"))
    assert [reconciler("drift --since-last").code for _ in range(3)] == [2, 0, 0]
    reconciler.setenv("CHAT", receiver.url("chat"))
    assert [reconciler("drift --since-last").code for _ in range(2)] == [0, 0]
    assert receiver.titles("chat") == ["test on there: drift, 1 lasting"]


def test_working_url_is_not_notified_again_while_another_fails(
    reconciler: Reconciler, receiver: Receiver
) -> None:
    notifying(*(f"{{url: '{receiver.url(name)}'}}" for name in ("broken", "good")))
    for line in ("drift", "drift --since-last", "drift"):
        reconciler(line)
    assert receiver.titles("broken")[1:] == ["test on there: drift, 1 lasting"] * 2
    assert receiver.titles("good") == ["test on there: drift, 1 new"]
    reconciler("drift --remind 0s")
    assert receiver.titles("good")[1:] == ["test on there: drift, 1 lasting"]


def test_each_url_is_notified_of_its_classes_only(reconciler: Reconciler, receiver: Receiver) -> None:
    notifying(
        f"{{url: '{receiver.url('some')}', on: [failed, apply_failed]}}", f"{{url: '{receiver.url('all')}'}}"
    )
    reconciler("drift")
    assert (receiver.titles("some"), len(receiver.titles("all"))) == ([], 1)


def test_url_without_a_value_is_reported_and_drift_is_still_shown(reconciler: Reconciler) -> None:
    notifying("{url: '${var.chat}'}")
    reconciler.ends(2, "drift", err='"chat" has no value')


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("{url: 'json://here/', on: [missng]}", 'did you mean "missing"?'),
        ("{url: 'json://here/', on: []}", "notify[0].on"),
        ("{url: 'nonsense://here/'}", "invalid notification URL"),
        ("{on: [missing]}", "url"),
        ("{url: 'json://${var.chta}/'}", 'undefined variable "chta"'),
    ],
)
def test_invalid_notification_is_reported_by_validate(reconciler: Reconciler, entry: str, words: str) -> None:
    notifying(entry)
    reconciler.ends(65, "validate", err=words)


def test_url_in_the_manifest_is_in_no_message(reconciler: Reconciler) -> None:
    wrong = (
        f"notify: [{{url: 'json://here/{SECRET}', on: [missng]}}]",
        f"notify: [{{ulr: 'json://here/{SECRET}'}}]",
        f"notify: ['json://here/{SECRET}']",
        f"notify: [{{url: 'nonsense://{SECRET}'}}]",
        f"notify: [{{url: ['json://here/{SECRET}']}}]",
        f"notify: slack://here/{SECRET}/b",
        f"notify: [{{'slack://here/{SECRET}/b': x}}]",
        f"notfy: [{{url: 'slack://here/{SECRET}/b'}}]",
    )
    for section in wrong:
        write(manifest("a", more=f"{section}\n"))
        for line in ("validate", "validate --json"):
            reconciler.ends(65, line, lacks=SECRET)


def test_failed_apply_is_notified(world: World, receiver: Receiver) -> None:
    world.setenv("CHAT", receiver.url("chat"))
    notifying(f"{{url: '{receiver.url('chat')}', on: [apply_failed]}}", url=world.url)
    world.fail(CREATE, status=400, code="ModelArts.2758", count=1)
    world.ends(5, "apply --yes")
    [message] = receiver.messages["chat"]
    assert message["title"] == "test on there: apply failed, 1 of its actions"
    assert message["message"].startswith("create a: failed")
    world.ends(0, "apply --yes")
    assert len(receiver.messages["chat"]) == 1


HUSH = "tell/nobody+9!x"
#: The forms in which a service may echo it: plain, in a URL, as base64, escaped.
FORMS = {
    "as it is": HUSH,
    "in a URL": quote(HUSH, safe=""),
    "in base64": base64.b64encode(HUSH.encode()).decode(),
    "escaped": json.dumps(HUSH).replace("/", "\\/")[1:-1],
    "at the end of a line that is cut": "word " * 34 + HUSH,
}


def repeating(world: World, receiver: Receiver, form: str) -> None:
    """A stack whose job has the secret in its reported description."""
    variables = "variables: {token: {env: THE_TOKEN, sensitive: true}}\n"
    url = receiver.url("chat")
    world.write("a", more=f"{variables}notify: [{{url: '{url}'}}]\n")
    assert run(cli, ["apply", "--yes"]) == 0
    [job] = world.store.jobs()
    text = job.body["metadata"]["description"].replace("a of the test", FORMS[form])
    world.store.edit(job.id, lambda body: body["metadata"].update(description=text))


UPDATE = "ChangeTrainingJobDescription"
COMMANDS = {
    "drift": ("drift",),
    "fleet": ("drift", "--fleet", "."),
    "watch": ("watch", "--every", "15m"),
    "apply_failed": ("apply", "--yes"),
}


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize(
    ("kind", "form"),
    [*(("drift", form) for form in FORMS), *((kind, "in base64") for kind in COMMANDS if kind != "drift")],
)
def test_secret_that_the_service_repeats_is_in_no_notification(
    world: World, receiver: Receiver, kind: str, form: str
) -> None:
    world.setenv("THE_TOKEN", HUSH)
    repeating(world, receiver, form)
    machine = TimeMachine((), signal.SIGTERM)  # which comes after the first check
    machine.take_place(world.patch)
    if kind == "apply_failed":
        refusal = f"no: {FORMS[form]}"
        world.fail(UPDATE, status=400, code="x", message=refusal, count=None)
    world(*COMMANDS[kind])
    [message] = receiver.messages["chat"]
    text = json.dumps(message, ensure_ascii=False)
    assert any(mark in text for mark in ("(sensitive)", "(masked: ", "…"))
    assert leak_of(HUSH, text) is None
