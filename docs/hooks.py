"""MkDocs hooks: links to files of the repository, translations, and CommonMark lists.

Pages link to files outside `docs/` by relative paths, which work wherever the repository is browsed. The site
has only the pages, so there such a link points to the repository (`REPO_URL`, at `REPO_REF`). Without a URL,
the site contains the file itself, or an archive of a directory.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docs.translations import is_behind, original_of, with_anchors_of

_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((\.\./[^)\s#]*)(#[^)\s]*)?\)")
_LIST_ITEM = re.compile(r"(?:\d+\.|[-*]) +")
#: The indentation that Python-Markdown requires for the contents of a list item.
_INDENT = 4
#: The search ranks the definition of a key before the pages that only mention it.
_BOOSTS = {"reference/fields": 2, "reference/manifest": 2, "reference/python": 0.5, "coming-from/": 0.5}
_IS_BEHIND = '\n\n!!! note "英文版已更新"\n\n    本页的译文落后于英文版，请以英文版为准。\n'
log = get_plugin_logger(__name__)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Enable the version selector if mike publishes the site."""
    if os.environ.get("MIKE_DOCS_VERSION"):
        config.extra["version"] = {"provider": "mike"}
    return config


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fix the links to files outside `docs/` and between translations."""
    for prefix, boost in _BOOSTS.items():
        if page.file.src_uri.startswith(prefix):
            page.meta["search"] = {"boost": boost}
    docs = Path(config.docs_dir)
    here = (docs / page.file.src_uri).parent
    if page.file.src_uri.endswith(".zh.md"):
        markdown = _translated(original_of(docs / page.file.src_uri).read_text(encoding="utf-8"), markdown)

    def replace(found: re.Match[str]) -> str:
        text, target, anchor = found[1], found[2], found[3] or ""
        path = Path(os.path.normpath(here / target))
        if path.is_relative_to(docs):
            return found[0]
        if not path.exists():
            log.warning("%s links to %s, which does not exist", page.file.src_uri, target)
            return text
        if config.repo_url:
            return f"[{text}]({_in_repository(path, docs.parent, config.repo_url)}{anchor})"
        return f"[{text}]({os.path.relpath(docs / _offered(path, files, config), here)})"

    return _LINK.sub(replace, with_indented_lists(markdown))


def with_indented_lists(markdown: str) -> str:
    """Indent the contents of list items by four spaces; in CommonMark the width of the marker is enough."""
    lines, width, is_code = [], 0, False
    for line in markdown.split("\n"):
        if line.startswith("```"):
            is_code, width = not is_code, 0
        elif not is_code:
            marker = _LIST_ITEM.match(line)
            if marker:
                width = len(marker[0])
            elif not line.startswith(" " * width):
                width = width if not line.strip() else 0
            elif width and line.strip():
                line = " " * (_INDENT - width) + line
        lines.append(line)
    return "\n".join(lines)


def _translated(page: str, translation: str) -> str:
    anchored = with_anchors_of(page, translation)
    title, _, rest = anchored.partition("\n")
    return f"{title}{_IS_BEHIND}{rest}" if is_behind(page, translation) else anchored


def _in_repository(path: Path, root: Path, repo_url: str) -> str:
    kind = "tree" if path.is_dir() else "blob"
    reference = os.environ.get("REPO_REF", "HEAD")
    return f"{repo_url.rstrip('/')}/{kind}/{reference}/{path.relative_to(root).as_posix()}"


def _offered(path: Path, files: Files, config: MkDocsConfig) -> str:
    """Return the path below `docs/` of the file, or of an archive of the directory's files in git."""
    root = Path(config.docs_dir).parent
    # A Markdown file would become a page of the site.
    suffix = ".zip" if path.is_dir() else ".txt" if path.suffix == ".md" else ""
    name = f"files/{path.relative_to(root).as_posix()}{suffix}"
    if files.get_file_from_path(name) is None:
        content = _archive(path) if path.is_dir() else path.read_bytes()
        files.append(File.generated(config, name, content=content))
    return name


def _archive(directory: Path) -> bytes:
    command = ["git", "archive", "--format=zip", f"--prefix={directory.name}/", "HEAD", "."]
    return subprocess.run(command, cwd=directory, check=True, capture_output=True).stdout  # noqa: S603
