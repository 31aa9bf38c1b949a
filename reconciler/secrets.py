"""Secrets: how a value is kept out of sight, taken out of texts, and found where nobody calls it one.

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
    """A text made with a sensitive value. It is sent as it is, and shown as `reference`.

    `reference` names where the value comes from, e.g. `Bearer ${var.hf_token}`. Where `has_value` is
    False nothing gave the value, and the text is the reference: it is compared by name, and never sent.
    """

    __slots__ = ("has_value", "reference")
    reference: str
    has_value: bool

    def __new__(cls, value: str, reference: str, has_value: bool = True) -> SecretText:
        """Wrap `value`; `reference` is what everybody may read."""
        self = super().__new__(cls, value)
        self.reference = reference
        self.has_value = has_value
        return self

    def __repr__(self) -> str:
        return f"SecretText({self.reference!r})"

    def __reduce__(self) -> tuple[type[SecretText], tuple[str, str, bool]]:
        return SecretText, (str.__str__(self), self.reference, self.has_value)


def map_leaves(tree: Any, change: Callable[[Any], Any]) -> Any:
    """Return a copy of plain data with another value for each that is neither a mapping nor a list."""
    # Whether a text is a Mapping takes longer to find out than all else; nearly all leaves are texts.
    if isinstance(tree, str):
        return change(tree)
    if isinstance(tree, (dict, Mapping)):
        return {key: map_leaves(value, change) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [map_leaves(value, change) for value in tree]
    return change(tree)


def map_beside(tree: Any, other: Any, change: Callable[[Any, Any], Any]) -> Any:
    """The same, where `change` is also given what stands in that place of `other`.

    Where that is no mapping, or no list of the same length, a mapping or a list is changed as one value.
    """
    if isinstance(tree, Mapping) and isinstance(other, Mapping):
        return {key: map_beside(value, other.get(key), change) for key, value in tree.items()}
    if isinstance(tree, list) and isinstance(other, list) and len(tree) == len(other):
        return [map_beside(value, beside, change) for value, beside in zip(tree, other, strict=True)]
    return change(tree, other)


def leaves(tree: Any) -> Iterator[Any]:
    """Yield every value in plain data that is neither a mapping nor a list."""
    if isinstance(tree, Mapping | list | tuple):
        for value in tree.values() if isinstance(tree, Mapping) else tree:
            yield from leaves(value)
    else:
        yield tree


def show(tree: Any) -> Any:
    """Return a copy of plain data in which each secret is replaced by its reference."""
    return map_leaves(tree, lambda leaf: leaf.reference if isinstance(leaf, SecretText) else leaf)


def secrets_in(tree: Any) -> Iterator[SecretText]:
    """Yield every secret in plain data, with its value or without."""
    return (leaf for leaf in leaves(tree) if isinstance(leaf, SecretText))


def holds_secret(tree: Any) -> bool:
    return next(secrets_in(tree), None) is not None


def matches_redacted(redacted: str, text: str) -> bool:
    """Whether `redacted` is redacted, and may have been made of `text`."""
    pieces = redacted.split(REDACTED)
    return len(pieces) > 1 and re.fullmatch(".+".join(map(re.escape, pieces)), text, re.DOTALL) is not None


# ── redaction by value ─────────────────────────────────────────────────────────────────────────

#: Shorter values are not looked for: they stand in half of all words.
SHORTEST_SCANNED = 4
#: A shorter one of ASCII letters or of digits only is looked for as a whole word.
_LONG_WORD = 8
#: A secret stands out if it is so long, or not shorter than the second and of several kinds of characters.
_LONG, _SHORT = 16, 6
#: A line of a secret, and what is left of one that was cut, is known by so many characters.
_SHORTEST_PART = 8
_PASSES = 3
_CUT = r"…|\.\.\."
#: A longer one is looked for with its white space as it is: a pattern takes a thousand times its memory.
_LONGEST_PATTERN = 10_000


class Form(NamedTuple):
    """One form of a secret. `is_word`: only as a whole word; `is_base64`: also within longer base64."""

    text: str
    is_word: bool = False
    is_base64: bool = False

    @property
    def key(self) -> str:
        """What is in a text wherever the form is; a terminal may break lines where it has white space."""
        return self.text if len(self.text) > _LONGEST_PATTERN else max(self.text.split() or [""], key=len)


class Redactor:
    """Takes every known secret out of a text, in each of its forms: see `forms_of`.

    Threads may share one. What was learnt before a text is begun is not in it afterwards.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._forms_by_secret: dict[str, tuple[Form, ...]] = {}
        self._known: tuple[int, tuple[tuple[str, Form], ...]] = (0, ())
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Add values that must not be seen from now on."""
        for secret in map(str, secrets):
            if len(secret) >= SHORTEST_SCANNED and not secret.isspace():
                self._forms_by_secret.setdefault(secret, ())

    def __call__(self, text: str) -> str:
        """Return the text without secrets; the very same if it holds none."""
        forms = self._forms()
        # Where one was taken out beside it, another one may be a word of its own.
        for _ in range(_PASSES):
            shown = _redact(forms, text)
            if shown == text:
                break
            text = shown
        return text

    def held_back(self, text: str) -> int:
        """Return how many characters at the end of a text may be the first lines of a secret that goes on."""
        plain = text.replace("\r\n", "\n")
        found = 0
        for secret in list(self._forms_by_secret):
            lines = secret.strip().replace("\r\n", "\n").splitlines(keepends=True)
            begins = ("".join(lines[:count]) for count in range(1, len(lines)))
            found = max([found, *(len(begin) for begin in begins if plain.endswith(begin))])
        return found + text[-found:].count("\r") if found else 0

    def _forms(self) -> tuple[tuple[str, Form], ...]:
        """The forms of all that was learnt, with their keys. Two threads may make them both."""
        count, forms = self._known
        if count != len(self._forms_by_secret):
            secrets = list(self._forms_by_secret)
            for secret in secrets:
                self._forms_by_secret[secret] = self._forms_by_secret[secret] or tuple(forms_of(secret))
            made = dict.fromkeys(form for one in secrets for form in self._forms_by_secret[one])
            forms = tuple((form.key, form) for form in made)
            self._known = (len(secrets), forms)
        return forms


def forms_of(secret: str) -> Iterator[Form]:
    """Yield the forms in which a secret may stand in an output.

    It stands there as it is, as URLs, JSON, Python and YAML spell it, or in base64, also of a longer text. Of
    a secret with several lines, such as a key, each line is one. A short secret that consists of letters or
    of digits only is looked for as a whole word, since `train` is a part of other words.
    """
    for text in dict.fromkeys(_texts(secret)):
        yield Form(text, is_word=is_short_word(text))
        urls = [quoted(text, errors="replace") for quoted in (quote, quote_plus)]
        urls.append(quote(text, safe="", errors="replace"))
        urls += [re.sub("%..", lambda found: found[0].lower(), url) for url in urls]
        in_json = [json.dumps(text, ensure_ascii=is_ascii)[1:-1] for is_ascii in (True, False)]
        in_json += [one.replace("/", "\\/") for one in in_json]
        written = [*urls, *in_json, repr(text)[1:-1], text.replace("'", "''")]
        # An answer in JSON may hold JSON, and a traceback is itself a text in a document.
        within_json = [json.dumps(one, ensure_ascii=False)[1:-1] for one in written]
        written += [*within_json, *(repr(one)[1:-1] for one in written)]
        yield from (Form(one) for one in dict.fromkeys(written) if one != text)
    for text in (secret, secret.strip()):
        raw = text.encode("utf-8", "surrogatepass")
        for shift, first in enumerate((0, 2, 3)):
            # These letters depend on the secret alone, wherever in a longer text it begins; those beside
            # them hold the rest of its first and last byte.
            core = base64.b64encode(bytes(shift) + raw)[first : (shift + len(raw)) * 8 // 6].decode()
            for one in (core, core.translate(str.maketrans("+/", "-_"))):
                yield Form(one, is_base64=True)


def _texts(secret: str) -> Iterator[str]:
    """The secret, and what of it is one by itself: without space around it, line by line."""
    yield secret
    if len(secret.strip()) >= SHORTEST_SCANNED:
        yield secret.strip()
    # In an environment variable the lines of a key often are parted by a backslash and an n.
    lines = [line.strip() for line in secret.replace("\\n", "\n").splitlines()]
    for line in lines if len(lines) > 1 else ():
        # That a key begins or ends hides nothing.
        if len(line) >= _SHORTEST_PART and not re.fullmatch(r"-----(BEGIN|END) [A-Z0-9 ]+-----", line):
            yield line


def is_short_word(text: str) -> bool:
    """Whether a text could be a word or a number: no service issues a token or a key like that."""
    return len(text) < _LONG_WORD and text.isascii() and (text.isalpha() or text.isdigit())


def stands_out(value: str) -> bool:
    """Whether a secret can be told from other texts, and be looked for wherever it stands.

    A password such as `test` is hidden where it stands as one: jobs and buckets may have that in their names.
    """
    kinds = [any(map(is_one, value)) for is_one in (str.islower, str.isupper, str.isdigit)]
    others = any(not char.isalnum() for char in value)
    return len(value) >= _LONG or (len(value) >= _SHORT and sum((*kinds, others)) > 1)


def _redact(forms: Iterable[tuple[str, Form]], text: str) -> str:
    spans = [span for key, form in forms if key in text for span in _spans(form, text)]
    if "…" in text or "..." in text:
        plain = (form for _, form in forms if not (form.is_word or form.is_base64))
        spans += (span for form in plain for span in _cut_spans(form.text, text))
    if not spans:
        return text
    # What stands for a secret is none, though one may be a part of it.
    shown = [found.start() for found in re.finditer(re.escape(REDACTED), text)]
    pieces: list[str] = []
    end = 0
    joined: list[tuple[int, int]] = []
    for start, stop in sorted(spans):
        if joined and start < joined[-1][1]:
            start, stop = joined[-1][0], max(stop, joined.pop()[1])
        joined.append((start, stop))
    for start, stop in joined:
        before = bisect_right(shown, start) - 1
        if before < 0 or stop > shown[before] + len(REDACTED):
            pieces += (text[end:start], REDACTED)
            end = stop
    return "".join((*pieces, text[end:]))


def _spans(form: Form, text: str) -> Iterator[tuple[int, int]]:
    pattern = re.escape(form.text)
    if len(form.text) <= _LONGEST_PATTERN and form.text == form.text.strip():
        pattern = r"\s+".join(map(re.escape, re.split(r"\s+", form.text)))
    if form.is_word:
        kind = "[0-9]" if form.text.isdigit() else "[A-Za-z]"
        # Behind an escape, the last letter of which is no part of the word, one begins as well.
        escapes = (r"\\[nrtbf]", r"\\u[0-9A-Fa-f]{4}", r"\\x[0-9A-Fa-f]{2}", "%[0-9A-Fa-f]{2}")
        before = "|".join((f"(?<!{kind})", *(f"(?<={escape})" for escape in escapes)))
        pattern = f"(?:{before}){pattern}(?!{kind})"
    for found in re.finditer(pattern, text):
        start, end = found.span()
        if form.is_base64:
            start -= bool(re.match("[A-Za-z0-9+/_-]", text[start - 1 : start]))
            rest = re.match("[A-Za-z0-9+/_-]?={0,2}", text[end : end + 3])
            end += rest.end() if rest else 0
        yield start, end


def _cut_spans(secret: str, text: str) -> Iterator[tuple[int, int]]:
    """Yield where the beginning of a secret stands before a mark of cutting, or its end behind one."""
    first, last = secret[:_SHORTEST_PART], secret[-_SHORTEST_PART:]
    if len(secret) <= _SHORTEST_PART or not (first in text or last in text):
        return
    for mark in re.finditer(_CUT, text):
        left = text[max(0, mark.start() - len(secret)) : mark.start()]
        at = left.find(first)
        while at >= 0 and not secret.startswith(left[at:]):
            at = left.find(first, at + 1)
        if at >= 0:
            yield mark.start() - len(left) + at, mark.start()
        right = text[mark.end() : mark.end() + len(secret)]
        at = right.rfind(last)
        while at >= 0 and not secret.endswith(right[: at + len(last)]):
            at = right.rfind(last, 0, at + len(last) - 1)
        if at >= 0:
            yield mark.end(), mark.end() + at + len(last)


_T = TypeVar("_T")


def without_secrets(value: _T, redact: Callable[[str], str]) -> _T:
    """Return a copy in which each secret is shown by its name, or redacted; the same where there is none.

    It is for plans, findings and results that a program gets. Numbers, times and words of ours (enums) stay
    what they are, so that a value keeps its type.
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
    # Models of pydantic are known by their fields: the library is not imported for them.
    is_model, is_tuple = hasattr(type(value), "model_fields"), hasattr(value, "_fields")
    if isinstance(value, type) or not (is_model or is_tuple or is_dataclass(value)):
        return value
    if is_model:
        names = (*type(value).model_fields, *(value.model_extra or ()))
    else:
        names = value._fields if is_tuple else tuple(one.name for one in fields(value))
    members = {name: getattr(value, name) for name in names}
    cleaned = {name: _clean(member, redact) for name, member in members.items()}
    # A secret is equal to text that has its letters, and is not that text.
    changed = {n: v for n, v in cleaned.items() if v is not members[n] and repr(v) != repr(members[n])}
    if not changed:
        return value
    if is_model:
        return value.model_copy(update=changed)
    return value._replace(**changed) if is_tuple else replace(value, **changed)


