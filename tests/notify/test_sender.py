"""Messages by Apprise: concurrent, each with a time limit, and no URL in any message."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from reconciler.core.settings import Destination
from reconciler.errors import PackageMissing
from reconciler.notify import SEND_LIMIT_S, Message, _send, service_of
from tests.notify.receiver import Receiver, receiving

SECRET = "tell-nobody-4711"
PUNCTUATED = "tell+nobody 4712"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


def sent(*urls: str, limit_s: float = SEND_LIMIT_S) -> list[str]:
    """Send a message to each; return the failures."""
    return _send([(Destination(url), Message("title", "text")) for url in urls], limit_s=limit_s)


def test_each_message_goes_to_its_url(receiver: Receiver) -> None:
    paths = ("one", "two")
    messages = [(Destination(receiver.url(path)), Message(f"for {path}", "a\n b")) for path in paths]
    assert _send(messages) == ["", ""]
    assert [receiver.titles(path) for path in paths] == [["for one"], ["for two"]]
    assert receiver.messages["one"][0]["message"] == "a\n b"


def test_failure_of_one_url_is_reported_without_it_and_blocks_no_other(
    receiver: Receiver, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    urls = (
        receiver.url(f"broken/{SECRET}"),
        receiver.url("good"),
        f"json://user:{SECRET}@127.0.0.1:1/{SECRET}",
        f"nonsense://{SECRET}",
        receiver.url(f"broken/{quote(PUNCTUATED, safe='')}"),
    )
    with caplog.at_level(logging.DEBUG):
        problems = sent(*urls)
    assert [bool(problem) for problem in problems] == [True, False, True, True, True]
    assert "500" in problems[0]
    assert receiver.titles("good") == ["title"]
    text = "".join((*problems, caplog.text, *capfd.readouterr()))
    assert SECRET not in text
    assert PUNCTUATED not in text


def test_service_that_does_not_answer_in_time_has_failed(receiver: Receiver) -> None:
    assert sent(receiver.url("hanging"), limit_s=0.2) == ["no response within 0.2 s"]


def test_messages_are_sent_at_the_same_time(receiver: Receiver) -> None:
    """The first response is sent after the second request."""
    urls = [f"{receiver.url(path)}?rto=60" for path in ("hanging", "releasing")]
    assert sent(*urls, limit_s=30) == ["", ""]


def test_apprise_logging_of_other_users_is_unaffected(caplog: pytest.LogCaptureFixture) -> None:
    assert service_of("json://localhost/") is not None
    logging.getLogger("apprise").warning("somebody else's")
    assert "somebody else's" in caplog.text


@pytest.mark.parametrize(
    ("url", "is_known"), [("json://localhost/", True), ("nonsense://x", False), ("slack://x", False)]
)
def test_service_is_recognized_by_its_url(url: str, is_known: bool) -> None:
    assert (service_of(url) is not None) is is_known


def test_apprise_that_cannot_be_imported_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(PackageMissing) as missing:
        service_of("json://h")
    assert missing.value.diagnostics[0].fix == "pip install 'reconciler[notify]'"
