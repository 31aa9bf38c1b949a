"""The operations that say what the service offers: flavors, engines, quotas."""

from __future__ import annotations

from reconciler.emulator.calls import Answer, Call, answer
from reconciler.emulator.catalogue import ENGINES, FLAVORS
from reconciler.emulator.errors import Refused


def flavors(call: Call) -> Answer:
    """ShowTrainingJobFlavors: 200, those of one `flavor_type` or all."""
    kind = call.query.get("flavor_type")
    if kind not in {None, "", "CPU", "GPU", "Ascend"}:
        raise Refused("ModelArts.2764", f"flavor_type {kind} is not one of CPU, GPU, Ascend.")
    found = [flavor for flavor in FLAVORS.values() if not kind or flavor["flavor_type"] == kind]
    return answer(200, {"total_count": len(found), "flavors": found})


def engines(call: Call) -> Answer:
    """ShowTrainingJobEngines: 200."""
    return answer(200, {"total": len(ENGINES), "items": list(ENGINES.values())})


def quotas(call: Call) -> Answer:
    """ShowTrainingQuotas: 200, the number of jobs that may be kept and are."""
    if call.query.get("resource") not in {None, "", "job-num"}:
        raise Refused("ModelArts.2764", f"resource {call.query['resource']} has no quota.")
    used = call.store.count(call.project)
    return answer(200, {"quotas": [{"resource": "job-num", "quota": call.store.quota, "used": used}]})
