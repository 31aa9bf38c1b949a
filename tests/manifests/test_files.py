"""Which files make a stack, and which stack PATH stands for."""

from __future__ import annotations

import pytest

from reconciler.core.diagnostic import WrongUsage
from tests.manifests.conftest import HEAD, JOB, Place, place_of

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
        ("main.yaml", {"top"}, True),  # the root file, and nothing else
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


def test_several_paths_of_one_stack_are_seen_together(stack: Place) -> None:
    loaded = stack.load("main.yaml", "team")
    assert loaded.stack.jobs.keys() == {"top", "inner"}
    assert not loaded.stack.is_partial


def test_digests_are_the_same_whatever_path_names(stack: Place) -> None:
    stack.write("defaults: {spec: {runtime_type: debug}}\n", "team/defaults.yaml")
    whole, part = stack.load(), stack.load("main.yaml")
    assert whole.stack.jobs["top"].digest == part.stack.jobs["top"].digest
    assert whole.manifest_digest == part.manifest_digest


def test_the_only_stack_below_is_found(place: Place) -> None:
    place.write(ROOT + entry("a"), "deep/down/main.yaml")
    loaded = place.load()
    assert loaded.root == place.root / "deep" / "down"
    assert not loaded.stack.is_partial


def test_files_with_a_nearer_root_belong_to_that_stack(stack: Place) -> None:
    stack.write("stack: other\n" + entry("theirs"), "team/other/root.yaml")
    stack.write(entry("theirs-too"), "team/other/deep/jobs.yaml")
    assert stack.load().stack.declared_keys == {"top", "inner"}
    assert stack.load("team/other/deep").stack.name == "other"


def test_several_stacks_to_choose_from_are_wrong_use(place: Place) -> None:
    place.write("stack: one\n", "one/main.yaml")
    place.write("stack: two\n", "two/main.yaml")
    with pytest.raises(WrongUsage, match=r"several stacks.*/one.*/two"):
        place.load()
    with pytest.raises(WrongUsage, match="several stacks"):
        place.load("one", "two")


def test_a_path_that_does_not_exist_is_wrong_use(stack: Place) -> None:
    with pytest.raises(WrongUsage, match=r"no such path.*nowhere"):
        stack.load("nowhere")


@pytest.mark.parametrize("name", ["notes.txt", ".hidden.yaml", ".git/config.yaml"])
def test_a_named_file_that_is_no_manifest_is_wrong_use(stack: Place, name: str) -> None:
    stack.write("jobs: {}\n", name)
    with pytest.raises(WrongUsage, match="no manifest file"):
        stack.load(name)


def test_no_root_file_is_a_manifest_error(place: Place) -> None:
    place.write(entry("a"))
    assert place.problem().what == "no root file"


def test_two_root_files_in_one_directory_are_an_error_at_each(place: Place) -> None:
    place.write("apiVersion: reconciler/v1\nstack: one\n", "a.yaml")
    place.write("stack: two\n", "b.yaml")
    problems = place.problems()
    assert [problem.what for problem in problems] == ["two root files"] * 2
    assert [place_of(problem) for problem in problems] == ["a.yaml:2:1", "b.yaml:1:1"]


def test_hidden_files_and_directories_are_skipped(stack: Place) -> None:
    for name in (".draft.yaml", ".reconciler/x.yaml", ".git/y.yml"):
        stack.write("nonsense: [", name)
    assert len(stack.load().files) == 2


def test_a_variable_file_is_no_manifest_wherever_it_lies(stack: Place) -> None:
    stack.write("variables: {bucket: {}}\n", "vars.yaml")
    values = stack.write("bucket: data\n", "values.yaml")
    assert values not in stack.load(var_files=[values]).files
    assert [problem.what for problem in stack.problems()] == ["unknown field", "variable without a value"]


def test_a_stray_yaml_file_is_an_error(stack: Place) -> None:
    stack.write("services: {web: {image: nginx}}\n", "docker-compose.yaml")
    problem = stack.problem()
    assert (problem.what, place_of(problem)) == ("unknown field", "docker-compose.yaml:1:1")


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "---\n", "jobs:\n", "\ufeff"])
def test_an_empty_file_is_fine(stack: Place, text: str) -> None:
    stack.write(text, "empty.yaml")
    assert stack.load().stack.declared_keys == {"top", "inner"}


def test_a_root_file_with_a_mistake_in_its_yaml_is_still_the_root(place: Place) -> None:
    place.write("stack: vision\njobs: {\n")
    assert place.problem().what == "invalid YAML"


def test_the_manifest_digest_covers_names_and_bytes(stack: Place) -> None:
    before = stack.load().manifest_digest
    assert before.startswith("sha256:")
    assert stack.load().manifest_digest == before
    stack.write("# a comment\n", "more.yaml")
    commented = stack.load().manifest_digest
    (stack.root / "more.yaml").rename(stack.root / "other.yaml")
    assert len({before, commented, stack.load().manifest_digest}) == 3


def test_each_file_is_parsed_once(stack: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from reconciler.manifests import document

    parsed: list[str] = []
    compose = document.compose
    monkeypatch.setattr(document, "compose", lambda text: parsed.append(text) or compose(text))  # type: ignore[func-returns-value]
    stack.load()
    assert len(parsed) == 2
