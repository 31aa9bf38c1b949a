"""`reconciler why KEY`, from the shell."""

from __future__ import annotations

from typing import Any

from tests.cli.conftest import World, write
from tests.cli.test_saved_plans import edited


def why(world: World, key: str) -> Any:
    return world(f"why {key} --json").document


def test_why_shows_the_chain_from_manifest_to_action(world: World) -> None:
    world.write("a", "b", "c")
    world("apply --yes --only a,b")
    write(edited(world, "a", "b", "c", of="a"))
    led = ["  decided by the rule changed: Edited; active\n", "jobs.yaml:", "set `lifecycle.on_change: keep`"]
    result = world.ends(0, "why a", out=led, lacks="unreadable")
    assert result.out.startswith("a r2: replace (immutable_changed)")
    world.ends(0, "why a -v", out=["  no   unreadable ", "  yes  changed "])
    assert why(world, "a")["rules"][-1] == {"name": "changed", "when": "Edited; active", "applies": True}
    world.ends(0, "why b", out="keep")
    for action in world("plan --json").document["actions"]:
        own = why(world, action["key"])["actions"][0]
        assert (own["action"], own["reason"]) == (action["action"], action["reason"])


def test_key_no_longer_in_the_manifest_is_explained(world: World) -> None:
    world.apply(world.manifest("a", "gone"))
    world.write("a")
    reason = ["terminate (not_in_manifest)", "nothing: no entry on this target has the key"]
    world.ends(0, "why gone", out=reason)
    world.ends(64, "why gonne", err='did you mean "gone"?')
    world.fail("ListTrainingJobs", status=501, count=None)
    world.ends(8, "why a")


def test_settings_are_shown_in_manifest_form(world: World) -> None:
    settings = (
        "    lifecycle: {protect: true, retry_delay: 10m, ignore_changes: [spec.auto_stop, algorithm]}\n"
    )
    write(world.manifest("a").replace("  a:\n", "  a:\n" + settings))
    shown = ["protect: true\n", "retry_delay: 10 min\n", "ignore_changes: spec.auto_stop, algorithm\n"]
    world.ends(0, "why a", out=shown)


def test_key_of_another_target_is_named_with_its_target(world: World) -> None:
    world.apply(world.manifest("a", "gone"))
    text = world.manifest("a", "gone", "new", more="  other: {kind: local}\ntarget: there\n")
    for key in ("gone", "new"):
        text = text.replace(f"  {key}:\n", f"  {key}:\n    targets: other\n")
    write(text)
    world.ends(0, "why gone", out="no entry on this target has the key")
    for command in ("why new", "plan --only new", "plan --rerun new", "status new"):
        world.ends(64, command, err=['"new" belongs to target other only', "fix: add --target other"])


def test_cause_of_a_blocked_key_is_shown_with_its_values(world: World) -> None:
    more = "policies: [{name: cheap, deny: action.kind == 'create', message: ask first}]\n"
    write(world.manifest("a", more=more + "limits: {node_hours: 1}\n"))
    blocked = [
        "not applied: denied by cheap\n",
        '    action.kind: "create"\n',
        "change the job or the policy",
    ]
    world.ends(0, "why a", out=blocked)
    # A key blocked by one guard is not checked by the next.
    document = why(world, "a")
    assert ([one["policy"] for one in document["policies"]], document["guards"]) == (["cheap"], [])
