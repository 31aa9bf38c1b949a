"""Write the generated parts of the documentation.

    python -m docs.generate            # from the root of the clone

These are the commands, fields and phases of docs/reference, the tables below a marker such as `<!-- table:
rules -->`, and the output of the commands on the pages of `RUN_PAGES`. A test generates them again and
compares.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import click

from docs.doc_runner import PageRun
from docs.translations import original_of, translations, with_code_of
from reconciler.cli.main import COMMANDS, cli, run
from reconciler.cli.project import schema as schema_of
from reconciler.core.fields.job import JobBody
from reconciler.core.phase import RULES as PHASE_RULES
from reconciler.core.phase import Operation, Phase
from reconciler.core.schema import fields
from reconciler.decide.plan import ACTIONS, Action, Reason
from reconciler.decide.rules import HINTS, RULES

ROOT = Path(__file__).parents[1]
REFERENCE = Path("docs/reference")
#: Page → the directory below the root in which its commands are run.
RUN_PAGES: dict[Path, Path] = {
    Path("README.md"): Path(),
    **{
        page.relative_to(ROOT): Path()
        for directory in ("concepts", "coming-from")
        for page in sorted(ROOT.glob(f"docs/{directory}/*.md"))
        if "." not in page.stem
    },
    Path("docs/index.md"): Path(),
    Path("docs/start/install.md"): Path(),
    Path("docs/start/first-job.md"): Path(),
    Path("docs/start/repository.md"): Path("examples/first-job"),
    Path("docs/operations/fleets.md"): Path(),
    Path("docs/reference/manifest.md"): Path(),
    Path("docs/operations/records.md"): Path("examples/first-job"),
    Path("docs/guides/adopt.md"): Path(),
    Path("docs/guides/code.md"): Path("examples/first-job"),
    Path("docs/guides/drift-alerts.md"): Path("examples/scheduled"),
    Path("docs/guides/environments.md"): Path(),
    Path("docs/guides/local-runs.md"): Path("examples/first-job"),
    Path("docs/guides/nightly.md"): Path("examples/nightly"),
    Path("docs/guides/notebook.md"): Path(),
    Path("docs/guides/pipeline.md"): Path("examples/pipeline"),
    Path("docs/guides/policies.md"): Path("examples/policies"),
    Path("docs/guides/retries.md"): Path("examples/retry-on-failure"),
    Path("docs/guides/review.md"): Path("examples/update-in-place"),
    Path("docs/guides/sweep.md"): Path("examples/sweep"),
    Path("docs/reference/python.md"): Path("examples/update-in-place"),
    Path("docs/reference/saved-plans.md"): Path("examples/first-job"),
    **{page.relative_to(ROOT): page.parent.relative_to(ROOT) for page in ROOT.glob("examples/*/README.md")},
}
#: Pages whose jobs really run.
REAL_TIME = {
    Path("README.md"),
    Path("docs/guides/code.md"),
    Path("docs/guides/local-runs.md"),
    Path("docs/guides/sweep.md"),
    Path("docs/start/first-job.md"),
}
#: Pages with tables whose commands are not run.
_TABLES = [REFERENCE / name for name in ("cli.md", "reasons.md", "schemas.md")]
_GENERATED = "<!-- Written by `python -m docs.generate`; do not edit. -->\n"
#: The maximum width that fits the site beside its two sidebars.
_COLUMNS = "84"


def generate(page: Path) -> str:
    """Return the text that a page of `PAGES` should have."""
    with mock.patch.dict(os.environ, _environment(), clear=True):
        return PAGES[page]()


def _environment() -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("RECONCILER_")}
    alice = {"NAME": "alice", "EMAIL": "alice@example.com", "DATE": "2026-11-18T12:00:00Z"}
    git = {f"GIT_{role}_{what}": one for role in ("AUTHOR", "COMMITTER") for what, one in alice.items()}
    return {**ours, **git, "COLUMNS": _COLUMNS}


_COMMANDS = """\
The help text of every command. [The command line](cli.md) has what they have in common: arguments, options
and their environment variables, credentials, formats.
"""
_STATES = """\
The operations that each phase allows; the program never sends the others. A phase that is not in the table
is [blocked](reasons.md). `reconciler explain states` prints this table.
"""
_FIELDS = """\
Every field of a job, and what an edit of it means. `reconciler explain FIELD` prints one field.
"""
_UPDATES = """\
These fields of an existing job can be changed, on the clouds in parentheses. An edit of any other field of
the request means a new job.
"""


def _commands() -> str:
    parts = [f"# Commands\n\n{_GENERATED}\n{_COMMANDS}"]
    for words in ([], *_names()):
        title = " ".join(["reconciler", *words])
        parts.append(f"\n## {title}\n\n{_fenced(_printed(*words, '--help'))}")
    return "".join(parts)


def _states() -> str:
    rules = {phase: PHASE_RULES[phase] for phase in Phase}
    rows = [
        [
            phase,
            ", ".join(one for one in Phase if one in rule.expected_next),
            ", ".join(operation for operation in Operation if rule.verdicts[operation]) or "–",
        ]
        for phase, rule in rules.items()
    ]
    illegal: dict[tuple[str, str, str], list[str]] = {}
    for operation in Operation:
        for phase, rule in rules.items():
            if not (verdict := rule.verdicts[operation]):
                illegal.setdefault((operation, verdict.why, verdict.legal_when), []).append(phase)
    reasons = [[what, ", ".join(phases), why, when] for (what, why, when), phases in illegal.items()]
    return (
        f"# Phases\n\n{_GENERATED}\n{_STATES}\n{_table(['phase', 'expected next', 'allowed'], rows)}"
        f"\n## Why not\n\n{_table(['operation', 'phase', 'why not', 'legal'], reasons)}"
    )


def _fields() -> str:
    updates, own = [], []
    sections: dict[str, list[tuple[str, str]]] = {"Other fields": []}
    for path, edit, description in fields():
        top = path.partition(".")[0].partition("[")[0]
        if top not in JobBody.model_fields:
            own.append((f"`{path}`", edit, description))
        elif edit.startswith("update"):
            updates.append((f"`{path}`", edit, description))
        else:
            title = top if top in ("algorithm", "spec", "tasks") else "Other fields"
            sections.setdefault(title, []).append((f"`{path}`", description))
    parts = [f"# Fields of a job\n\n{_GENERATED}\n{_FIELDS}\n## Updates\n\n{_UPDATES}\n"]
    head = ["field", "an edit means", "description"]
    parts.append(f"{_table(head, updates)}\n## Keys of the program\n\n{_table(head, own)}")
    for title in sorted(sections, key=lambda title: (title[0].isupper(), title)):
        parts.append(f"\n## {title}\n\n{_table(['field', 'description'], sections[title])}")
    return "".join(parts)


def _names() -> Iterator[list[str]]:
    context = click.Context(cli)
    for name in COMMANDS:
        yield [name]
        command = cli.get_command(context, name)
        if isinstance(command, click.Group):
            yield from ([name, inner] for inner in command.list_commands(context))


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    cells = [[*head], *([cell.replace("|", r"\|") for cell in row] for row in rows)]
    first, *others = (f"| {' | '.join(line)} |\n" for line in cells)
    return f"{first}|{'---|' * len(cells[0])}\n{''.join(others)}"


def _fenced(text: str) -> str:
    return f"```text\n{text}```\n"


def _printed(*arguments: str) -> str:
    with redirect_stdout(io.StringIO()) as out:
        run(cli, list(arguments))
    return out.getvalue()


def _run_again(page: Path, directory: Path) -> str:
    # A supervisor may write its last line after its job has been reported as ended.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as copy:
        ignored = shutil.ignore_patterns(".*")
        shutil.copytree(ROOT / "examples", Path(copy) / "examples", ignore=ignored)
        text = (ROOT / page).read_text(encoding="utf-8")
        here = Path(copy) / directory
        is_top = directory == Path()
        return PageRun(here, is_real_time=page in REAL_TIME, has_directories=is_top).run_again(text)


#: A table below a marker, or the place for one.
_MARKED = re.compile(r"^(<!-- table: ([\w.]+) -->\n)(?:\n?\|.*\n)*", re.M)
#: The numbers of a plan's or a review's actions, in an example.
_COUNTS = re.compile(r'\{"create": \d[^}]*\}')


def _with_tables(page: Path) -> str:
    """Return the page with the output of its commands and the tables of its markers."""
    text = (ROOT / page).read_text(encoding="utf-8")
    text = _run_again(page, RUN_PAGES[page]) if page in RUN_PAGES else text
    text = _MARKED.sub(lambda found: f"{found[1]}\n{_marked_table(found[2])}", text)
    return _COUNTS.sub(lambda found: json.dumps(dict.fromkeys(Action, 0) | json.loads(found[0])), text)


def _marked_table(name: str) -> str:
    """Return a table: rules, actions, reasons, or the members of a document or object (`plan.Cost`)."""
    if name == "rules":
        return _table(
            ["rule", "when", "action"],
            (
                (f"`{rule.name}`", rule.when, ", ".join(f"**{one}**" for one in rule.actions))
                for rule in RULES
            ),
        )
    if name == "actions":
        return _table(
            ["symbol", "action", "colour"],
            ((f"`{traits.symbol}`", action, traits.colour) for action, traits in ACTIONS.items()),
        )
    if name == "reasons":  # with the suggestion of `why` for each
        return _table(
            ["reason", "meaning", "to change it"],
            ((f"`{reason}`", reason.meaning, "; ".join(HINTS.get(reason, ())) or "–") for reason in Reason),
        )
    document, _, model = name.partition(".")
    schema = schema_of(document)
    members = (schema["$defs"][model] if model else schema)["properties"]
    if model == "JobEntry":  # The fields of the request are on a page of their own.
        members = {key: member for key, member in members.items() if key not in JobBody.model_fields}
    rows = []
    for key, member in members.items():
        default = "" if member.get("default") is None else f"`{json.dumps(member['default']).strip(chr(34))}`"
        text = member.get("description") or schema["$defs"][key.title()]["description"]
        rows.append([f"`{key}`", _type(member, schema["$defs"]), default, text])
    if document == "manifest":
        return _table(["key", "type", "default", "meaning"], rows)
    of_json = {
        "list of text": "list of strings",
        "text": "string",
        "true or false": "boolean",
        "list of mapping": "list of objects",
        "mapping": "object",
    }
    return _table(
        ["key", "type", "meaning"], ([key, of_json.get(kind, kind), text] for key, kind, _, text in rows)
    )


def _type(schema: dict[str, Any], definitions: dict[str, Any]) -> str:
    """Return the type of a value, apart from expressions and null."""
    if "$ref" in schema:
        return _type(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in schema:
        options = [
            one for one in schema["anyOf"] if one.get("type") != "null" and one.get("pattern") != r"\$\{"
        ]
        types = dict.fromkeys(_type(one, definitions) for one in options)
        # A value that is parsed from text may be written as text.
        types = {"text": None} if types.keys() >= {"text", "number"} else types
        return " or ".join(types) or "any value"
    if "enum" in schema or "const" in schema:
        words = schema.get("enum") or [schema["const"]]
        return ", ".join(words) if len(words) < 12 else "text"
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'], definitions)}"
    kind = str(schema.get("type", "any value"))
    return {"string": "text", "boolean": "true or false", "object": "mapping"}.get(kind, kind)


def _translated(path: Path) -> str:
    page, translation = ((ROOT / one).read_text(encoding="utf-8") for one in (original_of(path), path))
    return with_code_of(page, translation)


#: Page (path below the root) → the function that writes it.
PAGES: dict[Path, Callable[[], str]] = {
    **{page: partial(_with_tables, page) for page in (*sorted(RUN_PAGES), *_TABLES)},
    REFERENCE / "commands.md": _commands,
    REFERENCE / "states.md": _states,
    REFERENCE / "fields.md": _fields,
    # After their pages, because they copy the pages' code.
    **{path: partial(_translated, path) for path in translations()},
}


def main() -> None:
    """Write every page that is out of date."""
    for path in PAGES:
        text = generate(path)
        if not (ROOT / path).exists() or (ROOT / path).read_text(encoding="utf-8") != text:
            (ROOT / path).write_text(text, encoding="utf-8")
            sys.stdout.write(f"wrote {path}\n")


if __name__ == "__main__":
    main()
