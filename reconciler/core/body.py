"""The create body of a job: made of what is declared, summed up, and its digest."""

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


def one_spelling(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job that the service returned, in manifest form, in the spelling of the create body."""
    result = with_algorithms(job, _algorithm)
    if isinstance(spec := job.get("spec"), dict) and isinstance(volumes := spec.get("volumes"), list):
        result["spec"] = {**spec, "volumes": [_volume(volume) for volume in volumes]}
    return result


def with_algorithms(
    job: Mapping[str, Any], rewrite: Callable[[Mapping[str, Any], tuple[str | int, ...]], dict[str, Any]]
) -> dict[str, Any]:
    """A job with its algorithm, those of its tasks, and what these were made of, each rewritten.

    `rewrite` gets the path to it, too.
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


# --- The create body: from what people write below a job to what the service is sent, and back to paths

#: Members of the service's `metadata` that stand on the first level of an entry.
HOISTED = ("description", "annotations", "training_experiment_reference")
#: Keys of an entry that are the reconciler's own, and never sent.
OWN_KEYS = frozenset({"code", "lifecycle", "state", "needs", "formerly", "max_parallel", "targets", "raw"})
#: What `raw` must not hold: it would forge the job's identity, or is never sent.
RAW_FORBIDDEN = {"metadata": ("name", "description", "workspace_id", "id")}

#: Lists of an algorithm whose items have a name.
NAMED_LISTS = ("parameters", "inputs", "outputs")


def desugar(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry (or a part of one, such as `defaults`) with its mapping forms as lists.

    Values of the wrong type are left as they are: saying so is the models' work.
    """
    result = with_algorithms(entry, _desugar_algorithm)
    spec = result.get("spec")
    if isinstance(spec, dict) and isinstance(spec.get("auto_stop"), str):
        result["spec"] = {**spec, "auto_stop": _span(spec["auto_stop"])}
    return result


def _span(text: str) -> Any:
    """A span as the service has it, of text such as `8h`; what it is not is for the models to refuse."""
    try:
        seconds = parse_duration(text)
    except ValueError:
        return text
    if seconds < 1 or seconds % 1:
        return text
    hours, rest = divmod(int(seconds), 3600)
    return (
        {"time_unit": "SECONDS", "duration": int(seconds)}
        if rest
        else {"time_unit": "HOURS", "duration": hours}
    )


def _desugar_algorithm(algorithm: Mapping[str, Any], _: object) -> dict[str, Any]:
    result = dict(algorithm)
    for kind in NAMED_LISTS:
        value = result.get(kind)
        if isinstance(value, dict):
            value = [_named(kind, str(name), item) for name, item in value.items()]
        if isinstance(value, list):
            result[kind] = [_hide_sensitive(item) for item in value] if kind == "parameters" else value
    environments = result.get("environments")
    # An item that cannot be read is for the models to refuse.
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

    Else it is a map of variables to values, as some of the service's documents have it.
    """
    return "name" in item and ("value" in item or "sensitive" in item)


def _named(kind: str, name: str, item: Any) -> Any:
    if isinstance(item, dict):
        return {"name": name, **item}
    if item is None:
        return {"name": name, "value" if kind == "parameters" else "remote": None}
    if kind == "parameters":
        return {"name": name, "value": item}
    return {"name": name, "remote": {"obs": {"obs_url": item}}}


def _hide_sensitive(parameter: Any) -> Any:
    """A parameter with its value hidden, if it says so and has one; the value may be inherited."""
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
        return value  # for the models to refuse: a secret must not slip through a typo
    return _secret(value["value"], f"environment.{name}") if sensitive else value["value"]


def _secret(value: Any, name: str) -> Any:
    text = scalar_text(value)
    if isinstance(text, UnresolvedText):
        return UnresolvedText(text, f"${{{name}}}")
    if isinstance(text, str) and not isinstance(text, SecretText):
        return SecretText(text, f"${{{name}}}")
    return text


def merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two desugared trees: mappings member by member, named lists by name, the rest is `over`'s.

    A null in `over` takes the value away. What replaces a sensitive value is sensitive.
    """
    result = dict(under)
    for key, value in over.items():
        below = result.get(key)
        if isinstance(below, dict) and isinstance(value, dict):
            result[key] = merge(below, _hidden_as(below, value) if key == "environments" else value)
        elif key in NAMED_LISTS and is_named_list(below) and is_named_list(value):
            # An item that says of its value only that there is none takes the one of its name away.
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


def _hidden_as(below: Mapping[str, Any], environments: Mapping[str, Any]) -> dict[str, Any]:
    """The variables, each hidden that says so below; the mark itself is no longer there."""
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
    """Build the body from a desugared, validated entry, `raw` merged last.

    It lacks what identifies the job: `metadata.name`, `.workspace_id` and `.description` are put in
    by `with_identity` when the revision is known. Secrets stay `SecretText`.
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
        # The SDK requires what the OTC documents make optional: say it always.
        body["spec"] = {**spec, "resource": {**resource, "node_count": 1}}
    if isinstance(raw := entry.get("raw"), Mapping):
        body = merge(body, desugar(raw))
    if isinstance(annotations := body["metadata"].get("annotations"), dict):
        body["metadata"]["annotations"] = _texts(annotations)
    typed: dict[str, Any] = _typed(with_algorithms(body, _sent_algorithm), _body_rule())
    return typed


def _sent_algorithm(algorithm: Mapping[str, Any], _: object) -> dict[str, Any]:
    """An algorithm with text in the places where the service demands it."""
    result = dict(algorithm)
    if isinstance(environments := result.get("environments"), dict):
        result["environments"] = _texts(environments)
    if isinstance(parameters := result.get("parameters"), list):
        result["parameters"] = [_sent_parameter(one) if isinstance(one, dict) else one for one in parameters]
    return result


def _sent_parameter(parameter: dict[str, Any]) -> dict[str, Any]:
    sent = {name: value for name, value in parameter.items() if name != "sensitive"}
    if "value" in sent and sent["value"].__class__ is not str:
        sent["value"] = scalar_text(sent["value"])
    return sent


def _texts(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value if value.__class__ is str else scalar_text(value) for name, value in members.items()}


@cache
def _body_rule() -> FieldRule:
    """The rules of a create body: those of a manifest, and below `metadata` once more."""
    rule = FieldRule()
    rule.members = {**rules().members, "metadata": rules()}
    return rule


def _typed(value: Any, rule: FieldRule) -> Any:
    """Copy plain data: text as it was spelled where the service wants text, plain values elsewhere."""
    if isinstance(value, dict):
        members, others = rule.members, rule.others
        # Most members are text or a whole number, and most calls are saved here.
        result: dict[str, Any] = {}
        for name, member in value.items():
            of_member = members.get(name) or others
            is_same = member.__class__ is str or (member.__class__ is int and not of_member.is_text)
            result[name] = member if is_same else _typed(member, of_member)
        return result
    if isinstance(value, list):
        item = rule.item or _UNKNOWN
        return [_typed(member, item) for member in value]
    if rule.is_text and isinstance(value, int | float):
        # Version 0.1.0 sent a number here, so its digest is that of a number.
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
    """Wherever a body has an algorithm: its own, those of its tasks, and what these were made of."""
    of_tasks = [task.get("algorithm") for task in filter(_is_dict, body.get("tasks") or ())]
    below = [algorithm.get("job_config") for algorithm in filter(_is_dict, of_tasks)]
    return filter(_is_dict, [body.get("algorithm"), *of_tasks, *below])


def _is_dict(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def with_identity(
    body: Mapping[str, Any], *, name: str, workspace_id: str, description: str
) -> dict[str, Any]:
    """The body as it is sent: under its name, in its workspace, with the marker in its description."""
    identity = {"name": name, "workspace_id": workspace_id, "description": description}
    return {**body, "metadata": {**body["metadata"], **identity}}


def manifest_form(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a create body, or a job the service returned, with its fields where a manifest has them."""
    flat = {key: value for key, value in body.items() if key not in ("metadata", "status")}
    metadata = body.get("metadata")
    if isinstance(metadata, Mapping):
        flat |= {k: v for k, v in metadata.items() if k not in ("name", "workspace_id", "id")}
    return flat


# --- What a create body starts, in a line for people: nodes, flavor, engine, auto_stop

_POOLS = ("pool_id", "pool_group_id")


class UsedNodes(NamedTuple):
    """Nodes (None: no such number) of one flavor; of a pool where the job names no flavor."""

    nodes: int | None
    name: str


def placed(body: Mapping[str, Any], own: str, of_task: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What a body has at a path, and each of its tasks under a name, with the path at which it stands."""
    yield own, mapping_at(body, *own.split("."))
    tasks = body.get("tasks")
    for index, task in enumerate(tasks if isinstance(tasks, list) else ()):
        yield f"tasks[{index}].{of_task}", mapping_at(task, of_task)


def mapping_at(tree: Any, *path: str) -> Mapping[str, Any]:
    """The mapping at a path of plain data; an empty one where there is something else, or nothing."""
    value = value_at(tree, path)
    return value if isinstance(value, Mapping) else {}


def resources(body: Mapping[str, Any]) -> list[UsedNodes]:
    """The nodes that a job with this body takes, those of its tasks included."""
    found = []
    for _, resource in placed(body, "spec.resource", "task_resource"):
        if name := next(filter(None, map(resource.get, ("flavor_id", *_POOLS))), None):
            count = resource.get("node_count", 1)
            is_count = _is_positive(count) and isinstance(count, int)
            found.append(UsedNodes(count if is_count else None, str(name)))
    return found


def auto_stop_hours(body: Mapping[str, Any]) -> float | None:
    """After how many hours the service stops the job; None if it does not, or that cannot be told."""
    span = mapping_at(body, "spec", "auto_stop")
    duration = span.get("duration")
    if not _is_positive(duration):
        return None
    return duration / 3600 if span.get("time_unit") == "SECONDS" else float(duration)


def _is_positive(value: Any) -> TypeGuard[float]:
    """Whether a value is a number that can be reckoned with: `raw` may put anything into a body."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < inf


def summarize(body: Mapping[str, Any]) -> str:
    """Say what a job with this body takes and runs: `8 × modelarts.p3.large.public, pytorch, at most 48 h`.

    A heterogeneous job names the nodes of each task. What the body does not say is left out.
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
    """How many nodes a job with this body takes: of each flavor, or of a pool where it names one only."""
    nodes: Counter[str] = Counter()
    for count, place in _nodes(show(body)):
        nodes[place] += count if isinstance(count, int) else 1
    return nodes


def _nodes(body: Mapping[str, Any]) -> Iterator[tuple[Any, str]]:
    """The nodes of the job, and of each of its tasks, with what they are."""
    for _, resource in placed(body, "spec.resource", "task_resource"):
        flavor, pool = resource.get("flavor_id"), next(filter(None, map(resource.get, _POOLS)), None)
        if flavor or pool:
            names = filter(None, (str(flavor or ""), pool and f"pool {pool}"))
            yield resource.get("node_count", 1), " of ".join(names)


# --- The digest: a letter that names the algorithm, and 12 hex digits over the immutable part

#: lifecycle.rerun is part of what was declared; the space keeps it apart from every field of the service.
RERUN = "lifecycle rerun"


def spell_path(path: Iterable[Any]) -> str:
    """Write a path as people know it: `algorithm.parameters.lr`, `lifecycle.rerun`."""
    parts = [str(part) for part in path]
    if parts == [RERUN]:
        return "lifecycle.rerun"
    if len(parts) > 2 and parts[-1] == "value" and parts[-3] == "parameters":
        parts.pop()
    return ".".join(parts)


#: Both hash a canonical form in the same way; they give some manifests two forms (see `covered_by`).
ALGORITHMS = ("a", "b")
CURRENT = "b"


def declared(immutable: Canonical, rerun: str | None) -> Canonical:
    """What the digest covers: the immutable part, and the text of `lifecycle.rerun`."""
    return {**immutable, RERUN: rerun} if rerun else immutable


def covered_by(letter: str, body: Mapping[str, Any], rerun: str | None) -> Canonical:
    """What a digest with that letter covers of a create body and of `lifecycle.rerun`."""
    if letter == "a":
        body, rerun = walk_texts(body, as_released), None if rerun is None else as_released(rerun)
    return declared(immutable_part(canonical(manifest_form(body))), rerun)


def digest_of(covered: Canonical, algorithm: str = CURRENT) -> str:
    """Return e.g. `a3f9a2c1b7d4e` for what `declared` returned."""
    data = _encode(covered).encode("utf-8", "surrogatepass")
    return algorithm + hashlib.sha256(data).hexdigest()[:12]


_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode


def is_of_same_form(one: str, other: str) -> bool:
    """Whether two digests are of one canonical form, whichever version computed each.

    The algorithms hash a form in the same way, so equal digits are an equal form. Unequal ones of two
    letters say nothing: the letters give some manifests two forms.
    """
    return one == other or (is_known(one) and is_known(other) and one[1:] == other[1:])


def is_known(digest: str) -> bool:
    """Whether this version can compute a digest with that letter."""
    return digest[:1] in ALGORITHMS
