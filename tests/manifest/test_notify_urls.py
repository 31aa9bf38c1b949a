"""URLs of `notify` that reach for this machine are errors of the manifest, and are shown nowhere."""

from __future__ import annotations

import sys

import pytest

from tests.manifest.conftest import HEAD, Place, place_of

TOKEN = "x-very-secret-9x"
URL = f"discord://id/{TOKEN}?template=/etc/passwd"


@pytest.mark.parametrize(
    ("variables", "url", "environ", "offline"),
    [
        ("{}", URL, {}, False),
        ("{}", URL, {}, True),
        ("{}", f"syslog://{TOKEN}", {}, True),
        ("{}", "${env.HOOK}", {"HOOK": URL}, False),
        ("{}", "macosx://${env.HOOK}", {}, True),
        ("{}", "discord://${env.HOOK}?template=x", {}, True),
        (f"{{u: {{default: '{URL}'}}}}", "${var.u}", {}, False),
        ("{u: {env: HOOK, sensitive: true}}", "${var.u}", {"HOOK": URL}, False),
        ("{u: {env: HOOK, sensitive: true}}", "${var.u}", {"HOOK": URL}, True),
        ("{u: {env: HOOK, sensitive: true}}", "discord://${var.u}?template=x", {}, True),
        ("{n: {default: template}}", "discord://a/b?${var.n}=/etc/passwd", {}, False),
        ("{n: {default: sys}}", "${var.n}log://", {}, True),
    ],
)  # fmt: skip
def test_url_that_reaches_for_this_machine_is_an_error_at_its_place(
    place: Place, variables: str, url: str, environ: dict[str, str], offline: bool
) -> None:
    place.write(f"{HEAD}variables: {variables}\nnotify:\n  - url: '{url}'\n")
    problem = place.problem(environ=environ, offline=offline)
    assert (problem.what, problem.path) == ("notification URL not allowed", "notify[0].url")
    assert place_of(problem) == "main.yaml:5:10"
    assert TOKEN not in repr(problem)
    assert "passwd" not in repr(problem)


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
