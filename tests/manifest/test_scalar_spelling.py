"""A number or boolean in a text field keeps its spelling.

Source: docs/concepts/revisions.md, "Comparison".
"""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Iterator
from typing import Any

import pytest

from reconciler.core.fields.field_types import Strict
from reconciler.core.scalar import plain, scalar_text, spelled
from reconciler.core.settings import Variable, VariableSource
from reconciler.core.stack import DesiredJob
from reconciler.manifest.yaml import parse_scalar as parsed
from tests.manifest.conftest import HEAD, Place

SPELLINGS = (
    "1.10", "0.1", "1e-5", "1E5", "1.0", "8", "0123", "+5", "-0", "0x1F", "0o17", ".5", "5.", ".inf", "-.INF",
    ".nan", "true", "True", "TRUE", "false", "False", "FALSE", "12345678901234567890", "1e400",
)  # fmt: skip


def job_with(text: str, place: Place, head: str = HEAD, **options: Any) -> DesiredJob:
    return place.job(
        f"""
        algorithm:
          code_dir: obs://b/code/
          boot_file: obs://b/code/train.py
          engine: {{engine_id: pt}}
          parameters: {{x: {text}, y: {{value: {text}}}, z: {{value: {text}, sensitive: true}}}}
          environments: {{X: {text}, Y: {{value: {text}, sensitive: False}}}}
        annotations: {{x: {text}}}
        spec: {{resource: {{flavor_id: gpu, node_count: 1}}}}
        lifecycle: {{rerun: {text}}}
        raw:
          algorithm: {{parameters: {{r: {text}}}, environments: {{R: {text}}}, command: {text}}}
        """,
        head,
        **options,
    )


def texts_of(job: DesiredJob) -> set[str]:
    assert job.body is not None
    algorithm = job.body["algorithm"]
    return {
        *(str(parameter["value"]) for parameter in algorithm["parameters"]),
        *algorithm["environments"].values(),
        *job.body["metadata"]["annotations"].values(),
        algorithm["command"],
        str(job.lifecycle.rerun),
    }


@pytest.mark.parametrize("text", SPELLINGS)
def test_number_or_boolean_in_a_text_field_is_sent_as_spelled(text: str, place: Place) -> None:
    assert texts_of(job_with(text, place)) == {text}


@pytest.mark.parametrize("text", SPELLINGS)
def test_variable_keeps_type_and_spelling(text: str, place: Place) -> None:
    head = f"{HEAD}variables: {{v: {{default: {text}}}}}\n"
    assert texts_of(job_with("'${var.v}'", place, head)) == {text}
    assert texts_of(job_with("'a${var.v}b'", place, head)) == {f"a{text}b"}


@pytest.mark.parametrize("text", SPELLINGS)
def test_value_given_by_option_file_or_environment_keeps_its_spelling(text: str, place: Place) -> None:
    default = "default: false, " if text.lower() in ("true", "false") else "default: 0.5, "
    file = place.write(f"v: {text}\n", "values.vars")
    given: dict[str, Any] = {"variables": {"v": text}, "environ": {"V": text}, "var_files": [file]}
    for option, value in given.items():
        for declared in (default, ""):
            head = f"{HEAD}variables: {{v: {{{declared}env: V}}}}\n"
            assert texts_of(job_with("'${var.v}'", place, head, **{option: value})) == {text}


def test_defaults_keep_the_spelling(place: Place) -> None:
    head = f"{HEAD}defaults: {{algorithm: {{parameters: {{lr: 1.10}}, environments: {{F: False}}}}}}\n"
    body = place.job(head=head).body
    assert body is not None
    assert body["algorithm"]["parameters"] == [{"name": "lr", "value": "1.10"}]
    assert body["algorithm"]["environments"] == {"F": "False"}


@pytest.mark.parametrize(
    ("text", "value"), [("010", 10), ("+7", 7), ("0x10", 16), ("0o17", 15), ("'${var.n}'", 10)]
)
def test_number_in_a_number_field_is_sent_as_a_number(text: str, value: int, place: Place) -> None:
    job = place.job(
        f"""
        algorithm: {{code_dir: obs://b/code/, boot_file: obs://b/code/train.py, engine: {{engine_id: pt}}}}
        spec: {{resource: {{flavor_id: gpu, node_count: {text}}}}}
        raw: {{spec: {{new: {{count: {text}, share: 1.50, flag: True}}}}}}
        """,
        f"{HEAD}variables: {{n: {{default: 010}}}}\n",
    )
    assert job.body is not None
    found = [job.body["spec"]["resource"]["node_count"], *job.body["spec"]["new"].values()]
    assert [(type(one), one) for one in found] == [(int, value), (int, value), (float, 1.5), (bool, True)]


def test_refused_number_is_reported_as_spelled(place: Place) -> None:
    place.write(
        f"""{HEAD}jobs: {{a: {{algorithm: {{code_dir: obs://b/c/, boot_file: obs://b/c/t.py,
        engine: {{engine_id: 1.10}}}}, spec: {{resource: {{flavor_id: gpu}}}}}}}}"""
    )
    problem = place.problem()
    assert problem.why == "expected text, got 1.10"


def test_files_spelling_a_number_differently_disagree(place: Place) -> None:
    place.write(f"{HEAD}defaults: {{algorithm: {{parameters: {{lr: 1.10}}}}}}\njobs: {{}}\n")
    place.write("defaults: {algorithm: {parameters: {lr: 1.1}}}\n", "more.yaml")
    assert place.problem().what == "files disagree"


def test_number_with_a_spelling_makes_a_valid_key(place: Place) -> None:
    other = "{algorithm: {id: x}, spec: {resource: {flavor_id: g}}"
    place.write(
        f"{HEAD}variables: {{n: {{default: 01}}}}\njobs:\n  a-01: {other}}}\n"
        f"  b: {other}, needs: ['a-${{var.n}}']}}\n  c: {other}, needs: 'd-${{var.n}}'}}\n"
    )
    assert place.problem().why == '"d-01" is not declared in any file of the stack'


# --- every boolean field


def models(model: type[Strict] = Strict) -> Iterator[type[Strict]]:
    for one in model.__subclasses__():
        yield one
        yield from models(one)


def test_every_boolean_field_of_a_manifest_takes_every_spelling() -> None:
    people_write = [one for one in models() if one is not VariableSource]
    fields = [
        (one, name, str(annotation))
        for one in people_write
        for name, annotation in one.__annotations__.items()
    ]
    assert any("Flag" in annotation for _, _, annotation in fields)
    assert [field for field in fields if re.search(r"\bbool\b", field[2])] == []
    assert Variable.model_validate({"sensitive": parsed("TRUE")}).sensitive is True


# --- the values themselves


@pytest.mark.parametrize("text", SPELLINGS)
def test_value_with_a_spelling_is_its_plain_value_and_can_be_copied(text: str) -> None:
    value = parsed(text)
    assert scalar_text(value) == text
    assert type(plain(value)) in (bool, int, float)
    for original in (value, scalar_text(value)):
        for copied in (copy.deepcopy(original), pickle.loads(pickle.dumps(original))):
            assert (type(copied), scalar_text(copied)) == (type(original), text)
            assert getattr(copied, "released", None) == getattr(original, "released", None)


def test_plain_value_has_the_spelling_of_python() -> None:
    assert list(map(scalar_text, (0.1, 1e-05, 8.0, 7, True))) == ["0.1", "1e-05", "8.0", "7", "true"]
    assert spelled(0.1, "0.1").__class__ is float
