"""Which files make a stack, and which stack a PATH selects."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.errors import ManifestInvalid, WrongUsage
from reconciler.manifest.files import FileTree, files_digest, find_stack
from tests.manifest.conftest import HEAD, JOB, Place, place_of

ROOT = HEAD


def entry(key: str) -> str:
    return f"jobs:\n  {key}:{JOB}"


@pytest.fixture
def stack(place: Place) -> Place:
    """A root file with one job, and one job in a directory below."""
    place.write(ROOT + entry("top"))
    place.write(entry("inner"), "team/jobs.yml")
    return place


@pytest.mark.parametrize(
    ("path", "in_view", "is_partial"),
    [
        ("", {"top", "inner"}, False),
        ("main.yaml", {"top"}, True),  # only the root file
        ("team", {"inner"}, True),  # the root is the nearest above
        ("team/jobs.yml", {"inner"}, True),
    ],
)
def test_path_decides_which_jobs_are_in_view(
    stack: Place, path: str, in_view: set[str], is_partial: bool
) -> None:
    loaded = stack.load(path)
    assert loaded.stack.jobs.keys() == in_view
    assert loaded.stack.declared_keys == {"top", "inner"}
    assert loaded.stack.is_partial is is_partial
    assert loaded.root == stack.root


def test_digests_are_independent_of_the_given_path(stack: Place) -> None:
    stack.write("defaults: {spec: {runtime_type: debug}}\n", "team/defaults.yaml")
    whole, part = stack.load(), stack.load("main.yaml")
    assert whole.stack.jobs["top"].digest == part.stack.jobs["top"].digest
    assert whole.manifest_digest == part.manifest_digest


def test_only_stack_below_the_path_is_found(place: Place) -> None:
    place.write(ROOT + entry("a"), "deep/down/main.yaml")
    loaded = place.load()
    assert loaded.root == place.root / "deep" / "down"
    assert not loaded.stack.is_partial


def test_files_with_a_nearer_root_belong_to_that_stack(stack: Place) -> None:
    stack.write("stack: other\n" + entry("theirs"), "team/other/root.yaml")
    stack.write(entry("theirs-too"), "team/other/deep/jobs.yaml")
    assert stack.load().stack.declared_keys == {"top", "inner"}
    assert stack.load("team/other/deep").stack.name == "other"


def test_several_stacks_below_the_path_are_wrong_usage(place: Place) -> None:
    place.write("stack: one\n", "one/main.yaml")
    place.write("stack: two\n", "two/main.yaml")
    with pytest.raises(WrongUsage, match=r"several stacks.*/one.*/two"):
        place.load()
    with pytest.raises(WrongUsage, match="several stacks"):
        place.load("one", "two")


def test_nonexistent_path_is_wrong_usage(stack: Place) -> None:
    with pytest.raises(WrongUsage, match=r"no such path.*nowhere"):
        stack.load("nowhere")
    for name in (".", "nowhere.values", "a" * 300):
        with pytest.raises(WrongUsage, match=r"no such path.* is not a readable file"):
            stack.load(var_files=[stack.root / name])


@pytest.mark.parametrize("name", ["notes.txt", ".hidden.yaml", ".git/config.yaml"])
def test_named_file_that_is_no_manifest_is_wrong_usage(stack: Place, name: str) -> None:
    stack.write("jobs: {}\n", name)
    with pytest.raises(WrongUsage, match="no manifest file"):
        stack.load(name)


def test_misspelt_root_file_above_the_path_is_a_candidate(place: Place) -> None:
    place.write("stack_: vision\n")
    place.write("services: {}\n", "other.yaml")
    place.write("jobs: {}\n", "inner/jobs.yaml")
    assert sorted(map(place_of, place.problems("inner"))) == ["jobs.yaml:1:1", "main.yaml:1:1"]


def test_no_file_above_a_copy_is_a_candidate(place: Place) -> None:
    place.write("stack_: vision\n")
    place.write("jobs: {}\n", "copy/jobs.yaml")
    with pytest.raises(ManifestInvalid) as raised:
        find_stack([place.root / "copy"], tree=FileTree(place.root / "copy", "HEAD:"))
    assert [str(one.location) for one in raised.value.diagnostics] == ["HEAD:jobs.yaml:1:1"]


def test_candidates_beyond_twenty_are_counted(place: Place) -> None:
    for number in range(30):
        place.write("jobs: {}\n", f"f{number:02}.yaml")
    *shown, last = place.problems()
    assert len(shown) == 20
    assert last.why.startswith("10 more files in, above or below ")


def test_directory_without_manifests_suggests_init(place: Place) -> None:
    problem = place.problem()
    assert problem.why.startswith("there is no manifest file in, above or below ")
    assert problem.fix == "reconciler init"


def test_root_files_and_stacks_beyond_twenty_are_counted(place: Place) -> None:
    for number in range(25):
        place.write(f"stack: s{number}\n", f"root/{number}.yaml")
        place.write(f"stack: s{number}\n", f"stacks/{number}/a.yaml")
    (problem,) = place.problems("root")
    assert (problem.what, problem.why[-11:]) == ("two root files", " and 4 more")
    with pytest.raises(WrongUsage, match=r"several stacks.* and 5 more"):
        place.load("stacks")


def test_hidden_files_and_directories_are_skipped(stack: Place) -> None:
    for name in (".draft.yaml", ".reconciler/x.yaml", ".git/y.yml"):
        stack.write("nonsense: [", name)
    assert len(stack.load().files) == 2


def test_variable_file_is_never_a_manifest(stack: Place) -> None:
    stack.write("variables: {bucket: {}}\n", "vars.yaml")
    values = stack.write("bucket: data\n", "values.yaml")
    assert values.as_posix() not in stack.load(var_files=[values]).files
    values.rename(values.with_suffix(".secret"))
    values.symlink_to("values.secret")
    assert values.as_posix() not in stack.load(var_files=[values]).files
    assert [problem.what for problem in stack.problems()] == ["unknown field", "variable without a value"]


@pytest.mark.parametrize(
    ("include", "read"),
    [
        ("'*.yaml'", {"main.yaml", "values.yaml"}),
        ("./jobs/*.yaml", {"main.yaml", "jobs/a.yaml"}),
        ("[jobs/a.yaml, 'j*s/**/[b-c].yaml']", {"main.yaml", "jobs/a.yaml", "jobs/deep/er/b.yaml"}),
        ("jobs/**", {"main.yaml", "jobs/a.yaml", "jobs/deep/er/b.yaml", "jobs/deep/c.yml"}),
        ("'**/**/?.y*ml'", {"main.yaml", "jobs/a.yaml", "jobs/deep/er/b.yaml", "jobs/deep/c.yml"}),
        ("link/**/*.yml", {"main.yaml", "link/c.yml"}),
        ("[]", {"main.yaml"}),
        ("", {"main.yaml", "values.yaml", "jobs/a.yaml", "jobs/deep/er/b.yaml", "jobs/deep/c.yml"}),
    ],
)
def test_include_of_the_root_file_names_the_manifests(place: Place, include: str, read: set[str]) -> None:
    place.write(f"{ROOT}include: {include}\n")
    for name in ("jobs/a.yaml", "jobs/deep/er/b.yaml", "jobs/deep/c.yml"):
        place.write(entry(Path(name).stem), name)
    place.write("limits: {terminations: 3}\n", "values.yaml")
    place.write("stack: other\n", "jobs/stack/own.yaml")
    (place.root / "link").symlink_to(place.root / "jobs" / "deep")
    loaded = place.load()
    assert {Path(file).relative_to(place.root).as_posix() for file in loaded.files} == read
    digest = files_digest(place.root)
    for path in place.root.glob("jobs/*.yaml"):
        path.write_text("jobs: {}\n", encoding="utf-8")
    assert (files_digest(place.root) != digest) is ("jobs/a.yaml" in read)
    assert (place.load().manifest_digest != loaded.manifest_digest) is ("jobs/a.yaml" in read)


@pytest.mark.parametrize("glob", ["*/" * 300_000, "**/" * 200_000, "*a" * 300_000])
def test_overlong_glob_is_refused(stack: Place, glob: str) -> None:
    stack.write(f'{ROOT}include: ["{glob}*.yaml"]\n')
    stack.write(entry("left-out"), "jobs/deep/a.yaml")
    (problem,) = stack.problems()
    assert (problem.what, f"it has {len(glob) + 6} characters" in str(problem.why)) == ("invalid glob", True)


def test_file_not_included_is_not_read_and_is_no_path(stack: Place) -> None:
    stack.write(ROOT + entry("top") + "include: team/*.yml\n")
    stack.write("bucket: data\n", "values.yaml")
    (stack.root / "gone.yaml").symlink_to("nowhere.yaml")
    (stack.root / "data").mkdir(mode=0)
    assert not stack.load("").stack.is_partial
    with pytest.raises(WrongUsage, match=r"values.yaml: .* include"):
        stack.load("values.yaml")


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "---\n", "jobs:\n", "\ufeff"])
def test_empty_file_is_valid(stack: Place, text: str) -> None:
    stack.write(text, "empty.yaml")
    assert stack.load().stack.declared_keys == {"top", "inner"}


def test_manifest_digest_covers_names_and_bytes(stack: Place) -> None:
    before = stack.load().manifest_digest
    assert before.startswith("sha256:")
    assert stack.load().manifest_digest == before
    stack.write("# a comment\n", "more.yaml")
    commented = stack.load().manifest_digest
    (stack.root / "more.yaml").rename(stack.root / "other.yaml")
    assert len({before, commented, stack.load().manifest_digest}) == 3


def test_each_file_is_parsed_once(stack: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from reconciler.manifest import yaml

    parsed: list[str] = []
    compose = yaml.compose
    monkeypatch.setattr(yaml, "compose", lambda text: parsed.append(text) or compose(text))  # type: ignore[func-returns-value]
    stack.load()
    assert len(parsed) == 2


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_root_file_has_a_fix(place: Place, encoding: str) -> None:
    path = place.write("")
    path.write_bytes(("\ufeff" + ROOT).encode(encoding))
    problem = place.problem()
    assert (problem.what, problem.fix) == ("invalid YAML", "save the file as UTF-8")


# ── links to directories, and deep ones ────────────────────────────────────────────────────────────


@pytest.fixture
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("elsewhere"))


def test_link_to_a_directory_is_followed(stack: Place, elsewhere: Place) -> None:
    elsewhere.write(entry("shared"), "deep/jobs.yaml")
    (stack.root / "common").symlink_to(elsewhere.root)
    loaded = stack.load()
    assert loaded.stack.declared_keys == {"top", "inner", "shared"}
    assert loaded.files[0] == (stack.root / "common/deep/jobs.yaml").as_posix()


@pytest.mark.parametrize("target", [".", "..", "team", "team/..", "../.."])
def test_cyclic_or_redundant_link_reads_nothing_twice(stack: Place, target: str) -> None:
    (stack.root / "team" / "again").symlink_to(target, target_is_directory=True)
    (stack.root / "first").symlink_to(target, target_is_directory=True)
    loaded = stack.load()
    assert loaded.stack.declared_keys == {"top", "inner"}
    assert loaded.files == (f"{stack.root}/main.yaml", f"{stack.root}/team/jobs.yml")


def test_two_links_to_one_directory_are_read_once(stack: Place, elsewhere: Place) -> None:
    elsewhere.write(entry("shared"), "jobs.yaml")
    (elsewhere.root / "back").symlink_to(stack.root)
    for name in ("b", "a"):
        (stack.root / name).symlink_to(elsewhere.root)
    assert stack.load().stack.declared_keys == {"top", "inner", "shared"}
    assert stack.load().files[0] == f"{stack.root}/a/jobs.yaml"


def test_link_to_another_stack_is_not_read(stack: Place, elsewhere: Place) -> None:
    elsewhere.write("stack: other\n" + entry("theirs"))
    (stack.root / "other").symlink_to(elsewhere.root)
    assert stack.load().stack.declared_keys == {"top", "inner"}
