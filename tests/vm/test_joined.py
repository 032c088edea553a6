"""The whole chain with a real kubelet: pods through a real API server, containerd, runc, the daemon, a misc controller.

kubelet 1.37, containerd 2.4 and the daemon run in the guest; etcd, kube-apiserver, the Deployment controllers, the
scheduler and `nodeward webhook` run here, and the guest calls our loopback by QEMU's user mode network. Pods carry no
annotation of ours, and there is no webhook, until the cases of Deployments create its configuration and the policies.
At the end kubelet's runtime is the relay, which then decides instead of NRI.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.peers.controllers import running_controllers, running_scheduler
from tests.peers.find import require
from tests.peers.kube import free_port, running_apiserver
from tests.peers.prometheus import require_prometheus
from tests.vm import guest
from tests.vm.admission import running_webhook
from tests.vm.chains import outcomes
from tests.vm.joined_cases import CASES

CONTROLLERS = ("deployment-controller", "replicaset-controller")
NODE = "localhost"


@pytest.fixture(scope="module")
def held() -> Mapping[str, str]:
    """Case -> empty if it held, else what went wrong."""
    kernel = guest.needed()
    require("containerd")
    require("kubernetes")
    require_prometheus()
    with (
        tempfile.TemporaryDirectory(prefix="joined") as folder,
        running_apiserver(Path(folder), NODE, guest.HOST_ADDRESS) as server,
        running_controllers(server, Path(folder), CONTROLLERS),
        running_scheduler(server, Path(folder)),
        running_webhook(Path(folder)) as admission,
    ):
        url = f"https://{guest.HOST_ADDRESS}:{urlsplit(server.base_url).port}"
        known = (server.token, server.node_token, server.plain_token, "somebody")
        port = free_port()
        chain = ("joined", url, str(server.ca_file), *known, str(admission), str(port))
        machine = guest.Machine(memory_mib=2048, network=True, forwarded=port)
        return outcomes(kernel, chain, machine)


@pytest.mark.parametrize("case", CASES)
def test_joined(case: str, held: Mapping[str, str]) -> None:
    assert case in held, "the guest reported nothing for this case"
    assert held[case] == "", held[case]
