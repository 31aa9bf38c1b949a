"""A thousand generated manifests: they load, mean the same after `fmt`, and `fmt` twice is `fmt` once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.manifest import LoadedStack, load
from reconciler.manifest.format import format_text
from tests.manifest.generated import manifest

COUNT = 1_000
PARTS = 4


def meaning(path: Path, text: str) -> dict[str, Any]:
    """All that is loaded, but for places and the digest of the bytes."""
    path.write_text(text, encoding="utf-8")
    loaded: LoadedStack = load([path], environ={})
    jobs = {key: replace(job, location=None) for key, job in loaded.stack.whole.items()}
    return {
        "jobs": jobs,
        "limits": loaded.limits,
        "targets": loaded.targets,
        "secrets": loaded.secrets,
        "warnings": [(one.what, one.why) for one in loaded.warnings],
    }


@pytest.mark.parametrize("part", range(PARTS))
def test_fmt_of_a_generated_manifest_keeps_its_meaning_and_is_idempotent(part: int, tmp_path: Path) -> None:
    for seed in range(part, COUNT, PARTS):
        text = manifest(seed)
        once = format_text(text, "jobs.yaml")
        assert format_text(once, "jobs.yaml") == once, (seed, text)
        assert meaning(tmp_path / "jobs.yaml", once) == meaning(tmp_path / "jobs.yaml", text), (seed, text)


def test_generated_manifests_use_the_whole_language() -> None:
    """The test above would be worth little if it met only a part."""
    texts = [manifest(seed) for seed in range(0, COUNT, 4)]
    for construct in (
        *(
            "variables",
            "defaults",
            "templates",
            "extends: [",
            "matrix",
            "include",
            "exclude",
            "needs",
            "formerly",
        ),
        *("- name:", "parameters: {", "raw", "sensitive: true", "state: absent", "lifecycle", "limits"),
        *(
            "&res",
            "*res",
            "<<:",
            "${jobs.prepare.outputs.out}",
            "${var.",
            "${matrix.",
            "|",
            ">-",
            "# one",
            "---",
        ),
        *("0123", "1.10", "1e-5", "'q # q'", "\n\n"),
    ):
        assert sum(construct in text for text in texts) >= 5, construct
