"""The API server double in a process of its own, with nriside's pods: `python -m bench.api_pods PODS PER_POD KEYS`.

Says its URL on the first line, and ends with its standard input. The pods are as large as a cluster's: environment,
labels, and the managed fields that a client drops. Unless KEYS is 0, NFD is there and has found so many TDX keys.
"""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from bench import plugins, tree
from nodeward.core.workload import PodSpec
from nodeward_sim.doubles.apiserver import ApiServer
from nodeward_sim.doubles.nfd import KATA_RULE, worker_object

NODE_NAME = "bench"
Json = dict[str, object]


def manifest(pod: PodSpec) -> Json:
    """The pod in JSON."""

    def container(name: str, epc_bytes: int) -> Json:
        limits: Json = {"sgx.intel.com/epc": str(epc_bytes), "cpu": "100m", "memory": "64Mi"}
        env = [{"name": f"SYNTHETIC_SERVICE_{n}_PORT", "value": "tcp://192.0.2.1:443"} for n in range(20)]
        return {"name": name, "image": "bench", "env": env, "resources": {"limits": limits, "requests": limits}}

    paths: Json = {f"f:label-{n}": {"f:value": {}, "f:valueFrom": {"f:fieldRef": {}}} for n in range(40)}
    fields = [{"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:metadata": {"f:labels": paths}}}]
    metadata: Json = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid, "managedFields": fields}
    containers = [container(one.name, one.declared["sgx_epc"]) for one in pod.containers]
    spec: Json = {"nodeName": NODE_NAME, "containers": containers}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}}


async def serve(shape: tree.Shape, keys: int) -> None:
    """Serves until standard input ends."""
    server = ApiServer()
    if keys:
        found = worker_object("node-feature-discovery", NODE_NAME, {"tdx.enabled": "true", "tdx.total_keys": str(keys)})
        server.nfd.install(dict(found), rule=dict(KATA_RULE))
        capacity: Json = {"capacity": {}, "allocatable": {}}
        server.nfd.nodes[NODE_NAME] = {"kind": "Node", "metadata": {"name": NODE_NAME, "uid": "n"}, "status": capacity}
    for pod in plugins.specs(shape):
        server.add_pod(manifest(pod))
    async with server:
        print(server.url, flush=True)
        await asyncio.to_thread(sys.stdin.read)


@contextmanager
def running(shape: tree.Shape, keys: int = 0) -> Iterator[str]:
    """The URL of such a process, for as long as the block."""
    command = [sys.executable, "-m", "bench.api_pods", str(shape.pods), str(shape.per_pod), str(keys)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()
            process.wait(30)


if __name__ == "__main__":
    asyncio.run(serve(tree.Shape(*map(int, sys.argv[1:3])), int(sys.argv[3])))
