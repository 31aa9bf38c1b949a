"""The catalogue: the flavors, engines, algorithms, pools and workspaces that the service offers.

The entries have the shape of the documented responses and plausible values; they are not a price list.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from reconciler.emulator.schemas import refuse_if

_ATTRIBUTES = {
    "is_economic_policy_supported": "true",
    "is_multi_devices_supported": "false",
    "is_multi_nodes_supported": "true",
}
_PLAUSIBLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def _flavor(
    flavor_id: str,
    name: str,
    kind: str,
    code: str,
    cores: int,
    memory_gb: int,
    card: tuple[str, int, str] | None = None,
    arch: str = "x86",
) -> dict[str, Any]:
    info: dict[str, Any] = {"max_num": 16, "cpu": {"arch": arch, "core_num": cores}}
    if card:
        product, count, memory = card
        chip = "npu" if kind == "Ascend" else "gpu"
        # The documents call the NPU's unit_num a String and the GPU's an Integer.
        unit_num = str(count) if chip == "npu" else count
        info[chip] = {"unit_num": unit_num, "product_name": product, "memory": memory}
    return {
        "flavor_id": flavor_id,
        "flavor_name": name,
        "flavor_type": kind,
        "billing": {"code": code, "unit_num": card[1] if card else 1},
        "flavor_info": info
        | {"memory": {"size": memory_gb, "unit": "GB"}, "disk": {"size": 500, "unit": "GB"}},
        "attributes": _ATTRIBUTES,
    }


def _cpu(cores: int, arch: str = "x86") -> dict[str, Any]:
    flavor_id = f"modelarts.vm.{'kunpeng.' if arch == 'arm64' else ''}cpu.{cores}u"
    name = f"Computing CPU({cores}U) instance"
    return _flavor(flavor_id, name, "CPU", flavor_id, cores, 4 * cores, arch=arch)


def _gpu(
    flavor_id: str, model: str, code: str, cores: int, memory_gb: int, cards: int, card_memory: str
) -> dict[str, Any]:
    name, code = f"Computing GPU({model}) instance", f"modelarts.vm.gpu.{code}"
    return _flavor(flavor_id, name, "GPU", code, cores, memory_gb, (f"GP-{model}", cards, card_memory))


def _ascend(flavor_id: str, chip: str, cards: int, cores: int, memory_gb: int) -> dict[str, Any]:
    name = f"Computing NPU({chip}*{cards}) instance"
    code = f"modelarts.vm.npu.{chip.removeprefix('Ascend-').lower()}"
    return _flavor(flavor_id, name, "Ascend", code, cores, memory_gb, (chip, cards, "32GB"), "arm64")


_V100 = {
    "modelarts.p3.large.public": 1,
    "modelarts.p3.xlarge.public": 2,
    "modelarts.p3.4xlarge.public": 8,
    "modelarts.vm.gpu.v100": 1,
    "modelarts.vm.gpu.8v100": 8,
}
FLAVORS: dict[str, dict[str, Any]] = {
    flavor["flavor_id"]: flavor
    for flavor in (
        *map(_cpu, (2, 4, 8, 16, 64)),
        _cpu(8, "arm64"),
        _gpu("modelarts.vm.gpu.t4u8", "Tnt004", "t4u8", 8, 32, 1, "16GB"),
        _gpu("modelarts.vm.gpu.pnt004", "Pnt1", "p4", 8, 64, 1, "8GB"),
        _gpu("modelarts.vm.gpu.a100x8", "Ant8", "a100", 96, 768, 8, "40GB"),
        *(_gpu(name, "Vnt1", "v100", 8 * n, 64 * n, n, "32GB") for name, n in _V100.items()),
        _ascend("modelarts.kat1.xlarge.public", "Ascend-910", 1, 24, 96),
        _ascend("modelarts.kat1.4xlarge.public", "Ascend-910", 4, 96, 384),
        _ascend("modelarts.kat1.8xlarge.public", "Ascend-910", 8, 192, 768),
        _ascend("modelarts.bm.npu.arm.8snt9b3.d", "Snt9b3", 8, 192, 1536),
    )
}
"""Flavors of the public pools, by `flavor_id`."""

POOL_FLAVORS = {
    f"modelarts.pool.visual.{size}": cards
    for size, cards in {"xlarge": 1, "2xlarge": 2, "4xlarge": 4, "8xlarge": 8, "16xlarge": 16}.items()
}
"""Flavors of dedicated pools, with their number of cards."""


def _engine(name: str, engine_id: str, *, v1: bool = False, user: str = "1102") -> dict[str, Any]:
    version = engine_id.removeprefix("v1-")
    chip = "aip" if "aarch64" in engine_id or "cann" in engine_id else "gpu"
    image = f"atelier/{version.replace('-', '_', 1).replace('_', '-')}:{version}"
    return {
        "engine_id": engine_id,
        "engine_name": name,
        "engine_version": version,
        "v1_compatible": v1,
        "run_user": user,
        "image_info": {
            "cpu_image_url": "" if chip == "aip" else image,
            "gpu_image_url": image,
            "image_version": "3.3.0",
        },
        "tags": [{"key": "auto_search", "value": "True"}],
    }


ENGINES: dict[str, dict[str, Any]] = {
    engine["engine_id"]: engine
    for engine in (
        _engine("PyTorch", "pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64"),
        _engine("PyTorch", "pytorch_1.10.0-cuda_11.1-py_3.7-ubuntu_18.04-x86_64"),
        _engine("PyTorch", "pytorch_2.1.0-cann_8.0.rc1-py_3.9-hce_2.0.2312-aarch64-snt9b", user="1000"),
        _engine("TensorFlow", "tensorflow_1.15-cuda_10.0-py_3.6-ubuntu_18.04-x86_64"),
        _engine("TensorFlow", "tensorflow_2.1.0-cuda_10.1-py_3.7-ubuntu_18.04-x86_64"),
        _engine("TensorFlow", "tensorflow_2.6.0-cuda_11.2-py_3.7-ubuntu_18.04-x86_64"),
        _engine("MPI", "mindspore_1.3.0-cuda_10.1-py_3.7-ubuntu_1804-x86_64-20211104202338"),
        _engine("Horovod", "horovod_0.20.0-tensorflow_2.1.0-cuda_10.1-py_3.7-ubuntu_18.04-x86_64"),
        _engine(
            "Ascend-Powered-Engine", "mindspore_1.7.0-cann_5.1.0-py_3.7-euler_2.8.3-aarch64", user="1000"
        ),
        _engine(
            "Ascend-Powered-Engine", "mindspore_2.2.0-cann_7.0.0-py_3.9-euler_2.10.7-aarch64", user="1000"
        ),
        _engine("XGBoost-Sklearn", "v1-xgboost_0.80-scikit_learn_0.18.1-python_3.6", v1=True, user=""),
    )
}
"""Preset engines, by `engine_id`."""

ALGORITHMS: dict[str, dict[str, Any]] = {
    "2e5451fe-913f-4ed6-a8ce-c5a9e1b4e9d1": {
        "name": "image-classification-resnet50",
        "code_dir": "/modelarts-emulator/algorithms/resnet50/code/",
        "boot_file": "/modelarts-emulator/algorithms/resnet50/code/train.py",
        "engine_id": "pytorch_1.8.0-cuda_10.2-py_3.7-ubuntu_18.04-x86_64",
    },
    "7c1bb4b6-1a0e-4a53-9d58-0a1d24d1c7f2": {
        "name": "text-classification-bert",
        "code_dir": "/modelarts-emulator/algorithms/bert/code/",
        "boot_file": "/modelarts-emulator/algorithms/bert/code/run.py",
        "engine_id": "tensorflow_2.1.0-cuda_10.1-py_3.7-ubuntu_18.04-x86_64",
    },
}
"""Algorithms of the project, by id."""

POOLS = frozenset({"poolfaf38d76", "pool0a1b2c3d"})
"""Dedicated pools."""
WORKSPACES = frozenset({"0", "0a1b2c3d4e5f60718293a4b5c6d7e8f9"})
"""Workspaces, the default one first among them."""


def algorithm(algorithm_id: str) -> dict[str, Any]:
    """Return what the service knows about an algorithm; any id has one."""
    return ALGORITHMS.get(algorithm_id) or {
        "name": f"algorithm-{algorithm_id[:8]}",
        "code_dir": f"/modelarts-emulator/algorithms/{algorithm_id}/code/",
        "boot_file": f"/modelarts-emulator/algorithms/{algorithm_id}/code/train.py",
        "engine_id": next(iter(ENGINES)),
    }


def flavor(flavor_id: str) -> dict[str, Any]:
    """Return a flavor of the public pools, or a generic one under the id that was asked for."""
    return FLAVORS.get(flavor_id) or _flavor(flavor_id, flavor_id, "CPU", flavor_id, 8, 32)


def check_flavor(flavor_id: str, *, pooled: bool, strict: bool) -> None:
    """Refuse a flavor that is not there; unless `strict`, every id that could be one is.

    Dedicated pools know only their own flavors: the flavor of their nodes is refused by the service too.
    """
    known = flavor_id in POOL_FLAVORS if pooled else flavor_id in FLAVORS
    is_there = known or (not strict and _PLAUSIBLE.fullmatch(flavor_id))
    refuse_if(not is_there, f"Flavor {flavor_id} not found.", "ModelArts.2781")


_LISTED: dict[str, tuple[Collection[str], str, str]] = {
    "algorithm": (ALGORITHMS, "ModelArts.2755", "algorithm not found."),
    "pool": (POOLS, "ModelArts.2890", "Pool {} not found."),
    "workspace": (WORKSPACES, "ModelArts.0102", "Workspace {} not found."),
}


def check_listed(kind: str, entry_id: str, *, strict: bool) -> None:
    """Refuse an algorithm, a pool or a workspace that is not there; unless `strict`, every id is."""
    listed, code, message = _LISTED[kind]
    refuse_if(strict and entry_id not in listed, message.format(entry_id), code)


def find_engine(engine: dict[str, Any]) -> dict[str, Any] | None:
    """Return the preset engine that a request names by id, or by name and version."""
    if engine_id := engine.get("engine_id"):
        return ENGINES.get(engine_id)
    wanted = (engine.get("engine_name"), engine.get("engine_version"))
    return next((e for e in ENGINES.values() if (e["engine_name"], e["engine_version"]) == wanted), None)


def check_engine(engine: dict[str, Any], *, strict: bool) -> None:
    """Refuse an engine that is not there; unless `strict`, every plausible id is."""
    engine_id = engine.get("engine_id") or engine.get("engine_version") or ""
    is_there = find_engine(engine) or (not strict and _PLAUSIBLE.fullmatch(engine_id))
    refuse_if(not is_there, f"Engine {engine_id} not found.", "ModelArts.2780")


def max_nodes(flavor_id: str) -> int | None:
    """Return how many nodes of a flavor one job may have; None when nothing is known."""
    known = FLAVORS.get(flavor_id)
    return known["flavor_info"]["max_num"] if known else None
