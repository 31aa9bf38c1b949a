"""The response about a job, built from the body that was sent.

The service never returns a job as it was sent: it adds, drops and rewrites fields. `job` does the same, and
`status` adds the current status.

The documents give some fields two types, or two places. Every second job (`is_variant`) has the other one, so
that clients meet both. `vary_filled` changes what the service adds, `vary_declared` what was in the request.

Source: the examples of the API documents, their tables where the examples differ, and what the Terraform
provider reads back.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from reconciler.emulator import catalog
from reconciler.emulator.lifecycle import Life
from reconciler.emulator.schemas import dump_json, put_at, value_at
from reconciler.emulator.validation import DEFAULT_CODE_DIR

AI_PROJECT = "default-ai-project"
_EXPERIMENTS = uuid.UUID("6f0b9a52-6a0c-4b8e-9f43-2a0f5a3d7c11")
_FILLED_ANNOTATIONS = ("job_template", "key_task")
_ENGINE = ("engine_id", "engine_name", "engine_version", "image_url", "install_sys_packages")
_FLAVOR = ("flavor_type", "billing", "attributes", "flavor_info")
_ECHOED_ANNOTATIONS = ("jupyter-lab/", "tensorboard/", "mindstudio-insight/", "fault-tolerance/", "record/")


def job(
    body: Mapping[str, Any],
    job_id: str,
    create_ms: int,
    user_name: str,
    *,
    noise: bool = True,
    unreported: Iterable[str] = (),
) -> dict[str, Any]:
    """Return the response about a job, all but its status. Without `noise`: as sent, plus id and time.

    `unreported` are paths of fields, `spec.notification`, that are kept and never shown.
    """
    response: dict[str, Any] = copy.deepcopy(_present(body))
    metadata = response["metadata"]
    metadata["workspace_id"] = metadata.get("workspace_id") or "0"
    metadata |= {"id": job_id, "create_time": create_ms}
    if noise:
        _add_noise(response, job_id, user_name)
        if is_variant(job_id):
            vary_filled(response)
    for path in unreported:
        above, _, name = path.rpartition(".")
        (value_at(response, above) or {} if above else response).pop(name, None)
    return response


def around_status(response: Mapping[str, Any]) -> tuple[str, str]:
    """Return the text before and after the status, so that the status alone is written anew."""
    head = {key: response[key] for key in ("kind", "metadata") if key in response}
    tail = {key: value for key, value in response.items() if key not in {"kind", "metadata", "status"}}
    rest = dump_json(tail)
    return dump_json(head)[:-1] + ',"status":', ("," + rest[1:]) if tail else "}"


def status(life: Life, node_count: int, now_ms: int, reserved_hours: int | None = None) -> dict[str, Any]:
    """Return the status of a job at `now_ms`; times in milliseconds, running records in seconds."""
    started, ended = life.started_ms, life.ended_ms
    # A job that is being terminated runs no longer.
    ran_until = life.since("Terminating") if life.phase == "Terminating" else ended or now_ms
    shown: dict[str, Any] = {
        "phase": life.phase,
        "secondary_phase": life.secondary,
        "duration": max(0, ran_until - started) if started else 0,
        "node_count_metrics": None,
        "tasks": task_names(node_count),
        "start_time": started,
    }
    if started:
        shown["node_count_metrics"] = [[life.since("Pending") or started, 0], [started, node_count]]
        start_type = "restarted" if life.was_restarted else "init_or_rescheduled"
        record: dict[str, Any] = {"start_at": started // 1000, "start_type": start_type}
        if ended:
            record |= {"end_at": ended // 1000, "end_reason": life.phase}
        shown["running_records"] = [record]
    if reserved_hours:
        shown["retention_time"] = reserved_hours
    return shown


def task_names(node_count: int) -> list[str]:
    return [f"worker-{index}" for index in range(node_count)]


def node_count(body: Mapping[str, Any]) -> int:
    """Return the nodes of a job; those of its tasks for a heterogeneous one."""
    if tasks := body.get("tasks"):
        return sum(value_at(task, "task_resource.node_count") or 1 for task in tasks)
    return value_at(body, "spec.resource.node_count") or 1


def experiment_id(reference: Mapping[str, Any] | None) -> str | None:
    """Return the id of a job's experiment; a name without an id is that of one made for it."""
    if not reference or not (reference.get("id") or reference.get("name")):
        return None
    return reference.get("id") or str(uuid.uuid5(_EXPERIMENTS, reference["name"]))


