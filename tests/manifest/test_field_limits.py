"""Every rule and limit that the service's documents have for a field is checked, or it is said why not.

From the tables of the service's documents, the vendor's SDK and its Terraform provider: docs/modelarts.md,
"Sources". A rule is that of one field, or of fields that exclude or demand each other.
"""

# ruff: noqa: E501 - a rule is a line where it can be one

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.canonical import walk_rules
from reconciler.core.schema import format_field
from reconciler.errors import Diagnostic, ManifestInvalid
from reconciler.manifest.load import load_mapping

ENGINE = {"engine_id": "pt"}
ALGORITHM = {"code_dir": "/b/c/", "boot_file": "/b/c/t.py", "engine": ENGINE}
RESOURCE = {"flavor_id": "g"}
IMAGE = {"image_url": "o/i:1"}
AFFINITY = "spec.schedule_policy.required_affinity"
TASK: dict[str, Any] = {"kind": "hetero_job", "spec": None, "algorithm": None}
INPUT = {"name": "a", "remote": {"obs": {"obs_url": "/b/"}}}


def a_job(**changes: Any) -> dict[str, Any]:
    """A job, with values at paths whose steps `__` separates."""
    job: dict[str, Any] = {"algorithm": copy.deepcopy(ALGORITHM), "spec": {"resource": dict(RESOURCE)}}
    for path, value in changes.items():
        *above, last = path.split("__")
        place = job
        for step in above:
            place = place.setdefault(step, {})
        place[last] = value
    return job


def volume(**changes: Any) -> dict[str, Any]:
    return {"nfs": {"nfs_server_path": "h:/x", "local_path": "/m", **changes}}


