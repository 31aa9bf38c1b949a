"""The validation of a create request, beyond the types of its fields, and of an update.

Source: limits and combinations of the create request in the API documents and the error-code table.
Each rule raises `ApiError` with the code that the table gives for it; ModelArts.2788 where it names none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

from reconciler.emulator import catalog
from reconciler.emulator.schemas import TEXT_MAP, ApiError, Schema, invalid, put_at, refuse_if, value_at

Body = Mapping[str, Any]

_SPECIAL = ("hetero", "autosearch", "mrs", "edge", "federated_pool", "diag", "visualization")
KINDS = frozenset({"job", *(f"{what}_job" for what in _SPECIAL)})
_EVENTS = ("Started", "Completed", "Failed", "Terminated", "Restarted", "Hanged", "Preempted")
EVENTS = frozenset(f"Job{what}" for what in _EVENTS)
DEDICATED_ONLY = ("volumes", "schedule_policy")
"""Members of the spec that public pools refuse. Source: the Terraform provider's documents alone."""
MAX_DESCRIPTION = 256
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OBS_PATH = re.compile(r"(?:(?:obs|s3):/)?/[^/]+(?:/.*)?", re.DOTALL)
DEFAULT_CODE_DIR = "/home/ma-user/modelarts/user-job-dir"
_RESERVED_DIRS = ("/home/ma-user/modelarts/", "/home/ma-user/modelarts-dev/", "/home/ma-user/infer/")


def check_job(
    body: Body, *, strict_catalogue: bool = False, time_units: Collection[str] = ("HOURS",)
) -> None:
    """Refuse a create request that the service would refuse; the shape has been checked before.

    `strict_catalogue`: with all that `--strict` promises; `time_units`: in what `auto_stop` may be said.
    """
    kind: str = body.get("kind") or ""
    tasks, metadata = body.get("tasks"), body.get("metadata")
    refuse_if(not kind, "kind is required")
    _check_among("kind", [kind], KINDS)
    if not metadata:
        raise invalid("metadata is required")
    check_name(metadata.get("name"))
    check_workspace(metadata.get("workspace_id"), strict=strict_catalogue)
    check_description(metadata.get("description"))
    refuse_if(tasks and body.get("spec"), "tasks and spec exclude each other")
    refuse_if(tasks and kind != "hetero_job", "tasks needs kind hetero_job")
    if algorithm := body.get("algorithm"):
        _check_algorithm(algorithm, strict_catalogue)
    refuse_if(not algorithm and kind in {"job", "federated_pool_job"}, "algorithm is required")
    if not tasks:
        _check_spec(kind, body.get("spec") or {}, strict_catalogue, time_units)


def check_name(name: Any) -> None:
    is_wrong = not isinstance(name, str) or not _NAME.fullmatch(name)
    refuse_if(is_wrong, "metadata.name must be 1-64 letters, digits, underscores or hyphens")


def check_workspace(workspace_id: str | None, *, strict: bool = False) -> None:
    """Refuse a workspace id that is neither "0" nor 32 characters long, or not there if that is known."""
    is_wrong = workspace_id not in {None, "", "0"} and len(workspace_id or "") != 32
    refuse_if(is_wrong, "workspace_id must be 0 or 32 characters long")
    if workspace_id:
        catalog.check_listed("workspace", workspace_id, strict=strict)


def check_description(description: str | None) -> None:
    is_long = description is not None and len(description) > MAX_DESCRIPTION
    refuse_if(is_long, f"description must not exceed {MAX_DESCRIPTION} characters")


def check_priority(priority: int | None) -> None:
    """Refuse a priority outside 0-3; the text of the documents says 1-3, their value range 0-3."""
    if priority is not None:
        refuse_if(priority < 0, "spec.schedule_policy.priority must not be negative")
        check_limit("spec.schedule_policy.priority", priority, 3)


def check_notification(notification: Body | None) -> None:
    _check_among("spec.notification.events", (notification or {}).get("events") or (), EVENTS)


def check_limit(where: str, number: int, limit: int) -> None:
    refuse_if(number > limit, f"{where} exceeds its upper limit {limit}.", "ModelArts.2816")


