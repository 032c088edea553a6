"""The queries of the shipped dashboard that want more than a daemon: the relay's decisions, and cAdvisor beside them.

A real Prometheus in the guest scrapes the daemon, which shows what the relay counts, and the kubelet's cAdvisor.
"""

from typing import Final

from tests.peers.prometheus import NOT_HERE, Job, prometheus, queries
from tests.vm.guest import GUEST_ADDRESS
from tests.vm.joined_node import CONTAINERD_FOLDER, Node

METRICS_PORT: Final = 9743
_EVERY: Final = "5s"


def drawn_beside_cadvisor(node: Node) -> list[str]:
    """Each has values here: `tests/real/test_prometheus.py` has the others'."""
    folder = CONTAINERD_FOLDER / "prometheus"
    folder.mkdir()
    cadvisor: Job = {
        "job_name": "cadvisor",
        "scheme": "https",
        "metrics_path": "/metrics/cadvisor",
        "tls_config": {"insecure_skip_verify": True},
        "static_configs": [{"targets": [f"{GUEST_ADDRESS}:{node.cluster.port}"]}],
    }
    wanted = [query for query in queries() if query.startswith(tuple(NOT_HERE))]
    assert len(wanted) == len(NOT_HERE), wanted
    with prometheus(folder, METRICS_PORT, cadvisor, every=_EVERY) as server:
        return [f"dashboard: {query}  {server.until(query)}" for query in wanted]
