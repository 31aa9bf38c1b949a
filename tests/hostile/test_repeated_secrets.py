"""Whole commands against a service that echoes every secret it can know.

All output of a command is checked: stdout, stderr, each format as a file, the files of a CI
service, the saved plan, the page of the history, metrics, reports, the record store, and notifications.
(Metrics that are served or pushed have no label that the service gives.)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from reconciler.cli.console import console
from reconciler.cli.main import cli, run
from reconciler.emulator import ManualClock, Store, create_app, running
from reconciler.secrets import REDACTED, Redactor
from tests.apply.service import SharedTime
from tests.cli.conftest import JOB, manifest
from tests.hostile.sizes import FUZZ, RecordProperty, count_tried
from tests.hostile.spellings_of_secrets import SECRETS, SPELLINGS, leak_of
from tests.notify.receiver import receiving

TOKEN = "Tk-9f31_bQ7zVd.XwL2m/e+r"
#: The source of each secret. The token is in use; the others are available but unused.
ENVIRONMENT = {
    "MODELARTS_AUTH_TOKEN": TOKEN,
    "OS_TOKEN": "other-token-Lw82kd",
    "HW_ACCESS_KEY": "AKHALFWITHOUTOTHER9",
    "OS_PASSWORD": SECRETS["password"],
    "HTTPS_PROXY": "http://anna:pr0xy%2Fpazz@proxy.invalid:3128",
    "PGPASSWORD": "pg-Secret-77xq",
    "THE_TOKEN": SECRETS["token"],
    "THE_KEY": SECRETS["key with lines"],
    "THE_PIN": SECRETS["number"],
}
FILE = "[basic]\nak = AKFROMTHEFILE00017\nsk = skFromTheFile/ab+9xQe\nproject_id = p1\n"
ALL = {
    **{name: value for name, value in ENVIRONMENT.items() if name != "HTTPS_PROXY"},
    "proxy": "pr0xy/pazz",
    "file's ak": "AKFROMTHEFILE00017",
    "file's sk": "skFromTheFile/ab+9xQe",
    "given": SECRETS["letters beyond ASCII"],
    "in place": "tell/nobody+9!xQz",
}
MANIFEST = """\
apiVersion: reconciler/v1
stack: test
targets:
  there: {kind: modelarts, endpoint: 'URL', project_id: p1}
variables:
  token: {env: THE_TOKEN, sensitive: true}
  key: {env: THE_KEY, sensitive: true}
  pin: {env: THE_PIN, sensitive: true}
  given: {sensitive: true}
