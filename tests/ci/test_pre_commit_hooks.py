"""The pre-commit hooks call existing commands, and get no files."""

from __future__ import annotations

import tomllib

from ruamel.yaml import YAML

from tests.ci.shell import ROOT
from tests.test_messages import wrong_commands

_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FEATURES = _PROJECT["optional-dependencies"]


def test_every_offline_check_has_a_pre_commit_hook() -> None:
    hooks = YAML(typ="safe").load(ROOT / ".pre-commit-hooks.yaml")
    assert [hook["id"] for hook in hooks] == ["reconciler-validate", "reconciler-fmt"]
    for hook in hooks:
        assert wrong_commands(hook["entry"]) == []
        # A stack with policies can be checked, although the hook is installed without extras.
        needed = FEATURES["policies"] if hook["id"] == "reconciler-validate" else None
        assert hook.get("additional_dependencies") == needed
        assert (hook["language"], hook["types"], hook["pass_filenames"]) == ("python", ["yaml"], False)
