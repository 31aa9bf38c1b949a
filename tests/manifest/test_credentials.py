"""A manifest must not pass our own credentials to a job, whatever their name."""

from __future__ import annotations

import inspect
import re
import textwrap

import pytest
from pydantic import ValidationError

from reconciler.core.settings import VariableSource
from reconciler.modelarts import auth, connect
from reconciler.secrets import ACCESS_KEYS, CREDENTIAL_NAMES, PASSWORD, TOKENS
from tests.each import each
from tests.manifest.conftest import HEAD, WITH_X, Place, marked

SECRET = "tell-nobody-1"
ENVIRON = dict.fromkeys(CREDENTIAL_NAMES, SECRET)
ADDRESSES = (
    "OS_AUTH_URL", "OS_USERNAME", "OS_USER_DOMAIN_NAME", "OS_DOMAIN_NAME", "OS_PROJECT_NAME", "OS_PROJECT_ID",
    "HUAWEICLOUD_SDK_PROJECT_ID", "HUAWEICLOUD_SDK_CREDENTIALS_FILE",
)  # fmt: skip


def test_credential_table_has_every_secret_variable_of_the_backends() -> None:
    source = "".join(inspect.getsource(module) for module in (auth, connect))
    named = set(re.findall(r'"((?:HUAWEICLOUD|HW|OS|MODELARTS)_[A-Z_]+)"', source))
    assert {name for name in named if re.search("AK|SK|KEY|TOKEN|PASSWORD|SECRET", name)} <= CREDENTIAL_NAMES
    assert not named.intersection((*TOKENS, PASSWORD, *(name for names in ACCESS_KEYS for name in names)))


#: Places of a manifest for an expression; `§` stands for one that names a credential.
PLACES = {
    "jobs.a.algorithm.environments.X": "jobs: {a: {algorithm: {environments: {X: §}}}}",
    "jobs.a.raw.deep[0].er": "jobs: {a: {raw: {deep: [{er: 'x §'}]}}}",
    "defaults.algorithm.parameters.p": "defaults: {algorithm: {parameters: {p: §}}}",
    "variables.v.env": "variables: {v: {env: NAME, sensitive: true}}",
    "variables.w.env": "variables: {w: {env: NAME, default: 1}}",
    "variables.v.default": "variables: {v: {default: §}}",
    "variables.v.default.a[0]": "variables: {v: {default: {a: ['b §']}}}",
    "targets.t.project_id": "targets: {t: {kind: modelarts, endpoint: https://e.example, project_id: §}}",
    "targets.t.endpoint": "targets: {t: {kind: modelarts, endpoint: 'https://§.example'}}",
    "targets.t.profile": "targets: {t: {kind: modelarts, region: r, profile: x-§}}",
    "targets.t.workspace_id": "targets: {t: {kind: modelarts, region: r, workspace_id: §}}",
    "targets.t.variables.v[0]": """
        variables: {v: {default: 1}}
        targets: {t: {kind: local, variables: {v: [§]}}}
    """,
    "targets.other.variables.v": """
        target: t
        variables: {v: {default: 1}}
        targets: {t: {kind: local}, other: {kind: local, variables: {v: §}}}
    """,
    "targets.t.defaults.description": "targets: {t: {kind: local, defaults: {description: §}}}",
    "notify[0].url": "notify: [{url: 'json://h/§'}]",
    "variables.v.description": "variables: {v: {default: 1, description: §}}",
    "variables.v.allowed[1]": "variables: {v: {default: a, allowed: [a, §]}}",
    "templates.t.algorithm.environments.X": "templates: {t: {algorithm: {environments: {X: §}}}}",
    "jobs.a.matrix.x[0]": "jobs: {a: {matrix: {x: [§]}}}",
    "jobs.a.matrix.include[0].x": "jobs: {a: {matrix: {include: [{x: §}]}}}",
    "jobs.a.name": "jobs: {a: {matrix: {x: [1]}, name: 'a-${matrix.x}-§'}}",
    "jobs.a.needs[0]": "jobs: {a: {state: absent, needs: [§]}}",
    "jobs.a.description": "jobs: {a: {state: absent, description: '${jobs.b.outputs.x} §'}}",
    "policies[0].deny": """policies: [{name: p, deny: "'§' == ''"}]""",
    "policies[0].message": "policies: [{name: p, deny: 'false', message: §}]",
    "drift.ignore[0].reason": "drift: {ignore: [{key: a, class: failed, until: 2030-01-01, reason: §}]}",
    "prices.currency": "prices: {currency: §, node_hour: {f: 1}}",
}
#: The same in a URL of `records`.
IN_RECORDS = {
    "host": "records: 'postgresql://u:p@§/d'",
    "host that looks like a password": "records: 'postgresql://h:§/d'",
    "user": "records: 'postgresql://§@h/d'",
    "database": "records: 'postgresql://u:p@h/§'",
    "query": "records: 'postgresql://u@h/d?application_name=§'",
    "password in the query": "records: 'postgresql://u@h/d?password=§'",
    "all": "records: §",
    "file": "records: 'sqlite:///§.db'",
    "behind a variable": """
        variables: {v: {default: 'postgresql://evil/d?user='}}
        records: '${var.v}:§@h/d'
    """,
}


