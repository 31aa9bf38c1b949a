"""Write a manifest entry, or a patch of one, for an existing job."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from pydantic import ValidationError

from reconciler.core.body import (
    HOISTED,
    NAMED_LISTS,
    RERUN,
    algorithms_in,
    create_body,
    desugar,
    is_named_list,
    manifest_form,
    merge,
    normalize_aliases,
)
from reconciler.core.canonical import (
    Canonical,
    FieldRule,
    canonical,
    immutable_part,
    member_rule,
    overlay,
    rules,
    scalar,
    value_at,
    walk_rules,
)
from reconciler.core.code import CODE, reported_form
from reconciler.core.diff import (
    Comparable,
    changes_between,
    comparable_with_details,
    differing_paths,
    is_by_reference,
)
from reconciler.core.fields.field_types import Mark
from reconciler.core.identity import (
    KEY_PATTERN,
    MAX_KEY,
    key_problem,
    parse_remote_name,
    room_for_description,
)
from reconciler.core.masking import texts_in
from reconciler.core.observed import ObservedJob
from reconciler.core.scalar import escape, holds, is_out_of_range, save, variables_of
from reconciler.core.stack import DesiredJob, JobEntry
from reconciler.core.values import Change
from reconciler.errors import Diagnostic, ReconcilerError
from reconciler.secrets import SecretText, is_credential_name, is_identity_name, leaves, looks_secret, show

Tree = dict[str, Any]

# --- Fields that the models refuse go under `raw`: they are newer than the models, or have invalid values

_Path = tuple[str, ...]


class NotDeclarable(ReconcilerError):
    """No manifest entry can declare the job; `why` names the cause."""

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(Diagnostic("the job cannot be declared", why))


def with_raw(tree: Tree) -> Tree:
    """Return an entry, with named lists as lists, with the fields that the models refuse under `raw`.

    Raises:
        NotDeclarable: the rest is invalid, whatever is moved.
    """
    raw: Tree = {}
    errors = first = _errors(tree)
    while errors:
        candidates = ((place, _without(tree, place)) for place in _movable_fields(tree, errors[0][0]))
        place, rest = next((one for one in candidates if len(_errors(one[1])) < len(errors)), ((), {}))
        if not place:
            raise NotDeclarable("; ".join(dict.fromkeys(why for _, why in first)))
        value = value_at(tree, place)
        # `raw` uses the names of the create body.
        for name in reversed(["metadata", *place] if place[0] in HOISTED else place):
            value = {name: value}
        raw, tree, errors = merge(raw, value), rest, _errors(rest)
    return {**tree, "raw": raw} if raw else tree


def _errors(tree: Tree) -> list[tuple[Sequence[str | int], str]]:
    try:
        JobEntry.model_validate(tree)
    except ValidationError as invalid:
        errors = invalid.errors(include_url=False, include_input=False, include_context=False)
        return [(e["loc"], ": ".join(filter(None, (".".join(map(str, e["loc"])), e["msg"])))) for e in errors]
    return []


def _movable_fields(tree: Tree, path: Sequence[str | int]) -> list[_Path]:
    """Return what to move for an error: the field that it names, else each member of the object."""
    names = [
        name for name in path[: 2 if path[:1] in (("algorithm",), ("spec",)) else 1] if isinstance(name, str)
    ]
    if names and value_at(tree, names) is not None and names not in (["algorithm"], ["spec"]):
        return [tuple(names)]
    above = [name for name in names[:1] if name in tree]
    return [(*above, name) for name in value_at(tree, above)]


def _without(tree: Tree, place: _Path) -> Tree:
    name, *below = place
    rest = {other: value for other, value in tree.items() if other != name}
    return {**rest, name: _without(tree[name], tuple(below))} if below else rest


def names_in(tree: Any) -> Iterator[str]:
    """Yield every member name in plain data."""
    for value in tree.values() if isinstance(tree, Mapping) else tree if isinstance(tree, list) else ():
        yield from names_in(value)
    if isinstance(tree, Mapping):
        yield from map(str, tree)


# --- Variables for the secrets of entries

IsSecret = Callable[[str], bool]

#: Fields that are displayed and compared, so they cannot contain a sensitive variable.
_DISPLAYED = frozenset({"name", "local_path", "description", "kind"})
#: Environment variables with a common meaning.
_RESERVED = frozenset({"HOME", "PATH", "USER", "SHELL", "LANG", "TMPDIR"})


class SecretVariables:
    """One variable for each secret value, named by the first field that has it.

    `value_by_name` has the secrets themselves, which must not be shown.
    """

    def __init__(self) -> None:
        self.value_by_name: dict[str, str] = {}
        self._name_by_value: dict[str, str] = {}

    def reference(self, value: str, field: str, key: str) -> str:
        """Return the expression for a value. Its variable is named by the field, and the key if necessary."""
        if value not in self._name_by_value:
            qualified = _name(f"{key}_{field}")
            names = (
                _name(field),
                qualified,
                *(f"{qualified}_{number}" for number in range(2, len(self.value_by_name) + 3)),
            )
            name = next(name for name in names if name not in self.value_by_name and not _is_in_use(name))
            self._name_by_value[value], self.value_by_name[name] = name, value
        return f"${{var.{self._name_by_value[value]}}}"

    def declarations(self, trees: Iterable[Any]) -> dict[str, dict[str, Any]]:
        """Return the `variables` section for the variables that the written entries use."""
        used = {name for tree in trees for text in texts_in(tree) for name in variables_of(text)}
        return {name: {"env": name, "sensitive": True} for name in sorted(used & self.value_by_name.keys())}


def _name(text: str) -> str:
    """Convert a text to the name of an environment variable, e.g. hfToken to HF_TOKEN."""
    spread = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text).upper()
    name = re.sub(r"[^A-Z0-9]+", "_", spread).strip("_")
    return name if name[:1].isalpha() else f"SECRET_{name}".rstrip("_")


def _is_in_use(name: str) -> bool:
    # Names of one or two letters may be set for other reasons.
    return len(name) < 3 or is_credential_name(name) or name.startswith("RECONCILER_") or name in _RESERVED


class SecretHider(NamedTuple):
    """Replaces the secrets in the tree of an entry by `SecretText`.

    `is_secret` tells whether a text contains a known secret.
    """

    key: str
    variables: SecretVariables
    is_secret: IsSecret

    def hide_argument(self, name: str, value: str, *, is_marked: bool = False) -> str:
        """Return the value of a parameter or an environment variable, as `SecretText` if it is secret."""
        if (is_marked and value) or looks_secret(name, value) or self._is_known(value):
            return self._hide(value, name)
        return value

    def hide_tree(self, tree: Any, field: str = "") -> Any:
        """Return a tree with `SecretText` for values that look secret by themselves or are known."""
        if isinstance(tree, Mapping):
            return {name: self.hide_tree(value, name) for name, value in tree.items()}
        if isinstance(tree, list):
            return [self.hide_tree(item, field) for item in tree]
        if not isinstance(tree, str) or isinstance(tree, SecretText) or field in _DISPLAYED:
            return tree
        # The service's own field names say nothing about secrets.
        name = "id" if is_identity_name(field) else ""
        return self._hide(tree, field) if looks_secret(name, tree) or self._is_known(tree) else tree

    def _is_known(self, text: str) -> bool:
        """Whether a text contains a known secret before or after escaping."""
        return self.is_secret(text) or self.is_secret(escape(text))

    def _hide(self, text: str, field: str) -> SecretText:
        return SecretText(text, self.variables.reference(text, field, self.key))


# --- manifest_entry

#: Fields that the service takes from an algorithm given by id or subscription.
_ALGORITHM_FIELDS = ("code_dir", "boot_file", "command", "engine", "policies")
#: Fields of an argument that the service fills in.
_ARGUMENT_FIELDS = ("description", "constraint", "i18n_description")
#: Constraints of a parameter that mean nothing, whatever its type.
_NO_RULES: Tree = {"editable": True, "required": False, "sensitive": False, "valid_type": "None"}
#: Longer names cannot be keys in YAML.
LONGEST_NAME = 1000


class Omission(NamedTuple):
    """A field of the job that its entry lacks or changes, and why."""

    path: str
    why: str


@dataclass(frozen=True)
class ManifestEntry:
    """A manifest entry for a job.

    `tree` is plain data in the short forms of a manifest; secrets are `SecretText` with a variable.
    `omissions` are fields that no manifest can have, `unreported` those that the service does not report, so
    that their values are unknown.
    """

    key: str
    tree: Tree
    job: ObservedJob
    omissions: tuple[Omission, ...] = ()
    unreported: tuple[str, ...] = ()

    def written(self) -> Tree:
        """Return the entry as written to a file: secrets as variables, a literal `${` escaped."""
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

    `stack` will own the job: its marker takes up room in the description. `key` defaults to `job_key`.
    `variables` collects the variables for secrets; jobs of the same manifest share it. `is_secret` tells
    whether a text contains a known secret; others are recognized by mark, name or form.

    Raises:
        NotDeclarable: no entry can declare the job.
    """
    key = key or job_key(job)
    tree = _object({n: value for n, value in _reported(job).items() if n != "description"}, rules())
    omissions = list(_drop_filled_in(tree))
    hider = SecretHider(key, variables or SecretVariables(), is_secret)
    for algorithm in algorithms_in(tree):
        _hide_arguments(algorithm, hider)
    tree = with_raw(hider.hide_tree(tree))
    for algorithm in algorithms_in(tree):
        _sugar(algorithm)
    description, omitted = _description(job, room_for_description(stack, key), is_secret)
    if description:
        tree = {"description": description, **tree}
    _check_writable(tree, is_secret)
    return ManifestEntry(key, tree, job, (*omissions, *omitted), tuple(_unreported(tree)))


