"""The create body of a job: how it is built, summarized and hashed."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from math import inf
from typing import Any, NamedTuple, TypeGuard

from reconciler.core.canonical import Canonical, FieldRule, canonical, immutable_part, rules, scalar, value_at
from reconciler.core.scalar import (
    UnresolvedText,
    as_released,
    plain,
    scalar_text,
    text_released_as,
    walk_texts,
)
from reconciler.secrets import SecretText, show
from reconciler.text import format_duration, parse_duration


def normalize_aliases(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job from the service, in manifest form, with the names that the create body uses."""
    result = with_algorithms(job, _algorithm)
    if isinstance(spec := job.get("spec"), dict) and isinstance(volumes := spec.get("volumes"), list):
        result["spec"] = {**spec, "volumes": [_volume(volume) for volume in volumes]}
    return result


def with_algorithms(
    job: Mapping[str, Any], rewrite: Callable[[Mapping[str, Any], tuple[str | int, ...]], dict[str, Any]]
) -> dict[str, Any]:
    """Return a job with all its algorithms rewritten: its own, its tasks', and their `job_config`.

    `rewrite` also gets the path of each.
    """
    result = dict(job)
    if isinstance(algorithm := job.get("algorithm"), dict):
        result["algorithm"] = rewrite(algorithm, ("algorithm",))
    if isinstance(tasks := job.get("tasks"), list):
        result["tasks"] = tasks = list(tasks)
        for index, task in enumerate(tasks):
            if isinstance(task, Mapping) and isinstance(algorithm := task.get("algorithm"), Mapping):
                path = ("tasks", index, "algorithm")
                algorithm = rewrite(algorithm, path)
                if isinstance(config := algorithm.get("job_config"), Mapping):
                    algorithm["job_config"] = rewrite(config, (*path, "job_config"))
                tasks[index] = {**task, "algorithm": algorithm}
    return result


def _algorithm(algorithm: Mapping[str, Any], _: object) -> dict[str, Any]:
    result = dict(algorithm)
    for kind in ("inputs", "outputs"):
        items = result.get(kind)
        if isinstance(items, dict) and "name" in items:
            items = [items]  # a task's response has one object where the request has a list
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


# --- The create body: from a manifest entry to the request, and back to manifest form

#: Members of the service's `metadata` that are on the top level of an entry.
HOISTED = ("description", "annotations", "training_experiment_reference")
#: Keys of an entry that are the reconciler's own, and never sent.
OWN_KEYS = frozenset({"code", "lifecycle", "state", "needs", "formerly", "max_parallel", "targets", "raw"})
#: What `raw` must not set: the job's identity, or what is never sent.
RAW_FORBIDDEN = {"metadata": ("name", "description", "workspace_id", "id")}

#: Lists of an algorithm whose items have names.
NAMED_LISTS = ("parameters", "inputs", "outputs")


