"""Uploads to the store of a cloud: refused, truncated, changed; no job starts before its code is stored."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from reconciler import code
from reconciler.errors import ExitCode
from tests.cli.conftest import World, write
from tests.cli.terminal import run_on_terminal, start
from tests.cli.test_interrupted import interrupted
from tests.code.obs_server import SECURITY_TOKENS, Answer, ObsServer, Seen, running

MANIFEST = """\
apiVersion: reconciler/v1
stack: vision
targets:
  prod:
    kind: modelarts
    endpoint: {url}
    project_id: p1
    obs_endpoint: {obs}
    iam_endpoint: {obs}
    code_store: obs://vision/code/
defaults:
  algorithm: {{engine: {{engine_id: pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64}}}}
  spec: {{resource: {{flavor_id: modelarts.vm.cpu.2u}}}}
  lifecycle: {{on_change: replace}}
jobs:
  other: {{algorithm: {{code_dir: obs://b/code/, boot_file: obs://b/code/train.py}}}}
"""
JOB = """\
  {key}:
    code: {{source: ./src}}
    algorithm: {{boot_file: train.py}}
"""
FILES = ("helper.py", "train.py")


@pytest.fixture
def obs(world: World) -> Iterator[ObsServer]:
    """A store, and a stack with a job with code and one without."""
    with running() as server:
        declare(world, server)
        write("print(1)\n", "src/train.py")
        write("LOSS = 0.5\n", "src/helper.py")
        server.expires_at = "2999-01-01T00:00:00.000000Z"
        yield server


def declare(world: World, obs: ObsServer, *keys: str) -> None:
    jobs = "".join(JOB.format(key=key) for key in keys or ("train",))
    write(MANIFEST.format(url=world.url, obs=obs.url) + jobs)


def is_manifest(seen: Seen) -> bool:
    return seen.method == "PUT" and seen.path.endswith("manifest.json")


# ── refused ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("answer", "exit_code", "cause", "fix"),
    [
        (
            Answer(403, "AccessDenied", "PUT", None),
            ExitCode.UNAUTHORIZED,
            "access denied: obs:object:PutObject is missing",
            "grant obs:object:PutObject on vision/code/* to the owner of the key",
        ),
        (
            Answer(301, "PermanentRedirect", "", None, path="/vision"),
            ExitCode.PARTIAL,
            "the bucket is in another region",
            "use a bucket in the target's region",
        ),
        (
            Answer(503, "SlowDown", "PUT", None),
            ExitCode.PARTIAL,
            "the store is busy: the words of OBS for SlowDown",
            "run it again later",
        ),
    ],
)
def test_refused_upload_fails_its_action_alone_with_one_cause_and_one_fix(
    world: World, obs: ObsServer, answer: Answer, exit_code: int, cause: str, fix: str
) -> None:
    obs.answers = [answer]
    result = world.ends(exit_code, "apply --yes -v", lacks="Traceback")
    [line] = [line for line in result.out.splitlines() if re.match(r"\s+(failed|denied) +create train", line)]
    assert (line.count(cause), line.count(fix), line.count("to fix:")) == (1, 1, 1), line
    assert "1 succeeded" in result.out
    assert list(world.phases()) == ["other"]
    assert not [key for key in obs.objects if key.endswith("manifest.json")]
    obs.answers = []
    world.ends(ExitCode.DONE, "apply --yes", out="1 succeeded")


def test_replaced_job_runs_on_if_its_code_cannot_be_uploaded(world: World, obs: ObsServer) -> None:
    world.ends(ExitCode.DONE, "apply --yes")
    write("print(2)\n", "src/train.py")
    obs.answers = [Answer(503, "SlowDown", times=None)]
    world.ends(ExitCode.PARTIAL, "apply --yes --allow lost-work")
    assert sorted(world.phases()) == ["other", "train"]
    assert "StopTrainingJob" not in world.changes


def test_other_keys_go_on_while_an_upload_takes_long(
    world: World, obs: ObsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reconciler.code_store._PATIENCE_S", 0.05)
    declare(world, obs, "a-train")
    overtaken: list[bool] = []

    def hold(seen: Seen) -> None:
        ends_s = time.monotonic() + 20
        while seen.method == "PUT" and "other" not in world.phases() and time.monotonic() < ends_s:
            time.sleep(0.01)
        overtaken.append("other" in world.phases())

    obs.after = hold
    world.ends(ExitCode.DONE, "apply --yes", out="2 succeeded")
    assert overtaken[-1]


def test_unreadable_code_store_is_a_plan_warning(world: World, obs: ObsServer) -> None:
    obs.answers = [Answer(403, "AccessDenied", "GET", None)]
    world.ends(
        ExitCode.DONE,
        "plan",
        out=["the code store could not be read", "obs:bucket:ListBucket is missing", "  fix: "],
    )
    actions = world("plan --json").document["actions"]
    [planned] = [action["code"] for action in actions if action["key"] == "train"]
    assert planned["upload_bytes"] is None
    assert obs.requests("PUT") == []


def test_upload_shows_no_secret(world: World, obs: ObsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = {
        "TEMPORARY1",
        "temporary-secret-1",
        "security-token-1",
        "tell-nobody-1",
        "Signature=",
        "AWS4-HMAC",
    }
    output = ""
    for answers in (
        [],
        [Answer(403, "SignatureDoesNotMatch", "PUT", None)],
        [Answer(400, "NewError", "PUT", None)],
        [Answer(401, "", "POST", None, body=b'{"error_msg": "no tell-nobody-1"}', path=SECURITY_TOKENS)],
    ):
        obs.answers = list(answers)
        write(f"print({len(output)})\n", "src/train.py")
        for line in (
            "plan -vv",
            "plan --json",
            "apply --yes -vv --allow lost-work",
            "apply --yes --json -vv --allow lost-work",
        ):
            ended = world(line)
            output += ended.out + ended.err
    assert "NewError" in output
    assert [secret for secret in secrets if secret in output] == []


# ── temporary keys ─────────────────────────────────────────────────────────────────────────────────────


def login(world: World, obs: ObsServer, patch: pytest.MonkeyPatch) -> None:
    """Log in by password at an IAM whose token the service accepts."""
    patch.delenv("MODELARTS_AUTH_TOKEN")
    write(Path("jobs.yaml").read_text(encoding="utf-8").replace(f"    iam_endpoint: {obs.url}\n", ""))
    patch.setenv("OS_AUTH_URL", f"{obs.url}/v3")
    for name in ("OS_USERNAME", "OS_PASSWORD", "OS_USER_DOMAIN_NAME", "OS_PROJECT_NAME"):
        patch.setenv(name, f"my-{name.lower()}")
    token = Answer(201, "", "POST", None, {"X-Subject-Token": "tell-nobody-1"}, b"{}", "/v3/auth/tokens")
    obs.answers = [token]


@pytest.mark.parametrize("has_password", [False, True])
def test_keys_are_fetched_for_a_token_and_narrowed_to_the_store(
    world: World, obs: ObsServer, monkeypatch: pytest.MonkeyPatch, has_password: bool
) -> None:
    if has_password:
        login(world, obs, monkeypatch)
    world.ends(ExitCode.DONE, "apply --yes", out="2 succeeded")
    [asked] = obs.asked_for_keys
    assert asked["auth"]["identity"]["token"] == {"id": "tell-nobody-1", "duration_seconds": "3600"}
    objects, bucket = asked["auth"]["identity"]["policy"]["Statement"]
    assert objects["Resource"] == ["OBS:*:*:object:vision/code/*"]
    assert bucket == {
        "Effect": "Allow",
        "Action": ["obs:bucket:ListBucket"],
        "Resource": ["OBS:*:*:bucket:vision"],
    }
    for put in obs.requests("PUT"):
        assert put.access_key == "TEMPORARY1"
        assert put.headers["x-amz-security-token"] == "security-token-1"


def test_upload_keys_are_renewed_before_they_expire(world: World, obs: ObsServer) -> None:
    def let_time_pass(seen: Seen) -> None:
        obs.expires_at = datetime.fromtimestamp(world.time.now() + 3600, UTC).isoformat()
        if seen.method == "PUT" and not seen.path.endswith("manifest.json"):
            world.time.clock.advance(seconds=1700)

    obs.before = let_time_pass
    world.ends(ExitCode.DONE, "apply --yes --lease 3h", out="2 succeeded")
    used = {seen.path.rpartition("/")[2]: seen.access_key for seen in obs.requests("PUT")}
    assert used["manifest.json"] == "TEMPORARY2"


@pytest.mark.parametrize(
    ("answer", "exit_code", "cause"),
    [
        (
            Answer(401, body=b'{"error_msg": "The token has expired."}'),
            ExitCode.UNAUTHORIZED,
            "IAM rejected the request: The token",
        ),
        (
            Answer(403, body=b'{"error_msg": "no right"}'),
            ExitCode.UNAUTHORIZED,
            "IAM rejected the request: no right",
        ),
        (Answer(500, body=b"{}"), ExitCode.PARTIAL, "IAM returned none"),
        (Answer(201, body=b"no JSON"), ExitCode.PARTIAL, "IAM returned none"),
        (
            Answer(201, body=b'{"credential": {}}'),
            ExitCode.PARTIAL,
            "IAM returned none: its response contains",
        ),
        (Answer(302, headers={"Location": "http://h/"}), ExitCode.PARTIAL, "IAM returned none: a redirect"),
    ],
)
def test_iam_that_gives_no_keys_is_named_with_a_fix(
    world: World, obs: ObsServer, answer: Answer, exit_code: int, cause: str
) -> None:
    obs.answers = [answer._replace(path=SECURITY_TOKENS, times=None)]
    result = world("apply --yes")
    [line] = [line for line in result.out.splitlines() if re.match(r"\s+(failed|denied) +create train", line)]
    assert "no credentials for the code store" in line
    assert (line.count(cause), line.count("to fix:")) == (1, 1), line
    assert "iam_endpoint" in line
    assert list(world.phases()) == ["other"]
    assert result.code in (exit_code, ExitCode.UNAUTHORIZED)
    assert obs.requests("PUT") == []


@pytest.mark.parametrize("named", ["http://iam.example.com", "https://me:secret@iam.example.com"])
def test_token_is_not_sent_in_the_clear(world: World, obs: ObsServer, named: str) -> None:
    text = Path("jobs.yaml").read_text(encoding="utf-8")
    write(text.replace(f"iam_endpoint: {obs.url}", f"iam_endpoint: {named}"))
    world.ends(ExitCode.INVALID, "plan", err="targets.prod.iam_endpoint", lacks="secret@")


# ── cut off ────────────────────────────────────────────────────────────────────────────────────────────


class Cut:
    """Cuts off a client at its n-th PUT: nothing it sends afterwards arrives."""

    def __init__(self, obs: ObsServer, number: int, *, has_effect: bool) -> None:
        self._left, self._is_over = number, False
        self._lock = threading.Lock()
        obs.before, obs.after = (self.count, self.after) if has_effect else (self.before, lambda seen: None)

    def count(self, seen: Seen) -> None:
        with self._lock:
            if self._is_over:
                raise ConnectionError
            self._left -= seen.method == "PUT"

    def before(self, seen: Seen) -> None:
        self.count(seen)
        self.after(seen)

    def after(self, seen: Seen) -> None:
        with self._lock:
            if self._left <= 0 and seen.method == "PUT":
                self._is_over = True
                raise ConnectionError


@pytest.mark.parametrize("has_effect", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_truncated_upload_is_completed_and_starts_one_job(
    world: World, obs: ObsServer, number: int, has_effect: bool
) -> None:
    Cut(obs, number, has_effect=has_effect)
    world.ends(ExitCode.PARTIAL, "apply --yes")
    assert "train" not in world.phases()
    is_complete = number == 3 and has_effect
    assert any(key.endswith("manifest.json") for key in obs.objects) == is_complete
    there = set(obs.objects)
    obs.before = obs.after = lambda seen: None
    obs.seen.clear()
    world.ends(ExitCode.DONE, "apply --yes", out="1 succeeded")
    assert there.isdisjoint(obs.puts)
    assert sorted(key.rpartition("/")[2] for key in obs.objects) == ["helper.py", "manifest.json", "train.py"]
    assert sorted(world.phases()) == ["other", "train"]
    world.ends(ExitCode.DONE, "plan", out="2 to keep")


def processes_killed(*processes: subprocess.Popen[str]) -> None:
    for process in processes:
        process.kill()
        process.communicate()


def test_killed_upload_is_completed_by_the_next_apply(world: World, obs: ObsServer) -> None:
    killed: list[subprocess.Popen[str]] = []

    def kill(seen: Seen) -> None:
        if is_manifest(seen) and killed:
            os.kill(killed[0].pid, signal.SIGKILL)
            raise ConnectionError

    obs.before = kill
    killed.append(start("apply", "--yes"))
    killed[0].communicate(timeout=60)
    assert killed.pop().returncode == -signal.SIGKILL
    assert "train" not in world.phases()
    obs.before = lambda seen: None
    world.ends(ExitCode.DONE, "apply --yes")
    assert sorted(world.phases()) == ["other", "train"]
    assert len(obs.puts) == len(set(obs.puts)) == 3


class Held:
    """Holds every request of a kind until released."""

    def __init__(self, obs: ObsServer, method: str = "PUT") -> None:
        self.method = method
        self.has_come, self.may_go = threading.Event(), threading.Event()
        obs.before = self.hold

    def hold(self, seen: Seen) -> None:
        if seen.method == self.method and seen.path != SECURITY_TOKENS:
            self.has_come.set()
            self.may_go.wait(60)


@pytest.mark.parametrize("method", ["PUT", "GET"])
def test_interrupted_upload_creates_no_job(world: World, obs: ObsServer, method: str) -> None:
    held = Held(obs, method)
    try:
        interrupted(world, 130, held.has_come.is_set, "apply --yes --only train")
    finally:
        held.may_go.set()
    assert world.phases() == {}
    obs.before = lambda seen: None
    world.ends(ExitCode.DONE, "apply --yes")


@pytest.mark.parametrize("method", ["PUT", "GET"])
def test_second_signal_ends_a_store_that_hangs_at_once(world: World, obs: ObsServer, method: str) -> None:
    held = Held(obs, method)
    process = start("apply", "--yes")
    try:
        assert held.has_come.wait(30)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=10)
    finally:
        held.may_go.set()
        processes_killed(process)
    assert process.returncode == 130
    assert "train" not in world.phases()


def test_two_applies_at_once_upload_and_start_once(world: World, obs: ObsServer) -> None:
    held = Held(obs)
    first = start("apply", "--yes")
    try:
        assert held.has_come.wait(30)
        second = start("apply", "--yes", "--lock-timeout", "60s")
        third = start("apply", "--yes")
        third.communicate(timeout=60)
        assert third.returncode == ExitCode.LOCKED
        held.may_go.set()
        for process in (first, second):
            process.communicate(timeout=60)
            assert process.returncode == 0
    finally:
        held.may_go.set()
        processes_killed(first)
    assert sorted(world.phases()) == ["other", "train"]
    assert len(obs.puts) == 3


# ── changed, damaged, shared ───────────────────────────────────────────────────────────────────────────


def test_code_that_changes_during_the_upload_fails_the_action(world: World, obs: ObsServer) -> None:
    world.ends(ExitCode.DONE, "apply --yes")
    write("print(2)\n", "src/train.py")
    begun = iter(range(3))

    def edit(seen: Seen) -> None:
        # Both plan and apply list the prefix.
        if "list-type" in seen.query and "prefix" in seen.query and next(begun) == 1:
            write("print(3)\n", "src/train.py")

    obs.after = edit
    result = world.ends(
        ExitCode.PARTIAL, "apply --yes --allow lost-work", out="the code changed during upload: train.py"
    )
    assert "to fix:" in result.out
    assert sorted(world.phases()) == ["other", "train"]
    assert "StopTrainingJob" not in world.changes


@pytest.mark.parametrize("spoil", ["lost", "foreign", "manifest damaged"])
def test_damaged_code_in_the_store_is_restored_before_a_job_starts(
    world: World, obs: ObsServer, spoil: str
) -> None:
    world.ends(ExitCode.DONE, "apply --yes")
    before = dict(obs.objects)
    [file] = [key for key in before if key.endswith("train.py")]
    [manifest] = [key for key in before if key.endswith("manifest.json")]
    spoilt = manifest if "manifest" in spoil else file
    if "lost" in spoil:
        del obs.objects[spoilt]
    else:
        obs.objects[spoilt] = b"print(1)#"[: len(before[spoilt])]
    obs.seen.clear()
    world.set_phase("Completed")
    world.ends(ExitCode.DONE, "apply --yes --rerun train")
    assert obs.objects == before
    assert obs.puts == list(dict.fromkeys([spoilt, manifest]))


def test_code_of_many_jobs_is_read_and_uploaded_once(
    world: World, obs: ObsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(world, obs, *(f"train-{n:03}" for n in range(1000)))
    read: list[object] = []

    def counted(source: Any) -> Any:
        read.append(source)
        return code.read_code(source)

    monkeypatch.setattr("reconciler.manifest.jobs.read_code", counted)
    world.ends(ExitCode.DONE, "plan", out="1001 to create")
    assert len(read) == 1
    assert len([seen for seen in obs.seen if "list-type" in seen.query]) == 1
    declare(world, obs, *(f"train-{n:03}" for n in range(50)))
    obs.seen.clear()
    world.ends(ExitCode.DONE, "apply --yes", out="51 succeeded")
    assert len(read) == 2
    assert len(obs.puts) == 3
    assert len(obs.asked_for_keys) == 1


# ── files ──────────────────────────────────────────────────────────────────────────────────────────────


def test_overlong_object_key_is_refused_before_any_request(world: World, obs: ObsServer) -> None:
    deep = "/".join(["ü" * 100] * 5)
    write("x", f"src/{deep}.py")
    for command in ("validate", "plan"):
        result = world.ends(ExitCode.INVALID, command, err="in the store would have 1,0")
        assert "the limit is 1,023" in result.err
        assert "shorten its path" in result.err
    assert obs.seen == []
    assert world.requests == []


def test_full_disk_fails_the_action_and_names_the_file(world: World, obs: ObsServer) -> None:
    text = Path("jobs.yaml").read_text(encoding="utf-8")
    write(re.sub(r"(?s)  prod:.*?defaults", "  there: {kind: local}\ndefaults", text))
    Path("src/large.bin").write_bytes(b"x" * 4_000_000)
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))  # noqa: E731
    process = start("apply", "--yes", preexec_fn=limit)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == ExitCode.PARTIAL, out
    assert re.search(
        r"cannot write obs://local/code/vision/\w+/src/large.bin: .*File too large.*to fix: free up space",
        out,
    )
    assert "succeeded create other" in out


def test_unreadable_file_is_named_before_any_request(
    world: World, obs: ObsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = open

    def denied(file: Any, *arguments: Any, **more: Any) -> Any:
        if str(file).endswith("helper.py"):
            raise PermissionError(13, "Permission denied")
        return real(file, *arguments, **more)

    monkeypatch.setattr("builtins.open", denied)
    world.ends(ExitCode.INVALID, "apply --yes", err="helper.py cannot be read: Permission denied")
    assert world.requests == []


# ── progress ───────────────────────────────────────────────────────────────────────────────────────────


def test_progress_is_drawn_in_bytes_on_a_terminal_only(world: World, obs: ObsServer, tmp_path: Path) -> None:
    Path("src/large.bin").write_bytes(b"x" * 3_000_000)
    held = Held(obs)
    release = threading.Timer(6, held.may_go.set)
    release.start()

    def is_drawn(screen: list[str]) -> bool:
        if any("uploading code, 0 B of 3.0 MB" in line for line in screen):
            held.may_go.set()
        return False

    seen = run_on_terminal(tmp_path, "apply", "--yes", interrupt_when=is_drawn)
    release.cancel()
    assert seen.code == 0
    assert any("uploading code, 0 B of 3.0 MB" in line for screen in seen.screens for line in screen)
    assert not any("uploading" in line for line in seen.whole)
    write("print(2)\n", "src/train.py")
    world.ends(ExitCode.DONE, "apply --yes --allow lost-work", lacks="uploading")
