"""The clock of this machine."""

from __future__ import annotations

import time


class SystemClock:
    """Real time; what `core.ports.Clock` asks for."""

    def now(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)
