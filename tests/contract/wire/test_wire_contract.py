"""Given the contracts that our neighbours are built of, then those in src/nodeward/contracts say the same of the wire.

NRI's and ttrpc's come out of the very programs the other tests talk to (`nriside -descriptors`), the device plugin's
out of Kubernetes' modules, of the release that the kubelet peer has, and the CRI's out of those that containerd has.
"""

import mmap
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from nodeward.contracts import (
    cri_pb2,
    deviceplugin_pb2,
    dra_pb2,
    drahealth_pb2,
    nri_pb2,
    pluginregistration_pb2,
    podresources_pb2,
    podsapi_pb2,
    ttrpc_pb2,
)
from nodeward.neighbours.nri import mapping, session
from nodeward_sim.doubles import runtime_plugins
from tests.contract.wire import choices
from tests.contract.wire.facts import beyond, differing, facts
from tests.patience import scaled
from tests.peers.cri import schema
from tests.peers.find import require
from tests.peers.nriside import EACH, RELEASES

LINKED_S = scaled(30.0)
NRI = "pkg/api/api.proto"
TTRPC = "github.com/containerd/ttrpc/request.proto"
STATUS = "google/rpc/status.proto"
NEWEST = RELEASES[-1]


def ours(module: ModuleType) -> dict[str, str]:
    file = FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    return facts(file)


def linked(release: str) -> dict[str, FileDescriptorProto]:
    program = require(f"nriside-{release}") / "nriside"
    told = subprocess.run([program, "-descriptors"], check=True, capture_output=True, timeout=LINKED_S).stdout
    return {file.name: file for file in FileDescriptorSet.FromString(told).file}


def later_than(release: str) -> set[str]:
    """What we declare, and this release cannot have."""
    newer = RELEASES[RELEASES.index(release) + 1 :]
    return {name for each in newer for name in choices.NRI_SINCE.get(each, ())}


@pytest.mark.parametrize("release", EACH)
def test_what_is_declared_of_nri_is_what_each_release_says(release: str) -> None:
    theirs, declared = facts(linked(release)[NRI]), ours(nri_pb2)
    assert differing(theirs, declared) == choices.NRI_OTHERWISE.get(release, {})
    assert beyond(declared, theirs) == later_than(release)


@pytest.mark.parametrize("release", EACH)
def test_what_is_not_declared_of_nri_was_chosen(release: str) -> None:
    left = beyond(facts(linked(release)[NRI]), ours(nri_pb2))
    assert left - set(choices.NRI) == set(), "upstream has more than it had: declare it, or choose not to"
    if release == NEWEST:
        assert set(choices.NRI) - left == set(), "a choice about what is no longer there, or is declared by now"


@pytest.mark.parametrize("release", EACH)
def test_ttrpcs_envelope_is_declared_as_it_is(release: str) -> None:
    files, declared = linked(release), ours(ttrpc_pb2)
    theirs = facts(files[STATUS]) | facts(files[TTRPC], {"google.rpc.Status": "ttrpc.Status"})
    assert differing(theirs, declared) == {}
    assert beyond(declared, theirs) == set()
    assert beyond(theirs, declared) == set(choices.TTRPC)


def built(peer: str, name: str) -> FileDescriptorProto:
    file = FileDescriptorProto()
    schema(require(peer) / "proto" / name).FindFileByName(name).CopyToProto(file)
    return file


DECLARED: dict[str, tuple[ModuleType, Callable[[], FileDescriptorProto], Iterable[str]]] = {
    "deviceplugin": (deviceplugin_pb2, lambda: built("kubernetes", "deviceplugin.proto"), choices.DEVICE_PLUGIN),
    "podresources": (podresources_pb2, lambda: built("kubernetes", "podresources.proto"), ()),
    "dra": (dra_pb2, lambda: built("kubernetes", "dra.proto"), ()),
    "pluginregistration": (pluginregistration_pb2, lambda: built("kubernetes", "pluginregistration.proto"), ()),
    "drahealth": (drahealth_pb2, lambda: in_kubelet("pkg/apis/dra-health/v1/api.proto"), ()),
    "podsapi": (podsapi_pb2, lambda: in_kubelet("pkg/apis/pods/v1alpha1/api.proto"), choices.PODS_API),
    "cri": (cri_pb2, lambda: built("containerd", "cri.proto"), ()),
}
"""What we declare, what the neighbour says, and what of that we chose to leave out."""


@pytest.mark.parametrize("name", DECLARED)
def test_a_contract_is_declared_as_the_neighbour_has_it(name: str) -> None:
    module, of_neighbour, left_out = DECLARED[name]
    theirs, declared = facts(of_neighbour()), ours(module)
    assert differing(theirs, declared) == {}
    assert beyond(declared, theirs) == set()
    assert beyond(theirs, declared) == set(left_out)


def in_kubelet(name: str) -> FileDescriptorProto:
    """A contract out of the kubelet that the tests run: its bytes as the program carries them. The syntax is last."""
    path = require("kubernetes") / "bin" / "kubelet"
    with path.open("rb") as program, mmap.mmap(program.fileno(), 0, access=mmap.ACCESS_READ) as content:
        at = content.find(name.encode() + b"\x12")
        start = content.rfind(b"\n", at - 128, at)
        data = content[start : start + 4096]
    size, syntax = 0, FileDescriptorProto.SYNTAX_FIELD_NUMBER
    while data[size] >> 3 != syntax:
        size = _after(data, size)
    return FileDescriptorProto.FromString(data[: _after(data, size)])


def _after(data: bytes, at: int) -> int:
    """Where the field that begins here ends; all of a file's own are of a length."""
    size, shift, at = 0, 0, at + 1
    while True:
        byte, at = data[at], at + 1
        size, shift = size | (byte & 127) << shift, shift + 7
        if byte < 128:
            return at + size


def test_every_contract_that_is_declared_is_compared() -> None:
    declared = {path.stem for path in Path(nri_pb2.__file__).parent.glob("*.proto")}
    compared = {"nri", "ttrpc", *DECLARED}
    by_content = {  # no peer has these descriptors
        "kubepod": "tests/real/test_pods_api.py",
        "reflection": "tests/contract/podapi/test_both_doors.py, by grpcurl",
        "resmgr_agent": "tests/unit/formats/test_resmgr_protos.py, by a table",
        "resmgr_config": "tests/unit/formats/test_resmgr_protos.py, by a table",
    }
    own = {"podapi"}
    assert declared == compared | {*by_content} | own, "a new contract needs its row here"


def test_the_code_speaks_of_services_and_methods_that_are_declared() -> None:
    services = nri_pb2.DESCRIPTOR.services_by_name
    assert services["Plugin"].full_name == session.PLUGIN == runtime_plugins.PLUGIN
    assert services["Runtime"].full_name == session.RUNTIME
    assert set(mapping.NOTIFICATIONS) - set(services["Plugin"].methods_by_name) == set()