def _add_noise(response: dict[str, Any], job_id: str, user_name: str) -> None:
    fine_tuned = bool(response.pop("train_type", None)) | bool(response.pop("ftjob_config", None))
    metadata, algorithm, spec = (response.get(key) or {} for key in ("metadata", "algorithm", "spec"))
    metadata["description"] = metadata.get("description") or ""
    metadata |= {"ai_project": AI_PROJECT, "user_name": user_name}
    sent = metadata.get("annotations") or {}
    # Clients cannot rely on their own annotations: only the documented ones come back.
    kept = {key: value for key, value in sent.items() if key.startswith(_ECHOED_ANNOTATIONS)}
    is_hetero = response.get("kind") == "hetero_job"
    template = "Template RL" if is_hetero else sent.get("job_template", "Template DL")
    metadata["annotations"] = {"job_template": template, "key_task": "worker"} | kept
    if experiment := metadata.get("training_experiment_reference"):
        metadata["training_experiment_reference"] = {"id": experiment_id(experiment), "serial_number": "1"}
    if algorithm:
        _fill_algorithm(algorithm)
    if spec:
        _fill_spec(spec)
    for task in response.get("tasks") or ():
        # A task's response holds one input and one output where the request holds lists of them.
        own = task.get("algorithm") or {}
        for kind in ("inputs", "outputs"):
            if isinstance(own.get(kind), list):
                own[kind] = own[kind][0] if own[kind] else None
        resource = task.get("task_resource") or {}
        if flavor_id := resource.get("flavor_id"):
            known = catalog.flavor(flavor_id)
            resource |= {key: known[key] for key in ("flavor_name", *_FLAVOR)}
            resource["max_num"] = known["flavor_info"]["max_num"]
    endpoints = response.get("endpoints") or {}
    if ssh := endpoints.get("ssh"):
        ssh["task_urls"] = [
            {"task": task, "url": f"ssh://ma-user@{job_id}-{task}.modelarts.invalid:22"}
            for task in task_names(node_count(response))
        ]
    for tool in ("jupyter-lab", "tensorboard", "mindstudio-insight"):
        if kept.get(f"{tool}/enable") == "true":
            url, token = f"https://{job_id}.modelarts.invalid/{tool}", f"token-{job_id}"
            endpoints[tool.replace("-", "_")] = {"url": url, "token": token}
    if endpoints:
        response["endpoints"] = endpoints
    if fine_tuned:
        algorithm.pop("inputs", None)
        for key in ("output_model", "asset_model", "asset_id"):
            spec.pop(key, None)


def _fill_algorithm(algorithm: dict[str, Any]) -> None:
    if algorithm_id := algorithm.get("id"):
        known = catalog.algorithm(algorithm_id)
        algorithm |= {"name": known["name"], "parameters_customization": True}
        algorithm["code_dir"] = algorithm.get("code_dir") or known["code_dir"]
        algorithm["boot_file"] = algorithm.get("boot_file") or known["boot_file"]
        algorithm["engine"] = algorithm.get("engine") or {"engine_id": known["engine_id"]}
    if algorithm.get("engine"):
        algorithm["engine"] = _engine(algorithm["engine"])
    if algorithm.get("code_dir"):
        algorithm["local_code_dir"] = algorithm.get("local_code_dir") or DEFAULT_CODE_DIR
    for parameter in algorithm.get("parameters") or ():
        parameter["description"] = parameter.get("description") or ""
        parameter.setdefault("i18n_description", None)
        filled = {"editable": True, "required": False, "sensitive": False, "valid_type": "None"}
        of_type = {"type": _value_type(parameter.get("value") or "")}
        sent = parameter.get("constraint") or {}
        parameter["constraint"] = of_type | filled | {"valid_range": []} | sent
    algorithm["policies"] = _present(algorithm.get("policies"))
    for kind, items in ((kind, algorithm.get(kind) or ()) for kind in ("inputs", "outputs")):
        for index, item in enumerate(items):
            default = f"/home/ma-user/modelarts/{kind}/{item['name']}_{index}"
            item["local_dir"] = item.get("local_dir") or default
            remote = item.get("remote") or {}
            if obs := remote.get("obs"):
                obs["obs_url"] = _without_scheme(obs["obs_url"])
            if dataset := remote.get("dataset"):
                version = dataset.get("version_id") or "latest"
                dataset["obs_url"] = f"/modelarts-emulator/datasets/{dataset['id']}/{version}/"
            if kind == "outputs":
                item["access_method"] = item.get("access_method") or "parameter"
                item |= {"mode": "upload_periodically", "period": 30}
    if not algorithm.get("environments"):
        algorithm.pop("environments", None)


def _engine(sent: dict[str, Any]) -> dict[str, Any]:
    if sent.get("image_url"):
        return {"v1_compatible": False, "run_user": "1000"} | sent
    known = catalog.find_engine(sent)
    if known is None:
        engine_id = sent.get("engine_id") or sent["engine_version"]
        name = sent.get("engine_name") or engine_id.split("_")[0]
        known = {"engine_id": engine_id, "engine_name": name, "engine_version": engine_id, "tags": []}
    shown = {key: known[key] for key in ("engine_id", "engine_name", "engine_version", "tags")}
    served = {"v1_compatible": known.get("v1_compatible", False), "run_user": known.get("run_user", "")}
    return sent | shown | served | {"usage": "training", "support_groups": "public"}


def _value_type(text: str) -> str:
    if text in {"true", "false", "True", "False"}:
        return "Boolean"
    for kind, name in ((int, "Integer"), (float, "Float")):
        with suppress(ValueError):
            kind(text)
            return name
    return "String"


