"""CDI specs: which device nodes a CDI device stands for (Container Device Interface, SPEC.md). JSON or YAML.

Promises: of a spec its kind and its devices' nodes are kept, never environment, mounts or hooks. Input is bounded, and
YAML has no aliases, which could make a short text large. What is wrong is a WireError without the content. Must not
know what a device node is.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
import yaml
from msgspec import Struct, field

from nodeward.core.devices import kind_of
from nodeward.core.errors import WireError
from nodeward.neighbours.formats.kube_objects import decode_bounded
from nodeward.neighbours.formats.yaml_faults import YAML_FAULTS

ENDINGS: Final = (".json", ".yaml")
MAX_BYTES: Final = 1024 * 1024
MOST_DEVICES: Final = 4096
"""In one spec; each with at most MOST_NODES device nodes."""
MOST_NODES: Final = 256
_FORMAT = "CDI spec"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Node(Struct, frozen=True):
    path: str
    host: str = field(name="hostPath", default="")


class _Edits(Struct, frozen=True):
    nodes: tuple[_Node, ...] | None = field(name="deviceNodes", default=None)


class _Device(Struct, frozen=True):
    name: str
    edits: _Edits | None = field(name="containerEdits", default=None)


class _Spec(Struct, frozen=True):
    kind: str
    devices: tuple[_Device, ...]


class _Kind(Struct, frozen=True):
    kind: str


_DECODER, _KINDS = msgspec.json.Decoder(_Spec), msgspec.json.Decoder(_Kind)


def decode(data: bytes, is_yaml: bool) -> Mapping[str, tuple[str, ...]]:
    """The paths of the device nodes on the host, by CDI name."""
    spec = _of_yaml(data) if is_yaml else decode_bounded(_DECODER, data, "a CDI spec", MAX_BYTES)
    if not kind_of(f"{spec.kind}=x"):
        raise WireError(_FORMAT, "kind is no VENDOR/CLASS")
    if len(spec.devices) > MOST_DEVICES:
        raise WireError(_FORMAT, f"{len(spec.devices)} devices: at most {MOST_DEVICES} are read")
    found: dict[str, tuple[str, ...]] = {}
    for number, one in enumerate(spec.devices):
        name, nodes = f"{spec.kind}={one.name}", one.edits.nodes or () if one.edits is not None else ()
        if not kind_of(name):
            raise WireError(_FORMAT, f"devices[{number}].name is no name of a CDI device")
        if name in found or len(nodes) > MOST_NODES:
            raise WireError(_FORMAT, f"devices[{number}] is there twice, or has over {MOST_NODES} device nodes")
        found[name] = tuple(node.host or node.path for node in nodes)
    return found


def kind(data: bytes) -> str:
    """The kind of a JSON spec that cannot be used otherwise; empty where that is not known either."""
    try:
        found = decode_bounded(_KINDS, data, "a CDI spec", MAX_BYTES).kind
    except WireError:
        return ""
    return found if kind_of(f"{found}=x") else ""


def _of_yaml(data: bytes) -> _Spec:
    if len(data) > MAX_BYTES:
        raise WireError(_FORMAT, f"{len(data)} bytes: at most {MAX_BYTES} are read")
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(data, _LOADER)):
            raise WireError(_FORMAT, "YAML aliases (*name) are not read here")
        return msgspec.convert(yaml.load(data, _LOADER), _Spec)
    except (*YAML_FAULTS, msgspec.ValidationError) as error:
        raise WireError(_FORMAT, f"it is no YAML with kind and devices: {type(error).__name__}") from error
