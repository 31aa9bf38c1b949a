"""What of a manifest file nobody may see who is shown a part of it: secrets that stand there as they are.

`fmt` reads files one by one and puts nothing together, so it goes by marks, names and looks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from reconciler.core.expression import Reference, parts_of
from reconciler.core.store_url import looks_like_passwords
from reconciler.manifest.comments import comments_of
from reconciler.manifest.merge import SECTIONS
from reconciler.manifest.nodes import parse_nodes
from reconciler.manifest.notify import misplaced_urls
from reconciler.manifest.variable_section import declared_sensitive
from reconciler.manifest.variables import marked_texts, texts_in
from reconciler.manifest.yaml import Document
from reconciler.secrets import is_secret_name, looks_secret, secret_parts

#: What a variable or a parameter says of its value: the name is the one that stands above, or beside.
_VALUES = ("default", "value")


def written_secrets(document: Document, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the secrets in a file that can be parsed, those in comments too."""
    yield from marked_texts(document.tree)
    yield from misplaced_urls([document], SECTIONS)
    yield from looks_like_passwords(document.text)
    yield from _by_look(document.tree, "")
    for comment in comments_of(document.text, parse_nodes(document.text, document.file)):
        yield from (comment[part.start : part.end] for part in secret_parts(comment))
    for name in declared_sensitive([document]):
        env = document.tree["variables"][name].get("env")
        if isinstance(env, str) and (value := environ.get(env)):
            yield value


def _by_look(tree: Any, name: str) -> Iterator[str]:
    if isinstance(tree, dict):
        beside = tree.get("name")
        for key, value in tree.items():
            is_value = key in _VALUES
            yield from _by_look(value, (beside if isinstance(beside, str) else name) if is_value else key)
    elif isinstance(tree, list):
        for item in tree:
            yield from _by_look(item, name)
    else:
        for text in texts_in(tree):
            yield from _literals(text, name)


def _literals(text: str, name: str) -> Iterator[str]:
    """What looks secret in a text, by the name it goes by or by itself; an expression is none."""
    parts = parts_of(text)
    is_whole = not any(isinstance(part, Reference) for part in parts)
    for part in parts:
        if isinstance(part, str) and looks_secret(name if is_whole else "", part):
            if is_whole and is_secret_name(name):
                yield part
            else:
                found = secret_parts(part)
                yield from (part[one.start : one.end] for one in found) if found else (part,)
