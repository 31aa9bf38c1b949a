"""Code is uploaded once, completely or not at all, and damage in the store is repaired."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from obstore.store import MemoryStore, ObjectStore

from reconciler.code import CodeSource, read_code
from reconciler.code_store import REFUSALS, CodeStore, StoreFailed
from reconciler.core.code import Code, digits
from reconciler.core.stack import Target
from reconciler.errors import ServiceError
from reconciler.modelarts.http import Network
from reconciler.modelarts.objects import Keys, bucket_url, iam_endpoint, open_directory, open_objects
from tests.code.obs_server import Answer, ObsServer, running

ADDRESS = "obs://vision/code/"


@pytest.fixture
def code(tmp_path: Path) -> Code:
    for name in ("train.py", "pkg/a b.py", "pkg/ü.py"):
        (tmp_path / "src" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "src" / name).write_text(f"# {name}\n", encoding="utf-8")
    return read_code(CodeSource(tmp_path / "src"))._replace(source=str(tmp_path / "src"))


class Objects:
    """An object store in a directory, which a test may damage."""

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
def test_damaged_upload_is_repaired(
    objects: Objects, code: Code, spoil: Callable[[Path], object], sent: list[str]
) -> None:
    objects.upload(code)
    spoil(objects.place(code))
    assert objects.upload(code) == sent
    assert objects.upload(code) == []
    [prefix] = objects.store.prefixes()
    assert (prefix.digest, prefix.is_complete) == (code.digest, True)


def test_prefix_is_deleted_manifest_first(objects: Objects, code: Code) -> None:
    objects.upload(code)
    [prefix] = objects.store.prefixes("cs")
    assert (prefix.place.stack, prefix.files, len(prefix.keys)) == ("cs", 3, 4)
    objects.store.delete(prefix)
    assert [*objects.store.prefixes()] == []
    assert [*objects.root.iterdir()] == []
    objects.store.delete(prefix)  # uploaded concurrently


def test_name_that_no_directory_can_store_is_to_be_renamed(objects: Objects, code: Code) -> None:
    (Path(code.source) / "pkg/a#1").touch()
    with pytest.raises(StoreFailed, match=r"cannot write .*/pkg/a#1") as failed:
        objects.upload(read_code(CodeSource(Path(code.source)))._replace(source=code.source))
    assert failed.value.diagnostics[0].fix == "rename the file"


# ── over HTTP ──────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def obs() -> Iterator[ObsServer]:
    with running() as server:
        yield server


def cloud_store(
    obs: ObsServer, keys: Callable[[], Keys] = lambda: Keys("AK", "SK"), **more: Any
) -> CodeStore:
    target = Target(kind="modelarts", region="cn-north-4", obs_endpoint=obs.url)
    waits: dict[str, Any] = {"sleep": lambda seconds: None}
    return CodeStore(ADDRESS, open_objects(target, ADDRESS, keys, Network(), **more), **waits)


def test_files_are_sent_in_one_put_each_with_an_unsigned_payload(obs: ObsServer, code: Code) -> None:
    cloud_store(obs, lambda: Keys("AK", "SK", "token-1")).upload("cs", code, Path(code.source))
    puts = obs.requests("PUT")
    assert puts[-1].path == f"/vision/code/cs/{digits(code.digest)}/manifest.json"
    assert len(puts) == 4
    for put in puts:
        assert put.headers["x-amz-content-sha256"] == "UNSIGNED-PAYLOAD"
        assert put.headers["x-amz-security-token"] == "token-1"
        assert "/cn-north-4/s3/aws4_request" in put.headers["authorization"]
        assert not [name for name in put.headers if "checksum" in name]
    assert cloud_store(obs).upload("cs", code, Path(code.source)).is_complete
    assert len(obs.puts) == 4


def test_files_are_deleted_by_one_request_each_the_manifest_first(obs: ObsServer, code: Code) -> None:
    store = cloud_store(obs)
    store.upload("cs", code, Path(code.source))
    [prefix] = store.prefixes()
    assert (len(prefix.keys), prefix.is_complete) == (4, True)
    obs.seen.clear()
    store.delete(prefix)
    place = f"/vision/code/cs/{prefix.place.digits}"
    names = ("manifest.json", "src/pkg/a b.py", "src/pkg/ü.py", "src/train.py")
    assert [f"{seen.method} {seen.path}" for seen in obs.seen] == [f"DELETE {place}/{name}" for name in names]
    assert not [name for seen in obs.seen for name in seen.headers if "checksum" in name]
    assert obs.objects == {}


#: Variables that obstore would read from the environment.
NOWHERE = (
    "AWS_ENDPOINT",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_PROXY_URL",
    "HTTP_PROXY",
    "ALL_PROXY",
)
SWITCHES = ("AWS_SKIP_SIGNATURE", "AWS_S3_EXPRESS", "AWS_REQUEST_PAYER", "AWS_HTTP2_ONLY")
NAMES = (
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_BUCKET", "AWS_REGION"),
    *("AWS_DEFAULT_REGION", "AWS_ROLE_ARN", "AWS_CONDITIONAL_PUT"),
)
FOREIGN = {
    **dict.fromkeys(NOWHERE, "http://127.0.0.1:9"),
    **dict.fromkeys(SWITCHES, "true"),
    **dict.fromkeys(NAMES, "foreign"),
    "AWS_CHECKSUM_ALGORITHM": "sha256",
    "AWS_SERVER_SIDE_ENCRYPTION": "AES256",
    "AWS_UNSIGNED_PAYLOAD": "neither",
}


def test_environment_variables_do_not_affect_the_code_location(
    obs: ObsServer, code: Code, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud_store(obs).upload("cs", code, Path(code.source))
    plain = [(seen.path, seen.access_key, sorted(seen.headers)) for seen in obs.requests("PUT")]
    obs.objects.clear()
    obs.seen.clear()
    for name, value in FOREIGN.items():
        monkeypatch.setenv(name, value)
    cloud_store(obs).upload("cs", code, Path(code.source))
    assert sorted(
        (seen.path, seen.access_key, sorted(seen.headers)) for seen in obs.requests("PUT")
    ) == sorted(plain)
    assert {name: os.environ[name] for name in FOREIGN} == FOREIGN


def refused(obs: ObsServer, code: Code, **more: Any) -> ServiceError:
    with pytest.raises(ServiceError) as refusal:
        cloud_store(obs, **more).upload("cs", code, Path(code.source))
    return refusal.value


@pytest.mark.parametrize("word", sorted(REFUSALS))
def test_store_refusal_has_message_and_fix(obs: ObsServer, code: Code, word: str) -> None:
    obs.answers = [Answer(400, word, method="PUT", path="/vision", times=None)]
    refusal = refused(obs, code)
    [diagnostic] = refusal.diagnostics
    right = {"right": "obs:object:PutObject", "where": "vision/code/*"}
    assert type(refusal) is REFUSALS[word].error
    assert REFUSALS[word].words.format(**right) in diagnostic.why
    assert diagnostic.fix == REFUSALS[word].fix.format(**right)
    assert (refusal.code, refusal.request_id, refusal.status) == (word, "R-1", 400)
    assert not [key for key in obs.objects if key.endswith("manifest.json")]
    # Not retried, so each concurrent request is sent once.
    assert len(obs.puts) == len(set(obs.puts))


@pytest.mark.parametrize(
    ("method", "right", "where"),
    [("PUT", "obs:object:PutObject", "vision/code/*"), ("GET", "obs:bucket:ListBucket", "vision to")],
)
def test_missing_right_is_named(obs: ObsServer, code: Code, method: str, right: str, where: str) -> None:
    obs.answers = [Answer(403, "AccessDenied", method, None)]
    [diagnostic] = refused(obs, code).diagnostics
    assert f"{right} is missing" in diagnostic.why
    assert f"grant {right} on {where}" in str(diagnostic.fix)


@pytest.mark.parametrize("status", [301, 307])
@pytest.mark.parametrize("method", ["GET", "PUT"])
@pytest.mark.parametrize("has_location", [True, False])
def test_bucket_of_another_region_is_recognized_by_the_redirect(
    obs: ObsServer, code: Code, status: int, method: str, has_location: bool
) -> None:
    # Its response is irrelevant: obstore follows some redirects, unsigned.
    with running() as other:
        other.answers = [Answer(403, "AccessDenied", times=None)]
        where = {"Location": f"{other.url}/vision"} if has_location else {}
        elsewhere = Answer(status, "PermanentRedirect", method, None, where)
        obs.answers = [elsewhere]
        refusal = refused(obs, code, is_elsewhere=lambda: method == "GET")
    assert "the bucket is in another region" in str(refusal)


@pytest.mark.parametrize(
    ("status", "word"),
    [(503, "SlowDown"), (500, "InternalError"), (429, "TooManyRequests"), (409, "OperationAborted")],
)
def test_busy_store_is_retried_with_growing_delays(
    obs: ObsServer, code: Code, status: int, word: str
) -> None:
    obs.answers = [Answer(status, word, times=3)]
    assert len(cloud_store(obs).upload("cs", code, Path(code.source)).files) == 3
    obs.objects.clear()
    obs.answers, waits = [Answer(status, word, times=None)], list[float]()
    store = cloud_store(obs)
    store._sleep, store._chance = waits.append, lambda: 1.0
    with pytest.raises(StoreFailed, match=f"the store is busy: the words of OBS for {word}"):
        store.upload("cs", code, Path(code.source))
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0]


def test_unreachable_store_is_distinguished_from_a_refusing_one(code: Code, obs: ObsServer) -> None:
    obs.url = "http://127.0.0.1:9"
    [diagnostic] = refused(obs, code).diagnostics
    assert "the store cannot be reached: Connection refused" in diagnostic.why
    assert "obs_endpoint" in str(diagnostic.fix)


def test_store_response_with_secrets_is_not_repeated(obs: ObsServer, code: Code) -> None:
    for word in ("NewError", "InternalError", "SignatureDoesNotMatch", "AccessDenied"):
        obs.answers = [Answer(500, word, times=None)]
        text = str(refused(obs, code, keys=lambda: Keys("AKIDENTIFIER", "SECRET", "TOKEN")))
        for secret in ("AKIDENTIFIER", "SECRET", "TOKEN", "Signature=", "AWS4", "StringToSign"):
            assert secret not in text


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    """A third-party S3 server with a bucket."""
    pytest.importorskip("moto", reason="the extra `test` is not installed")
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    urlopen(Request(f"http://{host}:{port}/vision", method="PUT"))
    yield f"http://{host}:{port}"
    server.stop()


def test_third_party_server_stores_and_lists_uploads(moto: str, code: Code, tmp_path: Path) -> None:
    target = Target(kind="modelarts", region="us-east-1", obs_endpoint=moto)
    store = CodeStore(ADDRESS, open_objects(target, ADDRESS, lambda: Keys("AK", "SK", "token")))
    assert len(store.upload("cs", code, Path(code.source)).files) == 3
    assert store.upload("cs", code, Path(code.source)).is_complete
    (Path(code.source) / "train.py").write_text("# other\n", encoding="utf-8")
    other = read_code(CodeSource(Path(code.source)))
    assert len(store.upload("cs", other, Path(code.source)).files) == 3
    assert {prefix.digest for prefix in store.prefixes()} == {code.digest, other.digest}
    assert store.digests([("cs", digits(code.digest)), ("cs", "0" * 16)]) == {code.digest}
    for prefix in store.prefixes():
        store.delete(prefix)
    assert [*store.prefixes()] == []


def test_corrupted_upload_is_detected_by_its_etag(code: Code) -> None:
    store: ObjectStore = MemoryStore()  # whose ETag is no MD5
    with pytest.raises(StoreFailed, match=r"has the ETag \d"):
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
def test_endpoint_follows_from_region_or_target(settings: dict[str, str], objects: str, iam: str) -> None:
    target = Target(kind="modelarts", **settings)  # type: ignore[arg-type]
    assert (bucket_url(target, "b"), iam_endpoint(target, {})) == (objects.replace("//", "//b."), iam)


def test_bucket_is_addressed_by_its_host_over_https_and_by_a_path_on_this_machine() -> None:
    opened = [
        open_objects(
            Target(kind="modelarts", region="cn-north-4", obs_endpoint=endpoint), ADDRESS, Keys.__call__
        )
        for endpoint in (None, "http://127.0.0.1:9")
    ]
    said = [
        (str(store.config["endpoint"]), str(store.config["virtual_hosted_style_request"])) for store in opened
    ]
    there = "https://vision.obs.cn-north-4.myhuaweicloud.com"
    assert said == [(there, "true"), ("http://127.0.0.1:9", "false")]


def test_iam_endpoint_follows_from_the_login_url() -> None:
    target = Target(kind="modelarts", region="cn-north-4")
    assert iam_endpoint(target, {"OS_AUTH_URL": "https://iam.example.com/v3"}) == "https://iam.example.com"
