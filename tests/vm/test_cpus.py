"""CPUs by a policy on a real kernel and runtime: eight CPUs and containerd 2.4 with NRI; nightly 1.7 behind the relay,
and a stock kernel with two memory nodes. At the end the policy comes from a real kube-apiserver.
"""

import functools
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from _pytest.mark import ParameterSet

from tests.patience import patience
from tests.peers.find import require
from tests.peers.kube import running_apiserver
from tests.peers.kubeclient import KubeClient
from tests.real.test_agent import kubeconfig_of
from tests.real.test_policy_objects import install
from tests.vm import guest
from tests.vm.chains import outcomes
from tests.vm.cpus_cases import CASES, OF_NODES
from tests.vm.cpus_cluster import CASE
from tests.vm.cpus_node import NAME
from tests.vm.overlaps import first_act, overlaps

QUICK_PODS = 9


def _compiled(folder: Path) -> Path:
    program = folder / "first_act"
    line = ["gcc", "-O2", "-static", "-Wall", "-Werror", "-o", str(program), str(guest.HERE / "first_act.c")]
    subprocess.run(line, check=True, timeout=60 * patience())
    return program


def _played(
    chain: str, folder: Path, quick_pods: int, cluster: Sequence[str] = (), *, numa: bool = False
) -> Mapping[str, str]:
    machine = guest.needed(stock=numa)
    require("containerd-1.7" if chain == "cpus-relay" else "containerd")
    arguments = (chain, str(_compiled(folder)), str(quick_pods), *cluster)
    reaches = tuple(urlsplit(url).port or 443 for url in cluster[:1])
    return outcomes(machine, arguments, guest.Machine(cpus=8, numa=numa, reaches=reaches))


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


def _cells() -> Iterator[ParameterSet]:
    """NRI on the kernel in user mode. The relay, and the stock kernel with its memory nodes, are for the night."""
    for chain, how in (("cpus", "nri"), ("cpus-relay", "relay")):
        for numa in (False, True):
            for case in (*CASES, CASE):
                if numa or case != OF_NODES:
                    marks = [pytest.mark.nightly] if numa or how == "relay" else []
                    yield pytest.param(chain, numa, case, id=f"{how}{'-numa' if numa else ''}-{case}", marks=marks)


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory, cluster: Sequence[str]) -> Callable[[str, bool], Mapping[str, str]]:
    """Plays a chain on a kernel, once: case -> empty if it held, else what went wrong."""

    @functools.cache
    def played(chain: str, numa: bool) -> Mapping[str, str]:
        return _played(chain, tmp_path_factory.mktemp("cpus"), QUICK_PODS, cluster, numa=numa)

    return played


@pytest.mark.parametrize(("chain", "numa", "case"), [*_cells()])
def test_cpus(chain: str, numa: bool, case: str, held: Callable[[str, bool], Mapping[str, str]]) -> None:
    found = held(chain, numa)
    assert case in found, "the guest reported nothing for this case"
    assert found[case] == "", found[case]


@pytest.mark.nightly
@pytest.mark.parametrize(("chain", "quick_pods"), [("cpus", 200), ("cpus-relay", 50)])
def test_many_quick_pods(chain: str, quick_pods: int, tmp_path: Path) -> None:
    failed = {case: why for case, why in _played(chain, tmp_path, quick_pods, numa=True).items() if why}
    assert not failed


def test_the_record_of_a_program_names_who_else_might_run_there(tmp_path: Path) -> None:
    """Given cgroups, some with processes, when the program begins, its record has those and its own CPUs; an overlap is
    a container whose program had begun before and might use one of them."""
    for cgroup, pid, cpus in (
        ("pod1/sandbox", "1", "0-8191"),
        ("pod1/own", "2", "0-8191"),
        ("burstable/pod2/shared", "3", "0-8191"),
        ("burstable/pod3/empty", "", "0-8191"),
        ("pod4/elsewhere", "4", ""),
        ("pod5/later", "5", "0-8191"),
    ):
        (tmp_path / "tree" / cgroup).mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / cgroup / "cgroup.procs").write_text(pid)
        (tmp_path / "tree" / cgroup / "cpuset.cpus.effective").write_text(f"{cpus}\n")
    out = tmp_path / "out"
    process = subprocess.Popen([_compiled(tmp_path), out, tmp_path / "tree"])
    try:
        while not out.exists() and process.poll() is None:
            pass
    finally:
        process.kill()
        process.wait()
    act = first_act(out.read_text())
    there = ("./burstable/pod2/shared", "./pod1/own", "./pod1/sandbox", "./pod4/elsewhere", "./pod5/later")
    assert tuple(sorted(act.others)) == there
    acts = {name: replace(act, began_ns=act.began_ns - 1) for name in ("shared", "empty", "elsewhere")}
    acts |= {"own": act, "later": replace(act, began_ns=act.read_ns + 1)}
    (found,) = overlaps(acts, "own")
    assert "./burstable/pod2/shared might use 0-8191" in found
