"""The variants of a response: the documents give one field two types, or two places.

Every second job (`is_variant`) is returned so, and a client meets both. `vary_filled` changes
what the service itself adds; `vary_declared` what was in the request too, which only a client that
compares the two can trip over.

Source: the inconsistencies between the documents, and the types of their tables where the examples differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from reconciler.emulator.json_body import put_at, value_at

_FILLED_ANNOTATIONS = ("job_template", "key_task")
_ENGINE = ("engine_id", "engine_name", "engine_version", "image_url", "install_sys_packages")


def is_variant(job_id: str) -> bool:
    """Say whether a job is returned as the variant: its id ends with an odd digit."""
    return job_id[-1:] in "13579bdf"


def nth_id(job_id: str, number: int) -> str:
    """Return the id for the nth job, from 1: the second, the fourth and so on are `is_variant`."""
    return f"{job_id[:-1]}{int(job_id[-1], 16) & ~1 | (number + 1) % 2:x}"


def vary_status(status: dict[str, Any]) -> dict[str, Any]:
    """Return a status whose `start_time` is text, and whose lists are empty rather than null."""
    metrics = status["node_count_metrics"] or []
    return status | {"start_time": str(status["start_time"]), "node_count_metrics": metrics}


def vary_filled(response: dict[str, Any]) -> None:
    """Change what the service filled in to its variant."""
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
            detail["flavor_info"] = _flavor_info(detail["flavor_info"])


def _flavor_info(info: dict[str, Any]) -> dict[str, Any]:
    changed = {**info, "disk": {**info["disk"], "size": str(info["disk"]["size"])}}
    if gpu := info.get("gpu"):
        named = {"product_nume" if key == "product_name" else key: value for key, value in gpu.items()}
        changed["gpu"] = named | {"unit_num": str(gpu["unit_num"])}
    if npu := info.get("npu"):
        changed["npu"] = {**npu, "unit_num": int(npu["unit_num"])}
    return changed


def vary_declared(response: dict[str, Any]) -> None:
    """Change what was declared to its variant; the text of the description stays."""
    metadata = response["metadata"]
    metadata["description"] = metadata.get("description") or None
    metadata["annotations"] = {key: metadata["annotations"][key] for key in _FILLED_ANNOTATIONS}
    _vary_algorithm(response.get("algorithm") or {})
    _vary_spec(response.get("spec") or {})


def _vary_algorithm(algorithm: dict[str, Any]) -> None:
    for key in ("code_dir", "boot_file"):
        if algorithm.get(key):
            algorithm[key] = _other_path(algorithm[key])
    if variables := algorithm.get("environments"):
        algorithm["environments"] = [{key: value} for key, value in variables.items()]
    for item, url in _on_obs(algorithm.get("inputs")):
        item["remote"]["obs"]["obs_url"] = _other_path(url)
    for item, url in _on_obs(algorithm.get("outputs")):
        item["remote"] = {"obs_url": _other_path(url)}


def _on_obs(items: Iterable[dict[str, Any]] | None) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the inputs or outputs that are on OBS, each with its path there."""
    for item in items or ():
        if (url := value_at(item, "remote.obs.obs_url")) is not None:
            yield item, url


def _vary_spec(spec: dict[str, Any]) -> None:
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
