"""Write the parts of the documents that the program itself knows best.

    python -m docs.generate            # from the root of the clone

These are the pages of docs/reference, the rules on docs/concepts/decisions.md, and what the commands print
on the pages of `RUN_PAGES`. A test generates all of it again and compares.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import click

from docs.doc_runner import PageRun
from docs.translations import original_of, translations, with_code_of
from reconciler.cli.main import COMMANDS, cli, run
from reconciler.core.fields.job import JobBody
from reconciler.core.schema import manifest_schema
from reconciler.decide.rules import RULES

ROOT = Path(__file__).parents[1]
REFERENCE = Path("docs/reference")
DECISIONS = Path("docs/concepts/decisions.md")
#: Page → the directory, below the root, in which its commands are run.
RUN_PAGES: dict[Path, Path] = {
    Path("README.md"): Path(),
    **dict.fromkeys(sorted(page.relative_to(ROOT) for page in ROOT.glob("docs/concepts/*.md")), Path()),
    Path("docs/operations/fleets.md"): Path(),
    Path("docs/reference/manifest.md"): Path(),
    Path("docs/operations/records.md"): Path("examples/first-job"),
    Path("docs/guides/drift-alerts.md"): Path("examples/scheduled"),
    Path("docs/guides/pipeline.md"): Path("examples/pipeline"),
    Path("docs/guides/policies.md"): Path("examples/policies"),
    Path("docs/guides/retries.md"): Path("examples/retry-on-failure"),
    Path("docs/guides/sweep.md"): Path("examples/sweep"),
    Path("docs/reference/saved-plans.md"): Path("examples/first-job"),
    **{page.relative_to(ROOT): page.parent.relative_to(ROOT) for page in ROOT.glob("examples/*/README.md")},
}
#: Those whose jobs really run.
REAL_TIME = {Path("README.md"), Path("examples/first-job/README.md"), Path("docs/guides/sweep.md")}
_GENERATED = "<!-- Written by `python -m docs.generate`; do not edit. -->\n"
#: The widest that a help text gets.
_COLUMNS = "100"


def generate(page: Path) -> str:
    """Return the text that a page of `PAGES` should have."""
    with mock.patch.dict(os.environ, _environment(), clear=True):
        return PAGES[page]()


_STATES = """\
What may be asked of a job in each phase. Nothing that this table forbids is sent to the service. It is
printed by `reconciler explain states`.
"""
_FIELDS = """\
Every field below a job, and what an edit of it means for a job that exists: an update of that job, or a
new job. It is printed by `reconciler explain fields`; `reconciler explain FIELD` prints one field.
"""


def _environment() -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("RECONCILER_")}
    return {**ours, "COLUMNS": _COLUMNS}


_REPEATABLE = """\
Of those that are repeatable, `RECONCILER_OUTPUT`, `RECONCILER_VAR`, `RECONCILER_FILTER` and
`RECONCILER_TAG` hold one value a line, since each may hold spaces; `RECONCILER_VAR_FILE` and
`RECONCILER_IN` separate paths as `PATH` does (a colon; on Windows a semicolon); the others separate their
values by spaces.
"""


def _commands() -> str:
    parts = [f"# Commands\n\n{_GENERATED}\nEvery option can be given as an environment variable, too: "]
    parts.append("`--target` as `RECONCILER_TARGET`.\n" + _REPEATABLE)
    for words in ([], *_names()):
        title = " ".join(["reconciler", *words])
        parts.append(f"\n## {title}\n\n{_fenced(_printed(*words, '--help'))}")
    return "".join(parts)


def _names() -> Iterator[list[str]]:
    context = click.Context(cli)
    for name in COMMANDS:
        yield [name]
        command = cli.get_command(context, name)
        if isinstance(command, click.Group):
            yield from ([name, inner] for inner in command.list_commands(context))


def _table(title: str, says: str, *arguments: str) -> str:
    return f"# {title}\n\n{_GENERATED}\n{says}\n{_fenced(_printed(*arguments))}"


def _fenced(text: str) -> str:
    return f"```text\n{text}```\n"


def _printed(*arguments: str) -> str:
    with redirect_stdout(io.StringIO()) as out:
        run(cli, list(arguments))
    return out.getvalue()


def _run_again(page: Path, directory: Path) -> str:
    # A supervisor may write its last line when its job is known to have ended.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as copy:
        ignored = shutil.ignore_patterns(".*")
        shutil.copytree(ROOT / "examples", Path(copy) / "examples", ignore=ignored)
        text = (ROOT / page).read_text(encoding="utf-8")
        return PageRun(Path(copy) / directory, is_real_time=page in REAL_TIME).run_again(text)


def _with_rules(page: Path) -> str:
    """The page with what its commands print, and the table of the rules in place of the one that it has."""
    text = _run_again(page, RUN_PAGES[page])
    head, row = "| rule | when | action |\n|---|---|---|\n", "| `{}` | {} | {} |\n"
    before, _, rest = text.partition(head)
    after = rest[rest.index("\n\n") + 1 :]
    rows = (
        row.format(rule.name, rule.when, ", ".join(f"**{action}**" for action in rule.actions))
        for rule in RULES
    )
    return f"{before}{head}{''.join(rows)}{after}"


#: Key → how the paths of the keys below it begin, and their model.
_BELOW = {
    "targets": ("targets.NAME.", "TargetEntry"),
    "variables": ("variables.NAME.", "Variable"),
    "limits": ("limits.", "Limits"),
    "prices": ("prices.", "Prices"),
    "policies": ("policies[].", "PolicyEntry"),
    "drift": ("drift.", "DriftSettings"),
    "drift.ignore": ("drift.ignore[].", "IgnoreEntry"),
    "notify": ("notify[].", "NotifyEntry"),
    "lifecycle": ("lifecycle.", "Lifecycle"),
}


def _with_keys(page: Path) -> str:
    """The page with what its commands print, and the table of the keys in place of the one that it has."""
    head = "| key | type | default | what it is |\n|---|---|---|---|\n"
    before, _, rest = _run_again(page, RUN_PAGES[page]).partition(head)
    rows = [f"| `{path}` | {' | '.join(cells)} |\n" for path, *cells in own_keys()]
    return before + head + "".join(rows) + rest[rest.index("\n\n") + 1 :]


def own_keys() -> Iterator[tuple[str, str, str, str]]:
    """Every key of a manifest but the fields of the create body: its path, type, default and description."""
    schema = manifest_schema()
    body = JobBody.model_json_schema()["properties"]
    entry = schema["$defs"]["JobEntry"]["properties"]
    tops = schema["properties"]
    own = {f"jobs.KEY.{name}" if name in tops else name: one for name, one in entry.items()}
    for name, member in {**tops, **{name: one for name, one in own.items() if name not in body}}.items():
        yield from _rows(name, member, schema["$defs"])


def _rows(
    path: str, member: dict[str, Any], definitions: dict[str, Any]
) -> Iterator[tuple[str, str, str, str]]:
    default = "" if member.get("default") is None else f"`{json.dumps(member['default']).strip(chr(34))}`"
    text = member.get("description") or definitions[path.title()]["description"]
    yield path, _type(member, definitions), default, text
    prefix, model = _BELOW.get(path, ("", ""))
    for name, below in definitions[model]["properties"].items() if model else ():
        yield from _rows(f"{prefix}{name}", below, definitions)


def _type(schema: dict[str, Any], definitions: dict[str, Any]) -> str:
    """What may stand there, expressions and null aside."""
    if "$ref" in schema:
        return _type(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in schema:
        options = [
            one for one in schema["anyOf"] if one.get("type") != "null" and one.get("pattern") != r"\$\{"
        ]
        return " or ".join(dict.fromkeys(_type(one, definitions) for one in options)) or "any value"
    if "enum" in schema or "const" in schema:
        return ", ".join(schema.get("enum") or [schema["const"]])
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'], definitions)}"
    kind = str(schema.get("type", "any value"))
    return {"string": "text", "boolean": "true or false", "object": "mapping"}.get(kind, kind)


def _translated(path: Path) -> str:
    page, translation = ((ROOT / one).read_text(encoding="utf-8") for one in (original_of(path), path))
    return with_code_of(page, translation)


#: Page, by its path below the root → what writes it.
PAGES: dict[Path, Callable[[], str]] = {
    REFERENCE / "commands.md": _commands,
    REFERENCE / "states.md": partial(_table, "Phases", _STATES, "explain", "states"),
    REFERENCE / "fields.md": partial(_table, "Fields of a job", _FIELDS, "explain", "fields"),
    **{page: partial(_run_again, page, directory) for page, directory in sorted(RUN_PAGES.items())},
    DECISIONS: partial(_with_rules, DECISIONS),
    Path("docs/reference/manifest.md"): partial(_with_keys, Path("docs/reference/manifest.md")),
    # Behind their pages, whose code they have.
    **{path: partial(_translated, path) for path in translations()},
}


def main() -> None:
    """Write every page that is not as it should be."""
    for path in PAGES:
        text = generate(path)
        if not (ROOT / path).exists() or (ROOT / path).read_text(encoding="utf-8") != text:
            (ROOT / path).write_text(text, encoding="utf-8")
            sys.stdout.write(f"wrote {path}\n")


if __name__ == "__main__":
    main()
