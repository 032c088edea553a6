"""The host's side of a guest with a real kubelet: boots the one that plays a chain beside the control plane it joins.

kubelet 1.37, containerd 2.4 and the daemon run in the guest; etcd and kube-apiserver run here, and the guest calls our
loopback (`tests/vm/network.py`). Pods carry no annotation of ours.
"""

import tempfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tests.peers.bundle import require_image
from tests.peers.controllers import running_controllers, running_scheduler
from tests.peers.find import require
from tests.peers.kube import running_apiserver
from tests.vm import guest
from tests.vm.admission import running_webhook
from tests.vm.chains import Held, once, tests_of, twice

_CONTROLLERS: Final = (
    *("deployment-controller", "replicaset-controller", "daemonset-controller", "serviceaccount-controller"),
    *("root-ca-certificate-publisher-controller", "resourceclaim-controller"),
)


def joined(
    cases: Iterable[str], chain: str, *, deployments: bool = False, scheduled: bool = False, cpus: int = 1
) -> Callable[[str], None]:
    """A test for each case. With `scheduled` controllers and the scheduler run here too; with `deployments` the webhook
    besides, and there is the image of `make image`; the API server knows no webhook before a case creates its
    configuration."""
    scheduled = scheduled or deployments
    return tests_of(
        cases, lambda: twice(chain, lambda: _played(chain, deployments=deployments, scheduled=scheduled, cpus=cpus))
    )


def _played(chain: str, *, deployments: bool, scheduled: bool, cpus: int) -> Held:
    kernel = guest.needed()
    image = str(require_image()) if deployments else "-"  # an empty word would not arrive
    if deployments:
        require("helm")
    require("containerd")
    require("kubernetes")
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="joined")))
        server = running.enter_context(running_apiserver(folder, advertised=guest.HOST_ADDRESS, accounts=scheduled))
        admission = folder
        if scheduled:
            running.enter_context(running_controllers(server, folder, _CONTROLLERS))
            running.enter_context(running_scheduler(server, folder))
        if deployments:
            admission = running.enter_context(running_webhook(folder))
        port = urlsplit(server.base_url).port or 443
        url = f"https://{guest.HOST_ADDRESS}:{port}"
        known = (server.token, server.node_token, server.plain_token, "somebody")
        arguments = (chain, url, str(server.ca_file), *known, str(admission), image)
        return once(kernel, arguments, guest.Machine(memory_mib=2048, reaches=(port,), cpus=cpus))
