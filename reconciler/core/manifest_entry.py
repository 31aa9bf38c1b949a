"""A job that exists, as the entry of a manifest that declares it: the way back from details to a manifest.

What only the service sets is left out by the tables that the comparison uses (`canonical`, `desired`): fields
that no model knows, values equal to the documented defaults, and what the service fills in from something
else that is declared. Source: docs/semantics.md, "Comparison"; docs/modelarts.md, "Responses".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from reconciler.core.aliases import one_spelling
from reconciler.core.body import algorithms_in, manifest_form
from reconciler.core.canonical import FieldRule, rules, scalar, walk_rules
from reconciler.core.expression import save
from reconciler.core.fields.marks import Mark
from reconciler.core.identity import (
    KEY_PATTERN,
    MAX_KEY,
    key_problem,
    parse_remote_name,
    room_for_description,
)
from reconciler.core.observed_job import ObservedJob
from reconciler.core.raw_fields import NotDeclarable, names_in, with_raw
from reconciler.core.scalar import holds_odd_number
from reconciler.core.secret_variables import IsSecret, SecretHider, SecretVariables, texts_in
from reconciler.secrets import looks_secret, show

Tree = dict[str, Any]

#: What the service takes from an algorithm that is given by id or subscription.
_OF_THE_ALGORITHM = ("code_dir", "boot_file", "command", "engine", "policies")
#: What it says of an argument by itself.
_OF_AN_ARGUMENT = ("description", "constraint", "i18n_description")
#: The rules of a parameter that are no rules, whatever its type.
_NO_RULES: Tree = {"editable": True, "required": False, "sensitive": False, "valid_type": "None"}
_NAMED_LISTS = ("parameters", "inputs", "outputs")
#: Names that can stand as a key of YAML, and mean nothing else there.
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.-]+")

#: What no file can hold, quoted or not; and a name beyond which YAML takes a key for something else.
_NOT_WRITABLE = re.compile("[\x00\ud800-\udfff]")
LONGEST_NAME = 1000


class Omission(NamedTuple):
    """A field of the job that its entry does not have as it is, and why."""

    path: str
    why: str


@dataclass(frozen=True)
class ManifestEntry:
    """A job as the entry under its key.

    `tree` is plain data in the sugar of a manifest; a secret in it is a `SecretText` of a variable.
    `omissions` are fields that no manifest can have, `unreported` those that the service does not report,
    and that nobody knows therefore.
    """

    key: str
    tree: Tree
    job: ObservedJob
    omissions: tuple[Omission, ...] = ()
    unreported: tuple[str, ...] = ()

    def written(self) -> Tree:
        """The entry as a file says it: secrets by their variables, a literal `${` escaped."""
        saved: Tree = save(self.tree)
        return saved


def manifest_entry(
    job: ObservedJob,
    *,
    stack: str,
    key: str | None = None,
    variables: SecretVariables | None = None,
    is_secret: IsSecret = lambda _: False,
) -> ManifestEntry:
    """Return the entry that declares a job as its details show it.

    `stack` is the one that is to have it: its marker takes room in the description. `key` is by default
    made of the job's name. `variables` gathers the variables that stand for secrets; jobs that are to stand
    in one manifest share it. `is_secret` says of a text that it holds a value which is known to be secret;
    others are recognized by mark, name or look.
    """
    key = key or job_key(job)
    reported = one_spelling(manifest_form(job.body))
    tree = _object({name: value for name, value in reported.items() if name != "description"}, rules())
    omissions = list(_drop_filled_in(tree))
    hider = SecretHider(key, variables or SecretVariables(), is_secret)
    for algorithm in _algorithms(tree):
        _hide_arguments(algorithm, hider)
    tree = with_raw(hider.tree(tree))
    for algorithm in _algorithms(tree):
        _sugar(algorithm)
    description, omitted = _description(job, room_for_description(stack, key), is_secret)
    if description:
        tree["description"] = description
    _check_writable(tree, is_secret)
    return ManifestEntry(key, tree, job, (*omissions, *omitted), tuple(_unreported(tree)))


# --- keys


def job_key(job: ObservedJob) -> str:
    """The key under which a job may stand: its marker's, else its name without `-r<N>`, made legal."""
    if job.marker is not None:
        return job.marker.key
    return legal_key(parse_remote_name(job.name).key)


def legal_key(name: str) -> str:
    """The key that is nearest to a name."""
    key = name if KEY_PATTERN.fullmatch(name) else re.sub(r"[^A-Za-z0-9_-]", "_", name)[:MAX_KEY] or "job"
    return re.sub(r"-([rR][0-9]+)\Z", r"_\1", key) if key_problem(key) else key


# --- what was declared, as far as the models know it