# ── what looks like a secret ───────────────────────────────────────────────────────────────────
#
# A value that was declared once and is declared no more may have been sensitive then, and no manifest says
# so any more. It is shown unless a name or a look says that it is one: hiding everything would hide what
# people have to read.


def _set_of(words: str) -> frozenset[str]:
    return frozenset(words.split())


#: Words of a name each of which makes its value a secret. A name is split at `_`, `-`, `.` and camel case,
#: and whole words count: `monkey`, `keyboard`, `tokenizer` and `max_tokens` are none.
_SECRET_WORDS = _set_of("""
    secret secrets password passwords passwd passphrase passcode pwd credential credentials apikey
    apikeys accesskey secretkey privatekey sshkey apitoken authtoken accesstoken hftoken ghtoken
    authorization bearer jwt oauth cookie cookies htpasswd kubeconfig ak sk
""")
#: A word that ends like this is one, whatever stands before: `dbpassword`.
_SECRET_ENDINGS = ("password", "passwd", "secret", "credential", "credentials")
#: Words that mean a secret unless one of these stands beside them: `api_key`, and `key_frames`.
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
#: Two words that mean a secret only together, for the plural means many things.
_SECRET_PAIRS = frozenset(
    (first, second)
    for first in ("api", "access", "auth", "secret", "private", "refresh", "ssh", "encryption")
    for second in ("keys", "tokens")
)
#: Names whose values are long and random, and no secrets: what a thing is, or which one it is.
_IDENTITY_WORDS = _set_of("""
    commit sha md hash digest checksum crc revision rev version uuid guid id ids image tag etag path dir
    directory checkpoint ckpt fingerprint
""")
#: What says nothing, so that it can be no secret.
_EMPTY_WORDS = frozenset(("", "true", "false", "yes", "no", "on", "off", "none", "null"))
#: Forms by which secrets are known, wherever they stand in a text.
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
#: `--token VALUE`, `TOKEN=VALUE`, `"password": "VALUE"`: the name, and the value behind it. Every word
#: is tried as a name, for in `export TOKEN=VALUE` the assignment is also what stands behind a name.
_ASSIGNMENT = r"""(?x)(?<![\w.-])(?=
      (?P<dashes>--?)? (?P<name>[A-Za-z][A-Za-z0-9_.-]*) ["']? (?P<sign>\s*[=:]\s*|\s+) ["']?
      (?P<value>[^\s"',;&|]+)
    )"""