def _fill_spec(spec: dict[str, Any]) -> None:
    resource = spec["resource"]
    resource["node_count"] = resource.get("node_count") or 1
    if pool_id := resource.get("pool_id"):
        resource["flavor_id"] = resource.get("flavor_id") or "modelarts.pool.visual.xlarge"
        resource["pool_name"] = pool_id
        spec["schedule_policy"] = {"priority": 1} | (spec.get("schedule_policy") or {})
    elif flavor_id := resource.get("flavor_id"):
        known = catalog.flavor(flavor_id)
        resource |= {"policy": "regular", "flavor_name": known["flavor_name"]}
        resource["flavor_detail"] = {key: known[key] for key in _FLAVOR}
    for volume in spec.get("volumes") or ():
        if value_at(volume, "nfs.read_only") is False:
            del volume["nfs"]["read_only"]
    log = {key: value for key, value in (spec.get("log_export_path") or {}).items() if value}
    if "obs_url" in log:
        log["obs_url"] = _without_scheme(log["obs_url"])
    runtime_type = spec.get("runtime_type") or "production"
    spec |= {"log_export_path": log, "is_hosted_log": True, "runtime_type": runtime_type}
    spec.pop("retention", None)
    if asset := spec.get("asset_model"):
        name = asset.get("name", "")
        asset |= {"id": f"asset-{name}", "location": f"/modelarts-emulator/{name}/"}


def _present(members: Mapping[str, Any] | None) -> dict[str, Any]:
    return {key: value for key, value in (members or {}).items() if value is not None}


def _without_scheme(path: str) -> str:
    return path.removeprefix("obs:/") if path.startswith("obs://") else path


# ── variants ───────────────────────────────────────────────────────────────────────────────────


def is_variant(job_id: str) -> bool:
    """Say whether a job is returned as the variant: its id ends with an odd digit."""
    return job_id[-1:] in "13579bdf"


def nth_id(job_id: str, number: int) -> str:
    """Return the id for the nth job, from 1: the second, the fourth and so on are `is_variant`."""
    return f"{job_id[:-1]}{int(job_id[-1], 16) & ~1 | (number + 1) % 2:x}"


def vary_status(status: dict[str, Any]) -> dict[str, Any]:
    metrics = status["node_count_metrics"] or []
    return status | {"start_time": str(status["start_time"]), "node_count_metrics": metrics}


def vary_filled(response: dict[str, Any]) -> None:
    response["metadata"].pop("ai_project", None)
    algorithm, spec = response.get("algorithm") or {}, response.get("spec") or {}
    if engine := algorithm.get("engine"):
        algorithm["engine"] = {key: engine[key] for key in _ENGINE if key in engine}
    if not algorithm.get("policies", True):
        del algorithm["policies"]
    for parameter in algorithm.get("parameters") or ():
        parameter.pop("i18n_description", None)
    for output in algorithm.get("outputs") or ():
        output["period"] = f"{output['period']}s"
    spec.pop("is_hosted_log", None)
    if resource := spec.get("resource"):
        resource.pop("policy", None)
        if detail := resource.get("flavor_detail"):
            detail.pop("attributes")
            info = detail["flavor_info"] = copy.deepcopy(detail["flavor_info"])
            info["disk"]["size"] = str(info["disk"]["size"])
            if gpu := info.get("gpu"):
                named = {"product_nume" if key == "product_name" else key: gpu[key] for key in gpu}
                info["gpu"] = named | {"unit_num": str(gpu["unit_num"])}
            if npu := info.get("npu"):
                npu["unit_num"] = int(npu["unit_num"])


def vary_declared(response: dict[str, Any]) -> None:
    """Change what was declared to its variant; the text of the description stays."""
    metadata = response["metadata"]
    metadata["description"] = metadata.get("description") or None
    metadata["annotations"] = {key: metadata["annotations"][key] for key in _FILLED_ANNOTATIONS}
    algorithm, spec = response.get("algorithm") or {}, response.get("spec") or {}
    for key in ("code_dir", "boot_file"):
        if algorithm.get(key):
            algorithm[key] = _other_path(algorithm[key])
    if variables := algorithm.get("environments"):
        algorithm["environments"] = [{key: value} for key, value in variables.items()]
    for kind in ("inputs", "outputs"):
        for item in algorithm.get(kind) or ():
            if (url := value_at(item, "remote.obs.obs_url")) is not None:
                other = {"obs_url": _other_path(url)}
                item["remote"] = item["remote"] | {"obs": other} if kind == "inputs" else other
    spec["volumes"] = [volume.get("nfs") or volume for volume in spec.get("volumes") or ()]
    for path in ("auto_stop.duration", "schedule_policy.priority"):
        if (value := value_at(spec, path)) is not None:
            put_at(spec, path, str(value))
    log = spec.get("log_export_path") or {}
    spec["log_export_path"] = log | {"obs_url": _other_path(log.get("obs_url", ""))}


def _other_path(path: str) -> str:
    """Return an OBS path without its scheme if it has one, with it if it has none."""
    if path.startswith("obs://"):
        return path.removeprefix("obs:/")
    return f"obs:/{path}" if path.startswith("/") else path
