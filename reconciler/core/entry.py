"""An entry that is written for a job that exists, and what of it is written where."""

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
    manifest_form,
    merge,
    one_spelling,
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
from reconciler.core.scalar import escape, holds_odd_number, save, variables_of
from reconciler.core.stack import DesiredJob, JobEntry
from reconciler.core.values import Change
from reconciler.errors import Diagnostic, ReconcilerError
from reconciler.secrets import SecretText, is_credential_name, is_identity_name, leaves, looks_secret, show

Tree = dict[str, Any]

# --- Fields of a job that the models refuse, under `raw`: newer than the models, or never checked

_Path = tuple[str, ...]


class NotDeclarable(ReconcilerError):
    """No entry of a manifest can declare a job; `why` says what it has, or lacks."""

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(Diagnostic("the job cannot be declared", why))


def with_raw(tree: Tree) -> Tree:
    """Return an entry, its named lists as lists, with the fields that the models refuse under `raw`.

    Raises:
        NotDeclarable: what remains breaks a rule, whatever is moved.
    """
    raw: Tree = {}
    errors = first = _errors(tree)
    while errors:
        found = ((place, _taken(tree, place)) for place in _places(tree, errors[0][0]))
        place, rest = next((one for one in found if len(_errors(one[1])) < len(errors)), ((), {}))
        if not place:
            raise NotDeclarable("; ".join(dict.fromkeys(why for _, why in first)))
        value = value_at(tree, place)
        # `raw` has the names of the create body.
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


def _places(tree: Tree, path: Sequence[str | int]) -> list[_Path]:
    """What may be moved for an error: the field that it is about, else each member of the object."""
    names = [
        name for name in path[: 2 if path[:1] in (("algorithm",), ("spec",)) else 1] if isinstance(name, str)
    ]
    if names and value_at(tree, names) is not None and names not in (["algorithm"], ["spec"]):
        return [tuple(names)]
    above = [name for name in names[:1] if name in tree]
    return [(*above, name) for name in value_at(tree, above)]


def _taken(tree: Tree, place: _Path) -> Tree:
    """The tree without what stands at a place."""
    name, *below = place
    rest = {other: value for other, value in tree.items() if other != name}
    return {**rest, name: _taken(tree[name], tuple(below))} if below else rest


def names_in(tree: Any) -> Iterator[str]:
    """Every name of a member in plain data."""
    for value in tree.values() if isinstance(tree, Mapping) else tree if isinstance(tree, list) else ():
        yield from names_in(value)
    if isinstance(tree, Mapping):
        yield from map(str, tree)


# --- variables for the secrets of entries

IsSecret = Callable[[str], bool]

#: Names that are shown and compared, so that no variable that is sensitive may stand there.
_SHOWN = frozenset({"name", "local_path", "description", "kind"})
#: Environment variables that mean something to every program.
_TAKEN = frozenset({"HOME", "PATH", "USER", "SHELL", "LANG", "TMPDIR"})


class SecretVariables:
    """One variable for each secret value, named by the first field that holds it.

    `value_by_name` are the secrets themselves, which nothing may show.
    """

    def __init__(self) -> None:
        self.value_by_name: dict[str, str] = {}
        self._name_by_value: dict[str, str] = {}

    def reference(self, value: str, field: str, key: str) -> str:
        """The expression for a value: its variable is named after the field, if need be after the key too."""
        if value not in self._name_by_value:
            long = _name(f"{key}_{field}")
            names = (
                _name(field),
                long,
                *(f"{long}_{number}" for number in range(2, len(self.value_by_name) + 3)),
            )
            name = next(name for name in names if name not in self.value_by_name and not _is_in_use(name))
            self._name_by_value[value], self.value_by_name[name] = name, value
        return f"${{var.{self._name_by_value[value]}}}"

    def declarations(self, trees: Iterable[Any]) -> dict[str, dict[str, Any]]:
        """What a manifest says under `variables` of those that are used in entries as written."""
        used = {name for tree in trees for text in texts_in(tree) for name in variables_of(text)}
        return {name: {"env": name, "sensitive": True} for name in sorted(used & self.value_by_name.keys())}


