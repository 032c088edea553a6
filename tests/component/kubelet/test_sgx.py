"""SGX devices by ids: what kubelet reads of us is what it reads of Intel's device plugin, byte for byte."""

import socket
from pathlib import Path

from nodeward.contracts import deviceplugin_pb2 as protocol
from nodeward.core.events import Allocating
from nodeward.neighbours.kubelet import mapping
from nodeward.neighbours.kubelet.folder import Offering
from tests.component.kubelet.node import Node, played
from tests.component.kubernetes.support import until

ENCLAVE = "sgx.intel.com/enclave"
IDS = [(f"sgx-enclave-{number}", True) for number in range(2)]


def offering(device: str) -> Offering:
    return Offering("sgx-enclave", ENCLAVE, "sgx-enclave-", devices=lambda: (device,), tokens=True)


@played()
async def test_kubelet_reads_intels_list_options_and_answers(found: Node) -> None:
    """Each node once for each id, at the same path, and no mount, variable, annotation or CDI name; no topology, and
    neither of the two options (intel-device-plugins: cmd/sgx_plugin, pkg/deviceplugin/server.go)."""
    life = found.live(IDS, offered=offering("/dev/null"))
    await until(lambda: found.kubelet.capacity(ENCLAVE) == (2, 2), "kubelet has the ids")
    assert mapping.listed(IDS[:1]) == b"\n\x18\n\rsgx-enclave-0\x12\x07Healthy"
    assert await found.called("GetDevicePluginOptions", b"") == b""
    both = [protocol.ContainerAllocateRequest(devices_ids=names) for names in (["sgx-enclave-0", "sgx-enclave-1"],)]
    asked = protocol.AllocateRequest(container_requests=both).SerializeToString()
    node = b"\x1a\x1a\n\t/dev/null\x12\t/dev/null\x1a\x02rw"
    assert await found.called("Allocate", asked) == b"\n\x38" + node * 2
    assert life.said.asked == [Allocating(ENCLAVE, ("sgx-enclave-0", "sgx-enclave-1"))]


@played()
async def test_beside_intels_plugin_ours_waits_and_comes_when_that_has_gone(found: Node, home: Path) -> None:
    """The ids have the same names, so that its socket alone tells that it is there."""
    place = home / "device-plugins" / "sgx.intel.com-enclave.sock"
    with socket.socket(socket.AF_UNIX) as theirs:
        theirs.bind(str(place))
        theirs.listen()
        life = found.live(IDS, offered=offering("/dev/null"))
        await until(lambda: life.said.standing == "rival", "it is seen")
        assert life.said.told[-1].why == "Intel's device plugin listens at sgx.intel.com-enclave.sock"
        assert found.kubelet.capacity(ENCLAVE) is None
    place.unlink()
    await until(lambda: found.kubelet.capacity(ENCLAVE) == (2, 2), "ours is there")