# --- Keys


def job_key(job: ObservedJob) -> str:
    """Return the key for a job: its marker's, else its name without `-rN`, made valid."""
    if job.marker is not None:
        return job.marker.key
    return legal_key(parse_remote_name(job.name).key)


def legal_key(name: str) -> str:
    """Return a valid key close to a name."""
    key = name if KEY_PATTERN.fullmatch(name) else re.sub(r"[^A-Za-z0-9_-]", "_", name)[:MAX_KEY] or "job"
    return re.sub(r"-([rR][0-9]+)\Z", r"_\1", key) if key_problem(key) else key


# --- The fields that the models know


def _object(reported: Mapping[str, Any], rule: FieldRule, path: str = "") -> Tree:
    """Return the fields that the models know, converted to their types, without empty values.

    Raises:
        NotDeclarable: a field has the wrong type.
    """
    result: Tree = {}
    for name, value in reported.items():
        member = member_rule(rule, name)
        form = None if member is None else _value(value, member, f"{path}.{name}" if path else name)
        # For arguments and environment variables, "" is a value.
        if form is not None and (form != "" or rule.has_named_members or name == "value"):
            result[name] = form
    return result


def _value(value: Any, rule: FieldRule, path: str) -> Any:
    """Convert a field, or return None if it is empty or a default."""
    if value in (None, [], {}):
        return None
    if not _fits(value, rule):
        if value == "":
            return None
        raise NotDeclarable(f"{path} has a value of a type that is invalid in a manifest")
    if isinstance(value, Mapping):
        return (_object(value, rule, path) if _is_object(rule) else dict(value)) or None
    if isinstance(value, list | tuple):
        return _list(value, rule, path)
    return None if rule.default is not None and scalar(value) == rule.default else _typed(value, rule)