def desugar(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry (or part of one, such as `defaults`) with its mapping forms as lists.

    Values of the wrong type are kept, for the models to report.
    """
    result = with_algorithms(entry, _desugar_algorithm)
    spec = result.get("spec")
    if isinstance(spec, dict) and isinstance(spec.get("auto_stop"), str):
        result["spec"] = {**spec, "auto_stop": _auto_stop(spec["auto_stop"])}
    return result


def _auto_stop(text: str) -> Any:
    """Convert text such as `8h` to the service's form. Invalid text is kept, for the models to report."""
    try:
        seconds = parse_duration(text)
    except ValueError:
        return text
    if seconds < 1 or seconds % 1:
        return text
    unit, size = ("SECONDS", 1) if seconds % 3600 else ("HOURS", 3600)
    return {"time_unit": unit, "duration": int(seconds) // size}


def _desugar_algorithm(algorithm: Mapping[str, Any], _: object) -> dict[str, Any]:
    result = dict(algorithm)
    for kind in NAMED_LISTS:
        value = result.get(kind)
        if isinstance(value, dict):
            value = [_named_item(kind, str(name), item) for name, item in value.items()]
        if isinstance(value, list):
            result[kind] = [_hide_sensitive(item) for item in value] if kind == "parameters" else value
    environments = result.get("environments")
    # Invalid items are kept, for the models to report.
    if isinstance(environments, list) and all(
        isinstance(item, Mapping) and (not is_named_environment(item) or isinstance(item["name"], str))
        for item in environments
    ):
        variables: dict[str, Any] = {}
        for item in environments:
            if is_named_environment(item):
                variables[item["name"]] = {name: value for name, value in item.items() if name != "name"}
            else:
                variables |= item
        environments = variables
    if isinstance(environments, dict):
        result["environments"] = {
            name: _environment_value(name, value) if isinstance(value, dict) else value
            for name, value in environments.items()
        }
    return result


def is_named_environment(item: Mapping[str, Any]) -> bool:
    """Whether an item of a list of environments is one variable, `{name: …, value: …, sensitive: …}`.

    Otherwise it maps variables to values, as in some of the service's documents.
    """
    return "name" in item and ("value" in item or "sensitive" in item)


def _named_item(kind: str, name: str, item: Any) -> Any:
    if isinstance(item, dict):
        return {"name": name, **item}
    if item is None:
        return {"name": name, "value" if kind == "parameters" else "remote": None}
    if kind == "parameters":
        return {"name": name, "value": item}
    return {"name": name, "remote": {"obs": {"obs_url": item}}}


def _hide_sensitive(parameter: Any) -> Any:
    """Make the value of a parameter secret if it is marked `sensitive`. The value may be inherited."""
    if not isinstance(parameter, dict) or plain(parameter.get("sensitive")) is not True:
        return parameter
    if "value" not in parameter:
        return parameter
    return {**parameter, "value": _secret(parameter["value"], f"parameter.{parameter.get('name')}")}


def _environment_value(name: str, value: Mapping[str, Any]) -> Any:
    if "value" not in value or not set(value) <= {"value", "sensitive"}:
        return value
    sensitive = plain(value.get("sensitive", False))
    if not isinstance(sensitive, bool):
        return value  # the models report it: a typo must not expose a secret
    return _secret(value["value"], f"environment.{name}") if sensitive else value["value"]


def _secret(value: Any, name: str) -> Any:
    text = scalar_text(value)
    if isinstance(text, UnresolvedText):
        return UnresolvedText(text, f"${{{name}}}")
    if isinstance(text, str) and not isinstance(text, SecretText):
        return SecretText(text, f"${{{name}}}")
    return text


def merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two desugared trees: mappings by member, named lists by name; else the value of `over` wins.

    A null in `over` removes a value. A value that replaces a sensitive one is sensitive.
    """
    result = dict(under)
    for key, value in over.items():
        below = result.get(key)
        if isinstance(below, dict) and isinstance(value, dict):
            result[key] = merge(below, _keep_secret(below, value) if key == "environments" else value)
        elif key in NAMED_LISTS and is_named_list(below) and is_named_list(value):
            # An item whose only member besides its name is null removes the inherited one.
            named = {item["name"]: item for item in below}
            for item in value:
                says_null = len(item) > 1 and all(v is None for name, v in item.items() if name != "name")
                if says_null and item["name"] in named:
                    del named[item["name"]]
                else:
                    named[item["name"]] = merge(named.get(item["name"], {}), item)
            items = named.values()
            result[key] = [_hide_sensitive(item) for item in items] if key == "parameters" else list(items)
        else:
            result[key] = value
    return result


def _keep_secret(below: Mapping[str, Any], environments: Mapping[str, Any]) -> dict[str, Any]:
    """Make variables secret that are secret below. Their mark is gone by now."""
    result = dict(environments)
    for name in environments.keys() & below.keys():
        old, new, reference = below[name], environments[name], f"${{environment.{name}}}"
        is_hidden = (isinstance(old, SecretText) and old.reference == reference) or (
            isinstance(old, UnresolvedText) and old.secret == reference
        )
        if is_hidden and new is not None:
            result[name] = _secret(new, f"environment.{name}")
    return result


def is_named_list(value: Any) -> TypeGuard[list[Mapping[str, Any]]]:
    return isinstance(value, list) and all(
        isinstance(i, Mapping) and isinstance(i.get("name"), str) for i in value
    )


def create_body(entry: Mapping[str, Any], *, holds_null: bool = True) -> dict[str, Any]:
    """Build the body from a desugared, validated entry, with `raw` merged last.

    It lacks the job's identity: `with_identity` adds `metadata.name`, `.workspace_id` and `.description`
    when the revision is known. Secrets stay `SecretText`.
    """
    body: dict[str, Any] = {"kind": entry.get("kind") or "job", "metadata": {}}
    for key, value in entry.items():
        if key in OWN_KEYS or key in ("kind", "description"):
            continue
        place = body["metadata"] if key in HOISTED else body
        if (sent := _sendable(value) if holds_null else value) is not None:
            place[key] = sent
    spec = body.get("spec", {})
    if isinstance(resource := spec.get("resource"), dict) and "node_count" not in resource:
        # The SDK requires it, although the OTC documents make it optional.
        body["spec"] = {**spec, "resource": {**resource, "node_count": 1}}
    if isinstance(raw := entry.get("raw"), Mapping):
        body = merge(body, desugar(raw))
    if isinstance(annotations := body["metadata"].get("annotations"), dict):
        body["metadata"]["annotations"] = _as_texts(annotations)
    typed: dict[str, Any] = _typed(with_algorithms(body, _sent_algorithm), _body_rule())
    return typed


def _sent_algorithm(algorithm: Mapping[str, Any], _: object) -> dict[str, Any]:
    """Convert values to text where the service requires it."""
    result = dict(algorithm)
    if isinstance(environments := result.get("environments"), dict):
        result["environments"] = _as_texts(environments)
    if isinstance(parameters := result.get("parameters"), list):
        result["parameters"] = [_sent_parameter(one) if isinstance(one, dict) else one for one in parameters]
    return result


def _sent_parameter(parameter: dict[str, Any]) -> dict[str, Any]:
    sent = {name: value for name, value in parameter.items() if name != "sensitive"}
    if "value" in sent and sent["value"].__class__ is not str:
        sent["value"] = scalar_text(sent["value"])
    return sent


def _as_texts(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value if value.__class__ is str else scalar_text(value) for name, value in members.items()}


@cache
def _body_rule() -> FieldRule:
    """The rules of a create body: those of a manifest, repeated below `metadata`."""
    rule = FieldRule()
    rule.members = {**rules().members, "metadata": rules()}
    return rule


def _typed(value: Any, rule: FieldRule) -> Any:
    """Copy plain data. Where the service wants text, numbers become text as spelled; else plain values."""
    if isinstance(value, dict):
        members, others = rule.members, rule.others
        # A shortcut for most members, which are text or whole numbers.
        result: dict[str, Any] = {}
        for name, member in value.items():
            below = members.get(name) or others
            is_same = member.__class__ is str or (member.__class__ is int and not below.is_text)
            result[name] = member if is_same else _typed(member, below)
        return result
    if isinstance(value, list):
        item = rule.item or _UNKNOWN
        return [_typed(member, item) for member in value]
    if rule.is_text and isinstance(value, int | float):
        # Version 0.1.0 sent a number here, so its digest covers a number.
        return text_released_as(str(scalar_text(value)), scalar(plain(value)))
    return plain(value)


_UNKNOWN = FieldRule()


def _sendable(value: Any) -> Any:
    """Copy plain data without nulls: null and absent mean the same to the service."""
    if isinstance(value, dict):
        return {k: v if v.__class__ is str else _sendable(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [_sendable(v) for v in value if v is not None]
    return value


def algorithms_in(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Return every algorithm in a body: its own, its tasks', and their `job_config`."""
    of_tasks = [task.get("algorithm") for task in filter(_is_dict, body.get("tasks") or ())]
    below = [algorithm.get("job_config") for algorithm in filter(_is_dict, of_tasks)]
    return filter(_is_dict, [body.get("algorithm"), *of_tasks, *below])


def _is_dict(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def with_identity(
    body: Mapping[str, Any], *, name: str, workspace_id: str, description: str
) -> dict[str, Any]:
    """Return the body to send, with name, workspace and description (which ends in the marker)."""
    identity = {"name": name, "workspace_id": workspace_id, "description": description}
    return {**body, "metadata": {**body["metadata"], **identity}}


def manifest_form(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a create body, or a job from the service, with its fields where a manifest has them."""
    flat = {key: value for key, value in body.items() if key not in ("metadata", "status")}
    metadata = body.get("metadata")
    if isinstance(metadata, Mapping):
        flat |= {k: v for k, v in metadata.items() if k not in ("name", "workspace_id", "id")}
    return flat


# --- A summary of a create body: nodes, flavor, engine, auto_stop

_POOLS = ("pool_id", "pool_group_id")


class UsedNodes(NamedTuple):
    """Nodes (None: not a valid number) of a flavor, or of a pool if the job names no flavor."""

    nodes: int | None
    name: str


def placed(body: Mapping[str, Any], own: str, of_task: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield what the body has at path `own`, and each task at `of_task`, with their full paths."""
    yield own, mapping_at(body, *own.split("."))
    tasks = body.get("tasks")
    for index, task in enumerate(tasks if isinstance(tasks, list) else ()):
        yield f"tasks[{index}].{of_task}", mapping_at(task, of_task)


def mapping_at(tree: Any, *path: str) -> Mapping[str, Any]:
    """Return the mapping at a path of plain data, or an empty one."""
    value = value_at(tree, path)
    return value if isinstance(value, Mapping) else {}


def resources(body: Mapping[str, Any]) -> list[UsedNodes]:
    """Return the nodes that a job with this body takes, including those of its tasks."""
    result = []
    for _, resource in placed(body, "spec.resource", "task_resource"):
        if name := next(filter(None, map(resource.get, ("flavor_id", *_POOLS))), None):
            count = resource.get("node_count", 1)
            is_count = _is_positive(count) and isinstance(count, int)
            result.append(UsedNodes(count if is_count else None, str(name)))
    return result


def auto_stop_hours(body: Mapping[str, Any]) -> float | None:
    """Return the hours after which the service stops the job; None if it does not, or if unknown."""
    span = mapping_at(body, "spec", "auto_stop")
    duration = span.get("duration")
    if not _is_positive(duration):
        return None
    return duration / 3600 if span.get("time_unit") == "SECONDS" else float(duration)


def _is_positive(value: Any) -> TypeGuard[float]:
    """Whether a value is a positive, finite number: `raw` may put anything into a body."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < inf


def summarize(body: Mapping[str, Any]) -> str:
    """Summarize what a job takes and runs: `8 × modelarts.p3.large.public, pytorch, at most 48 h`.

    A heterogeneous job shows the nodes of each task. Missing values are left out.
    """
    body = show(body)
    parts = [f"{count} × {place}" for count, place in _nodes(body)]
    algorithm = mapping_at(body, "algorithm")
    parts += (f"algorithm {algorithm[name]}" for name in ("id", "subscription_id") if algorithm.get(name))
    names = ("engine_id", "engine_name", "engine_version", "image_url")
    engines = [mapping_at(one, "engine") for _, one in placed(body, "algorithm", "algorithm")]
    texts = (" ".join(str(engine[name]) for name in names if engine.get(name)) for engine in engines)
    parts += dict.fromkeys(filter(None, texts))
    span = mapping_at(body, "spec", "auto_stop")
    if duration := span.get("duration"):
        is_short = span.get("time_unit") == "SECONDS" and _is_positive(duration)
        parts.append(f"at most {format_duration(duration) if is_short else f'{duration} h'}")
    return ", ".join(parts)


def nodes_by_place(body: Mapping[str, Any]) -> Counter[str]:
    """Count the nodes that a job with this body takes by flavor, or by pool if it names no flavor."""
    nodes: Counter[str] = Counter()
    for count, place in _nodes(show(body)):
        nodes[place] += count if isinstance(count, int) else 1
    return nodes


def _nodes(body: Mapping[str, Any]) -> Iterator[tuple[Any, str]]:
    """Yield the nodes of the job and of each of its tasks, with their flavor and pool."""
    for _, resource in placed(body, "spec.resource", "task_resource"):
        flavor, pool = resource.get("flavor_id"), next(filter(None, map(resource.get, _POOLS)), None)
        if flavor or pool:
            names = filter(None, (str(flavor or ""), pool and f"pool {pool}"))
            yield resource.get("node_count", 1), " of ".join(names)


# --- The digest: a letter that names the algorithm, and 12 hex digits over the immutable part

#: The key of `lifecycle.rerun` in the digested form; the space keeps it apart from the service's fields.
RERUN = "lifecycle rerun"


def dotted_path(path: Iterable[Any]) -> str:
    """Write a path as users know it: `algorithm.parameters.lr`, `lifecycle.rerun`."""
    parts = [str(part) for part in path]
    if parts == [RERUN]:
        return "lifecycle.rerun"
    if len(parts) > 2 and parts[-1] == "value" and parts[-3] == "parameters":
        parts.pop()
    return ".".join(parts)


#: They hash canonical forms alike, but some manifests have a different form in each (see `covered_by`).
ALGORITHMS = ("a", "b")
CURRENT = "b"


def declared(immutable: Canonical, rerun: str | None) -> Canonical:
    """Return what the digest covers: the immutable part, and `lifecycle.rerun`."""
    return {**immutable, RERUN: rerun} if rerun else immutable


def covered_by(letter: str, body: Mapping[str, Any], rerun: str | None) -> Canonical:
    """Return what a digest with that letter covers of a create body and of `lifecycle.rerun`."""
    if letter == "a":
        body, rerun = walk_texts(body, as_released), None if rerun is None else as_released(rerun)
    return declared(immutable_part(canonical(manifest_form(body))), rerun)


def digest_of(covered: Canonical, algorithm: str = CURRENT) -> str:
    """Return the digest, e.g. `a3f9a2c1b7d4e`, of what `declared` returned."""
    data = _encode(covered).encode("utf-8", "surrogatepass")
    return algorithm + hashlib.sha256(data).hexdigest()[:12]


_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode


def is_of_same_form(digest: str, other: str) -> bool:
    """Whether two digests are of the same canonical form, whatever their algorithms.

    All algorithms hash a form alike, so equal digits mean equal forms. If the letters differ, different
    digits prove nothing: a manifest may have a different form in each.
    """
    return digest == other or (is_known(digest) and is_known(other) and digest[1:] == other[1:])


def is_known(digest: str) -> bool:
    """Whether this version can compute digests with that letter."""
    return digest[:1] in ALGORITHMS
