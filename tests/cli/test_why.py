"""`reconciler why KEY`, from the shell."""

from __future__ import annotations

import jsonschema

from reconciler.cli.commands.schema import schema
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


def test_unknown_key_is_wrong_usage(reconciler: Reconciler, service: Service) -> None:
    write(manifest("train", url=service.url))
    said = reconciler("why", "trian")
    assert said.code == 64
    assert 'did you mean "train"?' in said.err


def test_service_that_cannot_be_read_is_unknown(reconciler: Reconciler, service: Service) -> None:
    write(manifest("a", url="http://127.0.0.1:9"))
    assert reconciler("why", "a").code == 8
