"""Our policy `static` and kubelet's own give the same CPUs in a thousand histories. `make oracle` plays more."""

from tests.contract.cpus.kubelet_histories import COMBINATIONS, MACHINES, differences, history
from tests.peers.cpuoracle import cpu_oracle

HISTORIES = 1000


def test_static_is_kubelets() -> None:
    with cpu_oracle() as oracle:
        told = [history(number) for number in range(HISTORIES)]
        assert [line for one in told for line in differences(oracle, one)] == []
    refused = {error.partition(":")[0] for one in told for error, *_ in one.ours if error}
    assert refused == {"not enough cpus available to satisfy request", "SMT Alignment Error"}
    grounds = [one.ground for one in told]
    assert len({id(ground.machine) for ground in grounds}) == len(MACHINES), "every machine"
    assert {tuple(ground.rules.static.options) for ground in grounds} >= set(COMBINATIONS), "every combination"
