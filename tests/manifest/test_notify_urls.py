"""URLs of `notify` that reach for this machine are errors of the manifest, and are shown nowhere."""

from __future__ import annotations

import sys

import pytest

from tests.manifest.conftest import HEAD, Place

TOKEN = "x-very-secret-9x"
URL = f"discord://id/{TOKEN}?template=/etc/passwd"


def test_services_are_judged_without_apprise(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    place.write(f"{HEAD}notify: [{{url: 'dbus://'}}]\n")
    assert place.problem().what == "notification URL not allowed"


def test_value_that_is_known_only_when_something_is_sent_is_not_sent_to(place: Place) -> None:
    place.write(f"{HEAD}variables: {{u: {{env: HOOK, sensitive: true}}}}\nnotify: [{{url: '${{var.u}}'}}]\n")
    environ = {"HOOK": ""}
    loaded = place.load(offline=True, environ=environ)
    environ["HOOK"] = URL
    (destination,) = loaded.destinations()
    assert destination.url is None
    assert destination.problem is not None
    assert destination.problem.what == "notification URL not allowed"
    assert TOKEN not in repr(destination)