def _check_among(where: str, values: Iterable[Any], allowed: frozenset[str]) -> None:
    is_wrong = not allowed.issuperset(values)
    refuse_if(is_wrong, f"{where} must be one of {', '.join(sorted(allowed))}")


def _check_algorithm(algorithm: Body, strict: bool) -> None:
    _check_source(algorithm, strict)
    names = [parameter.get("name") for parameter in algorithm.get("parameters") or ()]
    refuse_if(len(names) != len(set(names)), "The name of a parameter is used twice.", "ModelArts.2767")
    for kind in ("inputs", "outputs"):
        for item in algorithm.get(kind) or ():
            _check_data(kind, item)
    environments = algorithm.get("environments") or {}
    check_limit("algorithm.environments", len(environments), 100)
    for key, value in environments.items():
        is_wrong = not _VARIABLE.fullmatch(key)
        refuse_if(is_wrong, "a key of algorithm.environments must be letters, digits and underscores")
        is_long = len(key) > 8192 or len(value) > 4096
        refuse_if(is_long, "An entry of algorithm.environments exceeds its length limit.", "ModelArts.2816")
    code_dir = (algorithm.get("local_code_dir") or "").rstrip("/")
    is_reserved = code_dir == "/home/ma-user" or f"{code_dir}/".startswith(_RESERVED_DIRS)
    is_wrong = is_reserved or not code_dir.startswith("/home/")
    if algorithm.get("local_code_dir") and code_dir != DEFAULT_CODE_DIR:
        refuse_if(is_wrong, "local_code_dir must be a directory of its own under /home.", "ModelArts.2857")


def _check_source(algorithm: Body, strict: bool) -> None:
    """Exactly one of: a subscription, an id, an auto search, code on an engine, a command in an image."""
    subscription = (algorithm.get("subscription_id"), algorithm.get("item_version_id"))
    algorithm_id, engine = algorithm.get("id"), algorithm.get("engine") or {}
    if any(subscription):
        is_wrong = not all(subscription) or algorithm_id
        refuse_if(is_wrong, "subscription_id goes together with item_version_id, and without algorithm.id")
        return
    if algorithm_id:
        catalog.check_listed("algorithm", algorithm_id, strict=strict)
        return
    if (framework := algorithm.get("autosearch_framework_path")) is not None:
        check_obs("autosearch_framework_path", framework, directory=True)
    if algorithm.get("autosearch_config_path") and not engine:
        return
    command, code_dir, boot_file = (algorithm.get(key) for key in ("command", "code_dir", "boot_file"))
    refuse_if(
        not any((command, code_dir, boot_file, engine)),
        "algorithm needs an id, a subscription, code_dir with boot_file, or command with an image",
    )
    _check_engine(engine, command, strict)
    for where, path in (("code_dir", code_dir), ("boot_file", boot_file)):
        if path and not path.startswith("file://"):  # that is a path in the image
            check_obs(where, path, directory=where == "code_dir")
    refuse_if(boot_file and not code_dir, "code_dir is required together with boot_file.", "ModelArts.2757")
    if command and engine.get("image_url"):
        return
    if not code_dir:
        raise ApiError("ModelArts.2757", "code_dir is required.")
    if not boot_file:
        raise ApiError("ModelArts.2758", "boot_file is required together with code_dir.")
    refuse_if(boot_file.endswith("/"), "boot_file is not a file.", "ModelArts.2758")
    file, folder = (re.sub(r"^(?:(?:obs|s3):/|file://)(?=/)", "", path) for path in (boot_file, code_dir))
    is_outside = not file.startswith(folder.rstrip("/") + "/")
    refuse_if(is_outside, "boot_file is not in code_dir.", "ModelArts.2792")


def _check_engine(engine: Body, command: str | None, strict: bool) -> None:
    name, version, image = (engine.get(key) for key in ("engine_name", "engine_version", "image_url"))
    refuse_if(
        engine.get("install_sys_packages") and not (name and version and image),
        "install_sys_packages needs engine_name, engine_version and image_url",
    )
    if image:
        is_wrong = not (name or command)
        refuse_if(is_wrong, "A custom image needs a command, or an engine_name.", "ModelArts.2806")
    elif engine.get("engine_id") or (name and version):
        catalog.check_engine(dict(engine), strict=strict)
    else:
        refuse_if(command, "A command needs an image_url.", "ModelArts.2806")
        raise ApiError("ModelArts.2830", "engine_id is required.")