jobs:
"""
MANIFEST += JOB.format(key="train", lr="0.1").replace(
    "parameters: {lr: 0.1}",
    "environments: {T: 'Bearer ${var.token}', K: '${var.key}', P: '${var.pin}', G: '${var.given}'}",
)
MANIFEST += JOB.format(key="other", lr="0.2").replace(
    "{lr: 0.2}", "{lr: 0.2, hush: {value: tell/nobody+9!xQz, sensitive: true}}"
)


Place = tuple[str | int, ...]


class Repeater:
    """Forwards requests, and writes secrets into responses: values, names, messages, logs, headers.

    Where `place` says so, only one secret is written, into one text of each job. `refuses` begins the
    requests that are refused: a method, and the end of a path.
    """

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.app: Any = create_app(store, project_id="p1", token=TOKEN)
        self.store, self.clock = store, clock
        self.spell: Callable[[str], str] = str
        self.refuses: str | None = None
        self.place: Place = ()
        self.url = ""

    @property
    def echo(self) -> str:
        return " | ".join(self.spell(secret) for secret in ALL.values())

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        told: list[Any] = []
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        headers = [("Content-Type", "application/json"), ("X-Request-Id", f"id {self.spell(TOKEN)}"[:200])]
        headers = [(name, value.encode("latin-1", "replace").decode("latin-1")) for name, value in headers]
        headers = [(name, "".join(c if c.isprintable() else " " for c in value)) for name, value in headers]
        if self.refuses and f"{method} {path.rpartition('/')[2]}".startswith(self.refuses):
            start_response("400 Bad Request", headers)
            message = f"no: {environ.get('HTTP_X_AUTH_TOKEN')} {self.echo}"
            return [json.dumps({"error_code": "ModelArts.2757", "error_msg": message}).encode()]
        content = b"".join(self.app(environ, lambda status, headers, _=None: told.append((status, headers))))
        start_response(told[-1][0], headers)
        try:
            answer = json.loads(content)
        except ValueError:
            return [content]
        if isinstance(answer, dict) and not self.place:
            self._write_everywhere(answer)
        elif isinstance(answer, dict):
            for job in answer.get("items") or [answer]:
                self._write(job, self.place)
        return [json.dumps(answer).encode()]

    def _write(self, job: Any, place: Place) -> None:
        *above, name = place
        with suppress(LookupError, TypeError):
            for step in above:
                job = job[step]
            job[name] = f"{ALL['in place']} {job[name]}"

    def _write_everywhere(self, answer: dict[str, Any]) -> None:
        for job in answer.get("items", [answer]):
            if "metadata" in job:
                job["metadata"]["annotations"] = {self.echo: self.echo, "pin": int(SECRETS["number"])}
                job["metadata"]["user_name"] = self.echo
                job["status"]["secondary_phase"] = self.echo
                job[self.spell(TOKEN)] = {"deep": [self.echo]}
        for event in answer.get("events", []):
            event["message"] = self.echo
        if "content" in answer:
            lines = "".join(f"one line\n{self.spell(secret)}\n" for secret in ALL.values())
            answer["content"] = lines + "end\n"
            answer["full_size"] = len(answer["content"].encode()) + 10


@pytest.fixture
def repeater(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Repeater]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    credentials = tmp_path / "home" / ".huaweicloud" / "credentials"
    credentials.parent.mkdir(parents=True)
    credentials.write_text(FILE, encoding="utf-8")
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(console, "redact", Redactor())
    monkeypatch.setattr(console, "verbosity", 0)
    monkeypatch.setattr(console, "log_format", "text")
    clock = ManualClock()
    monkeypatch.setattr("reconciler.modelarts.clock.SystemClock", lambda *_: SharedTime(clock))
    with Store(clock=clock) as store:
        repeater = Repeater(store, clock)
        with running(repeater) as repeater.url:
            (tmp_path / "stack").mkdir()
            text = MANIFEST.replace("URL", repeater.url)
            (tmp_path / "stack" / "jobs.yaml").write_text(text, encoding="utf-8")
            yield repeater


def look_through(outputs: Mapping[str, str], secrets: Mapping[str, str], depth: int) -> int:
    """Check that no output leaks a secret; return the number of checked pairs."""
    for name, secret in secrets.items():
        for place, output in outputs.items():
            assert leak_of(secret, output, depth) is None, (place, name)
    return len(outputs) * len(secrets)


def written_files(directory: Path) -> dict[str, str]:
    """Return the files written by commands, without manifests and the credentials file."""
    return {
        str(file): file.read_bytes().decode("utf-8", "replace")
        for file in sorted(directory.rglob("*"))
        if file.is_file() and "home" not in file.parts and file.suffix != ".yaml"
    }


GIVEN = ("--var", f"given={ALL['given']}")
#: Commands, each with the requests refused meanwhile.
COMMANDS: tuple[tuple[str, str | None], ...] = (
    ("plan stack -vv", None),
    ("plan stack --json", None),
    ("plan stack --only train --out saved.plan --log-format json -vv", None),
    ("show saved.plan", None),
    ("apply stack --yes -vv", "POST training-jobs"),
    ("apply stack --yes --json --log-format json -vv", None),
    ("plan stack -o text=plan.txt -o json=plan.json", None),
    ("drift stack", None),
    ("drift stack --json", None),
    *((f"status stack{form}", None) for form in ("", " --json")),
    *((f"jobs list stack{form}", None) for form in ("", " --json")),
    *((f"jobs show train stack{form}", None) for form in ("", " --json")),
    *((f"jobs logs train stack{form}", None) for form in ("", " --lines 7", " --json")),
    *((f"jobs events train stack{form}", None) for form in ("", " --json")),
    ("export train other --in stack -vv", None),
    *((f"doctor stack{form}", None) for form in ("", " --json")),
    ("plan stack", "POST training-job-searches"),
    ("plan stack --log-format json -vv", "POST training-job-searches"),
    ("destroy stack --yes", None),
    ("jobs logs train stack --follow", None),
    ("jobs logs train stack --follow --json", None),
    ("history stack", None),
    ("history stack -v", None),
    ("history train stack --json", None),
    ("validate stack/wrong.yaml", None),
    ("validate stack/wrong.yaml --log-format json", None),
)
#: Expected exit codes: by refused request, else by command.
CODES: dict[str, tuple[int, ...]] = {
    "POST training-jobs": (5,),
    "POST training-job-searches": (8,),
    "validate": (65,),
    "doctor": (0, 1, 7),
    "export": (8,),  # a secret in the name of an annotation: no manifest can declare that
    **dict.fromkeys(("plan", "show", "apply", "drift", "status", "jobs", "destroy", "history"), (0,)),
}


@pytest.mark.parametrize("form", SPELLINGS if FUZZ else ["raw", "basic auth"])
def test_secret_echoed_by_the_service_is_redacted_by_every_command(
    repeater: Repeater,
    form: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    record_property: RecordProperty,
) -> None:
    repeater.spell = SPELLINGS[form]
    looked_through, shown = 0, ""
    for command, refuses in COMMANDS:
        repeater.refuses = refuses
        repeater.clock.advance(minutes=5)
        if command.startswith("validate"):
            other = ENVIRONMENT["OS_TOKEN"]
            algorithm = f"{{code_dir: '{SECRETS['token']}', {other}: {TOKEN}}}"
            wrong = f"jobs:\n  {other}:\n    algorithm: {algorithm}\n"
            (tmp_path / "stack" / "wrong.yaml").write_text(wrong, encoding="utf-8")
        takes_variables = command.split()[0] in ("plan", "apply", "validate", "status", "drift", "destroy")
        code = run(cli, [*command.split(), *(GIVEN if takes_variables else ())])
        text = capsys.readouterr()
        assert code != 70, (command, text.err)
        shown += text.out
        assert code in CODES[refuses or command.split()[0]], (command, code, text.err)
        assert text.out + text.err
        looked_through += look_through({command: text.out, f"{command} (stderr)": text.err}, ALL, 2)
    looked_through += look_through(written_files(tmp_path), ALL, 1)
    assert REDACTED in shown
    row = "secrets in outputs"
    count_tried(record_property, row, looked_through)


FORMATS = ("markdown", "html", "junit", "sarif", "prometheus", "json", "github")
#: Identity and state of a job, needed for any output.
IDENTITY = {("metadata", "id"), ("metadata", "name"), ("status", "phase")}


def texts(tree: Any, place: Place = ()) -> Iterator[Place]:
    """Yield every path of a text in plain data."""
    if isinstance(tree, str):
        yield place
    elif isinstance(tree, dict | list):
        for step, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from texts(value, (*place, step))


def test_secret_in_any_text_field_of_the_service_is_redacted_in_every_channel(
    repeater: Repeater,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    record_property: RecordProperty,
) -> None:
    secret = {"secret": ALL["in place"]}
    monkeypatch.setenv("THE_TOKEN", ALL["in place"])
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "github-output"))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "github-summary"))
    looked_through = 0

    def look(command: str) -> None:
        nonlocal looked_through
        code = run(cli, command.split())
        said = capsys.readouterr()
        assert code != 70, said.err
        outputs = {command: said.out, f"{command} (stderr)": said.err}
        looked_through += look_through(outputs, {str(repeater.place): ALL["in place"]}, 2)

    files = " ".join("-o github" if name == "github" else f"-o {name}={name}.out" for name in FORMATS)
    with receiving() as receiver:
        more = "variables: {token: {env: THE_TOKEN, sensitive: true}}\n"
        more += f"notify: [{{url: '{receiver.url('chat')}'}}]\n"
        text = manifest("a", "b", url=repeater.url, more=more)
        (tmp_path / "stack" / "jobs.yaml").write_text(text, encoding="utf-8")
        repeater.place = ("nowhere",)
        assert run(cli, ["apply", "stack", "--yes"]) == 0
        job = json.loads(repeater.store.jobs()[0].body_text)
        fields = [place for place in texts(job) if place not in IDENTITY]
        fields += [("metadata", "user_name"), ("status", "secondary_phase"), ("status", "phase")]
        assert len(fields) > 10
        for repeater.place in fields:
            look(f"plan stack --show-keep --out saved.plan {files}")
            look(f"drift stack --remind 0s {files}")
        repeater.place, repeater.refuses = ("metadata", "description"), "PUT "
        look(f"apply stack --yes {files}")
        look("history stack --html history.html")
    looked_through += look_through(written_files(tmp_path), secret, 1)
    said = (json.dumps(message, ensure_ascii=False) for message in receiver.messages["chat"])
    looked_through += look_through({f"message {n}": text for n, text in enumerate(said)}, secret, 2)
    titles = {title.split(": ")[1].split(",")[0] for title in receiver.titles("chat")}
    assert titles == {"drift", "apply failed"}
    row = "secrets in outputs"
    count_tried(record_property, row, looked_through)
