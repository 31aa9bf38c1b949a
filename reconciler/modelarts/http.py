"""HTTP requests to one endpoint, with responses as `ServiceResponse` and failures as `ServiceError`.

Uses transport adapters of `requests`, pooled with their connections, one request at a time each. Its
`Session` is not used: it follows redirects, keeps cookies, reads proxies and `~/.netrc` for each call, and
takes a quarter of a call's CPU time. Proxies and CA bundle are read once, from the given environment.
"""

from __future__ import annotations

import json
import math
import random
import re
import ssl
import threading
from collections.abc import Callable, Mapping
from email.utils import mktime_tz, parsedate_tz
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import requests
import urllib3
from requests.adapters import BaseAdapter, HTTPAdapter
from requests.structures import CaseInsensitiveDict

from reconciler.errors import (
    Interrupted,
    Rejected,
    ServiceError,
    Throttled,
    Unanswered,
    Unauthorized,
    Unreachable,
    UnreadableAnswer,
)
from reconciler.modelarts.clock import RetryPolicy, SystemClock, retry_wait_s
from reconciler.modelarts.errors import RENEW_ON, canonical_code, failure_of, harmless, parse, read_content
from reconciler.secrets import Redactor, is_short_word, user_info_secrets
from reconciler.text import format_duration

if TYPE_CHECKING:
    from reconciler.core.ports import Clock, RequestListener, Secrets


# --- requests and responses as plain data

JSON = "application/json;charset=UTF-8"


class Request(NamedTuple):
    """`path` is percent-encoded and absolute; `query` is sorted; `body` is bytes or None."""

    method: str
    host: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = MappingProxyType({})
    body: bytes | None = None

    @property
    def path_and_query(self) -> str:
        """The target of the request line, encoded exactly as it was signed."""
        query = "&".join(f"{quote(k, safe='~')}={quote(v, safe='~')}" for k, v in self.query)
        return f"{self.path}?{query}" if query else self.path


