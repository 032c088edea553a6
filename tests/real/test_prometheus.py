"""A real Prometheus that scrapes a running daemon, with the shipped rules, and every query of the shipped dashboard.

The node is a folder that stands in for the cgroup tree (bench/tree.py), the runtime is nriside, which creates and ends
a few containers more, and the pods are those of the API server double: so every limit is enforced, and each container
uses 10000 bytes of its 1048576; one never asked for more than a quarter. Of 16 TDX keys a machine outside of any pod
holds 2, and nobody can tell who holds a third; no service makes quotes, so none is offered to kubelet's double, and a
question for one is refused. NFD is there by its objects, and its number follows `keys`.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.request import urlopen

import grpc
import pytest

from bench import api_pods, plugins, tree
from nodeward.contracts import deviceplugin_pb2 as protocol
from nodeward.host.clock import SystemClock
from nodeward.host.hostfs import OsFiles
from nodeward_sim.doubles.kubelet import PLUGIN, SimKubelet
from tests.component.metrics.test_server import site
from tests.component.relay.rig import call, client_of, relay_process, runtime_at
from tests.peers.find import require
from tests.peers.nriside import nriside
from tests.peers.ports import free_port
from tests.peers.prometheus import CLUSTER, NOT_HERE, WITHIN_S, Prometheus, prometheus, queries, variables
from tests.unit.people.metrics.build import MIB, SANDBOXES, node, untold

NODE = tree.Shape(pods=3, per_pod=2, calls=20)
KEYS = 16


def drawn(server: Prometheus) -> None:
    """Every query of the dashboard has values or, where there can be none, an empty answer; so has every variable.
    Three ask for rates of histograms into which nothing new comes here, and have only NaN.
    Those about VM sandboxes have a picture of their own.
    """
    without = dict.fromkeys(NOT_HERE, 0)
    for query in queries():
        start = next((one for one in NOT_HERE if query.startswith(one)), None)
        if start is None:
            print(f"{query}  {server.until(query)}")
        else:
            without[start] += 1
            server.empty(query)
            print(f"{query}  nothing: {NOT_HERE[start]}")
    assert list(without.values()) == [1] * len(without), without
    found = {name: server.names(*asked) for name, asked in variables().items()}
    print(found)
    assert found == {
        "resource": ["sgx_epc", "tdx"],
        "cluster": [CLUSTER],
        "node": ["127.0.0.1"],
        "namespace": ["default"],
        "pod": ["pod-0", "pod-1", "pod-2"],
    }


def section(folder: Path) -> str:
    """The settings' section: keys are offered and shared, and withheld from kubelet, as nothing makes quotes."""
    tdx = {
        "resources": ["devices.kubevirt.io/tdx", "tdx.intel.com/keys"],
        "share": "override",
        "publisher": "device-plugin",
        "publish": "devices.kubevirt.io/tdx",
        "attestation": "enforce",
        "attestation_socket": f"{folder}/qgs.socket",
    }
    return json.dumps({"mode": "enforce", "kubelet_dir": f"{folder}/kubelet", "kinds": {"tdx": tdx}})


def keys(cgroup: Path) -> None:
    """TEE keys in the tree: KEYS, of which a machine outside of any pod holds 2, and the root says 3."""
    machine = cgroup / "machine.slice" / "vm.scope"
    machine.mkdir(parents=True)
    for folder, held in ((cgroup, 3), (machine.parent, 2), (machine, 2)):
        current = folder / "misc.current"
        epc = current.read_text() if current.exists() else ""
        current.unlink(missing_ok=True)  # the root's is one file with every pod's
        current.write_text(f"{epc}tdx {held}\n")
    with (cgroup / "misc.capacity").open("a") as file:
        file.write(f"tdx {KEYS}\n")


def modest(cgroup: Path) -> None:
    peak = cgroup / tree.container_path(0, 0)[1:] / "misc.peak"
    peak.unlink()  # it is one file with every other's
    peak.write_text("sgx_epc 262144\n")


def refused(plugins: Path) -> None:
    (socket,) = plugins.glob("nodeward-tdx-*.sock")
    asked = protocol.ContainerAllocateRequest(devices_ids=["tdx-key-0000"])
    request = protocol.AllocateRequest(container_requests=[asked]).SerializeToString()
    with grpc.insecure_channel(f"unix:{socket}") as channel, pytest.raises(grpc.RpcError, match="does not answer"):
        channel.unary_unary(f"{PLUGIN}/Allocate")(request, timeout=WITHIN_S)


@asynccontextmanager
async def kubelet(folder: Path) -> AsyncIterator[Path]:
    double = SimKubelet(str(folder / "kubelet"), OsFiles(), SystemClock())
    await double.start()
    try:
        yield folder / "kubelet" / "device-plugins"
    finally:
        await double.stop()