EVERYWHERE = [*PLACES.items(), *(("records", text) for text in IN_RECORDS.values())]


@pytest.mark.parametrize("is_set", [True, False])
@each(
    ("path", "text", "name"),
    [
        *((*where, "OS_PASSWORD") for where in EVERYWHERE),
        *((*where, name) for where in EVERYWHERE[:4] for name in sorted(CREDENTIAL_NAMES)),
    ],
)
def test_credential_variable_is_refused_in_every_expression(
    place: Place, text: str, path: str, name: str, is_set: bool
) -> None:
    text = textwrap.dedent(text).replace("§", f"${{env.{name}}}").replace("NAME", name)
    place.write(f"stack: s\n{text}\n")
    problems = place.problems(environ=ENVIRON if is_set else {}, offline=not is_set)
    problem = next(one for one in problems if one.what == "credential not allowed here")
    assert problem.path == path
    assert name in problem.why
    assert problem.fix is not None
    if problem.snippet is not None:
        assert name in marked(problem)
    assert SECRET not in repr(problems)


@pytest.mark.parametrize("name", sorted(CREDENTIAL_NAMES))
def test_access_key_variable_is_allowed_in_the_records_password(place: Place, name: str) -> None:
    place.write(f"stack: s\nrecords: 'postgresql://u:x${{env.{name}}}@h/d'\n")
    assert place.load(environ=ENVIRON).records_url() == f"postgresql://u:x{SECRET}@h/d"


@pytest.mark.parametrize("name", ADDRESSES)
def test_address_or_id_variable_is_allowed_in_a_job(place: Place, name: str) -> None:
    body = WITH_X % f"'${{env.{name}}} ${{var.v}}'"
    job = place.job(body, f"{HEAD}variables: {{v: {{env: {name}}}}}\n", environ={name: "what"})
    assert job.body is not None
    assert job.body["algorithm"]["environments"] == {"X": "what what"}


@pytest.mark.parametrize(
    ("value", "is_refused"),
    [
        ("http://proxy:8080", False),
        ("http://me@proxy:8080", False),
        ("http://me:secret@proxy:8080", True),
        ("me:secret@proxy", True),
        ("http://me:secret@[::proxy", True),
    ],
)
@pytest.mark.parametrize("name", ["HTTPS_PROXY", "http_proxy", "ALL_PROXY"])
def test_proxy_url_with_a_password_is_refused(place: Place, name: str, value: str, is_refused: bool) -> None:
    text = f'"${{env.{name}}}"'
    place.write(f"{HEAD}jobs:\n  a:{WITH_X % text}")
    if not is_refused:
        place.load(environ={name: value})
        return
    problem = place.problem(environ={name: value})
    assert problem.what == "credential not allowed here"
    assert "secret" not in problem.why


def test_credential_variable_is_refused_indirectly_in_the_records_password(place: Place) -> None:
    """A variable's value may flow anywhere; only a direct expression is allowed there."""
    place.write(
        "stack: s\nvariables: {pw: {env: OS_PASSWORD, sensitive: true}}\nrecords: 'postgresql://u:${var.pw}@h/d'\n"
    )
    assert place.problem(environ=ENVIRON).what == "credential not allowed here"


def test_saved_plan_names_no_credential_as_the_source_of_a_variable() -> None:
    with pytest.raises(ValidationError, match="OS_PASSWORD"):
        VariableSource(env="OS_PASSWORD")


def test_credential_behind_an_escaped_dollar_is_refused(place: Place) -> None:
    place.write(
        r"""stack: s
policies: [{name: x, deny: "false", message: "\x24{env.HUAWEICLOUD_SDK_SK}"}]
"""
    )
    assert "credential not allowed here" in {one.what for one in place.problems(environ=ENVIRON)}
