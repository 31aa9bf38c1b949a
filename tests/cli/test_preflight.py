"""Pre-flight as a user meets it: in plan, apply and saved plans, over the emulator."""

from __future__ import annotations

import pytest

import reconciler as api
from reconciler.errors import ExitCode
from tests.cli.conftest import Reconciler, Service, World, manifest, write

FLAVOR, TYPO = "modelarts.vm.cpu.2u", "modelarts.vm.cpu.2x"
FLAVORS, ENGINES = "ShowTrainingJobFlavors", "ShowTrainingJobEngines"
QUOTAS, POOL = "ShowTrainingQuotas", "ShowTrainingFlavorMaxAvailableResource"
CHANGING = {"CreateTrainingJob", "ChangeTrainingJobDescription", "StopTrainingJob", "DeleteTrainingJob"}


def stack(service: Service, *keys: str, typo: str = "", lr: str = "0.1") -> str:
    """A manifest of these jobs, one of which names a flavor that does not exist."""
    text = manifest(*keys, url=service.url, lr=lr)
    head, found, tail = text.partition(f"  {typo}:\n" if typo else text)
    return head + found + tail.replace(FLAVOR, TYPO, 1)


def asked(world: World, *operations: str) -> list[int]:
    return [sum(one.operation == operation for one in world.service.app.requests) for operation in operations]


def nothing_was_changed(world: World) -> bool:
    return not CHANGING & {*world.requests}


# ── plan ───────────────────────────────────────────────────────────────────────────────────────────


def test_finding_has_key_location_value_and_fix(world: World) -> None:
    write(stack(world.service, "a", "b", typo="b"))
    result = world.ends(ExitCode.REFUSED, "plan --detailed-exitcode")
    detail = f'spec.resource.flavor_id "{TYPO}" is not offered by the target'
    hint = "use one of: reconciler flavors --target there"
    where = "error: flavor not offered\n  --> jobs.yaml:15:3  jobs.b.spec.resource.flavor_id\n"
    assert f"  ! blocked   b       pre-flight: {detail}; {hint}; blocks create\n" in result.out
    assert result.err == where
    assert world("plan --json").err == f"{where}  why: b: {detail}\n  fix: {hint}\n"
    assert nothing_was_changed(world)
    result = world.ends(ExitCode.REFUSED, "apply --yes", out="skipped   blocked b: pre-flight\n")
    assert (result.out + result.err).count("not offered by") == 1


def test_catalog_is_read_once_if_a_job_would_start(world: World) -> None:
    write(stack(world.service, "a", typo="a"))
    document = world.ends(0, "plan --no-preflight --json").document
    assert (document["preflight"], document["applyable"]) == (None, True)
    assert asked(world, FLAVORS, ENGINES, QUOTAS) == [0, 0, 0]
    write(stack(world.service, "a", "b"))
    document = world.ends(0, "plan --json", err="").document
    assert (document["preflight"], document["warnings"]) == ([], [])
    assert asked(world, FLAVORS, ENGINES, QUOTAS) == [1, 1, 1]
    world.ends(0, "apply --yes")
    world.forget_requests()
    assert world.ends(0, "plan --json").document["preflight"] is None
    assert asked(world, FLAVORS, ENGINES, QUOTAS) == [0, 0, 0]


@pytest.mark.parametrize(
    ("option", "code", "message"),
    [("", ExitCode.REFUSED, "not offered"), ("--no-preflight", ExitCode.PARTIAL, "a was left unchanged")],
)
def test_replace_is_blocked_by_a_finding_and_rechecked_at_apply(
    world: World, option: str, code: ExitCode, message: str
) -> None:
    write(stack(world.service, "a"))
    world.ends(0, "apply --yes")
    world.time.sleep(10)
    write(stack(world.service, "a", "b", typo="a"))
    plan = world(f"plan --json {option}")
    found = [one["key"] for one in plan.document["preflight"] or ()]
    assert (plan.code, found) == ((0, []) if option else (ExitCode.REFUSED, ["a"]))
    world.forget_requests()
    world.ends(code, f"apply --yes {option}", out=message)
    assert {job.name: job.life.phase for job in world.store.jobs()} == {"a": "Running", "b": "Creating"}
    assert asked(world, FLAVORS, ENGINES, QUOTAS) == ([1, 1, 0] if option else [1, 1, 1])