def _name(text: str) -> str:
    """A text as the name of an environment variable: hfToken is HF_TOKEN."""
    spread = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text).upper()
    name = re.sub(r"[^A-Z0-9]+", "_", spread).strip("_")
    return name if name[:1].isalpha() else f"SECRET_{name}".rstrip("_")


def _is_in_use(name: str) -> bool:
    # A name of one or two letters may be set for some other reason.
    return len(name) < 3 or is_credential_name(name) or name.startswith("RECONCILER_") or name in _TAKEN


class SecretHider(NamedTuple):
    """Puts `SecretText` where the tree of an entry holds a secret.

    `is_secret` says of a text that it holds a value which is known to be secret.
    """

    key: str
    variables: SecretVariables
    is_secret: IsSecret

    def argument(self, name: str, value: str, *, is_marked: bool = False) -> str:
        """The value of a parameter or an environment variable, hidden if it is a secret."""
        if (is_marked and value) or looks_secret(name, value) or self._is_known(value):
            return self._hidden(value, name)
        return value

    def tree(self, tree: Any, field: str = "") -> Any:
        """A tree in which the texts that look secret by themselves, or are known, are hidden."""
        if isinstance(tree, Mapping):
            return {name: self.tree(value, name) for name, value in tree.items()}
        if isinstance(tree, list):
            return [self.tree(item, field) for item in tree]
        if not isinstance(tree, str) or isinstance(tree, SecretText) or field in _SHOWN:
            return tree
        # What a field of the service means is known, so its name is no sign of a secret.
        name = "id" if is_identity_name(field) else ""
        return self._hidden(tree, field) if looks_secret(name, tree) or self._is_known(tree) else tree

    def _is_known(self, text: str) -> bool:
        """Whether a text holds a known secret, as it is or as it is written: escaping may make it one."""
        return self.is_secret(text) or self.is_secret(escape(text))

    def _hidden(self, text: str, field: str) -> SecretText:
        return SecretText(text, self.variables.reference(text, field, self.key))


# --- manifest_entry

#: What the service takes from an algorithm that is given by id or subscription.
_OF_THE_ALGORITHM = ("code_dir", "boot_file", "command", "engine", "policies")
#: What it says of an argument by itself.
_OF_AN_ARGUMENT = ("description", "constraint", "i18n_description")
#: The rules of a parameter that are no rules, whatever its type.
_NO_RULES: Tree = {"editable": True, "required": False, "sensitive": False, "valid_type": "None"}
#: A name beyond which YAML takes a key for something else.
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
    tree = _object({n: value for n, value in _reported(job).items() if n != "description"}, rules())
    omissions = list(_drop_filled_in(tree))
    hider = SecretHider(key, variables or SecretVariables(), is_secret)
    for algorithm in algorithms_in(tree):
        _hide_arguments(algorithm, hider)
    tree = with_raw(hider.tree(tree))
    for algorithm in algorithms_in(tree):
        _sugar(algorithm)
    description, omitted = _description(job, room_for_description(stack, key), is_secret)
    if description:
        tree = {"description": description, **tree}
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
        member = member_rule(rule, name)
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
    kind = rule.scalar
    if rule.is_text:
        text = scalar(value)
        # The service shows some paths without `obs:/`; a task's may be a place in its container.
        lacks_scheme = Mark.OBS_PATH in rule.marks and re.match(r"/(?!home/)[^/]", text)
        return f"obs:/{text}" if lacks_scheme else text
    if not isinstance(value, str):
        return int(value) if kind is int and isinstance(value, float) and value.is_integer() else value
    if kind is bool and value.lower() in ("true", "false"):
        return value.lower() == "true"
    with suppress(ValueError):
        return kind(value) if kind in (int, float) else value
    return value


# --- what the service filled in


