"""HTTP to one endpoint: sends a `Request`, returns an `ServiceResponse`, or raises a failure of `core.ports`.

A transport adapter of `requests` does one request at a time, and is kept with its connection for the next
one, in whichever thread. The layer above it, its Session, is left out: it follows redirects, keeps cookies,
reads proxies and `~/.netrc` anew for each call, and costs a quarter of the CPU of a call. Proxies and CA
bundle are read once, from the environment handed in.
"""

from __future__ import annotations

import math
import random
import re
import ssl
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from email.utils import mktime_tz, parsedate_tz
from typing import Any

import requests
import urllib3
from requests.adapters import BaseAdapter
from requests.structures import CaseInsensitiveDict

from reconciler.core.ports import Clock, RequestListener, Secrets
from reconciler.core.secret import Redactor
from reconciler.core.url_secrets import user_info_secrets
from reconciler.errors import (
    Interrupted,
    ServiceError,
    Throttled,
    Unanswered,
    Unauthorized,
    Unreachable,
    UnreadableAnswer,
)
from reconciler.modelarts.clock import SystemClock
from reconciler.modelarts.content import parse, read_content
from reconciler.modelarts.credentials import Credentials
from reconciler.modelarts.deadline import DeadlineAdapter
from reconciler.modelarts.errors import RENEW_ON, canonical_code, failure_of, harmless, redirected
from reconciler.modelarts.request import JSON, Request, json_bytes, query_of
from reconciler.modelarts.retry import Backoff, RateLimiter, RetryPolicy
from reconciler.text import format_duration

CONNECT_TIMEOUT_S = 10.0
READ_TIMEOUT_S = 60.0
#: How far our clock may be from the service's. Source: docs/modelarts.md, "Signatures".
MAX_SKEW_S = 900.0
#: A whole answer may take so long, however steadily it comes.
ANSWER_TIMEOUT_S = 600.0
#: What a service asks for beyond this is not believed.
_LONGEST_RETRY_AFTER_S = 3600.0


@dataclass(frozen=True, slots=True)
class ServiceResponse:
    """An answer of 2xx. `requests` is how many it took, `seconds` how long the last one."""

    status: int
    content: bytes
    headers: Mapping[str, str]
    requests: int = 1
    seconds: float = 0.0
    redact: Callable[[str], str] = field(default=str, repr=False, compare=False)

    @property
    def request_id(self) -> str:
        """What the service's support asks for, or ""."""
        return harmless(self.headers.get("X-Request-Id", ""), 128, self.redact)

    def json(self) -> Any:
        """Return the body, parsed.

        Raises:
            UnreadableAnswer: it is not JSON, or too much of it.
        """
        try:
            return parse(self.content)
        except ValueError as problem:
            raise self.unreadable(str(problem)) from None

    def unreadable(self, why: str) -> UnreadableAnswer:
        """Return the failure for an answer that is not what it should be."""
        return UnreadableAnswer(why, status=self.status, request_id=self.request_id)


@dataclass(frozen=True, slots=True)
class Network:
    """How to get to the endpoint: proxies by scheme, CA bundle (None: the built-in one), time limits."""

    proxies: Mapping[str, str] = field(default_factory=dict)
    ca_bundle: str | None = None
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    read_timeout_s: float = READ_TIMEOUT_S
    answer_timeout_s: float = ANSWER_TIMEOUT_S

    def adapter(self) -> BaseAdapter:
        """Return a transport whose answers end in time."""
        return DeadlineAdapter(self.answer_timeout_s)


def _ignore(method: str, path: str, status: int | None, seconds: float) -> None:
    """Listen to no request."""


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """How requests are sent, and who is told of them.

    `make_adapter` makes a transport for one request at a time, `listener` is told of each request, and
    `learn` of each value that must not be seen, tokens fetched later included; `redact` takes out of a text
    what others know of. `chance` is between 0 and 1; without a `limiter` requests go as fast as they can.
    Once `stop` is set nothing that changes something is sent, and nothing is sent again.
    """

    network: Network = field(default_factory=Network)
    make_adapter: Callable[[], BaseAdapter] | None = None
    listener: RequestListener | None = None
    clock: Clock | None = None
    stop: threading.Event | None = None
    chance: Callable[[], float] = random.random
    backoff: Backoff = field(default_factory=Backoff)
    limiter: RateLimiter | None = None
    learn: Callable[[Iterable[str]], None] | None = None
    redact: Callable[[str], str] | None = None
    user_agent: str = "reconciler"