def query_of(parameters: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return query parameters as sorted text, without those that are None.

    Raises:
        Rejected: one is not valid Unicode.
    """
    given = sorted((key, value) for key, value in parameters.items() if value is not None)
    query = [(key, str(value).lower() if isinstance(value, bool) else str(value)) for key, value in given]
    _encoded("".join(value for _, value in query))
    return tuple(query)


def json_bytes(body: Any) -> bytes:
    """Serialize a request body.

    Raises:
        Rejected: a text in it is not valid Unicode.
    """
    return _encoded(json.dumps(body, ensure_ascii=False, separators=(",", ":")))


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        half = f"U+{ord(text[error.start]):04X}"
    # Outside of `except`: the original error holds the whole text.
    raise Rejected(
        f"the request is not valid Unicode: it contains {half}, an unpaired surrogate; nothing was sent",
        fix=f"remove {half} from the manifest, or from the source it was read from",
    )


class ServiceResponse(NamedTuple):
    """A successful response. `requests` is the number of attempts, `seconds` the duration of the last one."""

    status: int
    content: bytes
    headers: Mapping[str, str]
    requests: int = 1
    seconds: float = 0.0
    redact: Callable[[str], str] = str

    def json(self) -> Any:
        """Parse the body.

        Raises:
            UnreadableAnswer: it is not JSON.
        """
        try:
            return parse(self.content)
        except ValueError as problem:
            raise self.unreadable(str(problem)) from None

    def unreadable(self, why: str) -> UnreadableAnswer:
        request_id = harmless(self.headers.get("X-Request-Id", ""), 128, self.redact)
        return UnreadableAnswer(why, status=self.status, request_id=request_id)


class Credentials:
    """The base class of credentials, which authenticates nobody.

    `what` is their kind, `source` where they were found, e.g. `MODELARTS_AUTH_TOKEN`, and `project_id` the
    project that they belong to, if they say so.
    """

    what = "no credentials"

    def __init__(
        self, source: str = "not needed", secrets: Secrets = (), project_id: str | None = None
    ) -> None:
        self.source, self._project_id = source, project_id
        self._secrets = [secret for secret in secrets if not is_short_word(secret)]

    def headers(self, request: Request, now_s: float) -> Mapping[str, str]:
        """Return the authentication headers of a request."""
        return {}

    def renew(self, refused: Mapping[str, str]) -> bool:
        """Renew expired credentials. Returns False if that is not possible.

        `refused` are the rejected headers: another thread may have renewed the credentials since.
        """
        return False

    def project_id(self) -> str | None:
        return self._project_id

    def secrets(self) -> Secrets:
        """Return the secret values."""
        return self._secrets


class NoCredentials(Unauthorized):
    """There are no usable credentials."""

    what = "no credentials"


def sendable(secret: str, source: str) -> str:
    """Strip a secret and check that it is valid in a header.

    Raises:
        NoCredentials: it is not. (The HTTP library would quote it in its own error.)
    """
    trimmed = secret.strip()
    if not (trimmed.isascii() and trimmed.isprintable()):
        raise NoCredentials(
            f"{source} contains characters that are not allowed in an HTTP header",
            fix=f"set {source} to a valid value",
        )
    return trimmed


# --- sessions

#: Maximum clock skew. Source: docs/reference/modelarts.md, "Signatures".
MAX_SKEW_S = 900.0
#: A longer Retry-After is ignored.
_LONGEST_RETRY_AFTER_S = 3600.0


class Network(NamedTuple):
    """Network settings: proxies by scheme, CA bundle (None: the built-in one), timeouts."""

    proxies: Mapping[str, str] = MappingProxyType({})
    ca_bundle: str | None = None
    connect_timeout_s: float = 10.0
    read_timeout_s: float = 60.0


class SessionOptions(NamedTuple):
    """Options of a session, and its listeners.

    `make_adapter` makes a transport for one request at a time. `listener` receives each request. `redactor`
    redacts error messages, and learns the secrets of the session, including tokens fetched later. `chance`
    returns a random number from 0 to 1. Once `stop` is set, requests that change something are not sent, and
    nothing is retried.
    """

    network: Network = Network()
    make_adapter: Callable[[], BaseAdapter] | None = None
    listener: RequestListener | None = None
    clock: Clock | None = None
    stop: threading.Event | None = None
    chance: Callable[[], float] = random.random
    redactor: Redactor | None = None


DEFAULT_OPTIONS = SessionOptions()


class ServiceSession:
    """Sends requests to one endpoint, `scheme://host[:port][/prefix]`. Thread-safe."""

    def __init__(
        self, endpoint: str, credentials: Credentials, options: SessionOptions = DEFAULT_OPTIONS
    ) -> None:
        self.endpoint = endpoint.rstrip("/")
        self.credentials = credentials
        scheme, _, rest = self.endpoint.partition("://")
        self.host, slash, prefix = rest.partition("/")
        self._prefix = slash + prefix
        self._origin = f"{scheme}://{self.host}"
        self._options, self._network = options, options.network
        self._clock: Clock = options.clock or SystemClock(options.stop)
        self._stop = options.stop or threading.Event()
        self.redactor = options.redactor or Redactor()
        self.redactor.add_secrets(self.secrets())
        self._adapters: list[BaseAdapter] = []
        self._idle: list[BaseAdapter] = []
        self._dated: tuple[str, float] | None = None

    @property
    def skew_s(self) -> float | None:
        """How far our clock is ahead of the service's, in seconds. None if it sent no date."""
        date, now_s = self._dated or ("", 0.0)
        date_s = _moment_s(date)
        return None if date_s is None else now_s - date_s

    def close(self) -> None:
        for adapter in self._adapters:
            adapter.close()

    def __enter__(self) -> ServiceSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        repeat: RetryPolicy = RetryPolicy.NEVER,
        retry_for_s: float = math.inf,
        changes: bool = False,
    ) -> ServiceResponse:
        """Send a request and return its successful response. `path` is encoded, `body` is sent as JSON.

        `repeat` is the retry policy; there are no retries later than `retry_for_s` after the first attempt.
        `changes` marks a request that changes something, and is not sent after a stop request. After a 401 it
        is tried once more if the credentials can be renewed.

        Raises:
            ServiceError: the request failed; see `reconciler.errors`.
        """
        if unusable := _unusable_proxy(self._network.proxies):
            raise Unreachable(unusable[0], fix=unusable[1])
        content = None if body is None else json_bytes(body)
        own = {
            "Accept": "application/json",
            "Accept-Encoding": "gzip, deflate",
            "User-Agent": "reconciler",
            "X-Language": "en-us",
        }
        kind = {} if content is None else {"Content-Type": JSON}
        request = Request(
            method=method,
            host=self.host,
            path=self._prefix + path,
            query=query_of(query or {}),
            headers={**own, **kind, **(headers or {})},
            body=content,
        )
        until_s = self._clock.now() + retry_for_s
        attempt, requests_sent, has_renewed = 1, 0, False
        while True:
            requests_sent += 1
            proof = self.credentials.headers(request, self._clock.now())
            self.redactor.add_secrets(self.secrets())
            if changes and self._stop.is_set():
                raise Interrupted("it was not sent")
            try:
                answer = self._send(request, proof)
            except Unauthorized as failure:
                is_expired = failure.status == 401 or canonical_code(failure.code) in RENEW_ON
                if has_renewed or not is_expired or not self.credentials.renew(proof):
                    raise
                has_renewed = True
            except ServiceError as failure:
                pause_s = retry_wait_s(failure, attempt, repeat, self._options.chance)
                if pause_s is None or self._clock.now() + pause_s > until_s:
                    raise
                self._clock.sleep(pause_s)
                if self._stop.is_set():
                    if changes and not isinstance(failure, Throttled | Unreachable):
                        raise
                    message = f"it was not retried after: {failure.message}"
                    raise Interrupted(message) from failure.__cause__
                attempt += 1
            else:
                return answer if requests_sent == 1 else answer._replace(requests=requests_sent)

    def secrets(self) -> Secrets:
        """The secret values known so far."""
        proxies = self._network.proxies.values()
        return [*self.credentials.secrets(), *(one for url in proxies for one in user_info_secrets(url))]

    def _send(self, request: Request, proof: Mapping[str, str]) -> ServiceResponse:
        try:
            adapter = self._idle.pop()
        except IndexError:
            make_adapter = self._options.make_adapter
            adapter = make_adapter() if make_adapter else HTTPAdapter()
            self._adapters.append(adapter)
        # Not `requests.Request.prepare`, which would re-encode the signed URL.
        prepared = requests.PreparedRequest()
        prepared.method, prepared.url = request.method, self._origin + request.path_and_query
        prepared.headers = CaseInsensitiveDict({**request.headers, **proof})
        prepared.body = request.body
        if request.body is not None or request.method in {"POST", "PUT"}:
            prepared.headers["Content-Length"] = str(len(request.body or b""))
        prepared.hooks = {"response": []}
        began = self._clock.now()
        status: int | None = None
        response: requests.Response | None = None
        try:
            response = adapter.send(
                prepared,
                stream=True,
                timeout=(self._network.connect_timeout_s, self._network.read_timeout_s),
                verify=self._network.ca_bundle or True,
                proxies=dict(self._network.proxies),
            )
            content = read_content(response)
            status = response.status_code
        except (ServiceError, *_BROKEN) as error:
            if response is not None:
                # The rest of this response must not be read as the next one.
                response.close()
            if isinstance(error, ServiceError):
                raise
            # `from None`: the library's messages may quote secrets.
            raise self._unanswered(error) from None
        finally:
            self._idle.append(adapter)
            seconds = max(0.0, self._clock.now() - began)
            if self._options.listener:
                self._options.listener(request.method, request.path, status, seconds)
        headers = response.headers
        if date := headers.get("Date"):
            self._dated = date, self._clock.now()
        if 200 <= status < 300:
            return ServiceResponse(status, content, headers, seconds=seconds, redact=self.redactor)
        if 300 <= status < 400:
            # Following it could leak credentials.
            where = harmless(headers.get("Location", ""), 120, self.redactor) or "nowhere"
            why = f"a redirect to {where}; redirects are never followed"
            fix = (
                "check endpoint of the target: it must be the service itself, not a page that redirects to it"
            )
            raise UnreadableAnswer(why, status=status, fix=fix)
        # Retry-After is seconds, or a date by the service's clock.
        after, retry_after_s = headers.get("Retry-After", ""), None
        if after.strip().isdecimal():
            retry_after_s = float(after)
        elif (date_s := _moment_s(after)) is not None:
            retry_after_s = max(0.0, date_s - self._clock.now() + (self.skew_s or 0.0))
        raise failure_of(
            status,
            content,
            request_id=headers.get("X-Request-Id", ""),
            retry_after_s=None if retry_after_s is None else min(retry_after_s, _LONGEST_RETRY_AFTER_S),
            fix=_fix_of_clock(self.skew_s) if status == 401 else None,
            redact=self.redactor,
        )

    def _unanswered(self, error: Exception) -> Unanswered:
        reasons: list[BaseException] = [error]
        while True:
            parts = (getattr(reasons[-1], "reason", None), *reversed(reasons[-1].args))
            inner = next((one for one in parts if isinstance(one, BaseException)), None)
            if inner is None or inner in reasons:
                break
            reasons.append(inner)
        reason = reasons[-1]
        if isinstance(reason, urllib3.exceptions.NewConnectionError) and isinstance(
            reason.__cause__, OSError
        ):
            # The system's message, without the library's wrapping.
            reason = reason.__cause__
        message = str(reason)
        if isinstance(reason, urllib3.exceptions.HTTPError) and len(reason.args) > 1:
            # The other arguments are the library's own objects.
            message = next((part for part in reversed(reason.args) if isinstance(part, str)), message)
        # The library prefixes the message with its connection.
        message = re.sub(r"^\w+\(host=.*?\): ", "", message) or type(reason).__name__
        why = harmless(message, 300, self.redactor)
        if isinstance(error, requests.exceptions.ProxyError):
            why = f"the proxy: {why}"
        # A missing CA bundle raises a plain OSError.
        if type(error) is not OSError and not any(isinstance(reason, _UNSENT) for reason in reasons):
            return Unanswered(f"{self._origin}: {why}")
        fix = "check endpoint or region of the target, the network, and HTTPS_PROXY"
        if isinstance(reason, ssl.SSLCertVerificationError):
            fix = "set REQUESTS_CA_BUNDLE to the certificates of your network, or correct the endpoint"
        return Unreachable(f"{self._origin}: {why}", fix=fix)


