"""The report of a fleet as JUnit XML: a suite per stack."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as Xml

from reconciler.core.values import timestamp
from reconciler.decide.fleet import message_of
from reconciler.render.junit import add_case, finished, new_suite, xml_text
from reconciler.render.style import View
from reconciler.text import printable

if TYPE_CHECKING:
    from reconciler.decide.fleet import FleetReport, StackResult


def render_fleet(report: FleetReport, view: View) -> str:
    """The suites of all stacks; a stack that failed has one testcase, which failed."""
    root = Xml.Element("testsuites")
    for number, result in enumerate(report.results):
        text = _failed(report.command, result) if result.errors else result.parts["junit"]
        for suite in Xml.fromstring(text.encode()):  # noqa: S314 - a format of ours wrote it
            suite.set("id", str(number))
            root.append(suite)
    Xml.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{Xml.tostring(root, encoding="unicode")}\n'


def _failed(command: str, result: StackResult) -> str:
    """A document with the one suite of a stack that has no report of its own."""
    name = printable(result.root)
    about = f"{command}.{name}"
    created = timestamp(result.ended_at_s).removesuffix("Z")
    root, suite = new_suite(about, created, tests=1, failures=1)
    case = add_case(suite, name, about)
    said = [message_of(one) + (f" ({one.location})" if one.location else "") for one in result.errors]
    attributes = {"type": f"exit code {int(result.exit_code)}", "message": xml_text(printable(said[0]))}
    Xml.SubElement(case, "failure", attributes).text = xml_text("\n".join(map(printable, said)))
    return finished(root, suite, "", "")
