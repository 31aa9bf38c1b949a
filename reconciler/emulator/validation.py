"""The validation of a create request, beyond the types of its fields, and of an update.

Source: limits and combinations of the create request in the API documents and the error-code table.
Each rule raises `ApiError` with the code that the table gives for it; ModelArts.2788 where it names none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from reconciler.emulator import catalog
from reconciler.emulator.schemas import TEXT_MAP, ApiError, Schema, invalid, put_at, value_at

Body = Mapping[str, Any]

KINDS = frozenset(
    (
        *("job", "hetero_job", "autosearch_job", "mrs_job", "edge_job", "federated_pool_job", "diag_job"),
        "visualization_job",
    )
)
EVENTS = frozenset(
    f"Job{what}"
    for what in ("Started", "Completed", "Failed", "Terminated", "Restarted", "Hanged", "Preempted")
)
DEDICATED_ONLY = ("volumes", "schedule_policy")
"""Members of the spec that public pools refuse. Source: the Terraform provider's documents alone."""
MAX_DESCRIPTION = 256
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OBS_PATH = re.compile(r"(?:(?:obs|s3):/)?/[^/]+(?:/.*)?", re.DOTALL)
_DEFAULT_CODE_DIR = "/home/ma-user/modelarts/user-job-dir"
_RESERVED_DIRS = ("/home/ma-user/modelarts/", "/home/ma-user/modelarts-dev/", "/home/ma-user/infer/")


def check_job(body: Body, *, strict_catalogue: bool = False) -> None:
    """Refuse a create request that the service would refuse; the shape has been checked before.

    `strict_catalogue`: with all that `--strict` promises.

    Raises:
        ApiError: the first rule that is broken.
    """
    if not body.get("kind"):
        raise invalid("kind is required")
    _check_among("kind", [body["kind"]], KINDS)
    if not (metadata := body.get("metadata")):
        raise invalid("metadata is required")
    check_name(metadata.get("name"))
    check_workspace(metadata.get("workspace_id"), strict=strict_catalogue)
    check_description(metadata.get("description"))
    if body.get("tasks") and body.get("spec"):
        raise invalid("tasks and spec exclude each other")
    if body.get("tasks") and body["kind"] != "hetero_job":
        raise invalid("tasks needs kind hetero_job")
    if algorithm := body.get("algorithm"):
        _check_algorithm(algorithm, strict_catalogue)
    elif body["kind"] in {"job", "federated_pool_job"}:
        raise invalid("algorithm is required")
    if not body.get("tasks"):
        _check_spec(body["kind"], body.get("spec") or {}, strict_catalogue)