DEFAULT_OPTIONS = SessionOptions()


class ServiceSession:
    """Requests to one endpoint, `scheme://host[:port][/prefix]`, from any thread."""

    def __init__(
        self, endpoint: str, credentials: Credentials, options: SessionOptions = DEFAULT_OPTIONS
    ) -> None:
        self.endpoint = endpoint.rstrip("/")
        self.credentials = credentials
        scheme, _, rest = self.endpoint.partition("://")
        self.host, slash, prefix = rest.partition("/")
        self._prefix = slash + prefix
        self._origin = f"{scheme}://{self.host}"
        self._network = options.network
        self._make_adapter = options.make_adapter or self._network.adapter
        self._listener = options.listener or _ignore
        self._clock: Clock = options.clock or SystemClock(options.stop)
        self._stop = options.stop or threading.Event()
        self._headers = {
            "Accept": "application/json",
            "Accept-Encoding": "gzip, deflate",
            "User-Agent": options.user_agent,
            "X-Language": "en-us",
        }
        self._chance = options.chance
        self._backoff = options.backoff
        self._limiter = options.limiter
        self._known = Redactor()
        self._redact_elsewhere = options.redact
        self._learn_elsewhere = options.learn
        self._learned: set[str] = set()
        self._learn_secrets()
        self._adapters: list[BaseAdapter] = []
        self._idle: list[BaseAdapter] = []
        self._dated: tuple[str, float] | None = None
        self._unusable = _unusable_proxy(self._network.proxies)

    @property
    def skew_s(self) -> float | None:
        """How far our clock was ahead of the service's at its last answer; None if no answer said it."""
        if self._dated is None:
            return None
        date, now_s = self._dated
        said_s = _moment_s(date)
        return None if said_s is None else now_s - said_s

    def close(self) -> None:
        """Close all connections."""
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
        patience_s: float = math.inf,
        changes: bool = False,
    ) -> ServiceResponse:
        """Send a request and return its answer of 2xx; `path` is encoded, `body` goes out as JSON.

        `repeat` says when it may be sent again, which is not done later than `patience_s` after it was
        sent first, and `changes` that it is no mere question: it is not sent once the program is to stop. A
        401 is followed by one more attempt where the credentials can be renewed: whoever is not known has
        changed nothing.

        Raises:
            ServiceError: anything else happened, see `core.ports`.
        """
        if self._unusable:
            why, fix = self._unusable
            raise Unreachable(why, fix=fix)
        content = None if body is None else json_bytes(body)
        kind = {} if content is None else {"Content-Type": JSON}
        request = Request(
            method=method,
            host=self.host,
            path=self._prefix + path,
            query=query_of(query or {}),
            headers={**self._headers, **kind, **(headers or {})},
            body=content,
        )
        return self._insist(request, repeat, self._clock.now() + patience_s, changes=changes)

    def secrets(self) -> Secrets:
        """The values that must never be seen, as far as they are known by now."""
        proxies = self._network.proxies.values()
        return [*self.credentials.secrets(), *(one for url in proxies for one in user_info_secrets(url))]

    def hide(self, values: Iterable[str]) -> None:
        """Keep values out of the texts of failures that are not part of the credentials."""
        values = list(values)
        self._known.learn(values)
        if self._learn_elsewhere:
            # Also there, where a part of one may be known: the whole has to go first.
            self._learn_elsewhere(values)

    def _redact(self, text: str) -> str:
        return self._known(self._redact_elsewhere(text) if self._redact_elsewhere else text)

    def _insist(
        self, request: Request, repeat: RetryPolicy, until_s: float, *, changes: bool
    ) -> ServiceResponse:
        attempt, requests_sent, has_renewed = 1, 0, False
        while True:
            requests_sent += 1
            proof = self._proof(request)
            if changes and self._stop.is_set():
                raise Interrupted("it was not sent")
            try:
                answer = self._send(request, proof)
            except Unauthorized as failure:
                if has_renewed or not _is_worth_renewing(failure) or not self.credentials.renew(proof):
                    raise
                has_renewed = True
            except ServiceError as failure:
                if not self._waits_after(failure, attempt, repeat, until_s):
                    raise
                if self._stop.is_set():
                    raise _as_interrupted(failure, changes=changes) from failure.__cause__
                attempt += 1
            else:
                return answer if requests_sent == 1 else replace(answer, requests=requests_sent)

    def _waits_after(self, failure: ServiceError, attempt: int, repeat: RetryPolicy, until_s: float) -> bool:
        """Wait until the call may be sent again; False at once if it may not, or only after `until_s`.

        The caller raises: a failure raised here would keep this frame alive, and with it a socket.
        """
        wait_s = self._backoff.wait_s(failure, attempt, repeat, self._chance)
        if self._limiter and isinstance(failure, Throttled):
            self._limiter.pause(self._clock.now(), wait_s or failure.retry_after_s or 0.0)
        if wait_s is None or self._clock.now() + wait_s > until_s:
            return False
        self._clock.sleep(wait_s)
        return True

    def _proof(self, request: Request) -> Mapping[str, str]:
        if self._limiter and (wait_s := self._limiter.reserve(self._clock.now())):
            self._clock.sleep(wait_s)
        proof = self.credentials.headers(request, self._clock.now())
        self._learn_secrets()
        return proof

    def _learn_secrets(self) -> None:
        if new := [secret for secret in self.secrets() if secret not in self._learned]:
            self._learned.update(new)
            self._known.learn(new)
            if self._learn_elsewhere:
                self._learn_elsewhere(new)

    def _send(self, request: Request, proof: Mapping[str, str]) -> ServiceResponse:
        began = self._clock.now()
        status: int | None = None
        try:
            answer = self._exchange(request, {**request.headers, **proof})
            status = answer.status
        finally:
            seconds = max(0.0, self._clock.now() - began)
            self._listener(request.method, request.path, status, seconds)
        answer = replace(answer, seconds=seconds)
        if date := answer.headers.get("Date"):
            self._dated = date, self._clock.now()
        if 200 <= answer.status < 300:
            return answer
        if 300 <= answer.status < 400:
            raise redirected(answer.status, answer.headers.get("Location", ""), self._redact)
        raise failure_of(
            answer.status,
            answer.content,
            request_id=answer.headers.get("X-Request-Id", ""),
            # A date is one of the service's clock, not of ours.
            retry_after_s=_retry_after_s(
                answer.headers.get("Retry-After"), self._clock.now() - (self.skew_s or 0.0)
            ),
            fix=_fix_of_clock(self.skew_s) if answer.status == 401 else None,
            redact=self._redact,
        )

    def _exchange(self, request: Request, headers: Mapping[str, str]) -> ServiceResponse:
        adapter = self._adapter()
        try:
            return self._exchanged(adapter, _prepare(self._origin, request, headers))
        finally:
            self._idle.append(adapter)

    def _exchanged(self, adapter: BaseAdapter, prepared: requests.PreparedRequest) -> ServiceResponse:
        try:
            response = adapter.send(
                prepared,
                stream=True,
                timeout=(self._network.connect_timeout_s, self._network.read_timeout_s),
                verify=self._network.ca_bundle or True,
                proxies=dict(self._network.proxies),
            )
        except _BROKEN as error:
            # `from None`: the library's own texts may quote what must not be seen.
            # A transport that does not say whether anything left is not trusted to have sent nothing.
            raise self._unanswered(error, has_begun=getattr(adapter, "has_begun", True)) from None
        try:
            content = read_content(response)
        except _BROKEN as error:
            response.close()
            raise self._unanswered(error, has_begun=True) from None
        except ServiceError:
            # What is left of the answer must not be taken for the next one.
            response.close()
            raise
        return ServiceResponse(response.status_code, content, response.headers, redact=self._redact)

    def _unanswered(self, error: Exception, *, has_begun: bool) -> Unanswered:
        reason = _reason(error)
        why = harmless(_words_of(reason), 300, self._redact)
        if isinstance(error, requests.exceptions.ProxyError):
            why = f"the proxy: {why}"
        if not has_begun:
            return Unreachable(f"{self._origin}: {why}", fix=_fix_of(reason))
        return Unanswered(f"{self._origin}: {why}")

    def _adapter(self) -> BaseAdapter:
        try:
            return self._idle.pop()
        except IndexError:
            adapter = self._make_adapter()
            self._adapters.append(adapter)
            return adapter


