"""The object store of code, addressed by content and verified before use.

    STORE/STACK/DIGEST16/NAME/…           the files; the service copies the folder NAME into the container
    STORE/STACK/DIGEST16/manifest.json    written last; without it the prefix is incomplete

Because keys depend on content, concurrent uploads write the same bytes, and damaged files are uploaded again.
Source: docs/reference/code.md, "The object store".
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import nullcontext, suppress
from functools import partial
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import obstore
from obstore.exceptions import BaseError, NotFoundError
from obstore.store import LocalStore, ObjectStore

from reconciler.code import CodeRejected
from reconciler.core.code import DIGITS, Code, CodeFile, digest_of, digits, etag_of
from reconciler.decide.code import Place, Prefix
from reconciler.errors import Interrupted, Rejected, ServiceError, Unauthorized
from reconciler.text import printable

if TYPE_CHECKING:
    from reconciler.core.ports import UploadListener

_T = TypeVar("_T")
_R = TypeVar("_R")

FORMAT_VERSION = "1.0"
UPLOADS_AT_ONCE = 8
#: After this time an upload yields its slot to actions that do not depend on it.
_PATIENCE_S = 5.0
#: Interval at which a stop request is noticed. Worker threads are abandoned then.
_PIECE_S, _WORKER = 0.2, "request to the code store"
_MANIFEST = "manifest.json"
_MAX_MANIFEST = 4_000_000


class StoreRefused(Rejected):
    """The object store rejected the request; nothing was changed."""

    what = "the code store rejected the request"


class StoreUnauthorized(Unauthorized):
    """The credentials lack a permission on the object store."""


class StoreFailed(ServiceError):
    """The request to the object store failed; it may be retried."""

    what = "the code store cannot be used"


class CodeChanged(CodeRejected):
    """A file changed after the code was hashed; the upload was aborted."""

    what = "the code changed during upload"


class _Refusal(NamedTuple):
    words: str
    fix: str
    error: type[ServiceError] = StoreRefused


_BUG = "check that `obs_endpoint` is an OBS endpoint; if it is, please report this as a bug"
#: Permanent errors, by error code. `{right}` is the permission that is needed, `{where}` the resource.
#: Source: docs/reference/code.md, "Refusals of the store".
REFUSALS: Mapping[str, _Refusal] = {
    "PermanentRedirect": _Refusal(
        "the bucket is in another region",
        "use a bucket in the target's region, or set `obs_endpoint` to the endpoint of the bucket's region",
    ),
    "AccessDenied": _Refusal(
        "access denied: {right} is missing",
        "grant {right} on {where} to the owner of the key",
        StoreUnauthorized,
    ),
    "InvalidAccessKeyId": _Refusal(
        "no such access key", "check HUAWEICLOUD_SDK_AK, or get new temporary keys", StoreUnauthorized
    ),
    "SignatureDoesNotMatch": _Refusal(
        "the signature does not match",
        "check HUAWEICLOUD_SDK_SK; `obs_endpoint` must not name the bucket",
        StoreUnauthorized,
    ),
    "TooManyWrongSignature": _Refusal(
        "too many wrong signatures",
        "check HUAWEICLOUD_SDK_SK, and retry after a few minutes",
        StoreUnauthorized,
    ),
    "RequestTimeTooSkewed": _Refusal(
        "the clock of this machine is off by more than 15 minutes", "set the clock", StoreUnauthorized
    ),
    "VirtualHostDomainRequired": _Refusal(
        "the store requires the bucket in the host name, not in the path",
        "set `obs_endpoint` to the endpoint of the region: its host name, without the bucket",
    ),
    "NoSuchBucket": _Refusal("no such bucket", "check `code_store`, or create the bucket"),
    "NoSuchKey": _Refusal(
        "the store rejected the object name",
        "use an object bucket, not a parallel file system, and an endpoint for virtual-hosted addresses",
    ),
    "InvalidBucketName": _Refusal("invalid bucket name", "check `code_store`"),
    "InsufficientStorageSpace": _Refusal("the store is full", "raise the quota of the bucket"),
    "InArrearOrInsufficientBalance": _Refusal("the account is in arrears", "top up the cloud account"),
    "FsNotSupport": _Refusal("the bucket is a parallel file system", "use an object bucket for `code_store`"),
    "KeyTooLongError": _Refusal("the key is too long", "shorten the path of the file"),
    "EntityTooLarge": _Refusal(
        "the file is too large for one request", "put data into an input, not into code"
    ),
    "BadDigest": _Refusal("the content was changed on the way", "check for a proxy that modifies requests"),
    "XAmzContentSHA256Mismatch": _Refusal("the store does not support this kind of checksum", _BUG),
    "MissingRegion": _Refusal("the signature lacks a region", "add `region` to the target"),
    "MethodNotAllowed": _Refusal("the store does not allow this operation", _BUG),
    "MissingContentLength": _Refusal("the store received no content length", _BUG),
    "PreconditionFailed": _Refusal("the store applied a condition that was not sent", _BUG),
    "NotImplemented": _Refusal("the store does not support this operation", _BUG),
    "EntityTooSmall": _Refusal("the store treated the file as part of a multipart upload", _BUG),
    "NoSuchUpload": _Refusal("the store treated the file as part of an unknown multipart upload", _BUG),
    "BucketAlreadyExists": _Refusal("the store treated the file as a new bucket", _BUG),
    "ObjectAlreadyExists": _Refusal(
        "the bucket does not allow overwriting objects", "allow overwriting below `code_store`"
    ),
}
#: Equivalent error codes, and status codes of responses without one.
_ALIASES = {
    "TemporaryRedirect": "PermanentRedirect",
    "FsObjectConflict": "FsNotSupport",
    "301": "PermanentRedirect",
    "307": "PermanentRedirect",
    "403": "AccessDenied",
    "501": "NotImplemented",
}
#: Transient errors.
_TRANSIENT = {"OperationAborted", "TooManyRequests", "ServiceUnavailable", "SlowDown", "InternalError"}
_TRANSIENT_STATUSES = {408, 429, 500, 502, 503, 504}
#: Delays before retries, in seconds; half of each is jitter.
_WAITS_S, _RETRIES_UNREACHABLE = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0), 2
_RIGHTS = {
    "write": "obs:object:PutObject",
    "read": "obs:object:GetObject",
    "list": "obs:bucket:ListBucket",
    "delete": "obs:object:DeleteObject",
}
#: obstore's errors for requests without a response. Others are described by the system's message.
_UNANSWERED = {
    "TimedOut": "no answer in time",
    "dns error": "its host name cannot be resolved",
    "certificate": "its certificate is not trusted",
}


class StoredCode(NamedTuple):
    """The contents of a manifest object: the code and the ETag of each file."""

    code: Code
    etags: Mapping[str, str]


class Upload(NamedTuple):
    """The files that still have to be uploaded; `size` in bytes."""

    files: tuple[CodeFile, ...]
    is_complete: bool

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


class CodeStore:
    """The code of all stacks below `address`, `obs://BUCKET/PREFIX/`; `store` is opened there.

    Every call may raise a ServiceError.
    """

    def __init__(
        self,
        address: str,
        store: ObjectStore,
        *,
        stop: threading.Event | None = None,
        redact: Callable[[str], str] = str,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.address = address.rstrip("/") + "/"
        self._store, self._stop, self._redact = store, stop, redact
        self._sleep, self._chance = sleep, random.random
        #: None on a local store; see `modelarts.objects`.
        self._access: Any = getattr(store, "credential_provider", None)

    # ── reading ────────────────────────────────────────────────────────────────────────────────

    def stored(self, stack: str, place: str) -> StoredCode | None:
        """Read the manifest object of a prefix. None if it is missing or invalid."""
        data = self._get(f"{stack}/{place}/{_MANIFEST}", _MAX_MANIFEST)
        return None if data is None else _read_manifest(data, place)

    def digests(self, places: Sequence[tuple[str, str]]) -> set[str]:
        """Return the full digests of the code at places, each a stack and a digest's first digits."""
        found = self._in_threads(lambda place: self.stored(*place), places)
        return {stored.code.digest for stored in found if stored}

    def missing(self, stack: str, code: Code, md5_of: Callable[[CodeFile], str]) -> Upload:
        """Return what an upload would send. `md5_of` returns the MD5 of a local file."""
        prefix = prefix_of(stack, code.digest)
        there = {meta["path"].removeprefix(prefix): meta for meta in self._list(prefix)}
        stored = self.stored(stack, digits(code.digest)) if _MANIFEST in there else None
        known = stored.etags if stored else {}

        def is_there(file: CodeFile) -> bool:
            meta = there.get(f"{code.name}/{file.path}")
            if meta is None or meta["size"] != file.size:
                return False
            etag = str(meta["e_tag"] or "").strip('"')
            if isinstance(self._store, LocalStore):
                # A directory stores no hashes.
                etag = etag_of(self._get(meta["path"], file.size) or b"")
            return etag == (known.get(file.path) or md5_of(file))

        files = tuple(file for file in code.files if not is_there(file))
        is_listed = stored and (stored.code.digest, stored.code.name) == (code.digest, code.name)
        return Upload(files, is_complete=bool(is_listed) and not files)

    def prefixes(self, stack: str | None = None) -> Iterator[Prefix]:
        """Yield the prefixes of one stack or of all, sorted by name."""
        found: dict[Place, dict[str, Any]] = {}
        for meta in self._list(f"{stack}/" if stack else ""):
            parts = meta["path"].split("/", 2)
            if len(parts) == 3 and re.fullmatch(rf"[0-9a-f]{{{DIGITS}}}", parts[1]):
                found.setdefault(Place(*parts[:2]), {})[parts[2]] = meta
        listed_at = [place for place, metas in found.items() if _MANIFEST in metas]
        read = dict(self._in_threads(lambda place: (place, self.stored(*place)), listed_at))
        for place, metas in sorted(found.items()):
            manifest, stored = metas.pop(_MANIFEST, None), read.get(place)
            code, sizes = stored and stored.code, {path: meta["size"] for path, meta in metas.items()}
            listed = {f"{code.name}/{file.path}": file.size for file in code.files} if code else {}
            dated = [manifest] if manifest else metas.values()
            yield Prefix(
                place,
                code and code.digest,
                code is not None and listed.items() <= sizes.items(),
                len(metas),
                sum(sizes.values()),
                max(meta["last_modified"].timestamp() for meta in dated),
                tuple("/".join((*place, path)) for path in [_MANIFEST] * bool(manifest) + sorted(metas)),
            )

    def read(self, stack: str, code: Code, path: str, most: int) -> bytes | None:
        """Read a stored file. None if it is missing or larger than `most` bytes."""
        return self._get(f"{prefix_of(stack, code.digest)}{code.name}/{path}", most)

    # ── writing ────────────────────────────────────────────────────────────────────────────────

    def upload(
        self,
        stack: str,
        code: Code,
        source: Path,
        on_progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Upload:
        """Upload missing files, then the manifest object. Returns what was sent.

        Raises:
            CodeChanged: a file changed after it was hashed.
            Interrupted: a stop was requested; the uploaded files remain without a manifest object.
        """
        hashed: dict[str, str] = {}

        def md5_of(file: CodeFile) -> str:
            hashed[file.path] = etag_of(_read(source, file))
            return hashed[file.path]

        upload = self.missing(stack, code, md5_of)
        if upload.is_complete:
            return upload
        prefix = f"{prefix_of(stack, code.digest)}{code.name}/"
        sent, counted = 0, threading.Lock()

        def send(file: CodeFile) -> None:
            nonlocal sent
            data = _read(source, file)
            hashed[file.path] = self._put(prefix + file.path, data)
            with counted:
                sent += len(data)
                on_progress(sent, upload.size)

        if upload.files:
            on_progress(0, upload.size)
        self._in_threads(send, upload.files)
        files = [{**file._asdict(), "md5": hashed.get(file.path) or md5_of(file)} for file in code.files]
        document = {"format_version": FORMAT_VERSION, "digest": code.digest, "name": code.name}
        text = json.dumps({**document, "files": files}, ensure_ascii=False) + "\n"
        self._put(f"{prefix_of(stack, code.digest)}{_MANIFEST}", text.encode())
        return upload

    def delete(self, prefix: Prefix) -> None:
        """Delete a prefix: the manifest object first, then each file. Missing objects are ignored.

        Raises:
            Interrupted: a stop was requested; the rest of the prefix is incomplete.
        """

        def delete(key: str) -> None:
            with suppress(NotFoundError, FileNotFoundError):
                obstore.delete(self._store, key)

        for key in prefix.keys:
            self._call("delete", key, partial(delete, key))

    # ── requests ───────────────────────────────────────────────────────────────────────────────

    def _put(self, key: str, data: bytes) -> str:
        md5 = etag_of(data)
        result = self._call("write", key, lambda: obstore.put(self._store, key, data, use_multipart=False))
        etag = (result["e_tag"] or "").strip('"')
        if not isinstance(self._store, LocalStore) and etag != md5:
            raise StoreFailed(
                f"{self.address}{key} has the ETag {etag or '(none)'} after the upload, expected {md5}",
                fix="use a bucket without server-side encryption",
            )
        return md5

    def _get(self, key: str, most: int) -> bytes | None:
        def get() -> bytes | None:
            try:
                result = obstore.get(self._store, key)
            except (NotFoundError, FileNotFoundError):
                return None
            return None if result.meta["size"] > most else bytes(result.bytes())

        data: bytes | None = self._call("read", key, get)
        return data

    def _list(self, prefix: str) -> list[Any]:
        def listed() -> list[Any]:
            return [meta for chunk in obstore.list(self._store, prefix.rstrip("/") or None) for meta in chunk]

        found = self._call("list", prefix, listed)
        return [meta for meta in found if meta["path"].startswith(prefix)]

    def _call(self, verb: str, key: str, call: Callable[[], Any]) -> Any:
        """Send a request, with retries after transient errors."""
        for attempt, wait_s in enumerate((*_WAITS_S, 0.0)):
            if self._stop is not None and self._stop.is_set():
                raise Interrupted(f"cannot {verb} {self.address}{key}: interrupted")
            if self._access is not None:
                self._access.check()
            try:
                if threading.current_thread().name == _WORKER:
                    return call()
                # Run on a thread: a signal cannot interrupt a request that hangs in native code.
                [result] = self._in_threads(lambda _: call(), [None])
            except (BaseError, OSError, ValueError) as error:
                failure, retries = self._failure(verb, key, error)
            else:
                return result
            if attempt >= retries:
                raise failure
            self._sleep(wait_s * (0.5 + 0.5 * self._chance()))
        raise AssertionError("the last attempt returns or raises")

    def _in_threads(self, work: Callable[[_T], _R], items: Sequence[_T]) -> list[_R]:
        """Call `work` for each item on several threads, and return the results. The first failure ends it.

        On a stop request threads are abandoned: a request may hang, and what it sends is harmless.
        """
        left, results, failures = iter(items), list[_R](), list[BaseException]()

        def drain() -> None:
            for item in left:
                if failures:
                    return
                try:
                    results.append(work(item))
                except BaseException as failure:
                    failures.append(failure)

        threads = [
            threading.Thread(target=drain, name=_WORKER, daemon=True)
            for _ in range(min(UPLOADS_AT_ONCE, len(items)))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(_PIECE_S)
                if self._stop is not None and self._stop.is_set():
                    raise Interrupted(f"requests to {self.address} were abandoned: interrupted")
        if failures:
            raise failures[0]
        return results

    def _failure(self, verb: str, key: str, error: Exception) -> tuple[ServiceError, int]:
        """Return the error to raise for a failed request, and how often to retry it."""
        text, _, debug = str(error).partition("\n\nDebug source")
        where, place = f"cannot {verb} {self.address}{key}", self.address.removeprefix("obs://")
        if self._access is None:
            why = printable(self._redact(text.removeprefix("Generic LocalFileSystem error: ")))
            # In a directory obstore reserves names that end like a#1.
            is_reserved = "are not supported" in why
            fix = "rename the file" if is_reserved else "free up space there, and make it writable"
            return StoreFailed(f"{where}: {why}", fix=fix), 0

        def search(pattern: str) -> str:
            match = re.search(pattern, text)
            return printable(self._redact(match[1]))[:300] if match else ""

        code, message = search(r"<Code>(\w+)</Code>"), unescape(search(r"(?s)<Message>(.*?)</Message>"))
        if "Received redirect without" in text:  # obstore drops the body of one without a header
            code = "PermanentRedirect"
        status = int(search(r"status code: (\d{3})") or 0) or None
        if verb != "write" and code in ("", "AccessDenied", "SignatureDoesNotMatch", "NoSuchBucket"):
            code = "PermanentRedirect" if self._access.is_elsewhere() else code
        fields: Any = {
            "code": code,
            "status": status,
            "request_id": search(r"<RequestId>([\w-]+)</RequestId>"),
        }
        known = code or str(status)
        if refusal := REFUSALS.get(_ALIASES.get(known, known)):
            on = place.partition("/")[0] if verb == "list" else f"{place}*"
            why, fix = (text.format(right=_RIGHTS[verb], where=on) for text in refusal[:2])
            return refusal.error(f"{where}: {why}", **fields, fix=fix), 0
        if status is None and "HTTP error" not in text:
            why = printable(self._redact(text.rpartition("error: ")[2]))[:300]
            fix = "check that `obs_endpoint` of the target is an OBS endpoint"
            return StoreFailed(f"{where}: invalid response: {why}", **fields, fix=fix), 0
        if status is None:
            system = re.search(r'message: "([^"]*)"', debug)
            why = next((why for word, why in _UNANSWERED.items() if word in debug), "")
            why = why or (system[1] if system else "the connection failed")
            retries = 0 if "TimedOut" in debug else _RETRIES_UNREACHABLE
            fix = "check the network, HTTPS_PROXY, and `obs_endpoint` of the target"
            return StoreFailed(f"{where}: the store cannot be reached: {why}", **fields, fix=fix), retries
        is_transient = code in _TRANSIENT or status in _TRANSIENT_STATUSES
        why = (
            f"the store {'is busy' if is_transient else 'responded'}: {message or code or 'no reason given'}"
        )
        fix = "run it again later" if is_transient else "see the message of the store"
        return StoreFailed(f"{where}: {why}", **fields, fix=fix), len(_WAITS_S) if is_transient else 0


def prefix_of(stack: str, digest: str) -> str:
    """Return the prefix of a digest, relative to the address of the store: `STACK/DIGEST16/`."""
    return f"{stack}/{digits(digest)}/"


def _read(source: Path, file: CodeFile) -> bytes:
    try:
        with open(f"{source}/{file.path}", "rb", buffering=0) as stream:  # noqa: PTH123 - one of thousands
            data = stream.readall()
    except OSError as error:
        raise CodeChanged(f"{file.path}: {error.strerror}", fix="run it again") from error
    if len(data) != file.size or hashlib.sha256(data).hexdigest() != file.sha256:
        raise CodeChanged(file.path, fix="do not edit the code during the upload; then run it again")
    return data


def _read_manifest(data: bytes, place: str) -> StoredCode | None:
    """Parse a manifest object. None if it is invalid, or belongs to another prefix."""
    try:
        document = json.loads(data)
        files = tuple(CodeFile(*(file[name] for name in CodeFile._fields)) for file in document["files"])
        code = Code(document["name"], files, digest_of(files))
        etags = {file["path"]: file["md5"] for file in document["files"]}
        is_right = document["digest"] == code.digest and digits(code.digest) == place
    except (ValueError, KeyError, TypeError):
        return None
    return StoredCode(code, etags) if is_right else None


class Uploads:
    """Uploads the code of an apply's jobs, each code once. Thread-safe."""

    def __init__(self, store: CodeStore, stack: str, listener: UploadListener | None = None) -> None:
        self._store, self._stack, self._listener = store, stack, listener
        self._lock = threading.Lock()
        self._done: dict[tuple[str, str], Future[Upload]] = {}

    def ensure(self, code: Code, source: Path, pause: Callable[[], object] = lambda: None) -> Upload:
        """Wait until the code is complete in the store. `pause` is called if that takes long.

        Raises:
            CodeChanged: a file changed after it was hashed.
            Interrupted: a stop was requested.
        """
        with self._lock:
            # The same files under another name have keys of their own.
            place = (code.digest, code.name)
            is_first = place not in self._done
            done = self._done.setdefault(place, Future())
        if is_first:
            threading.Thread(target=self._upload, args=(code, source, done), daemon=True).start()
        if not wait([done], _PATIENCE_S).done:
            pause()
        return done.result()

    def _upload(self, code: Code, source: Path, done: Future[Upload]) -> None:
        try:
            with self._listener() if self._listener else nullcontext(lambda sent, total: None) as on_progress:
                upload = self._store.upload(self._stack, code, source, on_progress)
        except BaseException as failure:
            done.set_exception(failure)
        else:
            done.set_result(upload)
