"""One HTTP request as plain data: what is signed is exactly what is sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from reconciler.errors import Rejected

JSON = "application/json;charset=UTF-8"


@dataclass(frozen=True, slots=True)
class Request:
    """`path` is percent-encoded and absolute; `query` is sorted; `body` is bytes or None."""

    method: str
    host: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None

    @property
    def path_and_query(self) -> str:
        """What stands in the request line."""
        if not self.query:
            return self.path
        # Encoded as the signer encodes it: sending the query as it was signed is the safe way.
        return self.path + "?" + "&".join(f"{quote(k, safe='~')}={quote(v, safe='~')}" for k, v in self.query)


def query_of(parameters: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return query parameters as sorted text; None leaves one out.

    Raises:
        Rejected: one is no valid Unicode.
    """
    for value in parameters.values():
        if isinstance(value, str):
            _encoded(value)
    return tuple(sorted((key, _text(value)) for key, value in parameters.items() if value is not None))


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def json_bytes(body: Any) -> bytes:
    """Return a body as it is sent.

    Raises:
        Rejected: a text in it is no valid Unicode.
    """
    return _encoded(json.dumps(body, ensure_ascii=False, separators=(",", ":")))


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        half = f"U+{ord(text[error.start]):04X}"
    # Outside of `except`: that error holds the whole text.
    raise Rejected(
        f"the request is not valid Unicode: it contains {half}, an unpaired surrogate; nothing was sent",
        fix=f"remove {half} from the manifest, or from the source it was read from",
    )