def told(server: Prometheus, plugin: Path) -> None:
    server.until('count(nodeward_misc_limit{level="container"} == 1048576)', [6.0])
    server.until('sum(nodeward_misc_usage{level="container", node="127.0.0.1"})', [60000.0])
    server.until('sum(container_misc_usage{container!=""})', [60000.0])
    server.until("container:nodeward_misc_peak:ratio < 0.5", [0.25])
    server.until('count(nodeward_enforcement_state{state="enforced"})', [9.0])
    server.until("max(container:nodeward_misc_usage:ratio)", [10000 / 1048576])
    server.until("node:nodeward_misc_declared:ratio > bool 0", [1.0])
    server.until('nodeward_keys_free{key="tdx", node="127.0.0.1"}', [13.0])
    server.until('nodeward_keys_elsewhere{class="machine"}', [2.0])
    server.until("node:nodeward_keys_taken:ratio", [1 - 13 / 16])
    server.until('nodeward_keys_ids{state="free"}', [0.0])
    server.until('nodeward_keys_ids{state="withheld"}', [16.0])
    server.until('nodeward_keys_withheld{reason="quotes"}', [1.0])
    server.until('nodeward_keys_plugin_state{state="serving"}', [1.0])
    server.until('nodeward_keys_nfd{kind="wanted"}', [13.0])
    server.until('nodeward_keys_nfd{kind="ours"}', [13.0])
    server.until("nodeward_keys_quotes_answer", [0.0])
    server.until('ALERTS{alertname="NodewardKeysForeign", alertstate="pending"}', [1.0])
    server.until('nodeward_relay_calls_total{method="Version", result="OK"}', [1.0])
    server.until('nodeward_relay_calls_total{method="other", result="UNIMPLEMENTED"}', [1.0])
    server.until('nodeward_relay_added_duration_seconds_count{how="passed"}', [2.0])
    server.until("nodeward_relay_up", [1.0])
    server.until("nodeward_watch_age_seconds >= bool 0", [1.0])
    server.until("sum(nodeward_asks_total)", [float(NODE.calls)])
    assert server.values('ALERTS{severity!="info", alertstate="firing"}') == []
    refused(plugin)
    server.until('nodeward_keys_refusals_total{reason="quotes"}', [1.0])
    server.until('ALERTS{alertname="NodewardKeysRefused", reason="quotes", alertstate="firing"}', [1.0])
    assert server.values('ALERTS{severity!="info", alertstate="firing"}') == [1.0]
    for name in ("nodeward_misc_refusals_total", "container_misc_events"):
        metadata = server.get(f"/metadata?metric={name}")
        assert isinstance(metadata, dict)
        assert metadata[name][0]["type"] == "counter"


def whole(port: int) -> None:
    """In the daemon's own text, which Prometheus mends in silence, types are told once and series are given once."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=WITHIN_S) as answer:
        scraped = answer.read().decode()
    assert "# TYPE container_misc_events counter\n" in scraped
    assert untold(scraped) == []


@contextmanager
def relay(folder: Path) -> Iterator[None]:
    listen, behind = folder / "cri.sock", folder / "runtime.sock"
    with (
        runtime_at(behind),
        relay_process(listen, behind, "--dump-file", str(folder / "dump")),
        client_of(listen) as to,
    ):
        call(to, "Version")
        with pytest.raises(grpc.RpcError):
            call(to, "Unknown")
        yield


async def test_prometheus_reads_the_daemon_and_every_query_of_the_dashboard_has_an_answer(tmp_path: Path) -> None:
    port = free_port()

    with tree.scratch() as folder, api_pods.running(NODE, KEYS) as url:
        more = f"metrics: {{enabled: true, listen: '127.0.0.1:{port}'}}\nkeys: {section(folder)}\n"
        command = plugins.daemon(folder, folder / "s", NODE, url, more)
        keys(folder / "cgroup")
        modest(folder / "cgroup")
        async with kubelet(folder) as plugin, nriside(require("nriside-0.12"), folder / "s") as side:
            await side.command("populate", pods=NODE.pods, per_pod=NODE.per_pod, filler=10)
            await side.command("listen")
            with plugins.running(command), relay(folder), prometheus(tmp_path, port) as server:
                await side.event("log", "connected and synchronized")
                await plugins.settled(folder, NODE)
                await side.command("bench", calls=NODE.calls, filler=10, lives=True)
                await asyncio.to_thread(told, server, plugin)
                await asyncio.to_thread(drawn, server)
                await asyncio.to_thread(whole, port)


def told_of_sandboxes(server: Prometheus) -> None:
    """The picture's numbers, what the rules make of them, and an answer to each query."""
    server.until('nodeward_sandboxes_memory_bytes{part="vmm", node="127.0.0.1"}', [120 * MIB])
    server.until("sandbox:nodeward_sandboxes_headroom:ratio", [-0.1])
    server.until("sandbox:nodeward_sandboxes_overhead_cpu:rate5m", [0.0])
    server.until('ALERTS{alertname="NodewardSandboxWillBeKilled", pod="web"}', [1.0])
    server.until('ALERTS{alertname="NodewardSandboxAnnotated", alertstate="firing"}', [1.0])
    for query in queries(of_sandboxes=True):
        print(f"{query}  {server.until(query)}")
    assert len(queries(of_sandboxes=True)) > 10


async def test_every_query_of_the_dashboard_on_sandboxes_has_an_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with site(caplog, lambda: replace(node(), sandboxes=SANDBOXES)) as own:
        with prometheus(tmp_path, own.port) as server:
            await asyncio.to_thread(told_of_sandboxes, server)
