"""One spelling for what the service's documents, and its answers, spell in two ways.

Only what was reported is levelled: what was declared keeps the form that its digest was made from.
Source: docs/modelarts.md, "Contradictions".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def one_spelling(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job that the service returned, in manifest form, in the spelling of the create body."""
    result = dict(job)
    if isinstance(algorithm := job.get("algorithm"), dict):
        result["algorithm"] = _algorithm(algorithm)
    if isinstance(tasks := job.get("tasks"), list):
        result["tasks"] = [_task(task) for task in tasks]
    if isinstance(spec := job.get("spec"), dict) and isinstance(volumes := spec.get("volumes"), list):
        result["spec"] = {**spec, "volumes": [_volume(volume) for volume in volumes]}
    return result


def _task(task: Any) -> Any:
    if not isinstance(task, dict) or not isinstance(algorithm := task.get("algorithm"), dict):
        return task
    algorithm = _algorithm(algorithm)
    if isinstance(config := algorithm.get("job_config"), dict):
        algorithm["job_config"] = _algorithm(config)
    return {**task, "algorithm": algorithm}


def _algorithm(algorithm: dict[str, Any]) -> dict[str, Any]:
    result = dict(algorithm)
    for kind in ("inputs", "outputs"):
        items = result.get(kind)
        if isinstance(items, dict) and "name" in items:
            items = [items]  # a task's answer has one object where the request has a list
        if isinstance(items, list):
            result[kind] = [_data(item) for item in items]
    return result


def _data(item: Any) -> Any:
    remote = item.get("remote") if isinstance(item, dict) else None
    if isinstance(remote, dict) and "obs_url" in remote and "obs" not in remote:
        return {**item, "remote": {"obs": {"obs_url": remote["obs_url"]}}}
    return item


def _volume(volume: Any) -> Any:
    is_flat = isinstance(volume, dict) and "nfs_server_path" in volume and "nfs" not in volume
    return {"nfs": volume} if is_flat else volume