def _check_data(kind: str, item: Body) -> None:
    name, where = item.get("name"), f"algorithm.{kind}"
    refuse_if(not name, f"{where} has an item without a name.", "ModelArts.2753")
    remote = {key: value for key, value in (item.get("remote") or {}).items() if value is not None}
    known = remote.keys() & ({"obs", "dataset"} if kind == "inputs" else {"obs"})
    is_other = remote and not known
    refuse_if(is_other, f"The remote type of {where} {name} is not supported.", "ModelArts.2854")
    refuse_if(len(known) != 1, f"{where} {name} needs one remote.", "ModelArts.2753")
    if "obs" in remote:
        check_obs(f"{where} {name}", remote["obs"].get("obs_url"), directory=kind == "outputs")
        return
    dataset = remote["dataset"]
    refuse_if(not dataset.get("id"), f"The dataset of {where} {name} was not found.", "ModelArts.2783")
    is_missing = not dataset.get("version_id") and dataset.get("service_type") != "V3"
    refuse_if(is_missing, f"The dataset version of {where} {name} was not found.", "ModelArts.2782")


def check_obs(where: str, path: str | None, *, directory: bool) -> None:
    """Refuse what is not an OBS path; a directory ends with a slash."""
    if not path or not _OBS_PATH.fullmatch(path):
        raise ApiError("ModelArts.2791", f"Invalid OBS path of {where}.")
    is_file = directory and not path.endswith("/")
    refuse_if(is_file, f"Invalid OBS path of {where}: a directory must end with /.", "ModelArts.2791")


_ENUMS = {
    "schedule_policy.required_affinity.affinity_type": "cabinet hyperinstance networkTopology",
    "runtime_type": "production debug",
    "retention.policy": "enabled disabled",
    "log_export_config.version": "v0 v1",
}
"""Members of the spec that take one of a few words."""


def _check_spec(kind: str, spec: Body, strict: bool, time_units: Collection[str]) -> None:
    refuse_if(not spec.get("resource"), "spec.resource is required")
    _check_resource(kind, spec, strict)
    if log_path := value_at(spec, "log_export_path.obs_url"):
        check_obs("spec.log_export_path", log_path, directory=True)
    for key in ("auto_stop", "reserved_time"):
        if (limit := spec.get(key)) is not None:
            words = f"spec.{key}.time_unit must be {' or '.join(time_units)}"
            refuse_if(limit.get("time_unit") not in time_units, words)
            refuse_if((limit.get("duration") or 0) < 1, f"spec.{key}.duration must be at least 1")
    policy = spec.get("schedule_policy") or {}
    check_priority(policy.get("priority"))
    has_both = policy.get("required_affinity") and policy.get("preferred_affinity")
    refuse_if(has_both, "required_affinity and preferred_affinity exclude each other")
    for path, words in _ENUMS.items():
        value = value_at(spec, path)
        _check_among(f"spec.{path}", [value] if value else (), frozenset(words.split()))
    check_notification(spec.get("notification"))
    mounts = [
        [volume[kind] for kind in ("nfs", "pfs", "obs") if volume.get(kind) is not None]
        for volume in spec.get("volumes") or ()
    ]
    refuse_if(any(len(one) != 1 for one in mounts), "an item of spec.volumes needs one of nfs, pfs, obs")
    check_limit("spec.volumes", len(mounts), 8)
    paths = {mount.get("local_path") for [mount] in mounts}
    refuse_if(len(paths) != len(mounts), "two items of spec.volumes have the same local_path")
    for metric in spec.get("custom_metrics") or ():
        is_wrong = bool(metric.get("exec")) == bool(metric.get("http_get"))
        refuse_if(is_wrong, "an item of spec.custom_metrics needs either exec or http_get")