def _is_object(rule: FieldRule) -> bool:
    return bool(rule.members) or Mark.FREE_MEMBERS in rule.marks


def _fits(value: Any, rule: FieldRule) -> bool:
    """Whether the value has a type that the field accepts, as far as that is known."""
    is_plain, is_list = rule.is_text or rule.scalar is not None, rule.item is not None
    if isinstance(value, Mapping):
        return _is_object(rule) or not (is_list or is_plain)
    if isinstance(value, list | tuple):
        # In the documents, environments are a map or a list of maps.
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
    """Convert a plain value to the type that a manifest expects; the documents give some fields two."""
    kind = rule.scalar
    if rule.is_text:
        text = scalar(value)
        # The service omits `obs:/` from some paths; a task's path may be one in its container.
        lacks_scheme = Mark.OBS_PATH in rule.marks and re.match(r"/(?!home/)[^/]", text)
        return f"obs:/{text}" if lacks_scheme else text
    if not isinstance(value, str):
        return int(value) if kind is int and isinstance(value, float) and value.is_integer() else value
    if kind is bool and value.lower() in ("true", "false"):
        return value.lower() == "true"
    with suppress(ValueError):
        return kind(value) if kind in (int, float) else value
    return value


# --- Fields that the service filled in


def _drop_filled_in(tree: Tree) -> Iterator[Omission]:
    """Remove what the service adds to every job, or derives from a declared field."""
    template = "Template RL" if tree.get("kind") == "hetero_job" else "Template DL"
    of_the_service = {"key_task": "worker", "job_template": template}
    if own := {k: v for k, v in tree.pop("annotations", {}).items() if of_the_service.get(k) != v}:
        tree["annotations"] = own
    if "tasks" in tree and tree.pop("spec", None):
        yield Omission("spec", "a job with tasks declares its resources for each task")
    algorithm = tree.get("algorithm", {})
    algorithm.pop("name", None)
    by_reference = is_by_reference(tree)
    engine = algorithm.get("engine", {})
    if by_reference:
        for name in _ALGORITHM_FIELDS:
            algorithm.pop(name, None)
    # Keep one way to name an engine, since the service adds the others.
    elif "image_url" in engine:
        engine.pop("engine_id", None)
    elif "engine_id" in engine:
        algorithm["engine"] = {k: engine[k] for k in engine if k in ("engine_id", "image_repo_id")}
    for place in algorithms_in(tree):
        for parameter in _items(place, "parameters"):
            _drop_rules(parameter, by_reference)
        for kind in ("inputs", "outputs"):
            form = rules().members["algorithm"].members[kind].item
            assert form is not None
            default = form.members["local_dir"].default_template or ""
            for index, item in enumerate(_items(place, kind)):
                if item.get("local_dir") == default.format(name=item.get("name"), index=index):
                    del item["local_dir"]
                item.pop("period", None)  # set by the service
                if by_reference:
                    item.pop("description", None)


