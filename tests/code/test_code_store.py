"""Code is uploaded once, complete or not at all, and what is wrong in the store is found and mended."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote

import pytest
from obstore.store import LocalStore, MemoryStore, ObjectStore

from reconciler.code import CodeSource, read_code
from reconciler.code_store import REFUSALS, CodeChanged, CodeStore, StoreFailed, Uploads
from reconciler.core.code import Code
from reconciler.core.stack import Target
from reconciler.errors import Interrupted, ServiceError
from reconciler.modelarts.objects import Keys, iam_endpoint, open_directory, open_objects, store_endpoint

ADDRESS = "obs://vision/code/"


@pytest.fixture
def code(tmp_path: Path) -> Code:
    for name in ("train.py", "pkg/a b.py", "pkg/ü.py"):
        (tmp_path / "src" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "src" / name).write_text(f"# {name}\n", encoding="utf-8")
    return read_code(CodeSource(tmp_path / "src"))._replace(source=str(tmp_path / "src"))


class Objects:
    """An object store as files of a directory, which a test may damage."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = CodeStore(ADDRESS, open_directory(root))

    def upload(self, code: Code) -> list[str]:
        return [file.path for file in self.store.upload("cs", code, Path(code.source)).files]

    def place(self, code: Code) -> Path:
        return self.root / "cs" / code.digest.removeprefix("sha256:")[:16]


@pytest.fixture
def objects(tmp_path: Path) -> Objects:
    return Objects(tmp_path / "obs")


ALL = ["pkg/a b.py", "pkg/ü.py", "train.py"]


def test_code_is_uploaded_once_and_its_manifest_last(objects: Objects, code: Code) -> None:
    assert objects.upload(code) == ALL
    manifest = json.loads((objects.place(code) / "manifest.json").read_text(encoding="utf-8"))
    assert (manifest["digest"], manifest["name"]) == (code.digest, "src")
    data = (Path(code.source) / "train.py").read_bytes()
    assert manifest["files"][-1] == {
        "path": "train.py",
        "size": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "md5": hashlib.md5(data, usedforsecurity=False).hexdigest(),
    }
    assert (objects.place(code) / "src/pkg/ü.py").read_text(encoding="utf-8") == "# pkg/ü.py\n"
    assert objects.upload(code) == []


def lose_manifest(place: Path) -> None:
    (place / "manifest.json").unlink()


def damage_manifest(place: Path) -> None:
    (place / "manifest.json").write_text('{"digest": 1}', encoding="utf-8")


def foreign_manifest(place: Path) -> None:
    text = (place / "manifest.json").read_text(encoding="utf-8")
    (place / "manifest.json").write_text(text.replace('"train.py"', '"other.py"'), encoding="utf-8")


@pytest.mark.parametrize(
    ("spoil", "sent"),
    [
        (lose_manifest, []),
        (damage_manifest, []),
        (foreign_manifest, []),
        (lambda place: (place / "src/train.py").unlink(), ["train.py"]),
        (lambda place: (place / "src/train.py").write_text("# train.pY\n"), ["train.py"]),
        (lambda place: (place / "src/pkg/a b.py").write_text("longer than before"), ["pkg/a b.py"]),
    ],
)
def test_what_is_wrong_in_the_store_is_mended(
    objects: Objects, code: Code, spoil: Callable[[Path], object], sent: list[str]
) -> None:
    objects.upload(code)
    spoil(objects.place(code))
    assert objects.upload(code) == sent
    assert objects.upload(code) == []
    [prefix] = objects.store.prefixes()
    assert (prefix.digest, prefix.is_complete) == (code.digest, True)


def test_upload_that_was_cut_off_is_completed(objects: Objects, code: Code) -> None:
    stop = threading.Event()
    cut = CodeStore(ADDRESS, LocalStore(objects.root, mkdir=True), stop=stop)
    with pytest.raises(Interrupted):
        cut.upload("cs", code, Path(code.source), lambda done, total: stop.set())
    assert not (objects.place(code) / "manifest.json").exists()
    assert set(objects.upload(code)) < set(ALL)
    assert objects.upload(code) == []


