"""The settings of an emulated service: the credentials it asks for, and the variant of its API."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypedDict

CLOUDS = frozenset({"huawei", "otc"})


@dataclass(frozen=True)
class Settings:
    """The settings that are fixed when the application is created.

    `project_id`: the only project there is (None: any). `token`, `access_key` with `secret_key`: the
    credentials it asks for (none: it asks for none; both: either will do). `security_token`: the one
    that goes with the key pair, of temporary credentials (None: any will do). `cloud`: "huawei" or
    "otc", which has fewer operations and changes a description only. `strict_catalogue`: refuse
    flavors, engines, algorithms, pools and workspaces that the catalogue lacks, and on a public pool
    what needs a dedicated one. `flavors` and `engines`: ids that are listed as well, such as those of another
    account; for a catalogue that is not strict, which takes them anyway. `control`: offer the control API.
    `tells_time`: the `Date` of each answer is the emulated time, as the service's is that of its jobs (else
    the server's real one). `now` is the real time, for the age of a signature; `sleep` waits real seconds.

    Raises:
        ValueError: an unknown cloud, one half of a key pair, or more offers of a strict catalogue.
    """

    project_id: str | None = None
    token: str | None = None
    access_key: str | None = None
    secret_key: str | None = None
    security_token: str | None = None
    cloud: str = "huawei"
    strict_catalogue: bool = False
    flavors: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()
    control: bool = False
    tells_time: bool = False
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        if self.cloud not in CLOUDS:
            raise ValueError(f"cloud must be one of {', '.join(sorted(CLOUDS))}, not {self.cloud}")
        if (self.access_key is None) != (self.secret_key is None):
            raise ValueError("access_key and secret_key go together")
        if self.security_token is not None and self.access_key is None:
            raise ValueError("security_token goes with access_key and secret_key")
        if self.strict_catalogue and (self.flavors or self.engines):
            raise ValueError("a strict catalogue has its own flavors and engines only")


class SettingsArguments(TypedDict, total=False):
    """The fields of `Settings` as keyword arguments, for the type checker."""

    project_id: str | None
    token: str | None
    access_key: str | None
    secret_key: str | None
    security_token: str | None
    cloud: str
    strict_catalogue: bool
    flavors: tuple[str, ...]
    engines: tuple[str, ...]
    control: bool
    tells_time: bool
    now: Callable[[], datetime]
    sleep: Callable[[float], None]