def _drop_rules(parameter: Tree, by_reference: bool) -> None:
    """Remove what the service fills in for a parameter."""
    if by_reference:
        for name in _ARGUMENT_FIELDS:
            # This constraint marks a secret.
            if name != "constraint" or not _is_marked(parameter):
                parameter.pop(name, None)
    elif {**_NO_RULES, **parameter.get("constraint", {}), "type": None} == {**_NO_RULES, "type": None}:
        parameter.pop("constraint", None)


def _is_marked(parameter: Tree) -> bool:
    return parameter.get("constraint", {}).get("sensitive") is True


def _items(algorithm: Tree, kind: str) -> list[Tree]:
    return [item for item in algorithm.get(kind) or () if isinstance(item, dict)]


# --- Secrets, short forms, remaining checks


def _hide_arguments(algorithm: Tree, hider: SecretHider) -> None:
    # Environment variables first: if a secret occurs several times, they have the best name for it.
    environments = algorithm.get("environments", {})
    for name, value in environments.items():
        environments[name] = hider.hide_argument(name, value)
    for parameter in _items(algorithm, "parameters"):
        if "value" in parameter:
            name, is_marked = str(parameter.get("name", "")), _is_marked(parameter)
            parameter["value"] = hider.hide_argument(name, parameter["value"], is_marked=is_marked)
    if "command" in algorithm:
        algorithm["command"] = hider.hide_argument("command", algorithm["command"])


def _sugar(algorithm: Tree) -> None:
    """Write named lists as mappings where that is equivalent."""
    for kind in NAMED_LISTS:
        items = algorithm.get(kind) or []
        names = [item.get("name") if isinstance(item, dict) else None for item in items]
        # The names must be plain scalars, and thus keys, in YAML.
        is_plain = all(isinstance(name, str) and re.fullmatch("[A-Za-z0-9_.-]+", name) for name in names)
        if names and is_plain and len(set(names)) == len(names):
            algorithm[kind] = {item.pop("name"): _sugared(kind, item) for item in items}