def test_file_that_changes_during_the_upload_ends_it(objects: Objects, code: Code) -> None:
    (Path(code.source) / "train.py").write_text("# other\n", encoding="utf-8")
    with pytest.raises(CodeChanged, match=r"train\.py"):
        objects.upload(code)
    assert not (objects.place(code) / "manifest.json").exists()


def test_prefix_is_deleted_manifest_first(objects: Objects, code: Code) -> None:
    objects.upload(code)
    [prefix] = objects.store.prefixes("cs")
    assert (prefix.place.stack, prefix.files, len(prefix.keys)) == ("cs", 3, 4)
    objects.store.delete(prefix)
    assert [*objects.store.prefixes()] == []
    assert [*objects.root.iterdir()] == []
    objects.store.delete(prefix)  # somebody else was quicker


def test_code_of_many_jobs_is_uploaded_once(objects: Objects, code: Code) -> None:
    uploads, sent = Uploads(objects.store, "cs"), []
    threads = [
        threading.Thread(target=lambda: sent.append(uploads.ensure(code, Path(code.source))))
        for _ in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(sent) == 20
    assert all(one is sent[0] for one in sent)


# ── over HTTP ──────────────────────────────────────────────────────────────────────────────────────


def md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


class Stub(BaseHTTPRequestHandler):
    """An S3 server in a dictionary, all objects of one age; `answers` come first, each for one request."""

    objects: ClassVar[dict[str, bytes]] = {}
    answers: ClassVar[list[tuple[int, str]]] = []
    seen: ClassVar[list[dict[str, str]]] = []

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.seen.append({"method": self.command, "path": self.path, **dict(self.headers)})
        if self.answers:
            status, code = self.answers.pop(0)
            self.reply(status, f"<Error><Code>{code}</Code><RequestId>R-1</RequestId></Error>".encode())
        elif self.path.endswith("/securitytokens"):
            keys = {
                "access": "AK",
                "secret": "SK-1",
                "securitytoken": "ST-1",
                "expires_at": "2099-01-01T00:00:00Z",
            }
            self.reply(201, json.dumps({"credential": keys}).encode())
        elif self.command == "PUT":
            self.objects[self.path] = body
            self.reply(200, b"", md5(body))
        elif "list-type" in self.path:
            bucket, _, query = self.path.partition("?")
            below = f"{bucket}/{parse_qs(query).get('prefix', [''])[0]}"
            listed = "".join(
                f"<Contents><Key>{unquote(path).removeprefix(bucket + '/')}</Key><Size>{len(body)}</Size>"
                f"<LastModified>2026-08-01T00:00:00.000Z</LastModified><ETag>{md5(body)}</ETag></Contents>"
                for path, body in sorted(self.objects.items())
                if unquote(path).startswith(below)
            )
            answer = f"<ListBucketResult>{listed}<IsTruncated>false</IsTruncated></ListBucketResult>"
            self.reply(200, answer.encode())
        elif self.command == "DELETE":
            self.objects.pop(self.path, None)
            self.reply(204, b"")
        elif self.path in self.objects:
            self.reply(200, self.objects[self.path], md5(self.objects[self.path]))
        else:
            self.reply(404, b"<Error><Code>NoSuchKey</Code></Error>")

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any  # noqa: N815 - as http.server has them

    def reply(self, status: int, body: bytes, etag: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Last-Modified", "Sat, 01 Aug 2026 00:00:00 GMT")
        if etag:
            self.send_header("ETag", f'"{etag}"')
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[str]:
    Stub.objects, Stub.answers, Stub.seen = {}, [], []
    with ThreadingHTTPServer(("127.0.0.1", 0), Stub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def cloud_store(endpoint: str, token: str = "") -> CodeStore:
    target = Target(kind="modelarts", region="cn-north-4", obs_endpoint=endpoint)
    return CodeStore(ADDRESS, open_objects(target, ADDRESS, lambda: Keys("AK", "SK", token), {}))


def test_files_are_sent_in_one_put_each_with_an_unsigned_payload(endpoint: str, code: Code) -> None:
    cloud_store(endpoint, "token-1").upload("cs", code, Path(code.source))
    puts = [seen for seen in Stub.seen if seen["method"] == "PUT"]
    digits = code.digest.removeprefix("sha256:")[:16]
    assert puts[-1]["path"] == f"/vision/code/cs/{digits}/manifest.json"
    assert len(puts) == 4
    for put in puts:
        assert put["x-amz-content-sha256"] == "UNSIGNED-PAYLOAD"
        assert put["x-amz-security-token"] == "token-1"
        assert "/cn-north-4/s3/aws4_request" in put["authorization"]
        assert not [name for name in put if "checksum" in name]


def test_files_are_deleted_by_one_request_each_the_manifest_first(endpoint: str, code: Code) -> None:
    store = cloud_store(endpoint)
    store.upload("cs", code, Path(code.source))
    [prefix] = store.prefixes()
    assert (len(prefix.keys), prefix.is_complete) == (4, True)
    Stub.seen.clear()
    store.delete(prefix)
    place = f"/vision/code/cs/{prefix.place.digits}"
    assert [f"{seen['method']} {seen['path']}" for seen in Stub.seen] == [
        f"DELETE {place}/{name}"
        for name in ("manifest.json", "src/pkg/a%20b.py", "src/pkg/%C3%BC.py", "src/train.py")
    ]
    assert not [name for seen in Stub.seen for name in seen if "checksum" in name]
    assert Stub.objects == {}


@pytest.mark.parametrize("word", sorted(REFUSALS))
def test_refusal_of_the_store_has_its_words_and_its_fix(endpoint: str, code: Code, word: str) -> None:
    Stub.answers = [(403, word)]
    with pytest.raises(ServiceError) as refused:
        cloud_store(endpoint).upload("cs", code, Path(code.source))
    [diagnostic] = refused.value.diagnostics
    assert type(refused.value) is REFUSALS[word].error
    assert REFUSALS[word].words in str(diagnostic.why)
    assert diagnostic.fix == REFUSALS[word].fix
    assert (refused.value.code, refused.value.request_id) == (word, "R-1")


def test_busy_store_is_asked_again(endpoint: str, code: Code) -> None:
    Stub.answers = [(503, "SlowDown")] * 2
    assert len(cloud_store(endpoint).upload("cs", code, Path(code.source)).files) == 3


def test_other_bytes_than_were_sent_are_noticed(code: Code) -> None:
    store: ObjectStore = MemoryStore()  # whose ETag is no MD5
    with pytest.raises(StoreFailed, match=r"arrived with the ETag \d"):
        CodeStore(ADDRESS, store).upload("cs", code, Path(code.source))


@pytest.mark.parametrize(
    ("settings", "objects", "iam"),
    [
        (
            {"region": "cn-north-4"},
            "https://obs.cn-north-4.myhuaweicloud.com",
            "https://iam.cn-north-4.myhuaweicloud.com",
        ),
        ({"region": "eu-de"}, "https://obs.eu-de.otc.t-systems.com", "https://iam.eu-de.otc.t-systems.com"),
        (
            {
                "region": "r",
                "obs_endpoint": "https://o.example.com",
                "iam_endpoint": "https://i.example.com/v3",
            },
            "https://o.example.com",
            "https://i.example.com",
        ),
    ],
)
def test_endpoints_are_those_of_the_region_or_the_target(
    settings: dict[str, str], objects: str, iam: str
) -> None:
    target = Target(kind="modelarts", **settings)  # type: ignore[arg-type]
    assert (store_endpoint(target), iam_endpoint(target, {})) == (objects, iam)


def test_iam_of_the_login_is_asked_for_keys() -> None:
    target = Target(kind="modelarts", region="cn-north-4")
    assert iam_endpoint(target, {"OS_AUTH_URL": "https://iam.example.com/v3"}) == "https://iam.example.com"