#: All exceptions that a transport may raise.
_BROKEN = (requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError)
#: Exceptions raised before anything is sent. Other TLS errors may occur while a response is read.
_UNSENT = (
    requests.exceptions.InvalidSchema,
    urllib3.exceptions.ConnectTimeoutError,
    urllib3.exceptions.NewConnectionError,
    urllib3.exceptions.ProxyError,
    ssl.SSLCertVerificationError,
)


def _fix_of_clock(skew_s: float | None) -> str | None:
    if skew_s is None or abs(skew_s) <= MAX_SKEW_S:
        return None
    where = "ahead of" if skew_s > 0 else "behind"
    return (
        f"synchronize this machine's clock: it is {format_duration(abs(skew_s))} {where} the service's, "
        "and 15 minutes are allowed"
    )


_PROXY_SCHEMES = frozenset({"http", "https", "socks4", "socks4a", "socks5", "socks5h"})


def _unusable_proxy(proxies: Mapping[str, str]) -> tuple[str, str] | None:
    """Describe an invalid proxy, without its URL, and a fix. None if all are valid."""
    for scheme, url in proxies.items():
        try:
            parsed = urllib3.util.parse_url(url if "://" in url else f"http://{url}")
            if parsed.host and parsed.scheme in _PROXY_SCHEMES:
                continue
        except ValueError:
            pass
        name = f"{scheme.upper()}_PROXY"
        why = f"invalid proxy: {name}, or ALL_PROXY, is not a URL with a host and a valid port"
        return why, f"set {name} to http://host:port, or unset it"
    return None


def _moment_s(date: str) -> float | None:
    try:
        parsed = parsedate_tz(date)
        return None if parsed is None else float(mktime_tz(parsed))
    except (ArithmeticError, IndexError, TypeError, ValueError):
        return None
