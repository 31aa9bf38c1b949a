"""The kinds of target, as a table: what is known of each, and which module connects to it."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, GetJsonSchemaHandler
from pydantic_core import PydanticCustomError


class TargetKind(NamedTuple):
    """What sort of place jobs live in.

    `module` has two functions, `open_target` and `identity_of`, see `modelarts.target.KindModule`; it is
    imported when a target of the kind is opened. `is_embedded` says that the jobs lie beside the root file,
    and the records with them; `has_address` that a target needs a region or an endpoint.
    """

    summary: str
    module: str
    is_embedded: bool = False
    has_address: bool = False


#: What only a target that has an address may say.
CLOUD_ONLY = ("region", "endpoint", "project_id", "cloud", "profile")

LOCAL = "local"
MODELARTS = "modelarts"

#: A new kind of target is a row here.
TARGET_KINDS: dict[str, TargetKind] = {
    LOCAL: TargetKind("local (the embedded emulator)", "reconciler.modelarts.local", is_embedded=True),
    MODELARTS: TargetKind("modelarts", "reconciler.modelarts.connect", has_address=True),
}


def _known(name: str) -> str:
    if name not in TARGET_KINDS:
        raise PydanticCustomError("enum", "must be one of {choices}", {"choices": tuple(TARGET_KINDS)})
    return name


class _Choices:
    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(core), "enum": list(TARGET_KINDS)}


#: The name of a kind of target.
KindName = Annotated[str, AfterValidator(_known), _Choices]
