"""CPUs by a policy on a real kernel and runtime: eight CPUs and containerd 2.4 with NRI; nightly 1.7 behind the relay,
and a stock kernel with three memory nodes. At the end the policy comes from a real kube-apiserver. The memory of
`topology-aware` has a guest of its own.
"""

import functools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest

from tests.peers.find import require
from tests.peers.kube import running_apiserver
from tests.peers.kubeclient import KubeClient
from tests.real.test_agent import kubeconfig_of
from tests.real.test_policy_objects import install
from tests.vm import cpus_memory, guest
from tests.vm.chains import Held, ended_well, kept, outcomes
from tests.vm.cpus_cases import CASES, MORE, OF_NODES
from tests.vm.cpus_node import NAME, compiled

QUICK_PODS = 9


def _boots(
    how: str, folder: Path, quick_pods: int, cluster: Sequence[str] = (), *, numa: bool = True, chain: str = "cpus-more"
) -> Held:
    machine = guest.needed(stock=numa)
    require("containerd-1.7" if how == "relay" else "containerd")
    words = (chain, how, str(compiled(folder)), str(quick_pods), *cluster)
    reaches = tuple(urlsplit(url).port or 443 for url in cluster[:1])
    return outcomes(machine, words, guest.Machine(cpus=8, numa=numa, reaches=reaches))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Sequence[str]]:
    """What a guest needs to reach a real kube-apiserver here, with the agent's account, our rights and the kinds."""
    with (
        tempfile.TemporaryDirectory(prefix="nwc") as folder,
        running_apiserver(Path(folder), NAME, guest.HOST_ADDRESS) as server,
    ):
        client = KubeClient(server.base_url, server.ca_file, server.token)
        client.call("POST", "/api/v1/nodes", {"metadata": {"name": NAME}})
        install(client)
        url = f"https://{guest.HOST_ADDRESS}:{urlsplit(server.base_url).port}"
        kubeconfig = Path(folder) / "kubeconfig"
        kubeconfig.write_text(kubeconfig_of(client, url, server.ca_file, NAME))
        yield url, str(server.ca_file), server.token, server.plain_token, str(kubeconfig)


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory, cluster: Sequence[str]) -> Callable[[str, bool], Held]:
    """Plays a chain on a kernel, once."""

    @functools.cache
    def played(how: str, numa: bool) -> Held:
        return kept(MORE, lambda: _boots(how, tmp_path_factory.mktemp("cpus"), QUICK_PODS, cluster, numa=numa))

    return played


@functools.cache
def _daily(folder: Path) -> Held:
    return kept(CASES, lambda: _boots("nri", folder, QUICK_PODS, numa=False, chain="cpus"))


@pytest.mark.parametrize("case", CASES)
def test_cpus(case: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    ended_well(case, _daily(tmp_path_factory.getbasetemp()))


_CELLS: Final = [(how, numa) for how in ("nri", "relay") for numa in (False, True)]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("how", "numa", "case"), [(*cell, case) for cell in _CELLS for case in MORE if cell[1] or case != OF_NODES]
)
def test_more(how: str, numa: bool, case: str, held: Callable[[str, bool], Held]) -> None:
    ended_well(case, held(how, numa))


@pytest.mark.nightly
@pytest.mark.parametrize(("how", "quick_pods"), [("nri", 200), ("relay", 50)])
def test_many_quick_pods(how: str, quick_pods: int, tmp_path: Path) -> None:
    assert not {case: why for case, why in _boots(how, tmp_path, quick_pods).items() if why}


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Held]:
    """Plays the cases of memory nodes, once."""

    @functools.cache
    def played(how: str) -> Held:
        return kept(cpus_memory.CASES, lambda: _boots(how, tmp_path_factory.mktemp("memory"), 0, chain="cpus-memory"))

    return played


@pytest.mark.nightly
@pytest.mark.parametrize("case", cpus_memory.CASES)
@pytest.mark.parametrize("how", ["nri", "relay"])
def test_memory_nodes(how: str, case: str, counted: Callable[[str], Held]) -> None:
    ended_well(case, counted(how))
