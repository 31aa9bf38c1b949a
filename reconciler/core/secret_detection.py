"""Does a value look like a secret, by its name or by itself: for values of which nobody knows it.

A value that was declared once and is declared no more may have been sensitive then, and no manifest says
so any more. It is shown unless a name or a look says that it is one: hiding everything would hide what
people have to read. Source: docs/semantics.md, "Secrets".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple


def _words_of(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Words of a name each of which makes its value a secret. A name is split at `_`, `-`, `.` and camel case,
#: and whole words count: `monkey`, `keyboard`, `tokenizer` and `max_tokens` are none.
_SECRET_WORDS = _words_of(
    """
    secret secrets password passwords passwd passphrase passcode pwd credential credentials apikey
    apikeys accesskey secretkey privatekey sshkey apitoken authtoken accesstoken hftoken ghtoken
    authorization bearer jwt oauth cookie cookies htpasswd kubeconfig ak sk
    """
)
#: A word that ends like this is one, whatever stands before: `dbpassword`.
_SECRET_ENDINGS = ("password", "passwd", "secret", "credential", "credentials")
#: Words that mean a secret unless one of these stands beside them: `api_key`, and `key_frames`.
_HARMLESS_NEIGHBOURS = {
    "key": _words_of(
        """
    frame frames point points pair pairs name names dim dims size length len type types value values
    head heads column columns col field fields map mapping mask masks path paths order by prefix
    suffix word words phrase phrases cache layer layers bits rate padding primary foreign public
    sort group partition label image text feature input output data dict index lookup config
    state hot
    """
    ),
    "token": _words_of(
        """
    type types count counts limit limits length len size dim dims level embedding embeddings dropout
    id ids index budget rate per merging pruning mixing mixer shift labeling classification ratio
    max min num n number pad padding eos bos unk unknown mask cls sep special next start end
    stop image text video audio speech prefix suffix separator vocab total prompt output input first
    last batch extra added register
    """
    ),
    "auth": _words_of("type types method methods mode url uri host port server provider enabled enable"),
    "pass": _words_of(
        """
    forward backward first second third last single one two multi num n number max min low high band
    all per train training eval validation warmup through rate
    """
    ),
}
#: Two words that mean a secret only together, for the plural means many things.
_SECRET_PAIRS = frozenset(
    (first, second)
    for first in ("api", "access", "auth", "secret", "private", "refresh", "ssh", "encryption")
    for second in ("keys", "tokens")
)
#: Names whose values are long and random, and no secrets: what a thing is, or which one it is.
_IDENTITY_WORDS = _words_of(
    """
    commit sha md hash digest checksum crc revision rev version uuid guid id ids image tag etag path
    dir directory checkpoint ckpt fingerprint
    """
)
#: What says nothing, so that it can be no secret.
_EMPTY_WORDS = frozenset(("", "true", "false", "yes", "no", "on", "off", "none", "null"))

#: Forms by which secrets are known, wherever they stand in a text.
_KNOWN_FORMS = re.compile(
    r"""
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
    """,
    re.VERBOSE | re.IGNORECASE,
)
#: `--token VALUE`, `TOKEN=VALUE`, `"password": "VALUE"`: the name, and the value behind it. Every word
#: is tried as a name, for in `export TOKEN=VALUE` the assignment is also what stands behind a name.
_ASSIGNMENT = re.compile(
    r"""(?<![\w.-])(?=(?P<dashes>--?)?(?P<name>[A-Za-z][A-Za-z0-9_.-]*)["']?(?P<sign>\s*[=:]\s*|\s+)["']?(?P<value>[^\s"',;&|]+))"""
)
#: Such a value up to the end of its word; of a header, with the word behind `Bearer`.
_UNQUOTED_VALUE = re.compile(r"(?:(?:bearer|basic)\s+)?\S*[^\s\"']", re.IGNORECASE)
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_PIECES = re.compile(r"[^A-Za-z0-9_+/=-]+")
_PATH = re.compile(r"(?:[a-z][a-z0-9+.-]*://|/|\./|\.\./|~)")
#: How long what is random has to be, and how long hex digits.
_LONG, _LONG_HEX = 20, 32
_HEX = re.compile(r"[0-9a-f]+|[0-9A-F]+")
#: Two letters that often follow one another in words; in a random text every fourth pair is one of them.
_USUAL_PAIRS = _words_of(
    """
    th he in er an re on at en nd ti es or te of ed is it al ar st to nt ng se ha as ou io le ve co
    me de hi ri ro ic ne ea ra ce li ch ll be ma si om ur ca el ta la ns di fo ho pe ec pr no ct us
    ac ot il tr ly nc et ut ss so rs un lo wa ge ie ee wi em ad ol rt po we na ul ni ts mo ow pa im
    mi ai sh ir su id os iv ia am fi ci vi pl ig tu ev ld mp fe bl ab op ex ke fr oo av ag if ap gr
    od bo sp rd do uc bu rm ep tt fa sc gi da cr cl du qu ff ba um up lu ru pi rc au ck br pt ip ub
    ft xp sm fl iz
    """
)
#: The least share of such pairs in words; and beside digits or capitals, which random texts have.
_USUAL_IN_WORDS, _USUAL_BESIDE_DIGITS = 0.4, 0.5
#: Where fewer neighbours than this share change their kind, there are no digits and capitals to speak of.
_FEW_CHANGES = 0.12


def looks_secret(name: str, value: str) -> bool:
    """Whether a value looks like a secret, by the name it goes by ("": none) or by itself."""
    if value.strip().lower() in _EMPTY_WORDS:
        return False
    return is_secret_name(name) or _is_secret_text(value, is_identity=_names_an_identity(name))


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Whether a parameter or an environment variable of that name holds a secret, as far as names go."""
    words = _words(name)
    neighbours = list(zip(["", *words], words, [*words[1:], ""], strict=False))
    return any(_is_secret_word(*three) for three in neighbours)


