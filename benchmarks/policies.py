"""What policies cost: 10 of them asked about the 1,000 actions of a plan.

python benchmarks/policies.py [--actions 1000] [--policies 10] [--rounds 5] [--check]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from reconciler.core.stack import DesiredJob, Effect, Policy, Stack
from reconciler.core.values import TargetIdentity
from reconciler.decide.plan import Action, Reason
from reconciler.decide.policies import declared, judge
from reconciler.expressions.evaluator import evaluate

#: `--check` fails above so many seconds.
MOST_S = 1.0
_EXPRESSIONS = (
    "job.spec.resource.node_count > 8",
    '!(job.spec.resource.flavor_id in ["modelarts.vm.cpu.2u", "modelarts.vm.gpu.t4u8"])',
    'job.description == ""',
    'action.kind == "replace" && action.lost_node_hours > 12',
    'job.algorithm.parameters.exists(p, p.name == "epochs" && int(p.value) > 500)',
)


def _job(number: int) -> DesiredJob:
    body = {
        "kind": "job",
        "metadata": {"annotations": {"team": "vision"}},
        "algorithm": {
            "code_dir": "obs://bucket/code/",
            "parameters": [{"name": f"p{one}", "value": str(one)} for one in range(10)],
            "environments": {f"E{one}": str(one) for one in range(5)},
        },
        "spec": {"resource": {"flavor_id": "modelarts.vm.gpu.t4u8", "node_count": 1 + number % 8}},
    }
    return DesiredJob(f"job-{number}", body, "", "one of many")


def main() -> int:
    """Measure, and report."""
    parser = argparse.ArgumentParser(description="Time policies.")
    parser.add_argument("--actions", type=int, default=1000)
    parser.add_argument("--policies", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--check", action="store_true", help=f"fail above {MOST_S:g} s")
    asked = parser.parse_args()
    policies = tuple(
        Policy(f"policy-{number}", Effect.DENY, _EXPRESSIONS[number % len(_EXPRESSIONS)])
        for number in range(asked.policies)
    )
    stack = Stack("vision", {}, frozenset(), policies=policies)
    jobs = [_job(number) for number in range(asked.actions)]
    target = TargetIdentity(name="local", kind="local", endpoint="local", project_id="p", workspace_id="0")
    around = target.model_dump(mode="json")
    times = []
    for _ in range(asked.rounds + 1):
        begun = time.perf_counter()
        subjects = (declared(job, kind=Action.CREATE, reason=Reason.NOT_FOUND) for job in jobs)
        verdicts = judge(stack, around, [one for one in subjects if one is not None], evaluate)
        times.append(time.perf_counter() - begun)
        assert verdicts.denied == ()
    # The first one imports the library.
    first, *others = times
    median = statistics.median(others)
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}")
    about = f"{asked.actions} actions, {asked.policies} policies"
    print(f"{about}: median {median:.2f} s, the first {first:.2f} s")
    return 1 if asked.check and median > MOST_S else 0


if __name__ == "__main__":
    sys.exit(main())
