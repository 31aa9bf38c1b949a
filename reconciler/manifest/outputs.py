"""`${jobs.KEY.outputs.NAME}`: the OBS path that another job of the stack declares for that output.

An entry is merged with its texts as they are written, and only what is left of them then names other jobs: an
output that the job takes away from `defaults` needs nobody. The path may name an output of a third job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from reconciler.core.body import desugar
from reconciler.core.scalar import OutputName, Reference, UnresolvedText
from reconciler.decide.plan import few
from reconciler.errors import Diagnostic, Location
from reconciler.manifest.expressions import Expander, problems_in
from reconciler.manifest.matrix import member_key, value_texts
from reconciler.manifest.merge import Link, Links, MergedEntry
from reconciler.manifest.positions import PathStep, location_of_key
from reconciler.manifest.problems import (
    NotExpanded,
    Origin,
    Problem,
    Unexpanded,
    did_you_mean,
    listed,
    steps_of,
)
from reconciler.manifest.yaml import shorten
from reconciler.secrets import SecretText

UNKNOWN_OUTPUT = "unknown output"
#: Where an output has its path.
_URL = ("remote", "obs", "obs_url")
_Path = tuple[str | int, ...]


class MergedJob(NamedTuple):
    """An entry with all that it inherits.

    Texts in `tree` that name outputs are as they are written until `Outputs.resolve`, which finds the
    `references` to other jobs, each key once.
    """

    tree: dict[str, Any]
    origin: Origin
    expander: Expander
    has_body: bool = True
    is_whole: bool = True
    references: tuple[Link, ...] = ()

    @property
    def is_absent(self) -> bool:
        """Whether the job must not run."""
        return bool(self.tree.get("state") == "absent")


class _Refused(NamedTuple):
    """Why an output has no path; without words that is told in another place."""

    what: str = ""
    why: str = ""
    fix: str | None = None


_REFUSED_ELSEWHERE = _Refused()


class _Output(NamedTuple):
    """What a merged entry says of one output: its path, as far as there is one, and where that stands."""

    url: Any
    steps: tuple[PathStep, ...]


@dataclass
class Outputs:
    """Puts the paths of outputs in their places. `merged` merges an entry, or has said why it cannot.

    `links` learns which job needs which; `problems` takes what is wrong.
    """

    links: Links
    merged: Callable[[MergedEntry], MergedJob | None]
    problems: list[Diagnostic]
    _jobs: dict[str, MergedJob | None] = field(default_factory=dict)
    _declared: dict[str, dict[str, _Output]] = field(default_factory=dict)
    _known: dict[OutputName, Any] = field(default_factory=dict)

    def resolve(self, job: MergedJob, owner: str | None) -> MergedJob:
        """Return the job with every path in its place, and with its references.

        `owner` is its key, None for a part of an entry that is looked at without a job.
        """
        if not job.expander.kept:
            return job
        links: dict[str, Link] = {}
        is_whole = job.is_whole

        def place(tree: Any, path: _Path) -> Any:
            nonlocal is_whole
            if isinstance(tree, dict):
                return {name: place(value, (*path, name)) for name, value in tree.items()}
            if isinstance(tree, list):
                return [place(value, (*path, number)) for number, value in enumerate(tree)]
            if not isinstance(tree, UnresolvedText):
                return tree
            steps = steps_of(path, job.tree)
            for reference, named in self._names(tree, job):
                if self._is_needed(named.key, owner):
                    links.setdefault(
                        named.key, Link(owner or "", named.key, job.origin, steps, reference.text)
                    )
            value = self._value(tree, job, owner)
            if isinstance(value, Unexpanded):
                is_whole = False
                self._report(tree, job, owner, steps)
            return value

        tree = place(job.tree, ())
        return job._replace(tree=tree, is_whole=is_whole, references=tuple(links.values()))

    def location_of(self, named: OutputName, job: MergedJob) -> Location | None:
        """Where the output stands that a job names; None if there is none."""
        with suppress(NotExpanded):
            named = self._in_full(named, job)
        other, output = self._job(named.key), self._outputs_of(named.key).get(named.name)
        return None if other is None or output is None else other.origin.diagnose(output.steps, "").location

    def _is_needed(self, key: str, owner: str | None) -> bool:
        """Whether to name an output of that job is to need it; any other reference is refused."""
        if key == owner or (key in self.links.members and key not in self.links.entries):
            return False
        job = self._job(key)
        return job is None or not job.is_absent

    def _value(self, text: UnresolvedText, job: MergedJob, owner: str | None) -> Any:
        """The text with the paths in it, or marked where one has none."""
        try:
            value = self._expander(job, owner).text(text)
        except NotExpanded:
            return Unexpanded(text)
        if text.secret and not isinstance(value, SecretText):
            return SecretText(value, text.secret)
        return value

    def _expander(self, job: MergedJob, owner: str | None) -> Expander:
        return replace(job.expander, keeps_outputs=False, outputs=partial(self._path, job, owner))

    def _report(self, text: UnresolvedText, job: MergedJob, owner: str | None, steps: Any) -> None:
        for _, problem in problems_in(str(text), self._expander(job, owner)):
            if problem.what:
                self.problems.append(
                    job.origin.diagnose(steps, problem.what, problem.why, problem.fix, text=problem.text)
                )

    def _names(self, text: UnresolvedText, job: MergedJob) -> Iterator[tuple[Reference, OutputName]]:
        """The outputs that a text of a job names, as far as they can be said."""
        for reference, named in text.outputs:
            with suppress(NotExpanded):
                yield reference, self._in_full(named, job)

    def _in_full(self, named: OutputName, job: MergedJob) -> OutputName:
        """The same with the values of the job's own combination in it.

        Raises:
            NotExpanded: it has no such axis.
        """
        if "${" not in named.key + named.name:
            return named
        matrix = job.expander.matrix
        literal = str(job.expander.text(named.key))
        spelled = str(replace(job.expander, matrix=matrix and value_texts(matrix)).text(named.key))
        return OutputName(member_key(literal, spelled, self.links.known), str(job.expander.text(named.name)))

    def _path(self, job: MergedJob, owner: str | None, reference: Reference, named: OutputName) -> Any:
        """The path of one output.

        Raises:
            NotExpanded: it has none; without words where that is told in another place.
        """
        named = self._in_full(named, job)
        found = _itself(named) if named.key == owner else self._find(named)
        if isinstance(found, _Refused):
            raise NotExpanded(Problem(reference.text, *found))
        return found

    def _find(self, named: OutputName) -> Any:
        """The path of an output, or why it has none. Chains may be long, so they are followed in a loop."""
        waiting = {} if named in self._known else {named: self._named_by(named)}
        while waiting:
            one = next(reversed(waiting))
            other = next((other for other in waiting[one] if other not in self._known), None)
            if other is not None and other not in waiting:
                waiting[other] = self._named_by(other)
                continue
            del waiting[one]
            # A cycle of references is one of needs, and told as such.
            self._known[one] = self._evaluated(one) if other is None else _REFUSED_ELSEWHERE
        return self._known[named]

    def _named_by(self, named: OutputName) -> Iterator[OutputName]:
        """The outputs of other jobs that the path of an output is made of."""
        output, job = self._outputs_of(named.key).get(named.name), self._job(named.key)
        if output is not None and job is not None and isinstance(output.url, UnresolvedText):
            yield from (other for _, other in self._names(output.url, job) if other.key != named.key)

    def _evaluated(self, named: OutputName) -> Any:
        job = self._job(named.key)
        if (refused := self._refused(named)) is not None or job is None:
            return refused or _REFUSED_ELSEWHERE
        url, steps = self._outputs_of(named.key)[named.name]
        if isinstance(url, UnresolvedText):
            text, url = url, self._value(url, job, named.key)
            if isinstance(url, Unexpanded):
                # Now, since nobody may come to read that job: once there is too much, none is read any more.
                self._report(text, job, named.key, steps)
        if isinstance(url, Unexpanded):
            return _REFUSED_ELSEWHERE
        if isinstance(url, _Refused) or (isinstance(url, str) and url):
            return url
        why = f'"{shorten(named.name)}" of {self._place(named.key)} has no remote.obs.obs_url'
        return _Refused("output without an OBS path", why)

    def _refused(self, named: OutputName) -> _Refused | None:
        """Why there is no such output; None if there is."""
        key, name = named
        if key not in self.links.entries:
            # That a key is unknown is told with the links, that a sweep has no members with the sweep.
            members = self.links.members.get(key)
            return _sweep(named, members) if members else _REFUSED_ELSEWHERE
        if (job := self._job(key)) is None:
            return _REFUSED_ELSEWHERE
        if job.is_absent:
            why = f"{self._place(key)} says state: absent, so nothing writes its outputs"
            return _Refused("reference to an absent job", why)
        outputs = self._outputs_of(key)
        if name not in outputs:
            has = f"it has {listed(tuple(map(shorten, outputs)))}" if outputs else "it declares none"
            why = f'{self._place(key)} has no output "{shorten(name)}"; {has}'
            return _Refused(UNKNOWN_OUTPUT, why, did_you_mean(name, tuple(outputs)))
        return None

    def _place(self, key: str) -> str:
        entry = self.links.entries[key]
        return f'"{key}" at {location_of_key(entry.document, entry.steps)}'

    def _job(self, key: str) -> MergedJob | None:
        if key not in self._jobs:
            entry = self.links.entries.get(key)
            self._jobs[key] = None if entry is None else self.merged(entry)
        return self._jobs[key]

    def _outputs_of(self, key: str) -> dict[str, _Output]:
        """The outputs that a job declares, by name."""
        if key not in self._declared:
            job = self._job(key)
            self._declared[key] = {} if job is None else _declared_by(job.tree)
        return self._declared[key]


def _itself(named: OutputName) -> _Refused:
    why = f'"{shorten(named.key)}" is the job that refers to it; only outputs of other jobs can be named'
    return _Refused("reference to itself", why, "write the path, or a variable that holds it")


def _sweep(named: OutputName, members: tuple[str, ...]) -> _Refused:
    why = f'"{named.key}" is a sweep of {len(members)} jobs: {few(members)}'
    return _Refused("reference to a sweep", why, f"name one job: ${{jobs.{members[0]}.outputs.{named.name}}}")


def _declared_by(tree: Mapping[str, Any]) -> dict[str, _Output]:
    """The outputs of a merged entry: its own, those of its tasks, and what `raw` adds."""
    raw = tree.get("raw")
    if isinstance(raw, Mapping):
        tree = {**tree, "raw": desugar(raw)}
    found: dict[str, _Output] = {}
    for number, _ in enumerate(tasks if isinstance(tasks := tree.get("tasks"), list) else ()):
        for path in (("tasks", number, "algorithm"), ("tasks", number, "algorithm", "job_config")):
            for name, output in _outputs_at(tree, path):
                if found.setdefault(name, output).url != output.url:
                    why = f'more than one task declares "{shorten(name)}", each with a path of its own'
                    found[name] = output._replace(url=_Refused("ambiguous output", why, "write the path"))
    return found | dict(_outputs_at(tree, ("algorithm",))) | dict(_outputs_at(tree, ("raw", "algorithm")))


def _outputs_at(tree: Any, path: _Path) -> Iterator[tuple[str, _Output]]:
    """The outputs of one algorithm of an entry, by name."""
    outputs = _at(tree, (*path, "outputs"))
    for number, output in enumerate(outputs if isinstance(outputs, list) else ()):
        name = _at(output, ("name",))
        if isinstance(name, str):
            steps = steps_of((*path, "outputs", number, *_URL), tree)
            yield name, _Output(_at(output, _URL), steps)


def _at(tree: Any, path: _Path) -> Any:
    for step in path:
        if isinstance(tree, Mapping):
            tree = tree.get(step)
        elif isinstance(tree, list) and isinstance(step, int):
            tree = tree[step]
        else:
            return None
    return tree