def check_name(name: Any) -> None:
    """Refuse a job name that is not 1-64 letters, digits, hyphens and underscores."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise invalid("metadata.name must be 1-64 letters, digits, underscores or hyphens")


def check_workspace(workspace_id: str | None, *, strict: bool = False) -> None:
    """Refuse a workspace id that is neither "0" nor 32 characters long, or not there if that is known."""
    if workspace_id not in {None, "", "0"} and len(workspace_id or "") != 32:
        raise invalid("workspace_id must be 0 or 32 characters long")
    if workspace_id:
        catalog.check_listed("workspace", workspace_id, strict=strict)


def check_description(description: str | None) -> None:
    if description is not None and len(description) > MAX_DESCRIPTION:
        raise invalid(f"description must not exceed {MAX_DESCRIPTION} characters")


def check_priority(priority: int | None) -> None:
    """Refuse a priority outside 0-3; the text of the documents says 1-3, their value range 0-3."""
    if priority is not None and priority < 0:
        raise invalid("spec.schedule_policy.priority must not be negative")
    if priority is not None and priority > 3:
        raise ApiError("ModelArts.2816", "spec.schedule_policy.priority exceeds its upper limit 3.")


def check_notification(notification: Body | None) -> None:
    _check_among("spec.notification.events", (notification or {}).get("events") or (), EVENTS)


def _check_algorithm(algorithm: Body, strict: bool) -> None:
    _check_source(algorithm, strict)
    names = [parameter.get("name") for parameter in algorithm.get("parameters") or ()]
    if len(names) != len(set(names)):
        raise ApiError("ModelArts.2767", "The name of a parameter is used twice.")
    for kind in ("inputs", "outputs"):
        for item in algorithm.get(kind) or ():
            _check_data(kind, item)
    environments = algorithm.get("environments") or {}
    if len(environments) > 100:
        raise ApiError("ModelArts.2816", "algorithm.environments exceeds its upper limit 100.")
    for key, value in environments.items():
        if not _VARIABLE.fullmatch(key):
            raise invalid("a key of algorithm.environments must be letters, digits and underscores")
        if len(key) > 8192 or len(value) > 4096:
            raise ApiError("ModelArts.2816", "An entry of algorithm.environments exceeds its length limit.")
    code_dir = algorithm.get("local_code_dir")
    if not code_dir or code_dir.rstrip("/") == _DEFAULT_CODE_DIR:
        return
    code_dir = code_dir.rstrip("/")
    is_reserved = code_dir == "/home/ma-user" or f"{code_dir}/".startswith(_RESERVED_DIRS)
    if is_reserved or not code_dir.startswith("/home/"):
        raise ApiError("ModelArts.2857", "local_code_dir must be a directory of its own under /home.")


def _check_source(algorithm: Body, strict: bool) -> None:
    """Exactly one of: a subscription, an id, an auto search, code on an engine, a command in an image."""
    subscription = (algorithm.get("subscription_id"), algorithm.get("item_version_id"))
    algorithm_id = algorithm.get("id")
    if any(subscription):
        if not all(subscription) or algorithm_id:
            raise invalid("subscription_id goes together with item_version_id, and without algorithm.id")
        return
    if algorithm_id:
        catalog.check_listed("algorithm", algorithm_id, strict=strict)
        return
    if (framework := algorithm.get("autosearch_framework_path")) is not None:
        check_obs("autosearch_framework_path", framework, directory=True)
    if not algorithm.get("autosearch_config_path") or algorithm.get("engine"):
        _check_code_on_engine(algorithm, strict)


def _check_code_on_engine(algorithm: Body, strict: bool) -> None:
    engine = algorithm.get("engine") or {}
    command, code_dir, boot_file = (algorithm.get(key) for key in ("command", "code_dir", "boot_file"))
    if not any((command, code_dir, boot_file, engine)):
        raise invalid(
            "algorithm needs an id, a subscription, code_dir with boot_file, or command with an image"
        )
    _check_engine(engine, command, strict)
    for where, path in (("code_dir", code_dir), ("boot_file", boot_file)):
        if path and not path.startswith("file://"):  # that is a path in the image
            check_obs(where, path, directory=where == "code_dir")
    if boot_file and not code_dir:
        raise ApiError("ModelArts.2757", "code_dir is required together with boot_file.")
    if command and engine.get("image_url"):
        return
    if not code_dir:
        raise ApiError("ModelArts.2757", "code_dir is required.")
    if not boot_file:
        raise ApiError("ModelArts.2758", "boot_file is required together with code_dir.")
    if boot_file.endswith("/"):
        raise ApiError("ModelArts.2758", "boot_file is not a file.")
    if not _path_of(boot_file).startswith(_path_of(code_dir).rstrip("/") + "/"):
        raise ApiError("ModelArts.2792", "boot_file is not in code_dir.")


def _check_engine(engine: Body, command: str | None, strict: bool) -> None:
    name, version, image = (engine.get(key) for key in ("engine_name", "engine_version", "image_url"))
    if engine.get("install_sys_packages") and not (name and version and image):
        raise invalid("install_sys_packages needs engine_name, engine_version and image_url")
    if image:
        if not (name or command):
            raise ApiError("ModelArts.2806", "A custom image needs a command, or an engine_name.")
        return
    if engine.get("engine_id") or (name and version):
        catalog.check_engine(dict(engine), strict=strict)
    elif command:
        raise ApiError("ModelArts.2806", "A command needs an image_url.")
    else:
        raise ApiError("ModelArts.2830", "engine_id is required.")


def _check_data(kind: str, item: Body) -> None:
    where = f"algorithm.{kind}"
    if not item.get("name"):
        raise ApiError("ModelArts.2753", f"{where} has an item without a name.")
    remote = {key: value for key, value in (item.get("remote") or {}).items() if value is not None}
    allowed = {"obs", "dataset"} if kind == "inputs" else {"obs"}
    if remote and not allowed & remote.keys():
        raise ApiError("ModelArts.2854", f"The remote type of {where} {item['name']} is not supported.")
    if len(allowed & remote.keys()) != 1:
        raise ApiError("ModelArts.2753", f"{where} {item['name']} needs one remote.")
    if "obs" in remote:
        check_obs(f"{where} {item['name']}", remote["obs"].get("obs_url"), directory=kind == "outputs")
        return
    dataset = remote["dataset"]
    if not dataset.get("id"):
        raise ApiError("ModelArts.2783", f"The dataset of {where} {item['name']} was not found.")
    if not dataset.get("version_id") and dataset.get("service_type") != "V3":
        raise ApiError("ModelArts.2782", f"The dataset version of {where} {item['name']} was not found.")


def check_obs(where: str, path: str | None, *, directory: bool) -> None:
    """Refuse what is not an OBS path; a directory ends with a slash."""
    if not path or not _OBS_PATH.fullmatch(path):
        raise ApiError("ModelArts.2791", f"Invalid OBS path of {where}.")
    if directory and not path.endswith("/"):
        raise ApiError("ModelArts.2791", f"Invalid OBS path of {where}: a directory must end with /.")


def _check_spec(kind: str, spec: Body, strict: bool) -> None:
    if not spec.get("resource"):
        raise invalid("spec.resource is required")
    _check_resource(kind, spec, strict)
    if log_path := value_at(spec, "log_export_path.obs_url"):
        check_obs("spec.log_export_path", log_path, directory=True)
    for key in ("auto_stop", "reserved_time"):
        limit = spec.get(key)
        if limit is not None and limit.get("time_unit") != "HOURS":
            raise invalid(f"spec.{key}.time_unit must be HOURS")
        if limit is not None and (limit.get("duration") or 0) < 1:
            raise invalid(f"spec.{key}.duration must be at least 1")
    policy = spec.get("schedule_policy") or {}
    check_priority(policy.get("priority"))
    if policy.get("required_affinity") and policy.get("preferred_affinity"):
        raise invalid("required_affinity and preferred_affinity exclude each other")
    _check_enum(spec, "schedule_policy.required_affinity.affinity_type")
    check_notification(spec.get("notification"))
    _check_volumes(spec.get("volumes") or ())
    for path in ("runtime_type", "retention.policy", "log_export_config.version"):
        _check_enum(spec, path)
    for metric in spec.get("custom_metrics") or ():
        if bool(metric.get("exec")) == bool(metric.get("http_get")):
            raise invalid("an item of spec.custom_metrics needs either exec or http_get")


def _check_resource(kind: str, spec: Body, strict: bool) -> None:
    resource = spec["resource"]
    flavor_id, pool_id, group_id = (resource.get(key) for key in ("flavor_id", "pool_id", "pool_group_id"))
    if kind == "federated_pool_job" and not group_id:
        raise invalid("kind federated_pool_job needs spec.resource.pool_group_id")
    if not any((flavor_id, pool_id, group_id)):
        raise ApiError("ModelArts.2763", "flavor_id or pool_id is required.")
    # Required in one document, 1 by default in another; the emulator follows the lenient one.
    nodes = resource.get("node_count")
    if nodes is not None and nodes < 1:
        raise invalid("spec.resource.node_count must be at least 1")
    if flavor_id:
        catalog.check_flavor(flavor_id, pooled=bool(pool_id or group_id), strict=strict)
        most = catalog.max_nodes(flavor_id)
        if most is not None and (nodes or 1) > most:
            raise ApiError(
                "ModelArts.2793", f"spec.resource.node_count exceeds {most}, the maximum of the flavor."
            )
    if pool_id:
        catalog.check_listed("pool", pool_id, strict=strict)
    if strict:
        check_dedicated(spec, resource)
    is_pooled_only = spec.get("runtime_type") == "debug" or resource.get("main_container_customized_flavor")
    if not pool_id and is_pooled_only:
        raise invalid("runtime_type debug and a customized flavor need spec.resource.pool_id")


def check_dedicated(spec: Body, resource: Body) -> None:
    """Refuse what only a dedicated pool offers, on a public one."""
    if resource.get("pool_id") or resource.get("pool_group_id"):
        return
    for key in DEDICATED_ONLY:
        if spec.get(key):
            raise invalid(f"spec.{key} needs spec.resource.pool_id")


def _check_volumes(volumes: Sequence[Body]) -> None:
    kept = [[kind for kind in ("nfs", "pfs", "obs") if volume.get(kind) is not None] for volume in volumes]
    if any(len(kinds) != 1 for kinds in kept):
        raise invalid("an item of spec.volumes needs one of nfs, pfs, obs")
    if len(kept) > 8:
        raise ApiError("ModelArts.2816", "spec.volumes exceeds its upper limit 8.")
    paths = [volume[kinds[0]].get("local_path") for volume, kinds in zip(volumes, kept, strict=True)]
    if len(paths) != len(set(paths)):
        raise invalid("two items of spec.volumes have the same local_path")


_ENUMS: dict[str, frozenset[str]] = {
    "schedule_policy.required_affinity.affinity_type": frozenset(
        {"cabinet", "hyperinstance", "networkTopology"}
    ),
    "runtime_type": frozenset({"production", "debug"}),
    "retention.policy": frozenset({"enabled", "disabled"}),
    "log_export_config.version": frozenset({"v0", "v1"}),
}
"""Members of the spec that take one of a few words."""


def _check_enum(spec: Body, path: str) -> None:
    value = value_at(spec, path)
    _check_among(f"spec.{path}", [value] if value else (), _ENUMS[path])


def _check_among(where: str, values: Iterable[str], allowed: frozenset[str]) -> None:
    for value in values:
        if value not in allowed:
            raise invalid(f"{where} must be one of {', '.join(sorted(allowed))}")


def _path_of(path: str) -> str:
    return re.sub(r"^(?:(?:obs|s3):/|file://)(?=/)", "", path)


# --- updates: the fields that can be changed, in one table

_ANNOTATIONS = frozenset({"jupyter-lab/enable"})
"""The annotations that may be changed."""


class MutableField(NamedTuple):
    """One field. `path` is its place in the update request, `stored_at` its place in the job.

    Of a mapping each member is changed by itself. `check` refuses a value, None where the field is absent.
    `only_in` is the one phase in which it may be changed; None: any but Terminating.
    """

    path: str
    stored_at: str
    schema: Schema
    check: Callable[[Any], None] = lambda _: None
    on_otc: bool = False
    only_in: str | None = None


def _check_annotations(annotations: Mapping[str, str] | None) -> None:
    if others := (annotations or {}).keys() - _ANNOTATIONS:
        raise invalid(f"metadata.annotation {', '.join(sorted(others))} cannot be changed")


FIELDS = (
    MutableField("description", "metadata.description", str, check_description, on_otc=True),
    MutableField(
        "spec.schedule_policy.priority",
        "spec.schedule_policy.priority",
        int,
        check_priority,
        only_in="Pending",
    ),
    MutableField("spec.schedule_policy.preemptible", "spec.schedule_policy.preemptible", bool),
    MutableField(
        "spec.notification", "spec.notification", {"topic_urn": str, "events": [str]}, check_notification
    ),
    MutableField("endpoints.ssh.key_pair_names", "endpoints.ssh.key_pair_names", [str]),
    MutableField("metadata.annotation", "metadata.annotations", TEXT_MAP, _check_annotations),
)


UPDATE: dict[str, Any] = {}
"""The schema of an update request."""
for _field in FIELDS:
    put_at(UPDATE, _field.path, _field.schema)


def check_update(update: Mapping[str, Any], cloud: str) -> None:
    """Refuse an update that no job could take; its types have been checked before.

    Raises:
        ApiError: a field that this cloud does not change, or a value that is not allowed.
    """
    known = {field.path for field in FIELDS if field.on_otc}
    if cloud == "otc" and (others := update.keys() - known):
        raise invalid(f"{', '.join(sorted(others))} cannot be changed")
    for field in FIELDS:
        field.check(value_at(update, field.path))


def check_phase(update: Mapping[str, Any], phase: str) -> None:
    """Refuse an update of what a job in this phase keeps.

    Raises:
        ApiError: 400 ModelArts.2858.
    """
    if phase == "Terminating":
        raise ApiError("ModelArts.2858", "The job is being terminated and cannot be changed.")
    for field in FIELDS:
        if field.only_in not in (None, phase) and value_at(update, field.path) is not None:
            name = field.path.rpartition(".")[2]
            raise ApiError(
                "ModelArts.2858", f"The {name} can be changed only while the job is {field.only_in}."
            )


def merge(body: dict[str, Any], update: Mapping[str, Any]) -> None:
    """Put the values of an update into the body of a job; what is absent or null is left alone."""
    for field in FIELDS:
        value = value_at(update, field.path)
        if isinstance(value, Mapping):
            given = {name: member for name, member in value.items() if member is not None}
            value = (value_at(body, field.stored_at) or {}) | given if given else None
        if value is not None:
            put_at(body, field.stored_at, value)
