"""The identity of a job: stack, key, revision, remote name, and the marker that stores them on the job.

The marker ends the description of every job that we create::

    ResNet-50, nightly reconciler.vision.resnet50.r2.a3f9a2c1b7d4e.s3b1f.protected

It has only letters, digits, `-`, `_` and `.`, which every description field of the service accepts. No part
contains a dot, so parsing is unambiguous.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MARKER_BEGIN = "reconciler."
MAX_DESCRIPTION = 256
MAX_KEY = 58
#: The length of the marker is computed with four digits; more are possible.
MAX_REVISION = 9999
#: The service's limit.
MAX_NAME = 64
#: Eight hex digits of seconds, which end in 2106.
_LATEST_SINCE_S = 0xFFFF_FFFF

_STACK = r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?"
_KEY = r"[A-Za-z0-9_-]{1,58}"
STACK_PATTERN = re.compile(_STACK)
KEY_PATTERN = re.compile(_KEY)
_REVISION_SUFFIX = r"(?ai)-r[0-9]+\Z"
_REMOTE_NAME = r"(?as)(?P<key>.+)-r(?P<revision>[1-9][0-9]{0,8})\Z"
_DIGEST = r"[a-z][0-9a-f]{12}"
_SCHEDULE = r"(?P<schedule>[0-9a-f]{4})(?P<since>[0-9a-f]{8})?"
_MARKER = (
    rf"(?a)(?:\A|(?<= ))reconciler\.(?P<stack>{_STACK})\.(?P<key>{_KEY})\.r(?P<revision>[1-9][0-9]{{0,8}})"
    rf"\.(?P<digest>{_DIGEST})(?:\.id(?P<id>[0-9a-f]{{8}}))?"
    rf"(?:\.s{_SCHEDULE})?"
    r"(?P<protected>\.protected)?(?P<stopped>\.stopped)?\Z"
)


def key_problem(key: str) -> str | None:
    """Return why `key` is not a valid key, or None."""
    if not KEY_PATTERN.fullmatch(key):
        return f"a key must have 1 to {MAX_KEY} characters of A-Z, a-z, 0-9, _ and -"
    if re.search(_REVISION_SUFFIX, key):
        return "a key must not end in -r and digits, which is how revisions are named"
    return None


def stack_problem(stack: str) -> str | None:
    """Return why `stack` is not a valid stack name, or None."""
    if not STACK_PATTERN.fullmatch(stack):
        return (
            "a stack name must have 1 to 32 characters of a-z, 0-9 and -, "
            "and begin and end with a letter or a digit"
        )
    return None


def remote_name(key: str, revision: int) -> str:
    """Return the name of a revision. It is deterministic, so that a repeated create cannot start twice."""
    return key if revision == 1 else f"{key}-r{revision}"


class RemoteName(NamedTuple):
    """Key and revision that a job's name stands for."""

    key: str
    revision: int


def parse_remote_name(name: str) -> RemoteName:
    """Split a name into key and revision; the inverse of `remote_name`.

    `remote_name` never returns `x-r1`, `x-r0`, `x-r02` or revisions of more than nine digits, so these are
    keys.
    """
    match = re.match(_REMOTE_NAME, name)
    if match and int(match["revision"]) >= 2:
        return RemoteName(match["key"], int(match["revision"]))
    return RemoteName(name, 1)


class ScheduleMark(NamedTuple):
    """The schedule that applies to a job, as the first 4 hex digits of its digest.

    `since_s` is the time, in whole seconds, from which it counts, if it was added, edited or adopted after
    the job was created; None: from the creation of the job.
    """

    digest: str
    since_s: int | None = None

    def __str__(self) -> str:
        return self.digest if self.since_s is None else f"{self.digest}{self.since_s:08x}"

    def counting_from(self, at_s: float) -> ScheduleMark:
        """Return the same schedule, counting from `at_s`, clamped to what a marker can hold."""
        return self._replace(since_s=int(min(max(at_s, 0.0), _LATEST_SINCE_S)))


class Marker(NamedTuple):
    """The owner of a job, from its description. `digest` is the algorithm's letter and 12 hex digits."""

    stack: str
    key: str
    revision: int
    digest: str
    id_part: str | None = None
    schedule: ScheduleMark | None = None
    protected: bool = False
    stopped: bool = False

    def __str__(self) -> str:
        parts = [self.stack, self.key, f"r{self.revision}", self.digest]
        parts += [f"id{self.id_part}"] if self.id_part else []
        parts += [f"s{self.schedule}"] if self.schedule else []
        parts += ["protected"] * self.protected + ["stopped"] * self.stopped
        return MARKER_BEGIN + ".".join(parts)

    def is_on_its_own_job(self, name: str, job_id: str) -> bool:
        """Whether the marker was written for the job with this name and id.

        A job that was copied in the console has the marker of the original; it must not count as ours.
        """
        if self.id_part and job_id.lower().startswith(self.id_part):
            return True
        return name == remote_name(self.key, self.revision)

    def for_job(self, name: str, job_id: str) -> Marker:
        """Return the marker with an `id` part if the name is not the remote name of key and revision.

        An `id` part that it has already stays: it tells that the job was renamed or adopted before.
        """
        is_natural = name == remote_name(self.key, self.revision)
        return self if is_natural else self._replace(id_part=job_id[:8].lower())


class Description(NamedTuple):
    """A job's description: the user's text, and the marker if it ends with one."""

    text: str
    marker: Marker | None

    def __str__(self) -> str:
        if self.marker is None:
            return self.text
        return f"{self.text} {self.marker}" if self.text else str(self.marker)


def parse_description(description: str) -> Description:
    """Split a description from the service. White space after the marker is ignored."""
    trimmed = description.rstrip()
    match = re.search(_MARKER, trimmed)
    if match is None:
        return Description(description, None)
    marker = Marker(
        stack=match["stack"],
        key=match["key"],
        revision=int(match["revision"]),
        digest=match["digest"],
        id_part=match["id"],
        schedule=_schedule_of(match),
        protected=match["protected"] is not None,
        stopped=match["stopped"] is not None,
    )
    text = trimmed[: match.start()]
    return Description(text.removesuffix(" "), marker)


def read_schedule_mark(text: str) -> ScheduleMark | None:
    """Parse the text after `.s` in a marker. Returns None if it is empty or invalid."""
    match = re.fullmatch(_SCHEDULE, text)
    return None if match is None else _schedule_of(match)


def _schedule_of(match: re.Match[str]) -> ScheduleMark | None:
    digest, since = match["schedule"], match["since"]
    return None if digest is None else ScheduleMark(digest, None if since is None else int(since, 16))


def room_for_description(stack: str, key: str) -> int:
    """Return how many characters the user's text may have, so that the longest marker still fits."""
    widest = Marker(stack, key, MAX_REVISION, "a" + "0" * 12, "0" * 8, ScheduleMark("0" * 4, 0), True, True)
    return MAX_DESCRIPTION - len(str(widest)) - 1