def _check_resource(kind: str, spec: Body, strict: bool) -> None:
    resource = spec["resource"]
    flavor_id, pool_id, group_id = (resource.get(key) for key in ("flavor_id", "pool_id", "pool_group_id"))
    is_lacking = kind == "federated_pool_job" and not group_id
    refuse_if(is_lacking, "kind federated_pool_job needs spec.resource.pool_group_id")
    refuse_if(not (flavor_id or pool_id or group_id), "flavor_id or pool_id is required.", "ModelArts.2763")
    # Required in one document, 1 by default in another; the emulator follows the lenient one.
    nodes = 1 if resource.get("node_count") is None else resource["node_count"]
    refuse_if(nodes < 1, "spec.resource.node_count must be at least 1")
    if flavor_id:
        catalog.check_flavor(flavor_id, pooled=bool(pool_id or group_id), strict=strict)
        most = catalog.max_nodes(flavor_id)
        refuse_if(
            most is not None and nodes > most,
            f"spec.resource.node_count exceeds {most}, the maximum of the flavor.",
            "ModelArts.2793",
        )
    if pool_id:
        catalog.check_listed("pool", pool_id, strict=strict)
    if strict:
        check_dedicated(spec, resource)
    is_pooled_only = spec.get("runtime_type") == "debug" or resource.get("main_container_customized_flavor")
    why = "runtime_type debug and a customized flavor need spec.resource.pool_id"
    refuse_if(not pool_id and is_pooled_only, why)


def check_dedicated(spec: Body, resource: Body) -> None:
    """Refuse what only a dedicated pool offers, on a public one."""
    if not (resource.get("pool_id") or resource.get("pool_group_id")):
        for key in DEDICATED_ONLY:
            refuse_if(spec.get(key), f"spec.{key} needs spec.resource.pool_id")


# --- updates: the fields that can be changed, in one table


class MutableField(NamedTuple):
    """One field. `path` is its place in the update request, `stored_at` its place in the job ("": the same).

    Of a mapping each member is changed by itself. `check` refuses a value, None where the field is absent.
    `only_in` is the one phase in which it may be changed; None: any but Terminating.
    """

    path: str
    schema: Schema
    check: Callable[[Any], None] = lambda _: None
    stored_at: str = ""
    on_otc: bool = False
    only_in: str | None = None


def _check_annotations(annotations: Mapping[str, str] | None) -> None:
    others = (annotations or {}).keys() - {"jupyter-lab/enable"}
    refuse_if(others, f"metadata.annotation {', '.join(sorted(others))} cannot be changed")


FIELDS = (
    MutableField("description", str, check_description, "metadata.description", on_otc=True),
    MutableField("spec.schedule_policy.priority", int, check_priority, only_in="Pending"),
    MutableField("spec.schedule_policy.preemptible", bool),
    MutableField("spec.notification", {"topic_urn": str, "events": [str]}, check_notification),
    MutableField("endpoints.ssh.key_pair_names", [str]),
    MutableField("metadata.annotation", TEXT_MAP, _check_annotations, "metadata.annotations"),
)


UPDATE: dict[str, Any] = {}
"""The schema of an update request."""
for _field in FIELDS:
    put_at(UPDATE, _field.path, _field.schema)


def check_update(update: Mapping[str, Any], cloud: str) -> None:
    """Refuse an update that no job could take; its types have been checked before."""
    others = update.keys() - {field.path for field in FIELDS if field.on_otc} if cloud == "otc" else ()
    refuse_if(others, f"{', '.join(sorted(others))} cannot be changed")
    for field in FIELDS:
        field.check(value_at(update, field.path))


def check_phase(update: Mapping[str, Any], phase: str) -> None:
    is_ending = phase == "Terminating"
    refuse_if(is_ending, "The job is being terminated and cannot be changed.", "ModelArts.2858")
    for field in FIELDS:
        is_fixed = field.only_in not in (None, phase) and value_at(update, field.path) is not None
        name = field.path.rpartition(".")[2]
        refuse_if(
            is_fixed, f"The {name} can be changed only while the job is {field.only_in}.", "ModelArts.2858"
        )


def merge(body: dict[str, Any], update: Mapping[str, Any]) -> None:
    """Put the values of an update into the body of a job; what is absent or null is left alone."""
    for field in FIELDS:
        value, stored_at = value_at(update, field.path), field.stored_at or field.path
        if isinstance(value, Mapping):
            given = {name: member for name, member in value.items() if member is not None}
            value = (value_at(body, stored_at) or {}) | given if given else None
        if value is not None:
            put_at(body, stored_at, value)
