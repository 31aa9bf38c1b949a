"""Optional packages may be missing: the error names the package and the command that installs it."""

from __future__ import annotations

import sys

import pytest

from reconciler.errors import ExitCode
from reconciler.extras import EXTRAS
from tests.cli.conftest import Reconciler, manifest, put_finished_job, write

POLICIES = "policies:\n  - {name: any, deny: 'false', message: m}\n"
NOTIFY = "notify:\n  - {url: 'json://127.0.0.1:1/'}\n"


@pytest.mark.parametrize(
    ("module", "more", "command", "code"),
    [
        ("cel", POLICIES, "validate", ExitCode.FAILED),
        ("cel", POLICIES, "plan", ExitCode.FAILED),
        ("apprise", NOTIFY, "validate", ExitCode.DONE),  # a warning: jobs do not depend on messages
        ("apprise", NOTIFY, "drift", ExitCode.CHANGES),
        ("apprise", NOTIFY, "notify test", ExitCode.FAILED),
        ("distributed", "", "validate --fleet --scheduler tcp://127.0.0.1:1", ExitCode.WRONG_USAGE),
        ("obstore", "", "code list", ExitCode.FAILED),
        ("psycopg", "", "history", ExitCode.FAILED),
        ("waitress", "", "emulator serve", ExitCode.FAILED),
    ],
)
def test_missing_package_is_named_with_the_command_that_installs_it(
    module: str, more: str, command: str, code: ExitCode, reconciler: Reconciler
) -> None:
    # Records of the embedded emulator are always beside the manifest.
    url = "http://127.0.0.1:1" if module == "psycopg" else None
    write(manifest("a", more=more, url=url))
    put_finished_job()
    reconciler.setenv("MODELARTS_AUTH_TOKEN", "tell-nobody-1")
    reconciler.setenv("RECONCILER_RECORDS", "postgresql://h/d")
    reconciler.patch.setitem(sys.modules, module, None)
    extra = EXTRAS[module]
    result = reconciler.ends(code, command)
    for text in (f"{extra.package}, which {extra.purpose}, is not installed", f"'reconciler[{extra.name}]'"):
        assert text in result.out + result.err