#: What each rule is about, how the documents say it, what breaks it, and what is said then.
CHECKED: list[tuple[str, str, dict[str, Any], str]] = [
    ("kind", "one of eight", a_job(kind="task"), "must be one of job, hetero_job"),
    ("description", "at most 256 characters", a_job(description="x" * 257), "it has 257 characters"),
    (
        "annotations",
        "switches are true or false",
        a_job(annotations={"fault-tolerance/hang-retry": "on"}),
        'fault-tolerance/hang-retry must be "true" or "false"',
    ),
    (
        "annotations",
        "job-retry-num is positive",
        a_job(annotations={"fault-tolerance/job-retry-num": 0}),
        "must be a whole number, at least 1",
    ),
    (
        "training_experiment_reference.name",
        "at most 64",
        a_job(training_experiment_reference={"name": "x" * 65}),
        "at most 64 characters",
    ),
    (
        "training_experiment_reference.description",
        "at most 256",
        a_job(training_experiment_reference={"description": "x" * 257}),
        "at most 256 characters",
    ),
    ("algorithm", "required for kind job", {"spec": {"resource": RESOURCE}}, "algorithm is required"),
    ("algorithm", "one source", a_job(algorithm={}), "one source is required: id, subscription_id"),
    (
        "algorithm.id",
        "not with a subscription",
        a_job(algorithm={"id": "i", "subscription_id": "s", "item_version_id": "v"}),
        "id and subscription_id are mutually exclusive",
    ),
    (
        "algorithm.subscription_id",
        "together with item_version_id",
        a_job(algorithm={"subscription_id": "s"}),
        "must be set together",
    ),
    (
        "algorithm.item_version_id",
        "together with subscription_id",
        a_job(algorithm={"item_version_id": "v"}),
        "must be set together",
    ),
    ("algorithm.code_dir", "OBS directory", a_job(algorithm__code_dir="/b/c"), "a directory must end in /"),
    ("algorithm.code_dir", "with boot_file", a_job(algorithm__code_dir=None), "boot_file requires code_dir"),
    ("algorithm.boot_file", "with code_dir", a_job(algorithm__boot_file=None), "code_dir requires boot_file"),
    ("algorithm.boot_file", "inside code_dir", a_job(algorithm__boot_file="/b/t.py"), "must be below code_dir"),
    (
        "algorithm.autosearch_config_path",
        "OBS path",
        a_job(kind="autosearch_job", algorithm={"autosearch_config_path": "x"}),
        "must be obs://BUCKET/",
    ),
    (
        "algorithm.autosearch_framework_path",
        "OBS directory",
        a_job(kind="autosearch_job", algorithm={"autosearch_framework_path": "/b/f"}),
        "a directory must end in /",
    ),
    (
        "algorithm.command",
        "required by an image without engine_name",
        a_job(algorithm={"engine": IMAGE, "code_dir": "/b/"}),
        "a custom image requires command",
    ),
    (
        "algorithm.parameters[].name",
        "at most 64 letters, digits, _ and -",
        a_job(algorithm__parameters={"a b": 1}),
        "must match ^[A-Za-z0-9_-]{1,64}$",
    ),
    (
        "algorithm.parameters[].name",
        "distinct (2767)",
        a_job(algorithm__parameters=[{"name": "a", "value": 1}, {"name": "a", "value": 2}]),
        'the name "a" is used twice',
    ),
    (
        "algorithm.parameters[].constraint.type",
        "one of four",
        a_job(algorithm__parameters={"a": {"constraint": {"type": "Text"}}}),
        "must be one of String",
    ),
    (
        "algorithm.parameters[].constraint.valid_type",
        "one of three",
        a_job(algorithm__parameters={"a": {"constraint": {"valid_type": "x"}}}),
        "must be one of None",
    ),
    (
        "algorithm.parameters[].i18n_description.language",
        "one of two",
        a_job(algorithm__parameters={"a": {"i18n_description": {"language": "de"}}}),
        "must be one of zh-cn",
    ),
    (
        "algorithm.policies.auto_search.reward_attrs[].mode",
        "max or min",
        a_job(algorithm__policies={"auto_search": {"reward_attrs": [{"mode": "up"}]}}),
        "must be one of max, min",
    ),
    (
        "algorithm.policies.auto_search.search_params[].param_type",
        "one of two",
        a_job(algorithm__policies={"auto_search": {"search_params": [{"param_type": "x"}]}}),
        "must be one of continuous, discrete",
    ),
    ("algorithm.inputs[].name", "required", a_job(algorithm__inputs=[{"remote": {}}]), '"name" is required'),
    (
        "algorithm.inputs[].access_method",
        "parameter or env",
        a_job(algorithm__inputs=[{**INPUT, "access_method": "x"}]),
        "must be one of parameter, env",
    ),
    ("algorithm.inputs[].remote", "required", a_job(algorithm__inputs=[{"name": "a"}]), '"remote" is required'),
    (
        "algorithm.inputs[].remote",
        "exactly one of dataset and obs",
        a_job(algorithm__inputs=[{"name": "a", "remote": {}}]),
        "exactly one of dataset and obs is required",
    ),
    (
        "algorithm.inputs[].remote.dataset.id",
        "required",
        a_job(algorithm__inputs={"a": {"remote": {"dataset": {"version_id": "v"}}}}),
        '"id" is required',
    ),
    (
        "algorithm.inputs[].remote.dataset.version_id",
        "required unless V3",
        a_job(algorithm__inputs={"a": {"remote": {"dataset": {"id": "i"}}}}),
        "version_id is required unless service_type is V3",
    ),
    (
        "algorithm.inputs[].remote.obs.obs_url",
        "OBS path",
        a_job(algorithm__inputs={"a": ""}),
        "must be obs://BUCKET/",
    ),
    (
        "algorithm.inputs[].remote_constraint[].attributes",
        "one of three",
        a_job(algorithm__inputs=[{**INPUT, "remote_constraint": [{"attributes": "x"}]}]),
        "must be one of data_format",
    ),
    ("algorithm.outputs[].name", "required", a_job(algorithm__outputs=[{"remote": {}}]), '"name" is required'),
    (
        "algorithm.outputs[].access_method",
        "parameter or env",
        a_job(algorithm__outputs=[{**INPUT, "access_method": "x"}]),
        "must be one of parameter, env",
    ),
    ("algorithm.outputs[].remote", "required", a_job(algorithm__outputs=[{"name": "a"}]), '"remote" is required'),
    (
        "algorithm.outputs[].remote.obs",
        "required",
        a_job(algorithm__outputs=[{"name": "a", "remote": {}}]),
        '"obs" is required',
    ),
    (
        "algorithm.outputs[].remote.obs.obs_url",
        "OBS directory",
        a_job(algorithm__outputs={"a": "/b/x"}),
        "a directory must end in /",
    ),
    ("algorithm.engine", "required with code_dir", a_job(algorithm__engine=None), "engine is required"),
    (
        "algorithm.engine.engine_id",
        "not with image_url",
        a_job(algorithm__engine={**ENGINE, **IMAGE}),
        "engine_id and image_url are mutually exclusive",
    ),
    (
        "algorithm.engine.engine_name",
        "with version or image",
        a_job(algorithm__engine={"engine_name": "PyTorch"}),
        "engine_name requires engine_version",
    ),
    (
        "algorithm.engine.engine_version",
        "with name",
        a_job(algorithm__engine={"engine_version": "1.8"}),
        "engine_version requires engine_name",
    ),
    (
        "algorithm.engine.install_sys_packages",
        "with name, version and image",
        a_job(algorithm__engine={**ENGINE, "install_sys_packages": True}),
        "install_sys_packages requires",
    ),
    (
        "algorithm.engine.image_repo_id",
        "with an image",
        a_job(algorithm__engine={**ENGINE, "image_repo_id": "r"}),
        "image_repo_id requires image_url",
    ),
    *(
        ("algorithm.local_code_dir", "below /home, not a refused one (2857)", a_job(algorithm__local_code_dir=at),
         "local_code_dir must be a directory of its own under /home")
        for at in ("/tmp", "/home/ma-user", "/home/ma-user/modelarts", "/home/ma-user/infer/x")
    ),
    (
        "algorithm.environments",
        "at most 100",
        a_job(algorithm__environments={f"A{n}": 1 for n in range(101)}),
        "at most 100 items",
    ),
    (
        "algorithm.environments",
        "names",
        a_job(algorithm__environments={"A-B": 1}),
        "must match ^[A-Za-z_][A-Za-z0-9_]*$",
    ),
    (
        "algorithm.environments",
        "values of at most 4096",
        a_job(algorithm__environments={"A": "x" * 4097}),
        "at most 4096 characters",
    ),
    (
        "algorithm.summary.log_type",
        "one of two",
        a_job(algorithm__summary={"log_type": "x"}),
        "must be one of tensorboard",
    ),
    (
        "algorithm.summary.log_dir",
        "required by log_type",
        a_job(algorithm__summary={"log_type": "tensorboard"}),
        "log_type requires log_dir",
    ),
    (
        "algorithm.summary.log_dir.pfs",
        "required",
        a_job(algorithm__summary={"log_dir": {}}),
        '"pfs" is required',
    ),
    (
        "algorithm.summary.log_dir.pfs.pfs_path",
        "required",
        a_job(algorithm__summary={"log_dir": {"pfs": {}}}),
        '"pfs_path" is required',
    ),
    (
        "algorithm.summary.data_sources",
        "required by the kind",
        a_job(kind="visualization_job"),
        "kind visualization_job requires algorithm.summary.data_sources",
    ),
    (
        "algorithm.summary.data_sources[].job.job_id",
        "required",
        a_job(algorithm__summary={"data_sources": [{"job": {}}]}),
        '"job_id" is required',
    ),
    ("tasks", "not with spec", a_job(kind="hetero_job", tasks=[{}]), "tasks and spec are mutually exclusive"),
    ("tasks", "kind hetero_job", {"tasks": [{}]}, "tasks requires kind: hetero_job"),
    (
        "tasks[].task_resource.node_count",
        "required",
        TASK | {"tasks": [{"task_resource": {}}]},
        '"node_count" is required',
    ),
    ("spec", "required", {"algorithm": ALGORITHM}, "spec is required"),
    ("spec.resource", "required", a_job(spec={}), '"resource" is required'),
    ("spec.resource", "flavor or pool", a_job(spec__resource={"node_count": 1}), "flavor_id (public pool), pool_id"),
    ("spec.resource.node_count", "at least 1", a_job(spec__resource__node_count=0), "must be at least 1"),
    (
        "spec.resource.pool_id",
        "not with a group",
        a_job(kind="federated_pool_job", spec__resource={"pool_id": "p", "pool_group_id": "g"}),
        "pool_id and pool_group_id are mutually exclusive",
    ),
    (
        "spec.resource.pool_group_id",
        "required by the kind",
        a_job(kind="federated_pool_job"),
        "requires spec.resource.pool_group_id",
    ),
    (
        "spec.resource.pool_group_id",
        "of that kind only",
        a_job(spec__resource={"pool_group_id": "g"}),
        "spec.resource.pool_group_id requires kind federated_pool_job",
    ),
    (
        "spec.resource.main_container_customized_flavor",
        "with pool_id",
        a_job(spec__resource__main_container_customized_flavor={"cpu_core_num": 1}),
        "main_container_customized_flavor requires pool_id",
    ),
    *(
        (f"spec.resource.main_container_customized_flavor.{name}", "more than 0",
         a_job(spec__resource__main_container_customized_flavor={name: 0}), "must be more than 0")
        for name in ("cpu_core_num", "mem_size")
    ),
    (
        "spec.resource.main_container_customized_flavor.accelerator_num",
        "at least 0",
        a_job(spec__resource__main_container_customized_flavor={"accelerator_num": -1}),
        "must be at least 0",
    ),
    ("spec.runtime_type", "one of two", a_job(spec__runtime_type="x"), "must be one of production, debug"),
    (
        "spec.volumes",
        "at most 8",
        a_job(spec__volumes=[volume(local_path=f"/m{n}") for n in range(9)]),
        "must have at most 8 items",
    ),
    (
        "spec.volumes",
        "distinct mount paths",
        a_job(spec__volumes=[volume(), volume()]),
        "two volumes have the same local_path",
    ),
    ("spec.volumes", "one kind each", a_job(spec__volumes=[{}]), "exactly one of nfs, pfs and obs is required"),
    (
        "spec.volumes[].nfs.nfs_server_path",
        "host:/path",
        a_job(spec__volumes=[volume(nfs_server_path="/x")]),
        'must be host:/path, got "/x"',
    ),
    *(
        (f"spec.volumes[].{kind}.local_path", "a path other than /",
         a_job(spec__volumes=[{kind: {"local_path": at}}]), "must be an absolute path other than /, got ")
        for kind, at in (("nfs", "/"), ("pfs", "data"), ("obs", "//"))
    ),
    *(
        (f"spec.volumes[].{kind}.{kind}_path", "/bucket/path", a_job(spec__volumes=[{kind: {f"{kind}_path": "x"}}]),
         "must be obs://BUCKET/… or /BUCKET/…")
        for kind in ("pfs", "obs")
    ),
    (
        "spec.log_export_path.obs_url",
        "OBS directory",
        a_job(spec__log_export_path={"obs_url": "/b/x"}),
        "a directory must end in /",
    ),
    (
        "spec.log_export_config.version",
        "one of two",
        a_job(spec__log_export_config={"version": "v2"}),
        "must be one of v0, v1",
    ),
    *(
        (f"spec.{name}.time_unit", "HOURS", a_job(spec={"resource": RESOURCE, name: {"time_unit": "DAYS", "duration": 1}}),
         "must be HOURS")
        for name in ("auto_stop", "reserved_time")
    ),
    *(
        (f"spec.{name}.duration", "at least 1",
         a_job(spec={"resource": RESOURCE, name: {"time_unit": "HOURS", "duration": 0}}), "must be at least 1")
        for name in ("auto_stop", "reserved_time")
    ),
    ("spec.retention.policy", "one of two", a_job(spec__retention={"policy": "x"}), "must be one of enabled"),
    *(
        ("spec.schedule_policy.priority", "1 to 3", a_job(spec__schedule_policy={"priority": n}), words)
        for n, words in ((0, "must be at least 1"), (4, "must be at most 3"))
    ),
    (
        "spec.schedule_policy.required_affinity",
        "not with preferred_affinity",
        a_job(spec__schedule_policy={
            "required_affinity": {"affinity_type": "cabinet"}, "preferred_affinity": {"node_affinity": []}
        }),
        "required_affinity and preferred_affinity are mutually exclusive",
    ),
    (
        f"{AFFINITY}.affinity_type",
        "one of three",
        a_job(spec__schedule_policy__required_affinity={"affinity_type": "x"}),
        "must be one of cabinet",
    ),
    (
        f"{AFFINITY}.affinity_group_size",
        "at least 1",
        a_job(spec__schedule_policy__required_affinity={"affinity_group_size": 0}),
        "must be at least 1",
    ),
    *(
        (f"{AFFINITY}.{name}", "one of two, and the default",
         a_job(spec__schedule_policy__required_affinity={name: "x"}), "must be one of")
        for name in ("job_level", "affinity_group_level")
    ),
    *(
        (f"{AFFINITY}.{name}", "affinity_type networkTopology",
         a_job(spec__schedule_policy__required_affinity={"affinity_type": "cabinet", name: value}),
         f"{name} requires affinity_type: networkTopology")
        for name, value in (("job_level", "hyperinstanceGroup"), ("affinity_group_level", "slice"))
    ),
    (
        f"{AFFINITY}.node_affinity.nodeSelectorTerms",
        "required",
        a_job(spec__schedule_policy__required_affinity={"node_affinity": {}}),
        '"nodeSelectorTerms" is required',
    ),
    (
        f"{AFFINITY}.node_affinity.nodeSelectorTerms",
        "operators",
        a_job(spec__schedule_policy__required_affinity={"node_affinity": {"nodeSelectorTerms": [
            {"matchFields": [{"key": "k", "operator": "Is"}]}
        ]}}),
        "must be one of In, NotIn",
    ),
    (
        "spec.schedule_policy.preferred_affinity.node_affinity",
        "weight up to 100",
        a_job(spec__schedule_policy__preferred_affinity={"node_affinity": [{"weight": 101, "preference": {}}]}),
        "must be at most 100",
    ),
    ("spec.notification.topic_urn", "required", a_job(spec__notification={}), '"topic_urn" is required'),
    (
        "spec.notification.events",
        "one of seven",
        a_job(spec__notification={"topic_urn": "u", "events": ["JobLost"]}),
        "must be one of JobStarted",
    ),
    ("spec.custom_metrics", "exec or http_get", a_job(spec__custom_metrics=[{}]), "exactly one of exec and http_get"),
    *(
        (f"spec.custom_metrics[].http_get.{name}", "path and port together",
         a_job(spec__custom_metrics=[{"http_get": {name: value}}]), "path and port must be set together")
        for name, value in (("path", "/m"), ("port", 80))
    ),
    (
        "spec.output_model.obs.obs_path",
        "required",
        a_job(spec__output_model={"obs": {}}),
        '"obs_path" is required',
    ),
    *(
        (f"spec.asset_model.{name}", "required",
         a_job(spec__asset_model={one: "x" for one in ("name", "version", "type") if one != name}),
         f'"{name}" is required')
        for name in ("name", "version", "type")
    ),
    ("train_type", "one of five", a_job(train_type="x"), "must be one of SFT"),
]  # fmt: skip