_UUID = r"(?i)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_WORDS = r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+"
#: How long what is random has to be, and how long hex digits; and how long words are in the mean at least.
_LONG_RANDOM, _LONG_HEX, _SHORT_WORD = 20, 32, 3.5


def looks_secret(name: str, value: str) -> bool:
    """Whether a value looks like a secret, by the name it goes by ("": none) or by itself."""
    if value.strip().lower() in _EMPTY_WORDS:
        return False
    return is_secret_name(name) or _is_secret_text(value, is_identity=is_identity_name(name))


def is_identity_name(name: str) -> bool:
    """Whether the value of that name says what a thing is, or which one: it may be long and random."""
    return any(word in _IDENTITY_WORDS for word in _words(name))


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Whether a parameter or an environment variable of that name holds a secret, as far as names go."""
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


def _is_secret_text(text: str, *, is_identity: bool) -> bool:
    if re.search(_KNOWN_FORMS, text) or any(map(_assigns_secret, re.finditer(_ASSIGNMENT, text))):
        return True
    return not is_identity and any(map(_holds_random_piece, text.split()))


def _assigns_secret(found: re.Match[str]) -> bool:
    # Behind a space only an option has its value; `$NAME` names a value that stands elsewhere.
    is_assigned = bool(found["sign"].strip()) or found["dashes"] is not None
    value = found["value"]
    is_value = value.lower() not in _EMPTY_WORDS and not value.startswith(("$", "-", "/", "obs:"))
    return is_assigned and is_value and is_secret_name(found["name"])


def _holds_random_piece(word: str) -> bool:
    """Whether a part of a word seems to be random: no path, no digest that says so, no UUID."""
    word = word.strip("\"'`,;()[]{}<>")
    if re.match(r"[a-z][a-z0-9+.-]*://|/|\./|\.\./|~", word) or "sha256:" in word or "://" in word:
        return False
    return any(map(_is_random, re.split(r"[^A-Za-z0-9_+/=-]+", re.sub(_UUID, "", word))))


def _is_random(piece: str) -> bool:
    """Whether a piece is long, and its letters and digits make up no words, only short ones."""
    runs = [run for run in re.split(r"[_+/=-]+", piece) if run]
    text = max(runs, key=len, default="")
    # A key may hold a few of the signs that also join words; where there are many, there are words.
    if len(text) < _LONG_RANDOM and len(runs) - 1 <= sum(map(len, runs)) / 10:
        text = "".join(runs)
    if len(text) < _LONG_RANDOM or text.isdigit():
        return False
    if re.fullmatch(r"[0-9a-f]+|[0-9A-F]+", text):
        return len(text) >= _LONG_HEX
    return len(text) < _SHORT_WORD * len(re.findall(_WORDS, text))


# ── our own credentials ────────────────────────────────────────────────────────────────────────
#
# The environment variables that hold them are read by the backends and refused in a manifest: one that put
# them into a job would hand them to whatever code the job runs. Names of what is only an address or an id
# (`OS_AUTH_URL`, `OS_USERNAME`, `OS_PROJECT_ID`…) are no credentials.


class AccessKeyNames(NamedTuple):
    """Where an access key stands: its two halves, and the token that makes a temporary one valid."""

    access_key: str
    secret_key: str
    security_token: str | None


#: In the order in which they are looked for.
ACCESS_KEYS = (
    AccessKeyNames("HUAWEICLOUD_SDK_AK", "HUAWEICLOUD_SDK_SK", "HUAWEICLOUD_SDK_SECURITY_TOKEN"),
    AccessKeyNames("HW_ACCESS_KEY", "HW_SECRET_KEY", "HW_SECURITY_TOKEN"),
    AccessKeyNames("OS_ACCESS_KEY", "OS_SECRET_KEY", None),
)
#: In the order in which they are looked for.
TOKENS = ("MODELARTS_AUTH_TOKEN", "OS_AUTH_TOKEN", "OS_TOKEN")
PASSWORD = "OS_PASSWORD"  # noqa: S105  (its name, not its value)
#: Options of ours that may hold a secret: an address with a password, the values of variables, and what
#: the emulator asks its clients for.
OPTIONS = (
    "RECONCILER_RECORDS",
    "RECONCILER_VAR",
    "RECONCILER_TOKEN",
    "RECONCILER_ACCESS_KEY",
    "RECONCILER_SECRET_KEY",
)

#: What a service issues; a password is what somebody thought of.
ISSUED = frozenset((*(name for names in ACCESS_KEYS for name in names if name), *TOKENS))
_OF_THE_SERVICE = (*ISSUED, PASSWORD)
#: Every environment variable that holds a credential of ours, or half of one.
CREDENTIAL_NAMES = frozenset((*_OF_THE_SERVICE, *OPTIONS))
_PROXIES = frozenset(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"))


def is_credential_name(name: str) -> bool:
    """Whether an environment variable of that name holds a credential of ours; case does not matter."""
    return name.upper() in CREDENTIAL_NAMES


def holds_credential(name: str, value: str) -> bool:
    """Whether a variable with that value holds a credential of ours: a proxy may ask for a password."""
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
    """Yield the credentials of the service that the environment holds, in use or not."""
    values = ((name, environ.get(name, "").strip()) for name in _OF_THE_SERVICE)
    yield from (value for name, value in values if value and not (name in ISSUED and is_short_word(value)))


# ── secrets in URLs ────────────────────────────────────────────────────────────────────────────
#
# Split by hand: a URL that cannot be parsed has a password all the same.

#: Options of a database's driver that hold one.
PASSWORD_OPTIONS = frozenset(("password", "sslpassword"))
#: A shorter part of a URL that is a secret as a whole is none, but a word such as `notify`.
_SHORTEST_URL_PART = 12


def user_info_secrets(url: str) -> Iterator[str]:
    """Yield what stands before the host: for a proxy the name alone may be a token."""
    for user_info in _user_infos(url):
        password = user_info.partition(":")[2]
        yield from filter(None, (password, unquote(password), user_info, unquote(user_info)))


def password_secrets(url: str) -> Iterator[str]:
    """Yield the passwords before the host and among the options; the name of a user is none."""
    address, _, query = url.partition("?")
    options = (option.partition("=") for option in query.split("&"))
    passwords = [user_info.partition(":")[2] for user_info in _user_infos(address)]
    passwords += (value for name, _, value in options if unquote(name).lower() in PASSWORD_OPTIONS)
    for password in filter(None, passwords):
        yield from (password, unquote(password))


def whole_url_secrets(url: str) -> Iterator[str]:
    """Yield a URL that is a secret whatever it is made of, and what others may say of it.

    That is the URL without its scheme, and the long parts between its marks.
    """
    rest = url.partition("://")[2]
    yield from (url, rest)
    for part in re.split(r"[/?&=@:;,#\s]", rest):
        if len(part) >= _SHORTEST_URL_PART:
            yield from (part, unquote(part))


def _user_infos(url: str) -> Iterator[str]:
    rest = url.partition("://")[2] or url
    # A password may hold what ends the host elsewhere.
    for upto in (rest, rest.partition("/")[0]):
        user_info, at, _ = upto.rpartition("@")
        if at:
            yield user_info
