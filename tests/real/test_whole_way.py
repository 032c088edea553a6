"""A cluster's configuration on its whole way: an object of a real kube-apiserver leads to cpuset files of containers of
a real containerd, on this machine's own CPUs. Nothing between is played.

It needs two CPUs that containers can be given: one for each of two containers.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest

from bench.metrics import free_port
from nodeward.model import cpuset
from tests.component.relay.test_config_socket import Relayed
from tests.component.relay.test_status import daemon as metrics_daemon
from tests.component.relay.test_status import people, scraped
from tests.peers.cgroups import CGROUP_ROOT
from tests.peers.containerd import IMAGE, OLD, Containerd, NriOptions, running_containerd
from tests.peers.cri import Cri, container_config, pod_config, remove_pod, start
from tests.peers.daemon import daemon, until
from tests.peers.nriside import Json, Record
from tests.real import test_agent as agents
from tests.real import test_policy_objects as objects
from tests.real.test_cri_resmgr import ALL, WHOLE, Walk, cpus_of


def test_a_configmap_moves_containers_by_agent_and_relay_and_a_bad_one_does_not(tmp_path: Path) -> None:
    """With the node's ConfigMap made, broken, mended and deleted, after which the default one holds; `nodeward node`
    beside it has the metrics."""
    with (
        tempfile.TemporaryDirectory(prefix="ctd") as folder,
        agents.running_cluster() as cluster,
        running_containerd(Path(folder), release=OLD) as containerd,
    ):
        walk, relayed, port = Walk(containerd), Relayed(containerd.folder), free_port()
        node = agents.Node(tmp_path, cluster.client, cluster.way, relayed)
        (tmp_path / "kubeconfig").write_text(cluster.kubeconfig)
        with (
            walk.relay("-config-socket", str(relayed.socket)) as cri,
            metrics_daemon(containerd.folder, port, "--set", "limits.mode=observe"),
            node.agent(),
        ):
            pods = walk.start(cri, "whole", "", WHOLE * 1000), walk.start(cri, "shared", "burstable", 200)
            (_, whole), (_, shared) = pods
            assert [cpus_of(whole), cpus_of(shared)] == [ALL, ALL]
            node.put(agents.DEFAULT, {"policy": "Active: none\n"})
            until(lambda: f"{agents.DEFAULT} accepted" in node.log(), "the default one")
            node.put(agents.OWN, agents.policy("static-plus"))
            until(lambda: cpus_of(whole).bit_count() == WHOLE, f"CPUs of its own; the agent says {node.log()}")
            until(lambda: cpus_of(whole) & cpus_of(shared) == 0, "parted sets")
            held = [cpus_of(whole), cpus_of(shared)]

            node.put(agents.OWN, {"policy": "Activ: static\n"})
            until(lambda: node.probe("-query", "config-status")[0] == 1, "the probe's word of it")
            until(lambda: scraped(port).get("nodeward_relay_configuration_faults") == 1.0, "the metric")
            until(lambda: bool(node.events()), "the Event")
            [(reason, note)] = node.events()
            assert reason == "ConfigRefused"
            shown = people(walk.listen, "status").stdout
            for said in (note, shown, node.probe("-query", "config-status")[1]):
                assert "did you mean policy.Active?" in said
            assert [cpus_of(whole), cpus_of(shared)] == held
            print(shown, note, [cpuset.text(one) for one in held], sep="\n")

            node.put(agents.OWN, agents.policy("static-plus"))
            until(lambda: scraped(port).get("nodeward_relay_configuration_faults") == 0.0, "no fault any more")
            assert [cpus_of(whole), cpus_of(shared)] == held
            so_far = len(node.log())
            node.remove(agents.OWN)
            until(lambda: [cpus_of(whole), cpus_of(shared)] == [ALL, ALL], "all CPUs for both")
            until(lambda: f"{agents.DEFAULT} accepted" in node.log()[so_far:], "the default one again")
            for sandbox, _ in pods:
                remove_pod(cri, sandbox)


def body(reserved: str) -> Record:
    """A spec of one CPU for the namespace `web`, beside those that are reserved."""
    kinds: list[Json] = [{"name": "own", "namespaces": ["web"], "minCPUs": 1, "maxCPUs": 1}]
    return {
        "reservedResources": {"cpu": f"cpuset:{reserved}"},
        "reservedPoolNamespaces": ["monitoring"],
        "pinCPU": True,
        "balloonTypes": kinds,
    }


def run(containerd: Containerd, cri: Cri, name: str, namespace: str) -> tuple[str, str]:
    """A Burstable pod of half a CPU, and its container."""
    parent = f"{containerd.cgroup_parent}/kubepods/burstable"
    named: Record = {"metadata": {"name": name, "uid": f"uid-{name}", "namespace": namespace}}
    pod = pod_config(name, parent, containerd.folder / "logs") | named
    container = container_config("app", IMAGE)
    container["linux"] = {"resources": {"cpu_shares": 512}}
    return start(cri, pod, container)


def test_a_balloons_policy_moves_containers_by_nri_and_one_that_does_not_fit_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the object made, changed, one that this machine does not fit, and deleted."""
    monkeypatch.setenv("NODEWARD_CGROUPS__ROOT", str(CGROUP_ROOT))
    with (
        tempfile.TemporaryDirectory(prefix="ctd") as folder,
        objects.running_cluster() as cluster,
        running_containerd(Path(folder), NriOptions()) as containerd,
        containerd.cri() as cri,
    ):
        kube = objects.joined(cluster, tmp_path / "token")
        section = f"{{url: {kube.url}, token_file: {kube.token_file}, ca_file: {kube.ca_file}, events: false}}"
        more = ("policy_objects: {enabled: true}", f"node_name: {cluster.server.node}", "limits: {mode: 'off'}")
        with daemon(containerd.nri_socket, tmp_path, *more, kube=section) as node:
            until(node.registered, "containerd knows the daemon")
            pods = [run(containerd, cri, "app", "web"), run(containerd, cri, "system", "monitoring")]
            (_, web), (_, system) = pods
            assert [cpus_of(web), cpus_of(system)] == [ALL, ALL]

            def until_moved(generation: int, reserved: int) -> None:
                assert "errors" not in asyncio.run(cluster.until_said("default", "Success", generation))
                until(lambda: cpus_of(system) == reserved, f"the reserved CPU; the daemon says {node.log()}")
                until(lambda: cpus_of(web).bit_count() == 1 and not cpus_of(web) & reserved, "a CPU of its own")

            first = ALL & -ALL
            asyncio.run(cluster.put("default", body(cpuset.text(first))))
            until_moved(1, first)
            other = cpus_of(web)
            asyncio.run(cluster.put("default", body(cpuset.text(other))))
            until_moved(2, other)
            held = [cpus_of(web), cpus_of(system)]
            pods.append(run(containerd, cri, "new", "monitoring"))
            assert cpus_of(pods[-1][1]) == other, "it begins there"

            asyncio.run(cluster.put("default", body(f"{cpuset.text(other)},4095")))
            errors = str(asyncio.run(cluster.until_said("default", "Failure", 3))["errors"])
            assert "4095" in errors
            assert errors in node.command("status").stdout
            assert [cpus_of(web), cpus_of(system)] == held
            print(errors, [cpuset.text(one) for one in held], sep="\n")

            asyncio.run(cluster.remove("default"))
            until(lambda: [cpus_of(web), cpus_of(system)] == [ALL, ALL], "all CPUs for both")
            for sandbox, _ in pods:
                remove_pod(cri, sandbox)
