"""The secrets in the environment and the credentials file, which are all redacted, used or not.

Imports little, because it runs at every start. Source: docs/reference/cli.md, "Credentials".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from reconciler.secrets import (
    CREDENTIAL_NAMES,
    ISSUED,
    is_secret_name,
    is_short_word,
    password_secrets,
    user_info_secrets,
)

FILE_VARIABLE = "HUAWEICLOUD_SDK_CREDENTIALS_FILE"
#: Variables that are not secrets as a whole.
_NO_SINGLE_SECRET = frozenset(("RECONCILER_RECORDS", "RECONCILER_VAR"))
_SECRETS = (CREDENTIAL_NAMES - _NO_SINGLE_SECRET) | {"RECONCILER_SECURITY_TOKEN", "PGPASSWORD"}
_PROXIES = frozenset(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"))
_URLS = frozenset(("RECONCILER_RECORDS", "OS_AUTH_URL"))
#: Secret fields of a credentials file, besides those with secret-looking names.
_FIELDS = frozenset(("ak", "sk", "security_token"))
_LINE = r"(?m)^[ \t]*([\w.-]+)[ \t]*[=:][ \t]*(\S.*?)[ \t]*$"
_LARGEST = 1_000_000


def known_secrets(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield every secret in the environment and in the credentials file."""
    for name, value in environ.items():
        upper = name.upper()
        if upper in ISSUED and is_short_word(value.strip()):
            continue  # not a secret: redacting it would remove a word such as `keep` from all output
        if upper in _SECRETS:
            yield from (value, value.strip())
        elif upper in _PROXIES:
            yield from user_info_secrets(value)
        elif upper in _URLS:
            yield from password_secrets(value)
    if (path := credentials_file(environ)) is not None:
        yield from _secrets_in(path)


def credentials_file(environ: Mapping[str, str]) -> Path | None:
    """The path of the credentials file, which may not exist."""
    if named := environ.get(FILE_VARIABLE, "").strip():
        return Path(named)
    home = environ.get("HOME", "").strip() or environ.get("USERPROFILE", "").strip()
    return Path(home) / ".huaweicloud" / "credentials" if home else None


def _secrets_in(path: Path) -> Iterator[str]:
    """The secrets of all sections. Parsed by hand: an invalid file contains secrets, too."""
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST:
            return
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return  # reported when it is needed
    for name, value in re.findall(_LINE, text):
        if name.lower() in _FIELDS or is_secret_name(name):
            yield value