def _object(reported: Mapping[str, Any], rule: FieldRule, path: str = "") -> Tree:
    """The fields that the models know, in the types that they want, without what says nothing.

    Raises:
        NotDeclarable: a field has neither of the shapes that it may have.
    """
    result: Tree = {}
    for name, value in reported.items():
        member = rule.others if rule.has_named_members else rule.members.get(name)
        form = None if member is None else _value(value, member, f"{path}.{name}" if path else name)
        # Of an argument and of an environment variable "" is a value.
        if form is not None and (form != "" or rule.has_named_members or name == "value"):
            result[name] = form
    return result


def _value(value: Any, rule: FieldRule, path: str) -> Any:
    """A field as a manifest has it, or None if it says nothing."""
    if value in (None, [], {}):
        return None
    if not _fits(value, rule):
        if value == "":
            return None
        raise NotDeclarable(f"{path} has a value of a type that no manifest can have there")
    if isinstance(value, Mapping):
        return (_object(value, rule, path) if _is_object(rule) else dict(value)) or None
    if isinstance(value, list | tuple):
        return _list(value, rule, path)
    return None if rule.default is not None and scalar(value) == rule.default else _typed(value, rule)


def _is_object(rule: FieldRule) -> bool:
    return bool(rule.members) or Mark.FREE_MEMBERS in rule.marks


def _fits(value: Any, rule: FieldRule) -> bool:
    """Whether a value has one of the shapes that a field may have; of some nothing is known."""
    is_plain, is_list = rule.is_text or rule.scalar is not None, rule.item is not None
    if isinstance(value, Mapping):
        return _is_object(rule) or not (is_list or is_plain)
    if isinstance(value, list | tuple):
        # The documents show environments as a map in places, and as a list of maps in others.
        are_maps = all(isinstance(item, Mapping) for item in value)
        return is_list or (Mark.FREE_MEMBERS in rule.marks and are_maps) or not (_is_object(rule) or is_plain)
    return not (_is_object(rule) or is_list)


def _list(items: list[Any] | tuple[Any, ...], rule: FieldRule, path: str) -> Any:
    if Mark.FREE_MEMBERS in rule.marks:
        return _object({name: value for item in items for name, value in item.items()}, rule, path) or None
    item_rule = rule.item or FieldRule()
    forms = (_value(item, item_rule, f"{path}[]") for item in items)
    return [form for form in forms if form is not None] or None


def _typed(value: Any, rule: FieldRule) -> Any:
    """A plain value in the type that a manifest wants: the service's documents give some fields two."""
    if rule.is_text:
        text = scalar(value)
        return _with_scheme(text) if Mark.OBS_PATH in rule.marks else text
    if isinstance(value, str):
        return _read(value, rule.scalar)
    return int(value) if rule.scalar is int and isinstance(value, float) and value.is_integer() else value


def _read(text: str, kind: type | None) -> Any:
    if kind is bool and text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return kind(text) if kind in (int, float) else text
    except ValueError:
        return text


def _with_scheme(path: str) -> str:
    """A path in object storage as people write it; the service shows some without `obs:/`."""
    # A task's may be a place in its container.
    return f"obs:/{path}" if re.match(r"/(?!home/)[^/]", path) else path


# --- what the service filled in


def _algorithms(tree: Tree) -> Iterator[Tree]:
    return algorithms_in(tree)


def _drop_filled_in(tree: Tree) -> Iterator[Omission]:
    """Take out what the service puts into every job, or derives from something that is declared."""
    _drop_annotations(tree)
    if "tasks" in tree and tree.pop("spec", None):
        yield Omission("spec", "a job with tasks declares its resources there")
    algorithm = tree.get("algorithm", {})
    algorithm.pop("name", None)
    is_by_reference = "id" in algorithm or "subscription_id" in algorithm
    if is_by_reference:
        for name in _OF_THE_ALGORITHM:
            algorithm.pop(name, None)
    elif "engine" in algorithm:
        algorithm["engine"] = _engine(algorithm["engine"])
    for place in _algorithms(tree):
        for parameter in _items(place, "parameters"):
            _drop_rules(parameter, is_by_reference)
        for kind in ("inputs", "outputs"):
            for index, item in enumerate(_items(place, kind)):
                _drop_places(item, kind, index, is_by_reference)


def _drop_annotations(tree: Tree) -> None:
    template = "Template RL" if tree.get("kind") == "hetero_job" else "Template DL"
    of_the_service = {"key_task": "worker", "job_template": template}
    own = {k: v for k, v in tree.pop("annotations", {}).items() if of_the_service.get(k) != v}
    if own:
        tree["annotations"] = own