@pytest.mark.parametrize("operation", [FLAVORS, ENGINES, QUOTAS])
def test_refused_catalog_request_is_a_warning(world: World, operation: str) -> None:
    write(stack(world.service, "a"))
    world.fail(operation, status=403, code="ModelArts.0403", count=None)
    document = world.ends(0, "plan --json").document
    assert (document["applyable"], document["complete"]) == (True, True)
    [warning] = document["warnings"]
    part = {FLAVORS: "flavors", ENGINES: "engines", QUOTAS: "quota"}[operation]
    assert warning["what"] == "pre-flight is incomplete"
    assert warning["why"].startswith(f"{part} not checked: ")


# ── apply ──────────────────────────────────────────────────────────────────────────────────────────


def test_apply_skips_a_key_with_a_finding_even_if_forced(world: World) -> None:
    write(stack(world.service, "a", "b", "gone"))
    world.ends(0, "apply --yes --only gone")
    world.time.sleep(10)
    write(stack(world.service, "a", "b", typo="b"))
    world.forget_requests()
    result = world.ends(ExitCode.REFUSED, "apply --yes --json --force")
    [skipped] = [event for event in result.events if event["type"] == "action_skipped"]
    assert (skipped["key"], skipped["action"]) == ("b", "blocked")
    assert skipped["detail"].startswith(f'pre-flight: spec.resource.flavor_id "{TYPO}"')
    expected = {"a": "Creating", "gone": "Terminating"}
    assert {job.name: job.life.phase for job in world.store.jobs()} == expected
    assert "jobs.yaml:15:3" in result.err
    assert asked(world, FLAVORS, ENGINES, QUOTAS) == [1, 1, 1]


def test_nonexistent_pool_is_refused(world: World) -> None:
    object.__setattr__(world.service.app.settings, "strict_catalogue", True)
    for pool, code in (("poolfaf38d76", 0), ("poolfaf38d67", ExitCode.REFUSED)):
        write(world.manifest("a").replace(f"flavor_id: {FLAVOR}", f"pool_id: {pool}"))
        result = world.ends(code, "plan")
        assert ("pool rejected" in result.err) is bool(code)
    assert asked(world, FLAVORS, POOL) == [0, 2]


def test_cloud_without_quota_and_pools_gets_no_such_request(world: World) -> None:
    object.__setattr__(world.service.app.settings, "cloud", "otc")
    text = world.manifest("a", "b").replace("project_id: p1", "project_id: p1, cloud: otc")
    write(text.replace(f"flavor_id: {FLAVOR}", "pool_id: pool1", 1))
    document = world.ends(0, "plan --json").document
    assert (document["preflight"], document["warnings"]) == ([], [])
    world.ends(0, "apply --yes", lacks="pre-flight")


# ── saved plans ────────────────────────────────────────────────────────────────────────────────────


def test_saved_plan_is_blocked_by_current_findings(world: World) -> None:
    write(stack(world.service, "a", "b"))
    world.ends(0, "plan --out plan.json")
    world.store.quota = 1
    result = world.ends(ExitCode.REFUSED, "apply --plan plan.json --yes")
    assert "pre-flight: 1 of 1 job records are left in the project, and 2 would be created" in result.out
    assert nothing_was_changed(world)
    world.store.quota = 2
    world.ends(0, "apply --plan plan.json --yes")


def test_findings_of_a_saved_plan_are_shown_and_block_its_keys(world: World) -> None:
    write(stack(world.service, "a", typo="a"))
    world.ends(ExitCode.REFUSED, "plan --out plan.json")
    shown = world("show plan.json")
    assert f'pre-flight: spec.resource.flavor_id "{TYPO}" is not offered by the target' in shown.out
    document = world("show plan.json --json").document
    assert [one["key"] for one in document["preflight"]] == ["a"]
    world.ends(ExitCode.REFUSED, "apply --plan plan.json --yes")
    assert nothing_was_changed(world)


# ── the local target ───────────────────────────────────────────────────────────────────────────────


def test_local_target_takes_what_its_catalog_lacks(reconciler: Reconciler) -> None:
    write(manifest("a").replace(FLAVOR, TYPO))
    result = reconciler("why a")
    assert (result.code, "not applied" in result.out, "not offered" in result.out) == (0, False, False)
    reconciler.ends(0, "plan", lacks="not offered")
    reconciler.ends(0, "apply --yes")


# ── the Python API ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("given", ["with findings", "without"])
def test_python_api_skips_the_key_of_a_finding_only(service: Service, given: str) -> None:
    write(stack(service, "a", "b", typo="a"))
    with api.load().connect() as session:
        plan = session.plan(preflight=given == "with findings")
        assert plan.applyable
        result = session.apply(plan)
        assert (result.ok, result.exit_code) == (False, ExitCode.REFUSED)
        with pytest.raises(api.Refused, match="a: pre-flight"):
            result.raise_for_failures()
    assert [job.name for job in service.store.jobs()] == ["b"]