def _as_interrupted(failure: ServiceError, *, changes: bool) -> ServiceError:
    """What a failure is that would be followed by another attempt, if the program were not to stop."""
    had_no_effect = not changes or isinstance(failure, Throttled | Unreachable)
    return Interrupted(f"it was not retried after: {failure.message}") if had_no_effect else failure


#: All that a transport raises.
_BROKEN = (requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError)


def _prepare(origin: str, request: Request, headers: Mapping[str, str]) -> requests.PreparedRequest:
    # `requests.Request.prepare` would encode the URL anew; what was signed must be what is sent.
    prepared = requests.PreparedRequest()
    prepared.method = request.method
    prepared.url = origin + request.path_and_query
    prepared.headers = CaseInsensitiveDict(headers)
    prepared.body = request.body
    if request.body is not None or request.method in {"POST", "PUT"}:
        prepared.headers["Content-Length"] = str(len(request.body or b""))
    prepared.hooks = {"response": []}
    return prepared


def _reason(error: BaseException) -> BaseException:
    """Dig out what happened from what wraps it."""
    while True:
        inner = getattr(error, "reason", None) or next(
            (a for a in reversed(error.args) if isinstance(a, BaseException)), None
        )
        if not isinstance(inner, BaseException) or inner is error:
            return error
        error = inner


