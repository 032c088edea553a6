"""The network of a pod by CNI's result cache, as real containerd with the real bridge plugin leaves it."""

from pathlib import Path

from nodeward.host.hostfs import OsFiles
from nodeward.neighbours.kata import network
from tests.peers.containerd import running_containerd
from tests.peers.cri import pod_config, remove_pod
from tests.peers.nriside import Record, member, text


def test_the_cache_says_what_the_pod_has(tmp_path: Path) -> None:
    with running_containerd(tmp_path) as daemon, daemon.cri() as cri:
        pod = pod_config("net", daemon.cgroup_parent, tmp_path / "logs")
        linux: Record = {"cgroup_parent": f"{daemon.cgroup_parent}/podnet"}
        sandbox = text(cri.call("RunPodSandbox", {"config": {**pod, "linux": linux}}), "pod_sandbox_id")
        status = cri.call("PodSandboxStatus", {"pod_sandbox_id": sandbox})
        found = network.by_cni(OsFiles(), sandbox)
        remove_pod(cri, sandbox)
        after = network.by_cni(OsFiles(), sandbox)

    assert found is not None
    assert found.network is not None
    told, interface = member(status, "status"), found.network.interfaces[-1]
    assert isinstance(told, dict)
    own = member(told, "network")
    assert (found.faults, interface.name) == ((), "eth0")
    assert isinstance(own, dict)
    assert interface.addresses == (f"{own['ip']}/16",)
    assert [(one.destination, one.gateway) for one in found.network.routes] == [("0.0.0.0/0", "10.88.0.1")]
    assert found.network.netns.startswith("/")
    assert after is None