def _drop_filled_in(tree: Tree) -> Iterator[Omission]:
    """Take out what the service puts into every job, or derives from something that is declared."""
    template = "Template RL" if tree.get("kind") == "hetero_job" else "Template DL"
    of_the_service = {"key_task": "worker", "job_template": template}
    if own := {k: v for k, v in tree.pop("annotations", {}).items() if of_the_service.get(k) != v}:
        tree["annotations"] = own
    if "tasks" in tree and tree.pop("spec", None):
        yield Omission("spec", "a job with tasks declares its resources there")
    algorithm = tree.get("algorithm", {})
    algorithm.pop("name", None)
    by_reference = is_by_reference(tree)
    engine = algorithm.get("engine", {})
    if by_reference:
        for name in _OF_THE_ALGORITHM:
            algorithm.pop(name, None)
    # One way to name an engine: the service adds the others.
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
                item.pop("period", None)  # the service's own
                if by_reference:
                    item.pop("description", None)


def _drop_rules(parameter: Tree, by_reference: bool) -> None:
    """Take out what the service says of a parameter that nobody said anything of."""
    if by_reference:
        for name in _OF_AN_ARGUMENT:
            # By this mark a secret is known.
            if name != "constraint" or not _is_marked(parameter):
                parameter.pop(name, None)
    elif {**_NO_RULES, **parameter.get("constraint", {}), "type": None} == {**_NO_RULES, "type": None}:
        parameter.pop("constraint", None)


def _is_marked(parameter: Tree) -> bool:
    return parameter.get("constraint", {}).get("sensitive") is True


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
    for kind in NAMED_LISTS:
        items = algorithm.get(kind) or []
        names = [item.get("name") if isinstance(item, dict) else None for item in items]
        # A name that can stand as a key of YAML, and means nothing else there.
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
        if re.search("[\x00\ud800-\udfff]", text):  # what no file can hold, quoted or not
            raise NotDeclarable("it contains text that is not valid Unicode, or NUL")
        if is_secret(text):
            raise NotDeclarable("a secret stands where no variable can, in a name")


def _unreported(tree: Tree) -> Iterator[str]:
    """The fields that the job may have, and that the service does not report."""
    for path, rule in walk_rules():
        parent = value_at(tree, path[:-1])
        # What has an id is found by it, whatever else was said of it.
        is_open = isinstance(parent, Mapping) and path[-1] not in parent and "id" not in parent
        if is_open and not rule.is_reported and "[]" not in path:
            yield ".".join(path)


# --- entry_patch


class JobComparison(NamedTuple):
    """A job beside a declaration, as far as the service reports it.

    `changes` lead from the job to the declaration. What is declared and not reported is `unreported`;
    `secrets` are sensitive values that the job has otherwise.
    """

    changes: tuple[Change, ...] = ()
    unreported: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()


@dataclass(frozen=True)
class EntryPatch:
    """What the entry of a key has to say, secrets by the variables that `variables` declares."""

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
    """Compare what a digest covers of a declaration with the details of a job that nobody declared.

    What only the service sets is passed over: docs/concepts/revisions.md, "Comparison".
    """
    found = _compare(desired.covered_by(desired.digest[:1]), job)
    changes = changes_between(found.before, found.after, forces_new_job=True)
    return JobComparison(changes, found.unreported, tuple(change.path for change in found.secrets))


def _compare(wanted: Canonical, job: ObservedJob) -> Comparable:
    wanted = {name: value for name, value in wanted.items() if name != RERUN}
    reported = immutable_part(canonical(_reported(job)))
    return comparable_with_details(reported_form(reported, wanted), wanted)


def _differing(wanted: Canonical, job: ObservedJob) -> tuple[_Path, ...]:
    found = _compare(wanted, job)
    return differing_paths(found.before, found.after)


def _reported(job: ObservedJob) -> dict[str, Any]:
    return one_spelling(manifest_form(job.body))