#: What the library puts in front of what happened.
_CONNECTION = re.compile(r"^\w+\(host=.*?\): ")


def _words_of(reason: BaseException) -> str:
    if isinstance(reason, urllib3.exceptions.NewConnectionError) and isinstance(reason.__cause__, OSError):
        # The system's own words, and not the library's around them.
        reason = reason.__cause__
    told = str(reason)
    if isinstance(reason, urllib3.exceptions.HTTPError) and len(reason.args) > 1:
        # The other arguments are the library's own objects.
        told = next((part for part in reversed(reason.args) if isinstance(part, str)), told)
    return _CONNECTION.sub("", told) or type(reason).__name__


def _fix_of(reason: BaseException) -> str:
    if isinstance(reason, ssl.SSLCertVerificationError):
        return "set REQUESTS_CA_BUNDLE to the certificates of your network, or correct the endpoint"
    return "check endpoint or region of the target, the network, and HTTPS_PROXY"


def _fix_of_clock(skew_s: float | None) -> str | None:
    if skew_s is None or abs(skew_s) <= MAX_SKEW_S:
        return None
    where = "ahead of" if skew_s > 0 else "behind"
    return (
        f"synchronize this machine's clock: it is {format_duration(abs(skew_s))} {where} the service's, "
        "and 15 minutes are allowed"
    )


def _is_worth_renewing(failure: Unauthorized) -> bool:
    return failure.status == 401 or canonical_code(failure.code) in RENEW_ON


_PROXY_SCHEMES = frozenset({"http", "https", "socks4", "socks4a", "socks5", "socks5h"})


def _unusable_proxy(proxies: Mapping[str, str]) -> tuple[str, str] | None:
    """What is wrong with a proxy, and a fix, without its URL."""
    for scheme, url in proxies.items():
        try:
            parsed = urllib3.util.parse_url(url if "://" in url else f"http://{url}")
            is_usable = bool(parsed.host) and parsed.scheme in _PROXY_SCHEMES
        except ValueError:
            is_usable = False
        if not is_usable:
            name = f"{scheme.upper()}_PROXY"
            return (
                f"invalid proxy: {name}, or ALL_PROXY, is not a URL with a host and a valid port",
                f"set {name} to http://host:port, or unset it",
            )
    return None


def _retry_after_s(text: str | None, now_s: float) -> float | None:
    """Read Retry-After: seconds, or a date."""
    if not text:
        return None
    if text.strip().isdecimal():
        return min(float(text), _LONGEST_RETRY_AFTER_S)
    date_s = _moment_s(text)
    return None if date_s is None else min(max(0.0, date_s - now_s), _LONGEST_RETRY_AFTER_S)


def _moment_s(date: str) -> float | None:
    """Read a date of a header; None if there is no such moment."""
    try:
        parsed = parsedate_tz(date)
        return None if parsed is None else float(mktime_tz(parsed))
    except (ArithmeticError, IndexError, TypeError, ValueError):
        return None