def _is_secret_word(before: str, word: str, after: str) -> bool:
    if word in _SECRET_WORDS or word.endswith(_SECRET_ENDINGS) or (before, word) in _SECRET_PAIRS:
        return True
    harmless = _HARMLESS_NEIGHBOURS.get(word)
    return harmless is not None and before not in harmless and after not in harmless


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORDS.findall(name) if not word.isdigit()]


def _names_an_identity(name: str) -> bool:
    return any(word in _IDENTITY_WORDS for word in _words(name))


class SecretPart(NamedTuple):
    """Where in a text a secret stands, and the name that it goes by there ("": none)."""

    start: int
    end: int
    name: str = ""


def secret_parts(text: str) -> list[SecretPart]:
    """The values in a text of several words, such as a command, that look secret, in order.

    It is the whole text where what is left without them still looks secret.
    """
    parts = _disjoint(
        _assigned(text, found) for found in _ASSIGNMENT.finditer(text) if _assigns_secret(found)
    )
    words = (
        SecretPart(*word.span())
        for word in re.finditer(r"\S+", text)
        if _KNOWN_FORMS.search(word[0]) or _holds_random_piece(word[0])
    )
    others = [
        word for word in words if not any(one.start < word.end and word.start < one.end for one in parts)
    ]
    parts = sorted([*parts, *others])
    if _is_secret_text(without_parts(text, parts), is_identity=False):
        return [SecretPart(0, len(text))]
    return parts


def without_parts(text: str, parts: Iterable[SecretPart]) -> str:
    """A text with `${}` for each of its parts, which must be in order."""
    left, end = "", 0
    for part in parts:
        left += text[end : part.start] + "${}"
        end = part.end
    return left + text[end:]


def _assigned(text: str, found: re.Match[str]) -> SecretPart:
    """The value of an assignment: up to the quote that closes it, else to the end of the word."""
    start = found.start("value")
    quote = text[start - 1]
    if quote in "\"'":
        end = text.find(quote, start)
        return SecretPart(start, len(text) if end < 0 else end, found["name"])
    value = _UNQUOTED_VALUE.match(text, start)
    return SecretPart(start, value.end() if value else len(text), found["name"])


def _disjoint(parts: Iterable[SecretPart]) -> list[SecretPart]:
    """The parts in order; those that overlap are one, which goes by the first name."""
    joined: list[SecretPart] = []
    for part in sorted(parts, key=lambda one: (one.start, -one.end)):
        if joined and part.start < joined[-1].end:
            last = joined.pop()
            part = SecretPart(last.start, max(last.end, part.end), last.name or part.name)
        joined.append(part)
    return joined


def _is_secret_text(text: str, *, is_identity: bool) -> bool:
    if _KNOWN_FORMS.search(text):
        return True
    if any(_assigns_secret(found) for found in _ASSIGNMENT.finditer(text)):
        return True
    return not is_identity and any(map(_holds_random_piece, text.split()))


def _holds_random_piece(word: str) -> bool:
    return any(map(_is_random, _pieces(word)))


def _assigns_secret(found: re.Match[str]) -> bool:
    # Behind a space only an option has its value; `$NAME` names a value that stands elsewhere.
    is_assigned = bool(found["sign"].strip()) or found["dashes"] is not None
    value = found["value"]
    is_value = value.lower() not in _EMPTY_WORDS and not value.startswith(("$", "-", "/", "obs:"))
    return is_assigned and is_value and is_secret_name(found["name"])


def _pieces(word: str) -> list[str]:
    """What of a word could be random: no path, no digest that says so, no UUID."""
    word = word.strip("\"'`,;()[]{}<>")
    if _PATH.match(word) or "sha256:" in word or "://" in word:
        return []
    return [piece for piece in _PIECES.split(_UUID.sub("", word)) if len(piece) >= _LONG]


def _is_random(piece: str) -> bool:
    runs = [run for run in re.split(r"[_+/=-]+", piece) if run]
    joined = "".join(runs)
    longest = max(runs, key=len, default="")
    # A key may hold a few of the signs that also join words; where there are many, there are words.
    text = longest if len(longest) >= _LONG else joined if len(runs) - 1 <= len(joined) / 10 else ""
    if len(text) < _LONG or text.isdigit():
        return False
    if _HEX.fullmatch(text):
        return len(text) >= _LONG_HEX
    return not _reads_as_words(text)


def _reads_as_words(text: str) -> bool:
    """Whether the letters follow one another as in words, or too little tells."""
    neighbours = list(pairwise(text))
    changes = sum(_changes_kind(one, other) for one, other in neighbours) / len(neighbours)
    pairs = [(one + other).lower() for one, other in neighbours if one.isalpha() and other.isalpha()]
    usual = sum(pair in _USUAL_PAIRS for pair in pairs) / len(pairs) if len(pairs) > 3 else 0.0
    if changes < _FEW_CHANGES:  # letters of one case only, or a date
        return len(pairs) < _LONG - 5 or usual >= _USUAL_IN_WORDS
    return usual >= _USUAL_BESIDE_DIGITS


def _changes_kind(one: str, other: str) -> bool:
    # A capital before a small letter begins a word, which is no sign of chance.
    return one.isdigit() != other.isdigit() or (one.islower() and other.isupper())
