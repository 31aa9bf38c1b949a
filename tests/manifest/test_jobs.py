"""An entry becomes a desired job; what is wrong with it is told where a person would look."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.core.identity import room_for_description
from reconciler.core.lifecycle import OnChange
from tests.manifest.conftest import HEAD, JOB, Place, marked, place_of


def test_smallest_job_has_this_body(place: Place) -> None:
    job = place.job()
    assert job.body == {
        "kind": "job",
        "metadata": {},
        "algorithm": {
            "code_dir": "obs://b/code/",
            "boot_file": "obs://b/code/train.py",
            "engine": {"engine_id": "pt"},
        },
        "spec": {"resource": {"flavor_id": "gpu", "node_count": 1}},
    }
    assert job.description == ""
    assert not job.is_absent
    assert str(job.location).endswith("main.yaml:4:3")


def with_algorithm(text: str) -> str:
    return JOB.replace("engine:", f"{text}, engine:")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "parameters: {lr: 0.1, epochs: 3}",
            "parameters: [{name: epochs, value: '3'}, {name: lr, value: 0.1}]",
        ),
        ("parameters: {lr: 0.1}", "parameters: {lr: {value: '0.1'}}"),
        ("inputs: {data: obs://b/x/}", "inputs: [{name: data, remote: {obs: {obs_url: /b/x/}}}]"),
        ("outputs: {out: obs://b/x/}", "outputs: {out: {remote: {obs: {obs_url: obs://b/x/}}}}"),
        ("environments: {A: 1, B: b}", "environments: [{B: b}, {A: '1'}]"),
        ("environments: {A: 1}", "environments: {A: {value: 1}}"),
        ("environments: {A: 1, B: b}", "environments: [{name: B, value: b}, {name: A, value: '1'}]"),
        ("working_dir: null", "environments: {}"),
    ],
)
def test_two_ways_to_say_the_same_have_one_digest(place: Place, one: str, other: str) -> None:
    assert place.job(with_algorithm(one)).digest == place.job(with_algorithm(other)).digest


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("obs://b/code/train.py", "/b/code/train.py"),
        (", node_count: 1", ""),
        (
            "node_count: 1",
            "node_count: 1}, runtime_type: production, volumes: [], auto_stop: null, retention: {",
        ),
        ("algorithm: {code", "description: text\n    algorithm: {code"),
        ("algorithm: {code", "lifecycle: {on_change: keep}\n    algorithm: {code"),
    ],
)
def test_what_says_nothing_new_changes_no_digest(place: Place, old: str, new: str) -> None:
    assert old in JOB
    assert place.job(JOB.replace(old, new)).digest == place.job().digest


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("engine_id: pt", "engine_id: tf"),
        ("node_count: 1", "node_count: 2"),
        ("    algorithm: {code", "    lifecycle: {rerun: again}\n    algorithm: {code"),
        ("    algorithm: {code", "    raw: {brand_new: 1}\n    algorithm: {code"),
    ],
)
def test_what_says_something_new_changes_the_digest(place: Place, old: str, new: str) -> None:
    assert old in JOB
    assert place.job(JOB.replace(old, new)).digest != place.job().digest


# Defaults


def test_defaults_stand_under_every_job(place: Place) -> None:
    place.write(
        HEAD
        + "defaults:\n  algorithm: {parameters: {lr: 0.1, epochs: 3}, environments: {A: a, B: b}}\n"
        + "  spec: {resource: {flavor_id: gpu, node_count: 4}}\n"
        + "  lifecycle: {on_change: keep, max_retries: 7}\n"
        + "jobs:\n  a:\n    algorithm: {id: x, parameters: {lr: 0.2}, environments: {B: null}}\n"
        + "    spec: {resource: {node_count: 2}}\n    lifecycle: {on_change: fail}\n"
    )
    job = place.load().stack.jobs["a"]
    assert job.body is not None
    assert job.body["algorithm"]["parameters"] == [
        {"name": "lr", "value": "0.2"},
        {"name": "epochs", "value": "3"},
    ]
    assert job.body["algorithm"]["environments"] == {"A": "a"}
    assert job.body["spec"]["resource"] == {"flavor_id": "gpu", "node_count": 2}
    assert (job.lifecycle.on_change, job.lifecycle.max_retries) == (OnChange.FAIL, 7)


def test_mistake_in_defaults_is_told_once_and_there(place: Place) -> None:
    place.write("defaults: {spec: {resource: {node_cout: 2}}}\n", "a.yaml")
    place.write(HEAD + "jobs:\n" + "".join(f"  j{n}:{JOB}" for n in range(5)))
    problem = place.problem()
    assert (problem.what, place_of(problem)) == ("unknown field", "a.yaml:1:30")
    assert problem.path == "defaults.spec.resource"
    assert marked(problem) == "node_cout"


def test_expression_in_defaults_without_a_value_is_told_once(place: Place) -> None:
    place.write(HEAD + "defaults: {spec: {runtime_type: '${var.kind}'}}\njobs:\n" + f"  a:{JOB}  b:{JOB}")
    assert place.problem().path == "defaults.spec.runtime_type"


# Absent entries


@pytest.mark.parametrize(
    "entry",
    ["{state: absent}", "{state: absent, lifecycle: {protect: false}}", "{state: absent, description: x}"],
)
def test_absent_entry_needs_no_body(place: Place, entry: str) -> None:
    place.write(
        HEAD + f"defaults: {{spec: {{resource: {{node_count: 2}}}}}}\njobs:\n  old: {entry}\n  new:{JOB}"
    )
    loaded = place.load()
    old = loaded.stack.jobs["old"]
    assert (old.is_absent, old.body, old.digest) == (True, None, "")
    assert loaded.stack.declared_keys == {"new"}


def test_absent_entry_may_keep_its_body_or_a_part_of_it(place: Place) -> None:
    assert place.job(JOB + "    state: absent\n").body is not None
    assert place.job("state: absent\nspec: {resource: {node_count: 2}}").body is None


def test_protection_may_come_from_defaults(place: Place) -> None:
    place.write(HEAD + "defaults: {lifecycle: {protect: true}}\njobs:\n  old: {state: absent}\n")
    assert place.load().stack.jobs["old"].lifecycle.protect is True


def test_typos_in_an_absent_entry_are_errors_all_the_same(place: Place) -> None:
    place.write(HEAD + "jobs:\n  old: {state: absent, lifecycle: {protct: false}}\n")
    assert place.problem().fix == 'did you mean "protect"?'


# Problems


@pytest.mark.parametrize(
    ("old", "new", "what", "why", "fix", "at", "path"),
    [
        (
            "node_count: 1",
            "node_cout: 1",
            "unknown field",
            '"node_cout" is not one of flavor_id, node_count, pool_id, pool_group_id, '
            "main_container_customized_flavor",
            'did you mean "node_count"?',
            "node_cout",
            "jobs.a.spec.resource",
        ),
        (
            "node_count: 1",
            "node_count: '1'",
            "wrong type",
            'expected an integer, got "1"',
            "remove the quotes",
            "'1'",
            "jobs.a.spec.resource.node_count",
        ),
        (
            "flavor_id: gpu",
            "flavor_id: 3",
            "wrong type",
            "expected text, got 3",
            'quote it: "3"',
            "3",
            "jobs.a.spec.resource.flavor_id",
        ),
        (
            "node_count: 1",
            "node_count: 0",
            "value not allowed",
            "must be at least 1, got 0",
            None,
            "0",
            "jobs.a.spec.resource.node_count",
        ),
        (
            "spec: {",
            "spec: {runtime_type: produktion, ",
            "value not allowed",
            'must be one of production, debug, got "produktion"',
            'did you mean "production"?',
            "produktion",
            "jobs.a.spec.runtime_type",
        ),
        (
            "spec: {",
            "spec: {schedule_policy: {preemptible: yes}, ",
            "wrong type",
            'expected true or false, got "yes"',
            "write true",
            "yes",
            "jobs.a.spec.schedule_policy.preemptible",
        ),
        (
            "spec: {",
            "spec: {notification: {events: [JobFailed]}, ",
            "missing field",
            '"topic_urn" is required',
            None,
            "notification",
            "jobs.a.spec.notification",
        ),
        (
            "spec: {",
            "spec: {custom_metrics: [{exec: {command: [a, [b]]}}], ",
            "wrong type",
            "expected text, got a list",
            None,
            "[",
            "jobs.a.spec.custom_metrics[0].exec.command[1]",
        ),
        (
            "flavor_id: gpu, ",
            "",
            "missing field",
            "flavor_id (public pool), pool_id or pool_group_id is required",
            None,
            "resource",
            "jobs.a.spec.resource",
        ),
        (
            "engine_id: pt",
            "engine_id: pt, image_url: x",
            "incompatible fields",
            "engine_id and image_url are mutually exclusive; for a framework on an image use "
            "engine_name + image_url",
            None,
            "engine",
            "jobs.a.algorithm.engine",
        ),
        (
            "engine: {",
            "parameters: {lr: [1]}, engine: {",
            "wrong type",
            "expected text, got a list",
            None,
            "lr",
            "jobs.a.algorithm.parameters.lr.value",
        ),
        (
            "engine: {",
            "parameters: {a: 1, 'b c': 2}, engine: {",
            "value not allowed",
            'must match ^[A-Za-z0-9_-]{1,64}$, got "b c"',
            None,
            "'b c'",
            "jobs.a.algorithm.parameters.b c.name",
        ),
        (
            "engine: {",
            "parameters: [{name: a, valu: 1}], engine: {",
            "unknown field",
            '"valu" is not one of name, value, description, constraint, i18n_description, sensitive',
            'did you mean "value"?',
            "valu",
            "jobs.a.algorithm.parameters.a",
        ),
        (
            "engine: {",
            "inputs: {data: 3}, engine: {",
            "wrong type",
            "expected text, got 3",
            'quote it: "3"',
            "3",
            "jobs.a.algorithm.inputs.data.remote.obs.obs_url",
        ),
        (
            "engine: {",
            "inputs: {data: {local_dir: /x}}, engine: {",
            "missing field",
            '"remote" is required',
            None,
            "data",
            "jobs.a.algorithm.inputs.data",
        ),
        (
            "engine: {",
            "environments: {A-B: x}, engine: {",
            "value not allowed",
            'must match ^[A-Za-z_][A-Za-z0-9_]*$, got "A-B"',
            None,
            "A-B",
            "jobs.a.algorithm.environments.A-B",
        ),
        (
            "engine: {",
            "environments: {A: {value: [1]}}, engine: {",
            "wrong type",
            "expected text, got a list",
            None,
            "A",
            "jobs.a.algorithm.environments.A",
        ),
        (
            "    spec:",
            "    lifecycle: {retry_delay: soon}\n    spec:",
            "value not allowed",
            'must be a duration such as 90s, 2m, 1h30m or 2d, got "soon"',
            None,
            "soon",
            "jobs.a.lifecycle.retry_delay",
        ),
        (
            "    spec:",
            "    matrices: {lr: [1]}\n    spec:",
            "unknown field",
            '"matrices" is not one of kind, description, annotations, training_experiment_reference, '
            "algorithm, tasks, spec, endpoints, train_type, ftjob_config, matrix, name, lifecycle, state, "
            "extends, needs, formerly, raw",
            'did you mean "matrix"?',
            "matrices",
            "jobs.a",
        ),
        (
            "    spec:",
            "    raw: [1]\n    spec:",
            "wrong type",
            "expected a mapping, got a list",
            None,
            "raw",
            "jobs.a.raw",
        ),
    ],
)
def test_mistake_in_an_entry(
    place: Place, old: str, new: str, what: str, why: str, fix: str | None, at: str, path: str
) -> None:
    assert old in JOB
    place.write(f"{HEAD}jobs:\n  a:{JOB.replace(old, new)}")
    problem = place.problem()
    assert (problem.what, problem.why, problem.fix) == (what, why, fix)
    assert (marked(problem), problem.path) == (at, path)


@pytest.mark.parametrize(
    ("entry", "found"),
    [("", "null"), (" [1]", "a list"), (" text", '"text"'), (" 3", "3")],
)
def test_entry_is_a_mapping(place: Place, entry: str, found: str) -> None:
    place.write(f"{HEAD}jobs:\n  job1:{entry}\n")
    problem = place.problem()
    assert (problem.what, problem.path) == ("wrong type", "jobs.job1")
    assert problem.why == f"expected a mapping, got {found}"
    assert problem.location is not None
    assert problem.location.line == 4


def test_empty_job_lacks_what_a_job_needs(place: Place) -> None:
    place.write(f"{HEAD}jobs:\n  job1: {{}}\n")
    problem = place.problem()
    assert (problem.what, marked(problem)) == ("missing field", "job1")
    assert problem.why == "spec is required: where and how the job runs"


def test_description_leaves_room_for_the_marker(place: Place) -> None:
    room = room_for_description("vision", "a")
    assert place.job(f"    description: {'x' * room}{JOB}").description == "x" * room
    place.write(f"{HEAD}jobs:\n  a:\n    description: {'x' * (room + 1)}{JOB}")
    problem = place.problem()
    assert (problem.what, place_of(problem)) == ("description too long", "main.yaml:5:18")
    assert f"it has {room + 1} characters" in problem.why
    assert f"at most {room} are allowed" in problem.why


def test_all_mistakes_are_told_at_once_in_file_order(place: Place) -> None:
    place.write(
        """\
        stack: s
        targets:
          prod: {kind: modelarts, region: r, token: abcdef}
        variables:
          bucket: {default: b, default: c}
        jobs:
          one:
            descripton: x
            algorithm: {id: "${var.bukket}"}
            spec: {resource: {flavor_id: gpu, node_count: none}}
          two:
          three-r3: {state: absent}
        """,
        "b.yaml",
    )
    place.write("jobs: {TWO: {state: absent}, four: {state: gone}}\njbos: {}\n", "a.yaml")
    place.write("jobs: [\n", "c.yaml")
    problems = place.problems()
    assert [(place_of(problem), problem.what) for problem in problems] == [
        ("a.yaml:1:44", "value not allowed"),
        ("a.yaml:2:1", "unknown field"),
        ("b.yaml:3:38", "literal secret"),
        ("b.yaml:5:24", "duplicate key"),
        ("b.yaml:8:5", "unknown field"),
        ("b.yaml:10:51", "wrong type"),
        ("b.yaml:11:3", "keys differ only in case"),
        ("b.yaml:12:3", "invalid key"),
        ("c.yaml:2:1", "invalid YAML"),
    ]


def test_broken_file_is_not_told_again_by_those_that_need_it(place: Place) -> None:
    place.write("stack: s\ntarget: prod\nvariables: {bucket: {default: b}\n")
    place.write("jobs:\n  a: {algorithm: {id: '${var.bucket}'}}\n", "jobs.yaml")
    assert place.problem().what == "invalid YAML"


# raw


def test_raw_is_merged_last(place: Place) -> None:
    job = place.job(
        JOB + "    raw: {spec: {resource: {node_count: 8, rack: r1}}, metadata: {labels: {a: b}}}\n"
    )
    assert job.body is not None
    assert job.body["spec"]["resource"] == {"flavor_id": "gpu", "node_count": 8, "rack": "r1"}
    assert job.body["metadata"] == {"labels": {"a": "b"}}


@pytest.mark.parametrize(
    ("raw", "what", "path"),
    [
        ("{status: x}", "not allowed in raw", "raw.status"),
        ("{metadata: {name: x}}", "not allowed in raw", "raw.metadata.name"),
        ("{metadata: {description: x}}", "not allowed in raw", "raw.metadata.description"),
        ("{metadata: {workspace_id: x}}", "not allowed in raw", "raw.metadata.workspace_id"),
        ("{metadata: {id: x}}", "not allowed in raw", "raw.metadata.id"),
        ("{metadata: 3}", "wrong type", "raw.metadata"),
        ("{metadata: null}", "wrong type", "raw.metadata"),
        ("{spec: 3}", "wrong type", "raw.spec"),
        ("{spec: {resource: [1]}}", "wrong type", "raw.spec.resource"),
        ("{tasks: {a: b}}", "wrong type", "raw.tasks"),
        ("{tasks: [x]}", "wrong type", "raw.tasks[0]"),
        ("{algorithm: {parameters: 3}}", "wrong type", "raw.algorithm.parameters"),
        ("{algorithm: {engine: x}}", "wrong type", "raw.algorithm.engine"),
    ],
)
def test_what_raw_may_not_hold(place: Place, raw: str, what: str, path: str) -> None:
    place.write(f"{HEAD}jobs:\n  a:{JOB}    raw: {raw}\n")
    problem = place.problem()
    assert (problem.what, problem.path) == (what, f"jobs.a.{path}")


@pytest.mark.parametrize("member", ["parameters", "inputs", "volumes", "environments", "annotations"])
@pytest.mark.parametrize("value", ["null", "[]", "{}", "[null]", "[{}]", "3", "x", "[[1]]", "{a: {b: 1}}"])
def test_raw_may_be_strange_and_breaks_nothing(place: Place, member: str, value: str) -> None:
    from reconciler.errors import ManifestInvalid

    for raw in (f"{{algorithm: {{{member}: {value}}}}}", f"{{spec: {{{member}: {value}}}}}"):
        place.write(f"{HEAD}jobs:\n  a:{JOB}    raw: {raw}\n")
        try:
            loaded: Any = place.load()
        except ManifestInvalid:
            continue
        assert loaded.stack.jobs["a"].digest


# Defaults that no job takes


@pytest.mark.parametrize(
    ("defaults", "what", "path"),
    [
        ("algoritm: {}", "unknown field", "defaults"),
        ("algorithm: {code_dri: obs://b/}", "unknown field", "defaults.algorithm"),
        ("spec: {resource: {node_count: two}}", "wrong type", "defaults.spec.resource.node_count"),
        ("lifecycle: {on_change: replcae}", "value not allowed", "defaults.lifecycle.on_change"),
        ("algorithm: {parameters: {lr: {valeu: 1}}}", "unknown field", "defaults.algorithm.parameters.lr"),
        ("description: '${var.nonsense}'", "unknown variable", "defaults.description"),
        ("raw: {status: {}}", "not allowed in raw", "defaults.raw.status"),
    ],
)
@pytest.mark.parametrize("jobs", ["", "jobs: {gone: {state: absent}}\n"])
def test_mistake_in_defaults_is_found_without_a_job(
    place: Place, jobs: str, defaults: str, what: str, path: str
) -> None:
    place.write(HEAD + f"defaults:\n  {defaults}\n{jobs}")
    problem = place.problem()
    assert (problem.what, problem.path) == (what, path)
    assert place_of(problem).startswith("main.yaml:4:")


@pytest.mark.parametrize(
    "defaults",
    [
        "{}",
        "{spec: {resource: {flavor_id: gpu}}}",
        "{algorithm: {parameters: {lr: 0.1}, environments: {X: '${job.key}'}}}",
        "{description: 'about ${job.key}', lifecycle: {rerun: '${job.key}'}, raw: {x: 1}}",
    ],
)
def test_defaults_need_not_be_whole(place: Place, defaults: str) -> None:
    place.write(HEAD + f"defaults: {defaults}\n")
    assert place.load().stack.jobs == {}


def test_secret_in_defaults_is_known_without_a_job(place: Place) -> None:
    place.write(HEAD + "defaults: {algorithm: {parameters: {p: {value: hunter2!, sensitive: true}}}}\n")
    assert place.load().secrets == ("hunter2!",)
