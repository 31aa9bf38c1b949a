"""Invalid OBS paths are reported before any request, at the offending value."""

from __future__ import annotations

import textwrap

import pytest
from ruamel.yaml import YAML

from reconciler.emulator.schemas import ApiError
from reconciler.emulator.validation import check_job
from tests.manifest.conftest import HEAD, JOB, Place


def a_job(code: str = "obs://b/code/", boot: str | None = "obs://b/code/train.py", more: str = "") -> str:
    boot_file = f", boot_file: '{boot}'" if boot is not None else ""
    return (
        f"algorithm: {{code_dir: '{code}'{boot_file}, engine: {{engine_id: pt}}{more}}}\n"
        "spec: {resource: {flavor_id: gpu, node_count: 1}}\n"
    )


ACCEPTED = [
    a_job(),
    a_job("/b/code/", "/b/code/train.py"),
    a_job("obs://b/code/", "/b/code/deep/er/train.py"),
    a_job("s3://b/code/", "obs://b/code/train.py"),
    a_job("obs://b/", "obs://b/train.py"),
    a_job("file:///home/ma-user/code", "file:///home/ma-user/code/train.py"),
    a_job("file:///home/ma-user/code/", "/home/ma-user/code/train.py"),
    a_job(more=", inputs: {data: obs://b/one-file, all: /b/dir/}, outputs: {out: /b/out/}"),
    a_job(more=", inputs: [{name: data, remote: {obs: {obs_url: 'obs://b/x.csv'}}}]"),
    JOB.replace("spec: {", "spec: {log_export_path: {obs_url: /b/log/}, "),
    JOB.replace("spec: {", "spec: {log_export_path: {obs_url: ''}, "),
    "algorithm: {command: python /opt/x.py, code_dir: obs://b/code/, engine: {image_url: o/i:1}}\n"
    "spec: {resource: {flavor_id: gpu}}\n",
    "algorithm: {command: sh run.sh, code_dir: obs://b/code/, boot_file: obs://c/x.py, "
    "engine: {image_url: o/i:1}}\n"
    "spec: {resource: {flavor_id: gpu}}\n",
    "algorithm: {id: x, code_dir: obs://b/code/, boot_file: obs://c/x.py}\n"
    "spec: {resource: {flavor_id: gpu}}\n",
]

REFUSED = [
    a_job("obs://b/code"),
    a_job("b/code/"),
    a_job("https://b/code/"),
    a_job("obs:/b/code/"),
    a_job(boot="obs://b/code/"),
    a_job(more=", outputs: {out: 'obs://b/out'}"),
    a_job(more=", outputs: [{name: out, remote: {obs: {obs_url: 'obs://b/out'}}}]"),
    a_job(more=", inputs: {data: 'hdfs://b/in'}"),
    JOB.replace("spec: {", "spec: {log_export_path: {obs_url: 'obs://b/log'}, "),
]


@pytest.mark.parametrize("body", ACCEPTED, ids=range(len(ACCEPTED)))
def test_path_accepted_by_the_service_is_valid(place: Place, body: str) -> None:
    job = place.job(body)
    check_job({**(job.body or {}), "metadata": {"name": "a"}})


@pytest.mark.parametrize("body", REFUSED, ids=range(len(REFUSED)))
def test_refused_path_is_refused_by_the_emulator(place: Place, body: str) -> None:
    place.write(f"{HEAD}jobs:\n  a:\n{textwrap.indent(textwrap.dedent(body).strip(), '    ')}\n")
    assert place.problem().what == "invalid OBS path"
    read = YAML(typ="safe", pure=True).load(body)
    algorithm = read["algorithm"]
    for kind in ("inputs", "outputs"):
        if isinstance(algorithm.get(kind), dict):
            algorithm[kind] = [
                {"name": name, "remote": {"obs": {"obs_url": url}}} for name, url in algorithm[kind].items()
            ]
    with pytest.raises(ApiError) as refused:
        check_job({"kind": "job", "metadata": {"name": "a"}, **read})
    assert refused.value.code in {"ModelArts.2791", "ModelArts.2758"}
