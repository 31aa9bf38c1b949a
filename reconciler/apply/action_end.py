"""The end of an action that is not success."""

from __future__ import annotations

from reconciler.decide.outcome import Status


class ActionEnded(Exception):
    """The action ends here, otherwise than by success."""

    def __init__(self, status: Status, detail: str, job: str | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.job = status, detail, job
