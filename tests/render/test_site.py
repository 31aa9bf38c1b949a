"""The site, read from disk: its resources, and its search in a headless Chromium."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docs.hooks import on_page_markdown, with_indented_lists
from tests.render.browser import Page as BrowserPage

ROOT = Path(__file__).parents[2]
_LOADED = re.compile(r"<(?:script|img|iframe)[^>]* src=\"?([^\s\">]+)|<link[^>]* href=\"?([^\s\">]+)")
_SEARCH = """\
new Promise((done) => {
  const query = document.querySelector(".md-search__input")
  query.focus()
  query.value = "%s"
  query.dispatchEvent(new Event("keyup", {bubbles: true}))
  query.dispatchEvent(new Event("input", {bubbles: true}))
  const found = () => {
    const link = document.querySelector(".md-search-result__link")
    link ? done(link.href) : setTimeout(found, 20)
  }
  found()
})
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(directory)]
    settings = {"REPO_URL": "", "SITE_URL": "", "OFFLINE": "true", "NO_MKDOCS_2_WARNING": "1"}
    subprocess.run(command, cwd=ROOT, env={**os.environ, **settings}, check=True, capture_output=True)
    return directory


def test_nothing_is_loaded_from_other_hosts(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 100
    loaded = {
        address
        for page in pages
        for found in _LOADED.finditer(page.read_text(encoding="utf-8"))
        if (address := found[1] or found[2]).startswith(("http:", "https:", "//"))
    }
    assert loaded == set()


def test_site_offers_what_it_links_to_in_the_repository(site: Path) -> None:
    assert 'href="../files/examples/sweep.zip"' in (site / "guides/sweep.html").read_text(encoding="utf-8")
    with zipfile.ZipFile(site / "files/examples/sweep.zip") as archive:
        assert {"sweep/jobs.yaml", "sweep/src/train.py"} <= set(archive.namelist())
    schema = "schemas/manifest.schema.json"
    assert (site / "files" / schema).read_bytes() == (ROOT / schema).read_bytes()


def test_links_lead_to_the_repository_if_it_has_a_url(monkeypatch: pytest.MonkeyPatch) -> None:
    config, files = MkDocsConfig(str(ROOT / "mkdocs.yml")), Files([])
    config.load_dict({"docs_dir": str(ROOT / "docs"), "repo_url": "https://git.example.com/ml/reconciler/"})
    file = File("guides/sweep.md", config.docs_dir, "site", use_directory_urls=False)
    page = Page("Sweep", file, config)
    monkeypatch.setenv("REPO_REF", "v1")
    markdown = (
        "[a](../../examples/sweep), [b](../../LICENSE#terms), [c](code.md), [d](../images/plan-light.png)"
    )
    assert on_page_markdown(markdown, page, config, files) == (
        "[a](https://git.example.com/ml/reconciler/tree/v1/examples/sweep), "
        "[b](https://git.example.com/ml/reconciler/blob/v1/LICENSE#terms), "
        "[c](code.md), [d](../images/plan-light.png)"
    )


@pytest.mark.parametrize(
    ("query", "page"),
    [
        ("exit code", "reference/exit-codes.html"),
        ("max_retries", "reference/manifest.html"),
        ("drift", "concepts/drift.html"),
    ],
)
def test_search_works_on_disk(site: Path, browser_page: BrowserPage, query: str, page: str) -> None:
    browser_page.open(site / "index.html")
    found = browser_page.run(_SEARCH % query, awaitPromise=True)
    assert found.partition("?")[0].partition("#")[0] == (site / page).as_uri()
    assert [url for url in browser_page.requests if url.startswith("http")] == []


def test_parts_of_an_item_are_indented_by_four() -> None:
    code = "```yaml\n- a:\n  b: 1\n```\n"
    shown = with_indented_lists(
        f"1. Plan.\n\n   ```sh\n   reconciler plan\n   ```\n\n- one\n  line\n\n{code}"
    )
    assert shown == f"1. Plan.\n\n    ```sh\n    reconciler plan\n    ```\n\n- one\n    line\n\n{code}"