def _sugared(kind: str, item: Tree) -> Any:
    match item:
        case {"value": value} if kind == "parameters" and len(item) == 1:
            return value
        case {"remote": {"obs": {"obs_url": url, **more}, **other}, **rest} if not (more or other or rest):
            return url if kind != "parameters" else item
    return item


def _description(job: ObservedJob, room: int, is_secret: IsSecret) -> tuple[str, tuple[Omission, ...]]:
    text = job.text.strip()
    if looks_secret("description", text) or is_secret(text):
        return "", (Omission("description", "it seems to contain a secret, which a description must not"),)
    if len(text) > room:
        why = f"it is cut to {room} characters to leave room for the marker"
        return text[:room].rstrip(), (Omission("description", why),)
    return text, ()


def _check_writable(tree: Tree, is_secret: IsSecret) -> None:
    if holds(tree, is_out_of_range):
        raise NotDeclarable("it contains a number that is out of range or not finite")
    names = list(names_in(tree))
    if any(len(name) > LONGEST_NAME for name in names):
        raise NotDeclarable(f"it contains a name of more than {LONGEST_NAME} characters")
    for text in (*names, *texts_in(show(tree))):
        if re.search("[\x00\ud800-\udfff]", text):  # cannot be written to a file, even quoted
            raise NotDeclarable("it contains text that is not valid Unicode, or NUL")
        if is_secret(text):
            raise NotDeclarable("a name contains a secret, and a variable cannot be part of a name")


def _unreported(tree: Tree) -> Iterator[str]:
    """Yield the fields that the job may have although the service does not report them."""
    for path, rule in walk_rules():
        parent = value_at(tree, path[:-1])
        # An algorithm with an id is found by it, so its other fields do not matter.
        is_open = isinstance(parent, Mapping) and path[-1] not in parent and "id" not in parent
        if is_open and not rule.is_reported and "[]" not in path:
            yield ".".join(path)


# --- entry_patch


class JobComparison(NamedTuple):
    """A job compared with a declaration, as far as the service reports it.

    `changes` lead from the job to the declaration. `unreported` are declared fields that the service does not
    report; `secrets` are fields whose value differs from the declared sensitive one.
    """

    changes: tuple[Change, ...] = ()
    unreported: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()


@dataclass(frozen=True)
class EntryPatch:
    """Edits of a key's entry. Secrets are the variables that `variables` declares."""

    key: str
    entry: Mapping[str, Any]
    variables: Mapping[str, Any]

    @property
    def says_null(self) -> bool:
        return any(leaf is None for leaf in leaves(self.entry))

    @property
    def tree(self) -> dict[str, Any]:
        declared = {"variables": self.variables} if self.variables else {}
        return {**declared, "jobs": {self.key: self.entry}}


def compare_with_job(desired: DesiredJob, job: ObservedJob) -> JobComparison:
    """Compare what a declaration's digest covers with the details of a job that was not declared.

    What only the service sets is ignored: docs/concepts/revisions.md, "Comparison".
    """
    compared = _compare(desired.covered_by(desired.digest[:1]), job)
    changes = changes_between(compared.before, compared.after, forces_new_job=True)
    return JobComparison(changes, compared.unreported, tuple(change.path for change in compared.secrets))


def _compare(declared: Canonical, job: ObservedJob) -> Comparable:
    declared = {name: value for name, value in declared.items() if name != RERUN}
    reported = immutable_part(canonical(_reported(job)))
    return comparable_with_details(reported_form(reported, declared), declared)


def _differing(declared: Canonical, job: ObservedJob) -> tuple[_Path, ...]:
    compared = _compare(declared, job)
    return differing_paths(compared.before, compared.after)


def _reported(job: ObservedJob) -> dict[str, Any]:
    return normalize_aliases(manifest_form(job.body))