def _engine(engine: Tree) -> Tree:
    """One way to name an engine: the service adds the others."""
    if "image_url" in engine:
        return {name: value for name, value in engine.items() if name != "engine_id"}
    if "engine_id" in engine:
        return {name: value for name, value in engine.items() if name in ("engine_id", "image_repo_id")}
    return engine


def _drop_rules(parameter: Tree, is_by_reference: bool) -> None:
    """Take out what the service says of a parameter that nobody said anything of."""
    if is_by_reference:
        for name in _OF_AN_ARGUMENT:
            # By this mark a secret is known.
            if name != "constraint" or not _is_marked(parameter):
                parameter.pop(name, None)
        return
    rules_of_it = {**_NO_RULES, **parameter.get("constraint", {}), "type": None}
    if rules_of_it == {**_NO_RULES, "type": None}:
        parameter.pop("constraint", None)


def _is_marked(parameter: Tree) -> bool:
    return parameter.get("constraint", {}).get("sensitive") is True


def _drop_places(item: Tree, kind: str, index: int, is_by_reference: bool) -> None:
    template = rules().members["algorithm"].members[kind].item
    assert template is not None
    default = template.members["local_dir"].default_template or ""
    if item.get("local_dir") == default.format(name=item.get("name"), index=index):
        del item["local_dir"]
    item.pop("period", None)  # the service's own
    if is_by_reference:
        item.pop("description", None)


def _items(algorithm: Tree, kind: str) -> list[Tree]:
    return [item for item in algorithm.get(kind) or () if isinstance(item, dict)]


# --- secrets, sugar, what is left to say


def _hide_arguments(algorithm: Tree, hider: SecretHider) -> None:
    # Environment variables first: a secret that stands in several places is best known by their name.
    environments = algorithm.get("environments", {})
    for name, value in environments.items():
        environments[name] = hider.argument(name, value)
    for parameter in _items(algorithm, "parameters"):
        if "value" in parameter:
            name, is_marked = str(parameter.get("name", "")), _is_marked(parameter)
            parameter["value"] = hider.argument(name, parameter["value"], is_marked=is_marked)
    if "command" in algorithm:
        algorithm["command"] = hider.argument("command", algorithm["command"])


def _sugar(algorithm: Tree) -> None:
    """Write named lists as mappings, where that says the same."""
    for kind in _NAMED_LISTS:
        items = algorithm.get(kind) or []
        names = [item.get("name") if isinstance(item, dict) else None for item in items]
        is_plain = all(isinstance(name, str) and _PLAIN_NAME.fullmatch(name) for name in names)
        if names and is_plain and len(set(names)) == len(names):
            algorithm[kind] = {item["name"]: _sugared(kind, item) for item in items}


def _sugared(kind: str, item: Tree) -> Any:
    rest = {name: value for name, value in item.items() if name != "name"}
    if kind == "parameters":
        return rest["value"] if rest.keys() == {"value"} else rest
    is_path = rest.keys() == {"remote"} and rest["remote"].keys() == {"obs"}
    return (
        rest["remote"]["obs"]["obs_url"] if is_path and rest["remote"]["obs"].keys() == {"obs_url"} else rest
    )


def _description(job: ObservedJob, room: int, is_secret: IsSecret) -> tuple[str, tuple[Omission, ...]]:
    text = job.text.strip()
    if looks_secret("description", text) or is_secret(text):
        return "", (Omission("description", "it looks as if it held a secret, which no description may"),)
    if len(text) > room:
        why = f"it is cut to {room} characters, which is what the marker leaves"
        return text[:room].rstrip(), (Omission("description", why),)
    return text, ()


def _check_writable(tree: Tree, is_secret: IsSecret) -> None:
    if holds_odd_number(tree):
        raise NotDeclarable("it contains a number that is out of range or not finite")
    names = list(names_in(tree))
    if any(len(name) > LONGEST_NAME for name in names):
        raise NotDeclarable(f"it contains a name of more than {LONGEST_NAME} characters")
    for text in (*names, *texts_in(show(tree))):
        if _NOT_WRITABLE.search(text):
            raise NotDeclarable("it contains text that is not valid Unicode, or NUL")
        if is_secret(text):
            raise NotDeclarable("a secret stands where no variable can, in a name")


def _unreported(tree: Tree) -> Iterator[str]:
    """The fields that the job may have, and that the service does not report."""
    for path, rule in walk_rules():
        if rule.is_reported or "[]" in path:
            continue
        *parents, name = path
        parent = _at(tree, parents)
        # What has an id is found by it, whatever else was said of it.
        if isinstance(parent, Mapping) and name not in parent and "id" not in parent:
            yield ".".join(path)


def _at(tree: Any, path: Sequence[str]) -> Any:
    for name in path:
        tree = tree.get(name) if isinstance(tree, Mapping) else None
    return tree
