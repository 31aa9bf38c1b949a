"""The end of a log as it grows: what of it has not been shown."""

from __future__ import annotations

from typing import NamedTuple


class Unseen(NamedTuple):
    """What is new: whole lines, how many bytes of the log are seen with them, and whether some are lost."""

    text: str
    size: int
    has_gap: bool = False

    def without_end(self, count: int) -> Unseen:
        """The same with so many characters left for later."""
        if not count:
            return self
        return self._replace(text=self.text[:-count], size=self.size - len(self.text[-count:].encode()))


def unseen(content: str, full_size: int | None, seen: int, *, is_last: bool) -> Unseen:
    """Return what of a preview lies behind the first `seen` bytes of the log.

    `content` is the end of a log of `full_size` bytes (None: all of it). A line that is not finished
    waits for its rest, unless this `is_last`. A log that became shorter was begun anew.
    """
    data = content.encode()
    size = len(data) if full_size is None else max(full_size, len(data))
    begins = size - len(data)
    if size < seen:
        seen = 0
    new = data[max(0, seen - begins) :]
    if not is_last:
        new = new[: new.rfind(b"\n") + 1]
        size = max(seen, begins) + len(new)
    return Unseen(new.decode(errors="replace"), size, has_gap=begins > seen)


def last_lines(content: str, count: int) -> str:
    """The last lines of a text."""
    return "".join(content.splitlines(keepends=True)[-count:]) if count else ""