def entry_patch(
    desired: DesiredJob, job: ObservedJob, stack: str, secrets: Collection[str] = ()
) -> EntryPatch:
    """Return what an entry has to say instead, so that it declares the job as it is.

    `secrets` are values that are known to be secret; others are recognized by name or look.

    Raises:
        NotDeclarable: no entry can declare the job.
    """
    variables = SecretVariables()
    entry = manifest_entry(
        job, stack=stack, key=desired.key, variables=variables, is_secret=lambda text: text in secrets
    )
    sections, patch = set[_Path](), dict[str, Any]()
    wanted = desired.covered_by(desired.digest[:1])
    removed = {}
    if any(path == (CODE,) for path in _differing(wanted, job)):
        # No directory is known to hold that code: the place where it lies is declared.
        removed = {CODE: None}
        wanted = replace(desired, code=None).covered_by(desired.digest[:1])
    # What still differs once these fields are those of the job is taken with all that surrounds it.
    for depth in (2, 1):
        left = _differing(wanted, job)
        if not left:
            break
        sections |= {_section(path, depth) for path in left}
        patch = removed | _at_sections(sections, manifest_form(desired.body or {}), entry)
        wanted = _patched(desired, patch)
    written = save(patch)
    return EntryPatch(desired.key, written, variables.declarations([written]))


def _patched(desired: DesiredJob, patch: Mapping[str, Any]) -> Canonical:
    """What a digest would cover of an entry with the patch merged over it."""
    own = {name: value for name, value in patch.items() if name != "raw"}
    merged = merge(manifest_form(desired.body or {}), desugar(own))
    return immutable_part(canonical(manifest_form(create_body({**merged, "raw": patch.get("raw")}))))


def _section(path: _Path, depth: int) -> _Path:
    """The field that a path is in, and which is declared as a whole; an argument is one by itself."""
    is_named = depth > 1 and path[1:2] and path[1] in (*NAMED_LISTS, "environments")
    return path[: depth + 1 if is_named else depth]


def _by_name(tree: Mapping[str, Any]) -> Tree:
    """The tree with the named lists of its algorithm as mappings of whole items."""
    algorithm = desugar(tree).get("algorithm")
    if not isinstance(algorithm, dict):
        return dict(tree)
    for kind in NAMED_LISTS:
        items = algorithm.get(kind) or ()
        if items and all(isinstance(one, Mapping) and isinstance(one.get("name"), str) for one in items):
            algorithm[kind] = {one["name"]: {k: v for k, v in one.items() if k != "name"} for one in items}
    return {**tree, "algorithm": algorithm}


def _at_sections(sections: Iterable[_Path], declared: Mapping[str, Any], entry: ManifestEntry) -> Tree:
    """What to merge over a declaration, so that these sections of it are those of an entry."""
    mine, theirs, reported = _by_name(declared), _by_name(entry.tree), _reported(entry.job)
    patch: Tree = {}
    raw: Tree = entry.tree.get("raw") or {}
    for section in sorted(sections):
        rule: FieldRule | None = rules()
        for name in section:
            rule = rule and member_rule(rule, name)
        own, unknown = _instead(
            value_at(mine, section), value_at(theirs, section), value_at(reported, section), rule
        )
        for name in reversed(section):
            own, unknown = {name: own}, {name: unknown}
        if rule is not None:
            patch = overlay(patch, own)
        if value_at(unknown, section) not in (None, {}) or rule is None:
            raw = merge(raw, unknown)
    algorithm = patch.get("algorithm") or {}
    for kind in NAMED_LISTS:
        if isinstance(items := algorithm.get(kind), Mapping):
            algorithm[kind] = {n: one and _sugared(kind, one) for n, one in items.items()}
    return {**patch, "raw": raw} if raw else patch


def _instead(declared: Any, entry: Any, reported: Any, rule: FieldRule | None) -> tuple[Any, Any]:
    """What makes a declared value that of an entry; and what `raw` says of members that no model has."""
    if rule is None:
        return None, reported
    if not isinstance(declared, Mapping) or not isinstance(entry, Mapping):
        return entry, {}
    own, raw = {}, {}
    for name in {**declared, **entry}:
        one = (declared.get(name), entry.get(name), value_at(reported, (name,)), member_rule(rule, name))
        own[name], below = _instead(*one)
        if one[-1] is None:
            del own[name]
        if one[-1] is None or below:
            raw[name] = below
    return own, raw
