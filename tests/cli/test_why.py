"""`reconciler why KEY`, from the shell."""

from __future__ import annotations

import jsonschema

from reconciler.cli.project import schema
from reconciler.emulator import Effect, Fault
from tests.cli.conftest import Reconciler, Service, manifest, write
from tests.cli.test_saved_plans import edited


def test_chain_from_the_manifest_to_the_action_is_shown(reconciler: Reconciler, service: Service) -> None:
    write(manifest("a", "b", url=service.url))
    reconciler("apply", "--yes")
    write(edited(service, "a", "b", of="a"))
    said = reconciler("why", "a")
    assert said.code == 0
    assert "a r2: replace (immutable_changed)" in said.out
    assert "jobs.yaml:" in said.out
    assert "yes  changed " in said.out
    assert "set `lifecycle.on_change: keep`" in said.out
    document = reconciler("why", "a", "--json").document
    jsonschema.validate(document, schema("why"))
    assert document["rules"][-1] == {"name": "changed", "when": "Edited; active", "applies": True}
    assert reconciler("why", "b").out.count("keep") >= 1


def test_why_and_plan_say_the_same(reconciler: Reconciler, service: Service) -> None:
    write(manifest("a", "b", "c", url=service.url))
    reconciler("apply", "--yes", "--only", "a,b")
    write(edited(service, "a", "b", "c", of="b"))
    actions = {action["key"]: action for action in reconciler("plan", "--json").document["actions"]}
    for key, action in actions.items():
        own = reconciler("why", key, "--json").document["actions"][0]
        assert (own["action"], own["reason"]) == (action["action"], action["reason"])


def test_key_that_is_no_more_in_the_manifest_is_explained(reconciler: Reconciler, service: Service) -> None:
    write(manifest("a", "gone", url=service.url))
    reconciler("apply", "--yes")
    write(manifest("a", url=service.url))
    said = reconciler("why", "gone")
    assert said.code == 0
    assert "terminate (not_in_manifest)" in said.out
    assert "nothing: no file of the stack has the key" in said.out
    said = reconciler("why", "gonne")
    assert (said.code, 'did you mean "gone"?' in said.err) == (64, True)
    service.app.faults.add(Fault(Effect.ANSWER, operation="ListTrainingJobs", status=501, count=None))
    assert reconciler("why", "a").code == 8


def test_what_blocks_the_key_is_shown_with_its_values(reconciler: Reconciler, service: Service) -> None:
    more = "policies: [{name: cheap, deny: action.kind == 'create', message: ask first}]\n"
    text = manifest("a", "b", url=service.url, more=more + "limits: {node_hours: 1}\n")
    write(text.replace("modelarts.vm.cpu.2u", "modelarts.vm.cpu.2x", 1))
    said = reconciler("why", "a")
    assert said.code == 0
    assert "not applied: denied by cheap\n" in said.out
    assert '    action.kind: "create"\n' in said.out
    assert "change the job, or the policy" in said.out
    # What one has blocked the next is not asked about.
    document = reconciler("why", "a", "--json").document
    jsonschema.validate(document, schema("why"))
    assert [one["policy"] for one in document["policies"]] == ["cheap"]
    assert (document["guards"], document["preflight"]) == ([], None)
    write(text.replace(more, "").replace("modelarts.vm.cpu.2u", "modelarts.vm.cpu.2x", 1))
    said = reconciler("why", "a")
    assert "not applied: flavor not offered\n" in said.out
    assert 'flavor not offered: spec.resource.flavor_id "modelarts.vm.cpu.2x" is not offered' in said.out
    said = reconciler("why", "b")
    assert "not applied: blocked by guard budget\n" in said.out
    assert "    this key: unbounded node-hours\n" in said.out
    assert "review the plan, then pass `--allow budget`" in said.out
    document = reconciler("why", "b", "--json").document
    assert ([one["guard"] for one in document["guards"]], document["preflight"]) == (["budget"], [])


def test_quota_that_does_not_suffice_stands_against_all_keys(
    reconciler: Reconciler, service: Service
) -> None:
    write(manifest("a", "b", url=service.url))
    service.store.quota = 1
    for key in "ab":
        [finding] = reconciler("why", key, "--json").document["preflight"]
        assert finding["reason"] == "quota_exceeded"


def test_deferred_job_is_held_against_the_catalog(reconciler: Reconciler, service: Service) -> None:
    text = manifest("a", "b", url=service.url).replace("  b:\n", "  b:\n    needs: [a]\n")
    head, _, tail = text.partition("  b:\n")
    write(head + "  b:\n" + tail.replace("modelarts.vm.cpu.2u", "modelarts.vm.cpu.2x"))
    [finding] = reconciler("why", "b", "--json").document["preflight"]
    assert finding["reason"] == "flavor_not_offered"
    said = reconciler("plan", "--preflight")
    assert said.code == 0
    assert "flavor not offered, for a job that is deferred" in said.out


def test_key_that_starts_nothing_asks_for_no_catalog(reconciler: Reconciler, service: Service) -> None:
    write(manifest("a", url=service.url))
    reconciler("apply", "--yes")
    service.app.requests.clear()
    assert reconciler("why", "a", "--json").document["preflight"] is None
    assert not {"ShowTrainingJobFlavors", "ShowTrainingQuotas"} & {
        one.operation for one in service.app.requests
    }
