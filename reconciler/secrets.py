"""Secrets: hold their values, redact them from text, and recognize undeclared ones.

Sources: docs/operations/security.md, "Secrets"; docs/reference/cli.md, "Credentials".
"""

from __future__ import annotations

import base64
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, quote_plus, unquote, urlsplit

REDACTED = "(sensitive)"


class SecretText(str):
    """Text that contains a sensitive value. It is sent as it is, and shown as `reference`.

    `reference` names the source of the value, e.g. `Bearer ${var.hf_token}`. If `has_value` is False, the
    value is missing, and the text equals the reference: it is compared by name, and never sent.
    """

    __slots__ = ("has_value", "reference")
    reference: str
    has_value: bool

    def __new__(cls, value: str, reference: str, has_value: bool = True) -> SecretText:
        """Wrap `value`. `reference` may be shown to anyone."""
        self = super().__new__(cls, value)
        self.reference = reference
        self.has_value = has_value
        return self

    def __repr__(self) -> str:
        return f"SecretText({self.reference!r})"

    def __reduce__(self) -> tuple[type[SecretText], tuple[str, str, bool]]:
        return SecretText, (str.__str__(self), self.reference, self.has_value)


def map_leaves(tree: Any, change: Callable[[Any], Any]) -> Any:
    """Return a copy of plain data with `change` applied to each value that is not a mapping or a list."""
    # isinstance(x, Mapping) is slow, and nearly all leaves are texts.
    if isinstance(tree, str):
        return change(tree)
    if isinstance(tree, (dict, Mapping)):
        return {key: map_leaves(value, change) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [map_leaves(value, change) for value in tree]
    return change(tree)


def map_with(tree: Any, other: Any, change: Callable[[Any, Any], Any]) -> Any:
    """Like `map_leaves`, but `change` also gets the value at the same place in `other`.

    Where the two differ in kind, or lists in length, a mapping or a list is passed to `change` whole.
    """
    if isinstance(tree, Mapping) and isinstance(other, Mapping):
        return {key: map_with(value, other.get(key), change) for key, value in tree.items()}
    if isinstance(tree, list) and isinstance(other, list) and len(tree) == len(other):
        return [map_with(value, partner, change) for value, partner in zip(tree, other, strict=True)]
    return change(tree, other)


def leaves(tree: Any) -> Iterator[Any]:
    """Yield each value in plain data that is not a mapping or a list."""
    if isinstance(tree, Mapping | list | tuple):
        for value in tree.values() if isinstance(tree, Mapping) else tree:
            yield from leaves(value)
    else:
        yield tree


def show(tree: Any) -> Any:
    """Return a copy of plain data in which each secret is replaced by its reference."""
    return map_leaves(tree, lambda leaf: leaf.reference if isinstance(leaf, SecretText) else leaf)


def secrets_in(tree: Any) -> Iterator[SecretText]:
    """Yield each secret in plain data, with or without a value."""
    return (leaf for leaf in leaves(tree) if isinstance(leaf, SecretText))


def holds_secret(tree: Any) -> bool:
    return next(secrets_in(tree), None) is not None


def matches_redacted(redacted: str, text: str) -> bool:
    """Whether `redacted` contains a redaction, and may have been made from `text`."""
    pieces = redacted.split(REDACTED)
    return len(pieces) > 1 and re.fullmatch(".+".join(map(re.escape, pieces)), text, re.DOTALL) is not None


# ── redaction by value ─────────────────────────────────────────────────────────────────────────

#: Shorter values are not searched for, as too many words contain them.
SHORTEST_SCANNED = 4
#: Shorter secrets of only ASCII letters or only digits are matched as whole words.
_LONG_WORD = 8
#: A secret is distinctive from `_LONG` characters on, or from `_SHORT` if they are of several kinds.
_LONG, _SHORT = 16, 6
#: The minimum length of a line, or of the rest of a truncated secret, that is recognized.
_SHORTEST_PART = 8
_PASSES = 3
_CUT = r"…|\.\.\."
#: Longer secrets must match white space exactly, since their pattern would need too much memory.
_LONGEST_PATTERN = 10_000


class Form(NamedTuple):
    """One form of a secret. `is_word`: matched as a whole word; `is_base64`: also inside longer base64."""

    text: str
    is_word: bool = False
    is_base64: bool = False

    @property
    def key(self) -> str:
        """Text that every occurrence contains, even if a terminal has wrapped lines at white space."""
        return self.text if len(self.text) > _LONGEST_PATTERN else max(self.text.split() or [""], key=len)


class Redactor:
    """Removes the known secrets from text, in all their forms: see `forms_of`.

    Thread-safe. A secret that was learned before a call is removed by it.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._forms_by_secret: dict[str, tuple[Form, ...]] = {}
        self._known: tuple[int, tuple[tuple[str, Form], ...]] = (0, ())
        self.add_secrets(secrets)

    def add_secrets(self, secrets: Iterable[str]) -> None:
        """Add values to remove from now on."""
        for secret in map(str, secrets):
            if len(secret) >= SHORTEST_SCANNED and not secret.isspace():
                self._forms_by_secret.setdefault(secret, ())

    def __call__(self, text: str) -> str:
        """Return the text without secrets, or the same object if there are none."""
        forms = self._forms()
        # Redacting one secret can turn its neighbour into a whole word.
        for _ in range(_PASSES):
            redacted = _redact(forms, text)
            if redacted == text:
                break
            text = redacted
        return text

    def incomplete_suffix_length(self, text: str) -> int:
        """Return how many characters at the end may be the first lines of a secret that continues."""
        plain = text.replace("\r\n", "\n")
        length = 0
        for secret in list(self._forms_by_secret):
            lines = secret.strip().replace("\r\n", "\n").splitlines(keepends=True)
            prefixes = ("".join(lines[:count]) for count in range(1, len(lines)))
            length = max([length, *(len(prefix) for prefix in prefixes if plain.endswith(prefix))])
        return length + text[-length:].count("\r") if length else 0

    def _forms(self) -> tuple[tuple[str, Form], ...]:
        """Return all forms with their keys. Harmless if two threads compute them."""
        count, forms = self._known
        if count != len(self._forms_by_secret):
            secrets = list(self._forms_by_secret)
            for secret in secrets:
                self._forms_by_secret[secret] = self._forms_by_secret[secret] or tuple(forms_of(secret))
            unique = dict.fromkeys(form for secret in secrets for form in self._forms_by_secret[secret])
            forms = tuple((form.key, form) for form in unique)
            self._known = (len(secrets), forms)
        return forms


def forms_of(secret: str) -> Iterator[Form]:
    """Yield the forms in which a secret may occur in output.

    These are the text itself, its encodings in URLs, JSON, Python and YAML, and base64, also of a longer
    text. Each line of a secret with several lines, such as a key, counts by itself. A short secret of only
    letters or only digits is matched as a whole word, since other words contain e.g. `train`.
    """
    for text in dict.fromkeys(_texts(secret)):
        yield Form(text, is_word=is_short_word(text))
        urls = [quoted(text, errors="replace") for quoted in (quote, quote_plus)]
        urls.append(quote(text, safe="", errors="replace"))
        urls += [re.sub("%..", lambda match: match[0].lower(), url) for url in urls]
        in_json = [json.dumps(text, ensure_ascii=is_ascii)[1:-1] for is_ascii in (True, False)]
        in_json += [one.replace("/", "\\/") for one in in_json]
        written = [*urls, *in_json, repr(text)[1:-1], text.replace("'", "''")]
        # A JSON response may contain JSON, and a document a traceback.
        within_json = [json.dumps(one, ensure_ascii=False)[1:-1] for one in written]
        written += [*within_json, *(repr(one)[1:-1] for one in written)]
        yield from (Form(one) for one in dict.fromkeys(written) if one != text)
    for text in (secret, secret.strip()):
        raw = text.encode("utf-8", "surrogatepass")
        for shift, first in enumerate((0, 2, 3)):
            # The base64 characters that do not depend on the offset in a longer text; their neighbours also
            # encode parts of the first and last byte.
            core = base64.b64encode(bytes(shift) + raw)[first : (shift + len(raw)) * 8 // 6].decode()
            for one in (core, core.translate(str.maketrans("+/", "-_"))):
                yield Form(one, is_base64=True)


def _texts(secret: str) -> Iterator[str]:
    """Yield the secret as it is, stripped, and line by line."""
    yield secret
    if len(secret.strip()) >= SHORTEST_SCANNED:
        yield secret.strip()
    # Environment variables often write the line breaks of a key as a backslash and an n.
    lines = [line.strip() for line in secret.replace("\\n", "\n").splitlines()]
    for line in lines if len(lines) > 1 else ():
        # The BEGIN and END lines of a key are public.
        if len(line) >= _SHORTEST_PART and not re.fullmatch(r"-----(BEGIN|END) [A-Z0-9 ]+-----", line):
            yield line


def is_short_word(text: str) -> bool:
    """Whether the text could be a word or a number, which no issued token or key is."""
    return len(text) < _LONG_WORD and text.isascii() and (text.isalpha() or text.isdigit())


def is_distinctive(value: str) -> bool:
    """Whether a secret is distinctive enough to be removed wherever it occurs.

    A password such as `test` is not: jobs and buckets may have that in their names.
    """
    kinds = [any(map(is_one, value)) for is_one in (str.islower, str.isupper, str.isdigit)]
    has_other = any(not char.isalnum() for char in value)
    return len(value) >= _LONG or (len(value) >= _SHORT and sum((*kinds, has_other)) > 1)


def _redact(forms: Iterable[tuple[str, Form]], text: str) -> str:
    spans = [span for key, form in forms if key in text for span in _spans(form, text)]
    if "…" in text or "..." in text:
        plain = (form for _, form in forms if not (form.is_word or form.is_base64))
        spans += (span for form in plain for span in _cut_spans(form.text, text))
    if not spans:
        return text
    # Keep existing redactions intact, even if a secret is part of that word.
    redactions = [match.start() for match in re.finditer(re.escape(REDACTED), text)]
    pieces: list[str] = []
    end = 0
    joined: list[tuple[int, int]] = []
    for start, stop in sorted(spans):
        if joined and start < joined[-1][1]:
            start, stop = joined[-1][0], max(stop, joined.pop()[1])
        joined.append((start, stop))
    for start, stop in joined:
        before = bisect_right(redactions, start) - 1
        if before < 0 or stop > redactions[before] + len(REDACTED):
            pieces += (text[end:start], REDACTED)
            end = stop
    return "".join((*pieces, text[end:]))


def _spans(form: Form, text: str) -> Iterator[tuple[int, int]]:
    pattern = re.escape(form.text)
    if len(form.text) <= _LONGEST_PATTERN and form.text == form.text.strip():
        pattern = r"\s+".join(map(re.escape, re.split(r"\s+", form.text)))
    if form.is_word:
        kind = "[0-9]" if form.text.isdigit() else "[A-Za-z]"
        # A word may also follow an escape, whose last letter does not belong to it.
        escapes = (r"\\[nrtbf]", r"\\u[0-9A-Fa-f]{4}", r"\\x[0-9A-Fa-f]{2}", "%[0-9A-Fa-f]{2}")
        before = "|".join((f"(?<!{kind})", *(f"(?<={escape})" for escape in escapes)))
        pattern = f"(?:{before}){pattern}(?!{kind})"
    for match in re.finditer(pattern, text):
        start, end = match.span()
        if form.is_base64:
            start -= bool(re.match("[A-Za-z0-9+/_-]", text[start - 1 : start]))
            rest = re.match("[A-Za-z0-9+/_-]?={0,2}", text[end : end + 3])
            end += rest.end() if rest else 0
        yield start, end


def _cut_spans(secret: str, text: str) -> Iterator[tuple[int, int]]:
    """Yield where a secret is cut off at an ellipsis: its beginning before it, or its end after it."""
    first, last = secret[:_SHORTEST_PART], secret[-_SHORTEST_PART:]
    if len(secret) <= _SHORTEST_PART or not (first in text or last in text):
        return
    for mark in re.finditer(_CUT, text):
        before = text[max(0, mark.start() - len(secret)) : mark.start()]
        at = before.find(first)
        while at >= 0 and not secret.startswith(before[at:]):
            at = before.find(first, at + 1)
        if at >= 0:
            yield mark.start() - len(before) + at, mark.start()
        after = text[mark.end() : mark.end() + len(secret)]
        at = after.rfind(last)
        while at >= 0 and not secret.endswith(after[: at + len(last)]):
            at = after.rfind(last, 0, at + len(last) - 1)
        if at >= 0:
            yield mark.end(), mark.end() + at + len(last)


_T = TypeVar("_T")


def without_secrets(value: _T, redact: Callable[[str], str]) -> _T:
    """Return a copy in which each secret is replaced by its reference or redacted; the same if there is none.

    For plans, findings and results that a program receives: types are kept, and numbers, times and enums
    unchanged.
    """
    cleaned: _T = _clean(value, redact)
    return cleaned


def _clean(value: Any, redact: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return value if isinstance(value, Enum) else redact(show(value))
    if isinstance(value, Mapping):
        return {_clean(name, redact): _clean(member, redact) for name, member in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_clean(item, redact) for item in value)
    # Recognize pydantic models by their fields, without importing the library.
    is_model, is_tuple = hasattr(type(value), "model_fields"), hasattr(value, "_fields")
    if isinstance(value, type) or not (is_model or is_tuple or is_dataclass(value)):
        return value
    if is_model:
        names = (*type(value).model_fields, *(value.model_extra or ()))
    else:
        names = value._fields if is_tuple else tuple(field.name for field in fields(value))
    members = {name: getattr(value, name) for name in names}
    cleaned = {name: _clean(member, redact) for name, member in members.items()}
    # A secret compares equal to plain text with the same characters.
    changed = {n: v for n, v in cleaned.items() if v is not members[n] and repr(v) != repr(members[n])}
    if not changed:
        return value
    if is_model:
        return value.model_copy(update=changed)
    return value._replace(**changed) if is_tuple else replace(value, **changed)


# ── what looks like a secret ───────────────────────────────────────────────────────────────────
#
# A value that is no longer declared may have been sensitive, but no manifest says so any more. It is shown
# unless its name or its form suggests a secret: hiding every value would hide what people have to read.


def _set_of(words: str) -> frozenset[str]:
    return frozenset(words.split())


#: A name that contains one of these words has a secret value. Names are split at `_`, `-`, `.` and camel
#: case, and whole words count: not `monkey`, `keyboard`, `tokenizer` or `max_tokens`.
_SECRET_WORDS = _set_of("""
    secret secrets password passwords passwd passphrase passcode pwd credential credentials apikey
    apikeys accesskey secretkey privatekey sshkey apitoken authtoken accesstoken hftoken ghtoken
    authorization bearer jwt oauth cookie cookies htpasswd kubeconfig ak sk
""")
#: Words with these endings count as well, e.g. `dbpassword`.
_SECRET_ENDINGS = ("password", "passwd", "secret", "credential", "credentials")
#: Words that mean a secret unless next to one of these: `api_key`, but not `key_frames`.
_HARMLESS_NEIGHBOURS = {
    "key": _set_of("""
        frame frames point points pair pairs name names dim dims size length len type types value values
        head heads column columns col field fields map mapping mask masks path paths order by prefix
        suffix word words phrase phrases cache layer layers bits rate padding primary foreign public
        sort group partition label image text feature input output data dict index lookup config state
        hot
    """),
    "token": _set_of("""
        type types count counts limit limits length len size dim dims level embedding embeddings dropout
        id ids index budget rate per merging pruning mixing mixer shift labeling classification ratio
        max min num n number pad padding eos bos unk unknown mask cls sep special next start end stop
        image text video audio speech prefix suffix separator vocab total prompt output input first last
        batch extra added register
    """),
    "auth": _set_of("""
        type types method methods mode url uri host port server provider enabled enable
    """),
    "pass": _set_of("""
        forward backward first second third last single one two multi num n number max min low high band
        all per train training eval validation warmup through rate
    """),
}
#: Pairs of words that mean a secret only together, since the plurals have many meanings.
_SECRET_PAIRS = frozenset(
    (first, second)
    for first in ("api", "access", "auth", "secret", "private", "refresh", "ssh", "encryption")
    for second in ("keys", "tokens")
)
#: Names of identifiers, whose values may be long and random without being secret.
_IDENTITY_WORDS = _set_of("""
    commit sha md hash digest checksum crc revision rev version uuid guid id ids image tag etag path dir
    directory checkpoint ckpt fingerprint
""")
#: Values that cannot be secrets.
_EMPTY_WORDS = frozenset(("", "true", "false", "yes", "no", "on", "off", "none", "null"))
#: Formats of known kinds of secrets.
_KNOWN_FORMS = r"""(?xi)
      \bhf_[A-Za-z0-9]{16,}                           # Hugging Face
    | \bgh[pousr]_[A-Za-z0-9]{16,} | \bgithub_pat_\w{16,} | \bglpat-[\w-]{16,}
    | \b(?:sk|pk|rk)-[A-Za-z0-9_-]{20,}               # OpenAI and others
    | \b(?:sk|rk)_live_[A-Za-z0-9]{10,}
    | \bxox[abeoprs]-[A-Za-z0-9-]{10,}                # Slack
    | hooks\.slack\.com/services/\w
    | \b(?:AKIA|ASIA)[0-9A-Z]{16}\b                   # access keys of AWS
    | \bAIza[0-9A-Za-z_-]{30,}                        # Google
    | \b(?:npm_|pypi-|dckr_pat_|dop_v1_|hvs\.)[\w-]{20,}
    | \beyJ[\w-]{8,}\.[\w-]{4,}\.[\w-]*               # JSON Web Token
    | -----BEGIN\ [A-Z ]*PRIVATE\ KEY
    | \b[a-z][a-z0-9+.-]*://[^\s/:@]*:[^\s/@$][^\s/@]*@  # a URL with a password
    | [?&](?:sig|signature|token|access_token|x-amz-signature|api_?key)=[^\s&$]{8,}
    | \b(?:bearer|basic)\s+[A-Za-z0-9+/._~-]{12,}
"""
#: `--token VALUE`, `TOKEN=VALUE`, `"password": "VALUE"`: the name and its value. Every word is tried as a
#: name, since in `export TOKEN=VALUE` the assignment also looks like the value of `export`.
_ASSIGNMENT = r"""(?x)(?<![\w.-])(?=
      (?P<dashes>--?)? (?P<name>[A-Za-z][A-Za-z0-9_.-]*) ["']? (?P<sign>\s*[=:]\s*|\s+) ["']?
      (?P<value>[^\s"',;&|]+)
    )"""
_UUID = r"(?i)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_WORDS = r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+"
#: Minimum lengths of random text and of hex digits, and the mean length of words in text that is not random.
_LONG_RANDOM, _LONG_HEX, _SHORT_WORD = 20, 32, 3.5


def looks_secret(name: str, value: str) -> bool:
    """Whether a value looks like a secret, by its name ("" if it has none) or by itself."""
    if value.strip().lower() in _EMPTY_WORDS:
        return False
    if is_secret_name(name) or re.search(_KNOWN_FORMS, value):
        return True
    if any(map(_assigns_secret, re.finditer(_ASSIGNMENT, value))):
        return True
    return not is_identity_name(name) and any(map(_holds_random_piece, value.split()))


def is_identity_name(name: str) -> bool:
    """Whether values of that name identify something, and so may be long and random."""
    return any(word in _IDENTITY_WORDS for word in _words(name))


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Whether a parameter or an environment variable of that name seems to hold a secret."""
    words = _words(name)
    for before, word, after in zip(["", *words], words, [*words[1:], ""], strict=False):
        if word in _SECRET_WORDS or word.endswith(_SECRET_ENDINGS) or (before, word) in _SECRET_PAIRS:
            return True
        harmless = _HARMLESS_NEIGHBOURS.get(word)
        if harmless is not None and before not in harmless and after not in harmless:
            return True
    return False


def _words(name: str) -> list[str]:
    return [word.lower() for word in re.findall(_WORDS, name) if not word.isdigit()]


def _assigns_secret(match: re.Match[str]) -> bool:
    # After a space, only an option has a value; `$NAME` refers to a value elsewhere.
    is_assigned = bool(match["sign"].strip()) or match["dashes"] is not None
    value = match["value"]
    is_value = value.lower() not in _EMPTY_WORDS and not value.startswith(("$", "-", "/", "obs:"))
    return is_assigned and is_value and is_secret_name(match["name"])


def _holds_random_piece(word: str) -> bool:
    """Whether part of a word seems random, and is not a path, a labelled digest or a UUID."""
    word = word.strip("\"'`,;()[]{}<>")
    if word.startswith(("/", "./", "../", "~")) or "sha256:" in word or "://" in word:
        return False
    return any(map(_is_random, re.split(r"[^A-Za-z0-9_+/=-]+", re.sub(_UUID, "", word))))


def _is_random(piece: str) -> bool:
    """Whether a long piece has letters and digits that form only short words."""
    runs = [run for run in re.split(r"[_+/=-]+", piece) if run]
    text = max(runs, key=len, default="")
    # A key may contain a few separators; many of them separate words.
    if len(text) < _LONG_RANDOM and len(runs) - 1 <= sum(map(len, runs)) / 10:
        text = "".join(runs)
    if len(text) < _LONG_RANDOM or text.isdigit():
        return False
    if re.fullmatch(r"[0-9a-f]+|[0-9A-F]+", text):
        return len(text) >= _LONG_HEX
    return len(text) < _SHORT_WORD * len(re.findall(_WORDS, text))


# ── our own credentials ────────────────────────────────────────────────────────────────────────
#
# The backends read these environment variables; a manifest must not use them, since that would pass them to
# the code that the job runs. Names of mere addresses and ids (`OS_AUTH_URL`, `OS_USERNAME`,
# `OS_PROJECT_ID`…) are not credentials.


class AccessKeyNames(NamedTuple):
    """The variables of an access key: its two halves, and the token that makes a temporary one valid."""

    access_key: str
    secret_key: str
    security_token: str | None


#: In order of precedence.
ACCESS_KEYS = (
    AccessKeyNames("HUAWEICLOUD_SDK_AK", "HUAWEICLOUD_SDK_SK", "HUAWEICLOUD_SDK_SECURITY_TOKEN"),
    AccessKeyNames("HW_ACCESS_KEY", "HW_SECRET_KEY", "HW_SECURITY_TOKEN"),
    AccessKeyNames("OS_ACCESS_KEY", "OS_SECRET_KEY", None),
)
#: In order of precedence.
TOKENS = ("MODELARTS_AUTH_TOKEN", "OS_AUTH_TOKEN", "OS_TOKEN")
PASSWORD = "OS_PASSWORD"  # noqa: S105  (its name, not its value)
#: Our own options that may hold a secret: a URL with a password, values of variables, and the credentials
#: that the emulator requires.
OPTIONS = (
    "RECONCILER_RECORDS",
    "RECONCILER_VAR",
    "RECONCILER_TOKEN",
    "RECONCILER_ACCESS_KEY",
    "RECONCILER_SECRET_KEY",
)

#: Credentials that a service issues, unlike a password, which a person chooses.
ISSUED = frozenset((*(name for names in ACCESS_KEYS for name in names if name), *TOKENS))
_SERVICE_CREDENTIALS = (*ISSUED, PASSWORD)
#: Every environment variable that holds one of our credentials, or half of one.
CREDENTIAL_NAMES = frozenset((*_SERVICE_CREDENTIALS, *OPTIONS))
_PROXIES = frozenset(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"))


def is_credential_name(name: str) -> bool:
    """Whether that environment variable holds one of our credentials; case does not matter."""
    return name.upper() in CREDENTIAL_NAMES


def holds_credential(name: str, value: str) -> bool:
    """Whether a variable holds one of our credentials, such as a proxy URL with a password."""
    if is_credential_name(name):
        return True
    if name.upper() not in _PROXIES:
        return False
    address = value if "://" in value else f"//{value}"
    try:
        return urlsplit(address).password is not None
    except ValueError:
        return "@" in value


def service_credentials(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the service credentials in the environment, used or not."""
    values = ((name, environ.get(name, "").strip()) for name in _SERVICE_CREDENTIALS)
    yield from (value for name, value in values if value and not (name in ISSUED and is_short_word(value)))


# ── secrets in URLs ────────────────────────────────────────────────────────────────────────────
#
# Split by hand, since an invalid URL may contain a password, too.

#: Options of database drivers that hold a password.
PASSWORD_OPTIONS = frozenset(("password", "sslpassword"))
#: Shorter parts of a secret URL are not secret themselves: they are words such as `notify`.
_SHORTEST_URL_PART = 12


def user_info_secrets(url: str) -> Iterator[str]:
    """Yield the user info of a URL; for a proxy, the user name alone may be a token."""
    for user_info in _user_infos(url):
        password = user_info.partition(":")[2]
        yield from filter(None, (password, unquote(password), user_info, unquote(user_info)))


def password_secrets(url: str) -> Iterator[str]:
    """Yield the passwords in the user info and the options of a URL, but not the user name."""
    address, _, query = url.partition("?")
    options = (option.partition("=") for option in query.split("&"))
    passwords = [user_info.partition(":")[2] for user_info in _user_infos(address)]
    passwords += (value for name, _, value in options if unquote(name).lower() in PASSWORD_OPTIONS)
    for password in filter(None, passwords):
        yield from (password, unquote(password))


def whole_url_secrets(url: str) -> Iterator[str]:
    """Yield a URL that is a secret as a whole, and the forms in which libraries may quote it.

    These are the URL without its scheme, and the long parts between its separators.
    """
    rest = url.partition("://")[2]
    yield from (url, rest)
    for part in re.split(r"[/?&=@:;,#\s]", rest):
        if len(part) >= _SHORTEST_URL_PART:
            yield from (part, unquote(part))


def _user_infos(url: str) -> Iterator[str]:
    rest = url.partition("://")[2] or url
    # A password may contain characters that otherwise end the host.
    for upto in (rest, rest.partition("/")[0]):
        user_info, at, _ = upto.rpartition("@")
        if at:
            yield user_info