def entry_patch(
    desired: DesiredJob, job: ObservedJob, stack: str, secrets: Collection[str] = ()
) -> EntryPatch:
    """Return the edits of an entry that make it declare the job.

    `secrets` are known secret values; others are recognized by name or form.

    Raises:
        NotDeclarable: no entry can declare the job.
    """
    variables = SecretVariables()
    entry = manifest_entry(
        job, stack=stack, key=desired.key, variables=variables, is_secret=lambda text: text in secrets
    )
    sections, patch = set[_Path](), dict[str, Any]()
    declared = desired.covered_by(desired.digest[:1])
    removed = {}
    if any(path == (CODE,) for path in _differing(declared, job)):
        # No local directory is known to hold that code, so declare its location.
        removed = {CODE: None}
        declared = replace(desired, code=None).covered_by(desired.digest[:1])
    # If differences remain after replacing single fields, replace their whole sections.
    for depth in (2, 1):
        paths = _differing(declared, job)
        if not paths:
            break
        sections |= {_section(path, depth) for path in paths}
        patch = removed | _section_patch(sections, manifest_form(desired.body or {}), entry)
        declared = _patched(desired, patch)
    written = save(patch)
    return EntryPatch(desired.key, written, variables.declarations([written]))


def _patched(desired: DesiredJob, patch: Mapping[str, Any]) -> Canonical:
    """Return what a digest covers of an entry with the patch merged over it."""
    own = {name: value for name, value in patch.items() if name != "raw"}
    merged = merge(manifest_form(desired.body or {}), desugar(own))
    return immutable_part(canonical(manifest_form(create_body({**merged, "raw": patch.get("raw")}))))


def _section(path: _Path, depth: int) -> _Path:
    """Return the section of a path that is replaced as a whole; an argument is one by itself."""
    is_named = depth > 1 and path[1:2] and path[1] in (*NAMED_LISTS, "environments")
    return path[: depth + 1 if is_named else depth]


def _lists_by_name(tree: Mapping[str, Any]) -> Tree:
    """Return the tree with the named lists of its algorithm as mappings of whole items."""
    algorithm = desugar(tree).get("algorithm")
    if not isinstance(algorithm, dict):
        return dict(tree)
    for kind in NAMED_LISTS:
        items = algorithm.get(kind) or ()
        if items and is_named_list(items):
            algorithm[kind] = {item["name"]: {k: v for k, v in item.items() if k != "name"} for item in items}
    return {**tree, "algorithm": algorithm}


def _section_patch(sections: Iterable[_Path], declared: Mapping[str, Any], entry: ManifestEntry) -> Tree:
    """Return the patch that replaces these sections of a declaration by those of an entry."""
    current, other, reported = _lists_by_name(declared), _lists_by_name(entry.tree), _reported(entry.job)
    patch: Tree = {}
    raw: Tree = entry.tree.get("raw") or {}
    for section in sorted(sections):
        rule: FieldRule | None = rules()
        for name in section:
            rule = rule and member_rule(rule, name)
        known, unknown = _value_patch(
            value_at(current, section), value_at(other, section), value_at(reported, section), rule
        )
        for name in reversed(section):
            known, unknown = {name: known}, {name: unknown}
        if rule is not None:
            patch = overlay(patch, known)
        if value_at(unknown, section) not in (None, {}) or rule is None:
            raw = merge(raw, unknown)
    algorithm = patch.get("algorithm") or {}
    for kind in NAMED_LISTS:
        if isinstance(items := algorithm.get(kind), Mapping):
            algorithm[kind] = {n: item and _sugared(kind, item) for n, item in items.items()}
    return {**patch, "raw": raw} if raw else patch


def _value_patch(declared: Any, entry: Any, reported: Any, rule: FieldRule | None) -> tuple[Any, Any]:
    """Return the patch from a declared value to an entry's, and its members for `raw` that no model knows."""
    if rule is None:
        return None, reported
    if not isinstance(declared, Mapping) or not isinstance(entry, Mapping):
        return entry, {}
    patch, raw = {}, {}
    for name in {**declared, **entry}:
        values = (declared.get(name), entry.get(name), value_at(reported, (name,)), member_rule(rule, name))
        patch[name], below = _value_patch(*values)
        if values[-1] is None:
            del patch[name]
        if values[-1] is None or below:
            raw[name] = below
    return patch, raw