#: What nobody can check without the service, or what the documents leave open.
NOT_CHECKED = {
    "algorithm.autosearch_config_path": "for kind autosearch_job: a job of another kind that has it must be exportable",
    "algorithm.autosearch_framework_path": "the same",
    "algorithm.summary.data_sources": "with annotations that show summaries: jobs that have none must be exportable",
    "tasks[].algorithm.inputs": "of OBS only: jobs that read a data set must be exportable",
    "spec.retention": "of kind job only: the same",
    "annotations": "other keys: which ones the service takes is not documented",
    "training_experiment_reference.id": "whether it exists: only the service knows",
    "training_experiment_reference.name": "special characters: which they are is not documented",
    "algorithm.name": "it should be left out, and the service ignores it",
    "algorithm.code_dir": "size, number of files and depth: nobody looks into the directory; beside id it is tolerated",
    "algorithm.boot_file": ".py: in one of the guides only; shell scripts are started too",
    "algorithm.engine": "beside id: the service tolerates it",
    "algorithm.engine.engine_id": "whether it exists: `plan` asks the catalogue of the service",
    "algorithm.engine.image_url": "its form: a full address with a registry is taken too",
    "algorithm.inputs[].name": "whether the algorithm has it: only the service knows",
    "algorithm.outputs[].name": "whether the algorithm has it: only the service knows",
    "algorithm.inputs[].remote.dataset.dataset_proportion": "for fine-tune jobs, whose rules are not documented",
    "algorithm.working_dir": "which ones are refused (2859) is not documented",
    "algorithm.environments": "references with $: they are sent as they stand; names of 8192: YAML ends at 1024",
    "tasks[].algorithm.engine.run_user": "for custom images only: elsewhere it has no effect",
    "spec.resource.flavor_id": "which ones a pool takes: only the service knows",
    "spec.resource.node_count": "the maximum of the flavor: only the service knows",
    "spec.resource.pool_id": "whether it exists and runs: only the service knows",
    "spec.runtime_type": "debug on a dedicated pool: one source of several",
    "spec.volumes": "on dedicated pools: one source of several",
    "spec.volumes[].nfs.local_path": "default directories of the platform: which they are is not documented",
    "spec.auto_stop.duration": "1 to 72: what the console offers; the call takes more",
    "spec.schedule_policy": "on dedicated pools: one source of several; the emulator takes it anywhere",
    "spec.schedule_policy.priority": "3 needs a permission: only the service knows",
    f"{AFFINITY}.affinity_group_size": "the step of the supernode: only the service knows",
    "spec.notification.topic_urn": "whether it is the URN of a topic: only the service knows",
    "spec.asset_id": "for fine-tune jobs, whose rules are not documented",
    "ftjob_config": "for fine-tune jobs, whose rules are not documented",
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stack")


def problems_of(job: dict[str, Any], root: Path) -> tuple[Diagnostic, ...]:
    manifest = {"stack": "vision", "targets": {"local": {"kind": "local"}}, "jobs": {"a": job}}
    try:
        load_mapping(manifest, root, environ={})
    except ManifestInvalid as invalid:
        return invalid.diagnostics
    return ()


@pytest.mark.parametrize(
    ("path", "rule", "job", "words"), CHECKED, ids=[f"{path}: {rule}" for path, rule, _, _ in CHECKED]
)
def test_rule_of_a_field_is_checked_and_its_reason_given(
    root: Path, path: str, rule: str, job: dict[str, Any], words: str
) -> None:
    problems = problems_of(job, root)
    assert [one for one in problems if words in one.why], [one.why for one in problems]


def test_job_that_breaks_no_rule_is_valid(root: Path) -> None:
    assert problems_of(a_job(), root) == ()
    assert problems_of(TASK | {"tasks": [{"task_resource": {"node_count": 1}}]}, root) == ()


def test_every_rule_is_one_of_a_field_that_there_is() -> None:
    known = {format_field(path) for path, _ in walk_rules()}
    assert {path for path, _, _, _ in CHECKED} - known == set()
    assert NOT_CHECKED.keys() - known == set()
    assert all(NOT_CHECKED.values())
